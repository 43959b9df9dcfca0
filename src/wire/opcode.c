// SPDX-License-Identifier: Apache-2.0
// The table of BTH opcodes (clause 9.2, table 38; annexes A14, A17 and A19): RC, UC, UD, XRC, CNP.
#include "wire/opcode.h"

#define BYTES_IF(facts, fact, bytes) ((facts) & (fact) ? (bytes) : 0)
#define HEADER_BYTES(f)                                                                \
    (VB_BTH_BYTES + BYTES_IF(f, VB_OP_XRCETH, VB_XRCETH_BYTES) +                       \
     BYTES_IF(f, VB_OP_DETH, VB_DETH_BYTES) + BYTES_IF(f, VB_OP_FETH, VB_FETH_BYTES) + \
     BYTES_IF(f, VB_OP_RETH, VB_RETH_BYTES) + BYTES_IF(f, VB_OP_AETH, VB_AETH_BYTES) + \
     BYTES_IF(f, VB_OP_IMM, VB_IMM_BYTES) + BYTES_IF(f, VB_OP_IETH, VB_IETH_BYTES) +   \
     BYTES_IF(f, VB_OP_ATOMIC_ETH, VB_ATOMIC_ETH_BYTES) +                              \
     BYTES_IF(f, VB_OP_ATOMIC_ACK_ETH, VB_ATOMIC_ACK_BYTES) +                          \
     BYTES_IF(f, VB_OP_MASKED_ETH, VB_MASKED_ATOMIC_BYTES) +                           \
     BYTES_IF(f, VB_OP_CNP, VB_CNP_RESERVED_BYTES))

#define ROW(code, tp, text, f)           \
    [code] = {                           \
        .name = (text),                  \
        .facts = VB_OP_VALID | (f),      \
        .header_bytes = HEADER_BYTES(f), \
        .transport = (tp),               \
    }

#define ONLY      (VB_OP_FIRST | VB_OP_LAST)
#define SEND      (VB_OP_REQUEST | VB_OP_SEND | VB_OP_PAYLOAD)
#define WRITE     (VB_OP_REQUEST | VB_OP_WRITE | VB_OP_PAYLOAD)
#define READ_RESP (VB_OP_RESPONSE | VB_OP_READ | VB_OP_PAYLOAD)
#define ATOMIC    (VB_OP_REQUEST | VB_OP_ATOMIC | ONLY)
#define MASKED    (ATOMIC | VB_OP_MASKED_ETH)
#define DATAGRAM  (SEND | ONLY | VB_OP_DETH)

// What all connected transports have. `more` are the facts that the transport adds to a request.
#define CONNECTED_ROWS(base, tp, text, more)                                                      \
    ROW((base) + VB_RC_SEND_FIRST, tp, text " SEND First", SEND | VB_OP_FIRST | (more)),          \
        ROW((base) + VB_RC_SEND_MIDDLE, tp, text " SEND Middle", SEND | (more)),                  \
        ROW((base) + VB_RC_SEND_LAST, tp, text " SEND Last", SEND | VB_OP_LAST | (more)),         \
        ROW((base) + VB_RC_SEND_LAST_IMM, tp, text " SEND Last with Immediate",                   \
            SEND | VB_OP_LAST | VB_OP_IMM | (more)),                                              \
        ROW((base) + VB_RC_SEND_ONLY, tp, text " SEND Only", SEND | ONLY | (more)),               \
        ROW((base) + VB_RC_SEND_ONLY_IMM, tp, text " SEND Only with Immediate",                   \
            SEND | ONLY | VB_OP_IMM | (more)),                                                    \
        ROW((base) + VB_RC_WRITE_FIRST, tp, text " RDMA WRITE First",                             \
            WRITE | VB_OP_FIRST | VB_OP_RETH | (more)),                                           \
        ROW((base) + VB_RC_WRITE_MIDDLE, tp, text " RDMA WRITE Middle", WRITE | (more)),          \
        ROW((base) + VB_RC_WRITE_LAST, tp, text " RDMA WRITE Last", WRITE | VB_OP_LAST | (more)), \
        ROW((base) + VB_RC_WRITE_LAST_IMM, tp, text " RDMA WRITE Last with Immediate",            \
            WRITE | VB_OP_LAST | VB_OP_IMM | (more)),                                             \
        ROW((base) + VB_RC_WRITE_ONLY, tp, text " RDMA WRITE Only",                               \
            WRITE | ONLY | VB_OP_RETH | (more)),                                                  \
        ROW((base) + VB_RC_WRITE_ONLY_IMM, tp, text " RDMA WRITE Only with Immediate",            \
            WRITE | ONLY | VB_OP_RETH | VB_OP_IMM | (more))

