// SPDX-License-Identifier: Apache-2.0
// Queue pairs that are connected with themselves: entries are executed on this machine's memory, in
// order and without a packet. What is executed is the copy that was made when the entry was
// fetched.
#include "nic/pu.h"

#include "base/bytes.h"
#include "nic/gate.h"
#include "nic/local.h"
#include "nic/words.h"

#include <assert.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// What became of an entry besides how it ended.
enum {
    HELD = 0x100,  // must wait
    PAUSE = 0x200, // done well, but took long or opened more of its own queue: look around
};

static inline uint32_t blocks_of(const struct vb_wqe_ctrl *ctrl)
{
    return ((ctrl->ds & VB_WQE_DS_MASK) + 3u) / 4;
}

// ---- entries that open queues or wait

static inline struct vb_local_end do_enable(struct vb_pu *pu, struct vb_qpc *qp,
                                            const struct vb_wqe_ctrl *ctrl, bool receive,
                                            bool recorded)
{
    const struct vb_wqe_wait *arg = (const void *)(ctrl + 1);
    const uint64_t end = qp->sq.end;

    if (__builtin_expect((ctrl->ds & VB_WQE_DS_MASK) != 2 || ctrl->opmod, 0) ||
        !vb_cross_enable(pu, qp, receive, be32toh(arg->object), be32toh(arg->index)))
        return (struct vb_local_end){.syndrome = VB_SYN_LOCAL_QP_OP};
    return (struct vb_local_end){.syndrome = !recorded && qp->sq.end != end ? PAUSE : VB_SYN_OK};
}

// A WAIT whose time has not come, or that has waited before.
static __attribute__((noinline)) struct vb_local_end wait_on(struct vb_pu *pu, struct vb_qpc *qp,
                                                             uint32_t cqn, uint32_t index)
{
    bool bad = false;

    if (vb_cross_wait(pu, qp, cqn, index, &bad))
        return (struct vb_local_end){.syndrome = VB_SYN_OK};
    return (struct vb_local_end){.syndrome = bad ? (uint32_t)VB_SYN_LOCAL_QP_OP : HELD};
}

// A WAIT goes on when its time has come.
static inline struct vb_local_end do_wait(struct vb_pu *pu, struct vb_qpc *qp,
                                          const struct vb_cross *c, const struct vb_wqe_ctrl *ctrl)
{
    const struct vb_wqe_wait *arg = (const void *)(ctrl + 1);
    uint32_t cqn = be32toh(arg->object), index = be32toh(arg->index);

    if (__builtin_expect((ctrl->ds & VB_WQE_DS_MASK) != 2 || ctrl->opmod, 0))
        return (struct vb_local_end){.syndrome = VB_SYN_LOCAL_QP_OP};
    const struct vb_cqc *cq = vb_qpc_awaited(pu->dev, qp, cqn);
    if (cq && !c->waits_for && vb_cqc_has(cq, index))
        return (struct vb_local_end){.syndrome = VB_SYN_OK};
    return wait_on(pu, qp, cqn, index);
}

static inline struct vb_local_end pause_if_long(const struct vb_qpc *qp, struct vb_local_end end)
{
    if (__builtin_expect(end.bytes >> qp->charge_shift, 0))
        end.syndrome |= PAUSE;
    return end;
}

// Fails whatever has no length, too. *blocks is 1, and becomes what it is of longer entries.
ALWAYS_INLINE struct vb_local_end perform(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cross *c,
                                          const struct vb_wqe_ctrl *ctrl, bool recorded,
                                          uint32_t *blocks)
{
    const struct vb_local_end good = {.syndrome = VB_SYN_OK}, bad = {VB_SYN_LOCAL_QP_OP, 0};
    const struct vb_local_end word = {VB_SYN_OK, 8}, half = {VB_SYN_OK, 4}, byte = {VB_SYN_OK, 1};

    switch ((enum vb_wqe_opcode)ctrl->opcode) {
    case VB_WQE_NOP: *blocks = blocks_of(ctrl); return *blocks ? good : bad;
    case VB_WQE_WAIT: return do_wait(pu, qp, c, ctrl);
    case VB_WQE_SEND_EN: return do_enable(pu, qp, ctrl, false, recorded);
    case VB_WQE_RECV_EN: return do_enable(pu, qp, ctrl, true, recorded);
    case VB_WQE_READ:
        if (!recorded && vb_words_read(pu, qp, ctrl, 8))
            return word;
        if (!recorded && vb_words_read(pu, qp, ctrl, 1))
            return byte;
        *blocks = blocks_of(ctrl);
        return recorded ? vb_local_read_slowly(pu, qp, ctrl)
                        : pause_if_long(qp, vb_local_read(pu, qp, ctrl));
    case VB_WQE_WRITE:
        if (!recorded && vb_words_write(pu, qp, ctrl))
            return word;
        *blocks = blocks_of(ctrl);
        return recorded ? vb_local_write_slowly(pu, qp, ctrl)
                        : pause_if_long(qp, vb_local_write(pu, qp, ctrl));
    case VB_WQE_ATOMIC_CS:
        if (!recorded && vb_words_swap(pu, qp, ctrl))
            return word;
        break;
    case VB_WQE_MASKED_FA:
        if (!recorded && vb_words_add_narrow(pu, qp, ctrl))
            return half;
        if (!recorded && vb_words_add(pu, qp, ctrl))
            return word;
        break;
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS: break;
    // A queue pair that is its own peer has no receives: nothing that needs one is legal.
    default: return bad;
    }
    *blocks = blocks_of(ctrl);
    return vb_local_atomic(pu, qp, ctrl);
}

