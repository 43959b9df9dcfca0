// SPDX-License-Identifier: Apache-2.0
// A device for a chain program, and one for its clients.
#include "chain/machine.h"

#include "base/bytes.h"
#include "base/prng.h"
#include "chain/code.h"
#include "nic/dev.h"
#include "wire/roce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEP_NS = 50,
    WIRE_FRAMES = 512,
    CLIENT_DEPTH = 256, // requests and replies of a client
    REPLY_BYTES = 256,
    UNITS_MAX = 16,
    ADDR_FIRST = 1 << 24,
    ADDR_STEP = 1 << 16,
    // Of every connection.
    MTU_BYTES = 4096,
    READS_MAX = 16,
    RNR_TIMER = 1,
    ACK_TIMEOUT = 14,
    RETRIES = 7,
    PORT = 4791,
};

static const struct vb_ip near_ip = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                          far_ip = {{[10] = 0xff, 0xff, 10, 0, 0, 2}};

// Frames on their way to one unit, oldest first.
struct wire {
    uint32_t head, count;
    struct vb_ip from;
    uint32_t len[WIRE_FRAMES];
    uint8_t bytes[WIRE_FRAMES][VB_FRAME_MAX];
    struct vb_rx_frame frame; // the one being handed over
};

struct cq {
    uint8_t *ring;
    uint32_t dbrec[2];
    uint32_t entries, taken;
};

struct queue {
    uint32_t dbrec[2];
    uint8_t fault;
    uint64_t executed;
    // The client's end.
    uint32_t far_qpn, far_dbrec[2];
    uint8_t *far_ring, *far_recvs, *far_memory; // requests, then replies
    uint32_t far_key;
    struct cq far_cq;
    uint32_t sent, received;
};

struct vb_machine {
    const struct vb_image *image;
    struct vb_machine_opts opts;
    struct vb_prng prng;
    struct vb_dev *near, *far;
    uint32_t units, pd, far_pd, program;
    uint64_t now_ns;
    uint64_t next_addr; // of the program's memory: the same in every run
    struct cq *cq;
    struct queue *queue;
    struct vb_image_memory *send, *recv, *data;
    uint32_t *qpn, *cqn; // numbers of queues and of completion queues
    struct wire *wire;   // by unit; the last is the clients'
};

// ---- building

static bool say(char *error, const char *name, const char *text)
{
    snprintf(error, VB_IMAGE_TEXT, "'%s' %s", name, text);
    return false;
}

static void *zeros(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (p)
        memset(p, 0, bytes);
    return p;
}

// The attributes say where it is, how long, and where it starts.
static bool make_cq(struct vb_dev *dev, struct cq *cq, struct vb_cqc_attr attr, uint32_t *cqn)
{
    cq->entries = attr.entries;
    cq->ring = zeros((size_t)attr.entries * VB_CQE_BYTES);
    if (!cq->ring)
        return false;
    for (uint32_t i = 0; i < attr.entries; i++)
        cq->ring[i * VB_CQE_BYTES + VB_CQE_BYTES - 1] = VB_CQE_INVALID << 4;
    attr.ring = cq->ring;
    attr.dbrec = cq->dbrec;
    attr.ignore_overrun = true;
    return vb_dev_cq_create(dev, &attr, cqn) == 0;
}

static bool make_memory(struct vb_dev *dev, uint32_t pd, struct vb_image_memory *mem, size_t bytes,
                        uint32_t access)
{
    mem->at = zeros(bytes);
    if (!mem->at)
        return false;
    if (!mem->addr)
        mem->addr = (uintptr_t)mem->at;
    return vb_dev_mkey_create(
               dev,
               &(struct vb_mkey_attr){
                   .pd = pd, .access = access, .start = mem->addr, .len = bytes, .base = mem->at},
               &mem->key) == 0;
}

// Addresses that do not depend on where this process has its memory, so that what a program leaves
// behind can be compared.
static uint64_t next_addr(struct vb_machine *m, uint64_t bytes)
{
    uint64_t addr = m->next_addr;
    m->next_addr += (bytes + 2 * ADDR_STEP - 1) / ADDR_STEP * ADDR_STEP;
    return addr;
}

