// SPDX-License-Identifier: Apache-2.0
// Chain programs to bytes and back.
//
// Head: magic, version, numbers of completion queues, queues, regions, relocations and labels, and
// the program's name. Then these, in this order. A ring or a region comes as its length without
// the zeros at its end, and its bytes.
#include "chain/file.h"

#include "base/bytes.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t magic[8] = {'v', 'b', 'c', 'h', 'a', 'i', 'n', 0x1a};

enum {
    VERSION = 1,
    FLAG_MANAGED_SEND = 1 << 0,
    FLAG_MANAGED_RECV = 1 << 1,
    FLAG_CHECKS = 1 << 2,
    FLAG_BE_REPLIES = 1 << 3,
    FLAGS_ALL = (1 << 4) - 1,
};

// ---- writing

struct writer {
    uint8_t *at; // NULL: only counts
    size_t len;
};

static void put_bytes(struct writer *w, const void *bytes, size_t len)
{
    if (w->at && len)
        memcpy(w->at + w->len, bytes, len);
    w->len += len;
}

static void put_32(struct writer *w, uint32_t value)
{
    uint8_t bytes[4];

    vb_put_le32(bytes, value);
    put_bytes(w, bytes, sizeof bytes);
}

static void put_64(struct writer *w, uint64_t value)
{
    put_32(w, (uint32_t)value);
    put_32(w, (uint32_t)(value >> 32));
}

// Only up to the zero: what lies behind it is nobody's business.
static void put_name(struct writer *w, const char *name)
{
    char padded[VB_IMAGE_NAME] = "";

    snprintf(padded, sizeof padded, "%s", name);
    put_bytes(w, padded, sizeof padded);
}

static void put_block(struct writer *w, const uint8_t *bytes, uint64_t len)
{
    while (len && bytes[len - 1] == 0)
        len--;
    put_64(w, len);
    put_bytes(w, bytes, len);
}

static void put_queue(struct writer *w, const struct vb_image_queue *q)
{
    put_name(w, q->name);
    put_32(w, q->kind);
    put_32(w, (q->managed_send ? FLAG_MANAGED_SEND : 0u) |
                  (q->managed_recv ? FLAG_MANAGED_RECV : 0u) | (q->wqe_checks ? FLAG_CHECKS : 0u) |
                  (q->be_replies ? FLAG_BE_REPLIES : 0u));
    put_32(w, q->send_cq);
    put_32(w, q->recv_cq);
    put_32(w, q->blocks);
    put_32(w, q->filled);
    put_32(w, q->open);
    put_32(w, q->recvs);
    put_32(w, q->recv_stride);
    put_32(w, q->recv_filled);
    put_32(w, q->recv_open);
    put_block(w, q->code, (uint64_t)q->blocks * VB_WQEBB_BYTES);
    put_block(w, q->recv, (uint64_t)q->recvs * q->recv_stride);
}

static void put_region(struct writer *w, const struct vb_image_region *r)
{
    put_name(w, r->name);
    put_32(w, r->kind);
    put_32(w, r->writable);
    put_64(w, r->bytes);
    if (r->kind == VB_REGION_OWN)
        put_block(w, r->init, r->bytes);
}

static void put_spot(struct writer *w, const struct vb_spot *spot)
{
    put_32(w, spot->kind);
    put_32(w, spot->index);
    put_64(w, spot->offset);
}

static void put_image(struct writer *w, const struct vb_image *image)
{
    put_bytes(w, magic, sizeof magic);
    put_32(w, VERSION);
    put_32(w, image->cqs);
    put_32(w, image->queues);
    put_32(w, image->regions);
    put_32(w, image->relocs);
    put_32(w, image->labels);
    put_name(w, image->name);
    for (uint32_t i = 0; i < image->cqs; i++) {
        put_name(w, image->cq[i].name);
        put_32(w, image->cq[i].entries);
    }
    for (uint32_t i = 0; i < image->queues; i++)
        put_queue(w, &image->queue[i]);
    for (uint32_t i = 0; i < image->regions; i++)
        put_region(w, &image->region[i]);
    for (uint32_t i = 0; i < image->relocs; i++) {
        put_32(w, image->reloc[i].kind);
        put_spot(w, &image->reloc[i].at);
        put_spot(w, &image->reloc[i].target);
    }
    for (uint32_t i = 0; i < image->labels; i++) {
        put_name(w, image->label[i].name);
        put_32(w, image->label[i].queue);
        put_32(w, image->label[i].block);
    }
}

