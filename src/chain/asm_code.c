// SPDX-License-Identifier: Apache-2.0
// Instructions: one line is one entry of a send ring.
#include "chain/asm.h"

#include <string.h>

enum object_kind {
    OBJECT_NONE,
    OBJECT_NUMBER,
    OBJECT_NAME,
};

enum qpn_kind {
    QPN_DEFAULT, // the queue's own if it checks its entries, else zero
    QPN_NUMBER,
    QPN_NAME,
};

// An instruction before it is written.
struct draft {
    struct vb_code code;
    bool dormant; // a NOP in the ring: something will give it its opcode
    bool has_idx, has_raddr;
    bool absolute; // its index is not relocated
    enum object_kind object_kind;
    enum qpn_kind qpn_kind;
    uint32_t object, qpn; // indices in the image
    struct vb_asm_operand raddr;
    struct vb_asm_operand list[VB_MAX_SGE];
};

// ---- attributes

static bool is_narrow(const struct draft *d)
{
    return vb_opcode_is_masked(d->code.opcode) && d->code.opmod == VB_WQE_OPMOD_MASKED4;
}

static bool parse_opmod(struct vb_assembler *a, struct draft *d)
{
    uint64_t value;

    if (!vb_asm_number(&a->line, "an opmod", UINT8_MAX, &value))
        return false;
    if (vb_opcode_is_masked(d->code.opcode) && (value == VB_WQE_OPMOD_MASKED4 || is_narrow(d)))
        return vb_asm_fail(&a->line, "opmod 8 is the form .4, and the form .4 has no other");
    d->code.opmod = (uint8_t)value;
    return true;
}

static bool parse_qpn(struct vb_assembler *a, struct draft *d)
{
    uint64_t value;

    if (!vb_asm_is_number(&a->line)) {
        d->qpn_kind = QPN_NAME;
        return vb_asm_object(a, false, &d->qpn);
    }
    d->qpn_kind = QPN_NUMBER;
    if (!vb_asm_number(&a->line, "a queue's number", 0xffffff, &value))
        return false;
    d->code.qpn = (uint32_t)value;
    return true;
}

// What the control segment says besides the opcode.
static bool parse_control(struct vb_assembler *a, struct draft *d, const char *word, bool *known)
{
    uint64_t value = 0;

    *known = true;
    if (strcmp(word, "signaled") == 0) {
        d->code.fm_ce_se |= VB_WQE_CE_ALWAYS;
    } else if (strcmp(word, "fence") == 0) {
        d->code.fm_ce_se |= VB_WQE_FENCE;
    } else if (strcmp(word, "solicited") == 0) {
        d->code.fm_ce_se |= VB_WQE_SOLICITED;
    } else if (strcmp(word, "flags") == 0) {
        if (!vb_asm_number(&a->line, "flags", UINT8_MAX, &value))
            return false;
        d->code.fm_ce_se |= (uint8_t)value;
    } else if (strcmp(word, "imm") == 0) {
        return vb_asm_number32(&a->line, "immediate data", &d->code.imm);
    } else if (strcmp(word, "idx") == 0) {
        if (!vb_asm_number(&a->line, "an idx", UINT16_MAX, &value))
            return false;
        d->code.idx = (uint16_t)value;
        d->has_idx = true;
    } else if (strcmp(word, "qpn") == 0) {
        return parse_qpn(a, d);
    } else if (strcmp(word, "opmod") == 0) {
        return parse_opmod(a, d);
    } else {
        *known = false;
    }
    return true;
}

// Arguments of atomics: which opcodes have them, and where they go.
static uint64_t *argument(struct draft *d, const char *word)
{
    uint8_t opcode = d->code.opcode;
    bool swaps = opcode == VB_WQE_ATOMIC_CS || opcode == VB_WQE_MASKED_CS;
    bool adds = opcode == VB_WQE_ATOMIC_FA || opcode == VB_WQE_MASKED_FA;

    if ((swaps && strcmp(word, "swap") == 0) || (adds && strcmp(word, "add") == 0))
        return &d->code.swap_add;
    if ((swaps || opcode == VB_WQE_ATOMIC_FA) && strcmp(word, "compare") == 0)
        return &d->code.compare;
    if (opcode == VB_WQE_MASKED_FA && strcmp(word, "boundary") == 0)
        return &d->code.compare;
    if (opcode == VB_WQE_MASKED_CS && strcmp(word, "swap_mask") == 0)
        return &d->code.swap_mask;
    if (opcode == VB_WQE_MASKED_CS && strcmp(word, "compare_mask") == 0)
        return &d->code.compare_mask;
    return NULL;
}

