// SPDX-License-Identifier: Apache-2.0
// What either side of a pact may be told, and what both must have been told in the end.
#include "sim/cm_world.h"

#include "base/bytes.h"
#include "cm/conn.h"
#include "sim/cm_sane.h"

static void cover(struct vb_cmworld *w, enum vb_cmcover_row row)
{
    w->cover->row[row]++;
}

void vb_cmjudge_pattern(uint32_t pact, enum vb_cm_kind kind, uint8_t *data)
{
    struct vb_prng prng = {(uint64_t)pact << 8 | (uint64_t)kind};
    uint32_t len = vb_cm_private_len(kind);

    memset(data, 0, VB_CM_PRIVATE_MAX);
    for (uint32_t i = 4; i < len; i++)
        data[i] = (uint8_t)vb_prng_next(&prng);
    vb_put_be32(data, pact);
}

void vb_cmjudge_stage(struct vb_cmworld *w, struct vb_cmw_pact *p, int side,
                      enum vb_cmw_stage stage)
{
    p->side[side].stage = stage;
    p->side[side].since_ns = w->now_ns;
}

void vb_cmjudge_states(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    if (!e->cm)
        return;
    for (uint32_t i = 0; i < e->cm->opts.connections; i++)
        if (e->cm->conn[i].state != VB_CM_FREE)
            w->cover->state[e->cm->conn[i].state]++;
    if (!vb_cmsane(e->cm))
        vb_cmworld_violate(w, "end %u: the manager contradicts itself", e->index);
}

bool vb_cmjudge_is_still(const struct vb_cmworld *w)
{
    if (w->flights)
        return false;
    for (uint32_t i = 0; i < w->ends; i++) {
        const struct vb_cm *cm = w->end[i].cm;
        if (!cm || !vb_fifo_empty(&cm->due))
            return false;
        for (uint32_t j = 0; j < cm->opts.connections; j++)
            if (cm->conn[j].state != VB_CM_FREE && cm->conn[j].state != VB_CM_ESTABLISHED)
                return false;
    }
    return true;
}

static struct vb_cmw_pact *find(struct vb_cmworld *w, const struct vb_cmw_end *e, uint32_t id,
                                int *side)
{
    for (uint32_t i = w->pacts; i-- > 0;)
        for (*side = 0; *side < 2; ++*side) {
            const struct vb_cmw_side *s = &w->pact[i].side[*side];
            if (s->end == e->index && s->life == e->life && s->id == id &&
                s->stage != VB_CMW_NONE && s->stage != VB_CMW_GONE)
                return &w->pact[i];
        }
    return NULL;
}

static void illegal(struct vb_cmworld *w, const struct vb_cmw_end *e,
                    const struct vb_cm_event *event, const char *why)
{
    vb_cmworld_violate(w, "end %u is told '%s' of %08x: %s", e->index,
                       vb_cm_event_text(event->kind), event->id, why);
}

static bool has_pattern(const struct vb_cm_event *event, uint32_t pact, enum vb_cm_kind kind)
{
    uint8_t wanted[VB_CM_PRIVATE_MAX];

    vb_cmjudge_pattern(pact, kind, wanted);
    return event->private_len == vb_cm_private_len(kind) && event->message.kind == kind &&
           memcmp(event->message.private_data, wanted, sizeof wanted) == 0;
}

// ---- requests

// An id whose pact is only the forger's.
static struct vb_cmw_pact *forged_request(struct vb_cmworld *w, struct vb_cmw_end *e,
                                          const struct vb_cm_event *event)
{
    struct vb_cmw_pact *p = &w->pact[w->pacts];

    if (!has_pattern(event, UINT32_MAX, VB_CM_REQ)) {
        illegal(w, e, event, "nobody has asked that");
        return NULL;
    }
    if (w->pacts == VB_CMW_PACTS) {
        vb_cm_abandon(e->cm, w->now_ns, event->id);
        return NULL;
    }
    w->pacts++;
    *p = (struct vb_cmw_pact){.forged = true, .peer = e->index};
    p->side[VB_CMW_ACTIVE].end = VB_CMW_ENDS;
    return p;
}

