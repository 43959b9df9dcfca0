// SPDX-License-Identifier: Apache-2.0
// Messages of the communication manager: management datagrams (MADs) of 256 bytes, as chapter 12 of
// the InfiniBand specification has them. Pure and stateless; bytes are a stranger's.
#ifndef VB_CM_MESSAGE_H
#define VB_CM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_MAD_BYTES = 256,
    VB_MAD_HEADER_BYTES = 24,
    VB_MAD_DATA_BYTES = VB_MAD_BYTES - VB_MAD_HEADER_BYTES,
    VB_MAD_BASE_VERSION = 1,
    VB_MAD_CLASS_CM = 0x07,
    VB_MAD_CLASS_VERSION_CM = 2,
    VB_MAD_METHOD_SEND = 0x03,
    VB_GSI_QPN = 1, // where all of them are sent to, and from
    VB_CM_PRIVATE_MAX = 224,
    VB_CM_INFO_MAX = 72, // additional information of a refusal
    VB_CM_PKEY = 0xffff,
};

#define VB_GSI_QKEY 0x80010000u

// Attribute identifiers.
enum vb_cm_kind {
    VB_CM_REQ = 0x10,
    VB_CM_MRA = 0x11,
    VB_CM_REJ = 0x12,
    VB_CM_REP = 0x13,
    VB_CM_RTU = 0x14,
    VB_CM_DREQ = 0x15,
    VB_CM_DREP = 0x16,
    VB_CM_SIDR_REQ = 0x17,
    VB_CM_SIDR_REP = 0x18,
    VB_CM_LAP = 0x19,
    VB_CM_APR = 0x1a,
    VB_CM_KIND_FIRST = VB_CM_REQ,
    VB_CM_KIND_LAST = VB_CM_APR,
    VB_CM_KINDS = VB_CM_KIND_LAST - VB_CM_KIND_FIRST + 1,
};

// What a MRA or a REJ is about (tables 107 and 108).
enum vb_cm_about {
    VB_CM_ABOUT_REQ,
    VB_CM_ABOUT_REP,
    VB_CM_ABOUT_OTHER,
};

// Reasons of a REJ (table 109).
enum vb_cm_reason {
    VB_CM_NO_QP = 1,
    VB_CM_NO_EEC = 2,
    VB_CM_NO_RESOURCES = 3,
    VB_CM_TIMEOUT = 4,
    VB_CM_UNSUPPORTED = 5,
    VB_CM_INVALID_ID = 6,
    VB_CM_INVALID_INSTANCE = 7,
    VB_CM_INVALID_SERVICE = 8,
    VB_CM_INVALID_TRANSPORT = 9,
    VB_CM_STALE = 10,
    VB_CM_INVALID_GID = 12,
    VB_CM_INVALID_MTU = 26,
    VB_CM_CONSUMER = 28,
    VB_CM_DUPLICATE_ID = 30,
};

enum vb_cm_transport {
    VB_CM_RC,
    VB_CM_UC,
    VB_CM_RD,
    VB_CM_EXTENDED, // of the extended type
};

enum {
    VB_CM_EXTENDED_XRC = 1
};

// Status of a SIDR_REP (table 121) and of an APR (table 117).
enum vb_sidr_status {
    VB_SIDR_OK,
    VB_SIDR_UNSUPPORTED, // no such service
    VB_SIDR_REJECTED,
    VB_SIDR_NO_QP,
};

enum vb_apr_status {
    VB_APR_OK,
    VB_APR_INVALID_ID,
    VB_APR_UNSUPPORTED,
};

struct vb_cm_path {
    uint16_t local_lid, remote_lid;
    uint8_t local_gid[16], remote_gid[16];
    uint32_t flow_label;
    uint8_t rate, traffic_class, hop_limit, sl, subnet_local;
    uint8_t ack_timeout; // of the local side, 4.096 us * 2^x
};

