// SPDX-License-Identifier: Apache-2.0
// Images read entry by entry.
#include "chain/listing.h"

#include "base/bytes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CELL_BYTES = 4, // relocations begin at multiples of it
    CELLS = VB_WQEBB_BYTES / CELL_BYTES,
};

// The relocations of a ring, by cell, counted from 1.
static uint32_t *index_relocs(const struct vb_image *image, enum vb_place_kind kind, uint32_t queue,
                              size_t bytes)
{
    uint32_t *cell = calloc(bytes / CELL_BYTES, sizeof *cell);

    for (uint32_t i = 0; cell && i < image->relocs; i++) {
        const struct vb_spot *at = &image->reloc[i].at;
        if (at->kind == kind && at->index == queue && at->offset < bytes)
            cell[at->offset / CELL_BYTES] = i + 1;
    }
    return cell;
}

static const struct vb_reloc *reloc_at(const struct vb_image *image, const uint32_t *cell,
                                       uint64_t offset)
{
    uint32_t i = cell[offset / CELL_BYTES];
    return i && image->reloc[i - 1].at.offset == offset ? &image->reloc[i - 1] : NULL;
}

static struct vb_ref ref_at(const struct vb_image *image, const uint32_t *cell, uint64_t offset,
                            enum vb_reloc_kind kind)
{
    const struct vb_reloc *r = reloc_at(image, cell, offset);
    return r && r->kind == kind ? (struct vb_ref){true, r->target}
                                : (struct vb_ref){.known = false};
}

// ---- entries

static const char *judge(const struct vb_image_queue *q, uint32_t block, struct vb_line *line)
{
    const uint8_t *at = q->code + (size_t)block * VB_WQEBB_BYTES;
    size_t room = (size_t)(q->filled - block) * VB_WQEBB_BYTES;
    uint8_t opcode = at[3], segs = at[7] & VB_WQE_DS_MASK;
    uint32_t blocks = (segs + 3u) / 4;
    bool right = vb_code_read(at, room, &line->code);

    line->code.opcode = opcode;
    line->blocks = 1;
    if (segs == 0)
        return "it has no length (ds 0)";
    if (!vb_opcode_name(opcode))
        return "its operation does not exist";
    if (opcode == VB_WQE_NOP)
        return NULL;
    if (blocks > q->filled - block)
        return "it goes on behind the last entry of its queue";
    line->blocks = blocks;
    return right ? NULL : "its segments are not those of its operation";
}

static void resolve(const struct vb_image *image, const uint32_t *cell, struct vb_line *line)
{
    uint64_t base = (uint64_t)line->block * VB_WQEBB_BYTES;
    uint32_t len;

    line->object = -1;
    if (line->wrong)
        return;
    int at = vb_code_field(&line->code, VB_FIELD_RADDR, 0, &len);
    if (at >= 0) {
        line->raddr = ref_at(image, cell, base + (uint32_t)at, VB_RELOC_ADDR);
        line->rkey = ref_at(image, cell, base + (uint32_t)at + 8, VB_RELOC_KEY);
    }
    for (uint32_t i = 0; i < line->code.num_sge; i++) {
        at = vb_code_field(&line->code, VB_FIELD_ADDR, i, &len);
        assert(at >= 0);
        line->sge[i] = ref_at(image, cell, base + (uint32_t)at, VB_RELOC_ADDR);
        line->key[i] = ref_at(image, cell, base + (uint32_t)at - 4, VB_RELOC_KEY);
    }
    at = vb_code_field(&line->code, VB_FIELD_OBJECT, 0, &len);
    const struct vb_reloc *r = at < 0 ? NULL : reloc_at(image, cell, base + (uint32_t)at);
    if (r && r->kind == (line->code.opcode == VB_WQE_WAIT ? VB_RELOC_CQN : VB_RELOC_QPN))
        line->object = (int)r->target.index;
}

static bool is_empty(const struct vb_image_queue *q, uint32_t block)
{
    static const uint8_t zeros[VB_WQEBB_BYTES];
    return memcmp(q->code + (size_t)block * VB_WQEBB_BYTES, zeros, sizeof zeros) == 0;
}

