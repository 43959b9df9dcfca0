// SPDX-License-Identifier: Apache-2.0
// A hull whose NIC has several units, each with a thread: who is on which, what crosses, what
// sleeps, and what an application can do to a unit that is not its queue's.
#include "chain.h"
#include "hull_kit.h"
#include "service_kit.h"

#include "../wait.h"
#include "host/attach.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

enum {
    ROUNDS = 200,
    KILLS = 20,
    FEW = 1000, // turns of a thread that sleeps: one that does not makes as many in a millisecond
};

// Two queue pairs of one application, connected with each other, on the two units from its own on.
struct app {
    struct duo_end e;
    struct vb_cq *cq[2];
    struct vb_qp *qp[2];
};

static void join(const struct app *a)
{
    struct vb_qp_peer peer = {.rights = DUO_REMOTE, .mtu = 1024};

    vb_nic_gid(a->e.nic, peer.gid);
    for (unsigned i = 0; i < 2; i++) {
        peer.qpn = vb_qp_num(a->qp[!i]);
        assert_int_equal(vb_qp_connect(a->qp[i], &peer), 0);
    }
}

static struct app open_at(const char *path, uint32_t second)
{
    const struct vb_nic_opts opts = {.hull = path};
    const uint32_t unit[2] = {0, second};
    struct app a = {0};
    void *memory;

    assert_int_equal(vb_nic_open(&opts, &a.e.nic), 0);
    assert_int_equal(vb_pd_alloc(a.e.nic, &a.e.pd), 0);
    assert_int_equal(vb_channel_create(a.e.nic, &a.e.channel), 0);
    assert_int_equal(vb_hull_alloc(a.e.nic, NULL, DUO_BYTES, &memory), 0);
    a.e.memory = memory;
    assert_int_equal(vb_mr_reg(a.e.pd, memory, DUO_BYTES, VB_RIGHT_ALL, &a.e.mr), 0);
    for (unsigned i = 0; i < 2; i++) {
        const struct vb_cq_opts cq = {.entries = 64, .channel = a.e.channel, .unit = unit[i]};
        assert_int_equal(vb_cq_create(a.e.nic, &cq, &a.cq[i]), 0);
        a.e.cq = a.cq[i];
        a.qp[i] = duo_make_qp(&a.e, (struct vb_qp_opts){0});
    }
    join(&a);
    return a;
}

static struct app open_app(const struct vb_hull *hull, uint32_t second)
{
    return open_at(hull->path, second);
}

// Each queue pair has a place of its own: the thread sanitizer does not see that the application
// comes between two units.
static uint8_t *place_of(const struct app *a, unsigned which)
{
    return a->e.memory + which * (DUO_BYTES / 4);
}

// A READ of the second half into the first, by one of the queue pairs.
static int try_read(const struct app *a, unsigned which, uint8_t mark)
{
    const struct vb_sge sge = {(uintptr_t)place_of(a, which), 64, vb_mr_key(a->e.mr)};
    const struct vb_send_wr wr = {.wr_id = mark,
                                  .opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .raddr = (uintptr_t)place_of(a, which) + DUO_BYTES / 2,
                                  .rkey = vb_mr_key(a->e.mr)};

    memset(place_of(a, which) + DUO_BYTES / 2, mark, 64);
    return vb_post_send(a->qp[which], &wr, 1);
}

static void post_read(const struct app *a, unsigned which, uint8_t mark)
{
    assert_int_equal(try_read(a, which, mark), 1);
}

static void work(const struct app *a, unsigned which, uint8_t mark)
{
    post_read(a, which, mark);
    duo_expect(a->cq[which], mark, VB_WC_OK);
    assert_int_equal(place_of(a, which)[63], mark);
}

static uint32_t unit_of(const struct vb_hull *hull, const struct vb_qp *qp)
{
    return vb_qp_num(qp) & (hull->units - 1);
}

// ---- who is where

