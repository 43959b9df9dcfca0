// SPDX-License-Identifier: Apache-2.0
// Frames into live queue pairs of every service: mostly what a peer could say next, bent in one
// place or another, between work that is posted, time that passes, and objects that come and go.
// Input: three bytes of set-up, then one command after the other.
#include "rig.h"

// ---- work

static void fill_bind(struct rig *r, struct vb_send_wr *wr)
{
    uint8_t choice = rig_u8(r);
    uint32_t window = vb_mkey_current(&r->dev->mkeys, r->window[choice & 0x20 ? 2 : choice & 1]);
    wr->bind.window = (window & ~0xffu) | ((window + !(choice & 0x40)) & 0xff);
    wr->bind.addr = rig_addr(r, &wr->bind.region);
    wr->bind.len = choice & 0x80 ? rig_u32(r) : rig_u8(r) * 8u;
    wr->bind.rights = choice & 0x0e; // of what peers may do
    wr->bind.zero_based = choice & 0x10;
}

// What an operation needs besides its list.
static void fill_operation(struct rig *r, struct rig_qp *q, struct vb_send_wr *wr)
{
    switch (wr->opcode) {
    case VB_WR_SEND_INVAL:
    case VB_WR_LOCAL_INVAL:
        wr->imm = vb_mkey_current(&r->dev->mkeys, r->window[rig_u8(r) % RIG_WINDOWS]);
        break;
    case VB_WR_CAS:
    case VB_WR_FADD:
    case VB_WR_MASKED_CAS:
    case VB_WR_MASKED_FADD:
        wr->atomic.swap_add = rig_u8(r);
        wr->atomic.swap_mask = wr->atomic.compare_mask = UINT64_MAX;
        wr->atomic.arg_bytes = wr->opcode >= VB_WR_MASKED_CAS && wr->imm & 1 ? 4 : 8;
        break;
    case VB_WR_FLUSH:
        wr->flush.len = rig_u16(r);
        wr->flush.whole_region = wr->imm & 1;
        break;
    case VB_WR_BIND: fill_bind(r, wr); break;
    default: break;
    }
    if (q->type != VB_QPT_UD)
        return;
    uint8_t choice = rig_u8(r);
    wr->to.qpn = q->driver.qpn;
    wr->to.qkey = choice & 0x80 ? rig_u32(r) : RIG_QKEY;
    memcpy(wr->to.gid, r->remote.b, sizeof wr->to.gid);
    wr->to.gid[choice & 0x40 ? 10 : 15] ^= choice & 0x3f;
}

static void fill_list(struct rig *r, struct vb_sge *sge, uint32_t count, uint32_t room)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t choice = rig_u8(r);
        sge[i].addr = rig_addr(r, &sge[i].lkey);
        sge[i].len = choice & 0x80 ? rig_u16(r) % room : choice;
    }
}

static uint32_t list_length(struct rig *r, enum vb_wr_opcode opcode)
{
    uint8_t choice = rig_u8(r);
    switch (opcode) {
    case VB_WR_NOP:
    case VB_WR_FLUSH:
    case VB_WR_BIND:
    case VB_WR_LOCAL_INVAL: return 0;
    case VB_WR_CAS:
    case VB_WR_FADD:
    case VB_WR_MASKED_CAS:
    case VB_WR_MASKED_FADD:
    case VB_WR_ATOMIC_WRITE: return 1;
    default: return choice < 0x80 ? choice % 4 : choice % (VB_MAX_SGE + 1);
    }
}

