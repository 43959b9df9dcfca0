// SPDX-License-Identifier: Apache-2.0
// RedN's programs, entry for entry as its paper and its published code have them, as text; so many
// of them in one, where a rate is wanted.
#ifndef VB_CLI_FIGURES_PROGRAM_H
#define VB_CLI_FIGURES_PROGRAM_H

#include "chain/image.h"

enum vb_figures_order {
    VB_ORDER_QUEUE,
    VB_ORDER_COMPLETION,
    VB_ORDER_DOORBELL,
};

enum {
    VB_FIGURES_KEY_BYTES = 3, // of a bucket, then the value's address
    VB_FIGURES_BUCKET = 16,
    VB_FLOOD_QUEUES = 48,
    VB_FLOOD_EACH = 64, // entries of a queue
    VB_FLOOD_ENTRIES = VB_FLOOD_QUEUES * VB_FLOOD_EACH,
};

// NULL: error says why.
struct vb_image *vb_figures_assemble(char *text, char *error); // frees the text
// One entry that works on the memory of a client, or of this machine; entries may name "near" and
// "far", 64 bytes each.
char *vb_figures_verb(const char *entry, bool loop);
// NOPs, ordered one way or the other.
char *vb_figures_nops(uint32_t count, enum vb_figures_order order);
// The entry many times on many queues.
char *vb_figures_flood(const char *entry, uint32_t queues);
// `if`s, of which none is true; with what brings counters up to date, as of a loop that goes round.
char *vb_figures_ifs(uint32_t count, bool recycled);
// Hash gets: regions "index" (buckets) and "items", queue K.
char *vb_figures_gets(uint32_t count, uint32_t value_bytes);

#endif
