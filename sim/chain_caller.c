// SPDX-License-Identifier: Apache-2.0
// Callers: hosts that connect with a program of their own on a server, ask it by SEND, compare its
// answers with the reference, and get into trouble now and then.
#include "sim/chain_world.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    REQUEST_ROOM = 128, // bytes of a request
    WCS = 16,
    LIMIT = 20000, // entries of a program for each request
    STARVED_NS = 1000000,
    LEAVE_NS = 500000,
    AWAY_NS = 2000000,
    KILLED_NS = 20000000, // long enough for retries to end
    PAUSE_MAX_NS = 1000000,
};

enum trouble {
    TROUBLE_KILL,
    TROUBLE_RESET,
    TROUBLE_STOP,
    TROUBLE_NONSENSE,
    TROUBLE_STARVE,
    TROUBLES,
};

static uint32_t draw(struct vb_caller *c, uint32_t below)
{
    return vb_chainworld_draw(c->world, below);
}

void vb_caller_prepare(struct vb_caller *c, struct vb_chainworld *w, uint32_t index)
{
    c->world = w;
    c->index = index;
    c->server = &w->nic[draw(c, w->servers)];
    do // it may be another server's host
        c->nic = &w->nic[draw(c, w->nics)];
    while (c->nic == c->server);
    c->kind = (enum vb_call_kind)draw(c, VB_CALL_KINDS);
    c->slots = c->kind == VB_CALL_LIST_LOOP ? 1 : 2u << draw(c, 3);
    c->value_max = VB_CHAINS_VALUE_MAX;
    c->walk = c->kind == VB_CALL_LIST_LOOP ? 0 : 1 + draw(c, draw(c, 3) ? 8 : 18);
    c->depth = draw(c, 3) ? 1 + draw(c, c->slots) : c->slots + 1 + draw(c, 2 * c->slots);
    c->mtu = 256u << draw(c, 3);
    c->act_at_ns = draw(c, 1000);
}

// ---- the connection

static struct vb_image *make_image(const struct vb_caller *c, char *error)
{
    const struct vb_hash_opts hash = {
        .slots = c->slots, .value_max = c->value_max, .way = (enum vb_hash_way)c->kind};
    const struct vb_list_opts list = {.slots = c->slots,
                                      .value_max = c->value_max,
                                      .nodes = c->walk,
                                      .stops = c->kind == VB_CALL_LIST_STOPS};

    if (c->kind <= VB_CALL_HASH_PARALLEL)
        return vb_offload_hash_get(&hash, error);
    return c->kind == VB_CALL_LIST_LOOP ? vb_offload_list_loop(&list, error)
                                        : vb_offload_list_walk(&list, error);
}

static int make_memory(struct vb_caller *c)
{
    struct vb_piece *piece[2];
    const uint32_t access[2] = {VB_LOCAL_WRITE | VB_REMOTE_WRITE, VB_LOCAL_WRITE};
    int err = 0;

    c->memory = piece[0] = vb_piece_create(c->nic, c->slots * c->value_max, c->owner);
    c->requests = piece[1] = vb_piece_create(c->nic, VB_CHAINS_ASKED * REQUEST_ROOM, c->owner);
    c->shadow = calloc(c->slots, c->value_max);
    if (!c->memory || !c->requests || !c->shadow)
        return -1;
    for (int i = 0; i < 2 && !err; i++)
        err = vb_dev_mkey_create(c->nic->dev,
                                 &(struct vb_mkey_attr){.pd = c->pd,
                                                        .access = access[i],
                                                        .start = piece[i]->addr,
                                                        .len = piece[i]->len,
                                                        .base = piece[i]->at},
                                 &c->key[i]);
    return err;
}

