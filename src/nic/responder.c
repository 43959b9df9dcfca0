// SPDX-License-Identifier: Apache-2.0
// The responder: executes request packets in sequence, exactly once, and owes the requester ACKs,
// NAKs and READ responses, which leave in the order of their packet sequence numbers (clause 9.7).
#include "nic/pu.h"

#include "base/bytes.h"
#include "base/serial.h"
#include "nic/atomic.h"

#include <stdatomic.h>
#include <string.h>

// ---- what is owed

static void owe_ack(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    if (r->answer == VB_ANSWER_ACK)
        pu->count.ack_deferred++; // one ACK will do for both
    if (r->answer != VB_ANSWER_NAK)
        r->answer = VB_ANSWER_ACK;
    vb_pu_kick(pu, qp);
}

static void owe_nak(struct vb_pu *pu, struct vb_qpc *qp, enum vb_aeth_kind kind, unsigned value,
                    uint32_t psn)
{
    struct vb_responder *r = &qp->resp;
    r->answer = VB_ANSWER_NAK;
    r->nak_syndrome = vb_aeth_syndrome(kind, value);
    r->nak_psn = psn;
    vb_pu_kick(pu, qp);
}

// A peer's violation: the NAK goes out behind the answers already owed, then the queue pair fails.
static enum vb_rx_verdict refuse(struct vb_pu *pu, struct vb_qpc *qp, enum vb_nak code)
{
    if (code == VB_NAK_REMOTE_ACCESS && qp->resp.gone)
        code = VB_NAK_REMOTE_OPERATION;
    qp->resp.closing = true;
    if (code == VB_NAK_INVALID_REQUEST)
        vb_pu_event(pu, VB_EVENT_QP_REQ_ERR, qp->qpn);
    else if (code == VB_NAK_REMOTE_ACCESS)
        vb_pu_event(pu, VB_EVENT_QP_ACCESS_ERR, qp->qpn);
    owe_nak(pu, qp, VB_AETH_NAK, code, qp->resp.epsn);
    return VB_RX_REFUSED;
}

// ---- READ jobs: a ring ordered by PSN

static struct vb_read_job *job_at(struct vb_responder *r, uint32_t i)
{
    return &r->job[(r->job_head + i) % VB_READ_JOBS];
}

static void job_remove(struct vb_responder *r, uint32_t i)
{
    if (!job_at(r, i)->replay)
        r->job_new--;
    for (; i > 0; i--)
        *job_at(r, i) = *job_at(r, i - 1);
    r->job_head = (r->job_head + 1) % VB_READ_JOBS;
    r->job_count--;
}

static void job_insert(struct vb_responder *r, const struct vb_read_job *job)
{
    uint32_t i = r->job_count++;
    for (; i > 0 && vb_psn_diff(job->psn, job_at(r, i - 1)->psn) < 0; i--)
        *job_at(r, i) = *job_at(r, i - 1);
    *job_at(r, i) = *job;
    if (!job->replay)
        r->job_new++;
}

// ---- XRC

// The shared receive queue that a request names, in whose domain it works. NULL: it may not.
static struct vb_srqc *named_srq(struct vb_pu *pu, const struct vb_qpc *qp,
                                 const struct vb_packet *pkt)
{
    struct vb_srqc *srq = vb_dev_srq(pu->dev, pkt->xrc_srqn);
    return srq && srq->xrcd == qp->xrcd ? srq : NULL;
}

// ---- duplicates (clause 9.7.5.1.5)

