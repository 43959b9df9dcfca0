// SPDX-License-Identifier: Apache-2.0
// Keys for tests of hash gets.
#include "hash_kit.h"

void hash_key_of(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (n + 1) * 0x9e3779b97f4aull;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}
