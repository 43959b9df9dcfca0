// SPDX-License-Identifier: Apache-2.0
// The server's side of `verbena perf get`.
#include "cli/perf_get_server.h"

#include "base/bytes.h"
#include "cli/perf_get_list.h"

#include <poll.h>
#include <sched.h>
#include <string.h>

enum {
    LOOK_EVERY = 256, // turns between looks at the control channel
    BATCH = 64,
    SIGNAL_EVERY = 16, // replies, so that the send queue empties
    REQUEST_ROOM = 64, // bytes of a receive
};

// ---- life

static struct vb_image *make_chain(void *server, uint32_t depth, char *error)
{
    static const enum vb_hash_way ways[VB_PERF_COLLISIONS] = {VB_HASH_ONE, VB_HASH_SEQUENTIAL,
                                                              VB_HASH_PARALLEL};
    const struct vb_get_server *s = server;
    const struct vb_hash_opts hash = {
        .slots = depth, .value_max = s->table.stride, .way = ways[s->collision]};
    const struct vb_list_opts list = {.slots = depth,
                                      .value_max = s->table.stride,
                                      .nodes = VB_PERF_LIST_MAX,
                                      .stops = s->breaks};
    return s->table.list ? vb_offload_list_walk(&list, error) : vb_offload_hash_get(&hash, error);
}

static int offer_chain(struct vb_get_server *s, char *why)
{
    const struct vb_get_table *t = &s->table;
    size_t items = (size_t)t->keys * t->element;
    size_t index = t->list ? t->items + items : vb_get_bucket(t->buckets);
    const struct vb_offload_memory memory[] = {
        {"index", s->end.mem, index, false},
        {"items", s->end.mem + t->items, items, false},
    };
    const struct vb_offload_offer offer = {.name = VB_GET_OFFLOAD,
                                           .make = make_chain,
                                           .ctx = s,
                                           .memory = memory,
                                           .memories = sizeof memory / sizeof *memory,
                                           .depth_max = t->slots};
    char text[VB_OFFLOAD_TEXT] = "no memory";
    const struct vb_offload_service_opts opts = {.clients_max = 1, .timeout = s->end.opts.timeout};
    if (vb_offload_open(s->end.nic, &opts, &s->service) != 0 ||
        vb_offload_add(s->service, &offer, text) != 0)
        return vb_perf_fail(why, "cannot offer the program: %s", text);
    return 0;
}

int vb_get_server_open(struct vb_get_server *s, struct vb_nic *nic, const struct vb_perf_plan *plan,
                       char *why)
{
    *s = (struct vb_get_server){
        .table = vb_get_table_of(plan), .collision = plan->collision, .breaks = plan->breaks};
    struct vb_perf_end_opts opts = {
        .mem_bytes = s->table.server_bytes,
        .qps = 1,
        .send_depth = 2 * s->table.slots + SIGNAL_EVERY,
        .recv_depth = s->table.slots,
        .sges = 1,
        .mtu = plan->mtu,
        .reads = plan->reads,
        .seed = ~plan->seed,
        .timeout = (uint8_t)plan->timeout,
        .cq_entries = 4 * s->table.slots + SIGNAL_EVERY,
    };
    int error = vb_channel_create(nic, &opts.channel);
    if (error)
        return vb_perf_fail(why, "cannot make a completion channel: %s", strerror(-error));
    s->channel = opts.channel;
    if (vb_perf_end_open(&s->end, nic, &opts, why) < 0 || offer_chain(s, why) < 0) {
        vb_get_server_close(s);
        return -1;
    }
    vb_get_table_fill(&s->table, s->end.mem, plan->seed);
    return 0;
}

void vb_get_server_close(struct vb_get_server *s)
{
    vb_offload_close(s->service);
    vb_perf_end_close(&s->end);
    vb_channel_destroy(s->channel);
    *s = (struct vb_get_server){0};
}

static void post_receive(struct vb_get_server *s, uint64_t n)
{
    struct vb_sge sge = {
        .addr = (uint64_t)(uintptr_t)s->end.mem + s->table.requests + n * REQUEST_ROOM,
        .len = REQUEST_ROOM,
        .lkey = vb_mr_key(s->end.mr),
    };
    if (vb_post_recv(s->end.qp[0], &(struct vb_recv_wr){.wr_id = n, .sge = &sge, .num_sge = 1},
                     1) != 1)
        s->wrong++;
}

