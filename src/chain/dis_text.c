// SPDX-License-Identifier: Apache-2.0
// The words of the disassembler: bytes, places and relocations as text.
#include "chain/dis.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MIN = 4, // fewer printable bytes are more likely a number
};

static bool grow(struct vb_disassembler *d, size_t more)
{
    if (d->room - d->len > more)
        return true;
    size_t room = 2 * (d->len + more + 1);
    char *text = realloc(d->text, room);
    if (!text) {
        d->failed = true;
        return false;
    }
    d->text = text;
    d->room = room;
    return true;
}

void vb_dis_print(struct vb_disassembler *d, const char *format, ...)
{
    char piece[256];
    va_list args;

    va_start(args, format);
    int len = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    assert(len >= 0 && (size_t)len < sizeof piece);
    if (d->failed || !grow(d, (size_t)len))
        return;
    memcpy(d->text + d->len, piece, (size_t)len + 1);
    d->len += (size_t)len;
}

void vb_dis_hex(struct vb_disassembler *d, const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        vb_dis_print(d, "%s%02x", i && i % 8 == 0 ? " " : "", bytes[i]);
}

static bool is_printable(uint8_t byte)
{
    return byte >= ' ' && byte <= '~';
}

void vb_dis_quote(struct vb_disassembler *d, const uint8_t *bytes, uint32_t len)
{
    vb_dis_print(d, "\"");
    for (uint32_t i = 0; i < len; i++)
        if (!is_printable(bytes[i]))
            vb_dis_print(d, "\\x%02x", bytes[i]);
        else
            vb_dis_print(d, "%s%c", bytes[i] == '"' || bytes[i] == '\\' ? "\\" : "", bytes[i]);
    vb_dis_print(d, "\"");
}

void vb_dis_bytes(struct vb_disassembler *d, const uint8_t *bytes, uint32_t len)
{
    bool text = len >= TEXT_MIN;

    for (uint32_t i = 0; i < len; i++)
        text = text && is_printable(bytes[i]);
    if (text)
        vb_dis_quote(d, bytes, len);
    else
        vb_dis_hex(d, bytes, len);
}

// ---- places

bool vb_dis_field(struct vb_disassembler *d, const struct vb_unit *unit, uint64_t offset,
                  uint32_t len, const char *before)
{
    struct {
        enum vb_field field;
        uint32_t n, bytes, plus;
    } best = {.field = VB_FIELD_COUNT, .bytes = UINT32_MAX};

    for (int f = 0; f < VB_FIELD_COUNT; f++) {
        uint32_t count = vb_field_has_index((enum vb_field)f) ? unit->num_sge : 1, bytes;
        for (uint32_t n = 0; n < count; n++) {
            int at = vb_unit_field(unit, (enum vb_field)f, n, &bytes);
            if (at < 0 || offset < (uint32_t)at ||
                offset + (len ? len : 1) > (uint32_t)at + bytes || bytes >= best.bytes)
                continue;
            best.field = (enum vb_field)f;
            best.n = n;
            best.bytes = bytes;
            best.plus = (uint32_t)(offset - (uint32_t)at);
        }
    }
    if (best.field == VB_FIELD_COUNT)
        return false;
    vb_dis_print(d, "%s%s", before, vb_field_name(best.field));
    if (best.n)
        vb_dis_print(d, "[%u]", best.n);
    if (best.plus)
        vb_dis_print(d, "+%u", best.plus);
    return true;
}

static void print_plus(struct vb_disassembler *d, uint64_t offset)
{
    if (offset)
        vb_dis_print(d, "+%" PRIu64, offset);
}

static void print_send(struct vb_disassembler *d, const struct vb_spot *spot, uint32_t len)
{
    const struct vb_image_queue *q = &d->image->queue[spot->index];
    const struct vb_dis_queue *s = &d->queue[spot->index];
    uint32_t block = (uint32_t)(spot->offset / VB_WQEBB_BYTES);

    if (block >= q->blocks) {
        vb_dis_print(d, "%s[%u]", q->name, block);
        return;
    }
    block -= s->unit[block].kind == VB_UNIT_INSIDE ? s->unit[block].back : 0;
    uint64_t offset = spot->offset - (uint64_t)block * VB_WQEBB_BYTES;
    // Where a region has the same name, the name is the region's.
    const struct vb_image_label *label = s->label[block];
    if (label && vb_image_find_region(d->image, label->name) < 0)
        vb_dis_print(d, "%s", label->name);
    else
        vb_dis_print(d, "%s[%u]", q->name, block);
    if (!vb_dis_field(d, &s->unit[block], offset, len, "."))
        print_plus(d, offset);
}

static void print_recv(struct vb_disassembler *d, const struct vb_spot *spot, uint32_t len)
{
    const struct vb_image_queue *q = &d->image->queue[spot->index];
    uint64_t n = q->recv_stride ? spot->offset / q->recv_stride : 0;
    uint64_t offset = spot->offset - n * q->recv_stride;
    struct vb_unit unit;

    vb_dis_print(d, "%s.recv[%" PRIu64 "]", q->name, n);
    vb_unit_of_recv(q->recv_stride, &unit);
    if (n >= q->recvs || !vb_dis_field(d, &unit, offset, len, "."))
        print_plus(d, offset);
}

void vb_dis_place(struct vb_disassembler *d, const struct vb_spot *spot, uint32_t len)
{
    if (spot->kind == VB_IN_SEND) {
        print_send(d, spot, len);
    } else if (spot->kind == VB_IN_RECV) {
        print_recv(d, spot, len);
    } else {
        vb_dis_print(d, "%s", d->image->region[spot->index].name);
        print_plus(d, spot->offset);
    }
}

void vb_dis_memory(struct vb_disassembler *d, const struct vb_spot *spot)
{
    if (spot->kind == VB_IN_DATA)
        vb_dis_print(d, "%s", d->image->region[spot->index].name);
    else
        vb_dis_print(d, "%s%s[0]", d->image->queue[spot->index].name,
                     spot->kind == VB_IN_SEND ? "" : ".recv");
}

// ---- relocations

uint32_t vb_dis_first(const struct vb_disassembler *d, const struct vb_spot *spot)
{
    uint32_t low = 0, high = d->image->relocs;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (vb_spot_compare(&d->reloc[middle].at, spot) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct vb_reloc *vb_dis_take(struct vb_disassembler *d, const struct vb_spot *spot,
                                   enum vb_reloc_kind kind)
{
    uint32_t i = vb_dis_first(d, spot);

    if (i == d->image->relocs || vb_spot_compare(&d->reloc[i].at, spot) != 0 ||
        d->reloc[i].kind != kind)
        return NULL;
    d->done[i] = true;
    return &d->reloc[i];
}

bool vb_dis_has_reloc(const struct vb_disassembler *d, const struct vb_spot *spot, uint32_t len)
{
    struct vb_spot end = *spot;
    uint32_t i = vb_dis_first(d, spot);

    end.offset += len;
    return i < d->image->relocs && vb_spot_compare(&d->reloc[i].at, &end) < 0;
}

void vb_dis_reloc(struct vb_disassembler *d, const struct vb_reloc *r)
{
    vb_dis_print(d, "%s ", vb_reloc_name(r->kind));
    if (r->kind == VB_RELOC_ADDR)
        vb_dis_place(d, &r->target, 1);
    else if (r->kind == VB_RELOC_KEY)
        vb_dis_memory(d, &r->target);
    else
        vb_dis_print(d, "%s",
                     vb_reloc_is_cq(r->kind) ? d->image->cq[r->target.index].name
                                             : d->image->queue[r->target.index].name);
}
