// SPDX-License-Identifier: Apache-2.0
// A whole device for fuzzers: its objects come and go.
#include "rig.h"

#include <stdlib.h>
#include <string.h>

enum { // bits of the first byte of the input
    SETUP_UNOBSERVED = 1 << 0,
    SETUP_UNITS = 1 << 1,
    SETUP_PORT = 1 << 2,  // lent payloads, held completions
    SETUP_SMALL = 1 << 3, // completion queues that overrun
    SETUP_FAULTS = 1 << 4,
    SETUP_IPV6 = 1 << 5,
    SETUP_NARROW = 1 << 6, // transmit queues that are soon full
};

enum { // bits of the layout; the lowest three choose the MTU
    LAYOUT_UC_SHARED = 1 << 4,
    LAYOUT_UD_SHARED = 1 << 5,
    LAYOUT_RECV_APART = 1 << 6,
    LAYOUT_SHARES = 1 << 7, // queue pairs are of three
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

uint64_t rig_u64(struct rig *r)
{
    uint64_t high = rig_u32(r);
    return high << 32 | rig_u32(r);
}

// ---- faults on purpose

static bool is_there(void *ctx, uint32_t key, const void *at, uint64_t len, bool write)
{
    const struct rig *r = ctx;
    (void)key;
    (void)write;
    for (uint32_t i = 0; i < RIG_REGIONS; i++) {
        const uint8_t *base = r->region[i].base, *first = at;
        if (base && first >= base && first < base + RIG_REGION_BYTES)
            return !r->region[i].gone;
    }
    rig_require(len == 0); // nothing else is asked for
    return true;
}

static uint8_t spoil(void *ctx, uint32_t qpn, uint8_t wqe_opcode, bool receive)
{
    struct rig *r = ctx;
    uint8_t syndrome = r->spoil;
    (void)qpn;
    (void)wqe_opcode;
    (void)receive;
    r->spoil = VB_SYN_OK;
    return syndrome;
}

static bool fail_request(void *ctx, uint32_t qpn)
{
    struct rig *r = ctx;
    bool fails = r->fail_next;
    (void)qpn;
    r->fail_next = false;
    return fails;
}

// ---- queues

static void create_cq(struct rig *r, struct rig_cq *c, uint32_t unit)
{
    rig_require(vb_driver_cq_init(&c->driver, r->cq_entries, 0xfffffe) == 0);
    c->driver.find_srq = rig_find_srq;
    const struct vb_cqc_attr attr = {.pu = unit,
                                     .ring = c->driver.ring,
                                     .entries = c->driver.entries,
                                     .dbrec = c->driver.dbrec,
                                     .start = 0xfffffe};
    rig_require(vb_dev_cq_create(r->dev, &attr, &c->cqn) == 0);
    c->ctx = r->dev->cqs[c->cqn - 1];
}

void rig_create_srq(struct rig *r, struct rig_srq *s)
{
    bool xrc = s == &r->srq[1];
    memset(s, 0, sizeof *s);
    rig_require(vb_driver_srq_init(&s->driver, 12, xrc ? 4 : VB_MAX_SGE) == 0);
    const struct vb_srqc_attr attr = {.pd = r->pd[xrc],
                                      .ring = s->driver.ring,
                                      .entries = s->driver.entries,
                                      .stride_bytes = s->driver.stride,
                                      .dbrec = s->driver.dbrec,
                                      .xrcd = xrc ? RIG_XRCD : 0,
                                      .cqn = xrc ? r->cq[2].cqn : 0};
    rig_require(vb_dev_srq_create(r->dev, &attr, &s->srqn) == 0);
    s->ctx = vb_dev_srq(r->dev, s->srqn);
}

static bool takes_from_srq(const struct rig *r, const struct rig_qp *q)
{
    switch ((int)(q - r->qp)) {
    case RIG_RC_SHARED: return true;
    case RIG_UC: return r->layout & LAYOUT_UC_SHARED;
    case RIG_UD: return r->layout & LAYOUT_UD_SHARED;
    default: return false;
    }
}

void rig_create_qp(struct rig *r, struct rig_qp *q)
{
    static const enum vb_qp_type type[RIG_QPS] = {VB_QPT_RC, VB_QPT_RC,      VB_QPT_UC,
                                                  VB_QPT_UD, VB_QPT_XRC_INI, VB_QPT_XRC_TGT};
    uint32_t at = (uint32_t)(q - r->qp);
    memset(q, 0, sizeof *q);
    q->type = type[at];
    q->srq = takes_from_srq(r, q) ? &r->srq[0] : NULL;
    q->send_cq = &r->cq[at % 2];
    q->recv_cq = r->layout & LAYOUT_RECV_APART ? &r->cq[2] : q->send_cq;
    bool receives = !q->srq && q->type < VB_QPT_XRC_INI;
    const struct vb_qp_opts opts = {.service = (enum vb_service)q->type,
                                    .send_depth = 8,
                                    .recv_depth = receives ? 8 : 0,
                                    .send_sge = VB_MAX_SGE,
                                    .recv_sge = 4,
                                    .inline_bytes = 200};
    rig_require(vb_driver_qp_init(&q->driver, &opts, 0xfff8, 0xfffc) == 0);
    q->driver.srq = q->srq ? &q->srq->driver : NULL;
    const struct vb_qpc_attr attr = {.pd = r->pd[0],
                                     .type = q->type,
                                     .srqn = q->srq ? q->srq->srqn : 0,
                                     .xrcd = q->type == VB_QPT_XRC_TGT ? RIG_XRCD : 0,
                                     .send_cqn = q->send_cq->cqn,
                                     .recv_cqn = q->recv_cq->cqn,
                                     .sq_ring = q->driver.sq.ring,
                                     .sq_blocks = q->driver.sq.blocks,
                                     .rq_ring = q->driver.rq.ring,
                                     .rq_entries = q->driver.rq.entries,
                                     .rq_stride_bytes = q->driver.rq.stride,
                                     .dbrec = q->driver.dbrec,
                                     .sq_start = 0xfff8,
                                     .rq_start = 0xfffc,
                                     .no_wqe_checks = !r->wqe_checks,
                                     .share = r->share[(q - r->qp) % RIG_SHARES]};
    rig_require(vb_dev_qp_create(r->dev, &attr, &q->driver.qpn) == 0);
    q->ctx = vb_dev_qp(r->dev, q->driver.qpn);
    q->driver.doorbells = vb_pu_doorbells(q->ctx->pu);
}

void rig_destroy_qp(struct rig *r, struct rig_qp *q)
{
    rig_require(vb_dev_qp_destroy(r->dev, q->driver.qpn) == 0);
    vb_driver_qp_fini(&q->driver);
}

// ---- the device

// Whatever an earlier input may have left that a later one could notice.
static void forget(struct vb_dev *dev)
{
    dev->prng.state = 1;
    dev->mkeys.drawn = 0;
    dev->qp_hint = 100;
    memset(dev->qp_generation, 0, sizeof dev->qp_generation);
    for (uint32_t i = 0; i < dev->pu_count; i++) {
        struct vb_pu *pu = dev->pu[i];
        rig_require(pu->txq.count == 0 && pu->event_count == 0 && !vb_pu_has_mail(pu));
        vb_ah_fini(pu);
        memset(pu->ah, 0, sizeof pu->ah);
        memset(&pu->bells, 0, sizeof pu->bells);
        pu->now_ns = 0;
    }
}

// A few devices serve all inputs, because making one takes longer than most inputs do. They draw
// the same numbers and keys for each, so that a finding replays alone.
static struct vb_dev *take_device(bool two_units, bool like_port)
{
    static struct vb_dev *all[2][2];
    struct vb_dev **dev = &all[two_units][like_port];
    if (!*dev)
        *dev = vb_dev_create(&(struct vb_dev_opts){.pus = two_units ? 2 : 1,
                                                   .window_bytes = 16384,
                                                   .lend_bytes = like_port ? 256 : 0,
                                                   .hold_completions = like_port,
                                                   .check_zero_length = like_port});
    rig_require(*dev != NULL && (*dev)->qp_count == 0 && (*dev)->mkeys.count == 0);
    forget(*dev);
    return *dev;
}

static void set_up(struct rig *r, uint8_t flags)
{
    r->observed = !(flags & SETUP_UNOBSERVED);
    r->units = flags & SETUP_UNITS ? 2 : 1;
    r->narrow = flags & SETUP_NARROW;
    r->cq_entries = flags & SETUP_SMALL ? RIG_CQ_SMALL : RIG_CQ_ENTRIES;
    r->now_ns = 1000;
    r->local = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    r->remote = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, 2}};
    if (flags & SETUP_IPV6)
        r->local.b[0] = r->remote.b[0] = 0xfd;
    r->dev = take_device(flags & SETUP_UNITS, flags & SETUP_PORT);
    r->guard = (struct vb_mem_guard){r, is_there};
    r->hooks = (struct vb_dev_hooks){r, spoil, fail_request};
    r->dev->mkeys.guard = flags & SETUP_FAULTS ? &r->guard : NULL;
    vb_dev_hook(r->dev, flags & SETUP_FAULTS ? &r->hooks : NULL);
    for (uint32_t i = 0; i < r->units; i++) {
        vb_pu_observe(vb_dev_pu_at(r->dev, i), r->observed ? rig_observe : NULL, r);
        r->before[i] = *vb_pu_counters(vb_dev_pu_at(r->dev, i));
    }
}

