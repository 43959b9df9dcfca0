// SPDX-License-Identifier: Apache-2.0
// Many senders and one receiver on the virtual network.
#include "incast.h"

#include "host/driver.h"
#include "nic/dev.h"
#include "nic/pu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MTU = 4096,
    MESSAGE = 64 * 1024,
    DEPTH = 8,
    LINK_BYTES_PER_US = 5000, // of each sender: 40 Gb/s
};

// A device with a queue pair to each peer.
struct node {
    struct vb_dev *dev;
    struct vb_pu *pu;
    struct vb_port *port;
    uint8_t *memory;
    uint32_t pd, key, cqn;
    struct vb_driver_cq cq;
    struct vb_driver_qp qp[INCAST_SENDERS];
    uint32_t qps;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
};

struct incast {
    struct incast_opts opts;
    struct vb_simnet *net;
    uint64_t now_ns;
    struct node sink, sender[INCAST_SENDERS];
    uint64_t done_bytes[INCAST_SENDERS];
    uint64_t failed;
};

static struct vb_driver_qp *find_qp(void *ctx, uint32_t qpn)
{
    struct node *n = ctx;
    uint32_t i = 0;
    while (i + 1 < n->qps && n->qp[i].qpn != qpn)
        i++;
    return &n->qp[i];
}

static void add_qp(struct node *n)
{
    struct vb_driver_qp *qp = &n->qp[n->qps++];
    const struct vb_qp_opts opts = {.send_depth = DEPTH, .recv_depth = 1};

    assert_int_equal(vb_driver_qp_init(qp, &opts, 0, 0), 0);
    const struct vb_qpc_attr attr = {
        .pd = n->pd,
        .send_cqn = n->cqn,
        .recv_cqn = n->cqn,
        .sq_ring = qp->sq.ring,
        .sq_blocks = qp->sq.blocks,
        .rq_ring = qp->rq.ring,
        .rq_entries = qp->rq.entries,
        .rq_stride_bytes = qp->rq.stride,
        .dbrec = qp->dbrec,
    };
    assert_int_equal(vb_dev_qp_create(n->dev, &attr, &qp->qpn), 0);
    qp->doorbells = vb_dev_doorbells(n->dev);
}

static void open_node(struct incast *in, struct node *n, uint8_t number, uint32_t qps)
{
    const struct vb_simnet_host host = {
        .ip = {{[10] = 0xff, 0xff, 10, 0, 0, number}},
        .src_port = 4791,
        .merge_ppm = 1000000,
        .batch_max = VB_PORT_RX_BATCH,
        .ecn = in->opts.dcqcn != NULL,
    };
    assert_int_equal(vb_simnet_attach(in->net, &host, &n->port), 0);
    n->dev = vb_dev_create(&(struct vb_dev_opts){
        .seed = number, .window_bytes = in->opts.window_bytes, .dcqcn = in->opts.dcqcn});
    assert_non_null(n->dev);
    n->pu = vb_dev_pu(n->dev);
    n->memory = calloc(1, MESSAGE);
    assert_int_equal(vb_dev_pd_create(n->dev, &n->pd), 0);
    const struct vb_mkey_attr key = {.pd = n->pd,
                                     .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ,
                                     .start = (uintptr_t)n->memory,
                                     .len = MESSAGE,
                                     .base = n->memory};
    assert_int_equal(vb_dev_mkey_create(n->dev, &key, &n->key), 0);
    assert_int_equal(vb_driver_cq_init(&n->cq, 256, 0), 0);
    const struct vb_cqc_attr cq = {
        .ring = n->cq.ring, .entries = n->cq.entries, .dbrec = n->cq.dbrec};
    assert_int_equal(vb_dev_cq_create(n->dev, &cq, &n->cqn), 0);
    while (n->qps < qps)
        add_qp(n);
}

static void close_node(struct node *n)
{
    vb_dev_destroy(n->dev);
    for (uint32_t i = 0; i < n->qps; i++)
        vb_driver_qp_fini(&n->qp[i]);
    vb_driver_cq_fini(&n->cq);
    free(n->memory);
}

static void connect_qp(const struct node *n, const struct vb_driver_qp *qp, const struct node *peer,
                       const struct vb_driver_qp *there)
{
    struct vb_qpc_mods m = {
        .access = VB_REMOTE_WRITE | VB_REMOTE_READ,
        .dest_qpn = there->qpn,
        .mtu_bytes = MTU,
        .max_rd_atomic = 16,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 12,
        .timeout = 10,
        .retry_cnt = 7,
        .rnr_retry = VB_RETRY_INFINITE,
        .local = n->port->local,
        .remote = peer->port->local,
        .src_port = 4791,
    };
    for (m.state = VB_QPS_INIT; m.state <= VB_QPS_RTS; m.state++)
        assert_int_equal(vb_dev_qp_modify(n->dev, qp->qpn, &m), 0);
}

