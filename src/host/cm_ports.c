// SPDX-License-Identifier: Apache-2.0
// Ports of rdma_cm: taken from the machine once, and counted here.
#include "host/cm_ports.h"

#include "base/prng.h"
#include "cm/route.h"
#include "host/host.h"

#include <errno.h>
#include <stdlib.h>

enum {
    PORTS = 1 << 16,
    ANY_PORTS = VB_CM_PORT_LAST - VB_CM_PORT_FIRST + 1,
    STRIDE_MAX = 3529, // the least odd divisor of their number: below it odd strides meet them all
};

static_assert(ANY_PORTS == 8 * STRIDE_MAX, "which is prime");

struct vb_cm_ports {
    struct vb_nic *nic;
    pthread_mutex_t lock;
    struct vb_prng prng;
    uint16_t *times[VB_CM_SPACES]; // that each is bound; NULL: none ever was
};

struct vb_cm_ports *vb_cm_ports_create(struct vb_nic *nic, uint64_t seed)
{
    struct vb_cm_ports *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->nic = nic;
    p->prng.state = seed;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static int serve(struct vb_cm_ports *p, enum vb_cm_space space, uint16_t port, bool serves)
{
    struct vb_port *via = p->nic->lane[0].port;

    if (!via->ops->serve)
        return 0;
    vb_host_lock(p->nic);
    int err = via->ops->serve(via, space, port, serves);
    vb_host_unlock(p->nic);
    return err;
}

void vb_cm_ports_destroy(struct vb_cm_ports *p)
{
    if (!p)
        return;
    for (int space = 0; space < VB_CM_SPACES; space++) {
        for (uint32_t i = 0; i < PORTS && p->times[space]; i++)
            if (p->times[space][i] && !vb_host_is_foreign(p->nic))
                (void)serve(p, (enum vb_cm_space)space, (uint16_t)i, false);
        free(p->times[space]);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

// ---- all need the lock

static int bind_one(struct vb_cm_ports *p, enum vb_cm_space space, uint16_t port)
{
    uint16_t *times = &p->times[space][port];
    int err = *times == UINT16_MAX ? -ENOBUFS : *times ? 0 : serve(p, space, port, true);

    *times += err == 0;
    return err;
}

// From anywhere on, in any order.
static int bind_any(struct vb_cm_ports *p, enum vb_cm_space space, uint16_t *port)
{
    uint32_t at = (uint32_t)vb_prng_below(&p->prng, ANY_PORTS);
    uint32_t stride = 1 + 2 * (uint32_t)vb_prng_below(&p->prng, STRIDE_MAX / 2);
    int err = -EADDRINUSE;

    for (uint32_t tries = 0; tries < ANY_PORTS && err == -EADDRINUSE; tries++) {
        uint16_t number = (uint16_t)(VB_CM_PORT_FIRST + at);
        if (!p->times[space][number])
            err = bind_one(p, space, number);
        if (err == 0)
            *port = number;
        at = (at + stride) % ANY_PORTS;
    }
    return err;
}

int vb_cm_ports_bind(struct vb_cm_ports *p, enum vb_cma_space space, uint16_t *port)
{
    enum vb_cm_space number;
    int err = -ENOMEM;

    if (vb_host_is_foreign(p->nic))
        return -EPERM;
    if (!vb_cm_space_of(space, &number))
        return -EINVAL;
    int before = vb_cancel_hold();
    pthread_mutex_lock(&p->lock);
    if (!p->times[number])
        p->times[number] = calloc(PORTS, sizeof *p->times[number]);
    if (p->times[number])
        err = *port ? bind_one(p, number, *port) : bind_any(p, number, port);
    pthread_mutex_unlock(&p->lock);
    vb_cancel_allow(before);
    return err;
}

void vb_cm_ports_unbind(struct vb_cm_ports *p, enum vb_cma_space space, uint16_t port)
{
    enum vb_cm_space number;

    if (vb_host_is_foreign(p->nic) || !vb_cm_space_of(space, &number))
        return;
    int before = vb_cancel_hold();
    pthread_mutex_lock(&p->lock);
    if (p->times[number] && p->times[number][port] && --p->times[number][port] == 0)
        (void)serve(p, number, port, false);
    pthread_mutex_unlock(&p->lock);
    vb_cancel_allow(before);
}