// A second request of one REQ: only where nothing was left that could know it.
static const char *judge_again(const struct vb_cmworld *w, const struct vb_cmw_pact *p)
{
    const struct vb_cmw_side *s = &p->side[VB_CMW_PASSIVE];

    if (s->stage == VB_CMW_NONE || s->life != w->end[s->end].life)
        return NULL;
    if (s->stage != VB_CMW_GONE)
        return "the first one is not over";
    if (s->stood)
        return "it stood already";
    if (s->rejected && !p->delayed && w->full_ppm == 0)
        return "it was rejected already";
    w->cover->row[VB_CMCOVER_ASKED_AGAIN]++;
    return NULL;
}

static void judge_request(struct vb_cmworld *w, struct vb_cmw_end *e,
                          const struct vb_cm_event *event)
{
    uint32_t number = vb_get_be32(event->message.private_data);
    struct vb_cmw_pact *p = number < w->pacts ? &w->pact[number] : NULL;

    if (!p || p->forged) {
        p = forged_request(w, e, event);
    } else {
        const struct vb_cmw_side *a = &p->side[VB_CMW_ACTIVE];
        const char *why = judge_again(w, p);
        if (!has_pattern(event, number, VB_CM_REQ))
            why = "the private data changed on the way";
        else if (p->peer != e->index || !vb_ip_equal(&event->peer, &w->end[a->end].ip))
            why = "it is another's";
        else if (event->message.req.qpn != a->qpn || event->message.req.psn != a->psn ||
                 event->message.local_id != a->id)
            why = "the queue pair is another";
        else if (p->service == VB_CMW_UNKNOWN)
            why = "nobody serves it";
        if (why)
            illegal(w, e, event, why);
    }
    if (!p)
        return;
    // What the first one was told may still be under way when there is a second.
    const struct vb_cmw_side first = p->side[VB_CMW_PASSIVE];
    p->side[VB_CMW_PASSIVE] = (struct vb_cmw_side){.end = e->index,
                                                   .life = e->life,
                                                   .id = event->id,
                                                   .rejected = first.rejected,
                                                   .abandoned = first.abandoned,
                                                   .ended_by_time = first.ended_by_time};
    vb_cmjudge_stage(w, p, VB_CMW_PASSIVE, VB_CMW_ASKED);
}

// ---- what follows

static const char *judge_reply(struct vb_cmworld *w, struct vb_cmw_pact *p,
                               const struct vb_cm_event *event)
{
    const struct vb_cmw_side *b = &p->side[VB_CMW_PASSIVE];

    if (p->side[VB_CMW_ACTIVE].stage != VB_CMW_ASKED)
        return "it was answered before";
    if (!has_pattern(event, (uint32_t)(p - w->pact), VB_CM_REP))
        return "the private data are not what was accepted with";
    if (event->message.local_id == b->id && event->message.rep.qpn != b->qpn)
        return "the queue pair is another";
    p->confirmed_id = event->message.local_id;
    vb_cmjudge_stage(w, p, VB_CMW_ACTIVE, VB_CMW_ANSWERED);
    return NULL;
}

// One queue pair of the peer's cannot be in two connections.
static bool is_twin(struct vb_cmworld *w, const struct vb_cmw_pact *p)
{
    const struct vb_cmw_side *a = &p->side[VB_CMW_ACTIVE], *b = &p->side[VB_CMW_PASSIVE];

    for (uint32_t i = 0; i < w->pacts; i++) {
        const struct vb_cmw_pact *q = &w->pact[i];
        const struct vb_cmw_side *other = &q->side[VB_CMW_PASSIVE];
        if (q != p && other->end == b->end && other->life == b->life &&
            q->side[VB_CMW_ACTIVE].end == a->end && q->side[VB_CMW_ACTIVE].qpn == a->qpn &&
            vb_cm_state(w->end[b->end].cm, other->id) == VB_CM_ESTABLISHED &&
            vb_cm_state(w->end[b->end].cm, b->id) == VB_CM_ESTABLISHED &&
            other->stage != VB_CMW_GONE)
            return true;
    }
    return false;
}

