// SPDX-License-Identifier: Apache-2.0
// Frames into live queue pairs: mostly what a peer could say next, bent in one place or another,
// between work that is posted, time that passes, and queue pairs and regions that come and go.
// Input: a choice of set-up, then one command after the other.
#include "rig.h"

#include "base/serial.h"

#include <string.h>

static struct rig_qp *pick_qp(struct rig *r, uint8_t choice)
{
    return &r->qp[choice % RIG_QPS];
}

// ---- work

static void post_send(struct rig *r, struct rig_qp *q)
{
    uint8_t choice = rig_u8(r);
    struct vb_sge sge[4] = {{0}};
    struct vb_send_wr wr = {.wr_id = q->send_id,
                            .sge = sge,
                            .num_sge = choice % 5,
                            .opcode = (enum vb_wr_opcode)(choice / 5 % 4),
                            .flags = rig_u8(r) & 15,
                            .raddr = 0x1000,
                            .rkey = 1};
    if (wr.flags & VB_WR_INLINE)
        wr.num_sge = 0; // its bytes would be read here and now
    for (uint32_t i = 0; i < wr.num_sge; i++) {
        sge[i].addr = rig_addr(r, &sge[i].lkey);
        sge[i].len = rig_u16(r) % (RIG_REGION_BYTES / 2);
    }
    if (vb_driver_post_send(&q->driver, &wr, 1) == 1)
        q->send_id++;
}

static void post_recv(struct rig *r, struct rig_qp *q)
{
    struct vb_sge sge[4] = {{0}};
    struct vb_recv_wr wr = {.wr_id = q->recv_id, .sge = sge, .num_sge = rig_u8(r) % 5};
    for (uint32_t i = 0; i < wr.num_sge; i++) {
        sge[i].addr = rig_addr(r, &sge[i].lkey);
        sge[i].len = rig_u16(r) % RIG_REGION_BYTES;
    }
    if (vb_driver_post_recv(&q->driver, &wr, 1) == 1)
        q->recv_id++;
}

// ---- frames

static uint8_t pick_opcode(struct rig *r)
{
    uint8_t opcode = rig_u8(r);
    return vb_opcode_table[opcode].facts ? opcode : opcode % (VB_RC_ACK + 1);
}

// Near a number that means something to the queue pair.
static uint32_t pick_psn(struct rig *r, const struct vb_qpc *qp)
{
    uint8_t choice = rig_u8(r);
    int delta = (int8_t)rig_u8(r) / (choice & 0x40 ? 1 : 16);
    uint32_t base;
    switch (choice % 4) {
    case 0: base = qp->resp.epsn; break;
    case 1: base = qp->req.una_psn; break;
    case 2: base = qp->req.max_psn; break;
    default: base = choice & 0x80 ? rig_u32(r) : qp->req.send_psn; break;
    }
    return (base + (uint32_t)delta) & VB_PSN_MASK;
}

static uint32_t pick_length(struct rig *r)
{
    uint8_t choice = rig_u8(r);
    switch (choice % 4) {
    case 0: return r->mtu;
    case 1: return choice / 4;
    case 2: return rig_u16(r) % (r->mtu + 8);
    default: return 0;
    }
}

static struct vb_packet make_packet(struct rig *r, const struct rig_qp *q)
{
    struct vb_packet p = {.opcode = pick_opcode(r), .pkey = VB_PKEY_DEFAULT};
    uint32_t facts = vb_opcode_table[p.opcode].facts;

    p.dest_qpn = q->driver.qpn;
    p.psn = pick_psn(r, q->ctx);
    p.payload_len = facts & VB_OP_PAYLOAD ? pick_length(r) : 0;
    if (facts & (VB_OP_RETH | VB_OP_ATOMIC_ETH)) {
        p.raddr = rig_addr(r, &p.rkey);
        uint8_t choice = rig_u8(r);
        p.dma_len = choice < 64    ? p.payload_len
                    : choice < 240 ? rig_u16(r) % RIG_REGION_BYTES
                                   : rig_u32(r);
    }
    if (facts & VB_OP_AETH)
        p.syndrome = rig_u8(r);
    p.ack_request = rig_u8(r) & 1;
    return p;
}

static void give_packet(struct rig *r, struct rig_qp *q)
{
    static const uint8_t payload[VB_MTU_MAX + 8] = {1, 2, 3};
    const struct vb_packet p = make_packet(r, q);
    rig_packet(r, &p, payload);
}

// A packet with some bytes flipped, its end cut or its source wrong.
static void give_mutant(struct rig *r, struct rig_qp *q)
{
    uint8_t frame[VB_FRAME_MAX + 16] = {0};
    struct vb_packet p = make_packet(r, q);
    uint32_t len = (uint32_t)vb_packet_encode(frame, &p);
    len += p.payload_len + vb_packet_pad(p.payload_len) + VB_ICRC_BYTES;
    uint8_t choice = rig_u8(r);
    for (uint32_t i = 0; i < choice % 4u; i++) {
        uint8_t at = rig_u8(r);
        frame[at % VB_HEADERS_MAX] ^= rig_u8(r);
    }
    if (choice & 0x40)
        len -= rig_u8(r) % len;
    rig_frame(r, frame, len, choice & 0x80);
}

