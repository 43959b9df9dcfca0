// SPDX-License-Identifier: Apache-2.0
// A verbs program as anybody would write it: two queue pairs of one process, connected with each
// other, move bytes by every verb, and every byte is compared. It knows nothing of Verbena: it is
// linked with -libverbs. With "old" or "new" as its argument it posts by ibv_post_send or by
// ibv_wr_….
#include "../wait.h"
#include "need.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BYTES = 40000,
    DEPTH = 64,
    IMM = 0x01020304,
    SMALL = 64,
    FIRST_PSN = 1000,
};

struct end {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *bytes;
};

struct test {
    bool modern;
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

static void open_end(struct test *t, struct end *e)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC,
                                       .cap = {.max_send_wr = DEPTH,
                                               .max_recv_wr = DEPTH,
                                               .max_send_sge = 2,
                                               .max_recv_sge = 2,
                                               .max_inline_data = SMALL},
                                       .comp_mask = IBV_QP_INIT_ATTR_PD,
                                       .pd = t->pd};

    e->bytes = aligned_alloc(4096, (BYTES + 4095) / 4096 * 4096);
    NEED(e->bytes);
    NEED(e->mr = ibv_reg_mr(t->pd, e->bytes, BYTES, access));
    NEED(e->cq = ibv_create_cq(t->context, 2 * DEPTH, NULL, NULL, 0));
    attr.send_cq = attr.recv_cq = e->cq;
    if (t->modern) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags =
            IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |
            IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
            IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
    }
    NEED(e->qp = ibv_create_qp_ex(t->context, &attr));
    NEED(t->modern == (ibv_qp_to_qp_ex(e->qp) != NULL));
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
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad = NULL;

    NEED(ibv_post_send(e->qp, &wr, &bad) == EINVAL && bad == &wr); // not in RESET
    NEED(ibv_modify_qp(e->qp, &init, IBV_QP_STATE) == EINVAL);     // more is needed
    NEED(!ibv_modify_qp(e->qp, &init,
                        IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
    NEED(!ibv_modify_qp(e->qp, &rtr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    NEED(!ibv_modify_qp(e->qp, &rts,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_wc wait_one(struct end *e)
{
    struct ibv_wc wc;
    int n;

    WAIT_UNTIL((n = ibv_poll_cq(e->cq, 1, &wc)) != 0);
    NEED(n == 1);
    return wc;
}

static void post_receive(struct end *e, uint64_t id)
{
    struct ibv_sge sge[2] = {
        {.addr = (uintptr_t)e->bytes, .length = 100, .lkey = e->mr->lkey},
        {.addr = (uintptr_t)e->bytes + 100, .length = BYTES - 100, .lkey = e->mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = 2}, *bad;

    NEED(!ibv_post_recv(e->qp, &wr, &bad));
}

// The same request in the two ways to post.
static void post_modern(struct end *e, const struct ibv_send_wr *wr)
{
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->qp);

    ibv_wr_start(qp);
    qp->wr_id = wr->wr_id;
    qp->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
    switch (wr->opcode) {
    case IBV_WR_SEND: ibv_wr_send(qp); break;
    case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(qp, wr->imm_data); break;
    case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(qp, wr->invalidate_rkey); break;
    case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        ibv_wr_rdma_write_imm(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
        break;
    case IBV_WR_RDMA_READ: ibv_wr_rdma_read(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr); break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        ibv_wr_atomic_cmp_swp(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
                              wr->wr.atomic.compare_add, wr->wr.atomic.swap);
        break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
                                wr->wr.atomic.compare_add);
        break;
    case IBV_WR_BIND_MW:
        ibv_wr_bind_mw(qp, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
        break;
    case IBV_WR_LOCAL_INV: ibv_wr_local_inv(qp, wr->invalidate_rkey); break;
    default: NEED(false);
    }
    if (wr->num_sge && wr->send_flags & IBV_SEND_INLINE)
        ibv_wr_set_inline_data(qp, (void *)(uintptr_t)wr->sg_list[0].addr, wr->sg_list[0].length);
    else if (wr->num_sge)
        ibv_wr_set_sge_list(qp, (size_t)wr->num_sge, wr->sg_list);
    NEED(!ibv_wr_complete(qp));
}

static struct ibv_wc request(struct test *t, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    wr->wr_id = 77;
    wr->send_flags |= IBV_SEND_SIGNALED;
    if (t->modern)
        post_modern(&t->a, wr);
    else
        NEED(!ibv_post_send(t->a.qp, wr, &bad));
    struct ibv_wc wc = wait_one(&t->a);
    NEED(wc.wr_id == 77 && wc.qp_num == t->a.qp->qp_num);
    return wc;
}

static struct ibv_sge all_of(const struct end *e)
{
    return (struct ibv_sge){.addr = (uintptr_t)e->bytes, .length = BYTES, .lkey = e->mr->lkey};
}

// ---- the verbs

static void check_sends(struct test *t)
{
    struct ibv_sge sge = all_of(&t->a);
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};

    for (int imm = 0; imm < 2; imm++) {
        fill(t->a.bytes, 1u + (unsigned)imm);
        memset(t->b.bytes, 0, BYTES);
        post_receive(&t->b, 5);
        wr.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        wr.imm_data = htonl(IMM);
        struct ibv_wc wc = request(t, &wr);
        NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
        wc = wait_one(&t->b);
        NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == BYTES);
        NEED(wc.wr_id == 5 && !(wc.wc_flags & IBV_WC_WITH_IMM) == !imm);
        NEED(!imm || wc.imm_data == htonl(IMM));
        NEED(memcmp(t->a.bytes, t->b.bytes, BYTES) == 0);
    }
    puts("send, send with immediate data: ok");
}

static void check_writes(struct test *t)
{
    struct ibv_sge sge = all_of(&t->a);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .imm_data = htonl(IMM),
                             .wr.rdma = {(uintptr_t)t->b.bytes, t->b.mr->rkey}};

    for (int imm = 0; imm < 2; imm++) {
        fill(t->a.bytes, 3u + (unsigned)imm);
        memset(t->b.bytes, 0, BYTES);
        wr.opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        if (imm)
            post_receive(&t->b, 6);
        struct ibv_wc wc = request(t, &wr);
        NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
        NEED(memcmp(t->a.bytes, t->b.bytes, BYTES) == 0);
        if (imm) {
            wc = wait_one(&t->b);
            NEED(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htonl(IMM));
            NEED(wc.byte_len == BYTES && wc.wr_id == 6);
        }
    }
    fill(t->a.bytes, 9);
    sge.length = SMALL;
    sge.lkey = 0; // inline data needs no key
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_INLINE;
    NEED(request(t, &wr).status == IBV_WC_SUCCESS);
    NEED(memcmp(t->a.bytes, t->b.bytes, SMALL) == 0);
    puts("write, write with immediate data, inline: ok");
}

static void check_read(struct test *t)
{
    struct ibv_sge sge = all_of(&t->a);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .wr.rdma = {(uintptr_t)t->b.bytes, t->b.mr->rkey}};

    fill(t->b.bytes, 5);
    memset(t->a.bytes, 0, BYTES);
    struct ibv_wc wc = request(t, &wr);
    NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == BYTES);
    NEED(memcmp(t->a.bytes, t->b.bytes, BYTES) == 0);
    puts("read: ok");
}

static void check_atomics(struct test *t)
{
    uint64_t *here = (uint64_t *)(void *)t->a.bytes, *there = (uint64_t *)(void *)t->b.bytes;
    struct ibv_sge sge = {.addr = (uintptr_t)here, .length = 8, .lkey = t->a.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};

    *there = 40;
    wr.wr.atomic.remote_addr = (uintptr_t)there;
    wr.wr.atomic.rkey = t->b.mr->rkey;
    wr.wr.atomic.compare_add = 2;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    struct ibv_wc wc = request(t, &wr);
    NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FETCH_ADD);
    NEED(*here == 40 && *there == 42);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 1000;
    wc = request(t, &wr);
    NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_COMP_SWAP);
    NEED(*here == 42 && *there == 1000);
    wc = request(t, &wr); // compares unequal now
    NEED(wc.status == IBV_WC_SUCCESS && *here == 1000 && *there == 1000);
    puts("compare and swap, fetch and add: ok");
}

