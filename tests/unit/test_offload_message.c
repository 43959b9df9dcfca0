// SPDX-License-Identifier: Apache-2.0
// Messages of the service of offloads: what is written is read, and nothing else is.
#include "base/prng.h"
#include "chain/offload_message.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

static struct vb_offload_join some_join(void)
{
    struct vb_offload_join join = {.offload = "hash_get",
                                   .nonce = 0x0123456789abcdef,
                                   .qpn = 0x112233,
                                   .psn = 0x445566,
                                   .mtu = 1024,
                                   .depth = 8,
                                   .addr = 0x7000000000,
                                   .bytes = 4096,
                                   .key = 0xcafe0001};
    memset(join.gid, 7, sizeof join.gid);
    return join;
}

static struct vb_offload_place some_place(void)
{
    struct vb_offload_place place = {.ticket = 0x8877665544332211,
                                     .qpn = 9,
                                     .psn = 10,
                                     .mtu = 4096,
                                     .depth = 16,
                                     .request_bytes = 14,
                                     .answer_bytes = 64,
                                     .regions = 2,
                                     .region = {{"index", 0x1000, 24}, {"items", 0x2000, 640}}};
    return place;
}

static void test_requests_go_round(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_join join = some_join();
    struct vb_offload_request request;

    (void)state;
    uint32_t len = vb_offload_write_join(message, &join);
    assert_int_equal(vb_offload_message_bytes(message), len);
    assert_int_equal(vb_offload_read_request(message, len, &request), 0);
    assert_int_equal(request.kind, VB_OFFLOAD_JOIN);
    assert_memory_equal(&request.join, &join, sizeof join);
    len = vb_offload_write_leave(message, 77);
    assert_int_equal(vb_offload_read_request(message, len, &request), 0);
    assert_int_equal(request.kind, VB_OFFLOAD_LEAVE);
    assert_int_equal(request.ticket, 77);
}

static void test_answers_go_round(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT] = "";
    struct vb_offload_place place = some_place(), got;

    (void)state;
    uint32_t len = vb_offload_write_place(message, &place);
    assert_int_equal(vb_offload_read_place(message, len, &got, error), 0);
    assert_memory_equal(&got, &place, sizeof place);
    assert_int_equal(vb_offload_read_left(message, len, error), -EPROTO);
    len = vb_offload_write_left(message);
    assert_int_equal(vb_offload_read_left(message, len, error), 0);
    assert_int_equal(vb_offload_read_place(message, len, &got, error), -EPROTO);
    len = vb_offload_write_refused(message, VB_OFFLOAD_FULL, "no room");
    assert_int_equal(vb_offload_read_place(message, len, &got, error), VB_OFFLOAD_FULL);
    assert_string_equal(error, "no room");
    assert_int_equal(vb_offload_read_left(message, len, error), VB_OFFLOAD_FULL);
}

// Every length but the right one, every version and every kind but the known ones.
static void test_other_messages_are_refused(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE + 1] = {0};
    struct vb_offload_join join = some_join();
    struct vb_offload_request request;

    (void)state;
    uint32_t len = vb_offload_write_join(message, &join);
    for (uint32_t n = 0; n <= sizeof message; n++)
        assert_int_equal(vb_offload_read_request(message, n, &request),
                         n == len ? 0 : VB_OFFLOAD_MALFORMED);
    message[5] = 2;
    assert_int_equal(vb_offload_read_request(message, len, &request), VB_OFFLOAD_VERSION);
    message[5] = VB_OFFLOAD_VERSION_NOW;
    for (uint32_t kind = 0; kind < 256; kind++) {
        message[7] = (uint8_t)kind;
        assert_int_equal(vb_offload_read_request(message, len, &request),
                         kind == VB_OFFLOAD_JOIN ? 0 : VB_OFFLOAD_MALFORMED);
    }
}

// ---- the bytes

struct writer {
    uint8_t bytes[VB_OFFLOAD_MESSAGE];
    uint32_t len;
};

static void put(struct writer *w, uint32_t bytes, uint64_t value)
{
    while (bytes-- > 0)
        w->bytes[w->len++] = (uint8_t)(value >> 8 * bytes);
}

static void put_padded(struct writer *w, const char *text, uint32_t room)
{
    memcpy(w->bytes + w->len, text, strlen(text));
    w->len += room;
}

