// SPDX-License-Identifier: Apache-2.0
// Tenants of one NIC: the NIC, its peer, the wire between them, and time.
#include "sim/tenant_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CQ_ENTRIES = 4096,
    WIRE_NS = 2000, // one way
    POLL_NS = 150,
    PIECE_NS = 8, // of a list
    BYTES_PER_NS = 16,
    LOOP_NS = 15 + 20 + 25 + PIECE_NS, // an entry of a loop: fetched, executed, completed
    FETCH_DEPTH = 16,
    LIST_BLOCKS = 5,                          // of an entry with as many pieces as there can be
    ENTRY_BLOCKS = 16,                        // at most
    BLOCK_NS = VB_WQEBB_BYTES / BYTES_PER_NS, // of an entry, after the first
    // What docs/hull.md promises of turns and frames; not taken from what is judged by it.
    UNITS_OF_FRAME = 8 + VB_TENANT_MTU / 256 + VB_MAX_SGE - 1,
    LINE_FRAMES = 156 / UNITS_OF_FRAME,
    EARLY_FRAMES = 39 / UNITS_OF_FRAME,
    POLL_UNITS = 32,
    SLICE_UNITS = 64,
    ENTRY_MAX = 8 * 1024,
    RIGHTS = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC,
};

static const struct vb_ip here = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                          there = {{[10] = 0xff, 0xff, 10, 0, 0, 2}};

// ---- set-up

static int make_memory(struct vb_dev *dev, uint32_t *pd, uint8_t **memory, uint32_t *key)
{
    int err = vb_dev_pd_create(dev, pd);

    *memory = calloc(1, VB_TENANT_MEMORY);
    if (!*memory)
        return -ENOMEM;
    const struct vb_mkey_attr attr = {.pd = *pd,
                                      .access = RIGHTS,
                                      .start = VB_TENANT_PLACE,
                                      .len = VB_TENANT_MEMORY,
                                      .base = *memory};
    return err ? err : vb_dev_mkey_create(dev, &attr, key);
}

static int make_cq(struct vb_dev *dev, struct vb_driver_cq *cq, uint32_t *cqn, bool endless)
{
    int err = vb_driver_cq_init(cq, CQ_ENTRIES, 0);

    return err ? err
               : vb_dev_cq_create(dev,
                                  &(struct vb_cqc_attr){.ring = cq->ring,
                                                        .entries = cq->entries,
                                                        .dbrec = cq->dbrec,
                                                        .ignore_overrun = endless},
                                  cqn);
}

static int make_qp(struct vb_dev *dev, struct vb_driver_qp *qp, const struct vb_qp_opts *opts,
                   struct vb_qpc_attr attr)
{
    int err = vb_driver_qp_init(qp, opts, 0, 0);

    if (err)
        return err;
    attr.recv_cqn = attr.send_cqn;
    attr.sq_ring = qp->sq.ring;
    attr.sq_blocks = qp->sq.blocks;
    attr.dbrec = qp->dbrec;
    qp->doorbells = vb_dev_doorbells(dev);
    return vb_dev_qp_create(dev, &attr, &qp->qpn);
}

int vb_tenant_connect(struct vb_tenant *t, uint32_t i)
{
    struct vb_tenantworld *w = t->world;
    bool loops = vb_tenant_loops(t->work.kind, i);
    struct vb_qpc_mods m = {.access = VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC,
                            .dest_qpn = loops ? t->qp[i].qpn : t->far[i].qpn,
                            .mtu_bytes = VB_TENANT_MTU,
                            .max_rd_atomic = 16,
                            .max_dest_rd_atomic = 16,
                            .min_rnr_timer = 12,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .local = here,
                            .remote = loops ? here : there,
                            .src_port = 4791};
    int err = 0;

    for (m.state = VB_QPS_RESET; m.state <= VB_QPS_RTS && !err; m.state++)
        err = vb_dev_qp_modify(w->dev, t->qp[i].qpn, &m);
    m.dest_qpn = t->qp[i].qpn;
    m.local = there;
    m.remote = here;
    for (m.state = VB_QPS_RESET; !loops && m.state <= VB_QPS_RTS && !err; m.state++)
        err = vb_dev_qp_modify(w->far_dev, t->far[i].qpn, &m);
    return err;
}

