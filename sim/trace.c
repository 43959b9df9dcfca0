// SPDX-License-Identifier: Apache-2.0
// The event log as text.
#include "sim/trace.h"

#include <inttypes.h>
#include <stdarg.h>

const char *vb_trace_opcode(uint8_t opcode)
{
    const char *name = vb_opcode_table[opcode].name;
    return name ? name : "unknown opcode";
}

const char *vb_trace_verdict(uint8_t verdict)
{
    static const char *const names[] = {
        [VB_RX_APPLIED] = "applied",   [VB_RX_DUPLICATE] = "duplicate",
        [VB_RX_AHEAD] = "ahead",       [VB_RX_RNR] = "receiver-not-ready",
        [VB_RX_REFUSED] = "refused",   [VB_RX_STALE] = "stale",
        [VB_RX_GAP] = "gap",           [VB_RX_RETRY] = "retry",
        [VB_RX_FATAL] = "fatal",       [VB_RX_MALFORMED] = "malformed",
        [VB_RX_STRANGER] = "stranger",
    };
    return verdict < sizeof names / sizeof names[0] ? names[verdict] : "?";
}

static void head(const struct vb_node *node)
{
    const struct vb_world *w = node->world;
    fprintf(w->trace, "%8" PRIu64 " %12" PRIu64 " nic%u ", w->events, w->now_ns, node->index);
}

void vb_trace_step(const struct vb_node *node, const struct vb_step *step)
{
    static const char *const kinds[] = {[VB_STEP_FETCH] = "fetch",
                                        [VB_STEP_EXEC] = "exec",
                                        [VB_STEP_COMPLETE] = "complete",
                                        [VB_STEP_TIMER] = "timer",
                                        [VB_STEP_DROP] = "drop"};

    if (!node->world->trace)
        return;
    head(node);
    fprintf(node->world->trace, "%-8s qp %06x op %02x counter %" PRIu64 " bytes %u detail %02x",
            kinds[step->kind], step->qpn, step->opcode, step->counter, step->bytes, step->detail);
    if (step->kind == VB_STEP_COMPLETE)
        fprintf(node->world->trace, " cq %u", step->cqn);
    fputc('\n', node->world->trace);
}

void vb_trace_frame(const struct vb_node *node, const struct vb_step *step,
                    const struct vb_packet *pkt, const char *direction)
{
    FILE *out = node->world->trace;

    if (!out)
        return;
    head(node);
    fprintf(out, "frame %s qp %06x to %06x %-21s psn %8u bytes %5u", direction, step->qpn,
            pkt->dest_qpn, vb_trace_opcode(step->opcode), pkt->psn, pkt->payload_len);
    if (pkt->facts & VB_OP_RETH)
        fprintf(out, " rkey %08x addr %" PRIx64 " len %u", pkt->rkey, pkt->raddr, pkt->dma_len);
    if (pkt->facts & VB_OP_AETH)
        fprintf(out, " syndrome %02x msn %u", pkt->syndrome, pkt->msn);
    if (step->kind == VB_STEP_FRAME_IN)
        fprintf(out, " %s", vb_trace_verdict(step->verdict));
    fputc('\n', out);
}

void vb_trace_note(struct vb_world *w, const char *format, ...)
{
    va_list args;

    if (!w->trace)
        return;
    fprintf(w->trace, "%8" PRIu64 " %12" PRIu64 " ", w->events, w->now_ns);
    va_start(args, format);
    vfprintf(w->trace, format, args);
    va_end(args);
    fputc('\n', w->trace);
}
