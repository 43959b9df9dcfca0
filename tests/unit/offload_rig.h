// SPDX-License-Identifier: Apache-2.0
// A service of offloads on one end, with a hash table behind it, and clients on the other.
#ifndef VB_TESTS_OFFLOAD_RIG_H
#define VB_TESTS_OFFLOAD_RIG_H

#include "duo.h"
#include "verbena/offload.h"
#include "verbena/offload_service.h"

enum {
    RIG_BUCKETS = 64,
    RIG_VALUE_MAX = 32,
    RIG_DEPTH = 2,
    RIG_ITEMS = 8192, // in the server's memory; the index is at its beginning
};

struct offload_rig {
    struct duo d;
    struct vb_offload_service *service;
    struct vb_offload_memory memory[2];
    const char *offload; // that clients ask for; NULL: "get"
    uint8_t timeout;     // of clients' acknowledgements; 0: DUO_TIMEOUT
    uint64_t nonces;
};

struct offload_client {
    struct vb_qp *qp;
    struct vb_cq *cq;
    struct vb_offload_place place;
    uint8_t *replies; // depth * RIG_VALUE_MAX bytes
    uint32_t depth, answered;
};

// The hash get, with the memory that the rig has filled.
struct vb_offload_offer offload_rig_offer(const struct offload_rig *rig);
void offload_rig_open(struct offload_rig *rig, struct duo_state *state,
                      struct vb_offload_service_opts opts);
// The same on two ends that are open.
void offload_rig_start(struct offload_rig *rig, struct vb_offload_service_opts opts);
void offload_rig_close(struct offload_rig *rig);

// What client n would send to join: its answers lie at its own place of end 0's memory.
struct vb_offload_join offload_rig_join(struct offload_rig *rig, const struct offload_client *c,
                                        uint32_t n, uint32_t depth);
// Makes its queue pair, lets it join and connects it.
void offload_client_open(struct offload_rig *rig, struct offload_client *c, uint32_t n,
                         uint32_t depth);
// The parts of it, for who carries messages in another way: the queue pair, and what is done with
// the answer.
void offload_client_make(struct offload_rig *rig, struct offload_client *c, uint32_t depth);
void offload_client_connect(struct offload_rig *rig, struct offload_client *c,
                            const struct vb_offload_join *join);
// Only the client's end.
void offload_client_close(struct offload_client *c);
void offload_client_leave(struct offload_rig *rig, struct offload_client *c);

// Asks for key n in a bucket; `expect` waits for the answer, and looks at the value.
void offload_client_ask(const struct offload_client *c, uint32_t n, uint32_t bucket);
void offload_client_expect(struct offload_client *c, uint32_t n, bool hit);
// Both, for keys that are there and that are not.
void offload_client_work(struct offload_client *c, uint32_t gets);

// Gives a message to the service; returns what reading the answer as a place says.
int offload_rig_say(struct offload_rig *rig, const void *message, size_t len,
                    struct vb_offload_place *place);
struct vb_offload_stat offload_rig_stat(const struct offload_rig *rig);

// What there is on the server's NIC.
struct offload_objects {
    uint32_t pds, mrs, cqs, qps, programs;
};

struct offload_objects offload_rig_count(struct offload_rig *rig);
void offload_rig_expect(struct offload_rig *rig, const struct offload_objects *then);

#endif
