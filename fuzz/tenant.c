// SPDX-License-Identifier: Apache-2.0
// A server's NIC with the programs of two clients: making and unmaking it.
#include "tenant.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    ADDR_FIRST = 1 << 24,
    ADDR_STEP = 1 << 16,
};

void tenant_require(bool holds)
{
    if (!holds)
        abort();
}

// ---- memory

// Its exact size, at an address that is the same in every run.
static struct tenant_memory make_memory(struct tenant_server *s, uint64_t bytes)
{
    struct tenant_memory m = {.addr = s->next_addr, .bytes = bytes};

    m.at = bytes % 64 ? calloc(1, bytes) : aligned_alloc(64, bytes);
    tenant_require(m.at != NULL);
    memset(m.at, 0, bytes);
    s->next_addr += (bytes + 2 * ADDR_STEP - 1) / ADDR_STEP * ADDR_STEP;
    return m;
}

static void grant(struct vb_dev *dev, uint32_t pd, struct tenant_memory *m, uint32_t access)
{
    const struct vb_mkey_attr attr = {
        .pd = pd, .access = access, .start = m->addr, .len = m->bytes, .base = m->at};
    tenant_require(vb_dev_mkey_create(dev, &attr, &m->key) == 0);
}

static void drop(struct vb_dev *dev, struct tenant_memory *m)
{
    if (m->key)
        (void)vb_dev_mkey_destroy(dev, m->key);
    free(m->at);
}

static void make_cq(struct vb_dev *dev, struct tenant_cq *cq, uint32_t entries, uint32_t unit)
{
    cq->entries = entries;
    cq->ring = aligned_alloc(64, (size_t)entries * VB_CQE_BYTES);
    tenant_require(cq->ring != NULL);
    memset(cq->ring, 0, (size_t)entries * VB_CQE_BYTES);
    for (uint32_t i = 0; i < entries; i++)
        cq->ring[i * VB_CQE_BYTES + VB_CQE_BYTES - 1] = VB_CQE_INVALID << 4;
    const struct vb_cqc_attr attr = {.pu = unit,
                                     .ring = cq->ring,
                                     .entries = entries,
                                     .dbrec = cq->dbrec,
                                     .ignore_overrun = true};
    tenant_require(vb_dev_cq_create(dev, &attr, &cq->cqn) == 0);
}

// ---- a program

static void make_regions(struct tenant_server *s, struct tenant *t)
{
    const uint32_t own = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    for (uint32_t i = 0; i < t->image->regions; i++) {
        const struct vb_image_region *r = &t->image->region[i];
        if (r->kind == VB_REGION_SHARED) {
            t->data[i] = strcmp(r->name, "index") == 0 ? s->index : s->items;
            continue;
        }
        t->data[i] = make_memory(s, r->bytes);
        bool far = r->kind == VB_REGION_PEER;
        grant(far ? s->far : s->near, far ? s->far_pd : s->pd, &t->data[i],
              far || r->writable ? own : (uint32_t)VB_REMOTE_READ);
    }
}

static void make_queue(struct tenant_server *s, struct tenant *t, uint32_t i)
{
    const struct vb_image_queue *q = &t->image->queue[i];
    const uint32_t code = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    t->send[i] = make_memory(s, (uint64_t)q->blocks * VB_WQEBB_BYTES);
    grant(s->near, s->pd, &t->send[i], code);
    if (q->recvs) {
        t->recv[i] = make_memory(s, (uint64_t)q->recvs * q->recv_stride);
        grant(s->near, s->pd, &t->recv[i], code);
    }
    const struct vb_qpc_attr attr = {.pd = s->pd,
                                     .send_cqn = t->cq[q->send_cq].cqn,
                                     .recv_cqn = t->cq[q->recv_cq].cqn,
                                     .sq_ring = t->send[i].at,
                                     .sq_blocks = q->blocks,
                                     .rq_ring = t->recv[i].at,
                                     .rq_entries = q->recvs,
                                     .rq_stride_bytes = q->recv_stride,
                                     .dbrec = t->dbrec[i],
                                     .no_wqe_checks = !q->wqe_checks,
                                     .be_replies = q->be_replies,
                                     .cross_channel = true,
                                     .managed_send = q->managed_send,
                                     .managed_recv = q->managed_recv,
                                     .fetch_depth = s->depth,
                                     .program = t->program};
    tenant_require(vb_dev_qp_create(s->near, &attr, &t->qpn[i]) == 0);
}

static void place(struct tenant *t)
{
    struct vb_image_memory memory[3][TENANT_REGIONS] = {{{0}}};
    uint32_t cqn[TENANT_CQS];

    for (uint32_t i = 0; i < t->image->queues; i++) {
        memory[0][i] = (struct vb_image_memory){t->send[i].addr, t->send[i].key, t->send[i].at};
        memory[1][i] = (struct vb_image_memory){t->recv[i].addr, t->recv[i].key, t->recv[i].at};
    }
    for (uint32_t i = 0; i < t->image->regions; i++)
        memory[2][i] = (struct vb_image_memory){t->data[i].addr, t->data[i].key, t->data[i].at};
    for (uint32_t i = 0; i < t->image->cqs; i++)
        cqn[i] = t->cq[i].cqn;
    vb_image_place(
        t->image,
        &(struct vb_image_binding){
            .send = memory[0], .recv = memory[1], .data = memory[2], .qpn = t->qpn, .cqn = cqn});
}

