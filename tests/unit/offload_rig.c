// SPDX-License-Identifier: Apache-2.0
// A service of offloads on one end, and clients on the other.
#include "offload_rig.h"

#include "base/bytes.h"
#include "hash_kit.h"
#include "host/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    CLIENT_RECVS = 4,
};

// ---- the service

static struct vb_image *make_get(void *ctx, uint32_t depth, char *error)
{
    (void)ctx;
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = depth, .value_max = RIG_VALUE_MAX},
                               error);
}

struct vb_offload_offer offload_rig_offer(const struct offload_rig *rig)
{
    return (struct vb_offload_offer){.name = "get",
                                     .make = make_get,
                                     .memory = rig->memory,
                                     .memories = 2,
                                     .request_bytes = sizeof(struct vb_hash_request),
                                     .answer_bytes = RIG_VALUE_MAX,
                                     .limit = 200};
}

static void fill(struct offload_rig *rig)
{
    uint8_t *memory = rig->d.end[1].memory;

    hash_fill(memory, RIG_BUCKETS, RIG_ITEMS, RIG_VALUE_MAX);
    rig->memory[0] = (struct vb_offload_memory){"index", memory,
                                                RIG_BUCKETS * sizeof(struct vb_hash_bucket), false};
    rig->memory[1] =
        (struct vb_offload_memory){"items", memory + RIG_ITEMS, RIG_BUCKETS * RIG_VALUE_MAX, false};
}

void offload_rig_open(struct offload_rig *rig, struct duo_state *state,
                      struct vb_offload_service_opts opts)
{
    memset(rig, 0, sizeof *rig);
    duo_open(&rig->d, state);
    offload_rig_start(rig, opts);
}

void offload_rig_start(struct offload_rig *rig, struct vb_offload_service_opts opts)
{
    char error[VB_OFFLOAD_TEXT] = "";

    fill(rig);
    assert_int_equal(vb_offload_open(rig->d.end[1].nic, &opts, &rig->service), 0);
    struct vb_offload_offer offer = offload_rig_offer(rig);
    if (vb_offload_add(rig->service, &offer, error) != 0)
        fail_msg("%s", error);
}

void offload_rig_close(struct offload_rig *rig)
{
    vb_offload_close(rig->service);
    duo_close(&rig->d);
}

int offload_rig_say(struct offload_rig *rig, const void *message, size_t len,
                    struct vb_offload_place *place)
{
    uint8_t answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT] = "";
    uint64_t ticket;
    uint32_t bytes = vb_offload_answer(rig->service, message, len, answer, &ticket);

    assert_true(bytes > 0 && bytes <= VB_OFFLOAD_MESSAGE);
    int why = vb_offload_read_place(answer, bytes, place, error);
    assert_true(why >= 0); // whatever it was, it got a right answer
    assert_true((why == 0) == (ticket != 0 && ticket == place->ticket));
    assert_true((why != 0) == (error[0] != 0));
    return why;
}

struct vb_offload_stat offload_rig_stat(const struct offload_rig *rig)
{
    struct vb_offload_stat stat;
    vb_offload_query(rig->service, &stat);
    return stat;
}

static uint32_t length(const struct vb_fifo *list)
{
    uint32_t n = 0;
    for (const struct vb_link *l = list->head.next; l != &list->head; l = l->next)
        n++;
    return n;
}

struct offload_objects offload_rig_count(struct offload_rig *rig)
{
    struct vb_nic *nic = rig->d.end[1].nic;

    vb_host_lock(nic);
    struct offload_objects o = {length(&nic->pds), length(&nic->mrs), length(&nic->cqs),
                                length(&nic->qps), length(&nic->programs)};
    vb_host_unlock(nic);
    return o;
}

void offload_rig_expect(struct offload_rig *rig, const struct offload_objects *then)
{
    struct offload_objects now = offload_rig_count(rig);
    assert_int_equal(now.pds, then->pds);
    assert_int_equal(now.mrs, then->mrs);
    assert_int_equal(now.cqs, then->cqs);
    assert_int_equal(now.qps, then->qps);
    assert_int_equal(now.programs, then->programs);
}

// ---- clients

struct vb_offload_join offload_rig_join(struct offload_rig *rig, const struct offload_client *c,
                                        uint32_t n, uint32_t depth)
{
    struct vb_offload_join join = {.nonce = ++rig->nonces * 0x9e3779b97f4a7c15u,
                                   .qpn = vb_qp_num(c->qp),
                                   .psn = 0xfffff0,
                                   .mtu = 1024,
                                   .depth = depth,
                                   .bytes = depth * RIG_VALUE_MAX,
                                   .key = vb_mr_key(rig->d.end[0].mr)};
    join.addr = (uintptr_t)rig->d.end[0].memory + n * join.bytes;
    snprintf(join.offload, sizeof join.offload, "%s", rig->offload ? rig->offload : "get");
    vb_nic_gid(rig->d.end[0].nic, join.gid);
    return join;
}