static int make_qp(struct vb_caller *c)
{
    uint32_t unit = draw(c, c->nic->units);
    const struct vb_qp_opts opts = {.send_depth = VB_CHAINS_ASKED, .recv_depth = VB_CHAINS_ASKED};
    int err = vb_dev_pd_create(c->nic->dev, &c->pd);

    if (!err)
        err = vb_driver_cq_init(&c->cq, 2 * VB_CHAINS_ASKED, 0);
    if (!err)
        err = vb_driver_qp_init(&c->qp, &opts, 0, 0);
    if (!err)
        err = vb_dev_cq_create(
            c->nic->dev,
            &(struct vb_cqc_attr){
                .pu = unit, .ring = c->cq.ring, .entries = c->cq.entries, .dbrec = c->cq.dbrec},
            &c->cqn);
    if (!err)
        err = vb_dev_qp_create(c->nic->dev,
                               &(struct vb_qpc_attr){.pd = c->pd,
                                                     .send_cqn = c->cqn,
                                                     .recv_cqn = c->cqn,
                                                     .sq_ring = c->qp.sq.ring,
                                                     .sq_blocks = c->qp.sq.blocks,
                                                     .rq_ring = c->qp.rq.ring,
                                                     .rq_entries = c->qp.rq.entries,
                                                     .rq_stride_bytes = c->qp.rq.stride,
                                                     .dbrec = c->qp.dbrec},
                               &c->qp.qpn);
    c->qp.doorbells = vb_pu_doorbells(c->nic->unit[unit].pu);
    c->made = true;
    return err;
}

static int connect_both(struct vb_caller *c)
{
    const uint32_t psn[2] = {(uint32_t)vb_prng_next(&c->world->prng) & 0xffffff,
                             (uint32_t)vb_prng_next(&c->world->prng) & 0xffffff};
    struct vb_qpc_mods m = {.access = VB_REMOTE_WRITE,
                            .dest_qpn = c->prog->queue[vb_chainprog_peer(c->prog)].qpn,
                            .rq_psn = psn[1],
                            .sq_psn = psn[0],
                            .mtu_bytes = c->mtu,
                            .max_rd_atomic = 4,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = (uint8_t)(1 + draw(c, 8)),
                            .timeout = (uint8_t)(7 + draw(c, 5)),
                            .retry_cnt = 7,
                            .rnr_retry = VB_RETRY_INFINITE,
                            .local = c->nic->ip,
                            .remote = c->server->ip,
                            .src_port = 4791};
    int err = 0;

    for (m.state = VB_QPS_INIT; !err && m.state <= VB_QPS_RTS; m.state++)
        err = vb_dev_qp_modify(c->nic->dev, c->qp.qpn, &m);
    m.access = 0;
    m.dest_qpn = c->qp.qpn;
    m.rq_psn = psn[0];
    m.sq_psn = psn[1];
    m.local = c->server->ip;
    m.remote = c->nic->ip;
    return err ? err : vb_chainprog_connect(c->prog, &m);
}

static void refill(struct vb_caller *c)
{
    const struct vb_recv_wr none = {.num_sge = 0};

    if (c->world->now_ns < c->starved_until_ns && !c->world->healed)
        return;
    bool any = false;
    for (; c->receives < c->depth && vb_driver_post_recv(&c->qp, &none, 1) == 1; any = true)
        c->receives++;
    if (any)
        vb_chainnic_wake(c->nic);
}

static void connect(struct vb_caller *c)
{
    struct vb_chainworld *w = c->world;
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = make_image(c, error);
    int err = image ? 0 : -1;

    c->owner = ++w->owners;
    if (!err && !c->made)
        err = make_qp(c);
    if (!err)
        err = make_memory(c);
    if (err) {
        vb_chainworld_violate(w, "caller %u cannot be made: %d %s", c->index, err, error);
        if (image)
            vb_image_destroy(image);
        return;
    }
    const struct vb_chainload load = {
        .owner = c->owner,
        .fetch_depth = vb_chainprog_draw_depth(w),
        .start = vb_chainprog_draw_start(w, image),
        .limit = draw(c, 2) ? LIMIT : 0,
        .rate = draw(c, 8) == 0 ? 1000000 + draw(c, 20000000) : 0,
        .burst = 1 + draw(c, 32),
        .client = {.addr = c->memory->addr, .key = c->key[0]},
    };
    c->prog = vb_chainprog_load(c->server, &load, image);
    if (!c->prog)
        return;
    c->prog->caller = c;
    if (connect_both(c) != 0) {
        vb_chainworld_violate(w, "caller %u cannot be connected", c->index);
        return;
    }
    if (c->connections++ > 0)
        vb_cover(w->cover, VB_COVER_CHAIN_AGAIN);
    c->asked = c->answered = c->sent = c->receives = 0;
    c->hostile = false;
    c->end = (struct vb_chainend){0};
    c->starved_until_ns = 0;
    c->leave_at_ns = UINT64_MAX;
    refill(c);
    vb_chainprog_open(c->prog);
}

