// SPDX-License-Identifier: Apache-2.0
// Named memory that outlives the hull: this test plays the service manager that keeps it.
#include "duo.h"
#include "hull_kit.h"
#include "pair.h"

#include "hull/inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BYTES = 1 << 16,
    KEPT_MAX = 32,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    PATIENCE_S = DUO_PATIENCE_S,
    CROWD = 6,
    FILLERS = 16,
    FLOOD = 1000,
};

// ---- the manager

struct manager {
    char dir[64], path[108];
    int socket;
    uint32_t count, stores, removals;
    struct {
        char name[VB_STORE_NAME];
        int fd;
    } kept[KEPT_MAX];
};

static void manager_open(struct manager *m)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    *m = (struct manager){0};
    snprintf(m->dir, sizeof m->dir, "/tmp/verbena-store-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(m->path, sizeof m->path, "%s/notify", m->dir);
    memcpy(at.sun_path, m->path, sizeof at.sun_path);
    m->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(m->socket, (const struct sockaddr *)&at, sizeof at), 0);
    setsockopt(m->socket, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = PATIENCE_S},
               sizeof(struct timeval));
    setenv("NOTIFY_SOCKET", m->path, 1);
}

static void manager_forget(struct manager *m, const char *name)
{
    for (uint32_t i = 0; i < m->count;) {
        if (name && strcmp(m->kept[i].name, name) != 0) {
            i++;
            continue;
        }
        close(m->kept[i].fd);
        m->kept[i] = m->kept[--m->count];
    }
}

static void manager_close(struct manager *m)
{
    manager_forget(m, NULL);
    close(m->socket);
    unlink(m->path);
    rmdir(m->dir);
    unsetenv("NOTIFY_SOCKET");
}

// One message. False: none is there.
static bool manager_hear(struct manager *m, int flags)
{
    char lines[1024], *name;
    int fds[VB_HULL_FDS];
    int bytes = vb_contract_receive(m->socket, lines, sizeof lines - 1, flags, fds);

    if (bytes < 0)
        return false;
    lines[bytes] = '\0';
    if (strcmp(lines, "filler") == 0)
        return true;
    name = strstr(lines, "FDNAME=");
    assert_non_null(name);
    name += 7;
    name[strcspn(name, "\n")] = '\0';
    assert_true(strlen(name) < VB_STORE_NAME && !strchr(name, ':'));
    if (strncmp(lines, "FDSTOREREMOVE=1\n", 16) == 0) {
        m->removals++;
        assert_int_equal(fds[0], -1);
        manager_forget(m, name);
        return true;
    }
    assert_int_equal(strncmp(lines, "FDSTORE=1\n", 10), 0);
    assert_true(fds[0] >= 0 && m->count < KEPT_MAX);
    m->stores++;
    snprintf(m->kept[m->count].name, VB_STORE_NAME, "%s", name);
    m->kept[m->count++].fd = fds[0];
    return true;
}

static void manager_hear_all(struct manager *m)
{
    while (manager_hear(m, MSG_DONTWAIT))
        continue;
}

static void inherit(struct vb_inherited *in, uint32_t room)
{
    *in = (struct vb_inherited){.fd = calloc(room, sizeof *in->fd)};
    assert_non_null(in->fd);
}

static void add(struct vb_inherited *in, const char *name, int fd)
{
    in->fd[in->count++] = (struct vb_inherited_fd){.fd = fd, .name = name};
}

// What a manager gives to the next process.
static void manager_give(struct manager *m, struct vb_inherited *in)
{
    inherit(in, KEPT_MAX);
    for (uint32_t i = 0; i < m->count; i++)
        add(in, m->kept[i].name, dup(m->kept[i].fd));
}

static struct vb_hull *start(struct vb_inherited *in)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT];
    struct vb_hull *hull = NULL;

    assert_non_null(config);
    vb_hull_config_init(config);
    pair_address(0, config->nic[0].address);
    snprintf(config->nic[0].port, sizeof config->nic[0].port, "udp");
    snprintf(config->nic[0].name, sizeof config->nic[0].name, "kept");
    config->inherited = in;
    if (vb_hull_open(config, 0, &hull, error) != 0)
        fail_msg("%s", error);
    free(config);
    return hull;
}

static char *alloc(struct vb_nic *nic, const char *name, size_t bytes)
{
    char why[VB_ERROR_TEXT];
    void *at = NULL;

    if (vb_hull_alloc(nic, name, bytes, &at) != 0) {
        vb_hull_why(nic, why);
        fail_msg("%s: %s", name ? name : "-", why);
    }
    return at;
}

// ---- memory stays

