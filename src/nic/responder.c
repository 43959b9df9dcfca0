// SPDX-License-Identifier: Apache-2.0
// The responder: executes request packets in sequence, exactly once, and owes the requester ACKs,
// NAKs and READ responses, which leave in the order of their packet sequence numbers (clause 9.7).
#include "nic/pu.h"

#include "base/serial.h"

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
    qp->resp.closing = true;
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

// ---- duplicates (clause 9.7.5.1.5)

// Answers a READ again. The request's own key is checked when the answer is built; a job that will
// still send this packet makes the duplicate superfluous, jobs behind it are superseded.
static void replay_read(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    uint32_t packets = vb_packets_of(qp, pkt->dma_len);
    uint32_t end = vb_psn_add(pkt->psn, packets);

    if (pkt->dma_len > VB_MESSAGE_MAX || vb_psn_diff(end, r->epsn) > 0)
        return;
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
                      .raddr = pkt->raddr,
                      .rkey = pkt->rkey,
                      .len = pkt->dma_len,
                      .psn = pkt->psn,
                      .first = true,
                      .replay = true,
                  });
    vb_pu_kick(pu, qp);
}

static enum vb_rx_verdict duplicate(struct vb_pu *pu, struct vb_qpc *qp,
                                    const struct vb_packet *pkt)
{
    pu->count.duplicate_request++;
    if (pkt->facts & VB_OP_READ)
        replay_read(pu, qp, pkt);
    else
        owe_ack(pu, qp);
    return VB_RX_DUPLICATE;
}

// ---- requests in sequence

static enum vb_rx_verdict accept(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                                 uint32_t packets)
{
    struct vb_responder *r = &qp->resp;

    r->epsn = vb_psn_add(r->epsn, packets);
    r->nak_sent = false;
    if (r->answer == VB_ANSWER_NAK) {
        r->answer = VB_ANSWER_NONE; // the missing packet came before the complaint left
        owe_ack(pu, qp);
    }
    if (pkt->facts & VB_OP_LAST) {
        r->message = VB_MESSAGE_NONE;
        r->msn = (r->msn + 1) & VB_PSN_MASK;
    }
    if (pkt->ack_request)
        owe_ack(pu, qp);
    return VB_RX_APPLIED;
}

// First and Middle are full, Last is not empty, nothing is longer than the MTU (clause 9.7.4.1.6).
static bool length_is_legal(const struct vb_qpc *qp, const struct vb_packet *pkt)
{
    if (!(pkt->facts & VB_OP_LAST))
        return pkt->payload_len == qp->mtu;
    if (!(pkt->facts & VB_OP_FIRST) && pkt->payload_len == 0)
        return false;
    return pkt->payload_len <= qp->mtu;
}

static enum vb_rx_verdict receive_fails(struct vb_pu *pu, struct vb_qpc *qp,
                                        enum vb_cqe_syndrome syndrome, enum vb_nak code)
{
    qp->resp.recv_syndrome = (uint8_t)syndrome;
    pu->recv_done = qp;
    return refuse(pu, qp, code);
}

static enum vb_rx_verdict not_ready(struct vb_pu *pu, struct vb_qpc *qp)
{
    pu->count.send_rnr_err++;
    pu->count.out_of_buffer++;
    qp->resp.nak_sent = true;
    owe_nak(pu, qp, VB_AETH_RNR, qp->min_rnr_timer, qp->resp.epsn);
    return VB_RX_RNR;
}

static enum vb_rx_verdict send_packet(struct vb_pu *pu, struct vb_qpc *qp,
                                      const struct vb_packet *pkt)
{
    struct vb_recv *recv = &qp->resp.recv;

    if (pkt->facts & VB_OP_FIRST) {
        if (!vb_receive_load(qp))
            return not_ready(pu, qp);
        qp->resp.message = VB_MESSAGE_SEND;
        pu->count.rx_send_requests++;
    }
    if (pkt->payload_len > recv->room - recv->filled)
        return receive_fails(pu, qp, VB_SYN_LOCAL_LENGTH, VB_NAK_INVALID_REQUEST);
    if (vb_scatter(pu, qp->pd, recv->seg, recv->num_seg, recv->filled, pkt->payload,
                   pkt->payload_len) != VB_MEM_OK)
        return receive_fails(pu, qp, VB_SYN_LOCAL_PROT, VB_NAK_REMOTE_OPERATION);
    recv->filled += pkt->payload_len;
    if (pkt->facts & VB_OP_LAST) {
        qp->resp.recv_syndrome = VB_SYN_OK;
        pu->recv_done = qp;
    }
    return accept(pu, qp, pkt, 1);
}

