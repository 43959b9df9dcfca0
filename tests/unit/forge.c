// SPDX-License-Identifier: Apache-2.0
// One device with one queue pair against a forged peer.
#include "forge.h"

#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct forge_opts forge_defaults(void)
{
    return (struct forge_opts){
        .state = VB_QPS_RTS,
        .mtu = 1024,
        .our_psn = 100,
        .peer_psn = 500,
        .access = VB_REMOTE_WRITE | VB_REMOTE_READ,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = VB_RETRY_INFINITE,
        .rnr_timer = 12,
        .reads_out = 16,
        .reads_in = 16,
        .send_depth = 256,
        .recv_depth = 64,
        .sges = 16,
        .inline_bytes = 256,
        .send_cq_entries = 1024,
        .recv_cq_entries = 256,
        .key_access = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ,
    };
}

// ---- the device and its queue pair

static void observe(void *ctx, const struct vb_step *step)
{
    struct forge *f = ctx;
    f->steps[step->kind]++;
    if (step->kind == VB_STEP_FRAME_IN)
        f->verdict = step->verdict;
}

static uint32_t create_cq(struct forge *f, struct vb_driver_cq *cq, uint32_t entries)
{
    uint32_t cqn = 0;
    assert_int_equal(vb_driver_cq_init(cq, entries, f->opts.cq_start), 0);
    const struct vb_cqc_attr attr = {
        .ring = cq->ring, .entries = cq->entries, .dbrec = cq->dbrec, .start = f->opts.cq_start};
    assert_int_equal(vb_dev_cq_create(f->dev, &attr, &cqn), 0);
    return cqn;
}

static struct vb_driver_srq *find_srq(void *ctx, uint32_t srqn)
{
    struct forge *f = ctx;
    return f->srqn == srqn ? &f->srq : NULL;
}

static void create_srq(struct forge *f)
{
    if (f->opts.srq_depth == 0)
        return;
    assert_int_equal(vb_driver_srq_init(&f->srq, f->opts.srq_depth, f->opts.sges), 0);
    const struct vb_srqc_attr attr = {.pd = f->pd,
                                      .ring = f->srq.ring,
                                      .entries = f->srq.entries,
                                      .stride_bytes = f->srq.stride,
                                      .dbrec = f->srq.dbrec,
                                      .xrcd = f->opts.xrcd,
                                      .cqn = f->opts.xrcd ? f->recv_cqn : 0};
    assert_int_equal(vb_dev_srq_create(f->dev, &attr, &f->srqn), 0);
    f->qp.srq = &f->srq;
    if (f->opts.xrcd)
        f->recv_cq.find_srq = find_srq;
}

static enum vb_service service_of(enum vb_qp_type type)
{
    static const enum vb_service service[VB_QPT_COUNT] = {
        [VB_QPT_RC] = VB_SERVICE_RC,
        [VB_QPT_UC] = VB_SERVICE_UC,
        [VB_QPT_UD] = VB_SERVICE_UD,
        [VB_QPT_XRC_INI] = VB_SERVICE_XRC_SEND,
        [VB_QPT_XRC_TGT] = VB_SERVICE_XRC_RECV,
    };
    return service[type];
}

static void create_program(struct forge *f)
{
    if (f->opts.audit_entries == 0)
        return;
    const struct vb_program_attr attr = {
        .pd = f->pd, .audit_cqn = create_cq(f, &f->audit, f->opts.audit_entries)};
    assert_int_equal(vb_dev_program_create(f->dev, &attr, &f->program), 0);
}

static void create_qp(struct forge *f)
{
    const struct forge_opts *o = &f->opts;
    bool own_queue = o->type < VB_QPT_XRC_INI && o->srq_depth == 0;
    const struct vb_qp_opts q = {.service = service_of(o->type),
                                 .send_depth = o->send_depth,
                                 .recv_depth = own_queue ? o->recv_depth : 0,
                                 .send_sge = o->sges,
                                 .recv_sge = o->sges,
                                 .inline_bytes = o->inline_bytes};
    assert_int_equal(vb_driver_qp_init(&f->qp, &q, o->sq_start, o->rq_start), 0);
    create_srq(f);
    const struct vb_qpc_attr attr = {
        .pd = f->pd,
        .type = o->type,
        .srqn = o->type < VB_QPT_XRC_INI ? f->srqn : 0,
        .xrcd = o->type == VB_QPT_XRC_TGT ? o->xrcd : 0,
        .send_cqn = f->send_cqn,
        .recv_cqn = f->recv_cqn,
        .sq_ring = f->qp.sq.ring,
        .sq_blocks = f->qp.sq.blocks,
        .rq_ring = f->qp.rq.ring,
        .rq_entries = f->qp.rq.entries,
        .rq_stride_bytes = f->qp.rq.stride,
        .dbrec = f->qp.dbrec,
        .sq_start = o->sq_start,
        .rq_start = o->rq_start,
        .no_wqe_checks = o->no_wqe_checks,
        .be_replies = o->be_replies,
        .cross_channel = f->program != 0,
        .program = f->program,
    };
    assert_int_equal(vb_dev_qp_create(f->dev, &attr, &f->qp.qpn), 0);
    f->qp.doorbells = vb_dev_doorbells(f->dev);
    f->ctx = vb_dev_qp(f->dev, f->qp.qpn);
    assert_non_null(f->ctx);
}