static void put_head(struct writer *w, uint32_t kind, uint32_t len)
{
    put(w, 4, 0x76626f66);
    put(w, 2, 1);
    put(w, 2, kind);
    put(w, 4, len);
}

static void expect_bytes(const uint8_t *message, uint32_t len, const struct writer *w)
{
    assert_int_equal(len, w->len);
    assert_memory_equal(message, w->bytes, len);
}

static void test_bytes_of_requests(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_join join = some_join();
    struct writer w = {.len = 0};

    (void)state;
    put_head(&w, 1, 12 + 8 + VB_OFFLOAD_NAME + 16 + 16 + 8 + 8 + 4);
    put(&w, 8, 0x0123456789abcdef);
    put_padded(&w, "hash_get", VB_OFFLOAD_NAME);
    for (int i = 0; i < 16; i++)
        put(&w, 1, 7);
    put(&w, 4, 0x112233);
    put(&w, 4, 0x445566);
    put(&w, 4, 1024);
    put(&w, 4, 8);
    put(&w, 8, 0x7000000000);
    put(&w, 8, 4096);
    put(&w, 4, 0xcafe0001);
    expect_bytes(message, vb_offload_write_join(message, &join), &w);
    memset(&w, 0, sizeof w);
    put_head(&w, 2, 20);
    put(&w, 8, 0x1122334455667788);
    expect_bytes(message, vb_offload_write_leave(message, 0x1122334455667788), &w);
}

static void test_bytes_of_answers(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    struct vb_offload_place place = some_place();
    struct writer w = {.len = 0};

    (void)state;
    put_head(&w, 3, 12 + 8 + 16 + 28 + 2 * (VB_OFFLOAD_NAME + 16));
    put(&w, 8, 0x8877665544332211);
    put(&w, 8, 0);
    put(&w, 8, 0);
    const uint32_t field[] = {9, 10, 4096, 16, 14, 64, 2};
    for (uint32_t i = 0; i < 7; i++)
        put(&w, 4, field[i]);
    put_padded(&w, "index", VB_OFFLOAD_NAME);
    put(&w, 8, 0x1000);
    put(&w, 8, 24);
    put_padded(&w, "items", VB_OFFLOAD_NAME);
    put(&w, 8, 0x2000);
    put(&w, 8, 640);
    expect_bytes(message, vb_offload_write_place(message, &place), &w);
    memset(&w, 0, sizeof w);
    put_head(&w, 4, 12);
    expect_bytes(message, vb_offload_write_left(message), &w);
    memset(&w, 0, sizeof w);
    memset(message, 0xee, sizeof message);
    put_head(&w, 5, 12 + 4 + VB_OFFLOAD_TEXT);
    put(&w, 4, VB_OFFLOAD_FULL);
    put_padded(&w, "no room", VB_OFFLOAD_TEXT);
    expect_bytes(message, vb_offload_write_refused(message, VB_OFFLOAD_FULL, "no room"), &w);
}

// Text that is too long is cut off; text of strangers may have no end.
static void test_long_texts(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    char text[2 * VB_OFFLOAD_TEXT] = {0}, error[VB_OFFLOAD_TEXT + 1] = {0};

    (void)state;
    memset(text, 'a', sizeof text - 1);
    uint32_t len = vb_offload_write_refused(message, VB_OFFLOAD_FULL, text);
    error[VB_OFFLOAD_TEXT] = 'z';
    assert_int_equal(message[len - 1], 0);
    for (int endless = 0; endless < 2; endless++) {
        assert_int_equal(vb_offload_read_left(message, len, error), VB_OFFLOAD_FULL);
        assert_int_equal(strlen(error), VB_OFFLOAD_TEXT - 1);
        assert_memory_equal(error, text, VB_OFFLOAD_TEXT - 1);
        assert_int_equal(error[VB_OFFLOAD_TEXT], 'z');
        message[len - 1] = 'a';
    }
}

// Every reason has its number; what is none is a failure.
static void test_reasons(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];
    char error[VB_OFFLOAD_TEXT];

    (void)state;
    for (uint32_t why = 0; why <= VB_OFFLOAD_FAILED + 1; why++) {
        bool known = why >= VB_OFFLOAD_MALFORMED && why <= VB_OFFLOAD_FAILED;
        uint32_t len = vb_offload_write_refused(message, (enum vb_offload_refusal)why, "why");
        assert_int_equal(vb_offload_read_left(message, len, error),
                         known ? why : VB_OFFLOAD_FAILED);
    }
}

