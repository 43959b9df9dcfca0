// SPDX-License-Identifier: Apache-2.0
// A NIC of the simulation: its device, its port, and its turns.
#include "sim/node.h"

#include "sim/cq.h"
#include "sim/model.h"
#include "sim/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXPOSED_MIN = 6 * 1024,
    EXPOSED_MAX = 20 * 1024,
    EXPOSED_LONG = 160 * 1024, // more in worlds with long messages
    REGION_SPACE = 256,        // guards and alignment of one region at most
    COUNTERS = 16,             // per domain
    EARLY_PPM = 20000,         // how often completions are visible before the port has the answers
};

static struct vb_ip address_of(uint32_t index, bool ipv6)
{
    if (ipv6)
        return (struct vb_ip){
            {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (uint8_t)(index + 1)}};
    return (struct vb_ip){
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, (uint8_t)(index + 1)}};
}

static int attach(struct vb_node *node)
{
    struct vb_world *w = node->world;
    const struct vb_simnet_host host = {
        .ip = node->ip,
        .src_port = 4791,
        .random_ids = vb_prng_chance(&w->prng, w->scen.random_ids_ppm),
        .merge_ppm = w->scen.merge_ppm,
        .batch_max = w->scen.rx_batch_max,
        .stall_ppm = w->scen.stall_ppm,
        .ecn = w->scen.dcqcn,
    };
    return vb_simnet_attach(w->net, &host, &node->port);
}

static int create_units(struct vb_node *node)
{
    uint32_t units = node->world->scen.units;

    node->unit = calloc(units, sizeof *node->unit);
    if (!node->unit)
        return -ENOMEM;
    node->at = node->unit;
    for (uint32_t i = 0; i < units; i++) {
        struct vb_unit *u = &node->unit[i];
        *u = (struct vb_unit){.node = node, .pu = vb_dev_pu_at(node->dev, i), .index = i};
        vb_model_attend(u);
        u->mail = units > 1 ? vb_model_mail_create() : NULL;
        if (units > 1 && !u->mail)
            return -ENOMEM;
    }
    return 0;
}

// Their weights are drawn apart: worlds without shares stay as they are.
static int create_shares(struct vb_node *node)
{
    struct vb_prng p = {node->world->scen.seed + node->index};
    int err = 0;

    for (uint32_t i = 0; i < node->world->scen.shares && !err; i++) {
        struct vb_share_attr *a = &node->share_attr[i];
        a->weight = (uint32_t)vb_prng_range(&p, 1, VB_SHARE_WEIGHT_MAX);
        if (node->world->scen.share_Bps && vb_prng_below(&p, 3)) {
            a->rate_Bps = node->world->scen.share_Bps << vb_prng_below(&p, 4);
            a->burst_bytes = 4096u << vb_prng_below(&p, 5);
        }
        err = vb_dev_share_create(node->dev, a, &node->share[i]);
    }
    return err;
}

static int create_device(struct vb_node *node)
{
    struct vb_prng *p = &node->world->prng;
    uint32_t window = (uint32_t)vb_prng_range(p, 8, 300) * 1024;
    struct vb_dev_opts opts = {
        .seed = vb_prng_next(p),
        .window_bytes = vb_prng_below(p, 3) ? 8 * 1024 : window,
        .fetch_depth = 1u << vb_prng_below(p, 6),
        .lend_bytes = vb_prng_chance(p, 500000) ? 1 + (uint32_t)vb_prng_below(p, 1024) : 0,
        .check_zero_length = vb_prng_chance(p, 250000),
        .no_credits = vb_prng_chance(p, 125000),
        .hold_completions = node->world->scen.holds,
        .pus = node->world->scen.units,
        .dcqcn = node->world->scen.dcqcn ? &node->world->scen.cc : NULL};
    node->window_bytes = opts.window_bytes;
    node->fetch_depth = opts.fetch_depth;
    node->checks_zero = opts.check_zero_length;
    node->no_credits = opts.no_credits;
    node->dev = vb_dev_create(&opts);
    if (!node->dev)
        return -ENOMEM;
    node->holds = opts.hold_completions;
    int failed = create_units(node);
    if (!failed)
        failed = create_shares(node);
    if (failed)
        return failed;
    for (int i = 0; i < VB_SIM_PDS; i++) {
        int err = vb_dev_pd_create(node->dev, &node->pd[i]);
        if (err)
            return err;
    }
    return 0;
}

