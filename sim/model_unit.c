// SPDX-License-Identifier: Apache-2.0
// The reference model's processing units: which frame comes next, and that a frame which came to
// the wrong unit is handed to the right one, once and in order.
#include "sim/model.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROOM = 128 // frames that can wait for a unit while it works through as many others
};

struct vb_mail {
    struct vb_rx_frame frame[2 * ROOM];
    uint8_t bytes[2 * ROOM][VB_FRAME_MAX];
    uint64_t put, taken, next; // ever: handed over, fetched by their unit, judged
    uint64_t from;             // the first of those fetched last
};

struct vb_mail *vb_model_mail_create(void)
{
    return calloc(1, sizeof(struct vb_mail));
}

// What a unit has fetched comes first, then the port's, then what waits.
const struct vb_rx_frame *vb_model_next_frame(struct vb_unit *unit)
{
    static const struct vb_rx_frame none;
    struct vb_mail *m = unit->mail;
    bool fetched = m && m->next < m->taken;

    if (!fetched && !unit->rx_waits && unit->rx_next < unit->rx_count)
        return &unit->rx[unit->rx_next++];
    if (!fetched && m) {
        m->from = m->taken;
        m->taken = m->put;
    }
    if (m && m->next < m->taken)
        return &m->frame[m->next++ % (2 * ROOM)];
    vb_world_violate(unit->node->world, "NIC %u: unit %u judged a frame that nobody sent",
                     unit->node->index, unit->index);
    return &none;
}

bool vb_model_hands_over(struct vb_ep *ep, const struct vb_rx_frame *frame)
{
    struct vb_unit *to = vb_ep_unit(ep), *from = ep->node->at;

    if (to == from)
        return false;
    struct vb_mail *m = to->mail;
    if (m->put - m->taken == ROOM) {
        ep->node->tally.no_mailbox++;
        vb_model_frame_lost(vb_model_frame_taken(ep->node, frame), VB_EXCUSE_TIMEOUT_DROPPED);
        return true;
    }
    uint32_t at = (uint32_t)(m->put++ % (2 * ROOM));
    memcpy(m->bytes[at], frame->data, frame->len);
    m->frame[at] = *frame;
    m->frame[at].data = m->frame[at].head = m->bytes[at];
    from->handed |= 1u << to->index;
    ep->node->tally.handed_over++;
    ep->node->tally.frames_in--; // it comes once more
    ep->node->tally.bytes_in -= frame->len;
    vb_cover(ep->node->world->cover, VB_COVER_UNIT_HANDED);
    if (m->next < m->taken && m->put - m->taken > m->next - m->from)
        vb_cover(ep->node->world->cover, VB_COVER_UNIT_HANDED_READING);
    return true;
}

void vb_model_handed(struct vb_unit *unit, uint32_t handed)
{
    if (handed != unit->handed && !unit->node->world->violated)
        vb_world_violate(unit->node->world,
                         "NIC %u: unit %u says that it handed frames to the units %x, not %x",
                         unit->node->index, unit->index, handed, unit->handed);
    unit->handed = 0;
}
