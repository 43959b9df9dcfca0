// SPDX-License-Identifier: Apache-2.0
// Lent payloads through the udp port: whatever their place in a run, and whatever the system
// refuses, the receiver sees the same bytes under a right ICRC.
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/udp.h"
#include "skips.h"
#include "udp_kit.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    HEAD = 28, // BTH and RETH
    BODY_MAX = 4096,
};

// ---- the system as the port sees it: what it was handed, and what it refuses

static struct {
    uint32_t messages;  // handed over by sendmmsg and sent
    uint32_t segmented; // of these, those with a segment size
    uint32_t singles;   // handed over by sendmsg
    int refuse;         // the errno with which message number `refuse_at` is refused; 0: none
    uint32_t refuse_at;
    uint32_t full_at; // the single that finds the buffers full; 0: none
    uint8_t *spoil;   // a byte to change before the next send
    struct vb_path *path[2];
} sys;

static struct vb_path *path_of(const struct msghdr *h)
{
    const struct sockaddr_in6 *v6 = h->msg_name;
    const struct sockaddr_in *v4 = h->msg_name;
    bool ipv4 = h->msg_namelen == sizeof *v4;
    const void *ip = ipv4 ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr;
    size_t bytes = ipv4 ? 4 : 16;
    for (unsigned i = 0; i < 2; i++)
        if (memcmp(sys.path[i]->remote.b + 16 - bytes, ip, bytes) == 0)
            return sys.path[i];
    fail_msg("a message to a stranger");
    return NULL;
}

// A receiver would find out what identification a frame was sealed for; here it must be right.
static void assert_sealed(const struct msghdr *h)
{
    static uint8_t bytes[1 << 16];
    uint32_t total = 0;
    for (size_t i = 0; i < h->msg_iovlen; i++) {
        assert_true(total + h->msg_iov[i].iov_len <= sizeof bytes);
        memcpy(bytes + total, h->msg_iov[i].iov_base, h->msg_iov[i].iov_len);
        total += (uint32_t)h->msg_iov[i].iov_len;
    }
    uint16_t segment = 0, index = 0, id;
    if (h->msg_controllen > 0)
        memcpy(&segment, CMSG_DATA(CMSG_FIRSTHDR(h)), sizeof segment);
    struct vb_path *path = path_of(h);
    for (uint32_t at = 0, len; at < total; at += len, index++) {
        len = segment && segment < total - at ? segment : total - at;
        assert_int_equal(vb_icrc_check(&path->icrc, index, bytes + at, len, &id), VB_ICRC_EXACT);
    }
}

// These two take the C library's place.
int sendmmsg(int fd, struct mmsghdr *msg, unsigned count, int flags)
{
    for (unsigned i = 0; i < count; i++)
        assert_sealed(&msg[i].msg_hdr);
    if (sys.spoil != NULL) {
        *sys.spoil ^= 1;
        sys.spoil = NULL;
    }
    if (sys.refuse && sys.messages == sys.refuse_at) {
        errno = sys.refuse;
        sys.refuse = 0;
        return -1;
    }
    if (sys.refuse && sys.messages + count > sys.refuse_at)
        count = sys.refuse_at - sys.messages;
    long sent = syscall(SYS_sendmmsg, fd, msg, count, flags);
    for (long i = 0; i < sent; i++) {
        sys.messages++;
        sys.segmented += msg[i].msg_hdr.msg_controllen > 0;
    }
    return (int)sent;
}

ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
    assert_sealed(h);
    if (++sys.singles == sys.full_at) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_sendmsg, fd, h, flags);
}

// ---- a sender, two receivers, memory to lend from

struct rig {
    struct vb_port *from, *to[2];
    struct vb_path path[2];
    struct vb_txq *q;
    struct vb_rx_frame *frames;
    uint8_t *body[VB_TX_FRAMES]; // of the frames in the queue; each as long as it is lent
    struct {
        uint32_t len, tag;
    } sent[2][VB_TX_FRAMES]; // what each receiver must see, in this order
    uint32_t count[2];
    uint32_t next_tag;
};

