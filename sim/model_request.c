// SPDX-License-Identifier: Apache-2.0
// The reference model's requester, packets out: which comes next, what it holds, and that the peer
// executes no other.
#include "sim/model.h"

#include "base/serial.h"
#include "wire/roce.h"

#include <string.h>

enum {
    READ_SEGMENT_BYTES = 64 * 1024,
    PACKET_COST = 64, // of the window, beside its payload
    UNASKED_MAX = 16, // packets in a row that ask for no acknowledgement
    CREDITS_LOW = 4,  // with fewer left each message asks
};

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
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

// Requests sent that await an answer of their own and have not got all of it.
static uint32_t awaiting(struct vb_ep *ep)
{
    uint32_t requests = 0;
    for (uint64_t i = ep->ask.done; i < ep->ask.begun; i++) {
        const struct vb_work *work = vb_ep_work(ep, i);
        if (vb_work_awaits(work))
            requests += segments_between(ep, work, ep->ask.una, ep->ask.cursor);
    }
    return requests;
}

static void judge_limit(struct vb_ep *ep)
{
    uint32_t requests = awaiting(ep);

    VB_MODEL_CHECK(ep, requests < ep->link.max_rd_atomic,
                   "sent a READ or atomic with %u in flight, limit %u", requests,
                   ep->link.max_rd_atomic);
    if (requests + 1 == ep->link.max_rd_atomic)
        vb_cover(cover_of(ep), VB_COVER_LIMIT_READS);
}

static void judge_read(struct vb_ep *ep, const struct vb_work *work, const struct vb_packet *pkt)
{
    struct vb_asking *a = &ep->ask;
    uint32_t offset = (uint32_t)(a->cursor - work->first) * ep->link.mtu;
    uint32_t end = (offset / READ_SEGMENT_BYTES + 1) * READ_SEGMENT_BYTES;
    uint32_t len = (end < work->len ? end : work->len) - offset;

    judge_limit(ep);
    if (offset > 0 && a->cursor == a->sent_end)
        a->ssn++; // a new segment
    VB_MODEL_CHECK(ep, pkt->opcode == VB_RC_READ_REQUEST, "sent %u instead of a READ", pkt->opcode);
    VB_MODEL_CHECK(ep, pkt->raddr == work->raddr + offset && pkt->rkey == work->rkey,
                   "READ at PSN %u asks for the wrong place (offset %lld, expected %u)", pkt->psn,
                   (long long)(pkt->raddr - work->raddr), offset);
    VB_MODEL_CHECK(ep, pkt->dma_len == len, "READ at PSN %u asks for %u bytes, expected %u",
                   pkt->psn, pkt->dma_len, len);
    if (offset % READ_SEGMENT_BYTES)
        vb_cover(cover_of(ep), VB_COVER_RESUME_READ);
}

static uint8_t data_opcode(const struct vb_work *work, bool first, bool last)
{
    if (last) {
        switch (work->opcode) {
        case VB_WR_SEND: return first ? VB_RC_SEND_ONLY : VB_RC_SEND_LAST;
        case VB_WR_SEND_IMM: return first ? VB_RC_SEND_ONLY_IMM : VB_RC_SEND_LAST_IMM;
        case VB_WR_SEND_INVAL: return first ? VB_RC_SEND_ONLY_INV : VB_RC_SEND_LAST_INV;
        case VB_WR_WRITE_IMM: return first ? VB_RC_WRITE_ONLY_IMM : VB_RC_WRITE_LAST_IMM;
        default: return first ? VB_RC_WRITE_ONLY : VB_RC_WRITE_LAST;
        }
    }
    if (vb_work_sends(work))
        return first ? VB_RC_SEND_FIRST : VB_RC_SEND_MIDDLE;
    return first ? VB_RC_WRITE_FIRST : VB_RC_WRITE_MIDDLE;
}

