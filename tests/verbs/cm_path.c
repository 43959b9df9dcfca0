// SPDX-License-Identifier: Apache-2.0
// Paths of rdma_cm: what an id's route says, and those that a program gives (RDMA_OPTION_IB_PATH).
//
//   cm_path ADDRESS [case]   on that address of this machine; without a name, all cases
#include "cm.h"

static const char *address;
static struct rdma_event_channel *client_side, *server_side;

enum {
    CLASS = 0x48,
    HOPS = 17,
    LEVEL = 3,
    LABEL = 0x12345,
    EXACTLY = 2 << 6,
};

static int rate_of(const struct ibv_port_attr *port)
{
    static const int lanes[] = {[1] = 1, [2] = 4, [4] = 8, [8] = 12};
    static const struct {
        uint8_t code;
        int mbps;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14062}, {32, 25781}, {64, 53125}, {128, 106250}};

    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
        if (speeds[i].code == port->active_speed)
            return speeds[i].mbps * lanes[port->active_width];
    return 0;
}

static void test_route(void)
{
    struct rdma_cm_id *id = make_client(client_side, address, 9, RDMA_PS_TCP);
    const struct ibv_sa_path_rec *path = id->route.path_rec;
    struct ibv_port_attr port;

    NEED(id->route.num_paths == 1 && path && !ibv_query_port(id->verbs, 1, &port));
    NEED(path->mtu == port.active_mtu && path->hop_limit == 64 && path->traffic_class == 0);
    NEED(path->rate_selector == 2 && path->rate != 0);
    NEED(ibv_rate_to_mbps((enum ibv_rate)path->rate) == rate_of(&port));
    end(id);
}

// ---- given by the program

static struct rdma_cm_id *resolved(uint16_t port, enum rdma_port_space space)
{
    struct sockaddr_storage to = name_of(address, port);
    struct rdma_cm_id *id;

