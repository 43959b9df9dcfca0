// SPDX-License-Identifier: Apache-2.0
// The programs of the communication managers' ends: they take events late, change their minds, and
// die.
#include "sim/cm_world.h"

#include "base/bytes.h"
#include "cm/route.h"

#include <errno.h>

enum {
    PER_ACT = 3 // events that are taken at once
};

static void cover(struct vb_cmworld *w, enum vb_cmcover_row row)
{
    w->cover->row[row]++;
}

// Those that share an address have ports of their own.
uint64_t vb_cmhost_service(uint32_t end, enum vb_cmw_service service)
{
    return vb_cma_service_id(VB_CMA_TCP, (uint16_t)(100u + 1000u * end + (uint32_t)service));
}

static void listen_to(struct vb_cmworld *w, struct vb_cmw_end *e, enum vb_cmw_service service)
{
    if (vb_cm_listen(e->cm, vb_cmhost_service(e->index, service), 0, w->backlog, e) != 0)
        vb_cmworld_violate(w, "end %u cannot listen", e->index);
}

// Of those that are free; often the one of its former life, or of another who died.
static uint32_t draw_manager(struct vb_cmworld *w, const struct vb_cmw_end *e)
{
    bool again = e->life > 0 && vb_cmworld_draw(w, 2);

    for (;;) {
        uint32_t few = vb_cmworld_draw(w, 2) ? 8 : 511;
        uint32_t number = again ? e->manager : vb_cmworld_draw(w, few);
        bool taken = false;
        for (uint32_t i = 0; i < w->ends; i++)
            taken |= w->end[i].cm && w->end[i].manager == number;
        if (!taken)
            return number;
        again = false;
    }
}

int vb_cmhost_birth(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    struct vb_cm_opts opts = w->opts;

    opts.local = e->ip;
    opts.ca_guid = e->index + 1;
    opts.seed[0] = w->seed;
    opts.seed[1] = (uint64_t)e->index << 32 | e->life;
    if (w->shared) {
        opts.id_prefix_bits = VB_CM_PREFIX_BITS;
        opts.id_prefix = e->manager = draw_manager(w, e);
    }
    e->cm = vb_cm_create(&opts);
    e->listens_sometimes = false;
    if (!e->cm)
        return -ENOMEM;
    listen_to(w, e, VB_CMW_SERVED);
    return 0;
}

static void die(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    vb_cmworld_note(w, "end %u dies", e->index);
    cover(w, VB_CMCOVER_DIED);
    vb_cm_destroy(e->cm);
    e->cm = NULL;
    e->life++;
    e->born_at_ns = w->now_ns + vb_prng_below(&w->prng, 4 * w->answer_ns);
    if (vb_cmworld_draw(w, 2))
        e->next_qpn -= e->next_qpn > 4 ? 4 : 0; // it has the same numbers again
}

// ---- beginnings

static uint32_t draw_qpn(struct vb_cmworld *w, struct vb_cmw_end *e, bool *reused)
{
    *reused = !w->quiet && vb_cmworld_chance(w, w->reuse_ppm) && e->next_qpn > 1;
    if (*reused)
        cover(w, VB_CMCOVER_QPN_REUSED);
    return *reused ? e->next_qpn - 1 : e->next_qpn++;
}

// A number that an earlier pact has, or an earlier life: each may find the other stale.
static bool was_used(struct vb_cmworld *w, const struct vb_cmw_end *e, uint32_t qpn)
{
    bool used = false;

    for (uint32_t i = 0; i < w->pacts; i++)
        for (int s = 0; s < 2; s++)
            if (w->pact[i].side[s].end == e->index && w->pact[i].side[s].qpn == qpn)
                used = w->pact[i].reused = true;
    return used;
}

void vb_cmhost_connect(struct vb_cmworld *w, struct vb_cmw_end *e, uint32_t peer,
                       enum vb_cmw_service service)
{
    uint8_t data[VB_CM_PRIVATE_MAX];
    bool reused = false;

    if (w->pacts == VB_CMW_PACTS)
        return;
    struct vb_cmw_pact *p = &w->pact[w->pacts];
    uint32_t qpn = draw_qpn(w, e, &reused);
    reused |= was_used(w, e, qpn);
    *p = (struct vb_cmw_pact){.peer = peer, .service = service, .reused = reused};
    p->calm = w->quiet;
    p->peer_life = w->end[peer].cm ? w->end[peer].life : UINT32_MAX;
    p->side[VB_CMW_ACTIVE] = (struct vb_cmw_side){
        .end = e->index, .life = e->life, .qpn = qpn, .psn = vb_cmworld_draw(w, 1 << 24)};
    vb_cmjudge_pattern(w->pacts, VB_CM_REQ, data);
    const struct vb_cm_request request = {
        .peer = w->end[peer].ip,
        .service_id = vb_cmhost_service(peer, service),
        .qpn = qpn,
        .psn = p->side[VB_CMW_ACTIVE].psn,
        .mtu = 5,
        .retries = 7,
        .rnr_retries = 7,
        .private_data = {data, 92},
    };
    int err = vb_cm_connect(e->cm, w->now_ns, &request, &p->side[VB_CMW_ACTIVE].id);
    if (err == -ENOBUFS) {
        cover(w, VB_CMCOVER_FULL);
        return;
    }
    if (err)
        vb_cmworld_violate(w, "end %u: connect: %d", e->index, err);
    vb_cmworld_note(w, "end %u: pact %u to %u is %08x", e->index, w->pacts, peer,
                    p->side[VB_CMW_ACTIVE].id);
    w->pacts++;
    vb_cmjudge_stage(w, p, VB_CMW_ACTIVE, VB_CMW_ASKED);
}

