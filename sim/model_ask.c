// SPDX-License-Identifier: Apache-2.0
// The reference model's requester: which packet comes next, what an answer acknowledges, when it
// must go back, and when it must give up.
#include "sim/model.h"

#include "base/serial.h"
#include "wire/roce.h"

#include <string.h>

enum {
    READ_SEGMENT_BYTES = 64 * 1024
};

static uint32_t psn_of(const struct vb_asking *a, int64_t packet)
{
    return (uint32_t)((uint64_t)packet + a->psn0) & VB_PSN_MASK;
}

static int64_t packet_of(const struct vb_asking *a, uint32_t psn)
{
    return a->una + vb_psn_diff(psn, psn_of(a, a->una));
}

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

// ---- posting

void vb_model_ask_start(struct vb_ep *ep, const struct vb_qpc_mods *mods)
{
    ep->ask = (struct vb_asking){
        .psn0 = mods->sq_psn, .retries_left = mods->retry_cnt, .rnr_left = mods->rnr_retry};
}

void vb_model_posted(struct vb_ep *ep, struct vb_work *work)
{
    struct vb_asking *a = &ep->ask;

    work->first = a->next_first;
    work->psns = work->opcode == VB_WR_NOP ? 0 : vb_model_packets(ep, work->len);
    work->bytes_before = a->bytes_posted;
    a->next_first += work->psns;
    a->bytes_posted += work->len;
    a->posted++;
}

void vb_model_ask_fetch(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_asking *a = &ep->ask;

    VB_MODEL_CHECK(ep, a->fetched < a->posted, "fetched a request that was not posted");
    VB_MODEL_CHECK(ep, vb_ep_work(ep, a->fetched)->counter == step->counter,
                   "fetched the request at block %llu, expected %llu",
                   (unsigned long long)step->counter,
                   (unsigned long long)vb_ep_work(ep, a->fetched)->counter);
    a->fetched++;
    VB_MODEL_CHECK(ep, a->fetched - a->begun <= ep->node->fetch_depth,
                   "fetched %llu requests ahead, allowed are %u",
                   (unsigned long long)(a->fetched - a->begun), ep->node->fetch_depth);
}

// ---- progress

static void advance_done(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    for (; a->done < a->begun; a->done++) {
        const struct vb_work *work = vb_ep_work(ep, a->done);
        if (work->first + work->psns > a->una)
            break;
    }
}

static void advance(struct vb_ep *ep, int64_t to)
{
    struct vb_asking *a = &ep->ask;
    uint32_t before = psn_of(a, a->una);

    a->una = to;
    if (psn_of(a, to) < before)
        vb_cover(cover_of(ep), VB_COVER_WRAP_PSN);
    if (a->cursor < to)
        a->cursor = to;
    a->retries_left = ep->link.retry_cnt;
    a->rnr_left = ep->link.rnr_retry;
    a->gap_seen = false;
    if (!a->rnr_wait) {
        a->armed = a->una < a->sent_end;
        a->armed_ns = ep->node->world->now_ns;
    }
    advance_done(ep);
}

static void fail(struct vb_ep *ep, uint8_t syndrome)
{
    ep->ask.fail_syndrome = syndrome;
    vb_model_failed(ep);
}

// Acknowledges all packets before `to`, but none of a READ whose data has not come.
static bool acknowledge(struct vb_ep *ep, int64_t to)
{
    struct vb_asking *a = &ep->ask;

    for (uint64_t i = a->done; i < a->begun; i++) {
        const struct vb_work *work = vb_ep_work(ep, i);
        int64_t from = work->first > a->una ? work->first : a->una;
        if (to <= from)
            break;
        if (work->opcode == VB_WR_READ) {
            if (from != a->una)
                advance(ep, from);
            return false;
        }
    }
    if (to != a->una)
        advance(ep, to);
    return true;
}

// ---- beginning

static bool has_open_read(struct vb_ep *ep)
{
    for (uint64_t i = ep->ask.done; i < ep->ask.begun; i++)
        if (vb_ep_work(ep, i)->opcode == VB_WR_READ)
            return true;
    return false;
}

