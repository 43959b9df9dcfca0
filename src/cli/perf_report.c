// SPDX-License-Identifier: Apache-2.0
// Rows for people, rows for programs.
#include "cli/perf_report.h"

#include "cli/perf_get_report.h"
#include "cli/perf_plan.h"
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

double vb_perf_copy_bytes_per_s(const struct vb_perf_row *row)
{
    return row->copied.ns ? (double)row->copied.bytes * 1e9 / (double)row->copied.ns : 0;
}

static const struct vb_perf_latency *latency_of(const struct vb_perf_row *row)
{
    return &row->latency[row->plan.op == VB_PERF_RAW ? VB_PERF_ECHO : VB_PERF_NIC];
}

double vb_perf_raw_ratio(const struct vb_perf_row *row, enum vb_perf_kind yardstick)
{
    uint64_t raw = row->latency[yardstick].p50_ns;
    if (raw == 0 || vb_perf_is_lossy(&row->plan))
        return 0;
    return (double)latency_of(row)->p50_ns / (double)raw;
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
    static const char format[] =
        "%-9s %-4s %-3s %6s %5s %5s %8s %8s %8s %8s %6s %8s %6s %9s %8s %9s\n";
    fprintf(out, format, "", "", "", "", "", "", "p50", "p99", "p99.9", "raw p50", "ratio",
            "conn p50", "ratio", "rate", "bandw.", "verified");
    fprintf(out, format, "op", "port", "svc", "size", "depth", "qps", "us", "us", "us", "us",
            "to raw", "us", "toconn", "M ops/s", "Gb/s", "ops");
}

static void print_idle(FILE *out, const struct vb_perf_row *row)
{
    const struct vb_perf_plan *p = &row->plan;
    fprintf(out,
            "%-9s %-4s %-3s %u queue pairs connected, nothing to do for %.1f s: CPU time %.2f ms "
            "(client), %.2f ms (server)\n",
            vb_perf_op_name(p->op), vb_perf_port_name(p->port), vb_perf_service_name(p->service),
            p->qps, (double)row->idle_ns / 1e9, (double)row->cpu_ns[0] / 1e6,
            (double)row->cpu_ns[1] / 1e6);
    fflush(out);
}

// Its median and the row's ratio to it, as far as there are any.
static void print_yardstick(FILE *out, const struct vb_perf_row *row, enum vb_perf_kind yardstick)
{
    char p50[16] = "-", ratio[16] = "-";
    if (row->latency[yardstick].p50_ns > 0)
        snprintf(p50, sizeof p50, "%.2f", (double)row->latency[yardstick].p50_ns / 1e3);
    if (vb_perf_raw_ratio(row, yardstick) > 0)
        snprintf(ratio, sizeof ratio, "%.2f", vb_perf_raw_ratio(row, yardstick));
    fprintf(out, " %8s %6s", p50, ratio);
}

static void print_row(FILE *out, const struct vb_perf_row *row)
{
    const struct vb_perf_plan *p = &row->plan;
    const struct vb_perf_latency *l = latency_of(row);
    char size[16];
    double ops = vb_perf_ops_per_s(row);
    if (p->op == VB_PERF_IDLE) {
        print_idle(out, row);
        return;
    }
    fprintf(out, "%-9s %-4s %-3s %6s %5u %5u %8.2f %8.2f %8.2f", vb_perf_op_name(p->op),
            vb_perf_port_name(p->port),
            p->op == VB_PERF_RAW ? "-" : vb_perf_service_name(p->service), size_text(p->size, size),
            p->depth, p->qps, (double)l->p50_ns / 1e3, (double)l->p99_ns / 1e3,
            (double)l->p999_ns / 1e3);
    print_yardstick(out, row, VB_PERF_ECHO);
    print_yardstick(out, row, VB_PERF_ECHO_CONNECTED);
    fprintf(out, " %9.4f %8.3f %9llu", ops / 1e6, ops * p->size * 8 / 1e9,
            (unsigned long long)row->verified);
    if (p->target != VB_PERF_POLLS)
        fprintf(out, "  target %ss", vb_perf_target_name(p->target));
    if (p->active != p->qps)
        fprintf(out, "  %u active", p->active);
    if (p->op == VB_PERF_GET)
        vb_get_report_text(out, row);
    fputc('\n', out);
    fflush(out);
}

