// SPDX-License-Identifier: Apache-2.0
// Datagram rsockets: sending, receiving, and what wakes who waits for either.
#include "rsocket/datagram.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    BATCH = 16,
    SLOTS_MAX = 4096,  // of 2 KB, each way
    QKEY = 0x01234567, // of all queue pairs of the manager's UDP port space
};
#define FAREWELL_NS (INT64_C(1) * 1000000000)

int vb_rs_datagrams_create(struct vb_rsocket *rs)
{
    rs->datagrams = calloc(1, sizeof *rs->datagrams);
    if (!rs->datagrams)
        return -ENOMEM;
    rs->fd = socket(rs->domain, SOCK_DGRAM, 0);
    return rs->fd < 0 ? -errno : 0;
}

int vb_rs_datagrams_start(struct vb_rsocket *rs)
{
    struct vb_rs_datagrams *d = rs->datagrams;

    if (d->started)
        return 0;
    vb_rs_sizes_round(&rs->size);
    d->sq = rs->size.sq < SLOTS_MAX ? rs->size.sq : SLOTS_MAX;
    d->rq = rs->size.rq < SLOTS_MAX ? rs->size.rq : SLOTS_MAX;
    d->ring_size = VB_RS_LANES * d->rq + VB_RS_EARLY + 1u;
    d->send = calloc(d->sq, VB_RS_SLOT_BYTES);
    d->free_slots = calloc(d->sq, sizeof *d->free_slots);
    d->slot_dest = calloc(d->sq, sizeof(struct vb_rs_dest *));
    d->ring = calloc(d->ring_size, sizeof *d->ring);
    if (!d->send || !d->free_slots || !d->slot_dest || !d->ring)
        return -ENOMEM;
    for (uint16_t i = 0; i < d->sq; i++)
        d->free_slots[d->free_count++] = i;
    d->started = true;
    return 0;
}

void vb_rs_datagrams_destroy(struct vb_rsocket *rs)
{
    struct vb_rs_datagrams *d = rs->datagrams;

    if (!d)
        return;
    for (; d->head != d->tail; d->head = (d->head + 1) % d->ring_size)
        if (!d->ring[d->head].lane)
            free(d->ring[d->head].data);
    vb_rs_dests_free(d);
    for (unsigned i = 0; i < d->lanes; i++)
        vb_rs_lane_close(&d->lane[i]);
    if (rs->fd >= 0)
        close(rs->fd);
    free(d->send);
    free(d->free_slots);
    free(d->slot_dest);
    free(d->ring);
    free(d);
}

bool vb_rs_is_wanted(const struct vb_rs_datagrams *d, const struct sockaddr_storage *from)
{
    return !d->connected || vb_rs_address_equal(from, (struct sockaddr *)&d->connected->addr);
}

bool vb_rs_arrival_push(struct vb_rs_datagrams *d, const struct vb_rs_arrival *a)
{
    unsigned next = (d->tail + 1) % d->ring_size;

    if (next == d->head)
        return false;
    d->ring[d->tail] = *a;
    d->tail = next;
    return true;
}

// A datagram in a receive slot; what has no header of ours is dropped.
static void arrive(struct vb_rs_datagrams *d, struct vb_rs_lane *lane, const struct ibv_wc *wc)
{
    struct vb_rs_arrival a = {.lane = lane, .slot = (uint32_t)wc->wr_id};
    uint8_t *slot = lane->recv + (size_t)a.slot * (VB_RS_GRH_BYTES + VB_RS_SLOT_BYTES);
    bool kept = false;

    if (wc->status == IBV_WC_WR_FLUSH_ERR)
        return;
    if (wc->status == IBV_WC_SUCCESS && wc->byte_len >= VB_RS_GRH_BYTES) {
        uint32_t bytes = wc->byte_len - VB_RS_GRH_BYTES;
        size_t header = vb_rs_ud_decode(slot + VB_RS_GRH_BYTES, bytes, &a.from);
        a.data = slot + VB_RS_GRH_BYTES + header;
        a.bytes = bytes - (uint32_t)header;
        kept = header && vb_rs_is_wanted(d, &a.from) && vb_rs_arrival_push(d, &a);
    }
    if (!kept)
        vb_rs_lane_receive(lane, a.slot);
}

