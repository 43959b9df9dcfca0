// SPDX-License-Identifier: Apache-2.0
// The hash get on real NICs: loaded, called over every port, alone and beside others, and unloaded.
#include "base/bytes.h"
#include "base/prng.h"
#include "duo.h"
#include "fresh_seed.h"
#include "hash_kit.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BUCKETS = 64,
    VALUE_MAX = 128,
    SLOTS = 4,
    ITEMS = 8192, // in the server's memory; the index is at its beginning
};

struct service {
    struct duo d;
    struct vb_mr *index, *items;
};

struct client {
    struct vb_loaded *loaded;
    struct vb_qp *qp;
    struct vb_cq *cq;
    uint8_t *replies; // SLOTS * VALUE_MAX in the client's memory
    uint32_t answered;
};

static void open_service(struct service *s, struct duo_state *state)
{
    duo_open(&s->d, state);
    uint8_t *memory = s->d.end[1].memory;

    hash_fill(memory, BUCKETS, ITEMS, VALUE_MAX);
    const uint32_t rights = VB_RIGHT_REMOTE_READ;
    assert_int_equal(vb_mr_reg(s->d.end[1].pd, memory, BUCKETS * sizeof(struct vb_hash_bucket),
                               rights, &s->index),
                     0);
    assert_int_equal(
        vb_mr_reg(s->d.end[1].pd, memory + ITEMS, BUCKETS * VALUE_MAX, rights, &s->items), 0);
}

static void close_service(struct service *s)
{
    vb_mr_dereg(s->index);
    vb_mr_dereg(s->items);
    duo_close(&s->d);
}

static struct vb_loaded *load(struct service *s, uint64_t replies, struct vb_load_opts opts)
{
    const uint8_t *memory = s->d.end[1].memory;
    const struct vb_load_memory given[] = {
        {"index", (uintptr_t)memory, vb_mr_key(s->index)},
        {"items", (uintptr_t)memory + ITEMS, vb_mr_key(s->items)},
        {"client", replies, vb_mr_key(s->d.end[0].mr)},
    };
    char error[200] = "";
    struct vb_image *image =
        vb_offload_hash_get(&(struct vb_hash_opts){.slots = SLOTS, .value_max = VALUE_MAX}, error);
    struct vb_loaded *loaded = NULL;

    if (!image)
        fail_msg("%s", error);
    opts.pd = s->d.end[1].pd;
    opts.memory = given;
    opts.memories = 3;
    if (vb_chain_load(s->d.end[1].nic, image, &opts, &loaded, error) != 0)
        fail_msg("%s", error);
    vb_image_destroy(image);
    return loaded;
}

static void post_empty(struct vb_qp *qp)
{
    assert_int_equal(vb_post_recv(qp, &(struct vb_recv_wr){.wr_id = 7}, 1), 1);
}

static void open_client(struct service *s, struct client *c, uint32_t n, struct vb_load_opts opts)
{
    const struct duo_end *here = &s->d.end[0];

    memset(c, 0, sizeof *c);
    c->replies = here->memory + n * SLOTS * VALUE_MAX;
    c->loaded = load(s, (uintptr_t)c->replies, opts);
    assert_int_equal(vb_cq_create(here->nic, &(struct vb_cq_opts){.entries = 256}, &c->cq), 0);
    c->qp = duo_make_qp(here, (struct vb_qp_opts){.send_cq = c->cq,
                                                  .recv_cq = c->cq,
                                                  .send_depth = 64,
                                                  .recv_depth = 64,
                                                  .inline_bytes = 16});
    duo_join(&s->d, c->qp, vb_loaded_qp(c->loaded, "K"));
    for (int i = 0; i < 64; i++)
        post_empty(c->qp);
    assert_int_equal(vb_chain_start(c->loaded), 0);
}

static void close_client(struct client *c)
{
    vb_chain_unload(c->loaded);
    vb_qp_destroy(c->qp);
    vb_cq_destroy(c->cq);
}

static void ask(struct service *s, struct client *c, uint32_t n, uint32_t bucket)
{
    struct vb_hash_request request;
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};

    hash_key_of(n, request.key);
    vb_put_be64(request.bucket,
                (uintptr_t)s->d.end[1].memory + bucket * sizeof(struct vb_hash_bucket));
    assert_int_equal(vb_post_send(c->qp,
                                  &(struct vb_send_wr){.opcode = VB_WR_SEND,
                                                       .flags = VB_WR_INLINE | VB_WR_SIGNALED,
                                                       .sge = &sge,
                                                       .num_sge = 1},
                                  1),
                     1);
}

