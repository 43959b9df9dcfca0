// SPDX-License-Identifier: Apache-2.0
// Presets, parameter by parameter: the least and the largest value of each, one beyond, what it
// says when the parameter is missing, twice or of another unit, and every message in full.
#include "cost/preset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum kind {
    TIME,
    RATE,
    COUNT,
    LANES,
    KINDS
};

#define AT(field) offsetof(struct vb_cost_preset, field)

static const struct row {
    const char *name;
    enum kind kind;
    size_t at;
    uint64_t min, max; // of a count
} rows[] = {
    {"doorbell", TIME, AT(doorbell), 0, 0},
    {"fetch", TIME, AT(fetch), 0, 0},
    {"issue", TIME, AT(issue), 0, 0},
    {"wait", TIME, AT(wait), 0, 0},
    {"enable", TIME, AT(enable), 0, 0},
    {"network", TIME, AT(network), 0, 0},
    {"completion", TIME, AT(completion), 0, 0},
    {"read", TIME, AT(read), 0, 0},
    {"write", TIME, AT(write), 0, 0},
    {"gather", TIME, AT(gather), 0, 0},
    {"cold", TIME, AT(cold), 0, 0},
    {"occupancy", TIME, AT(occupancy), 0, 0},
    {"atomic", TIME, AT(atomic), 0, 0},
    {"link", RATE, AT(link), 0, 0},
    {"pcie", RATE, AT(pcie), 0, 0},
    {"message", RATE, AT(message), 0, 0},
    {"fetch_batch", COUNT, AT(fetch_batch), 1, 1024},
    {"managed_batch", COUNT, AT(managed_batch), 0, 1024},
    {"reads", COUNT, AT(reads), 1, 64},
    {"pus", COUNT, AT(pus), 1, 1024},
    {"ports", COUNT, AT(ports), 1, 64},
    {"chains", COUNT, AT(chains), 0, 1024},
    {"mtu", COUNT, AT(mtu), 256, 1048576},
    {"qp_cache", COUNT, AT(qp_cache), 1, 1073741824},
    {"page_cache", COUNT, AT(page_cache), 1, 1073741824},
    {"page", COUNT, AT(page), 4096, 1099511627776},
    {"lanes", LANES, AT(lanes), 0, 0},
};

enum {
    ROWS = sizeof rows / sizeof *rows
};

static const char *const usual[KINDS] = {"1 us", "1 GB/s", "512", "queue"};
static const char *const wanted[KINDS] = {"a time such as 0.35 us, up to 1000 us",
                                          "a rate such as 11.5 GB/s, from 0.001 to 1000",
                                          "a whole number", "queue or program"};

static const char *usual_of(const struct row *r)
{
    return r->kind == COUNT && r->max < 512 ? "2" : r->min > 512 ? "8192" : usual[r->kind];
}

// Every parameter in a line of its own behind the name, but `changed` (or none: ROWS), which is
// `value`; NULL: it is missing.
static struct vb_cost_preset *parse(uint32_t changed, const char *value, char *error)
{
    char text[2048];
    size_t len = (size_t)snprintf(text, sizeof text, "name all\n");

    for (uint32_t i = 0; i < ROWS; i++)
        if (i != changed || value)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s %s\n", rows[i].name,
                                    i == changed ? value : usual_of(&rows[i]));
    error[0] = 0;
    return vb_cost_preset_parse(text, len, error);
}

static void takes(uint32_t i, const char *text, uint64_t value)
{
    char error[VB_COST_TEXT];
    uint64_t found;
    struct vb_cost_preset *p = parse(i, text, error);

    if (!p)
        fail_msg("%s %s: %s", rows[i].name, text, error);
    memcpy(&found, (const char *)p + rows[i].at, sizeof found);
    if (found != value)
        fail_msg("%s %s: %llu", rows[i].name, text, (unsigned long long)found);
    vb_cost_preset_free(p);
}

