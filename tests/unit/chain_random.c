// SPDX-License-Identifier: Apache-2.0
// Random chain programs: entries, garbage, relocations anywhere, names that several things have.
#include "chain_random.h"

#include "base/prng.h"
#include "chain/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t below(struct vb_prng *r, uint32_t n)
{
    return (uint32_t)vb_prng_below(r, n);
}

static bool chance(struct vb_prng *r, uint32_t percent)
{
    return below(r, 100) < percent;
}

static void draw_name(struct vb_prng *r, char name[VB_IMAGE_NAME])
{
    static const char *const words[] = {"W",   "K",       "V",  "index", "recv",
                                        "nop", "program", "_x", "ff"};

    snprintf(name, VB_IMAGE_NAME, "%s", words[below(r, 9)]);
    if (chance(r, 50))
        snprintf(name + strlen(name), VB_IMAGE_NAME - strlen(name), "%u", below(r, 20));
}

static void fill(struct vb_prng *r, uint8_t *bytes, uint64_t len, uint32_t percent)
{
    for (uint64_t i = 0; i < len; i++)
        if (chance(r, percent))
            bytes[i] = (uint8_t)vb_prng_next(r);
}

// ---- entries

static uint64_t draw_value(struct vb_prng *r)
{
    return chance(r, 50) ? 0 : chance(r, 50) ? below(r, 256) : vb_prng_next(r);
}

static void draw_data(struct vb_prng *r, struct vb_code *c)
{
    bool atomic = c->opcode == VB_WQE_ATOMIC_CS || c->opcode == VB_WQE_ATOMIC_FA ||
                  c->opcode == VB_WQE_MASKED_CS || c->opcode == VB_WQE_MASKED_FA;
    bool gathers = c->opcode != VB_WQE_READ && !atomic;

    if (gathers && chance(r, 30)) {
        c->inline_len = 1 + below(r, chance(r, 80) ? 30 : 256);
        for (uint32_t i = 0; i < c->inline_len; i++)
            c->data[i] = (uint8_t)(chance(r, 80) ? ' ' + below(r, 95) : vb_prng_next(r));
        return;
    }
    c->num_sge = atomic ? 1 : below(r, chance(r, 80) ? 5 : VB_MAX_SGE + 1);
    for (uint32_t i = 0; i < c->num_sge; i++) {
        c->sge[i].addr = draw_value(r);
        c->sge[i].key = (uint32_t)draw_value(r);
        c->sge[i].len = chance(r, 90) ? below(r, 20) : (uint32_t)vb_prng_next(r);
    }
}

static void draw_code(struct vb_prng *r, struct vb_code *c, uint32_t block)
{
    static const uint8_t opcodes[] = {
        VB_WQE_NOP,       VB_WQE_SEND,      VB_WQE_SEND_IMM,  VB_WQE_WRITE, VB_WQE_WRITE_IMM,
        VB_WQE_READ,      VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA, VB_WQE_WAIT,  VB_WQE_SEND_EN,
        VB_WQE_MASKED_CS, VB_WQE_MASKED_FA, VB_WQE_RECV_EN};

    memset(c, 0, sizeof *c);
    c->opcode = opcodes[below(r, sizeof opcodes)];
    c->opmod = (uint8_t)(chance(r, 50) ? 0 : chance(r, 70) ? below(r, 10) : vb_prng_next(r));
    c->idx = (uint16_t)(chance(r, 70) ? block : vb_prng_next(r));
    c->qpn = chance(r, 70) ? 0 : below(r, 1 << 24);
    c->fm_ce_se = (uint8_t)(chance(r, 80) ? (chance(r, 50) ? 0x88 : 0x0a) : vb_prng_next(r));
    c->imm = (uint32_t)draw_value(r);
    c->raddr = draw_value(r);
    c->rkey = (uint32_t)draw_value(r);
    c->swap_add = draw_value(r);
    c->compare = draw_value(r);
    c->swap_mask = draw_value(r);
    c->compare_mask = draw_value(r);
    c->index = (uint32_t)draw_value(r);
    c->object = (uint32_t)draw_value(r);
    if (c->opcode == VB_WQE_NOP)
        c->ds = (uint8_t)(chance(r, 50) ? 0 : 1 + below(r, 63));
    else if (c->opcode != VB_WQE_WAIT && c->opcode != VB_WQE_SEND_EN && c->opcode != VB_WQE_RECV_EN)
        draw_data(r, c);
}

