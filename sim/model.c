// SPDX-License-Identifier: Apache-2.0
// The reference model's front: takes each step apart and hands it to the role that it belongs to.
#include "sim/model.h"

#include "sim/trace.h"

#include <stdarg.h>
#include <string.h>

void vb_model_violate(struct vb_ep *ep, const char *format, ...)
{
    char text[VB_SIM_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    vb_world_violate(ep->node->world, "NIC %u QP 0x%06x: %s", ep->node->index, ep->qpn, text);
}

uint32_t vb_model_packets(const struct vb_ep *ep, uint32_t len)
{
    return len == 0 ? 1 : (uint32_t)(((uint64_t)len + ep->link.mtu - 1) / ep->link.mtu);
}

static struct vb_ep *find_ep(struct vb_node *node, uint32_t qpn)
{
    for (uint32_t i = 0; i < node->ep_count; i++)
        if (node->ep[i]->qpn == qpn)
            return node->ep[i];
    return NULL;
}

// ---- memory

static void judge_touches(struct vb_node *node, const struct vb_step *step,
                          const struct vb_forecast *f)
{
    struct vb_world *w = node->world;
    struct vb_spans reads, writes;

    if (node->at->later) {
        vb_model_touched_then(node, f);
        return;
    }
    if (!vb_hostmem_touched(&node->mem, step, false, &reads) ||
        !vb_hostmem_touched(&node->mem, step, true, &writes)) {
        vb_world_violate(w, "NIC %u touched memory that is not its host's", node->index);
        return;
    }
    if (!vb_spans_equal(&writes, &f->writes))
        vb_world_violate(w,
                         "NIC %u wrote %llu bytes in %u runs (first at %u), expected %llu in %u "
                         "(first at %u)",
                         node->index, (unsigned long long)writes.bytes, writes.count,
                         writes.span[0].offset, (unsigned long long)f->writes.bytes,
                         f->writes.count, f->writes.span[0].offset);
    else if (!vb_spans_equal(&reads, &f->reads))
        vb_world_violate(w,
                         "NIC %u read %llu bytes in %u runs (first at %u), expected %llu in %u "
                         "(first at %u)",
                         node->index, (unsigned long long)reads.bytes, reads.count,
                         reads.span[0].offset, (unsigned long long)f->reads.bytes, f->reads.count,
                         f->reads.span[0].offset);
    else if (f->writes.count && !vb_hostmem_equals(&node->mem, &f->writes, f->bytes))
        vb_world_violate(w, "NIC %u wrote other bytes than the packet holds", node->index);
    else if (f->reads.count && !vb_hostmem_equals(&node->mem, &f->reads, f->bytes))
        vb_world_violate(w, "NIC %u sent other bytes than its memory holds", node->index);
    else if (f->reads.count && !vb_hostmem_agrees(&node->mem, &f->reads))
        vb_world_violate(w, "NIC %u read memory that had been changed by nobody", node->index);
    else if (f->writes.count)
        vb_hostmem_predict(&node->mem, &f->writes, f->bytes);
}

void vb_model_judge_touches(struct vb_ep *ep, const struct vb_step *step,
                            const struct vb_forecast *f)
{
    judge_touches(ep->node, step, f);
}

// ---- frames

static void count_verdict(struct vb_node *node, const struct vb_step *step,
                          const struct vb_rx_frame *frame)
{
    struct vb_world *w = node->world;

    if (step->verdict > VB_RX_STRANGER) {
        vb_world_violate(w, "NIC %u: there is no verdict %u", node->index, step->verdict);
        return;
    }
    node->tally.frames_in++;
    node->tally.bytes_in += frame->len;
    node->tally.verdict[step->verdict]++;
    vb_cover(w->cover, (enum vb_cover_row)(VB_COVER_RX_APPLIED + step->verdict));
    // An invalidation over XRC finds nothing to invalidate.
    bool xrc = vb_opcode_table[step->opcode].transport == VB_TP_XRC;
    if (step->verdict == VB_RX_APPLIED || (xrc && step->verdict == VB_RX_REFUSED)) {
        enum vb_cover_row row = vb_cover_of_opcode(step->opcode);
        if (row != VB_COVER_COUNT)
            vb_cover(w->cover, row);
    }
}

// Only its peer reaches a connected queue pair, and only in a state that listens.
static bool is_heard(const struct vb_ep *ep, const struct vb_rx_frame *frame, bool request)
{
    bool receives = ep->state == VB_QPS_RTR || ep->state == VB_QPS_SQE;
    bool open = ep->state == VB_QPS_RTS || ep->state == VB_QPS_SQD || (request && receives);
    return open &&
           (ep->opts.service == VB_SERVICE_UD || vb_ip_equal(&frame->src, &ep->peer->node->ip));
}

// The first packet tells a host that waits in RTR that its peer is there.
static void hear(struct vb_ep *ep, const struct vb_packet *pkt)
{
    if (ep->opts.service == VB_SERVICE_UD && pkt->qkey != ep->link.qkey)
        return;
    if (!ep->answer.heard && ep->state == VB_QPS_RTR)
        vb_model_expect_event(ep, VB_EVENT_COMM_EST);
    ep->answer.heard = true;
}

// The frame came to the right unit, for this queue pair or for none.
static void take_frame(struct vb_node *node, struct vb_ep *ep, const struct vb_rx_frame *frame,
                       struct vb_packet *pkt, struct vb_forecast *f)
{
    struct vb_sent_frame *sent = vb_model_frame_taken(node, frame);
    bool request = pkt->facts & VB_OP_REQUEST;

    if (ep && pkt->opcode == VB_CNP) {
        f->verdict = vb_model_cnp_in(ep, frame);
    } else if (ep && vb_model_is_served(ep, pkt) && is_heard(ep, frame, request)) {
        if (frame->ce)
            vb_model_marked(ep);
        hear(ep, pkt);
        vb_model_as_rc(ep, pkt);
        if (vb_ep_is_unreliable(ep))
            vb_model_unreliable_in(ep, frame, pkt, f);
        else if (request)
            vb_model_answer_in(ep, pkt, f);
        else
            vb_model_ask_in(ep, pkt, f);
        VB_MODEL_CHECK(ep, f->verdict != VB_RX_APPLIED || sent,
                       "accepted PSN %u, which nobody sent so", pkt->psn);
    }
    if (f->verdict == VB_RX_STRANGER)
        vb_model_frame_lost(sent, VB_EXCUSE_TIMEOUT_UNHEARD);
    else if (f->verdict == VB_RX_AHEAD)
        vb_model_frame_lost(sent, VB_EXCUSE_TIMEOUT_OVERTAKEN);
    else if (f->verdict != VB_RX_GAP)
        vb_model_frame_heard(sent);
}

static void frame_in(struct vb_node *node, const struct vb_step *step)
{
    const struct vb_rx_frame *frame = vb_model_next_frame(node->at);
    struct vb_forecast f = {.verdict = VB_RX_STRANGER};
    struct vb_packet pkt = {0};

    if (vb_packet_decode(frame->data, frame->len, &pkt) != VB_DECODE_OK) {
        f.verdict = VB_RX_MALFORMED;
    } else {
        struct vb_ep *ep = find_ep(node, pkt.dest_qpn);
        if (!ep || !vb_model_hands_over(ep, frame))
            take_frame(node, ep, frame, &pkt, &f);
    }
    vb_trace_frame(node, step, &pkt, "in ");
    count_verdict(node, step, frame);
    if (step->verdict != f.verdict)
        vb_world_violate(node->world,
                         "NIC %u QP 0x%06x: %s with PSN %u got the verdict %s, expected %s",
                         node->index, step->qpn, vb_trace_opcode(pkt.opcode), pkt.psn,
                         vb_trace_verdict(step->verdict), vb_trace_verdict(f.verdict));
    else
        judge_touches(node, step, &f);
}

static bool is_well_formed(const struct vb_ep *ep, const struct vb_tx_frame *frame,
                           const struct vb_packet *pkt)
{
    bool whole = !(pkt->facts & VB_OP_LAST) && (pkt->facts & VB_OP_PAYLOAD);

    if (ep->opts.service == VB_SERVICE_UD)
        return vb_model_ud_is_well_formed(ep, frame, pkt);

    return frame->len % 4 == 0 && pkt->pkey == VB_PKEY_DEFAULT && pkt->dest_qpn == ep->peer->qpn &&
           pkt->payload_len <= ep->link.mtu && (!whole || pkt->payload_len == ep->link.mtu) &&
           vb_ip_equal(&frame->path->remote, &ep->peer->node->ip) &&
           vb_ip_equal(&frame->path->local, &ep->node->ip);
}

// Where it goes belongs to it: paths of datagrams come and go while frames wait.
static uint64_t digest_with_path(const struct vb_tx_frame *frame, uint64_t digest)
{
    struct vb_digest d = {digest};

    vb_digest_add(&d, vb_digest_bytes(frame->path->local.b, sizeof frame->path->local.b));
    vb_digest_add(&d, vb_digest_bytes(frame->path->remote.b, sizeof frame->path->remote.b));
    vb_digest_add(&d, frame->path->src_port);
    return d.value;
}

uint64_t vb_model_frame_digest(const struct vb_txq *q, const struct vb_tx_frame *frame)
{
    uint8_t bytes[VB_FRAME_MAX];

    vb_tx_copy(q, frame, bytes);
    return digest_with_path(frame, vb_digest_bytes(bytes, frame->len));
}

static void frame_out(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_unit *unit = ep->node->at;
    const struct vb_txq *q = vb_pu_txq(unit->pu);
    uint8_t bytes[VB_FRAME_MAX];
    unit->tx_at = unit->later ? unit->tx_next++ : q->count - 1;
    if (unit->tx_at >= q->count) {
        vb_model_violate(ep, "has a record of a frame that was not sent");
        return;
    }
    const struct vb_tx_frame *frame = &q->frame[unit->tx_at];
    vb_tx_copy(q, frame, bytes);
    uint64_t digest = vb_digest_bytes(bytes, frame->len);
    struct vb_packet pkt;
    enum vb_decode decode = vb_packet_decode(bytes, frame->len, &pkt);

    if (decode != VB_DECODE_OK || !is_well_formed(ep, frame, &pkt)) {
        vb_model_violate(ep, "sent a malformed frame (decoder says %d)", (int)decode);
        return;
    }
    ep->node->tally.frames_out++;
    ep->node->tally.bytes_out += frame->len;
    unit->tx_digest[unit->tx_at] = digest_with_path(frame, digest);
    vb_digest_add(&ep->node->world->digest, digest);
    vb_trace_frame(ep->node, step, &pkt, "out");
    VB_MODEL_CHECK(ep, pkt.psn == step->psn && pkt.opcode == step->opcode,
                   "the step's record does not describe the frame");
    VB_MODEL_CHECK(ep, vb_ep_unit(ep) == unit, "was served by unit %u", unit->index);
    if (pkt.opcode == VB_CNP) {
        vb_model_cnp_sent(ep, &frame->path->remote, bytes, frame->len);
        vb_model_cnp_out(ep, &pkt);
        return;
    }
    VB_MODEL_CHECK(ep, vb_model_is_served(ep->peer, &pkt), "sent a packet of another service");
    vb_model_rate_out(ep, &pkt, frame->len);
    vb_model_frame_sent(ep, &frame->path->remote, &pkt, bytes, frame->len);
    vb_storm_remember(ep, &pkt, bytes, frame->len);
    vb_model_as_rc(ep, &pkt);
    if (vb_ep_is_unreliable(ep))
        vb_model_unreliable_out(ep, step, &pkt);
    else if (pkt.facts & VB_OP_REQUEST)
        vb_model_ask_out(ep, step, &pkt);
    else
        vb_model_answer_out(ep, step, &pkt);
}

// ---- steps

static void digest_step(struct vb_node *node, const struct vb_step *s)
{
    struct vb_digest *d = &node->world->digest;

    vb_digest_add(d, node->world->now_ns);
    vb_digest_add(d, (uint64_t)node->index << 56 | (uint64_t)s->kind << 48 |
                         (uint64_t)s->opcode << 40 | (uint64_t)s->verdict << 32 | s->qpn);
    vb_digest_add(d, (uint64_t)s->psn << 32 | s->bytes);
    vb_digest_add(d, s->counter << 8 | s->detail);
    for (uint32_t i = 0; i < s->touches; i++) {
        uint64_t offset = (uint64_t)((const uint8_t *)s->touch[i].addr - node->mem.bytes);
        vb_digest_add(d, offset << 33 | (uint64_t)s->touch[i].len << 1 | s->touch[i].write);
    }
}

static void step_of_qp(struct vb_ep *ep, const struct vb_step *step)
{
    static const struct vb_forecast nothing;
    bool notifies = step->kind == VB_STEP_FRAME_OUT && step->opcode == VB_CNP;

    if (step->kind <= VB_STEP_FRAME_OUT)
        vb_model_timers_due(ep->node->at);
    ep->answer.passed = notifies ? ep->answer.passed : 0;
    if (step->kind == VB_STEP_FRAME_OUT && !notifies)
        vb_model_answers_wait(ep);
    switch (step->kind) {
    case VB_STEP_FRAME_OUT: frame_out(ep, step); return;
    case VB_STEP_FETCH: vb_model_ask_fetch(ep, step); break;
    case VB_STEP_EXEC: vb_model_ask_exec(ep, step); break;
    case VB_STEP_COMPLETE: vb_model_complete(ep, step); break;
    case VB_STEP_TIMER: vb_model_ask_timer(ep, step); break;
    case VB_STEP_DROP: vb_model_answer_dropped(ep, step); break;
    default: vb_model_violate(ep, "a step of the unknown kind %d", (int)step->kind); break;
    }
    judge_touches(ep->node, step, &nothing);
}

void vb_model_check_state(struct vb_ep *ep)
{
    enum vb_qp_state state;
    int err = vb_dev_qp_state(ep->node->dev, ep->qpn, &state);

    VB_MODEL_CHECK(ep, err == 0, "is gone");
    VB_MODEL_CHECK(ep, err || state == ep->state, "is in state %s, expected %s",
                   vb_qp_state_name(state), vb_qp_state_name(ep->state));
}

void vb_model_observe(void *ctx, const struct vb_step *step)
{
    struct vb_unit *unit = ctx;
    struct vb_node *node = unit->node;

    if (node->world->violated)
        return;
    if (step->kind == VB_STEP_TURN) {
        vb_model_turn_ended(unit);
        return;
    }
    if (step->kind == VB_STEP_NONE) {
        vb_model_check_events(node);
        return;
    }
    node->world->events++;
    digest_step(node, step);
    struct vb_ep *ep = find_ep(node, step->qpn);
    if (step->kind != VB_STEP_FRAME_IN && step->kind != VB_STEP_FRAME_OUT)
        vb_trace_step(node, step);
    if (step->kind == VB_STEP_FRAME_IN || step->kind == VB_STEP_TIMER)
        unit->late_turns = 0;
    if (step->kind == VB_STEP_FRAME_IN)
        frame_in(node, step);
    else if (ep)
        step_of_qp(ep, step);
    else if (step->kind == VB_STEP_TIMER && step->cqn)
        vb_model_cq_timer(node, step);
    else
        vb_world_violate(node->world, "NIC %u: a step for no queue pair", node->index);
    if (ep)
        vb_model_credit_watch(ep);
    if (unit->later)
        return; // the poll has made more steps since
    if (ep)
        vb_model_check_state(ep);
    if (!node->world->violated)
        vb_model_check_events(node);
}

void vb_model_idle(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->ep_count; i++) {
        vb_model_ask_idle(node->ep[i]);
        vb_model_answer_idle(node->ep[i]);
        vb_model_srq_idle(node->ep[i]);
        vb_model_rate_idle(node->ep[i]);
    }
    vb_model_cq_idle(node);
}

