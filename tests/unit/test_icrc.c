// SPDX-License-Identifier: Apache-2.0
// The ICRC against vectors from scapy and against a slow, obvious implementation of the annex.
#include "base/bytes.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct path {
    bool ipv6;
    uint8_t src[16], dst[16];
    uint16_t src_port, dst_port;
};

static uint32_t crc_byte(uint32_t crc, uint8_t byte)
{
    crc ^= byte;
    for (int i = 0; i < 8; i++)
        crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    return crc;
}

static size_t pseudo_header(const struct path *path, uint16_t id, uint16_t flags, size_t len,
                            uint8_t out[56])
{
    size_t ip_bytes = path->ipv6 ? 40 : 20;
    uint8_t *ip = out + 8, *udp = ip + ip_bytes;
    memset(out, 0xff, 8);
    if (path->ipv6) {
        memcpy(ip, "\x6f\xff\xff\xff", 4);
        vb_put_be16(ip + 4, (uint16_t)(8 + len));
        ip[6] = 17;
        ip[7] = 0xff;
        memcpy(ip + 8, path->src, 16);
        memcpy(ip + 24, path->dst, 16);
    } else {
        memcpy(ip, "\x45\xff", 2);
        vb_put_be16(ip + 2, (uint16_t)(28 + len));
        vb_put_be16(ip + 4, id);
        vb_put_be16(ip + 6, flags);
        memcpy(ip + 8, "\xff\x11\xff\xff", 4);
        memcpy(ip + 12, path->src, 4);
        memcpy(ip + 16, path->dst, 4);
    }
    vb_put_be16(udp, path->src_port);
    vb_put_be16(udp + 2, path->dst_port);
    vb_put_be16(udp + 4, (uint16_t)(8 + len));
    memcpy(udp + 6, "\xff\xff", 2);
    return 8 + ip_bytes + 8;
}

// The annex's definition, a bit at a time.
static uint32_t reference(const struct path *path, uint16_t id, uint16_t flags,
                          const uint8_t *frame, size_t len)
{
    uint8_t pseudo[56];
    size_t pseudo_len = pseudo_header(path, id, flags, len, pseudo);
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < pseudo_len; i++)
        crc = crc_byte(crc, pseudo[i]);
    for (size_t i = 0; i < len - 4; i++)
        crc = crc_byte(crc, i == 4 ? 0xff : frame[i]);
    return ~crc;
}

static void flow_of(struct vb_icrc_flow *flow, const struct path *path)
{
    if (path->ipv6)
        vb_icrc_flow_init_v6(flow, path->src, path->dst, path->src_port, path->dst_port);
    else
        vb_icrc_flow_init_v4(flow, path->src, path->dst, path->src_port, path->dst_port);
}

static void fill(struct vb_prng *prng, void *bytes, size_t len)
{
    uint8_t *p = bytes;
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)vb_prng_next(prng);
}

static struct path random_path(struct vb_prng *prng, bool ipv6)
{
    struct path path = {.ipv6 = ipv6};
    fill(prng, path.src, sizeof path.src);
    fill(prng, path.dst, sizeof path.dst);
    path.src_port = (uint16_t)vb_prng_next(prng);
    path.dst_port = (uint16_t)vb_prng_next(prng);
    return path;
}

static uint32_t stored(const uint8_t *frame, size_t len)
{
    return vb_get_le32(frame + len - 4);
}

// Printed by icrc_vectors.py; payload byte i is 7i + 3, pads are zero.
static const struct vector {
    int version;
    const char *src, *dst;
    uint16_t src_port, dst_port, id;
    const char *headers;
    uint32_t payload_len;
    uint32_t icrc;
} vectors[] = {
    // clang-format off
    {4, "10.0.0.1", "10.0.0.2", 49152, 4791, 0x0000,
     "0440ffff0000001180000000",
     0, 0xdf52735e},
    {4, "192.168.77.3", "192.168.77.130", 51967, 4791, 0xbeef,
     "0a40ffff00abcdef80ffffff00007f00deadb0000000123400000040",
     64, 0xbcfbbc25},
    {4, "127.0.0.1", "127.0.0.2", 4791, 4791, 0x003f,
     "1140ffff00000102008000001f00002a",
     0, 0xfde254cc},
    {4, "172.16.254.9", "8.8.4.4", 65535, 4791, 0xffff,
     "05f0ffffc00004000000004dcafef00d",
     5, 0x891b63c5},
    {4, "10.1.2.3", "10.3.2.1", 1, 14791, 0x0100,
     "0700ffff0000099900123456",
     4096, 0xe34cfb6b},
    {6, "fe80::1", "fe80::2", 49153, 4791, 0x0000,
     "0c40ffff0000001280000001000055551234567889abcdef00100000",
     0, 0x724adcba},
    {6, "2001:db8::dead:beef", "2001:db8:1::1", 60000, 4791, 0x0000,
     "1340ffff00fffffe807fffff0000000000001000000000010123456789abcdeffedcba9876543210",
     0, 0xf05ced0a},
    {6, "::1", "::1", 54321, 4791, 0x0000,
     "1050ffff550000030000000400000001",
     1023, 0xd8aa42c9},
    // clang-format on
};

