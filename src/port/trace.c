// SPDX-License-Identifier: Apache-2.0
// The ring of a trace. Records lie back to back around its end; a record is a header, the packet's
// first bytes, and remarks, each with its NUL. Only the newest record can grow.
#include "port/trace.h"

#include "base/bytes.h"
#include "port/clock.h"
#include "port/pcapng.h"
#include "verbena_config.h"
#include "wire/roce.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    IPV4_BYTES = 20,
    IPV6_BYTES = 40,
    UDP_BYTES = 8,
    IPV4_DONT_FRAGMENT = 0x4000,
    PROTOCOL_UDP = 17,
    PACKET_MAX = IPV6_BYTES + UDP_BYTES + VB_ICRC_FRAME_MAX,
    REMARKS_BYTES = VB_TRACE_REMARKS * (VB_TRACE_REMARK_MAX + 1),
};

struct record {
    uint64_t time_ns;
    uint32_t original_len;
    uint32_t kept_len;
    uint32_t remarks_len;
    uint16_t remarks;
    uint16_t direction; // enum vb_pcapng_direction
};

static_assert(sizeof(struct record) == 24, "a record's header has no holes");
static_assert(VB_TRACE_RING_MIN >=
                  sizeof(struct record) + IPV6_BYTES + UDP_BYTES + VB_FRAME_HEAD + REMARKS_BYTES,
              "a ring holds all headers of a packet and all remarks on it");
static_assert((int)VB_TRACE_REMARKS <= (int)VB_PCAPNG_COMMENTS, "every remark becomes a comment");

struct vb_trace {
    uint32_t capacity;
    uint32_t keep_bytes; // of one packet, at most
    uint32_t snap_bytes;
    bool seal;
    int64_t wall_offset_ns;
    uint64_t begin, end; // of the records; positions count on for ever
    uint64_t newest;     // where the newest record is; none: begin == end
    uint64_t seen, lost;
    vb_trace_pick *pick; // NULL: it keeps frames itself
    void *pick_ctx;
    struct vb_trace *picked; // for the newest frame
    uint8_t scratch[PACKET_MAX];
    uint8_t ring[];
};

int vb_trace_create(const struct vb_trace_opts *opts, struct vb_trace **out)
{
    if (opts->ring_bytes < VB_TRACE_RING_MIN && !opts->pick)
        return -EINVAL;
    struct vb_trace *t = calloc(1, sizeof *t + opts->ring_bytes);
    if (t == NULL)
        return -ENOMEM;
    t->capacity = opts->ring_bytes;
    t->snap_bytes = opts->snap_bytes;
    t->keep_bytes = t->capacity - (uint32_t)sizeof(struct record) - REMARKS_BYTES;
    if (opts->snap_bytes > 0 && opts->snap_bytes < t->keep_bytes)
        t->keep_bytes = opts->snap_bytes;
    t->pick = opts->pick;
    t->pick_ctx = opts->pick_ctx;
    t->seal = opts->seal;
    t->wall_offset_ns = opts->wall_offset_ns;
    *out = t;
    return 0;
}

void vb_trace_destroy(struct vb_trace *trace)
{
    free(trace);
}

size_t vb_trace_bytes(uint32_t ring_bytes)
{
    return sizeof(struct vb_trace) + ring_bytes;
}

void vb_trace_save(const struct vb_trace *trace, void *bytes)
{
    memcpy(bytes, trace, vb_trace_bytes(trace->capacity));
}

const struct vb_trace *vb_trace_saved(const void *bytes, uint32_t ring_bytes)
{
    const struct vb_trace *t = bytes;
    bool whole = t->capacity == ring_bytes && ring_bytes && !t->pick && t->begin <= t->end &&
                 t->end - t->begin <= t->capacity;
    return whole ? t : NULL;
}

int64_t vb_trace_wall_offset_ns(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec - (int64_t)vb_clock_ns();
}

static void ring_put(struct vb_trace *t, uint64_t position, const void *bytes, uint32_t len)
{
    uint32_t at = (uint32_t)(position % t->capacity);
    uint32_t first = len < t->capacity - at ? len : t->capacity - at;
    memcpy(t->ring + at, bytes, first);
    memcpy(t->ring, (const uint8_t *)bytes + first, len - first);
}

