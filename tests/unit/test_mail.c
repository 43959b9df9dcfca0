// SPDX-License-Identifier: Apache-2.0
// Several udp ports on one address: each gets the frames of its own numbers, strays are sent on,
// and bad mail and false probes change nothing.
#include "base/bytes.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/udp.h"
#include "port/udp_state.h"
#include "port/udp_steer.h"
#include "runtime_dir.h"
#include "udp_place.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BYTES = 64,
    SEGMENTS = 24,
};

static void seal(struct udp_place *p, uint8_t *frame, uint16_t id, uint32_t qpn)
{
    memset(frame, 7, BYTES);
    vb_put_be24(frame + 5, qpn);
    vb_icrc_seal(&p->from.path.icrc, id, frame, BYTES);
}

static void send_frame(struct udp_place *p, uint32_t qpn)
{
    uint8_t frame[BYTES];
    seal(p, frame, 0, qpn);
    assert_int_equal(sendto(p->from.fd, frame, BYTES, 0, &p->from.to.any, p->from.to_bytes), BYTES);
}

// One send for several NICs, which on loopback stays whole.
static void send_run(struct udp_place *p, const uint32_t qpn[SEGMENTS])
{
    static uint8_t bytes[SEGMENTS * BYTES];
    const uint16_t segment = BYTES;
    struct iovec iov = {bytes, sizeof bytes};
    union {
        struct cmsghdr head;
        uint8_t bytes[CMSG_SPACE(sizeof segment)];
    } control = {.head = {.cmsg_level = SOL_UDP,
                          .cmsg_type = UDP_SEGMENT,
                          .cmsg_len = CMSG_LEN(sizeof segment)}};
    for (uint16_t i = 0; i < SEGMENTS; i++)
        seal(p, bytes + i * BYTES, i, qpn[i]);
    memcpy(CMSG_DATA(&control.head), &segment, sizeof segment);
    const struct msghdr h = {.msg_name = &p->from.to,
                             .msg_namelen = p->from.to_bytes,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    assert_int_equal(sendmsg(p->from.fd, &h, 0), sizeof bytes);
}

static void test_frames_find_their_port(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
        assert_int_equal(p.port[i]->qpn_count, 1 << 15);
        for (unsigned n = 0; n < 10; n++)
            send_frame(&p, p.port[i]->qpn_base + n * 3001 + 2);
        udp_place_expect(&p, i == 0 ? 10 : 0, i == 1 ? 10 : 0, i == 2 ? 10 : 0);
    }
    assert_int_equal(udp_place_forwarded(&p), 0);
    // The first one goes, and the last takes its place.
    udp_place_close_port(&p, 0);
    send_frame(&p, p.port[1]->qpn_base + 5);
    send_frame(&p, p.port[2]->qpn_base + 5);
    udp_place_expect(&p, 0, 1, 1);
    assert_int_equal(udp_place_forwarded(&p), 0);
    udp_place_close(&p);
}

static void test_more_numbers(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 100000); // four slots
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
        assert_int_equal(p.port[i]->qpn_count, 4 << 15);
        send_frame(&p, p.port[i]->qpn_base + 99999);
    }
    udp_place_expect(&p, 1, 1, 1);
    assert_int_equal(udp_place_forwarded(&p), 0);
    udp_place_close(&p);
}

static void test_strays_are_sent_on(void **state)
{
    struct udp_place p;
    uint32_t qpn[SEGMENTS], want[UDP_PLACE_PORTS] = {0}, got[UDP_PLACE_PORTS];
    struct vb_prng prng = {.state = fresh_seed()};
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    for (unsigned round = 0; round < 20; round++) {
        memset(want, 0, sizeof want);
        for (unsigned i = 0; i < SEGMENTS; i++) {
            unsigned to = (unsigned)vb_prng_below(&prng, UDP_PLACE_PORTS);
            qpn[i] = p.port[to]->qpn_base + 2 + (uint32_t)vb_prng_below(&prng, 1000);
            want[to]++;
        }
        send_run(&p, qpn);
        udp_place_receive(&p, got);
        assert_memory_equal(got, want, sizeof got);
    }
    assert_in_range(udp_place_forwarded(&p), 20, 20 * SEGMENTS);
    udp_place_close(&p);
}