// Its own end goes at once; its queue pair goes too, or is kept in RESET. The server's host takes
// the program down a while later.
static void leave(struct vb_caller *c, bool keep_qp)
{
    struct vb_dev *dev = c->nic->dev;
    int err = 0;

    for (uint32_t i = 0; i < c->nic->units; i++)
        vb_pu_tx_keep(c->nic->unit[i].pu);
    if (keep_qp) {
        vb_chainnic_publish(c->nic);
        err = vb_dev_qp_modify(dev, c->qp.qpn, &(struct vb_qpc_mods){.state = VB_QPS_RESET});
        vb_driver_cq_clean(&c->cq, c->qp.qpn, NULL);
        vb_driver_qp_reset(&c->qp);
    } else {
        err = vb_dev_qp_destroy(dev, c->qp.qpn);
    }
    for (int i = 0; i < 2 && !err; i++)
        err = vb_dev_mkey_destroy(dev, c->key[i]);
    if (!keep_qp && !err)
        err = vb_dev_cq_destroy(dev, c->cqn);
    if (!keep_qp && !err)
        err = vb_dev_pd_destroy(dev, c->pd);
    if (err)
        vb_chainworld_violate(c->world, "caller %u cannot leave: %d", c->index, err);
    if (!keep_qp) {
        vb_driver_qp_fini(&c->qp);
        vb_driver_cq_fini(&c->cq);
        c->made = false;
    }
    vb_piece_destroy(c->nic, c->owner);
    free(c->shadow);
    c->shadow = NULL;
    c->prog->goes_at_ns = c->world->now_ns + draw(c, keep_qp ? AWAY_NS : KILLED_NS);
    c->prog->caller = NULL;
    c->prog = NULL;
    c->act_at_ns = c->world->now_ns + 1 + draw(c, AWAY_NS);
    vb_chainworld_note(c->world, "caller %u leaves%s", c->index, keep_qp ? ", QP kept" : "");
    vb_chainnic_wake(c->nic);
}

void vb_caller_destroy(struct vb_caller *c)
{
    if (c->made) {
        vb_driver_qp_fini(&c->qp);
        vb_driver_cq_fini(&c->cq);
    }
    free(c->shadow);
}

// ---- answers

static bool has_failed_neighbour(const struct vb_caller *c)
{
    for (uint32_t i = 0; i < c->world->progs; i++) {
        const struct vb_chainprog *p = c->world->prog[i];
        if (p->nic == c->server && p != c->prog && vb_chainprog_failed(p))
            return true;
    }
    return false;
}

static void cover_answer(struct vb_caller *c, uint32_t len)
{
    static const enum vb_cover_row rows[VB_CALL_KINDS] = {
        [VB_CALL_HASH_ONE] = VB_COVER_CHAIN_HASH_ONE,
        [VB_CALL_HASH_SEQUENTIAL] = VB_COVER_CHAIN_HASH_SEQUENTIAL,
        [VB_CALL_HASH_PARALLEL] = VB_COVER_CHAIN_HASH_PARALLEL,
        [VB_CALL_LIST] = VB_COVER_CHAIN_LIST,
        [VB_CALL_LIST_STOPS] = VB_COVER_CHAIN_LIST_STOPS,
        [VB_CALL_LIST_LOOP] = VB_COVER_CHAIN_LIST_LOOP,
    };
    struct vb_coverage *cover = c->world->cover;

    vb_cover(cover, rows[c->kind]);
    if (len == 0)
        vb_cover(cover, VB_COVER_CHAIN_MISS);
    if (len > c->mtu)
        vb_cover(cover, VB_COVER_CHAIN_LONG_ANSWER);
    if (c->server->units > 1)
        vb_cover(cover, VB_COVER_CHAIN_UNITS);
    if (c->server->polls)
        vb_cover(cover, VB_COVER_CHAIN_POLLED);
    if (c->prog->opts.fetch_depth == 1)
        vb_cover(cover, VB_COVER_CHAIN_DEPTH_ONE);
    if (c->prog->opts.fetch_depth == 256)
        vb_cover(cover, VB_COVER_CHAIN_DEPTH_MOST);
    if (has_failed_neighbour(c))
        vb_cover(cover, VB_COVER_CHAIN_NEIGHBOUR);
}

