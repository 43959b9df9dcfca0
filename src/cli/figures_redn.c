// SPDX-License-Identifier: Apache-2.0
// RedN's experiments, one after the other.
#include "cli/figures_redn.h"

#include "base/bytes.h"
#include "cli/figures_measure.h"
#include "cli/figures_program.h"
#include "cost/model.h"
#include "verbena/offload.h"

#include <stdio.h>
#include <string.h>

enum {
    GETS = 64, // of a rate
    NODES = 8,
    VALUE = 64,
    FEW = 20, // entries or `if`s of the shorter of two programs
    MANY = 40,
};

// ---- runs

// Takes the image. False: error says why.
static bool price(struct vb_image *image, const struct vb_cost_preset *preset, uint32_t operations,
                  struct vb_cost_summary *summary, char *error)
{
    const struct vb_cost_opts opts = {.seed = 1, .operations = operations};
    struct vb_cost *cost = image ? vb_cost_run(image, preset, &opts, error) : NULL;

    if (cost)
        vb_cost_summary(cost, summary);
    bool ok = cost && !summary->errors;
    if (cost && !ok)
        snprintf(error, VB_COST_TEXT, "the program failed");
    vb_cost_free(cost);
    if (image)
        vb_image_destroy(image);
    return ok;
}

static double us(uint64_t ps)
{
    return (double)ps / 1e6;
}

static double run_verb(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                       char *error)
{
    struct vb_cost_summary s;
    struct vb_image *image = vb_figures_assemble(vb_figures_verb(row->entry, false), error);
    return price(image, preset, 1, &s, error) ? us(s.latency_ps) : -1;
}

// A WRITE of nothing, as RedN's NOOP is: by preset A's reading on this machine, else to a client.
static double run_noop(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                       char *error)
{
    struct vb_cost_summary s;
    bool loop = preset->lanes == VB_LANE_PROGRAM;
    struct vb_image *image = vb_figures_assemble(vb_figures_verb(row->entry, loop), error);
    return price(image, preset, 1, &s, error) ? us(s.latency_ps) : -1;
}

// What one more entry adds.
static double run_order(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    enum vb_figures_order order = (enum vb_figures_order)row->count;
    struct vb_cost_summary few, many;

    if (!price(vb_figures_assemble(vb_figures_nops(10, order), error), preset, 1, &few, error) ||
        !price(vb_figures_assemble(vb_figures_nops(20, order), error), preset, 1, &many, error))
        return -1;
    return us(many.latency_ps - few.latency_ps) / 10;
}

// Many queues, so that the card is the limit: millions a second.
static double run_flood(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    struct vb_cost_summary s;
    struct vb_cost_preset own = *preset;

    own.lanes = VB_LANE_QUEUE; // queues that have nothing to do with each other
    struct vb_image *image =
        vb_figures_assemble(vb_figures_flood(row->entry, VB_FLOOD_QUEUES), error);
    if (!price(image, &own, 1, &s, error))
        return -1;
    return VB_FLOOD_ENTRIES / us(s.end_ps);
}

static double run_ifs(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                      char *error)
{
    bool recycled = row->count;
    struct vb_cost_summary few, many;

    if (!price(vb_figures_assemble(vb_figures_ifs(FEW, recycled), error), preset, 1, &few, error) ||
        !price(vb_figures_assemble(vb_figures_ifs(MANY, recycled), error), preset, 1, &many, error))
        return -1;
    return (MANY - FEW) / us(many.operation_ps - few.operation_ps);
}

// Table 2: entries of one more.
static double run_count(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    bool recycled = row->count;
    struct vb_cost_summary few, many;

    if (!price(vb_figures_assemble(vb_figures_ifs(FEW, recycled), error), preset, 1, &few, error) ||
        !price(vb_figures_assemble(vb_figures_ifs(MANY, recycled), error), preset, 1, &many, error))
        return -1;
    return (double)(many.entries - few.entries) / (MANY - FEW);
}

// Table 1: of another card, whatever the column.
static double run_card(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                       char *error)
{
    static const char *const names[] = {"connectx3", NULL, "connectx6"};
    const struct vb_figures_row flood = {.entry = row->entry};
    struct vb_cost_preset *own = NULL;

    if (names[row->count] && !(own = vb_cost_preset_named(names[row->count], error)))
        return -1;
    double rate = run_flood(&flood, own ? own : preset, error);
    vb_cost_preset_free(own);
    return rate;
}

// ---- gets