// Numbers of nobody come to somebody, once.
static void test_numbers_of_nobody(void **state)
{
    struct udp_place p;
    uint32_t sum = 0;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    send_frame(&p, 500 << REGISTRY_RANGE_BITS);
    for (unsigned round = 0; round < 20; round++)
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
            sum += p.port[i]->ops->receive(p.port[i], p.frames);
    assert_int_equal(sum, 1);
    assert_int_equal(udp_place_forwarded(&p), 0);
    udp_place_close(&p);
}

// A sign of life that is younger than our look at the clock is one, and not very old.
static void test_a_sign_of_life_from_just_now(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    struct udp_share *s = udp_place_share(&p, 0);
    struct registry_slot *other = &s->registry.file->slot[udp_place_slot(&p, 2)];
    assert_int_equal(atomic_load(&other->site[0].takes_rest), 1); // the newest
    atomic_store(&other->beat_ns, vb_clock_ns() + 100000000);
    atomic_store(&s->doubted, true);
    s->mended_ns = 0;
    (void)p.port[0]->ops->receive(p.port[0], p.frames);
    assert_true(s->mended_ns != 0);
    assert_int_equal(atomic_load(&other->site[0].takes_rest), 1);
    atomic_store(&other->beat_ns, 1); // and now it is
    atomic_store(&s->doubted, true);
    s->mended_ns = 0;
    (void)p.port[0]->ops->receive(p.port[0], p.frames);
    assert_int_equal(atomic_load(&other->site[0].takes_rest), 0);
    udp_place_close(&p);
}

// A child that was forked at a bad moment keeps a socket that its parent has closed: nobody reads
// it, but it has its place among the others.
static void test_a_socket_that_stays(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    udp_place_expect(&p, 0, 0, 0); // but for the probes of their coming
    int kept = dup(((struct udp *)p.port[0])->fd);
    assert_true(kept >= 0);
    udp_place_close_port(&p, 0);
    udp_place_expect(&p, 0, 0, 0);
    send_frame(&p, p.port[1]->qpn_base + 5);
    send_frame(&p, p.port[2]->qpn_base + 5);
    udp_place_expect(&p, 0, 1, 1);
    close(kept);
    udp_place_close(&p);
}

// As in a signal handler that has interrupted the thread that has the lock.
static void test_a_probe_that_finds_the_lock_taken(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0); // whose probes wait
    struct udp_share *s = udp_place_share(&p, 0);
    struct registry_slot *own = &s->registry.file->slot[s->registry.slot];
    pthread_mutex_lock(&s->lock);
    (void)p.port[0]->ops->receive(p.port[0], p.frames);
    (void)p.port[0]->ops->receive(p.port[0], p.frames);
    pthread_mutex_unlock(&s->lock);
    assert_true(atomic_load(&s->doubted));
    udp_place_expect(&p, 0, 0, 0);
    assert_false(atomic_load(&s->doubted)); // asked again
    assert_true(atomic_load(&own->site[0].index_ns[0]) != 0);
    udp_place_close(&p);
}

