// SPDX-License-Identifier: Apache-2.0
// Faults on purpose of attached applications: each may have them, where its tenant may, and they
// are of its own queue pairs alone.
#include "hull_app.h"
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

static const char allowed[] = "[tenant *]\nfaults = yes\n";

struct place {
    struct vb_hull *hull;
    struct hull_app faulty, other; // of one user
};

static void open_place(struct place *p, const char *port)
{
    p->hull = hull_kit_open(0, port, allowed);
    hull_app_open(&p->faulty, p->hull);
    hull_app_open(&p->other, p->hull);
}

static void close_place(struct place *p)
{
    hull_app_close(&p->faulty);
    assert_int_equal(hull_app_do(&p->other, VB_WR_WRITE), VB_WC_OK);
    hull_app_close(&p->other);
    assert_int_equal(hull_kit_wait(p->hull, 0).objects, 0);
    vb_hull_close(p->hull);
}

static void set(struct hull_app *a, const char *rules)
{
    char why[VB_ERROR_TEXT] = "";

    if (vb_nic_set_faults(a->e.nic, rules, why) != 0)
        fail_msg("%s", why);
}

// ---- who may, and what

static void test_is_refused_with_words(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull), *second;
    char why[VB_ERROR_TEXT];
    const struct vb_nic_opts opts = {.hull = hull->path, .faults = "drop=1%", .error_text = why};

    (void)state;
    assert_int_equal(vb_nic_set_faults(nic, "drop=1%", why), -EPERM);
    assert_non_null(strstr(why, "faults = yes"));
    assert_int_equal(vb_nic_set_faults(nic, "off", why), 0);
    assert_int_equal(vb_nic_set_faults(nic, "", NULL), 0);
    assert_int_equal(vb_nic_open(&opts, &second), -EPERM);
    assert_non_null(strstr(why, "faults = yes"));
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

static void test_rules_are_judged(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", allowed);
    struct vb_nic *nic = hull_kit_attach(hull);
    char why[VB_ERROR_TEXT], *text = malloc(VB_HULL_FAULTS_TEXT + 1);

    (void)state;
    assert_non_null(text);
    assert_int_equal(vb_nic_set_faults(nic, "dorp=1%", why), -EINVAL);
    assert_non_null(strstr(why, "dorp"));
    memset(text, ' ', VB_HULL_FAULTS_TEXT);
    text[VB_HULL_FAULTS_TEXT] = '\0';
    assert_int_equal(vb_nic_set_faults(nic, text, why), -E2BIG);
    assert_non_null(strstr(why, "4095 characters"));
    text[VB_HULL_FAULTS_TEXT - 1] = '\0';
    assert_int_equal(vb_nic_set_faults(nic, text, why), 0);
    free(text);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// What an application can say that the library does not.
static void test_requests_are_judged(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", allowed);
    int fd = hull_kit_connect(hull);
    struct vb_hull_request r = hull_kit_hello();
    struct vb_hull_reply reply;

    (void)state;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    r = (struct vb_hull_request){.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = 8192}};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    r = (struct vb_hull_request){.op = VB_HULL_FAULTS, .text = {.at = {.memory = 1}}};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -E2BIG);
    r.text.bytes = VB_HULL_FAULTS_TEXT + 1;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -E2BIG);
    r.text.bytes = VB_HULL_FAULTS_TEXT;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0); // zeros: no rules
    r.text.at.offset = 8192 - VB_HULL_FAULTS_TEXT + 1;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -EFAULT);
    r.text.at = (struct vb_hull_place){.memory = 2};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -ENOENT);
    close(fd);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// ---- whose they are

static void test_errors_are_its_own(void **state)
{
    struct place p;
    struct vb_mr *mr[2];

    open_place(&p, *state);
    set(&p.faulty, "wc=rem_access:write");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(hull_app_do(&p.other, VB_WR_WRITE), VB_WC_OK);
        assert_int_equal(hull_app_do(&p.faulty, VB_WR_READ), VB_WC_OK);
        assert_int_equal(hull_app_do(&p.faulty, VB_WR_WRITE), VB_WC_REMOTE_ACCESS);
        hull_app_join(&p.faulty);
    }
    set(&p.faulty, "qp_error=#2");
    assert_int_equal(hull_app_do(&p.faulty, VB_WR_READ), VB_WC_OK);
    assert_int_equal(hull_app_do(&p.other, VB_WR_READ), VB_WC_OK); // which is not the second
    assert_int_equal(hull_app_do(&p.other, VB_WR_READ), VB_WC_OK);
    assert_int_equal(hull_app_do(&p.faulty, VB_WR_READ), VB_WC_FLUSHED);
    set(&p.faulty, "reg_mr=#1");
    for (unsigned i = 0; i < 2; i++) {
        struct hull_app *a = i ? &p.faulty : &p.other;
        assert_int_equal(vb_mr_reg(a->e.pd, a->e.memory, 64, DUO_RIGHTS, &mr[i]), i ? -ENOMEM : 0);
    }
    assert_int_equal(vb_mr_reg(p.faulty.e.pd, p.faulty.e.memory, 64, DUO_RIGHTS, &mr[1]), 0);
    set(&p.faulty, "off");
    hull_app_join(&p.faulty);
    assert_int_equal(hull_app_do(&p.faulty, VB_WR_WRITE), VB_WC_OK);
    close_place(&p);
}

