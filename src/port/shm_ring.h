// SPDX-License-Identifier: Apache-2.0
// A ring of frames in memory that one side writes and the other only reads. A record is a header
// word and a frame, starts at a cache line and never wraps: a skip record fills the end of a lap.
//
// The word holds the frame's length and a tag that follows from the record's position and the
// ring's key, so the reader polls the next record's word alone and no index is shared. The key is
// random: bytes of an old payload match a tag with a chance of 2^-49. A frame without an ICRC can
// be spoiled on purpose by a bit of the word, which leads to nothing but its loss.
#ifndef VB_PORT_SHM_RING_H
#define VB_PORT_SHM_RING_H

#include "nic/frame.h"
#include "wire/roce.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SHM_LINE = 64,
    SHM_WORD = 8,                          // bytes before the frame
    SHM_LEN_BITS = 14,                     // of the word; length 0 marks a skip record
    SHM_SPOILED = 1 << (SHM_LEN_BITS - 1), // among them: the frame is to be dropped
    SHM_RECORD_MAX = (SHM_WORD + VB_FRAME_MAX + SHM_LINE - 1) / SHM_LINE * SHM_LINE,
    SHM_RING_MIN = 1 << 14,
    SHM_RING_MAX = 1 << 26,
    SHM_RING_DEFAULT = 1 << 19,
};

static_assert((int)VB_FRAME_MAX < SHM_SPOILED, "a length fits its field");
static_assert(SHM_RING_MIN >= 2 * SHM_RECORD_MAX, "after a skip record there is room for any");
static_assert(sizeof(_Atomic uint64_t) == SHM_WORD, "a word is one atomic access");

// Positions count bytes since the ring began and are multiples of a line.
struct shm_ring_tx {
    uint8_t *base;
    uint64_t mask; // ring bytes - 1
    uint64_t key;
    uint64_t pos;   // of the next record
    uint64_t limit; // where the ring is full, as far as known: consumed + ring bytes
};

struct shm_ring_rx {
    const uint8_t *base;
    uint64_t mask;
    uint64_t key;
    uint64_t pos;                 // of the next record
    const _Atomic uint64_t *word; // its word
    uint64_t tag;                 // what the word will hold above the length
    uint64_t spoiled;             // frames dropped because their writer marked them so
};

// A private copy of a frame's first bytes.
struct shm_head {
    uint8_t b[VB_FRAME_HEAD];
};

enum shm_ring_verdict {
    SHM_RING_SOUND,
    SHM_RING_GARBAGE, // the writer broke the rules; the ring stays where it is
};

bool vb_shm_ring_valid_bytes(uint64_t bytes);
void vb_shm_ring_tx_init(struct shm_ring_tx *ring, void *base, uint64_t bytes, uint64_t key);
void vb_shm_ring_rx_init(struct shm_ring_rx *ring, const void *base, uint64_t bytes, uint64_t key);

// A ring in which nothing ever comes.
void vb_shm_ring_rx_init_silent(struct shm_ring_rx *ring);

// Writes a frame, its ICRC as zeros, and makes it visible. False: the ring is full.
bool vb_shm_ring_put(struct shm_ring_tx *ring, const struct vb_txq *txq,
                     const struct vb_tx_frame *frame);

// Learns how far the reader is. False: no reader of our ring can be there.
bool vb_shm_ring_credit(struct shm_ring_tx *ring, uint64_t consumed);

// Takes up to `room` frames, of which the spoiled are counted and left out: the bytes stay in the
// ring, heads[i] gets the first of frame i. Stops at an unwritten record or at garbage.
enum shm_ring_verdict vb_shm_ring_take(struct shm_ring_rx *ring, struct vb_rx_frame *frames,
                                       struct shm_head *heads, uint32_t room, uint32_t *taken);

// Whether a record has been written at the ring's position.
static inline bool vb_shm_ring_waiting(const struct shm_ring_rx *ring)
{
    return atomic_load_explicit(ring->word, memory_order_acquire) >> SHM_LEN_BITS == ring->tag;
}

#endif
