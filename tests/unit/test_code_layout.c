// SPDX-License-Identifier: Apache-2.0
// Entries and words of the text form against a table of their own, taken from the layouts of
// work-queue entries: offsets of fields, bytes written, bytes read, and bytes that matter.
#include "base/bytes.h"
#include "base/prng.h"
#include "chain/code.h"
#include "chain/text_form.h"
#include "fresh_seed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    NONE,
    ONE,
    LIST,
    DATA
}; // data segments: none, one, any number, or inline bytes instead

struct form {
    const char *name;
    uint8_t opcode;
    int raddr, wait; // whether it has the segment
    int args;        // bytes of an atomic's arguments
    int data;
};

static const struct form forms[] = {
    {"nop", 0x00, 0, 0, 0, NONE},         {"write", 0x08, 1, 0, 0, DATA},
    {"write_imm", 0x09, 1, 0, 0, DATA},   {"send", 0x0a, 0, 0, 0, DATA},
    {"send_imm", 0x0b, 0, 0, 0, DATA},    {"wait", 0x0f, 0, 1, 0, NONE},
    {"read", 0x10, 1, 0, 0, LIST},        {"cas", 0x11, 1, 0, 16, ONE},
    {"fadd", 0x12, 1, 0, 16, ONE},        {"masked_cas", 0x14, 1, 0, 32, ONE},
    {"masked_fadd", 0x15, 1, 0, 16, ONE}, {"recv_en", 0x16, 0, 1, 0, NONE},
    {"send_en", 0x17, 0, 1, 0, NONE},
};

static const struct form *form_of(int opcode)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (forms[i].opcode == opcode)
            return &forms[i];
    return NULL;
}

static bool is_masked(int opcode)
{
    return opcode == 0x14 || opcode == 0x15;
}

static int args_of(const struct form *f, uint8_t opmod)
{
    return f->opcode == 0x14 && opmod == 8 ? 16 : f->args;
}

static int head_of(const struct form *f, uint8_t opmod)
{
    return 16 + 16 * f->raddr + 16 * f->wait + args_of(f, opmod);
}

// ---- words

static void words_of_opcodes(void **state)
{
    (void)state;
    for (int opcode = 0; opcode < 256; opcode++) {
        const struct form *f = form_of(opcode);
        const char *name = vb_opcode_name((uint8_t)opcode);
        uint8_t o = (uint8_t)opcode;
        if (f) {
            assert_string_equal(name, f->name);
            assert_int_equal(vb_opcode_find(f->name), opcode);
        } else {
            assert_null(name);
        }
        assert_int_equal(vb_opcode_may_inline(o), f && f->data == DATA);
        assert_int_equal(vb_opcode_may_calc(o), f && f->data == DATA);
        assert_int_equal(vb_opcode_is_masked(o), is_masked(opcode));
        assert_int_equal(vb_opcode_scatters(o), f && (f->data == LIST || f->data == ONE));
        assert_int_equal(vb_opcode_has(o, VB_FIELD_SWAP), f && f->args);
        assert_int_equal(vb_opcode_has(o, VB_FIELD_RADDR), f && f->raddr);
        assert_int_equal(vb_opcode_has(o, VB_FIELD_INDEX), f && f->wait);
        assert_int_equal(vb_opcode_has(o, VB_FIELD_ADDR), 0);
        assert_int_equal(vb_opcode_has(o, VB_FIELD_CTRL), 1);
        assert_int_equal(vb_form_index_reloc(o), opcode == 0x0f   ? VB_RELOC_CQ_INDEX
                                                 : opcode == 0x16 ? VB_RELOC_RECV_INDEX
                                                                  : VB_RELOC_SEND_INDEX);
        assert_int_equal(vb_form_object_reloc(o), opcode == 0x0f ? VB_RELOC_CQN : VB_RELOC_QPN);
    }
    assert_int_equal(vb_opcode_find("fly"), -1);
    assert_int_equal(vb_opcode_find(""), -1);
}

