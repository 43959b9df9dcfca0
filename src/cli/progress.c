// SPDX-License-Identifier: Apache-2.0
// Progress on a terminal.
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#define SHOW_EVERY_NS 200000000ull
#define WORTH_SECONDS 2.0

void vb_progress_init(struct vb_progress *p, double expected_seconds)
{
    *p = (struct vb_progress){.on = expected_seconds > WORTH_SECONDS && isatty(STDERR_FILENO)};
}

void vb_progress_phase(struct vb_progress *p, const char *label, double from, double to)
{
    p->label = label;
    p->from = from;
    p->to = to;
}

void vb_progress_show(struct vb_progress *p, uint64_t now_ns, double part)
{
    if (!p->on || now_ns - p->shown_ns < SHOW_EVERY_NS)
        return;
    p->shown_ns = now_ns;
    double whole = p->from + (p->to - p->from) * (part < 1 ? part : 1);
    fprintf(stderr, "\r\033[K%s %3.0f %%", p->label, 100 * whole);
    fflush(stderr);
}

void vb_progress_clear(struct vb_progress *p)
{
    if (p->on && p->shown_ns)
        fputs("\r\033[K", stderr);
}
