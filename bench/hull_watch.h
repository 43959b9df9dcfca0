// SPDX-License-Identifier: Apache-2.0
// Watches a READ at a time in a hull's thread: what other tenants do in the NIC before its request
// leaves, and before its answer is completed. Work is counted from the records of steps, at the
// prices of docs/hull.md; so what is judged depends neither on the machine nor on what else it
// does. Times are the thread's own.
#ifndef VB_BENCH_HULL_WATCH_H
#define VB_BENCH_HULL_WATCH_H

#include "hull/hull.h"
#include "nic/wr.h"
#include "wire/opcode.h"

#include <time.h>

enum {
    WATCHED = 4, // applications; the first one READs
    WATCH_LOOPS = 2,
    // In 256ths of a unit, so that bytes are exact. Records for listeners have no pieces of lists.
    WORK_UNIT = 256,
    WORK_FRAME = 8 * WORK_UNIT,
    WORK_TURN = 4 * WORK_UNIT,
    WORK_TIMER = 4 * WORK_UNIT,
    WORK_FRAME_MAX = WORK_FRAME + 4096 + 60 + 4,
    WORK_ENTRY_MAX = WORK_UNIT + 8192,
    // Blocks that a turn fetches besides one for each packet: 16 entries, of which one may have 15
    // blocks more than the others (sim/TURNS.md).
    WORK_AHEAD = (16 + 15) * WORK_UNIT,
    // What docs/hull.md promises, not taken from what is judged by it. A turn of the line has 4
    // packets of 4 KB, with an entry fetched for each. One before the line has a packet, or an
    // entry of a loop. Frames take half of their units from a poll.
    WORK_LINE = WORK_TURN + 4 * (WORK_FRAME_MAX + WORK_UNIT) + WORK_AHEAD,
    WORK_EARLY = WORK_TURN + WORK_ENTRY_MAX + WORK_AHEAD,
    WORK_POLL = 63 * WORK_UNIT + WORK_LINE,
    WORK_SLICE = 63 * WORK_UNIT + WORK_FRAME_MAX,
    WORK_HALF = WORK_POLL + WORK_SLICE + (WATCHED - 1) * WORK_EARLY,
    WATCH_SOLO_NS = 2 * 1000 * 1000, // a tenant that was alone for so long has long turns
};

// The parts of a READ that are promised, and what they consist of.
enum watch_part {
    WATCH_REQUEST, // from the look at the bells before the one that finds it, to the packet
    WATCH_ANSWER,  // from the look before the answer is taken, to the completion
    WATCH_TURN,    // between two looks while a READ is under way
    WATCH_PARTS,
};

static const uint64_t watch_limit[WATCH_PARTS] = {WORK_HALF, WORK_HALF, WORK_POLL};

enum watch_phase {
    WATCH_NOTHING,
    WATCH_RUNG, // the bell was found
    WATCH_LEFT, // the request's packet left
    WATCH_CAME, // the answer was taken
};

// What the unit's thread had done when it last looked at bells.
struct watch_look {
    uint64_t work;
    uint64_t ns, second_ns; // when that was, and when the second latest application had a turn
    uint64_t cpu_ns;        // 0: not asked
    uint64_t hears;         // how often the hull had heard messages
};

struct watch_half {
    struct watch_look from;
    uint64_t work, cpu_ns;
    bool judged, timed;
};

struct hull_watch {
    struct vb_hull *hull;
    struct vb_hull_client *client[WATCHED];
    uint32_t qpn;               // of the READs
    uint32_t psn;               // of the READ: an answer to an earlier one may come twice
    uint32_t loop[WATCH_LOOPS]; // queue pairs whose entries leave no records; 0: none
    uint64_t looped[WATCH_LOOPS];
    uint64_t work;
    uint64_t active_ns[WATCHED];
    struct watch_look look, before;
    enum watch_phase phase;
    uint64_t ended;            // READs
    struct watch_half half[2]; // of the READ: by WATCH_REQUEST and WATCH_ANSWER
    uint64_t turn_work;        // the longest turn while it waited
};

static inline uint64_t watch_cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// ---- the count

static inline uint64_t watch_frame(const struct vb_step *s)
{
    return WORK_FRAME + vb_opcode_table[s->opcode].header_bytes + ((s->bytes + 3u) & ~3u) + 4;
}

// Frames and timers do not wait for room to send, and are not anybody's turn.
static inline uint64_t watch_step_work(const struct hull_watch *w, const struct vb_step *s)
{
    bool stuck = vb_pu_wants_tx(w->hull->lane->pu);

    switch (s->kind) {
    case VB_STEP_FRAME_IN: return stuck ? 0 : watch_frame(s);
    case VB_STEP_TIMER: return stuck ? 0 : WORK_TIMER;
    case VB_STEP_FRAME_OUT: return watch_frame(s);
    case VB_STEP_EXEC: return vb_wqe_is_local(s->opcode) ? WORK_UNIT : 0;
    case VB_STEP_FETCH: return s->blocks * WORK_UNIT;
    case VB_STEP_COMPLETE: return WORK_UNIT;
    case VB_STEP_TURN: return WORK_TURN;
    default: return 0;
    }
}

