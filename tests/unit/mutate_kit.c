// SPDX-License-Identifier: Apache-2.0
// Small changes to chain programs.
#include "mutate_kit.h"

#include "base/bytes.h"
#include "chain/listing.h"
#include "hash_kit.h"
#include "verbena/offload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[MUTATIONS] = {"index", "counter", "fence off", "signal off",
                                             "swap",  "offset",  "remove"};

const char *mutation_name(enum mutation kind)
{
    return names[kind];
}

static uint8_t *code_of(struct vb_image *image, const struct vb_line *line)
{
    return image->queue[line->queue].code + (size_t)line->block * VB_WQEBB_BYTES;
}

static bool is_cross(const struct vb_line *line)
{
    return line->code.opcode == VB_WQE_WAIT || line->code.opcode == VB_WQE_SEND_EN ||
           line->code.opcode == VB_WQE_RECV_EN;
}

static bool suits(const struct vb_listing *l, uint32_t i, enum mutation kind)
{
    const struct vb_line *line = &l->line[i], *next = line + 1;

    switch (kind) {
    case MUTATE_INDEX: return is_cross(line);
    case MUTATE_FENCE: return line->code.fm_ce_se & VB_WQE_FENCE;
    case MUTATE_SIGNAL: return line->code.fm_ce_se & VB_WQE_CE_ALWAYS;
    case MUTATE_REMOVE:
        return line->code.opcode == VB_WQE_WAIT || line->code.opcode == VB_WQE_SEND_EN;
    case MUTATE_SWAP:
        return i + 1 < l->lines && next->queue == line->queue && next->block == line->block + 1 &&
               line->blocks == 1 && next->blocks == 1;
    default: return false;
    }
}

static const struct vb_line *pick(const struct vb_listing *l, enum mutation kind,
                                  struct vb_prng *prng)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < l->lines; i++)
        count += suits(l, i, kind);
    if (count == 0)
        return NULL;
    uint32_t n = (uint32_t)vb_prng_below(prng, count);
    for (uint32_t i = 0; i < l->lines; i++)
        if (suits(l, i, kind) && n-- == 0)
            return &l->line[i];
    return NULL;
}

// Entries move with everything that names them.
static void swap_spot(struct vb_spot *spot, const struct vb_line *a)
{
    uint64_t block = spot->offset / VB_WQEBB_BYTES;

    if (spot->kind != VB_IN_SEND || spot->index != a->queue)
        return;
    if (block == a->block)
        spot->offset += VB_WQEBB_BYTES;
    else if (block == a->block + 1)
        spot->offset -= VB_WQEBB_BYTES;
}

static void swap(struct vb_image *image, const struct vb_line *a)
{
    uint8_t kept[VB_WQEBB_BYTES], *at = code_of(image, a);

    memcpy(kept, at, sizeof kept);
    memcpy(at, at + VB_WQEBB_BYTES, sizeof kept);
    memcpy(at + VB_WQEBB_BYTES, kept, sizeof kept);
    for (uint32_t i = 0; i < image->relocs; i++) {
        swap_spot(&image->reloc[i].at, a);
        if (image->reloc[i].kind == VB_RELOC_ADDR)
            swap_spot(&image->reloc[i].target, a);
    }
}

static bool mutate_line(struct vb_image *image, enum mutation kind, struct vb_prng *prng,
                        char *what)
{
    struct vb_listing *l = vb_listing_make(image);
    const struct vb_line *line = l ? pick(l, kind, prng) : NULL;
    char name[VB_LISTING_TEXT];

    if (line) {
        uint8_t *at = code_of(image, line);
        uint32_t by = vb_prng_below(prng, 2) ? 1 : UINT32_MAX;
        vb_listing_name(l, line->queue, line->block, name);
        snprintf(what, 160, "%s of %s%s", names[kind], name,
                 kind != MUTATE_INDEX ? ""
                 : by == 1            ? " +1"
                                      : " -1");
        switch (kind) {
        case MUTATE_INDEX: vb_put_be32(at + 24, vb_get_be32(at + 24) + by); break;
        case MUTATE_FENCE: at[11] &= (uint8_t)~VB_WQE_FENCE; break;
        case MUTATE_SIGNAL: at[11] &= (uint8_t)~VB_WQE_CE_MASK; break;
        case MUTATE_SWAP: swap(image, line); break;
        default: // removed: a NOP of one block
            at[3] = VB_WQE_NOP;
            at[7] = 4;
            break;
        }
    }
    vb_listing_free(l);
    return line != NULL;
}