static const char *judge_established(struct vb_cmworld *w, struct vb_cmw_pact *p,
                                     const struct vb_cm_event *event)
{
    struct vb_cmw_side *b = &p->side[VB_CMW_PASSIVE];

    if (b->stage != VB_CMW_ANSWERED)
        return "it was not accepted";
    if (!p->confirmed || p->confirmed_id != b->id)
        return "the active side has not confirmed it";
    if (is_twin(w, p))
        return "its queue pair is in another connection";
    if (event->private_len ? !has_pattern(event, (uint32_t)(p - w->pact), VB_CM_RTU) : !p->heard)
        return "the private data are not what was confirmed with";
    b->stood = true;
    vb_cmjudge_stage(w, p, VB_CMW_PASSIVE, VB_CMW_STANDS);
    return NULL;
}

static bool is_alive(const struct vb_cmworld *w, const struct vb_cmw_side *s)
{
    return s->end < w->ends && s->life == w->end[s->end].life && w->end[s->end].cm;
}

// The other side is at work on the same connection and knows nothing of an end. Its program may
// have heard less, so its manager is asked.
static bool goes_on(const struct vb_cmworld *w, const struct vb_cmw_side *s)
{
    if (!is_alive(w, s) || s->stage == VB_CMW_NONE || s->stage == VB_CMW_GONE)
        return false;
    enum vb_cm_state state = vb_cm_state(w->end[s->end].cm, s->id);
    return state >= VB_CM_REQ_SENT && state <= VB_CM_ESTABLISHED;
}

static const char *judge_reason(const struct vb_cmworld *w, const struct vb_cmw_pact *p, int side,
                                const struct vb_cm_event *event)
{
    const struct vb_cmw_side *other = &p->side[!side];

    switch (event->reason) {
    case VB_CM_CONSUMER: {
        const uint8_t *d = event->message.private_data;
        bool without = vb_get_be32(d) == 0 && d[4] == 0 && d[5] == 0;
        if (other->abandoned || (p->service == VB_CMW_SOMETIMES && without))
            return NULL; // its program went, or its listener
        if (!other->rejected && is_alive(w, other))
            return "the other program has not rejected it";
        return !is_alive(w, other) || has_pattern(event, (uint32_t)(p - w->pact), VB_CM_REJ)
                   ? NULL
                   : "the private data are not what was rejected with";
    }
    case VB_CM_INVALID_SERVICE:
        return p->service == VB_CMW_SERVED && p->peer_life == w->end[p->peer].life
                   ? "its service is there"
                   : NULL; // while its end was dead, another one at the address said so
    case VB_CM_STALE:
        return p->reused || other->ended_by_time ||
                       (other->stage != VB_CMW_NONE && !goes_on(w, other))
                   ? NULL
                   : "its queue pair is new";
    case VB_CM_TIMEOUT:
        return goes_on(w, other) && side == VB_CMW_PASSIVE ? "the other side still waits" : NULL;
    case VB_CM_INVALID_ID: return goes_on(w, other) ? "the other side has this id" : NULL;
    case VB_CM_NO_RESOURCES: return p->calm ? "there is room" : NULL;
    default: return "no such reason was given";
    }
}

static const char *judge_rejected(struct vb_cmworld *w, struct vb_cmw_pact *p, int side,
                                  const struct vb_cm_event *event)
{
    struct vb_cmw_side *s = &p->side[side];

    if (s->stage != VB_CMW_ASKED && s->stage != VB_CMW_ANSWERED)
        return "there is nothing to reject";
    if (p->calm)
        return "there is no reason to";
    vb_cmjudge_stage(w, p, side, VB_CMW_ENDED);
    if (!event->by_peer) // by the manager itself
        return event->reason == VB_CM_STALE ? NULL : "no reason of its own";
    return p->forged ? NULL : judge_reason(w, p, side, event);
}

static const char *judge_unreachable(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    struct vb_cmw_side *s = &p->side[side];
    enum vb_cmw_stage wanted = side == VB_CMW_ACTIVE ? VB_CMW_ASKED : VB_CMW_ANSWERED;
    uint64_t least_ns = w->answer_ns * (w->opts.retries + 1u);

    if (s->stage != wanted)
        return "it has an answer";
    if (!p->forged && w->now_ns - s->since_ns < least_ns)
        return "it gave up too early";
    if (p->calm)
        return "nothing is lost here";
    cover(w,
          side == VB_CMW_ACTIVE ? VB_CMCOVER_UNREACHABLE_ACTIVE : VB_CMCOVER_UNREACHABLE_PASSIVE);
    s->ended_by_time = true;
    vb_cmjudge_stage(w, p, side, VB_CMW_ENDED);
    return NULL;
}

