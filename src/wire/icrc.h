// SPDX-License-Identifier: Apache-2.0
// The invariant CRC of RoCE v2 (annex A17): generated, checked, and solved for the IPv4
// identification when a plain socket could not see it.
//
// The ICRC covers a masked pseudo header (8 bytes of ones, IP, UDP) and the frame from the BTH to
// the end of the pad. A *flow* holds the CRC of the pseudo header for one 4-tuple; the length and
// the identification enter by linearity, so sealing a frame costs one pass over its bytes.
#ifndef VB_WIRE_ICRC_H
#define VB_WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Lengths of a frame (BTH to ICRC): the least is a bare BTH, the most what an IPv4 datagram holds.
#define VB_ICRC_FRAME_MIN 16u
#define VB_ICRC_FRAME_MAX 65507u

struct vb_icrc_flow {
    uint32_t base; // CRC of the pseudo header with zero lengths and identification
    bool ipv6;
    // memos of the last length seen, so that a run of equal frames pays for it once; 0: none yet
    uint32_t memo_len;
    uint32_t memo_base;
    uint32_t unshift_len; // likewise, for solving
    uint32_t unshift;
};

// Addresses in network order (4 or 16 bytes), ports in host order. IPv4: DF set, no options.
void vb_icrc_flow_init_v4(struct vb_icrc_flow *flow, const uint8_t src[4], const uint8_t dst[4],
                          uint16_t src_port, uint16_t dst_port);
void vb_icrc_flow_init_v6(struct vb_icrc_flow *flow, const uint8_t src[16], const uint8_t dst[16],
                          uint16_t src_port, uint16_t dst_port);

// Writes the ICRC into the last four of `len` bytes (BTH … pad, ICRC; VB_ICRC_FRAME_MIN to _MAX).
// `id` is the IPv4 identification the packet will carry (ignored for IPv6).
void vb_icrc_seal(struct vb_icrc_flow *flow, uint16_t id, uint8_t *frame, size_t len);

// The same for a frame in three places: `head`, `body` of any length, and `tail`, whose last four
// bytes the ICRC is. `head` holds at least the BTH.
void vb_icrc_seal_parts(struct vb_icrc_flow *flow, uint16_t id, const uint8_t *head,
                        size_t head_len, const uint8_t *body, size_t body_len, uint8_t *tail,
                        size_t tail_len);

enum vb_icrc_verdict {
    VB_ICRC_BAD,
    VB_ICRC_EXACT,  // right for the identification that was guessed
    VB_ICRC_SOLVED, // right for another identification, found by solving; 15 bits of check remain
};

// Checks the last four bytes. Tries `guess`; otherwise, over IPv4, solves for the identification
// (DF set or clear). Unless BAD, *id is then the identification that fits (over IPv6 the guess, and
// nothing is SOLVED). Any bytes, any len are safe.
enum vb_icrc_verdict vb_icrc_check(struct vb_icrc_flow *flow, uint16_t guess, const uint8_t *frame,
                                   size_t len, uint16_t *id);

#endif
