// SPDX-License-Identifier: Apache-2.0
// The client's side of `verbena perf get`: asks by each way, one at a time or several under way.
#ifndef VB_CLI_PERF_GET_CLIENT_H
#define VB_CLI_PERF_GET_CLIENT_H

#include "cli/perf_get_table.h"
#include "cli/perf_run.h"
#include "cli/perf_session.h"

// One way, as far as it has gone; its requests are answered in order.
struct vb_get_lane {
    uint64_t begun, done;
    uint64_t last; // the one done last
    uint64_t verified;
};

// Walks by READs end in any order: each has a place of its own meanwhile.
struct vb_get_chase {
    uint32_t free[VB_PERF_GET_DEPTH_MAX], count;
    uint64_t n[VB_PERF_GET_DEPTH_MAX]; // by place: the request
};

// The queue pairs: of the end, and of the chain.
enum {
    VB_GET_PLAIN,
    VB_GET_CHAIN,
    VB_GET_QPS
};

struct vb_get_run {
    struct vb_perf_run *base;
    struct vb_get_table table;
    struct vb_qp *qp[VB_GET_QPS]; // the first is the end's
    uint32_t sent[VB_GET_QPS];
    uint32_t missing[VB_GET_QPS]; // receives that replies took
    struct vb_get_lane lane[VB_PERF_WAYS];
    struct vb_get_chase chase;
    uint32_t chased; // the place of the one done last
};

// What the client's end needs for this.
void vb_get_end_opts(const struct vb_perf_plan *plan, struct vb_perf_end_opts *opts);
// Connects both queue pairs to the server; the end has met it. -1: see session->why.
int vb_get_run_open(struct vb_get_run *run, struct vb_perf_session *session,
                    struct vb_perf_run *base);
void vb_get_run_close(struct vb_get_run *run); // before the end

// Requests one by one, each timed from post to reply. -1: see base->why.
int vb_get_run_latency(struct vb_get_run *run, enum vb_perf_via via,
                       const struct vb_perf_budget *budget, struct vb_hist *hist);
// As many under way as the plan says, until the budget is used up and all are done.
int vb_get_run_rate(struct vb_get_run *run, enum vb_perf_via via,
                    const struct vb_perf_budget *budget, uint64_t *ops, uint64_t *ns);
// Receiver-not-ready answers so far, in both directions.
uint64_t vb_get_run_rnr(const struct vb_get_run *run);

#endif
