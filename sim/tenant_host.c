// SPDX-License-Identifier: Apache-2.0
// What the hosts of tenants do, good ones and bad ones.
#include "sim/tenant_world.h"

#include "base/bytes.h"

enum {
    PROBE_BYTES = 64,
    PROBE_THINK_NS = 20000,
    FUZZ_HEAL = 4,     // in so many actions a queue pair that has failed is brought back
    ACTION_NS = 500,   // between two actions of a host that does all it can
    FLUSH_BLOCKS = 32, // half a ring
    // By docs/hull.md: a part of the usual weight, what a READ takes of it, and the longest turn.
    PART_UNITS = 512,
    READ_UNITS = 35, // two packets, an entry, a completion, and four turns, of which two find
                     // nothing
    TURN_UNITS = 197,
};

// ---- a probe

// Between two visits of the line to a share, each other one does at most two parts: its visit's,
// and one in advance if it leaves and comes again; and the turn that exceeds them.
static uint64_t round_units(const struct vb_tenant *t)
{
    const struct vb_tenantworld *w = t->world;
    uint64_t units = 0;

    for (uint32_t i = 0; i < w->opts.tenants; i++)
        if (&w->tenant[i] != t && w->tenant[i].work.kind != VB_TENANT_IDLE)
            units += 2 * PART_UNITS * w->tenant[i].weight / VB_SHARE_WEIGHT + TURN_UNITS;
    return units;
}

// More READs in a round of the others than the part of one pays for.
static bool is_above(const struct vb_tenant *t)
{
    uint64_t paid = PART_UNITS * t->weight / VB_SHARE_WEIGHT / READ_UNITS;

    if (paid == 0 || t->reads < paid)
        return paid == 0;
    return t->world->others_units - t->asked_at[(t->reads - paid) % VB_TENANT_ASKED] <
           round_units(t);
}

// Then the line has gone round: whoever was in it has left, and has a part when it comes again.
void vb_tenant_idle(struct vb_tenant *t)
{
    t->reads = 0;
}

static void ask(struct vb_tenant *t)
{
    t->above |= !t->world->opts.no_shares && is_above(t);
    t->asked_at[t->reads++ % VB_TENANT_ASKED] = t->world->others_units;
    vb_tenant_drain(&t->work);
    t->rung_ns = t->act_at_ns; // while the NIC was busy, perhaps
    t->act_at_ns = UINT64_MAX;
    t->asked_units = t->world->frames_units;
    t->asked = vb_tenant_post(&t->work, 0, VB_WR_READ, PROBE_BYTES, true);
}

static void saw_probe(struct vb_tenant *t, const struct vb_step *step)
{
    uint64_t now = vb_tenant_now(t->world);

    if (step->kind == VB_STEP_FRAME_OUT) {
        t->left_ns = now;
        vb_tenant_watch_probe(t);
    }
    if (step->kind == VB_STEP_FRAME_IN)
        t->line_ns =
            vb_tenant_line_ns(t->world->opts.tenants - 1, t->world->frames_ns - t->frames_ns,
                              t->world->frames_units - t->frames_units);
    if (step->kind != VB_STEP_COMPLETE || !t->asked)
        return;
    t->asked = false;
    uint64_t service_ns = t->left_ns - t->rung_ns + now - t->came_ns;
    vb_hist_record(&t->service, service_ns);
    vb_hist_record(&t->turns, service_ns > t->line_ns ? service_ns - t->line_ns : 0);
    vb_hist_record(&t->whole, now - t->rung_ns);
    t->act_at_ns = now + 1 + vb_prng_below(&t->work.prng, 2 * PROBE_THINK_NS);
}

// ---- bad ones

static void heal(struct vb_tenant *t)
{
    enum vb_qp_state state = VB_QPS_RESET;

    for (uint32_t i = 0; i < t->work.qps; i++) {
        vb_dev_qp_state(t->world->dev, t->qp[i].qpn, &state);
        if (state != VB_QPS_RTS && vb_prng_below(&t->work.prng, FUZZ_HEAL) == 0) {
            vb_driver_qp_reset(&t->qp[i]);
            vb_tenant_connect(t, i);
            t->book[i].fetched = 0;
        }
    }
}

static void post_to_the_dead(struct vb_tenant *t)
{
    for (uint32_t i = 0; i < t->work.qps; i++) {
        struct vb_driver_qp *qp = &t->qp[i];
        struct vb_qp_progress progress = {0};
        vb_dev_qp_progress(t->world->dev, qp->qpn, &progress);
        qp->dbrec[VB_DBREC_SQ] = htobe32((progress.fetched + FLUSH_BLOCKS) & 0xffff);
        vb_doorbell_ring(qp->doorbells, qp->qpn);
    }
}

static void kill_queues(struct vb_tenant *t)
{
    for (uint32_t i = 0; i < t->work.qps; i++) {
        for (uint32_t b = 0; b < t->qp[i].sq.blocks; b++)
            t->qp[i].sq.ring[b * VB_WQEBB_BYTES + 7] = 1; // entries of one block
        vb_dev_qp_modify(t->world->dev, t->qp[i].qpn, &(struct vb_qpc_mods){.state = VB_QPS_ERR});
    }
}

// ---- all

void vb_tenant_start(struct vb_tenant *t)
{
    vb_tenant_begin(&t->work);
    if (t->work.kind == VB_TENANT_FLUSH)
        kill_queues(t);
    t->act_at_ns = t->work.kind == VB_TENANT_IDLE ? UINT64_MAX : 1;
}

void vb_tenant_act(struct vb_tenant *t)
{
    if (t->work.kind == VB_TENANT_PROBE) {
        ask(t);
        return;
    }
    vb_tenant_go_on(&t->work);
    if (t->work.kind == VB_TENANT_FUZZ)
        heal(t);
    else if (t->work.kind == VB_TENANT_FLUSH)
        post_to_the_dead(t);
    t->act_at_ns = t->world->now_ns + ACTION_NS;
}

void vb_tenant_saw(struct vb_tenant *t, const struct vb_step *step)
{
    if (t->work.kind == VB_TENANT_PROBE)
        saw_probe(t, step);
}