static void ring_get(const struct vb_trace *t, uint64_t position, void *bytes, uint32_t len)
{
    uint32_t at = (uint32_t)(position % t->capacity);
    uint32_t first = len < t->capacity - at ? len : t->capacity - at;
    memcpy(bytes, t->ring + at, first);
    memcpy((uint8_t *)bytes + first, t->ring, len - first);
}

static uint64_t record_bytes(const struct record *r)
{
    return sizeof *r + r->kept_len + r->remarks_len;
}

// Overwrites the oldest records until `len` more bytes fit.
static void make_room(struct vb_trace *t, uint64_t len)
{
    while (t->end + len - t->begin > t->capacity) {
        struct record oldest;
        ring_get(t, t->begin, &oldest, sizeof oldest);
        t->begin += record_bytes(&oldest);
        t->lost++;
        assert(t->begin <= t->end);
    }
}

// Records the packet in the scratch space.
static void append(struct vb_trace *t, uint64_t now_ns, enum vb_pcapng_direction direction,
                   uint32_t len)
{
    struct record r = {
        .time_ns = now_ns,
        .original_len = len,
        .kept_len = len < t->keep_bytes ? len : t->keep_bytes,
        .direction = (uint16_t)direction,
    };
    make_room(t, record_bytes(&r));
    t->newest = t->end;
    ring_put(t, t->end, &r, sizeof r);
    ring_put(t, t->end + sizeof r, t->scratch, r.kept_len);
    t->end += record_bytes(&r);
    t->seen++;
}

// Adds big-endian words to a ones' complement sum; the last one is padded with zeros.
static uint64_t add_words(uint64_t sum, const uint8_t *bytes, size_t len)
{
    for (; len >= 4; bytes += 4, len -= 4)
        sum += vb_get_be32(bytes);
    uint8_t rest[4] = {0};
    memcpy(rest, bytes, len);
    return sum + vb_get_be32(rest);
}