// Blocks of a NOP and the empty ones that it covers: there is nothing in them to be listed.
static uint32_t skipped(const struct vb_image_queue *q, const struct vb_line *line)
{
    uint32_t segs = q->code[(size_t)line->block * VB_WQEBB_BYTES + 7] & VB_WQE_DS_MASK;
    uint32_t n = line->blocks;

    if (line->wrong || line->code.opcode != VB_WQE_NOP)
        return n;
    while (n < (segs + 3) / 4 && line->block + n < q->filled && is_empty(q, line->block + n))
        n++;
    return n;
}

static bool list_queue(struct vb_listing *l, uint32_t queue)
{
    const struct vb_image *image = l->image;
    const struct vb_image_queue *q = &image->queue[queue];
    uint32_t *cell = index_relocs(image, VB_IN_SEND, queue, (size_t)q->blocks * VB_WQEBB_BYTES);

    l->at[queue] = calloc(q->blocks, sizeof **l->at);
    bool room = cell && l->at[queue];
    for (uint32_t block = 0; room && block < q->filled;) {
        struct vb_line *line = &l->line[l->lines++];
        line->queue = queue;
        line->block = block;
        line->wrong = judge(q, block, line);
        resolve(image, cell, line);
        for (uint32_t i = 0; i < line->blocks; i++)
            l->at[queue][block + i] = l->lines;
        block += skipped(q, line);
    }
    free(cell);
    return room;
}

// ---- receives

static void list_recv(struct vb_listing *l, const uint32_t *cell, uint32_t queue, uint32_t entry)
{
    const struct vb_image_queue *q = &l->image->queue[queue];

    assert(q->recv_stride <= VB_MAX_SGE * VB_WQE_SEG_BYTES);
    for (uint32_t i = 0; i < q->recv_stride / VB_WQE_SEG_BYTES; i++) {
        uint64_t offset = (uint64_t)entry * q->recv_stride + (uint64_t)i * VB_WQE_SEG_BYTES;
        uint32_t len = vb_get_be32(q->recv + offset);
        if (len == 0 && vb_get_be32(q->recv + offset + 4) == VB_WQE_LKEY_END)
            return;
        l->scatter[l->scatters++] =
            (struct vb_scatter_line){.queue = queue,
                                     .entry = entry,
                                     .part = i,
                                     .len = len,
                                     .to = ref_at(l->image, cell, offset + 8, VB_RELOC_ADDR)};
    }
}

static bool list_recvs(struct vb_listing *l, uint32_t queue)
{
    const struct vb_image_queue *q = &l->image->queue[queue];
    uint32_t *cell = index_relocs(l->image, VB_IN_RECV, queue, (size_t)q->recvs * q->recv_stride);

    for (uint32_t i = 0; cell && i < q->recv_filled; i++)
        list_recv(l, cell, queue, i);
    free(cell);
    return cell != NULL;
}

struct vb_listing *vb_listing_make(const struct vb_image *image)
{
    struct vb_listing *l = calloc(1, sizeof *l);
    size_t blocks = 0, receives = 0;

    if (!l)
        return NULL;
    for (uint32_t i = 0; i < image->queues; i++) {
        blocks += image->queue[i].filled;
        receives += image->queue[i].recv_filled;
    }
    l->image = image;
    l->at = calloc(image->queues, sizeof *l->at);
    l->line = calloc(blocks, sizeof *l->line);
    l->scatter = calloc(receives * VB_MAX_SGE, sizeof *l->scatter);
    bool room = l->at && l->line && l->scatter;
    for (uint32_t i = 0; room && i < image->queues; i++)
        room = list_queue(l, i) && list_recvs(l, i);
    if (room)
        return l;
    vb_listing_free(l);
    return NULL;
}

void vb_listing_free(struct vb_listing *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; l->at && i < l->image->queues; i++)
        free(l->at[i]);
    free(l->at);
    free(l->line);
    free(l->scatter);
    free(l);
}

const struct vb_line *vb_listing_line(const struct vb_listing *l, uint32_t queue, uint32_t block)
{
    if (block >= l->image->queue[queue].blocks)
        return NULL;
    uint32_t i = l->at[queue][block];
    return i ? &l->line[i - 1] : NULL;
}

// ---- names

