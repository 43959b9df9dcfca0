// SPDX-License-Identifier: Apache-2.0
// The client's side of `verbena perf get`.
#include "cli/perf_get_client.h"

#include "base/bytes.h"
#include "cli/perf_get_list.h"
#include "cli/perf_plan.h"
#include "port/clock.h"
#include "verbena/offload_service.h"

#include <sched.h>
#include <string.h>

enum {
    LOOK_EVERY = 16,   // turns between looks at the clock
    SIGNAL_EVERY = 16, // SENDs, so that the send queue empties
    RECV_BATCH = 16,   // receives posted at once
    LEAST = 32,        // requests of a slice: one that was kept off its core has a median, too
    REQUEST_MAX = VB_GET_WALK_BYTES,
};

static_assert((int)REQUEST_MAX >= (int)sizeof(struct vb_hash_request2), "room for any request");

#define VALUE_BIT (1ull << 63) // of a READ's identifier: of the value, not of the neighbourhood

// ---- life

static uint32_t send_depth(const struct vb_get_table *t)
{
    return 2 * t->slots + SIGNAL_EVERY;
}

static uint32_t recv_depth(const struct vb_get_table *t)
{
    return t->slots + RECV_BATCH;
}

void vb_get_end_opts(const struct vb_perf_plan *plan, struct vb_perf_end_opts *opts)
{
    struct vb_get_table t = vb_get_table_of(plan);
    opts->mem_bytes = t.client_bytes;
    opts->send_depth = send_depth(&t);
    opts->recv_depth = recv_depth(&t);
    opts->inline_bytes = REQUEST_MAX;
    opts->cq_entries = VB_GET_QPS * (send_depth(&t) + recv_depth(&t));
}

static int post_receives(struct vb_get_run *run, uint32_t q, uint32_t n)
{
    const struct vb_recv_wr wr[RECV_BATCH] = {0}; // a reply is a WRITE: it needs no room
    while (n > 0) {
        uint32_t some = n < RECV_BATCH ? n : RECV_BATCH;
        if (vb_post_recv(run->qp[q], wr, some) != (int)some)
            return vb_perf_fail(run->base->why, "the queue pair takes no receive");
        n -= some;
    }
    return 0;
}

// The chain's replies go to the beginning of our memory, as those of the CPU do.
static uint32_t ask_for_chain(struct vb_get_run *run, uint8_t message[VB_OFFLOAD_MESSAGE])
{
    const struct vb_perf_end *end = run->base->end;
    struct vb_offload_join join = {.offload = VB_GET_OFFLOAD,
                                   .nonce = run->base->plan->seed,
                                   .qpn = vb_qp_num(run->qp[VB_GET_CHAIN]),
                                   .mtu = end->opts.mtu,
                                   .depth = run->table.slots,
                                   .addr = (uint64_t)(uintptr_t)end->mem,
                                   .bytes = run->table.hoods,
                                   .key = vb_mr_key(end->mr)};
    vb_nic_gid(end->nic, join.gid);
    return vb_offload_write_join(message, &join);
}

static int connect_chain(struct vb_get_run *run, struct vb_control_msg *msg, char *why)
{
    uint8_t answer[VB_CONTROL_BODY];
    char text[VB_OFFLOAD_TEXT];
    struct vb_offload_place place;
    uint32_t len = msg->len - msg->at;
    vb_control_get_bytes(msg, answer, len);
    if (vb_offload_read_place(answer, len, &place, text) != 0)
        return vb_perf_fail(why, "no chain: %s", text);
    struct vb_qp_peer peer = {.qpn = place.qpn,
                              .psn = place.psn,
                              .mtu = place.mtu,
                              .rights = VB_RIGHT_REMOTE_WRITE,
                              .timeout = run->base->end->opts.timeout};
    memcpy(peer.gid, place.gid, sizeof peer.gid);
    int error = vb_qp_connect(run->qp[VB_GET_CHAIN], &peer);
    return error ? vb_perf_fail(why, "cannot connect a queue pair: %s", strerror(-error)) : 0;
}

static int connect_both(struct vb_get_run *run, struct vb_perf_session *session)
{
    struct vb_perf_end *end = run->base->end;
    struct vb_control_msg msg;
    uint8_t message[VB_OFFLOAD_MESSAGE];
    vb_control_begin(&msg, VB_CONTROL_NAMES);
    vb_control_put(&msg, 0);
    vb_perf_end_name(end, 0, &msg);
    vb_control_put_bytes(&msg, message, ask_for_chain(run, message));
    if (vb_perf_ask(session, &msg, VB_CONTROL_NAMES) < 0 ||
        vb_perf_end_connect(end, 0, &msg, session->why) < 0 ||
        connect_chain(run, &msg, session->why) < 0)
        return -1;
    for (uint32_t q = 0; q < VB_GET_QPS; q++) {
        if (post_receives(run, q, recv_depth(&run->table)) < 0)
            return -1;
    }
    return 0;
}

