// SPDX-License-Identifier: Apache-2.0
// Calls of librdmacm that few programs make, both ends in one process: shared receive queues of an
// id, vendors' options of the connection manager (ECE), the notification that a connection stands,
// and events of a program's own.
//
//   cm_rare ADDRESS [case]   on that address of this machine; without a name, all cases
#include "cm.h"

#include <dlfcn.h>

enum {
    EVENT_USER = 16,    // newer than Debian 12's header
    VENDOR_OPTION = 35, // the reason of a REJ: vendor option not supported
    QPN = 0x4711,       // of queue pairs that the connection manager does not see
};

static const char *address;
static struct rdma_event_channel *client_side, *server_side;

// ---- shared receive queues

static void send_by(struct rdma_cm_id *client, struct rdma_cm_id *server)
{
    static char out[MESSAGE] = "shared", in[MESSAGE];
    struct ibv_mr *give = rdma_reg_msgs(client, out, sizeof out);
    struct ibv_mr *get = rdma_reg_msgs(server, in, sizeof in);
    struct ibv_wc wc;

    NEED(give && get && !rdma_post_recv(server, in, in, sizeof in, get)); // to the shared queue
    NEED(!rdma_post_send(client, NULL, out, sizeof out, give, 0));
    NEED(rdma_get_send_comp(client, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(rdma_get_recv_comp(server, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(wc.wr_id == (uintptr_t)in && memcmp(in, out, sizeof in) == 0);
    NEED(!rdma_dereg_mr(give) && !rdma_dereg_mr(get));
}

static int create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, bool extended)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    struct ibv_srq_init_attr_ex ex = {.attr = attr.attr,
                                      .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                                      .srq_type = IBV_SRQT_BASIC,
                                      .pd = pd};
    int result = extended ? rdma_create_srq_ex(id, &ex) : rdma_create_srq(id, pd, &attr);

    NEED(result || (extended ? ex.attr.max_wr : attr.attr.max_wr) >= DEPTH);
    return result;
}

static void check_srq(bool extended)
{
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP), *none;
    struct rdma_cm_id *client = make_client(client_side, address, port_of(listener), RDMA_PS_TCP);

    NEED(!rdma_create_id(server_side, &none, NULL, RDMA_PS_TCP));
    FAILS(EINVAL, create_srq(none, NULL, extended)); // on no device
    end(none);
    make_qp(client);
    NEED(!rdma_connect(client, NULL));
    struct rdma_cm_id *server = take_request(server_side);
    NEED(!create_srq(server, extended ? server->pd : NULL, extended));
    NEED(server->srq && server->srq->pd == server->pd);
    FAILS(EINVAL, create_srq(server, NULL, extended)); // it has one
    make_qp(server);
    NEED(server->qp->srq == server->srq && !rdma_accept(server, NULL));
    NEED(take(client_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    NEED(take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    send_by(client, server);
    end(client);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    rdma_destroy_qp(server);
    rdma_destroy_srq(server);
    NEED(!server->srq);
    end(server);
    end(listener);
}

static void test_srq(void)
{
    check_srq(false);
}

static void test_srq_ex(void)
{
    check_srq(true);
}

// ---- vendors' options, for queue pairs that the program has

static struct rdma_cm_id *ask(uint16_t port, uint32_t qpn, struct ibv_ece ece)
{
    struct rdma_conn_param param = {.qp_num = qpn};
    struct rdma_cm_id *client = make_client(client_side, address, port, RDMA_PS_TCP);

    NEED(!rdma_set_local_ece(client, &ece));
    NEED(!rdma_connect(client, &param));
    return client;
}

static void expect_ece(struct rdma_cm_id *id, struct ibv_ece want)
{
    struct ibv_ece got = {.comp_mask = 7};

    NEED(!rdma_get_remote_ece(id, &got));
    NEED(got.vendor_id == want.vendor_id && got.options == want.options && got.comp_mask == 0);
}

// What either end sets, the other one gets. The passive end, which has heard nothing after its
// answer, is told by its program that the connection stands.
static void test_ece(void)
{
    const struct ibv_ece asks = {.vendor_id = 0x15b3, .options = 0x10203},
                         answers = {.vendor_id = 0x1dd8, .options = 0x80000001};
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = ask(port_of(listener), QPN, asks);
    struct rdma_cm_id *server = take_request(server_side);
    struct rdma_conn_param param = {.qp_num = QPN + 1};
    struct ibv_ece ece = answers;

    expect_ece(server, asks);
    NEED(!rdma_set_local_ece(server, &ece));
    FAILS(EINVAL, rdma_notify(listener, IBV_EVENT_COMM_EST)); // it is in no connection
    NEED(!rdma_accept(server, &param));
    NEED(take(client_side, RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
    expect_ece(client, answers);
    NEED(is_quiet(server_side));
    FAILS(EINVAL, rdma_notify(server, IBV_EVENT_QP_FATAL)); // no event that matters to it
    NEED(!rdma_notify(server, IBV_EVENT_COMM_EST));
    NEED(take(server_side, RDMA_CM_EVENT_ESTABLISHED) == 0);
    NEED(!rdma_notify(server, IBV_EVENT_COMM_EST)); // known by now
    NEED(is_quiet(server_side));
    NEED(!rdma_establish(client));
    end(client);
    NEED(take(server_side, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end(server);
    end(listener);
}

static void test_ece_refused(void)
{
    struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 1};
    struct rdma_cm_id *listener = make_listener(server_side, address, 0, RDMA_PS_TCP);
    struct rdma_cm_id *client = ask(port_of(listener), QPN + 2, ece);
    struct rdma_cm_id *server = take_request(server_side);

    FAILS(EINVAL, rdma_reject_ece(listener, NULL, 0)); // no request
    NEED(!rdma_reject_ece(server, "no", 3));
    struct rdma_cm_event *event = expect(client_side, RDMA_CM_EVENT_REJECTED);
    NEED(event->status == VENDOR_OPTION);
    NEED(memcmp(event->param.conn.private_data, "no", 3) == 0);
    NEED(!rdma_ack_cm_event(event));
    end(server);
    end(client);
    client = make_client(client_side, address, port_of(listener), RDMA_PS_TCP);
    make_qp(client); // by the library, which then has no options
    FAILS(EINVAL, rdma_set_local_ece(client, &ece));
    FAILS(EINVAL, rdma_get_remote_ece(client, &ece));
    end(client);
    end(listener);
}

// ---- events of the program's own

typedef int write_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                        uint64_t arg);

static void test_own_event(void)
{
    struct rdma_cm_id *id = make_client(client_side, address, 9, RDMA_PS_TCP);
    void *found = dlsym(RTLD_DEFAULT, "rdma_write_cm_event"); // the system's may not have it
    write_event *write_it;
    uint64_t arg = 0;

    NEED(found);
    memcpy(&write_it, &found, sizeof write_it);
    FAILS(EINVAL, write_it(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0));
    NEED(is_quiet(client_side));
    NEED(!write_it(id, (enum rdma_cm_event_type)EVENT_USER, -5, 0x123456789abcdef));
    struct rdma_cm_event *event = expect(client_side, (enum rdma_cm_event_type)EVENT_USER);
    memcpy(&arg, &event->param, sizeof arg);
    NEED(event->id == id && event->status == -5 && arg == 0x123456789abcdef);
    NEED(strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_USER") == 0);
    NEED(!rdma_ack_cm_event(event));
    end(id);
}

// ---- all of them

static const struct cm_case cases[] = {
    {"srq", test_srq},
    {"srq_ex", test_srq_ex},
    {"ece", test_ece},
    {"ece_refused", test_ece_refused},
    {"own_event", test_own_event},
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
