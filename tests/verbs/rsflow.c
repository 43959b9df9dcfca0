// SPDX-License-Identifier: Apache-2.0
// rsflow server|client ADDRESS PORT BYTES SEED [BUFFER]: random bytes both ways at once over one
// rsocket, in pieces of random sizes, by two threads. Prints the hashes of what it sent and what it
// received; the peer's must be the same the other way round.
#include "need.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum {
    PIECE_MAX = 200000
};

struct flow {
    int fd;
    uint64_t bytes, seed, hash;
};

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t hashed(uint64_t hash, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

// Mostly small, sometimes large.
static size_t piece(uint64_t *state, uint64_t left)
{
    size_t most = (size_t)1 << next(state) % 18, size = 1 + next(state) % most;
    return size < left ? size : (size_t)left;
}

static ssize_t write_some(int fd, uint8_t *data, size_t bytes, bool split)
{
    struct iovec v[2] = {{data, bytes / 3}, {data + bytes / 3, bytes - bytes / 3}};
    return split ? rwritev(fd, v, 2) : rsend(fd, data, bytes, 0);
}

static void *send_all(void *arg)
{
    static uint8_t data[PIECE_MAX];
    struct flow *f = arg;
    uint64_t state = f->seed;

    for (uint64_t left = f->bytes; left;) {
        size_t bytes = piece(&state, left);
        for (size_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)next(&state);
        f->hash = hashed(f->hash, data, bytes);
        for (size_t done = 0; done < bytes;) {
            ssize_t n = write_some(f->fd, data + done, bytes - done, bytes & 1);
            NEED(n > 0);
            done += (size_t)n;
        }
        left -= bytes;
    }
    NEED(rshutdown(f->fd, SHUT_WR) == 0);
    return NULL;
}

static void receive_all(struct flow *f)
{
    static uint8_t data[PIECE_MAX];
    uint64_t state = f->seed + 1, got = 0;

    for (;;) {
        size_t want = 1 + next(&state) % (PIECE_MAX - 1);
        struct iovec v[2] = {{data, want / 2}, {data + want / 2, want - want / 2}};
        ssize_t n = want & 1 ? rreadv(f->fd, v, 2) : rrecv(f->fd, data, want, 0);
        NEED(n >= 0);
        if (n == 0)
            break;
        f->hash = hashed(f->hash, data, (size_t)n);
        got += (uint64_t)n;
    }
    NEED(got == f->bytes);
}

static int open_end(bool server, const struct sockaddr *at, socklen_t len, int buffer_bytes)
{
    int fd = rsocket(at->sa_family, SOCK_STREAM, 0), on = 1, made;

    NEED(fd >= 0);
    if (buffer_bytes) {
        NEED(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes) == 0);
        NEED(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes) == 0);
    }
    if (!server) {
        NEED(rconnect(fd, at, len) == 0);
        return fd;
    }
    NEED(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    NEED(rbind(fd, at, len) == 0);
    NEED(rlisten(fd, 1) == 0);
    puts("listening");
    fflush(stdout);
    NEED((made = raccept(fd, NULL, NULL)) >= 0);
    NEED(rclose(fd) == 0);
    return made;
}

static socklen_t parse(const char *text, int port, struct sockaddr_storage *at)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)at;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)at;

    memset(at, 0, sizeof *at);
    in4->sin_port = htons((uint16_t)port);
    in4->sin_family = AF_INET;
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1)
        return sizeof *in4;
    in6->sin6_family = AF_INET6;
    NEED(inet_pton(AF_INET6, text, &in6->sin6_addr) == 1);
    return sizeof *in6;
}

int main(int argc, char **argv)
{
    struct sockaddr_storage at;
    pthread_t sender;

    if (argc < 6) {
        fprintf(stderr, "usage: rsflow server|client ADDRESS PORT BYTES SEED [BUFFER]\n");
        return 2;
    }
    bool server = strcmp(argv[1], "server") == 0;
    socklen_t len = parse(argv[2], atoi(argv[3]), &at);
    struct flow out = {.bytes = strtoull(argv[4], NULL, 10),
                       .seed = strtoull(argv[5], NULL, 10) * 2 + server,
                       .hash = 0xcbf29ce484222325u};
    struct flow in = {.bytes = out.bytes, .seed = out.seed + 77, .hash = out.hash};
    out.fd = in.fd = open_end(server, (struct sockaddr *)&at, len, argc > 6 ? atoi(argv[6]) : 0);
    NEED(pthread_create(&sender, NULL, send_all, &out) == 0);
    receive_all(&in);
    pthread_join(sender, NULL);
    NEED(rclose(out.fd) == 0);
    printf("sent %016llx received %016llx\n", (unsigned long long)out.hash,
           (unsigned long long)in.hash);
    return 0;
}
