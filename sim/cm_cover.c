// SPDX-License-Identifier: Apache-2.0
// The coverage table of communication managers.
#include "sim/cm_cover.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static const struct {
    const char *group, *what;
} texts[VB_CMCOVER_COUNT] = {
#define ROW_TEXT(id, group, what) {group, what},
    VB_CMCOVER_ROWS(ROW_TEXT)
#undef ROW_TEXT
};

// Those that this manager gives by itself, or that programs gave.
static const uint16_t reasons[] = {
    VB_CM_NO_RESOURCES,      VB_CM_TIMEOUT,      VB_CM_INVALID_ID,  VB_CM_INVALID_SERVICE,
    VB_CM_INVALID_TRANSPORT, VB_CM_STALE,        VB_CM_INVALID_GID, VB_CM_INVALID_MTU,
    VB_CM_CONSUMER,          VB_CM_DUPLICATE_ID,
};

void vb_cmcover_merge(struct vb_cmcover *into, const struct vb_cmcover *from)
{
    uint64_t *to = (uint64_t *)into;
    const uint64_t *more = (const uint64_t *)from;

    for (size_t i = 0; i < sizeof *into / sizeof *to; i++)
        to[i] += more[i];
}

static uint32_t row(FILE *out, const char *group, const char *what, uint64_t count)
{
    if (out)
        fprintf(out, "  %-11s %-48s %12" PRIu64 "%s\n", group, what, count,
                count ? "" : "   <- never seen");
    return count == 0;
}

uint32_t vb_cmcover_print(const struct vb_cmcover *c, FILE *out)
{
    uint32_t zero = 0;

    for (int i = 0; i < VB_CM_KINDS; i++)
        zero += row(out, "message", vb_cm_kind_text((enum vb_cm_kind)(VB_CM_KIND_FIRST + i)),
                    c->message[i]);
    for (int i = VB_CM_FREE + 1; i < VB_CM_STATES; i++)
        zero += row(out, "state", vb_cm_state_text((enum vb_cm_state)i), c->state[i]);
    for (int i = 0; i < VB_CM_EVENTS; i++)
        zero += row(out, "event", vb_cm_event_text((enum vb_cm_event_kind)i), c->event[i]);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        zero += row(out, "reason", vb_cm_reason_text(reasons[i]), c->reason[reasons[i]]);
    for (int i = 0; i < VB_CMCOVER_COUNT; i++)
        zero += row(out, texts[i].group, texts[i].what, c->row[i]);
    return zero;
}

uint32_t vb_cmcover_zero_rows(const struct vb_cmcover *c)
{
    return vb_cmcover_print(c, NULL);
}
