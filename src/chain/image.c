// SPDX-License-Identifier: Apache-2.0
// Chain programs at rest: made, checked, compared and placed.
#include "chain/image.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEND_BLOCKS_MAX = 1 << 15,
    RECVS_MAX = 1 << 15,
    CQ_ENTRIES_MAX = 1 << 22,
};

struct vb_image *vb_image_create(const char *name)
{
    struct vb_image *image = calloc(1, sizeof *image);
    if (image)
        snprintf(image->name, sizeof image->name, "%s", name);
    return image;
}

void vb_image_destroy(struct vb_image *image)
{
    if (!image)
        return;
    for (uint32_t i = 0; i < image->queues; i++) {
        free(image->queue[i].code);
        free(image->queue[i].recv);
    }
    for (uint32_t i = 0; i < image->regions; i++)
        free(image->region[i].init);
    free(image->cq);
    free(image->queue);
    free(image->region);
    free(image->reloc);
    free(image->label);
    free(image->cq_names.slot);
    free(image->queue_names.slot);
    free(image->region_names.slot);
    free(image->label_names.slot);
    free(image);
}

// ---- adding

// An array of the image as one of names.
#define NAMED(image, what) ((struct vb_named){(image)->what, sizeof *(image)->what})

void *vb_image_room(void *array, uint32_t count, size_t size)
{
    if (count && !vb_is_pow2(count))
        return array;
    return realloc(array, (2 * (size_t)count + 1) * size);
}

// Room for one more thing with a name, in the array and in the table of names.
static void *more_of(struct vb_named things, uint32_t count, struct vb_names *names)
{
    if (!vb_names_reserve(names, things))
        return NULL;
    return vb_image_room(things.first, count, things.stride);
}

static bool is_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len >= VB_IMAGE_NAME)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i > 0 && c >= '0' && c <= '9'))
            return false;
    }
    return true;
}

int vb_image_add_cq(struct vb_image *image, const char *name, uint32_t entries)
{
    if (!is_name(name) || vb_image_find_cq(image, name) >= 0)
        return -EINVAL;
    struct vb_image_cq *a = more_of(NAMED(image, cq), image->cqs, &image->cq_names);
    if (!a)
        return -ENOMEM;
    image->cq = a;
    a[image->cqs] = (struct vb_image_cq){.entries = entries};
    snprintf(a[image->cqs].name, VB_IMAGE_NAME, "%s", name);
    vb_names_add(&image->cq_names, NAMED(image, cq), image->cqs);
    return (int)image->cqs++;
}

// Whether rings and own data stay within the limit with so many bytes more.
static bool has_room(const struct vb_image *image, uint64_t more)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < image->queues; i++)
        sum += (uint64_t)image->queue[i].blocks * VB_WQEBB_BYTES +
               (uint64_t)image->queue[i].recvs * image->queue[i].recv_stride;
    for (uint32_t i = 0; i < image->regions; i++)
        if (image->region[i].kind == VB_REGION_OWN)
            sum += image->region[i].bytes;
    return more <= VB_IMAGE_BYTES && sum <= VB_IMAGE_BYTES - more;
}

// Bytes of a new array that begins with a copy of `from`, or with zeros.
static uint8_t *bytes_like(const uint8_t *from, size_t bytes)
{
    uint8_t *to = calloc(bytes, sizeof *to);
    if (to && from)
        memcpy(to, from, bytes);
    return to;
}

int vb_image_add_queue(struct vb_image *image, const struct vb_image_queue *like)
{
    if (!is_name(like->name) || vb_image_find_queue(image, like->name) >= 0)
        return -EINVAL;
    if (like->blocks > SEND_BLOCKS_MAX || like->recvs > RECVS_MAX || like->recv_stride > 256)
        return -EINVAL;
    if (!has_room(image, (uint64_t)like->blocks * VB_WQEBB_BYTES +
                             (uint64_t)like->recvs * like->recv_stride))
        return -EINVAL;
    struct vb_image_queue *a = more_of(NAMED(image, queue), image->queues, &image->queue_names);
    if (!a)
        return -ENOMEM;
    image->queue = a;
    struct vb_image_queue q = *like;
    q.code = bytes_like(like->code, (size_t)like->blocks * VB_WQEBB_BYTES);
    q.recv = bytes_like(like->recv, (size_t)like->recvs * like->recv_stride);
    if (!q.code || !q.recv) {
        free(q.code);
        free(q.recv);
        return -ENOMEM;
    }
    a[image->queues] = q;
    vb_names_add(&image->queue_names, NAMED(image, queue), image->queues);
    return (int)image->queues++;
}

