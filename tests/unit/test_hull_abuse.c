// SPDX-License-Identifier: Apache-2.0
// Applications that want to hold up the hull, or to fill it: with descriptors, with names, with
// replies that they do not read.
#include "../wait.h"
#include "duo.h"
#include "hull_kit.h"
#include "pair.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BYTES = 1 << 16,
    LINGER_S = 3600, // longer than CTest lets the test run: a hull that waits for it fails
    MANY = 5,        // descriptors with one message, more than the contract has
};

// ---- descriptors

static int greeted(const struct vb_hull *hull)
{
    struct vb_hull_request hello = hull_kit_hello();
    struct vb_hull_reply reply;
    int fd = hull_kit_connect(hull);

    assert_int_equal(hull_kit_ask(fd, &hello, &reply), 0);
    return fd;
}

// A connection with bytes that nobody reads: who closes it last waits for them. *peer keeps it so.
static int make_lingering(int *peer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static const char bytes[BYTES];

    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int)); // soon full
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));

    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    *peer = accept(listener, NULL, NULL);
    assert_true(*peer >= 0);
    close(listener);
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    const struct linger linger = {1, LINGER_S};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    return fd;
}

// Sends a message of so many bytes with lingering descriptors, which are the hull's alone then.
static void send_lingering(int socket, const void *message, size_t bytes, int peer[MANY])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MANY * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)message, bytes};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fds[MANY];

    for (uint32_t i = 0; i < MANY; i++)
        fds[i] = make_lingering(&peer[i]);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    assert_int_equal(sendmsg(socket, &m, MSG_NOSIGNAL), bytes);
    for (uint32_t i = 0; i < MANY; i++)
        close(fds[i]);
}

static void close_all(const int peer[MANY])
{
    for (uint32_t i = 0; i < MANY; i++)
        close(peer[i]);
}

// Some turns, of which none may wait for a descriptor that lingers.
static void turn(struct vb_hull *hull)
{
    for (unsigned i = 0; i < 4; i++)
        vb_hull_turn(hull);
}