static void set_length(uint8_t *message, uint32_t len)
{
    message[10] = (uint8_t)(len >> 8);
    message[11] = (uint8_t)len;
}

// Heads: the magic, and a length from that of a head to that of the longest message.
static void test_heads(void **state)
{
    uint8_t message[VB_OFFLOAD_MESSAGE];

    (void)state;
    vb_offload_write_left(message);
    for (uint32_t len = 0; len <= VB_OFFLOAD_MESSAGE + 1; len++) {
        bool right = len >= VB_OFFLOAD_HEAD && len <= VB_OFFLOAD_MESSAGE;
        set_length(message, len);
        assert_int_equal(vb_offload_message_bytes(message), right ? len : 0);
    }
    set_length(message, VB_OFFLOAD_HEAD);
    for (uint32_t i = 0; i < 4; i++) {
        message[i] ^= 1;
        assert_int_equal(vb_offload_message_bytes(message), 0);
        message[i] ^= 1;
    }
}

// Places of every length, as their heads say: only the one that its regions need is right.
static void test_lengths_of_places(void **state)
{
    static const struct vb_offload_place nothing;
    uint8_t message[VB_OFFLOAD_MESSAGE + 1] = {0};
    struct vb_offload_place place = some_place(), got;
    char error[VB_OFFLOAD_TEXT] = "";

    (void)state;
    place.regions = VB_OFFLOAD_REGIONS;
    uint32_t len = vb_offload_write_place(message, &place);
    assert_int_equal(vb_offload_read_place(message, len, &got, error), 0);
    assert_memory_equal(&got, &place, sizeof place);
    place.regions = 2;
    len = vb_offload_write_place(message, &place);
    for (uint32_t n = 0; n <= VB_OFFLOAD_MESSAGE; n++) {
        if (n == len)
            continue;
        memset(&got, 0xee, sizeof got);
        assert_int_equal(vb_offload_read_place(message, n, &got, error), -EPROTO);
        assert_string_equal(error, "the service's answer makes no sense");
        assert_memory_equal(&got, &nothing, sizeof got);
        if (n < VB_OFFLOAD_HEAD)
            continue;
        set_length(message, n);
        memset(&got, 0xee, sizeof got);
        assert_int_equal(vb_offload_read_place(message, n, &got, error), -EPROTO);
        assert_string_equal(error, "the service's answer has a wrong length");
        assert_memory_equal(&got, &nothing, sizeof got);
        set_length(message, len);
    }
    message[VB_OFFLOAD_HEAD + 8 + 16 + 6 * 4 + 3] = VB_OFFLOAD_REGIONS + 1;
    assert_int_equal(vb_offload_read_place(message, len, &got, error), -EPROTO);
    vb_offload_write_left(message);
    set_length(message, VB_OFFLOAD_HEAD + 1);
    assert_int_equal(vb_offload_read_left(message, VB_OFFLOAD_HEAD + 1, error), -EPROTO);
}

static void test_any_bytes_can_be_read(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};
    struct vb_offload_place place = some_place();
    struct vb_offload_join join = some_join();
    char error[VB_OFFLOAD_TEXT];

    (void)state;
    for (uint32_t round = 0; round < 50000; round++) {
        uint8_t message[VB_OFFLOAD_MESSAGE];
        struct vb_offload_request request;
        struct vb_offload_place got;
        uint32_t len = round % 2 ? vb_offload_write_place(message, &place)
                                 : vb_offload_write_join(message, &join);
        for (uint64_t n = 1 + vb_prng_below(&prng, 4); n > 0; n--)
            message[vb_prng_below(&prng, len)] = (uint8_t)vb_prng_next(&prng);
        uint8_t *copy = malloc(len); // exactly, for the sanitizer
        memcpy(copy, message, len);
        if (vb_offload_read_request(copy, len, &request) == 0)
            assert_int_equal(request.join.offload[VB_OFFLOAD_NAME - 1], 0);
        if (vb_offload_read_place(copy, len, &got, error) == 0)
            assert_true(got.regions <= VB_OFFLOAD_REGIONS);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_go_round),
        cmocka_unit_test(test_answers_go_round),
        cmocka_unit_test(test_other_messages_are_refused),
        cmocka_unit_test(test_bytes_of_requests),
        cmocka_unit_test(test_bytes_of_answers),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_lengths_of_places),
        cmocka_unit_test(test_any_bytes_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
