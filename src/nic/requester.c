// SPDX-License-Identifier: Apache-2.0
// The requester: takes send work requests from the queue and turns them into request packets.
// Loss is repaired by going back to the oldest unacknowledged packet (clause 9.7.5.1).
#include "nic/pu.h"

#include "base/bytes.h"
#include "base/serial.h"

#include <assert.h>
#include <string.h>

enum {
    PACKET_COST = 64, // window cost of a packet beyond its payload
    ACK_EVERY = 16,   // packets between requests for an ACK; a whole turn ends with one
    UNASKED_MAX = 16, // packets in a row that ask for none
    CREDITS_LOW = 4,  // who can send so few messages more asks, to hear of new receives
    ASK_NS = 1000000, // how long the newest packet may be in flight without an ACK to come
};

static uint32_t offset_of(const struct vb_wr *wr, uint32_t psn)
{
    return (psn - wr->first_psn) & VB_PSN_MASK;
}

// Window cost of everything before `psn`, which lies in `wr` or at its end.
static uint64_t cost_at(const struct vb_qpc *qp, const struct vb_wr *wr, uint32_t psn)
{
    uint32_t packets = offset_of(wr, psn);
    if (packets >= wr->psns)
        return wr->cost_base + wr->length + (uint64_t)wr->psns * PACKET_COST;
    return wr->cost_base + (uint64_t)packets * (qp->mtu + PACKET_COST);
}

// Who hears nothing from a peer that it shares asks with one packet: the window is for those who
// do.
static bool must_wait(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_peer *peer = qp->peer;
    if (__builtin_expect(qp->req.silence, 0) && peer->users > 1 &&
        qp->req.cost_sent != qp->req.cost_acked)
        return true;
    return __builtin_expect(peer->in_flight >= peer->open, 0) && !qp->req.asking &&
           vb_peer_must_wait(pu, qp);
}

static void set_cost_sent(struct vb_qpc *qp, uint64_t cost)
{
    qp->peer->in_flight += cost - qp->req.cost_sent;
    qp->req.cost_sent = cost;
}

static void set_cost_acked(struct vb_qpc *qp, uint64_t cost)
{
    uint64_t acked = cost - qp->req.cost_acked;
    vb_peer_acked(qp->peer, acked);
    qp->peer->in_flight -= acked;
    qp->req.cost_acked = cost;
}

// Starts the wait for an acknowledgement, unless such a timer runs already.
static void arm_ack_timer(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    if (r->timer_kind >= VB_REQ_TIMER_ACK || qp->ack_timeout_ns == 0)
        return;
    r->timer_kind = VB_REQ_TIMER_ACK;
    vb_timer_arm(&pu->timers, &r->timer, pu->now_ns + qp->ack_timeout_ns);
}

// The same when no packet in flight asks for one.
static void arm_ask_timer(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;
    bool sooner = qp->ack_timeout_ns != 0 && qp->ack_timeout_ns < ASK_NS;

    if (r->timer_kind >= VB_REQ_TIMER_ASK)
        return;
    r->timer_kind = VB_REQ_TIMER_ASK;
    vb_timer_arm(&pu->timers, &r->timer, pu->now_ns + (sooner ? qp->ack_timeout_ns : ASK_NS));
}

// The wait after an RNR NAK always has its whole time.
static void disarm_timer(struct vb_requester *r)
{
    if (r->timer_kind == VB_REQ_TIMER_NONE || r->timer_kind == VB_REQ_TIMER_RNR)
        return;
    r->timer_kind = VB_REQ_TIMER_NONE;
    vb_timer_disarm(&r->timer);
}

// Something waits for all that was sent, and its newest packet did not ask for an ACK: that one
// goes out again, and asks. The peer drops it as a duplicate.
void vb_requester_settle(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    // After going back, the last packet of a request asks anyhow: a packet that did not ask is
    // inside the request under way.
    struct vb_wr *wr = r->send_psn == r->max_psn ? r->newest : r->cursor;
    if (r->asking || r->asked_psn == r->send_psn || r->una_psn == r->send_psn ||
        r->timer_kind == VB_REQ_TIMER_RNR)
        return;
    assert(wr && (wr != r->cursor || r->send_psn != wr->first_psn));
    r->asking = true; // it still has its place in the window
    r->send_psn = vb_psn_add(r->send_psn, VB_PSN_MASK);
    r->cursor = wr;
    vb_pu_kick(pu, qp);
}

// ---- acknowledged edge