static int greet_still(struct vb_hull *hull)
{
    const struct vb_hull_request hello = hull_kit_hello();
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS], fd = hull_kit_connect(hull);

    assert_int_equal(vb_contract_send(fd, &hello, sizeof hello, 0, NULL, 0), 0);
    turn(hull);
    assert_int_equal(vb_contract_receive(fd, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(reply.error, 0);
    close(fds[0]);
    close(fds[1]);
    return fd;
}

static void test_descriptors_hold_up_nobody(void **state)
{
    struct vb_hull *hull = hull_kit_open_still(0);
    const struct vb_hull_request give = {.op = VB_HULL_MEMORY_GIVE};
    struct vb_hull_reply reply;
    int peer[MANY], fd = greet_still(hull);

    (void)state;
    send_lingering(fd, &give, sizeof give, peer);
    turn(hull);
    assert_int_equal(recv(fd, &reply, sizeof reply, MSG_DONTWAIT), sizeof reply);
    assert_int_equal(reply.error, -EPERM);
    close_all(peer); // and now they can go
    close(fd);
    vb_hull_close(hull);
}

static unsigned threads_at_first; // in this process

static unsigned count_threads(void)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/task");

    assert_non_null(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

// However many come, they are closed one after the other, by one thread; and none of them lingers.
static void test_strays_take_one_thread(void **state)
{
    enum {
        MESSAGES = 12
    };
    struct vb_hull *hull = hull_kit_open_still(0);
    const struct vb_hull_request give = {.op = VB_HULL_MEMORY_GIVE};
    int peer[MESSAGES][MANY], fd = greet_still(hull);
    unsigned before = hull_kit_descriptors();

    (void)state;
    WAIT_UNTIL(count_threads() == threads_at_first); // that of the last test has ended
    for (unsigned i = 0; i < MESSAGES; i++) {
        send_lingering(fd, &give, sizeof give, peer[i]);
        turn(hull);
        assert_in_range(count_threads(), threads_at_first, threads_at_first + 1);
    }
    WAIT_UNTIL(hull_kit_descriptors() <= before + MESSAGES * MANY); // the other ends
    for (unsigned i = 0; i < MESSAGES; i++)
        close_all(peer[i]);
    close(fd);
    vb_hull_close(hull);
}

static void test_what_is_not_heard_holds_up_nobody(void **state)
{
    struct vb_hull *hull = hull_kit_open_still(0);
    const struct vb_hull_request kick = {.op = VB_HULL_KICK};
    int peer[2][MANY], fd = greet_still(hull);

    (void)state;
    // The first one is too short: the second is not heard.
    assert_int_equal(send(fd, &kick, sizeof kick - 1, MSG_NOSIGNAL), sizeof kick - 1);
    send_lingering(fd, &kick, sizeof kick, peer[0]);
    turn(hull);
    assert_int_equal(recv(fd, &(char){0}, 1, MSG_DONTWAIT), 0); // it was ended
    close(fd);
    fd = greet_still(hull);
    send_lingering(fd, &kick, sizeof kick - 1, peer[1]);
    turn(hull);
    assert_int_equal(recv(fd, &(char){0}, 1, MSG_DONTWAIT), 0);
    close(fd);
    close_all(peer[0]);
    close_all(peer[1]);
    vb_hull_close(hull);
}

// The hull's own descriptors cannot be filled either.
static void test_nobody_speaks_where_nobody_listens(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_hull_request request = hull_kit_hello();
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS], fd = hull_kit_connect(hull);

    (void)state;
    assert_int_equal(vb_contract_send(fd, &request, sizeof request, 0, NULL, 0), 0);
    assert_int_equal(vb_contract_receive(fd, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(send(fds[1], "", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
    close(fds[0]);
    close(fds[1]);
    request = (struct vb_hull_request){.op = VB_HULL_CHANNEL_CREATE};
    assert_int_equal(vb_contract_send(fd, &request, sizeof request, 0, NULL, 0), 0);
    assert_int_equal(vb_contract_receive(fd, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(send(fds[0], "", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
    close(fds[0]);
    close(fd);
    vb_hull_close(hull);
}

static void test_replies_that_are_not_read_are_few(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    const struct vb_hull_request request = {.op = VB_HULL_CHANNEL_CREATE};
    struct vb_hull_reply reply;
    int fd = greeted(hull);
    unsigned replies = 0;

    (void)state;
    for (unsigned i = 0; i < 200; i++)
        if (vb_contract_send(fd, &request, sizeof request, 0, NULL, 0) != 0)
            break;
    hull_kit_wait(hull, 0); // it was ended
    while (recv(fd, &reply, sizeof reply, MSG_DONTWAIT) == sizeof reply)
        replies++;
    assert_in_range(replies, 8, 32);
    close(fd);
    vb_hull_close(hull);
}

// ---- memory

static void test_names_and_their_uses_are_counted(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nmemories = 4\n");
    struct vb_nic *nic = hull_kit_attach(hull);
    char why[VB_ERROR_TEXT];
    void *at[4];

    (void)state;
    assert_int_equal(vb_hull_alloc(nic, "table", BYTES, &at[0]), 0); // the name, and its use
    assert_int_equal(vb_hull_alloc(nic, "table", 0, &at[1]), 0);
    assert_int_equal(vb_hull_alloc(nic, "table", 0, &at[2]), 0);
    assert_int_equal(vb_hull_alloc(nic, "table", 0, &at[3]), -EDQUOT);
    vb_hull_why(nic, why);
    assert_non_null(strstr(why, "may have 4 memories"));
    assert_int_equal(vb_hull_free(nic, at[2]), 0);
    assert_int_equal(vb_hull_alloc(nic, "other", BYTES, &at[2]), -EDQUOT); // needs two
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &at[2]), 0);
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, BYTES); // the name alone is left
    nic = hull_kit_attach(hull);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &at[i]), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &at[3]), -EDQUOT);
    assert_int_equal(vb_hull_free(nic, at[0]), 0);
    assert_int_equal(vb_hull_alloc(nic, "table", 0, &at[0]), 0);
    assert_int_equal(vb_hull_free(nic, at[0]), 0); // with its name
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &at[0]), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &at[3]), 0);
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

// ---- the socket's place

static void test_a_file_is_not_taken_away(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT], path[sizeof hull->path];

    (void)state;
    assert_non_null(config);
    memcpy(path, hull->path, sizeof path);
    vb_hull_config_init(config);
    memcpy(config->nic[0].address, hull->config.address, sizeof config->nic[0].address);
    memcpy(config->nic[0].socket, path, sizeof path);
    vb_hull_close(hull);
    int fd = open(path, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(vb_hull_open(config, 0, &hull, error), -EADDRINUSE);
    assert_int_equal(unlink(path), 0); // it was still there
    free(config);
}

enum {
    TASK_PATH = 40
};

static void *name_myself(void *path)
{
    snprintf(path, TASK_PATH, "/proc/self/task/%d", (int)gettid());
    return NULL;
}

int main(void)
{
    char path[TASK_PATH];
    pthread_t first;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors_hold_up_nobody),
        cmocka_unit_test(test_strays_take_one_thread),
        cmocka_unit_test(test_what_is_not_heard_holds_up_nobody),
        cmocka_unit_test(test_nobody_speaks_where_nobody_listens),
        cmocka_unit_test(test_replies_that_are_not_read_are_few),
        cmocka_unit_test(test_names_and_their_uses_are_counted),
        cmocka_unit_test(test_a_file_is_not_taken_away),
    };
    // The thread sanitizer starts a thread of its own beside a program's first one.
    if (pthread_create(&first, NULL, name_myself, path) || pthread_join(first, NULL))
        return 1;
    WAIT_UNTIL(access(path, F_OK) < 0); // a joined thread is listed for a moment
    threads_at_first = count_threads();
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
