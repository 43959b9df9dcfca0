// SPDX-License-Identifier: Apache-2.0
// RedN's experiments, one after the other.
#include "cli/figures_redn.h"

#include "base/bytes.h"
#include "cli/figures_measure.h"
#include "cli/figures_program.h"
#include "cost/model.h"
#include "verbena/offload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GETS = 64, // of a rate
    NODES = VB_LIST_NODES,
    VALUE = 64,
    FEW = 20, // `if`s of the shorter of two programs
    MANY = 40,
    FEW_NOPS = 10,
    MANY_NOPS = 20,
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

// A difference may be negative.
static double us_more(uint64_t many_ps, uint64_t few_ps)
{
    return us(many_ps) - us(few_ps);
}

static double run_verb(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                       char *error)
{
    struct vb_cost_summary s;
    struct vb_image *image = vb_figures_assemble(vb_figures_verb(row->entry, false), error);
    return price(image, preset, 1, &s, error) ? us(s.latency_ps) : NAN;
}

// The same on this machine's memory.
static double run_local_verb(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                             char *error)
{
    struct vb_cost_summary s;
    struct vb_image *image = vb_figures_assemble(vb_figures_verb(row->entry, true), error);
    return price(image, preset, 1, &s, error) ? us(s.latency_ps) : NAN;
}

// What one more entry adds.
static double run_order(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    enum vb_figures_order order = (enum vb_figures_order)row->kind;
    struct vb_cost_summary few, many;

    if (!price(vb_figures_assemble(vb_figures_nops(FEW_NOPS, order), error), preset, 1, &few,
               error) ||
        !price(vb_figures_assemble(vb_figures_nops(MANY_NOPS, order), error), preset, 1, &many,
               error))
        return NAN;
    return us_more(many.latency_ps, few.latency_ps) / (MANY_NOPS - FEW_NOPS);
}

// Many queues, so that the card is the limit: millions a second.
static double run_flood(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    struct vb_cost_summary s;
    struct vb_image *image =
        vb_figures_assemble(vb_figures_flood(row->entry, VB_FLOOD_QUEUES), error);
    return price(image, preset, 1, &s, error) ? VB_FLOOD_ENTRIES / us(s.end_ps) : NAN;
}

// Two programs of `if`s, of which one has more.
static bool price_ifs(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                      struct vb_cost_summary *few, struct vb_cost_summary *many, char *error)
{
    bool recycled = row->kind;

    return price(vb_figures_assemble(vb_figures_ifs(FEW, recycled), error), preset, 1, few,
                 error) &&
           price(vb_figures_assemble(vb_figures_ifs(MANY, recycled), error), preset, 1, many,
                 error);
}

static double run_ifs(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                      char *error)
{
    struct vb_cost_summary few, many;

    if (!price_ifs(row, preset, &few, &many, error))
        return NAN;
    return (MANY - FEW) / us_more(many.operation_ps, few.operation_ps);
}

// Table 2: entries of one more.
static double run_count(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    struct vb_cost_summary few, many;

    if (!price_ifs(row, preset, &few, &many, error))
        return NAN;
    return ((double)many.entries - few.entries) / (MANY - FEW);
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
    return run_gets(1, 0, bytes, preset, &s, error) ? us(s.latency_ps) : NAN;
}

static double run_get(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                      char *error)
{
    return vb_figures_get_us(row->bytes, preset, error);
}

// Thousands a second of a card full of such programs.
static double run_get_rate(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                           char *error)
{
    struct vb_cost_summary s;
    return run_gets(GETS, 0, row->bytes, preset, &s, error) ? 1e3 / us(s.card_ps) : NAN;
}

// A key that is in the second bucket, which the same queue looks at after the first: what that
// adds.
static double run_second(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                         char *error)
{
    struct vb_cost_summary one, two;

    if (!run_gets(1, 0, row->bytes, preset, &one, error) ||
        !run_gets(2, 1, row->bytes, preset, &two, error))
        return NAN;
    return us_more(two.latency_ps, one.latency_ps);
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
    return s.replies == 1 ? us(s.latency_ps) : NAN;
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
    if (isnan(one))
        return NAN;
    opts.way = (enum vb_hash_way)row->kind;
    return price_request(vb_offload_hash_get(&opts, error), preset, fill_buckets, 2, error) - one;
}

