// SPDX-License-Identifier: Apache-2.0
// The cost model against sums that can be made by hand: the increments its presets were derived
// from, and what becomes of them when a parameter or a program is twice as large.
#include "chain/text.h"
#include "cost/calendar.h"
#include "cost/model.h"
#include "fresh_seed.h"
#include "list_rig.h"
#include "mutate_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    US = 1000000,
    TEXT_BYTES = 1 << 16,
};

// ---- programs and presets

struct text {
    char at[TEXT_BYTES];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    t->len += (size_t)vsnprintf(t->at + t->len, sizeof t->at - t->len, format, args);
    va_end(args);
    assert_true(t->len < sizeof t->at);
}

enum order {
    QUEUE_ORDER,
    COMPLETION_ORDER,
    DOORBELL_ORDER
};

// So many NOPs on one queue: one after the other, each after the completion of the last one, or
// each opened after that.
static void put_nops(struct text *t, uint32_t count, enum order order)
{
    *t = (struct text){.len = 0};
    put(t, "program nops\ncq c entries 256\n");
    put(t, "queue W loop %s blocks 256 send_cq c\ncode W\n",
        order == DOORBELL_ORDER ? "managed_send open 3" : "");
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        put(t, "    nop signaled\n");
        if (order != QUEUE_ORDER && !last)
            put(t, "    wait c %u\n", i);
        if (order == DOORBELL_ORDER && !last)
            put(t, "    send_en W %u\n", 3 * i + (i + 2 == count ? 4 : 6));
    }
}

static struct vb_image *assemble(const struct text *t)
{
    char error[VB_IMAGE_TEXT];
    struct vb_image *image = vb_asm(t->at, t->len, error);
    if (!image)
        fail_msg("%s in\n%s", error, t->at);
    return image;
}

static struct vb_cost_preset *preset_of(const char *text)
{
    char error[VB_COST_TEXT] = "";
    struct vb_cost_preset *p = vb_cost_preset_parse(text, strlen(text), error);
    if (!p)
        fail_msg("%s", error);
    return p;
}

static struct vb_cost *price(const struct text *t, const char *preset,
                             const struct vb_cost_opts *opts)
{
    char error[VB_COST_TEXT] = "";
    struct vb_image *image = assemble(t);
    struct vb_cost_preset *p = preset_of(preset);
    struct vb_cost *c = vb_cost_run(image, p, opts, error);
    if (!c)
        fail_msg("%s", error);
    vb_cost_preset_free(p);
    vb_image_destroy(image);
    return c;
}

static struct vb_cost_summary summary_of(const struct text *t, const char *preset)
{
    struct vb_cost_summary s;
    struct vb_cost *c = price(t, preset, &(struct vb_cost_opts){.seed = 1});

    vb_cost_summary(c, &s);
    vb_cost_free(c);
    return s;
}

static uint64_t nops_ps(uint32_t count, enum order order, const char *preset)
{
    struct text t;
    put_nops(&t, count, order);
    return summary_of(&t, preset).latency_ps;
}

#define LIKE_A "name a\nlike connectx5-a\n"
#define LIKE_B "name b\nlike connectx5-b\n"

// ---- what the presets were derived from

static void test_increments(void **state)
{
    (void)state;
    assert_int_equal(nops_ps(1, QUEUE_ORDER, LIKE_A), 1.21 * US);
    assert_int_equal(nops_ps(1, QUEUE_ORDER, LIKE_B), 0.96 * US); // it does not leave the card
    for (int b = 0; b < 2; b++) {
        const char *preset = b ? LIKE_B : LIKE_A;
        uint64_t one = nops_ps(1, QUEUE_ORDER, preset);
        for (uint32_t n = 2; n < 9; n++) {
            assert_int_equal(nops_ps(n, QUEUE_ORDER, preset), one + (n - 1) * 170000);
            assert_int_equal(nops_ps(n, COMPLETION_ORDER, preset), one + (n - 1) * 190000);
            assert_int_equal(nops_ps(n, DOORBELL_ORDER, preset), one + (n - 1) * 540000);
        }
    }
}

// READ and CAS take 0.59 more than a NOP in preset B, a WRITE of 64 bytes 0.39.
static void test_operations(void **state)
{
    static const struct {
        const char *entry;
        uint64_t more_ps;
    } rows[] = {{"read d -> d+64:64", 590000},
                {"cas d compare 0 swap 1 -> d+8:8", 590000},
                {"write d+64 <- d:64", 390000},
                {"write d+64 <- d:8", 390000}};
    uint64_t nop = nops_ps(1, QUEUE_ORDER, LIKE_B);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text t = {.len = 0};
        put(&t,
            "program one\ncq c entries 16\nqueue W loop blocks 4 send_cq c\n"
            "region d own 256 writable\ncode W\n    %s signaled\n",
            rows[i].entry);
        assert_int_equal(summary_of(&t, LIKE_B).latency_ps, nop + rows[i].more_ps);
    }
}