static void open_rig(struct rig *r, int family)
{
    *r = (struct rig){.from = udp_kit_open(family, 0),
                      .q = udp_kit_make_queue(),
                      .frames = calloc(VB_PORT_RX_BATCH, sizeof *r->frames)};
    assert_non_null(r->frames);
    memset(&sys, 0, sizeof sys);
    for (unsigned i = 0; i < 2; i++) {
        r->to[i] = udp_kit_open(family, 1 + i);
        vb_path_init(&r->path[i], &r->from->local, &r->to[i]->local, r->from->src_port);
        sys.path[i] = &r->path[i];
    }
}

static void close_rig(struct rig *r)
{
    assert_int_equal(r->from->stats.tx_errors, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(r->to[i]->stats.rx_bad_icrc, 0);
        r->to[i]->ops->close(r->to[i]);
    }
    r->from->ops->close(r->from);
    udp_kit_free_queue(r->q);
    free(r->frames);
}

// Appends a frame with `payload` bytes, padded; lent: they stay outside the arena.
static void append(struct rig *r, unsigned to, uint32_t head, uint32_t payload, bool lent)
{
    uint32_t len = head + (payload + 3) / 4 * 4 + VB_ICRC_BYTES;
    uint32_t tag = ++r->next_tag, at = r->q->count;
    r->body[at] = NULL;
    if (lent) {
        r->body[at] = malloc(payload);
        assert_true(udp_kit_append_lent(r->q, &r->path[to], len, tag, head, r->body[at], payload));
    } else {
        assert_true(udp_kit_append(r->q, &r->path[to], len, tag));
    }
    r->sent[to][r->count[to]].len = len;
    r->sent[to][r->count[to]++].tag = tag;
}

static void send_all(struct rig *r)
{
    uint32_t count = r->q->count;
    udp_kit_send(r->from, r->q);
    for (uint32_t i = 0; i < count; i++)
        free(r->body[i]);
}

// All frames sent arrive, once and in order.
static void expect_all(struct rig *r)
{
    for (unsigned to = 0; to < 2; to++) {
        for (uint32_t got = 0; got < r->count[to];) {
            uint32_t n = udp_kit_receive(r->to[to], r->frames, true);
            assert_true(n > 0 && got + n <= r->count[to]);
            for (uint32_t i = 0; i < n; i++, got++)
                udp_kit_assert_frame(&r->frames[i], &r->from->local, r->sent[to][got].len,
                                     r->sent[to][got].tag);
        }
        assert_int_equal(udp_kit_receive(r->to[to], r->frames, false), 0);
        r->count[to] = 0;
    }
}

// Frames of one length, lent or not in any mixture, are one message; a shorter one may end it.
static void test_lent_and_copied_frames_share_a_run(void **state)
{
    struct rig r;
    open_rig(&r, udp_kit_family(state));
    struct vb_prng prng = {.state = fresh_seed()};
    for (uint32_t round = 0; round < 50; round++) {
        uint32_t payload = (uint32_t)vb_prng_range(&prng, 1, 900);
        uint32_t lent_ppm = round < 2 ? 1000000 * round : 500000;
        for (uint32_t i = 0; i < 64; i++)
            append(&r, 0, HEAD, i < 63 ? payload : payload / 2 + 1,
                   vb_prng_chance(&prng, lent_ppm));
        sys.messages = sys.segmented = 0;
        send_all(&r);
        assert_int_equal(sys.messages, 1);
        assert_int_equal(sys.segmented, 1);
        expect_all(&r);
    }
    close_rig(&r);
}

// As many pieces as there can be: every frame lent, in short runs that change their receiver.
static void test_a_full_queue_of_lent_frames(void **state)
{
    struct rig r;
    open_rig(&r, udp_kit_family(state));
    for (uint32_t run_frames = 1; run_frames <= 64; run_frames *= 4) {
        for (uint32_t i = 0; i < VB_TX_FRAMES; i++)
            append(&r, i / run_frames % 2, HEAD, 333, true);
        sys.messages = 0;
        send_all(&r);
        assert_int_equal(sys.messages, VB_TX_FRAMES / run_frames);
        expect_all(&r);
    }
    close_rig(&r);
}