static bool make_region(struct vb_machine *m, uint32_t i)
{
    const struct vb_image_region *r = &m->image->region[i];
    uint64_t bytes = vb_machine_bytes(m, i);
    uint32_t access = VB_REMOTE_READ;

    m->data[i].addr = next_addr(m, bytes);
    if (r->kind == VB_REGION_PEER)
        return make_memory(m->far, m->far_pd, &m->data[i], bytes,
                           VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE);
    if (r->writable)
        access |= VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;
    return make_memory(m->near, m->pd, &m->data[i], bytes, access);
}

static bool make_queue(struct vb_machine *m, uint32_t i)
{
    const struct vb_image_queue *q = &m->image->queue[i];
    const uint32_t code = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;
    struct queue *made = &m->queue[i];

    m->send[i].addr = next_addr(m, (uint64_t)q->blocks * VB_WQEBB_BYTES);
    m->recv[i].addr = next_addr(m, (uint64_t)q->recvs * q->recv_stride);
    if (!make_memory(m->near, m->pd, &m->send[i], (size_t)q->blocks * VB_WQEBB_BYTES, code) ||
        (q->recvs &&
         !make_memory(m->near, m->pd, &m->recv[i], (size_t)q->recvs * q->recv_stride, code)))
        return false;
    made->dbrec[0] = made->dbrec[1] = htobe32((uint32_t)m->opts.start & 0xffff);
    return vb_dev_qp_create(m->near,
                            &(struct vb_qpc_attr){
                                .pd = m->pd,
                                .send_cqn = m->cqn[q->send_cq],
                                .recv_cqn = m->cqn[q->recv_cq],
                                .sq_ring = m->send[i].at,
                                .sq_blocks = q->blocks,
                                .rq_ring = m->recv[i].at,
                                .rq_entries = q->recvs,
                                .rq_stride_bytes = q->recv_stride,
                                .dbrec = made->dbrec,
                                .sq_start = m->opts.start,
                                .rq_start = m->opts.start,
                                .no_wqe_checks = !q->wqe_checks,
                                .be_replies = q->be_replies,
                                .cross_channel = true,
                                .managed_send = q->managed_send,
                                .managed_recv = q->managed_recv,
                                .fetch_depth = m->opts.fetch_depth,
                                .rate = m->opts.rate,
                                .burst = m->opts.burst,
                                .program = m->program,
                            },
                            &m->qpn[i]) == 0;
}

// ---- the clients

static bool make_client(struct vb_machine *m, struct queue *q)
{
    struct vb_image_memory mem = {0};
    size_t requests = (size_t)CLIENT_DEPTH * REPLY_BYTES;
    uint32_t cqn;

    q->far_ring = zeros((size_t)CLIENT_DEPTH * VB_WQEBB_BYTES);
    q->far_recvs = zeros((size_t)CLIENT_DEPTH * VB_WQE_SEG_BYTES);
    bool made =
        q->far_ring && q->far_recvs &&
        make_cq(m->far, &q->far_cq, (struct vb_cqc_attr){.entries = CLIENT_DEPTH * 2}, &cqn) &&
        make_memory(m->far, m->far_pd, &mem, 2 * requests, VB_LOCAL_WRITE);
    q->far_memory = mem.at;
    if (!made)
        return false;
    q->far_key = mem.key;
    for (uint32_t i = 0; i < CLIENT_DEPTH; i++) {
        uint8_t *seg = q->far_recvs + i * VB_WQE_SEG_BYTES;
        vb_put_be32(seg, REPLY_BYTES);
        vb_put_be32(seg + 4, mem.key);
        vb_put_be64(seg + 8, mem.addr + requests + (uint64_t)i * REPLY_BYTES);
    }
    q->far_dbrec[VB_DBREC_RQ] = htobe32(CLIENT_DEPTH);
    return vb_dev_qp_create(m->far,
                            &(struct vb_qpc_attr){
                                .pd = m->far_pd,
                                .send_cqn = cqn,
                                .recv_cqn = cqn,
                                .sq_ring = q->far_ring,
                                .sq_blocks = CLIENT_DEPTH,
                                .rq_ring = q->far_recvs,
                                .rq_entries = CLIENT_DEPTH,
                                .rq_stride_bytes = VB_WQE_SEG_BYTES,
                                .dbrec = q->far_dbrec,
                                .no_wqe_checks = true,
                            },
                            &q->far_qpn) == 0;
}

