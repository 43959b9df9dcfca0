// SPDX-License-Identifier: Apache-2.0
// Text that grows.
#include "cost/page.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void vb_page_put(struct vb_page *p, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || p->failed)
        return;
    if (p->len + (size_t)n + 1 > p->room) {
        size_t room = 2 * (p->len + (size_t)n + 1);
        char *more = realloc(p->text, room);
        if (!more) {
            p->failed = true;
            return;
        }
        p->text = more;
        p->room = room;
    }
    va_start(args, format);
    vsnprintf(p->text + p->len, p->room - p->len, format, args);
    va_end(args);
    p->len += (size_t)n;
}

char *vb_page_take(struct vb_page *p)
{
    if (p->failed) {
        free(p->text);
        p->text = NULL;
    }
    return p->text;
}
