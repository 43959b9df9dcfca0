// SPDX-License-Identifier: Apache-2.0
// Entries of both rings as lines of text.
#include "base/bytes.h"
#include "chain/dis.h"

#include <inttypes.h>
#include <string.h>

enum {
    COMMENT_COLUMN = 64, // of the number of an entry's block
};

// One entry that is being printed.
struct line {
    struct vb_disassembler *d;
    struct vb_spot at;
    const struct vb_image_queue *queue;
    struct vb_unit unit;
};

// ---- decoding

static bool lists_are_plain(const struct vb_code *c)
{
    for (uint32_t i = 0; i < c->num_sge; i++)
        if (c->sge[i].len & VB_WQE_INLINE)
            return false;
    return true;
}

// Whether the text of such an entry has a place for this relocation.
static bool suits(const struct vb_unit *u, uint64_t offset, enum vb_reloc_kind kind)
{
    static const struct {
        enum vb_field field;
        enum vb_reloc_kind kind;
    } pairs[] = {{VB_FIELD_QPN, VB_RELOC_QPN3},
                 {VB_FIELD_RADDR, VB_RELOC_ADDR},
                 {VB_FIELD_RKEY, VB_RELOC_KEY},
                 {VB_FIELD_ADDR, VB_RELOC_ADDR},
                 {VB_FIELD_KEY, VB_RELOC_KEY}};
    uint32_t len;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        uint32_t count = vb_field_has_index(pairs[i].field) ? u->num_sge : 1;
        for (uint32_t n = 0; n < count && pairs[i].kind == kind; n++)
            if (vb_unit_field(u, pairs[i].field, n, &len) == (int)offset)
                return true;
    }
    return (kind == vb_form_index_reloc(u->opcode) &&
            vb_unit_field(u, VB_FIELD_INDEX, 0, &len) == (int)offset) ||
           (kind == vb_form_object_reloc(u->opcode) &&
            vb_unit_field(u, VB_FIELD_OBJECT, 0, &len) == (int)offset);
}

static uint32_t score(const struct vb_disassembler *d, const struct vb_spot *at, uint32_t bytes,
                      const struct vb_unit *u)
{
    uint32_t found = 0;

    for (uint32_t i = vb_dis_first(d, at); i < d->image->relocs; i++) {
        const struct vb_reloc *r = &d->reloc[i];
        if (r->at.kind != at->kind || r->at.index != at->index ||
            r->at.offset >= at->offset + bytes)
            break;
        found += suits(u, r->at.offset - at->offset, r->kind);
    }
    return found;
}

static bool hides_label(const struct vb_disassembler *d, uint32_t queue, uint32_t block,
                        uint32_t blocks)
{
    for (uint32_t i = 1; i < blocks; i++)
        if (d->queue[queue].label[block + i])
            return true;
    return false;
}

// A NOP with the body of another entry: whichever says most of the relocations, and of those with
// the shortest list.
static bool decode_dormant(struct vb_disassembler *d, const struct vb_spot *at,
                           const uint8_t *bytes, size_t room, struct vb_unit *unit,
                           struct vb_code *code)
{
    static const uint8_t tries[] = {VB_WQE_WRITE,     VB_WQE_SEND, VB_WQE_ATOMIC_CS,
                                    VB_WQE_MASKED_CS, VB_WQE_WAIT, VB_WQE_SEND_EN,
                                    VB_WQE_RECV_EN};
    uint32_t block = (uint32_t)(at->offset / VB_WQEBB_BYTES);
    uint32_t best = 0;
    bool found = false;

    for (size_t i = 0; i < sizeof tries; i++) {
        struct vb_code c;
        struct vb_unit u;
        if (!vb_code_read_as(bytes, room, tries[i], &c) || !lists_are_plain(&c) ||
            hides_label(d, at->index, block, vb_code_blocks(&c)))
            continue;
        vb_unit_of(&c, &u);
        uint32_t points = score(d, at, vb_code_blocks(&c) * VB_WQEBB_BYTES, &u);
        if (found && (points < best || (points == best && c.num_sge >= code->num_sge)))
            continue;
        found = true;
        best = points;
        *unit = u;
        *code = c;
    }
    return found;
}

