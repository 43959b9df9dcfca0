// SPDX-License-Identifier: Apache-2.0
// A hull's counters in the text format of Prometheus: families of one kind, each with its help and
// its type before the values of all NICs.
#include "hull/metrics.h"

#include "verbena_config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct source {
    FILE *out;
    const struct vb_metrics *const *metrics;
    uint32_t count;
};

// ---- the format

// A backslash, a quote and the line's end are escaped; a name is UTF-8 or what passes for it, so
// that other bytes become question marks.
void vb_metrics_put_label(FILE *out, const char *value)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '\\' || c == '"')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else
            fputc(c < ' ' || c >= 0x7f ? '?' : c, out);
    }
}

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_device(FILE *out, const char *name, const struct vb_metrics *m)
{
    fprintf(out, "%s{device=\"", name);
    vb_metrics_put_label(out, m->device);
    fputc('"', out);
}

// ---- NICs and ports

static void put_nics(const struct source *s)
{
    put_head(s->out, "verbena_info", "gauge", "A NIC of this hull; always 1.");
    for (uint32_t i = 0; i < s->count; i++) {
        const struct vb_metrics *m = s->metrics[i];
        put_device(s->out, "verbena_info", m);
        fputs(",address=\"", s->out);
        vb_metrics_put_label(s->out, m->address);
        fputs("\",type=\"", s->out);
        vb_metrics_put_label(s->out, m->type);
        fputs("\",version=\"" VERBENA_VERSION "\"} 1\n", s->out);
    }
    put_head(s->out, "verbena_up", "gauge", "Whether the NIC's thread answered in time.");
    for (uint32_t i = 0; i < s->count; i++) {
        put_device(s->out, "verbena_up", s->metrics[i]);
        fprintf(s->out, "} %d\n", s->metrics[i]->up);
    }
    put_head(s->out, "verbena_start_time_seconds", "gauge",
             "When the NIC was opened, in seconds since 1970.");
    for (uint32_t i = 0; i < s->count; i++) {
        put_device(s->out, "verbena_start_time_seconds", s->metrics[i]);
        fprintf(s->out, "} %" PRIu64 "\n", s->metrics[i]->start_s);
    }
}

// The counters that have another name here, as Prometheus wants them: plural, with units.
static const struct renamed {
    const char *counter, *name, *help;
} renamed[] = {
    {"sent_pkts", "packets_transmitted", "Packets sent."},
    {"rcvd_pkts", "packets_received", "Packets received."},
    {"sent_bytes", "data_transmitted_bytes",
     "Bytes of packets sent, from the transport header on."},
    {"rcvd_bytes", "data_received_bytes",
     "Bytes of packets received, from the transport header on."},
    {"duplicate_request", "duplicate_requests", "Requests that had come before."},
    {"out_of_seq_request", "out_of_sequence_requests", "Requests that came too early."},
    {"rcvd_rnr_err", "received_rnr_naks", "Refusals by peers that had no receive posted."},
    {"send_rnr_err", "sent_rnr_naks", "Refusals because no receive was posted."},
    {"rcvd_seq_err", "received_sequence_naks", "Refusals by peers that missed a packet."},
    {"packet_seq_err", "packet_sequence_errors", "Answers that came too early: one was lost."},
    {"ack_deferred", "deferred_acks", "Acknowledgements that left later, together."},
    {"retry_exceeded_err", "retry_exceeded_errors", "Requests that failed: no answer came."},
    {"retry_rnr_exceeded_err", "rnr_retry_exceeded_errors",
     "Requests that failed: the peer never had a receive posted."},
    {"completer_retry_err", "completer_retries", "Requests sent again."},
    {"local_ack_timeout_err", "local_ack_timeouts", "Times that no answer came in time."},
    {"out_of_buffer", "out_of_buffer_errors", "Messages that found no receive posted."},
    {"np_cnp_sent", "congestion_notifications_sent", "Congestion notifications sent."},
    {"np_ecn_marked_roce_packets", "congestion_marked_packets",
     "Packets received with a mark of congestion."},
    {"rp_cnp_handled", "congestion_notifications_handled", "Congestion notifications obeyed."},
    {"rp_cnp_ignored", "congestion_notifications_ignored", "Congestion notifications ignored."},
    {"rx_malformed", "malformed_packets", "Packets that are none, dropped."},
    {"rx_stranger", "stranger_packets", "Packets for queue pairs that are not there, dropped."},
    {"rx_bad_icrc", "bad_checksum_packets", "Packets with a wrong checksum, dropped."},
    {"rx_datagrams", "datagrams_received", "Datagrams received."},
    {"rx_dropped_datagrams", "datagrams_dropped", "Datagrams that found no receive posted."},
    {"cq_overrun", "completion_queue_overruns", "Completion queues that overran."},
    {"tx_errors", "transmit_errors", "Packets that the system did not send."},
};

static const struct renamed *find_renamed(const char *counter)
{
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
        if (strcmp(renamed[i].counter, counter) == 0)
            return &renamed[i];
    return NULL;
}

