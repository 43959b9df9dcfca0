// SPDX-License-Identifier: Apache-2.0
// Small chain programs in a file, each with what is to be said of it.
//
// The file begins with a prologue, which stands before every program that does not say "program"
// itself. A case is a line "== name",
// the program, a line "--", and what is expected. In a program a line "#! word …" is for the test.
#ifndef VB_TESTS_CHECK_KIT_H
#define VB_TESTS_CHECK_KIT_H

#include "chain/check.h"

#include <stdio.h>

// Says something of a program; `text` is the case alone, with its lines for the test.
typedef void check_say(FILE *to, const struct vb_image *image, const char *text);

// Every case of tests/unit/golden/NAME is as expected. What is not is printed as it is.
void check_cases(const char *name, check_say *say);
// The rest of the n-th line "#! word rest" of a case. NULL: there is none.
const char *check_word(const char *text, const char *word, uint32_t n);
// The number behind it, or another one if there is none.
uint32_t check_number(const char *text, const char *word, uint32_t otherwise);
// One line for each: how bad, the kind, the other entry, the text.
void check_print(FILE *to, const struct vb_image *image, const struct vb_findings *found);

#endif