static int expose(struct vb_node *node, int domain, enum vb_exposed kind)
{
    static const uint32_t rights[VB_SIM_EXPOSED] = {
        [VB_EXPOSED_BOTH] = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ,
        [VB_EXPOSED_READ] = VB_REMOTE_READ | VB_BIND,
        [VB_EXPOSED_WRITE] = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
        [VB_EXPOSED_NONE] = VB_LOCAL_WRITE,
        [VB_EXPOSED_ALL] = VB_ACCESS_ALL,
        [VB_EXPOSED_SKEWED] = VB_ACCESS_ALL,
        [VB_EXPOSED_COUNTERS] = VB_LOCAL_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC,
    };
    struct vb_world *w = node->world;
    uint32_t len = (uint32_t)vb_prng_range(&w->prng, EXPOSED_MIN, EXPOSED_MAX);
    if (kind == VB_EXPOSED_COUNTERS)
        len = COUNTERS * 8;
    else if (w->scen.big && kind != VB_EXPOSED_NONE)
        len += EXPOSED_LONG;
    struct vb_region *r = vb_hostmem_carve(&node->mem, len);
    if (!r)
        return -ENOMEM;
    node->exposed[domain][kind] = r;
    if (kind == VB_EXPOSED_COUNTERS)
        vb_hostmem_clear(&node->mem, r);
    else if (kind == VB_EXPOSED_SKEWED)
        vb_hostmem_skew(&node->mem, r);
    return vb_hostmem_register(&node->mem, node->dev, r, node->pd[domain], rights[kind]);
}

static uint32_t memory_size(const struct vb_node *node)
{
    uint32_t exposed = EXPOSED_MAX + (node->world->scen.big ? EXPOSED_LONG : 0) + REGION_SPACE;
    uint32_t size = REGION_SPACE + VB_SIM_PDS * VB_SIM_EXPOSED * exposed;

    for (uint32_t i = 0; i < node->ep_count; i++)
        size += node->ep[i]->opts.local_bytes + node->ep[i]->opts.recv_bytes + 2 * REGION_SPACE;
    return size + vb_simsrq_bytes(node) + VB_SIM_SRQS * REGION_SPACE;
}

static int create_objects(struct vb_node *node)
{
    int err = 0;

    for (int d = 0; d < VB_SIM_PDS && !err; d++)
        for (int k = 0; k < VB_SIM_EXPOSED && !err; k++)
            err = expose(node, d, (enum vb_exposed)k);
    for (int d = 0; d < VB_SIM_PDS && !err; d++) {
        node->window[d] = vb_hostwin_create(&node->mem, node->dev, node->pd[d], false);
        err = node->window[d] ? 0 : -ENOMEM;
    }
    for (uint32_t i = 0; i < node->world->scen.cqs && !err; i++) {
        err = vb_simcq_create(node, i);
        node->cq_count++;
    }
    if (!err)
        err = vb_simsrq_create_all(node);
    for (uint32_t i = 0; i < node->ep_count && !err; i++)
        err = vb_ep_create(node->ep[i]);
    return err;
}

int vb_node_create(struct vb_node *node, struct vb_world *w, uint32_t index)
{
    node->world = w;
    node->index = index;
    node->ip = address_of(index, w->scen.ipv6);
    node->run_at_ns = node->act_at_ns = UINT64_MAX;
    int err = attach(node);
    if (!err)
        err = create_device(node);
    if (!err)
        err = vb_hostmem_init(&node->mem, memory_size(node), vb_prng_next(&w->prng));
    return err ? err : create_objects(node);
}

static void forget(struct vb_unit *u)
{
    free(u->mail);
    free(u->heard.step);
    free(u->used.spans);
}

void vb_node_destroy(struct vb_node *node)
{
    if (node->dev)
        vb_dev_destroy(node->dev);
    for (uint32_t i = 0; i < node->cq_count; i++)
        vb_simcq_free(&node->cq[i]);
    vb_simsrq_free_all(node);
    for (uint32_t i = 0; node->unit && i < node->world->scen.units; i++)
        forget(&node->unit[i]);
    free(node->unit);
    vb_hostmem_fini(&node->mem);
}

