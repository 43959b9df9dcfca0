// SPDX-License-Identifier: Apache-2.0
// The static checker: operands, scatter lists, and what clients can write.
#include "chain/check_static.h"

#include <assert.h>
#include <stdio.h>

static bool is_writable(const struct vb_image *image, const struct vb_spot *spot)
{
    return spot->kind != VB_IN_DATA || image->region[spot->index].writable;
}

static void check_access(struct vb_statics *s, struct vb_actor who, const struct vb_access *a)
{
    uint64_t room = vb_image_extent(s->image, &a->spot);
    char place[VB_LISTING_TEXT];

    assert(a->spot.offset <= room);
    vb_listing_place(s->listing, &a->spot, place);
    if (a->len > room - a->spot.offset)
        vb_findings_add(
            s->out, s->listing, VB_CHECK_OUT_OF_REGION, false, who, vb_nobody(),
            "%s %u bytes at %s, but only %llu are left there. Make the memory larger or "
            "the operand shorter",
            a->write ? "writes" : "reads", a->len, place,
            (unsigned long long)(room - a->spot.offset));
    if (a->write && !is_writable(s->image, &a->spot))
        vb_findings_add(s->out, s->listing, VB_CHECK_NOT_WRITABLE, false, who, vb_nobody(),
                        "writes %s, which the program may only read. Make the region writable",
                        place);
}

// ---- fields of entries as targets

// A write into an entry stays within a field, or within the eight bytes that a CAS compares; a
// calculated record takes an address together with its key.
static void check_target(struct vb_statics *s, struct vb_actor who, const struct vb_spot *to,
                         uint32_t len, bool calculated)
{
    uint32_t n, begin, room;
    char place[VB_LISTING_TEXT];

    if (to->kind != VB_IN_SEND)
        return;
    const struct vb_line *line =
        vb_listing_line(s->listing, to->index, (uint32_t)(to->offset / VB_WQEBB_BYTES));
    if (!line)
        return;
    uint32_t at = (uint32_t)(to->offset - (uint64_t)line->block * VB_WQEBB_BYTES);
    int field = vb_listing_field(line, at, &n, &begin, &room);
    uint32_t end = field < 0 ? line->blocks * VB_WQEBB_BYTES : begin + room;
    if (at < 8)
        end = 8;
    if (field == VB_FIELD_RADDR && at == begin && calculated)
        end = begin + 16;
    if (at + len <= end)
        return;
    vb_listing_place(s->listing, to, place);
    vb_findings_add(
        s->out, s->listing, VB_CHECK_LONG_SCATTER, !who.recv, who, vb_line_actor(line),
        "writes %u bytes to %s, which has only %u: what lies behind it is written, too. "
        "Shorten the part",
        len, place, end - at);
}

static bool is_key(int field)
{
    return field == VB_FIELD_RKEY || field == VB_FIELD_KEY || field == VB_FIELD_OBJECT;
}

// The key that is written, if any.
static const struct vb_line *key_under(const struct vb_statics *s, const struct vb_spot *to,
                                       uint32_t len)
{
    for (uint32_t i = 0; to->kind == VB_IN_SEND && i < len; i++) {
        uint64_t offset = to->offset + i;
        uint32_t n, begin, room;
        const struct vb_line *line =
            vb_listing_line(s->listing, to->index, (uint32_t)(offset / VB_WQEBB_BYTES));
        if (!line)
            continue;
        int field = vb_listing_field(
            line, (uint32_t)(offset - (uint64_t)line->block * VB_WQEBB_BYTES), &n, &begin, &room);
        if (is_key(field))
            return line;
    }
    return NULL;
}

static void check_key(struct vb_statics *s, struct vb_actor who, const struct vb_spot *to,
                      uint32_t len)
{
    const struct vb_line *line = key_under(s, to, len);
    char name[VB_LISTING_TEXT];

    if (!line)
        return;
    vb_listing_actor_name(s->listing, vb_line_actor(line), name);
    vb_findings_add(s->out, s->listing, VB_CHECK_KEY_FROM_CLIENT, false, who, vb_line_actor(line),
                    "lets a client choose a key or a queue's number of %s: it could reach any "
                    "memory. Patch address and length only",
                    name);
}

