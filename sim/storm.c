// SPDX-License-Identifier: Apache-2.0
// Copies of old requests.
#include "sim/storm.h"

#include "sim/model.h"
#include "sim/trace.h"

#include <string.h>

void vb_storm_remember(struct vb_ep *ep, const struct vb_packet *pkt, const uint8_t *bytes,
                       uint32_t len)
{
    struct vb_storm *s = &ep->storm;
    uint32_t at = s->count % VB_STORM_FRAMES;

    if (!(pkt->facts & (VB_OP_READ | VB_OP_ATOMIC | VB_OP_ATOMIC_WRITE | VB_OP_FLUSH)) ||
        !(pkt->facts & VB_OP_REQUEST) || len > VB_STORM_BYTES)
        return;
    memcpy(s->frame[at], bytes, len);
    s->len[at] = (uint8_t)len;
    s->count++;
}

void vb_storm_strike(struct vb_ep *to)
{
    struct vb_ep *from = to->peer;
    const struct vb_storm *s = &from->storm;
    struct vb_world *w = to->node->world;
    uint32_t kept = s->count < VB_STORM_FRAMES ? s->count : VB_STORM_FRAMES;
    struct vb_packet pkt;

    vb_trace_note(w, "nic%u storm    of %u requests for qp %06x", to->node->index, kept, to->qpn);
    for (uint32_t i = s->count - kept; i < s->count; i++) {
        const uint8_t *frame = s->frame[i % VB_STORM_FRAMES];
        uint32_t len = s->len[i % VB_STORM_FRAMES];
        if (vb_packet_decode(frame, len, &pkt) != VB_DECODE_OK)
            continue;
        vb_model_frame_sent(from, &to->node->ip, &pkt, frame, len);
        vb_simnet_inject(w->net, &from->node->ip, &to->node->ip, from->link.src_port, frame, len);
        vb_cover(w->cover, VB_COVER_NET_STORM);
    }
    vb_node_wake(to->node);
}
