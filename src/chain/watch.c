// SPDX-License-Identifier: Apache-2.0
// A machine under watch: shadows of its memory, of its gates and of its completion queues.
#include "chain/watch.h"

#include "base/bytes.h"
#include "wire/opcode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    CQES_KEPT = 256,  // power of two
    QUEUES_KNOWN = 8, // those behind them are taken to know nothing
    SNAP_BYTES = VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES,
    CQ_MASK = 0xffffff,
    RECV_FLAG = 1u << 31,
};

// A piece of memory.
struct area {
    uint8_t *at;
    uint64_t len;
    struct vb_spot spot;
    uint8_t *shadow;
    uint32_t *writer; // by byte: pack()
};

// An entry as it was fetched.
struct snap {
    uint64_t counter;
    uint8_t code[SNAP_BYTES];
};

// Bytes of a block that were changed while it was open.
struct dirt {
    uint64_t counter, mask;
    uint32_t writer;
};

struct queue {
    uint64_t end, executed, received, recv_end;
    struct snap *snap; // those not executed yet, oldest first
    uint32_t snaps, snap_room;
    struct dirt *dirt; // by block
    // By queue: entries before it are known to have been executed, since their completions or later
    // ones were waited for; then the same of receives.
    uint64_t known[2 * QUEUES_KNOWN];
    struct vb_actor sending;
};

// A completion: whose, and how far its queue then knew the others to be.
struct cqe {
    uint32_t by;
    uint64_t known[2 * QUEUES_KNOWN];
};

struct cq {
    uint64_t produced;
    struct cqe *cqe; // CQES_KEPT of them
};

struct vb_watch {
    struct vb_machine *m;
    const struct vb_image *image;
    struct vb_listing *listing;
    uint32_t areas;
    struct area *area;
    struct queue *queue;
    struct cq *cq;
    uint64_t start;
    bool no_memory;
};

// ---- actors in 32 bits

static uint32_t pack(struct vb_actor a)
{
    return a.exists ? (a.recv ? RECV_FLAG : 0) | (a.queue + 1) << 16 | a.at : 0;
}

static struct vb_actor unpack(uint32_t word)
{
    uint32_t queue = (word & ~(uint32_t)RECV_FLAG) >> 16;
    return word ? (struct vb_actor){true, word & RECV_FLAG, queue - 1, word & 0xffff}
                : (struct vb_actor){.exists = false};
}

static struct vb_actor sender(const struct vb_watch *w, uint32_t queue, uint64_t counter)
{
    return (struct vb_actor){true, false, queue,
                             (uint32_t)(counter & (w->image->queue[queue].blocks - 1))};
}

static struct vb_actor receiver(const struct vb_watch *w, uint32_t queue, uint64_t counter)
{
    uint32_t recvs = w->image->queue[queue].recvs;
    return (struct vb_actor){true, true, queue, recvs ? (uint32_t)(counter & (recvs - 1)) : 0};
}

// ---- life

static bool add_area(struct vb_watch *w, uint8_t *at, uint64_t len, enum vb_place_kind kind,
                     uint32_t index)
{
    struct area *a = &w->area[w->areas];

    if (len == 0)
        return true;
    *a = (struct area){.at = at,
                       .len = len,
                       .spot = {kind, index, 0},
                       .shadow = malloc(len),
                       .writer = calloc(len, sizeof *a->writer)};
    w->areas++;
    if (!a->shadow || !a->writer)
        return false;
    memcpy(a->shadow, at, len);
    return true;
}

static bool add_areas(struct vb_watch *w)
{
    const struct vb_image *image = w->image;
    bool room = true;

    for (uint32_t i = 0; room && i < image->queues; i++) {
        const struct vb_image_queue *q = &image->queue[i];
        room = add_area(w, vb_machine_send_ring(w->m, i), (uint64_t)q->blocks * VB_WQEBB_BYTES,
                        VB_IN_SEND, i) &&
               add_area(w, vb_machine_recv_ring(w->m, i), (uint64_t)q->recvs * q->recv_stride,
                        VB_IN_RECV, i);
    }
    for (uint32_t i = 0; room && i < image->regions; i++)
        room = add_area(w, vb_machine_data(w->m, i), vb_machine_bytes(w->m, i), VB_IN_DATA, i);
    return room;
}

