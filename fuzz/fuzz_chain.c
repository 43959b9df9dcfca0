// SPDX-License-Identifier: Apache-2.0
// Chain programs of arbitrary bytes: queue pairs that are connected with themselves or with each
// other, managed or not, in one program or in none, on one or two units, whose rings are written
// while they run, by the host and by themselves. Nothing crashes, no poll goes on for ever, what is
// touched is registered, and whatever was opened is flushed in the end.
// Input: one byte of set-up, then one command after the other.
#include "host/driver.h"
#include "nic/dev.h"
#include "nic/pu.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    SELF,         // with itself
    SELF_MANAGED, // the same, managed, in the program
    FRONT,        // with the next one: managed both ways, in the program
    BACK,         // not cross-channel, receives are managed
    QPS,
    CQS = 5,   // from the third on they ignore overruns
    AUDIT = 3, // the program's
    FREE = 4,  // nobody's, but for those who wait for it
    REGIONS = 2,
    BYTES = 512,
    BLOCKS = 8,
    STEPS = 40000,       // far more than one poll may take
    FLUSH_ROUNDS = 1000, // far more than there are requests for
    WIRE = 16,
    START = 0xfffc,
};

enum { // bits of the first byte
    SETUP_UNITS = 1 << 0,
    SETUP_CHECKS = 1 << 1,
    SETUP_UNOBSERVED = 1 << 2,
    SETUP_DEPTH = 1 << 3, // one entry is fetched ahead
    SETUP_RATE = 1 << 4,
    SETUP_LIMIT = 1 << 5,
};

struct queue {
    struct vb_driver_qp driver;
    struct vb_qpc *ctx;
    uint32_t code; // keys of its rings
    uint32_t recv_code;
};

