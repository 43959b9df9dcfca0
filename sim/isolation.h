// SPDX-License-Identifier: Apache-2.0
// What bad neighbours do to a tenant: how long its READs take in the NIC and as a whole, beside
// well-behaved tenants that use their shares and beside hostile ones.
#ifndef VB_SIM_ISOLATION_H
#define VB_SIM_ISOLATION_H

#include "sim/tenant_world.h"

#include <stdbool.h>
#include <stdint.h>

enum vb_isolation_company {
    VB_COMPANY_NONE,    // alone
    VB_COMPANY_QUIET,   // two busy tenants
    VB_COMPANY_HOSTILE, // one with endless programs and floods, one that fuzzes its own queues
    VB_COMPANIES
};

struct vb_isolation_opts {
    uint64_t seed, duration_ns;
    uint32_t weight;                // of the tenant that is measured; 0: the usual one
    bool no_shares;                 // tenants are not told apart
    enum vb_tenant_kind hostile[2]; // other kinds of hostile ones; VB_TENANT_IDLE: as above
};

struct vb_isolation_times {
    uint64_t count;
    uint64_t service_p50_ns, service_p99_ns; // in the NIC: until the request is sent, and from the
                                             // answer's arrival to its completion
    uint64_t whole_p50_ns, whole_p99_ns;     // from the doorbell to the completion
};

struct vb_isolation_result {
    struct vb_isolation_times beside[VB_COMPANIES];
};

// -ENOMEM.
int vb_isolation_run(const struct vb_isolation_opts *opts, struct vb_isolation_result *result);

// One seed's tenants, of drawn kinds and weights, under the watch over turns. -ENOMEM; *violated
// becomes what was wrong, or stays empty.
int vb_fair_run(uint64_t seed, uint64_t *digest, uint64_t *steps, char violated[400]);
bool vb_fair_is_drawn(uint64_t seed);

#endif
