// SPDX-License-Identifier: Apache-2.0
// The machine that runs programs without ports, part by part: addresses, rights, clients, the wire,
// whose turn it is, and time.
#include "base/bytes.h"
#include "chain/image.h"
#include "chain/machine.h"
#include "verbena/chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    FIRST = 1 << 24, // the first address of the program's memory
    APART = 1 << 16, // memories are so far apart, and begin at multiples of it
    STEP_NS = 50,
    MESSAGE = 256, // bytes that a client sends or is sent at most
    STEPS_MAX = 1000000,
    REGION_OWN = 0,
    REGION_FAR = 1,
    REGION_FIXED = 2,
    REGION_PEER = 3,
    QUEUE_W = 0,
    QUEUE_K = 1,
};

struct rig {
    struct vb_chain *c;
    struct vb_chain_queue w, k;
    struct vb_chain_region own, far, fixed, peer;
    struct vb_image *image;
    struct vb_machine *m;
};

// W works on the server's memory, K is the client's; both run from the start.
static void begin(struct rig *r, uint64_t far_bytes)
{
    const struct vb_chain_queue_opts at_once = {.unmanaged = true},
                                     client = {.unmanaged = true, .peer = true, .recv_sge = 1};

    memset(r, 0, sizeof *r);
    r->c = vb_chain_begin("test");
    r->own = vb_chain_region(r->c, "own", VB_CHAIN_OWN, 100, true);
    r->far = vb_chain_region(r->c, "far", VB_CHAIN_SHARED, far_bytes, true);
    r->fixed = vb_chain_region(r->c, "fixed", VB_CHAIN_OWN, 16, false);
    r->peer = vb_chain_region(r->c, "peer", VB_CHAIN_PEER, far_bytes, true);
    r->w = vb_chain_queue(r->c, "W", &at_once);
    r->k = vb_chain_queue(r->c, "K", &client);
}

static void open_with(struct rig *r, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";

    r->image = vb_chain_finish(r->c, error);
    if (!r->image)
        fail_msg("%s", error);
    r->m = vb_machine_create(r->image, opts, error);
    if (!r->m)
        fail_msg("%s", error);
}

static void close_rig(struct rig *r)
{
    vb_machine_destroy(r->m);
    vb_image_destroy(r->image);
}

static void add(struct rig *r, struct vb_chain_queue q, enum vb_wqe_opcode opcode,
                struct vb_place remote, struct vb_place near, uint32_t len)
{
    vb_chain_op(r->c, q,
                &(struct vb_chain_op){.opcode = opcode,
                                      .flags = VB_CHAIN_SIGNALED,
                                      .remote = remote,
                                      .parts = 1,
                                      .part = {{near, len}}});
}

static void add_send(struct rig *r, const void *bytes, uint32_t len)
{
    vb_chain_op(r->c, r->k,
                &(struct vb_chain_op){.opcode = VB_WQE_SEND, .data = bytes, .len = len});
}

// ---- where things are

