// SPDX-License-Identifier: Apache-2.0
// A program that drives ConnectX's queues by hand, as anybody would write it from mlx5dv.h: rings
// by mlx5dv_init_obj, entries written block by block, doorbell record and register, completions
// read where they lie. It knows nothing of Verbena: it is linked with -libverbs -lmlx5.
#include "../wait.h"
#include "need.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BYTES = 40000,
    DEPTH = 64,
    SENDS = 512,
    BLOCK = 64,
    QUIET_NS = 50 * 1000 * 1000,
    FIRST_PSN = 1000,
    ROUNDS = 70000, // more than the 16 bits of a producer's counter
    BATCH = 500,
    IMM = 0x01020304,
};

struct end {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *bytes;
    struct mlx5dv_qp raw;
    struct mlx5dv_cq raw_cq;
    struct mlx5dv_srq raw_srq;
    uint32_t sends, receives, ci; // counters: blocks, receives, completions
};

struct test {
    struct ibv_context *context;
    struct ibv_pd *pd;
    union ibv_gid gid;
    struct end a, b;
};

static void fill(uint8_t *bytes, unsigned seed)
{
    for (unsigned i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

// ---- set-up, by verbs

static void open_end(struct test *t, struct end *e, bool shared)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = SENDS,
                                            .max_recv_wr = shared ? 0 : DEPTH,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 2}};

    *e = (struct end){0};
    NEED(e->bytes = aligned_alloc(4096, (BYTES + 4095) / 4096 * 4096));
    NEED(e->mr = ibv_reg_mr(t->pd, e->bytes, BYTES, access));
    NEED(e->channel = ibv_create_comp_channel(t->context));
    NEED(e->cq = ibv_create_cq(t->context, DEPTH - 1, NULL, e->channel, 0));
    if (shared) {
        NEED(e->srq = ibv_create_srq(t->pd, &srq));
        attr.srq = e->srq;
    }
    attr.send_cq = attr.recv_cq = e->cq;
    NEED(e->qp = ibv_create_qp(t->pd, &attr));
}

static void take_rings(struct end *e)
{
    struct mlx5dv_obj obj = {
        .qp = {e->qp, &e->raw}, .cq = {e->cq, &e->raw_cq}, .srq = {e->srq, &e->raw_srq}};

    e->raw_srq.comp_mask = MLX5DV_SRQ_MASK_SRQN;
    NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | (e->srq ? MLX5DV_OBJ_SRQ : 0)));
    NEED(e->raw.sq.buf && e->raw.sq.stride == BLOCK && e->raw.sq.wqe_cnt >= SENDS);
    NEED(e->raw.dbrec && e->raw.bf.reg && e->raw.comp_mask == 0);
    NEED(e->srq ? e->raw.rq.wqe_cnt == 0 && e->raw_srq.srqn : e->raw.rq.wqe_cnt >= DEPTH);
    NEED(e->raw_cq.buf && e->raw_cq.cqe_size == 64 && e->raw_cq.cqe_cnt >= DEPTH);
    NEED(e->raw_cq.dbrec && e->raw_cq.cqn && e->raw_cq.cq_uar);
}