static void free_slot(struct vb_rs_datagrams *d, uint16_t slot)
{
    d->slot_dest[slot]->uses--;
    d->free_slots[d->free_count++] = slot;
}

static void poll_lane(struct vb_rs_datagrams *d, struct vb_rs_lane *lane)
{
    struct ibv_wc wc[BATCH];
    int n;

    do {
        n = ibv_poll_cq(lane->cq, BATCH, wc);
        for (int i = 0; i < n; i++) {
            if (wc[i].wr_id & VB_RS_RECEIVE_ID)
                arrive(d, lane, &wc[i]);
            else
                free_slot(d, (uint16_t)wc[i].wr_id);
        }
    } while (n == BATCH);
}

void vb_rs_datagrams_progress(struct vb_rsocket *rs)
{
    struct vb_rs_datagrams *d = rs->datagrams;

    if (!d->started)
        return;
    for (unsigned i = 0; i < d->lanes; i++)
        poll_lane(d, &d->lane[i]);
    if (d->head == d->tail)
        vb_rs_dest_listen(rs);
}

short vb_rs_datagrams_events(struct vb_rsocket *rs, short events)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    short got = 0;

    if (d->head != d->tail)
        got |= events & (POLLIN | POLLRDNORM);
    if (!d->started || d->free_count)
        got |= events & (POLLOUT | POLLWRNORM);
    return got;
}

int vb_rs_datagrams_arm(struct vb_rsocket *rs, struct vb_rs_watch *watch)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    bool news = false;

    watch->fd[watch->count++] = rs->fd;
    for (unsigned i = 0; i < d->lanes; i++) {
        struct vb_rs_lane *lane = &d->lane[i];
        watch->fd[watch->count++] = lane->channel->fd;
        if (lane->armed)
            continue;
        if (ibv_req_notify_cq(lane->cq, 0))
            return -EIO;
        lane->armed = news = true;
    }
    if (news)
        watch->count = 0;
    return news ? -EAGAIN : 0;
}

void vb_rs_datagrams_woken(struct vb_rsocket *rs)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    struct ibv_cq *cq;
    void *context;

    for (unsigned i = 0; i < d->lanes; i++) {
        while (ibv_get_cq_event(d->lane[i].channel, &cq, &context) == 0) {
            d->lane[i].armed = false;
            ibv_ack_cq_events(cq, 1);
        }
    }
}

static bool has_slot(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return rs->datagrams->free_count > 0;
}

static bool is_all_sent(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return rs->datagrams->free_count == rs->datagrams->sq;
}

void vb_rs_datagrams_drain(struct vb_rsocket *rs)
{
    if (rs->datagrams->started)
        vb_rs_await(rs, FAREWELL_NS, is_all_sent, NULL);
}

int vb_rs_datagrams_peer(const struct vb_rsocket *rs, struct sockaddr_storage *addr)
{
    if (!rs->datagrams->connected)
        return -ENOTCONN;
    *addr = rs->datagrams->connected->addr;
    return 0;
}

// The UDP socket stays unconnected: the system would bind it to an address of its own choice.
int vb_rs_datagrams_connect(struct vb_rsocket *rs, const struct sockaddr *to, socklen_t len)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    int err = vb_rs_datagrams_start(rs);

    if (!err && to && to->sa_family == AF_UNSPEC) {
        d->connected = NULL;
        return 0;
    }
    struct vb_rs_dest *dest;
    if (!err)
        err = vb_rs_dest_for(rs, to, len, &dest);
    if (!err)
        d->connected = dest;
    return err;
}

