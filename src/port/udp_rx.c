// SPDX-License-Identifier: Apache-2.0
// Receiving: datagrams, merged by the kernel or not, are split into frames whose ICRC is right.
#include "port/udp_state.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL_IDS = 128, // what segment indices stay below: the kernel makes at most as many
    CALM_ENOUGH = 16,
    CALM_MAX = 4 * CALM_ENOUGH,
    STREAM_FROM = 4, // datagrams in a row that make a stream
    LONE_FROM = 64,  // lone frames in a row that end it
};

int vb_udp_rx_init(struct udp_rx *rx)
{
    rx->buffers = aligned_alloc(4096, (size_t)UDP_RX_DATAGRAMS * UDP_RX_BYTES);
    if (rx->buffers == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < UDP_RX_DATAGRAMS; i++) {
        struct msghdr *h = &rx->msg[i].msg_hdr;
        rx->iov[i].iov_base = rx->buffers + (size_t)i * UDP_RX_BYTES;
        rx->iov[i].iov_len = UDP_RX_BYTES;
        h->msg_name = &rx->from[i];
        h->msg_namelen = sizeof rx->from[i];
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

// Length of the merged packets, or of the whole datagram. Also readies the header for its next use.
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
    h->msg_controllen = sizeof(union udp_control);
    h->msg_namelen = sizeof(struct sockaddr_in);
    return bytes;
}

static struct udp_source *find_source(struct udp *u, const struct sockaddr_in *from)
{
    uint32_t ip = from->sin_addr.s_addr;
    uint16_t port = ntohs(from->sin_port);
    uint32_t hash = (ip ^ (uint32_t)port << 16) * 0x9e3779b1u;
    struct udp_source *s = &u->rx.source[hash >> 24 & (UDP_SOURCES - 1)];
    if (s->ip != ip || s->port != port || port == 0) {
        *s = (struct udp_source){.ip = ip, .port = port};
        vb_icrc_flow_init_v4(&s->flow, (const uint8_t *)&ip, u->port.local.b + 12, port,
                             VB_ROCE_UDP_PORT);
    }
    return s;
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

static bool check(struct udp *u, struct udp_source *s, uint32_t segment, const uint8_t *frame,
                  uint32_t len)
{
    uint16_t guess = guess_id(s, segment);
    uint16_t id = 0;
    enum vb_icrc_verdict verdict = vb_icrc_check(&s->flow, guess, frame, len, &id);
    if (verdict == VB_ICRC_BAD || !is_plausible(s, id)) {
        u->port.stats.rx_bad_icrc++;
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
    return true;
}

static struct vb_ip mapped(const struct sockaddr_in *from)
{
    struct vb_ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    memcpy(ip.b + 12, &from->sin_addr.s_addr, 4);
    return ip;
}

// Goes on with the datagram at hand until its end or the room's. Returns the frames made.
static uint32_t split(struct udp *u, struct vb_rx_frame *frames, uint32_t room)
{
    struct udp_rx *rx = &u->rx;
    uint32_t at = rx->at;
    const uint8_t *bytes = rx->iov[at].iov_base;
    uint32_t total = rx->msg[at].msg_len;
    uint32_t step = rx->step[at];
    struct udp_source *source = find_source(u, &rx->from[at]);
    struct vb_ip src = mapped(&rx->from[at]);
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
        if (!check(u, source, segment, frame, len))
            continue;
        if (u->drop_ppm && vb_prng_chance(&u->faults, u->drop_ppm)) {
            u->port.stats.faults_dropped++;
            continue;
        }
        frames[made++] = (struct vb_rx_frame){.data = frame, .head = frame, .len = len, .src = src};
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

static void pull_lone(struct udp *u)
{
    struct udp_rx *rx = &u->rx;
    socklen_t from_len = sizeof rx->from[0];
    ssize_t bytes =
        recvfrom(u->fd, rx->buffers, UDP_RX_BYTES, 0, (struct sockaddr *)&rx->from[0], &from_len);
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
    for (uint32_t i = 0; i < rx->count; i++)
        rx->step[i] = segment_bytes(&rx->msg[i].msg_hdr, rx->msg[i].msg_len);
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
    rx->at = rx->count = 0;
    if (rx->mode == UDP_RX_LONE) {
        pull_lone(u);
    } else {
        pull_stream(u);
        calm_down(u);
    }
}

uint32_t vb_udp_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct udp *u = (struct udp *)port;
    struct udp_rx *rx = &u->rx;
    if (rx->at == rx->count)
        pull(u);
    uint32_t made = 0;
    while (rx->at < rx->count && made < VB_PORT_RX_BATCH)
        made += split(u, frames + made, VB_PORT_RX_BATCH - made);
    return made;
}
