// SPDX-License-Identifier: Apache-2.0
// A device with two queue pairs for fuzzers.
#include "rig.h"

#include "base/serial.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 200000 // of one poll: it must end, whatever was posted or received
};

void rig_require(bool holds)
{
    if (!holds)
        abort();
}

// ---- choices

bool rig_more(const struct rig *r)
{
    return r->in.left > 0;
}

uint8_t rig_u8(struct rig *r)
{
    if (r->in.left == 0)
        return 0;
    r->in.left--;
    return *r->in.data++;
}

uint16_t rig_u16(struct rig *r)
{
    uint16_t high = rig_u8(r);
    return (uint16_t)(high << 8 | rig_u8(r));
}

uint32_t rig_u32(struct rig *r)
{
    uint32_t high = rig_u16(r);
    return high << 16 | rig_u16(r);
}

uint64_t rig_addr(struct rig *r, uint32_t *key)
{
    uint8_t choice = rig_u8(r);
    const struct rig_region *g = &r->region[choice % RIG_REGIONS];
    *key = choice & 0x80 ? rig_u32(r) : g->key;
    return (uintptr_t)g->base + rig_u16(r) % (RIG_REGION_BYTES + 64) - (choice & 0x40 ? 64 : 0);
}

// ---- memory

void rig_register(struct rig *r, uint32_t region)
{
    static const uint32_t rights[RIG_REGIONS] = {VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ,
                                                 VB_REMOTE_READ, VB_LOCAL_WRITE};
    struct rig_region *g = &r->region[region];
    if (g->base)
        return;
    g->base = calloc(1, RIG_REGION_BYTES);
    rig_require(g->base != NULL);
    const struct vb_mkey_attr attr = {.pd = r->pd,
                                      .access = rights[region],
                                      .start = (uintptr_t)g->base,
                                      .len = RIG_REGION_BYTES,
                                      .base = g->base};
    rig_require(vb_dev_mkey_create(r->dev, &attr, &g->key) == 0);
}

// The memory goes with the key: whatever touches it afterwards is caught.
void rig_unregister(struct rig *r, uint32_t region)
{
    struct rig_region *g = &r->region[region];
    if (!g->base)
        return;
    rig_require(vb_dev_mkey_destroy(r->dev, g->key) == 0);
    free(g->base);
    g->base = NULL;
}

static bool is_registered(const struct rig *r, const uint8_t *at, uint32_t len)
{
    for (uint32_t i = 0; i < RIG_REGIONS; i++) {
        const uint8_t *base = r->region[i].base;
        if (base && at >= base && at + len <= base + RIG_REGION_BYTES)
            return true;
    }
    return false;
}

static void observe(void *ctx, const struct vb_step *step)
{
    struct rig *r = ctx;
    rig_require(step->kind <= VB_STEP_TIMER);
    for (uint32_t i = 0; i < step->touches; i++)
        rig_require(is_registered(r, step->touch[i].addr, step->touch[i].len));
    r->steps++;
}

// ---- the device

static void create_qp(struct rig *r, struct rig_qp *q)
{
    static const struct vb_qp_opts opts = {
        .send_depth = 16, .recv_depth = 8, .send_sge = 4, .recv_sge = 4, .inline_bytes = 120};
    rig_require(vb_driver_qp_init(&q->driver, &opts, 0xfff8, 0xfffc) == 0);
    const struct vb_qpc_attr attr = {.pd = r->pd,
                                     .send_cqn = r->cqn,
                                     .recv_cqn = r->cqn,
                                     .sq_ring = q->driver.sq.ring,
                                     .sq_blocks = q->driver.sq.blocks,
                                     .rq_ring = q->driver.rq.ring,
                                     .rq_entries = q->driver.rq.entries,
                                     .rq_stride_bytes = q->driver.rq.stride,
                                     .dbrec = q->driver.dbrec,
                                     .sq_start = 0xfff8,
                                     .rq_start = 0xfffc,
                                     .no_wqe_checks = !r->wqe_checks};
    rig_require(vb_dev_qp_create(r->dev, &attr, &q->driver.qpn) == 0);
    q->driver.doorbells = vb_dev_doorbells(r->dev);
    q->ctx = vb_dev_qp(r->dev, q->driver.qpn);
}

// One device serves all inputs, because making one takes longer than most inputs do. It draws the
// same numbers and keys for each, so that a finding replays alone.
static struct vb_dev *take_device(void)
{
    static struct vb_dev *dev;
    if (!dev)
        dev = vb_dev_create(&(struct vb_dev_opts){.window_bytes = 16384});
    rig_require(dev != NULL && dev->qp_count == 0 && dev->mkeys.count == 0);
    dev->prng.state = 1;
    dev->qp_hint = 100;
    memset(&dev->qp_generation[100], 0, RIG_QPS * sizeof dev->qp_generation[0]);
    return dev;
}

