// SPDX-License-Identifier: Apache-2.0
// Connections of unreliable services: pairs of UC queue pairs, and pairs of UD queue pairs, which
// live together but talk to all others of their kind. A request that fails stops its send queue
// (SQE) until its host lets it go on.
#ifndef VB_SIM_UNRELIABLE_H
#define VB_SIM_UNRELIABLE_H

#include "sim/world.h"

// Draws the service of an endpoint, if its connection is one of these, and what follows from it.
void vb_unreliable_shape(struct vb_ep *ep, struct vb_ep_opts *opts, uint32_t mtu);
// They have at most a quarter of all work requests.
bool vb_unreliable_may_post(const struct vb_ep *ep, uint32_t count);
// A completion with an error of a queue pair that does not fail by it; its host looks after it.
bool vb_unreliable_goes_on(struct vb_ep *ep, bool receive);
// Looks after a send queue in SQE. False: there is none.
bool vb_unreliable_mend(struct vb_conn *conn);

#endif
