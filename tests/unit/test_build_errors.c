// SPDX-License-Identifier: Apache-2.0
// Every way to build a program wrongly, one mistake each, with the error that names it; and beside
// it, where a limit is the mistake, the largest program that is right.
#include "chain/builder.h"
#include "chain/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    DATA_BYTES = 16,
    RECV_SGE = 2,
    MANY_PARTS = 1000,     // of a receive: more than any can have
    RING_BLOCKS = 1 << 14, // that a queue has at most
};

struct rig {
    struct vb_chain *c;
    struct vb_chain_queue w, k;
    struct vb_chain_region data, far;
    struct vb_chain_label later; // never made
};

static void begin(struct rig *r)
{
    r->c = vb_chain_begin("test");
    assert_non_null(r->c);
    r->w = vb_chain_queue(r->c, "W", &(struct vb_chain_queue_opts){.open = 3});
    r->k = vb_chain_queue(r->c, "K",
                          &(struct vb_chain_queue_opts){.peer = true, .recv_sge = RECV_SGE});
    r->data = vb_chain_region(r->c, "data", VB_CHAIN_OWN, DATA_BYTES, true);
    r->far = vb_chain_region(r->c, "far", VB_CHAIN_SHARED, DATA_BYTES, false);
    r->later = vb_chain_label(r->c, "later");
}

static struct vb_chain_label add(struct rig *r, struct vb_chain_op op)
{
    return vb_chain_op(r->c, r->w, &op);
}

static struct vb_chain_label add_nop(struct rig *r, const char *label)
{
    return add(r, (struct vb_chain_op){.opcode = VB_WQE_NOP, .label = vb_chain_label(r->c, label)});
}

static struct vb_chain_label add_named_read(struct rig *r, struct vb_place from, struct vb_place to,
                                            uint32_t len)
{
    return add(r, (struct vb_chain_op){.opcode = VB_WQE_READ,
                                       .label = vb_chain_label(r->c, "read"),
                                       .remote = from,
                                       .parts = 1,
                                       .part = {{to, len}}});
}

static void add_read(struct rig *r, struct vb_place from, struct vb_place to, uint32_t len)
{
    add_named_read(r, from, to, len);
}

static const struct vb_chain_queue nowhere[] = {{0}, {3}};
static const struct vb_chain_label unknown = {77};

// ---- queues, regions and initial bytes

static void add_queue(struct rig *r, const char *name, uint32_t recv_sge)
{
    vb_chain_queue(r->c, name, &(struct vb_chain_queue_opts){.recv_sge = recv_sge});
}

static void wide_receives(struct rig *r, uint32_t n)
{
    add_queue(r, "X", n);
}

static void long_name(struct rig *r, uint32_t n)
{
    add_queue(r, &"abcdefghijklmnopqrstuvwxyzabcd"[30 - n], 0);
}

static void second_queue(struct rig *r, uint32_t n)
{
    static const char *const name[] = {"V", "W", "two words"};
    add_queue(r, name[n], 0);
}

static void second_region(struct rig *r, uint32_t n)
{
    static const char *const name[] = {"new", "far", "two words"};
    vb_chain_region(r->c, name[n], VB_CHAIN_SHARED, 1, false);
}

static void second_label(struct rig *r, uint32_t n)
{
    static const char *const name[] = {"two", "one", "two words"};
    add_nop(r, "one");
    add_nop(r, name[n]);
}

static void put_at(struct rig *r, uint32_t n)
{
    const struct {
        struct vb_place at;
        uint32_t len;
    } put[] = {{vb_in(r->data, 8), 8},
               {vb_in(r->data, DATA_BYTES), 0},
               {vb_in(r->data, DATA_BYTES + 1), 0},
               {vb_in(r->data, 9), 8},
               {vb_in(r->far, 0), 4},
               {vb_at(r->later, VB_AT_CTRL), 4},
               {vb_in((struct vb_chain_region){3}, 0), 4}};

    vb_chain_put(r->c, put[n].at, "12345678", put[n].len);
}