static void test_applications_take_the_emptiest(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", "pus = 4\n");
    struct app a[5];

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        a[i] = open_app(hull, 0);
        assert_int_equal(unit_of(hull, a[i].qp[0]), i);
        assert_int_equal(unit_of(hull, a[i].qp[1]), i); // all of one on the same unit
    }
    vb_nic_close(a[2].e.nic);
    hull_kit_wait(hull, 3);
    a[2] = open_app(hull, 0);
    assert_int_equal(unit_of(hull, a[2].qp[0]), 2);
    a[4] = open_app(hull, 4); // units are counted from its own
    assert_int_equal(unit_of(hull, a[4].qp[1]), (unit_of(hull, a[4].qp[0]) + 3) % 4);
    for (uint32_t i = 0; i < 5; i++) {
        work(&a[i], 0, (uint8_t)(i + 1));
        work(&a[i], 1, (uint8_t)(i + 7));
        vb_nic_close(a[i].e.nic);
    }
    hull_kit_wait(hull, 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(hull->unit[i].load, 0);
    vb_hull_close(hull);
}

static void test_a_unit_that_is_not_there(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct vb_hull_request r = hull_kit_hello();
    struct vb_hull_reply reply;
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_cq *cq;

    (void)state;
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16, .unit = 3}, &cq),
                     -EINVAL);
    int fd = hull_kit_connect(hull);
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    assert_int_equal(reply.welcome.units, 2);
    for (uint32_t unit = 2; unit; unit <<= 1) {
        r = (struct vb_hull_request){.op = VB_HULL_CQ_CREATE, .cq = {.entries = 16, .unit = unit}};
        assert_int_equal(hull_kit_ask(fd, &r, &reply), -EINVAL);
        assert_non_null(strstr(reply.text, "its unit is out of range"));
    }
    close(fd);
    vb_nic_close(nic);
    vb_hull_close(hull);
}

static void test_threads_that_cannot_be_pinned(void **state)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    const char text[] =
        "[nic pinned]\naddress = 127.0.0.78\nport = udp\npus = 2\ncpu = 1023,1022\n";
    char error[VB_ERROR_TEXT];
    struct vb_hull *hull;

    (void)state;
    assert_non_null(config);
    assert_int_equal(vb_hull_config_parse(text, sizeof text - 1, config, error), 0);
    assert_int_equal(vb_hull_open(config, 0, &hull, error), -EINVAL);
    assert_non_null(strstr(error, "unit 1 cannot run on cpu 1023"));
    free(config);
}

// ---- what crosses

