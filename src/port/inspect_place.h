// SPDX-License-Identifier: Apache-2.0
// Where a NIC can be asked about itself: a Unix socket for each, inspect-PID-NUMBER in the user's
// runtime directory. The socket gets this name when it listens, so one that refuses is left over
// from a process that was killed.
#ifndef VB_PORT_INSPECT_PLACE_H
#define VB_PORT_INSPECT_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
    VB_INSPECT_PATH = sizeof(((struct sockaddr_un *)0)->sun_path),
    VB_INSPECT_DIRS = 4, // that may be the user's, by what its environment says
};

struct vb_inspect_place {
    char path[VB_INSPECT_PATH];
    uint32_t number;           // of the NICs of this process, from 0 on
    int listener;              // non-blocking
    struct stat bound, socket; // the name's file, and the descriptor's
};

// Makes a socket in the runtime directory and removes those of dead processes. 0 or a negative
// errno.
int vb_inspect_place_open(struct vb_inspect_place *place);
// Removes the name, if it is still ours; who is connected stays so. May be repeated.
void vb_inspect_place_hide(const struct vb_inspect_place *place);
// Whether the descriptor is still the socket: applications may close what they do not know.
bool vb_inspect_place_holds(const struct vb_inspect_place *place);
// Closes the socket, without a word to those who share it.
void vb_inspect_place_close(struct vb_inspect_place *place);

// ---- from outside

struct vb_inspect_name {
    char path[VB_INSPECT_PATH];
    long pid;
    uint32_t number;
};

// The directories that NICs of this user may be in. Returns how many.
uint32_t vb_inspect_dirs(char dirs[VB_INSPECT_DIRS][VB_INSPECT_PATH]);
// The names in a directory, by process and number; the caller frees them. 0 or a negative errno:
// -EPERM if the directory is not ours alone, or, if we are root, its owner's.
int vb_inspect_list(const char *dir, struct vb_inspect_name **names, uint32_t *count);
// Connects without waiting. A descriptor, or a negative errno: -ECONNREFUSED or -ENOENT if the
// process is gone, and its name is then removed; -EAGAIN if too many others wait; -EPERM if
// somebody else listens there and we are not root. *pid becomes the listener's, 0 if we cannot see
// it.
int vb_inspect_call(const struct vb_inspect_name *name, pid_t *pid);

#endif