static void put_address_at(struct rig *r, uint32_t n)
{
    const struct vb_place at[] = {vb_in(r->data, 8), vb_in(r->data, 9), vb_in(r->far, 0),
                                  vb_in((struct vb_chain_region){3}, 0)};
    vb_chain_put_address(r->c, at[n], vb_in(r->far, 0));
}

static void put_address_of(struct rig *r, uint32_t n)
{
    const struct vb_place of[] = {vb_in(r->far, DATA_BYTES), vb_in(r->far, DATA_BYTES + 1),
                                  vb_in((struct vb_chain_region){3}, 0), vb_at(r->later, VB_AT_DS)};
    vb_chain_put_address(r->c, vb_in(r->data, 0), of[n]);
}

// ---- entries

static void op_on(struct rig *r, uint32_t n)
{
    vb_chain_op(r->c, nowhere[n], &(struct vb_chain_op){.opcode = VB_WQE_NOP});
}

static void inline_op_on(struct rig *r, uint32_t n)
{
    vb_chain_op(r->c, nowhere[n],
                &(struct vb_chain_op){.opcode = VB_WQE_SEND, .data = "x", .len = 1});
}

static void recv_on(struct rig *r, uint32_t n)
{
    vb_chain_recv(r->c, nowhere[n], NULL, 0);
}

static void slot_on(struct rig *r, uint32_t n)
{
    vb_chain_slot(r->c, nowhere[n]);
}

static void guard_on(struct rig *r, uint32_t n)
{
    vb_chain_guard(r->c, nowhere[n], r->later);
}

static void restore_on(struct rig *r, uint32_t n)
{
    vb_chain_restore_on(r->c, nowhere[n], vb_at(r->later, VB_AT_DS), 1);
}

static void many_parts(struct rig *r, uint32_t n)
{
    struct vb_chain_op op = {.opcode = VB_WQE_SEND, .parts = n};

    for (uint32_t i = 0; i < VB_MAX_SGE; i++)
        op.part[i] = (struct vb_part){vb_in(r->data, i), 1};
    add(r, op);
}

static void many_bytes(struct rig *r, uint32_t n)
{
    static const uint8_t bytes[257];
    add(r, (struct vb_chain_op){.opcode = VB_WQE_SEND, .data = bytes, .len = n});
}

static void label_of(struct rig *r, uint32_t n)
{
    const struct vb_chain_label label[] = {r->later, {3}, add_nop(r, "used")};
    add(r, (struct vb_chain_op){.opcode = VB_WQE_SEND, .label = label[n], .data = "x", .len = 1});
}

static void label_here(struct rig *r, uint32_t n)
{
    const struct vb_chain_label label[] = {r->later, unknown, add_nop(r, "used")};
    vb_chain_here(r->c, label[n]);
    add(r, (struct vb_chain_op){.opcode = VB_WQE_SEND, .data = "x", .len = 1});
}

static void long_receive(struct rig *r, uint32_t n)
{
    const struct vb_part part[MANY_PARTS] = {
        {vb_in(r->data, 0), 1}, {vb_in(r->data, 1), 1}, {vb_in(r->data, 2), 1}};
    vb_chain_recv(r->c, r->k, part, n);
}

static void flags_of(struct rig *r, uint32_t n)
{
    const struct vb_chain_label label[] = {add_nop(r, "made"), r->later, {0}, {3}};
    vb_chain_add_flags(r->c, label[n], VB_CHAIN_SIGNALED);
}

// ---- what entries wait for, open, read and write

static void wait_for(struct rig *r, uint32_t n)
{
    const struct vb_chain_label label[] = {add_nop(r, "made"), r->later, {0}, unknown};
    vb_chain_wait(r->c, r->w, label[n]);
}

static void open_through(struct rig *r, uint32_t n)
{
    const struct vb_chain_label label[] = {add_nop(r, "made"), r->later, {0}, unknown};
    vb_chain_open(r->c, r->w, label[n]);
}

static void of_receive(struct rig *r, uint32_t n)
{
    const struct vb_chain_queue queue[] = {r->k, r->k, r->w, {0}, {3}};

    vb_chain_recv(r->c, r->k, NULL, 0);
    vb_chain_wait_recv(r->c, r->w, queue[n], n == 1);
}

