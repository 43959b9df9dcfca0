// SPDX-License-Identifier: Apache-2.0
// Verbs that few programs use: regions without memory and of all memory, advice, rates, domains of
// threads, several handles of one XRC target, the time of completions. Each argument names one
// check; without any, all are made.
#include "world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    ALL_REMOTE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

// Two queue pairs that are connected with each other, and memory for both.
struct pair {
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *a, *b;
    uint8_t *bytes;
    size_t len;
};

static void connect_pair(struct world *w, struct pair *p)
{
    connect_qp(w, p->a, p->b->qp_num);
    connect_qp(w, p->b, p->a->qp_num);
}

static void open_pair(struct world *w, struct pair *p, enum ibv_qp_type type, size_t len)
{
    NEED(p->bytes = calloc(1, len));
    p->len = len;
    NEED(p->cq = ibv_create_cq(w->context, 64, NULL, NULL, 0));
    NEED(p->mr = ibv_reg_mr(w->pd, p->bytes, len, ALL_REMOTE));
    p->a = make_qp(w, type, p->cq, NULL);
    p->b = make_qp(w, type, p->cq, NULL);
    connect_pair(w, p);
}

static void close_pair(struct pair *p)
{
    NEED(!ibv_destroy_qp(p->a) && !ibv_destroy_qp(p->b) && !ibv_dereg_mr(p->mr));
    NEED(!ibv_destroy_cq(p->cq));
    free(p->bytes);
}

// One request of `a`, and how it ends.
static enum ibv_wc_status run(struct pair *p, enum ibv_wr_opcode opcode, struct ibv_sge sge,
                              uint64_t remote, uint32_t rkey)
{
    struct ibv_send_wr *bad, wr = {.wr_id = 6,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {remote, rkey}};

    NEED(!ibv_post_send(p->a, &wr, &bad));
    return wait_one(p->cq).status;
}

static struct ibv_sge part(struct pair *p, size_t from, uint32_t len)
{
    return (struct ibv_sge){(uintptr_t)p->bytes + from, len, p->mr->lkey};
}

// ---- regions without memory

static void check_null(struct world *w)
{
    struct pair p;
    struct ibv_mr *null = ibv_alloc_null_mr(w->pd);

    NEED(null && null->lkey);
    open_pair(w, &p, IBV_QPT_RC, 4 * PAGE);
    memset(p.bytes, 7, p.len);
    // Zeros come out, at any address;
    struct ibv_sge nowhere = {.addr = 12345, .length = 2 * PAGE + 1, .lkey = null->lkey};
    NEED(run(&p, IBV_WR_RDMA_WRITE, nowhere, (uintptr_t)p.bytes, p.mr->rkey) == IBV_WC_SUCCESS);
    for (size_t i = 0; i < p.len; i++)
        NEED(p.bytes[i] == (i < nowhere.length ? 0 : 7));
    // what goes in is lost,
    memset(p.bytes, 7, p.len);
    NEED(run(&p, IBV_WR_RDMA_READ, nowhere, (uintptr_t)p.bytes, p.mr->rkey) == IBV_WC_SUCCESS);
    // and zeros come out again.
    NEED(run(&p, IBV_WR_RDMA_WRITE, nowhere, (uintptr_t)p.bytes, p.mr->rkey) == IBV_WC_SUCCESS);
    for (size_t i = 0; i < nowhere.length; i++)
        NEED(p.bytes[i] == 0);
    // It is not for peers.
    NEED(run(&p, IBV_WR_RDMA_WRITE, part(&p, 0, 64), 12345, null->lkey) == IBV_WC_REM_ACCESS_ERR);
    close_pair(&p);
    NEED(!ibv_dereg_mr(null));
    puts("a region without memory: ok");
}

// ---- all memory, on demand

