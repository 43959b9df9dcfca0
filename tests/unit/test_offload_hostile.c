// SPDX-License-Identifier: Apache-2.0
// Requests of any length and content to every offload: it reads and writes nothing but what it was
// given, no key of it changes, and unless it has failed it answers the next request.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/machine.h"
#include "fresh_seed.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SHARED = 4096, // bytes of the index and of the items
    VALUE_MAX = 64,
    SLOTS = 4,
    VALUE_BYTES = 24,
    BUCKET_AT = 128, // in the index
    PAYLOAD_MAX = 128,
    KINDS = 7,
    REQUESTS = 6,
    TRIES = 4,
};

struct rig {
    int kind;
    struct vb_image *image;
    struct vb_machine *m;
    uint32_t k, index, items, client, slots, sent;
    uint8_t before[2][SHARED];
    uint8_t marked[1 << 20];   // by byte of all send rings: belongs to a key
    size_t ring_start[8];      // of each queue, in `marked`
    bool tame;                 // most addresses are right: the later parts are reached, too
    uint64_t judged;           // touches
    uint32_t failed, answered; // machines
};

static const uint8_t good_key[VB_HASH_KEY_BYTES] = {1, 2, 3, 4, 5, 6};

static struct vb_image *make(int kind, char *error)
{
    struct vb_hash_opts hash = {.slots = SLOTS, .value_max = VALUE_MAX};
    struct vb_list_opts list = {.slots = SLOTS, .value_max = VALUE_MAX, .nodes = 8};

    switch (kind) {
    case 0:
    case 1:
    case 2: hash.way = (enum vb_hash_way)kind; return vb_offload_hash_get(&hash, error);
    case 5: list.nodes = 20; break;
    case 6: return vb_offload_list_loop(&list, error);
    default: break;
    }
    list.stops = kind >= 4;
    return vb_offload_list_walk(&list, error);
}

// ---- the server's memory: one good bucket, one good list, and otherwise anything

static void fill(struct rig *r, struct vb_prng *prng)
{
    uint8_t *index = vb_machine_data(r->m, r->index), *items = vb_machine_data(r->m, r->items);
    uint64_t at = vb_machine_address(r->m, r->index), value = vb_machine_address(r->m, r->items);
    struct vb_list_node node = {.next = htobe64(at + sizeof node), .addr = htobe64(value)};
    struct vb_hash_bucket bucket = {.addr = htobe64(value)};

    for (uint32_t i = 0; i < SHARED; i++) {
        index[i] = (uint8_t)(vb_prng_below(prng, 3) ? vb_prng_next(prng) : 0);
        items[i] = (uint8_t)vb_prng_next(prng);
    }
    // Addresses that the index should not have: of itself, and just outside the items.
    for (uint32_t i = 256; i + 8 <= SHARED; i += 64)
        vb_put_be64(index + i, (i & 64 ? at : value) + vb_prng_below(prng, SHARED + 64));
    node.len_again = bucket.len = bucket.len_again = htobe32(VALUE_BYTES);
    vb_put_be24(node.len, VALUE_BYTES);
    vb_hash_store_key(node.key, good_key);
    vb_hash_store_key(bucket.key, good_key);
    memcpy(index, &node, sizeof node);
    node = vb_list_end(at + sizeof node);
    memcpy(index + sizeof node, &node, sizeof node);
    memcpy(index + BUCKET_AT, &bucket, sizeof bucket);
    memcpy(r->before[0], index, SHARED);
    memcpy(r->before[1], items, SHARED);
}

static void mark_keys(struct rig *r)
{
    size_t at = 0;

    memset(r->marked, 0, sizeof r->marked);
    for (uint32_t q = 0; q < r->image->queues; q++) {
        r->ring_start[q] = at;
        at += (size_t)r->image->queue[q].blocks * VB_WQEBB_BYTES;
        assert_true(at <= sizeof r->marked);
    }
    for (uint32_t i = 0; i < r->image->relocs; i++) {
        const struct vb_reloc *reloc = &r->image->reloc[i];
        if (reloc->kind == VB_RELOC_KEY && reloc->at.kind == VB_IN_SEND)
            memset(r->marked + r->ring_start[reloc->at.index] + reloc->at.offset, 1, 4);
    }
}

static void open_machine(struct rig *r, uint64_t seed, struct vb_prng *prng)
{
    char error[VB_IMAGE_TEXT] = "";

    r->m = vb_machine_create(
        r->image,
        &(struct vb_machine_opts){
            .seed = seed, .units = 1 + seed % 2, .limit = 20000, .shared_bytes = SHARED},
        error);
    if (!r->m)
        fail_msg("%s", error);
    r->sent = 0;
    fill(r, prng);
}

