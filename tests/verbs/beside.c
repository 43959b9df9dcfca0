// SPDX-License-Identifier: Apache-2.0
// A verbs program that uses two devices at once: the one that a machine really has
// (tests/verbs/fake plays it) and the one that was put beside it. It is linked with -libverbs
// alone.
#include "need.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARK = 0xfa4e, // of the fake device
    PORTS = 3,
    KEY = 77,
};

static void check_list(struct ibv_device **list, int count)
{
    NEED(list && count == 2 && !list[2]);
    NEED(!strcmp(ibv_get_device_name(list[0]), "verbena0"));
    NEED(!strcmp(ibv_get_device_name(list[1]), "fake0"));
    NEED(ibv_get_device_guid(list[1]) == htobe64(MARK) &&
         ibv_get_device_guid(list[0]) != htobe64(MARK));
    NEED(ibv_get_device_index(list[1]) == MARK && ibv_get_device_index(list[0]) == 0);
}

struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t bytes[64];
};

static void open_side(struct side *s, struct ibv_device *device)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

    NEED(s->context = ibv_open_device(device));
    NEED(s->pd = ibv_alloc_pd(s->context));
    NEED(s->mr = ibv_reg_mr(s->pd, s->bytes, sizeof s->bytes, KEY & IBV_ACCESS_LOCAL_WRITE));
    NEED(s->cq = ibv_create_cq(s->context, 10, NULL, NULL, 0));
    attr.send_cq = attr.recv_cq = s->cq;
    NEED(s->qp = ibv_create_qp(s->pd, &attr));
}

static void close_side(struct side *s)
{
    NEED(!ibv_destroy_qp(s->qp));
    NEED(!ibv_destroy_cq(s->cq));
    NEED(!ibv_dereg_mr(s->mr));
    NEED(!ibv_dealloc_pd(s->pd));
    NEED(!ibv_close_device(s->context));
}

// What only the real device's own library can have answered.
static void check_theirs(struct side *s)
{
    struct ibv_device_attr attr;
    struct ibv_send_wr wr = {.wr_id = 5}, *bad;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT};
    struct ibv_srq srq = {.context = s->context};
    struct ibv_srq_attr limit;
    struct ibv_ah_attr path = {0};
    struct ibv_wc wc;

    NEED(!ibv_query_device(s->context, &attr) && attr.vendor_id == MARK);
    NEED(attr.phys_port_cnt == PORTS);
    NEED(attr.vendor_part_id == 2); // calls of ibv_fork_init(), before it was loaded and after
    NEED(s->pd->handle == MARK && s->cq->handle == MARK && s->qp->qp_num == MARK);
    NEED(!ibv_modify_qp(s->qp, &init, IBV_QP_STATE) && s->qp->state == IBV_QPS_INIT);
    NEED(ibv_modify_qp(s->qp, &init, IBV_QP_STATE | IBV_QP_PORT) == EDOM);
    NEED(!ibv_post_send(s->qp, &wr, &bad));
    NEED(ibv_poll_cq(s->cq, 1, &wc) == 1 && wc.wr_id == 5 && wc.vendor_err == MARK);
    errno = 0;
    NEED(!ibv_create_ah(s->pd, &path) && errno == EDOM);
    NEED(ibv_query_srq(&srq, &limit) == EOPNOTSUPP); // which it does not have
}

static void check_ours(struct side *s)
{
    struct ibv_device_attr attr;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    struct ibv_wc wc;

    NEED(!ibv_query_device(s->context, &attr) && attr.vendor_id != MARK);
    NEED(attr.phys_port_cnt == 1);
    NEED(ibv_post_send(s->qp, &wr, &bad) == EINVAL && bad == &wr); // it is in RESET
    NEED(ibv_poll_cq(s->cq, 1, &wc) == 0);
}

int main(void)
{
    struct side ours = {0}, theirs = {0};
    int count = 0;

    NEED(!ibv_fork_init());
    struct ibv_device **list = ibv_get_device_list(&count);
    check_list(list, count);
    NEED(!ibv_fork_init());
    open_side(&ours, list[0]);
    open_side(&theirs, list[1]);
    ibv_free_device_list(list);
    check_theirs(&theirs);
    check_ours(&ours);
    NEED(ibv_close_device(theirs.context) == EBUSY); // its objects are still there
    check_theirs(&theirs);
    close_side(&ours);
    close_side(&theirs);
    puts("all ok");
    return 0;
}
