// SPDX-License-Identifier: Apache-2.0
// Entries of a send queue as values: written to and read from their blocks.
#ifndef VB_CHAIN_CODE_H
#define VB_CHAIN_CODE_H

#include "verbena/wqe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_code_sge {
    uint64_t addr;
    uint32_t key;
    uint32_t len;
};

// One entry. What an opcode does not have stays zero.
struct vb_code {
    uint8_t opcode; // enum vb_wqe_opcode
    uint8_t opmod;
    uint16_t idx;
    uint32_t qpn; // 24 bits of the control segment
    uint8_t ds;   // 0: as many segments as there are
    uint8_t fm_ce_se;
    uint32_t imm; // four bytes as they stand in the entry, big-endian
    uint64_t raddr;
    uint32_t rkey;
    uint64_t swap_add, compare, swap_mask, compare_mask;
    uint32_t index, object; // WAIT, SEND_EN, RECV_EN
    uint32_t num_sge;
    struct vb_code_sge sge[VB_MAX_SGE];
    uint32_t inline_len; // instead of a list
    uint8_t data[256];
};

// Blocks that its segments take.
uint32_t vb_code_blocks(const struct vb_code *code);
// Blocks that are written for it: of a NOP one, however many it skips.
uint32_t vb_code_written(const struct vb_code *code);
// Writes it to `at`, which has room for its blocks; bytes behind its last segment are left alone,
// or zeroed up to the end of its blocks with `clear`.
void vb_code_write(uint8_t *at, const struct vb_code *code, bool clear);
// Reads an entry of at most `room` bytes, of which at least the control segment is there. False: it
// is none that vb_code_write() would write so (bytes that no field names, unknown opcodes, lists of
// the wrong length).
bool vb_code_read(const uint8_t *at, size_t room, struct vb_code *code);
// The same as if the entry had that opcode.
bool vb_code_read_as(const uint8_t *at, size_t room, uint8_t opcode, struct vb_code *code);

// Which bytes of the entry's n-th block change what it does, one bit each. Of a NOP only the first
// block is looked at; without checks (wqe_checks) the control segment can hold operands, too.
uint64_t vb_code_relevant(const uint8_t *code, uint32_t n, bool checks);

// Fields of an entry by name: where they lie in it.
enum vb_field {
    VB_FIELD_CTRL,   // 8 bytes: opmod, idx, opcode, qpn, ds
    VB_FIELD_OPMOD,  // 1
    VB_FIELD_IDX,    // 2
    VB_FIELD_OPCODE, // 1
    VB_FIELD_QPN,    // 3
    VB_FIELD_DS,     // 1
    VB_FIELD_FLAGS,  // 1: fm_ce_se
    VB_FIELD_IMM,    // 4
    VB_FIELD_RADDR,  // 8
    VB_FIELD_RKEY,   // 4
    VB_FIELD_SWAP,   // of an atomic: 8 or 4, as its arguments are; also of what it adds
    VB_FIELD_COMPARE,
    VB_FIELD_INDEX,  // 4: of WAIT, SEND_EN and RECV_EN
    VB_FIELD_OBJECT, // 4
    VB_FIELD_LEN,    // 4: of data segment `n`
    VB_FIELD_KEY,    // 4
    VB_FIELD_ADDR,   // 8
    VB_FIELD_DATA,   // inline bytes from the n-th on
    VB_FIELD_REMOTE, // 16: raddr, rkey and four bytes more
    VB_FIELD_COUNT
};

// The field's offset in an entry like this one, and its length. -EINVAL: it has no such field.
int vb_code_field(const struct vb_code *code, enum vb_field field, uint32_t n, uint32_t *len);

const char *vb_opcode_name(uint8_t opcode); // "write", "wait", …; NULL: unknown
const char *vb_field_name(enum vb_field field);

#endif