static bool parse_ds(struct vb_assembler *a, struct draft *d)
{
    uint64_t value;

    if (d->code.opcode != VB_WQE_NOP)
        return vb_asm_fail(&a->line,
                           "only a nop has a ds of its own; others are as long as they are");
    if (!vb_asm_number(&a->line, "a ds", VB_WQE_DS_MASK, &value))
        return false;
    if (value == 0)
        return vb_asm_fail(&a->line, "a nop has a ds from 1 to 63: segments of 16 bytes it skips");
    d->code.ds = (uint8_t)value;
    return true;
}

static bool parse_attribute(struct vb_assembler *a, struct draft *d)
{
    char word[VB_ASM_WORD], rest[VB_ASM_WORD];
    bool known = false;

    vb_asm_rest(&a->line, rest);
    if (vb_asm_word(&a->line, word) && !parse_control(a, d, word, &known))
        return false;
    if (known)
        return true;
    if (strcmp(word, "ds") == 0)
        return parse_ds(a, d);
    uint64_t *value = argument(d, word);
    if (value)
        return vb_asm_number(&a->line, word, is_narrow(d) ? UINT32_MAX : UINT64_MAX, value);
    return vb_asm_fail(&a->line,
                       "'%s' does not follow a %s; signaled, fence, solicited, flags, imm, idx, "
                       "qpn and opmod follow any",
                       rest, vb_opcode_name(d->code.opcode));
}

// ---- lists

static bool parse_list(struct vb_assembler *a, struct draft *d)
{
    uint32_t max = vb_opcode_has(d->code.opcode, VB_FIELD_SWAP) ? 1 : VB_MAX_SGE;

    if (d->code.num_sge || d->code.inline_len)
        return vb_asm_fail(&a->line, "an instruction has one list; commas join its parts");
    if (vb_asm_take(&a->line, "inline")) {
        if (!vb_opcode_may_inline(d->code.opcode))
            return vb_asm_fail(&a->line, "only send and write have inline bytes");
        if (!vb_asm_bytes(&a->line, d->code.data, sizeof d->code.data, &d->code.inline_len))
            return false;
        return d->code.inline_len ? true : vb_asm_fail(&a->line, "inline bytes are at least one");
    }
    if (!vb_asm_operands(a, d->list, max, &d->code.num_sge))
        return false;
    for (uint32_t i = 0; i < d->code.num_sge; i++)
        d->code.sge[i] = (struct vb_code_sge){
            .addr = d->list[i].addr, .key = d->list[i].key, .len = d->list[i].len};
    return true;
}

static bool parse_arrow(struct vb_assembler *a, struct draft *d, bool scatters)
{
    const char *name = vb_opcode_name(d->code.opcode);

    if (d->code.opcode == VB_WQE_NOP || d->object_kind)
        return vb_asm_fail(&a->line, "%s has no operands in memory", name);
    if (scatters != vb_opcode_scatters(d->code.opcode))
        return vb_asm_fail(&a->line, "%s moves bytes the other way: write %s", name,
                           scatters ? "<-" : "->");
    return parse_list(a, d);
}

// ---- the parts of an instruction

static bool parse_suffix(struct vb_assembler *a, struct draft *d)
{
    bool masked = vb_opcode_is_masked(d->code.opcode);
    char word[VB_ASM_WORD];

    if (masked)
        d->code.opmod = VB_WQE_OPMOD_MASKED8;
    if (!vb_asm_take(&a->line, "."))
        return true;
    vb_asm_word(&a->line, word);
    if (masked) {
        if (strcmp(word, "4") != 0 && strcmp(word, "8") != 0)
            return vb_asm_fail(&a->line, "masked atomics are of .4 or .8 bytes, not '.%s'", word);
        d->code.opmod = word[0] == '4' ? VB_WQE_OPMOD_MASKED4 : VB_WQE_OPMOD_MASKED8;
        return true;
    }
    int calc = vb_opcode_may_calc(d->code.opcode) ? vb_calc_find(word) : -1;
    if (calc < 0)
        return vb_asm_fail(&a->line,
                           "there is no '.%s'; send and write have .add, .float_add, .max, .and, "
                           ".or, .xor and .min",
                           word);
    d->code.opmod = (uint8_t)calc;
    return true;
}

static bool parse_object(struct vb_assembler *a, struct draft *d)
{
    if (vb_asm_take(&a->line, "@")) {
        d->object_kind = OBJECT_NUMBER;
        if (!vb_asm_number32(&a->line, "the number of a queue", &d->code.object))
            return false;
    } else {
        d->object_kind = OBJECT_NAME;
        if (!vb_asm_object(a, d->code.opcode == VB_WQE_WAIT, &d->object))
            return false;
    }
    d->absolute = vb_asm_take(&a->line, "absolute") || d->object_kind == OBJECT_NUMBER;
    return vb_asm_number32(&a->line, "an index", &d->code.index);
}