// One of little weight and with a rate, one of much; and share 0.
static void create_shares(struct rig *r)
{
    static const struct vb_share_attr little = {.weight = 1, .rate_Bps = 100 * 1000 * 1000},
                                      much = {.weight = 1000};

    rig_require(vb_dev_share_create(r->dev, &little, &r->share[1]) == 0);
    rig_require(vb_dev_share_create(r->dev, &much, &r->share[2]) == 0);
}

void rig_open(struct rig *r, const struct rig_opts *opts, const uint8_t *data, size_t size)
{
    memset(r, 0, sizeof *r);
    r->in = (struct rig_input){data, size};
    r->wqe_checks = !opts->no_wqe_checks;
    r->orderly = opts->orderly;
    set_up(r, rig_u8(r));
    r->layout = rig_u8(r);
    r->mtu = 256u << (r->layout & 7) % 5;
    for (uint32_t i = 0; i < 2; i++)
        rig_require(vb_dev_pd_create(r->dev, &r->pd[i]) == 0);
    for (uint32_t i = 0; i < RIG_CQS; i++)
        create_cq(r, &r->cq[i], i % r->units);
    for (uint32_t i = 0; i < RIG_SRQS; i++)
        rig_create_srq(r, &r->srq[i]);
    for (uint32_t i = 0; i < RIG_REGIONS; i++)
        rig_register(r, i);
    for (uint32_t i = 0; i < RIG_WINDOWS; i++)
        rig_create_window(r, i);
    if (r->layout & LAYOUT_SHARES)
        create_shares(r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_create_qp(r, &r->qp[i]);
    uint8_t apart = rig_u8(r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        if (!(apart & 1u << i))
            rig_connect(r, &r->qp[i]);
}

void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_destroy_qp(r, &r->qp[i]);
    for (uint32_t i = 1; i < RIG_SHARES && r->share[i]; i++)
        rig_require(vb_dev_share_destroy(r->dev, r->share[i]) == 0);
    for (uint32_t i = 0; i < RIG_SRQS; i++) {
        rig_require(vb_dev_srq_destroy(r->dev, r->srq[i].srqn) == 0);
        vb_driver_srq_fini(&r->srq[i].driver);
    }
    for (uint32_t i = 0; i < RIG_WINDOWS; i++)
        rig_destroy_window(r, i);
    for (uint32_t i = 0; i < RIG_REGIONS; i++)
        rig_require(rig_unregister(r, i));
    for (uint32_t i = 0; i < RIG_CQS; i++) {
        rig_require(vb_dev_cq_destroy(r->dev, r->cq[i].cqn) == 0);
        vb_driver_cq_fini(&r->cq[i].driver);
    }
    for (uint32_t i = 0; i < 2; i++)
        rig_require(vb_dev_pd_destroy(r->dev, r->pd[i]) == 0);
    for (uint32_t i = 0; i < r->units; i++) {
        struct vb_pu *pu = vb_dev_pu_at(r->dev, i);
        vb_pu_feed(pu, NULL, 0);
        rig_require(vb_pu_deadline(pu) == UINT64_MAX && !vb_fifo_first(&pu->run) &&
                    !vb_fifo_first(&pu->active));
    }
    rig_drop_batch(r);
    for (uint32_t i = 0; i < r->wired; i++)
        free(r->wire[i].bytes);
}
