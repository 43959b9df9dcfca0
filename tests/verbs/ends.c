// SPDX-License-Identifier: Apache-2.0
// How verbs objects end: with events in somebody's hand, with others that use them, while other
// threads poll, and in a forked child. Each argument names one check; without any, all are made.
#include "world.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHILD_S = 20,
    MANY_EVENTS = 1200, // more than are kept for a context that never asks
    SHARED = 64,
};

// Two queue pairs that are connected with each other.
struct pair {
    struct world *w;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    struct ibv_qp *a, *b;
    uint8_t bytes[BYTES];
};

static void open_pair(struct pair *p, struct world *w, bool shares)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = SHARED, .max_sge = 1}};

    memset(p, 0, sizeof *p);
    p->w = w;
    NEED(p->channel = ibv_create_comp_channel(w->context));
    NEED(p->cq = ibv_create_cq(w->context, 16, NULL, p->channel, 0));
    NEED(p->mr = ibv_reg_mr(w->pd, p->bytes, BYTES, IBV_ACCESS_LOCAL_WRITE));
    if (shares)
        NEED(p->srq = ibv_create_srq(w->pd, &attr));
    p->a = make_qp(w, IBV_QPT_RC, p->cq, NULL);
    p->b = make_qp(w, IBV_QPT_RC, p->cq, p->srq);
    connect_qp(w, p->a, p->b->qp_num);
    connect_qp(w, p->b, p->a->qp_num);
}

static void close_pair(struct pair *p)
{
    NEED(!p->a || !ibv_destroy_qp(p->a));
    NEED(!p->b || !ibv_destroy_qp(p->b));
    NEED(!p->srq || !ibv_destroy_srq(p->srq));
    NEED(!p->cq || !ibv_destroy_cq(p->cq));
    NEED(!ibv_destroy_comp_channel(p->channel) && !ibv_dereg_mr(p->mr));
}

static void post_receive(struct pair *p)
{
    struct ibv_sge sge = {.addr = (uintptr_t)p->bytes + 1024, .length = 64, .lkey = p->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};

    NEED(!(p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->b, &wr, &bad)));
}

static void send_and_take(struct pair *p)
{
    post_receive(p);
    send_one(p->a, p->mr, 6, NULL, 0);
    for (int i = 0; i < 2; i++)
        NEED(wait_one(p->cq).status == IBV_WC_SUCCESS);
}

