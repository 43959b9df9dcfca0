// SPDX-License-Identifier: Apache-2.0
// What this process has taken from malloc(), for tests that count bytes.
#ifndef VB_TESTS_HEAP_H
#define VB_TESTS_HEAP_H

#include <stdbool.h>
#include <stdlib.h>

#include <malloc.h>

static inline size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

// Sanitizers bring allocators of their own, which mallinfo2() does not know.
static inline bool heap_is_known(void)
{
    size_t before = mallinfo2().uordblks;
    void *block = malloc(100000);
    bool known = block && heap_bytes() >= before + 100000;
    free(block);
    return known;
}

#endif