static const char *judge_disconnected(struct vb_cmworld *w, struct vb_cmw_pact *p, int side,
                                      const struct vb_cm_event *event)
{
    struct vb_cmw_side *s = &p->side[side], *other = &p->side[!side];
    bool early = side == VB_CMW_PASSIVE && s->stage == VB_CMW_ANSWERED;

    if (s->stage != VB_CMW_STANDS && s->stage != VB_CMW_LEAVING && !early)
        return "it was no connection";
    bool ours = s->stage == VB_CMW_LEAVING;
    if (p->calm && ours && !w->lost && w->now_ns - s->since_ns > w->answer_ns)
        return "that took too long where nothing is lost";
    vb_cmjudge_stage(w, p, side, VB_CMW_ENDED);
    if (!event->by_peer) {
        cover(w, other->stage == VB_CMW_STANDS || !is_alive(w, other)
                     ? VB_CMCOVER_DISCONNECT_SILENT
                     : VB_CMCOVER_DISCONNECT_ASKED);
        return ours || p->reused ? NULL : "nobody has asked for it";
    }
    if (event->message.kind == VB_CM_REJ) {
        cover(w, VB_CMCOVER_DISCONNECT_REJ);
        return goes_on(w, other) ? "the other side goes on" : NULL;
    }
    cover(w, early  ? VB_CMCOVER_DISCONNECT_EARLY
             : ours ? VB_CMCOVER_DISCONNECT_BOTH
                    : VB_CMCOVER_DISCONNECT_PEER);
    if (is_alive(w, other) && !other->left && !p->reused)
        return "the other side has not left";
    bool plain = event->message.private_data[4] == 0 && event->message.private_data[5] == 0;
    return plain || has_pattern(event, (uint32_t)(p - w->pact), VB_CM_DREQ)
               ? NULL
               : "the private data are not what was disconnected with";
}

static const char *judge_gone(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    if (p->side[side].stage != VB_CMW_ENDED)
        return "nothing was said of its end";
    vb_cmjudge_stage(w, p, side, VB_CMW_GONE);
    return NULL;
}

// ---- lookups

static void judge_lookup(struct vb_cmworld *w, struct vb_cmw_end *e,
                         const struct vb_cm_event *event)
{
    struct vb_cmw_lookup *l = NULL;

    for (uint32_t i = 0; i < w->lookups && !l; i++)
        if (w->lookup[i].end == e->index && w->lookup[i].life == e->life &&
            w->lookup[i].id == event->id && !w->lookup[i].over)
            l = &w->lookup[i];
    if (!l) {
        illegal(w, e, event, "the id is nobody's");
        return;
    }
    bool found = event->message.sidr_rep.status == VB_SIDR_OK;
    if (event->kind == VB_CM_EVENT_GONE) {
        l->over = true;
        if (!l->told)
            illegal(w, e, event, "nothing was said of it");
        return;
    }
    if (l->told || (l->calm && (event->kind != VB_CM_EVENT_SIDR_REPLY || !found)))
        illegal(w, e, event, "that cannot be its answer");
    l->told = true;
    if (event->kind == VB_CM_EVENT_UNREACHABLE) {
        cover(w, VB_CMCOVER_SIDR_UNREACHABLE);
    } else if (event->kind == VB_CM_EVENT_SIDR_REPLY) {
        cover(w, found ? VB_CMCOVER_SIDR_FOUND : VB_CMCOVER_SIDR_REFUSED);
        if (found && (event->message.sidr_rep.qpn != l->peer + 7 ||
                      !has_pattern(event, (uint32_t)(l - w->lookup), VB_CM_SIDR_REP)))
            illegal(w, e, event, "it is another's answer");
    } else {
        illegal(w, e, event, "it is a lookup");
    }
}

static void judge_lookup_request(struct vb_cmworld *w, struct vb_cmw_end *e,
                                 const struct vb_cm_event *event)
{
    uint32_t number = vb_get_be32(event->message.private_data);

    if (number >= w->lookups || w->lookup[number].peer != e->index ||
        !has_pattern(event, number, VB_CM_SIDR_REQ))
        illegal(w, e, event, "nobody has asked that");
}

