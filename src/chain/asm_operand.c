// SPDX-License-Identifier: Apache-2.0
// Operands: memory by name, numbers, and the relocations that follow from them.
#include "base/bytes.h"
#include "chain/asm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- parsing

static bool no_such_field(struct vb_assembler *a, const char *name)
{
    char list[VB_IMAGE_TEXT] = "";
    size_t used = 0;

    for (int i = 0; i < VB_FIELD_COUNT; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? " " : "",
                                 vb_field_name((enum vb_field)i));
    return vb_asm_fail(&a->line, "there is no field '%s'; fields are: %s", name, list);
}

static bool parse_index(struct vb_assembler *a, const char *what, uint32_t *n)
{
    if (!vb_asm_number32(&a->line, what, n))
        return false;
    return vb_asm_take(&a->line, "]") ? true
                                      : vb_asm_fail(&a->line, "a ] is missing behind %s", what);
}

static bool parse_field(struct vb_assembler *a, struct vb_asm_place *p, const char *name)
{
    p->field = vb_field_find(name);
    if (p->field < 0)
        return no_such_field(a, name);
    if (!vb_asm_take(&a->line, "["))
        return true;
    if (!vb_field_has_index((enum vb_field)p->field))
        return vb_asm_fail(&a->line, "only len, key and addr have an index, not '%s'", name);
    return parse_index(a, "the index of a data segment", &p->field_n);
}

// What follows the name: [block], .recv[n], .field, each at most once and in this order.
static bool parse_base(struct vb_assembler *a, struct vb_asm_place *p)
{
    char word[VB_ASM_WORD];

    if (vb_asm_take(&a->line, "[")) {
        p->base = VB_BASE_BLOCK;
        if (!parse_index(a, "the number of a block", &p->n))
            return false;
    }
    if (!vb_asm_take(&a->line, "."))
        return true;
    vb_asm_word(&a->line, word);
    if (p->base == VB_BASE_NAME && strcmp(word, "recv") == 0) {
        p->base = VB_BASE_RECV;
        if (!vb_asm_take(&a->line, "["))
            return vb_asm_fail(&a->line, "a receive is %s.recv[0]", p->name);
        if (!parse_index(a, "the number of a receive", &p->n))
            return false;
        if (!vb_asm_take(&a->line, "."))
            return true;
        vb_asm_word(&a->line, word);
    }
    return parse_field(a, p, word);
}

bool vb_asm_place(struct vb_assembler *a, struct vb_asm_place *p)
{
    char rest[VB_ASM_WORD];

    *p = (struct vb_asm_place){.field = -1};
    vb_asm_rest(&a->line, rest);
    if (vb_asm_is_number(&a->line) || !vb_asm_word(&a->line, p->name))
        return vb_asm_fail(&a->line,
                           "'%s' names no memory: give region+8, label.field, queue[block], "
                           "queue.recv[n] or @address/key",
                           rest);
    if (!parse_base(a, p))
        return false;
    if (vb_asm_take(&a->line, "+"))
        return vb_asm_number(&a->line, "an offset", UINT64_MAX, &p->plus);
    return true;
}

static bool parse_key(struct vb_assembler *a, struct vb_asm_operand *o)
{
    if (vb_asm_is_number(&a->line)) {
        o->key_kind = VB_KEY_NUMBER;
        return vb_asm_number32(&a->line, "a key", &o->key);
    }
    o->key_kind = VB_KEY_OTHER;
    return vb_asm_place(a, &o->key_place);
}

bool vb_asm_operand(struct vb_assembler *a, struct vb_asm_operand *o)
{
    *o = (struct vb_asm_operand){.key_kind = VB_KEY_OWN};
    if (vb_asm_take(&a->line, "@")) {
        o->is_number = true;
        o->key_kind = VB_KEY_NUMBER;
        if (!vb_asm_number(&a->line, "an address", UINT64_MAX, &o->addr))
            return false;
    } else if (!vb_asm_place(a, &o->place)) {
        return false;
    }
    if (vb_asm_take(&a->line, "/") && !parse_key(a, o))
        return false;
    if (!vb_asm_take(&a->line, ":"))
        return true;
    uint64_t len;
    o->has_len = true;
    if (!vb_asm_number(&a->line, "a length", VB_WQE_INLINE - 1, &len))
        return false;
    o->len = (uint32_t)len;
    return true;
}

