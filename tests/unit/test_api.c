// SPDX-License-Identifier: Apache-2.0
// The public interface: what it refuses, what it leaves behind when it does, the lives of its
// objects, and several threads on one NIC.
#include "pair.h"
#include "runtime_dir.h"
#include "skips.h"
#include "udp_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    NO_NET = 255, // an exit status
};

// ---- NICs

static int try_open(const char *address, char why[VB_ERROR_TEXT])
{
    struct vb_nic *nic = NULL;
    why[0] = 0;
    int err = vb_nic_open(&(struct vb_nic_opts){.address = address, .error_text = why}, &nic);
    assert_int_equal(err == 0, nic != NULL);
    assert_int_equal(err == 0, why[0] == 0); // an error says why
    vb_nic_close(nic);
    return err;
}

static void test_socket_buffers_from_the_environment(void **state)
{
    (void)state;
    static const char *const wrong[] = {"x", "12k", "-1", " 1", "99999999999"};
    char here[16], why[VB_ERROR_TEXT];
    pair_address(0, here);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("VERBENA_SOCKET_BYTES", wrong[i], 1);
        assert_int_equal(try_open(here, why), -EINVAL);
        assert_non_null(strstr(why, "VERBENA_SOCKET_BYTES"));
    }
    setenv("VERBENA_SOCKET_BYTES", "212992", 1);
    assert_int_equal(try_open(here, why), 0);
    setenv("VERBENA_SOCKET_BYTES", "", 1);
    assert_int_equal(try_open(here, why), 0);
    unsetenv("VERBENA_SOCKET_BYTES");
    assert_int_equal(try_open(here, why), 0);
}

static void test_opening(void **state)
{
    (void)state;
    char here[16], why[VB_ERROR_TEXT];
    pair_address(0, here);
    assert_int_equal(try_open(here, why), 0);
    assert_int_equal(try_open(here, why), 0); // closing gave it back
    struct vb_nic *nic = pair_open_host(0, 0);
    assert_int_equal(try_open(here, why), 0); // there is room for several
    vb_nic_close(nic);
    assert_int_equal(try_open("192.0.2.1", why), -EADDRNOTAVAIL);
    assert_int_equal(try_open("no address", why), -EINVAL);
    assert_int_equal(try_open("", why), -EINVAL);
    assert_int_equal(vb_nic_open(&(struct vb_nic_opts){.address = "300.1.1.1"}, &nic), -EINVAL);
    vb_nic_close(NULL);
}

// In a network of its own, where nobody else can have that address. NO_NET: there is none.
static int open_default_apart(bool taken)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct sockaddr_in at = {.sin_family = AF_INET,
                                       .sin_port = htons(4791),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct vb_nic *nic = NULL;

        if (udp_kit_enter_net())
            _exit(NO_NET);
        int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (taken && bind(other, (const struct sockaddr *)&at, sizeof at) < 0)
            _exit(NO_NET);
        int err = vb_nic_open(NULL, &nic);
        vb_nic_close(nic);
        _exit(-err);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == NO_NET ? NO_NET : -WEXITSTATUS(status);
}

static void test_default_address(void **state)
{
    (void)state;
    int err = open_default_apart(false);
    if (err == NO_NET)
        SKIP("network namespaces are forbidden here");
    assert_int_equal(err, 0);
    assert_int_equal(open_default_apart(true), -EADDRINUSE);
}

static void test_gid_is_the_address(void **state)
{
    (void)state;
    struct vb_nic *nic = pair_open_host(1, 0);
    char want[16], text[16];
    uint8_t gid[16];
    static const uint8_t prefix[12] = {[10] = 0xff, 0xff};
    vb_nic_gid(nic, gid);
    assert_memory_equal(gid, prefix, 12);
    snprintf(text, sizeof text, "%u.%u.%u.%u", gid[12], gid[13], gid[14], gid[15]);
    pair_address(1, want);
    assert_string_equal(text, want);
    vb_nic_close(nic);
}

static void test_counters_by_name(void **state)
{
    (void)state;
    struct vb_nic *nic = pair_open_host(0, 0);
    uint64_t value = 1;
    unsigned n = 0;
    for (const char *name; (name = vb_nic_counter_name(n)); n++) {
        value = 1;
        assert_int_equal(vb_nic_counter(nic, name, &value), 0);
        assert_true(value == 0);
        for (unsigned i = 0; i < n; i++)
            assert_string_not_equal(name, vb_nic_counter_name(i));
    }
    assert_true(n > 20);
    assert_null(vb_nic_counter_name(n + 1000));
    assert_int_equal(vb_nic_counter(nic, "no_such_counter", &value), -ENOENT);
    assert_int_equal(vb_nic_counter(nic, "", &value), -ENOENT);
    vb_nic_close(nic);
}