static bool connect(struct vb_dev *dev, uint32_t qpn, uint32_t to, const struct vb_ip *local,
                    const struct vb_ip *remote, uint32_t access)
{
    struct vb_qpc_mods mods = {
        .access = access,
        .dest_qpn = to,
        .mtu_bytes = MTU_BYTES,
        .max_rd_atomic = READS_MAX,
        .max_dest_rd_atomic = READS_MAX,
        .min_rnr_timer = RNR_TIMER,
        .timeout = ACK_TIMEOUT,
        .retry_cnt = RETRIES,
        .rnr_retry = VB_RETRY_INFINITE,
        .local = *local,
        .remote = *remote,
        .src_port = PORT,
    };
    int err = 0;

    for (mods.state = VB_QPS_INIT; !err && mods.state <= VB_QPS_RTS; mods.state++)
        err = vb_dev_qp_modify(dev, qpn, &mods);
    return !err;
}

static bool connect_queue(struct vb_machine *m, uint32_t i)
{
    const struct vb_image_queue *q = &m->image->queue[i];
    struct queue *made = &m->queue[i];
    const uint32_t all = VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;

    if (q->kind == VB_QUEUE_LOOP)
        return connect(m->near, m->qpn[i], m->qpn[i], &near_ip, &near_ip, all);
    return make_client(m, made) &&
           connect(m->near, m->qpn[i], made->far_qpn, &near_ip, &far_ip, 0) &&
           connect(m->far, made->far_qpn, m->qpn[i], &far_ip, &near_ip, all);
}

// ---- life

static bool has_clients(const struct vb_image *image)
{
    for (uint32_t i = 0; i < image->queues; i++)
        if (image->queue[i].kind == VB_QUEUE_PEER)
            return true;
    for (uint32_t i = 0; i < image->regions; i++)
        if (image->region[i].kind == VB_REGION_PEER)
            return true;
    return false;
}

static bool make_devices(struct vb_machine *m)
{
    const struct vb_dev_opts opts = {.seed = m->opts.seed + 1,
                                     .pus = m->units,
                                     .fetch_depth = m->opts.fetch_depth,
                                     .check_zero_length = true};

    m->near = vb_dev_create(&opts);
    if (!m->near || vb_dev_pd_create(m->near, &m->pd) != 0)
        return false;
    if (m->opts.limit &&
        vb_dev_program_create(m->near,
                              &(struct vb_program_attr){.pd = m->pd, .limit = m->opts.limit},
                              &m->program) != 0)
        return false;
    if (!has_clients(m->image))
        return true;
    m->far = vb_dev_create(&(struct vb_dev_opts){.seed = m->opts.seed + 2});
    m->wire = calloc(m->units + 1, sizeof *m->wire);
    for (uint32_t i = 0; m->wire && i <= m->units; i++)
        m->wire[i].from = i < m->units ? far_ip : near_ip;
    return m->wire && m->far && vb_dev_pd_create(m->far, &m->far_pd) == 0;
}

static bool make_objects(struct vb_machine *m, char *error)
{
    const struct vb_image *image = m->image;

    for (uint32_t i = 0; i < image->cqs; i++)
        if (!make_cq(m->near, &m->cq[i],
                     (struct vb_cqc_attr){.pu = (uint32_t)vb_prng_below(&m->prng, m->units),
                                          .entries = image->cq[i].entries,
                                          .start = m->opts.start},
                     &m->cqn[i]))
            return say(error, image->cq[i].name, "cannot be made: no memory");
    for (uint32_t i = 0; i < image->regions; i++)
        if (!make_region(m, i))
            return say(error, image->region[i].name, "cannot be made: no memory");
    for (uint32_t i = 0; i < image->queues; i++)
        if (!make_queue(m, i))
            return say(error, image->queue[i].name, "cannot be made");
    return true;
}

// Opens what may run from the start, as a driver does: by the doorbell.
static void open_queue(struct vb_machine *m, uint32_t i)
{
    const struct vb_image_queue *q = &m->image->queue[i];
    struct queue *made = &m->queue[i];
    uint32_t start = (uint32_t)m->opts.start;

    made->dbrec[VB_DBREC_SQ] = htobe32((start + q->open) & 0xffff);
    made->dbrec[VB_DBREC_RQ] = htobe32((start + q->recv_open) & 0xffff);
    struct vb_pu *pu = vb_dev_pu_at(m->near, m->qpn[i] & (m->units - 1));
    vb_doorbell_ring(vb_pu_doorbells(pu), m->qpn[i]);
}

static struct vb_image_binding binding_of(const struct vb_machine *m)
{
    return (struct vb_image_binding){.send = m->send,
                                     .recv = m->recv,
                                     .data = m->data,
                                     .qpn = m->qpn,
                                     .cqn = m->cqn,
                                     .start = m->opts.start};
}

