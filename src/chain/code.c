// SPDX-License-Identifier: Apache-2.0
// Entries of a send queue, written and read.
#include "chain/code.h"

#include "base/bytes.h"

#include <errno.h>
#include <string.h>

// ---- the shapes of entries

enum {
    HAS_RADDR = 1 << 0,
    HAS_LIST = 1 << 1,   // data segments, any number
    HAS_INLINE = 1 << 2, // or inline bytes instead
    HAS_ONE = 1 << 3,    // exactly one data segment: where the answer goes
    HAS_WAIT = 1 << 4,
    HAS_SWAP = 1 << 5, // one segment: swap or add, and compare
    HAS_MASKS = 1 << 6,
};

static const struct entry {
    const char *name;
    uint8_t opcode;
    uint16_t shape;
} table[] = {
    {"nop", VB_WQE_NOP, 0},
    {"send", VB_WQE_SEND, HAS_LIST | HAS_INLINE},
    {"send_imm", VB_WQE_SEND_IMM, HAS_LIST | HAS_INLINE},
    {"write", VB_WQE_WRITE, HAS_RADDR | HAS_LIST | HAS_INLINE},
    {"write_imm", VB_WQE_WRITE_IMM, HAS_RADDR | HAS_LIST | HAS_INLINE},
    {"read", VB_WQE_READ, HAS_RADDR | HAS_LIST},
    {"cas", VB_WQE_ATOMIC_CS, HAS_RADDR | HAS_SWAP | HAS_ONE},
    {"fadd", VB_WQE_ATOMIC_FA, HAS_RADDR | HAS_SWAP | HAS_ONE},
    {"masked_cas", VB_WQE_MASKED_CS, HAS_RADDR | HAS_SWAP | HAS_MASKS | HAS_ONE},
    {"masked_fadd", VB_WQE_MASKED_FA, HAS_RADDR | HAS_SWAP | HAS_ONE},
    {"wait", VB_WQE_WAIT, HAS_WAIT},
    {"send_en", VB_WQE_SEND_EN, HAS_WAIT},
    {"recv_en", VB_WQE_RECV_EN, HAS_WAIT},
};

static const struct entry *find(uint8_t opcode)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].opcode == opcode)
            return &table[i];
    return NULL;
}

static uint32_t shape_of(uint8_t opcode)
{
    const struct entry *e = find(opcode);
    return e ? e->shape : 0;
}

const char *vb_opcode_name(uint8_t opcode)
{
    const struct entry *e = find(opcode);
    return e ? e->name : NULL;
}

static bool is_narrow(const struct vb_code *c)
{
    return c->opmod == VB_WQE_OPMOD_MASKED4 &&
           (c->opcode == VB_WQE_MASKED_CS || c->opcode == VB_WQE_MASKED_FA);
}

// Segments between the address and the data: an atomic's arguments.
static uint32_t argument_segs(const struct vb_code *c)
{
    uint32_t shape = shape_of(c->opcode);

    if (!(shape & HAS_SWAP))
        return 0;
    return shape & HAS_MASKS && !is_narrow(c) ? 2 : 1;
}

static uint32_t head_segs(const struct vb_code *c)
{
    uint32_t shape = shape_of(c->opcode);
    return 1 + !!(shape & HAS_RADDR) + !!(shape & HAS_WAIT) + argument_segs(c);
}

static uint32_t own_segs(const struct vb_code *c)
{
    uint32_t data = c->inline_len ? (4 + c->inline_len + 15) / 16 : c->num_sge;
    return head_segs(c) + data;
}

static uint32_t segs_of(const struct vb_code *c)
{
    return c->ds ? c->ds & VB_WQE_DS_MASK : own_segs(c);
}

uint32_t vb_code_blocks(const struct vb_code *code)
{
    return (segs_of(code) + 3) / 4;
}

uint32_t vb_code_written(const struct vb_code *code)
{
    return code->opcode == VB_WQE_NOP ? 1 : vb_code_blocks(code);
}

// ---- writing

static void write_arguments(uint8_t *at, const struct vb_code *c)
{
    if (is_narrow(c)) {
        vb_put_be32(at, (uint32_t)c->swap_add);
        vb_put_be32(at + 4, (uint32_t)c->compare);
        vb_put_be32(at + 8, (uint32_t)c->swap_mask);
        vb_put_be32(at + 12, (uint32_t)c->compare_mask);
        return;
    }
    vb_put_be64(at, c->swap_add);
    vb_put_be64(at + 8, c->compare);
    if (shape_of(c->opcode) & HAS_MASKS) {
        vb_put_be64(at + 16, c->swap_mask);
        vb_put_be64(at + 24, c->compare_mask);
    }
}

