// SPDX-License-Identifier: Apache-2.0
// What a server's programs look up: buckets, lists and values; and the reference that says what
// comes out of a request.
#include "sim/chain_world.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    VALUES = VB_CHAINS_BUCKETS + VB_CHAINS_NODES,
    LISTS_AT = VB_CHAINS_BUCKETS * sizeof(struct vb_hash_bucket),
    INDEX_BYTES = LISTS_AT + (VB_CHAINS_NODES + 1) * sizeof(struct vb_list_node),
    NO_VALUE = -1,
};

// The n-th key: all 48 bits differ from one to the next.
static void key_of(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (n + 1) * 0x9e3779b97f4aull;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}

// ---- filling

// Bucket and node n of a list have the value of this number; the keys go from one to the other.
static uint64_t value_at(const struct vb_chainnic *nic, uint32_t value)
{
    return nic->store.items->addr + (uint64_t)value * VB_CHAINS_VALUE_MAX;
}

static uint64_t node_at(const struct vb_chainnic *nic, uint32_t n)
{
    return nic->store.index->addr + LISTS_AT + (uint64_t)n * sizeof(struct vb_list_node);
}

static void fill_buckets(struct vb_chainnic *nic)
{
    for (uint32_t n = 0; n < VB_CHAINS_BUCKETS; n++) {
        struct vb_hash_bucket b = {.addr = htobe64(value_at(nic, n))};
        uint8_t key[VB_HASH_KEY_BYTES];
        b.len = b.len_again = htobe32(nic->store.len[n]);
        key_of(n / 2, key); // two buckets may hold a key: the first that is asked answers
        vb_hash_store_key(b.key, key);
        memcpy(nic->store.index->at + n * sizeof b, &b, sizeof b);
    }
}

// One long list; a request may begin anywhere in it.
static void fill_lists(struct vb_chainnic *nic)
{
    uint8_t *at = nic->store.index->at + LISTS_AT;
    struct vb_list_node node;

    for (uint32_t n = 0; n < VB_CHAINS_NODES; n++) {
        uint32_t value = VB_CHAINS_BUCKETS + n, len = nic->store.len[value];
        uint8_t key[VB_HASH_KEY_BYTES];
        node = (struct vb_list_node){.next = htobe64(node_at(nic, n + 1)),
                                     .addr = htobe64(value_at(nic, value)),
                                     .len_again = htobe32(len)};
        vb_put_be24(node.len, len);
        key_of(n, key);
        vb_hash_store_key(node.key, key);
        memcpy(at + n * sizeof node, &node, sizeof node);
    }
    node = vb_list_end(node_at(nic, VB_CHAINS_NODES));
    memcpy(at + VB_CHAINS_NODES * sizeof node, &node, sizeof node);
}

static uint8_t *copy(const struct vb_piece *p)
{
    uint8_t *bytes = malloc(p->len);
    if (bytes)
        memcpy(bytes, p->at, p->len);
    return bytes;
}

int vb_chainstore_create(struct vb_chainnic *nic)
{
    struct vb_chainstore *s = &nic->store;
    struct vb_chainworld *w = nic->world;
    uint32_t longest = 1u << (5 + vb_chainworld_draw(w, 6));

    s->index = vb_piece_create(nic, INDEX_BYTES, 0);
    s->items = vb_piece_create(nic, VALUES * VB_CHAINS_VALUE_MAX, 0);
    if (!s->index || !s->items)
        return -1;
    for (uint32_t i = 0; i < VALUES; i++)
        s->len[i] = 1 + vb_chainworld_draw(w, longest);
    for (uint32_t i = 0; i + 8 <= s->items->len; i += 8)
        vb_put_be64(s->items->at + i, vb_prng_next(&w->prng));
    fill_buckets(nic);
    fill_lists(nic);
    s->index_before = copy(s->index);
    s->items_before = copy(s->items);
    return s->index_before && s->items_before ? 0 : -1;
}