    NEED(!rdma_create_id(client_side, &id, NULL, space));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
    NEED(take(client_side, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    return id;
}

static struct ibv_path_data path_of(const struct rdma_cm_id *id)
{
    const struct rdma_ib_addr *gids = &id->route.addr.addr.ibaddr;

    return (struct ibv_path_data){.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
                                           IBV_PATH_FLAG_BIDIRECTIONAL,
                                  .path = {.sgid = gids->sgid,
                                           .dgid = gids->dgid,
                                           .flowlabel_hoplimit = htonl(LABEL << 8 | HOPS),
                                           .tclass = CLASS,
                                           .reversible_numpath = 0x81,
                                           .pkey = htons(0xffff),
                                           .qosclass_sl = htons(LEVEL),
                                           .mtu = IBV_MTU_512 | EXACTLY,
                                           .packetlifetime = 18 | EXACTLY}};
}

static int set_path(struct rdma_cm_id *id, struct ibv_path_data path)
{
    return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path);
}

static void send_one(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
    static char out[MESSAGE], in[MESSAGE];
    struct ibv_mr *give = rdma_reg_msgs(from, out, sizeof out);
    struct ibv_mr *get = rdma_reg_msgs(to, in, sizeof in);
    struct ibv_wc wc;

    NEED(give && get && !rdma_post_recv(to, NULL, in, sizeof in, get));
    NEED(!rdma_post_send(from, NULL, out, sizeof out, give, 0));
    NEED(rdma_get_send_comp(from, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(rdma_get_recv_comp(to, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(!rdma_dereg_mr(give) && !rdma_dereg_mr(get));
}

static struct ibv_qp_attr query(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr a;

    NEED(!ibv_query_qp(id->qp, &a, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT, &init));
    return a;
}

static void judge_vector(const struct ibv_ah_attr *to)
{
    NEED(to->grh.traffic_class == CLASS && to->grh.hop_limit == HOPS && to->sl == LEVEL);
    NEED(to->grh.flow_label == LABEL);
}

// The client's packets are as it says; tests/capture/path_test.py looks at them, too.
static void test_given(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = resolved(port_of(listener), RDMA_PS_TCP);

    NEED(!set_path(client, path_of(client)));
    NEED(take(client_side, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    const struct ibv_sa_path_rec *path = client->route.path_rec;
    NEED(client->route.num_paths == 1 && path && path->traffic_class == CLASS &&
         path->hop_limit == HOPS);
    NEED(path->sl == LEVEL && path->flow_label == htonl(LABEL) && path->mtu == IBV_MTU_512);
    NEED(path->packet_life_time == 18);
    FAILS(EINVAL, set_path(client, path_of(client))); // it has its route
    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    struct rdma_cm_id *server = take_request(server_side);
    make_qp(server);
    NEED(!rdma_accept(server, NULL));
    NEED(take(client_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    NEED(take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    struct ibv_qp_attr a = query(client), b = query(server);
    judge_vector(&a.ah_attr);
    NEED(a.path_mtu == IBV_MTU_512 && b.path_mtu == IBV_MTU_512 && a.timeout == 20);
    NEED(b.ah_attr.grh.traffic_class == CLASS && b.ah_attr.grh.hop_limit == 64);
    send_one(client, server);
    send_one(server, client);
    end(client);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(server);
    end(listener);
}

static void test_datagrams(void)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_UDP);
    struct rdma_cm_id *client = resolved(port_of(listener), RDMA_PS_UDP);

    NEED(!set_path(client, path_of(client)));
    NEED(take(client_side, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    struct rdma_cm_id *server = take_request(server_side);
    make_qp(server);
    NEED(!rdma_accept(server, NULL));
    struct rdma_cm_event *event = expect(client_side, RDMA_CM_EVENT_ESTABLISHED);
    judge_vector(&event->param.ud.ah_attr);
    NEED(!rdma_ack_cm_event(event));
    end(client);
    end(server);
    end(listener);
}

// In synchronous mode, with an endpoint.
static void test_endpoint(void)
{
    struct rdma_cm_id *model = resolved(9, RDMA_PS_TCP), *id;
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    struct rdma_addrinfo *info;

    NEED(!rdma_getaddrinfo(address, "9", &hints, &info) && !info->ai_route_len);
    struct ibv_path_data *path = info->ai_route = malloc(2 * sizeof *path);
    NEED(path);
    path[0] = path[1] = path_of(model);
    path[0].flags |= IBV_PATH_FLAG_ALTERNATE; // the first usable one counts
    path[0].path.mtu = IBV_MTU_256 | EXACTLY;
    info->ai_route_len = 2 * sizeof *path;
    NEED(!rdma_create_ep(&id, info, NULL, NULL));
    NEED(id->route.path_rec->traffic_class == CLASS && id->route.path_rec->mtu == IBV_MTU_512);
    rdma_destroy_ep(id);
    path[1].flags = 0;
    FAILS(EINVAL, rdma_create_ep(&id, info, NULL, NULL));
    rdma_freeaddrinfo(info);
    end(model);
}

// ---- what cannot be the path

static void test_refused(void)
{
    struct rdma_cm_id *id = resolved(9, RDMA_PS_TCP);
    const struct ibv_path_data good = path_of(id);
    struct ibv_path_data bad[12], two[2] = {good, good};
    struct ibv_port_attr port;
    size_t count = 0;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        bad[i] = good;
    NEED(!ibv_query_port(id->verbs, 1, &port));
    bad[count++].flags = 0;
    bad[count++].flags |= IBV_PATH_FLAG_ALTERNATE;
    bad[count++].flags |= 1u << 31;
    bad[count++].path.sgid.raw[15] ^= 1;
    bad[count++].path.dgid.raw[15] ^= 1;
    bad[count++].path.dlid = htons(7);
    bad[count++].path.service_id = htobe64(7);
    bad[count++].path.pkey = htons(0x8001);
    bad[count++].path.qosclass_sl = htons(7); // a socket has no such priority
    bad[count++].path.qosclass_sl = htons(1 << 4);
    bad[count++].path.mtu = EXACTLY;
    bad[count++].path.mtu = (uint8_t)(EXACTLY | (port.active_mtu + 1));
    for (size_t i = 0; i < count; i++)
        FAILS(EINVAL, set_path(id, bad[i]));
    two[0].flags = two[1].flags = IBV_PATH_FLAG_ALTERNATE;
    FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, two, sizeof two));
    FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, two, sizeof two - 1));
    FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, two, 1));
    FAILS(EINVAL, rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, two, 0));
    FAILS(ENOSYS, rdma_set_option(id, RDMA_OPTION_IB, 99, two, sizeof *two));
    bad[0] = good;
    bad[0].path.rate = EXACTLY | 1; // no rate, so none that the port has
    FAILS(EOPNOTSUPP, set_path(id, bad[0]));
    NEED(is_quiet(client_side) && !id->route.num_paths); // nothing of it was kept
    bad[0].path.rate = EXACTLY | IBV_RATE_1200_GBPS;
    NEED(!set_path(id, bad[0]));
    NEED(take(client_side, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    end(id);
}

// ---- all of them

static const struct cm_case cases[] = {
    {"route", test_route},       {"given", test_given},     {"datagrams", test_datagrams},
    {"endpoint", test_endpoint}, {"refused", test_refused},
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