static void test_queue_pairs_of_two_units(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, *state, "pus = 2\n");
    struct app a = open_app(hull, 2), b = open_app(hull, 2);

    assert_int_not_equal(unit_of(hull, a.qp[0]), unit_of(hull, a.qp[1]));
    for (unsigned i = 0; i < ROUNDS; i++) {
        work(&a, i % 2, (uint8_t)(i + 1));
        work(&b, i / 2 % 2, (uint8_t)(i + 2));
    }
    vb_nic_close(a.e.nic);
    for (unsigned i = 0; i < 4; i++)
        work(&b, i % 2, (uint8_t)(i + 1));
    vb_nic_close(b.e.nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// One unit's queue waits for another's completion, and opens the queue of a third application's
// kind there; both sleep in between.
static void test_programs_on_two_units(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct duo_end e = {.nic = hull_kit_attach(hull)};

    (void)state;
    assert_int_equal(vb_pd_alloc(e.nic, &e.pd), 0);
    struct vb_cq *watched = chain_cq(&e, (struct vb_cq_opts){.unit = 2});
    e.cq = chain_cq(&e, (struct vb_cq_opts){0});
    struct vb_cq *opened = chain_cq(&e, (struct vb_cq_opts){.unit = 2});
    struct vb_qp *worker = chain_self(&e, watched, (struct vb_qp_opts){0});
    struct vb_qp *waiter = chain_self(&e, e.cq, (struct vb_qp_opts){0});
    struct vb_qp *managed = chain_self(
        &e, opened, (struct vb_qp_opts){.chain = VB_QP_CROSS_CHANNEL | VB_QP_MANAGED_SEND});
    assert_int_not_equal(unit_of(hull, worker), unit_of(hull, waiter));
    for (uint32_t i = 0; i < 20; i++) {
        chain_nop(managed, 300 + i);
        chain_cross(waiter, VB_WR_WAIT, 100 + i, vb_cq_num(watched), i);
        chain_cross(waiter, VB_WR_SEND_EN, 200 + i, vb_qp_num(managed), i + 1);
        if (i % 4 == 0)
            duo_expect_quiet(e.cq); // both units sleep
        chain_nop(worker, i);
        duo_expect(watched, i, VB_WC_OK);
        duo_expect(e.cq, 100 + i, VB_WC_OK);
        duo_expect(e.cq, 200 + i, VB_WC_OK);
        duo_expect(opened, 300 + i, VB_WC_OK);
    }
    // Without the queue that it waits for, a program of another unit fails.
    assert_int_equal(vb_qp_destroy(worker), 0);
    chain_cross(waiter, VB_WR_WAIT, 1, vb_cq_num(watched), 100);
    duo_expect_quiet(e.cq);
    assert_int_equal(vb_cq_destroy(watched), 0);
    duo_expect(e.cq, 1, VB_WC_LOCAL_QP_OP);
    vb_nic_close(e.nic);
    vb_hull_close(hull);
}

// A program that is stopped fails on its unit, whose thread sleeps.
static void test_a_program_is_stopped_elsewhere(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct duo_end e = {.nic = hull_kit_attach(hull)};
    struct vb_program *program;

    (void)state;
    assert_int_equal(vb_pd_alloc(e.nic, &e.pd), 0);
    e.cq = chain_cq(&e, (struct vb_cq_opts){0});
    struct vb_cq *cq = chain_cq(&e, (struct vb_cq_opts){.unit = 2});
    assert_int_equal(vb_program_create(e.pd, &(struct vb_program_opts){0}, &program), 0);
    struct vb_qp *qp = chain_self(&e, cq, (struct vb_qp_opts){.program = program});
    chain_cross(qp, VB_WR_WAIT, 1, vb_cq_num(e.cq), 7);
    duo_expect_quiet(cq);
    assert_int_equal(vb_program_stop(program), 0);
    assert_int_not_equal(duo_wait(cq).status, VB_WC_OK);
    chain_expect_state(qp, "ERR");
    vb_nic_close(e.nic);
    vb_hull_close(hull);
}

// ---- sleep

static uint64_t turns_of(struct vb_hull *hull, uint32_t unit)
{
    vb_host_lock(hull->nic);
    uint64_t turns = hull->unit[unit].turns;
    vb_host_unlock(hull->nic);
    return turns;
}

static void test_each_sleeps_for_itself(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 4\n");
    struct app a = open_app(hull, 2);
    uint64_t before[4];

    (void)state;
    work(&a, 0, 1);
    hull_kit_await_sleep(hull);
    for (uint32_t i = 0; i < 4; i++)
        before[i] = turns_of(hull, i);
    usleep(200 * 1000); // that nothing happens meanwhile is the claim
    for (uint32_t i = 0; i < 4; i++)
        assert_true(turns_of(hull, i) < before[i] + FEW); // nobody looks, but for a timer
    // The first has to hear of whom to wake, and those who have nothing to do sleep on.
    for (uint8_t i = 1; i < 20; i++) {
        work(&a, i % 2, i);
        hull_kit_await_sleep(hull);
    }
    assert_true(turns_of(hull, 1) > before[1]);
    assert_true(turns_of(hull, 2) < before[2] + FEW);
    assert_true(turns_of(hull, 3) < before[3] + FEW);
    vb_nic_close(a.e.nic);
    vb_hull_close(hull);
}

static void test_events_of_a_unit_that_slept(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct app a = open_app(hull, 2);
    struct vb_cq *cq;

    (void)state;
    for (uint8_t i = 1; i < 20; i++) {
        unsigned which = i % 2;
        assert_int_equal(vb_cq_arm(a.cq[which], false), 0);
        hull_kit_await_sleep(hull);
        post_read(&a, which, i);
        assert_true(duo_is_readable(vb_channel_fd(a.e.channel), DUO_PATIENCE_S * 1000));
        assert_int_equal(vb_channel_take(a.e.channel, &cq), 0);
        assert_ptr_equal(cq, a.cq[which]);
        duo_expect(cq, i, VB_WC_OK);
    }
    // Of a queue pair, too, that fails while its unit sleeps.
    hull_kit_await_sleep(hull);
    assert_int_equal(vb_qp_fail(a.qp[1]), 0);
    vb_nic_close(a.e.nic);
    vb_hull_close(hull);
}

// ---- who does not keep the contract

static struct vb_hull_page *map_pages(int fd, uint32_t units)
{
    void *map = mmap(NULL, vb_hull_page_bytes(units), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    return map;
}

// Its own queues of all units are rung for at all units, and units are kicked that are not there.
static void test_bells_at_the_wrong_unit(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct app victim = open_app(hull, 2), liar = open_app(hull, 2);
    struct vb_attach *attach = liar.e.nic->attach;
    struct vb_doorbells nowhere = {0}; // the driver would take what is written there for an index

    (void)state;
    liar.qp[0]->driver.doorbells = liar.qp[1]->driver.doorbells = &nowhere;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint8_t *pages = (uint8_t *)attach->page;
        memset(pages, round % 2 ? 0xff : (int)round, vb_hull_page_bytes(2));
        const struct vb_hull_request kick = {.op = VB_HULL_KICK, .value = round * 0x01010101u};
        vb_contract_send(attach->socket, &kick, sizeof kick, MSG_DONTWAIT, NULL, 0);
        (void)try_read(&liar, round % 2, (uint8_t)round);
        work(&victim, round / 2 % 2, (uint8_t)(round + 1));
    }
    vb_nic_close(liar.e.nic);
    work(&victim, 0, 1);
    work(&victim, 1, 2);
    vb_nic_close(victim.e.nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// What was posted and rung for at another unit alone is not executed, until it is rung for at its
// own; and there are no pages behind the last unit's.
static void test_a_bell_is_one_unit_s(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct app a = open_app(hull, 2);
    struct vb_attach *attach = a.e.nic->attach;
    struct vb_qp *qp = a.qp[0];
    struct vb_doorbells nowhere = {0}, *right = qp->driver.doorbells;
    uint32_t wrong = !unit_of(hull, qp);

    (void)state;
    work(&a, 0, 9); // a bell of its connecting has been heard then, too
    qp->driver.doorbells = &nowhere;
    post_read(&a, 0, 1);
    qp->driver.doorbells = right;
    vb_doorbell_ring(&vb_hull_page_of(attach->page, wrong)->qps, vb_qp_num(qp));
    vb_attach_kick(attach, UINT32_MAX);
    const struct vb_hull_request kick = {.op = VB_HULL_KICK, .value = 1u << wrong};
    assert_int_equal(vb_contract_send(attach->socket, &kick, sizeof kick, 0, NULL, 0), 0);
    duo_expect_quiet(a.cq[0]);
    vb_doorbell_ring(right, vb_qp_num(qp));
    vb_helper_notice(a.e.nic, UINT32_MAX);
    duo_expect(a.cq[0], 1, VB_WC_OK);
    vb_nic_close(a.e.nic);
    // The memory ends with the last unit's page.
    struct vb_hull_request r = hull_kit_hello();
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS], fd = hull_kit_connect(hull);
    assert_int_equal(vb_contract_send(fd, &r, sizeof r, 0, NULL, 0), 0);
    assert_int_equal(vb_contract_receive(fd, &reply, sizeof reply, 0, fds), sizeof reply);
    munmap(map_pages(fds[0], 2), vb_hull_page_bytes(2));
    assert_true(lseek(fds[0], 0, SEEK_END) <= (off_t)(2 * VB_HULL_PAGE_STRIDE));
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        close(fds[i]);
    close(fd);
    vb_hull_close(hull);
}

// ---- the end of applications

_Noreturn static void live(const char *path)
{
    for (;;) {
        struct app a = open_at(path, 2);
        for (uint8_t i = 1; i < 50; i++) {
            vb_cq_arm(a.cq[i % 2], false);
            work(&a, i % 2, i);
        }
        vb_nic_close(a.e.nic);
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

// Works until it is attached.
static void await(struct vb_hull *hull, const struct app *survivor, pid_t child)
{
    struct vb_hull_counts counts = {0};

    for (uint8_t mark = 0; counts.clients < 2; mark++) {
        work(survivor, mark % 2, mark);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        vb_hull_count(hull, &counts);
    }
}

struct belongings {
    uint64_t clients, objects, bytes, load[2], descriptors, mappings;
};

static struct belongings look(struct vb_hull *hull)
{
    struct vb_hull_counts counts;

    vb_hull_count(hull, &counts);
    vb_host_lock(hull->nic);
    uint64_t load[2] = {hull->unit[0].load, hull->unit[1].load};
    vb_host_unlock(hull->nic);
    return (struct belongings){.clients = counts.clients,
                               .objects = counts.objects,
                               .bytes = counts.bytes,
                               .load = {load[0], load[1]},
                               .descriptors = hull_kit_descriptors(),
                               .mappings = hull_kit_mappings()};
}

// Connections of the dead may wait to be accepted, and counts come after what they count.
static void await_as_before(struct vb_hull *hull, const struct belongings *before)
{
    struct belongings now;

    WAIT_UNTIL((now = look(hull), memcmp(&now, before, sizeof now) == 0));
}

// Over udp: ports that meet in memory connect when they come to it, and descriptors are counted.
static void test_the_killed_leave_nothing(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "pus = 2\n");
    struct app survivor = open_app(hull, 2);
    struct vb_hull_counts counts = {0};

    (void)state;
    while (counts.objects < 7) // two pairs of queues, a channel, a domain and a region
        vb_hull_count(hull, &counts);
    for (uint8_t i = 1; i < 9; i++) // paths between all units are there then
        work(&survivor, i % 2, i);
    struct belongings before = look(hull);
    for (unsigned i = 0; i < KILLS; i++) {
        pid_t child = start(hull);
        int status;
        await(hull, &survivor, child);
        usleep(i * 100); // any moment will do: it is killed wherever it is then
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); // and has not failed by itself
    }
    await_as_before(hull, &before);
    work(&survivor, 0, 1);
    work(&survivor, 1, 2);
    vb_nic_close(survivor.e.nic);
    vb_hull_close(hull);
}

// A service on another unit than the first is found where it was.
static void test_a_service_on_another_unit(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", "pus = 2\n");
    struct app first = open_app(hull, 0);
    struct service_app a;

    (void)state;
    service_make(&a, hull, true);
    assert_int_equal(unit_of(hull, a.qp[0]), 1);
    for (uint64_t n = 1; n < 60; n++) {
        a.here[SERVICE_BYTES / 2] = (uint8_t)n;
        service_read(&a, a.qp[n % 2], n);
        if (n % 6 == 0) { // with what was posted
            vb_nic_close(a.nic);
            hull_kit_wait(hull, 1);
            service_find(&a, hull);
        }
        duo_expect(a.cq, n, VB_WC_OK);
        assert_int_equal(a.here[0], (uint8_t)n);
    }
    assert_int_equal(a.cq->lane - a.nic->lane, 1);
    work(&first, 0, 1);
    vb_nic_close(first.e.nic);
    service_end(&a, hull);
}

// ---- tenants

static struct vb_share_facts facts_of(struct vb_hull *hull, uint32_t unit)
{
    struct vb_share_facts facts;

    vb_host_lock(hull->nic);
    assert_int_equal(vb_pu_share(hull->unit[unit].lane->pu, 1, &facts), 0);
    vb_host_unlock(hull->nic);
    return facts;
}

static void test_a_tenant_has_its_weight_on_each(void **state)
{
    struct vb_hull *hull =
        hull_kit_open(0, "udp", "pus = 2\n[tenant *]\nweight = 250\ntenant_rate_kbps = 800000\n");
    struct app a = open_app(hull, 0), b = open_app(hull, 2);

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        work(&a, i % 2, (uint8_t)(i + 1));
        work(&b, i % 2, (uint8_t)(i + 2));
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(facts_of(hull, i).weight, 250);
        assert_true(facts_of(hull, i).turns > 0);
    }
    vb_nic_close(b.e.nic);
    vb_nic_close(a.e.nic);
    vb_hull_close(hull);
}

// ---- what is each unit's own

struct meddler {
    struct vb_nic *nic;
    atomic_bool ended;
    unsigned rounds, failures;
};

static int open_dump(struct vb_nic *nic)
{
    int fd = memfd_create("trace", MFD_CLOEXEC);

    if (fd >= 0 && vb_nic_trace_dump(nic, fd) == 0)
        return fd;
    close(fd);
    return -1;
}

// Gives an application rules and a trace, and takes them away, while both units work for it.
static void *meddle(void *arg)
{
    struct meddler *m = arg;

    for (; !atomic_load(&m->ended); m->rounds++) {
        m->failures += vb_nic_trace(m->nic, 16384) != 0;
        m->failures += vb_nic_set_faults(m->nic, "dup=10%;delay=20us@10%", NULL) != 0;
        usleep(200); // so that frames meet the rules
        int fd = open_dump(m->nic);
        m->failures += fd < 0;
        close(fd);
        m->failures += vb_nic_trace(m->nic, 0) != 0;
        usleep(200); // the same
        m->failures += vb_nic_set_faults(m->nic, "off", NULL) != 0;
    }
    return NULL;
}

static bool has_mark(int fd, uint8_t mark)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0), marks[32];

    assert_ptr_not_equal(bytes, MAP_FAILED);
    memset(marks, mark, sizeof marks);
    bool found = memmem(bytes, (size_t)size, marks, sizeof marks);
    munmap(bytes, (size_t)size);
    return found;
}

