// SPDX-License-Identifier: Apache-2.0
// The dynamic checker: a program under watch, at several depths of fetching ahead and in several
// orders of who is faster. A correct program notices neither.
#include "chain/check_static.h"
#include "chain/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_DEFAULT = 1000000,
    SEEDS_DEFAULT = 4,
    REPLIES_MAX = 256,
};

// What a run has left behind.
struct outcome {
    struct vb_machine_opts opts;
    bool ended;
    uint8_t *memory; // what the program could write, region after region
    struct vb_actor *writer;
    size_t bytes;
    struct vb_machine_reply *reply;
    uint32_t replies;
    uint64_t *executed; // by queue
    struct vb_actor *standing;
};

struct check {
    const struct vb_image *image;
    const struct vb_check_opts *opts;
    struct vb_findings *out;
    struct vb_listing *listing;
    struct outcome first;
    bool has_first;
    uint64_t *halfway; // by queue: entries executed in the first half of the steps
};

static void free_outcome(struct outcome *o)
{
    free(o->memory);
    free(o->writer);
    free(o->reply);
    free(o->executed);
    free(o->standing);
    *o = (struct outcome){0};
}

// ---- while it runs

static void judge_change(struct check *c, const struct vb_watch_event *e)
{
    char by[VB_LISTING_TEXT], what[VB_LISTING_TEXT];
    const struct vb_spot spot = {VB_IN_SEND, e->who.queue,
                                 (uint64_t)e->who.at * VB_WQEBB_BYTES + e->changed_at};

    vb_listing_actor_name(c->listing, e->changed_by, by);
    vb_listing_place(c->listing, &spot, what);
    vb_findings_add(c->out, c->listing, VB_CHECK_CHANGED_OPEN, false, e->who, e->changed_by,
                    "was changed by %s (%s) while it was open: the NIC may have fetched it "
                    "before. Open it only behind a WAIT for the completion of %s",
                    by, what, by);
}

static void judge_touches(struct check *c, const struct vb_watch_event *e)
{
    for (uint32_t i = 0; i < e->touches; i++) {
        const struct vb_watch_touch *t = &e->touch[i];
        struct vb_spot spot = {VB_IN_SEND, t->spot.index, t->rash_at};
        char place[VB_LISTING_TEXT], name[VB_LISTING_TEXT];
        if (!t->rash)
            continue;
        struct vb_actor victim = vb_line_actor(
            vb_listing_line(c->listing, spot.index, (uint32_t)(t->rash_at / VB_WQEBB_BYTES)));
        vb_listing_place(c->listing, &spot, place);
        vb_listing_actor_name(c->listing, victim, name);
        vb_findings_add(c->out, c->listing, VB_CHECK_CHANGED_EARLY, false, victim, e->who,
                        "was open when its %s was changed, and nothing that was waited for says "
                        "that it had been executed. Wait for a completion of %s, or behind it, "
                        "before the change",
                        place, name);
    }
}

static void judge_receive(struct check *c, const struct vb_watch_event *e)
{
    char name[VB_LISTING_TEXT];

    vb_listing_actor_name(c->listing, e->too_early, name);
    vb_findings_add(c->out, c->listing, VB_CHECK_RECV_EARLY, false, e->who, e->too_early,
                    "opens a receive again whose last message went into %s, which has not run yet: "
                    "the next message may come before. Open it behind that entry",
                    name);
}

static void judge_opening(struct check *c, const struct vb_watch_event *e)
{
    char name[VB_LISTING_TEXT], message[VB_LISTING_TEXT];

    vb_listing_actor_name(c->listing, e->unasked, name);
    vb_listing_actor_name(c->listing, e->message, message);
    vb_findings_add(c->out, c->listing, VB_CHECK_OPEN_EARLY, false, e->who, e->unasked,
                    "opens %s, into which the message of %s goes, without having waited for it. "
                    "Put a WAIT for that receive before it",
                    name, message);
}

