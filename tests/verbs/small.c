// SPDX-License-Identifier: Apache-2.0
// Small verbs: names, rates, keys, tables and sizes, each with an answer that is known.
#include "world.h"

#include <arpa/inet.h>

enum {
    SHIFT = 1 << 20,
};

static void check_names(struct world *w)
{
    struct ibv_device_attr attr;

    NEED(strstr(ibv_node_type_str(IBV_NODE_CA), "channel adapter"));
    NEED(strstr(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
    NEED(strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") == 0);
    NEED(strcmp(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR),
                ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR)) != 0);
    NEED(strstr(ibv_event_type_str(IBV_EVENT_SQ_DRAINED), "drained"));
    NEED(strcmp(ibv_get_device_name(w->context->device), "verbena0") == 0);
    NEED(!ibv_query_device(w->context, &attr));
    NEED(ibv_get_device_guid(w->context->device) == attr.node_guid);
    NEED(ibv_get_device_index(w->context->device) >= 0);
    puts("names: ok");
}

static void check_rates(void)
{
    NEED(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
    NEED(ibv_rate_to_mbps(IBV_RATE_25_GBPS) == 25781);
    NEED(mbps_to_ibv_rate(25781) == IBV_RATE_25_GBPS);
    NEED(ibv_rate_to_mult(IBV_RATE_MAX) == -1 && mbps_to_ibv_rate(1) == IBV_RATE_MAX);
    puts("rates: ok");
}

static void check_tables(struct world *w)
{
    struct ibv_gid_entry entry, entries[16];
    __be16 pkey;

    NEED(!ibv_query_pkey(w->context, 1, 0, &pkey) && pkey == htons(0xffff));
    NEED(ibv_query_pkey(w->context, 1, 1, &pkey) == -1);
    NEED(ibv_get_pkey_index(w->context, 1, htons(0xffff)) == 0);
    NEED(ibv_get_pkey_index(w->context, 1, htons(0x7fff)) == -1);
    NEED(!ibv_query_gid_ex(w->context, 1, 0, &entry, 0));
    NEED(memcmp(&entry.gid, &w->gid, sizeof w->gid) == 0);
    NEED(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex > 0);
    NEED(ibv_query_gid_ex(w->context, 1, 99, &entry, 0) == EINVAL);
    ssize_t count = ibv_query_gid_table(w->context, entries, 16, 0);
    NEED(count > 0 && memcmp(&entries[0].gid, &w->gid, sizeof w->gid) == 0);
    NEED(ibv_query_gid_table(w->context, entries, 0, 0) < 0);
    puts("tables: ok");
}

static void check_sizes(struct world *w)
{
    struct ibv_cq *cq = ibv_create_cq(w->context, 16, NULL, NULL, 0);
    uint8_t bytes[64];

    NEED(cq && !ibv_resize_cq(cq, 1000) && cq->cqe >= 1000);
    NEED(ibv_resize_cq(cq, -1) == EINVAL);
    struct ibv_mr *mr = ibv_reg_mr_iova2(w->pd, bytes, sizeof bytes, SHIFT, IBV_ACCESS_LOCAL_WRITE);
    NEED(mr && mr->addr == bytes && mr->length == sizeof bytes);
    NEED(!ibv_reg_mr_iova2(w->pd, bytes, sizeof bytes, SHIFT, IBV_ACCESS_REMOTE_WRITE));
    struct ibv_qp *qp = make_qp(w, IBV_QPT_RC, cq, NULL);
    NEED(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0) == 0); // nothing is promised
    NEED(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
    NEED(!ibv_fork_init());
    NEED(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
    puts("sizes: ok");
}

int main(void)
{
    struct world w;

    open_world(&w);
    check_names(&w);
    check_rates();
    check_tables(&w);
    check_sizes(&w);
    close_world(&w);
    puts("all ok");
    return 0;
}