void vb_cmhost_look_up(struct vb_cmworld *w, struct vb_cmw_end *e, uint32_t peer,
                       enum vb_cmw_service service)
{
    uint8_t data[VB_CM_PRIVATE_MAX];

    if (w->lookups == VB_CMW_LOOKUPS)
        return;
    struct vb_cmw_lookup *l = &w->lookup[w->lookups];
    vb_cmjudge_pattern(w->lookups, VB_CM_SIDR_REQ, data);
    const struct vb_cm_lookup lookup = {.peer = w->end[peer].ip,
                                        .service_id = vb_cmhost_service(peer, service),
                                        .private_data = {data, 216}};
    *l = (struct vb_cmw_lookup){.end = e->index, .life = e->life, .peer = peer, .calm = w->quiet};
    if (vb_cm_sidr_ask(e->cm, w->now_ns, &lookup, &l->id) == 0)
        w->lookups++;
}

// ---- answers

static const struct vb_cm_private *private_of(struct vb_cmworld *w, const struct vb_cmw_pact *p,
                                              enum vb_cm_kind kind, uint8_t *data,
                                              struct vb_cm_private *into)
{
    vb_cmjudge_pattern((uint32_t)(p - w->pact), kind, data);
    *into = (struct vb_cm_private){data, vb_cm_private_len(kind)};
    return into;
}

static void reject(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    struct vb_cmw_side *s = &p->side[side];
    struct vb_cm_refusal refusal = {.reason = VB_CM_CONSUMER};
    uint8_t data[VB_CM_PRIVATE_MAX];

    private_of(w, p, VB_CM_REJ, data, &refusal.private_data);
    if (vb_cm_reject(w->end[s->end].cm, w->now_ns, s->id, &refusal) != 0)
        return; // it is over already, and an event says so
    s->rejected = true;
    cover(w, side == VB_CMW_ACTIVE ? VB_CMCOVER_REJECTED_REP : VB_CMCOVER_REJECTED_REQ);
    vb_cmjudge_stage(w, p, side, VB_CMW_GONE);
}

static void accept_it(struct vb_cmworld *w, struct vb_cmw_pact *p)
{
    struct vb_cmw_side *s = &p->side[VB_CMW_PASSIVE];
    struct vb_cmw_end *e = &w->end[s->end];
    uint8_t data[VB_CM_PRIVATE_MAX];
    bool reused;
    struct vb_cm_answer answer = {.psn = vb_cmworld_draw(w, 1 << 24), .rnr_retries = 7};

    answer.qpn = draw_qpn(w, e, &reused);
    p->reused |= was_used(w, e, answer.qpn) || reused;
    private_of(w, p, VB_CM_REP, data, &answer.private_data);
    if (vb_cm_accept(e->cm, w->now_ns, s->id, &answer) != 0)
        return;
    s->qpn = answer.qpn;
    s->psn = answer.psn;
    vb_cmjudge_stage(w, p, VB_CMW_PASSIVE, VB_CMW_ANSWERED);
}

static void confirm(struct vb_cmworld *w, struct vb_cmw_pact *p)
{
    struct vb_cmw_side *s = &p->side[VB_CMW_ACTIVE];
    struct vb_cm_private with;
    uint8_t data[VB_CM_PRIVATE_MAX];

    if (vb_cm_confirm(w->end[s->end].cm, w->now_ns, s->id,
                      private_of(w, p, VB_CM_RTU, data, &with)) != 0)
        return;
    p->confirmed = s->stood = true;
    vb_cmjudge_stage(w, p, VB_CMW_ACTIVE, VB_CMW_STANDS);
}

static void delay(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    struct vb_cmw_side *s = &p->side[side];
    if (vb_cm_delay(w->end[s->end].cm, w->now_ns, s->id, w->mra) == 0)
        p->delayed = true;
}

void vb_cmhost_disconnect(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    struct vb_cmw_side *s = &p->side[side];
    struct vb_cm_private with;
    uint8_t data[VB_CM_PRIVATE_MAX];

    if (vb_cm_disconnect(w->end[s->end].cm, w->now_ns, s->id,
                         private_of(w, p, VB_CM_DREQ, data, &with)) != 0)
        return;
    s->left = true;
    vb_cmjudge_stage(w, p, side, VB_CMW_LEAVING);
}

