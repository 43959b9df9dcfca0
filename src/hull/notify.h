// SPDX-License-Identifier: Apache-2.0
// The service manager, told by the protocol of sd_notify(3).
#ifndef VB_HULL_NOTIFY_H
#define VB_HULL_NOTIFY_H

// Sends lines such as "READY=1" to $NOTIFY_SOCKET. 0: sent, or nobody wants to know; a negative
// errno.
int vb_hull_notify(const char *lines);

#endif
