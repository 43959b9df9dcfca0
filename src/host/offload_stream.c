// SPDX-License-Identifier: Apache-2.0
// The service of offloads over stream sockets: messages are cut out of the stream by the length in
// their heads, and a connection's end is its client's.
#include "chain/offload_message.h"
#include "port/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 1 << 16,
    SWEEP_MS = 1000,
    KEEPALIVE_S = 5,
    KEEPALIVE_PROBES = 3,
};

#define SWEEP_NS  (SWEEP_MS * 1000000ull)
#define SILENT_NS 10000000000ull // a connection without a client

struct connection {
    int fd;
    uint32_t got;
    uint64_t ticket; // 0: no client
    uint64_t since_ns;
    uint8_t message[VB_OFFLOAD_MESSAGE];
};

struct vb_offload_stream {
    struct vb_offload_service *service;
    uint32_t count, room;
    struct connection **connection;
    struct pollfd *poll; // the listener's, then one for each connection
    uint64_t swept_ns;
};

// ---- life

static bool make_room(struct vb_offload_stream *s)
{
    uint32_t room = s->room ? 2 * s->room : 16;

    if (s->count < s->room)
        return true;
    if (room > CONNECTIONS_MAX)
        return false;
    struct connection **connection = realloc(s->connection, room * sizeof(void *));
    if (connection)
        s->connection = connection;
    struct pollfd *fds = realloc(s->poll, (room + 1) * sizeof *fds);
    if (fds)
        s->poll = fds;
    if (!connection || !fds)
        return false;
    s->room = room;
    return true;
}

int vb_offload_stream_open(struct vb_offload_service *service, int listener,
                           struct vb_offload_stream **out)
{
    struct vb_offload_stream *s = calloc(1, sizeof *s);

