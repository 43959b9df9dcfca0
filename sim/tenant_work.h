// SPDX-License-Identifier: Apache-2.0
// What tenants post, good ones and bad ones: into the rings of their queues, whoever's NIC these
// are of. The simulator's tenants work so, and those that a hull is measured with.
#ifndef VB_SIM_TENANT_WORK_H
#define VB_SIM_TENANT_WORK_H

#include "base/prng.h"
#include "host/driver.h"

enum {
    VB_TENANT_QPS = 20,
};

enum vb_tenant_kind {
    VB_TENANT_IDLE,
    VB_TENANT_PROBE, // one READ at a time, and how long it took
    VB_TENANT_BUSY,  // well-behaved: four queues with sixteen READs and WRITEs of 1 KB each
    VB_TENANT_CHAIN, // two programs without an end, and eighteen queues flooded with WRITEs
    VB_TENANT_FUZZ,  // garbage in rings, doorbell records and bells
    VB_TENANT_FLUSH, // work for queue pairs that have failed
    VB_TENANT_COPY,  // two programs without an end: of long copies, and of copies in many pieces
    VB_TENANT_PULL,  // eighteen queues flooded with READs of 4 KB
    VB_TENANT_SURGE, // bursts, each when the last one is done; or single requests, later a flood
    VB_TENANT_KINDS
};

// Where memory lies for entries, the same in every run.
#define VB_TENANT_PLACE UINT64_C(0x100000000)

enum {
    VB_TENANT_MEMORY = 64 * 1024, // bytes there; a program that counts does so in the first word
    VB_TENANT_MTU = 4096,
};

struct vb_tenant_work {
    enum vb_tenant_kind kind;
    struct vb_prng prng;
    uint32_t key, far_key; // of its memory, and of its peers'
    struct vb_driver_cq *cq;
    struct vb_driver_qp *qp[VB_TENANT_QPS];
    uint32_t qps;
    uint64_t made; // requests, of one that fuzzes strokes
    uint64_t done; // of one that comes and goes
    bool goes_on;  // it ends in a flood
};

uint32_t vb_tenant_queues(enum vb_tenant_kind kind);
// Whether queue pair number i is connected with itself.
bool vb_tenant_loops(enum vb_tenant_kind kind, uint32_t i);
// How queue pair number i is made, but for its completion queues.
struct vb_qp_opts vb_tenant_queue(enum vb_tenant_kind kind, uint32_t i);

// Posts one request to queue pair number i. Returns whether there was room.
bool vb_tenant_post(struct vb_tenant_work *w, uint32_t i, enum vb_wr_opcode op, uint32_t bytes,
                    bool signals);
// What it does once all queue pairs are connected, and then again and again.
void vb_tenant_begin(struct vb_tenant_work *w);
void vb_tenant_go_on(struct vb_tenant_work *w);
// Takes the completions that are there, and forgets them.
void vb_tenant_drain(struct vb_tenant_work *w);

#endif
