// SPDX-License-Identifier: Apache-2.0
// Entries of loops have a short way, in polls, and a long one, in steps and for all that is not
// plain: random entries, right and wrong, must leave the same memory and the same completions.
#include "fresh_seed.h"
#include "loop_rig.h"

#include "base/bytes.h"
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    ROUNDS = 1500,
    ENTRIES = 6,
    SMALL = 24, // bytes of a region that ends soon
};

// A rig with keys that grant less than its own.
struct place {
    struct loop_rig r;
    struct loop_queue *q;
    uint32_t key[5];
};

static uint32_t make_key(struct place *p, uint32_t pd, uint32_t access, uint32_t len)
{
    uint32_t key;
    const struct vb_mkey_attr attr = {.pd = pd,
                                      .access = access,
                                      .start = (uintptr_t)p->r.memory,
                                      .len = len,
                                      .base = p->r.memory};
    assert_int_equal(vb_dev_mkey_create(p->r.dev, &attr, &key), 0);
    return key;
}

static void open_place(struct place *p, uint64_t seed)
{
    const uint32_t all = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;
    struct vb_prng prng = {.state = seed};
    uint32_t pd;

    loop_open(&p->r, 1);
    assert_int_equal(vb_dev_pd_create(p->r.dev, &pd), 0);
    p->key[0] = p->r.key;
    p->key[1] = make_key(p, p->r.pd, VB_REMOTE_READ, LOOP_MEMORY);
    p->key[2] = make_key(p, pd, all, LOOP_MEMORY);
    p->key[3] = make_key(p, p->r.pd, all, SMALL);
    p->key[4] = 0x12345678; // of nothing
    p->q = loop_queue(
        &p->r, &(struct loop_opts){.depth = 1 + (uint32_t)seed % 5, .be_replies = seed / 5 % 2});
    for (uint32_t i = 0; i < LOOP_MEMORY; i++)
        p->r.memory[i] = (uint8_t)vb_prng_below(&prng, 4);
}

// Mostly right ones.
static uint32_t draw_key(struct vb_prng *prng, const struct place *p)
{
    static const uint8_t which[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 1, 0};
    uint32_t at = (uint32_t)vb_prng_below(prng, 60);
    return p->key[at < 16 ? which[at] : at == 16 ? 2 : at == 17 ? 4 : 0];
}

static uint64_t draw_address(struct vb_prng *prng, const struct place *p, uint32_t align)
{
    uint64_t offset =
        vb_prng_below(prng, 20) ? vb_prng_below(prng, 256) : vb_prng_below(prng, LOOP_MEMORY + 16);
    offset = vb_prng_below(prng, 8) ? offset & ~(uint64_t)(align - 1) : offset;
    return (uintptr_t)p->r.memory + offset - (vb_prng_below(prng, 100) == 0 ? 300 : 0);
}

static struct vb_code draw_entry(struct vb_prng *prng, const struct place *p)
{
    static const uint8_t opcode[] = {VB_WQE_READ,      VB_WQE_READ,      VB_WQE_WRITE,
                                     VB_WQE_WRITE,     VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA,
                                     VB_WQE_MASKED_CS, VB_WQE_MASKED_FA, VB_WQE_NOP};
    static const uint8_t length[] = {1, 1, 1, 1, 2, 3, 4, 8, 8, 16, 33, 0};
    struct vb_code c = {.opcode = opcode[vb_prng_below(prng, sizeof opcode)],
                        .fm_ce_se = vb_prng_below(prng, 3) ? 0 : VB_WQE_CE_ALWAYS,
                        .swap_add = vb_prng_next(prng),
                        .compare = vb_prng_below(prng, 2) ? vb_prng_next(prng) : 0};
    bool copies = c.opcode == VB_WQE_READ || c.opcode == VB_WQE_WRITE;
    bool masked = c.opcode == VB_WQE_MASKED_CS || c.opcode == VB_WQE_MASKED_FA;
    bool calc = c.opcode == VB_WQE_WRITE && vb_prng_below(prng, 3) == 0;
    uint32_t word = masked && vb_prng_below(prng, 2) == 0 ? 4 : 8;