void vb_requester_acked(struct vb_pu *pu, struct vb_qpc *qp, uint32_t psn)
{
    struct vb_requester *r = &qp->req;
    bool progress = psn != r->una_psn;

    r->una_psn = psn;
    while (r->una_wr != r->unbegun && offset_of(r->una_wr, psn) >= r->una_wr->psns) {
        if (r->una_wr->awaits)
            r->reads_open--;
        r->una_wr = r->una_wr->next;
    }
    bool in_flight = r->una_wr != r->unbegun;
    set_cost_acked(qp, in_flight ? cost_at(qp, r->una_wr, psn) : r->cost_next);
    if (vb_psn_diff(psn, r->send_psn) > 0) {
        // Answers to packets sent before going back arrived after all: skip what they cover.
        r->send_psn = psn;
        r->asking = false;
        set_cost_sent(qp, r->cost_acked);
        r->cursor = in_flight ? r->una_wr : NULL;
    }
    if (progress) {
        r->retries_left = qp->retry_cnt;
        r->rnr_left = qp->rnr_retry;
        r->gap_seen = r->silence = false;
        r->probe = false;
        disarm_timer(r);
    }
    if (r->una_psn != r->max_psn) {
        if (vb_psn_diff(r->asked_psn, psn) > 0)
            arm_ack_timer(pu, qp);
        else
            arm_ask_timer(pu, qp);
    }
    vb_pu_kick(pu, qp); // also for those who wait for room: they are woken at the end of its turn
}

void vb_requester_rewind(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    disarm_timer(r); // what is sent again starts its own
    r->send_psn = r->asked_psn = r->una_psn;
    r->asking = false;
    vb_peer_withdraw(pu, qp);
    r->reads_out = 0;
    r->probe = true;
    r->cursor = r->una_wr != r->unbegun ? r->una_wr : NULL;
}

void vb_requester_fail(struct vb_pu *pu, struct vb_qpc *qp, enum vb_cqe_syndrome syndrome)
{
    if (qp->req.una_wr)
        qp->req.una_wr->syndrome = (uint8_t)syndrome;
    if (vb_qpc_is_reliable(qp))
        vb_qpc_fail(pu, qp);
    else
        qp->state = VB_QPS_SQE; // in its own turn, which goes on with the flush
}

void vb_requester_timer(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;
    enum vb_req_timer kind = r->timer_kind;

    VB_RECORD(pu, .kind = VB_STEP_TIMER, .opcode = (uint8_t)kind, .qpn = qp->qpn,
              .psn = r->una_psn);
    r->timer_kind = VB_REQ_TIMER_NONE;
    if (qp->state != VB_QPS_RTS && qp->state != VB_QPS_SQD)
        return;
    if (kind == VB_REQ_TIMER_ASK) {
        if (vb_psn_diff(r->asked_psn, r->una_psn) <= 0)
            arm_ask_timer(pu, qp); // if it cannot go out now
        vb_requester_settle(pu, qp);
        return;
    }
    if (kind == VB_REQ_TIMER_ACK) {
        VB_COUNT(pu, qp, local_ack_timeout_err);
        if (r->retries_left == 0) {
            VB_COUNT(pu, qp, retry_exceeded_err);
            vb_requester_fail(pu, qp, VB_SYN_RETRY_EXC);
            return;
        }
        r->retries_left--;
        r->gap_seen = false;
        if (!r->silence)
            vb_peer_lost(pu, qp->peer); // once: the others may have no part in it
        r->silence = true;
        vb_requester_rewind(pu, qp);
    }
    r->probe = true; // it has waited for credits, too
    vb_pu_kick(pu, qp);
}

// ---- fetch and begin

static void append(struct vb_requester *r, struct vb_wr *wr)
{
    if (r->tail)
        r->tail->next = wr;
    else
        r->head = wr;
    r->tail = wr;
    if (!r->unbegun)
        r->unbegun = wr;
    if (!r->una_wr)
        r->una_wr = wr;
    r->fetched_ahead++;
}

// An entry of several blocks; or one without a length, behind which everything is passed over, and
// costs nothing.
static __attribute__((noinline)) void fetched_long(struct vb_pu *pu, struct vb_qpc *qp,
                                                   uint32_t blocks)
{
    struct vb_sq *sq = &qp->sq;

    if (blocks == 0) {
        qp->bill.fetched += sq->end - sq->fetched - 1;
        sq->fetched = sq->end;
        return;
    }
    sq->fetched += blocks;
    if (vb_pu_has_fetched(pu, qp))
        vb_pu_give_up(pu, VB_TURN_FRAMES - pu->turn_frames);
}

