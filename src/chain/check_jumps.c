// SPDX-License-Identifier: Apache-2.0
// The static checker: how long NOPs can be, and so which entries are skipped on the way to others.
#include "chain/check_static.h"

#include <stdlib.h>
#include <string.h>

enum {
    ANY_LENGTH = (1 << (VB_WQE_MAX_BLOCKS + 1)) - 2, // bits 1 to 16
    OPCODE_AT = 3,
    DS_AT = 7,
};

// ---- bytes of the program's own that an entry may write

// Somewhere in the memory that the key is of.
static void store_under(struct vb_statics *s, const struct vb_ref *key, bool known)
{
    if (!known || !key->known || key->to.kind == VB_IN_SEND)
        s->wild = true;
    else if (key->to.kind == VB_IN_DATA && s->stored[key->to.index])
        memset(s->stored[key->to.index], 1, s->image->region[key->to.index].bytes);
}

static void store_at(struct vb_statics *s, const struct vb_spot *to, uint64_t len)
{
    if (to->kind != VB_IN_DATA || !s->stored[to->index])
        return;
    uint64_t bytes = s->image->region[to->index].bytes;
    for (uint64_t i = to->offset; i < bytes && i < to->offset + len; i++)
        s->stored[to->index][i] = 1;
}

static void store_list(struct vb_statics *s, const struct vb_line *line)
{
    for (uint32_t i = 0; i < line->code.num_sge; i++) {
        if (line->sge[i].known && !vb_patched_in(s, line, VB_FIELD_ADDR, i) &&
            !vb_patched_in(s, line, VB_FIELD_LEN, i))
            store_at(s, &line->sge[i].to, line->code.sge[i].len);
        else
            store_under(s, &line->key[i], !vb_patched_in(s, line, VB_FIELD_KEY, i));
    }
}

static void store_remote(struct vb_statics *s, const struct vb_line *line)
{
    struct vb_access a[VB_ACCESSES];
    uint32_t n = vb_accesses(line, a);
    bool lengths = true;

    for (uint32_t i = 0; i < line->code.num_sge; i++)
        lengths &= !vb_patched_in(s, line, VB_FIELD_LEN, i);
    if (!line->raddr.known || !lengths || vb_patched(s, line, VB_FIELD_RADDR))
        store_under(s, &line->rkey, !vb_patched(s, line, VB_FIELD_RKEY));
    else
        for (uint32_t i = 0; i < n; i++)
            if (a[i].remote)
                store_at(s, &a[i].spot, a[i].len);
}

// Whether an atomic may make an entry another operation.
static bool turns(const struct vb_statics *s, const struct vb_line *line)
{
    const struct vb_spot *to = &line->raddr.to;
    uint32_t in_block = to->offset % VB_WQEBB_BYTES;
    const struct vb_line *victim =
        vb_is_atomic(line) && line->raddr.known && to->kind == VB_IN_SEND
            ? vb_listing_line(s->listing, to->index, (uint32_t)(to->offset / VB_WQEBB_BYTES))
            : NULL;

    if (!victim || (in_block > OPCODE_AT && in_block <= VB_WQEBB_BYTES - 8 + OPCODE_AT))
        return false;
    return line->code.opcode != VB_WQE_ATOMIC_CS || in_block != 0 ||
           vb_patched(s, line, VB_FIELD_SWAP) ||
           (line->code.swap_add >> 24 & 0xff) != victim->code.opcode;
}

static void store_line(struct vb_statics *s, const struct vb_line *line)
{
    uint8_t opcode = vb_patched(s, line, VB_FIELD_OPCODE);

    if (line->wrong || opcode & (VB_PATCHED | VB_PATCHED_BY_CLIENT) || turns(s, line)) {
        s->wild = true; // it may become anything
        return;
    }
    bool writes = line->code.opcode == VB_WQE_WRITE || line->code.opcode == VB_WQE_WRITE_IMM;
    if (line->code.opcode == VB_WQE_READ || vb_is_atomic(line))
        store_list(s, line);
    if (vb_is_atomic(line) || (writes && s->image->queue[line->queue].kind == VB_QUEUE_LOOP))
        store_remote(s, line);
}

static void store_receives(struct vb_statics *s)
{
    VB_FOR_PARTS (part, s->listing) {
        if (part->to.known)
            store_at(s, &part->to.to, part->len);
        else if (part->len)
            s->wild = true;
    }
}

// ---- lengths

