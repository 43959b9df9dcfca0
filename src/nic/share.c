// SPDX-License-Identifier: Apache-2.0
// Shares: turns by weight, what work costs, and a rate for all queue pairs of one.
#include "nic/share.h"

#include "nic/pace.h"
#include "nic/pu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- rounds

static int64_t part_of(const struct vb_share_part *s)
{
    return (int64_t)VB_SHARE_QUANTUM * s->weight;
}

static void rotate(struct vb_pu *pu)
{
    pu->early_last = vb_fifo_empty(&pu->early) ? NULL : pu->early.head.prev;
}

static void leave_early(struct vb_pu *pu, struct vb_share_part *s)
{
    bool last = pu->early_last == &s->early;

    vb_link_remove(&s->early);
    if (last)
        rotate(pu);
}

// Debt carries over to the next round; unused credit does not.
static void leave(struct vb_pu *pu, struct vb_share_part *s)
{
    vb_link_remove(&s->line);
    if (vb_link_queued(&s->early))
        leave_early(pu, s);
    s->granted = false;
    if (s->credit > 0)
        s->credit = 0;
}

// A share that gets work enters at the end of the line, and has the part of its visit there in
// advance: light work does not wait for a round. The share stays in line even without work, so
// coming and going wins nothing. If it gets work again before the visit, it goes first with the
// rest of that part.
static void enter(struct vb_pu *pu, struct vb_share_part *s)
{
    if (!vb_link_queued(&s->line)) {
        vb_fifo_push(&pu->active, &s->line);
        s->credit += part_of(s);
        s->granted = true;
    }
    if (s->granted && s->credit > 0 && !vb_link_queued(&s->early))
        vb_fifo_push(&pu->early, &s->early);
    rotate(pu);
}

// To the end of the line, without a part until its turn comes round.
static void wait_for_the_next(struct vb_pu *pu, struct vb_share_part *s)
{
    vb_link_remove(&s->line);
    vb_fifo_push(&pu->active, &s->line);
    s->granted = false;
}

void vb_share_kick(struct vb_pu *pu, struct vb_qpc *qp)
{
    bool comes = vb_fifo_empty(qp->share->run);

    vb_fifo_push(qp->share->run, &qp->run);
    if (comes)
        enter(pu, qp->share);
}

// Share 0 is not told of its kicks: whether it has come is seen between turns.
static void look_at_rest(struct vb_pu *pu)
{
    bool works = !vb_fifo_empty(&pu->run);

    if (works && !pu->rest_works)
        enter(pu, &pu->rest);
    pu->rest_works = works;
}

void vb_share_bill_later(struct vb_pu *pu, struct vb_qpc *qp)
{
    vb_pu_kick(pu, qp);
}

static bool is_alone(const struct vb_pu *pu)
{
    return pu->active.head.next == pu->active.head.prev;
}

// A share gets the part of its weight at each visit of the line. A share that is alone in the line
// gets the next part at once.
static bool may_go_on(const struct vb_pu *pu, struct vb_share_part *s)
{
    if (!s->granted)
        s->credit += part_of(s);
    s->granted = true;
    if (s->credit <= 0 && is_alone(pu))
        s->credit = part_of(s);
    return s->credit > 0;
}

// Whether no share but the one whose turn it is has had work for a while.
static bool is_quiet(const struct vb_pu *pu)
{
    return is_alone(pu) && (pu->shares < 2 || pu->solo_ns + VB_SHARE_QUIET_NS <= pu->now_ns);
}

// Packets or entries of a turn: as many as its units pay for, if all are packets of the path MTU
// in as many pieces as there can be. An entry of a loop takes as long as one of 4 KB.
static uint32_t turn_length(const struct vb_pu *pu, const struct vb_qpc *qp, bool early)
{
    uint32_t units = early && !is_alone(pu) ? VB_SHARE_EARLY_UNITS : VB_SHARE_LINE_UNITS;
    uint32_t bytes = qp->loops ? VB_MTU_MAX : qp->mtu;
    uint32_t frame =
        VB_SHARE_FRAME + (bytes >> VB_SHARE_BYTES_SHIFT) + VB_SHARE_PIECE * (VB_MAX_SGE - 1);

    if (is_quiet(pu))
        return VB_TURN_FRAMES;
    return units > frame ? units / frame : 1;
}

