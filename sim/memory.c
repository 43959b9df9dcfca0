// SPDX-License-Identifier: Apache-2.0
// A host's memory, its shadow and its regions.
#include "sim/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD_BYTES = 64
};

static void fill(struct vb_prng *prng, uint8_t *bytes, uint32_t len)
{
    for (; len >= 8; bytes += 8, len -= 8) {
        uint64_t v = vb_prng_next(prng);
        memcpy(bytes, &v, 8);
    }
    for (; len > 0; len--)
        *bytes++ = (uint8_t)vb_prng_next(prng);
}

int vb_hostmem_init(struct vb_hostmem *mem, uint32_t size, uint64_t seed)
{
    memset(mem, 0, sizeof *mem);
    mem->prng.state = seed;
    mem->bytes = malloc(size);
    mem->shadow = malloc(size);
    if (!mem->bytes || !mem->shadow)
        return -ENOMEM;
    mem->size = size;
    fill(&mem->prng, mem->bytes, size);
    memcpy(mem->shadow, mem->bytes, size);
    return 0;
}

void vb_hostmem_fini(struct vb_hostmem *mem)
{
    free(mem->bytes);
    free(mem->shadow);
}

struct vb_region *vb_hostmem_carve(struct vb_hostmem *mem, uint32_t len)
{
    uint32_t gap = GUARD_BYTES + (uint32_t)vb_prng_below(&mem->prng, 16);

    if (mem->region_count == VB_REGIONS_MAX || mem->size - mem->used < len + gap + GUARD_BYTES)
        return NULL;
    struct vb_region *r = &mem->region[mem->region_count++];
    *r = (struct vb_region){.offset = mem->used + gap, .len = len};
    // Somewhere in the lower half of the address space, far from the others.
    r->addr = (uint64_t)mem->region_count << 40 | (vb_prng_next(&mem->prng) & 0xffffffffff);
    r->addr = (r->addr & ~7ull) | (r->offset & 7); // atomics need both aligned
    mem->used = r->offset + len;
    return r;
}

int vb_hostmem_register(struct vb_hostmem *mem, struct vb_dev *dev, struct vb_region *r,
                        uint32_t pd, uint32_t access)
{
    struct vb_mkey_attr attr = {.pd = pd,
                                .access = access,
                                .start = r->addr,
                                .len = r->len,
                                .base = mem->bytes + r->offset};
    r->pd = pd;
    r->access = access;
    return vb_dev_mkey_create(dev, &attr, &r->key);
}

bool vb_hostmem_has_windows(const struct vb_hostmem *mem, const struct vb_region *r)
{
    for (uint32_t i = 0; i < mem->window_count; i++)
        if (mem->window[i].bound && &mem->region[mem->window[i].region] == r)
            return true;
    return false;
}

int vb_hostmem_deregister(const struct vb_hostmem *mem, struct vb_dev *dev, struct vb_region *r)
{
    bool busy = vb_hostmem_has_windows(mem, r);
    int err = vb_dev_mkey_destroy(dev, r->key);

    if (busy)
        return err == -EBUSY ? err : -EPROTO;
    if (err)
        return err == -EBUSY ? -EPROTO : err;
    r->dead_key = r->key;
    r->key = 0;
    return 0;
}

static enum vb_mem_refusal judge_window(const struct vb_window *w, struct vb_user user,
                                        uint64_t addr, uint64_t len, uint32_t need,
                                        uint32_t *offset)
{
    if (w->pd != user.pd)
        return VB_MEM_DOMAIN;
    if (!w->bound || !(need & VB_ACCESS_REMOTE) || (w->type2 && w->qpn != user.qpn))
        return VB_MEM_STATE;
    if ((w->access & need) != need)
        return VB_MEM_RIGHTS;
    if (len == 0)
        return VB_MEM_OK;
    if (addr < w->start || addr + len < addr || addr + len > w->start + w->len)
        return VB_MEM_BOUNDS;
    *offset = w->offset + (uint32_t)(addr - w->start);
    return VB_MEM_OK;
}

enum vb_mem_refusal vb_hostmem_judge(const struct vb_hostmem *mem, struct vb_user user,
                                     uint32_t key, uint64_t addr, uint64_t len, uint32_t need,
                                     uint32_t *offset)
{
    const struct vb_region *r = NULL;

    for (uint32_t i = 0; i < mem->window_count; i++)
        if (mem->window[i].key == key)
            return judge_window(&mem->window[i], user, addr, len, need, offset);

    for (uint32_t i = 0; i < mem->region_count && !r && key; i++)
        if (mem->region[i].key == key)
            r = &mem->region[i];
    if (!r)
        return VB_MEM_NO_KEY;
    if (r->pd != user.pd)
        return VB_MEM_DOMAIN;
    if ((r->access & need) != need)
        return VB_MEM_RIGHTS;
    if (len == 0)
        return VB_MEM_OK;
    if (addr < r->addr || addr + len < addr || addr + len > r->addr + r->len)
        return VB_MEM_BOUNDS;
    *offset = r->offset + (uint32_t)(addr - r->addr);
    return VB_MEM_OK;
}