// Any unit may have something to do.
static void rouse(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        node->unit[i].idle = false;
}

void vb_node_wake(struct vb_node *node)
{
    struct vb_world *w = node->world;
    uint64_t at = w->now_ns + vb_prng_below(&w->prng, w->scen.step_ns);
    if (at < node->run_at_ns)
        node->run_at_ns = at;
    rouse(node);
}

// ---- a turn

bool vb_node_read_all(const struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        if (node->unit[i].rx_waits || node->unit[i].rx_next < node->unit[i].rx_count)
            return false;
    return true;
}

bool vb_node_has_frames(const struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        if (node->unit[i].rx_waits || vb_pu_frames_left(node->unit[i].pu) > 0 ||
            vb_pu_has_mail(node->unit[i].pu))
            return true;
    return false;
}

// What others do may change memory that was lent.
static void keep(struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        vb_pu_tx_keep(node->unit[i].pu);
}

// Each frame goes to the unit of its queue pair, as the system steers it, or astray.
static struct vb_unit *steer(struct vb_node *node, const struct vb_rx_frame *frame)
{
    struct vb_world *w = node->world;
    uint32_t last = frame->len > 7 ? frame->data[7] : 0; // of the queue pair's number

    if (w->scen.units == 1)
        return node->unit;
    if (vb_prng_chance(&w->prng, w->scen.stray_ppm))
        last = (uint32_t)vb_prng_next(&w->prng);
    return &node->unit[last & (w->scen.units - 1)];
}

void vb_node_receive(struct vb_node *node)
{
    uint32_t count = node->port->ops->receive(node->port, node->rx);

    for (uint32_t i = 0; i < node->world->scen.units; i++)
        node->unit[i].rx_next = node->unit[i].rx_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct vb_unit *u = steer(node, &node->rx[i]);
        u->rx[u->rx_count++] = node->rx[i];
        u->rx_waits = true;
        u->idle = false;
    }
}

// A unit that reads its mail gets the port's frames afterwards.
static void feed(struct vb_node *node)
{
    if (vb_node_read_all(node)) {
        keep(node);
        vb_node_receive(node);
    }
    for (uint32_t i = 0; i < node->world->scen.units; i++) {
        struct vb_unit *u = &node->unit[i];
        if (!u->rx_waits || vb_pu_frames_left(u->pu) > 0)
            continue;
        vb_pu_feed(u->pu, u->rx, u->rx_count);
        u->rx_waits = false;
    }
}

static void transmit(struct vb_node *node)
{
    vb_model_sending(node);
    for (uint32_t i = 0; i < node->world->scen.units; i++) {
        node->port->ops->send(node->port, vb_pu_txq(node->unit[i].pu));
        vb_pu_tx_release(node->unit[i].pu);
    }
}

bool vb_node_has_frames_to_send(const struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++) {
        const struct vb_txq *q = vb_pu_txq(node->unit[i].pu);
        if (q->taken < q->count)
            return true;
    }
    return false;
}

static bool wants_tx(const struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        if (vb_pu_wants_tx(node->unit[i].pu))
            return true;
    return false;
}

static uint64_t deadline_of(const struct vb_node *node)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = 0; i < node->world->scen.units; i++) {
        uint64_t deadline = vb_pu_deadline(node->unit[i].pu);
        first = deadline < first ? deadline : first;
    }
    return first;
}

struct vb_unit *vb_node_pick(struct vb_node *node)
{
    struct vb_world *w = node->world;
    uint32_t i = w->scen.units > 1 ? (uint32_t)vb_prng_below(&w->prng, w->scen.units) : 0;

    if (i == 0 && w->scen.slow_unit && w->phase == VB_PHASE_FAULTS &&
        vb_prng_below(&w->prng, 8) > 0)
        i = 1 + (uint32_t)vb_prng_below(&w->prng, w->scen.units - 1);
    for (uint32_t tries = 0; tries < w->scen.units && node->unit[i].idle; tries++)
        i = (i + 1) % w->scen.units;
    return &node->unit[i];
}

