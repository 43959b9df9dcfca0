// SPDX-License-Identifier: Apache-2.0
// Hulls for tests: in this process, with a thread of their own, or in a child.
#ifndef VB_TESTS_HULL_KIT_H
#define VB_TESTS_HULL_KIT_H

#include "hull/hull.h"
#include "verbena/nic.h"

// A hull called hullN on one of this process's addresses, of as many units as VERBENA_PUS says, or
// one; `text` is the rest of its configuration (more of the NIC, sections of tenants), or NULL.
struct vb_hull *hull_kit_open(unsigned host, const char *port, const char *text);
// One without a thread, run by vb_hull_turn().
struct vb_hull *hull_kit_open_still(unsigned host);
// Attaches to it.
struct vb_nic *hull_kit_attach(const struct vb_hull *hull);
// Waits until it has so many applications.
struct vb_hull_counts hull_kit_wait(struct vb_hull *hull, uint32_t clients);
// A connection that says nothing yet.
// All of its units are asleep.
void hull_kit_await_sleep(const struct vb_hull *hull);
int hull_kit_connect(const struct vb_hull *hull);
// Sends a request and takes its reply; returns the reply's error, or -ENOTCONN.
int hull_kit_ask(int socket, struct vb_hull_request *request, struct vb_hull_reply *reply);
// The greeting as it should be.
struct vb_hull_request hull_kit_hello(void);
// Descriptors of this process.
unsigned hull_kit_descriptors(void);
unsigned hull_kit_mappings(void);

#endif