// Somebody waits for the completion, it is not the first time, or many before it did not ask.
static void judge_asking(struct vb_ep *ep, const struct vb_work *work, const struct vb_packet *pkt)
{
    const struct vb_asking *a = &ep->ask;
    bool again = a->cursor < a->sent_end;

    bool low =
        a->limited && work->opcode != VB_WR_WRITE && vb_psn_diff(a->limit, a->ssn) < CREDITS_LOW;
    bool must = (work->flags & VB_WR_SIGNALED) || again || low ||
                a->cursor - a->asked_end >= UNASKED_MAX - 1;

    VB_MODEL_CHECK(ep, pkt->ack_request || !must, "the last packet at PSN %u asks for no ACK",
                   pkt->psn);
    if (pkt->ack_request && !must)
        vb_excuse(cover_of(ep), VB_EXCUSE_ASKED_WITHOUT_NEED);
    if (!pkt->ack_request)
        vb_cover(cover_of(ep), VB_COVER_UNASKED);
}

static void judge_data_head(struct vb_ep *ep, const struct vb_work *work,
                            const struct vb_packet *pkt, bool first, bool last)
{
    bool solicited = last && work->opcode != VB_WR_WRITE && (work->flags & VB_WR_SOLICITED);
    bool carries = vb_opcode_table[pkt->opcode].facts & (VB_OP_IMM | VB_OP_IETH);

    VB_MODEL_CHECK(ep, pkt->opcode == data_opcode(work, first, last),
                   "sent opcode %u at PSN %u, expected %u", pkt->opcode, pkt->psn,
                   data_opcode(work, first, last));
    VB_MODEL_CHECK(ep, pkt->solicited == solicited, "the solicited bit is %d", pkt->solicited);
    if (last)
        judge_asking(ep, work, pkt);
    VB_MODEL_CHECK(ep, !carries || pkt->imm == work->imm,
                   "PSN %u carries the immediate %08x, posted was %08x", pkt->psn, pkt->imm,
                   work->imm);
    if (first && vb_work_writes(work))
        VB_MODEL_CHECK(
            ep, pkt->raddr == work->raddr && pkt->rkey == work->rkey && pkt->dma_len == work->len,
            "WRITE at PSN %u names the wrong memory", pkt->psn);
}

// The payload of one packet, which starts at `offset` of the message.
void vb_model_judge_payload(struct vb_ep *ep, const struct vb_work *work,
                            const struct vb_packet *pkt, uint32_t offset, struct vb_forecast *f)
{
    uint32_t len = pkt->payload_len;

    if (work->flags & VB_WR_INLINE) {
        VB_MODEL_CHECK(ep, memcmp(work->inlined + offset, pkt->payload, len) == 0,
                       "inline bytes at PSN %u are not those posted", pkt->psn);
        return;
    }
    enum vb_mem_refusal refusal =
        vb_hostmem_spans(&ep->node->mem, vb_ep_user(ep), work->sge, work->num_sge, offset, len,
                         VB_LOCAL_READ, &f->reads);
    VB_MODEL_CHECK(ep, refusal == VB_MEM_OK, "sent bytes through a local key that forbids it (%d)",
                   (int)refusal);
    f->bytes = pkt->payload;
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
    if (!ep->node->world->violated)
        vb_model_judge_payload(ep, work, pkt, offset, f);
}

static uint8_t single_opcode(const struct vb_work *work)
{
    switch (work->opcode) {
    case VB_WR_CAS: return VB_RC_COMPARE_SWAP;
    case VB_WR_FADD: return VB_RC_FETCH_ADD;
    case VB_WR_MASKED_CAS: return VB_RC_MASKED_COMPARE_SWAP;
    case VB_WR_MASKED_FADD: return VB_RC_MASKED_FETCH_ADD;
    case VB_WR_ATOMIC_WRITE: return VB_RC_ATOMIC_WRITE;
    default: return VB_RC_FLUSH;
    }
}

static bool has_arguments_of(const struct vb_work *work, const struct vb_packet *pkt)
{
    const struct vb_work_atomic *a = &work->atomic;
    bool compares = work->opcode != VB_WR_FADD;
    bool masked = pkt->facts & VB_OP_MASKED_ETH;

    if (pkt->swap_add != a->swap_add || (compares && pkt->compare != a->compare))
        return false;
    if (!masked)
        return true;
    uint64_t swap_mask = work->opcode == VB_WR_MASKED_CAS ? a->swap_mask : 0;
    uint64_t compare_mask = work->opcode == VB_WR_MASKED_CAS ? a->compare_mask : 0;
    return pkt->atomic_bytes == a->bytes && pkt->swap_mask == swap_mask &&
           pkt->compare_mask == compare_mask;
}

