// SPDX-License-Identifier: Apache-2.0
// The shm port against senders that lie, in their hello and in their ring: they are counted and cut
// off, and honest peers notice nothing.
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/shm.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"
#include "shm_kit.h"
#include "skips.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RING = SHM_RING_MIN,
    ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};

// A port under attack and an honest peer of it.
struct scene {
    const char *dir;
    struct vb_port *port, *friend;
    struct vb_path path; // from the friend
    struct vb_txq *q;
    struct vb_rx_frame *frames;
    uint32_t tag;
};

static struct scene *make_scene(const char *dir)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->dir = dir;
    s->port = kit_open_shm(dir, "127.0.0.1", 0);
    s->friend = kit_open_shm(dir, "127.0.0.2", RING);
    vb_path_init(&s->path, &s->friend->local, &s->port->local, VB_ROCE_UDP_PORT);
    s->q = kit_make_queue();
    s->frames = calloc(VB_PORT_RX_BATCH, sizeof *s->frames);
    assert_non_null(s->frames);
    return s;
}

static void free_scene(struct scene *s)
{
    kit_close(s->port);
    kit_close(s->friend);
    kit_free_queue(s->q);
    free(s->frames);
    free(s);
}

// The honest peer still gets through.
static void assert_unharmed(struct scene *s)
{
    kit_send(s->friend, s->q, &s->path, 200, ++s->tag);
    assert_int_equal(kit_await(s->port, s->frames), 1);
    kit_assert_frame(&s->frames[0], &s->friend->local, 200, s->tag);
    assert_int_equal(s->friend->stats.tx_errors, 0);
}

struct liar {
    int fd;
    int memory;
    uint8_t *map;
    struct shm_hello hello;
};

static int dial(const char *dir)
{
    struct sockaddr_un at;
    kit_socket_name(dir, "127.0.0.1", &at);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static struct liar make_liar(const char *dir, size_t memory_bytes, int seals)
{
    struct liar l = {.fd = dial(dir)};
    l.memory = memfd_create("liar", MFD_ALLOW_SEALING);
    assert_true(l.memory >= 0);
    assert_int_equal(ftruncate(l.memory, (off_t)memory_bytes), 0);
    if (seals)
        assert_int_equal(fcntl(l.memory, F_ADD_SEALS, seals), 0);
    l.map = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, l.memory, 0);
    assert_true(l.map != MAP_FAILED);
    l.hello = (struct shm_hello){.magic = SHM_MAGIC,
                                 .version = SHM_VERSION,
                                 .ring_bytes = RING,
                                 .key = 1,
                                 .address = {.b = {[10] = 0xff, 0xff, 127, 6, 6, 6}}};
    return l;
}

static void free_liar(struct liar *l)
{
    close(l->fd);
    close(l->memory);
    munmap(l->map, RING);
}

static bool hears_hang_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&p, 1, -1) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void assert_refused(struct scene *s, struct liar *l)
{
    uint64_t before = s->port->stats.rx_bad_peers;
    assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    assert_int_equal(s->port->stats.rx_bad_peers, before + 1);
    assert_true(hears_hang_up(l->fd));
    assert_unharmed(s);
    free_liar(l);
}

static void put_word(struct liar *l, uint64_t pos, uint64_t len)
{
    uint64_t word = (l->hello.key + pos / SHM_LINE) << SHM_LEN_BITS | len;
    memcpy(l->map + pos % RING, &word, sizeof word);
}

static void introduce(struct scene *s, struct liar *l)
{
    assert_int_equal(vb_shm_say(l->fd, &l->hello, sizeof l->hello, l->memory), 0);
    (void)kit_receive_idle(s->port, s->frames);
}

