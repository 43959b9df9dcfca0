// SPDX-License-Identifier: Apache-2.0
// What rdma_cm programs do that they should not, and what happens when there is no room: ids that
// never were, channels that go before their ids, threads that are disturbed, and processes without
// descriptors.
#include "../wait.h"
#include "cm.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *address;
static struct rdma_event_channel *client_side, *server_side;

// ---- cleaning up what a program never had

static void test_nothing(void)
{
    struct sockaddr_storage to = name_of(address, 9);
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
    struct rdma_cm_event *event;

    FAILS(EINVAL, rdma_disconnect(NULL));
    FAILS(EINVAL, rdma_connect(NULL, NULL));
    FAILS(EINVAL, rdma_accept(NULL, NULL));
    FAILS(EINVAL, rdma_reject(NULL, NULL, 0));
    FAILS(EINVAL, rdma_listen(NULL, 0));
    FAILS(EINVAL, rdma_bind_addr(NULL, (struct sockaddr *)&to));
    FAILS(EINVAL, rdma_resolve_addr(NULL, NULL, (struct sockaddr *)&to, 1));
    FAILS(EINVAL, rdma_resolve_route(NULL, 1));
    FAILS(EINVAL, rdma_migrate_id(NULL, client_side));
    FAILS(EINVAL, rdma_leave_multicast(NULL, (struct sockaddr *)&to));
    FAILS(EINVAL, rdma_create_qp(NULL, NULL, &attr));
    FAILS(EINVAL, rdma_destroy_id(NULL));
    FAILS(EINVAL, rdma_get_cm_event(NULL, &event));
    rdma_destroy_qp(NULL);
    rdma_destroy_srq(NULL);
    rdma_destroy_ep(NULL);
    rdma_destroy_event_channel(NULL);
    rdma_free_devices(NULL);
    rdma_freeaddrinfo(NULL);
}

// ---- moving ids

static void test_same_channel(void)
{
    struct sockaddr_storage to = name_of(address, 9);
    struct rdma_cm_id *id;

    NEED(!rdma_create_id(client_side, &id, NULL, RDMA_PS_TCP));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    NEED(!rdma_resolve_route(id, RESOLVE_MS));
    NEED(!rdma_migrate_id(id, client_side)); // with two events
    NEED(take(client_side, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    NEED(take(client_side, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    NEED(is_quiet(client_side));
    end(id);
}

static bool is_told(const struct rdma_event_channel *channel)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    return poll(&fd, 1, EVENT_MS) == 1;
}

static struct rdma_cm_id *ask(uint16_t port)
{
    struct rdma_cm_id *client = make_client(client_side, address, port, RDMA_PS_TCP);

    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    return client;
}

// A request that nobody took, and that its peer has left, go where the listener goes.
static void test_moved_request(void)
{
    struct rdma_event_channel *from = rdma_create_event_channel();
    struct rdma_event_channel *to = rdma_create_event_channel();
    struct rdma_cm_id *listener = make_listener(from, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *other = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = ask(port_of(listener));

    NEED(is_told(from));
    end(client);
    // When a later request has come, that has, too.
    client = ask(port_of(other));
    struct rdma_cm_id *server = take_request(server_side);
    NEED(!rdma_migrate_id(listener, to));
    NEED(is_quiet(from) && !is_quiet(to));
    struct rdma_cm_id *left = take_request(to);
    NEED(left->channel == to);
    NEED(take(to, RDMA_CM_EVENT_REJECTED) != 0);
    end(left);
    end(listener);
    NEED(is_quiet(to));
    end(server);
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) != 0);
    end(client);
    end(other);
    rdma_destroy_event_channel(from);
    rdma_destroy_event_channel(to);
}

// ---- channels that go first

static void test_channel_goes(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = make_listener(channel, address, 0, RDMA_PS_TCP);
    uint16_t port = port_of(listener);
    struct rdma_cm_id *idle = make_client(channel, address, port, RDMA_PS_TCP);
    struct rdma_cm_id *client = ask(port);

    NEED(is_told(channel));
    rdma_destroy_event_channel(channel); // a request waits there
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) != 0);
    FAILS(EINVAL, rdma_connect(idle, NULL));
    FAILS(EINVAL, rdma_listen(listener, 8));
    end(client);
    struct rdma_cm_id *again = make_listener(server_side, address, port, RDMA_PS_TCP);
    end(listener);
    end(idle);
    end(again);
}

// Its own ids end with a channel, those that came to it and not those that left it.
static void test_channel_goes_with_its_own(void)
{
    struct rdma_event_channel *channel[2] = {rdma_create_event_channel(),
                                             rdma_create_event_channel()};
    struct rdma_cm_id *id[6];
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);

    for (unsigned i = 0; i < 6; i++)
        id[i] = make_client(channel[i % 2], address, port_of(listener), RDMA_PS_TCP);
    NEED(!rdma_migrate_id(id[0], channel[1]));
    NEED(!rdma_migrate_id(id[1], channel[0]));
    NEED(!rdma_migrate_id(id[3], channel[0]));
    NEED(!rdma_migrate_id(id[3], channel[1])); // there and back
    end(id[2]);
    rdma_destroy_event_channel(channel[0]);
    FAILS(EINVAL, rdma_connect(id[1], NULL));
    FAILS(EINVAL, rdma_connect(id[4], NULL));
    const unsigned left[] = {0, 3, 5};
    for (unsigned i = 0; i < 3; i++)
        NEED(id[left[i]]->channel == channel[1] && !rdma_migrate_id(id[left[i]], client_side) &&
             !rdma_migrate_id(id[left[i]], channel[1]));
    rdma_destroy_event_channel(channel[1]);
    for (unsigned i = 0; i < 3; i++)
        FAILS(EINVAL, rdma_connect(id[left[i]], NULL));
    for (unsigned i = 0; i < 6; i++)
        if (i != 2)
            end(id[i]);
    end(listener);
}

