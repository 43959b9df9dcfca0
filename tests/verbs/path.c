// SPDX-License-Identifier: Apache-2.0
// What a path asks for beyond addresses: traffic class, hop limit, flow label and service level.
// `path [GID-INDEX]` checks what is refused and, with itself, what the receiver of datagrams is
// shown. `path send INDEX SERVICE CLASS HOPS LABEL LEVEL GID` sends packets to nobody there, for
// who looks at the link.
#include "world.h"

#include <arpa/inet.h>

struct wish {
    uint8_t class, hops, level;
    uint32_t label;
};

static struct ibv_ah_attr path_to(const union ibv_gid *gid, uint8_t index, struct wish wish)
{
    return (struct ibv_ah_attr){.is_global = 1,
                                .port_num = 1,
                                .sl = wish.level,
                                .grh = {.dgid = *gid,
                                        .sgid_index = index,
                                        .traffic_class = wish.class,
                                        .hop_limit = wish.hops,
                                        .flow_label = wish.label}};
}

static struct ibv_qp_attr rtr_attr(const struct ibv_ah_attr *path, uint32_t to)
{
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = to,
                                .rq_psn = FIRST_PSN,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 12,
                                .ah_attr = *path};
}

static void finish_qp(struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = FIRST_PSN,
                            .timeout = 10,
                            .retry_cnt = 1,
                            .rnr_retry = 1,
                            .max_rd_atomic = 1};

    NEED(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | rts_mask(qp->qp_type)));
}

// ---- what is refused

static int to_rtr(struct ibv_qp *qp, struct ibv_qp_attr a, int more)
{
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | rtr_mask(qp->qp_type) | more);
}

static void check_refusals(struct world *w, struct ibv_cq *cq)
{
    struct ibv_ah_attr plain = path_to(&w->gid, 0, (struct wish){0}), odd = plain;
    struct ibv_qp *qp = make_qp(w, IBV_QPT_RC, cq, NULL);

    init_qp(qp);
    odd.sl = 7;
    NEED(to_rtr(qp, rtr_attr(&odd, 1), 0) == EINVAL);
    NEED(!ibv_create_ah(w->pd, &odd) && errno == EINVAL);
    odd = plain;
    odd.grh.flow_label = 1 << 20;
    NEED(to_rtr(qp, rtr_attr(&odd, 1), 0) == EINVAL);
    NEED(!ibv_create_ah(w->pd, &odd) && errno == EINVAL);
    odd = plain;
    odd.static_rate = IBV_RATE_10_GBPS;
    NEED(to_rtr(qp, rtr_attr(&odd, 1), 0) == EOPNOTSUPP);
    NEED(!ibv_create_ah(w->pd, &odd) && errno == EOPNOTSUPP);

    struct ibv_qp_attr a = rtr_attr(&plain, 1);
    a.alt_ah_attr = plain;
    a.alt_port_num = 1;
    NEED(to_rtr(qp, a, IBV_QP_ALT_PATH) == EOPNOTSUPP);
    NEED(to_rtr(qp, rtr_attr(&plain, 1), 0) == 0); // nothing of it was kept
    a = (struct ibv_qp_attr){.path_mig_state = IBV_MIG_REARM};
    finish_qp(qp);
    NEED(ibv_modify_qp(qp, &a, IBV_QP_PATH_MIG_STATE) == EOPNOTSUPP);
    a.path_mig_state = IBV_MIG_ARMED;
    NEED(ibv_modify_qp(qp, &a, IBV_QP_PATH_MIG_STATE) == EOPNOTSUPP);
    a.path_mig_state = IBV_MIG_MIGRATED; // as it is
    NEED(ibv_modify_qp(qp, &a, IBV_QP_PATH_MIG_STATE) == 0);
    a.ah_attr = plain; // a path stays from RTR on
    NEED(ibv_modify_qp(qp, &a, IBV_QP_AV) == EINVAL);
    NEED(ibv_modify_qp(qp, &a, IBV_QP_TIMEOUT) == EINVAL);
    NEED(!ibv_destroy_qp(qp));
    puts("paths that are refused: ok");
}

// ---- what a queue pair and its receiver are told

static void check_told(struct world *w, struct ibv_cq *cq)
{
    const struct wish wish = {.class = 0x48, .hops = 9, .level = 3, .label = 0x12345};
    struct ibv_ah_attr path = path_to(&w->gid, 0, wish);
    struct ibv_qp *qp = make_qp(w, IBV_QPT_RC, cq, NULL);
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr a;

    init_qp(qp);
    NEED(to_rtr(qp, rtr_attr(&path, qp->qp_num), 0) == 0);
    finish_qp(qp);
    NEED(!ibv_query_qp(qp, &a, IBV_QP_AV | IBV_QP_PATH_MIG_STATE, &init));
    NEED(a.ah_attr.grh.traffic_class == wish.class && a.ah_attr.grh.hop_limit == wish.hops);
    NEED(a.ah_attr.grh.flow_label == wish.label && a.ah_attr.sl == wish.level);
    NEED(a.path_mig_state == IBV_MIG_MIGRATED);
    NEED(!ibv_destroy_qp(qp));
    puts("a queue pair's path: ok");
}