// The twin of all refusals: a hello by hand that is right.
static void test_a_right_hello_is_answered(void **state)
{
    struct scene *s = make_scene(*state);
    struct liar l = make_liar(s->dir, RING, ALL_SEALS);
    struct shm_reply reply;
    int board;
    introduce(s, &l);
    assert_int_equal(vb_shm_hear(l.fd, &reply, sizeof reply, &board), 0);
    assert_int_equal(reply.magic, SHM_MAGIC);
    assert_int_equal(reply.version, SHM_VERSION);
    const void *map;
    assert_int_equal(vb_shm_memory_adopt(board, sizeof(struct shm_board), &map), 0);
    // Nobody but the port can write to its board.
    assert_true(mmap(NULL, sizeof(struct shm_board), PROT_READ | PROT_WRITE, MAP_SHARED, board,
                     0) == MAP_FAILED);
    put_word(&l, 0, 100);
    assert_int_equal(s->port->ops->receive(s->port, s->frames), 1);
    assert_int_equal(s->frames[0].len, 100);
    assert_true(vb_ip_equal(&s->frames[0].src, &l.hello.address));
    const struct shm_board *b = map;
    assert_int_equal(atomic_load(&b->guest[reply.guest].consumed), 0);
    assert_int_equal(s->port->ops->receive(s->port, s->frames), 0);
    assert_int_equal(atomic_load(&b->guest[reply.guest].consumed), 128);
    assert_int_equal(s->port->stats.rx_bad_peers, 0);
    vb_shm_memory_unmap(map, sizeof(struct shm_board));
    close(board);
    free_liar(&l);
    assert_unharmed(s);
    free_scene(s);
}

static void test_lying_hellos_are_refused(void **state)
{
    struct scene *s = make_scene(*state);
    for (int lie = 0; lie < 8; lie++) {
        struct liar l = make_liar(s->dir, RING, ALL_SEALS);
        switch (lie) {
        case 0: l.hello.magic++; break;
        case 1: l.hello.version++; break;
        case 2: l.hello.ring_bytes = 2 * RING; break; // more than there is
        case 3: l.hello.ring_bytes = RING / 2; break;
        case 4: l.hello.ring_bytes = RING + SHM_LINE; break;
        case 5: l.hello.ring_bytes = 0; break;
        case 6: l.hello.ring_bytes = UINT32_MAX; break;
        case 7: l.hello.ring_bytes = 1u << 31; break;
        }
        assert_int_equal(vb_shm_say(l.fd, &l.hello, sizeof l.hello, l.memory), 0);
        assert_refused(s, &l);
    }
    free_scene(s);
}

static void test_unsafe_memory_is_refused(void **state)
{
    static const int seals[] = {0, F_SEAL_SEAL, F_SEAL_GROW | F_SEAL_SEAL,
                                F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_SEAL};
    struct scene *s = make_scene(*state);
    for (size_t i = 0; i < sizeof seals / sizeof *seals; i++) {
        struct liar l = make_liar(s->dir, RING, seals[i]);
        assert_int_equal(vb_shm_say(l.fd, &l.hello, sizeof l.hello, l.memory), 0);
        assert_refused(s, &l);
    }
    static const size_t sizes[] = {0, RING - 1, RING + 1, RING / 2, 2 * RING};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct liar l = make_liar(s->dir, sizes[i], ALL_SEALS);
        assert_int_equal(vb_shm_say(l.fd, &l.hello, sizeof l.hello, l.memory), 0);
        assert_refused(s, &l);
    }
    struct liar l = make_liar(s->dir, RING, ALL_SEALS);
    assert_int_equal(vb_shm_say(l.fd, &l.hello, sizeof l.hello, l.fd), 0); // not memory at all
    assert_refused(s, &l);
    free_scene(s);
}

static void send_with(const struct liar *l, size_t bytes, int fds)
{
    union {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    uint8_t message[sizeof l->hello + 8] = {0};
    memcpy(message, &l->hello, sizeof l->hello);
    struct iovec iov = {message, bytes};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fds > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE((size_t)fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)fds * sizeof(int));
        for (int i = 0; i < fds; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &l->memory, sizeof(int));
    }
    assert_int_equal(sendmsg(l->fd, &h, 0), bytes);
}

static void test_misshapen_hellos_are_refused(void **state)
{
    static const struct {
        size_t bytes;
        int fds;
    } shape[] = {{sizeof(struct shm_hello), 0},     {sizeof(struct shm_hello), 2},
                 {sizeof(struct shm_hello), 8},     {sizeof(struct shm_hello) - 1, 1},
                 {sizeof(struct shm_hello) + 1, 1}, {1, 0}};
    struct scene *s = make_scene(*state);
    assert_unharmed(s);
    int free_fd = dup(0);
    close(free_fd);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct liar l = make_liar(s->dir, RING, ALL_SEALS);
        send_with(&l, shape[i].bytes, shape[i].fds);
        assert_refused(s, &l);
    }
    int now_free = dup(0);
    close(now_free);
    assert_int_equal(now_free, free_fd);                // no descriptor that was passed is left
    struct liar l = make_liar(s->dir, RING, ALL_SEALS); // who only looks is not counted
    free_liar(&l);
    assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    assert_int_equal(s->port->stats.rx_bad_peers, 6);
    free_scene(s);
}