static void post(struct incast *in, uint32_t i)
{
    struct node *from = in->opts.reads ? &in->sink : &in->sender[i];
    struct node *to = in->opts.reads ? &in->sender[i] : &in->sink;
    struct vb_sge sge = {(uintptr_t)from->memory, MESSAGE, from->key};
    const struct vb_send_wr wr = {.wr_id = i,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = in->opts.reads ? VB_WR_READ : VB_WR_WRITE,
                                  .flags = VB_WR_SIGNALED,
                                  .rkey = to->key,
                                  .raddr = (uintptr_t)to->memory};
    struct vb_driver_qp *qp = in->opts.reads ? &in->sink.qp[i] : &from->qp[0];
    assert_int_equal(vb_driver_post_send(qp, &wr, 1), 1);
}

// What came in, what is due, what was completed: each message is followed by the next.
static void run_node(struct incast *in, struct node *n)
{
    struct vb_txq *q = vb_pu_txq(n->pu);
    struct vb_wc wc[16];
    int done;

    do {
        uint32_t came = n->port->ops->receive(n->port, n->frames);
        if (came > 0)
            vb_pu_feed(n->pu, n->frames, came);
        vb_pu_poll(n->pu, in->now_ns);
        if (q->count > 0)
            n->port->ops->send(n->port, q);
        vb_pu_tx_release(n->pu);
        done = vb_driver_poll(&n->cq, find_qp, n, wc, 16);
        for (int i = 0; i < done; i++) {
            in->failed += wc[i].status == VB_WC_RETRY_EXCEEDED;
            if (wc[i].status != VB_WC_OK)
                continue;
            in->done_bytes[wc[i].wr_id] += MESSAGE;
            post(in, (uint32_t)wc[i].wr_id);
        }
    } while (done > 0 || vb_pu_wants_tx(n->pu) ||
             vb_simnet_waiting(in->net, (uint32_t)(n - &in->sink)) > 0);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void run_until(struct incast *in, uint64_t until_ns)
{
    for (;;) {
        vb_simnet_advance(in->net, in->now_ns);
        uint64_t next = until_ns;
        for (uint32_t i = 0; i <= in->opts.senders; i++) {
            struct node *n = &in->sink + i;
            run_node(in, n);
            next = sooner(next, vb_pu_deadline(n->pu));
        }
        if (in->now_ns >= until_ns)
            return;
        next = sooner(next, vb_simnet_next(in->net));
        in->now_ns = next > in->now_ns ? next : in->now_ns + 1;
    }
}

static void open_all(struct incast *in)
{
    const struct incast_opts *o = &in->opts;
    const struct vb_simnet_link link = {
        .delay_ns = o->delay_ns, .bytes_per_us = LINK_BYTES_PER_US, .queue_bytes = UINT32_MAX};

    in->net = vb_simnet_create(1);
    open_node(in, &in->sink, 1, o->senders);
    vb_simnet_funnel(in->net, 0, &o->funnel);
    for (uint32_t i = 0; i < o->senders; i++) {
        struct node *s = &in->sender[i];
        open_node(in, s, (uint8_t)(2 + i), 1);
        vb_simnet_shape(in->net, 1 + i, 0, &link);
        vb_simnet_shape(in->net, 0, 1 + i, &link);
        connect_qp(s, &s->qp[0], &in->sink, &in->sink.qp[i]);
        connect_qp(&in->sink, &in->sink.qp[i], s, &s->qp[0]);
    }
}

static void judge(const struct incast *in, struct incast_result *r)
{
    const struct vb_simnet_stats *stats = vb_simnet_stats(in->net);
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < in->opts.senders; i++) {
        r->bytes[i] = in->done_bytes[i];
        sum += (double)r->bytes[i];
        squares += (double)r->bytes[i] * (double)r->bytes[i];
    }
    for (uint32_t i = 0; i <= in->opts.senders; i++) {
        const struct vb_counters *c = vb_pu_counters((&in->sink + i)->pu);
        r->cnps += c->np_cnp_sent;
        r->repeated += c->packet_seq_err;
        r->timeouts += c->local_ack_timeout_err;
    }
    r->gbps = sum * 8 / (double)in->opts.measure_ns;
    r->jain = sum * sum / ((double)in->opts.senders * squares);
    r->failed = in->failed;
    r->marked = stats->marked;
    r->dropped = stats->tail_dropped;
    r->queue_max_bytes = stats->funnel_bytes_max;
}

struct incast_result incast_run(const struct incast_opts *opts)
{
    struct incast *in = calloc(1, sizeof *in);
    struct incast_result result = {0};

    assert_non_null(in);
    in->opts = *opts;
    open_all(in);
    for (uint32_t i = 0; i < opts->senders; i++) {
        for (uint32_t n = 0; n < DEPTH / 2; n++)
            post(in, i);
        run_until(in, in->now_ns + opts->stagger_ns);
    }
    run_until(in, in->now_ns + opts->settle_ns);
    memset(in->done_bytes, 0, sizeof in->done_bytes);
    run_until(in, in->now_ns + opts->measure_ns);
    judge(in, &result);
    for (uint32_t i = 0; i <= opts->senders; i++)
        close_node(&in->sink + i);
    vb_simnet_destroy(in->net);
    free(in);
    return result;
}
