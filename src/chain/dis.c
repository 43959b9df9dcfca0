// SPDX-License-Identifier: Apache-2.0
// The disassembler: declarations, data of regions, and the order of it all.
#include "chain/dis.h"
#include "base/bytes.h"
#include "chain/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DATA_BYTES = 32, // in one line of a region
};

// ---- what lies where

static int by_block(const void *a, const void *b)
{
    const struct vb_image_label *x = a, *y = b;
    int order = vb_spot_compare(&(struct vb_spot){.index = x->queue, .offset = x->block},
                                &(struct vb_spot){.index = y->queue, .offset = y->block});
    return order ? order : strcmp(x->name, y->name);
}

static void map_labels(struct vb_disassembler *d)
{
    for (uint32_t i = d->image->labels; i-- > 0;)
        d->queue[d->label[i].queue].label[d->label[i].block] = &d->label[i];
}

static void map_blocks(struct vb_disassembler *d, uint32_t queue)
{
    struct vb_dis_queue *s = &d->queue[queue];
    struct vb_code code;

    for (uint32_t block = 0, blocks; block < d->image->queue[queue].blocks; block += blocks) {
        struct vb_unit *u = &s->unit[block];
        blocks = vb_dis_decode(d, queue, block, u, &code);
        for (uint32_t i = 1; i < blocks; i++)
            u[i] = (struct vb_unit){.kind = VB_UNIT_INSIDE, .back = (uint16_t)i};
        if (u->kind != VB_UNIT_NONE)
            s->end = block + blocks;
    }
}

static void map_receives(struct vb_disassembler *d, uint32_t queue)
{
    const struct vb_image_queue *q = &d->image->queue[queue];
    struct vb_dis_queue *s = &d->queue[queue];
    struct vb_spot at = {.kind = VB_IN_RECV, .index = queue};

    for (uint32_t n = 0; n < q->recvs; n++, at.offset += q->recv_stride) {
        const uint8_t *bytes = q->recv + at.offset;
        s->recv_used[n] = bytes[0] != 0 || memcmp(bytes, bytes + 1, q->recv_stride - 1) != 0 ||
                          vb_dis_has_reloc(d, &at, q->recv_stride);
        if (s->recv_used[n])
            s->recv_end = n + 1;
    }
}

static void *make(struct vb_disassembler *d, size_t count, size_t size)
{
    void *array = calloc(count, size);
    if (!array)
        d->failed = true;
    return array;
}

static void prepare(struct vb_disassembler *d)
{
    const struct vb_image *image = d->image;

    d->queue = make(d, image->queues, sizeof *d->queue);
    d->reloc = vb_image_sorted(image);
    d->failed = d->failed || !d->reloc;
    d->done = make(d, image->relocs, sizeof *d->done);
    d->label = make(d, image->labels, sizeof *d->label);
    for (uint32_t i = 0; d->queue && i < image->queues; i++) {
        struct vb_dis_queue *s = &d->queue[i];
        s->unit = make(d, image->queue[i].blocks, sizeof *s->unit);
        s->label = make(d, image->queue[i].blocks, sizeof(void *));
        s->recv_used = make(d, image->queue[i].recvs, sizeof *s->recv_used);
    }
    if (d->failed)
        return;
    if (image->labels) {
        memcpy(d->label, image->label, image->labels * sizeof *d->label);
        qsort(d->label, image->labels, sizeof *d->label, by_block);
    }
    map_labels(d);
    for (uint32_t i = 0; i < image->queues; i++) {
        map_blocks(d, i);
        map_receives(d, i);
    }
}

// ---- declarations

static bool is_bare(const char *name)
{
    if (*name == 0 || (*name >= '0' && *name <= '9'))
        return false;
    for (; *name; name++) {
        bool letter = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z');
        if (!letter && *name != '_' && !(*name >= '0' && *name <= '9'))
            return false;
    }
    return true;
}

static void print_program(struct vb_disassembler *d)
{
    const char *name = d->image->name;

    vb_dis_print(d, "program ");
    if (is_bare(name))
        vb_dis_print(d, "%s", name);
    else
        vb_dis_quote(d, (const uint8_t *)name, (uint32_t)strlen(name));
    vb_dis_print(d, "\n\n");
    for (uint32_t i = 0; i < d->image->cqs; i++)
        vb_dis_print(d, "cq %s entries %u\n", d->image->cq[i].name, d->image->cq[i].entries);
}

static void print_count(struct vb_disassembler *d, const char *name, uint32_t value,
                        uint32_t expected)
{
    if (value != expected)
        vb_dis_print(d, " %s %u", name, value);
}