static void make_nonblocking(int fd)
{
    NEED(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

static void drop_events(struct world *w)
{
    struct ibv_async_event event;

    make_nonblocking(w->context->async_fd);
    while (ibv_get_async_event(w->context, &event) == 0)
        ibv_ack_async_event(&event);
}

// ---- events in somebody's hand

struct ending {
    int (*destroy)(void *object);
    void *object;
    atomic_bool ended;
};

static int destroy_cq(void *cq)
{
    return ibv_destroy_cq(cq);
}

static int destroy_srq(void *srq)
{
    return ibv_destroy_srq(srq);
}

static void *end_it(void *arg)
{
    struct ending *e = arg;

    NEED(!e->destroy(e->object));
    atomic_store(&e->ended, true);
    return NULL;
}

// Long enough for a thread that does not wait to get there.
static void let_others_run(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL); // no end of a call is the
                                                                      // claim
}

static void check_queue_waits_for_acks(struct world *w)
{
    struct pair p;
    struct ibv_cq *told;
    struct ibv_wc wc;
    pthread_t thread;
    void *context;

    open_pair(&p, w, false);
    NEED(!ibv_req_notify_cq(p.cq, 0));
    send_and_take(&p);
    NEED(!ibv_get_cq_event(p.channel, &told, &context) && told == p.cq);
    NEED(ibv_destroy_cq(p.cq) == EBUSY); // at once, whatever was acknowledged
    NEED(!ibv_destroy_qp(p.a) && !ibv_destroy_qp(p.b));
    p.a = p.b = NULL;
    struct ending e = {.destroy = destroy_cq, .object = p.cq};
    NEED(!pthread_create(&thread, NULL, end_it, &e));
    for (int i = 0; i < 20; i++) {
        let_others_run();
        NEED(!atomic_load(&e.ended) && ibv_poll_cq(told, 1, &wc) == 0); // it is still there
    }
    ibv_ack_cq_events(told, 1);
    NEED(!pthread_join(thread, NULL) && atomic_load(&e.ended));
    p.cq = NULL;
    close_pair(&p);
    puts("a completion queue waits for its events: ok");
}

static void check_shared_waits_for_acks(struct world *w)
{
    struct pair p;
    struct ibv_async_event event;
    struct ibv_srq_attr now;
    pthread_t thread;

    open_pair(&p, w, true);
    post_receive(&p);
    NEED(!ibv_query_srq(p.srq, &now) && now.srq_limit == 0);
    NEED(!ibv_modify_srq(p.srq, &(struct ibv_srq_attr){.srq_limit = UINT32_MAX}, 0)); // not named
    NEED(!ibv_modify_srq(p.srq, &(struct ibv_srq_attr){.srq_limit = 2}, IBV_SRQ_LIMIT));
    NEED(!ibv_query_srq(p.srq, &now) && now.srq_limit == 2);
    send_and_take(&p);
    for (;;) {
        NEED(!ibv_get_async_event(w->context, &event));
        if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
            break;
        ibv_ack_async_event(&event);
    }
    NEED(!ibv_query_srq(p.srq, &now) && now.srq_limit == 0); // no longer armed
    NEED(event.element.srq == p.srq && ibv_destroy_srq(p.srq) == EBUSY);
    NEED(!ibv_destroy_qp(p.a) && !ibv_destroy_qp(p.b));
    p.a = p.b = NULL;
    struct ending e = {.destroy = destroy_srq, .object = p.srq};
    NEED(!pthread_create(&thread, NULL, end_it, &e));
    for (int i = 0; i < 20; i++) {
        let_others_run();
        NEED(!atomic_load(&e.ended));
        NEED(!ibv_modify_srq(p.srq, &(struct ibv_srq_attr){.srq_limit = 0}, IBV_SRQ_LIMIT));
    }
    ibv_ack_async_event(&event);
    NEED(!pthread_join(thread, NULL) && atomic_load(&e.ended));
    p.srq = NULL;
    close_pair(&p);
    puts("a shared receive queue waits for its events: ok");
}

// More events than are kept for a context that does not ask: what is lost holds nobody up.
static void check_events_nobody_takes(struct world *w)
{
    struct world other;
    struct pair p;
    struct ibv_async_event event;
    unsigned kept = 0;

    open_world(&other);
    open_pair(&p, &other, true);
    make_nonblocking(w->context->async_fd);
    make_nonblocking(other.context->async_fd);
    for (int i = 0; i < MANY_EVENTS; i++) {
        NEED(!ibv_modify_srq(p.srq, &(struct ibv_srq_attr){.srq_limit = 1}, IBV_SRQ_LIMIT));
        send_and_take(&p);
        NEED(ibv_get_async_event(w->context, &event) == -1 && errno == EAGAIN);
    }
    for (; kept < 10; kept++) {
        NEED(!ibv_get_async_event(other.context, &event));
        ibv_ack_async_event(&event);
    }
    close_pair(&p);
    close_world(&other);
    puts("events that nobody takes: ok");
}

// ---- numbers that another object has later

// The event of one that is gone is not told of the next one with its number.
static void check_numbers_again(struct world *w)
{
    struct ibv_async_event event;
    struct pair p;
    uint32_t number, next;

    drop_events(w);
    open_pair(&p, w, true);
    NEED(!ibv_get_srq_num(p.srq, &number));
    NEED(!ibv_modify_srq(p.srq, &(struct ibv_srq_attr){.srq_limit = 1}, IBV_SRQ_LIMIT));
    send_and_take(&p);
    struct pollfd fd = {.fd = w->context->async_fd, .events = POLLIN};
    NEED(poll(&fd, 1, -1) == 1);
    close_pair(&p);
    open_pair(&p, w, true);
    NEED(!ibv_get_srq_num(p.srq, &next) && next == number);
    NEED(ibv_get_async_event(w->context, &event) == -1 && errno == EAGAIN);
    NEED(poll(&fd, 1, 0) == 0);
    close_pair(&p);
    puts("numbers that are used again: ok");
}

// ---- a send queue that drains

static void drain(struct ibv_qp *qp, int mask, uint8_t notify)
{
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify}, now;
    struct ibv_qp_init_attr init;

    NEED(!ibv_modify_qp(qp, &to, IBV_QP_STATE | mask));
    NEED(!ibv_query_qp(qp, &now, IBV_QP_EN_SQD_ASYNC_NOTIFY, &init));
    NEED(now.qp_state == IBV_QPS_SQD && now.en_sqd_async_notify == (mask && notify));
}

static void go_on(struct ibv_qp *qp)
{
    NEED(!ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RTS}, IBV_QP_STATE));
}

