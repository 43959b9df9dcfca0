// SPDX-License-Identifier: Apache-2.0
// The rest of a verbs program's life: symbols found by dlopen and dlvsym, several contexts, events,
// completion channels, shared receives, datagrams, many threads, fork. Linked with -libverbs, it
// knows nothing of Verbena.
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    THREADS = 64,
    ROUNDS = 50,
};

// ---- libraries

static void check_symbols(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    int count = 0;

    NEED(library && dlopen("libibverbs.so", RTLD_NOW) == library);
    struct ibv_device **(*list)(int *) =
        (struct ibv_device * *(*)(int *)) dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
    NEED(list && list == ibv_get_device_list);
    struct ibv_device **devices = list(&count);
    NEED(devices && count == 1 && devices[0] && !devices[1]);
    ibv_free_device_list(devices);
    NEED(dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0")); // of another ABI
    NEED(dlvsym(library, "ibv_cmd_create_qp", "IBVERBS_PRIVATE_34"));
    NEED(!dlvsym(library, "ibv_get_device_list", "IBVERBS_2.0"));
    // Programs of newer headers load, too.
    NEED(dlvsym(library, "ibv_reg_mr_ex", "IBVERBS_1.15"));
    NEED(dlvsym(library, "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16"));
    NEED(dlvsym(library, "ibv_alloc_buf", "IBVERBS_1.17"));
    NEED(dlvsym(library, "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"));
    dlclose(library);
    puts("dlopen, dlvsym: ok");
}

// ---- events

static void check_channel(struct world *w)
{
    uint8_t bytes[BYTES];
    struct ibv_comp_channel *channel = ibv_create_comp_channel(w->context);
    struct ibv_cq *cq, *told;
    void *context;

    NEED(channel);
    NEED(cq = ibv_create_cq(w->context, 16, &told, channel, 0));
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *a = make_qp(w, IBV_QPT_RC, cq, NULL), *b = make_qp(w, IBV_QPT_RC, cq, NULL);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes + 1024, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};

    connect_qp(w, a, b->qp_num);
    connect_qp(w, b, a->qp_num);
    NEED(ibv_destroy_comp_channel(channel) == EBUSY);
    NEED(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
    NEED(ibv_get_cq_event(channel, &told, &context) == -1 && errno == EAGAIN);
    NEED(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) & ~O_NONBLOCK));
    NEED(!ibv_req_notify_cq(cq, 0));
    NEED(!ibv_post_recv(b, &wr, &bad));
    send_one(a, mr, 6, NULL, 0);
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    NEED(poll(&fd, 1, -1) == 1 && poll(&fd, 1, 0) == 1); // until it is taken
    NEED(!ibv_get_cq_event(channel, &told, &context));
    NEED(told == cq && context == &told);
    ibv_ack_cq_events(cq, 1);
    for (int i = 0; i < 2; i++)
        NEED(wait_one(cq).status == IBV_WC_SUCCESS);
    NEED(ibv_destroy_cq(cq) == EBUSY);
    NEED(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
    NEED(!ibv_destroy_comp_channel(channel));
    puts("completion channel: ok");
}

