// SPDX-License-Identifier: Apache-2.0
// Many senders, one receiver.
#include "sim/incast.h"

#include "host/driver.h"
#include "nic/dev.h"
#include "port/simnet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WCS = 64,
    TIMEOUT = 14, // 67 ms, the default
    RETRIES = 7,
    RECEIVER = 0, // of the nodes
};

struct node {
    struct vb_dev *dev;
    struct vb_port *port;
    struct vb_ip ip;
    struct vb_driver_cq cq;
    uint32_t cqn, pd, key;
    uint8_t *memory;
    struct vb_driver_qp *qp; // the receiver has one for each sender
    uint32_t qps;
    uint64_t bytes;  // completed
    uint32_t posted; // in flight
    struct vb_rx_frame rx[VB_PORT_RX_BATCH];
};

struct incast {
    const struct vb_incast_opts *opts;
    struct vb_simnet *net;
    struct node *node; // the receiver and the senders
    uint32_t nodes;
    uint64_t now_ns;
};

// ---- set-up

static int open_queues(struct node *n, const struct vb_incast_opts *o)
{
    int err = vb_driver_cq_init(&n->cq, n->qps * (o->depth + 1), 0);
    if (!err)
        err = vb_dev_cq_create(n->dev,
                               &(struct vb_cqc_attr){.ring = n->cq.ring,
                                                     .entries = n->cq.entries,
                                                     .dbrec = n->cq.dbrec},
                               &n->cqn);
    for (uint32_t i = 0; i < n->qps && !err; i++) {
        struct vb_driver_qp *qp = &n->qp[i];
        err = vb_driver_qp_init(qp, &(struct vb_qp_opts){.send_depth = o->depth}, 0, 0);
        if (!err)
            err = vb_dev_qp_create(n->dev,
                                   &(struct vb_qpc_attr){.pd = n->pd,
                                                         .send_cqn = n->cqn,
                                                         .recv_cqn = n->cqn,
                                                         .sq_ring = qp->sq.ring,
                                                         .sq_blocks = qp->sq.blocks,
                                                         .dbrec = qp->dbrec},
                                   &qp->qpn);
        qp->doorbells = vb_dev_doorbells(n->dev);
    }
    return err;
}

static int open_node(struct incast *w, uint32_t index)
{
    const struct vb_incast_opts *o = w->opts;
    struct node *n = &w->node[index];
    bool receives = index == RECEIVER;
    const struct vb_simnet_host host = {
        .ip = {{[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(1 + index)}},
        .src_port = 4791,
        .merge_ppm = 1000000,
        .batch_max = VB_PORT_RX_BATCH,
        .rx_bytes_per_us = receives ? o->sink_bytes_per_us : 0,
        .rx_buffer_bytes = o->buffer_bytes,
    };

    n->ip = host.ip;
    n->qps = receives ? o->senders : 1;
    n->qp = calloc(n->qps, sizeof *n->qp);
    n->memory = calloc(1, o->message_bytes);
    n->dev = vb_dev_create(&(struct vb_dev_opts){.seed = o->seed + index});
    if (!n->qp || !n->memory || !n->dev)
        return -ENOMEM;
    int err = vb_simnet_attach(w->net, &host, &n->port);
    if (!err)
        err = vb_dev_pd_create(n->dev, &n->pd);
    if (!err)
        err = vb_dev_mkey_create(n->dev,
                                 &(struct vb_mkey_attr){.pd = n->pd,
                                                        .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE,
                                                        .start = (uintptr_t)n->memory,
                                                        .len = o->message_bytes,
                                                        .base = n->memory},
                                 &n->key);
    return err ? err : open_queues(n, o);
}

static int connect_qp(struct node *n, uint32_t qp, const struct node *peer, uint32_t peer_qp,
                      uint32_t mtu)
{
    struct vb_qpc_mods m = {
        .access = VB_REMOTE_WRITE,
        .dest_qpn = peer->qp[peer_qp].qpn,
        .mtu_bytes = mtu,
        .min_rnr_timer = 12,
        .timeout = TIMEOUT,
        .retry_cnt = RETRIES,
        .rnr_retry = VB_RETRY_INFINITE,
        .local = n->ip,
        .remote = peer->ip,
        .src_port = 4791,
    };
    int err = 0;

    for (m.state = VB_QPS_INIT; m.state <= VB_QPS_RTS && !err; m.state++)
        err = vb_dev_qp_modify(n->dev, n->qp[qp].qpn, &m);
    return err;
}

static int build(struct incast *w)
{
    const struct vb_incast_opts *o = w->opts;
    // A sender's own link holds back what it cannot carry.
    const struct vb_simnet_link out = {.delay_ns = o->delay_ns,
                                       .jitter_ns = o->delay_ns / 5,
                                       .bytes_per_us = o->link_bytes_per_us,
                                       .queue_bytes = UINT32_MAX};
    int err = 0;

    for (uint32_t i = 0; i < w->nodes && !err; i++)
        err = open_node(w, i);
    for (uint32_t i = 1; i < w->nodes && !err; i++) {
        vb_simnet_shape(w->net, i, RECEIVER, &out);
        vb_simnet_shape(w->net, RECEIVER, i, &out);
        err = connect_qp(&w->node[i], 0, &w->node[RECEIVER], i - 1, o->mtu);
        if (!err)
            err = connect_qp(&w->node[RECEIVER], i - 1, &w->node[i], 0, o->mtu);
    }
    return err;
}

static void dismantle(struct incast *w)
{
    for (uint32_t i = 0; w->node && i < w->nodes; i++) {
        struct node *n = &w->node[i];
        if (n->dev)
            vb_dev_destroy(n->dev);
        for (uint32_t q = 0; n->qp && q < n->qps; q++)
            vb_driver_qp_fini(&n->qp[q]);
        vb_driver_cq_fini(&n->cq);
        free(n->qp);
        free(n->memory);
    }
    vb_simnet_destroy(w->net);
    free(w->node);
}

// ---- the run

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct vb_driver_qp *qp = ((struct node *)ctx)->qp;
    return qp->qpn == qpn ? qp : NULL;
}

