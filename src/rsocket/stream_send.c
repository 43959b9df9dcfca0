// SPDX-License-Identifier: Apache-2.0
// The sending half of a stream: what may be posted now, and what a completion gives back.
#include "rsocket/stream.h"

#include <string.h>

enum {
    LOW_WATER_BYTES = 2048
}; // less free room than this is not worth a message

// The peer writes the list while we look: key and length are one word, which it writes last.
static struct vb_rs_sge load(const struct vb_rs_sge *at)
{
    struct vb_rs_sge sge;
    uint64_t word = __atomic_load_n((const uint64_t *)(const void *)&at->key, __ATOMIC_ACQUIRE);

    sge.addr = __atomic_load_n(&at->addr, __ATOMIC_ACQUIRE);
    memcpy(&sge.key, &word, sizeof word);
    return sge;
}

// Makes the next entry of the list the target, if the peer has filled it.
static bool has_target(struct vb_rs_stream *s)
{
    struct vb_rs_sending *d = &s->send;

    if (d->target.bytes)
        return true;
    uint32_t next = (d->turn + 1) % VB_RS_LIST_ENTRIES;
    struct vb_rs_sge sge = load(&s->memory.list[next]);
    if (!sge.bytes)
        return false;
    // Emptied before anything goes into the buffer, so before the peer can fill it again.
    memset(&s->memory.list[next], 0, sizeof sge);
    d->target = sge;
    d->turn = next;
    return true;
}

bool vb_rs_has_room(const struct vb_rs_stream *s)
{
    return s->connected && s->may_write && s->send.slots > 0 &&
           s->send.free_bytes >= LOW_WATER_BYTES;
}

bool vb_rs_can_send(struct vb_rs_stream *s)
{
    return vb_rs_has_room(s) && s->send.seq != s->send.limit && has_target(s);
}

static uint64_t request_id(enum vb_rs_op op, uint32_t value)
{
    return vb_rs_message(op, value);
}

// Reserves room in the ring, which may wrap.
static void reserve(struct vb_rs_stream *s, uint32_t bytes, struct vb_rs_post *post)
{
    struct vb_rs_sending *d = &s->send;
    uint32_t first = s->size.send_bytes - d->at;

    if (first > bytes)
        first = bytes;
    post->pieces = first < bytes ? 2 : 1;
    post->piece[0].data = s->memory.send + d->at;
    post->piece[0].bytes = first;
    post->piece[1].data = s->memory.send;
    post->piece[1].bytes = bytes - first;
    post->is_inline = bytes <= s->size.inline_bytes;
    d->at = (d->at + bytes) % s->size.send_bytes;
    d->free_bytes -= bytes;
    d->slots--;
}

static uint32_t smallest(size_t want, uint32_t a, uint32_t b)
{
    size_t least = want < VB_RS_TRANSFER_MAX ? want : VB_RS_TRANSFER_MAX;
    least = a < least ? a : least;
    return (uint32_t)(b < least ? b : least);
}

uint32_t vb_rs_take_data(struct vb_rs_stream *s, size_t want, struct vb_rs_post *post)
{
    struct vb_rs_sending *d = &s->send;

    if (!want || !vb_rs_can_send(s))
        return 0;
    uint32_t bytes = smallest(want, d->free_bytes, d->target.bytes);
    *post = (struct vb_rs_post){
        .id = request_id(VB_RS_DATA, bytes),
        .remote_addr = d->target.addr,
        .rkey = d->target.key,
        .message = vb_rs_message(VB_RS_DATA, bytes),
        .is_message = true,
    };
    reserve(s, bytes, post);
    d->seq++;
    d->target.addr += bytes;
    d->target.bytes -= bytes;
    return bytes;
}

// Copies a small thing into the pieces of a reservation.
static void fill(struct vb_rs_post *post, const void *from, uint32_t bytes)
{
    memcpy(post->piece[0].data, from, post->piece[0].bytes);
    if (post->pieces > 1)
        memcpy(post->piece[1].data, (const uint8_t *)from + post->piece[0].bytes,
               bytes - post->piece[0].bytes);
}

bool vb_rs_take_iomap(struct vb_rs_stream *s, uint32_t index, const struct vb_rs_iomap *entry,
                      struct vb_rs_post *post)
{
    struct vb_rs_iomap out = *entry;

    if (index >= s->peer_iomaps.bytes || !vb_rs_can_send(s))
        return false;
    if (s->swap) {
        out.offset = __builtin_bswap64(out.offset);
        out.sge = vb_rs_sge_swap(out.sge);
    }
    *post = (struct vb_rs_post){
        .id = request_id(VB_RS_IOMAP, sizeof out),
        .remote_addr = s->peer_iomaps.addr + index * sizeof out,
        .rkey = s->peer_iomaps.key,
        .message = vb_rs_message(VB_RS_IOMAP, index),
        .is_message = true,
    };
    reserve(s, sizeof out, post);
    fill(post, &out, sizeof out);
    s->send.seq++;
    return true;
}