// What the reliable ones have besides. Acknowledgements are not parts of a message, so they are
// neither First nor Last.
#define RELIABLE_ROWS(base, tp, text, more)                                                        \
    ROW((base) + VB_RC_READ_REQUEST, tp, text " RDMA READ Request",                                \
        VB_OP_REQUEST | VB_OP_READ | ONLY | VB_OP_RETH | (more)),                                  \
        ROW((base) + VB_RC_READ_RESP_FIRST, tp, text " RDMA READ response First",                  \
            READ_RESP | VB_OP_FIRST | VB_OP_AETH),                                                 \
        ROW((base) + VB_RC_READ_RESP_MIDDLE, tp, text " RDMA READ response Middle", READ_RESP),    \
        ROW((base) + VB_RC_READ_RESP_LAST, tp, text " RDMA READ response Last",                    \
            READ_RESP | VB_OP_LAST | VB_OP_AETH),                                                  \
        ROW((base) + VB_RC_READ_RESP_ONLY, tp, text " RDMA READ response Only",                    \
            READ_RESP | ONLY | VB_OP_AETH),                                                        \
        ROW((base) + VB_RC_ACK, tp, text " Acknowledge", VB_OP_RESPONSE | VB_OP_ACK | VB_OP_AETH), \
        ROW((base) + VB_RC_ATOMIC_ACK, tp, text " ATOMIC Acknowledge",                             \
            VB_OP_RESPONSE | VB_OP_ATOMIC | VB_OP_AETH | VB_OP_ATOMIC_ACK_ETH),                    \
        ROW((base) + VB_RC_COMPARE_SWAP, tp, text " CmpSwap", ATOMIC | VB_OP_ATOMIC_ETH | (more)), \
        ROW((base) + VB_RC_FETCH_ADD, tp, text " FetchAdd", ATOMIC | VB_OP_ATOMIC_ETH | (more)),   \
        ROW((base) + VB_RC_SEND_LAST_INV, tp, text " SEND Last with Invalidate",                   \
            SEND | VB_OP_LAST | VB_OP_IETH | (more)),                                              \
        ROW((base) + VB_RC_SEND_ONLY_INV, tp, text " SEND Only with Invalidate",                   \
            SEND | ONLY | VB_OP_IETH | (more))

const struct vb_opcode_info vb_opcode_table[256] = {
    CONNECTED_ROWS(0, VB_TP_RC, "RC", 0),
    RELIABLE_ROWS(0, VB_TP_RC, "RC", 0),
    ROW(VB_RC_FLUSH, VB_TP_RC, "RC FLUSH",
        VB_OP_REQUEST | VB_OP_FLUSH | ONLY | VB_OP_FETH | VB_OP_RETH),
    ROW(VB_RC_ATOMIC_WRITE, VB_TP_RC, "RC ATOMIC WRITE",
        VB_OP_REQUEST | VB_OP_ATOMIC_WRITE | ONLY | VB_OP_RETH | VB_OP_PAYLOAD),
    ROW(VB_RC_MASKED_COMPARE_SWAP, VB_TP_RC, "RC masked CmpSwap", MASKED),
    ROW(VB_RC_MASKED_FETCH_ADD, VB_TP_RC, "RC masked FetchAdd", MASKED),
    CONNECTED_ROWS(VB_UC_BASE, VB_TP_UC, "UC", 0),
    ROW(VB_UD_SEND_ONLY, VB_TP_UD, "UD SEND Only", DATAGRAM),
    ROW(VB_UD_SEND_ONLY_IMM, VB_TP_UD, "UD SEND Only with Immediate", DATAGRAM | VB_OP_IMM),
    ROW(VB_CNP, VB_TP_CNP, "CNP", VB_OP_CNP),
    CONNECTED_ROWS(VB_XRC_BASE, VB_TP_XRC, "XRC", VB_OP_XRCETH),
    RELIABLE_ROWS(VB_XRC_BASE, VB_TP_XRC, "XRC", VB_OP_XRCETH),
};

static_assert(HEADER_BYTES(MASKED) == VB_HEADERS_MAX, "a masked atomic has the longest headers");