static void test_garbage_in_the_ring_ends_one_peer(void **state)
{
    static const uint64_t bad[] = {0, 1, 15, VB_FRAME_MAX + 1, 8191};
    struct scene *s = make_scene(*state);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct liar l = make_liar(s->dir, RING, ALL_SEALS);
        l.hello.key = (i << 60) + 1;
        put_word(&l, 0, 60);
        put_word(&l, 128, bad[i]);
        assert_int_equal(vb_shm_say(l.fd, &l.hello, sizeof l.hello, l.memory), 0);
        assert_int_equal(kit_receive_idle(s->port, s->frames), 1); // what was right arrives
        assert_int_equal(s->port->stats.rx_bad_peers, i + 1);
        struct shm_reply reply;
        assert_true(recv(l.fd, &reply, sizeof reply, MSG_DONTWAIT) > 0);
        assert_true(hears_hang_up(l.fd));
        put_word(&l, 128, 60);                     // too late
        assert_int_equal(s->frames[0].data[0], 0); // and still mapped
        assert_unharmed(s);
        assert_int_equal(s->port->stats.rx_bad_peers, i + 1);
        free_liar(&l);
    }
    free_scene(s);
}

// Random words, most with the right tag, rewritten while the port reads on.
static void test_random_rings_end_or_go_on(void **state)
{
    struct scene *s = make_scene(*state);
    struct vb_prng prng = {.state = fresh_seed()};
    for (int round = 0; round < 60; round++) {
        struct liar l = make_liar(s->dir, RING, ALL_SEALS);
        introduce(s, &l);
        uint64_t lap = 0;
        for (int turn = 0; turn < 20; turn++) {
            for (uint64_t pos = 0; pos < RING; pos += SHM_LINE) {
                bool good = vb_prng_chance(&prng, 900000);
                uint64_t len = good ? vb_prng_range(&prng, 16, 300) : vb_prng_below(&prng, 8192);
                put_word(&l, lap * RING + pos, len);
            }
            uint32_t n = s->port->ops->receive(s->port, s->frames);
            for (uint32_t i = 0; i < n; i++) {
                assert_in_range(s->frames[i].len, VB_ICRC_FRAME_MIN, VB_FRAME_MAX);
                volatile uint8_t last = s->frames[i].data[s->frames[i].len - 1];
                (void)last;
            }
            lap += vb_prng_below(&prng, 2);
        }
        assert_unharmed(s);
        free_liar(&l);
    }
    assert_true(s->port->stats.rx_bad_peers > 0);
    free_scene(s);
}

// The header that is judged is the header that is used.
static void test_heads_are_out_of_reach(void **state)
{
    static const uint32_t lens[] = {16, 40, 56, 57, 64, 100};
    struct scene *s = make_scene(*state);
    struct liar l = make_liar(s->dir, RING, ALL_SEALS);
    uint64_t pos = 0;
    introduce(s, &l);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint32_t head = lens[i] < VB_FRAME_HEAD ? lens[i] : VB_FRAME_HEAD;
        uint8_t wanted[VB_FRAME_HEAD];
        memset(l.map + pos + SHM_WORD, 0xaa, lens[i]);
        memset(wanted, 0xaa, sizeof wanted);
        put_word(&l, pos, lens[i]);
        assert_int_equal(s->port->ops->receive(s->port, s->frames), 1);
        memset(l.map + pos + SHM_WORD, 0x55, lens[i]);
        assert_memory_equal(s->frames[0].head, wanted, head);
        assert_int_equal(s->frames[0].data[lens[i] - 1], 0x55);
        pos += (SHM_WORD + lens[i] + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
    }
    free_liar(&l);
    free_scene(s);
}

// Bells without end, messages with descriptors, and a connection that is half closed.
static void test_noise_on_the_connection_is_harmless(void **state)
{
    struct scene *s = make_scene(*state);
    struct liar l = make_liar(s->dir, RING, ALL_SEALS);
    introduce(s, &l);
    for (int i = 0; i < 100; i++)
        if (send(l.fd, "bell", 4, MSG_DONTWAIT) < 0)
            break;
    send_with(&l, sizeof l.hello, 8);
    for (int i = 0; i < 20; i++)
        assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    put_word(&l, 0, 100);
    assert_int_equal(s->port->ops->receive(s->port, s->frames), 1);
    shutdown(l.fd, SHUT_WR);
    put_word(&l, 128, 100);
    assert_int_equal(kit_receive_idle(s->port, s->frames), 1);
    assert_unharmed(s);
    assert_int_equal(s->port->stats.rx_bad_peers, 0);
    free_liar(&l);
    free_scene(s);
}

