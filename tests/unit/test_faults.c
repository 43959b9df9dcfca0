// SPDX-License-Identifier: Apache-2.0
// Fault rules: what they do to frames, completions, queue pairs and registrations.
#include "base/bytes.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/faults.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

enum {
    FRAME_BYTES = 32,
    MANY = 200000
};

static struct vb_faults *parse(const char *text)
{
    struct vb_faults *f = NULL;
    char why[VB_ERROR_TEXT] = "";
    if (vb_faults_parse(text, &f, why) != 0)
        fail_msg("%s", why);
    return f;
}

struct frame {
    uint8_t bytes[FRAME_BYTES];
};

static struct frame frame_of(uint8_t opcode, uint32_t qpn, uint8_t syndrome)
{
    struct frame f = {.bytes = {opcode}};
    vb_put_be24(f.bytes + 5, qpn);
    f.bytes[VB_BTH_BYTES] = syndrome;
    return f;
}

static struct vb_fault_fate judge(struct vb_faults *f, enum vb_fault_dir dir,
                                  const struct frame *frame)
{
    struct vb_fault_fate fate;
    vb_faults_judge(f, dir, frame->bytes, FRAME_BYTES, &fate);
    return fate;
}

// Whether the only rule of the text drops such a frame.
static bool drops(const char *text, enum vb_fault_dir dir, uint8_t opcode, uint32_t qpn,
                  uint8_t syndrome)
{
    struct vb_faults *f = parse(text);
    struct frame frame = frame_of(opcode, qpn, syndrome);
    bool drop = judge(f, dir, &frame).drop;
    struct vb_fault_counts counts = vb_faults_counts(f, 0);
    assert_int_equal(counts.matched, drop);
    assert_int_equal(counts.fired, drop);
    vb_faults_free(f);
    return drop;
}

static void test_probabilities_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double p;
    } cases[] = {{"drop=1%;seed=1", 0.01},       {"drop=50%;seed=2", 0.5},
                 {"drop=1000ppm;seed=3", 0.001}, {"drop=0%;seed=4", 0},
                 {"drop=100%;seed=5", 1},        {"drop=99.9%;seed=6", 0.999},
                 {"drop=1%;seed=77", 0.01},      {"drop=12.5%;seed=8", .125}};
    struct frame frame = frame_of(VB_RC_SEND_ONLY, 1, 0);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct vb_faults *f = parse(cases[c].text);
        double hits = 0;
        for (uint32_t i = 0; i < MANY; i++)
            hits += judge(f, i & 1 ? VB_FAULT_TX : VB_FAULT_RX, &frame).drop;
        double off = hits - MANY * cases[c].p;
        double variance = MANY * cases[c].p * (1 - cases[c].p);
        assert_true(off * off <= 16 * variance); // four sigmas
        assert_int_equal(vb_faults_counts(f, 0).matched, MANY);
        assert_true(vb_faults_counts(f, 0).fired == (uint64_t)hits);
        vb_faults_free(f);
    }
}

// What "drop=…" does to the first 30 frames, as a text of dots and crosses.
static void assert_pattern(const char *text, const char *pattern)
{
    struct vb_faults *f = parse(text);
    struct frame frame = frame_of(VB_RC_SEND_ONLY, 1, 0), other = frame_of(VB_RC_SEND_ONLY, 2, 0);
    char got[31] = "";
    for (uint32_t i = 0; i < 30; i++) {
        got[i] = judge(f, i & 1 ? VB_FAULT_TX : VB_FAULT_RX, &frame).drop ? 'x' : '.';
        assert_false(judge(f, VB_FAULT_TX, &other).drop);
    }
    assert_string_equal(got, pattern);
    vb_faults_free(f);
}

