// SPDX-License-Identifier: Apache-2.0
// Random chain programs that are legal but make little sense.
#ifndef VB_UNIT_CHAIN_RANDOM_H
#define VB_UNIT_CHAIN_RANDOM_H

#include "chain/image.h"

struct vb_image *chain_random(uint64_t seed);

#endif