static bool is_right(const struct vb_qpc *qp, const struct vb_wqe_ctrl *ctrl, uint64_t counter)
{
    return !qp->wqe_checks ||
           (vb_get_be16(ctrl->idx) == (uint16_t)counter && vb_get_be24(ctrl->qpn) == qp->qpn &&
            (ctrl->opcode != VB_WQE_NOP || ctrl->opmod == 0));
}

// The same for entries that are checked or limited: a WAIT takes a token when its time has come.
static __attribute__((noinline)) struct vb_local_end perform_carefully(
    struct vb_pu *pu, struct vb_qpc *qp, const struct vb_wqe_ctrl *ctrl)
{
    struct vb_cross *c = qp->cross;
    struct vb_local_end end = {.syndrome = VB_SYN_LOCAL_QP_OP};

    if (!(ctrl->ds & VB_WQE_DS_MASK) || !is_right(qp, ctrl, c->snap.executed))
        return end;
    if (ctrl->opcode == VB_WQE_WAIT) {
        end = do_wait(pu, qp, c, ctrl);
        if (end.syndrome != VB_SYN_OK)
            return end;
    }
    enum vb_cross_verdict verdict = c->limited ? vb_cross_admit(pu, qp) : VB_CROSS_GO;
    if (verdict == VB_CROSS_GO)
        return ctrl->opcode == VB_WQE_WAIT ? end : perform(pu, qp, c, ctrl, true, &(uint32_t){0});
    end.syndrome = verdict == VB_CROSS_HELD ? HELD : (uint32_t)VB_SYN_LOCAL_QP_OP;
    return end;
}

// ---- failing

void vb_loop_abandon(struct vb_qpc *qp)
{
    struct vb_snapshot *snap = &qp->cross->snap;

    snap->filling = false;
    qp->sq.fetched = snap->executed; // what is done completes: see vb_loop_complete()
}

// The entry at the edge fails, and with it the queue pair; those behind it are flushed.
static __attribute__((noinline)) void fail(struct vb_pu *pu, struct vb_qpc *qp, uint64_t next,
                                           uint8_t opcode, enum vb_cqe_syndrome syndrome)
{
    struct vb_snapshot *snap = &qp->cross->snap;
    uint64_t counter = snap->executed;

    snap->executed = next;
    vb_qpc_fail(pu, qp);
    vb_pu_event(pu, VB_EVENT_QP_FATAL, qp->qpn);
    vb_qpc_complete(pu, qp, qp->send_cq,
                    &(struct vb_completion){.qpn = qp->qpn,
                                            .counter = counter,
                                            .opcode = VB_CQE_REQ_ERR,
                                            .wqe_opcode = opcode,
                                            .syndrome = (uint8_t)syndrome});
}

// ---- steps
// Each is made in two ways: alone, with a record of it, and in a run, where nobody reads records.

static inline uint8_t *slot(const struct vb_snapshot *snap, uint64_t counter)
{
    return snap->block + (counter & snap->mask) * VB_WQEBB_BYTES;
}

static inline uint64_t bytes_of(uint64_t blocks)
{
    return blocks * VB_WQEBB_BYTES;
}

static inline uint64_t blocks_in(uint64_t bytes)
{
    return bytes / VB_WQEBB_BYTES;
}

// Of one block.
static inline bool is_short(const struct vb_wqe_ctrl *ctrl)
{
    return !((ctrl->ds - 1u) & VB_WQE_DS_MASK & ~3u);
}