static void test_counted_frames_are_exact(void **state)
{
    (void)state;
    assert_pattern("drop=#1,qp=1", "x.............................");
    assert_pattern("drop=#3,qp=1", "..x...........................");
    assert_pattern("drop=#3/10,qp=1", "..x.........x.........x.......");
    assert_pattern("drop=#10/10,qp=1", ".........x.........x.........x");
    assert_pattern("drop=#1/1,qp=1", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    assert_pattern("drop=#27+,qp=1", "..........................xxxx");
    assert_pattern("drop=#3..5,qp=1", "..xxx.........................");
    assert_pattern("drop=#2..3/15,qp=1", ".xx.............xx............");
}

static void test_directions_filter(void **state)
{
    (void)state;
    assert_true(drops("drop=100%", VB_FAULT_TX, 0, 0, 0));
    assert_true(drops("drop=100%", VB_FAULT_RX, 0, 0, 0));
    assert_true(drops("drop=100%,dir=tx", VB_FAULT_TX, 0, 0, 0));
    assert_false(drops("drop=100%,dir=tx", VB_FAULT_RX, 0, 0, 0));
    assert_true(drops("drop=100%,dir=rx", VB_FAULT_RX, 0, 0, 0));
    assert_false(drops("drop=100%,dir=rx", VB_FAULT_TX, 0, 0, 0));
}

static void test_touch_tells_directions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool tx, rx;
    } cases[] = {
        {"off", false, false},
        {"drop=1%", true, true},
        {"drop=1%,dir=tx", true, false},
        {"off;delay=1us,dir=rx;seed=1", false, true},
        {"wc=retry_exc", false, false},
        {"qp_error=1%;reg_mr=#1", false, false},
        {"drop=1%,dir=tx;dup=1%,dir=rx", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vb_faults *f = parse(cases[i].text);
        assert_int_equal(vb_faults_touch(f, VB_FAULT_TX), cases[i].tx);
        assert_int_equal(vb_faults_touch(f, VB_FAULT_RX), cases[i].rx);
        vb_faults_free(f);
    }
}

static void test_queue_pairs_filter(void **state)
{
    (void)state;
    const char *text = "drop=100%,qp=0x12|0x20..0x2f|0xfffffe..0xffffff";
    static const uint32_t in[] = {0x12, 0x20, 0x25, 0x2f, 0xfffffe, 0xffffff};
    static const uint32_t out[] = {0, 0x11, 0x13, 0x1f, 0x30, 0xfffffd};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        assert_true(drops(text, VB_FAULT_RX, 0, in[i], 0));
        assert_false(drops(text, VB_FAULT_RX, 0, out[i], 0));
    }
}

static void test_opcodes_filter(void **state)
{
    (void)state;
    uint8_t ack = vb_aeth_syndrome(VB_AETH_ACK, 31), nak = vb_aeth_syndrome(VB_AETH_NAK, 0);
    uint8_t rnr = vb_aeth_syndrome(VB_AETH_RNR, 12);
    const struct {
        uint8_t opcode, syndrome;
        const char *names; // all that match
    } rows[] = {
        {VB_RC_SEND_FIRST, 0, "send"},
        {VB_RC_SEND_ONLY_IMM, 0, "send imm"},
        {VB_RC_SEND_ONLY_INV, 0, "send inv"},
        {VB_RC_WRITE_MIDDLE, nak, "write"},
        {VB_RC_WRITE_LAST_IMM, 0, "write imm"},
        {VB_RC_READ_REQUEST, 0, "read"},
        {VB_RC_READ_RESP_ONLY, ack, "read_resp"},
        {VB_RC_READ_RESP_MIDDLE, nak, "read_resp"},
        {VB_RC_ACK, ack, "ack 0x11"},
        {VB_RC_ACK, nak, "nak 0x11"},
        {VB_RC_ACK, rnr, "rnr 0x11"},
        {VB_RC_ATOMIC_ACK, ack, "atomic_ack"},
        {VB_RC_COMPARE_SWAP, 0, "atomic"},
        {VB_RC_FETCH_ADD, 0, "atomic"},
        {0xfe, 0, "0xfe"},
    };
    static const char *const names[] = {"send",   "write",      "read", "read_resp", "ack",
                                        "nak",    "rnr",        "imm",  "inv",       "0x11",
                                        "atomic", "atomic_ack", "0xfe"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            char text[64], list[64], name[16];
            snprintf(text, sizeof text, "drop=100%%,op=0x7f|%s", names[n]);
            snprintf(list, sizeof list, " %s ", rows[i].names);
            snprintf(name, sizeof name, " %s ", names[n]);
            assert_int_equal(drops(text, VB_FAULT_TX, rows[i].opcode, 1, rows[i].syndrome),
                             strstr(list, name) != NULL);
        }
        assert_true(drops("drop=100%,op=any", VB_FAULT_TX, rows[i].opcode, 1, rows[i].syndrome));
    }
}

