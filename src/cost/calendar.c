// SPDX-License-Identifier: Apache-2.0
// Busy times of a resource.
#include "cost/calendar.h"

#include "base/least.h"

#include <stdlib.h>
#include <string.h>

void vb_calendar_free(struct vb_calendar *c)
{
    free(c->span);
    *c = (struct vb_calendar){0};
}

// The first span that ends after that time.
static uint32_t find(const struct vb_calendar *c, uint64_t after)
{
    uint32_t low = 0, high = c->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->span[middle].to > after)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// The span grows to the front, up to `from`, and may join the one before it.
static void extend(struct vb_calendar *c, uint32_t i, uint64_t from)
{
    if (i == 0 || c->span[i - 1].to != from) {
        c->span[i].from = from;
        return;
    }
    c->span[i - 1].to = c->span[i].to;
    memmove(c->span + i, c->span + i + 1, (--c->count - i) * sizeof *c->span);
}

static bool insert(struct vb_calendar *c, uint32_t i, struct vb_calendar_span span)
{
    if (i < c->count && c->span[i].from == span.to) {
        extend(c, i, span.from);
        return true;
    }
    if (i > 0 && c->span[i - 1].to == span.from) {
        c->span[i - 1].to = span.to;
        return true;
    }
    if (c->count == c->room) {
        uint32_t room = c->room ? 2 * c->room : 64;
        struct vb_calendar_span *more = realloc(c->span, room * sizeof *more);
        if (!more)
            return false;
        c->span = more;
        c->room = room;
    }
    memmove(c->span + i + 1, c->span + i, (c->count++ - i) * sizeof span);
    c->span[i] = span;
    return true;
}

bool vb_calendar_book(struct vb_calendar *c, uint64_t ready, uint64_t length, uint64_t *end)
{
    uint32_t i = find(c, ready);

    while (i < c->count && length > 0) {
        uint64_t gap = vb_excess(c->span[i].from, ready);
        if (gap >= length)
            break;
        uint64_t behind = c->span[i].to;
        if (gap > 0) { // is filled, which needs no memory
            extend(c, i, ready);
            length -= gap;
        }
        ready = behind;
        i = find(c, ready);
    }
    *end = ready + length;
    return length == 0 || insert(c, i, (struct vb_calendar_span){ready, ready + length});
}
