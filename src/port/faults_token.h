// SPDX-License-Identifier: Apache-2.0
// The tokens of the fault rules' language, and how it complains. Blanks may stand between tokens.
#ifndef VB_PORT_FAULTS_TOKEN_H
#define VB_PORT_FAULTS_TOKEN_H

#include "port/faults_rule.h"

#include <stdbool.h>
#include <stdint.h>

struct fault_span {
    const char *start, *end; // start NULL: none
};

struct fault_cursor {
    const char *text;
    struct fault_span clause; // at hand, without the blanks around it
    const char *at;           // the next byte in it
    char *error_text;         // NULL: nobody wants to know
};

// Writes the line that says what is wrong with the clause at hand. Always false, so that parsers
// can end with it.
bool vb_fault_complain(const struct fault_cursor *c, const char *where, const char *advice);

void vb_fault_skip_blanks(struct fault_cursor *c);
bool vb_fault_at_end(struct fault_cursor *c); // of the clause
bool vb_fault_take(struct fault_cursor *c, const char *token);
struct fault_span vb_fault_take_word(struct fault_cursor *c); // may be empty
// Decimal, or hexadecimal after 0x. False: no digits, or more than fit.
bool vb_fault_take_number(struct fault_cursor *c, uint64_t *out);
// "12.5" as 12 * 10^9 + 500000000. False: not such a number, too large, or more than nine decimals.
bool vb_fault_take_decimal(struct fault_cursor *c, uint64_t *out);

bool vb_fault_is_word(struct fault_span word, const char *name);
const struct fault_word *vb_fault_find_word(const struct fault_word *words, struct fault_span word);
void vb_fault_trim(struct fault_span *s); // blanks at both ends

#endif
