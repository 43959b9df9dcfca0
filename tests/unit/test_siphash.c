// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 of one word against known answers.
#include "base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    uint64_t key[2], word, hash;
} vectors[] = {
    // The first is of the reference's own vectors: key 00 to 0f, bytes 00 to 07.
    {{0x706050403020100, 0xf0e0d0c0b0a0908}, 0x706050403020100, 0x93f5f5799a932462},
    {{0x0, 0x0}, 0x0, 0xe849e8bb6ffe2567},
    {{0x0, 0x0}, 0x1, 0x8004c5a694105f5e},
    {{0x0, 0x0}, 0xffffffffffffffff, 0x8050c18b6ac9d15e},
    {{0xffffffffffffffff, 0xffffffffffffffff}, 0x0, 0x93e9a1f113e70a00},
    {{0xffffffffffffffff, 0xffffffffffffffff}, 0xffffffffffffffff, 0xf13e77491777f9d0},
    {{0x1, 0x0}, 0x0, 0x1cc1d069b22d7407},
    {{0x0, 0x1}, 0x0, 0xfe6f360b863a9b0c},
    {{0x123456789abcdef, 0xfedcba9876543210}, 0x8000000000000000, 0xb4c5fd7f79890e7f},
    {{0x2a, 0x7}, 0xdeadbeefcafef00d, 0x4f2b78ed5bcd57d1},
};

static void test_known_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        assert_true(vb_siphash(vectors[i].key, vectors[i].word) == vectors[i].hash);
}

// Both halves of the key and every bit of the word count.
static void test_every_bit_counts(void **state)
{
    (void)state;
    const uint64_t key[2] = {3, 5};
    uint64_t plain = vb_siphash(key, 9);
    for (unsigned bit = 0; bit < 64; bit++) {
        const uint64_t low[2] = {key[0] ^ 1ull << bit, key[1]};
        const uint64_t high[2] = {key[0], key[1] ^ 1ull << bit};
        assert_true(vb_siphash(low, 9) != plain);
        assert_true(vb_siphash(high, 9) != plain);
        assert_true(vb_siphash(key, 9 ^ 1ull << bit) != plain);
    }
}

static void test_neighbours_share_nothing(void **state)
{
    (void)state;
    const uint64_t key[2] = {0, 0};
    for (uint64_t word = 0; word < 1000; word++) {
        uint64_t differ = vb_siphash(key, word) ^ vb_siphash(key, word + 1);
        assert_in_range(__builtin_popcountll(differ), 10, 54);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_neighbours_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