static void open_receive(struct rig *r, uint32_t n)
{
    const struct vb_chain_queue queue[] = {r->k, r->k, r->w, {0}, {3}};

    vb_chain_recv(r->c, r->k, NULL, 0);
    vb_chain_open_recv(r->c, r->w, queue[n], n == 1);
}

static void read_from(struct rig *r, uint32_t n)
{
    struct vb_chain_label nop = add_nop(r, "nop");
    const struct {
        struct vb_place at;
        uint32_t len;
    } from[] = {{vb_in(r->far, 8), 8},
                {vb_in(r->far, DATA_BYTES), 0},
                {vb_at(nop, VB_AT_CTRL), 16},
                {vb_at_n(nop, VB_AT_CTRL, 0, 9), 7},
                {vb_in(r->far, 9), 8},
                {vb_in(r->far, DATA_BYTES + 1), 0},
                {vb_in((struct vb_chain_region){3}, 0), 1},
                {vb_at(r->later, VB_AT_CTRL), 1},
                {vb_at(unknown, VB_AT_CTRL), 1},
                {vb_at(nop, VB_AT_RADDR), 8},
                {vb_at_n(nop, VB_AT_CTRL, 0, 9), 8},
                {vb_at(nop, VB_AT_DS), 2}};

    // Back into the field that it came from: bytes of the region are only so many.
    add_read(r, from[n].at, from[n].len > 8 ? vb_at(nop, VB_AT_CTRL) : vb_in(r->data, 0),
             from[n].len);
}

static void read_into(struct rig *r, uint32_t n)
{
    const struct vb_place to[] = {vb_in(r->data, 8), vb_in(r->data, 9), vb_at(r->later, VB_AT_DS)};
    add_read(r, vb_in(r->far, 0), to[n], 8);
}

static void receive_into(struct rig *r, uint32_t n)
{
    const struct vb_place to[] = {vb_in(r->data, 8), vb_in(r->data, 9), vb_at(r->later, VB_AT_DS)};
    vb_chain_recv(r->c, r->k, &(struct vb_part){to[n], 8}, 1);
}

// Of a WRITE the bytes count that it carries: its parts together, or those that are inline, or the
// record that it calculates.
static void write_to(struct rig *r, uint32_t n)
{
    struct vb_part half = {vb_in(r->data, 0), 4}, all = {vb_in(r->data, 0), DATA_BYTES};
    const struct vb_chain_op op[] = {
        {.parts = 2, .part = {half, half}, .remote = vb_in(r->data, 8)},
        {.parts = 2, .part = {half, half}, .remote = vb_in(r->data, 9)},
        {.data = "12345678", .len = 8, .remote = vb_in(r->data, 8)},
        {.data = "12345678", .len = 8, .remote = vb_in(r->data, 9)},
        {.calc = VB_WQE_CALC_ADD, .parts = 2, .part = {all, all}, .remote = vb_in(r->data, 0)},
        {.calc = VB_WQE_CALC_ADD, .parts = 2, .part = {all, all}, .remote = vb_in(r->data, 1)}};
    struct vb_chain_op write = op[n];

    write.opcode = VB_WQE_WRITE;
    add(r, write);
}

static void data_of_nop(struct rig *r, uint32_t n)
{
    add(r, (struct vb_chain_op){.opcode = VB_WQE_NOP,
                                .label = vb_chain_label(r->c, "nop"),
                                .parts = n & 1,
                                .part = {{vb_in(r->data, 0), 1}},
                                .data = "x",
                                .len = n >> 1});
}

static void shape_of_write(struct rig *r, uint32_t n)
{
    add(r, (struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                .label = vb_chain_label(r->c, "w"),
                                .remote = vb_in(r->data, 0),
                                .ds = n == 1 ? 2 : 0,
                                .parts = 1,
                                .part = {{vb_in(r->data, 0), 1}},
                                .data = "x",
                                .len = n == 2});
}

static void long_ring(struct rig *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        add(r, (struct vb_chain_op){.opcode = VB_WQE_NOP});
}

// ---- conditions