// ---- twice as much of something

// Doorbell order has one fetch for each entry; queue order one for all of a batch.
static void test_half_the_fetch(void **state)
{
    const char *half = LIKE_B "fetch 0.175 us\n";

    (void)state;
    assert_int_equal(nops_ps(6, DOORBELL_ORDER, LIKE_B) - nops_ps(6, DOORBELL_ORDER, half),
                     6 * 175000);
    assert_int_equal(nops_ps(6, QUEUE_ORDER, LIKE_B) - nops_ps(6, QUEUE_ORDER, half), 175000);
    assert_int_equal(nops_ps(6, DOORBELL_ORDER, "name n\nlike nic-memory\n") -
                         nops_ps(1, DOORBELL_ORDER, "name n\nlike nic-memory\n"),
                     5 * 360000); // wait, and two that are issued
}

// One by one, nothing hides the fetches.
static void test_batches(void **state)
{
    (void)state;
    assert_int_equal(nops_ps(6, QUEUE_ORDER, LIKE_B "fetch_batch 1\n") -
                         nops_ps(6, QUEUE_ORDER, LIKE_B),
                     5 * 350000);
    // Two at a time: the next two are asked for while these are executed.
    assert_int_equal(nops_ps(6, QUEUE_ORDER, LIKE_B "fetch_batch 2\n") -
                         nops_ps(6, QUEUE_ORDER, LIKE_B),
                     2 * (350000 - 2 * 170000));
}

// Eight queues with 16 entries each: the units are never idle.
static void put_queues(struct text *t, uint32_t queues, uint32_t entries, const char *entry)
{
    *t = (struct text){.len = 0};
    put(t, "program many\ncq c entries 16\nregion d own 64 writable\n");
    for (uint32_t q = 0; q < queues; q++)
        put(t, "queue Q%u loop blocks 16 send_cq c\n", q);
    for (uint32_t q = 0; q < queues; q++) {
        put(t, "code Q%u\n", q);
        for (uint32_t i = 0; i < entries; i++)
            put(t, "    %s\n", entry);
    }
}

static void test_units(void **state)
{
    char preset[200];
    struct text t;

    (void)state;
    put_queues(&t, 8, 16, "nop");
    for (uint32_t pus = 1; pus <= 4; pus *= 2) {
        snprintf(preset, sizeof preset, LIKE_B "pus %u\n", pus);
        struct vb_cost_summary s = summary_of(&t, preset);
        // The last one begins when all the others have had their turns.
        assert_int_equal(s.end_ps, 300000 + 350000 + (128 / pus - 1) * 127000 + 170000);
    }
    // With a unit for each, queues do not wait for each other.
    struct vb_cost_summary s = summary_of(&t, LIKE_B "pus 8\n");
    assert_int_equal(s.end_ps, 300000 + 350000 + 16 * 170000);
}

// One atomic unit, however many units there are; twice as fast, twice the rate.
static void test_atomics(void **state)
{
    struct text t;

    (void)state;
    put_queues(&t, 8, 8, "fadd d add 1 -> d+8:8");
    const char *slow = LIKE_B "reads 16\natomic 1 us\n", *fast = LIKE_B "reads 16\natomic 0.5 us\n";
    struct vb_cost_summary s = summary_of(&t, slow), f = summary_of(&t, fast);
    assert_int_equal(s.operation_ps, 64 * US);
    assert_string_equal(s.bottleneck, "atomic unit");
    assert_int_equal(f.operation_ps, 32 * US);
    assert_int_equal(s.end_ps, 300000 + 350000 + 170000 + 63 * US + 590000);
    assert_int_equal(f.end_ps, 300000 + 350000 + 170000 + 63 * US / 2 + 590000);
    put_queues(&t, 8, 8, "nop");
    assert_string_not_equal(summary_of(&t, slow).bottleneck, "atomic unit");
}

