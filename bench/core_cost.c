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
    DEPTH = 128,
    MTU = 4096,
    BATCH = DEPTH
};

struct end {
    struct vb_dev *dev;
    struct vb_driver_qp qp;
    struct vb_driver_cq cq;
    uint8_t *memory;
    uint32_t key;
    struct vb_ip ip;
};

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    (void)qpn;
    return &((struct end *)ctx)->qp;
}

static void end_open(struct end *e, uint8_t host, size_t bytes)
{
    uint32_t pd, cqn;

    e->ip = (struct vb_ip){{[10] = 0xff, 0xff, 127, 0, 0, host}};
    e->dev = vb_dev_create(&(struct vb_dev_opts){.seed = host});
    e->memory = calloc(1, bytes);
    vb_dev_pd_create(e->dev, &pd);
    vb_dev_mkey_create(e->dev,
                       &(struct vb_mkey_attr){
                           .pd = pd,
                           .access = VB_LOCAL_WRITE | VB_REMOTE_WRITE | VB_REMOTE_READ,
                           .start = (uintptr_t)e->memory,
                           .len = bytes,
                           .base = e->memory,
                       },
                       &e->key);
    vb_driver_cq_init(&e->cq, 2 * DEPTH, 0);
    vb_dev_cq_create(
        e->dev,
        &(struct vb_cqc_attr){.ring = e->cq.ring, .entries = e->cq.entries, .dbrec = e->cq.dbrec},
        &cqn);
    vb_driver_qp_init(&e->qp, &(struct vb_qp_opts){.send_depth = DEPTH, .recv_depth = DEPTH}, 0, 0);
    vb_dev_qp_create(e->dev,
                     &(struct vb_qpc_attr){
                         .pd = pd,
                         .send_cqn = cqn,
                         .recv_cqn = cqn,
                         .sq_ring = e->qp.sq.ring,
                         .sq_blocks = e->qp.sq.blocks,
                         .rq_ring = e->qp.rq.ring,
                         .rq_entries = e->qp.rq.entries,
                         .rq_stride_bytes = e->qp.rq.stride,
                         .dbrec = e->qp.dbrec,
                     },
                     &e->qp.qpn);
    e->qp.doorbells = vb_dev_doorbells(e->dev);
}

static void end_connect(struct end *e, const struct end *peer)
{
    struct vb_qpc_mods m = {
        .access = VB_REMOTE_WRITE | VB_REMOTE_READ,
        .dest_qpn = peer->qp.qpn,
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
    for (m.state = VB_QPS_INIT; m.state <= VB_QPS_RTS; m.state++)
        vb_dev_qp_modify(e->dev, e->qp.qpn, &m);
}

static void end_close(struct end *e)
{
    vb_dev_destroy(e->dev);
    vb_driver_qp_fini(&e->qp);
    vb_driver_cq_fini(&e->cq);
    free(e->memory);
}

// Runs one device and hands what it sent to the other. Returns the frames moved.
static uint32_t turn(struct end *from, struct end *to, struct vb_rx_frame *frames)
{
    struct vb_pu *pu = vb_dev_pu(from->dev);
    struct vb_txq *q = vb_pu_txq(pu);

    vb_pu_poll(pu, 1);
    for (uint32_t i = 0; i < q->count; i++) {
        const uint8_t *bytes = q->arena + q->frame[i].offset;
        frames[i] = (struct vb_rx_frame){
            .data = bytes, .head = bytes, .len = q->frame[i].len, .src = from->ip};
    }
    uint32_t moved = q->taken = q->count;
    vb_pu_feed(vb_dev_pu(to->dev), frames, moved);
    vb_pu_poll(vb_dev_pu(to->dev), 1);
    vb_pu_tx_release(pu);
    return moved;
}

// Exported and not inlined, so that callgrind finds it by name.
int exchange(struct end *a, struct end *b, const struct vb_send_wr *wr, uint32_t n);

// Posts a batch, moves frames until both are quiet, takes the completions.
__attribute__((noinline)) int exchange(struct end *a, struct end *b, const struct vb_send_wr *wr,
                                       uint32_t n)
{
    static struct vb_rx_frame frames[VB_TX_FRAMES];
    struct vb_wc wc[BATCH];

    vb_driver_post_send(&a->qp, wr, n);
    while (turn(a, b, frames) + turn(b, a, frames) > 0)
        ;
    return vb_driver_poll(&a->cq, find, a, wc, BATCH);
}

int main(int argc, char **argv)
{
    enum vb_wr_opcode op = argc > 1 && strcmp(argv[1], "read") == 0 ? VB_WR_READ : VB_WR_WRITE;
    uint32_t size = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 64;
    uint32_t rounds = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 1000;
    struct end a, b;
    struct vb_send_wr wr[BATCH];

    if (size == 0 || size > 1u << 20 || rounds == 0) {
        fprintf(stderr, "usage: core_cost [write|read] [SIZE, up to 1 MiB] [ROUNDS]\n");
        return 2;
    }
    end_open(&a, 1, size);
    end_open(&b, 2, size);
    end_connect(&a, &b);
    end_connect(&b, &a);
    struct vb_sge sge = {(uintptr_t)a.memory, size, a.key};
    for (int i = 0; i < BATCH; i++)
        wr[i] = (struct vb_send_wr){.sge = &sge,
                                    .num_sge = 1,
                                    .opcode = op,
                                    .flags = i % 32 == 31 ? VB_WR_SIGNALED : 0,
                                    .rkey = b.key,
                                    .raddr = (uintptr_t)b.memory};
    uint64_t start = vb_clock_ns();
    uint64_t done = 0;
    for (uint32_t i = 0; i < rounds; i++)
        done += (uint64_t)exchange(&a, &b, wr, BATCH) * 32;
    uint64_t ns = vb_clock_ns() - start;
    printf("%s %u B: %llu operations, %.1f ns each\n", op == VB_WR_READ ? "read" : "write", size,
           (unsigned long long)done, (double)ns / (double)done);
    end_close(&a);
    end_close(&b);
    return done == (uint64_t)rounds * BATCH ? 0 : 1;
}