static void signaled_sleeper(struct rig *r, uint32_t n)
{
    vb_chain_sleeper(r->c, r->w,
                     &(struct vb_chain_op){.opcode = VB_WQE_SEND,
                                           .flags = n ? VB_CHAIN_SIGNALED : VB_CHAIN_FENCE,
                                           .label = vb_chain_label(r->c, "sleeper")});
}

static void wide_operand(struct rig *r, uint32_t n)
{
    struct vb_chain_label s = vb_chain_sleeper(
        r->c, r->w,
        &(struct vb_chain_op){.opcode = VB_WQE_SEND, .label = vb_chain_label(r->c, "sleeper")});
    vb_chain_wake(r->c, r->w, s, (1ull << 48) - 1 + n, vb_in(r->data, 0));
}

static void wake_other(struct rig *r, uint32_t n)
{
    const struct vb_chain_label label[] = {
        vb_chain_sleeper(r->c, r->w, &(struct vb_chain_op){.opcode = VB_WQE_SEND}),
        add_nop(r, "awake"), r->later};
    vb_chain_wake(r->c, r->w, label[n], 1, vb_in(r->data, 0));
}

// ---- rounds

static void late_slot(struct rig *r, uint32_t n)
{
    if (n)
        add_nop(r, "early");
    for (int i = 0; i < 2; i++) {
        vb_chain_slot(r->c, r->w);
        add_nop(r, NULL);
    }
}

static void few_slots(struct rig *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        vb_chain_slot(r->c, r->w);
        add_nop(r, NULL);
    }
}

static void odd_receives(struct rig *r, uint32_t n)
{
    few_slots(r, 2);
    for (uint32_t i = 0; i < n; i++)
        vb_chain_recv(r->c, r->k, NULL, 0);
}

static void restore(struct rig *r, uint32_t n)
{
    if (n == 0)
        few_slots(r, 2);
    vb_chain_restore(r->c, vb_at(add_nop(r, "nop"), VB_AT_DS), 1);
}

static void restore_after(struct rig *r, uint32_t n)
{
    if (n == 0)
        few_slots(r, 2);
    vb_chain_restore_after(r->c, vb_at(add_nop(r, "nop"), VB_AT_DS), 1);
}

static void restored_bytes(struct rig *r, uint32_t n)
{
    few_slots(r, 2);
    struct vb_chain_label nop = add_nop(r, "nop");
    const struct {
        struct vb_place at;
        uint32_t len;
    } bytes[] = {{vb_at(nop, VB_AT_CTRL), 8},
                 {vb_at_n(nop, VB_AT_IMM, 0, 1), 3},
                 {vb_at_n(nop, VB_AT_IMM, 0, 1), 4},
                 {vb_at(nop, VB_AT_RADDR), 8},
                 {vb_in(r->data, 0), 1},
                 {vb_at(r->later, VB_AT_DS), 1}};
    vb_chain_restore(r->c, bytes[n].at, bytes[n].len);
}

static void restore_on_other(struct rig *r, uint32_t n)
{
    few_slots(r, 2);
    vb_chain_restore_on(r->c, n ? r->k : r->w, vb_at(add_nop(r, "nop"), VB_AT_DS), 1);
}

static void count_of(struct rig *r, uint32_t n)
{
    struct vb_chain_label nop = add_nop(r, "nop"), wait = vb_chain_wait(r->c, r->w, nop);
    const struct {
        struct vb_place at;
        struct vb_chain_label of;
    } count[] = {{vb_in(r->data, DATA_BYTES - 3), wait},
                 {vb_in(r->data, DATA_BYTES - 2), wait},
                 {vb_in(r->far, 0), wait},
                 {vb_in(r->data, 0), nop},
                 {vb_in(r->data, 0), r->later},
                 {vb_in(r->data, 0), {0}}};
    vb_chain_count(r->c, count[n].at, count[n].of);
}

static void manual_of(struct rig *r, uint32_t n)
{
    struct vb_chain_label nop = add_nop(r, "nop"), wait = vb_chain_wait(r->c, r->w, nop);
    const struct vb_chain_label label[] = {wait, r->later, {0}, unknown};
    vb_chain_manual(r->c, label[n]);
}

