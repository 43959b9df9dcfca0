// SPDX-License-Identifier: Apache-2.0
// Two units and many application threads: completion queues, shared receive queues and channels
// that threads and units share, with faults and without. For the thread sanitizer above all.
#include "duo.h"
#include "pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    UNITS = 2,
    THREADS = 8,
    QPS = 2, // of each thread, one on each unit
    ROUNDS = 40,
    BYTES = 512,    // of each queue pair, at both ends
    WORD = 64,      // apart from what messages are written to
    RECEIVES = 128, // in the shared queue, each with memory of its own
    SLOTS = THREADS * QPS + RECEIVES,
};

struct side {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *shared_cq[UNITS]; // receives of all threads' queue pairs on the unit
    struct vb_channel *channel;
    struct vb_srq *srq; // of all queue pairs
    uint8_t *memory;
};

struct worker {
    struct side *a, *b;
    uint32_t number;
    struct vb_cq *cq[QPS];
    struct vb_qp *qp[QPS], *there[QPS];
    atomic_uint *running;
    int line; // where it failed
    pthread_t thread;
};

static void open_side(struct side *s, unsigned host, const char *port, const char *faults)
{
    char text[16], why[VB_ERROR_TEXT] = "";
    pair_address(host, text);
    const struct vb_nic_opts opts = {
        .address = text, .port = port, .units = UNITS, .faults = faults, .error_text = why};
    if (vb_nic_open(&opts, &s->nic) != 0)
        fail_msg("%s", why);
    s->memory = calloc(SLOTS, BYTES); // of queue pairs, then of receives
    assert_non_null(s->memory);
    assert_int_equal(vb_pd_alloc(s->nic, &s->pd), 0);
    assert_int_equal(vb_mr_reg(s->pd, s->memory, SLOTS * BYTES, VB_RIGHT_ALL, &s->mr), 0);
    assert_int_equal(vb_channel_create(s->nic, &s->channel), 0);
    for (uint32_t u = 0; u < UNITS; u++) {
        const struct vb_cq_opts cq = {.entries = 1024, .unit = u + 1, .channel = s->channel};
        assert_int_equal(vb_cq_create(s->nic, &cq, &s->shared_cq[u]), 0);
    }
    const struct vb_srq_opts srq = {.depth = 2 * RECEIVES};
    assert_int_equal(vb_srq_create(s->pd, &srq, &s->srq), 0);
}

static struct vb_qp *make_qp(struct side *s, struct vb_cq *send, uint32_t unit)
{
    struct vb_qp *qp = NULL;
    // Receives complete on the other unit's queue.
    const struct vb_qp_opts opts = {.send_cq = send,
                                    .recv_cq = s->shared_cq[(unit + 1) % UNITS],
                                    .srq = s->srq,
                                    .send_depth = 16};
    assert_int_equal(vb_qp_create(s->pd, &opts, &qp), 0);
    return qp;
}

static void join(struct vb_qp *here, struct vb_qp *there, struct vb_nic *nic)
{
    struct vb_qp_peer p = {.qpn = vb_qp_num(there), .rights = DUO_REMOTE, .timeout = 15};
    vb_nic_gid(nic, p.gid);
    assert_int_equal(vb_qp_connect(here, &p), 0);
}

static void prepare(struct worker *w, struct side *a, struct side *b, uint32_t number)
{
    *w = (struct worker){.a = a, .b = b, .number = number};
    for (uint32_t i = 0; i < QPS; i++) {
        const struct vb_cq_opts cq = {.entries = 64, .unit = i % UNITS + 1};
        assert_int_equal(vb_cq_create(a->nic, &cq, &w->cq[i]), 0);
        w->qp[i] = make_qp(a, w->cq[i], i % UNITS);
        w->there[i] = make_qp(b, b->shared_cq[(i + number) % UNITS], (i + number) % UNITS);
        join(w->qp[i], w->there[i], b->nic);
        join(w->there[i], w->qp[i], a->nic);
    }
}

static bool request(struct worker *w, uint32_t i, enum vb_wr_opcode opcode, uint64_t wr_id)
{
    uint64_t at = (w->number * QPS + i) * (uint64_t)BYTES;
    const struct vb_sge sge = {(uintptr_t)w->a->memory + at, 8, vb_mr_key(w->a->mr)};
    struct vb_send_wr wr = {.wr_id = wr_id,
                            .sge = &sge,
                            .num_sge = 1,
                            .opcode = opcode,
                            .flags = VB_WR_SIGNALED,
                            .raddr = (uintptr_t)w->b->memory + at + WORD,
                            .rkey = vb_mr_key(w->b->mr)};
    wr.atomic.swap_add = 1;
    return vb_post_send(w->qp[i], &wr, 1) == 1 && duo_wait_ok(w->cq[i], wr_id);
}

// Adds, sends and reads on queue pairs of both units.
static void *ask_all(struct worker *w)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < QPS; i++) {
            uint64_t sum;
            DUO_CHECK(w, request(w, i, VB_WR_FADD, 3 * round));
            DUO_CHECK(w, request(w, i, VB_WR_SEND, 3 * round + 1));
            DUO_CHECK(w, request(w, i, VB_WR_READ, 3 * round + 2));
            memcpy(&sum, w->a->memory + (w->number * QPS + i) * (size_t)BYTES, sizeof sum);
            DUO_CHECK(w, sum == round + 1);
        }
    }
    return w;
}

