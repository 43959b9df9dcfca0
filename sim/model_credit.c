// SPDX-License-Identifier: Apache-2.0
// The reference model's credits: none is told that is not there, none that is there stays untold
// for ever, and nothing that needs a receive goes out without one but a single question.
#include "sim/model.h"

#include "wire/roce.h"

enum {
    CODES = 31,            // the one behind them says nothing
    WAIT_MAX_NS = 4000000, // before a requester without credit asks
};

// As the specification lists them.
static const uint16_t credits[CODES] = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

static struct vb_coverage *cover_of(struct vb_ep *ep)
{
    return ep->node->world->cover;
}

// ---- responder

// The receive of a message that is coming in counts: the message has no number yet.
static uint32_t in_use(const struct vb_answering *a)
{
    return a->message == VB_SIM_SEND_MESSAGE;
}

static unsigned code_of(uint64_t count)
{
    unsigned code = 0;
    while (code + 1 < CODES && credits[code + 1] <= count)
        code++;
    return code;
}

// Whose receives others take cannot promise them.
static bool tells(const struct vb_ep *ep)
{
    return ep->opts.service == VB_SERVICE_RC && !ep->srq && !ep->node->no_credits;
}

void vb_model_credit_told(struct vb_ep *ep, const struct vb_packet *pkt)
{
    struct vb_answering *a = &ep->answer;
    unsigned code = vb_aeth_value_of(pkt->syndrome);
    uint64_t unused = a->posted - a->taken + in_use(a), half = ep->drv.rq.entries / 2;

    if (!tells(ep) || code >= CODES) {
        VB_MODEL_CHECK(ep, !tells(ep) && code == CODES,
                       "told the credit code %u, and does %stell credits", code,
                       tells(ep) ? "" : "not ");
        vb_cover(cover_of(ep), VB_COVER_CREDIT_NONE);
        return;
    }
    VB_MODEL_CHECK(ep, credits[code] <= unused, "told %u credits with %llu receives unused",
                   credits[code], (unsigned long long)unused);
    // It need not look for more while half of the queue is full, and when it closes nobody cares.
    VB_MODEL_CHECK(ep, a->closing || code >= code_of(unused < half ? unused : half),
                   "told %u credits with %llu receives unused", credits[code],
                   (unsigned long long)unused);
    if (code < code_of(unused))
        vb_excuse(cover_of(ep), VB_EXCUSE_CREDITS_HALF);
    vb_cover(cover_of(ep), code ? VB_COVER_CREDIT_SOME : VB_COVER_CREDIT_ZERO);
    a->told_limit = a->msn + credits[code];
    if (!a->told)
        a->ack_limit = a->told_limit;
    a->told = true;
}

void vb_model_credit_answer_idle(struct vb_ep *ep)
{
    const struct vb_answering *a = &ep->answer;
    // The end of a message is acknowledged, which tells; without that the peer knew it had enough.
    bool enough = a->message != VB_SIM_NO_MESSAGE || vb_psn_diff(a->told_limit, a->msn) > 0 ||
                  a->acked < a->epsn;

    VB_MODEL_CHECK(ep, !a->told || enough || a->posted == a->taken,
                   "is idle with %llu receives and told its peer of none",
                   (unsigned long long)(a->posted - a->taken));
}

// ---- requester

void vb_model_credit_heard(struct vb_ep *ep, const struct vb_packet *pkt)
{
    struct vb_asking *a = &ep->ask;
    int64_t packet = vb_model_ask_packet(a, pkt->psn);
    unsigned code = vb_aeth_value_of(pkt->syndrome);

    // Requests of XRC share the receives of others: their number is no limit.
    if (vb_aeth_kind_of(pkt->syndrome) != VB_AETH_ACK || ep->node->no_credits || vb_ep_is_xrc(ep) ||
        packet < a->una - 1 || packet >= a->sent_end)
        return;
    if (code >= CODES) {
        a->limited = false;
        return;
    }
    uint32_t limit = (pkt->msn + credits[code]) & VB_PSN_MASK;
    if (vb_psn_diff(pkt->msn, a->ssn) > 0 || (a->limited && vb_psn_diff(limit, a->limit) <= 0))
        return;
    a->limited = true;
    a->limit = limit;
}

// A request that needs a receive and has none, before its first packet.
static bool is_beyond(const struct vb_asking *a, const struct vb_work *work)
{
    bool needs = vb_work_sends(work) || work->opcode == VB_WR_WRITE_IMM;

    return a->limited && needs && a->cursor == work->first && vb_psn_diff(work->ssn, a->limit) > 0;
}

bool vb_model_credit_holds(struct vb_ep *ep)
{
    const struct vb_asking *a = &ep->ask;
    uint64_t i = a->done;

    while (i < a->begun && vb_ep_work(ep, i)->first + vb_ep_work(ep, i)->psns <= a->cursor)
        i++;
    return i < a->begun && a->cursor == a->una && !a->may_probe && is_beyond(a, vb_ep_work(ep, i));
}

uint64_t vb_model_credit_wait_ns(const struct vb_ep *ep)
{
    uint64_t timeout_ns = 4096ull << ep->link.timeout;
    return timeout_ns < WAIT_MAX_NS ? timeout_ns : WAIT_MAX_NS;
}

void vb_model_credit_out(struct vb_ep *ep, const struct vb_work *work)
{
    struct vb_asking *a = &ep->ask;

    if (!is_beyond(a, work))
        return;
    VB_MODEL_CHECK(ep, a->cursor == a->una,
                   "sent message %u with others in flight, its credits end at %u", work->ssn,
                   a->limit);
    VB_MODEL_CHECK(ep, a->may_probe, "sent message %u without a wait, its credits end at %u",
                   work->ssn, a->limit);
    a->may_probe = false;
    vb_cover(cover_of(ep), VB_COVER_CREDIT_PROBE);
}
