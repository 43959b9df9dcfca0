// SPDX-License-Identifier: Apache-2.0
// The bytes of rsockets: known encodings, round trips, and what must be refused.
#include "base/prng.h"
#include "fresh_seed.h"
#include "rsocket/wire.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct vb_rs_hello sample = {
    .credits = 0x0180,
    .iomaps = 5,
    .list = {0x0102030405060708, 0x11121314, 2},
    .buffer = {0x2122232425262728, 0x31323334, 0x10000},
};

static void test_private_data_has_the_known_bytes(void **state)
{
    (void)state;
    static const uint8_t want[VB_RS_HELLO_BYTES] = {
        1,    2,    0x01, 0x80, 0,    0,    0,    5,    0x01, 0x02, 0x03, 0x04, 0x05, 0x06,
        0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0,    0,    0,    2,    0x21, 0x22, 0x23, 0x24,
        0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0,    1,    0,    0};
    uint8_t got[VB_RS_HELLO_BYTES];
    struct vb_rs_hello back;

    vb_rs_hello_encode(&sample, got);
    assert_memory_equal(got, want, sizeof want);
    assert_true(vb_rs_hello_decode(got, sizeof got, &back));
    assert_int_equal(back.credits, sample.credits);
    assert_int_equal(back.iomaps, sample.iomaps);
    assert_false(back.big_endian);
    assert_memory_equal(&back.list, &sample.list, sizeof back.list);
    assert_memory_equal(&back.buffer, &sample.buffer, sizeof back.buffer);
    got[1] |= 1;
    assert_true(vb_rs_hello_decode(got, sizeof got, &back));
    assert_true(back.big_endian);
}

static void test_wrong_private_data_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[VB_RS_HELLO_BYTES];
    struct vb_rs_hello back;

    vb_rs_hello_encode(&sample, bytes);
    assert_false(vb_rs_hello_decode(NULL, 0, &back));
    assert_false(vb_rs_hello_decode(bytes, sizeof bytes - 1, &back));
    bytes[0] = 2;
    assert_false(vb_rs_hello_decode(bytes, sizeof bytes, &back));
    bytes[0] = 1;
    bytes[23] = 0; // a list without entries
    assert_false(vb_rs_hello_decode(bytes, sizeof bytes, &back));
    bytes[20] = 0x80; // and one of two thousand million
    assert_false(vb_rs_hello_decode(bytes, sizeof bytes, &back));
    bytes[20] = 0, bytes[23] = 2;
    assert_true(vb_rs_hello_decode(bytes, sizeof bytes, &back));
    bytes[1] = 0; // a peer that knows no mappings
    assert_true(vb_rs_hello_decode(bytes, sizeof bytes, &back));
    assert_int_equal(back.iomaps, 0);
}

static void test_messages(void **state)
{
    (void)state;
    assert_int_equal(vb_rs_message(VB_RS_DATA, 0x1000), 0x1000);
    assert_int_equal(vb_rs_message(VB_RS_SGL, 3), 0x80000003);
    assert_int_equal(vb_rs_message(VB_RS_IOMAP, 7), 0xc0000007);
    assert_int_equal(vb_rs_message(VB_RS_CTRL, VB_RS_SHUTDOWN), 0xe0000002);
    assert_int_equal(vb_rs_message_op(0xe0000002), VB_RS_CTRL);
    assert_int_equal(vb_rs_message_value(0xffffffff), 0x1fffffff);
}

static void test_scale(void **state)
{
    (void)state;
    for (uint32_t v = 0; v <= 128; v++)
        assert_int_equal(vb_rs_unscale(vb_rs_scale(v)), v);
    assert_int_equal(vb_rs_unscale(vb_rs_scale(256)), 256);
    assert_int_equal(vb_rs_unscale(vb_rs_scale(1000)), 768);
    assert_int_equal(vb_rs_unscale(vb_rs_scale(1u << 30)), VB_RS_IOMAPS_MAX);
}

static struct sockaddr_in6 address6(void)
{
    struct sockaddr_in6 a = {
        .sin6_family = AF_INET6, .sin6_port = htons(7000), .sin6_flowinfo = htonl(9)};
    inet_pton(AF_INET6, "fd00::1234", &a.sin6_addr);
    return a;
}