static void test_counters_count(void **state)
{
    (void)state;
    struct pair p = pair_open(1024, 0);
    pair_connect(&p);
    pair_post(&p, 1, VB_WR_WRITE, 10000);
    pair_expect(&p, 0, 1, VB_WC_WRITE, 10000);
    uint64_t sent = 0, got = 0, writes = 0;
    assert_int_equal(vb_nic_counter(p.end[0].nic, "sent_pkts", &sent), 0);
    assert_int_equal(vb_nic_counter(p.end[1].nic, "rcvd_pkts", &got), 0);
    assert_int_equal(vb_nic_counter(p.end[1].nic, "rx_write_requests", &writes), 0);
    assert_int_equal(sent, 10);
    assert_int_equal(got, 10);
    assert_int_equal(writes, 1);
    pair_close(&p);
}

// ---- objects

static void test_objects_in_use_stay(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct pair_end *e = &p.end[0];
    assert_int_equal(vb_pd_free(e->pd), -EBUSY);
    assert_int_equal(vb_cq_destroy(e->cq), -EBUSY);
    assert_int_equal(vb_qp_destroy(e->qp), 0);
    assert_int_equal(vb_pd_free(e->pd), -EBUSY);
    assert_int_equal(vb_mr_dereg(e->mr), 0);
    assert_int_equal(vb_pd_free(e->pd), 0);
    assert_int_equal(vb_cq_destroy(e->cq), 0);
    pair_close(&p);
}

static void test_regions_that_may_not_be(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct pair_end *e = &p.end[0];
    struct vb_mr *mr = NULL;
    assert_int_equal(vb_mr_reg(e->pd, e->memory, 10, VB_RIGHT_REMOTE_WRITE, &mr), -EINVAL);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, 10, VB_RIGHT_ALL + 1, &mr), -EINVAL);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, SIZE_MAX, 0, &mr), -EINVAL);
    assert_null(mr);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, 10, 0, &mr), 0);
    assert_int_not_equal(vb_mr_key(mr), 0);
    assert_int_not_equal(vb_mr_key(mr), vb_mr_key(e->mr));
    assert_int_equal(vb_mr_dereg(mr), 0);
    pair_close(&p);
}

static void test_queues_that_may_not_be(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct vb_cq *here = p.end[0].cq, *there = p.end[1].cq, *cq = NULL;
    const struct vb_qp_opts bad[] = {
        {.send_cq = here, .send_depth = 1},
        {.recv_cq = here, .send_depth = 1},
        {.send_cq = here, .recv_cq = there, .send_depth = 1},
        {.send_cq = there, .recv_cq = here, .send_depth = 1},
        {.send_cq = here, .recv_cq = here},
        {.send_cq = here, .recv_cq = here, .send_depth = UINT32_MAX},
        {.send_cq = here, .recv_cq = here, .send_depth = 1, .send_sge = 17},
        {.send_cq = here, .recv_cq = here, .send_depth = 1, .inline_bytes = 5000},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct vb_qp *qp = NULL;
        assert_int_equal(vb_qp_create(p.end[0].pd, &bad[i], &qp), -EINVAL);
        assert_null(qp);
    }
    assert_int_equal(vb_cq_create(p.end[0].nic, &(struct vb_cq_opts){.entries = 0}, &cq), -EINVAL);
    assert_int_equal(vb_cq_create(p.end[0].nic, &(struct vb_cq_opts){.entries = UINT32_MAX}, &cq),
                     -EINVAL);
    assert_null(cq);
    pair_close(&p);
}

// ---- connecting

static void test_peers_that_may_not_be(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct vb_qp *qp = p.end[0].qp;
    const struct vb_qp_peer good = p.end[0].peer;
    struct vb_qp_peer bad[12];
    for (size_t i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].mtu = 1000;
    bad[1].psn = 1 << 24;
    bad[2].our_psn = 1 << 24;
    bad[3].qpn = 1 << 24;
    bad[4].timeout = 32;
    bad[5].retries = 8;
    bad[6].rnr_retries = 8;
    bad[7].rnr_timer = 32;
    bad[8].reads = 17;
    bad[9].rights = VB_RIGHT_LOCAL_WRITE;
    bad[10].rights = VB_RIGHT_BIND;
    memset(bad[11].gid, 0x20, 16); // IPv6 from an IPv4 NIC
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(vb_qp_connect(qp, &bad[i]), -EINVAL);
        // A refusal leaves a queue pair that can still be connected.
        assert_int_equal(vb_qp_connect(qp, &good), 0);
        assert_int_equal(vb_qp_connect(qp, &good), -EINVAL); // already
        assert_int_equal(vb_qp_destroy(qp), 0);
        qp = pair_make_qp(&p.end[0]);
    }
    pair_close(&p);
}

