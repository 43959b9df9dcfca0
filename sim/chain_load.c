// SPDX-License-Identifier: Apache-2.0
// Loading chain programs into a simulated NIC, and taking them down: all that a server's host does.
#include "sim/chain_world.h"

#include "base/bytes.h"
#include "wire/roce.h"

#include <stdlib.h>
#include <string.h>

enum {
    START_ROUNDS = 3, // of the greatest ring before a wrap, at most
};

// ---- drawing

uint64_t vb_chainprog_draw_start(struct vb_chainworld *w, const struct vb_image *image)
{
    static const uint32_t bits[] = {16, 24, 32};
    uint32_t ring = 1, pick = vb_chainworld_draw(w, 5);

    for (uint32_t i = 0; i < image->queues; i++) {
        ring = image->queue[i].blocks > ring ? image->queue[i].blocks : ring;
        ring = image->queue[i].recvs > ring ? image->queue[i].recvs : ring;
    }
    if (pick >= sizeof bits / sizeof bits[0])
        return 0;
    return (1ull << bits[pick]) - (uint64_t)ring * (1 + vb_chainworld_draw(w, START_ROUNDS));
}

uint32_t vb_chainprog_draw_depth(struct vb_chainworld *w)
{
    static const uint32_t some[] = {1, 2, 3, 5, 8, 16, 64, 256};
    uint32_t pick = vb_chainworld_draw(w, 10);
    return pick < 8 ? some[pick] : 1 + vb_chainworld_draw(w, 256);
}

// ---- making

static int make_key(struct vb_chainprog *p, const struct vb_piece *piece, uint32_t access,
                    struct vb_image_memory *mem)
{
    const struct vb_mkey_attr attr = {
        .pd = p->pd, .access = access, .start = piece->addr, .len = piece->len, .base = piece->at};
    int err = vb_dev_mkey_create(p->nic->dev, &attr, &mem->key);

    mem->addr = piece->addr;
    mem->at = piece->at;
    if (!err)
        p->key[p->keys++] = mem->key;
    return err;
}

static int make_piece(struct vb_chainprog *p, uint32_t bytes, uint32_t access,
                      struct vb_image_memory *mem)
{
    struct vb_piece *piece = vb_piece_create(p->nic, bytes, p->opts.owner);
    return piece ? make_key(p, piece, access, mem) : -1;
}

static int make_cq(struct vb_chainprog *p, uint32_t i)
{
    struct vb_chaincq *cq = &p->cq[i];
    uint32_t entries = p->image->cq[i].entries;

    cq->ring = aligned_alloc(64, (size_t)entries * VB_CQE_BYTES);
    if (!cq->ring)
        return -1;
    memset(cq->ring, 0, (size_t)entries * VB_CQE_BYTES);
    for (uint32_t n = 0; n < entries; n++)
        cq->ring[n * VB_CQE_BYTES + VB_CQE_BYTES - 1] = VB_CQE_INVALID << 4;
    const struct vb_cqc_attr attr = {.pu = vb_chainworld_draw(p->nic->world, p->nic->units),
                                     .ring = cq->ring,
                                     .entries = entries,
                                     .dbrec = cq->dbrec,
                                     .start = p->opts.start,
                                     .ignore_overrun = true};
    return vb_dev_cq_create(p->nic->dev, &attr, &cq->cqn);
}

static int make_region(struct vb_chainprog *p, uint32_t i)
{
    const struct vb_image_region *r = &p->image->region[i];
    const struct vb_chainstore *store = &p->nic->store;
    uint32_t access = VB_REMOTE_READ;

    if (r->kind == VB_REGION_PEER) {
        p->data[i] = p->opts.client;
        return 0;
    }
    if (r->kind == VB_REGION_SHARED)
        return make_key(p, strcmp(r->name, "index") == 0 ? store->index : store->items, access,
                        &p->data[i]);
    if (r->writable)
        access |= VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;
    return make_piece(p, (uint32_t)r->bytes, access, &p->data[i]);
}

static int make_queue(struct vb_chainprog *p, uint32_t i)
{
    const struct vb_image_queue *q = &p->image->queue[i];
    const uint32_t code = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;
    struct vb_chainqueue *made = &p->queue[i];
    int err = make_piece(p, q->blocks * VB_WQEBB_BYTES, code, &p->send[i]);

    if (!err && q->recvs)
        err = make_piece(p, q->recvs * q->recv_stride, code, &p->recv[i]);
    if (err)
        return err;
    made->dbrec[0] = made->dbrec[1] = htobe32((uint32_t)p->opts.start & 0xffff);
    const struct vb_qpc_attr attr = {.pd = p->pd,
                                     .send_cqn = p->cq[q->send_cq].cqn,
                                     .recv_cqn = p->cq[q->recv_cq].cqn,
                                     .sq_ring = p->send[i].at,
                                     .sq_blocks = q->blocks,
                                     .rq_ring = p->recv[i].at,
                                     .rq_entries = q->recvs,
                                     .rq_stride_bytes = q->recv_stride,
                                     .dbrec = made->dbrec,
                                     .sq_start = p->opts.start,
                                     .rq_start = p->opts.start,
                                     .no_wqe_checks = !q->wqe_checks,
                                     .be_replies = q->be_replies,
                                     .cross_channel = true,
                                     .managed_send = q->managed_send,
                                     .managed_recv = q->managed_recv,
                                     .fetch_depth = p->opts.fetch_depth,
                                     .rate = p->opts.rate,
                                     .burst = p->opts.burst,
                                     .program = p->number};
    err = vb_dev_qp_create(p->nic->dev, &attr, &made->qpn);
    p->queues += !err;
    return err;
}

