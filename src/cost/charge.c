// SPDX-License-Identifier: Apache-2.0
// What an entry costs: when it can begin, and what its parts take.
#include "cost/model.h"

#include "base/least.h"

enum {
    FREE_BYTES = 64, // of a payload, that the basic times contain
};

// The latest of what an entry has to wait for.
struct start {
    uint64_t at_ps, handed_ps;
    uint32_t cause;
};

static void after(struct start *s, uint64_t at_ps, uint64_t handed_ps, uint32_t cause)
{
    if (at_ps > s->at_ps || (s->cause == VB_COST_NOBODY && at_ps >= s->at_ps))
        *s = (struct start){at_ps, handed_ps, cause};
}

static bool is_read(uint8_t opcode)
{
    return opcode == VB_WQE_READ || opcode == VB_WQE_ATOMIC_CS || opcode == VB_WQE_ATOMIC_FA ||
           opcode == VB_WQE_MASKED_CS || opcode == VB_WQE_MASKED_FA;
}

static bool is_write(uint8_t opcode)
{
    return opcode == VB_WQE_WRITE || opcode == VB_WQE_WRITE_IMM || opcode == VB_WQE_SEND ||
           opcode == VB_WQE_SEND_IMM || opcode == VB_WQE_SEND_INVAL ||
           opcode == VB_WQE_ATOMIC_WRITE;
}

// What bytes behind the first ones add to the way between memory and card, and to the wire's.
static uint64_t size_ps(const struct vb_cost_preset *p, uint64_t bytes)
{
    return vb_cost_bytes_ps(vb_excess(bytes, FREE_BYTES), p->message);
}

static uint64_t packet_ps(const struct vb_cost_preset *p, uint64_t bytes)
{
    return vb_cost_bytes_ps(vb_excess(vb_least(bytes, p->mtu), FREE_BYTES), p->link);
}

// ---- when it can begin

static uint64_t opened_ps(const struct vb_cost *c, const struct vb_charge *n)
{
    if (n->opener == VB_COST_NOBODY)
        return c->waits_for_clients ? 0 : c->preset.doorbell;
    const struct vb_charge *by = &c->charge[n->opener];
    return by->start_ps + (by->opcode == VB_WQE_SEND_EN ? c->preset.enable : by->times.issue_ps);
}

// When the entry has come over PCIe. Everything that was open when it was asked for comes with it,
// up to the size of a batch.
static uint64_t fetched_ps(struct vb_cost *c, const struct vb_charge *n)
{
    const struct vb_cost_preset *p = &c->preset;
    struct vb_cost_queue *q = &c->queue[n->queue];
    uint64_t batch = q->managed ? p->managed_batch : p->fetch_batch;
    bool warm = c->waits_for_clients && n->opener == VB_COST_NOBODY;
    uint64_t from = opened_ps(c, n);

    if (!q->fetched || q->burst_left == 0 || from > q->burst_from_ps) {
        if (q->fetched && q->burst_left == 0) { // it was full: the next one follows it
            uint64_t next = batch == 1 ? c->charge[n->leader].lane_end_ps : q->burst_at_ps;
            from = vb_most(next, from);
        }
        q->fetched = true;
        q->burst_from_ps = from;
        q->burst_at_ps = warm ? from : from + p->fetch;
        q->burst_left = batch ? batch : UINT64_MAX;
    }
    q->burst_left--;
    return q->burst_at_ps;
}

static void after_reads(const struct vb_cost *c, const struct vb_charge *n, struct start *s)
{
    const struct vb_cost_queue *q = &c->queue[n->queue];
    uint64_t depth = c->preset.reads;

    if (n->fence && q->reads)
        after(s, q->reads_done_ps, q->reads_done_ps, q->slowest_read);
    if (is_read(n->opcode) && q->reads >= depth) {
        uint32_t other = q->read[(q->reads - depth) % VB_COST_READS];
        uint64_t done = c->charge[other].times.done_ps;
        after(s, done, done, other);
    }
}