// ---- states

void vb_model_failed(struct vb_ep *ep)
{
    ep->node->world->cover->moved[ep->state][VB_QPS_ERR]++;
    ep->state = VB_QPS_ERR;
    ep->ask.rnr_wait = ep->ask.armed = ep->paced.cnp_due = false;
    ep->answer.closing = ep->answer.nak_due = ep->answer.ack_due = false;
    ep->answer.last_told = false;
    ep->answer.owed_count = 0;
}

void vb_model_modified(struct vb_ep *ep, const struct vb_qpc_mods *mods)
{
    switch (mods->state) {
    case VB_QPS_RTR:
        vb_model_answer_start(ep, mods);
        ep->paced.connected = true;
        break;
    case VB_QPS_RTS:
        if (ep->state == VB_QPS_RTR)
            vb_model_ask_start(ep, mods);
        else if (ep->state == VB_QPS_SQE)
            vb_model_sqe_left(ep);
        break;
    case VB_QPS_SQD:
        if (ep->state == VB_QPS_RTS)
            ep->ask.drained = false;
        break;
    case VB_QPS_ERR:
        if (ep->state == VB_QPS_ERR)
            return;
        vb_model_failed(ep);
        ep->ask.may_flush = true;
        return;
    case VB_QPS_RESET:
        memset(&ep->ask, 0, sizeof ep->ask);
        memset(&ep->answer, 0, sizeof ep->answer);
        memset(&ep->paced, 0, sizeof ep->paced);
        break;
    default: break;
    }
    ep->state = mods->state;
}