static void test_rules_and_traces_of_two_units(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, *state, "pus = 2\n[tenant *]\nfaults = yes\n");
    struct app a = open_app(hull, 2), b = open_app(hull, 2);
    struct meddler meddler = {.nic = a.e.nic};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, meddle, &meddler), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        work(&a, i % 2, (uint8_t)(i + 1));
        work(&b, i % 2, (uint8_t)(i + 2));
        if (i % 16)
            continue;
        struct app c = open_app(hull, 2); // goes with what it has
        assert_int_equal(vb_nic_trace(c.e.nic, 16384), 0);
        assert_int_equal(vb_nic_set_faults(c.e.nic, "dup=50%", NULL), 0);
        work(&c, i / 16 % 2, 1);
        vb_nic_close(c.e.nic);
    }
    atomic_store(&meddler.ended, true);
    pthread_join(thread, NULL);
    assert_true(meddler.rounds > 0);
    assert_int_equal(meddler.failures, 0);
    assert_int_equal(vb_nic_trace(a.e.nic, 16384), 0);
    for (unsigned i = 0; i < 2; i++) {
        work(&a, i, (uint8_t)(0xa0 + i));
        work(&b, i, (uint8_t)(0xb0 + i));
    }
    int fd = open_dump(a.e.nic);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(has_mark(fd, (uint8_t)(0xa0 + i)));
        assert_false(has_mark(fd, (uint8_t)(0xb0 + i)));
    }
    close(fd);
    vb_nic_close(b.e.nic);
    vb_nic_close(a.e.nic);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