// The value, and behind it what was there before; both only while no later answer can have come
// into the same place.
static bool is_right(struct vb_caller *c, uint64_t n, const uint8_t *value, uint32_t len)
{
    size_t at = (size_t)(n % c->slots) * c->value_max;

    memcpy(c->shadow + at, value, len);
    if (c->asked > n + c->slots)
        return true;
    uint32_t known = c->depth > c->slots ? len : c->value_max;
    return memcmp(c->memory->at + at, c->shadow + at, known) == 0;
}

static void take_answer(struct vb_caller *c, const struct vb_wc *wc)
{
    uint64_t n = c->answered++;
    const struct vb_answer *want = &c->want[n % VB_CHAINS_ASKED];
    uint32_t imm = be32toh(wc->imm), len = 0;
    const uint8_t *value = NULL;

    c->receives--;
    vb_digest_add(&c->world->digest, (uint64_t)c->index << 32 | imm);
    if (n >= c->asked) {
        vb_chainworld_violate(c->world, "caller %u got an answer that it did not ask for",
                              c->index);
        return;
    }
    if (c->hostile && n >= c->nonsense_at) {
        vb_excuse(c->world->cover, VB_EXCUSE_CHAIN_NONSENSE);
        return;
    }
    bool hit = want->value != UINT32_MAX;
    if (hit)
        value = vb_chainstore_value(c->server, want->value, &len);
    if (wc->opcode != VB_WC_RECV_WRITE || imm != (hit ? len : (uint32_t)VB_HASH_MISS) ||
        wc->byte_len != len)
        vb_chainworld_violate(
            c->world, "caller %u (kind %d): request %llu was answered by %u bytes and %08x, not %u",
            c->index, (int)c->kind, (unsigned long long)n, wc->byte_len, imm, len);
    else if (hit && !is_right(c, n, value, len))
        vb_chainworld_violate(c->world, "caller %u: request %llu was answered by other bytes",
                              c->index, (unsigned long long)n);
    if (!vb_chainprog_is_alone(c->prog))
        vb_chainworld_violate(c->world, "caller %u: the server's host had to help", c->index);
    cover_answer(c, len);
    c->done++;
    c->world->done++;
}

static void take_error(struct vb_caller *c, const struct vb_wc *wc)
{
    // An end by retries was judged when it came, and flushes the rest.
    bool silent = wc->status == VB_WC_RETRY_EXCEEDED || wc->status == VB_WC_FLUSHED;

    vb_chainworld_note(c->world, "caller %u error %d", c->index, (int)wc->status);
    if (wc->status == VB_WC_RETRY_EXCEEDED && c->hostile && !vb_chainnic_is_seen(c->nic))
        vb_caller_ends(c);
    if (silent && c->end.silent)
        return;
    if (c->hostile && wc->status != VB_WC_RETRY_EXCEEDED)
        vb_excuse(c->world->cover, VB_EXCUSE_CHAIN_NONSENSE);
    else
        vb_chainworld_violate(c->world, "caller %u: a request failed: %s", c->index,
                              vb_wc_status_text(wc->status));
}

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct vb_caller *c = ctx;
    return c->qp.qpn == qpn ? &c->qp : NULL;
}

// How many completions there were.
static int poll(struct vb_caller *c)
{
    struct vb_wc wc[WCS];
    int count, all = 0;

    while (!c->world->violated && (count = vb_driver_poll(&c->cq, find, c, wc, WCS)) > 0) {
        for (int i = 0; i < count; i++) {
            bool receive = wc[i].opcode == VB_WC_RECV || wc[i].opcode == VB_WC_RECV_WRITE;
            if (wc[i].status != VB_WC_OK)
                take_error(c, &wc[i]);
            else if (receive)
                take_answer(c, &wc[i]);
        }
        all += count;
    }
    return all;
}

// ---- requests

static uint32_t nonsense(struct vb_caller *c, uint8_t *request)
{
    struct vb_answer answer;
    uint32_t len = vb_chainstore_ask(c->server, &c->world->prng, c, request, &answer);

    if (draw(c, 2)) // an address that is nobody's, or anybody's
        vb_put_be64(request + (c->kind <= VB_CALL_HASH_PARALLEL ? VB_HASH_KEY_BYTES : 0),
                    draw(c, 2) ? vb_prng_next(&c->world->prng)
                               : c->server->next_addr - draw(c, 1 << 22));
    else
        for (uint32_t i = 0; i < len; i++)
            request[i] = (uint8_t)vb_prng_next(&c->world->prng);
    return draw(c, 3) ? len : draw(c, REQUEST_ROOM);
}

