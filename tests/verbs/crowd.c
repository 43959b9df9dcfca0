// SPDX-License-Identifier: Apache-2.0
// One of a crowd of rdma_cm servers and clients (crowd_test.py). A client connects to a server at
// random, exchanges messages that name both, checks them, disconnects and begins again; what it did
// stands in a file that all share.
//
//     crowd FILE NUMBER server ADDRESS PORT
//     crowd FILE NUMBER client SEED FIRST_PORT SERVERS ADDRESS...
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    RECEIVES = 4,
    EXCHANGES = 20,
    PATIENCE_MS = 20 * 1000, // longer than queue pairs and messages are repeated
    RESOLVE_MS = 2000,
    BUCKETS = 32, // of times to connect, each twice as long as the one before
    BACKLOG = 64,
    CONNECTIONS = 512,
};

#define MAGIC 0x766572626e636d31ull

// What one process did. Read by crowd_test.py, which knows this layout.
struct score {
    _Atomic uint64_t beat_ns; // its last sign of life
    _Atomic uint64_t connected, refused, unreachable, broken, exchanged;
    _Atomic uint64_t wrong; // what was somebody else's
    _Atomic uint64_t took[BUCKETS];
    _Atomic uint64_t slowest_ns;
};

struct hello {
    uint64_t magic;
    uint32_t pid, number;
    uint32_t port, nonce;
};

struct message {
    struct hello client, server;
    uint64_t sequence;
    uint8_t bytes[200];
};

static volatile sig_atomic_t ends;

static void end(int signal)
{
    (void)signal;
    ends = 1;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "crowd %d: %s: %s\n", (int)getpid(), what, strerror(errno));
    exit(1);
}

static void fill(struct message *m)
{
    for (uint32_t i = 0; i < sizeof m->bytes; i++)
        m->bytes[i] = (uint8_t)(m->client.nonce * 31 + m->sequence * 7 + i);
}

static bool is_filled(const struct message *m)
{
    struct message wanted = *m;
    fill(&wanted);
    return memcmp(wanted.bytes, m->bytes, sizeof m->bytes) == 0;
}

// ---- one connection

struct conn {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct message *memory; // to receive, then to send
    struct hello peer;
    uint64_t sequence;
    bool gone;
};

