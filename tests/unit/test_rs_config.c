// SPDX-License-Identifier: Apache-2.0
// The lines of librspreload's configuration.
#include "rspreload/config.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

static void test_words(void **state)
{
    (void)state;
    struct vb_rp_rule r;

    assert_true(vb_rp_rule_parse("iperf3 INET stream *\n", &r));
    assert_string_equal(r.program, "iperf3");
    assert_int_equal(r.domain, AF_INET);
    assert_int_equal(r.type, SOCK_STREAM);
    assert_int_equal(r.protocol, 0);
    assert_true(vb_rp_rule_parse("* PF_INET6 SOCK_DGRAM ipproto_udp", &r));
    assert_string_equal(r.program, "");
    assert_int_equal(r.domain, AF_INET6);
    assert_int_equal(r.type, SOCK_DGRAM);
    assert_int_equal(r.protocol, IPPROTO_UDP);
}

static void test_what_is_no_rule(void **state)
{
    (void)state;
    struct vb_rp_rule r;

    assert_false(vb_rp_rule_parse("", &r));
    assert_false(vb_rp_rule_parse("# * * * *", &r));
    assert_false(vb_rp_rule_parse("* * *", &r));
    assert_false(vb_rp_rule_parse("* UNIX * *", &r));
    assert_false(vb_rp_rule_parse("* * SEQPACKET *", &r));
    assert_false(vb_rp_rule_parse("* * * SCTP", &r));
}

static void test_matches(void **state)
{
    (void)state;
    struct vb_rp_rule r;

    assert_true(vb_rp_rule_parse("iperf INET STREAM TCP", &r));
    assert_true(vb_rp_rule_matches(&r, "iperf3", AF_INET, SOCK_STREAM, 0));
    assert_true(vb_rp_rule_matches(&r, "iperf3", AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    assert_false(vb_rp_rule_matches(&r, "perf", AF_INET, SOCK_STREAM, 0));
    assert_false(vb_rp_rule_matches(&r, "iperf3", AF_INET6, SOCK_STREAM, 0));
    assert_false(vb_rp_rule_matches(&r, "iperf3", AF_INET, SOCK_DGRAM, 0));
    assert_true(vb_rp_rule_parse("* * * UDP", &r));
    assert_true(vb_rp_rule_matches(&r, "any", AF_INET6, SOCK_DGRAM, 0));
    assert_false(vb_rp_rule_matches(&r, "any", AF_INET6, SOCK_STREAM, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_what_is_no_rule),
        cmocka_unit_test(test_matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