    if (c.opcode == VB_WQE_NOP)
        return c;
    c.opmod = masked ? (word == 8 ? VB_WQE_OPMOD_MASKED8 : VB_WQE_OPMOD_MASKED4) : 0;
    c.opmod = calc ? 1 + (uint8_t)vb_prng_below(prng, 7) : c.opmod;
    c.raddr = draw_address(prng, p, copies ? 1 : word);
    c.rkey = draw_key(prng, p);
    c.num_sge =
        copies ? 1 + (uint32_t)vb_prng_below(prng, 2) * (uint32_t)vb_prng_below(prng, 15) : 1;
    uint32_t len = length[vb_prng_below(prng, sizeof length)];
    for (uint32_t i = 0; i < c.num_sge; i++) {
        len = vb_prng_below(prng, 3) ? len : length[vb_prng_below(prng, sizeof length)];
        c.sge[i] = (struct vb_code_sge){draw_address(prng, p, calc ? 16 : 1), draw_key(prng, p),
                                        calc     ? 16
                                        : copies ? len
                                                 : word};
    }
    return c;
}

// Now and then one of the bytes that decide is another.
static void spoil(struct vb_prng *prng, struct place *p, uint64_t counter)
{
    static const uint8_t at[] = {0, 3, 7, 11, 32, 35, 48, 51};

    if (vb_prng_below(prng, 25))
        return;
    loop_block(p->q, counter)[at[vb_prng_below(prng, sizeof at)]] ^=
        (uint8_t)(1u << vb_prng_below(prng, 8));
}

static void play(struct place *p, uint64_t seed, bool stepwise)
{
    struct vb_prng prng = {.state = seed};

    open_place(p, seed);
    for (uint32_t i = 0; i < ENTRIES; i++)
        spoil(&prng, p, loop_put(p->q, draw_entry(&prng, p)));
    loop_doorbell(p->q);
    if (stepwise)
        loop_run(&p->r);
    for (int i = 0; !stepwise && i < 20; i++)
        vb_pu_poll(vb_dev_pu(p->r.dev), 0);
}

static void expect_the_same(struct place *a, struct place *b, uint64_t seed)
{
    enum vb_qp_state x, y;

    if (memcmp(a->r.memory, b->r.memory, LOOP_MEMORY) != 0)
        fail_msg("seed %llu: memory differs", (unsigned long long)seed);
    if (memcmp(a->q->cq.ring, b->q->cq.ring, (size_t)64 * VB_CQE_BYTES) != 0)
        fail_msg("seed %llu: completions differ", (unsigned long long)seed);
    assert_int_equal(vb_dev_qp_state(a->r.dev, a->q->qpn, &x), 0);
    assert_int_equal(vb_dev_qp_state(b->r.dev, b->q->qpn, &y), 0);
    assert_int_equal(x, y);
}

static void test_short_and_long_ways_do_the_same(void **state)
{
    uint32_t failed = 0, good = 0;

    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + ROUNDS; seed++) {
        struct place a, b;
        uint8_t bad = 0;
        play(&a, seed, true);
        play(&b, seed, false);
        expect_the_same(&a, &b, seed);
        good += loop_count(&a.q->cq, &bad);
        failed += bad != 0;
        loop_close(&a.r);
        loop_close(&b.r);
    }
    assert_true(failed > ROUNDS / 10 && failed < ROUNDS * 9 / 10); // both kinds were drawn
    assert_true(good > ROUNDS / 2);
}