static void words_of_calculations(void **state)
{
    static const char *const names[] = {"add", "float_add", "max", "and", "or", "xor", "min"};

    (void)state;
    for (int opmod = 0; opmod < 256; opmod++) {
        const char *name = vb_calc_name((uint8_t)opmod);
        if (opmod >= 1 && opmod <= 7) {
            assert_string_equal(name, names[opmod - 1]);
            assert_int_equal(vb_calc_find(names[opmod - 1]), opmod);
        } else {
            assert_null(name);
        }
    }
    assert_int_equal(vb_calc_find("mul"), -1);
}

static void words_of_relocations(void **state)
{
    static const struct {
        const char *name;
        uint32_t bytes;
        bool place, cq;
    } kinds[] = {
        {"addr", 8, true, false},        {"key", 4, true, false},
        {"qpn", 4, false, false},        {"qpn3", 3, false, false},
        {"cqn", 4, false, true},         {"send_index", 4, false, false},
        {"recv_index", 4, false, false}, {"cq_index", 4, false, true},
        {"send_count", 2, false, false}, {"recv_count", 2, false, false},
        {"cq_count", 3, false, true},
    };

    (void)state;
    for (int i = 0; i <= VB_RELOC_CQ_COUNT; i++) {
        enum vb_reloc_kind kind = (enum vb_reloc_kind)i;
        assert_string_equal(vb_reloc_name(kind), kinds[i].name);
        assert_int_equal(vb_reloc_find(kinds[i].name), i);
        assert_int_equal(vb_reloc_bytes(kind), kinds[i].bytes);
        assert_int_equal(vb_reloc_is_place(kind), kinds[i].place);
        assert_int_equal(vb_reloc_is_cq(kind), kinds[i].cq);
    }
    assert_int_equal(vb_reloc_find("colour"), -1);
}

static const char *const field_names[] = {
    "ctrl", "opmod",   "idx",   "opcode", "qpn", "ds",  "flags", "imm",  "raddr", "rkey",
    "swap", "compare", "index", "object", "len", "key", "addr",  "data", "remote"};

static void words_of_fields(void **state)
{
    (void)state;
    assert_int_equal(VB_FIELD_COUNT, sizeof field_names / sizeof field_names[0]);
    for (int i = 0; i < VB_FIELD_COUNT; i++) {
        assert_string_equal(vb_field_name((enum vb_field)i), field_names[i]);
        assert_int_equal(vb_field_find(field_names[i]), i);
        assert_int_equal(vb_field_has_index((enum vb_field)i),
                         i >= VB_FIELD_LEN && i <= VB_FIELD_ADDR);
    }
    assert_null(vb_field_name(VB_FIELD_COUNT));
    assert_null(vb_field_name((enum vb_field) - 1));
    assert_int_equal(vb_field_find("colour"), -1);
}

// ---- fields

// Where a field lies, or -EINVAL.
static int expected_field(const struct form *f, uint8_t opmod, uint32_t sges, uint32_t inlined,
                          int field, uint32_t n, uint32_t *len)
{
    static const int ctrl[][2] = {{0, 8}, {0, 1}, {1, 2}, {3, 1}, {4, 3}, {7, 1}, {11, 1}, {12, 4}};
    uint32_t word = is_masked(f->opcode) && opmod == 8 ? 4 : 8;
    int data = head_of(f, opmod), at = -EINVAL;

    *len = 0;
    switch (field) {
    case VB_FIELD_RADDR: at = f->raddr ? 16 : at, *len = 8; break;
    case VB_FIELD_RKEY: at = f->raddr ? 24 : at, *len = 4; break;
    case VB_FIELD_REMOTE: at = f->raddr ? 16 : at, *len = 16; break;
    case VB_FIELD_SWAP: at = f->args ? 32 : at, *len = word; break;
    case VB_FIELD_COMPARE: at = f->args ? 32 + (int)word : at, *len = word; break;
    case VB_FIELD_INDEX: at = f->wait ? 24 : at, *len = 4; break;
    case VB_FIELD_OBJECT: at = f->wait ? 28 : at, *len = 4; break;
    case VB_FIELD_LEN: at = n < sges ? data + 16 * (int)n : at, *len = 4; break;
    case VB_FIELD_KEY: at = n < sges ? data + 16 * (int)n + 4 : at, *len = 4; break;
    case VB_FIELD_ADDR: at = n < sges ? data + 16 * (int)n + 8 : at, *len = 8; break;
    case VB_FIELD_DATA: at = n < inlined ? data + 4 + (int)n : at, *len = inlined - n; break;
    default: at = ctrl[field][0], *len = (uint32_t)ctrl[field][1]; break;
    }
    return at;
}

