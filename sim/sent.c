// SPDX-License-Identifier: Apache-2.0
// The set of frames under way.
#include "sim/sent.h"

#include "sim/digest.h"
#include "wire/roce.h"

#include <stdlib.h>

enum {
    SIZE_MIN = 1024,
    MARKS_AT = 4, // the byte that switches may change: no ICRC covers it
};

// Never 0. The ICRC is the port's.
static uint64_t key_of(const struct vb_ip *src, const struct vb_ip *dst, const uint8_t *frame,
                       uint32_t len)
{
    struct vb_digest d = {0};

    vb_digest_add(&d, vb_digest_bytes(src->b, sizeof src->b));
    vb_digest_add(&d, vb_digest_bytes(dst->b, sizeof dst->b));
    vb_digest_add(&d, vb_digest_bytes(frame, MARKS_AT));
    vb_digest_add(&d, vb_digest_bytes(frame + MARKS_AT + 1, len - MARKS_AT - 1 - VB_ICRC_BYTES));
    return d.value | 1;
}

static struct vb_sent_frame *find(const struct vb_sent *s, uint64_t key)
{
    uint32_t i = (uint32_t)(key >> 20) & (s->size - 1);

    while (s->slot[i].key && s->slot[i].key != key)
        i = (i + 1) & (s->size - 1);
    return &s->slot[i];
}

// Twice the room for the frames that are still under way; the others are forgotten.
static bool grow(struct vb_sent *s)
{
    struct vb_sent bigger = {.size = SIZE_MIN};

    for (uint32_t i = 0; i < s->size; i++)
        bigger.used += s->slot[i].under_way > 0;
    while (bigger.size < 4 * bigger.used)
        bigger.size *= 2;
    bigger.slot = calloc(bigger.size, sizeof *bigger.slot);
    if (!bigger.slot)
        return false;
    for (uint32_t i = 0; i < s->size; i++)
        if (s->slot[i].under_way > 0)
            *find(&bigger, s->slot[i].key) = s->slot[i];
    free(s->slot);
    *s = bigger;
    return true;
}

struct vb_sent_frame *vb_sent_add(struct vb_sent *s, const struct vb_ip *src,
                                  const struct vb_ip *dst, const uint8_t *frame, uint32_t len)
{
    if (2 * s->used >= s->size && !grow(s))
        return NULL;
    uint64_t key = key_of(src, dst, frame, len);
    struct vb_sent_frame *f = find(s, key);
    s->used += f->key == 0;
    f->key = key;
    f->under_way++;
    return f;
}

struct vb_sent_frame *vb_sent_find(const struct vb_sent *s, const struct vb_ip *src,
                                   const struct vb_ip *dst, const uint8_t *frame, uint32_t len)
{
    if (s->size == 0 || len <= MARKS_AT + 1 + VB_ICRC_BYTES)
        return NULL;
    struct vb_sent_frame *f = find(s, key_of(src, dst, frame, len));
    return f->under_way > 0 ? f : NULL;
}

void vb_sent_take(struct vb_sent_frame *f)
{
    f->under_way--;
    if (f->old > f->under_way)
        f->old = f->under_way;
}

void vb_sent_heal(struct vb_sent *s)
{
    for (uint32_t i = 0; i < s->size; i++)
        s->slot[i].old = s->slot[i].under_way;
}

void vb_sent_fini(struct vb_sent *s)
{
    free(s->slot);
    *s = (struct vb_sent){0};
}
