// SPDX-License-Identifier: Apache-2.0
// Laying a program out: blocks, numbers of completions, indices, and at last the image.
#include "chain/builder.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PAD_BLOCKS = 15,      // that one NOP skips
    CQ_ENTRIES = 16,      // nobody reads them: they are counted
    SLOTS_MAX = 1 << 14,  // a queue is opened by less than 32,768 blocks at once
    HALT_AHEAD = 1 << 22, // completions that a program that has stopped does not make
};

static uint32_t round_up_pow2(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

// ---- entries as values

void vb_build_code(const struct vb_item *item, struct vb_code *code)
{
    const struct vb_chain_op *op = &item->op;
    bool masked = op->opcode == VB_WQE_MASKED_CS || op->opcode == VB_WQE_MASKED_FA;

    *code = (struct vb_code){.opcode = (uint8_t)op->opcode,
                             .opmod = op->calc,
                             .idx = op->opcode == VB_WQE_NOP ? 0 : (uint16_t)item->block,
                             .ds = op->ds,
                             .imm = op->imm,
                             .swap_add = op->swap_add,
                             .compare = op->compare,
                             .swap_mask = op->swap_mask,
                             .compare_mask = op->compare_mask,
                             .num_sge = op->parts,
                             .inline_len = op->len};
    if (masked)
        code->opmod = op->arg_bytes == 4 ? VB_WQE_OPMOD_MASKED4 : VB_WQE_OPMOD_MASKED8;
    if (op->opcode == VB_WQE_NOP && !op->ds)
        code->ds = 4; // its whole block can hold an operand
    code->fm_ce_se = (op->flags & VB_CHAIN_SIGNALED ? VB_WQE_CE_ALWAYS : 0) |
                     (op->flags & VB_CHAIN_FENCE ? VB_WQE_FENCE : 0);
    for (uint32_t i = 0; i < op->parts; i++)
        code->sge[i].len = op->part[i].len;
    if (op->len)
        memcpy(code->data, item->data, op->len);
}

void vb_build_write(const struct vb_item *item, const struct vb_code *code, uint8_t *at)
{
    vb_code_write(at, code, true);
    if (item->op.flags & VB_CHAIN_DORMANT)
        at[offsetof(struct vb_wqe_ctrl, opcode)] = VB_WQE_NOP;
    vb_branch_hide(item, at);
}

uint32_t vb_build_blocks(const struct vb_item *item)
{
    struct vb_code code;
    if (item->op.opcode == VB_WQE_NOP && !item->fills)
        return 1;
    vb_build_code(item, &code);
    return vb_code_blocks(&code);
}

// ---- numbers

uint32_t vb_build_index(const struct vb_chain *c, const struct vb_item *item, uint32_t *grows)
{
    const struct vb_item *target = vb_build_item(c, item->target);
    const struct vb_build_queue *q;
    uint32_t index;

    if (item->kind == VB_ITEM_HALT) {
        *grows = c->queue[item->queue - 1].completions;
        return HALT_AHEAD;
    }
    if (target) {
        q = &c->queue[target->queue - 1];
        *grows = item->kind == VB_ITEM_WAIT ? q->completions : q->blocks;
        index =
            item->kind == VB_ITEM_WAIT ? target->number : target->block + vb_build_blocks(target);
    } else {
        q = &c->queue[item->queue_target - 1];
        *grows = q->recvs;
        // A receive is opened for the next round: in this one it is, or the entry would not run.
        index = item->kind == VB_ITEM_WAIT_RECV ? item->n : item->n + 1 + q->recvs;
    }
    return index + (uint32_t)item->lap * *grows;
}

uint32_t vb_build_counter(const struct vb_chain *c, const struct vb_item *item)
{
    switch (item->kind) {
    case VB_ITEM_WAIT: return 2 * (vb_build_item(c, item->target)->queue - 1);
    case VB_ITEM_WAIT_RECV: return 2 * (item->queue_target - 1) + 1;
    case VB_ITEM_HALT: return 2 * (item->queue - 1);
    case VB_ITEM_OPEN: return vb_build_item(c, item->target)->queue - 1;
    default: return item->queue_target - 1;
    }
}

static bool target_is_known(struct vb_chain *c, const struct vb_item *item)
{
    const char *queue = c->queue[item->queue - 1].name;
    bool of_recv = item->kind == VB_ITEM_WAIT_RECV || item->kind == VB_ITEM_OPEN_RECV;

    if (item->kind == VB_ITEM_OP || item->kind == VB_ITEM_HALT)
        return true;
    if (!of_recv) {
        if (!vb_build_item(c, item->target))
            return vb_build_fail(c,
                                 "queue '%s' waits for or opens entry '%s', which was never made",
                                 queue, vb_build_label_name(c, item->target));
        return true;
    }
    if (item->queue_target == 0 || item->queue_target > c->queues ||
        item->n >= c->queue[item->queue_target - 1].recvs)
        return vb_build_fail(c, "queue '%s' waits for or opens receive %u, which was never made",
                             queue, item->n);
    return true;
}

// What is waited for completes.
static bool mark_signaled(struct vb_chain *c)
{
    for (uint32_t i = 0; i < c->queues; i++)
        for (struct vb_item *item = c->queue[i].first; item; item = item->next) {
            if (!target_is_known(c, item))
                return false;
            if (item->kind == VB_ITEM_WAIT)
                vb_build_item(c, item->target)->op.flags |= VB_CHAIN_SIGNALED;
        }
    return true;
}

// ---- blocks

static bool pad(struct vb_chain *c, uint32_t queue)
{
    struct vb_build_queue *q = &c->queue[queue - 1];

    while (q->used < q->blocks) {
        uint32_t skip = q->blocks - q->used < PAD_BLOCKS ? q->blocks - q->used : PAD_BLOCKS;
        struct vb_item *item = vb_build_insert(
            c, queue, NULL,
            &(struct vb_item){.kind = VB_ITEM_OP,
                              .op = {.opcode = VB_WQE_NOP, .ds = (uint8_t)(4 * skip)},
                              .fills = true,
                              .slot = q->slots});
        if (!item)
            return false;
        item->block = q->used;
        q->used += skip;
    }
    return true;
}

static bool place_items(struct vb_chain *c, uint32_t queue)
{
    struct vb_build_queue *q = &c->queue[queue - 1];

    for (struct vb_item *item = q->first; item; item = item->next) {
        item->block = q->used;
        q->used += vb_build_blocks(item);
        if (item->op.flags & VB_CHAIN_SIGNALED)
            item->number = q->completions++;
    }
    q->blocks = round_up_pow2(q->used > 4 ? q->used : 4);
    if (q->blocks > SLOTS_MAX)
        return vb_build_fail(c, "queue '%s' needs %u blocks, but a ring has at most %d", q->name,
                             q->used, SLOTS_MAX);
    if (c->circular && q->recvs & (q->recvs - 1))
        return vb_build_fail(c, "queue '%s': %u receives run in a circle; make them a power of two",
                             q->name, q->recvs);
    return !c->circular || pad(c, queue);
}

// ---- the image

static bool spot_of(struct vb_chain *c, const struct vb_place *place, uint64_t len,
                    struct vb_spot *spot)
{
    const struct vb_item *item = vb_build_item(c, place->label.id);
    struct vb_code code;
    uint32_t room;

    if (place->region.id > c->regions)
        return vb_build_fail(c, "an entry names region %u, which was never made", place->region.id);
    if (place->region.id) {
        const struct vb_image_region *r = &c->region[place->region.id - 1].image;
        *spot = (struct vb_spot){VB_IN_DATA, place->region.id - 1, place->offset};
        if (place->offset > r->bytes || len > r->bytes - place->offset)
            return vb_build_fail(c, "region '%s': %llu bytes at %llu, but it has %llu", r->name,
                                 (unsigned long long)len, (unsigned long long)place->offset,
                                 (unsigned long long)r->bytes);
        return true;
    }
    if (!item)
        return vb_build_fail(c, "an entry names a place in '%s', which was never made",
                             vb_build_label_name(c, place->label.id));
    vb_build_code(item, &code);
    int offset = vb_code_field(&code, (enum vb_field)place->field, place->n, &room);
    if (offset < 0)
        return vb_build_fail(c, "entry '%s' has no field '%s'",
                             vb_build_label_name(c, place->label.id),
                             vb_field_name((enum vb_field)place->field));
    if (place->field == VB_AT_CTRL)
        room = sizeof(struct vb_wqe_ctrl);
    if (place->offset + len > room)
        return vb_build_fail(c, "entry '%s': %llu bytes at %llu of field '%s', which has %u",
                             vb_build_label_name(c, place->label.id), (unsigned long long)len,
                             (unsigned long long)place->offset,
                             vb_field_name((enum vb_field)place->field), room);
    *spot =
        (struct vb_spot){VB_IN_SEND, item->queue - 1,
                         (uint64_t)item->block * VB_WQEBB_BYTES + (uint32_t)offset + place->offset};
    return true;
}

static bool add_reloc(struct vb_chain *c, struct vb_image *image, enum vb_reloc_kind kind,
                      struct vb_spot at, struct vb_spot target)
{
    if (vb_image_add_reloc(image, &(struct vb_reloc){kind, at, target}) < 0)
        return vb_build_fail(c, "no memory for the program");
    return true;
}

// A place as an address and a key, at two offsets from `at`.
static bool relocate_place(struct vb_chain *c, struct vb_image *image, struct vb_spot at,
                           uint32_t addr_offset, uint32_t key_offset, const struct vb_place *place,
                           uint64_t len)
{
    struct vb_spot target = at, addr = at, key = at;

    if (!spot_of(c, place, len, &target))
        return false;
    addr.offset += addr_offset;
    key.offset += key_offset;
    return add_reloc(c, image, VB_RELOC_ADDR, addr, target) &&
           add_reloc(c, image, VB_RELOC_KEY, key, target);
}

static uint64_t remote_bytes(const struct vb_chain_op *op)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < op->parts; i++)
        bytes += op->part[i].len;
    return op->calc ? 16 : op->len ? op->len : bytes;
}

