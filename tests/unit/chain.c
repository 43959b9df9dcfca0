// SPDX-License-Identifier: Apache-2.0
// Queue pairs of chain programs for tests.
#include "chain.h"

#include "../wait.h"
#include "base/bytes.h"
#include "verbena/wqe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct vb_cq *chain_cq(const struct duo_end *e, struct vb_cq_opts opts)
{
    struct vb_cq *cq = NULL;
    if (!opts.entries)
        opts.entries = 64;
    assert_int_equal(vb_cq_create(e->nic, &opts, &cq), 0);
    return cq;
}

struct vb_qp *chain_qp(const struct duo_end *e, struct vb_cq *cq, struct vb_qp_opts opts)
{
    opts.send_cq = opts.recv_cq = cq;
    opts.chain |= VB_QP_CROSS_CHANNEL;
    if (!opts.inline_bytes)
        opts.inline_bytes = 16; // an entry takes one block
    return duo_make_qp(e, opts);
}

struct vb_qp *chain_self(const struct duo_end *e, struct vb_cq *cq, struct vb_qp_opts opts)
{
    struct vb_qp *qp = chain_qp(e, cq, opts);
    assert_int_equal(vb_qp_connect_self(qp, DUO_REMOTE), 0);
    return qp;
}

// ---- requests

void chain_nop(struct vb_qp *qp, uint64_t wr_id)
{
    const struct vb_send_wr wr = {.wr_id = wr_id, .opcode = VB_WR_NOP, .flags = VB_WR_SIGNALED};
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

void chain_cross(struct vb_qp *qp, enum vb_wr_opcode opcode, uint64_t wr_id, uint32_t number,
                 uint32_t index)
{
    struct vb_send_wr wr = {.wr_id = wr_id, .opcode = opcode, .flags = VB_WR_SIGNALED};
    wr.cross.number = number;
    wr.cross.index = index;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

struct vb_send_wr chain_wr(const struct duo_end *e, enum vb_wr_opcode opcode, uint64_t wr_id,
                           uint32_t remote)
{
    return (struct vb_send_wr){.wr_id = wr_id,
                               .opcode = opcode,
                               .flags = VB_WR_SIGNALED,
                               .raddr = (uintptr_t)e->memory + remote,
                               .rkey = vb_mr_key(e->mr)};
}

void chain_post(const struct duo_end *e, struct vb_qp *qp, struct vb_send_wr wr, uint32_t local,
                uint32_t len)
{
    const struct vb_sge sge = {(uintptr_t)e->memory + local, len, vb_mr_key(e->mr)};
    wr.sge = &sge;
    wr.num_sge = 1;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

struct vb_qp_rings chain_rings(const struct vb_qp *qp)
{
    struct vb_qp_rings rings;
    assert_int_equal(vb_qp_rings(qp, &rings), 0);
    return rings;
}

// ---- a program that never ends

// A fetch-and-add counts the passes. Of three counters a third of the 16 bits apart, one is always
// ahead by less than half of them: so nothing need be patched.
struct vb_qp *chain_endless(const struct duo_end *e, struct vb_cq *cq, struct vb_qp_opts opts,
                            uint32_t at)
{
    opts.chain |= CHAIN_MANAGED;
    opts.send_depth = 4;
    struct vb_qp *qp = chain_self(e, cq, opts);
    struct vb_send_wr add = chain_wr(e, VB_WR_FADD, 0, at);
    add.flags = 0;
    add.atomic.swap_add = 1;
    chain_post(e, qp, add, at + 8, 8);
    for (uint32_t i = 0; i < 3; i++) {
        struct vb_send_wr wr = {.opcode = VB_WR_SEND_EN};
        wr.cross.number = vb_qp_num(qp);
        wr.cross.index = i * 0x5554;
        assert_int_equal(vb_post_send(qp, &wr, 1), 1);
    }
    assert_int_equal(chain_rings(qp).send_blocks, 4);
    return qp;
}

void chain_start(struct vb_qp *endless)
{
    assert_int_equal(vb_qp_open(endless, false, 4), 0);
}

// ---- looking

void chain_await_count(struct vb_cq *cq, uint64_t count)
{
    WAIT_UNTIL(vb_cq_count(cq) >= count);
}

void chain_expect_state(struct vb_qp *qp, const char *state)
{
    WAIT_UNTIL(strcmp(vb_qp_state_text(qp), state) == 0);
}