bool vb_asm_operands(struct vb_assembler *a, struct vb_asm_operand *list, uint32_t max,
                     uint32_t *count)
{
    do {
        if (*count == max)
            return vb_asm_fail(&a->line, "too many operands: the list has room for %u", max);
        struct vb_asm_operand *o = &list[(*count)++];
        if (!vb_asm_operand(a, o))
            return false;
        if (!o->has_len && (o->is_number || o->place.field < 0))
            return vb_asm_fail(&a->line, "this operand needs a length, like scratch:8");
    } while (vb_asm_take(&a->line, ","));
    return true;
}

bool vb_asm_object(struct vb_assembler *a, bool is_cq, uint32_t *index)
{
    const char *what = is_cq ? "completion queue" : "queue";
    char name[VB_ASM_WORD];

    if (!vb_asm_word(&a->line, name)) {
        vb_asm_rest(&a->line, name);
        return vb_asm_fail(&a->line, "'%s' is no %s: give the name of one", name, what);
    }
    int i = is_cq ? vb_image_find_cq(a->image, name) : vb_image_find_queue(a->image, name);
    if (i < 0)
        return vb_asm_fail(&a->line, "there is no %s '%s'; a line '%s %s …' above must declare it",
                           what, name, is_cq ? "cq" : "queue", name);
    *index = (uint32_t)i;
    return true;
}

// ---- relocations

static void add_reloc(struct vb_assembler *a, const struct vb_reloc *r)
{
    if (vb_image_add_reloc(a->image, r) < 0)
        a->out_of_memory = true;
}

void vb_asm_add_number(struct vb_assembler *a, enum vb_reloc_kind kind, struct vb_spot at,
                       uint32_t index)
{
    add_reloc(a, &(struct vb_reloc){.kind = kind, .at = at, .target = {.index = index}});
}

void vb_asm_add_fixup(struct vb_assembler *a, const struct vb_asm_fixup *fixup)
{
    struct vb_asm_fixup *more = vb_image_room(a->fixup, a->fixups, sizeof *more);

    if (!more) {
        a->out_of_memory = true;
        return;
    }
    a->fixup = more;
    a->fixup[a->fixups] = *fixup;
    a->fixup[a->fixups++].line = a->line.number;
}

void vb_asm_add_operand(struct vb_assembler *a, const struct vb_asm_operand *o,
                        struct vb_spot addr_at, struct vb_spot key_at, const struct vb_spot *len_at)
{
    if (!o->is_number) {
        struct vb_asm_fixup f = {.kind = VB_RELOC_ADDR, .at = addr_at, .place = o->place};
        f.has_len = o->has_len;
        f.len = o->len;
        if (len_at && !o->has_len) {
            f.sets_len = true;
            f.len_at = *len_at;
        }
        vb_asm_add_fixup(a, &f);
    }
    if (o->key_kind != VB_KEY_NUMBER)
        vb_asm_add_fixup(a, &(struct vb_asm_fixup){
                                .kind = VB_RELOC_KEY,
                                .at = key_at,
                                .place = o->key_kind == VB_KEY_OWN ? o->place : o->key_place});
}

uint8_t *vb_asm_bytes_at(struct vb_assembler *a, struct vb_spot spot)
{
    switch (spot.kind) {
    case VB_IN_SEND: return a->image->queue[spot.index].code + spot.offset;
    case VB_IN_RECV: return a->image->queue[spot.index].recv + spot.offset;
    default: return a->image->region[spot.index].init + spot.offset;
    }
}

