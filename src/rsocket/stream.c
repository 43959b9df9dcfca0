// SPDX-License-Identifier: Apache-2.0
// A stream's start and end.
#include "rsocket/stream.h"

#include <string.h>

enum {
    QUEUE_MIN = 16,
    QUEUE_MAX = 0xfffe, // credits are 16 bits, and a full circle would look empty
    SEND_MIN_BYTES = 4096,
    RECV_MIN_BYTES = 4096,
    BUFFER_MAX_BYTES = 1 << 30,
};

static uint32_t clamp(uint32_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : value;
}

void vb_rs_sizes_round(struct vb_rs_sizes *s)
{
    s->sq = (uint16_t)clamp(s->sq, QUEUE_MIN, QUEUE_MAX);
    s->rq = (uint16_t)clamp(s->rq, QUEUE_MIN, QUEUE_MAX);
    s->send_bytes = clamp(s->send_bytes, SEND_MIN_BYTES, BUFFER_MAX_BYTES);
    s->recv_bytes = clamp(s->recv_bytes, RECV_MIN_BYTES, BUFFER_MAX_BYTES) & ~1u;
    s->iomaps = vb_rs_unscale(vb_rs_scale(s->iomaps));
}

size_t vb_rs_list_bytes(const struct vb_rs_sizes *s)
{
    return VB_RS_LIST_ENTRIES * sizeof(struct vb_rs_sge) + s->iomaps * sizeof(struct vb_rs_iomap);
}

void vb_rs_stream_init(struct vb_rs_stream *s, const struct vb_rs_sizes *size,
                       const struct vb_rs_memory *memory)
{
    uint32_t half = size->recv_bytes / 2;

    memset(s, 0, sizeof *s);
    s->size = *size;
    s->memory = *memory;
    s->send.free_bytes = size->send_bytes;
    s->send.slots = (uint16_t)(size->sq - VB_RS_CONTROL_SLOTS);
    s->send.control_free = VB_RS_CONTROL_SLOTS;
    // The first half is published by the private data, the second by the first credit message.
    s->recv.freed_at = half;
    s->recv.free_bytes = half;
    s->recv.granted = half;
    s->recv.update_at = size->rq / 2;
}

void vb_rs_stream_hello(const struct vb_rs_stream *s, struct vb_rs_hello *h)
{
    *h = (struct vb_rs_hello){
        .credits = s->size.rq,
        .iomaps = s->size.iomaps,
        .big_endian = vb_rs_host_is_big_endian(),
        .list = {(uintptr_t)s->memory.list, s->memory.list_key, VB_RS_LIST_ENTRIES},
        .buffer = {(uintptr_t)s->memory.recv, s->memory.recv_key, s->size.recv_bytes / 2},
    };
}

void vb_rs_stream_connect(struct vb_rs_stream *s, const struct vb_rs_hello *peer)
{
    s->send.limit = peer->credits;
    s->send.target = peer->buffer;
    s->recv.list = peer->list;
    s->recv.turn = 1 % peer->list.bytes; // entry 0 stands for the buffer in the private data
    s->peer_iomaps = (struct vb_rs_sge){
        .addr = peer->list.addr + peer->list.bytes * sizeof(struct vb_rs_sge),
        .key = peer->list.key,
        .bytes = peer->iomaps,
    };
    s->swap = peer->big_endian != vb_rs_host_is_big_endian();
    s->connected = s->may_read = s->may_write = true;
}

void vb_rs_stream_cut(struct vb_rs_stream *s)
{
    s->connected = s->may_read = s->may_write = false;
}

void vb_rs_stream_settle(struct vb_rs_stream *s)
{
    if (s->peer_ended && !s->may_read && !s->may_write && vb_rs_all_sent(s))
        vb_rs_stream_cut(s);
}