// Whether a client decides what is read there: it wrote it, or says where.
static bool is_tainted(const struct vb_statics *s, const struct vb_line *line,
                       const struct vb_access *source)
{
    if (source->spot.kind == VB_IN_DATA &&
        s->image->region[source->spot.index].kind == VB_REGION_PEER)
        return true;
    if (source->remote && vb_patched(s, line, VB_FIELD_RADDR) & VB_PATCHED_BY_CLIENT)
        return true;
    VB_FOR_PARTS (part, s->listing)
        if (part->to.known && vb_spots_meet(&part->to.to, part->len, &source->spot, source->len))
            return true;
    return false;
}

static void check_copied_keys(struct vb_statics *s, const struct vb_line *line,
                              const struct vb_access *a, uint32_t n)
{
    bool tainted = false;

    for (uint32_t i = 0; i < n; i++)
        tainted |= !a[i].write && is_tainted(s, line, &a[i]);
    for (uint32_t i = 0; tainted && i < n; i++)
        if (a[i].write)
            check_key(s, vb_line_actor(line), &a[i].spot, a[i].len);
}

// ---- entries

// What is never reached does no harm: that is worth a warning.
static void check_alignment(struct vb_statics *s, const struct vb_line *line)
{
    const struct vb_code *c = &line->code;
    uint32_t bytes = c->opmod == VB_WQE_OPMOD_MASKED4 ? 4 : 8;
    bool calc = c->opmod && (c->opcode == VB_WQE_WRITE || c->opcode == VB_WQE_WRITE_IMM ||
                             c->opcode == VB_WQE_SEND || c->opcode == VB_WQE_SEND_IMM);

    if (vb_is_atomic(line) && line->raddr.known && line->raddr.to.offset % bytes)
        vb_findings_add(s->out, s->listing, VB_CHECK_UNALIGNED_ATOMIC, vb_is_idle(s, line, false),
                        vb_line_actor(line), vb_nobody(),
                        "works on %u bytes that are not aligned to %u. Move the operand", bytes,
                        bytes);
    for (uint32_t i = 0; calc && i < c->num_sge; i++)
        if (c->sge[i].len != 16 || (line->sge[i].known && line->sge[i].to.offset % 16))
            vb_findings_add(s->out, s->listing, VB_CHECK_CALC_RECORD, vb_is_idle(s, line, false),
                            vb_line_actor(line), vb_nobody(),
                            "calculates with part %u, which is not a record of 16 bytes aligned to "
                            "16. Use a record: a value of eight bytes, then a tag",
                            i);
}

static void check_unset(struct vb_statics *s, const struct vb_line *line)
{
    const struct vb_code *c = &line->code;
    uint32_t bytes = c->inline_len + (vb_is_atomic(line) ? 8 : 0);
    const char *field = NULL;

    for (uint32_t i = 0; i < c->num_sge; i++) {
        bytes += c->sge[i].len;
        if (c->sge[i].len && !line->sge[i].known && !vb_patched_in(s, line, VB_FIELD_ADDR, i))
            field = "the address of a part";
        if (c->sge[i].len && !line->key[i].known && !vb_patched_in(s, line, VB_FIELD_KEY, i))
            field = "the key of a part";
    }
    bool remote = c->opcode == VB_WQE_READ || c->opcode == VB_WQE_WRITE ||
                  c->opcode == VB_WQE_WRITE_IMM || vb_is_atomic(line);
    if (remote && bytes && !line->raddr.known && !vb_patched(s, line, VB_FIELD_RADDR))
        field = "the remote address";
    if (remote && bytes && !line->rkey.known && !vb_patched(s, line, VB_FIELD_RKEY))
        field = "the remote key";
    if (field)
        vb_findings_add(
            s->out, s->listing, VB_CHECK_UNSET, false, vb_line_actor(line), vb_nobody(),
            "uses a field that nothing fills in: %s. Add a relocation, or an entry that "
            "writes it",
            field);
}

static void check_overlap(struct vb_statics *s, struct vb_actor who, const struct vb_access *a,
                          uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++)
            if (a[i].write && a[k].write && !a[i].remote && !a[k].remote &&
                vb_spots_meet(&a[i].spot, a[i].len, &a[k].spot, a[k].len))
                vb_findings_add(s->out, s->listing, VB_CHECK_SCATTER_OVERLAP, !who.recv, who,
                                vb_nobody(),
                                "puts two of its parts into the same bytes: the last one wins. "
                                "Move one of them");
}

