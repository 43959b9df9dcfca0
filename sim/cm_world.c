// SPDX-License-Identifier: Apache-2.0
// The world of communication managers: what its seed draws, its clock, and its end.
#include "sim/cm_world.h"

#include <stdarg.h>
#include <stdlib.h>

enum {
    EVENTS_MAX = 400000
};

void vb_cmworld_violate(struct vb_cmworld *w, const char *format, ...)
{
    va_list args;

    if (w->violated)
        return;
    w->violated = true;
    va_start(args, format);
    vsnprintf(w->violation, sizeof w->violation, format, args);
    va_end(args);
}

void vb_cmworld_note(struct vb_cmworld *w, const char *format, ...)
{
    char text[200];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    vb_digest_add(&w->digest, vb_digest_bytes((const uint8_t *)text, (uint32_t)strlen(text)));
    if (w->trace)
        fprintf(w->trace, "%12llu %s\n", (unsigned long long)w->now_ns, text);
}

static void draw(struct vb_cmworld *w)
{
    struct vb_cm_opts *o = &w->opts;
    uint32_t bad = vb_cmworld_draw(w, 4); // how bad the network is

    w->ends = 2 + vb_cmworld_draw(w, VB_CMW_ENDS - 1);
    w->shared = vb_cmworld_draw(w, 2);
    o->timeout = (uint8_t)(6 + vb_cmworld_draw(w, 4));
    o->retries = (uint8_t)(1 + vb_cmworld_draw(w, 6));
    o->packet_life = (uint8_t)(3 + vb_cmworld_draw(w, 3));
    o->connections = vb_cmworld_draw(w, 3) ? 64 : 4 + vb_cmworld_draw(w, 6);
    o->listeners = 4;
    o->outbox = vb_cmworld_draw(w, 4) ? 64 : 4;
    o->id_prefix_bits = (uint8_t)vb_cmworld_draw(w, 9);
    o->id_prefix = vb_cmworld_draw(w, 1u << o->id_prefix_bits);
    w->full_ppm = o->connections < 64;
    w->backlog = vb_cmworld_draw(w, 2) ? 32 : 1 + vb_cmworld_draw(w, 3);
    w->life_ns = vb_cm_time_ns(o->packet_life);
    w->answer_ns = vb_cm_time_ns(o->timeout) + 2 * w->life_ns;
    w->mra = (uint8_t)(o->timeout + vb_cmworld_draw(w, 4));
    w->mra_ns = vb_cm_time_ns(w->mra) + 2 * w->life_ns;
    w->loss_ppm = bad == 0 ? 0 : vb_cmworld_draw(w, bad == 3 ? 600000 : 100000);
    w->double_ppm = vb_cmworld_draw(w, 200000);
    w->late_ppm = vb_cmworld_draw(w, 500000);
    w->forge_ppm = vb_cmworld_draw(w, 2) ? vb_cmworld_draw(w, 200000) : 0;
    w->die_ppm = vb_cmworld_draw(w, 2) ? vb_cmworld_draw(w, 20000) : 0;
    w->cut_ppm = vb_cmworld_draw(w, 2) ? vb_cmworld_draw(w, 20000) : 0;
    w->reuse_ppm = vb_cmworld_draw(w, 2) ? vb_cmworld_draw(w, 200000) : 0;
    w->quota = 40 + vb_cmworld_draw(w, 120);
    w->heal_ns = w->answer_ns * (30 + vb_cmworld_draw(w, 60));
}

struct vb_cmworld *vb_cmworld_create(uint64_t seed, struct vb_cmcover *cover, FILE *trace)
{
    struct vb_cmworld *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->seed = seed;
    w->prng.state = seed ^ 0x636d;
    w->cover = cover;
    w->trace = trace;
    w->now_ns = 1;
    draw(w);
    for (uint32_t i = 0; i < w->ends; i++) {
        struct vb_cmw_end *e = &w->end[i];
        *e = (struct vb_cmw_end){.index = i, .next_qpn = 1 + 1000 * i};
        uint32_t host = w->shared ? vb_cmworld_draw(w, 2) : i;
        e->ip = (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(host + 1)}};
        if (vb_cmhost_birth(w, e) != 0) {
            vb_cmworld_destroy(w);
            return NULL;
        }
    }
    return w;
}

static void count_stats(struct vb_cmworld *w)
{
    for (uint32_t i = 0; i < w->ends; i++)
        if (w->end[i].cm)
            w->cover->row[VB_CMCOVER_RETRIED] += vb_cm_stats(w->end[i].cm)->retried;
    for (uint32_t i = 0; i < w->pacts; i++)
        w->cover->row[VB_CMCOVER_PATIENT] += w->pact[i].delayed;
}