// Of two contexts each hears of its own objects.
static void check_events(struct world *w)
{
    struct world other;
    struct ibv_async_event event;
    uint8_t bytes[BYTES];

    open_world(&other);
    NEED(memcmp(&other.gid, &w->gid, sizeof w->gid) == 0);
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(other.pd, &attr);
    struct ibv_cq *cq = ibv_create_cq(other.context, 16, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(other.pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    NEED(srq && cq && mr);
    struct ibv_qp *a = make_qp(&other, IBV_QPT_RC, cq, NULL);
    struct ibv_qp *b = make_qp(&other, IBV_QPT_RC, cq, srq);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes + 1024, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
    connect_qp(&other, a, b->qp_num);
    connect_qp(&other, b, a->qp_num);
    NEED(ibv_post_recv(b, &wr, &bad) == EINVAL && bad == &wr); // it has none of its own
    NEED(!ibv_post_srq_recv(srq, &wr, &bad) && !ibv_post_srq_recv(srq, &wr, &bad));
    NEED(!ibv_modify_srq(srq, &(struct ibv_srq_attr){.srq_limit = 2}, IBV_SRQ_LIMIT));
    send_one(a, mr, 6, NULL, 0);
    for (int i = 0; i < 2; i++)
        NEED(wait_one(cq).status == IBV_WC_SUCCESS);
    NEED(!fcntl(w->context->async_fd, F_SETFL, O_NONBLOCK));
    NEED(ibv_get_async_event(w->context, &event) == -1 && errno == EAGAIN); // leaves it for the
                                                                            // other
    do {
        NEED(!ibv_get_async_event(other.context, &event));
        ibv_ack_async_event(&event);
    } while (event.event_type == IBV_EVENT_COMM_EST);
    NEED(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    NEED(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_srq(srq));
    NEED(!ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
    close_world(&other);
    puts("two contexts, asynchronous events, shared receives: ok");
}

// ---- who changes a queue pair while its completions are polled

static void check_within_a_poll(struct world *w)
{
    uint8_t bytes[BYTES];
    struct ibv_cq_init_attr_ex attr = {.cqe = 16};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(w->context, &attr);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    NEED(ex && mr);
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
    struct ibv_qp *a = make_qp(w, IBV_QPT_RC, cq, NULL), *b = make_qp(w, IBV_QPT_RC, cq, NULL);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes + 1024, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
    struct ibv_qp_attr fails = {.qp_state = IBV_QPS_ERR};
    int empty;

    connect_qp(w, a, b->qp_num);
    connect_qp(w, b, a->qp_num);
    NEED(!ibv_post_recv(b, &wr, NULL)); // nothing is bad
    send_one(a, mr, 6, NULL, 0);
    while ((empty = ibv_start_poll(ex, &(struct ibv_poll_cq_attr){0})) == ENOENT) {}
    NEED(!empty && ex->status == IBV_WC_SUCCESS);
    NEED(!ibv_modify_qp(a, &fails, IBV_QP_STATE));
    NEED(!ibv_req_notify_cq(cq, 0)); // without a channel nobody hears of it
    ibv_end_poll(ex);
    enum ibv_wc_status other = wait_one(cq).status; // its own, if the receive came first
    NEED(other == IBV_WC_SUCCESS || other == IBV_WC_WR_FLUSH_ERR);
    NEED(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
    puts("changes within a poll: ok");
}

struct changer {
    struct ibv_qp *qp;
    atomic_bool ends;
};

static void *change(void *arg)
{
    struct changer *c = arg;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    while (!atomic_load(&c->ends)) {
        NEED(!ibv_modify_qp(c->qp, &init,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
        NEED(!ibv_modify_qp(c->qp, &reset, IBV_QP_STATE));
    }
    return NULL;
}

// Event, arm, poll until empty, sleep: no completion is missed because another thread was there.
static void check_no_event_is_lost(struct world *w)
{
    uint8_t bytes[BYTES];
    struct ibv_comp_channel *channel = ibv_create_comp_channel(w->context);
    struct ibv_cq *cq = ibv_create_cq(w->context, 64, NULL, channel, 0), *told;
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    NEED(channel && cq && mr);
    struct ibv_qp *a = make_qp(w, IBV_QPT_RC, cq, NULL), *b = make_qp(w, IBV_QPT_RC, cq, NULL);
    struct changer c = {.qp = make_qp(w, IBV_QPT_RC, cq, NULL)};
    struct ibv_sge sge = {.addr = (uintptr_t)bytes + 1024, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    struct ibv_wc wc;
    pthread_t thread;
    void *context;

    connect_qp(w, a, b->qp_num);
    connect_qp(w, b, a->qp_num);
    NEED(!ibv_req_notify_cq(cq, 0));
    NEED(!pthread_create(&thread, NULL, change, &c));
    for (int round = 0; round < 4 * ROUNDS; round++) {
        NEED(!ibv_post_recv(b, &wr, &bad));
        send_one(a, mr, 6, NULL, 0);
        for (int seen = 0; seen < 2;) {
            NEED(poll(&fd, 1, -1) == 1);
            NEED(!ibv_get_cq_event(channel, &told, &context));
            ibv_ack_cq_events(told, 1);
            NEED(!ibv_req_notify_cq(cq, 0));
            for (; ibv_poll_cq(cq, 1, &wc) == 1; seen++)
                NEED(wc.status == IBV_WC_SUCCESS);
        }
    }
    atomic_store(&c.ends, true);
    NEED(!pthread_join(thread, NULL));
    NEED(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_qp(c.qp) && !ibv_destroy_cq(cq));
    NEED(!ibv_dereg_mr(mr) && !ibv_destroy_comp_channel(channel));
    puts("events while others change: ok");
}

static void check_datagrams(struct world *w)
{
    uint8_t bytes[BYTES] = "hello", in[BYTES];
    struct ibv_cq *cq = ibv_create_cq(w->context, 16, NULL, NULL, 0);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *into = ibv_reg_mr(w->pd, in, BYTES, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *a = make_qp(w, IBV_QPT_UD, cq, NULL), *b = make_qp(w, IBV_QPT_UD, cq, NULL);
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = w->gid}};
    struct ibv_sge sge = {.addr = (uintptr_t)in, .length = BYTES, .lkey = into->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};

    connect_qp(w, a, 0);
    connect_qp(w, b, 0);
    struct ibv_ah *ah = ibv_create_ah(w->pd, &to);
    NEED(ah && !ibv_post_recv(b, &wr, &bad));
    send_one(a, mr, 6, ah, b->qp_num);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = wait_one(cq);
        NEED(wc.status == IBV_WC_SUCCESS);
        if (wc.wr_id != 5)
            continue;
        NEED(wc.byte_len == GRH_BYTES + 64 && wc.wc_flags & IBV_WC_GRH && wc.src_qp == a->qp_num);
        NEED(memcmp(in + GRH_BYTES, bytes, 64) == 0);
        NEED(!ibv_init_ah_from_wc(w->context, 1, &wc, (struct ibv_grh *)(void *)in, &to));
        NEED(memcmp(&to.grh.dgid, &w->gid, sizeof w->gid) == 0);
    }
    to.is_global = 0;
    NEED(!ibv_create_ah(w->pd, &to) && errno == EINVAL);
    NEED(!ibv_destroy_ah(ah) && !ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq));
    NEED(!ibv_dereg_mr(mr) && !ibv_dereg_mr(into));
    puts("datagrams: ok");
}

// ---- threads: each has a queue pair of its own, all share one completion queue

struct crowd {
    struct world *w;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    atomic_uint next;
    atomic_uint done[THREADS];
    struct ibv_qp *qp[THREADS];
};

static void *work(void *arg)
{
    struct crowd *c = arg;
    unsigned me = atomic_fetch_add(&c->next, 1);
    struct ibv_sge sge = {.addr = (uintptr_t)c->mr->addr, .length = 64, .lkey = c->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = me,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {(uintptr_t)c->mr->addr + 1024, c->mr->rkey}};
    struct ibv_wc wc[4];

    for (unsigned i = 0; i < ROUNDS; i++) {
        NEED(!ibv_post_send(c->qp[me], &wr, &bad));
        while (atomic_load(&c->done[me]) <= i) {
            int n = ibv_poll_cq(c->cq, 4, wc);
            NEED(n >= 0);
            for (int k = 0; k < n; k++) {
                NEED(wc[k].status == IBV_WC_SUCCESS);
                atomic_fetch_add(&c->done[wc[k].wr_id], 1);
            }
            if (n == 0)
                sched_yield();
        }
    }
    return NULL;
}

static void check_threads(struct world *w)
{
    static uint8_t bytes[BYTES];
    static struct crowd c;
    pthread_t thread[THREADS];

    c.w = w;
    NEED(c.cq = ibv_create_cq(w->context, 4 * THREADS, NULL, NULL, 0));
    NEED(c.mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    for (unsigned i = 0; i < THREADS; i++)
        c.qp[i] = make_qp(w, IBV_QPT_RC, c.cq, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        connect_qp(w, c.qp[i], c.qp[i ^ 1]->qp_num);
    for (unsigned i = 0; i < THREADS; i++)
        NEED(!pthread_create(&thread[i], NULL, work, &c));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        NEED(atomic_load(&c.done[i]) == ROUNDS && !ibv_destroy_qp(c.qp[i]));
    NEED(!ibv_destroy_cq(c.cq) && !ibv_dereg_mr(c.mr));
    puts("64 threads: ok");
}

// ---- fork: the child's copy is dead, and it can open the device anew

static void check_fork(struct world *w)
{
    struct ibv_cq *cq = ibv_create_cq(w->context, 4, NULL, NULL, 0);
    struct ibv_wc wc;
    int status;

    NEED(cq && !ibv_fork_init() && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        struct world own;
        if (ibv_poll_cq(cq, 1, &wc) >= 0 || ibv_alloc_pd(w->context) || errno != EPERM)
            _exit(2);
        ibv_close_device(w->context);
        open_world(&own); // beside the parent's, at the same address if that can be shared
        close_world(&own);
        _exit(0);
    }
    NEED(waitpid(child, &status, 0) == child);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    NEED(ibv_poll_cq(cq, 1, &wc) == 0 && !ibv_destroy_cq(cq));
    puts("fork: ok");
}

int main(int argc, char **argv)
{
    struct world w;

    check_symbols();
    open_world(&w);
    if (argc > 1 && strcmp(argv[1], "stay") == 0) { // to be killed
        puts("here");
        fflush(stdout);
        pause();
    }
    check_channel(&w);
    check_events(&w);
    check_within_a_poll(&w);
    check_no_event_is_lost(&w);
    check_datagrams(&w);
    check_threads(&w);
    check_fork(&w);
    if (argc > 1 && strcmp(argv[1], "leave") == 0)
        return 0; // without closing anything
    close_world(&w);
    puts("all ok");
    return 0;
}
