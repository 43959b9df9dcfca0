// SPDX-License-Identifier: Apache-2.0
// Rows of `verbena perf get`: one for each way that was measured.
#ifndef VB_CLI_PERF_GET_REPORT_H
#define VB_CLI_PERF_GET_REPORT_H

#include "cli/perf.h"

#include <stdio.h>

// The row of one way, as if it had been measured alone; the READ of the same run stays in it.
struct vb_perf_row vb_get_row(const struct vb_perf_row *all, enum vb_perf_via via);
// Its median to that of the READ; 0: none was measured.
double vb_get_read_ratio(const struct vb_perf_row *row);
// What the server's process does meanwhile: "poll" or "block".
const char *vb_get_target_name(const struct vb_perf_row *row);
// What a row of this kind has more than others; the text has no end of line.
void vb_get_report_text(FILE *out, const struct vb_perf_row *row);
void vb_get_report_json(FILE *out, const struct vb_perf_row *row);

#endif