static bool relocate_op(struct vb_chain *c, struct vb_image *image, const struct vb_item *item,
                        const struct vb_code *code)
{
    struct vb_spot at = {VB_IN_SEND, item->queue - 1, (uint64_t)item->block * VB_WQEBB_BYTES};
    const struct vb_chain_op *op = &item->op;
    uint32_t len;

    int raddr = vb_code_field(code, VB_FIELD_RADDR, 0, &len);
    if (raddr >= 0 && (op->remote.region.id || op->remote.label.id) &&
        !relocate_place(c, image, at, (uint32_t)raddr, (uint32_t)raddr + 8, &op->remote,
                        remote_bytes(op)))
        return false;
    for (uint32_t i = 0; i < op->parts; i++) {
        uint32_t seg = (uint32_t)vb_code_field(code, VB_FIELD_LEN, i, &len);
        if (!relocate_place(c, image, at, seg + 8, seg + 4, &op->part[i].at, op->part[i].len))
            return false;
    }
    return true;
}

// The index of a WAIT or an opening entry, and the queue that it is of.
static bool relocate_index(struct vb_chain *c, struct vb_image *image, const struct vb_item *item)
{
    struct vb_spot at = {VB_IN_SEND, item->queue - 1, (uint64_t)item->block * VB_WQEBB_BYTES + 24};
    const struct vb_spot target = {.index = vb_build_counter(c, item)};
    enum vb_reloc_kind index, object;

    switch (item->kind) {
    case VB_ITEM_OPEN: index = VB_RELOC_SEND_INDEX, object = VB_RELOC_QPN; break;
    case VB_ITEM_OPEN_RECV: index = VB_RELOC_RECV_INDEX, object = VB_RELOC_QPN; break;
    default: index = VB_RELOC_CQ_INDEX, object = VB_RELOC_CQN;
    }
    if (!add_reloc(c, image, index, at, target))
        return false;
    at.offset += 4;
    return add_reloc(c, image, object, at, target);
}

