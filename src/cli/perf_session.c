// SPDX-License-Identifier: Apache-2.0
// A client and its server, on this machine or elsewhere.
#include "cli/perf_session.h"

#include "cli/perf_address.h"
#include "cli/perf_line.h"
#include "cli/perf_target.h"
#include "cli/perf_tcp.h"
#include "cli/pin.h"
#include "wire/roce.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEAVE_MS = 3000
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

static const char *port_of(const struct vb_perf_session_opts *opts)
{
    return opts->port != NULL ? opts->port : "udp";
}

// What two NICs have in common, given the ports they were opened with.
static int agree(struct vb_perf_session *s, const char *ours, const char *theirs, uint64_t place)
{
    bool meet = place != 0 && place == vb_line_place() && vb_line_meets(s->peer_gid);
    bool both_shm = strcmp(ours, "udp") != 0 && strcmp(theirs, "udp") != 0;
    bool both_udp = strcmp(ours, "shm") != 0 && strcmp(theirs, "shm") != 0;
    s->port = both_shm && meet ? VB_PERF_SHM : VB_PERF_UDP;
    if (s->port == VB_PERF_UDP && !both_udp)
        return vb_perf_fail(s->why,
                            "--port %s here and --port %s there do not meet; shm needs the same "
                            "host, user and VERBENA_RUNTIME_DIR on both sides",
                            ours, theirs);
    return 0;
}

// Our NIC must be open by then if the server is ours: ports meet where NICs have made the place.
static int greet(struct vb_perf_session *s, const char *port)
{
    struct vb_control_msg msg;
    char theirs[VB_PERF_PORT_NAME];
    vb_control_begin(&msg, VB_CONTROL_HELLO);
    vb_control_put(&msg, VB_PERF_VERSION);
    if (vb_perf_ask(s, &msg, VB_CONTROL_HELLO) < 0)
        return -1;
    uint64_t version = vb_control_get(&msg);
    vb_control_get_bytes(&msg, s->peer_gid, sizeof s->peer_gid);
    vb_control_get_bytes(&msg, theirs, sizeof theirs);
    uint64_t place = vb_control_get(&msg);
    if (version != VB_PERF_VERSION || msg.bad || memchr(theirs, 0, sizeof theirs) == NULL)
        return vb_perf_fail(s->why, "the other side speaks another version of the control channel");
    return agree(s, port, theirs, place);
}

static struct vb_nic_opts nic_opts(const struct vb_perf_session_opts *opts)
{
    // Not from the environment: the rules are for one of the two NICs.
    return (struct vb_nic_opts){.port = port_of(opts),
                                .faults = opts->faults != NULL ? opts->faults : "off"};
}

// The server as a child process. Never returns.
static _Noreturn void be_server(const struct vb_perf_session *s, int control,
                                const struct vb_perf_session_opts *opts, const char *wanted)
{
    char why[VB_PERF_WHY];
    struct vb_perf_serve_opts serve = {
        .control = control, .port = port_of(opts), .yield = s->yield};
    struct vb_nic_opts nic = {.port = port_of(opts), .faults = "off"};
    if (s->cores[1] >= 0)
        vb_pin_to(s->cores[1]);
    if (vb_perf_open_nic(wanted, "127.0.0.2", &nic, &serve.nic, why) < 0) {
        vb_perf_decline(control, why);
        _exit(1);
    }
    int error = vb_perf_serve(&serve);
    vb_nic_close(serve.nic);
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
        be_server(s, pair[1], opts, a.text[1]);
    }
    close(pair[1]);
    s->control = pair[0];
    s->lossy = opts->faults != NULL;
    struct vb_nic_opts nic = nic_opts(opts);
    if (s->server < 0)
        vb_perf_fail(s->why, "cannot start a second process: %s", strerror(errno));
    else if (vb_perf_open_nic(a.text[0], "127.0.0.1", &nic, &s->nic, s->why) == 0 &&
             greet(s, port_of(opts)) == 0)
        return 0;
    vb_perf_session_close(s);
    return -1;
}

int vb_perf_session_remote(struct vb_perf_session *s, const struct vb_perf_session_opts *opts,
                           const char *peer)
{
    struct vb_perf_addresses a;
    char usual[INET6_ADDRSTRLEN];
    *s = (struct vb_perf_session){.cores = {-1, -1}, .lossy = true};
    if (vb_perf_addresses_parse(opts->local, false, &a, s->why) < 0)
        return -1;
    s->control = vb_perf_dial(peer, opts->control_port, s->why);
    if (s->control < 0)
        return -1;
    struct vb_nic_opts nic = nic_opts(opts);
    choose_cores(s, opts->no_pin, 0);
    s->cores[1] = -1;
    vb_perf_own_address(s->control, usual);
    // First the server's NIC, so that on one machine it gets the address the user named.
    if (greet(s, port_of(opts)) == 0 &&
        vb_perf_open_nic(a.text[0], usual, &nic, &s->nic, s->why) == 0)
        return 0;
    vb_perf_session_close(s);
    return -1;
}

uint32_t vb_perf_session_mtu(const struct vb_perf_session *s)
{
    uint8_t gid[16];
    if (s->port == VB_PERF_SHM) // there is no path, and there may be no such addresses
        return VB_MTU_MAX;
    vb_nic_gid(s->nic, gid);
    return vb_perf_path_mtu(gid, s->peer_gid);
}

// ---- the server for others

static void serve_one(int control, const struct vb_perf_session_opts *opts, const char *wanted,
                      bool yield)
{
    char why[VB_PERF_WHY], usual[INET6_ADDRSTRLEN];
    struct vb_nic_opts nic = nic_opts(opts);
    struct vb_perf_serve_opts serve = {.control = control, .port = port_of(opts), .yield = yield};
    vb_perf_own_address(control, usual);
    if (vb_perf_open_nic(wanted, usual, &nic, &serve.nic, why) < 0) {
        vb_perf_decline(control, why);
        fprintf(stderr, "verbena perf: %s\n", why);
        return;
    }
    if (vb_perf_serve(&serve) < 0)
        fprintf(stderr, "verbena perf: the client left in the midst of a measurement\n");
    vb_nic_close(serve.nic);
}

int vb_perf_listen(const struct vb_perf_session_opts *opts, bool once)
{
    struct vb_perf_addresses a;
    struct vb_perf_session s = {.control = -1};
    int listener = -1, control;
    if (vb_perf_addresses_parse(opts->local, false, &a, s.why) == 0)
        listener = vb_perf_open_listener(a.text[0], opts->control_port, s.why);
    if (listener < 0) {
        fprintf(stderr, "verbena perf: %s\n", s.why);
        return 1;
    }
    choose_cores(&s, opts->no_pin, 1);
    fprintf(stderr, "verbena perf: serving on TCP port %u; Ctrl-C ends it\n", opts->control_port);
    do {
        control = vb_perf_accept(listener, s.why);
        if (control < 0) {
            fprintf(stderr, "verbena perf: %s\n", s.why);
            break;
        }
        serve_one(control, opts, a.text[0], s.yield);
        close(control);
    } while (!once);
    close(listener);
    return control < 0 ? 1 : 0;
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
