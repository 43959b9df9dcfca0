// SPDX-License-Identifier: Apache-2.0
// The record of one step of a processing unit: what it did, to which queue, touching which memory.
#ifndef VB_NIC_STEP_H
#define VB_NIC_STEP_H

#include <stdbool.h>
#include <stdint.h>

enum vb_step_kind {
    VB_STEP_NONE,      // nothing to do, or no room in the transmit arena
    VB_STEP_FRAME_IN,  // one received frame was judged and applied
    VB_STEP_FETCH,     // one send WQE was copied from its ring
    VB_STEP_EXEC,      // one send WQE got its sequence numbers and began
    VB_STEP_FRAME_OUT, // one frame was written to the transmit arena
    VB_STEP_COMPLETE,  // one completion entry was written
    VB_STEP_TIMER,     // one timer fired
    VB_STEP_DROP,      // the answer to a repeated READ was given up: its memory is gone
    VB_STEP_TURN, // no step: where there are shares, a turn of the queue pair has ended and was
                  // billed; only observers and listeners are told
};

// What a requester's timer is for; a completion queue's has no kind.
enum vb_req_timer {
    VB_REQ_TIMER_NONE,
    VB_REQ_TIMER_CREDIT, // a wait for credits: nothing is in flight when it begins
    VB_REQ_TIMER_ASK,    // nothing in flight asks for an ACK
    VB_REQ_TIMER_ACK,
    VB_REQ_TIMER_RNR
};

// What became of a frame that came in. Everything past VB_RX_APPLIED changed no memory.
enum vb_rx_verdict {
    VB_RX_APPLIED,
    VB_RX_DUPLICATE, // an old request: acknowledged or answered again, not executed
    VB_RX_AHEAD,     // a request past the expected PSN: NAK, once
    VB_RX_RNR,       // no receive entry: RNR NAK
    VB_RX_REFUSED,   // a peer's violation: fatal NAK
    VB_RX_STALE,     // a response that acknowledges nothing new
    VB_RX_GAP,       // a response that shows an earlier one was lost
    VB_RX_RETRY,     // a NAK or RNR NAK made the requester go back
    VB_RX_FATAL,     // a fatal NAK or a bad response ended the requester
    VB_RX_MALFORMED, // not a packet
    VB_RX_STRANGER,  // no such queue pair, wrong state, wrong source address
};

struct vb_touch {
    const void *addr;
    uint32_t len;
    bool write;
};

struct vb_step {
    enum vb_step_kind kind;
    uint8_t opcode;  // wire opcode of frames, WQE opcode of fetch and exec, CQE opcode of
                     // completions, enum vb_req_timer of timers
    uint8_t verdict; // FRAME_IN: enum vb_rx_verdict
    uint8_t detail;  // frames with AETH: the syndrome; COMPLETE: the CQE syndrome (0 is success)
    uint32_t qpn;
    uint32_t cqn;     // COMPLETE
    uint32_t psn;     // frames, DROP
    uint32_t bytes;   // payload moved
    uint32_t blocks;  // FETCH: of the send queue, that the WQE covers; 1 if it has no length
    uint64_t counter; // FETCH, EXEC, COMPLETE: the WQE's counter in its queue
    // Host memory touched; the list is good until the next step.
    const struct vb_touch *touch;
    uint32_t touches;
};

typedef void vb_step_observer(void *ctx, const struct vb_step *step);

#endif
