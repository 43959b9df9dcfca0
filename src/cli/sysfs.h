// SPDX-License-Identifier: Apache-2.0
// A view of /sys/class with the device in it, for programs that look for devices there.
#ifndef VB_CLI_SYSFS_H
#define VB_CLI_SYSFS_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>

enum {
    VB_SYSFS_ERROR_BYTES = 160,
    VB_SYSFS_GIDS = 8,
};

struct vb_sysfs_gid {
    union ibv_gid gid;
    char interface[IF_NAMESIZE];
};

// What the device says of itself when it is opened.
struct vb_sysfs_device {
    char name[IBV_SYSFS_NAME_MAX];
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct vb_sysfs_gid gid[VB_SYSFS_GIDS];
    unsigned gids;
};

// Opens the device of the library in a child of its own, and asks it. False: there is none, and the
// library has said why.
bool vb_sysfs_ask(const char *library, struct vb_sysfs_device *device);

// Gives this process, and what it executes, a /sys/class of its own: the machine's, and the device.
// The kernel forgets it with the last process that sees it. False: why[] says the reason.
bool vb_sysfs_enter(const struct vb_sysfs_device *device, char why[VB_SYSFS_ERROR_BYTES]);

#endif
