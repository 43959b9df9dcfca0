// SPDX-License-Identifier: Apache-2.0
// Descriptors of strangers, to be closed. Closing a file may take as long as its owner likes: a
// file system in user space, a socket that lingers, the last use of much memory. So whoever is sent
// one does not wait: they go through a queue, and one thread closes them, one after the other; or
// two, for memory takes its time but never for ever, and does not wait for other things.
#ifndef VB_HOST_STRAY_H
#define VB_HOST_STRAY_H

#include <stdint.h>

enum {
    VB_STRAYS_MAX = 253, // descriptors in one message: what Linux allows
};

// Without memory or a thread for it they stay open.
void vb_stray_close(const int *fds, uint32_t count);
// A socket of ours in which descriptors may lie that nobody has taken.
void vb_stray_drain(int socket);

#endif
