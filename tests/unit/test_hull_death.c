// SPDX-License-Identifier: Apache-2.0
// Applications that are killed at any moment leave nothing in the hull, and others do not notice.
#include "duo.h"
#include "fresh_seed.h"
#include "hull_kit.h"

#include "../wait.h"
#include "base/prng.h"
#include "nic/facts.h"

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 200,
    BYTES = 1 << 16,
    LIFE_US = 5000, // longest, of a process that is killed
};

extern char **environ;

// Two queue pairs of one application, connected with each other.
struct app {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_channel *channel;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_qp *qp[2];
    uint8_t *memory;
    uint64_t done;
};

static bool join(const struct app *a)
{
    struct vb_qp_peer peer = {.rights = DUO_REMOTE, .mtu = 1024};

    vb_nic_gid(a->nic, peer.gid);
    for (unsigned i = 0; i < 2; i++) {
        peer.qpn = vb_qp_num(a->qp[!i]);
        if (vb_qp_connect(a->qp[i], &peer) != 0)
            return false;
    }
    return true;
}

static bool set_up(struct app *a, const char *path)
{
    const struct vb_nic_opts opts = {.hull = path};
    void *memory;

    *a = (struct app){0};
    if (vb_nic_open(&opts, &a->nic) != 0 || vb_pd_alloc(a->nic, &a->pd) != 0 ||
        vb_channel_create(a->nic, &a->channel) != 0 ||
        vb_hull_alloc(a->nic, NULL, BYTES, &memory) != 0 ||
        vb_mr_reg(a->pd, memory, BYTES, VB_RIGHT_ALL, &a->mr) != 0)
        return false;
    a->memory = memory;
    const struct vb_cq_opts cq = {.entries = 64, .channel = a->channel};
    if (vb_cq_create(a->nic, &cq, &a->cq) != 0)
        return false;
    const struct vb_qp_opts qp = {
        .send_cq = a->cq, .recv_cq = a->cq, .send_depth = 16, .recv_depth = 16};
    for (unsigned i = 0; i < 2; i++)
        if (vb_qp_create(a->pd, &qp, &a->qp[i]) != 0)
            return false;
    return join(a);
}

// A READ of the second half into the first.
static bool work(struct app *a)
{
    const struct vb_sge sge = {(uintptr_t)a->memory, 1024, vb_mr_key(a->mr)};
    const struct vb_send_wr wr = {.wr_id = ++a->done,
                                  .opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .raddr = (uintptr_t)a->memory + BYTES / 2,
                                  .rkey = vb_mr_key(a->mr)};
    struct vb_wc wc = {0};

    memset(a->memory + BYTES / 2, (int)a->done, 1024);
    if (vb_post_send(a->qp[a->done % 2], &wr, 1) != 1)
        return false;
    WAIT_UNTIL(vb_poll_cq(a->cq, &wc, 1) != 0);
    return wc.status == VB_WC_OK && wc.wr_id == a->done && a->memory[1023] == (uint8_t)a->done;
}

// Until it is killed: attaches, works, arms, leaves.
static int live(const char *path)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // with a test that fails
    for (;;) {
        struct app a;
        if (!set_up(&a, path))
            return 2;
        for (unsigned i = 0; i < 50; i++) {
            vb_cq_arm(a.cq, false);
            if (!work(&a))
                return 3;
        }
        vb_nic_close(a.nic);
    }
}

static pid_t start(const struct vb_hull *hull)
{
    char self[] = "/proc/self/exe", path[sizeof hull->path];
    char *words[] = {self, path, NULL};
    pid_t pid;

    memcpy(path, hull->path, sizeof path);
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
    return pid;
}

struct belongings {
    struct vb_hull_counts counts;
    struct vb_count_facts device;
    unsigned descriptors, mappings;
};

static struct belongings look(struct vb_hull *hull, uint32_t clients)
{
    struct belongings b = {.counts = hull_kit_wait(hull, clients)};

    vb_hull_count(hull, &b.counts); // memory has gone back
    vb_host_lock(hull->nic);
    vb_facts_count(hull->nic->dev, &b.device);
    vb_host_unlock(hull->nic);
    b.descriptors = hull_kit_descriptors();
    b.mappings = hull_kit_mappings();
    return b;
}

// Works until another application is attached.
static void await(struct vb_hull *hull, struct app *survivor)
{
    struct vb_hull_counts counts = {0};

    while (counts.clients < 2) {
        assert_true(work(survivor));
        vb_hull_count(hull, &counts);
    }
}

// Over udp: ports that meet in memory connect when they come to it, and descriptors are counted.
static void test_the_killed_leave_nothing(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_prng prng = {.state = fresh_seed()};
    struct app survivor, other;
    uint32_t worked = 0;

    (void)state;
    assert_true(set_up(&survivor, hull->path));
    assert_true(work(&survivor));
    assert_true(set_up(&other, hull->path)); // where the killed will be, if there are several units
    assert_true(work(&other));
    vb_nic_close(other.nic);
    struct belongings before = look(hull, 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        pid_t pid = start(hull);
        if (round % 2)
            await(hull, &survivor); // or it would die before it lives, where starting takes long
        uint64_t until = duo_now_ns() + vb_prng_below(&prng, LIFE_US * 1000);
        while (duo_now_ns() < until)
            assert_true(work(&survivor));
        int status;
        struct vb_hull_counts counts;
        vb_hull_count(hull, &counts);
        worked += counts.clients > 1;
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status)); // and has not failed by itself
    }
    struct belongings after; // some descriptors are closed by another thread, before as well
    WAIT_UNTIL((after = look(hull, 1)).descriptors <= before.descriptors);
    assert_memory_equal(&before.counts, &after.counts, sizeof before.counts);
    assert_memory_equal(&before.device, &after.device, sizeof before.device);
    assert_int_equal(after.mappings, before.mappings);
    assert_true(work(&survivor));
    assert_true(worked > 0); // some were there when they were killed
    vb_nic_close(survivor.nic);
    vb_hull_close(hull);
}

// A process that is stopped in the middle holds up nobody.
static void test_the_stopped_hold_up_nobody(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct app survivor;

    (void)state;
    assert_true(set_up(&survivor, hull->path));
    pid_t pid = start(hull);
    hull_kit_wait(hull, 2);
    kill(pid, SIGSTOP);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(work(&survivor));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hull_kit_wait(hull, 1);
    vb_nic_close(survivor.nic);
    vb_hull_close(hull);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_killed_leave_nothing),
        cmocka_unit_test(test_the_stopped_hold_up_nobody),
    };
    if (argc > 1)
        return live(argv[1]);
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
