// SPDX-License-Identifier: Apache-2.0
// A list walk on a machine without ports, its list, and its client.
#include "list_rig.h"

#include "base/bytes.h"
#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void list_key(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (n + 1) * 0x9e3779b97f4bull;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}

uint32_t list_length(uint32_t n)
{
    return 1 + n * 37 % LIST_VALUE_MAX;
}

uint8_t list_byte(uint32_t n, uint32_t at)
{
    return (uint8_t)(n * 31 + at);
}

uint64_t list_address(const struct list_rig *r, uint32_t n)
{
    return vb_machine_address(r->m, r->index) +
           (uint64_t)(n < r->nodes ? r->place[n] : r->nodes) * sizeof(struct vb_list_node);
}

static void shuffle(struct list_rig *r, uint64_t seed)
{
    struct vb_prng prng = {.state = seed};

    r->place = calloc(r->nodes + 1, sizeof *r->place);
    assert_non_null(r->place);
    for (uint32_t n = 0; n < r->nodes; n++) {
        uint32_t with = (uint32_t)vb_prng_below(&prng, n + 1);
        r->place[n] = r->place[with];
        r->place[with] = n;
    }
}

static void fill(struct list_rig *r)
{
    struct vb_list_node *index = (void *)vb_machine_data(r->m, r->index);
    uint8_t *items = vb_machine_data(r->m, r->items);

    for (uint32_t n = 0; n < r->nodes; n++) {
        struct vb_list_node *node = &index[r->place[n]];
        uint8_t key[VB_HASH_KEY_BYTES];
        list_key(n, key);
        node->next = htobe64(list_address(r, n + 1));
        node->addr =
            htobe64(vb_machine_address(r->m, r->items) + (uint64_t)r->place[n] * LIST_VALUE_MAX);
        node->len_again = htobe32(list_length(n));
        vb_put_be24(node->len, list_length(n));
        vb_hash_store_key(node->key, key);
        for (uint32_t i = 0; i < list_length(n); i++)
            items[r->place[n] * LIST_VALUE_MAX + i] = list_byte(n, i);
    }
    index[r->nodes] = vb_list_end(list_address(r, r->nodes));
}

void list_open(struct list_rig *r, struct vb_image *image, const struct vb_list_opts *opts,
               const struct vb_machine_opts *machine, uint32_t nodes)
{
    struct vb_machine_opts o = *machine;
    char error[VB_IMAGE_TEXT] = "";

    *r = (struct list_rig){.image = image,
                           .nodes = nodes,
                           .walk = opts->nodes,
                           .slots = opts->slots ? opts->slots : 8};
    o.shared_bytes = (uint64_t)(nodes + 1) * LIST_VALUE_MAX;
    // Counters start a few rounds of the greatest ring before where they shall wrap.
    if (o.start) {
        uint32_t ring = 1;
        for (uint32_t i = 0; i < image->queues; i++)
            ring = image->queue[i].blocks > ring ? image->queue[i].blocks : ring;
        o.start -= ring;
    }
    r->m = vb_machine_create(image, &o, error);
    if (!r->m)
        fail_msg("%s", error);
    r->w = (uint32_t)vb_image_find_queue(image, "W");
    r->k = (uint32_t)vb_image_find_queue(image, "K");
    r->index = (uint32_t)vb_image_find_region(image, "index");
    r->items = (uint32_t)vb_image_find_region(image, "items");
    r->client = (uint32_t)vb_image_find_region(image, "client");
    shuffle(r, machine->seed);
    fill(r);
}

void list_close(struct list_rig *r)
{
    vb_machine_destroy(r->m);
    vb_image_destroy(r->image);
    free(r->place);
}

void list_ask(struct list_rig *r, uint32_t n, uint32_t from)
{
    uint8_t key[VB_HASH_KEY_BYTES], request[VB_LIST_REQUEST_MAX];

    list_key(n, key);
    uint32_t len = vb_list_ask(request, list_address(r, from), key, r->walk);
    assert_int_equal(vb_machine_send(r->m, r->k, request, len), 0);
}

void list_expect(struct list_rig *r, uint32_t n)
{
    struct vb_machine_reply reply;
    bool hit = n != LIST_MISS;

    if (!vb_machine_take(r->m, r->k, &reply))
        fail_msg("request %u got no reply; W fault %u, K fault %u", r->answered,
                 vb_machine_fault(r->m, r->w), vb_machine_fault(r->m, r->k));
    assert_true(reply.with_imm);
    assert_int_equal(reply.imm, hit ? list_length(n) : VB_HASH_MISS);
    assert_int_equal(reply.len, hit ? list_length(n) : 0);
    const uint8_t *value =
        vb_machine_data(r->m, r->client) + (size_t)(r->answered % r->slots) * LIST_VALUE_MAX;
    for (uint32_t i = 0; hit && i < reply.len; i++)
        assert_int_equal(value[i], list_byte(n, i));
    r->answered++;
}

void list_expect_none(struct list_rig *r)
{
    struct vb_machine_reply reply;
    assert_false(vb_machine_take(r->m, r->k, &reply));
}
