// SPDX-License-Identifier: Apache-2.0
// Building chain programs: what the user says is written down, and the first mistake kept.
#include "chain/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)VB_AT_REMOTE == (int)VB_FIELD_REMOTE && (int)VB_AT_IMM == (int)VB_FIELD_IMM &&
                  (int)VB_AT_INDEX == (int)VB_FIELD_INDEX,
              "fields of the API are the fields of entries");

bool vb_build_fail(struct vb_chain *c, const char *text, ...)
{
    va_list args;

    if (vb_build_failed(c))
        return false;
    va_start(args, text);
    vsnprintf(c->error, sizeof c->error, text, args);
    va_end(args);
    return false;
}

void *vb_build_more(struct vb_chain *c, void *array, uint32_t *count, size_t size)
{
    uint32_t n = *count;

    if ((n & (n - 1)) == 0) {
        void *bigger = realloc(array, (n ? 2 * (size_t)n : 1) * size);
        if (!bigger) {
            vb_build_fail(c, "no memory for the program");
            return NULL;
        }
        array = bigger;
    }
    memset((uint8_t *)array + n * size, 0, size);
    (*count)++;
    return array;
}

// ---- life

struct vb_chain *vb_chain_begin(const char *name)
{
    struct vb_chain *c = calloc(1, sizeof *c);
    if (c)
        snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

static void queue_free(struct vb_build_queue *q)
{
    for (struct vb_item *item = q->first, *next; item; item = next) {
        next = item->next;
        free(item->data);
        free(item);
    }
    free(q->recv);
    free(q->ready);
    free(q->guard);
    free(q->restore);
}

void vb_chain_abandon(struct vb_chain *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->queues; i++)
        queue_free(&c->queue[i]);
    for (uint32_t i = 0; i < c->regions; i++)
        free(c->region[i].image.init);
    free(c->queue);
    free(c->region);
    free(c->label);
    free(c->address);
    free(c->count);
    free(c->manual);
    free(c);
}

// ---- queues and memory

struct vb_chain_queue vb_chain_queue(struct vb_chain *c, const char *name,
                                     const struct vb_chain_queue_opts *opts)
{
    struct vb_chain_queue none = {0};

    if (vb_build_failed(c))
        return none;
    if (opts->recv_sge > VB_MAX_SGE) {
        vb_build_fail(c, "queue '%s': a receive has at most %d scatter entries, not %u", name,
                      VB_MAX_SGE, opts->recv_sge);
        return none;
    }
    if (strlen(name) + 3 > VB_IMAGE_NAME) {
        vb_build_fail(c, "the name '%.20s…' is too long: at most %d letters", name,
                      VB_IMAGE_NAME - 3);
        return none;
    }
    struct vb_build_queue *a = vb_build_more(c, c->queue, &c->queues, sizeof *a);
    if (!a)
        return none;
    c->queue = a;
    snprintf(a[c->queues - 1].name, VB_IMAGE_NAME, "%s", name);
    a[c->queues - 1].opts = *opts;
    return (struct vb_chain_queue){c->queues};
}

struct vb_chain_region vb_chain_region(struct vb_chain *c, const char *name,
                                       enum vb_chain_memory kind, uint64_t bytes, bool writable)
{
    struct vb_chain_region none = {0};

    if (vb_build_failed(c))
        return none;
    struct vb_build_region *a = vb_build_more(c, c->region, &c->regions, sizeof *a);
    if (!a)
        return none;
    c->region = a;
    struct vb_image_region *r = &a[c->regions - 1].image;
    snprintf(r->name, VB_IMAGE_NAME, "%s", name);
    r->kind = (enum vb_region_kind)kind;
    r->bytes = bytes;
    r->writable = writable;
    if (kind == VB_CHAIN_OWN && !(r->init = calloc(bytes, sizeof *r->init)))
        vb_build_fail(c, "no memory for region '%s'", name);
    return (struct vb_chain_region){c->regions};
}

static struct vb_image_region *own_range(struct vb_chain *c, struct vb_place at, uint64_t len)
{
    struct vb_image_region *r;