// A part that begins in its region ends there, too.
static void test_parts_end_in_their_region(void **state)
{
    struct place p;

    (void)state;
    for (uint32_t over = 0; over < 2; over++) {
        uint8_t bad = 0;
        open_place(&p, 1);
        memset(p.r.memory, 5, 2 * SMALL);
        memset(p.r.memory + 64, 7, 16);
        loop_put(p.q, (struct vb_code){
                          .opcode = VB_WQE_READ,
                          .fm_ce_se = VB_WQE_CE_ALWAYS,
                          .raddr = (uintptr_t)p.r.memory + 64,
                          .rkey = p.r.key,
                          .num_sge = 2,
                          .sge = {{(uintptr_t)p.r.memory, p.key[3], 1},
                                  {(uintptr_t)p.r.memory + SMALL - 4 + over, p.key[3], 4}}});
        loop_doorbell(p.q);
        vb_pu_poll(vb_dev_pu(p.r.dev), 0);
        assert_int_equal(loop_count(&p.q->cq, &bad), 1 - over);
        assert_int_equal(bad, over ? VB_SYN_LOCAL_PROT : 0);
        assert_int_equal(p.r.memory[0], 7); // it came before
        assert_int_equal(p.r.memory[SMALL - 1], over ? 5 : 7);
        assert_int_equal(p.r.memory[SMALL], 5);
        loop_close(&p.r);
    }
}

// The short way of a word asks for the same rights.
static void test_words_need_rights(void **state)
{
    struct place p;

    (void)state;
    for (int may = 0; may < 2; may++) {
        uint8_t bad = 0;
        open_place(&p, 1);
        memset(p.r.memory, 5, 64);
        memset(p.r.memory + 64, 7, 8);
        loop_put(p.q,
                 (struct vb_code){.opcode = VB_WQE_READ,
                                  .fm_ce_se = VB_WQE_CE_ALWAYS,
                                  .raddr = (uintptr_t)p.r.memory + 64,
                                  .rkey = p.r.key,
                                  .num_sge = 1,
                                  .sge = {{(uintptr_t)p.r.memory, may ? p.r.key : p.key[1], 8}}});
        loop_doorbell(p.q);
        vb_pu_poll(vb_dev_pu(p.r.dev), 0);
        assert_int_equal(loop_count(&p.q->cq, &bad), may);
        assert_int_equal(bad, may ? 0 : VB_SYN_LOCAL_PROT);
        assert_int_equal(p.r.memory[0], may ? 7 : 5);
        loop_close(&p.r);
    }
}

// A key that goes is not remembered: the next entry fails.
static void test_a_key_that_goes(void **state)
{
    struct place p;
    uint8_t bad = 0;

    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        open_place(&p, 1);
        struct vb_code read = {.opcode = VB_WQE_READ,
                               .fm_ce_se = VB_WQE_CE_ALWAYS,
                               .raddr = (uintptr_t)p.r.memory,
                               .rkey = p.key[3],
                               .num_sge = 1,
                               .sge = {{(uintptr_t)p.r.memory + 64, p.r.key, 8}}};
        loop_put(p.q, read);
        loop_doorbell(p.q);
        vb_pu_poll(vb_dev_pu(p.r.dev), 0);
        if (gone)
            assert_int_equal(vb_dev_mkey_destroy(p.r.dev, p.key[3]), 0);
        loop_put(p.q, read);
        loop_doorbell(p.q);
        vb_pu_poll(vb_dev_pu(p.r.dev), 0);
        assert_int_equal(loop_count(&p.q->cq, &bad), gone ? 1 : 2);
        assert_int_equal(bad, gone ? VB_SYN_REMOTE_ACCESS : 0);
        loop_close(&p.r);
    }
}

// One word of an entry: a part of the memory by one key, and where it comes from or goes to by
// another.
static struct vb_code word_entry(enum vb_wqe_opcode opcode, uint64_t near, uint32_t near_key,
                                 uint64_t far, uint32_t far_key)
{
    return (struct vb_code){.opcode = opcode,
                            .opmod = opcode == VB_WQE_MASKED_FA ? VB_WQE_OPMOD_MASKED8 : 0,
                            .fm_ce_se = VB_WQE_CE_ALWAYS,
                            .swap_add = 1,
                            .raddr = far,
                            .rkey = far_key,
                            .num_sge = 1,
                            .sge = {{near, near_key, 8}}};
}

