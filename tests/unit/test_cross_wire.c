// SPDX-License-Identifier: Apache-2.0
// Cross-channel work on queues with a client at the other end: CALC into its memory, WAIT and
// SEND_EN between packets, and limits that each request renews.
#include "base/bytes.h"
#include "chain/machine.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    RUN_MAX = 1000000,
    STEPS_MAX = 20000, // of one request
};

static struct vb_image *finish(struct vb_chain *c)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_chain_finish(c, error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

static struct vb_machine *load(const struct vb_image *image, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine *m = vb_machine_create(image, opts, error);
    if (!m)
        fail_msg("%s", error);
    return m;
}

static uint32_t region(const struct vb_image *image, const char *name)
{
    int i = vb_image_find_region(image, name);
    assert_true(i >= 0);
    return (uint32_t)i;
}

static void put_record(struct vb_chain *c, struct vb_chain_region to, uint64_t at, uint64_t value,
                       uint64_t tag)
{
    uint8_t bytes[16];
    vb_put_be64(bytes, value);
    vb_put_be64(bytes + 8, tag);
    vb_chain_put(c, vb_in(to, at), bytes, sizeof bytes);
}

// ---- CALC

static struct vb_chain_op calc_op(enum vb_wqe_opcode opcode, enum vb_wqe_calc calc,
                                  struct vb_chain_region from)
{
    return (struct vb_chain_op){
        .opcode = opcode,
        .calc = (uint8_t)calc,
        .parts = 3,
        .part = {{vb_in(from, 0), 16}, {vb_in(from, 16), 16}, {vb_in(from, 32), 16}}};
}

static void test_calc_into_the_clients_memory(void **state)
{
    static const struct {
        enum vb_wqe_calc op;
        uint64_t value, tag;
    } want[] = {{VB_WQE_CALC_ADD, 0x8000000000000017, 1},
                {VB_WQE_CALC_MAX, 0x8000000000000005, 2},
                {VB_WQE_CALC_MIN, 3, 3},
                {VB_WQE_CALC_XOR, 0x8000000000000009, 1},
                {VB_WQE_CALC_FLOAT_ADD, 0x400a000000000000, 4}}; // 3.25
    struct vb_chain *c = vb_chain_begin("calc");
    struct vb_chain_queue k =
        vb_chain_queue(c, "K", &(struct vb_chain_queue_opts){.peer = true, .unmanaged = true});
    struct vb_chain_region own = vb_chain_region(c, "own", VB_CHAIN_OWN, 48, false);
    struct vb_chain_region doubles = vb_chain_region(c, "doubles", VB_CHAIN_OWN, 48, false);
    struct vb_chain_region far = vb_chain_region(c, "far", VB_CHAIN_PEER, 80, true);
    struct vb_machine_reply reply;

    (void)state;
    put_record(c, doubles, 0, 0x3ff8000000000000, 4);  // 1.5
    put_record(c, doubles, 16, 0x4002000000000000, 5); // 2.25
    put_record(c, doubles, 32, 0xbfe0000000000000, 6); // -0.5
    put_record(c, own, 0, 15, 1);
    put_record(c, own, 16, 0x8000000000000005, 2);
    put_record(c, own, 32, 3, 3);
    for (uint32_t i = 0; i < 5; i++) {
        struct vb_chain_op op =
            calc_op(VB_WQE_WRITE, want[i].op, want[i].op == VB_WQE_CALC_FLOAT_ADD ? doubles : own);
        op.remote = vb_in(far, i * 16);
        vb_chain_op(c, k, &op);
    }
    struct vb_chain_op send = calc_op(VB_WQE_SEND, VB_WQE_CALC_ADD, own);
    vb_chain_op(c, k, &send);
    struct vb_image *image = finish(c);
    struct vb_machine *m = load(image, &(struct vb_machine_opts){.seed = 1});
    vb_machine_run(m, RUN_MAX);
    assert_int_equal(vb_machine_fault(m, 0), 0);
    const uint8_t *got = vb_machine_data(m, region(image, "far"));
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(vb_get_be64(got + i * 16), want[i].value);
        assert_int_equal(vb_get_be64(got + i * 16 + 8), want[i].tag);
    }
    assert_true(vb_machine_take(m, 0, &reply));
    assert_int_equal(reply.len, 16);
    assert_int_equal(vb_get_be64(reply.bytes), want[0].value);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

// An operand that does not lie as records do is refused.
static void test_calc_wants_records(void **state)
{
    (void)state;
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        struct vb_chain *c = vb_chain_begin("calc");
        struct vb_chain_queue k =
            vb_chain_queue(c, "K", &(struct vb_chain_queue_opts){.peer = true, .unmanaged = true});
        struct vb_chain_region own = vb_chain_region(c, "own", VB_CHAIN_OWN, 64, false);
        struct vb_chain_op op = calc_op(VB_WQE_SEND, VB_WQE_CALC_ADD, own);
        if (wrong == 0)
            op.part[1].at.offset += 8;
        else
            op.part[1].len = 8;
        vb_chain_op(c, k, &op);
        struct vb_image *image = finish(c);
        struct vb_machine *m = load(image, &(struct vb_machine_opts){.seed = 1});
        vb_machine_run(m, RUN_MAX);
        assert_int_equal(vb_machine_fault(m, 0), VB_SYN_LOCAL_QP_OP);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

// ---- WAIT and SEND_EN between packets

// K waits for W, which reads what K has sent into the client's memory only by way of K's
// completion: each value is made from the one before.
static void test_queues_take_turns(void **state)
{
    enum {
        TURNS = 6
    };
    struct vb_chain *c = vb_chain_begin("turns");
    struct vb_chain_queue w =
        vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){.unmanaged = true});
    struct vb_chain_queue k =
        vb_chain_queue(c, "K", &(struct vb_chain_queue_opts){.peer = true, .unmanaged = true});
    struct vb_chain_region own = vb_chain_region(c, "own", VB_CHAIN_OWN, 32, true);
    struct vb_chain_region far = vb_chain_region(c, "far", VB_CHAIN_PEER, TURNS * 8, true);

    (void)state;
    for (uint32_t i = 0; i < TURNS; i++) {
        struct vb_chain_label add =
            vb_chain_op(c, w,
                        &(struct vb_chain_op){.opcode = VB_WQE_ATOMIC_FA,
                                              .remote = vb_in(own, 0),
                                              .swap_add = 1,
                                              .parts = 1,
                                              .part = {{vb_in(own, 8), 8}}});
        vb_chain_wait(c, k, add);
        struct vb_chain_label sent =
            vb_chain_op(c, k,
                        &(struct vb_chain_op){.opcode = VB_WQE_WRITE,
                                              .remote = vb_in(far, i * 8),
                                              .parts = 1,
                                              .part = {{vb_in(own, 0), 8}}});
        vb_chain_wait(c, w, sent);
    }
    struct vb_image *image = finish(c);
    for (uint32_t units = 1; units <= 2; units++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct vb_machine *m =
                load(image, &(struct vb_machine_opts){.seed = seed, .units = units});
            vb_machine_run(m, RUN_MAX);
            const uint8_t *got = vb_machine_data(m, region(image, "far"));
            for (uint32_t i = 0; i < TURNS; i++) {
                uint64_t value;
                memcpy(&value, got + i * 8, 8);
                assert_int_equal(value, i + 1);
            }
            vb_machine_destroy(m);
        }
    vb_image_destroy(image);
}