static void test_failing_and_coming_back(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    pair_connect(&p);
    for (uint32_t round = 0; round < 5; round++) {
        pair_post_recv(&p.end[1], 1, 100);
        pair_post(&p, 2, VB_WR_SEND, 10);
        pair_expect(&p, 0, 2, VB_WC_SEND, 10);
        pair_expect(&p, 1, 1, VB_WC_RECV, 10);
        for (unsigned i = 0; i < 2; i++) {
            pair_post_recv(&p.end[i], 3 + i, 10);
            assert_int_equal(vb_qp_fail(p.end[i].qp), 0);
            pair_expect_error(&p, i, 3 + i, VB_WC_FLUSHED);
        }
        pair_connect(&p);
    }
    pair_close(&p);
}

// Completions of the former life that nobody took must not disturb the new one.
static void test_coming_back_with_completions_left(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    pair_connect(&p);
    for (uint64_t i = 0; i < 10; i++) {
        pair_post_recv(&p.end[0], 100 + i, 10);
        pair_post(&p, 200 + i, VB_WR_SEND, 10);
    }
    assert_int_equal(vb_qp_fail(p.end[0].qp), 0);
    while (vb_nic_progress(p.end[0].nic))
        ;
    assert_int_equal(vb_qp_connect(p.end[0].qp, &p.end[0].peer), 0);
    pair_post_recv(&p.end[1], 1, 100);
    pair_post(&p, 2, VB_WR_SEND, 10);
    pair_expect(&p, 1, 1, VB_WC_RECV, 10);
    pair_expect(&p, 0, 2, VB_WC_SEND, 10);
    for (uint64_t i = 0; i < 64; i++) // the whole queue can be used
        pair_post_recv(&p.end[0], i, 10);
    pair_close(&p);
}

static void test_failing_before_connecting(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct vb_qp_peer bad = p.end[0].peer;
    bad.mtu = 77;
    assert_int_equal(vb_qp_fail(p.end[0].qp), -EINVAL); // RESET has nothing to fail
    assert_int_equal(vb_qp_connect(p.end[0].qp, &bad), -EINVAL);
    pair_connect(&p);
    assert_int_equal(vb_qp_fail(p.end[0].qp), 0);
    assert_int_equal(vb_qp_fail(p.end[0].qp), 0);
    pair_close(&p);
}

static void test_receives_posted_before_connecting(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    pair_post_recv(&p.end[1], 1, 100);
    pair_post(&p, 2, VB_WR_SEND, 10);
    pair_connect(&p);
    pair_expect(&p, 0, 2, VB_WC_SEND, 10);
    pair_expect(&p, 1, 1, VB_WC_RECV, 10);
    pair_close(&p);
}

// ---- lives and ends

static void test_completions_of_the_gone_are_skipped(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct vb_qp *old = p.end[0].qp;
    pair_connect(&p);
    pair_post_recv(&p.end[0], 1, 10);
    assert_int_equal(vb_qp_fail(old), 0);
    while (vb_nic_progress(p.end[0].nic))
        ;
    p.end[0].qp = pair_make_qp(&p.end[0]);
    assert_int_not_equal(vb_qp_num(old), vb_qp_num(p.end[0].qp));
    assert_int_equal(vb_qp_destroy(old), 0);
    struct vb_wc wc;
    assert_int_equal(vb_poll_cq(p.end[0].cq, &wc, 1), 0);
    pair_close(&p);
}

static void test_closing_in_the_middle(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct pair p = pair_open(256, 0);
        pair_connect(&p);
        for (uint64_t i = 0; i < 20; i++) {
            pair_post_recv(&p.end[1], i, PAIR_MEMORY);
            pair_post(&p, i, i % 2 ? VB_WR_READ : VB_WR_SEND, 100000);
        }
        for (int i = 0; i < 5; i++) {
            vb_nic_progress(p.end[0].nic);
            vb_nic_progress(p.end[1].nic);
        }
        vb_nic_close(p.end[order].nic);
        for (int i = 0; i < 5; i++)
            vb_nic_progress(p.end[!order].nic);
        vb_nic_close(p.end[!order].nic);
        free(p.end[0].memory);
        free(p.end[1].memory);
    }
}

static void test_many_queue_pairs(void **state)
{
    (void)state;
    enum {
        MANY = 100
    };
    struct pair p = pair_open(0, 0);
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < 2; j++)
            p.end[j].qp = pair_make_qp(&p.end[j]);
        for (int j = 0; j < 2; j++)
            p.end[j].peer = pair_peer_of(&p.end[!j], 0);
        pair_connect(&p);
        pair_post_recv(&p.end[1], 1, 100);
        pair_post(&p, 2, VB_WR_SEND, 10);
        pair_expect(&p, 0, 2, VB_WC_SEND, 10);
        pair_expect(&p, 1, 1, VB_WC_RECV, 10);
    }
    pair_close(&p);
}