static void test_stubs_meet_only_rules_without_conditions(void **state)
{
    (void)state;
    struct vb_faults *f = parse("drop=100%,op=0x00;dup=100%,qp=0;corrupt=100%;delay=1us,op=ack");
    const uint8_t *bytes = malloc(1); // exact, so that a sanitizer guards its end
    struct vb_fault_fate fate;
    vb_faults_judge(f, VB_FAULT_RX, bytes, 0, &fate);
    assert_true(!fate.drop && fate.copies == 0 && fate.corrupt && fate.delay_ns == 0);
    uint8_t *bth = calloc(1, VB_BTH_BYTES); // an acknowledgement cut off before its AETH
    bth[0] = VB_RC_ACK;
    vb_faults_judge(f, VB_FAULT_RX, bth, VB_BTH_BYTES, &fate);
    assert_true(!fate.drop && fate.copies == 1 && fate.corrupt && fate.delay_ns == 0);
    vb_faults_free(f);
    free(bth);
    free((void *)(uintptr_t)bytes);
}

static void test_actions_combine(void **state)
{
    (void)state;
    struct vb_faults *f = parse("dup=100%:2,delay=5us,reorder=100%:3~7us;corrupt=#2;delay=10us;"
                                "reorder=#1:9~2us;dup=#2:6;drop=#3");
    struct frame frame = frame_of(VB_RC_SEND_ONLY, 1, 0);
    struct vb_fault_fate fate = judge(f, VB_FAULT_TX, &frame);
    assert_true(!fate.drop && !fate.corrupt);
    assert_int_equal(fate.copies, 2);
    assert_int_equal(fate.delay_ns, 15000);
    assert_int_equal(fate.hold_frames, 9);
    assert_int_equal(fate.hold_ns, 7000);
    fate = judge(f, VB_FAULT_TX, &frame);
    assert_true(!fate.drop && fate.corrupt);
    assert_int_equal(fate.copies, VB_FAULTS_COPIES);
    assert_int_equal(fate.hold_frames, 3);
    assert_true(judge(f, VB_FAULT_TX, &frame).drop);
    assert_int_equal(vb_faults_counts(f, 0).matched, 3);
    assert_int_equal(vb_faults_counts(f, 0).fired, 9);
    assert_int_equal(vb_faults_counts(f, 5).fired, 1);
    assert_int_equal(vb_faults_counts(f, 6).matched, 0);
    vb_faults_free(f);
}

static void test_jitter_and_holds_cover_their_ranges(void **state)
{
    (void)state;
    struct vb_faults *f = parse("delay=50us±20us,reorder=100%;seed=3");
    struct frame frame = frame_of(VB_RC_SEND_ONLY, 1, 0);
    uint64_t least = UINT64_MAX, most = 0, holds[6] = {0};
    double sum = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        struct vb_fault_fate fate = judge(f, VB_FAULT_TX, &frame);
        assert_in_range(fate.delay_ns, 30000, 70000);
        assert_in_range(fate.hold_frames, 1, 4);
        least = fate.delay_ns < least ? fate.delay_ns : least;
        most = fate.delay_ns > most ? fate.delay_ns : most;
        sum += (double)fate.delay_ns;
        holds[fate.hold_frames]++;
    }
    assert_true(least < 30100 && most > 69900);
    assert_true(sum / 10000 > 49500 && sum / 10000 < 50500);
    for (uint32_t k = 1; k <= 4; k++)
        assert_in_range(holds[k], 2300, 2700);
    vb_faults_free(f);
}