struct vb_qpc_mods forge_mods(const struct forge *f, enum vb_qp_state state)
{
    const struct forge_opts *o = &f->opts;
    return (struct vb_qpc_mods){
        .state = state,
        .access = o->access,
        .qkey = o->qkey,
        .dest_qpn = FORGE_PEER_QPN,
        .rq_psn = o->peer_psn,
        .sq_psn = o->our_psn,
        .mtu_bytes = o->mtu,
        .max_rd_atomic = o->reads_out,
        .max_dest_rd_atomic = o->reads_in,
        .min_rnr_timer = o->rnr_timer,
        .timeout = o->timeout,
        .retry_cnt = o->retry_cnt,
        .rnr_retry = o->rnr_retry,
        .local = f->local,
        .remote = f->remote,
        .src_port = 49152,
    };
}

void forge_modify(struct forge *f, enum vb_qp_state state)
{
    struct vb_qpc_mods m = forge_mods(f, state);
    assert_int_equal(vb_dev_qp_modify(f->dev, f->qp.qpn, &m), 0);
}

enum vb_qp_state forge_state(const struct forge *f)
{
    enum vb_qp_state state = VB_QPS_COUNT;
    assert_int_equal(vb_dev_qp_state(f->dev, f->qp.qpn, &state), 0);
    return state;
}

static struct vb_ip address(const struct forge *f, uint8_t last)
{
    if (f->opts.ipv6)
        return (struct vb_ip){{0xfd, 0x12, [14] = 0x34, [15] = last}};
    return (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, last}};
}

struct forge_opts forge_rights(uint32_t qp, uint32_t key)
{
    struct forge_opts o = forge_defaults();
    o.access = qp;
    o.key_access = VB_LOCAL_WRITE | key;
    return o;
}

static bool is_there(void *ctx, uint32_t key, const void *at, uint64_t len, bool write)
{
    (void)key;
    (void)at;
    (void)len;
    (void)write;
    return ((const struct forge *)ctx)->is_there;
}

struct forge *forge_open(const struct forge_opts *opts)
{
    struct forge *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->opts = opts ? *opts : forge_defaults();
    f->now_ns = 1000000;
    f->is_there = true;
    f->guard = (struct vb_mem_guard){f, is_there};
    f->local = address(f, 1);
    f->remote = address(f, 2);
    f->dev = vb_dev_create(&(struct vb_dev_opts){.seed = 42,
                                                 .window_bytes = f->opts.window_bytes,
                                                 .fetch_depth = f->opts.fetch_depth,
                                                 .lend_bytes = f->opts.lend_bytes,
                                                 .check_zero_length = f->opts.check_zero_length,
                                                 .no_credits = f->opts.no_credits,
                                                 .dcqcn = f->opts.dcqcn,
                                                 .guard = f->opts.guarded ? &f->guard : NULL});
    assert_non_null(f->dev);
    f->pu = vb_dev_pu(f->dev);
    vb_pu_observe(f->pu, observe, f);
    assert_int_equal(vb_dev_pd_create(f->dev, &f->pd), 0);
    f->memory = calloc(1, FORGE_MEMORY);
    assert_non_null(f->memory);
    const struct vb_mkey_attr attr = {.pd = f->pd,
                                      .access = f->opts.key_access,
                                      .start = (uintptr_t)f->memory,
                                      .len = FORGE_MEMORY,
                                      .base = f->memory};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &f->key), 0);
    f->send_cqn = create_cq(f, &f->send_cq, f->opts.send_cq_entries);
    f->recv_cqn = create_cq(f, &f->recv_cq, f->opts.recv_cq_entries);
    create_program(f);
    create_qp(f);
    for (enum vb_qp_state s = VB_QPS_INIT; s <= f->opts.state; s++)
        forge_modify(f, s);
    return f;
}

