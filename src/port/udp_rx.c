// SPDX-License-Identifier: Apache-2.0
// Receiving: datagrams, merged by the kernel or not, are split into frames whose ICRC is right.
#include "base/bytes.h"
#include "base/cancel.h"
#include "port/clock.h"
#include "port/trace.h"
#include "port/udp.h"
#include "port/udp_state.h"
#include "port/udp_steer.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL_IDS = 128, // what segment indices stay below: the kernel makes at most as many
    CALM_ENOUGH = 16,
    CALM_MAX = 4 * CALM_ENOUGH,
    STREAM_FROM = 4,   // datagrams in a row that make a stream
    LONE_FROM = 64,    // lone frames in a row that end it
    TEND_EVERY = 1024, // receives between two looks at the clock for others' sake
};

int vb_udp_rx_init(struct udp_rx *rx, const union udp_address *local)
{
    rx->buffers = aligned_alloc(4096, (size_t)UDP_RX_DATAGRAMS * UDP_RX_BYTES);
    if (rx->buffers == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < UDP_RX_DATAGRAMS; i++) {
        struct msghdr *h = &rx->msg[i].msg_hdr;
        rx->iov[i].iov_base = rx->buffers + (size_t)i * UDP_RX_BYTES;
        rx->iov[i].iov_len = UDP_RX_BYTES;
        h->msg_name = &rx->from[i];
        h->msg_namelen = vb_udp_address_bytes(local);
        h->msg_iov = &rx->iov[i];
        h->msg_iovlen = 1;
        h->msg_control = rx->control[i].bytes;
        h->msg_controllen = sizeof rx->control[i].bytes;
    }
    return 0;
}

void vb_udp_rx_fini(struct udp_rx *rx)
{
    free(rx->buffers);
}

// Length of the merged packets, or of the whole datagram.
static uint32_t segment_bytes(struct msghdr *h, uint32_t datagram_bytes)
{
    uint32_t bytes = datagram_bytes;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            if (size > 0 && (uint32_t)size < bytes)
                bytes = (uint32_t)size;
        }
    }
    return bytes;
}

static void read_v4(struct vb_rx_frame *f, const struct cmsghdr *c)
{
    int value;

    if (c->cmsg_type == IP_TOS) {
        f->traffic_class = *CMSG_DATA(c); // a byte
    } else if (c->cmsg_type == IP_TTL) {
        memcpy(&value, CMSG_DATA(c), sizeof value);
        f->hop_limit = (uint8_t)value;
    }
}

// A flow label that is 0 does not come.
static void read_v6(struct vb_rx_frame *f, const struct cmsghdr *c)
{
    uint32_t value;

    memcpy(&value, CMSG_DATA(c), sizeof value);
    if (c->cmsg_type == IPV6_TCLASS)
        f->traffic_class = (uint8_t)value;
    else if (c->cmsg_type == IPV6_HOPLIMIT)
        f->hop_limit = (uint8_t)value;
    else if (c->cmsg_type == IPV6_FLOWINFO)
        f->flow_label = ntohl(value) & 0xfffff;
}

uint64_t vb_udp_read_header(const struct udp *u, struct msghdr *h)
{
    struct vb_rx_frame f = {0};

    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level == IPPROTO_IP)
            read_v4(&f, c);
        else if (c->cmsg_level == IPPROTO_IPV6)
            read_v6(&f, c);
    }
    f.ce = u->ecn && (f.traffic_class & IPTOS_ECN_MASK) == IPTOS_ECN_CE;
    return f.ip_word;
}

int vb_udp_ask_headers(int fd, bool ipv6)
{
    static const int v4[] = {IP_RECVTOS, IP_RECVTTL};
    static const int v6[] = {IPV6_RECVTCLASS, IPV6_RECVHOPLIMIT, IPV6_FLOWINFO};
    int on = 1;

    for (size_t i = 0; i < (ipv6 ? sizeof v6 / sizeof v6[0] : sizeof v4 / sizeof v4[0]); i++)
        if (setsockopt(fd, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? v6[i] : v4[i], &on, sizeof on) <
            0)
            return -errno;
    return 0;
}

