// SPDX-License-Identifier: Apache-2.0
// What the application that is killed (crash_app) and its client (crash_get) both know.
#ifndef VB_BENCH_CRASH_H
#define VB_BENCH_CRASH_H

#include "verbena/offload.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    CRASH_KEYS = 1024,
    CRASH_VALUE = 64,
    CRASH_MISS_EVERY = 8,
};

static inline void crash_key(uint64_t n, uint8_t key[VB_HASH_KEY_BYTES])
{
    uint64_t bits = (n + 1) * 0x9e3779b97f4bull;
    for (int i = 0; i < VB_HASH_KEY_BYTES; i++)
        key[i] = (uint8_t)(bits >> 8 * i);
}

static inline void crash_value(uint64_t n, uint8_t value[CRASH_VALUE])
{
    for (uint32_t i = 0; i < CRASH_VALUE; i++)
        value[i] = (uint8_t)((n * 0x9e3779b97f4a7c15u >> 8) + i * 7);
}

// Messages go by command lines and pipes, as text.
static inline void crash_to_hex(const uint8_t *bytes, uint32_t len, char *text)
{
    for (uint32_t i = 0; i < len; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

// Returns how many; 0: none, or no such text.
static inline uint32_t crash_from_hex(const char *text, uint8_t *bytes, uint32_t room)
{
    uint32_t len = (uint32_t)strspn(text, "0123456789abcdef") / 2;

    for (uint32_t i = 0; i < len && i < room; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return 0;
        bytes[i] = (uint8_t)byte;
    }
    return len <= room ? len : 0;
}

#endif