static int post_receive(struct conn *c, uint64_t i)
{
    struct ibv_sge sge = {(uintptr_t)&c->memory[i], sizeof *c->memory, c->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(c->id->qp, &wr, &bad);
}

static int post_send(struct conn *c, const struct message *m)
{
    struct message *slot = &c->memory[RECEIVES + c->sequence++ % RECEIVES];
    *slot = *m;
    struct ibv_sge sge = {(uintptr_t)slot, sizeof *slot, c->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = RECEIVES,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    return ibv_post_send(c->id->qp, &wr, &bad);
}

static bool conn_open(struct conn *c, struct rdma_cm_id *id)
{
    *c = (struct conn){.id = id};
    c->memory = calloc(2 * RECEIVES, sizeof *c->memory);
    c->pd = ibv_alloc_pd(id->verbs);
    c->channel = ibv_create_comp_channel(id->verbs);
    if (!c->memory || !c->pd || !c->channel)
        return false;
    fcntl(c->channel->fd, F_SETFL, fcntl(c->channel->fd, F_GETFL) | O_NONBLOCK);
    c->mr = ibv_reg_mr(c->pd, c->memory, 2 * RECEIVES * sizeof *c->memory, IBV_ACCESS_LOCAL_WRITE);
    c->cq = ibv_create_cq(id->verbs, 4 * RECEIVES, c, c->channel, 0);
    if (!c->mr || !c->cq)
        return false;
    struct ibv_qp_init_attr attr = {.send_cq = c->cq,
                                    .recv_cq = c->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 2 * RECEIVES,
                                            .max_recv_wr = 2 * RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    if (rdma_create_qp(id, c->pd, &attr) != 0)
        return false;
    for (uint64_t i = 0; i < RECEIVES; i++)
        if (post_receive(c, i) != 0)
            return false;
    return ibv_req_notify_cq(c->cq, 0) == 0;
}

static void conn_close(struct conn *c)
{
    if (c->id->qp)
        rdma_destroy_qp(c->id);
    if (c->cq)
        ibv_destroy_cq(c->cq);
    if (c->mr)
        ibv_dereg_mr(c->mr);
    if (c->channel)
        ibv_destroy_comp_channel(c->channel);
    if (c->pd)
        ibv_dealloc_pd(c->pd);
    rdma_destroy_id(c->id);
    free(c->memory);
}

// Takes the notifications, and asks for the next one before the queue is looked at.
static void rearm(struct conn *c)
{
    struct ibv_cq *cq;
    void *context;
    unsigned taken = 0;
    while (ibv_get_cq_event(c->channel, &cq, &context) == 0)
        taken++;
    if (taken) {
        ibv_ack_cq_events(c->cq, taken);
        ibv_req_notify_cq(c->cq, 0);
    }
}

// ---- a server

struct server {
    struct score *score;
    struct hello self;
    struct rdma_event_channel *events;
    struct conn *conn[CONNECTIONS];
    uint32_t conns;
};

static void answer(struct server *s, struct conn *c, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        c->gone = true;
        return;
    }
    if (wc->wr_id >= RECEIVES)
        return;
    struct message m = c->memory[wc->wr_id];
    bool right = m.client.magic == MAGIC && memcmp(&m.client, &c->peer, sizeof m.client) == 0 &&
                 m.server.port == s->self.port && is_filled(&m);
    if (!right)
        s->score->wrong++;
    m.server = s->self;
    if (post_receive(c, wc->wr_id) != 0 || post_send(c, &m) != 0)
        c->gone = true;
    s->score->exchanged++;
}

static void serve_conn(struct server *s, struct conn *c)
{
    struct ibv_wc wc[RECEIVES];
    int n;
    rearm(c);
    while (!c->gone && (n = ibv_poll_cq(c->cq, RECEIVES, wc)) > 0)
        for (int i = 0; i < n; i++)
            answer(s, c, &wc[i]);
}

static void drop(struct server *s, struct conn *c)
{
    for (uint32_t i = 0; i < s->conns; i++)
        if (s->conn[i] == c)
            s->conn[i] = s->conn[--s->conns];
    conn_close(c);
    free(c);
}

static void meet(struct server *s, struct rdma_cm_event *event)
{
    struct rdma_cm_id *id = event->id;
    struct hello peer = {0};
    if (event->param.conn.private_data_len >= sizeof peer)
        memcpy(&peer, event->param.conn.private_data, sizeof peer);
    rdma_ack_cm_event(event);
    if (peer.magic != MAGIC || peer.port != s->self.port)
        s->score->wrong++;
    struct conn *c = s->conns < CONNECTIONS ? calloc(1, sizeof *c) : NULL;
    if (!c || !conn_open(c, id)) {
        rdma_reject(id, NULL, 0);
        if (c)
            conn_close(c);
        else
            rdma_destroy_id(id);
        free(c);
        return;
    }
    c->peer = peer;
    id->context = c;
    s->conn[s->conns++] = c;
    struct rdma_conn_param param = {
        .private_data = &s->self, .private_data_len = sizeof s->self, .rnr_retry_count = 7};
    if (rdma_accept(id, &param) != 0)
        drop(s, c);
}

static void serve_events(struct server *s)
{
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(s->events, &event) == 0) {
        struct conn *c = event->id->context;
        switch (event->event) {
        case RDMA_CM_EVENT_CONNECT_REQUEST: meet(s, event); continue; // it has acknowledged it
        case RDMA_CM_EVENT_ESTABLISHED: s->score->connected++; break;
        case RDMA_CM_EVENT_TIMEWAIT_EXIT: break;
        default: // its end, one way or the other
            if (c)
                c->gone = true;
        }
        rdma_ack_cm_event(event);
    }
}

static void run_server(struct score *score, uint32_t number, const char *address, const char *port)
{
    static struct server s;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE}, *at;
    struct rdma_cm_id *listener;

    s = (struct server){.score = score,
                        .self = {.magic = MAGIC,
                                 .pid = (uint32_t)getpid(),
                                 .number = number,
                                 .port = (uint32_t)atoi(port)}};
    s.events = rdma_create_event_channel();
    if (!s.events || rdma_create_id(s.events, &listener, NULL, RDMA_PS_TCP) != 0)
        die("rdma_create_id");
    fcntl(s.events->fd, F_SETFL, fcntl(s.events->fd, F_GETFL) | O_NONBLOCK);
    if (getaddrinfo(address, port, &hints, &at) != 0)
        die("getaddrinfo");
    if (rdma_bind_addr(listener, at->ai_addr) != 0)
        die("rdma_bind_addr");
    if (rdma_listen(listener, BACKLOG) != 0)
        die("rdma_listen");
    freeaddrinfo(at);
    while (!ends) {
        struct pollfd fds[1 + CONNECTIONS] = {{.fd = s.events->fd, .events = POLLIN}};
        uint32_t watched = s.conns;
        for (uint32_t i = 0; i < watched; i++)
            fds[1 + i] = (struct pollfd){.fd = s.conn[i]->channel->fd, .events = POLLIN};
        poll(fds, 1 + watched, 200);
        score->beat_ns = now_ns();
        for (uint32_t i = 0; i < watched; i++)
            if (fds[1 + i].revents)
                serve_conn(&s, s.conn[i]);
        serve_events(&s);
        for (uint32_t i = s.conns; i-- > 0;)
            if (s.conn[i]->gone) {
                rdma_disconnect(s.conn[i]->id);
                drop(&s, s.conn[i]);
            }
    }
    while (s.conns > 0)
        drop(&s, s.conn[0]);
    rdma_destroy_id(listener);
    rdma_destroy_event_channel(s.events);
}

