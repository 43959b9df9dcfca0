// SPDX-License-Identifier: Apache-2.0
// A resource that serves one at a time: when it is busy.
#ifndef VB_COST_CALENDAR_H
#define VB_COST_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

struct vb_calendar_span {
    uint64_t from, to;
};

struct vb_calendar {
    struct vb_calendar_span *span; // in order, with gaps between them
    uint32_t count, room;
};

void vb_calendar_free(struct vb_calendar *c);
// Takes so much of the time that is free from `ready` on, whether or not it is in one piece: who
// comes late in the order of steps may be early in time, and no time is lost between others. `end`
// is when that is over. False: no memory.
bool vb_calendar_book(struct vb_calendar *c, uint64_t ready, uint64_t length, uint64_t *end);

#endif