// The bucket's key and the value's address; then requests that ask for it, the first ones for
// another key.
static void ask(struct vb_machine *m, const struct vb_image *image, uint32_t count, uint32_t misses)
{
    static const uint8_t key[VB_FIGURES_KEY_BYTES] = {0xe8, 3, 0};
    uint32_t index = (uint32_t)vb_image_find_region(image, "index");
    uint32_t items = (uint32_t)vb_image_find_region(image, "items");
    uint32_t queue = (uint32_t)vb_image_find_queue(image, "K");
    uint8_t request[VB_FIGURES_KEY_BYTES + 8], *bucket = vb_machine_data(m, index);

    memcpy(bucket, key, sizeof key);
    vb_put_be64(bucket + sizeof key, vb_machine_address(m, items));
    for (uint32_t i = 0; i < sizeof key; i++) // comparisons see it the other way round
        request[i] = key[sizeof key - 1 - i];
    vb_put_be64(request + sizeof key, vb_machine_address(m, index));
    for (uint32_t i = 0; i < count; i++) {
        request[0] = key[sizeof key - 1] ^ (i < misses);
        vb_machine_send(m, queue, request, sizeof request);
    }
}

static bool run_gets(uint32_t count, uint32_t misses, uint32_t bytes,
                     const struct vb_cost_preset *preset, struct vb_cost_summary *s, char *error)
{
    const struct vb_machine_opts machine = {.seed = 1};
    const struct vb_cost_opts opts = {.managed_client = true};
    struct vb_image *image = vb_figures_assemble(vb_figures_gets(count, bytes), error);
    struct vb_machine *m = image ? vb_machine_create(image, &machine, error) : NULL;
    struct vb_cost *cost = NULL;

    if (m) {
        ask(m, image, count, misses);
        cost = vb_cost_watch(m, image, &machine, preset, &opts, error);
    }
    if (cost)
        vb_cost_summary(cost, s);
    bool answered = cost && s->replies == count - misses && !s->errors;
    if (cost && !answered)
        snprintf(error, VB_COST_TEXT, "%u of %u gets were answered", s->replies, count - misses);
    vb_cost_free(cost);
    vb_machine_destroy(m);
    if (image)
        vb_image_destroy(image);
    return answered;
}

double vb_figures_get_us(uint32_t bytes, const struct vb_cost_preset *preset, char *error)
{
    struct vb_cost_summary s;
    return run_gets(1, 0, bytes, preset, &s, error) ? us(s.latency_ps) : -1;
}

static double run_get(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                      char *error)
{
    return vb_figures_get_us(row->bytes, preset, error);
}

// Thousands a second; `count` ports.
static double run_get_rate(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                           char *error)
{
    struct vb_cost_preset own = *preset;
    struct vb_cost_summary s;

    own.ports = row->count;
    return run_gets(GETS, 0, row->bytes, &own, &s, error) ? 1e3 / us(s.card_ps) : -1;
}

// A key that is in the second bucket, which the same queue looks at after the first: what that
// adds.
static double run_second(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                         char *error)
{
    struct vb_cost_summary one, two;

    if (!run_gets(1, 0, row->bytes, preset, &one, error) ||
        !run_gets(2, 1, row->bytes, preset, &two, error))
        return -1;
    return us(two.latency_ps - one.latency_ps);
}

// ---- our own programs: RedN's for lists and for buckets in parallel are not published

// The answer to one request.
static double price_request(struct vb_image *image, const struct vb_cost_preset *preset,
                            void (*fill)(struct vb_machine *m, const struct vb_image *image,
                                         uint32_t n),
                            uint32_t n, char *error)
{
    const struct vb_machine_opts machine = {.seed = 1, .shared_bytes = 4096};
    const struct vb_cost_opts opts = {.managed_client = true};
    struct vb_machine *m = image ? vb_machine_create(image, &machine, error) : NULL;
    struct vb_cost_summary s = {0};
    struct vb_cost *cost = NULL;

    if (m) {
        fill(m, image, n);
        cost = vb_cost_watch(m, image, &machine, preset, &opts, error);
    }
    if (cost)
        vb_cost_summary(cost, &s);
    if (cost && s.replies != 1)
        snprintf(error, VB_COST_TEXT, "the request was not answered");
    vb_cost_free(cost);
    vb_machine_destroy(m);
    if (image)
        vb_image_destroy(image);
    return s.replies == 1 ? us(s.latency_ps) : -1;
}

static const uint8_t the_key[VB_HASH_KEY_BYTES] = "key 1";

static uint64_t address_of(struct vb_machine *m, const struct vb_image *image, const char *region)
{
    return vb_machine_address(m, (uint32_t)vb_image_find_region(image, region));
}

