// SPDX-License-Identifier: Apache-2.0
// The reference model's requester: what begins when, what an answer acknowledges, when it must go
// back, and when it must give up.
#include "sim/model.h"

#include "base/serial.h"
#include "wire/roce.h"

#include <string.h>

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
    bool local = work->opcode == VB_WR_NOP || vb_work_changes_key(work);
    work->psns = local ? 0 : vb_model_packets(ep, work->len);
    work->bytes_before = a->bytes_posted;
    a->next_first += work->psns;
    a->bytes_posted += work->len;
    a->posted++;
}

void vb_model_ask_fetch(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_asking *a = &ep->ask;

    VB_MODEL_CHECK(ep, a->fetched < a->posted, "fetched a request that was not posted");
    VB_MODEL_CHECK(ep, ep->state == VB_QPS_RTS, "fetched a request in state %s",
                   vb_qp_state_name(ep->state));
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
    uint32_t before = vb_model_ask_psn(a, a->una);

    a->una = to;
    if (vb_model_ask_psn(a, to) < before)
        vb_cover(cover_of(ep), VB_COVER_WRAP_PSN);
    if (a->cursor < to)
        a->cursor = to;
    if (a->asked_end < to)
        a->asked_end = to;
    a->ask_due = false;
    a->retries_left = ep->link.retry_cnt;
    a->rnr_left = ep->link.rnr_retry;
    a->gap_seen = a->may_probe = false;
    a->tries_healed = 0;
    if (!a->rnr_wait) {
        a->armed = a->una < a->sent_end;
        a->armed_ns = a->resent_ns = ep->node->world->now_ns;
        a->went_back = false;
    }
    advance_done(ep);
}

static void fail(struct vb_ep *ep, uint8_t syndrome)
{
    ep->ask.fail_syndrome = syndrome;
    if (vb_ep_is_unreliable(ep))
        vb_model_sqe_entered(ep);
    else
        vb_model_failed(ep);
}

void vb_model_ask_done(struct vb_ep *ep, int64_t to)
{
    advance(ep, to);
}