static void test_addresses(void **state)
{
    struct rig r;

    (void)state;
    begin(&r, APART + 1);
    add(&r, r.w, VB_WQE_READ, vb_in(r.own, 8), vb_in(r.own, 16), 8);
    add(&r, r.k, VB_WQE_READ, vb_in(r.peer, 8), vb_in(r.own, 16), 8);
    struct vb_chain_label own = vb_chain_label(r.c, "own");
    for (int i = 0; i < 2; i++) // its own first entry, at W's ring and at K's
        vb_chain_op(r.c, r.w,
                    &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                          .label = i ? (struct vb_chain_label){0} : own,
                                          .remote = vb_at(own, VB_AT_CTRL),
                                          .parts = 1,
                                          .part = {{vb_in(r.own, 32), 8}}});
    vb_chain_recv(r.c, r.k, &(struct vb_part){vb_in(r.own, 40), 8}, 1);
    open_with(&r, &(struct vb_machine_opts){.shared_bytes = 3 * APART});
    // Each memory's bytes, rounded up, and one step more.
    assert_int_equal(vb_machine_bytes(r.m, REGION_OWN), 100);
    assert_int_equal(vb_machine_bytes(r.m, REGION_FAR), 3 * APART);
    assert_int_equal(vb_machine_bytes(r.m, REGION_PEER), APART + 1);
    assert_int_equal(vb_machine_address(r.m, REGION_OWN), FIRST);
    assert_int_equal(vb_machine_address(r.m, REGION_FAR), FIRST + 2 * APART);
    assert_int_equal(vb_machine_address(r.m, REGION_FIXED), FIRST + 6 * APART);
    assert_int_equal(vb_machine_address(r.m, REGION_PEER), FIRST + 8 * APART);
    uint64_t ring = FIRST + 11 * APART;
    const uint8_t *w = vb_machine_send_ring(r.m, QUEUE_W);
    assert_int_equal(vb_get_be64(w + 16), FIRST + 8);
    assert_int_equal(vb_get_be64(w + 40), FIRST + 16);
    assert_int_equal(vb_get_be64(w + 64 + 16), ring + 64);
    assert_int_equal(vb_get_be64(w + 128 + 16), ring + 64);
    assert_int_equal(vb_get_be32(vb_machine_recv_ring(r.m, QUEUE_K)), 8);
    assert_int_equal(vb_get_be64(vb_machine_recv_ring(r.m, QUEUE_K) + 8), FIRST + 40);
    for (uint32_t i = 0; i < r.image->queues; i++)
        assert_int_equal(vb_machine_queue(r.m, vb_machine_qpn(r.m, i)), i);
    assert_int_not_equal(vb_machine_qpn(r.m, 0), vb_machine_qpn(r.m, 1));
    assert_int_equal(vb_machine_queue(r.m, 0xfffff), -1);
    assert_int_equal(vb_machine_cq(r.m, 0xfffff), -1);
    close_rig(&r);
    begin(&r, APART + 1); // a shared region has no less than the program asks for
    open_with(&r, &(struct vb_machine_opts){.shared_bytes = APART});
    assert_int_equal(vb_machine_bytes(r.m, REGION_FAR), APART + 1);
    assert_int_equal(vb_machine_address(r.m, REGION_FIXED), FIRST + 5 * APART);
    close_rig(&r);
}

// Rings are apart, too: an entry of each names its own ring.
static void test_ring_addresses(void **state)
{
    struct vb_chain_queue q[3];
    struct vb_chain *c = vb_chain_begin("rings");
    struct vb_chain_region own = vb_chain_region(c, "own", VB_CHAIN_OWN, 8, true);
    char error[VB_IMAGE_TEXT] = "", name[] = "A";

    (void)state;
    for (uint32_t i = 0; i < 3; i++, name[0]++) {
        q[i] = vb_chain_queue(c, name, &(struct vb_chain_queue_opts){.recv_sge = i});
        struct vb_chain_label label = vb_chain_label(c, name);
        vb_chain_op(c, q[i],
                    &(struct vb_chain_op){.opcode = VB_WQE_READ,
                                          .label = label,
                                          .remote = vb_at(label, VB_AT_CTRL),
                                          .parts = 1,
                                          .part = {{vb_in(own, 0), 8}}});
        if (i)
            vb_chain_recv(c, q[i], NULL, 0);
    }
    struct vb_image *image = vb_chain_finish(c, error);
    struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){0}, error);
    assert_non_null(m);
    // Behind the region, a send ring and a receive ring for each; one without bytes takes a step.
    assert_int_equal(vb_get_be64(vb_machine_send_ring(m, 0) + 16), FIRST + 2 * APART);
    assert_int_equal(vb_get_be64(vb_machine_send_ring(m, 1) + 16), FIRST + 5 * APART);
    assert_int_equal(vb_get_be64(vb_machine_send_ring(m, 2) + 16), FIRST + 9 * APART);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