static size_t frame_of(const struct vector *v, uint8_t *frame)
{
    size_t len = strlen(v->headers) / 2;
    for (size_t i = 0; i < len; i++) {
        char digits[3] = {v->headers[2 * i], v->headers[2 * i + 1], 0};
        frame[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    for (uint32_t i = 0; i < v->payload_len; i++)
        frame[len++] = (uint8_t)(7 * i + 3);
    for (uint32_t i = 0; i < vb_packet_pad(v->payload_len); i++)
        frame[len++] = 0;
    return len + 4;
}

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct vector *v = &vectors[i];
        struct path path = {
            .ipv6 = v->version == 6, .src_port = v->src_port, .dst_port = v->dst_port};
        int family = path.ipv6 ? AF_INET6 : AF_INET;
        assert_int_equal(inet_pton(family, v->src, path.src), 1);
        assert_int_equal(inet_pton(family, v->dst, path.dst), 1);
        uint8_t frame[VB_FRAME_MAX] = {0};
        size_t len = frame_of(v, frame);
        struct vb_packet packet;
        assert_int_equal(vb_packet_decode(frame, len, &packet), VB_DECODE_OK);
        assert_int_equal(packet.payload_len, v->payload_len);
        assert_int_equal(reference(&path, v->id, 0x4000, frame, len), v->icrc);

        struct vb_icrc_flow flow;
        flow_of(&flow, &path);
        vb_icrc_seal(&flow, v->id, frame, len);
        assert_int_equal(stored(frame, len), v->icrc);
        uint16_t id;
        assert_int_equal(vb_icrc_check(&flow, v->id, frame, len, &id), VB_ICRC_EXACT);
    }
}

static void test_every_length_agrees_with_the_reference(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t frame[4400];
    fill(&prng, frame, sizeof frame);
    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        struct path path = random_path(&prng, ipv6);
        struct vb_icrc_flow flow;
        flow_of(&flow, &path);
        for (size_t len = 16; len <= sizeof frame; len++) {
            uint16_t id = (uint16_t)vb_prng_next(&prng), wrong = (uint16_t)(id + 1), found = 0;
            frame[4] = len & 1 ? (uint8_t)vb_prng_next(&prng) : 0;
            vb_icrc_seal(&flow, id, frame, len);
            assert_int_equal(stored(frame, len), reference(&path, id, 0x4000, frame, len));
            assert_int_equal(vb_icrc_check(&flow, id, frame, len, &found), VB_ICRC_EXACT);
            assert_int_equal(found, id);
            assert_int_equal(vb_icrc_check(&flow, wrong, frame, len, &found),
                             ipv6 ? VB_ICRC_EXACT : VB_ICRC_SOLVED);
            assert_int_equal(found, ipv6 ? wrong : id);
        }
    }
}

static void test_parts_seal_like_the_whole(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t whole[4200], head[64], body[4200], tail[8];
    for (unsigned i = 0; i < 4000; i++) {
        struct path path = random_path(&prng, i & 1);
        struct vb_icrc_flow flow;
        flow_of(&flow, &path);
        size_t head_len = vb_prng_range(&prng, 12, sizeof head);
        size_t body_len = vb_prng_below(&prng, 4097), tail_len = vb_prng_range(&prng, 4, 7);
        size_t len = head_len + body_len + tail_len;
        uint16_t id = (uint16_t)vb_prng_next(&prng);
        fill(&prng, whole, len);
        memcpy(head, whole, head_len);
        memcpy(body, whole + head_len, body_len);
        memcpy(tail, whole + head_len + body_len, tail_len);
        vb_icrc_seal(&flow, id, whole, len);
        vb_icrc_seal_parts(&flow, id, head, head_len, body, body_len, tail, tail_len);
        assert_memory_equal(tail, whole + head_len + body_len, tail_len);
        assert_memory_equal(head, whole, head_len);
    }
}