// A list of n nodes: each takes as long as the last one.
static uint64_t walk_ps(uint32_t nodes, const char *preset_text)
{
    char error[VB_COST_TEXT];
    struct vb_machine_opts machine = {.seed = 1};
    struct vb_list_opts opts = {.nodes = nodes, .slots = 2, .value_max = LIST_VALUE_MAX};
    struct vb_image *image = vb_offload_list_walk(&opts, error);
    struct vb_cost_preset *p = preset_of(preset_text);
    struct vb_cost_summary s;
    struct list_rig r;

    assert_non_null(image);
    list_open(&r, image, &opts, &machine, nodes);
    list_ask(&r, nodes - 1, 0);
    struct vb_cost *c = vb_cost_watch(r.m, image, &machine, p, &(struct vb_cost_opts){0}, error);
    assert_non_null(c);
    vb_cost_summary(c, &s);
    list_expect(&r, nodes - 1);
    vb_cost_free(c);
    vb_cost_preset_free(p);
    list_close(&r);
    return s.latency_ps;
}

static void test_list_length(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        const char *preset = b ? LIKE_B : LIKE_A;
        uint64_t two = walk_ps(2, preset), four = walk_ps(4, preset), eight = walk_ps(8, preset);
        assert_true(four > two);
        assert_int_equal(eight - four, 2 * (four - two));
    }
}

// The cliff of too many connections: with a cache that holds one of a thousand, each entry takes a
// read over PCIe more of its unit.
static void test_cliffs(void **state)
{
    struct vb_cost_opts opts = {.seed = 1};
    struct vb_cost_summary warm, at_edge, cold;
    struct vb_cost *c;
    struct text t;

    (void)state;
    put_queues(&t, 8, 16, "nop");
    const char *preset = LIKE_B "pus 1\nqp_cache 100\n";
    c = price(&t, preset, &opts);
    vb_cost_summary(c, &warm);
    vb_cost_free(c);
    opts.connections = 100;
    c = price(&t, preset, &opts);
    vb_cost_summary(c, &at_edge);
    vb_cost_free(c);
    opts.connections = 400;
    c = price(&t, preset, &opts);
    vb_cost_summary(c, &cold);
    assert_int_equal(at_edge.end_ps, warm.end_ps);
    assert_int_equal(cold.operation_ps, 128 * (127000 + 350000 * 3 / 4));
    vb_cost_free(c);
    opts = (struct vb_cost_opts){.registered_bytes = 64 << 20};
    c = price(&t, LIKE_B "pus 1\n", &opts);
    vb_cost_summary(c, &cold);
    assert_int_equal(cold.operation_ps, 128 * (127000 + 350000 * 3 / 4)); // 16384 pages, 4096 kept
    vb_cost_free(c);
    c = price(&t, LIKE_B "pus 1\npage 2097152\n", &opts);
    vb_cost_summary(c, &cold);
    assert_int_equal(cold.operation_ps, warm.operation_ps);
    vb_cost_free(c);
}

// ---- sums

static struct vb_cost *price_gets(const char *preset, uint64_t seed)
{
    struct vb_machine_opts opts = {.seed = seed, .shared_bytes = HASH_SHARED};
    char error[VB_COST_TEXT] = "";
    struct vb_image *image = hash_image(8);
    struct vb_machine *m = vb_machine_create(image, &opts, error);
    struct vb_cost_preset *p = preset_of(preset);

    assert_non_null(m);
    hash_prepare(NULL, m);
    struct vb_cost *c = vb_cost_watch(m, image, &opts, p, &(struct vb_cost_opts){0}, error);
    if (!c)
        fail_msg("%s", error);
    vb_cost_preset_free(p);
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return c;
}

static void test_sums(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct vb_cost *c = price_gets(b ? LIKE_B : LIKE_A, 1);
        struct vb_cost_summary s;
        struct vb_cost_entry e;
        uint32_t n = 0, critical = 0, messages = 0;
        vb_cost_summary(c, &s);
        for (; vb_cost_entry(c, n, &e); n++) {
            assert_int_equal(e.at_ps + e.fetch_ps + e.wait_ps + e.issue_ps + e.pcie_ps +
                                 e.network_ps,
                             e.done_ps);
            critical += e.critical;
            messages += e.message;
        }
        assert_int_equal(n, s.entries);
        assert_int_equal(messages, HASH_ASKED);
        assert_int_equal(s.replies, HASH_ASKED);
        assert_in_range(critical, 5, n / 2);
        assert_int_equal(s.parts.fetch_ps + s.parts.wait_ps + s.parts.issue_ps + s.parts.pcie_ps +
                             s.parts.network_ps,
                         s.latency_ps);
        assert_in_range(s.latency_ps, 4 * US, 8 * US);
        assert_true(s.operation_ps > 0 && s.operation_ps < 2 * s.latency_ps);
        vb_cost_free(c);
    }
}

