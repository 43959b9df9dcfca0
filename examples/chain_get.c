// SPDX-License-Identifier: Apache-2.0
// A key-value get that the server's NIC answers. Two NICs in one process: the server's side loads a
// program and never runs again; the client asks for a key that is there and for one that is not.
#include <verbena/nic.h>
#include <verbena/offload.h>

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 2,
    VALUE_MAX = 64
};

static char error[200];

static void check(int err, const char *what)
{
    if (err < 0) {
        fprintf(stderr, "chain_get: cannot %s: %s\n", what, error[0] ? error : strerror(-err));
        exit(1);
    }
}

struct end {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
};

static void open_end(struct end *e, const char *address, void *memory, size_t bytes)
{
    check(vb_nic_open(&(struct vb_nic_opts){.address = address, .error_text = error}, &e->nic),
          "open a NIC");
    check(vb_pd_alloc(e->nic, &e->pd), "make a protection domain");
    check(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 16}, &e->cq), "make a queue");
    check(vb_mr_reg(e->pd, memory, bytes, VB_RIGHT_ALL, &e->mr), "register memory");
}

static void join(struct vb_qp *qp, struct end *there, struct vb_qp *peer, uint32_t rights)
{
    struct vb_qp_peer to = {.qpn = vb_qp_num(peer), .rights = rights};
    vb_nic_gid(there->nic, to.gid);
    check(vb_qp_connect(qp, &to), "connect");
}

static void get(struct end *e, struct vb_qp *qp, const char *key, uint64_t bucket,
                const char *reply)
{
    struct vb_hash_request request;
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};
    struct vb_wc wc = {0};

    memcpy(request.key, key, sizeof request.key);
    bucket = htobe64(bucket);
    memcpy(request.bucket, &bucket, sizeof request.bucket);
    check(vb_post_recv(qp, &(struct vb_recv_wr){0}, 1), "post");
    check(vb_post_send(qp,
                       &(struct vb_send_wr){
                           .opcode = VB_WR_SEND, .flags = VB_WR_INLINE, .sge = &sge, .num_sge = 1},
                       1),
          "post");
    while (vb_poll_cq(e->cq, &wc, 1) == 0)
        ;
    if (be32toh(wc.imm) == VB_HASH_MISS)
        printf("%.6s: not there\n", key);
    else
        printf("%.6s: %.*s\n", key, (int)be32toh(wc.imm), reply);
}

int main(int argc, char **argv)
{
    static struct {
        struct vb_hash_bucket index[1];
        char items[VALUE_MAX];
    } store;
    static char replies[SLOTS][VALUE_MAX];
    static struct end server, client;
    struct vb_loaded *program;
    struct vb_qp *qp;

    open_end(&server, argc == 3 ? argv[1] : "127.0.0.1", &store, sizeof store);
    open_end(&client, argc == 3 ? argv[2] : "127.0.0.2", replies, sizeof replies);
    memcpy(store.items, "a value", 7);
    store.index[0].addr = htobe64((uintptr_t)store.items);
    store.index[0].len = store.index[0].len_again = htobe32(7);
    vb_hash_store_key(store.index[0].key, (const uint8_t *)"key001");

    struct vb_image *image =
        vb_offload_hash_get(&(struct vb_hash_opts){.slots = SLOTS, .value_max = VALUE_MAX}, error);
    check(image ? 0 : -1, "build the program");
    const struct vb_load_memory memory[] = {
        {"index", (uintptr_t)store.index, vb_mr_key(server.mr)},
        {"items", (uintptr_t)store.items, vb_mr_key(server.mr)},
        {"client", (uintptr_t)replies, vb_mr_key(client.mr)},
    };
    check(vb_chain_load(server.nic, image,
                        &(struct vb_load_opts){.pd = server.pd, .memory = memory, .memories = 3},
                        &program, error),
          "load the program");
    check(vb_qp_create(client.pd,
                       &(struct vb_qp_opts){.send_cq = client.cq,
                                            .recv_cq = client.cq,
                                            .send_depth = 4,
                                            .recv_depth = 4,
                                            .inline_bytes = sizeof(struct vb_hash_request)},
                       &qp),
          "make a queue pair");
    // Answers are written to the client; of the server's memory it may write nothing itself.
    join(qp, &server, vb_loaded_qp(program, "K"), VB_RIGHT_REMOTE_WRITE);
    join(vb_loaded_qp(program, "K"), &client, qp, 0);
    check(vb_chain_start(program), "start the program");

    // From here on the server's side of this program does nothing.
    get(&client, qp, "key001", (uintptr_t)&store.index[0], replies[0]);
    get(&client, qp, "key002", (uintptr_t)&store.index[0], replies[1]);
    vb_chain_unload(program);
    vb_image_destroy(image);
    vb_nic_close(client.nic);
    vb_nic_close(server.nic);
    return 0;
}