struct vb_watch *vb_watch_make(struct vb_machine *m, const struct vb_image *image,
                               const struct vb_machine_opts *opts)
{
    struct vb_watch *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->m = m;
    w->image = image;
    w->start = opts->start;
    w->listing = vb_listing_make(image);
    w->area = calloc(2 * (size_t)image->queues + image->regions, sizeof *w->area);
    w->queue = calloc(image->queues, sizeof *w->queue);
    w->cq = calloc(image->cqs, sizeof *w->cq);
    bool room = w->listing && w->area && w->queue && w->cq && add_areas(w);
    for (uint32_t i = 0; room && i < image->queues; i++) {
        w->queue[i].executed = w->queue[i].received = opts->start;
        w->queue[i].end = opts->start + image->queue[i].open;
        w->queue[i].recv_end = opts->start + image->queue[i].recv_open;
        w->queue[i].dirt = calloc(image->queue[i].blocks, sizeof *w->queue[i].dirt);
        room = w->queue[i].dirt != NULL;
    }
    for (uint32_t i = 0; room && i < image->cqs; i++) {
        w->cq[i].produced = opts->start;
        w->cq[i].cqe = calloc(CQES_KEPT, sizeof *w->cq[i].cqe);
        room = w->cq[i].cqe != NULL;
    }
    if (room)
        return w;
    vb_watch_free(w);
    return NULL;
}

void vb_watch_free(struct vb_watch *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->areas; i++) {
        free(w->area[i].shadow);
        free(w->area[i].writer);
    }
    for (uint32_t i = 0; w->queue && i < w->image->queues; i++) {
        free(w->queue[i].snap);
        free(w->queue[i].dirt);
    }
    for (uint32_t i = 0; w->cq && i < w->image->cqs; i++)
        free(w->cq[i].cqe);
    vb_listing_free(w->listing);
    free(w->area);
    free(w->queue);
    free(w->cq);
    free(w);
}

const struct vb_listing *vb_watch_listing(const struct vb_watch *w)
{
    return w->listing;
}

// ---- memory

static struct area *find_area(struct vb_watch *w, const uint8_t *at)
{
    for (uint32_t i = 0; i < w->areas; i++)
        if (at >= w->area[i].at && at < w->area[i].at + w->area[i].len)
            return &w->area[i];
    return NULL;
}

// A byte of a send ring was changed: it is dirt if its block is open and not executed yet, as far
// as the writer can know.
static void soil(struct vb_watch *w, uint32_t queue, uint64_t offset, struct vb_actor who)
{
    struct queue *q = &w->queue[queue];
    uint32_t mask = w->image->queue[queue].blocks - 1;
    uint32_t block = (uint32_t)(offset / VB_WQEBB_BYTES);
    uint64_t next = q->executed + ((block - q->executed) & mask);
    struct dirt *d = &q->dirt[block];

    if (next >= q->end)
        return;
    if (d->counter != next || d->mask == 0)
        *d = (struct dirt){.counter = next, .writer = pack(who)};
    d->mask |= 1ull << offset % VB_WQEBB_BYTES;
}

// Whether an entry of one queue changes one of another that it cannot know to have been executed.
static bool is_rash(const struct vb_watch *w, uint32_t queue, uint64_t offset, struct vb_actor who)
{
    const struct queue *q = &w->queue[queue];
    uint32_t mask = w->image->queue[queue].blocks - 1;
    uint64_t block = offset / VB_WQEBB_BYTES;
    const struct vb_line *line = vb_listing_line(w->listing, queue, (uint32_t)block);

    if (!who.exists || who.recv || who.queue == queue || queue >= QUEUES_KNOWN || !line)
        return false;
    uint64_t last = q->end - 1 - ((q->end - 1 - block) & mask); // when it was opened last
    const uint8_t *code = vb_machine_send_ring(w->m, queue) + (size_t)line->block * VB_WQEBB_BYTES;
    uint64_t relevant =
        vb_code_relevant(code, (uint32_t)block - line->block, w->image->queue[queue].wqe_checks);
    return q->end > w->start + block && w->queue[who.queue].known[queue] <= last &&
           relevant >> offset % VB_WQEBB_BYTES & 1;
}