static bool load(struct vb_machine *m, char *error)
{
    const struct vb_image *image = m->image;

    if (!make_devices(m))
        return say(error, image->name, "cannot be loaded: no memory for its devices");
    if (!make_objects(m, error))
        return false;
    const struct vb_image_binding binding = binding_of(m);
    vb_image_place(image, &binding);
    for (uint32_t i = 0; i < image->queues; i++) {
        if (!connect_queue(m, i))
            return say(error, image->queue[i].name, "cannot be connected");
        open_queue(m, i);
    }
    return true;
}

static bool is_startable(const struct vb_image *image, uint64_t start)
{
    for (uint32_t i = 0; i < image->queues; i++)
        if (start % image->queue[i].blocks ||
            (image->queue[i].recvs && start % image->queue[i].recvs))
            return false;
    return true;
}

struct vb_machine *vb_machine_create(const struct vb_image *image,
                                     const struct vb_machine_opts *opts, char *error)
{
    if (!vb_image_check(image, error))
        return NULL;
    if (!is_startable(image, opts->start)) {
        say(error, image->name, "must start its counters at a multiple of every ring's size");
        return NULL;
    }
    struct vb_machine *m = calloc(1, sizeof *m);
    if (!m) {
        say(error, image->name, "cannot be loaded: no memory");
        return NULL;
    }
    m->image = image;
    m->opts = *opts;
    m->units = opts->units && opts->units <= UNITS_MAX ? opts->units : 1;
    m->prng.state = opts->seed;
    m->next_addr = ADDR_FIRST;
    m->cq = calloc(image->cqs, sizeof *m->cq);
    m->cqn = calloc(image->cqs, sizeof *m->cqn);
    m->queue = calloc(image->queues, sizeof *m->queue);
    m->qpn = calloc(image->queues, sizeof *m->qpn);
    m->send = calloc(image->queues, sizeof *m->send);
    m->recv = calloc(image->queues, sizeof *m->recv);
    m->data = calloc(image->regions, sizeof *m->data);
    bool room = m->cq && m->cqn && m->queue && m->qpn && m->send && m->recv && m->data;
    if (!room)
        say(error, image->name, "cannot be loaded: no memory");
    if (room && load(m, error))
        return m;
    vb_machine_destroy(m);
    return NULL;
}

void vb_machine_destroy(struct vb_machine *m)
{
    if (!m)
        return;
    if (m->near)
        vb_dev_destroy(m->near);
    if (m->far)
        vb_dev_destroy(m->far);
    for (uint32_t i = 0; m->cq && i < m->image->cqs; i++)
        free(m->cq[i].ring);
    for (uint32_t i = 0; m->queue && i < m->image->queues; i++) {
        free(m->queue[i].far_ring);
        free(m->queue[i].far_recvs);
        free(m->queue[i].far_memory);
        free(m->queue[i].far_cq.ring);
    }
    for (uint32_t i = 0; m->send && m->recv && i < m->image->queues; i++) {
        free(m->send[i].at);
        free(m->recv[i].at);
    }
    for (uint32_t i = 0; m->data && i < m->image->regions; i++)
        free(m->data[i].at);
    free(m->wire);
    free(m->cq);
    free(m->cqn);
    free(m->queue);
    free(m->qpn);
    free(m->send);
    free(m->recv);
    free(m->data);
    free(m);
}

// ---- looking

uint8_t *vb_machine_data(struct vb_machine *m, uint32_t region)
{
    return m->data[region].at;
}

uint8_t *vb_machine_send_ring(struct vb_machine *m, uint32_t queue)
{
    return m->send[queue].at;
}

uint8_t *vb_machine_recv_ring(struct vb_machine *m, uint32_t queue)
{
    return m->recv[queue].at;
}

uint64_t vb_machine_address(struct vb_machine *m, uint32_t region)
{
    return m->data[region].addr;
}

uint32_t vb_machine_qpn(const struct vb_machine *m, uint32_t queue)
{
    return m->qpn[queue];
}

int vb_machine_queue(const struct vb_machine *m, uint32_t qpn)
{
    for (uint32_t i = 0; i < m->image->queues; i++)
        if (m->qpn[i] == qpn)
            return (int)i;
    return -1;
}

