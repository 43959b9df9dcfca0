// SPDX-License-Identifier: Apache-2.0
// What the entries of our offloads cost the core when a recycled program serves requests. The same
// requests go to two machines: one polls, as a NIC does, and is what callgrind should count
// (`--toggle-collect=vb_loop_run`: the engine of loops, with its waits, openings and completions);
// the other one steps, and says how many entries of loops that were, and of which kinds.
// offload_cost NAME; see bench/entry_cost.py.
#include "base/bytes.h"
#include "chain/machine.h"
#include "verbena/offload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REQUESTS = 400,
    NODES = 8,
    VALUE = 64,
    STEPS_MAX = 1000000
};

struct offload {
    const char *name;
    enum vb_hash_way way;
    bool walks; // a list, to its last node; otherwise a bucket
    bool loops; // and round for each node
};

static const struct offload offloads[] = {
    {"hash_get", VB_HASH_ONE, false, false},
    {"hash_get_seq", VB_HASH_SEQUENTIAL, false, false},
    {"hash_get_par", VB_HASH_PARALLEL, false, false},
    {"list_walk", VB_HASH_ONE, true, false},
    {"list_loop", VB_HASH_ONE, true, true},
};

static const uint8_t key[VB_HASH_KEY_BYTES] = "key 1";

static struct vb_image *build(const struct offload *o, char *error)
{
    const struct vb_list_opts list = {
        .slots = o->loops ? 1 : 8, .value_max = VALUE, .nodes = NODES, .stops = true};

    if (!o->walks)
        return vb_offload_hash_get(
            &(struct vb_hash_opts){.slots = 8, .value_max = VALUE, .way = o->way}, error);
    return o->loops ? vb_offload_list_loop(&list, error) : vb_offload_list_walk(&list, error);
}

struct rig {
    const struct offload *offload;
    struct vb_machine *m;
    uint32_t k;            // the client's queue
    uint64_t index, items; // addresses
};

// The key is in the second bucket, or in the list's last node.
static void fill(struct rig *r, uint8_t *data)
{
    struct vb_hash_bucket *bucket = (void *)data;
    struct vb_list_node *node = (void *)data;

    for (uint32_t i = 0; r->offload->walks && i < NODES; i++) {
        node[i] = vb_list_end(r->index + (i + 1) * sizeof *node);
        memset(node[i].key, (int)i, sizeof node[i].key);
        if (i + 1 < NODES)
            continue;
        node[i].addr = htobe64(r->items);
        node[i].len_again = htobe32(VALUE);
        vb_put_be24(node[i].len, VALUE);
        vb_hash_store_key(node[i].key, key);
    }
    if (r->offload->walks) {
        node[NODES] = vb_list_end(r->index + NODES * sizeof *node);
        return;
    }
    bucket[1] = (struct vb_hash_bucket){
        .addr = htobe64(r->items), .len = htobe32(VALUE), .len_again = htobe32(VALUE)};
    vb_hash_store_key(bucket[1].key, key);
}

static void ask(const struct rig *r)
{
    struct vb_hash_request2 request = {0};
    uint8_t walk[VB_LIST_REQUEST_MAX];

    if (r->offload->walks) {
        uint32_t len = vb_list_ask(walk, r->index, key, r->offload->loops ? 0 : NODES);
        vb_machine_send(r->m, r->k, walk, len);
        return;
    }
    bool one = r->offload->way == VB_HASH_ONE;
    memcpy(request.first.key, key, sizeof key);
    memcpy(request.second.key, key, sizeof key);
    vb_put_be64(request.first.bucket, r->index + (one ? sizeof(struct vb_hash_bucket) : 0));
    vb_put_be64(request.second.bucket, r->index + sizeof(struct vb_hash_bucket));
    vb_machine_send(r->m, r->k, &request, one ? sizeof request.first : sizeof request);
}

static void open_rig(struct rig *r, const struct vb_image *image, const struct offload *o)
{
    char error[VB_IMAGE_TEXT] = "";
    uint32_t index = (uint32_t)vb_image_find_region(image, "index");
    uint32_t items = (uint32_t)vb_image_find_region(image, "items");

    *r = (struct rig){
        .offload = o,
        .m = vb_machine_create(image, &(struct vb_machine_opts){.shared_bytes = 4096}, error),
        .k = (uint32_t)vb_image_find_queue(image, "K")};
    if (!r->m) {
        fprintf(stderr, "offload_cost: %s\n", error);
        exit(1);
    }
    r->index = vb_machine_address(r->m, index);
    r->items = vb_machine_address(r->m, items);
    fill(r, vb_machine_data(r->m, index));
}

static void take_reply(const struct rig *r)
{
    struct vb_machine_reply reply;

    if (!vb_machine_take(r->m, r->k, &reply) || reply.imm != VALUE) {
        fprintf(stderr, "offload_cost: a wrong reply\n");
        exit(1);
    }
}

// Entries of loops that one request takes, by kind.
static uint64_t count_entries(const struct rig *r, const struct vb_image *image, uint64_t kind[256])
{
    struct vb_step step;
    uint32_t unit;
    uint64_t entries = 0;

    for (uint32_t steps = 0; steps < STEPS_MAX && vb_machine_step(r->m, &step, &unit); steps++) {
        int queue =
            unit != UINT32_MAX && step.kind == VB_STEP_EXEC ? vb_machine_queue(r->m, step.qpn) : -1;
        if (queue < 0 || image->queue[queue].kind != VB_QUEUE_LOOP)
            continue;
        entries++;
        kind[step.opcode]++;
    }
    return entries;
}

static int measure(const struct offload *o)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = build(o, error);
    uint64_t entries = 0, kind[256] = {0};
    struct rig polls, steps;

    if (!image) {
        fprintf(stderr, "offload_cost: %s\n", error);
        return 1;
    }
    open_rig(&polls, image, o);
    open_rig(&steps, image, o);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        ask(&polls);
        vb_machine_poll(polls.m);
        take_reply(&polls);
        ask(&steps);
        entries += count_entries(&steps, image, kind);
        take_reply(&steps);
    }
    printf("%s: %llu entries of loops", o->name, (unsigned long long)entries);
    for (uint32_t i = 0; i < 256; i++)
        if (kind[i])
            printf(", %.2f of 0x%02x", (double)kind[i] / REQUESTS, i);
    printf(" in each of %d requests\n", REQUESTS);
    vb_machine_destroy(polls.m);
    vb_machine_destroy(steps.m);
    vb_image_destroy(image);
    return 0;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof offloads / sizeof offloads[0]; i++)
        if (strcmp(offloads[i].name, argv[1]) == 0)
            return measure(&offloads[i]);
    fprintf(stderr, "offload_cost: which offload?");
    for (size_t i = 0; i < sizeof offloads / sizeof offloads[0]; i++)
        fprintf(stderr, " %s", offloads[i].name);
    fprintf(stderr, "\n");
    return 2;
}