// A list with the key in its n-th node, and the question for it.
static void fill_list(struct vb_machine *m, const struct vb_image *image, uint32_t n)
{
    uint64_t index = address_of(m, image, "index");
    struct vb_list_node *node =
        (void *)vb_machine_data(m, (uint32_t)vb_image_find_region(image, "index"));
    uint8_t request[VB_LIST_REQUEST_MAX];

    for (uint32_t i = 0; i <= NODES; i++) {
        node[i] = vb_list_end(index + (i < NODES ? i + 1 : i) * sizeof *node);
        memset(node[i].key, (int)i + 1, sizeof node[i].key);
    }
    node[n].addr = htobe64(address_of(m, image, "items"));
    node[n].len_again = htobe32(VALUE);
    vb_put_be24(node[n].len, VALUE);
    vb_hash_store_key(node[n].key, the_key);
    uint32_t len = vb_list_ask(request, index, the_key, NODES);
    vb_machine_send(m, (uint32_t)vb_image_find_queue(image, "K"), request, len);
}

double vb_figures_list_us(uint32_t node, bool stops, const struct vb_cost_preset *preset,
                          char *error)
{
    const struct vb_list_opts opts = {
        .slots = 2, .value_max = VALUE, .nodes = NODES, .stops = stops};
    return price_request(vb_offload_list_walk(&opts, error), preset, fill_list, node, error);
}

// Two buckets with the key in the second, or one.
static void fill_buckets(struct vb_machine *m, const struct vb_image *image, uint32_t n)
{
    uint64_t index = address_of(m, image, "index");
    struct vb_hash_bucket *bucket =
        (void *)vb_machine_data(m, (uint32_t)vb_image_find_region(image, "index"));
    struct vb_hash_request2 request = {0};

    bucket[1] = (struct vb_hash_bucket){.addr = htobe64(address_of(m, image, "items")),
                                        .len = htobe32(VALUE),
                                        .len_again = htobe32(VALUE)};
    vb_hash_store_key(bucket[1].key, the_key);
    memcpy(request.first.key, the_key, sizeof the_key);
    memcpy(request.second.key, the_key, sizeof the_key);
    vb_put_be64(request.first.bucket, index + (n == 1 ? sizeof *bucket : 0));
    vb_put_be64(request.second.bucket, index + sizeof *bucket);
    vb_machine_send(m, (uint32_t)vb_image_find_queue(image, "K"), &request,
                    n == 1 ? sizeof request.first : sizeof request);
}

// What a second bucket adds to our get.
static double run_two(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                      char *error)
{
    struct vb_hash_opts opts = {.slots = 2, .value_max = VALUE};
    double one = price_request(vb_offload_hash_get(&opts, error), preset, fill_buckets, 1, error);
    opts.way = (enum vb_hash_way)row->count;
    double two =
        one < 0 ? -1
                : price_request(vb_offload_hash_get(&opts, error), preset, fill_buckets, 2, error);
    return two < 0 ? -1 : two - one;
}

// Keys in any of eight nodes, in the mean: READs of one node after the other, against the chain.
static double run_chase(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    struct vb_cost_summary read;
    double sum = 0;

    if (!price(vb_figures_assemble(vb_figures_verb(row->entry, false), error), preset, 1, &read,
               error))
        return -1;
    for (uint32_t n = 0; n < NODES; n++) {
        double walk = vb_figures_list_us(n, false, preset, error);
        if (walk < 0)
            return -1;
        sum += walk;
    }
    return us(read.latency_ps) * NODES * (NODES + 1) / 2 / sum;
}

// ---- the rows

#define BYTES_16  "00112233445566778899aabbccddeeff"
#define BYTES_64  BYTES_16 BYTES_16 BYTES_16 BYTES_16
#define WRITE_64  "write near+64 <- near:64"
#define READ_64   "read far -> near:64 signaled"
#define INPUT     VB_MARK_INPUT
#define FITTED    VB_MARK_FITTED
#define PREDICTED VB_MARK_PREDICTED

