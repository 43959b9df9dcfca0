// SPDX-License-Identifier: Apache-2.0
// Drawing a scenario from a seed.
#include "sim/scenario.h"

#include <string.h>

static bool coin(struct vb_prng *p)
{
    return vb_prng_next(p) >> 63;
}

static uint32_t below(struct vb_prng *p, uint32_t n)
{
    return (uint32_t)vb_prng_below(p, n);
}

enum {
    HEALED_BURST = 32, // steps of a NIC in one go, at most, once the network has healed
};

// Of the magnitude 2^-k of `max`, so that mild and harsh settings are equally likely; `kinds` of
// them.
static uint64_t magnitude(struct vb_prng *p, uint64_t max, uint32_t kinds)
{
    uint64_t top = max >> below(p, kinds);
    return top ? vb_prng_range(p, (top + 1) / 2, top) : 0;
}

// A fault is switched on in about half of the worlds: two faults alone find more than all at once.
static uint64_t sometimes(struct vb_prng *p, uint64_t max, uint32_t kinds)
{
    uint64_t value = magnitude(p, max, kinds);
    return coin(p) ? value : 0;
}

static void draw_network(struct vb_scenario *s, struct vb_prng *p)
{
    struct vb_simnet_link *l = &s->link;

    l->loss_ppm = (uint32_t)sometimes(p, 160000, 6);
    l->duplicate_ppm = (uint32_t)sometimes(p, 160000, 6);
    l->reorder_ppm = (uint32_t)sometimes(p, 240000, 6);
    l->corrupt_ppm = (uint32_t)sometimes(p, 80000, 6);
    l->delay_ns = vb_prng_range(p, 200, 8000);
    l->jitter_ns = sometimes(p, 16000, 5);
    l->reorder_ns = vb_prng_range(p, 1000, 100000);
    l->bytes_per_us = coin(p) && coin(p) ? (uint32_t)vb_prng_range(p, 200, 4000) : 0;
    l->queue_bytes = (uint32_t)vb_prng_range(p, 4000, 40000);
    s->random_ids_ppm = coin(p) ? 0 : 500000;
    s->merge_ppm = coin(p) ? 1000000 : 500000;
    s->stall_ppm = (uint32_t)sometimes(p, 200000, 4);
    s->rx_batch_max = 1u << below(p, 7);
    s->cut_every_ns = coin(p) ? vb_prng_range(p, 500000, 8000000) : 0;
    s->cut_max_ns = magnitude(p, 60000000, 10);
    s->forge_every_ns = coin(p) ? vb_prng_range(p, 10000, 200000) : 0;
}

static void draw_schedule(struct vb_scenario *s, struct vb_prng *p)
{
    s->burst_max = 1u << below(p, 7);
    s->step_ns = 1u << (5 + below(p, 7));
    s->sleep_ppm = (uint32_t)sometimes(p, 20000, 6);
    s->sleep_ns = magnitude(p, 400000, 6);
    s->hold_ppm = (uint32_t)sometimes(p, 100000, 6);
    s->hold_ns = magnitude(p, 1600000, 8);
    s->think_ns = 1u << (9 + below(p, 6));
}

static void draw_misuse(struct vb_scenario *s, struct vb_prng *p)
{
    s->bad_ppm = (uint32_t)sometimes(p, 16000, 4);
    s->bad_recv_ppm = (uint32_t)sometimes(p, 8000, 4);
    s->starve_ppm = (uint32_t)sometimes(p, 20000, 4);
    s->dereg_ppm = (uint32_t)sometimes(p, 6000, 4);
    s->fail_ppm = (uint32_t)sometimes(p, 4000, 4);
    s->drain_ppm = (uint32_t)sometimes(p, 600000, 4);
}

