// SPDX-License-Identifier: Apache-2.0
// One RoCE v2 packet as the UDP payload carries it: headers to struct and back.
#ifndef VB_WIRE_PACKET_H
#define VB_WIRE_PACKET_H

#include "wire/opcode.h"
#include "wire/roce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_packet {
    uint8_t opcode;
    uint8_t syndrome; // AETH
    bool solicited;
    bool ack_request;
    bool becn, fecn;
    uint16_t pkey;
    uint32_t facts; // of the opcode
    uint32_t dest_qpn;
    uint32_t psn;
    uint32_t msn;           // AETH
    uint32_t rkey;          // RETH, AtomicETH
    uint64_t raddr;         // RETH, AtomicETH
    uint32_t dma_len;       // RETH
    uint32_t imm;           // immediate as the four wire bytes (no byte order); IETH: the key
    uint64_t swap_add;      // AtomicETH
    uint64_t compare;       // AtomicETH
    uint64_t atomic_old;    // AtomicAckETH
    const uint8_t *payload; // without pad
    uint32_t payload_len;
};

enum vb_decode {
    VB_DECODE_OK,
    VB_DECODE_SHORT,   // fewer bytes than the headers and the ICRC need
    VB_DECODE_VERSION, // TVer is not 0
    VB_DECODE_OPCODE,  // not an opcode we speak
    VB_DECODE_PKEY,    // not the default partition (full or limited membership)
    VB_DECODE_PAD,     // pad longer than the payload, length not a multiple of four (or more than a
                       // datagram holds), or payload where the opcode carries none
};

// Decodes `len` bytes of UDP payload, ICRC included (not verified here). `out->payload` points into
// `bytes`; fields that the opcode does not carry are zero. Never reads past `len`; on failure *out
// is unspecified.
enum vb_decode vb_packet_decode(const uint8_t *bytes, size_t len, struct vb_packet *out);

// Writes BTH and the extended headers that p->opcode calls for (p->facts is not consulted); the pad
// count is derived from p->payload_len. The opcode must be one we speak. Returns the header bytes
// written, at most VB_HEADERS_MAX.
size_t vb_packet_encode(uint8_t *dst, const struct vb_packet *p);

static inline uint32_t vb_packet_pad(uint32_t payload_len)
{
    return (4 - (payload_len & 3)) & 3;
}

#endif
