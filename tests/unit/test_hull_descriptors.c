// SPDX-License-Identifier: Apache-2.0
// A hull with fewer descriptors than its tenants' quotas allow: who asks for more hears so, who has
// some goes on, and a hull that has none left at all does not do nothing but fail.
#include "../wait.h"
#include "duo.h"
#include "hull_kit.h"
#include "service_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LIMIT = 256,
    APPLICATIONS = LIMIT / 2,
};

static struct rlimit set_limit(rlim_t limit)
{
    struct rlimit before, now;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return before;
}

// ---- the budget

static uint32_t take_all(struct vb_hull *hull, struct vb_hull_tenant *t)
{
    struct vb_hull_reply reply = {0};

    while (vb_hull_descriptors_take(hull, t, 1, &reply))
        ;
    assert_int_equal(reply.error, -EMFILE);
    assert_non_null(strstr(reply.text, "LimitNOFILE="));
    return t->descriptors;
}

static void test_a_tenant_leaves_some_to_the_next(void **state)
{
    struct vb_hull *hull = calloc(1, sizeof *hull);
    struct vb_hull_tenant tenant[4] = {0};

    (void)state;
    assert_non_null(hull);
    hull->descriptors.most = 8000;
    assert_int_equal(take_all(hull, &tenant[0]), 7000);
    assert_int_equal(take_all(hull, &tenant[1]), 875);
    assert_in_range(take_all(hull, &tenant[2]), 100, 125);
    assert_in_range(take_all(hull, &tenant[3]), 8, 25);
    assert_true(hull->descriptors.used < hull->descriptors.most);
    vb_hull_descriptors_give_back(hull, &tenant[0], 7000);
    assert_true(take_all(hull, &tenant[3]) > 1000);
    free(hull);
}

static uint64_t needed(const char *text)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT];

    assert_non_null(config);
    assert_int_equal(vb_hull_config_parse(text, (uint32_t)strlen(text), config, error), 0);
    uint64_t count = vb_hull_descriptors_needed(config);
    free(config);
    return count;
}

static void test_what_quotas_can_need(void **state)
{
    (void)state;
    uint64_t one = needed("[nic a]\n");
    assert_true(one > 16384 && one < 32768);
    assert_int_equal(needed("[nic a]\n[nic b]\nport = udp\n"), 2 * one);
    uint64_t little = needed("[tenant *]\napplications = 10\nqueues = 20\nmemories = 30\n");
    assert_in_range(little, 80, 80 + 1024);
    // Others can attach to a NIC of a group.
    assert_int_equal(needed("[nic a]\n[tenant 4000000000]\n"), one);
    assert_true(needed("[nic a]\ngroup = 0\n[tenant 4000000000]\n") > one);
    assert_int_equal(needed("[tenant *]\nqueues = 9223372036854775807\nmemories = "
                            "9223372036854775807\napplications = 9223372036854775807\n"),
                     UINT64_MAX);
}

// ---- applications

static int try_attach(const struct vb_hull *hull, struct vb_nic **nic, char *error)
{
    const struct vb_nic_opts opts = {.hull = hull->path, .error_text = error};
    return vb_nic_open(&opts, nic);
}

static void test_who_finds_none_hears_so(void **state)
{
    struct rlimit before = set_limit(LIMIT);
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic[APPLICATIONS], *late = NULL;
    struct vb_channel *channel;
    char error[VB_ERROR_TEXT] = "";
    uint32_t count = 0;
    void *memory;
    int err = 0;

    (void)state;
    set_limit(before.rlim_max); // of the applications, which are here, too
    while (count < APPLICATIONS && !(err = try_attach(hull, &nic[count], error)))
        count++;
    assert_int_equal(err, -EMFILE);
    assert_non_null(strstr(error, "LimitNOFILE="));
    assert_in_range(count, LIMIT / 4, LIMIT / 2);
    assert_int_equal(try_attach(hull, &late, error), -EMFILE); // and again
    // Who is there is served, with what needs none.
    assert_int_equal(vb_hull_alloc(nic[0], NULL, 4096, &memory), 0);
    assert_int_equal(vb_hull_alloc(nic[0], "name", 4096, &memory), -EMFILE);
    assert_int_equal(vb_channel_create(nic[0], &channel), -EMFILE);
    vb_nic_close(nic[--count]);
    hull_kit_wait(hull, count);
    assert_int_equal(vb_channel_create(nic[0], &channel), 0);
    assert_int_equal(vb_hull_alloc(nic[0], "name", 4096, &memory), 0);
    vb_channel_destroy(channel);
    assert_int_equal(vb_hull_free(nic[0], memory), 0);
    assert_int_equal(try_attach(hull, &nic[count], error), 0);
    for (uint32_t i = 0; i <= count; i++)
        vb_nic_close(nic[i]);
    hull_kit_wait(hull, 0);
    assert_int_equal(hull->descriptors.used, 0);
    vb_hull_close(hull);
    set_limit(before.rlim_cur);
}