int vb_get_run_open(struct vb_get_run *run, struct vb_perf_session *session,
                    struct vb_perf_run *base)
{
    struct vb_perf_end *end = base->end;
    *run =
        (struct vb_get_run){.base = base, .table = vb_get_table_of(base->plan), .qp = {end->qp[0]}};
    const struct vb_qp_opts opts = {
        .send_cq = end->send_cq,
        .recv_cq = end->send_cq,
        .send_depth = send_depth(&run->table),
        .recv_depth = recv_depth(&run->table),
        .inline_bytes = REQUEST_MAX,
    };
    for (; run->chase.count < base->plan->depth; run->chase.count++)
        run->chase.free[run->chase.count] = run->chase.count;
    int error = vb_qp_create(end->pd, &opts, &run->qp[VB_GET_CHAIN]);
    if (error)
        return vb_perf_fail(session->why, "cannot create a queue pair: %s", strerror(-error));
    return connect_both(run, session);
}

void vb_get_run_close(struct vb_get_run *run)
{
    if (run->qp[VB_GET_CHAIN] != NULL)
        vb_qp_destroy(run->qp[VB_GET_CHAIN]);
    run->qp[VB_GET_CHAIN] = NULL;
}

uint64_t vb_get_run_rnr(const struct vb_get_run *run)
{
    uint64_t received = 0, sent = 0;
    (void)vb_nic_counter(run->base->end->nic, "rcvd_rnr_err", &received);
    (void)vb_nic_counter(run->base->end->nic, "send_rnr_err", &sent);
    return received + sent;
}

// ---- one request

static int post(struct vb_get_run *run, uint32_t q, const struct vb_send_wr *wr)
{
    if (vb_post_send(run->qp[q], wr, 1) != 1)
        return vb_perf_fail(run->base->why, "the queue pair is full");
    return 0;
}

static int post_read(struct vb_get_run *run, uint64_t id, size_t to, uint64_t from, uint32_t len)
{
    const struct vb_perf_end *end = run->base->end;
    const struct vb_sge sge = {(uint64_t)(uintptr_t)end->mem + to, len, vb_mr_key(end->mr)};
    return post(run, VB_GET_PLAIN,
                &(struct vb_send_wr){.wr_id = id,
                                     .opcode = VB_WR_READ,
                                     .flags = VB_WR_SIGNALED,
                                     .sge = &sge,
                                     .num_sge = 1,
                                     .rkey = end->peer_key,
                                     .raddr = from});
}

static int post_send(struct vb_get_run *run, uint32_t q, const void *request, uint32_t len)
{
    const struct vb_sge sge = {(uint64_t)(uintptr_t)request, len, 0};
    uint32_t signal = ++run->sent[q] % SIGNAL_EVERY == 0 ? VB_WR_SIGNALED : 0;
    return post(
        run, q,
        &(struct vb_send_wr){
            .opcode = VB_WR_SEND, .flags = VB_WR_INLINE | signal, .sge = &sge, .num_sge = 1});
}

static int post_request(struct vb_get_run *run, uint32_t q, const uint8_t key[VB_HASH_KEY_BYTES],
                        uint64_t bucket)
{
    struct vb_hash_request2 request;
    bool both = run->table.collides && q == VB_GET_CHAIN;
    memcpy(request.first.key, key, sizeof request.first.key);
    vb_put_be64(request.first.bucket, bucket);
    if (both) {
        request.second = request.first;
        vb_put_be64(request.second.bucket, bucket + sizeof(struct vb_hash_bucket));
    }
    return post_send(run, q, &request, both ? sizeof request : sizeof request.first);
}

static int post_walk(struct vb_get_run *run, const uint8_t key[VB_HASH_KEY_BYTES], uint64_t head)
{
    uint8_t request[VB_LIST_REQUEST_MAX];
    return post_send(run, VB_GET_CHAIN, request, vb_list_ask(request, head, key, VB_PERF_LIST_MAX));
}

static bool is_verified(uint64_t n)
{
    return n % VB_PERF_VERIFY_EVERY == VB_PERF_VERIFY_EVERY - 1;
}