static void test_memory_is_as_it_was(void **state)
{
    struct manager m;
    struct vb_inherited in;
    struct vb_hull_counts counts;

    (void)state;
    manager_open(&m);
    struct vb_hull *hull = start(NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    char *one = alloc(nic, "one", BYTES), *odd = alloc(nic, "od:d name", 2 * BYTES);
    alloc(nic, NULL, BYTES);
    snprintf(one, BYTES, "first");
    snprintf(odd + BYTES, BYTES, "second");
    manager_hear_all(&m); // both were told before the application was
    assert_int_equal(m.count, 2);
    snprintf(one, BYTES, "changed later");
    vb_nic_close(nic);
    vb_hull_close(hull);
    manager_hear_all(&m);
    assert_int_equal(m.count, 2);

    manager_give(&m, &in);
    hull = start(&in);
    assert_true(in.fd[0].fd == -1 && in.fd[1].fd == -1);
    assert_true(!in.fd[0].why && !in.fd[1].why);
    vb_inherited_free(&in);
    nic = hull_kit_attach(hull);
    counts = hull_kit_wait(hull, 1);
    assert_int_equal(counts.bytes, 3 * BYTES);
    assert_string_equal(alloc(nic, "one", 0), "changed later");
    odd = alloc(nic, "od:d name", 2 * BYTES);
    assert_string_equal(odd + BYTES, "second");
    void *at;
    assert_int_equal(vb_hull_alloc(nic, "none", 0, &at), -ENOENT);
    manager_hear_all(&m);
    assert_int_equal(m.stores, 2); // the manager has them: nothing was to be told

    // Gone is gone: after the next restart, too.
    assert_int_equal(vb_hull_free(nic, odd), 0);
    manager_hear_all(&m);
    assert_int_equal(m.removals, 1);
    assert_int_equal(m.count, 1);
    vb_nic_close(nic);
    vb_hull_close(hull);
    manager_give(&m, &in);
    hull = start(&in);
    vb_inherited_free(&in);
    nic = hull_kit_attach(hull);
    assert_int_equal(vb_hull_alloc(nic, "od:d name", 0, &at), -ENOENT);
    assert_string_equal(alloc(nic, "one", 0), "changed later");
    vb_nic_close(nic);
    vb_hull_close(hull);
    manager_close(&m);
}

// It counts as if an application had made it, and no more when it is let go of.
static void test_it_is_charged(void **state)
{
    struct vb_metrics *metrics = calloc(1, sizeof *metrics);
    const struct vb_hull_quota *used = &metrics->tenant[0].used;
    struct vb_inherited in;
    char name[VB_STORE_NAME];
    void *map;

    (void)state;
    assert_non_null(metrics);
    inherit(&in, 1);
    snprintf(name, sizeof name, "memory.kept.%u.one", (unsigned)getuid());
    add(&in, name, vb_hull_memory_make(BYTES, &map));
    struct vb_hull *hull = start(&in);
    struct vb_nic *nic = hull_kit_attach(hull);
    assert_int_equal(vb_metrics_take(hull, PATIENCE_S * UINT64_C(1000000000), metrics), 0);
    assert_int_equal(used->memories, 1);
    assert_int_equal(used->bytes, BYTES);
    assert_int_equal(vb_hull_free(nic, alloc(nic, "one", 0)), 0);
    assert_int_equal(vb_metrics_take(hull, PATIENCE_S * UINT64_C(1000000000), metrics), 0);
    assert_int_equal(used->memories, 0);
    assert_int_equal(used->bytes, 0);
    vb_nic_close(nic);
    vb_hull_close(hull);
    munmap(map, BYTES);
    vb_inherited_free(&in);
    free(metrics);
}

static void test_without_a_manager_nothing_is_kept(void **state)
{
    struct vb_hull *hull = start(NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    void *at;

    (void)state;
    assert_null(getenv("NOTIFY_SOCKET"));
    alloc(nic, "one", BYTES);
    vb_nic_close(nic);
    vb_hull_close(hull);
    hull = start(NULL);
    nic = hull_kit_attach(hull);
    assert_int_equal(vb_hull_alloc(nic, "one", 0, &at), -ENOENT);
    vb_nic_close(nic);
    vb_hull_close(hull);
}

// Another user's name and ours are two.
static void test_memory_is_its_owners(void **state)
{
    struct vb_inherited in;
    char name[VB_STORE_NAME];
    void *map, *at;

    (void)state;
    inherit(&in, 1);
    snprintf(name, sizeof name, "memory.kept.%u.one", (unsigned)getuid() + 1);
    add(&in, name, vb_hull_memory_make(BYTES, &map));
    struct vb_hull *hull = start(&in);
    assert_null(in.fd[0].why);
    assert_int_equal(in.fd[0].fd, -1);
    struct vb_nic *nic = hull_kit_attach(hull);
    assert_int_equal(vb_hull_alloc(nic, "one", 0, &at), -ENOENT);
    alloc(nic, "one", 2 * BYTES);
    vb_nic_close(nic);
    vb_hull_close(hull);
    munmap(map, BYTES);
    vb_inherited_free(&in);
}

// ---- descriptors that are none of ours

static int make(unsigned seals, off_t bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static int reopen(int fd)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(again >= 0);
    close(fd);
    return again;
}

static void test_others_are_refused(void **state)
{
    char name[12][VB_STORE_NAME];
    struct vb_inherited in;
    struct manager m;
    int pipe_fds[2];
    uint32_t i;

    (void)state;
    manager_open(&m);
    inherit(&in, 16);
    for (i = 0; i < 12; i++)
        snprintf(name[i], sizeof name[i], "memory.kept.%u.name%u", (unsigned)getuid(), i);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    unsigned before = hull_kit_mappings();
    const struct {
        int fd;
        const char *words;
    } bad[] = {
        {open("/dev/zero", O_RDWR | O_CLOEXEC), "no memfd"},
        {pipe_fds[0], "no memfd"},
        {socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "no memfd"},
        {make(0, BYTES), "not sealed"},
        {make(F_SEAL_SHRINK, BYTES), "not as the hull makes"},
        {make(F_SEAL_SHRINK | F_SEAL_GROW, BYTES), "not as the hull makes"},
        {make(SEALS, 0), "empty"},
        {make(SEALS, 100), "not a single page"},
        {make(SEALS, BYTES + 1), "not as the hull makes"},
        {make(SEALS | F_SEAL_WRITE, BYTES), "cannot be mapped"},
        {reopen(make(SEALS, BYTES)), "cannot be written"},
    };
    enum {
        BAD = sizeof bad / sizeof bad[0]
    };
    for (i = 0; i < BAD; i++)
        add(&in, name[i], bad[i].fd);
    add(&in, "somebody's", make(SEALS, BYTES));          // nobody knows it
    add(&in, "memory.other.1.name", make(SEALS, BYTES)); // another NIC's
    add(&in, name[11], make(SEALS, BYTES));              // this one is right
    add(&in, name[11], make(SEALS, BYTES));              // but there can be one only
    struct vb_hull *hull = start(&in);
    for (i = 0; i < BAD; i++) {
        if (!in.fd[i].why || !strstr(in.fd[i].why, bad[i].words))
            fail_msg("%u: '%s' does not say '%s'", i, in.fd[i].why, bad[i].words);
        assert_int_equal(in.fd[i].fd, bad[i].fd); // to be closed
    }
    assert_true(in.fd[BAD].fd >= 0 && !in.fd[BAD].why);
    assert_true(in.fd[BAD + 1].fd >= 0 && !in.fd[BAD + 1].why);
    assert_int_equal(in.fd[BAD + 2].fd, -1);
    assert_non_null(strstr(in.fd[BAD + 3].why, "already"));
    vb_inherited_free(&in);
    close(pipe_fds[1]);
    assert_int_equal(hull_kit_mappings(), before + 2); // with the clock
    // What can never be ours goes from the store; of the name that was there twice one is kept.
    for (i = 0; i < BAD + 2; i++)
        assert_true(manager_hear(&m, 0));
    assert_int_equal(m.removals, BAD + 1);
    assert_int_equal(m.count, 1);
    assert_string_equal(m.kept[0].name, name[11]);
    vb_hull_close(hull);
    assert_int_equal(hull_kit_mappings(), before);
    manager_close(&m);
}

// ---- a manager that does not listen

// Until nobody finds room at its socket.
static void fill(const struct manager *m)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    bool full = false;

    memcpy(at.sun_path, m->path, sizeof at.sun_path);
    for (unsigned i = 0; i < FILLERS && !full; i++) {
        uint32_t sent = 0;
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        while (sendto(fd, "filler", 6, MSG_DONTWAIT, (const struct sockaddr *)&at, sizeof at) == 6)
            sent++;
        full = sent == 0;
        close(fd);
    }
    assert_true(full);
}

static void test_nobody_waits_for_the_manager(void **state)
{
    struct manager m;
    char name[CROWD][16];
    char *at[CROWD];

    (void)state;
    manager_open(&m);
    struct vb_hull *hull = start(NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    for (unsigned i = 0; i < CROWD; i++) {
        snprintf(name[i], sizeof name[i], "name%u", i);
        at[i] = alloc(nic, name[i], BYTES);
        if (i == 0)
            fill(&m);
    }
    // One that the manager was told of, and one that it was not: this one it never hears of.
    assert_int_equal(vb_hull_free(nic, at[0]), 0);
    assert_int_equal(vb_hull_free(nic, at[CROWD - 1]), 0);
    at[0] = alloc(nic, name[0], 2 * BYTES);
    while (m.stores < CROWD)
        assert_true(manager_hear(&m, 0));
    assert_int_equal(m.removals, 1);
    assert_int_equal(m.count, CROWD - 1);
    for (unsigned i = 0; i < m.count; i++) {
        struct stat file;
        const char *kept = strrchr(m.kept[i].name, '.') + 1;
        assert_string_not_equal(kept, name[CROWD - 1]);
        assert_int_equal(fstat(m.kept[i].fd, &file), 0);
        assert_int_equal(file.st_size, strcmp(kept, name[0]) == 0 ? 2 * BYTES : BYTES);
    }
    vb_nic_close(nic);
    vb_hull_close(hull);
    assert_false(manager_hear(&m, MSG_DONTWAIT));
    manager_close(&m);
}

// An application that makes and drops names without an end is not the manager's trouble.
static void test_the_manager_is_not_flooded(void **state)
{
    struct manager m;

    (void)state;
    manager_open(&m);
    struct vb_hull *hull = start(NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    uint64_t began = vb_clock_ns();
    for (unsigned i = 0; i < FLOOD; i++) {
        assert_int_equal(vb_hull_free(nic, alloc(nic, "one", BYTES)), 0);
        manager_hear_all(&m);
    }
    uint64_t allowed = VB_STORE_BURST + 1 + (vb_clock_ns() - began) / VB_STORE_MESSAGE_NS;
    assert_in_range(m.stores + m.removals, VB_STORE_BURST, allowed);
    // In the end it knows what is there.
    alloc(nic, "two", BYTES);
    while (m.count != 1 || !strstr(m.kept[0].name, "two"))
        assert_true(manager_hear(&m, 0));
    vb_nic_close(nic);
    vb_hull_close(hull);
    manager_close(&m);
}

// ---- sockets

static int listen_at(const char *path, int type, mode_t mode)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    assert_true(fd >= 0);
    (void)fchmod(fd, mode);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    chmod(path, mode);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void is_no_listener(int fd, const char *words)
{
    struct vb_inherited in;
    char path[108], error[VB_ERROR_TEXT];

    inherit(&in, 1);
    add(&in, "hull-kept", fd);
    assert_int_equal(vb_inherited_listener(&in, "hull-other", path, sizeof path, error), -ENOENT);
    assert_int_equal(vb_inherited_listener(&in, "hull-kept", path, sizeof path, error), -EPERM);
    if (!strstr(error, words))
        fail_msg("'%s' does not say '%s'", error, words);
    vb_inherited_free(&in);
}

static void test_a_socket_of_the_managers(void **state)
{
    char dir[] = "/tmp/verbena-store-XXXXXX", path[64];
    struct vb_inherited in;
    struct stat file;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/hull", dir);
    is_no_listener(open("/dev/null", O_RDWR | O_CLOEXEC), "no listening socket");
    is_no_listener(socket(AF_UNIX, SOCK_SEQPACKET, 0), "no listening socket");
    is_no_listener(listen_at(path, SOCK_STREAM, 0600), "no listening socket");
    unlink(path);
    is_no_listener(listen_at(path, SOCK_SEQPACKET, 0666), "open to strangers");
    unlink(path);
    int fd = listen_at(path, SOCK_SEQPACKET, 0600);
    unlink(path);
    is_no_listener(fd, "file is gone");

    inherit(&in, 1);
    add(&in, "hull-kept", listen_at(path, SOCK_SEQPACKET, 0660));
    struct vb_hull *hull = start(&in);
    vb_inherited_free(&in);
    assert_string_equal(hull->path, path);
    vb_nic_close(hull_kit_attach(hull));
    vb_hull_close(hull);
    assert_int_equal(stat(path, &file), 0); // it is not ours to take away
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_as_it_was),
        cmocka_unit_test(test_it_is_charged),
        cmocka_unit_test(test_without_a_manager_nothing_is_kept),
        cmocka_unit_test(test_memory_is_its_owners),
        cmocka_unit_test(test_others_are_refused),
        cmocka_unit_test(test_nobody_waits_for_the_manager),
        cmocka_unit_test(test_the_manager_is_not_flooded),
        cmocka_unit_test(test_a_socket_of_the_managers),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