static bool fetch(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_sq *sq = &qp->sq;

    if (sq->fetched == sq->end || qp->req.fetched_ahead >= qp->fetch_depth)
        return false;
    if (vb_wr_pool_reserve(&pu->pool) != 0)
        return false; // tried again at the next doorbell or acknowledgement
    sq->source.counter = sq->fetched;
    sq->source.end = sq->end;
    struct vb_wr *wr = vb_wr_fetch(&pu->pool, &sq->source);
    if (__builtin_expect(wr->blocks == 1, 1))
        sq->fetched++;
    else
        fetched_long(pu, qp, wr->blocks);
    append(&qp->req, wr);
    VB_RECORD(pu, .kind = VB_STEP_FETCH, .opcode = wr->opcode, .qpn = qp->qpn,
              .counter = wr->counter, .bytes = wr->length, .detail = wr->syndrome,
              .blocks = wr->blocks ? wr->blocks : 1);
    return true;
}

// A request that cannot be executed fails in its turn: when all before it are acknowledged.
static bool fail_in_turn(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_wr *wr)
{
    if (qp->req.una_wr != wr) {
        vb_requester_settle(pu, qp);
        return false;
    }
    VB_RECORD(pu, .kind = VB_STEP_EXEC, .opcode = wr->opcode, .qpn = qp->qpn,
              .counter = wr->counter, .detail = wr->syndrome);
    vb_requester_fail(pu, qp, wr->syndrome);
    return true;
}

// What the queue pair's service can carry; VB_SYN_OK if it can.
static enum vb_cqe_syndrome judge(const struct vb_qpc *qp, const struct vb_wr *wr)
{
    bool sends = wr->opcode == VB_WQE_SEND || wr->opcode == VB_WQE_SEND_IMM;
    bool writes = wr->opcode == VB_WQE_WRITE || wr->opcode == VB_WQE_WRITE_IMM;
    bool local = wr->opcode == VB_WQE_NOP || wr->opcode == VB_WQE_UMR;
    bool reliable_only = wr->opcode >= VB_WQE_MASKED_CS && !local;

    switch (qp->type) {
    case VB_QPT_RC: break;
    case VB_QPT_XRC_INI:
        if (reliable_only)
            return VB_SYN_LOCAL_QP_OP;
        break;
    case VB_QPT_UC:
        if (!sends && !writes && !local)
            return VB_SYN_LOCAL_QP_OP;
        break;
    case VB_QPT_UD:
        if (!sends && wr->opcode != VB_WQE_NOP)
            return VB_SYN_LOCAL_QP_OP;
        if (wr->length > qp->mtu)
            return VB_SYN_LOCAL_LENGTH;
        break;
    default: return VB_SYN_LOCAL_QP_OP; // a target of XRC sends nothing
    }
    // Without room for an answer it would wait for ever.
    return wr->awaits && qp->max_rd_atomic == 0 ? VB_SYN_LOCAL_QP_OP : VB_SYN_OK;
}

// Changes a memory key: binds a window or ends its binding.
static enum vb_cqe_syndrome change_key(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_wr *wr)
{
    struct vb_mkey_table *keys = &pu->dev->mkeys;
    enum vb_mem_refusal r;

    if (wr->umr.binds)
        r = vb_window_bind(keys, vb_qpc_who(qp),
                           &(struct vb_binding){.window = wr->imm,
                                                .region = wr->rkey,
                                                .addr = wr->raddr,
                                                .len = wr->range,
                                                .start = wr->umr.start,
                                                .access = wr->umr.access});
    else
        r = vb_key_invalidate(keys, vb_qpc_who(qp), wr->imm);
    return r == VB_MEM_OK ? VB_SYN_OK : VB_SYN_BIND;
}

static void number(struct vb_requester *r, struct vb_wr *wr, uint32_t psns)
{
    wr->first_psn = r->next_psn;
    wr->psns = psns;
    wr->cost_base = r->cost_next;
    r->next_psn = vb_psn_add(r->next_psn, psns);
    r->cost_next += wr->length + (uint64_t)psns * PACKET_COST;
    r->unbegun = wr->next;
    r->fetched_ahead--;
    if (psns > 0) {
        r->cursor = wr;
        r->ssn++;
    }
}

static void give_numbers(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    struct vb_requester *r = &qp->req;

    number(r, wr, vb_wqe_is_local(wr->opcode) ? 0 : vb_packets_of(qp, wr->length));
    if (wr->awaits)
        r->reads_open++;
    if (wr->psns > 0)
        return;
    pu->turn_frames++; // it makes no packet that would end the turn
    pu->looped++;
    if (r->una_wr == wr)
        vb_requester_acked(pu, qp, r->una_psn); // nothing to wait for
    else if (vb_wr_is_signaled(wr))
        vb_requester_settle(pu, qp);
}

