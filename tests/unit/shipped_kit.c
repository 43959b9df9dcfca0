// SPDX-License-Identifier: Apache-2.0
// Every offload that is shipped.
#include "shipped_kit.h"

#include "base/bytes.h"
#include "base/prng.h"
#include "hash_kit.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    VALUE_MAX = 64,
    BUCKETS = 16,
    ASKED = 12,
    NODES = 5, // of the list
    SLOTS = 2, // of walks
    WAYS = 3,  // of an answer: from the first bucket, from the second, none
    // The same in every offload with a client.
    QUEUE_K = 1,
    REGION_INDEX = 0,
    REGION_ITEMS = 1,
};

// ---- hash gets

static struct vb_image *make_hash(uint32_t n, char *error)
{
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = n & 0xff,
                                                      .value_max = VALUE_MAX,
                                                      .way = (enum vb_hash_way)(n >> 8)},
                               error);
}

static void fill_index(struct vb_machine *m)
{
    struct vb_hash_bucket *bucket = (void *)vb_machine_data(m, REGION_INDEX);
    uint8_t *items = vb_machine_data(m, REGION_ITEMS);

    for (uint32_t n = 0; n < BUCKETS; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        hash_key_of(n, key);
        bucket[n].addr = htobe64(vb_machine_address(m, REGION_ITEMS) + n * VALUE_MAX);
        bucket[n].len = bucket[n].len_again = htobe32(1 + n * 37 % VALUE_MAX);
        vb_hash_store_key(bucket[n].key, key);
        memset(items + (size_t)n * VALUE_MAX, (int)(n + 1), VALUE_MAX);
    }
}

static uint64_t draw_bucket(struct vb_machine *m, struct vb_prng *prng, uint32_t *n)
{
    *n = (uint32_t)vb_prng_below(prng, BUCKETS);
    return vb_machine_address(m, REGION_INDEX) + *n * sizeof(struct vb_hash_bucket);
}

// The n-th request's choice of so many ways: without a seed every slot takes each of them in turn.
static uint32_t draw_way(struct vb_prng *prng, uint64_t seed, uint32_t n, uint32_t slots,
                         uint32_t ways)
{
    return seed ? (uint32_t)vb_prng_below(prng, ways) : (n % slots + n / slots) % ways;
}

// Hits in the first bucket and in the second, and misses.
static void prepare_hash(const struct shipped *s, struct vb_machine *m, uint64_t seed)
{
    struct vb_prng prng = {.state = seed};
    uint32_t slots = s->n & 0xff;

    fill_index(m);
    for (uint32_t i = 0; i < (seed ? (uint32_t)ASKED : WAYS * slots); i++) {
        struct vb_hash_request2 request;
        uint32_t one, two;
        vb_put_be64(request.first.bucket, draw_bucket(m, &prng, &one));
        vb_put_be64(request.second.bucket, draw_bucket(m, &prng, &two));
        const uint32_t keys[] = {one, two, (one + 1) % BUCKETS};
        hash_key_of(keys[draw_way(&prng, seed, i, slots, WAYS)], request.first.key);
        memcpy(request.second.key, request.first.key, sizeof request.first.key);
        vb_machine_send(m, QUEUE_K, &request,
                        s->n >> 8 == VB_HASH_ONE ? sizeof request.first : sizeof request);
    }
}

// ---- lists

enum {
    LIST_STOPS = 0x100,
    LIST_LOOP = 0x200,
};

static struct vb_image *make_list(uint32_t n, char *error)
{
    const struct vb_list_opts opts = {
        .slots = SLOTS, .value_max = VALUE_MAX, .nodes = n & 0xff, .stops = n & LIST_STOPS};
    return n & LIST_LOOP ? vb_offload_list_loop(&opts, error) : vb_offload_list_walk(&opts, error);
}

static uint64_t node_address(struct vb_machine *m, uint32_t n)
{
    return vb_machine_address(m, REGION_INDEX) + n * sizeof(struct vb_list_node);
}

static void fill_list(struct vb_machine *m)
{
    struct vb_list_node *node = (void *)vb_machine_data(m, REGION_INDEX);
    uint8_t *items = vb_machine_data(m, REGION_ITEMS);

    for (uint32_t n = 0; n < NODES; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        hash_key_of(n, key);
        node[n].next = htobe64(node_address(m, n + 1));
        node[n].addr = htobe64(vb_machine_address(m, REGION_ITEMS) + n * VALUE_MAX);
        node[n].len_again = htobe32(1 + n * 37 % VALUE_MAX);
        vb_put_be24(node[n].len, 1 + n * 37 % VALUE_MAX);
        vb_hash_store_key(node[n].key, key);
        memset(items + (size_t)n * VALUE_MAX, (int)(n + 1), VALUE_MAX);
    }
    node[NODES] = vb_list_end(node_address(m, NODES));
}