// The packet is the request's, whole.
static bool is_single(const struct vb_work *work, const struct vb_packet *pkt)
{
    if (pkt->opcode != single_opcode(work) || pkt->raddr != work->raddr || pkt->rkey != work->rkey)
        return false;
    if (vb_work_is_atomic(work))
        return has_arguments_of(work, pkt);
    if (work->opcode == VB_WR_ATOMIC_WRITE)
        return pkt->dma_len == 8 && pkt->payload_len == 8;
    uint8_t type = work->flush.persistent ? VB_FETH_GLOBAL | VB_FETH_PERSISTENT : VB_FETH_GLOBAL;
    return pkt->dma_len == work->flush.len && pkt->flush_type == type &&
           pkt->flush_level == (work->flush.whole_region ? VB_FETH_REGION : VB_FETH_RANGE);
}

static void judge_single(struct vb_ep *ep, const struct vb_work *work, const struct vb_packet *pkt,
                         struct vb_forecast *f)
{
    judge_limit(ep);
    VB_MODEL_CHECK(ep, is_single(work, pkt), "PSN %u (opcode %u) is not what was posted", pkt->psn,
                   pkt->opcode);
    VB_MODEL_CHECK(ep, pkt->ack_request && !pkt->solicited, "PSN %u has the wrong bits", pkt->psn);
    if (work->opcode == VB_WR_ATOMIC_WRITE && !ep->node->world->violated)
        vb_model_judge_payload(ep, work, pkt, 0, f);
}

static uint64_t position_of(struct vb_ep *ep, int64_t packet)
{
    uint64_t i = ep->ask.done;
    while (i < ep->ask.begun && vb_ep_work(ep, i)->first + vb_ep_work(ep, i)->psns <= packet)
        i++;
    return i;
}

bool vb_model_is_inside_read(struct vb_ep *ep, int64_t packet)
{
    uint64_t i = position_of(ep, packet);
    const struct vb_work *work = vb_ep_work(ep, i);

    return i < ep->ask.begun && work->opcode == VB_WR_READ && packet > work->first &&
           (packet - work->first) * ep->link.mtu % READ_SEGMENT_BYTES != 0;
}

static uint64_t cost_in_flight(struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;

    if ((ep->state != VB_QPS_RTS && ep->state != VB_QPS_SQD) || a->cursor <= a->una)
        return 0;
    uint64_t last = position_of(ep, a->cursor - 1);
    return bytes_before(ep, last, a->cursor) - bytes_before(ep, a->done, a->una) +
           (uint64_t)(a->cursor - a->una) * PACKET_COST;
}

bool vb_model_cannot_ask(struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;

    if (a->una == a->sent_end || a->cursor == a->una || a->asked_end > a->una)
        return false;
    const struct vb_work *newest = vb_ep_work(ep, position_of(ep, a->sent_end - 1));
    return vb_model_is_locally_wrong(ep, newest, VB_SYN_LOCAL_PROT);
}

static uint64_t peer_cost(struct vb_ep *ep, bool least)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < ep->node->ep_count; i++) {
        struct vb_ep *other = ep->node->ep[i];
        if (other->peer->node == ep->peer->node && vb_ep_unit(other) == vb_ep_unit(ep) &&
            vb_ep_share(other) == vb_ep_share(ep) &&
            !(least && other != ep && vb_model_cannot_ask(other)))
            cost += cost_in_flight(other);
    }
    return cost;
}

uint64_t vb_model_cost_at_rest(struct vb_ep *ep)
{
    bool went_back = !ep->ask.rnr_wait && vb_model_cannot_ask(ep);

    return peer_cost(ep, false) - (went_back ? cost_in_flight(ep) : 0);
}

// A unit's share.
static uint32_t window_of(const struct vb_ep *ep)
{
    uint32_t share = ep->node->window_bytes / ep->node->world->scen.units;
    return share < VB_MODEL_WINDOW_MIN ? VB_MODEL_WINDOW_MIN : share;
}

