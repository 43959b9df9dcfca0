// SPDX-License-Identifier: Apache-2.0
// One process on several GIDs at once: `verbs_gids COUNT [hold]` prints what a peer has to know,
// reads the same of the peer, and exchanges messages over a connection and datagrams for each of
// the first COUNT GIDs. What wants no peer is checked before.
#include "world.h"

#include <arpa/inet.h>
#include <unistd.h>

enum {
    GIDS = 4,
    ROUNDS = 40,
    LINE = 512,
};

struct known {
    uint32_t ud_qpn, qpn[GIDS];
    union ibv_gid gid[GIDS];
};

struct place {
    struct world w;
    uint32_t count;
    struct ibv_cq *rc_cq, *ud_cq;
    struct ibv_qp *rc[GIDS], *ud;
    struct ibv_mr *mr;
    uint8_t *memory; // what is sent, then a receive of datagrams
    struct known own, peer;
};

// The table is there as a whole or not at all, and every way to ask says the same.
static void check_table(struct place *p)
{
    struct ibv_port_attr port;
    struct ibv_gid_entry entry, table[2 * GIDS];
    union ibv_gid gid;

    NEED(!ibv_query_port(p->w.context, 1, &port));
    NEED(port.gid_tbl_len >= (int)p->count && port.gid_tbl_len <= GIDS);
    NEED(ibv_query_gid_table(p->w.context, table, 2 * GIDS, 0) == port.gid_tbl_len);
    for (int i = 0; i < port.gid_tbl_len; i++) {
        NEED(!ibv_query_gid(p->w.context, 1, i, &gid));
        NEED(!ibv_query_gid_ex(p->w.context, 1, (uint32_t)i, &entry, 0));
        NEED(memcmp(&entry.gid, &gid, sizeof gid) == 0);
        NEED(entry.gid_index == (uint32_t)i && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
        NEED(memcmp(&table[i], &entry, sizeof entry) == 0);
        for (int j = 0; j < i; j++)
            NEED(memcmp(&table[j].gid, &gid, sizeof gid) != 0);
    }
    NEED(ibv_query_gid(p->w.context, 1, port.gid_tbl_len, &gid) != 0);
    NEED(ibv_query_gid(p->w.context, 1, -1, &gid) != 0);
    NEED(ibv_query_gid_ex(p->w.context, 1, (uint32_t)port.gid_tbl_len, &entry, 0) != 0);
    struct ibv_ah_attr nobody = {
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = table[0].gid, .sgid_index = (uint8_t)port.gid_tbl_len}};
    NEED(!ibv_create_ah(p->w.pd, &nobody));
}

static void post_receive(struct place *p, struct ibv_qp *qp, uint64_t id)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)p->memory + BYTES / 2, .length = 256, .lkey = p->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
    NEED(!ibv_post_recv(qp, &wr, &bad));
}

static void prepare(struct place *p)
{
    open_world(&p->w);
    NEED(p->rc_cq = ibv_create_cq(p->w.context, 64 * GIDS, NULL, NULL, 0));
    NEED(p->ud_cq = ibv_create_cq(p->w.context, 64, NULL, NULL, 0));
    NEED(p->memory = calloc(1, BYTES));
    NEED(p->mr = ibv_reg_mr(p->w.pd, p->memory, BYTES, IBV_ACCESS_LOCAL_WRITE));
    p->ud = make_qp(&p->w, IBV_QPT_UD, p->ud_cq, NULL);
    init_qp(p->ud);
    p->own.ud_qpn = p->ud->qp_num;
    check_table(p);
    for (uint32_t i = 0; i < p->count; i++) {
        p->rc[i] = make_qp(&p->w, IBV_QPT_RC, p->rc_cq, NULL);
        init_qp(p->rc[i]);
        p->own.qpn[i] = p->rc[i]->qp_num;
        NEED(!ibv_query_gid(p->w.context, 1, (int)i, &p->own.gid[i]));
    }
}

