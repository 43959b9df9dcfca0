// SPDX-License-Identifier: Apache-2.0
// Completion queues: the NIC's half.
#ifndef VB_NIC_COMPLETION_H
#define VB_NIC_COMPLETION_H

#include "base/fifo.h"
#include "base/serial.h"
#include "base/spin.h"
#include "nic/dev.h"
#include "nic/timer.h"
#include "verbena/wqe.h"

#include <endian.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct vb_cqc {
    uint32_t cqn;
    uint32_t owner; // others cannot WAIT for it
    struct vb_pu *pu;
    bool crossing; // several units write to it, under the lock
    struct vb_spin lock;
    uint32_t entries; // power of two
    uint8_t *ring;
    const uint32_t *dbrec;
    uint64_t produced;
    uint64_t published;   // entries before it can be seen
    struct vb_cqc *later; // next in the PU's list of queues with entries not published
    bool listed;
    // In the list of a unit that had no room for its event; under the lock.
    bool untold;
    struct vb_cqc *untold_next;
    uint64_t consumed;        // as last read from the doorbell record
    uint32_t users;           // queue pairs and shared receive queues bound to it
    uint32_t hold_count;      // moderation: entries that an event waits for
    uint64_t hold_ns;         // or how long since the first of them
    uint64_t told;            // produced at the last event
    struct vb_timer timer;    // ends the wait
    uint32_t fired;           // the last arm word that was answered by an event
    uint32_t armed;           // the last one that the consumer told of
    uint64_t solicited;       // one past the last solicited entry
    bool overrun;             // an entry found no room: the queue is broken
    bool ignores_overrun;     // there always is
    atomic_bool watched;      // somebody waits for an entry,
    struct vb_fifo waiters;   // these: struct vb_cross
    struct vb_spin wait_lock; // of both, where there are several units
};

// Whether entry number `index` (24 bits of it) has been produced.
static inline bool vb_cqc_has(const struct vb_cqc *cq, uint32_t index)
{
    uint64_t produced = __atomic_load_n(&cq->produced, __ATOMIC_ACQUIRE);
    return vb_psn_diff((uint32_t)produced, index) > 0;
}

struct vb_completion {
    uint32_t qpn;
    uint64_t counter; // of the work-queue entry, in its queue
    uint32_t bytes;
    uint8_t opcode;     // enum vb_cqe_opcode
    uint8_t wqe_opcode; // of requests
    uint8_t syndrome;   // enum vb_cqe_syndrome, VB_SYN_OK for success
    uint8_t vendor;     // says more about an error
    bool solicited;
    uint32_t imm;        // immediate as its wire bytes; of an invalidation the key, big-endian
    uint32_t srqn;       // 0: none
    uint32_t flags_rqpn; // datagrams
};

// Writes one entry, which looks like an old one until it is published. False: no room, the queue is
// now broken.
bool vb_cqc_write(struct vb_cqc *cq, const struct vb_completion *c);
// Writes and publishes the entry of a request that went well, in a queue that ignores overruns:
// there always is room, and nothing waits to be published.
static inline void vb_cqc_put_request(struct vb_cqc *cq, uint32_t sop_drop_qpn, uint64_t counter,
                                      uint32_t bytes)
{
    uint64_t produced = cq->produced;
    struct vb_cqe *cqe = (struct vb_cqe *)(void *)cq->ring + (produced & (cq->entries - 1));

    memset(cqe, 0, offsetof(struct vb_cqe, op_own));
    cqe->byte_cnt = htobe32(bytes);
    cqe->sop_drop_qpn = htobe32(sop_drop_qpn);
    cqe->wqe_counter = htobe16((uint16_t)counter);
    __atomic_store_n(&cqe->op_own, (uint8_t)(VB_CQE_REQ << 4 | !!(produced & cq->entries)),
                     __ATOMIC_RELEASE);
    cq->published = produced + 1;
    __atomic_store_n(&cq->produced, produced + 1, __ATOMIC_RELEASE); // others may WAIT for it
}

// Gives entries to their reader: the owner bit last, so that a reader on another core sees them
// whole.
void vb_cqc_publish(struct vb_cqc *cq);

// The consumer has written an arm word. Serials come again, so a word that was answered once may be
// a new one.
void vb_cqc_arm(struct vb_cqc *cq);
// Whether the consumer has asked for an event that it has not got.
static inline bool vb_cqc_may_fire(const struct vb_cqc *cq)
{
    return be32toh(__atomic_load_n(&cq->dbrec[VB_DBREC_CQ_ARM], __ATOMIC_ACQUIRE)) != cq->fired;
}
// Whether the consumer asked for an event that is due now; it is then answered.
bool vb_cqc_fires(struct vb_cqc *cq);

#endif
