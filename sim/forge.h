// SPDX-License-Identifier: Apache-2.0
// Frames that nobody's NIC has sent: noise, strangers, and claims about numbers far away.
#ifndef VB_SIM_FORGE_H
#define VB_SIM_FORGE_H

#include "sim/world.h"
#include "wire/packet.h"

// Injects one forged frame somewhere.
void vb_forge(struct vb_world *w);

// ---- between the parts
// Encodes the packet with random payload, and sends it.
void vb_forge_inject(struct vb_ep *to, const struct vb_ip *src, struct vb_packet *pkt);
// One for a queue pair of an unreliable service.
void vb_forge_unreliable(struct vb_ep *to);

#endif