static void judge_reading(struct check *c, const struct vb_watch_event *e)
{
    char message[VB_LISTING_TEXT];

    vb_listing_actor_name(c->listing, e->awaited, message);
    vb_findings_add(c->out, c->listing, VB_CHECK_READ_EARLY, false, e->who, e->awaited,
                    "reads memory into which the message of %s goes, without having waited for it. "
                    "Put a WAIT for that receive before it",
                    message);
}

// Of the n-th completion, round after round; nobody if that cannot be said.
static struct vb_actor expected(const struct check *c, uint32_t cq, uint64_t n)
{
    const struct vb_statics s = {.image = c->image, .listing = c->listing};
    uint32_t users = 0, count;

    for (uint32_t i = 0; i < c->image->queues; i++)
        users += c->image->queue[i].send_cq == cq;
    vb_producer(&s, cq, 0, &count);
    if (users != 1 || count == 0 || vb_takes_receives(c->image, cq))
        return vb_nobody();
    return vb_line_actor(vb_producer(&s, cq, (uint32_t)(n % count), &count));
}

static void judge_wait(struct check *c, const struct vb_watch_event *e, uint64_t start)
{
    struct vb_actor want = expected(c, e->cq, e->number - start);
    char got[VB_LISTING_TEXT], name[VB_LISTING_TEXT];

    if (!e->other.exists || !want.exists || want.at == e->other.at)
        return;
    vb_listing_actor_name(c->listing, e->other, got);
    vb_listing_actor_name(c->listing, want, name);
    vb_findings_add(c->out, c->listing, VB_CHECK_WAIT_OTHER, false, e->who, e->other,
                    "went on when %s completed, but its number is that of %s: an entry before it "
                    "completed or did not, depending on the way. Let the same entries complete "
                    "whatever the way",
                    got, name);
}

static const char *syndrome_text(uint8_t syndrome)
{
    switch (syndrome) {
    case VB_SYN_LOCAL_PROT: return "it names local memory that it may not use so";
    case VB_SYN_REMOTE_ACCESS: return "it names remote memory that it may not use so";
    case VB_SYN_REMOTE_INVAL_REQ: return "its address is not aligned";
    case VB_SYN_LOCAL_LENGTH: return "it is too long";
    default: return "it is not an entry that can be executed here";
    }
}

static void judge_fault(struct check *c, const struct vb_watch *w, const struct vb_watch_event *e)
{
    const struct vb_line *line =
        e->who.recv ? NULL : vb_listing_line(c->listing, e->who.queue, e->who.at);
    struct vb_actor writer = vb_nobody();
    char by[VB_LISTING_TEXT];

    for (uint32_t i = 0; line && !writer.exists && i < line->blocks * VB_WQEBB_BYTES; i++)
        writer = vb_watch_writer(w, &(struct vb_spot){VB_IN_SEND, e->who.queue,
                                                      (uint64_t)line->block * VB_WQEBB_BYTES + i});
    vb_listing_actor_name(c->listing, writer, by);
    vb_findings_add(c->out, c->listing, VB_CHECK_FAULT, false, e->who, writer,
                    "was refused (syndrome %u): %s. Its fields were last written by %s; check what "
                    "that puts there",
                    e->syndrome, syndrome_text(e->syndrome), by);
}

static bool watch_run(struct check *c, struct vb_machine *m, struct vb_watch *w,
                      const struct vb_machine_opts *opts, uint64_t steps_max)
{
    struct vb_watch_event e;
    uint64_t steps = 0;

    for (; steps < steps_max && vb_watch_step(w, &e); steps++) {
        for (uint32_t i = 0; steps == steps_max / 2 && i < c->image->queues; i++)
            c->halfway[i] = vb_machine_executed(m, i);
        if (e.kind == VB_STEP_EXEC && e.changed_by.exists)
            judge_change(c, &e);
        judge_touches(c, &e);
        if (e.kind == VB_STEP_EXEC && e.too_early.exists)
            judge_receive(c, &e);
        if (e.kind == VB_STEP_EXEC && e.unasked.exists)
            judge_opening(c, &e);
        if (e.kind == VB_STEP_EXEC && e.awaited.exists)
            judge_reading(c, &e);
        if (e.kind == VB_STEP_EXEC && e.opcode == VB_WQE_WAIT)
            judge_wait(c, &e, opts->start);
        if (e.kind == VB_STEP_COMPLETE && e.syndrome && e.syndrome != VB_SYN_FLUSH)
            judge_fault(c, w, &e);
    }
    return steps < steps_max;
}

