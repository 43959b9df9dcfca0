// SPDX-License-Identifier: Apache-2.0
// The shm port sending to peers that lie, in their reply and on their board: they are counted and
// dropped, and honest peers still get their frames.
#include "port/shm.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"
#include "shm_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RING = SHM_RING_MIN,
    ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    OUR_PLACE = 5, // on the liar's board
};

// A port that sends, an honest peer at 127.0.0.1 and a liar at 127.0.0.3.
struct scene {
    const char *dir;
    struct vb_port *port, *friend;
    struct vb_path to_friend, to_liar;
    struct vb_txq *q;
    struct vb_rx_frame *frames;
    uint32_t tag;
    int listener, connection, memory; // the liar's
    struct shm_board *board;
};

static struct scene *make_scene(const char *dir)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    struct vb_ip liar = kit_ip(3);
    s->dir = dir;
    s->friend = kit_open_shm(dir, "127.0.0.1", 0);
    s->port = kit_open_shm(dir, "127.0.0.2", RING);
    s->to_friend = kit_path(s->port, &s->friend->local);
    s->to_liar = kit_path(s->port, &liar);
    s->q = kit_make_queue();
    s->frames = kit_make_frames();
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

static void assert_unharmed(struct scene *s)
{
    uint64_t lost = s->port->stats.tx_errors;
    kit_send(s->port, s->q, &s->to_friend, 200, ++s->tag);
    assert_int_equal(kit_await(s->friend, s->frames), 1);
    kit_assert_frame(&s->frames[0], &s->port->local, 200, s->tag);
    assert_int_equal(s->port->stats.tx_errors, lost);
}

// What the port knows of the liar.
static struct shm_peer *peer_at_hand(struct scene *s)
{
    if (s->to_liar.via == NULL)
        (void)vb_shm_reaches(s->port, &s->to_liar);
    struct shm_peer *peer = s->to_liar.via;
    assert_non_null(peer);
    return peer;
}

// The liar listens, is called once, and cannot be called again.
static void be_called(struct scene *s)
{
    struct sockaddr_un at;
    struct shm_hello hello;
    int ring;
    peer_at_hand(s)->retry_ns = 0;
    kit_socket_name(s->dir, "127.0.0.3", &at);
    unlink(at.sun_path);
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(s->listener, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 4), 0);
    assert_true(vb_shm_reaches(s->port, &s->to_liar));
    s->connection = accept(s->listener, NULL, NULL);
    close(s->listener);
    assert_int_equal(vb_shm_hear(s->connection, &hello, sizeof hello, &ring), 0);
    assert_true(vb_ip_equal(&hello.address, &s->port->local));
    close(ring);
}

// The liar replies with a board of that size and those seals.
static void reply(struct scene *s, const struct shm_reply *message, size_t bytes, int seals)
{
    s->memory = memfd_create("board", MFD_ALLOW_SEALING);
    assert_true(s->memory >= 0);
    assert_int_equal(ftruncate(s->memory, (off_t)bytes), 0);
    if (seals)
        assert_int_equal(fcntl(s->memory, F_ADD_SEALS, seals), 0);
    s->board = mmap(NULL, sizeof *s->board, PROT_READ | PROT_WRITE, MAP_SHARED, s->memory, 0);
    assert_true(s->board != MAP_FAILED);
    assert_int_equal(vb_shm_say(s->connection, message, sizeof *message, s->memory), 0);
    (void)kit_receive_idle(s->port, s->frames);
}

static void be_silenced(struct scene *s)
{
    close(s->connection);
    close(s->memory);
    munmap(s->board, sizeof *s->board);
    (void)kit_receive_idle(s->port, s->frames);
}