// As the relocation will read and write them: counters of programs are little-endian.
static void put_value(uint8_t *at, enum vb_reloc_kind kind, uint64_t value)
{
    uint32_t bytes = vb_reloc_bytes(kind);
    bool little = kind >= VB_RELOC_SEND_COUNT;

    for (uint32_t i = 0; i < bytes; i++)
        at[little ? i : bytes - 1 - i] = (uint8_t)(value >> (8 * i));
}

static bool parse_value(struct vb_assembler *a, enum vb_reloc_kind kind, struct vb_spot at)
{
    uint32_t bits = 8 * vb_reloc_bytes(kind);
    uint64_t value, max = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;

    if (!vb_asm_take(&a->line, "="))
        return true;
    if (!vb_asm_number(&a->line, "the value below a relocation", max, &value))
        return false;
    put_value(vb_asm_bytes_at(a, at), kind, value);
    return true;
}

bool vb_asm_reloc(struct vb_assembler *a, struct vb_spot at)
{
    char word[VB_ASM_WORD];

    vb_asm_word(&a->line, word);
    int kind = vb_reloc_find(word);
    if (kind < 0)
        return vb_asm_fail(&a->line,
                           "'%s' is not filled in at loading; there are addr, key, qpn, qpn3, cqn "
                           "and send_, recv_, cq_ with index or count",
                           word);
    uint64_t room = vb_image_extent(a->image, &at);
    uint32_t bytes = vb_reloc_bytes((enum vb_reloc_kind)kind);
    if (room < bytes || at.offset > room - bytes)
        return vb_asm_fail(&a->line, "%s takes %u bytes, which do not fit at %" PRIu64, word, bytes,
                           at.offset);
    if (vb_reloc_is_place((enum vb_reloc_kind)kind)) {
        struct vb_asm_fixup f = {.kind = (enum vb_reloc_kind)kind, .at = at};
        if (!vb_asm_place(a, &f.place))
            return false;
        vb_asm_add_fixup(a, &f);
    } else {
        uint32_t index = 0;
        if (!vb_asm_object(a, vb_reloc_is_cq((enum vb_reloc_kind)kind), &index))
            return false;
        vb_asm_add_number(a, (enum vb_reloc_kind)kind, at, index);
    }
    return parse_value(a, (enum vb_reloc_kind)kind, at);
}

// ---- resolving

// The field's offset in an entry; complains if there is none.
static bool find_field(struct vb_assembler *a, const struct vb_asm_fixup *f,
                       const struct vb_unit *unit, uint64_t *offset, uint32_t *len)
{
    const char *name = vb_field_name((enum vb_field)f->place.field);
    int at = vb_unit_field(unit, (enum vb_field)f->place.field, f->place.field_n, len);

    if (at >= 0) {
        *offset = (uint64_t)at;
        return true;
    }
    if (unit->kind != VB_UNIT_ENTRY && unit->kind != VB_UNIT_RECV)
        return vb_asm_fail(&a->line, "'%s' has no fields, since no instruction stands there",
                           f->place.name);
    if (vb_field_has_index((enum vb_field)f->place.field))
        return vb_asm_fail(&a->line, "'%s' has no %s[%u]: it has %u data segments", f->place.name,
                           name, f->place.field_n, unit->num_sge);
    if (unit->kind == VB_UNIT_RECV)
        return vb_asm_fail(&a->line, "a receive has the fields len, key and addr, not %s", name);
    return vb_asm_fail(&a->line, "'%s' is a %s, which has no field %s", f->place.name,
                       vb_opcode_name(unit->opcode), name);
}

