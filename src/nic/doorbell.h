// SPDX-License-Identifier: Apache-2.0
// The doorbell page: which queue pairs have new work. One word names the queue pair that rang last;
// who takes its place notes it in a two-level bitmap. So ringing is one atomic operation for a
// queue pair that rings again and again and three for many in turn, can never overflow, and costs
// the same for two queue pairs as for sixteen thousand.
#ifndef VB_NIC_DOORBELL_H
#define VB_NIC_DOORBELL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    VB_DOORBELL_QPS = 16384, // queue pairs of one device
    VB_DOORBELL_WORDS = VB_DOORBELL_QPS / 64,
    VB_DOORBELL_TOPS = VB_DOORBELL_WORDS / 64,
};

struct vb_doorbells {
    _Atomic uint64_t latest; // index of the last one that rang, plus one; 0: none
    _Atomic uint64_t top[VB_DOORBELL_TOPS];
    _Atomic uint64_t word[VB_DOORBELL_WORDS];
};

static inline void vb_doorbell_note(struct vb_doorbells *d, uint64_t index)
{
    atomic_fetch_or_explicit(&d->word[index / 64], 1ull << (index % 64), memory_order_release);
    // In one order with a sleeper's last look (vb_doorbells_pending).
    atomic_fetch_or_explicit(&d->top[index / 4096], 1ull << (index / 64 % 64),
                             memory_order_seq_cst);
}

// The producer's counter must be in the doorbell record before the bell is rung. Who is put aside
// here has been noted when this returns: the caller, who wakes sleepers then, wakes them for both.
static inline void vb_doorbell_ring(struct vb_doorbells *d, uint32_t qpn)
{
    uint64_t mine = (qpn & (VB_DOORBELL_QPS - 1)) + 1;
    uint64_t before = atomic_exchange_explicit(&d->latest, mine, memory_order_seq_cst);
    if (before != 0 && before != mine)
        vb_doorbell_note(d, before - 1);
}

// Looked at between two steps; a bell that is missed is seen the next time.
static inline bool vb_doorbells_rung(const struct vb_doorbells *d)
{
    uint64_t any = atomic_load_explicit(&d->latest, memory_order_relaxed);

    static_assert(VB_DOORBELL_TOPS == 4, "written out: it is looked at in every turn");
    any |= atomic_load_explicit(&d->top[0], memory_order_relaxed);
    any |= atomic_load_explicit(&d->top[1], memory_order_relaxed);
    any |= atomic_load_explicit(&d->top[2], memory_order_relaxed);
    any |= atomic_load_explicit(&d->top[3], memory_order_relaxed);
    return any;
}

static inline bool vb_doorbells_pending(const struct vb_doorbells *d)
{
    if (atomic_load_explicit(&d->latest, memory_order_seq_cst))
        return true;
    for (uint32_t t = 0; t < VB_DOORBELL_TOPS; t++)
        if (atomic_load_explicit(&d->top[t], memory_order_seq_cst))
            return true;
    return false;
}

#endif