static uint8_t poll_one(struct place *p, struct vb_code code)
{
    uint8_t bad = 0;

    loop_put(p->q, code);
    loop_doorbell(p->q);
    vb_pu_poll(vb_dev_pu(p->r.dev), 0);
    uint32_t good = loop_count(&p->q->cq, &bad);
    assert_int_equal(good, bad == 0);
    return bad;
}

// The length of an inline segment without bytes is that of no list, even in a region of 2 GiB.
static void test_no_inline_segment_is_a_long_one(void **state)
{
    (void)state;
    for (int stepwise = 0; stepwise < 2; stepwise++) {
        struct place p;
        uint8_t bad = 0;

        open_place(&p, 1);
        uint32_t big = make_key(&p, p.r.pd, VB_LOCAL_WRITE, VB_WQE_INLINE);
        loop_put(p.q, (struct vb_code){.opcode = VB_WQE_READ,
                                       .raddr = (uintptr_t)p.r.memory,
                                       .rkey = p.r.key,
                                       .num_sge = 1,
                                       .sge = {{(uintptr_t)p.r.memory, big, VB_WQE_INLINE}}});
        loop_doorbell(p.q);
        if (stepwise)
            loop_run(&p.r);
        for (int i = 0; !stepwise && i < 20; i++)
            vb_pu_poll(vb_dev_pu(p.r.dev), 0);
        assert_int_equal(loop_count(&p.q->cq, &bad), 0);
        assert_int_equal(bad, VB_SYN_LOCAL_QP_OP);
        loop_close(&p.r);
    }
}

// A masked addition of 4 bytes takes a short way of its own: the same at the end of a region, where
// the short way of a word ends.
static void test_half_words_end_in_their_region(void **state)
{
    struct place p;

    (void)state;
    for (uint32_t i = 0; i < 3 * 6; i++) { // within the last eight bytes, and behind them
        const uint32_t at = SMALL - 8 + 2 * (i % 6), side = i / 6;
        const bool fits = at + 4 <= SMALL, aligned = at % 4 == 0;
        open_place(&p, 1);
        memset(p.r.memory, 0, 128);
        struct vb_code code = word_entry(VB_WQE_MASKED_FA, (uintptr_t)p.r.memory + 64, p.r.key,
                                         (uintptr_t)p.r.memory + at, side < 2 ? p.key[3] : p.r.key);
        code.opmod = VB_WQE_OPMOD_MASKED4;
        code.sge[0].len = side == 1 ? 8 : 4; // the answer has four bytes
        if (side == 2) {
            code.raddr = (uintptr_t)p.r.memory + 64;
            code.sge[0].addr = (uintptr_t)p.r.memory + at;
            code.sge[0].key = p.key[3];
        }
        const uint8_t bad = poll_one(&p, code);
        const uint8_t want = side == 1   ? VB_SYN_LOCAL_QP_OP
                             : side == 2 ? (fits ? 0 : VB_SYN_LOCAL_PROT)
                             : !aligned  ? VB_SYN_REMOTE_INVAL_REQ
                                         : (fits ? 0 : VB_SYN_REMOTE_ACCESS);
        assert_int_equal(bad, want);
        assert_int_equal(p.r.memory[side == 0 ? at : 64], bad == 0);
        loop_close(&p.r);
    }
}