bool vb_model_is_locally_wrong(struct vb_ep *ep, const struct vb_work *work, uint8_t syndrome)
{
    struct vb_spans spans;

    if (syndrome == VB_SYN_LOCAL_QP_OP)
        return work->malformed;
    if (syndrome != VB_SYN_LOCAL_PROT || work->flags & VB_WR_INLINE || work->malformed)
        return false;
    uint32_t need = work->opcode == VB_WR_READ ? VB_LOCAL_WRITE : VB_LOCAL_READ;
    return vb_hostmem_spans(&ep->node->mem, ep->pd, work->sge, work->num_sge, 0, work->len, need,
                            &spans) != VB_MEM_OK;
}

static void exec_failed(struct vb_ep *ep, const struct vb_step *step)
{
    const struct vb_work *work = vb_ep_work(ep, ep->ask.done);

    VB_MODEL_CHECK(ep, ep->ask.done < ep->ask.fetched && work->counter == step->counter,
                   "failed the request at block %llu before its turn",
                   (unsigned long long)step->counter);
    VB_MODEL_CHECK(ep, vb_model_is_locally_wrong(ep, work, step->detail),
                   "failed a request with syndrome 0x%02x for no reason", step->detail);
    fail(ep, step->detail);
}

void vb_model_ask_exec(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_asking *a = &ep->ask;

    if (step->detail != VB_SYN_OK) {
        exec_failed(ep, step);
        return;
    }
    const struct vb_work *work = vb_ep_work(ep, a->begun);
    VB_MODEL_CHECK(ep, a->begun < a->fetched && work->counter == step->counter,
                   "began the request at block %llu out of order",
                   (unsigned long long)step->counter);
    VB_MODEL_CHECK(ep, !work->malformed, "began a malformed request");
    if (work->flags & VB_WR_FENCE)
        VB_MODEL_CHECK(ep, !has_open_read(ep), "began a fenced request before a READ was done");
    a->begun++;
    advance_done(ep);
}

// ---- packets out

static uint64_t bytes_before(struct vb_ep *ep, uint64_t position, int64_t packet)
{
    const struct vb_work *work = vb_ep_work(ep, position);
    uint64_t bytes = (uint64_t)(packet - work->first) * ep->link.mtu;
    return work->bytes_before + (bytes < work->len ? bytes : work->len);
}

static uint32_t segments_between(const struct vb_ep *ep, const struct vb_work *work, int64_t from,
                                 int64_t to)
{
    int64_t per = READ_SEGMENT_BYTES / ep->link.mtu;
    int64_t end = work->first + work->psns;

    from = from > work->first ? from : work->first;
    to = to < end ? to : end;
    if (from >= to)
        return 0;
    return (uint32_t)((to - 1 - work->first) / per - (from - work->first) / per + 1);
}

// READ requests sent and not yet answered in full.
static uint32_t reads_in_flight(struct vb_ep *ep)
{
    uint32_t reads = 0;
    for (uint64_t i = ep->ask.done; i < ep->ask.begun; i++) {
        const struct vb_work *work = vb_ep_work(ep, i);
        if (work->opcode == VB_WR_READ)
            reads += segments_between(ep, work, ep->ask.una, ep->ask.cursor);
    }
    return reads;
}

static void judge_read(struct vb_ep *ep, const struct vb_work *work, const struct vb_packet *pkt)
{
    struct vb_asking *a = &ep->ask;
    uint32_t offset = (uint32_t)(a->cursor - work->first) * ep->link.mtu;
    uint32_t end = (offset / READ_SEGMENT_BYTES + 1) * READ_SEGMENT_BYTES;
    uint32_t len = (end < work->len ? end : work->len) - offset;
    uint32_t reads = reads_in_flight(ep);

    VB_MODEL_CHECK(ep, pkt->opcode == VB_RC_READ_REQUEST, "sent %u instead of a READ", pkt->opcode);
    VB_MODEL_CHECK(ep, pkt->raddr == work->raddr + offset && pkt->rkey == work->rkey,
                   "READ at PSN %u asks for the wrong place (offset %lld, expected %u)", pkt->psn,
                   (long long)(pkt->raddr - work->raddr), offset);
    VB_MODEL_CHECK(ep, pkt->dma_len == len, "READ at PSN %u asks for %u bytes, expected %u",
                   pkt->psn, pkt->dma_len, len);
    VB_MODEL_CHECK(ep, reads < ep->link.max_rd_atomic, "sent a READ with %u in flight, limit %u",
                   reads, ep->link.max_rd_atomic);
    if (reads + 1 == ep->link.max_rd_atomic)
        vb_cover(cover_of(ep), VB_COVER_LIMIT_READS);
    if (offset % READ_SEGMENT_BYTES)
        vb_cover(cover_of(ep), VB_COVER_RESUME_READ);
}

