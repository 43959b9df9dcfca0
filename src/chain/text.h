// SPDX-License-Identifier: Apache-2.0
// The text form of chain programs (docs/chain-text.md): assembled and disassembled without loss.
#ifndef VB_CHAIN_TEXT_H
#define VB_CHAIN_TEXT_H

#include "chain/image.h"

#include <stddef.h>

// The program that the text says. NULL: `error` (VB_IMAGE_TEXT bytes) says in which line it is
// wrong, and what would be right.
struct vb_image *vb_asm(const char *text, size_t len, char *error);

// The canonical text of a program that vb_image_check() accepts; free() it. NULL: no memory.
// vb_asm() makes an equal program of it.
char *vb_dis(const struct vb_image *image);

#endif
