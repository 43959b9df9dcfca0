// SPDX-License-Identifier: Apache-2.0
// A NIC, its manager, and connections.
#include "town_party.h"

#include "base/bytes.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    DEPTH = 2
};

bool party_open(struct party *p, const char *address, uint32_t units, char *why)
{
    char text[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {.address = address,
                                     .port = "udp",
                                     .faults = "off",
                                     .units = units,
                                     .drain_ms = 1,
                                     .error_text = text};
    const struct vb_cq_opts cq = {.entries = 4 * PARTY_CONNS};
    const struct vb_cm_opts cm = {.retries = PARTY_RETRIES};

    p->why = why;
    if (vb_nic_open(&opts, &p->nic) == 0 && vb_pd_alloc(p->nic, &p->pd) == 0 &&
        vb_cq_create(p->nic, &cq, &p->cq) == 0 &&
        vb_mr_reg(p->pd, p->memory, sizeof p->memory, VB_RIGHT_LOCAL_WRITE, &p->mr) == 0 &&
        vb_host_cm_open(p->nic, &cm, &p->cm) == 0)
        return true;
    snprintf(why, 200, "cannot open: %s", text);
    return false;
}

static uint32_t number_of(const struct party *p, const struct party_conn *c)
{
    return (uint32_t)(c - p->conn);
}

static bool post_recv(struct party *p, struct party_conn *c)
{
    uint32_t n = number_of(p, c);
    const struct vb_sge sge = {(uintptr_t)p->memory[n][1], PARTY_BYTES, vb_mr_key(p->mr)};
    return vb_post_recv(c->qp, &(struct vb_recv_wr){.wr_id = n, .sge = &sge, .num_sge = 1}, 1) == 1;
}

struct party_conn *party_conn_new(struct party *p)
{
    const struct vb_qp_opts qp = {.service = VB_SERVICE_RC,
                                  .send_cq = p->cq,
                                  .recv_cq = p->cq,
                                  .send_depth = DEPTH,
                                  .recv_depth = DEPTH};
    struct party_conn *c = p->conn;

    while (c < p->conn + PARTY_CONNS && c->qp)
        c++;
    if (c == p->conn + PARTY_CONNS || vb_qp_create(p->pd, &qp, &c->qp) != 0)
        return NULL;
    return c;
}

struct party_conn *party_conn_find(struct party *p, uint32_t id)
{
    for (struct party_conn *c = p->conn; c < p->conn + PARTY_CONNS; c++)
        if (c->qp && c->id == id)
            return c;
    return NULL;
}

void party_conn_free(struct party_conn *c)
{
    vb_qp_destroy(c->qp);
    *c = (struct party_conn){0};
}

bool party_join(struct party *p, struct party_conn *c, const struct vb_qp_peer *peer)
{
    return vb_qp_connect(c->qp, peer) == 0 && post_recv(p, c);
}

void party_fill(uint8_t bytes[PARTY_BYTES], const uint32_t words[4])
{
    for (uint32_t i = 0; i < PARTY_BYTES / 4; i++)
        vb_put_be32(bytes + 4 * (size_t)i, words[i % 4] + (i / 4) * 0x9e3779b1u);
}

bool party_send(struct party *p, struct party_conn *c, const uint32_t words[4])
{
    uint32_t n = number_of(p, c);
    const struct vb_sge sge = {(uintptr_t)p->memory[n][0], PARTY_BYTES, vb_mr_key(p->mr)};
    const struct vb_send_wr wr = {
        .wr_id = n, .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};
    party_fill(p->memory[n][0], words);
    return vb_post_send(c->qp, &wr, 1) == 1;
}

bool party_has(const struct party *p, const struct party_conn *c, const uint32_t words[4])
{
    uint8_t wanted[PARTY_BYTES];
    party_fill(wanted, words);
    return memcmp(p->memory[number_of(p, c)][1], wanted, PARTY_BYTES) == 0;
}

struct party_conn *party_receive(struct party *p)
{
    struct vb_wc wc;

    while (vb_poll_cq(p->cq, &wc, 1) > 0)
        if (wc.status == VB_WC_OK && wc.opcode == VB_WC_RECV && p->conn[wc.wr_id].qp)
            return &p->conn[wc.wr_id];
    return NULL;
}

bool party_wait(struct party *p, int ms, struct vb_cm_event *event)
{
    struct pollfd fd = {vb_host_cm_event_fd(p->cm), POLLIN, 0};

    if (vb_host_cm_take_event(p->cm, event))
        return true;
    (void)poll(&fd, 1, ms);
    return vb_host_cm_take_event(p->cm, event);
}