    if (vb_build_failed(c))
        return NULL;
    if (at.region.id == 0 || at.region.id > c->regions) {
        vb_build_fail(c, "initial bytes are put into regions, not into entries");
        return NULL;
    }
    r = &c->region[at.region.id - 1].image;
    if (r->kind != VB_REGION_OWN || at.offset > r->bytes || len > r->bytes - at.offset) {
        vb_build_fail(c, "region '%s': %llu bytes at %llu are not within the program's own %llu",
                      r->name, (unsigned long long)len, (unsigned long long)at.offset,
                      (unsigned long long)r->bytes);
        return NULL;
    }
    return r;
}

void vb_chain_put(struct vb_chain *c, struct vb_place at, const void *bytes, uint32_t len)
{
    struct vb_image_region *r = own_range(c, at, len);
    if (r)
        memcpy(r->init + at.offset, bytes, len);
}

void vb_chain_put_address(struct vb_chain *c, struct vb_place at, struct vb_place of)
{
    if (!own_range(c, at, 8))
        return;
    struct vb_build_address *a = vb_build_more(c, c->address, &c->addresses, sizeof *a);
    if (!a)
        return;
    c->address = a;
    a[c->addresses - 1] = (struct vb_build_address){at, of};
}

// ---- entries

uint32_t vb_build_new_label(struct vb_chain *c)
{
    struct vb_build_label *a = vb_build_more(c, c->label, &c->labels, sizeof *a);
    if (!a)
        return 0;
    c->label = a;
    return c->labels;
}

struct vb_chain_label vb_chain_label(struct vb_chain *c, const char *name)
{
    struct vb_chain_label label = {vb_build_failed(c) ? 0 : vb_build_new_label(c)};
    if (label.id && name)
        snprintf(c->label[label.id - 1].name, VB_IMAGE_NAME, "%s", name);
    return label;
}

void vb_chain_here(struct vb_chain *c, struct vb_chain_label label)
{
    c->here = label.id;
}

const char *vb_build_label_name(const struct vb_chain *c, uint32_t label)
{
    return label && label <= c->labels && c->label[label - 1].name[0] ? c->label[label - 1].name
                                                                      : "(unnamed)";
}

struct vb_item *vb_build_insert(struct vb_chain *c, uint32_t queue, struct vb_item *after,
                                const struct vb_item *like)
{
    struct vb_build_queue *q = &c->queue[queue - 1];
    struct vb_item *item = malloc(sizeof *item);

    if (!item) {
        vb_build_fail(c, "no memory for the program");
        return NULL;
    }
    *item = *like;
    item->queue = queue;
    if (!after)
        after = q->last;
    item->next = after ? after->next : NULL;
    if (after)
        after->next = item;
    else
        q->first = item;
    if (!item->next)
        q->last = item;
    q->items++;
    if (item->op.label.id == 0)
        item->op.label.id = vb_build_new_label(c);
    if (item->op.label.id)
        c->label[item->op.label.id - 1].item = item;
    return item;
}

static bool queue_is_known(struct vb_chain *c, struct vb_chain_queue queue)
{
    if (vb_build_failed(c))
        return false;
    if (queue.id == 0 || queue.id > c->queues)
        return vb_build_fail(c, "an entry was given to a queue that does not exist");
    return true;
}

static bool label_is_free(struct vb_chain *c, struct vb_chain_label label)
{
    if (label.id > c->labels)
        return vb_build_fail(c, "an entry was given a label that does not exist");
    if (label.id && c->label[label.id - 1].item)
        return vb_build_fail(c, "label '%s' names two entries", vb_build_label_name(c, label.id));
    return true;
}

static struct vb_chain_label add(struct vb_chain *c, struct vb_chain_queue queue,
                                 struct vb_item *like)
{
    struct vb_chain_label none = {0};

