// SPDX-License-Identifier: Apache-2.0
// A client and its server, on this machine or elsewhere.
#include "cli/perf_session.h"

#include "cli/perf_address.h"
#include "cli/perf_target.h"
#include "cli/pin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEAVE_MS = 3000,
    KEEPALIVE_SECONDS = 5
};

int vb_perf_ask(struct vb_perf_session *s, struct vb_control_msg *msg, enum vb_control_kind expect)
{
    int error = vb_control_send(s->control, msg);
    if (error == 0 || error == -EPIPE) // it may have said why before it left
        error = vb_control_receive(s->control, msg, VB_CONTROL_TIMEOUT_MS);
    if (error == -EPIPE)
        return vb_perf_fail(s->why, "the other side went away");
    if (error)
        return vb_perf_fail(s->why, "the control channel failed: %s", strerror(-error));
    if (msg->kind == VB_CONTROL_ERROR)
        return vb_perf_fail(s->why, "the other side: %.*s", (int)msg->len, (const char *)msg->body);
    if (msg->kind != expect)
        return vb_perf_fail(s->why, "the other side gave an unexpected answer (%d)",
                            (int)msg->kind);
    return 0;
}

static int greet(struct vb_perf_session *s)
{
    struct vb_control_msg msg;
    uint8_t gid[16];
    vb_control_begin(&msg, VB_CONTROL_HELLO);
    vb_control_put(&msg, VB_PERF_VERSION);
    if (vb_perf_ask(s, &msg, VB_CONTROL_HELLO) < 0)
        return -1;
    (void)vb_control_get(&msg);
    vb_control_get_bytes(&msg, gid, sizeof gid);
    memcpy(&s->peer_ip, gid + 12, sizeof s->peer_ip);
    return 0;
}

static struct vb_nic_opts client_nic_opts(const struct vb_perf_session_opts *opts)
{
    return (struct vb_nic_opts){.port = opts->port, .faults = opts->faults};
}

// The server as a child process. Never returns.
static _Noreturn void be_server(int control, const char *wanted, const char *port, int core,
                                bool yield)
{
    char why[VB_PERF_WHY];
    struct vb_nic *nic;
    struct vb_nic_opts opts = {.port = port};
    if (core >= 0)
        vb_pin_to(core);
    if (vb_perf_open_nic(wanted, "127.0.0.2", &opts, &nic, why) < 0) {
        vb_perf_decline(control, why);
        _exit(1);
    }
    int error = vb_perf_serve(control, nic, yield);
    vb_nic_close(nic);
    _exit(error ? 1 : 0);
}

// Pins this process to the first core (the client) or the second (the server), if there are two.
static void choose_cores(struct vb_perf_session *s, bool no_pin, unsigned side)
{
    vb_pin_choose(s->cores, &s->allowed);
    s->yield = s->cores[1] < 0;
    if (no_pin || s->yield) {
        s->cores[0] = s->cores[1] = -1;
        return;
    }
    s->restore = vb_pin_to(s->cores[side]);
}

int vb_perf_session_local(struct vb_perf_session *s, const struct vb_perf_session_opts *opts)
{
    struct vb_perf_addresses a;
    int pair[2];
    *s = (struct vb_perf_session){.control = -1, .cores = {-1, -1}};
    if (vb_perf_addresses_parse(opts->local, true, &a, s->why) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return vb_perf_fail(s->why, "no control channel: %s", strerror(errno));
    choose_cores(s, opts->no_pin, 0);
    fflush(NULL);
    s->server = fork();
    if (s->server == 0) {
        close(pair[0]);
        be_server(pair[1], a.text[1], opts->port, s->cores[1], s->yield);
    }
    close(pair[1]);
    s->control = pair[0];
    s->lossy = opts->faults != NULL;
    struct vb_nic_opts nic = client_nic_opts(opts);
    if (s->server < 0)
        vb_perf_fail(s->why, "cannot start a second process: %s", strerror(errno));
    else if (vb_perf_open_nic(a.text[0], "127.0.0.1", &nic, &s->nic, s->why) == 0 && greet(s) == 0)
        return 0;
    vb_perf_session_close(s);
    return -1;
}

// ---- over TCP

static void tune(int fd)
{
    int on = 1, seconds = KEEPALIVE_SECONDS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // A client whose machine vanished must not keep the server busy.
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
}

// The address of this machine that the connection uses.
static void own_address(int fd, char text[INET_ADDRSTRLEN])
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    (void)getsockname(fd, (struct sockaddr *)&at, &len);
    (void)inet_ntop(AF_INET, &at.sin_addr, text, INET_ADDRSTRLEN);
}

