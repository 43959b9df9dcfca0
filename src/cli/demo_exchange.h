// SPDX-License-Identifier: Apache-2.0
// The demonstration's exchange: two NICs move data both ways by every verb, and check it.
#ifndef VB_CLI_DEMO_EXCHANGE_H
#define VB_CLI_DEMO_EXCHANGE_H

#include "cli/perf.h"

#include <netinet/in.h>

enum {
    VB_DEMO_VERBS = 3,
    VB_DEMO_SIZES = 4,
    VB_DEMO_SIDES = 2
};

extern const char *const vb_demo_verb_names[VB_DEMO_VERBS];
extern const uint32_t vb_demo_sizes[VB_DEMO_SIZES];

struct vb_demo_result {
    char address[VB_DEMO_SIDES][INET6_ADDRSTRLEN];
    // [who acts][verb][size]: the bytes arrived as they were sent.
    bool ok[VB_DEMO_SIDES][VB_DEMO_VERBS][VB_DEMO_SIZES];
};

// Starts the second process, exchanges, ends it. -1: it could not be carried through; see `why`.
int vb_demo_exchange(struct vb_demo_result *result, char *why);

#endif
