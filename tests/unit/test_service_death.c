// SPDX-License-Identifier: Apache-2.0
// A service whose process is killed at any moment and started again. Every life goes on where the
// last one stood: nothing that was posted is lost or done twice, nothing is told twice or with
// another's wr_id, and no entry of any queue gets lost, however often.
#include "duo.h"
#include "fresh_seed.h"
#include "hull_kit.h"

#include "../wait.h"
#include "base/prng.h"
#include "host/attach.h"
#include "skips.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 150,
    STEPPED = 32,
    STEPS = 40000, // instructions: taking over takes so many
    STEPS_OF_WORK = 6000,
    SKIPPED = 77,
    LIFE_US = 4000,
    BYTES = 4096,
    DEPTH = 16,
    SHARED = 15, // of sixteen entries one stays empty
    PAIR = 2,    // requests that are posted by one call: an addition and a message
};

// Tags.
enum {
    PD = 1,
    MEMORY,
    REGION,
    SENT,     // completion queue of what is sent
    RECEIVED, // of messages
    TAKEN,    // of both for the pair that takes shared receives
    POOL,
    ENDS, // four queue pairs: 0 to 1, and 2 to 3, which takes shared receives
};

// In the service's memory. Who dies between a call and its note is one behind.
struct ledger {
    uint64_t sum;               // what the additions are made to
    uint64_t posted, polled;    // wr_ids of the last request
    uint64_t offered, received; // and of the last receive
    uint64_t result;            // of an addition
    uint64_t sent_shared;
};

struct life {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *sent, *received, *taken;
    struct vb_srq *pool;
    struct vb_qp *qp[4];
    struct ledger *ledger;
    uint64_t was;       // where the first process had it: keys name it by that address
    uint64_t imm_taken; // of shared receives, the last; 0: unknown
    atomic_bool over;
};

extern char **environ;

// Says where, and ends the process: the parent sees that it was not killed.
#define REQUIRE(condition)                                                                \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(3);                                                                     \
        }                                                                                 \
    } while (0)

// ---- finding or making

static void furnish_memory(struct life *l)
{
    struct vb_service_memory found;
    void *memory;

    REQUIRE(vb_service_tag(l->nic, PD) == 0);
    if (vb_service_pd(l->nic, PD, 0, &l->pd) != 0)
        REQUIRE(vb_pd_alloc(l->nic, &l->pd) == 0);
    REQUIRE(vb_service_tag(l->nic, MEMORY) == 0);
    REQUIRE(vb_hull_alloc(l->nic, "ledger", BYTES, &memory) == 0);
    l->ledger = memory;
    REQUIRE(vb_service_memory(l->nic, MEMORY, 0, &found) == 0);
    l->was = found.was;
    REQUIRE(vb_service_tag(l->nic, REGION) == 0);
    if (vb_service_mr(l->nic, REGION, 0, &l->mr) != 0)
        REQUIRE(vb_mr_reg(l->pd, memory, BYTES, VB_RIGHT_ALL, &l->mr) == 0);
}

static void furnish_cq(struct life *l, uint32_t tag, struct vb_cq **cq)
{
    REQUIRE(vb_service_tag(l->nic, tag) == 0);
    if (vb_service_cq(l->nic, tag, 0, cq) != 0)
        REQUIRE(vb_cq_create(l->nic, &(struct vb_cq_opts){.entries = 4 * DEPTH}, cq) == 0);
}

static void furnish_queues(struct life *l)
{
    furnish_cq(l, SENT, &l->sent);
    furnish_cq(l, RECEIVED, &l->received);
    furnish_cq(l, TAKEN, &l->taken);
    REQUIRE(vb_service_tag(l->nic, POOL) == 0);
    if (vb_service_srq(l->nic, POOL, 0, &l->pool) != 0)
        REQUIRE(vb_srq_create(l->pd, &(struct vb_srq_opts){.depth = SHARED}, &l->pool) == 0);
    REQUIRE(vb_service_tag(l->nic, ENDS) == 0);
    for (uint32_t i = 0; i < 4; i++) {
        const struct vb_qp_opts opts = {.send_cq = i < 2 ? l->sent : l->taken,
                                        .recv_cq = i == 3 ? l->taken : l->received,
                                        .srq = i == 3 ? l->pool : NULL,
                                        .send_depth = DEPTH,
                                        .recv_depth = i == 3 ? 0 : DEPTH};
        if (vb_service_qp(l->nic, ENDS, i, &l->qp[i]) != 0)
            REQUIRE(vb_qp_create(l->pd, &opts, &l->qp[i]) == 0);
    }
}