// ---- what a step may touch

static bool within(const uint8_t *at, uint32_t len, const uint8_t *start, uint64_t bytes)
{
    return at >= start && at < start + bytes && len <= (uint64_t)(start + bytes - at);
}

static bool may_touch_ring(struct rig *r, const struct vb_touch *t, uint32_t queue, bool *found)
{
    const uint8_t *ring = vb_machine_send_ring(r->m, queue);
    const uint8_t *mark = r->marked + r->ring_start[queue];

    if (!within(t->addr, t->len, ring, (uint64_t)r->image->queue[queue].blocks * VB_WQEBB_BYTES))
        return true;
    *found = true;
    for (uint32_t i = 0; t->write && i < t->len; i++)
        if (mark[(const uint8_t *)t->addr - ring + i])
            return false;
    return true;
}

static void judge(struct rig *r, const struct vb_touch *t)
{
    bool found = false;

    r->judged++;
    for (uint32_t q = 0; q < r->image->queues; q++)
        if (!may_touch_ring(r, t, q, &found))
            fail_msg("kind %d: a key of queue %u was written", r->kind, q);
    for (uint32_t i = 0; i < r->image->regions && !found; i++) {
        const struct vb_image_region *region = &r->image->region[i];
        bool own = region->kind == VB_REGION_OWN, shared = region->kind == VB_REGION_SHARED;
        found = (own || (shared && !t->write)) &&
                within(t->addr, t->len, vb_machine_data(r->m, i), own ? region->bytes : SHARED);
    }
    if (!found)
        fail_msg("kind %d: %u bytes were %s that are nobody's", r->kind, t->len,
                 t->write ? "written" : "read");
}

static void run(struct rig *r)
{
    struct vb_step step;
    uint32_t unit;
    uint64_t steps = 0;

    for (; steps < 1000000 && vb_machine_step(r->m, &step, &unit); steps++)
        for (uint32_t i = 0; unit != UINT32_MAX && i < step.touches; i++)
            judge(r, &step.touch[i]);
    assert_true(steps < 1000000);
    assert_memory_equal(vb_machine_data(r->m, r->index), r->before[0], SHARED);
    assert_memory_equal(vb_machine_data(r->m, r->items), r->before[1], SHARED);
}

// ---- requests

static uint64_t draw_address(struct rig *r, struct vb_prng *prng)
{
    uint32_t region = (uint32_t)vb_prng_below(prng, r->image->regions);
    uint64_t start = vb_machine_address(r->m, region), index = vb_machine_address(r->m, r->index);

    if (r->tame && vb_prng_below(prng, 16))
        return index +
               (r->kind < 3 ? BUCKET_AT : sizeof(struct vb_list_node) * vb_prng_below(prng, 2));
    switch (vb_prng_below(prng, 8)) {
    case 0: return vb_prng_next(prng);
    case 1: return 0;
    case 2: return UINT64_MAX - vb_prng_below(prng, 40);
    case 3: return start + vb_prng_below(prng, 64);
    case 4: return (uintptr_t)vb_machine_send_ring(r->m, r->k) + vb_prng_below(prng, 256);
    case 5: return index + SHARED - vb_prng_below(prng, 40);
    case 6: return index - 1 - vb_prng_below(prng, 8);
    default: return index + vb_prng_below(prng, SHARED);
    }
}

static void draw_payload(struct rig *r, struct vb_prng *prng, uint8_t *payload, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        payload[i] = (uint8_t)(vb_prng_below(prng, 4) ? vb_prng_next(prng) : 0);
    if (!r->tame && vb_prng_below(prng, 4) == 0)
        return;
    uint32_t at = r->kind >= 3 ? 0 : VB_HASH_KEY_BYTES;
    if (len >= at + 8)
        vb_put_be64(payload + at, draw_address(r, prng));
    at += sizeof(struct vb_hash_request);
    if (r->kind < 3 && len >= at + 8)
        vb_put_be64(payload + at, draw_address(r, prng));
}

static uint32_t good_payload(struct rig *r, uint8_t *payload)
{
    uint64_t index = vb_machine_address(r->m, r->index);
    struct vb_hash_request2 request;

    if (r->kind >= 3)
        return vb_list_ask(payload, index, good_key, r->kind == 6 ? 0 : r->kind == 5 ? 20 : 8);
    memcpy(request.first.key, good_key, sizeof good_key);
    vb_put_be64(request.first.bucket, index + BUCKET_AT);
    request.second = request.first;
    memcpy(payload, &request, sizeof request);
    return r->kind == 0 ? sizeof request.first : sizeof request;
}

