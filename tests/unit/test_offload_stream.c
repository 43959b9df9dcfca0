// SPDX-License-Identifier: Apache-2.0
// The service of offloads over TCP: clients join by a connection and go with it, whatever else
// comes over others.
#include "../wait.h"
#include "chain/offload_message.h"
#include "offload_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PATIENCE_MS = DUO_PATIENCE_S * 1000,
    CONNECTIONS = 40,
};

struct office {
    struct offload_rig rig;
    int listener;
    struct sockaddr_in at;
    struct vb_offload_stream *stream;
    pthread_t thread;
    atomic_bool over;
};

static void *run(void *arg)
{
    struct office *o = arg;
    while (!atomic_load(&o->over) && vb_offload_stream_turn(o->stream, 10) == 0)
        ;
    return NULL;
}

// Clients that ask for nothing are ended when a test says so: no clock reaches that far.
static void open_office(struct office *o, struct duo_state *state)
{
    socklen_t len = sizeof o->at;

    memset(o, 0, sizeof *o);
    offload_rig_open(&o->rig, state, (struct vb_offload_service_opts){.idle_ns = UINT64_MAX / 4});
    o->listener = socket(AF_INET, SOCK_STREAM, 0);
    o->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(o->listener, (struct sockaddr *)&o->at, sizeof o->at), 0);
    assert_int_equal(listen(o->listener, CONNECTIONS), 0);
    assert_int_equal(getsockname(o->listener, (struct sockaddr *)&o->at, &len), 0);
    assert_int_equal(vb_offload_stream_open(o->rig.service, o->listener, &o->stream), 0);
    assert_int_equal(pthread_create(&o->thread, NULL, run, o), 0);
}

static void stop(struct office *o)
{
    atomic_store(&o->over, true);
    assert_int_equal(pthread_join(o->thread, NULL), 0);
}

static void start(struct office *o)
{
    atomic_store(&o->over, false);
    assert_int_equal(pthread_create(&o->thread, NULL, run, o), 0);
}

// The service is the other thread's while it runs.
static struct vb_offload_stat look(struct office *o)
{
    stop(o);
    struct vb_offload_stat stat = offload_rig_stat(&o->rig);
    start(o);
    return stat;
}

static void wait_for_clients(struct office *o, uint32_t n)
{
    WAIT_UNTIL(look(o).clients == n);
}

static void close_office(struct office *o)
{
    stop(o);
    vb_offload_stream_close(o->stream);
    assert_int_equal(offload_rig_stat(&o->rig).clients, 0);
    close(o->listener);
    offload_rig_close(&o->rig);
}

static int dial(const struct office *o)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&o->at, sizeof o->at), 0);
    return fd;
}

static int join(struct office *o, int fd, uint32_t n)
{
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT];
    struct vb_offload_place place;
    struct offload_client c = {.qp = duo_make_qp(&o->rig.d.end[0], (struct vb_qp_opts){0})};
    struct vb_offload_join request = offload_rig_join(&o->rig, &c, n, RIG_DEPTH);
    uint32_t len = vb_offload_write_join(message, &request);

    int bytes = vb_offload_call(fd, message, len, answer, PATIENCE_MS);
    assert_true(bytes > 0);
    return vb_offload_read_place(answer, (size_t)bytes, &place, error);
}

static void test_clients_go_with_their_connections(void **state)
{
    static struct office o;
    int fd[CONNECTIONS];

    open_office(&o, *state);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        fd[i] = dial(&o);
        assert_int_equal(join(&o, fd[i], i), 0);
    }
    assert_int_equal(look(&o).clients, CONNECTIONS);
    for (uint32_t i = 0; i < CONNECTIONS; i += 2)
        close(fd[i]);
    wait_for_clients(&o, CONNECTIONS / 2);
    assert_int_equal(join(&o, fd[1], 0), VB_OFFLOAD_FULL); // it has one, and keeps it
    assert_int_equal(join(&o, fd[1], 0), VB_OFFLOAD_FULL);
    assert_int_equal(look(&o).clients, CONNECTIONS / 2);
    close_office(&o); // and so do the others
    for (uint32_t i = 1; i < CONNECTIONS; i += 2)
        close(fd[i]);
}

static void test_who_leaves_can_join_again(void **state)
{
    static struct office o;
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT];
    struct vb_offload_place place;

    open_office(&o, *state);
    int fd = dial(&o);
    struct offload_client c = {.qp = duo_make_qp(&o.rig.d.end[0], (struct vb_qp_opts){0})};
    for (uint32_t round = 0; round < 3; round++) {
        struct vb_offload_join request = offload_rig_join(&o.rig, &c, 0, RIG_DEPTH);
        uint32_t len = vb_offload_write_join(message, &request);
        int bytes = vb_offload_call(fd, message, len, answer, PATIENCE_MS);
        assert_int_equal(vb_offload_read_place(answer, (size_t)bytes, &place, error), 0);
        len = vb_offload_write_leave(message, place.ticket);
        bytes = vb_offload_call(fd, message, len, answer, PATIENCE_MS);
        assert_int_equal(vb_offload_read_left(answer, (size_t)bytes, error), 0);
    }
    assert_int_equal(look(&o).left, 3);
    // Whoever was ended otherwise can, too.
    assert_int_equal(join(&o, fd, 0), 0);
    assert_int_equal(join(&o, fd, 1), VB_OFFLOAD_FULL);
    stop(&o);
    assert_int_equal(vb_offload_sweep(o.rig.service, UINT64_MAX / 2), 0);
    assert_int_equal(vb_offload_sweep(o.rig.service, UINT64_MAX), 1); // idle
    start(&o);
    assert_int_equal(join(&o, fd, 1), 0);
    close(fd);
    close_office(&o);
}