static int make_queues(struct vb_tenant *t)
{
    struct vb_tenantworld *w = t->world;
    int err = 0;

    for (uint32_t i = 0; i < t->work.qps && !err; i++) {
        bool loops = vb_tenant_loops(t->work.kind, i);
        const struct vb_qp_opts opts = vb_tenant_queue(t->work.kind, i);
        err = make_qp(w->dev, &t->qp[i], &opts,
                      (struct vb_qpc_attr){.pd = t->pd,
                                           .send_cqn = t->cqn,
                                           .share = t->share,
                                           .no_wqe_checks = loops,
                                           .cross_channel = loops,
                                           .managed_send = loops});
        if (!err && !loops)
            err = make_qp(w->far_dev, &t->far[i], &(struct vb_qp_opts){.send_depth = 1},
                          (struct vb_qpc_attr){.pd = t->far_pd, .send_cqn = w->far_cqn});
        if (!err)
            err = vb_tenant_connect(t, i);
        t->work.qp[i] = &t->qp[i];
        w->of_index[t->qp[i].qpn & (VB_DOORBELL_QPS - 1)] = t;
    }
    return err;
}

static int make_tenant(struct vb_tenantworld *w, uint32_t i)
{
    struct vb_tenant *t = &w->tenant[i];
    const struct vb_tenant_opts *o = &w->opts;
    bool endless = o->kind[i] > VB_TENANT_BUSY;

    t->world = w;
    t->work.kind = o->kind[i];
    t->work.cq = &t->cq;
    t->weight = o->weight[i] ? o->weight[i] : VB_SHARE_WEIGHT;
    t->work.prng = (struct vb_prng){o->seed * 0x9e3779b97f4a7c15u + i};
    t->work.qps = vb_tenant_queues(o->kind[i]);
    vb_hist_init(&t->service);
    vb_hist_init(&t->turns);
    vb_hist_init(&t->whole);
    int err =
        o->no_shares
            ? 0
            : vb_dev_share_create(w->dev, &(struct vb_share_attr){.weight = t->weight}, &t->share);
    if (!err)
        err = make_memory(w->dev, &t->pd, &t->memory, &t->work.key);
    if (!err)
        err = make_memory(w->far_dev, &t->far_pd, &t->far_memory, &t->work.far_key);
    if (!err)
        err = make_cq(w->dev, &t->cq, &t->cqn, endless);
    if (!err)
        err = make_queues(t);
    if (!err)
        vb_tenant_start(t);
    return err;
}

static const uint64_t step_ns[] = {
    [VB_STEP_FRAME_IN] = 80, [VB_STEP_FETCH] = 15, [VB_STEP_EXEC] = 20, [VB_STEP_FRAME_OUT] = 130,
    [VB_STEP_COMPLETE] = 25, [VB_STEP_TIMER] = 40, [VB_STEP_DROP] = 20,
    [VB_STEP_TURN] = 60, // with its bell, if only for nothing
};

static uint64_t price(const struct vb_step *s)
{
    bool moves = s->kind == VB_STEP_FRAME_IN || s->kind == VB_STEP_FRAME_OUT;

    return step_ns[s->kind] + s->touches * PIECE_NS +
           (s->blocks > 1 ? (s->blocks - 1) * BLOCK_NS : 0) +
           (moves || s->touches ? s->bytes / BYTES_PER_NS : 0);
}

// A turn of so many packets, or of as many entries of a loop, of which the last moves much. Before
// the packets one long entry was fetched, and others of one block.
static uint64_t longest_turn_ns(uint32_t length)
{
    uint64_t lists = VB_MAX_SGE * PIECE_NS;
    uint64_t frame = step_ns[VB_STEP_FETCH] + step_ns[VB_STEP_EXEC] + step_ns[VB_STEP_FRAME_OUT] +
                     lists + VB_TENANT_MTU / BYTES_PER_NS;
    uint64_t entry = LOOP_NS + 2 * lists, more = ENTRY_MAX / BYTES_PER_NS;
    uint64_t packets = length * frame + (ENTRY_BLOCKS - 1) * BLOCK_NS;
    uint64_t entries = length * entry + more;

    return step_ns[VB_STEP_TURN] + FETCH_DEPTH * step_ns[VB_STEP_FETCH] +
           (packets > entries ? packets : entries);
}

static uint64_t early_turn_ns(void)
{
    return longest_turn_ns(EARLY_FRAMES) + POLL_NS;
}

uint64_t vb_tenant_line_ns(uint32_t others, uint64_t frames_ns, uint64_t frames_units)
{
    return frames_ns + frames_units / SLICE_UNITS * others * early_turn_ns();
}

