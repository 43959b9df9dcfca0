// SPDX-License-Identifier: Apache-2.0
// Memory of hosts in a world of chain programs. A piece has an owner: a caller and the program that
// serves it share one, so that no queue pair ever touches what belongs to another's.
#include "sim/chain_world.h"

#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 64,
    ADDR_FIRST = 1 << 24,
    ADDR_STEP = 1 << 16,
};

static uint8_t guard_byte(const struct vb_piece *p, uint32_t at)
{
    return (uint8_t)(p->addr >> 16 ^ at * 37);
}

struct vb_piece *vb_piece_create(struct vb_chainnic *nic, uint32_t len, uint32_t owner)
{
    size_t room = ((size_t)len + 63) & ~(size_t)63;
    struct vb_piece *p = nic->pieces < VB_CHAINS_PIECES ? calloc(1, sizeof *p) : NULL;

    if (!p)
        return NULL;
    p->block = aligned_alloc(64, room + 2 * (size_t)GUARD);
    if (!p->block) {
        free(p);
        return NULL;
    }
    if (!nic->next_addr)
        nic->next_addr = ADDR_FIRST;
    p->at = p->block + GUARD;
    p->addr = nic->next_addr;
    p->len = len;
    p->owner = owner;
    nic->next_addr += (room + 2 * (uint64_t)ADDR_STEP - 1) / ADDR_STEP * ADDR_STEP;
    memset(p->at, 0, room);
    for (uint32_t i = 0; i < GUARD; i++) {
        p->block[i] = guard_byte(p, i);
        p->at[len + i] = guard_byte(p, GUARD + i);
    }
    nic->piece[nic->pieces++] = p;
    return p;
}

static void check_guards(struct vb_chainnic *nic, const struct vb_piece *p)
{
    for (uint32_t i = 0; i < GUARD; i++)
        if (p->block[i] != guard_byte(p, i) || p->at[p->len + i] != guard_byte(p, GUARD + i)) {
            vb_chainworld_violate(nic->world, "NIC %u: memory beside %u bytes of owner %u changed",
                                  nic->index, p->len, p->owner);
            return;
        }
}

static void release(struct vb_chainnic *nic, uint32_t i)
{
    struct vb_piece *p = nic->piece[i];

    check_guards(nic, p);
    nic->piece[i] = nic->piece[--nic->pieces];
    free(p->block);
    free(p);
}

void vb_piece_destroy(struct vb_chainnic *nic, uint32_t owner)
{
    for (uint32_t i = nic->pieces; i-- > 0;)
        if (nic->piece[i]->owner == owner)
            release(nic, i);
}

void vb_piece_destroy_all(struct vb_chainnic *nic)
{
    while (nic->pieces > 0)
        release(nic, nic->pieces - 1);
}

bool vb_piece_allows(const struct vb_chainnic *nic, uint32_t owner, const struct vb_touch *touch)
{
    const uint8_t *at = touch->addr;

    for (uint32_t i = 0; i < nic->pieces; i++) {
        const struct vb_piece *p = nic->piece[i];
        bool granted = p->owner == owner || (p->owner == 0 && !touch->write);
        if (granted && at >= p->at && at < p->at + p->len &&
            touch->len <= (uint64_t)(p->at + p->len - at))
            return true;
    }
    return false;
}
