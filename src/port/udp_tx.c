// SPDX-License-Identifier: Apache-2.0
// Sending: runs of equal frames to one address become one segmented datagram, several of which go
// out with one system call. The ICRC is sealed here, since only here the identification is known:
// with path MTU discovery on, an unconnected socket sends 0, and segment i of a run carries i.
// (IPv6 has none, and the ICRC leaves it out.)
#include "base/bytes.h"
#include "base/cancel.h"
#include "port/clock.h"
#include "port/trace.h"
#include "port/udp_state.h"
#include "wire/opcode.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

enum {
    TRANSPORT_BITS = 0xe0, // of a BTH's opcode
    SEGMENT_SPACE = CMSG_SPACE(sizeof(uint16_t)),
};

// A peer's socket address is ours with another IP address in it: family, port and scope stay.
void vb_udp_tx_init(struct udp_tx *tx, const union udp_address *local)
{
    for (unsigned i = 0; i < UDP_TX_MESSAGES; i++) {
        struct msghdr *h = &tx->msg[i].msg_hdr;
        tx->to[i] = *local;
        h->msg_name = &tx->to[i];
        h->msg_namelen = vb_udp_address_bytes(local);
        h->msg_control = tx->control[i].bytes;
        h->msg_controllen = SEGMENT_SPACE;
        struct cmsghdr *c = CMSG_FIRSTHDR(h);
        c->cmsg_level = SOL_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    }
}

static void aim(const struct udp *u, union udp_address *to, const struct vb_path *path)
{
    if (u->ipv6)
        memcpy(&to->v6.sin6_addr, path->remote.b, 16);
    else
        memcpy(&to->v4.sin_addr, path->remote.b + 12, 4);
}

// Records frames [first, end) that left, as segments of one send unless singly. Apart from where it
// is called, so that sending without a trace keeps its registers.
static __attribute__((noinline)) void record(struct udp *u, const struct vb_txq *txq,
                                             uint32_t first, uint32_t end, bool singly)
{
    uint64_t now = vb_clock_ns();
    for (uint32_t i = first; i < end; i++)
        vb_trace_sent(u->port.trace, now, singly ? 0 : (uint16_t)(i - first), txq, &txq->frame[i]);
}

// Frames for two NICs on one address do not share a send: the system steers it as a whole.
static inline bool same_range(const struct vb_txq *txq, const struct vb_tx_frame *a,
                              const struct vb_tx_frame *b)
{
    uint32_t x = vb_get_be32(txq->arena + a->offset + 4);
    uint32_t y = vb_get_be32(txq->arena + b->offset + 4);
    return ((x ^ y) & 0xffffff) >> REGISTRY_RANGE_BITS == 0;
}

static inline bool same_way(const struct vb_txq *txq, const struct vb_tx_frame *a,
                            const struct vb_tx_frame *b)
{
    return (a->path == b->path || (vb_ip_equal(&a->path->remote, &b->path->remote) &&
                                   vb_path_attr_equal(&a->path->attr, &b->path->attr))) &&
           same_range(txq, a, b);
}

// An ACK, and the program's answer to what it acknowledges: in this order they would be two sends,
// since only the last segment may be shorter. Requests and answers to requests have no order.
static void swap_two(struct vb_txq *txq)
{
    struct vb_tx_frame *a = &txq->frame[txq->taken], *b = a + 1, former = *a;

    bool acks = vb_opcode_table[txq->arena[a->offset]].facts & VB_OP_ACK;
    bool asks = vb_opcode_table[txq->arena[b->offset]].facts & VB_OP_REQUEST;

    if (!acks || !asks || a->len >= b->len || !same_way(txq, a, b))
        return;
    *a = *b;
    *b = former;
}

// One past the last frame that may share a segmented send with `first`: the same address and the
// same length, but the last may be shorter.
static uint32_t run_end(const struct udp *u, const struct vb_txq *txq, uint32_t first)
{
    const struct vb_tx_frame *head = &txq->frame[first];
    uint32_t limit = u->tx.no_segments ? first + 1 : first + UDP_RUN_FRAMES;
    if (limit > txq->count)
        limit = txq->count;
    uint32_t bytes = head->len;
    uint32_t i = first + 1;
    for (; i < limit; i++) {
        const struct vb_tx_frame *f = &txq->frame[i];
        if (f->len > head->len || bytes + f->len > UDP_RUN_BYTES)
            break;
        if (!same_way(txq, head, f))
            break;
        bytes += f->len;
        if (f->len < head->len)
            return i + 1;
    }
    return i;
}