static void test_losses_are_its_own(void **state)
{
    static const char *const rules[] = {"drop=#1..2,dir=tx,op=read", "drop=#1..2,dir=rx,op=read"};
    struct place p;

    open_place(&p, *state);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t before = duo_counter(p.other.e.nic, "faults_dropped");
        set(&p.faulty, rules[i]);
        for (unsigned n = 0; n < 20; n++)
            assert_int_equal(hull_app_do(&p.other, VB_WR_READ), VB_WC_OK);
        assert_int_equal(duo_counter(p.other.e.nic, "faults_dropped"), before);
        assert_int_equal(hull_app_do(&p.faulty, VB_WR_READ), VB_WC_OK); // the third attempt
        assert_int_equal(duo_counter(p.other.e.nic, "faults_dropped"), before + 2);
    }
    set(&p.faulty, "drop=100%,dir=tx");
    assert_int_equal(hull_app_do(&p.other, VB_WR_WRITE), VB_WC_OK);
    assert_int_equal(hull_app_do(&p.faulty, VB_WR_WRITE), VB_WC_RETRY_EXCEEDED);
    // The other one's rules are the other one's.
    set(&p.faulty, "off");
    set(&p.other, "delay=1ms;dup=50%;reorder=10%");
    hull_app_join(&p.faulty);
    uint64_t delayed = duo_counter(p.other.e.nic, "faults_delayed");
    assert_int_equal(hull_app_do(&p.faulty, VB_WR_WRITE), VB_WC_OK);
    assert_int_equal(duo_counter(p.other.e.nic, "faults_delayed"), delayed);
    for (unsigned n = 0; n < 20; n++)
        assert_int_equal(hull_app_do(&p.other, VB_WR_WRITE), VB_WC_OK);
    assert_true(duo_counter(p.other.e.nic, "faults_delayed") > delayed);
    close_place(&p);
}

// Datagrams share their path: whose they are is in their headers.
static void send_datagram(struct hull_app *from, struct vb_qp *qp, const struct vb_qp *to)
{
    const struct vb_sge sge = {(uintptr_t)from->e.memory, 64, vb_mr_key(from->e.mr)};
    struct vb_send_wr wr = {.wr_id = 5,
                            .sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_SEND,
                            .flags = VB_WR_SIGNALED,
                            .to = {.qpn = vb_qp_num(to), .qkey = 9}};

    vb_nic_gid(from->e.nic, wr.to.gid);
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
    duo_expect(from->e.cq, 5, VB_WC_OK);
}

static struct vb_qp *make_ud(struct hull_app *a)
{
    struct vb_qp *qp = duo_make_qp(&a->e, (struct vb_qp_opts){.service = VB_SERVICE_UD});

    assert_int_equal(vb_qp_connect(qp, &(struct vb_qp_peer){.qkey = 9}), 0);
    return qp;
}

static void test_datagrams(void **state)
{
    struct place p;

    open_place(&p, *state);
    struct vb_qp *faulty = make_ud(&p.faulty), *sender = make_ud(&p.other),
                 *receiver = make_ud(&p.other);
    set(&p.faulty, "drop=100%,dir=tx");
    duo_post_recv(&p.other.e, receiver, 6, 0, 256);
    duo_post_recv(&p.other.e, receiver, 7, 0, 256);
    for (unsigned i = 0; i < 3; i++)
        send_datagram(&p.faulty, faulty, receiver);
    duo_expect_quiet(p.other.e.cq);
    set(&p.faulty, "drop=100%,dir=rx");
    send_datagram(&p.faulty, faulty, receiver);
    duo_expect(p.other.e.cq, 6, VB_WC_OK);
    set(&p.faulty, "drop=100%");
    const struct vb_sge sge = {(uintptr_t)p.other.e.memory, 64, vb_mr_key(p.other.e.mr)};
    struct vb_send_wr wr = {.sge = &sge,
                            .num_sge = 1,
                            .opcode = VB_WR_SEND,
                            .to = {.qpn = vb_qp_num(receiver), .qkey = 9}};
    vb_nic_gid(p.other.e.nic, wr.to.gid);
    assert_int_equal(vb_post_send(sender, &wr, 1), 1);
    duo_expect(p.other.e.cq, 7, VB_WC_OK);
    close_place(&p);
}

// A service's rules are those of the process that set them.
static void test_they_go_with_their_process(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, *state, allowed);
    struct service_app a;

    service_make(&a, hull, false);
    assert_int_equal(vb_nic_set_faults(a.nic, "wc=rem_access", NULL), 0);
    service_read(&a, a.qp[0], 1);
    duo_expect(a.cq, 1, VB_WC_REMOTE_ACCESS);
    service_change(&a, hull);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vb_qp_fail(a.qp[i]), 0);
    service_join(&a);
    service_read(&a, a.qp[0], 2);
    duo_expect(a.cq, 2, VB_WC_OK);
    service_end(&a, hull);
}

int main(void)
{
    static char udp[] = "udp", shm[] = "auto";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_refused_with_words),
        cmocka_unit_test(test_rules_are_judged),
        cmocka_unit_test(test_requests_are_judged),
        cmocka_unit_test_prestate(test_errors_are_its_own, udp),
        cmocka_unit_test_prestate(test_errors_are_its_own, shm),
        cmocka_unit_test_prestate(test_losses_are_its_own, udp),
        cmocka_unit_test_prestate(test_losses_are_its_own, shm),
        cmocka_unit_test_prestate(test_datagrams, udp),
        cmocka_unit_test_prestate(test_datagrams, shm),
        cmocka_unit_test_prestate(test_they_go_with_their_process, udp),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