// Of psn, here and in a REP: the receiver of the message begins to send with it.
struct vb_cm_req {
    uint64_t service_id, ca_guid;
    uint32_t vendor_id; // of enhanced connection establishment (ECE)
    uint32_t qkey, qpn, psn, local_eec, remote_eec;
    uint16_t pkey;
    uint8_t responder_resources, initiator_depth;
    uint8_t remote_timeout, local_timeout; // within which the peer and we answer, 4.096 us * 2^x
    uint8_t transport, extended_transport;
    uint8_t flow_control, retries, rnr_retries, max_cm_retries, srq, rdc_exists, sap_supported;
    uint8_t mtu; // 1: 256 bytes to 5: 4096
    struct vb_cm_path primary, alternate;
};

struct vb_cm_mra {
    uint8_t about, service_timeout;
};

struct vb_cm_rej {
    uint16_t reason;
    uint8_t about, info_len;
    uint8_t info[VB_CM_INFO_MAX];
};

struct vb_cm_rep {
    uint64_t ca_guid;
    uint32_t vendor_id;
    uint32_t qkey, qpn, local_eec, psn;
    uint8_t responder_resources, initiator_depth, target_ack_delay, failover, flow_control;
    uint8_t rnr_retries, srq;
};

struct vb_cm_dreq {
    uint32_t remote_qpn;
};

struct vb_cm_lap {
    uint32_t remote_qpn;
    uint8_t remote_timeout;
};

struct vb_cm_apr {
    uint8_t status, info_len;
    uint8_t info[VB_CM_INFO_MAX];
};

struct vb_sidr_req {
    uint64_t service_id;
    uint16_t pkey;
};

struct vb_sidr_rep {
    uint64_t service_id;
    uint32_t vendor_id, qpn, qkey;
    uint8_t status, info_len;
    uint8_t info[VB_CM_INFO_MAX];
};

struct vb_cm_message {
    enum vb_cm_kind kind;
    uint32_t attr_mod; // of ECE: the vendor's options
    uint64_t tid;
    uint32_t local_id, remote_id; // the sender's, and the receiver's; of SIDR the request's is
                                  // local
    union {
        struct vb_cm_req req;
        struct vb_cm_mra mra;
        struct vb_cm_rej rej;
        struct vb_cm_rep rep;
        struct vb_cm_dreq dreq;
        struct vb_cm_lap lap;
        struct vb_cm_apr apr;
        struct vb_sidr_req sidr_req;
        struct vb_sidr_rep sidr_rep;
    };
    uint8_t private_data[VB_CM_PRIVATE_MAX]; // as long as the kind has it; the rest is zero
};

enum vb_cm_verdict {
    VB_CM_DECODE_OK,
    VB_CM_DECODE_LENGTH,
    VB_CM_DECODE_CLASS,     // another class of management, or another version
    VB_CM_DECODE_METHOD,    // not SEND
    VB_CM_DECODE_ATTRIBUTE, // no message of the communication manager
    VB_CM_DECODE_FIELD,     // a length within is too long
};

// One field of a message: where it is, and where it goes. `whole` bytes are copied as they are.
struct vb_cm_field {
    uint16_t byte; // of the 232 behind the header
    uint8_t bit;   // counted from the byte's highest
    uint8_t width; // in bits; 0: `whole` bytes
    uint16_t whole;
    uint16_t offset, size; // in struct vb_cm_message
};

struct vb_cm_layout {
    const char *name;
    const struct vb_cm_field *field;
    uint32_t fields;
    uint16_t private_at, private_len;
};

// NULL: no such kind.
const struct vb_cm_layout *vb_cm_layout(enum vb_cm_kind kind);

// Values that are too wide for their field lose their upper bits; reserved bits are zero.
void vb_cm_encode(const struct vb_cm_message *m, uint8_t mad[VB_MAD_BYTES]);
enum vb_cm_verdict vb_cm_decode(const uint8_t *mad, size_t len, struct vb_cm_message *m);

uint32_t vb_cm_private_len(enum vb_cm_kind kind); // 0: no such kind
const char *vb_cm_kind_text(enum vb_cm_kind kind);
const char *vb_cm_reason_text(uint16_t reason);

// The time of an exponent (5 bits).
static inline uint64_t vb_cm_time_ns(uint8_t exponent)
{
    return 4096ull << (exponent & 31);
}

#endif