// The queue pair has failed meanwhile. Its turn goes on: there is something to flush.
static bool did_not_begin(struct vb_pu *pu, const struct vb_qpc *qp, const struct vb_wr *wr)
{
    VB_RECORD(pu, .kind = VB_STEP_EXEC, .opcode = wr->opcode, .qpn = qp->qpn,
              .counter = wr->counter, .detail = VB_SYN_FLUSH);
    return true;
}

static __attribute__((noinline)) bool begin_otherwise(struct vb_pu *pu, struct vb_qpc *qp,
                                                      struct vb_wr *wr)
{
    struct vb_requester *r = &qp->req;

    if ((wr->awaits || !qp->plain) && wr->syndrome == VB_SYN_OK)
        wr->syndrome = (uint8_t)judge(qp, wr);
    if (wr->syndrome != VB_SYN_OK)
        return fail_in_turn(pu, qp, wr);
    if ((wr->fm_ce_se & VB_WQE_FENCE) && r->reads_open > 0)
        return false;
    if (wr->opcode == VB_WQE_UMR) {
        if (r->una_wr != wr) {
            vb_requester_settle(pu, qp);
            return false; // keys change when all that may use them is done
        }
        wr->syndrome = (uint8_t)change_key(pu, qp, wr);
        if (wr->syndrome != VB_SYN_OK)
            return fail_in_turn(pu, qp, wr);
    }
    const struct vb_dev_hooks *h = pu->dev->hooks;
    if (h && h->request(h->ctx, qp->qpn)) {
        vb_qpc_fail(pu, qp); // on purpose
        return did_not_begin(pu, qp, wr);
    }
    if (__builtin_expect(qp->cross != NULL, 0)) {
        enum vb_cross_verdict verdict = vb_cross_begin(pu, qp, wr);
        if (verdict != VB_CROSS_GO)
            return verdict == VB_CROSS_STOP && fail_in_turn(pu, qp, wr);
        if (qp->state != VB_QPS_RTS)
            return did_not_begin(pu, qp, wr); // its audit found no room
    }
    give_numbers(pu, qp, wr);
    VB_RECORD(pu, .kind = VB_STEP_EXEC, .opcode = wr->opcode, .qpn = qp->qpn,
              .counter = wr->counter, .bytes = wr->length);
    return true;
}

// Most requests are data on a reliable connection, with nothing to wait for or to judge.
static bool begin(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_wr *wr = qp->req.unbegun;

    if (!wr)
        return false;
    bool data = (wr->opcode & ~3u) == VB_WQE_WRITE; // or SEND, with immediate data or without
    if (!data || !qp->plain || wr->syndrome | (wr->fm_ce_se & VB_WQE_FENCE) || pu->dev->hooks)
        return begin_otherwise(pu, qp, wr);
    number(&qp->req, wr, vb_packets_of(qp, wr->length));
    VB_RECORD(pu, .kind = VB_STEP_EXEC, .opcode = wr->opcode, .qpn = qp->qpn,
              .counter = wr->counter, .bytes = wr->length);
    return true;
}

// ---- send

// Packets `index` and so on of the request at the cursor.
static void sent(struct vb_pu *pu, struct vb_qpc *qp, uint32_t index, uint32_t psns, bool ack)
{
    struct vb_requester *r = &qp->req;
    struct vb_wr *wr = r->cursor;
    uint32_t packets = index + psns; // of the request that have been sent

    r->send_psn = vb_psn_add(r->send_psn, psns);
    if (vb_psn_diff(r->send_psn, r->max_psn) > 0) {
        r->max_psn = r->send_psn;
        r->newest = wr;
    }
    if (packets >= wr->psns) {
        do
            wr = wr->next; // requests without packets have nothing to repeat
        while (wr != r->unbegun && wr->psns == 0);
        bool more = wr != r->unbegun;
        r->cursor = more ? wr : NULL;
        set_cost_sent(qp, more ? wr->cost_base : r->cost_next);
    } else {
        set_cost_sent(qp, wr->cost_base + (uint64_t)packets * (qp->mtu + PACKET_COST));
    }
    if (__builtin_expect(!vb_qpc_is_reliable(qp), 0)) {
        vb_requester_acked(pu, qp, r->send_psn); // what was sent is done with
    } else if (ack) {
        r->asked_psn = r->send_psn;
        r->asking = false;
        arm_ack_timer(pu, qp);
    } else {
        arm_ask_timer(pu, qp);
    }
}