// Acknowledges all packets before `to`, but none of a request whose own answer has not come.
static bool acknowledge(struct vb_ep *ep, int64_t to)
{
    struct vb_asking *a = &ep->ask;

    for (uint64_t i = a->done; i < a->begun; i++) {
        const struct vb_work *work = vb_ep_work(ep, i);
        int64_t from = work->first > a->una ? work->first : a->una;
        if (to <= from)
            break;
        if (vb_work_awaits(work)) {
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

// READs, atomics and their like.
static bool has_open_await(struct vb_ep *ep)
{
    for (uint64_t i = ep->ask.done; i < ep->ask.begun; i++)
        if (vb_work_awaits(vb_ep_work(ep, i)))
            return true;
    return false;
}

static bool is_refused_change(struct vb_ep *ep, const struct vb_work *work)
{
    struct vb_hostmem *mem = &ep->node->mem;

    if (work->opcode == VB_WR_BIND)
        return vb_hostwin_judge_bind(mem, vb_ep_user(ep), &work->bind) != VB_MEM_OK;
    return work->opcode == VB_WR_LOCAL_INVAL &&
           vb_hostwin_judge_invalidate(mem, vb_ep_user(ep), work->imm) != VB_MEM_OK;
}

bool vb_model_is_locally_wrong(struct vb_ep *ep, const struct vb_work *work, uint8_t syndrome)
{
    struct vb_spans spans;

    if (syndrome == VB_SYN_LOCAL_QP_OP)
        return work->malformed || !vb_model_serves(ep, work) || !vb_model_ud_has_path(ep, work);
    if (!vb_model_serves(ep, work))
        return false;
    if (syndrome == VB_SYN_LOCAL_LENGTH)
        return ep->opts.service == VB_SERVICE_UD && !work->malformed && work->len > ep->link.mtu;
    if (syndrome == VB_SYN_BIND)
        return !work->malformed && is_refused_change(ep, work);
    if (syndrome != VB_SYN_LOCAL_PROT || work->flags & VB_WR_INLINE || work->malformed)
        return false;
    bool stores = work->opcode == VB_WR_READ || vb_work_is_atomic(work);
    uint32_t need = stores ? VB_LOCAL_WRITE : VB_LOCAL_READ;
    return vb_hostmem_spans(&ep->node->mem, vb_ep_user(ep), work->sge, work->num_sge, 0, work->len,
                            need, &spans) != VB_MEM_OK;
}

static void exec_failed(struct vb_ep *ep, const struct vb_step *step)
{
    const struct vb_work *work = vb_ep_work(ep, ep->ask.done);

    VB_MODEL_CHECK(ep, ep->ask.done < ep->ask.fetched && work->counter == step->counter,
                   "failed the request at block %llu before its turn",
                   (unsigned long long)step->counter);
    VB_MODEL_CHECK(ep, vb_model_is_locally_wrong(ep, work, step->detail),
                   "failed a request with syndrome 0x%02x for no reason", step->detail);
    VB_MODEL_CHECK(ep, ep->state == VB_QPS_RTS || ep->ask.done < ep->ask.begun,
                   "failed a request that had not begun, in state %s", vb_qp_state_name(ep->state));
    fail(ep, step->detail);
}

// A binding or an invalidation takes effect when it begins, and everything before it is done then.
static void change_key(struct vb_ep *ep, const struct vb_work *work)
{
    struct vb_hostmem *mem = &ep->node->mem;
    bool binds = work->opcode == VB_WR_BIND;
    enum vb_mem_refusal refusal = binds ? vb_hostwin_bind(mem, vb_ep_user(ep), &work->bind)
                                        : vb_hostwin_invalidate(mem, vb_ep_user(ep), work->imm);

    VB_MODEL_CHECK(ep, ep->ask.done == ep->ask.begun,
                   "changed a key before all earlier requests were done");
    VB_MODEL_CHECK(ep, refusal == VB_MEM_OK, "changed a key that it may not change (%d)",
                   (int)refusal);
    if (!binds)
        vb_cover(cover_of(ep), VB_COVER_WINDOW_LOCAL_INVAL);
    else if (work->bind.len == 0)
        vb_cover(cover_of(ep), VB_COVER_WINDOW_UNBOUND);
    else
        vb_cover(cover_of(ep), vb_hostwin_find(mem, work->bind.window)->type2
                                   ? VB_COVER_WINDOW_BOUND_2
                                   : VB_COVER_WINDOW_BOUND_1);
}

void vb_model_ask_exec(struct vb_ep *ep, const struct vb_step *step)
{
    struct vb_asking *a = &ep->ask;

    if (step->detail != VB_SYN_OK) {
        exec_failed(ep, step);
        return;
    }
    struct vb_work *work = vb_ep_work(ep, a->begun);
    VB_MODEL_CHECK(ep, a->begun < a->fetched && work->counter == step->counter,
                   "began the request at block %llu out of order",
                   (unsigned long long)step->counter);
    VB_MODEL_CHECK(ep, !work->malformed, "began a malformed request");
    VB_MODEL_CHECK(ep, vb_model_serves(ep, work), "began a request of another service");
    VB_MODEL_CHECK(ep, ep->state == VB_QPS_RTS, "began a request in state %s",
                   vb_qp_state_name(ep->state));
    if (work->flags & VB_WR_FENCE)
        VB_MODEL_CHECK(ep, !has_open_await(ep),
                       "began a fenced request before a READ or an atomic was done");
    if (vb_work_changes_key(work))
        change_key(ep, work);
    if (work->psns > 0)
        work->ssn = ++a->ssn;
    a->begun++;
    advance_done(ep);
    if (vb_ep_is_unreliable(ep) && vb_model_is_locally_wrong(ep, work, VB_SYN_LOCAL_PROT))
        ep->conn->control_at_ns = ep->node->world->now_ns; // to be drained before it fails
}

// ---- answers in

static void go_back(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    vb_model_sends_again(ep);
    a->cursor = a->asked_end = a->una;
    a->ask_due = false;
}

static enum vb_rx_verdict gap(struct vb_ep *ep, int64_t packet)
{
    if (ep->ask.gap_seen) {
        vb_model_lost(ep, packet, VB_EXCUSE_TIMEOUT_OVERTAKEN);
    } else {
        ep->ask.gap_seen = ep->ask.went_back = ep->ask.may_probe = true;
        ep->node->tally.gaps++;
        go_back(ep);
    }
    return VB_RX_GAP;
}

bool vb_model_retry(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;

    if (a->retries_left == 0) {
        vb_model_judge_end(ep);
        ep->node->tally.ended_by_retries++;
        fail(ep, VB_SYN_RETRY_EXC);
        return false;
    }
    a->retries_left--;
    a->tries_healed += vb_model_has_healed(ep);
    go_back(ep);
    a->went_back = a->may_probe = true;
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
        ep->node->tally.seq_naks_in++;
        return vb_model_retry(ep) ? VB_RX_RETRY : VB_RX_FATAL;
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
    ep->node->tally.rnr_naks_in++;
    if (a->rnr_wait)
        return VB_RX_STALE;
    if (ep->link.rnr_retry != VB_RETRY_INFINITE) {
        if (a->rnr_left == 0) {
            ep->node->tally.ended_by_rnr++;
            fail(ep, VB_SYN_RNR_RETRY_EXC);
            return VB_RX_FATAL;
        }
        a->rnr_left--;
    }
    go_back(ep);
    a->rnr_wait = a->may_probe = true;
    a->armed = false;
    a->rnr_until_ns = ep->node->world->now_ns + vb_rnr_timer_ns((uint8_t)code);
    return VB_RX_RETRY;
}

static enum vb_rx_verdict on_ack(struct vb_ep *ep, const struct vb_packet *pkt)
{
    unsigned kind = vb_aeth_kind_of(pkt->syndrome), value = vb_aeth_value_of(pkt->syndrome);
    int64_t packet = vb_model_ask_packet(&ep->ask, pkt->psn);

    // Behind a forged packet the peer misses one that was never sent, and says so in place of an
    // ACK.
    if (packet == ep->ask.sent_end && kind == VB_AETH_NAK)
        vb_model_lost(ep, packet - 1, VB_EXCUSE_TIMEOUT_FORGED);
    if (packet >= ep->ask.sent_end)
        vb_cover(cover_of(ep), VB_COVER_GHOST_ACK);
    else if (packet < ep->ask.una)
        vb_cover(cover_of(ep), kind == VB_AETH_ACK ? VB_COVER_DUP_ACK : VB_COVER_DUP_NAK);
    if (packet < ep->ask.una || packet >= ep->ask.sent_end || kind == 2)
        return VB_RX_STALE;
    if (kind == VB_AETH_ACK)
        return acknowledge(ep, packet + 1) ? VB_RX_APPLIED : gap(ep, packet);
    if (!acknowledge(ep, packet))
        return gap(ep, packet);
    return kind == VB_AETH_RNR ? on_rnr(ep, value) : on_nak(ep, value);
}

static enum vb_rx_verdict take_response(struct vb_ep *ep, const struct vb_packet *pkt,
                                        struct vb_forecast *f)
{
    const struct vb_work *work = vb_ep_work(ep, ep->ask.done);
    uint32_t offset = (uint32_t)(ep->ask.una - work->first) * ep->link.mtu;
    uint32_t left = work->len - offset;
    uint32_t len = left < ep->link.mtu ? left : ep->link.mtu;
    enum vb_mem_refusal refusal =
        vb_hostmem_spans(&ep->node->mem, vb_ep_user(ep), work->sge, work->num_sge, offset, len,
                         VB_LOCAL_WRITE, &f->writes);

    VB_MODEL_CHECK(ep, pkt->payload_len == len, "a READ response of %u bytes, expected %u",
                   pkt->payload_len, len);
    if (refusal != VB_MEM_OK) {
        f->writes = (struct vb_spans){0};
        fail(ep, VB_SYN_LOCAL_PROT);
        return VB_RX_FATAL;
    }
    f->bytes = pkt->payload;
    advance(ep, ep->ask.una + 1);
    return VB_RX_APPLIED;
}

// An atomic's former value, which must be the one that the peer's memory had.
static enum vb_rx_verdict take_former_value(struct vb_ep *ep, const struct vb_packet *pkt,
                                            struct vb_forecast *f)
{
    const struct vb_work *work = vb_ep_work(ep, ep->ask.done);
    uint32_t narrow = (uint32_t)pkt->atomic_old, bytes = work->len;
    uint64_t old = 0;

    VB_MODEL_CHECK(ep,
                   vb_model_answer_result(ep->peer, ep->ask.una, &old) && old == pkt->atomic_old,
                   "the atomic at PSN %u was told %llx, its memory had %llx", pkt->psn,
                   (unsigned long long)pkt->atomic_old, (unsigned long long)old);
    if (vb_hostmem_spans(&ep->node->mem, vb_ep_user(ep), work->sge, 1, 0, bytes, VB_LOCAL_WRITE,
                         &f->writes) != VB_MEM_OK) {
        f->writes = (struct vb_spans){0};
        fail(ep, VB_SYN_LOCAL_PROT);
        return VB_RX_FATAL;
    }
    memcpy(f->value, bytes == 8 ? (const void *)&pkt->atomic_old : &narrow, bytes);
    f->bytes = f->value;
    advance(ep, ep->ask.una + 1);
    return VB_RX_APPLIED;
}

static enum vb_rx_verdict on_response(struct vb_ep *ep, const struct vb_packet *pkt,
                                      struct vb_forecast *f)
{
    struct vb_asking *a = &ep->ask;
    int64_t packet = vb_model_ask_packet(a, pkt->psn);

    if (packet < a->una || packet >= a->sent_end) {
        vb_cover(cover_of(ep), VB_COVER_DUP_RESPONSE);
        return VB_RX_STALE;
    }
    if (!acknowledge(ep, packet))
        return gap(ep, packet);
    const struct vb_work *work = vb_ep_work(ep, a->done);
    if (a->done == a->begun || !vb_work_awaits(work))
        return VB_RX_STALE;
    if (!!(pkt->facts & VB_OP_ATOMIC) != vb_work_is_atomic(work)) {
        fail(ep, VB_SYN_BAD_RESP);
        return VB_RX_FATAL;
    }
    if (work->opcode == VB_WR_READ)
        return take_response(ep, pkt, f);
    if (vb_work_is_atomic(work))
        return take_former_value(ep, pkt, f);
    VB_MODEL_CHECK(ep, pkt->payload_len == 0 && pkt->opcode == VB_RC_READ_RESP_ONLY,
                   "PSN %u has an answer with data", pkt->psn);
    advance(ep, a->una + 1);
    return VB_RX_APPLIED;
}

void vb_model_ask_in(struct vb_ep *ep, const struct vb_packet *pkt, struct vb_forecast *f)
{
    if (pkt->facts & VB_OP_AETH)
        vb_model_credit_heard(ep, pkt);
    if (pkt->facts & VB_OP_ACK)
        f->verdict = on_ack(ep, pkt);
    else
        f->verdict = on_response(ep, pkt, f);
}

// ---- at rest

void vb_model_ask_idle(struct vb_ep *ep)
{
    struct vb_asking *a = &ep->ask;
    bool in_flight = a->una < a->sent_end;

    VB_MODEL_CHECK(ep, !vb_ep_owes_completion(ep), "is idle with a completion owed");
    if (ep->state == VB_QPS_ERR || ep->state == VB_QPS_SQE)
        VB_MODEL_CHECK(ep, a->done == a->posted, "is idle with requests not flushed");
    if (ep->state != VB_QPS_RTS && ep->state != VB_QPS_SQD)
        return;
    bool drains = ep->state == VB_QPS_SQD, held = vb_model_credit_holds(ep);
    bool wants = a->done < (drains ? a->begun : a->posted);
    bool waits = wants && vb_model_cost_at_rest(ep) >= VB_MODEL_WINDOW_MIN;
    uint64_t paced_ns = UINT64_MAX;
    bool paced = wants && vb_model_rate_holds(ep, &paced_ns) &&
                 vb_pu_deadline(vb_ep_unit(ep)->pu) <= paced_ns; // and will go on in time
    if (waits && !in_flight)
        vb_cover(cover_of(ep), VB_COVER_LIMIT_PEER);
    if (held && !waits)
        vb_cover(cover_of(ep), VB_COVER_CREDIT_LIMITED);
    if (waits)
        vb_excuse(cover_of(ep), VB_EXCUSE_WINDOW_BETWEEN);
    VB_MODEL_CHECK(ep, !a->ask_due || paced || (waits && vb_model_waits_to_ask(ep)),
                   "is idle, and asks for no acknowledgement");
    VB_MODEL_CHECK(ep, in_flight || a->rnr_wait || held || waits || paced || !wants,
                   "is idle with requests posted and none in flight");
    VB_MODEL_CHECK(ep, !drains || a->drained || a->done < a->begun,
                   "is idle and drained, and has not said so");
    vb_model_timer_idle(ep, held, waits || paced);
    if (paced)
        vb_cover(cover_of(ep), VB_COVER_CC_HELD);
    if (a->begun < a->fetched && in_flight && (vb_ep_work(ep, a->begun)->flags & VB_WR_FENCE) &&
        has_open_await(ep))
        vb_cover(cover_of(ep), VB_COVER_LIMIT_FENCE);
    if (drains && a->done < a->posted)
        vb_cover(cover_of(ep), VB_COVER_LIMIT_DRAINED);
}