// Where the value of a request goes.
static uint8_t *value_of(struct vb_get_run *run, enum vb_perf_via via, uint64_t n, uint32_t place)
{
    const struct vb_get_table *t = &run->table;
    uint8_t *mem = run->base->end->mem;
    return via == VB_PERF_VIA_CHASE ? mem + vb_get_hood(t, place) + VB_GET_NODE_BYTES
                                    : mem + vb_get_reply(t, n);
}

// Nothing that was there before can pass for the value.
static void prepare(struct vb_get_run *run, enum vb_perf_via via)
{
    uint64_t n = run->lane[via].begun;
    uint32_t place = via == VB_PERF_VIA_CHASE ? run->chase.free[run->chase.count - 1] : 0;
    vb_get_value_poison(&run->table, value_of(run, via, n, place), vb_get_pick(&run->table, n),
                        run->base->plan->seed);
}

// ---- walks by READs

static int read_node(struct vb_get_run *run, uint32_t place, uint64_t at)
{
    const struct vb_get_table *t = &run->table;
    return post_read(run, place, vb_get_hood(t, place), at, VB_GET_NODE_BYTES + t->size);
}

static int begin_chase(struct vb_get_run *run, uint64_t n, uint64_t head)
{
    uint32_t place = run->chase.free[--run->chase.count];
    run->chase.n[place] = n;
    return read_node(run, place, head);
}

// A node has come, and its value with it: it is the right one, or says where the next is. 1: done.
static int chase_on(struct vb_get_run *run, uint32_t place)
{
    const struct vb_get_table *t = &run->table;
    const struct vb_list_node *node = (const void *)(run->base->end->mem + vb_get_hood(t, place));
    uint64_t n = run->chase.n[place], next = be64toh(node->next);
    uint8_t key[VB_HASH_KEY_BYTES];
    vb_get_key(vb_get_pick(t, n), key);
    if (vb_get_node_has(node, key)) {
        run->chase.free[run->chase.count++] = place;
        run->chased = place;
        run->lane[VB_PERF_VIA_CHASE].last = n;
        return 1;
    }
    if (next == run->base->end->peer_addr) // the end
        return vb_perf_fail(run->base->why, "get %llu via chase did not find its key",
                            (unsigned long long)n);
    return read_node(run, place, next);
}

// ---- all ways

static int begin(struct vb_get_run *run, enum vb_perf_via via)
{
    const struct vb_get_table *t = &run->table;
    uint64_t n = run->lane[via].begun++, memory = run->base->end->peer_addr;
    uint32_t pick = vb_get_pick(t, n);
    uint8_t key[VB_HASH_KEY_BYTES];
    if (via == VB_PERF_VIA_READ)
        return post_read(run, n | VALUE_BIT, vb_get_reply(t, n), memory + vb_get_item(t, pick),
                         t->size);
    vb_get_key(pick, key);
    if (t->list) {
        uint64_t head = memory + vb_get_head(t, pick);
        return via == VB_PERF_VIA_CHASE   ? begin_chase(run, n, head)
               : via == VB_PERF_VIA_CHAIN ? post_walk(run, key, head)
                                          : post_request(run, VB_GET_PLAIN, key, head);
    }
    uint64_t bucket = memory + vb_get_bucket(vb_get_home(t, key));
    if (via == VB_PERF_VIA_FARM)
        return post_read(run, n, vb_get_hood(t, n), bucket, VB_GET_HOOD_BYTES);
    return post_request(run, via == VB_PERF_VIA_CHAIN ? VB_GET_CHAIN : VB_GET_PLAIN, key, bucket);
}

// The neighbourhood has come: the bucket in it says where the value is.
static int read_found(struct vb_get_run *run, uint64_t n)
{
    const struct vb_get_table *t = &run->table;
    uint8_t key[VB_HASH_KEY_BYTES];
    vb_get_key(vb_get_pick(t, n), key);
    const struct vb_hash_bucket *hood = (const void *)(run->base->end->mem + vb_get_hood(t, n));
    const struct vb_hash_bucket *bucket = vb_get_find(hood, key);
    if (bucket == NULL || be32toh(bucket->len) != t->size)
        return vb_perf_fail(run->base->why, "get %llu via farm did not find its key",
                            (unsigned long long)n);
    return post_read(run, n | VALUE_BIT, vb_get_reply(t, n), be64toh(bucket->addr), t->size);
}

static int take_reply(struct vb_get_run *run, enum vb_perf_via via, const struct vb_wc *wc)
{
    uint32_t q = via == VB_PERF_VIA_CHAIN ? VB_GET_CHAIN : VB_GET_PLAIN;
    if (wc->opcode != VB_WC_RECV_WRITE || be32toh(wc->imm) != run->table.size)
        return vb_perf_fail(run->base->why, "get %llu via %s was not found",
                            (unsigned long long)run->lane[via].done, vb_perf_via_name(via));
    if (++run->missing[q] < RECV_BATCH)
        return 0;
    run->missing[q] = 0;
    return post_receives(run, q, RECV_BATCH);
}

