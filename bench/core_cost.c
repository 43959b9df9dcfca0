// SPDX-License-Identifier: Apache-2.0
// What one operation costs the core, without a port: two devices hand each other their frames in
// memory. Run under `valgrind --tool=callgrind --toggle-collect=exchange` it counts instructions
// per operation, the same on every run and machine; alone it prints nanoseconds.
#include "host/driver.h"
#include "nic/dev.h"
#include "port/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 128,
    QPS_MAX = VB_DOORBELL_QPS,
    SIGNAL_EVERY = 32,
    MTU = 4096,
    TAKEN = 128,    // completions at once
    FRAME_NS = 100, // virtual time passes, so that timers come up as they do
};

struct plan {
    enum vb_wr_opcode op;
    uint32_t size, rounds;
    uint32_t qps, depth; // requests per queue pair and round
    uint32_t units;
};

// The queue pairs take turns on the units.
struct end {
    const struct plan *plan;
    struct vb_dev *dev;
    struct vb_driver_qp *qp;
    struct vb_driver_cq cq[VB_PUS_MAX];
    struct vb_driver_qp *by_index[VB_DOORBELL_QPS];
    uint8_t *memory;
    uint32_t key;
    struct vb_ip ip;
    uint64_t now_ns;
};

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    return ((struct end *)ctx)->by_index[qpn & (VB_DOORBELL_QPS - 1)];
}

static void open_qp(struct end *e, uint32_t i, uint32_t pd, uint32_t cqn)
{
    struct vb_driver_qp *qp = &e->qp[i];

    vb_driver_qp_init(
        qp, &(struct vb_qp_opts){.send_depth = e->plan->depth, .recv_depth = e->plan->depth}, 0, 0);
    vb_dev_qp_create(e->dev,
                     &(struct vb_qpc_attr){
                         .pd = pd,
                         .send_cqn = cqn,
                         .recv_cqn = cqn,
                         .sq_ring = qp->sq.ring,
                         .sq_blocks = qp->sq.blocks,
                         .rq_ring = qp->rq.ring,
                         .rq_entries = qp->rq.entries,
                         .rq_stride_bytes = qp->rq.stride,
                         .dbrec = qp->dbrec,
                     },
                     &qp->qpn);
    qp->doorbells = vb_pu_doorbells(vb_dev_pu_at(e->dev, i % e->plan->units));
    e->by_index[qp->qpn & (VB_DOORBELL_QPS - 1)] = qp;
}

static void end_open(struct end *e, uint8_t host, const struct plan *plan)
{
    uint32_t pd, cqn[VB_PUS_MAX];

    memset(e, 0, sizeof *e);
    e->plan = plan;
    e->ip = (struct vb_ip){{[10] = 0xff, 0xff, 127, 0, 0, host}};
    e->dev = vb_dev_create(&(struct vb_dev_opts){.seed = host, .pus = plan->units});
    e->memory = calloc(1, plan->size);
    e->qp = calloc(plan->qps, sizeof *e->qp);
    vb_dev_pd_create(e->dev, &pd);
    vb_dev_mkey_create(e->dev,
                       &(struct vb_mkey_attr){
                           .pd = pd,
                           .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ,
                           .start = (uintptr_t)e->memory,
                           .len = plan->size,
                           .base = e->memory,
                       },
                       &e->key);
    for (uint32_t u = 0; u < plan->units; u++) {
        struct vb_driver_cq *cq = &e->cq[u];
        vb_driver_cq_init(cq, 2 * plan->qps * plan->depth, 0);
        vb_dev_cq_create(e->dev,
                         &(struct vb_cqc_attr){
                             .pu = u, .ring = cq->ring, .entries = cq->entries, .dbrec = cq->dbrec},
                         &cqn[u]);
    }
    for (uint32_t i = 0; i < plan->qps; i++)
        open_qp(e, i, pd, cqn[i % plan->units]);
}

static void end_connect(struct end *e, const struct end *peer)
{
    struct vb_qpc_mods m = {
        .access = VB_REMOTE_WRITE | VB_REMOTE_READ,
        .mtu_bytes = MTU,
        .max_rd_atomic = 16,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .local = e->ip,
        .remote = peer->ip,
        .src_port = 4791,
    };
    for (uint32_t i = 0; i < e->plan->qps; i++) {
        m.dest_qpn = peer->qp[i].qpn;
        for (m.state = VB_QPS_INIT; m.state <= VB_QPS_RTS; m.state++)
            vb_dev_qp_modify(e->dev, e->qp[i].qpn, &m);
    }
}

static void end_close(struct end *e)
{
    vb_dev_destroy(e->dev);
    for (uint32_t i = 0; i < e->plan->qps; i++)
        vb_driver_qp_fini(&e->qp[i]);
    for (uint32_t u = 0; u < e->plan->units; u++)
        vb_driver_cq_fini(&e->cq[u]);
    free(e->qp);
    free(e->memory);
}

// Steers like a port: the destination's lowest bits name the unit. Frames of one call are one
// unit's, as in a segmented send.
static uint32_t unit_of(const struct end *to, const uint8_t *bth)
{
    return bth[7] & (to->plan->units - 1);
}