// As on a reliable connection; other services shift it.
static uint8_t request_opcode(uint8_t wqe, bool first, bool last)
{
    static const uint8_t send[2][2] = {{VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST},
                                       {VB_RC_SEND_FIRST, VB_RC_SEND_ONLY}};
    static const uint8_t write[2][2] = {{VB_RC_WRITE_MIDDLE, VB_RC_WRITE_LAST},
                                        {VB_RC_WRITE_FIRST, VB_RC_WRITE_ONLY}};

    if (wqe == VB_WQE_WRITE || (wqe == VB_WQE_WRITE_IMM && !last))
        return write[first][last];
    if (wqe == VB_WQE_WRITE_IMM)
        return first ? VB_RC_WRITE_ONLY_IMM : VB_RC_WRITE_LAST_IMM;
    if (wqe == VB_WQE_SEND_IMM && last)
        return first ? VB_RC_SEND_ONLY_IMM : VB_RC_SEND_LAST_IMM;
    if (wqe == VB_WQE_SEND_INVAL && last)
        return first ? VB_RC_SEND_ONLY_INV : VB_RC_SEND_LAST_INV;
    return send[first][last];
}

// Copies the payload to dst, or lends it.
static bool gather(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr, uint32_t offset,
                   uint8_t *dst, uint32_t len, const uint8_t **lent)
{
    *lent = NULL;
    if (wr->is_inline) {
        memcpy(dst, wr->longer + offset, len);
        return true;
    }
    // Without an acknowledgement the request is done before the port has its bytes.
    if (len >= pu->dev->lend_bytes && vb_qpc_is_reliable(qp)) {
        if (vb_lend(pu, vb_qpc_who(qp), vb_wr_segs(wr), wr->num_seg, offset, len, lent) !=
            VB_MEM_OK)
            return false;
        if (*lent)
            return true;
    }
    enum vb_mem_refusal r =
        vb_gather(pu, vb_qpc_who(qp), vb_wr_segs(wr), wr->num_seg, offset, dst, len);
    if (__builtin_expect(r == VB_MEM_COPIED, 0))
        r = vb_gather_list(pu, vb_qpc_who(qp), vb_wr_segs(wr), wr->num_seg, offset, dst, len);
    return r == VB_MEM_OK;
}

// A packet of the queue pair's connection, without what its opcode adds.
static struct vb_packet packet(const struct vb_qpc *qp, const struct vb_wr *wr, uint8_t opcode)
{
    return (struct vb_packet){
        .opcode = vb_opcode_for(qp->transport, opcode),
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = qp->dest_qpn,
        .psn = qp->req.send_psn,
        .xrc_srqn = wr->srqn,
    };
}

// Writes the packet with its payload. False: the memory may not be read, and the request fails.
static bool put_request(struct vb_pu *pu, struct vb_qpc *qp, struct vb_path *path, struct vb_wr *wr,
                        const struct vb_packet *pkt, uint32_t offset)
{
    uint8_t *at = vb_pu_tx_at(pu);
    const uint8_t *lent;
    uint32_t header = vb_opcode_table[pkt->opcode].header_bytes;

    if (!gather(pu, qp, wr, offset, at + header, pkt->payload_len, &lent)) {
        wr->syndrome = VB_SYN_LOCAL_PROT;
        return false;
    }
    vb_packet_encode(at, pkt);
    vb_pu_tx_commit(pu, qp, path, header, pkt->payload_len, lent);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_OUT, .opcode = pkt->opcode, .qpn = qp->qpn, .psn = pkt->psn,
              .bytes = pkt->payload_len, .counter = wr->counter);
    return true;
}

// The headers of a SEND or WRITE packet, which are most packets: written without a struct between.
static void put_headers(uint8_t *at, const struct vb_qpc *qp, const struct vb_wr *wr,
                        const struct vb_opcode_info *info, uint32_t first, uint32_t third)
{
    const uint32_t more = VB_OP_XRCETH | VB_OP_IMM | VB_OP_IETH;

    vb_bth_write(at, first, qp->dest_qpn, third);
    at += VB_BTH_BYTES;
    if (!(info->facts & more)) {
        if (info->facts & VB_OP_RETH)
            vb_reth_write(at, wr->raddr, wr->rkey, wr->length);
        return;
    }
    if (info->facts & VB_OP_XRCETH) {
        vb_put_be32(at, wr->srqn);
        at += VB_XRCETH_BYTES;
    }
    if (info->facts & VB_OP_RETH) {
        vb_reth_write(at, wr->raddr, wr->rkey, wr->length);
        at += VB_RETH_BYTES;
    }
    if (info->facts & (VB_OP_IMM | VB_OP_IETH))
        memcpy(at, &wr->imm, sizeof wr->imm); // as it stands in the entry
}