static void abandon(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    struct vb_cmw_side *s = &p->side[side];

    if (vb_cm_abandon(w->end[s->end].cm, w->now_ns, s->id) != 0)
        vb_cmworld_violate(w, "end %u: %08x cannot be abandoned", s->end, s->id);
    s->left = s->abandoned = true;
    cover(w, VB_CMCOVER_ABANDONED);
    vb_cmjudge_stage(w, p, side, VB_CMW_GONE);
}

// ---- what a program does with one of its connections

static void decide(struct vb_cmworld *w, struct vb_cmw_pact *p, int side)
{
    struct vb_cmw_side *s = &p->side[side];
    uint32_t dice = vb_cmworld_draw(w, 100);
    bool ready = side == VB_CMW_ACTIVE ? s->stage == VB_CMW_ANSWERED : s->stage == VB_CMW_ASKED;

    if (ready && !w->quiet && dice < 12)
        reject(w, p, side);
    else if (ready && !w->quiet && dice < 25)
        delay(w, p, side);
    else if (ready && (w->quiet || dice < 85))
        side == VB_CMW_ACTIVE ? confirm(w, p) : accept_it(w, p);
    else if (!w->quiet && dice >= 99)
        abandon(w, p, side);
    else if (s->stage == VB_CMW_STANDS && !w->quiet && dice < 15)
        vb_cmhost_disconnect(w, p, side);
    else if (s->stage == VB_CMW_ANSWERED && side == VB_CMW_PASSIVE && p->confirmed &&
             p->confirmed_id == s->id && dice < 10 &&
             vb_cm_heard(w->end[s->end].cm, w->now_ns, s->id) == 0) {
        cover(w, VB_CMCOVER_HEARD);
        p->heard = true;
    }
}

static void decide_all(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    for (uint32_t i = 0; i < w->pacts; i++)
        for (int side = 0; side < 2; side++) {
            struct vb_cmw_side *s = &w->pact[i].side[side];
            if (s->end == e->index && s->life == e->life && s->stage != VB_CMW_NONE &&
                s->stage < VB_CMW_ENDED && !w->violated && (w->quiet || vb_cmworld_draw(w, 3) == 0))
                decide(w, &w->pact[i], side);
        }
}

static void reply_to_lookup(struct vb_cmworld *w, struct vb_cmw_end *e,
                            const struct vb_cm_event *event)
{
    struct vb_cm_found found = {.status = VB_SIDR_OK, .qpn = e->index + 7, .qkey = e->life};
    uint8_t data[VB_CM_PRIVATE_MAX];

    if (!w->quiet && vb_cmworld_draw(w, 5) == 0)
        found.status = VB_SIDR_REJECTED;
    vb_cmjudge_pattern(vb_get_be32(event->message.private_data), VB_CM_SIDR_REP, data);
    found.private_data = (struct vb_cm_private){data, 136};
    if (vb_cm_sidr_reply(e->cm, w->now_ns, event->id, &found) != 0)
        vb_cmworld_violate(w, "end %u cannot answer a lookup", e->index);
}

static void take_events(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    struct vb_cm_event event;

    for (int i = 0; i < PER_ACT && !w->violated && vb_cm_take_event(e->cm, &event); i++) {
        w->cover->event[event.kind]++;
        vb_cmworld_note(w, "end %u: %s of %08x", e->index, vb_cm_event_text(event.kind), event.id);
        vb_cmjudge_event(w, e, &event);
        if (event.kind == VB_CM_EVENT_SIDR_REQUEST)
            reply_to_lookup(w, e, &event);
    }
}

static void begin_something(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    uint32_t peer = vb_cmworld_draw(w, w->ends);
    enum vb_cmw_service service =
        vb_cmworld_draw(w, 5) ? VB_CMW_SERVED : (enum vb_cmw_service)vb_cmworld_draw(w, 3);

    if (vb_cmworld_draw(w, 6) == 0)
        vb_cmhost_look_up(w, e, peer, service);
    else if (w->pacts < w->quota)
        vb_cmhost_connect(w, e, peer, service);
    if (vb_cmworld_draw(w, 20) == 0) {
        if (e->listens_sometimes)
            vb_cm_unlisten(e->cm, w->now_ns, vb_cmhost_service(e->index, VB_CMW_SOMETIMES), 0);
        else
            listen_to(w, e, VB_CMW_SOMETIMES);
        e->listens_sometimes = !e->listens_sometimes;
    }
}

void vb_cmhost_act(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    e->act_at_ns = w->now_ns + 1 + vb_prng_below(&w->prng, w->answer_ns / 3);
    take_events(w, e);
    if (w->violated)
        return;
    decide_all(w, e);
    if (!w->quiet) {
        if (vb_cmworld_draw(w, 3) == 0)
            begin_something(w, e);
        if (!w->healed && vb_cmworld_chance(w, w->cut_ppm))
            e->cut_until_ns = w->now_ns + vb_prng_below(&w->prng, 12 * w->answer_ns);
        if (!w->healed && vb_cmworld_chance(w, w->die_ppm)) {
            die(w, e);
            return;
        }
    }
    vb_cmjudge_states(w, e);
}