    if (!queue_is_known(c, queue) || !label_is_free(c, like->op.label)) {
        free(like->data);
        return none;
    }
    if (c->here && like->op.label.id == 0) {
        like->op.label.id = c->here;
        c->here = 0;
        if (!label_is_free(c, like->op.label)) {
            free(like->data);
            return none;
        }
    }
    like->slot = c->queue[queue.id - 1].slots;
    struct vb_item *item = vb_build_insert(c, queue.id, NULL, like);
    if (!item)
        free(like->data);
    return item ? item->op.label : none;
}

struct vb_chain_label vb_chain_op(struct vb_chain *c, struct vb_chain_queue queue,
                                  const struct vb_chain_op *op)
{
    struct vb_item item = {.kind = VB_ITEM_OP, .op = *op};
    struct vb_chain_label none = {0};

    if (vb_build_failed(c))
        return none;
    if (op->parts > VB_MAX_SGE || op->len > 256) {
        vb_build_fail(c, "entry '%s': at most %d parts, or 256 bytes inline",
                      vb_build_label_name(c, op->label.id), VB_MAX_SGE);
        return none;
    }
    if (op->opcode == VB_WQE_NOP && op->parts + op->len > 0) {
        vb_build_fail(c, "entry '%s': a NOP has no parts and no bytes",
                      vb_build_label_name(c, op->label.id));
        return none;
    }
    if ((op->ds && op->opcode != VB_WQE_NOP) || (op->parts && op->len)) {
        vb_build_fail(c, "entry '%s': %s", vb_build_label_name(c, op->label.id),
                      op->ds ? "only a NOP is given a size" : "it has parts or bytes, not both");
        return none;
    }
    if (op->len) {
        item.data = malloc(op->len);
        if (!item.data) {
            vb_build_fail(c, "no memory for the program");
            return none;
        }
        memcpy(item.data, op->data, op->len);
        item.op.data = item.data;
    }
    return add(c, queue, &item);
}

struct vb_chain_label vb_chain_wait(struct vb_chain *c, struct vb_chain_queue queue,
                                    struct vb_chain_label until)
{
    return add(
        c, queue,
        &(struct vb_item){.kind = VB_ITEM_WAIT, .op = {.opcode = VB_WQE_WAIT}, .target = until.id});
}

struct vb_chain_label vb_chain_wait_recv(struct vb_chain *c, struct vb_chain_queue queue,
                                         struct vb_chain_queue peer, uint32_t n)
{
    return add(c, queue,
               &(struct vb_item){.kind = VB_ITEM_WAIT_RECV,
                                 .op = {.opcode = VB_WQE_WAIT},
                                 .queue_target = peer.id,
                                 .n = n});
}

struct vb_chain_label vb_chain_open(struct vb_chain *c, struct vb_chain_queue queue,
                                    struct vb_chain_label through)
{
    return add(c, queue,
               &(struct vb_item){
                   .kind = VB_ITEM_OPEN, .op = {.opcode = VB_WQE_SEND_EN}, .target = through.id});
}

struct vb_chain_label vb_chain_open_recv(struct vb_chain *c, struct vb_chain_queue queue,
                                         struct vb_chain_queue peer, uint32_t n)
{
    return add(c, queue,
               &(struct vb_item){.kind = VB_ITEM_OPEN_RECV,
                                 .op = {.opcode = VB_WQE_RECV_EN},
                                 .queue_target = peer.id,
                                 .n = n});
}

// The entry of a label, which is made already.
static struct vb_item *made_item(struct vb_chain *c, struct vb_chain_label label)
{
    struct vb_item *item = vb_build_item(c, label.id);

    if (!item)
        vb_build_fail(c, "entry '%s' was not made yet", vb_build_label_name(c, label.id));
    return vb_build_failed(c) ? NULL : item;
}

void vb_chain_add_flags(struct vb_chain *c, struct vb_chain_label label, uint32_t flags)
{
    struct vb_item *item = made_item(c, label);
    if (item)
        item->op.flags |= flags;
}