static int dial(struct vb_perf_session *s, const char *peer, uint16_t port)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int error = getaddrinfo(peer, service, &hints, &found);
    if (error)
        return vb_perf_fail(s->why, "%s: %s", peer, gai_strerror(error));
    s->control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->control >= 0 && connect(s->control, found->ai_addr, found->ai_addrlen) == 0) {
        freeaddrinfo(found);
        tune(s->control);
        return 0;
    }
    freeaddrinfo(found);
    return vb_perf_fail(s->why, "%s port %u: %s; is 'verbena perf --listen' running there?", peer,
                        port, strerror(errno));
}

int vb_perf_session_remote(struct vb_perf_session *s, const struct vb_perf_session_opts *opts,
                           const char *peer)
{
    struct vb_perf_addresses a;
    char usual[INET_ADDRSTRLEN];
    *s = (struct vb_perf_session){.control = -1, .cores = {-1, -1}};
    if (vb_perf_addresses_parse(opts->local, false, &a, s->why) < 0)
        return -1;
    if (dial(s, peer, opts->control_port) == 0) {
        struct vb_nic_opts nic = client_nic_opts(opts);
        choose_cores(s, opts->no_pin, 0);
        s->cores[1] = -1;
        s->lossy = true;
        own_address(s->control, usual);
        // First the server's NIC, so that on one machine it gets the address the user named.
        if (greet(s) == 0 && vb_perf_open_nic(a.text[0], usual, &nic, &s->nic, s->why) == 0)
            return 0;
    }
    vb_perf_session_close(s);
    return -1;
}

static void serve_one(int control, const char *wanted, bool yield)
{
    char why[VB_PERF_WHY], usual[INET_ADDRSTRLEN];
    struct vb_nic *nic;
    struct vb_nic_opts opts = {0};
    tune(control);
    own_address(control, usual);
    if (vb_perf_open_nic(wanted, usual, &opts, &nic, why) < 0) {
        vb_perf_decline(control, why);
        fprintf(stderr, "verbena perf: %s\n", why);
        return;
    }
    if (vb_perf_serve(control, nic, yield) < 0)
        fprintf(stderr, "verbena perf: the client left in the midst of a measurement\n");
    vb_nic_close(nic);
}

static int open_listener(const char *local, uint16_t port, char *why)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*local)
        (void)inet_pton(AF_INET, local, &at.sin_addr);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 8) < 0) {
        vb_perf_fail(why, "cannot listen on %s port %u: %s", *local ? local : "any address", port,
                     strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

int vb_perf_listen(const struct vb_perf_session_opts *opts, bool once)
{
    struct vb_perf_addresses a;
    struct vb_perf_session s = {.control = -1};
    int listener = -1;
    if (vb_perf_addresses_parse(opts->local, false, &a, s.why) == 0)
        listener = open_listener(a.text[0], opts->control_port, s.why);
    if (listener < 0) {
        fprintf(stderr, "verbena perf: %s\n", s.why);
        return 1;
    }
    choose_cores(&s, opts->no_pin, 1);
    fprintf(stderr, "verbena perf: serving on TCP port %u; Ctrl-C ends it\n", opts->control_port);
    bool open = true;
    while (open) {
        int control = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (control < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (control < 0) {
            fprintf(stderr, "verbena perf: cannot accept clients: %s\n", strerror(errno));
            close(listener);
            return 1;
        }
        serve_one(control, a.text[0], s.yield);
        close(control);
        open = !once;
    }
    close(listener);
    return 0;
}

// ---- the end

// The server leaves when the channel closes; one that does not is ended.
static void reap(pid_t server)
{
    for (unsigned ms = 0; ms < LEAVE_MS; ms++) {
        if (waitpid(server, NULL, WNOHANG) != 0)
            return;
        (void)poll(NULL, 0, 1);
    }
    kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
}

void vb_perf_session_close(struct vb_perf_session *s)
{
    if (s->control >= 0)
        close(s->control);
    if (s->server > 0)
        reap(s->server);
    if (s->nic != NULL)
        vb_nic_close(s->nic);
    if (s->restore)
        (void)sched_setaffinity(0, sizeof s->allowed, &s->allowed);
    s->control = -1;
    s->server = 0;
    s->nic = NULL;
    s->restore = false;
}