// Connecting may have stopped halfway, on either side.
static void join(struct life *l)
{
    struct vb_qp_peer peer = {.rights = DUO_REMOTE, .mtu = 1024};
    enum vb_qp_phase phase;

    vb_nic_gid(l->nic, peer.gid);
    for (uint32_t i = 0; i < 4; i++) {
        REQUIRE(vb_qp_phase(l->qp[i], &phase) == 0);
        REQUIRE(phase != VB_QP_ERR);
        if (phase == VB_QP_RTS)
            continue;
        if (phase != VB_QP_RESET)
            REQUIRE(vb_qp_change(l->qp[i], &(struct vb_qp_change){.to = VB_QP_RESET}) == 0);
        peer.qpn = vb_qp_num(l->qp[i ^ 1]);
        REQUIRE(vb_qp_connect(l->qp[i], &peer) == 0);
    }
}

// ---- where the last one stood

// The first and the last of what is under way, which must be one after the other. False: nothing.
static bool pending(const struct vb_qp *qp, bool receive, uint64_t *first, uint64_t *last)
{
    uint64_t wr_id;
    uint32_t count = 0;

    for (; vb_service_pending(qp, receive, count, &wr_id) == 0; count++) {
        REQUIRE(count == 0 || wr_id == *last + 1);
        if (count == 0)
            *first = wr_id;
        *last = wr_id;
    }
    return count > 0;
}

// A call and its note: the note is right, or the call was the last thing that was done.
static void settle(const struct vb_qp *qp, bool receive, uint64_t step, uint64_t *posted,
                   uint64_t *polled)
{
    uint64_t first, last;

    if (!pending(qp, receive, &first, &last)) {
        REQUIRE(*polled + 1 >= *posted && *polled <= *posted + step);
        if (*polled > *posted)
            *posted += step; // another thread has polled them before this was noted
        *polled = *posted;
        return;
    }
    REQUIRE(last == *posted || last == *posted + step);
    REQUIRE(first == *polled + 1 || first == *polled + 2);
    *posted = last;
    *polled = first - 1;
}

static void begin(struct life *l, const char *path)
{
    const struct vb_nic_opts opts = {.hull = path, .service = "ledger"};

    *l = (struct life){0};
    REQUIRE(vb_nic_open(&opts, &l->nic) == 0);
    furnish_memory(l);
    furnish_queues(l);
    join(l);
    settle(l->qp[0], false, PAIR, &l->ledger->posted, &l->ledger->polled);
    settle(l->qp[1], true, 1, &l->ledger->offered, &l->ledger->received);
}

// ---- living

static void offer(struct life *l)
{
    struct ledger *g = l->ledger;
    struct vb_recv_wr wr = {.wr_id = g->offered + 1};

    while (vb_post_recv(l->qp[1], &wr, 1) == 1)
        wr.wr_id = ++g->offered + 1;
    while (vb_post_srq(l->pool, &(struct vb_recv_wr){.wr_id = 7}, 1) == 1)
        ;
}

// An addition and a message, both or none.
static void post(struct life *l)
{
    struct ledger *g = l->ledger;
    const struct vb_sge sge = {l->was + offsetof(struct ledger, result), 8, vb_mr_key(l->mr)};
    const struct vb_send_wr wr[PAIR] = {{.wr_id = g->posted + 1,
                                         .opcode = VB_WR_FADD,
                                         .flags = VB_WR_SIGNALED,
                                         .sge = &sge,
                                         .num_sge = 1,
                                         .raddr = l->was + offsetof(struct ledger, sum),
                                         .rkey = vb_mr_key(l->mr),
                                         .atomic.swap_add = 1},
                                        {.wr_id = g->posted + 2,
                                         .opcode = VB_WR_SEND_IMM,
                                         .flags = VB_WR_SIGNALED,
                                         .imm = (uint32_t)(g->posted / PAIR + 1)}};
    const struct vb_send_wr shared = {
        .opcode = VB_WR_SEND_IMM, .flags = VB_WR_SIGNALED, .imm = (uint32_t)(g->sent_shared + 1)};

    if (vb_post_send_all(l->qp[0], wr, PAIR) == 0)
        g->posted += PAIR;
    if (vb_post_send(l->qp[2], &shared, 1) == 1)
        g->sent_shared++; // who dies here sends the number again
}

