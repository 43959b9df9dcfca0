// SPDX-License-Identifier: Apache-2.0
// The assembler's parts share this: what has been read so far. Bytes are written at once; what
// names memory waits until all labels are known.
#ifndef VB_CHAIN_ASM_H
#define VB_CHAIN_ASM_H

#include "chain/asm_token.h"
#include "chain/code.h"
#include "chain/image.h"
#include "chain/text_form.h"

// Memory by name: `region`, `label`, `queue[block]`, `queue.recv[n]`; then `.field`, then `+bytes`.
enum vb_asm_base {
    VB_BASE_NAME, // a region or a label
    VB_BASE_BLOCK,
    VB_BASE_RECV,
};

struct vb_asm_place {
    enum vb_asm_base base;
    char name[VB_ASM_WORD];
    uint32_t n; // block or receive
    int field;  // enum vb_field, or -1
    uint32_t field_n;
    uint64_t plus;
};

enum vb_asm_key {
    VB_KEY_OWN, // of the memory that the address lies in
    VB_KEY_NUMBER,
    VB_KEY_OTHER,
};

struct vb_asm_operand {
    bool is_number; // `addr` instead of a place
    uint64_t addr;
    struct vb_asm_place place;
    enum vb_asm_key key_kind;
    uint32_t key;
    struct vb_asm_place key_place;
    bool has_len;
    uint32_t len;
};

// A relocation whose target has yet to be found.
struct vb_asm_fixup {
    enum vb_reloc_kind kind;
    struct vb_spot at;
    struct vb_asm_place place;
    uint32_t line;
    bool has_len;  // of the bytes that are touched there: they must lie in the field
    bool sets_len; // or these are the field's, four bytes big-endian at `len_at`
    uint32_t len;
    struct vb_spot len_at;
};

struct vb_asm_queue {
    uint32_t next, recv_next;
    uint32_t end, recv_end; // behind the last that was written
    struct vb_unit *unit;   // by block
    bool *recv_used;        // by receive
    bool has_filled, has_open, has_recv_filled, has_recv_open;
};

enum vb_asm_section {
    VB_SECTION_NONE,
    VB_SECTION_REGION,
    VB_SECTION_CODE,
    VB_SECTION_RECV,
};

struct vb_assembler {
    struct vb_asm_line line;
    struct vb_image *image;
    struct vb_asm_queue *queue; // as many as the image has
    struct vb_asm_fixup *fixup;
    uint32_t fixups;
    enum vb_asm_section section;
    uint32_t index; // of the section's queue or region
    bool has_last;  // an entry that a patch can follow
    struct vb_spot last;
    uint32_t last_bytes;
    struct vb_unit last_unit;
    bool out_of_memory; // a relocation is missing
};

// ---- asm_operand.c

bool vb_asm_place(struct vb_assembler *a, struct vb_asm_place *place);
bool vb_asm_operand(struct vb_assembler *a, struct vb_asm_operand *operand);
// Operands with commas between them, at most `max`; `count` is 0 before.
bool vb_asm_operands(struct vb_assembler *a, struct vb_asm_operand *list, uint32_t max,
                     uint32_t *count);
// A queue or completion queue by name; `is_cq` says which.
bool vb_asm_object(struct vb_assembler *a, bool is_cq, uint32_t *index);
void vb_asm_add_number(struct vb_assembler *a, enum vb_reloc_kind kind, struct vb_spot at,
                       uint32_t index);
void vb_asm_add_fixup(struct vb_assembler *a, const struct vb_asm_fixup *fixup);
// The relocations of an operand whose address and key lie there; `len_at`: of its length, or NULL.
void vb_asm_add_operand(struct vb_assembler *a, const struct vb_asm_operand *operand,
                        struct vb_spot addr_at, struct vb_spot key_at,
                        const struct vb_spot *len_at);
// A relocation as regions and patches write it, behind the place where it lies: `addr index+8`,
// then perhaps `= bytes`.
bool vb_asm_reloc(struct vb_assembler *a, struct vb_spot at);
bool vb_asm_resolve(struct vb_assembler *a); // all fixups
uint8_t *vb_asm_bytes_at(struct vb_assembler *a, struct vb_spot spot);

// ---- asm_code.c, asm_recv.c

bool vb_asm_code_line(struct vb_assembler *a); // in a section `code`
bool vb_asm_recv_line(struct vb_assembler *a); // in a section `recv`
bool vb_asm_patch(struct vb_assembler *a);     // behind the word `patch`

#endif
