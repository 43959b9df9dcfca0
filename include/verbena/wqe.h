// SPDX-License-Identifier: Apache-2.0
// Work-queue and completion-queue entries in ConnectX's format.
//
// A send queue is a power-of-two ring of 64-byte blocks (WQEBBs); an entry takes 1 to 16 of them
// and is a control segment followed by 16-byte segments. A receive queue is a ring of fixed
// strides, each an array of data segments. A completion queue is a ring of 64-byte entries with an
// owner bit. All multi-byte fields are big-endian. The layouts are checked against rdma-core's
// mlx5dv.h when Verbena is built; none of it was checked on a card.
#ifndef VERBENA_WQE_H
#define VERBENA_WQE_H

#include <assert.h>
#include <stdint.h>

enum {
    VB_WQEBB_BYTES = 64,
    VB_WQE_MAX_BLOCKS = 16,
    VB_WQE_SEG_BYTES = 16,
    VB_CQE_BYTES = 64,
    VB_MAX_SGE = 16,
};

struct vb_wqe_ctrl {
    uint8_t opmod;
    uint8_t idx[2];
    uint8_t opcode; // enum vb_wqe_opcode
    uint8_t qpn[3];
    uint8_t ds; // length in 16-byte segments, this one included; six bits are used
    uint8_t signature;
    uint8_t reserved[2];
    uint8_t fm_ce_se;
    uint32_t imm; // in the byte order of the application
};

struct vb_wqe_raddr {
    uint64_t raddr;
    uint32_t rkey;
    uint32_t reserved;
};

struct vb_wqe_atomic {
    uint64_t swap_add;
    uint64_t compare;
};

// Masked compare-and-swap and fetch-and-add, for arguments of 4 bytes (one segment) and of 8 (two;
// the fetch-and-add takes one).
struct vb_wqe_masked_cs4 {
    uint32_t swap, compare, swap_mask, compare_mask;
};

struct vb_wqe_masked_cs8 {
    uint64_t swap, compare, swap_mask, compare_mask;
};

struct vb_wqe_masked_fa4 {
    uint32_t add, boundary; // a set bit of the boundary ends a field: no carry out of it
    uint32_t reserved[2];
};

struct vb_wqe_masked_fa8 {
    uint64_t add, boundary;
};

enum {
    VB_WQE_GRH = 1 << 30, // of grh_gid_fl: the number of our GID counts
    VB_WQE_SGID_SHIFT = 20,
    VB_WQE_FLOW_LABEL = 0xfffff, // of grh_gid_fl
    VB_WQE_SL = 0xf,             // of stat_rate_sl,
    VB_WQE_SL_MAX = 6,           // up to which it is a priority that any program may have
};

// Where a datagram goes.
struct vb_wqe_datagram {
    uint32_t qkey;
    uint32_t reserved4;
    uint32_t dqpn;
    uint8_t stat_rate_sl;
    uint8_t fl_mlid;
    uint16_t rlid;
    uint8_t reserved16[4];
    uint8_t rmac[6];
    uint8_t tclass;
    uint8_t hop_limit;
    uint32_t grh_gid_fl;
    uint8_t rgid[16];
};

struct vb_wqe_xrc {
    uint32_t srqn;
    uint8_t reserved[12];
};

// An entry of a shared receive queue starts with the index of the next one.
struct vb_wqe_srq_next {
    uint8_t reserved0[2];
    uint16_t next;
    uint8_t signature;
    uint8_t reserved5[11];
};

// A memory key is changed by a UMR entry: control segment (imm: the key), these two, and for a
// binding a data segment that names the region's part.
struct vb_wqe_umr {
    uint8_t flags;
    uint8_t reserved1[3];
    uint16_t klm_octowords;
    uint16_t translation_offset;
    uint64_t mkey_mask;
    uint8_t reserved16[32];
};