void vb_node_handed(struct vb_unit *u)
{
    struct vb_node *node = u->node;
    uint32_t handed = vb_pu_handed(u->pu);

    vb_model_handed(u, handed);
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        node->unit[i].idle &= !(handed >> i & 1);
}

bool vb_node_is_idle(const struct vb_node *node)
{
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        if (!node->unit[i].idle)
            return false;
    return true;
}

// False: no unit has anything to do.
static bool step(struct vb_node *node)
{
    struct vb_unit *u = vb_node_pick(node);

    if (u != node->at)
        vb_pu_tx_keep(node->at->pu);
    node->at = u;
    u->step_ns = node->world->now_ns;
    u->idle = vb_pu_step(u->pu, node->world->now_ns).kind == VB_STEP_NONE && !u->rx_waits;
    vb_node_handed(u);
    return !vb_node_is_idle(node);
}

void vb_node_publish(struct vb_node *node, bool early)
{
    if (!node->holds)
        return;
    for (uint32_t i = 0; i < node->world->scen.units; i++)
        vb_pu_publish(node->unit[i].pu);
    vb_model_published(node, NULL, early);
}

// Nothing to do: what is owed must have been done. A socket that still holds frames wakes its
// reader.
void vb_node_rest(struct vb_node *node)
{
    struct vb_world *w = node->world;
    uint64_t deadline = deadline_of(node);

    vb_model_idle(node);
    if (deadline <= w->now_ns)
        vb_world_violate(w, "NIC %u is idle past its deadline %llu", node->index,
                         (unsigned long long)deadline);
    node->run_at_ns = deadline;
    if (vb_simnet_waiting(w->net, node->index) > 0 && w->now_ns + w->scen.step_ns < deadline)
        node->run_at_ns = w->now_ns + w->scen.step_ns;
}

// Picks the time of the next turn: mostly soon, now and then after a long sleep.
void vb_node_pause(struct vb_node *node)
{
    struct vb_world *w = node->world;
    uint64_t pause_ns = vb_prng_range(&w->prng, 1, w->scen.step_ns);

    if (w->phase == VB_PHASE_FAULTS && vb_prng_chance(&w->prng, w->scen.sleep_ppm))
        pause_ns += vb_prng_below(&w->prng, w->scen.sleep_ns + 1);
    node->run_at_ns = w->now_ns + pause_ns;
}

void vb_node_draw_hold(struct vb_node *node)
{
    struct vb_world *w = node->world;

    if (w->phase == VB_PHASE_FAULTS && vb_prng_chance(&w->prng, w->scen.hold_ppm))
        node->hold_until_ns = w->now_ns + vb_prng_below(&w->prng, w->scen.hold_ns + 1);
}

bool vb_node_may_send(const struct vb_node *node, bool full)
{
    const struct vb_world *w = node->world;
    return full || w->phase != VB_PHASE_FAULTS || w->now_ns >= node->hold_until_ns;
}

static void take_steps(struct vb_node *node)
{
    struct vb_world *w = node->world;
    uint32_t steps = (uint32_t)vb_prng_range(&w->prng, 1, w->scen.burst_max);
    bool idle = false;

    for (; steps > 0 && !idle && !w->violated; steps--) {
        feed(node);
        idle = !step(node);
    }
    if (w->violated)
        return;
    bool full = wants_tx(node);
    if (full) {
        vb_cover(w->cover, VB_COVER_LIMIT_TX);
        rouse(node); // for when there is room
    }
    vb_node_draw_hold(node);
    if (vb_node_may_send(node, full))
        transmit(node);
    keep(node);
    bool rests = idle && !full && !vb_node_has_frames_to_send(node);
    if (node->holds && (rests || vb_prng_chance(&w->prng, EARLY_PPM)))
        vb_node_publish(node, !rests);
    if (rests)
        vb_node_rest(node);
    else
        vb_node_pause(node);
}

void vb_node_run(struct vb_node *node)
{
    struct vb_world *w = node->world;

    for (uint32_t i = 0; i < w->scen.units; i++)
        node->unit[i].idle &= vb_pu_deadline(node->unit[i].pu) > w->now_ns;
    if (w->scen.drive == VB_DRIVE_STEPS)
        take_steps(node);
    else
        vb_node_take_turns(node);
}
