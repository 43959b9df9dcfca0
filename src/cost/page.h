// SPDX-License-Identifier: Apache-2.0
// Text that grows.
#ifndef VB_COST_PAGE_H
#define VB_COST_PAGE_H

#include <stdbool.h>
#include <stddef.h>

struct vb_page {
    char *text;
    size_t len, room;
    bool failed; // no memory
};

__attribute__((format(printf, 2, 3))) void vb_page_put(struct vb_page *p, const char *format, ...);
// The text, which is the caller's; NULL: there was no memory for it.
char *vb_page_take(struct vb_page *p);

#endif
