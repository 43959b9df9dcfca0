// SPDX-License-Identifier: Apache-2.0
// Processes that share one address.
#include "crowd.h"

#include "../wait.h"
#include "duo.h"
#include "hull/hull.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PING_BYTES = 64,
    DEPTH = 4,
    SPINS = 200, // of one who polls, before it rests: there are more of them than cores
};

// Between pings and polls: there are more processes than cores, and the length decides nothing.
static void nap(void)
{
    (void)poll(NULL, 0, 1); // sleeps: see above
}

// ---- a process

struct side {
    struct crowd *crowd;
    struct crowd_mate *me;
    bool asks; // or answers
    struct vb_nic *nic;
    struct vb_channel *channel;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_mr *mr;
    uint8_t *memory; // for two pings
    uint32_t number; // of the next ping
};

static void read_address(const char *text, uint8_t gid[16])
{
    char mapped[80];
    snprintf(mapped, sizeof mapped, "::ffff:%s", text);
    if (inet_pton(AF_INET6, strchr(text, ':') ? text : mapped, gid) != 1)
        abort();
}

static bool take_addresses(struct side *s)
{
    uint8_t gid[16];
    for (unsigned i = 1; i < s->crowd->addresses; i++) {
        read_address(s->crowd->address[i], gid);
        if (vb_nic_take_address_or_say(s->nic, gid, s->me->why) != 0)
            return false;
    }
    return true;
}

// A hull of this process, and the NIC that is attached to it: who kills the one kills the other.
static bool open_hull(struct side *s)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char path[108], text[256];
    struct vb_hull *hull;
    void *memory = NULL;
    const struct vb_nic_opts opts = {.hull = path, .drain_ms = 1, .error_text = s->me->why};

    snprintf(text, sizeof text, "[nic crowd%d]\naddress = %s\nport = %s\n", (int)getpid(),
             s->crowd->address[0], s->crowd->port ? s->crowd->port : "udp");
    if (!config || vb_hull_config_parse(text, (uint32_t)strlen(text), config, s->me->why) != 0 ||
        vb_hull_open(config, 0, &hull, s->me->why) != 0)
        return false;
    memcpy(path, hull->path, sizeof path);
    free(config);
    if (vb_nic_open(&opts, &s->nic) != 0 ||
        vb_hull_alloc(s->nic, NULL, 2 * PING_BYTES, &memory) != 0)
        return false;
    s->memory = memory;
    return true;
}

static bool open_nic(struct side *s)
{
    static uint8_t memory[2 * PING_BYTES];
    const struct vb_nic_opts opts = {.address = s->crowd->address[0],
                                     .port = "udp",
                                     .faults = "off",
                                     .units = s->crowd->units,
                                     .drain_ms = 1,
                                     .error_text = s->me->why};
    s->memory = memory;
    return vb_nic_open(&opts, &s->nic) == 0 && take_addresses(s);
}

static bool open_side(struct side *s)
{
    unsigned mate = (unsigned)(s->me - s->crowd->mate);
    struct vb_pd *pd;

    if (!(s->crowd->hulls >> mate & 1 ? open_hull(s) : open_nic(s)))
        return false;
    if (vb_pd_alloc(s->nic, &pd) != 0 || vb_channel_create(s->nic, &s->channel) != 0)
        return false;
    const struct vb_cq_opts cq = {.entries = 64,
                                  .channel = s->channel,
                                  .unit = s->crowd->units > 1 ? 1 + (uint32_t)s->asks : 0};
    if (vb_cq_create(s->nic, &cq, &s->cq) != 0 ||
        vb_mr_reg(pd, s->memory, 2 * PING_BYTES, VB_RIGHT_LOCAL_WRITE, &s->mr) != 0)
        return false;
    const struct vb_qp_opts qp = {
        .send_cq = s->cq, .recv_cq = s->cq, .send_depth = DEPTH, .recv_depth = DEPTH};
    if (vb_qp_create(pd, &qp, &s->qp) != 0)
        return false;
    atomic_store(&s->me->qpn, vb_qp_num(s->qp));
    atomic_store(&s->me->stage, 1);
    return true;
}

