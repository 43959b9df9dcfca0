// SPDX-License-Identifier: Apache-2.0
// What the steps of NICs with chain programs may do: touch the memory of the queue pair's owner,
// send to its peer, send the same again, and fail only for a reason.
#include "sim/chain_world.h"

#include "base/bytes.h"
#include "wire/packet.h"
#include "wire/roce.h"

#include <inttypes.h>
#include <string.h>

enum {
    ACK_REQUEST_AT = 8, // byte of the BTH with the bit that a repetition may set
    RNR_NAK = 1,        // the upper bits of its syndrome
};

// Whose step it is: a program's, with its queue, or a caller's.
struct party {
    struct vb_chainprog *prog;
    uint32_t queue;
    struct vb_caller *caller;
    uint32_t owner;
};

static bool find_party(struct vb_chainnic *nic, uint32_t qpn, struct party *party)
{
    struct vb_chainworld *w = nic->world;

    memset(party, 0, sizeof *party);
    party->prog = vb_chainprog_find(nic, qpn, &party->queue);
    if (party->prog) {
        party->owner = party->prog->opts.owner;
        return true;
    }
    for (uint32_t i = 0; i < w->callers; i++)
        if (w->caller[i].nic == nic && w->caller[i].made && w->caller[i].qp.qpn == qpn) {
            party->caller = &w->caller[i];
            party->owner = w->caller[i].owner;
            return true;
        }
    return false;
}

// ---- frames

// A request that is sent again is the same, whatever the program has become since.
static void check_again(struct vb_chainnic *nic, const struct party *party, uint8_t *bytes,
                        uint32_t len, const struct vb_packet *pkt)
{
    struct vb_chainprog *p = party->prog;
    uint32_t at = pkt->psn % VB_CHAINS_SENT;

    bytes[ACK_REQUEST_AT] &= 0x7f;
    uint64_t digest = vb_digest_bytes(bytes, len - VB_ICRC_BYTES) | 1;
    if (p->sent[at] && p->sent_psn[at] == pkt->psn) {
        vb_cover(nic->world->cover, VB_COVER_CHAIN_REPLY_AGAIN);
        if (p->sent[at] != digest)
            vb_chainworld_violate(nic->world,
                                  "NIC %u: owner %u sent PSN %u again with other contents",
                                  nic->index, party->owner, pkt->psn);
    }
    p->sent[at] = digest;
    p->sent_psn[at] = pkt->psn;
}

static void frame_out(struct vb_chainnic *nic, const struct vb_step *step,
                      const struct party *party)
{
    const struct vb_txq *q = vb_pu_txq(nic->unit[nic->at].pu);
    const struct vb_tx_frame *frame = &q->frame[q->count - 1];
    const struct vb_caller *c = party->caller;
    uint32_t peer =
        party->prog ? party->prog->peer_qpn : c->prog->queue[vb_chainprog_peer(c->prog)].qpn;
    const struct vb_ip *ip = party->prog ? &party->prog->peer_ip : &c->server->ip;
    uint8_t bytes[VB_FRAME_MAX];
    struct vb_packet pkt;

    vb_tx_copy(q, frame, bytes);
    if (vb_packet_decode(bytes, frame->len, &pkt) != VB_DECODE_OK || pkt.dest_qpn != peer ||
        pkt.psn != step->psn || !vb_ip_equal(&frame->path->remote, ip))
        vb_chainworld_violate(nic->world, "NIC %u: owner %u sent a frame that is not for its peer",
                              nic->index, party->owner);
    else if (party->prog && pkt.facts & VB_OP_REQUEST)
        check_again(nic, party, bytes, frame->len, &pkt);
}

static void frame_in(struct vb_chainnic *nic, const struct vb_step *step, const struct party *party)
{
    struct vb_coverage *cover = nic->world->cover;

    if (!party->prog)
        return;
    if (step->verdict == VB_RX_DUPLICATE)
        vb_cover(cover, VB_COVER_CHAIN_REQUEST_AGAIN);
    else if (step->verdict == VB_RX_RNR)
        vb_cover(cover, VB_COVER_CHAIN_OVERRUN);
    else if (step->verdict == VB_RX_RETRY && step->detail >> 5 == RNR_NAK)
        vb_cover(cover, VB_COVER_CHAIN_STARVED);
}

// ---- programs

static void passed(struct vb_chainnic *nic, const struct vb_chainprog *p, uint64_t now)
{
    static const struct {
        uint32_t bits;
        enum vb_cover_row row;
    } wraps[] = {
        {16, VB_COVER_CHAIN_WRAP_16}, {24, VB_COVER_CHAIN_WRAP_24}, {32, VB_COVER_CHAIN_WRAP_32}};

    for (int i = 0; i < 3; i++)
        if (now == 1ull << wraps[i].bits && p->opts.start)
            vb_cover(nic->world->cover, wraps[i].row);
}

static void executed(struct vb_chainnic *nic, const struct vb_step *step, const struct party *party)
{
    struct vb_chainqueue *q = &party->prog->queue[party->queue];

    if (party->prog->stopped)
        vb_chainworld_violate(nic->world, "NIC %u: owner %u executes after its end", nic->index,
                              party->owner);
    if (q->last && step->counter <= q->last)
        vb_chainworld_violate(nic->world,
                              "NIC %u: owner %u executes entry %" PRIu64 " after %" PRIu64,
                              nic->index, party->owner, step->counter, q->last);
    for (uint64_t n = q->last ? q->last + 1 : step->counter; n <= step->counter; n++)
        passed(nic, party->prog, n);
    q->last = step->counter;
}