static bool is_zero(const uint8_t *at, size_t bytes)
{
    return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

uint32_t vb_dis_decode(struct vb_disassembler *d, uint32_t queue, uint32_t block,
                       struct vb_unit *unit, struct vb_code *code)
{
    const struct vb_image_queue *q = &d->image->queue[queue];
    const struct vb_spot at = {
        .kind = VB_IN_SEND, .index = queue, .offset = (uint64_t)block * VB_WQEBB_BYTES};
    const uint8_t *bytes = q->code + at.offset;
    size_t room = (size_t)(q->blocks - block) * VB_WQEBB_BYTES;

    if (is_zero(bytes, VB_WQEBB_BYTES)) {
        if (d->queue[queue].label[block] || vb_dis_has_reloc(d, &at, VB_WQEBB_BYTES))
            unit->kind = VB_UNIT_RAW;
        return 1;
    }
    if (vb_code_read(bytes, room, code) && lists_are_plain(code)) {
        vb_unit_of(code, unit);
    } else if (bytes[3] != VB_WQE_NOP || !decode_dormant(d, &at, bytes, room, unit, code)) {
        unit->kind = VB_UNIT_RAW;
        return 1;
    }
    return vb_code_written(code);
}

static bool is_end(const uint8_t *at)
{
    return vb_get_be32(at) == 0 && vb_get_be32(at + 4) == VB_WQE_LKEY_END &&
           vb_get_be64(at + 8) == 0;
}

// Data segments of receive `n`; `is_list`: whether they are all that it holds.
uint32_t vb_dis_decode_recv(const struct vb_image_queue *q, uint32_t n, bool *is_list)
{
    const uint8_t *at = q->recv + (size_t)n * q->recv_stride;
    uint32_t max = q->recv_stride / VB_WQE_SEG_BYTES, count = 0;

    *is_list = true;
    for (; count < max && !is_end(at + 16 * count); count++)
        *is_list = *is_list && !(vb_get_be32(at + 16 * count) & VB_WQE_INLINE);
    if (count + 1 < max)
        *is_list = *is_list && is_zero(at + 16 * (count + 1), 16 * (max - count - 1));
    return count;
}

// ---- operands

static struct vb_spot spot_of(const struct line *l, enum vb_field field, uint32_t n)
{
    struct vb_spot spot = l->at;
    uint32_t len;

    spot.offset += (uint64_t)vb_unit_field(&l->unit, field, n, &len);
    return spot;
}

// Address and key. A relocation over bytes that are not zero is left to a patch.
static void print_operand(struct line *l, struct vb_spot addr_at, uint64_t addr,
                          struct vb_spot key_at, uint32_t key, uint32_t len)
{
    struct vb_disassembler *d = l->d;
    const struct vb_reloc *a = addr ? NULL : vb_dis_take(d, &addr_at, VB_RELOC_ADDR);
    const struct vb_reloc *k = key ? NULL : vb_dis_take(d, &key_at, VB_RELOC_KEY);

    if (a)
        vb_dis_place(d, &a->target, len);
    else
        vb_dis_print(d, "@0x%" PRIx64, addr);
    if (!k) {
        vb_dis_print(d, "/0x%x", key);
    } else if (!a || a->target.kind != k->target.kind || a->target.index != k->target.index) {
        vb_dis_print(d, "/");
        vb_dis_memory(d, &k->target);
    }
}

static void print_list(struct line *l, const struct vb_code_sge *sge, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        vb_dis_print(l->d, "%s", i ? ", " : "");
        print_operand(l, spot_of(l, VB_FIELD_ADDR, i), sge[i].addr, spot_of(l, VB_FIELD_KEY, i),
                      sge[i].key, sge[i].len);
        vb_dis_print(l->d, ":%u", sge[i].len);
    }
}