// Fates of 64 frames sent, with `received` frames coming in between, as bits.
static uint64_t fates(const char *text, uint32_t received)
{
    struct vb_faults *f = parse(text);
    struct frame frame = frame_of(VB_RC_SEND_ONLY, 1, 0);
    uint64_t bits = 0;
    for (uint32_t i = 0; i < 64; i++) {
        bits = bits << 1 | judge(f, VB_FAULT_TX, &frame).drop;
        for (uint32_t r = 0; r < received; r++)
            judge(f, VB_FAULT_RX, &frame);
    }
    vb_faults_free(f);
    return bits;
}

static void test_the_seed_decides(void **state)
{
    (void)state;
    uint64_t bits = fates("drop=50%;seed=7", 0);
    assert_true(bits == fates("seed=7;drop=50%", 0));
    assert_true(bits == fates("drop=50%;seed=7", 3));
    assert_true(bits == fates("drop=50%;delay=1us±1us;dup=50%;seed=7", 0));
    assert_true(bits != fates("drop=50%;seed=8", 0));
    assert_true(bits != fates("drop=50%", 0));
}

// ---- forced errors

static void test_completions_fail_on_demand(void **state)
{
    (void)state;
    struct vb_faults *f = parse("wc=retry_exc:send@#2,qp=5;wc=rem_op:read|atomic;drop=100%");
    assert_int_equal(vb_faults_completion(f, 5, VB_FAULT_WR_SEND), VB_SYN_OK);
    assert_int_equal(vb_faults_completion(f, 6, VB_FAULT_WR_SEND), VB_SYN_OK);
    assert_int_equal(vb_faults_completion(f, 5, VB_FAULT_WR_WRITE), VB_SYN_OK);
    assert_int_equal(vb_faults_completion(f, 5, VB_FAULT_WR_SEND), VB_SYN_RETRY_EXC);
    assert_int_equal(vb_faults_completion(f, 5, VB_FAULT_WR_SEND), VB_SYN_OK);
    assert_int_equal(vb_faults_completion(f, 9, VB_FAULT_WR_READ), VB_SYN_REMOTE_OP);
    assert_int_equal(vb_faults_completion(f, 9, VB_FAULT_WR_ATOMIC), VB_SYN_REMOTE_OP);
    assert_int_equal(vb_faults_completion(f, 9, VB_FAULT_WR_RECV), VB_SYN_OK);
    assert_int_equal(vb_faults_completion(f, 9, VB_FAULT_WR_OTHER), VB_SYN_OK);
    assert_false(vb_faults_qp(f, 5));
    assert_int_equal(vb_faults_register(f), 0);
    assert_int_equal(vb_faults_counts(f, 0).matched, 3);
    assert_int_equal(vb_faults_counts(f, 2).matched, 0);
    vb_faults_free(f);
    f = parse("wc=wr_flush@#2;wc=loc_len");
    assert_int_equal(vb_faults_completion(f, 9, VB_FAULT_WR_OTHER), VB_SYN_LOCAL_LENGTH);
    assert_int_equal(vb_faults_completion(f, 9, VB_FAULT_WR_RECV), VB_SYN_FLUSH);
    vb_faults_free(f);
}

static void test_every_syndrome_has_a_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum vb_cqe_syndrome syndrome;
    } rows[] = {
        {"loc_len", VB_SYN_LOCAL_LENGTH},     {"loc_qp_op", VB_SYN_LOCAL_QP_OP},
        {"loc_prot", VB_SYN_LOCAL_PROT},      {"wr_flush", VB_SYN_FLUSH},
        {"bad_resp", VB_SYN_BAD_RESP},        {"loc_access", VB_SYN_LOCAL_ACCESS},
        {"rem_access", VB_SYN_REMOTE_ACCESS}, {"rem_inv_req", VB_SYN_REMOTE_INVAL_REQ},
        {"rem_op", VB_SYN_REMOTE_OP},         {"rnr_retry_exc", VB_SYN_RNR_RETRY_EXC},
        {"retry_exc", VB_SYN_RETRY_EXC},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "wc=%s", rows[i].name);
        struct vb_faults *f = parse(text);
        assert_int_equal(vb_faults_completion(f, 1, VB_FAULT_WR_SEND), rows[i].syndrome);
        vb_faults_free(f);
    }
}

