// SPDX-License-Identifier: Apache-2.0
// When a NIC's helper waits awake for the next request, when it gives way to a program that polls,
// and when it sleeps: by a clock that the test moves, and by what the helper asks of the system.
#include "../wait.h"
#include "duo.h"
#include "host/host.h"
#include "own_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    WARM = 10, // requests
    REQUESTS = 50,
    EAGER_NS = 50 * 1000, // that a helper waits awake
    LOOK_NS = 1000 * 1000 // after which a program that has not polled no longer does
};

// Of the helper of end 1. It dozes on descriptors, of which one is there to wake it; it rests
// without that one, while the program polls.
static struct {
    struct vb_nic *_Atomic nic;
    atomic_uint dozes, rests;
    atomic_bool for_ever; // the last doze had no time limit
} helper;

static void note(const struct pollfd *fds, nfds_t count, bool for_ever)
{
    const struct vb_nic *nic = atomic_load(&helper.nic);
    bool wakes = false;

    if (!nic || !pthread_equal(pthread_self(), nic->helper.thread))
        return;
    for (nfds_t i = 0; i < count; i++)
        wakes = wakes || fds[i].fd == nic->helper.wake_fd;
    if (wakes)
        atomic_store(&helper.for_ever, for_ever);
    atomic_fetch_add(wakes ? &helper.dozes : &helper.rests, 1);
}

// Instead of the C library's.
int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    struct timespec left = timeout ? *timeout : (struct timespec){0};

    note(fds, count, timeout == NULL);
    return (int)syscall(SYS_ppoll, fds, count, timeout ? &left : NULL, mask, sizeof(uint64_t));
}

static void request(struct duo *d, struct vb_qp *qp, unsigned count)
{
    for (uint64_t r = 0; r < count; r++) {
        duo_post(d, qp, duo_wr(d, VB_WR_READ, r), 0, 8);
        duo_expect(d->end[0].cq, r, VB_WC_OK);
    }
}

// Both NICs, and requests until the second's helper no longer sleeps between them.
static void open_awake(struct duo *d, struct duo_state *state, struct vb_qp *qp[2])
{
    unsigned dozes;

    duo_open(d, state);
    duo_connect(d, VB_SERVICE_RC, qp);
    helper.nic = d->end[1].nic;
    do {
        dozes = atomic_load(&helper.dozes);
        request(d, qp[0], WARM);
    } while (atomic_load(&helper.dozes) != dozes);
}

static void close_awake(struct duo *d)
{
    helper.nic = NULL;
    duo_close(d);
}

static void test_requests_in_a_row_are_met_awake(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_awake(&d, *state, qp);
    unsigned dozes = atomic_load(&helper.dozes);
    own_clock_move(EAGER_NS - 1); // no longer than it waits
    request(&d, qp[0], REQUESTS);
    assert_int_equal(atomic_load(&helper.dozes), dozes);
    close_awake(&d);
}

// And where none follows it sleeps, until something wakes it.
static void test_a_helper_without_requests_sleeps(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    open_awake(&d, *state, qp);
    unsigned dozes = atomic_load(&helper.dozes);
    own_clock_move(EAGER_NS);
    WAIT_UNTIL(atomic_load(&helper.dozes) > dozes);
    request(&d, qp[0], 1);                     // it is woken,
    own_clock_move(60 * UINT64_C(1000000000)); // and where no timer is left it sleeps for good
    WAIT_UNTIL(atomic_load(&helper.nic->helper.asleep) != 0 && atomic_load(&helper.for_ever));
    close_awake(&d);
}

struct poller {
    struct vb_nic *nic;
    atomic_bool stop;
};

static void *keep_polling(void *arg)
{
    struct poller *p = arg;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed))
        vb_nic_progress(p->nic);
    return NULL;
}

// A helper that is awake because of a peer's requests leaves them to the program, and the core,
// too, once that polls; and comes back when it no longer does.
static void test_an_awake_helper_gives_way_to_a_poller(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    pthread_t thread;
    open_awake(&d, *state, qp);
    struct poller p = {.nic = d.end[1].nic};
    unsigned rests = atomic_load(&helper.rests), dozes = atomic_load(&helper.dozes);
    assert_int_equal(rests, 0); // nobody polls
    assert_int_equal(pthread_create(&thread, NULL, keep_polling, &p), 0);
    WAIT_UNTIL(atomic_load(&helper.rests) > 0);
    request(&d, qp[0], REQUESTS);
    rests = atomic_load(&helper.rests);
    WAIT_UNTIL(atomic_load(&helper.rests) > rests); // it still does nothing else
    assert_int_equal(atomic_load(&helper.dozes), dozes);
    atomic_store(&p.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rests = atomic_load(&helper.rests);
    WAIT_UNTIL(atomic_load(&helper.rests) >= rests + 2); // it has seen the program's last poll
    own_clock_move(LOOK_NS);
    request(&d, qp[0], REQUESTS);
    atomic_store(&helper.rests, 0);
    close_awake(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_requests_in_a_row_are_met_awake),
        DUO_PORTS(test_a_helper_without_requests_sleeps),
        DUO_PORTS(test_an_awake_helper_gives_way_to_a_poller),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