// Answers a READ again. The request's own key is checked when the answer is built; a job that will
// still send this packet makes the duplicate superfluous, jobs behind it are superseded.
static void replay_read(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    uint32_t packets = vb_packets_of(qp, pkt->dma_len);
    uint32_t end = vb_psn_add(pkt->psn, packets), pd = qp->pd;

    if (pkt->dma_len > VB_MESSAGE_MAX || vb_psn_diff(end, r->epsn) > 0)
        return;
    if (qp->type == VB_QPT_XRC_TGT) {
        const struct vb_srqc *srq = named_srq(pu, qp, pkt);
        if (!srq)
            return;
        pd = srq->pd;
    }
    for (uint32_t i = r->job_count; i-- > 0;) {
        const struct vb_read_job *job = job_at(r, i);
        uint32_t job_end = vb_psn_add(job->psn, vb_packets_of(qp, job->len));
        if (vb_psn_diff(job->psn, pkt->psn) <= 0 && vb_psn_diff(job_end, pkt->psn) > 0)
            return;
        if (vb_psn_diff(job->psn, pkt->psn) > 0 && vb_psn_diff(job->psn, end) < 0)
            job_remove(r, i);
    }
    if (r->job_count == VB_READ_JOBS)
        return; // the requester will ask again
    job_insert(r, &(struct vb_read_job){
                      .kind = VB_JOB_READ,
                      .raddr = pkt->raddr,
                      .rkey = pkt->rkey,
                      .pd = pd,
                      .len = pkt->dma_len,
                      .psn = pkt->psn,
                      .first = true,
                      .replay = true,
                  });
    vb_pu_kick(pu, qp);
}

// Answers again what was answered by one packet, from what was kept of it: it is never executed
// twice. What is too old for that is not asked for by an honest requester.
static void replay_single(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    const struct vb_result *kept = NULL;

    for (uint32_t i = 1; i <= VB_RD_ATOMIC_MAX && !kept; i++) { // the newest first: numbers wrap
        const struct vb_result *result = &r->result[(r->results - i) % VB_RD_ATOMIC_MAX];
        if (result->kind != VB_JOB_READ && result->psn == pkt->psn)
            kept = result;
    }
    if (!kept || r->job_count == VB_READ_JOBS)
        return;
    for (uint32_t i = 0; i < r->job_count; i++)
        if (job_at(r, i)->psn == pkt->psn)
            return; // its answer is still to leave
    job_insert(r, &(struct vb_read_job){.kind = kept->kind,
                                        .raddr = kept->old,
                                        .psn = kept->psn,
                                        .first = true,
                                        .replay = true});
    vb_pu_kick(pu, qp);
}

static enum vb_rx_verdict duplicate(struct vb_pu *pu, struct vb_qpc *qp,
                                    const struct vb_packet *pkt)
{
    VB_COUNT(pu, qp, duplicate_request);
    if (pkt->facts & VB_OP_READ)
        replay_read(pu, qp, pkt);
    else if (pkt->facts & (VB_OP_ATOMIC | VB_OP_ATOMIC_WRITE | VB_OP_FLUSH))
        replay_single(pu, qp, pkt);
    else
        owe_ack(pu, qp);
    return VB_RX_DUPLICATE;
}

// ---- requests in sequence

// The missing packet came before the complaint left. If others behind it were dropped, they are
// what is missing now.
static void reconsider_nak(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    bool sequence = r->nak_syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE);

    if (sequence && vb_psn_diff(r->far_psn, r->epsn) >= 0) {
        r->nak_psn = r->epsn;
        r->nak_sent = true;
        return;
    }
    r->answer = VB_ANSWER_NONE;
    owe_ack(pu, qp);
}

static enum vb_rx_verdict accept(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                                 uint32_t packets)
{
    struct vb_responder *r = &qp->resp;

    r->epsn = vb_psn_add(r->epsn, packets);
    r->nak_sent = false;
    if (__builtin_expect(r->answer == VB_ANSWER_NAK, 0))
        reconsider_nak(pu, qp);
    if (pkt->facts & VB_OP_LAST) {
        r->message = VB_MESSAGE_NONE;
        r->msn = (r->msn + 1) & VB_PSN_MASK;
    }
    if (pkt->ack_request)
        owe_ack(pu, qp);
    else
        r->unacked = true;
    return VB_RX_APPLIED;
}

