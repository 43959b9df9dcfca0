// SPDX-License-Identifier: Apache-2.0
// What a program does, step by step, for people and for other programs: what each entry read and
// wrote, which later entry it changed, what completed and who had waited for it.
#ifndef VB_CHAIN_TRACE_H
#define VB_CHAIN_TRACE_H

#include "chain/watch.h"

enum vb_trace_form {
    VB_TRACE_TEXT,
    VB_TRACE_JSON, // one object per line
};

enum {
    VB_TRACE_BYTES = 24 * 1024, // of an event's text
};

// Writes the event to `text` (VB_TRACE_BYTES), lines with their ends. Returns how many bytes; 0: it
// tells nothing about the program.
size_t vb_trace_print(char *text, enum vb_trace_form form, const struct vb_watch *w,
                      const struct vb_image *image, const struct vb_watch_event *event);

#endif
