// SPDX-License-Identifier: Apache-2.0
// A peer for ibv_rc_pingpong: speaks its TCP handshake and bounces messages over a Verbena NIC. The
// peer keeps one buffer for both directions, so what it sends is what it received last: both ends'
// bytes can be checked whole.
#include "verbena/nic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HELLO_BYTES = sizeof "0000:000000:000000:00000000000000000000000000000000",
    PAGE = 4096,    // the peer's check wants zeros at page starts
    QUIET_MS = 200, // an acknowledgement of ours may be lost: stay until the peer is quiet
};

struct options {
    const char *local, *peer; // of the handshake
    const char *nic;          // the NIC's address; NULL: the same
    unsigned tcp_port, size, iters, mtu, rx_depth, seconds_limit;
    unsigned drop_ppm;
    unsigned signal_every; // messages; the last one signals too
    bool check;
};

struct pingpong {
    struct options o;
    struct vb_nic *nic;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint8_t *in, *out, *expect;
    uint32_t our_psn;
    unsigned sent, sent_done, received;
};

__attribute__((format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("rc_pingpong: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- the handshake

static int tcp_listen(const struct options *o)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->tcp_port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, o->local, &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1))
        die("cannot listen on %s:%u: %s", o->local, o->tcp_port, strerror(errno));
    printf("listening on %s:%u\n", o->local, o->tcp_port);
    fflush(stdout);
    int conn = accept(fd, NULL, NULL);
    if (conn < 0)
        die("accept: %s", strerror(errno));
    close(fd);
    return conn;
}

static int tcp_connect(const struct options *o)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->tcp_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (inet_pton(AF_INET, o->peer, &to.sin_addr) != 1)
        die("'%s' is not an IPv4 address", o->peer);
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        die("cannot connect to %s:%u: %s", o->peer, o->tcp_port, strerror(errno));
    return fd;
}

static void hello_write(const struct pingpong *p, int fd)
{
    char text[HELLO_BYTES], gid[33];
    uint8_t raw[16];

    vb_nic_gid(p->nic, raw);
    for (int i = 0; i < 16; i++)
        snprintf(gid + 2 * i, 3, "%02x", raw[i]);
    snprintf(text, sizeof text, "%04x:%06x:%06x:%s", 0, vb_qp_num(p->qp), p->our_psn, gid);
    if (write(fd, text, sizeof text) != (ssize_t)sizeof text)
        die("handshake write: %s", strerror(errno));
}

static struct vb_qp_peer hello_read(const struct pingpong *p, int fd)
{
    struct vb_qp_peer peer = {.our_psn = p->our_psn, .mtu = p->o.mtu};
    char text[HELLO_BYTES + 1] = "", gid[33];
    unsigned lid, qpn, psn;
    size_t got = 0;

    while (got < HELLO_BYTES) {
        ssize_t n = read(fd, text + got, HELLO_BYTES - got);
        if (n <= 0)
            die("handshake: the peer hung up");
        got += (size_t)n;
    }
    if (sscanf(text, "%x:%x:%x:%32s", &lid, &qpn, &psn, gid) != 4 || strlen(gid) != 32)
        die("handshake: '%s' is not an address", text);
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(gid + 2 * i, "%2x", &byte) != 1)
            die("handshake: '%s' is not a GID", gid);
        peer.gid[i] = (uint8_t)byte;
    }
    peer.qpn = qpn;
    peer.psn = psn;
    return peer;
}

static void meet(struct pingpong *p)
{
    bool server = !p->o.peer;
    int fd = server ? tcp_listen(&p->o) : tcp_connect(&p->o);
    char done[HELLO_BYTES];

    if (!server)
        hello_write(p, fd);
    struct vb_qp_peer peer = hello_read(p, fd);
    int err = vb_qp_connect(p->qp, &peer);
    if (err)
        die("connect: %s", strerror(-err));
    if (server) {
        hello_write(p, fd);
        if (read(fd, done, sizeof done) < 0)
            die("handshake: %s", strerror(errno));
    } else if (write(fd, "done", sizeof "done") != sizeof "done") {
        die("handshake: %s", strerror(errno));
    }
    close(fd);
}

// ---- messages