int vb_get_server_connect(struct vb_get_server *s, struct vb_control_msg *msg, char *why)
{
    uint8_t message[VB_CONTROL_BODY], answer[VB_OFFLOAD_MESSAGE];
    if (s->client != 0)
        return vb_perf_fail(why, "the client connects twice");
    if (vb_perf_end_connect(&s->end, 0, msg, why) < 0)
        return -1;
    for (uint32_t n = 0; n < s->table.slots; n++)
        post_receive(s, n);
    uint32_t len = msg->len - msg->at;
    vb_control_get_bytes(msg, message, len);
    len = vb_offload_answer(s->service, message, len, answer, &s->client);
    vb_control_begin(msg, VB_CONTROL_NAMES);
    vb_perf_end_name(&s->end, 0, msg);
    vb_control_put_bytes(msg, answer, len);
    return 0;
}

// ---- the CPU's program

// A key that is not there (len_be 0) gets an empty reply, as from the chain. Both are as bucket and
// node have them.
static void reply(struct vb_get_server *s, uint64_t addr_be, uint32_t len_be)
{
    uint64_t n = s->answered[s->via]++;
    struct vb_sge sge = {.lkey = vb_mr_key(s->end.mr)};
    struct vb_send_wr wr = {
        .opcode = VB_WR_WRITE_IMM,
        .sge = &sge,
        .num_sge = len_be ? 1 : 0,
        .flags = n % SIGNAL_EVERY == 0 ? VB_WR_SIGNALED : 0,
        .rkey = s->end.peer_key,
        .raddr = s->end.peer_addr + vb_get_reply(&s->table, n),
        .imm = len_be ? len_be : VB_HASH_MISS,
    };
    sge.addr = be64toh(addr_be);
    sge.len = be32toh(len_be);
    if (vb_post_send(s->end.qp[0], &wr, 1) != 1)
        s->wrong++;
}

static void look_up(struct vb_get_server *s, const struct vb_wc *wc)
{
    const struct vb_hash_request *request =
        (const void *)(s->end.mem + s->table.requests + wc->wr_id * REQUEST_ROOM);
    if (wc->byte_len != sizeof *request) {
        s->wrong++;
        return;
    }
    if (s->table.list) {
        const struct vb_list_node *node = vb_get_walk(&s->table, s->end.mem, request->key);
        reply(s, node ? node->addr : 0, node ? node->len_again : 0);
    } else {
        uint32_t home = vb_get_home(&s->table, request->key);
        const struct vb_hash_bucket *hood = (const void *)(s->end.mem + vb_get_bucket(home));
        const struct vb_hash_bucket *bucket = vb_get_find(hood, request->key);
        reply(s, bucket ? bucket->addr : 0, bucket ? bucket->len_again : 0);
    }
    post_receive(s, wc->wr_id);
}

static int answer_some(struct vb_get_server *s)
{
    struct vb_wc wc[BATCH];
    int n = vb_poll_cq(s->end.recv_cq, wc, BATCH);
    for (int i = 0; i < n; i++) {
        if (wc[i].status != VB_WC_OK)
            s->wrong++;
        else if (wc[i].opcode == VB_WC_RECV)
            look_up(s, &wc[i]);
    }
    return n;
}

// Asks for an event, makes sure that nothing came before it did, and sleeps.
static void answer_in_sleep(struct vb_get_server *s, int control)
{
    struct pollfd p[2] = {{.fd = vb_channel_fd(s->channel), .events = POLLIN},
                          {.fd = control, .events = POLLIN}};
    struct vb_cq *unused;
    while (p[1].revents == 0) {
        (void)vb_channel_take(s->channel, &unused);
        (void)vb_cq_arm(s->end.recv_cq, false);
        while (answer_some(s) > 0) {}
        (void)poll(p, 2, -1);
    }
}

void vb_get_server_run(struct vb_get_server *s, enum vb_perf_via via, int control, bool yield)
{
    s->via = via;
    if (via == VB_PERF_VIA_RPC_BLOCKING) {
        answer_in_sleep(s, control);
        return;
    }
    for (uint32_t turn = 1;; turn++) {
        bool busy = via == VB_PERF_VIA_RPC ? answer_some(s) > 0 : vb_nic_progress(s->end.nic) > 0;
        if (!busy && yield)
            sched_yield();
        if (turn % LOOK_EVERY == 0 && vb_control_ready(control))
            return;
    }
}