static void fields_of_like(const struct form *f, uint8_t opmod, uint32_t sges, uint32_t inlined)
{
    const struct vb_code c = {
        .opcode = f->opcode, .opmod = opmod, .num_sge = sges, .inline_len = inlined};
    struct vb_unit unit;

    vb_unit_of(&c, &unit);
    assert_int_equal(unit.kind, VB_UNIT_ENTRY);
    for (int field = 0; field < VB_FIELD_COUNT; field++)
        for (uint32_t n = 0; n < 18; n++) {
            uint32_t len, found = 0, again = 0;
            int at = expected_field(f, opmod, sges, inlined, field, n, &len);
            assert_int_equal(vb_code_field(&c, (enum vb_field)field, n, &found), at);
            bool many = field >= VB_FIELD_LEN && field <= VB_FIELD_DATA;
            assert_int_equal(vb_unit_field(&unit, (enum vb_field)field, n, &again),
                             many || n == 0 ? at : -EINVAL);
            if (at >= 0)
                assert_int_equal(found, len);
            if (at >= 0 && (many || n == 0))
                assert_int_equal(again, len);
        }
    assert_int_equal(vb_code_field(&c, VB_FIELD_COUNT, 0, &(uint32_t){0}), -EINVAL);
}

static void fields_of_entries(void **state)
{
    static const uint8_t opmods[] = {0, 1, 7, 8, 9};

    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (size_t o = 0; o < sizeof opmods; o++) {
            fields_of_like(&forms[i], opmods[o], 0, 0);
            fields_of_like(&forms[i], opmods[o], 1, 0);
            fields_of_like(&forms[i], opmods[o], 16, 0);
            fields_of_like(&forms[i], opmods[o], 0, 1);
            fields_of_like(&forms[i], opmods[o], 0, 17);
        }
}

static void fields_of_other_units(void **state)
{
    struct vb_unit unit = {.kind = VB_UNIT_RAW, .num_sge = 2};
    uint32_t len;

    (void)state;
    for (int field = 0; field < VB_FIELD_COUNT; field++)
        assert_int_equal(vb_unit_field(&unit, (enum vb_field)field, 0, &len), -EINVAL);
    vb_unit_of_recv(32, &unit);
    for (int field = 0; field < VB_FIELD_COUNT; field++)
        for (uint32_t n = 0; n < 4; n++) {
            bool has = field >= VB_FIELD_LEN && field <= VB_FIELD_ADDR && n < 2;
            int at = field == VB_FIELD_LEN ? 0 : field == VB_FIELD_KEY ? 4 : 8;
            assert_int_equal(vb_unit_field(&unit, (enum vb_field)field, n, &len),
                             has ? at + 16 * (int)n : -EINVAL);
            if (has)
                assert_int_equal(len, field == VB_FIELD_ADDR ? 8 : 4);
        }
    const struct vb_code unknown = {.opcode = VB_WQE_UMR, .num_sge = 1};
    assert_int_equal(vb_code_field(&unknown, VB_FIELD_RADDR, 0, &len), -EINVAL);
    assert_int_equal(vb_code_field(&unknown, VB_FIELD_LEN, 0, &len), 16);
}

// ---- writing

static void draw_data(struct vb_prng *r, const struct form *f, struct vb_code *c)
{
    if (f->data == DATA && vb_prng_below(r, 3) == 0) {
        c->inline_len = 1 + (uint32_t)vb_prng_below(r, 256);
        for (uint32_t i = 0; i < c->inline_len; i++)
            c->data[i] = (uint8_t)vb_prng_next(r);
        return;
    }
    c->num_sge = f->data == ONE ? 1 : f->data == NONE ? 0 : (uint32_t)vb_prng_below(r, 17);
    for (uint32_t i = 0; i < c->num_sge; i++) {
        c->sge[i].addr = vb_prng_next(r);
        c->sge[i].key = (uint32_t)vb_prng_next(r);
        c->sge[i].len = (uint32_t)vb_prng_next(r) >> 1;
    }
}