static void test_start(void **state)
{
    static const struct {
        uint64_t start;
        bool right;
    } all[] = {{0, true}, {8, true}, {16, true}, {4, false}, {2, false}, {1ull << 32, true}};
    char error[VB_IMAGE_TEXT];

    (void)state;
    for (int recvs = 0; recvs < 2; recvs++) { // eight receives and four blocks, or the reverse
        struct rig r;
        begin(&r, 8);
        for (uint32_t i = 0; i < (recvs ? 8 : 2); i++)
            vb_chain_recv(r.c, r.k, NULL, 0);
        for (uint32_t i = 0; i < (recvs ? 2 : 8); i++)
            vb_chain_op(r.c, r.w, &(struct vb_chain_op){.opcode = VB_WQE_NOP});
        struct vb_image *image = vb_chain_finish(r.c, error);
        for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            struct vb_machine *m =
                vb_machine_create(image, &(struct vb_machine_opts){.start = all[i].start}, error);
            assert_int_equal(m != NULL, all[i].right);
            if (!m)
                assert_string_equal(error, "'test' must start its counters at a multiple of every "
                                           "ring's size");
            vb_machine_destroy(m);
        }
        vb_image_destroy(image);
    }
    vb_machine_destroy(NULL);
}

// ---- rights

static void test_rights(void **state)
{
    struct rig r;
    begin(&r, 16);
    const struct {
        bool client;
        enum vb_wqe_opcode opcode;
        struct vb_place remote, near;
        uint8_t fault;
    } all[] = {
        {false, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.own, 8), 0},
        {false, VB_WQE_WRITE, vb_in(r.own, 0), vb_in(r.fixed, 8), 0},
        {false, VB_WQE_ATOMIC_FA, vb_in(r.own, 0), vb_in(r.own, 8), 0},
        {false, VB_WQE_ATOMIC_FA, vb_in(r.far, 0), vb_in(r.far, 8), 0},
        {false, VB_WQE_READ, vb_in(r.fixed, 0), vb_in(r.own, 8), 0},
        {false, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.fixed, 8), VB_SYN_LOCAL_PROT},
        {false, VB_WQE_WRITE, vb_in(r.fixed, 0), vb_in(r.own, 8), VB_SYN_REMOTE_ACCESS},
        {false, VB_WQE_ATOMIC_FA, vb_in(r.fixed, 0), vb_in(r.own, 8), VB_SYN_REMOTE_ACCESS},
        {true, VB_WQE_READ, vb_in(r.peer, 0), vb_in(r.own, 8), 0},
        {true, VB_WQE_WRITE, vb_in(r.peer, 0), vb_in(r.own, 8), 0},
        {true, VB_WQE_ATOMIC_FA, vb_in(r.peer, 0), vb_in(r.own, 8), VB_SYN_REMOTE_ACCESS},
    };

    (void)state;
    vb_chain_abandon(r.c);
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint32_t queue = all[i].client ? QUEUE_K : QUEUE_W;
        begin(&r, 16);
        add(&r, all[i].client ? r.k : r.w, all[i].opcode, all[i].remote, all[i].near, 8);
        open_with(&r, &(struct vb_machine_opts){0});
        assert_true(vb_machine_run(r.m, STEPS_MAX) < STEPS_MAX);
        if (vb_machine_fault(r.m, queue) != all[i].fault)
            fail_msg("case %u: fault %u", i, vb_machine_fault(r.m, queue));
        assert_int_equal(vb_machine_fault(r.m, QUEUE_W + QUEUE_K - queue), 0);
        close_rig(&r);
    }
}

// Entries before a fault are executed, those behind it are not; the first fault is told.
static void test_faults(void **state)
{
    struct rig r;

    (void)state;
    begin(&r, 16);
    for (int i = 0; i < 3; i++)
        add(&r, r.w, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.own, 8), 8);
    add(&r, r.w, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.fixed, 8), 8);
    add(&r, r.w, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.own, 8), 8);
    open_with(&r, &(struct vb_machine_opts){.fetch_depth = 1});
    vb_machine_run(r.m, STEPS_MAX);
    assert_int_equal(vb_machine_fault(r.m, QUEUE_W), VB_SYN_LOCAL_PROT);
    assert_in_range(vb_machine_executed(r.m, QUEUE_W), 3, 4);
    assert_int_equal(vb_machine_executed(r.m, QUEUE_K), 0);
    close_rig(&r);
}