// ---- a client

struct client {
    struct score *score;
    struct hello self;
    struct rdma_event_channel *events;
    struct hello server;
    uint64_t random;
};

static uint32_t draw(struct client *c, uint32_t below)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((c->random >> 33) % below);
}

// The next event must be this one. False: it is another, or none.
static bool await(struct client *c, enum rdma_cm_event_type wanted)
{
    struct pollfd fd = {.fd = c->events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&fd, 1, PATIENCE_MS) <= 0 || rdma_get_cm_event(c->events, &event) != 0) {
        c->score->unreachable++;
        return false;
    }
    bool right = event->event == wanted;
    if (event->event == RDMA_CM_EVENT_REJECTED)
        c->score->refused++;
    else if (!right)
        c->score->unreachable++;
    if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
        memset(&c->server, 0, sizeof c->server);
        if (event->param.conn.private_data_len >= sizeof c->server)
            memcpy(&c->server, event->param.conn.private_data, sizeof c->server);
        if (c->server.magic != MAGIC || c->server.port != c->self.port)
            c->score->wrong++;
    }
    rdma_ack_cm_event(event);
    return right;
}

static void note_time(struct score *s, uint64_t took_ns)
{
    uint32_t bucket = 0;
    for (uint64_t us = took_ns / 1000; us > 1 && bucket + 1 < BUCKETS; us /= 2)
        bucket++;
    s->took[bucket]++;
    if (took_ns > s->slowest_ns)
        s->slowest_ns = took_ns;
}

// Waits for the answer. False: the connection has ended.
static bool hear(struct client *c, struct conn *conn, const struct message *sent)
{
    uint64_t until_ns = now_ns() + PATIENCE_MS * 1000000ull;
    bool heard = false, left = false;
    while (!heard || !left) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(conn->cq, 1, &wc);
        if (n == 0) {
            struct pollfd fd = {.fd = conn->channel->fd, .events = POLLIN};
            if (now_ns() > until_ns)
                return false;
            poll(&fd, 1, 100);
            rearm(conn);
            continue;
        }
        if (n < 0 || wc.status != IBV_WC_SUCCESS)
            return false;
        if (wc.wr_id >= RECEIVES) {
            left = true;
            continue;
        }
        const struct message *m = &conn->memory[wc.wr_id];
        bool right = memcmp(&m->client, &c->self, sizeof m->client) == 0 &&
                     memcmp(&m->server, &c->server, sizeof m->server) == 0 &&
                     m->sequence == sent->sequence && is_filled(m);
        if (!right)
            c->score->wrong++;
        heard = true;
        if (post_receive(conn, wc.wr_id) != 0)
            return false;
    }
    return true;
}

