// SPDX-License-Identifier: Apache-2.0
// What each of the 256 BTH opcodes means, as a table.
#ifndef VB_WIRE_OPCODE_H
#define VB_WIRE_OPCODE_H

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
};

struct vb_opcode_info {
    const char *name; // "RC SEND First"; NULL for an opcode we do not speak
    uint32_t facts;
    uint8_t header_bytes; // BTH and all extended headers
};

extern const struct vb_opcode_info vb_opcode_table[256];

#endif
