// SPDX-License-Identifier: Apache-2.0
// The registry's file: ranges that do not overlap, holders that die, and contents that nobody wrote
// in good faith.
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/registry.h"
#include "runtime_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct vb_ip here = {.b = {[10] = 0xff, 0xff, 127, 9, 9, 9}};
static const struct vb_ip there = {.b = {[10] = 0xff, 0xff, 127, 9, 9, 8}};

static struct registry open_registry(void **state)
{
    struct registry r;
    assert_int_equal(vb_registry_open(&r, *state), 0);
    return r;
}

static struct registry claim(void **state, uint32_t span)
{
    struct registry r = open_registry(state);
    assert_int_equal(vb_registry_claim(&r, span, 1, &here, 0, vb_clock_ns()), 0);
    return r;
}

static int make_dir(void **state)
{
    char dir[] = "/tmp/verbena-registry-XXXXXX";
    *state = mkdtemp(dir) ? strdup(dir) : NULL;
    return *state ? 0 : -1;
}

static int remove_dir(void **state)
{
    int result = runtime_dir_erase(*state);
    free(*state);
    return result;
}

static void file_path(void **state, char path[300])
{
    struct stat ns;
    assert_int_equal(stat("/proc/self/ns/net", &ns), 0);
    snprintf(path, 300, "%s/nics-%u-%llu", (char *)*state, REGISTRY_VERSION,
             (unsigned long long)ns.st_ino);
}

// ---- ranges

static void test_ranges_do_not_overlap(void **state)
{
    enum {
        NICS = 40
    };
    struct registry r[NICS];
    bool taken[REGISTRY_SLOTS] = {false};
    for (uint32_t i = 0; i < NICS; i++) {
        r[i] = claim(state, 1 + i % 4);
        assert_int_equal(r[i].span, 1 + i % 4);
        for (uint32_t s = r[i].slot; s < r[i].slot + r[i].span; s++) {
            uint32_t found = REGISTRY_SLOTS;
            assert_true(s < REGISTRY_SLOTS && !taken[s]);
            taken[s] = true;
            for (uint32_t qpn = s << REGISTRY_RANGE_BITS; qpn >> REGISTRY_RANGE_BITS == s;
                 qpn += 4097) {
                assert_true(vb_registry_find(&r[0], qpn, &found));
                assert_int_equal(found, r[i].slot);
            }
        }
    }
    for (uint32_t s = 0; s < REGISTRY_SLOTS; s++) {
        uint32_t found;
        assert_true(taken[s] || !vb_registry_find(&r[0], s << REGISTRY_RANGE_BITS, &found));
    }
    for (uint32_t i = 0; i < NICS; i++)
        vb_registry_close(&r[i]);
}

// All but the last range, which has the number of multicast groups.
static void test_full(void **state)
{
    static struct registry r[REGISTRY_SLOTS];
    struct registry more = open_registry(state);
    uint32_t found;
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        r[i] = claim(state, 1);
    assert_int_equal(vb_registry_claim(&more, 1, 1, &here, 0, vb_clock_ns()), -ENOSPC);
    assert_false(vb_registry_find(&more, 0xffffff, &found));
    uint32_t freed = r[77].slot;
    vb_registry_close(&r[77]);
    assert_int_equal(vb_registry_claim(&more, 2, 1, &here, 0, vb_clock_ns()), -ENOSPC);
    // Rested or not: there is no other.
    assert_int_equal(vb_registry_claim(&more, 1, 1, &here, 0, vb_clock_ns()), 0);
    assert_int_equal(more.slot, freed);
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        if (i != 77)
            vb_registry_close(&r[i]);
    vb_registry_close(&more);
}

static void test_too_much_is_refused(void **state)
{
    struct registry r = open_registry(state);
    assert_int_equal(vb_registry_claim(&r, 0, 1, &here, 0, 1), -ENOSPC);
    assert_int_equal(vb_registry_claim(&r, REGISTRY_SLOTS + 1, 1, &here, 0, 1), -ENOSPC);
    assert_int_equal(vb_registry_claim(&r, REGISTRY_SLOTS, 1, &here, 0, 1), 0);
    vb_registry_close(&r);
}

