// SPDX-License-Identifier: Apache-2.0
// Queue pairs that are connected with themselves, through the public interface: what their entries
// do with memory, reductions, and entries that change entries.
#include "chain.h"

#include "base/bytes.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    FAR = 4096, // what entries name as remote
};

// ---- memory

static void test_reads_and_writes(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){.send_sge = 3});
    uint64_t sent = duo_counter(e->nic, "sent_pkts");

    duo_fill(e->memory, 1000, 1);
    chain_post(e, qp, chain_wr(e, VB_WR_WRITE, 1, FAR), 0, 1000);
    duo_expect(e->cq, 1, VB_WC_OK);
    assert_memory_equal(e->memory + FAR, e->memory, 1000);
    chain_post(e, qp, chain_wr(e, VB_WR_READ, 2, FAR + 500), 2000, 500);
    struct vb_wc wc = duo_wait(e->cq);
    assert_int_equal(wc.opcode, VB_WC_READ);
    assert_int_equal(wc.byte_len, 500);
    assert_memory_equal(e->memory + 2000, e->memory + 500, 500);
    // Bytes in another order, as programs turn numbers round.
    const struct vb_sge turned[] = {{(uintptr_t)e->memory + 3002, 1, vb_mr_key(e->mr)},
                                    {(uintptr_t)e->memory + 3001, 1, vb_mr_key(e->mr)},
                                    {(uintptr_t)e->memory + 3000, 1, vb_mr_key(e->mr)}};
    struct vb_send_wr wr = chain_wr(e, VB_WR_READ, 3, FAR);
    wr.sge = turned;
    wr.num_sge = 3;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
    duo_expect(e->cq, 3, VB_WC_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(e->memory[3000 + i], e->memory[2 - i]);
    wr = chain_wr(e, VB_WR_WRITE, 4, FAR + 8);
    wr.flags |= VB_WR_INLINE;
    chain_post(e, qp, wr, 16, 16);
    duo_expect(e->cq, 4, VB_WC_OK);
    assert_memory_equal(e->memory + FAR + 8, e->memory + 16, 16);
    assert_int_equal(duo_counter(e->nic, "sent_pkts"), sent);
    duo_close(&d);
}

static uint64_t atomic_on(const struct duo_end *e, struct vb_qp *qp, struct vb_send_wr wr,
                          uint32_t bytes)
{
    uint64_t old = 0;
    memset(e->memory, 0xee, 8);
    chain_post(e, qp, wr, 0, bytes);
    duo_expect(e->cq, wr.wr_id, VB_WC_OK);
    memcpy(&old, e->memory, bytes);
    return old;
}

static void expect_word(const struct duo_end *e, uint64_t value)
{
    uint64_t word;
    memcpy(&word, e->memory + FAR, 8);
    assert_int_equal(word, value);
}

static void test_atomics(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){0});
    struct vb_send_wr wr = chain_wr(e, VB_WR_FADD, 1, FAR);

    wr.atomic.swap_add = 0x100000005;
    assert_int_equal(atomic_on(e, qp, wr, 8), 0);
    expect_word(e, 0x100000005);
    wr = chain_wr(e, VB_WR_CAS, 2, FAR);
    wr.atomic.compare = 6;
    wr.atomic.swap_add = 9;
    assert_int_equal(atomic_on(e, qp, wr, 8), 0x100000005); // not equal
    expect_word(e, 0x100000005);
    wr.atomic.compare = 0x100000005;
    assert_int_equal(atomic_on(e, qp, wr, 8), 0x100000005);
    expect_word(e, 9);
    wr = chain_wr(e, VB_WR_MASKED_CAS, 3, FAR);
    wr.atomic.compare = 0xff09;
    wr.atomic.compare_mask = 0x00ff;
    wr.atomic.swap_add = UINT64_MAX;
    wr.atomic.swap_mask = 0xf0;
    assert_int_equal(atomic_on(e, qp, wr, 8), 9);
    expect_word(e, 0xf9);
    wr = chain_wr(e, VB_WR_MASKED_FADD, 4, FAR);
    wr.atomic.swap_add = 0x17;
    wr.atomic.compare = 0x80; // no carry out of the lowest byte
    assert_int_equal(atomic_on(e, qp, wr, 8), 0xf9);
    expect_word(e, 0x10);
    wr.atomic.arg_bytes = 4;
    wr.raddr += 4;
    assert_int_equal(atomic_on(e, qp, wr, 4), 0);
    expect_word(e, 0x1700000010);
    duo_close(&d);
}