// A zero-length request names no memory: its key is not looked at (C9-88).
static bool may_access(struct vb_pu *pu, const struct vb_qpc *qp, uint32_t rkey, uint64_t addr,
                       uint32_t len, enum vb_access need, uint8_t **at)
{
    if (!(qp->access & need))
        return false;
    return len == 0 ||
           vb_mem_access(&pu->dev->mkeys, qp->pd, rkey, addr, len, need, at) == VB_MEM_OK;
}

static enum vb_rx_verdict write_packet(struct vb_pu *pu, struct vb_qpc *qp,
                                       const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    uint8_t *at = NULL;

    if (pkt->facts & VB_OP_FIRST) {
        if (pkt->dma_len > VB_MESSAGE_MAX)
            return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
        if (!may_access(pu, qp, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_WRITE, &at))
            return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
        r->raddr = pkt->raddr;
        r->rkey = pkt->rkey;
        r->left = pkt->dma_len;
        pu->count.rx_write_requests++;
    }
    bool ends = pkt->facts & VB_OP_LAST;
    if (ends ? pkt->payload_len != r->left : pkt->payload_len >= r->left)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    // The region may be gone since the first packet: every packet proves its own bytes.
    if (!(pkt->facts & VB_OP_FIRST) &&
        !may_access(pu, qp, r->rkey, r->raddr, pkt->payload_len, VB_REMOTE_WRITE, &at))
        return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    if (pkt->payload_len > 0) {
        memcpy(at, pkt->payload, pkt->payload_len);
        vb_pu_touch(pu, at, pkt->payload_len, true);
    }
    r->message = VB_MESSAGE_WRITE;
    r->raddr += pkt->payload_len;
    r->left -= pkt->payload_len;
    return accept(pu, qp, pkt, 1);
}

static enum vb_rx_verdict read_request(struct vb_pu *pu, struct vb_qpc *qp,
                                       const struct vb_packet *pkt)
{
    struct vb_responder *r = &qp->resp;
    uint8_t *at;

    if (pkt->dma_len > VB_MESSAGE_MAX || r->job_new >= qp->max_dest_rd_atomic)
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if (!may_access(pu, qp, pkt->rkey, pkt->raddr, pkt->dma_len, VB_REMOTE_READ, &at))
        return refuse(pu, qp, VB_NAK_REMOTE_ACCESS);
    while (r->job_count == VB_READ_JOBS)
        job_remove(r, 0); // only replays can fill the ring, and they will be asked for again
    job_insert(r, &(struct vb_read_job){
                      .raddr = pkt->raddr,
                      .rkey = pkt->rkey,
                      .len = pkt->dma_len,
                      .psn = pkt->psn,
                      .first = true,
                  });
    pu->count.rx_read_requests++;
    vb_pu_kick(pu, qp);
    return accept(pu, qp, pkt, vb_packets_of(qp, pkt->dma_len));
}

// Which packets may follow which (clause 9.7.4.1.2).
static bool sequence_is_legal(const struct vb_responder *r, uint32_t facts)
{
    switch (r->message) {
    case VB_MESSAGE_SEND: return (facts & VB_OP_SEND) && !(facts & VB_OP_FIRST);
    case VB_MESSAGE_WRITE: return (facts & VB_OP_WRITE) && !(facts & VB_OP_FIRST);
    default: return facts & VB_OP_FIRST;
    }
}

static enum vb_rx_verdict execute(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt)
{
    const uint32_t not_served = VB_OP_ATOMIC | VB_OP_IMM | VB_OP_IETH;

    if ((pkt->facts & not_served) || !sequence_is_legal(&qp->resp, pkt->facts) ||
        ((pkt->facts & VB_OP_PAYLOAD) && !length_is_legal(qp, pkt)))
        return refuse(pu, qp, VB_NAK_INVALID_REQUEST);
    if (pkt->facts & VB_OP_SEND)
        return send_packet(pu, qp, pkt);
    if (pkt->facts & VB_OP_WRITE)
        return write_packet(pu, qp, pkt);
    return read_request(pu, qp, pkt);
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
    pu->count.out_of_seq_request++;
    if (!r->nak_sent) {
        r->nak_sent = true;
        owe_nak(pu, qp, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, r->epsn);
    }
    return VB_RX_AHEAD;
}

