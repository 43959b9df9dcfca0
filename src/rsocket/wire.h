// SPDX-License-Identifier: Apache-2.0
// The bytes of rsockets: what connections exchange as private data, messages of 32 bits in
// immediate data, entries that one end writes into the other's lists, headers of datagrams.
#ifndef VB_RSOCKET_WIRE_H
#define VB_RSOCKET_WIRE_H

#include <assert.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_RS_VERSION = 1,
    VB_RS_HELLO_BYTES = 40,
    VB_RS_LIST_ENTRIES = 2,     // places for receive buffers in a target list
    VB_RS_CONTROL_SLOTS = 4,    // control messages in flight, outside of credits
    VB_RS_TRANSFER_MAX = 65536, // bytes of one message
    VB_RS_IOMAPS_MAX = 127 << 8,
    VB_RS_UDP_HEADER4 = 16, // of datagrams through the UDP socket
    VB_RS_UDP_HEADER6 = 28,
    VB_RS_UD_HEADER4 = 8, // of datagrams through the UD queue pair
    VB_RS_UD_HEADER6 = 24,
};

// Bits 31 to 29 of a message.
enum vb_rs_op {
    VB_RS_DATA = 0,  // bytes written
    VB_RS_WRITE = 2, // only in work request ids
    VB_RS_SGL = 4,   // sequence number up to which messages may come
    VB_RS_IOMAP = 6, // index of the changed mapping
    VB_RS_CTRL = 7,
};

enum vb_rs_ctrl {
    VB_RS_DISCONNECT = 0,
    VB_RS_KEEPALIVE = 1,
    VB_RS_SHUTDOWN = 2,
};

// As it stands in a target list, in the byte order of the list's owner.
struct vb_rs_sge {
    uint64_t addr;
    uint32_t key;
    uint32_t bytes;
};

struct vb_rs_iomap {
    uint64_t offset;
    struct vb_rs_sge sge;
};

static_assert(sizeof(struct vb_rs_sge) == 16, "layout of the wire");
static_assert(sizeof(struct vb_rs_iomap) == 24, "layout of the wire");

// Private data of a connection, decoded.
struct vb_rs_hello {
    uint16_t credits;
    uint16_t iomaps;         // places for mappings behind the target list
    bool big_endian;         // of the list's owner
    struct vb_rs_sge list;   // bytes counts entries
    struct vb_rs_sge buffer; // the first half of the receive buffer
};

struct vb_rs_udp_header {
    uint8_t op; // enum vb_rs_op: data, or control, which only tells the queue pair
    uint32_t qpn;
};

static inline uint32_t vb_rs_message(enum vb_rs_op op, uint32_t value)
{
    return (uint32_t)op << 29 | (value & 0x1fffffff);
}

static inline enum vb_rs_op vb_rs_message_op(uint32_t message)
{
    return (enum vb_rs_op)(message >> 29);
}

static inline uint32_t vb_rs_message_value(uint32_t message)
{
    return message & 0x1fffffff;
}

bool vb_rs_host_is_big_endian(void);
struct vb_rs_sge vb_rs_sge_swap(struct vb_rs_sge sge);

// Numbers of mappings that eight bits can say: all up to 128, then multiples of 256.
uint8_t vb_rs_scale(uint32_t value);
uint16_t vb_rs_unscale(uint8_t scale);

void vb_rs_hello_encode(const struct vb_rs_hello *h, uint8_t out[VB_RS_HELLO_BYTES]);
// False: too short, of another version, or with numbers that cannot be.
bool vb_rs_hello_decode(const void *bytes, size_t len_bytes, struct vb_rs_hello *h);

// Returns the header's length; the address is the sender's queue pair's own.
size_t vb_rs_udp_encode(const struct vb_rs_udp_header *h, const struct sockaddr *own,
                        uint8_t out[VB_RS_UDP_HEADER6]);
// Returns the header's length, 0 if this is none for the family.
size_t vb_rs_udp_decode(const void *bytes, size_t len_bytes, int family,
                        struct vb_rs_udp_header *h);

size_t vb_rs_ud_encode(const struct sockaddr *own, uint8_t out[VB_RS_UD_HEADER6]);
// Returns the header's length, 0 if this is none; the address is the sender's.
size_t vb_rs_ud_decode(const void *bytes, size_t len_bytes, struct sockaddr_storage *from);

#endif