// One wrong request on a queue pair of its own; nothing may change.
static void expect_failure(const struct duo_end *e, struct vb_send_wr wr, struct vb_sge sge,
                           enum vb_wc_status status, int line)
{
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){0});
    wr.sge = &sge;
    wr.num_sge = 1;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
    struct vb_wc wc = duo_wait(e->cq);
    if (wc.status != status)
        fail_msg("line %d: %s", line, vb_wc_status_text(wc.status));
    chain_expect_state(qp, "ERR");
    assert_int_equal(vb_qp_destroy(qp), 0);
    for (uint32_t i = 0; i < DUO_BYTES; i++)
        if (e->memory[i] != 0xab)
            fail_msg("line %d: byte %u was changed", line, i);
}
#define EXPECT_FAILURE(wr, sge, status) expect_failure(e, wr, sge, status, __LINE__)

static void test_wrong_keys_and_ranges(void **state)
{
    struct duo d;
    struct vb_mr *poor;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    memset(e->memory, 0xab, DUO_BYTES);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, DUO_BYTES, 0, &poor), 0); // local reads only
    const struct vb_sge good = {(uintptr_t)e->memory, 8, vb_mr_key(e->mr)};
    static const enum vb_wr_opcode all[] = {VB_WR_READ, VB_WR_WRITE,      VB_WR_CAS,
                                            VB_WR_FADD, VB_WR_MASKED_CAS, VB_WR_MASKED_FADD};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct vb_send_wr wr = chain_wr(e, all[i], 1, FAR);
        struct vb_sge sge = good;
        wr.rkey = vb_mr_key(poor);
        EXPECT_FAILURE(wr, sge, VB_WC_REMOTE_ACCESS);
        wr.rkey = vb_mr_key(e->mr) ^ 1;
        EXPECT_FAILURE(wr, sge, VB_WC_REMOTE_ACCESS);
        wr = chain_wr(e, all[i], 1, DUO_BYTES); // behind the end
        EXPECT_FAILURE(wr, sge, VB_WC_REMOTE_ACCESS);
        wr = chain_wr(e, all[i], 1, FAR);
        sge.lkey ^= 1;
        EXPECT_FAILURE(wr, sge, VB_WC_LOCAL_PROTECTION);
        sge = good;
        sge.addr = (uintptr_t)e->memory + DUO_BYTES - 7;
        EXPECT_FAILURE(wr, sge, VB_WC_LOCAL_PROTECTION);
        sge = good;
        sge.lkey = vb_mr_key(poor);
        if (all[i] != VB_WR_WRITE) // which only reads there
            EXPECT_FAILURE(wr, sge, VB_WC_LOCAL_PROTECTION);
        wr.raddr += 4;
        if (all[i] >= VB_WR_CAS)
            EXPECT_FAILURE(wr, good, VB_WC_REMOTE_INVALID);
    }
    EXPECT_FAILURE(chain_wr(e, VB_WR_SEND, 1, 0), good, VB_WC_LOCAL_QP_OP); // into which receive?
    EXPECT_FAILURE(chain_wr(e, VB_WR_WRITE_IMM, 1, FAR), good, VB_WC_LOCAL_QP_OP);
    duo_close(&d);
}

// What the queue pair grants itself.
static void test_rights_of_the_queue_pair(void **state)
{
    static const struct {
        enum vb_wr_opcode opcode;
        uint32_t right;
    } each[] = {{VB_WR_READ, VB_RIGHT_REMOTE_READ},
                {VB_WR_WRITE, VB_RIGHT_REMOTE_WRITE},
                {VB_WR_FADD, VB_RIGHT_REMOTE_ATOMIC}};
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_qp *qp = chain_qp(e, e->cq, (struct vb_qp_opts){0});

    assert_int_equal(vb_qp_connect_self(qp, VB_RIGHT_LOCAL_WRITE), -EINVAL);
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++) {
            assert_int_equal(vb_qp_connect_self(qp, each[i].right), 0);
            chain_post(e, qp, chain_wr(e, each[j].opcode, i, FAR), 0, 8);
            duo_expect(e->cq, i, i == j ? VB_WC_OK : VB_WC_REMOTE_ACCESS);
            if (i == j)
                assert_int_equal(vb_qp_fail(qp), 0);
        }
    duo_close(&d);
}

// ---- reductions

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void write_records(uint8_t *at, const uint64_t value[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        vb_put_be64(at + 16 * i, value[i]);
        vb_put_be64(at + 16 * i + 8, 100 + i);
    }
}