static void connect_end(struct test *t, struct end *e, const struct end *to)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                  IBV_ACCESS_REMOTE_ATOMIC};
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = to->qp->qp_num,
        .rq_psn = FIRST_PSN,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = t->gid, .hop_limit = 64}}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = 14,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .sq_psn = FIRST_PSN,
                              .max_rd_atomic = 4};

    NEED(!ibv_modify_qp(e->qp, &init,
                        IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
    NEED(!ibv_modify_qp(e->qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    NEED(!ibv_modify_qp(e->qp, &rts,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void open_pair(struct test *t, bool shared)
{
    open_end(t, &t->a, false);
    open_end(t, &t->b, shared);
    take_rings(&t->a);
    take_rings(&t->b);
    connect_end(t, &t->a, &t->b);
    connect_end(t, &t->b, &t->a);
    fill(t->a.bytes, 1);
    fill(t->b.bytes, 2);
}

static void close_end(struct end *e)
{
    NEED(!ibv_destroy_qp(e->qp));
    if (e->srq)
        NEED(!ibv_destroy_srq(e->srq));
    NEED(!ibv_destroy_cq(e->cq));
    NEED(!ibv_destroy_comp_channel(e->channel));
    NEED(!ibv_dereg_mr(e->mr));
    free(e->bytes);
}

static void close_pair(struct test *t)
{
    close_end(&t->a);
    close_end(&t->b);
}

// ---- the send queue, by hand

// An entry under construction: its segments may go round the ring's end.
struct entry {
    struct end *end;
    uint32_t at; // in segments of 16 bytes
    uint32_t count;
    struct mlx5_wqe_ctrl_seg *ctrl;
    uint8_t opcode, flags;
    uint32_t imm;
};

static void *next_segment(struct entry *w)
{
    uint32_t all = w->end->raw.sq.wqe_cnt * (BLOCK / 16);
    uint8_t *segment = (uint8_t *)w->end->raw.sq.buf + ((w->at++) & (all - 1)) * 16;

    w->count++;
    return memset(segment, 0, 16);
}

static struct entry begin(struct end *e, uint8_t opcode)
{
    struct entry w = {.end = e,
                      .at = (e->sends & (e->raw.sq.wqe_cnt - 1)) * (BLOCK / 16),
                      .opcode = opcode,
                      .flags = MLX5_WQE_CTRL_CQ_UPDATE};
    w.ctrl = next_segment(&w);
    return w;
}

static void add_remote(struct entry *w, const struct end *to, uint32_t offset)
{
    struct mlx5_wqe_raddr_seg *seg = next_segment(w);
    seg->raddr = htobe64((uintptr_t)to->bytes + offset);
    seg->rkey = htobe32(to->mr->rkey);
}

static void add_data(struct entry *w, uint32_t offset, uint32_t len)
{
    mlx5dv_set_data_seg(next_segment(w), len, w->end->mr->lkey, (uintptr_t)w->end->bytes + offset);
}

static void add_inline(struct entry *w, const void *bytes, uint32_t len)
{
    uint8_t packed[64] = {0};
    uint32_t head = htobe32(len | MLX5_INLINE_SEG);

    memcpy(packed, &head, sizeof head);
    memcpy(packed + sizeof head, bytes, len);
    for (uint32_t i = 0; i < (len + sizeof head + 15) / 16; i++)
        memcpy(next_segment(w), packed + 16 * i, 16);
}

// Completes the entry without telling the device of it.
static void finish(struct entry *w)
{
    mlx5dv_set_ctrl_seg(w->ctrl, (uint16_t)w->end->sends, w->opcode, 0, w->end->qp->qp_num,
                        w->flags, (uint8_t)w->count, 0, w->imm);
    w->end->sends += (w->count * 16 + BLOCK - 1) / BLOCK;
}

// The record first, then the register: the first 8 bytes of the last entry.
static void ring(const struct entry *w)
{
    struct end *e = w->end;
    uint64_t first;

    memcpy(&first, w->ctrl, sizeof first);
    atomic_thread_fence(memory_order_release);
    *(volatile __be32 *)&e->raw.dbrec[MLX5_SND_DBR] = htobe32(e->sends & 0xffff);
    atomic_thread_fence(memory_order_seq_cst);
    *(volatile uint64_t *)e->raw.bf.reg = first;
    atomic_thread_fence(memory_order_seq_cst);
}

static void post(struct entry *w)
{
    finish(w);
    ring(w);
}

// ---- receives, by hand

static void post_receive(struct end *e, uint32_t offset, uint32_t len)
{
    uint32_t slot = e->receives++ & (e->raw.rq.wqe_cnt - 1);
    struct mlx5_wqe_data_seg *seg =
        (void *)((uint8_t *)e->raw.rq.buf + (size_t)slot * e->raw.rq.stride);

    mlx5dv_set_data_seg(&seg[0], len / 2, e->mr->lkey, (uintptr_t)e->bytes + offset);
    mlx5dv_set_data_seg(&seg[1], len - len / 2, e->mr->lkey,
                        (uintptr_t)e->bytes + offset + len / 2);
    atomic_thread_fence(memory_order_release);
    *(volatile __be32 *)&e->raw.dbrec[MLX5_RCV_DBR] = htobe32(e->receives & 0xffff);
}

static void post_shared_receive(struct end *e, uint32_t offset, uint32_t len)
{
    struct mlx5_wqe_srq_next_seg *next =
        (void *)((uint8_t *)e->raw_srq.buf + (size_t)e->raw_srq.head * e->raw_srq.stride);

    mlx5dv_set_data_seg((void *)(next + 1), len, e->mr->lkey, (uintptr_t)e->bytes + offset);
    if (e->raw_srq.stride > 2 * 16)
        mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)(void *)(next + 1) + 1, 0,
                            MLX5_INVALID_LKEY, 0);
    e->raw_srq.head = be16toh(next->next_wqe_index);
    e->receives++;
    atomic_thread_fence(memory_order_release);
    *(volatile __be32 *)e->raw_srq.dbrec = htobe32(e->receives & 0xffff);
}

// ---- completions, by hand

static struct mlx5_cqe64 *newest(struct end *e)
{
    struct mlx5_cqe64 *cqe =
        (void *)((uint8_t *)e->raw_cq.buf +
                 (size_t)(e->ci & (e->raw_cq.cqe_cnt - 1)) * e->raw_cq.cqe_size);
    uint8_t op_own = *(volatile uint8_t *)&cqe->op_own;

    if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(e->ci & e->raw_cq.cqe_cnt))
        return NULL;
    atomic_thread_fence(memory_order_acquire);
    return cqe;
}

static void consumed(struct end *e)
{
    e->ci++;
    atomic_thread_fence(memory_order_release);
    *(volatile __be32 *)e->raw_cq.dbrec = htobe32(e->ci & 0xffffff);
}

static struct mlx5_cqe64 wait_one(struct end *e)
{
    struct mlx5_cqe64 *cqe, copy;

    WAIT_UNTIL((cqe = newest(e)) != NULL);
    copy = *cqe;
    consumed(e);
    return copy;
}

// The request that began at a block is done.
static struct mlx5_cqe64 expect_sent(struct end *e, uint32_t began, uint8_t opcode)
{
    struct mlx5_cqe64 cqe = wait_one(e);

    NEED(mlx5dv_get_cqe_opcode(&cqe) == MLX5_CQE_REQ);
    NEED(be16toh(cqe.wqe_counter) == (uint16_t)began);
    NEED(be32toh(cqe.sop_drop_qpn) == ((uint32_t)opcode << 24 | e->qp->qp_num));
    return cqe;
}

static struct mlx5_cqe64 expect_received(struct end *e, uint8_t opcode, uint32_t len)
{
    struct mlx5_cqe64 cqe = wait_one(e);

    NEED(mlx5dv_get_cqe_opcode(&cqe) == opcode);
    NEED(be32toh(cqe.byte_cnt) == len);
    NEED((be32toh(cqe.sop_drop_qpn) & 0xffffff) == e->qp->qp_num);
    return cqe;
}

static void expect_error(struct end *e, uint8_t opcode, uint8_t syndrome)
{
    struct mlx5_cqe64 cqe = wait_one(e);
    struct mlx5_err_cqe *err = (void *)&cqe;

    NEED(mlx5dv_get_cqe_opcode(&cqe) == opcode);
    if (err->syndrome != syndrome)
        fprintf(stderr, "raw: syndrome 0x%02x, not 0x%02x\n", err->syndrome, syndrome);
    NEED(err->syndrome == syndrome);
    NEED((be32toh(err->s_wqe_opcode_qpn) & 0xffffff) == e->qp->qp_num);
}

static void rest(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); // callers say why
}

// ---- what is right

static void check_one_sided(struct test *t)
{
    struct end *a = &t->a, *b = &t->b;
    uint8_t small[50];
    struct entry w = begin(a, MLX5_OPCODE_RDMA_WRITE);

    add_remote(&w, b, 100);
    add_data(&w, 0, 1000);
    add_data(&w, 5000, 30000);
    post(&w);
    expect_sent(a, 0, MLX5_OPCODE_RDMA_WRITE);
    NEED(!memcmp(b->bytes + 100, a->bytes, 1000));
    NEED(!memcmp(b->bytes + 1100, a->bytes + 5000, 30000));

    uint32_t began = a->sends;
    memset(small, 0x5a, sizeof small);
    w = begin(a, MLX5_OPCODE_RDMA_WRITE);
    add_remote(&w, b, 7);
    add_inline(&w, small, sizeof small);
    post(&w);
    memset(small, 0, 1); // the entry has its own copy
    expect_sent(a, began, MLX5_OPCODE_RDMA_WRITE);
    NEED(b->bytes[7] == 0x5a && b->bytes[7 + sizeof small - 1] == 0x5a);
    NEED(b->bytes[6] != 0x5a && b->bytes[7 + sizeof small] != 0x5a);

    began = a->sends;
    fill(b->bytes, 3);
    w = begin(a, MLX5_OPCODE_RDMA_READ);
    add_remote(&w, b, 11);
    add_data(&w, 20000, 9000);
    add_data(&w, 0, 9000);
    post(&w);
    expect_sent(a, began, MLX5_OPCODE_RDMA_READ);
    NEED(!memcmp(a->bytes + 20000, b->bytes + 11, 9000));
    NEED(!memcmp(a->bytes, b->bytes + 9011, 9000));
}

static uint64_t atomic_op(struct test *t, uint8_t opcode, uint64_t swap_add, uint64_t compare)
{
    struct end *a = &t->a;
    uint32_t began = a->sends;
    struct entry w = begin(a, opcode);
    struct mlx5_wqe_atomic_seg *args;
    uint64_t before;

    add_remote(&w, &t->b, 64);
    args = next_segment(&w);
    args->swap_add = htobe64(swap_add);
    args->compare = htobe64(compare);
    add_data(&w, 128, 8);
    post(&w);
    expect_sent(a, began, opcode);
    memcpy(&before, a->bytes + 128, sizeof before);
    return before;
}

static void check_atomics(struct test *t)
{
    uint64_t value = 40;

    memcpy(t->b.bytes + 64, &value, sizeof value);
    NEED(atomic_op(t, MLX5_OPCODE_ATOMIC_FA, 2, 0) == 40);
    NEED(atomic_op(t, MLX5_OPCODE_ATOMIC_CS, 7, 41) == 42); // another value: nothing changes
    NEED(atomic_op(t, MLX5_OPCODE_ATOMIC_CS, 7, 42) == 42);
    memcpy(&value, t->b.bytes + 64, sizeof value);
    NEED(value == 7);
}

static void check_messages(struct test *t)
{
    struct end *a = &t->a, *b = &t->b;
    static const uint8_t opcodes[] = {MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM,
                                      MLX5_OPCODE_RDMA_WRITE_IMM};
    static const uint8_t arrive[] = {MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM,
                                     MLX5_CQE_RESP_WR_IMM};

    for (unsigned i = 0; i < 3; i++) {
        uint32_t began = a->sends, received = b->receives;
        fill(a->bytes, 10 + i);
        post_receive(b, 3000, 9999);
        rest(i * 3000000L); // the helper may have gone to rest
        struct entry w = begin(a, opcodes[i]);
        if (i == 2)
            add_remote(&w, b, 3000);
        add_data(&w, 5, 8001);
        w.imm = htobe32(IMM);
        post(&w);
        struct mlx5_cqe64 cqe = expect_received(b, arrive[i], 8001);
        NEED(be16toh(cqe.wqe_counter) == (uint16_t)received);
        NEED(i == 0 || cqe.imm_inval_pkey == htobe32(IMM));
        NEED(!memcmp(b->bytes + 3000, a->bytes + 5, 8001));
        expect_sent(a, began, opcodes[i]);
    }
}

// Several entries for one doorbell, of which the last one completes, until every counter went
// round.
static void check_rounds(struct test *t)
{
    struct end *a = &t->a, *b = &t->b;
    uint32_t began = 0;
    struct entry w;

    for (uint32_t done = 0; done < ROUNDS; done += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t number = done + i;
            began = a->sends;
            w = begin(a, MLX5_OPCODE_RDMA_WRITE);
            add_remote(&w, b, (number % 1000) * 4);
            add_inline(&w, &number, sizeof number);
            w.flags = i == BATCH - 1 ? MLX5_WQE_CTRL_CQ_UPDATE : 0;
            finish(&w);
        }
        ring(&w);
        expect_sent(a, began, MLX5_OPCODE_RDMA_WRITE);
        uint32_t last;
        memcpy(&last, b->bytes + (size_t)((done + BATCH - 1) % 1000) * 4, sizeof last);
        NEED(last == done + BATCH - 1);
    }
}

static void send_some(struct test *t, uint32_t len)
{
    uint32_t began = t->a.sends;
    struct entry w = begin(&t->a, MLX5_OPCODE_SEND);

    add_data(&w, 0, len);
    post(&w);
    expect_sent(&t->a, began, MLX5_OPCODE_SEND);
}

// Asks for an event through the register, as a driver does.
static void check_events(struct test *t)
{
    struct end *b = &t->b;
    struct ibv_cq *cq;
    void *context;
    uint32_t word[2] = {htobe32(0u << 28 | MLX5_CQ_DB_REQ_NOT | (b->ci & 0xffffff)),
                        htobe32(b->raw_cq.cqn)};
    uint64_t both;

    b->raw_cq.dbrec[1] = word[0];
    memcpy(&both, word, sizeof both);
    atomic_thread_fence(memory_order_seq_cst);
    *(volatile uint64_t *)(void *)((uint8_t *)b->raw_cq.cq_uar + MLX5_CQ_DOORBELL) = both;
    post_receive(b, 0, 100);
    send_some(t, 60);
    NEED(!ibv_get_cq_event(b->channel, &cq, &context) && cq == b->cq);
    ibv_ack_cq_events(cq, 1);
    expect_received(b, MLX5_CQE_RESP_SEND, 60);
}

static void check_shared(struct test *t)
{
    struct end *b = &t->b;

    open_pair(t, true);
    for (uint32_t i = 0; i < 3u * DEPTH; i++) {
        uint32_t index = b->raw_srq.head;
        fill(t->a.bytes, i);
        post_shared_receive(b, 100 * (i % 16), 100);
        send_some(t, 90);
        struct mlx5_cqe64 cqe = expect_received(b, MLX5_CQE_RESP_SEND, 90);
        NEED(be16toh(cqe.wqe_counter) == index && be32toh(cqe.srqn_uidx) == b->raw_srq.srqn);
        NEED(!memcmp(b->bytes + (size_t)100 * (i % 16), t->a.bytes, 90));
        // The entry goes to the end of the list of free ones.
        struct mlx5_wqe_srq_next_seg *tail =
            (void *)((uint8_t *)b->raw_srq.buf + (size_t)b->raw_srq.tail * b->raw_srq.stride);
        tail->next_wqe_index = htobe16((uint16_t)index);
        b->raw_srq.tail = index;
    }
    close_pair(t);
}

// ---- what is wrong, each on a pair of its own

static void need_failed(const struct end *e)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    NEED(!ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
}

// What is posted after a failure is flushed.
static void expect_flushed(struct end *e)
{
    struct entry w = begin(e, MLX5_OPCODE_NOP);

    post(&w);
    expect_error(e, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    need_failed(e);
}

enum mistake {
    OPCODE,
    INDEX,
    NUMBER,
    LENGTH,
    LKEY,
    RKEY,
    RANGE,
};

static void check_mistake(struct test *t, enum mistake mistake, uint8_t syndrome)
{
    struct end *a = &t->a;

    open_pair(t, false);
    struct entry w = begin(a, mistake == OPCODE ? 0x3e : MLX5_OPCODE_RDMA_WRITE);
    add_remote(&w, &t->b, mistake == RANGE ? BYTES - 10 : 0);
    add_data(&w, 0, 20);
    if (mistake == LKEY)
        mlx5dv_set_data_seg((void *)(w.ctrl + 2), 20, a->mr->lkey ^ 0xff00, (uintptr_t)a->bytes);
    if (mistake == RKEY)
        ((struct mlx5_wqe_raddr_seg *)(void *)(w.ctrl + 1))->rkey ^= htobe32(0xff00);
    finish(&w);
    if (mistake == INDEX)
        w.ctrl->opmod_idx_opcode ^= htobe32(5 << 8);
    if (mistake == NUMBER)
        w.ctrl->qpn_ds ^= htobe32(1 << 8);
    if (mistake == LENGTH)
        w.ctrl->qpn_ds |= htobe32(0x3f); // longer than what was posted
    ring(&w);
    expect_error(a, MLX5_CQE_REQ_ERR, syndrome);
    NEED(t->b.bytes[0] != a->bytes[0]);
    expect_flushed(a);
    close_pair(t);
}

static void check_short_receive(struct test *t)
{
    open_pair(t, false);
    post_receive(&t->b, 0, 10);
    struct entry w = begin(&t->a, MLX5_OPCODE_SEND);
    add_data(&w, 0, 20);
    post(&w);
    expect_error(&t->b, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    expect_error(&t->a, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    post_receive(&t->b, 0, 10); // flushed, though nobody comes for it
    expect_error(&t->b, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    need_failed(&t->a);
    need_failed(&t->b);
    close_pair(t);
}

// A record that claims more entries than the ring holds is not believed, until it tells the truth.
static void check_send_overrun(struct test *t)
{
    struct end *a = &t->a;

    open_pair(t, false);
    struct entry w = begin(a, MLX5_OPCODE_RDMA_WRITE);
    add_remote(&w, &t->b, 0);
    add_data(&w, 0, 20);
    finish(&w);
    uint32_t truth = a->sends;
    a->sends += a->raw.sq.wqe_cnt;
    ring(&w);
    rest(QUIET_NS);
    NEED(!newest(a) && t->b.bytes[0] != a->bytes[0]);
    a->sends = truth;
    ring(&w);
    expect_sent(a, 0, MLX5_OPCODE_RDMA_WRITE);
    NEED(!memcmp(t->b.bytes, a->bytes, 20));
    close_pair(t);
}

// Completions that nobody takes: the queue fails, and says so.
static void check_completion_overrun(struct test *t)
{
    struct end *a = &t->a;
    struct ibv_async_event event;
    uint32_t told = 0;

    open_pair(t, false);
    for (uint32_t i = 0; i < 2 * a->raw_cq.cqe_cnt; i++) {
        struct entry w = begin(a, MLX5_OPCODE_NOP);
        post(&w);
        if (i % 16 == 15)
            rest(3000000); // so that the ring of requests never overruns
    }
    while (!(told & 1)) {
        NEED(!ibv_get_async_event(t->context, &event));
        told |= event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == a->cq;
        ibv_ack_async_event(&event);
    }
    NEED(a->ci == 0 && newest(a)); // what was written before is still there
    close_pair(t);
}

static void check_refusals(struct test *t)
{
    struct mlx5dv_pd pd;
    struct mlx5dv_obj obj = {.pd = {t->pd, &pd}};
    struct mlx5dv_context attrs = {.comp_mask = UINT64_MAX};
    struct mlx5dv_context_attr devx = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
    struct mlx5dv_devx_uar *uar;

    NEED(mlx5dv_is_supported(t->context->device));
    NEED(!mlx5dv_query_device(t->context, &attrs) && attrs.flags == 0 && attrs.comp_mask == 0);
    // A program of an older header has no more room than it names.
    memset(&attrs, 0xa5, sizeof attrs);
    attrs.comp_mask = 0;
    NEED(!mlx5dv_query_device(t->context, &attrs) && attrs.version == 0 && attrs.flags == 0);
    for (size_t i = offsetof(struct mlx5dv_context, cqe_comp_caps); i < sizeof attrs; i++)
        NEED(((const uint8_t *)&attrs)[i] == 0xa5);
    NEED(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD) == EOPNOTSUPP && errno == EOPNOTSUPP);
    errno = 0;
    uar = mlx5dv_devx_alloc_uar(t->context, 0);
    NEED(!uar && errno == EOPNOTSUPP);
    errno = 0;
    NEED(!mlx5dv_open_device(t->context->device, &devx) && errno == EOPNOTSUPP);
    NEED(mlx5dv_crypto_logout(t->context) == EOPNOTSUPP);
    NEED(ibv_resize_cq(t->a.cq, 10 * DEPTH) == EBUSY); // the program reads the old ring
}

static void check_right(struct test *t)
{
    open_pair(t, false);
    check_refusals(t);
    check_one_sided(t);
    check_atomics(t);
    check_messages(t);
    check_events(t);
    check_rounds(t);
    close_pair(t);
    check_shared(t);
    puts("right: ok");
}

static void check_wrong(struct test *t)
{
    check_mistake(t, OPCODE, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    check_mistake(t, INDEX, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    check_mistake(t, NUMBER, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    check_mistake(t, LENGTH, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    check_mistake(t, LKEY, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    check_mistake(t, RKEY, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    check_mistake(t, RANGE, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    check_short_receive(t);
    check_send_overrun(t);
    check_completion_overrun(t);
    puts("wrong: ok");
}

int main(int argc, char **argv)
{
    struct test t = {0};
    struct ibv_device **list = ibv_get_device_list(NULL);
    const char *only = argc > 1 ? argv[1] : "";

    NEED(list && list[0]);
    NEED(t.context = mlx5dv_open_device(list[0], NULL));
    ibv_free_device_list(list);
    NEED(!ibv_query_gid(t.context, 1, 0, &t.gid));
    NEED(t.pd = ibv_alloc_pd(t.context));
    if (strcmp(only, "wrong") != 0)
        check_right(&t);
    if (strcmp(only, "right") != 0)
        check_wrong(&t);
    NEED(!ibv_dealloc_pd(t.pd) && !ibv_close_device(t.context));
    puts("all ok");
    return 0;
}