// A region of the client's needs a client's device, though no queue leads there.
static void test_client_without_queue(void **state)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_chain *c = vb_chain_begin("alone");

    (void)state;
    vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){0});
    vb_chain_region(c, "peer", VB_CHAIN_PEER, 64, true);
    vb_chain_region(c, "own", VB_CHAIN_OWN, 0, true);
    struct vb_image *image = vb_chain_finish(c, error);
    struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){0}, error);
    assert_non_null(m);
    assert_non_null(vb_machine_data(m, 0));
    assert_int_equal(vb_machine_run(m, STEPS_MAX), 0);
    vb_machine_poll(m);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

// ---- requests and replies

static void test_messages(void **state)
{
    static const uint32_t len[] = {0, 1, MESSAGE};
    uint8_t bytes[MESSAGE + 1];
    struct vb_machine_reply reply;
    struct rig r;

    (void)state;
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    begin(&r, 1024);
    for (uint32_t i = 0; i < 3; i++)
        vb_chain_recv(r.c, r.k, &(struct vb_part){vb_in(r.far, 300 * i), MESSAGE}, 1);
    add_send(&r, bytes, 5);
    add_send(&r, bytes, MESSAGE);
    vb_chain_op(r.c, r.k,
                &(struct vb_chain_op){
                    .opcode = VB_WQE_SEND_IMM, .imm = 0x01020304, .data = bytes + 3, .len = 4});
    vb_chain_op(r.c, r.k,
                &(struct vb_chain_op){.opcode = VB_WQE_WRITE_IMM,
                                      .imm = 0x05060708,
                                      .remote = vb_in(r.peer, 2),
                                      .data = bytes,
                                      .len = 9});
    open_with(&r, &(struct vb_machine_opts){0});
    assert_false(vb_machine_take(r.m, QUEUE_K, &reply));
    assert_false(vb_machine_take(r.m, QUEUE_W, &reply));
    assert_int_equal(vb_machine_send(r.m, QUEUE_W, bytes, 1), -1);
    assert_int_equal(vb_machine_send(r.m, QUEUE_K, bytes, MESSAGE + 1), -1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(vb_machine_send(r.m, QUEUE_K, bytes + (i == 1), len[i]), 0);
    assert_true(vb_machine_run(r.m, STEPS_MAX) < STEPS_MAX);
    const uint8_t *far = vb_machine_data(r.m, REGION_FAR);
    assert_int_equal(far[0], 0);
    assert_memory_equal(far + 300, "\10\0", 2);
    assert_memory_equal(far + 600, bytes, MESSAGE);
    const struct vb_machine_reply expected[] = {
        {.len = 5}, {.len = MESSAGE}, {true, 0x01020304, 4, {0}}, {true, 0x05060708, 9, {0}}};
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(vb_machine_take(r.m, QUEUE_K, &reply));
        assert_int_equal(reply.with_imm, expected[i].with_imm);
        if (reply.with_imm)
            assert_int_equal(reply.imm, expected[i].imm);
        assert_int_equal(reply.len, expected[i].len);
        if (i < 3)
            assert_memory_equal(reply.bytes, bytes + (i == 2 ? 3 : 0), reply.len);
    }
    assert_memory_equal(vb_machine_data(r.m, REGION_PEER) + 2, bytes, 9);
    assert_false(vb_machine_take(r.m, QUEUE_K, &reply));
    close_rig(&r);
}

