// SPDX-License-Identifier: Apache-2.0
// The network of the communication managers, and the forger on it.
#include "sim/cm_world.h"

#include "base/bytes.h"

static void cover(struct vb_cmworld *w, enum vb_cmcover_row row)
{
    w->cover->row[row]++;
}

static void fly(struct vb_cmworld *w, uint32_t from, uint32_t to, const uint8_t mad[VB_MAD_BYTES])
{
    uint64_t delay_ns = w->life_ns / 8 + vb_prng_below(&w->prng, w->life_ns / 8);

    if (w->flights == VB_CMW_FLIGHT) // as good as lost
        return;
    if (!w->healed && vb_cmworld_chance(w, w->late_ppm)) {
        delay_ns += vb_prng_below(&w->prng, w->life_ns / 2);
        cover(w, VB_CMCOVER_OVERTAKEN);
    }
    struct vb_cmw_flight *f = &w->flight[w->flights++];
    *f = (struct vb_cmw_flight){w->now_ns + delay_ns, w->sent++, from, to, {0}};
    memcpy(f->mad, mad, VB_MAD_BYTES);
}

void vb_cmnet_put(struct vb_cmworld *w, uint32_t from, uint32_t to, const uint8_t mad[VB_MAD_BYTES])
{
    if (!w->healed && vb_cmworld_chance(w, w->loss_ppm)) {
        cover(w, VB_CMCOVER_LOST);
        return;
    }
    if (w->lose && vb_get_be16(mad + 16) == w->lose) {
        w->lose = 0;
        w->lost = true;
        return;
    }
    fly(w, from, to, mad);
    if (!w->healed && vb_cmworld_chance(w, w->double_ppm)) {
        cover(w, VB_CMCOVER_DOUBLED);
        fly(w, from, to, mad);
    }
}

static uint32_t end_of(const struct vb_cmworld *w, const struct vb_ip *ip)
{
    for (uint32_t i = 0; i < w->ends; i++)
        if (vb_ip_equal(&w->end[i].ip, ip))
            return i;
    return VB_CMW_ENDS;
}

void vb_cmnet_collect(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    struct vb_cm_message m;
    uint8_t mad[VB_MAD_BYTES];
    struct vb_ip ip;

    while (e->cm && vb_cm_take_message(e->cm, &ip, mad)) {
        uint32_t to = end_of(w, &ip);
        if (vb_cm_decode(mad, sizeof mad, &m) != VB_CM_DECODE_OK)
            vb_cmworld_violate(w, "end %u sends what is no message", e->index);
        vb_cmworld_note(w, "%u -> %u %s %08x %08x", e->index, to, vb_cm_kind_text(m.kind),
                        m.local_id, m.remote_id);
        if (to < w->ends)
            vb_cmnet_put(w, e->index, to, mad);
    }
}

static uint32_t first_of(const struct vb_cmworld *w)
{
    uint32_t first = 0;

    for (uint32_t i = 1; i < w->flights; i++) {
        const struct vb_cmw_flight *a = &w->flight[i], *b = &w->flight[first];
        if (a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order))
            first = i;
    }
    return first;
}

uint64_t vb_cmnet_next(const struct vb_cmworld *w)
{
    return w->flights ? w->flight[first_of(w)].at_ns : UINT64_MAX;
}

static const struct vb_ip stranger = {{[10] = 0xff, 0xff, 10, 9, 9, 9}};

static const struct vb_ip *source_of(const struct vb_cmworld *w, const struct vb_cmw_flight *f)
{
    return f->from < w->ends ? &w->end[f->from].ip : &stranger;
}

static void count_message(struct vb_cmworld *w, const struct vb_cmw_flight *f, uint32_t at)
{
    struct vb_cm_message m;

    if (vb_cm_decode(f->mad, sizeof f->mad, &m) != VB_CM_DECODE_OK)
        return;
    w->cover->message[m.kind - VB_CM_KIND_FIRST]++;
    if (m.kind == VB_CM_REJ && m.rej.reason < VB_CMCOVER_REASONS)
        w->cover->reason[m.rej.reason]++;
    vb_cmworld_note(w, "   at %u from %u %s %08x %08x", at, f->from, vb_cm_kind_text(m.kind),
                    m.local_id, m.remote_id);
}

// What a repetition met, by the manager's own counters.
static void count_repetition(struct vb_cmworld *w, enum vb_cm_kind kind)
{
    if (kind == VB_CM_REQ)
        cover(w, VB_CMCOVER_DUPLICATE_REQ);
    else if (kind == VB_CM_REP)
        cover(w, VB_CMCOVER_DUPLICATE_REP);
    else if (kind == VB_CM_DREQ)
        cover(w, VB_CMCOVER_DUPLICATE_DREQ);
}