static struct vb_qpc *begin_turn(struct vb_pu *pu, struct vb_share_part *s, bool early)
{
    struct vb_qpc *qp = VB_CONTAINER_OF(vb_fifo_first(s->run), struct vb_qpc, run);

    if (pu->solo != s || !is_alone(pu)) {
        pu->solo = s;
        pu->solo_ns = pu->now_ns;
    }
    pu->turn_of = qp;
    pu->turn_early = early;
    pu->turn_frames = pu->turn_start = VB_TURN_FRAMES - turn_length(pu, qp, early);
    return qp;
}

// The next share that goes before the line, one turn each. NULL: there is none, or each has had
// one.
static struct vb_share_part *first_early(struct vb_pu *pu)
{
    while (pu->early_last) {
        struct vb_share_part *s =
            VB_CONTAINER_OF(vb_fifo_first(&pu->early), struct vb_share_part, early);
        if (!vb_fifo_empty(s->run) && s->credit > 0)
            return s;
        bool last = pu->early_last == &s->early;
        vb_link_remove(&s->early);
        if (last)
            pu->early_last = NULL;
    }
    return NULL;
}

static struct vb_qpc *begin_early(struct vb_pu *pu, struct vb_share_part *s)
{
    if (pu->early_last == &s->early)
        pu->early_last = NULL;
    vb_link_remove(&s->early);
    vb_fifo_push(&pu->early, &s->early);
    pu->early_turns += pu->taken >= VB_SHARE_SLICE_UNITS;
    return begin_turn(pu, s, true);
}

bool vb_share_hurries(struct vb_pu *pu)
{
    look_at_rest(pu);
    return pu->early_turns <= pu->shares && first_early(pu);
}

void vb_share_begin_slice(struct vb_pu *pu)
{
    rotate(pu);
    pu->taken = pu->early_turns = 0;
}

struct vb_qpc *vb_share_next(struct vb_pu *pu)
{
    struct vb_share_part *s;
    struct vb_link *link;

    if (pu->turn_of)
        return pu->turn_of;
    if (vb_pu_events_wait(pu)) {
        pu->looped = VB_POLL_LOOPED; // there is more
        return NULL;
    }
    look_at_rest(pu);
    if ((s = first_early(pu)))
        return begin_early(pu, s);
    while ((link = vb_fifo_first(&pu->active))) {
        s = VB_CONTAINER_OF(link, struct vb_share_part, line);
        bool has_work = !vb_fifo_empty(s->run);
        if (has_work && may_go_on(pu, s))
            return begin_turn(pu, s, false);
        if (has_work)
            wait_for_the_next(pu, s);
        else
            leave(pu, s);
    }
    return NULL;
}

// ---- what work costs

// What is counted by eights and more is billed in whole units; the rest is for the next bill.
static uint64_t take_whole(uint64_t total, uint64_t *billed, uint32_t shift)
{
    uint64_t units = (total - *billed) >> shift;

    *billed += units << shift;
    return units;
}

// Of the turn's packets and entries all that were no packets are entries; what came in since the
// last bill is the queue pair's, too.
static uint32_t bill(const struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_share_bill *b = &qp->bill;
    const struct vb_qp_counters *c = &qp->count;
    uint64_t sent = take_whole(c->sent_pkts, &b->frames_out, 0);
    uint64_t received = take_whole(c->rcvd_pkts, &b->frames_in, 0);
    uint64_t turn = pu->turn_frames - pu->turn_start;

    if (b->fetched > qp->sq.fetched)
        b->fetched = qp->sq.fetched; // what a loop that failed had fetched ahead is flushed
    uint64_t units = VB_SHARE_TURN + VB_SHARE_FRAME * (sent + received) +
                     take_whole(c->sent_bytes + c->rcvd_bytes, &b->bytes, VB_SHARE_BYTES_SHIFT) +
                     b->pieces + (turn > sent ? turn - sent : 0) +
                     take_whole(qp->sq.fetched, &b->fetched, VB_SHARE_FETCH_SHIFT);
    b->pieces = 0;
    return units < VB_SHARE_BILL_MAX ? (uint32_t)units : VB_SHARE_BILL_MAX;
}

