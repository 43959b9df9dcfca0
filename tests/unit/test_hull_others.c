// SPDX-License-Identifier: Apache-2.0
// What one application can name of another's by domains of XRC, keys, lists of queue pairs and
// rings: nothing; and what quotas say to groups and longer rings.
#include "../wait.h"
#include "duo.h"
#include "hull_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BYTES = 1 << 17,
    ROUNDS = 20000,
};

// An application that writes its own messages.
struct app {
    int fd;
    uint8_t *memory;
    uint32_t pd, cqn, xrcd, qpn;
};

static struct vb_hull_reply ask(struct app *a, struct vb_hull_request r, int error)
{
    struct vb_hull_reply reply;

    assert_int_equal(hull_kit_ask(a->fd, &r, &reply), error);
    return reply;
}

static struct vb_hull_place place(uint32_t page)
{
    return (struct vb_hull_place){.memory = 1, .offset = page * 4096};
}

static struct vb_hull_request cq_request(void)
{
    return (struct vb_hull_request){.op = VB_HULL_CQ_CREATE,
                                    .cq = {.ring = place(0), .record = place(1), .entries = 16}};
}

static struct vb_hull_request qp_request(const struct app *a, uint32_t page)
{
    return (struct vb_hull_request){.op = VB_HULL_QP_CREATE,
                                    .qp = {.send = place(page),
                                           .recv = place(page + 1),
                                           .record = place(page + 2),
                                           .pd = a->pd,
                                           .type = VB_QPT_UD,
                                           .send_cqn = a->cqn,
                                           .recv_cqn = a->cqn,
                                           .send_blocks = 16,
                                           .recv_entries = 16,
                                           .recv_stride_bytes = 16}};
}