int vb_machine_cq(const struct vb_machine *m, uint32_t cqn)
{
    for (uint32_t i = 0; i < m->image->cqs; i++)
        if (m->cqn[i] == cqn)
            return (int)i;
    return -1;
}

uint64_t vb_machine_bytes(const struct vb_machine *m, uint32_t region)
{
    const struct vb_image_region *r = &m->image->region[region];
    bool more = r->kind == VB_REGION_SHARED && m->opts.shared_bytes > r->bytes;
    return more ? m->opts.shared_bytes : r->bytes;
}

uint64_t vb_machine_now_ns(const struct vb_machine *m)
{
    return m->now_ns;
}

uint8_t vb_machine_fault(struct vb_machine *m, uint32_t queue)
{
    return m->queue[queue].fault;
}

uint64_t vb_machine_executed(struct vb_machine *m, uint32_t queue)
{
    return m->queue[queue].executed;
}

struct vb_image *vb_machine_snapshot(const struct vb_machine *m)
{
    const struct vb_image_binding binding = binding_of(m);
    return vb_image_snapshot(m->image, &binding);
}

// ---- the wire

static struct vb_pu *unit_at(struct vb_machine *m, uint32_t at)
{
    return at < m->units ? vb_dev_pu_at(m->near, at) : vb_dev_pu(m->far);
}

// Takes what a unit has sent to those it is for, while they have room for it.
static void carry(struct vb_machine *m, uint32_t from)
{
    struct vb_pu *pu = unit_at(m, from);
    struct vb_txq *q = vb_pu_txq(pu);

    for (; q->taken < q->count; q->taken++) {
        const struct vb_tx_frame *f = &q->frame[q->taken];
        const uint8_t *bth = q->arena + f->offset;
        struct wire *w = &m->wire[from < m->units ? m->units : bth[7] & (m->units - 1)];
        if (w->count == WIRE_FRAMES)
            return;
        uint32_t slot = (w->head + w->count++) % WIRE_FRAMES;
        vb_tx_copy(q, f, w->bytes[slot]);
        w->len[slot] = f->len;
    }
    vb_pu_tx_release(pu);
}

// The oldest frame on its way.
static struct vb_rx_frame take_frame(struct wire *w)
{
    uint32_t slot = w->head;

    w->head = (slot + 1) % WIRE_FRAMES;
    w->count--;
    return (struct vb_rx_frame){
        .data = w->bytes[slot], .head = w->bytes[slot], .len = w->len[slot], .src = w->from};
}

// Hands a unit its next frame, when it has consumed the last one.
static void deliver(struct vb_machine *m, uint32_t to)
{
    struct wire *w = &m->wire[to];
    struct vb_pu *pu = unit_at(m, to);

    if (w->count == 0 || vb_pu_frames_left(pu) > 0)
        return;
    w->frame = take_frame(w);
    vb_pu_feed(pu, &w->frame, 1);
}

// ---- steps

static void note(struct vb_machine *m, const struct vb_step *step)
{
    int i = vb_machine_queue(m, step->qpn);

    if (i < 0)
        return;
    struct queue *q = &m->queue[i];
    if (step->kind == VB_STEP_EXEC)
        q->executed++;
    if (step->kind == VB_STEP_COMPLETE && step->detail && !q->fault)
        q->fault = step->detail;
}

static bool try_step(struct vb_machine *m, uint32_t at, struct vb_step *step)
{
    struct vb_pu *pu = unit_at(m, at);

    if (m->far)
        deliver(m, at);
    *step = vb_pu_step(pu, m->now_ns);
    if (m->far)
        carry(m, at);
    if (step->kind == VB_STEP_NONE)
        return false;
    m->now_ns += STEP_NS;
    if (at < m->units)
        note(m, step);
    return true;
}

// Nobody has anything to do: time passes until the next timer.
static bool skip_time(struct vb_machine *m, uint32_t parties)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < parties; i++) {
        uint64_t deadline = vb_pu_deadline(unit_at(m, i));
        next = deadline < next ? deadline : next;
    }
    if (next == UINT64_MAX)
        return false;
    m->now_ns = next > m->now_ns ? next : m->now_ns;
    return true;
}

