// SPDX-License-Identifier: Apache-2.0
// The table of BTH opcodes (clause 9.2, table 38): reliable connection only.
#include "wire/opcode.h"

#include "wire/roce.h"

#include <assert.h>

#define HEADER_BYTES(facts)                                                              \
    (VB_BTH_BYTES + ((facts)&VB_OP_RETH ? VB_RETH_BYTES : 0) +                           \
     ((facts)&VB_OP_AETH ? VB_AETH_BYTES : 0) + ((facts)&VB_OP_IMM ? VB_IMM_BYTES : 0) + \
     ((facts)&VB_OP_IETH ? VB_IETH_BYTES : 0) +                                          \
     ((facts)&VB_OP_ATOMIC_ETH ? VB_ATOMIC_ETH_BYTES : 0) +                              \
     ((facts)&VB_OP_ATOMIC_ACK_ETH ? VB_ATOMIC_ACK_BYTES : 0))

#define ROW(text, f)                                                                \
    {                                                                               \
        .name = (text), .facts = VB_OP_VALID | (f), .header_bytes = HEADER_BYTES(f) \
    }

#define ONLY      (VB_OP_FIRST | VB_OP_LAST)
#define SEND      (VB_OP_REQUEST | VB_OP_SEND | VB_OP_PAYLOAD)
#define WRITE     (VB_OP_REQUEST | VB_OP_WRITE | VB_OP_PAYLOAD)
#define READ_RESP (VB_OP_RESPONSE | VB_OP_READ | VB_OP_PAYLOAD)
#define ATOMIC    (VB_OP_REQUEST | VB_OP_ATOMIC | VB_OP_ATOMIC_ETH | ONLY)

// Acknowledgements are not parts of a message, so they are neither First nor Last.
const struct vb_opcode_info vb_opcode_table[256] = {
    [VB_RC_SEND_FIRST] = ROW("RC SEND First", SEND | VB_OP_FIRST),
    [VB_RC_SEND_MIDDLE] = ROW("RC SEND Middle", SEND),
    [VB_RC_SEND_LAST] = ROW("RC SEND Last", SEND | VB_OP_LAST),
    [VB_RC_SEND_LAST_IMM] = ROW("RC SEND Last with Immediate", SEND | VB_OP_LAST | VB_OP_IMM),
    [VB_RC_SEND_ONLY] = ROW("RC SEND Only", SEND | ONLY),
    [VB_RC_SEND_ONLY_IMM] = ROW("RC SEND Only with Immediate", SEND | ONLY | VB_OP_IMM),
    [VB_RC_WRITE_FIRST] = ROW("RC RDMA WRITE First", WRITE | VB_OP_FIRST | VB_OP_RETH),
    [VB_RC_WRITE_MIDDLE] = ROW("RC RDMA WRITE Middle", WRITE),
    [VB_RC_WRITE_LAST] = ROW("RC RDMA WRITE Last", WRITE | VB_OP_LAST),
    [VB_RC_WRITE_LAST_IMM] =
        ROW("RC RDMA WRITE Last with Immediate", WRITE | VB_OP_LAST | VB_OP_IMM),
    [VB_RC_WRITE_ONLY] = ROW("RC RDMA WRITE Only", WRITE | ONLY | VB_OP_RETH),
    [VB_RC_WRITE_ONLY_IMM] =
        ROW("RC RDMA WRITE Only with Immediate", WRITE | ONLY | VB_OP_RETH | VB_OP_IMM),
    [VB_RC_READ_REQUEST] =
        ROW("RC RDMA READ Request", VB_OP_REQUEST | VB_OP_READ | ONLY | VB_OP_RETH),
    [VB_RC_READ_RESP_FIRST] =
        ROW("RC RDMA READ response First", READ_RESP | VB_OP_FIRST | VB_OP_AETH),
    [VB_RC_READ_RESP_MIDDLE] = ROW("RC RDMA READ response Middle", READ_RESP),
    [VB_RC_READ_RESP_LAST] = ROW("RC RDMA READ response Last", READ_RESP | VB_OP_LAST | VB_OP_AETH),
    [VB_RC_READ_RESP_ONLY] = ROW("RC RDMA READ response Only", READ_RESP | ONLY | VB_OP_AETH),
    [VB_RC_ACK] = ROW("RC Acknowledge", VB_OP_RESPONSE | VB_OP_ACK | VB_OP_AETH),
    [VB_RC_ATOMIC_ACK] = ROW("RC ATOMIC Acknowledge",
                             VB_OP_RESPONSE | VB_OP_ATOMIC | VB_OP_AETH | VB_OP_ATOMIC_ACK_ETH),
    [VB_RC_COMPARE_SWAP] = ROW("RC CmpSwap", ATOMIC),
    [VB_RC_FETCH_ADD] = ROW("RC FetchAdd", ATOMIC),
    [VB_RC_SEND_LAST_INV] = ROW("RC SEND Last with Invalidate", SEND | VB_OP_LAST | VB_OP_IETH),
    [VB_RC_SEND_ONLY_INV] = ROW("RC SEND Only with Invalidate", SEND | ONLY | VB_OP_IETH),
};

static_assert(HEADER_BYTES(ATOMIC) == VB_HEADERS_MAX, "an atomic request has the longest headers");