static uint16_t checksum(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static void write_ipv4(uint8_t *ip, const struct vb_trace_packet *p, uint32_t total_len)
{
    memset(ip, 0, IPV4_BYTES);
    ip[0] = 0x45;
    ip[1] = p->tos;
    vb_put_be16(ip + 2, (uint16_t)total_len);
    vb_put_be16(ip + 4, p->id);
    vb_put_be16(ip + 6, IPV4_DONT_FRAGMENT);
    ip[8] = p->hop_limit ? p->hop_limit : VB_TRACE_HOP_LIMIT;
    ip[9] = PROTOCOL_UDP;
    memcpy(ip + 12, p->src.b + 12, 4);
    memcpy(ip + 16, p->dst.b + 12, 4);
    vb_put_be16(ip + 10, checksum(add_words(0, ip, IPV4_BYTES)));
}

static void write_ipv6(uint8_t *ip, const struct vb_trace_packet *p, uint32_t payload_len)
{
    vb_put_be32(ip, 6u << 28 | (uint32_t)p->tos << 20 | (p->flow_label & 0xfffff));
    vb_put_be16(ip + 4, (uint16_t)payload_len);
    ip[6] = PROTOCOL_UDP;
    ip[7] = p->hop_limit ? p->hop_limit : VB_TRACE_HOP_LIMIT;
    memcpy(ip + 8, p->src.b, 16);
    memcpy(ip + 24, p->dst.b, 16);
}

// Writes the header before a frame of `len` bytes. Both addresses, `address_bytes` long in all, end
// where the header begins.
static void write_udp(uint8_t *udp, uint16_t src_port, uint32_t address_bytes, uint32_t len)
{
    uint32_t udp_len = UDP_BYTES + len;
    vb_put_be16(udp, src_port);
    vb_put_be16(udp + 2, VB_ROCE_UDP_PORT);
    vb_put_be16(udp + 4, (uint16_t)udp_len);
    vb_put_be16(udp + 6, 0);
    uint64_t sum = PROTOCOL_UDP + udp_len;
    uint16_t check = checksum(add_words(sum, udp - address_bytes, address_bytes + udp_len));
    // Zero would mean that there is no checksum; ones are the other zero.
    vb_put_be16(udp + 6, check ? check : 0xffff);
}

static void seal(uint8_t *frame, uint32_t len, bool ipv4, const struct vb_trace_packet *p)
{
    struct vb_icrc_flow flow;
    if (len < VB_ICRC_FRAME_MIN)
        return;
    if (ipv4)
        vb_icrc_flow_init_v4(&flow, p->src.b + 12, p->dst.b + 12, p->src_port, VB_ROCE_UDP_PORT);
    else
        vb_icrc_flow_init_v6(&flow, p->src.b, p->dst.b, p->src_port, VB_ROCE_UDP_PORT);
    vb_icrc_seal(&flow, p->id, frame, len);
    if (p->spoiled)
        frame[len - 1] ^= 0xff;
}

static bool is_ipv4(const struct vb_trace_packet *p)
{
    return vb_ip_is_v4(&p->src) && vb_ip_is_v4(&p->dst);
}

// Where the frame belongs in the scratch space, before wrap() puts its headers there.
static uint8_t *frame_place(struct vb_trace *t, const struct vb_trace_packet *p)
{
    return t->scratch + (is_ipv4(p) ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
}

// Makes the frame in the scratch space a packet. Returns its length.
static uint32_t wrap(struct vb_trace *t, const struct vb_trace_packet *p, uint32_t frame_len)
{
    bool ipv4 = is_ipv4(p);
    uint8_t *frame = frame_place(t, p);
    uint32_t packet_len = (uint32_t)(frame - t->scratch) + frame_len;
    if (t->seal)
        seal(frame, frame_len, ipv4, p);
    if (ipv4)
        write_ipv4(t->scratch, p, packet_len);
    else
        write_ipv6(t->scratch, p, UDP_BYTES + frame_len);
    write_udp(frame - UDP_BYTES, p->src_port, ipv4 ? 8 : 32, frame_len);
    return packet_len;
}

static struct vb_trace *pick(struct vb_trace *trace, uint32_t qpn)
{
    if (trace->pick)
        trace->picked = trace->pick(trace->pick_ctx, qpn);
    return trace->pick ? trace->picked : trace;
}

void vb_trace_sent(struct vb_trace *trace, uint64_t now_ns, uint16_t id, const struct vb_txq *txq,
                   const struct vb_tx_frame *frame)
{
    const struct vb_path *path = frame->path;
    uint32_t head_len = frame->body_len ? frame->head : frame->len;

    trace = pick(trace, vb_tx_source(path, txq->arena + frame->offset, head_len));
    if (!trace)
        return;
    struct vb_trace_packet packet = {.src = path->local,
                                     .dst = path->remote,
                                     .src_port = path->src_port,
                                     .id = id,
                                     .tos = path->attr.traffic_class,
                                     .hop_limit = path->attr.hop_limit,
                                     .flow_label = path->attr.flow_label,
                                     .spoiled = path->spoiled};
    assert(frame->len <= VB_ICRC_FRAME_MAX);
    vb_tx_copy(txq, frame, frame_place(trace, &packet));
    append(trace, now_ns, VB_PCAPNG_OUTBOUND, wrap(trace, &packet, frame->len));
}

void vb_trace_received(struct vb_trace *trace, uint64_t now_ns,
                       const struct vb_trace_packet *packet, const uint8_t *frame, uint32_t len)
{
    trace = pick(trace, len >= VB_BTH_BYTES ? vb_get_be24(frame + 5) : 0);
    if (!trace)
        return;
    if (len > VB_ICRC_FRAME_MAX)
        len = VB_ICRC_FRAME_MAX; // no datagram holds more
    if (len > 0)
        memcpy(frame_place(trace, packet), frame, len);
    append(trace, now_ns, VB_PCAPNG_INBOUND, wrap(trace, packet, len));
}

// Cuts a text that formatting has already cut once more, where a character ends.
static void mark_cut(char text[VB_TRACE_REMARK_MAX + 1])
{
    static const char ellipsis[] = "\u2026";
    memcpy(text + vb_pcapng_text_fit(text, VB_TRACE_REMARK_MAX + 1 - sizeof ellipsis), ellipsis,
           sizeof ellipsis);
}

void vb_trace_remark(struct vb_trace *trace, const char *format, ...)
{
    char text[VB_TRACE_REMARK_MAX + 1];
    struct record r;
    va_list args;
    if (trace->pick)
        trace = trace->picked;
    if (!trace || trace->begin == trace->end)
        return;
    ring_get(trace, trace->newest, &r, sizeof r);
    if (r.remarks == VB_TRACE_REMARKS)
        return;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len <= 0)
        return;
    if (len > VB_TRACE_REMARK_MAX)
        mark_cut(text);
    uint32_t bytes = (uint32_t)strlen(text) + 1;
    make_room(trace, bytes);
    assert(trace->begin <= trace->newest);
    ring_put(trace, trace->end, text, bytes);
    trace->end += bytes;
    r.remarks++;
    r.remarks_len += bytes;
    ring_put(trace, trace->newest, &r, sizeof r);
}

// Where the dump is in one trace.
struct cursor {
    uint64_t position;
    uint64_t wall_ns; // of the record there
    uint64_t last_ns; // of the newest record that was written
};

struct dump {
    struct vb_pcapng file;
    uint8_t packet[PACKET_MAX];
    char remarks[REMARKS_BYTES];
    struct cursor cursor[];
};

static bool look(const struct vb_trace *t, struct cursor *c)
{
    struct record r;
    if (c->position == t->end)
        return false;
    ring_get(t, c->position, &r, sizeof r);
    c->wall_ns = r.time_ns + (uint64_t)t->wall_offset_ns;
    return true;
}

// The source whose next record is the oldest of all; `count` when all are through.
static uint32_t choose(struct dump *d, const struct vb_trace_source *sources, uint32_t count)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        if (look(sources[i].trace, &d->cursor[i]) &&
            (best == count || d->cursor[i].wall_ns < d->cursor[best].wall_ns))
            best = i;
    }
    return best;
}