// Neighbours are merged, so that equal sets of bytes in equal order compare equal.
void vb_spans_add(struct vb_spans *s, uint32_t offset, uint32_t len)
{
    if (len == 0)
        return;
    s->bytes += len;
    struct vb_span *last = s->count ? &s->span[s->count - 1] : NULL;
    if (last && last->offset + last->len == offset)
        last->len += len;
    else if (s->count <= VB_MAX_SGE)
        s->span[s->count++] = (struct vb_span){offset, len};
}

enum vb_mem_refusal vb_hostmem_spans(const struct vb_hostmem *mem, struct vb_user user,
                                     const struct vb_sge *sge, uint32_t num_sge, uint32_t from,
                                     uint32_t len, uint32_t need, struct vb_spans *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < num_sge && len > 0; i++) {
        if (from >= sge[i].len) {
            from -= sge[i].len;
            continue;
        }
        uint32_t n = sge[i].len - from < len ? sge[i].len - from : len;
        uint32_t offset = 0;
        enum vb_mem_refusal refusal =
            vb_hostmem_judge(mem, user, sge[i].lkey, sge[i].addr + from, n, need, &offset);
        if (refusal != VB_MEM_OK)
            return refusal;
        vb_spans_add(out, offset, n);
        from = 0;
        len -= n;
    }
    return len ? VB_MEM_BOUNDS : VB_MEM_OK;
}

void vb_hostmem_predict(struct vb_hostmem *mem, const struct vb_spans *s, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < s->count; i++) {
        memcpy(mem->shadow + s->span[i].offset, bytes, s->span[i].len);
        bytes += s->span[i].len;
    }
}

bool vb_hostmem_agrees(const struct vb_hostmem *mem, const struct vb_spans *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (memcmp(mem->shadow + s->span[i].offset, mem->bytes + s->span[i].offset, s->span[i].len))
            return false;
    return true;
}

static bool holds(const uint8_t *memory, const struct vb_spans *s, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (memcmp(memory + s->span[i].offset, bytes, s->span[i].len))
            return false;
        bytes += s->span[i].len;
    }
    return true;
}

bool vb_hostmem_equals(const struct vb_hostmem *mem, const struct vb_spans *s, const uint8_t *bytes)
{
    return holds(mem->bytes, s, bytes);
}

bool vb_hostmem_foretold(const struct vb_hostmem *mem, const struct vb_spans *s,
                         const uint8_t *bytes)
{
    return holds(mem->shadow, s, bytes);
}

bool vb_hostmem_touched(const struct vb_hostmem *mem, const struct vb_step *step, bool write,
                        struct vb_spans *out)
{
    uintptr_t base = (uintptr_t)mem->bytes;

    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < step->touches; i++) {
        const struct vb_touch *t = &step->touch[i];
        uintptr_t at = (uintptr_t)t->addr;
        if (at < base || at - base > mem->size || t->len > mem->size - (at - base))
            return false;
        if (t->write == write)
            vb_spans_add(out, (uint32_t)(at - base), t->len);
    }
    return true;
}

bool vb_spans_equal(const struct vb_spans *a, const struct vb_spans *b)
{
    return a->count == b->count && a->bytes == b->bytes &&
           memcmp(a->span, b->span, a->count * sizeof a->span[0]) == 0;
}

void vb_hostmem_skew(struct vb_hostmem *mem, struct vb_region *r)
{
    r->addr += 1 + vb_prng_below(&mem->prng, 3);
}

void vb_hostmem_clear(struct vb_hostmem *mem, struct vb_region *r)
{
    // The region's room ends with guards, which it may move into by so much.
    uint32_t up = (8 - (r->offset & 7)) & 7;

    r->offset += up;
    mem->used += up;
    r->addr &= ~7ull;
    memset(mem->bytes + r->offset, 0, r->len);
    memset(mem->shadow + r->offset, 0, r->len);
}

void vb_hostmem_scribble(struct vb_hostmem *mem, uint32_t offset, uint32_t len)
{
    fill(&mem->prng, mem->bytes + offset, len);
    memcpy(mem->shadow + offset, mem->bytes + offset, len);
}

int64_t vb_hostmem_differs(const struct vb_hostmem *mem)
{
    if (memcmp(mem->bytes, mem->shadow, mem->size) == 0)
        return -1;
    uint32_t i = 0;
    while (mem->bytes[i] == mem->shadow[i])
        i++;
    return i;
}

const struct vb_region *vb_hostmem_region_at(const struct vb_hostmem *mem, uint32_t offset)
{
    for (uint32_t i = 0; i < mem->region_count; i++) {
        const struct vb_region *r = &mem->region[i];
        if (offset >= r->offset && offset - r->offset < r->len)
            return r;
    }
    return NULL;
}
