// SPDX-License-Identifier: Apache-2.0
// One end of a stream: buffers, credits, target lists, messages. It calls nobody: it says what is
// to be posted, and is told what completed and what came.
#ifndef VB_RSOCKET_STREAM_H
#define VB_RSOCKET_STREAM_H

#include "rsocket/wire.h"

struct vb_rs_sizes {
    uint32_t send_bytes, recv_bytes; // of the buffers; the receive buffer is used in two halves
    uint16_t sq, rq;                 // work requests
    uint16_t inline_bytes;
    uint16_t iomaps; // places for mappings that the peer makes
};

// Memory and keys of one end. list holds VB_RS_LIST_ENTRIES entries, then the mappings.
struct vb_rs_memory {
    uint8_t *send, *control; // control: one entry for each control slot
    uint8_t *recv;
    struct vb_rs_sge *list;
    struct vb_rs_iomap *iomaps;
    uint32_t *messages; // rq + 1 lengths
    uint32_t list_key, recv_key;
};

// A work request to be posted: a write, with immediate data if it is a message.
struct vb_rs_post {
    uint64_t id; // comes back with the completion
    uint64_t remote_addr;
    uint32_t rkey;
    uint32_t message;
    bool is_message, is_inline;
    uint32_t pieces;
    struct {
        uint8_t *data;
        uint32_t bytes;
    } piece[2];
};

struct vb_rs_sending {
    uint32_t at, free_bytes; // of the ring
    uint16_t slots;          // work requests that may still be posted
    uint16_t seq, limit;     // messages sent, and how far they may go
    uint32_t turn;           // entry of the list in use
    struct vb_rs_sge target; // what is left of it
    uint8_t control_free, control_at;
};

struct vb_rs_receiving {
    uint32_t at;         // first byte not read
    uint32_t freed_at;   // first byte to publish
    uint32_t free_bytes; // read, and not published
    uint32_t granted;    // published, and not written
    uint32_t ready_bytes;
    uint16_t seq, update_at; // messages read, and when the peer is to be told
    uint32_t head, tail;     // messages not read
    struct vb_rs_sge list;   // the peer's; bytes counts entries
    uint32_t turn;
};

struct vb_rs_stream {
    struct vb_rs_sizes size;
    struct vb_rs_memory memory;
    struct vb_rs_sending send;
    struct vb_rs_receiving recv;
    struct vb_rs_sge peer_iomaps; // bytes counts entries
    bool swap;                    // the peer's byte order is not ours
    bool connected, may_read, may_write;
    bool peer_ended; // it said that it sends no more
};

// Rounds sizes to what works.
void vb_rs_sizes_round(struct vb_rs_sizes *s);
size_t vb_rs_list_bytes(const struct vb_rs_sizes *s);
void vb_rs_stream_init(struct vb_rs_stream *s, const struct vb_rs_sizes *size,
                       const struct vb_rs_memory *memory);
void vb_rs_stream_hello(const struct vb_rs_stream *s, struct vb_rs_hello *h);
// The peer's private data came: the stream is connected.
void vb_rs_stream_connect(struct vb_rs_stream *s, const struct vb_rs_hello *peer);
// It broke, or was closed: nothing more comes or goes.
void vb_rs_stream_cut(struct vb_rs_stream *s);
// Cuts it once both directions have ended and all that was sent has arrived.
void vb_rs_stream_settle(struct vb_rs_stream *s);

// Sending. The takers reserve room, which the caller fills and posts; false or 0: not now.
bool vb_rs_can_send(struct vb_rs_stream *s);
bool vb_rs_has_room(const struct vb_rs_stream *s); // enough for direct writes, which need no credit
uint32_t vb_rs_take_data(struct vb_rs_stream *s, size_t want, struct vb_rs_post *post);
bool vb_rs_take_credit(struct vb_rs_stream *s, struct vb_rs_post *post);
bool vb_rs_take_control(struct vb_rs_stream *s, enum vb_rs_ctrl what, struct vb_rs_post *post);
bool vb_rs_take_iomap(struct vb_rs_stream *s, uint32_t index, const struct vb_rs_iomap *entry,
                      struct vb_rs_post *post);
// A write into what the peer mapped at the offset; 0 with *mapped false: nothing is mapped there.
uint32_t vb_rs_take_direct(struct vb_rs_stream *s, uint64_t offset, size_t want, bool *mapped,
                           struct vb_rs_post *post);
void vb_rs_sent(struct vb_rs_stream *s, uint64_t id);
bool vb_rs_all_sent(const struct vb_rs_stream *s);

// Receiving. False: the peer breaks the protocol.
bool vb_rs_received(struct vb_rs_stream *s, uint32_t message);
size_t vb_rs_read(struct vb_rs_stream *s, void *to, size_t len_bytes);
// Like reading, from the given byte on, but nothing is consumed.
size_t vb_rs_peek(const struct vb_rs_stream *s, size_t skip_bytes, void *to, size_t len_bytes);

#endif