// ---- when it has ended

static void judge_rest(struct check *c, struct vb_watch *w, uint32_t queue,
                       const struct vb_machine_opts *opts)
{
    struct vb_actor who;
    uint64_t missing;
    uint32_t cq;
    char name[VB_LISTING_TEXT];

    if (!vb_watch_waiting(w, queue, &who, &cq, &missing) || vb_takes_receives(c->image, cq) ||
        missing - vb_watch_produced(w, cq) >= VB_HALT_AHEAD)
        return;
    struct vb_actor from = expected(c, cq, missing - opts->start);
    vb_listing_actor_name(c->listing, from, name);
    vb_findings_add(c->out, c->listing, VB_CHECK_STUCK_WAIT, false, who, from,
                    "waits for completion %llu of '%s', which did not come: that of %s, by its "
                    "number. Let that entry complete in every case, or lower the index",
                    (unsigned long long)(missing - opts->start), c->image->cq[cq].name, name);
}

static bool opens_itself(const struct check *c, uint32_t queue)
{
    VB_FOR_LINES (line, c->listing) {
        if (line->queue == queue && line->code.opcode == VB_WQE_SEND_EN &&
            line->object == (int)queue)
            return true;
    }
    return false;
}

// A queue that opens itself ends behind its last entry, or stands at a WAIT.
static void judge_stop(struct check *c, struct vb_machine *m, struct vb_watch *w, uint32_t queue)
{
    struct vb_actor at = vb_watch_standing(w, queue);
    const struct vb_image_queue *q = &c->image->queue[queue];
    uint32_t done = at.at == 0 && q->filled == q->blocks ? q->filled : at.at;

    if (vb_machine_fault(m, queue) || !vb_watch_is_idle(w, queue) || done >= q->filled ||
        !opens_itself(c, queue))
        return;
    vb_findings_add(c->out, c->listing, VB_CHECK_STOPPED, false, at, vb_nobody(),
                    "is where the queue stops: nothing has opened it. Open it by a SEND_EN before "
                    "it");
}

static bool is_result(const struct vb_image_region *r)
{
    return r->kind == VB_REGION_PEER || r->writable;
}

static bool take_memory(struct check *c, struct vb_machine *m, struct vb_watch *w,
                        struct outcome *o)
{
    for (uint32_t i = 0; i < c->image->regions; i++)
        if (is_result(&c->image->region[i]))
            o->bytes += vb_machine_bytes(m, i);
    o->memory = malloc(o->bytes);
    o->writer = malloc(o->bytes * sizeof *o->writer);
    if (!o->memory || !o->writer)
        return false;
    size_t at = 0;
    for (uint32_t i = 0; i < c->image->regions; i++) {
        if (!is_result(&c->image->region[i]))
            continue;
        uint64_t bytes = vb_machine_bytes(m, i);
        memcpy(o->memory + at, vb_machine_data(m, i), bytes);
        for (uint64_t b = 0; b < bytes; b++)
            o->writer[at + b] = vb_watch_writer(w, &(struct vb_spot){VB_IN_DATA, i, b});
        at += bytes;
    }
    return true;
}

static bool take_outcome(struct check *c, struct vb_machine *m, struct vb_watch *w,
                         struct outcome *o)
{
    uint32_t queues = c->image->queues;