static void fill(uint8_t *buf, unsigned size, bool server, unsigned k)
{
    uint32_t x = (k * 2 + server) * 2654435761u + 1;
    for (unsigned i = 0; i < size; i++) {
        x = x * 1664525 + 1013904223;
        buf[i] = i % PAGE ? (uint8_t)(x >> 24) : 0;
    }
}

static void post_recv(struct pingpong *p)
{
    struct vb_sge sge = {(uintptr_t)p->in, p->o.size, vb_mr_key(p->mr)};
    if (vb_post_recv(p->qp, &(struct vb_recv_wr){.wr_id = 1, .sge = &sge, .num_sge = 1}, 1) != 1)
        die("post_recv failed");
}

static void post_send(struct pingpong *p)
{
    struct vb_sge sge = {(uintptr_t)p->out, p->o.size, vb_mr_key(p->mr)};
    bool signals = (p->sent + 1) % p->o.signal_every == 0 || p->sent + 1 == p->o.iters;
    struct vb_send_wr wr = {.wr_id = 2,
                            .sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_SEND,
                            .flags = signals ? VB_WR_SIGNALED : 0};
    if (p->o.check)
        fill(p->out, p->o.size, !p->o.peer, p->sent);
    if (vb_post_send(p->qp, &wr, 1) != 1)
        die("post_send failed");
    p->sent++;
}

// The peer either returns what we sent last (ibv_rc_pingpong) or sends its own pattern (this
// program).
static void check(struct pingpong *p)
{
    bool server = !p->o.peer;
    unsigned k = p->received;

    if (!p->o.check)
        return;
    fill(p->expect, p->o.size, !server, k);
    if (memcmp(p->in, p->expect, p->o.size) == 0 || (server && k == 0))
        return;
    fill(p->expect, p->o.size, server, server ? k - 1 : k);
    for (unsigned i = 0; i < p->o.size; i++)
        if (p->in[i] != p->expect[i])
            die("message %u of %u bytes: byte %u is %02x, not %02x", k, p->o.size, i, p->in[i],
                p->expect[i]);
}

static void handle(struct pingpong *p, const struct vb_wc *wc)
{
    if (wc->status != VB_WC_OK)
        die("%s %u: %s", wc->wr_id == 1 ? "receive" : "send",
            wc->wr_id == 1 ? p->received : p->sent_done, vb_wc_status_text(wc->status));
    if (wc->wr_id == 2) {
        p->sent_done = p->sent;
        return;
    }
    if (wc->byte_len != p->o.size)
        die("message %u has %u bytes, not %u", p->received, wc->byte_len, p->o.size);
    check(p);
    if (p->o.signal_every > 1 && p->sent < p->o.iters)
        p->sent_done = p->sent; // the peer has it, or it would not have answered
    p->received++;
    post_recv(p);
}

// Sends when it is our turn and the last message is acknowledged: its buffer is used again.
static void take_turn(struct pingpong *p)
{
    unsigned allowed = p->received + (p->o.peer ? 1 : 0);
    if (p->sent < p->o.iters && p->sent < allowed && p->sent == p->sent_done)
        post_send(p);
}

static void bounce(struct pingpong *p)
{
    double deadline = now_s() + p->o.seconds_limit;
    struct vb_wc wc[8];

    while (p->received < p->o.iters || p->sent_done < p->o.iters) {
        int n = vb_poll_cq(p->cq, wc, 8);
        for (int i = 0; i < n; i++)
            handle(p, &wc[i]);
        take_turn(p);
        if (n == 0 && now_s() > deadline)
            die("no end after %u s: %u sent, %u received", p->o.seconds_limit, p->sent_done,
                p->received);
    }
}

static void linger(struct pingpong *p)
{
    uint64_t seen = 0, count = 0;
    double until = now_s() + QUIET_MS * 1e-3;

    while (now_s() < until) {
        vb_nic_progress(p->nic);
        vb_nic_counter(p->nic, "rcvd_pkts", &count);
        if (count != seen)
            until = now_s() + QUIET_MS * 1e-3;
        seen = count;
    }
}