int vb_udp_tell_headers(struct vb_port *port)
{
    struct udp *u = (struct udp *)port;
    int error = 0;

    if (!u->tells)
        error = vb_udp_ask_headers(u->fd, u->ipv6);
    u->tells = error == 0;
    u->headers |= u->tells;
    for (uint32_t i = 0; i < u->sides && error == 0; i++)
        error = vb_udp_tell_headers(&u->side[i]->port);
    return error;
}

void vb_udp_meet(const struct udp *u, struct udp_source *s, const struct vb_ip *ip, uint16_t port,
                 const struct vb_ip *to)
{
    *s = (struct udp_source){.ip = *ip, .port = port, .to = to};
    if (u->ipv6)
        vb_icrc_flow_init_v6(&s->flow, ip->b, to->b, port, VB_ROCE_UDP_PORT);
    else
        vb_icrc_flow_init_v4(&s->flow, ip->b + 12, to->b + 12, port, VB_ROCE_UDP_PORT);
}

static struct udp_source *meet(const struct udp *u, struct udp_source *s,
                               const union udp_address *from, uint16_t port)
{
    struct vb_ip ip = vb_udp_address_ip(from);
    vb_udp_meet(u, s, &ip, port, &u->port.local);
    return s;
}

static struct udp_source *find_source_v4(struct udp *u, const union udp_address *from)
{
    uint32_t ip = from->v4.sin_addr.s_addr, known;
    uint16_t port = ntohs(from->v4.sin_port);
    uint32_t hash = (ip ^ (uint32_t)port << 16) * 0x9e3779b1u;
    struct udp_source *s = &u->rx.source[hash >> 24 & (UDP_SOURCES - 1)];
    memcpy(&known, s->ip.b + 12, sizeof known);
    return known == ip && s->port == port && port != 0 ? s : meet(u, s, from, port);
}

static struct udp_source *find_source_v6(struct udp *u, const union udp_address *from)
{
    uint64_t half[2];
    uint16_t port = ntohs(from->v6.sin6_port);
    memcpy(half, &from->v6.sin6_addr, sizeof half);
    uint64_t hash = half[0] * 0x9e3779b97f4a7c15u ^ half[1] ^ port;
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
    struct udp_source *s = &u->rx.source[hash >> 56 & (UDP_SOURCES - 1)];
    bool is_known = memcmp(s->ip.b, half, sizeof half) == 0 && s->port == port && port != 0;
    return is_known ? s : meet(u, s, from, port);
}

// A source that numbers its packets as plain sockets do is held to it: then a wrong frame passes
// one time in 2^24, not in 2^15. Only zeros speak for it, since a counter that wraps passes through
// all small numbers; and a few large ones in a row show that it has changed its ways.
static bool is_plausible(struct udp_source *s, uint16_t id)
{
    if (id == 0 && s->calm < CALM_MAX)
        s->calm++;
    if (id < SMALL_IDS)
        return true;
    bool held = s->calm >= CALM_ENOUGH;
    s->calm = held ? s->calm - CALM_ENOUGH : 0;
    return !held;
}

// What the identification will be, most likely.
static uint16_t guess_id(const struct udp_source *s, uint32_t segment)
{
    if (segment > 0)
        return s->flat ? 0 : (uint16_t)segment;
    return s->climbing ? s->last_id + 1 : 0;
}

static void record(struct udp *u, const struct udp_source *s, uint16_t id, const uint8_t *frame,
                   uint32_t len, const char *remark)
{
    const struct vb_trace_packet packet = {
        .src = s->ip, .dst = *s->to, .src_port = s->port, .id = id};

    vb_trace_received(u->port.trace, vb_clock_ns(), &packet, frame, len);
    if (remark)
        vb_trace_remark(u->port.trace, "%s", remark);
}