static void write_data(uint8_t *at, const struct vb_code *c)
{
    if (c->inline_len) {
        vb_put_be32(at, VB_WQE_INLINE | c->inline_len);
        memcpy(at + 4, c->data, c->inline_len);
        return;
    }
    for (uint32_t i = 0; i < c->num_sge; i++, at += 16) {
        vb_put_be32(at, c->sge[i].len);
        vb_put_be32(at + 4, c->sge[i].key);
        vb_put_be64(at + 8, c->sge[i].addr);
    }
}

void vb_code_write(uint8_t *at, const struct vb_code *c, bool clear)
{
    uint32_t shape = shape_of(c->opcode);
    struct vb_wqe_ctrl ctrl = {.opmod = c->opmod,
                               .opcode = c->opcode,
                               .ds = (uint8_t)segs_of(c),
                               .fm_ce_se = c->fm_ce_se,
                               .imm = htobe32(c->imm)};

    vb_put_be16(ctrl.idx, c->idx);
    vb_put_be24(ctrl.qpn, c->qpn);
    if (clear)
        memset(at, 0, (size_t)vb_code_written(c) * VB_WQEBB_BYTES);
    memcpy(at, &ctrl, sizeof ctrl);
    at += sizeof ctrl;
    if (shape & HAS_RADDR) {
        vb_put_be64(at, c->raddr);
        vb_put_be32(at + 8, c->rkey);
        at += 16;
    }
    if (shape & HAS_WAIT) {
        vb_put_be32(at + 8, c->index);
        vb_put_be32(at + 12, c->object); // and no data follow
    }
    if (shape & HAS_SWAP) {
        write_arguments(at, c);
        at += 16 * argument_segs(c);
    }
    write_data(at, c);
}

// ---- reading

static void read_arguments(const uint8_t *at, struct vb_code *c)
{
    bool narrow = is_narrow(c);

    c->swap_add = narrow ? vb_get_be32(at) : vb_get_be64(at);
    c->compare = narrow ? vb_get_be32(at + 4) : vb_get_be64(at + 8);
    if (shape_of(c->opcode) & HAS_MASKS) {
        c->swap_mask = narrow ? vb_get_be32(at + 8) : vb_get_be64(at + 16);
        c->compare_mask = narrow ? vb_get_be32(at + 12) : vb_get_be64(at + 24);
    }
}

static bool read_data(const uint8_t *at, uint32_t segs, struct vb_code *c)
{
    uint32_t shape = shape_of(c->opcode);

    if (segs > 0 && (vb_get_be32(at) & VB_WQE_INLINE)) {
        uint32_t len = vb_get_be32(at) & ~VB_WQE_INLINE;
        if (!(shape & HAS_INLINE) || len == 0 || len > sizeof c->data ||
            (4 + len + 15) / 16 != segs)
            return false;
        c->inline_len = len;
        memcpy(c->data, at + 4, len);
        return true;
    }
    if (segs > VB_MAX_SGE || (shape & HAS_ONE ? segs != 1 : !(shape & HAS_LIST) && segs > 0))
        return false;
    c->num_sge = segs;
    for (uint32_t i = 0; i < segs; i++, at += 16)
        c->sge[i] = (struct vb_code_sge){
            .len = vb_get_be32(at), .key = vb_get_be32(at + 4), .addr = vb_get_be64(at + 8)};
    return true;
}

// Reads the fields; whether they are all there is, the caller finds out by writing them again.
static bool read_fields(const uint8_t *at, uint32_t segs, struct vb_code *c)
{
    uint32_t shape = shape_of(c->opcode), head = head_segs(c);

    if (c->opcode == VB_WQE_NOP)
        return true;
    if (segs < head)
        return false;
    at += sizeof(struct vb_wqe_ctrl);
    if (shape & HAS_RADDR) {
        c->raddr = vb_get_be64(at);
        c->rkey = vb_get_be32(at + 8);
        at += 16;
    }
    if (shape & HAS_WAIT) {
        c->index = vb_get_be32(at + 8);
        c->object = vb_get_be32(at + 12);
        at += 16;
    }
    if (shape & HAS_SWAP) {
        read_arguments(at, c);
        at += 16 * argument_segs(c);
    }
    return read_data(at, segs - head, c);
}

