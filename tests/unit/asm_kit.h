// SPDX-License-Identifier: Apache-2.0
// Cases of the text form in files: a case is some lines of input, each behind "| ", then the lines
// that are expected. Lines that begin with # are comments.
#ifndef VB_UNIT_ASM_KIT_H
#define VB_UNIT_ASM_KIT_H

#include "chain/image.h"

#include <stddef.h>

enum {
    ASM_CASE_BYTES = 1 << 14,
};

// The declarations before a case that has none of its own.
extern const char asm_head[];

// Fails the test if the text is wrong.
struct vb_image *asm_image(const char *text);

// Calls `judge` with each case of the file, which lies in the directory of the test; `answer` has
// room for ASM_CASE_BYTES. Fails if an answer differs from what is expected.
void asm_cases(const char *file, void (*judge)(const char *input, char *answer));

#endif
