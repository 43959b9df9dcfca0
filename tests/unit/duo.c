// SPDX-License-Identifier: Apache-2.0
// Two ends of the public interface, each run by its own NIC's helper.
#include "duo.h"

#include "../wait.h"
#include "host/host.h"
#include "hull_kit.h"
#include "pair.h"
#include "runtime_dir.h"
#include "skips.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

uint64_t duo_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// ---- opening and closing

int duo_set_up(void **state)
{
    return runtime_dir_make(state);
}

int duo_tear_down(void **state)
{
    return runtime_dir_remove(state);
}

// The test's own, one at a time.
static struct duo_state *current;

// The NICs' locks order what the test does with memory and what peers do, for the thread sanitizer,
// which sees no order in packets.
static void order_memory(void)
{
    for (unsigned i = 0; current && i < 2; i++)
        if (current->nic[i])
            duo_counter(current->nic[i], "sent_pkts");
}

int duo_begin(void **state)
{
    struct duo_state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->way = *state;
    *state = current = s;
    return 0;
}

// Whether the ends had any.
static bool close_hulls(struct duo_state *s)
{
    bool any = s->hull[0];

    for (unsigned i = 0; i < 2; i++) {
        if (s->hull[i])
            vb_hull_close(s->hull[i]);
        s->hull[i] = NULL;
    }
    return any;
}

int duo_end(void **state)
{
    struct duo_state *s = *state;
    vb_nic_close(s->nic[0]);
    vb_nic_close(s->nic[1]);
    close_hulls(s);
    free(s);
    current = NULL;
    return 0;
}

struct vb_nic *duo_open_nic(unsigned host, const char *port)
{
    char text[16], why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic = NULL;
    pair_address(host, text);
    const struct vb_nic_opts opts = {
        .address = text, .port = port, .faults = "off", .error_text = why};
    if (vb_nic_open(&opts, &nic) != 0)
        fail_msg("%s", why);
    return nic;
}

// There is only one ::1, and other tests use it, too: each has it for as long as a test takes.
static struct vb_nic *open_ipv6(void)
{
    const struct vb_nic_opts opts = {.address = "::1", .port = "udp", .faults = "off"};
    struct vb_nic *nic = NULL;
    int err;
    WAIT_UNTIL((err = vb_nic_open(&opts, &nic)) != -EADDRINUSE);
    if (err == -EADDRNOTAVAIL || err == -EAFNOSUPPORT)
        SKIP("this machine has no ::1");
    assert_int_equal(err, 0);
    return nic;
}

static void open_end(struct duo_end *e)
{
    void *shared = NULL;
    if (vb_hull_alloc(e->nic, NULL, DUO_BYTES, &shared) == 0)
        e->memory = shared;
    else
        e->memory = calloc(1, DUO_BYTES);
    assert_non_null(e->memory);
    assert_int_equal(vb_pd_alloc(e->nic, &e->pd), 0);
    assert_int_equal(vb_channel_create(e->nic, &e->channel), 0);
    const struct vb_cq_opts opts = {.entries = 64, .channel = e->channel};
    assert_int_equal(vb_cq_create(e->nic, &opts, &e->cq), 0);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, DUO_BYTES, DUO_RIGHTS, &e->mr), 0);
}

void duo_open_ends(struct duo *d)
{
    open_end(&d->end[0]);
    open_end(&d->end[1]);
}

void duo_open(struct duo *d, struct duo_state *state)
{
    *d = (struct duo){.state = state};
    if (strcmp(state->way, "ipv6") == 0) {
        state->nic[0] = open_ipv6();
        d->end[0].nic = d->end[1].nic = state->nic[0];
    } else if (strcmp(state->way, "hull") == 0) {
        for (unsigned i = 0; i < 2; i++) {
            state->hull[i] = hull_kit_open(i, "auto", NULL);
            d->end[i].nic = state->nic[i] = hull_kit_attach(state->hull[i]);
        }
    } else {
        d->end[0].nic = state->nic[0] = duo_open_nic(0, state->way);
        d->end[1].nic = state->nic[1] = duo_open_nic(1, state->way);
    }
    duo_open_ends(d);
}

void duo_close(struct duo *d)
{
    for (unsigned i = 0; i < 2; i++) {
        vb_nic_close(d->state->nic[i]);
        d->state->nic[i] = NULL;
    }
    if (close_hulls(d->state))
        return; // the memory went with the NIC
    free(d->end[0].memory);
    free(d->end[1].memory);
}

// ---- queue pairs

struct vb_qp *duo_make_qp(const struct duo_end *e, struct vb_qp_opts o)
{
    struct vb_qp *qp = NULL;
    bool receives = !o.srq && o.service < VB_SERVICE_XRC_SEND;
    if (!o.send_cq)
        o.send_cq = e->cq;
    if (!o.recv_cq)
        o.recv_cq = e->cq;
    if (!o.send_depth)
        o.send_depth = 16;
    if (!o.recv_depth && receives)
        o.recv_depth = 16;
    if (!o.inline_bytes)
        o.inline_bytes = 64;
    assert_int_equal(vb_qp_create(e->pd, &o, &qp), 0);
    return qp;
}

struct vb_qp_peer duo_peer(const struct duo *d, unsigned i, const struct vb_qp *there)
{
    struct vb_qp_peer peer = {.qpn = vb_qp_num(there),
                              .psn = 0xfffffe,
                              .our_psn = 0xfffffe,
                              .mtu = 1024,
                              .rights = DUO_REMOTE,
                              .timeout = DUO_TIMEOUT,
                              .qkey = 0x1000 + i};
    vb_nic_gid(d->end[!i].nic, peer.gid);
    return peer;
}