void rig_open(struct rig *r, const struct rig_opts *opts, const uint8_t *data, size_t size)
{
    memset(r, 0, sizeof *r);
    r->in = (struct rig_input){data, size};
    uint8_t flags = rig_u8(r);
    r->observed = !(flags & 1);
    r->mtu = 256u << (flags >> 1) % 5;
    r->wqe_checks = !opts->no_wqe_checks;
    r->orderly = opts->orderly;
    r->now_ns = 1000;
    r->local = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    r->remote = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, 2}};
    r->dev = take_device();
    r->pu = vb_dev_pu(r->dev);
    vb_pu_observe(r->pu, r->observed ? observe : NULL, r);
    rig_require(vb_dev_pd_create(r->dev, &r->pd) == 0);
    rig_require(vb_driver_cq_init(&r->cq, opts->cq_entries, 0xfffffe) == 0);
    const struct vb_cqc_attr attr = {
        .ring = r->cq.ring, .entries = r->cq.entries, .dbrec = r->cq.dbrec, .start = 0xfffffe};
    rig_require(vb_dev_cq_create(r->dev, &attr, &r->cqn) == 0);
    for (uint32_t i = 0; i < RIG_REGIONS; i++)
        rig_register(r, i);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        create_qp(r, &r->qp[i]);
}

static void drop_batch(struct rig *r)
{
    for (uint32_t i = 0; i < r->batched; i++)
        free((void *)(uintptr_t)r->batch[i].data);
    r->batched = 0;
}

void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < RIG_QPS; i++) {
        rig_require(vb_dev_qp_destroy(r->dev, r->qp[i].driver.qpn) == 0);
        vb_driver_qp_fini(&r->qp[i].driver);
    }
    for (uint32_t i = 0; i < RIG_REGIONS; i++)
        rig_unregister(r, i);
    rig_require(vb_dev_cq_destroy(r->dev, r->cqn) == 0);
    rig_require(vb_dev_pd_destroy(r->dev, r->pd) == 0);
    vb_pu_feed(r->pu, NULL, 0);
    rig_require(vb_pu_deadline(r->pu) == UINT64_MAX);
    vb_driver_cq_fini(&r->cq);
    drop_batch(r);
}

// ---- states

void rig_modify(struct rig *r, struct rig_qp *q, enum vb_qp_state state)
{
    const struct vb_qpc_mods m = {.state = state,
                                  .access = VB_REMOTE_WRITE | VB_REMOTE_READ,
                                  .dest_qpn = 0x77,
                                  .rq_psn = 0xfffffa,
                                  .sq_psn = 0xfffffa,
                                  .mtu_bytes = r->mtu,
                                  .max_rd_atomic = 2,
                                  .max_dest_rd_atomic = 4,
                                  .min_rnr_timer = 1,
                                  .timeout = 4,
                                  .retry_cnt = 3,
                                  .rnr_retry = 2,
                                  .local = r->local,
                                  .remote = r->remote};
    // The driver forgets with the device; completions of the former life are taken before.
    if (state == VB_QPS_RESET)
        rig_complete(r);
    if (vb_dev_qp_modify(r->dev, q->driver.qpn, &m) != 0 || state != VB_QPS_RESET)
        return;
    vb_driver_qp_reset(&q->driver);
    q->send_done = q->send_id;
    q->recv_done = q->recv_id;
}

void rig_connect(struct rig *r, struct rig_qp *q)
{
    for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++)
        rig_modify(r, q, s);
}

// ---- frames

void rig_frame(struct rig *r, const uint8_t *bytes, uint32_t len, bool stranger)
{
    if (r->batched == RIG_BATCH || r->fed)
        rig_run(r);
    uint8_t *copy = malloc(len ? len : 1);
    rig_require(copy != NULL);
    memcpy(copy, bytes, len);
    r->batch[r->batched++] = (struct vb_rx_frame){
        .data = copy, .head = copy, .len = len, .src = stranger ? r->local : r->remote};
}

void rig_packet(struct rig *r, const struct vb_packet *pkt, const uint8_t *payload)
{
    uint8_t frame[VB_HEADERS_MAX + 2 * VB_MTU_MAX];
    size_t len = vb_packet_encode(frame, pkt);
    memcpy(frame + len, payload, pkt->payload_len);
    len += pkt->payload_len;
    memset(frame + len, 0, vb_packet_pad(pkt->payload_len) + VB_ICRC_BYTES);
    len += vb_packet_pad(pkt->payload_len) + VB_ICRC_BYTES;
    rig_frame(r, frame, (uint32_t)len, false);
}