static bool find_mapping(const struct vb_rs_stream *s, uint64_t offset, struct vb_rs_iomap *found)
{
    for (uint32_t i = 0; i < s->size.iomaps; i++) {
        struct vb_rs_iomap *at = &s->memory.iomaps[i];
        struct vb_rs_iomap copy = {__atomic_load_n(&at->offset, __ATOMIC_ACQUIRE), load(&at->sge)};
        if (offset >= copy.offset && offset - copy.offset < copy.sge.bytes) {
            *found = copy;
            return true;
        }
    }
    return false;
}

uint32_t vb_rs_take_direct(struct vb_rs_stream *s, uint64_t offset, size_t want, bool *mapped,
                           struct vb_rs_post *post)
{
    struct vb_rs_iomap map;

    *mapped = find_mapping(s, offset, &map);
    if (!*mapped || !want || !vb_rs_has_room(s))
        return 0;
    uint32_t into = (uint32_t)(offset - map.offset);
    uint32_t bytes = smallest(want, s->send.free_bytes, map.sge.bytes - into);
    *post = (struct vb_rs_post){
        .id = request_id(VB_RS_WRITE, bytes),
        .remote_addr = map.sge.addr + into,
        .rkey = map.sge.key,
    };
    reserve(s, bytes, post);
    return bytes;
}

bool vb_rs_take_control(struct vb_rs_stream *s, enum vb_rs_ctrl what, struct vb_rs_post *post)
{
    if (!s->connected || !s->send.control_free)
        return false;
    s->send.control_free--;
    *post = (struct vb_rs_post){
        .id = request_id(VB_RS_CTRL, what),
        .message = vb_rs_message(VB_RS_CTRL, what),
        .is_message = true,
    };
    return true;
}

// Adds the half that was read to the message, as an entry for the peer's list.
static void publish(struct vb_rs_stream *s, struct vb_rs_post *post)
{
    struct vb_rs_receiving *r = &s->recv;
    uint32_t half = s->size.recv_bytes / 2;
    uint8_t *at = s->memory.control + s->send.control_at * sizeof(struct vb_rs_sge);
    struct vb_rs_sge sge = {(uintptr_t)(s->memory.recv + r->freed_at), s->memory.recv_key, half};

    if (s->swap)
        sge = vb_rs_sge_swap(sge);
    memcpy(at, &sge, sizeof sge);
    s->send.control_at = (uint8_t)((s->send.control_at + 1) % VB_RS_CONTROL_SLOTS);
    post->pieces = 1;
    post->piece[0].data = at;
    post->piece[0].bytes = sizeof sge;
    post->is_inline = sizeof sge <= s->size.inline_bytes;
    post->remote_addr = r->list.addr + r->turn * sizeof sge;
    post->rkey = r->list.key;
    r->turn = (r->turn + 1) % r->list.bytes;
    r->freed_at = (r->freed_at + half) % s->size.recv_bytes;
    r->free_bytes -= half;
    r->granted += half;
}

bool vb_rs_take_credit(struct vb_rs_stream *s, struct vb_rs_post *post)
{
    struct vb_rs_receiving *r = &s->recv;
    bool has_half = r->free_bytes >= s->size.recv_bytes / 2;

    if (!s->connected || s->peer_ended || !s->send.control_free)
        return false;
    if (!has_half && (int16_t)(r->seq - r->update_at) < 0)
        return false;
    s->send.control_free--;
    r->update_at = (uint16_t)(r->seq + s->size.rq / 2);
    *post = (struct vb_rs_post){
        .id = request_id(VB_RS_SGL, 0),
        .message = vb_rs_message(VB_RS_SGL, (uint16_t)(r->seq + s->size.rq)),
        .is_message = true,
    };
    if (has_half)
        publish(s, post);
    return true;
}

void vb_rs_sent(struct vb_rs_stream *s, uint64_t id)
{
    uint32_t value = vb_rs_message_value((uint32_t)id);

    switch (vb_rs_message_op((uint32_t)id)) {
    case VB_RS_SGL: s->send.control_free++; break;
    case VB_RS_CTRL:
        s->send.control_free++;
        if (value == VB_RS_DISCONNECT)
            vb_rs_stream_cut(s);
        break;
    case VB_RS_DATA:
    case VB_RS_WRITE:
    case VB_RS_IOMAP:
        s->send.slots++;
        s->send.free_bytes += value;
        break;
    }
    vb_rs_stream_settle(s);
}

bool vb_rs_all_sent(const struct vb_rs_stream *s)
{
    return s->send.control_free == VB_RS_CONTROL_SLOTS &&
           s->send.slots == s->size.sq - VB_RS_CONTROL_SLOTS;
}