// The last packet of a request asks for an ACK if somebody waits for its completion; otherwise a
// later one may ask for both, unless that cannot be relied on.
static bool asks(const struct vb_pu *pu, const struct vb_qpc *qp, const struct vb_wr *wr,
                 uint32_t len, bool last)
{
    const struct vb_requester *r = &qp->req;

    if (qp->peer->in_flight + len + PACKET_COST >= qp->peer->open ||
        pu->turn_frames % ACK_EVERY == ACK_EVERY - 1 || r->silence | r->asking)
        return true;
    if (!last)
        return false;
    return vb_wr_is_signaled(wr) || r->send_psn != r->max_psn ||
           vb_psn_diff(r->send_psn, r->asked_psn) >= UNASKED_MAX - 1 ||
           (r->limited && wr->opcode != VB_WQE_WRITE &&
            vb_psn_diff(r->limit, r->ssn) < CREDITS_LOW);
}

static uint32_t solicited_bit(const struct vb_wr *wr, bool last)
{
    if (__builtin_expect(wr->fm_ce_se & VB_WQE_SOLICITED, 0) && last && wr->opcode != VB_WQE_WRITE)
        return VB_BTH_SOLICITED;
    return 0;
}

// One packet of a SEND or WRITE, or, made for that case alone, the only one.
static inline __attribute__((always_inline)) bool send_data(struct vb_pu *pu, struct vb_qpc *qp,
                                                            struct vb_wr *wr, bool only)
{
    uint32_t psn = qp->req.send_psn, index = only ? 0 : offset_of(wr, psn);
    uint32_t offset = index << qp->mtu_shift, left = wr->length - offset;
    uint32_t len = only || left < qp->mtu ? left : qp->mtu;
    bool last = only || index + 1 == wr->psns;
    uint8_t opcode = vb_opcode_for(qp->transport, request_opcode(wr->opcode, index == 0, last));
    const struct vb_opcode_info *info = &vb_opcode_table[opcode];
    bool ack = vb_qpc_is_reliable(qp) && asks(pu, qp, wr, len, last);
    uint8_t *at = vb_pu_tx_at(pu);
    const uint8_t *lent;

    if (!gather(pu, qp, wr, offset, at + info->header_bytes, len, &lent)) {
        wr->syndrome = VB_SYN_LOCAL_PROT;
        return fail_in_turn(pu, qp, wr);
    }
    put_headers(at, qp, wr, info,
                (uint32_t)opcode << 24 | solicited_bit(wr, last) | VB_BTH_MIGREQ |
                    vb_packet_pad(len) << VB_BTH_PAD_SHIFT | VB_PKEY_DEFAULT,
                psn | (ack ? VB_BTH_ACK_REQUEST : 0));
    vb_pu_tx_commit(pu, qp, qp->path, info->header_bytes, len, lent);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_OUT, .opcode = opcode, .qpn = qp->qpn, .psn = psn,
              .bytes = len, .counter = wr->counter);
    sent(pu, qp, index, 1, ack);
    return true;
}

static __attribute__((noinline)) bool send_only(struct vb_pu *pu, struct vb_qpc *qp,
                                                struct vb_wr *wr)
{
    return send_data(pu, qp, wr, true);
}

static __attribute__((noinline)) bool send_one(struct vb_pu *pu, struct vb_qpc *qp,
                                               struct vb_wr *wr)
{
    return send_data(pu, qp, wr, false);
}

static bool send_datagram(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    uint8_t opcode = wr->opcode == VB_WQE_SEND_IMM ? VB_UD_SEND_ONLY_IMM : VB_UD_SEND_ONLY;
    struct vb_ip to;

    memcpy(to.b, wr->rgid, sizeof to.b);
    struct vb_path *path = vb_ah_path(pu, qp, &to, wr);
    if (!path) {
        wr->syndrome = VB_SYN_LOCAL_QP_OP; // an address of another family, or no memory
        return fail_in_turn(pu, qp, wr);
    }
    const struct vb_packet pkt = {
        .opcode = opcode,
        .pkey = VB_PKEY_DEFAULT,
        .solicited = !!(wr->fm_ce_se & VB_WQE_SOLICITED),
        .dest_qpn = (uint32_t)wr->raddr,
        .psn = qp->req.send_psn,
        // The top bit asks for the queue pair's own (clause 10.2.5).
        .qkey = wr->rkey & 0x80000000u ? qp->qkey : wr->rkey,
        .src_qpn = qp->qpn,
        .imm = wr->imm,
        .payload_len = wr->length,
    };
    if (!put_request(pu, qp, path, wr, &pkt, 0))
        return fail_in_turn(pu, qp, wr);
    sent(pu, qp, 0, 1, true);
    return true;
}