int vb_listing_field(const struct vb_line *line, uint32_t offset, uint32_t *n, uint32_t *begin,
                     uint32_t *len)
{
    if (line->wrong)
        return -1;
    for (int f = VB_FIELD_OPMOD; f < VB_FIELD_COUNT; f++) {
        uint32_t parts = f >= VB_FIELD_LEN && f <= VB_FIELD_ADDR ? line->code.num_sge : 1;
        for (*n = 0; *n < parts; (*n)++) {
            int at = vb_code_field(&line->code, (enum vb_field)f, *n, len);
            if (at < 0 || offset < (uint32_t)at || offset >= (uint32_t)at + *len)
                continue;
            *begin = (uint32_t)at;
            return f;
        }
    }
    return -1;
}

static const struct vb_image_label *nearest(const struct vb_image *image, uint32_t queue,
                                            uint32_t block)
{
    const struct vb_image_label *best = NULL;

    for (uint32_t i = 0; i < image->labels; i++) {
        const struct vb_image_label *label = &image->label[i];
        if (label->queue == queue && label->block <= block && (!best || label->block > best->block))
            best = label;
    }
    return best;
}

// The name without the operation. Returns its length.
static int short_name(const struct vb_listing *l, uint32_t queue, uint32_t block, char *text)
{
    const struct vb_image *image = l->image;
    const struct vb_image_label *label = nearest(image, queue, block);
    const char *name = image->queue[queue].name;

    if (!label)
        return snprintf(text, VB_LISTING_TEXT, "%s#%u", name, block);
    if (label->block == block)
        return snprintf(text, VB_LISTING_TEXT, "%s:%s", name, label->name);
    return snprintf(text, VB_LISTING_TEXT, "%s:%s+%u", name, label->name, block - label->block);
}

void vb_listing_name(const struct vb_listing *l, uint32_t queue, uint32_t block, char *text)
{
    const struct vb_line *line = vb_listing_line(l, queue, block);
    const char *op = line ? vb_opcode_name(line->code.opcode) : NULL;
    int used = short_name(l, queue, block, text);

    if (op)
        snprintf(text + used, VB_LISTING_TEXT - (size_t)used, " (%s)", op);
}

void vb_listing_recv_name(const struct vb_listing *l, uint32_t queue, uint32_t entry, char *text)
{
    snprintf(text, VB_LISTING_TEXT, "%s:recv%u", l->image->queue[queue].name, entry);
}

void vb_listing_actor_name(const struct vb_listing *l, struct vb_actor who, char *text)
{
    if (!who.exists)
        snprintf(text, VB_LISTING_TEXT, "nobody");
    else if (who.recv)
        vb_listing_recv_name(l, who.queue, who.at, text);
    else
        vb_listing_name(l, who.queue, who.at, text);
}

void vb_listing_place(const struct vb_listing *l, const struct vb_spot *spot, char *text)
{
    const struct vb_image *image = l->image;
    uint32_t n, begin, len;

    if (spot->kind == VB_IN_DATA) {
        snprintf(text, VB_LISTING_TEXT, "%s+%llu", image->region[spot->index].name,
                 (unsigned long long)spot->offset);
        return;
    }
    if (spot->kind == VB_IN_RECV) {
        uint32_t stride = image->queue[spot->index].recv_stride; // 0: the queue has no receives
        vb_listing_recv_name(l, spot->index, stride ? (uint32_t)(spot->offset / stride) : 0, text);
        return;
    }
    uint32_t block = (uint32_t)(spot->offset / VB_WQEBB_BYTES);
    const struct vb_line *line = vb_listing_line(l, spot->index, block);
    uint32_t from = line ? line->block : block;
    uint32_t inside = (uint32_t)(spot->offset - (uint64_t)from * VB_WQEBB_BYTES);
    int used = short_name(l, spot->index, from, text);
    int field = line ? vb_listing_field(line, inside, &n, &begin, &len) : -1;
    char *to = text + used;
    size_t room = VB_LISTING_TEXT - (size_t)used;
    if (field < 0)
        snprintf(to, room, ".byte%u", inside);
    else if (n > 0)
        snprintf(to, room, ".%s%u%s", vb_field_name((enum vb_field)field), n,
                 inside > begin ? "+" : "");
    else
        snprintf(to, room, ".%s%s", vb_field_name((enum vb_field)field), inside > begin ? "+" : "");
}
