// SPDX-License-Identifier: Apache-2.0
// Frames held back: a heap of deadlines, and a lane for each queue pair that has some.
#include "port/held.h"

#include <stdlib.h>
#include <string.h>

// Exists while it has frames in the heap.
struct vb_lane {
    struct vb_lane *next; // in the bucket
    struct vb_lane_key key;
    uint32_t count;           // frames in the heap
    uint32_t ordered;         // of these, those that keep their order
    uint64_t tail_ns;         // deadline of the last of those
    struct vb_fifo overtaken; // the others
};

// ---- the heap

static bool is_before(const struct vb_held *a, const struct vb_held *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void heap_put(struct vb_hold *hold, uint32_t i, struct vb_held *h)
{
    hold->heap[i] = h;
    h->heap_at = i;
}

static void sift_up(struct vb_hold *hold, uint32_t i, struct vb_held *h)
{
    for (; i > 0 && is_before(h, hold->heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap_put(hold, i, hold->heap[(i - 1) / 2]);
    heap_put(hold, i, h);
}

static void sift_down(struct vb_hold *hold, uint32_t i, struct vb_held *h)
{
    for (uint32_t child; (child = 2 * i + 1) < hold->count; i = child) {
        if (child + 1 < hold->count && is_before(hold->heap[child + 1], hold->heap[child]))
            child++;
        if (!is_before(hold->heap[child], h))
            break;
        heap_put(hold, i, hold->heap[child]);
    }
    heap_put(hold, i, h);
}

static void heap_remove(struct vb_hold *hold, const struct vb_held *h)
{
    uint32_t i = h->heap_at;
    struct vb_held *last = hold->heap[--hold->count];
    if (last == h)
        return;
    if (i > 0 && is_before(last, hold->heap[(i - 1) / 2]))
        sift_up(hold, i, last);
    else
        sift_down(hold, i, last);
}

// ---- lanes

static uint32_t bucket_of(const struct vb_lane_key *key)
{
    uint32_t ip;
    memcpy(&ip, key->ip.b + 12, sizeof ip);
    return ((key->qpn ^ ip) * 0x9e3779b1u) >> 24 & (HELD_BUCKETS - 1);
}

static bool is_key(const struct vb_lane_key *a, const struct vb_lane_key *b)
{
    return a->qpn == b->qpn && vb_ip_equal(&a->ip, &b->ip);
}

static struct vb_lane *find_lane(const struct vb_hold *hold, const struct vb_lane_key *key)
{
    if (hold->count == 0)
        return NULL;
    struct vb_lane *lane = hold->bucket[bucket_of(key)];
    while (lane && !is_key(&lane->key, key))
        lane = lane->next;
    return lane;
}

static struct vb_lane *make_lane(struct vb_hold *hold, const struct vb_lane_key *key)
{
    struct vb_lane **bucket = &hold->bucket[bucket_of(key)];
    struct vb_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    lane->key = *key;
    vb_fifo_init(&lane->overtaken);
    lane->next = *bucket;
    *bucket = lane;
    return lane;
}

static void free_lane(struct vb_hold *hold, struct vb_lane *lane)
{
    struct vb_lane **at = &hold->bucket[bucket_of(&lane->key)];
    while (*at != lane)
        at = &(*at)->next;
    *at = lane->next;
    free(lane);
}

// Takes a frame out of the heap and its lane, which may end.
static void detach(struct vb_hold *hold, struct vb_held *h)
{
    struct vb_lane *lane = h->lane;
    heap_remove(hold, h);
    if (vb_link_queued(&h->link))
        vb_link_remove(&h->link);
    else
        lane->ordered--;
    h->lane = NULL;
    if (--lane->count == 0)
        free_lane(hold, lane);
}

// The frame numbered `order` passes: those before it that were to be overtaken have been.
static void pass(struct vb_hold *hold, const struct vb_lane_key *key, uint64_t order)
{
    struct vb_lane *lane = find_lane(hold, key);
    if (!lane)
        return;
    for (struct vb_link *l = lane->overtaken.head.next, *next; l != &lane->overtaken.head;
         l = next) {
        struct vb_held *h = VB_CONTAINER_OF(l, struct vb_held, link);
        next = l->next;
        if (h->order > order || --h->passes_left > 0)
            continue;
        bool last = lane->count == 1;
        detach(hold, h);
        vb_fifo_push(&hold->ready, &h->link);
        if (last)
            return; // the lane is gone
    }
}

// ---- what the owner calls

bool vb_hold_init(struct vb_hold *hold)
{
    memset(hold, 0, sizeof *hold);
    vb_fifo_init(&hold->ready);
    hold->heap = malloc(VB_HELD_MAX * sizeof(struct vb_held *));
    return hold->heap != NULL;
}

void vb_hold_fini(struct vb_hold *hold)
{
    for (struct vb_held *h; (h = vb_hold_next(hold, UINT64_MAX));)
        free(h);
    free(hold->heap);
}

bool vb_hold_is_waiting(const struct vb_hold *hold, const struct vb_lane_key *key)
{
    const struct vb_lane *lane = find_lane(hold, key);
    return lane && lane->ordered > 0;
}

struct vb_held *vb_hold_add(struct vb_hold *hold, const struct vb_lane_key *key, uint64_t at_ns,
                            uint32_t passes, uint32_t len)
{
    struct vb_lane *lane = find_lane(hold, key);
    struct vb_held *h = hold->count < VB_HELD_MAX ? malloc(sizeof *h + len) : NULL;
    if (!h)
        return NULL;
    if (!lane && !(lane = make_lane(hold, key))) {
        free(h);
        return NULL;
    }
    memset(h, 0, sizeof *h);
    h->key = *key;
    h->lane = lane;
    h->order = ++hold->order;
    h->len = len;
    h->at_ns = at_ns;
    h->passes_left = passes;
    lane->count++;
    if (passes > 0) {
        vb_fifo_push(&lane->overtaken, &h->link);
    } else {
        if (lane->ordered++ > 0 && h->at_ns < lane->tail_ns)
            h->at_ns = lane->tail_ns;
        lane->tail_ns = h->at_ns;
    }
    sift_up(hold, hold->count++, h);
    return h;
}

void vb_hold_pass(struct vb_hold *hold, const struct vb_lane_key *key)
{
    pass(hold, key, ++hold->order);
}

struct vb_held *vb_hold_next(struct vb_hold *hold, uint64_t now_ns)
{
    struct vb_link *first = vb_fifo_first(&hold->ready);
    struct vb_held *h;
    if (first) {
        h = VB_CONTAINER_OF(first, struct vb_held, link);
        vb_link_remove(first);
    } else if (hold->count > 0 && hold->heap[0]->at_ns <= now_ns) {
        h = hold->heap[0];
        detach(hold, h);
    } else {
        return NULL;
    }
    pass(hold, &h->key, h->order);
    return h;
}

uint64_t vb_hold_deadline(const struct vb_hold *hold)
{
    if (!vb_fifo_empty(&hold->ready))
        return 0;
    return hold->count > 0 ? hold->heap[0]->at_ns : UINT64_MAX;
}
