// SPDX-License-Identifier: Apache-2.0
// Receives: one line is one entry of a receive ring. And patches, which entries of both rings have.
#include "base/bytes.h"
#include "chain/asm.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static bool take_receive(struct vb_assembler *a)
{
    const struct vb_image_queue *q = &a->image->queue[a->index];
    struct vb_asm_queue *state = &a->queue[a->index];
    uint32_t n = state->recv_next;

    if (n >= q->recvs)
        return vb_asm_fail(&a->line, "queue '%s' has %u receives, too few: this is receive %u",
                           q->name, q->recvs, n);
    if (state->recv_used[n])
        return vb_asm_fail(&a->line, "receive %u of queue '%s' has been written above", n, q->name);
    state->recv_used[n] = true;
    state->recv_next++;
    if (state->recv_next > state->recv_end)
        state->recv_end = state->recv_next;
    a->has_last = true;
    a->last = (struct vb_spot){
        .kind = VB_IN_RECV, .index = a->index, .offset = (uint64_t)n * q->recv_stride};
    a->last_bytes = q->recv_stride;
    vb_unit_of_recv(q->recv_stride, &a->last_unit);
    return true;
}

static bool parse_list(struct vb_assembler *a)
{
    uint32_t max = a->image->queue[a->index].recv_stride / VB_WQE_SEG_BYTES, count = 0;
    struct vb_asm_operand list[VB_MAX_SGE];

    assert(max <= VB_MAX_SGE);
    if (vb_asm_take(&a->line, "->") && !vb_asm_operands(a, list, max, &count))
        return false;
    if (!take_receive(a))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct vb_spot len_at = a->last, key_at = a->last, addr_at = a->last;
        len_at.offset += 16 * i;
        key_at.offset += 16 * i + 4;
        addr_at.offset += 16 * i + 8;
        vb_put_be32(vb_asm_bytes_at(a, len_at), list[i].len);
        vb_put_be32(vb_asm_bytes_at(a, key_at), list[i].key);
        vb_put_be64(vb_asm_bytes_at(a, addr_at), list[i].addr);
        vb_asm_add_operand(a, &list[i], addr_at, key_at, &len_at);
    }
    if (count < max)
        vb_put_be32(vb_asm_bytes_at(a, a->last) + 16 * count + 4, VB_WQE_LKEY_END);
    return true;
}

static bool parse_raw(struct vb_assembler *a)
{
    uint8_t bytes[16 * VB_MAX_SGE];
    uint32_t len, stride = a->image->queue[a->index].recv_stride;

    assert(stride <= sizeof bytes);
    if (!vb_asm_bytes(&a->line, bytes, stride, &len) || !take_receive(a))
        return false;
    memcpy(vb_asm_bytes_at(a, a->last), bytes, len);
    return true;
}

static bool parse_slot(struct vb_assembler *a)
{
    const struct vb_image_queue *q = &a->image->queue[a->index];
    uint32_t n;

    if (!vb_asm_number32(&a->line, "the number of a receive", &n))
        return false;
    if (n >= q->recvs)
        return vb_asm_fail(&a->line, "queue '%s' has %u receives", q->name, q->recvs);
    a->queue[a->index].recv_next = n;
    a->has_last = false;
    return true;
}

bool vb_asm_recv_line(struct vb_assembler *a)
{
    char rest[VB_ASM_WORD];

    vb_asm_rest(&a->line, rest);
    if (vb_asm_take(&a->line, "recv"))
        return parse_list(a);
    if (vb_asm_take(&a->line, "raw"))
        return parse_raw(a);
    if (vb_asm_take(&a->line, "slot"))
        return parse_slot(a);
    if (vb_asm_take(&a->line, "patch"))
        return vb_asm_patch(a);
    return vb_asm_fail(&a->line, "'%s' does not stand among receives; recv, raw, slot and patch do",
                       rest);
}

// ---- patches

// `field`, `field[n]`, each with `+bytes`; the offset in the last entry.
static bool parse_field(struct vb_assembler *a, uint64_t *offset)
{
    char word[VB_ASM_WORD];
    uint64_t plus = 0;
    uint32_t len, n = 0;

    vb_asm_word(&a->line, word);
    int field = vb_field_find(word);
    if (field < 0)
        return vb_asm_fail(&a->line, "'%s' is no field of an entry, and no offset in it", word);
    if (vb_asm_take(&a->line, "[") &&
        (!vb_asm_number32(&a->line, "the index of a data segment", &n) ||
         !vb_asm_take(&a->line, "]")))
        return vb_asm_fail(&a->line, "the index of a data segment is written %s[0]", word);
    if (vb_asm_take(&a->line, "+") && !vb_asm_number(&a->line, "an offset", a->last_bytes, &plus))
        return false;
    int at = vb_unit_field(&a->last_unit, (enum vb_field)field, n, &len);
    if (at < 0)
        return vb_asm_fail(&a->line, "the entry above has no field %s, or not so many", word);
    *offset = (uint64_t)at + plus;
    return true;
}

bool vb_asm_patch(struct vb_assembler *a)
{
    struct vb_spot at = a->last;
    uint64_t offset;

    if (!a->has_last)
        return vb_asm_fail(&a->line, "a patch follows the entry that it is for");
    if (vb_asm_is_number(&a->line)
            ? !vb_asm_number(&a->line, "an offset in the entry", a->last_bytes, &offset)
            : !parse_field(a, &offset))
        return false;
    if (offset >= a->last_bytes)
        return vb_asm_fail(&a->line, "the entry above has %u bytes; %" PRIu64 " is behind its end",
                           a->last_bytes, offset);
    at.offset += offset;
    return vb_asm_reloc(a, at);
}
