// SPDX-License-Identifier: Apache-2.0
// A service of offloads and one of its clients, from joining to leaving. Both are in this process,
// so a message is carried by a function call; between machines a socket does it.
#include <verbena/nic.h>
#include <verbena/offload.h>
#include <verbena/offload_service.h>

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH = 8,
    VALUE_MAX = 64
};

static struct {
    struct vb_hash_bucket index[1];
    char items[VALUE_MAX];
} store;

static char error[VB_OFFLOAD_TEXT];

static void check(int err, const char *what)
{
    if (err == 0)
        return;
    fprintf(stderr, "chain_service: cannot %s: %s\n", what, error[0] ? error : strerror(-err));
    exit(1);
}

// ---- the server

static struct vb_image *make_get(void *ctx, uint32_t depth, char *why)
{
    (void)ctx;
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = depth, .value_max = VALUE_MAX}, why);
}

static struct vb_offload_service *open_service(struct vb_nic *nic)
{
    static const struct vb_offload_memory memory[] = {
        {"index", store.index, sizeof store.index, false},
        {"items", store.items, sizeof store.items, false},
    };
    struct vb_offload_service *service;

    memcpy(store.items, "a value", 7);
    store.index[0].addr = htobe64((uintptr_t)store.items);
    store.index[0].len = store.index[0].len_again = htobe32(7);
    vb_hash_store_key(store.index[0].key, (const uint8_t *)"key001");
    check(vb_offload_open(nic, &(struct vb_offload_service_opts){.clients_max = 1000}, &service),
          "open the service");
    check(vb_offload_add(service,
                         &(struct vb_offload_offer){.name = "get",
                                                    .make = make_get,
                                                    .memory = memory,
                                                    .memories = 2,
                                                    .request_bytes = sizeof(struct vb_hash_request),
                                                    .answer_bytes = VALUE_MAX,
                                                    .limit = 100},
                         error),
          "offer the get");
    return service;
}

// ---- the client

static void join(struct vb_offload_service *service, const struct vb_offload_join *request,
                 struct vb_offload_place *place)
{
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    uint64_t ticket;
    uint32_t len = vb_offload_write_join(message, request);

    len = vb_offload_answer(service, message, len, answer, &ticket); // at the server
    check(vb_offload_read_place(answer, len, place, error), "join");
}

static void get(struct vb_cq *cq, struct vb_qp *qp, const struct vb_offload_place *place)
{
    struct vb_hash_request request = {.key = "key001"};
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};
    uint64_t bucket = htobe64(place->region[0].addr);
    struct vb_wc wc = {0};

    memcpy(request.bucket, &bucket, sizeof bucket);
    vb_post_recv(qp, &(struct vb_recv_wr){0}, 1);
    vb_post_send(qp,
                 &(struct vb_send_wr){
                     .opcode = VB_WR_SEND, .flags = VB_WR_INLINE, .sge = &sge, .num_sge = 1},
                 1);
    while (vb_poll_cq(cq, &wc, 1) == 0)
        ;
    check(wc.status == VB_WC_OK ? 0 : -1, "get");
    printf("%u bytes", be32toh(wc.imm));
}

int main(int argc, char **argv)
{
    static char replies[DEPTH][VALUE_MAX];
    struct vb_nic *server, *client;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_qp *qp;
    struct vb_nic_opts opts = {.address = argc == 3 ? argv[1] : "127.0.0.1", .error_text = error};

    check(vb_nic_open(&opts, &server), "open a NIC");
    opts.address = argc == 3 ? argv[2] : "127.0.0.2";
    check(vb_nic_open(&opts, &client), "open a NIC");
    struct vb_offload_service *service = open_service(server);
    check(vb_pd_alloc(client, &pd), "make a domain");
    check(vb_cq_create(client, &(struct vb_cq_opts){.entries = 16}, &cq), "make a queue");
    check(vb_mr_reg(pd, replies, sizeof replies, VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE, &mr),
          "register memory");
    const struct vb_qp_opts queues = {
        .send_cq = cq, .recv_cq = cq, .send_depth = 8, .recv_depth = 8, .inline_bytes = 16};
    check(vb_qp_create(pd, &queues, &qp), "make a queue pair");

    struct vb_offload_place place;
    struct vb_offload_join request = {.offload = "get",
                                      .nonce = 4711, // a random number would be better
                                      .qpn = vb_qp_num(qp),
                                      .depth = DEPTH,
                                      .addr = (uintptr_t)replies,
                                      .bytes = sizeof replies,
                                      .key = vb_mr_key(mr)};
    vb_nic_gid(client, request.gid);
    join(service, &request, &place);
    struct vb_qp_peer peer = {
        .qpn = place.qpn, .psn = place.psn, .mtu = place.mtu, .rights = VB_RIGHT_REMOTE_WRITE};
    memcpy(peer.gid, place.gid, sizeof peer.gid);
    check(vb_qp_connect(qp, &peer), "connect");
    get(cq, qp, &place); // the server's side of this program does nothing
    printf(": %s\n", replies[0]);

    check(vb_offload_end(service, place.ticket), "end the client"); // or it sends a message to
                                                                    // leave
    vb_offload_close(service);
    vb_nic_close(client);
    vb_nic_close(server);
    return 0;
}