static void drop_feed(struct forge *f)
{
    for (uint32_t i = 0; i < f->feed_count; i++)
        free((void *)(uintptr_t)f->feed[i].data);
    f->feed_count = 0;
}

void forge_close(struct forge *f)
{
    vb_dev_destroy(f->dev);
    vb_driver_qp_fini(&f->qp);
    vb_driver_srq_fini(&f->srq);
    vb_driver_cq_fini(&f->send_cq);
    vb_driver_cq_fini(&f->recv_cq);
    vb_driver_cq_fini(&f->audit);
    forge_forget(f);
    drop_feed(f);
    free(f->memory);
    free(f);
}

const struct vb_counters *forge_counters(const struct forge *f)
{
    return vb_pu_counters(f->pu);
}

uint64_t forge_addr(const struct forge *f, uint32_t offset)
{
    return (uintptr_t)f->memory + offset;
}

static uint8_t pattern(uint8_t seed, uint32_t i)
{
    return (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}

void forge_fill(struct forge *f, uint32_t offset, uint32_t len, uint8_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        f->memory[offset + i] = pattern(seed, i);
}

uint64_t forge_word(const struct forge *f, uint32_t offset)
{
    uint64_t value;
    memcpy(&value, f->memory + offset, sizeof value);
    return value;
}

void forge_set_word(struct forge *f, uint32_t offset, uint64_t value)
{
    memcpy(f->memory + offset, &value, sizeof value);
}

bool forge_filled(const uint8_t *bytes, uint32_t len, uint8_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        if (bytes[i] != pattern(seed, i))
            return false;
    return true;
}

// ---- running

// Whatever leaves the device must decode, be addressed to the peer, and be padded with zeros.
static void keep_frame(struct forge *f, const struct vb_txq *q, const struct vb_tx_frame *t)
{
    struct forge_sent *s = &f->sent[f->sent_count];

    assert_true(f->sent_count < FORGE_SENT_MAX);
    assert_true(t->offset + t->len - t->body_len <= VB_TX_BYTES && t->len <= VB_FRAME_MAX);
    s->bytes = malloc(t->len);
    s->len = t->len;
    assert_non_null(s->bytes);
    vb_tx_copy(q, t, s->bytes);
    assert_int_equal(vb_packet_decode(s->bytes, s->len, &s->pkt), VB_DECODE_OK);
    assert_int_equal(s->pkt.dest_qpn, FORGE_PEER_QPN);
    assert_int_equal(s->pkt.pkey, VB_PKEY_DEFAULT);
    assert_true(vb_ip_equal(&t->path->remote, &f->remote));
    for (const uint8_t *p = s->pkt.payload + s->pkt.payload_len; p < s->bytes + s->len; p++)
        assert_int_equal(*p, 0);
    f->sent_count++;
    f->kept++;
}

// Every frame has its step, and no step stands for nothing.
void forge_keep(struct forge *f)
{
    struct vb_txq *q = vb_pu_txq(f->pu);
    while (q->taken < q->count)
        keep_frame(f, q, &q->frame[q->taken++]);
    if (f->pu->observer)
        assert_int_equal(f->steps[VB_STEP_FRAME_OUT], f->kept);
    vb_pu_tx_release(f->pu);
}

void forge_run(struct forge *f)
{
    bool again;
    vb_pu_feed(f->pu, f->feed, f->feed_count);
    do {
        vb_pu_poll(f->pu, f->now_ns);
        again = vb_pu_wants_tx(f->pu);
        forge_keep(f);
    } while (again);
    assert_int_equal(vb_pu_frames_left(f->pu), 0);
    drop_feed(f);
}

void forge_advance(struct forge *f, uint64_t ns)
{
    f->now_ns += ns;
    forge_run(f);
}

void forge_forget(struct forge *f)
{
    for (uint32_t i = 0; i < f->sent_count; i++)
        free(f->sent[i].bytes);
    f->sent_count = 0;
}

// ---- packets to the device

struct vb_packet forge_packet(const struct forge *f, enum vb_opcode opcode, uint32_t psn)
{
    bool shift = (uint8_t)opcode < VB_UC_BASE;
    return (struct vb_packet){.opcode = shift ? vb_opcode_for(f->ctx->transport, (uint8_t)opcode)
                                              : (uint8_t)opcode,
                              .pkey = VB_PKEY_DEFAULT,
                              .dest_qpn = f->qp.qpn,
                              .psn = psn & 0xffffff,
                              .xrc_srqn = f->srqn,
                              .qkey = f->opts.qkey,
                              .src_qpn = FORGE_PEER_QPN};
}

struct vb_packet forge_atomic(const struct forge *f, enum vb_opcode opcode, uint32_t psn,
                              uint32_t offset, uint64_t swap_add, uint64_t compare)
{
    struct vb_packet p = forge_packet(f, opcode, psn);
    p.raddr = forge_addr(f, offset);
    p.rkey = f->key;
    p.atomic_bytes = 8;
    p.swap_add = swap_add;
    p.compare = compare;
    p.ack_request = true;
    return p;
}

struct vb_packet forge_reth(const struct forge *f, enum vb_opcode opcode, uint32_t psn,
                            uint32_t offset, uint32_t dma_len)
{
    struct vb_packet p = forge_packet(f, opcode, psn);
    p.raddr = forge_addr(f, offset);
    p.rkey = f->key;
    p.dma_len = dma_len;
    return p;
}

void forge_queue_bytes(struct forge *f, const void *bytes, uint32_t len, const struct vb_ip *src)
{
    assert_true(f->feed_count < FORGE_FEED_MAX);
    uint8_t *copy = malloc(len ? len : 1); // exact, so that the sanitizer guards its end
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    f->feed[f->feed_count++] =
        (struct vb_rx_frame){.data = copy, .head = copy, .len = len, .src = *src};
}

void forge_queue_from(struct forge *f, const struct vb_packet *pkt, const struct vb_ip *src)
{
    uint8_t frame[VB_FRAME_MAX + VB_MTU_MAX] = {0};
    size_t headers = vb_packet_encode(frame, pkt);

    assert_true(pkt->payload_len <= 2 * VB_MTU_MAX - 4);
    if (pkt->payload_len)
        memcpy(frame + headers, pkt->payload, pkt->payload_len);
    size_t len = headers + pkt->payload_len + vb_packet_pad(pkt->payload_len) + VB_ICRC_BYTES;
    forge_queue_bytes(f, frame, (uint32_t)len, src);
}

void forge_queue(struct forge *f, const struct vb_packet *pkt)
{
    forge_queue_from(f, pkt, &f->remote);
}

enum vb_rx_verdict forge_give(struct forge *f, const struct vb_packet *pkt)
{
    forge_queue(f, pkt);
    forge_run(f);
    return f->verdict;
}

enum vb_rx_verdict forge_ack(struct forge *f, uint32_t psn)
{
    return forge_nak(f, psn, VB_AETH_ACK, VB_AETH_CREDITS_INVALID);
}

enum vb_rx_verdict forge_nak(struct forge *f, uint32_t psn, enum vb_aeth_kind kind, unsigned value)
{
    struct vb_packet p = forge_packet(f, VB_RC_ACK, psn);
    p.syndrome = vb_aeth_syndrome(kind, value);
    return forge_give(f, &p);
}

enum vb_rx_verdict forge_response(struct forge *f, enum vb_opcode opcode, uint32_t psn,
                                  const void *payload, uint32_t len)
{
    struct vb_packet p = forge_packet(f, opcode, psn);
    p.syndrome = vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID);
    p.payload = payload;
    p.payload_len = len;
    return forge_give(f, &p);
}