static bool post_recv(struct side *s)
{
    const struct vb_sge sge = {(uintptr_t)s->memory + PING_BYTES, PING_BYTES, vb_mr_key(s->mr)};
    return vb_post_recv(s->qp, &(struct vb_recv_wr){.sge = &sge, .num_sge = 1}, 1) == 1;
}

static bool post_send(struct side *s)
{
    const struct vb_sge sge = {(uintptr_t)s->memory, PING_BYTES, vb_mr_key(s->mr)};
    const struct vb_send_wr wr = {
        .sge = &sge, .num_sge = 1, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};
    memcpy(s->memory, &s->number, sizeof s->number);
    return vb_post_send(s->qp, &wr, 1) == 1;
}

static bool connect_side(struct side *s, const struct crowd_mate *other)
{
    struct vb_qp_peer peer = {.psn = 7, .our_psn = 7, .mtu = 1024, .timeout = DUO_TIMEOUT};
    WAIT_UNTIL(atomic_load(&other->stage) != 0);
    unsigned pair = (unsigned)(s->me - s->crowd->mate) / 2;
    read_address(s->crowd->address[pair % s->crowd->addresses], peer.gid);
    memcpy(peer.local, peer.gid, sizeof peer.local);
    peer.qpn = atomic_load(&other->qpn);
    for (int i = 0; i < DEPTH; i++)
        if (i == 0 && vb_qp_connect(s->qp, &peer) != 0)
            return false;
        else if (!post_recv(s))
            return false;
    atomic_store(&s->me->stage, 2);
    WAIT_UNTIL(atomic_load(&other->stage) >= 2);
    return true;
}

static void tell(struct side *s)
{
    uint64_t forwarded = 0;
    (void)vb_nic_counter(s->nic, "rx_forwarded", &forwarded);
    atomic_store(&s->me->forwarded, forwarded);
}

// Waits for the next message and checks its number. False: the connection failed.
static bool take_message(struct side *s)
{
    struct vb_wc wc;
    uint32_t number;
    for (unsigned spins = 0;; spins++) {
        int n = vb_poll_cq(s->cq, &wc, 1);
        if (n > 0 && wc.status != VB_WC_OK) {
            snprintf(s->me->why, sizeof s->me->why, "%s", vb_wc_status_text(wc.status));
            atomic_store(&s->me->stage, 3);
            return false;
        }
        if (n > 0 && wc.opcode == VB_WC_RECV)
            break;
        if (n > 0)
            continue;
        if (s->crowd->sleepy && !s->asks) {
            struct pollfd ready = {vb_channel_fd(s->channel), POLLIN, 0};
            struct vb_cq *cq;
            if (vb_cq_arm(s->cq, false) == 0)
                (void)poll(&ready, 1, 1000);
            (void)vb_channel_take(s->channel, &cq);
        } else if (spins % SPINS == SPINS - 1) {
            nap();
        }
    }
    memcpy(&number, s->memory + PING_BYTES, sizeof number);
    if (number != s->number) {
        snprintf(s->me->why, sizeof s->me->why, "ping %u instead of %u", number, s->number);
        atomic_store(&s->me->stage, 3);
        return false;
    }
    return post_recv(s);
}

static void ask(struct side *s)
{
    for (s->number = 0;; s->number++) {
        if (!post_send(s) || !take_message(s))
            return;
        tell(s);
        atomic_fetch_add(&s->me->pings, 1);
        nap();
    }
}

static void answer(struct side *s)
{
    for (s->number = 0;; s->number++) {
        if (!take_message(s))
            return;
        tell(s);
        if (!post_send(s))
            return;
    }
}

