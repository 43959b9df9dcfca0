// SPDX-License-Identifier: Apache-2.0
// Fetching work-queue entries.
#include "nic/wr.h"

#include "base/bytes.h"
#include "wire/roce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLAB_WRS = 64,
    SLAB_LONGS = 8
};

struct slab {
    struct slab *next;
    uint8_t pad[64 - sizeof(struct slab *)];
    uint8_t bytes[];
};

static uint8_t *slab_add(struct vb_wr_pool *pool, size_t bytes)
{
    struct slab *slab = aligned_alloc(64, (sizeof *slab + bytes + 63) & ~(size_t)63);
    if (!slab)
        return NULL;
    slab->next = pool->slabs;
    pool->slabs = slab;
    return slab->bytes;
}

void vb_wr_pool_fini(struct vb_wr_pool *pool)
{
    for (struct slab *s = pool->slabs, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    memset(pool, 0, sizeof *pool);
}

static void put_long(struct vb_wr_pool *pool, void *block)
{
    memcpy(block, &pool->free_long, sizeof pool->free_long);
    pool->free_long = block;
}

static uint8_t *take_long(struct vb_wr_pool *pool)
{
    void *block = pool->free_long;
    memcpy(&pool->free_long, block, sizeof pool->free_long);
    return block;
}

int vb_wr_pool_reserve(struct vb_wr_pool *pool)
{
    if (!pool->free_wr) {
        uint8_t *bytes = slab_add(pool, SLAB_WRS * 128);
        if (!bytes)
            return -ENOMEM;
        for (int i = 0; i < SLAB_WRS; i++) {
            struct vb_wr *wr = (struct vb_wr *)(void *)(bytes + i * 128);
            wr->next = pool->free_wr;
            pool->free_wr = wr;
        }
    }
    if (!pool->free_long) {
        uint8_t *bytes = slab_add(pool, SLAB_LONGS * VB_WR_LONG_BYTES);
        if (!bytes)
            return -ENOMEM;
        for (int i = 0; i < SLAB_LONGS; i++)
            put_long(pool, bytes + i * VB_WR_LONG_BYTES);
    }
    return 0;
}

void vb_wr_put(struct vb_wr_pool *pool, struct vb_wr *wr)
{
    if (wr->longer)
        put_long(pool, wr->longer);
    wr->next = pool->free_wr;
    pool->free_wr = wr;
}

uint32_t vb_wqe_blocks(const struct vb_wqe_ctrl *ctrl)
{
    return ((ctrl->ds & VB_WQE_DS_MASK) + 3u) / 4;
}

// A fetched entry, in segments of 16 bytes.
struct entry {
    const uint8_t *at;
    uint32_t segs;
};

static bool takes_raddr(uint8_t opcode)
{
    return opcode == VB_WQE_WRITE || opcode == VB_WQE_READ;
}

// Inline bytes may follow each other in several inline segments, as mlx5's driver may write them.
static bool parse_inline(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry data)
{
    uint32_t end = data.segs * VB_WQE_SEG_BYTES;

    wr->longer = take_long(pool);
    wr->is_inline = true;
    for (uint32_t at = 0; at + 4 <= end;) {
        uint32_t count = vb_get_be32(data.at + at);
        uint32_t len = count & ~VB_WQE_INLINE;
        if (!(count & VB_WQE_INLINE) || len > end - at - 4)
            return false;
        memcpy(wr->longer + wr->length, data.at + at + 4, len);
        wr->length += len;
        at = (at + 4 + len + VB_WQE_SEG_BYTES - 1) & ~(VB_WQE_SEG_BYTES - 1u);
    }
    return true;
}

static bool parse_list(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry data)
{
    uint64_t total = 0;

    if (data.segs > VB_MAX_SGE)
        return false;
    if (data.segs > VB_WR_SHORT_SEGS)
        wr->longer = take_long(pool);
    struct vb_seg *seg = wr->longer ? (struct vb_seg *)(void *)wr->longer : wr->seg;
    for (uint32_t i = 0; i < data.segs; i++) {
        const uint8_t *s = data.at + i * VB_WQE_SEG_BYTES;
        uint32_t len = vb_get_be32(s);
        if (len & VB_WQE_INLINE)
            return false; // inline and lists do not mix
        seg[i] = (struct vb_seg){.addr = vb_get_be64(s + 8), .len = len, .key = vb_get_be32(s + 4)};
        total += len;
    }
    wr->num_seg = (uint8_t)data.segs;
    wr->length = (uint32_t)total;
    return total <= VB_MESSAGE_MAX;
}

static bool parse(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e)
{
    if (wr->opcode == VB_WQE_NOP)
        return true;
    if (takes_raddr(wr->opcode)) {
        if (e.segs < 1)
            return false;
        wr->raddr = vb_get_be64(e.at);
        wr->rkey = vb_get_be32(e.at + 8);
        e.at += VB_WQE_SEG_BYTES;
        e.segs--;
    } else if (wr->opcode != VB_WQE_SEND) {
        return false;
    }
    bool has_inline = e.segs && (vb_get_be32(e.at) & VB_WQE_INLINE);
    if (has_inline)
        return wr->opcode != VB_WQE_READ && parse_inline(wr, pool, e);
    return parse_list(wr, pool, e);
}

static bool ctrl_is_right(const struct vb_wqe_ctrl *ctrl, const struct vb_wqe_source *source)
{
    return ctrl->opmod == 0 && vb_get_be16(ctrl->idx) == (uint16_t)source->counter &&
           vb_get_be24(ctrl->qpn) == source->qpn;
}

// An entry may wrap around the ring's end.
static void copy_entry(uint8_t *dst, const struct vb_wqe_source *source, uint32_t blocks)
{
    uint32_t mask = source->blocks - 1;
    for (uint32_t i = 0; i < blocks; i++)
        memcpy(dst + i * VB_WQEBB_BYTES,
               source->ring + ((source->counter + i) & mask) * VB_WQEBB_BYTES, VB_WQEBB_BYTES);
}

struct vb_wr *vb_wr_fetch(struct vb_wr_pool *pool, const struct vb_wqe_source *source)
{
    uint8_t copy[VB_WR_LONG_BYTES] __attribute__((aligned(64)));
    const struct vb_wqe_ctrl *ctrl = (const struct vb_wqe_ctrl *)copy;
    struct vb_wr *wr = pool->free_wr;

    pool->free_wr = wr->next;
    memset(wr, 0, sizeof *wr);
    wr->counter = source->counter;
    copy_entry(copy, source, 1);
    uint32_t blocks = vb_wqe_blocks(ctrl);
    if (blocks == 0 || blocks > source->end - source->counter) {
        wr->syndrome = VB_SYN_LOCAL_QP_OP; // blocks stays 0: where the next entry is, nobody knows
        return wr;
    }
    if (blocks > 1)
        copy_entry(copy, source, blocks);
    wr->blocks = (uint8_t)blocks;
    wr->opcode = ctrl->opcode;
    wr->fm_ce_se = ctrl->fm_ce_se;
    struct entry rest = {copy + sizeof *ctrl, (ctrl->ds & VB_WQE_DS_MASK) - 1u};
    if ((source->checks && !ctrl_is_right(ctrl, source)) || !parse(wr, pool, rest))
        wr->syndrome = VB_SYN_LOCAL_QP_OP;
    return wr;
}