static void write_bytes(struct vb_watch *w, struct area *a, uint64_t from, struct vb_actor who,
                        struct vb_watch_touch *t)
{
    for (uint64_t i = from; i < from + t->len; i++) {
        a->writer[i] = pack(who);
        if (a->shadow[i] == a->at[i])
            continue;
        t->changed = true;
        a->shadow[i] = a->at[i];
        if (a->spot.kind != VB_IN_SEND)
            continue;
        soil(w, a->spot.index, i, who);
        if (!t->rash && is_rash(w, a->spot.index, i, who)) {
            t->rash = true;
            t->rash_at = i;
        }
    }
}

// An entry reads memory of the program's own into which a message of an open receive goes: it has
// waited for that, or it may see it or not.
static void expect_data(const struct vb_watch *w, const struct vb_watch_touch *t,
                        struct vb_watch_event *e)
{
    VB_FOR_PARTS (part, w->listing) {
        const struct vb_spot *to = &part->to.to;
        if (!part->to.known || to->kind != VB_IN_DATA || to->index != t->spot.index ||
            part->queue >= QUEUES_KNOWN || to->offset >= t->spot.offset + t->len ||
            t->spot.offset >= to->offset + part->len)
            continue;
        uint32_t mask = w->image->queue[part->queue].recvs - 1;
        uint64_t known = w->queue[e->who.queue].known[QUEUES_KNOWN + part->queue];
        uint64_t from = known > w->start ? known : w->start;
        uint64_t next = from + ((part->entry - from) & mask);
        if (next < w->queue[part->queue].recv_end && !e->awaited.exists)
            e->awaited = receiver(w, part->queue, next);
    }
}

static void note_touches(struct vb_watch *w, const struct vb_step *step, struct vb_actor who,
                         struct vb_watch_event *e)
{
    for (uint32_t i = 0; i < step->touches && e->touches < VB_WATCH_TOUCHES; i++) {
        const struct vb_touch *touch = &step->touch[i];
        struct area *a = find_area(w, touch->addr);
        if (!a)
            continue;
        struct vb_watch_touch *t = &e->touch[e->touches++];
        uint64_t from = (uint64_t)((const uint8_t *)touch->addr - a->at);
        uint32_t len = touch->len < a->len - from ? touch->len : (uint32_t)(a->len - from);
        size_t shown = len < VB_WATCH_BYTES ? len : VB_WATCH_BYTES;
        *t = (struct vb_watch_touch){.spot = a->spot, .len = len, .write = touch->write};
        t->spot.offset = from;
        memcpy(t->before, a->shadow + from, shown);
        memcpy(t->after, a->at + from, shown);
        if (touch->write)
            write_bytes(w, a, from, who, t);
        else if (a->spot.kind == VB_IN_DATA && e->kind == VB_STEP_EXEC && who.exists)
            expect_data(w, t, e);
    }
}

// ---- entries

// Blocks that the NIC looks at.
static uint32_t looked_at(const uint8_t *code)
{
    uint32_t blocks = ((code[7] & VB_WQE_DS_MASK) + 3u) / 4;
    return code[3] == VB_WQE_NOP || blocks == 0 ? 1 : blocks;
}

static struct snap *new_snap(struct vb_watch *w, struct queue *q)
{
    if (q->snaps == q->snap_room) {
        uint32_t room = q->snap_room ? 2 * q->snap_room : 8;
        struct snap *more = realloc(q->snap, room * sizeof *more);
        if (!more) {
            w->no_memory = true;
            return NULL;
        }
        q->snap = more;
        q->snap_room = room;
    }
    return &q->snap[q->snaps++];
}