static void poll_sent(struct life *l)
{
    struct vb_wc wc;

    while (vb_poll_cq(l->sent, &wc, 1) == 1) {
        REQUIRE(wc.status == VB_WC_OK);
        REQUIRE(wc.wr_id == l->ledger->polled + 1);
        l->ledger->polled++;
    }
}

static void poll_received(struct life *l)
{
    struct vb_wc wc;

    while (vb_poll_cq(l->received, &wc, 1) == 1) {
        REQUIRE(wc.status == VB_WC_OK);
        REQUIRE(wc.wr_id == l->ledger->received + 1);
        REQUIRE(wc.imm == (uint32_t)wc.wr_id); // each message takes one receive
        l->ledger->received++;
    }
    while (vb_poll_cq(l->taken, &wc, 1) == 1) {
        REQUIRE(wc.status == VB_WC_OK);
        if (wc.opcode == VB_WC_SEND)
            continue;
        REQUIRE(wc.wr_id == 7);
        REQUIRE(!l->imm_taken || wc.imm == l->imm_taken + 1 || wc.imm == l->imm_taken);
        l->imm_taken = wc.imm;
    }
}

static void turn(struct life *l)
{
    offer(l);
    post(l);
    poll_sent(l);
    poll_received(l);
}

// One thread posts, another one polls: what is free is used again at once.
static void *poll_for_ever(void *arg)
{
    struct life *l = arg;

    while (!atomic_load(&l->over)) {
        poll_sent(l);
        poll_received(l);
    }
    return NULL;
}

static void work_in_two(struct life *l)
{
    pthread_t thread;

    REQUIRE(pthread_create(&thread, NULL, poll_for_ever, l) == 0);
    for (uint32_t i = 0; i < 3000; i++) {
        offer(l);
        post(l);
    }
    atomic_store(&l->over, true);
    pthread_join(thread, NULL);
}

static _Noreturn void live(const char *path, bool in_two)
{
    for (;;) {
        struct life l;
        begin(&l, path);
        for (uint32_t i = 0; i < 300 && !in_two; i++)
            turn(&l);
        if (in_two)
            work_in_two(&l);
        vb_nic_close(l.nic);
    }
}

// The same by instructions, which the parent counts: from the beginning, or from work on.
static _Noreturn void live_stepwise(const char *path, bool at_work)
{
    struct life l;

    if (at_work)
        begin(&l, path);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(SKIPPED);
    raise(SIGSTOP);
    if (!at_work)
        begin(&l, path);
    for (;;)
        turn(&l);
}

// ---- the judge

// All that was posted has been done once, and every receive is in the queue again.
static void judge(struct life *l)
{
    struct vb_srq_progress pool;
    uint64_t wr_id;
    struct ledger *g = l->ledger;

    while (g->polled < g->posted || g->received < g->posted / PAIR ||
           vb_service_pending(l->qp[2], false, 0, &wr_id) == 0) {
        offer(l);
        poll_sent(l);
        poll_received(l);
    }
    assert_int_equal(g->sum, g->posted / PAIR);
    poll_received(l); // what came before the last acknowledgement
    offer(l);
    assert_int_equal(vb_attach_srq_progress(l->nic->attach, vb_srq_num(l->pool), &pool), 0);
    assert_int_equal(l->pool->driver.posted - pool.taken, SHARED);
    assert_int_equal(g->offered - g->received, DEPTH);
}

static pid_t start(const struct vb_hull *hull, const char *how)
{
    char self[] = "/proc/self/exe", path[sizeof hull->path], word[8];
    char *words[] = {self, path, word, NULL};
    pid_t pid;

    snprintf(word, sizeof word, "%s", how);
    memcpy(path, hull->path, sizeof path);
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
    return pid;
}

