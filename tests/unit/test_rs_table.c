// SPDX-License-Identifier: Apache-2.0
// librspreload's table of descriptors: an rsocket is closed once, when no descriptor and no call
// has it any more.
#include "rspreload/preload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FD = 5,
    COPY = 2000, // on another page
    RS = 7,
    ROUNDS = 20000,
};

static _Atomic unsigned closed[ROUNDS]; // by rsocket

int rclose(int rs)
{
    atomic_fetch_add(&closed[rs], 1);
    errno = EIO;
    return -1;
}

static int set_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        closed[i] = 0;
    (void)vb_rp_settings(); // reads them, and watches fork()
    return 0;
}

static void test_ordinary_descriptors(void **state)
{
    const int fds[] = {-1, 0, FD, COPY, 1 << 20, INT32_MAX};

    (void)state;
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++) {
        assert_false(vb_rp_has(fds[i]));
        assert_null(vb_rp_get(fds[i]));
        assert_null(vb_rp_begin(fds[i]));
        vb_rp_remove(fds[i]);
    }
    assert_false(vb_rp_add(-1, RS, VB_RP_RSOCKET));
    assert_false(vb_rp_add(1 << 20, RS, VB_RP_RSOCKET));
    assert_int_equal(closed[RS], 0);
}

static void test_a_call_outlives_its_descriptor(void **state)
{
    (void)state;
    assert_true(vb_rp_add(FD, RS, VB_RP_RSOCKET));
    struct vb_rp_entry *entry = vb_rp_begin(FD);
    assert_non_null(entry);
    assert_int_equal(entry->rs, RS);
    vb_rp_remove(FD);
    assert_false(vb_rp_has(FD));
    assert_int_equal(closed[RS], 0);
    errno = ENOENT;
    vb_rp_end(entry);
    assert_int_equal(closed[RS], 1);
    assert_int_equal(errno, ENOENT);
    // The number may be another's meanwhile.
    assert_true(vb_rp_add(FD, RS + 1, VB_RP_RSOCKET));
    entry = vb_rp_get(FD);
    vb_rp_remove(FD);
    assert_true(vb_rp_add(FD, RS + 2, VB_RP_RSOCKET));
    vb_rp_put(entry);
    assert_int_equal(closed[RS + 1], 1);
    assert_int_equal(closed[RS + 2], 0);
    vb_rp_remove(FD);
    assert_int_equal(closed[RS + 2], 1);
}

static void test_copies(void **state)
{
    (void)state;
    assert_true(vb_rp_add(FD, RS, VB_RP_RSOCKET));
    struct vb_rp_entry *entry = vb_rp_get(FD);
    assert_true(vb_rp_share(COPY, entry));
    vb_rp_put(entry);
    vb_rp_remove(FD);
    assert_int_equal(closed[RS], 0);
    assert_true(vb_rp_has(COPY));
    vb_rp_remove(COPY);
    assert_int_equal(closed[RS], 1);
}

static void test_calls_of_our_libraries(void **state)
{
    (void)state;
    assert_true(vb_rp_add(FD, RS, VB_RP_RSOCKET));
    vb_rp_enter();
    assert_false(vb_rp_has(FD));
    assert_null(vb_rp_get(FD));
    vb_rp_leave();
    assert_true(vb_rp_has(FD));
    vb_rp_remove(FD);
}

// ---- moving from TCP to an rsocket

static void *move_too(void *arg)
{
    enum vb_rp_mode from;
    bool due = vb_rp_move_begin(arg, &from); // waits
    return (void *)(uintptr_t)(due ? 100 : from);
}

