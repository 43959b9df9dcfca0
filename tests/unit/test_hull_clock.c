// SPDX-License-Identifier: Apache-2.0
// The hull's clock: read by applications, by peers and by programs, and written by nobody else.
#include "duo.h"
#include "hull_kit.h"
#include "service_kit.h"

#include "../wait.h"
#include "verbena/offload.h"
#include "verbena/wqe.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    STILL_MS = 400, // several times as long as a hull that sleeps takes to set it
};

// Reads the page as nobody can who is not the hull.
static uint64_t look(const struct vb_hull *hull)
{
    return vb_hull_now((const struct vb_hull_clock *)(const void *)hull->clock.base);
}

static void expect_change(const struct vb_hull_clock *clock)
{
    uint64_t before = vb_hull_now(clock);

    WAIT_UNTIL(vb_hull_now(clock) != before);
    assert_true(vb_hull_now(clock) > before);
}

// Something else may wake the hull, but not again and again: a time comes when nothing does.
static void expect_stillness(const struct vb_hull *hull)
{
    uint64_t before;

    do {
        before = look(hull);
        usleep(STILL_MS * 1000); // that nothing happens meanwhile is the claim
    } while (look(hull) != before);
}

// ---- applications

static void test_an_application_reads_it(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    const struct vb_hull_clock *clock = NULL, *again = NULL;
    uint64_t began = duo_now_ns();

    (void)state;
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    assert_int_equal(vb_hull_clock(nic, &again), 0);
    assert_ptr_equal(clock, again);
    assert_true(clock->epoch == hull->epoch && be64toh(clock->epoch_be) == hull->epoch);
    expect_change(clock); // the hull sleeps between
    expect_change(clock);
    assert_true(vb_hull_now(clock) >= began && vb_hull_now(clock) <= duo_now_ns());
    assert_int_equal(vb_hull_free(nic, (void *)(uintptr_t)clock), 0);
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    expect_change(clock);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// A hull that nobody asks for the time sleeps.
static void test_a_hull_sleeps_where_nobody_looks(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    const struct vb_hull_clock *clock = NULL;

    (void)state;
    expect_stillness(hull);
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    expect_change(clock);
    assert_int_equal(vb_hull_free(nic, (void *)(uintptr_t)clock), 0);
    expect_stillness(hull);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// One end of a connection at a hull.
struct end {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_qp *qp;
};

static void make_end(struct end *e, struct vb_nic *nic)
{
    const struct vb_cq_opts cq = {.entries = 16};

    e->nic = nic;
    assert_int_equal(vb_pd_alloc(nic, &e->pd), 0);
    assert_int_equal(vb_cq_create(nic, &cq, &e->cq), 0);
    const struct vb_qp_opts qp = {
        .send_cq = e->cq, .recv_cq = e->cq, .send_depth = 8, .recv_depth = 8};
    assert_int_equal(vb_qp_create(e->pd, &qp, &e->qp), 0);
}

static void join(const struct end *a, const struct end *b)
{
    struct vb_qp_peer peer = {.rights = VB_RIGHT_REMOTE_READ, .mtu = 1024};

    vb_nic_gid(a->nic, peer.gid);
    peer.qpn = vb_qp_num(b->qp);
    assert_int_equal(vb_qp_connect(a->qp, &peer), 0);
    peer.qpn = vb_qp_num(a->qp);
    assert_int_equal(vb_qp_connect(b->qp, &peer), 0);
}

// A service's key of the clock outlives its process: peers read what time it is, and a hull that
// nobody asks sleeps all the same. The next process that looks at it sees it go on.
static void test_a_service_without_a_process_wakes_nobody(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = service_open(hull, "clock");
    const struct vb_hull_clock *clock = NULL;
    struct end served, peer;
    struct vb_mr *mr, *own;
    void *memory;

    (void)state;
    make_end(&served, nic);
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    assert_int_equal(
        vb_mr_reg(served.pd, (void *)(uintptr_t)clock, sizeof *clock, VB_RIGHT_REMOTE_READ, &mr),
        0);
    uint64_t at = (uintptr_t)clock;
    uint32_t key = vb_mr_key(mr);
    make_end(&peer, hull_kit_attach(hull));
    assert_int_equal(vb_hull_alloc(peer.nic, NULL, 4096, &memory), 0);
    assert_int_equal(vb_mr_reg(peer.pd, memory, 4096, VB_RIGHT_ALL, &own), 0);
    join(&served, &peer);
    vb_nic_close(nic);
    hull_kit_wait(hull, 1);
    expect_stillness(hull);
    for (unsigned i = 0; i < 3; i++) {
        const struct vb_sge sge = {(uintptr_t)memory, sizeof *clock, vb_mr_key(own)};
        const struct vb_send_wr wr = {.wr_id = i,
                                      .opcode = VB_WR_READ,
                                      .flags = VB_WR_SIGNALED,
                                      .sge = &sge,
                                      .num_sge = 1,
                                      .raddr = at,
                                      .rkey = key};
        uint64_t before = duo_now_ns();
        assert_int_equal(vb_post_send(peer.qp, &wr, 1), 1);
        duo_expect(peer.cq, i, VB_WC_OK);
        uint64_t seen = vb_hull_now(memory);
        assert_true(seen >= before && seen <= duo_now_ns());
        hull_kit_await_sleep(hull);
    }
    expect_stillness(hull);
    nic = service_open(hull, "clock");
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    expect_change(clock);
    assert_int_equal(vb_service_release(nic), 0);
    vb_nic_close(nic);
    vb_nic_close(peer.nic);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    assert_int_equal(hull->watchers, 0);
    vb_hull_close(hull);
}

static void test_nobody_else_writes_it(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    const struct vb_hull_clock *clock = NULL;
    struct vb_pd *pd;
    struct vb_mr *mr;
    char path[64], why[VB_ERROR_TEXT];

    (void)state;
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    void *page = (void *)(uintptr_t)clock;
    assert_int_equal(mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", hull->clock.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC); // what an application is handed, at its best
    assert_true(fd >= 0);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);

    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    static const uint32_t rights[] = {VB_RIGHT_LOCAL_WRITE,
                                      VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE,
                                      VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_ATOMIC, VB_RIGHT_BIND};
    for (size_t i = 0; i < sizeof rights / sizeof rights[0]; i++) {
        assert_int_equal(vb_mr_reg(pd, page, sizeof *clock, rights[i], &mr), -EACCES);
        vb_hull_why(nic, why);
        assert_non_null(strstr(why, "the hull's to write"));
    }
    assert_int_equal(vb_mr_reg(pd, page, sizeof *clock, VB_RIGHT_REMOTE_READ, &mr), 0);
    const struct vb_mr_opts more = {
        .addr = page, .len = sizeof *clock, .rights = VB_RIGHT_LOCAL_WRITE};
    assert_int_equal(vb_mr_change(mr, pd, &more), -EACCES);
    assert_int_equal(vb_hull_free(nic, page), -EBUSY); // there is a key for it
    assert_int_equal(vb_mr_dereg(mr), 0);
    assert_int_equal(vb_hull_free(nic, page), 0);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// Rings and records cannot lie there.
static void test_no_ring_lies_in_it(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_hull_request hello = hull_kit_hello(), clock = {.op = VB_HULL_CLOCK},
                           memory = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = 8192}};
    struct vb_hull_reply reply;
    int socket = hull_kit_connect(hull);

    (void)state;
    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &clock, &reply), 0);
    assert_int_equal(reply.memory.bytes, 4096);
    struct vb_hull_place in_clock = {.memory = reply.number}, in_memory = {0};
    assert_int_equal(hull_kit_ask(socket, &memory, &reply), 0);
    in_memory.memory = reply.number;
    struct vb_hull_request cq = {.op = VB_HULL_CQ_CREATE,
                                 .cq = {.ring = in_clock, .record = in_memory, .entries = 16}};
    assert_int_equal(hull_kit_ask(socket, &cq, &reply), -EACCES);
    cq.cq.ring = in_memory;
    cq.cq.record = in_clock;
    assert_int_equal(hull_kit_ask(socket, &cq, &reply), -EACCES);
    cq.cq.record = (struct vb_hull_place){.memory = in_memory.memory, .offset = 4096};
    assert_int_equal(hull_kit_ask(socket, &cq, &reply), 0);
    close(socket);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_each_hull_has_an_epoch(void **state)
{
    uint64_t epoch[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
        struct vb_nic *nic = hull_kit_attach(hull);
        const struct vb_hull_clock *clock = NULL;
        assert_int_equal(vb_hull_clock(nic, &clock), 0);
        epoch[i] = clock->epoch;
        vb_nic_close(nic);
        vb_hull_close(hull);
    }
    assert_true(epoch[0] != epoch[1]);
}