// Keys that entries have, and the numbers of queues: no step may write them.
static void mark_keys(struct tenant *t)
{
    for (uint32_t i = 0; i < t->image->queues; i++) {
        t->marked[i] = calloc(1, t->send[i].bytes);
        tenant_require(t->marked[i] != NULL);
    }
    for (uint32_t i = 0; i < t->image->relocs; i++) {
        const struct vb_reloc *r = &t->image->reloc[i];
        bool names = r->kind == VB_RELOC_KEY || r->kind == VB_RELOC_QPN || r->kind == VB_RELOC_CQN;
        if (names && r->at.kind == VB_IN_SEND)
            memset(t->marked[r->at.index] + r->at.offset, 1, 4);
    }
}

// ---- the client

static void make_client(struct tenant_server *s, struct tenant *t)
{
    make_cq(s->far, &t->far_cq, 2 * TENANT_DEPTH, 0);
    t->far_ring = make_memory(s, (uint64_t)TENANT_DEPTH * 64);
    t->far_recvs = make_memory(s, (uint64_t)TENANT_DEPTH * VB_WQE_SEG_BYTES);
    t->far_payload = make_memory(s, 2 * TENANT_PAYLOAD);
    grant(s->far, s->far_pd, &t->far_payload, VB_LOCAL_WRITE);
    t->far_dbrec[VB_DBREC_RQ] = htobe32(TENANT_DEPTH);
    for (uint32_t i = 0; i < TENANT_DEPTH; i++) // replies are WRITEs: nothing is scattered
        vb_put_be32(t->far_recvs.at + (size_t)i * VB_WQE_SEG_BYTES + 4, VB_WQE_LKEY_END);
    const struct vb_qpc_attr attr = {.pd = s->far_pd,
                                     .send_cqn = t->far_cq.cqn,
                                     .recv_cqn = t->far_cq.cqn,
                                     .sq_ring = t->far_ring.at,
                                     .sq_blocks = TENANT_DEPTH,
                                     .rq_ring = t->far_recvs.at,
                                     .rq_entries = TENANT_DEPTH,
                                     .rq_stride_bytes = VB_WQE_SEG_BYTES,
                                     .dbrec = t->far_dbrec,
                                     .no_wqe_checks = true};
    tenant_require(vb_dev_qp_create(s->far, &attr, &t->far_qpn) == 0);
}

static void connect(struct vb_dev *dev, uint32_t qpn, uint32_t to, const struct vb_ip *local,
                    const struct vb_ip *remote, uint32_t access)
{
    struct vb_qpc_mods mods = {.access = access,
                               .dest_qpn = to,
                               .mtu_bytes = 1024,
                               .max_rd_atomic = 4,
                               .max_dest_rd_atomic = 4,
                               .min_rnr_timer = 1,
                               .timeout = 4,
                               .retry_cnt = 3,
                               .rnr_retry = VB_RETRY_INFINITE,
                               .local = *local,
                               .remote = *remote,
                               .src_port = 4791};

    for (mods.state = VB_QPS_INIT; mods.state <= VB_QPS_RTS; mods.state++)
        tenant_require(vb_dev_qp_modify(dev, qpn, &mods) == 0);
}

// A client may send, and nothing else: the queue that it is connected with has no rights.
static void connect_all(struct tenant_server *s, struct tenant *t)
{
    const uint32_t all = VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    for (uint32_t i = 0; i < t->image->queues; i++) {
        if (i != t->k)
            connect(s->near, t->qpn[i], t->qpn[i], &s->near_ip, &s->near_ip, all);
    }
    connect(s->near, t->qpn[t->k], t->far_qpn, &s->near_ip, &s->far_ip, 0);
    connect(s->far, t->far_qpn, t->qpn[t->k], &s->far_ip, &s->near_ip, all);
}

// ---- both

static void load(struct tenant_server *s, struct tenant *t, enum tenant_kind kind)
{
    t->kind = kind;
    t->slots = kind == TENANT_LOOP ? 1 : TENANT_SLOTS;
    t->image = tenant_image(kind);
    tenant_require(t->image->queues <= TENANT_QUEUES && t->image->cqs <= TENANT_CQS &&
                   t->image->regions <= TENANT_REGIONS);
    const struct vb_program_attr program = {.pd = s->pd, .limit = TENANT_LIMIT};
    tenant_require(vb_dev_program_create(s->near, &program, &t->program) == 0);
    for (uint32_t i = 0; i < t->image->cqs; i++)
        make_cq(s->near, &t->cq[i], t->image->cq[i].entries, i % s->units);
    make_regions(s, t);
    for (uint32_t i = 0; i < t->image->queues; i++)
        make_queue(s, t, i);
    t->k = (uint32_t)vb_image_find_queue(t->image, "K");
    make_client(s, t);
    place(t);
    mark_keys(t);
    connect_all(s, t);
}

