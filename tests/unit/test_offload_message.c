// SPDX-License-Identifier: Apache-2.0
// Messages of the service of offloads: what is written is read, and nothing else is.
#include "base/prng.h"
#include "chain/offload_message.h"

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

static void test_any_bytes_can_be_read(void **state)
{
    struct vb_prng prng = {.state = 11};
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
        cmocka_unit_test(test_any_bytes_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