static const struct snap *fetched(struct vb_watch *w, uint32_t queue, uint64_t counter)
{
    const uint8_t *ring = vb_machine_send_ring(w->m, queue);
    uint32_t mask = w->image->queue[queue].blocks - 1;
    struct snap *s = new_snap(w, &w->queue[queue]);

    if (!s)
        return NULL;
    s->counter = counter;
    memcpy(s->code, ring + (counter & mask) * VB_WQEBB_BYTES, VB_WQEBB_BYTES);
    for (uint32_t i = 1; i < looked_at(s->code); i++)
        memcpy(s->code + i * VB_WQEBB_BYTES, ring + ((counter + i) & mask) * VB_WQEBB_BYTES,
               VB_WQEBB_BYTES);
    return s;
}

static void find_dirt(struct vb_watch *w, const struct snap *s, struct vb_watch_event *e)
{
    const struct vb_image_queue *like = &w->image->queue[e->who.queue];
    struct queue *q = &w->queue[e->who.queue];

    for (uint32_t i = 0; i < looked_at(s->code); i++) {
        struct dirt *d = &q->dirt[(s->counter + i) & (like->blocks - 1)];
        uint64_t mask = d->counter == s->counter + i
                            ? d->mask & vb_code_relevant(s->code, i, like->wqe_checks)
                            : 0;
        d->mask = 0;
        if (mask == 0 || e->changed_by.exists)
            continue;
        e->changed_by = unpack(d->writer);
        e->changed_at = i * VB_WQEBB_BYTES + (uint32_t)__builtin_ctzll(mask);
    }
}

// An entry is opened that a message is scattered into: whoever opens it has waited for that.
static void expect_message(struct vb_watch *w, uint32_t queue, uint64_t counter,
                           struct vb_watch_event *e)
{
    uint32_t blocks = w->image->queue[queue].blocks;
    uint64_t round = (counter - w->start) / blocks;

    VB_FOR_PARTS (part, w->listing) {
        if (e->unasked.exists || !part->to.known || part->to.to.kind != VB_IN_SEND ||
            part->to.to.index != queue || part->queue >= QUEUES_KNOWN ||
            part->to.to.offset / VB_WQEBB_BYTES != (counter & (blocks - 1)))
            continue;
        uint64_t message = w->start + part->entry + round * w->image->queue[part->queue].recvs;
        if (w->queue[e->who.queue].known[QUEUES_KNOWN + part->queue] > message)
            continue;
        e->unasked = sender(w, queue, counter);
        e->message = receiver(w, part->queue, message);
    }
}

static void open_gate(struct vb_watch *w, const uint8_t *code, struct vb_watch_event *e)
{
    int target = vb_machine_queue(w->m, vb_get_be32(code + 28));

    if (target < 0 || !w->image->queue[target].managed_send)
        return;
    int16_t ahead = (int16_t)(vb_get_be32(code + 24) - (uint16_t)w->queue[target].end);
    for (; ahead > 0; ahead--)
        expect_message(w, (uint32_t)target, w->queue[target].end++, e);
}

// Whether the entry has had its turn in the given round of its queue.
static bool has_run(const struct vb_watch *w, uint32_t queue, uint32_t block, uint64_t round)
{
    return w->queue[queue].executed > w->start + round * w->image->queue[queue].blocks + block;
}

// A receive is opened once more: what its last message went into must have run.
static void reopen(struct vb_watch *w, uint32_t queue, uint64_t counter, struct vb_watch_event *e)
{
    uint32_t recvs = w->image->queue[queue].recvs;
    uint64_t round = (counter - w->start) / recvs;

    VB_FOR_PARTS (part, w->listing) {
        uint32_t block = (uint32_t)(part->to.to.offset / VB_WQEBB_BYTES);
        if (round == 0 || part->queue != queue || part->entry != (counter & (recvs - 1)) ||
            !part->to.known || part->to.to.kind != VB_IN_SEND ||
            has_run(w, part->to.to.index, block, round - 1))
            continue;
        e->too_early = (struct vb_actor){true, false, part->to.to.index, block};
        return;
    }
}

