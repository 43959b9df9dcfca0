// SPDX-License-Identifier: Apache-2.0
// Congestion control through the public header: its option, and two NICs of which one meets marks.
#include "duo.h"
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

static int open_with(const char *congestion, const char *port, const char *faults, unsigned host,
                     char *why, struct vb_nic **nic)
{
    char text[16];
    pair_address(host, text);
    const struct vb_nic_opts opts = {.address = text,
                                     .port = port,
                                     .faults = faults,
                                     .congestion = congestion,
                                     .error_text = why};
    return vb_nic_open(&opts, nic);
}

static void test_the_option_is_read(void **state)
{
    (void)state;
    static const char *const right[] = {
        "",
        "none",
        "dcqcn",
        "dcqcn:cnp_interval_us=0",
        "dcqcn:cnp_interval_us=10,rp_time_reset_us=300,rp_byte_reset=32767,rp_threshold=1,"
        "rp_ai_rate_mbps=5,rp_hai_rate_mbps=50,rp_dce_tcp_g=1019,rp_dce_tcp_rtt_us=1,"
        "rp_min_rate_mbps=1,rp_max_rate_mbps=100000,rp_burst_bytes=65536",
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        char why[VB_ERROR_TEXT];
        struct vb_nic *nic = NULL;
        if (open_with(right[i], "udp", "off", 0, why, &nic) != 0)
            fail_msg("%s", why);
        vb_nic_close(nic);
    }
}

static void test_mistakes_have_their_line(void **state)
{
    (void)state;
#define CHOICE "there are none, dcqcn and dcqcn:NAME=VALUE,…"
#define KNOB   "docs/congestion.md lists what it has"
#define AI     "dcqcn: rp_ai_rate_mbps is a number from 1 to 400000: rp_ai_rate_mbps=400000"
    static const char *const wrong[][2] = {
        {"bbr", "no congestion control 'bbr': " CHOICE},
        {"dcqcn2", "no congestion control 'dcqcn2': " CHOICE},
        {"none:rp_ai_rate_mbps=1", "no congestion control 'none:rp_ai_rate_mbps=1': " CHOICE},
        {"dcqcn:", "dcqcn has no '': " KNOB},
        {"dcqcn:rp_ai_rate=5", "dcqcn has no 'rp_ai_rate': " KNOB},
        {"dcqcn:rp_ai_rate_mbps=5,", "dcqcn has no '': " KNOB},
        {"dcqcn:rp_ai_rate_mbps", AI},
        {"dcqcn:rp_ai_rate_mbps=", AI},
        {"dcqcn:rp_ai_rate_mbps=0", AI},
        {"dcqcn:rp_ai_rate_mbps=-1", AI},
        {"dcqcn:rp_ai_rate_mbps=400001", AI},
        {"dcqcn:rp_ai_rate_mbps=99999999999999999999", AI},
        {"dcqcn:rp_ai_rate_mbps=5x,cnp_interval_us=1", AI},
        {"dcqcn:rp_min_rate_mbps=11,rp_max_rate_mbps=10",
         "dcqcn: rp_min_rate_mbps is more than rp_max_rate_mbps"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char why[VB_ERROR_TEXT];
        struct vb_nic *nic = NULL;
        assert_int_equal(open_with(wrong[i][0], "udp", "off", 0, why, &nic), -EINVAL);
        assert_string_equal(why, wrong[i][1]);
        setenv("VERBENA_CONGESTION", wrong[i][0], 1);
        assert_int_equal(open_with(NULL, "udp", "off", 0, why, &nic), -EINVAL);
        assert_string_equal(why, wrong[i][1]);
        unsetenv("VERBENA_CONGESTION");
    }
}

// End 0 writes to end 1, whose packets all come marked.
static void open_marked(struct duo *d, struct duo_state *state, const char *here, const char *there)
{
    char why[VB_ERROR_TEXT];
    *d = (struct duo){.state = state};
    if (open_with(here, state->way, "off", 0, why, &state->nic[0]) != 0 ||
        open_with(there, state->way, "mark=100%", 1, why, &state->nic[1]) != 0)
        fail_msg("%s", why);
    d->end[0].nic = state->nic[0];
    d->end[1].nic = state->nic[1];
    duo_open_ends(d);
}

static void exchange(struct duo *d)
{
    struct vb_qp *qp[2];
    duo_connect(d, VB_SERVICE_RC, qp);
    duo_fill(d->end[0].memory, DUO_BYTES, 1);
    for (uint64_t i = 0; i < 20; i++) {
        duo_post(d, qp[0], duo_wr(d, VB_WR_WRITE, i), 0, DUO_BYTES);
        duo_expect(d->end[0].cq, i, VB_WC_OK);
    }
    assert_memory_equal(d->end[0].memory, d->end[1].memory, DUO_BYTES);
}

static void test_marks_come_back_as_cnps(void **state)
{
    struct duo d;
    open_marked(&d, *state, "dcqcn:rp_min_rate_mbps=1000", "dcqcn");
    exchange(&d);
    uint64_t sent = duo_counter(d.end[1].nic, "np_cnp_sent");
    assert_in_range(sent, 1, duo_counter(d.end[1].nic, "np_ecn_marked_roce_packets"));
    assert_in_range(duo_counter(d.end[0].nic, "rp_cnp_handled"), 1, sent);
    assert_int_equal(duo_counter(d.end[0].nic, "rp_cnp_ignored"), 0);
    assert_int_equal(duo_counter(d.end[0].nic, "np_ecn_marked_roce_packets"), 0);
    assert_int_equal(duo_counter(d.end[0].nic, "local_ack_timeout_err"), 0);
    duo_close(&d);
}

static void test_a_sender_without_it_ignores_cnps(void **state)
{
    struct duo d;
    open_marked(&d, *state, "none", "dcqcn");
    exchange(&d);
    assert_true(duo_counter(d.end[1].nic, "np_cnp_sent") > 0);
    assert_int_equal(duo_counter(d.end[0].nic, "rp_cnp_handled"), 0);
    assert_true(duo_counter(d.end[0].nic, "rp_cnp_ignored") > 0);
    duo_close(&d);
}

static void test_a_receiver_without_it_only_counts(void **state)
{
    struct duo d;
    open_marked(&d, *state, "dcqcn", "none");
    exchange(&d);
    assert_int_equal(duo_counter(d.end[1].nic, "np_cnp_sent"), 0);
    assert_true(duo_counter(d.end[1].nic, "np_ecn_marked_roce_packets") > 0);
    assert_int_equal(duo_counter(d.end[0].nic, "rp_cnp_handled"), 0);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_option_is_read),
        cmocka_unit_test(test_mistakes_have_their_line),
        DUO_PORTS(test_marks_come_back_as_cnps),
        DUO_TEST(test_a_sender_without_it_ignores_cnps, "udp"),
        DUO_TEST(test_a_receiver_without_it_only_counts, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