bool vb_machine_step(struct vb_machine *m, struct vb_step *step, uint32_t *unit)
{
    uint32_t parties = m->units + (m->far != NULL);
    uint32_t last = m->opts.last == UINT32_MAX ? m->units : m->opts.last - 1;

    for (;;) {
        uint32_t first = (uint32_t)vb_prng_below(&m->prng, parties);
        for (uint32_t i = 0; i <= parties; i++) {
            uint32_t at = i < parties ? (first + i) % parties : last;
            if ((at == last) != (i == parties) || at >= parties || !try_step(m, at, step))
                continue;
            *unit = at < m->units ? at : UINT32_MAX;
            return true;
        }
        if (!skip_time(m, parties))
            return false;
    }
}

uint64_t vb_machine_run(struct vb_machine *m, uint64_t steps_max)
{
    struct vb_step step;
    uint64_t steps = 0;
    uint32_t unit;

    while (steps < steps_max && vb_machine_step(m, &step, &unit))
        steps++;
    return steps;
}

// All that is on its way to a unit, at once.
static void deliver_all(struct vb_machine *m, uint32_t to, struct vb_rx_frame *frames)
{
    struct wire *w = &m->wire[to];
    uint32_t n = 0;

    while (n < WIRE_FRAMES / 2 && w->count > 0)
        frames[n++] = take_frame(w);
    if (n > 0)
        vb_pu_feed(unit_at(m, to), frames, n);
}

void vb_machine_poll(struct vb_machine *m)
{
    struct vb_rx_frame frames[WIRE_FRAMES / 2];
    uint32_t parties = m->units + (m->far != NULL), steps;

    do {
        steps = 0;
        for (uint32_t i = 0; i < parties; i++) {
            if (m->far && vb_pu_frames_left(unit_at(m, i)) == 0)
                deliver_all(m, i, frames);
            steps += vb_pu_poll(unit_at(m, i), m->now_ns);
            if (m->far)
                carry(m, i);
        }
        m->now_ns += STEP_NS;
    } while (steps > 0);
}

// ---- requests and replies

int vb_machine_send(struct vb_machine *m, uint32_t queue, const void *payload, uint32_t len)
{
    struct queue *q = &m->queue[queue];
    uint32_t slot = q->sent % CLIENT_DEPTH;

    if (len > REPLY_BYTES || m->image->queue[queue].kind != VB_QUEUE_PEER)
        return -1;
    uint8_t *at = q->far_memory + (size_t)slot * REPLY_BYTES;
    if (len)
        memcpy(at, payload, len);
    vb_code_write(q->far_ring + slot * VB_WQEBB_BYTES,
                  &(struct vb_code){.opcode = VB_WQE_SEND,
                                    .num_sge = len > 0,
                                    .sge = {{(uintptr_t)at, q->far_key, len}}},
                  true);
    q->sent++;
    __atomic_store_n(&q->far_dbrec[VB_DBREC_SQ], htobe32(q->sent & 0xffff), __ATOMIC_RELEASE);
    vb_doorbell_ring(vb_dev_doorbells(m->far), q->far_qpn);
    return 0;
}

bool vb_machine_take(struct vb_machine *m, uint32_t queue, struct vb_machine_reply *reply)
{
    struct queue *q = &m->queue[queue];
    struct cq *cq = &q->far_cq;
    const struct vb_cqe *cqe;

    if (!cq->ring)
        return false;
    do {
        cqe = (const void *)(cq->ring + (cq->taken & (cq->entries - 1)) * VB_CQE_BYTES);
        if (cqe->op_own >> 4 == VB_CQE_INVALID || (cqe->op_own & 1) != !!(cq->taken & cq->entries))
            return false;
        cq->taken++;
    } while (cqe->op_own >> 4 == VB_CQE_REQ || cqe->op_own >> 4 == VB_CQE_REQ_ERR);
    uint8_t opcode = cqe->op_own >> 4;
    uint32_t slot = q->received++ % CLIENT_DEPTH;
    *reply = (struct vb_machine_reply){.with_imm = opcode == VB_CQE_RESP_WR_IMM ||
                                                   opcode == VB_CQE_RESP_SEND_IMM,
                                       .imm = be32toh(cqe->imm_inval_pkey),
                                       .len = be32toh(cqe->byte_cnt)};
    if (opcode != VB_CQE_RESP_WR_IMM && reply->len <= REPLY_BYTES)
        memcpy(reply->bytes, q->far_memory + (size_t)(CLIENT_DEPTH + slot) * REPLY_BYTES,
               reply->len);
    q->far_dbrec[VB_DBREC_RQ] = htobe32((CLIENT_DEPTH + q->received) & 0xffff);
    vb_doorbell_ring(vb_dev_doorbells(m->far), q->far_qpn);
    return true;
}