static void test_one_thread_moves(void **state)
{
    enum vb_rp_mode from;
    pthread_t other;
    void *result;

    (void)state;
    assert_true(vb_rp_add(FD, -1, VB_RP_FORK));
    struct vb_rp_entry *entry = vb_rp_get(FD);
    assert_false(vb_rp_move_begin(entry, &from)); // it is not connected
    assert_int_equal(from, VB_RP_FORK);
    vb_rp_advance(entry, VB_RP_FORK_LISTENING, VB_RP_PLAIN); // it is not in that mode
    vb_rp_advance(entry, VB_RP_FORK, VB_RP_FORK_ACTIVE);
    assert_true(vb_rp_move_begin(entry, &from));
    assert_int_equal(from, VB_RP_FORK_ACTIVE);
    assert_null(vb_rp_begin(FD));
    assert_int_equal(pthread_create(&other, NULL, move_too, entry), 0);
    vb_rp_move_end(entry, RS);
    assert_int_equal(pthread_join(other, &result), 0);
    assert_int_equal((uintptr_t)result, VB_RP_RSOCKET);
    struct vb_rp_entry *same = vb_rp_begin(FD);
    assert_ptr_equal(same, entry);
    vb_rp_end(same);
    vb_rp_put(entry);
    vb_rp_remove(FD);
    assert_int_equal(closed[RS], 1);
}

static void test_no_rsocket_in_the_end(void **state)
{
    enum vb_rp_mode from;

    (void)state;
    assert_true(vb_rp_add(FD, -1, VB_RP_FORK_PASSIVE));
    struct vb_rp_entry *entry = vb_rp_get(FD);
    assert_true(vb_rp_move_begin(entry, &from));
    vb_rp_move_end(entry, -1);
    assert_false(vb_rp_move_begin(entry, &from));
    assert_int_equal(from, VB_RP_PLAIN);
    assert_null(vb_rp_get_rsocket(FD));
    vb_rp_put(entry);
    vb_rp_remove(FD);
}

// ---- processes and threads

// The parent's connection goes on when the child closes its descriptor.
static void test_a_child(void **state)
{
    enum vb_rp_mode from;
    int status;

    (void)state;
    assert_true(vb_rp_add(FD, RS, VB_RP_RSOCKET));
    assert_true(vb_rp_add(COPY, -1, VB_RP_FORK_ACTIVE));
    struct vb_rp_entry *moving = vb_rp_get(COPY);
    assert_true(vb_rp_move_begin(moving, &from));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        vb_rp_remove(FD);
        bool waits = vb_rp_move_begin(moving, &from); // nobody is there to end it
        _exit(closed[RS] || waits || from != VB_RP_PLAIN);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    vb_rp_move_end(moving, -1);
    vb_rp_put(moving);
    vb_rp_remove(COPY);
    vb_rp_remove(FD);
    assert_int_equal(closed[RS], 1);
}

static atomic_bool over;

static void *use(void *arg)
{
    unsigned *misused = arg;

    while (!atomic_load(&over)) {
        struct vb_rp_entry *entry = vb_rp_begin(FD);
        if (!entry) {
            sched_yield();
            continue;
        }
        *misused += closed[entry->rs] != 0;
        sched_yield();
        *misused += closed[entry->rs] != 0;
        vb_rp_end(entry);
    }
    return NULL;
}

static void test_users_and_closers(void **state)
{
    unsigned misused = 0;
    pthread_t user;

    (void)state;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&user, NULL, use, &misused), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_true(vb_rp_add(FD, i, VB_RP_RSOCKET));
        if (i % 8 == 0)
            sched_yield();
        vb_rp_remove(FD);
    }
    atomic_store(&over, true);
    assert_int_equal(pthread_join(user, NULL), 0);
    assert_int_equal(misused, 0);
    for (int i = 0; i < ROUNDS; i++)
        assert_int_equal(closed[i], 1);
}

#define T(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_ordinary_descriptors),
        T(test_a_call_outlives_its_descriptor),
        T(test_copies),
        T(test_calls_of_our_libraries),
        T(test_one_thread_moves),
        T(test_no_rsocket_in_the_end),
        T(test_a_child),
        T(test_users_and_closers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
