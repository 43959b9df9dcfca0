// SPDX-License-Identifier: Apache-2.0
// Making a queue anew that queue pairs live on: they go first, and their connections start over.
#ifndef VB_SIM_REBUILD_H
#define VB_SIM_REBUILD_H

#include "sim/world.h"

struct vb_rebuild {
    struct vb_node *node;
    void *object;
    bool (*needs)(const struct vb_ep *ep, const void *object); // one of the node's
    int (*remake)(void *object);
};

int vb_rebuild(const struct vb_rebuild *r);

#endif
