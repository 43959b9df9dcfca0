// SPDX-License-Identifier: Apache-2.0
// incast [SENDERS [SECONDS [BYTES]]]: many processes write to one over UDP on loopback, through
// sockets that hold no more than an ordinary user's: what is left of one sender's goodput, and
// whether any queue pair gave up. Prints one JSON object.
#include "verbena/nic.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SENDERS_MAX = 16,
    DEPTH = 16,
    MESSAGE = 64 << 10,
    PATIENCE_S = 20,
};

// What a process tells the others.
struct name {
    uint8_t gid[16];
    uint32_t qpn;
    uint64_t addr;
    uint32_t key;
};

struct sender {
    struct name name, sink; // its own, and what it writes to
    uint64_t bytes;         // completed
    uint64_t naks, timeouts, gave_up;
    enum vb_wc_status status; // of the first that failed
};

struct board {
    uint32_t senders;
    double seconds;                     // asked for, then how long it really was
    atomic_uint named, connected, done; // how many have come so far
    atomic_bool sink_named, go, stop, failed;
    struct sender sender[SENDERS_MAX];
};

struct end {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    uint8_t *memory;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void give_up(struct board *b, const char *what, const char *why)
{
    fprintf(stderr, "incast: %s: %s\n", what, why);
    atomic_store(&b->failed, true);
    _exit(1);
}

static void check(struct board *b, const char *what, int error)
{
    if (error)
        give_up(b, what, strerror(-error));
}

static void await(struct board *b, const atomic_uint *count, uint32_t n)
{
    double limit = now_s() + PATIENCE_S;
    while (atomic_load(count) < n) {
        if (atomic_load(&b->failed) || now_s() > limit)
            give_up(b, "waiting", "the others do not come");
        usleep(200);
    }
}

// ---- ends

static void open_end(struct board *b, struct end *e, uint32_t host, size_t bytes)
{
    char address[32], why[VB_ERROR_TEXT];
    // Of this process group alone, so that others may measure meanwhile.
    snprintf(address, sizeof address, "127.%d.%d.%u", 64 + getpgrp() / 250 % 128,
             1 + getpgrp() % 250, 1 + host);
    struct vb_nic_opts opts = {.address = address, .port = "udp", .error_text = why};
    if (vb_nic_open(&opts, &e->nic) != 0)
        give_up(b, address, why);
    e->memory = calloc(1, bytes);
    check(b, "memory", e->memory ? 0 : -ENOMEM);
    check(b, "domain", vb_pd_alloc(e->nic, &e->pd));
    check(b, "region",
          vb_mr_reg(e->pd, e->memory, bytes, VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE, &e->mr));
    check(b, "queue",
          vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = DEPTH * SENDERS_MAX}, &e->cq));
}

static struct vb_qp *make_qp(struct board *b, struct end *e)
{
    struct vb_qp *qp;
    check(b, "queue pair",
          vb_qp_create(
              e->pd, &(struct vb_qp_opts){.send_cq = e->cq, .recv_cq = e->cq, .send_depth = DEPTH},
              &qp));
    return qp;
}

static void name_it(const struct end *e, const struct vb_qp *qp, uint64_t offset, struct name *name)
{
    vb_nic_gid(e->nic, name->gid);
    name->qpn = vb_qp_num(qp);
    name->addr = (uint64_t)(uintptr_t)e->memory + offset;
    name->key = vb_mr_key(e->mr);
}

static void connect_to(struct board *b, struct vb_qp *qp, const struct name *peer)
{
    struct vb_qp_peer p = {.qpn = peer->qpn, .rights = VB_RIGHT_REMOTE_WRITE};
    memcpy(p.gid, peer->gid, sizeof p.gid);
    check(b, "connect", vb_qp_connect(qp, &p));
}

// ---- a sender

static void write_on(struct board *b, struct end *e, struct vb_qp *qp, struct sender *s)
{
    struct vb_sge sge = {(uint64_t)(uintptr_t)e->memory, MESSAGE, vb_mr_key(e->mr)};
    const struct vb_send_wr wr = {.sge = &sge,
                                  .num_sge = 1,
                                  .opcode = VB_WR_WRITE,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = s->sink.addr,
                                  .rkey = s->sink.key};
    struct vb_wc wc[DEPTH];
    uint32_t flight = 0;

    while (s->status == VB_WC_OK && (flight > 0 || !atomic_load(&b->stop))) {
        while (flight < DEPTH && !atomic_load(&b->stop) && vb_post_send(qp, &wr, 1) == 1)
            flight++;
        int n = vb_poll_cq(e->cq, wc, DEPTH);
        for (int i = 0; i < n; i++) {
            flight--;
            if (wc[i].status == VB_WC_OK)
                s->bytes += atomic_load(&b->stop) ? 0 : MESSAGE;
            else if (s->status == VB_WC_OK)
                s->status = wc[i].status; // the others are flushed
        }
        if (n <= 0)
            sched_yield();
    }
}

static uint64_t counter(const struct end *e, const char *name)
{
    uint64_t value = 0;
    (void)vb_nic_counter(e->nic, name, &value);
    return value;
}