static void draw_ring(struct vb_prng *r, struct vb_image_queue *q)
{
    struct vb_code code;

    for (uint32_t block = 0; block < q->blocks; block++) {
        uint8_t *at = q->code + (size_t)block * VB_WQEBB_BYTES;
        uint32_t what = below(r, 10);
        if (what == 0)
            fill(r, at, VB_WQEBB_BYTES, 1 + below(r, 100));
        if (what <= 2)
            continue;
        draw_code(r, &code, block);
        uint32_t blocks = vb_code_written(&code);
        if (block + blocks > q->blocks)
            continue;
        vb_code_write(at, &code, true);
        if (chance(r, 20))
            at[3] = VB_WQE_NOP;
        if (chance(r, 5))
            at[below(r, blocks * VB_WQEBB_BYTES)] ^= 1;
        block += chance(r, 90) ? blocks - 1 : 0;
    }
}

static void draw_receives(struct vb_prng *r, struct vb_image_queue *q)
{
    for (uint32_t n = 0; n < q->recvs; n++) {
        uint8_t *at = q->recv + (size_t)n * q->recv_stride;
        uint32_t segs = q->recv_stride / 16, count = below(r, segs + 1);
        if (chance(r, 20))
            continue;
        if (chance(r, 10)) {
            fill(r, at, q->recv_stride, 20);
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            at[16 * i + 3] = (uint8_t)below(r, 20);
            fill(r, at + 16 * i + 4, 12, chance(r, 50) ? 0 : 50);
        }
        if (count < segs && chance(r, 95))
            at[16 * count + 6] = 1;
    }
}

// ---- relocations

static struct vb_spot draw_spot(struct vb_prng *r, const struct vb_image *image)
{
    struct vb_spot spot = {.kind = (enum vb_place_kind)below(r, 3)};
    uint64_t extent;

    if (spot.kind == VB_IN_DATA && image->regions == 0)
        spot.kind = VB_IN_SEND;
    if (spot.kind == VB_IN_DATA) {
        spot.index = below(r, image->regions);
        extent = image->region[spot.index].bytes;
    } else {
        spot.index = below(r, image->queues);
        const struct vb_image_queue *q = &image->queue[spot.index];
        extent = spot.kind == VB_IN_SEND ? (uint64_t)q->blocks * VB_WQEBB_BYTES
                                         : (uint64_t)q->recvs * q->recv_stride;
    }
    spot.offset = vb_prng_below(r, extent + 1);
    if (chance(r, 50))
        spot.offset &= ~(uint64_t)3;
    return spot;
}

