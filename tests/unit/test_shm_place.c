// SPDX-License-Identifier: Apache-2.0
// Opening shm ports: addresses, directories, sockets left over and in use, and what the errors say.
#include "port/shm.h"
#include "port/shm_place.h"
#include "shm_kit.h"
#include "skips.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_refused(const struct vb_shm_opts *wanted, int error, const char *words)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_shm_opts opts = *wanted;
    struct vb_port *port = NULL;
    opts.error_text = why;
    assert_int_equal(vb_shm_open(&opts, &port), error);
    if (strstr(why, words) == NULL)
        fail_msg("'%s' does not say '%s'", why, words);
    opts.error_text = NULL;
    assert_int_equal(vb_shm_open(&opts, &port), error);
    assert_null(port);
}

static void test_addresses(void **state)
{
    static const char *const bad[] = {
        "",      "localhost", "127.0.0", "127.0.0.1.5", "::1::",
        "[::1]", "1.2.3.4/8", "%lo",     "127.0.0.1 x", "1111:2222:3333:4444:5555:6666:7777:8888:9",
    };
    static const char *const many[] = {"0.0.0.0",         "::",      "224.0.0.1",
                                       "255.255.255.255", "ff02::1", "::ffff:0.0.0.0"};
    struct vb_ip ip;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(&(struct vb_shm_opts){.address = bad[i], .runtime_dir = *state}, -EINVAL,
                       "is not an IP address");
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        assert_refused(&(struct vb_shm_opts){.address = many[i], .runtime_dir = *state}, -EINVAL,
                       "does not name one machine");
    static const struct vb_ip v4 = {.b = {[10] = 0xff, 0xff, 10, 1, 2, 3}};
    static const struct vb_ip v6 = {.b = {0xfe, 0x80, [15] = 1}};
    assert_int_equal(vb_shm_address_parse("10.1.2.3", &ip, NULL), 0);
    assert_true(vb_ip_equal(&ip, &v4));
    assert_int_equal(vb_shm_address_parse("::ffff:10.1.2.3", &ip, NULL), 0);
    assert_true(vb_ip_equal(&ip, &v4));
    assert_int_equal(vb_shm_address_parse("fe80::1%eth0", &ip, NULL), 0);
    assert_true(vb_ip_equal(&ip, &v6));
}

static void test_ring_sizes(void **state)
{
    static const uint32_t bad[] = {1, 4096, 8192, 100000, 1u << 27, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(&(struct vb_shm_opts){.address = "127.0.0.1",
                                             .runtime_dir = *state,
                                             .ring_bytes = bad[i]},
                       -EINVAL, "powers of two from");
    kit_close(kit_open_shm(*state, "127.0.0.1", 1 << 14));
    kit_close(kit_open_shm(*state, "127.0.0.1", 1 << 26));
}

static void test_an_address_in_use_names_its_holder(void **state)
{
    char words[64];
    struct vb_port *port = kit_open_shm(*state, "127.0.0.1", 0);
    struct vb_port *other = kit_open_shm(*state, "::1", 0);
    snprintf(words, sizeof words, "127.0.0.1 is in use: the NIC of process %ld", (long)getpid());
    assert_refused(&(struct vb_shm_opts){.address = "127.0.0.1", .runtime_dir = *state},
                   -EADDRINUSE, words);
    assert_refused(&(struct vb_shm_opts){.address = "::1", .runtime_dir = *state}, -EADDRINUSE,
                   "::1 is in use");
    kit_close(port);
    port = kit_open_shm(*state, "127.0.0.1", 0); // free again
    kit_close(port);
    kit_close(other);
}

static unsigned count_sockets(const char *dir)
{
    unsigned count = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        count += S_ISSOCK(st.st_mode);
    }
    closedir(d);
    return count;
}

static void test_a_socket_left_over_is_replaced(void **state)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        kit_open_shm(*state, "127.0.0.1", 0);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(count_sockets(*state), 1);
    struct vb_port *port = kit_open_shm(*state, "127.0.0.1", 0);
    assert_int_equal(count_sockets(*state), 1);
    kit_close(port);
    assert_int_equal(count_sockets(*state), 0);
}

// A port whose file was taken away does not remove its successor's.
static void test_only_the_own_socket_is_removed(void **state)
{
    struct vb_port *first = kit_open_shm(*state, "127.0.0.1", 0);
    DIR *d = opendir(*state);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "shm-", 4) == 0)
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
    closedir(d);
    struct vb_port *second = kit_open_shm(*state, "127.0.0.1", 0);
    kit_close(first);
    assert_int_equal(count_sockets(*state), 1);
    kit_close(second);
    assert_int_equal(count_sockets(*state), 0);
}

static void test_many_open_at_once_and_one_gets_it(void **state)
{
    enum {
        RIVALS = 8
    };
    int go[2], won[2];
    pid_t pid[RIVALS];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(won), 0);
    for (int i = 0; i < RIVALS; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            char byte;
            struct vb_port *port;
            struct vb_shm_opts opts = {.address = "127.0.0.1", .runtime_dir = *state};
            close(go[1]);
            (void)!read(go[0], &byte, 1); // until all are there
            if (vb_shm_open(&opts, &port) == 0)
                (void)!write(won[1], "w", 1);
            else
                (void)!write(won[1], "l", 1);
            for (;;)
                pause();
        }
    }
    close(go[0]);
    close(go[1]);
    unsigned winners = 0;
    for (int i = 0; i < RIVALS; i++) {
        char byte = 0;
        assert_int_equal(read(won[0], &byte, 1), 1);
        winners += byte == 'w';
    }
    for (int i = 0; i < RIVALS; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    assert_int_equal(winners, 1);
    close(won[0]);
    close(won[1]);
}

