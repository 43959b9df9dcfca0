// SPDX-License-Identifier: Apache-2.0
// Descriptors that the service manager hands to a process when it starts it (sd_listen_fds(3)):
// those that it has kept for us, and sockets at which it has listened already.
//
// What they are is judged by whoever takes them; nothing is believed of a descriptor but what the
// kernel says of it.
#ifndef VB_HULL_INHERIT_H
#define VB_HULL_INHERIT_H

#include "verbena/nic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_INHERITED_FIRST = 3, // their numbers begin here
    VB_INHERITED_MAX = 1 << 16,
    VB_INHERITED_NAME = 255, // characters at most
};

struct vb_inherited_fd {
    int fd;           // -1: somebody took it, or it was not open
    const char *name; // in `text`
    const char *why;  // it was refused; NULL: it was not, or nobody knew it
};

struct vb_inherited {
    uint32_t count;
    struct vb_inherited_fd *fd;
    char *text;
};

// What LISTEN_FDS and LISTEN_FDNAMES (NULL: not set) say, without a look at the descriptors. 0,
// -EINVAL with words, or -ENOMEM. If the names are wrong there are descriptors all the same, to be
// closed, and none has one.
int vb_inherited_parse(const char *count, const char *names, struct vb_inherited *inherited,
                       char error[VB_ERROR_TEXT]);
// The same of the environment, if it is meant for this process (LISTEN_PID); the variables go away.
int vb_inherited_take(struct vb_inherited *inherited, char error[VB_ERROR_TEXT]);
// The socket called `name`, which listens: path[] becomes its file. A descriptor, which is the
// caller's then; -ENOENT: there is none; -EPERM with words: it is not as it must be.
int vb_inherited_listener(struct vb_inherited *inherited, const char *name, char *path, size_t room,
                          char error[VB_ERROR_TEXT]);
// Closes what nobody took, whatever it is, without waiting for anything.
void vb_inherited_free(struct vb_inherited *inherited);

#endif