// Points message h at frames [first, end): what lies together in the arena is one piece.
static void gather(struct msghdr *h, struct iovec *v, const struct vb_txq *txq, uint32_t first,
                   uint32_t end)
{
    h->msg_iov = v;
    *v = (struct iovec){.iov_base = txq->arena + txq->frame[first].offset};
    for (uint32_t i = first; i < end; i++) {
        const struct vb_tx_frame *f = &txq->frame[i];
        uint8_t *at = txq->arena + f->offset;
        if (at != (uint8_t *)v->iov_base + v->iov_len)
            *++v = (struct iovec){.iov_base = at};
        if (f->body_len == 0) {
            v->iov_len += f->len;
            continue;
        }
        v->iov_len += f->head;
        *++v = (struct iovec){(void *)(uintptr_t)f->body, f->body_len};
        *++v = (struct iovec){txq->arena + f->offset + f->head, f->len - f->head - f->body_len};
    }
    h->msg_iovlen = (size_t)(v + 1 - h->msg_iov);
}

// Whether packets there have other attributes than the socket.
static inline bool is_other(const struct udp *u, const struct vb_path *path)
{
    return !vb_path_attr_equal(&path->attr, &u->tx.attr);
}

// Adds the path's attributes behind the length of segments, or alone.
static void describe(struct udp *u, unsigned m, const struct vb_path *path)
{
    struct msghdr *h = &u->tx.msg[m].msg_hdr;
    uint8_t *at = u->tx.control[m].bytes + SEGMENT_SPACE;

    if (h->msg_controllen == 0)
        h->msg_control = at;
    h->msg_controllen += vb_udp_attr_put(u, at, path);
}

// Prepares message m to carry frames [first, end), sealed.
static void load(struct udp *u, unsigned m, struct vb_txq *txq, uint32_t first, uint32_t end)
{
    struct udp_tx *tx = &u->tx;
    const struct vb_tx_frame *head = &txq->frame[first];
    for (uint32_t i = first; i < end; i++)
        vb_tx_seal(txq, &txq->frame[i], (uint16_t)(i - first));
    tx->first[m] = first;
    tx->end[m] = end;
    aim(u, &tx->to[m], head->path);
    struct msghdr *h = &tx->msg[m].msg_hdr;
    gather(h, tx->iov + tx->iov_used, txq, first, end);
    tx->iov_used += (uint32_t)h->msg_iovlen;
    h->msg_control = tx->control[m].bytes;
    h->msg_controllen = 0;
    if (end - first > 1) {
        uint16_t segment_bytes = (uint16_t)head->len;
        h->msg_controllen = SEGMENT_SPACE;
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(h)), &segment_bytes, sizeof segment_bytes);
    }
    if (__builtin_expect(is_other(u, head->path), 0))
        describe(u, m, head->path);
}

// Frames of services without acknowledgements wait for a receiver that is full. Those that share a
// send with others go as the first one.
static inline bool may_leave(struct udp *u, const struct vb_txq *txq,
                             const struct vb_tx_frame *head, uint32_t frames)
{
    const uint8_t *bth = txq->arena + head->offset;
    uint8_t transport = bth[0] & TRANSPORT_BITS;

    if (__builtin_expect(transport != VB_UC_BASE && transport != VB_UD_BASE, 1))
        return true;
    return vb_udp_has_room(u, &head->path->remote, vb_get_be24(bth + 5), frames, frames * head->len,
                           head == &txq->frame[txq->taken]);
}

// Fills messages from frames [txq->taken, …). Returns how many; *next is the frame to go on with.
static unsigned build(struct udp *u, struct vb_txq *txq, uint32_t *next)
{
    unsigned m = 0;
    uint32_t i = txq->taken;
    u->tx.iov_used = 0;
    while (i < txq->count && m < UDP_TX_MESSAGES) {
        uint32_t end = run_end(u, txq, i);
        const struct vb_path *path = txq->frame[i].path;
        if (!may_leave(u, txq, &txq->frame[i], end - i))
            break;
        if (__builtin_expect(is_other(u, path), 0) && !vb_udp_attr_turn(u, &path->attr, m == 0))
            break;
        load(u, m++, txq, i, end);
        i = end;
    }
    *next = i;
    return m;
}