// A queue fails because its peer is silent, or because its program, its peer or its host did wrong.
// The completions that a failed peer queue flushes also satisfy WAITs, so the loops run on with
// entries that were never filled in.
static enum vb_excuse reason_of(const struct vb_chainprog *p, uint8_t syndrome)
{
    if (p->stopped && syndrome == VB_SYN_FLUSH)
        return VB_EXCUSE_CHAIN_STOPPED;
    if (syndrome == VB_SYN_RETRY_EXC)
        return VB_EXCUSE_COUNT;
    if (p->hostile)
        return VB_EXCUSE_CHAIN_HOSTILE;
    return p->end.silent ? VB_EXCUSE_CHAIN_ORPHAN : VB_EXCUSE_COUNT;
}

static void failed(struct vb_chainnic *nic, const struct vb_step *step, const struct party *party)
{
    struct vb_chainprog *p = party->prog;
    struct vb_chainqueue *q = &p->queue[party->queue];
    bool peer = p->image->queue[party->queue].kind == VB_QUEUE_PEER;

    if (q->fault) {
        if (step->detail != VB_SYN_FLUSH)
            vb_chainworld_violate(nic->world, "NIC %u: a queue of owner %u failed twice: %u, %u",
                                  nic->index, party->owner, q->fault, step->detail);
        return;
    }
    q->fault = step->detail;
    vb_chainworld_note(nic->world, "nic%u fault    owner %u queue %u: %u", nic->index, party->owner,
                       party->queue, step->detail);
    if (step->detail == VB_SYN_RETRY_EXC && peer)
        vb_cover(nic->world->cover, VB_COVER_CHAIN_LOST);
    else if (p->hostile && step->detail != VB_SYN_FLUSH)
        vb_cover(nic->world->cover, VB_COVER_CHAIN_FAILED);
    if (step->detail == VB_SYN_RETRY_EXC && peer) {
        vb_chainprog_ends(p);
        return;
    }
    enum vb_excuse why = reason_of(p, step->detail);
    if (why != VB_EXCUSE_COUNT)
        vb_excuse(nic->world->cover, why);
    else
        vb_chainworld_violate(nic->world, "NIC %u: a queue of owner %u failed with syndrome %u",
                              nic->index, party->owner, step->detail);
}

static void caller_step(struct vb_chainnic *nic, const struct vb_step *step, struct vb_caller *c)
{
    vb_chainend_step(&c->end, step, nic->world->now_ns);
    if (step->kind == VB_STEP_COMPLETE && step->detail == VB_SYN_RETRY_EXC)
        vb_caller_ends(c);
}

// ---- all steps

static void digest_step(struct vb_chainnic *nic, const struct vb_step *s)
{
    struct vb_digest *d = &nic->world->digest;

    vb_digest_add(d, nic->world->now_ns);
    vb_digest_add(d, (uint64_t)nic->index << 56 | (uint64_t)s->kind << 48 |
                         (uint64_t)s->opcode << 40 | (uint64_t)s->verdict << 32 | s->qpn);
    vb_digest_add(d, (uint64_t)s->psn << 32 | s->bytes);
    vb_digest_add(d, s->counter << 8 | s->detail);
}

static void judge_touches(struct vb_chainnic *nic, const struct vb_step *step, uint32_t owner)
{
    for (uint32_t i = 0; i < step->touches; i++)
        if (step->touch[i].len && !vb_piece_allows(nic, owner, &step->touch[i]))
            vb_chainworld_violate(nic->world, "NIC %u: owner %u %s %u bytes that are not its own",
                                  nic->index, owner, step->touch[i].write ? "wrote" : "read",
                                  step->touch[i].len);
}

void vb_chainnic_judge(struct vb_chainnic *nic, const struct vb_step *step)
{
    struct vb_chainworld *w = nic->world;
    struct party party;
    bool known = find_party(nic, step->qpn, &party);

    w->events++;
    digest_step(nic, step);
    vb_chainworld_note(w,
                       "nic%u step %d qp %06x op %02x psn %u counter %" PRIu64 " bytes %u %02x %u",
                       nic->index, (int)step->kind, step->qpn, step->opcode, step->psn,
                       step->counter, step->bytes, step->detail, step->verdict);
    if (!known) {
        if (step->kind != VB_STEP_FRAME_IN || step->touches)
            vb_chainworld_violate(w, "NIC %u: a step for no queue pair", nic->index);
        return;
    }
    judge_touches(nic, step, party.owner);
    if (step->kind == VB_STEP_FRAME_OUT)
        frame_out(nic, step, &party);
    else if (step->kind == VB_STEP_FRAME_IN)
        frame_in(nic, step, &party);
    if (party.caller && party.caller->prog)
        caller_step(nic, step, party.caller);
    if (!party.prog)
        return;
    if (party.queue == (uint32_t)vb_chainprog_peer(party.prog))
        vb_chainend_step(&party.prog->end, step, w->now_ns);
    if (step->kind == VB_STEP_EXEC)
        executed(nic, step, &party);
    else if (step->kind == VB_STEP_COMPLETE && step->detail)
        failed(nic, step, &party);
    else if (step->kind == VB_STEP_TIMER && party.prog->opts.rate)
        vb_cover(w->cover, VB_COVER_CHAIN_RATED);
}
