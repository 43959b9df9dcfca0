// SPDX-License-Identifier: Apache-2.0
// From a placed program back to an image: its bytes as they are, and relocations where addresses,
// keys and numbers still name something of the program.
#include "chain/image.h"

#include "base/bytes.h"
#include "verbena/wqe.h"

#include <stdlib.h>
#include <string.h>

enum {
    REACH = 1 << 30, // an address farther from a shared region's start is none of it
};

struct reversal {
    const struct vb_image *then;
    struct vb_image *now;
    const struct vb_image_binding *binding;
};

// ---- the parts

static bool copy_queues(struct reversal *r)
{
    for (uint32_t i = 0; i < r->then->queues; i++) {
        struct vb_image_queue like = r->then->queue[i];
        like.code = r->binding->send[i].at;
        like.recv = like.recvs ? r->binding->recv[i].at : NULL;
        if (vb_image_add_queue(r->now, &like) < 0)
            return false;
    }
    return true;
}

static bool copy_regions(struct reversal *r)
{
    for (uint32_t i = 0; i < r->then->regions; i++) {
        struct vb_image_region like = r->then->region[i];
        like.init = like.kind == VB_REGION_OWN ? r->binding->data[i].at : NULL;
        if (vb_image_add_region(r->now, &like) < 0)
            return false;
    }
    return true;
}

static bool copy_names(struct reversal *r)
{
    for (uint32_t i = 0; i < r->then->cqs; i++)
        if (vb_image_add_cq(r->now, r->then->cq[i].name, r->then->cq[i].entries) < 0)
            return false;
    for (uint32_t i = 0; i < r->then->labels; i++) {
        const struct vb_image_label *l = &r->then->label[i];
        if (vb_image_add_label(r->now, l->name, l->queue, l->block) < 0)
            return false;
    }
    return true;
}

// ---- memory

// The n-th memory of the program: send rings, receive rings, regions. False: there are fewer.
static bool memory_at(const struct vb_image *image, uint32_t n, struct vb_spot *spot)
{
    *spot = (struct vb_spot){0};
    if (n < 2 * image->queues) {
        spot->kind = n < image->queues ? VB_IN_SEND : VB_IN_RECV;
        spot->index = n % image->queues;
        return true;
    }
    spot->kind = VB_IN_DATA;
    spot->index = n - 2 * image->queues;
    return spot->index < image->regions;
}

static const struct vb_image_memory *placed(const struct vb_image_binding *b,
                                            const struct vb_spot *spot)
{
    switch (spot->kind) {
    case VB_IN_SEND: return &b->send[spot->index];
    case VB_IN_RECV: return &b->recv[spot->index];
    default: return &b->data[spot->index];
    }
}

static uint64_t bytes_of(const struct vb_image *image, const struct vb_spot *spot)
{
    const struct vb_image_queue *q = &image->queue[spot->index];

    switch (spot->kind) {
    case VB_IN_SEND: return (uint64_t)q->blocks * VB_WQEBB_BYTES;
    case VB_IN_RECV: return (uint64_t)q->recvs * q->recv_stride;
    default: return image->region[spot->index].bytes;
    }
}

static uint8_t *bytes_at(const struct vb_image *image, const struct vb_spot *spot)
{
    switch (spot->kind) {
    case VB_IN_SEND: return image->queue[spot->index].code + spot->offset;
    case VB_IN_RECV: return image->queue[spot->index].recv + spot->offset;
    default: return image->region[spot->index].init + spot->offset;
    }
}

// ---- relocations

// Memory of others has as many bytes as the program asks for, or more: it then asks for more.
static bool reaches(struct reversal *r, struct vb_spot *target, uint64_t address, bool may_grow)
{
    uint64_t offset = address - placed(r->binding, target)->addr;
    uint64_t bytes = bytes_of(r->now, target);

    if (offset > bytes) {
        if (!may_grow || target->kind != VB_IN_DATA || offset > REACH ||
            r->now->region[target->index].kind == VB_REGION_OWN)
            return false;
        r->now->region[target->index].bytes = offset;
    }
    target->offset = offset;
    return true;
}