// A window of type 2 is bound, written through, ended by the peer, and bound and ended here.
static void check_windows(struct test *t)
{
    struct ibv_mw *mw = ibv_alloc_mw(t->pd, IBV_MW_TYPE_2);
    struct ibv_sge sge = all_of(&t->a);
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

    NEED(mw);
    for (int round = 0; round < 2; round++) {
        uint32_t key = ibv_inc_rkey(mw->rkey);
        wr = (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
        wr.bind_mw.mw = mw;
        wr.bind_mw.rkey = key;
        wr.bind_mw.bind_info =
            (struct ibv_mw_bind_info){t->b.mr, (uintptr_t)t->b.bytes, BYTES,
                                      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
        NEED(!ibv_post_send(t->b.qp, &wr, &bad));
        struct ibv_wc wc = wait_one(&t->b);
        NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
        mw->rkey = key;
        fill(t->a.bytes, 20u + (unsigned)round);
        wr = (struct ibv_send_wr){.sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .wr.rdma = {(uintptr_t)t->b.bytes, key}};
        NEED(request(t, &wr).status == IBV_WC_SUCCESS);
        NEED(memcmp(t->a.bytes, t->b.bytes, BYTES) == 0);
        if (round == 0) {
            post_receive(&t->b, 8);
            wr = (struct ibv_send_wr){.sg_list = &sge,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_SEND_WITH_INV,
                                      .invalidate_rkey = key};
            NEED(request(t, &wr).status == IBV_WC_SUCCESS);
            wc = wait_one(&t->b);
            NEED(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
        } else {
            wr = (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV,
                                      .send_flags = IBV_SEND_SIGNALED,
                                      .invalidate_rkey = key};
            NEED(!ibv_post_send(t->b.qp, &wr, &bad));
            wc = wait_one(&t->b);
            NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
        }
    }
    NEED(!ibv_dealloc_mw(mw));
    puts("windows: bind, write, invalidate from both sides: ok");
}

static void check_rereg(struct test *t)
{
    uint8_t *other = calloc(1, BYTES);
    struct ibv_sge sge = all_of(&t->a);
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_mr *far;

    NEED(other);
    NEED(!ibv_rereg_mr(t->b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, BYTES, 0));
    fill(t->a.bytes, 33);
    wr.wr.rdma.remote_addr = (uintptr_t)other;
    wr.wr.rdma.rkey = t->b.mr->rkey;
    NEED(request(t, &wr).status == IBV_WC_SUCCESS);
    NEED(memcmp(t->a.bytes, other, BYTES) == 0);
    NEED(!ibv_rereg_mr(t->b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, t->b.bytes, BYTES, 0));
    // A region that peers name by another address.
    NEED(far = ibv_reg_mr_iova(t->pd, other, BYTES, 0x10000,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    fill(t->a.bytes, 34);
    wr.wr.rdma.remote_addr = 0x10000;
    wr.wr.rdma.rkey = far->rkey;
    NEED(request(t, &wr).status == IBV_WC_SUCCESS);
    NEED(memcmp(t->a.bytes, other, BYTES) == 0);
    NEED(!ibv_dereg_mr(far));
    free(other);
    puts("rereg, iova: ok");
}

// What must fail does, with the status that says why; the queue pair then flushes.
static void check_errors(struct test *t)
{
    struct ibv_sge sge = all_of(&t->a), many[3] = {sge, sge, sge};
    struct ibv_send_wr second = {.sg_list = many, .num_sge = 3, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_send_wr wr = {.next = &second,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)t->b.bytes, t->b.mr->rkey}};
    struct ibv_send_wr *bad = NULL;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    NEED(ibv_post_send(t->a.qp, &wr, &bad) == EINVAL && bad == &second);
    NEED(wait_one(&t->a).status == IBV_WC_SUCCESS); // the first went through
    wr.next = NULL;
    wr.wr.rdma.rkey ^= 0x5500;
    NEED(request(t, &wr).status == IBV_WC_REM_ACCESS_ERR);
    wr.wr.rdma.rkey ^= 0x5500;
    NEED(request(t, &wr).status == IBV_WC_WR_FLUSH_ERR);
    NEED(!ibv_query_qp(t->a.qp, &attr, IBV_QP_STATE, &init));
    NEED(attr.qp_state == IBV_QPS_ERR && init.cap.max_send_wr >= DEPTH);
    NEED(!ibv_reg_mr(t->pd, t->a.bytes, BYTES, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    NEED(ibv_dealloc_pd(t->pd) == EBUSY);
    puts("errors: ok");
}

static void close_end(struct end *e)
{
    NEED(!ibv_destroy_qp(e->qp));
    NEED(!ibv_destroy_cq(e->cq));
    NEED(!ibv_dereg_mr(e->mr));
    free(e->bytes);
}

int main(int argc, char **argv)
{
    struct test t = {.modern = argc > 1 && strcmp(argv[1], "new") == 0};
    struct ibv_device **list = ibv_get_device_list(NULL);

    NEED(list && list[0]);
    NEED(t.context = ibv_open_device(list[0]));
    ibv_free_device_list(list);
    NEED(t.pd = ibv_alloc_pd(t.context));
    NEED(!ibv_query_gid(t.context, 1, 0, &t.gid));
    open_end(&t, &t.a);
    open_end(&t, &t.b);
    connect_end(&t, &t.a, &t.b);
    connect_end(&t, &t.b, &t.a);
    check_sends(&t);
    check_writes(&t);
    check_read(&t);
    check_atomics(&t);
    check_windows(&t);
    check_rereg(&t);
    check_errors(&t);
    close_end(&t.a);
    close_end(&t.b);
    NEED(!ibv_dealloc_pd(t.pd));
    NEED(!ibv_close_device(t.context));
    puts("all ok");
    return 0;
}
