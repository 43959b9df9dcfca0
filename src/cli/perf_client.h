// SPDX-License-Identifier: Apache-2.0
// The client's side of one measurement: set up both ends, measure, count what was verified.
#ifndef VB_CLI_PERF_CLIENT_H
#define VB_CLI_PERF_CLIENT_H

#include "cli/perf.h"
#include "cli/perf_session.h"
#include "cli/progress.h"

// Measures what the plan says. Returns 0; -1: a sentence is in session->why.
int vb_perf_measure(struct vb_perf_session *session, const struct vb_perf_plan *plan,
                    const struct vb_perf_length *length, struct vb_progress *progress,
                    struct vb_perf_row *row);

#endif