static void test_queue_pairs_fail_on_demand(void **state)
{
    (void)state;
    struct vb_faults *f = parse("qp_error=#3,qp=0x10..0x1f");
    for (uint32_t i = 1; i <= 5; i++) {
        assert_false(vb_faults_qp(f, 0x20));
        assert_int_equal(vb_faults_qp(f, 0x10 + i), i == 3);
    }
    assert_int_equal(vb_faults_completion(f, 0x10, VB_FAULT_WR_SEND), VB_SYN_OK);
    vb_faults_free(f);
}

static void test_registrations_fail_on_demand(void **state)
{
    (void)state;
    struct vb_faults *f = parse("reg_mr=#2;reg_mr=#4+:EINVAL");
    static const int expected[] = {0, -ENOMEM, 0, -EINVAL, -EINVAL};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(vb_faults_register(f), expected[i]);
    vb_faults_free(f);
}

// ---- what is printed means the same

static const char *draw_trigger(struct vb_prng *r, char *text, size_t size)
{
    uint64_t a = vb_prng_range(r, 1, 9), b = a + vb_prng_below(r, 9);
    switch (vb_prng_below(r, 6)) {
    case 0: snprintf(text, size, "%u%%", (unsigned)vb_prng_below(r, 101)); break;
    case 1: snprintf(text, size, "%uppm", (unsigned)vb_prng_below(r, 1000001)); break;
    case 2: snprintf(text, size, "#%u", (unsigned)a); break;
    case 3: snprintf(text, size, "#%u+", (unsigned)a); break;
    case 4: snprintf(text, size, "#%u..%u", (unsigned)a, (unsigned)b); break;
    default:
        snprintf(text, size, "#%u..%u/%u", (unsigned)a, (unsigned)b,
                 (unsigned)(b + vb_prng_below(r, 9)));
    }
    return text;
}

static void draw_rule(struct vb_prng *r, char *text, size_t size)
{
    static const char *const ops[] = {"send", "any", "ack|nak", "0x04|read", "imm"};
    char t[4][48];
    unsigned n = (unsigned)vb_prng_range(r, 0, 40);
    for (unsigned i = 0; i < 4; i++)
        draw_trigger(r, t[i], sizeof t[i]);
    switch (vb_prng_below(r, 5)) {
    case 0:
        snprintf(text, size, "wc=rem_op:%s@%s,qp=%u..%u;", n & 1 ? "send" : "read|recv", t[0], n,
                 n * 2);
        break;
    case 1: snprintf(text, size, "qp_error=%s;", t[0]); break;
    case 2: snprintf(text, size, "reg_mr=%s:EAGAIN;", t[0]); break;
    case 3:
        snprintf(text, size, "op=%s,drop=%s,dup=%s:%u;", ops[n % 5], t[0], t[1], 1 + n % 7);
        break;
    default:
        snprintf(text, size, "delay=%u.5us±%uns@%s,reorder=%s:%u~%ums,corrupt=%s,dir=%s;", n, n,
                 t[0], t[1], 1 + n, n, t[2], n & 1 ? "tx" : "rx");
    }
}

static void assert_same_fates(struct vb_faults *a, struct vb_faults *b, struct vb_prng *r)
{
    for (uint32_t i = 0; i < 50; i++) {
        uint32_t qpn = (uint32_t)vb_prng_below(r, 64);
        struct frame frame = frame_of((uint8_t)vb_prng_below(r, 24), qpn, (uint8_t)vb_prng_next(r));
        enum vb_fault_dir dir = vb_prng_next(r) & 1 ? VB_FAULT_TX : VB_FAULT_RX;
        enum vb_fault_wr wr = (enum vb_fault_wr)vb_prng_below(r, 6);
        struct vb_fault_fate fa = judge(a, dir, &frame), fb = judge(b, dir, &frame);
        assert_true(fa.drop == fb.drop && fa.corrupt == fb.corrupt && fa.copies == fb.copies);
        assert_true(fa.hold_frames == fb.hold_frames && fa.hold_ns == fb.hold_ns);
        assert_true(fa.delay_ns == fb.delay_ns);
        assert_int_equal(vb_faults_completion(a, qpn, wr), vb_faults_completion(b, qpn, wr));
        assert_int_equal(vb_faults_qp(a, qpn), vb_faults_qp(b, qpn));
        assert_int_equal(vb_faults_register(a), vb_faults_register(b));
    }
}

