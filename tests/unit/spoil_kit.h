// SPDX-License-Identifier: Apache-2.0
// Texts with one mistake, for tests of parsers.
#ifndef VB_TESTS_SPOIL_KIT_H
#define VB_TESTS_SPOIL_KIT_H

#include "base/prng.h"

#include <stddef.h>

// A line or a word is lost, a digit or any other sign is another one. Returns the new length.
size_t spoil_text(char *text, size_t len, struct vb_prng *prng);

#endif