void tenant_start(struct tenant_server *s, struct tenant *t)
{
    for (uint32_t i = 0; i < t->image->queues; i++) {
        t->dbrec[i][VB_DBREC_SQ] = htobe32(t->image->queue[i].open);
        t->dbrec[i][VB_DBREC_RQ] = htobe32(t->image->queue[i].recv_open);
        vb_doorbell_ring(vb_pu_doorbells(vb_dev_pu_at(s->near, t->qpn[i] & (s->units - 1))),
                         t->qpn[i]);
    }
}

// Making a device takes longer than most inputs do: they are kept, and begin anew.
static struct vb_dev *take_device(struct vb_dev **dev, uint32_t units)
{
    if (!*dev)
        *dev = vb_dev_create(
            &(struct vb_dev_opts){.pus = units, .window_bytes = 16384, .check_zero_length = true});
    tenant_require(*dev != NULL && (*dev)->qp_count == 0 && (*dev)->crosses == 0);
    (*dev)->prng.state = 1;
    (*dev)->mkeys.drawn = 0;
    (*dev)->qp_hint = 100;
    memset((*dev)->qp_generation, 0, sizeof(*dev)->qp_generation);
    for (uint32_t u = 0; u < units; u++) {
        struct vb_pu *pu = vb_dev_pu_at(*dev, u);
        struct vb_event event;
        while (vb_pu_take_event(pu, &event))
            ;
        memset(&pu->bells, 0, sizeof pu->bells);
        pu->now_ns = 0;
    }
    return *dev;
}

void tenant_open(struct tenant_server *s, const enum tenant_kind kind[2])
{
    static struct vb_dev *near[TENANT_UNITS], *far;

    s->near = take_device(&near[s->units - 1], s->units);
    s->far = take_device(&far, 1);
    s->now_ns = 1000;
    s->next_addr = ADDR_FIRST;
    s->near_ip = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    s->far_ip = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, 2}};
    tenant_require(vb_dev_pd_create(s->near, &s->pd) == 0);
    tenant_require(vb_dev_pd_create(s->far, &s->far_pd) == 0);
    s->index = make_memory(s, TENANT_SHARED);
    s->items = make_memory(s, TENANT_SHARED);
    s->other = make_memory(s, TENANT_SHARED);
    grant(s->near, s->pd, &s->index, VB_REMOTE_READ);
    grant(s->near, s->pd, &s->items, VB_REMOTE_READ);
    grant(s->near, s->pd, &s->other,
          VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC);
    tenant_fill(s);
    for (uint32_t i = 0; i < 2; i++)
        load(s, &s->tenant[i], kind[i]);
    for (uint32_t u = 0; u < s->units; u++)
        vb_pu_observe(vb_dev_pu_at(s->near, u), tenant_observe, s);
    vb_pu_observe(vb_dev_pu(s->far), tenant_observe_far, s);
}

// ---- the end

static void unload(struct tenant_server *s, struct tenant *t)
{
    for (uint32_t i = 0; i < t->image->queues; i++) {
        tenant_require(vb_dev_qp_destroy(s->near, t->qpn[i]) == 0);
        drop(s->near, &t->send[i]);
        drop(s->near, &t->recv[i]);
        free(t->marked[i]);
    }
    tenant_require(vb_dev_qp_destroy(s->far, t->far_qpn) == 0);
    drop(s->far, &t->far_ring);
    drop(s->far, &t->far_recvs);
    drop(s->far, &t->far_payload);
    for (uint32_t i = 0; i < t->image->regions; i++)
        if (t->image->region[i].kind != VB_REGION_SHARED)
            drop(t->image->region[i].kind == VB_REGION_PEER ? s->far : s->near, &t->data[i]);
    tenant_require(vb_dev_program_destroy(s->near, t->program) == 0);
    for (uint32_t i = 0; i < t->image->cqs; i++) {
        tenant_require(vb_dev_cq_destroy(s->near, t->cq[i].cqn) == 0);
        free(t->cq[i].ring);
    }
    tenant_require(vb_dev_cq_destroy(s->far, t->far_cq.cqn) == 0);
    free(t->far_cq.ring);
}

void tenant_close(struct tenant_server *s)
{
    for (uint32_t u = 0; u <= s->units; u++) {
        struct vb_pu *pu = u < s->units ? vb_dev_pu_at(s->near, u) : vb_dev_pu(s->far);
        struct vb_txq *q = vb_pu_txq(pu);
        vb_pu_feed(pu, NULL, 0);
        q->taken = q->count;
        vb_pu_tx_release(pu);
        for (uint32_t i = 0; i < s->lane[u].count; i++)
            free((void *)(uintptr_t)s->lane[u].frame[i].data);
    }
    for (uint32_t i = 0; i < 2; i++)
        unload(s, &s->tenant[i]);
    drop(s->near, &s->index);
    drop(s->near, &s->items);
    drop(s->near, &s->other);
    tenant_require(vb_dev_pd_destroy(s->near, s->pd) == 0);
    tenant_require(vb_dev_pd_destroy(s->far, s->far_pd) == 0);
}
