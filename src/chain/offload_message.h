// SPDX-License-Identifier: Apache-2.0
// Messages of the service of offloads, as the service reads and writes them. Big-endian; every kind
// has one length, but for regions that a place lists.
#ifndef VB_CHAIN_OFFLOAD_MESSAGE_H
#define VB_CHAIN_OFFLOAD_MESSAGE_H

#include "verbena/offload_service.h"

enum vb_offload_kind {
    VB_OFFLOAD_JOIN = 1,
    VB_OFFLOAD_LEAVE,
    VB_OFFLOAD_PLACE,
    VB_OFFLOAD_LEFT,
    VB_OFFLOAD_REFUSED,
};

enum {
    VB_OFFLOAD_HEAD = 12, // bytes: magic, version, kind, length
    VB_OFFLOAD_VERSION_NOW = 1,
};

struct vb_offload_request {
    enum vb_offload_kind kind; // VB_OFFLOAD_JOIN or VB_OFFLOAD_LEAVE
    struct vb_offload_join join;
    uint64_t ticket; // of a leave
};

// Bytes of the message that begins so; 0: none does. For who reads a stream.
uint32_t vb_offload_message_bytes(const uint8_t head[VB_OFFLOAD_HEAD]);
// 0, or why it is no request.
int vb_offload_read_request(const void *message, size_t len, struct vb_offload_request *request);
uint32_t vb_offload_write_place(uint8_t message[VB_OFFLOAD_MESSAGE],
                                const struct vb_offload_place *place);
uint32_t vb_offload_write_left(uint8_t message[VB_OFFLOAD_MESSAGE]);
uint32_t vb_offload_write_refused(uint8_t message[VB_OFFLOAD_MESSAGE], enum vb_offload_refusal why,
                                  const char *text);

#endif