// Keys in any node of the list, in the mean: READs of one node after the other, against the chain.
static double run_chase(const struct vb_figures_row *row, const struct vb_cost_preset *preset,
                        char *error)
{
    struct vb_cost_summary read;
    double sum = 0;

    if (!price(vb_figures_assemble(vb_figures_verb(row->entry, false), error), preset, 1, &read,
               error))
        return NAN;
    for (uint32_t n = 0; n < row->nodes; n++)
        sum += vb_figures_list_us(n, false, preset, error);
    return us(read.latency_ps) * row->nodes * (row->nodes + 1) / 2 / sum;
}

// ---- the rows

#define BYTES_16  "00112233445566778899aabbccddeeff"
#define BYTES_64  BYTES_16 BYTES_16 BYTES_16 BYTES_16
#define WRITE_64  "write near+64 <- near:64"
#define READ_64   "read far -> near:64 signaled"
#define NOOP      "write far signaled" // of nothing, as RedN's is
#define INPUT     VB_MARK_INPUT
#define FITTED    VB_MARK_FITTED
#define PREDICTED VB_MARK_PREDICTED

#define ONE_PORT  VB_CARD_CONNECTX5
#define TWO_PORTS VB_CARD_CONNECTX5_TWO_PORTS

static const char why_flood[] =
    "connectx5-a runs one entry at a time of all queues of a program (`lanes program`), and "
    "this program has many queues; the rate was measured on queues that have nothing to do "
    "with each other";
static const char why_noop[] =
    "the paper does not say whether its NOOP crossed the network: connectx5-a is worked out "
    "as if it had not, connectx5-b as if it had";
static const char why_while[] =
    "two READs and an ADD more than `if`, of which one is under way at a time, with the longer "
    "`read` of connectx5-b; the paper's value has one digit";
static const char why_second[] =
    "the model charges `cold` once, for the first message after a pause; RedN's second "
    "look-up probably finds the card cold, too, which would add `cold` once more";
static const char why_parallel[] =
    "the paper has no number; by the reading of connectx5-a all queues of a program share a "
    "lane, and our program has a WAIT and an opening entry more than RedN's";
static const char why_list[] =
    "a READ from the client takes what figure 7 says, without its CPU and without `cold`, and "
    "our walk opens the client's queue at each node; RedN's program is not published";

const char *const vb_figures_preset[VB_CARDS][VB_READINGS] = {
    [VB_CARD_CONNECTX5] = {"connectx5-a", "connectx5-b"},
    [VB_CARD_CONNECTX5_TWO_PORTS] = {NULL, "connectx5-dual-port"},
    [VB_CARD_CONNECTX3] = {NULL, "connectx3"},
    [VB_CARD_CONNECTX6] = {NULL, "connectx6"},
};

