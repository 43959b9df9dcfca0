// SPDX-License-Identifier: Apache-2.0
// What neighbours do to a tenant: how long its READs take in the NIC and as a whole, alone, beside
// three well-behaved tenants that use their shares, and beside three hostile ones. Each READ has to
// be within what it takes alone and a bound (docs/hull.md).
#ifndef VB_SIM_ISOLATION_H
#define VB_SIM_ISOLATION_H

#include "sim/tenant_world.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_NEIGHBOURS = 3,
};

enum vb_isolation_company {
    VB_COMPANY_NONE,    // alone
    VB_COMPANY_QUIET,   // three busy tenants
    VB_COMPANY_HOSTILE, // endless programs and a flood of WRITEs, a fuzzer, a flood of READs
    VB_COMPANIES
};

struct vb_isolation_opts {
    uint64_t seed, duration_ns;
    uint32_t weight;                            // of the tenant that is measured; 0: the usual one
    uint32_t others_weight[VB_NEIGHBOURS];      // 0: the usual one
    bool no_shares;                             // tenants are not told apart
    enum vb_tenant_kind hostile[VB_NEIGHBOURS]; // other kinds of hostile ones; VB_TENANT_IDLE: as
                                                // above
};

struct vb_isolation_times {
    uint64_t count;
    // In the NIC: until the request is sent, and from the answer's arrival to its completion; the
    // worst also without the frames that had come before the answer.
    uint64_t service_p50_ns, service_p99_ns, service_max_ns, turns_max_ns;
    uint64_t whole_p50_ns, whole_p99_ns; // from the doorbell to the completion
    bool above; // the load was above the share's part: there is no promise beside this company
};

struct vb_isolation_result {
    struct vb_isolation_times beside[VB_COMPANIES];
    uint64_t bound_ns;             // that every READ beside others may take longer than one alone
    bool kept;                     // beside all companies for which there is a promise
    char violated[VB_TENANT_TEXT]; // what the watch over turns found, or empty
    bool above;                    // of some company
};

// -ENOMEM.
int vb_isolation_run(const struct vb_isolation_opts *opts, struct vb_isolation_result *result);

// One seed's tenants, of drawn kinds and weights, under the watch over turns; and one beside three
// of drawn kinds, under the bound. -ENOMEM; *violated becomes what was wrong, or stays empty.
int vb_fair_run(uint64_t seed, uint64_t *digest, uint64_t *steps, char violated[400]);

#endif