// A comparison with an operand that comes from elsewhere: both sides are filled in alike.
static void check_operand(struct vb_statics *s, const struct vb_line *line)
{
    uint32_t len;

    if (line->code.opcode != VB_WQE_ATOMIC_CS || !line->raddr.known ||
        line->raddr.to.kind != VB_IN_SEND || line->raddr.to.offset % VB_WQEBB_BYTES ||
        !vb_patched(s, line, VB_FIELD_COMPARE))
        return;
    int compare = vb_code_field(&line->code, VB_FIELD_COMPARE, 0, &len);
    const uint8_t *left = s->patch[line->queue] + (size_t)line->block * VB_WQEBB_BYTES + compare;
    const uint8_t *right = s->patch[line->raddr.to.index] + line->raddr.to.offset;
    const struct vb_line *victim = vb_listing_line(
        s->listing, line->raddr.to.index, (uint32_t)(line->raddr.to.offset / VB_WQEBB_BYTES));
    char name[VB_LISTING_TEXT];
    vb_listing_actor_name(s->listing, vb_line_actor(victim), name);
    for (uint32_t byte = 7; byte-- > 0;) { // behind them lies the length
        bool l = left[7 - byte] & (VB_PATCHED | VB_PATCHED_BY_CLIENT);
        bool r = right[byte] & (VB_PATCHED | VB_PATCHED_BY_CLIENT);
        if (byte == 3 || l == r) // the opcode
            continue;
        vb_findings_add(s->out, s->listing, VB_CHECK_PARTIAL_PATCH, true, vb_line_actor(line),
                        vb_line_actor(victim),
                        "compares byte %u of %s, of which only one side is filled in. Fill in both "
                        "or neither",
                        byte, name);
        return;
    }
}

static void check_line(struct vb_statics *s, const struct vb_line *line)
{
    struct vb_access a[VB_ACCESSES];
    uint32_t n = vb_accesses(line, a);

    // An address that is filled in is not what the image has; the NIC proves it when it runs.
    bool filled = vb_patched(s, line, VB_FIELD_RADDR) & VB_PATCHED_BY_CLIENT ||
                  vb_is_filled_in(s, line, VB_FIELD_RADDR);
    for (uint32_t i = 0; i < n; i++) {
        if (!a[i].remote || !filled)
            check_access(s, vb_line_actor(line), &a[i]);
        if (a[i].write)
            check_target(s, vb_line_actor(line), &a[i].spot, a[i].len,
                         line->code.opcode == VB_WQE_WRITE && line->code.opmod);
    }
    check_overlap(s, vb_line_actor(line), a, n);
    check_copied_keys(s, line, a, n);
    check_alignment(s, line);
    check_unset(s, line);
    check_operand(s, line);
}

// ---- receives

static void check_recv(struct vb_statics *s, uint32_t from, uint32_t to)
{
    struct vb_access a[VB_MAX_SGE];
    const struct vb_scatter_line *first = &s->listing->scatter[from];
    struct vb_actor who = vb_receiver(first->queue, first->entry);
    uint32_t n = 0;

    for (uint32_t i = from; i < to; i++) {
        const struct vb_scatter_line *part = &s->listing->scatter[i];
        if (!part->to.known || part->len == 0)
            continue;
        a[n] = (struct vb_access){.spot = part->to.to, .len = part->len, .write = true};
        check_access(s, who, &a[n]);
        check_target(s, who, &a[n].spot, a[n].len, false);
        check_key(s, who, &a[n].spot, a[n].len);
        n++;
    }
    check_overlap(s, who, a, n);
}

void vb_check_memory(struct vb_statics *s)
{
    const struct vb_listing *l = s->listing;

    VB_FOR_LINES (line, l)
        if (!line->wrong)
            check_line(s, line);
    for (uint32_t from = 0, to; from < l->scatters; from = to) {
        for (to = from; to < l->scatters && l->scatter[to].queue == l->scatter[from].queue &&
                        l->scatter[to].entry == l->scatter[from].entry;)
            to++;
        check_recv(s, from, to);
    }
}
