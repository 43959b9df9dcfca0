// SPDX-License-Identifier: Apache-2.0
// The shm port: NICs of one user on one host exchange frames through memory. Each direction is a
// ring that the sender writes and the receiver only reads; a Unix connection introduces the two,
// wakes a sleeper and tells of a death. No frame costs a system call while both sides are awake.
#ifndef VB_PORT_SHM_H
#define VB_PORT_SHM_H

#include "port/port.h"

#include <stddef.h>

struct vb_shm_opts {
    const char *address;     // IPv4 or IPv6 literal; peers find the port by it
    const char *runtime_dir; // NULL: what vb_shm_runtime_dir() says
    uint32_t ring_bytes;     // for each peer sent to, a power of two; 0: the default
    char *error_text;        // VB_ERROR_TEXT bytes, or NULL
};

// 0 or a negative errno; error_text then says in words what was wrong.
int vb_shm_open(const struct vb_shm_opts *opts, struct vb_port **port);

// Ports that share an address, one for each of `count` units (a power of two up to 16). Each has
// rings of its own with each unit of a peer that it exchanges frames with, so units share nothing;
// a sender takes the ring by the lowest bits of the destination queue pair.
int vb_shm_open_group(const struct vb_shm_opts *opts, struct vb_port **ports, uint32_t count);

// The directory in which ports meet: the one given, else $VERBENA_RUNTIME_DIR, else
// $XDG_RUNTIME_DIR/verbena, else /tmp/verbena-UID. 0 or -ENAMETOOLONG.
int vb_shm_runtime_dir(const char *given, char *path, size_t room);

// Whether a frame on this path would leave by this shm port now. Tries to reach the remote port,
// if that has not been tried lately; never waits.
bool vb_shm_reaches(struct vb_port *port, struct vb_path *path);

#endif
