// SPDX-License-Identifier: Apache-2.0
// Traces of the last frames, for looking at in Wireshark.
#include "port/trace.h"
#include "host/device.h"
#include "host/host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void stop(struct vb_nic *nic)
{
    for (uint32_t i = 0; i < nic->lanes; i++) {
        vb_trace_destroy(nic->lane[i].port->trace);
        nic->lane[i].port->trace = NULL;
    }
}

static int start(struct vb_nic *nic, uint32_t ring_bytes)
{
    const struct vb_trace_opts opts = {.ring_bytes = ring_bytes,
                                       .seal = nic->lane[0].port->unsealed,
                                       .wall_offset_ns = vb_trace_wall_offset_ns()};
    for (uint32_t i = 0; i < nic->lanes; i++) {
        int err = vb_trace_create(&opts, &nic->lane[i].port->trace);
        if (err) {
            stop(nic);
            return err;
        }
    }
    return 0;
}

int vb_nic_trace(struct vb_nic *nic, uint32_t ring_bytes)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    if (!nic->attach)
        stop(nic);
    int err = nic->attach  ? vb_attach_trace(nic->attach, ring_bytes)
              : ring_bytes ? start(nic, ring_bytes)
                           : 0;
    vb_host_unlock(nic);
    return err;
}

static void describe(const struct vb_lane *lane, uint32_t number, char *text, size_t size)
{
    const struct vb_ip *ip = &lane->port->local;
    char address[INET6_ADDRSTRLEN];

    if (vb_ip_is_v4(ip))
        inet_ntop(AF_INET, ip->b + 12, address, sizeof address);
    else
        inet_ntop(AF_INET6, ip->b, address, sizeof address);
    snprintf(text, size, "verbena %s unit %u", address, number);
}

// Of the application's own queue pairs: what the hull has is copied, and written when the locks are
// free again.
static int dump_attached(struct vb_nic *nic, int fd)
{
    const uint32_t units = nic->attach->units;
    char names[VB_HOST_LANES][INET6_ADDRSTRLEN + 32];
    struct vb_trace_source sources[VB_HOST_LANES];
    void *copies[VB_HOST_LANES] = {0};
    int err = 0;

    vb_host_lock(nic);
    for (uint32_t i = 0; i < units && !err; i++) {
        describe(&nic->lane[0], i, names[i], sizeof names[i]);
        sources[i] = (struct vb_trace_source){NULL, names[i], NULL};
        err = vb_attach_trace_read(nic->attach, i, &sources[i], &copies[i]);
    }
    vb_host_unlock(nic);
    if (!err)
        err = vb_trace_dump(sources, units, fd);
    for (uint32_t i = 0; i < units; i++)
        free(copies[i]);
    return err;
}

int vb_nic_trace_dump(struct vb_nic *nic, int fd)
{
    struct vb_trace_source sources[VB_HOST_LANES];
    char names[VB_HOST_LANES][INET6_ADDRSTRLEN + 32];
    int err = -EINVAL; // no trace runs

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (nic->attach)
        return dump_attached(nic, fd);
    vb_host_lock(nic);
    for (uint32_t i = 0; i < nic->lanes; i++) {
        describe(&nic->lane[i], i, names[i], sizeof names[i]);
        sources[i] = (struct vb_trace_source){nic->lane[i].port->trace, names[i], NULL};
    }
    if (nic->lane[0].port->trace)
        err = vb_trace_dump(sources, nic->lanes, fd);
    vb_host_unlock(nic);
    return err;
}
