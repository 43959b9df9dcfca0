// SPDX-License-Identifier: Apache-2.0
// Programs are built, loaded into a machine and taken back from it while memory runs out: at every
// allocation in turn. Nothing is made then, nothing is lost (the leak sanitizer looks), and the
// error says so.
#include "chain/machine.h"
#include "scarce_kit.h"
#include "verbena/chain.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- a program with everything that a builder keeps

enum {
    RESTORED = 20, // fields: more than one READ brings back
};

struct parts {
    struct vb_chain *c;
    struct vb_chain_queue w, k;
    struct vb_chain_region data, far;
};

static void add_slot(struct parts *p, uint32_t n)
{
    char name[16];

    vb_chain_slot(p->c, p->w);
    vb_chain_wait_recv(p->c, p->w, p->k, n);
    vb_chain_open_rest(p->c, p->w);
    snprintf(name, sizeof name, "reply%u", n);
    struct vb_chain_label reply = vb_chain_op(
        p->c, p->k,
        &(struct vb_chain_op){
            .opcode = VB_WQE_SEND, .label = vb_chain_label(p->c, name), .data = "reply", .len = 5});
    vb_chain_if(p->c, p->w,
                &(struct vb_chain_op){
                    .opcode = VB_WQE_WRITE, .remote = vb_in(p->data, 0), .data = "x", .len = 1},
                7, vb_in(p->data, 8));
    vb_chain_manual(p->c, vb_chain_open(p->c, p->w, reply));
    struct vb_chain_label wait = vb_chain_wait(p->c, p->w, reply);
    vb_chain_manual(p->c, wait);
    vb_chain_count(p->c, vb_in(p->data, 16 + 4 * n), wait);
    vb_chain_open_recv(p->c, p->w, p->k, n);
    vb_chain_guard(p->c, p->w, reply);
    for (uint32_t i = 0; i < RESTORED; i++)
        vb_chain_restore_on(p->c, p->w, vb_at(reply, VB_AT_FLAGS), 1);
    vb_chain_restore(p->c, vb_at(reply, VB_AT_DS), 1);
    vb_chain_restore_after(p->c, vb_at(reply, VB_AT_OPCODE), 1);
    vb_chain_recv(p->c, p->k, &(struct vb_part){vb_in(p->data, 24), 8}, 1);
}

static void add_flow(struct parts *p)
{
    struct vb_flow *f = vb_flow_begin(p->c, "F");
    struct vb_var a = vb_flow_var(f, 1), b = vb_flow_var(f, 2);
    struct vb_var at = vb_flow_pointer(f, vb_in(p->data, 32));

    vb_flow_loop(f);
    vb_flow_if(f, a, VB_LT, b, 64);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, a, a, 1);
    vb_flow_load(f, b, p->data, at, 4);
    vb_flow_else(f);
    vb_flow_store(f, p->data, at, a, 8);
    vb_flow_repeat(f, 2);
    vb_flow_set(f, b, 9);
    vb_flow_end(f);
    vb_flow_break(f);
    vb_flow_end(f);
    vb_flow_end(f);
    vb_flow_end_program(f);
}

static struct vb_image *build_all(char *error)
{
    struct parts p = {.c = vb_chain_begin("all")};

    if (!p.c) {
        snprintf(error, VB_IMAGE_TEXT, "no memory for the program");
        return NULL;
    }
    p.data = vb_chain_region(p.c, "data", VB_CHAIN_OWN, 64, true);
    p.far = vb_chain_region(p.c, "far", VB_CHAIN_SHARED, 64, true);
    p.w = vb_chain_queue(p.c, "W", &(struct vb_chain_queue_opts){0});
    p.k = vb_chain_queue(p.c, "K", &(struct vb_chain_queue_opts){.peer = true, .recv_sge = 2});
    vb_chain_put(p.c, vb_in(p.data, 0), "data", 4);
    vb_chain_put_address(p.c, vb_in(p.data, 40), vb_in(p.far, 0));
    add_slot(&p, 0);
    add_slot(&p, 1);
    add_flow(&p);
    return vb_chain_finish(p.c, error);
}

// ---- offloads

static struct vb_image *hash_get(char *error)
{
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = 4}, error);
}

static struct vb_image *hash_two(char *error)
{
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = 2, .way = VB_HASH_PARALLEL}, error);
}

static struct vb_image *list_walk(char *error)
{
    return vb_offload_list_walk(&(struct vb_list_opts){.slots = 2, .nodes = 3}, error);
}