static void write_record(struct dump *d, const struct vb_trace *t, uint32_t interface)
{
    struct cursor *c = &d->cursor[interface];
    struct record r;
    ring_get(t, c->position, &r, sizeof r);
    ring_get(t, c->position + sizeof r, d->packet, r.kept_len);
    ring_get(t, c->position + sizeof r + r.kept_len, d->remarks, r.remarks_len);
    vb_pcapng_packet(&d->file, &(struct vb_pcapng_packet){
                                   .interface = interface,
                                   .direction = (enum vb_pcapng_direction)r.direction,
                                   .time_ns = c->wall_ns,
                                   .bytes = d->packet,
                                   .len = r.kept_len,
                                   .original_len = r.original_len,
                                   .comments = d->remarks,
                                   .comment_count = r.remarks,
                               });
    c->last_ns = c->wall_ns;
    c->position += record_bytes(&r);
}

int vb_trace_dump(const struct vb_trace_source *sources, uint32_t count, int fd)
{
    struct dump *d = calloc(1, sizeof *d + count * sizeof d->cursor[0]);
    if (d == NULL)
        return -ENOMEM;
    vb_pcapng_begin(&d->file, fd, "Verbena " VERBENA_VERSION);
    for (uint32_t i = 0; i < count; i++) {
        const struct vb_trace *t = sources[i].trace;
        d->cursor[i].position = t->begin;
        vb_pcapng_interface(&d->file, sources[i].name, sources[i].description, t->snap_bytes);
    }
    for (uint32_t i = choose(d, sources, count); i < count && d->file.error == 0;
         i = choose(d, sources, count))
        write_record(d, sources[i].trace, i);
    for (uint32_t i = 0; i < count; i++) {
        const struct vb_trace *t = sources[i].trace;
        vb_pcapng_statistics(&d->file, i, d->cursor[i].last_ns, t->seen, t->lost);
    }
    int error = vb_pcapng_end(&d->file);
    free(d);
    return error;
}

uint64_t vb_trace_seen(const struct vb_trace *trace)
{
    return trace->seen;
}

uint64_t vb_trace_lost(const struct vb_trace *trace)
{
    return trace->lost;
}