// Where entries have what is filled in: behind 4, 16, 24, 28, 36, 40 … bytes.
static void draw_reloc(struct vb_prng *r, struct vb_image *image)
{
    static const uint8_t usual[][2] = {
        {4, VB_RELOC_QPN3},      {16, VB_RELOC_ADDR},       {24, VB_RELOC_KEY},
        {24, VB_RELOC_CQ_INDEX}, {24, VB_RELOC_SEND_INDEX}, {28, VB_RELOC_CQN},
        {28, VB_RELOC_QPN},      {36, VB_RELOC_KEY},        {40, VB_RELOC_ADDR},
        {52, VB_RELOC_KEY},      {56, VB_RELOC_ADDR},       {20, VB_RELOC_KEY},
        {24, VB_RELOC_ADDR},     {24, VB_RELOC_RECV_INDEX}};
    struct vb_reloc reloc = {.kind = (enum vb_reloc_kind)below(r, VB_RELOC_CQ_COUNT + 1)};
    char why[VB_IMAGE_TEXT];

    reloc.at = draw_spot(r, image);
    reloc.target = draw_spot(r, image);
    if (chance(r, 70)) {
        const uint8_t *pick = usual[below(r, sizeof usual / sizeof usual[0])];
        reloc.at.offset = (reloc.at.offset & ~(uint64_t)63) + pick[0];
        reloc.kind = (enum vb_reloc_kind)pick[1];
    }
    if (reloc.kind != VB_RELOC_ADDR && reloc.kind != VB_RELOC_KEY)
        reloc.target.index = below(r, 3);
    if (vb_image_add_reloc(image, &reloc) < 0)
        abort();
    if (!vb_image_check(image, why))
        image->relocs--;
}

// ---- the whole

static void add_queue(struct vb_prng *r, struct vb_image *image)
{
    struct vb_image_queue q = {.kind = (enum vb_image_queue_kind)below(r, 2)};

    draw_name(r, q.name);
    q.managed_send = chance(r, 50);
    q.managed_recv = chance(r, 50);
    q.wqe_checks = chance(r, 50);
    q.be_replies = chance(r, 50);
    q.send_cq = below(r, image->cqs);
    q.recv_cq = below(r, image->cqs);
    q.blocks = 1u << below(r, 6);
    q.recvs = chance(r, 50) ? 0 : 1u << below(r, 4);
    q.recv_stride = q.recvs ? 16u << below(r, 5) : below(r, 3) * 40;
    q.filled = below(r, q.blocks + 1);
    q.open = q.managed_send && chance(r, 20) ? (uint32_t)vb_prng_next(r) : below(r, q.filled + 1);
    q.recv_filled = below(r, q.recvs + 1);
    q.recv_open = below(r, q.recv_filled + 1);
    int i = vb_image_add_queue(image, &q);
    if (i < 0)
        return;
    draw_ring(r, &image->queue[i]);
    draw_receives(r, &image->queue[i]);
}

static void add_region(struct vb_prng *r, struct vb_image *image)
{
    struct vb_image_region region = {.kind = (enum vb_region_kind)below(r, 3)};

    draw_name(r, region.name);
    region.bytes = chance(r, 10) ? 0 : below(r, 300);
    if (region.kind != VB_REGION_OWN && chance(r, 20))
        region.bytes = vb_prng_next(r);
    region.writable = chance(r, 50);
    int i = vb_image_add_region(image, &region);
    if (i >= 0 && region.kind == VB_REGION_OWN)
        fill(r, image->region[i].init, region.bytes, below(r, 3) * 20);
}

struct vb_image *chain_random(uint64_t seed)
{
    struct vb_prng prng = {.state = seed}, *r = &prng;
    char name[VB_IMAGE_NAME];

    draw_name(r, name);
    if (chance(r, 10))
        snprintf(name, sizeof name, "a \"b\" \\ %c#", 1 + below(r, 255));
    struct vb_image *image = vb_image_create(name);
    if (!image)
        abort();
    for (uint32_t n = 1 + below(r, 3); image->cqs < n;) {
        draw_name(r, name);
        vb_image_add_cq(image, name, 1u << below(r, 8));
    }
    for (uint32_t n = 1 + below(r, 3); image->queues < n;)
        add_queue(r, image);
    for (uint32_t n = below(r, 5); image->regions < n;)
        add_region(r, image);
    for (uint32_t n = below(r, 60); n > 0; n--)
        draw_reloc(r, image);
    for (uint32_t n = below(r, 8); n > 0; n--) {
        uint32_t queue = below(r, image->queues);
        draw_name(r, name);
        vb_image_add_label(image, name, queue, below(r, image->queue[queue].blocks));
    }
    return image;
}
