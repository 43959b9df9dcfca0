// SPDX-License-Identifier: Apache-2.0
// crash_app HULL first JOIN | HULL again|check|release | ADDRESS plain JOIN | unrelated: the
// application of bench/crash_get, which kills it.
//
// `first` makes a service that answers hash gets by a chain program, for the client that the
// message names, and writes the answer. `again` takes the service over. Both work then until they
// are killed: they register, connect, post, poll and destroy, and clean up what the last one left
// in the middle of that. `check` takes it over and leaves it clean; `plain` has the program on a
// NIC of its own; `unrelated` has as much to do, but not with any NIC.
#include "crash.h"
#include "verbena/nic.h"
#include "verbena/offload_service.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    BYTES = 1 << 16,
    READS = 16,
    PAUSE_US = 100,
    PATIENCE_S = 20,
};

// Tags.
enum {
    TABLE = 1,
    GETS,
    ASIDE, // what a life makes and destroys again
};

struct table {
    struct vb_hash_bucket index[CRASH_KEYS];
    uint8_t items[CRASH_KEYS][CRASH_VALUE];
};

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "crash_app: %s: %s\n", what, why);
    exit(1);
}

static void check(struct vb_nic *nic, const char *what, int error)
{
    char why[VB_ERROR_TEXT] = "";

    if (error >= 0)
        return;
    vb_hull_why(nic, why);
    fprintf(stderr, "crash_app: %s: %s (%s)\n", what, strerror(-error), why);
    exit(1);
}

static struct vb_nic *attach(const char *hull)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic;

    if (vb_nic_open(&(struct vb_nic_opts){.hull = hull, .service = "crash", .error_text = why},
                    &nic) != 0)
        give_up("cannot attach", why);
    return nic;
}

// ---- the table and its program

static void fill(struct table *t)
{
    for (uint32_t n = 0; n < CRASH_KEYS; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        crash_key(n, key);
        t->index[n].addr = htobe64((uintptr_t)t->items[n]);
        t->index[n].len = t->index[n].len_again = htobe32(CRASH_VALUE);
        vb_hash_store_key(t->index[n].key, key);
        crash_value(n, t->items[n]);
    }
}

static struct vb_image *make_get(void *ctx, uint32_t depth, char *error)
{
    (void)ctx;
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = depth, .value_max = CRASH_VALUE},
                               error);
}

static struct table *find_table(struct vb_nic *nic)
{
    void *memory;

    check(nic, "no tag", vb_service_tag(nic, TABLE));
    check(nic, "no table", vb_hull_alloc(nic, "crash-table", sizeof(struct table), &memory));
    return memory;
}

static void serve(struct vb_nic *nic, struct table *t, const char *text)
{
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT] = "", line[2 * VB_OFFLOAD_MESSAGE + 1];
    struct vb_offload_service *service;
    uint64_t ticket;
    const struct vb_offload_memory memory[] = {{"index", t->index, sizeof t->index, false},
                                               {"items", t->items, sizeof t->items, false}};

    fill(t);
    check(nic, "no service", vb_offload_open(nic, &(struct vb_offload_service_opts){0}, &service));
    if (vb_offload_add(service,
                       &(struct vb_offload_offer){.name = "get",
                                                  .make = make_get,
                                                  .memory = memory,
                                                  .memories = 2,
                                                  .request_bytes = sizeof(struct vb_hash_request),
                                                  .answer_bytes = CRASH_VALUE},
                       error) != 0)
        give_up("cannot offer the get", error);
    uint32_t len = crash_from_hex(text, message, sizeof message);
    len = vb_offload_answer(service, message, len, answer, &ticket);
    crash_to_hex(answer, len, line);
    printf("%s\n", line);
    fflush(stdout);
    if (!ticket)
        give_up("the client", "its message was refused");
}

// The program of the last life is as it was.
static void inspect(struct vb_nic *nic, const struct table *t)
{
    uint8_t expected[CRASH_VALUE];
    enum vb_qp_phase phase;
    struct vb_qp *qp;
    uint32_t count = 0;

    for (; vb_service_qp(nic, GETS, count, &qp) == 0; count++) {
        check(nic, "no state", vb_qp_phase(qp, &phase));
        if (phase != VB_QP_RTS)
            give_up("a queue pair of the program", vb_qp_state_text(qp));
    }
    for (uint32_t n = 0; n < CRASH_KEYS; n++) {
        crash_value(n, expected);
        if (memcmp(t->items[n], expected, sizeof expected) != 0)
            give_up("the table", "it has changed");
    }
    if (count != 2)
        give_up("the program", "some of its queue pairs are missing");
}

// ---- work aside

static void clean_up(struct vb_nic *nic)
{
    struct vb_service_memory memory;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq;
    struct vb_qp *qp;

    while (vb_service_qp(nic, ASIDE, 0, &qp) == 0)
        check(nic, "a queue pair stays", vb_qp_destroy(qp));
    while (vb_service_cq(nic, ASIDE, 0, &cq) == 0)
        check(nic, "a completion queue stays", vb_cq_destroy(cq));
    while (vb_service_mr(nic, ASIDE, 0, &mr) == 0)
        check(nic, "a region stays", vb_mr_dereg(mr));
    while (vb_service_pd(nic, ASIDE, 0, &pd) == 0)
        check(nic, "a domain stays", vb_pd_free(pd));
    while (vb_service_memory(nic, ASIDE, 0, &memory) == 0)
        check(nic, "memory stays", vb_hull_free(nic, memory.addr));
}