static const struct form *draw(struct vb_prng *r, struct vb_code *c)
{
    static const uint8_t opmods[] = {0, 8, 9, 255};
    const struct form *f = &forms[vb_prng_below(r, sizeof forms / sizeof forms[0])];

    memset(c, 0, sizeof *c);
    c->opcode = f->opcode;
    c->opmod = opmods[vb_prng_below(r, sizeof opmods)];
    c->idx = (uint16_t)vb_prng_next(r);
    c->qpn = (uint32_t)vb_prng_below(r, 1 << 24);
    c->fm_ce_se = (uint8_t)vb_prng_next(r);
    c->imm = (uint32_t)vb_prng_next(r);
    if (f->raddr) {
        c->raddr = vb_prng_next(r);
        c->rkey = (uint32_t)vb_prng_next(r);
    }
    if (f->wait) {
        c->index = (uint32_t)vb_prng_next(r);
        c->object = (uint32_t)vb_prng_next(r);
    }
    uint64_t mask = is_masked(f->opcode) && c->opmod == 8 ? UINT32_MAX : UINT64_MAX;
    if (f->args) {
        c->swap_add = vb_prng_next(r) & mask;
        c->compare = vb_prng_next(r) & mask;
    }
    if (f->args == 32) {
        c->swap_mask = vb_prng_next(r) & mask;
        c->compare_mask = vb_prng_next(r) & mask;
    }
    draw_data(r, f, c);
    return f;
}

// The entry's bytes, of which there are 16 for each segment; returns their number.
static uint32_t encode(const struct form *f, const struct vb_code *c, uint8_t *at)
{
    uint8_t *start = at;
    bool narrow = is_masked(f->opcode) && c->opmod == 8;

    at[0] = c->opmod;
    vb_put_be16(at + 1, c->idx);
    at[3] = f->opcode;
    vb_put_be24(at + 4, c->qpn);
    at[11] = c->fm_ce_se;
    vb_put_be32(at + 12, c->imm);
    at += 16;
    if (f->raddr) {
        vb_put_be64(at, c->raddr);
        vb_put_be32(at + 8, c->rkey);
        at += 16;
    }
    if (f->wait) {
        vb_put_be32(at + 8, c->index);
        vb_put_be32(at + 12, c->object);
        at += 16;
    }
    const uint64_t args[] = {c->swap_add, c->compare, c->swap_mask, c->compare_mask};
    for (int i = 0; f->args && i < (narrow ? 4 : f->args / 8); i++)
        if (narrow)
            vb_put_be32(at + 4 * i, (uint32_t)args[i]);
        else
            vb_put_be64(at + 8 * i, args[i]);
    at += args_of(f, c->opmod);
    if (c->inline_len) {
        vb_put_be32(at, 0x80000000 | c->inline_len);
        memcpy(at + 4, c->data, c->inline_len);
        at += (4 + c->inline_len + 15) / 16 * 16;
    }
    for (uint32_t i = 0; i < c->num_sge; i++, at += 16) {
        vb_put_be32(at, c->sge[i].len);
        vb_put_be32(at + 4, c->sge[i].key);
        vb_put_be64(at + 8, c->sge[i].addr);
    }
    start[7] = (uint8_t)((at - start) / 16);
    return (uint32_t)(at - start);
}

enum {
    ENTRY_MAX = 1024,
    ROUNDS = 4000,
};

static void bytes_of_entries(void **state)
{
    static uint8_t found[ENTRY_MAX + 64], expected[ENTRY_MAX + 64];
    struct vb_prng r = {.state = fresh_seed()};
    struct vb_code c, again;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        const struct form *f = draw(&r, &c);
        memset(expected, 0, sizeof expected);
        uint32_t len = encode(f, &c, expected), blocks = (len + 63) / 64;
        assert_int_equal(vb_code_blocks(&c), blocks);
        assert_int_equal(vb_code_written(&c), blocks);
        memset(expected + 64 * blocks, 0xa5, sizeof expected - 64 * blocks);
        memset(found, 0xa5, sizeof found);
        vb_code_write(found, &c, true);
        assert_memory_equal(found, expected, sizeof found);
        assert_true(vb_code_read(found, 64 * blocks, &again));
        assert_memory_equal(&c, &again, sizeof c);
        assert_false(vb_code_read(found, 64 * blocks - 1, &again));
        // Without `clear` the bytes behind the last segment stay, and behind inline bytes, too.
        memset(found, 0xa5, sizeof found);
        vb_code_write(found, &c, false);
        uint32_t end = c.inline_len ? (uint32_t)head_of(f, c.opmod) + 4 + c.inline_len : len;
        for (uint32_t i = end; i < sizeof found; i++)
            assert_int_equal(found[i], 0xa5);
    }
}