int vb_image_add_region(struct vb_image *image, const struct vb_image_region *like)
{
    if (!is_name(like->name) || vb_image_find_region(image, like->name) >= 0)
        return -EINVAL;
    if (like->kind == VB_REGION_OWN && !has_room(image, like->bytes))
        return -EINVAL;
    struct vb_image_region *a = more_of(NAMED(image, region), image->regions, &image->region_names);
    if (!a)
        return -ENOMEM;
    image->region = a;
    struct vb_image_region r = *like;
    r.init = NULL;
    if (r.kind == VB_REGION_OWN && !(r.init = bytes_like(like->init, like->bytes)))
        return -ENOMEM;
    a[image->regions] = r;
    vb_names_add(&image->region_names, NAMED(image, region), image->regions);
    return (int)image->regions++;
}

int vb_image_add_reloc(struct vb_image *image, const struct vb_reloc *reloc)
{
    struct vb_reloc *a = vb_image_room(image->reloc, image->relocs, sizeof *a);
    if (!a)
        return -ENOMEM;
    image->reloc = a;
    a[image->relocs] = *reloc;
    return (int)image->relocs++;
}

int vb_image_add_label(struct vb_image *image, const char *name, uint32_t queue, uint32_t block)
{
    if (!is_name(name) || vb_image_find_label(image, name) >= 0)
        return -EINVAL;
    struct vb_image_label *a = more_of(NAMED(image, label), image->labels, &image->label_names);
    if (!a)
        return -ENOMEM;
    image->label = a;
    a[image->labels] = (struct vb_image_label){.queue = queue, .block = block};
    snprintf(a[image->labels].name, VB_IMAGE_NAME, "%s", name);
    vb_names_add(&image->label_names, NAMED(image, label), image->labels);
    return (int)image->labels++;
}

// ---- finding