static bool write_item(struct vb_chain *c, struct vb_image *image, const struct vb_item *item)
{
    struct vb_image_queue *q = &image->queue[item->queue - 1];
    struct vb_code code;
    uint32_t grows;

    vb_build_code(item, &code);
    if (item->kind != VB_ITEM_OP)
        code.index = vb_build_index(c, item, &grows);
    vb_build_write(item, &code, q->code + (size_t)item->block * VB_WQEBB_BYTES);
    if (item->op.opcode != VB_WQE_NOP && !item->sleeps &&
        !add_reloc(c, image, VB_RELOC_QPN3,
                   (struct vb_spot){VB_IN_SEND, item->queue - 1,
                                    (uint64_t)item->block * VB_WQEBB_BYTES + 4},
                   (struct vb_spot){.index = item->queue - 1}))
        return false;
    return item->kind == VB_ITEM_OP ? relocate_op(c, image, item, &code)
                                    : relocate_index(c, image, item);
}

static bool write_recv(struct vb_chain *c, struct vb_image *image, uint32_t queue, uint32_t n)
{
    const struct vb_build_recv *recv = &c->queue[queue].recv[n];
    struct vb_image_queue *q = &image->queue[queue];
    uint8_t *at = q->recv + (size_t)n * q->recv_stride;

    for (uint32_t i = 0; i < recv->parts; i++, at += VB_WQE_SEG_BYTES) {
        struct vb_spot spot = {VB_IN_RECV, queue,
                               (uint64_t)n * q->recv_stride + (uint64_t)i * VB_WQE_SEG_BYTES};
        vb_put_be32(at, recv->part[i].len);
        if (!relocate_place(c, image, spot, 8, 4, &recv->part[i].at, recv->part[i].len))
            return false;
    }
    if (recv->parts * VB_WQE_SEG_BYTES < q->recv_stride)
        vb_put_be32(at + 4, VB_WQE_LKEY_END);
    return true;
}

