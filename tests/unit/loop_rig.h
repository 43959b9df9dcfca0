// SPDX-License-Identifier: Apache-2.0
// A device with queues that are connected with themselves, filled entry by entry: what the tests of
// cross-channel work share.
#ifndef VB_TESTS_LOOP_RIG_H
#define VB_TESTS_LOOP_RIG_H

#include "chain/code.h"
#include "nic/dev.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LOOP_QUEUES = 8,
    LOOP_BLOCKS_MAX = 64,
    LOOP_MEMORY = 4096,
    LOOP_STEPS_MAX = 300000,
};

struct loop_cq {
    uint8_t *ring;
    uint32_t dbrec[2], entries, cqn, taken;
    bool strict; // fails when it is full
};

struct loop_queue {
    struct loop_rig *rig;
    struct loop_cq cq;
    uint8_t *ring;
    uint32_t blocks, dbrec[2], qpn, key;
    uint64_t posted; // blocks
    bool gone;
};

struct loop_rig {
    struct vb_dev *dev;
    uint32_t units, pd, key;
    uint64_t now_ns;
    uint8_t *memory; // LOOP_MEMORY bytes, of all rights
    struct loop_queue queue[LOOP_QUEUES];
    uint32_t queues;
};

struct loop_opts {
    uint32_t blocks; // of the ring; 0: LOOP_BLOCKS_MAX
    uint32_t unit;
    bool managed, checks, plain, be_replies;
    bool strict; // its completion queue fails when it is full
    uint32_t depth, rate, burst, program, share;
    uint32_t pd;         // 0: the rig's
    uint32_t cq_entries; // 0: 64
    uint64_t cq_start, start;
};

void loop_open(struct loop_rig *r, uint32_t units);
void loop_close(struct loop_rig *r);

void loop_cq_open(struct loop_rig *r, struct loop_cq *cq, uint32_t unit, uint32_t entries,
                  uint64_t start);
// The next entry of the queue; false: there is none yet.
bool loop_take(struct loop_cq *cq, struct vb_cqe *cqe);
// Takes all that is there and returns how many were good; *bad is the first syndrome of the others.
uint32_t loop_count(struct loop_cq *cq, uint8_t *bad);

struct loop_queue *loop_queue(struct loop_rig *r, const struct loop_opts *opts);
void loop_connect(struct loop_queue *q);
void loop_destroy(struct loop_queue *q);
// Writes an entry behind the last one; returns its first block's counter.
uint64_t loop_put(struct loop_queue *q, struct vb_code code);
void loop_doorbell(struct loop_queue *q); // for all that was written
// Steps all units until none has anything to do.
void loop_run(struct loop_rig *r);

// ---- entries; all signaled
struct vb_code loop_nop(void);
struct vb_code loop_wait(const struct loop_cq *cq, uint32_t index);
struct vb_code loop_enable(const struct loop_queue *q, uint32_t index);
// Inline bytes to an address of the memory or of a queue's ring.
struct vb_code loop_write(void *to, uint32_t key, const void *bytes, uint32_t len);
// Adds one to a word of the memory.
struct vb_code loop_count_up(struct loop_rig *r, uint32_t offset);
uint64_t loop_word(const struct loop_rig *r, uint32_t offset);
void loop_set_word(struct loop_rig *r, uint32_t offset, uint64_t value);
// A block of the queue's ring, where the CPU sees it.
uint8_t *loop_block(struct loop_queue *q, uint64_t counter);

#endif
