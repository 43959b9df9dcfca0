// SPDX-License-Identifier: Apache-2.0
// What the service manager says of descriptors, and the names under which it keeps memory.
#include "hull/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// ---- names

static void is_same(const char *nic, uid_t uid, const char *name, const char *wanted)
{
    struct vb_store_key key = {.uid = uid}, again;
    char text[VB_STORE_NAME];

    snprintf(key.nic, sizeof key.nic, "%s", nic);
    snprintf(key.name, sizeof key.name, "%s", name);
    vb_store_write(&key, text);
    if (wanted)
        assert_string_equal(text, wanted);
    assert_null(strpbrk(text, ": \n"));
    assert_true(vb_store_read(text, &again));
    assert_string_equal(again.nic, nic);
    assert_string_equal(again.name, name);
    assert_int_equal(again.uid, uid);
}

static void test_names_come_back(void **state)
{
    char longest[VB_HULL_NAME];

    (void)state;
    is_same("verbena0", 1000, "table", "memory.verbena0.1000.table");
    is_same("a-b_c", 0, "x", "memory.a-b_c.0.x");
    is_same("a", UINT32_MAX - 1, "a:b", "memory.a.4294967294.+613a62");
    is_same("a", 1, "with blank\n", NULL);
    is_same("a", 1, "a.b", NULL);
    is_same("a", 1, "+", NULL);
    memset(longest, '\xff', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    is_same("a", 1, longest, NULL);
    memset(longest, 'n', sizeof longest - 1);
    is_same(longest, 1, longest, NULL);
}

static void test_other_names_are_none(void **state)
{
    static const char *const none[] = {"",
                                       "memory",
                                       "memory.",
                                       "memory.a.1",
                                       "memory.a.1.",
                                       "memory.a..b",
                                       "memory..1.b",
                                       "memory.a.1.b.c",
                                       "memory.a.01.b",
                                       "memory.a.-1.b",
                                       "memory.a.4294967295.b",
                                       "memory.a.99999999999.b",
                                       "memory.a.x.b",
                                       "memory.a b.1.b",
                                       "memory.a.1.b c",
                                       "memory.a.1.+",
                                       "memory.a.1.+6",
                                       "memory.a.1.+6g",
                                       "memory.a.1.+3A",
                                       "memory.a.1.+61",
                                       "memory.a.1.+3a00",
                                       "Memory.a.1.b",
                                       "stored"};
    struct vb_store_key key;
    char text[VB_STORE_NAME];

    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (vb_store_read(none[i], &key))
            fail_msg("'%s' was read", none[i]);
    snprintf(text, sizeof text, "memory.a.1.%0*d", VB_HULL_NAME, 1);
    assert_false(vb_store_read(text, &key));
}

// ---- what the environment says

static void test_the_environment_is_read(void **state)
{
    char error[VB_ERROR_TEXT] = "";
    struct vb_inherited in;

    (void)state;
    assert_int_equal(vb_inherited_parse("3", "one::three words", &in, error), 0);
    assert_int_equal(in.count, 3);
    assert_string_equal(in.fd[0].name, "one");
    assert_string_equal(in.fd[1].name, "");
    assert_string_equal(in.fd[2].name, "three words");
    for (uint32_t i = 0; i < in.count; i++) {
        assert_int_equal(in.fd[i].fd, 3 + i);
        in.fd[i].fd = -1; // it is no descriptor of this process's that may be closed
    }
    vb_inherited_free(&in);
    assert_int_equal(vb_inherited_parse("2", NULL, &in, error), 0);
    assert_string_equal(in.fd[1].name, "");
    in.fd[0].fd = in.fd[1].fd = -1;
    vb_inherited_free(&in);
    assert_int_equal(vb_inherited_parse("0", NULL, &in, error), 0);
    assert_int_equal(in.count, 0);
    vb_inherited_free(&in);
}

static void test_a_wrong_environment_is_refused(void **state)
{
    static const char *const counts[] = {
        "", "-1", "x", "1x", " 1", "65537", "18446744073709551617"};
    static const char *const names[] = {"one", "one:two:three", "one:\x01", "one:\xc3\xa4", ""};
    char error[VB_ERROR_TEXT], longest[VB_INHERITED_NAME + 8];
    struct vb_inherited in;

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        assert_int_equal(vb_inherited_parse(counts[i], "a", &in, error), -EINVAL);
        assert_non_null(strstr(error, "LISTEN_FDS is"));
        assert_int_equal(in.count, 0);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(vb_inherited_parse("2", names[i], &in, error), -EINVAL);
        assert_non_null(strstr(error, "LISTEN_FDNAMES"));
        assert_int_equal(in.count, 2); // to be closed
        assert_string_equal(in.fd[0].name, "");
        in.fd[0].fd = in.fd[1].fd = -1;
        vb_inherited_free(&in);
    }
    memset(longest, 'x', sizeof longest);
    longest[VB_INHERITED_NAME + 1] = '\0';
    assert_int_equal(vb_inherited_parse("1", longest, &in, error), -EINVAL);
    in.fd[0].fd = -1;
    vb_inherited_free(&in);
    longest[VB_INHERITED_NAME] = '\0';
    assert_int_equal(vb_inherited_parse("1", longest, &in, error), 0);
    in.fd[0].fd = -1;
    vb_inherited_free(&in);
}

// Another process's variables are not ours.
static void test_only_ours_is_taken(void **state)
{
    char error[VB_ERROR_TEXT], pid[16];
    struct vb_inherited in;

    (void)state;
    snprintf(pid, sizeof pid, "%ld", (long)getppid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    assert_int_equal(vb_inherited_take(&in, error), 0);
    assert_int_equal(in.count, 0);
    assert_null(getenv("LISTEN_FDS"));
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "x", 1);
    assert_int_equal(vb_inherited_take(&in, error), -EINVAL);
    assert_null(getenv("LISTEN_PID"));
    assert_int_equal(in.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_come_back),
        cmocka_unit_test(test_other_names_are_none),
        cmocka_unit_test(test_the_environment_is_read),
        cmocka_unit_test(test_a_wrong_environment_is_refused),
        cmocka_unit_test(test_only_ours_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
