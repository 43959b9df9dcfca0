// SPDX-License-Identifier: Apache-2.0
// Random entries of every opcode, with every kind of head: what the NIC reads from each is what it
// was, by a digest. On a mismatch it prints the new one.
#include "base/prng.h"
#include "nic/wr.h"
#include "sim/digest.h"

#include <endian.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCKS = 16,
    ENTRIES = 30000,
    QPN = 0x1234,
};

static const uint8_t opcodes[] = {
    VB_WQE_NOP,        VB_WQE_WRITE,        VB_WQE_WRITE_IMM, VB_WQE_SEND,      VB_WQE_SEND_IMM,
    VB_WQE_SEND_INVAL, VB_WQE_READ,         VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA, VB_WQE_MASKED_CS,
    VB_WQE_UMR,        VB_WQE_MASKED_FA,    VB_WQE_WAIT,      VB_WQE_SEND_EN,   VB_WQE_RECV_EN,
    VB_WQE_FLUSH,      VB_WQE_ATOMIC_WRITE,
};

static bool is_atomic(uint8_t opcode)
{
    return opcode == VB_WQE_ATOMIC_CS || opcode == VB_WQE_ATOMIC_FA || opcode == VB_WQE_MASKED_CS ||
           opcode == VB_WQE_MASKED_FA;
}

// Segments that often make sense: a random one is refused at once.
static void draw_entry(uint8_t *ring, uint64_t counter, uint8_t opcode, struct vb_prng *r)
{
    uint8_t *at = ring + counter % BLOCKS * VB_WQEBB_BYTES;
    struct vb_wqe_ctrl ctrl = {
        .opmod = (uint8_t)(vb_prng_below(r, 8) ? 0 : vb_prng_below(r, 256)),
        .idx = {(uint8_t)(counter >> 8), (uint8_t)counter},
        .opcode = opcode,
        .qpn = {0, QPN >> 8, QPN & 0xff},
        .ds = (uint8_t)(1 + vb_prng_below(r, vb_prng_below(r, 4) ? 6 : 70)),
        .fm_ce_se = (uint8_t)vb_prng_next(r),
        .imm = (uint32_t)vb_prng_next(r),
    };

    for (uint32_t i = 0; i < BLOCKS * VB_WQEBB_BYTES; i += 4) {
        uint64_t draw = vb_prng_next(r);
        uint32_t word = htobe32((uint32_t)(draw >> 8) & (draw & 1 ? 0x1ff : 0x8000ffff));
        memcpy(ring + i, &word, 4);
    }
    memcpy(at, &ctrl, sizeof ctrl);
}

static void add_head(struct vb_digest *d, const struct vb_wr *wr, enum vb_wqe_heads heads)
{
    vb_digest_add(d, wr->opcode);
    vb_digest_add(d, wr->blocks);
    vb_digest_add(d, wr->syndrome);
    vb_digest_add(d, wr->fm_ce_se);
    if (wr->syndrome != VB_SYN_OK)
        return;
    vb_digest_add(d, wr->counter);
    vb_digest_add(d, (uint64_t)wr->imm << 32 | wr->length);
    vb_digest_add(d, (uint64_t)wr->num_seg << 2 | wr->is_inline << 1 | wr->awaits);
    if (vb_wqe_is_local(wr->opcode))
        return;
    vb_digest_add(d, wr->raddr);
    vb_digest_add(d, wr->rkey);
    if (heads == VB_WQE_HEAD_DATAGRAM)
        vb_digest_add(d, vb_digest_bytes(wr->rgid, sizeof wr->rgid));
    if (heads != VB_WQE_HEAD_PLAIN)
        vb_digest_add(d, wr->srqn);
}

static void add_rest(struct vb_digest *d, const struct vb_wr *wr)
{
    if (wr->syndrome != VB_SYN_OK || vb_wqe_is_local(wr->opcode))
        return;
    if (wr->is_inline) {
        vb_digest_add(d, vb_digest_bytes(wr->longer, wr->length));
        return;
    }
    for (uint32_t i = 0; i < wr->num_seg; i++) {
        const struct vb_seg *s = &vb_wr_segs(wr)[i];
        vb_digest_add(d, s->addr);
        vb_digest_add(d, (uint64_t)s->len << 32 | s->key);
    }
    if (is_atomic(wr->opcode)) {
        vb_digest_add(d, wr->arg_bytes);
        vb_digest_add(d, wr->atomic.swap_add);
        vb_digest_add(d, wr->atomic.compare);
    }
    if (wr->opcode == VB_WQE_MASKED_CS || wr->opcode == VB_WQE_MASKED_FA) {
        vb_digest_add(d, wr->swap_mask);
        vb_digest_add(d, wr->compare_mask);
    }
}

static void test_random_entries(void **state)
{
    static uint8_t ring[BLOCKS * VB_WQEBB_BYTES];
    struct vb_wr_pool pool = {0};
    struct vb_prng prng = {.state = 5};
    struct vb_digest d = {1};
    uint32_t right = 0;

    (void)state;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint64_t counter = vb_prng_below(&prng, BLOCKS);
        struct vb_wqe_source source = {.ring = ring,
                                       .blocks = BLOCKS,
                                       .counter = counter,
                                       .end = counter + 1 + vb_prng_below(&prng, BLOCKS),
                                       .qpn = QPN + (i % 64 == 0),
                                       .checks = i % 2,
                                       .cross = i % 4 < 2,
                                       .heads = (enum vb_wqe_heads)(i % 3)};
        draw_entry(ring, counter, opcodes[vb_prng_below(&prng, sizeof opcodes)], &prng);
        assert_int_equal(vb_wr_pool_reserve(&pool), 0);
        struct vb_wr *wr = vb_wr_fetch(&pool, &source);
        if (wr) {
            add_head(&d, wr, source.heads);
            add_rest(&d, wr);
            right += wr->syndrome == VB_SYN_OK;
            vb_wr_put(&pool, wr);
        }
    }
    vb_wr_pool_fini(&pool);
    assert_in_range(right, ENTRIES / 10, ENTRIES);
    if (d.value != 0x9434876fd015287f)
        fail_msg("0x%016" PRIx64 ", %u right", d.value, right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