// ---- limits, on the hash get

static uint32_t answered(const struct vb_machine_opts *opts, uint32_t requests, uint64_t *time_ns,
                         uint8_t *fault)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_offload_hash_get(&(struct vb_hash_opts){.slots = 2}, error);
    struct vb_hash_request request = {.key = {1}};
    struct vb_machine_reply reply;
    struct vb_step step;
    uint32_t replies = 0, unit;

    assert_non_null(image);
    struct vb_machine *m = load(image, opts);
    uint32_t k = (uint32_t)vb_image_find_queue(image, "K");
    vb_put_be64(request.bucket, vb_machine_address(m, region(image, "index")));
    for (uint32_t i = 0; i < requests; i++) {
        vb_machine_send(m, k, &request, sizeof request);
        bool taken = false; // not longer: time passes by itself when nothing is left to do
        for (uint32_t n = 0; n < STEPS_MAX && !taken && vb_machine_step(m, &step, &unit); n++)
            taken = vb_machine_take(m, k, &reply);
        replies += taken && reply.imm == VB_HASH_MISS;
    }
    *time_ns = vb_machine_now_ns(m);
    *fault = vb_machine_fault(m, 0) ? vb_machine_fault(m, 0) : vb_machine_fault(m, k);
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return replies;
}

static void test_limit_is_renewed(void **state)
{
    uint64_t ns;
    uint8_t fault;

    (void)state;
    // Enough for one request, and for a hundred; too little for one.
    assert_int_equal(answered(&(struct vb_machine_opts){.limit = 40}, 100, &ns, &fault), 100);
    assert_int_equal(fault, 0);
    assert_true(answered(&(struct vb_machine_opts){.limit = 5}, 3, &ns, &fault) == 0);
    assert_int_equal(fault, VB_SYN_LOCAL_QP_OP);
}

// A request costs W at least ten entries: 30 of them take 300 tokens, but for what is saved.
static void test_rate_slows_down(void **state)
{
    uint64_t fast_ns, slow_ns;
    uint8_t fault;

    (void)state;
    assert_int_equal(answered(&(struct vb_machine_opts){.seed = 1}, 30, &fast_ns, &fault), 30);
    assert_int_equal(
        answered(&(struct vb_machine_opts){.rate = 100000, .burst = 10}, 30, &slow_ns, &fault), 30);
    assert_int_equal(fault, 0);
    assert_true(slow_ns > 290 * 10000);
    assert_true(fast_ns < 290 * 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calc_into_the_clients_memory),
        cmocka_unit_test(test_calc_wants_records),
        cmocka_unit_test(test_queues_take_turns),
        cmocka_unit_test(test_limit_is_renewed),
        cmocka_unit_test(test_rate_slows_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
