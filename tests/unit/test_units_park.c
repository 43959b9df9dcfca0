// SPDX-License-Identifier: Apache-2.0
// Units that have nothing to do cost nothing: one helper serves all of them, sleeps while they are
// idle, and leaves alone those that the application runs.
#include "../wait.h"
#include "chain.h"
#include "duo.h"
#include "host/host.h"
#include "pair.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    UNITS = 2,
};

struct side {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq[UNITS];
    struct vb_qp *qp[UNITS];
    uint64_t memory[8];
};

static void open_side(struct side *s, unsigned host, const char *port)
{
    char text[16], why[VB_ERROR_TEXT] = "";
    pair_address(host, text);
    const struct vb_nic_opts opts = {
        .address = text, .port = port, .units = UNITS, .faults = "off", .error_text = why};
    if (vb_nic_open(&opts, &s->nic) != 0)
        fail_msg("%s", why);
    assert_int_equal(vb_pd_alloc(s->nic, &s->pd), 0);
    assert_int_equal(vb_mr_reg(s->pd, s->memory, sizeof s->memory, VB_RIGHT_ALL, &s->mr), 0);
    for (uint32_t u = 0; u < UNITS; u++) {
        const struct vb_cq_opts cq = {.entries = 64, .unit = u + 1};
        assert_int_equal(vb_cq_create(s->nic, &cq, &s->cq[u]), 0);
        const struct vb_qp_opts qp = {
            .send_cq = s->cq[u], .recv_cq = s->cq[u], .send_depth = 16, .recv_depth = 16};
        assert_int_equal(vb_qp_create(s->pd, &qp, &s->qp[u]), 0);
    }
}

static void connect_to(struct side *s, const struct side *peer)
{
    for (uint32_t u = 0; u < UNITS; u++) {
        struct vb_qp_peer p = {
            .qpn = vb_qp_num(peer->qp[u]), .rights = DUO_REMOTE, .timeout = DUO_TIMEOUT};
        vb_nic_gid(peer->nic, p.gid);
        assert_int_equal(vb_qp_connect(s->qp[u], &p), 0);
    }
}

static void open_both(struct side s[2], const char *port)
{
    memset(s, 0, 2 * sizeof *s);
    open_side(&s[0], 0, port);
    open_side(&s[1], 1, port);
    connect_to(&s[0], &s[1]);
    connect_to(&s[1], &s[0]);
}

static void close_both(struct side s[2])
{
    vb_nic_close(s[0].nic);
    vb_nic_close(s[1].nic);
}

static void post_read(struct side s[2], uint32_t u)
{
    const struct vb_sge sge = {(uintptr_t)s[0].memory, 8, vb_mr_key(s[0].mr)};
    const struct vb_send_wr wr = {.wr_id = u,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)s[1].memory,
                                  .rkey = vb_mr_key(s[1].mr)};
    assert_int_equal(vb_post_send(s[0].qp[u], &wr, 1), 1);
}

// A round trip on unit u; the helper answers for the peer.
static void read_once(struct side s[2], uint32_t u)
{
    post_read(s, u);
    duo_expect(s[0].cq[u], u, VB_WC_OK);
}

// ---- what threads cost

static unsigned count_helpers(void)
{
    unsigned count = 0;
    DIR *list = opendir("/proc/self/task");
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f == NULL)
            continue;
        count += fgets(name, sizeof name, f) && strcmp(name, "verbena\n") == 0;
        fclose(f);
    }
    closedir(list);
    return count;
}

// Those of a NIC that was closed are listed until the system has buried them.
static void expect_helpers(unsigned count)
{
    WAIT_UNTIL(count_helpers() == count);
}

static void test_idle_units_use_no_cpu(void **state)
{
    struct side s[2];
    open_both(s, *state);
    for (uint32_t i = 0; i < 20; i++)
        read_once(s, i % UNITS);
    expect_helpers(2); // one for each NIC, however many units it has
    duo_expect_idle();
    for (uint32_t i = 0; i < UNITS; i++) // and both wake
        read_once(s, i);
    close_both(s);
}

// The lanes that the NIC's helper sleeps on, as bits.
static uint32_t watched(const struct side *s)
{
    return atomic_load(&s->nic->helper.asleep);
}

// Round trips on unit 0, both NICs polled there and nowhere else, until the helper of the first
// sleeps on these lanes.
static void poll_until(struct side s[2], uint32_t lanes)
{
    while (watched(&s[0]) != lanes) {
        struct vb_wc wc;
        post_read(s, 0);
        while (vb_poll_cq(s[0].cq[0], &wc, 1) == 0)
            (void)vb_poll_cq(s[1].cq[0], &wc, 1);
        assert_int_equal(wc.status, VB_WC_OK);
    }
}

// While the application runs one unit and the other one rests, no frame of the first wakes the
// helper; when it stops, the helper takes over.
static void test_a_helper_leaves_a_polled_unit_alone(void **state)
{
    struct side s[2];
    open_both(s, *state);
    read_once(s, 1);
    poll_until(s, 2);
    WAIT_UNTIL(watched(&s[0]) == 3);
    read_once(s, 1);
    close_both(s);
}

// A program that never ends keeps its unit's helper busy, but not from the other unit: that is
// polled for a while, and needs the helper again when it no longer is.
static void test_an_endless_program_does_not_keep_the_helper(void **state)
{
    struct side s[2];
    struct vb_wc wc;
    open_both(s, *state);
    const struct duo_end end = {.nic = s[1].nic,
                                .pd = s[1].pd,
                                .cq = s[1].cq[0],
                                .mr = s[1].mr,
                                .memory = (uint8_t *)s[1].memory};
    chain_start(chain_endless(&end, end.cq, (struct vb_qp_opts){0}, 32));
    for (uint32_t i = 0; i < 50000; i++)
        assert_int_equal(vb_poll_cq(s[1].cq[1], &wc, 1), 0);
    read_once(s, 1);
    read_once(s, 0);
    close_both(s);
}

#define ON(test, port)                                                   \
    {                                                                    \
#test " (" port ")", test, NULL, NULL, (void *)(uintptr_t)(port) \
    }
#define ON_PORTS(test) ON(test, "udp"), ON(test, "shm"), ON(test, "auto")

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_PORTS(test_idle_units_use_no_cpu),
        ON(test_a_helper_leaves_a_polled_unit_alone, "shm"),
        ON(test_an_endless_program_does_not_keep_the_helper, "shm"),
        ON(test_an_endless_program_does_not_keep_the_helper, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