static void check_all_memory(struct world *w)
{
    struct pair p;
    struct ibv_mr *all = ibv_reg_mr(w->pd, NULL, SIZE_MAX, ALL_REMOTE | IBV_ACCESS_ON_DEMAND);
    uint8_t *late =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    NEED(all && late != MAP_FAILED);
    NEED(!ibv_reg_mr(w->pd, NULL, SIZE_MAX, ALL_REMOTE) && errno == EINVAL);
    open_pair(w, &p, IBV_QPT_RC, PAGE);
    memset(p.bytes, 9, p.len);
    struct ibv_sge from = {(uintptr_t)p.bytes, PAGE, all->lkey};
    NEED(run(&p, IBV_WR_RDMA_WRITE, from, (uintptr_t)late, all->rkey) == IBV_WC_SUCCESS);
    NEED(memcmp(late, p.bytes, PAGE) == 0);
    // What is not there is an error of who asks for it, not of this process.
    NEED(!munmap(late + PAGE, PAGE));
    enum ibv_wc_status s = run(&p, IBV_WR_RDMA_WRITE, from, (uintptr_t)late + PAGE, all->rkey);
    NEED(s == IBV_WC_REM_OP_ERR);
    close_pair(&p);
    open_pair(w, &p, IBV_QPT_RC, PAGE);
    struct ibv_sge gone = {(uintptr_t)late + PAGE, 64, all->lkey};
    s = run(&p, IBV_WR_RDMA_WRITE, gone, (uintptr_t)late, all->rkey);
    NEED(s == IBV_WC_LOC_PROT_ERR);
    close_pair(&p);
    NEED(!ibv_dereg_mr(all) && !munmap(late, PAGE));
    puts("all memory on demand: ok");
}

static void check_advice(struct world *w)
{
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, at, PAGE, ALL_REMOTE | IBV_ACCESS_ON_DEMAND);
    struct ibv_mr *readable = ibv_reg_mr(w->pd, at, PAGE, IBV_ACCESS_ON_DEMAND);
    struct ibv_sge sge = {(uintptr_t)at, PAGE, mr ? mr->lkey : 0};
    unsigned char in_core = 0;

    NEED(at != MAP_FAILED && mr && readable);
    NEED(!mincore(at, PAGE, &in_core) && !(in_core & 1));
    NEED(!ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge,
                        1));
    NEED(!mincore(at, PAGE, &in_core) && in_core & 1);
    NEED(!ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1));
    NEED(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1u << 7, &sge, 1) == EINVAL);
    sge.length = PAGE + 1;
    NEED(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EFAULT);
    sge = (struct ibv_sge){(uintptr_t)at, PAGE, readable->lkey};
    NEED(!ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
    NEED(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1) == EFAULT);
    NEED(!ibv_dereg_mr(readable));
    NEED(ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOENT);
    NEED(!ibv_dereg_mr(mr) && !munmap(at, 2 * PAGE));
    puts("advice: ok");
}

// ---- rates

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double time_write(struct pair *p)
{
    double from = now_s();

    NEED(run(p, IBV_WR_RDMA_WRITE, part(p, 0, (uint32_t)p->len / 2),
             (uintptr_t)p->bytes + p->len / 2, p->mr->rkey) == IBV_WC_SUCCESS);
    return now_s() - from;
}

static void check_rate(struct world *w)
{
    struct ibv_qp_rate_limit_attr limit = {.rate_limit = 40 * 1000, .max_burst_sz = 16384};
    struct ibv_device_attr_ex device;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct pair p;

    NEED(!ibv_query_device_ex(w->context, NULL, &device));
    NEED(device.packet_pacing_caps.qp_rate_limit_max > limit.rate_limit);
    NEED(device.packet_pacing_caps.supported_qpts & 1u << IBV_QPT_RC);
    open_pair(w, &p, IBV_QPT_RC, 2 * 1000 * 1000);
    NEED(!ibv_modify_qp_rate_limit(p.a, &limit));
    NEED(!ibv_query_qp(p.a, &attr, IBV_QP_RATE_LIMIT, &init) && attr.rate_limit == 40 * 1000);
    NEED(time_write(&p) > 0.15); // a megabyte at 5 MB/s takes 0.2 s, on a busy machine more
    limit.rate_limit = 1;        // at which it would take hours,
    NEED(!ibv_modify_qp_rate_limit(p.a, &limit));
    limit.rate_limit = 0; // but it is lifted
    NEED(!ibv_modify_qp_rate_limit(p.a, &limit));
    (void)time_write(&p);
    limit.rate_limit = UINT32_MAX;
    NEED(ibv_modify_qp_rate_limit(p.a, &limit) == EINVAL);
    limit = (struct ibv_qp_rate_limit_attr){.max_burst_sz = 10, .typical_pkt_sz = 20};
    NEED(ibv_modify_qp_rate_limit(p.a, &limit) == EINVAL);
    limit = (struct ibv_qp_rate_limit_attr){.rate_limit = 1000};
    NEED(!ibv_modify_qp(p.a, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE));
    NEED(ibv_modify_qp_rate_limit(p.a, &limit) == EINVAL);
    close_pair(&p);
    puts("a rate: ok");
}

// ---- domains of threads

