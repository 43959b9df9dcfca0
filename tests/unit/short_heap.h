// SPDX-License-Identifier: Apache-2.0
// An allocator that fails once, on purpose: for a test program that is linked with
// --wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc (tests/CMakeLists.txt) and
// includes this in one file. What libraries allocate for themselves does not count.
#ifndef VB_TESTS_SHORT_HEAP_H
#define VB_TESTS_SHORT_HEAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static uint32_t heap_left = UINT32_MAX; // allocations before the one that fails; the largest: none
static bool heap_failed;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool heap_fails(void)
{
    if (heap_left == UINT32_MAX || heap_left-- > 0)
        return false;
    heap_failed = true; // and heap_left is the largest: once only
    return true;
}

void *__wrap_malloc(size_t size)
{
    return heap_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return heap_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return heap_fails() ? NULL : __real_realloc(block, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return heap_fails() ? NULL : __real_aligned_alloc(alignment, size);
}

// The allocation after `left` others fails; UINT32_MAX: none does.
static void heap_fail_after(uint32_t left)
{
    heap_left = left;
    heap_failed = false;
}

#endif