bool vb_udp_check(struct udp *u, struct udp_source *s, uint32_t segment, const uint8_t *frame,
                  uint32_t len)
{
    uint16_t guess = guess_id(s, segment);
    uint16_t id = 0;
    enum vb_icrc_verdict verdict = vb_icrc_check(&s->flow, guess, frame, len, &id);
    if (verdict == VB_ICRC_BAD || !is_plausible(s, id)) {
        u->port.stats.rx_bad_icrc++;
        if (u->port.trace)
            record(u, s, guess, frame, len, "dropped: the ICRC is wrong");
        return false;
    }
    if (verdict == VB_ICRC_SOLVED) {
        u->port.stats.rx_solved_icrc++;
        if (segment > 0)
            s->flat = id == 0;
        else
            s->climbing = id == (uint16_t)(s->last_id + 1);
    }
    s->last_id = id;
    if (u->port.trace)
        record(u, s, id, frame, len, NULL);
    return true;
}

// Whether the frame is for a queue pair that cannot be ours, or is not ours alone: the managers'
// numbers lie in the first slot's range, and are everybody's.
static inline bool is_stray(const struct udp *u, const uint8_t *frame)
{
    uint32_t qpn = vb_get_be32(frame + 4) & 0xffffff;
    return (qpn - u->port.qpn_base >= u->port.qpn_count || qpn <= UDP_QPN_MANAGERS) &&
           u->share != NULL;
}

// Goes on with the datagram at hand until its end or the room's. Returns the frames made.
static uint32_t split(struct udp *u, struct vb_rx_frame *frames, uint32_t room)
{
    struct udp_rx *rx = &u->rx;
    uint32_t at = rx->at;
    const uint8_t *bytes = rx->iov[at].iov_base;
    uint32_t total = rx->msg[at].msg_len;
    uint32_t step = rx->step[at];
    struct udp_source *source =
        u->ipv6 ? find_source_v6(u, &rx->from[at]) : find_source_v4(u, &rx->from[at]);
    uint32_t made = 0;
    while (rx->offset < total && made < room) {
        uint32_t len = total - rx->offset < step ? total - rx->offset : step;
        const uint8_t *frame = bytes + rx->offset;
        uint32_t segment = rx->segment++;
        rx->offset += len;
        if (len < VB_ICRC_FRAME_MIN || len > VB_FRAME_MAX) {
            u->port.stats.rx_bad_icrc++;
            continue;
        }
        bool stray = is_stray(u, frame);
        if (__builtin_expect(stray, 0) && frame[0] == UDP_PROBE_OPCODE) {
            vb_udp_share_probe(u, frame, len);
            continue;
        }
        if (!vb_udp_check(u, source, segment, frame, len))
            continue;
        frames[made] = (struct vb_rx_frame){.data = frame,
                                            .head = frame,
                                            .len = len,
                                            .src = source->ip,
                                            .ip_word = rx->ip_word[at],
                                            .to = u->to};
        // Only the first of merged packets was the system's to steer.
        if (__builtin_expect(stray, 0) && vb_udp_mail_divert(u, &frames[made], segment == 0))
            continue;
        made++;
    }
    if (rx->offset >= total) {
        rx->at++;
        rx->offset = rx->segment = 0;
    }
    return made;
}

static void set_merging(const struct udp *u, int on)
{
    (void)setsockopt(u->fd, SOL_UDP, UDP_GRO, &on, sizeof on);
}

// One datagram, and what its IP header said.
static ssize_t pull_header(struct udp *u)
{
    struct msghdr *h = &u->rx.msg[0].msg_hdr;
    ssize_t bytes = recvmsg(u->fd, h, 0);

    if (bytes >= 0)
        u->rx.ip_word[0] = vb_udp_read_header(u, h);
    h->msg_controllen = sizeof u->rx.control[0].bytes; // ready for the next receive
    h->msg_namelen = u->address_bytes;
    return bytes;
}

static void pull_lone(struct udp *u)
{
    struct udp_rx *rx = &u->rx;
    socklen_t from_len = u->address_bytes;
    ssize_t bytes =
        u->headers ? pull_header(u)
                   : recvfrom(u->fd, rx->buffers, UDP_RX_BYTES, 0, &rx->from[0].any, &from_len);
    if (bytes < 0) {
        rx->streak = 0;
        return;
    }
    rx->msg[0].msg_len = rx->step[0] = (uint32_t)bytes;
    rx->count = 1;
    if (++rx->streak == STREAM_FROM) {
        set_merging(u, 1);
        rx->mode = UDP_RX_STREAM;
        rx->streak = 0;
    }
}