static void post_send(struct rig *r, struct rig_qp *q)
{
    struct vb_sge sge[VB_MAX_SGE] = {{0}};
    uint8_t opcode = rig_u8(r), flags = rig_u8(r);
    struct vb_send_wr wr = {.wr_id = q->send_id,
                            .sge = sge,
                            .opcode = (enum vb_wr_opcode)(opcode % VB_WR_OPCODES),
                            .flags = flags & 15,
                            .imm = flags >> 4,
                            .srqn = flags & 0x40 ? rig_u8(r) % 4 : r->srq[1].srqn};
    static uint8_t inlined[200];
    wr.num_sge = list_length(r, wr.opcode);
    wr.raddr = rig_addr(r, &wr.rkey); // the peers are of this device
    fill_list(r, sge, wr.num_sge, RIG_REGION_BYTES / 2);
    fill_operation(r, q, &wr);
    if (wr.opcode >= VB_WR_CAS && wr.opcode <= VB_WR_ATOMIC_WRITE)
        sge[0].len = wr.opcode != VB_WR_ATOMIC_WRITE && wr.atomic.arg_bytes == 4 ? 4 : 8;
    for (uint32_t i = 0; wr.flags & VB_WR_INLINE && i < wr.num_sge; i++) {
        sge[i].addr = (uintptr_t)inlined; // its bytes are read here and now
        sge[i].len %= sizeof inlined;
    }
    if (vb_driver_post_send(&q->driver, &wr, 1) == 1)
        q->send_id++;
}

static void post_shared(struct rig_srq *s, struct vb_recv_wr *wr)
{
    bool *posted = &s->posted[s->next_id % RIG_SHARED_IDS];
    if (*posted)
        return; // lost with a queue pair, a round ago
    wr->wr_id = s->next_id;
    if (wr->num_sge <= s->driver.max_sge && vb_driver_post_srq(&s->driver, wr, 1) == 1) {
        *posted = true;
        s->next_id++;
    }
}

static void post_recv(struct rig *r, struct rig_qp *q)
{
    struct vb_sge sge[VB_MAX_SGE] = {{0}};
    uint8_t choice = rig_u8(r);
    struct vb_recv_wr wr = {.wr_id = q->recv_id,
                            .sge = sge,
                            .num_sge = choice & 0x80 ? choice % (VB_MAX_SGE + 1) : choice % 5};
    fill_list(r, sge, wr.num_sge, RIG_REGION_BYTES);
    if (q->type >= VB_QPT_XRC_INI || q->srq)
        post_shared(q->srq ? q->srq : &r->srq[1], &wr);
    else if (vb_driver_post_recv(&q->driver, &wr, 1) == 1)
        q->recv_id++;
}

static void settle(struct rig *r)
{
    rig_run(r);
    rig_complete(r);
    rig_check_receives(r);
}

static void command(struct rig *r)
{
    uint8_t choice = rig_u8(r), which = choice / 16;
    struct rig_qp *q = &r->qp[which % RIG_QPS];
    switch (choice % 16) {
    case 0:
    case 1:
    case 2: post_send(r, q); break;
    case 3:
    case 4: post_recv(r, q); break;
    case 5: r->now_ns += (uint64_t)rig_u16(r) << (which & 7); break;
    case 6: settle(r); break;
    case 7: rig_control(r, q); break;
    case 8: rig_give_mutant(r, q); break;
    case 9: rig_run(r); break;
    case 10: rig_steps(r, which, rig_u8(r)); break;
    case 11: rig_give_answer(r, q); break;
    case 12: rig_give_request(r, q); break;
    case 13: rig_deliver(r); break;
    default: rig_give_packet(r, q); break;
    }
}

static void check_empty(const struct rig *r, const struct rig_qp *q)
{
    if (q->ctx->state != VB_QPS_ERR)
        return; // RESET has nothing to give back
    rig_require(q->ctx->req.head == NULL && q->ctx->sq.fetched == q->driver.sq.pi);
    if (!q->srq && q->type < VB_QPT_XRC_INI && !r->overran)
        rig_require(q->recv_done == q->recv_id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig r;
    rig_open(&r, &(struct rig_opts){.orderly = true}, data, size);
    while (rig_more(&r))
        command(&r);
    settle(&r);
    // In the end nothing may be left: a failed queue pair gives everything back.
    for (uint32_t i = 0; i < RIG_QPS; i++)
        rig_modify(&r, &r.qp[i], VB_QPS_ERR);
    settle(&r);
    for (uint32_t i = 0; i < RIG_QPS; i++)
        check_empty(&r, &r.qp[i]);
    rig_close(&r);
    return 0;
}
