// SPDX-License-Identifier: Apache-2.0
// The driver's entries for atomics, FLUSH, key changes, datagrams and shared receives: what it
// refuses to write, and entries of several blocks that wrap around a small ring.
#include "base/bytes.h"
#include "forge.h"

#include <errno.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct forge *open_small(enum vb_qp_type type)
{
    struct forge_opts o = forge_defaults();
    o.type = type;
    o.send_depth = 4;
    o.sges = 1;
    o.inline_bytes = 0;
    o.key_access = VB_LOCAL_WRITE | VB_BIND;
    return forge_open(&o);
}

static struct vb_send_wr request(const struct forge *f, enum vb_wr_opcode opcode,
                                 const struct vb_sge *sge)
{
    bool empty = opcode == VB_WR_NOP || opcode == VB_WR_FLUSH || opcode >= VB_WR_BIND;
    struct vb_send_wr wr = {.sge = sge,
                            .num_sge = !empty,
                            .opcode = opcode,
                            .flags = VB_WR_SIGNALED,
                            .raddr = 0x1000,
                            .rkey = 0x2222};
    memcpy(wr.to.gid, f->remote.b, f->opts.type == VB_QPT_UD ? 16 : 0);
    return wr;
}

// ---- what is refused

static void test_lengths_of_atomics(void **state)
{
    (void)state;
    static const enum vb_wr_opcode ops[] = {VB_WR_CAS, VB_WR_FADD, VB_WR_MASKED_CAS,
                                            VB_WR_MASKED_FADD, VB_WR_ATOMIC_WRITE};
    struct forge_opts o = forge_defaults();
    o.sges = 2;
    struct forge *f = forge_open(&o);
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t len = 0; len < 20; len++)
            for (uint32_t arg = 0; arg <= 9; arg++) {
                const struct vb_sge sge = {forge_addr(f, 0), len, f->key};
                struct vb_send_wr wr = request(f, ops[i], &sge);
                bool masked = i == 2 || i == 3;
                if (i < 4)
                    wr.atomic.arg_bytes = arg;
                bool good = masked ? (arg == 4 && len == 4) || ((arg == 0 || arg == 8) && len == 8)
                                   : len == 8;
                assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), good ? 1 : -EINVAL);
                f->qp.sq.pi = f->qp.sq.ci;
            }
    forge_close(f);
}

static void test_two_segments(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.sges = 2;
    struct forge *f = forge_open(&o);
    const struct vb_sge sge[2] = {{forge_addr(f, 0), 4, f->key}, {forge_addr(f, 8), 4, f->key}};
    for (enum vb_wr_opcode op = VB_WR_CAS; op < VB_WR_OPCODES; op++) {
        struct vb_send_wr wr = request(f, op, sge);
        wr.num_sge = 2;
        // Only an ATOMIC WRITE may be in pieces.
        assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1),
                         op == VB_WR_ATOMIC_WRITE ? 1 : -EINVAL);
    }
    forge_close(f);
}

static void test_inline_data(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    const struct vb_sge sge = {forge_addr(f, 0), 8, 0};
    for (enum vb_wr_opcode op = VB_WR_SEND; op < VB_WR_OPCODES; op++) {
        struct vb_send_wr wr = request(f, op, &sge);
        wr.flags |= VB_WR_INLINE;
        bool good = op == VB_WR_SEND || op == VB_WR_SEND_IMM || op == VB_WR_SEND_INVAL ||
                    op == VB_WR_WRITE || op == VB_WR_WRITE_IMM || op == VB_WR_ATOMIC_WRITE;
        assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), good ? 1 : -EINVAL);
    }
    forge_run(f);
    assert_int_equal(f->sent_count, 6);
    forge_close(f);
}

static void test_rights_of_bindings_and_unknown_requests(void **state)
{
    (void)state;
    struct forge *f = forge_open(NULL);
    static const uint32_t bad[] = {VB_RIGHT_LOCAL_WRITE, VB_RIGHT_BIND, VB_RIGHT_FLUSH_GLOBAL,
                                   1u << 31};
    for (uint32_t i = 0; i < 4; i++) {
        struct vb_send_wr wr = request(f, VB_WR_BIND, NULL);
        wr.bind.rights = VB_RIGHT_REMOTE_READ;
        assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), 1);
        wr.bind.rights |= bad[i];
        assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), -EINVAL);
    }
    struct vb_send_wr wr = request(f, VB_WR_OPCODES, NULL);
    assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), -EINVAL);
    wr = request(f, VB_WR_NOP, NULL);
    wr.flags = 1u << 4;
    assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), -EINVAL);
    forge_close(f);
}

static void test_shared_receives_refused(void **state)
{
    (void)state;
    struct forge_opts o = forge_defaults();
    o.srq_depth = 3;
    o.sges = 2;
    struct forge *f = forge_open(&o);
    const struct vb_sge sge[3] = {{0}};
    const struct vb_recv_wr wr[3] = {{.num_sge = 2, .sge = sge}, {.num_sge = 3, .sge = sge}, {0}};
    assert_int_equal(vb_driver_post_srq(&f->srq, wr + 1, 1), -EINVAL);
    assert_int_equal(vb_driver_post_srq(&f->srq, wr, 3), 1); // up to the malformed one
    const struct vb_recv_wr none = {0};
    assert_int_equal(vb_driver_post_recv(&f->qp, &none, 1), 0); // no queue of its own
    forge_close(f);
}

// ---- small rings

