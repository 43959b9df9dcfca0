// SPDX-License-Identifier: Apache-2.0
// Answers of NICs as a stranger could write them: what is not one is refused whole.
#include "host/inspect.h"
#include "host/inspect_record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD VB_INSPECT_GREETING "qp\n"
#define NIC  "nic ifname verbena0 port 1\n"

static int parse_bytes(const char *text, size_t len, struct vb_report *report)
{
    char *copy = malloc(len ? len : 1); // exact, so that the sanitizer guards its end
    assert_non_null(copy);
    memcpy(copy, text, len);
    return vb_report_parse(copy, len, "qp", report);
}

static void test_good(void **state)
{
    static const char text[] = HEAD NIC "qp lqpn 17 comm a%20b%25%0Ac\nqp lqpn 18\nend 2\n";
    struct vb_report r;
    (void)state;
    assert_int_equal(parse_bytes(text, sizeof text - 1, &r), 0);
    assert_int_equal(r.records, 2);
    assert_int_equal(r.nic.count, 2);
    assert_string_equal(vb_record_get(&r.nic, "ifname"), "verbena0");
    assert_string_equal(vb_record_get(&r.record[0], "lqpn"), "17");
    assert_string_equal(vb_record_get(&r.record[0], "comm"), "a b%?c"); // nothing for a terminal
    assert_string_equal(vb_record_get(&r.record[1], "lqpn"), "18");
    assert_null(vb_record_get(&r.record[1], "comm"));
    vb_report_free(&r);
    static const char empty[] = HEAD NIC "end 0\n";
    assert_int_equal(parse_bytes(empty, sizeof empty - 1, &r), 0);
    assert_int_equal(r.records, 0);
    vb_report_free(&r);
}

static void test_bad(void **state)
{
    static const char *const bad[] = {
        "",
        "\n",
        "hello\n",
        HEAD,
        HEAD NIC,                                            // no end
        HEAD "end 0\n",                                      // whose?
        VB_INSPECT_GREETING "cq\n" NIC "end 0\n",            // another question's
        VB_INSPECT_GREETING "error question\n",              //
        "verbena-inspect 2 qp\n" NIC "end 0\n",              // another version
        HEAD NIC "end 1\n",                                  // a line is missing
        HEAD NIC "qp lqpn 1\nend 0\n",                       //
        HEAD NIC "qp lqpn 1\nend 1",                         // cut short
        HEAD NIC "qp lqpn 1\nend 1\nmore\n",                 //
        HEAD NIC "qp lqpn 1\nend one\n",                     //
        HEAD NIC "qp lqpn 1\nend 99999999999999999999999\n", //
        HEAD NIC "qp lqpn 1\nend -1\n",                      //
        HEAD NIC "qp lqpn 1\nend1\n",                        //
        HEAD NIC "cq cqn 1\nend 1\n",                        // not what was asked for
        HEAD NIC "qp\nend 1\n",                              // says nothing
        HEAD NIC "qp lqpn\nend 1\n",                         // no value
        HEAD NIC "qp lqpn \nend 1\n",                        //
        HEAD NIC "qp  lqpn 1\nend 1\n",                      // two blanks
        HEAD NIC "qp LQPN 1\nend 1\n",                       // not a key
        HEAD NIC "qp \"x\" 1\nend 1\n",                      //
        HEAD NIC "qp aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1\nend 1\n",
        HEAD NIC "qp lqpn \x1b[2J\nend 1\n", // a terminal's command
        HEAD NIC "qp lqpn \xc3\xa4\nend 1\n",
        HEAD NIC "qp lqpn %\nend 1\n",
        HEAD NIC "qp lqpn %4\nend 1\n",
        HEAD NIC "qp lqpn %4g\nend 1\n",
        HEAD NIC "qp lqpn %0a\nend 1\n", // not as we write it
    };
    struct vb_report r;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse_bytes(bad[i], strlen(bad[i]), &r) != -EPROTO)
            fail_msg("accepted: %s", bad[i]);
        assert_null(r.bytes);
    }
}

static void test_zero_bytes(void **state)
{
    static const char inside[] = HEAD NIC "qp lqpn 1\0 2\nend 1\n";
    static const char first[] = "\0" HEAD;
    struct vb_report r;
    (void)state;
    assert_int_equal(parse_bytes(inside, sizeof inside - 1, &r), -EPROTO);
    assert_int_equal(parse_bytes(first, sizeof first - 1, &r), -EPROTO);
}

// Just so many pairs, and one more; just so long a value, and one byte more.
static void test_limits(void **state)
{
    char text[8192];
    struct vb_report r;
    (void)state;
    for (unsigned extra = 0; extra < 2; extra++) {
        size_t len = (size_t)snprintf(text, sizeof text, HEAD NIC "qp");
        for (unsigned i = 0; i < VB_RECORD_PAIRS + extra; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, " k%u v", i);
        len += (size_t)snprintf(text + len, sizeof text - len, "\nend 1\n");
        assert_int_equal(parse_bytes(text, len, &r), extra ? -EPROTO : 0);
        vb_report_free(&r);
        char value[VB_RECORD_VALUE + 2] = "";
        memset(value, 'x', VB_RECORD_VALUE + extra);
        len = (size_t)snprintf(text, sizeof text, HEAD NIC "qp lqpn %s\nend 1\n", value);
        assert_int_equal(parse_bytes(text, len, &r), extra ? -EPROTO : 0);
        vb_report_free(&r);
    }
}

// Every prefix and every single wrong byte: refused or read, but nothing else.
static void test_bent(void **state)
{
    static const char text[] = HEAD NIC "qp lqpn 17 comm a%20b\nqp lqpn 18\nend 2\n";
    char bent[sizeof text];
    struct vb_report r;
    (void)state;
    for (size_t len = 0; len < sizeof text - 1; len++)
        assert_int_equal(parse_bytes(text, len, &r), -EPROTO);
    for (size_t at = 0; at < sizeof text - 1; at++)
        for (unsigned byte = 0; byte < 256; byte++) {
            memcpy(bent, text, sizeof text);
            bent[at] = (char)byte;
            if (parse_bytes(bent, sizeof text - 1, &r) == 0)
                assert_int_equal(r.records, 2);
            vb_report_free(&r);
        }
}

static void test_words(void **state)
{
    static const char *const words[][2] = {
        {"", "-"},          {"plain-1.2:3", "plain-1.2:3"}, {"a b", "a%20b"},
        {"100%", "100%25"}, {"\n\x1b", "%0A%1B"},           {"\xc3\xa4", "%C3%A4"}};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *text = NULL;
        size_t len;
        FILE *out = open_memstream(&text, &len);
        assert_non_null(out);
        vb_inspect_put_word(out, words[i][0]);
        fclose(out);
        assert_string_equal(text, words[i][1]);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_bad),
        cmocka_unit_test(test_zero_bytes), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bent),       cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