static void test_lying_replies_are_refused(void **state)
{
    struct scene *s = make_scene(*state);
    for (int lie = 0; lie < 6; lie++) { // the first one is the truth
        struct shm_reply message = {.magic = SHM_MAGIC, .version = SHM_VERSION};
        size_t bytes = sizeof(struct shm_board) / (lie == 1 ? 2 : 1);
        message.magic += lie == 3;
        message.version += lie == 4;
        message.guest = lie == 5 ? SHM_GUESTS : SHM_GUESTS - 1;
        uint64_t before = s->port->stats.rx_bad_peers;
        be_called(s);
        reply(s, &message, bytes, lie == 2 ? 0 : ALL_SEALS);
        assert_int_equal(s->port->stats.rx_bad_peers, before + (lie != 0));
        assert_int_equal(vb_shm_reaches(s->port, &s->to_liar), lie == 0);
        be_silenced(s);
        assert_false(vb_shm_reaches(s->port, &s->to_liar));
    }
    assert_unharmed(s);
    free_scene(s);
}

static void test_a_peer_with_more_to_say_is_dropped(void **state)
{
    struct scene *s = make_scene(*state);
    struct shm_reply message = {.magic = SHM_MAGIC, .version = SHM_VERSION};
    be_called(s);
    reply(s, &message, sizeof *s->board, ALL_SEALS);
    assert_int_equal(send(s->connection, "and", 3, 0), 3);
    (void)kit_receive_idle(s->port, s->frames);
    assert_int_equal(s->port->stats.rx_bad_peers, 1);
    assert_false(vb_shm_reaches(s->port, &s->to_liar));
    be_silenced(s);
    assert_unharmed(s);
    free_scene(s);
}

// A board that says impossible things of the ring, and is asleep in a new way each time.
static void test_lying_boards_end_one_peer(void **state)
{
    static const uint64_t lies[] = {1ull << 40, 1, UINT64_MAX, 2 * RING};
    struct scene *s = make_scene(*state);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct shm_reply message = {.magic = SHM_MAGIC, .version = SHM_VERSION, .guest = OUR_PLACE};
        be_called(s);
        reply(s, &message, sizeof *s->board, ALL_SEALS);
        atomic_store(&s->board->nap, UINT64_MAX);
        atomic_store(&s->board->guest[OUR_PLACE].consumed, lies[i]);
        uint64_t lost = s->port->stats.tx_errors;
        for (uint32_t f = 0; f < 50; f++) {
            atomic_fetch_sub(&s->board->nap, 2);
            kit_send(s->port, s->q, &s->to_liar, 1044, f);
        }
        assert_int_equal(s->port->stats.rx_bad_peers, i + 1);
        assert_int_equal(s->port->stats.tx_errors - lost, 50 - RING / 1088);
        assert_unharmed(s);
        be_silenced(s);
    }
    free_scene(s);
}

// One that hangs up on every hello is left alone for longer and longer, up to ten seconds; one that
// replies is forgiven.
static void test_refusals_are_respected(void **state)
{
    struct scene *s = make_scene(*state);
    uint64_t pause_ns = peer_at_hand(s)->pause_ns;
    for (int i = 0; i < 12; i++) {
        be_called(s);
        close(s->connection);
        (void)kit_receive_idle(s->port, s->frames);
        assert_int_equal(peer_at_hand(s)->state, SHM_PEER_ABSENT);
        uint64_t now_ns = peer_at_hand(s)->pause_ns;
        assert_true(now_ns > pause_ns || now_ns == 10000000000);
        assert_true(peer_at_hand(s)->retry_ns > 0);
        pause_ns = now_ns;
    }
    assert_int_equal(pause_ns, 10000000000);
    assert_int_equal(s->port->stats.rx_bad_peers, 0);
    struct shm_reply message = {.magic = SHM_MAGIC, .version = SHM_VERSION};
    be_called(s);
    reply(s, &message, sizeof *s->board, ALL_SEALS);
    assert_int_equal(peer_at_hand(s)->pause_ns, 10000000);
    be_silenced(s);
    assert_unharmed(s);
    free_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_lying_replies_are_refused),
        KIT_TEST(test_a_peer_with_more_to_say_is_dropped),
        KIT_TEST(test_lying_boards_end_one_peer),
        KIT_TEST(test_refusals_are_respected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