// ---- running

static void check_sent(const struct rig *r, const struct vb_txq *q, const struct vb_tx_frame *t)
{
    struct vb_packet pkt;
    uint8_t bytes[VB_FRAME_MAX];
    rig_require(t->offset + t->len - t->body_len <= q->used && t->len <= VB_FRAME_MAX);
    vb_tx_copy(q, t, bytes);
    rig_require(vb_packet_decode(bytes, t->len, &pkt) == VB_DECODE_OK);
    rig_require(pkt.dest_qpn == 0x77 && pkt.payload_len <= r->mtu);
    rig_require(vb_ip_equal(&t->path->remote, &r->remote));
}

static void check_qp(const struct vb_qpc *qp)
{
    const struct vb_requester *r = &qp->req;
    const struct vb_responder *p = &qp->resp;

    rig_require(p->job_new <= p->job_count && p->job_count <= VB_READ_JOBS);
    rig_require(qp->sq.fetched <= qp->sq.end && qp->sq.end - qp->sq.fetched <= qp->sq.blocks);
    rig_require(qp->rq.taken <= qp->rq.end && qp->rq.end - qp->rq.taken <= qp->rq.entries);
    if (qp->state != VB_QPS_RTS)
        return;
    rig_require(vb_psn_diff(r->send_psn, r->una_psn) >= 0);
    rig_require(vb_psn_diff(r->max_psn, r->send_psn) >= 0);
    rig_require(r->cost_sent >= r->cost_acked && r->reads_out <= qp->max_rd_atomic);
    // What waits for an answer has a timer, so that it cannot wait for ever; or for the window that
    // others have filled, and those have one.
    rig_require(r->una_psn == r->max_psn || r->timer_kind != VB_REQ_TIMER_NONE ||
                vb_link_queued(&qp->wait));
    rig_require((qp->peer->open == 0) == !vb_fifo_empty(&qp->peer->waiting));
    rig_require(r->timer_kind == VB_REQ_TIMER_NONE || r->timer.slot != 0);
}

static void poll(struct rig *r)
{
    if (!r->observed) {
        vb_pu_poll(r->pu, r->now_ns);
        return;
    }
    uint32_t steps = 0;
    while (vb_pu_step(r->pu, r->now_ns).kind != VB_STEP_NONE)
        rig_require(++steps < STEPS_MAX);
}

static void hand_over(struct rig *r)
{
    if (!r->fed)
        vb_pu_feed(r->pu, r->batch, r->batched);
    r->fed = true;
}

static void take_back(struct rig *r)
{
    if (vb_pu_frames_left(r->pu) > 0)
        return;
    drop_batch(r);
    r->fed = false;
}

void rig_steps(struct rig *r, uint32_t steps)
{
    hand_over(r);
    while (steps-- > 0 && vb_pu_step(r->pu, r->now_ns).kind != VB_STEP_NONE)
        ;
    take_back(r);
}

void rig_run(struct rig *r)
{
    struct vb_txq *q = vb_pu_txq(r->pu);
    bool again;

    hand_over(r);
    do {
        poll(r);
        again = vb_pu_wants_tx(r->pu);
        for (; q->taken < q->count; q->taken++)
            check_sent(r, q, &q->frame[q->taken]);
        vb_pu_tx_release(r->pu);
    } while (again);
    rig_require(vb_pu_frames_left(r->pu) == 0);
    rig_require(vb_pu_deadline(r->pu) > r->now_ns);
    take_back(r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        check_qp(r->qp[i].ctx);
}

// ---- completions

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct rig *r = ctx;
    for (uint32_t i = 0; i < RIG_QPS; i++)
        if (r->qp[i].driver.qpn == qpn)
            return &r->qp[i].driver;
    return NULL;
}

void rig_complete(struct rig *r)
{
    struct vb_wc wc;
    while (vb_driver_poll(&r->cq, find, r, &wc, 1) > 0) {
        struct rig_qp *q = wc.qpn == r->qp[0].driver.qpn ? &r->qp[0] : &r->qp[1];
        if (!r->orderly)
            continue;
        rig_require(wc.qpn == q->driver.qpn);
        if (wc.opcode == VB_WC_RECV || wc.opcode == VB_WC_RECV_WRITE) {
            rig_require(wc.wr_id == q->recv_done && q->recv_done < q->recv_id);
            q->recv_done++;
        } else { // those without a completion of their own are passed over
            rig_require(wc.wr_id >= q->send_done && wc.wr_id < q->send_id);
            q->send_done = wc.wr_id + 1;
        }
    }
}