void vb_chain_recv(struct vb_chain *c, struct vb_chain_queue queue, const struct vb_part *part,
                   uint32_t parts)
{
    if (!queue_is_known(c, queue))
        return;
    struct vb_build_queue *q = &c->queue[queue.id - 1];
    if (parts > q->opts.recv_sge) {
        vb_build_fail(c, "queue '%s': a receive of %u parts, but it was made for %u", q->name,
                      parts, q->opts.recv_sge);
        return;
    }
    struct vb_build_recv *a = vb_build_more(c, q->recv, &q->recvs, sizeof *a);
    if (!a)
        return;
    q->recv = a;
    a[q->recvs - 1].parts = parts;
    if (parts)
        memcpy(a[q->recvs - 1].part, part, parts * sizeof *part);
}

// ---- rounds

void vb_chain_slot(struct vb_chain *c, struct vb_chain_queue queue)
{
    if (!queue_is_known(c, queue))
        return;
    struct vb_build_queue *q = &c->queue[queue.id - 1];
    if (q->slots == 0 && q->first) {
        vb_build_fail(c, "queue '%s': its first slot starts before its first entry", q->name);
        return;
    }
    uint32_t *a = vb_build_more(c, q->ready, &q->slots, sizeof *a);
    if (!a)
        return;
    q->ready = a;
    c->circular = true;
}

struct vb_chain_label vb_chain_open_rest(struct vb_chain *c, struct vb_chain_queue queue)
{
    return vb_chain_open(c, queue, (struct vb_chain_label){VB_BUILD_REST});
}

// The queue that runs in circles; what belongs to a slot belongs to its newest.
static struct vb_build_queue *round_queue(struct vb_chain *c)
{
    for (uint32_t i = 0; !vb_build_failed(c) && i < c->queues; i++)
        if (c->queue[i].slots)
            return &c->queue[i];
    vb_build_fail(c, "bytes are restored in programs that run in circles: vb_chain_slot() first");
    return NULL;
}

static void add_restore(struct vb_chain *c, struct vb_build_queue *q, struct vb_place at,
                        uint32_t len)
{
    struct vb_restore *a = vb_build_more(c, q->restore, &q->restores, sizeof *a);
    if (!a)
        return;
    q->restore = a;
    a[q->restores - 1] = (struct vb_restore){.slot = q->slots, .at = at, .len = len};
}

void vb_chain_restore_after(struct vb_chain *c, struct vb_place at, uint32_t len)
{
    vb_chain_restore(c, at, len);
    struct vb_build_queue *q = round_queue(c);
    if (q)
        q->restore[q->restores - 1].after = true;
}

void vb_chain_restore(struct vb_chain *c, struct vb_place at, uint32_t len)
{
    struct vb_build_queue *q = round_queue(c);
    if (q)
        add_restore(c, q, at, len);
}

void vb_chain_restore_on(struct vb_chain *c, struct vb_chain_queue queue, struct vb_place at,
                         uint32_t len)
{
    if (!queue_is_known(c, queue))
        return;
    if (c->queue[queue.id - 1].slots == 0)
        vb_build_fail(c, "queue '%s' does not run in circles", c->queue[queue.id - 1].name);
    else
        add_restore(c, &c->queue[queue.id - 1], at, len);
}

void vb_chain_manual(struct vb_chain *c, struct vb_chain_label label)
{
    struct vb_item *item = made_item(c, label);
    if (item)
        item->manual = true;
}

void vb_chain_count(struct vb_chain *c, struct vb_place at, struct vb_chain_label label)
{
    struct vb_item *item = made_item(c, label);
    if (!item || !own_range(c, at, 3))
        return;
    struct vb_build_manual *a = vb_build_more(c, c->manual, &c->manuals, sizeof *a);
    if (!a)
        return;
    c->manual = a;
    a[c->manuals - 1] = (struct vb_build_manual){at, label.id};
}

void vb_chain_guard(struct vb_chain *c, struct vb_chain_queue queue, struct vb_chain_label until)
{
    if (!queue_is_known(c, queue))
        return;
    struct vb_build_queue *q = &c->queue[queue.id - 1];
    struct vb_guard *a = vb_build_more(c, q->guard, &q->guards, sizeof *a);
    if (!a)
        return;
    q->guard = a;
    a[q->guards - 1] = (struct vb_guard){q->slots, until.id};
}
