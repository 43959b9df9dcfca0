// SPDX-License-Identifier: Apache-2.0
// Memory on its way back to the system is its tenant's still: nobody has more than he may by
// letting go faster than the system takes.
#include "../wait.h"
#include "duo.h"
#include "hull_kit.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MB (UINT64_C(1) << 20)

// As if its thread were slow: nothing goes back.
static void stop(struct vb_hull *hull)
{
    pthread_mutex_lock(&hull->reaper.lock);
    assert_false(hull->reaper.running);
    hull->reaper.running = true;
    pthread_mutex_unlock(&hull->reaper.lock);
}

// From the next one on it does.
static void go_on(struct vb_hull *hull)
{
    pthread_mutex_lock(&hull->reaper.lock);
    hull->reaper.running = false;
    pthread_mutex_unlock(&hull->reaper.lock);
}

static int greet(const struct vb_hull *hull)
{
    struct vb_hull_request hello = hull_kit_hello();
    struct vb_hull_reply reply;
    int socket = hull_kit_connect(hull);

    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    return socket;
}

static int create(int socket, uint64_t bytes, const char *name, struct vb_hull_reply *reply)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = bytes}};

    memcpy(request.memory.name, name, strlen(name));
    return hull_kit_ask(socket, &request, reply);
}

static void drop(int socket, uint32_t number)
{
    struct vb_hull_request request = {.op = VB_HULL_MEMORY_DROP, .number = number};
    struct vb_hull_reply reply;

    assert_int_equal(hull_kit_ask(socket, &request, &reply), 0);
}

static void expect_soon(int socket, uint64_t bytes, const char *name)
{
    struct vb_hull_reply reply;
    int err;

    WAIT_UNTIL((err = create(socket, bytes, name, &reply)) != -EAGAIN);
    assert_int_equal(err, 0);
}

static void test_bytes_are_charged_until_they_are_gone(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "shm", "[tenant *]\nbytes = 8M\n");
    struct vb_hull_reply big, small, reply;
    int socket = greet(hull);

    (void)state;
    assert_int_equal(create(socket, 4 * MB, "", &big), 0);
    assert_int_equal(create(socket, 2 * MB, "", &small), 0);
    stop(hull);
    drop(socket, big.number);
    assert_int_equal(create(socket, 4 * MB, "", &reply), -EAGAIN); // later
    assert_non_null(strstr(reply.text, "go back"));
    assert_int_equal(create(socket, 8 * MB, "", &reply), -EDQUOT); // never
    assert_int_equal(create(socket, 2 * MB, "", &reply), 0);
    drop(socket, reply.number);
    go_on(hull);
    drop(socket, small.number);
    expect_soon(socket, 8 * MB, "");
    close(socket);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

// A name and its descriptor, too; and a user who has nothing else is remembered until then.
static void test_memories_are_charged_until_they_are_gone(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "shm", "[tenant *]\nmemories = 3\n");
    struct vb_hull_reply one, other, reply;
    int socket = greet(hull);

    (void)state;
    assert_int_equal(create(socket, 2 * MB, "one", &one), 0); // two of them: it has a name
    assert_int_equal(create(socket, 2 * MB, "", &other), 0);
    assert_int_equal(create(socket, 4096, "", &reply), -EDQUOT);
    stop(hull);
    drop(socket, one.number);
    assert_int_equal(create(socket, 4096, "", &reply), -EAGAIN);
    go_on(hull);
    close(socket); // with the other
    hull_kit_wait(hull, 0);
    socket = greet(hull);
    expect_soon(socket, 4096, "one");
    expect_soon(socket, 4096, "");
    assert_int_equal(create(socket, 4096, "", &reply), -EDQUOT);
    close(socket);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull); // with a name
}

static void test_a_hull_ends_with_memory_on_its_way(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "shm", NULL);
    struct vb_hull_reply reply;
    int socket = greet(hull);

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(create(socket, 16 * MB, i % 2 ? "x" : "", &reply), 0);
        drop(socket, reply.number);
    }
    assert_int_equal(create(socket, 16 * MB, "stays", &reply), 0);
    assert_int_equal(create(socket, 16 * MB, "", &reply), 0);
    vb_hull_close(hull);
    close(socket);
}

// ---- users that are gone