static struct vb_image *list_stop(char *error)
{
    return vb_offload_list_walk(&(struct vb_list_opts){.slots = 2, .nodes = 2, .stops = true},
                                error);
}

static struct vb_image *list_loop(char *error)
{
    return vb_offload_list_loop(&(struct vb_list_opts){0}, error);
}

static struct vb_image *universal(char *error)
{
    return vb_offload_universal(&(struct vb_universal_opts){.rules = 1, .cells = 1}, error);
}

static struct vb_image *(*const make[])(char *error) = {build_all, hash_get,  hash_two, list_walk,
                                                        list_stop, list_loop, universal};

#define CHECK_SAYS "out of memory" // vb_image_check()

static uint64_t without_memory(struct vb_image *(*build)(char *error), uint64_t n, bool for_good)
{
    char error[VB_IMAGE_TEXT] = "";

    scarce_begin(n, for_good);
    struct vb_image *image = build(error);
    uint64_t made = scarce_end();
    if (n == 0 && !image)
        fail_msg("%s", error);
    bool right = strncmp(error, "no memory for ", 14) == 0 || strcmp(error, CHECK_SAYS) == 0;
    if (n > 0 && (image || !right))
        fail_msg("allocation %llu: %s", (unsigned long long)n, image ? "built" : error);
    vb_image_destroy(image);
    return made;
}

static void test_programs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof make / sizeof make[0]; i++) {
        uint64_t all = without_memory(make[i], 0, false);
        assert_true(all > 50);
        for (uint64_t n = 1; n <= 2 * all; n++)
            without_memory(make[i], (n + 1) / 2, n % 2);
    }
}

// ---- machines

static const struct vb_machine_opts opts = {.units = 2, .limit = 100};

static bool says(const char *error, const char *how)
{
    size_t len = strlen(error), end = strlen(how);
    return len >= end && strcmp(error + len - end, how) == 0;
}

static void test_machines(void **state)
{
    static const char *const how[] = {
        "' cannot be loaded: no memory", "' cannot be loaded: no memory for its devices",
        "' cannot be made: no memory",   "' cannot be made",
        "' cannot be connected",         CHECK_SAYS};
    char error[VB_IMAGE_TEXT] = "";
    uint32_t said[sizeof how / sizeof how[0]] = {0}, total = 0;
    struct vb_image *image = hash_two(error);
    struct vb_machine *m;
    uint64_t all, n = 1;

    (void)state;
    assert_non_null(image);
    scarce_begin(0, false);
    m = vb_machine_create(image, &opts, error);
    all = scarce_end();
    assert_non_null(m);
    vb_machine_destroy(m);
    for (; n <= 2 * all; n++) {
        scarce_begin((n + 1) / 2, n % 2);
        m = vb_machine_create(image, &opts, error);
        scarce_end();
        if (m)
            fail_msg("allocation %llu of %llu: made", (unsigned long long)(n + 1) / 2,
                     (unsigned long long)all);
        for (uint32_t i = 0; i < sizeof how / sizeof how[0]; i++)
            said[i] += says(error, how[i]);
    }
    for (uint32_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        assert_true(said[i] > 0);
        total += said[i];
    }
    // The machine and its seven arrays.
    assert_int_equal(said[0], 2 * 8);
    assert_int_equal(total, 2 * all);
    vb_image_destroy(image);
}

// Memory that a program shares is zero before anybody writes to it, whoever had it before.
static void test_shared_memory_begins_with_zeros(void **state)
{
    static const uint8_t zeros[64];
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = build_all(error);
    struct vb_machine *m = image ? vb_machine_create(image, &opts, error) : NULL;

    (void)state;
    if (!m)
        fail_msg("%s", error);
    uint32_t far = (uint32_t)vb_image_find_region(image, "far");
    assert_int_equal(vb_machine_bytes(m, far), sizeof zeros);
    assert_memory_equal(vb_machine_data(m, far), zeros, sizeof zeros);
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

static void test_snapshots(void **state)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = hash_get(error);
    struct vb_machine *m = vb_machine_create(image, &opts, error);

    (void)state;
    assert_non_null(m);
    scarce_begin(0, false);
    struct vb_image *now = vb_machine_snapshot(m);
    uint64_t all = scarce_end();
    assert_true(vb_image_equal(image, now));
    vb_image_destroy(now);
    for (uint64_t n = 1; n <= all; n++) {
        scarce_begin(n, false);
        assert_null(vb_machine_snapshot(m));
        scarce_end();
    }
    vb_machine_destroy(m);
    vb_image_destroy(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_shared_memory_begins_with_zeros),
        cmocka_unit_test(test_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