static void test_same_seed(void **state)
{
    struct vb_cost *a = price_gets(LIKE_B, 3), *b = price_gets(LIKE_B, 3);
    char *text[] = {vb_cost_text(a), vb_cost_text(b), vb_cost_json(a),
                    vb_cost_json(b), vb_cost_svg(a),  vb_cost_svg(b)};

    (void)state;
    for (int i = 0; i < 6; i += 2) {
        assert_string_equal(text[i], text[i + 1]);
        assert_true(strlen(text[i]) > 1000);
        free(text[i]);
        free(text[i + 1]);
    }
    vb_cost_free(a);
    vb_cost_free(b);
}

// Who is faster in the machine does not matter where the program does not depend on it.
static void test_other_seeds(void **state)
{
    struct vb_cost_summary first, s;
    struct vb_cost *c = price_gets(LIKE_B, 1);

    (void)state;
    vb_cost_summary(c, &first);
    vb_cost_free(c);
    for (uint64_t seed = 2; seed < 12; seed++) {
        c = price_gets(LIKE_B, seed);
        vb_cost_summary(c, &s);
        assert_int_equal(s.latency_ps, first.latency_ps);
        assert_int_equal(s.operation_ps, first.operation_ps);
        vb_cost_free(c);
    }
}

// ---- presets

static void test_presets(void **state)
{
    static const char *const names[] = {"connectx3", "connectx5-a",         "connectx5-b",
                                        "connectx6", "connectx5-dual-port", "nic-memory"};
    char error[VB_COST_TEXT];
    uint32_t n = 0;

    (void)state;
    for (; vb_cost_preset_name(n); n++) {
        struct vb_cost_preset *p = vb_cost_preset_named(vb_cost_preset_name(n), error);
        if (!p)
            fail_msg("%s: %s", vb_cost_preset_name(n), error);
        assert_string_equal(p->name, vb_cost_preset_name(n));
        vb_cost_preset_free(p);
    }
    assert_int_equal(n, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct vb_cost_preset *p = vb_cost_preset_named(names[i], error);
        assert_non_null(p);
        vb_cost_preset_free(p);
    }
    assert_null(vb_cost_preset_named("connectx", error));
    assert_non_null(strstr(error, "nic-memory"));
    struct vb_cost_preset *mine = preset_of("name mine # me\r\n\n like connectx3\n\tfetch 70 ns\n");
    assert_int_equal(mine->fetch, 70000);
    assert_int_equal(mine->pus, 2);
    assert_string_equal(mine->name, "mine");
    vb_cost_preset_free(mine);
}

static void test_wrong_presets(void **state)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "has no name"},
        {"name x\n", "'doorbell' is missing"},
        {"like connectx5-b\n", "has no name"},
        {"name x\nlike connectx9\n", "line 2: 'connectx9' is no preset"},
        {LIKE_B "fetsh 1 us\n", "line 3: 'fetsh' is no parameter"},
        {LIKE_B "fetch\n", "line 3: 'fetch' has no value"},
        {LIKE_B "fetch 1\n", "line 3: 'fetch' wants a time"},
        {LIKE_B "fetch 1 s\n", "line 3: 'fetch' wants a time"},
        {LIKE_B "fetch -1 us\n", "'fetch' wants a time"},
        {LIKE_B "fetch 1e3 us\n", "'fetch' wants a time"},
        {LIKE_B "fetch . us\n", "'fetch' wants a time"},
        {LIKE_B "fetch 0.12345678 us\n", "'fetch' wants a time"},
        {LIKE_B "fetch 99999999999999999999999 us\n", "'fetch' wants a time"},
        {LIKE_B "fetch 1001 us\n", "'fetch' wants a time"},
        {LIKE_B "fetch 1 us now\n", "line 3: write one parameter"},
        {LIKE_B "fetch 1 us\nfetch 1 us\n", "line 4: 'fetch' is there twice"},
        {LIKE_B "link 0 GB/s\n", "'link' wants a rate"},
        {LIKE_B "link 3 Gb/s\n", "'link' wants a rate"},
        {LIKE_B "pus 0\n", "'pus' is from 1 to 1024"},
        {LIKE_B "pus 1.5\n", "'pus' wants a whole number"},
        {LIKE_B "pus 2 us\n", "'pus' wants a whole number"},
        {LIKE_B "lanes none\n", "'lanes' wants queue or program"},
        {"name x\nfetch 1 us\nlike connectx5-b\n", "line 3: 'like' comes before"},
        {"name x y\n", "'name' takes one word"},
        {LIKE_B "fetch \001 us\n", "line 3: there is a byte that is no text"},
        {"name abcdefghijklmnopqrstuvwxyzabcdefghijk\n", "line 1: write one parameter"},
    };
    char error[VB_COST_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        error[0] = 0;
        assert_null(vb_cost_preset_parse(rows[i].text, strlen(rows[i].text), error));
        if (!strstr(error, rows[i].error) || strchr(error, '\n'))
            fail_msg("row %zu: '%s' instead of '%s'", i, error, rows[i].error);
    }
}