bool vb_code_read_as(const uint8_t *at, size_t room, uint8_t opcode, struct vb_code *c)
{
    uint8_t again[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
    struct vb_wqe_ctrl ctrl;

    memset(c, 0, sizeof *c);
    memcpy(&ctrl, at, sizeof ctrl);
    uint32_t segs = ctrl.ds & VB_WQE_DS_MASK;
    c->opcode = opcode;
    c->ds = (uint8_t)segs;
    size_t bytes = (size_t)vb_code_written(c) * VB_WQEBB_BYTES;
    if (segs == 0 || !find(opcode) || bytes > room)
        return false;
    c->opmod = ctrl.opmod;
    c->idx = vb_get_be16(ctrl.idx);
    c->qpn = vb_get_be24(ctrl.qpn);
    c->fm_ce_se = ctrl.fm_ce_se;
    c->imm = be32toh(ctrl.imm);
    if (!read_fields(at, segs, c))
        return false;
    if (own_segs(c) == segs)
        c->ds = 0;
    vb_code_write(again, c, true);
    again[offsetof(struct vb_wqe_ctrl, opcode)] = ctrl.opcode;
    return memcmp(again, at, bytes) == 0;
}

bool vb_code_read(const uint8_t *at, size_t room, struct vb_code *c)
{
    return vb_code_read_as(at, room, at[offsetof(struct vb_wqe_ctrl, opcode)], c);
}

// ---- what matters

uint64_t vb_code_relevant(const uint8_t *code, uint32_t block, bool checks)
{
    const uint64_t matters = 1u << 3 | 1u << 7 | 1u << 11, operands = 0x77;
    uint32_t bytes = (code[7] & VB_WQE_DS_MASK) * VB_WQE_SEG_BYTES, from = block * VB_WQEBB_BYTES;
    uint64_t mask = bytes >= from + 64 ? UINT64_MAX
                    : bytes > from     ? (1ull << (bytes - from)) - 1
                                       : 0;

    if (code[3] == VB_WQE_NOP)
        return checks ? matters | operands : matters;
    if (block > 0)
        return mask;
    mask &= ~(uint64_t)0x700; // signature and reserved bytes
    if (!checks)
        mask &= ~(uint64_t)0x76; // index and number; opmod still counts
    if (code[3] != VB_WQE_WRITE_IMM && code[3] != VB_WQE_SEND_IMM)
        mask &= ~(uint64_t)0xf000;
    return mask | matters;
}

// ---- fields

static const struct {
    const char *name;
    uint16_t offset, len; // offset in the control segment, where it has one
} fields[VB_FIELD_COUNT] = {
    [VB_FIELD_CTRL] = {"ctrl", 0, 8},      [VB_FIELD_OPMOD] = {"opmod", 0, 1},
    [VB_FIELD_IDX] = {"idx", 1, 2},        [VB_FIELD_OPCODE] = {"opcode", 3, 1},
    [VB_FIELD_QPN] = {"qpn", 4, 3},        [VB_FIELD_DS] = {"ds", 7, 1},
    [VB_FIELD_FLAGS] = {"flags", 11, 1},   [VB_FIELD_IMM] = {"imm", 12, 4},
    [VB_FIELD_RADDR] = {"raddr", 0, 8},    [VB_FIELD_RKEY] = {"rkey", 8, 4},
    [VB_FIELD_SWAP] = {"swap", 0, 8},      [VB_FIELD_COMPARE] = {"compare", 8, 8},
    [VB_FIELD_INDEX] = {"index", 8, 4},    [VB_FIELD_OBJECT] = {"object", 12, 4},
    [VB_FIELD_LEN] = {"len", 0, 4},        [VB_FIELD_KEY] = {"key", 4, 4},
    [VB_FIELD_ADDR] = {"addr", 8, 8},      [VB_FIELD_DATA] = {"data", 4, 0},
    [VB_FIELD_REMOTE] = {"remote", 0, 16},
};

const char *vb_field_name(enum vb_field field)
{
    return (unsigned)field < VB_FIELD_COUNT ? fields[field].name : NULL;
}

// Offset of an argument of an atomic, behind the control and the address segment.
static int argument_field(const struct vb_code *c, enum vb_field field, uint32_t *len)
{
    *len = is_narrow(c) ? 4 : 8;
    return 32 + (field == VB_FIELD_COMPARE ? (int)*len : 0);
}

int vb_code_field(const struct vb_code *c, enum vb_field field, uint32_t n, uint32_t *len)
{
    uint32_t shape = shape_of(c->opcode), data = 16 * head_segs(c);

    if ((unsigned)field >= VB_FIELD_COUNT)
        return -EINVAL;
    *len = fields[field].len;
    if (field <= VB_FIELD_IMM)
        return fields[field].offset;
    if (field == VB_FIELD_RADDR || field == VB_FIELD_RKEY || field == VB_FIELD_REMOTE)
        return shape & HAS_RADDR ? 16 + fields[field].offset : -EINVAL;
    if (field == VB_FIELD_INDEX || field == VB_FIELD_OBJECT)
        return shape & HAS_WAIT ? 16 + fields[field].offset : -EINVAL;
    if (field == VB_FIELD_SWAP || field == VB_FIELD_COMPARE)
        return shape & HAS_SWAP ? argument_field(c, field, len) : -EINVAL;
    if (field == VB_FIELD_DATA) {
        if (n >= c->inline_len)
            return -EINVAL;
        *len = c->inline_len - n;
        return (int)(data + 4 + n);
    }
    if (n >= c->num_sge)
        return -EINVAL;
    return (int)(data + 16 * n) + fields[field].offset;
}
