// SPDX-License-Identifier: Apache-2.0
// The faulty port: judges each frame once, then drops it, holds it or hands it on.
#include "port/faulty.h"

#include "base/bytes.h"
#include "port/held.h"
#include "wire/roce.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRAMES_EACH = 1 + VB_FAULTS_COPIES // that one frame can become
};

struct faulty {
    struct vb_port port; // first: a vb_port pointer is a faulty pointer
    struct vb_port *inner;
    struct vb_faults *faults;
    uint32_t judged; // directions that `judge` is asked about
    vb_faulty_judge *judge;
    void *judge_ctx;
    vb_faulty_clock *now_ns;
    void *ctx;
    struct vb_port_stats own; // what this port adds to the inner one's
    struct vb_hold tx_hold, rx_hold;
    // Frames on their way to the inner port, with paths of their own: a queue pair's path may end
    // as soon as its frames were taken.
    struct vb_txq out;
    struct vb_path out_path[VB_TX_FRAMES];
    // Frames the inner port gave us; those from in_at on are still to be judged.
    struct vb_rx_frame in[VB_PORT_RX_BATCH];
    uint32_t in_at, in_count;
    struct vb_fifo lent; // held frames handed out by the last receive
};

static_assert(FRAMES_EACH * VB_FRAME_MAX <= VB_TX_BYTES, "any frame fits with all its copies");
static_assert((int)FRAMES_EACH <= VB_TX_FRAMES && (int)FRAMES_EACH <= VB_PORT_RX_BATCH, "likewise");

static void publish_stats(struct faulty *y)
{
    struct vb_port_stats *s = &y->port.stats;
    *s = y->inner->stats;
    s->rx_bad_icrc += y->own.rx_bad_icrc;
    s->faults_dropped += y->own.faults_dropped;
    s->faults_corrupted += y->own.faults_corrupted;
    s->faults_duplicated += y->own.faults_duplicated;
    s->faults_delayed += y->own.faults_delayed;
    s->faults_reordered += y->own.faults_reordered;
    s->faults_marked += y->own.faults_marked;
    s->faults_unheld += y->own.faults_unheld;
}

// The lane of a frame with `len` bytes of headers; strangers' stubs share one.
static struct vb_lane_key key_of(const uint8_t *head, uint32_t len, const struct vb_ip *ip)
{
    return (struct vb_lane_key){.qpn = len >= VB_BTH_BYTES ? vb_get_be24(head + 5) : 0, .ip = *ip};
}

static bool touches(const struct faulty *y, enum vb_fault_dir dir)
{
    return vb_faults_touch(y->faults, dir) || y->judged >> dir & 1;
}

static void add_fate(struct vb_fault_fate *fate, const struct vb_fault_fate *more)
{
    fate->drop |= more->drop;
    fate->corrupt |= more->corrupt;
    fate->mark |= more->mark;
    fate->copies += more->copies;
    if (fate->copies > VB_FAULTS_COPIES)
        fate->copies = VB_FAULTS_COPIES;
    if (more->hold_frames > fate->hold_frames)
        fate->hold_frames = more->hold_frames;
    if (more->hold_ns > fate->hold_ns)
        fate->hold_ns = more->hold_ns;
    fate->delay_ns += more->delay_ns;
}

static void judge(struct faulty *y, enum vb_fault_dir dir, uint32_t qpn, const uint8_t *head,
                  uint32_t len, struct vb_fault_fate *fate)
{
    struct vb_fault_fate more = {0};

    vb_faults_judge(y->faults, dir, head, len, fate);
    if (!(y->judged >> dir & 1))
        return;
    y->judge(y->judge_ctx, dir, qpn, head, len, &more);
    add_fate(fate, &more);
}

static void count_fate(struct faulty *y, const struct vb_fault_fate *fate)
{
    y->own.faults_dropped += fate->drop;
    if (fate->drop)
        return;
    y->own.faults_corrupted += fate->corrupt;
    y->own.faults_duplicated += fate->copies;
    y->own.faults_delayed += fate->delay_ns > 0;
    y->own.faults_reordered += fate->hold_frames > 0;
    y->own.faults_marked += fate->mark;
}

// Room among the held for a frame that has to wait. NULL: it goes on at once.
static struct vb_held *hold_back(struct faulty *y, struct vb_hold *hold,
                                 const struct vb_lane_key *key, const struct vb_fault_fate *fate,
                                 uint64_t now, uint32_t len)
{
    if (fate->hold_frames == 0 && fate->delay_ns == 0 && !vb_hold_is_waiting(hold, key))
        return NULL;
    uint64_t at_ns = now + fate->delay_ns + fate->hold_ns;
    struct vb_held *h = vb_hold_add(hold, key, at_ns, fate->hold_frames, len);
    if (!h) {
        y->own.faults_unheld++;
        return NULL;
    }
    h->copies = fate->copies;
    h->corrupt = fate->corrupt;
    return h;
}

