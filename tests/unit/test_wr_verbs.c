// SPDX-License-Identifier: Apache-2.0
// Fetching the work-queue entries of atomics, FLUSH, key changes, datagrams and XRC: every
// well-formed shape, and every malformed one.
#include "base/bytes.h"
#include "nic/memory.h"
#include "nic/wr.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCKS = 32,
    QPN = 0x00abcd
};

struct fixture {
    struct vb_wr_pool pool;
    uint8_t *ring; // BLOCKS blocks, exactly
    uint32_t at;   // next byte to write
    struct vb_wqe_source source;
    struct vb_wr *wr;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    x->ring = calloc(BLOCKS, VB_WQEBB_BYTES);
    x->source = (struct vb_wqe_source){
        .ring = x->ring, .blocks = BLOCKS, .end = BLOCKS, .qpn = QPN, .checks = true};
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    if (x->wr)
        vb_wr_put(&x->pool, x->wr);
    vb_wr_pool_fini(&x->pool);
    free(x->ring);
    free(x);
    return 0;
}

static void put(struct fixture *x, const void *bytes, size_t len)
{
    memcpy(x->ring + x->at, bytes, len);
    x->at += (uint32_t)len;
}

static void begin(struct fixture *x, uint8_t opcode, uint8_t opmod, uint32_t imm)
{
    struct vb_wqe_ctrl ctrl = {.opcode = opcode, .opmod = opmod, .imm = imm};
    vb_put_be24(ctrl.qpn, QPN);
    memset(x->ring, 0, (size_t)BLOCKS * VB_WQEBB_BYTES);
    x->at = 0;
    put(x, &ctrl, sizeof ctrl);
}

static void put_raddr(struct fixture *x, uint64_t raddr, uint32_t rkey, uint32_t reserved)
{
    put(x, &(struct vb_wqe_raddr){htobe64(raddr), htobe32(rkey), htobe32(reserved)}, 16);
}

static void put_data(struct fixture *x, uint32_t len)
{
    put(x, &(struct vb_wqe_data){htobe32(len), htobe32(7), htobe64(0x4000)}, 16);
}

// Fetches what was written, or the first `segs` segments of it.
static const struct vb_wr *fetch_segs(struct fixture *x, uint32_t segs)
{
    ((struct vb_wqe_ctrl *)(void *)x->ring)->ds = (uint8_t)segs;
    if (x->wr)
        vb_wr_put(&x->pool, x->wr);
    assert_int_equal(vb_wr_pool_reserve(&x->pool), 0);
    x->wr = vb_wr_fetch(&x->pool, &x->source);
    return x->wr;
}

static const struct vb_wr *fetch(struct fixture *x)
{
    return fetch_segs(x, x->at / VB_WQE_SEG_BYTES);
}

// Shorter and longer than it is, the entry is malformed.
static void expect_exact(struct fixture *x)
{
    uint32_t segs = x->at / VB_WQE_SEG_BYTES;
    assert_int_equal(fetch_segs(x, segs)->syndrome, VB_SYN_OK);
    for (uint32_t ds = 1; ds < segs; ds++)
        assert_int_equal(fetch_segs(x, ds)->syndrome, VB_SYN_LOCAL_QP_OP);
    assert_int_equal(fetch_segs(x, segs + 1)->syndrome, VB_SYN_LOCAL_QP_OP);
    fetch_segs(x, segs);
}

// ---- atomics

static void put_atomic(struct fixture *x, uint8_t opcode, uint8_t opmod, uint32_t answer)
{
    begin(x, opcode, opmod, 0);
    put_raddr(x, 0x123456789abcdef0, 0x11223344, 0);
    put(x, &(struct vb_wqe_atomic){htobe64(0xa1), htobe64(0xb2)}, 16);
    put_data(x, answer);
}

static void test_plain_atomics(void **state)
{
    struct fixture *x = *state;
    for (uint8_t op = VB_WQE_ATOMIC_CS; op <= VB_WQE_ATOMIC_FA; op++) {
        put_atomic(x, op, 0, 8);
        expect_exact(x);
        assert_true(x->wr->raddr == 0x123456789abcdef0);
        assert_int_equal(x->wr->rkey, 0x11223344);
        assert_int_equal(x->wr->atomic.swap_add, 0xa1);
        assert_int_equal(x->wr->atomic.compare, 0xb2);
        assert_int_equal(x->wr->arg_bytes, 8);
        assert_int_equal(x->wr->length, 8);
        assert_int_equal(x->wr->num_seg, 1);
        assert_int_equal(vb_wr_segs(x->wr)->addr, 0x4000);
        assert_true(x->wr->awaits);
        static const uint32_t bad[] = {0, 4, 7, 9, 16, VB_WQE_INLINE | 8, UINT32_MAX};
        for (uint32_t i = 0; i < 7; i++) {
            put_atomic(x, op, 0, bad[i]);
            assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
        }
        for (uint8_t opmod = 1; opmod != 0; opmod++) {
            put_atomic(x, op, opmod, 8);
            assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
        }
    }
}

