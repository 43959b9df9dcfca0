// SPDX-License-Identifier: Apache-2.0
// Findings.
#include "chain/check.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[VB_CHECK_KINDS] = {
    [VB_CHECK_WAIT_NEVER] = "wait-never",
    [VB_CHECK_WAIT_BEYOND] = "wait-beyond",
    [VB_CHECK_OPEN_BEYOND] = "open-beyond",
    [VB_CHECK_OPEN_UNMANAGED] = "open-unmanaged",
    [VB_CHECK_NEVER_OPENED] = "never-opened",
    [VB_CHECK_BAD_ENTRY] = "bad-entry",
    [VB_CHECK_OUT_OF_REGION] = "out-of-region",
    [VB_CHECK_NOT_WRITABLE] = "not-writable",
    [VB_CHECK_LONG_SCATTER] = "long-scatter",
    [VB_CHECK_SCATTER_OVERLAP] = "scatter-overlap",
    [VB_CHECK_PARTIAL_PATCH] = "partial-patch",
    [VB_CHECK_UNALIGNED_ATOMIC] = "unaligned-atomic",
    [VB_CHECK_CALC_RECORD] = "calc-record",
    [VB_CHECK_PATCH_OPEN] = "patch-open",
    [VB_CHECK_PATCH_UNORDERED] = "patch-unordered",
    [VB_CHECK_ORDER] = "order",
    [VB_CHECK_SIGNALED_COVERED] = "signaled-covered",
    [VB_CHECK_KEY_FROM_CLIENT] = "key-from-client",
    [VB_CHECK_ENDLESS] = "endless",
    [VB_CHECK_UNSET] = "unset",
    [VB_CHECK_CHANGED_OPEN] = "changed-open",
    [VB_CHECK_CHANGED_EARLY] = "changed-early",
    [VB_CHECK_RESULT_DEPENDS] = "result-depends",
    [VB_CHECK_STUCK_WAIT] = "stuck-wait",
    [VB_CHECK_WAIT_OTHER] = "wait-other",
    [VB_CHECK_RECV_EARLY] = "recv-early",
    [VB_CHECK_OPEN_EARLY] = "open-early",
    [VB_CHECK_READ_EARLY] = "read-early",
    [VB_CHECK_STOPPED] = "stopped",
    [VB_CHECK_FAULT] = "fault",
    [VB_CHECK_NO_END] = "no-end",
    [VB_CHECK_NOT_LOADED] = "not-loaded",
};

const char *vb_check_name(enum vb_check_kind kind)
{
    assert((unsigned)kind < VB_CHECK_KINDS);
    return names[kind];
}

void vb_findings_free(struct vb_findings *f)
{
    free(f->finding);
    *f = (struct vb_findings){.count = 0};
}

static bool same_actor(struct vb_actor a, struct vb_actor b)
{
    return a.exists == b.exists &&
           (!a.exists || (a.recv == b.recv && a.queue == b.queue && a.at == b.at));
}

static bool is_known(const struct vb_findings *f, enum vb_check_kind kind, struct vb_actor where,
                     struct vb_actor other)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->finding[i].kind == kind && same_actor(f->finding[i].where, where) &&
            same_actor(f->finding[i].other, other))
            return true;
    return false;
}

void vb_findings_add(struct vb_findings *f, const struct vb_listing *l, enum vb_check_kind kind,
                     bool warning, struct vb_actor where, struct vb_actor other, const char *text,
                     ...)
{
    char name[VB_LISTING_TEXT] = "";
    va_list args;

    if (is_known(f, kind, where, other))
        return;
    struct vb_finding *more = realloc(f->finding, (f->count + 1) * sizeof *more);
    if (!more) {
        f->no_memory = true;
        return;
    }
    f->finding = more;
    struct vb_finding *found = &more[f->count++];
    *found = (struct vb_finding){.kind = kind, .warning = warning, .where = where, .other = other};
    f->errors += !warning;
    if (where.exists)
        vb_listing_actor_name(l, where, name);
    int used = snprintf(found->text, sizeof found->text, "%s%s", name, where.exists ? " " : "");
    va_start(args, text);
    vsnprintf(found->text + used, sizeof found->text - (size_t)used, text, args);
    va_end(args);
}
