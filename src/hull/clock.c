// SPDX-License-Identifier: Apache-2.0
// The hull's clock: a page that its threads write and all others can only read. Programs run in
// those threads, and peers are answered by them, so a hull that sleeps need not keep it for them,
// nor for a service that nobody is attached to; for processes that have it mapped it wakes up now
// and then, and for nobody it does not.
#include "hull/hull.h"

#include "port/clock.h"

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    CLOCK_BYTES = 4096,
    TICK_NS = 100 * 1000 * 1000, // of a hull that sleeps
};

static_assert(sizeof(struct vb_hull_clock) == 32, "part of the contract");

static struct vb_hull_clock *page_of(struct vb_hull *hull)
{
    return (struct vb_hull_clock *)(void *)hull->clock.base;
}

int vb_hull_clock_open(struct vb_hull *hull)
{
    void *map;
    int fd = vb_hull_memory_make_readable(CLOCK_BYTES, &map);

    if (fd < 0)
        return fd;
    hull->clock = (struct vb_hull_mapping){
        .base = map, .bytes = CLOCK_BYTES, .fd = fd, .holds = 1, .read_only = true};
    page_of(hull)->epoch = hull->epoch;
    page_of(hull)->epoch_be = htobe64(hull->epoch);
    vb_hull_clock_set(hull, vb_clock_ns());
    return 0;
}

void vb_hull_clock_close(struct vb_hull *hull)
{
    if (!hull->clock.base)
        return;
    munmap(hull->clock.base, CLOCK_BYTES);
    close(hull->clock.fd);
}

// By one of several: whoever has looked at the time last may write first, and it never goes back.
static void raise_clock(struct vb_hull_clock *clock, uint64_t now_ns)
{
    uint64_t was = __atomic_load_n(&clock->now_ns, __ATOMIC_RELAXED);

    while (was < now_ns && !__atomic_compare_exchange_n(&clock->now_ns, &was, now_ns, true,
                                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    was = __atomic_load_n(&clock->now_be, __ATOMIC_RELAXED);
    while (be64toh(was) < now_ns &&
           !__atomic_compare_exchange_n(&clock->now_be, &was, htobe64(now_ns), true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void vb_hull_clock_set(struct vb_hull *hull, uint64_t now_ns)
{
    struct vb_hull_clock *clock = page_of(hull);

    if (hull->units > 1) {
        raise_clock(clock, now_ns);
        return;
    }
    __atomic_store_n(&clock->now_ns, now_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&clock->now_be, htobe64(now_ns), __ATOMIC_RELEASE);
}

void vb_hull_clock_watch(struct vb_hull *hull, struct vb_hull_hold *hold, bool watched)
{
    if (hold->mapping != &hull->clock || hold->watched == watched)
        return;
    hold->watched = watched;
    if (watched)
        hull->watchers++;
    else
        hull->watchers--;
}

uint64_t vb_hull_clock_next(const struct vb_hull *hull, uint64_t deadline_ns)
{
    if (hull->watchers == 0)
        return deadline_ns;
    uint64_t tick_ns = vb_clock_ns() + TICK_NS;
    return tick_ns < deadline_ns ? tick_ns : deadline_ns;
}