static uint8_t data_opcode(const struct vb_work *work, bool first, bool last)
{
    if (work->opcode == VB_WR_SEND)
        return first ? (last ? VB_RC_SEND_ONLY : VB_RC_SEND_FIRST)
                     : (last ? VB_RC_SEND_LAST : VB_RC_SEND_MIDDLE);
    return first ? (last ? VB_RC_WRITE_ONLY : VB_RC_WRITE_FIRST)
                 : (last ? VB_RC_WRITE_LAST : VB_RC_WRITE_MIDDLE);
}

static void judge_data_head(struct vb_ep *ep, const struct vb_work *work,
                            const struct vb_packet *pkt, bool first, bool last)
{
    bool solicited = last && work->opcode == VB_WR_SEND && (work->flags & VB_WR_SOLICITED);

    VB_MODEL_CHECK(ep, pkt->opcode == data_opcode(work, first, last),
                   "sent opcode %u at PSN %u, expected %u", pkt->opcode, pkt->psn,
                   data_opcode(work, first, last));
    VB_MODEL_CHECK(ep, pkt->solicited == solicited, "the solicited bit is %d", pkt->solicited);
    VB_MODEL_CHECK(ep, !last || pkt->ack_request, "the last packet asks for no acknowledgement");
    if (first && work->opcode == VB_WR_WRITE)
        VB_MODEL_CHECK(
            ep, pkt->raddr == work->raddr && pkt->rkey == work->rkey && pkt->dma_len == work->len,
            "WRITE at PSN %u names the wrong memory", pkt->psn);
}

static void judge_data(struct vb_ep *ep, const struct vb_work *work, const struct vb_packet *pkt,
                       struct vb_forecast *f)
{
    uint32_t index = (uint32_t)(ep->ask.cursor - work->first);
    uint32_t offset = index * ep->link.mtu;
    uint32_t left = work->len - offset;
    uint32_t len = left < ep->link.mtu ? left : ep->link.mtu;

    judge_data_head(ep, work, pkt, index == 0, index + 1 == work->psns);
    VB_MODEL_CHECK(ep, pkt->payload_len == len, "sent %u bytes at PSN %u, expected %u",
                   pkt->payload_len, pkt->psn, len);
    if (ep->node->world->violated)
        return;
    if (work->flags & VB_WR_INLINE) {
        VB_MODEL_CHECK(ep, memcmp(work->inlined + offset, pkt->payload, len) == 0,
                       "inline bytes at PSN %u are not those posted", pkt->psn);
        return;
    }
    enum vb_mem_refusal refusal = vb_hostmem_spans(&ep->node->mem, ep->pd, work->sge, work->num_sge,
                                                   offset, len, VB_LOCAL_READ, &f->reads);
    VB_MODEL_CHECK(ep, refusal == VB_MEM_OK, "sent bytes through a local key that forbids it (%d)",
                   (int)refusal);
    f->bytes = pkt->payload;
}

static void judge_window(struct vb_ep *ep, uint64_t position)
{
    struct vb_asking *a = &ep->ask;
    uint64_t in_flight = bytes_before(ep, position, a->cursor) - bytes_before(ep, a->done, a->una);

    VB_MODEL_CHECK(ep, in_flight < ep->node->window_bytes,
                   "sends with %llu bytes in flight, the window is %u",
                   (unsigned long long)in_flight, ep->node->window_bytes);
    VB_MODEL_CHECK(ep, a->sent_end - a->una < 1 << 23, "more than half of all PSNs in flight");
    if (in_flight + ep->link.mtu >= ep->node->window_bytes)
        vb_cover(cover_of(ep), VB_COVER_LIMIT_WINDOW);
}