static bool parse_raddr(struct vb_assembler *a, struct draft *d)
{
    d->has_raddr = true;
    if (!vb_asm_operand(a, &d->raddr))
        return false;
    if (d->raddr.has_len)
        return vb_asm_fail(&a->line, "the length stands in the list, behind the arrow");
    d->code.raddr = d->raddr.addr;
    d->code.rkey = d->raddr.key;
    return true;
}

static bool parse_opcode(struct vb_assembler *a, struct draft *d)
{
    char word[VB_ASM_WORD], rest[VB_ASM_WORD];

    vb_asm_rest(&a->line, rest);
    vb_asm_word(&a->line, word);
    d->dormant = strcmp(word, "nop") == 0 && vb_asm_take(&a->line, "as");
    if (d->dormant)
        vb_asm_word(&a->line, word);
    int opcode = vb_opcode_find(word);
    if (opcode < 0 || (d->dormant && opcode == VB_WQE_NOP))
        return vb_asm_fail(
            &a->line,
            "'%s' is no instruction; there are nop, send, send_imm, write, write_imm, "
            "read, cas, fadd, masked_cas, masked_fadd, wait, send_en, recv_en, raw",
            opcode < 0 && !d->dormant ? rest : word);
    d->code.opcode = (uint8_t)opcode;
    return parse_suffix(a, d);
}

static bool parse_instruction(struct vb_assembler *a, struct draft *d)
{
    memset(d, 0, sizeof *d);
    if (!parse_opcode(a, d))
        return false;
    if (vb_opcode_has(d->code.opcode, VB_FIELD_INDEX) && !parse_object(a, d))
        return false;
    if (vb_opcode_has(d->code.opcode, VB_FIELD_RADDR) && !parse_raddr(a, d))
        return false;
    while (!vb_asm_at_end(&a->line)) {
        bool scatters = vb_asm_take(&a->line, "->");
        bool ok = scatters || vb_asm_take(&a->line, "<-") ? parse_arrow(a, d, scatters)
                                                          : parse_attribute(a, d);
        if (!ok)
            return false;
    }
    if (vb_opcode_has(d->code.opcode, VB_FIELD_SWAP) && d->code.num_sge != 1)
        return vb_asm_fail(&a->line, "%s needs a place for the old value, like -> scratch:8",
                           vb_opcode_name(d->code.opcode));
    return true;
}

// ---- writing

// Takes blocks of the section's queue.
static bool take_blocks(struct vb_assembler *a, uint32_t blocks, const struct vb_unit *unit)
{
    const struct vb_image_queue *q = &a->image->queue[a->index];
    struct vb_asm_queue *state = &a->queue[a->index];
    uint32_t block = state->next;

    if (block + blocks > q->blocks)
        return vb_asm_fail(&a->line, "queue '%s' has %u blocks, too few: this needs block %u",
                           q->name, q->blocks, block + blocks - 1);
    for (uint32_t i = 0; i < blocks; i++) {
        struct vb_unit *u = &state->unit[block + i];
        if (u->kind != VB_UNIT_NONE)
            return vb_asm_fail(&a->line, "block %u of queue '%s' has been written above", block + i,
                               q->name);
        *u = i ? (struct vb_unit){.kind = VB_UNIT_INSIDE, .back = (uint16_t)i} : *unit;
    }
    state->next += blocks;
    if (state->next > state->end)
        state->end = state->next;
    a->has_last = true;
    a->last = (struct vb_spot){
        .kind = VB_IN_SEND, .index = a->index, .offset = (uint64_t)block * VB_WQEBB_BYTES};
    a->last_bytes = blocks * VB_WQEBB_BYTES;
    a->last_unit = *unit;
    return true;
}

static struct vb_spot spot_of(const struct vb_assembler *a, enum vb_field field, uint32_t n)
{
    struct vb_spot spot = a->last;
    uint32_t len;

    spot.offset += (uint64_t)vb_unit_field(&a->last_unit, field, n, &len);
    return spot;
}

static void add_operands(struct vb_assembler *a, const struct draft *d)
{
    if (d->has_raddr)
        vb_asm_add_operand(a, &d->raddr, spot_of(a, VB_FIELD_RADDR, 0),
                           spot_of(a, VB_FIELD_RKEY, 0), NULL);
    for (uint32_t i = 0; i < d->code.num_sge; i++) {
        struct vb_spot len_at = spot_of(a, VB_FIELD_LEN, i);
        vb_asm_add_operand(a, &d->list[i], spot_of(a, VB_FIELD_ADDR, i),
                           spot_of(a, VB_FIELD_KEY, i), &len_at);
    }
}