static void print_raddr(struct line *l, const struct vb_code *c)
{
    uint32_t len = c->inline_len;

    for (uint32_t i = 0; i < c->num_sge; i++)
        len += c->sge[i].len;
    if (!vb_opcode_has(c->opcode, VB_FIELD_RADDR))
        return;
    vb_dis_print(l->d, " ");
    print_operand(l, spot_of(l, VB_FIELD_RADDR, 0), c->raddr, spot_of(l, VB_FIELD_RKEY, 0), c->rkey,
                  len);
}

static void print_object(struct line *l, const struct vb_code *c)
{
    struct vb_disassembler *d = l->d;

    if (!vb_opcode_has(c->opcode, VB_FIELD_INDEX))
        return;
    struct vb_spot object_at = spot_of(l, VB_FIELD_OBJECT, 0),
                   index_at = spot_of(l, VB_FIELD_INDEX, 0);
    const struct vb_reloc *o =
        c->object ? NULL : vb_dis_take(d, &object_at, vb_form_object_reloc(c->opcode));
    if (!o) {
        vb_dis_print(d, " @0x%x %u", c->object, c->index);
        return;
    }
    vb_dis_print(d, " %s",
                 c->opcode == VB_WQE_WAIT ? d->image->cq[o->target.index].name
                                          : d->image->queue[o->target.index].name);
    uint32_t i = vb_dis_first(d, &index_at);
    bool same = i < d->image->relocs && d->reloc[i].target.index == o->target.index;
    bool moves = same && vb_dis_take(d, &index_at, vb_form_index_reloc(c->opcode));
    vb_dis_print(d, "%s %u", moves ? "" : " absolute", c->index);
}

// ---- instructions

static void print_name(struct line *l, const struct vb_code *c, bool dormant)
{
    struct vb_disassembler *d = l->d;

    vb_dis_print(d, "    %s%s", dormant ? "nop as " : "", vb_opcode_name(c->opcode));
    if (vb_opcode_is_masked(c->opcode))
        vb_dis_print(d, "%s", c->opmod == VB_WQE_OPMOD_MASKED4 ? ".4" : ".8");
    else if (vb_opcode_may_calc(c->opcode) && vb_calc_name(c->opmod))
        vb_dis_print(d, ".%s", vb_calc_name(c->opmod));
}

static void print_arguments(struct line *l, const struct vb_code *c)
{
    struct vb_disassembler *d = l->d;

    switch (c->opcode) {
    case VB_WQE_MASKED_CS:
    case VB_WQE_ATOMIC_CS:
        vb_dis_print(d, " compare 0x%" PRIx64 " swap 0x%" PRIx64, c->compare, c->swap_add);
        if (c->opcode == VB_WQE_MASKED_CS)
            vb_dis_print(d, " compare_mask 0x%" PRIx64 " swap_mask 0x%" PRIx64, c->compare_mask,
                         c->swap_mask);
        break;
    case VB_WQE_ATOMIC_FA:
        vb_dis_print(d, " add 0x%" PRIx64, c->swap_add);
        if (c->compare)
            vb_dis_print(d, " compare 0x%" PRIx64, c->compare);
        break;
    case VB_WQE_MASKED_FA:
        vb_dis_print(d, " add 0x%" PRIx64 " boundary 0x%" PRIx64, c->swap_add, c->compare);
    }
}

static void print_flags(struct vb_disassembler *d, uint8_t flags)
{
    const uint8_t named = VB_WQE_CE_ALWAYS | VB_WQE_FENCE | VB_WQE_SOLICITED;

    if (flags & ~named) {
        vb_dis_print(d, " flags 0x%x", flags);
        return;
    }
    vb_dis_print(d, "%s%s%s", flags & VB_WQE_CE_ALWAYS ? " signaled" : "",
                 flags & VB_WQE_FENCE ? " fence" : "",
                 flags & VB_WQE_SOLICITED ? " solicited" : "");
}