// Half a message and silence; a message in pieces; and bytes that are none, which get their
// refusal and no more.
static void test_strangers_on_the_line(void **state)
{
    static struct office o;
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT] = "";
    struct vb_offload_place place;

    open_office(&o, *state);
    int good = dial(&o), silent = dial(&o), slow = dial(&o), strange = dial(&o);
    assert_int_equal(join(&o, good, 0), 0);
    uint32_t len = vb_offload_write_leave(message, 1);
    assert_int_equal(send(silent, message, len - 1, 0), (int)len - 1);
    for (uint32_t i = 0; i + 1 < len; i++)
        assert_int_equal(send(slow, message + i, 1, 0), 1);
    int bytes = vb_offload_call(slow, message + len - 1, 1, answer, PATIENCE_MS);
    assert_int_equal(vb_offload_read_left(answer, (size_t)bytes, error), VB_OFFLOAD_UNKNOWN);
    memset(message, 'x', sizeof message);
    bytes = vb_offload_call(strange, message, VB_OFFLOAD_HEAD, answer, PATIENCE_MS);
    assert_int_equal(vb_offload_read_place(answer, (size_t)bytes, &place, error),
                     VB_OFFLOAD_MALFORMED);
    assert_int_equal(recv(strange, answer, 1, 0), 0); // it is hung up on
    assert_int_equal(look(&o).clients, 1);
    assert_int_equal(join(&o, slow, 1), 0);
    close(silent);
    close(good);
    wait_for_clients(&o, 1);
    close(slow);
    close(strange);
    close_office(&o);
}

// ---- a process of its own

// Joins through the carrier, and asks as fast as it can until it is killed.
static _Noreturn void be_victim(const char *way, int line)
{
    static struct offload_rig rig;
    static struct office o; // where it is, is all that it knows
    struct duo_end *here = &rig.d.end[0];
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT];
    struct offload_client c;

    prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves nobody behind
    if (read(line, &o.at, sizeof o.at) != sizeof o.at)
        _exit(1);
    rig.nonces = 1u << 20; // others than the test's
    here->nic = duo_open_nic(2, way);
    here->memory = calloc(1, DUO_BYTES);
    if (vb_pd_alloc(here->nic, &here->pd) != 0 ||
        vb_mr_reg(here->pd, here->memory, DUO_BYTES, DUO_RIGHTS, &here->mr) != 0)
        _exit(1);
    offload_client_make(&rig, &c, RIG_DEPTH);
    struct vb_offload_join request = offload_rig_join(&rig, &c, 0, RIG_DEPTH);
    uint32_t len = vb_offload_write_join(message, &request);
    int bytes = vb_offload_call(dial(&o), message, len, answer, PATIENCE_MS);
    if (bytes < 0 || vb_offload_read_place(answer, (size_t)bytes, &c.place, error) != 0)
        _exit(1);
    offload_client_connect(&rig, &c, &request);
    offload_client_work(&c, 10);
    if (write(line, "w", 1) != 1)
        _exit(1);
    for (;;)
        offload_client_work(&c, 100);
}

static void test_a_killed_process_leaves_nothing(void **state)
{
    static struct office o;
    struct duo_state *s = *state;
    struct offload_client good;
    int line[2], status;
    char byte;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
    pid_t victim = fork(); // before there are NICs and threads
    if (victim == 0)
        be_victim(s->way, line[1]);
    close(line[1]);
    open_office(&o, s);
    stop(&o);
    offload_client_open(&o.rig, &good, 0, RIG_DEPTH);
    start(&o);
    assert_int_equal(write(line[0], &o.at, sizeof o.at), (int)sizeof o.at);
    assert_int_equal(read(line[0], &byte, 1), 1); // it works
    assert_int_equal(look(&o).clients, 2);
    offload_client_work(&good, 20);
    kill(victim, SIGKILL);
    assert_int_equal(waitpid(victim, &status, 0), victim);
    assert_true(WIFSIGNALED(status));
    offload_client_work(&good, 20);
    wait_for_clients(&o, 1);
    offload_client_work(&good, 20);
    stop(&o);
    assert_int_equal(vb_offload_end(o.rig.service, good.place.ticket), 0);
    start(&o);
    offload_client_close(&good);
    close(line[0]);
    close_office(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_clients_go_with_their_connections, "udp"),
        DUO_TEST(test_who_leaves_can_join_again, "shm"),
        DUO_TEST(test_strangers_on_the_line, "shm"),
        DUO_TEST(test_a_killed_process_leaves_nothing, "udp"),
        DUO_TEST(test_a_killed_process_leaves_nothing, "shm"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
