// SPDX-License-Identifier: Apache-2.0
// A send work request inside the NIC: the one copy of a work-queue entry that is checked and
// executed, kept until its completion because retransmission must repeat the same bytes.
#ifndef VB_NIC_WR_H
#define VB_NIC_WR_H

#include "verbena/wqe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_seg {
    uint64_t addr;
    uint32_t len;
    uint32_t key;
};

struct vb_atomic_args {
    uint64_t swap_add;
    uint64_t compare; // of a masked fetch-and-add: the field boundary
};

struct vb_umr_args {
    uint64_t start;  // how peers will name the window's first byte
    uint32_t access; // enum vb_access of the window
    bool binds;      // otherwise it invalidates
};

enum {
    VB_WR_SHORT_SEGS = 2,
    VB_WR_LONG_BYTES = VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES
};

struct vb_wr {
    struct vb_wr *next;
    uint64_t counter; // of the entry's first block
    uint64_t raddr;
    uint64_t cost_base; // window cost of everything begun before this request
    uint32_t rkey;
    uint32_t length;
    uint32_t first_psn; // set when the request begins
    uint32_t psns;      // packet sequence numbers it takes; a READ takes its responses'
    uint8_t opcode;     // enum vb_wqe_opcode
    uint8_t fm_ce_se;
    uint8_t blocks; // 0: its length field makes no sense, so the next entry cannot be found
    uint8_t num_seg;
    uint8_t syndrome; // VB_SYN_OK, or why it cannot be executed
    bool is_inline;   // `longer` holds the payload
    bool awaits;      // only an answer of its own completes it, no later acknowledgement
    union {
        uint8_t arg_bytes; // of an atomic: 4 or 8
        uint8_t calc;      // of a SEND or WRITE: what is made of its segments (enum vb_wqe_calc)
    };
    uint32_t imm; // as it stands in the entry; of a UMR the key, of a WAIT the index
    union {
        uint32_t srqn;      // XRC
        struct {            // datagrams
            uint8_t source; // the address that they leave from, counted from 1; 0: any
            uint8_t traffic_class, hop_limit, sl;
        };
    };
    uint8_t *longer; // VB_WR_LONG_BYTES from the pool, for long lists and inline data; else NULL
    union {
        struct vb_atomic_args atomic; // its one segment is seg[0] of the other union
        uint8_t rgid[16];             // datagrams: raddr is the QPN, rkey the Q_Key
        struct vb_umr_args umr;       // raddr is the address in the region, rkey its key
    };
    union {
        uint64_t range; // bytes that a FLUSH or a binding is about
        struct {
            uint32_t ssn; // of a request that needs a receive: its number among the peer's messages
            uint32_t flow_label; // datagrams
        };
    };
    union {
        struct vb_seg seg[VB_WR_SHORT_SEGS];
        struct {
            struct vb_seg only_seg;
            uint64_t swap_mask, compare_mask;
        };
    };
};

static_assert(sizeof(struct vb_wr) <= 128, "a request is two cache lines");

// Free lists that grow by slabs and never shrink: nothing is allocated per operation.
struct vb_wr_pool {
    struct vb_wr *free_wr;
    void *free_long;
    void *slabs;
};

void vb_wr_pool_fini(struct vb_wr_pool *pool);
int vb_wr_pool_grow(struct vb_wr_pool *pool);
// Makes sure that one request of any kind can be taken. -ENOMEM.
static inline int vb_wr_pool_reserve(struct vb_wr_pool *pool)
{
    return pool->free_wr && pool->free_long ? 0 : vb_wr_pool_grow(pool);
}
void vb_wr_put_long(struct vb_wr_pool *pool, void *block);
static inline void vb_wr_put(struct vb_wr_pool *pool, struct vb_wr *wr)
{
    if (wr->longer)
        vb_wr_put_long(pool, wr->longer);
    wr->next = pool->free_wr;
    pool->free_wr = wr;
}

// Blocks of the entry that starts with these bytes; 0: its length field makes no sense.
uint32_t vb_wqe_blocks(const struct vb_wqe_ctrl *ctrl);

enum vb_wqe_heads {
    VB_WQE_HEAD_PLAIN,
    VB_WQE_HEAD_DATAGRAM, // a datagram segment comes first
    VB_WQE_HEAD_XRC,      // an XRC segment comes first
};

struct vb_wqe_source {
    const uint8_t *ring;
    uint32_t blocks; // of the ring, power of two
    uint64_t counter;
    uint64_t end; // the producer's counter: blocks past it do not exist
    uint32_t qpn;
    bool checks; // idx and qpn of the control segment must be right
    bool cross;  // cross-channel operations are legal
    enum vb_wqe_heads heads;
};

// Copies and checks the entry at source->counter. Never fails: a malformed entry becomes a request
// with a syndrome. Takes from the pool, which was reserved.
struct vb_wr *vb_wr_fetch(struct vb_wr_pool *pool, const struct vb_wqe_source *source);

// Operations that end where they begin, without a packet.
static inline bool vb_wqe_is_local(uint8_t opcode)
{
    const uint64_t local = 1ull << VB_WQE_NOP | 1ull << VB_WQE_UMR | 1ull << VB_WQE_WAIT |
                           1ull << VB_WQE_SEND_EN | 1ull << VB_WQE_RECV_EN;
    return opcode < 64 && local >> opcode & 1;
}

static inline bool vb_wr_is_signaled(const struct vb_wr *wr)
{
    return (wr->fm_ce_se & VB_WQE_CE_MASK) >= VB_WQE_CE_ALWAYS;
}

// Copies the data of inline segments that follow each other. False: they make no sense.
bool vb_wqe_gather_inline(const uint8_t *at, uint32_t segs, uint8_t *dst, uint32_t *len);

// Takes a block of VB_WR_LONG_BYTES from a pool that was reserved.
uint8_t *vb_wr_take_long(struct vb_wr_pool *pool);

static inline const struct vb_seg *vb_wr_segs(const struct vb_wr *wr)
{
    return wr->longer ? (const struct vb_seg *)(const void *)wr->longer : wr->seg;
}

#endif
