// SPDX-License-Identifier: Apache-2.0
// The receiving half of a stream. What a peer says is held against what it was granted.
#include "rsocket/stream.h"

#include <string.h>

static uint32_t next(const struct vb_rs_stream *s, uint32_t at)
{
    return at == s->size.rq ? 0 : at + 1;
}

static bool receive_data(struct vb_rs_stream *s, uint32_t bytes)
{
    struct vb_rs_receiving *r = &s->recv;

    if (bytes > r->granted || next(s, r->tail) == r->head)
        return false;
    if (!bytes) {
        r->seq++; // nothing to read, so it counts as read
        return true;
    }
    r->granted -= bytes;
    r->ready_bytes += bytes;
    s->memory.messages[r->tail] = bytes;
    r->tail = next(s, r->tail);
    return true;
}

static bool receive_control(struct vb_rs_stream *s, uint32_t what)
{
    if (what == VB_RS_DISCONNECT) {
        s->peer_ended = true;
        vb_rs_stream_cut(s);
    } else if (what == VB_RS_SHUTDOWN) {
        s->peer_ended = true;
        s->may_read = false;
        vb_rs_stream_settle(s); // what we sent last may still be on its way
    }
    return true; // keep-alives, and what later versions may say
}

bool vb_rs_received(struct vb_rs_stream *s, uint32_t message)
{
    uint32_t value = vb_rs_message_value(message);

    switch (vb_rs_message_op(message)) {
    case VB_RS_DATA: return receive_data(s, value);
    case VB_RS_SGL: s->send.limit = (uint16_t)value; return true;
    case VB_RS_IOMAP:
        s->recv.seq++; // senders count it, and nobody reads it
        return value < s->size.iomaps;
    case VB_RS_CTRL: return receive_control(s, value);
    default: return false;
    }
}

size_t vb_rs_peek(const struct vb_rs_stream *s, size_t skip_bytes, void *to, size_t len_bytes)
{
    const struct vb_rs_receiving *r = &s->recv;

    if (skip_bytes >= r->ready_bytes)
        return 0;
    if (len_bytes > r->ready_bytes - skip_bytes)
        len_bytes = r->ready_bytes - skip_bytes;
    uint32_t at = (uint32_t)((r->at + skip_bytes) % s->size.recv_bytes);
    size_t first = s->size.recv_bytes - at;
    if (first > len_bytes)
        first = len_bytes;
    memcpy(to, s->memory.recv + at, first);
    memcpy((uint8_t *)to + first, s->memory.recv, len_bytes - first);
    return len_bytes;
}

// Messages whose last byte was read give their credits back.
static void consume(struct vb_rs_stream *s, uint32_t bytes)
{
    struct vb_rs_receiving *r = &s->recv;

    r->at = (r->at + bytes) % s->size.recv_bytes;
    r->ready_bytes -= bytes;
    r->free_bytes += bytes;
    while (bytes) {
        uint32_t *left = &s->memory.messages[r->head];
        uint32_t part = *left < bytes ? *left : bytes;
        *left -= part;
        bytes -= part;
        if (*left)
            break;
        r->head = next(s, r->head);
        r->seq++;
    }
}

size_t vb_rs_read(struct vb_rs_stream *s, void *to, size_t len_bytes)
{
    size_t got = vb_rs_peek(s, 0, to, len_bytes);
    consume(s, (uint32_t)got);
    return got;
}