static bool is_running(struct vb_hull *hull)
{
    pthread_mutex_lock(&hull->reaper.lock);
    bool running = hull->reaper.running;
    pthread_mutex_unlock(&hull->reaper.lock);
    return running;
}

static unsigned count_tenants(const struct vb_hull *hull)
{
    unsigned count = 0;

    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next)
        count++;
    return count;
}

static void ask_still(struct vb_hull *hull, int socket, const struct vb_hull_request *request,
                      struct vb_hull_reply *reply)
{
    int fds[VB_HULL_FDS];

    assert_int_equal(vb_contract_send(socket, request, sizeof *request, 0, NULL, 0), 0);
    vb_hull_turn(hull); // which may let it in first
    vb_hull_turn(hull);
    assert_int_equal(vb_contract_receive(socket, reply, sizeof *reply, MSG_DONTWAIT, fds),
                     sizeof *reply);
    vb_contract_close(fds);
    assert_int_equal(reply->error, 0);
}

// The last memory of a user who is gone has gone back, and the first to find out is another user's
// request, which is executed while the NIC is at rest.
static void test_a_user_ends_while_another_one_asks(void **state)
{
    struct vb_hull *hull = hull_kit_open_still(0);
    const struct vb_hull_request hello = hull_kit_hello();
    const struct vb_hull_request wanted = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = MB}};
    const uid_t gone = getuid() + 1;
    struct vb_hull_reply reply;
    void *map;
    int fd = vb_hull_memory_make(2 * MB, &map), socket = hull_kit_connect(hull);

    (void)state;
    assert_true(fd >= 0);
    munmap(map, 2 * MB);
    assert_null(vb_hull_memory_restore(hull, gone, "last", fd));
    ask_still(hull, socket, &hello, &reply);
    assert_int_equal(count_tenants(hull), 2);
    vb_hull_memory_forget(hull, vb_hull_memory_named(hull, gone, "last"));
    WAIT_UNTIL(!is_running(hull));
    ask_still(hull, socket, &wanted, &reply);
    assert_int_equal(count_tenants(hull), 1);
    close(socket);
    vb_hull_turn(hull);
    assert_int_equal(count_tenants(hull), 0);
    vb_hull_close(hull);
}

// ---- applications

static atomic_uint naps; // of the main thread

int nanosleep(const struct timespec *pause, struct timespec *left) // the library's sleeps, counted
{
    if (gettid() == getpid())
        atomic_fetch_add(&naps, 1);
    return (int)syscall(SYS_nanosleep, pause, left);
}

struct freer {
    struct vb_hull *hull;
    struct vb_nic *nic;
    void *memory;
    unsigned naps_before;
};

static void *free_later(void *arg)
{
    struct freer *f = arg;

    WAIT_UNTIL(atomic_load(&naps) > f->naps_before); // vb_hull_alloc() was refused, and asks again
    go_on(f->hull);
    vb_hull_free(f->nic, f->memory);
    return NULL;
}

// An application that lets go of all that it may have and takes it again gets it.
static void test_an_application_waits_for_what_it_let_go_of(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "shm", "[tenant *]\nbytes = 8M\n");
    struct vb_nic *nic = hull_kit_attach(hull);
    struct freer freer = {.hull = hull, .nic = nic};
    void *first, *again;
    pthread_t thread;

    (void)state;
    assert_int_equal(vb_hull_alloc(nic, NULL, 6 * MB, &first), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, 2 * MB, &freer.memory), 0);
    stop(hull);
    assert_int_equal(vb_hull_free(nic, first), 0);
    freer.naps_before = atomic_load(&naps);
    assert_int_equal(pthread_create(&thread, NULL, free_later, &freer), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, 6 * MB, &again), 0);
    pthread_join(thread, NULL);
    assert_int_equal(vb_hull_alloc(nic, NULL, 6 * MB, &first), -EDQUOT);
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_charged_until_they_are_gone),
        cmocka_unit_test(test_memories_are_charged_until_they_are_gone),
        cmocka_unit_test(test_a_hull_ends_with_memory_on_its_way),
        cmocka_unit_test(test_a_user_ends_while_another_one_asks),
        cmocka_unit_test(test_an_application_waits_for_what_it_let_go_of),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
