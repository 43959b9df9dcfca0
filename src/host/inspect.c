// SPDX-License-Identifier: Apache-2.0
// The helper's second duty: answering who asks the NIC about itself.
//
// Nobody who asks can hold it up: descriptors do not block, an answer is written in one go and then
// sent as the asker takes it, each asker has a second, there are few at a time, and between two
// answers the helper serves the NIC for a while.
#include "host/inspect.h"

#include "host/host.h"
#include "host/inspect_state.h"
#include "host/open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PATIENCE_NS = 1000 * 1000 * 1000,
    REST_NS = 2 * 1000 * 1000,       // between two who ask, at least
    REST_SHARE = 4,                  // and so many times what the answer took
    SHORT_OF_NS = 100 * 1000 * 1000, // descriptors or memory: until it is tried again
    GLANCE_NS = 10 * 1000 * 1000,
};

// ---- life

// Whether the NIC may be asked. False: the environment says something else than yes or no.
static bool decide(const struct vb_nic_opts *opts, bool *on)
{
    const char *value = getenv("VERBENA_INSPECT");

    *on = !opts->no_inspect && !(value && strcmp(value, "0") == 0);
    if (!value || !*value || strcmp(value, "1") == 0 || strcmp(value, "0") == 0)
        return true;
    if (opts->error_text)
        snprintf(opts->error_text, VB_ERROR_TEXT, "VERBENA_INSPECT is '%.40s'; give 1 or 0", value);
    return false;
}

int vb_inspect_open(struct vb_nic *nic, const struct vb_nic_opts *opts)
{
    bool on;

    if (!decide(opts, &on))
        return -EINVAL;
    if (!on)
        return 0;
    struct vb_inspect *inspect = calloc(1, sizeof *inspect);
    if (!inspect)
        return -ENOMEM;
    for (uint32_t i = 0; i < VB_INSPECT_CLIENTS; i++)
        inspect->client[i].fd = -1;
    snprintf(inspect->port, sizeof inspect->port, "%s", vb_host_port_text(opts));
    if (vb_inspect_place_open(&inspect->place) < 0) {
        free(inspect);
        return 0;
    }
    nic->inspect = inspect;
    return 0;
}

static void drop(struct vb_inspect_client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c->answer);
    *c = (struct vb_inspect_client){.fd = -1};
}

void vb_inspect_abandon(struct vb_nic *nic)
{
    struct vb_inspect *inspect = nic->inspect;

    if (!inspect)
        return;
    for (uint32_t i = 0; i < VB_INSPECT_CLIENTS; i++)
        drop(&inspect->client[i]);
    vb_inspect_place_close(&inspect->place);
    free(inspect);
    nic->inspect = NULL;
}

void vb_inspect_hide(struct vb_nic *nic)
{
    if (nic->inspect)
        vb_inspect_place_hide(&nic->inspect->place);
}

void vb_inspect_close(struct vb_nic *nic)
{
    if (!nic->inspect)
        return;
    vb_inspect_hide(nic);
    // Those in its queue must not wait for a child that has inherited it.
    if (vb_inspect_place_holds(&nic->inspect->place))
        (void)shutdown(nic->inspect->place.listener, SHUT_RDWR);
    vb_inspect_abandon(nic);
}

// ---- one asker

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
}

static void greet(struct vb_inspect *inspect, struct vb_inspect_client *c, uint64_t now)
{
    if (!vb_inspect_place_holds(&inspect->place)) {
        inspect->place.listener = -1; // the application closed it: the number is not ours now
        return;
    }
    int fd = accept4(inspect->place.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            inspect->rests_until_ns = now + SHORT_OF_NS;
        return;
    }
    if (!is_ours(fd)) {
        close(fd);
        return;
    }
    *c = (struct vb_inspect_client){.fd = fd, .until_ns = now + PATIENCE_NS};
}