// Steps below 4096 meet every highest nibble of the length fields, up to the longest datagram.
static void test_long_lengths(void **state)
{
    (void)state;
    static uint8_t frame[65507];
    struct vb_prng prng = {.state = fresh_seed()};
    fill(&prng, frame, sizeof frame);
    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        struct path path = random_path(&prng, ipv6);
        struct vb_icrc_flow flow;
        flow_of(&flow, &path);
        for (size_t len = sizeof frame; len > 4400; len -= 1021) {
            uint16_t found = 0;
            vb_icrc_seal(&flow, 0x8001, frame, len);
            assert_int_equal(stored(frame, len), reference(&path, 0x8001, 0x4000, frame, len));
            assert_int_not_equal(vb_icrc_check(&flow, 7, frame, len, &found), VB_ICRC_BAD);
            assert_int_equal(found, ipv6 ? 7 : 0x8001);
        }
    }
}

static void test_every_identification(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    struct path path = random_path(&prng, false);
    struct vb_icrc_flow flow;
    uint8_t frame[20];
    fill(&prng, frame, sizeof frame);
    flow_of(&flow, &path);
    for (uint32_t id = 0; id < 0x10000; id++) {
        uint16_t found = 0;
        vb_icrc_seal(&flow, (uint16_t)id, frame, sizeof frame);
        assert_int_equal(stored(frame, sizeof frame),
                         reference(&path, (uint16_t)id, 0x4000, frame, sizeof frame));
        enum vb_icrc_verdict want = id ? VB_ICRC_SOLVED : VB_ICRC_EXACT;
        assert_int_equal(vb_icrc_check(&flow, 0, frame, sizeof frame, &found), want);
        assert_int_equal(found, id);
    }
}

// The flow's memo must follow the length back and forth.
static void test_lengths_may_alternate(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    struct path path = random_path(&prng, false);
    struct vb_icrc_flow flow;
    uint8_t frame[256];
    flow_of(&flow, &path);
    fill(&prng, frame, sizeof frame);
    for (unsigned i = 0; i < 1000; i++) {
        size_t len = 16 + vb_prng_below(&prng, sizeof frame - 16);
        uint16_t found;
        vb_icrc_seal(&flow, 9, frame, len);
        assert_int_equal(stored(frame, len), reference(&path, 9, 0x4000, frame, len));
        assert_int_equal(vb_icrc_check(&flow, 0, frame, len, &found), VB_ICRC_SOLVED);
        assert_int_equal(found, 9);
    }
}

static void test_dont_fragment_may_be_clear(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    struct path path = random_path(&prng, false);
    struct vb_icrc_flow flow;
    uint8_t frame[96];
    flow_of(&flow, &path);
    fill(&prng, frame, sizeof frame);
    for (unsigned i = 0; i < 1000; i++) {
        uint16_t id = (uint16_t)vb_prng_next(&prng), found = 0;
        vb_put_le32(frame + 92, reference(&path, id, 0, frame, sizeof frame));
        assert_int_equal(vb_icrc_check(&flow, id, frame, sizeof frame, &found), VB_ICRC_SOLVED);
        assert_int_equal(found, id);
        assert_int_equal(vb_icrc_check(&flow, 0, frame, sizeof frame, &found), VB_ICRC_SOLVED);
        assert_int_equal(found, id);
    }
    // A fragment is not a packet: no other flag and no offset is solved for.
    const uint16_t refused[] = {0x2000, 0x6000, 0x8000, 0xc000, 0x4001, 0x0001, 0x4100, 0x1000};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint16_t found;
        vb_put_le32(frame + 92, reference(&path, 5, refused[i], frame, sizeof frame));
        assert_int_equal(vb_icrc_check(&flow, 5, frame, sizeof frame, &found), VB_ICRC_BAD);
        assert_int_equal(vb_icrc_check(&flow, 6, frame, sizeof frame, &found), VB_ICRC_BAD);
    }
}

static void test_resv8a_is_not_covered(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t frame[64];
    fill(&prng, frame, sizeof frame);
    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        struct path path = random_path(&prng, ipv6);
        struct vb_icrc_flow flow;
        flow_of(&flow, &path);
        vb_icrc_seal(&flow, 1, frame, sizeof frame);
        for (unsigned byte = 0; byte < 256; byte++) {
            uint16_t id;
            frame[4] = (uint8_t)byte;
            assert_int_equal(vb_icrc_check(&flow, 1, frame, sizeof frame, &id), VB_ICRC_EXACT);
        }
    }
}