static enum vb_rx_verdict not_ready(struct vb_pu *pu, struct vb_qpc *qp)
{
    VB_COUNT(pu, qp, send_rnr_err);
    VB_COUNT(pu, qp, out_of_buffer);
    qp->resp.nak_sent = true;
    owe_nak(pu, qp, VB_AETH_RNR, qp->min_rnr_timer, qp->resp.epsn);
    return VB_RX_RNR;
}

static enum vb_rx_verdict receive_fails(struct vb_pu *pu, struct vb_qpc *qp,
                                        enum vb_cqe_syndrome syndrome, enum vb_nak code)
{
    if (qp->resp.recv.loaded)
        vb_place_complete(pu, qp, VB_CQE_RESP_ERR, (uint8_t)syndrome, qp->resp.recv.filled);
    return refuse(pu, qp, code);
}

// What the requester hears of a packet that could not be placed (clause 9.7.4.1, table 58).
static enum vb_rx_verdict judge(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                                enum vb_placed placed)
{
    if (placed == VB_PLACED)
        return accept(pu, qp, pkt, 1);
    switch (placed) {
    case VB_PLACE_NOT_READY: return not_ready(pu, qp);
    case VB_PLACE_TOO_LONG:
        return receive_fails(pu, qp, VB_SYN_LOCAL_LENGTH, VB_NAK_INVALID_REQUEST);
    case VB_PLACE_LOCAL_FAULT:
        return receive_fails(pu, qp, VB_SYN_LOCAL_PROT, VB_NAK_REMOTE_OPERATION);
    case VB_PLACE_BAD_KEY: return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    default: return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    }
}

// Room for one more answer; only replays can fill the ring, and they will be asked for again.
static void owe_job(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_read_job *job)
{
    struct vb_responder *r = &qp->resp;

    while (r->job_count == VB_READ_JOBS)
        job_remove(r, 0);
    job_insert(r, job);
    vb_pu_kick(pu, qp);
}

static void owe_single(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_result *result)
{
    struct vb_responder *r = &qp->resp;

    r->result[r->results++ % VB_RD_ATOMIC_MAX] = *result;
    owe_job(pu, qp,
            &(struct vb_read_job){
                .kind = result->kind, .raddr = result->old, .psn = result->psn, .first = true});
}

static enum vb_rx_verdict read_request(struct vb_pu *pu, struct vb_qpc *qp,
                                       const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    uint8_t *at;

    if (pkt->dma_len > VB_MESSAGE_MAX)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if (!vb_place_may(pu, qp, r->pd, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_READ, &at) &&
        !r->copied)
        return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    owe_job(pu, qp,
            &(struct vb_read_job){
                .kind = VB_JOB_READ,
                .raddr = pkt->raddr,
                .rkey = pkt->rkey,
                .pd = r->pd,
                .len = pkt->dma_len,
                .psn = pkt->psn,
                .first = true,
            });
    VB_COUNT(pu, qp, rx_read_requests);
    return accept(pu, qp, pkt, vb_packets_of(qp, pkt->dma_len));
}

static struct vb_atomic_op atomic_op(const struct vb_packet *pkt)
{
    bool swaps =
        pkt->opcode == VB_RC_MASKED_COMPARE_SWAP || (pkt->opcode & 0x1f) == VB_RC_COMPARE_SWAP;

    if (pkt->facts & VB_OP_MASKED_ETH)
        return (struct vb_atomic_op){pkt->atomic_bytes, pkt->opcode == VB_RC_MASKED_COMPARE_SWAP,
                                     pkt->swap_add,     pkt->compare,
                                     pkt->swap_mask,    pkt->compare_mask};
    return (struct vb_atomic_op){8,          swaps,     pkt->swap_add, swaps ? pkt->compare : 0,
                                 UINT64_MAX, UINT64_MAX};
}

