// SPDX-License-Identifier: Apache-2.0
// Domains of extended reliable connections. To the device a domain is a number that queues agree
// on; who uses which is known here, and in a hull there, too.
#include "host/device.h"
#include "host/host.h"

#include <errno.h>
#include <stdlib.h>

struct vb_xrcd *vb_host_xrcd_find(struct vb_nic *nic, uint32_t number)
{
    for (struct vb_link *l = nic->xrcds.head.next; l != &nic->xrcds.head; l = l->next) {
        struct vb_xrcd *x = VB_CONTAINER_OF(l, struct vb_xrcd, link);
        if (x->number == number)
            return x;
    }
    return NULL;
}

// Numbers begin anew when all were given once.
static int name(struct vb_nic *nic, uint32_t *number)
{
    if (nic->attach)
        return vb_attach_xrcd_alloc(nic->attach, number);
    do
        *number = ++nic->xrcds_made;
    while (*number == 0 || vb_host_xrcd_find(nic, *number));
    return 0;
}

int vb_xrcd_alloc(struct vb_nic *nic, uint32_t *xrcd)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    struct vb_xrcd *x = calloc(1, sizeof *x);
    if (!x)
        return -ENOMEM;
    vb_host_lock(nic);
    int err = name(nic, &x->number);
    if (!err) {
        vb_fifo_push(&nic->xrcds, &x->link);
        *xrcd = x->number;
    }
    vb_host_unlock(nic);
    if (err)
        free(x);
    return err;
}

int vb_xrcd_free(struct vb_nic *nic, uint32_t xrcd)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    struct vb_xrcd *x = vb_host_xrcd_find(nic, xrcd);
    int err = !x ? -ENOENT : x->users ? -EBUSY : 0;
    if (!err && nic->attach)
        err = vb_attach_xrcd_free(nic->attach, xrcd);
    if (!err)
        vb_link_remove(&x->link);
    vb_host_unlock(nic);
    if (!err)
        free(x);
    return err;
}

void vb_host_xrcds_free(struct vb_nic *nic)
{
    struct vb_link *link;

    while ((link = vb_fifo_first(&nic->xrcds))) {
        vb_link_remove(link);
        free(VB_CONTAINER_OF(link, struct vb_xrcd, link));
    }
}