// Of a get one for each way.
void vb_perf_report_row(FILE *out, const struct vb_perf_row *row)
{
    if (row->plan.op != VB_PERF_GET)
        print_row(out, row);
    for (unsigned via = 0; via < VB_PERF_WAYS; via++) {
        struct vb_perf_row one = vb_get_row(row, (enum vb_perf_via)via);
        if (vb_perf_goes(&row->plan, via))
            print_row(out, &one);
    }
}

static void print_spread(FILE *out, const char *what, const struct vb_perf_latency *l)
{
    fprintf(out, "%s %.2f to %.2f", what, (double)l->p50_min_ns / 1e3, (double)l->p50_max_ns / 1e3);
}

// What else is to be said of a row.
static void print_remarks(FILE *out, const struct vb_perf_row *r)
{
    const struct vb_perf_plan *p = &r->plan;
    if (p->port == VB_PERF_UDP && p->raw_size != p->size)
        fprintf(out, "; raw is an echo of %u bytes, one packet", p->raw_size);
    if (r->copied.ns)
        fprintf(out, "; a plain copy moves 64K messages at %.1f Gb/s",
                vb_perf_copy_bytes_per_s(r) * 8 / 1e9);
    if (vb_perf_is_lossy(p))
        fprintf(out,
                "; %s is not acknowledged: times are until it was sent, rates are of what "
                "arrived",
                vb_perf_service_name(p->service));
    if (vb_perf_is_lossy(p) && p->op == VB_PERF_WRITE && p->size > p->mtu)
        fputs(" at least in part", out);
    if (r->rate_lost)
        fprintf(out, "; one way, %llu of %llu %s were lost", (unsigned long long)r->rate_lost,
                (unsigned long long)(r->rate_lost + r->rate_ops),
                p->op == VB_PERF_RAW ? "packets" : "messages");
}

static void print_foot(FILE *out, const struct vb_perf_row *r)
{
    char size[16];
    fprintf(out, "  %s %s", vb_perf_op_name(r->plan.op), size_text(r->plan.size, size));
    if (r->plan.op == VB_PERF_GET)
        fprintf(out, " via %s", vb_perf_via_name(r->plan.via));
    fputc(':', out);
    if (r->plan.op != VB_PERF_RAW)
        print_spread(out, " slices", &r->latency[VB_PERF_NIC]);
    print_spread(out, r->plan.op == VB_PERF_RAW ? " slices" : ", raw", &r->latency[VB_PERF_ECHO]);
    print_remarks(out, r);
    fputc('\n', out);
}

void vb_perf_report_foot(FILE *out, const struct vb_perf_row *rows, uint32_t count)
{
    if (count == 0 || rows[0].plan.op == VB_PERF_IDLE)
        return;
    bool shm = rows[0].plan.port == VB_PERF_SHM;
    fprintf(
        out,
        "p50 is the median of %d slices' medians, the NIC's and raw's in turn; raw is %s. In us:\n",
        VB_PERF_SLICES,
        shm ? "the\nround trip of a cache line between the two cores, both spinning"
            : "a UDP echo\nby sockets that are not connected, as the NIC's are; conn is one with a "
              "connected client");
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].plan.op != VB_PERF_GET)
            print_foot(out, &rows[i]);
        for (unsigned via = 0; via < VB_PERF_WAYS; via++) {
            struct vb_perf_row one = vb_get_row(&rows[i], (enum vb_perf_via)via);
            if (vb_perf_goes(&rows[i].plan, via))
                print_foot(out, &one);
        }
    }
}

// ---- JSON

typedef unsigned long long number;

