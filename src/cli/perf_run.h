// SPDX-License-Identifier: Apache-2.0
// The client's hot loops: one operation at a time for latency, many in flight for rate.
#ifndef VB_CLI_PERF_RUN_H
#define VB_CLI_PERF_RUN_H

#include "base/hist.h"
#include "cli/perf_end.h"
#include "cli/perf_pattern.h"
#include "cli/progress.h"

enum {
    VB_PERF_BATCH = 64
}; // work requests posted, and completions polled, at once

// A queue pair as the client drives it.
struct vb_perf_lane {
    uint64_t posted, done;  // operations
    uint64_t signaled;      // operations up to the last one that will report
    uint64_t next_verify;   // the operation to be verified next
    uint64_t verifies;      // verified operations posted
    uint32_t local_offset;  // in the window, of the next operation
    uint32_t remote_offset; // likewise, at the target
    bool ready;             // in the list of lanes to post on
};

struct vb_perf_run {
    struct vb_perf_end *end;
    const struct vb_perf_plan *plan;
    struct vb_perf_layout layout;
    int control; // looked at now and then: the server may have gone
    bool yield;
    char *why; // VB_PERF_WHY bytes
    struct vb_progress *progress;
    enum vb_wr_opcode opcode;
    uint32_t signal_every;
    uint64_t ops_left;         // of the phase that runs
    uint64_t verified;         // READs and results of atomics compared
    uint64_t in_flight;        // operations, of all lanes
    struct vb_perf_lane *lane; // of the queue pairs that carry traffic
    uint32_t *ready;           // lanes that may have room for more
    uint32_t ready_count;
    struct vb_send_wr wr[VB_PERF_BATCH];
    struct vb_sge sge[VB_PERF_BATCH];
};

// What a loop of many operations looks at once in a while.
struct vb_perf_watch {
    uint64_t begin_ns, now_ns;
    uint64_t moved_ns;   // when a completion was last seen
    uint64_t control_ns; // when the control channel was last looked at
};

// The end must be connected and, with the plan, outlive the run.
int vb_perf_run_init(struct vb_perf_run *run, struct vb_perf_end *end,
                     const struct vb_perf_plan *plan); // -1: no memory
void vb_perf_run_fini(struct vb_perf_run *run);
// Operations one by one on the first queue pair, each timed from post to completion. -1: see
// run->why.
int vb_perf_run_latency(struct vb_perf_run *run, const struct vb_perf_budget *budget,
                        struct vb_hist *hist);
// As many in flight as the plan says, until the budget is used up and all are done.
int vb_perf_run_rate(struct vb_perf_run *run, const struct vb_perf_budget *budget, uint64_t *ops,
                     uint64_t *ns);
// For loops elsewhere: polls until one completion has come.
int vb_perf_run_await(struct vb_perf_run *run, struct vb_wc *wc);
// Looks at the clock and the control channel, and says how far the phase is. -1: nothing has moved
// for too long, or the other side is gone.
void vb_perf_watch_begin(struct vb_perf_watch *w);
int vb_perf_watch_look(struct vb_perf_watch *w, struct vb_perf_run *run,
                       const struct vb_perf_budget *budget, bool moved);
uint64_t vb_perf_run_verifies(const struct vb_perf_run *run); // operations that had to be verified
uint64_t vb_perf_run_sum(const struct vb_perf_run *run); // of the words that atomics must leave

#endif