    o->reply = calloc(REPLIES_MAX, sizeof *o->reply);
    o->executed = calloc(queues, sizeof *o->executed);
    o->standing = calloc(queues, sizeof *o->standing);
    if (!o->reply || !o->executed || !o->standing || !take_memory(c, m, w, o))
        return false;
    for (uint32_t i = 0; i < queues; i++) {
        while (o->replies < REPLIES_MAX && vb_machine_take(m, i, &o->reply[o->replies]))
            o->replies++;
        o->executed[i] = vb_machine_executed(m, i);
        o->standing[i] = vb_watch_standing(w, i);
    }
    return true;
}

// ---- comparing

static void depends(struct check *c, const struct outcome *b, struct vb_actor in_a,
                    struct vb_actor in_b, const char *what)
{
    const struct outcome *a = &c->first;
    char one[VB_LISTING_TEXT], two[VB_LISTING_TEXT];

    vb_listing_actor_name(c->listing, in_a, one);
    vb_listing_actor_name(c->listing, in_b, two);
    vb_findings_add(c->out, c->listing, VB_CHECK_RESULT_DEPENDS, false, in_a.exists ? in_a : in_b,
                    in_a.exists ? in_b : in_a,
                    "%s: fetched %u ahead (seed %llu, units %u) by %s, %u ahead (seed %llu, units "
                    "%u) by %s. Put a WAIT, and for entries a SEND_EN behind it, between the two",
                    what, a->opts.fetch_depth, (unsigned long long)a->opts.seed, a->opts.units, one,
                    b->opts.fetch_depth, (unsigned long long)b->opts.seed, b->opts.units, two);
}

static void compare_memory(struct check *c, const struct outcome *b)
{
    const struct outcome *a = &c->first;
    char what[VB_LISTING_TEXT];
    size_t at = 0;

    for (uint32_t i = 0; i < c->image->regions; i++) {
        const struct vb_image_region *r = &c->image->region[i];
        uint64_t bytes = r->bytes;
        if (!is_result(r))
            continue;
        if (r->kind == VB_REGION_SHARED && c->opts->shared_bytes > bytes)
            bytes = c->opts->shared_bytes;
        for (uint64_t n = 0; n < bytes; n++, at++) {
            if (a->memory[at] == b->memory[at])
                continue;
            snprintf(what, sizeof what, "decides what '%s' holds at %llu", r->name,
                     (unsigned long long)n);
            depends(c, b, a->writer[at], b->writer[at], what);
            return;
        }
    }
}

static bool same_replies(const struct outcome *a, const struct outcome *b)
{
    bool same = a->replies == b->replies;

    for (uint32_t i = 0; same && i < a->replies; i++)
        same = a->reply[i].with_imm == b->reply[i].with_imm && a->reply[i].imm == b->reply[i].imm &&
               a->reply[i].len == b->reply[i].len &&
               memcmp(a->reply[i].bytes, b->reply[i].bytes, sizeof a->reply[i].bytes) == 0;
    return same;
}

static void compare(struct check *c, const struct outcome *b)
{
    const struct outcome *a = &c->first;

    if (memcmp(a->memory, b->memory, a->bytes) != 0) {
        compare_memory(c, b);
        return;
    }
    for (uint32_t i = 0; i < c->image->queues; i++)
        if (a->executed[i] != b->executed[i] || a->ended != b->ended) {
            depends(c, b, a->standing[i], b->standing[i], "is where the queue stands in one run");
            return;
        }
    if (!same_replies(a, b))
        for (uint32_t i = 0; i < c->image->queues; i++)
            if (c->image->queue[i].kind == VB_QUEUE_PEER) {
                depends(c, b, a->standing[i], b->standing[i], "has answered otherwise before it");
                return;
            }
}

// ---- runs

static void prepare(const struct check *c, struct vb_machine *m)
{
    if (c->opts->prepare)
        c->opts->prepare(c->opts->ctx, m);
    for (uint32_t i = 0; i < c->opts->requests; i++)
        vb_machine_send(m, c->opts->request[i].queue, c->opts->request[i].bytes,
                        c->opts->request[i].len);
}