static void test_directories_must_be_ours_alone(void **state)
{
    char dir[256];
    struct vb_shm_opts opts = {.address = "127.0.0.1", .runtime_dir = dir};
    struct stat st;
    snprintf(dir, sizeof dir, "%s/.new", (char *)*state);
    kit_close(kit_open_shm(dir, "127.0.0.1", 0));
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(chmod(dir, 0770), 0);
    assert_refused(&opts, -EPERM, "(mode 770); chmod 700 makes it safe");
    assert_int_equal(chmod(dir, 0702), 0);
    assert_refused(&opts, -EPERM, "others may write");
    assert_int_equal(chmod(dir, 0755), 0);
    kit_close(kit_open_shm(dir, "127.0.0.1", 0));
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 1, 1), 0);
        assert_refused(&opts, -EPERM, "belongs to user 1");
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    char link[256];
    snprintf(link, sizeof link, "%s/.link", (char *)*state);
    assert_int_equal(symlink(dir, link), 0);
    opts.runtime_dir = link;
    assert_refused(&opts, -ENOTDIR, "is not a directory");
    assert_int_equal(unlink(link), 0);
    opts.runtime_dir = "/dev/null";
    assert_refused(&opts, -ENOTDIR, "is not a directory");
    opts.runtime_dir = "/proc/nothing/here";
    assert_refused(&opts, -ENOENT, "cannot make the directory /proc/nothing/here");
    kit_remove_dir(&(void *){strdup(dir)});
}

static void test_long_names_are_refused(void **state)
{
    (void)state;
    char dir[200] = "/tmp/";
    memset(dir + 5, 'x', 75);
    assert_refused(&(struct vb_shm_opts){.address = "127.0.0.1", .runtime_dir = dir}, -ENAMETOOLONG,
                   "name is too long: /tmp/xxx");
    memset(dir + 5, 'x', 190);
    assert_refused(&(struct vb_shm_opts){.address = "127.0.0.1", .runtime_dir = dir}, -ENAMETOOLONG,
                   "name is too long");
}

static void test_the_directory_follows_the_environment(void **state)
{
    (void)state;
    char path[64], wanted[64];
    setenv("VERBENA_RUNTIME_DIR", "/a/b", 1);
    setenv("XDG_RUNTIME_DIR", "/run/u", 1);
    assert_int_equal(vb_shm_runtime_dir("/given", path, sizeof path), 0);
    assert_string_equal(path, "/given");
    assert_int_equal(vb_shm_runtime_dir(NULL, path, sizeof path), 0);
    assert_string_equal(path, "/a/b");
    setenv("VERBENA_RUNTIME_DIR", "", 1);
    assert_int_equal(vb_shm_runtime_dir(NULL, path, sizeof path), 0);
    assert_string_equal(path, "/run/u/verbena");
    unsetenv("VERBENA_RUNTIME_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(vb_shm_runtime_dir(NULL, path, sizeof path), 0);
    snprintf(wanted, sizeof wanted, "/tmp/verbena-%u", (unsigned)geteuid());
    assert_string_equal(path, wanted);
    assert_int_equal(vb_shm_runtime_dir("/1234567", path, 8), -ENAMETOOLONG);
    assert_int_equal(vb_shm_runtime_dir("/123456", path, 8), 0);
}

// The same address in another network namespace is another machine's.
static void test_namespaces_do_not_meet(void **state)
{
    struct vb_port *port = kit_open_shm(*state, "127.0.0.1", 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct vb_shm_opts opts = {.address = "127.0.0.1", .runtime_dir = *state};
        struct vb_port *other;
        struct vb_path path = {0};
        if (unshare(CLONE_NEWNET) < 0)
            _exit(77);
        if (vb_shm_open(&opts, &other) < 0)
            _exit(1);
        other->local.b[15] = 2;
        vb_path_init(&path, &other->local, &port->local, 4791);
        bool met = vb_shm_reaches(other, &path); // itself, not the one outside
        kit_close(other);
        struct vb_path again = {0};
        opts.address = "127.0.0.2";
        if (vb_shm_open(&opts, &other) < 0)
            _exit(2);
        vb_path_init(&again, &other->local, &port->local, 4791);
        _exit(met && !vb_shm_reaches(other, &again) ? 0 : 3);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    kit_close(port);
    if (WEXITSTATUS(status) == 77)
        SKIP("network namespaces are forbidden here");
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_addresses),
        KIT_TEST(test_ring_sizes),
        KIT_TEST(test_an_address_in_use_names_its_holder),
        KIT_TEST(test_a_socket_left_over_is_replaced),
        KIT_TEST(test_only_the_own_socket_is_removed),
        KIT_TEST(test_many_open_at_once_and_one_gets_it),
        KIT_TEST(test_directories_must_be_ours_alone),
        KIT_TEST(test_long_names_are_refused),
        cmocka_unit_test(test_the_directory_follows_the_environment),
        KIT_TEST(test_namespaces_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