static void nops_with_a_length(void **state)
{
    uint8_t found[128];
    struct vb_code again;

    (void)state;
    for (uint32_t ds = 1; ds < 64; ds++) {
        const struct vb_code c = {.opcode = VB_WQE_NOP, .ds = (uint8_t)ds};
        memset(found, 0xa5, sizeof found);
        vb_code_write(found, &c, true);
        assert_int_equal(found[7], ds);
        assert_int_equal(found[63], 0);
        assert_int_equal(found[64], 0xa5);
        assert_int_equal(vb_code_blocks(&c), (ds + 3) / 4);
        assert_int_equal(vb_code_written(&c), 1);
        assert_true(vb_code_read(found, 64, &again));
        assert_int_equal(again.ds, ds == 1 ? 0 : ds);
        for (int i = 8; i < 64; i++) {
            found[i] ^= 1;
            assert_int_equal(vb_code_read(found, 64, &again), i == 11 || (i >= 12 && i < 16));
            found[i] ^= 1;
        }
    }
}

// ---- reading

// Whether these are the bytes of an entry: what encode() makes of some values.
static bool is_entry(const uint8_t *at, uint32_t room)
{
    const struct form *f = form_of(at[3]);
    uint32_t segs = at[7];

    if (!f || segs == 0 || segs > 63)
        return false;
    uint32_t end = f->opcode == 0 ? 64 : (segs + 3) / 4 * 64, used = 16 * segs;
    if (end > room || at[8] || at[9] || at[10])
        return false;
    uint32_t head = (uint32_t)head_of(f, at[0]);
    if (f->opcode == 0)
        used = 16;
    else if (used < head)
        return false;
    if (f->raddr && vb_get_be32(at + 28))
        return false;
    if (f->wait && vb_get_be64(at + 16))
        return false;
    if (f->opcode == 0x15 && at[0] == 8 && vb_get_be64(at + 40))
        return false;
    uint32_t data = f->opcode == 0 ? 0 : used - head;
    if (data && at[head] & 0x80) {
        uint32_t len = vb_get_be32(at + head) & 0x7fffffff;
        if (f->data != DATA || len == 0 || len > 256 || (4 + len + 15) / 16 * 16 != data)
            return false;
        used = head + 4 + len;
    } else if (f->data == NONE ? data != 0 : f->data == ONE ? data != 16 : data > 256) {
        return false;
    }
    for (uint32_t i = used; i < end; i++)
        if (at[i])
            return false;
    return true;
}

// An entry that is nearly right.
static void spoil(struct vb_prng *r, uint8_t *at, uint32_t len)
{
    uint32_t byte = (uint32_t)vb_prng_below(r, len);

    switch (vb_prng_below(r, 8)) {
    case 0: at[7] = (uint8_t)(at[7] + vb_prng_range(r, 0, 2) - 1); break;
    case 1: at[3] = forms[vb_prng_below(r, sizeof forms / sizeof forms[0])].opcode; break;
    case 2: at[byte] ^= (uint8_t)(1 << vb_prng_below(r, 8)); break;
    case 3: at[vb_prng_below(r, (len + 63) / 64 * 64)] = 1; break;
    case 4: at[0] = (uint8_t)(at[0] == 8 ? 9 : 8); break;
    case 5: at[7] = (uint8_t)vb_prng_below(r, 66); break;
    case 6: // another length of inline bytes
        for (uint32_t i = 16; i < len && i <= 32; i += 16)
            if (at[i] == 0x80)
                vb_put_be32(at + i, vb_get_be32(at + i) + (uint32_t)vb_prng_range(r, 0, 2) - 1);
        break;
    default: break;
    }
}