static void guard_until(struct rig *r, uint32_t n)
{
    few_slots(r, 2);
    vb_chain_guard(r->c, r->w, n ? r->later : add_nop(r, "nop"));
}

static void ahead(struct rig *r, uint32_t n)
{
    struct vb_chain_queue a =
        vb_chain_queue(r->c, "A", &(struct vb_chain_queue_opts){.ahead = true});

    for (uint32_t i = 0; i < 2; i++) {
        vb_chain_slot(r->c, a);
        vb_chain_op(r->c, a, &(struct vb_chain_op){.opcode = VB_WQE_NOP});
        if (i != n)
            vb_chain_open_rest(r->c, a);
    }
}

// ---- all of them

#define NO_QUEUE             "an entry was given to a queue that does not exist"
#define NEVER_MADE(what)     "queue 'W' waits for or opens " what ", which was never made"
#define NOT_YET(what)        "entry '" what "' was not made yet"
#define NOT_IN_FAR(len, at)  "region 'far': " len " bytes at " at ", but it has 16"
#define NOT_IN_DATA(len, at) "region 'data': " len " bytes at " at ", but it has 16"
#define NOT_OWN(name, len, at) \
    "region '" name "': " len " bytes at " at " are not within the program's own 16"
#define NOT_INTO     "initial bytes are put into regions, not into entries"
#define TOO_MUCH     "entry '(unnamed)': at most 16 parts, or 256 bytes inline"
#define NOT_RESTORED "bytes are restored in programs that run in circles: vb_chain_slot() first"