uint64_t vb_tenant_bound_ns(uint32_t others)
{
    uint64_t lists = VB_MAX_SGE * PIECE_NS;
    uint64_t frame_in = step_ns[VB_STEP_FRAME_IN] + step_ns[VB_STEP_COMPLETE];
    // The dearest unit of a turn is one of a loop's list: six for an entry in five blocks. Of
    // frames it is one of a short frame: eight for each.
    uint64_t turn_unit =
        (LOOP_NS + 2 * lists + (LIST_BLOCKS - 1) * BLOCK_NS) / (LIST_BLOCKS + 1) + 1;
    uint64_t frame_unit = (frame_in + PIECE_NS) / 8 + 1;
    uint64_t poll = POLL_NS + (POLL_UNITS - 1) * turn_unit + longest_turn_ns(LINE_FRAMES);
    uint64_t slice =
        POLL_NS + (SLICE_UNITS - 1) * frame_unit + frame_in + lists + VB_TENANT_MTU / BYTES_PER_NS;

    return 2 * (poll + slice + others * early_turn_ns());
}

static bool loops(const struct vb_tenant *t, uint32_t qpn)
{
    for (uint32_t i = 0; t && i < t->work.qps; i++)
        if (t->qp[i].qpn == qpn)
            return vb_tenant_loops(t->work.kind, i);
    return false;
}

// What a step of the tenant costs at least, by docs/hull.md: less makes a round of others longer.
static uint64_t units_of(const struct vb_tenant *t, const struct vb_step *s)
{
    switch (s->kind) {
    case VB_STEP_FRAME_IN:
    case VB_STEP_FRAME_OUT: return 8 + s->bytes / 256;
    case VB_STEP_EXEC: return loops(t, s->qpn) ? 1 + s->bytes / 256 : 0;
    case VB_STEP_FETCH:
    case VB_STEP_COMPLETE: return 1;
    case VB_STEP_TURN: return 4;
    default: return 0;
    }
}

static void observe(void *ctx, const struct vb_step *step)
{
    struct vb_tenantworld *w = ctx;
    struct vb_tenant *t = w->of_index[step->qpn & (VB_DOORBELL_QPS - 1)];

    if (step->kind == VB_STEP_NONE)
        return;
    w->steps += step->kind != VB_STEP_TURN;
    w->spent_ns += price(step);
    if (t != &w->tenant[0])
        w->others_units += units_of(t, step);
    if (step->kind == VB_STEP_FRAME_IN) {
        w->frames_ns += price(step);
        w->frames_units += 8 + step->bytes / 256;
    }
    vb_digest_add(&w->digest, (uint64_t)step->kind << 32 | step->qpn);
    if (t)
        vb_tenant_saw(t, step);
    if (w->opts.watches)
        vb_tenant_watch(w, t, step);
}

struct vb_tenantworld *vb_tenantworld_create(const struct vb_tenant_opts *opts)
{
    struct vb_tenantworld *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->opts = *opts;
    w->flight = calloc(VB_TENANT_FLIGHTS, sizeof *w->flight);
    w->dev = vb_dev_create(&(struct vb_dev_opts){.seed = opts->seed});
    w->far_dev = vb_dev_create(&(struct vb_dev_opts){.seed = opts->seed + 1});
    int err = w->flight && w->dev && w->far_dev ? 0 : -ENOMEM;
    if (!err)
        err = make_cq(w->far_dev, &w->far_cq, &w->far_cqn, true);
    for (uint32_t i = 0; i < opts->tenants && !err; i++)
        err = make_tenant(w, i);
    if (err) {
        vb_tenantworld_destroy(w);
        return NULL;
    }
    vb_pu_observe(vb_dev_pu(w->dev), observe, w);
    return w;
}

void vb_tenantworld_destroy(struct vb_tenantworld *w)
{
    if (w->dev)
        vb_dev_destroy(w->dev);
    if (w->far_dev)
        vb_dev_destroy(w->far_dev);
    for (uint32_t i = 0; i < w->opts.tenants; i++) {
        struct vb_tenant *t = &w->tenant[i];
        for (uint32_t q = 0; q < t->work.qps; q++) {
            vb_driver_qp_fini(&t->qp[q]);
            vb_driver_qp_fini(&t->far[q]);
        }
        vb_driver_cq_fini(&t->cq);
        free(t->memory);
        free(t->far_memory);
    }
    vb_driver_cq_fini(&w->far_cq);
    free(w->flight);
    free(w);
}

// ---- the wire