static void open_recv_gate(struct vb_watch *w, const uint8_t *code, struct vb_watch_event *e)
{
    int target = vb_machine_queue(w->m, vb_get_be32(code + 28));

    if (target < 0 || !w->image->queue[target].managed_recv || !w->image->queue[target].recvs)
        return;
    struct queue *q = &w->queue[target];
    int16_t ahead = (int16_t)(vb_get_be32(code + 24) - (uint16_t)q->recv_end);
    for (; ahead > 0; ahead--)
        reopen(w, (uint32_t)target, q->recv_end++, e);
}

static void end_wait(struct vb_watch *w, const uint8_t *code, struct vb_watch_event *e)
{
    int i = vb_machine_cq(w->m, vb_get_be32(code + 28));
    if (i < 0)
        return;
    const struct cq *cq = &w->cq[i];
    uint64_t behind = (cq->produced - vb_get_be32(code + 24)) & CQ_MASK;
    e->cq = (uint32_t)i;
    e->number = cq->produced - behind;
    if (behind == 0 || behind > CQES_KEPT)
        return;
    const struct cqe *cqe = &cq->cqe[e->number % CQES_KEPT];
    uint64_t *known = w->queue[e->who.queue].known;
    e->other = unpack(cqe->by);
    for (uint32_t q = 0; q < 2 * QUEUES_KNOWN; q++)
        known[q] = cqe->known[q] > known[q] ? cqe->known[q] : known[q];
}

static void executed(struct vb_watch *w, struct vb_watch_event *e)
{
    static const uint8_t nothing[SNAP_BYTES];
    struct queue *q = &w->queue[e->who.queue];
    uint32_t i = 0;

    e->code = nothing;
    while (i < q->snaps && q->snap[i].counter != e->counter) // those before it were skipped
        i++;
    if (i == q->snaps) // it is sent once more
        return;
    struct snap s = q->snap[i];
    q->snaps -= i + 1;
    memmove(q->snap, q->snap + i + 1, q->snaps * sizeof *q->snap);
    q->snap[q->snaps] = s; // the event's copy lives until the next one
    e->code = q->snap[q->snaps].code;
    find_dirt(w, &s, e);
    q->executed = s.counter + ((s.code[7] & VB_WQE_DS_MASK) + 3u) / 4;
    q->sending = e->who;
    if (s.code[3] == VB_WQE_SEND_EN)
        open_gate(w, s.code, e);
    if (s.code[3] == VB_WQE_RECV_EN)
        open_recv_gate(w, s.code, e);
    if (s.code[3] == VB_WQE_WAIT)
        end_wait(w, s.code, e);
}

// ---- completions

bool vb_watch_is_idle(const struct vb_watch *w, uint32_t queue)
{
    return w->queue[queue].snaps == 0;
}

bool vb_watch_waiting(const struct vb_watch *w, uint32_t queue, struct vb_actor *who, uint32_t *cq,
                      uint64_t *missing)
{
    const struct queue *q = &w->queue[queue];

    if (q->snaps == 0 || q->snap[0].code[3] != VB_WQE_WAIT)
        return false;
    int i = vb_machine_cq(w->m, vb_get_be32(q->snap[0].code + 28));
    if (i < 0)
        return false;
    *who = sender(w, queue, q->snap[0].counter);
    *cq = (uint32_t)i;
    *missing = w->cq[i].produced +
               ((vb_get_be32(q->snap[0].code + 24) - (uint32_t)w->cq[i].produced) & CQ_MASK);
    return true;
}

