// SPDX-License-Identifier: Apache-2.0
// The demonstration's exchange. Both processes run the same script; in each step one acts and the
// other is the target, and the bytes are checked where they arrive.
#include "cli/demo_exchange.h"

#include "cli/perf_address.h"
#include "cli/perf_end.h"
#include "cli/perf_pattern.h"
#include "port/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum verb {
    SEND,
    WRITE,
    READ
};

enum {
    AREA = 1 << 20, // the longest message
    SOURCE = 0,     // where messages come from; peers read here too
    TARGET = AREA,  // where they arrive
    MEMORY = 2 * AREA,
    SCATTER_FROM = 64, // bytes from which on a message is in pieces
    SEND_PIECES = 3,
    RECV_PIECES = 2,
    LOOK_EVERY = 256,
};

#define PATIENCE_NS 10000000000ull

const char *const vb_demo_verb_names[VB_DEMO_VERBS] = {"SEND", "WRITE", "READ"};
const uint32_t vb_demo_sizes[VB_DEMO_SIZES] = {1, 64, 4096, AREA};

struct side {
    unsigned who; // 0 is the parent
    int control;
    struct vb_nic *nic;
    struct vb_perf_end end;
    char why[VB_PERF_WHY];
};

struct step {
    unsigned actor;
    enum verb verb;
    uint32_t size;
    uint64_t seed;
};

static int tell(struct side *s, uint64_t value)
{
    struct vb_control_msg msg;
    vb_control_begin(&msg, VB_CONTROL_OK);
    vb_control_put(&msg, value);
    int error = vb_control_send(s->control, &msg);
    return error ? vb_perf_fail(s->why, "the other side: %s", strerror(-error)) : 0;
}

static int hear(struct side *s, uint64_t *value)
{
    struct vb_control_msg msg;
    int error = vb_control_receive(s->control, &msg, VB_CONTROL_TIMEOUT_MS);
    if (error)
        return vb_perf_fail(s->why, "the other side: %s", strerror(-error));
    if (msg.kind == VB_CONTROL_ERROR)
        return vb_perf_fail(s->why, "the other side: %.*s", (int)msg.len, (const char *)msg.body);
    *value = vb_control_get(&msg);
    return 0;
}

// Cuts an area into pieces of different lengths. Returns how many.
static uint32_t cut(const struct side *s, uint32_t offset, uint32_t size, uint32_t pieces,
                    struct vb_sge *sge)
{
    uint32_t n = size < SCATTER_FROM ? 1 : pieces;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = i + 1 == n ? size : size / (i + 2) + 1;
        sge[i] = (struct vb_sge){.addr = (uint64_t)(uintptr_t)(s->end.mem + offset),
                                 .len = len,
                                 .lkey = vb_mr_key(s->end.mr)};
        offset += len;
        size -= len;
    }
    return n;
}

static bool arrived(const struct side *s, const struct step *step)
{
    return vb_pattern_matches(s->end.mem + TARGET, step->size, step->seed, 0);
}

static int await_completion(struct side *s, struct vb_cq *cq, struct vb_wc *wc)
{
    uint64_t give_up = vb_clock_ns() + PATIENCE_NS;
    for (uint32_t turn = 1; vb_poll_cq(cq, wc, 1) == 0; turn++) {
        if (turn % LOOK_EVERY == 0 && vb_clock_ns() > give_up)
            return vb_perf_fail(s->why, "no completion in 10 s");
    }
    if (wc->status != VB_WC_OK)
        return vb_perf_fail(s->why, "a work request failed: %s", vb_wc_status_text(wc->status));
    return 0;
}

static int act(struct side *s, const struct step *step, bool *ok)
{
    static const enum vb_wr_opcode opcodes[] = {VB_WR_SEND, VB_WR_WRITE, VB_WR_READ};
    struct vb_sge sge[SEND_PIECES];
    struct vb_send_wr wr = {.sge = sge,
                            .opcode = opcodes[step->verb],
                            .flags = VB_WR_SIGNALED,
                            .rkey = s->end.peer_key,
                            .raddr = s->end.peer_addr + TARGET};
    struct vb_wc wc;
    uint64_t value;
    if (hear(s, &value) < 0)
        return -1;
    if (step->verb == READ) {
        wr.raddr = s->end.peer_addr + SOURCE;
        memset(s->end.mem + TARGET, 0, step->size);
    } else {
        vb_pattern_fill(s->end.mem + SOURCE, step->size, step->seed, 0);
    }
    wr.num_sge = cut(s, step->verb == READ ? TARGET : SOURCE, step->size, SEND_PIECES, sge);
    if (vb_post_send(s->end.qp[0], &wr, 1) != 1)
        return vb_perf_fail(s->why, "the send queue did not take a work request");
    if (await_completion(s, s->end.send_cq, &wc) < 0)
        return -1;
    if (tell(s, step->verb == READ && arrived(s, step)) < 0 || hear(s, &value) < 0)
        return -1;
    *ok = value;
    return 0;
}

