// SPDX-License-Identifier: Apache-2.0
// Descriptor sets of select() as a list for poll(), and back.
#include "rsocket/sets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct three {
    fd_set in, out, except;
};

static struct vb_rs_sets sets_of(struct three *t)
{
    return (struct vb_rs_sets){&t->in, &t->out, &t->except};
}

// 3: read; 5: written and read; 7: what is out of band; 9: beyond the limit.
static void fill(struct three *t)
{
    memset(t, 0, sizeof *t);
    FD_SET(3, &t->in);
    FD_SET(5, &t->in);
    FD_SET(5, &t->out);
    FD_SET(7, &t->except);
    FD_SET(9, &t->in);
}

static void test_list(void **state)
{
    struct pollfd fds[FD_SETSIZE];
    struct three t;
    struct vb_rs_sets sets = sets_of(&t);

    (void)state;
    fill(&t);
    assert_int_equal(vb_rs_sets_list(&sets, 0, fds), 0);
    assert_int_equal(vb_rs_sets_list(&sets, 9, fds), 3);
    assert_int_equal(fds[0].fd, 3);
    assert_int_equal(fds[0].events, POLLIN);
    assert_int_equal(fds[1].fd, 5);
    assert_int_equal(fds[1].events, POLLIN | POLLOUT);
    assert_int_equal(fds[2].fd, 7);
    assert_int_equal(fds[2].events, POLLPRI);
    sets = (struct vb_rs_sets){.out = &t.out};
    assert_int_equal(vb_rs_sets_list(&sets, FD_SETSIZE, fds), 1);
    assert_int_equal(fds[0].events, POLLOUT);
}

static void test_update(void **state)
{
    // By what the one that is asked for both is ready for: in the set of reads, in that of writes.
    static const struct {
        short revents;
        bool in, out;
    } cases[] = {{0, false, false},      {POLLIN, true, false},
                 {POLLOUT, false, true}, {POLLIN | POLLOUT, true, true},
                 {POLLHUP, true, false}, {POLLERR, true, true},
                 {POLLPRI, false, false}};

    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pollfd fds[FD_SETSIZE];
        struct three t;
        struct vb_rs_sets sets = sets_of(&t);
        fill(&t);
        nfds_t count = vb_rs_sets_list(&sets, 9, fds);
        fds[1].revents = cases[i].revents;
        assert_int_equal(vb_rs_sets_update(&sets, fds, count), cases[i].in + cases[i].out);
        assert_int_equal(!!FD_ISSET(5, &t.in), cases[i].in);
        assert_int_equal(!!FD_ISSET(5, &t.out), cases[i].out);
        assert_false(FD_ISSET(3, &t.in));
        assert_false(FD_ISSET(7, &t.except));
    }
}

static void test_a_wrong_descriptor(void **state)
{
    struct pollfd fds[FD_SETSIZE];
    struct three t, before;
    struct vb_rs_sets sets = sets_of(&t);

    (void)state;
    fill(&t);
    before = t;
    nfds_t count = vb_rs_sets_list(&sets, 9, fds);
    fds[0].revents = POLLIN;
    fds[2].revents = POLLNVAL;
    assert_int_equal(vb_rs_sets_update(&sets, fds, count), -EBADF);
    assert_memory_equal(&t, &before, sizeof t);
}

static void test_times(void **state)
{
    (void)state;
    assert_int_equal(vb_rs_sets_timeout_ms(NULL), -1);
    assert_int_equal(vb_rs_sets_timeout_ms(&(struct timeval){0, 0}), 0);
    assert_int_equal(vb_rs_sets_timeout_ms(&(struct timeval){0, 1}), 1);
    assert_int_equal(vb_rs_sets_timeout_ms(&(struct timeval){2, 500000}), 2500);
    assert_int_equal(vb_rs_sets_timeout_ms(&(struct timeval){INT32_MAX, 0}), 2000000000);
    assert_true(vb_rs_sets_valid(FD_SETSIZE, NULL));
    assert_false(vb_rs_sets_valid(FD_SETSIZE + 1, NULL));
    assert_false(vb_rs_sets_valid(-1, NULL));
    assert_true(vb_rs_sets_valid(1, &(struct timeval){0, 0}));
    assert_false(vb_rs_sets_valid(1, &(struct timeval){-1, 0}));
    assert_false(vb_rs_sets_valid(1, &(struct timeval){0, -1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_a_wrong_descriptor),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