// The event of a drained send queue comes only if the change to SQD asked for it (ibv_modify_qp(3),
// en_sqd_async_notify), each time anew.
static void check_drained_on_demand(struct world *w)
{
    struct pollfd fd = {.fd = w->context->async_fd, .events = POLLIN};
    struct ibv_async_event event;
    struct pair p;

    drop_events(w);
    open_pair(&p, w, false);
    for (int i = 0; i < 3; i++) {
        drain(p.a, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1);
        NEED(poll(&fd, 1, -1) == 1 && !ibv_get_async_event(w->context, &event));
        NEED(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == p.a);
        ibv_ack_async_event(&event);
        go_on(p.a);
        drain(p.a, i == 1 ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0, 0);
        go_on(p.a);
        send_and_take(&p); // its turn has come since
        NEED(poll(&fd, 1, 0) == 0);
        NEED(ibv_get_async_event(w->context, &event) == -1 && errno == EAGAIN);
    }
    close_pair(&p);
    puts("a send queue that drains: ok");
}

// ---- what others use

static void check_domain_in_use(struct world *w)
{
    struct ibv_xrcd_init_attr domain = {.comp_mask =
                                            IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                        .fd = -1,
                                        .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(w->context, &domain);
    struct ibv_cq *cq = ibv_create_cq(w->context, 16, NULL, NULL, 0);
    struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 8, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = w->pd,
                                        .xrcd = xrcd,
                                        .cq = cq};
    NEED(xrcd && cq);
    struct ibv_srq *srq = ibv_create_srq_ex(w->context, &attr);
    NEED(srq && ibv_close_xrcd(xrcd) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
    NEED(!ibv_destroy_srq(srq) && !ibv_close_xrcd(xrcd) && !ibv_destroy_cq(cq));
    puts("an XRC domain in use: ok");
}

static void check_member_of_a_group(struct world *w)
{
    struct ibv_cq *cq = ibv_create_cq(w->context, 16, NULL, NULL, 0);
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 77, [15] = 9}};
    struct ibv_qp *qp = make_qp(w, IBV_QPT_UD, cq, NULL);

    connect_qp(w, qp, 0);
    const char *port = getenv("VERBENA_PORT"); // as `verbena run --port` sets it
    bool groups = !port || strcmp(port, "shm") != 0;
    NEED(ibv_attach_mcast(qp, &group, 0) == (groups ? 0 : EOPNOTSUPP));
    if (groups) {
        NEED(!ibv_attach_mcast(qp, &group, 0)); // once more changes nothing
        NEED(ibv_destroy_qp(qp) == EBUSY && !ibv_detach_mcast(qp, &group, 0));
        NEED(ibv_detach_mcast(qp, &group, 0) == EINVAL);
    }
    NEED(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
    puts("a member of a group: ok");
}

// ---- while others poll

struct poller {
    struct ibv_cq *cq;
    atomic_bool ends;
    atomic_uint polls;
};

static void *poll_on(void *arg)
{
    struct poller *p = arg;
    struct ibv_wc wc;

    while (!atomic_load(&p->ends)) {
        NEED(ibv_poll_cq(p->cq, 1, &wc) >= 0);
        atomic_fetch_add(&p->polls, 1);
        sched_yield();
    }
    return NULL;
}

// With faults that hold packets back, a queue pair that goes waits for its last answers to leave.
// A thread that polls its completion queue meanwhile does not wait with it.
static void check_polling_goes_on(struct world *w)
{
    struct pair p;
    pthread_t thread;

    open_pair(&p, w, false);
    struct poller other = {.cq = p.cq};
    send_and_take(&p);
    post_receive(&p);
    send_one(p.a, p.mr, 7, NULL, 0);               // nobody waits for it
    NEED(wait_one(p.cq).status == IBV_WC_SUCCESS); // it has come; the answer is being held back
    NEED(!pthread_create(&thread, NULL, poll_on, &other));
    while (atomic_load(&other.polls) == 0)
        sched_yield();
    unsigned before = atomic_load(&other.polls);
    NEED(!ibv_destroy_qp(p.b));
    unsigned polls = atomic_load(&other.polls) - before;
    p.b = NULL;
    atomic_store(&other.ends, true);
    NEED(!pthread_join(thread, NULL));
    printf("polls while a queue pair ends: %s\n", polls >= 5 ? "many" : "few");
    close_pair(&p);
}

// ---- fork: threads that are not in the child held locks