// Drawn apart, so that the worlds without any of it are as they would be otherwise.
static void draw_queues(struct vb_scenario *s)
{
    struct vb_prng prng = {s->seed * 0xd1342543de82ef95u + 3}, *p = &prng;

    s->units = below(p, 10) < 3 ? 2u << below(p, 2) : 1;
    s->stray_ppm = (uint32_t)sometimes(p, 400000, 4);
    s->shared_ppm = below(p, 10) < 3 ? 300000 + below(p, 700000) : 0;
    s->xrc_ppm = below(p, 10) < 2 ? 300000 + below(p, 700000) : 0;
    s->shared_room = coin(p) ? below(p, 600) : 256 + below(p, 13000);
    s->resize_ppm = below(p, 10) < 3 ? (uint32_t)magnitude(p, 20000, 4) : 0;
    s->moderate_ppm = below(p, 10) < 3 ? (uint32_t)magnitude(p, 40000, 4) : 0;
    s->remake_ppm = (uint32_t)sometimes(p, 12000, 4);
    s->holds = below(p, 10) < 3;
    s->tight = below(p, 20) == 0;
    if (s->tight) {
        s->xrc_ppm = 0;
        s->resize_ppm = 20000; // few rings are too short otherwise
    }
}

static void draw_storms(struct vb_scenario *s)
{
    struct vb_prng prng = {s->seed * 0x8cb92ba72f3d8dd7u + 7}, *p = &prng;

    if (below(p, 8) != 0)
        return;
    s->storm_ppm = 50000 + below(p, 300000);
    if (!s->forge_every_ns)
        s->forge_every_ns = 40000 + below(p, 100000);
}

static void draw_shares(struct vb_scenario *s)
{
    struct vb_prng prng = {s->seed * 0xaef17502108ef2d9u + 5}, *p = &prng;

    s->shares = below(p, 10) < 3 ? 1 + below(p, VB_SIM_SHARES_MAX) : 0;
}

// Rates that packets of these worlds come up to. All work is done in some tenths of a second even
// at the least of them.
static void draw_rates(struct vb_scenario *s)
{
    struct vb_prng prng = {s->seed * 0x8cb92ba72f3d8dd7u + 9}, *p = &prng;

    s->share_Bps = s->shares && coin(p) ? vb_prng_range(p, 2000000, 100000000) : 0;
    s->dcqcn = below(p, 10) < 2;
    s->cc = vb_dcqcn_defaults();
    s->cc.cnp_interval_us = coin(p) ? 0 : below(p, 100);
    s->cc.rp_time_reset_us = 1 + below(p, 500);
    s->cc.rp_byte_reset = 1u << (10 + below(p, 12));
    s->cc.rp_threshold = 1 + below(p, 8);
    s->cc.rp_ai_rate_mbps = 1 + below(p, 100);
    s->cc.rp_hai_rate_mbps = s->cc.rp_ai_rate_mbps * (1 + below(p, 10));
    s->cc.rp_dce_tcp_g = below(p, 1024);
    s->cc.rp_dce_tcp_rtt_us = 1 + below(p, 100);
    s->cc.rp_max_rate_mbps = s->cc.rp_min_rate_mbps + (1u << below(p, 13));
    s->cc.rp_burst_bytes = 4096u << below(p, 4);
    s->link.mark_ppm = s->dcqcn ? 1000u << below(p, 8) : 0;
}

static void draw_drive(struct vb_scenario *s)
{
    struct vb_prng prng = {s->seed * 0x2545f4914f6cdd1du + 7}, *p = &prng;

    s->drive = below(p, 10) < 4 ? VB_DRIVE_TURNS : VB_DRIVE_STEPS;
    s->once = coin(p) || s->shares > 0; // a hull, the only one with shares, works once a turn
    s->slow_unit = s->units > 1 && below(p, 3) == 0;
    if (s->slow_unit)
        s->stray_ppm = 200000 + below(p, 400000);
}