// Blocks that may run from the start.
static uint32_t open_blocks(const struct vb_chain *c, const struct vb_build_queue *q)
{
    uint32_t blocks = 0, n = 0;

    if (q->opts.unmanaged)
        return q->used;
    if (q->slots) {
        const struct vb_item *ready = vb_build_item(c, q->ready[0]);
        return ready->block + vb_build_blocks(ready);
    }
    for (const struct vb_item *item = q->first; item && n < q->opts.open; item = item->next, n++)
        blocks = item->block + vb_build_blocks(item);
    return blocks;
}

// Why a name could not be added to the image.
static bool refuse(struct vb_chain *c, const char *what, const char *name, int err)
{
    if (err == -ENOMEM)
        return vb_build_fail(c, "no memory for the program");
    return vb_build_fail(c, "%s '%s': not a name, or a second one of it", what, name);
}

static bool add_queue(struct vb_chain *c, struct vb_image *image, uint32_t i)
{
    const struct vb_build_queue *q = &c->queue[i];
    char name[VB_IMAGE_NAME + 4];
    struct vb_image_queue like = {
        .kind = q->opts.peer ? VB_QUEUE_PEER : VB_QUEUE_LOOP,
        .managed_send = !q->opts.unmanaged,
        .managed_recv = c->circular && q->recvs,
        .be_replies = q->slots > 0,
        .send_cq = 2 * i,
        .recv_cq = 2 * i + 1,
        .blocks = q->blocks,
        .filled = q->used,
        .open = open_blocks(c, q),
        .recvs = q->recvs ? round_up_pow2(q->recvs) : 0,
        .recv_stride = q->recvs ? round_up_pow2(q->opts.recv_sge * VB_WQE_SEG_BYTES) : 0,
        .recv_filled = q->recvs,
        .recv_open = q->recvs,
    };

    snprintf(like.name, sizeof like.name, "%s", q->name);
    for (int side = 0; side < 2; side++) {
        snprintf(name, sizeof name, "%s_%c", q->name, side ? 'r' : 's');
        int cq = vb_image_add_cq(image, name, CQ_ENTRIES);
        if (cq < 0)
            return refuse(c, "queue", q->name, cq);
    }
    int added = vb_image_add_queue(image, &like);
    return added >= 0 || refuse(c, "queue", q->name, added);
}

