// SPDX-License-Identifier: Apache-2.0
// Patterns, stamps and the layout of memory.
#include "cli/perf_pattern.h"

#include "base/bytes.h"
#include "base/prng.h"
#include "cli/perf_plan.h"

enum {
    LINE = 64,
    SLOTS_MIN = 2,
    // A stamp is overwritten after a round through the slots. The target's thread may be off its
    // core while its helper executes WRITEs, at most 8 million a second: a round takes 128 ms or
    // longer.
    SLOTS_MAX = 1024,
    SLOT_BUDGET = 16 << 20,  // bytes of slots per queue pair, while SLOTS_MIN allows
    SLOTS_TOTAL = 512 << 20, // and of all of them: the more there are, the slower each goes round
    WINDOW_MIN = 4096,
    READ_WINDOW_MIN = 65536,
    WORD = 8,
    RECV_DEPTH_MIN = 1024, // more than one turn of the NIC can use up
    RECVS_TOTAL = 1 << 20, // of all queue pairs, while their depth allows
};

static uint32_t at_least(uint32_t value, uint32_t least)
{
    return value < least ? least : value;
}

static uint32_t full_depth(const struct vb_perf_plan *plan)
{
    uint32_t share = RECVS_TOTAL / plan->qps;
    return at_least(2 * plan->depth, share < RECV_DEPTH_MIN ? share : RECV_DEPTH_MIN);
}

struct vb_perf_layout vb_perf_layout_of(const struct vb_perf_plan *plan)
{
    struct vb_perf_layout l = {.stride = (plan->size + LINE - 1) / LINE * LINE};
    uint32_t share = SLOTS_TOTAL / at_least(plan->active, 1);
    uint32_t slots = (share < SLOT_BUDGET ? share : SLOT_BUDGET) / at_least(l.stride, 1);
    l.slots = at_least(slots < SLOTS_MAX ? slots : SLOTS_MAX, SLOTS_MIN);
    // Operations cycle through it; reads need room to come from different places.
    l.window = vb_perf_is_read(plan) ? at_least(2 * l.stride, READ_WINDOW_MIN)
                                     : at_least(l.stride, WINDOW_MIN);
    l.receive_stride = l.stride + LINE; // the GRH's
    if (plan->op == VB_PERF_SEND && vb_perf_is_lossy(plan)) {
        uint32_t fit =
            at_least((share < SLOT_BUDGET ? share : SLOT_BUDGET) / l.receive_stride, SLOTS_MIN);
        l.receives = fit < full_depth(plan) ? fit : full_depth(plan);
    }
    l.slots_bytes = (size_t)plan->active * l.slots * l.stride;
    l.total = l.window + l.slots_bytes + (size_t)plan->active * l.receives * l.receive_stride;
    return l;
}

uint32_t vb_perf_recv_depth(const struct vb_perf_plan *plan)
{
    uint32_t receives = vb_perf_layout_of(plan).receives;
    if (!vb_perf_is_received(plan))
        return 1;
    return receives ? receives : full_depth(plan);
}

size_t vb_perf_slot(const struct vb_perf_layout *l, uint32_t qp, uint64_t v)
{
    return l->window + ((size_t)qp * l->slots + (v - 1) % l->slots) * l->stride;
}

size_t vb_perf_word(const struct vb_perf_layout *l, uint32_t qp)
{
    return vb_perf_slot(l, qp, 1);
}

size_t vb_perf_receive(const struct vb_perf_layout *l, uint32_t qp, uint64_t n)
{
    size_t index = (size_t)qp * l->receives + (n - 1) % l->receives;
    return l->window + l->slots_bytes + index * l->receive_stride + LINE;
}

uint32_t vb_perf_read_offset(const struct vb_perf_layout *l, uint64_t v)
{
    uint32_t places = (l->window - l->stride) / LINE + 1;
    return (uint32_t)(v * 13 % places) * LINE;
}

static uint64_t word_of(uint64_t seed, uint64_t index)
{
    struct vb_prng prng = {.state = seed + index * 0x9e3779b97f4a7c15u};
    return vb_prng_next(&prng);
}

void vb_pattern_fill(void *bytes, size_t len, uint64_t seed, uint64_t offset)
{
    uint8_t *at = bytes;
    for (uint64_t index = offset / WORD; len > 0; index++) {
        uint64_t word = word_of(seed, index);
        size_t n = len < WORD ? len : WORD;
        memcpy(at, &word, n);
        at += n;
        len -= n;
    }
}

bool vb_pattern_matches(const void *bytes, size_t len, uint64_t seed, uint64_t offset)
{
    const uint8_t *at = bytes;
    for (uint64_t index = offset / WORD; len > 0; index++) {
        uint64_t word = word_of(seed, index);
        size_t n = len < WORD ? len : WORD;
        if (memcmp(at, &word, n) != 0)
            return false;
        at += n;
        len -= n;
    }
    return true;
}

static uint64_t stamp_seed(const struct vb_perf_plan *plan, uint32_t qp, uint64_t v)
{
    return word_of(plan->seed ^ (uint64_t)qp << 48, v);
}

// The last bytes of a stamp, eight of them if there are as many. Fewer count the rounds through the
// slots, and are never zero.
static uint32_t make_tail(const struct vb_perf_plan *plan, uint32_t qp, uint64_t v,
                          uint8_t tail[WORD])
{
    uint64_t value = stamp_seed(plan, qp, v) | 1;
    uint32_t len = WORD;
    if (plan->size < WORD) {
        struct vb_perf_layout l = vb_perf_layout_of(plan);
        uint64_t limit = (1ull << (8 * plan->size)) - 1;
        value = (v - 1) / l.slots % limit + 1;
        len = plan->size;
    }
    value = htole64(value);
    memcpy(tail, &value, WORD);
    return len;
}

void vb_stamp_write(void *slot, const struct vb_perf_plan *plan, uint32_t qp, uint64_t v)
{
    uint8_t tail[WORD];
    uint32_t len = make_tail(plan, qp, v, tail);
    vb_pattern_fill(slot, plan->size - len, stamp_seed(plan, qp, v), 0);
    memcpy((uint8_t *)slot + plan->size - len, tail, len);
}

bool vb_stamp_arrived(const void *slot, const struct vb_perf_plan *plan, uint32_t qp, uint64_t v)
{
    uint8_t tail[WORD];
    uint32_t len = make_tail(plan, qp, v, tail);
    return memcmp((const uint8_t *)slot + plan->size - len, tail, len) == 0;
}

bool vb_stamp_matches(const void *slot, const struct vb_perf_plan *plan, uint32_t qp, uint64_t v)
{
    return vb_stamp_arrived(slot, plan, qp, v) &&
           vb_pattern_matches(slot, plan->size - (plan->size < WORD ? plan->size : WORD),
                              stamp_seed(plan, qp, v), 0);
}