static void put_masked(struct fixture *x, bool swaps, bool wide, uint8_t opmod, uint32_t answer)
{
    begin(x, swaps ? VB_WQE_MASKED_CS : VB_WQE_MASKED_FA, opmod, 0);
    put_raddr(x, 0x1000, 0x2222, 0);
    if (swaps && wide)
        put(x,
            &(struct vb_wqe_masked_cs8){htobe64(0x100000001), htobe64(0x100000002),
                                        htobe64(0x100000003), htobe64(0x100000004)},
            32);
    else if (swaps)
        put(x, &(struct vb_wqe_masked_cs4){htobe32(1), htobe32(2), htobe32(3), htobe32(4)}, 16);
    else if (wide)
        put(x, &(struct vb_wqe_masked_fa8){htobe64(0x100000001), htobe64(0x100000002)}, 16);
    else
        put(x, &(struct vb_wqe_masked_fa4){htobe32(1), htobe32(2), {htobe32(9), htobe32(9)}}, 16);
    put_data(x, answer);
}

static void test_masked_atomics(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < 4; i++) {
        bool swaps = i & 1, wide = i & 2;
        uint8_t opmod = wide ? VB_WQE_OPMOD_MASKED8 : VB_WQE_OPMOD_MASKED4;
        uint64_t high = wide ? 0x100000000 : 0;
        put_masked(x, swaps, wide, opmod, wide ? 8 : 4);
        expect_exact(x);
        assert_int_equal(x->wr->arg_bytes, wide ? 8 : 4);
        assert_int_equal(x->wr->length, wide ? 8 : 4);
        assert_true(x->wr->atomic.swap_add == (high | 1));
        assert_true(x->wr->atomic.compare == (high | 2));
        if (swaps) {
            assert_true(x->wr->swap_mask == (high | 3));
            assert_true(x->wr->compare_mask == (high | 4));
        }
        assert_int_equal(vb_wr_segs(x->wr)->key, 7); // behind the masks it is still there
        assert_true(x->wr->awaits);
        put_masked(x, swaps, wide, opmod, wide ? 4 : 8); // the answer's length is the other's
        assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
        for (uint32_t other = 0; other < 256; other++) {
            if (other == VB_WQE_OPMOD_MASKED4 || other == VB_WQE_OPMOD_MASKED8)
                continue;
            put_masked(x, swaps, wide, (uint8_t)other, wide ? 8 : 4);
            assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
        }
    }
}

static void test_atomic_write(void **state)
{
    struct fixture *x = *state;
    begin(x, VB_WQE_ATOMIC_WRITE, 0, 0);
    put_raddr(x, 0x1000, 0x2222, 0);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP); // of nothing
    put_data(x, 3);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
    put_data(x, 5); // pieces are welcome
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    assert_int_equal(x->wr->length, 8);
    assert_int_equal(x->wr->arg_bytes, 0);
    assert_true(x->wr->awaits);
    put_data(x, 1);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
    for (uint32_t len = 0; len <= 12; len++) {
        begin(x, VB_WQE_ATOMIC_WRITE, 0, 0);
        put_raddr(x, 0x1000, 0x2222, 0);
        uint32_t head = htobe32(VB_WQE_INLINE | len);
        put(x, &head, 4);
        put(x, "0123456789ab", 12);
        assert_int_equal(fetch(x)->syndrome, len == 8 ? VB_SYN_OK : VB_SYN_LOCAL_QP_OP);
        if (len == 8)
            assert_memory_equal(x->wr->longer, "01234567", 8);
    }
}

// ---- FLUSH