static void check_domains(struct world *w)
{
    struct ibv_td *td = ibv_alloc_td(w->context, &(struct ibv_td_init_attr){0});
    struct ibv_parent_domain_init_attr attr = {.pd = w->pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(w->context, &attr);
    struct world inner = *w;
    struct pair p;

    NEED(td && parent);
    inner.pd = parent;
    NEED(ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(w->pd) == EBUSY);
    open_pair(&inner, &p, IBV_QPT_RC, PAGE);
    NEED(run(&p, IBV_WR_RDMA_WRITE, part(&p, 0, 64), (uintptr_t)p.bytes + 64, p.mr->rkey) ==
         IBV_WC_SUCCESS);
    close_pair(&p);
    NEED(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
    puts("domains of threads: ok");
}

// ---- several handles of an XRC target

struct xrc {
    struct ibv_xrcd *xrcd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    struct ibv_qp *from, *to;
    uint32_t srqn;
    uint8_t bytes[PAGE];
};

static struct ibv_qp *make_xrc_qp(struct world *w, struct xrc *x, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = type,
                                       .cap = {.max_send_wr = 16, .max_send_sge = 1}};
    if (type == IBV_QPT_XRC_SEND) {
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
        attr.pd = w->pd;
        attr.send_cq = x->cq;
    } else {
        attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        attr.xrcd = x->xrcd;
    }
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &attr);
    NEED(qp);
    return qp;
}

static void open_xrc(struct world *w, struct xrc *x)
{
    struct ibv_xrcd_init_attr domain = {.comp_mask =
                                            IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                        .fd = -1,
                                        .oflags = O_CREAT};
    NEED(x->xrcd = ibv_open_xrcd(w->context, &domain));
    NEED(x->cq = ibv_create_cq(w->context, 16, NULL, NULL, 0));
    NEED(x->mr = ibv_reg_mr(w->pd, x->bytes, PAGE, ALL_REMOTE));
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 8, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = w->pd,
                                        .xrcd = x->xrcd,
                                        .cq = x->cq};
    NEED(x->srq = ibv_create_srq_ex(w->context, &attr));
    NEED(!ibv_get_srq_num(x->srq, &x->srqn));
    x->from = make_xrc_qp(w, x, IBV_QPT_XRC_SEND);
    x->to = make_xrc_qp(w, x, IBV_QPT_XRC_RECV);
}

static void send_xrc(struct xrc *x)
{
    struct ibv_sge sge = {(uintptr_t)x->bytes, 64, x->mr->lkey};
    struct ibv_recv_wr *bad_receive, receive = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
    struct ibv_send_wr *bad, wr = {.wr_id = 6,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .qp_type.xrc.remote_srqn = x->srqn};

    NEED(!ibv_post_srq_recv(x->srq, &receive, &bad_receive));
    NEED(!ibv_post_send(x->from, &wr, &bad));
    for (int i = 0; i < 2; i++)
        NEED(wait_one(x->cq).status == IBV_WC_SUCCESS);
}

static void check_handles(struct world *w)
{
    struct xrc x;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    open_xrc(w, &x);
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                 IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = x.to->qp_num,
                                    .xrcd = x.xrcd,
                                    .qp_context = &x,
                                    .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *other = ibv_open_qp(w->context, &open);
    NEED(other && other->qp_num == x.to->qp_num && other->qp_context == &x);
    connect_qp(w, x.from, x.to->qp_num);
    connect_qp(w, other, x.from->qp_num);
    NEED(!ibv_query_qp(x.to, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
    NEED(attr.dest_qp_num == x.from->qp_num && x.to->state == IBV_QPS_RTS);
    send_xrc(&x);
    NEED(!ibv_destroy_qp(x.to)); // it lives on
    send_xrc(&x);
    NEED(ibv_close_xrcd(x.xrcd) == EBUSY);
    NEED(!ibv_destroy_qp(other));
    NEED(!ibv_open_qp(w->context, &open) && errno == EINVAL); // there is no such number any more
    open.comp_mask = IBV_QP_OPEN_ATTR_NUM;
    NEED(!ibv_open_qp(w->context, &open) && errno == EINVAL);
    NEED(!ibv_destroy_qp(x.from) && !ibv_destroy_srq(x.srq) && !ibv_close_xrcd(x.xrcd));
    NEED(!ibv_destroy_cq(x.cq) && !ibv_dereg_mr(x.mr));
    puts("handles of an XRC target: ok");
}

// ---- datagrams spread over receive queues

struct spread {
    struct ibv_cq *cq[2];
    struct ibv_wq *wq[2];
    struct ibv_mr *mr;
    struct ibv_qp *from;
    struct ibv_ah *ah;
    uint8_t bytes[PAGE];
};

static void open_spread(struct world *w, struct spread *s)
{
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = w->gid}};

    NEED(s->mr = ibv_reg_mr(w->pd, s->bytes, PAGE, ALL_REMOTE));
    for (int i = 0; i < 2; i++) {
        NEED(s->cq[i] = ibv_create_cq(w->context, 16, NULL, NULL, 0));
        struct ibv_wq_init_attr attr = {
            .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = w->pd, .cq = s->cq[i]};
        NEED(s->wq[i] = ibv_create_wq(w->context, &attr));
    }
    s->from = make_qp(w, IBV_QPT_UD, s->cq[0], NULL);
    connect_qp(w, s->from, 0);
    NEED(s->ah = ibv_create_ah(w->pd, &to));
}