static void print_queue(struct vb_disassembler *d, uint32_t i)
{
    const struct vb_image_queue *q = &d->image->queue[i];
    const struct vb_dis_queue *s = &d->queue[i];

    vb_dis_print(d, "queue %s %s%s%s%s%s blocks %u", q->name,
                 q->kind == VB_QUEUE_LOOP ? "loop" : "peer", q->managed_send ? " managed_send" : "",
                 q->managed_recv ? " managed_recv" : "", q->wqe_checks ? " checks" : "",
                 q->be_replies ? " be_replies" : "", q->blocks);
    print_count(d, "recvs", q->recvs, 0);
    print_count(d, "stride", q->recv_stride, q->recvs ? VB_FORM_STRIDE : 0);
    vb_dis_print(d, " send_cq %s", d->image->cq[q->send_cq].name);
    vb_dis_print(d, " recv_cq %s", d->image->cq[q->recv_cq].name);
    print_count(d, "filled", q->filled, s->end);
    print_count(d, "open", q->open, q->managed_send ? 0 : q->filled);
    print_count(d, "recv_filled", q->recv_filled, s->recv_end);
    print_count(d, "recv_open", q->recv_open, q->managed_recv ? 0 : q->recv_filled);
    vb_dis_print(d, "\n");
}

// ---- regions

// The value below a relocation, which is taken out of `bytes`.
static uint64_t take_value(uint8_t *bytes, const struct vb_reloc *r)
{
    uint32_t len = vb_reloc_bytes(r->kind);
    bool little = r->kind >= VB_RELOC_SEND_COUNT;
    uint64_t value = 0;

    for (uint32_t i = 0; i < len; i++)
        value = value << 8 | bytes[r->at.offset + (little ? len - 1 - i : i)];
    memset(bytes + r->at.offset, 0, len);
    return value;
}

static void print_data(struct vb_disassembler *d, const uint8_t *bytes, uint64_t total)
{
    for (uint64_t at = 0; at < total;) {
        if (bytes[at] == 0) {
            at++;
            continue;
        }
        uint32_t len = total - at < DATA_BYTES ? (uint32_t)(total - at) : DATA_BYTES;
        while (bytes[at + len - 1] == 0)
            len--;
        vb_dis_print(d, "    %" PRIu64 ": bytes ", at);
        vb_dis_bytes(d, bytes + at, len);
        vb_dis_print(d, "\n");
        at += len;
    }
}

static void print_own(struct vb_disassembler *d, uint32_t index)
{
    const struct vb_image_region *r = &d->image->region[index];
    const struct vb_spot at = {.kind = VB_IN_DATA, .index = index};
    uint32_t first = vb_dis_first(d, &at), end = first;
    uint8_t *bytes = make(d, r->bytes, sizeof *bytes);

    while (end < d->image->relocs && d->reloc[end].at.kind == VB_IN_DATA &&
           d->reloc[end].at.index == index)
        end++;
    uint64_t *value = make(d, end - first, sizeof *value);
    if (!d->failed) {
        memcpy(bytes, r->init, r->bytes);
        for (uint32_t i = first; i < end; i++)
            value[i - first] = take_value(bytes, &d->reloc[i]);
        print_data(d, bytes, r->bytes);
        for (uint32_t i = first; i < end; i++) {
            vb_dis_print(d, "    %" PRIu64 ": ", d->reloc[i].at.offset);
            vb_dis_reloc(d, &d->reloc[i]);
            if (value[i - first])
                vb_dis_print(d, " = %" PRIu64, value[i - first]);
            vb_dis_print(d, "\n");
        }
    }
    free(bytes);
    free(value);
}

static void print_region(struct vb_disassembler *d, uint32_t i)
{
    static const char *const kinds[] = {
        [VB_REGION_OWN] = "own", [VB_REGION_SHARED] = "shared", [VB_REGION_PEER] = "peer"};
    const struct vb_image_region *r = &d->image->region[i];

    vb_dis_print(d, "region %s %s %" PRIu64 "%s\n", r->name, kinds[r->kind], r->bytes,
                 r->writable ? " writable" : "");
    if (r->kind == VB_REGION_OWN)
        print_own(d, i);
}

// ---- the whole

static void print_all(struct vb_disassembler *d)
{
    const struct vb_image *image = d->image;

    print_program(d);
    for (uint32_t i = 0; i < image->queues; i++)
        print_queue(d, i);
    for (uint32_t i = 0; i < image->regions; i++)
        print_region(d, i);
    for (uint32_t i = 0; i < image->queues; i++)
        vb_dis_code(d, i);
    for (uint32_t i = 0; i < image->queues; i++)
        vb_dis_receives(d, i);
}

char *vb_dis(const struct vb_image *image)
{
    struct vb_disassembler d = {.image = image};

    prepare(&d);
    if (!d.failed)
        print_all(&d);
    for (uint32_t i = 0; d.queue && i < image->queues; i++) {
        free(d.queue[i].unit);
        free(d.queue[i].label);
        free(d.queue[i].recv_used);
    }
    free(d.queue);
    free(d.reloc);
    free(d.done);
    free(d.label);
    if (!d.failed)
        return d.text;
    free(d.text);
    return NULL;
}