const struct vb_figures_row vb_figures_redn[] = {
    {"table 1", "ConnectX-3, WRITE", "M/s", 15, INPUT, run_card, NULL, WRITE_64, 0, 0},
    {"table 1", "ConnectX-5, WRITE", "M/s", 63, INPUT, run_card, vb_measure_flood, WRITE_64, 1, 0},
    {"table 1", "ConnectX-6, WRITE", "M/s", 112, INPUT, run_card, NULL, WRITE_64, 2, 0},
    {"table 2", "if, entries", "", 5, INPUT, run_count, NULL, NULL, false, 0},
    {"table 2", "while, recycled, entries", "", 9, INPUT, run_count, NULL, NULL, true, 0},
    {"figure 7", "WRITE 64 B", "us", 1.6, INPUT, run_verb, vb_measure_verb,
     "write far <- inline " BYTES_64 " signaled", VB_PERF_WRITE, 0},
    {"figure 7", "READ 64 B", "us", 1.8, INPUT, run_verb, vb_measure_verb, READ_64, VB_PERF_READ,
     0},
    {"figure 8", "NOOP", "us", 1.21, INPUT, run_noop, vb_measure_noop, "write far signaled", 0, 0},
    {"figure 8", "one more, queue order", "us", 0.17, INPUT, run_order, vb_measure_order, NULL,
     VB_ORDER_QUEUE, 0},
    {"figure 8", "one more, completion order", "us", 0.19, INPUT, run_order, vb_measure_order, NULL,
     VB_ORDER_COMPLETION, 0},
    {"figure 8", "one more, doorbell order", "us", 0.54, INPUT, run_order, vb_measure_order, NULL,
     VB_ORDER_DOORBELL, 0},
    {"table 3", "CAS", "M/s", 8.4, INPUT, run_flood, vb_measure_flood,
     "cas near compare 1 swap 1 -> near+8:8", 0, 0},
    {"table 3", "ADD", "M/s", 8.4, INPUT, run_flood, vb_measure_flood,
     "fadd near add 1 -> near+8:8", 0, 0},
    {"table 3", "WRITE", "M/s", 63, INPUT, run_flood, vb_measure_flood, WRITE_64, 0, 0},
    {"table 3", "READ", "M/s", 65, PREDICTED, run_flood, vb_measure_flood,
     "read near+64 -> near:64", 0, 0},
    {"table 3", "MAX", "M/s", 63, PREDICTED, run_flood, vb_measure_flood,
     "write.max near+64 <- near:16, near+16:16", 0, 0},
    {"table 3", "if", "M/s", 0.7, PREDICTED, run_ifs, vb_measure_ifs, NULL, false, 0},
    {"table 3", "while, recycled (written out)", "M/s", 0.3, PREDICTED, run_ifs, vb_measure_ifs,
     NULL, true, 0},
    {"table 4", "hash get, 64 B, one port", "K/s", 500, FITTED, run_get_rate, vb_measure_rate, NULL,
     1, 64},
    {"table 4", "hash get, 1 KB, one port", "K/s", 500, FITTED, run_get_rate, vb_measure_rate, NULL,
     1, 1024},
    {"table 4", "hash get, 64 B, two ports", "K/s", 1000, FITTED, run_get_rate, NULL, NULL, 2, 64},
    {"table 4", "hash get, 64 KB, one port", "K/s", 180, INPUT, run_get_rate, vb_measure_rate, NULL,
     1, 65536},
    {"table 4", "hash get, 64 KB, two ports", "K/s", 190, INPUT, run_get_rate, NULL, NULL, 2,
     65536},
    {"table 5", "hash get, 64 B, median", "us", 5.7, FITTED, run_get, vb_measure_get, NULL, 0, 64},
    {"table 5", "hash get, 4 KB, median", "us", 6.7, FITTED, run_get, vb_measure_get, NULL, 0,
     4096},
    {"figure 10", "hash get, 64 KB, average", "us", 16.22, FITTED, run_get, vb_measure_get, NULL, 0,
     65536},
    {"figure 11", "a second bucket, sequential, adds at least", "us", 3, PREDICTED, run_second,
     vb_measure_two, NULL, VB_HASH_SEQUENTIAL, 64},
    {"figure 11", "a second bucket, in parallel, adds (\"similar\")", "us", 0, PREDICTED, run_two,
     vb_measure_two, NULL, VB_HASH_PARALLEL, 64},
    {"figure 13", "lists of 8: READ by READ / chain, at most", "x", 2, PREDICTED, run_chase,
     vb_measure_chase, READ_64, 0, 0},
};

const uint32_t vb_figures_redn_rows = sizeof vb_figures_redn / sizeof *vb_figures_redn;

const char *const vb_figures_redn_missing[] = {
    "table 3, unrolled while: the same program as `if`",
    "table 5, 99th percentiles: the model has no jitter",
    "figure 7, CAS, ADD and MAX on a client's memory: the paper says \"about 1.8\" and \"similar\"",
    "figure 10, the other sizes and the baselines: no numbers in the text; --plots draws them",
    "figure 13, times: none in the text; --plots draws them",
    NULL,
};

const char *const vb_figures_redn_misfits[] = {
    "figure 11: the model charges `cold` once, for the first message after a pause; RedN's second "
    "look-up probably finds the card cold, too (with that it would be 2.98 and 2.78)",
    "figure 11, in parallel, preset A: by its reading all queues of a program share a lane; our "
    "program for it has a WAIT and an opening entry more, too",
    "figure 13: a READ from the client takes what figure 7 says, without its CPU and without "
    "`cold`, and our walk opens the client's queue at each node; RedN's program is not published",
    "table 3, while, preset B: two READs and an ADD more, one under way at a time, with the longer "
    "`read` of B; the paper's 0.3 has one digit",
    NULL,
};
