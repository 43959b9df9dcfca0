// SPDX-License-Identifier: Apache-2.0
// Random programs of statements for tests: those of the simulator.
#ifndef VB_TESTS_FLOW_KIT_H
#define VB_TESTS_FLOW_KIT_H

#include "sim/flow.h"

// The program of a seed, and in *w what must come out of it.
struct vb_image *flow_make_program(struct vb_simflow *w, uint64_t seed,
                                   struct vb_simflow_tally *tally);

#endif
