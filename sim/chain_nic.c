// SPDX-License-Identifier: Apache-2.0
// A NIC in a world of chain programs: its device, its port, and its turns. It goes step by step,
// each of which is judged, or polls as under a real port.
#include "sim/chain_world.h"

#include "wire/roce.h"

#include <string.h>

enum {
    POLLED_NS = 20, // time that a step takes in a poll
};

static int attach(struct vb_chainnic *nic)
{
    struct vb_chainworld *w = nic->world;
    const struct vb_simnet_host host = {
        .ip = nic->ip,
        .src_port = 4791,
        .random_ids = vb_prng_chance(&w->prng, w->scen.random_ids_ppm),
        .merge_ppm = w->scen.merge_ppm,
        .batch_max = w->scen.rx_batch_max,
        .stall_ppm = w->scen.stall_ppm,
    };
    return vb_simnet_attach(w->net, &host, &nic->port);
}

static void judge(void *ctx, const struct vb_step *step)
{
    if (step->kind != VB_STEP_NONE)
        vb_chainnic_judge(ctx, step);
}

static void attend(struct vb_chainnic *nic, uint32_t unit)
{
    nic->unit[unit] = (struct vb_chainunit){.pu = vb_dev_pu_at(nic->dev, unit), .idle = true};
    if (nic->world->scen.drive == VB_DRIVE_OBSERVED)
        vb_pu_observe(nic->unit[unit].pu, judge, nic);
}

int vb_chainnic_create(struct vb_chainnic *nic, struct vb_chainworld *w, uint32_t index)
{
    nic->world = w;
    nic->index = index;
    nic->ip = w->scen.ipv6 ? (struct vb_ip){{0xfd, [15] = (uint8_t)(index + 1)}}
                           : (struct vb_ip){{[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(index + 1)}};
    nic->units = 1 + vb_chainworld_draw(w, VB_CHAINS_UNITS);
    nic->polls = vb_chainworld_draw(w, 4) == 0 || w->scen.drive >= VB_DRIVE_OBSERVED;
    nic->holds = w->scen.holds;
    nic->run_at_ns = UINT64_MAX;
    const struct vb_dev_opts opts = {
        .seed = vb_prng_next(&w->prng),
        .pus = nic->units,
        .window_bytes = vb_chainworld_draw(w, 3) ? 0 : 8 * 1024,
        .fetch_depth = 1u << vb_chainworld_draw(w, 6),
        .lend_bytes = vb_chainworld_draw(w, 2) ? 1 + vb_chainworld_draw(w, 1024) : 0,
        .no_credits = vb_chainworld_draw(w, 2),
        .check_zero_length = vb_chainworld_draw(w, 2),
        .hold_completions = nic->holds,
    };
    nic->dev = vb_dev_create(&opts);
    if (!nic->dev)
        return -1;
    for (uint32_t i = 0; i < nic->units; i++)
        attend(nic, i);
    return attach(nic);
}

void vb_chainnic_destroy(struct vb_chainnic *nic)
{
    if (nic->dev)
        vb_dev_destroy(nic->dev);
    vb_piece_destroy_all(nic);
    vb_chainstore_destroy(nic);
}

static void rouse(struct vb_chainnic *nic)
{
    for (uint32_t i = 0; i < nic->units; i++)
        nic->unit[i].idle = false;
}

void vb_chainnic_wake(struct vb_chainnic *nic)
{
    struct vb_chainworld *w = nic->world;
    uint64_t at = w->now_ns + vb_prng_below(&w->prng, w->scen.step_ns);

    if (at < nic->run_at_ns)
        nic->run_at_ns = at;
    rouse(nic);
}

// ---- a turn

static void keep(struct vb_chainnic *nic)
{
    for (uint32_t i = 0; i < nic->units; i++)
        vb_pu_tx_keep(nic->unit[i].pu);
}

// Each frame goes to the unit of its queue pair, or astray.
static struct vb_chainunit *steer(struct vb_chainnic *nic, const struct vb_rx_frame *frame)
{
    struct vb_chainworld *w = nic->world;
    uint32_t last = frame->len > 7 ? frame->data[7] : 0;

    if (nic->units > 1 && vb_prng_chance(&w->prng, w->scen.stray_ppm))
        last = (uint32_t)vb_prng_next(&w->prng);
    return &nic->unit[last & (nic->units - 1)];
}

bool vb_chainnic_has_frames(const struct vb_chainnic *nic)
{
    for (uint32_t i = 0; i < nic->units; i++)
        if (vb_pu_frames_left(nic->unit[i].pu) > 0)
            return true;
    return false;
}

// The port's frames last until all units have consumed theirs.
static void feed(struct vb_chainnic *nic)
{
    if (vb_chainnic_has_frames(nic))
        return;
    keep(nic);
    uint32_t count = nic->port->ops->receive(nic->port, nic->rx);
    for (uint32_t i = 0; i < nic->units; i++)
        nic->unit[i].rx_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct vb_chainunit *u = steer(nic, &nic->rx[i]);
        u->rx[u->rx_count++] = nic->rx[i];
    }
    for (uint32_t i = 0; i < nic->units; i++) {
        struct vb_chainunit *u = &nic->unit[i];
        vb_pu_feed(u->pu, u->rx, u->rx_count);
        u->idle &= u->rx_count == 0;
    }
}

static bool all_idle(const struct vb_chainnic *nic)
{
    for (uint32_t i = 0; i < nic->units; i++)
        if (!nic->unit[i].idle)
            return false;
    return true;
}

// Events are for hosts that look; these look at states.
static void forget_events(struct vb_pu *pu)
{
    struct vb_event event;
    while (vb_pu_take_event(pu, &event))
        ;
}