static const struct {
    void (*build)(struct rig *r, uint32_t n);
    uint32_t n;
    const char *error; // NULL: it is right
} all[] = {
    {wide_receives, 16, NULL},
    {wide_receives, 17, "queue 'X': a receive has at most 16 scatter entries, not 17"},
    {long_name, 29, NULL},
    {long_name, 30, "the name 'abcdefghijklmnopqrst…' is too long: at most 29 letters"},
    {second_queue, 0, NULL},
    {second_queue, 1, "queue 'W': not a name, or a second one of it"},
    {second_queue, 2, "queue 'two words': not a name, or a second one of it"},
    {second_region, 0, NULL},
    {second_region, 1, "region 'far': not a name, or a second one of it"},
    {second_region, 2, "region 'two words': not a name, or a second one of it"},
    {second_label, 0, NULL},
    {second_label, 1, "label 'one': not a name, or a second one of it"},
    {second_label, 2, "label 'two words': not a name, or a second one of it"},
    {put_at, 0, NULL},
    {put_at, 1, NULL},
    {put_at, 2, NOT_OWN("data", "0", "17")},
    {put_at, 3, NOT_OWN("data", "8", "9")},
    {put_at, 4, NOT_OWN("far", "4", "0")},
    {put_at, 5, NOT_INTO},
    {put_at, 6, NOT_INTO},
    {put_address_at, 0, NULL},
    {put_address_at, 1, NOT_OWN("data", "8", "9")},
    {put_address_at, 2, NOT_OWN("far", "8", "0")},
    {put_address_at, 3, NOT_INTO},
    {put_address_of, 0, NULL},
    {put_address_of, 1, NOT_IN_FAR("0", "17")},
    {put_address_of, 2, "an entry names region 3, which was never made"},
    {put_address_of, 3, "an entry names a place in 'later', which was never made"},
    {op_on, 0, NO_QUEUE},
    {op_on, 1, NO_QUEUE},
    {inline_op_on, 0, NO_QUEUE},
    {inline_op_on, 1, NO_QUEUE},
    {recv_on, 0, NO_QUEUE},
    {recv_on, 1, NO_QUEUE},
    {slot_on, 0, NO_QUEUE},
    {slot_on, 1, NO_QUEUE},
    {guard_on, 0, NO_QUEUE},
    {guard_on, 1, NO_QUEUE},
    {restore_on, 0, NO_QUEUE},
    {restore_on, 1, NO_QUEUE},
    {many_parts, 16, NULL},
    {many_parts, 17, TOO_MUCH},
    {many_bytes, 256, NULL},
    {many_bytes, 257, TOO_MUCH},
    {label_of, 0, NULL},
    {label_of, 1, "an entry was given a label that does not exist"},
    {label_of, 2, "label 'used' names two entries"},
    {label_here, 0, NULL},
    {label_here, 1, "an entry was given a label that does not exist"},
    {label_here, 2, "label 'used' names two entries"},
    {long_receive, 2, NULL},
    {long_receive, 3, "queue 'K': a receive of 3 parts, but it was made for 2"},
    {long_receive, MANY_PARTS, "queue 'K': a receive of 1000 parts, but it was made for 2"},
    {flags_of, 0, NULL},
    {flags_of, 1, NOT_YET("later")},
    {flags_of, 2, NOT_YET("(unnamed)")},
    {flags_of, 3, NOT_YET("(unnamed)")},
    {wait_for, 0, NULL},
    {wait_for, 1, NEVER_MADE("entry 'later'")},
    {wait_for, 2, NEVER_MADE("entry '(unnamed)'")},
    {wait_for, 3, NEVER_MADE("entry '(unnamed)'")},
    {open_through, 0, NULL},
    {open_through, 1, NEVER_MADE("entry 'later'")},
    {open_through, 2, NEVER_MADE("entry '(unnamed)'")},
    {open_through, 3, NEVER_MADE("entry '(unnamed)'")},
    {of_receive, 0, NULL},
    {of_receive, 1, NEVER_MADE("receive 1")},
    {of_receive, 2, NEVER_MADE("receive 0")},
    {of_receive, 3, NEVER_MADE("receive 0")},
    {of_receive, 4, NEVER_MADE("receive 0")},
    {open_receive, 0, NULL},
    {open_receive, 1, NEVER_MADE("receive 1")},
    {open_receive, 2, NEVER_MADE("receive 0")},
    {open_receive, 3, NEVER_MADE("receive 0")},
    {open_receive, 4, NEVER_MADE("receive 0")},
    {read_from, 0, NULL},
    {read_from, 1, NULL},
    {read_from, 2, NULL},
    {read_from, 3, NULL},
    {read_from, 4, NOT_IN_FAR("8", "9")},
    {read_from, 5, NOT_IN_FAR("0", "17")},
    {read_from, 6, "an entry names region 3, which was never made"},
    {read_from, 7, "an entry names a place in 'later', which was never made"},
    {read_from, 8, "an entry names a place in '(unnamed)', which was never made"},
    {read_from, 9, "entry 'nop' has no field 'raddr'"},
    {read_from, 10, "entry 'nop': 8 bytes at 9 of field 'ctrl', which has 16"},
    {read_from, 11, "entry 'nop': 2 bytes at 0 of field 'ds', which has 1"},
    {read_into, 0, NULL},
    {read_into, 1, NOT_IN_DATA("8", "9")},
    {read_into, 2, "an entry names a place in 'later', which was never made"},
    {receive_into, 0, NULL},
    {receive_into, 1, NOT_IN_DATA("8", "9")},
    {receive_into, 2, "an entry names a place in 'later', which was never made"},
    {write_to, 0, NULL},
    {write_to, 1, NOT_IN_DATA("8", "9")},
    {write_to, 2, NULL},
    {write_to, 3, NOT_IN_DATA("8", "9")},
    {write_to, 4, NULL},
    {write_to, 5, NOT_IN_DATA("16", "1")},
    {data_of_nop, 0, NULL},
    {data_of_nop, 1, "entry 'nop': a NOP has no parts and no bytes"},
    {data_of_nop, 2, "entry 'nop': a NOP has no parts and no bytes"},
    {shape_of_write, 0, NULL},
    {shape_of_write, 1, "entry 'w': only a NOP is given a size"},
    {shape_of_write, 2, "entry 'w': it has parts or bytes, not both"},
    {long_ring, RING_BLOCKS, NULL},
    {long_ring, RING_BLOCKS + 1, "queue 'W' needs 16385 blocks, but a ring has at most 16384"},
    {signaled_sleeper, 0, NULL},
    {signaled_sleeper, 1, "entry 'sleeper' sleeps, and a NOP would complete, too"},
    {wide_operand, 0, NULL},
    {wide_operand, 1, "entry 'sleeper': an operand has 48 bits"},
    {wake_other, 0, NULL},
    {wake_other, 1, "entry 'awake' is compared, but it does not sleep"},
    {wake_other, 2, "entry 'later' is compared, but it does not sleep"},
    {late_slot, 0, NULL},
    {late_slot, 1, "queue 'W': its first slot starts before its first entry"},
    {few_slots, 3, NULL},
    {few_slots, 2, NULL},
    {few_slots, 1, "queue 'W': a program that runs in circles needs two slots"},
    {odd_receives, 1, NULL},
    {odd_receives, 2, NULL},
    {odd_receives, 3, "queue 'K': 3 receives run in a circle; make them a power of two"},
    {odd_receives, 4, NULL},
    {restore, 0, NULL},
    {restore, 1, NOT_RESTORED},
    {restore_after, 0, NULL},
    {restore_after, 1, NOT_RESTORED},
    {restored_bytes, 0, NULL},
    {restored_bytes, 1, NULL},
    {restored_bytes, 2, "entry 'nop': 4 bytes of 'imm' cannot be restored"},
    {restored_bytes, 3, "entry 'nop': 8 bytes of 'raddr' cannot be restored"},
    {restored_bytes, 4, "what is restored is a field of an entry"},
    {restored_bytes, 5, "what is restored is a field of an entry"},
    {restore_on_other, 0, NULL},
    {restore_on_other, 1, "queue 'K' does not run in circles"},
    {count_of, 0, NULL},
    {count_of, 1, NOT_OWN("data", "3", "14")},
    {count_of, 2, NOT_OWN("far", "3", "0")},
    {count_of, 3, "entry 'nop' has no index to count"},
    {count_of, 4, NOT_YET("later")},
    {count_of, 5, NOT_YET("(unnamed)")},
    {manual_of, 0, NULL},
    {manual_of, 1, NOT_YET("later")},
    {manual_of, 2, NOT_YET("(unnamed)")},
    {manual_of, 3, NOT_YET("(unnamed)")},
    {guard_until, 0, NULL},
    {guard_until, 1, NEVER_MADE("entry 'later'")},
    {ahead, 2, NULL},
    {ahead, 0, "queue 'A' goes ahead, but slot 1 does not open its rest"},
    {ahead, 1, "queue 'A' goes ahead, but slot 2 does not open its rest"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char error[VB_IMAGE_TEXT] = "";
        struct rig r;
        begin(&r);
        all[i].build(&r, all[i].n);
        struct vb_image *image = vb_chain_finish(r.c, error);
        if ((image == NULL) != (all[i].error != NULL))
            fail_msg("case %u: %s", i, image ? all[i].error : error);
        assert_string_equal(error, all[i].error ? all[i].error : "");
        vb_image_destroy(image);
    }
}