uint8_t *vb_image_encode(const struct vb_image *image, size_t *len)
{
    struct writer count = {0};

    put_image(&count, image);
    struct writer w = {.at = malloc(count.len)};
    if (!w.at)
        return NULL;
    put_image(&w, image);
    *len = w.len;
    return w.at;
}

// ---- reading

struct reader {
    const uint8_t *at;
    size_t left;
    char *error;
    struct vb_image *image;
};

static bool refuse(struct reader *r, const char *why)
{
    snprintf(r->error, VB_IMAGE_TEXT, "%s", why);
    return false;
}

static const uint8_t *get_bytes(struct reader *r, size_t len)
{
    if (len > r->left)
        return NULL;
    const uint8_t *at = r->at;
    r->at += len;
    r->left -= len;
    return at;
}

// Zero once the bytes are at their end, which every record's last field finds out.
static uint32_t get_32(struct reader *r)
{
    const uint8_t *at = get_bytes(r, 4);
    return at ? vb_get_le32(at) : 0;
}

static uint64_t get_64(struct reader *r)
{
    uint64_t low = get_32(r);
    return low | (uint64_t)get_32(r) << 32;
}

static bool get_name(struct reader *r, char name[VB_IMAGE_NAME])
{
    const uint8_t *at = get_bytes(r, VB_IMAGE_NAME);

    if (!at)
        return refuse(r, "the file ends too early");
    if (!memchr(at, 0, VB_IMAGE_NAME))
        return refuse(r, "a name in the file has no end");
    snprintf(name, VB_IMAGE_NAME, "%s", (const char *)at);
    return true;
}

static bool get_block(struct reader *r, const uint8_t **bytes, uint64_t *len, uint64_t max)
{
    if (r->left < 8)
        return refuse(r, "the file ends too early");
    *len = get_64(r);
    if (*len > max)
        return refuse(r, "more bytes of a ring or region than it has");
    *bytes = *len <= r->left ? get_bytes(r, (size_t)*len) : NULL;
    return *bytes || refuse(r, "the file ends too early");
}

static bool is_added(struct reader *r, int index, const char *what)
{
    if (index == -EINVAL)
        snprintf(r->error, VB_IMAGE_TEXT,
                 "a %s has a wrong name, one that is taken, or is too large", what);
    else if (index < 0)
        snprintf(r->error, VB_IMAGE_TEXT, "out of memory");
    return index >= 0;
}

static bool get_cq(struct reader *r)
{
    char name[VB_IMAGE_NAME];

    if (!get_name(r, name))
        return false;
    if (r->left < 4)
        return refuse(r, "the file ends too early");
    return is_added(r, vb_image_add_cq(r->image, name, get_32(r)), "completion queue");
}

static void get_queue_fields(struct reader *r, struct vb_image_queue *q, uint32_t *kind,
                             uint32_t *flags)
{
    *kind = get_32(r);
    *flags = get_32(r);
    q->send_cq = get_32(r);
    q->recv_cq = get_32(r);
    q->blocks = get_32(r);
    q->filled = get_32(r);
    q->open = get_32(r);
    q->recvs = get_32(r);
    q->recv_stride = get_32(r);
    q->recv_filled = get_32(r);
    q->recv_open = get_32(r);
}

static bool get_queue(struct reader *r)
{
    struct vb_image_queue q = {0};
    const uint8_t *code, *recv;
    uint64_t code_len, recv_len;
    uint32_t kind, flags;

    if (!get_name(r, q.name))
        return false;
    get_queue_fields(r, &q, &kind, &flags);
    if (kind > VB_QUEUE_PEER || flags > FLAGS_ALL)
        return refuse(r, "a queue of a kind that this version does not know");
    q.kind = (enum vb_image_queue_kind)kind;
    q.managed_send = flags & FLAG_MANAGED_SEND;
    q.managed_recv = flags & FLAG_MANAGED_RECV;
    q.wqe_checks = flags & FLAG_CHECKS;
    q.be_replies = flags & FLAG_BE_REPLIES;
    if (!get_block(r, &code, &code_len, (uint64_t)q.blocks * VB_WQEBB_BYTES) ||
        !get_block(r, &recv, &recv_len, (uint64_t)q.recvs * q.recv_stride))
        return false;
    int i = vb_image_add_queue(r->image, &q);
    if (!is_added(r, i, "queue"))
        return false;
    memcpy(r->image->queue[i].code, code, (size_t)code_len);
    memcpy(r->image->queue[i].recv, recv, (size_t)recv_len);
    return true;
}

