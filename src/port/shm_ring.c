// SPDX-License-Identifier: Apache-2.0
// Rings of frames: writing and taking records.
#include "port/shm_ring.h"

#include <string.h>

enum {
    // What the first line holds of a frame: copying so much of a short one touches no other line.
    FIRST_LINE = SHM_LINE - SHM_WORD,
};

static_assert(SHM_WORD + VB_FRAME_HEAD <= 2 * SHM_LINE, "a head lies in two lines");

static uint64_t tag_at(uint64_t key, uint64_t pos)
{
    return (key + pos / SHM_LINE) << SHM_LEN_BITS >> SHM_LEN_BITS;
}

static uint64_t record_bytes(uint32_t len)
{
    return (SHM_WORD + (uint64_t)len + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

bool vb_shm_ring_valid_bytes(uint64_t bytes)
{
    return bytes >= SHM_RING_MIN && bytes <= SHM_RING_MAX && (bytes & (bytes - 1)) == 0;
}

void vb_shm_ring_tx_init(struct shm_ring_tx *ring, void *base, uint64_t bytes, uint64_t key)
{
    assert(vb_shm_ring_valid_bytes(bytes));
    *ring = (struct shm_ring_tx){.base = base, .mask = bytes - 1, .key = key, .limit = bytes};
}

static void expect(struct shm_ring_rx *ring)
{
    ring->word = (const _Atomic uint64_t *)(const void *)(ring->base + (ring->pos & ring->mask));
    ring->tag = tag_at(ring->key, ring->pos);
}

void vb_shm_ring_rx_init(struct shm_ring_rx *ring, const void *base, uint64_t bytes, uint64_t key)
{
    assert(vb_shm_ring_valid_bytes(bytes));
    *ring = (struct shm_ring_rx){.base = base, .mask = bytes - 1, .key = key};
    expect(ring);
}

void vb_shm_ring_rx_init_silent(struct shm_ring_rx *ring)
{
    static const _Atomic uint64_t nothing = 0;
    *ring = (struct shm_ring_rx){.word = &nothing, .tag = 1};
}

// `len` with SHM_SPOILED or without.
static void publish(struct shm_ring_tx *ring, uint32_t len)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(ring->base + (ring->pos & ring->mask));
    atomic_store_explicit(word, tag_at(ring->key, ring->pos) << SHM_LEN_BITS | len,
                          memory_order_release);
}

// The reader looks at the first line all the time. So that is written last and at a stretch: a
// line that the reader takes back before the word is written must be fetched once more.
static void copy_frame(const struct vb_txq *txq, const struct vb_tx_frame *frame, uint8_t *to)
{
    static const uint8_t no_icrc[VB_ICRC_BYTES] = {0};
    const uint8_t *from = txq->arena + frame->offset;
    uint32_t len = frame->len, icrc = len - VB_ICRC_BYTES;

    if (frame->body_len > 0) {
        vb_tx_copy(txq, frame, to);
    } else if (icrc >= FIRST_LINE) {
        memcpy(to + FIRST_LINE, from + FIRST_LINE, icrc - FIRST_LINE);
        memcpy(to + icrc, no_icrc, sizeof no_icrc);
        memcpy(to, from, FIRST_LINE);
        return;
    } else {
        memcpy(to, from, icrc);
    }
    memcpy(to + icrc, no_icrc, sizeof no_icrc);
}

bool vb_shm_ring_put(struct shm_ring_tx *ring, const struct vb_txq *txq,
                     const struct vb_tx_frame *frame)
{
    uint64_t bytes = record_bytes(frame->len);
    uint64_t left = ring->mask + 1 - (ring->pos & ring->mask);

    assert(frame->len >= VB_ICRC_FRAME_MIN && frame->len <= VB_FRAME_MAX);
    if (ring->limit - ring->pos < bytes + (bytes > left ? left : 0))
        return false;
    if (bytes > left) {
        publish(ring, 0);
        ring->pos += left;
    }
    uint8_t *to = ring->base + (ring->pos & ring->mask) + SHM_WORD;
    copy_frame(txq, frame, to);
    publish(ring, frame->path->spoiled ? frame->len | SHM_SPOILED : frame->len);
    ring->pos += bytes;
    return true;
}

bool vb_shm_ring_credit(struct shm_ring_tx *ring, uint64_t consumed)
{
    uint64_t known = ring->limit - (ring->mask + 1);
    if (consumed < known || consumed > ring->pos || consumed % SHM_LINE != 0)
        return false;
    ring->limit = consumed + ring->mask + 1;
    return true;
}

// The writer may change the bytes at any time, so they are copied before anybody judges them.
static void copy_head(uint8_t *head, const uint8_t *bytes, uint32_t len)
{
    if (len <= FIRST_LINE)
        memcpy(head, bytes, FIRST_LINE);
    else
        memcpy(head, bytes, VB_FRAME_HEAD);
}

enum shm_ring_verdict vb_shm_ring_take(struct shm_ring_rx *ring, struct vb_rx_frame *frames,
                                       struct shm_head *heads, uint32_t room, uint32_t *taken)
{
    uint32_t n = 0, spoiled = 0;
    enum shm_ring_verdict verdict = SHM_RING_SOUND;

    // Ends: a skip record leads to the ring's start, where another one is garbage, and a spoiled
    // one takes up room like any other.
    while (n + spoiled < room) {
        uint64_t word = atomic_load_explicit(ring->word, memory_order_acquire);
        if (word >> SHM_LEN_BITS != ring->tag)
            break;
        uint32_t len = (uint32_t)word & (SHM_SPOILED - 1);
        bool is_spoiled = word & SHM_SPOILED;
        uint64_t left = ring->mask + 1 - (ring->pos & ring->mask);
        bool is_skip = len == 0 && !is_spoiled && left < SHM_RECORD_MAX;
        if (!is_skip && (len < VB_ICRC_FRAME_MIN || len > VB_FRAME_MAX || SHM_WORD + len > left)) {
            verdict = SHM_RING_GARBAGE;
            break;
        }
        spoiled += is_spoiled;
        if (!is_skip && !is_spoiled) {
            const uint8_t *bytes = ring->base + (ring->pos & ring->mask) + SHM_WORD;
            copy_head(heads[n].b, bytes, len);
            frames[n].data = bytes;
            frames[n].head = heads[n].b;
            frames[n].len = len;
            frames[n].ip_word = 0;
            n++;
        }
        ring->pos += is_skip ? left : record_bytes(len);
        expect(ring);
    }
    ring->spoiled += spoiled;
    *taken = n;
    return verdict;
}