static bool find_name(struct vb_assembler *a, const struct vb_asm_place *p, struct vb_spot *spot)
{
    int region = vb_image_find_region(a->image, p->name);

    if (region >= 0 && p->field < 0) {
        *spot = (struct vb_spot){.kind = VB_IN_DATA, .index = (uint32_t)region};
        return true;
    }
    int label = vb_image_find_label(a->image, p->name);
    if (label < 0)
        return region >= 0 ? vb_asm_fail(&a->line, "region '%s' has no fields", p->name)
                           : vb_asm_fail(&a->line, "there is no region and no label '%s'", p->name);
    const struct vb_image_label *l = &a->image->label[label];
    *spot = (struct vb_spot){
        .kind = VB_IN_SEND, .index = l->queue, .offset = (uint64_t)l->block * VB_WQEBB_BYTES};
    return true;
}

// Where the place begins, its field and offset not counted.
static bool find_base(struct vb_assembler *a, const struct vb_asm_place *p, struct vb_spot *spot)
{
    if (p->base == VB_BASE_NAME)
        return find_name(a, p, spot);
    int i = vb_image_find_queue(a->image, p->name);
    if (i < 0)
        return vb_asm_fail(&a->line, "there is no queue '%s'", p->name);
    const struct vb_image_queue *q = &a->image->queue[i];
    bool is_send = p->base == VB_BASE_BLOCK;
    uint32_t count = is_send ? q->blocks : q->recvs;
    if (p->n > count)
        return vb_asm_fail(&a->line, "queue '%s' has %u %s", p->name, count,
                           is_send ? "blocks" : "receives");
    *spot =
        (struct vb_spot){.kind = is_send ? VB_IN_SEND : VB_IN_RECV,
                         .index = (uint32_t)i,
                         .offset = (uint64_t)p->n * (is_send ? VB_WQEBB_BYTES : q->recv_stride)};
    return true;
}

static bool add_field(struct vb_assembler *a, const struct vb_asm_fixup *f, struct vb_spot *spot)
{
    const struct vb_image_queue *q = &a->image->queue[spot->index];
    struct vb_unit unit = {.kind = VB_UNIT_NONE};
    uint64_t offset = 0, block = spot->offset / VB_WQEBB_BYTES;
    uint32_t len;

    if (spot->kind == VB_IN_RECV)
        vb_unit_of_recv(q->recv_stride, &unit);
    else if (block < q->blocks)
        unit = a->queue[spot->index].unit[block];
    if (!find_field(a, f, &unit, &offset, &len))
        return false;
    if (f->has_len && (f->place.plus > len || f->len > len - f->place.plus))
        return vb_asm_fail(&a->line,
                           "%u bytes are longer than %s.%s (%u bytes); %s+%" PRIu64
                           " counts from the entry's start",
                           f->len, f->place.name, vb_field_name((enum vb_field)f->place.field), len,
                           f->place.name, offset + f->place.plus);
    if (f->sets_len)
        vb_put_be32(vb_asm_bytes_at(a, f->len_at),
                    f->place.plus < len ? len - (uint32_t)f->place.plus : 0);
    spot->offset += offset;
    return true;
}

static bool resolve(struct vb_assembler *a, const struct vb_asm_fixup *f)
{
    struct vb_reloc r = {.kind = f->kind, .at = f->at};

    if (!find_base(a, &f->place, &r.target))
        return false;
    if (f->place.field >= 0 && !add_field(a, f, &r.target))
        return false;
    uint64_t room = vb_image_extent(a->image, &r.target);
    if (r.target.offset > room || f->place.plus > room - r.target.offset)
        return vb_asm_fail(&a->line, "'%s' has %" PRIu64 " bytes; +%" PRIu64 " is behind its end",
                           f->place.name, room, f->place.plus);
    r.target.offset += f->place.plus;
    if (f->kind == VB_RELOC_KEY) {
        r.target.offset = 0;
        if (room == 0)
            return vb_asm_fail(&a->line, "'%s' has no bytes and so no key", f->place.name);
    }
    add_reloc(a, &r);
    return true;
}

bool vb_asm_resolve(struct vb_assembler *a)
{
    for (uint32_t i = 0; i < a->fixups; i++) {
        a->line.number = a->fixup[i].line;
        if (!resolve(a, &a->fixup[i]))
            return false;
    }
    return true;
}
