// SPDX-License-Identifier: Apache-2.0
// Making a queue anew that queue pairs live on.
#include "sim/rebuild.h"

#include "sim/connection.h"

static bool concerns(const struct vb_rebuild *r, const struct vb_conn *conn)
{
    for (int side = 0; side < 2; side++)
        if (conn->ep[side].node == r->node && r->needs(&conn->ep[side], r->object))
            return true;
    return false;
}

static bool goes(const struct vb_rebuild *r, const struct vb_ep *ep)
{
    return ep->node == r->node && r->needs(ep, r->object);
}

int vb_rebuild(const struct vb_rebuild *r)
{
    struct vb_world *w = r->node->world;
    int err = 0;

    for (uint32_t i = 0; i < w->scen.conns; i++)
        if (concerns(r, &w->conn[i]))
            vb_conn_collect(&w->conn[i]);
    for (uint32_t i = 0; i < r->node->ep_count && !err; i++)
        if (goes(r, r->node->ep[i])) {
            err = vb_ep_remove(r->node->ep[i]);
            vb_conn_forget(r->node->ep[i]);
        }
    if (!err)
        err = r->remake(r->object);
    for (uint32_t i = 0; i < r->node->ep_count && !err; i++)
        if (goes(r, r->node->ep[i]))
            err = vb_ep_renew(r->node->ep[i]);
    for (uint32_t i = 0; i < w->scen.conns && !err; i++) {
        struct vb_conn *conn = &w->conn[i];
        if (!concerns(r, conn))
            continue;
        for (int side = 0; side < 2; side++)
            if (!goes(r, &conn->ep[side]))
                vb_conn_modify(&conn->ep[side], VB_QPS_RESET);
        vb_conn_restart(conn);
    }
    return err;
}