static const struct {
    enum vb_wr_calc calc;
    uint64_t value[3];
    uint64_t result, tag;
} calcs[] = {
    {VB_WR_CALC_ADD, {5, UINT64_MAX, 7}, 11, 100},
    {VB_WR_CALC_MAX, {3, UINT64_MAX - 1, 7}, UINT64_MAX - 1, 101},
    {VB_WR_CALC_MAX, {4, 4, 2}, 4, 100},
    {VB_WR_CALC_MIN, {3, UINT64_MAX, 2}, 2, 102},
    {VB_WR_CALC_AND, {0xff, 0x3c, 0xf8}, 0x38, 100},
    {VB_WR_CALC_OR, {1, 2, 1ull << 63}, 3 + (1ull << 63), 100},
    {VB_WR_CALC_XOR, {0xff, 0x0f, 1}, 0xf1, 100},
};

static void post_calc(const struct duo_end *from, struct vb_qp *qp, struct vb_send_wr wr,
                      enum vb_wr_calc calc, const uint64_t value[3])
{
    struct vb_sge sge[3];
    uint8_t *at = (uint8_t *)(((uintptr_t)from->memory + 15) & ~(uintptr_t)15);

    write_records(at, value);
    for (uint32_t i = 0; i < 3; i++)
        sge[i] = (struct vb_sge){(uintptr_t)at + 16 * i, 16, vb_mr_key(from->mr)};
    wr.sge = sge;
    wr.num_sge = 3;
    wr.calc = calc;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

static void expect_record(const uint8_t *at, uint64_t value, uint64_t tag)
{
    assert_int_equal(vb_get_be64(at), value);
    assert_int_equal(vb_get_be64(at + 8), tag);
}

static void test_calc_here(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){.send_sge = 3});

    for (size_t i = 0; i < sizeof calcs / sizeof calcs[0]; i++) {
        post_calc(e, qp, chain_wr(e, VB_WR_WRITE, i, FAR), calcs[i].calc, calcs[i].value);
        duo_expect(e->cq, i, VB_WC_OK);
        expect_record(e->memory + FAR, calcs[i].result, calcs[i].tag);
    }
    const uint64_t doubles[] = {bits_of(1.5), bits_of(-4), bits_of(0.25)};
    post_calc(e, qp, chain_wr(e, VB_WR_WRITE, 50, FAR), VB_WR_CALC_FLOAT_ADD, doubles);
    duo_expect(e->cq, 50, VB_WC_OK);
    expect_record(e->memory + FAR, bits_of(-2.25), 100);
    struct vb_send_wr wrong = chain_wr(e, VB_WR_WRITE, 51, FAR);
    wrong.rkey ^= 1;
    post_calc(e, qp, wrong, VB_WR_CALC_ADD, calcs[0].value);
    duo_expect(e->cq, 51, VB_WC_REMOTE_ACCESS);
    duo_close(&d);
}

static void test_calc_to_a_peer(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    const struct duo_end *to = &d.end[1];
    qp[0] = chain_qp(&d.end[0], d.end[0].cq, (struct vb_qp_opts){.send_sge = 3});
    qp[1] = duo_make_qp(to, (struct vb_qp_opts){0});
    duo_join(&d, qp[0], qp[1]);

    for (size_t i = 0; i < sizeof calcs / sizeof calcs[0]; i++) {
        post_calc(&d.end[0], qp[0], duo_wr(&d, VB_WR_WRITE, i), calcs[i].calc, calcs[i].value);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
        expect_record(to->memory, calcs[i].result, calcs[i].tag);
        duo_post_recv(to, qp[1], 90, 64, 64);
        post_calc(&d.end[0], qp[0], duo_wr(&d, i % 2 ? VB_WR_SEND_IMM : VB_WR_SEND, 60),
                  calcs[i].calc, calcs[i].value);
        duo_expect(d.end[0].cq, 60, VB_WC_OK);
        struct vb_wc wc = duo_wait(to->cq);
        assert_int_equal(wc.byte_len, 16);
        expect_record(to->memory + 64, calcs[i].result, calcs[i].tag);
    }
    duo_post_recv(to, qp[1], 91, 64, 64);
    post_calc(&d.end[0], qp[0], duo_wr(&d, VB_WR_WRITE_IMM, 61), VB_WR_CALC_ADD, calcs[0].value);
    duo_expect(to->cq, 91, VB_WC_OK);
    expect_record(to->memory, calcs[0].result, calcs[0].tag);
    duo_expect(d.end[0].cq, 61, VB_WC_OK);
    duo_close(&d);
}