static void do_steps(struct vb_chainnic *nic, struct vb_chainunit *u)
{
    struct vb_chainworld *w = nic->world;

    if (nic->polls) {
        uint32_t steps = vb_pu_poll(u->pu, w->now_ns);
        if (w->scen.drive != VB_DRIVE_OBSERVED)
            w->events += steps; // else the judge has counted them
        nic->polled += steps;
        u->idle = steps == 0;
        return;
    }
    struct vb_step step = vb_pu_step(u->pu, w->now_ns);
    u->idle = step.kind == VB_STEP_NONE;
    if (!u->idle)
        vb_chainnic_judge(nic, &step);
}

// One of the units that may have something to do makes a step. False: there is none.
static bool step(struct vb_chainnic *nic)
{
    uint32_t at = nic->units > 1 ? vb_chainworld_draw(nic->world, nic->units) : 0;

    if (nic->unit[at].idle)
        at = (at + 1) % nic->units;
    if (at != nic->at)
        vb_pu_tx_keep(nic->unit[nic->at].pu);
    nic->at = at;
    do_steps(nic, &nic->unit[at]);
    forget_events(nic->unit[at].pu);
    uint32_t handed = vb_pu_handed(nic->unit[at].pu);
    for (uint32_t i = 0; i < nic->units; i++)
        nic->unit[i].idle &= !(handed >> i & 1);
    return !all_idle(nic);
}

static void digest_frames(struct vb_chainnic *nic, const struct vb_txq *q)
{
    uint8_t bytes[VB_FRAME_MAX];

    for (uint32_t i = q->taken; i < q->count; i++) {
        vb_tx_copy(q, &q->frame[i], bytes);
        uint64_t digest = vb_digest_bytes(bytes, q->frame[i].len);
        vb_digest_add(&nic->world->digest, digest);
        vb_digest_add(&nic->frames, digest);
    }
}

static bool transmit(struct vb_chainnic *nic)
{
    bool left = false;

    for (uint32_t i = 0; i < nic->units; i++) {
        struct vb_txq *q = vb_pu_txq(nic->unit[i].pu);
        digest_frames(nic, q);
        nic->port->ops->send(nic->port, q);
        vb_pu_tx_release(nic->unit[i].pu);
        left |= q->taken < q->count;
    }
    return left;
}

static bool wants_tx(const struct vb_chainnic *nic)
{
    for (uint32_t i = 0; i < nic->units; i++)
        if (vb_pu_wants_tx(nic->unit[i].pu))
            return true;
    return false;
}

bool vb_chainnic_has_to_send(const struct vb_chainnic *nic)
{
    for (uint32_t i = 0; i < nic->units; i++) {
        const struct vb_txq *q = vb_pu_txq(nic->unit[i].pu);
        if (q->taken < q->count)
            return true;
    }
    return false;
}

static uint64_t deadline_of(const struct vb_chainnic *nic)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = 0; i < nic->units; i++) {
        uint64_t deadline = vb_pu_deadline(nic->unit[i].pu);
        first = deadline < first ? deadline : first;
    }
    return first;
}

bool vb_chainnic_is_seen(const struct vb_chainnic *nic)
{
    return !nic->polls || nic->world->scen.drive == VB_DRIVE_OBSERVED;
}

bool vb_chainnic_rests(struct vb_chainnic *nic)
{
    return all_idle(nic) && !vb_chainnic_has_to_send(nic);
}

void vb_chainnic_publish(struct vb_chainnic *nic)
{
    for (uint32_t i = 0; nic->holds && i < nic->units; i++)
        vb_pu_publish(nic->unit[i].pu);
}

static void pause_between_turns(struct vb_chainnic *nic)
{
    struct vb_chainworld *w = nic->world;
    uint64_t pause_ns = vb_prng_range(&w->prng, 1, w->scen.step_ns) + nic->polled * POLLED_NS;

    nic->polled = 0;
    if (!w->healed && vb_prng_chance(&w->prng, w->scen.sleep_ppm))
        pause_ns += vb_prng_below(&w->prng, w->scen.sleep_ns + 1);
    nic->run_at_ns = w->now_ns + pause_ns;
}

void vb_chainnic_run(struct vb_chainnic *nic)
{
    struct vb_chainworld *w = nic->world;
    uint32_t steps = 1 + vb_chainworld_draw(w, w->scen.burst_max);
    bool idle = false;

    for (uint32_t i = 0; i < nic->units; i++)
        nic->unit[i].idle &= vb_pu_deadline(nic->unit[i].pu) > w->now_ns;
    for (; steps > 0 && !idle && !w->violated; steps--) {
        feed(nic);
        idle = !step(nic);
    }
    bool full = wants_tx(nic);
    if (full)
        rouse(nic);
    if (!w->healed && vb_prng_chance(&w->prng, w->scen.hold_ppm))
        nic->hold_until_ns = w->now_ns + vb_prng_below(&w->prng, w->scen.hold_ns + 1);
    if (full || w->healed || w->now_ns >= nic->hold_until_ns)
        transmit(nic);
    keep(nic);
    if (!vb_chainnic_is_seen(nic) && !w->violated)
        vb_chainfate_look(nic);
    nic->ran_healed = w->healed;
    bool rests = idle && !full && !vb_chainnic_has_to_send(nic);
    if (rests)
        vb_chainnic_publish(nic);
    if (!rests)
        pause_between_turns(nic);
    else if ((nic->run_at_ns = deadline_of(nic)) <= w->now_ns)
        vb_chainworld_violate(w, "NIC %u is idle past its deadline", nic->index);
}
