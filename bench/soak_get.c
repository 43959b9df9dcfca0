// SPDX-License-Identifier: Apache-2.0
// soak_get [--port shm|udp] [--gets N] [--depth N] [--awake]: hash gets that a server's NIC answers
// for as long as one likes. The server is a process of its own; after set-up its thread sleeps in
// read(), and only the NIC's own thread runs. The client checks every answer, and that the
// scheduler has not given the server's thread any time from the first get to the last. With --awake
// that thread does run, which must be noticed. Prints one JSON object.
#include "verbena/nic.h"
#include "verbena/offload.h"
#include "verbena/offload_service.h"

#include <endian.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    KEYS = 1024,
    VALUE = 64,
    MISS_EVERY = 8,
    SIGNAL_EVERY = 16,
    BATCH = 64,
    BAR = 40,
    PATIENCE_MS = 10000,
    LOOK_EVERY = 1 << 12, // turns between looks at the clock
};

struct options {
    const char *port;
    uint64_t gets;
    uint32_t depth;
    bool awake;
};

struct table {
    struct vb_hash_bucket index[KEYS];
    uint8_t items[KEYS][VALUE];
};

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "soak_get: %s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, int error)
{
    if (error < 0)
        give_up(what, strerror(-error));
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct vb_nic *open_nic(const struct options *o, pid_t pid, uint32_t host)
{
    char address[32], why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic;
    unsigned low = (unsigned)pid & 255, high = 64 + ((unsigned)pid >> 8 & 63);

    snprintf(address, sizeof address, "127.%u.%u.%u", high, low, host);
    if (vb_nic_open(&(struct vb_nic_opts){.address = address, .port = o->port, .error_text = why},
                    &nic) != 0)
        give_up("cannot open a NIC", why);
    return nic;
}

static void key_of(uint64_t n, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (n + 1) * 0x9e3779b97f4bull;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}

static void value_of(uint64_t n, uint8_t value[VALUE])
{
    for (uint32_t i = 0; i < VALUE; i++)
        value[i] = (uint8_t)((n * 0x9e3779b97f4a7c15u >> 8) + i * 7);
}

// ---- the server

static struct vb_image *make_get(void *ctx, uint32_t depth, char *error)
{
    (void)ctx;
    return vb_offload_hash_get(&(struct vb_hash_opts){.slots = depth, .value_max = VALUE}, error);
}

static struct vb_offload_service *offer(struct vb_nic *nic, struct table *t)
{
    struct vb_offload_service *service;
    char error[VB_OFFLOAD_TEXT] = "";
    const struct vb_offload_memory memory[] = {{"index", t->index, sizeof t->index, false},
                                               {"items", t->items, sizeof t->items, false}};

    for (uint32_t n = 0; n < KEYS; n++) {
        uint8_t key[VB_HASH_KEY_BYTES];
        key_of(n, key);
        t->index[n].addr = htobe64((uintptr_t)t->items[n]);
        t->index[n].len = t->index[n].len_again = htobe32(VALUE);
        vb_hash_store_key(t->index[n].key, key);
        value_of(n, t->items[n]);
    }
    check("cannot open the service",
          vb_offload_open(nic, &(struct vb_offload_service_opts){0}, &service));
    if (vb_offload_add(service,
                       &(struct vb_offload_offer){.name = "get",
                                                  .make = make_get,
                                                  .memory = memory,
                                                  .memories = 2,
                                                  .depth_max = 256,
                                                  .request_bytes = sizeof(struct vb_hash_request),
                                                  .answer_bytes = VALUE},
                       error) != 0)
        give_up("cannot offer the get", error);
    return service;
}

// Serves until a client has joined; then it says so and sleeps until it is told that all is over.
static _Noreturn void serve(const struct options *o, pid_t pid, int listener, int line)
{
    static struct table table;
    struct vb_offload_stream *stream;
    struct vb_offload_stat stat = {0};
    char byte = 'r';

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct vb_nic *nic = open_nic(o, pid, 2);
    struct vb_offload_service *service = offer(nic, &table);
    check("no connections", vb_offload_stream_open(service, listener, &stream));
    while (stat.clients == 0) {
        check("no messages", vb_offload_stream_turn(stream, -1));
        vb_offload_query(service, &stat);
    }
    if (write(line, &byte, 1) != 1)
        exit(1);
    while (o->awake && recv(line, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
        usleep(1000);
    if (read(line, &byte, 1) < 0) // here it stays
        exit(1);
    vb_offload_query(service, &stat);
    vb_offload_stream_close(stream);
    vb_offload_close(service);
    vb_nic_close(nic);
    exit(stat.clients == 1 ? 0 : 1);
}

// ---- what the scheduler says of the server's thread

struct used {
    uint64_t ns, slices;
    char state;
};

static FILE *open_task(pid_t pid, const char *what)
{
    char name[64];

    snprintf(name, sizeof name, "/proc/%d/task/%d/%s", pid, pid, what);
    FILE *f = fopen(name, "r");
    if (!f)
        give_up(name, "the kernel does not say how long threads ran");
    return f;
}

// The state first: of a thread that slept then, the times are those before its sleep.
static struct used used_by(pid_t pid)
{
    struct used u = {0};
    FILE *stat = open_task(pid, "stat");

    bool right = fscanf(stat, "%*d (%*[^)]) %c", &u.state) == 1;
    FILE *times = open_task(pid, "schedstat");
    if (!right || fscanf(times, "%" SCNu64 " %*u %" SCNu64, &u.ns, &u.slices) != 2)
        give_up("the server's thread", "what the kernel says of it makes no sense");
    fclose(stat);
    fclose(times);
    return u;
}

static struct used wait_asleep(pid_t pid, bool awake)
{
    struct used u = used_by(pid);

    for (double until = now_s() + PATIENCE_MS / 1e3; !awake && u.state != 'S'; u = used_by(pid))
        if (now_s() > until)
            give_up("the server", "it does not go to sleep");
    return u;
}

// ---- the client

struct client {
    const struct options *o;
    struct vb_nic *nic;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_offload_place place;
    uint8_t *replies; // depth * VALUE
    uint64_t asked, answered, hits, wrong;
};

static void connect_to(struct client *c, int fd, struct vb_mr *mr)
{
    uint8_t message[VB_OFFLOAD_MESSAGE], answer[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT] = "";
    struct vb_offload_join join = {.offload = "get",
                                   .qpn = vb_qp_num(c->qp),
                                   .depth = c->o->depth,
                                   .addr = (uintptr_t)c->replies,
                                   .bytes = (uint64_t)c->o->depth * VALUE,
                                   .key = vb_mr_key(mr)};

    vb_nic_gid(c->nic, join.gid);
    if (getrandom(&join.nonce, sizeof join.nonce, 0) != sizeof join.nonce)
        give_up("no random numbers", "getrandom");
    uint32_t len = vb_offload_write_join(message, &join);
    int bytes = vb_offload_call(fd, message, len, answer, PATIENCE_MS);
    check("the server does not answer", bytes);
    if (vb_offload_read_place(answer, (size_t)bytes, &c->place, error) != 0)
        give_up("refused", error);
    struct vb_qp_peer peer = {.qpn = c->place.qpn,
                              .psn = c->place.psn,
                              .our_psn = join.psn,
                              .rights = VB_RIGHT_REMOTE_WRITE};
    memcpy(peer.gid, c->place.gid, sizeof peer.gid);
    check("cannot connect", vb_qp_connect(c->qp, &peer));
}

static void open_client(struct client *c, const struct options *o, pid_t pid, int fd)
{
    struct vb_pd *pd;
    struct vb_mr *mr;

    *c = (struct client){.o = o, .nic = open_nic(o, pid, 1)};
    c->replies = calloc(o->depth, VALUE);
    check("no domain", vb_pd_alloc(c->nic, &pd));
    check("no queue",
          vb_cq_create(c->nic, &(struct vb_cq_opts){.entries = 4 * o->depth + 64}, &c->cq));
    if (!c->replies)
        give_up("no memory", "for answers");
    check("cannot register memory", vb_mr_reg(pd, c->replies, (size_t)o->depth * VALUE,
                                              VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE, &mr));
    check("no queue pair", vb_qp_create(pd,
                                        &(struct vb_qp_opts){
                                            .send_cq = c->cq,
                                            .recv_cq = c->cq,
                                            .send_depth = o->depth + SIGNAL_EVERY,
                                            .recv_depth = o->depth,
                                            .inline_bytes = sizeof(struct vb_hash_request),
                                        },
                                        &c->qp));
    connect_to(c, fd, mr);
    for (uint32_t i = 0; i < o->depth; i++)
        check("no receive", vb_post_recv(c->qp, &(struct vb_recv_wr){0}, 1) == 1 ? 0 : -1);
}

static bool is_miss(uint64_t n)
{
    return n % MISS_EVERY == MISS_EVERY - 1;
}

// A key that is there, or one that is not in the bucket of another.
static void ask(struct client *c)
{
    uint64_t n = c->asked++, pick = n * 0x9e3779b1u % KEYS;
    uint64_t bucket = htobe64(c->place.region[0].addr + pick * sizeof(struct vb_hash_bucket));
    struct vb_hash_request request;
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};

    key_of(is_miss(n) ? pick + KEYS : pick, request.key);
    memcpy(request.bucket, &bucket, sizeof bucket);
    check("the queue pair is full",
          vb_post_send(c->qp,
                       &(struct vb_send_wr){.opcode = VB_WR_SEND,
                                            .flags = VB_WR_INLINE |
                                                     (n % SIGNAL_EVERY == 0 ? VB_WR_SIGNALED : 0),
                                            .sge = &sge,
                                            .num_sge = 1},
                       1) == 1
              ? 0
              : -1);
}

// Every byte, and what was there before cannot pass for it.
static void take(struct client *c, const struct vb_wc *wc)
{
    uint8_t expected[VALUE];
    uint64_t n = c->answered++;
    uint8_t *reply = c->replies + n % c->o->depth * VALUE;

    value_of(n * 0x9e3779b1u % KEYS, expected);
    if (is_miss(n))
        c->wrong += be32toh(wc->imm) != VB_HASH_MISS;
    else
        c->wrong += be32toh(wc->imm) != VALUE || memcmp(reply, expected, VALUE) != 0;
    c->hits += !is_miss(n);
    memset(reply, 0, 8);
    reply[0] = (uint8_t)~expected[0];
    check("no receive", vb_post_recv(c->qp, &(struct vb_recv_wr){0}, 1) == 1 ? 0 : -1);
}

static void show(const struct client *c, double begun)
{
    double part = (double)c->answered / (double)c->o->gets,
           rate = (double)c->answered / (now_s() - begun);
    char bar[BAR + 1];

    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    fprintf(stderr, "\r%s [%s] %5.1f %%  %.2f M gets/s", c->o->port, bar, part * 100, rate / 1e6);
}

static void run(struct client *c, double begun)
{
    bool terminal = isatty(STDERR_FILENO);
    uint64_t seen = 0, ahead = c->o->depth / 2;
    double shown = begun, moved = begun;
    struct vb_wc wc[BATCH];

    for (uint32_t turn = 1; c->answered < c->o->gets; turn++) {
        while (c->asked < c->o->gets && c->asked - c->answered < ahead)
            ask(c);
        int n = vb_poll_cq(c->cq, wc, BATCH);
        for (int i = 0; i < n; i++) {
            if (wc[i].status != VB_WC_OK)
                give_up("a get failed", vb_wc_status_text(wc[i].status));
            if (wc[i].opcode == VB_WC_RECV_WRITE)
                take(c, &wc[i]);
        }
        if (turn % LOOK_EVERY)
            continue;
        double now = now_s();
        if (c->answered != seen)
            moved = now;
        seen = c->answered;
        if (now - moved > PATIENCE_MS / 1e3)
            give_up("the server", "no answer for ten seconds");
        if (terminal && now - shown > 0.25) {
            shown = now;
            show(c, begun);
        }
    }
    if (terminal)
        fprintf(stderr, "\r%*s\r", BAR + 50, "");
}

// ---- both

static int listen_here(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)at, &len) != 0)
        give_up("cannot listen", "on 127.0.0.1");
    return fd;
}

