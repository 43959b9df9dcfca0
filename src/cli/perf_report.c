// SPDX-License-Identifier: Apache-2.0
// Rows for people, rows for programs.
#include "cli/perf_report.h"

#include "verbena_config.h"

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

// Copies what may stand in a JSON string as it is.
static void copy_plain(char *to, size_t room, const char *from)
{
    size_t n = 0;
    for (; *from && n + 1 < room; from++) {
        if (*from >= ' ' && *from <= '~' && *from != '"' && *from != '\\')
            to[n++] = *from;
    }
    to[n] = '\0';
}

static void find_cpu(char *cpu, size_t room)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    copy_plain(cpu, room, "unknown CPU");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *value = strstr(line, ": ");
        if (strncmp(line, "model name", 10) == 0 && value != NULL) {
            copy_plain(cpu, room, value + 2);
            break;
        }
    }
    if (f != NULL)
        fclose(f);
}

void vb_perf_machine_find(struct vb_perf_machine *m, const int pinned[2], bool one_core)
{
    struct utsname name;
    find_cpu(m->cpu, sizeof m->cpu);
    copy_plain(m->kernel, sizeof m->kernel, uname(&name) == 0 ? name.release : "unknown");
    m->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    m->pinned[0] = pinned[0];
    m->pinned[1] = pinned[1];
    m->one_core = one_core;
}

double vb_perf_ops_per_s(const struct vb_perf_row *row)
{
    return row->rate_ns ? (double)row->rate_ops * 1e9 / (double)row->rate_ns : 0;
}

static const struct vb_perf_latency *latency_of(const struct vb_perf_row *row)
{
    return &row->latency[row->plan.op == VB_PERF_RAW ? VB_PERF_ECHO : VB_PERF_NIC];
}

double vb_perf_raw_ratio(const struct vb_perf_row *row)
{
    uint64_t raw = row->latency[VB_PERF_ECHO].p50_ns;
    return raw ? (double)latency_of(row)->p50_ns / (double)raw : 0;
}

static const char *size_text(uint32_t bytes, char text[16])
{
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        snprintf(text, 16, "%uM", bytes >> 20);
    else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
        snprintf(text, 16, "%uK", bytes >> 10);
    else
        snprintf(text, 16, "%u", bytes);
    return text;
}

void vb_perf_report_head(FILE *out, const struct vb_perf_machine *m)
{
    fprintf(out, "%s, %d cores, Linux %s; ", m->cpu, m->cores, m->kernel);
    if (m->one_core)
        fputs("not pinned: both sides share the only core, so times mean little\n", out);
    else if (m->pinned[0] >= 0 && m->pinned[1] >= 0)
        fprintf(out, "client on core %d, server on core %d\n", m->pinned[0], m->pinned[1]);
    else if (m->pinned[0] >= 0)
        fprintf(out, "client on core %d, server elsewhere\n", m->pinned[0]);
    else
        fputs("not pinned\n", out);
    fprintf(out, "%-5s %-4s %6s %5s %3s %8s %8s %8s %8s %6s %9s %8s %9s\n", "", "", "", "", "",
            "p50", "p99", "p99.9", "raw p50", "ratio", "rate", "bandw.", "verified");
    fprintf(out, "%-5s %-4s %6s %5s %3s %8s %8s %8s %8s %6s %9s %8s %9s\n", "op", "port", "size",
            "depth", "qps", "us", "us", "us", "us", "to raw", "M ops/s", "Gb/s", "ops");
}

void vb_perf_report_row(FILE *out, const struct vb_perf_row *row)
{
    const struct vb_perf_plan *p = &row->plan;
    const struct vb_perf_latency *l = latency_of(row);
    char size[16];
    double ops = vb_perf_ops_per_s(row);
    fprintf(out, "%-5s %-4s %6s %5u %3u %8.2f %8.2f %8.2f %8.2f %6.2f %9.4f %8.3f %9llu\n",
            vb_perf_op_name(p->op), "udp", size_text(p->size, size), p->depth, p->qps,
            (double)l->p50_ns / 1e3, (double)l->p99_ns / 1e3, (double)l->p999_ns / 1e3,
            (double)row->latency[VB_PERF_ECHO].p50_ns / 1e3, vb_perf_raw_ratio(row), ops / 1e6,
            ops * p->size * 8 / 1e9, (unsigned long long)row->verified);
    fflush(out);
}