static void fly_back(struct vb_tenantworld *w, const struct vb_txq *q, uint64_t at_ns)
{
    for (uint32_t i = 0; i < q->count; i++) {
        if (w->flight_tail - w->flight_head == VB_TENANT_FLIGHTS)
            return; // lost
        struct vb_tenant_flight *f = &w->flight[w->flight_tail++ % VB_TENANT_FLIGHTS];
        f->at_ns = at_ns;
        f->len = q->frame[i].len;
        memcpy(f->bytes, q->arena + q->frame[i].offset, f->len);
    }
}

// The peer answers as soon as it hears.
static void fly_out(struct vb_tenantworld *w)
{
    struct vb_rx_frame frames[VB_TX_FRAMES];
    struct vb_pu *far = vb_dev_pu(w->far_dev);
    struct vb_txq *q = vb_pu_txq(vb_dev_pu(w->dev)), *back = vb_pu_txq(far);
    uint32_t n = 0;

    for (; q->taken < q->count; q->taken++) {
        const uint8_t *bytes = q->arena + q->frame[q->taken].offset;
        frames[n++] = (struct vb_rx_frame){
            .data = bytes, .head = bytes, .len = q->frame[q->taken].len, .src = here};
    }
    vb_pu_feed(far, frames, n);
    do {
        vb_pu_poll(far, w->now_ns + WIRE_NS);
        fly_back(w, back, w->now_ns + 2 * WIRE_NS);
        back->taken = back->count;
        vb_pu_tx_release(far);
    } while (vb_pu_wants_tx(far) || vb_pu_frames_left(far) > 0);
    vb_pu_tx_release(vb_dev_pu(w->dev));
}

// Whose answer it is hears of it only when the NIC has judged it; the time is noted here.
static uint32_t land(struct vb_tenantworld *w, struct vb_rx_frame *frames)
{
    uint32_t n = 0;

    while (n < VB_TENANT_RX && w->flight_head + n < w->flight_tail) {
        const struct vb_tenant_flight *f = &w->flight[(w->flight_head + n) % VB_TENANT_FLIGHTS];
        if (f->at_ns > w->now_ns)
            break;
        uint32_t index = ((uint32_t)f->bytes[6] << 8 | f->bytes[7]) & (VB_DOORBELL_QPS - 1);
        struct vb_tenant *t = w->of_index[index];
        if (t && t->came_ns != f->at_ns) {
            t->came_ns = f->at_ns;
            t->frames_ns = w->frames_ns;
            t->frames_units = w->frames_units;
        }
        frames[n++] =
            (struct vb_rx_frame){.data = f->bytes, .head = f->bytes, .len = f->len, .src = there};
    }
    return n;
}

// ---- the run

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// When something happens that the NIC does not do by itself.
static uint64_t next_event(const struct vb_tenantworld *w)
{
    uint64_t at = vb_pu_deadline(vb_dev_pu(w->dev));

    if (w->flight_head < w->flight_tail)
        at = earlier(at, w->flight[w->flight_head % VB_TENANT_FLIGHTS].at_ns);
    for (uint32_t i = 0; i < w->opts.tenants; i++)
        at = earlier(at, w->tenant[i].act_at_ns);
    return at;
}

static void turn(struct vb_tenantworld *w)
{
    struct vb_rx_frame frames[VB_TENANT_RX];
    struct vb_pu *pu = vb_dev_pu(w->dev);
    struct vb_event event;

    for (uint32_t i = 0; i < w->opts.tenants; i++)
        if (w->tenant[i].act_at_ns <= w->now_ns)
            vb_tenant_act(&w->tenant[i]);
    uint32_t landed = land(w, frames);
    vb_pu_feed(pu, frames, landed);
    w->spent_ns = 0;
    uint32_t steps = vb_pu_poll(pu, w->now_ns);
    w->flight_head += landed - vb_pu_frames_left(pu);
    while (vb_pu_take_event(pu, &event))
        ;
    w->now_ns += w->spent_ns + POLL_NS;
    w->spent_ns = 0;
    fly_out(w);
    uint64_t at = next_event(w);
    if (steps > 0 || vb_pu_has_more(pu) || vb_doorbells_pending(vb_dev_doorbells(w->dev)))
        return;
    vb_tenant_idle(&w->tenant[0]);
    if (at > w->now_ns)
        w->now_ns = at;
}

void vb_tenantworld_run(struct vb_tenantworld *w)
{
    while (w->now_ns < w->opts.duration_ns && !w->violated)
        turn(w);
    if (w->opts.watches && !w->violated)
        vb_tenant_audit(w);
}
