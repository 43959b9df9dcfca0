// SPDX-License-Identifier: Apache-2.0
// The reference model and polls. Production takes steps by vb_pu_poll() without records. A listener
// is told of the same steps by the same code, but not of the memory that they touch, and in the
// middle of them. So the steps are judged when the poll is over, in their order:
//
// - a frame that left is the next one of the transmit queue, and all of those have a step;
// - bytes that left must be what the model knew memory to hold then; bytes that came go into the
//   model's memory, and all memory that the poll used must agree with it in the end;
// - completions are judged as ever; what the host polls later must be those;
// - events and states must be what the steps together make of them.
//
// Memory that a poll should not have touched is found at the end of the world.
#include "sim/model.h"

#include <stdlib.h>
#include <string.h>

// Room for one more. False: there is none, which ends the run.
static bool grow(struct vb_unit *u, void **array, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room)
        return true;
    uint32_t more = *room ? 2 * *room : 64;
    void *bigger = realloc(*array, more * size);
    if (!bigger) {
        vb_world_violate(u->node->world, "out of memory");
        return false;
    }
    *array = bigger;
    *room = more;
    return true;
}

static void hear(void *ctx, const struct vb_step *step)
{
    struct vb_unit *u = ctx;
    struct vb_heard *h = &u->heard;

    if (!grow(u, (void **)&h->step, h->count, &h->room, sizeof *h->step))
        return;
    h->step[h->count] = *step;
    h->step[h->count].touches = 0; // the list is not good for long
    h->step[h->count++].touch = NULL;
}

// A poll need not end with a step that finds nothing to do: vb_model_poll_ended() ends its list.
static void hear_and_judge(void *ctx, const struct vb_step *step)
{
    if (step->kind != VB_STEP_NONE)
        hear(ctx, step);
    vb_model_observe(ctx, step);
}

void vb_model_attend(struct vb_unit *u)
{
    switch (u->node->world->scen.drive) {
    case VB_DRIVE_STEPS: vb_pu_observe(u->pu, vb_model_observe, u); break;
    case VB_DRIVE_TURNS: vb_pu_listen(u->pu, hear, u); break;
    case VB_DRIVE_OBSERVED: vb_pu_observe(u->pu, hear_and_judge, u); break;
    case VB_DRIVE_UNHEARD: break;
    }
}

void vb_model_poll_begins(struct vb_unit *u)
{
    u->node->at = u;
    u->step_ns = u->node->world->now_ns;
    u->tx_next = u->tx_begun = vb_pu_txq(u->pu)->count;
    u->used.count = 0;
    if (u->node->world->scen.drive == VB_DRIVE_TURNS)
        u->heard.count = u->heard.taken = 0;
}

static void use(struct vb_unit *u, const struct vb_spans *spans)
{
    if (spans->count &&
        grow(u, (void **)&u->used.spans, u->used.count, &u->used.room, sizeof *u->used.spans))
        u->used.spans[u->used.count++] = *spans;
}

void vb_model_touched_then(struct vb_node *node, const struct vb_forecast *f)
{
    if (f->reads.count && !vb_hostmem_foretold(&node->mem, &f->reads, f->bytes))
        vb_world_violate(node->world, "NIC %u sent other bytes than its memory held", node->index);
    if (f->writes.count)
        vb_hostmem_predict(&node->mem, &f->writes, f->bytes);
    use(node->at, &f->reads);
    use(node->at, &f->writes);
}

// Whoever drains may be done with it in between.
static void note_drained(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->ep_count; i++)
        node->ep[i]->ask.was_drained |= vb_model_is_drained(node->ep[i]);
}

static void judge_steps(struct vb_unit *u, struct vb_heard *from)
{
    struct vb_node *node = u->node;

    if (from->taken == from->count) {
        vb_world_violate(node->world, "NIC %u polls unit %u where its twin does not", node->index,
                         u->index);
        return;
    }
    u->later = true;
    note_drained(node);
    while (from->step[from->taken].kind != VB_STEP_NONE && !node->world->violated) {
        vb_model_observe(u, &from->step[from->taken++]);
        note_drained(node);
    }
    from->taken++;
    if (u->tx_next != vb_pu_txq(u->pu)->count)
        vb_world_violate(node->world, "NIC %u: unit %u sent %u frames, of which %u have a record",
                         node->index, u->index, vb_pu_txq(u->pu)->count, u->tx_next);
    for (uint32_t i = 0; i < u->used.count; i++)
        if (!vb_hostmem_agrees(&node->mem, &u->used.spans[i]))
            vb_world_violate(node->world, "NIC %u: the memory at %u is not what the poll makes it",
                             node->index, u->used.spans[i].span[0].offset);
    for (uint32_t i = 0; i < node->ep_count; i++)
        vb_model_check_state(node->ep[i]);
    vb_model_check_events(node);
    u->later = false;
    for (uint32_t i = 0; i < node->ep_count; i++)
        node->ep[i]->ask.was_drained = false;
}

void vb_model_poll_ended(struct vb_unit *u)
{
    static const struct vb_step end = {.kind = VB_STEP_NONE};
    struct vb_world *w = u->node->world;
    struct vb_heard *from = &u->heard;
    const struct vb_txq *q = vb_pu_txq(u->pu);

    for (uint32_t i = u->tx_begun; i < q->count; i++)
        vb_digest_add(&u->frames, vb_model_frame_digest(q, &q->frame[i]));
    if (w->scen.drive != VB_DRIVE_UNHEARD)
        hear(u, &end);
    if (w->twin)
        from = &w->twin->node[u->node->index].unit[u->index].heard;
    if (!w->violated && w->scen.drive != VB_DRIVE_OBSERVED)
        judge_steps(u, from);
}