// ---- what the peers tell each other, in hexadecimal

static void tell(const struct known *k)
{
    for (size_t i = 0; i < sizeof *k; i++)
        printf("%02x", ((const uint8_t *)k)[i]);
    putchar('\n');
    fflush(stdout);
}

static void hear(struct known *k)
{
    char line[LINE];
    NEED(fgets(line, sizeof line, stdin) && strlen(line) > 2 * sizeof *k);
    for (size_t i = 0; i < sizeof *k; i++) {
        const char digits[3] = {line[2 * i], line[2 * i + 1]};
        ((uint8_t *)k)[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
}

// ---- messages

static void ping(struct place *p)
{
    uint32_t sent = 0, received = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < p->count; i++)
            send_one(p->rc[i], p->mr, i, NULL, 0);
        while (sent < (round + 1) * p->count || received < (round + 1) * p->count) {
            struct ibv_wc wc = wait_one(p->rc_cq);
            NEED(wc.status == IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV)
                post_receive(p, p->rc[wc.wr_id], wc.wr_id), received++;
            else
                sent++;
        }
    }
}

// Which of our GIDs the datagram came to, and from the peer's of the same number.
static uint32_t check_head(struct place *p, struct ibv_wc *wc)
{
    uint8_t *head = p->memory + BYTES / 2;
    struct ibv_ah_attr attr;
    union ibv_gid to = {.raw = {[10] = 0xff, 0xff}};

    NEED(!ibv_init_ah_from_wc(p->w.context, 1, wc, (struct ibv_grh *)(void *)head, &attr));
    uint32_t i = attr.grh.sgid_index;
    NEED(i < p->count && memcmp(&attr.grh.dgid, &p->peer.gid[i], 16) == 0);
    if (head[0] >> 4 == 6)
        memcpy(to.raw, head + 24, 16);
    else
        memcpy(to.raw + 12, head + 36, 4);
    NEED(memcmp(&to, &p->own.gid[i], 16) == 0);
    return i;
}

// One receive at a time, so that each head can be read; a lost one is sent again.
static void exchange_datagrams(struct place *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        struct ibv_ah_attr attr = {
            .is_global = 1,
            .port_num = 1,
            .grh = {.dgid = p->peer.gid[i], .sgid_index = (uint8_t)i, .hop_limit = 64}};
        struct ibv_ah *ah = ibv_create_ah(p->w.pd, &attr);
        NEED(ah);
        send_one(p->ud, p->mr, 99, ah, p->peer.ud_qpn);
        for (int left = 2; left > 0; left--) {
            struct ibv_wc wc = wait_one(p->ud_cq);
            NEED(wc.status == IBV_WC_SUCCESS);
            if (wc.wr_id == 99)
                continue;
            NEED(check_head(p, &wc) == i);
            post_receive(p, p->ud, 0);
        }
        NEED(!ibv_destroy_ah(ah));
        tell(&p->own); // both have it, and go on with the next
        hear(&p->peer);
    }
}

int main(int argc, char **argv)
{
    struct place p = {.count = argc > 1 ? (uint32_t)atoi(argv[1]) : 1};

    NEED(p.count >= 1 && p.count <= GIDS);
    prepare(&p);
    tell(&p.own);
    hear(&p.peer);
    ready_qp(p.ud, 0, &p.peer.gid[0], 0, USUAL_PATIENCE);
    post_receive(&p, p.ud, 0);
    for (uint32_t i = 0; i < p.count; i++) {
        ready_qp(p.rc[i], p.peer.qpn[i], &p.peer.gid[i], (uint8_t)i, USUAL_PATIENCE);
        for (int n = 0; n < 8; n++)
            post_receive(&p, p.rc[i], i);
    }
    tell(&p.own); // ready
    hear(&p.peer);
    ping(&p);
    exchange_datagrams(&p);
    fprintf(stderr, "all ok\n");
    if (argc > 2)
        (void)!getchar(); // until the test has looked at it
    return 0;
}