// The message names the line: that of parameter i is i + 2.
__attribute__((format(printf, 3, 4))) static void refuses(uint32_t i, const char *text,
                                                          const char *format, ...)
{
    char error[VB_COST_TEXT], expected[VB_COST_TEXT];
    int n = text ? snprintf(expected, sizeof expected, "line %u: ", i + 2) : 0;
    va_list args;

    va_start(args, format);
    vsnprintf(expected + n, sizeof expected - (size_t)n, format, args);
    va_end(args);
    assert_null(parse(i, text, error));
    assert_string_equal(error, expected);
}

static void test_times(void **state)
{
    static const struct {
        const char *text;
        uint64_t ps;
    } good[] = {
        {"0 us", 0},        {"1 us", 1000000}, {"1000 us", 1000000000}, {"1000000 ns", 1000000000},
        {"0.000001 us", 1}, {".5 ns", 500},    {"5. ns", 5000},         {"007.25 us", 7250000},
        {"0.001 ns", 1}};
    static const char *const bad[] = {"1",
                                      "1 s",
                                      "1 GB/s",
                                      "1000.000001 us",
                                      "1000001 ns",
                                      "0.0000001 us",
                                      "0.0001 ns",
                                      "1.2.3 us",
                                      ". us",
                                      "-1 us",
                                      "1e3 us",
                                      "us us",
                                      "/ us",
                                      ": us",
                                      "1US us",
                                      "1 uss",
                                      "99999999999999999999 us"};

    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; rows[i].kind == TIME && k < sizeof good / sizeof *good; k++)
            takes(i, good[k].text, good[k].ps);
        for (size_t k = 0; rows[i].kind == TIME && k < sizeof bad / sizeof *bad; k++)
            refuses(i, bad[k], "'%s' wants %s", rows[i].name, wanted[TIME]);
    }
}

static void test_rates(void **state)
{
    static const char *const bad[] = {"1",
                                      "1 us",
                                      "0 GB/s",
                                      "0.0009 GB/s",
                                      "1001 GB/s",
                                      "3 Gb/s",
                                      "0.000999999 GB/s",
                                      "0.0010000001 GB/s",
                                      "1000.000000001 GB/s"};

    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        if (rows[i].kind != RATE)
            continue;
        takes(i, "0.001 GB/s", 1000000);
        takes(i, "11.5 GB/s", 11500000000);
        takes(i, "1000 GB/s", 1000000000000);
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            refuses(i, bad[k], "'%s' wants %s", rows[i].name, wanted[RATE]);
    }
}

static void test_counts(void **state)
{
    char text[32];

    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct row *r = &rows[i];
        if (r->kind != COUNT)
            continue;
        for (int k = 0; k < 4; k++) { // one below the least, the least, the largest, one above
            uint64_t value = k < 2 ? r->min - (k == 0) : r->max + (k == 3);
            snprintf(text, sizeof text, "%llu", (unsigned long long)value);
            if (k == 1 || k == 2)
                takes(i, text, value);
            else if (k == 3 || r->min)
                refuses(i, text, "'%s' is from %llu to %llu", r->name, (unsigned long long)r->min,
                        (unsigned long long)r->max);
        }
        refuses(i, "1.5", "'%s' wants a whole number", r->name);
        refuses(i, "2 us", "'%s' wants a whole number", r->name);
        refuses(i, "x", "'%s' wants a whole number", r->name);
        // Before its last digit a number is at most 2^64 / 100.
        refuses(i, "1844674407370955161", "'%s' is from %llu to %llu", r->name,
                (unsigned long long)r->min, (unsigned long long)r->max);
        refuses(i, "1844674407370955170", "'%s' wants a whole number", r->name);
    }
}

static void test_lanes(void **state)
{
    (void)state;
    assert_string_equal(rows[ROWS - 1].name, "lanes");
    takes(ROWS - 1, "queue", VB_LANE_QUEUE);
    takes(ROWS - 1, "program", VB_LANE_PROGRAM);
    refuses(ROWS - 1, "none", "'lanes' wants queue or program");
    refuses(ROWS - 1, "queue us", "'lanes' wants queue or program");
    refuses(ROWS - 1, "program us", "'lanes' wants queue or program");
}