static void test_calc_refused(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    struct vb_qp *self = chain_self(&d.end[0], d.end[0].cq, (struct vb_qp_opts){.send_sge = 2});
    uintptr_t at = ((uintptr_t)d.end[0].memory + 15) & ~(uintptr_t)15;
    const struct vb_sge good = {at, 16, vb_mr_key(d.end[0].mr)};
    struct vb_sge sge = good;
    struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, 1);

    wr.sge = &sge;
    wr.num_sge = 1;
    wr.calc = VB_WR_CALC_ADD;
    assert_int_equal(vb_post_send(qp[0], &wr, 1), -EINVAL); // not cross-channel
    wr.calc = VB_WR_CALC_MIN + 1;
    assert_int_equal(vb_post_send(self, &wr, 1), -EINVAL);
    wr.calc = VB_WR_CALC_MIN;
    sge.len = 8;
    assert_int_equal(vb_post_send(self, &wr, 1), -EINVAL);
    sge = good;
    sge.addr += 8;
    assert_int_equal(vb_post_send(self, &wr, 1), -EINVAL);
    sge = good;
    wr.opcode = VB_WR_READ;
    assert_int_equal(vb_post_send(self, &wr, 1), -EINVAL);
    wr.opcode = VB_WR_WRITE;
    wr.flags = VB_WR_INLINE;
    assert_int_equal(vb_post_send(self, &wr, 1), -EINVAL);
    wr.flags = 0;
    wr.num_sge = 0;
    assert_int_equal(vb_post_send(self, &wr, 1), -EINVAL);
    duo_close(&d);
}

// ---- entries that change entries

// Where the address of a WRITE's first data segment lies in its entry.
static uint64_t patch_at(const struct vb_qp *qp, uint32_t block)
{
    return (uintptr_t)chain_rings(qp).send + block * VB_WQEBB_BYTES + 2 * VB_WQE_SEG_BYTES + 8;
}

// The word that FAR is written from is at 64, and at 128 if the entry was changed in time.
static void prepare_words(const struct duo_end *e)
{
    memset(e->memory + 64, 1, 8);
    memset(e->memory + 128, 2, 8);
    vb_put_be64(e->memory, (uintptr_t)e->memory + 128);
}

// The first entry changes the second one.
static uint8_t run_patch(const struct duo_end *e, uint32_t fetch_depth)
{
    struct vb_mr *code;
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){.fetch_depth = fetch_depth});
    assert_int_equal(vb_qp_code(qp, VB_RING_SEND, DUO_REMOTE | VB_RIGHT_LOCAL_WRITE, &code), 0);
    const struct vb_sge sge[2] = {{(uintptr_t)e->memory, 8, vb_mr_key(e->mr)},
                                  {(uintptr_t)e->memory + 64, 8, vb_mr_key(e->mr)}};
    struct vb_send_wr wr[2] = {chain_wr(e, VB_WR_WRITE, 1, 0), chain_wr(e, VB_WR_WRITE, 2, FAR)};

    prepare_words(e);
    wr[0].raddr = patch_at(qp, 1);
    wr[0].rkey = vb_mr_key(code);
    for (int i = 0; i < 2; i++) {
        wr[i].sge = &sge[i];
        wr[i].num_sge = 1;
    }
    assert_int_equal(vb_post_send(qp, wr, 2), 2);
    duo_expect(e->cq, 1, VB_WC_OK);
    duo_expect(e->cq, 2, VB_WC_OK);
    assert_int_equal(vb_mr_dereg(code), 0);
    assert_int_equal(vb_qp_destroy(qp), 0);
    return e->memory[FAR];
}

static void test_fetched_entries_are_not_changed(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    assert_int_equal(run_patch(&d.end[0], 16), 1); // executed as fetched
    assert_int_equal(run_patch(&d.end[0], 2), 1);
    assert_int_equal(run_patch(&d.end[0], 1), 2); // fetched when the change was made
    duo_close(&d);
}

static void test_closed_entries_are_changed(void **state)
{
    struct duo d;
    struct vb_mr *code;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    struct vb_qp *victim = chain_self(e, e->cq, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){0});
    assert_int_equal(vb_qp_code(victim, VB_RING_SEND, DUO_REMOTE | VB_RIGHT_LOCAL_WRITE, &code), 0);

    prepare_words(e);
    chain_post(e, victim, chain_wr(e, VB_WR_WRITE, 1, FAR), 64, 8);
    struct vb_send_wr wr = chain_wr(e, VB_WR_WRITE, 2, 0);
    wr.raddr = patch_at(victim, 0);
    wr.rkey = vb_mr_key(code);
    chain_post(e, qp, wr, 0, 8);
    chain_cross(qp, VB_WR_SEND_EN, 3, vb_qp_num(victim), 1);
    bool seen[4] = {false};
    for (int i = 0; i < 3; i++) {
        struct vb_wc wc = duo_wait(e->cq);
        assert_int_equal(wc.status, VB_WC_OK);
        seen[wc.wr_id] = true;
    }
    assert_true(seen[1] && seen[2] && seen[3]);
    assert_int_equal(e->memory[FAR], 2);
    duo_close(&d);
}

