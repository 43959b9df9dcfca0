// SPDX-License-Identifier: Apache-2.0
// Opening the port that a NIC asks for.
#ifndef VB_HOST_OPEN_H
#define VB_HOST_OPEN_H

#include "port/faults.h"
#include "port/port.h"
#include "verbena/nic.h"

// Opens opts->port for each of `count` units (a power of two up to 16), which share the address.
// 0 or a negative errno, with words; nothing is open then.
int vb_host_open_ports(const struct vb_nic_opts *opts, struct vb_port **ports, uint32_t count);

// Opens udp ports for each unit of a NIC on one more address. `first`: its first unit's udp port.
int vb_host_open_sides(const struct vb_port *first, const char *address, struct vb_port **ports,
                       uint32_t count, char *error_text);

// The name of the port that the options and the environment ask for.
const char *vb_host_port_text(const struct vb_nic_opts *opts);

// The rules a NIC starts with: the option's, the environment's, or none.
const char *vb_host_fault_text(const struct vb_nic_opts *opts);

// The ports get their wrapping when the first rules come: all of them or none. Needs the locks.
struct vb_nic;
int vb_host_wrap_ports(struct vb_nic *nic); // -ENOMEM
// A set for each unit, which counts and draws for itself: units share nothing while they run.
int vb_host_parse_faults(uint32_t lanes, const char *text, struct vb_faults **rules,
                         char *error_text);
// What rules call a request or, with `receive`, a receive.
enum vb_fault_wr vb_host_fault_kind(uint8_t wqe_opcode, bool receive);

// A port around another that makes faults; takes both. NULL: no memory, and nothing was taken.
struct vb_port *vb_host_wrap_port(struct vb_port *inner, struct vb_faults *faults);

#endif
