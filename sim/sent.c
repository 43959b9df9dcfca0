// SPDX-License-Identifier: Apache-2.0
// The set of frames sent.
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

static uint64_t *find(const struct vb_sent *s, uint64_t key)
{
    uint32_t i = (uint32_t)(key >> 20) & (s->size - 1);

    while (s->slot[i] && s->slot[i] != key)
        i = (i + 1) & (s->size - 1);
    return &s->slot[i];
}

static bool grow(struct vb_sent *s)
{
    struct vb_sent bigger = {.size = s->size ? 2 * s->size : SIZE_MIN, .used = s->used};

    bigger.slot = calloc(bigger.size, sizeof *bigger.slot);
    if (!bigger.slot)
        return false;
    for (uint32_t i = 0; i < s->size; i++)
        if (s->slot[i])
            *find(&bigger, s->slot[i]) = s->slot[i];
    free(s->slot);
    *s = bigger;
    return true;
}

void vb_sent_add(struct vb_sent *s, const struct vb_ip *src, const struct vb_ip *dst,
                 const uint8_t *frame, uint32_t len)
{
    if (2 * s->used >= s->size && !grow(s)) {
        s->lost = true;
        return;
    }
    uint64_t key = key_of(src, dst, frame, len), *slot = find(s, key);
    s->used += *slot == 0;
    *slot = key;
}

bool vb_sent_has(const struct vb_sent *s, const struct vb_ip *src, const struct vb_ip *dst,
                 const uint8_t *frame, uint32_t len)
{
    return s->lost || (s->size && *find(s, key_of(src, dst, frame, len)));
}

void vb_sent_fini(struct vb_sent *s)
{
    free(s->slot);
    *s = (struct vb_sent){0};
}
