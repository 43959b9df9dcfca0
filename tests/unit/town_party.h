// SPDX-License-Identifier: Apache-2.0
// What servers and clients of a town have in common: a NIC, its manager, and connections.
#ifndef VB_TESTS_TOWN_PARTY_H
#define VB_TESTS_TOWN_PARTY_H

#include "host/cm.h"
#include "verbena/nic.h"

enum {
    PARTY_CONNS = 256,
    PARTY_BYTES = 256, // of a message
    PARTY_RETRIES = 4, // of the manager: of seconds, which is long for a process that runs
};

struct party_conn {
    struct vb_qp *qp; // NULL: free
    uint32_t id;
    uint32_t words[4]; // what it is about
};

struct party {
    char *why; // where failures are told
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_host_cm *cm;
    struct party_conn conn[PARTY_CONNS];
    uint8_t memory[PARTY_CONNS][2][PARTY_BYTES]; // to send, and received
};

// False: and `why` says so.
bool party_open(struct party *p, const char *address, uint32_t units, char *why);
// A connection with a queue pair of its own that can receive; NULL: there are too many.
struct party_conn *party_conn_new(struct party *p);
struct party_conn *party_conn_find(struct party *p, uint32_t id);
void party_conn_free(struct party_conn *c);
bool party_join(struct party *p, struct party_conn *c, const struct vb_qp_peer *peer);
void party_fill(uint8_t bytes[PARTY_BYTES], const uint32_t words[4]);
bool party_send(struct party *p, struct party_conn *c, const uint32_t words[4]);
bool party_has(const struct party *p, const struct party_conn *c, const uint32_t words[4]);
// The connection on which a message came; NULL: none did.
struct party_conn *party_receive(struct party *p);
// Waits for an event of the manager. False: none came in time.
bool party_wait(struct party *p, int ms, struct vb_cm_event *event);

#endif