static void prepare_entry(struct vb_cost *c, struct vb_charge *n)
{
    struct start s = {.cause = VB_COST_NOBODY};
    uint64_t opened = opened_ps(c, n), fetched = fetched_ps(c, n);
    uint64_t turn = n->leader == VB_COST_NOBODY ? 0 : c->charge[n->leader].lane_end_ps;

    n->times.at_ps = vb_most(turn, opened);
    n->times.fetch_ps = vb_excess(fetched, n->times.at_ps);
    after(&s, fetched, opened, n->opener);
    if (n->leader != VB_COST_NOBODY)
        after(&s, turn, turn, n->leader);
    after_reads(c, n, &s);
    if (n->producer != VB_COST_NOBODY) {
        uint64_t produced = c->charge[n->producer].complete_ps;
        after(&s, produced, produced, n->producer);
    }
    n->ready_ps = s.at_ps;
    n->cause = s.cause;
    n->handed_ps = s.handed_ps;
}

// Its client's CPU has posted it, and its client's card has fetched it.
static void prepare_message(const struct vb_cost *c, struct vb_charge *n)
{
    const struct vb_cost_preset *p = &c->preset;

    n->times.fetch_ps = p->fetch + (c->opts.managed_client ? p->enable + p->fetch : 0);
    n->ready_ps = p->doorbell + n->times.fetch_ps;
    if (n->leader != VB_COST_NOBODY)
        n->ready_ps = vb_most(n->ready_ps, c->charge[n->leader].lane_end_ps);
}

void vb_cost_prepare(struct vb_cost *c, uint32_t n)
{
    struct vb_charge *charge = &c->charge[n];

    if (charge->times.message)
        prepare_message(c, charge);
    else
        prepare_entry(c, charge);
    charge->ready = true;
}

// ---- what it takes

static uint64_t issue_ps(const struct vb_cost_preset *p, uint8_t opcode)
{
    if (opcode == VB_WQE_WAIT)
        return p->wait;
    if (opcode == VB_WQE_SEND_EN && p->lanes == VB_LANE_PROGRAM)
        return p->enable;
    return p->issue;
}

static uint64_t pcie_ps(const struct vb_cost_preset *p, const struct vb_charge *n, bool peer)
{
    if (is_read(n->opcode))
        return p->read + size_ps(p, n->bytes);
    if (!is_write(n->opcode) || n->bytes == 0)
        return 0;
    return p->write + size_ps(p, n->bytes) + (peer && !n->carries ? p->gather : 0);
}

// Books a resource, and returns when its turn would have begun if it had come in one piece.
static uint64_t book(struct vb_cost *c, struct vb_calendar *resource, uint64_t ready,
                     uint64_t length)
{
    uint64_t end = ready + length;

    c->no_memory |= !vb_calendar_book(resource, ready, length, &end);
    return end - length;
}

// Takes the entry's turn of whatever executes it. Returns when it begins.
static uint64_t take_turn(struct vb_cost *c, struct vb_charge *n, uint64_t ready)
{
    const struct vb_cost_preset *p = &c->preset;
    uint64_t length = vb_least(n->times.issue_ps, p->occupancy);

    c->unit_busy_ps += length + c->miss_ps;
    if (p->lanes == VB_LANE_QUEUE)
        return book(c, &c->unit[n->queue % p->pus], ready, length + c->miss_ps);
    // Nothing overlaps, but for what is on its way to a client.
    length = n->times.issue_ps + (c->queue[n->queue].peer ? c->miss_ps : n->times.pcie_ps);
    return book(c, &c->lane, ready, length + (n->opcode == VB_WQE_SEND_EN ? p->fetch : 0));
}

// A transfer over PCIe or the link. They carry packets of all in turns, so that a short one does
// not wait for a long one.
static uint64_t carry(struct vb_cost *c, struct vb_calendar *way, uint64_t rate, uint64_t ready,
                      uint64_t bytes)
{
    uint64_t begun = book(c, way, ready, vb_cost_bytes_ps(bytes, rate));
    return bytes > c->preset.mtu ? begun : ready;
}

// What several queues share: the atomic unit, PCIe and the link. Returns how much later the entry
// is done for it.
static uint64_t share(struct vb_cost *c, const struct vb_charge *n, uint64_t ready, bool peer)
{
    const struct vb_cost_preset *p = &c->preset;
    uint64_t at = ready;

    if (is_read(n->opcode) && n->opcode != VB_WQE_READ) {
        c->atomic_busy_ps += p->atomic;
        at = book(c, &c->atomics, at, p->atomic);
    }
    if (n->bytes == 0 || !(is_read(n->opcode) || is_write(n->opcode)))
        return at - ready;
    c->pcie_bytes += n->bytes;
    at = carry(c, &c->pcie, p->pcie, at, n->bytes);
    if (peer) {
        c->link_bytes += n->bytes;
        at = carry(c, &c->link, p->link, at, n->bytes);
    }
    return at - ready;
}