static void bytes_that_are_no_entry(void **state)
{
    static uint8_t bytes[2 * ENTRY_MAX];
    uint32_t right = 0, wrong = 0;
    struct vb_prng r = {.state = fresh_seed()};
    struct vb_code c, again;

    (void)state;
    for (int round = 0; round < 5 * ROUNDS; round++) {
        const struct form *f = draw(&r, &c);
        if (round % 2) {
            c.num_sge = c.num_sge > 1 ? 2 : c.num_sge;
            for (uint32_t i = 0; i < c.inline_len; i++)
                c.data[i] = 0;
        }
        memset(bytes, 0, sizeof bytes);
        uint32_t len = encode(f, &c, bytes), room = (len + 63) / 64 * 64;
        spoil(&r, bytes, len);
        bool expected = is_entry(bytes, room);
        assert_int_equal(vb_code_read(bytes, room, &again), expected);
        right += expected;
        wrong += !expected;
        expected = is_entry(bytes, sizeof bytes);
        assert_int_equal(vb_code_read(bytes, sizeof bytes, &again), expected);
        // As another opcode it is what it would be with that opcode.
        uint8_t as = forms[vb_prng_below(&r, sizeof forms / sizeof forms[0])].opcode,
                was = bytes[3];
        bool read = vb_code_read_as(bytes, sizeof bytes, as, &again);
        assert_int_equal(bytes[3], was);
        bytes[3] = as;
        assert_int_equal(read, is_entry(bytes, sizeof bytes));
    }
    assert_true(right > ROUNDS && wrong > ROUNDS);
}

static void inline_lengths(void **state)
{
    uint8_t bytes[ENTRY_MAX];
    struct vb_code again;

    (void)state;
    for (uint32_t len = 0; len <= 260; len++)
        for (uint32_t ds = 2; ds <= 19; ds++) {
            memset(bytes, 0, sizeof bytes);
            bytes[3] = VB_WQE_SEND;
            bytes[7] = (uint8_t)ds;
            vb_put_be32(bytes + 16, 0x80000000 | len);
            bool right = len >= 1 && len <= 256 && 1 + (4 + len + 15) / 16 == ds;
            assert_int_equal(vb_code_read(bytes, sizeof bytes, &again), right);
        }
}

// ---- bytes that matter

static bool matters(const uint8_t *code, uint32_t at, bool checks)
{
    bool imm = code[3] == VB_WQE_WRITE_IMM || code[3] == VB_WQE_SEND_IMM;

    if (at == 3 || at == 7 || at == 11)
        return true;
    if (at == 1 || at == 2 || (at >= 4 && at <= 6))
        return checks && (code[3] == VB_WQE_NOP || at < 16u * (code[7] & 0x3f));
    if (code[3] == VB_WQE_NOP)
        return at == 0 && checks;
    if (at >= 8 && at <= 10)
        return false;
    return at < 16u * (code[7] & 0x3f) && (imm || at < 12 || at > 15);
}

static void bytes_that_matter(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        for (int ds = 0; ds < 256; ds++)
            for (int checks = 0; checks < 2; checks++) {
                uint8_t code[64] = {[3] = forms[f].opcode, [7] = (uint8_t)ds};
                for (uint32_t block = 0; block < (forms[f].opcode ? 17 : 1); block++) {
                    uint64_t mask = vb_code_relevant(code, block, checks);
                    for (uint32_t i = 0; i < 64; i++)
                        assert_int_equal(mask >> i & 1, matters(code, 64 * block + i, checks));
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_opcodes),        cmocka_unit_test(words_of_calculations),
        cmocka_unit_test(words_of_relocations),    cmocka_unit_test(words_of_fields),
        cmocka_unit_test(fields_of_entries),       cmocka_unit_test(fields_of_other_units),
        cmocka_unit_test(bytes_of_entries),        cmocka_unit_test(nops_with_a_length),
        cmocka_unit_test(bytes_that_are_no_entry), cmocka_unit_test(inline_lengths),
        cmocka_unit_test(bytes_that_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