static int soak(const struct options *o)
{
    struct client c;
    struct sockaddr_in at;
    int line[2], status = 0, listener = listen_here(&at), fd = socket(AF_INET, SOCK_STREAM, 0);
    pid_t self = getpid();
    char byte;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        give_up("no socket pair", "to the server");
    pid_t server = fork();
    if (server == 0) {
        close(line[0]);
        serve(o, self, listener, line[1]);
    }
    close(line[1]);
    close(listener);
    if (server < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        give_up("no server", "fork() or connect()");
    open_client(&c, o, self, fd);
    if (read(line[0], &byte, 1) != 1)
        give_up("the server", "it is gone");
    struct used before = wait_asleep(server, o->awake);
    double begun = now_s();
    run(&c, begun);
    double seconds = now_s() - begun;
    struct used after = used_by(server);
    close(line[0]); // it may wake up
    uint64_t ns = after.ns - before.ns, slices = after.slices - before.slices;
    bool right = c.wrong == 0 && c.answered == o->gets && ns == 0 && slices == 0;
    if (waitpid(server, &status, 0) != server || status != 0)
        right = false;
    printf("{\"bench\":\"soak_get\",\"port\":\"%s\",\"gets\":%" PRIu64
           ",\"depth\":%u,\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"wrong\":%" PRIu64
           ",\"seconds\":%.1f,\"gets_per_second\":%.0f,\"server_thread_ns\":%" PRIu64
           ",\"server_thread_slices\":%" PRIu64 ",\"ok\":%s}\n",
           o->port, c.answered, o->depth, c.hits, c.answered - c.hits, c.wrong, seconds,
           (double)c.answered / seconds, ns, slices, right ? "true" : "false");
    vb_nic_close(c.nic);
    free(c.replies);
    return right ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"port", required_argument, NULL, 'p'},
                                          {"gets", required_argument, NULL, 'n'},
                                          {"depth", required_argument, NULL, 'd'},
                                          {"awake", no_argument, NULL, 'a'},
                                          {0}};
    struct options o = {.port = "shm", .gets = 40000000, .depth = 64};
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'p': o.port = optarg; break;
        case 'n': o.gets = strtoull(optarg, NULL, 10); break;
        case 'd': o.depth = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'a': o.awake = true; break;
        default: return 2;
        }
    }
    if (optind != argc || o.gets == 0 || o.depth < 2 || o.depth > 256 || o.depth & (o.depth - 1)) {
        fprintf(stderr,
                "soak_get: [--port shm|udp] [--gets N] [--depth N] [--awake]; the depth is a "
                "power of two from 2 to 256\n");
        return 2;
    }
    return soak(&o);
}