static void hand_over(struct vb_cmworld *w, const struct vb_cmw_flight *f, struct vb_cmw_end *e)
{
    bool cut = e->cut_until_ns > w->now_ns ||
               (f->from < w->ends && w->end[f->from].cut_until_ns > w->now_ns);
    if (!e->cm || cut) {
        cover(w, VB_CMCOVER_CUT);
        return;
    }
    count_message(w, f, e->index);
    uint64_t before = vb_cm_stats(e->cm)->duplicate, stray = vb_cm_stats(e->cm)->stray;
    enum vb_cm_kind kind = (enum vb_cm_kind)vb_get_be16(f->mad + 16);
    vb_cm_input(e->cm, w->now_ns, source_of(w, f), f->mad, VB_MAD_BYTES);
    if (vb_cm_stats(e->cm)->duplicate > before)
        count_repetition(w, kind);
    if (vb_cm_stats(e->cm)->stray > stray && kind == VB_CM_RTU)
        cover(w, VB_CMCOVER_DUPLICATE_RTU);
    if (vb_cm_stats(e->cm)->stray > stray && e->life > 0)
        cover(w, VB_CMCOVER_REBORN_ASKED);
    vb_cmjudge_states(w, e);
    vb_cmnet_collect(w, e);
}

void vb_cmnet_deliver(struct vb_cmworld *w)
{
    uint32_t index = first_of(w);
    struct vb_cmw_flight f = w->flight[index];

    w->flight[index] = w->flight[--w->flights];
    uint32_t to = vb_cmfan_pick(w, f.to, f.mad);
    for (uint32_t i = 0; i < w->ends; i++)
        if (to >> i & 1)
            hand_over(w, &f, &w->end[i]);
    if (f.from >= w->ends || w->end[f.from].cut_until_ns <= w->now_ns)
        vb_cmfan_check(w, f.to, source_of(w, &f), f.mad);
}

// ---- the forger

// A REQ that has to be refused for what is in it.
static void spoil_req(struct vb_cmworld *w, uint32_t to, struct vb_cm_message *m)
{
    uint32_t how = vb_cmworld_draw(w, 3);

    m->req.service_id = vb_cmhost_service(to, VB_CMW_SERVED);
    if (how == 0)
        m->req.mtu = 6;
    else if (how == 1)
        m->req.primary.remote_gid[0] = 1;
    else
        m->req.transport = VB_CM_RD;
}

static void form_req(struct vb_cmworld *w, uint32_t to, struct vb_cm_message *m)
{
    m->remote_id = 0;
    m->req.qpn = 0x800000 | vb_cmworld_draw(w, 1 << 20);
    m->req.mtu = 5;
    m->req.max_cm_retries = (uint8_t)vb_cmworld_draw(w, 4);
    m->req.local_timeout = w->opts.timeout;
    memcpy(m->req.primary.remote_gid, w->end[to].ip.b, 16);
    m->req.service_id = vb_cmhost_service(to, (enum vb_cmw_service)vb_cmworld_draw(w, 3));
}

// A REQ with the id of a connection that the end itself has begun.
static void use_id_twice(struct vb_cmworld *w, struct vb_cm_message *m, uint32_t *from,
                         uint32_t *to)
{
    for (uint32_t i = w->pacts; i-- > 0;) {
        const struct vb_cmw_pact *p = &w->pact[i];
        const struct vb_cmw_side *a = &p->side[VB_CMW_ACTIVE];
        if (p->confirmed && a->stage == VB_CMW_STANDS && a->life == w->end[a->end].life) {
            *from = p->peer;
            *to = a->end;
            m->local_id = p->confirmed_id;
            m->req.service_id = vb_cmhost_service(*to, VB_CMW_SERVED);
            return;
        }
    }
}

// Somebody who knows no ids says anything, in his own name or another's. Nothing may come of it but
// a request that the forger's pattern shows.
void vb_cmnet_forge(struct vb_cmworld *w)
{
    struct vb_cm_message m = {0};
    uint8_t mad[VB_MAD_BYTES];
    uint32_t to = vb_cmworld_draw(w, w->ends), from = vb_cmworld_draw(w, w->ends + 1);

    m.kind = (enum vb_cm_kind)(VB_CM_KIND_FIRST + vb_cmworld_draw(w, VB_CM_KINDS));
    m.local_id = (uint32_t)vb_prng_next(&w->prng);
    m.remote_id = (uint32_t)vb_prng_next(&w->prng);
    if (m.kind == VB_CM_SIDR_REQ || vb_cmworld_draw(w, 3) == 0)
        m.kind = VB_CM_REQ;
    if (m.kind == VB_CM_REQ) {
        form_req(w, to, &m);
        if (vb_cmworld_draw(w, 4) == 0)
            use_id_twice(w, &m, &from, &to);
        else if (vb_cmworld_draw(w, 3) == 0)
            spoil_req(w, to, &m);
    }
    vb_cmjudge_pattern(UINT32_MAX, m.kind, m.private_data);
    w->cover->row[VB_CMCOVER_FORGED]++;
    vb_cm_encode(&m, mad);
    fly(w, from < w->ends ? from : VB_CMW_ENDS, to, mad);
}