static enum vb_rx_verdict atomic_request(struct vb_pu *pu, struct vb_qpc *qp,
                                         const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    struct vb_atomic_op op = atomic_op(pkt);
    uint8_t *at;

    if (!vb_place_may(pu, qp, r->pd, pkt->rkey, pkt->raddr, op.bytes, VB_REMOTE_ATOMIC, &at))
        return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    if (pkt->raddr % op.bytes != 0 || (uintptr_t)at % op.bytes != 0)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    uint64_t old = vb_atomic_execute(at, &op);
    vb_pu_touch(pu, at, op.bytes, true);
    owe_single(pu, qp, &(struct vb_result){old, pkt->psn, VB_JOB_ATOMIC});
    VB_COUNT(pu, qp, rx_atomic_requests);
    return accept(pu, qp, pkt, 1);
}

static enum vb_rx_verdict atomic_write(struct vb_pu *pu, struct vb_qpc *qp,
                                       const struct vb_packet *pkt)
{
    uint8_t *at;
    uint64_t value;

    if (pkt->dma_len != sizeof value || pkt->raddr % sizeof value != 0)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if (!vb_place_may(pu, qp, qp->resp.pd, pkt->rkey, pkt->raddr, sizeof value, VB_REMOTE_WRITE,
                      &at))
        return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    if ((uintptr_t)at % sizeof value != 0)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    memcpy(&value, pkt->payload, sizeof value);
    __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELEASE);
    vb_pu_touch(pu, at, sizeof value, true);
    owe_single(pu, qp, &(struct vb_result){0, pkt->psn, VB_JOB_DONE});
    VB_COUNT(pu, qp, rx_write_requests);
    return accept(pu, qp, pkt, 1);
}

// All that was written before is visible already: the answer says so.
static enum vb_rx_verdict flush_request(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt)
{
    uint32_t need = (pkt->flush_type & VB_WQE_FLUSH_GLOBAL ? VB_FLUSH_GLOBAL : 0u) |
                    (pkt->flush_type & VB_WQE_FLUSH_PERSISTENT ? VB_FLUSH_PERSISTENT : 0u);
    uint32_t len = pkt->flush_level == 1 ? 0 : pkt->dma_len;
    struct vb_accessor who = {qp->resp.pd, qp->qpn};
    uint8_t *at;

    if (need == 0 || pkt->flush_level > 1)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if ((qp->access & need) != need ||
        vb_mem_access(&pu->dev->mkeys, who, pkt->rkey, pkt->raddr, len, need, &at) != VB_MEM_OK)
        return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    atomic_thread_fence(memory_order_seq_cst);
    owe_single(pu, qp, &(struct vb_result){0, pkt->psn, VB_JOB_DONE});
    pu->count.rx_flush_requests++;
    return accept(pu, qp, pkt, 1);
}

static enum vb_rx_verdict execute(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;

    if (!vb_place_follows(r, pkt->facts))
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if ((pkt->facts & VB_OP_FIRST) && qp->type == VB_QPT_XRC_TGT) {
        struct vb_srqc *srq = named_srq(pu, qp, pkt);
        if (!srq)
            return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
        qp->srq = srq;
        r->pd = srq->pd;
    }
    if (pkt->facts & VB_OP_SEND)
        return judge(pu, qp, pkt, vb_place_send(pu, qp, pkt));
    if (pkt->facts & VB_OP_WRITE)
        return judge(pu, qp, pkt, vb_place_write(pu, qp, pkt));
    if (r->job_new >= qp->max_dest_rd_atomic)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if (pkt->facts & VB_OP_READ)
        return read_request(pu, qp, pkt);
    if (pkt->facts & VB_OP_ATOMIC)
        return atomic_request(pu, qp, pkt);
    return pkt->facts & VB_OP_FLUSH ? flush_request(pu, qp, pkt) : atomic_write(pu, qp, pkt);
}

enum vb_rx_verdict vb_responder_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    int32_t ahead = vb_psn_diff(pkt->psn, r->epsn);

    if (r->closing)
        return VB_RX_STRANGER;
    if (ahead == 0)
        return execute(pu, qp, pkt);
    if (ahead < 0)
        return duplicate(pu, qp, pkt);
    VB_COUNT(pu, qp, out_of_seq_request);
    if (!r->nak_sent) {
        r->nak_sent = true;
        r->far_psn = pkt->psn;
        owe_nak(pu, qp, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, r->epsn);
    } else if (vb_psn_diff(pkt->psn, r->far_psn) > 0) {
        r->far_psn = pkt->psn;
    }
    return VB_RX_AHEAD;
}