struct aside {
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq;
    struct vb_qp *qp[2];
    uint8_t *memory;
};

static void make(struct vb_nic *nic, struct aside *a)
{
    struct vb_qp_peer peer = {.rights = VB_RIGHT_REMOTE_READ};
    void *memory;

    check(nic, "no tag", vb_service_tag(nic, ASIDE));
    check(nic, "no domain", vb_pd_alloc(nic, &a->pd));
    check(nic, "no memory", vb_hull_alloc(nic, NULL, BYTES, &memory));
    a->memory = memory;
    check(nic, "no region",
          vb_mr_reg(a->pd, memory, BYTES, VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_READ, &a->mr));
    check(nic, "no queue", vb_cq_create(nic, &(struct vb_cq_opts){.entries = 64}, &a->cq));
    const struct vb_qp_opts opts = {
        .send_cq = a->cq, .recv_cq = a->cq, .send_depth = 16, .recv_depth = 16};
    for (unsigned i = 0; i < 2; i++)
        check(nic, "no queue pair", vb_qp_create(a->pd, &opts, &a->qp[i]));
    vb_nic_gid(nic, peer.gid);
    for (unsigned i = 0; i < 2; i++) {
        peer.qpn = vb_qp_num(a->qp[!i]);
        check(nic, "no connection", vb_qp_connect(a->qp[i], &peer));
    }
}

static void await(struct vb_cq *cq, uint64_t wr_id)
{
    time_t begun = time(NULL);
    struct vb_wc wc;

    while (vb_poll_cq(cq, &wc, 1) == 0)
        if (time(NULL) - begun > PATIENCE_S)
            give_up("a read aside", "no completion");
    if (wc.status != VB_WC_OK || wc.wr_id != wr_id)
        give_up("a read aside", vb_wc_status_text(wc.status));
}

static void use(struct aside *a)
{
    for (uint64_t n = 0; n < READS; n++) {
        const struct vb_sge sge = {(uintptr_t)a->memory, 1024, vb_mr_key(a->mr)};
        const struct vb_send_wr wr = {.wr_id = n,
                                      .opcode = VB_WR_READ,
                                      .flags = VB_WR_SIGNALED,
                                      .sge = &sge,
                                      .num_sge = 1,
                                      .raddr = (uintptr_t)a->memory + BYTES / 2,
                                      .rkey = vb_mr_key(a->mr)};
        memset(a->memory + BYTES / 2, (int)n + 1, 1024);
        vb_post_recv(a->qp[1], &(struct vb_recv_wr){.wr_id = n}, 1);
        if (vb_post_send(a->qp[0], &wr, 1) != 1)
            give_up("a read aside", "the queue is full");
        await(a->cq, n);
        if (a->memory[1023] != (uint8_t)(n + 1))
            give_up("a read aside", "wrong bytes");
    }
}

static _Noreturn void work(struct vb_nic *nic)
{
    struct aside a;

    for (;;) {
        clean_up(nic);
        make(nic, &a);
        use(&a);
        usleep(PAUSE_US);
    }
}

static _Noreturn void work_elsewhere(void)
{
    for (;;) {
        uint8_t *memory =
            mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            give_up("no memory", "mmap");
        for (uint32_t n = 0; n < READS; n++) {
            memset(memory + BYTES / 2, (int)n, 1024);
            memcpy(memory, memory + BYTES / 2, 1024);
            getppid();
        }
        munmap(memory, BYTES);
        usleep(PAUSE_US);
    }
}

static _Noreturn void serve_plainly(const char *address, const char *join)
{
    char why[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {.address = address, .port = "auto", .error_text = why};
    struct table *table = aligned_alloc(64, sizeof *table);
    struct vb_nic *nic;

    if (!table)
        give_up("no memory", "for the table");
    if (vb_nic_open(&opts, &nic) != 0)
        give_up("cannot open a NIC", why);
    serve(nic, table, join);
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}

// The parent kills some from here on.
static void say_ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "";

    if (argc == 2 && strcmp(argv[1], "unrelated") == 0) {
        say_ready();
        work_elsewhere();
    }
    if (argc == 4 && strcmp(how, "plain") == 0)
        serve_plainly(argv[1], argv[3]);
    bool first = argc == 4 && strcmp(how, "first") == 0;
    bool leaves = argc == 3 && (strcmp(how, "check") == 0 || strcmp(how, "release") == 0);
    if (!first && !leaves && !(argc == 3 && strcmp(how, "again") == 0)) {
        fprintf(stderr, "usage: crash_app HULL first JOIN | HULL again|check|release | "
                        "ADDRESS plain JOIN | unrelated\n");
        return 2;
    }
    struct vb_nic *nic = attach(argv[1]);
    struct table *table = find_table(nic);
    if (first) {
        check(nic, "no tag", vb_service_tag(nic, GETS));
        serve(nic, table, argv[3]);
    }
    inspect(nic, table);
    if (!leaves) {
        say_ready();
        work(nic);
    }
    clean_up(nic);
    if (strcmp(how, "release") == 0)
        check(nic, "it cannot be released", vb_service_release(nic));
    vb_nic_close(nic);
    return 0;
}