static void test_inputs(void **state)
{
    static const uint8_t five[] = {5};
    char error[VB_COST_TEXT] = "";
    struct vb_cost_input in = {"d", 0, five, 1};
    struct vb_cost_opts opts = {.memory = &in, .memories = 1};
    struct vb_cost_preset *p = preset_of(LIKE_B);
    struct text t = {.len = 0};

    (void)state;
    put(&t, "program one\ncq c entries 16\nqueue W loop blocks 4 send_cq c\n"
            "region d own 8 writable\ncode W\n    nop\n");
    struct vb_image *image = assemble(&t);
    struct vb_cost *c = vb_cost_run(image, p, &opts, error);
    assert_non_null(c);
    vb_cost_free(c);
    in.offset = 8;
    assert_null(vb_cost_run(image, p, &opts, error));
    assert_non_null(strstr(error, "behind the end"));
    in = (struct vb_cost_input){"e", 0, five, 1};
    assert_null(vb_cost_run(image, p, &opts, error));
    assert_non_null(strstr(error, "no region 'e'"));
    opts = (struct vb_cost_opts){.message = &in, .messages = 1};
    assert_null(vb_cost_run(image, p, &opts, error));
    assert_non_null(strstr(error, "is no queue"));
    struct vb_machine_opts late = {.seed = 1, .start = 1 << 16};
    struct vb_machine *m = vb_machine_create(image, &late, error);
    assert_non_null(m);
    assert_null(vb_cost_watch(m, image, &late, p, &opts, error));
    assert_non_null(strstr(error, "do not start at 0"));
    vb_machine_destroy(m);
    vb_cost_preset_free(p);
    vb_image_destroy(image);
}

// ---- the calendar

static uint64_t book(struct vb_calendar *c, uint64_t ready, uint64_t length)
{
    uint64_t end;
    assert_true(vb_calendar_book(c, ready, length, &end));
    return end;
}

static void test_calendar(void **state)
{
    struct vb_calendar c = {0};

    (void)state;
    assert_int_equal(book(&c, 10, 5), 15);
    assert_int_equal(book(&c, 20, 5), 25);
    assert_int_equal(book(&c, 0, 5), 5);
    assert_int_equal(book(&c, 15, 5), 20); // fills the gap: one span from 10 to 25
    assert_int_equal(c.count, 2);
    assert_int_equal(book(&c, 0, 7), 27); // 5 to 10, and two behind
    assert_int_equal(c.count, 1);
    assert_int_equal(book(&c, 3, 0), 3); // nothing takes no time
    assert_int_equal(book(&c, 30, 0), 30);
    vb_calendar_free(&c);
}

// Bookings at random against a row of moments that are free or busy.
static void test_random_calendar(void **state)
{
    enum {
        MOMENTS = 3000,
        BOOKINGS = 400
    };

    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 20; seed++) {
        struct vb_prng prng = {.state = seed};
        struct vb_calendar c = {0};
        bool busy[MOMENTS] = {false};
        for (int i = 0; i < BOOKINGS; i++) {
            uint64_t ready = vb_prng_below(&prng, 1500), length = vb_prng_below(&prng, 4);
            uint64_t at = ready, end = ready;
            for (uint64_t left = length; left > 0; at++) {
                left -= !busy[at];
                busy[at] = true;
                end = at + 1;
            }
            uint64_t found = book(&c, ready, length);
            assert_true(found == end || length == 0);
            uint32_t spans = 0;
            for (int t = 0; t < MOMENTS; t++)
                spans += busy[t] && (t == 0 || !busy[t - 1]);
            assert_int_equal(c.count, spans);
        }
        vb_calendar_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_increments),     cmocka_unit_test(test_operations),
        cmocka_unit_test(test_half_the_fetch), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_units),          cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_list_length),    cmocka_unit_test(test_cliffs),
        cmocka_unit_test(test_sums),           cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_other_seeds),    cmocka_unit_test(test_presets),
        cmocka_unit_test(test_wrong_presets),  cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_calendar),       cmocka_unit_test(test_random_calendar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