    if (!s || !make_room(s)) {
        free(s ? s->connection : NULL);
        free(s);
        return -ENOMEM;
    }
    s->service = service;
    s->poll[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    *out = s;
    return 0;
}

// The last one takes its place.
static void drop(struct vb_offload_stream *s, uint32_t i)
{
    struct connection *c = s->connection[i];

    if (c->ticket)
        vb_offload_end(s->service, c->ticket); // unless it has ended already
    close(c->fd);
    free(c);
    s->count--;
    s->connection[i] = s->connection[s->count];
    s->poll[1 + i] = s->poll[1 + s->count];
}

void vb_offload_stream_close(struct vb_offload_stream *s)
{
    if (!s)
        return;
    while (s->count > 0)
        drop(s, s->count - 1);
    free(s->connection);
    free(s->poll);
    free(s);
}

// A client whose machine vanished says nothing: the kernel asks. Of sockets that are not TCP's
// there is no such machine.
static void tune(int fd)
{
    int on = 1, seconds = KEEPALIVE_S, probes = KEEPALIVE_PROBES;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void take_connection(struct vb_offload_stream *s, uint64_t now_ns)
{
    int fd = accept4(s->poll[0].fd, NULL, NULL, SOCK_CLOEXEC);
    struct connection *c = fd >= 0 && make_room(s) ? calloc(1, sizeof *c) : NULL;

    if (!c) {
        if (fd >= 0)
            close(fd);
        else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
            s->poll[0].events = 0; // no descriptors: it would be ready for ever
        return;
    }
    tune(fd);
    c->fd = fd;
    c->since_ns = now_ns;
    s->connection[s->count] = c;
    s->poll[++s->count] = (struct pollfd){.fd = fd, .events = POLLIN};
}

// ---- messages

// The client may have been ended by other ways than its connection.
static bool has_client(struct vb_offload_stream *s, struct connection *c, uint64_t now_ns)
{
    if (c->ticket && !vb_offload_loaded(s->service, c->ticket)) {
        c->ticket = 0;
        c->since_ns = now_ns;
    }
    return c->ticket != 0;
}

// A client that does not read its answers is not waited for.
static bool say(const struct connection *c, const uint8_t *answer, uint32_t len)
{
    return send(c->fd, answer, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

static bool answer(struct vb_offload_stream *s, struct connection *c, uint64_t now_ns)
{
    uint8_t bytes[VB_OFFLOAD_MESSAGE];
    struct vb_offload_request request;
    uint64_t ticket;
    uint32_t got = c->got;
    bool joins =
        vb_offload_read_request(c->message, got, &request) == 0 && request.kind == VB_OFFLOAD_JOIN;

    c->got = 0; // the next message begins
    if (joins && has_client(s, c, now_ns))
        return say(c, bytes,
                   vb_offload_write_refused(bytes, VB_OFFLOAD_FULL,
                                            "a connection is for one client: take another one"));
    uint32_t len = vb_offload_answer(s->service, c->message, got, bytes, &ticket);
    if (joins)
        c->ticket = ticket;
    return say(c, bytes, len);
}

// Bytes that the next part of a message has: its head, then the rest. 0: it is none.
static uint32_t wanted(const struct connection *c)
{
    uint32_t len =
        c->got < VB_OFFLOAD_HEAD ? VB_OFFLOAD_HEAD : vb_offload_message_bytes(c->message);
    return len > c->got ? len - c->got : 0;
}

// False: the connection is over.
static bool listen_to(struct vb_offload_stream *s, struct connection *c, uint64_t now_ns)
{
    ssize_t got = recv(c->fd, c->message + c->got, wanted(c), MSG_DONTWAIT);

    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0)
        return false;
    c->got += (uint32_t)got;
    if (c->got < VB_OFFLOAD_HEAD || wanted(c) > 0)
        return true;
    bool whole = vb_offload_message_bytes(c->message) == c->got;
    // What is no message has no end either, so nothing behind it can be found.
    return answer(s, c, now_ns) && whole;
}

static void sweep(struct vb_offload_stream *s, uint64_t now_ns)
{
    s->swept_ns = now_ns;
    s->poll[0].events = POLLIN; // once more, if there was no descriptor for a connection
    vb_offload_sweep(s->service, now_ns);
    for (uint32_t i = s->count; i-- > 0;)
        if (!has_client(s, s->connection[i], now_ns) &&
            now_ns - s->connection[i]->since_ns > SILENT_NS)
            drop(s, i);
}

int vb_offload_stream_turn(struct vb_offload_stream *s, int timeout_ms)
{
    int wait_ms = timeout_ms < 0 || timeout_ms > SWEEP_MS ? SWEEP_MS : timeout_ms;
    uint64_t begin_ns = vb_clock_ns(), now_ns;

    do {
        int ready = poll(s->poll, s->count + 1, wait_ms);
        if (ready < 0 && errno != EINTR)
            return -errno;
        now_ns = vb_clock_ns();
        for (uint32_t i = ready > 0 ? s->count : 0; i-- > 0;)
            if (s->poll[1 + i].revents && !listen_to(s, s->connection[i], now_ns))
                drop(s, i);
        if (ready > 0 && s->poll[0].revents)
            take_connection(s, now_ns);
        if (now_ns - s->swept_ns >= SWEEP_NS)
            sweep(s, now_ns);
        if (ready != 0)
            break;
    } while (timeout_ms < 0 || now_ns - begin_ns < (uint64_t)timeout_ms * 1000000);
    return 0;
}

// ---- clients

static int receive(int fd, uint8_t *bytes, uint32_t len, int timeout_ms)
{
    while (len > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, timeout_ms);
        if (ready == 0)
            return -ETIMEDOUT;
        ssize_t got = ready > 0 ? recv(fd, bytes, len, 0) : -1;
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return -EPIPE;
        if (got < 0)
            return -errno;
        bytes += got;
        len -= (uint32_t)got;
    }
    return 0;
}

int vb_offload_call(int fd, const void *message, uint32_t len, uint8_t answer[VB_OFFLOAD_MESSAGE],
                    int timeout_ms)
{
    if (send(fd, message, len, MSG_NOSIGNAL) != (ssize_t)len)
        return -EPIPE;
    int err = receive(fd, answer, VB_OFFLOAD_HEAD, timeout_ms);
    if (err)
        return err;
    uint32_t bytes = vb_offload_message_bytes(answer);
    if (bytes == 0)
        return -EPROTO;
    err = receive(fd, answer + VB_OFFLOAD_HEAD, bytes - VB_OFFLOAD_HEAD, timeout_ms);
    return err ? err : (int)bytes;
}
