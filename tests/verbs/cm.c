// SPDX-License-Identifier: Apache-2.0
// Connections by librdmacm, both ends in one process: what each call, event and state promises, and
// what is refused.
//
//   cm ADDRESS [case…]   on that address of this machine; without a name, all cases
#include "cm.h"
#include "../wait.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    THREADS = 32,
    ROUNDS = 5,
    EXITS = 3,
    MANY = 3000,
};

static const char *address;
static struct rdma_event_channel *client_side, *server_side;

// A connection that stands, both sides' queue pairs by the library.
static void join(uint16_t port, struct rdma_cm_id **client, struct rdma_cm_id **server)
{
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

    *client = make_client(client_side, address, port, RDMA_PS_TCP);
    make_qp(*client);
    NEED(!rdma_connect(*client, &param));
    *server = take_request(server_side);
    make_qp(*server);
    NEED(!rdma_accept(*server, &param));
    NEED(take(client_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    NEED(take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
}

// ---- a whole life

static void send_one(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
    static char out[MESSAGE] = "hello", in[MESSAGE];
    struct ibv_mr *give = rdma_reg_msgs(from, out, sizeof out);
    struct ibv_mr *get = rdma_reg_msgs(to, in, sizeof in);
    struct ibv_wc wc;

    NEED(give && get);
    NEED(!rdma_post_recv(to, NULL, in, sizeof in, get));
    NEED(!rdma_post_send(from, NULL, out, sizeof out, give, 0));
    NEED(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(memcmp(in, out, sizeof in) == 0);
    NEED(!rdma_dereg_mr(give) && !rdma_dereg_mr(get));
}

static void judge_request(const struct rdma_cm_event *event, const struct rdma_cm_id *listener)
{
    const struct rdma_conn_param *p = &event->param.conn;

    NEED(event->listen_id == listener && event->id->context == listener->context);
    NEED(event->status == 0 && p->private_data_len == 56);
    NEED(memcmp(p->private_data, "question", 9) == 0);
    NEED(p->responder_resources == 5 && p->initiator_depth == 3);
    NEED(p->retry_count == 6 && p->rnr_retry_count == 4 && p->qp_num != 0);
    NEED(event->id->verbs == listener->verbs && event->id->pd && event->id->port_num == 1);
}

static void test_life(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = make_client(client_side, address, port_of(listener), RDMA_PS_TCP);
    struct rdma_conn_param ask = {.private_data = "question",
                                  .private_data_len = 9,
                                  .responder_resources = 3,
                                  .initiator_depth = 5,
                                  .retry_count = 6,
                                  .rnr_retry_count = 4};
    struct rdma_conn_param say = {.private_data = "answer",
                                  .private_data_len = 7,
                                  .responder_resources = 2,
                                  .initiator_depth = 1,
                                  .rnr_retry_count = 7};

    make_qp(client);
    NEED(client->route.num_paths == 1 && client->verbs == listener->verbs);
    NEED(client->send_cq && client->recv_cq && client->send_cq_channel);
    NEED(!rdma_connect(client, &ask));
    struct rdma_cm_event *event = expect(server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *server = event->id;
    judge_request(event, listener);
    NEED(rdma_get_dst_port(server) == rdma_get_src_port(client));
    NEED(rdma_get_src_port(server) == rdma_get_dst_port(client));
    NEED(!rdma_ack_cm_event(event));
    make_qp(server);
    NEED(!rdma_accept(server, &say));
    event = expect(client_side, RDMA_CM_EVENT_ESTABLISHED);
    NEED(event->id == client && event->param.conn.private_data_len == 196);
    NEED(memcmp(event->param.conn.private_data, "answer", 7) == 0);
    NEED(event->param.conn.responder_resources == 1 && event->param.conn.initiator_depth == 2);
    NEED(event->param.conn.qp_num == server->qp->qp_num);
    NEED(!rdma_ack_cm_event(event));
    NEED(take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    send_one(client, server);
    send_one(server, client);
    NEED(!rdma_disconnect(client));
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    NEED(take(client_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    NEED(!rdma_disconnect(server)); // which is over already
    NEED(take(client_side, RDMA_CM_EVENT_TIMEWAIT_EXIT) == 0);
    NEED(take(server_side, RDMA_CM_EVENT_TIMEWAIT_EXIT) == 0);
    end(client);
    end(server);
    end(listener);
    NEED(is_quiet(client_side) && is_quiet(server_side));
}

// The program has the queue pairs: it gets the response, and completes the connection itself.
static void lead(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;

    NEED(!rdma_init_qp_attr(id, &attr, &mask));
    NEED(mask & IBV_QP_STATE);
    NEED(!ibv_modify_qp(qp, &attr, mask));
}

static void test_own_queue_pairs(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = make_client(client_side, address, port_of(listener), RDMA_PS_TCP);
    struct ibv_cq *cq = ibv_create_cq(client->verbs, DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp *qp[2] = {ibv_create_qp(client->pd, &attr), ibv_create_qp(client->pd, &attr)};
    struct rdma_conn_param param = {.qp_num = qp[0] ? qp[0]->qp_num : 0};
    struct ibv_qp_attr early = {.qp_state = IBV_QPS_RTR};
    int mask;

    NEED(cq && qp[0] && qp[1]);
    FAILS(EINVAL, rdma_connect(client, NULL)); // with which queue pair?
    FAILS(EINVAL, rdma_init_qp_attr(client, &early, &mask));
    NEED(!rdma_connect(client, &param));
    struct rdma_cm_id *server = take_request(server_side);
    param.qp_num = qp[1]->qp_num;
    lead(server, qp[1], IBV_QPS_INIT);
    lead(server, qp[1], IBV_QPS_RTR);
    lead(server, qp[1], IBV_QPS_RTS);
    NEED(!rdma_accept(server, &param));
    NEED(take(client_side, RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
    lead(client, qp[0], IBV_QPS_INIT);
    lead(client, qp[0], IBV_QPS_RTR);
    lead(client, qp[0], IBV_QPS_RTS);
    NEED(!rdma_establish(client));
    NEED(take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    FAILS(EINVAL, rdma_establish(client));
    NEED(!rdma_disconnect(server));
    NEED(take(client_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(client);
    end(server);
    end(listener);
    NEED(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]) && !ibv_destroy_cq(cq));
}

// ---- what does not become a connection

static void test_nobody(void)
{
    struct rdma_cm_id *client = make_client(client_side, address, 9, RDMA_PS_TCP);

    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) == 8);
    FAILS(EINVAL, rdma_connect(client, NULL)); // one life each
    end(client);
    client = make_client(client_side, address, 9, RDMA_PS_UDP);
    NEED(!rdma_connect(client, NULL));
    NEED(take(client_side, RDMA_CM_EVENT_UNREACHABLE) == 1); // no such service
    end(client);
}

static void test_refused(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = make_client(client_side, address, port_of(listener), RDMA_PS_TCP);

    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    struct rdma_cm_id *server = take_request(server_side);
    FAILS(EINVAL, rdma_reject(server, address, 149));
    NEED(!rdma_reject(server, "go away", 8));
    FAILS(EINVAL, rdma_reject(server, NULL, 0));
    FAILS(EINVAL, rdma_accept(server, NULL));
    struct rdma_cm_event *event = expect(client_side, RDMA_CM_EVENT_REJECTED);
    NEED(event->status == 28 && event->param.conn.private_data_len == 148);
    NEED(memcmp(event->param.conn.private_data, "go away", 8) == 0);
    NEED(!rdma_ack_cm_event(event));
    end(client);
    end(server);
    end(listener);
}

// With a backlog of one the second has to wait for its turn, and is told so. As in Linux requests
// count until the program takes them, not until it has answered.
static void test_backlog(void)
{
    struct rdma_cm_id *listener, *client[3];
    struct sockaddr_storage name = name_of(address, 0);

    NEED(!rdma_create_id(server_side, &listener, NULL, RDMA_PS_TCP));
    NEED(!rdma_bind_addr(listener, (struct sockaddr *)&name));
    NEED(!rdma_listen(listener, 1));
    for (int i = 0; i < 3; i++) {
        client[i] = make_client(client_side, address, port_of(listener), RDMA_PS_TCP);
        make_qp(client[i]);
    }
    NEED(!rdma_connect(client[0], NULL));
    NEED(!rdma_connect(client[1], NULL));
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) == 3);
    struct rdma_cm_id *server = take_request(server_side);
    NEED(!rdma_connect(client[2], NULL));
    struct rdma_cm_id *second = take_request(server_side);
    for (int i = 0; i < 2; i++) {
        NEED(!rdma_reject(i == 0 ? server : second, NULL, 0));
        NEED(take(client_side, RDMA_CM_EVENT_REJECTED) == 28);
    }
    end(server);
    end(second);
    for (int i = 0; i < 3; i++)
        end(client[i]);
    end(listener);
}

// ---- destroyed in every state

static void test_destroy(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    uint16_t port = port_of(listener);
    struct sockaddr_storage name = name_of(address, 0), to = name_of(address, port);
    struct rdma_cm_id *client, *server;

    NEED(!rdma_create_id(client_side, &client, NULL, RDMA_PS_TCP)); // idle
    end(client);
    NEED(!rdma_create_id(client_side, &client, NULL, RDMA_PS_TCP)); // bound
    NEED(!rdma_bind_addr(client, (struct sockaddr *)&name));
    end(client);
    NEED(!rdma_create_id(client_side, &client, NULL, RDMA_PS_TCP)); // with an event that waits
    NEED(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    end(client);
    NEED(is_quiet(client_side));
    client = make_client(client_side, address, port, RDMA_PS_TCP); // resolved
    end(client);
    client = make_client(client_side, address, port, RDMA_PS_TCP); // asked, and not yet told
    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    server = take_request(server_side);
    end(server);
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) == 28);
    end(client);
    client = make_client(client_side, address, port, RDMA_PS_TCP); // asking
    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    server = take_request(server_side);
    end(client);
    end(server);
    join(port, &client, &server); // connected
    end(client);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(server);
    join(port, &client, &server);
    end(server);
    NEED(take(client_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(client);
    client = make_client(client_side, address, port, RDMA_PS_TCP); // a request that nobody hears
    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    WAIT_UNTIL(!is_quiet(server_side));
    end(listener);
    NEED(take(client_side, RDMA_CM_EVENT_REJECTED) == 28); // the request had come: a refusal
    end(client);
}

static atomic_bool acknowledged;

static void *acknowledge(void *event)
{
    WAIT_UNTIL(wait_state("self/task", getpid()) == 'S'); // the main thread, in rdma_destroy_id()
    atomic_store(&acknowledged, true);
    NEED(!rdma_ack_cm_event(event));
    return NULL;
}

static void test_destroy_waits(void)
{
    struct sockaddr_storage to = name_of(address, 9);
    struct rdma_cm_id *id;
    pthread_t thread;

    NEED(!rdma_create_id(client_side, &id, NULL, RDMA_PS_TCP));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    struct rdma_cm_event *event = expect(client_side, RDMA_CM_EVENT_ADDR_RESOLVED);
    NEED(!pthread_create(&thread, NULL, acknowledge, event));
    NEED(!rdma_destroy_id(id));
    NEED(atomic_load(&acknowledged)); // what the event names was not freed before
    NEED(!pthread_join(thread, NULL));
}

// ---- ports and addresses

static void test_ports(void)
{
    struct rdma_cm_id *first = make_listener(server_side, address, 0, RDMA_PS_TCP), *id, *other;
    struct sockaddr_storage name = name_of(address, port_of(first));
    struct sockaddr_storage any = name_of(strchr(address, ':') ? "::" : "0.0.0.0", port_of(first));
    int yes = 1;

    NEED(port_of(first) != 0);
    NEED(!rdma_create_id(server_side, &id, NULL, RDMA_PS_TCP));
    FAILS(EADDRINUSE, rdma_bind_addr(id, (struct sockaddr *)&name));
    FAILS(EADDRINUSE, rdma_bind_addr(id, (struct sockaddr *)&any));
    NEED(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
    FAILS(EADDRINUSE, rdma_bind_addr(id, (struct sockaddr *)&name)); // somebody listens
    end(id);
    other = make_listener(server_side, address, port_of(first), RDMA_PS_UDP); // another space
    end(other);
    end(first);
    NEED(!rdma_create_id(server_side, &id, NULL, RDMA_PS_TCP));
    NEED(!rdma_bind_addr(id, (struct sockaddr *)&name)); // free again
    FAILS(EINVAL, rdma_bind_addr(id, (struct sockaddr *)&name));
    NEED(!rdma_listen(id, 0));
    FAILS(EINVAL, rdma_listen(id, 0));
    end(id);
}

// A listener everywhere is found at this address, and says at which it was asked.
static void test_anywhere(void)
{
    const char *any = strchr(address, ':') ? "::" : "0.0.0.0";
    struct rdma_cm_id *listener = make_listener(server_side, any, 0, RDMA_PS_TCP), *client, *server;
    struct sockaddr_storage name = name_of(address, port_of(listener));

    NEED(!listener->verbs);
    join(port_of(listener), &client, &server);
    NEED(server->verbs && memcmp(rdma_get_local_addr(server), &name, sizeof(struct sockaddr)) == 0);
    end(client);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(server);
    end(listener);
}

// ---- what is refused

static void test_wrong(void)
{
    struct sockaddr_storage foreign = name_of("192.0.2.99", 0), to = name_of(address, 9);
    struct sockaddr strange = {.sa_family = AF_UNIX};
    struct rdma_conn_param param = {.private_data = address, .private_data_len = 57};
    struct rdma_cm_id *id;
    uint8_t byte = 32;

    FAILS(EINVAL, rdma_create_id(client_side, &id, NULL, (enum rdma_port_space)7));
    NEED(!rdma_create_id(client_side, &id, NULL, RDMA_PS_TCP));
    FAILS(EADDRNOTAVAIL, rdma_bind_addr(id, (struct sockaddr *)&foreign));
    FAILS(EAFNOSUPPORT, rdma_bind_addr(id, &strange));
    FAILS(EAFNOSUPPORT, rdma_resolve_addr(id, NULL, &strange, RESOLVE_MS));
    FAILS(EINVAL, rdma_resolve_route(id, RESOLVE_MS));
    FAILS(EINVAL, rdma_disconnect(id));
    FAILS(EINVAL, rdma_accept(id, NULL));
    FAILS(EINVAL, rdma_notify(id, IBV_EVENT_COMM_EST));
    FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
    FAILS(ENOSYS, rdma_set_option(id, RDMA_OPTION_ID, 99, &byte, 1));
    FAILS(EINVAL, rdma_get_request(id, &id));
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    FAILS(EINVAL, rdma_create_qp(id, NULL, &attr)); // on no device
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    NEED(take(client_side, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    make_qp(id);
    FAILS(EINVAL, rdma_create_qp(id, NULL, &attr)); // it has one
    FAILS(EINVAL, rdma_connect(id, NULL));          // no route
    NEED(!rdma_resolve_route(id, RESOLVE_MS));
    NEED(take(client_side, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    FAILS(EINVAL, rdma_connect(id, &param)); // 56 bytes are all
    param = (struct rdma_conn_param){.initiator_depth = 17};
    FAILS(EINVAL, rdma_connect(id, &param));
    FAILS(EINVAL, rdma_join_multicast(id, (struct sockaddr *)&to, NULL));
    end(id);
}

// ---- channels

static void test_channels(void)
{
    struct sockaddr_storage to = name_of(address, 9);
    struct rdma_event_channel *other = rdma_create_event_channel();
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    NEED(other && !fcntl(other->fd, F_SETFL, O_NONBLOCK));
    FAILS(EAGAIN, rdma_get_cm_event(other, &event));
    FAILS(EINVAL, rdma_ack_cm_event(NULL));
    NEED(!rdma_create_id(client_side, &id, NULL, RDMA_PS_TCP));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    NEED(!is_quiet(client_side));
    NEED(!rdma_migrate_id(id, other)); // with what waits
    NEED(is_quiet(client_side) && id->channel == other);
    NEED(take(other, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    NEED(!rdma_migrate_id(id, NULL)); // from now on calls wait
    NEED(!rdma_resolve_route(id, RESOLVE_MS));
    NEED(id->event && id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    NEED(!rdma_migrate_id(id, client_side));
    NEED(!id->event && id->channel == client_side);
    end(id);
    rdma_destroy_event_channel(other);
}

// ---- datagrams

static void test_datagrams(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_UDP);
    struct rdma_cm_id *client = make_client(client_side, address, port_of(listener), RDMA_PS_UDP);
    struct rdma_conn_param ask = {.private_data = "who", .private_data_len = 4};
    struct rdma_conn_param say = {.private_data = "me", .private_data_len = 3};

    make_qp(client);
    NEED(client->qp->state == IBV_QPS_RTS);
    NEED(!rdma_connect(client, &ask));
    struct rdma_cm_event *event = expect(server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *server = event->id;
    NEED(event->param.ud.private_data_len == 180);
    NEED(memcmp(event->param.ud.private_data, "who", 4) == 0);
    NEED(!rdma_ack_cm_event(event));
    make_qp(server);
    NEED(!rdma_accept(server, &say));
    event = expect(client_side, RDMA_CM_EVENT_ESTABLISHED);
    NEED(event->param.ud.qp_num == server->qp->qp_num && event->param.ud.qkey == RDMA_UDP_QKEY);
    NEED(event->param.ud.ah_attr.is_global && event->param.ud.ah_attr.port_num == 1);
    NEED(memcmp(event->param.ud.private_data, "me", 3) == 0);
    struct ibv_ah *ah = ibv_create_ah(client->pd, &event->param.ud.ah_attr);
    NEED(ah && !ibv_destroy_ah(ah));
    NEED(!rdma_ack_cm_event(event));
    NEED(!rdma_connect(client, NULL) || errno == EINVAL);
    end(client);
    end(server);
    end(listener);
}

static void test_groups(void)
{
    struct sockaddr_storage here = name_of(address, 0), to = name_of(address, 9);
    struct sockaddr_storage group = name_of(strchr(address, ':') ? "ff05::4711" : "239.7.1.1", 0);
    struct rdma_cm_id *id;
    int mine = 0;

    NEED(!rdma_create_id(client_side, &id, NULL, RDMA_PS_UDP));
    FAILS(EINVAL, rdma_join_multicast(id, (struct sockaddr *)&group, &mine)); // on no device
    NEED(!rdma_bind_addr(id, (struct sockaddr *)&here));
    make_qp(id);
    FAILS(EINVAL, rdma_join_multicast(id, (struct sockaddr *)&to, &mine)); // no group
    FAILS(EADDRNOTAVAIL, rdma_leave_multicast(id, (struct sockaddr *)&group));
    NEED(!rdma_join_multicast(id, (struct sockaddr *)&group, &mine));
    struct rdma_cm_event *event = expect(client_side, RDMA_CM_EVENT_MULTICAST_JOIN);
    NEED(event->param.ud.private_data == &mine && event->param.ud.qp_num == 0xffffff);
    NEED(event->param.ud.qkey == RDMA_UDP_QKEY);
    NEED(!rdma_ack_cm_event(event));
    NEED(!rdma_leave_multicast(id, (struct sockaddr *)&group));
    NEED(!rdma_join_multicast(id, (struct sockaddr *)&group, &mine)); // left by who is destroyed
    end(id);
    NEED(is_quiet(client_side));
}

// ---- the synchronous mode, by many threads at once

static char port_text[8];

static void find(int flags, struct rdma_addrinfo **info)
{
    struct rdma_addrinfo hints = {.ai_flags = flags | RAI_NUMERICHOST,
                                  .ai_port_space = RDMA_PS_TCP};

    NEED(!rdma_getaddrinfo(address, flags & RAI_PASSIVE ? "0" : port_text, &hints, info));
    NEED((*info)->ai_qp_type == IBV_QPT_RC && !(*info)->ai_next);
}

static const struct ibv_qp_init_attr plain = {
    .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {DEPTH, DEPTH, 1, 1, 0}};

static void *ask_often(void *unused)
{
    char out[MESSAGE] = "a", in[MESSAGE];

    for (int i = 0; i < ROUNDS; i++) {
        struct ibv_qp_init_attr attr = plain;
        struct rdma_addrinfo *info;
        struct rdma_cm_id *id;
        struct ibv_wc wc;

        find(0, &info);
        NEED(!rdma_create_ep(&id, info, NULL, &attr));
        rdma_freeaddrinfo(info);
        struct ibv_mr *give = rdma_reg_msgs(id, out, MESSAGE),
                      *get = rdma_reg_msgs(id, in, MESSAGE);
        NEED(give && get && !rdma_post_recv(id, NULL, in, MESSAGE, get));
        NEED(!rdma_connect(id, NULL));
        NEED(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
        NEED(!rdma_post_send(id, NULL, out, MESSAGE, give, 0));
        NEED(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
        NEED(memcmp(in, out, MESSAGE) == 0);
        NEED(!rdma_disconnect(id));
        NEED(!rdma_dereg_mr(give) && !rdma_dereg_mr(get));
        rdma_destroy_ep(id);
    }
    return unused;
}

static void *echo(void *of)
{
    struct rdma_cm_id *id = of;
    char bytes[MESSAGE];
    struct ibv_mr *mr = rdma_reg_msgs(id, bytes, MESSAGE);
    struct ibv_wc wc;

    NEED(mr && !rdma_post_recv(id, NULL, bytes, MESSAGE, mr));
    NEED(!rdma_accept(id, NULL));
    NEED(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(!rdma_post_send(id, NULL, bytes, MESSAGE, mr, 0));
    NEED(rdma_get_send_comp(id, &wc) == 1);
    NEED(!rdma_disconnect(id));
    NEED(!rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
    return NULL;
}

static void test_threads(void)
{
    struct ibv_qp_init_attr attr = plain;
    struct rdma_addrinfo *info;
    struct rdma_cm_id *listener, *id;
    pthread_t asking[THREADS], serving[THREADS * ROUNDS];

    find(RAI_PASSIVE, &info);
    NEED(!rdma_create_ep(&listener, info, NULL, &attr));
    rdma_freeaddrinfo(info);
    NEED(!rdma_listen(listener, 0));
    snprintf(port_text, sizeof port_text, "%u", port_of(listener));
    for (int i = 0; i < THREADS; i++)
        NEED(!pthread_create(&asking[i], NULL, ask_often, NULL));
    for (int i = 0; i < THREADS * ROUNDS; i++) {
        NEED(!rdma_get_request(listener, &id));
        NEED(!pthread_create(&serving[i], NULL, echo, id));
    }
    for (int i = 0; i < THREADS; i++)
        NEED(!pthread_join(asking[i], NULL));
    for (int i = 0; i < THREADS * ROUNDS; i++)
        NEED(!pthread_join(serving[i], NULL));
    rdma_destroy_ep(listener);
}

static void test_synchronous_failure(void)
{
    struct ibv_qp_init_attr attr = plain;
    struct rdma_addrinfo *info;
    struct rdma_cm_id *id;

    snprintf(port_text, sizeof port_text, "9");
    find(0, &info);
    NEED(!rdma_create_ep(&id, info, NULL, &attr));
    rdma_freeaddrinfo(info);
    FAILS(ECONNREFUSED, rdma_connect(id, NULL));
    NEED(id->event->event == RDMA_CM_EVENT_REJECTED && id->event->status == 8);
    rdma_destroy_ep(id);
}

// ---- processes

static void be_child(struct rdma_cm_id *parents)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_storage to = name_of(address, 9);
    struct rdma_cm_id *id;

    FAILS(EPERM, rdma_listen(parents, 0));
    NEED(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    NEED(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    NEED(!rdma_destroy_id(id));
    NEED(!rdma_destroy_id(parents)); // only its memory
    _exit(0);
}

static void test_fork(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP), *client,
                      *server;
    int status;
    pid_t child = fork();

    NEED(child >= 0);
    if (child == 0)
        be_child(listener);
    NEED(waitpid(child, &status, 0) == child && status == 0);
    join(port_of(listener), &client, &server); // as if nothing had been
    end(client);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(server);
    end(listener);
}

// With queue pairs of its own, which need not be there.
static void exit_with_many(uint16_t port)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_conn_param param = {.qp_num = 0x10000};

    for (int i = 0; i < MANY; i++, param.qp_num++) {
        struct rdma_cm_id *id = make_client(channel, address, port, RDMA_PS_TCP);
        NEED(!rdma_connect(id, &param) && take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
        NEED(!rdma_establish(id));
    }
    exit(0);
}

// More connections than messages of the manager wait at a time, twice. Events of different
// connections come in any order.
static void test_exit_with_many(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP),
                      *server[MANY];
    struct rdma_conn_param param = {.qp_num = 0x20000};
    int made = 0, over = 0, status;
    pid_t child = fork();

    NEED(child >= 0);
    if (child == 0)
        exit_with_many(port_of(listener));
    while (over < MANY) {
        struct rdma_cm_event *event = next_event(server_side, "a request or an end");
        struct rdma_cm_id *id = event->id;
        bool asks = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
        over += event->event == RDMA_CM_EVENT_DISCONNECTED;
        NEED(!rdma_ack_cm_event(event));
        if (asks) {
            NEED(!rdma_accept(id, &param));
            param.qp_num++;
            NEED(made < MANY);
            server[made++] = id;
        }
    }
    NEED(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < MANY; i++)
        end(server[i]);
    end(listener);
}

static void leave_now(int signal)
{
    (void)signal;
    exit(0);
}

// Polls without a pause, so the signal most likely comes while it is in the NIC.
static void poll_until_interrupted(struct ibv_cq *cq)
{
    const struct itimerval once = {{0, 0}, {0, 20000}};
    struct sigaction act = {.sa_handler = leave_now};
    struct ibv_wc wc;

    NEED(!sigaction(SIGALRM, &act, NULL) && !setitimer(ITIMER_REAL, &once, NULL));
    for (;;)
        NEED(ibv_poll_cq(cq, 1, &wc) == 0);
}

static void be_interrupted(uint16_t port)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *client = make_client(channel, address, port, RDMA_PS_TCP);

    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    NEED(take(channel, RDMA_CM_EVENT_ESTABLISHED) == 0);
    poll_until_interrupted(client->send_cq);
}

// Its manager has sent nothing when the signal comes.
static void be_interrupted_server(int tell)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = make_listener(channel, address, 0, RDMA_PS_TCP);
    uint16_t port = port_of(listener);

    NEED(write(tell, &port, sizeof port) == sizeof port);
    struct rdma_cm_id *server = take_request(channel);
    make_qp(server);
    poll_until_interrupted(server->send_cq);
}

// exit() in a signal handler ends, whatever the thread was doing.
static void test_exit_in_a_handler(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);

    for (int i = 0; i < EXITS; i++) {
        int status;
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0)
            be_interrupted(port_of(listener));
        struct rdma_cm_id *server = take_request(server_side);
        make_qp(server);
        NEED(!rdma_accept(server, NULL) && take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
        NEED(waitpid(child, &status, 0) == child && status == 0);
        end(server); // whether it has heard of that or not
        NEED(is_quiet(server_side));
    }
    end(listener);
}

static void test_exit_in_a_servers_handler(void)
{
    for (int i = 0; i < EXITS; i++) {
        int pipes[2], status;
        uint16_t port;
        NEED(!pipe(pipes));
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0)
            be_interrupted_server(pipes[1]);
        NEED(!close(pipes[1]) && read(pipes[0], &port, sizeof port) == sizeof port);
        struct rdma_cm_id *client = make_client(client_side, address, port, RDMA_PS_TCP);
        make_qp(client);
        NEED(!rdma_connect(client, NULL));
        NEED(waitpid(child, &status, 0) == child && status == 0);
        end(client); // whether it was rejected or not
        NEED(!close(pipes[0]));
    }
}

// ---- devices and names

static void test_devices(void)
{
    int count = 0;
    struct ibv_context **list = rdma_get_devices(&count);
    struct rdma_cm_id *id = make_client(client_side, address, 9, RDMA_PS_TCP);

    NEED(list && count == 1 && list[0] && !list[1]);
    NEED(id->verbs == list[0]); // one for all
    end(id);
    rdma_free_devices(list);
    NEED(strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED") == 0);
    NEED(strcmp(rdma_event_str((enum rdma_cm_event_type)99), "UNKNOWN EVENT") == 0);
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST}, *info;
    NEED(rdma_getaddrinfo("no number", "1", &hints, &info) == EAI_NONAME);
}

// ---- all of them

static const struct cm_case cases[] = {
    {"life", test_life},
    {"own_queue_pairs", test_own_queue_pairs},
    {"nobody", test_nobody},
    {"refused", test_refused},
    {"backlog", test_backlog},
    {"destroy", test_destroy},
    {"destroy_waits", test_destroy_waits},
    {"ports", test_ports},
    {"anywhere", test_anywhere},
    {"wrong", test_wrong},
    {"channels", test_channels},
    {"datagrams", test_datagrams},
    {"groups", test_groups},
    {"threads", test_threads},
    {"synchronous_failure", test_synchronous_failure},
    {"devices", test_devices},
    {"fork", test_fork},
    {"exit_with_many", test_exit_with_many},
    {"exit_in_a_handler", test_exit_in_a_handler},
    {"exit_in_a_servers_handler", test_exit_in_a_servers_handler},
};

// Nobody is there: it takes all retries, so it is asked first and judged last.
static struct rdma_cm_id *ask_the_void(struct rdma_event_channel *channel)
{
    struct rdma_cm_id *id = make_client(channel, "127.99.99.99", 9, RDMA_PS_TCP);

    make_qp(id);
    NEED(!rdma_connect(id, NULL));
    return id;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    address = argv[1];
    client_side = rdma_create_event_channel();
    server_side = rdma_create_event_channel();
    struct rdma_event_channel *void_side = rdma_create_event_channel();
    NEED(client_side && server_side && void_side);
    bool patient = argc == 3 && strcmp(argv[2], "patient") == 0;
    struct rdma_cm_id *lost = patient ? ask_the_void(void_side) : NULL;
    run_cases(cases, sizeof cases / sizeof *cases, argc > 2 && !patient ? argv[2] : NULL);
    if (lost) {
        NEED(take(void_side, RDMA_CM_EVENT_UNREACHABLE) == -ETIMEDOUT);
        end(lost);
    }
    rdma_destroy_event_channel(client_side);
    rdma_destroy_event_channel(server_side);
    rdma_destroy_event_channel(void_side);
    printf("all ok\n");
    return 0;
}