static void close_spread(struct spread *s)
{
    NEED(!ibv_destroy_ah(s->ah) && !ibv_destroy_qp(s->from));
    for (int i = 0; i < 2; i++) {
        NEED(ibv_destroy_cq(s->cq[i]) == EBUSY);
        NEED(!ibv_destroy_wq(s->wq[i]) && !ibv_destroy_cq(s->cq[i]));
    }
    NEED(!ibv_dereg_mr(s->mr));
}

static struct ibv_rwq_ind_table *make_table(struct world *w, struct ibv_wq *first,
                                            struct ibv_wq *second)
{
    struct ibv_wq *list[2] = {first, second};
    struct ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = 1, .ind_tbl = list};
    struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(w->context, &attr);

    NEED(table);
    return table;
}

static struct ibv_qp *make_spreading(struct world *w, struct ibv_rwq_ind_table *table,
                                     uint64_t fields)
{
    static uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2};
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_UD,
        .pd = w->pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
        .rwq_ind_tbl = table,
        .rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
                         .rx_hash_key_len = sizeof key,
                         .rx_hash_key = key,
                         .rx_hash_fields_mask = fields}};
    return ibv_create_qp_ex(w->context, &attr);
}

static void post_wq(struct spread *s, int i)
{
    struct ibv_sge sge = {(uintptr_t)s->bytes + 1024, 512, s->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 70 + (uint64_t)i, .sg_list = &sge, .num_sge = 1};

    NEED(!ibv_post_wq_recv(s->wq[i], &wr, &bad));
}

static void check_spread(struct world *w)
{
    const uint64_t sources = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6;
    struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
    struct ibv_wq_attr fails = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_ERR};
    struct ibv_recv_wr *bad, wr = {.wr_id = 1};
    struct spread s;

    open_spread(w, &s);
    NEED(ibv_post_wq_recv(s.wq[0], &wr, &bad) == EINVAL && bad == &wr); // in RESET
    for (int i = 0; i < 2; i++) {
        NEED(!ibv_modify_wq(s.wq[i], &ready) && s.wq[i]->state == IBV_WQS_RDY);
        post_wq(&s, i);
    }
    for (int i = 0; i < 2; i++) { // all to one queue, and then all to the other
        struct ibv_rwq_ind_table *table = make_table(w, s.wq[i], s.wq[i]);
        struct ibv_qp *qp = make_spreading(w, table, sources);
        NEED(qp && ibv_destroy_rwq_ind_table(table) == EBUSY && ibv_destroy_wq(s.wq[i]) == EBUSY);
        connect_qp(w, qp, 0);
        NEED(ibv_post_send(qp, &(struct ibv_send_wr){.opcode = IBV_WR_SEND},
                           &(struct ibv_send_wr *){NULL}) == EINVAL); // it only receives
        send_one(s.from, s.mr, 6, s.ah, qp->qp_num);
        struct ibv_wc wc = wait_one(s.cq[i]);
        if (i == 0 && wc.wr_id == 6)
            wc = wait_one(s.cq[0]);
        NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id == 70 + (uint64_t)i);
        NEED(wc.byte_len == GRH_BYTES + 64 && wc.src_qp == s.from->qp_num);
        NEED(!ibv_destroy_qp(qp) && !ibv_destroy_rwq_ind_table(table));
    }
    struct ibv_rwq_ind_table *both = make_table(w, s.wq[0], s.wq[1]);
    NEED(!make_spreading(w, both, IBV_RX_HASH_SRC_PORT_TCP) && errno == EINVAL);
    NEED(!ibv_destroy_rwq_ind_table(both));
    post_wq(&s, 1);
    NEED(!ibv_modify_wq(s.wq[1], &fails));
    NEED(wait_one(s.cq[1]).status == IBV_WC_WR_FLUSH_ERR);
    NEED(ibv_modify_wq(s.wq[1], &ready) == EINVAL); // by RESET alone
    close_spread(&s);
    puts("datagrams spread over receive queues: ok");
}