static void json_latency(FILE *out, const struct vb_perf_row *row)
{
    const struct vb_perf_plan *p = &row->plan;
    const struct vb_perf_latency *l = latency_of(row), *raw = &row->latency[VB_PERF_ECHO];
    fprintf(out, "\"p50_ns\":%llu,\"p99_ns\":%llu,\"p999_ns\":%llu,\"latency_ops\":%llu,",
            (number)l->p50_ns, (number)l->p99_ns, (number)l->p999_ns, (number)l->count);
    fprintf(out, "\"p50_min_ns\":%llu,\"p50_max_ns\":%llu,\"slices\":%d,\"latency\":\"%s\",",
            (number)l->p50_min_ns, (number)l->p50_max_ns, VB_PERF_SLICES,
            vb_perf_is_lossy(p) ? "until sent" : "round trip");
    fprintf(out, "\"raw\":\"%s\",\"raw_p50_ns\":%llu,\"raw_p99_ns\":%llu,\"raw_p999_ns\":%llu,",
            p->port == VB_PERF_SHM ? "cache line" : "UDP echo", (number)raw->p50_ns,
            (number)raw->p99_ns, (number)raw->p999_ns);
    fprintf(out, "\"raw_p50_min_ns\":%llu,\"raw_p50_max_ns\":%llu,", (number)raw->p50_min_ns,
            (number)raw->p50_max_ns);
    if (p->port == VB_PERF_UDP)
        fprintf(out, "\"raw_size\":%u,\"raw_connected_p50_ns\":%llu,", p->raw_size,
                (number)row->latency[VB_PERF_ECHO_CONNECTED].p50_ns);
    if (vb_perf_raw_ratio(row, VB_PERF_ECHO) > 0)
        fprintf(out, "\"raw_ratio\":%.4f,", vb_perf_raw_ratio(row, VB_PERF_ECHO));
    if (vb_perf_raw_ratio(row, VB_PERF_ECHO_CONNECTED) > 0)
        fprintf(out, "\"raw_connected_ratio\":%.4f,",
                vb_perf_raw_ratio(row, VB_PERF_ECHO_CONNECTED));
}

static void json_rate(FILE *out, const struct vb_perf_row *row)
{
    double ops = vb_perf_ops_per_s(row);
    fprintf(out, "\"ops_per_s\":%.3f,\"bytes_per_s\":%.0f,\"rate_ops\":%llu,\"rate_s\":%.6f,", ops,
            ops * row->plan.size, (number)row->rate_ops, (double)row->rate_ns / 1e9);
    fprintf(out, "\"lost\":%llu,\"verified\":%llu,", (number)row->rate_lost, (number)row->verified);
    if (row->copied.ns)
        fprintf(out, "\"copy_gbps\":%.3f,\"copy_size\":%d,",
                vb_perf_copy_bytes_per_s(row) * 8 / 1e9, VB_PERF_COPY_BYTES);
}

static void json_row(FILE *out, const struct vb_perf_row *row, const struct vb_perf_machine *m)
{
    bool gets = row->plan.op == VB_PERF_GET;
    const struct vb_perf_plan *p = &row->plan;
    fprintf(out, "{\"op\":\"%s\",\"port\":\"%s\",\"service\":\"%s\",\"target\":\"%s\",",
            vb_perf_op_name(p->op), vb_perf_port_name(p->port), vb_perf_service_name(p->service),
            gets ? vb_get_target_name(row) : vb_perf_target_name(p->target));
    if (gets)
        vb_get_report_json(out, row);
    fprintf(out, "\"size\":%u,\"depth\":%u,\"qps\":%u,\"active\":%u,\"mtu\":%u,", p->size, p->depth,
            p->qps, p->active, p->mtu);
    if (p->op == VB_PERF_IDLE) {
        fprintf(out, "\"idle_s\":%.6f,\"cpu_ns\":%llu,\"server_cpu_ns\":%llu,",
                (double)row->idle_ns / 1e9, (number)row->cpu_ns[0], (number)row->cpu_ns[1]);
    } else {
        json_latency(out, row);
        json_rate(out, row);
    }
    fprintf(out, "\"seed\":%llu,\"client_core\":%d,\"server_core\":%d,\"cores\":%d,",
            (number)p->seed, m->pinned[0], m->pinned[1], m->cores);
    fprintf(out, "\"cpu\":\"%s\",\"kernel\":\"%s\",\"version\":\"%s\"}\n", m->cpu, m->kernel,
            VERBENA_VERSION);
    fflush(out);
}

void vb_perf_report_json(FILE *out, const struct vb_perf_row *row, const struct vb_perf_machine *m)
{
    if (row->plan.op != VB_PERF_GET)
        json_row(out, row, m);
    for (unsigned via = 0; via < VB_PERF_WAYS; via++) {
        struct vb_perf_row one = vb_get_row(row, (enum vb_perf_via)via);
        if (vb_perf_goes(&row->plan, via))
            json_row(out, &one, m);
    }
}
