// SPDX-License-Identifier: Apache-2.0
// Gets that a hull answers from named memory.
#include "hull_get.h"

#include "../wait.h"
#include "hull_table.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SLOTS = 2,
    LIMIT = 200, // entries that one request may cost
    PSN = 0x123456,
};

static bool refuse(char why[200], const char *what, int err)
{
    snprintf(why, 200, "%s: %s", what, strerror(-err));
    return false;
}

// ---- the server

static int register_part(struct get_server *s, uint32_t at, uint32_t bytes, struct vb_mr **mr)
{
    const struct vb_mr_opts opts = {.addr = s->memory + at,
                                    .len = bytes,
                                    .rights = VB_RIGHT_REMOTE_READ,
                                    .other_start = true,
                                    .start = TABLE_START + at};
    return vb_mr_reg_as(s->pd, &opts, mr);
}

bool get_server_open(struct get_server *s, const char *hull, const char *name, const char *service)
{
    void *memory = NULL;

    *s = (struct get_server){0};
    const struct vb_nic_opts opts = {.hull = hull, .service = service, .error_text = s->why};
    int err = vb_nic_open(&opts, &s->nic);
    if (err)
        return false;
    err = vb_hull_alloc(s->nic, name, TABLE_BYTES, &memory);
    s->memory = memory;
    if (!err)
        err = vb_pd_alloc(s->nic, &s->pd);
    if (!err)
        err = register_part(s, TABLE_INDEX, TABLE_ITEMS - TABLE_INDEX, &s->index);
    if (!err)
        err = register_part(s, TABLE_ITEMS, TABLE_BYTES - TABLE_ITEMS, &s->items);
    if (!err)
        err = vb_program_create(s->pd, &(struct vb_program_opts){.limit = LIMIT}, &s->program);
    return !err || refuse(s->why, "memory", err);
}

static struct vb_image *make_image(char why[200])
{
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = SLOTS, .value_max = TABLE_VALUE},
                               why);
}

bool get_server_serve(struct get_server *s, const struct get_card *client, struct get_card *own)
{
    const struct vb_load_memory memory[] = {
        {"index", TABLE_START + TABLE_INDEX, vb_mr_key(s->index)},
        {"items", TABLE_START + TABLE_ITEMS, vb_mr_key(s->items)},
        {"client", client->addr, client->key},
    };
    struct vb_image *image = make_image(s->why);
    const struct vb_load_opts opts = {
        .pd = s->pd, .memory = memory, .memories = 3, .program = s->program};

    if (!image)
        return false;
    int err = vb_chain_load(s->nic, image, &opts, &s->loaded, s->why);
    vb_image_destroy(image);
    if (err)
        return false;
    struct vb_qp *qp = vb_loaded_qp(s->loaded, "K");
    struct vb_qp_peer peer = {
        .qpn = client->qpn, .psn = PSN, .our_psn = PSN, .mtu = 1024, .timeout = s->timeout};
    memcpy(peer.gid, client->gid, sizeof peer.gid);
    err = vb_qp_connect(qp, &peer);
    if (!err)
        err = vb_chain_start(s->loaded);
    *own = (struct get_card){.qpn = vb_qp_num(qp)};
    vb_nic_gid(s->nic, own->gid);
    return !err || refuse(s->why, "the program", err);
}

// ---- the client

bool get_client_open(struct get_client *c, const char *address, const char *port)
{
    const struct vb_nic_opts opts = {.address = address, .port = port, .error_text = c->why};

    *c = (struct get_client){.memory = calloc(SLOTS, TABLE_VALUE)};
    if (!c->memory || vb_nic_open(&opts, &c->nic) != 0)
        return false;
    int err = vb_pd_alloc(c->nic, &c->pd);
    if (!err)
        err = vb_mr_reg(c->pd, c->memory, SLOTS * TABLE_VALUE,
                        VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE, &c->mr);
    if (!err)
        err = vb_cq_create(c->nic, &(struct vb_cq_opts){.entries = 16}, &c->cq);
    if (!err)
        err = vb_qp_create(c->pd,
                           &(struct vb_qp_opts){.send_cq = c->cq,
                                                .recv_cq = c->cq,
                                                .send_depth = 4,
                                                .recv_depth = 4,
                                                .inline_bytes = sizeof(struct vb_hash_request)},
                           &c->qp);
    return !err || refuse(c->why, "a queue pair", err);
}

void get_client_card(const struct get_client *c, struct get_card *own)
{
    *own = (struct get_card){
        .qpn = vb_qp_num(c->qp), .key = vb_mr_key(c->mr), .addr = (uintptr_t)c->memory};
    vb_nic_gid(c->nic, own->gid);
}

bool get_client_join(struct get_client *c, const struct get_card *server)
{
    struct vb_qp_peer peer = {.qpn = server->qpn,
                              .psn = PSN,
                              .our_psn = PSN,
                              .mtu = 1024,
                              .timeout = c->timeout,
                              .rights = VB_RIGHT_REMOTE_WRITE};

    memcpy(peer.gid, server->gid, sizeof peer.gid);
    int err = vb_qp_connect(c->qp, &peer);
    return !err || refuse(c->why, "a connection", err);
}

void get_client_close(struct get_client *c)
{
    vb_nic_close(c->nic);
    free(c->memory);
}

static bool ask(struct get_client *c, uint32_t key)
{
    struct vb_hash_request request;
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};
    uint64_t bucket = htobe64(TABLE_START + TABLE_INDEX +
                              (uint64_t)key % TABLE_KEYS * sizeof(struct vb_hash_bucket));

    table_key(key, request.key);
    memcpy(request.bucket, &bucket, sizeof bucket);
    return vb_post_recv(c->qp, &(struct vb_recv_wr){0}, 1) == 1 &&
           vb_post_send(c->qp,
                        &(struct vb_send_wr){.opcode = VB_WR_SEND,
                                             .flags = VB_WR_INLINE | VB_WR_SIGNALED,
                                             .sge = &sge,
                                             .num_sge = 1},
                        1) == 1;
}

// Both completions: of the question, and of the answer.
static bool await(struct get_client *c, uint32_t *imm)
{
    for (uint32_t left = 2; left > 0;) {
        struct vb_wc wc;
        WAIT_UNTIL(vb_poll_cq(c->cq, &wc, 1) != 0);
        if (wc.status != VB_WC_OK)
            return false;
        if (wc.opcode == VB_WC_RECV_WRITE)
            *imm = be32toh(wc.imm);
        left--;
    }
    return true;
}

enum get_answer get_client_get(struct get_client *c, uint32_t key, uint64_t *version)
{
    uint32_t length = 0;
    const uint8_t *value = c->memory + (size_t)(c->asked++ % SLOTS) * TABLE_VALUE;

    if (!ask(c, key) || !await(c, &length))
        return GET_FAILED;
    if (length == VB_HASH_MISS)
        return GET_MISSED;
    return length == TABLE_VALUE && table_is_value(key, value, version) ? GET_RIGHT : GET_WRONG;
}