static void completed(struct vb_watch *w, uint32_t cqn, struct vb_watch_event *e)
{
    int i = vb_machine_cq(w->m, cqn);
    assert(i >= 0);
    struct cq *cq = &w->cq[i];
    e->cq = (uint32_t)i;
    e->number = cq->produced;
    for (uint32_t q = 0; q < w->image->queues; q++) {
        struct vb_actor who;
        uint32_t on;
        uint64_t missing;
        if (vb_watch_waiting(w, q, &who, &on, &missing) && on == (uint32_t)i &&
            missing == cq->produced)
            e->other = who;
    }
    struct cqe *cqe = &cq->cqe[cq->produced++ % CQES_KEPT];
    memset(cqe, 0, sizeof *cqe);
    cqe->by = pack(e->who);
    if (!e->who.recv) // a client knows nothing of queues
        memcpy(cqe->known, w->queue[e->who.queue].known, sizeof cqe->known);
    if (e->who.queue < QUEUES_KNOWN)
        cqe->known[e->who.queue + (e->who.recv ? QUEUES_KNOWN : 0)] = e->counter + 1;
}

// ---- steps

// Whether the packet brings what a receive is for.
static bool is_message(uint8_t opcode)
{
    return vb_opcode_table[opcode].facts & VB_OP_SEND;
}

static void watch_server(struct vb_watch *w, const struct vb_step *step, struct vb_watch_event *e)
{
    int found = vb_machine_queue(w->m, step->qpn);
    uint32_t queue = (uint32_t)found;

    if (found < 0)
        return;
    e->who = sender(w, queue, e->counter);
    switch (step->kind) {
    case VB_STEP_FETCH: {
        const struct snap *s = fetched(w, queue, e->counter);
        e->code = s ? s->code : NULL;
        break;
    }
    case VB_STEP_EXEC: executed(w, e); break;
    case VB_STEP_COMPLETE:
        if (step->opcode != VB_CQE_REQ && step->opcode != VB_CQE_REQ_ERR) {
            e->who = receiver(w, queue, e->counter);
            w->queue[queue].received = e->counter + 1;
        }
        e->syndrome = step->detail;
        completed(w, step->cqn, e);
        break;
    case VB_STEP_FRAME_IN:
        e->who = is_message(step->opcode) ? receiver(w, queue, w->queue[queue].received)
                                          : w->queue[queue].sending;
        break;
    default: break;
    }
    note_touches(w, step, e->who, e);
}

// Memory of the client is written by what its queue has sent last.
static void watch_client(struct vb_watch *w, const struct vb_step *step, struct vb_watch_event *e)
{
    struct vb_actor who = {.exists = false};

    for (uint32_t i = 0; i < w->image->queues; i++)
        if (w->image->queue[i].kind == VB_QUEUE_PEER && w->queue[i].sending.exists)
            who = w->queue[i].sending;
    note_touches(w, step, who, e);
    if (e->touches)
        e->who = who;
}

bool vb_watch_step(struct vb_watch *w, struct vb_watch_event *e)
{
    struct vb_step step;
    uint32_t unit;

    if (w->no_memory || !vb_machine_step(w->m, &step, &unit))
        return false;
    e->kind = step.kind;
    e->who = e->changed_by = e->other = e->too_early = e->unasked = e->message = e->awaited =
        (struct vb_actor){.exists = false};
    e->counter = step.counter;
    e->opcode = step.opcode;
    e->syndrome = 0;
    e->bytes = step.bytes;
    e->code = NULL;
    e->cq = e->changed_at = e->touches = 0;
    e->number = 0;
    if (unit == UINT32_MAX)
        watch_client(w, &step, e);
    else
        watch_server(w, &step, e);
    return true;
}

// ---- looking

bool vb_watch_lacks_memory(const struct vb_watch *w)
{
    return w->no_memory;
}

uint64_t vb_watch_produced(const struct vb_watch *w, uint32_t cq)
{
    return w->cq[cq].produced;
}

struct vb_actor vb_watch_standing(const struct vb_watch *w, uint32_t queue)
{
    return sender(w, queue, w->queue[queue].executed);
}

struct vb_actor vb_watch_writer(const struct vb_watch *w, const struct vb_spot *spot)
{
    const struct area *a = w->area;

    for (; a->spot.kind != spot->kind || a->spot.index != spot->index; a++)
        assert(a + 1 < w->area + w->areas);
    assert(spot->offset < a->len);
    return unpack(a->writer[spot->offset]);
}