// After a mistake nothing is made, and the first one is what is told.
static void test_first_mistake(void **state)
{
    char error[VB_IMAGE_TEXT] = "";
    struct rig r;

    (void)state;
    begin(&r);
    struct vb_chain_label nop = add_nop(&r, "nop");
    add_queue(&r, "X", 17);
    assert_int_equal(vb_chain_queue(r.c, "Y", &(struct vb_chain_queue_opts){.recv_sge = 99}).id, 0);
    assert_int_equal(vb_chain_region(r.c, "more", VB_CHAIN_OWN, 8, true).id, 0);
    assert_int_equal(vb_chain_label(r.c, "more").id, 0);
    assert_int_equal(add_nop(&r, NULL).id, 0);
    assert_int_equal(vb_chain_op(r.c, r.w, &(struct vb_chain_op){.parts = 99}).id, 0);
    assert_int_equal(vb_chain_wait(r.c, r.w, nop).id, 0);
    assert_int_equal(vb_chain_wait_recv(r.c, r.w, r.k, 0).id, 0);
    assert_int_equal(vb_chain_open(r.c, r.w, nop).id, 0);
    assert_int_equal(vb_chain_open_recv(r.c, r.w, r.k, 0).id, 0);
    assert_int_equal(vb_chain_open_rest(r.c, r.w).id, 0);
    vb_chain_recv(r.c, r.k, NULL, 0);
    vb_chain_recv(r.c, r.k, NULL, 99);
    vb_chain_slot(r.c, r.k);
    vb_chain_guard(r.c, r.w, nop);
    vb_chain_restore(r.c, vb_at(nop, VB_AT_DS), 1);
    vb_chain_restore_after(r.c, vb_at(nop, VB_AT_DS), 1);
    vb_chain_restore_on(r.c, r.w, vb_at(nop, VB_AT_DS), 1);
    vb_chain_put(r.c, vb_in(r.data, 99), "x", 1);
    vb_chain_put_address(r.c, vb_in(r.data, 0), vb_in(r.far, 0));
    vb_chain_add_flags(r.c, r.later, VB_CHAIN_FENCE);
    vb_chain_manual(r.c, r.later);
    vb_chain_count(r.c, vb_in(r.data, 0), nop);
    assert_int_equal(vb_chain_sleeper(r.c, r.w, &(struct vb_chain_op){0}).id, 0);
    assert_int_equal(vb_chain_wake(r.c, r.w, nop, 1ull << 60, vb_in(r.data, 0)).id, 0);
    assert_int_equal(
        vb_chain_if(r.c, r.w, &(struct vb_chain_op){0}, 1ull << 60, vb_in(r.data, 0)).id, 0);
    // Nothing of all that is there.
    assert_int_equal(r.c->queues, 2);
    assert_int_equal(r.c->regions, 2);
    assert_int_equal(r.c->labels, 2);
    assert_int_equal(r.c->queue[0].items, 1);
    assert_int_equal(r.c->queue[1].recvs, 0);
    assert_int_equal(r.c->queue[0].guards + r.c->queue[0].restores + r.c->queue[1].slots, 0);
    assert_int_equal(r.c->addresses + r.c->counts + r.c->manuals, 0);
    assert_null(vb_chain_finish(r.c, error));
    assert_string_equal(error, "queue 'X': a receive has at most 16 scatter entries, not 17");
}