static void test_a_nic_of_this_process_has_none(void **state)
{
    struct vb_nic *nic = duo_open_nic(0, "shm");
    const struct vb_hull_clock *clock;
    int here;

    (void)state;
    assert_int_equal(vb_hull_clock(nic, &clock), -EOPNOTSUPP);
    assert_int_equal(vb_hull_descriptor(nic, &here), -EOPNOTSUPP);
    vb_nic_close(nic);
}

// ---- peers and programs

// A READ wakes the hull, and finds what time it is then.
static void test_a_peer_reads_it(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_mr *mr;
    const struct vb_hull_clock *clock = NULL;

    duo_open(&d, *state);
    const struct duo_end *e = &d.end[1];
    assert_int_equal(vb_hull_clock(e->nic, &clock), 0);
    assert_int_equal(
        vb_mr_reg(e->pd, (void *)(uintptr_t)clock, sizeof *clock, VB_RIGHT_REMOTE_READ, &mr), 0);
    duo_connect(&d, VB_SERVICE_RC, qp);
    uint64_t last = 0;
    for (unsigned i = 0; i < 5; i++) {
        struct vb_send_wr wr = duo_wr(&d, VB_WR_READ, i);
        wr.raddr = (uintptr_t)clock;
        wr.rkey = vb_mr_key(mr);
        duo_await_sleep(&d);
        uint64_t before = duo_now_ns();
        duo_post(&d, qp[0], wr, 0, sizeof *clock);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
        struct vb_hull_clock seen;
        memcpy(&seen, d.end[0].memory, sizeof seen);
        assert_true(seen.now_ns >= before && seen.now_ns <= duo_now_ns() && seen.now_ns > last);
        assert_true(be64toh(seen.epoch_be) == seen.epoch && seen.epoch == clock->epoch);
        last = seen.now_ns;
    }
    struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, 9);
    wr.raddr = (uintptr_t)clock;
    wr.rkey = vb_mr_key(mr);
    duo_post(&d, qp[0], wr, 0, 8);
    duo_expect(d.end[0].cq, 9, VB_WC_REMOTE_ACCESS);
    duo_close(&d);
}

