// SPDX-License-Identifier: Apache-2.0
// A turn of a processing unit: the order in which whoever runs one polls, sends, receives and
// publishes. Lanes of an application or a hull take such turns, and so do the simulator's NICs.
// The functions called are constants where a turn is taken, so that all of it is inlined.
#ifndef VB_HOST_TURN_H
#define VB_HOST_TURN_H

#include "nic/dev.h"

#define VB_TURN_INLINE static inline __attribute__((always_inline))

struct vb_turn {
    struct vb_pu *pu;
    void *ctx;
    uint32_t (*poll)(void *ctx, uint64_t now_ns);
    // Frames are in the queue; some or all may stay there.
    void (*send)(void *ctx, struct vb_txq *txq, uint64_t now_ns);
    void (*publish)(void *ctx);
    uint32_t (*work)(void *ctx, uint64_t now_ns); // vb_turn_work() of this turn
    uint32_t (*receive)(void *ctx);               // feeds what has come; how many frames
    bool once;                                    // others are looked at before the rest is done
};

// Steps until idle and sends; again while only the room to send was missing. The application sees
// completions when the port has the answers that go with them, or the next turn will see to it.
VB_TURN_INLINE uint32_t vb_turn_work(const struct vb_turn *t, uint64_t now_ns)
{
    struct vb_txq *txq = vb_pu_txq(t->pu);
    uint32_t steps = 0;
    bool again;

    do {
        steps += t->poll(t->ctx, now_ns);
        again = vb_pu_wants_tx(t->pu);
        if (txq->taken < txq->count)
            t->send(t->ctx, txq, now_ns);
        vb_pu_tx_release(t->pu);
    } while (again && txq->count == 0 && !t->once);
    vb_pu_tx_keep(t->pu);
    t->publish(t->ctx);
    return steps;
}

// What was just posted leaves first: looking at an empty socket takes as long as sending. But a
// timer that fires waits for what has come meanwhile: it may be the answer. Who finds the unit idle
// has nothing to send, and has looked for frames alone, and found so many. Where a unit that does
// only so much at once had more to do, it takes no frames while it has some. It works once a turn:
// what has come is for the next one.
VB_TURN_INLINE uint32_t vb_turn_run(const struct vb_turn *t, uint64_t now_ns, bool idle,
                                    uint32_t frames)
{
    bool late = vb_pu_deadline(t->pu) <= now_ns;
    bool stopped = t->once && (vb_pu_frames_left(t->pu) > 0 || vb_pu_has_more(t->pu));
    bool first = !idle && !late && !stopped;
    uint32_t steps = first ? t->work(t->ctx, now_ns) : 0;

    // Frames that another unit handed over may be left by now, too.
    if (!idle && t->once)
        frames = vb_pu_frames_left(t->pu);
    if (!idle && frames == 0)
        frames = t->receive(t->ctx);
    if ((frames > 0 || late || stopped) && !(first && t->once))
        steps += t->work(t->ctx, now_ns);
    return steps;
}

#endif