static void put_counter(const struct source *s, uint32_t index, const char *counter)
{
    const struct renamed *as = find_renamed(counter);
    char name[96], help[96];

    snprintf(name, sizeof name, "verbena_port_%s_total", as ? as->name : counter);
    snprintf(help, sizeof help, "The counter %s of verbena stat.", counter);
    put_head(s->out, name, "counter", as ? as->help : help);
    for (uint32_t i = 0; i < s->count; i++) {
        if (!s->metrics[i]->up || index >= s->metrics[i]->counters)
            continue;
        put_device(s->out, name, s->metrics[i]);
        fprintf(s->out, ",port=\"1\"} %" PRIu64 "\n", s->metrics[i]->counter[index]);
    }
}

static void put_counters(const struct source *s)
{
    const char *counter;

    for (uint32_t i = 0; (counter = vb_nic_counter_name(i)); i++)
        put_counter(s, i, counter);
}

// ---- units

static void put_units(const struct source *s, const char *name, const char *type, const char *help,
                      size_t offset)
{
    uint64_t value;

    put_head(s->out, name, type, help);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct vb_metrics *m = s->metrics[i];
        for (uint32_t u = 0; m->up && u < m->units; u++) {
            memcpy(&value, (const char *)&m->unit[u] + offset, sizeof value);
            put_device(s->out, name, m);
            fprintf(s->out, ",unit=\"%u\"} %" PRIu64 "\n", u + 1, value);
        }
    }
}

// ---- tenants

static const struct family {
    const char *name, *type, *help;
    size_t offset; // of a number of 64 bits in struct vb_metrics_tenant
} families[] = {
#define RESOURCE(field, name, help)                                           \
    {"verbena_tenant_" name, "gauge", help " that the tenant has.",           \
     offsetof(struct vb_metrics_tenant, used.field)},                         \
        {"verbena_tenant_" name "_quota", "gauge", help " that it may have.", \
         offsetof(struct vb_metrics_tenant, quota.field)},
#define TOTAL(field, name, help) \
    {"verbena_tenant_" name "_total", "counter", help, offsetof(struct vb_metrics_tenant, field)},
    // clang-format off
    RESOURCE(applications, "applications", "Applications")
    RESOURCE(queue_pairs, "queue_pairs", "Queue pairs")
    RESOURCE(queues, "queues", "Completion queues, shared receive queues and channels")
    RESOURCE(regions, "regions", "Memory regions, windows and domains")
    RESOURCE(entries, "queue_entries", "Entries of all queues")
    RESOURCE(bytes, "memory_bytes", "Bytes of memory shared with the hull")
    RESOURCE(memories, "memories", "Pieces of memory, and names,")
    TOTAL(traffic.sent_bytes, "data_transmitted_bytes", "Bytes of packets sent by its queue pairs.")
    TOTAL(traffic.rcvd_bytes, "data_received_bytes", "Bytes of packets that they received.")
    TOTAL(traffic.sent_pkts, "packets_transmitted", "Packets sent by its queue pairs.")
    TOTAL(traffic.rcvd_pkts, "packets_received", "Packets received by its queue pairs.")
    TOTAL(refused, "refused_requests", "Requests of its applications that were refused.")
// clang-format on
#undef RESOURCE
#undef TOTAL
};

static void put_tenants_of(FILE *out, const struct family *f, const struct vb_metrics *m)
{
    uint32_t told = m->tenants < VB_METRICS_TENANTS ? m->tenants : VB_METRICS_TENANTS;
    uint64_t value;

    for (uint32_t i = 0; i < told; i++) {
        memcpy(&value, (const char *)&m->tenant[i] + f->offset, sizeof value);
        put_device(out, f->name, m);
        fprintf(out, ",tenant=\"%u\"} %" PRIu64 "\n", (unsigned)m->tenant[i].uid, value);
    }
}

static void put_sum(const struct source *s, const char *name, const char *help, size_t offset)
{
    uint32_t value;

    put_head(s->out, name, "gauge", help);
    for (uint32_t i = 0; i < s->count; i++) {
        if (!s->metrics[i]->up)
            continue;
        memcpy(&value, (const char *)s->metrics[i] + offset, sizeof value);
        put_device(s->out, name, s->metrics[i]);
        fprintf(s->out, "} %" PRIu32 "\n", value);
    }
}

void vb_metrics_print(FILE *out, const struct vb_metrics *const *metrics, uint32_t count)
{
    const struct source s = {out, metrics, count};

    put_nics(&s);
    put_sum(&s, "verbena_applications", "Applications that are attached.",
            offsetof(struct vb_metrics, applications));
    put_sum(&s, "verbena_tenants", "Users that have applications or named memory.",
            offsetof(struct vb_metrics, tenants));
    put_counters(&s);
    put_units(&s, "verbena_unit_queues", "gauge", "Queue pairs and completion queues of the unit.",
              offsetof(struct vb_metrics_unit, queues));
    put_units(&s, "verbena_unit_packets_transmitted_total", "counter",
              "Packets that the unit sent.", offsetof(struct vb_metrics_unit, sent_pkts));
    put_units(&s, "verbena_unit_packets_received_total", "counter",
              "Packets that the unit received.", offsetof(struct vb_metrics_unit, rcvd_pkts));
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        put_head(out, families[f].name, families[f].type, families[f].help);
        for (uint32_t i = 0; i < count; i++)
            put_tenants_of(out, &families[f], metrics[i]);
    }
}