static void add_numbers(struct vb_assembler *a, const struct draft *d)
{
    uint8_t opcode = d->code.opcode;
    bool own = d->qpn_kind == QPN_DEFAULT && a->image->queue[a->index].wqe_checks;

    if (own || d->qpn_kind == QPN_NAME)
        vb_asm_add_number(a, VB_RELOC_QPN3, spot_of(a, VB_FIELD_QPN, 0), own ? a->index : d->qpn);
    if (d->object_kind != OBJECT_NAME)
        return;
    vb_asm_add_number(a, vb_form_object_reloc(opcode), spot_of(a, VB_FIELD_OBJECT, 0), d->object);
    if (!d->absolute)
        vb_asm_add_number(a, vb_form_index_reloc(opcode), spot_of(a, VB_FIELD_INDEX, 0), d->object);
}

static bool write_draft(struct vb_assembler *a, struct draft *d)
{
    struct vb_unit unit;

    if (!d->has_idx)
        d->code.idx = (uint16_t)a->queue[a->index].next;
    vb_unit_of(&d->code, &unit);
    if (!take_blocks(a, vb_code_written(&d->code), &unit))
        return false;
    uint8_t *at = vb_asm_bytes_at(a, a->last);
    vb_code_write(at, &d->code, true);
    if (d->dormant)
        at[3] = VB_WQE_NOP;
    add_operands(a, d);
    add_numbers(a, d);
    return true;
}

// ---- other lines

static bool parse_raw(struct vb_assembler *a)
{
    const struct vb_unit unit = {.kind = VB_UNIT_RAW};
    uint8_t bytes[VB_WQEBB_BYTES];
    uint32_t len;

    if (!vb_asm_bytes(&a->line, bytes, sizeof bytes, &len) || !take_blocks(a, 1, &unit))
        return false;
    memcpy(vb_asm_bytes_at(a, a->last), bytes, len);
    return true;
}

static bool parse_block(struct vb_assembler *a)
{
    const struct vb_image_queue *q = &a->image->queue[a->index];
    uint32_t block;

    if (!vb_asm_number32(&a->line, "the number of a block", &block))
        return false;
    if (block >= q->blocks)
        return vb_asm_fail(&a->line, "queue '%s' has %u blocks, the last is %u", q->name, q->blocks,
                           q->blocks - 1);
    a->queue[a->index].next = block;
    a->has_last = false;
    return true;
}

static bool add_label(struct vb_assembler *a, const char *name, uint32_t block)
{
    const struct vb_image_queue *q = &a->image->queue[a->index];

    if (block >= q->blocks)
        return vb_asm_fail(&a->line, "label '%s' is behind the last block of queue '%s'", name,
                           q->name);
    if (vb_image_find_label(a->image, name) >= 0)
        return vb_asm_fail(&a->line, "there is a label '%s' already", name);
    if (vb_image_add_label(a->image, name, a->index, block) < 0)
        return vb_asm_fail(&a->line,
                           "'%s' is no name: up to 31 letters, digits and _, no digit first", name);
    return true;
}

static bool parse_label(struct vb_assembler *a)
{
    char name[VB_ASM_WORD];
    uint32_t block;

    vb_asm_word(&a->line, name);
    return vb_asm_number32(&a->line, "the number of a block", &block) && add_label(a, name, block);
}

// Labels in front of an instruction, each with a colon.
static bool parse_labels(struct vb_assembler *a)
{
    for (;;) {
        struct vb_asm_line ahead = a->line;
        char name[VB_ASM_WORD];
        if (!vb_asm_word(&ahead, name) || !vb_asm_take(&ahead, ":"))
            return true;
        a->line = ahead;
        if (!add_label(a, name, a->queue[a->index].next))
            return false;
    }
}

bool vb_asm_code_line(struct vb_assembler *a)
{
    struct draft d;

    if (!parse_labels(a))
        return false;
    if (vb_asm_at_end(&a->line))
        return true;
    if (vb_asm_take(&a->line, "block"))
        return parse_block(a);
    if (vb_asm_take(&a->line, "label"))
        return parse_label(a);
    if (vb_asm_take(&a->line, "raw"))
        return parse_raw(a);
    if (vb_asm_take(&a->line, "patch"))
        return vb_asm_patch(a);
    return parse_instruction(a, &d) && write_draft(a, &d);
}
