// SPDX-License-Identifier: Apache-2.0
// Control operations that make no sense: each is refused, and nothing is changed by it.
#include "rig.h"

#include <errno.h>

// ---- objects that do not exist, or are in use

static void destroy_unknown(struct rig *r, uint8_t choice, uint32_t number)
{
    const struct vb_qpc_mods mods = {.state = VB_QPS_RESET};
    uint32_t qpn = number | 0x800000, other = number | 0x10000; // none has such a number
    switch (choice % 6) {
    case 0: rig_require(vb_dev_qp_destroy(r->dev, qpn) == -ENOENT); break;
    case 1: rig_require(vb_dev_qp_modify(r->dev, qpn, &mods) == -ENOENT); break;
    case 2: rig_require(vb_dev_cq_destroy(r->dev, other) == -ENOENT); break;
    case 3: rig_require(vb_dev_srq_destroy(r->dev, other) == -ENOENT); break;
    case 4: rig_require(vb_dev_pd_destroy(r->dev, other) == -ENOENT); break;
    default:
        if (!vb_mkey_find(&r->dev->mkeys, number))
            rig_require(vb_dev_mkey_destroy(r->dev, number) == -ENOENT);
        break;
    }
}

static void destroy_used(struct rig *r, uint8_t choice)
{
    switch (choice % 3) {
    case 0: rig_require(vb_dev_cq_destroy(r->dev, r->cq[choice / 3 % 2].cqn) == -EBUSY); break;
    case 1: rig_require(vb_dev_srq_destroy(r->dev, r->srq[0].srqn) == -EBUSY); break;
    default: rig_require(vb_dev_pd_destroy(r->dev, r->pd[0]) == -EBUSY); break;
    }
}

// ---- objects with one attribute that is not usual

static void create_bent_qp(struct rig *r, uint8_t choice, uint32_t value)
{
    const struct vb_driver_qp *d = &r->qp[RIG_RC].driver;
    uint32_t qpn, users = r->dev->qp_count;
    struct vb_qpc_attr a = {.pd = r->pd[0],
                            .send_cqn = r->cq[0].cqn,
                            .recv_cqn = r->cq[1].cqn,
                            .sq_ring = d->sq.ring,
                            .sq_blocks = d->sq.blocks,
                            .rq_ring = d->rq.ring,
                            .rq_entries = d->rq.entries,
                            .rq_stride_bytes = d->rq.stride,
                            .dbrec = d->dbrec};
    switch (choice % 8) {
    case 0: a.type = (enum vb_qp_type)(value % (VB_QPT_COUNT + 1)); break;
    case 1: a.sq_blocks = value; break;
    case 2: a.rq_entries = value; break;
    case 3: a.rq_stride_bytes = value; break;
    case 4: a.srqn = value % 4; break;
    case 5: a.send_cqn = value % 5; break;
    case 6: a.xrcd = value; break;
    default: a.sq_ring = NULL; break;
    }
    if (vb_dev_qp_create(r->dev, &a, &qpn) == 0)
        rig_require(vb_dev_qp_destroy(r->dev, qpn) == 0);
    rig_require(r->dev->qp_count == users);
}

static void create_bent_queue(struct rig *r, uint8_t choice, uint32_t value)
{
    uint32_t number;
    const struct vb_cqc_attr cq = {.pu = choice & 1 ? value : 0,
                                   .ring = r->cq[0].driver.ring,
                                   .entries = choice & 2 ? value : RIG_CQ_SMALL,
                                   .dbrec = choice & 4 ? NULL : r->cq[0].driver.dbrec};
    if (vb_dev_cq_create(r->dev, &cq, &number) == 0)
        rig_require(vb_dev_cq_destroy(r->dev, number) == 0);
    const struct vb_srqc_attr srq = {.pd = choice & 1 ? value : r->pd[0],
                                     .ring = r->srq[0].driver.ring,
                                     .entries = choice & 2 ? value : 16,
                                     .stride_bytes = choice & 4 ? value : 32,
                                     .dbrec = r->srq[0].driver.dbrec,
                                     .xrcd = choice & 8,
                                     .cqn = choice & 16 ? r->cq[0].cqn : 0};
    if (vb_dev_srq_create(r->dev, &srq, &number) == 0)
        rig_require(vb_dev_srq_destroy(r->dev, number) == 0);
}

static void create_bent_key(struct rig *r, uint8_t choice, uint32_t value)
{
    uint32_t key, keys = r->dev->mkeys.count;
    const struct vb_mkey_attr attr = {.pd = choice & 1 ? value : r->pd[0],
                                      .kind = (enum vb_mkey_kind)(choice / 2 % 3),
                                      .access = choice & 8 ? value : 0,
                                      .start = choice & 16 ? UINT64_MAX - value : value,
                                      .len = choice & 32 ? UINT64_MAX : value};
    if (vb_dev_mkey_create(r->dev, &attr, &key) == 0)
        rig_require(vb_dev_mkey_destroy(r->dev, key) == 0);
    rig_require(r->dev->mkeys.count == keys);
}

void rig_ask_nonsense(struct rig *r)
{
    uint8_t what = rig_u8(r), choice = rig_u8(r);
    uint32_t value = choice & 0x80 ? rig_u32(r) : 1u << rig_u8(r) % 32;
    switch (what % 5) {
    case 0: destroy_unknown(r, choice, value); break;
    case 1: destroy_used(r, choice); break;
    case 2: create_bent_qp(r, choice, value); break;
    case 3: create_bent_queue(r, choice, value); break;
    default: create_bent_key(r, choice, value); break;
    }
}