// No single bit passes for the guess. Whether one passes for another identification depends only on
// its place and the length, and at this length none does.
static void test_single_bit_flips(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t frame[96];
    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        struct path path = random_path(&prng, ipv6);
        struct vb_icrc_flow flow;
        unsigned solved = 0;
        fill(&prng, frame, sizeof frame);
        flow_of(&flow, &path);
        vb_icrc_seal(&flow, 42, frame, sizeof frame);
        for (unsigned bit = 0; bit < 8 * sizeof frame; bit++) {
            uint16_t id;
            if (bit / 8 == 4)
                continue;
            frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
            enum vb_icrc_verdict verdict = vb_icrc_check(&flow, 42, frame, sizeof frame, &id);
            frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_not_equal(verdict, VB_ICRC_EXACT);
            solved += verdict == VB_ICRC_SOLVED;
        }
        assert_int_equal(solved, 0);
    }
}

// Solving allows two of 2^16 values of flags and offset: random damage passes at a rate of 2^-15.
static void test_random_damage_rarely_solves(void **state)
{
    (void)state;
    enum {
        TRIES = 1 << 20
    };
    struct vb_prng prng = {.state = fresh_seed()};
    struct path path = random_path(&prng, false);
    struct vb_icrc_flow flow;
    uint8_t frame[64];
    unsigned exact = 0, solved = 0;
    flow_of(&flow, &path);
    fill(&prng, frame, sizeof frame);
    vb_icrc_seal(&flow, 0, frame, sizeof frame);
    for (unsigned i = 0; i < TRIES; i++) {
        uint8_t damaged[sizeof frame];
        uint16_t id;
        uint32_t noise = (uint32_t)vb_prng_next(&prng) | 1; // no burst this short is a multiple of
                                                            // the CRC's polynomial
        memcpy(damaged, frame, sizeof frame);
        size_t at = 5 + vb_prng_below(&prng, sizeof frame - 5 - sizeof noise);
        for (size_t j = 0; j < sizeof noise; j++)
            damaged[at + j] ^= (uint8_t)(noise >> 8 * j);
        enum vb_icrc_verdict verdict = vb_icrc_check(&flow, 0, damaged, sizeof damaged, &id);
        exact += verdict == VB_ICRC_EXACT;
        solved += verdict == VB_ICRC_SOLVED;
    }
    assert_int_equal(exact, 0);
    assert_in_range(solved, TRIES >> 17, TRIES >> 13); // 32 expected; beyond by chance: 10^-7
}

static void test_another_path_is_bad(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t frame[48];
    fill(&prng, frame, sizeof frame);
    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        struct path path = random_path(&prng, ipv6);
        struct vb_icrc_flow flow;
        uint16_t id;
        flow_of(&flow, &path);
        vb_icrc_seal(&flow, 0, frame, sizeof frame);
        struct path others[] = {path, path, path, path};
        others[0].src_port ^= 1;
        others[1].dst_port ^= 0x100;
        others[2].src[3] ^= 1;
        others[3].dst[0] ^= 0x80;
        for (size_t i = 0; i < 4; i++) {
            flow_of(&flow, &others[i]);
            assert_int_equal(vb_icrc_check(&flow, 0, frame, sizeof frame, &id), VB_ICRC_BAD);
        }
    }
}

// Exact heap buffers let a sanitizer see any read past the end.
static void test_impossible_lengths_are_bad(void **state)
{
    (void)state;
    const uint8_t address[16] = {127, 0, 0, 1};
    struct vb_icrc_flow flow;
    vb_icrc_flow_init_v4(&flow, address, address, 1, 2);
    for (size_t len = 0; len < 16; len++) {
        uint8_t *frame = calloc(1, len ? len : 1);
        uint16_t id;
        assert_non_null(frame);
        assert_int_equal(vb_icrc_check(&flow, 0, frame, len, &id), VB_ICRC_BAD);
        free(frame);
    }
    uint8_t one = 0;
    uint16_t id;
    assert_int_equal(vb_icrc_check(&flow, 0, &one, 65508, &id), VB_ICRC_BAD);
    assert_int_equal(vb_icrc_check(&flow, 0, &one, SIZE_MAX, &id), VB_ICRC_BAD);
    assert_int_equal(vb_icrc_check(&flow, 0, &one, (size_t)1 << 32 | 64, &id), VB_ICRC_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_length_agrees_with_the_reference),
        cmocka_unit_test(test_long_lengths),
        cmocka_unit_test(test_every_identification),
        cmocka_unit_test(test_lengths_may_alternate),
        cmocka_unit_test(test_dont_fragment_may_be_clear),
        cmocka_unit_test(test_parts_seal_like_the_whole),
        cmocka_unit_test(test_resv8a_is_not_covered),
        cmocka_unit_test(test_single_bit_flips),
        cmocka_unit_test(test_random_damage_rarely_solves),
        cmocka_unit_test(test_another_path_is_bad),
        cmocka_unit_test(test_impossible_lengths_are_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