// The memory that it was of comes first, with all that may lie behind it; then any other.
static bool find_address(struct reversal *r, struct vb_spot *target, uint64_t address)
{
    struct vb_spot other;

    if (reaches(r, target, address, false))
        return true;
    for (uint32_t n = 0; memory_at(r->now, n, &other); n++)
        if (reaches(r, &other, address, false)) {
            *target = other;
            return true;
        }
    return reaches(r, target, address, true);
}

static bool find_key(const struct reversal *r, struct vb_spot *target, uint32_t key)
{
    struct vb_spot other;

    if (placed(r->binding, target)->key == key)
        return true;
    for (uint32_t n = 0; memory_at(r->now, n, &other); n++)
        if (placed(r->binding, &other)->key == key && bytes_of(r->now, &other) > 0) {
            *target = other;
            return true;
        }
    return false;
}

static bool find_number(const uint32_t *numbers, uint32_t count, uint32_t number, uint32_t *index)
{
    if (numbers[*index] == number)
        return true;
    for (uint32_t i = 0; i < count; i++)
        if (numbers[i] == number) {
            *index = i;
            return true;
        }
    return false;
}

static void take_little(uint8_t *at, uint32_t bytes, uint64_t less)
{
    uint64_t value = 0;

    for (uint32_t i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    value -= less;
    for (uint32_t i = 0; i < bytes; i++, value >>= 8)
        at[i] = (uint8_t)value;
}

// Whether the bytes at a relocation's place still name something of the program.
static bool find(struct reversal *r, struct vb_reloc *reloc, const uint8_t *at)
{
    const struct vb_image_binding *b = r->binding;
    struct vb_spot *to = &reloc->target;

    switch (reloc->kind) {
    case VB_RELOC_ADDR: return find_address(r, to, vb_get_be64(at));
    case VB_RELOC_KEY: return find_key(r, to, vb_get_be32(at));
    case VB_RELOC_QPN: return find_number(b->qpn, r->now->queues, vb_get_be32(at), &to->index);
    case VB_RELOC_QPN3: return find_number(b->qpn, r->now->queues, vb_get_be24(at), &to->index);
    case VB_RELOC_CQN: return find_number(b->cqn, r->now->cqs, vb_get_be32(at), &to->index);
    default: return true; // counters stay counters
    }
}

static bool reverse(struct reversal *r, const struct vb_reloc *then)
{
    struct vb_reloc reloc = *then;
    uint8_t *at = bytes_at(r->now, &reloc.at);
    uint32_t len = vb_reloc_bytes(reloc.kind);

    if (!find(r, &reloc, at))
        return true;
    switch (reloc.kind) {
    case VB_RELOC_SEND_INDEX:
    case VB_RELOC_RECV_INDEX:
    case VB_RELOC_CQ_INDEX: vb_put_be32(at, vb_get_be32(at) - (uint32_t)r->binding->start); break;
    case VB_RELOC_SEND_COUNT:
    case VB_RELOC_RECV_COUNT:
    case VB_RELOC_CQ_COUNT: take_little(at, len, r->binding->start); break;
    default: memcpy(at, bytes_at(r->then, &reloc.at), len); // what lay below
    }
    return vb_image_add_reloc(r->now, &reloc) >= 0;
}

struct vb_image *vb_image_snapshot(const struct vb_image *image,
                                   const struct vb_image_binding *binding)
{
    struct reversal r = {image, vb_image_create(image->name), binding};
    bool right = r.now && copy_names(&r) && copy_queues(&r) && copy_regions(&r);

    for (uint32_t i = 0; right && i < image->relocs; i++)
        right = reverse(&r, &image->reloc[i]);
    if (right)
        return r.now;
    vb_image_destroy(r.now);
    return NULL;
}