// Sends what the asker takes. False: it has all, or is gone.
static bool tell(struct vb_inspect_client *c)
{
    while (c->sent < c->len) {
        ssize_t n = send(c->fd, c->answer + c->sent, c->len - c->sent, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        c->sent += (size_t)n;
    }
    return false;
}

// A question is one line; a longer one is answered as what it is so far. False: the asker is gone.
static bool hear(struct vb_nic *nic, struct vb_inspect_client *c)
{
    ssize_t n = recv(c->fd, c->request + c->got, sizeof c->request - c->got, 0);

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    c->got += (uint32_t)n;
    const char *end = memchr(c->request, '\n', c->got);
    if (!end && c->got < sizeof c->request)
        return true;
    size_t len = end ? (size_t)(end - c->request) : c->got;
    c->answer = vb_inspect_answer(nic, c->request, len, &c->len);
    return c->answer && tell(c);
}

// ---- by the helper

static bool is_full(const struct vb_inspect *inspect)
{
    for (uint32_t i = 0; i < VB_INSPECT_CLIENTS; i++)
        if (inspect->client[i].fd < 0)
            return false;
    return true;
}

// The listener first, then the askers, each at its place.
uint32_t vb_inspect_watch(struct vb_nic *nic, struct pollfd fds[VB_INSPECT_FDS],
                          uint64_t *deadline_ns)
{
    struct vb_inspect *inspect = nic->inspect;
    uint32_t count = 1;

    if (!inspect)
        return 0;
    if (inspect->rests_until_ns && inspect->rests_until_ns <= vb_clock_ns())
        inspect->rests_until_ns = 0;
    bool hears = !inspect->rests_until_ns && !is_full(inspect);
    fds[0] = (struct pollfd){.fd = hears ? inspect->place.listener : -1, .events = POLLIN};
    if (inspect->rests_until_ns && inspect->rests_until_ns < *deadline_ns)
        *deadline_ns = inspect->rests_until_ns;
    for (uint32_t i = 0; i < VB_INSPECT_CLIENTS; i++) {
        const struct vb_inspect_client *c = &inspect->client[i];
        fds[1 + i] = (struct pollfd){.fd = c->fd, .events = c->answer ? POLLOUT : POLLIN};
        if (c->fd < 0)
            continue;
        count = 2 + i;
        if (c->until_ns < *deadline_ns)
            *deadline_ns = c->until_ns;
    }
    return count; // most of the time the listener alone
}

// Long answers are not to be had one after the other.
static void recover(struct vb_inspect *inspect, uint64_t began_ns)
{
    uint64_t now = vb_clock_ns(), took_ns = now - began_ns;

    inspect->rests_until_ns =
        now + (REST_SHARE * took_ns > REST_NS ? REST_SHARE * took_ns : REST_NS);
}

static void attend(struct vb_nic *nic, const struct pollfd *fds, uint64_t now)
{
    struct vb_inspect *inspect = nic->inspect;

    for (uint32_t i = 0; i < VB_INSPECT_CLIENTS; i++) {
        struct vb_inspect_client *c = &inspect->client[i];
        if (c->fd < 0)
            continue;
        bool asked = !c->answer;
        bool stays = now < c->until_ns;
        if (stays && fds[1 + i].revents && c->fd == fds[1 + i].fd)
            stays = asked ? hear(nic, c) : tell(c);
        if (asked && c->answer)
            recover(inspect, now);
        if (!stays)
            drop(c);
    }
    for (uint32_t i = 0; fds[0].revents && i < VB_INSPECT_CLIENTS; i++)
        if (inspect->client[i].fd < 0) {
            greet(inspect, &inspect->client[i], now);
            return;
        }
}

static bool anybody(const struct vb_inspect *inspect)
{
    for (uint32_t i = 0; i < VB_INSPECT_CLIENTS; i++)
        if (inspect->client[i].fd >= 0)
            return true;
    return false;
}

void vb_inspect_serve(struct vb_nic *nic, const struct pollfd *fds, uint32_t count)
{
    if (count == 0 || (!fds[0].revents && !anybody(nic->inspect)))
        return;
    pthread_mutex_lock(&nic->inspect_lock);
    attend(nic, fds, vb_clock_ns());
    pthread_mutex_unlock(&nic->inspect_lock);
}

void vb_inspect_glance(struct vb_nic *nic, struct pollfd *fds, uint32_t count)
{
    uint64_t now = count ? vb_clock_ns() : 0;

    if (count == 0 || now < nic->inspect->looked_ns + GLANCE_NS)
        return;
    nic->inspect->looked_ns = now;
    if (poll(fds, count, 0) > 0)
        vb_inspect_serve(nic, fds, count);
}
