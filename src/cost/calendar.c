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

static bool insert(struct vb_calendar *c, uint32_t i, struct vb_calendar_span span)
{
    bool joins_last = i > 0 && c->span[i - 1].to == span.from;
    bool joins_next = i < c->count && c->span[i].from == span.to;

    if (joins_last && joins_next) {
        c->span[i - 1].to = c->span[i].to;
        memmove(c->span + i, c->span + i + 1, (--c->count - i) * sizeof span);
        return true;
    }
    if (joins_last || joins_next) {
        if (joins_last)
            c->span[i - 1].to = span.to;
        else
            c->span[i].from = span.from;
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
        if (gap > 0) { // filled: the span grows to the front, and may join the one before it
            if (!insert(c, i, (struct vb_calendar_span){ready, ready + gap}))
                return false;
            length -= gap;
        }
        ready = behind;
        i = find(c, ready);
    }
    *end = ready + length;
    return length == 0 || insert(c, i, (struct vb_calendar_span){ready, ready + length});
}