// Runs one unit and hands what it sent to the other device. Returns the frames moved.
static uint32_t turn(struct end *from, uint32_t unit, struct end *to)
{
    static struct vb_rx_frame frames[VB_TX_FRAMES];
    struct vb_pu *pu = vb_dev_pu_at(from->dev, unit);
    struct vb_txq *q = vb_pu_txq(pu);

    from->now_ns += FRAME_NS;
    vb_pu_poll(pu, from->now_ns);
    while (q->taken < q->count) {
        const uint8_t *first = q->arena + q->frame[q->taken].offset;
        uint32_t n = 0, to_unit = unit_of(to, first);
        for (; q->taken < q->count; q->taken++, n++) {
            const uint8_t *bytes = q->arena + q->frame[q->taken].offset;
            if (unit_of(to, bytes) != to_unit)
                break;
            frames[n] = (struct vb_rx_frame){
                .data = bytes, .head = bytes, .len = q->frame[q->taken].len, .src = from->ip};
        }
        vb_pu_feed(vb_dev_pu_at(to->dev, to_unit), frames, n);
        vb_pu_poll(vb_dev_pu_at(to->dev, to_unit), from->now_ns);
    }
    uint32_t moved = q->count;
    to->now_ns = from->now_ns += (uint64_t)moved * FRAME_NS;
    vb_pu_tx_release(pu);
    return moved;
}

static uint32_t turn_all(struct end *a, struct end *b)
{
    uint32_t moved = 0;
    for (uint32_t u = 0; u < a->plan->units; u++)
        moved += turn(a, u, b) + turn(b, u, a);
    return moved;
}

// Exported and not inlined, so that callgrind finds it by name.
uint32_t exchange(struct end *a, struct end *b, const struct vb_send_wr *wr);

// Posts a batch on every queue pair, moves frames until both are quiet, takes the completions.
__attribute__((noinline)) uint32_t exchange(struct end *a, struct end *b,
                                            const struct vb_send_wr *wr)
{
    struct vb_wc wc[TAKEN];
    uint32_t done = 0;
    int n;

    for (uint32_t i = 0; i < a->plan->qps; i++)
        vb_driver_post_send(&a->qp[i], wr, a->plan->depth);
    while (turn_all(a, b) > 0)
        ;
    for (uint32_t u = 0; u < a->plan->units; u++)
        while ((n = vb_driver_poll(&a->cq[u], find, a, wc, TAKEN)) > 0)
            done += (uint32_t)n;
    return done;
}

static uint32_t number(int argc, char **argv, int at, uint32_t usual, uint32_t most)
{
    unsigned long value = argc > at ? strtoul(argv[at], NULL, 0) : usual;
    return value <= most ? (uint32_t)value : 0;
}

static bool parse(int argc, char **argv, struct plan *p)
{
    p->op = argc > 1 && strcmp(argv[1], "read") == 0 ? VB_WR_READ : VB_WR_WRITE;
    p->size = number(argc, argv, 2, 64, 1u << 20);
    p->rounds = number(argc, argv, 3, 1000, 1u << 30);
    p->qps = number(argc, argv, 4, 1, QPS_MAX);
    p->depth = number(argc, argv, 5, DEPTH_MAX, DEPTH_MAX);
    p->units = number(argc, argv, 6, 1, VB_PUS_MAX);
    return p->size && p->rounds && p->qps && p->depth && p->units && !(p->units & (p->units - 1)) &&
           p->qps * p->depth <= VB_CQ_ENTRIES_MAX / 2;
}

static void run(const struct plan *p, struct end *a, struct end *b)
{
    struct vb_send_wr wr[DEPTH_MAX];
    struct vb_sge sge = {(uintptr_t)a->memory, p->size, a->key};
    uint32_t expect = 0, wrong = 0;

    for (uint32_t i = 0; i < p->depth; i++) {
        bool signal = i % SIGNAL_EVERY == SIGNAL_EVERY - 1 || i + 1 == p->depth;
        expect += signal;
        wr[i] = (struct vb_send_wr){.sge = &sge,
                                    .num_sge = 1,
                                    .opcode = p->op,
                                    .flags = signal ? VB_WR_SIGNALED : 0,
                                    .rkey = b->key,
                                    .raddr = (uintptr_t)b->memory};
    }
    uint64_t start = vb_clock_ns();
    for (uint32_t i = 0; i < p->rounds; i++)
        wrong += exchange(a, b, wr) != expect * p->qps;
    uint64_t ns = vb_clock_ns() - start, done = (uint64_t)p->rounds * p->qps * p->depth;
    printf("%s %u B, %u queue pairs of depth %u, %u units: %llu operations, %.1f ns each\n",
           p->op == VB_WR_READ ? "read" : "write", p->size, p->qps, p->depth, p->units,
           (unsigned long long)done, (double)ns / (double)done);
    if (wrong) {
        fprintf(stderr, "core_cost: %u rounds did not complete\n", wrong);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static struct end a, b;
    struct plan plan;

    if (!parse(argc, argv, &plan)) {
        fprintf(stderr, "usage: core_cost [write|read] [SIZE, up to 1 MiB] [ROUNDS] [QPS] "
                        "[DEPTH, up to 128] [UNITS]\n");
        return 2;
    }
    end_open(&a, 1, &plan);
    end_open(&b, 2, &plan);
    end_connect(&a, &b);
    end_connect(&b, &a);
    run(&plan, &a, &b);
    end_close(&a);
    end_close(&b);
    return 0;
}
