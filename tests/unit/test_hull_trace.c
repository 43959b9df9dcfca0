// SPDX-License-Identifier: Apache-2.0
// Traces of attached applications: what their own queue pairs sent and got, and nothing of others.
#include "hull_app.h"
#include "port/trace.h"
#include "service_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RING = 64 * 1024,
    MARK = 32, // bytes that nothing else is made of
};

// How often bytes of this value come, so many in a row, in what is dumped.
static unsigned count(struct vb_nic *nic, uint8_t value)
{
    int fd = memfd_create("trace", MFD_CLOEXEC);
    uint8_t mark[MARK];
    unsigned found = 0;

    assert_true(fd >= 0);
    assert_int_equal(vb_nic_trace_dump(nic, fd), 0);
    off_t size = lseek(fd, 0, SEEK_END);
    assert_true(size > 0);
    uint8_t *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    memset(mark, value, sizeof mark);
    for (const uint8_t *at = bytes; at + MARK <= bytes + size;) {
        const uint8_t *next = memmem(at, (size_t)(bytes + size - at), mark, sizeof mark);
        if (!next)
            break;
        found++;
        for (at = next; at < bytes + size && *at == value; at++)
            ;
    }
    munmap(bytes, (size_t)size);
    close(fd);
    return found;
}

static void test_own_frames_alone(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, *state, NULL);
    struct hull_app a, b;

    hull_app_open(&a, hull);
    hull_app_open(&b, hull);
    memset(a.e.memory, 0xaa, 64);
    memset(b.e.memory, 0xbb, 64);
    assert_int_equal(vb_nic_trace(a.e.nic, RING), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(hull_app_do(&a, VB_WR_WRITE), VB_WC_OK);
        assert_int_equal(hull_app_do(&b, VB_WR_WRITE), VB_WC_OK);
    }
    assert_true(count(a.e.nic, 0xaa) >= 10); // as they left and as they came
    assert_int_equal(count(a.e.nic, 0xbb), 0);
    assert_int_equal(vb_nic_trace_dump(b.e.nic, STDERR_FILENO), -EINVAL);
    assert_int_equal(vb_nic_trace(b.e.nic, RING), 0); // each has its own
    assert_int_equal(count(b.e.nic, 0xbb), 0);
    assert_int_equal(hull_app_do(&b, VB_WR_WRITE), VB_WC_OK);
    assert_true(count(b.e.nic, 0xbb) >= 2);
    assert_int_equal(count(b.e.nic, 0xaa), 0);
    assert_int_equal(vb_nic_trace(a.e.nic, RING), 0); // begins anew
    assert_int_equal(count(a.e.nic, 0xaa), 0);
    assert_int_equal(vb_nic_trace(a.e.nic, 0), 0);
    assert_int_equal(vb_nic_trace_dump(a.e.nic, STDERR_FILENO), -EINVAL);
    assert_int_equal(hull_app_do(&a, VB_WR_WRITE), VB_WC_OK);
    assert_int_equal(count(b.e.nic, 0xaa), 0);
    hull_app_close(&b); // while it runs
    assert_int_equal(hull_app_do(&a, VB_WR_WRITE), VB_WC_OK);
    hull_app_close(&a);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

// Who sends a datagram to another's queue pair has it in his trace, and the other in his.
static void test_both_sides_of_a_datagram(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, *state, NULL);
    struct hull_app app[3]; // one sends, one receives, one has nothing to do with it
    struct vb_qp *qp[2];

    for (unsigned i = 0; i < 3; i++) {
        hull_app_open(&app[i], hull);
        assert_int_equal(vb_nic_trace(app[i].e.nic, RING), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        qp[i] = duo_make_qp(&app[i].e, (struct vb_qp_opts){.service = VB_SERVICE_UD});
        assert_int_equal(vb_qp_connect(qp[i], &(struct vb_qp_peer){.qkey = 9}), 0);
    }
    duo_post_recv(&app[1].e, qp[1], 6, 0, 256);
    memset(app[0].e.memory, 0xcc, 64);
    const struct vb_sge sge = {(uintptr_t)app[0].e.memory, 64, vb_mr_key(app[0].e.mr)};
    struct vb_send_wr wr = {.sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_SEND,
                            .to = {.qpn = vb_qp_num(qp[1]), .qkey = 9}};
    vb_nic_gid(app[0].e.nic, wr.to.gid);
    assert_int_equal(vb_post_send(qp[0], &wr, 1), 1);
    duo_expect(app[1].e.cq, 6, VB_WC_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(count(app[i].e.nic, 0xcc), i < 2 ? 1 : 0);
        hull_app_close(&app[i]);
    }
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_what_is_refused(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nbytes = 1400K\n");
    struct vb_nic *nic = hull_kit_attach(hull);
    char why[VB_ERROR_TEXT];
    struct vb_hull_reply reply;
    void *memory;

    (void)state;
    assert_int_equal(vb_nic_trace(nic, 100), -EINVAL);
    assert_int_equal(vb_nic_trace(nic, VB_HULL_TRACE_MAX + 1), -EINVAL);
    vb_hull_why(nic, why);
    assert_non_null(strstr(why, "262144 bytes"));
    assert_int_equal(vb_nic_trace_dump(nic, STDERR_FILENO), -EINVAL);
    assert_int_equal(vb_hull_alloc(nic, NULL, 1100 << 10, &memory), 0);
    assert_int_equal(vb_nic_trace(nic, VB_HULL_TRACE_MAX), -EDQUOT);
    assert_int_equal(vb_nic_trace(nic, 4096), 0);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0); // and until its memory has gone back
    // What an application can say that the library does not.
    int fd = hull_kit_connect(hull);
    struct vb_hull_request r = hull_kit_hello();
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    r = (struct vb_hull_request){.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = 1 << 17}};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    struct vb_hull_request read = {.op = VB_HULL_TRACE_READ,
                                   .text = {.at = {.memory = 1}, .bytes = 1 << 17}};
    assert_int_equal(hull_kit_ask(fd, &read, &reply), -EINVAL);
    r = (struct vb_hull_request){.op = VB_HULL_TRACE, .value = 4096};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    assert_int_equal(hull_kit_ask(fd, &read, &reply), 0);
    assert_int_equal(reply.number, 4096);
    read.text.at.offset = 1;
    assert_int_equal(hull_kit_ask(fd, &read, &reply), -EFAULT);
    read.text.at.offset = 0;
    read.text.bytes = 4096;
    assert_int_equal(hull_kit_ask(fd, &read, &reply), -EINVAL);
    close(fd);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

int main(void)
{
    static char udp[] = "udp", both[] = "auto";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_own_frames_alone, udp),
        cmocka_unit_test_prestate(test_own_frames_alone, both),
        cmocka_unit_test_prestate(test_both_sides_of_a_datagram, udp),
        cmocka_unit_test_prestate(test_both_sides_of_a_datagram, both),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
