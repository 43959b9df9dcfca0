// SPDX-License-Identifier: Apache-2.0
// Ports of rdma_cm that a NIC's manager has.
#ifndef VB_HOST_CM_PORTS_H
#define VB_HOST_CM_PORTS_H

#include "cm/cma.h"

struct vb_cm_ports;
struct vb_nic;

// NULL: no memory.
struct vb_cm_ports *vb_cm_ports_create(struct vb_nic *nic, uint64_t seed);
void vb_cm_ports_destroy(struct vb_cm_ports *ports); // gives all back
// As vb_host_cm_bind() and vb_host_cm_unbind().
int vb_cm_ports_bind(struct vb_cm_ports *ports, enum vb_cma_space space, uint16_t *port);
void vb_cm_ports_unbind(struct vb_cm_ports *ports, enum vb_cma_space space, uint16_t port);

#endif