// Runs the NIC until the actor has said that it is done.
static int serve(struct side *s, uint64_t *value)
{
    for (uint32_t turn = 1;; turn++) {
        vb_nic_progress(s->nic);
        if (turn % LOOK_EVERY == 0 && vb_control_ready(s->control))
            return hear(s, value);
    }
}

static int be_target(struct side *s, const struct step *step, bool *ok)
{
    struct vb_sge sge[RECV_PIECES];
    struct vb_recv_wr wr = {.sge = sge};
    struct vb_wc wc = {0};
    uint64_t value;
    memset(s->end.mem + TARGET, 0, step->size);
    if (step->verb == READ)
        vb_pattern_fill(s->end.mem + SOURCE, step->size, step->seed, 0);
    if (step->verb == SEND) {
        wr.num_sge = cut(s, TARGET, step->size, RECV_PIECES, sge);
        if (vb_post_recv(s->end.qp[0], &wr, 1) != 1)
            return vb_perf_fail(s->why, "the receive queue did not take a work request");
    }
    if (tell(s, 0) < 0)
        return -1;
    if (step->verb == SEND && await_completion(s, s->end.recv_cq, &wc) < 0)
        return -1;
    if (serve(s, &value) < 0)
        return -1;
    *ok = step->verb == READ ? value : arrived(s, step);
    *ok &= step->verb != SEND || wc.byte_len == step->size;
    return tell(s, *ok);
}

static int run_script(struct side *s, struct vb_demo_result *result)
{
    uint64_t seed = 0x5eed;
    for (unsigned actor = 0; actor < VB_DEMO_SIDES; actor++) {
        for (unsigned verb = 0; verb < VB_DEMO_VERBS; verb++) {
            for (unsigned size = 0; size < VB_DEMO_SIZES; size++) {
                struct step step = {actor, (enum verb)verb, vb_demo_sizes[size], ++seed};
                bool *ok = &result->ok[actor][verb][size];
                if ((s->who == actor ? act(s, &step, ok) : be_target(s, &step, ok)) < 0)
                    return -1;
            }
        }
    }
    return 0;
}

static int meet(struct side *s, struct vb_demo_result *result)
{
    struct vb_nic_opts opts = {0};
    struct vb_perf_end_opts end = {.mem_bytes = MEMORY,
                                   .qps = 1,
                                   .send_depth = 4,
                                   .recv_depth = 4,
                                   .sges = SEND_PIECES,
                                   .mtu = 4096,
                                   .reads = 16,
                                   .seed = s->who + 1};
    struct vb_control_msg msg;
    const char *usual = s->who == 0 ? "127.0.0.1" : "127.0.0.2";
    if (vb_perf_open_nic(NULL, usual, &opts, &s->nic, s->why) < 0 ||
        vb_perf_end_open(&s->end, s->nic, &end, s->why) < 0)
        return -1;
    vb_control_begin(&msg, VB_CONTROL_CONNECT);
    vb_perf_end_describe(&s->end, &msg);
    vb_perf_end_name(&s->end, 0, &msg);
    if (vb_control_send(s->control, &msg) < 0 ||
        vb_control_receive(s->control, &msg, VB_CONTROL_TIMEOUT_MS) < 0)
        return vb_perf_fail(s->why, "the other side does not answer");
    if (msg.kind == VB_CONTROL_ERROR)
        return vb_perf_fail(s->why, "the other side: %.*s", (int)msg.len, (const char *)msg.body);
    uint8_t gid[16];
    vb_nic_gid(s->nic, gid);
    vb_perf_gid_text(gid, result->address[s->who]);
    vb_perf_gid_text(msg.body, result->address[!s->who]); // the description begins with the GID
    if (vb_perf_end_meet(&s->end, &msg, s->why) < 0)
        return -1;
    return vb_perf_end_connect(&s->end, 0, &msg, s->why);
}

// Everything one process does. Tells the other why it gives up.
static int take_part(struct side *s, struct vb_demo_result *result)
{
    int error = meet(s, result) < 0 || run_script(s, result) < 0;
    if (error) {
        struct vb_control_msg msg;
        vb_control_begin(&msg, VB_CONTROL_ERROR);
        vb_control_put_bytes(&msg, s->why, (uint32_t)strlen(s->why));
        (void)vb_control_send(s->control, &msg);
    }
    if (s->end.nic != NULL)
        vb_perf_end_close(&s->end);
    vb_nic_close(s->nic);
    close(s->control);
    return error ? -1 : 0;
}

int vb_demo_exchange(struct vb_demo_result *result, char *why)
{
    int pair[2];
    *result = (struct vb_demo_result){0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return vb_perf_fail(why, "no control channel: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return vb_perf_fail(why, "cannot start a second process: %s", strerror(errno));
    struct side s = {.who = child == 0, .control = pair[child == 0]};
    close(pair[child != 0]);
    int error = take_part(&s, result);
    if (child == 0)
        _exit(error ? 1 : 0);
    (void)waitpid(child, NULL, 0);
    if (error)
        return vb_perf_fail(why, "%s", s.why);
    return 0;
}
