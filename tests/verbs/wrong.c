// SPDX-License-Identifier: Apache-2.0
// Requests that fail, each for a reason of its own: the status says which. With VERBENA_LOG=error
// the library says the same in words, which own_test.py reads.
#include "world.h"

enum {
    ROOM = 64, // of a receive
};

struct pair {
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *a, *b;
    uint8_t bytes[BYTES];
};

static void open_pair(struct world *w, struct pair *p, uint32_t peer)
{
    const struct patience little = {.timeout = 8, .retries = 1, .rnr_retries = 1};

    NEED(p->cq = ibv_create_cq(w->context, 16, NULL, NULL, 0));
    NEED(p->mr =
             ibv_reg_mr(w->pd, p->bytes, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    p->a = make_qp(w, IBV_QPT_RC, p->cq, NULL);
    p->b = make_qp(w, IBV_QPT_RC, p->cq, NULL);
    connect_qp_with(w, p->a, peer ? peer : p->b->qp_num, little);
    connect_qp_with(w, p->b, p->a->qp_num, little);
}

static void close_pair(struct pair *p)
{
    NEED(!ibv_destroy_qp(p->a) && !ibv_destroy_qp(p->b) && !ibv_dereg_mr(p->mr));
    NEED(!ibv_destroy_cq(p->cq));
}

static void post(struct pair *p, enum ibv_wr_opcode opcode, uint32_t len, uint32_t lkey,
                 uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)p->bytes, len, lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = 6,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {(uintptr_t)p->bytes + 1024, rkey}};

    NEED(!ibv_post_send(p->a, &wr, &bad));
}

static enum ibv_wc_status end_of(struct pair *p, uint64_t wr_id)
{
    for (;;) {
        struct ibv_wc wc = wait_one(p->cq);
        if (wc.wr_id == wr_id)
            return wc.status;
    }
}

int main(void)
{
    struct world w;
    struct pair p;

    open_world(&w);
    open_pair(&w, &p, 0);
    post(&p, IBV_WR_SEND, ROOM, p.mr->lkey, 0); // nobody receives
    NEED(end_of(&p, 6) == IBV_WC_RNR_RETRY_EXC_ERR);
    close_pair(&p);

    open_pair(&w, &p, 0xfffff0); // nobody is there
    post(&p, IBV_WR_SEND, ROOM, p.mr->lkey, 0);
    NEED(end_of(&p, 6) == IBV_WC_RETRY_EXC_ERR);
    close_pair(&p);

    open_pair(&w, &p, 0);
    post(&p, IBV_WR_RDMA_WRITE, ROOM, p.mr->lkey, p.mr->rkey ^ 1);
    NEED(end_of(&p, 6) == IBV_WC_REM_ACCESS_ERR);
    close_pair(&p);

    open_pair(&w, &p, 0);
    post(&p, IBV_WR_RDMA_WRITE, ROOM, p.mr->lkey ^ 1, p.mr->rkey);
    NEED(end_of(&p, 6) == IBV_WC_LOC_PROT_ERR);
    close_pair(&p);

    open_pair(&w, &p, 0);
    struct ibv_sge sge = {(uintptr_t)p.bytes, ROOM, p.mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
    NEED(!ibv_post_recv(p.b, &wr, &bad));
    post(&p, IBV_WR_SEND, ROOM + 1, p.mr->lkey, 0);
    enum ibv_wc_status seen[2];
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = wait_one(p.cq);
        seen[wc.wr_id == 6] = wc.status;
    }
    NEED(seen[0] == IBV_WC_LOC_LEN_ERR && seen[1] == IBV_WC_REM_INV_REQ_ERR);
    close_pair(&p);
    close_world(&w);
    puts("all ok");
    return 0;
}