// A queue pair that is connected with itself.
static int connect_loop(struct vb_chainprog *p, uint32_t qpn)
{
    struct vb_qpc_mods mods = {.access = VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC,
                               .dest_qpn = qpn,
                               .mtu_bytes = 4096,
                               .max_rd_atomic = 16,
                               .max_dest_rd_atomic = 16,
                               .timeout = 14,
                               .retry_cnt = 7,
                               .rnr_retry = VB_RETRY_INFINITE,
                               .local = p->nic->ip,
                               .remote = p->nic->ip,
                               .src_port = 4791};
    int err = 0;

    for (mods.state = VB_QPS_INIT; !err && mods.state <= VB_QPS_RTS; mods.state++)
        err = vb_dev_qp_modify(p->nic->dev, qpn, &mods);
    return err;
}

static void place(struct vb_chainprog *p)
{
    uint32_t qpn[VB_CHAINS_QUEUES], cqn[VB_CHAINS_CQS];

    for (uint32_t i = 0; i < p->image->queues; i++)
        qpn[i] = p->queue[i].qpn;
    for (uint32_t i = 0; i < p->image->cqs; i++)
        cqn[i] = p->cq[i].cqn;
    vb_image_place(p->image, &(struct vb_image_binding){.send = p->send,
                                                        .recv = p->recv,
                                                        .data = p->data,
                                                        .qpn = qpn,
                                                        .cqn = cqn,
                                                        .start = p->opts.start});
}

static int make(struct vb_chainprog *p)
{
    const struct vb_image *image = p->image;
    int err = vb_dev_pd_create(p->nic->dev, &p->pd);

    if (!err)
        err = vb_dev_program_create(p->nic->dev,
                                    &(struct vb_program_attr){.pd = p->pd, .limit = p->opts.limit},
                                    &p->number);
    for (; p->cqs < image->cqs && !err; p->cqs++)
        err = make_cq(p, p->cqs);
    for (uint32_t i = 0; i < image->regions && !err; i++)
        err = make_region(p, i);
    for (uint32_t i = 0; i < image->queues && !err; i++)
        err = make_queue(p, i);
    if (err)
        return err;
    place(p);
    for (uint32_t i = 0; i < image->queues && !err; i++)
        if (image->queue[i].kind == VB_QUEUE_LOOP)
            err = connect_loop(p, p->queue[i].qpn);
    return err;
}

// That of one which is gone, if there is any.
static struct vb_chainprog *take_place(struct vb_chainworld *w)
{
    for (uint32_t i = 0; i < w->progs; i++)
        if (!w->prog[i]->nic) {
            memset(w->prog[i], 0, sizeof *w->prog[i]);
            return w->prog[i];
        }
    struct vb_chainprog *p = w->progs < VB_CHAINS_PROGRAMS ? calloc(1, sizeof *p) : NULL;
    if (p)
        w->prog[w->progs++] = p;
    return p;
}

struct vb_chainprog *vb_chainprog_load(struct vb_chainnic *nic, const struct vb_chainload *opts,
                                       struct vb_image *image)
{
    struct vb_chainworld *w = nic->world;
    struct vb_chainprog *p = take_place(w);

    if (!p || image->queues > VB_CHAINS_QUEUES || image->cqs > VB_CHAINS_CQS ||
        image->regions > VB_CHAINS_REGIONS) {
        vb_chainworld_violate(w, "no room for another program");
        vb_image_destroy(image);
        return NULL;
    }
    p->nic = nic;
    p->image = image;
    p->opts = *opts;
    p->goes_at_ns = UINT64_MAX;
    int err = make(p);
    if (err) {
        vb_chainworld_violate(w, "NIC %u: the program '%s' cannot be loaded: %d", nic->index,
                              image->name, err);
        return NULL;
    }
    vb_chainworld_note(w, "nic%u load     %s as owner %u, QP %06x, depth %u, from %llu on",
                       nic->index, image->name, opts->owner, p->queue[0].qpn, opts->fetch_depth,
                       (unsigned long long)opts->start);
    return p;
}

int vb_chainprog_peer(const struct vb_chainprog *p)
{
    for (uint32_t i = 0; i < p->image->queues; i++)
        if (p->image->queue[i].kind == VB_QUEUE_PEER)
            return (int)i;
    return -1;
}

