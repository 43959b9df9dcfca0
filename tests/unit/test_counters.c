// SPDX-License-Identifier: Apache-2.0
// Counters of queue pairs: each counts its own, and together they are the NIC's.
#include "duo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t count_of(const struct vb_qp *qp, const char *name)
{
    uint64_t value = UINT64_MAX;
    assert_int_equal(vb_qp_counter(qp, name, &value), 0);
    return value;
}

static void run(const struct duo *d, struct vb_qp *qp, enum vb_wr_opcode opcode, uint32_t len)
{
    duo_post(d, qp, duo_wr(d, opcode, 1), 0, len);
    duo_expect(d->end[0].cq, 1, VB_WC_OK);
}

// Every name, and no other.
static void test_names(void **state)
{
    static const char *const wanted[] = {
        "sent_pkts",          "rcvd_pkts",          "sent_bytes",
        "rcvd_bytes",         "duplicate_request",  "out_of_seq_request",
        "rcvd_rnr_err",       "send_rnr_err",       "rcvd_seq_err",
        "packet_seq_err",     "retry_exceeded_err", "retry_rnr_exceeded_err",
        "rx_write_requests",  "rx_read_requests",   "rx_send_requests",
        "rx_atomic_requests", "out_of_buffer",      "local_ack_timeout_err",
        "np_cnp_sent",
    };
    enum {
        WANTED = sizeof wanted / sizeof wanted[0]
    };
    struct duo d;
    struct vb_qp *qp[2];
    uint64_t value;
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    for (unsigned i = 0; i < WANTED; i++) {
        assert_int_equal(count_of(qp[0], wanted[i]), 0);
        assert_non_null(vb_qp_counter_name(i));
        assert_int_equal(vb_nic_counter(d.end[0].nic, vb_qp_counter_name(i), &value), 0);
    }
    assert_null(vb_qp_counter_name(WANTED));
    assert_int_equal(vb_qp_counter(qp[0], "sent_pkt", &value), -ENOENT);
    assert_int_equal(vb_qp_counter(qp[0], "rx_malformed", &value), -ENOENT); // the NIC's alone
    duo_close(&d);
}

// So patient that a busy machine makes it send nothing twice.
static void connect_calmly(const struct duo *d, struct vb_qp *qp[2])
{
    for (unsigned i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&d->end[i], (struct vb_qp_opts){0});
    for (unsigned i = 0; i < 2; i++) {
        struct vb_qp_peer peer = duo_peer(d, i, qp[!i]);
        peer.timeout = 20;
        assert_int_equal(vb_qp_connect(qp[i], &peer), 0);
    }
}

// One of two pairs works; the other stays at nothing. MTU 1,024: 3,000 bytes are three packets.
static void test_each_counts_its_own(void **state)
{
    struct duo d;
    struct vb_qp *qp[2], *idle[2];
    duo_open(&d, *state);
    connect_calmly(&d, qp);
    connect_calmly(&d, idle);
    run(&d, qp[0], VB_WR_WRITE, 3000);
    assert_int_equal(count_of(qp[0], "sent_pkts"), 3);
    assert_true(count_of(qp[0], "sent_bytes") > 3000);
    assert_true(count_of(qp[0], "sent_bytes") < 3000 + 3 * 64);
    assert_int_equal(count_of(qp[1], "rcvd_pkts"), 3);
    assert_int_equal(count_of(qp[1], "rcvd_bytes"), count_of(qp[0], "sent_bytes"));
    assert_int_equal(count_of(qp[1], "rx_write_requests"), 1);
    run(&d, qp[0], VB_WR_READ, 3000);
    assert_int_equal(count_of(qp[0], "sent_pkts"), 4);
    assert_int_equal(count_of(qp[1], "rx_read_requests"), 1);
    assert_true(count_of(qp[0], "rcvd_bytes") > 3000);
    run(&d, qp[0], VB_WR_FADD, 8);
    assert_int_equal(count_of(qp[1], "rx_atomic_requests"), 1);
    duo_post_recv(&d.end[1], qp[1], 2, 0, 64);
    run(&d, qp[0], VB_WR_SEND, 64);
    assert_int_equal(count_of(qp[1], "rx_send_requests"), 1);
    assert_int_equal(count_of(qp[1], "sent_pkts"), count_of(qp[0], "rcvd_pkts"));
    for (unsigned i = 0; vb_qp_counter_name(i); i++) {
        assert_int_equal(count_of(idle[0], vb_qp_counter_name(i)), 0);
        assert_int_equal(count_of(idle[1], vb_qp_counter_name(i)), 0);
        assert_int_equal(count_of(qp[0], vb_qp_counter_name(i)),
                         duo_counter(d.end[0].nic, vb_qp_counter_name(i)));
    }
    duo_close(&d);
}

static void test_errors_are_the_queue_pairs(void **state)
{
    struct duo d;
    struct vb_qp *qp[2], *other[2];
    duo_open(&d, *state);
    for (unsigned i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&d.end[i], (struct vb_qp_opts){0});
    struct vb_qp_peer to = duo_peer(&d, 0, qp[1]), from = duo_peer(&d, 1, qp[0]);
    to.rnr_retries = 2;
    to.timeout = 20;
    assert_int_equal(vb_qp_connect(qp[0], &to), 0);
    assert_int_equal(vb_qp_connect(qp[1], &from), 0);
    duo_connect(&d, VB_SERVICE_RC, other);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_SEND, 1), 0, 64); // there is no receive
    duo_expect(d.end[0].cq, 1, VB_WC_RNR_EXCEEDED);
    assert_true(count_of(qp[0], "rcvd_rnr_err") >= 3);
    assert_int_equal(count_of(qp[0], "retry_rnr_exceeded_err"), 1);
    assert_true(count_of(qp[1], "send_rnr_err") >= 3);
    assert_int_equal(count_of(qp[1], "out_of_buffer"), count_of(qp[1], "send_rnr_err"));
    to.retries = 1;
    to.timeout = 8;
    assert_int_equal(vb_qp_connect(qp[0], &to), 0);
    assert_int_equal(vb_nic_set_faults(d.end[0].nic, "drop=100%,dir=tx", NULL), 0);
    duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, 2), 0, 64);
    duo_expect(d.end[0].cq, 2, VB_WC_RETRY_EXCEEDED);
    assert_int_equal(count_of(qp[0], "retry_exceeded_err"), 1);
    assert_int_equal(count_of(qp[0], "local_ack_timeout_err"), 2);
    assert_int_equal(count_of(other[0], "retry_exceeded_err"), 0);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_names, "udp"),
        DUO_TEST(test_names, "hull"),
        DUO_PORTS(test_each_counts_its_own),
        DUO_TEST(test_each_counts_its_own, "hull"),
        DUO_TEST(test_errors_are_the_queue_pairs, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