void vb_scenario_draw(struct vb_scenario *s, uint64_t seed, uint32_t nics, uint32_t ops)
{
    struct vb_prng prng = {seed * 0x9e3779b97f4a7c15u + 1}, *p = &prng;
    uint32_t drawn = (uint32_t)vb_prng_range(p, 2, VB_SIM_NICS_MAX);

    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->nics = nics ? nics : drawn;
    s->ops = ops ? ops : VB_SIM_OPS_DEFAULT;
    s->conns = (uint32_t)vb_prng_range(p, 1, VB_SIM_CONNS_MAX);
    s->ipv6 = below(p, 5) == 0;
    s->big = below(p, 4) == 0;
    s->cqs = (uint32_t)vb_prng_range(p, 1, VB_SIM_CQS);
    draw_network(s, p);
    draw_schedule(s, p);
    draw_misuse(s, p);
    s->unreliable = below(p, VB_SIM_UNRELIABLE_MAX + 1);
    s->conns += s->unreliable;
    draw_queues(s);
    draw_shares(s);
    draw_rates(s);
    draw_drive(s);
    draw_storms(s);
}

static uint32_t share(struct vb_prng *p, uint32_t of)
{
    return of && coin(p) ? below(p, of + 1) : 0;
}

void vb_scenario_heal(struct vb_scenario *s)
{
    s->stray_ppm = 0; // a frame that is handed over is overtaken by others
    if (s->burst_max < HEALED_BURST)
        s->burst_max = HEALED_BURST; // what has piled up is read before timers end
}

void vb_scenario_link(const struct vb_scenario *s, struct vb_prng *prng,
                      struct vb_simnet_link *link)
{
    *link = s->link;
    link->loss_ppm = share(prng, s->link.loss_ppm);
    link->duplicate_ppm = share(prng, s->link.duplicate_ppm);
    link->reorder_ppm = share(prng, s->link.reorder_ppm);
    link->corrupt_ppm = share(prng, s->link.corrupt_ppm);
    link->delay_ns = vb_prng_range(prng, s->link.delay_ns / 2, s->link.delay_ns);
    link->jitter_ns = share(prng, (uint32_t)s->link.jitter_ns);
}

void vb_scenario_mix(const struct vb_scenario *s, struct vb_prng *prng, struct vb_conn_mix *mix)
{
    *mix = (struct vb_conn_mix){
        .size_big = s->big ? 4000 : 0,
        .size_mtu = (uint32_t)magnitude(prng, 300000, 6),
        .inline_ppm = (uint32_t)sometimes(prng, 300000, 3),
        .unsignaled_ppm = (uint32_t)sometimes(prng, 900000, 4),
        .fence_ppm = (uint32_t)sometimes(prng, 200000, 4),
        .lists_ppm = (uint32_t)sometimes(prng, 300000, 4),
        .batch_max = 1u << below(prng, 5),
    };
    // SEND, WRITE and READ alone now and then, and not every operation on every connection.
    static const uint8_t most[VB_WR_OPCODES] = {
        [VB_WR_SEND] = 10,      [VB_WR_WRITE] = 10,      [VB_WR_READ] = 10,
        [VB_WR_NOP] = 2,        [VB_WR_SEND_IMM] = 6,    [VB_WR_SEND_INVAL] = 3,
        [VB_WR_WRITE_IMM] = 6,  [VB_WR_CAS] = 5,         [VB_WR_FADD] = 8,
        [VB_WR_MASKED_CAS] = 4, [VB_WR_MASKED_FADD] = 4, [VB_WR_ATOMIC_WRITE] = 5,
        [VB_WR_FLUSH] = 4,      [VB_WR_BIND] = 4,        [VB_WR_LOCAL_INVAL] = 3,
    };
    bool plain = below(prng, 5) == 0;
    for (int i = 0; i <= VB_WR_LOCAL_INVAL; i++)
        if (i <= VB_WR_NOP || !plain)
            mix->parts[i] = below(prng, most[i]);
    if (mix->parts[VB_WR_SEND] + mix->parts[VB_WR_WRITE] + mix->parts[VB_WR_READ] == 0)
        mix->parts[VB_WR_SEND] = mix->parts[VB_WR_WRITE] = mix->parts[VB_WR_READ] = 1;
}