static void name_service(int socket, const char *name)
{
    struct vb_hull_request request = {.op = VB_HULL_SERVICE};
    struct vb_hull_reply reply;

    memcpy(request.memory.name, name, strlen(name));
    assert_int_equal(hull_kit_ask(socket, &request, &reply), 0);
}

// A connection that was another service's before, and released it.
static void find_after_another(struct vb_hull *hull)
{
    struct vb_hull_request hello = hull_kit_hello(), release = {.op = VB_HULL_SERVICE_RELEASE};
    struct vb_hull_reply reply;
    int socket = hull_kit_connect(hull);

    hello.hello.features = VB_HULL_SERVICES;
    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    name_service(socket, "another");
    assert_int_equal(hull_kit_ask(socket, &release, &reply), 0);
    name_service(socket, "test");
    close(socket);
    hull_kit_wait(hull, 0);
}

// What comes and goes leaves nothing charged.
static void test_services_are_charged_for_what_they_have(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct service_app a;
    void *memory;

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_hull_alloc(a.nic, "name", 4096, &memory), 0);
    for (unsigned i = 0; i < 3; i++) {
        service_leave(&a, hull);
        uint32_t detached = hull->descriptors.used;
        service_find(&a, hull);
        service_leave(&a, hull);
        assert_int_equal(hull->descriptors.used, detached);
        find_after_another(hull);
        assert_int_equal(hull->descriptors.used, detached);
        service_find(&a, hull);
    }
    assert_int_equal(vb_hull_alloc(a.nic, "name", 4096, &memory), 0);
    assert_int_equal(vb_hull_free(a.nic, memory), 0);
    assert_int_equal(vb_service_release(a.nic), 0);
    vb_nic_close(a.nic);
    hull_kit_wait(hull, 0);
    assert_int_equal(hull->descriptors.used, 0);
    vb_hull_close(hull);
}

// ---- none at all

static void connect_to(int fd, const struct vb_hull *hull)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    memcpy(at.sun_path, hull->path, sizeof at.sun_path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
}

static int ready(const struct vb_hull *hull)
{
    struct epoll_event event;
    return epoll_wait(hull->epoll, &event, 1, 0);
}

static void test_out_of_all_it_does_not_try_without_end(void **state)
{
    struct vb_hull *hull = hull_kit_open_still(0);
    int socket_of[2], filler[LIMIT], fillers = 0;

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        socket_of[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct rlimit before = set_limit(LIMIT);
    while (fillers < LIMIT && (filler[fillers] = fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0)
        fillers++;
    assert_in_range(fillers, 1, LIMIT - 1);
    // With the one in reserve who waits is ended.
    connect_to(socket_of[0], hull);
    assert_int_equal(ready(hull), 1);
    vb_hull_turn(hull);
    assert_int_equal(recv(socket_of[0], &(char){0}, 1, MSG_DONTWAIT), 0);
    assert_int_equal(ready(hull), 0);
    // Without, nobody listens for a while.
    close(hull->spare);
    hull->spare = -1;
    filler[fillers++] = fcntl(0, F_DUPFD_CLOEXEC, 0);
    connect_to(socket_of[1], hull);
    vb_hull_turn(hull);
    assert_int_equal(recv(socket_of[1], &(char){0}, 1, MSG_DONTWAIT), -1);
    assert_int_equal(ready(hull), 0);
    assert_true(vb_hull_accept_next(hull, UINT64_MAX) < UINT64_MAX);
    // And then he who has waited is let in.
    while (fillers > 0)
        close(filler[--fillers]);
    set_limit(before.rlim_cur);
    const struct vb_hull_request hello = hull_kit_hello();
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS], bytes;
    assert_int_equal(vb_contract_send(socket_of[1], &hello, sizeof hello, 0, NULL, 0), 0);
    WAIT_UNTIL((vb_hull_turn(hull), bytes = vb_contract_receive(socket_of[1], &reply, sizeof reply,
                                                                MSG_DONTWAIT, fds)) != -EAGAIN);
    assert_int_equal(bytes, sizeof reply);
    assert_int_equal(reply.error, 0);
    assert_int_equal(vb_hull_accept_next(hull, UINT64_MAX), UINT64_MAX);
    vb_contract_close(fds);
    close(socket_of[0]);
    close(socket_of[1]);
    vb_hull_close(hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tenant_leaves_some_to_the_next),
        cmocka_unit_test(test_what_quotas_can_need),
        cmocka_unit_test(test_who_finds_none_hears_so),
        cmocka_unit_test(test_services_are_charged_for_what_they_have),
        cmocka_unit_test(test_out_of_all_it_does_not_try_without_end),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