static void test_printed_rules_judge_alike(void **state)
{
    (void)state;
    struct vb_prng r = {.state = fresh_seed()};
    char *printed = malloc(VB_FAULTS_TEXT);
    for (uint32_t round = 0; round < 500; round++) {
        char text[2048];
        size_t used = (size_t)snprintf(text, sizeof text, "seed=%u;", round);
        for (uint64_t n = vb_prng_below(&r, 8); n > 0; n--) {
            draw_rule(&r, text + used, sizeof text - used);
            used = strlen(text);
        }
        struct vb_faults *a = parse(text);
        assert_in_range(vb_faults_print(a, printed, VB_FAULTS_TEXT), 1, VB_FAULTS_TEXT - 1);
        struct vb_faults *b = parse(printed);
        assert_same_fates(a, b, &r);
        vb_faults_free(a);
        vb_faults_free(b);
    }
    free(printed);
}

// Units of a NIC draw from streams of their own, which follow from the seed; the first one's are
// those of a NIC of one unit.
static void test_units_draw_for_themselves(void **state)
{
    (void)state;
    uint64_t drawn[6];
    static const struct {
        const char *rules;
        uint32_t unit;
    } sets[6] = {{"drop=50%;seed=7", 0}, {"drop=50%;seed=7", 0}, {"drop=50%;seed=7", 1},
                 {"drop=50%;seed=7", 1}, {"drop=50%;seed=8", 1}, {"drop=50%;seed=8", 0}};
    for (int i = 0; i < 6; i++) {
        struct vb_faults *faults = NULL;
        const uint8_t head[12] = {0};
        assert_int_equal(vb_faults_parse(sets[i].rules, &faults, NULL), 0);
        if (i > 0) // and not at all for the first
            vb_faults_seed_unit(faults, sets[i].unit);
        drawn[i] = 0;
        for (int f = 0; f < 64; f++) {
            struct vb_fault_fate fate;
            vb_faults_judge(faults, VB_FAULT_TX, head, sizeof head, &fate);
            drawn[i] = drawn[i] << 1 | fate.drop;
        }
        vb_faults_free(faults);
    }
    assert_true(drawn[0] == drawn[1] && drawn[2] == drawn[3]);
    assert_true(drawn[1] != drawn[2] && drawn[2] != drawn[4] && drawn[4] != drawn[5]);
    assert_true(drawn[2] != drawn[5]); // no unit has a neighbouring seed's
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities_are_kept),
        cmocka_unit_test(test_counted_frames_are_exact),
        cmocka_unit_test(test_directions_filter),
        cmocka_unit_test(test_touch_tells_directions),
        cmocka_unit_test(test_queue_pairs_filter),
        cmocka_unit_test(test_opcodes_filter),
        cmocka_unit_test(test_stubs_meet_only_rules_without_conditions),
        cmocka_unit_test(test_actions_combine),
        cmocka_unit_test(test_jitter_and_holds_cover_their_ranges),
        cmocka_unit_test(test_the_seed_decides),
        cmocka_unit_test(test_completions_fail_on_demand),
        cmocka_unit_test(test_every_syndrome_has_a_name),
        cmocka_unit_test(test_queue_pairs_fail_on_demand),
        cmocka_unit_test(test_registrations_fail_on_demand),
        cmocka_unit_test(test_printed_rules_judge_alike),
        cmocka_unit_test(test_units_draw_for_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
