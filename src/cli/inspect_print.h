// SPDX-License-Identifier: Apache-2.0
// Records as lines of keys and values, or as JSON.
#ifndef VB_CLI_INSPECT_PRINT_H
#define VB_CLI_INSPECT_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct vb_printer {
    FILE *out;
    bool json, pretty;
    uint32_t records; // printed
    uint32_t fields;  // of the record that is open
};

void vb_print_begin(struct vb_printer *p);
void vb_print_end(struct vb_printer *p);

// A record: its head, as text only; fields; its end.
__attribute__((format(printf, 2, 3))) void vb_print_head(struct vb_printer *p, const char *format,
                                                         ...);
void vb_print_field(struct vb_printer *p, const char *key, const char *value); // number or word
void vb_print_text(struct vb_printer *p, const char *key, const char *value);  // a string in JSON
void vb_print_number(struct vb_printer *p, const char *key, uint64_t value);
void vb_print_rate(struct vb_printer *p, const char *key, double per_second);
void vb_print_json_only(struct vb_printer *p, const char *key, const char *value);
void vb_print_tail(struct vb_printer *p);

// A string in quotes, escaped.
void vb_print_json_string(FILE *out, const char *text);

#endif
