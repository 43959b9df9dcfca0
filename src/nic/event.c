// SPDX-License-Identifier: Apache-2.0
// What the host must hear of besides completions: a short queue of events.
#include "nic/pu.h"

void vb_pu_event(struct vb_pu *pu, enum vb_event_kind kind, uint32_t number)
{
    if (pu->event_count == VB_EVENTS) {
        pu->count.lost_events++;
        return;
    }
    uint32_t at = (pu->event_head + pu->event_count++) % VB_EVENTS;
    pu->event[at] = (struct vb_event){kind, number};
}

bool vb_pu_take_event(struct vb_pu *pu, struct vb_event *event)
{
    if (pu->event_count == 0)
        return false;
    *event = pu->event[pu->event_head];
    pu->event_head = (pu->event_head + 1) % VB_EVENTS;
    pu->event_count--;
    return true;
}

bool vb_pu_has_event(const struct vb_pu *pu)
{
    return pu->event_count > 0;
}
