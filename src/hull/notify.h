// SPDX-License-Identifier: Apache-2.0
// The service manager, told by the protocol of sd_notify(3).
#ifndef VB_HULL_NOTIFY_H
#define VB_HULL_NOTIFY_H

#include <stdbool.h>

// Whether there is one.
bool vb_hull_notify_wanted(void);
// Sends lines such as "READY=1" to $NOTIFY_SOCKET. 0: sent, or nobody wants to know; a negative
// errno.
int vb_hull_notify(const char *lines);
// The same with a descriptor (-1: none), without waiting: -EAGAIN if the manager has no room.
int vb_hull_notify_fd(const char *lines, int fd);

#endif
