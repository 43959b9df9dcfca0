// SPDX-License-Identifier: Apache-2.0
// The hull's configuration file: what it says, and one clear line for what it cannot say.
#include "hull/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int parse(const char *text, struct vb_hull_config *config, char error[VB_ERROR_TEXT])
{
    return vb_hull_config_parse(text, (uint32_t)strlen(text), config, error);
}

static int set_up(void **state)
{
    *state = malloc(sizeof(struct vb_hull_config));
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static void test_nothing_is_one_nic(void **state)
{
    struct vb_hull_config *c = *state;
    char error[VB_ERROR_TEXT];

    assert_int_equal(parse("", c, error), 0);
    assert_int_equal(c->nics, 1);
    assert_string_equal(c->nic[0].name, "verbena0");
    assert_string_equal(c->nic[0].address, "127.0.0.1");
    assert_true(!c->metrics[0] && !c->metrics_anywhere);
    assert_int_equal(parse("# only words\n\n  \t\n", c, error), 0);
    assert_int_equal(c->nics, 1);
}

static void test_all_that_can_be_said(void **state)
{
    struct vb_hull_config *c = *state;
    char error[VB_ERROR_TEXT];

    assert_int_equal(parse("[nic fast]  # the first\n"
                           "address = 192.0.2.7\r\n"
                           "port=udp\n"
                           " socket = /run/verbena/hull-fast\n"
                           "group = 0\n"
                           "cpu = 1\n"
                           "spin_us = 0\n"
                           "[nic slow]\n"
                           "cpu = 3, 2 ,5,7\n"
                           "pus = 4\n"
                           "[tenant 1234]\n"
                           "queue_pairs = 7\n"
                           "bytes = 3G\n"
                           "memories = 9\n"
                           "rate_kbps = 1000\n"
                           "tenant_rate_kbps = 5000\n"
                           "weight = 250\n"
                           "copy = no\n"
                           "faults = yes\n"
                           "[metrics]\n"
                           "listen = [::1]:9477\n"
                           "anywhere = yes\n"
                           "[tenant *]\n"
                           "regions = 2K",
                           c, error),
                     0);
    assert_true(c->tenant[0].quota.faults && !c->tenant[0].quota.copy);
    assert_string_equal(c->metrics, "[::1]:9477");
    assert_true(c->metrics_anywhere);
    assert_int_equal(c->nics, 2);
    assert_string_equal(c->nic[0].name, "fast");
    assert_string_equal(c->nic[0].address, "192.0.2.7");
    assert_string_equal(c->nic[0].port, "udp");
    assert_string_equal(c->nic[0].socket, "/run/verbena/hull-fast");
    assert_true(c->nic[0].has_group);
    assert_int_equal(c->nic[0].pus, 1);
    assert_int_equal(c->nic[0].cpus, 1);
    assert_int_equal(c->nic[0].cpu[0], 1);
    assert_int_equal(c->nic[1].pus, 4);
    assert_int_equal(c->nic[1].cpus, 4);
    const uint32_t cpus[] = {3, 2, 5, 7};
    assert_memory_equal(c->nic[1].cpu, cpus, sizeof cpus);
    assert_int_equal(c->nic[0].spin_us, 0);
    assert_string_equal(c->nic[1].name, "slow");
    const struct vb_hull_quota *q = vb_hull_config_quota(c, 1234);
    assert_int_equal(q->queue_pairs, 7);
    assert_int_equal(q->bytes, UINT64_C(3) << 30);
    assert_int_equal(q->memories, 9);
    assert_int_equal(q->rate_kbps, 1000);
    assert_int_equal(q->tenant_rate_kbps, 5000);
    assert_int_equal(q->weight, 250);
    assert_int_equal(vb_hull_config_quota(c, 1)->tenant_rate_kbps, 0);
    assert_int_equal(vb_hull_config_quota(c, 1)->weight, 0); // the usual one
    assert_int_not_equal(q->regions, 2048);
    assert_int_equal(vb_hull_config_quota(c, 1)->regions, 2048);
}

static void test_mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *words;
    } mistakes[] = {
        {"address = 1", "line 1: 'address' stands before the first section"},
        {"\n[nic", "line 2: a section ends with ]"},
        {"[nic ]", "is no name"},
        {"[nic a b]", "is no name"},
        {"[nic a]\n[nic a]", "line 2: there is a NIC 'a' already"},
        {"[wire x]", "there are sections [nic NAME], [tenant USER] and [metrics]"},
        {"[nic a]\ncolour = red", "a NIC has no 'colour'"},
        {"[nic a]\ncpu = -1", "cpu is '-1': give a number"},
        {"[nic a]\ncpu = 99999", "up to 1023"},
        {"[nic a]\ncpu = 1,,2", "cpu is '1,,2': give a number up to 1023 for each unit"},
        {"[nic a]\ncpu = 1 2", "cpu is '1 2'"},
        {"[nic a]\ncpu = 1,2,", "cpu is '1,2,'"},
        {"[nic a]\ncpu = 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "cpu names more than 16"},
        {"[nic a]\npus = 2\ncpu = 1", "NIC 'a' has 2 units (pus), and cpu names 1: give one"},
        {"[nic a]\ncpu = 1,2\n[nic b]", "NIC 'a' has 1 unit (pus), and cpu names 2"},
        {"[nic a]\ncpu = 1,2\npus = 4\n[nic b]", "has 4 units (pus), and cpu names 2"},
        {"[nic a]\npus = 0", "pus is '0': give 1, 2, 4, 8 or 16"},
        {"[nic a]\npus = 3", "pus is '3'"},
        {"[nic a]\npus = 32", "pus is '32'"},
        {"[nic a]\npus = two", "pus is 'two'"},
        {"[nic a]\nspin_us = 5x", "spin_us is '5x'"},
        {"[nic a]\nport =", "port has no value"},
        {"[nic a]\nport", "neither a section nor"},
        {"[nic a]\nport = a-port-that-is-long", "port is longer than 15"},
        {"[nic a]\nsocket = here", "give a path from / on"},
        {"[nic a]\ngroup = no-such-group-at-all", "there is no group"},
        {"[tenant no-such-user-at-all]", "there is no user"},
        {"[tenant *]\nqueue_pairs = many", "queue_pairs is 'many'"},
        {"[tenant *]\nbytes = 99999999999999999999", "give a number"},
        {"[tenant *]\nbytes = 9999999999T", "give a number"},
        {"[tenant *]\nwishes = 3", "a tenant has no 'wishes'"},
        {"[tenant *]\n[nic a]\n[tenant *]", "line 3: there is a section of tenant '*' already"},
        {"[tenant 0]\n[tenant root]", "line 2: there is a section of tenant 'root' already"},
        {"[tenant *]\nbytes = -5", "bytes is '-5': give a number"},
        {"[nic a]\n[nic b]\nport = shm", "NICs 'a' and 'b' have one address: give them two"},
        {"[nic a]\nsocket = /x\n[nic b]\nport = udp\nsocket = /x", "'b' have one socket"},
        {"[metrics]\nwishes = 3", "metrics have no 'wishes'"},
        {"[metrics]\nanywhere = perhaps", "give yes or no"},
        {"[metrics of]\nlisten = 1", "there are sections"},
        {"[tenant *]\nweight = 0", "weight is '0': give a number from 1 to 1000; 100 is usual"},
        {"[tenant *]\nweight = 1001", "weight is '1001'"},
        {"[tenant *]\nfaults = some", "faults is 'some': give yes or no"},
        {"[nic a]\nfurther = ::1\nfurther = ::2\nfurther = ::3\nfurther = ::4",
         "a NIC is on 4 addresses at most"},
        {"[tenant *]\ntenant_rate_kbps = fast", "tenant_rate_kbps is 'fast': give a number"},
    };
    char error[VB_ERROR_TEXT], big[VB_HULL_LINE + 2];

    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        assert_int_equal(parse(mistakes[i].text, *state, error), -EINVAL);
        if (!strstr(error, mistakes[i].words))
            fail_msg("'%s' does not say '%s'", error, mistakes[i].words);
    }
    memset(big, '#', sizeof big);
    assert_int_equal(vb_hull_config_parse(big, VB_HULL_LINE - 1, *state, error), 0);
    assert_int_equal(vb_hull_config_parse(big, VB_HULL_LINE, *state, error), -EINVAL);
    assert_int_equal(vb_hull_config_parse("a\0b", 3, *state, error), -EINVAL);
}

static void test_files(void **state)
{
    char path[] = "/tmp/verbena-config-XXXXXX", error[VB_ERROR_TEXT];
    struct vb_hull_config *c = *state;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "[nic x]\n", 8), 8);
    close(fd);
    assert_int_equal(vb_hull_config_read(path, c, error), 0);
    assert_string_equal(c->nic[0].name, "x");
    unlink(path);
    assert_int_equal(vb_hull_config_read(path, c, error), -ENOENT);
    assert_non_null(strstr(error, "No such file"));
    assert_int_equal(vb_hull_config_read("/", c, error), -EISDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_one_nic),
        cmocka_unit_test(test_all_that_can_be_said),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