// ---- at the end

static void check_frames(struct vb_unit *unit)
{
    const struct vb_txq *q = vb_pu_txq(unit->pu);

    for (uint32_t i = q->taken; i < q->count; i++) {
        if (vb_model_frame_digest(q, &q->frame[i]) != unit->tx_digest[i])
            vb_world_violate(unit->node->world, "NIC %u: a frame changed after it was written",
                             unit->node->index);
    }
}

void vb_model_sending(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        check_frames(&node->unit[i]);
}

static void check_counter(struct vb_node *node, const char *name, uint64_t counted, uint64_t seen)
{
    if (counted != seen)
        vb_world_violate(node->world, "NIC %u counts %llu in %s, but %llu were seen", node->index,
                         (unsigned long long)counted, name, (unsigned long long)seen);
}

// Of all units.
static struct vb_counters count_all(const struct vb_node *node)
{
    struct vb_counters sum = {0};

    for (uint32_t i = 0; i < node->world->scen.units; i++) {
        const struct vb_counters *c = vb_pu_counters(node->unit[i].pu);
#define ADD_COUNTER(name) sum.name += c->name;
        VB_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    }
    return sum;
}

static void check_counters(struct vb_node *node)
{
    const struct vb_counters sum = count_all(node), *c = &sum;
    const struct vb_tally *t = &node->tally;

    check_counter(node, "sent_pkts", c->sent_pkts, t->frames_out);
    check_counter(node, "rcvd_pkts", c->rcvd_pkts, t->frames_in);
    check_counter(node, "duplicate_request", c->duplicate_request, t->verdict[VB_RX_DUPLICATE]);
    check_counter(node, "out_of_seq_request", c->out_of_seq_request,
                  t->verdict[VB_RX_AHEAD] - t->uc_ahead + t->uc_out_of_seq);
    check_counter(node, "send_rnr_err", c->send_rnr_err, t->verdict[VB_RX_RNR] - t->unready);
    check_counter(node, "out_of_buffer", c->out_of_buffer, t->verdict[VB_RX_RNR]);
    check_counter(node, "rx_datagrams", c->rx_datagrams, t->datagrams);
    check_counter(node, "rx_dropped_datagrams", c->rx_dropped_datagrams, t->dropped_datagrams);
    check_counter(node, "qkey_violations", c->qkey_violations, t->qkey_violations);
    check_counter(node, "rx_malformed", c->rx_malformed, t->verdict[VB_RX_MALFORMED]);
    check_counter(node, "local_ack_timeout_err", c->local_ack_timeout_err, t->timeouts);
    check_counter(node, "sent_bytes", c->sent_bytes, t->bytes_out);
    check_counter(node, "rcvd_bytes", c->rcvd_bytes, t->bytes_in);
    check_counter(node, "rcvd_seq_err", c->rcvd_seq_err, t->seq_naks_out);
    check_counter(node, "packet_seq_err", c->packet_seq_err, t->seq_naks_in);
    check_counter(node, "rcvd_rnr_err", c->rcvd_rnr_err, t->rnr_naks_in);
    check_counter(node, "completer_retry_err", c->completer_retry_err, t->gaps);
    check_counter(node, "retry_exceeded_err", c->retry_exceeded_err, t->ended_by_retries);
    check_counter(node, "retry_rnr_exceeded_err", c->retry_rnr_exceeded_err, t->ended_by_rnr);
    check_counter(node, "rx_send_requests", c->rx_send_requests, t->sends);
    check_counter(node, "rx_write_requests", c->rx_write_requests, t->writes);
    check_counter(node, "rx_read_requests", c->rx_read_requests, t->reads);
    check_counter(node, "rx_atomic_requests", c->rx_atomic_requests, t->atomics);
    check_counter(node, "rx_flush_requests", c->rx_flush_requests, t->flushes);
    check_counter(node, "cq_overrun", c->cq_overrun, t->overruns);
    check_counter(node, "rx_handed_over", c->rx_handed_over, t->handed_over);
    check_counter(node, "rx_no_mailbox", c->rx_no_mailbox, t->no_mailbox);
    check_counter(node, "np_ecn_marked_roce_packets", c->np_ecn_marked_roce_packets, t->marked);
    check_counter(node, "np_cnp_sent", c->np_cnp_sent, t->cnps_sent);
    check_counter(node, "rp_cnp_handled", c->rp_cnp_handled, t->cnps_handled);
    check_counter(node, "rp_cnp_ignored", c->rp_cnp_ignored, t->cnps_ignored);
    check_counter(node, "lost_events", c->lost_events, 0);
}