// More frames than the wire holds, all under way before the client looks; stepped and polled.
static void test_long_wire(void **state)
{
    enum {
        FRAME = 4096,
        FRAMES = 1500,
        BYTES = FRAME * FRAMES
    };

    (void)state;
    for (int polled = 0; polled < 2; polled++) {
        struct rig r;
        begin(&r, BYTES);
        add(&r, r.k, VB_WQE_WRITE, vb_in(r.peer, 0), vb_in(r.far, 0), BYTES);
        open_with(&r, &(struct vb_machine_opts){.last = UINT32_MAX});
        uint8_t *far = vb_machine_data(r.m, REGION_FAR);
        for (uint32_t i = 0; i < BYTES; i++)
            far[i] = (uint8_t)(i + i / FRAME);
        for (int i = 0; polled && i < 20; i++)
            vb_machine_poll(r.m);
        assert_true(vb_machine_run(r.m, STEPS_MAX) < (polled ? 1 : STEPS_MAX));
        assert_int_equal(vb_machine_fault(r.m, QUEUE_K), 0);
        assert_memory_equal(vb_machine_data(r.m, REGION_PEER), far, BYTES);
        close_rig(&r);
    }
}

// ---- turns and time

enum {
    SENDS = 4
};

// Who made each step of a program that sends to its client: counts frames that came in before the
// last one went out.
static uint32_t early_frames(uint32_t last, uint64_t seed)
{
    struct vb_step step;
    uint32_t unit, out = 0, early = 0;
    uint64_t steps = 0;
    struct rig r;

    begin(&r, 16);
    for (int i = 0; i < SENDS; i++)
        add_send(&r, "x", 1);
    open_with(&r, &(struct vb_machine_opts){.last = last, .seed = seed});
    while (vb_machine_step(r.m, &step, &unit)) {
        assert_true(unit == 0 || unit == UINT32_MAX);
        if (++steps <= 10) // before the first timer
            assert_int_equal(vb_machine_now_ns(r.m), steps * STEP_NS);
        out += unit == 0 && step.kind == VB_STEP_FRAME_OUT;
        early += unit != 0 && step.kind == VB_STEP_FRAME_IN && out < SENDS;
    }
    assert_int_equal(vb_machine_executed(r.m, QUEUE_K), SENDS);
    close_rig(&r);
    return early;
}

static void test_turns(void **state)
{
    uint32_t early = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_int_equal(early_frames(UINT32_MAX, seed), 0);
        assert_int_equal(early_frames(1, seed), SENDS - 1);
        early += early_frames(0, seed);
    }
    assert_in_range(early, 1, 20 * (SENDS - 1) - 1); // by lot: neither always nor never
}

static void test_units(void **state)
{
    static const struct {
        uint32_t asked, used;
    } all[] = {{0, 1}, {1, 1}, {2, 2}, {16, 16}, {32, 1}};

    (void)state;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint32_t seen[16] = {0}, units = 0, unit;
        for (uint64_t seed = 1; seed <= 150; seed++) {
            struct vb_step step;
            struct rig r;
            begin(&r, 16);
            add(&r, r.w, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.own, 8), 8);
            open_with(&r, &(struct vb_machine_opts){.units = all[i].asked, .seed = seed});
            while (vb_machine_step(r.m, &step, &unit))
                if (unit != UINT32_MAX)
                    seen[unit]++;
            assert_int_equal(vb_machine_executed(r.m, QUEUE_W), 1);
            close_rig(&r);
        }
        for (uint32_t u = 0; u < 16; u++)
            units += seen[u] > 0;
        assert_int_equal(units, all[i].used);
    }
}

// Time passes to the next timer when nobody has anything to do.
static void test_rate(void **state)
{
    struct rig r;

    (void)state;
    begin(&r, 16);
    for (int i = 0; i < 5; i++)
        add(&r, r.w, VB_WQE_READ, vb_in(r.own, 0), vb_in(r.own, 8), 8);
    open_with(&r, &(struct vb_machine_opts){.rate = 1000, .burst = 2});
    assert_int_equal(vb_machine_run(r.m, 7), 7);
    assert_true(vb_machine_run(r.m, STEPS_MAX) < STEPS_MAX);
    assert_int_equal(vb_machine_executed(r.m, QUEUE_W), 5);
    assert_in_range(vb_machine_now_ns(r.m), 3000000, 3100000); // three entries wait 1 ms each
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_ring_addresses),
        cmocka_unit_test(test_start),     cmocka_unit_test(test_rights),
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_client_without_queue),
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_long_wire),
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_units),
        cmocka_unit_test(test_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