static bool has_failed(struct rig *r)
{
    for (uint32_t q = 0; q < r->image->queues; q++)
        if (vb_machine_fault(r->m, q))
            return true;
    return false;
}

static void expect_answer(struct rig *r)
{
    struct vb_machine_reply reply;
    uint8_t payload[PAYLOAD_MAX];

    while (vb_machine_take(r->m, r->k, &reply))
        ;
    vb_machine_send(r->m, r->k, payload, good_payload(r, payload));
    run(r);
    if (!vb_machine_take(r->m, r->k, &reply))
        fail_msg("kind %d: no answer after %u hostile requests", r->kind, r->sent);
    assert_int_equal(reply.imm, VALUE_BYTES);
    assert_memory_equal(vb_machine_data(r->m, r->client) + (r->sent % r->slots) * VALUE_MAX,
                        vb_machine_data(r->m, r->items), VALUE_BYTES);
    r->answered++;
}

// Requests until the program fails, then a good one if it has not.
static void attack(struct rig *r, struct vb_prng *prng, uint32_t len)
{
    uint8_t payload[PAYLOAD_MAX];

    open_machine(r, len, prng);
    for (uint32_t i = 0; i < REQUESTS && !has_failed(r); i++, r->sent++) {
        draw_payload(r, prng, payload, len);
        vb_machine_send(r->m, r->k, payload, len);
        run(r);
    }
    if (has_failed(r))
        r->failed++;
    else
        expect_answer(r);
    vb_machine_destroy(r->m);
}

static struct rig *rig_create(int kind)
{
    char error[VB_IMAGE_TEXT] = "";
    struct rig *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->kind = kind;
    r->image = make(kind, error);
    if (!r->image)
        fail_msg("%s", error);
    r->slots = kind == 6 ? 1 : SLOTS;
    r->k = (uint32_t)vb_image_find_queue(r->image, "K");
    r->index = (uint32_t)vb_image_find_region(r->image, "index");
    r->items = (uint32_t)vb_image_find_region(r->image, "items");
    r->client = (uint32_t)vb_image_find_region(r->image, "client");
    mark_keys(r);
    return r;
}

static void rig_destroy(struct rig *r)
{
    vb_image_destroy(r->image);
    free(r);
}

static void attack_kind(int kind)
{
    struct vb_prng prng = {.state = fresh_seed() + (uint64_t)kind};
    struct rig *r = rig_create(kind);

    for (uint32_t len = 0; len <= 64; len++)
        for (int i = 0; i < TRIES; i++) {
            r->tame = i > 0;
            attack(r, &prng, len);
        }
    print_message("kind %d: failed %u times, answered after %u; %llu accesses\n", kind, r->failed,
                  r->answered, (unsigned long long)r->judged);
    assert_true(r->failed > 10 && r->answered >= TRIES && r->judged > 1500 * TRIES);
    rig_destroy(r);
}

// A good request, but for its addresses: only the index is read where a client says.
static void read_elsewhere(struct rig *r, uint64_t address)
{
    uint8_t payload[PAYLOAD_MAX];
    uint32_t len = good_payload(r, payload);

    if (r->kind >= 3) {
        vb_put_be64(payload, address);
    } else {
        for (uint32_t at = VB_HASH_KEY_BYTES; at < len; at += sizeof(struct vb_hash_request))
            vb_put_be64(payload + at, address);
    }
    vb_machine_send(r->m, r->k, payload, len);
    run(r);
    assert_int_equal(vb_machine_fault(r->m, 0), VB_SYN_REMOTE_ACCESS);
}

static void test_only_the_index_is_looked_up(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct vb_prng prng = {.state = fresh_seed()};
        struct rig *r = rig_create(kind);
        for (uint32_t i = 0; i < r->image->regions + r->image->queues; i++) {
            if (i == r->index)
                continue;
            open_machine(r, i, &prng);
            read_elsewhere(r, i < r->image->regions
                                  ? vb_machine_address(r->m, i)
                                  : (uintptr_t)vb_machine_send_ring(r->m, i - r->image->regions));
            vb_machine_destroy(r->m);
        }
        rig_destroy(r);
    }
}

static void test_hash_gets(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        attack_kind(kind);
}

static void test_lists(void **state)
{
    (void)state;
    for (int kind = 3; kind < KINDS; kind++)
        attack_kind(kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_gets),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_only_the_index_is_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
