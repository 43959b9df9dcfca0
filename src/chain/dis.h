// SPDX-License-Identifier: Apache-2.0
// The disassembler's parts share this: the text so far, and what lies in each block.
#ifndef VB_CHAIN_DIS_H
#define VB_CHAIN_DIS_H

#include "chain/image.h"
#include "chain/text_form.h"

#include <stdbool.h>
#include <stddef.h>

struct vb_dis_queue {
    struct vb_unit *unit;                // by block
    const struct vb_image_label **label; // by block: the first of its labels, or NULL
    uint32_t end, recv_end;              // behind the last that says something
    bool *recv_used;                     // by receive
};

struct vb_disassembler {
    const struct vb_image *image;
    struct vb_dis_queue *queue;
    struct vb_reloc *reloc;       // in the order of their places
    bool *done;                   // relocations that the text has already
    struct vb_image_label *label; // in the order of their places
    char *text;
    size_t len, room;
    bool failed; // no memory
};

// ---- dis_text.c

__attribute__((format(printf, 2, 3))) void vb_dis_print(struct vb_disassembler *d,
                                                        const char *format, ...);
void vb_dis_hex(struct vb_disassembler *d, const uint8_t *bytes, uint32_t len);
// As a text in quotes where that reads well, else as hex.
void vb_dis_bytes(struct vb_disassembler *d, const uint8_t *bytes, uint32_t len);
void vb_dis_quote(struct vb_disassembler *d, const uint8_t *bytes, uint32_t len);
// `len` bytes are used there: a field is named if they lie in it.
void vb_dis_place(struct vb_disassembler *d, const struct vb_spot *spot, uint32_t len);
void vb_dis_memory(struct vb_disassembler *d, const struct vb_spot *spot); // its offset left out
// The field that holds `len` bytes at `offset`, as `addr[1]+3`. False: none does.
bool vb_dis_field(struct vb_disassembler *d, const struct vb_unit *unit, uint64_t offset,
                  uint32_t len, const char *before);
// `addr index+8`
void vb_dis_reloc(struct vb_disassembler *d, const struct vb_reloc *r);

// The first relocation at or behind a spot; d->image->relocs: none.
uint32_t vb_dis_first(const struct vb_disassembler *d, const struct vb_spot *spot);
// The relocation of that kind that lies exactly there, or NULL; it then counts as said.
const struct vb_reloc *vb_dis_take(struct vb_disassembler *d, const struct vb_spot *spot,
                                   enum vb_reloc_kind kind);
bool vb_dis_has_reloc(const struct vb_disassembler *d, const struct vb_spot *spot, uint32_t len);

// ---- dis_code.c

// Reads the block at `block` into `code`, whose opcode is the one its fields are of, and says in
// `unit`, which is zero before, what it is. Returns how many blocks it takes.
uint32_t vb_dis_decode(struct vb_disassembler *d, uint32_t queue, uint32_t block,
                       struct vb_unit *unit, struct vb_code *code);
uint32_t vb_dis_decode_recv(const struct vb_image_queue *q, uint32_t n, bool *is_list);
void vb_dis_code(struct vb_disassembler *d, uint32_t queue);
void vb_dis_receives(struct vb_disassembler *d, uint32_t queue);

#endif