static uint64_t position_of(struct vb_ep *ep, int64_t packet)
{
    uint64_t i = ep->ask.done;
    while (i < ep->ask.begun && vb_ep_work(ep, i)->first + vb_ep_work(ep, i)->psns <= packet)
        i++;
    return i;
}

void vb_model_ask_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt)
{
    struct vb_asking *a = &ep->ask;
    struct vb_forecast f = {0};
    uint64_t position = position_of(ep, a->cursor);

    VB_MODEL_CHECK(ep, ep->state == VB_QPS_RTS, "sent a request in state %s",
                   vb_qp_state_name(ep->state));
    VB_MODEL_CHECK(ep, !a->rnr_wait, "sent a request while the peer asked it to wait");
    VB_MODEL_CHECK(ep, pkt->psn == psn_of(a, a->cursor), "sent PSN %u, expected %u", pkt->psn,
                   psn_of(a, a->cursor));
    VB_MODEL_CHECK(ep, position < a->begun, "sent PSN %u before its request began", pkt->psn);
    if (ep->node->world->violated)
        return;
    const struct vb_work *work = vb_ep_work(ep, position);
    judge_window(ep, position);
    if (a->cursor < a->sent_end)
        vb_cover(cover_of(ep), VB_COVER_RESEND);
    if (work->opcode == VB_WR_READ)
        judge_read(ep, work, pkt);
    else
        judge_data(ep, work, pkt, &f);
    vb_model_judge_touches(ep, step, &f);
    a->cursor += work->opcode == VB_WR_READ ? vb_model_packets(ep, pkt->dma_len) : 1;
    if (a->sent_end < a->cursor)
        a->sent_end = a->cursor;
    if (!a->armed) {
        a->armed = true;
        a->armed_ns = ep->node->world->now_ns;
    }
}

// Memory that only the request itself uses still holds what was to be sent.
static void judge_arrived_bytes(struct vb_ep *ep, const struct vb_work *work,
                                const struct vb_packet *pkt, uint32_t offset)
{
    struct vb_spans spans;
    bool same = true;

    if (work->flags & VB_WR_INLINE)
        same = memcmp(work->inlined + offset, pkt->payload, pkt->payload_len) == 0;
    else if (work->is_private &&
             vb_hostmem_spans(&ep->node->mem, ep->pd, work->sge, work->num_sge, offset,
                              pkt->payload_len, VB_LOCAL_READ, &spans) == VB_MEM_OK)
        same = vb_hostmem_equals(&ep->node->mem, &spans, pkt->payload);
    VB_MODEL_CHECK(ep, same, "its peer executed PSN %u with other bytes than were posted",
                   pkt->psn);
}

void vb_model_ask_executed(struct vb_ep *ep, const struct vb_packet *pkt, int64_t packet)
{
    const struct vb_asking *a = &ep->ask;
    uint64_t i = a->polled;

    VB_MODEL_CHECK(ep, packet < a->sent_end, "its peer executed PSN %u, which was never sent",
                   pkt->psn);
    while (i < a->begun && vb_ep_work(ep, i)->first + vb_ep_work(ep, i)->psns <= packet)
        i++;
    const struct vb_work *work = vb_ep_work(ep, i);
    if (i >= a->begun || work->first > packet || ep->node->world->violated)
        return; // flushed meanwhile, and forgotten
    uint32_t index = (uint32_t)(packet - work->first);
    if (work->opcode == VB_WR_READ) {
        VB_MODEL_CHECK(ep, pkt->raddr == work->raddr + (uint64_t)index * ep->link.mtu,
                       "its peer executed a READ that was not sent");
        return;
    }
    VB_MODEL_CHECK(ep, pkt->opcode == data_opcode(work, index == 0, index + 1 == work->psns),
                   "its peer executed opcode %u as PSN %u", pkt->opcode, pkt->psn);
    judge_arrived_bytes(ep, work, pkt, index * ep->link.mtu);
}