// ---- XRC domains by files

static struct ibv_xrcd *open_domain(struct world *w, int fd, int oflags)
{
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};
    return ibv_open_xrcd(w->context, &attr);
}

static void check_files(struct world *w)
{
    FILE *one = tmpfile(), *two = tmpfile();
    NEED(one && two);
    int fd = fileno(one), again = dup(fd);

    NEED(!open_domain(w, fd, 0) && errno == ENOENT); // nobody has made it
    struct ibv_xrcd *first = open_domain(w, fd, O_CREAT), *same = open_domain(w, again, 0);
    struct ibv_xrcd *other = open_domain(w, fileno(two), O_CREAT);
    NEED(first && same && other);
    NEED(!open_domain(w, fd, O_CREAT | O_EXCL) && errno == EEXIST);
    NEED(!open_domain(w, -1, 0) && errno == EINVAL);
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = first};
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &attr);
    NEED(qp);
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                 IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = qp->qp_num,
                                    .xrcd = other,
                                    .qp_type = IBV_QPT_XRC_RECV};
    NEED(!ibv_open_qp(w->context, &open) && errno == EINVAL);
    open.xrcd = same;
    struct ibv_qp *handle = ibv_open_qp(w->context, &open);
    NEED(handle && !ibv_destroy_qp(qp) && !ibv_destroy_qp(handle));
    NEED(!ibv_close_xrcd(first) && !ibv_close_xrcd(same) && !ibv_close_xrcd(other));
    NEED(!open_domain(w, fd, 0) && errno == ENOENT); // it is gone
    close(again);
    fclose(one);
    fclose(two);
    puts("domains by files: ok");
}

// ---- the time of completions

static uint64_t clock_of(struct world *w)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

    NEED(!ibv_query_rt_values_ex(w->context, &values));
    NEED(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK);
    return (uint64_t)values.raw_clock.tv_sec * 1000000000 + (uint64_t)values.raw_clock.tv_nsec;
}

// Not time(), whose second begins a few milliseconds late.
static uint64_t wall_ns(void)
{
    struct timespec now;

    NEED(!clock_gettime(CLOCK_REALTIME, &now));
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void check_time(struct world *w)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 16,
                                       .wc_flags = IBV_WC_STANDARD_FLAGS |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(w->context, &attr);
    struct pair p = {.len = PAGE};
    int error;

    NEED(ex && (p.bytes = calloc(1, PAGE)));
    p.cq = ibv_cq_ex_to_cq(ex);
    NEED(p.mr = ibv_reg_mr(w->pd, p.bytes, PAGE, ALL_REMOTE));
    p.a = make_qp(w, IBV_QPT_RC, p.cq, NULL);
    p.b = make_qp(w, IBV_QPT_RC, p.cq, NULL);
    connect_pair(w, &p);
    struct ibv_sge sge = part(&p, 0, 64);
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {(uintptr_t)p.bytes + 64, p.mr->rkey}};
    uint64_t before = clock_of(w);
    uint64_t wall_before = wall_ns();
    NEED(!ibv_post_send(p.a, &wr, &bad));
    while ((error = ibv_start_poll(ex, &(struct ibv_poll_cq_attr){0})) == ENOENT) {}
    NEED(!error && ex->status == IBV_WC_SUCCESS);
    uint64_t at = ibv_wc_read_completion_ts(ex);
    NEED(at == ibv_wc_read_completion_ts(ex)); // of the completion, not of the call
    uint64_t wall = ibv_wc_read_completion_wallclock_ns(ex);
    ibv_end_poll(ex);
    NEED(at >= before && at <= clock_of(w));
    NEED(wall >= wall_before && wall <= wall_ns());
    close_pair(&p);
    puts("the time of completions: ok");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*check)(struct world *w);
    } checks[] = {
        {"null", check_null},   {"all", check_all_memory},  {"advice", check_advice},
        {"rate", check_rate},   {"domains", check_domains}, {"handles", check_handles},
        {"files", check_files}, {"spread", check_spread},   {"time", check_time},
    };
    struct world w;

    open_world(&w);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (argc < 2 || strcmp(argv[1], checks[i].name) == 0)
            checks[i].check(&w);
    close_world(&w);
    puts("all ok");
    return 0;
}