static void judge_window(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;
    uint64_t cost = peer_cost(ep, false);
    uint32_t window = window_of(ep);

    // Another queue pair may have gone back to ask, and takes no room then (seed 16349092).
    if (cost >= window && peer_cost(ep, true) < window) {
        cost = peer_cost(ep, true);
        vb_excuse(cover_of(ep), VB_EXCUSE_WENT_BACK_TO_ASK);
    }
    VB_MODEL_CHECK(ep, cost < window,
                   "sends with %llu bytes in flight to the peer, the window is %u",
                   (unsigned long long)cost, window);
    VB_MODEL_CHECK(ep, a->sent_end - a->una < 1 << 23, "more than half of all PSNs in flight");
    if (cost + ep->link.mtu >= window)
        vb_cover(cover_of(ep), VB_COVER_LIMIT_WINDOW);
}

// The newest packet once more, because nothing in flight asks for an acknowledgement of it.
static bool repeats_newest(struct vb_ep *ep, const struct vb_packet *pkt)
{
    const struct vb_asking *a = &ep->ask;

    if (a->una >= a->cursor || a->asked_end == a->cursor ||
        pkt->psn != vb_model_ask_psn(a, a->cursor - 1))
        return false;
    VB_MODEL_CHECK(ep, pkt->ack_request, "repeats PSN %u and asks for nothing", pkt->psn);
    vb_cover(cover_of(ep), VB_COVER_ASKED_AGAIN);
    return true;
}

static bool goes_back_to_ask(struct vb_ep *ep, const struct vb_packet *pkt)
{
    return pkt->psn == vb_model_ask_psn(&ep->ask, ep->ask.una) && vb_model_cannot_ask(ep);
}

void vb_model_ask_out(struct vb_ep *ep, const struct vb_step *step, const struct vb_packet *pkt)
{
    struct vb_asking *a = &ep->ask;
    struct vb_forecast f = {0};

    bool repeats = repeats_newest(ep, pkt);
    a->cursor -= repeats;
    if (!repeats && goes_back_to_ask(ep, pkt)) {
        a->cursor = a->asked_end = a->una;
        a->went_back = a->may_probe = true;
        vb_excuse(cover_of(ep), VB_EXCUSE_WENT_BACK_TO_ASK);
        vb_model_sends_again(ep);
    }
    uint64_t position = position_of(ep, a->cursor);

    VB_MODEL_CHECK(ep, ep->state == VB_QPS_RTS || ep->state == VB_QPS_SQD,
                   "sent a request in state %s", vb_qp_state_name(ep->state));
    VB_MODEL_CHECK(ep, !a->rnr_wait, "sent a request while the peer asked it to wait");
    VB_MODEL_CHECK(ep, pkt->psn == vb_model_ask_psn(a, a->cursor), "sent PSN %u, expected %u",
                   pkt->psn, vb_model_ask_psn(a, a->cursor));
    VB_MODEL_CHECK(ep, position < a->begun, "sent PSN %u before its request began", pkt->psn);
    if (ep->node->world->violated)
        return;
    const struct vb_work *work = vb_ep_work(ep, position);
    if (!repeats) { // whose first has its place and its receive
        judge_window(ep);
        vb_model_credit_out(ep, work);
    }
    VB_MODEL_CHECK(ep, pkt->xrc_srqn == work->srqn, "PSN %u names SRQ %u, posted was %u", pkt->psn,
                   pkt->xrc_srqn, work->srqn);
    if (a->cursor < a->sent_end)
        vb_cover(cover_of(ep), VB_COVER_RESEND);
    if (work->opcode == VB_WR_READ)
        judge_read(ep, work, pkt);
    else if (vb_work_awaits(work))
        judge_single(ep, work, pkt, &f);
    else
        judge_data(ep, work, pkt, &f);
    vb_model_judge_touches(ep, step, &f);
    bool alone = a->cursor == a->una, asks = pkt->ack_request || work->opcode == VB_WR_READ;
    bool first_asks = asks && a->asked_end <= a->una;
    a->cursor += work->opcode == VB_WR_READ ? vb_model_packets(ep, pkt->dma_len) : 1;
    if (a->sent_end < a->cursor)
        a->sent_end = a->cursor;
    if (asks) {
        a->asked_end = a->cursor;
        a->ask_due = false;
    }
    if (!a->armed || first_asks || a->went_back) {
        a->armed = true;
        a->armed_ns = a->resent_ns = ep->node->world->now_ns;
    } else if (alone) { // it may have waited for credits
        vb_excuse(cover_of(ep), VB_EXCUSE_TIMER_EITHER);
        a->resent_ns = ep->node->world->now_ns;
    }
    a->went_back = false;
}