static void test_flush(void **state)
{
    struct fixture *x = *state;
    for (uint32_t imm = 0; imm < 256; imm++) {
        begin(x, VB_WQE_FLUSH, 0, htobe32(imm));
        put_raddr(x, 0x1000, 0x2222, 77);
        bool good = (imm & 3) && !(imm & ~0x13u);
        assert_int_equal(fetch(x)->syndrome, good ? VB_SYN_OK : VB_SYN_LOCAL_QP_OP);
    }
    begin(x, VB_WQE_FLUSH, 0, htobe32(0x13));
    put_raddr(x, 0x1000, 0x2222, UINT32_MAX);
    expect_exact(x);
    assert_int_equal(x->wr->imm, 0x13);
    assert_int_equal(x->wr->range, UINT32_MAX);
    assert_int_equal(x->wr->length, 0);
    assert_true(x->wr->awaits);
    begin(x, VB_WQE_FLUSH, 0, htobe32(0x80000001));
    put_raddr(x, 0x1000, 0x2222, 77);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
}

// ---- immediate data

static void test_immediates_are_kept_as_they_are(void **state)
{
    struct fixture *x = *state;
    static const uint8_t op[] = {VB_WQE_SEND_IMM, VB_WQE_SEND_INVAL};
    for (uint32_t i = 0; i < 2; i++) {
        begin(x, op[i], 0, 0x11223344);
        put_data(x, 100);
        assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
        assert_int_equal(x->wr->imm, 0x11223344);
        assert_int_equal(x->wr->length, 100);
        assert_false(x->wr->awaits);
        assert_int_equal(fetch_segs(x, 1)->syndrome, VB_SYN_OK); // of no bytes
    }
    begin(x, VB_WQE_WRITE_IMM, 0, 0x11223344);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP); // to nowhere
    put_raddr(x, 0x1000, 0x2222, 0);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    put_data(x, 100);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    assert_int_equal(x->wr->imm, 0x11223344);
    assert_int_equal(x->wr->rkey, 0x2222);
}

// ---- key changes

static void put_umr(struct fixture *x, bool binds, uint64_t len, uint8_t access)
{
    begin(x, VB_WQE_UMR, 0, htobe32(0xaabbcc01));
    put(x, &(struct vb_wqe_umr){0}, sizeof(struct vb_wqe_umr));
    put(x,
        &(struct vb_wqe_mkey){.free = binds ? 0 : VB_WQE_MKEY_FREE,
                              .access = access,
                              .start = htobe64(0x5000),
                              .len = htobe64(len)},
        sizeof(struct vb_wqe_mkey));
}

static void test_bindings(void **state)
{
    struct fixture *x = *state;
    put_umr(x, true, 0x123456789a, VB_WQE_MKEY_REMOTE_READ | VB_WQE_MKEY_ATOMIC);
    put_data(x, 8);
    uint32_t segs = x->at / VB_WQE_SEG_BYTES;
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    assert_true(x->wr->umr.binds);
    assert_int_equal(x->wr->imm, 0xaabbcc01);
    assert_int_equal(x->wr->umr.start, 0x5000);
    assert_int_equal(x->wr->umr.access, VB_REMOTE_READ | VB_REMOTE_ATOMIC);
    assert_true(x->wr->range == 0x123456789a); // longer than a data segment could say
    assert_int_equal(x->wr->rkey, 7);
    assert_int_equal(x->wr->raddr, 0x4000);
    assert_int_equal(x->wr->length, 0);
    assert_false(x->wr->awaits);
    for (uint32_t ds = 1; ds < segs; ds++)
        assert_int_equal(fetch_segs(x, ds)->syndrome, VB_SYN_LOCAL_QP_OP);
    put_umr(x, true, 8, VB_WQE_MKEY_REMOTE_WRITE | VB_WQE_MKEY_LOCAL_WRITE);
    put_data(x, 8);
    assert_int_equal(fetch(x)->umr.access, VB_REMOTE_WRITE); // a window has no local rights
    put_umr(x, true, 0, 0);                                  // unbinds: no region needed
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    assert_int_equal(x->wr->range, 0);
}

static void test_invalidations(void **state)
{
    struct fixture *x = *state;
    put_umr(x, false, 99, 0xff);
    uint32_t segs = x->at / VB_WQE_SEG_BYTES;
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    assert_false(x->wr->umr.binds);
    assert_int_equal(x->wr->imm, 0xaabbcc01);
    for (uint32_t ds = 1; ds < segs; ds++)
        assert_int_equal(fetch_segs(x, ds)->syndrome, VB_SYN_LOCAL_QP_OP);
    ((struct vb_wqe_ctrl *)(void *)x->ring)->opmod = 1;
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP);
}

// ---- heads

