// SPDX-License-Identifier: Apache-2.0
// Memory that runs out and that others have used: the linker puts these in front of the allocators.
#include "scarce_kit.h"

#include <stdlib.h>
#include <string.h>

static struct {
    bool counts, for_good;
    uint64_t first, made;
} scarce;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void scarce_begin(uint64_t first, bool for_good)
{
    scarce.counts = true;
    scarce.for_good = for_good;
    scarce.first = first;
    scarce.made = 0;
}

void scarce_hold(bool on)
{
    scarce.counts = !on;
}

bool scarce_failed(void)
{
    return scarce.first > 0 && scarce.made >= scarce.first;
}

uint64_t scarce_end(void)
{
    scarce.counts = false;
    return scarce.made;
}

static bool has_memory(void)
{
    if (!scarce.counts)
        return true;
    scarce.made++;
    return !scarce.first || scarce.made < scarce.first ||
           (scarce.made > scarce.first && !scarce.for_good);
}

// Fresh memory is mostly zero: what relies on that would go unseen.
static void *used_before(void *at, size_t bytes)
{
    return at ? memset(at, 0xa5, bytes) : NULL;
}

void *__wrap_malloc(size_t bytes)
{
    return has_memory() ? used_before(__real_malloc(bytes), bytes) : NULL;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return has_memory() ? __real_calloc(n, bytes) : NULL;
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return has_memory() ? __real_realloc(old, bytes) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return has_memory() ? used_before(__real_aligned_alloc(alignment, bytes), bytes) : NULL;
}