// Copies an entry, which may wrap around the ring's end; of a NOP only the first block, it skips
// the rest. Returns how many blocks it covers. One that says nothing sensible is marked, whatever
// is opened later; everything behind it is passed over, and costs nothing. Its place and both masks
// are in bytes.
ALWAYS_INLINE uint32_t copy_entry(uint8_t *block, uint64_t mask, const uint8_t *ring,
                                  uint64_t ring_mask, uint64_t at, struct vb_qpc *qp)
{
    uint8_t *to = block + (at & mask);
    struct vb_wqe_ctrl *ctrl = (struct vb_wqe_ctrl *)(void *)to;

    memcpy(to, ring + (at & ring_mask), VB_WQEBB_BYTES);
    if (__builtin_expect(is_short(ctrl), 1))
        return 1;
    uint32_t blocks = blocks_of(ctrl);
    uint64_t left = qp->sq.end - blocks_in(at);
    if (blocks == 0 || blocks > left) {
        ctrl->ds = 0;
        qp->bill.fetched += left - 1;
        return (uint32_t)left;
    }
    if (ctrl->opcode == VB_WQE_NOP)
        return blocks;
    for (uint32_t i = 1; i < blocks; i++) {
        at += VB_WQEBB_BYTES;
        to += VB_WQEBB_BYTES;
        memcpy(to, ring + (at & ring_mask), VB_WQEBB_BYTES);
    }
    return blocks;
}

// The end of what may be fetched: there must be room for any entry.
static inline uint64_t fetch_end(const struct vb_snapshot *snap, const struct vb_sq *sq)
{
    uint64_t last = snap->executed + snap->mask + 1 - VB_WQE_MAX_BLOCKS;
    return sq->end <= last ? sq->end : last + 1;
}

// One entry that is open, if fewer are ahead than is allowed.
static bool fetch_one(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_snapshot *snap = &qp->cross->snap;
    struct vb_sq *sq = &qp->sq;
    uint64_t counter = sq->fetched;
    uint32_t room = qp->fetch_depth - snap->ahead;

    // A few at a time: one that starts fetching does so until the depth is reached.
    if (counter == sq->end)
        snap->filling = false;
    if (counter == sq->end || (snap->ahead > qp->fetch_depth / 2 && !snap->filling))
        return false;
    assert(room > 0);
    bool fits = counter < fetch_end(snap, sq), enough = false;
    if (fits) {
        uint32_t blocks = copy_entry(snap->block, bytes_of(snap->mask), sq->ring,
                                     bytes_of(sq->blocks - 1), bytes_of(counter), qp);
        const struct vb_wqe_ctrl *ctrl = (const void *)slot(snap, counter);
        VB_RECORD(pu, .kind = VB_STEP_FETCH, .opcode = ctrl->opcode, .qpn = qp->qpn,
                  .counter = counter, .bytes = blocks * VB_WQEBB_BYTES,
                  .blocks = ctrl->ds ? blocks : 1);
        sq->fetched += blocks;
        snap->ahead++;
        enough = vb_pu_has_fetched(pu, qp);
        if (enough)
            vb_pu_give_up(pu, VB_TURN_FRAMES - pu->turn_frames);
    }
    snap->filling = fits && room > 1 && !enough;
    return fits;
}

// As far as a turn beside those of other shares fetches.
static inline uint64_t turn_end(const struct vb_pu *pu, const struct vb_qpc *qp, uint64_t end)
{
    uint64_t most = qp->bill.fetched + VB_SHARE_FETCH + 1;
    return pu->turn_start && most < end ? most : end;
}

// All entries that are open, as deep as is allowed. Returns how many.
static __attribute__((noinline)) uint32_t fetch_all(const struct vb_pu *pu, struct vb_qpc *qp,
                                                    struct vb_snapshot *snap)
{
    const uint64_t end = bytes_of(turn_end(pu, qp, fetch_end(snap, &qp->sq)));
    const uint64_t mask = bytes_of(snap->mask);
    const uint64_t ring_mask = bytes_of(qp->sq.blocks - 1);
    const uint8_t *const ring = qp->sq.ring;
    uint8_t *const block = snap->block;
    const uint32_t depth = qp->fetch_depth;
    uint32_t n = snap->ahead;
    uint64_t at = bytes_of(qp->sq.fetched);

    while (n < depth && at < end) {
        n++;
        at += bytes_of(copy_entry(block, mask, ring, ring_mask, at, qp));
    }
    uint32_t more = n - snap->ahead;
    qp->sq.fetched = blocks_in(at);
    snap->ahead = n;
    snap->filling = false;
    return more;
}

bool vb_loop_is_due(const struct vb_qpc *qp)
{
    return qp->cross->snap.due;
}