static _Noreturn void be_sender(struct board *b, uint32_t index)
{
    struct sender *s = &b->sender[index];
    struct end e;
    open_end(b, &e, 1 + index, MESSAGE);
    memset(e.memory, (int)index + 1, MESSAGE);
    struct vb_qp *qp = make_qp(b, &e);
    name_it(&e, qp, 0, &s->name);
    atomic_fetch_add(&b->named, 1);
    while (!atomic_load(&b->sink_named) && !atomic_load(&b->failed))
        usleep(200);
    connect_to(b, qp, &s->sink);
    atomic_fetch_add(&b->connected, 1);
    while (!atomic_load(&b->go) && !atomic_load(&b->failed))
        usleep(200);
    write_on(b, &e, qp, s);
    s->naks = counter(&e, "packet_seq_err");
    s->timeouts = counter(&e, "local_ack_timeout_err");
    s->gave_up = counter(&e, "retry_exceeded_err");
    atomic_fetch_add(&b->done, 1);
    vb_nic_close(e.nic);
    _exit(0);
}

// ---- the receiver

static bool is_filled(const uint8_t *bytes, uint8_t with)
{
    for (uint32_t i = 0; i < MESSAGE; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

static _Noreturn void be_sink(struct board *b)
{
    struct vb_qp *qp[SENDERS_MAX];
    struct end e;
    open_end(b, &e, 0, (size_t)MESSAGE * b->senders);
    for (uint32_t i = 0; i < b->senders; i++) {
        qp[i] = make_qp(b, &e);
        name_it(&e, qp[i], (uint64_t)MESSAGE * i, &b->sender[i].sink);
    }
    await(b, &b->named, b->senders);
    for (uint32_t i = 0; i < b->senders; i++)
        connect_to(b, qp[i], &b->sender[i].name);
    atomic_store(&b->sink_named, true);
    await(b, &b->connected, b->senders);
    atomic_store(&b->go, true);
    double begin = now_s(), end = begin + b->seconds;
    while (atomic_load(&b->done) < b->senders && !atomic_load(&b->failed)) {
        if (vb_nic_progress(e.nic) == 0)
            sched_yield();
        double now = now_s();
        if (now >= end && !atomic_load(&b->stop)) {
            atomic_store(&b->stop, true);
            b->seconds = now_s() - begin; // the scheduler may have been late
        }
        if (now >= end + PATIENCE_S)
            give_up(b, "the end", "senders do not finish");
    }
    for (uint32_t i = 0; i < b->senders; i++)
        if (b->sender[i].bytes && !is_filled(e.memory + (size_t)MESSAGE * i, (uint8_t)(i + 1)))
            give_up(b, "verification", "the target's memory holds other bytes");
    vb_nic_close(e.nic);
    _exit(0);
}

// ---- all

static struct board *measure(uint32_t senders, double seconds)
{
    struct board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status, failed = 0;
    if (b == MAP_FAILED)
        exit(1);
    b->senders = senders;
    b->seconds = seconds;
    fflush(NULL);
    for (uint32_t i = 0; i <= senders; i++) {
        pid_t child = fork();
        if (child < 0) {
            perror("incast: fork");
            atomic_store(&b->failed, true);
            break;
        }
        if (child == 0 && i == 0)
            be_sink(b);
        if (child == 0)
            be_sender(b, i - 1);
    }
    while (wait(&status) > 0 || errno == EINTR)
        failed |= status;
    if (failed || atomic_load(&b->failed))
        exit(1);
    return b;
}

static struct sender sum_of(const struct board *b)
{
    struct sender sum = {0};
    for (uint32_t i = 0; i < b->senders; i++) {
        const struct sender *s = &b->sender[i];
        sum.bytes += s->bytes;
        sum.naks += s->naks;
        sum.timeouts += s->timeouts;
        sum.gave_up += s->gave_up || s->status != VB_WC_OK;
    }
    return sum;
}

static double gbps(uint64_t bytes, const struct board *b)
{
    return (double)bytes * 8e-9 / b->seconds;
}

static uint64_t least_of(const struct board *b)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < b->senders; i++)
        least = b->sender[i].bytes < least ? b->sender[i].bytes : least;
    return least;
}

static void print_sum(const char *who, const struct board *b, const struct sender *s)
{
    printf("\"%s_gbps\":%.4f,\"%s_naks\":%llu,\"%s_timeouts\":%llu,", who, gbps(s->bytes, b), who,
           (unsigned long long)s->naks, who, (unsigned long long)s->timeouts);
}

int main(int argc, char **argv)
{
    unsigned long senders = argc > 1 ? strtoul(argv[1], NULL, 10) : 8;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;
    // Debian's net.core.rmem_max, which the kernel doubles.
    const char *bytes = argc > 3 ? argv[3] : "212992";

    if (senders < 1 || senders > SENDERS_MAX || !(seconds > 0 && seconds <= 600)) {
        fprintf(stderr,
                "usage: incast [SENDERS, up to 16] [SECONDS] [BYTES of a socket's buffer]\n");
        return 2;
    }
    setenv("VERBENA_SOCKET_BYTES", bytes, 1);
    const struct board *one = measure(1, seconds), *all = measure((uint32_t)senders, seconds);
    struct sender alone = sum_of(one), together = sum_of(all);
    printf("{\"senders\":%lu,\"socket_bytes\":%s,", senders, bytes);
    print_sum("one", one, &alone);
    print_sum("all", all, &together);
    printf("\"least_gbps\":%.4f,\"ratio\":%.4f,\"retries_exceeded\":%llu}\n",
           gbps(least_of(all), all), gbps(together.bytes, all) / gbps(alone.bytes, one),
           (unsigned long long)(alone.gave_up + together.gave_up));
    return alone.gave_up + together.gave_up > 0;
}
