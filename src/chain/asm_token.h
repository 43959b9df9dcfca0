// SPDX-License-Identifier: Apache-2.0
// The tokens of the text form: one line at a time, and how it complains.
#ifndef VB_CHAIN_ASM_TOKEN_H
#define VB_CHAIN_ASM_TOKEN_H

#include "chain/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_ASM_WORD = 64 // bytes of a word, with the zero; a longer one is cut and fits no name
};

struct vb_asm_line {
    const char *at, *end; // what is left of the line, without its comment
    uint32_t number;      // from one
    char *error;          // VB_IMAGE_TEXT bytes
};

// "line 12: …". Always false, so that parsers can end with it.
__attribute__((format(printf, 2, 3))) bool vb_asm_fail(const struct vb_asm_line *l,
                                                       const char *format, ...);

// Takes the next line of *text, which ends at `end`. False: there is none.
bool vb_asm_next_line(struct vb_asm_line *l, const char **text, const char *end);
void vb_asm_skip(struct vb_asm_line *l); // blanks
bool vb_asm_at_end(struct vb_asm_line *l);
// Whether the next token is this one; if so it is taken.
bool vb_asm_take(struct vb_asm_line *l, const char *token);
// Letters, digits and underscores. False: there are none.
bool vb_asm_word(struct vb_asm_line *l, char word[VB_ASM_WORD]);
// Decimal, or hexadecimal after 0x. Complains by itself: `what` says what the number is of.
bool vb_asm_number(struct vb_asm_line *l, const char *what, uint64_t max, uint64_t *value);
bool vb_asm_number32(struct vb_asm_line *l, const char *what, uint32_t *value);
bool vb_asm_is_number(struct vb_asm_line *l); // whether one comes next
// Bytes in hexadecimal, in groups, or a text in quotes. Complains by itself.
bool vb_asm_bytes(struct vb_asm_line *l, uint8_t *bytes, uint32_t max, uint32_t *len);
// What is left of the line, for complaints: at most `VB_ASM_WORD` bytes, printable.
void vb_asm_rest(struct vb_asm_line *l, char word[VB_ASM_WORD]);

#endif
