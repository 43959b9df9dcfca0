// SPDX-License-Identifier: Apache-2.0
// The auto port: frames to NICs that a shm port reaches go through memory, all others by UDP.
#ifndef VB_PORT_AUTO_H
#define VB_PORT_AUTO_H

#include "port/port.h"

// Both ports have the same address. On success they belong to the auto port and close with it.
struct vb_auto_opts {
    struct vb_port *shm;
    struct vb_port *udp;
    char *error_text; // VB_ERROR_TEXT bytes, or NULL
};

// 0 or a negative errno; error_text then says in words what was wrong.
int vb_auto_open(const struct vb_auto_opts *opts, struct vb_port **port);

#endif