static void map_memory(struct app *a)
{
    const struct vb_hull_request r = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = BYTES}};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];

    assert_int_equal(vb_contract_send(a->fd, &r, sizeof r, 0, NULL, 0), 0);
    assert_int_equal(vb_contract_receive(a->fd, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(reply.error, 0);
    a->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    assert_ptr_not_equal(a->memory, MAP_FAILED);
    close(fds[0]);
}

static struct app attach(const struct vb_hull *hull)
{
    struct app a = {.fd = hull_kit_connect(hull)};

    ask(&a, hull_kit_hello(), 0);
    map_memory(&a);
    a.pd = ask(&a, (struct vb_hull_request){.op = VB_HULL_PD_CREATE}, 0).number;
    a.cqn = ask(&a, cq_request(), 0).number;
    a.xrcd = ask(&a, (struct vb_hull_request){.op = VB_HULL_XRCD_CREATE}, 0).number;
    a.qpn = ask(&a, qp_request(&a, 2), 0).number;
    return a;
}

static void leave(struct app *a)
{
    munmap(a->memory, BYTES);
    close(a->fd);
}

static struct vb_hull_request srq_request(const struct app *a, uint32_t xrcd, uint32_t cqn)
{
    return (struct vb_hull_request){.op = VB_HULL_SRQ_CREATE,
                                    .srq = {.ring = place(5),
                                            .record = place(6),
                                            .pd = a->pd,
                                            .entries = 16,
                                            .stride_bytes = 32,
                                            .xrcd = xrcd,
                                            .cqn = cqn}};
}

static void test_domains_of_xrc(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct app victim = attach(hull), a = attach(hull);

    (void)state;
    assert_int_not_equal(a.xrcd, victim.xrcd);
    ask(&a, srq_request(&a, victim.xrcd, a.cqn), -ENOENT);
    ask(&a, srq_request(&a, a.xrcd, victim.cqn), -ENOENT);
    ask(&a, srq_request(&a, a.xrcd, 0), -EINVAL);
    ask(&a, srq_request(&a, 0, a.cqn), -EINVAL);
    ask(&a, srq_request(&a, a.xrcd, a.cqn), 0);
    struct vb_hull_request target = qp_request(&a, 7);
    target.qp.type = VB_QPT_XRC_TGT;
    target.qp.recv_entries = 0;
    target.qp.srqn = victim.xrcd;
    ask(&a, target, -ENOENT);
    target.qp.srqn = 0;
    ask(&a, target, -EINVAL);
    target.qp.srqn = a.xrcd;
    ask(&a, target, 0);
    target.qp.type = VB_QPT_COUNT;
    ask(&a, target, -ENOENT); // for that, it would be a shared receive queue
    leave(&a);
    leave(&victim);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

static struct vb_hull_reply free_domain(struct app *a, uint32_t xrcd, int error)
{
    return ask(a, (struct vb_hull_request){.op = VB_HULL_XRCD_DESTROY, .number = xrcd}, error);
}

static void test_domains_end(void **state)
{
    const struct vb_hull_request create = {.op = VB_HULL_XRCD_CREATE};
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nregions = 5\n");

    (void)state;
    hull->xrcds = UINT32_MAX - 3;                       // as after that many others
    struct app victim = attach(hull), a = attach(hull); // two of each
    for (uint32_t i = 0; i < 10; i++)
        free_domain(&a, ask(&a, create, 0).number, 0);
    hull->xrcds = victim.xrcd - 1;
    uint32_t last = ask(&a, create, 0).number; // those that are in use are passed over
    assert_int_equal(last, UINT32_MAX);
    ask(&a, create, -EDQUOT);
    free_domain(&a, last, 0);
    free_domain(&a, last, -ENOENT);
    free_domain(&a, victim.xrcd, -ENOENT);
    free_domain(&a, 0, -ENOENT);
    ask(&a, srq_request(&a, last, a.cqn), -ENOENT);
    // One that is used stays.
    uint32_t srqn = ask(&a, srq_request(&a, a.xrcd, a.cqn), 0).number;
    struct vb_hull_request target = qp_request(&a, 7);
    target.qp.type = VB_QPT_XRC_TGT;
    target.qp.recv_entries = 0;
    target.qp.srqn = a.xrcd;
    uint32_t qpn = ask(&a, target, 0).number;
    free_domain(&a, a.xrcd, -EBUSY);
    ask(&a, (struct vb_hull_request){.op = VB_HULL_SRQ_DESTROY, .number = srqn}, 0);
    free_domain(&a, a.xrcd, -EBUSY);
    ask(&a, (struct vb_hull_request){.op = VB_HULL_QP_DESTROY, .number = qpn}, 0);
    free_domain(&a, a.xrcd, 0);
    ask(&a, target, -ENOENT);
    leave(&a);
    leave(&victim);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

static void test_keys_and_lists(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct app victim = attach(hull), a = attach(hull);
    struct vb_hull_request key = {.op = VB_HULL_KEY_CREATE,
                                  .key = {.at = place(10), .len = 64, .pd = victim.pd}};

    (void)state;
    uint32_t theirs = ask(&victim, key, 0).number;
    key.key.pd = a.pd;
    uint32_t own = ask(&a, key, 0).number;
    struct vb_hull_request find = {.op = VB_HULL_KEY_FIND,
                                   .find = {.len = 64, .pd = a.pd, .key = theirs}};
    ask(&a, find, -ENOENT); // as if it were not there
    find.find.pd = victim.pd;
    ask(&a, find, -ENOENT);
    find.find = (struct vb_hull_find){.len = 64, .pd = a.pd, .key = own};
    struct vb_hull_reply reply = ask(&a, find, 0);
    assert_int_equal(reply.place.memory, 1);
    assert_int_equal(reply.place.offset, 10 * 4096);
    find.find.len = 65;
    ask(&a, find, -ERANGE);
    // A list of queue pairs, and where it lies.
    uint32_t *list = (uint32_t *)(void *)(a.memory + 11 * 4096);
    struct vb_hull_request spread = {.op = VB_HULL_QP_SPREAD,
                                     .number = a.qpn,
                                     .spread = {.members = place(11), .count = 1, .fields = 1}};
    list[0] = victim.qpn;
    ask(&a, spread, -ENOENT);
    list[0] = ask(&a, qp_request(&a, 12), 0).number;
    spread.spread.members.offset = BYTES;
    ask(&a, spread, -EFAULT);
    spread.spread.members = (struct vb_hull_place){.memory = 2};
    ask(&a, spread, -ENOENT);
    spread.spread.members = place(11);
    spread.spread.count = 1u << 31;
    ask(&a, spread, -EINVAL);
    spread.spread.count = 1;
    ask(&a, spread, 0);
    leave(&a);
    leave(&victim);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

static void test_another_ring(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nentries = 80\n");
    struct app a = attach(hull); // 16 and 32 entries
    struct vb_hull_request r = {
        .op = VB_HULL_CQ_RESIZE, .number = a.cqn, .resize = {.ring = place(16), .entries = 64}};

    (void)state;
    assert_non_null(strstr(ask(&a, r, -EDQUOT).text, "may have 80 entries"));
    r.resize.entries = 24;
    ask(&a, r, -EINVAL); // no power of two
    r.resize.entries = 32;
    r.resize.consumed = 1; // nothing was produced
    ask(&a, r, -EINVAL);
    r.resize.consumed = 0;
    r.resize.ring.offset = BYTES - 64;
    ask(&a, r, -EFAULT);
    r.resize.ring.offset = 16 * 4096 + 8;
    ask(&a, r, -EFAULT);
    r.resize.ring = place(16);
    ask(&a, r, 0);
    ask(&a, r, 0); // to itself, which is odd and harmless
    r.resize.entries = 8;
    ask(&a, r, 0);
    r.resize.entries = 32; // what was given back can be had again
    ask(&a, r, 0);
    leave(&a);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

static void test_groups_are_charged(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nqueues = 3\n");
    struct app a = attach(hull); // of which one is the completion queue
    struct vb_hull_request join = {
        .op = VB_HULL_QP_JOIN, .number = a.qpn, .group = {{[10] = 0xff, 0xff, 239, 65, 0, 1}}};
    struct vb_hull_request quit = join;

    (void)state;
    quit.op = VB_HULL_QP_LEAVE;
    ask(&a, quit, -ENOENT);
    ask(&a, join, 0);
    ask(&a, join, -EEXIST);
    join.group.gid[15] = 2;
    ask(&a, join, 0);
    join.group.gid[15] = 3;
    assert_non_null(strstr(ask(&a, join, -EDQUOT).text, "may have 3 queues"));
    ask(&a, quit, 0);
    ask(&a, join, 0);
    join.group.gid[12] = 127; // no group
    ask(&a, quit, -ENOENT);
    ask(&a, (struct vb_hull_request){.op = VB_HULL_QP_DESTROY, .number = a.qpn}, 0);
    a.qpn = ask(&a, qp_request(&a, 2), 0).number;
    join.number = a.qpn;
    ask(&a, join, -EINVAL);
    join.group.gid[12] = 239; // it is in none, and may be in two again
    ask(&a, join, 0);
    join.group.gid[15] = 4;
    ask(&a, join, 0);
    leave(&a);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

// ---- first packets

static int take_seat(const struct app *a)
{
    const struct vb_hull_request r = {.op = VB_HULL_SEAT_TAKE};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];

    assert_int_equal(vb_contract_send(a->fd, &r, sizeof r, 0, NULL, 0), 0);
    assert_int_equal(vb_contract_receive(a->fd, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(reply.error, 0);
    assert_true(fds[0] >= 0 && fds[1] < 0);
    return fds[0];
}

static void come(struct vb_hull *hull, uint32_t qpn)
{
    const struct vb_event event = {.kind = VB_EVENT_COMM_EST, .number = qpn};

    vb_host_lock(hull->nic);
    vb_hull_event(hull, &event);
    vb_host_unlock(hull->nic);
}

// The manager of who has the queue pair is told, and no other.
static void test_first_packets(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct app victim = attach(hull), a = attach(hull), alone = attach(hull);
    uint32_t descriptors = hull->descriptors.used;
    int ear = take_seat(&a), theirs = take_seat(&victim);
    struct vb_hull_event event;

    (void)state;
    come(hull, alone.qpn); // who has no manager
    come(hull, victim.qpn);
    assert_false(duo_is_readable(ear, DUO_QUIET_MS));
    assert_int_equal(recv(theirs, &event, sizeof event, 0), sizeof event);
    assert_int_equal(event.kind, VB_NIC_EVENT_QP_ESTABLISHED);
    assert_int_equal(event.number, victim.qpn);
    for (unsigned i = 0; i < 10000; i++) // nobody reads them, and nobody waits for that
        come(hull, a.qpn);
    int again = take_seat(&a); // the new one is in use, the old one is at its end
    assert_int_equal(hull->descriptors.used, descriptors + 2);
    come(hull, a.qpn);
    assert_int_equal(recv(again, &event, sizeof event, 0), sizeof event);
    assert_int_equal(event.number, a.qpn);
    ssize_t bytes;
    while ((bytes = recv(ear, &event, sizeof event, 0)) > 0)
        ;
    assert_int_equal(bytes, 0);
    close(ear);
    close(again);
    close(theirs);
    leave(&a);
    leave(&alone);
    leave(&victim);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    assert_int_equal(hull->descriptors.used, 0);
    vb_hull_close(hull);
}

// ---- a queue that ignores overruns

// The hull overwrites entries while they are read: what is told of was there, whole and in order.
static void test_overwritten_while_read(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct duo_end e = {.nic = nic};
    uint64_t posted = 0, next = 0, seen = 0;
    struct vb_wc wc[8];

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &e.pd), 0);
    const struct vb_cq_opts opts = {.entries = 4, .ignore_overrun = true};
    assert_int_equal(vb_cq_create(nic, &opts, &e.cq), 0);
    struct vb_qp *qp =
        duo_make_qp(&e, (struct vb_qp_opts){.chain = VB_QP_CROSS_CHANNEL | VB_QP_IGNORE_OVERFLOW,
                                            .send_depth = 64});
    assert_int_equal(vb_qp_connect_self(qp, 0), 0);
    while (posted < ROUNDS) {
        // So few that the driver still knows which requests the oldest entries are of.
        if (posted - vb_cq_count(e.cq) < 16) {
            for (uint32_t i = 0; i < 16; i++) {
                const struct vb_send_wr nop = {
                    .wr_id = posted++, .opcode = VB_WR_NOP, .flags = VB_WR_SIGNALED};
                assert_int_equal(vb_post_send(qp, &nop, 1), 1);
            }
        }
        int n = vb_poll_cq(e.cq, wc, 8);
        assert_in_range(n, 0, 4);
        for (int i = 0; i < n; i++, seen++) {
            assert_int_equal(wc[i].status, VB_WC_OK);
            assert_true(wc[i].wr_id >= next && wc[i].wr_id < posted);
            next = wc[i].wr_id + 1;
        }
    }
    assert_true(seen > 0);
    WAIT_UNTIL(vb_cq_count(e.cq) >= posted);
    int n = vb_poll_cq(e.cq, wc, 8); // the last of them are there, whatever was lost
    assert_true(n > 0 || next == posted);
    assert_true(n == 0 || wc[n - 1].wr_id == posted - 1);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_domains_of_xrc),     cmocka_unit_test(test_domains_end),
        cmocka_unit_test(test_keys_and_lists),     cmocka_unit_test(test_another_ring),
        cmocka_unit_test(test_groups_are_charged), cmocka_unit_test(test_overwritten_while_read),
        cmocka_unit_test(test_first_packets),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