static void *ask(void *arg)
{
    struct worker *w = arg;
    void *result = ask_all(w);
    atomic_fetch_sub(w->running, 1);
    return result;
}

// ---- the other end: two threads take what all queue pairs receive

struct taker {
    struct side *s;
    struct vb_cq *cq;
    atomic_uint *running;
    atomic_uint *taken;
    int line;
    pthread_t thread;
};

static bool post_shared(struct side *s, uint64_t i)
{
    const struct vb_sge sge = {(uintptr_t)s->memory + (THREADS * QPS + i) * BYTES, BYTES,
                               vb_mr_key(s->mr)};
    const struct vb_recv_wr recv = {.wr_id = i, .sge = &sge, .num_sge = 1};
    return vb_post_srq(s->srq, &recv, 1) == 1;
}

static void *take(void *arg)
{
    struct taker *t = arg;
    struct vb_wc wc[8];
    while (atomic_load(t->running) > 0) {
        struct vb_cq *told;
        struct vb_nic_event event;
        DUO_CHECK(t, vb_cq_arm(t->cq, false) == 0);
        (void)duo_is_readable(vb_channel_fd(t->s->channel), 1);
        (void)vb_channel_take(t->s->channel, &told); // the other taker may have been faster
        while (vb_nic_take_event(t->s->nic, &event) == 0)
            ;
        int n = vb_poll_cq(t->cq, wc, 8);
        for (int i = 0; i < n; i++) {
            DUO_CHECK(t, wc[i].status == VB_WC_OK && wc[i].opcode == VB_WC_RECV);
            DUO_CHECK(t, post_shared(t->s, wc[i].wr_id));
            atomic_fetch_add(t->taken, 1);
        }
    }
    return t;
}

// ---- while somebody changes the rules

struct meddler {
    struct side *s;
    const char *rules;
    atomic_uint *running;
    int line;
    pthread_t thread;
};

static void *meddle(void *arg)
{
    struct meddler *m = arg;
    for (unsigned i = 0; atomic_load(m->running) > 0; i++) {
        struct vb_mr *mr = NULL;
        DUO_CHECK(m, vb_nic_set_faults(m->s->nic, i % 2 ? "off" : m->rules, NULL) == 0);
        DUO_CHECK(m, vb_mr_reg(m->s->pd, m->s->memory, 8, VB_RIGHT_LOCAL_WRITE, &mr) == 0);
        DUO_CHECK(m, vb_mr_dereg(mr) == 0);
        duo_counter(m->s->nic, "faults_dropped");
        vb_nic_progress(m->s->nic);
    }
    return m;
}

// The line in which a thread failed, or 0. Nobody may leave while others still run.
static int finish(pthread_t thread, const int *line)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    return *line;
}

static void run_all(const char *port, const char *rules)
{
    struct side a = {0}, b = {0};
    struct worker w[THREADS];
    atomic_uint running = THREADS, taken = 0;
    open_side(&a, 0, port, "off");
    open_side(&b, 1, port, rules);
    for (uint32_t i = 0; i < RECEIVES; i++)
        assert_true(post_shared(&b, i));
    for (uint32_t i = 0; i < THREADS; i++)
        prepare(&w[i], &a, &b, i);
    struct taker t[UNITS];
    struct meddler m = {.s = &a, .rules = rules, .running = &running};
    for (uint32_t u = 0; u < UNITS; u++) {
        t[u] = (struct taker){&b, b.shared_cq[u], &running, &taken, 0, 0};
        assert_int_equal(pthread_create(&t[u].thread, NULL, take, &t[u]), 0);
    }
    assert_int_equal(pthread_create(&m.thread, NULL, meddle, &m), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        w[i].running = &running;
        assert_int_equal(pthread_create(&w[i].thread, NULL, ask, &w[i]), 0);
    }
    int line = finish(m.thread, &m.line);
    for (uint32_t i = 0; i < THREADS; i++)
        line |= finish(w[i].thread, &w[i].line);
    for (uint32_t u = 0; u < UNITS; u++)
        line |= finish(t[u].thread, &t[u].line);
    assert_int_equal(line, 0);
    // What was sent last may still lie in a queue.
    assert_in_range(atomic_load(&taken), 1, THREADS * QPS * ROUNDS);
    vb_nic_close(a.nic);
    vb_nic_close(b.nic);
    free(a.memory);
    free(b.memory);
}

static void test_many_threads_share_two_units(void **state)
{
    run_all(*state, "off");
}

static void test_many_threads_share_faulty_units(void **state)
{
    run_all(*state, "drop=1%;dup=1%;corrupt=1%;delay=10us@2%;reorder=1%");
}

#define ON(test, port)                                                   \
    {                                                                    \
#test " (" port ")", test, NULL, NULL, (void *)(uintptr_t)(port) \
    }
#define ON_PORTS(test) ON(test, "udp"), ON(test, "shm"), ON(test, "auto")

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_PORTS(test_many_threads_share_two_units),
        ON_PORTS(test_many_threads_share_faulty_units),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
