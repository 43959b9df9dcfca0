// SPDX-License-Identifier: Apache-2.0
// Rows for people, rows for programs.
#ifndef VB_CLI_PERF_REPORT_H
#define VB_CLI_PERF_REPORT_H

#include "cli/perf.h"

#include <stdio.h>

// Where a measurement ran.
struct vb_perf_machine {
    char cpu[96];
    char kernel[72];
    int cores;     // online
    int pinned[2]; // the client's and the server's core; -1: not pinned, or elsewhere
    bool one_core; // both sides share one
};

void vb_perf_machine_find(struct vb_perf_machine *m, const int pinned[2], bool one_core);
void vb_perf_report_head(FILE *out, const struct vb_perf_machine *m);
void vb_perf_report_row(FILE *out, const struct vb_perf_row *row);
// What the table cannot say in its columns.
void vb_perf_report_foot(FILE *out, const struct vb_perf_row *rows, uint32_t count);
void vb_perf_report_json(FILE *out, const struct vb_perf_row *row, const struct vb_perf_machine *m);
double vb_perf_ops_per_s(const struct vb_perf_row *row);
double vb_perf_copy_bytes_per_s(const struct vb_perf_row *row); // 0: none was measured
// To the yardstick's median; 0: there is none, or the latency is no round trip.
double vb_perf_raw_ratio(const struct vb_perf_row *row, enum vb_perf_kind yardstick);

#endif