int main(int argc, char **argv)
{
    static char udp[] = "udp", shm[] = "shm";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_applications_take_the_emptiest),
        cmocka_unit_test(test_a_unit_that_is_not_there),
        cmocka_unit_test(test_threads_that_cannot_be_pinned),
        cmocka_unit_test_prestate(test_queue_pairs_of_two_units, udp),
        cmocka_unit_test_prestate(test_queue_pairs_of_two_units, shm),
        cmocka_unit_test(test_programs_on_two_units),
        cmocka_unit_test(test_a_program_is_stopped_elsewhere),
        cmocka_unit_test(test_each_sleeps_for_itself),
        cmocka_unit_test(test_events_of_a_unit_that_slept),
        cmocka_unit_test(test_bells_at_the_wrong_unit),
        cmocka_unit_test(test_a_bell_is_one_unit_s),
        cmocka_unit_test(test_the_killed_leave_nothing),
        cmocka_unit_test(test_a_service_on_another_unit),
        cmocka_unit_test(test_a_tenant_has_its_weight_on_each),
        cmocka_unit_test_prestate(test_rules_and_traces_of_two_units, udp),
        cmocka_unit_test_prestate(test_rules_and_traces_of_two_units, shm),
    };
    if (argc > 1)
        live(argv[1]);
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