void vb_responder_complete(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_recv *recv = &qp->resp.recv;
    const struct vb_completion c = {
        .qpn = qp->qpn,
        .counter = recv->counter,
        .opcode = qp->resp.recv_syndrome ? VB_CQE_RESP_ERR : VB_CQE_RESP_SEND,
        .syndrome = qp->resp.recv_syndrome,
        .bytes = recv->filled,
    };
    recv->loaded = false;
    vb_qpc_complete(pu, qp, qp->recv_cq, &c);
}

// ---- answers out

static void put_answer(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_packet *pkt,
                       const uint8_t *lent)
{
    uint32_t header = (uint32_t)vb_packet_encode(vb_pu_tx_at(pu), pkt);
    vb_pu_tx_commit(pu, qp, header, pkt->payload_len, lent);
    VB_RECORD(pu, .kind = VB_STEP_FRAME_OUT, .opcode = pkt->opcode, .qpn = qp->qpn, .psn = pkt->psn,
              .bytes = pkt->payload_len, .detail = pkt->syndrome);
}

static void send_answer(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    bool is_nak = r->answer == VB_ANSWER_NAK;
    const struct vb_packet pkt = {
        .opcode = VB_RC_ACK,
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = qp->dest_qpn,
        .psn = is_nak ? r->nak_psn : vb_psn_add(r->epsn, VB_PSN_MASK),
        .msn = r->msn,
        .syndrome =
            is_nak ? r->nak_syndrome : vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID),
    };
    if (is_nak && pkt.syndrome == vb_aeth_syndrome(VB_AETH_NAK, VB_NAK_PSN_SEQUENCE))
        pu->count.rcvd_seq_err++;
    r->answer = VB_ANSWER_NONE;
    put_answer(pu, qp, &pkt, NULL);
    if (r->closing)
        vb_qpc_fail(pu, qp);
}

static uint8_t response_opcode(bool first, bool last)
{
    static const uint8_t table[2][2] = {{VB_RC_READ_RESP_MIDDLE, VB_RC_READ_RESP_LAST},
                                        {VB_RC_READ_RESP_FIRST, VB_RC_READ_RESP_ONLY}};
    return table[first][last];
}

// The memory of a READ is gone: the requester is told, and nothing that came after it is answered.
// A replay is dropped instead, because a stray duplicate of a READ long answered must not end a
// healthy connection.
static void job_fails(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_read_job *job)
{
    struct vb_responder *r = &qp->resp;

    if (job->replay) {
        job_remove(r, 0);
        return;
    }
    r->closing = true;
    owe_nak(pu, qp, VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, job->psn);
    r->job_count = r->job_new = 0;
}

static bool send_response(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;
    struct vb_read_job *job = job_at(r, 0);
    uint32_t len = job->len < qp->mtu ? job->len : qp->mtu;
    bool last = len == job->len;
    const struct vb_packet pkt = {
        .opcode = response_opcode(job->first, last),
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = qp->dest_qpn,
        .psn = job->psn,
        .msn = r->msn,
        .syndrome = vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID),
        .payload_len = len,
    };
    uint8_t *src = NULL;

    if (!may_access(pu, qp, job->rkey, job->raddr, len, VB_REMOTE_READ, &src)) {
        job_fails(pu, qp, job);
        return false;
    }
    bool lent = len >= pu->dev->lend_bytes;
    if (len > 0 && !lent)
        memcpy(vb_pu_tx_at(pu) + vb_opcode_table[pkt.opcode].header_bytes, src, len);
    vb_pu_touch(pu, src, len, false);
    put_answer(pu, qp, &pkt, lent ? src : NULL);
    job->raddr += len;
    job->len -= len;
    job->psn = vb_psn_add(job->psn, 1);
    job->first = false;
    if (last) {
        if (r->answer == VB_ANSWER_ACK && job->psn == r->epsn)
            r->answer = VB_ANSWER_NONE; // the response has acknowledged all there is
        job_remove(r, 0);
    }
    return true;
}

bool vb_responder_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_responder *r = &qp->resp;

    if (!vb_pu_tx_room(pu)) {
        pu->tx_full = true;
        return false;
    }
    while (r->job_count > 0)
        if (send_response(pu, qp))
            return true;
    if (r->answer == VB_ANSWER_NONE)
        return false;
    send_answer(pu, qp);
    return true;
}

void vb_responder_reset(struct vb_qpc *qp)
{
    memset(&qp->resp, 0, sizeof qp->resp);
}