static void post_empty(const struct offload_client *c)
{
    assert_int_equal(vb_post_recv(c->qp, &(struct vb_recv_wr){0}, 1), 1);
}

void offload_client_make(struct offload_rig *rig, struct offload_client *c, uint32_t depth)
{
    const struct duo_end *here = &rig->d.end[0];

    *c = (struct offload_client){.depth = depth};
    assert_int_equal(vb_cq_create(here->nic, &(struct vb_cq_opts){.entries = 16}, &c->cq), 0);
    c->qp = duo_make_qp(here, (struct vb_qp_opts){.send_cq = c->cq,
                                                  .recv_cq = c->cq,
                                                  .send_depth = 4,
                                                  .recv_depth = CLIENT_RECVS,
                                                  .inline_bytes = 16});
}

void offload_client_connect(struct offload_rig *rig, struct offload_client *c,
                            const struct vb_offload_join *join)
{
    struct vb_qp_peer peer = {.qpn = c->place.qpn,
                              .psn = c->place.psn,
                              .our_psn = join->psn,
                              .mtu = c->place.mtu,
                              .rights = VB_RIGHT_REMOTE_WRITE,
                              .timeout = rig->timeout ? rig->timeout : DUO_TIMEOUT};

    c->replies = rig->d.end[0].memory + (join->addr - (uintptr_t)rig->d.end[0].memory);
    memcpy(peer.gid, c->place.gid, sizeof peer.gid);
    assert_int_equal(vb_qp_connect(c->qp, &peer), 0);
    for (uint32_t i = 0; i < CLIENT_RECVS; i++)
        post_empty(c);
}

void offload_client_open(struct offload_rig *rig, struct offload_client *c, uint32_t n,
                         uint32_t depth)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];

    offload_client_make(rig, c, depth);
    struct vb_offload_join join = offload_rig_join(rig, c, n, depth);
    uint32_t len = vb_offload_write_join(message, &join);
    assert_int_equal(offload_rig_say(rig, message, len, &c->place), 0);
    offload_client_connect(rig, c, &join);
}

void offload_client_close(struct offload_client *c)
{
    vb_qp_destroy(c->qp);
    vb_cq_destroy(c->cq);
    c->qp = NULL;
}

void offload_client_leave(struct offload_rig *rig, struct offload_client *c)
{
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT];
    uint64_t ticket;
    uint32_t len = vb_offload_write_leave(message, c->place.ticket);

    len = vb_offload_answer(rig->service, message, len, answer, &ticket);
    assert_int_equal(vb_offload_read_left(answer, len, error), 0);
    assert_true(ticket == c->place.ticket);
}

void offload_client_ask(const struct offload_client *c, uint32_t n, uint32_t bucket)
{
    struct vb_hash_request request;
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};

    assert_string_equal(c->place.region[0].name, "index");
    hash_key_of(n, request.key);
    vb_put_be64(request.bucket, c->place.region[0].addr + bucket * sizeof(struct vb_hash_bucket));
    assert_int_equal(vb_post_send(c->qp,
                                  &(struct vb_send_wr){.opcode = VB_WR_SEND,
                                                       .flags = VB_WR_INLINE | VB_WR_SIGNALED,
                                                       .sge = &sge,
                                                       .num_sge = 1},
                                  1),
                     1);
}

void offload_client_expect(struct offload_client *c, uint32_t n, bool hit)
{
    struct vb_wc wc;

    do
        wc = duo_wait(c->cq);
    while (wc.opcode == VB_WC_SEND && wc.status == VB_WC_OK);
    if (wc.status != VB_WC_OK)
        print_message("completion: %s\n", vb_wc_status_text(wc.status));
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.opcode, VB_WC_RECV_WRITE);
    assert_int_equal(be32toh(wc.imm), hit ? hash_length_of(n, RIG_VALUE_MAX) : VB_HASH_MISS);
    const uint8_t *value = c->replies + c->answered++ % c->depth * RIG_VALUE_MAX;
    for (uint32_t i = 0; hit && i < hash_length_of(n, RIG_VALUE_MAX); i++)
        assert_int_equal(value[i], (uint8_t)(n + 1));
    post_empty(c);
}

void offload_client_work(struct offload_client *c, uint32_t gets)
{
    for (uint32_t i = 0; i < gets; i++) {
        uint32_t n = (i * 13 + c->place.qpn) % RIG_BUCKETS;
        bool hit = i % 3 != 1;
        offload_client_ask(c, n, (n + !hit) % RIG_BUCKETS);
        offload_client_expect(c, n, hit);
    }
}
