// SPDX-License-Identifier: Apache-2.0
// Small changes to chain programs, as a mistake would make them; and a hash get with clients.
#ifndef VB_TESTS_MUTATE_KIT_H
#define VB_TESTS_MUTATE_KIT_H

#include "base/prng.h"
#include "chain/image.h"
#include "chain/machine.h"

enum mutation {
    MUTATE_INDEX,  // of a WAIT, a SEND_EN or a RECV_EN, one more or one less
    MUTATE_COUNT,  // the same of a counter that a program keeps of it
    MUTATE_FENCE,  // off
    MUTATE_SIGNAL, // off
    MUTATE_SWAP,   // two neighbours
    MUTATE_OFFSET, // of an address
    MUTATE_REMOVE, // a WAIT or a SEND_EN
    MUTATIONS
};

// Makes one change; `what` (160 bytes) says which. False: the image has nothing of the kind.
bool mutate(struct vb_image *image, enum mutation kind, struct vb_prng *prng, char *what);
const char *mutation_name(enum mutation kind);

enum {
    HASH_BUCKETS = 16,
    HASH_VALUE_MAX = 64,
    HASH_SHARED = 4096, // bytes of each shared region
    HASH_ASKED = 20,
};

struct vb_image *hash_image(uint32_t slots);
// Fills the index and the items, and sends HASH_ASKED requests. ctx: NULL, or a seed (uint64_t) of
// other ones.
void hash_prepare(void *ctx, struct vb_machine *m);

#endif