void vb_chainstore_check(struct vb_chainnic *nic)
{
    const struct vb_chainstore *s = &nic->store;

    if (memcmp(s->index->at, s->index_before, s->index->len) != 0 ||
        memcmp(s->items->at, s->items_before, s->items->len) != 0)
        vb_chainworld_violate(nic->world, "NIC %u: what its programs only read was changed",
                              nic->index);
}

void vb_chainstore_destroy(struct vb_chainnic *nic)
{
    free(nic->store.index_before);
    free(nic->store.items_before);
}

// ---- the reference

static bool bucket_has(uint32_t bucket, uint32_t key)
{
    return bucket / 2 == key;
}

static int find_hash(uint32_t key, const uint32_t *bucket, uint32_t buckets)
{
    for (uint32_t i = 0; i < buckets; i++)
        if (bucket_has(bucket[i], key))
            return (int)bucket[i];
    return NO_VALUE;
}

// At most `most` nodes; 0: all.
static int find_list(uint32_t key, uint32_t from, uint32_t most)
{
    for (uint32_t n = from; n < VB_CHAINS_NODES && (most == 0 || n - from < most); n++)
        if (n == key)
            return (int)(VB_CHAINS_BUCKETS + n);
    return NO_VALUE;
}

const uint8_t *vb_chainstore_value(const struct vb_chainnic *nic, uint32_t value, uint32_t *len)
{
    *len = nic->store.len[value];
    return nic->store.items_before + (size_t)value * VB_CHAINS_VALUE_MAX;
}

// ---- requests

static uint32_t ask_hash(struct vb_chainnic *nic, struct vb_prng *prng, bool two, uint8_t *request,
                         int *value)
{
    uint32_t key = (uint32_t)vb_prng_below(prng, VB_CHAINS_BUCKETS / 2), bucket[2];
    struct vb_hash_request2 r;

    for (int i = 0; i < 2; i++)
        bucket[i] = vb_prng_below(prng, 2) ? 2 * key + (uint32_t)vb_prng_below(prng, 2)
                                           : (uint32_t)vb_prng_below(prng, VB_CHAINS_BUCKETS);
    key_of(key, r.first.key);
    key_of(key, r.second.key);
    vb_put_be64(r.first.bucket, nic->store.index->addr + bucket[0] * sizeof(struct vb_hash_bucket));
    vb_put_be64(r.second.bucket,
                nic->store.index->addr + bucket[1] * sizeof(struct vb_hash_bucket));
    uint32_t len = two ? sizeof r : sizeof r.first;
    memcpy(request, &r, len);
    *value = find_hash(key, bucket, two ? 2 : 1);
    return len;
}

static uint32_t ask_list(struct vb_chainnic *nic, struct vb_prng *prng, uint32_t walk,
                         uint8_t *request, int *value)
{
    uint32_t from = (uint32_t)vb_prng_below(prng, VB_CHAINS_NODES + 1);
    uint32_t key = from + (uint32_t)vb_prng_below(prng, walk ? walk + 2 : VB_CHAINS_NODES);
    uint8_t bytes[VB_HASH_KEY_BYTES];

    key_of(key, bytes);
    *value = find_list(key, from, walk);
    return vb_list_ask(request, node_at(nic, from), bytes, walk);
}

uint32_t vb_chainstore_ask(struct vb_chainnic *nic, struct vb_prng *prng,
                           const struct vb_caller *caller, uint8_t *request,
                           struct vb_answer *answer)
{
    int value;
    uint32_t len;

    if (caller->kind <= VB_CALL_HASH_PARALLEL)
        len = ask_hash(nic, prng, caller->kind != VB_CALL_HASH_ONE, request, &value);
    else
        len = ask_list(nic, prng, caller->walk, request, &value);
    answer->value = value < 0 ? UINT32_MAX : (uint32_t)value;
    return len;
}