static bool opmod_is_said(const struct vb_code *c)
{
    if (vb_opcode_is_masked(c->opcode))
        return c->opmod == VB_WQE_OPMOD_MASKED4 || c->opmod == VB_WQE_OPMOD_MASKED8;
    return c->opmod == 0 || (vb_opcode_may_calc(c->opcode) && vb_calc_name(c->opmod));
}

// What the control segment says, where it is not what the assembler would put there by itself.
static void print_control(struct line *l, const struct vb_code *c)
{
    struct vb_disassembler *d = l->d;
    struct vb_spot qpn_at = spot_of(l, VB_FIELD_QPN, 0);
    const struct vb_reloc *qpn = c->qpn ? NULL : vb_dis_take(d, &qpn_at, VB_RELOC_QPN3);

    if (c->opcode == VB_WQE_NOP && c->ds)
        vb_dis_print(d, " ds %u", c->ds);
    print_flags(d, c->fm_ce_se);
    if (c->imm)
        vb_dis_print(d, " imm 0x%x", c->imm);
    if (!opmod_is_said(c))
        vb_dis_print(d, " opmod 0x%x", c->opmod);
    if (c->idx != (uint16_t)(l->at.offset / VB_WQEBB_BYTES))
        vb_dis_print(d, " idx %u", c->idx);
    if (qpn && (!l->queue->wqe_checks || qpn->target.index != l->at.index))
        vb_dis_print(d, " qpn %s", d->image->queue[qpn->target.index].name);
    else if (!qpn && (c->qpn || l->queue->wqe_checks))
        vb_dis_print(d, " qpn 0x%x", c->qpn);
}

static void print_data(struct line *l, const struct vb_code *c)
{
    if (c->inline_len) {
        vb_dis_print(l->d, " <- inline ");
        vb_dis_bytes(l->d, c->data, c->inline_len);
    } else if (c->num_sge) {
        vb_dis_print(l->d, vb_opcode_scatters(c->opcode) ? " -> " : " <- ");
        print_list(l, c->sge, c->num_sge);
    }
}

// ---- lines

static uint32_t used_bytes(const uint8_t *at, uint32_t len)
{
    while (len > 1 && at[len - 1] == 0)
        len--;
    return len;
}

static void print_raw(struct line *l, const uint8_t *at, uint32_t len)
{
    vb_dis_print(l->d, "    raw ");
    vb_dis_hex(l->d, at, used_bytes(at, len));
}

// Ends an entry's line with its number, and adds the relocations that the line does not say.
static void end_line(struct line *l, uint32_t number, uint32_t bytes)
{
    struct vb_disassembler *d = l->d;

    if (d->failed)
        return;
    const char *start = memrchr(d->text, '\n', d->len); // a program's name is before all entries
    size_t column = d->len - 1 - (size_t)(start - d->text);

    vb_dis_print(d, "%*s# %u\n", column < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - column) : 2, "",
                 number);
    for (uint32_t i = vb_dis_first(d, &l->at); i < d->image->relocs; i++) {
        const struct vb_reloc *r = &d->reloc[i];
        if (r->at.kind != l->at.kind || r->at.index != l->at.index ||
            r->at.offset >= l->at.offset + bytes)
            break;
        if (d->done[i])
            continue;
        uint64_t offset = r->at.offset - l->at.offset;
        vb_dis_print(d, "    patch ");
        if (!vb_dis_field(d, &l->unit, offset, vb_reloc_bytes(r->kind), ""))
            vb_dis_print(d, "%" PRIu64, offset);
        vb_dis_print(d, " ");
        vb_dis_reloc(d, r);
        vb_dis_print(d, "\n");
    }
}