// ---- answers in

static enum vb_rx_verdict gap(struct vb_ep *ep)
{
    if (!ep->ask.gap_seen) {
        ep->ask.gap_seen = true;
        ep->ask.cursor = ep->ask.una;
    }
    return VB_RX_GAP;
}

// One attempt fewer; true: there was one left.
static bool retry(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    if (a->retries_left == 0) {
        fail(ep, VB_SYN_RETRY_EXC);
        return false;
    }
    a->retries_left--;
    a->cursor = a->una;
    return true;
}

static enum vb_rx_verdict on_nak(struct vb_ep *ep, unsigned code)
{
    static const struct {
        enum vb_cover_row row;
        uint8_t syndrome;
    } fatal[] = {
        [VB_NAK_INVALID_REQUEST] = {VB_COVER_NAK_INVALID, VB_SYN_REMOTE_INVAL_REQ},
        [VB_NAK_REMOTE_ACCESS] = {VB_COVER_NAK_ACCESS, VB_SYN_REMOTE_ACCESS},
        [VB_NAK_REMOTE_OPERATION] = {VB_COVER_NAK_OPERATION, VB_SYN_REMOTE_OP},
    };

    if (code == VB_NAK_PSN_SEQUENCE) {
        vb_cover(cover_of(ep), VB_COVER_NAK_SEQUENCE);
        return retry(ep) ? VB_RX_RETRY : VB_RX_FATAL;
    }
    if (code > VB_NAK_REMOTE_OPERATION) {
        fail(ep, VB_SYN_BAD_RESP);
        return VB_RX_FATAL;
    }
    vb_cover(cover_of(ep), fatal[code].row);
    fail(ep, fatal[code].syndrome);
    return VB_RX_FATAL;
}

static enum vb_rx_verdict on_rnr(struct vb_ep *ep, unsigned code)
{
    struct vb_asking *a = &ep->ask;

    vb_cover(cover_of(ep), VB_COVER_NAK_RNR);
    if (a->rnr_wait)
        return VB_RX_STALE;
    if (ep->link.rnr_retry != VB_RETRY_INFINITE) {
        if (a->rnr_left == 0) {
            fail(ep, VB_SYN_RNR_RETRY_EXC);
            return VB_RX_FATAL;
        }
        a->rnr_left--;
    }
    a->cursor = a->una;
    a->rnr_wait = true;
    a->armed = false;
    a->rnr_until_ns = ep->node->world->now_ns + vb_rnr_timer_ns((uint8_t)code);
    return VB_RX_RETRY;
}

static enum vb_rx_verdict on_ack(struct vb_ep *ep, const struct vb_packet *pkt)
{
    unsigned kind = vb_aeth_kind_of(pkt->syndrome), value = vb_aeth_value_of(pkt->syndrome);
    int64_t packet = packet_of(&ep->ask, pkt->psn);

    if (packet >= ep->ask.sent_end)
        vb_cover(cover_of(ep), VB_COVER_GHOST_ACK);
    else if (packet < ep->ask.una)
        vb_cover(cover_of(ep), kind == VB_AETH_ACK ? VB_COVER_DUP_ACK : VB_COVER_DUP_NAK);
    if (packet < ep->ask.una || packet >= ep->ask.sent_end || kind == 2)
        return VB_RX_STALE;
    if (kind == VB_AETH_ACK)
        return acknowledge(ep, packet + 1) ? VB_RX_APPLIED : gap(ep);
    if (!acknowledge(ep, packet))
        return gap(ep);
    return kind == VB_AETH_RNR ? on_rnr(ep, value) : on_nak(ep, value);
}

static enum vb_rx_verdict take_response(struct vb_ep *ep, const struct vb_packet *pkt,
                                        struct vb_forecast *f)
{
    const struct vb_work *work = vb_ep_work(ep, ep->ask.done);
    uint32_t offset = (uint32_t)(ep->ask.una - work->first) * ep->link.mtu;
    uint32_t left = work->len - offset;
    uint32_t len = left < ep->link.mtu ? left : ep->link.mtu;
    enum vb_mem_refusal refusal = vb_hostmem_spans(&ep->node->mem, ep->pd, work->sge, work->num_sge,
                                                   offset, len, VB_LOCAL_WRITE, &f->writes);