struct vb_wqe_mkey {
    uint8_t free; // VB_WQE_MKEY_FREE: the key is invalidated
    uint8_t reserved1;
    uint8_t access; // VB_WQE_MKEY_…
    uint8_t sf;
    uint32_t qpn_mkey;
    uint32_t reserved8;
    uint32_t flags_pd;
    uint64_t start;
    uint64_t len;
    uint32_t bsf_octowords;
    uint32_t reserved36[4];
    uint32_t translations_octowords;
    uint8_t reserved56[3];
    uint8_t log_page_size;
    uint32_t reserved60;
};

struct vb_wqe_data {
    uint32_t byte_count; // bit 31 set: inline data follows instead (VB_WQE_INLINE)
    uint32_t lkey;
    uint64_t addr;
};

struct vb_wqe_wait {
    uint32_t reserved[2];
    uint32_t index;
    uint32_t object; // CQN for WAIT, QPN for SEND_EN and RECV_EN
};

#define VB_WQE_INLINE   0x80000000u
#define VB_WQE_LKEY_END 0x100u // ends a short list of receive segments
#define VB_WQE_DS_MASK  0x3fu
#define VB_CQE_GRH      0x10000000u // in flags_rqpn
#define VB_CQE_SE       0x02u       // in op_own

enum vb_wqe_opcode {
    VB_WQE_NOP = 0x00,
    VB_WQE_SEND_INVAL = 0x01,
    VB_WQE_WRITE = 0x08,
    VB_WQE_WRITE_IMM = 0x09,
    VB_WQE_SEND = 0x0a,
    VB_WQE_SEND_IMM = 0x0b,
    VB_WQE_WAIT = 0x0f,
    VB_WQE_READ = 0x10,
    VB_WQE_ATOMIC_CS = 0x11,
    VB_WQE_ATOMIC_FA = 0x12,
    VB_WQE_MASKED_CS = 0x14,
    VB_WQE_MASKED_FA = 0x15,
    VB_WQE_RECV_EN = 0x16,
    VB_WQE_SEND_EN = 0x17,
    VB_WQE_UMR = 0x25,
    // Not ConnectX's: operations of the InfiniBand specification that it does not have.
    VB_WQE_FLUSH = 0x3e,        // ctrl (imm: type and level) + raddr (reserved: the length)
    VB_WQE_ATOMIC_WRITE = 0x3f, // ctrl + raddr + 8 bytes of data
};

// opmod of a SEND or WRITE that sends one result instead of its operands (CORE-Direct's CALC): each
// segment names a record of 16 bytes, aligned to 16, a value and a tag, both big-endian.
enum vb_wqe_calc {
    VB_WQE_CALC_ADD = 1,
    VB_WQE_CALC_FLOAT_ADD = 2,
    VB_WQE_CALC_MAX = 3, // of the greatest value, with its tag
    VB_WQE_CALC_AND = 4,
    VB_WQE_CALC_OR = 5,
    VB_WQE_CALC_XOR = 6,
    VB_WQE_CALC_MIN = 7, // not ConnectX's: there it takes MAX of negated values
};

// opmod of a masked atomic, by the bytes of its arguments.
enum {
    VB_WQE_OPMOD_MASKED4 = 0x08,
    VB_WQE_OPMOD_MASKED8 = 0x09,
};

enum {
    VB_WQE_MKEY_FREE = 0x40,
    VB_WQE_MKEY_LOCAL_WRITE = 1 << 3,
    VB_WQE_MKEY_REMOTE_READ = 1 << 4,
    VB_WQE_MKEY_REMOTE_WRITE = 1 << 5,
    VB_WQE_MKEY_ATOMIC = 1 << 6,
};

// imm of a FLUSH: what it makes sure of, and for which memory.
enum {
    VB_WQE_FLUSH_GLOBAL = 1 << 0,
    VB_WQE_FLUSH_PERSISTENT = 1 << 1,
    VB_WQE_FLUSH_REGION = 1 << 4, // the whole region instead of the range
};

// fm_ce_se: fence mode in bits 7:5, completion mode in bits 3:2, solicited event in bit 1.
enum {
    VB_WQE_FENCE = 0x80, // wait for all earlier READs and atomics of this queue
    VB_WQE_CE_MASK = 0x0c,
    VB_WQE_CE_ALWAYS = 0x08, // a completion in any case; otherwise only on error
    VB_WQE_SOLICITED = 0x02,
};