// What was posted to `here` leaves when it is connected, and would be lost while `there` is not.
void duo_join(const struct duo *d, struct vb_qp *here, struct vb_qp *there)
{
    struct vb_qp_peer to = duo_peer(d, 0, there), from = duo_peer(d, 1, here);
    assert_int_equal(vb_qp_connect(there, &from), 0);
    assert_int_equal(vb_qp_connect(here, &to), 0);
}

void duo_connect(const struct duo *d, enum vb_service service, struct vb_qp *qp[2])
{
    for (unsigned i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&d->end[i], (struct vb_qp_opts){.service = service});
    duo_join(d, qp[0], qp[1]);
}

// ---- posting

struct vb_send_wr duo_wr(const struct duo *d, enum vb_wr_opcode opcode, uint64_t wr_id)
{
    return (struct vb_send_wr){.wr_id = wr_id,
                               .opcode = opcode,
                               .flags = VB_WR_SIGNALED,
                               .raddr = (uintptr_t)d->end[1].memory,
                               .rkey = vb_mr_key(d->end[1].mr)};
}

void duo_post(const struct duo *d, struct vb_qp *qp, struct vb_send_wr wr, uint32_t at,
              uint32_t len)
{
    const struct duo_end *e = &d->end[0];
    const struct vb_sge sge = {(uintptr_t)e->memory + at, len, vb_mr_key(e->mr)};
    if (len != UINT32_MAX) {
        wr.sge = &sge;
        wr.num_sge = 1;
    }
    order_memory();
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

void duo_post_recv(const struct duo_end *e, struct vb_qp *qp, uint64_t wr_id, uint32_t at,
                   uint32_t len)
{
    const struct vb_sge sge = {(uintptr_t)e->memory + at, len, vb_mr_key(e->mr)};
    const struct vb_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_post_recv(qp, &wr, 1), 1);
}

// ---- waiting

struct vb_wc duo_wait(struct vb_cq *cq)
{
    struct vb_wc wc;
    WAIT_UNTIL(vb_poll_cq(cq, &wc, 1) != 0);
    order_memory();
    return wc;
}

void duo_look(struct vb_cq *cq, uint64_t wr_id, enum vb_wc_status status, const char *file,
              int line)
{
    struct vb_wc wc = duo_wait(cq);
    if (wc.status != status)
        print_message("completion: %s\n", vb_wc_status_text(wc.status));
    _assert_int_equal(wc.status, status, file, line);
    _assert_int_equal(wc.wr_id, wr_id, file, line);
}

void duo_expect_quiet(struct vb_cq *cq)
{
    uint64_t until = duo_now_ns() + DUO_QUIET_MS * 1000000ull;
    struct vb_wc wc;
    while (duo_now_ns() < until)
        assert_int_equal(vb_poll_cq(cq, &wc, 1), 0);
}

// How long a thread has run, if it is one of ours: of a NIC, a hull or a manager.
static uint64_t ran_ns(const char *thread)
{
    char path[300], name[16] = "";
    unsigned long long ns = 0;

    snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread);
    FILE *comm = fopen(path, "r");
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread);
    FILE *times = fopen(path, "r");
    if (comm && times && fgets(name, sizeof name, comm) && strncmp(name, "verbena", 7) == 0)
        assert_int_equal(fscanf(times, "%llu", &ns), 1);
    if (comm)
        fclose(comm);
    if (times)
        fclose(times);
    return ns;
}

static uint64_t threads_ran_ns(void)
{
    DIR *threads = opendir("/proc/self/task");
    uint64_t sum = 0;

    assert_non_null(threads);
    for (struct dirent *e; (e = readdir(threads)) != NULL;)
        sum += e->d_name[0] == '.' ? 0 : ran_ns(e->d_name);
    closedir(threads);
    return sum;
}

void duo_expect_idle(void)
{
    uint64_t before_ns;

    do {
        before_ns = threads_ran_ns();
        usleep(DUO_IDLE_MS * 1000); // that nothing happens meanwhile is the claim
    } while (threads_ran_ns() != before_ns);
}

void duo_await_sleep(const struct duo *d)
{
    for (unsigned i = 0; i < 2; i++)
        if (d->state->hull[i])
            hull_kit_await_sleep(d->state->hull[i]);
        else if (d->state->nic[i])
            WAIT_UNTIL(atomic_load(&d->state->nic[i]->helper.asleep) ==
                       (1u << d->state->nic[i]->lanes) - 1);
}

bool duo_is_readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1 && p.revents & POLLIN;
}

struct vb_nic_event duo_wait_event(struct vb_nic *nic)
{
    struct vb_nic_event event;
    assert_true(duo_is_readable(vb_nic_event_fd(nic), DUO_FOREVER));
    assert_int_equal(vb_nic_take_event(nic, &event), 0);
    return event;
}

uint64_t duo_counter(const struct vb_nic *nic, const char *name)
{
    uint64_t value = 0;
    assert_int_equal(vb_nic_counter(nic, name, &value), 0);
    return value;
}

void duo_fill(uint8_t *bytes, uint32_t len, uint32_t seed)
{
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((seed + i) * 2654435761u >> 11);
}

bool duo_wait_ok(struct vb_cq *cq, uint64_t wr_id)
{
    struct vb_wc wc = {0};
    WAIT_UNTIL(vb_poll_cq(cq, &wc, 1) != 0);
    return wc.status == VB_WC_OK && wc.wr_id == wr_id;
}