static void judge_run(struct check *c, struct vb_machine *m, struct vb_watch *w,
                      const struct vb_machine_opts *opts)
{
    struct outcome o = {.opts = *opts};

    o.ended = watch_run(c, m, w, opts, c->opts->steps_max ? c->opts->steps_max : STEPS_DEFAULT);
    if (vb_watch_lacks_memory(w)) {
        c->out->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < c->image->queues; i++)
        if (o.ended || vb_machine_executed(m, i) == c->halfway[i]) {
            judge_rest(c, w, i, opts);
            judge_stop(c, m, w, i);
        }
    if (!o.ended) {
        uint32_t busy = 0;
        while (busy < c->image->queues - 1 && vb_machine_executed(m, busy) == c->halfway[busy])
            busy++;
        vb_findings_add(c->out, c->listing, VB_CHECK_NO_END, true, vb_watch_standing(w, busy),
                        vb_nobody(),
                        "is where the program stands after all steps that it was given: give it a "
                        "gate (a WAIT for a request), a break, or a rate");
    }
    if (!take_outcome(c, m, w, &o)) {
        c->out->no_memory = true;
    } else if (!c->has_first) {
        c->first = o;
        c->has_first = true;
        return;
    } else if (o.ended || c->first.ended) {
        compare(c, &o);
    }
    free_outcome(&o);
}

static bool run(struct check *c, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine *m = vb_machine_create(c->image, opts, error);

    if (!m) {
        vb_findings_add(c->out, c->listing, VB_CHECK_NOT_LOADED, false, vb_nobody(), vb_nobody(),
                        "the program cannot be loaded: %s", error);
        return false;
    }
    struct vb_watch *w = NULL;
    prepare(c, m);
    w = vb_watch_make(m, c->image, opts);
    if (w)
        judge_run(c, m, w, opts);
    else
        c->out->no_memory = true;
    vb_watch_free(w);
    vb_machine_destroy(m);
    return w != NULL;
}

static uint32_t longest_ring(const struct vb_image *image)
{
    uint32_t blocks = 1;

    for (uint32_t i = 0; i < image->queues; i++) {
        blocks = image->queue[i].blocks > blocks ? image->queue[i].blocks : blocks;
        blocks = image->queue[i].recvs > blocks ? image->queue[i].recvs : blocks;
    }
    return blocks;
}

void vb_check_dynamic(const struct vb_image *image, const struct vb_check_opts *opts,
                      struct vb_findings *out)
{
    static const uint32_t usual[] = {1, 2, 3, 5, 16, 256};
    struct check c = {.image = image, .opts = opts, .out = out, .listing = vb_listing_make(image)};
    const uint32_t *depth = opts->depth ? opts->depth : usual;
    uint32_t depths = opts->depth ? opts->depths : sizeof usual / sizeof usual[0];
    uint32_t seeds = opts->seeds ? opts->seeds : SEEDS_DEFAULT;
    c.halfway = calloc(image->queues, sizeof *c.halfway);
    bool going = c.listing && c.halfway;

    out->no_memory |= !going;
    for (uint32_t d = 0; d < depths; d++)
        for (uint32_t s = 0; going && s < seeds; s++)
            going = run(&c, &(struct vb_machine_opts){.seed = s + 1,
                                                      .units = 1 + s % 2,
                                                      .fetch_depth = depth[d],
                                                      .shared_bytes = opts->shared_bytes});
    // Once more where counters of 16 and of 24 bits start again.
    free_outcome(&c.first);
    c.has_first = false;
    for (uint32_t d = 0; going && depths > 0 && d < 2; d++)
        going = run(&c, &(struct vb_machine_opts){.seed = d + 1,
                                                  .units = 1 + d,
                                                  .fetch_depth = depth[d ? depths - 1 : 0],
                                                  .start = (1u << 24) - longest_ring(image),
                                                  .shared_bytes = opts->shared_bytes});
    free_outcome(&c.first);
    free(c.halfway);
    vb_listing_free(c.listing);
}