static void test_a_lent_frame_alone(void **state)
{
    struct rig r;
    open_rig(&r, udp_kit_family(state));
    static const uint32_t payloads[] = {1, 2, 3, 4, 1021, 1022, 1023, 1024, 4093, BODY_MAX};
    for (unsigned i = 0; i < sizeof payloads / sizeof *payloads; i++) {
        append(&r, 0, HEAD, payloads[i], true);
        send_all(&r);
        expect_all(&r);
    }
    assert_int_equal(sys.segmented, 0);
    close_rig(&r);
}

// Payloads of all pads behind headers of all lengths, in runs and at their ends.
static void test_all_pads_and_heads(void **state)
{
    struct rig r;
    open_rig(&r, udp_kit_family(state));
    for (uint32_t head = VB_BTH_BYTES; head <= VB_FRAME_HEAD; head += 4) {
        for (uint32_t payload = 1; payload <= 9; payload++) {
            for (uint32_t i = 0; i < 5; i++)
                append(&r, 0, head, payload, i % 2 == 0);
            append(&r, 0, head, (payload + 1) / 2, true);
            append(&r, 1, head, payload, true);
        }
        send_all(&r);
        expect_all(&r);
    }
    close_rig(&r);
}

// An application that writes to what it lent spoils its own frame, and no other.
static void test_memory_changed_under_way_is_noticed(void **state)
{
    struct rig r;
    open_rig(&r, udp_kit_family(state));
    for (uint32_t i = 0; i < 3; i++)
        append(&r, 0, HEAD, 1001, true);
    sys.spoil = r.body[1] + 1000;
    send_all(&r);
    uint32_t n = 0;
    while (n < 2) {
        uint32_t more = udp_kit_receive(r.to[0], r.frames, true);
        assert_true(more > 0);
        for (uint32_t i = 0; i < more; i++, n++)
            udp_kit_assert_frame(&r.frames[i], &r.from->local, r.sent[0][0].len, 1 + 2 * n);
    }
    assert_int_equal(udp_kit_receive(r.to[0], r.frames, false), 0);
    assert_int_equal(r.to[0]->stats.rx_bad_icrc, 1);
    r.to[0]->stats.rx_bad_icrc = 0;
    close_rig(&r);
}

enum {
    MESSAGES = 5,
    RUN = 6
};

// Five messages to two receivers, all in one batch: lent and copied in turns.
static void append_batch(struct rig *r)
{
    for (uint32_t m = 0; m < MESSAGES; m++)
        for (uint32_t i = 0; i < RUN; i++)
            append(r, m % 2, HEAD, 777 + m, (i + m) % 3 != 0);
}

// The system refuses one message of a batch: its frames go singly, those before and after it as
// they would have.
static void test_refused_runs_go_singly(void **state)
{
    static const int errors[] = {EMSGSIZE, EINVAL, EIO};
    for (unsigned e = 0; e < 3; e++) {
        for (uint32_t at = 0; at < MESSAGES; at++) {
            struct rig r;
            open_rig(&r, udp_kit_family(state));
            append_batch(&r);
            sys.refuse = errors[e];
            sys.refuse_at = at;
            send_all(&r);
            assert_int_equal(sys.refuse, 0);
            assert_int_equal(sys.singles, RUN);
            assert_int_equal(sys.segmented, MESSAGES - 1);
            expect_all(&r);
            // Only EIO says that the device cannot make segments at all.
            append_batch(&r);
            sys.segmented = 0;
            send_all(&r);
            assert_int_equal(sys.segmented, errors[e] == EIO ? 0 : MESSAGES);
            expect_all(&r);
            close_rig(&r);
        }
    }
}

// Buffers that fill up among the singles: what is left goes later, nothing twice.
static void test_singles_wait_for_room(void **state)
{
    for (uint32_t at = 0; at < MESSAGES; at++) {
        for (uint32_t full_at = 1; full_at <= RUN; full_at++) {
            struct rig r;
            open_rig(&r, udp_kit_family(state));
            append_batch(&r);
            sys.refuse = EMSGSIZE;
            sys.refuse_at = at;
            sys.full_at = full_at;
            r.from->ops->send(r.from, r.q);
            assert_int_equal(r.q->taken, at * RUN + full_at - 1);
            send_all(&r);
            expect_all(&r);
            close_rig(&r);
        }
    }
}