// Keeps a sender's queue full. A queue pair that has failed stays silent.
static void send_on(struct incast *w, struct node *n)
{
    struct vb_sge sge = {(uintptr_t)n->memory, w->opts->message_bytes, n->key};
    const struct vb_send_wr wr = {
        .sge = &sge,
        .num_sge = 1,
        .opcode = VB_WR_WRITE,
        .flags = VB_WR_SIGNALED,
        .rkey = w->node[RECEIVER].key,
        .raddr = (uintptr_t)w->node[RECEIVER].memory,
    };
    struct vb_wc wc[WCS];
    int count;

    while ((count = vb_driver_poll(&n->cq, find, n, wc, WCS)) > 0) {
        n->posted -= (uint32_t)count;
        for (int i = 0; i < count; i++)
            if (wc[i].status == VB_WC_OK)
                n->bytes += w->opts->message_bytes;
            else
                n->posted = w->opts->depth;
    }
    while (n->posted < w->opts->depth && vb_driver_post_send(n->qp, &wr, 1) == 1)
        n->posted++;
}

// Runs a NIC until it has nothing to do, as its host's loop would.
static void run_node(struct incast *w, uint32_t index)
{
    struct node *n = &w->node[index];
    struct vb_pu *pu = vb_dev_pu(n->dev);
    uint32_t frames;

    do {
        frames = n->port->ops->receive(n->port, n->rx);
        vb_pu_feed(pu, n->rx, frames);
        do {
            vb_pu_poll(pu, w->now_ns);
            n->port->ops->send(n->port, vb_pu_txq(pu));
            vb_pu_tx_release(pu);
        } while (vb_pu_wants_tx(pu));
        if (index != RECEIVER)
            send_on(w, n);
    } while (frames > 0 || vb_doorbells_pending(vb_dev_doorbells(n->dev)));
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void run(struct incast *w)
{
    for (uint32_t i = 1; i < w->nodes; i++)
        run_node(w, i);
    while (w->now_ns < w->opts->duration_ns) {
        uint64_t at = vb_simnet_next(w->net);
        for (uint32_t i = 0; i < w->nodes; i++)
            at = earlier(at, vb_pu_deadline(vb_dev_pu(w->node[i].dev)));
        if (at == UINT64_MAX)
            break; // all have failed
        w->now_ns = at > w->now_ns ? at : w->now_ns;
        vb_simnet_advance(w->net, w->now_ns);
        for (uint32_t i = 0; i < w->nodes; i++)
            if (vb_simnet_waiting(w->net, i) > 0 ||
                vb_pu_deadline(vb_dev_pu(w->node[i].dev)) <= w->now_ns)
                run_node(w, i);
    }
}

static void sum_up(const struct incast *w, struct vb_incast_result *r)
{
    r->least = UINT64_MAX;
    for (uint32_t i = 1; i < w->nodes; i++) {
        const struct node *n = &w->node[i];
        const struct vb_counters *c = vb_pu_counters(vb_dev_pu(n->dev));
        r->bytes += n->bytes;
        r->least = earlier(r->least, n->bytes);
        r->most = n->bytes > r->most ? n->bytes : r->most;
        r->sent += c->sent_pkts;
        r->naks += c->packet_seq_err;
        r->timeouts += c->local_ack_timeout_err;
        r->retries_exceeded += c->retry_exceeded_err;
    }
    r->dropped = vb_simnet_stats(w->net)->overflowed;
}

int vb_incast_run(const struct vb_incast_opts *opts, struct vb_incast_result *result)
{
    struct incast w = {.opts = opts, .nodes = opts->senders + 1};

    *result = (struct vb_incast_result){0};
    if (opts->senders < 1 || opts->senders > VB_INCAST_SENDERS_MAX || !opts->link_bytes_per_us ||
        !opts->sink_bytes_per_us || !opts->message_bytes || !opts->depth)
        return -EINVAL;
    w.node = calloc(w.nodes, sizeof *w.node);
    w.net = vb_simnet_create(opts->seed);
    int err = w.node && w.net ? build(&w) : -ENOMEM;
    if (!err) {
        run(&w);
        sum_up(&w, result);
    }
    dismantle(&w);
    return err;
}