static void prepare_list(const struct shipped *s, struct vb_machine *m, uint64_t seed)
{
    struct vb_prng prng = {.state = seed};

    fill_list(m);
    for (uint32_t i = 0; i < (seed ? (uint32_t)ASKED : SLOTS * (NODES + 1u)); i++) {
        uint8_t request[VB_LIST_REQUEST_MAX], key[VB_HASH_KEY_BYTES];
        hash_key_of(draw_way(&prng, seed, i, SLOTS, NODES + 1), key);
        uint64_t head = node_address(m, seed ? (uint32_t)vb_prng_below(&prng, 2) : 0);
        vb_machine_send(m, QUEUE_K, request,
                        vb_list_ask(request, head, key, s->n & LIST_LOOP ? 0 : s->n & 0xff));
    }
}

// ---- the universal machine: one that clears every other cell of a row of ones, and halts behind
// it

enum {
    CELLS = 12,
    REGION_TABLE = 0,
    REGION_TAPE = 1,
    TABLE_RULES = 4,
};

static struct vb_image *make_universal(uint32_t n, char *error)
{
    return vb_offload_universal(
        &(struct vb_universal_opts){.rules = TABLE_RULES, .cells = CELLS, .head = n}, error);
}

static void prepare_universal(const struct shipped *s, struct vb_machine *m, uint64_t seed)
{
    static const struct {
        uint8_t write, next;
        int8_t move;
        bool halts;
    } rule[TABLE_RULES] = {{1, 0, 0, true}, {0, 1, 1, false}, {0, 0, -1, true}, {1, 0, 1, false}};
    struct vb_universal_rule *table = (void *)vb_machine_data(m, REGION_TABLE);
    (void)s;
    for (uint32_t i = 0; i < TABLE_RULES; i++) {
        table[i] = (struct vb_universal_rule){
            .next = htobe64(vb_machine_address(m, REGION_TABLE) + 2 * rule[i].next * sizeof *table),
            .move = htobe64((uint64_t)(int64_t)rule[i].move * 2),
            .halts = {0, 0, 0, 0, 0, rule[i].halts}};
        vb_universal_cell(table[i].cell, rule[i].write);
    }
    for (uint32_t i = 0; i < CELLS; i++)
        vb_universal_cell(vb_machine_data(m, REGION_TAPE) + (size_t)2 * i, i != 4 + seed % 7);
}

// ---- every address mode of mov

static struct vb_image *make_mov(uint32_t n, char *error)
{
    struct vb_chain *c = vb_chain_begin("mov");
    struct vb_chain_region memory = vb_chain_region(c, "memory", VB_CHAIN_OWN, 64, true);
    struct vb_flow *f = vb_flow_begin(c, "W");
    struct vb_var a = vb_flow_var(f, 0x1122334455667788), b = vb_flow_var(f, 0);
    struct vb_var at = vb_flow_pointer(f, vb_in(memory, 8)), offset = vb_flow_var(f, n);

    vb_flow_load(f, b, memory, at, 8);
    vb_flow_store(f, memory, at, a, 4);
    vb_flow_move(f, a, b);
    vb_flow_load_indexed(f, b, memory, at, offset, 2);
    vb_flow_store_indexed(f, memory, at, offset, a, 3);
    vb_flow_set(f, b, 7);
    vb_flow_end_program(f);
    return vb_chain_finish(c, error);
}

static void prepare_mov(const struct shipped *s, struct vb_machine *m, uint64_t seed)
{
    struct vb_prng prng = {.state = seed};

    (void)s;
    for (uint32_t i = 0; i < 64; i++)
        vb_machine_data(m, 0)[i] = (uint8_t)vb_prng_next(&prng);
}

// ---- all of them

static const struct shipped all[] = {
    {"hash_get of 2 slots", make_hash, 2, prepare_hash},
    {"hash_two, one after the other", make_hash, VB_HASH_SEQUENTIAL << 8 | 2, prepare_hash},
    {"list_walk", make_list, 4, prepare_list},
    {"hash_get of 4 slots", make_hash, 4, prepare_hash},
    {"hash_two, side by side", make_hash, VB_HASH_PARALLEL << 8 | 4, prepare_hash},
    {"list_walk that stops", make_list, LIST_STOPS | 4, prepare_list},
    {"mov", make_mov, 3, prepare_mov},
    {"hash_get of 8 slots", make_hash, 8, prepare_hash},
    {"list_loop", make_list, LIST_LOOP, prepare_list},
    {"universal", make_universal, 2, prepare_universal},
    {"hash_two, one after the other, 4 slots", make_hash, VB_HASH_SEQUENTIAL << 8 | 4,
     prepare_hash},
    {"list_walk that copies keys", make_list, 17, prepare_list},
    {"list_walk that copies keys and stops", make_list, LIST_STOPS | 17, prepare_list},
};

uint32_t shipped_count(void)
{
    return sizeof all / sizeof all[0];
}

const struct shipped *shipped_at(uint32_t i)
{
    return &all[i];
}

struct vb_image *shipped_image(const struct shipped *s)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = s->make(s->n, error);

    if (!image)
        fail_msg("%s: %s", s->name, error);
    return image;
}

void shipped_prepare(void *ctx, struct vb_machine *m)
{
    const struct shipped_input *in = ctx;
    in->program->prepare(in->program, m, in->seed);
}
