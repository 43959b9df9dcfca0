// SPDX-License-Identifier: Apache-2.0
// RoCE v2 on the wire: every header size, opcode, syndrome and limit in one place.
// Clause numbers are those of the InfiniBand Architecture Specification, volume 1.
#ifndef VB_WIRE_ROCE_H
#define VB_WIRE_ROCE_H

#include <assert.h>
#include <stdint.h>

#define VB_ROCE_UDP_PORT 4791
#define VB_PKEY_DEFAULT  0xffffu
#define VB_MESSAGE_MAX   0x80000000u // clause 9.3.3.1.3: DMA length up to 2 GiB

enum {
    VB_BTH_BYTES = 12,
    VB_RETH_BYTES = 16,
    VB_AETH_BYTES = 4,
    VB_IMM_BYTES = 4,
    VB_IETH_BYTES = 4,
    VB_DETH_BYTES = 8,
    VB_ATOMIC_ETH_BYTES = 28,
    VB_ATOMIC_ACK_BYTES = 8,
    VB_XRCETH_BYTES = 4,         // annex A14
    VB_FETH_BYTES = 4,           // annex A19
    VB_ATOMIC_WRITE_BYTES = 8,   // its payload, always (annex A19)
    VB_CNP_RESERVED_BYTES = 16,  // follow the BTH of a CNP (annex A17)
    VB_MASKED_ATOMIC_BYTES = 48, // ours: address, key, argument bytes, two arguments, two masks
    VB_ICRC_BYTES = 4,
    VB_MTU_MIN = 256,
    VB_MTU_MAX = 4096,
    // The longest header stack of the opcodes we speak: a masked atomic request's.
    VB_HEADERS_MAX = VB_BTH_BYTES + VB_MASKED_ATOMIC_BYTES,
    // The longest of one with a payload: an XRC WRITE's with immediate data.
    VB_PAYLOAD_HEADERS_MAX = VB_BTH_BYTES + VB_XRCETH_BYTES + VB_RETH_BYTES + VB_IMM_BYTES,
    VB_FRAME_MAX = VB_PAYLOAD_HEADERS_MAX + VB_MTU_MAX + VB_ICRC_BYTES,
};

// BTH opcodes (clause 9.2, table 38): the top three bits name the transport, the others the
// operation. UC and XRC share RC's operations: vb_opcode_for() finds their codes.
enum vb_opcode {
    VB_RC_SEND_FIRST = 0x00,
    VB_RC_SEND_MIDDLE = 0x01,
    VB_RC_SEND_LAST = 0x02,
    VB_RC_SEND_LAST_IMM = 0x03,
    VB_RC_SEND_ONLY = 0x04,
    VB_RC_SEND_ONLY_IMM = 0x05,
    VB_RC_WRITE_FIRST = 0x06,
    VB_RC_WRITE_MIDDLE = 0x07,
    VB_RC_WRITE_LAST = 0x08,
    VB_RC_WRITE_LAST_IMM = 0x09,
    VB_RC_WRITE_ONLY = 0x0a,
    VB_RC_WRITE_ONLY_IMM = 0x0b,
    VB_RC_READ_REQUEST = 0x0c,
    VB_RC_READ_RESP_FIRST = 0x0d,
    VB_RC_READ_RESP_MIDDLE = 0x0e,
    VB_RC_READ_RESP_LAST = 0x0f,
    VB_RC_READ_RESP_ONLY = 0x10,
    VB_RC_ACK = 0x11,
    VB_RC_ATOMIC_ACK = 0x12,
    VB_RC_COMPARE_SWAP = 0x13,
    VB_RC_FETCH_ADD = 0x14,
    VB_RC_SEND_LAST_INV = 0x16,
    VB_RC_SEND_ONLY_INV = 0x17,
    VB_RC_FLUSH = 0x1c,
    VB_RC_ATOMIC_WRITE = 0x1d,
    VB_UC_BASE = 0x20,
    VB_UD_BASE = 0x60,
    VB_UD_SEND_ONLY = 0x64,
    VB_UD_SEND_ONLY_IMM = 0x65,
    VB_CNP_BASE = 0x80,
    VB_CNP = 0x81,
    VB_XRC_BASE = 0xa0,
    // The standard has no masked atomics: these are of the range that it leaves to manufacturers.
    VB_RC_MASKED_COMPARE_SWAP = 0xc0,
    VB_RC_MASKED_FETCH_ADD = 0xc1,
};

// FETH (annex A19): bits 3:0 are a set of placement types, 5:4 the selectivity level.
enum vb_feth_type {
    VB_FETH_GLOBAL = 1 << 0, // visible to all
    VB_FETH_PERSISTENT = 1 << 1,
};

enum vb_feth_level {
    VB_FETH_RANGE = 0,  // what the RETH names
    VB_FETH_REGION = 1, // the whole region of the key
};

// AETH syndrome (clause 9.7.5.2.1): bits 6:5 select the kind, 4:0 carry its value.
enum vb_aeth_kind {
    VB_AETH_ACK = 0,
    VB_AETH_RNR = 1,
    VB_AETH_NAK = 3,
};

enum vb_nak {
    VB_NAK_PSN_SEQUENCE = 0,
    VB_NAK_INVALID_REQUEST = 1,
    VB_NAK_REMOTE_ACCESS = 2,
    VB_NAK_REMOTE_OPERATION = 3,
    VB_NAK_INVALID_RD = 4,
};

#define VB_AETH_CREDITS_INVALID 0x1fu // "no end-to-end flow control" (clause 9.7.7.2)

static inline uint8_t vb_aeth_syndrome(enum vb_aeth_kind kind, unsigned value)
{
    return (uint8_t)((unsigned)kind << 5 | (value & 0x1f));
}

static inline unsigned vb_aeth_kind_of(uint8_t syndrome)
{
    return (syndrome >> 5) & 3;
}

static inline unsigned vb_aeth_value_of(uint8_t syndrome)
{
    return syndrome & 0x1f;
}

#endif