// The longest name of a queue, and what else is named after it: cut off where names end.
static void test_longest_names(void **state)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzabc";
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    for (int loops = 0; loops < 2; loops++) {
        struct vb_chain *c = vb_chain_begin("names");
        struct vb_flow *f = vb_flow_begin(c, name);
        struct vb_var a = vb_flow_var(f, 1);
        if (loops)
            vb_flow_loop(f);
        vb_flow_set(f, a, 2);
        if (loops)
            vb_flow_end(f);
        vb_flow_end_program(f);
        struct vb_image *image = vb_chain_finish(c, error);
        if (!image)
            fail_msg("%s", error);
        assert_string_equal(image->queue[0].name, name);
        assert_string_equal(image->region[0].name, "abcdefghijklmnopqrstuvwxyzabc_v");
        if (loops)
            assert_string_equal(image->region[1].name, "abcdefghijklmnopqrstuvwxyzabc_c");
        assert_int_equal(image->regions, 1 + loops);
        vb_image_destroy(image);
    }
}

static void test_abandoned_programs(void **state)
{
    struct rig r;

    (void)state;
    vb_chain_abandon(NULL);
    begin(&r);
    few_slots(&r, 2);
    add(&r, (struct vb_chain_op){.opcode = VB_WQE_SEND, .data = "x", .len = 1});
    vb_chain_recv(r.c, r.k, NULL, 0);
    vb_chain_restore(r.c, vb_at(add_nop(&r, "nop"), VB_AT_DS), 1);
    vb_chain_guard(r.c, r.w, r.later);
    vb_chain_put_address(r.c, vb_in(r.data, 0), vb_in(r.far, 0));
    vb_chain_count(r.c, vb_in(r.data, 8), vb_chain_wait(r.c, r.w, r.later));
    vb_chain_abandon(r.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_first_mistake),
        cmocka_unit_test(test_longest_names),
        cmocka_unit_test(test_abandoned_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