static bool is_counter(const struct vb_reloc *r)
{
    return r->kind == VB_RELOC_SEND_COUNT || r->kind == VB_RELOC_RECV_COUNT ||
           r->kind == VB_RELOC_CQ_COUNT;
}

static bool mutate_reloc(struct vb_image *image, enum mutation kind, struct vb_prng *prng,
                         char *what)
{
    static const int64_t by[] = {-8, -4, -1, 1, 4, 8};
    uint32_t tries = 0;

    while (tries++ < 10000) {
        struct vb_reloc *r = &image->reloc[vb_prng_below(prng, image->relocs)];
        if (kind == MUTATE_COUNT && is_counter(r)) {
            int up = vb_prng_below(prng, 2) ? 1 : -1;
            uint8_t *at = image->region[r->at.index].init + r->at.offset;
            at[0] = (uint8_t)(at[0] + up);
            snprintf(what, 160, "counter at %llu %+d", (unsigned long long)r->at.offset, up);
            return true;
        }
        if (kind != MUTATE_OFFSET || r->kind != VB_RELOC_ADDR || r->at.kind != VB_IN_SEND)
            continue;
        int64_t n = by[vb_prng_below(prng, 6)];
        uint64_t old = r->target.offset;
        char error[VB_IMAGE_TEXT];
        r->target.offset = old + (uint64_t)n;
        if (vb_image_check(image, error)) {
            snprintf(what, 160, "offset of the address at block %llu byte %llu %+lld",
                     (unsigned long long)(r->at.offset / 64),
                     (unsigned long long)(r->at.offset % 64), (long long)n);
            return true;
        }
        r->target.offset = old;
    }
    return false;
}

bool mutate(struct vb_image *image, enum mutation kind, struct vb_prng *prng, char *what)
{
    if (kind == MUTATE_COUNT || kind == MUTATE_OFFSET)
        return mutate_reloc(image, kind, prng, what);
    return mutate_line(image, kind, prng, what);
}

// ---- hash get

struct vb_image *hash_image(uint32_t slots)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_offload_hash_get(
        &(struct vb_hash_opts){.slots = slots, .value_max = HASH_VALUE_MAX}, error);

    if (!image)
        fail_msg("%s", error);
    return image;
}

// The regions and queues of a hash get are always in the same places.
enum {
    QUEUE_K = 1,
    REGION_INDEX = 0,
    REGION_ITEMS = 1,
};

void hash_prepare(void *ctx, struct vb_machine *m)
{
    struct vb_hash_bucket *bucket = (void *)vb_machine_data(m, REGION_INDEX);
    uint8_t *items = vb_machine_data(m, REGION_ITEMS);
    struct vb_prng prng = {.state = ctx ? *(const uint64_t *)ctx : 0};

    for (uint32_t n = 0; n < HASH_BUCKETS; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        hash_key_of(n, key);
        bucket[n].addr = htobe64(vb_machine_address(m, REGION_ITEMS) + n * HASH_VALUE_MAX);
        bucket[n].len = bucket[n].len_again = htobe32(1 + n * 37 % HASH_VALUE_MAX);
        vb_hash_store_key(bucket[n].key, key);
        memset(items + (size_t)n * HASH_VALUE_MAX, (int)(n + 1), HASH_VALUE_MAX);
    }
    for (uint32_t i = 0; i < HASH_ASKED; i++) {
        struct vb_hash_request request;
        uint32_t n = (uint32_t)vb_prng_below(&prng, HASH_BUCKETS);
        uint32_t key = vb_prng_below(&prng, 3) ? n : (n + 1) % HASH_BUCKETS;
        hash_key_of(key, request.key);
        vb_put_be64(request.bucket,
                    vb_machine_address(m, REGION_INDEX) + n * sizeof(struct vb_hash_bucket));
        vb_machine_send(m, QUEUE_K, &request, sizeof request);
    }
}