// Of the request that was done last.
static int check(struct vb_get_run *run, enum vb_perf_via via)
{
    const struct vb_get_table *t = &run->table;
    uint64_t n = run->lane[via].last;
    if (!is_verified(n))
        return 0;
    if (!vb_get_value_matches(t, value_of(run, via, n, run->chased), vb_get_pick(t, n),
                              run->base->plan->seed))
        return vb_perf_fail(run->base->why, "wrong bytes: get %llu via %s is not the key's value",
                            (unsigned long long)n, vb_perf_via_name(via));
    run->lane[via].verified++;
    return 0;
}

// What a completion is to the way that runs. 1: a request is done.
static int take(struct vb_get_run *run, enum vb_perf_via via, const struct vb_wc *wc)
{
    if (wc->status != VB_WC_OK)
        return vb_perf_fail(run->base->why, "get via %s failed: %s", vb_perf_via_name(via),
                            vb_wc_status_text(wc->status));
    if (wc->opcode == VB_WC_SEND) // of this way, or of the one before
        return 0;
    struct vb_get_lane *lane = &run->lane[via];
    if (via == VB_PERF_VIA_CHASE) {
        int done = chase_on(run, (uint32_t)wc->wr_id);
        lane->done += done > 0;
        return done;
    }
    if (wc->opcode == VB_WC_READ && !(wc->wr_id & VALUE_BIT))
        return read_found(run, wc->wr_id);
    if (wc->opcode != VB_WC_READ && take_reply(run, via, wc) < 0)
        return -1;
    lane->last = lane->done++;
    return 1;
}

// ---- many

int vb_get_run_latency(struct vb_get_run *run, enum vb_perf_via via,
                       const struct vb_perf_budget *budget, struct vb_hist *hist)
{
    struct vb_recent recent = {0};
    uint64_t start = vb_clock_recent_ns(&recent);
    bool verified = false;
    for (uint64_t n = 0; n < budget->ops && (n < LEAST || start < budget->end_ns); n++) {
        struct vb_wc wc;
        bool verify = is_verified(run->lane[via].begun);
        int done = 0;
        if (verify)
            prepare(run, via);
        if (verify || verified)
            start = vb_clock_recent_ns(&recent); // making patterns is not the NIC's time
        if (begin(run, via) < 0)
            return -1;
        while (done == 0) {
            if (vb_perf_run_await(run->base, &wc) < 0)
                return -1;
            done = take(run, via, &wc);
        }
        if (done < 0)
            return -1;
        uint64_t end = vb_clock_recent_ns(&recent);
        vb_hist_record(hist, end - start);
        start = end;
        if (check(run, via) < 0)
            return -1;
        verified = verify;
    }
    return 0;
}

static int begin_some(struct vb_get_run *run, enum vb_perf_via via)
{
    struct vb_get_lane *lane = &run->lane[via];
    while (lane->begun - lane->done < run->base->plan->depth && run->base->ops_left > 0) {
        if (is_verified(lane->begun))
            prepare(run, via);
        if (begin(run, via) < 0)
            return -1;
        run->base->ops_left--;
    }
    return 0;
}

int vb_get_run_rate(struct vb_get_run *run, enum vb_perf_via via,
                    const struct vb_perf_budget *budget, uint64_t *ops, uint64_t *ns)
{
    struct vb_get_lane *lane = &run->lane[via];
    struct vb_wc wc[VB_PERF_BATCH];
    struct vb_perf_watch w;
    uint64_t before = lane->done;
    bool moved = false;
    vb_perf_watch_begin(&w);
    run->base->ops_left = budget->ops;
    for (uint64_t turn = 1;; turn++) {
        if (w.now_ns < budget->end_ns && begin_some(run, via) < 0)
            return -1;
        if (lane->begun == lane->done)
            break;
        int n = vb_poll_cq(run->base->end->send_cq, wc, VB_PERF_BATCH);
        for (int i = 0; i < n; i++) {
            int done = take(run, via, &wc[i]);
            if (done < 0 || (done > 0 && check(run, via) < 0))
                return -1;
        }
        moved |= n > 0;
        if (n == 0 && run->base->yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0) {
            if (vb_perf_watch_look(&w, run->base, budget, moved) < 0)
                return -1;
            moved = false;
        }
    }
    *ns = vb_clock_ns() - w.begin_ns;
    *ops = lane->done - before;
    return 0;
}