// ---- frames that are exactly right

static uint32_t at_most(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

// The next packet of the message under way, or the first of another.
static void give_request(struct rig *r, struct rig_qp *q)
{
    static const uint8_t payload[VB_MTU_MAX] = {4, 5, 6};
    static const uint8_t first[] = {VB_RC_SEND_FIRST, VB_RC_SEND_ONLY, VB_RC_WRITE_FIRST,
                                    VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST};
    const struct vb_responder *m = &q->ctx->resp;
    uint8_t choice = rig_u8(r);
    struct vb_packet p = {.pkey = VB_PKEY_DEFAULT,
                          .dest_qpn = q->driver.qpn,
                          .psn = m->epsn,
                          .ack_request = choice & 0x80,
                          .payload_len = r->mtu};
    if (m->message == VB_MESSAGE_SEND) {
        p.opcode = choice & 1 ? VB_RC_SEND_MIDDLE : VB_RC_SEND_LAST;
    } else if (m->message == VB_MESSAGE_WRITE) {
        p.opcode = m->left > r->mtu ? VB_RC_WRITE_MIDDLE : VB_RC_WRITE_LAST;
        p.payload_len = at_most(m->left, r->mtu);
    } else {
        p.opcode = first[choice % sizeof first];
        p.raddr = rig_addr(r, &p.rkey);
        p.dma_len = rig_u16(r) % RIG_REGION_BYTES;
        if (p.opcode == VB_RC_WRITE_ONLY)
            p.payload_len = p.dma_len = at_most(p.dma_len, r->mtu);
        if (p.opcode == VB_RC_READ_REQUEST)
            p.payload_len = 0;
    }
    rig_packet(r, &p, payload);
    rig_run(r);
}

// The READ response that is waited for, or the acknowledgement of everything.
static void give_answer(struct rig *r, struct rig_qp *q)
{
    static const uint8_t payload[VB_MTU_MAX] = {7, 8, 9};
    const struct vb_requester *m = &q->ctx->req;
    const struct vb_wr *wr = m->una_wr;
    struct vb_packet p = {.opcode = VB_RC_ACK,
                          .pkey = VB_PKEY_DEFAULT,
                          .dest_qpn = q->driver.qpn,
                          .psn = (m->max_psn - 1) & VB_PSN_MASK,
                          .syndrome = 0x1f};
    if (q->ctx->state == VB_QPS_RTS && wr && wr != m->unbegun && wr->opcode == VB_WQE_READ) {
        uint32_t index = (m->una_psn - wr->first_psn) & VB_PSN_MASK;
        bool ends = index + 1 == wr->psns || (index + 1) % vb_read_segment(q->ctx) == 0;
        p.psn = m->una_psn;
        p.opcode = ends ? VB_RC_READ_RESP_LAST : VB_RC_READ_RESP_MIDDLE;
        p.payload_len = at_most(wr->length - index * r->mtu, r->mtu);
    }
    rig_packet(r, &p, payload);
    rig_run(r);
}

// ---- the rest of the world

static void change_world(struct rig *r, struct rig_qp *q)
{
    uint8_t choice = rig_u8(r);
    switch (choice % 8) {
    case 0: rig_modify(r, q, VB_QPS_ERR); break;
    case 1: rig_modify(r, q, (enum vb_qp_state)(rig_u8(r) % VB_QPS_COUNT)); break;
    case 2: rig_unregister(r, choice / 8 % RIG_REGIONS); break;
    case 3: rig_register(r, choice / 8 % RIG_REGIONS); break;
    default: rig_connect(r, q); break;
    }
}

static void command(struct rig *r)
{
    uint8_t choice = rig_u8(r);
    struct rig_qp *q = pick_qp(r, choice >> 7);
    switch (choice % 16) {
    case 0:
    case 1:
    case 2: post_send(r, q); break;
    case 3:
    case 4: post_recv(r, q); break;
    case 5: r->now_ns += (uint64_t)rig_u16(r) << (choice >> 4 & 7); break;
    case 6: rig_complete(r); break;
    case 7: change_world(r, q); break;
    case 8: give_mutant(r, q); break;
    case 9: rig_run(r); break;
    case 10: rig_steps(r, rig_u8(r)); break;
    case 11: give_answer(r, q); break;
    case 12:
    case 13: give_request(r, q); break;
    default: give_packet(r, q); break;
    }
}

static void check_empty(const struct rig_qp *q)
{
    if (q->ctx->state != VB_QPS_ERR)
        return; // RESET has nothing to give back
    rig_require(q->recv_done == q->recv_id);
    rig_require(q->ctx->req.head == NULL && q->ctx->sq.fetched == q->driver.sq.pi);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig r;
    // Room for everything that can be outstanding: an overrun would lose completions.
    rig_open(&r, &(struct rig_opts){.orderly = true, .cq_entries = 256}, data, size);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_connect(&r, &r.qp[i]);
    while (rig_more(&r))
        command(&r);
    rig_run(&r);
    rig_complete(&r);
    // In the end nothing may be left: a failed queue pair gives everything back.
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_modify(&r, &r.qp[i], VB_QPS_ERR);
    rig_run(&r);
    rig_complete(&r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        check_empty(&r.qp[i]);
    rig_close(&r);
    return 0;
}