static inline void watch_acted(struct hull_watch *w, uint32_t qpn)
{
    const struct vb_hull_object *o = w->hull->qp[qpn & (VB_DOORBELL_QPS - 1)];

    for (uint32_t i = 0; o && i < WATCHED; i++)
        if (o->client == w->client[i])
            w->active_ns[i] = w->look.ns;
}

// Entries of loops, which are of one block, leave no records.
static inline void watch_unrecorded(struct hull_watch *w)
{
    struct vb_qp_progress p;

    for (uint32_t i = 0; i < WATCH_LOOPS; i++) {
        if (!w->loop[i] || vb_dev_qp_progress(w->hull->nic->dev, w->loop[i], &p) != 0)
            continue;
        uint64_t looped = p.begun + p.fetched;
        if (looped > w->looped[i]) {
            w->work += (looped - w->looped[i]) * WORK_UNIT;
            watch_acted(w, w->loop[i]);
        }
        w->looped[i] = looped;
    }
}

// ---- halves

static inline uint64_t watch_second(const struct hull_watch *w)
{
    uint64_t first = 0, second = 0;

    for (uint32_t i = 0; i < WATCHED; i++) {
        uint64_t at = w->active_ns[i];
        second = at > first ? first : at > second ? at : second;
        first = at > first ? at : first;
    }
    return second;
}

static inline bool watch_solo(const struct watch_look *from, uint64_t now_ns)
{
    return now_ns - from->second_ns >= WATCH_SOLO_NS;
}

// Messages that were heard between two looks are not in the promise: then the later one counts.
static inline void watch_begin(struct hull_watch *w, const struct watch_look *before,
                               const struct watch_look *found)
{
    struct watch_half *h = &w->half[WATCH_REQUEST];

    h->from = before->hears == found->hears ? *before : *found;
    h->from.cpu_ns = found->cpu_ns;
    w->phase = WATCH_RUNG;
    w->turn_work = 0;
}

static inline void watch_end(struct hull_watch *w, enum watch_part part)
{
    struct watch_half *h = &w->half[part];

    watch_unrecorded(w);
    h->work = w->work - h->from.work;
    h->judged = !watch_solo(&h->from, vb_clock_ns());
    h->timed = h->from.cpu_ns != 0;
    h->cpu_ns = h->timed ? watch_cpu_ns() - h->from.cpu_ns : 0;
}

// The unit is about to look at bells. `asked` READs were posted, and their bells rung: one that is
// not there any more was found by the look before. An application that has not rung for 2 ms is
// not looked at before the hull has heard its message.
static inline void watch_looks(struct hull_watch *w, uint64_t asked)
{
    const struct vb_hull_client *client = w->client[0];
    bool waits = vb_doorbells_rung(&vb_hull_page_of(client->page, 0)->qps);
    bool rung = w->phase == WATCH_NOTHING && waits && vb_link_queued(&client->at[0].active);
    bool taken = w->phase == WATCH_NOTHING && !waits && (int64_t)(asked - w->ended) > 0;

    watch_unrecorded(w);
    struct watch_look look = {.work = w->work,
                              .ns = vb_clock_ns(),
                              .second_ns = watch_second(w),
                              .hears = w->hull->turns};
    if (rung || w->phase == WATCH_LEFT)
        look.cpu_ns = watch_cpu_ns();
    if (taken)
        watch_begin(w, &w->before, &w->look);
    if (rung)
        watch_begin(w, &w->look, &look);
    uint64_t turn_work = look.work - w->look.work;
    if (w->phase != WATCH_NOTHING && look.hears == w->look.hears && turn_work > w->turn_work &&
        !watch_solo(&w->look, look.ns))
        w->turn_work = turn_work;
    w->before = w->look;
    w->look = look;
}

// Whether the READ is done: the halves are its.
static inline bool watch_saw(struct hull_watch *w, const struct vb_step *s)
{
    if (s->qpn != w->qpn) {
        w->work += watch_step_work(w, s);
        if (s->kind != VB_STEP_FRAME_IN && s->kind != VB_STEP_TIMER && s->kind != VB_STEP_TURN)
            watch_acted(w, s->qpn);
        return false;
    }
    if (s->kind == VB_STEP_FRAME_OUT && s->opcode == VB_RC_READ_REQUEST && w->phase < WATCH_LEFT) {
        if (w->phase == WATCH_NOTHING) // rung just after the unit was about to look
            watch_begin(w, &w->before, &w->look);
        watch_end(w, WATCH_REQUEST);
        w->phase = WATCH_LEFT;
        w->psn = s->psn;
    } else if (s->kind == VB_STEP_FRAME_IN && w->phase == WATCH_LEFT && s->psn == w->psn) {
        w->half[WATCH_ANSWER].from = w->look;
        w->phase = WATCH_CAME;
    } else if (s->kind == VB_STEP_COMPLETE) {
        bool whole = w->phase == WATCH_CAME;
        watch_end(w, WATCH_ANSWER);
        watch_acted(w, s->qpn);
        w->phase = WATCH_NOTHING;
        w->ended++;
        return whole;
    }
    return false;
}

#endif