// ---- sending

static bool is_tx_idle(const struct faulty *y)
{
    return y->out.taken == y->out.count && vb_hold_is_empty(&y->tx_hold);
}

// A port seals by the path's flow: one of another source port gives an ICRC that fits no
// identification. One that carries no ICRC goes by the mark.
static void spoil(struct vb_path *path)
{
    struct vb_path other;
    vb_path_init(&other, &path->local, &path->remote, path->src_port ^ 0x5555);
    path->icrc = other.icrc;
    path->spoiled = true;
}

// The next frame to the inner port; the caller fills in its bytes.
static uint8_t *append(struct faulty *y, const struct vb_path *path, uint32_t len, bool corrupt)
{
    struct vb_txq *out = &y->out;
    struct vb_path *own = &y->out_path[out->count];
    uint8_t *bytes = out->arena + out->used;
    *own = *path;
    if (corrupt)
        spoil(own);
    out->frame[out->count++] = (struct vb_tx_frame){.path = own, .offset = out->used, .len = len};
    out->used += len;
    return bytes;
}

static void append_held(struct faulty *y, struct vb_held *h)
{
    for (uint32_t i = 0; i <= h->copies; i++)
        memcpy(append(y, &h->path, h->len, h->corrupt), h->bytes, h->len);
    free(h);
}

// Judges the next frame of the queue and takes it.
static void take_tx(struct faulty *y, struct vb_txq *txq, uint64_t now)
{
    const struct vb_tx_frame *f = &txq->frame[txq->taken++];
    const uint8_t *head = txq->arena + f->offset;
    uint32_t head_len = f->body_len ? f->head : f->len;
    struct vb_lane_key key = key_of(head, head_len, &f->path->remote);
    struct vb_fault_fate fate;
    assert(f->len <= VB_FRAME_MAX);
    judge(y, VB_FAULT_TX, vb_tx_source(f->path, head, head_len), head, head_len, &fate);
    count_fate(y, &fate);
    if (fate.drop)
        return;
    struct vb_held *h = hold_back(y, &y->tx_hold, &key, &fate, now, f->len);
    if (h) {
        h->path = *f->path;
        vb_tx_copy(txq, f, h->bytes);
        return;
    }
    for (uint32_t i = 0; i <= fate.copies; i++)
        vb_tx_copy(txq, f, append(y, f->path, f->len, fate.corrupt));
    vb_hold_pass(&y->tx_hold, &key);
}

static bool has_tx_room(const struct vb_txq *out)
{
    return out->count + FRAMES_EACH <= VB_TX_FRAMES &&
           out->used + FRAMES_EACH * VB_FRAME_MAX <= VB_TX_BYTES;
}

// Fills the outgoing queue with what is due and then with what is new (NULL: nothing is).
static void fill(struct faulty *y, struct vb_txq *txq, uint64_t now)
{
    while (has_tx_room(&y->out)) {
        struct vb_held *h = vb_hold_next(&y->tx_hold, now);
        if (h)
            append_held(y, h);
        else if (txq && txq->taken < txq->count)
            take_tx(y, txq, now);
        else
            return;
    }
}

// Sends until there is nothing more or the inner port takes no more. What it left is ours to send
// again, so no frame is judged twice.
static void pump(struct faulty *y, struct vb_txq *txq, uint64_t now)
{
    struct vb_txq *out = &y->out;
    do {
        if (out->taken == out->count) {
            out->used = out->count = out->taken = 0;
            fill(y, txq, now);
        }
        if (out->count > 0)
            y->inner->ops->send(y->inner, out);
    } while (out->count > 0 && out->taken == out->count);
}

static void faulty_send(struct vb_port *port, struct vb_txq *txq)
{
    struct faulty *y = (struct faulty *)port;
    y->inner->trace = port->trace;
    if (!touches(y, VB_FAULT_TX) && is_tx_idle(y))
        y->inner->ops->send(y->inner, txq);
    else
        pump(y, txq, y->now_ns(y->ctx));
    publish_stats(y);
}

// ---- receiving

static void free_lent(struct faulty *y)
{
    for (struct vb_link *l; (l = vb_fifo_first(&y->lent));) {
        vb_link_remove(l);
        free(VB_CONTAINER_OF(l, struct vb_held, link));
    }
}

// Copies a frame; a peer may be writing to its data, but not to its head.
static void fill_held(struct vb_held *h, const struct vb_rx_frame *f)
{
    memcpy(h->bytes, f->data, f->len);
    memcpy(h->bytes, f->head, f->len < VB_FRAME_HEAD ? f->len : VB_FRAME_HEAD);
    h->to = f->to;
    h->ip_word = f->ip_word;
}