static void expect(struct client *c, uint32_t n, bool hit, bool look)
{
    struct vb_wc wc;

    do
        wc = duo_wait(c->cq);
    while (wc.opcode == VB_WC_SEND && wc.status == VB_WC_OK);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.opcode, VB_WC_RECV_WRITE);
    assert_int_equal(be32toh(wc.imm), hit ? hash_length_of(n, VALUE_MAX) : VB_HASH_MISS);
    const uint8_t *value = c->replies + c->answered++ % SLOTS * VALUE_MAX;
    for (uint32_t i = 0; hit && look && i < hash_length_of(n, VALUE_MAX); i++)
        assert_int_equal(value[i], (uint8_t)(n + 1));
    post_empty(c->qp);
}

static void test_one_by_one(void **state)
{
    struct service s;
    struct client c;

    open_service(&s, *state);
    open_client(&s, &c, 0, (struct vb_load_opts){0});
    for (uint32_t i = 0; i < 500; i++) {
        bool hit = i % 3 != 0;
        ask(&s, &c, i % BUCKETS, (i + !hit) % BUCKETS);
        expect(&c, i % BUCKETS, hit, true);
    }
    assert_true(vb_loaded_bytes(c.loaded) < 64 * 1024);
    close_client(&c);
    close_service(&s);
}

// More requests than slots: they wait for receives to be opened, and none is lost or mixed up.
static void test_deep(void **state)
{
    struct service s;
    struct client c;

    open_service(&s, *state);
    open_client(&s, &c, 0, (struct vb_load_opts){.fetch_depth = 3});
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 32; i++)
            ask(&s, &c, i, i + (i % 4 == 0));
        for (uint32_t i = 0; i < 32; i++)
            expect(&c, i, i % 4 != 0, false);
    }
    close_client(&c);
    close_service(&s);
}

static void test_counters_wrap(void **state)
{
    static const uint64_t near[] = {1ull << 16, 1ull << 24, 1ull << 32};
    struct service s;
    struct client c;

    open_service(&s, *state);
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        open_client(&s, &c, 0, (struct vb_load_opts){.start = near[i] - 256});
        for (uint32_t n = 0; n < 400; n++) {
            ask(&s, &c, n % BUCKETS, n % BUCKETS);
            expect(&c, n % BUCKETS, true, true);
        }
        close_client(&c);
    }
    close_service(&s);
}

// Whatever one client sends, others are served.
static void test_hostile_beside_others(void **state)
{
    struct service s;
    struct client good, bad;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t bytes[16];
    const struct vb_sge sge = {(uintptr_t)bytes, sizeof bytes, 0};

    open_service(&s, *state);
    open_client(&s, &good, 0, (struct vb_load_opts){0});
    for (uint32_t round = 0; round < 8; round++) {
        open_client(&s, &bad, 1, (struct vb_load_opts){0});
        for (uint32_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)vb_prng_next(&prng);
        vb_post_send(bad.qp,
                     &(struct vb_send_wr){
                         .opcode = VB_WR_SEND, .flags = VB_WR_INLINE, .sge = &sge, .num_sge = 1},
                     1);
        for (uint32_t i = 0; i < 20; i++) {
            ask(&s, &good, i, i);
            expect(&good, i, true, true);
        }
        close_client(&bad);
    }
    close_client(&good);
    close_service(&s);
}

static void test_what_is_missing_is_said(void **state)
{
    struct service s;
    char error[200] = "";
    struct vb_loaded *loaded = NULL;
    struct vb_image *image = vb_offload_hash_get(&(struct vb_hash_opts){.slots = 2}, error);

    open_service(&s, *state);
    assert_non_null(image);
    const struct vb_load_opts opts = {.pd = s.d.end[1].pd};
    assert_true(vb_chain_load(s.d.end[1].nic, image, &opts, &loaded, error) < 0);
    assert_non_null(strstr(error, "index"));
    assert_null(vb_offload_hash_get(&(struct vb_hash_opts){.slots = 3}, error));
    assert_non_null(strstr(error, "power of two"));
    vb_image_destroy(image);
    close_service(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_one_by_one),
        DUO_TEST(test_one_by_one, "hull"),
        DUO_WAYS(test_deep),
        DUO_TEST(test_deep, "hull"),
        DUO_TEST(test_counters_wrap, "shm"),
        DUO_TEST(test_counters_wrap, "hull"),
        DUO_TEST(test_hostile_beside_others, "udp"),
        DUO_TEST(test_hostile_beside_others, "hull"),
        DUO_TEST(test_what_is_missing_is_said, "udp"),
        DUO_TEST(test_what_is_missing_is_said, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