static void test_bad_mail(void **state)
{
    struct udp_place p;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char path[REGISTRY_PATH];
    struct vb_prng prng = {.state = fresh_seed()};
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    const struct udp *u = (const struct udp *)p.port[1];
    const struct registry *r = &u->share->registry;
    assert_true(vb_registry_inbox(r, r->slot, 0, 0, path));
    memcpy(to.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (unsigned round = 0; round < 300; round++) {
        uint32_t mail[64];
        size_t len = 4 * (size_t)vb_prng_below(&prng, 65);
        for (unsigned i = 0; i < 64; i++)
            mail[i] = (uint32_t)vb_prng_next(&prng);
        if (round % 2)
            mail[0] = (uint32_t)vb_prng_below(&prng, 300); // a length that may be right
        assert_int_equal(sendto(fd, mail, len, 0, (const struct sockaddr *)&to, sizeof to), len);
        atomic_fetch_add(&r->file->slot[r->slot].site[0].mail[0], 1);
        for (unsigned n = 0; n < 4; n++) {
            uint32_t count = p.port[1]->ops->receive(p.port[1], p.frames);
            for (uint32_t f = 0; f < count; f++)
                assert_in_range(p.frames[f].len, VB_ICRC_FRAME_MIN, len);
        }
    }
    assert_true(p.port[1]->stats.rx_bad_peers > 100);
    send_frame(&p, p.port[1]->qpn_base + 2);
    udp_place_expect(&p, 0, 1, 0);
    close(fd);
    udp_place_close(&p);
}

// Who does not know the registry's secret cannot move a socket in the order.
static void test_false_probes(void **state)
{
    struct udp_place p;
    uint8_t probe[32] = {UDP_PROBE_OPCODE};
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    const struct udp *u = (const struct udp *)p.port[1];
    const struct registry *r = &u->share->registry;
    udp_place_expect(&p, 0, 0, 0); // the probes of our own
    vb_put_be24(probe + 5, 0xfffffe);
    vb_put_be32(probe + UDP_PROBE_INDEX_AT, 1);
    vb_put_be64(probe + 20, UINT64_MAX / 2);
    for (size_t len = 16; len <= sizeof probe; len++)
        assert_int_equal(sendto(p.from.fd, probe, len, 0, &p.from.to.any, p.from.to_bytes), len);
    udp_place_expect(&p, 0, 0, 0);
    assert_true(atomic_load(&r->file->slot[r->slot].site[0].index_ns[0]) < UINT64_MAX / 2);
    // One that knows it can: and the others make room.
    vb_put_be64(probe + 12, r->file->secret);
    vb_put_be64(probe + 20, UINT64_MAX / 2);
    assert_int_equal(sendto(p.from.fd, probe, 32, 0, &p.from.to.any, p.from.to_bytes), 32);
    udp_place_expect(&p, 0, 0, 0);
    assert_true(atomic_load(&r->file->slot[r->slot].site[0].index_ns[0]) == UINT64_MAX / 2);
    assert_int_equal(atomic_load(&r->file->slot[r->slot].site[0].index[0]), 1);
    udp_place_close(&p);
}

// Whatever the order in the registry is, the sockets find their places again.
static void test_a_wrong_order_mends_itself(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    udp_place_expect(&p, 0, 0, 0);
    const struct udp *u = (const struct udp *)p.port[0];
    struct registry *r = &u->share->registry;
    uint32_t slot[UDP_PLACE_PORTS];
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        slot[i] = udp_place_slot(&p, i);
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        atomic_store(&r->file->slot[slot[i]].site[0].index[0], (i + 1) % UDP_PLACE_PORTS);
    atomic_store(&u->share->doubted, true); // attaches the wrong program, and asks
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
            send_frame(&p, p.port[i]->qpn_base + 9);
        udp_place_expect(&p, 1, 1, 1);
    }
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        assert_int_equal(atomic_load(&r->file->slot[slot[i]].site[0].index[0]), i);
    udp_place_close(&p);
}

static int remove_dir(void **state)
{
    unsigned inboxes = runtime_dir_count("in-");
    return runtime_dir_remove(state) || inboxes > 0; // all ports were closed
}

#define ALL_TESTS(family)                                                                        \
    {                                                                                            \
        UDP_KIT_TEST(test_more_numbers, family), UDP_KIT_TEST(test_strays_are_sent_on, family),  \
            UDP_KIT_TEST(test_numbers_of_nobody, family),                                        \
            UDP_KIT_TEST(test_frames_find_their_port, family),                                   \
            UDP_KIT_TEST(test_a_sign_of_life_from_just_now, family),                             \
            UDP_KIT_TEST(test_a_probe_that_finds_the_lock_taken, family),                        \
            UDP_KIT_TEST(test_a_socket_that_stays, family), UDP_KIT_TEST(test_bad_mail, family), \
            UDP_KIT_TEST(test_false_probes, family),                                             \
            UDP_KIT_TEST(test_a_wrong_order_mends_itself, family),                               \
    }

int main(void)
{
    const struct CMUnitTest v4[] = ALL_TESTS(udp_kit_v4);
    const struct CMUnitTest v6[] = ALL_TESTS(udp_kit_v6);
    int failed = cmocka_run_group_tests(v4, runtime_dir_make, remove_dir);
    if (udp_kit_enter_v6(&failed))
        failed += cmocka_run_group_tests(v6, runtime_dir_make, remove_dir);
    return failed;
}
