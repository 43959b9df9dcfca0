// SPDX-License-Identifier: Apache-2.0
// Holding an ACK back until the application has answered.
//
// A program that answers each message as it comes makes two packets of it: the ACK, and its answer
// a moment later. Sending is what takes most of the time, so with programs that were seen to do
// that the ACK waits for the answer, and the port sends both at once. A poller comes back at once
// or not at all, and then the helper runs the lane.
#include "host/host.h"

#include "wire/opcode.h"

enum {
    TRUST = 8,              // answers in a row that show a habit
    ANSWER_NS = 20 * 1000,  // what comes later is no answer
    PATIENCE_NS = 3 * 1000, // with somebody who polls and does not answer
};

// One positive acknowledgement, and nothing else.
static bool is_one_ack(const struct vb_txq *txq)
{
    if (txq->count - txq->taken != 1)
        return false;
    const uint8_t *bth = txq->arena + txq->frame[txq->taken].offset;
    return vb_opcode_table[*bth].facts & VB_OP_ACK && bth[VB_BTH_BYTES] >> 5 == VB_AETH_ACK;
}

bool vb_hold_keeps(struct vb_lane *lane, uint64_t now_ns)
{
    struct vb_hold *h = &lane->hold;

    if (!h->may || !is_one_ack(vb_pu_txq(lane->pu))) {
        h->phase = VB_HOLD_NOTHING;
        return false;
    }
    if (h->phase != VB_HOLD_ACK && vb_pu_has_unpublished(lane->pu)) {
        h->phase = h->answers >= TRUST ? VB_HOLD_ACK : VB_HOLD_WATCH;
        h->since_ns = now_ns;
    }
    return h->phase == VB_HOLD_ACK;
}

bool vb_hold_lasts(struct vb_lane *lane)
{
    struct vb_hold *h = &lane->hold;
    bool answered = vb_doorbells_rung(vb_pu_doorbells(lane->pu));
    uint64_t held_ns = vb_clock_recent_ns(&lane->recent) - h->since_ns;

    if (h->may && !answered && held_ns < PATIENCE_NS)
        return h->phase == VB_HOLD_ACK;
    h->phase = VB_HOLD_NOTHING;
    if (!answered || held_ns >= ANSWER_NS)
        h->answers = 0;
    else if (h->answers < TRUST)
        h->answers++;
    return false;
}
