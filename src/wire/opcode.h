// SPDX-License-Identifier: Apache-2.0
// What each of the 256 BTH opcodes means, as a table.
#ifndef VB_WIRE_OPCODE_H
#define VB_WIRE_OPCODE_H

#include "wire/roce.h"

#include <assert.h>
#include <stdint.h>

// Facts about an opcode. An opcode we do not speak has facts == 0.
enum vb_opcode_fact {
    VB_OP_VALID = 1 << 0,
    VB_OP_REQUEST = 1 << 1,  // goes to the responder
    VB_OP_RESPONSE = 1 << 2, // goes to the completer
    VB_OP_SEND = 1 << 3,
    VB_OP_WRITE = 1 << 4,
    VB_OP_READ = 1 << 5,   // the request and its responses
    VB_OP_ATOMIC = 1 << 6, // the requests and their acknowledgement
    VB_OP_FIRST = 1 << 7,  // starts a message (First and Only)
    VB_OP_LAST = 1 << 8,   // ends a message (Last and Only)
    VB_OP_PAYLOAD = 1 << 9,
    VB_OP_RETH = 1 << 10,
    VB_OP_AETH = 1 << 11,
    VB_OP_IMM = 1 << 12,
    VB_OP_IETH = 1 << 13,
    VB_OP_ATOMIC_ETH = 1 << 14,
    VB_OP_ATOMIC_ACK_ETH = 1 << 15,
    VB_OP_ACK = 1 << 16, // plain acknowledge
    VB_OP_FLUSH = 1 << 17,
    VB_OP_ATOMIC_WRITE = 1 << 18, // and neither an atomic nor a WRITE
    VB_OP_CNP = 1 << 19,          // congestion notification: neither request nor response
    VB_OP_DETH = 1 << 20,
    VB_OP_XRCETH = 1 << 21,
    VB_OP_FETH = 1 << 22,
    VB_OP_MASKED_ETH = 1 << 23,
};

enum vb_transport {
    VB_TP_RC,
    VB_TP_UC,
    VB_TP_UD,
    VB_TP_XRC,
    VB_TP_CNP,
};

struct vb_opcode_info {
    const char *name; // "RC SEND First"; NULL for an opcode we do not speak
    uint32_t facts;
    uint8_t header_bytes; // BTH and all extended headers
    uint8_t transport;    // enum vb_transport
};

static_assert(sizeof(struct vb_opcode_info) == 16, "a row is found by a shift");

extern const struct vb_opcode_info vb_opcode_table[256];

// The code of RC's operation on another transport. Not every transport has every operation: the
// table tells whether the result is an opcode we speak.
static inline uint8_t vb_opcode_for(enum vb_transport transport, uint8_t rc_opcode)
{
    static const uint8_t base[] = {
        [VB_TP_RC] = 0,
        [VB_TP_UC] = VB_UC_BASE,
        [VB_TP_UD] = VB_UD_BASE,
        [VB_TP_XRC] = VB_XRC_BASE,
        [VB_TP_CNP] = VB_CNP_BASE,
    };
    return base[transport] | rc_opcode;
}

#endif
