// SPDX-License-Identifier: Apache-2.0
// A device with two queue pairs for fuzzers: input bytes become choices, every region and frame is
// an allocation of its exact size, and what must always hold is checked after every run.
#ifndef VB_FUZZ_RIG_H
#define VB_FUZZ_RIG_H

#include "host/driver.h"
#include "nic/dev.h"
#include "nic/pu.h"
#include "wire/packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RIG_QPS = 2,
    RIG_REGIONS = 3,
    RIG_REGION_BYTES = 6000,
    RIG_BATCH = 8
};

struct rig_input {
    const uint8_t *data;
    size_t left;
};

struct rig_region {
    uint8_t *base; // NULL: not registered
    uint32_t key;
};

struct rig_qp {
    struct vb_driver_qp driver;
    struct vb_qpc *ctx;
    uint64_t send_id, recv_id;     // of the next request
    uint64_t send_done, recv_done; // everything before was completed
};

struct rig {
    struct rig_input in;
    struct vb_dev *dev;
    struct vb_pu *pu;
    uint64_t now_ns;
    uint32_t pd, cqn;
    struct vb_driver_cq cq;
    struct rig_region region[RIG_REGIONS];
    struct rig_qp qp[RIG_QPS];
    struct vb_ip local, remote;
    struct vb_rx_frame batch[RIG_BATCH];
    uint32_t batched;
    bool fed;        // the batch is in the device's hands
    bool observed;   // poll by recorded steps
    bool wqe_checks; // as the queue pairs were made
    bool orderly;    // the driver alone writes the rings, so completions must be in order
    uint32_t mtu;
    uint64_t steps;
};

struct rig_opts {
    bool no_wqe_checks;
    bool orderly;
    uint32_t cq_entries;
};

// Choices; all are 0 once the input has ended.
bool rig_more(const struct rig *r);
uint8_t rig_u8(struct rig *r);
uint16_t rig_u16(struct rig *r);
uint32_t rig_u32(struct rig *r);

void rig_open(struct rig *r, const struct rig_opts *opts, const uint8_t *data, size_t size);
void rig_close(struct rig *r);
void rig_require(bool holds);

// An address that is mostly within a region, and a key that is mostly its own.
uint64_t rig_addr(struct rig *r, uint32_t *key);

// Brings a queue pair one state further, or to ERR or RESET.
void rig_modify(struct rig *r, struct rig_qp *q, enum vb_qp_state state);
void rig_connect(struct rig *r, struct rig_qp *q);

// Puts a frame into the next batch; from the peer, or from a stranger.
void rig_frame(struct rig *r, const uint8_t *bytes, uint32_t len, bool stranger);
void rig_packet(struct rig *r, const struct vb_packet *pkt, const uint8_t *payload);

void rig_unregister(struct rig *r, uint32_t region);
void rig_register(struct rig *r, uint32_t region);

// Hands the batch over, polls until idle, sends everything, checks.
void rig_run(struct rig *r);
// Makes a few steps and stops there: frames wait on both sides.
void rig_steps(struct rig *r, uint32_t steps);
// Takes completions and checks their order.
void rig_complete(struct rig *r);

#endif
