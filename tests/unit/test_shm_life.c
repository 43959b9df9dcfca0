// SPDX-License-Identifier: Apache-2.0
// The shm port between processes and threads: pings, streams, falling asleep, death and return.
#include "../wait.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/shm.h"
#include "shm_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    NAP_ROUNDS = 5000,
    RACE_ROUNDS = 20000,
};

static void spin(uint64_t turns)
{
    for (; turns > 0; turns--)
        atomic_signal_fence(memory_order_seq_cst);
}

// Receives, asleep while there is nothing.
static uint32_t await_asleep(struct vb_port *port, struct vb_rx_frame *frames)
{
    for (;;) {
        uint32_t n = port->ops->receive(port, frames);
        if (n > 0)
            return n;
        int fd = port->ops->sleep(port);
        if (fd >= 0)
            (void)kit_is_readable(fd, KIT_FOREVER);
    }
}

// Sends each frame back to `to`, until one of 16 bytes comes. With `naps` it sleeps between them.
static void echo(struct vb_port *port, const struct vb_ip *to, bool naps)
{
    struct vb_path path = kit_path(port, to);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    for (bool over = false; !over;) {
        uint32_t n = naps ? await_asleep(port, frames) : kit_await(port, frames);
        over = n == 0;
        for (uint32_t i = 0; i < n; i++) {
            over |= frames[i].len == 16;
            struct vb_tx_frame *f = &q->frame[0];
            *f = (struct vb_tx_frame){.path = &path, .len = frames[i].len};
            memcpy(q->arena, frames[i].data, frames[i].len);
            q->count = 1;
            kit_send_all(port, q);
        }
    }
    kit_close(port);
    free(frames);
    kit_free_queue(q);
}

// Forks a process that waits for a byte on *go, then runs an echo port at 127.0.0.2.
static pid_t fork_echo(const char *dir, bool naps, int *go)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        struct vb_ip to = kit_ip(1);
        close(ends[1]);
        if (read(ends[0], &byte, 1) == 1)
            echo(kit_open_shm(dir, "127.0.0.2", 1 << 17), &to, naps);
        _exit(0);
    }
    close(ends[0]);
    *go = ends[1];
    return pid;
}

static void start(int go)
{
    assert_int_equal(write(go, "", 1), 1);
    close(go);
}

static void await_reachable(struct vb_port *port, struct vb_path *path)
{
    WAIT_UNTIL(vb_shm_reaches(port, path));
}

static void run_pings(const char *dir, bool naps, uint32_t rounds)
{
    int go;
    pid_t pid = fork_echo(dir, naps, &go);
    struct vb_port *a = kit_open_shm(dir, "127.0.0.1", 1 << 17);
    struct vb_ip to = kit_ip(2);
    struct vb_path path = kit_path(a, &to);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    struct vb_prng prng = {.state = fresh_seed()};
    start(go);
    await_reachable(a, &path);
    for (uint32_t i = 0; i <= rounds; i++) {
        uint32_t len = i == rounds ? 16 : (uint32_t)vb_prng_range(&prng, 17, 300);
        spin(vb_prng_below(&prng, naps ? 1000 : 1)); // the other one is met awake, falling asleep
                                                     // and asleep
        kit_send(a, q, &path, len, i);
        uint32_t n = naps && i % 8 == 0 ? await_asleep(a, frames) : kit_await(a, frames);
        assert_int_equal(n, 1);
        kit_assert_frame(&frames[0], &to, len, i);
    }
    assert_int_equal(a->stats.tx_errors, 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    kit_close(a);
    free(frames);
    kit_free_queue(q);
}

static void test_two_processes_ping(void **state)
{
    run_pings(*state, false, 500);
}

static void test_no_wake_up_is_lost(void **state)
{
    run_pings(*state, true, NAP_ROUNDS);
}

static void *run_echo_thread(void *arg)
{
    struct vb_ip to = kit_ip(1);
    echo(arg, &to, true);
    return NULL;
}

static void test_two_threads_stream(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.2", 0);
    struct vb_path path = kit_path(a, &b->local);
    struct vb_ip from = b->local;
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_echo_thread, b), 0);
    uint32_t got = 0;
    for (uint32_t sent = 0; got < 4000;) {
        for (; sent < 4000 && sent < got + 64; sent++)
            assert_true(kit_append(q, &path, 20 + sent % 200, sent));
        kit_send_all(a, q);
        uint32_t n = kit_await(a, frames);
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++, got++)
            kit_assert_frame(&frames[i], &from, 20 + got % 200, got);
    }
    kit_send(a, q, &path, 16, 0);
    pthread_join(thread, NULL);
    kit_close(a);
    free(frames);
    kit_free_queue(q);
}

// One thread falls asleep while the other sends; they meet at each round's two gates.
struct race {
    struct vb_port *port;
    struct vb_path *path;
    struct vb_txq *q;
    _Atomic uint32_t arrived;
    uint32_t rounds;
};