struct holder {
    struct ibv_cq_ex *cq;
    struct ibv_qp_ex *qp;
    atomic_bool holds, ends;
};

static void *hold(void *arg)
{
    struct holder *h = arg;

    while (ibv_start_poll(h->cq, &(struct ibv_poll_cq_attr){0}))
        sched_yield();
    ibv_wr_start(h->qp);
    atomic_store(&h->holds, true);
    while (!atomic_load(&h->ends))
        sched_yield();
    ibv_wr_abort(h->qp);
    ibv_end_poll(h->cq);
    return NULL;
}

static struct ibv_qp *make_extended(struct world *w, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_RC,
        .send_cq = cq,
        .recv_cq = cq,
        .pd = w->pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &attr);

    NEED(qp);
    return qp;
}

#define REFUSED(call) NEED((call) == EPERM)

static void be_the_child(struct world *w, struct holder *h, struct ibv_qp *qp)
{
    struct ibv_cq *cq = ibv_cq_ex_to_cq(h->cq);
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND};
    struct ibv_recv_wr *bad_receive, receive = {.wr_id = 1};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_async_event event = {.event_type = IBV_EVENT_COMM_EST, .element.qp = qp};
    struct ibv_wc wc;

    alarm(CHILD_S); // a child that spins is killed
    NEED(ibv_poll_cq(cq, 1, &wc) < 0 && errno == EPERM);
    REFUSED(ibv_start_poll(h->cq, &(struct ibv_poll_cq_attr){0}));
    REFUSED(ibv_req_notify_cq(cq, 0));
    REFUSED(ibv_resize_cq(cq, 100));
    REFUSED(ibv_post_send(qp, &wr, &bad));
    REFUSED(ibv_post_recv(qp, &receive, &bad_receive));
    ibv_wr_start(h->qp);
    ibv_wr_send(h->qp);
    REFUSED(ibv_wr_complete(h->qp));
    ibv_wr_start(h->qp);
    ibv_wr_abort(h->qp);
    REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    ibv_ack_cq_events(cq, 1);
    ibv_ack_async_event(&event);
    NEED(ibv_get_async_event(w->context, &event) == -1 && errno == EPERM);
    REFUSED(ibv_destroy_qp(qp));
    REFUSED(ibv_destroy_cq(cq));
    REFUSED(ibv_dealloc_pd(w->pd));
    NEED(!ibv_create_cq(w->context, 1, NULL, NULL, 0) && errno == EPERM);
    NEED(!ibv_close_device(w->context));
    open_world(w); // a device of its own
    close_world(w);
    _exit(0);
}

static void check_locks_after_fork(struct world *w)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(w->context);
    struct ibv_cq_init_attr_ex attr = {.cqe = 16, .channel = channel};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(w->context, &attr);
    uint8_t bytes[BYTES];
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    pthread_t thread;
    int status;

    NEED(channel && ex && mr);
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
    struct ibv_qp *a = make_qp(w, IBV_QPT_RC, cq, NULL), *b = make_extended(w, cq);
    struct holder h = {.cq = ex, .qp = ibv_qp_to_qp_ex(b)};
    struct ibv_sge sge = {.addr = (uintptr_t)bytes + 1024, .length = 64, .lkey = mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
    connect_qp(w, a, b->qp_num);
    connect_qp(w, b, a->qp_num);
    NEED(!ibv_post_recv(b, &wr, &bad));
    send_one(a, mr, 6, NULL, 0);
    NEED(!pthread_create(&thread, NULL, hold, &h));
    while (!atomic_load(&h.holds))
        sched_yield();
    pthread_mutex_lock(&cq->mutex); // as a thread that acknowledges events would
    pthread_mutex_lock(&b->mutex);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0)
        be_the_child(w, &h, b);
    pthread_mutex_unlock(&b->mutex);
    pthread_mutex_unlock(&cq->mutex);
    NEED(waitpid(child, &status, 0) == child);
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    atomic_store(&h.ends, true);
    NEED(!pthread_join(thread, NULL));
    NEED(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
    NEED(!ibv_destroy_comp_channel(channel));
    puts("locks after fork: ok");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*check)(struct world *w);
    } checks[] = {
        {"queue", check_queue_waits_for_acks},  {"shared", check_shared_waits_for_acks},
        {"untaken", check_events_nobody_takes}, {"numbers", check_numbers_again},
        {"drained", check_drained_on_demand},   {"domain", check_domain_in_use},
        {"group", check_member_of_a_group},     {"polling", check_polling_goes_on},
        {"fork", check_locks_after_fork},
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
