// SPDX-License-Identifier: Apache-2.0
// Fetching work-queue entries.
#include "nic/wr.h"

#include "base/bytes.h"
#include "nic/calc.h"
#include "nic/memory.h"
#include "wire/roce.h"

#include <assert.h>
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

static_assert(sizeof(struct slab) == 64 && VB_WR_LONG_BYTES % 64 == 0, "slabs are whole lines");

// `bytes` is a multiple of 64.
static uint8_t *slab_add(struct vb_wr_pool *pool, size_t bytes)
{
    struct slab *slab = aligned_alloc(64, sizeof *slab + bytes);
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

void vb_wr_put_long(struct vb_wr_pool *pool, void *block)
{
    memcpy(block, &pool->free_long, sizeof pool->free_long);
    pool->free_long = block;
}

uint8_t *vb_wr_take_long(struct vb_wr_pool *pool)
{
    void *block = pool->free_long;
    memcpy(&pool->free_long, block, sizeof pool->free_long);
    return block;
}

int vb_wr_pool_grow(struct vb_wr_pool *pool)
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
            vb_wr_put_long(pool, bytes + i * VB_WR_LONG_BYTES);
    }
    return 0;
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

static void skip(struct entry *e, uint32_t segs)
{
    e->at += segs * VB_WQE_SEG_BYTES;
    e->segs -= segs;
}

// Inline bytes may follow each other in several inline segments, as mlx5's driver may write them.
bool vb_wqe_gather_inline(const uint8_t *from, uint32_t segs, uint8_t *dst, uint32_t *length)
{
    uint32_t end = segs * VB_WQE_SEG_BYTES;

    *length = 0;
    for (uint32_t at = 0; at + 4 <= end;) {
        uint32_t count = vb_get_be32(from + at);
        uint32_t len = count & ~VB_WQE_INLINE;
        if (!(count & VB_WQE_INLINE) || len > end - at - 4)
            return false;
        memcpy(dst + *length, from + at + 4, len);
        *length += len;
        at = (at + 4 + len + VB_WQE_SEG_BYTES - 1) & ~(VB_WQE_SEG_BYTES - 1u);
    }
    return true;
}

static bool parse_inline(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry data)
{
    wr->longer = vb_wr_take_long(pool);
    wr->is_inline = true;
    return vb_wqe_gather_inline(data.at, data.segs, wr->longer, &wr->length);
}

