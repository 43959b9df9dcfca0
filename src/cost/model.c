// SPDX-License-Identifier: Apache-2.0
// Runs a program on the NIC's core and feeds the timing model with its steps.
#include "cost/record.h"

#include "base/least.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)VB_COST_TEXT == (int)VB_IMAGE_TEXT, "errors are handed on");
static_assert((int)VB_COST_NAME == (int)VB_LISTING_TEXT, "names are a listing's");

// ---- life

// The part of accesses that a cache of that size does not answer, if all are equally likely.
static uint64_t miss_ps(uint64_t used, uint64_t kept, uint64_t cost_ps)
{
    return used ? (uint64_t)((double)cost_ps * (double)vb_excess(used, kept) / (double)used) : 0;
}

static void begin_queue(struct vb_cost *c, struct vb_cost_queue *q,
                        const struct vb_image_queue *like)
{
    const struct vb_cost_lane empty = {VB_COST_NOBODY, VB_COST_NOBODY};

    memcpy(q->name, like->name, sizeof q->name);
    q->peer = like->kind == VB_QUEUE_PEER;
    q->managed = like->managed_send;
    q->entries = q->messages = empty;
    vb_cost_open(c, &q->send, like->open, VB_COST_NOBODY);
    vb_cost_open(c, &q->recv, like->recv_open, VB_COST_NOBODY);
    c->waits_for_clients |= like->recv_filled > 0;
}

static bool begin(struct vb_cost *c, const struct vb_image *image)
{
    const struct vb_cost_preset *p = &c->preset;

    c->queues = image->queues;
    c->cqs = image->cqs;
    c->result = VB_COST_NOBODY;
    memcpy(c->name, image->name, sizeof c->name);
    c->queue = calloc(c->queues, sizeof *c->queue);
    c->cq = calloc(c->cqs, sizeof *c->cq);
    if (!c->queue || !c->cq)
        return false;
    for (uint32_t i = 0; i < c->queues; i++)
        begin_queue(c, &c->queue[i], &image->queue[i]);
    c->miss_ps = miss_ps(c->opts.connections, p->qp_cache, p->fetch) +
                 miss_ps(c->opts.registered_bytes / p->page, p->page_cache, p->fetch);
    return true;
}

void vb_cost_free(struct vb_cost *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->queue && i < c->queues; i++) {
        free(c->queue[i].send.list);
        free(c->queue[i].recv.list);
    }
    for (uint32_t i = 0; c->cq && i < c->cqs; i++)
        free(c->cq[i].by);
    for (uint32_t i = 0; i < VB_COST_UNITS; i++)
        vb_calendar_free(&c->unit[i]);
    vb_calendar_free(&c->lane);
    vb_calendar_free(&c->atomics);
    vb_calendar_free(&c->link);
    vb_calendar_free(&c->pcie);
    free(c->queue);
    free(c->cq);
    free(c->charge);
    free(c);
}

// ---- a run

// An entry that another one has changed says as what it was executed.
static void keep_names(struct vb_cost *c, const struct vb_listing *listing)
{
    for (uint32_t i = 0; i < c->charges; i++) {
        const struct vb_charge *n = &c->charge[i];
        struct vb_cost_entry *to = &c->charge[i].times;
        const struct vb_line *line = vb_listing_line(listing, n->queue, n->at);
        const char *now = vb_opcode_name(n->opcode);

        vb_listing_actor_name(listing, (struct vb_actor){true, to->message, n->queue, n->at},
                              to->name);
        to->queue = c->queue[n->queue].name;
        size_t len = strlen(to->name);
        if (!to->message && now && (!line || line->code.opcode != n->opcode))
            snprintf(to->name + len, sizeof to->name - len, " as %s", now);
    }
}

struct vb_cost *vb_cost_watch(struct vb_machine *m, const struct vb_image *image,
                              const struct vb_machine_opts *machine,
                              const struct vb_cost_preset *preset, const struct vb_cost_opts *opts,
                              char *error)
{
    if (machine->start) {
        snprintf(error, VB_COST_TEXT, "counters that do not start at 0 are not priced");
        return NULL;
    }
    struct vb_cost *c = calloc(1, sizeof *c);
    struct vb_watch *w = vb_watch_make(m, image, machine);
    bool room = c && w;

    if (room) {
        c->preset = *preset;
        c->opts = *opts;
        room = begin(c, image);
    }
    if (room) {
        vb_cost_record(c, m, w);
        vb_cost_schedule(c);
        vb_cost_find_path(c);
        keep_names(c, vb_watch_listing(w));
        room = !c->no_memory;
    }
    vb_watch_free(w);
    if (room)
        return c;
    snprintf(error, VB_COST_TEXT, "no memory");
    vb_cost_free(c);
    return NULL;
}

// ---- the public run

static bool put(const struct vb_image *image, struct vb_machine *m, const struct vb_cost_input *in,
                char *error)
{
    int region = vb_image_find_region(image, in->name);

    if (region < 0) {
        snprintf(error, VB_COST_TEXT, "the program has no region '%.64s'", in->name);
        return false;
    }
    uint64_t room = vb_machine_bytes(m, (uint32_t)region);
    if (in->offset > room || in->len > room - in->offset) {
        snprintf(error, VB_COST_TEXT, "bytes behind the end of '%.64s'", in->name);
        return false;
    }
    memcpy(vb_machine_data(m, (uint32_t)region) + in->offset, in->bytes, in->len);
    return true;
}

static bool send(const struct vb_image *image, struct vb_machine *m, const struct vb_cost_input *in,
                 char *error)
{
    int queue = vb_image_find_queue(image, in->name);

    if (queue >= 0 && vb_machine_send(m, (uint32_t)queue, in->bytes, in->len) == 0)
        return true;
    snprintf(error, VB_COST_TEXT, "'%.64s' is no queue whose client can send so much", in->name);
    return false;
}

struct vb_cost *vb_cost_run(const struct vb_image *image, const struct vb_cost_preset *preset,
                            const struct vb_cost_opts *opts, char *error)
{
    const struct vb_machine_opts machine = {.seed = opts->seed, .shared_bytes = opts->shared_bytes};
    struct vb_machine *m = vb_machine_create(image, &machine, error);
    bool ok = m != NULL;
    struct vb_cost *c = NULL;

    for (uint32_t i = 0; ok && i < opts->memories; i++)
        ok = put(image, m, &opts->memory[i], error);
    for (uint32_t i = 0; ok && i < opts->messages; i++)
        ok = send(image, m, &opts->message[i], error);
    if (ok)
        c = vb_cost_watch(m, image, &machine, preset, opts, error);
    vb_machine_destroy(m);
    return c;
}
