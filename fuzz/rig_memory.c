// SPDX-License-Identifier: Apache-2.0
// Regions and windows of the rig: each region is an allocation of its exact size.
#include "rig.h"

#include <stdlib.h>

static uint32_t rights_of(uint32_t region)
{
    static const uint32_t rights[RIG_REGIONS] = {VB_ACCESS_ALL, VB_REMOTE_READ | VB_BIND,
                                                 VB_LOCAL_WRITE, VB_ACCESS_ALL};
    return rights[region];
}

// The last region is of another domain: the XRC shared receive queue's.
static struct vb_mkey_attr describe(const struct rig *r, uint32_t region, uint8_t *base)
{
    return (struct vb_mkey_attr){.pd = r->pd[region == RIG_REGIONS - 1],
                                 .access = rights_of(region),
                                 .start = (uintptr_t)base,
                                 .len = RIG_REGION_BYTES,
                                 .base = base};
}

static uint8_t *allocate(void)
{
    uint8_t *base = calloc(1, RIG_REGION_BYTES);
    rig_require(base != NULL);
    return base;
}

void rig_register(struct rig *r, uint32_t region)
{
    struct rig_region *g = &r->region[region];
    if (g->base)
        return;
    g->base = allocate();
    g->gone = false;
    const struct vb_mkey_attr attr = describe(r, region, g->base);
    rig_require(vb_dev_mkey_create(r->dev, &attr, &g->key) == 0);
}

// The memory goes with the key: whatever touches it afterwards is caught.
bool rig_unregister(struct rig *r, uint32_t region)
{
    struct rig_region *g = &r->region[region];
    if (!g->base)
        return true;
    const struct vb_mkey *m = vb_mkey_find(&r->dev->mkeys, g->key);
    rig_require(m != NULL);
    bool bound = m->windows > 0;
    rig_require((vb_dev_mkey_destroy(r->dev, g->key) == 0) == !bound);
    if (bound)
        return false;
    free(g->base);
    g->base = NULL;
    return true;
}

void rig_reregister(struct rig *r, uint32_t region, uint32_t access)
{
    struct rig_region *g = &r->region[region];
    if (!g->base)
        return;
    uint8_t *other = allocate();
    struct vb_mkey_attr attr = describe(r, region, other);
    attr.access = access;
    bool changed = vb_dev_mkey_change(r->dev, g->key, &attr) == 0;
    free(changed ? g->base : other);
    if (changed)
        g->base = other;
}

void rig_create_window(struct rig *r, uint32_t window)
{
    const struct vb_mkey_attr attr = {.pd = r->pd[window == RIG_WINDOWS - 1],
                                      .kind = window ? VB_MKEY_WINDOW2 : VB_MKEY_WINDOW1};
    rig_require(vb_dev_mkey_create(r->dev, &attr, &r->window[window]) == 0);
}

void rig_destroy_window(struct rig *r, uint32_t window)
{
    rig_require(vb_dev_window_destroy(r->dev, r->window[window]) == 0);
}

bool rig_is_registered(const struct rig *r, const uint8_t *at, uint32_t len)
{
    for (uint32_t i = 0; i < RIG_REGIONS; i++) {
        const uint8_t *base = r->region[i].base;
        if (base && at >= base && at + len <= base + RIG_REGION_BYTES)
            return true;
    }
    return false;
}

static uint64_t window_addr(struct rig *r, uint32_t window, uint32_t *key)
{
    *key = vb_mkey_current(&r->dev->mkeys, r->window[window]);
    const struct vb_mkey *m = vb_mkey_find(&r->dev->mkeys, *key);
    uint64_t room = m && m->bound ? m->len : 0;
    return (m ? m->start : 0) + rig_u8(r) % (room + 8);
}

uint64_t rig_addr(struct rig *r, uint32_t *key)
{
    uint8_t choice = rig_u8(r);
    uint32_t which = choice % 8, keep;
    if (which >= RIG_REGIONS && which < RIG_REGIONS + RIG_WINDOWS) {
        uint64_t addr = window_addr(r, which - RIG_REGIONS, &keep);
        *key = choice & 0x80 ? rig_u32(r) : keep;
        return addr;
    }
    const struct rig_region *g = &r->region[which < RIG_REGIONS ? which : 0];
    *key = choice & 0x80 ? rig_u32(r) : g->key;
    uint32_t offset = choice & 0x20   ? (uint32_t)(RIG_REGION_BYTES - rig_u8(r)) // from its end
                      : choice & 0x10 ? (uint32_t)rig_u16(r) % (RIG_REGION_BYTES + 64)
                                      : (uint32_t)rig_u8(r) * 8;
    return (uintptr_t)g->base + offset - (choice & 0x40 ? 64 : 0);
}