// Late packets of the one before meet nobody.
static void test_ranges_rest(void **state)
{
    bool seen[REGISTRY_SLOTS] = {false};
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
        struct registry r = claim(state, 1);
        assert_false(seen[r.slot]);
        seen[r.slot] = true;
        vb_registry_close(&r);
    }
}

static void test_addresses(void **state)
{
    struct registry a = claim(state, 1), b = open_registry(state);
    assert_int_equal(vb_registry_claim(&b, 1, 4, &there, 3, vb_clock_ns()), 0);
    struct registry_member m;
    assert_true(vb_registry_is_at(&a, a.slot, &here, 0));
    assert_false(vb_registry_is_at(&a, a.slot, &there, 0));
    assert_true(vb_registry_is_at(&a, b.slot, &there, 3));
    assert_false(vb_registry_is_at(&a, b.slot, &there, 0));
    assert_true(vb_registry_read(&a, b.slot, &m));
    assert_int_equal(m.units, 4);
    assert_int_equal(m.pid, getpid());
    assert_int_equal(m.index[0], REGISTRY_INDEX_NONE);
    vb_registry_close(&b);
    assert_false(vb_registry_read(&a, b.slot, &m));
    vb_registry_close(&a);
}

// One NIC on several addresses: one slot, and each address comes and goes by itself.
static void test_sites(void **state)
{
    struct registry a = claim(state, 2), other = open_registry(state), more[REGISTRY_SITES];
    struct vb_ip ip = there, found;
    struct registry_member m;
    uint32_t scope;
    for (uint32_t i = 0; i < REGISTRY_SITES; i++) {
        more[i] = open_registry(state);
        ip.b[15] = (uint8_t)(100 + i);
        int error = vb_registry_join(&more[i], &a, &ip, i);
        assert_int_equal(error, i == REGISTRY_SITES - 1 ? -ENOSPC : 0);
        assert_int_equal(vb_registry_is_at(&other, a.slot, &ip, i), error == 0);
        assert_false(vb_registry_is_at(&other, a.slot, &ip, i + 1)); // another interface's
        assert_int_equal(vb_registry_read_at(&other, a.slot, &ip, i, &m), error == 0);
        if (error == 0)
            assert_int_equal(m.site, more[i].site);
    }
    assert_true(vb_registry_is_at(&other, a.slot, &here, 0));
    assert_int_equal(more[0].slot, a.slot);
    assert_int_equal(more[0].span, 2);
    struct registry_site *site = &a.file->slot[a.slot].site[more[1].site];
    atomic_store(&site->cookie[0], 77);
    ip.b[15] = 101;
    assert_int_equal(vb_registry_cookie(&other, &ip, 1, (a.slot + 1) << REGISTRY_RANGE_BITS), 77);
    assert_int_equal(vb_registry_cookie(&other, &here, 0, a.slot << REGISTRY_RANGE_BITS), 0);
    // One goes, and another takes its place, without what was there.
    uint32_t freed = more[1].site;
    vb_registry_close(&more[1]);
    assert_false(vb_registry_is_at(&other, a.slot, &ip, 1));
    assert_false(vb_registry_address(&other, a.slot, freed, &found, &scope));
    assert_int_equal(vb_registry_join(&more[3], &a, &there, 9), 0);
    assert_int_equal(more[3].site, freed);
    assert_int_equal(atomic_load(&site->cookie[0]), 0);
    assert_true(vb_registry_address(&other, a.slot, freed, &found, &scope));
    assert_memory_equal(&found, &there, sizeof found);
    assert_int_equal(scope, 9);
    assert_true(vb_registry_is_alive(&other, a.slot));
    vb_registry_close(&more[0]);
    vb_registry_close(&more[2]);
    vb_registry_close(&more[3]);
    assert_true(vb_registry_is_at(&other, a.slot, &here, 0)); // the first stays
    assert_true(vb_registry_is_alive(&other, a.slot));
    vb_registry_close(&a);
    vb_registry_close(&other);
}

// ---- death

static pid_t start_holder(void **state, uint32_t *slot)
{
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct registry r;
        struct registry more;
        if (vb_registry_open(&r, *state) != 0 || vb_registry_open(&more, *state) != 0 ||
            vb_registry_claim(&r, 2, 1, &here, 0, vb_clock_ns()) != 0 ||
            vb_registry_join(&more, &r, &there, 0) != 0 ||
            write(told[1], &r.slot, sizeof r.slot) != sizeof r.slot)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(told[0], slot, sizeof *slot), sizeof *slot);
    close(told[0]);
    close(told[1]);
    return pid;
}

