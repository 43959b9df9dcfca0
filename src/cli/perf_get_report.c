// SPDX-License-Identifier: Apache-2.0
// Rows of `verbena perf get`.
#include "cli/perf_get_report.h"

#include "cli/perf_plan.h"

typedef unsigned long long number;

struct vb_perf_row vb_get_row(const struct vb_perf_row *all, enum vb_perf_via via)
{
    const struct vb_perf_way *way = &all->way[via];
    struct vb_perf_row row = *all;
    row.plan.via = via;
    row.latency[VB_PERF_NIC] = way->latency;
    row.rate_ops = way->rate_ops;
    row.rate_ns = way->rate_ns;
    row.verified = way->verified;
    return row;
}

double vb_get_read_ratio(const struct vb_perf_row *row)
{
    uint64_t read_ns = row->way[VB_PERF_VIA_READ].latency.p50_ns;
    return read_ns ? (double)row->latency[VB_PERF_NIC].p50_ns / (double)read_ns : 0;
}

const char *vb_get_target_name(const struct vb_perf_row *row)
{
    return row->plan.via == VB_PERF_VIA_RPC_BLOCKING ? "block" : "poll";
}

// Whether the server's CPU looks keys up, besides running the NIC.
static bool is_rpc(enum vb_perf_via via)
{
    return via == VB_PERF_VIA_RPC || via == VB_PERF_VIA_RPC_BLOCKING;
}

void vb_get_report_text(FILE *out, const struct vb_perf_row *row)
{
    fprintf(out, "  via %s", vb_perf_via_name(row->plan.via));
    if (row->plan.list)
        fprintf(out, ", list %u%s", row->plan.list, row->plan.breaks ? " with break" : "");
    if (vb_get_read_ratio(row) > 0 && row->plan.via != VB_PERF_VIA_READ)
        fprintf(out, ", %.2f of a READ", vb_get_read_ratio(row));
}

void vb_get_report_json(FILE *out, const struct vb_perf_row *row)
{
    const struct vb_perf_way *way = &row->way[row->plan.via];
    fprintf(out, "\"via\":\"%s\",\"collision\":\"%s\",\"served_by\":\"%s\",",
            vb_perf_via_name(row->plan.via), vb_perf_collision_name(row->plan.collision),
            is_rpc(row->plan.via) ? "program" : "nic");
    fprintf(out, "\"list\":%u,\"break\":%s,", row->plan.list, row->plan.breaks ? "true" : "false");
    fprintf(out, "\"latency_rnr\":%llu,\"rate_rnr\":%llu,", (number)way->latency_rnr,
            (number)way->rate_rnr);
    if (vb_get_read_ratio(row) > 0)
        fprintf(out, "\"read_p50_ns\":%llu,\"read_ratio\":%.4f,",
                (number)row->way[VB_PERF_VIA_READ].latency.p50_ns, vb_get_read_ratio(row));
}