void vb_cmworld_destroy(struct vb_cmworld *w)
{
    for (uint32_t i = 0; i < w->ends; i++)
        vb_cm_destroy(w->end[i].cm);
    free(w);
}

// ---- time

static uint64_t next_of(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    uint64_t next;

    if (!e->cm)
        return e->born_at_ns;
    next = vb_cm_poll(e->cm, w->now_ns);
    vb_cmnet_collect(w, e);
    return next < e->act_at_ns ? next : e->act_at_ns;
}

static void run_end(struct vb_cmworld *w, struct vb_cmw_end *e)
{
    if (!e->cm && e->born_at_ns <= w->now_ns)
        vb_cmhost_birth(w, e);
    if (!e->cm)
        return;
    vb_cm_poll(e->cm, w->now_ns);
    vb_cmjudge_states(w, e);
    if (e->act_at_ns <= w->now_ns)
        vb_cmhost_act(w, e);
    if (e->cm)
        vb_cmnet_collect(w, e);
}

static void run_until(struct vb_cmworld *w, uint64_t until_ns)
{
    while (!w->violated && w->now_ns < until_ns) {
        uint64_t next_ns = until_ns;
        for (uint32_t i = 0; i < w->ends; i++) {
            uint64_t at_ns = next_of(w, &w->end[i]);
            next_ns = at_ns < next_ns ? at_ns : next_ns;
        }
        uint64_t arrival_ns = vb_cmnet_next(w);
        if (arrival_ns <= next_ns) {
            w->now_ns = arrival_ns > w->now_ns ? arrival_ns : w->now_ns;
            vb_cmnet_deliver(w);
        } else {
            w->now_ns = next_ns > w->now_ns ? next_ns : w->now_ns + 1;
            for (uint32_t i = 0; i < w->ends && !w->violated; i++)
                run_end(w, &w->end[i]);
            if (!w->healed && vb_cmworld_chance(w, w->forge_ppm))
                vb_cmnet_forge(w);
            if (w->quiet && vb_cmjudge_is_still(w))
                return;
        }
        if (++w->events > EVENTS_MAX)
            vb_cmworld_violate(w, "no end in sight");
    }
}

// Longer than anything can take that no new message prolongs.
static uint64_t patience_ns(const struct vb_cmworld *w)
{
    return (w->opts.retries + 2u) * (3 * w->answer_ns + 2 * w->mra_ns) + 200 * w->answer_ns;
}

static void disconnect_all(struct vb_cmworld *w)
{
    for (uint32_t i = 0; i < w->pacts; i++)
        for (int side = 0; side < 2; side++) {
            const struct vb_cmw_side *s = &w->pact[i].side[side];
            if (s->end < w->ends && s->life == w->end[s->end].life && s->stage == VB_CMW_STANDS)
                vb_cmhost_disconnect(w, &w->pact[i], side);
        }
}

// A single loss heals, whichever message it is.
static void draw_loss(struct vb_cmworld *w)
{
    static const enum vb_cm_kind kinds[] = {VB_CM_REQ,  VB_CM_REP,      VB_CM_RTU,      VB_CM_DREQ,
                                            VB_CM_DREP, VB_CM_SIDR_REQ, VB_CM_SIDR_REP, 0};

    w->lose = kinds[vb_cmworld_draw(w, sizeof kinds / sizeof *kinds)];
    w->lost = false;
}

// Every end with every end, in a network without faults but for at most one loss each time.
static void connect_all(struct vb_cmworld *w)
{
    for (uint32_t i = 0; i < w->ends && !w->violated; i++)
        for (uint32_t j = 0; j < w->ends && !w->violated; j++) {
            draw_loss(w);
            vb_cmhost_connect(w, &w->end[i], j, VB_CMW_SERVED);
            run_until(w, w->now_ns + 40 * w->answer_ns);
            vb_cmhost_look_up(w, &w->end[i], j, VB_CMW_SERVED);
            run_until(w, w->now_ns + 40 * w->answer_ns);
            vb_cmjudge_quiet(w);
            disconnect_all(w);
            run_until(w, w->now_ns + patience_ns(w));
        }
}

void vb_cmworld_run(struct vb_cmworld *w)
{
    run_until(w, w->heal_ns);
    w->healed = true;
    for (uint32_t i = 0; i < w->ends; i++)
        w->end[i].cut_until_ns = 0;
    w->quiet = true;
    run_until(w, w->now_ns + patience_ns(w));
    vb_cmjudge_quiet(w);
    disconnect_all(w);
    run_until(w, w->now_ns + patience_ns(w));
    if (!w->violated)
        vb_cmjudge_empty(w);
    for (uint32_t i = 0; i < w->ends && !w->violated; i++)
        w->end[i].next_qpn += 100; // numbers that nobody has used
    connect_all(w);
    if (!w->violated)
        vb_cmjudge_empty(w);
    count_stats(w);
}