static void meet(struct race *r, uint32_t gate)
{
    atomic_fetch_add(&r->arrived, 1);
    for (uint32_t spins = 1; atomic_load(&r->arrived) < 2 * gate; spins++)
        if (spins % 4096 == 0)
            sched_yield();
}

static void *send_at_the_gate(void *arg)
{
    struct race *r = arg;
    for (uint32_t i = 0; i < r->rounds; i++) {
        kit_reset(r->q);
        kit_append(r->q, r->path, 20, i);
        meet(r, 2 * i + 1);
        spin(500);
        r->port->ops->send(r->port, r->q);
        meet(r, 2 * i + 2);
    }
    return NULL;
}

// Either the one that falls asleep sees the frame or the sender sees that it sleeps.
static void test_falling_asleep_meets_a_frame(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_port *b = kit_open_shm(*state, "127.0.0.2", 0);
    struct vb_path path = kit_path(a, &b->local);
    struct race race = {.port = a, .path = &path, .q = kit_make_queue(), .rounds = RACE_ROUNDS};
    struct vb_rx_frame *frames = kit_make_frames();
    struct vb_prng prng = {.state = fresh_seed()};
    uint32_t delay = 500;
    kit_send(a, race.q, &path, 16, 0);
    assert_int_equal(kit_await(b, frames), 1);
    assert_int_equal(b->ops->receive(b, frames), 0);
    pthread_t sender;
    assert_int_equal(pthread_create(&sender, NULL, send_at_the_gate, &race), 0);
    for (uint32_t i = 0; i < race.rounds; i++) {
        meet(&race, 2 * i + 1);
        spin(delay + vb_prng_below(&prng, 32));
        int fd = b->ops->sleep(b);
        meet(&race, 2 * i + 2);
        assert_true(fd == -EAGAIN || kit_is_readable(fd, 0));
        delay += fd >= 0 ? 8 : delay > 8 ? -8u : 0; // so that both are equally often first
        assert_int_equal(b->ops->receive(b, frames), 1);
        kit_assert_frame(&frames[0], &a->local, 20, i);
        assert_int_equal(b->ops->receive(b, frames), 0);
    }
    pthread_join(sender, NULL);
    kit_close(a);
    kit_close(b);
    free(frames);
    kit_free_queue(race.q);
}

// A process that is killed while frames fly, and another one that takes its address.
static void test_a_killed_peer_is_found_again(void **state)
{
    int go[2];
    pid_t pid[2] = {fork_echo(*state, false, &go[0]), fork_echo(*state, false, &go[1])};
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 1 << 17);
    struct vb_ip to = kit_ip(2);
    struct vb_path path = kit_path(a, &to);
    struct vb_txq *q = kit_make_queue();
    struct vb_rx_frame *frames = kit_make_frames();
    for (int life = 0; life < 2; life++) {
        start(go[life]);
        await_reachable(a, &path);
        kit_send(a, q, &path, 100, 1);
        assert_true(kit_await(a, frames) >= 1);
        for (uint32_t i = 0; i < 400; i++) {
            assert_true(kit_append(q, &path, 1000, i));
            if (i == 200)
                kill(pid[life], SIGKILL);
            kit_send_all(a, q);
            (void)a->ops->receive(a, frames);
        }
        assert_int_equal(waitpid(pid[life], NULL, 0), pid[life]);
        while (kit_receive_idle(a, frames) > 0) // what it sent while it lived
            assert_true(vb_ip_equal(&frames[0].src, &to));
        (void)kit_receive_idle(a, frames);
        assert_false(vb_shm_reaches(a, &path));
    }
    assert_true(a->stats.tx_errors > 0);
    assert_int_equal(a->stats.rx_bad_peers, 0);
    kit_close(a);
    free(frames);
    kit_free_queue(q);
}

// What a process wrote before it ended arrives, even if nobody had looked at it until then.
static void test_last_words_are_heard(void **state)
{
    struct vb_port *a = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_rx_frame *frames = kit_make_frames();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct vb_port *b = kit_open_shm(*state, "127.0.0.2", 0);
        struct vb_path path = kit_path(b, &a->local);
        struct vb_txq *q = kit_make_queue();
        for (uint32_t i = 0; i < 100; i++)
            kit_append(q, &path, 200, i);
        kit_send_all(b, q);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    struct vb_ip src = kit_ip(2);
    uint32_t got = 0;
    for (uint32_t n; (n = kit_receive_idle(a, frames)) > 0;)
        for (uint32_t i = 0; i < n; i++, got++)
            kit_assert_frame(&frames[i], &src, 200, got);
    assert_int_equal(got, 100);
    assert_int_equal(a->stats.rx_bad_peers, 0);
    kit_close(a);
    free(frames);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_two_processes_ping),           KIT_TEST(test_no_wake_up_is_lost),
        KIT_TEST(test_two_threads_stream),           KIT_TEST(test_falling_asleep_meets_a_frame),
        KIT_TEST(test_a_killed_peer_is_found_again), KIT_TEST(test_last_words_are_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