static bool write_counts(struct vb_chain *c, struct vb_image *image)
{
    for (uint32_t i = 0; i < c->counts; i++) {
        const struct vb_build_count *n = &c->count[i];
        struct vb_spot at = {VB_IN_DATA, n->region - 1, n->offset};
        uint8_t *to = image->region[n->region - 1].init + n->offset;
        for (uint32_t b = 0; b < n->bytes; b++)
            to[b] = (uint8_t)(n->value >> 8 * b);
        if (!add_reloc(c, image, n->kind, at, (struct vb_spot){.index = n->target}))
            return false;
    }
    for (uint32_t i = 0; i < c->addresses; i++) {
        struct vb_spot at = {VB_IN_DATA, c->address[i].at.region.id - 1, c->address[i].at.offset};
        struct vb_spot target = at;
        if (!spot_of(c, &c->address[i].of, 0, &target) ||
            !add_reloc(c, image, VB_RELOC_ADDR, at, target))
            return false;
    }
    return true;
}

static bool write_labels(struct vb_chain *c, struct vb_image *image)
{
    for (uint32_t i = 0; i < c->labels; i++) {
        const struct vb_build_label *l = &c->label[i];
        if (!l->item || !l->name[0])
            continue;
        int added = vb_image_add_label(image, l->name, l->item->queue - 1, l->item->block);
        if (added < 0)
            return refuse(c, "label", l->name, added);
    }
    return true;
}

static bool write_image(struct vb_chain *c, struct vb_image *image)
{
    for (uint32_t i = 0; i < c->queues; i++)
        if (!add_queue(c, image, i))
            return false;
    for (uint32_t i = 0; i < c->regions; i++) {
        int added = vb_image_add_region(image, &c->region[i].image);
        if (added < 0)
            return refuse(c, "region", c->region[i].image.name, added);
    }
    for (uint32_t i = 0; i < c->queues; i++) {
        for (const struct vb_item *item = c->queue[i].first; item; item = item->next)
            if (!write_item(c, image, item))
                return false;
        for (uint32_t n = 0; n < c->queue[i].recvs; n++)
            if (!write_recv(c, image, i, n))
                return false;
    }
    return write_counts(c, image) && write_labels(c, image) && vb_image_check(image, c->error);
}

static bool lay_out(struct vb_chain *c)
{
    vb_branch_targets(c);
    if (!vb_rounds_insert(c) || !mark_signaled(c))
        return false;
    for (uint32_t i = 1; i <= c->queues; i++)
        if (!place_items(c, i))
            return false;
    return vb_branch_compare(c) && vb_rounds_number(c);
}

struct vb_image *vb_chain_finish(struct vb_chain *c, char *error)
{
    struct vb_image *image = NULL;

    if (!vb_build_failed(c) && lay_out(c)) {
        image = vb_image_create(c->name);
        if (!image)
            vb_build_fail(c, "no memory for the program");
        else if (!write_image(c, image)) {
            vb_image_destroy(image);
            image = NULL;
        }
    }
    if (!image)
        snprintf(error, VB_IMAGE_TEXT, "%s", c->error);
    vb_chain_abandon(c);
    return image;
}