// Work of lists is nothing that counters know, and most packets have none.
void vb_share_pieces(struct vb_pu *pu, uint32_t qpn, uint32_t more, uint32_t copies)
{
    struct vb_qpc *qp = pu->shares ? vb_dev_qp(pu->dev, qpn) : NULL;

    if (qp && qp->bill.pieces < VB_SHARE_BILL_MAX)
        qp->bill.pieces += VB_SHARE_PIECE * more + VB_SHARE_COPY * copies;
}

// Half of the poll's budget: it has some for turns, too.
void vb_share_took(struct vb_pu *pu, uint32_t units)
{
    pu->taken += units;
    if (!is_quiet(pu))
        pu->looped += units * (VB_POLL_LOOPED / VB_SHARE_POLL_UNITS) / 2;
}

void vb_share_turn_ended(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_share_part *s = qp->share ? qp->share : &pu->rest;
    uint32_t units = bill(pu, qp);

    s->credit -= (int64_t)units * VB_SHARE_WEIGHT;
    s->spent += units;
    s->turns++;
    if (!is_quiet(pu)) // bells and frames of others are looked at between polls
        pu->looped += units * (VB_POLL_LOOPED / VB_SHARE_POLL_UNITS);
    if (!pu->turn_early)
        rotate(pu);
    pu->turn_of = NULL;
}

// ---- rates

// What is free or promised stays the same bytes at another rate: free_ns and dates move.
static uint64_t moved(uint64_t at_ns, uint64_t now_ns, const struct vb_share_rate *old,
                      const struct vb_share_rate *r)
{
    bool ahead = at_ns > now_ns;
    uint64_t span_ns = ahead ? at_ns - now_ns : now_ns - at_ns;

    if (!at_ns || !old->piece_ns || !r->piece_ns ||
        (old->piece_ns == r->piece_ns && old->piece_bytes == r->piece_bytes))
        return at_ns;
    if (!ahead && span_ns > old->burst_ns)
        span_ns = old->burst_ns;
    unsigned __int128 other_ns = (unsigned __int128)span_ns * old->piece_bytes * r->piece_ns /
                                 ((unsigned __int128)old->piece_ns * r->piece_bytes);
    if (ahead)
        return now_ns + (uint64_t)other_ns + 1;
    return other_ns < now_ns ? now_ns - (uint64_t)other_ns : 0;
}

// `now_ns`: when it changes.
static void set_rate(struct vb_share_rate *r, uint64_t now_ns, uint64_t rate_Bps,
                     uint32_t burst_bytes)
{
    const struct vb_share_rate old = *r;
    uint64_t burst = burst_bytes ? burst_bytes : VB_PACE_BURST_BYTES;
    uint64_t piece = burst / VB_PACE_RESUME_PART ? burst / VB_PACE_RESUME_PART : 1;

    r->piece_bytes = (uint32_t)piece;
    r->piece_ns = rate_Bps ? piece * 1000000000u / rate_Bps + 1 : 0;
    r->burst_ns = rate_Bps ? burst * 1000000000u / rate_Bps : 0;
    r->free_ns = rate_Bps ? moved(r->free_ns, now_ns, &old, r) : 0;
}

// The date of the next piece.
static uint64_t next_ns(const struct vb_share_rate *r, uint64_t now_ns)
{
    uint64_t oldest_ns = now_ns > r->burst_ns ? now_ns - r->burst_ns : 0;
    return r->free_ns > oldest_ns ? r->free_ns : oldest_ns;
}

// Pieces that were not used for as long as a burst takes are lost, as tokens of a full bucket are.
uint64_t vb_share_holds(struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;
    struct vb_share_rate *r = qp->share ? &qp->share->rate : NULL;
    uint64_t now = pu->now_ns;

    if (!r || !r->piece_ns)
        return 0;
    if (c->granted > 0 && c->granted_ns + r->burst_ns < now)
        c->granted = 0;
    while (c->granted <= 0) {
        c->granted_ns = next_ns(r, now);
        r->free_ns = c->granted_ns + r->piece_ns;
        c->granted += r->piece_bytes;
    }
    return c->granted_ns > now ? c->granted_ns : 0;
}