// What was there comes in this machine's order, or big-endian where the queue asks for that: on
// the short way and on the long one, of 8 bytes and of 4. What is compared and added to stays as it
// is.
static void test_answers_are_big_endian_where_asked_for(void **state)
{
    static const struct {
        enum vb_wqe_opcode opcode;
        uint8_t opmod;
        uint32_t bytes;
    } kind[] = {{VB_WQE_ATOMIC_CS, 0, 8},
                {VB_WQE_ATOMIC_FA, 0, 8},
                {VB_WQE_MASKED_FA, VB_WQE_OPMOD_MASKED8, 8},
                {VB_WQE_MASKED_FA, VB_WQE_OPMOD_MASKED4, 4}};
    const uint64_t before = 0x1122334455667788;

    (void)state;
    for (uint32_t i = 0; i < 4 * 4; i++) {
        const bool asked = i & 1, stepwise = i & 2;
        const uint32_t bytes = kind[i / 4].bytes;
        uint8_t want[8];
        struct loop_rig r;
        loop_open(&r, 1);
        struct loop_queue *q = loop_queue(&r, &(struct loop_opts){.be_replies = asked});
        loop_set_word(&r, 0, before);
        struct vb_code code = word_entry(kind[i / 4].opcode, (uintptr_t)r.memory + 68, r.key,
                                         (uintptr_t)r.memory, r.key);
        code.opmod = kind[i / 4].opmod;
        code.compare = code.opcode == VB_WQE_ATOMIC_CS ? before : 0;
        code.swap_add = code.opcode == VB_WQE_ATOMIC_CS ? before + 1 : 1;
        code.sge[0].len = bytes;
        loop_put(q, code);
        loop_doorbell(q);
        if (stepwise)
            loop_run(&r);
        else
            vb_pu_poll(vb_dev_pu(r.dev), 0);
        assert_int_equal(loop_count(&q->cq, NULL), 1);
        assert_true(loop_word(&r, 0) == before + 1);
        for (uint32_t k = 0; k < bytes; k++)
            want[k] = (uint8_t)(before >> 8 * (asked ? bytes - 1 - k : k));
        assert_memory_equal(r.memory + 68, want, bytes);
        loop_close(&r);
    }
}

static const enum vb_wqe_opcode word_kinds[] = {VB_WQE_READ, VB_WQE_WRITE, VB_WQE_ATOMIC_CS,
                                                VB_WQE_MASKED_FA};

enum {
    WORD_KINDS = sizeof word_kinds / sizeof word_kinds[0]
};

// The last word of a region is in it, the one that begins a byte later is not; on either side.
static void test_words_end_in_their_region(void **state)
{
    struct place p;

    (void)state;
    for (uint32_t i = 0; i < 3 * WORD_KINDS; i++) {
        const enum vb_wqe_opcode opcode = word_kinds[i % WORD_KINDS];
        const bool atomic = opcode == VB_WQE_ATOMIC_CS || opcode == VB_WQE_MASKED_FA;
        const uint32_t near_over = i / WORD_KINDS == 1, far_over = i / WORD_KINDS == 2;
        open_place(&p, 1);
        const uint64_t last = (uintptr_t)p.r.memory + SMALL - 8;
        memset(p.r.memory, 5, 128);
        uint8_t bad = near_over ? poll_one(&p, word_entry(opcode, last + 1, p.key[3],
                                                          (uintptr_t)p.r.memory + 64, p.r.key))
                                : poll_one(&p, word_entry(opcode, (uintptr_t)p.r.memory + 64,
                                                          p.r.key, last + far_over, p.key[3]));
        assert_int_equal(bad, near_over  ? VB_SYN_LOCAL_PROT
                              : far_over ? (atomic ? VB_SYN_REMOTE_INVAL_REQ : VB_SYN_REMOTE_ACCESS)
                                         : 0);
        assert_int_equal(p.r.memory[SMALL], 5);
        loop_close(&p.r);
    }
}

static void connect_again(struct place *p, uint32_t access)
{
    const struct vb_ip ip = {{[10] = 0xff, 0xff, 10, 0, 0, 1}};
    struct vb_qpc_mods mods = {.state = VB_QPS_RESET,
                               .access = access,
                               .dest_qpn = p->q->qpn,
                               .mtu_bytes = 1024,
                               .local = ip,
                               .remote = ip,
                               .src_port = 4791};

    assert_int_equal(vb_dev_qp_modify(p->r.dev, p->q->qpn, &mods), 0);
    for (mods.state = VB_QPS_INIT; mods.state <= VB_QPS_RTS; mods.state++)
        assert_int_equal(vb_dev_qp_modify(p->r.dev, p->q->qpn, &mods), 0);
}