// Hands a held frame out until the next receive. Returns the frames made.
static uint32_t lend(struct faulty *y, struct vb_held *h, struct vb_rx_frame *frames)
{
    vb_fifo_push(&y->lent, &h->link);
    for (uint32_t i = 0; i <= h->copies; i++) {
        frames[i] = (struct vb_rx_frame){.data = h->bytes,
                                         .head = h->bytes,
                                         .len = h->len,
                                         .src = h->key.ip,
                                         .to = h->to,
                                         .ip_word = h->ip_word};
        frames[i].ce = h->ce;
    }
    return 1 + h->copies;
}

// Judges the next frame that came in. Returns the frames it becomes now.
static uint32_t take_rx(struct faulty *y, struct vb_rx_frame *frames, uint64_t now)
{
    const struct vb_rx_frame *f = &y->in[y->in_at++];
    uint32_t head_len = f->len < VB_FRAME_HEAD ? f->len : VB_FRAME_HEAD;
    struct vb_lane_key key = key_of(f->head, head_len, &f->src);
    struct vb_fault_fate fate;
    judge(y, VB_FAULT_RX, key.qpn, f->head, head_len, &fate);
    if (fate.corrupt && !fate.drop) {
        y->own.faults_corrupted++;
        y->own.rx_bad_icrc++;
        return 0;
    }
    count_fate(y, &fate);
    if (fate.drop)
        return 0;
    struct vb_held *h = hold_back(y, &y->rx_hold, &key, &fate, now, f->len);
    if (h) {
        fill_held(h, f);
        h->ce = f->ce || fate.mark;
        return 0;
    }
    for (uint32_t i = 0; i <= fate.copies; i++) {
        frames[i] = *f;
        frames[i].ce |= fate.mark;
    }
    vb_hold_pass(&y->rx_hold, &key);
    return 1 + fate.copies;
}

// What is due, then what the inner port gave us, as far as there is room.
static uint32_t sift(struct faulty *y, struct vb_rx_frame *frames, uint64_t now)
{
    uint32_t made = 0;
    while (made + FRAMES_EACH <= VB_PORT_RX_BATCH) {
        struct vb_held *h = vb_hold_next(&y->rx_hold, now);
        if (h)
            made += lend(y, h, frames + made);
        else if (y->in_at < y->in_count)
            made += take_rx(y, frames + made, now);
        else
            break;
    }
    return made;
}

static bool is_rx_idle(const struct faulty *y)
{
    return y->in_at == y->in_count && vb_hold_is_empty(&y->rx_hold);
}

static uint32_t faulty_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct faulty *y = (struct faulty *)port;
    bool straight = !touches(y, VB_FAULT_RX) && is_rx_idle(y);
    uint64_t now = straight && is_tx_idle(y) ? 0 : y->now_ns(y->ctx);
    uint32_t made;
    y->inner->trace = port->trace;
    free_lent(y);
    if (!is_tx_idle(y))
        pump(y, NULL, now);
    if (straight) {
        made = y->inner->ops->receive(y->inner, frames);
    } else {
        if (y->in_at == y->in_count) {
            y->in_at = 0;
            y->in_count = y->inner->ops->receive(y->inner, y->in);
        }
        made = sift(y, frames, now);
    }
    publish_stats(y);
    return made;
}

// ---- the rest

uint64_t vb_faulty_deadline(const struct vb_port *port)
{
    const struct faulty *y = (const struct faulty *)port;
    if (y->out.taken < y->out.count || y->in_at < y->in_count)
        return 0;
    uint64_t tx = vb_hold_deadline(&y->tx_hold), rx = vb_hold_deadline(&y->rx_hold);
    return tx < rx ? tx : rx;
}

static int faulty_sleep(struct vb_port *port)
{
    struct faulty *y = (struct faulty *)port;
    uint64_t deadline = vb_faulty_deadline(port);
    if (deadline != UINT64_MAX && deadline <= y->now_ns(y->ctx))
        return -EAGAIN;
    return y->inner->ops->sleep(y->inner);
}

// The inner port's; what is held has vb_faulty_deadline().
static uint64_t faulty_inner_deadline(const struct vb_port *port)
{
    const struct vb_port *inner = ((const struct faulty *)port)->inner;
    return inner->ops->deadline ? inner->ops->deadline(inner) : UINT64_MAX;
}

static int faulty_serve(struct vb_port *port, uint32_t space, uint16_t number, bool serves)
{
    struct vb_port *inner = ((struct faulty *)port)->inner;
    return inner->ops->serve ? inner->ops->serve(inner, space, number, serves) : 0;
}

