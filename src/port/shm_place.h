// SPDX-License-Identifier: Apache-2.0
// Where shm ports meet: a socket per address in a directory of the user's own.
#ifndef VB_PORT_SHM_PLACE_H
#define VB_PORT_SHM_PLACE_H

#include "nic/frame.h"

#include <sys/stat.h>
#include <sys/un.h>

enum {
    SHM_DIR_MAX = sizeof(((struct sockaddr_un *)0)->sun_path), // what a socket's name has room for
};

struct shm_place {
    char dir[SHM_DIR_MAX];
    unsigned long long netns; // equal addresses in different network namespaces do not meet
    struct vb_ip local;
    int listener;
    struct stat bound; // the socket's file
};

// Parses an IPv4 or IPv6 literal, an interface after '%' included. 0 or -EINVAL, with words.
int vb_shm_address_parse(const char *text, struct vb_ip *ip, char *error_text);

// Checks or makes the directory and listens at the address. 0 or a negative errno, with words.
int vb_shm_place_open(struct shm_place *place, const char *dir, const struct vb_ip *local,
                      char *error_text);
void vb_shm_place_close(struct shm_place *place);

// Connects to the port at an address without waiting. A descriptor or a negative errno.
int vb_shm_place_call(const struct shm_place *place, const struct vb_ip *remote);

// Says what went wrong in one line of VB_ERROR_TEXT bytes, if there is room. Returns -error.
__attribute__((format(printf, 3, 4))) int vb_shm_fail(char *error_text, int error,
                                                      const char *format, ...);

#endif
