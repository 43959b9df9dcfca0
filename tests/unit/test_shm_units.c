// SPDX-License-Identifier: Apache-2.0
// Several shm ports at one address, one for each unit: frames take the ring of their destination,
// and whoever lies, dies or promises units that are not there harms nobody else.
#include "base/bytes.h"
#include "port/shm.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"
#include "shm_kit.h"
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
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RING = SHM_RING_MIN,
    LEN = 200,
};

struct group {
    struct vb_port *port[SHM_UNITS];
    uint32_t units;
};

// A group that receives at 127.0.0.1 and a port that sends from 127.0.0.2.
struct scene {
    const char *dir;
    struct group to;
    struct vb_port *from;
    struct vb_path path;
    struct vb_txq *q;
    struct vb_rx_frame *frames;
};

static struct group open_group(const char *dir, const char *address, uint32_t units)
{
    char why[VB_ERROR_TEXT] = "";
    struct group g = {.units = units};
    const struct vb_shm_opts opts = {
        .address = address, .runtime_dir = dir, .ring_bytes = RING, .error_text = why};
    if (vb_shm_open_group(&opts, g.port, units) < 0)
        fail_msg("%s", why);
    return g;
}

static void close_group(struct group *g)
{
    for (uint32_t i = 0; i < g->units; i++)
        kit_close(g->port[i]);
    g->units = 0;
}

static struct scene *make_scene(const char *dir, uint32_t units)
{
    struct vb_ip there = kit_ip(1);
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->dir = dir;
    s->to = open_group(dir, "127.0.0.1", units);
    s->from = kit_open_shm(dir, "127.0.0.2", RING);
    s->path = kit_path(s->from, &there);
    s->q = kit_make_queue();
    s->frames = kit_make_frames();
    return s;
}

static void free_scene(struct scene *s)
{
    close_group(&s->to);
    kit_close(s->from);
    kit_free_queue(s->q);
    free(s->frames);
    free(s);
}

// A frame to a queue pair.
static void send_to(struct scene *s, uint32_t qpn, uint32_t tag)
{
    assert_true(kit_append(s->q, &s->path, LEN, tag));
    uint8_t *bytes = s->q->arena + s->q->frame[s->q->count - 1].offset;
    bytes[5] = (uint8_t)(qpn >> 16);
    bytes[6] = (uint8_t)(qpn >> 8);
    bytes[7] = (uint8_t)qpn;
    kit_send_all(s->from, s->q);
}

static void assert_comes(struct scene *s, uint32_t unit, uint32_t qpn)
{
    assert_int_equal(kit_await(s->to.port[unit], s->frames), 1);
    assert_int_equal(s->frames[0].len, LEN);
    assert_int_equal(vb_get_be24(s->frames[0].head + 5), qpn);
    assert_true(vb_ip_equal(&s->frames[0].src, &s->from->local));
}

static uint32_t receive_idle(struct scene *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->to.units; i++)
        n += kit_receive_idle(s->to.port[i], s->frames);
    return n;
}

// The sender hears the reply, and then that the connection is over.
static void hear(struct scene *s)
{
    (void)kit_receive_idle(s->from, s->frames);
    (void)kit_receive_idle(s->from, s->frames);
}

static unsigned count_files(const char *dir)
{
    unsigned count = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        count += strncmp(e->d_name, "shm-", 4) == 0 && !strstr(e->d_name, ".lock");
    closedir(d);
    return count;
}

static void name_of(const struct scene *s, const char *kind, char path[256])
{
    struct sockaddr_un at;
    kit_socket_name(s->dir, "127.0.0.1", &at);
    snprintf(path, 256, "%s%s", at.sun_path, kind);
}

static void test_frames_take_the_ring_of_their_unit(void **state)
{
    for (uint32_t units = 1; units <= SHM_UNITS; units *= 2) {
        struct scene *s = make_scene(*state, units);
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t qpn = i * 0x10001;
            send_to(s, qpn, i);
            assert_comes(s, qpn % units, qpn);
        }
        assert_int_equal(receive_idle(s), 0);
        assert_int_equal(s->from->stats.tx_errors, 0);
        free_scene(s);
    }
}