static int post(struct vb_rsocket *rs, struct vb_rs_dest *dest, const struct iovec *iov, int count)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    uint16_t slot = d->free_slots[--d->free_count];
    uint8_t *start = d->send + (size_t)slot * VB_RS_SLOT_BYTES;
    uint8_t *at = start + vb_rs_ud_encode((struct sockaddr *)&dest->lane->own, start);

    d->slot_dest[slot] = dest;
    dest->uses++;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len)
            memcpy(at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    struct ibv_sge sge = {.addr = (uintptr_t)start,
                          .length = (uint32_t)(at - start),
                          .lkey = dest->lane->send_mr->lkey};
    struct ibv_send_wr *bad,
        wr = {
            .wr_id = slot,
            .sg_list = &sge,
            .num_sge = 1,
            .opcode = IBV_WR_SEND,
            .send_flags = sge.length <= rs->size.inline_bytes ? IBV_SEND_INLINE : 0,
            .wr.ud = {.ah = dest->ah, .remote_qpn = dest->qpn, .remote_qkey = QKEY},
        };
    int error = ibv_post_send(dest->lane->id->qp, &wr, &bad);
    if (error)
        free_slot(d, slot);
    return -error;
}

// The peer must not be forgotten meanwhile.
static int send_to(struct vb_rsocket *rs, struct vb_rs_dest *dest, const struct iovec *iov,
                   int count, int flags)
{
    int err = 0;

    dest->uses++;
    if (!dest->ah)
        vb_rs_dest_listen(rs); // the answer may be here
    if (!dest->ah)
        err = vb_rs_dest_send_udp(rs, dest, VB_RS_DATA, iov, count, flags);
    else if (!rs->datagrams->free_count)
        err = vb_rs_wait(rs, flags, VB_RS_OUT, has_slot, NULL);
    if (!err && dest->ah)
        err = post(rs, dest, iov, count);
    dest->uses--;
    return err;
}

ssize_t vb_rs_datagrams_send(struct vb_rsocket *rs, const struct iovec *iov, int count, int flags,
                             const struct sockaddr *to, socklen_t len)
{
    struct vb_rs_dest *dest = rs->datagrams->connected;
    size_t bytes = vb_rs_length(iov, count);
    int err = vb_rs_datagrams_start(rs);

    if (!err && to)
        err = vb_rs_dest_for(rs, to, len, &dest);
    if (!err && !dest)
        err = -EDESTADDRREQ;
    if (!err && bytes > VB_RS_SLOT_BYTES - VB_RS_UDP_HEADER6)
        err = -EMSGSIZE;
    if (!err)
        err = send_to(rs, dest, iov, count, flags);
    return err ? err : (ssize_t)bytes;
}

static bool has_arrival(struct vb_rsocket *rs, const void *context)
{
    (void)context;
    return rs->datagrams->head != rs->datagrams->tail;
}

static size_t copy_out(const struct vb_rs_arrival *a, const struct iovec *iov, int count)
{
    size_t done = 0;

    for (int i = 0; i < count && done < a->bytes; i++) {
        size_t part = a->bytes - done < iov[i].iov_len ? a->bytes - done : iov[i].iov_len;
        if (part)
            memcpy(iov[i].iov_base, a->data + done, part);
        done += part;
    }
    return done;
}

static void pop(struct vb_rs_datagrams *d)
{
    struct vb_rs_arrival *a = &d->ring[d->head];

    if (a->lane) {
        vb_rs_lane_receive(a->lane, a->slot);
    } else {
        free(a->data);
        d->early--;
    }
    d->head = (d->head + 1) % d->ring_size;
}

ssize_t vb_rs_datagrams_receive(struct vb_rsocket *rs, const struct iovec *iov, int count,
                                int flags, struct sockaddr *from, socklen_t *len)
{
    struct vb_rs_datagrams *d = rs->datagrams;
    int err = vb_rs_datagrams_start(rs);

    if (!err && !has_arrival(rs, NULL))
        err = vb_rs_wait(rs, flags, VB_RS_IN, has_arrival, NULL);
    if (err)
        return err;
    const struct vb_rs_arrival *a = &d->ring[d->head];
    size_t got = copy_out(a, iov, count);
    if (flags & MSG_TRUNC)
        got = a->bytes;
    if (from && len) {
        socklen_t full = vb_rs_address_bytes((const struct sockaddr *)&a->from);
        memcpy(from, &a->from, *len < full ? *len : full);
        *len = full;
    }
    if (!(flags & MSG_PEEK))
        pop(d);
    return (ssize_t)got;
}
