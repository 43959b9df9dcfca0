// SPDX-License-Identifier: Apache-2.0
// Frames that nobody's NIC has sent: noise, strangers, and claims about numbers far away.
#ifndef VB_SIM_FORGE_H
#define VB_SIM_FORGE_H

#include "sim/world.h"

// Injects one forged frame somewhere.
void vb_forge(struct vb_world *w);

#endif