// The first frame, before anybody has answered, goes the right way already.
static void test_order_is_kept_from_the_first_frame_on(void **state)
{
    struct scene *s = make_scene(*state, 2);
    for (uint32_t i = 0; i < 10; i++)
        send_to(s, 1, i);
    assert_int_equal(kit_await(s->to.port[1], s->frames), 10);
    assert_int_equal(receive_idle(s), 0);
    free_scene(s);
}

static void test_files_come_and_go(void **state)
{
    struct scene *s = make_scene(*state, 4);
    assert_int_equal(count_files(s->dir), 4 + 1 + 1); // sockets, the link, and 127.0.0.2
    struct vb_port *second[4];
    char why[VB_ERROR_TEXT];
    const struct vb_shm_opts opts = {
        .address = "127.0.0.1", .runtime_dir = s->dir, .error_text = why};
    assert_int_equal(vb_shm_open_group(&opts, second, 4), -EADDRINUSE);
    assert_non_null(strstr(why, "is in use"));
    assert_int_equal(vb_shm_open_group(&opts, second, 1), -EADDRINUSE);
    assert_int_equal(count_files(s->dir), 6); // the loser has removed nothing
    send_to(s, 3, 1);
    assert_comes(s, 3, 3);
    close_group(&s->to);
    assert_int_equal(count_files(s->dir), 1);
    free_scene(s);
}

// ---- peers that die

static pid_t fork_group(const char *dir, uint32_t units)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)open_group(dir, "127.0.0.1", units);
        (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

// All rings of the dead go at once; who comes in its place may have more units, fewer, or one.
static void test_a_peer_vanishes_with_all_its_rings(void **state)
{
    struct scene *s = make_scene(*state, 1);
    close_group(&s->to);
    for (uint32_t units = 4; units >= 1; units /= 2) {
        pid_t pid = fork_group(s->dir, 4);
        struct shm_peer *first = s->path.via;
        if (first != NULL)
            first->retry_ns = 0;
        for (uint32_t qpn = 0; qpn < 8; qpn++)
            send_to(s, qpn, qpn);
        first = s->path.via;
        assert_int_equal(first->unit_mask, 3);
        for (uint32_t i = 1; i < 4; i++)
            assert_int_equal(first->mate[i]->state, SHM_PEER_CALLED);
        assert_int_equal(s->from->stats.tx_errors, 0);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        (void)kit_receive_idle(s->from, s->frames);
        assert_false(vb_shm_reaches(s->from, &s->path));
        for (uint32_t i = 1; i < 4; i++) {
            assert_int_equal(first->mate[i]->state, SHM_PEER_ABSENT);
            first->mate[i]->retry_ns = 0;
        }
        s->to = open_group(s->dir, "127.0.0.1", units);
        assert_int_equal(count_files(s->dir), units + (units > 1) + 1);
        first->retry_ns = 0;
        for (uint32_t qpn = 0; qpn < 8; qpn++) {
            send_to(s, qpn, qpn);
            assert_comes(s, qpn % units, qpn);
        }
        close_group(&s->to);
        (void)kit_receive_idle(s->from, s->frames);
        for (uint32_t i = 1; i < 4; i++)
            first->mate[i]->retry_ns = 0;
    }
    free_scene(s);
}

// One unit of the peer goes: its frames are the first unit's to hand over.
static void test_a_lost_unit_is_stood_in_for(void **state)
{
    struct scene *s = make_scene(*state, 2);
    send_to(s, 1, 1);
    assert_comes(s, 1, 1);
    kit_close(s->to.port[1]);
    s->to.units = 1;
    hear(s);
    send_to(s, 1, 2);
    assert_comes(s, 0, 1);
    send_to(s, 2, 3);
    assert_comes(s, 0, 2);
    assert_int_equal(s->from->stats.tx_errors, 0);
    free_scene(s);
}

// ---- peers that lie

static void test_links_that_lie(void **state)
{
    static const char *const lies[] = {"3",  "0",  "-2", "32", "4294967298",    "2 ",
                                       " 2", "02", "2x", "",   "16777216000000"};
    struct scene *s = make_scene(*state, 1);
    char path[256];
    name_of(s, ".units", path);
    const struct shm_place *place = &((struct shm *)s->from)->place;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (*lies[i] != '\0')
            assert_int_equal(symlink(lies[i], path), 0);
        assert_int_equal(vb_shm_place_units(place, &s->path.remote), 1);
        (void)unlink(path);
    }
    assert_int_equal(symlink("16", path), 0); // units that are not there
    assert_int_equal(vb_shm_place_units(place, &s->path.remote), 16);
    for (uint32_t qpn = 0; qpn < 16; qpn++) {
        send_to(s, qpn, qpn);
        assert_comes(s, 0, qpn);
    }
    assert_int_equal(s->from->stats.tx_errors, 0);
    free_scene(s);
    assert_int_equal(count_files(*state), 0);
}