bool vb_loop_complete(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_snapshot *snap = &qp->cross->snap;

    if (!snap->due)
        return false;
    snap->due = false;
    vb_qpc_complete(pu, qp, qp->send_cq,
                    &(struct vb_completion){.qpn = qp->qpn,
                                            .counter = snap->done_counter,
                                            .opcode = VB_CQE_REQ,
                                            .wqe_opcode = snap->done_opcode,
                                            .bytes = snap->done_bytes});
    return true;
}

// The same for an entry of a run, at once. A queue of this unit's that always has room and tells of
// its entries at once, as those of programs do, takes the short way.
static inline void complete_unseen(struct vb_pu *pu, struct vb_qpc *qp, struct vb_snapshot *snap,
                                   uint8_t opcode, uint32_t bytes, uint64_t counter)
{
    struct vb_cqc *cq = qp->send_cq;

    if (__builtin_expect(!cq->ignores_overrun || cq->crossing || cq->hold_count, 0)) {
        snap->due = true;
        snap->done_opcode = opcode;
        snap->done_bytes = bytes;
        snap->done_counter = counter;
        vb_loop_complete(pu, qp);
        return;
    }
    vb_cqc_put_request(cq, (uint32_t)opcode << 24 | qp->qpn, counter, bytes);
    if (vb_cqc_may_fire(cq) || pu->event_count >= VB_EVENTS_DEFERRABLE)
        vb_cqc_tell(pu, cq, false);
    if (pu->dev->pu_count > 1 || atomic_load_explicit(&cq->watched, memory_order_relaxed))
        vb_cross_produced(pu, cq);
}

// The entry at the edge is done.
static void retire(struct vb_snapshot *snap, const struct vb_wqe_ctrl *ctrl, uint32_t bytes)
{
    if (__builtin_expect(ctrl->fm_ce_se & VB_WQE_CE_ALWAYS, 0)) {
        snap->due = true;
        snap->done_opcode = ctrl->opcode;
        snap->done_bytes = bytes;
        snap->done_counter = snap->executed;
    }
    snap->executed += blocks_of(ctrl);
    snap->ahead--;
}

// It failed. What comes behind an entry without a length, nobody knows: the rest goes, too.
static __attribute__((noinline)) void fail_entry(struct vb_pu *pu, struct vb_qpc *qp,
                                                 const struct vb_wqe_ctrl *ctrl, uint32_t syndrome)
{
    uint32_t blocks = blocks_of(ctrl);

    fail(pu, qp, blocks ? qp->cross->snap.executed + blocks : qp->sq.end, ctrl->opcode,
         (enum vb_cqe_syndrome)syndrome);
}

static inline uint32_t charge_of(const struct vb_qpc *qp, uint32_t bytes)
{
    return 1 + (bytes >> qp->charge_shift);
}

// Executes the oldest entry of the snapshot, with its record and all checks. Returns what it takes
// of the turn; 0: it must wait.
static __attribute__((noinline)) uint32_t execute_next(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_cross *c = qp->cross;
    uint64_t counter = c->snap.executed;
    const struct vb_wqe_ctrl *ctrl = (const void *)slot(&c->snap, counter);
    struct vb_local_end end = perform_carefully(pu, qp, ctrl);

    if (end.syndrome == HELD)
        return 0;
    if (end.syndrome != VB_SYN_OK) {
        fail_entry(pu, qp, ctrl, end.syndrome);
        return 1;
    }
    VB_RECORD(pu, .kind = VB_STEP_EXEC, .opcode = ctrl->opcode, .qpn = qp->qpn, .counter = counter,
              .bytes = end.bytes);
    retire(&c->snap, ctrl, end.bytes);
    if (c->program)
        vb_program_executed(pu, qp, counter, ctrl->opcode);
    return charge_of(qp, end.bytes);
}

// In SQD nothing is begun; and what was begun is done.
static bool drain(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (!qp->drained)
        vb_pu_event(pu, VB_EVENT_SQ_DRAINED, qp->qpn);
    qp->drained = true;
    return false;
}

// Completes what is due, and fetches. False: there is nothing to execute, or the turn has fetched
// enough, and gives up what is left of it.
ALWAYS_INLINE bool prepare(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cross *c, uint32_t left,
                           uint32_t *steps)
{
    struct vb_snapshot *snap = &c->snap;

    if (__builtin_expect(snap->due, 0)) {
        vb_loop_complete(pu, qp);
        ++*steps;
        if (qp->state != VB_QPS_RTS)
            return false;
    }
    if (snap->ahead <= qp->fetch_depth / 2 && qp->sq.fetched != qp->sq.end) {
        *steps += fetch_all(pu, qp, snap);
        if (__builtin_expect(vb_pu_has_fetched(pu, qp), 0)) {
            vb_pu_give_up(pu, left);
            return false;
        }
    }
    return snap->ahead > 0;
}