static uint8_t single_opcode(uint8_t wqe)
{
    switch (wqe) {
    case VB_WQE_ATOMIC_CS: return VB_RC_COMPARE_SWAP;
    case VB_WQE_ATOMIC_FA: return VB_RC_FETCH_ADD;
    case VB_WQE_MASKED_CS: return VB_RC_MASKED_COMPARE_SWAP;
    case VB_WQE_MASKED_FA: return VB_RC_MASKED_FETCH_ADD;
    case VB_WQE_ATOMIC_WRITE: return VB_RC_ATOMIC_WRITE;
    default: return VB_RC_FLUSH;
    }
}

// Atomics, ATOMIC WRITE and FLUSH: one packet, one answer.
static bool send_single(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    struct vb_packet pkt = packet(qp, wr, single_opcode(wr->opcode));

    if (qp->req.reads_out >= qp->max_rd_atomic)
        return false;
    pkt.raddr = wr->raddr;
    pkt.rkey = wr->rkey;
    pkt.ack_request = true;
    if (wr->opcode == VB_WQE_FLUSH) {
        pkt.dma_len = (uint32_t)wr->range;
        pkt.flush_type = wr->imm & 0x0f;
        pkt.flush_level = wr->imm >> 4 & 3;
    } else if (wr->opcode == VB_WQE_ATOMIC_WRITE) {
        pkt.dma_len = pkt.payload_len = wr->length;
    } else {
        pkt.swap_add = wr->atomic.swap_add;
        pkt.compare = wr->atomic.compare;
        pkt.atomic_bytes = wr->arg_bytes;
        if (wr->opcode == VB_WQE_MASKED_CS) {
            pkt.swap_mask = wr->swap_mask;
            pkt.compare_mask = wr->compare_mask;
        }
    }
    if (!put_request(pu, qp, qp->path, wr, &pkt, 0))
        return fail_in_turn(pu, qp, wr);
    qp->req.reads_out++;
    sent(pu, qp, 0, 1, true);
    return true;
}

static bool send_read(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    uint32_t segment = vb_read_segment(qp);
    uint32_t index = offset_of(wr, qp->req.send_psn);
    uint32_t end = (index / segment + 1) * segment;
    uint32_t offset = index << qp->mtu_shift;

    if (qp->req.reads_out >= qp->max_rd_atomic)
        return false;
    if (end > wr->psns)
        end = wr->psns;
    if (index > 0 && qp->req.send_psn == qp->req.max_psn)
        qp->req.ssn++; // to the peer each segment is a message
    uint32_t left = wr->length - offset, whole = (end - index) << qp->mtu_shift;
    struct vb_packet pkt = packet(qp, wr, VB_RC_READ_REQUEST);
    pkt.raddr = wr->raddr + offset;
    pkt.rkey = wr->rkey;
    pkt.dma_len = left < whole ? left : whole;
    uint32_t header = (uint32_t)vb_packet_encode(vb_pu_tx_at(pu), &pkt);
    vb_pu_tx_commit(pu, qp, qp->path, header, 0, NULL);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_OUT, .opcode = pkt.opcode, .qpn = qp->qpn, .psn = pkt.psn,
              .counter = wr->counter);
    qp->req.reads_out++;
    sent(pu, qp, index, end - index, true);
    return true;
}

// The packet just written asks, too.
static void make_ask(struct vb_pu *pu, struct vb_qpc *qp, uint8_t *last_word)
{
    vb_put_be32(last_word, vb_get_be32(last_word) | VB_BTH_ACK_REQUEST);
    qp->req.asked_psn = qp->req.send_psn;
    arm_ack_timer(pu, qp);
}

// A packet after which the rate makes the others wait asks for an ACK: the wait may be longer than
// the acknowledgement timer.
static bool send_at_rate(struct vb_pu *pu, struct vb_qpc *qp, struct vb_wr *wr)
{
    uint8_t *last_word = vb_pu_tx_at(pu) + VB_BTH_BYTES - 4;
    uint32_t frames = pu->txq.count;

    if (vb_congestion_holds(pu, qp))
        return false;
    bool made = qp->type == VB_QPT_UD ? send_datagram(pu, qp, wr) : send_one(pu, qp, wr);
    if (pu->txq.count > frames && vb_congestion_charge(pu, qp) && vb_qpc_is_reliable(qp))
        make_ask(pu, qp, last_word);
    return made;
}

static __attribute__((noinline)) bool send_otherwise(struct vb_pu *pu, struct vb_qpc *qp,
                                                     struct vb_wr *wr)
{
    return qp->congestion ? send_at_rate(pu, qp, wr) : send_datagram(pu, qp, wr);
}