static void faulty_manage(struct vb_port *port, bool manages)
{
    struct vb_port *inner = ((struct faulty *)port)->inner;
    if (inner->ops->manage)
        inner->ops->manage(inner, manages);
}

static struct vb_port *faulty_udp(struct vb_port *port)
{
    struct vb_port *inner = ((struct faulty *)port)->inner;
    return inner->ops->udp ? inner->ops->udp(inner) : NULL;
}

static void destroy(struct faulty *y)
{
    vb_hold_fini(&y->tx_hold);
    vb_hold_fini(&y->rx_hold);
    free(y->out.arena);
    free(y);
}

static void faulty_close(struct vb_port *port)
{
    struct faulty *y = (struct faulty *)port;
    free_lent(y);
    y->inner->ops->close(y->inner);
    vb_faults_free(y->faults);
    destroy(y);
}

static int faulty_join(struct vb_port *port, const struct vb_ip *group)
{
    struct vb_port *inner = ((struct faulty *)port)->inner;
    return inner->ops->join ? inner->ops->join(inner, group) : -EOPNOTSUPP;
}

static void faulty_leave(struct vb_port *port, const struct vb_ip *group)
{
    struct vb_port *inner = ((struct faulty *)port)->inner;
    inner->ops->leave(inner, group);
}

static void faulty_abandon(struct vb_port *port)
{
    struct faulty *y = (struct faulty *)port;
    free_lent(y);
    y->inner->ops->abandon(y->inner);
    vb_faults_free(y->faults);
    destroy(y);
}

static const struct vb_port_ops ops = {
    .send = faulty_send,
    .receive = faulty_receive,
    .sleep = faulty_sleep,
    .close = faulty_close,
    .abandon = faulty_abandon,
    .join = faulty_join,
    .leave = faulty_leave,
    .deadline = faulty_inner_deadline,
    .serve = faulty_serve,
    .manage = faulty_manage,
    .udp = faulty_udp,
};

// Around a port without descriptors.
static const struct vb_port_ops sleepless_ops = {
    .send = faulty_send,
    .receive = faulty_receive,
    .close = faulty_close,
};

struct vb_port *vb_faulty_wrap(struct vb_port *inner, struct vb_faults *faults,
                               vb_faulty_clock *now_ns, void *ctx)
{
    struct vb_faults *none = NULL;
    if (!faults && vb_faults_parse("off", &none, NULL) < 0)
        return NULL;
    struct faulty *y = calloc(1, sizeof *y);
    if (!y) {
        vb_faults_free(none);
        return NULL;
    }
    bool tx = vb_hold_init(&y->tx_hold), rx = vb_hold_init(&y->rx_hold);
    y->out.arena = malloc(VB_TX_BYTES);
    if (!tx || !rx || !y->out.arena) {
        destroy(y);
        vb_faults_free(none);
        return NULL;
    }
    vb_fifo_init(&y->lent);
    y->inner = inner;
    y->faults = faults ? faults : none;
    y->now_ns = now_ns;
    y->ctx = ctx;
    y->port.ops = inner->ops->sleep ? &ops : &sleepless_ops;
    y->port.local = inner->local;
    y->port.src_port = inner->src_port;
    y->port.trace = inner->trace;
    y->port.unsealed = inner->unsealed;
    y->port.buffer_bytes = inner->buffer_bytes;
    y->port.qpn_base = inner->qpn_base;
    y->port.qpn_count = inner->qpn_count;
    publish_stats(y);
    return &y->port;
}

struct vb_port *vb_faulty_unwrap(struct vb_port *port)
{
    struct faulty *y = (struct faulty *)port;
    struct vb_port *inner = y->inner;
    vb_faults_free(y->faults);
    destroy(y);
    return inner;
}

void vb_faulty_judge_by(struct vb_port *port, uint32_t dirs, vb_faulty_judge *asked, void *ctx)
{
    struct faulty *y = (struct faulty *)port;

    y->judged = asked ? dirs : 0;
    y->judge = asked;
    y->judge_ctx = ctx;
}

int vb_faulty_set(struct vb_port *port, const char *text, char *error_text)
{
    struct vb_faults *faults;
    int error = vb_faults_parse(text, &faults, error_text);
    if (error < 0)
        return error;
    vb_faults_free(vb_faulty_exchange(port, faults));
    return 0;
}

struct vb_faults *vb_faulty_exchange(struct vb_port *port, struct vb_faults *faults)
{
    struct faulty *y = (struct faulty *)port;
    struct vb_faults *old = y->faults;
    y->faults = faults;
    return old;
}

struct vb_faults *vb_faulty_rules(struct vb_port *port)
{
    return ((struct faulty *)port)->faults;
}