static void add_length(struct vb_statics *s, uint32_t queue, uint64_t offset, int ds)
{
    uint32_t *length = &s->length[queue][offset / VB_WQEBB_BYTES];
    uint32_t blocks = (((uint32_t)ds & VB_WQE_DS_MASK) + 3) / 4;

    *length |= ds < 0 || blocks == 0 ? (uint32_t)ANY_LENGTH : 1u << blocks;
}

// What a READ copies there, if nothing ever writes it; else -1.
static int copied(const struct vb_statics *s, const struct vb_line *line, uint64_t behind)
{
    const struct vb_spot *from = &line->raddr.to;

    if (line->code.opcode != VB_WQE_READ || !line->raddr.known || from->kind != VB_IN_DATA ||
        vb_patched(s, line, VB_FIELD_RADDR) || !s->stored[from->index])
        return -1;
    uint64_t at = from->offset + behind;
    return at < s->image->region[from->index].bytes && !s->stored[from->index][at]
               ? s->image->region[from->index].init[at]
               : -1;
}

// The lengths that an entry gives to NOPs.
static void add_lengths(struct vb_statics *s, const struct vb_line *line)
{
    struct vb_access a[VB_ACCESSES];
    uint32_t n = vb_accesses(line, a);
    uint64_t behind = 0; // bytes of the parts before

    for (uint32_t i = 0; i < n; i++) {
        uint64_t ring = a[i].spot.kind == VB_IN_SEND
                            ? (uint64_t)s->image->queue[a[i].spot.index].blocks * VB_WQEBB_BYTES
                            : 0;
        for (uint64_t k = 0; a[i].write && k < a[i].len && a[i].spot.offset + k < ring; k++) {
            uint64_t at = a[i].spot.offset + k;
            if (at % VB_WQEBB_BYTES != DS_AT)
                continue;
            bool swaps = line->code.opcode == VB_WQE_ATOMIC_CS && a[i].remote && k == DS_AT &&
                         !vb_patched(s, line, VB_FIELD_SWAP);
            add_length(s, a[i].spot.index, at,
                       swaps         ? (int)(line->code.swap_add >> 56)
                       : a[i].remote ? -1
                                     : copied(s, line, behind + k));
        }
        behind += a[i].remote ? 0 : a[i].len;
    }
}

static bool make_maps(struct vb_statics *s)
{
    const struct vb_image *image = s->image;

    s->stored = calloc(image->regions, sizeof *s->stored);
    s->length = calloc(image->queues, sizeof *s->length);
    bool room = s->stored && s->length;
    for (uint32_t i = 0; room && i < image->regions; i++)
        if (image->region[i].kind == VB_REGION_OWN && image->region[i].bytes)
            room = (s->stored[i] = calloc(image->region[i].bytes, 1)) != NULL;
    for (uint32_t i = 0; room && i < image->queues; i++)
        room = (s->length[i] = calloc(image->queue[i].blocks, sizeof **s->length)) != NULL;
    return room;
}

bool vb_jumps_find(struct vb_statics *s)
{
    const struct vb_listing *l = s->listing;

    if (!make_maps(s))
        return false;
    store_receives(s);
    VB_FOR_LINES (line, l)
        store_line(s, line);
    for (uint32_t q = 0; q < s->image->queues; q++)
        for (uint32_t b = 0; b < s->image->queue[q].blocks; b++) {
            uint64_t at = (uint64_t)b * VB_WQEBB_BYTES + DS_AT;
            add_length(s, q, at,
                       s->wild || s->patch[q][at] & VB_PATCHED_BY_CLIENT
                           ? -1
                           : (int)(s->image->queue[q].code[at] & VB_WQE_DS_MASK));
        }
    VB_FOR_LINES (line, l)
        if (!line->wrong)
            add_lengths(s, line);
    return true;
}

void vb_jumps_free(struct vb_statics *s)
{
    for (uint32_t i = 0; s->stored && i < s->image->regions; i++)
        free(s->stored[i]);
    for (uint32_t i = 0; s->length && i < s->image->queues; i++)
        free(s->length[i]);
    free(s->stored);
    free(s->length);
}

bool vb_is_passed(const struct vb_statics *s, const struct vb_line *line, uint32_t before)
{
    for (uint32_t back = 1; back < VB_WQE_MAX_BLOCKS && back <= line->block; back++) {
        uint32_t b = line->block - back;
        const struct vb_line *nop = vb_listing_line(s->listing, line->queue, b);
        if (!nop || nop->block != b || (!nop->wrong && nop->code.opcode != VB_WQE_NOP))
            continue;
        for (uint32_t n = back + 1; n <= VB_WQE_MAX_BLOCKS; n++)
            if (s->length[line->queue][b] >> n & 1 && b + n <= before)
                return false;
    }
    return true;
}