// ---- threads that wait for events

static atomic_bool returned;

static void *wait_late(void *arg)
{
    struct rdma_cm_event *event;
    rdma_get_cm_event(arg, &event);
    atomic_store(&returned, true);
    return NULL;
}

// rping's thread has just taken the last event when its channel goes, and comes back: in a kernel
// it waits for ever, and the program ends in peace.
static void test_late_waiter(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    pthread_t thread;

    rdma_destroy_event_channel(channel);
    NEED(!pthread_create(&thread, NULL, wait_late, channel));
    usleep(100 * 1000); // that it does not return is the claim
    NEED(!atomic_load(&returned));
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static atomic_int result; // of a wait: 0 while it lasts, then 1 or a negative errno
static atomic_uint signals;

static void *wait_once(void *channel)
{
    struct rdma_cm_event *event;
    bool got = rdma_get_cm_event(channel, &event) == 0;

    atomic_store(&result, got ? 1 : -errno);
    if (got)
        NEED(!rdma_ack_cm_event(event));
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static pthread_t start_waiter(struct rdma_event_channel *channel, int flags)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    pthread_t thread;

    atomic_store(&result, 0);
    atomic_store(&signals, 0);
    NEED(!sigaction(SIGUSR1, &action, NULL));
    NEED(!pthread_create(&thread, NULL, wait_once, channel));
    return thread;
}

// Until that many were handled, or the wait is over.
static void send_signals(pthread_t thread, unsigned count)
{
    unsigned before;

    while ((before = atomic_load(&signals)) < count && !atomic_load(&result)) {
        NEED(!pthread_kill(thread, SIGUSR1));
        WAIT_UNTIL(atomic_load(&signals) > before || atomic_load(&result));
    }
}

// In other libraries it is a read(): with SA_RESTART the system begins it again.
static void test_restarted(void)
{
    struct sockaddr_storage to = name_of(address, 9);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;

    NEED(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    pthread_t thread = start_waiter(channel, SA_RESTART);
    send_signals(thread, 20);
    NEED(atomic_load(&signals) >= 20 && !atomic_load(&result));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    NEED(!pthread_join(thread, NULL));
    NEED(atomic_load(&result) == 1);
    end(id);
    rdma_destroy_event_channel(channel);
}

static void test_interrupted(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    pthread_t thread = start_waiter(channel, 0);

    send_signals(thread, UINT_MAX); // the first may come before it waits
    NEED(!pthread_join(thread, NULL));
    NEED(atomic_load(&result) == -EINTR);
    rdma_destroy_event_channel(channel);
}

static void test_cancelled(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    pthread_t thread = start_waiter(channel, SA_RESTART);
    void *end;

    send_signals(thread, 5); // it has begun
    NEED(!pthread_cancel(thread) && !pthread_join(thread, &end));
    NEED(end == PTHREAD_CANCELED && !atomic_load(&result));
    rdma_destroy_event_channel(channel);
}

// ---- no descriptors

static void limit_descriptors(struct rlimit *before, bool limited)
{
    struct rlimit none = {0};

    if (limited) {
        NEED(!getrlimit(RLIMIT_NOFILE, before));
        none.rlim_max = before->rlim_max;
    }
    NEED(!setrlimit(RLIMIT_NOFILE, limited ? &none : before));
}

// A request for which there is none is refused, and the listener goes on.
static void test_no_descriptor(void)
{
    struct sockaddr_storage name = name_of(address, 0);
    struct rdma_cm_id *listener, *client, *server;
    struct rlimit before;

    NEED(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP));
    NEED(!rdma_bind_addr(listener, (struct sockaddr *)&name) && !rdma_listen(listener, 8));
    NEED(!fcntl(listener->channel->fd, F_SETFL, O_NONBLOCK));
    client = ask(port_of(listener));
    NEED(is_told(listener->channel));
    limit_descriptors(&before, true);
    FAILS(EAGAIN, rdma_get_request(listener, &server));
    limit_descriptors(&before, false);
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) != 0);
    end(client);
    client = ask(port_of(listener));
    NEED(is_told(listener->channel));
    NEED(!rdma_get_request(listener, &server));
    NEED(!rdma_reject(server, NULL, 0));
    end(server);
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) != 0);
    end(client);
    end(listener);
}

// ---- all of them

static const struct cm_case cases[] = {
    {"nothing", test_nothing},
    {"same_channel", test_same_channel},
    {"moved_request", test_moved_request},
    {"channel_goes", test_channel_goes},
    {"channel_goes_with_its_own", test_channel_goes_with_its_own},
    {"late_waiter", test_late_waiter},
    {"restarted", test_restarted},
    {"interrupted", test_interrupted},
    {"cancelled", test_cancelled},
    {"no_descriptor", test_no_descriptor},
};

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    address = argv[1];
    client_side = rdma_create_event_channel();
    server_side = rdma_create_event_channel();
    NEED(client_side && server_side);
    run_cases(cases, sizeof cases / sizeof *cases, argc > 2 ? argv[2] : NULL);
    rdma_destroy_event_channel(client_side);
    rdma_destroy_event_channel(server_side);
    printf("all ok\n");
    return 0;
}
