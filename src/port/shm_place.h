// SPDX-License-Identifier: Apache-2.0
// Where shm ports meet: a socket per address in a directory of the user's own. Of a NIC with
// several units each listens at a socket of its own, and a link beside them tells how many there
// are.
#ifndef VB_PORT_SHM_PLACE_H
#define VB_PORT_SHM_PLACE_H

#include "nic/frame.h"

#include <sys/stat.h>
#include <sys/un.h>

enum {
    SHM_UNITS = 16,                                            // of one NIC at most
    SHM_DIR_MAX = sizeof(((struct sockaddr_un *)0)->sun_path), // what a socket's name has room for
};

struct shm_place {
    char dir[SHM_DIR_MAX];
    unsigned long long netns; // equal addresses in different network namespaces do not meet
    struct vb_ip local;
    uint32_t unit; // the first one's files stand for the address: it takes and removes all others
    int listener;
    struct stat bound; // the socket's file
};

// Parses an IPv4 or IPv6 literal, an interface after '%' included. 0 or -EINVAL, with words.
int vb_shm_address_parse(const char *text, struct vb_ip *ip, char *error_text);

// The runtime directory, made if it is not there and checked: ours alone. 0 or a negative errno,
// with words.
int vb_shm_place_dir(const char *given, char *path, size_t room, char *error_text);

// Checks or makes the directory and listens at the address, with a socket for each of `units` (a
// power of two up to SHM_UNITS). 0 or a negative errno, with words.
int vb_shm_place_open(struct shm_place *const *places, uint32_t units, const char *dir,
                      const struct vb_ip *local, char *error_text);
void vb_shm_place_close(struct shm_place *place);

// Connects to the port at an address, or to one unit of it, without waiting. A descriptor or a
// negative errno.
int vb_shm_place_call(const struct shm_place *place, const struct vb_ip *remote);
int vb_shm_place_call_unit(const struct shm_place *place, const struct vb_ip *remote,
                           uint32_t unit);

// How many units the NIC at an address says that it has: a power of two up to SHM_UNITS.
uint32_t vb_shm_place_units(const struct shm_place *place, const struct vb_ip *remote);

// Makes a directory, if it is not there, and refuses one that others could write to. 0 or a
// negative errno, with words.
int vb_shm_check_dir(const char *dir, char *error_text);

// Says what went wrong in one line of VB_ERROR_TEXT bytes, if there is room. Returns -error.
__attribute__((format(printf, 3, 4))) int vb_shm_fail(char *error_text, int error,
                                                      const char *format, ...);

#endif