static void run(struct crowd *c, unsigned i)
{
    static struct side side;
    struct side *s = &side;
    *s = (struct side){.crowd = c, .me = &c->mate[i], .asks = i % 2 == 0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!open_side(s)) {
        atomic_store(&s->me->stage, 3);
        _exit(1);
    }
    if (connect_side(s, &c->mate[i ^ 1])) {
        if (s->asks)
            ask(s);
        else
            answer(s);
    }
    for (;;) // its peer is gone; it stays at its address
        pause();
}

// ---- the test's side

static void start_mate(struct crowd *c, unsigned i)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        run(c, i);
    c->mate[i].pid = pid;
    WAIT_UNTIL(atomic_load(&c->mate[i].stage) != 0);
    if (atomic_load(&c->mate[i].stage) != 1 && atomic_load(&c->mate[i].stage) != 2)
        fail_msg("process %u: %s", i, c->mate[i].why);
}

static bool has_failed(const struct crowd *c, unsigned first)
{
    return atomic_load(&c->mate[first].stage) == 3 || atomic_load(&c->mate[first + 1].stage) == 3;
}

static void expect_pings(struct crowd *c, unsigned first, uint64_t pings)
{
    WAIT_UNTIL(atomic_load(&c->mate[first].pings) >= pings || has_failed(c, first));
    if (has_failed(c, first))
        fail_msg("pair %u: %s%s", first / 2, c->mate[first].why, c->mate[first + 1].why);
}

void crowd_add_pair(struct crowd *c)
{
    unsigned i = c->count;
    assert_true(i + 2 <= CROWD_MAX);
    c->count += 2;
    start_mate(c, i);
    start_mate(c, i + 1);
    expect_pings(c, i, 3);
}

struct crowd *crowd_start(const char *address, unsigned count, bool sleepy, uint32_t units)
{
    return crowd_start_on(&address, 1, count, sleepy, units);
}

struct crowd *crowd_start_hulls(const char *address, unsigned count, uint32_t hulls,
                                const char *port)
{
    struct crowd *c = crowd_start_on(&address, 1, 0, false, 1);

    c->hulls = hulls;
    c->port = port;
    while (c->count < count)
        crowd_add_pair(c);
    return c;
}

struct crowd *crowd_start_on(const char *const *addresses, unsigned addresses_count, unsigned count,
                             bool sleepy, uint32_t units)
{
    struct crowd *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c != MAP_FAILED);
    c->sleepy = sleepy;
    c->units = units;
    c->addresses = addresses_count;
    for (unsigned i = 0; i < addresses_count; i++)
        snprintf(c->address[i], sizeof c->address[i], "%s", addresses[i]);
    while (c->count < count)
        crowd_add_pair(c);
    return c;
}

void crowd_expect_well(struct crowd *c, unsigned pings, uint32_t except)
{
    uint64_t before[CROWD_MAX];
    for (unsigned i = 0; i < c->count; i++)
        before[i] = atomic_load(&c->mate[i].pings);
    for (unsigned i = 0; i < c->count; i += 2)
        if (!(except >> (i / 2) & 1))
            expect_pings(c, i, before[i] + pings);
}

void crowd_kill(struct crowd *c, unsigned mate)
{
    int status;
    assert_int_equal(kill(c->mate[mate].pid, SIGKILL), 0);
    assert_int_equal(waitpid(c->mate[mate].pid, &status, 0), c->mate[mate].pid);
    c->mate[mate].pid = 0;
}

void crowd_stop(struct crowd *c, unsigned mate)
{
    int status;
    assert_int_equal(kill(c->mate[mate].pid, SIGSTOP), 0);
    assert_int_equal(waitpid(c->mate[mate].pid, &status, WUNTRACED), c->mate[mate].pid);
    assert_true(WIFSTOPPED(status));
}

void crowd_let_notice(void)
{
    (void)poll(NULL, 0, 700); // what is silent for half a second counts as stopped (udp_share.c)
}

void crowd_end(struct crowd *c)
{
    for (unsigned i = 0; i < c->count; i++)
        if (c->mate[i].pid > 0)
            crowd_kill(c, i);
    munmap(c, sizeof *c);
}