// A refusal that singles cannot mend loses the message, and only that.
static void test_hopeless_runs_are_counted(void **state)
{
    struct rig r;
    open_rig(&r, udp_kit_family(state));
    append_batch(&r);
    sys.refuse = ENETUNREACH;
    sys.refuse_at = 3; // the second of receiver 1
    send_all(&r);
    assert_int_equal(sys.singles, 0);
    assert_int_equal(r.from->stats.tx_errors, RUN);
    r.count[1] = RUN;
    expect_all(&r);
    r.from->stats.tx_errors = 0;
    close_rig(&r);
}

// The same by the system's own judgement: frames beyond the MTU are refused, never fragmented,
// while the shorter one at the end of their run passes; so do later messages.
static void test_frames_beyond_the_mtu_are_lost_alone(void **state)
{
    int family = udp_kit_family(state);
    udp_kit_set_mtu(1500);
    struct rig r;
    open_rig(&r, family);
    for (uint32_t i = 0; i < 4; i++)
        append(&r, 0, HEAD, i < 3 ? 1600 : 801, i != 1);
    for (uint32_t i = 0; i < 4; i++)
        append(&r, 1, HEAD, 1403, i != 1);
    send_all(&r);
    assert_int_equal(r.from->stats.tx_errors, 3);
    assert_int_equal(sys.singles, 4);
    assert_int_equal(sys.segmented, 1);
    r.sent[0][0] = r.sent[0][3];
    r.count[0] = 1;
    expect_all(&r);
    r.from->stats.tx_errors = 0;
    close_rig(&r);
    udp_kit_set_mtu(65536);
}

static const struct CMUnitTest v4_tests[] = {
    UDP_KIT_TEST(test_lent_and_copied_frames_share_a_run, udp_kit_v4),
    UDP_KIT_TEST(test_a_full_queue_of_lent_frames, udp_kit_v4),
    UDP_KIT_TEST(test_a_lent_frame_alone, udp_kit_v4),
    UDP_KIT_TEST(test_all_pads_and_heads, udp_kit_v4),
    UDP_KIT_TEST(test_memory_changed_under_way_is_noticed, udp_kit_v4),
    UDP_KIT_TEST(test_refused_runs_go_singly, udp_kit_v4),
    UDP_KIT_TEST(test_singles_wait_for_room, udp_kit_v4),
    UDP_KIT_TEST(test_hopeless_runs_are_counted, udp_kit_v4),
};

static const struct CMUnitTest private_tests[] = {
    UDP_KIT_TEST(test_lent_and_copied_frames_share_a_run, udp_kit_v6),
    UDP_KIT_TEST(test_a_full_queue_of_lent_frames, udp_kit_v6),
    UDP_KIT_TEST(test_a_lent_frame_alone, udp_kit_v6),
    UDP_KIT_TEST(test_all_pads_and_heads, udp_kit_v6),
    UDP_KIT_TEST(test_memory_changed_under_way_is_noticed, udp_kit_v6),
    UDP_KIT_TEST(test_refused_runs_go_singly, udp_kit_v6),
    UDP_KIT_TEST(test_singles_wait_for_room, udp_kit_v6),
    UDP_KIT_TEST(test_hopeless_runs_are_counted, udp_kit_v6),
    UDP_KIT_TEST(test_frames_beyond_the_mtu_are_lost_alone, udp_kit_v4),
    UDP_KIT_TEST(test_frames_beyond_the_mtu_are_lost_alone, udp_kit_v6),
};

int main(void)
{
    int failed = cmocka_run_group_tests(v4_tests, NULL, NULL);
    const char *why = udp_kit_enter_net();
    if (why != NULL)
        failed += skips_group("ipv6_and_mtu", why);
    else
        failed += cmocka_run_group_tests(private_tests, NULL, NULL);
    return failed;
}