enum vb_rx_verdict forge_send(struct forge *f, enum vb_opcode opcode, uint32_t psn, uint32_t len,
                              uint8_t seed)
{
    uint8_t payload[VB_MTU_MAX + 4];
    struct vb_packet p = forge_packet(f, opcode, psn);

    assert_true(len <= sizeof payload);
    for (uint32_t i = 0; i < len; i++)
        payload[i] = pattern(seed, i);
    p.payload = payload;
    p.payload_len = len;
    p.ack_request = vb_opcode_table[opcode].facts & VB_OP_LAST;
    return forge_give(f, &p);
}

// ---- work for the device

void forge_post_send(struct forge *f, const struct vb_send_wr *wr)
{
    assert_int_equal(vb_driver_post_send(&f->qp, wr, 1), 1);
}

void forge_post_recv(struct forge *f, uint64_t wr_id, uint32_t offset, uint32_t len)
{
    const struct vb_sge sge = {.addr = forge_addr(f, offset), .len = len, .lkey = f->key};
    const struct vb_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_driver_post_recv(&f->qp, &wr, 1), 1);
}

void forge_post_srq(struct forge *f, uint64_t wr_id, uint32_t offset, uint32_t len)
{
    const struct vb_sge sge = {.addr = forge_addr(f, offset), .len = len, .lkey = f->key};
    const struct vb_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_driver_post_srq(&f->srq, &wr, 1), 1);
}

