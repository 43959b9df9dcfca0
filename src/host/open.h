// SPDX-License-Identifier: Apache-2.0
// Opening the port that a NIC asks for.
#ifndef VB_HOST_OPEN_H
#define VB_HOST_OPEN_H

#include "port/faults.h"
#include "port/port.h"
#include "verbena/nic.h"

// Opens opts->port for each of `count` units, the first with its faults. *faulty is the port that
// makes them; NULL: there are no rules.
int vb_host_open_ports(const struct vb_nic_opts *opts, struct vb_port **ports, uint32_t count,
                       struct vb_port **faulty);

// A port around another that makes faults; takes both. NULL: no memory, and nothing was taken.
struct vb_port *vb_host_wrap_port(struct vb_port *inner, struct vb_faults *faults);

#endif