static void test_a_holder_dies(void **state)
{
    uint32_t slot, found;
    pid_t pid = start_holder(state, &slot);
    struct registry r = claim(state, 1);
    assert_true(vb_registry_is_alive(&r, slot));
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_true(vb_registry_is_alive(&r, slot)); // stopped is not dead
    vb_registry_bury(&r, slot, 0, vb_clock_ns());
    assert_true(vb_registry_find(&r, slot << REGISTRY_RANGE_BITS, &found));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(vb_registry_is_alive(&r, slot));
    // At each address by itself: those who are there have to know of its place.
    vb_registry_bury(&r, slot, 0, vb_clock_ns());
    assert_false(vb_registry_is_at(&r, slot, &here, 0));
    assert_true(vb_registry_is_at(&r, slot, &there, 0));
    assert_true(vb_registry_find(&r, slot << REGISTRY_RANGE_BITS, &found));
    vb_registry_bury(&r, slot, 1, vb_clock_ns());
    assert_false(vb_registry_find(&r, slot << REGISTRY_RANGE_BITS, &found));
    assert_false(vb_registry_find(&r, (slot + 1) << REGISTRY_RANGE_BITS, &found));
    // Our own cannot be buried.
    vb_registry_bury(&r, r.slot, 0, vb_clock_ns());
    assert_true(vb_registry_find(&r, r.slot << REGISTRY_RANGE_BITS, &found));
    vb_registry_close(&r);
}

// ---- inboxes

static int unlinks_left = -1; // before the process dies; negative: it does not

int unlink(const char *path)
{
    if (unlinks_left == 0)
        _exit(0);
    unlinks_left -= unlinks_left > 0;
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

// The inboxes of a NIC of two units at two addresses: made, or counted.
static uint32_t inboxes(const struct registry *r, uint32_t slot, bool make)
{
    char path[REGISTRY_PATH];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(vb_registry_inbox(r, slot, i / 2, i % 2, path));
        if (make)
            assert_int_equal(close(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600)), 0);
        count += access(path, F_OK) == 0;
    }
    return count;
}

// As a newcomer does: slots of the dead that have an id.
static void bury_all(struct registry *r, uint32_t slot)
{
    for (uint32_t site = 0; site < REGISTRY_SITES; site++)
        if (atomic_load(&r->file->slot[slot].id) != 0)
            vb_registry_bury(r, slot, site, vb_clock_ns());
}

// Whichever unlink() a process is killed at, the next one clears the rest.
static void test_a_burier_dies(void **state)
{
    bool died = true;
    for (int unlinks = 0; died; unlinks++) {
        uint32_t slot;
        pid_t holder = start_holder(state, &slot);
        struct registry r = open_registry(state);
        assert_int_equal(inboxes(&r, slot, true), 4);
        assert_int_equal(kill(holder, SIGKILL), 0);
        assert_int_equal(waitpid(holder, NULL, 0), holder);
        pid_t burier = fork();
        assert_true(burier >= 0);
        if (burier == 0) {
            struct registry own;
            unlinks_left = unlinks;
            if (vb_registry_open(&own, *state) == 0)
                bury_all(&own, slot);
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(burier, &status, 0), burier);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        died = WEXITSTATUS(status) == 0;
        bury_all(&r, slot);
        assert_int_equal(inboxes(&r, slot, false), 0);
        vb_registry_close(&r);
        assert_true(died || unlinks >= 4);
    }
}