static bool ask(struct vb_caller *c, bool right)
{
    uint32_t at = (uint32_t)(c->sent % VB_CHAINS_ASKED);
    uint8_t *request = c->requests->at + (size_t)at * REQUEST_ROOM;
    struct vb_answer *want = &c->want[c->asked % VB_CHAINS_ASKED];
    uint32_t len = right ? vb_chainstore_ask(c->server, &c->world->prng, c, request, want)
                         : nonsense(c, request);
    const struct vb_sge sge = {c->requests->addr + (uint64_t)at * REQUEST_ROOM, len, c->key[1]};
    const struct vb_send_wr wr = {
        .sge = &sge, .num_sge = len > 0, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};

    if (vb_driver_post_send(&c->qp, &wr, 1) != 1)
        return false;
    c->asked++;
    c->sent++;
    c->world->works++;
    vb_chainnic_wake(c->nic);
    return true;
}

static bool ask_some(struct vb_caller *c)
{
    bool any = false;

    for (uint32_t most = 1 + draw(c, c->depth); most > 0; most--) {
        if (c->asked - c->answered >= c->depth || c->done + (c->asked - c->answered) >= c->quota ||
            !ask(c, true))
            break;
        any = true;
    }
    return any;
}

// ---- trouble

static void get_into_trouble(struct vb_caller *c)
{
    struct vb_coverage *cover = c->world->cover;

    switch ((enum trouble)draw(c, TROUBLES)) {
    case TROUBLE_KILL:
        vb_cover(cover, VB_COVER_CHAIN_KILLED);
        leave(c, false);
        break;
    case TROUBLE_RESET:
        vb_cover(cover, VB_COVER_CHAIN_RESET);
        leave(c, true);
        break;
    case TROUBLE_STOP:
        vb_cover(cover, VB_COVER_CHAIN_STOPPED);
        vb_chainprog_stop(c->prog);
        break;
    case TROUBLE_NONSENSE:
        if (!c->prog->opts.limit)
            break;
        vb_cover(cover, VB_COVER_CHAIN_HOSTILE);
        c->hostile = c->prog->hostile = true;
        c->nonsense_at = c->asked;
        c->leave_at_ns = c->world->now_ns + LEAVE_NS + draw(c, LEAVE_NS);
        ask(c, false);
        break;
    default: c->starved_until_ns = c->world->now_ns + draw(c, STARVED_NS); break;
    }
}

static bool is_broken(const struct vb_caller *c)
{
    enum vb_qp_state state;

    return vb_dev_qp_state(c->nic->dev, c->qp.qpn, &state) != 0 || state == VB_QPS_ERR ||
           vb_chainprog_failed(c->prog);
}

void vb_caller_act(struct vb_caller *c)
{
    struct vb_chainworld *w = c->world;
    bool any;

    if (!c->prog) {
        connect(c);
        c->act_at_ns = w->now_ns + 1;
        return;
    }
    any = poll(c) > 0;
    if (w->violated)
        return;
    // A program that its host has ended is heard of a while later.
    if (c->prog->stopped && c->leave_at_ns == UINT64_MAX)
        c->leave_at_ns = w->now_ns + draw(c, LEAVE_NS);
    bool over = c->hostile || c->prog->stopped;
    if (over ? w->now_ns >= c->leave_at_ns || w->healed : is_broken(c)) {
        leave(c, draw(c, 2));
        return;
    }
    if (!w->healed && !over && w->troubles && vb_prng_chance(&w->prng, w->trouble_ppm)) {
        w->troubles--;
        get_into_trouble(c);
        if (!c->prog)
            return;
    }
    refill(c);
    any |= ask_some(c);
    uint64_t pause = c->act_at_ns && !any ? w->scen.think_ns * 4 : w->scen.think_ns;
    c->act_at_ns =
        w->now_ns + 1 + vb_prng_below(&w->prng, pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS);
}

void vb_caller_settle(struct vb_caller *c)
{
    poll(c);
    if (c->answered != c->asked)
        vb_chainworld_violate(c->world, "caller %u: %llu of %llu requests were answered", c->index,
                              (unsigned long long)c->answered, (unsigned long long)c->asked);
}

void vb_caller_leave(struct vb_caller *c)
{
    leave(c, false);
}