static void post(struct forge *f, struct vb_send_wr wr, uint32_t offset, uint32_t len)
{
    const struct vb_sge sge = {.addr = forge_addr(f, offset), .len = len, .lkey = f->key};
    wr.sge = &sge;
    wr.num_sge = wr.opcode == VB_WR_NOP ? 0 : 1;
    wr.raddr = 0x1000;
    wr.rkey = 0x2222;
    forge_post_send(f, &wr);
}

void forge_post(struct forge *f, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t offset,
                uint32_t len)
{
    post(f, (struct vb_send_wr){.wr_id = wr_id, .opcode = opcode, .flags = VB_WR_SIGNALED}, offset,
         len);
}

void forge_post_flags(struct forge *f, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t len,
                      uint32_t flags)
{
    post(f, (struct vb_send_wr){.wr_id = wr_id, .opcode = opcode, .flags = flags}, 0, len);
}

// ---- looking

const struct vb_packet *forge_look_sent(const struct forge *f, uint32_t i, const char *file,
                                        int line)
{
    if (i >= f->sent_count)
        _fail(file, line);
    return &f->sent[i].pkt;
}

void forge_look_answer(const struct forge *f, uint32_t i, uint32_t psn, uint8_t syndrome,
                       const char *file, int line)
{
    const struct vb_packet *p = forge_look_sent(f, i, file, line);
    _assert_int_equal(p->opcode, vb_opcode_for(f->ctx->transport, VB_RC_ACK), file, line);
    _assert_int_equal(p->syndrome, syndrome, file, line);
    _assert_int_equal(p->psn, psn & 0xffffff, file, line);
}

void forge_look_ack(const struct forge *f, uint32_t i, uint32_t psn, const char *file, int line)
{
    const struct vb_packet *p = forge_look_sent(f, i, file, line);
    bool tells = f->opts.type == VB_QPT_RC && f->opts.srq_depth == 0 && !f->opts.no_credits;
    forge_look_answer(f, i, psn, p->syndrome, file, line);
    _assert_int_equal(p->syndrome >> 5, VB_AETH_ACK, file, line);
    _assert_int_equal(vb_aeth_value_of(p->syndrome) != VB_AETH_CREDITS_INVALID, tells, file, line);
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct forge *f = ctx;
    return f->qp.qpn == qpn ? &f->qp : NULL;
}

struct vb_wc forge_take_wc(struct forge *f, struct vb_driver_cq *cq, const char *file, int line)
{
    struct vb_wc wc;
    _assert_int_equal(vb_driver_poll(cq, find, f, &wc, 1), 1, file, line);
    bool received = wc.opcode == VB_WC_RECV || wc.opcode == VB_WC_RECV_WRITE;
    _assert_int_equal(received, cq == &f->recv_cq, file, line);
    return wc;
}

void forge_look_event(struct forge *f, enum vb_event_kind kind, uint32_t number, const char *file,
                      int line)
{
    struct vb_event e = {VB_EVENT_COUNT, 0};
    _assert_int_equal(vb_pu_take_event(f->pu, &e), true, file, line);
    _assert_int_equal(e.kind, kind, file, line);
    _assert_int_equal(e.number, number, file, line);
}

void forge_look_no_event(struct forge *f, const char *file, int line)
{
    struct vb_event e;
    _assert_int_equal(vb_pu_take_event(f->pu, &e), false, file, line);
}

void forge_look_wc(struct forge *f, struct vb_driver_cq *cq, uint64_t wr_id,
                   enum vb_wc_status status, uint32_t byte_len, const char *file, int line)
{
    struct vb_wc wc = forge_take_wc(f, cq, file, line);
    _assert_int_equal(wc.wr_id, wr_id, file, line);
    _assert_int_equal(wc.status, status, file, line);
    if (byte_len != UINT32_MAX)
        _assert_int_equal(wc.byte_len, byte_len, file, line);
}

void forge_look_none(struct forge *f, const char *file, int line)
{
    struct vb_wc wc;
    _assert_int_equal(vb_driver_poll(&f->send_cq, find, f, &wc, 1), 0, file, line);
    _assert_int_equal(vb_driver_poll(&f->recv_cq, find, f, &wc, 1), 0, file, line);
}