// A guest that forges its ring loses that one connection; its other unit's and others' rings stay.
static void test_a_forged_ring_ends_alone(void **state)
{
    struct scene *s = make_scene(*state, 2);
    send_to(s, 0, 1);
    send_to(s, 1, 1);
    assert_comes(s, 0, 0);
    assert_comes(s, 1, 1);
    struct shm_peer *first = s->path.via;
    struct shm_ring_tx *ring = &first->mate[1]->ring;
    uint64_t word = (ring->key + ring->pos / SHM_LINE) << SHM_LEN_BITS | 5;
    memcpy(ring->base + (ring->pos & ring->mask), &word, sizeof word);
    assert_int_equal(kit_receive_idle(s->to.port[1], s->frames), 0);
    assert_int_equal(s->to.port[1]->stats.rx_bad_peers, 1);
    assert_int_equal(s->to.port[0]->stats.rx_bad_peers, 0);
    assert_int_equal(((struct shm *)s->to.port[1])->guest_count, 0);
    send_to(s, 2, 2);
    assert_comes(s, 0, 2);
    // The forger learns of it, and a new connection is a new chance.
    hear(s);
    assert_int_equal(first->mate[1]->state, SHM_PEER_ABSENT);
    assert_int_equal(first->state, SHM_PEER_UP);
    first->mate[1]->retry_ns = 0;
    send_to(s, 3, 3);
    assert_comes(s, 1, 3);
    free_scene(s);
}

// ---- spoiled frames

static void test_spoiled_frames_are_dropped_and_counted(void **state)
{
    struct scene *s = make_scene(*state, 2);
    for (uint32_t i = 0; i < 60; i++) {
        s->path.spoiled = i % 3 == 0;
        send_to(s, 1, i);
    }
    uint32_t got = 0;
    for (uint32_t n; (n = kit_receive_idle(s->to.port[1], s->frames)) > 0; got += n)
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(vb_get_be24(s->frames[i].head + 5), 1);
    assert_int_equal(got, 40);
    assert_int_equal(s->to.port[1]->stats.rx_bad_icrc, 20);
    assert_int_equal(s->to.port[1]->stats.rx_bad_peers, 0);
    assert_int_equal(s->to.port[0]->stats.rx_bad_icrc, 0);
    free_scene(s);
}

// A guest whose ring is full rings no bell, so its space must be back before a nap.
static void test_no_sleep_on_space_that_a_guest_waits_for(void **state)
{
    struct scene *s = make_scene(*state, 2);
    struct vb_port *port = s->to.port[1];
    s->path.spoiled = true;
    for (uint32_t i = 0; i < 5; i++)
        send_to(s, 1, i);
    while (port->stats.rx_bad_icrc < 5)
        assert_int_equal(port->ops->receive(port, s->frames), 0);
    assert_int_equal(port->ops->sleep(port), -EAGAIN);
    assert_int_equal(port->ops->receive(port, s->frames), 0);
    assert_true(port->ops->sleep(port) >= 0);
    free_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_frames_take_the_ring_of_their_unit),
        KIT_TEST(test_order_is_kept_from_the_first_frame_on),
        KIT_TEST(test_files_come_and_go),
        KIT_TEST(test_a_peer_vanishes_with_all_its_rings),
        KIT_TEST(test_a_lost_unit_is_stood_in_for),
        KIT_TEST(test_links_that_lie),
        KIT_TEST(test_a_forged_ring_ends_alone),
        KIT_TEST(test_spoiled_frames_are_dropped_and_counted),
        KIT_TEST(test_no_sleep_on_space_that_a_guest_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