static void print_spread(FILE *out, const char *what, const struct vb_perf_latency *l)
{
    fprintf(out, "%s %.2f to %.2f", what, (double)l->p50_min_ns / 1e3, (double)l->p50_max_ns / 1e3);
}

void vb_perf_report_foot(FILE *out, const struct vb_perf_row *rows, uint32_t count)
{
    char size[16];
    fprintf(
        out,
        "p50 is the median of %d slices' medians, the NIC's and the raw echo's in turn. In us:\n",
        VB_PERF_SLICES);
    for (uint32_t i = 0; i < count; i++) {
        const struct vb_perf_row *r = &rows[i];
        fprintf(out, "  %s %s:", vb_perf_op_name(r->plan.op), size_text(r->plan.size, size));
        if (r->plan.op != VB_PERF_RAW)
            print_spread(out, " slices", &r->latency[VB_PERF_NIC]);
        print_spread(out, r->plan.op == VB_PERF_RAW ? " slices" : ", raw",
                     &r->latency[VB_PERF_ECHO]);
        fprintf(out, ", raw with a connected client %.2f",
                (double)r->latency[VB_PERF_ECHO_CONNECTED].p50_ns / 1e3);
        if (r->plan.raw_size != r->plan.size)
            fprintf(out, "; raw is an echo of %u bytes, one packet", r->plan.raw_size);
        if (r->rate_lost)
            fprintf(out, "; one way, %llu of %llu packets were lost",
                    (unsigned long long)r->rate_lost,
                    (unsigned long long)(r->rate_lost + r->rate_ops));
        fputc('\n', out);
    }
}

void vb_perf_report_json(FILE *out, const struct vb_perf_row *row, const struct vb_perf_machine *m)
{
    const struct vb_perf_plan *p = &row->plan;
    const struct vb_perf_latency *l = latency_of(row), *raw = &row->latency[VB_PERF_ECHO];
    double ops = vb_perf_ops_per_s(row);
    fprintf(out, "{\"op\":\"%s\",\"port\":\"udp\",\"size\":%u,\"depth\":%u,\"qps\":%u,\"mtu\":%u,",
            vb_perf_op_name(p->op), p->size, p->depth, p->qps, p->mtu);
    fprintf(out, "\"p50_ns\":%llu,\"p99_ns\":%llu,\"p999_ns\":%llu,\"latency_ops\":%llu,",
            (unsigned long long)l->p50_ns, (unsigned long long)l->p99_ns,
            (unsigned long long)l->p999_ns, (unsigned long long)l->count);
    fprintf(out, "\"p50_min_ns\":%llu,\"p50_max_ns\":%llu,\"slices\":%d,",
            (unsigned long long)l->p50_min_ns, (unsigned long long)l->p50_max_ns, VB_PERF_SLICES);
    fprintf(out, "\"ops_per_s\":%.3f,\"bytes_per_s\":%.0f,\"rate_ops\":%llu,\"rate_s\":%.6f,", ops,
            ops * p->size, (unsigned long long)row->rate_ops, (double)row->rate_ns / 1e9);
    fprintf(out, "\"raw_p50_ns\":%llu,\"raw_p99_ns\":%llu,\"raw_p999_ns\":%llu,",
            (unsigned long long)raw->p50_ns, (unsigned long long)raw->p99_ns,
            (unsigned long long)raw->p999_ns);
    fprintf(out, "\"raw_p50_min_ns\":%llu,\"raw_p50_max_ns\":%llu,\"raw_size\":%u,",
            (unsigned long long)raw->p50_min_ns, (unsigned long long)raw->p50_max_ns, p->raw_size);
    fprintf(out, "\"raw_connected_p50_ns\":%llu,",
            (unsigned long long)row->latency[VB_PERF_ECHO_CONNECTED].p50_ns);
    fprintf(out, "\"raw_ratio\":%.4f,\"lost\":%llu,\"verified\":%llu,\"seed\":%llu,",
            vb_perf_raw_ratio(row), (unsigned long long)row->rate_lost,
            (unsigned long long)row->verified, (unsigned long long)p->seed);
    fprintf(out, "\"client_core\":%d,\"server_core\":%d,\"cores\":%d,\"cpu\":\"%s\",", m->pinned[0],
            m->pinned[1], m->cores, m->cpu);
    fprintf(out, "\"kernel\":\"%s\",\"version\":\"%s\"}\n", m->kernel, VERBENA_VERSION);
    fflush(out);
}