static void test_missing_and_twice(void **state)
{
    char text[128], error[VB_COST_TEXT], expected[VB_COST_TEXT];

    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        const char *value = usual_of(&rows[i]);
        refuses(i, NULL, "'%s' is missing: give %s, or begin with: like connectx5-b", rows[i].name,
                wanted[rows[i].kind]);
        refuses(i, "", "'%s' has no value", rows[i].name);
        snprintf(text, sizeof text, "%s\n%s %s", value, rows[i].name, value);
        snprintf(expected, sizeof expected, "line %u: '%s' is there twice", i + 3, rows[i].name);
        assert_null(parse(i, text, error));
        assert_string_equal(error, expected);
    }
}

// Texts that are wrong as a whole.
static void test_lines(void **state)
{
    static const struct {
        const char *text, *error;
    } lines[] = {
        {"", "the preset has no name; begin with: name mine"},
        {"like connectx5-b\n", "the preset has no name; begin with: name mine"},
        {"name\n", "line 1: 'name' has no value"},
        {"name x y\n", "line 1: 'name' takes one word"},
        {"name x\nlike a b\n", "line 2: 'like' takes the name of a preset"},
        {"name x\nlike me\n", "line 2: 'me' is no preset that comes with Verbena"},
        {"\n\nlike\n", "line 3: 'like' has no value"},
        {"name x\nlike connectx5-b\nlike connectx5-b\n",
         "line 3: 'like' comes before all parameters"},
        {"name x\npus 2\nlike connectx5-b\n", "line 3: 'like' comes before all parameters"},
        {"name x\nlike connectx5-b\npus 2\npus 2", "line 4: 'pus' is there twice"},
        {"name x\nlike connectx5-b\npuss 2", "line 3: 'puss' is no parameter; see docs/cost.md"},
        {"name x\nlike connectx5-b\nfetch 1 us 2\n",
         "line 3: write one parameter: its name, its value and its unit"},
        {"name abcdefghijklmnopqrstuvwxyz123456",
         "line 1: write one parameter: its name, its value and its unit"},
        {"name x\001", "line 1: there is a byte that is no text"},
        {"name x\x1f", "line 1: there is a byte that is no text"},
        {"name x #\v", "line 1: there is a byte that is no text"},
    };
    char error[VB_COST_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_null(vb_cost_preset_parse(lines[i].text, strlen(lines[i].text), error));
        assert_string_equal(error, lines[i].error);
    }
}

// Spaces, comments, line ends, names up to their full length, and a name after what it is like.
static void test_names(void **state)
{
    static const struct {
        const char *text, *name;
    } good[] = {
        {"name x\nlike connectx3", "x"},
        {"like connectx3\nname x", "x"},
        {"# y\n\tname  x # z\r\n \nlike\tconnectx3#\n", "x"},
        {"name x#y\nlike connectx3\n", "x"},
        {"name a\nname abcdefghijklmnopqrstuvwxyz12345\nlike connectx3\n",
         "abcdefghijklmnopqrstuvwxyz12345"},
    };
    char error[VB_COST_TEXT] = "";

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct vb_cost_preset *p = vb_cost_preset_parse(good[i].text, strlen(good[i].text), error);
        if (!p)
            fail_msg("%zu: %s", i, error);
        assert_string_equal(p->name, good[i].name);
        assert_int_equal(p->pus, 2);
        assert_int_equal(p->fetch, 350000);
        vb_cost_preset_free(p);
    }
    assert_null(vb_cost_preset_named("connectx", error));
    assert_string_equal(error, "'connectx' is no preset; there are connectx3, connectx5-a, "
                               "connectx5-b, connectx5-dual-port, connectx6, nic-memory");
    assert_null(vb_cost_preset_name(6));
    assert_null(vb_cost_preset_name(7));
    assert_string_equal(vb_cost_preset_name(5), "nic-memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_missing_and_twice),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