// A queue pair that grants its peer nothing grants itself nothing.
static void test_words_need_what_the_queue_pair_grants(void **state)
{
    const uint32_t all = VB_REMOTE_READ | VB_REMOTE_WRITE | VB_REMOTE_ATOMIC;
    static const uint32_t needs[WORD_KINDS] = {VB_REMOTE_READ, VB_REMOTE_WRITE, VB_REMOTE_ATOMIC,
                                               VB_REMOTE_ATOMIC};
    struct place p;

    (void)state;
    for (uint32_t i = 0; i < 2 * WORD_KINDS; i++) {
        const bool may = i % 2;
        open_place(&p, 1);
        connect_again(&p, may ? needs[i / 2] : all & ~needs[i / 2]);
        memset(p.r.memory, 5, 128);
        uint8_t bad = poll_one(&p, word_entry(word_kinds[i / 2], (uintptr_t)p.r.memory + 64,
                                              p.r.key, (uintptr_t)p.r.memory, p.r.key));
        assert_int_equal(bad, may ? 0 : VB_SYN_REMOTE_ACCESS);
        loop_close(&p.r);
    }
}

// Who changes where an entry stores its word, and when.
enum change {
    BY_NOBODY,
    BY_AN_ENTRY,      // of the same run, before it is opened
    BY_AN_ENTRY_LATE, // when it was fetched already
    BY_THE_HOST,      // between two polls, before it is opened
    CHANGES
};

static void test_a_word_goes_where_its_entry_said_when_fetched(void **state)
{
    struct place p;

    (void)state;
    for (enum change change = BY_NOBODY; change < CHANGES; change++) {
        open_place(&p, 1);
        struct loop_queue *q = loop_queue(&p.r, &(struct loop_opts){.managed = true, .depth = 8});
        const uint64_t memory = (uintptr_t)p.r.memory;
        uint8_t *const field = loop_block(q, 2) + 40; // the address of its data segment
        loop_set_word(&p.r, 0, 42);
        loop_set_word(&p.r, 8, 0);
        loop_set_word(&p.r, 16, 0);
        loop_set_word(&p.r, 24, htobe64(memory + 16));
        bool changes = change == BY_AN_ENTRY || change == BY_AN_ENTRY_LATE;
        loop_put(q, changes
                        ? word_entry(VB_WQE_WRITE, memory + 24, p.r.key, (uintptr_t)field, q->key)
                        : loop_nop());
        loop_put(q, loop_enable(q, 3));
        if (change != BY_AN_ENTRY_LATE)
            loop_doorbell(q);
        loop_put(q, word_entry(VB_WQE_READ, memory + 8, p.r.key, memory, p.r.key));
        if (change == BY_AN_ENTRY_LATE)
            loop_doorbell(q);
        if (change == BY_THE_HOST)
            vb_put_be64(field, memory + 16);
        vb_pu_poll(vb_dev_pu(p.r.dev), 0);
        assert_int_equal(loop_count(&q->cq, NULL), 3);
        bool moved = change == BY_AN_ENTRY || change == BY_THE_HOST;
        assert_int_equal(loop_word(&p.r, 8), moved ? 0 : 42);
        assert_int_equal(loop_word(&p.r, 16), moved ? 42 : 0);
        loop_close(&p.r);
    }
}

// A region that gets other memory is not remembered either.
static void test_a_key_that_moves(void **state)
{
    struct place p;

    (void)state;
    open_place(&p, 1);
    const struct vb_mkey_attr there = {.pd = p.r.pd,
                                       .access = VB_LOCAL_WRITE | VB_REMOTE_READ,
                                       .start = (uintptr_t)p.r.memory,
                                       .len = SMALL,
                                       .base = p.r.memory + 1024};
    const uint64_t memory = (uintptr_t)p.r.memory;
    struct vb_code read = word_entry(VB_WQE_READ, memory, p.key[3], memory + 64, p.r.key);
    loop_set_word(&p.r, 64, 1);
    assert_int_equal(poll_one(&p, read), 0);
    assert_int_equal(loop_word(&p.r, 0), 1);
    assert_int_equal(vb_dev_mkey_change(p.r.dev, p.key[3], &there), 0);
    loop_set_word(&p.r, 64, 2);
    assert_int_equal(poll_one(&p, read), 0);
    assert_int_equal(loop_word(&p.r, 0), 1);
    assert_int_equal(loop_word(&p.r, 1024), 2);
    loop_close(&p.r);
}