static void take_datagram(struct ibv_qp *qp, struct ibv_mr *mr, struct ibv_cq *cq,
                          struct ibv_ah *ah, struct ibv_wc *wc)
{
    struct ibv_sge sge = {(uintptr_t)mr->addr + BYTES / 2, BYTES / 2, mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1};

    *wc = (struct ibv_wc){.status = IBV_WC_GENERAL_ERR};
    NEED(!ibv_post_recv(qp, &wr, &bad));
    send_one(qp, mr, 1, ah, qp->qp_num);
    for (int i = 0; i < 2; i++) { // the request's and the receive's, in any order
        struct ibv_wc one = wait_one(cq);
        if (one.wr_id == 2)
            *wc = one;
    }
    NEED(wc->status == IBV_WC_SUCCESS && wc->wr_id == 2 && wc->wc_flags & IBV_WC_GRH);
}

static void check_header(const uint8_t *grh, bool v4, struct wish wish)
{
    if (v4) {
        NEED(grh[20] == 0x45 && grh[21] == wish.class && grh[28] == wish.hops);
        return;
    }
    uint32_t word;
    memcpy(&word, grh, sizeof word);
    NEED(ntohl(word) == (6u << 28 | (uint32_t)wish.class << 20 | wish.label));
    NEED(grh[7] == wish.hops);
}

static void check_datagram(struct world *w, struct ibv_cq *cq, uint8_t index)
{
    static const struct wish wishes[] = {{.class = 0xb8, .hops = 5, .label = 0xabcde},
                                         {.class = 0x20, .hops = 200, .label = 1}};
    uint8_t *bytes = calloc(1, BYTES);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *qp = make_qp(w, IBV_QPT_UD, cq, NULL);
    union ibv_gid gid;
    struct ibv_wc wc;

    NEED(bytes && mr && !ibv_query_gid(w->context, 1, index, &gid));
    bool v4 = gid.raw[10] == 0xff && gid.raw[11] == 0xff;
    connect_qp(w, qp, 0);
    for (int i = 0; i < 80; i++) { // by turns, and later each for a while
        struct wish wish = wishes[i < 8 ? i % 2 : i / 40];
        struct ibv_ah_attr path = path_to(&gid, index, wish), back;
        struct ibv_ah *ah = ibv_create_ah(w->pd, &path);
        NEED(ah);
        take_datagram(qp, mr, cq, ah, &wc);
        check_header(bytes + BYTES / 2, v4, wish);
        struct ibv_grh *grh = (void *)(bytes + BYTES / 2);
        NEED(!ibv_init_ah_from_wc(w->context, 1, &wc, grh, &back));
        NEED(back.grh.traffic_class == wish.class && (v4 || back.grh.flow_label == wish.label));
        NEED(!ibv_destroy_ah(ah));
    }
    NEED(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr));
    free(bytes);
    puts("headers of datagrams: ok");
}

// ---- packets for who looks at the link

static void send_packets(struct world *w, struct ibv_cq *cq, char **words)
{
    uint8_t index = (uint8_t)atoi(words[0]);
    bool ud = strcmp(words[1], "ud") == 0;
    const struct wish wish = {.class = (uint8_t)strtoul(words[2], NULL, 0),
                              .hops = (uint8_t)strtoul(words[3], NULL, 0),
                              .label = (uint32_t)strtoul(words[4], NULL, 0),
                              .level = (uint8_t)strtoul(words[5], NULL, 0)};
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    uint8_t bytes[64] = {0};

    if (inet_pton(AF_INET6, words[6], gid.raw) != 1)
        NEED(inet_pton(AF_INET, words[6], gid.raw + 12) == 1);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *qp = make_qp(w, ud ? IBV_QPT_UD : IBV_QPT_UC, cq, NULL);
    struct ibv_ah_attr path = path_to(&gid, index, wish);
    struct ibv_ah *ah = NULL;
    NEED(mr);
    init_qp(qp);
    if (ud)
        NEED(ah = ibv_create_ah(w->pd, &path));
    NEED(to_rtr(qp, rtr_attr(&path, 77), 0) == 0);
    finish_qp(qp);
    for (uint64_t i = 0; i < 40; i++) {
        send_one(qp, mr, i, ah, 77);
        NEED(wait_one(cq).status == IBV_WC_SUCCESS);
    }
    NEED(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && (!ah || !ibv_destroy_ah(ah)));
}

int main(int argc, char **argv)
{
    struct world w;

    open_world(&w);
    struct ibv_cq *cq = ibv_create_cq(w.context, 64, NULL, NULL, 0);
    NEED(cq);
    if (argc == 9 && strcmp(argv[1], "send") == 0) {
        send_packets(&w, cq, argv + 2);
    } else {
        check_refusals(&w, cq);
        check_told(&w, cq);
        if (argc > 1) // its index: packets through shared memory have no IP header
            check_datagram(&w, cq, (uint8_t)atoi(argv[1]));
    }
    NEED(!ibv_destroy_cq(cq));
    close_world(&w);
    puts("all ok");
    return 0;
}
