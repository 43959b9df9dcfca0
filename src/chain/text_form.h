// SPDX-License-Identifier: Apache-2.0
// What assembler and disassembler agree on: words, and which entry lies in which block.
#ifndef VB_CHAIN_TEXT_FORM_H
#define VB_CHAIN_TEXT_FORM_H

#include "chain/code.h"
#include "chain/image.h"

enum {
    VB_FORM_STRIDE = 64, // bytes of a receive where none are given
};

enum vb_unit_kind {
    VB_UNIT_NONE,   // nothing is said about this block
    VB_UNIT_ENTRY,  // an entry begins here
    VB_UNIT_INSIDE, // an entry goes on here
    VB_UNIT_RAW,    // bytes without fields
    VB_UNIT_RECV,   // not a block but a receive: data segments
};

// One block of a send ring. Of an entry: what decides where its fields lie.
struct vb_unit {
    uint8_t kind;   // enum vb_unit_kind
    uint8_t opcode; // the one its fields are of: a dormant entry says NOP in the ring
    uint8_t opmod;
    uint8_t num_sge;
    uint16_t inline_len;
    uint16_t back; // VB_UNIT_INSIDE: blocks back to where it begins
};

void vb_unit_of(const struct vb_code *code, struct vb_unit *unit);
void vb_unit_of_recv(uint32_t stride, struct vb_unit *unit);
// As vb_code_field(). Raw bytes have no fields; what is neither of data segments nor inline bytes
// is there once.
int vb_unit_field(const struct vb_unit *unit, enum vb_field field, uint32_t n, uint32_t *len);

bool vb_field_has_index(enum vb_field field); // of a data segment: addr[2]
int vb_field_find(const char *name);          // enum vb_field, or -1
int vb_opcode_find(const char *name);         // or -1
const char *vb_calc_name(uint8_t opmod);      // "max"; NULL: none
int vb_calc_find(const char *name);           // opmod, or -1
bool vb_opcode_may_calc(uint8_t opcode);
bool vb_opcode_is_masked(uint8_t opcode);
bool vb_opcode_scatters(uint8_t opcode); // what its list names is written
bool vb_opcode_may_inline(uint8_t opcode);
bool vb_opcode_has(uint8_t opcode, enum vb_field field);

const char *vb_reloc_name(enum vb_reloc_kind kind);
int vb_reloc_find(const char *name);             // enum vb_reloc_kind, or -1
bool vb_reloc_is_place(enum vb_reloc_kind kind); // its target is memory
bool vb_reloc_is_cq(enum vb_reloc_kind kind);    // its target is a completion queue

// The relocation of an index that WAIT, SEND_EN and RECV_EN have, and that of their object.
enum vb_reloc_kind vb_form_index_reloc(uint8_t opcode);
enum vb_reloc_kind vb_form_object_reloc(uint8_t opcode);

#endif