#define FIND(image, what, name) \
    or_none(vb_names_find(&(image)->what##_names, NAMED(image, what), name))

static int or_none(int index)
{
    return index < 0 ? -ENOENT : index;
}

int vb_image_find_cq(const struct vb_image *image, const char *name)
{
    return FIND(image, cq, name);
}

int vb_image_find_queue(const struct vb_image *image, const char *name)
{
    return FIND(image, queue, name);
}

int vb_image_find_region(const struct vb_image *image, const char *name)
{
    return FIND(image, region, name);
}

int vb_image_find_label(const struct vb_image *image, const char *name)
{
    return FIND(image, label, name);
}

// ---- checking

uint32_t vb_reloc_bytes(enum vb_reloc_kind kind)
{
    switch (kind) {
    case VB_RELOC_ADDR: return 8;
    case VB_RELOC_QPN3:
    case VB_RELOC_CQ_COUNT: return 3;
    case VB_RELOC_SEND_COUNT:
    case VB_RELOC_RECV_COUNT: return 2;
    default: return 4;
    }
}

uint64_t vb_image_extent(const struct vb_image *image, const struct vb_spot *spot)
{
    if (spot->kind == VB_IN_DATA)
        return image->region[spot->index].bytes;
    const struct vb_image_queue *q = &image->queue[spot->index];
    return spot->kind == VB_IN_SEND ? (uint64_t)q->blocks * VB_WQEBB_BYTES
                                    : (uint64_t)q->recvs * q->recv_stride;
}

// Memory may have no bytes and yet an address.
static bool exists(const struct vb_image *image, const struct vb_spot *spot)
{
    if (spot->kind == VB_IN_DATA)
        return spot->index < image->regions;
    return (spot->kind == VB_IN_SEND || spot->kind == VB_IN_RECV) && spot->index < image->queues;
}

static bool is_own(const struct vb_image *image, const struct vb_spot *spot)
{
    return spot->kind != VB_IN_DATA || image->region[spot->index].kind == VB_REGION_OWN;
}

static bool reloc_is_right(const struct vb_image *image, const struct vb_reloc *r)
{
    uint32_t len = vb_reloc_bytes(r->kind);
    uint64_t room = exists(image, &r->at) ? vb_image_extent(image, &r->at) : 0;

    if (room < len || r->at.offset > room - len || !is_own(image, &r->at))
        return false;
    switch (r->kind) {
    case VB_RELOC_ADDR:
        return exists(image, &r->target) && r->target.offset <= vb_image_extent(image, &r->target);
    case VB_RELOC_KEY: return exists(image, &r->target) && vb_image_extent(image, &r->target) > 0;
    case VB_RELOC_QPN:
    case VB_RELOC_QPN3:
    case VB_RELOC_SEND_INDEX:
    case VB_RELOC_RECV_INDEX:
    case VB_RELOC_SEND_COUNT:
    case VB_RELOC_RECV_COUNT: return r->target.index < image->queues;
    case VB_RELOC_CQ_INDEX:
    case VB_RELOC_CQ_COUNT:
    case VB_RELOC_CQN: return r->target.index < image->cqs;
    }
    return false;
}

static int order_of(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

int vb_spot_compare(const struct vb_spot *a, const struct vb_spot *b)
{
    int order = order_of(a->kind, b->kind);

    if (!order)
        order = order_of(a->index, b->index);
    return order ? order : order_of(a->offset, b->offset);
}

static int by_place(const void *a, const void *b)
{
    const struct vb_reloc *x = a, *y = b;
    return vb_spot_compare(&x->at, &y->at);
}

struct vb_reloc *vb_image_sorted(const struct vb_image *image)
{
    struct vb_reloc *a = calloc(image->relocs, sizeof *a);

    if (a && image->relocs) {
        memcpy(a, image->reloc, image->relocs * sizeof *a);
        qsort(a, image->relocs, sizeof *a, by_place);
    }
    return a;
}

// Whether a relocation lies over another one; `error` then says where.
static bool overlap(const struct vb_image *image, char *error)
{
    struct vb_reloc *a = vb_image_sorted(image);
    bool found = a == NULL;

    if (found)
        snprintf(error, VB_IMAGE_TEXT, "out of memory");
    for (uint32_t i = 1; !found && i < image->relocs; i++) {
        const struct vb_spot *at = &a[i].at;
        found = at->kind == a[i - 1].at.kind && at->index == a[i - 1].at.index &&
                at->offset < a[i - 1].at.offset + vb_reloc_bytes(a[i - 1].kind);
        if (found)
            snprintf(error, VB_IMAGE_TEXT,
                     "two relocations lie over each other: %s '%s', byte %" PRIu64,
                     at->kind == VB_IN_DATA   ? "region"
                     : at->kind == VB_IN_SEND ? "queue"
                                              : "receives of queue",
                     at->kind == VB_IN_DATA ? image->region[at->index].name
                                            : image->queue[at->index].name,
                     at->offset);
    }
    free(a);
    return found;
}

static const char *queue_fault(const struct vb_image *image, const struct vb_image_queue *q)
{
    if (!vb_is_pow2(q->blocks))
        return "its send ring must have a power of two of blocks";
    if (q->filled > q->blocks || (q->open > q->filled && !q->managed_send))
        return "more blocks are filled or open than its ring has";
    if (q->recvs && (!vb_is_pow2(q->recvs) || !vb_is_pow2(q->recv_stride) || q->recv_stride < 16))
        return "its receive ring must have a power of two of entries and bytes each";
    if (q->recv_filled > q->recvs || q->recv_open > q->recv_filled)
        return "more receives are filled or open than its ring has";
    if (q->send_cq >= image->cqs || q->recv_cq >= image->cqs)
        return "its completion queue does not exist";
    return NULL;
}

bool vb_image_check(const struct vb_image *image, char *error)
{
    for (uint32_t i = 0; i < image->cqs; i++)
        if (!vb_is_pow2(image->cq[i].entries) || image->cq[i].entries > CQ_ENTRIES_MAX) {
            snprintf(error, VB_IMAGE_TEXT,
                     "completion queue '%s': %u entries are not a power of two up to %d",
                     image->cq[i].name, image->cq[i].entries, CQ_ENTRIES_MAX);
            return false;
        }
    for (uint32_t i = 0; i < image->queues; i++) {
        const char *fault = queue_fault(image, &image->queue[i]);
        if (fault) {
            snprintf(error, VB_IMAGE_TEXT, "queue '%s': %s", image->queue[i].name, fault);
            return false;
        }
    }
    for (uint32_t i = 0; i < image->relocs; i++)
        if (!reloc_is_right(image, &image->reloc[i])) {
            snprintf(error, VB_IMAGE_TEXT, "relocation %u names a place that does not exist", i);
            return false;
        }
    for (uint32_t i = 0; i < image->labels; i++) {
        const struct vb_image_label *l = &image->label[i];
        if (l->queue >= image->queues || l->block >= image->queue[l->queue].blocks) {
            snprintf(error, VB_IMAGE_TEXT, "label '%s' names a block that does not exist", l->name);
            return false;
        }
    }
    return !overlap(image, error);
}

// ---- comparing

static bool same_queue(const struct vb_image_queue *a, const struct vb_image_queue *b)
{
    return strcmp(a->name, b->name) == 0 && a->kind == b->kind &&
           a->managed_send == b->managed_send && a->managed_recv == b->managed_recv &&
           a->wqe_checks == b->wqe_checks && a->be_replies == b->be_replies &&
           a->send_cq == b->send_cq && a->recv_cq == b->recv_cq && a->blocks == b->blocks &&
           a->filled == b->filled && a->open == b->open && a->recvs == b->recvs &&
           a->recv_stride == b->recv_stride && a->recv_filled == b->recv_filled &&
           a->recv_open == b->recv_open &&
           memcmp(a->code, b->code, (size_t)a->blocks * VB_WQEBB_BYTES) == 0 &&
           memcmp(a->recv, b->recv, (size_t)a->recvs * a->recv_stride) == 0;
}

static bool same_region(const struct vb_image_region *a, const struct vb_image_region *b)
{
    return strcmp(a->name, b->name) == 0 && a->kind == b->kind && a->bytes == b->bytes &&
           a->writable == b->writable &&
           (a->kind != VB_REGION_OWN || memcmp(a->init, b->init, a->bytes) == 0);
}

static bool same_reloc(const struct vb_reloc *a, const struct vb_reloc *b)
{
    bool number = a->kind != VB_RELOC_ADDR && a->kind != VB_RELOC_KEY;

    if (a->kind != b->kind || vb_spot_compare(&a->at, &b->at) != 0 ||
        a->target.index != b->target.index)
        return false;
    return number || (a->target.kind == b->target.kind &&
                      (a->kind == VB_RELOC_KEY || a->target.offset == b->target.offset));
}

static bool same_relocs(const struct vb_image *a, const struct vb_image *b)
{
    struct vb_reloc *x = vb_image_sorted(a), *y = vb_image_sorted(b);
    bool same = x && y;

    for (uint32_t i = 0; same && i < a->relocs; i++)
        same = same_reloc(&x[i], &y[i]);
    free(x);
    free(y);
    return same;
}

static bool same_label(const struct vb_image *a, const struct vb_image_label *l)
{
    int i = vb_image_find_label(a, l->name);
    return i >= 0 && a->label[i].queue == l->queue && a->label[i].block == l->block;
}

bool vb_image_equal(const struct vb_image *a, const struct vb_image *b)
{
    bool same = strcmp(a->name, b->name) == 0 && a->cqs == b->cqs && a->queues == b->queues &&
                a->regions == b->regions && a->relocs == b->relocs && a->labels == b->labels;

    for (uint32_t i = 0; same && i < a->cqs; i++)
        same = strcmp(a->cq[i].name, b->cq[i].name) == 0 && a->cq[i].entries == b->cq[i].entries;
    for (uint32_t i = 0; same && i < a->queues; i++)
        same = same_queue(&a->queue[i], &b->queue[i]);
    for (uint32_t i = 0; same && i < a->regions; i++)
        same = same_region(&a->region[i], &b->region[i]);
    for (uint32_t i = 0; same && i < b->labels; i++)
        same = same_label(a, &b->label[i]);
    return same && same_relocs(a, b);
}

// ---- placing

static const struct vb_image_memory *memory_of(const struct vb_image_binding *b,
                                               const struct vb_spot *spot)
{
    switch (spot->kind) {
    case VB_IN_SEND: return &b->send[spot->index];
    case VB_IN_RECV: return &b->recv[spot->index];
    default: return &b->data[spot->index];
    }
}

static void add_little(uint8_t *at, uint32_t bytes, uint64_t more)
{
    for (uint32_t i = 0; i < bytes; i++, more >>= 8) {
        more += at[i];
        at[i] = (uint8_t)more;
    }
}

static void relocate(const struct vb_image_binding *b, const struct vb_reloc *r)
{
    uint8_t *at = memory_of(b, &r->at)->at + r->at.offset;

    switch (r->kind) {
    case VB_RELOC_ADDR: vb_put_be64(at, memory_of(b, &r->target)->addr + r->target.offset); break;
    case VB_RELOC_KEY: vb_put_be32(at, memory_of(b, &r->target)->key); break;
    case VB_RELOC_QPN: vb_put_be32(at, b->qpn[r->target.index]); break;
    case VB_RELOC_QPN3: vb_put_be24(at, b->qpn[r->target.index]); break;
    case VB_RELOC_CQN: vb_put_be32(at, b->cqn[r->target.index]); break;
    case VB_RELOC_SEND_INDEX:
    case VB_RELOC_RECV_INDEX:
    case VB_RELOC_CQ_INDEX: vb_put_be32(at, vb_get_be32(at) + (uint32_t)b->start); break;
    default: add_little(at, vb_reloc_bytes(r->kind), b->start);
    }
}

void vb_image_place(const struct vb_image *image, const struct vb_image_binding *b)
{
    for (uint32_t i = 0; i < image->queues; i++) {
        const struct vb_image_queue *q = &image->queue[i];
        memcpy(b->send[i].at, q->code, (size_t)q->blocks * VB_WQEBB_BYTES);
        if (q->recvs)
            memcpy(b->recv[i].at, q->recv, (size_t)q->recvs * q->recv_stride);
    }
    for (uint32_t i = 0; i < image->regions; i++)
        if (image->region[i].kind == VB_REGION_OWN && image->region[i].bytes)
            memcpy(b->data[i].at, image->region[i].init, image->region[i].bytes);
    for (uint32_t i = 0; i < image->relocs; i++)
        relocate(b, &image->reloc[i]);
}