static void work(struct client *c, struct conn *conn)
{
    for (uint64_t i = 0; i < EXCHANGES && !ends; i++) {
        struct message m = {.client = c->self, .server = c->server, .sequence = i};
        fill(&m);
        if (post_send(conn, &m) != 0 || !hear(c, conn, &m)) {
            c->score->broken++;
            return;
        }
        c->score->exchanged++;
        c->score->beat_ns = now_ns();
    }
}

static void visit(struct client *c, struct sockaddr *at)
{
    struct rdma_cm_id *id;
    struct conn conn;
    uint64_t begin_ns = now_ns();
    struct rdma_conn_param param = {.private_data = &c->self,
                                    .private_data_len = sizeof c->self,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 6,
                                    .rnr_retry_count = 7};

    c->events = rdma_create_event_channel();
    if (!c->events || rdma_create_id(c->events, &id, NULL, RDMA_PS_TCP) != 0)
        die("rdma_create_id");
    conn = (struct conn){.id = id};
    bool there = rdma_resolve_addr(id, NULL, at, RESOLVE_MS) == 0 &&
                 await(c, RDMA_CM_EVENT_ADDR_RESOLVED) && rdma_resolve_route(id, RESOLVE_MS) == 0 &&
                 await(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (there && !conn_open(&conn, id))
        die("cannot make a queue pair");
    if (there && rdma_connect(id, &param) == 0 && await(c, RDMA_CM_EVENT_ESTABLISHED)) {
        note_time(c->score, now_ns() - begin_ns);
        c->score->connected++;
        work(c, &conn);
        rdma_disconnect(id);
    }
    conn_close(&conn);
    rdma_destroy_event_channel(c->events);
}

static void run_client(struct score *score, uint32_t number, char **argv)
{
    uint32_t first = (uint32_t)atoi(argv[1]), servers = (uint32_t)atoi(argv[2]), addresses = 0;
    struct client c = {.score = score, .random = strtoull(argv[0], NULL, 10)};

    while (argv[3 + addresses])
        addresses++;
    c.self = (struct hello){.magic = MAGIC, .pid = (uint32_t)getpid(), .number = number};
    while (!ends) {
        struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *at;
        char port[16];
        c.self.port = first + draw(&c, servers);
        c.self.nonce = draw(&c, UINT32_MAX);
        snprintf(port, sizeof port, "%u", c.self.port);
        if (getaddrinfo(argv[3 + draw(&c, addresses)], port, &hints, &at) != 0)
            die("getaddrinfo");
        visit(&c, at->ai_addr);
        freeaddrinfo(at);
        score->beat_ns = now_ns();
        usleep(1000 * draw(&c, 50)); // so that clients mix
    }
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: crowd FILE NUMBER server ADDRESS PORT\n"
                        "       crowd FILE NUMBER client SEED FIRST_PORT SERVERS ADDRESS...\n");
        return 2;
    }
    int fd = open(argv[1], O_RDWR);
    uint32_t number = (uint32_t)atoi(argv[2]);
    struct score *scores = fd < 0 ? MAP_FAILED
                                  : mmap(NULL, (number + 1) * sizeof *scores,
                                         PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (scores == MAP_FAILED)
        die(argv[1]);
    signal(SIGTERM, end);
    if (strcmp(argv[3], "server") == 0)
        run_server(&scores[number], number, argv[4], argv[5]);
    else
        run_client(&scores[number], number, argv + 4);
    return 0;
}
