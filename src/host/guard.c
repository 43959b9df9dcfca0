// SPDX-License-Identifier: Apache-2.0
// Guarded mode: memory that was freed or unmapped while it was registered is found out before it is
// touched, and the region is named. The system is asked for every access, so this is for hunting
// bugs.
#include "host/host.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

// For kernels before 5.14: reads a byte of every page. Memory that may not be written to is not
// found out.
static bool can_read(uintptr_t from, uintptr_t to, uintptr_t page)
{
    for (; from < to; from += page) {
        char byte;
        struct iovec here = {&byte, 1}, there = {(void *)from, 1};
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1 && errno == EFAULT)
            return false;
    }
    return true;
}

// Of a region that asked for it: its owner knows that not all of it need be there.
static bool is_there_now(void *ctx, uint32_t key, const void *at, uint64_t len, bool write)
{
    const struct vb_nic *nic = ctx;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)at & ~(page - 1),
              to = ((uintptr_t)at + len + page - 1) & ~(page - 1);

    (void)key;
    if (madvise((void *)from, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
        return true;
    return !nic->guard_populates && can_read(from, to, page);
}

static bool is_there(void *ctx, uint32_t key, const void *at, uint64_t len, bool write)
{
    struct vb_nic *nic = ctx;

    if (is_there_now(ctx, key, at, len, write))
        return true;
    if (nic->guard_key != key) // once for each
        fprintf(stderr,
                "verbena: the region with key 0x%08x was freed or unmapped while registered: "
                "%llu bytes at %p are gone\n",
                key, (unsigned long long)len, at);
    nic->guard_key = key;
    return false;
}

const struct vb_mem_guard *vb_host_guard(struct vb_nic *nic, bool all)
{
    char here;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    nic->guard = (struct vb_mem_guard){nic, all ? is_there : is_there_now};
    nic->guard_populates =
        madvise((void *)((uintptr_t)&here & ~(page - 1)), page, MADV_POPULATE_READ) == 0;
    return &nic->guard;
}
