// SPDX-License-Identifier: Apache-2.0
// A connection of the simulation: two endpoints, brought up, broken and brought up again.
#ifndef VB_SIM_CONNECTION_H
#define VB_SIM_CONNECTION_H

#include "sim/world.h"

// Draws what the two endpoints look like and puts them on their nodes' lists.
int vb_conn_prepare(struct vb_conn *conn, struct vb_world *w, uint32_t index);
void vb_conn_destroy(struct vb_conn *conn);
// The next control action: a state change of one side, or a look whether both are drained.
void vb_conn_control(struct vb_conn *conn);
// One of the hosts has seen an error.
void vb_conn_broken(struct vb_conn *conn);
// A host fails its queue pair.
void vb_conn_fail(struct vb_ep *ep);
// Both hosts reset their queue pairs, whatever is outstanding.
void vb_conn_reset(struct vb_conn *conn);
// Polls all that the two sides have completed.
void vb_conn_collect(struct vb_conn *conn);
// The queue pair is gone or in RESET: nothing of it is outstanding.
void vb_conn_forget(struct vb_ep *ep);
// Both sides are in RESET: they will be brought up again, if there is time.
void vb_conn_restart(struct vb_conn *conn);
// Changes the state as the connection's attributes say. Returns what the device says.
int vb_conn_try_modify(struct vb_ep *ep, enum vb_qp_state state);
// The same; the device must agree.
void vb_conn_modify(struct vb_ep *ep, enum vb_qp_state state);
// Tries a transition that the device must refuse.
void vb_conn_try_illegal(struct vb_ep *ep);
// Posting makes sense: the host knows of no error.
bool vb_conn_takes_posts(const struct vb_ep *ep);

#endif