static bool is_full(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

// Sends the frames of message m one by one. False: the system's buffers are full.
static bool send_singly(struct udp *u, unsigned m, struct vb_txq *txq)
{
    for (uint32_t i = u->tx.first[m]; i < u->tx.end[m]; i++) {
        struct iovec iov[3];
        uint8_t *control = u->tx.control[m].bytes + SEGMENT_SPACE;
        struct msghdr h = {.msg_name = &u->tx.to[m],
                           .msg_namelen = u->address_bytes,
                           .msg_control = control,
                           .msg_controllen = vb_udp_attr_put(u, control, txq->frame[i].path)};
        vb_tx_seal(txq, &txq->frame[i], 0);
        gather(&h, iov, txq, i, i + 1);
        if (sendmsg(u->fd, &h, 0) < 0) {
            if (is_full(errno))
                return false;
            u->port.stats.tx_errors++;
        } else if (u->port.trace) {
            record(u, txq, i, i + 1, true);
        }
        txq->taken = i + 1;
    }
    return true;
}

// The system refused message m. Goes around it; false: try again later.
static bool overcome(struct udp *u, unsigned m, struct vb_txq *txq, int error)
{
    struct udp_tx *tx = &u->tx;
    uint32_t frames = tx->end[m] - tx->first[m];
    if (is_full(error))
        return false;
    txq->taken = tx->first[m];
    // Segments that a device cannot make, or that exceed its MTU while the last, shorter one fits.
    if (frames > 1 && (error == EMSGSIZE || error == EINVAL || error == EIO)) {
        tx->no_segments |= error == EIO;
        return send_singly(u, m, txq);
    }
    u->port.stats.tx_errors += frames;
    txq->taken = tx->end[m];
    return true;
}

// Hands the first `count` messages over. False: the system's buffers are full.
static bool flush(struct udp *u, unsigned count, struct vb_txq *txq)
{
    struct udp_tx *tx = &u->tx;
    unsigned m = 0;
    while (m < count) {
        int sent = sendmmsg(u->fd, tx->msg + m, count - m, 0);
        if (sent > 0) {
            for (unsigned i = m; u->port.trace && i < m + (unsigned)sent; i++)
                record(u, txq, tx->first[i], tx->end[i], false);
            m += (unsigned)sent;
            txq->taken = tx->end[m - 1];
        } else if (errno != EINTR) {
            if (!overcome(u, m, txq, errno))
                return false;
            m++;
        }
    }
    return true;
}

// One frame alone is where latency counts: the cheapest call, no control message, no list.
static inline void send_one(struct udp *u, struct vb_txq *txq, const struct vb_tx_frame *f)
{
    uint8_t *bytes = txq->arena + f->offset;
    union udp_address *to = &u->tx.to[0];
    if (!may_leave(u, txq, f, 1))
        return;
    aim(u, to, f->path);
    vb_tx_seal(txq, f, 0);
    if (sendto(u->fd, bytes, f->len, 0, &to->any, u->address_bytes) < 0) {
        if (is_full(errno))
            return;
        u->port.stats.tx_errors++;
    } else if (u->port.trace) {
        record(u, txq, txq->taken, txq->taken + 1, true);
    }
    txq->taken++;
}

static void send_all(struct udp *u, struct vb_txq *txq)
{
    while (txq->taken < txq->count) {
        uint32_t next;
        unsigned count = build(u, txq, &next);
        if (count == 0 || !flush(u, count, txq))
            return;
        txq->taken = next;
    }
}

void vb_udp_send_own(struct udp *u, struct vb_txq *txq)
{
    const struct vb_tx_frame *f = &txq->frame[txq->taken];
    if (txq->count - txq->taken == 1 && f->body_len == 0 && !is_other(u, f->path)) {
        send_one(u, txq, f);
        return;
    }
    if (txq->count - txq->taken == 2)
        swap_two(txq);
    send_all(u, txq);
}

void vb_udp_send(struct vb_port *port, struct vb_txq *txq)
{
    struct udp *u = (struct udp *)port;
    int before = vb_cancel_hold();
    if (__builtin_expect(u->sides > 0, 0))
        vb_udp_side_send(u, txq);
    else
        vb_udp_send_own(u, txq);
    vb_cancel_allow(before);
}