struct vb_cqe {
    uint8_t reserved0[24];
    uint32_t flags_rqpn; // of datagrams: bits 29:28 set: a GRH comes first; 23:0 the sender's QPN
    uint8_t reserved28[4];
    uint32_t srqn_uidx;
    uint32_t imm_inval_pkey;
    uint8_t reserved40[4];
    uint32_t byte_cnt;
    union {
        uint64_t timestamp;
        struct {
            uint8_t reserved48[6];
            uint8_t vendor_syndrome;
            uint8_t syndrome; // enum vb_cqe_syndrome, in error entries
        };
    };
    uint32_t sop_drop_qpn; // bits 31:24 the send opcode, 23:0 the QPN
    uint16_t wqe_counter;
    uint8_t signature;
    uint8_t op_own; // opcode in bits 7:4, solicited in bit 1, owner in bit 0
};

enum vb_cqe_opcode {
    VB_CQE_REQ = 0,
    VB_CQE_RESP_WR_IMM = 1,
    VB_CQE_RESP_SEND = 2,
    VB_CQE_RESP_SEND_IMM = 3,
    VB_CQE_RESP_SEND_INV = 4,
    VB_CQE_REQ_ERR = 13,
    VB_CQE_RESP_ERR = 14,
    VB_CQE_INVALID = 15,
};

enum vb_cqe_syndrome {
    VB_SYN_OK = 0x00, // never on the ring: a success entry has no syndrome
    VB_SYN_LOCAL_LENGTH = 0x01,
    VB_SYN_LOCAL_QP_OP = 0x02,
    VB_SYN_LOCAL_PROT = 0x04,
    VB_SYN_FLUSH = 0x05,
    VB_SYN_BIND = 0x06,
    VB_SYN_BAD_RESP = 0x10,
    VB_SYN_LOCAL_ACCESS = 0x11,
    VB_SYN_REMOTE_INVAL_REQ = 0x12,
    VB_SYN_REMOTE_ACCESS = 0x13,
    VB_SYN_REMOTE_OP = 0x14,
    VB_SYN_RETRY_EXC = 0x15,
    VB_SYN_RNR_RETRY_EXC = 0x16,
};

// Doorbell record of a queue pair: producer counters, big-endian, 16 bits used.
enum {
    VB_DBREC_RQ = 0,
    VB_DBREC_SQ = 1
};
// Doorbell record of a completion queue: consumer counter, big-endian, 24 bits used; and the arm
// word.
enum {
    VB_DBREC_CQ_CI = 0,
    VB_DBREC_CQ_ARM = 1
};

// The arm word: a serial number in bits 29:28, so that no two requests in a row are equal, whether
// only solicited entries count in bit 24, and the consumer counter.
#define VB_DBREC_ARM_SERIAL    28
#define VB_DBREC_ARM_SOLICITED 0x01000000u

static_assert(sizeof(struct vb_wqe_ctrl) == 16, "ctrl segment");
static_assert(sizeof(struct vb_wqe_raddr) == 16, "raddr segment");
static_assert(sizeof(struct vb_wqe_atomic) == 16, "atomic segment");
static_assert(sizeof(struct vb_wqe_data) == 16, "data segment");
static_assert(sizeof(struct vb_wqe_masked_cs4) == 16, "masked atomic segment");
static_assert(sizeof(struct vb_wqe_masked_cs8) == 32, "masked atomic segments");
static_assert(sizeof(struct vb_wqe_datagram) == 48, "datagram segments");
static_assert(sizeof(struct vb_wqe_xrc) == 16, "XRC segment");
static_assert(sizeof(struct vb_wqe_srq_next) == 16, "next segment");
static_assert(sizeof(struct vb_wqe_umr) == 48, "UMR segments");
static_assert(sizeof(struct vb_wqe_mkey) == 64, "memory key segments");
static_assert(sizeof(struct vb_wqe_wait) == 16, "wait segment");
static_assert(sizeof(struct vb_cqe) == VB_CQE_BYTES, "completion entry");

#endif