// A directory open to all, by mistake, and another user's process in it. Needs root to play both.
static void test_other_users_are_refused(void **state)
{
    if (geteuid() != 0)
        SKIP("needs root to play two users");
    struct scene *s = make_scene(*state);
    struct sockaddr_un at;
    kit_socket_name(s->dir, "127.0.0.1", &at);
    assert_int_equal(chmod(s->dir, 0755), 0);
    assert_int_equal(chmod(at.sun_path, 0777), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        struct liar l = make_liar(s->dir, RING, ALL_SEALS);
        put_word(&l, 0, 100);
        _exit(vb_shm_say(l.fd, &l.hello, sizeof l.hello, l.memory) == 0 ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    assert_int_equal(s->port->stats.rx_bad_peers, 1);
    assert_unharmed(s);
    free_scene(s);
}

// A child that has inherited the port's descriptors keeps no connection alive, nor what is freed.
static void test_a_child_keeps_nothing_open(void **state)
{
    struct scene *s = make_scene(*state);
    struct liar l = make_liar(s->dir, RING, ALL_SEALS);
    struct shm_reply reply;
    int over[2];
    introduce(s, &l);
    assert_int_equal(recv(l.fd, &reply, sizeof reply, MSG_DONTWAIT), sizeof reply);
    assert_unharmed(s);
    assert_unharmed(s);
    assert_int_equal(pipe(over), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(over[1]);
        close(l.fd);
        (void)!read(over[0], &byte, 1);
        _exit(0);
    }
    put_word(&l, 0, 1); // garbage
    assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    assert_true(hears_hang_up(l.fd));
    free_liar(&l); // would be an event of a guest that is gone
    assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    struct vb_port *third = kit_open_shm(s->dir, "127.0.0.3", 0);
    struct vb_path path = {0};
    vb_path_init(&path, &third->local, &s->port->local, VB_ROCE_UDP_PORT);
    assert_true(vb_shm_reaches(third, &path)); // and waits to be accepted
    kit_close(s->port);
    (void)kit_receive_idle(s->friend, s->frames);
    assert_false(vb_shm_reaches(s->friend, &s->path));
    (void)kit_receive_idle(third, s->frames);
    assert_false(vb_shm_reaches(third, &path));
    kit_close(third);
    s->port = kit_open_shm(s->dir, "127.0.0.1", 0);
    close(over[0]);
    close(over[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    free_scene(s);
}

// More connections than descriptors: refused, and the port can sleep.
static void test_a_crowd_without_hellos(void **state)
{
    int ready[2], over[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(over), 0);
    struct scene *s = make_scene(*state);
    assert_unharmed(s);
    assert_unharmed(s); // now the friend has the reply, too
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(over[1]);
        for (int i = 0; i < 100; i++)
            (void)dial(s->dir);
        if (write(ready[1], "", 1) == 1)
            (void)!read(over[0], &byte, 1);
        _exit(0);
    }
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int i = 0; i < 200; i++)
        assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    struct pollfd p = {.fd = s->port->ops->sleep(s->port), .events = POLLIN};
    assert_true(p.fd >= 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_unharmed(s);
    close(over[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(ready[0]);
    close(ready[1]);
    close(over[0]);
    assert_int_equal(kit_receive_idle(s->port, s->frames), 0);
    assert_unharmed(s);
    free_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_a_right_hello_is_answered),
        KIT_TEST(test_lying_hellos_are_refused),
        KIT_TEST(test_unsafe_memory_is_refused),
        KIT_TEST(test_misshapen_hellos_are_refused),
        KIT_TEST(test_garbage_in_the_ring_ends_one_peer),
        KIT_TEST(test_random_rings_end_or_go_on),
        KIT_TEST(test_heads_are_out_of_reach),
        KIT_TEST(test_noise_on_the_connection_is_harmless),
        KIT_TEST(test_other_users_are_refused),
        KIT_TEST(test_a_child_keeps_nothing_open),
        KIT_TEST(test_a_crowd_without_hellos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