// Where entries are checked or limited.
static __attribute__((noinline)) uint32_t run_carefully(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_cross *c = qp->cross;
    uint32_t steps = 0, spent = 0, most = VB_TURN_FRAMES - pu->turn_frames, charge;

    while (spent < most && qp->state == VB_QPS_RTS && prepare(pu, qp, c, most - spent, &steps)) {
        charge = execute_next(pu, qp);
        if (charge == 0)
            break;
        spent += charge;
        steps++;
    }
    pu->turn_frames += spent;
    pu->looped += spent;
    return steps + vb_loop_complete(pu, qp); // it is part of the turn
}

// How many entries may be executed before more must be fetched, or the turn is over. At least one:
// there may be no room for more.
static inline uint32_t run_length(const struct vb_qpc *qp, const struct vb_snapshot *snap,
                                  uint32_t spent)
{
    uint32_t low = qp->sq.fetched != qp->sq.end ? qp->fetch_depth / 2 : 0;
    uint32_t n = snap->ahead > low ? snap->ahead - low : 1, left = VB_TURN_FRAMES - spent;

    return n < left ? n : left;
}

// Executes entries that were fetched, at most so many, until one pauses. Returns how many; *end
// tells of the last one, which is not among them if it failed or must wait.
ALWAYS_INLINE uint32_t run_some(struct vb_pu *pu, struct vb_qpc *qp, struct vb_cross *c,
                                uint32_t most, struct vb_local_end *end, uint32_t *steps)
{
    struct vb_snapshot *const snap = &c->snap;
    uint8_t *const block = snap->block;
    const uint64_t mask = bytes_of(snap->mask);
    uint64_t counter = snap->executed;
    uint32_t left = most;

    do {
        const struct vb_wqe_ctrl *ctrl = (const void *)(block + (bytes_of(counter) & mask));
        uint32_t blocks = 1;
        *end = perform(pu, qp, c, ctrl, false, &blocks);
        if (__builtin_expect(end->syndrome != VB_SYN_OK, 0)) {
            if (end->syndrome != PAUSE)
                break;
            end->syndrome = VB_SYN_OK;
            most -= left - 1;
            left = 1;
        }
        left--;
        counter += blocks;
        if (__builtin_expect(ctrl->fm_ce_se & VB_WQE_CE_ALWAYS, 0)) {
            ++*steps;
            snap->executed = counter; // it is looked at if there is no room
            complete_unseen(pu, qp, snap, ctrl->opcode, end->bytes, counter - blocks);
            if (__builtin_expect(qp->state != VB_QPS_RTS, 0)) {
                *steps += most - left;
                return most - left;
            }
        }
    } while (left > 0);
    snap->executed = counter;
    snap->ahead -= most - left;
    *steps += most - left;
    return most - left;
}

uint32_t vb_loop_run(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_cross *const c = qp->cross;
    struct vb_local_end end = {.syndrome = VB_SYN_OK};
    const uint32_t before = pu->turn_frames;
    uint32_t steps = 0, spent = before;

    if (__builtin_expect(c->careful, 0))
        return run_carefully(pu, qp);
    while (spent < VB_TURN_FRAMES && end.syndrome == VB_SYN_OK && qp->state == VB_QPS_RTS &&
           prepare(pu, qp, c, VB_TURN_FRAMES - spent, &steps)) {
        spent += run_some(pu, qp, c, run_length(qp, &c->snap, spent), &end, &steps);
        spent += end.bytes >> qp->charge_shift;
    }
    if (__builtin_expect(end.syndrome != VB_SYN_OK && end.syndrome != HELD, 0)) {
        fail_entry(pu, qp, (const void *)slot(&c->snap, c->snap.executed), end.syndrome);
        steps++;
        spent++;
    }
    pu->looped += spent - before;
    pu->turn_frames += spent - before;
    return steps;
}

bool vb_loop_step(struct vb_pu *pu, struct vb_qpc *qp)
{
    if (vb_loop_complete(pu, qp))
        return true;
    if (qp->state != VB_QPS_RTS)
        return drain(pu, qp);
    if (fetch_one(pu, qp))
        return true;
    uint32_t charge = qp->cross->snap.ahead > 0 ? execute_next(pu, qp) : 0;
    pu->turn_frames += charge;
    pu->looped += charge;
    return charge > 0;
}
