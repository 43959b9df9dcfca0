// SPDX-License-Identifier: Apache-2.0
// Keeps a thread from being cancelled in the middle of something: most system calls are points
// where it could be, and state and locks would be left as they are.
#ifndef VB_BASE_CANCEL_H
#define VB_BASE_CANCEL_H

#include <pthread.h>

// Returns what vb_cancel_allow() wants back. May be nested.
static inline int vb_cancel_hold(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void vb_cancel_allow(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