static struct sockaddr_in address4(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7000)};
    inet_pton(AF_INET, "10.1.2.3", &a.sin_addr);
    return a;
}

static void test_udp_headers(void **state)
{
    (void)state;
    static const uint8_t want[VB_RS_UDP_HEADER4] = {0x55, 0x55, 0x55, 0x55, 4,  0, 16, 0,
                                                    0,    0x12, 0x34, 0x56, 10, 1, 2,  3};
    struct sockaddr_in a4 = address4();
    struct sockaddr_in6 a6 = address6();
    struct vb_rs_udp_header in = {VB_RS_DATA, 0x123456}, out;
    uint8_t bytes[VB_RS_UDP_HEADER6];

    assert_int_equal(vb_rs_udp_encode(&in, (struct sockaddr *)&a4, bytes), VB_RS_UDP_HEADER4);
    assert_memory_equal(bytes, want, sizeof want);
    assert_int_equal(vb_rs_udp_decode(bytes, 16, AF_INET, &out), 16);
    assert_int_equal(out.qpn, 0x123456);
    assert_int_equal(vb_rs_udp_decode(bytes, 15, AF_INET, &out), 0);
    assert_int_equal(vb_rs_udp_decode(bytes, 28, AF_INET6, &out), 0);
    bytes[5] = 3; // no such operation
    assert_int_equal(vb_rs_udp_decode(bytes, 16, AF_INET, &out), 0);
    bytes[5] = VB_RS_CTRL;
    assert_int_equal(vb_rs_udp_decode(bytes, 16, AF_INET, &out), 16);
    bytes[0] = 0x54;
    assert_int_equal(vb_rs_udp_decode(bytes, 16, AF_INET, &out), 0);
    assert_int_equal(vb_rs_udp_encode(&in, (struct sockaddr *)&a6, bytes), VB_RS_UDP_HEADER6);
    assert_int_equal(vb_rs_udp_decode(bytes, 28, AF_INET6, &out), 28);
    assert_int_equal(vb_rs_udp_decode(bytes, 27, AF_INET6, &out), 0);
}

static void test_ud_headers(void **state)
{
    (void)state;
    struct sockaddr_in a4 = address4();
    struct sockaddr_in6 a6 = address6();
    struct sockaddr_storage from;
    uint8_t bytes[VB_RS_UD_HEADER6];

    assert_int_equal(vb_rs_ud_encode((struct sockaddr *)&a4, bytes), 8);
    assert_int_equal(vb_rs_ud_decode(bytes, 8, &from), 8);
    assert_memory_equal(&from, &a4, sizeof a4);
    assert_int_equal(vb_rs_ud_decode(bytes, 7, &from), 0);
    assert_int_equal(vb_rs_ud_encode((struct sockaddr *)&a6, bytes), 24);
    assert_int_equal(vb_rs_ud_decode(bytes, 24, &from), 24);
    assert_memory_equal(&from, &a6, sizeof a6);
    assert_int_equal(vb_rs_ud_decode(bytes, 23, &from), 0);
    bytes[1] = 8; // the length of the other version
    assert_int_equal(vb_rs_ud_decode(bytes, 24, &from), 0);
}

static void test_random_bytes_are_safe(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    for (int round = 0; round < 100000; round++) {
        size_t len_bytes = vb_prng_below(&prng, 64);
        uint8_t *bytes = malloc(len_bytes + 1); // exact, so that a sanitizer sees a byte too many
        struct vb_rs_hello hello;
        struct vb_rs_udp_header udp;
        struct sockaddr_storage from;
        for (size_t i = 0; i < len_bytes; i++)
            bytes[i] = (uint8_t)vb_prng_below(&prng, i < 8 ? 8 : 256);
        vb_rs_hello_decode(bytes, len_bytes, &hello);
        vb_rs_udp_decode(bytes, len_bytes, round & 1 ? AF_INET : AF_INET6, &udp);
        vb_rs_ud_decode(bytes, len_bytes, &from);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private_data_has_the_known_bytes),
        cmocka_unit_test(test_wrong_private_data_is_refused),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_udp_headers),
        cmocka_unit_test(test_ud_headers),
        cmocka_unit_test(test_random_bytes_are_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
