// SPDX-License-Identifier: Apache-2.0
// A processing unit from inside: shared by the requester, completer, responder and scheduler.
#ifndef VB_NIC_PU_H
#define VB_NIC_PU_H

#include "nic/dev.h"
#include "nic/qp.h"
#include "wire/packet.h"

struct vb_pu {
    struct vb_dev *dev;
    uint64_t now_ns;
    const struct vb_rx_frame *rx;
    uint32_t rx_next, rx_count;
    struct vb_qpc *recv_done; // its receive completion is due before the next frame
    struct vb_fifo run;       // queue pairs with something to do
    uint32_t turn_frames;     // sent by the queue pair at the head of the run list
    bool tx_full;
    struct vb_timers timers;
    struct vb_wr_pool pool;
    struct vb_path *retired_paths; // freed when no queued frame can point to them
    struct vb_txq txq;
    uint8_t *kept; // copies of lent payloads, VB_MTU_MAX bytes for each frame of the queue
    struct vb_counters count;
    vb_step_observer *observer;
    void *observer_ctx;
    bool recording; // somebody reads the records of steps
    struct vb_step step;
    struct vb_touch touch[VB_MAX_SGE + 1];
    uint32_t touches;
};

struct vb_dev {
    struct vb_mkey_table mkeys;
    struct vb_prng prng;
    uint32_t window_bytes, fetch_depth, lend_bytes;
    uint32_t *pd_users; // by domain - 1: PD_FREE, or the objects that live in it
    uint32_t pd_room;
    struct vb_qpc *qps[VB_DOORBELL_QPS];
    uint16_t qp_generation[VB_DOORBELL_QPS];
    uint32_t qp_hint, qp_count;
    struct vb_cqc **cqs;
    uint32_t cq_room, cq_count;
    struct vb_doorbells bells;
    struct vb_pu pu;
};

static inline struct vb_qpc *vb_dev_qp(struct vb_dev *dev, uint32_t qpn)
{
    struct vb_qpc *qp = dev->qps[qpn & (VB_DOORBELL_QPS - 1)];
    return qp && qp->qpn == qpn ? qp : NULL;
}

// Puts the queue pair on the run list.
static inline void vb_pu_kick(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (!vb_link_queued(&qp->run))
        vb_fifo_push(&pu->run, &qp->run);
}

// The record of the step being made, for whoever reads it.
#define VB_RECORD(pu, ...)                              \
    do {                                                \
        if (__builtin_expect((pu)->recording, 0))       \
            (pu)->step = (struct vb_step){__VA_ARGS__}; \
    } while (0)

static inline void vb_pu_touch(struct vb_pu *pu, const void *addr, uint32_t len, bool write)
{
    if (__builtin_expect(pu->recording, 0) && len > 0)
        pu->touch[pu->touches++] = (struct vb_touch){addr, len, write};
}

static inline bool vb_pu_tx_room(const struct vb_pu *pu)
{
    return pu->txq.count < VB_TX_FRAMES && pu->txq.used + VB_FRAME_MAX <= VB_TX_BYTES;
}

static inline uint8_t *vb_pu_tx_at(struct vb_pu *pu)
{
    return pu->txq.arena + pu->txq.used;
}

// Ends the frame that was written at vb_pu_tx_at(): zero pad, room for the ICRC. Only its header
// was written if the payload is lent.
void vb_pu_tx_commit(struct vb_pu *pu, struct vb_qpc *qp, uint32_t header, uint32_t payload,
                     const uint8_t *lent);

// ---- memory.c's rights applied to scatter lists (scatter.c)
enum vb_mem_refusal vb_gather(struct vb_pu *pu, uint32_t pd, const struct vb_seg *seg,
                              uint32_t num_seg, uint32_t offset, uint8_t *dst, uint32_t len);
// The range where it lies, if it is in one piece; otherwise *at is NULL and nothing was checked.
enum vb_mem_refusal vb_lend(struct vb_pu *pu, uint32_t pd, const struct vb_seg *seg,
                            uint32_t num_seg, uint32_t offset, uint32_t len, const uint8_t **at);
enum vb_mem_refusal vb_scatter(struct vb_pu *pu, uint32_t pd, const struct vb_seg *seg,
                               uint32_t num_seg, uint32_t offset, const uint8_t *src, uint32_t len);

// ---- requester.c
// One step of sending: fetch, begin or send. False: nothing can be done now.
bool vb_requester_step(struct vb_pu *pu, struct vb_qpc *qp);
// Goes back to the oldest unacknowledged packet.
void vb_requester_rewind(struct vb_qpc *qp);
// Moves the acknowledged edge to `psn` (exclusive) within the request at the edge.
void vb_requester_acked(struct vb_pu *pu, struct vb_qpc *qp, uint32_t psn);
void vb_requester_timer(struct vb_pu *pu, struct vb_qpc *qp);
// Fails the oldest unacknowledged request with the syndrome, and with it the queue pair.
void vb_requester_fail(struct vb_pu *pu, struct vb_qpc *qp, enum vb_cqe_syndrome syndrome);
void vb_requester_reset(struct vb_pu *pu, struct vb_qpc *qp);

// ---- completer.c
enum vb_rx_verdict vb_completer_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt);
// Retires acknowledged requests up to the next completion entry. False: none to retire.
bool vb_completer_step(struct vb_pu *pu, struct vb_qpc *qp);

// ---- responder.c
enum vb_rx_verdict vb_responder_receive(struct vb_pu *pu, struct vb_qpc *qp,
                                        const struct vb_packet *pkt);
// Sends one READ response, ACK or NAK. False: nothing owed.
bool vb_responder_step(struct vb_pu *pu, struct vb_qpc *qp);
void vb_responder_complete(struct vb_pu *pu, struct vb_qpc *qp);
void vb_responder_reset(struct vb_qpc *qp);

// ---- receive.c: the receive queue
// Copies the next receive entry into resp.recv. False: the queue is empty.
bool vb_receive_load(struct vb_qpc *qp);
// Blocks that the producer has added since, read from the doorbell records.
void vb_sq_refresh(struct vb_qpc *qp);
void vb_rq_refresh(struct vb_qpc *qp);

// ---- flush.c
// One step of flushing a failed queue pair. False: both queues are empty.
bool vb_flush_step(struct vb_pu *pu, struct vb_qpc *qp);

// ---- qp.c
int vb_qpc_create(const struct vb_qpc_attr *attr, struct vb_cqc *send_cq, struct vb_cqc *recv_cq,
                  struct vb_qpc **qp);
void vb_qpc_destroy(struct vb_pu *pu, struct vb_qpc *qp);
int vb_qpc_modify(struct vb_pu *pu, struct vb_qpc *qp, const struct vb_qpc_mods *mods);
void vb_qpc_fail(struct vb_pu *pu, struct vb_qpc *qp); // to ERR: flushing begins
// Writes a completion; a queue that has no room fails the queue pair.
void vb_qpc_complete(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cqc *cq,
                     const struct vb_completion *c);

#endif
