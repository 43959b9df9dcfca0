// SPDX-License-Identifier: Apache-2.0
// Programs of clients, the memory that they share, and what they are asked.
#include "tenant.h"

#include "base/bytes.h"

#include <string.h>

enum {
    BUCKET_AT = 128, // in the index, behind the list
    NODES = 4,
    NODES_COPIED = 17,
    MOV_MEMORY = 64,
};

static const uint8_t good_key[VB_HASH_KEY_BYTES] = {1, 2, 3, 4, 5, 6};

// Moves by every address mode, through pointers and offsets that the client sends.
static struct vb_image *make_mov(char *error)
{
    struct vb_chain *c = vb_chain_begin("mov");
    struct vb_chain_queue k =
        vb_chain_queue(c, "K", &(struct vb_chain_queue_opts){.peer = true, .recv_sge = 3});
    struct vb_chain_region memory = vb_chain_region(c, "memory", VB_CHAIN_OWN, MOV_MEMORY, true);
    struct vb_flow *f = vb_flow_begin(c, "W");
    struct vb_var a = vb_flow_var(f, 1), b = vb_flow_var(f, 2), offset = vb_flow_var(f, 8);
    struct vb_var at = vb_flow_pointer(f, vb_in(memory, 8));
    const struct vb_part part[] = {
        {vb_flow_place(f, at), 8}, {vb_flow_place(f, offset), 8}, {vb_flow_place(f, a), 8}};

    vb_flow_load(f, b, memory, at, 8);
    vb_flow_store(f, memory, at, a, 4);
    vb_flow_load_indexed(f, b, memory, at, offset, 3);
    vb_flow_store_indexed(f, memory, at, offset, b, 8);
    vb_chain_recv(c, k, part, 3);
    vb_flow_end_program(f);
    return vb_chain_finish(c, error);
}

static struct vb_image *make(enum tenant_kind kind)
{
    char error[VB_IMAGE_TEXT];
    struct vb_hash_opts hash = {.slots = TENANT_SLOTS, .value_max = TENANT_VALUE_MAX};
    struct vb_list_opts list = {.slots = TENANT_SLOTS,
                                .value_max = TENANT_VALUE_MAX,
                                .nodes = kind == TENANT_WALK_COPIES ? NODES_COPIED : NODES,
                                .stops = kind != TENANT_WALK};
    struct vb_image *image;

    if (kind <= TENANT_HASH_PAR) {
        hash.way = (enum vb_hash_way)kind;
        image = vb_offload_hash_get(&hash, error);
    } else if (kind == TENANT_MOV) {
        image = make_mov(error);
    } else {
        image = kind == TENANT_LOOP ? vb_offload_list_loop(&list, error)
                                    : vb_offload_list_walk(&list, error);
    }
    tenant_require(image != NULL);
    return image;
}

// Building one takes longer than most inputs do: they are kept.
const struct vb_image *tenant_image(enum tenant_kind kind)
{
    static struct vb_image *all[TENANT_KINDS];

    if (!all[kind])
        all[kind] = make(kind);
    return all[kind];
}

// One good list, one good bucket; behind them addresses that an index should not have: of itself,
// of what is nobody's, and just outside the items; and a list that runs in a circle.
void tenant_fill(struct tenant_server *s)
{
    uint64_t at = s->index.addr, value = s->items.addr;
    struct vb_list_node node = {.next = htobe64(at + sizeof node), .addr = htobe64(value)};
    struct vb_hash_bucket bucket = {.addr = htobe64(value)};

    for (uint32_t i = 0; i < TENANT_SHARED; i++) {
        s->index.at[i] = (uint8_t)(i * 7);
        s->items.at[i] = (uint8_t)(i * 31 + 5);
        s->other.at[i] = (uint8_t)~i;
    }
    for (uint32_t i = 256; i + 32 <= TENANT_SHARED; i += 32) {
        const uint64_t bad[] = {at + i, s->other.addr, value + TENANT_SHARED - 8, value - 8};
        vb_put_be64(s->index.at + i, bad[i / 32 % 4]);
        vb_put_be64(s->index.at + i + 8, bad[i / 128 % 4]);
    }
    node.len_again = bucket.len = bucket.len_again = htobe32(TENANT_VALUE);
    vb_put_be24(node.len, TENANT_VALUE);
    vb_hash_store_key(node.key, good_key);
    vb_hash_store_key(bucket.key, good_key);
    memcpy(s->index.at, &node, sizeof node);
    node = vb_list_end(at + sizeof node);
    memcpy(s->index.at + sizeof node, &node, sizeof node);
    memcpy(s->index.at + BUCKET_AT, &bucket, sizeof bucket);
    memcpy(s->before[0], s->index.at, TENANT_SHARED);
    memcpy(s->before[1], s->items.at, TENANT_SHARED);
    memcpy(s->before[2], s->other.at, TENANT_SHARED);
}

uint32_t tenant_good_request(const struct tenant_server *s, enum tenant_kind kind, uint8_t *request)
{
    struct vb_hash_request2 two;

    if (kind == TENANT_MOV) {
        vb_put_be64(request, s->tenant[0].data[0].addr + 8);
        vb_put_be64(request + 8, 16);
        vb_put_be64(request + 16, 0x1122334455667788);
        return 24;
    }
    if (kind > TENANT_HASH_PAR)
        return vb_list_ask(request, s->index.addr, good_key,
                           kind == TENANT_LOOP          ? 0
                           : kind == TENANT_WALK_COPIES ? NODES_COPIED
                                                        : NODES);
    memcpy(two.first.key, good_key, sizeof good_key);
    vb_put_be64(two.first.bucket, s->index.addr + BUCKET_AT);
    two.second = two.first;
    memcpy(request, &two, sizeof two);
    return kind == TENANT_HASH ? sizeof two.first : sizeof two;
}