bool vb_share_charge(struct vb_pu *pu, struct vb_qpc *qp, uint32_t bytes)
{
    struct vb_congestion *c = qp->congestion;

    if (!qp->share || !qp->share->rate.piece_ns)
        return false;
    c->granted -= bytes;
    return c->granted <= 0 && qp->share->rate.free_ns > pu->now_ns;
}

// A piece that is given back may have paid for packets that were sent before: that is owed again.
void vb_share_let_go(const struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;
    struct vb_share_rate *r = qp->share ? &qp->share->rate : NULL;

    if (c->granted <= 0)
        return;
    if (r && r->free_ns > r->piece_ns && c->granted_ns > pu->now_ns) {
        r->free_ns -= r->piece_ns;
        c->granted -= r->piece_bytes;
    } else {
        c->granted = 0;
    }
}

// A queue pair that goes leaves what it owes to the others.
static void leave_debt(const struct vb_pu *pu, struct vb_qpc *qp)
{
    struct vb_congestion *c = qp->congestion;
    struct vb_share_rate *r = &qp->share->rate;

    if (!c || !r->piece_ns)
        return;
    vb_share_let_go(pu, qp);
    if (c->granted < 0)
        r->free_ns =
            next_ns(r, pu->now_ns) + (uint64_t)-c->granted * r->piece_ns / r->piece_bytes + 1;
    c->granted = 0;
}

// ---- life

struct vb_share *vb_share_find(const struct vb_dev *dev, uint32_t number)
{
    return number && number <= dev->share_room ? dev->shares[number - 1] : NULL;
}

static bool is_legal(const struct vb_share_attr *attr)
{
    return attr->weight <= VB_SHARE_WEIGHT_MAX && attr->rate_Bps <= VB_SHARE_RATE_MAX;
}

// The latest time that a unit has seen.
static uint64_t latest_ns(const struct vb_dev *dev)
{
    uint64_t ns = 0;

    for (uint32_t i = 0; i < dev->pu_count; i++)
        ns = dev->pu[i]->now_ns > ns ? dev->pu[i]->now_ns : ns;
    return ns;
}

// Pieces that queue pairs wait for come later at a lower rate, and sooner at a higher one. Without
// the latter, a rate that is lowered and raised again and again would only make waits longer.
static void move_pieces(const struct vb_dev *dev, uint32_t unit, const struct vb_share_part *s,
                        uint64_t now_ns, const struct vb_share_rate *old)
{
    // The unit's own ones; all units together look at each once.
    for (uint32_t i = unit, left = dev->pu[unit]->qp_count; left > 0; i += dev->pu_count) {
        const struct vb_qpc *qp = dev->qps[i];
        if (!qp)
            continue;
        left--;
        struct vb_congestion *c = qp->share == s ? qp->congestion : NULL;
        if (!c || c->granted <= 0 || c->granted_ns <= now_ns)
            continue;
        bool waits = c->resume.deadline_ns == c->granted_ns;
        c->granted_ns = moved(c->granted_ns, now_ns, old, &s->rate);
        if (waits)
            vb_timer_arm(&qp->pu->timers, &c->resume, c->granted_ns);
    }
}

// A rate is for all units together: each that has queue pairs of the share has a part. Time without
// any earns a unit nothing.
static void divide_rate(const struct vb_dev *dev, struct vb_share *share)
{
    const struct vb_share_attr *a = &share->attr;
    uint64_t parts = 0, now_ns = latest_ns(dev);

    for (uint32_t i = 0; i < dev->pu_count; i++)
        parts += share->part[i].users > 0;
    uint64_t part_Bps = a->rate_Bps ? a->rate_Bps / (parts ? parts : 1) + 1 : 0;
    for (uint32_t i = 0; i < dev->pu_count; i++) {
        struct vb_share_part *s = &share->part[i];
        const struct vb_share_rate old = s->rate;
        set_rate(&s->rate, s->users ? now_ns : s->left_ns, part_Bps, a->burst_bytes);
        if (s->users && old.piece_ns && s->rate.piece_ns != old.piece_ns)
            move_pieces(dev, i, s, now_ns, &old);
    }
}