// Bindings take three of four blocks: every one begins elsewhere.
static void test_bindings_wrap(void **state)
{
    (void)state;
    struct forge *f = open_small(VB_QPT_RC);
    assert_int_equal(f->qp.sq.blocks, 4);
    uint32_t w;
    const struct vb_mkey_attr attr = {.pd = f->pd, .kind = VB_MKEY_WINDOW2};
    assert_int_equal(vb_dev_mkey_create(f->dev, &attr, &w), 0);
    for (uint32_t i = 0; i < 40; i++) {
        struct vb_send_wr wr = request(f, i % 2 ? VB_WR_LOCAL_INVAL : VB_WR_BIND, NULL);
        wr.wr_id = i;
        if (i % 2) {
            wr.imm = w;
        } else {
            wr.bind.window = w;
            wr.bind.region = f->key;
            wr.bind.addr = forge_addr(f, 64);
            wr.bind.len = 64;
            wr.bind.rights = VB_RIGHT_REMOTE_WRITE;
        }
        assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), 1);
        if (i % 2 == 0)
            assert_int_equal(vb_driver_post_send(&f->qp, &wr, 1), 0); // no room for two
        forge_run(f);
        forge_expect_done(f, i, VB_WC_OK);
        assert_int_equal(vb_mkey_find(&f->dev->mkeys, w)->bound, !(i % 2));
        if (i % 3 == 0) { // an odd entry between, so that all places come up
            forge_post(f, 100 + i, VB_WR_NOP, 0, 0);
            forge_run(f);
            forge_expect_done(f, 100 + i, VB_WC_OK);
        }
    }
    forge_close(f);
}

static void test_masked_atomics_wrap(void **state)
{
    (void)state;
    struct forge *f = open_small(VB_QPT_RC);
    for (uint32_t i = 0; i < 20; i++) {
        const struct vb_sge sge = {forge_addr(f, 0), 8, f->key};
        struct vb_send_wr wr = request(f, VB_WR_MASKED_CAS, &sge); // two blocks
        wr.wr_id = i;
        wr.atomic.swap_add = i;
        wr.atomic.compare_mask = 0x0807060504030201u + i;
        forge_post_send(f, &wr);
        forge_post(f, 100 + i, VB_WR_NOP, 0, 0);
        forge_run(f);
        assert_true(forge_sent(f, i)->compare_mask == 0x0807060504030201u + i);
        assert_int_equal(forge_sent(f, i)->swap_add, i);
        struct vb_packet p = forge_packet(f, VB_RC_ATOMIC_ACK, 100 + i);
        p.atomic_old = i;
        assert_int_equal(forge_give(f, &p), VB_RX_APPLIED);
        assert_int_equal(f->memory[0], i);
        forge_expect_done(f, i, VB_WC_OK);
        forge_expect_done(f, 100 + i, VB_WC_OK);
    }
    forge_close(f);
}

static void test_datagrams_wrap(void **state)
{
    (void)state;
    struct forge *f = open_small(VB_QPT_UD);
    for (uint32_t i = 0; i < 30; i++) {
        const struct vb_sge sge = {forge_addr(f, i), 1 + i, f->key};
        struct vb_send_wr wr = request(f, VB_WR_SEND, &sge);
        wr.wr_id = i;
        wr.to.qpn = FORGE_PEER_QPN;
        wr.to.qkey = i;
        forge_post_send(f, &wr);
        if (i % 3 == 0)
            forge_post(f, 100 + i, VB_WR_NOP, 0, 0);
        forge_run(f);
        assert_int_equal(forge_sent(f, i)->qkey, i);
        assert_int_equal(forge_sent(f, i)->payload_len, 1 + i);
        forge_expect_done(f, i, VB_WC_OK);
        if (i % 3 == 0)
            forge_expect_done(f, 100 + i, VB_WC_OK);
    }
    forge_close(f);
}

// The depth that was asked for is there, whatever the service.
static void test_the_depth_is_there(void **state)
{
    (void)state;
    static const enum vb_qp_type types[] = {VB_QPT_RC, VB_QPT_UC, VB_QPT_UD, VB_QPT_XRC_INI};
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t sges = 1; sges <= 16; sges++) {
            struct forge_opts o = forge_defaults();
            o.type = types[t];
            o.send_depth = 8;
            o.sges = sges;
            o.inline_bytes = 0;
            struct forge *f = forge_open(&o);
            struct vb_sge sge[16];
            for (uint32_t i = 0; i < sges; i++)
                sge[i] = (struct vb_sge){forge_addr(f, 0), 1, f->key};
            for (uint32_t i = 0; i < 8; i++) {
                struct vb_send_wr wr = request(f, t == 2 ? VB_WR_SEND_IMM : VB_WR_WRITE_IMM, sge);
                wr.num_sge = sges;
                wr.to.qpn = FORGE_PEER_QPN;
                forge_post_send(f, &wr);
            }
            forge_run(f);
            assert_int_equal(f->sent_count, 8);
            forge_close(f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_of_atomics),
        cmocka_unit_test(test_two_segments),
        cmocka_unit_test(test_inline_data),
        cmocka_unit_test(test_rights_of_bindings_and_unknown_requests),
        cmocka_unit_test(test_shared_receives_refused),
        cmocka_unit_test(test_bindings_wrap),
        cmocka_unit_test(test_masked_atomics_wrap),
        cmocka_unit_test(test_datagrams_wrap),
        cmocka_unit_test(test_the_depth_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
