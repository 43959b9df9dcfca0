// SPDX-License-Identifier: Apache-2.0
// A NIC of the simulation from inside: what its two ways of running share.
#ifndef VB_SIM_NODE_H
#define VB_SIM_NODE_H

#include "sim/world.h"

// All units have consumed the port's frames, which last until then.
bool vb_node_read_all(const struct vb_node *node);
// Takes frames from the port and gives each to a unit's list. No unit may have any left.
void vb_node_receive(struct vb_node *node);
// One of the units that may have something to do.
struct vb_unit *vb_node_pick(struct vb_node *node);
// Draws whether the port is kept from sending for a while.
void vb_node_draw_hold(struct vb_node *node);
bool vb_node_may_send(const struct vb_node *node, bool full);
// The unit was handed frames for these others.
void vb_node_handed(struct vb_unit *u);
// Whether no unit has anything to do.
bool vb_node_is_idle(const struct vb_node *node);
// Until the next deadline, or for a moment.
void vb_node_rest(struct vb_node *node);
void vb_node_pause(struct vb_node *node);

// Turns as lanes take them (host/turn.h), of one or more units.
void vb_node_take_turns(struct vb_node *node);

#endif