int vb_chainprog_connect(struct vb_chainprog *p, const struct vb_qpc_mods *mods)
{
    struct vb_qpc_mods m = *mods;
    int err = 0;

    p->peer_qpn = mods->dest_qpn;
    p->timeout_ns = 4096ull << mods->timeout;
    p->peer_ip = mods->remote;
    for (m.state = VB_QPS_INIT; !err && m.state <= VB_QPS_RTS; m.state++)
        err = vb_dev_qp_modify(p->nic->dev, p->queue[vb_chainprog_peer(p)].qpn, &m);
    return err;
}

// The doorbell record's word for so many entries.
static uint32_t word_of(const struct vb_chainprog *p, uint32_t entries)
{
    return htobe32(((uint32_t)p->opts.start + entries) & 0xffff);
}

void vb_chainprog_open(struct vb_chainprog *p)
{
    for (uint32_t i = 0; i < p->image->queues; i++) {
        const struct vb_image_queue *q = &p->image->queue[i];
        struct vb_chainqueue *made = &p->queue[i];
        uint32_t unit = made->qpn & (p->nic->units - 1);
        made->dbrec[VB_DBREC_SQ] = word_of(p, q->open);
        made->dbrec[VB_DBREC_RQ] = word_of(p, q->recv_open);
        vb_doorbell_ring(vb_pu_doorbells(p->nic->unit[unit].pu), made->qpn);
    }
    vb_chainnic_wake(p->nic);
}

bool vb_chainprog_is_alone(const struct vb_chainprog *p)
{
    for (uint32_t i = 0; i < p->image->queues; i++) {
        const struct vb_image_queue *q = &p->image->queue[i];
        if (p->queue[i].dbrec[VB_DBREC_SQ] != word_of(p, q->open) ||
            p->queue[i].dbrec[VB_DBREC_RQ] != word_of(p, q->recv_open))
            return false;
    }
    return true;
}

// ---- its end

void vb_chainprog_stop(struct vb_chainprog *p)
{
    uint64_t executed;
    bool stopped = false;
    int err = vb_dev_program_stop(p->nic->dev, p->number);

    if (!err)
        err = vb_dev_program_query(p->nic->dev, p->number, &executed, &stopped);
    if (err || !stopped || !vb_chainprog_failed(p))
        vb_chainworld_violate(p->nic->world, "NIC %u: stopping a program returned %d",
                              p->nic->index, err);
    p->stopped = true;
    vb_chainnic_wake(p->nic);
    vb_chainworld_note(p->nic->world, "nic%u stop     owner %u", p->nic->index, p->opts.owner);
}

bool vb_chainprog_failed(const struct vb_chainprog *p)
{
    enum vb_qp_state state;

    for (uint32_t i = 0; i < p->queues; i++)
        if (vb_dev_qp_state(p->nic->dev, p->queue[i].qpn, &state) != 0 || state == VB_QPS_ERR)
            return true;
    return false;
}

void vb_chainprog_unload(struct vb_chainprog *p)
{
    struct vb_dev *dev = p->nic->dev;
    int err = 0;

    for (uint32_t i = 0; i < p->nic->units; i++)
        vb_pu_tx_keep(p->nic->unit[i].pu);
    for (uint32_t i = 0; i < p->queues && !err; i++)
        err = vb_dev_qp_destroy(dev, p->queue[i].qpn);
    for (uint32_t i = 0; i < p->keys && !err; i++)
        err = vb_dev_mkey_destroy(dev, p->key[i]);
    for (uint32_t i = 0; i < p->cqs && !err; i++)
        err = vb_dev_cq_destroy(dev, p->cq[i].cqn);
    if (!err)
        err = vb_dev_program_destroy(dev, p->number);
    if (!err)
        err = vb_dev_pd_destroy(dev, p->pd);
    if (err)
        vb_chainworld_violate(p->nic->world, "NIC %u would not give up a program: %d",
                              p->nic->index, err);
    vb_chainworld_note(p->nic->world, "nic%u unload   owner %u", p->nic->index, p->opts.owner);
    vb_piece_destroy(p->nic, p->opts.owner);
    for (uint32_t i = 0; i < p->cqs; i++)
        free(p->cq[i].ring);
    vb_image_destroy(p->image);
    vb_chainnic_wake(p->nic); // others may have waited for what it had in flight
    p->nic = NULL;
    p->goes_at_ns = UINT64_MAX;
}

struct vb_chainprog *vb_chainprog_find(struct vb_chainnic *nic, uint32_t qpn, uint32_t *queue)
{
    for (uint32_t i = 0; i < nic->world->progs; i++) {
        struct vb_chainprog *p = nic->world->prog[i];
        for (uint32_t q = 0; p->nic == nic && q < p->queues; q++)
            if (p->queue[q].qpn == qpn) {
                *queue = q;
                return p;
            }
    }
    return NULL;
}
