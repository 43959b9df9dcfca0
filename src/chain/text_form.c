// SPDX-License-Identifier: Apache-2.0
// Words of the text form, and the fields of entries in blocks.
#include "chain/text_form.h"

#include <errno.h>
#include <string.h>

static const char *const calc_names[] = {
    [VB_WQE_CALC_ADD] = "add", [VB_WQE_CALC_FLOAT_ADD] = "float_add",
    [VB_WQE_CALC_MAX] = "max", [VB_WQE_CALC_AND] = "and",
    [VB_WQE_CALC_OR] = "or",   [VB_WQE_CALC_XOR] = "xor",
    [VB_WQE_CALC_MIN] = "min",
};

static const char *const reloc_names[] = {
    [VB_RELOC_ADDR] = "addr",
    [VB_RELOC_KEY] = "key",
    [VB_RELOC_QPN] = "qpn",
    [VB_RELOC_QPN3] = "qpn3",
    [VB_RELOC_CQN] = "cqn",
    [VB_RELOC_SEND_INDEX] = "send_index",
    [VB_RELOC_RECV_INDEX] = "recv_index",
    [VB_RELOC_CQ_INDEX] = "cq_index",
    [VB_RELOC_SEND_COUNT] = "send_count",
    [VB_RELOC_RECV_COUNT] = "recv_count",
    [VB_RELOC_CQ_COUNT] = "cq_count",
};

enum {
    CALCS = sizeof calc_names / sizeof calc_names[0],
    RELOCS = sizeof reloc_names / sizeof reloc_names[0],
};

// ---- words

const char *vb_calc_name(uint8_t opmod)
{
    return opmod < CALCS ? calc_names[opmod] : NULL;
}

int vb_calc_find(const char *name)
{
    for (int i = VB_WQE_CALC_ADD; i < CALCS; i++)
        if (strcmp(calc_names[i], name) == 0)
            return i;
    return -1;
}

const char *vb_reloc_name(enum vb_reloc_kind kind)
{
    return reloc_names[kind];
}

int vb_reloc_find(const char *name)
{
    for (int i = 0; i < RELOCS; i++)
        if (strcmp(reloc_names[i], name) == 0)
            return i;
    return -1;
}

int vb_field_find(const char *name)
{
    for (int i = 0; i < VB_FIELD_COUNT; i++)
        if (strcmp(vb_field_name((enum vb_field)i), name) == 0)
            return i;
    return -1;
}

int vb_opcode_find(const char *name)
{
    for (int i = 0; i <= UINT8_MAX; i++) {
        const char *other = vb_opcode_name((uint8_t)i);
        if (other && strcmp(other, name) == 0)
            return i;
    }
    return -1;
}

// ---- kinds

bool vb_field_has_index(enum vb_field field)
{
    return field == VB_FIELD_LEN || field == VB_FIELD_KEY || field == VB_FIELD_ADDR;
}

bool vb_opcode_may_calc(uint8_t opcode)
{
    return vb_opcode_may_inline(opcode);
}

bool vb_opcode_is_masked(uint8_t opcode)
{
    return opcode == VB_WQE_MASKED_CS || opcode == VB_WQE_MASKED_FA;
}

bool vb_opcode_may_inline(uint8_t opcode)
{
    return opcode == VB_WQE_SEND || opcode == VB_WQE_SEND_IMM || opcode == VB_WQE_WRITE ||
           opcode == VB_WQE_WRITE_IMM;
}

bool vb_opcode_has(uint8_t opcode, enum vb_field field)
{
    const struct vb_unit unit = {.kind = VB_UNIT_ENTRY, .opcode = opcode};
    uint32_t len;
    return vb_unit_field(&unit, field, 0, &len) >= 0;
}

bool vb_opcode_scatters(uint8_t opcode)
{
    return opcode == VB_WQE_READ || vb_opcode_has(opcode, VB_FIELD_SWAP);
}

bool vb_reloc_is_place(enum vb_reloc_kind kind)
{
    return kind == VB_RELOC_ADDR || kind == VB_RELOC_KEY;
}

bool vb_reloc_is_cq(enum vb_reloc_kind kind)
{
    return kind == VB_RELOC_CQN || kind == VB_RELOC_CQ_INDEX || kind == VB_RELOC_CQ_COUNT;
}

enum vb_reloc_kind vb_form_index_reloc(uint8_t opcode)
{
    switch (opcode) {
    case VB_WQE_WAIT: return VB_RELOC_CQ_INDEX;
    case VB_WQE_RECV_EN: return VB_RELOC_RECV_INDEX;
    default: return VB_RELOC_SEND_INDEX;
    }
}

enum vb_reloc_kind vb_form_object_reloc(uint8_t opcode)
{
    return opcode == VB_WQE_WAIT ? VB_RELOC_CQN : VB_RELOC_QPN;
}

// ---- units

void vb_unit_of(const struct vb_code *code, struct vb_unit *unit)
{
    *unit = (struct vb_unit){.kind = VB_UNIT_ENTRY,
                             .opcode = code->opcode,
                             .opmod = code->opmod,
                             .num_sge = (uint8_t)code->num_sge,
                             .inline_len = (uint16_t)code->inline_len};
}

void vb_unit_of_recv(uint32_t stride, struct vb_unit *unit)
{
    *unit = (struct vb_unit){.kind = VB_UNIT_RECV, .num_sge = (uint8_t)(stride / VB_WQE_SEG_BYTES)};
}

static int recv_field(const struct vb_unit *unit, enum vb_field field, uint32_t n, uint32_t *len)
{
    if (!vb_field_has_index(field) || n >= unit->num_sge)
        return -EINVAL;
    *len = field == VB_FIELD_ADDR ? 8 : 4;
    return (int)(n * VB_WQE_SEG_BYTES) + (field == VB_FIELD_LEN   ? 0
                                          : field == VB_FIELD_KEY ? 4
                                                                  : 8);
}

int vb_unit_field(const struct vb_unit *unit, enum vb_field field, uint32_t n, uint32_t *len)
{
    const struct vb_code code = {.opcode = unit->opcode,
                                 .opmod = unit->opmod,
                                 .num_sge = unit->num_sge,
                                 .inline_len = unit->inline_len};

    if (unit->kind == VB_UNIT_RECV)
        return recv_field(unit, field, n, len);
    if (unit->kind != VB_UNIT_ENTRY || (n && !vb_field_has_index(field) && field != VB_FIELD_DATA))
        return -EINVAL;
    return vb_code_field(&code, field, n, len);
}