// The same for a NIC that is killed while it closes.
static void test_a_closing_one_dies(void **state)
{
    bool died = true;
    for (int unlinks = 0; died; unlinks++) {
        struct registry r = open_registry(state);
        int told[2], status;
        uint32_t slot;
        assert_int_equal(pipe(told), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct registry own;
            if (vb_registry_open(&own, *state) != 0 ||
                vb_registry_claim(&own, 1, 2, &here, 0, vb_clock_ns()) != 0)
                _exit(2);
            inboxes(&own, own.slot, true);
            if (write(told[1], &own.slot, sizeof own.slot) != sizeof own.slot)
                _exit(2);
            unlinks_left = unlinks;
            vb_registry_close(&own);
            _exit(1);
        }
        assert_int_equal(close(told[1]), 0);
        assert_int_equal(read(told[0], &slot, sizeof slot), sizeof slot);
        assert_int_equal(close(told[0]), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        died = WEXITSTATUS(status) == 0;
        bury_all(&r, slot);
        assert_int_equal(inboxes(&r, slot, false), 0);
        vb_registry_close(&r);
        assert_true(died || unlinks >= 4);
    }
}

// A child inherits the description and the lock with it, and lets go of neither for its parent.
static void test_a_child_abandons(void **state)
{
    struct registry r = claim(state, 1), other = open_registry(state);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        vb_registry_abandon(&r);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(vb_registry_is_alive(&other, r.slot));
    uint32_t found;
    assert_true(vb_registry_find(&other, r.slot << REGISTRY_RANGE_BITS, &found));
    vb_registry_close(&r);
    assert_false(vb_registry_is_alive(&other, r.slot));
    vb_registry_close(&other);
}

static void test_a_stopped_one_keeps_nobody_from_the_order(void **state)
{
    struct registry a = open_registry(state), b = open_registry(state);
    uint64_t now_ns = vb_clock_ns();
    assert_true(vb_registry_lock(&a, now_ns));
    assert_false(vb_registry_lock(&b, now_ns + 1000000));
    assert_false(vb_registry_lock(&b, now_ns + 200000000));
    assert_true(vb_registry_lock(&b, now_ns + 400000000));
    vb_registry_unlock(&b);
    vb_registry_unlock(&a);
    assert_true(vb_registry_lock(&b, now_ns + 500000000));
    vb_registry_unlock(&b);
    // Stopped before it could say since when.
    assert_true(vb_registry_lock(&a, now_ns));
    atomic_store(&a.file->locked_ns, 0);
    assert_false(vb_registry_lock(&b, now_ns));
    assert_true(vb_registry_lock(&b, now_ns + 400000000));
    vb_registry_close(&a);
    vb_registry_close(&b);
}

// ---- contents

static void spoil(void **state, off_t at, const void *bytes, size_t len)
{
    char path[300];
    file_path(state, path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    close(fd);
}

// A file that is none makes way for one that is.
static void test_bad_headers(void **state)
{
    static const uint8_t garbage[4096] = {1, 2, 3};
    char path[300];
    file_path(state, path);
    for (int kind = 0; kind < 5; kind++) {
        struct registry r = claim(state, 1);
        vb_registry_close(&r);
        const uint32_t wrong = 7;
        switch (kind) {
        case 0: spoil(state, 0, garbage, sizeof garbage); break;
        case 1: spoil(state, 8, &wrong, sizeof wrong); break;  // the version
        case 2: spoil(state, 12, &wrong, sizeof wrong); break; // the slots
        case 3: assert_int_equal(truncate(path, 4096), 0); break;
        default: assert_int_equal(truncate(path, 0), 0); break;
        }
        r = claim(state, 1);
        assert_true(r.file->magic == REGISTRY_MAGIC && r.file->version == REGISTRY_VERSION);
        vb_registry_close(&r);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    struct registry r;
    assert_true(vb_registry_open(&r, *state) < 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_true(vb_registry_open(&r, *state) < 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(chmod(*state, 0777), 0);
    assert_int_equal(vb_registry_open(&r, *state), -EPERM);
    assert_int_equal(chmod(*state, 0700), 0);
}

// Slots of random bytes: whatever is read is within bounds, and what is free can be taken.
static void test_bad_slots(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};
    for (int round = 0; round < 50; round++) {
        struct registry r = open_registry(state);
        for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
            uint32_t *word = (uint32_t *)(void *)&r.file->slot[i];
            for (size_t w = 0; w < sizeof r.file->slot[i] / 4; w++)
                word[w] = vb_prng_chance(&prng, 300000) ? (uint32_t)vb_prng_below(&prng, 600)
                                                        : (uint32_t)vb_prng_next(&prng);
            for (uint32_t site = 0; site < REGISTRY_SITES; site++)
                if (vb_prng_chance(&prng, 500000))
                    atomic_store(&r.file->slot[i].at[site].taken, 1);
        }
        atomic_store(&r.file->hint, (uint32_t)vb_prng_next(&prng));
        for (uint32_t i = 0; i < REGISTRY_SLOTS; i++) {
            struct registry_member m;
            uint32_t found;
            if (vb_registry_read(&r, i, &m))
                assert_true(m.span >= 1 && i + m.span <= REGISTRY_SLOTS && m.units >= 1 &&
                            m.units <= REGISTRY_UNITS);
            for (uint32_t unit = 0; unit < REGISTRY_UNITS; unit++)
                assert_true(m.index[unit] < REGISTRY_INDEX_MAX ||
                            m.index[unit] == REGISTRY_INDEX_NONE);
            if (vb_registry_find(&r, i << REGISTRY_RANGE_BITS, &found))
                assert_true(found < REGISTRY_SLOTS);
            for (uint32_t site = 0; site < REGISTRY_SITES; site++) {
                struct vb_ip ip;
                uint32_t scope;
                if (vb_registry_address(&r, i, site, &ip, &scope))
                    assert_true(vb_registry_is_at(&r, i, &ip, scope));
                if (vb_registry_read_at(&r, i, &ip, scope, &m))
                    assert_true(m.site < REGISTRY_SITES && m.units <= REGISTRY_UNITS);
                (void)vb_registry_cookie(&r, &ip, scope, i << REGISTRY_RANGE_BITS);
                vb_registry_bury(&r, i, site, vb_clock_ns());
            }
            assert_int_equal(atomic_load(&r.file->slot[i].id), 0);
        }
        assert_int_equal(vb_registry_claim(&r, 3, 1, &here, 0, vb_clock_ns()), 0);
        uint32_t found;
        assert_true(vb_registry_find(&r, (r.slot + 2) << REGISTRY_RANGE_BITS, &found));
        assert_int_equal(found, r.slot);
        vb_registry_close(&r);
    }
}

// ---- ports of rdma_cm

static void test_a_port_is_one_holders(void **state)
{
    struct registry a = claim(state, 1), b = claim(state, 2);
    uint32_t slot = 0;
    assert_false(vb_registry_port_owner(&a, 0, 80, &slot));
    assert_int_equal(vb_registry_port_take(&a, 0, 80), 0);
    assert_int_equal(vb_registry_port_take(&a, 0, 80), 0);
    assert_int_equal(vb_registry_port_take(&b, 0, 80), -EADDRINUSE);
    assert_int_equal(vb_registry_port_take(&b, 1, 80), 0);
    assert_int_equal(vb_registry_port_take(&b, 0, 65535), 0);
    assert_true(vb_registry_port_owner(&b, 0, 80, &slot));
    assert_int_equal(slot, a.slot);
    assert_true(vb_registry_port_owner(&a, 1, 80, &slot));
    assert_int_equal(slot, b.slot);
    assert_false(vb_registry_port_owner(&a, REGISTRY_SPACES, 80, &slot));
    vb_registry_port_give(&a, 0, 80);
    assert_false(vb_registry_port_owner(&b, 0, 80, &slot));
    assert_int_equal(vb_registry_port_take(&b, 0, 80), 0);
    // Slots and ports are locked apart.
    assert_true(vb_registry_is_alive(&b, a.slot));
    vb_registry_close(&a);
    vb_registry_close(&b);
}

// Killed: the port is free at once, whatever the table says.
static void test_a_port_outlives_nobody(void **state)
{
    struct registry r = claim(state, 1);
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct registry own = claim(state, 1);
        if (vb_registry_port_take(&own, 2, 4420) != 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(vb_registry_port_take(&r, 2, 4420), -EADDRINUSE);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    uint32_t slot;
    assert_true(vb_registry_port_owner(&r, 2, 4420, &slot));
    assert_false(vb_registry_is_alive(&r, slot)); // who looks finds out
    assert_int_equal(vb_registry_port_take(&r, 2, 4420), 0);
    close(ready[0]);
    close(ready[1]);
    vb_registry_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranges_do_not_overlap, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_full, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_too_much_is_refused, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_ranges_rest, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_addresses, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_sites, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_holder_dies, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_burier_dies, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_closing_one_dies, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_child_abandons, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_stopped_one_keeps_nobody_from_the_order, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(test_bad_headers, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_bad_slots, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_port_is_one_holders, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_a_port_outlives_nobody, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