// Prints what begins at `block`; returns how many blocks it takes.
static uint32_t print_entry(struct vb_disassembler *d, uint32_t queue, uint32_t block)
{
    struct line l = {.d = d, .queue = &d->image->queue[queue]};
    struct vb_code code;

    l.at = (struct vb_spot){
        .kind = VB_IN_SEND, .index = queue, .offset = (uint64_t)block * VB_WQEBB_BYTES};
    const uint8_t *at = l.queue->code + l.at.offset;
    uint32_t blocks = vb_dis_decode(d, queue, block, &l.unit, &code);
    if (l.unit.kind == VB_UNIT_RAW) {
        print_raw(&l, at, VB_WQEBB_BYTES);
    } else {
        print_name(&l, &code, at[3] != code.opcode);
        print_object(&l, &code);
        print_raddr(&l, &code);
        print_arguments(&l, &code);
        print_data(&l, &code);
        print_control(&l, &code);
    }
    end_line(&l, block, blocks * VB_WQEBB_BYTES);
    return blocks;
}

// The labels of these blocks, from the next one on that has not been printed.
static void print_labels(struct vb_disassembler *d, uint32_t queue, uint32_t block, uint32_t blocks,
                         uint32_t *next)
{
    for (; *next < d->image->labels; ++*next) {
        const struct vb_image_label *l = &d->label[*next];
        if (l->queue != queue || l->block >= block + blocks)
            return;
        if (blocks == 1)
            vb_dis_print(d, "%s:\n", l->name);
        else
            vb_dis_print(d, "    label %s %u\n", l->name, l->block);
    }
}

void vb_dis_code(struct vb_disassembler *d, uint32_t queue)
{
    const struct vb_dis_queue *s = &d->queue[queue];
    uint32_t next = 0, expected = 0;

    if (s->end == 0)
        return;
    vb_dis_print(d, "\ncode %s\n", d->image->queue[queue].name);
    while (next < d->image->labels && d->label[next].queue < queue)
        next++;
    for (uint32_t block = 0; block < s->end;) {
        if (s->unit[block].kind == VB_UNIT_NONE) {
            block++;
            continue;
        }
        if (block != expected)
            vb_dis_print(d, "    block %u\n", block);
        print_labels(d, queue, block, 1, &next);
        uint32_t blocks = print_entry(d, queue, block);
        print_labels(d, queue, block, blocks, &next);
        block += blocks;
        expected = block;
    }
}

// ---- receives

static void print_receive(struct vb_disassembler *d, uint32_t queue, uint32_t n)
{
    struct line l = {.d = d, .queue = &d->image->queue[queue]};
    struct vb_code_sge sge[VB_MAX_SGE];
    bool is_list;
    uint32_t stride = l.queue->recv_stride, count = vb_dis_decode_recv(l.queue, n, &is_list);
    const uint8_t *at = l.queue->recv + (size_t)n * stride;

    l.at = (struct vb_spot){.kind = VB_IN_RECV, .index = queue, .offset = (uint64_t)n * stride};
    vb_unit_of_recv(stride, &l.unit);
    if (!is_list) {
        print_raw(&l, at, stride);
    } else {
        for (uint32_t i = 0; i < count; i++)
            sge[i] = (struct vb_code_sge){.len = vb_get_be32(at + 16 * i),
                                          .key = vb_get_be32(at + 16 * i + 4),
                                          .addr = vb_get_be64(at + 16 * i + 8)};
        vb_dis_print(d, count ? "    recv -> " : "    recv");
        print_list(&l, sge, count);
    }
    end_line(&l, n, stride);
}

void vb_dis_receives(struct vb_disassembler *d, uint32_t queue)
{
    const struct vb_dis_queue *s = &d->queue[queue];
    uint32_t expected = 0;

    if (s->recv_end == 0)
        return;
    vb_dis_print(d, "\nreceives %s\n", d->image->queue[queue].name);
    for (uint32_t n = 0; n < s->recv_end; n++) {
        if (!s->recv_used[n])
            continue;
        if (n != expected)
            vb_dis_print(d, "    slot %u\n", n);
        print_receive(d, queue, n);
        expected = n + 1;
    }
}
