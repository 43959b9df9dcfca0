// SPDX-License-Identifier: Apache-2.0
// Chain programs as files: a head, then one record after the other, all little-endian.
#ifndef VB_CHAIN_FILE_H
#define VB_CHAIN_FILE_H

#include "chain/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The bytes of a program that vb_image_check() accepts; free() them. NULL: no memory.
uint8_t *vb_image_encode(const struct vb_image *image, size_t *len);
// Whether the bytes begin as such a file does.
bool vb_image_is_file(const uint8_t *bytes, size_t len);
// The program that the bytes, which anyone may have written, hold. NULL: `error` (VB_IMAGE_TEXT
// bytes) says what is wrong.
struct vb_image *vb_image_decode(const uint8_t *bytes, size_t len, char *error);

#endif