static void test_every_status_has_a_text(void **state)
{
    (void)state;
    for (int i = VB_WC_OK; i <= VB_WC_RNR_EXCEEDED; i++)
        for (int j = VB_WC_OK; j < i; j++)
            assert_string_not_equal(vb_wc_status_text((enum vb_wc_status)i),
                                    vb_wc_status_text((enum vb_wc_status)j));
    assert_string_equal(vb_wc_status_text((enum vb_wc_status)99), "unknown status");
    assert_string_equal(vb_wc_status_text((enum vb_wc_status) - 1), "unknown status");
}

// ---- threads

enum {
    THREADS = 3,
    ROUNDS = 300
};

struct worker {
    struct pair_end *end; // of the NIC that all threads share
    struct vb_qp *qp;
    struct vb_cq *cq;
    uint64_t raddr;
    uint32_t rkey;
    uint8_t *buffer;
    pthread_t thread;
};

// Writes a number, reads it back; cmocka's asserts are not for other threads.
static void *work(void *arg)
{
    struct worker *w = arg;
    struct vb_wc wc;
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        const struct vb_sge sge[2] = {{(uintptr_t)w->buffer, 8, vb_mr_key(w->end->mr)},
                                      {(uintptr_t)w->buffer + 8, 8, vb_mr_key(w->end->mr)}};
        const struct vb_send_wr wr[2] = {{.sge = &sge[0],
                                          .num_sge = 1,
                                          .opcode = VB_WR_WRITE,
                                          .raddr = w->raddr,
                                          .rkey = w->rkey},
                                         {.sge = &sge[1],
                                          .num_sge = 1,
                                          .opcode = VB_WR_READ,
                                          .flags = VB_WR_SIGNALED,
                                          .raddr = w->raddr,
                                          .rkey = w->rkey}};
        memcpy(w->buffer, &(uint64_t){i}, 8);
        if (vb_post_send(w->qp, wr, 2) != 2)
            return NULL;
        while (vb_poll_cq(w->cq, &wc, 1) == 0)
            ;
        if (wc.status != VB_WC_OK || memcmp(w->buffer, w->buffer + 8, 8) != 0)
            return NULL;
    }
    return w;
}

static void start(struct pair *p, struct worker *w, uint32_t i)
{
    struct pair_end here = p->end[0], there = p->end[1];
    assert_int_equal(vb_cq_create(here.nic, &(struct vb_cq_opts){.entries = 64}, &here.cq), 0);
    here.qp = pair_make_qp(&here);
    there.qp = pair_make_qp(&there);
    struct vb_qp_peer to = pair_peer_of(&there, 0), from = pair_peer_of(&here, 0);
    assert_int_equal(vb_qp_connect(here.qp, &to), 0);
    assert_int_equal(vb_qp_connect(there.qp, &from), 0);
    *w = (struct worker){.end = &p->end[0],
                         .qp = here.qp,
                         .cq = here.cq,
                         .raddr = (uintptr_t)there.memory + i * 64,
                         .rkey = vb_mr_key(there.mr),
                         .buffer = here.memory + i * 64};
}

static void test_threads_share_a_nic(void **state)
{
    (void)state;
    struct pair p = pair_open(0, 0);
    struct worker w[THREADS];
    for (uint32_t i = 0; i < THREADS; i++)
        start(&p, &w[i], i);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        void *result = NULL;
        while (pthread_tryjoin_np(w[i].thread, &result) != 0)
            vb_nic_progress(p.end[1].nic);
        assert_ptr_equal(result, &w[i]);
    }
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test_setup_teardown(test_default_address, runtime_dir_make, runtime_dir_remove),
        cmocka_unit_test(test_gid_is_the_address),
        cmocka_unit_test(test_counters_by_name),
        cmocka_unit_test(test_counters_count),
        cmocka_unit_test(test_objects_in_use_stay),
        cmocka_unit_test(test_regions_that_may_not_be),
        cmocka_unit_test(test_queues_that_may_not_be),
        cmocka_unit_test(test_failing_and_coming_back),
        cmocka_unit_test(test_failing_before_connecting),
        cmocka_unit_test(test_receives_posted_before_connecting),
        cmocka_unit_test(test_completions_of_the_gone_are_skipped),
        cmocka_unit_test(test_closing_in_the_middle),
        cmocka_unit_test(test_many_queue_pairs),
        cmocka_unit_test(test_every_status_has_a_text),
        cmocka_unit_test(test_socket_buffers_from_the_environment),
        cmocka_unit_test(test_threads_share_a_nic),
        cmocka_unit_test(test_coming_back_with_completions_left),
        cmocka_unit_test(test_peers_that_may_not_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
