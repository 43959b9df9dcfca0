// SPDX-License-Identifier: Apache-2.0
// Paths of rdma_cm: what an id's route says.
//
//   cm_path ADDRESS [case]   on that address of this machine; without a name, all cases
#include "cm.h"

static const char *address;
static struct rdma_event_channel *client_side;

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

// ---- all of them

static const struct cm_case cases[] = {
    {"route", test_route},
};

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    address = argv[1];
    client_side = rdma_create_event_channel();
    NEED(client_side);
    run_cases(cases, sizeof cases / sizeof *cases, argc > 2 ? argv[2] : NULL);
    rdma_destroy_event_channel(client_side);
    printf("all ok\n");
    return 0;
}