// A turn is entries and what they move: long copies end it earlier.
static uint32_t entries_of_a_poll(uint32_t bytes)
{
    static uint8_t big[1 << 16];
    struct place p;
    uint32_t key;

    open_place(&p, 4);
    const struct vb_mkey_attr attr = {.pd = p.r.pd,
                                      .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
                                      .start = (uintptr_t)big,
                                      .len = sizeof big,
                                      .base = big};
    assert_int_equal(vb_dev_mkey_create(p.r.dev, &attr, &key), 0);
    for (int i = 0; i < 60; i++)
        loop_put(p.q, (struct vb_code){.opcode = VB_WQE_WRITE,
                                       .fm_ce_se = VB_WQE_CE_ALWAYS,
                                       .raddr = (uintptr_t)big,
                                       .rkey = key,
                                       .num_sge = 1,
                                       .sge = {{(uintptr_t)big, key, bytes}}});
    loop_doorbell(p.q);
    vb_pu_poll(vb_dev_pu(p.r.dev), 0);
    uint32_t done = loop_count(&p.q->cq, NULL);
    for (int i = 0; i < 20; i++)
        vb_pu_poll(vb_dev_pu(p.r.dev), 0);
    assert_int_equal(done + loop_count(&p.q->cq, NULL), 60);
    loop_close(&p.r);
    return done;
}

static void test_bytes_count_in_a_turn(void **state)
{
    (void)state;
    assert_int_equal(entries_of_a_poll(64), 60);
    assert_int_equal(entries_of_a_poll(4095), 60);
    assert_true(entries_of_a_poll(1 << 16) < 20);
}

// A completion that finds no room ends the run, in the middle of what was fetched.
static void test_full_queue_ends_a_run(void **state)
{
    const struct loop_opts opts = {.strict = true, .cq_entries = 8};
    enum vb_qp_state s;

    (void)state;
    for (int stepwise = 0; stepwise < 2; stepwise++) {
        struct loop_rig r;
        loop_open(&r, 1);
        struct loop_queue *q = loop_queue(&r, &opts);
        for (int i = 0; i < 12; i++)
            loop_put(q, loop_count_up(&r, 0));
        loop_doorbell(q);
        if (stepwise)
            loop_run(&r);
        for (int i = 0; !stepwise && i < 20; i++)
            vb_pu_poll(vb_dev_pu(r.dev), 0);
        assert_int_equal(vb_dev_qp_state(r.dev, q->qpn, &s), 0);
        assert_int_equal(s, VB_QPS_ERR);
        assert_int_equal(loop_word(&r, 0), 9); // the one that did not complete was done
        loop_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_and_long_ways_do_the_same),
        cmocka_unit_test(test_parts_end_in_their_region),
        cmocka_unit_test(test_words_need_rights),
        cmocka_unit_test(test_a_key_that_goes),
        cmocka_unit_test(test_words_end_in_their_region),
        cmocka_unit_test(test_words_need_what_the_queue_pair_grants),
        cmocka_unit_test(test_half_words_end_in_their_region),
        cmocka_unit_test(test_no_inline_segment_is_a_long_one),
        cmocka_unit_test(test_answers_are_big_endian_where_asked_for),
        cmocka_unit_test(test_a_word_goes_where_its_entry_said_when_fetched),
        cmocka_unit_test(test_a_key_that_moves),
        cmocka_unit_test(test_bytes_count_in_a_turn),
        cmocka_unit_test(test_full_queue_ends_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