static void spoil_on_purpose(struct vb_pu *pu, struct vb_qpc *qp)
{
    const struct vb_dev_hooks *h = pu->dev->hooks;
    struct vb_completion *done = &qp->resp.done;

    done->syndrome = h->completion(h->ctx, qp->qpn, 0, true);
    if (done->syndrome == VB_SYN_OK)
        return;
    done->opcode = VB_CQE_RESP_ERR;
    done->bytes = 0;
    vb_qpc_fail(pu, qp);
}

void vb_responder_complete(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_recv *recv = &qp->resp.recv;
    struct vb_cqc *cq = recv->srq && recv->srq->cq ? recv->srq->cq : qp->recv_cq;

    recv->loaded = false;
    if (__builtin_expect(pu->dev->hooks != NULL, 0) && qp->resp.done.syndrome == VB_SYN_OK)
        spoil_on_purpose(pu, qp);
    vb_qpc_complete(pu, qp, cq, &qp->resp.done);
    if (qp->resp.closing && !vb_qpc_is_reliable(qp))
        vb_qpc_fail(pu, qp); // without a NAK to wait for
}

// ---- answers out

static void put_answer(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                       const uint8_t *lent)
{
    uint32_t header = (uint32_t)vb_packet_encode(vb_pu_tx_at(pu), pkt);
    vb_pu_tx_commit(pu, qp, qp->path, header, pkt->payload_len, lent);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_OUT, .opcode = pkt->opcode, .qpn = qp->qpn, .psn = pkt->psn,
              .bytes = pkt->payload_len, .detail = pkt->syndrome);
}

static void send_answer(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    bool is_nak = r->answer == VB_ANSWER_NAK;
    const struct vb_packet pkt = {
        .opcode = vb_opcode_for(qp->transport, VB_RC_ACK),
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = qp->dest_qpn,
        .psn = is_nak ? r->nak_psn : vb_psn_add(r->epsn, VB_PSN_MASK),
        .msn = r->msn,
        .syndrome = is_nak ? r->nak_syndrome : vb_credit_tell(pu, qp),
    };
    if (is_nak && pkt.syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE))
        VB_COUNT(pu, qp, rcvd_seq_err);
    r->answer = VB_ANSWER_NONE;
    r->unacked = false;
    put_answer(pu, qp, &pkt, NULL);
    if (r->closing)
        vb_qpc_fail(pu, qp);
    else if (is_nak)
        vb_credit_posted(pu, qp); // in its place an ACK would have told
}

static uint8_t response_opcode(bool first, bool last)
{
    static const uint8_t table[2][2] = {{VB_RC_READ_RESP_MIDDLE, VB_RC_READ_RESP_LAST},
                                        {VB_RC_READ_RESP_FIRST, VB_RC_READ_RESP_ONLY}};
    return table[first][last];
}

// What has become of a response.
enum response {
    RESPONSE_REFUSED, // a NAK goes in its place
    RESPONSE_SENT,
    RESPONSE_DROPPED,
};

// The memory of a READ is gone: the requester is told, and nothing that came after it is answered.
// A replay is dropped instead, because a stray duplicate of a READ long answered must not end a
// healthy connection.
static __attribute__((noinline)) enum response job_fails(struct vb_pu *pu, struct vb_qpc *qp,
                                                         const struct vb_read_job *job)
{
    struct vb_responder *r = &qp->resp;

    if (job->replay) {
        VB_RECORD(pu, .kind = VB_STEP_DROP, .qpn = qp->qpn, .psn = job->psn);
        r->gone = false;
        job_remove(r, 0);
        return RESPONSE_DROPPED;
    }
    r->closing = true;
    vb_pu_event(pu, VB_EVENT_QP_ACCESS_ERR, qp->qpn);
    owe_nak(pu, qp, VB_AETH_NAK, r->gone ? VB_NAK_REMOTE_OPERATION : VB_NAK_REMOTE_ACCESS,
            job->psn);
    r->job_count = r->job_new = 0;
    return RESPONSE_REFUSED;
}