// Every addition whose success its host was told of was made once, every other at most once.
static void check_counting(struct vb_node *node)
{
    uint64_t sum = 0;

    for (int d = 0; d < VB_SIM_PDS; d++) {
        const struct vb_region *r = node->exposed[d][VB_EXPOSED_COUNTERS];
        for (uint32_t at = 0; at + 8 <= r->len; at += 8) {
            uint64_t value;
            memcpy(&value, node->mem.bytes + r->offset + at, sizeof value);
            sum += value;
        }
    }
    if (sum < node->tally.counted || sum > node->tally.asked_to_count)
        vb_world_violate(node->world,
                         "NIC %u: its counters say %llu; %llu additions succeeded, %llu were asked "
                         "for",
                         node->index, (unsigned long long)sum,
                         (unsigned long long)node->tally.counted,
                         (unsigned long long)node->tally.asked_to_count);
}

void vb_model_finish(struct vb_world *w)
{
    for (uint32_t i = 0; i < w->scen.nics; i++) {
        struct vb_node *node = &w->node[i];
        int64_t at = vb_hostmem_differs(&node->mem);
        if (at >= 0)
            vb_world_violate(
                w, "NIC %u: byte %lld of its memory (%s) was changed by nobody", i, (long long)at,
                vb_hostmem_region_at(&node->mem, (uint32_t)at) ? "in a region" : "a guard");
        check_counters(node);
        check_counting(node);
    }
}