static bool parse_list(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry data)
{
    uint64_t total = 0;

    if (data.segs > VB_MAX_SGE)
        return false;
    if (data.segs > VB_WR_SHORT_SEGS)
        wr->longer = vb_wr_take_long(pool);
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

static bool parse_payload(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e)
{
    if (e.segs && (vb_get_be32(e.at) & VB_WQE_INLINE))
        return parse_inline(wr, pool, e);
    return parse_list(wr, pool, e);
}

static bool parse_raddr(struct vb_wr *wr, struct entry *e)
{
    if (e->segs < 1)
        return false;
    wr->raddr = vb_get_be64(e->at);
    wr->rkey = vb_get_be32(e->at + 8);
    skip(e, 1);
    return true;
}

// The answer goes into one segment; its length is the arguments'.
static bool parse_result(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e, uint32_t bytes)
{
    wr->awaits = true;
    return e.segs == 1 && !(vb_get_be32(e.at) & VB_WQE_INLINE) && parse_list(wr, pool, e) &&
           wr->length == bytes;
}

static bool parse_atomic(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e)
{
    if (!parse_raddr(wr, &e) || e.segs < 1)
        return false;
    wr->arg_bytes = 8;
    wr->atomic = (struct vb_atomic_args){vb_get_be64(e.at), vb_get_be64(e.at + 8)};
    skip(&e, 1);
    return parse_result(wr, pool, e, 8);
}

static bool parse_masked(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e, uint8_t opmod)
{
    bool swaps = wr->opcode == VB_WQE_MASKED_CS, wide = opmod == VB_WQE_OPMOD_MASKED8;
    uint32_t segs = swaps && wide ? 2 : 1;
    uint64_t arg[4] = {0};

    if (!parse_raddr(wr, &e) || e.segs < segs || (!wide && opmod != VB_WQE_OPMOD_MASKED4))
        return false;
    for (uint32_t i = 0; i < (swaps ? 4 : 2); i++)
        arg[i] = wide ? vb_get_be64(e.at + 8 * i) : vb_get_be32(e.at + 4 * i);
    skip(&e, segs);
    wr->arg_bytes = wide ? 8 : 4;
    bool right = parse_result(wr, pool, e, wr->arg_bytes);
    wr->atomic = (struct vb_atomic_args){arg[0], arg[1]};
    wr->swap_mask = arg[2];
    wr->compare_mask = arg[3];
    return right;
}

static uint32_t access_of(uint8_t flags)
{
    return (flags & VB_WQE_MKEY_REMOTE_READ ? VB_REMOTE_READ : 0u) |
           (flags & VB_WQE_MKEY_REMOTE_WRITE ? VB_REMOTE_WRITE : 0u) |
           (flags & VB_WQE_MKEY_ATOMIC ? VB_REMOTE_ATOMIC : 0u);
}

static bool parse_umr(struct vb_wr *wr, struct entry e)
{
    const uint32_t fixed = (sizeof(struct vb_wqe_umr) + sizeof(struct vb_wqe_mkey)) / 16;
    struct vb_wqe_mkey mkey;

    if (e.segs < fixed)
        return false;
    memcpy(&mkey, e.at + sizeof(struct vb_wqe_umr), sizeof mkey);
    skip(&e, fixed);
    wr->imm = be32toh(wr->imm);
    wr->umr = (struct vb_umr_args){.start = be64toh(mkey.start),
                                   .access = access_of(mkey.access),
                                   .binds = !(mkey.free & VB_WQE_MKEY_FREE)};
    if (!wr->umr.binds)
        return true;
    wr->range = be64toh(mkey.len);
    if (e.segs < 1)
        return wr->range == 0; // unbinds
    wr->rkey = vb_get_be32(e.at + 4);
    wr->raddr = vb_get_be64(e.at + 8);
    return true;
}

static bool parse_flush(struct vb_wr *wr, struct entry e)
{
    const uint32_t known = VB_WQE_FLUSH_GLOBAL | VB_WQE_FLUSH_PERSISTENT | VB_WQE_FLUSH_REGION;

    if (e.segs != 1)
        return false;
    wr->imm = be32toh(wr->imm);
    wr->range = vb_get_be32(e.at + 12);
    wr->awaits = true;
    return parse_raddr(wr, &e) && !(wr->imm & ~known) &&
           (wr->imm & (VB_WQE_FLUSH_GLOBAL | VB_WQE_FLUSH_PERSISTENT));
}

static bool parse_datagram(struct vb_wr *wr, struct entry *e)
{
    struct vb_wqe_datagram to;

    if (e->segs < sizeof to / VB_WQE_SEG_BYTES)
        return false;
    memcpy(&to, e->at, sizeof to);
    skip(e, sizeof to / VB_WQE_SEG_BYTES);
    wr->raddr = be32toh(to.dqpn) & 0xffffff;
    wr->rkey = be32toh(to.qkey);
    memcpy(wr->rgid, to.rgid, sizeof wr->rgid);
    uint32_t gid = be32toh(to.grh_gid_fl);
    wr->source = gid & VB_WQE_GRH ? (uint8_t)(1 + (gid >> VB_WQE_SGID_SHIFT)) : 0;
    wr->flow_label = gid & VB_WQE_FLOW_LABEL;
    wr->traffic_class = to.tclass;
    wr->hop_limit = to.hop_limit;
    wr->sl = to.stat_rate_sl & VB_WQE_SL;
    return wr->sl <= VB_WQE_SL_MAX && (wr->opcode == VB_WQE_SEND || wr->opcode == VB_WQE_SEND_IMM);
}

static bool parse_cross(struct vb_wr *wr, struct entry e)
{
    if (e.segs != 1)
        return false;
    wr->imm = vb_get_be32(e.at + 8);
    wr->rkey = vb_get_be32(e.at + 12);
    return true;
}

// Every operand is a record that lies where records do.
static bool parse_calc(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e, uint8_t opmod)
{
    bool writes = wr->opcode == VB_WQE_WRITE || wr->opcode == VB_WQE_WRITE_IMM;
    bool sends = wr->opcode == VB_WQE_SEND || wr->opcode == VB_WQE_SEND_IMM;

    if (!vb_calc_exists(opmod) || !(writes || sends) || (writes && !parse_raddr(wr, &e)) ||
        !parse_list(wr, pool, e) || wr->num_seg == 0)
        return false;
    for (uint32_t i = 0; i < wr->num_seg; i++) {
        const struct vb_seg *seg = &vb_wr_segs(wr)[i];
        if (seg->len != VB_CALC_RECORD_BYTES || seg->addr % VB_CALC_RECORD_BYTES)
            return false;
    }
    wr->calc = opmod;
    return true;
}

static bool parse(struct vb_wr *wr, struct vb_wr_pool *pool, struct entry e, uint8_t opmod,
                  bool cross)
{
    if (opmod != 0 && wr->opcode != VB_WQE_MASKED_CS && wr->opcode != VB_WQE_MASKED_FA)
        return cross && parse_calc(wr, pool, e, opmod);
    switch (wr->opcode) {
    case VB_WQE_NOP: return true;
    case VB_WQE_SEND:
    case VB_WQE_SEND_IMM:
    case VB_WQE_SEND_INVAL: return parse_payload(wr, pool, e);
    case VB_WQE_WRITE:
    case VB_WQE_WRITE_IMM: return parse_raddr(wr, &e) && parse_payload(wr, pool, e);
    case VB_WQE_READ: wr->awaits = true; return parse_raddr(wr, &e) && parse_list(wr, pool, e);
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA: return parse_atomic(wr, pool, e);
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA: return parse_masked(wr, pool, e, opmod);
    case VB_WQE_ATOMIC_WRITE:
        wr->awaits = true;
        return parse_raddr(wr, &e) && parse_payload(wr, pool, e) && wr->length == 8;
    case VB_WQE_FLUSH: return parse_flush(wr, e);
    case VB_WQE_UMR: return parse_umr(wr, e);
    case VB_WQE_WAIT:
    case VB_WQE_SEND_EN:
    case VB_WQE_RECV_EN: return cross && parse_cross(wr, e);
    default: return false;
    }
}

// The segments that come before the operation's own.
static bool parse_heads(struct vb_wr *wr, struct entry *e, enum vb_wqe_heads heads)
{
    if (heads == VB_WQE_HEAD_PLAIN || vb_wqe_is_local(wr->opcode))
        return true;
    if (heads == VB_WQE_HEAD_DATAGRAM)
        return parse_datagram(wr, e);
    if (e->segs < 1)
        return false;
    wr->srqn = vb_get_be32(e->at) & 0xffffff;
    skip(e, 1);
    return true;
}

static bool ctrl_is_right(const struct vb_wqe_ctrl *ctrl, const struct vb_wqe_source *source)
{
    return vb_get_be16(ctrl->idx) == (uint16_t)source->counter &&
           vb_get_be24(ctrl->qpn) == source->qpn;
}

// An entry may wrap around the ring's end. No block is read twice: others may write there
// meanwhile, and what was judged must be what is used.
static void copy_entry(uint8_t *dst, const struct vb_wqe_source *source, uint32_t from,
                       uint32_t blocks)
{
    uint32_t mask = source->blocks - 1;
    for (uint32_t i = from; i < blocks; i++)
        memcpy(dst + i * VB_WQEBB_BYTES,
               source->ring + ((source->counter + i) & mask) * VB_WQEBB_BYTES, VB_WQEBB_BYTES);
}

// Takes a request, with everything zero that not every entry sets, but for what beginning sets and
// what only its own operation reads.
static struct vb_wr *take_wr(struct vb_wr_pool *pool, uint64_t counter)
{
    struct vb_wr *wr = pool->free_wr;

    pool->free_wr = wr->next;
    wr->next = NULL;
    wr->counter = counter;
    wr->raddr = 0;
    wr->rkey = wr->length = 0;
    wr->opcode = wr->fm_ce_se = wr->blocks = wr->num_seg = 0;
    wr->syndrome = VB_SYN_OK;
    wr->is_inline = wr->awaits = false;
    wr->arg_bytes = 0;
    wr->imm = 0;
    wr->longer = NULL;
    return wr;
}

// SEND, WRITE and READ of one segment, which are most entries. False: it is none of these, and
// nothing was changed.
static bool parse_short(struct vb_wr *wr, const struct vb_wqe_ctrl *ctrl)
{
    const uint8_t *at = (const uint8_t *)(ctrl + 1);
    uint32_t segs = ctrl->ds & VB_WQE_DS_MASK;
    bool sends = ctrl->opcode == VB_WQE_SEND && segs == 2;
    bool reads = ctrl->opcode == VB_WQE_READ && segs == 3;

    if (ctrl->opmod || !(sends || reads || (ctrl->opcode == VB_WQE_WRITE && segs == 3)))
        return false;
    const uint8_t *data = sends ? at : at + VB_WQE_SEG_BYTES;
    uint32_t len = vb_get_be32(data);
    if (len & VB_WQE_INLINE)
        return false;
    if (!sends) {
        wr->raddr = vb_get_be64(at);
        wr->rkey = vb_get_be32(at + 8);
    }
    wr->seg[0] =
        (struct vb_seg){.addr = vb_get_be64(data + 8), .len = len, .key = vb_get_be32(data + 4)};
    wr->length = len;
    wr->num_seg = 1;
    wr->awaits = reads;
    return true;
}

struct vb_wr *vb_wr_fetch(struct vb_wr_pool *pool, const struct vb_wqe_source *source)
{
    uint8_t copy[VB_WR_LONG_BYTES] __attribute__((aligned(64)));
    const struct vb_wqe_ctrl *ctrl = (const struct vb_wqe_ctrl *)copy;
    struct vb_wr *wr = take_wr(pool, source->counter);

    copy_entry(copy, source, 0, 1);
    uint32_t blocks = vb_wqe_blocks(ctrl);
    if (blocks == 0 || blocks > source->end - source->counter) {
        wr->syndrome = VB_SYN_LOCAL_QP_OP; // blocks stays 0: where the next entry is, nobody knows
        return wr;
    }
    copy_entry(copy, source, 1, blocks);
    wr->blocks = (uint8_t)blocks;
    wr->opcode = ctrl->opcode;
    wr->fm_ce_se = ctrl->fm_ce_se;
    if (source->checks && !ctrl_is_right(ctrl, source)) {
        wr->syndrome = VB_SYN_LOCAL_QP_OP;
        return wr;
    }
    if (source->heads == VB_WQE_HEAD_PLAIN && parse_short(wr, ctrl))
        return wr;
    struct entry rest = {copy + sizeof *ctrl, (ctrl->ds & VB_WQE_DS_MASK) - 1u};
    uint8_t opmod = wr->opcode == VB_WQE_NOP && !source->checks ? 0 : ctrl->opmod;
    wr->imm = ctrl->imm;
    if (!parse_heads(wr, &rest, source->heads) || !parse(wr, pool, rest, opmod, source->cross))
        wr->syndrome = VB_SYN_LOCAL_QP_OP;
    return wr;
}