// Copies the time to memory of its own, again and again.
static struct vb_image *make_watcher(void)
{
    char error[200] = "";
    struct vb_chain *c = vb_chain_begin("watcher");
    struct vb_chain_region clock =
        vb_chain_region(c, "clock", VB_CHAIN_SHARED, sizeof(struct vb_hull_clock), false);
    struct vb_chain_region out = vb_chain_region(c, "out", VB_CHAIN_OWN, 16, true);
    struct vb_flow *f = vb_flow_begin(c, "F");
    struct vb_var now = vb_flow_var(f, 0), epoch = vb_flow_var(f, 0);
    struct vb_var from = vb_flow_pointer(f, vb_in(clock, offsetof(struct vb_hull_clock, now_be)));
    struct vb_var first =
        vb_flow_pointer(f, vb_in(clock, offsetof(struct vb_hull_clock, epoch_be)));
    struct vb_var to = vb_flow_pointer(f, vb_in(out, 0)),
                  behind = vb_flow_pointer(f, vb_in(out, 8));

    vb_flow_loop(f);
    vb_flow_load(f, epoch, clock, first, 8);
    vb_flow_store(f, out, behind, epoch, 8);
    vb_flow_load(f, now, clock, from, 8);
    vb_flow_store(f, out, to, now, 8);
    vb_flow_end(f);
    vb_flow_end_program(f);
    struct vb_image *image = vb_chain_finish(c, error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

static void test_a_program_reads_it(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_image *image = make_watcher();
    const struct vb_hull_clock *clock = NULL;
    struct vb_loaded *loaded = NULL;
    char error[200] = "";
    struct vb_pd *pd;
    struct vb_mr *mr;

    (void)state;
    assert_int_equal(vb_hull_clock(nic, &clock), 0);
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(
        vb_mr_reg(pd, (void *)(uintptr_t)clock, sizeof *clock, VB_RIGHT_REMOTE_READ, &mr), 0);
    const struct vb_load_memory memory = {"clock", (uintptr_t)clock, vb_mr_key(mr)};
    const struct vb_load_opts opts = {.pd = pd, .memory = &memory, .memories = 1};
    if (vb_chain_load(nic, image, &opts, &loaded, error) != 0)
        fail_msg("%s", error);
    vb_image_destroy(image);
    uint64_t began = duo_now_ns(), last = 0;
    const uint64_t *out = vb_loaded_data(loaded, "out");
    assert_int_equal(vb_chain_start(loaded), 0);
    for (unsigned changes = 0; changes < 100;) {
        uint64_t seen = be64toh(__atomic_load_n(out, __ATOMIC_ACQUIRE));
        assert_true(seen == 0 || (seen >= last && seen <= duo_now_ns()));
        changes += seen > last && seen >= began;
        last = seen > last ? seen : last;
    }
    assert_true(be64toh(__atomic_load_n(out + 1, __ATOMIC_ACQUIRE)) == hull->epoch);
    vb_chain_unload(loaded);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// ---- memory for who maps it by himself

static void test_named_memory_has_a_descriptor(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    void *named, *nameless;
    char why[VB_ERROR_TEXT];

    (void)state;
    assert_int_equal(vb_hull_alloc(nic, "table", 8192, &named), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, 8192, &nameless), 0);
    int fd = vb_hull_descriptor(nic, named);
    assert_true(fd >= 0);
    uint8_t *again = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(again, MAP_FAILED);
    again[8191] = 7;
    assert_int_equal(((uint8_t *)named)[8191], 7);
    assert_int_equal(ftruncate(fd, 0), -1);
    munmap(again, 8192);
    close(fd);
    assert_int_equal(vb_hull_descriptor(nic, nameless), -EINVAL);
    vb_hull_why(nic, why);
    assert_non_null(strstr(why, "without a name"));
    assert_int_equal(vb_hull_descriptor(nic, (uint8_t *)named + 1), -ENOENT);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_application_reads_it),
        cmocka_unit_test(test_a_hull_sleeps_where_nobody_looks),
        cmocka_unit_test(test_a_service_without_a_process_wakes_nobody),
        cmocka_unit_test(test_nobody_else_writes_it),
        cmocka_unit_test(test_no_ring_lies_in_it),
        cmocka_unit_test(test_each_hull_has_an_epoch),
        cmocka_unit_test(test_a_nic_of_this_process_has_none),
        DUO_TEST(test_a_peer_reads_it, "hull"),
        cmocka_unit_test(test_a_program_reads_it),
        cmocka_unit_test(test_named_memory_has_a_descriptor),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