void vb_cmjudge_event(struct vb_cmworld *w, struct vb_cmw_end *e, const struct vb_cm_event *event)
{
    const char *why = NULL;
    int side = VB_CMW_PASSIVE;

    if (event->kind == VB_CM_EVENT_REQUEST) {
        judge_request(w, e, event);
        return;
    }
    if (event->kind == VB_CM_EVENT_SIDR_REQUEST) {
        judge_lookup_request(w, e, event);
        return;
    }
    struct vb_cmw_pact *p = find(w, e, event->id, &side);
    if (!p) {
        judge_lookup(w, e, event);
        return;
    }
    switch (event->kind) {
    case VB_CM_EVENT_REPLY:
        why = side == VB_CMW_ACTIVE ? judge_reply(w, p, event) : "it is the passive side";
        break;
    case VB_CM_EVENT_ESTABLISHED:
        why = side == VB_CMW_PASSIVE ? judge_established(w, p, event) : "it is the active side";
        break;
    case VB_CM_EVENT_REJECTED: why = judge_rejected(w, p, side, event); break;
    case VB_CM_EVENT_UNREACHABLE: why = judge_unreachable(w, p, side); break;
    case VB_CM_EVENT_DISCONNECTED: why = judge_disconnected(w, p, side, event); break;
    case VB_CM_EVENT_GONE: why = judge_gone(w, p, side); break;
    default: why = "it is no lookup"; break;
    }
    if (why)
        illegal(w, e, event, why);
}

// ---- the end

static bool is_settled(enum vb_cmw_stage stage)
{
    return stage == VB_CMW_NONE || stage == VB_CMW_STANDS || stage == VB_CMW_GONE;
}

static void judge_agreement(struct vb_cmworld *w, const struct vb_cmw_pact *p)
{
    const struct vb_cmw_side *a = &p->side[VB_CMW_ACTIVE], *b = &p->side[VB_CMW_PASSIVE];
    bool a_stands = is_alive(w, a) && a->stage == VB_CMW_STANDS;
    bool b_stands = is_alive(w, b) && b->stage == VB_CMW_STANDS;
    uint32_t number = (uint32_t)(p - w->pact);

    if ((is_alive(w, a) && !is_settled(a->stage)) || (is_alive(w, b) && !is_settled(b->stage)))
        vb_cmworld_violate(w, "pact %u is not settled in time: active %d, passive %d", number,
                           a->stage, b->stage);
    if (b_stands && p->forged)
        vb_cmworld_violate(w, "pact %u stands with nobody", number);
    if (a_stands && is_alive(w, b) && b->stage == VB_CMW_NONE)
        vb_cmworld_violate(w, "pact %u stands with who was not asked", number);
    if (p->calm && a->stage != VB_CMW_GONE && !(a_stands && b_stands))
        vb_cmworld_violate(w, "pact %u does not stand, and nothing was lost", number);
    if (a_stands && b_stands && p->confirmed_id != b->id)
        vb_cmworld_violate(w, "pact %u: each side stands with another", number);
    if (a_stands && b_stands)
        cover(w, VB_CMCOVER_STANDS_BOTH);
    else if (a_stands || b_stands)
        cover(w, VB_CMCOVER_STANDS_ONE);
}

void vb_cmjudge_quiet(struct vb_cmworld *w)
{
    for (uint32_t i = 0; i < w->pacts && !w->violated; i++)
        judge_agreement(w, &w->pact[i]);
    for (uint32_t i = 0; i < w->lookups && !w->violated; i++)
        if (w->lookup[i].life == w->end[w->lookup[i].end].life && !w->lookup[i].over)
            vb_cmworld_violate(w, "lookup %u has no end", i);
}

void vb_cmjudge_empty(struct vb_cmworld *w)
{
    for (uint32_t i = 0; i < w->ends && !w->violated; i++)
        if (vb_cm_in_use(w->end[i].cm) != 0)
            vb_cmworld_violate(w, "end %u keeps %u connections", i, vb_cm_in_use(w->end[i].cm));
}