struct rig {
    const uint8_t *data;
    size_t left;
    uint8_t setup;
    struct vb_dev *dev;
    uint32_t units, pd, program;
    uint64_t now_ns;
    struct vb_driver_cq cq[CQS];
    uint32_t cqn[CQS];
    uint8_t *region[REGIONS];
    uint32_t key[REGIONS];
    struct queue qp[QPS];
    struct {
        uint8_t bytes[VB_FRAME_MAX];
        uint32_t len;
    } wire[WIRE];
    uint32_t wired;
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

// ---- choices

static uint8_t u8(struct rig *r)
{
    if (r->left == 0)
        return 0;
    r->left--;
    return *r->data++;
}

static uint32_t u32(struct rig *r)
{
    uint32_t high = (uint32_t)u8(r) << 24 | (uint32_t)u8(r) << 16;
    return high | (uint32_t)u8(r) << 8 | u8(r);
}

// An address in a region or a ring, mostly within, and its key, mostly.
static uint64_t address(struct rig *r, uint32_t *key)
{
    uint8_t where = u8(r), offset = u8(r);
    const struct queue *q = &r->qp[where % QPS];
    uint64_t at;

    if (where & 0x10) {
        at = (uintptr_t)q->driver.sq.ring + offset * 4u;
        *key = q->code;
    } else if (where & 0x20 && q->driver.rq.ring) {
        at = (uintptr_t)q->driver.rq.ring + offset;
        *key = q->recv_code;
    } else {
        at = (uintptr_t)r->region[where % REGIONS] + offset * 4u;
        *key = r->key[where % REGIONS];
    }
    if (where & 0x80)
        *key ^= u8(r);
    if (where & 0x40)
        at += u8(r);
    return at;
}

// ---- what must hold

static bool lies_in(const uint8_t *at, uint32_t len, const uint8_t *base, size_t bytes)
{
    return base && at >= base && len <= bytes && at - base <= (ptrdiff_t)(bytes - len);
}

static bool is_registered(const struct rig *r, const uint8_t *at, uint32_t len)
{
    for (uint32_t i = 0; i < REGIONS; i++)
        if (lies_in(at, len, r->region[i], BYTES))
            return true;
    for (uint32_t i = 0; i < QPS; i++) {
        const struct vb_driver_qp *d = &r->qp[i].driver;
        if (lies_in(at, len, d->sq.ring, (size_t)d->sq.blocks * VB_WQEBB_BYTES) ||
            lies_in(at, len, d->rq.ring, (size_t)d->rq.entries * d->rq.stride))
            return true;
    }
    return len == 0;
}

static void observe(void *ctx, const struct vb_step *step)
{
    const struct rig *r = ctx;
    for (uint32_t i = 0; i < step->touches; i++)
        require(is_registered(r, step->touch[i].addr, step->touch[i].len));
    for (uint32_t i = 0; i < QPS; i++)
        if (r->qp[i].driver.qpn == step->qpn &&
            (step->kind == VB_STEP_FETCH || (step->kind == VB_STEP_EXEC && !step->detail)))
            require(r->qp[i].ctx->state == VB_QPS_RTS || r->qp[i].ctx->state == VB_QPS_ERR);
}

// ---- objects

static void create_cq(struct rig *r, uint32_t i)
{
    require(vb_driver_cq_init(&r->cq[i], i < 2 ? 64 : 4, START) == 0);
    const struct vb_cqc_attr attr = {.pu = i % r->units,
                                     .ring = r->cq[i].ring,
                                     .entries = r->cq[i].entries,
                                     .dbrec = r->cq[i].dbrec,
                                     .start = START,
                                     .ignore_overrun = i >= 2};
    require(vb_dev_cq_create(r->dev, &attr, &r->cqn[i]) == 0);
}

static uint32_t create_key(struct rig *r, uint8_t *base, size_t len)
{
    const struct vb_mkey_attr attr = {.pd = r->pd,
                                      .access = VB_ACCESS_ALL & ~(uint32_t)VB_BIND,
                                      .start = (uintptr_t)base,
                                      .len = len,
                                      .base = base};
    uint32_t key;
    require(vb_dev_mkey_create(r->dev, &attr, &key) == 0);
    return key;
}

static struct vb_qpc_attr attr_of(const struct rig *r, uint32_t i)
{
    const struct vb_driver_qp *d = &r->qp[i].driver;
    bool cross = i != BACK;
    return (struct vb_qpc_attr){.pd = r->pd,
                                .send_cqn = r->cqn[i == FRONT ? 2 : i % 2],
                                .recv_cqn = r->cqn[i == FRONT ? 2 : i % 2],
                                .sq_ring = d->sq.ring,
                                .sq_blocks = d->sq.blocks,
                                .rq_ring = d->rq.ring,
                                .rq_entries = d->rq.entries,
                                .rq_stride_bytes = d->rq.stride,
                                .dbrec = d->dbrec,
                                .sq_start = START,
                                .rq_start = START,
                                .no_wqe_checks = !(r->setup & SETUP_CHECKS),
                                .cross_channel = cross,
                                .managed_send = i == SELF_MANAGED || i == FRONT,
                                .managed_recv = i >= FRONT,
                                .fetch_depth = cross && r->setup & SETUP_DEPTH ? 1 : 0,
                                .rate = cross && r->setup & SETUP_RATE ? 1000000 : 0,
                                .burst = 4,
                                .program = i == FRONT || i == SELF_MANAGED ? r->program : 0};
}

static void create_qp(struct rig *r, uint32_t i)
{
    struct queue *q = &r->qp[i];
    const struct vb_qp_opts opts = {
        .send_depth = BLOCKS, .recv_depth = i >= FRONT ? 4 : 0, .send_sge = 2, .recv_sge = 2};
    require(vb_driver_qp_init(&q->driver, &opts, START, START) == 0);
    const struct vb_qpc_attr attr = attr_of(r, i);
    require(vb_dev_qp_create(r->dev, &attr, &q->driver.qpn) == 0);
    q->ctx = vb_dev_qp(r->dev, q->driver.qpn);
    q->driver.doorbells = vb_pu_doorbells(q->ctx->pu);
    q->code = create_key(r, q->driver.sq.ring, (size_t)q->driver.sq.blocks * VB_WQEBB_BYTES);
    if (q->driver.rq.ring)
        q->recv_code =
            create_key(r, q->driver.rq.ring, (size_t)q->driver.rq.entries * q->driver.rq.stride);
}

static void destroy_qp(struct rig *r, uint32_t i)
{
    struct queue *q = &r->qp[i];
    for (uint32_t u = 0; u < r->units; u++)
        vb_pu_tx_keep(vb_dev_pu_at(r->dev, u));
    require(vb_dev_mkey_destroy(r->dev, q->code) == 0);
    if (q->driver.rq.ring)
        require(vb_dev_mkey_destroy(r->dev, q->recv_code) == 0);
    require(vb_dev_qp_destroy(r->dev, q->driver.qpn) == 0);
    vb_driver_qp_fini(&q->driver);
}

static void modify(struct rig *r, uint32_t i, enum vb_qp_state state)
{
    struct queue *q = &r->qp[i];
    struct vb_qpc_mods m = {.state = state,
                            .access = VB_ACCESS_REMOTE,
                            .dest_qpn =
                                i < FRONT ? q->driver.qpn : r->qp[FRONT + BACK - i].driver.qpn,
                            .mtu_bytes = 256,
                            .max_rd_atomic = 2,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = 1,
                            .timeout = 4,
                            .retry_cnt = 3,
                            .rnr_retry = 2,
                            .local = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                            .src_port = 0xc123};
    m.remote = m.local;
    if (state == VB_QPS_RESET)
        vb_driver_qp_reset(&q->driver);
    (void)vb_dev_qp_modify(r->dev, q->driver.qpn, &m);
    vb_doorbell_ring(q->driver.doorbells, q->driver.qpn);
}

static void connect(struct rig *r, uint32_t i)
{
    for (enum vb_qp_state s = VB_QPS_RESET; s <= VB_QPS_RTS; s++)
        modify(r, i, s);
}

// ---- entries

static void put(uint8_t *entry, uint32_t *len, const void *segment)
{
    memcpy(entry + *len, segment, VB_WQE_SEG_BYTES);
    *len += VB_WQE_SEG_BYTES;
}

static void put_data(struct rig *r, uint8_t *entry, uint32_t *len, uint32_t bytes)
{
    uint32_t key;
    uint64_t at = address(r, &key);
    const struct vb_wqe_data seg = {htobe32(bytes), htobe32(key), htobe64(at)};
    put(entry, len, &seg);
}

static void put_cross(struct rig *r, uint8_t *entry, uint32_t *len, uint8_t opcode)
{
    uint8_t choice = u8(r);
    const struct queue *q = &r->qp[choice % QPS];
    uint64_t base = opcode == VB_WQE_RECV_EN ? q->ctx->rq.end : q->ctx->sq.end;
    uint32_t object = q->driver.qpn;

    if (opcode == VB_WQE_WAIT) {
        object = r->cqn[choice % CQS];
        vb_dev_cq_produced(r->dev, object, &base);
    }
    if (choice & 0x80)
        object = u32(r);
    const struct vb_wqe_wait seg = {
        .index = htobe32((uint32_t)base + (choice & 0x40 ? u32(r) : choice / 4 % 16u)),
        .object = htobe32(object)};
    put(entry, len, &seg);
}

static void put_body(struct rig *r, uint8_t *entry, uint32_t *len, uint8_t opcode, uint8_t opmod)
{
    uint32_t key, bytes = opmod ? 16 : u8(r);
    struct vb_wqe_raddr raddr;

    if (opcode == VB_WQE_WAIT || opcode == VB_WQE_SEND_EN || opcode == VB_WQE_RECV_EN) {
        put_cross(r, entry, len, opcode);
        return;
    }
    if (opcode == VB_WQE_NOP)
        return;
    if (opcode != VB_WQE_SEND) {
        raddr = (struct vb_wqe_raddr){.raddr = htobe64(address(r, &key))};
        raddr.rkey = htobe32(key);
        put(entry, len, &raddr);
    }
    if (opcode >= VB_WQE_ATOMIC_CS && opcode <= VB_WQE_MASKED_FA) {
        const uint64_t args[2] = {htobe64(u32(r)), htobe64(u8(r))};
        put(entry, len, args);
        if (opcode == VB_WQE_MASKED_CS && opmod == VB_WQE_OPMOD_MASKED8)
            put(entry, len, args);
        bytes = opmod == VB_WQE_OPMOD_MASKED4 ? 4 : 8;
    }
    put_data(r, entry, len, bytes);
    if (bytes & 1)
        put_data(r, entry, len, bytes);
}

static void write_entry(struct rig *r, uint32_t i)
{
    static const uint8_t opcodes[] = {VB_WQE_NOP,       VB_WQE_WAIT,      VB_WQE_SEND_EN,
                                      VB_WQE_RECV_EN,   VB_WQE_WRITE,     VB_WQE_READ,
                                      VB_WQE_SEND,      VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA,
                                      VB_WQE_MASKED_CS, VB_WQE_MASKED_FA, VB_WQE_WRITE_IMM};
    struct vb_driver_sq *sq = &r->qp[i].driver.sq;
    uint8_t entry[8 * VB_WQE_SEG_BYTES] = {0}, choice = u8(r), flags = u8(r);
    uint32_t len = sizeof(struct vb_wqe_ctrl);
    uint64_t counter = r->qp[i].ctx->sq.end + choice / 16;
    struct vb_wqe_ctrl ctrl = {.opcode = opcodes[choice % 16 % sizeof opcodes],
                               .fm_ce_se = flags & 0x88};

    if (ctrl.opcode == VB_WQE_MASKED_CS || ctrl.opcode == VB_WQE_MASKED_FA)
        ctrl.opmod = flags & 1 ? VB_WQE_OPMOD_MASKED4 : VB_WQE_OPMOD_MASKED8;
    else if (flags & 2)
        ctrl.opmod = u8(r) % 9;
    vb_put_be16(ctrl.idx, (uint16_t)counter);
    vb_put_be24(ctrl.qpn, r->qp[i].driver.qpn);
    put_body(r, entry, &len, ctrl.opcode, ctrl.opmod);
    ctrl.ds = flags & 4 ? u8(r) : (uint8_t)(len / VB_WQE_SEG_BYTES);
    memcpy(entry, &ctrl, sizeof ctrl);
    uint32_t at = (uint32_t)(counter & (sq->blocks - 1)) * VB_WQEBB_BYTES;
    for (uint32_t k = 0; k < len; k++)
        sq->ring[(at + k) % (sq->blocks * VB_WQEBB_BYTES)] = entry[k];
    if (!(flags & 0x10))
        r->qp[i].driver.dbrec[VB_DBREC_SQ] =
            htobe32((uint32_t)(uint16_t)(counter + (len + VB_WQEBB_BYTES - 1) / VB_WQEBB_BYTES));
    vb_doorbell_ring(r->qp[i].driver.doorbells, r->qp[i].driver.qpn);
}

static void write_receive(struct rig *r, uint32_t i)
{
    struct vb_driver_rq *rq = &r->qp[i].driver.rq;
    uint8_t entry[2 * VB_WQE_SEG_BYTES], choice = u8(r);
    uint32_t len = 0;

    if (!rq->ring)
        return;
    put_data(r, entry, &len, choice);
    put_data(r, entry, &len, choice / 2);
    memcpy(rq->ring + (choice % rq->entries) * rq->stride, entry, rq->stride);
    if (choice & 0x80)
        r->qp[i].driver.dbrec[VB_DBREC_RQ] = htobe32((uint16_t)(r->qp[i].ctx->rq.end + choice % 8));
    vb_doorbell_ring(r->qp[i].driver.doorbells, r->qp[i].driver.qpn);
}

static void write_bytes(struct rig *r, uint32_t i)
{
    struct vb_driver_sq *sq = &r->qp[i].driver.sq;
    uint32_t at = (uint32_t)u8(r) * 4, n = u8(r) % 16;
    for (uint32_t k = 0; k < n; k++)
        sq->ring[(at + k) % (sq->blocks * VB_WQEBB_BYTES)] = u8(r);
}

// ---- running

static void send_all(struct rig *r, struct vb_pu *pu)
{
    struct vb_txq *txq = vb_pu_txq(pu);
    for (; txq->taken < txq->count; txq->taken++) {
        const struct vb_tx_frame *t = &txq->frame[txq->taken];
        if (r->wired == WIRE)
            continue; // it is lost
        vb_tx_copy(txq, t, r->wire[r->wired].bytes);
        r->wire[r->wired++].len = t->len;
    }
    vb_pu_tx_release(pu);
}

// Delivers what was sent, to any unit.
static void deliver(struct rig *r)
{
    struct vb_rx_frame frames[WIRE];
    struct vb_ip from = {{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    uint32_t n = r->wired;
    struct vb_pu *pu = vb_dev_pu_at(r->dev, u8(r) % r->units);

    if (n == 0 || vb_pu_frames_left(pu) > 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        frames[i] = (struct vb_rx_frame){
            .head = r->wire[i].bytes, .data = r->wire[i].bytes, .len = r->wire[i].len, .src = from};
    vb_pu_feed(pu, frames, n);
    r->wired = 0; // what is sent meanwhile finds its place when these are done with
    for (uint32_t polls = 0; vb_pu_frames_left(pu) > 0; polls++) {
        require(polls < 1000);
        require(vb_pu_poll(pu, r->now_ns) < STEPS);
        struct vb_txq *txq = vb_pu_txq(pu);
        txq->taken = txq->count; // lost
        vb_pu_tx_release(pu);
    }
    vb_pu_feed(pu, NULL, 0);
}

static void run(struct rig *r)
{
    for (uint32_t u = 0; u < r->units; u++) {
        struct vb_pu *pu = vb_dev_pu_at(r->dev, u);
        require(vb_pu_poll(pu, r->now_ns) < STEPS);
        (void)vb_pu_handed(pu);
        vb_pu_publish(pu);
        send_all(r, pu);
    }
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct rig *r = ctx;
    for (uint32_t i = 0; i < QPS; i++)
        if (r->qp[i].driver.qpn == qpn)
            return &r->qp[i].driver;
    return NULL;
}

// Completions of queues that overwrite are read as they are, lapped or not.
static void complete(struct rig *r)
{
    struct vb_wc wc[8];
    struct vb_event event;
    for (uint32_t i = 0; i < CQS; i++) {
        r->cq[i].audits = i == AUDIT;
        require(vb_driver_poll(&r->cq[i], find, r, wc, 8) <= 8);
    }
    for (uint32_t u = 0; u < r->units; u++)
        while (vb_pu_take_event(vb_dev_pu_at(r->dev, u), &event))
            require((unsigned)event.kind < VB_EVENT_COUNT);
}

// Who waits for it loses it; one that others use stays.
static void recreate_cq(struct rig *r, uint32_t i)
{
    require(vb_dev_cq_destroy(r->dev, r->cqn[AUDIT]) != 0);
    require(vb_dev_cq_destroy(r->dev, r->cqn[i]) == 0);
    vb_driver_cq_fini(&r->cq[i]);
    create_cq(r, i);
}

static void control(struct rig *r, uint32_t i)
{
    uint8_t choice = u8(r);
    uint64_t executed;
    bool stopped;

    switch (choice % 8) {
    case 0:
    case 1: connect(r, i); break;
    case 2: modify(r, i, VB_QPS_ERR); break;
    case 3: modify(r, i, VB_QPS_SQD); break;
    case 4: modify(r, i, VB_QPS_RTS); break;
    case 5:
        if (choice & 0x80)
            require(vb_dev_program_stop(r->dev, r->program) == 0);
        require(vb_dev_program_query(r->dev, r->program, &executed, &stopped) == 0);
        break;
    case 6: recreate_cq(r, FREE); break;
    default:
        destroy_qp(r, i);
        if (choice & 0x80)
            recreate_cq(r, i == SELF ? 0 : FREE); // the first is that queue pair's alone
        create_qp(r, i);
        connect(r, i);
        break;
    }
}

static void command(struct rig *r)
{
    uint8_t choice = u8(r);
    uint32_t i = choice / 16 % QPS;

    switch (choice % 16) {
    case 8: write_bytes(r, i); break;
    case 9: write_receive(r, i); break;
    case 10: control(r, i); break;
    case 11: r->now_ns += (uint64_t)u8(r) << (choice / 16); break;
    case 12: deliver(r); break;
    case 13: complete(r); break;
    case 14:
        r->qp[i].driver.dbrec[choice >> 7] = htobe32(u32(r));
        vb_doorbell_ring(r->qp[i].driver.doorbells, r->qp[i].driver.qpn);
        break;
    case 15: run(r); break;
    default: write_entry(r, i); break;
    }
}

// ---- from open to close

// Making a device takes longer than most inputs do, so two serve all; what an earlier input left
// that a later one could notice is forgotten.
static struct vb_dev *take_device(uint32_t units)
{
    static struct vb_dev *all[2];
    struct vb_dev **dev = &all[units - 1];
    if (!*dev)
        *dev = vb_dev_create(&(struct vb_dev_opts){.pus = units, .window_bytes = 16384});
    require(*dev != NULL && (*dev)->qp_count == 0 && (*dev)->crosses == 0);
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

static void open_rig(struct rig *r)
{
    r->setup = u8(r);
    r->units = r->setup & SETUP_UNITS ? 2 : 1;
    r->now_ns = 1000;
    r->dev = take_device(r->units);
    for (uint32_t u = 0; u < r->units; u++)
        vb_pu_observe(vb_dev_pu_at(r->dev, u), r->setup & SETUP_UNOBSERVED ? NULL : observe, r);
    require(vb_dev_pd_create(r->dev, &r->pd) == 0);
    for (uint32_t i = 0; i < CQS; i++)
        create_cq(r, i);
    const struct vb_program_attr program = {
        .pd = r->pd, .limit = r->setup & SETUP_LIMIT ? 20 : 0, .audit_cqn = r->cqn[AUDIT]};
    require(vb_dev_program_create(r->dev, &program, &r->program) == 0);
    for (uint32_t i = 0; i < REGIONS; i++) {
        r->region[i] = calloc(1, BYTES);
        require(r->region[i] != NULL);
        r->key[i] = create_key(r, r->region[i], BYTES);
    }
    for (uint32_t i = 0; i < QPS; i++)
        create_qp(r, i);
    for (uint32_t i = 0; i < QPS; i++)
        connect(r, i);
}

static bool has_more(const struct rig *r)
{
    bool more = false;
    for (uint32_t u = 0; u < r->units; u++)
        more |= vb_pu_has_more(vb_dev_pu_at(r->dev, u));
    return more;
}

// Failed, every queue comes to its end, however far it was opened. One poll flushes a bounded
// number of entries; the second round is for what one unit leaves to the other.
static void expect_flushed(struct rig *r)
{
    for (uint32_t i = 0; i < QPS; i++)
        modify(r, i, VB_QPS_ERR);
    for (uint32_t rounds = 0; rounds < 2 || has_more(r); rounds++) {
        require(rounds < FLUSH_ROUNDS);
        run(r);
    }
    for (uint32_t i = 0; i < QPS; i++) {
        const struct vb_qpc *qp = r->qp[i].ctx;
        require(qp->state != VB_QPS_ERR ||
                (qp->sq.fetched == qp->sq.end && qp->rq.taken == qp->rq.end && !qp->req.head));
    }
}

static void close_rig(struct rig *r)
{
    for (uint32_t i = 0; i < QPS; i++)
        destroy_qp(r, i);
    require(vb_dev_program_destroy(r->dev, r->program) == 0);
    for (uint32_t i = 0; i < REGIONS; i++) {
        require(vb_dev_mkey_destroy(r->dev, r->key[i]) == 0);
        free(r->region[i]);
    }
    for (uint32_t i = 0; i < CQS; i++) {
        require(vb_dev_cq_destroy(r->dev, r->cqn[i]) == 0);
        vb_driver_cq_fini(&r->cq[i]);
    }
    for (uint32_t u = 0; u < r->units; u++)
        require(vb_pu_deadline(vb_dev_pu_at(r->dev, u)) == UINT64_MAX);
    require(vb_dev_pd_destroy(r->dev, r->pd) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rig r;

    memset(&r, 0, sizeof r);
    r.data = data;
    r.left = size;
    open_rig(&r);
    while (r.left > 0)
        command(&r);
    run(&r);
    complete(&r);
    expect_flushed(&r);
    close_rig(&r);
    return 0;
}