    VB_MODEL_CHECK(ep, pkt->payload_len == len, "a READ response of %u bytes, expected %u",
                   pkt->payload_len, len);
    if (refusal != VB_MEM_OK) {
        f->writes = (struct vb_spans){0};
        fail(ep, VB_SYN_LOCAL_PROT);
        return VB_RX_FATAL;
    }
    f->bytes = pkt->payload;
    vb_model_answer_stored(ep->peer, pkt, ep->ask.una);
    advance(ep, ep->ask.una + 1);
    return VB_RX_APPLIED;
}

static enum vb_rx_verdict on_response(struct vb_ep *ep, const struct vb_packet *pkt,
                                      struct vb_forecast *f)
{
    struct vb_asking *a = &ep->ask;
    int64_t packet = packet_of(a, pkt->psn);

    if (packet < a->una || packet >= a->sent_end) {
        vb_cover(cover_of(ep), VB_COVER_DUP_RESPONSE);
        return VB_RX_STALE;
    }
    if (!acknowledge(ep, packet))
        return gap(ep);
    if (a->done == a->begun || vb_ep_work(ep, a->done)->opcode != VB_WR_READ)
        return VB_RX_STALE;
    return take_response(ep, pkt, f);
}

void vb_model_ask_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f)
{
    if (pkt->facts & VB_OP_ACK)
        f->verdict = on_ack(ep, pkt);
    else if (pkt->facts & VB_OP_READ)
        f->verdict = on_response(ep, pkt, f);
    else
        f->verdict = VB_RX_STALE;
}

// ---- time

void vb_model_ask_timer(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_asking *a = &ep->ask;
    uint64_t now = ep->node->world->now_ns;

    (void)step;
    if (a->rnr_wait) {
        VB_MODEL_CHECK(ep, now >= a->rnr_until_ns, "waited too short after a RNR NAK");
        a->rnr_wait = false;
        vb_cover(cover_of(ep), VB_COVER_RNR_WAIT);
        return;
    }
    VB_MODEL_CHECK(ep, a->armed && a->una < a->sent_end, "a timer fired with nothing in flight");
    VB_MODEL_CHECK(ep, now >= a->armed_ns + (4096ull << ep->link.timeout),
                   "an acknowledgement timed out too early");
    vb_cover(cover_of(ep), VB_COVER_TIMEOUT);
    ep->node->tally.timeouts++;
    a->armed = a->gap_seen = false;
    retry(ep);
}

static uint64_t deadline_of(const struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;

    if (a->rnr_wait)
        return a->rnr_until_ns;
    return a->armed ? a->armed_ns + (4096ull << ep->link.timeout) : UINT64_MAX;
}

void vb_model_ask_idle(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;
    bool in_flight = a->una < a->sent_end;

    VB_MODEL_CHECK(ep, !vb_ep_owes_completion(ep), "is idle with a completion owed");
    if (ep->state == VB_QPS_ERR)
        VB_MODEL_CHECK(ep, a->done == a->posted, "is idle with requests not flushed");
    if (ep->state != VB_QPS_RTS)
        return;
    VB_MODEL_CHECK(ep, in_flight || a->rnr_wait || a->done == a->posted,
                   "is idle with requests posted and none in flight");
    VB_MODEL_CHECK(ep, !in_flight || a->rnr_wait || a->armed, "is idle in flight without a timer");
    VB_MODEL_CHECK(ep, vb_pu_deadline(ep->node->pu) <= deadline_of(ep),
                   "is idle, and its timer will fire too late or never");
    if (a->begun < a->fetched && in_flight && (vb_ep_work(ep, a->begun)->flags & VB_WR_FENCE) &&
        has_open_read(ep))
        vb_cover(cover_of(ep), VB_COVER_LIMIT_FENCE);
}
