// SPDX-License-Identifier: Apache-2.0
// What `verbena nic` is told: which NICs, and what each tenant may have.
#ifndef VB_HULL_CONFIG_H
#define VB_HULL_CONFIG_H

#include "host/contract.h"
#include "verbena/nic.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    VB_HULL_NICS = 16,
    VB_HULL_TENANTS = 256,
    VB_HULL_LINE = 512, // characters of a line at most
};

// What a tenant may have at a time, of each NIC.
struct vb_hull_quota {
    uint64_t applications;
    uint64_t queue_pairs;
    uint64_t queues;           // completion queues and shared receive queues
    uint64_t regions;          // and windows and domains
    uint64_t entries;          // of all its queues
    uint64_t bytes;            // of memory that the hull maps
    uint64_t memories;         // pieces of it, of all applications, and names
    uint64_t rate_kbps;        // of each queue pair; 0: no limit
    uint64_t tenant_rate_kbps; // of all of them together; 0: no limit
    uint64_t weight;           // of its turns against those of others; 0: the usual one
    uint64_t copy;             // 1: memory that is not shared may be copied
    uint64_t faults;           // 1: faults on purpose may be made, of its own queue pairs
};

struct vb_hull_tenant_config {
    bool anyone; // [tenant *]
    uid_t uid;
    struct vb_hull_quota quota;
};

struct vb_hull_nic_config {
    char name[VB_HULL_NAME];
    char address[64];
    char further[VB_DEV_ADDRESSES - 1][64]; // that it is on as well
    uint32_t furthers;
    char port[16];
    char socket[108]; // empty: hull-NAME in the runtime directory
    bool has_group;
    gid_t group;
    uint32_t pus;             // processing units, each with a thread; 0: one
    uint32_t cpus;            // where they run: as many as there are units; 0: anywhere
    uint32_t cpu[VB_PUS_MAX]; // by unit
    uint32_t spin_us;         // how long one looks for work before it sleeps
    bool no_thread;           // whoever opened it runs it, by vb_hull_turn()
};

struct vb_inherited;

struct vb_hull_config {
    struct vb_inherited *inherited; // of the service manager, while hulls are opened; or NULL
    char metrics[108];              // where they are served; empty: nowhere
    bool metrics_anywhere;          // for other machines, too
    uint32_t nics, tenants;
    struct vb_hull_nic_config nic[VB_HULL_NICS];
    struct vb_hull_tenant_config tenant[VB_HULL_TENANTS];
};

// One NIC called "verbena0", and quotas that no well-meant program meets.
void vb_hull_config_init(struct vb_hull_config *config);
// 0 or -EINVAL, with words: "line 7: …".
int vb_hull_config_parse(const char *text, uint32_t bytes, struct vb_hull_config *config,
                         char error[VB_ERROR_TEXT]);
// The same of a file. A negative errno, with words.
int vb_hull_config_read(const char *path, struct vb_hull_config *config, char error[VB_ERROR_TEXT]);
// Whether there can be so many units.
bool vb_hull_config_is_pus(uint64_t number);
// Whether this can be a NIC's: letters, digits, - and _.
bool vb_hull_config_is_name(const char *text);
const struct vb_hull_quota *vb_hull_config_quota(const struct vb_hull_config *config, uid_t uid);

#endif