static void apply(const struct vb_dev *dev, struct vb_share *share)
{
    for (uint32_t i = 0; i < dev->pu_count; i++)
        share->part[i].weight = share->attr.weight ? share->attr.weight : VB_SHARE_WEIGHT;
    divide_rate(dev, share);
}

static int find_place(struct vb_dev *dev, uint32_t *place)
{
    uint32_t i = 0;

    while (i < dev->share_room && dev->shares[i])
        i++;
    if (i == VB_SHARES_MAX)
        return -ENOMEM;
    if (i == dev->share_room) {
        uint32_t room = i ? 2 * i : 16;
        struct vb_share **shares = realloc(dev->shares, room * sizeof(struct vb_share *));
        if (!shares)
            return -ENOMEM;
        memset(shares + i, 0, (room - i) * sizeof(struct vb_share *));
        dev->shares = shares;
        dev->share_room = room;
    }
    *place = i;
    return 0;
}

static struct vb_share_bill paid(const struct vb_qpc *qp)
{
    const struct vb_qp_counters *c = &qp->count;

    return (struct vb_share_bill){.frames_out = c->sent_pkts,
                                  .frames_in = c->rcvd_pkts,
                                  .bytes = c->sent_bytes + c->rcvd_bytes,
                                  .fetched = qp->sq.fetched};
}

// What was done while there was no other share is nobody's debt.
static void forget_the_past(struct vb_dev *dev)
{
    for (uint32_t i = 0, left = dev->qp_count; left > 0; i++) {
        if (!dev->qps[i])
            continue;
        left--;
        dev->qps[i]->bill = paid(dev->qps[i]);
    }
}

int vb_dev_share_create(struct vb_dev *dev, const struct vb_share_attr *attr, uint32_t *number)
{
    uint32_t i;

    if (!is_legal(attr))
        return -EINVAL;
    int err = find_place(dev, &i);
    if (err)
        return err;
    struct vb_share *share =
        calloc(1, sizeof *share + dev->pu_count * sizeof(struct vb_share_part));
    if (!share)
        return -ENOMEM;
    share->number = i + 1;
    share->attr = *attr;
    apply(dev, share);
    if (dev->pu[0]->shares == 0)
        forget_the_past(dev);
    for (uint32_t u = 0; u < dev->pu_count; u++) {
        vb_fifo_init(&share->part[u].queue);
        share->part[u].run = &share->part[u].queue;
        share->part[u].of = share;
        dev->pu[u]->shares++;
        vb_pu_choose_poll(dev->pu[u]);
    }
    dev->shares[i] = share;
    *number = share->number;
    return 0;
}

// Those of a unit that has no share but 0 have turns as if there never were another.
static void forget(struct vb_pu *pu, struct vb_share_part *s)
{
    if (vb_link_queued(&s->line))
        leave(pu, s);
    if (pu->solo == s)
        pu->solo = NULL;
    pu->shares--;
    vb_pu_choose_poll(pu);
    if (pu->shares > 0)
        return;
    if (vb_link_queued(&pu->rest.line))
        leave(pu, &pu->rest);
    pu->rest.credit = 0;
    pu->rest_works = false;
    pu->solo = NULL;
    pu->turn_of = NULL;
    pu->turn_start = 0;
    pu->taken = pu->early_turns = 0;
}

int vb_dev_share_destroy(struct vb_dev *dev, uint32_t number)
{
    struct vb_share *share = vb_share_find(dev, number);

    if (!share)
        return -ENOENT;
    if (share->users)
        return -EBUSY;
    for (uint32_t i = 0; i < dev->pu_count; i++)
        forget(dev->pu[i], &share->part[i]);
    dev->shares[number - 1] = NULL;
    free(share);
    return 0;
}

// A queue pair that waits for the old rate asks again.
static int adapt(struct vb_qpc *qp)
{
    int err = vb_congestion_attach(qp->pu, qp);

    if (err || !qp->congestion)
        return err;
    if (qp->congestion->granted > 0)
        qp->congestion->granted = 0;
    if (qp->congestion->resume.deadline_ns != VB_TIMER_NEVER)
        vb_timer_arm(&qp->pu->timers, &qp->congestion->resume, qp->pu->now_ns);
    return 0;
}