static void pull_stream(struct udp *u)
{
    struct udp_rx *rx = &u->rx;
    int count = recvmmsg(u->fd, rx->msg, UDP_RX_DATAGRAMS, 0, NULL);
    rx->count = count > 0 ? (uint32_t)count : 0;
    for (uint32_t i = 0; i < rx->count; i++) {
        struct msghdr *h = &rx->msg[i].msg_hdr;
        rx->step[i] = segment_bytes(h, rx->msg[i].msg_len);
        rx->ip_word[i] = u->headers ? vb_udp_read_header(u, h) : 0;
        h->msg_controllen = sizeof rx->control[i].bytes; // ready for the next receive
        h->msg_namelen = u->address_bytes;
    }
}

// Ends a stream when lone frames have been coming for a while. Merged datagrams that arrived before
// are behind us at the first empty poll after merging was switched off.
static void calm_down(struct udp *u)
{
    struct udp_rx *rx = &u->rx;
    if (rx->count == 1 && rx->step[0] == rx->msg[0].msg_len) {
        rx->streak++;
    } else if (rx->count > 0) {
        rx->streak = 0;
        if (rx->mode == UDP_RX_CALMING)
            set_merging(u, 1);
        rx->mode = UDP_RX_STREAM;
    } else if (rx->mode == UDP_RX_CALMING) {
        rx->mode = UDP_RX_LONE;
        rx->streak = 0;
    } else if (rx->streak >= LONE_FROM) {
        set_merging(u, 0);
        rx->mode = UDP_RX_CALMING;
    }
}

// An empty poll costs one failing system call and nothing else: it is what latency waits for.
static void pull(struct udp *u)
{
    struct udp_rx *rx = &u->rx;
    int before = vb_cancel_hold();
    rx->at = rx->count = 0;
    if (rx->mode == UDP_RX_LONE) {
        pull_lone(u);
    } else {
        pull_stream(u);
        calm_down(u);
    }
    vb_cancel_allow(before);
}

// The others on our address: what they sent us, what is theirs, and how they are.
static uint32_t mind_others(struct udp *u, struct vb_rx_frame *frames, uint32_t room)
{
    struct udp_share *s = u->share;
    uint32_t made = 0;
    if (u->mail.out_used > 0)
        vb_udp_mail_flush(u);
    if (vb_udp_mail_waits(u))
        made = vb_udp_mail_receive(u, frames, room);
    bool doubted = atomic_load_explicit(&s->doubted, memory_order_relaxed);
    if (++u->untended >= TEND_EVERY || doubted) {
        u->untended = 0;
        if (doubted || atomic_load_explicit(&s->company, memory_order_relaxed))
            vb_udp_share_tend(s, vb_clock_ns());
    }
    return made;
}

uint32_t vb_udp_receive_own(struct udp *u, struct vb_rx_frame *frames, uint32_t room)
{
    struct udp_rx *rx = &u->rx;
    if (rx->at == rx->count)
        pull(u);
    uint32_t made = 0;
    while (rx->at < rx->count && made < room)
        made += split(u, frames + made, room - made);
    if (u->share != NULL)
        made += mind_others(u, frames + made, room - made);
    if (__builtin_expect(u->groups != NULL, 0))
        made += vb_udp_group_receive(u, frames + made, room - made);
    return made;
}

uint32_t vb_udp_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct udp *u = (struct udp *)port;
    return __builtin_expect(u->sides > 0, 0) ? vb_udp_side_receive(u, frames)
                                             : vb_udp_receive_own(u, frames, VB_PORT_RX_BATCH);
}

uint32_t vb_udp_sift(struct vb_port *port, struct vb_rx_frame *frames, uint32_t count)
{
    struct udp *u = (struct udp *)port;
    uint32_t kept = 0;
    if (port->ops->receive != vb_udp_receive || u->share == NULL ||
        !atomic_load_explicit(&u->share->company, memory_order_relaxed))
        return count;
    for (uint32_t i = 0; i < count; i++) {
        if (is_stray(u, frames[i].head) && vb_udp_mail_divert(u, &frames[i], false))
            continue;
        frames[kept++] = frames[i];
    }
    vb_udp_mail_flush(u);
    return kept;
}
