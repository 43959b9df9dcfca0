// SPDX-License-Identifier: Apache-2.0
// What operations hit: the target's memory and receives, and what was found in them.
#ifndef VB_CLI_PERF_SINK_H
#define VB_CLI_PERF_SINK_H

#include "cli/perf_end.h"
#include "cli/perf_pattern.h"

// A queue pair as the target sees it.
struct vb_perf_sink_lane {
    uint64_t next_stamp; // WRITE: the verified operation that is awaited
    uint64_t posted;     // receives
    uint64_t received;
};

struct vb_perf_sink {
    struct vb_perf_plan plan;
    struct vb_perf_layout layout;
    struct vb_perf_end end;
    uint64_t verified, wrong;
    uint64_t writes_before;         // of the NIC's counter, when the sink was opened
    struct vb_perf_sink_lane *lane; // of the queue pairs that carry traffic
    uint32_t look_at;               // the lane to look at next
};

// -1: see `why`, and nothing is left to close.
int vb_perf_sink_open(struct vb_perf_sink *sink, struct vb_nic *nic,
                      const struct vb_perf_plan *plan, char *why);
void vb_perf_sink_close(struct vb_perf_sink *sink);
// Connects queue pairs from `first` on to those that the message names, and posts receives.
int vb_perf_sink_connect(struct vb_perf_sink *sink, uint32_t first, struct vb_control_msg *msg,
                         char *why);

// Runs the NIC and takes what has come. Returns whether there was anything to do.
bool vb_perf_sink_turn(struct vb_perf_sink *sink);
// Looks at memory alone, without the NIC: WRITEs that have to be verified.
void vb_perf_sink_look(struct vb_perf_sink *sink);
// Takes all that has arrived.
void vb_perf_sink_drain(struct vb_perf_sink *sink);
// Takes what is still on its way: ends when nothing has come for a while.
void vb_perf_sink_settle(struct vb_perf_sink *sink);

// Messages that have arrived; of WRITEs, those that began to.
uint64_t vb_perf_sink_arrived(const struct vb_perf_sink *sink);
// The sum of all words that atomics work on.
uint64_t vb_perf_sink_sum(const struct vb_perf_sink *sink);

#endif