static void test_datagrams(void **state)
{
    struct fixture *x = *state;
    x->source.heads = VB_WQE_HEAD_DATAGRAM;
    for (uint32_t op = 0; op < 256; op++) {
        if (op == VB_WQE_NOP || op == VB_WQE_UMR)
            continue; // these have no head
        begin(x, (uint8_t)op, 0, 5);
        struct vb_wqe_datagram to = {.qkey = htobe32(0x80000001), .dqpn = htobe32(0xff123456)};
        memcpy(to.rgid, "0123456789abcdef", 16);
        put(x, &to, sizeof to);
        put_data(x, 100);
        bool good = op == VB_WQE_SEND || op == VB_WQE_SEND_IMM;
        assert_int_equal(fetch(x)->syndrome, good ? VB_SYN_OK : VB_SYN_LOCAL_QP_OP);
        if (!good)
            continue;
        assert_int_equal(x->wr->rkey, 0x80000001);
        assert_int_equal(x->wr->raddr, 0x123456);
        assert_memory_equal(x->wr->rgid, "0123456789abcdef", 16);
        assert_int_equal(x->wr->length, 100);
        for (uint32_t ds = 1; ds < 4; ds++)
            assert_int_equal(fetch_segs(x, ds)->syndrome, VB_SYN_LOCAL_QP_OP);
        assert_int_equal(fetch_segs(x, 4)->syndrome, VB_SYN_OK); // of no bytes
    }
    begin(x, VB_WQE_NOP, 0, 0);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
}

static void test_xrc(void **state)
{
    struct fixture *x = *state;
    x->source.heads = VB_WQE_HEAD_XRC;
    begin(x, VB_WQE_ATOMIC_FA, 0, 0);
    put(x, &(struct vb_wqe_xrc){.srqn = htobe32(0xee123456)}, 16);
    put_raddr(x, 0x1000, 0x2222, 0);
    put(x, &(struct vb_wqe_atomic){htobe64(0xa1), 0}, 16);
    put_data(x, 8);
    expect_exact(x);
    assert_int_equal(x->wr->srqn, 0x123456);
    assert_int_equal(x->wr->raddr, 0x1000);
    begin(x, VB_WQE_SEND, 0, 0);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_LOCAL_QP_OP); // without its head
    put(x, &(struct vb_wqe_xrc){.srqn = htobe32(1)}, 16);
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
    assert_int_equal(x->wr->length, 0);
    put_umr(x, false, 0, 0); // nor has a key change one
    assert_int_equal(fetch(x)->syndrome, VB_SYN_OK);
}

// ---- anything

// Whatever the bytes, the result is a request within bounds or one with a syndrome.
static void test_random_entries(void **state)
{
    struct fixture *x = *state;
    uint64_t seed = 1;
    for (uint32_t round = 0; round < 40000; round++) {
        for (uint32_t i = 0; i < 16 * VB_WQEBB_BYTES; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x->ring[i] = seed >> 61 ? 0 : (uint8_t)(seed >> 33); // mostly zero: more is legal
        }
        struct vb_wqe_ctrl *ctrl = (void *)x->ring;
        static const uint8_t ops[] = {0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11,
                                      0x12, 0x14, 0x15, 0x25, 0x3e, 0x3f, 0x0f, 0x17};
        ctrl->opcode = ops[seed >> 40 & 15];
        ctrl->opmod = (uint8_t)(seed >> 50 & 1 ? 8 | (seed >> 51 & 1) : 0);
        vb_put_be16(ctrl->idx, 0);
        vb_put_be24(ctrl->qpn, QPN);
        x->source.heads = (enum vb_wqe_heads)(seed >> 20 & 3) % 3;
        const struct vb_wr *wr = fetch_segs(x, 1 + (seed >> 24 & 63) % 63);
        assert_true(wr->num_seg <= VB_MAX_SGE);
        if (wr->syndrome != VB_SYN_OK)
            continue;
        assert_true(wr->length <= VB_MESSAGE_MAX);
        assert_true(!wr->is_inline || wr->length <= VB_WR_LONG_BYTES);
        assert_true(wr->num_seg <= VB_WR_SHORT_SEGS || wr->longer);
        if (wr->arg_bytes)
            assert_true(wr->num_seg == 1 && wr->length == wr->arg_bytes && wr->awaits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain_atomics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_masked_atomics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_atomic_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush, setup, teardown),
        cmocka_unit_test_setup_teardown(test_immediates_are_kept_as_they_are, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bindings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_invalidations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_datagrams, setup, teardown),
        cmocka_unit_test_setup_teardown(test_xrc, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_entries, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
