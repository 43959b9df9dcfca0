// SPDX-License-Identifier: Apache-2.0
// One RoCE v2 packet as the UDP payload carries it: headers to struct and back.
#ifndef VB_WIRE_PACKET_H
#define VB_WIRE_PACKET_H

#include "base/bytes.h"
#include "wire/opcode.h"
#include "wire/roce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vb_mark {
    VB_MARK_BECN = 1 << 0,
    VB_MARK_FECN = 1 << 1,
};

// What every packet has comes first; what not every opcode carries follows in one run.
struct vb_packet {
    uint8_t opcode;
    uint8_t transport; // of the opcode: enum vb_transport
    bool solicited;
    bool ack_request;
    uint16_t marks; // of congestion: set of enum vb_mark
    uint16_t pkey;
    uint32_t facts; // of the opcode
    uint32_t dest_qpn;
    uint32_t psn;
    uint32_t payload_len;
    const uint8_t *payload; // without pad

    uint8_t syndrome;      // AETH
    uint8_t flush_type;    // FETH: set of enum vb_feth_type, 4 bits
    uint8_t flush_level;   // FETH: enum vb_feth_level, 2 bits
    uint8_t atomic_bytes;  // masked atomic: 4 or 8
    uint32_t msn;          // AETH
    uint32_t rkey;         // RETH, AtomicETH, masked atomic
    uint32_t dma_len;      // RETH
    uint64_t raddr;        // RETH, AtomicETH, masked atomic
    uint32_t imm;          // immediate as the four wire bytes (no byte order); IETH: the key
    uint32_t xrc_srqn;     // XRCETH
    uint64_t swap_add;     // AtomicETH, masked atomic
    uint64_t compare;      // AtomicETH, masked atomic (FetchAdd: the field boundaries)
    uint64_t atomic_old;   // AtomicAckETH
    uint32_t qkey;         // DETH
    uint32_t src_qpn;      // DETH
    uint64_t swap_mask;    // masked atomic (FetchAdd: 0)
    uint64_t compare_mask; // masked atomic (FetchAdd: 0)
};

enum vb_decode {
    VB_DECODE_OK,
    VB_DECODE_SHORT,   // fewer bytes than the headers and the ICRC need
    VB_DECODE_VERSION, // TVer is not 0
    VB_DECODE_OPCODE,  // not an opcode we speak
    VB_DECODE_PKEY,    // not the default partition (full or limited membership)
    VB_DECODE_PAD,     // pad longer than the payload, length not a multiple of four (or more than a
                       // datagram holds), payload where the opcode carries none, or an ATOMIC
                       // WRITE of other than eight bytes
    VB_DECODE_FIELD,   // a masked atomic whose arguments have neither four nor eight bytes
};

// Decodes `len` bytes of UDP payload, ICRC included (not verified here). `out->payload` points into
// `bytes`; fields that the opcode does not carry are zero. Never reads past `len`; on failure *out
// is unspecified.
enum vb_decode vb_packet_decode(const uint8_t *bytes, size_t len, struct vb_packet *out);

// Writes BTH and the extended headers that p->opcode calls for (p->facts is not consulted); the pad
// count is derived from p->payload_len. The opcode must be one we speak. Returns the header bytes
// written, at most VB_HEADERS_MAX.
size_t vb_packet_encode(uint8_t *dst, const struct vb_packet *p);

// The BTH as three words: opcode, flags, pad and partition; destination; flag and number.
#define VB_BTH_SOLICITED   (1u << 23)
#define VB_BTH_MIGREQ      (1u << 22) // always set: the path is the primary one
#define VB_BTH_PAD_SHIFT   20
#define VB_BTH_ACK_REQUEST (1u << 31)

static inline void vb_bth_write(uint8_t *dst, uint32_t first, uint32_t dest_qpn, uint32_t third)
{
    vb_put_be32(dst, first);
    vb_put_be32(dst + 4, dest_qpn);
    vb_put_be32(dst + 8, third);
}

static inline void vb_reth_write(uint8_t *dst, uint64_t raddr, uint32_t rkey, uint32_t len)
{
    vb_put_be64(dst, raddr);
    vb_put_be32(dst + 8, rkey);
    vb_put_be32(dst + 12, len);
}

static inline uint32_t vb_packet_pad(uint32_t payload_len)
{
    return (4 - (payload_len & 3)) & 3;
}

#endif