// A row begins with the paper's table or figure and its value there.
const struct vb_figures_row vb_figures_redn[] = {
    {"table 1", "ConnectX-3, WRITE", "M/s", 15, INPUT, VB_CARD_CONNECTX3, run_flood,
     .entry = WRITE_64},
    {"table 1", "ConnectX-5, WRITE", "M/s", 63, INPUT, ONE_PORT, run_flood, .local = vb_local_flood,
     .entry = WRITE_64, .why = why_flood},
    {"table 1", "ConnectX-6, WRITE", "M/s", 112, INPUT, VB_CARD_CONNECTX6, run_flood,
     .entry = WRITE_64},
    {"table 2", "if, entries", "", 5, INPUT, ONE_PORT, run_count, .kind = false},
    {"table 2", "while, recycled, entries", "", 9, INPUT, ONE_PORT, run_count, .kind = true},
    {"figure 7", "WRITE", "us", 1.6, INPUT, ONE_PORT, run_verb, vb_measure_verb,
     .entry = "write far <- inline " BYTES_64 " signaled", .kind = VB_PERF_WRITE, .bytes = VALUE},
    {"figure 7", "READ", "us", 1.8, INPUT, ONE_PORT, run_verb, vb_measure_verb, .entry = READ_64,
     .kind = VB_PERF_READ, .bytes = VALUE},
    {"figure 8", "NOOP, if it stays on the card", "us", 1.21, INPUT, ONE_PORT, run_local_verb,
     .local = vb_local_verb, .entry = NOOP, .why = why_noop},
    {"figure 8", "NOOP, if it crosses the network", "us", 1.21, INPUT, ONE_PORT, run_verb,
     .entry = NOOP, .why = why_noop},
    {"figure 8", "one more, queue order", "us", 0.17, INPUT, ONE_PORT, run_order,
     .local = vb_local_order, .kind = VB_ORDER_QUEUE},
    {"figure 8", "one more, completion order", "us", 0.19, INPUT, ONE_PORT, run_order,
     .local = vb_local_order, .kind = VB_ORDER_COMPLETION},
    {"figure 8", "one more, doorbell order", "us", 0.54, INPUT, ONE_PORT, run_order,
     .local = vb_local_order, .kind = VB_ORDER_DOORBELL},
    {"table 3", "CAS", "M/s", 8.4, INPUT, ONE_PORT, run_flood, .local = vb_local_flood,
     .entry = "cas near compare 1 swap 1 -> near+8:8", .why = why_flood},
    {"table 3", "ADD", "M/s", 8.4, INPUT, ONE_PORT, run_flood, .local = vb_local_flood,
     .entry = "fadd near add 1 -> near+8:8", .why = why_flood},
    {"table 3", "WRITE", "M/s", 63, INPUT, ONE_PORT, run_flood, .local = vb_local_flood,
     .entry = WRITE_64, .why = why_flood},
    // The units' `occupancy` is all that limits these two, and that is worked out from WRITE.
    {"table 3", "READ", "M/s", 65, INPUT, ONE_PORT, run_flood, .local = vb_local_flood,
     .entry = "read near+64 -> near:64", .why = why_flood},
    {"table 3", "MAX", "M/s", 63, INPUT, ONE_PORT, run_flood, .local = vb_local_flood,
     .entry = "write.max near+64 <- near:16, near+16:16", .why = why_flood},
    {"table 3", "if", "M/s", 0.7, PREDICTED, ONE_PORT, run_ifs, .local = vb_local_ifs,
     .kind = false},
    {"table 3", "while, recycled (written out)", "M/s", 0.3, PREDICTED, ONE_PORT, run_ifs,
     .local = vb_local_ifs, .kind = true, .why = why_while},
    {"table 4", "hash get, one port", "K/s", 500, FITTED, ONE_PORT, run_get_rate, vb_measure_rate,
     .bytes = VALUE},
    {"table 4", "hash get, one port", "K/s", 500, FITTED, ONE_PORT, run_get_rate, vb_measure_rate,
     .bytes = 1024},
    {"table 4", "hash get, two ports", "K/s", 1000, FITTED, TWO_PORTS, run_get_rate,
     .bytes = VALUE},
    {"table 4", "hash get, one port", "K/s", 180, INPUT, ONE_PORT, run_get_rate, vb_measure_rate,
     .bytes = 65536},
    {"table 4", "hash get, two ports", "K/s", 190, INPUT, TWO_PORTS, run_get_rate, .bytes = 65536},
    {"table 5", "hash get, median", "us", 5.7, FITTED, ONE_PORT, run_get, vb_measure_get,
     .bytes = VALUE},
    {"table 5", "hash get, median", "us", 6.7, FITTED, ONE_PORT, run_get, vb_measure_get,
     .bytes = 4096},
    {"figure 10", "hash get, average", "us", 16.22, FITTED, ONE_PORT, run_get, vb_measure_get,
     .bytes = 65536},
    {"figure 11", "a second bucket, sequential, adds at least", "us", 3, PREDICTED, ONE_PORT,
     run_second, vb_measure_two, .kind = VB_HASH_SEQUENTIAL, .bytes = VALUE, .why = why_second},
    {"figure 11", "a second bucket, in parallel, adds (\"similar\")", "us", 0, PREDICTED, ONE_PORT,
     run_two, vb_measure_two, .kind = VB_HASH_PARALLEL, .bytes = VALUE, .why = why_parallel},
    {"figure 13", "READ by READ / chain, at most", "x", 2, PREDICTED, ONE_PORT, run_chase,
     vb_measure_chase, .entry = READ_64, .bytes = VALUE, .nodes = NODES, .why = why_list},
};

const uint32_t vb_figures_redn_rows = sizeof vb_figures_redn / sizeof *vb_figures_redn;

const char *const vb_figures_redn_missing[] = {
    "table 3, unrolled while: the same program as `if`",
    "table 5, the highest percentiles: the model has no jitter",
    "figure 7, CAS, ADD and MAX on a client's memory: the paper gives no number of their own",
    "figure 10, the other sizes and the baselines: no numbers in the text; --plots draws them",
    "figure 13, times: none in the text; --plots draws them",
    NULL,
};