static void test_code_regions(void **state)
{
    struct duo d;
    struct vb_mr *code[3], *no;
    duo_open(&d, *state);
    const struct duo_end *e = &d.end[0];
    const uint32_t rights = DUO_REMOTE | VB_RIGHT_LOCAL_WRITE;
    struct vb_qp *victim = chain_self(e, e->cq, (struct vb_qp_opts){.chain = VB_QP_MANAGED_SEND});
    const struct vb_qp_rings r = chain_rings(victim);

    assert_int_equal(vb_qp_code(victim, VB_RING_SEND, rights | VB_RIGHT_BIND, &no), -EINVAL);
    assert_int_equal(vb_qp_code(victim, (enum vb_ring)2, rights, &no), -EINVAL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(vb_qp_code(victim, i == 2 ? VB_RING_RECV : VB_RING_SEND, rights, &code[i]),
                         0);
    assert_int_not_equal(vb_mr_key(code[0]), vb_mr_key(code[1]));
    const struct vb_mr_opts other = {.addr = e->memory, .len = 8};
    assert_int_equal(vb_mr_change(code[0], e->pd, &other), -EINVAL);
    // The first and the last byte can be had, and none behind.
    for (int i = 0; i < 4; i++) {
        struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){0});
        struct vb_send_wr wr = chain_wr(e, VB_WR_READ, i, 0);
        uint32_t bytes = i < 2 ? r.send_blocks * VB_WQEBB_BYTES : r.recv_entries * r.recv_stride;
        wr.raddr = (uintptr_t)(i < 2 ? r.send : r.recv) + (i & 1);
        wr.rkey = vb_mr_key(code[i < 2 ? 0 : 2]);
        chain_post(e, qp, wr, 0, bytes);
        duo_expect(e->cq, i, i & 1 ? VB_WC_REMOTE_ACCESS : VB_WC_OK);
        assert_int_equal(vb_qp_destroy(qp), 0);
    }
    assert_int_equal(vb_mr_dereg(code[1]), 0);
    assert_int_equal(vb_qp_destroy(victim), 0);
    struct vb_qp *qp = chain_self(e, e->cq, (struct vb_qp_opts){0});
    struct vb_send_wr wr = chain_wr(e, VB_WR_READ, 9, 0);
    wr.raddr = (uintptr_t)r.send;
    wr.rkey = vb_mr_key(code[0]);
    chain_post(e, qp, wr, 0, 8);
    duo_expect(e->cq, 9, VB_WC_REMOTE_ACCESS); // the key went with its ring
    assert_int_equal(vb_mr_dereg(code[0]), 0);
    duo_close(&d); // frees the third
}

#define BOTH(test) DUO_TEST(test, "udp"), DUO_TEST(test, "shm")

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_reads_and_writes, "udp"),
        DUO_TEST(test_reads_and_writes, "hull"),
        DUO_TEST(test_atomics, "udp"),
        DUO_TEST(test_atomics, "hull"),
        DUO_TEST(test_wrong_keys_and_ranges, "udp"),
        DUO_TEST(test_wrong_keys_and_ranges, "hull"),
        DUO_TEST(test_rights_of_the_queue_pair, "udp"),
        DUO_TEST(test_rights_of_the_queue_pair, "hull"),
        DUO_TEST(test_calc_here, "udp"),
        DUO_TEST(test_calc_here, "hull"),
        BOTH(test_calc_to_a_peer),
        DUO_TEST(test_calc_to_a_peer, "hull"),
        DUO_TEST(test_calc_refused, "udp"),
        DUO_TEST(test_calc_refused, "hull"),
        DUO_TEST(test_fetched_entries_are_not_changed, "udp"),
        DUO_TEST(test_fetched_entries_are_not_changed, "hull"),
        DUO_TEST(test_closed_entries_are_changed, "udp"),
        DUO_TEST(test_closed_entries_are_changed, "hull"),
        DUO_TEST(test_code_regions, "udp"),
        DUO_TEST(test_code_regions, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
