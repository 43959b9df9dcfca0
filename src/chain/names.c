// SPDX-License-Identifier: Apache-2.0
// Names to indices, by open addressing.
#include "chain/names.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROOM_FIRST = 16,
};

static const char *name_at(struct vb_named things, uint32_t index)
{
    return (const char *)things.first + index * things.stride;
}

uint32_t vb_names_hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

int vb_names_find(const struct vb_names *n, struct vb_named things, const char *name)
{
    if (n->used == 0)
        return -1;
    for (uint32_t i = vb_names_hash(name);; i++) {
        uint32_t index = n->slot[i & (n->room - 1)];
        if (index == 0)
            return -1;
        if (strcmp(name_at(things, index - 1), name) == 0)
            return (int)index - 1;
    }
}

static void put(struct vb_names *n, struct vb_named things, uint32_t index)
{
    uint32_t i = vb_names_hash(name_at(things, index));
    while (n->slot[i & (n->room - 1)])
        i++;
    n->slot[i & (n->room - 1)] = index + 1;
}

// Half of the slots stay free, so that a search ends soon.
bool vb_names_reserve(struct vb_names *n, struct vb_named things)
{
    struct vb_names bigger = {.room = n->room ? 2 * n->room : ROOM_FIRST, .used = n->used};

    if (n->used < n->room / 2)
        return true;
    bigger.slot = calloc(bigger.room, sizeof *bigger.slot);
    if (!bigger.slot)
        return false;
    for (uint32_t i = 0; i < n->room; i++)
        if (n->slot[i])
            put(&bigger, things, n->slot[i] - 1);
    free(n->slot);
    *n = bigger;
    return true;
}

void vb_names_add(struct vb_names *n, struct vb_named things, uint32_t index)
{
    put(n, things, index);
    n->used++;
}