static void job_ends(struct vb_responder *r)
{
    if (r->answer == VB_ANSWER_ACK && job_at(r, 0)->psn == r->epsn)
        r->answer = VB_ANSWER_NONE; // the response has acknowledged all there is
    job_remove(r, 0);
}

static void send_single(struct vb_pu *pu, struct vb_qpc *qp, struct vb_read_job *job)
{
    struct vb_responder *r = &qp->resp;
    bool atomic = job->kind == VB_JOB_ATOMIC;
    const struct vb_packet pkt = {
        .opcode = vb_opcode_for(qp->transport, atomic ? VB_RC_ATOMIC_ACK : VB_RC_READ_RESP_ONLY),
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = qp->dest_qpn,
        .psn = job->psn,
        .msn = r->msn,
        .syndrome = vb_credit_tell(pu, qp),
        .atomic_old = job->raddr,
    };
    put_answer(pu, qp, &pkt, NULL);
    job->psn = vb_psn_add(job->psn, 1);
    job_ends(r);
}

static enum response send_response(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    struct vb_read_job *job = job_at(r, 0);
    if (job->kind != VB_JOB_READ) {
        send_single(pu, qp, job);
        return RESPONSE_SENT;
    }
    uint32_t len = job->len < qp->mtu ? job->len : qp->mtu;
    bool last = len == job->len;
    struct vb_packet pkt = {
        .opcode = vb_opcode_for(qp->transport, response_opcode(job->first, last)),
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = qp->dest_qpn,
        .psn = job->psn,
        .msn = r->msn,
        .payload_len = len,
    };
    uint8_t *src = NULL;

    uint8_t *dst = vb_pu_tx_at(pu) + vb_opcode_table[pkt.opcode].header_bytes;

    bool here = vb_place_may(pu, qp, job->pd, job->rkey, job->raddr, len, VB_REMOTE_READ, &src);
    if (!here && !(r->copied &&
                   vb_place_copy(pu, qp, job->pd, job->rkey, job->raddr, len, VB_REMOTE_READ, dst)))
        return job_fails(pu, qp, job);
    if (job->first || last)
        pkt.syndrome = vb_credit_tell(pu, qp);
    bool lent = len >= pu->dev->lend_bytes && here;
    if (len > 0 && !lent && here)
        memcpy(dst, src, len);
    if (here)
        vb_pu_touch(pu, src, len, false);
    put_answer(pu, qp, &pkt, lent ? src : NULL);
    job->raddr += len;
    job->len -= len;
    job->psn = vb_psn_add(job->psn, 1);
    job->first = false;
    if (last)
        job_ends(r);
    return RESPONSE_SENT;
}

bool vb_responder_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;

    if (!vb_pu_tx_room(pu)) {
        pu->tx_full = true;
        return false;
    }
    bool at_rate = __builtin_expect(qp->congestion != NULL, 0) && r->job_count > 0;
    if (at_rate && vb_congestion_holds(pu, qp))
        return false; // an ACK must not overtake a response
    if (r->job_count > 0) {
        enum response response = send_response(pu, qp);
        if (at_rate && response == RESPONSE_SENT)
            vb_congestion_charge(pu, qp);
        if (response != RESPONSE_REFUSED)
            return true;
    }
    if (r->answer == VB_ANSWER_NONE)
        return false;
    send_answer(pu, qp);
    return true;
}

void vb_responder_settle(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    bool listens = qp->state == VB_QPS_RTR || qp->state == VB_QPS_RTS || qp->state == VB_QPS_SQD;

    if (r->unacked && r->answer == VB_ANSWER_NONE && listens && vb_qpc_is_reliable(qp))
        owe_ack(pu, qp);
}

void vb_responder_reset(struct vb_qpc *qp)
{
    memset(&qp->resp, 0, sizeof qp->resp);
}
