// SPDX-License-Identifier: Apache-2.0
// Every offload that is shipped, small, with memory and requests for it.
#ifndef VB_TESTS_SHIPPED_KIT_H
#define VB_TESTS_SHIPPED_KIT_H

#include "chain/image.h"
#include "chain/machine.h"

enum {
    SHIPPED_SHARED = 4096, // bytes of each shared region
};

struct shipped {
    const char *name;
    struct vb_image *(*make)(uint32_t n, char *error); // fails the test if it cannot
    uint32_t n;                                        // what make() is told
    void (*prepare)(const struct shipped *s, struct vb_machine *m, uint64_t seed);
};

uint32_t shipped_count(void);
const struct shipped *shipped_at(uint32_t i);
struct vb_image *shipped_image(const struct shipped *s);

// What a run gets to see: memory, and requests of the seed; 0: the usual ones.
struct shipped_input {
    const struct shipped *program;
    uint64_t seed;
};
// For vb_check_opts.prepare; ctx is a struct shipped_input.
void shipped_prepare(void *ctx, struct vb_machine *m);

#endif