static void await_client(struct vb_hull *hull)
{
    struct vb_hull_counts counts;

    WAIT_UNTIL((vb_hull_count(hull, &counts), counts.clients > 0));
}

static void kill_one(struct vb_hull *hull, struct vb_prng *prng, uint64_t life_us, bool early,
                     bool in_two)
{
    pid_t pid = start(hull, in_two ? "two" : "one");
    int status;

    if (!early)
        await_client(hull);
    uint64_t until = duo_now_ns() + vb_prng_below(prng, life_us * 1000);
    while (duo_now_ns() < until)
        ;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status)); // and has not failed by itself
}

struct belongings {
    struct vb_hull_counts counts;
    unsigned descriptors, mappings;
};

// What the hull has when it has heard that nobody is attached.
static struct belongings look(struct vb_hull *hull)
{
    struct belongings b = {0};

    WAIT_UNTIL((vb_hull_count(hull, &b.counts), b.counts.detached == 1 && b.counts.clients == 0));
    vb_hull_count(hull, &b.counts); // memory has gone back
    b.descriptors = hull_kit_descriptors();
    b.mappings = hull_kit_mappings();
    return b;
}

// Some descriptors are closed by another thread, a little later: so it was with the first, too.
static void expect_same(struct vb_hull *hull, const struct belongings *first)
{
    struct belongings last;

    WAIT_UNTIL((last = look(hull)).descriptors <= first->descriptors);
    assert_memory_equal(&first->counts, &last.counts, sizeof last.counts);
    assert_int_equal(last.mappings, first->mappings);
}

// Over udp: ports that meet in memory connect when they come to it, and descriptors are counted.
static void test_killed_and_started_again(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_prng prng = {.state = fresh_seed()};
    struct life l;

    (void)state;
    begin(&l, hull->path);
    turn(&l);
    vb_nic_close(l.nic);
    struct belongings first = look(hull);
    uint64_t posted = 0, life_us = LIFE_US;
    for (uint32_t round = 0; round < ROUNDS || posted <= ROUNDS; round++) {
        kill_one(hull, &prng, life_us, round % 4 == 0, round % 2);
        if (round % 16)
            continue;
        begin(&l, hull->path); // at once: the hull may not have heard of the death yet
        judge(&l);
        if (l.ledger->posted - posted < 16) // they have not come to work: a slow machine
            life_us *= 2;
        posted = l.ledger->posted;
        vb_nic_close(l.nic);
        assert_true(life_us < LIFE_US << 8);
    }
    begin(&l, hull->path);
    judge(&l);
    vb_nic_close(l.nic);
    expect_same(hull, &first);
    vb_hull_close(hull);
}

// At a certain instruction of its own. False: it cannot be done here.
static bool kill_at(struct vb_hull *hull, bool at_work, uint32_t steps)
{
    pid_t pid = start(hull, at_work ? "work" : "begin");
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        return false;
    for (uint32_t i = 0; i < steps; i++) {
        assert_true(WIFSTOPPED(status));
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return true;
}

static void test_killed_at_any_instruction(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_prng prng = {.state = fresh_seed()};
    struct life l;
    bool can = true;

    (void)state;
    begin(&l, hull->path);
    turn(&l);
    vb_nic_close(l.nic);
    for (uint32_t round = 0; can && round < STEPPED; round++) {
        bool at_work = round % 4;
        can = kill_at(hull, at_work, vb_prng_below(&prng, at_work ? STEPS_OF_WORK : STEPS));
        begin(&l, hull->path);
        judge(&l);
        vb_nic_close(l.nic);
    }
    vb_hull_close(hull);
    if (!can)
        SKIP("processes may not be traced here");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_and_started_again),
        cmocka_unit_test(test_killed_at_any_instruction),
    };
    if (argc > 2)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // with a test that fails
    if (argc > 2 && (strcmp(argv[2], "one") == 0 || strcmp(argv[2], "two") == 0))
        live(argv[1], argv[2][0] == 't');
    if (argc > 2)
        live_stepwise(argv[1], strcmp(argv[2], "work") == 0);
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