static inline __attribute__((always_inline)) bool send_next(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_wr *wr = qp->req.cursor;

    if (wr->syndrome != VB_SYN_OK)
        return fail_in_turn(pu, qp, wr);
    if (must_wait(pu, qp))
        return false;
    if (!vb_pu_tx_room(pu)) {
        pu->tx_full = true;
        return false;
    }
    if (wr->opcode != VB_WQE_WRITE) {
        if (wr->opcode == VB_WQE_READ)
            return send_read(pu, qp, wr);
        if (wr->awaits)
            return send_single(pu, qp, wr);
        if (vb_credit_holds(pu, qp, wr))
            return false;
    }
    if (__builtin_expect(!qp->sends_plainly, 0))
        return send_otherwise(pu, qp, wr);
    return wr->psns == 1 ? send_only(pu, qp, wr) : send_one(pu, qp, wr);
}

// What somebody waits for must be asked for first: by the newest packet, or, if its memory is gone,
// by all before it.
static __attribute__((noinline)) bool ask(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    if (send_next(pu, qp))
        return true;
    bool answer_comes = vb_psn_diff(r->asked_psn, r->una_psn) > 0;
    if (!r->asking || r->cursor->syndrome == VB_SYN_OK || answer_comes)
        return false;
    vb_requester_rewind(pu, qp);
    return send_next(pu, qp);
}

// In SQD nothing is fetched or begun; the host hears when the last request is done.
static bool drain(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (qp->req.cursor)
        return qp->req.timer_kind != VB_REQ_TIMER_RNR && send_next(pu, qp);
    if (!qp->drained && qp->req.una_wr == qp->req.unbegun) {
        qp->drained = true;
        vb_pu_event(pu, VB_EVENT_SQ_DRAINED, qp->qpn);
    }
    vb_requester_settle(pu, qp);
    return qp->req.asking && ask(pu, qp);
}

// The packet that the step before has begun.
static bool send_begun(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    r->begun = false;
    return r->cursor && r->timer_kind != VB_REQ_TIMER_RNR && send_next(pu, qp);
}

// In the order of vb_requester_run().
static inline bool step(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;
    const struct vb_wr *next = r->unbegun;

    if ((r->begun && send_begun(pu, qp)) || fetch(pu, qp))
        return true;
    if (r->timer_kind == VB_REQ_TIMER_RNR)
        return false;
    if (r->cursor ? send_next(pu, qp) : begin(pu, qp)) {
        r->begun = next && r->cursor == next;
        return true;
    }
    return r->asking && ask(pu, qp); // what it waits for must be asked for first
}

bool vb_requester_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    return qp->state == VB_QPS_SQD ? drain(pu, qp) : step(pu, qp);
}

// A request that begins sends its first packet at once, before the next fetch. One without packets
// may have ended the turn, so nothing follows it here.
static uint32_t proceed(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_wr *next = qp->req.unbegun;

    if (qp->req.cursor) {
        if (send_next(pu, qp))
            return 1;
    } else if (begin(pu, qp)) {
        return 1u + (qp->req.cursor == next && send_next(pu, qp));
    }
    return qp->req.asking && ask(pu, qp);
}

uint32_t vb_requester_run(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_requester *r = &qp->req;
    uint32_t steps = 0;

    if (__builtin_expect(r->begun, 0) && send_begun(pu, qp)) {
        steps++;
        if (r->head != r->una_wr || qp->state != VB_QPS_RTS)
            return steps;
    }
    while (pu->turn_frames < VB_TURN_FRAMES) {
        if (fetch(pu, qp)) {
            steps++;
            continue;
        }
        uint32_t made = r->timer_kind == VB_REQ_TIMER_RNR ? 0 : proceed(pu, qp);
        steps += made;
        if (made == 0 || r->head != r->una_wr || qp->state != VB_QPS_RTS)
            break;
    }
    return steps;
}

void vb_requester_restart(struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    r->head = r->tail = r->una_wr = r->cursor = r->unbegun = NULL;
    r->fetched_ahead = r->reads_open = r->reads_out = 0;
    r->una_psn = r->send_psn = r->next_psn = r->asked_psn = r->max_psn;
    r->asking = false;
    r->cost_sent = r->cost_acked = r->cost_next;
}

void vb_requester_reset(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_requester *r = &qp->req;

    for (struct vb_wr *wr = r->head, *next; wr; wr = next) {
        next = wr->next;
        vb_wr_put(&pu->pool, wr);
    }
    vb_timer_remove(&pu->timers, &r->timer);
    vb_peer_leave(pu, qp);
    memset(r, 0, sizeof *r);
    r->timer.deadline_ns = VB_TIMER_NEVER;
}