static void open_all(struct pingpong *p)
{
    char why[VB_ERROR_TEXT] = "";
    char rules[64];
    snprintf(rules, sizeof rules, "drop=%uppm;seed=7", p->o.drop_ppm);
    struct vb_nic_opts opts = {.address = p->o.nic ? p->o.nic : p->o.local,
                               .error_text = why,
                               .faults = p->o.drop_ppm ? rules : "off"};
    size_t room = p->o.size ? p->o.size : 1;
    struct vb_pd *pd;

    int err = vb_nic_open(&opts, &p->nic);
    if (err)
        die("%s", why[0] ? why : strerror(-err));
    p->in = calloc(3, room);
    if (!p->in)
        die("out of memory");
    p->out = p->in + room;
    p->expect = p->out + room;
    if (vb_pd_alloc(p->nic, &pd) || vb_mr_reg(pd, p->in, 2 * room, VB_RIGHT_LOCAL_WRITE, &p->mr) ||
        vb_cq_create(p->nic, &(struct vb_cq_opts){.entries = p->o.rx_depth + 2}, &p->cq) ||
        vb_qp_create(pd,
                     &(struct vb_qp_opts){.send_cq = p->cq,
                                          .recv_cq = p->cq,
                                          .send_depth = 2 * p->o.signal_every,
                                          .recv_depth = p->o.rx_depth},
                     &p->qp))
        die("cannot create the queue pair");
    p->our_psn = (uint32_t)(time(NULL) * 2654435761u) & 0xffffff;
}

static unsigned number(const char *name, const char *text)
{
    char *end;
    unsigned long v = strtoul(text, &end, 0);
    if (*end || end == text || v > 1u << 30) {
        fprintf(stderr, "rc_pingpong: --%s wants a number, not '%s'\n", name, text);
        exit(2);
    }
    return (unsigned)v;
}

static struct options parse(int argc, char **argv)
{
    static const struct option longs[] = {
        {"local", 1, 0, 'l'}, {"tcp-port", 1, 0, 'p'},     {"size", 1, 0, 's'},
        {"iters", 1, 0, 'n'}, {"mtu", 1, 0, 'm'},          {"rx-depth", 1, 0, 'r'},
        {"check", 0, 0, 'c'}, {"drop-ppm", 1, 0, 'd'},     {"seconds-limit", 1, 0, 't'},
        {"nic", 1, 0, 'a'},   {"signal-every", 1, 0, 'e'}, {0},
    };
    struct options o = {.local = "127.0.0.1",
                        .tcp_port = 18515,
                        .size = 4096,
                        .iters = 1000,
                        .mtu = 1024,
                        .rx_depth = 500,
                        .seconds_limit = 60,
                        .signal_every = 1};
    int c, index;

    while ((c = getopt_long(argc, argv, "", longs, &index)) != -1) {
        switch (c) {
        case 'l': o.local = optarg; break;
        case 'p': o.tcp_port = number("tcp-port", optarg); break;
        case 's': o.size = number("size", optarg); break;
        case 'n': o.iters = number("iters", optarg); break;
        case 'm': o.mtu = number("mtu", optarg); break;
        case 'r': o.rx_depth = number("rx-depth", optarg); break;
        case 't': o.seconds_limit = number("seconds-limit", optarg); break;
        case 'd': o.drop_ppm = number("drop-ppm", optarg); break;
        case 'c': o.check = true; break;
        case 'e': o.signal_every = number("signal-every", optarg); break;
        case 'a': o.nic = optarg; break;
        default:
            fprintf(stderr,
                    "usage: rc_pingpong --local IP [--nic IP] [--size N] [--iters N] [--mtu N] "
                    "[--check] [PEER]\n");
            exit(2);
        }
    }
    o.peer = optind < argc ? argv[optind] : NULL;
    return o;
}

int main(int argc, char **argv)
{
    struct pingpong p = {.o = parse(argc, argv)};

    open_all(&p);
    for (unsigned i = 0; i < p.o.rx_depth && i < p.o.iters + 1; i++)
        post_recv(&p);
    meet(&p);
    double start = now_s();
    bounce(&p);
    double took = now_s() - start;
    printf("%u bytes, mtu %u, %u iterations: %.1f us each%s\n", p.o.size, p.o.mtu, p.o.iters,
           took / p.o.iters * 1e6, p.o.check ? ", data checked" : "");
    fflush(stdout);
    linger(&p);
    vb_nic_close(p.nic);
    free(p.in);
    return 0;
}