static bool get_region(struct reader *r)
{
    struct vb_image_region g = {0};
    const uint8_t *init = NULL;
    uint64_t len = 0;

    if (!get_name(r, g.name))
        return false;
    if (r->left < 16)
        return refuse(r, "the file ends too early");
    uint32_t kind = get_32(r), writable = get_32(r);
    if (kind > VB_REGION_PEER || writable > 1)
        return refuse(r, "a region of a kind that this version does not know");
    g.kind = (enum vb_region_kind)kind;
    g.writable = writable;
    g.bytes = get_64(r);
    if (g.kind == VB_REGION_OWN && !get_block(r, &init, &len, g.bytes))
        return false;
    int i = vb_image_add_region(r->image, &g);
    if (!is_added(r, i, "region"))
        return false;
    if (len)
        memcpy(r->image->region[i].init, init, (size_t)len);
    return true;
}

static bool get_spot(struct reader *r, struct vb_spot *spot)
{
    uint32_t kind = get_32(r);

    spot->index = get_32(r);
    spot->offset = get_64(r);
    if (kind > VB_IN_DATA)
        return refuse(r, "a relocation in memory that this version does not know");
    spot->kind = (enum vb_place_kind)kind;
    return true;
}

static bool get_reloc(struct reader *r)
{
    struct vb_reloc reloc;

    if (r->left < 36)
        return refuse(r, "the file ends too early");
    uint32_t kind = get_32(r);
    if (kind > VB_RELOC_CQ_COUNT)
        return refuse(r, "a relocation of a kind that this version does not know");
    reloc.kind = (enum vb_reloc_kind)kind;
    return get_spot(r, &reloc.at) && get_spot(r, &reloc.target) &&
           is_added(r, vb_image_add_reloc(r->image, &reloc), "relocation");
}

static bool get_label(struct reader *r)
{
    char name[VB_IMAGE_NAME];

    if (!get_name(r, name))
        return false;
    if (r->left < 8)
        return refuse(r, "the file ends too early");
    uint32_t queue = get_32(r), block = get_32(r);
    return is_added(r, vb_image_add_label(r->image, name, queue, block), "label");
}

static bool get_image(struct reader *r)
{
    bool (*const gets[])(struct reader *) = {get_cq, get_queue, get_region, get_reloc, get_label};
    uint32_t count[5];

    get_bytes(r, sizeof magic);
    if (r->left < 4)
        return refuse(r, "the file ends too early");
    if (get_32(r) != VERSION)
        return refuse(r, "the file is of another version than 1, which this one reads");
    for (int k = 0; k < 5; k++)
        count[k] = get_32(r);
    if (!get_name(r, r->image->name))
        return false;
    for (int k = 0; k < 5; k++)
        for (uint32_t i = 0; i < count[k]; i++)
            if (!gets[k](r))
                return false;
    if (r->left)
        return refuse(r, "the file goes on behind its end");
    return vb_image_check(r->image, r->error);
}

bool vb_image_is_file(const uint8_t *bytes, size_t len)
{
    return len >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

struct vb_image *vb_image_decode(const uint8_t *bytes, size_t len, char *error)
{
    struct reader r = {.at = bytes, .left = len, .error = error};

    if (!vb_image_is_file(bytes, len)) {
        refuse(&r, "this is no chain program: it does not begin with 'vbchain'");
        return NULL;
    }
    r.image = vb_image_create("");
    if (!r.image)
        refuse(&r, "out of memory");
    else if (get_image(&r))
        return r.image;
    vb_image_destroy(r.image);
    return NULL;
}