int vb_dev_share_change(struct vb_dev *dev, uint32_t number, const struct vb_share_attr *attr)
{
    struct vb_share *share = vb_share_find(dev, number);
    int err = 0;

    if (!share)
        return -ENOENT;
    if (!is_legal(attr))
        return -EINVAL;
    bool other_rate =
        attr->rate_Bps != share->attr.rate_Bps || attr->burst_bytes != share->attr.burst_bytes;
    share->attr = *attr;
    apply(dev, share);
    if (!other_rate)
        return 0;
    for (uint32_t i = 0; i < dev->pu_count; i++) {
        uint64_t latest = dev->pu[i]->now_ns + share->part[i].rate.piece_ns;
        if (share->part[i].rate.free_ns > latest) // promised at a lower rate
            share->part[i].rate.free_ns = latest;
    }
    for (uint32_t i = 0, left = share->users; left > 0 && !err; i++) {
        struct vb_qpc *qp = dev->qps[i];
        if (!qp || !qp->share || qp->share != &share->part[qp->pu->index])
            continue;
        left--;
        err = adapt(qp);
    }
    return err;
}

static void add_facts(const struct vb_share_part *s, struct vb_share_facts *facts)
{
    facts->units += s->spent;
    facts->turns += s->turns;
    facts->waits |= !vb_fifo_empty(s->run);
}

static int begin_facts(const struct vb_share *share, uint32_t number, struct vb_share_facts *facts)
{
    *facts = (struct vb_share_facts){.weight = VB_SHARE_WEIGHT};
    if (share)
        *facts = (struct vb_share_facts){.weight = share->part[0].weight,
                                         .rate_Bps = share->attr.rate_Bps,
                                         .queue_pairs = share->users};
    return number && !share ? -ENOENT : 0;
}

int vb_pu_share(const struct vb_pu *pu, uint32_t number, struct vb_share_facts *facts)
{
    const struct vb_share *share = vb_share_find(pu->dev, number);
    int err = begin_facts(share, number, facts);

    if (!err)
        add_facts(share ? &share->part[pu->index] : &pu->rest, facts);
    return err;
}

int vb_dev_share_query(const struct vb_dev *dev, uint32_t number, struct vb_share_facts *facts)
{
    const struct vb_share *share = vb_share_find(dev, number);
    int err = begin_facts(share, number, facts);

    for (uint32_t i = 0; i < dev->pu_count && !err; i++)
        add_facts(share ? &share->part[i] : &dev->pu[i]->rest, facts);
    return err;
}

void vb_share_join(struct vb_pu *pu, struct vb_qpc *qp, struct vb_share *share)
{
    qp->bill.fetched = qp->sq.start;
    if (!share)
        return;
    share->users++;
    qp->share = &share->part[pu->index];
    if (qp->share->users++ == 0) {
        if (qp->share->rate.free_ns)
            qp->share->rate.free_ns += latest_ns(pu->dev) - qp->share->left_ns;
        divide_rate(pu->dev, share);
    }
    qp->entry_max = VB_SHARE_ENTRY_MAX;
    if (qp->fetch_depth > VB_SHARE_FETCH)
        qp->fetch_depth = VB_SHARE_FETCH;
    qp->charge_shift = VB_SHARE_BYTES_SHIFT; // memory is no cheaper here than in packets
}

void vb_share_quit(struct vb_qpc *qp)
{
    const struct vb_pu *pu = qp->send_cq->pu;
    struct vb_share_part *s = qp->share;

    if (!s)
        return;
    leave_debt(pu, qp);
    s->of->users--;
    if (--s->users > 0)
        return;
    s->left_ns = latest_ns(pu->dev);
    divide_rate(pu->dev, s->of);
}

void vb_share_init_rest(struct vb_pu *pu)
{
    vb_fifo_init(&pu->active);
    vb_fifo_init(&pu->early);
    pu->rest.run = &pu->run;
    pu->rest.weight = VB_SHARE_WEIGHT;
}

void vb_share_fini(struct vb_dev *dev)
{
    for (uint32_t i = 0; i < dev->share_room; i++)
        free(dev->shares[i]);
    free(dev->shares);
}