// ---- entries

static void note_read(struct vb_cost_queue *q, const struct vb_charge *n, uint32_t me)
{
    if (!is_read(n->opcode))
        return;
    q->read[q->reads++ % VB_COST_READS] = me;
    if (n->times.done_ps >= q->reads_done_ps) {
        q->reads_done_ps = n->times.done_ps;
        q->slowest_read = me;
    }
}

static void note_reply(struct vb_cost *c, const struct vb_charge *n, uint32_t me)
{
    if (c->replies++ == 0 || n->visible_ps < c->first_reply_ps) {
        c->first_reply_ps = n->visible_ps;
        c->result = me;
    }
    c->last_reply_ps = vb_most(c->last_reply_ps, n->visible_ps);
}

static void charge_entry(struct vb_cost *c, struct vb_charge *n, uint32_t me)
{
    const struct vb_cost_preset *p = &c->preset;
    struct vb_cost_queue *q = &c->queue[n->queue];
    bool replies = c->waits_for_clients && q->peer && is_write(n->opcode);
    bool travels = q->peer && (is_read(n->opcode) || is_write(n->opcode));

    n->times.issue_ps = issue_ps(p, n->opcode);
    n->times.pcie_ps = pcie_ps(p, n, q->peer) + c->miss_ps;
    n->times.network_ps = travels ? 2 * p->network + packet_ps(p, n->bytes) : 0;
    n->start_ps = take_turn(c, n, n->ready_ps);
    n->times.wait_ps = n->start_ps - n->times.at_ps - n->times.fetch_ps;
    uint64_t issued = n->start_ps + n->times.issue_ps;
    n->times.pcie_ps += share(c, n, issued, q->peer);
    n->times.done_ps = issued + n->times.pcie_ps + n->times.network_ps;
    n->lane_end_ps = issued + c->miss_ps;
    n->complete_ps = vb_most(n->times.done_ps, q->complete_ps);
    n->visible_ps = n->times.done_ps + p->completion - (replies ? p->network : 0);
    q->complete_ps = n->complete_ps;
    if (n->leader == VB_COST_NOBODY)
        q->first_ps = n->start_ps;
    note_read(q, n, me);
    if (replies)
        note_reply(c, n, me);
}

// ---- messages

// Sent, and completed here. The client posts all of them at once; only the first one finds the card
// cold.
static void charge_message(struct vb_cost *c, struct vb_charge *n)
{
    const struct vb_cost_preset *p = &c->preset;
    struct vb_cost_entry *t = &n->times;

    t->issue_ps = 2 * p->issue; // there and here
    t->pcie_ps = p->doorbell + (c->messages == 0 ? p->cold : 0);
    if (n->bytes)
        t->pcie_ps += p->write + size_ps(p, n->bytes) + p->gather;
    t->network_ps = p->network + packet_ps(p, n->bytes);
    n->start_ps = n->ready_ps;
    n->lane_end_ps = n->start_ps + p->issue;
    t->wait_ps = n->start_ps - p->doorbell - t->fetch_ps;
    t->done_ps = t->fetch_ps + t->wait_ps + t->issue_ps + t->pcie_ps + t->network_ps;
    uint64_t open = n->opener == VB_COST_NOBODY ? 0 : opened_ps(c, n) + p->issue;
    if (open > t->done_ps) { // no receive was there
        t->wait_ps += open - t->done_ps;
        t->done_ps = open;
        n->cause = n->opener;
        n->handed_ps = open - p->issue;
    }
    n->complete_ps = n->visible_ps = t->done_ps;
    c->messages++;
}

void vb_cost_charge(struct vb_cost *c, uint32_t n)
{
    struct vb_charge *charge = &c->charge[n];

    if (charge->times.message)
        charge_message(c, charge);
    else
        charge_entry(c, charge, n);
    charge->done = true;
}
