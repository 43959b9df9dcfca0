// SPDX-License-Identifier: Apache-2.0
// Memory windows of the reference model.
#include "sim/window.h"

#include <stddef.h>

struct vb_window *vb_hostwin_create(struct vb_hostmem *mem, struct vb_dev *dev, uint32_t pd,
                                    bool type2)
{
    const struct vb_mkey_attr attr = {.pd = pd, .kind = type2 ? VB_MKEY_WINDOW2 : VB_MKEY_WINDOW1};
    struct vb_window w = {.pd = pd, .type2 = type2};

    if (mem->window_count == VB_WINDOWS_MAX || vb_dev_mkey_create(dev, &attr, &w.key) != 0)
        return NULL;
    w.next_tag = (uint8_t)(w.key + 1);
    mem->window[mem->window_count] = w;
    return &mem->window[mem->window_count++];
}

int vb_hostwin_replace(struct vb_dev *dev, struct vb_window *w)
{
    const struct vb_mkey_attr attr = {.pd = w->pd,
                                      .kind = w->type2 ? VB_MKEY_WINDOW2 : VB_MKEY_WINDOW1};
    int err = vb_dev_mkey_destroy(dev, w->key);

    if (err)
        return err;
    *w = (struct vb_window){.pd = w->pd, .type2 = w->type2};
    err = vb_dev_mkey_create(dev, &attr, &w->key);
    w->next_tag = (uint8_t)(w->key + 1);
    return err;
}

struct vb_window *vb_hostwin_find(struct vb_hostmem *mem, uint32_t key)
{
    for (uint32_t i = 0; i < mem->window_count; i++)
        if (mem->window[i].key >> 8 == key >> 8)
            return &mem->window[i];
    return NULL;
}

static struct vb_region *find_region(struct vb_hostmem *mem, uint32_t key)
{
    for (uint32_t i = 0; i < mem->region_count && key; i++)
        if (mem->region[i].key == key)
            return &mem->region[i];
    return NULL;
}

// Clause 10.6.7.2: memory of the same domain that allows windows, and stores only where the owner
// may store.
static enum vb_mem_refusal judge_region(const struct vb_region *r, struct vb_user user,
                                        const struct vb_hostwin_wish *wish)
{
    bool stores = wish->rights & (VB_REMOTE_WRITE | VB_REMOTE_ATOMIC);

    if (!r)
        return VB_MEM_NO_KEY;
    if (r->pd != user.pd)
        return VB_MEM_DOMAIN;
    if (!(r->access & VB_BIND) || (stores && !(r->access & VB_LOCAL_WRITE)))
        return VB_MEM_RIGHTS;
    if (wish->addr < r->addr || wish->addr + wish->len < wish->addr ||
        wish->addr + wish->len > r->addr + r->len)
        return VB_MEM_BOUNDS;
    return VB_MEM_OK;
}

enum vb_mem_refusal vb_hostwin_judge_bind(struct vb_hostmem *mem, struct vb_user user,
                                          const struct vb_hostwin_wish *wish)
{
    const struct vb_window *w = vb_hostwin_find(mem, wish->window);

    if (!w)
        return VB_MEM_NO_KEY;
    if (w->pd != user.pd)
        return VB_MEM_DOMAIN;
    if (w->type2 && (w->bound || wish->len == 0))
        return VB_MEM_STATE;
    return wish->len ? judge_region(find_region(mem, wish->region), user, wish) : VB_MEM_OK;
}

enum vb_mem_refusal vb_hostwin_bind(struct vb_hostmem *mem, struct vb_user user,
                                    const struct vb_hostwin_wish *wish)
{
    struct vb_window *w = vb_hostwin_find(mem, wish->window);
    const struct vb_region *r = find_region(mem, wish->region);
    enum vb_mem_refusal refusal = vb_hostwin_judge_bind(mem, user, wish);

    if (refusal != VB_MEM_OK)
        return refusal;
    w->dead_key = w->key;
    w->key = wish->window;
    w->bound = wish->len > 0;
    if (!w->bound)
        return VB_MEM_OK;
    w->qpn = user.qpn;
    w->region = (uint32_t)(r - mem->region);
    w->start = wish->zero_based ? 0 : wish->addr;
    w->offset = r->offset + (uint32_t)(wish->addr - r->addr);
    w->len = wish->len;
    w->access = wish->rights;
    return VB_MEM_OK;
}

enum vb_mem_refusal vb_hostwin_judge_invalidate(struct vb_hostmem *mem, struct vb_user user,
                                                uint32_t key)
{
    const struct vb_window *w = vb_hostwin_find(mem, key);

    if (!w || w->key != key || !w->type2)
        return VB_MEM_NO_KEY;
    if (w->pd != user.pd)
        return VB_MEM_DOMAIN;
    return w->bound && w->qpn == user.qpn ? VB_MEM_OK : VB_MEM_STATE;
}

enum vb_mem_refusal vb_hostwin_invalidate(struct vb_hostmem *mem, struct vb_user user, uint32_t key)
{
    enum vb_mem_refusal refusal = vb_hostwin_judge_invalidate(mem, user, key);

    if (refusal == VB_MEM_OK)
        vb_hostwin_find(mem, key)->bound = false;
    return refusal;
}
