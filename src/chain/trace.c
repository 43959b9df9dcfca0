// SPDX-License-Identifier: Apache-2.0
// Printing what a program does.
#include "chain/trace.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

// ---- pieces

struct text {
    char *at;
    size_t len, room;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(t->at + t->len, t->room - t->len, format, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < t->room - t->len); // VB_TRACE_BYTES are enough
    t->len += (size_t)n;
}

static void put_hex(struct text *to, const uint8_t *bytes, uint32_t len)
{
    uint32_t shown = len < VB_WATCH_BYTES ? len : VB_WATCH_BYTES;

    for (uint32_t i = 0; i < shown; i++)
        put(to, "%02x", bytes[i]);
    if (len > shown)
        put(to, "%s", "..");
}

// Names hold nothing that a string of JSON must escape.
static const char *kind_name(enum vb_step_kind kind)
{
    switch (kind) {
    case VB_STEP_FETCH: return "fetch";
    case VB_STEP_EXEC: return "exec";
    case VB_STEP_COMPLETE: return "complete";
    case VB_STEP_FRAME_IN: return "message";
    default: return "send";
    }
}

static bool tells_something(const struct vb_watch_event *e)
{
    switch (e->kind) {
    case VB_STEP_FETCH:
    case VB_STEP_EXEC:
    case VB_STEP_COMPLETE: return e->who.exists;
    case VB_STEP_FRAME_IN:
    case VB_STEP_FRAME_OUT: return e->touches > 0;
    default: return false;
    }
}

// The entry that a write has changed, if it is one.
static struct vb_actor changed(const struct vb_watch *w, const struct vb_watch_touch *t)
{
    if (!t->write || t->spot.kind != VB_IN_SEND)
        return (struct vb_actor){.exists = false};
    uint32_t block = (uint32_t)(t->spot.offset / VB_WQEBB_BYTES);
    const struct vb_line *line = vb_listing_line(vb_watch_listing(w), t->spot.index, block);
    return (struct vb_actor){true, false, t->spot.index, line ? line->block : block};
}

// ---- text

static void text_touch(struct text *to, const struct vb_watch *w, const struct vb_watch_touch *t)
{
    char place[VB_LISTING_TEXT], name[VB_LISTING_TEXT];
    struct vb_actor victim = changed(w, t);

    vb_listing_place(vb_watch_listing(w), &t->spot, place);
    put(to, "      %s %s (%u): ", t->write ? "writes" : "reads ", place, t->len);
    put_hex(to, t->before, t->len);
    if (t->write) {
        put(to, "%s", " -> ");
        put_hex(to, t->after, t->len);
    }
    if (victim.exists && t->changed) {
        vb_listing_actor_name(vb_watch_listing(w), victim, name);
        put(to, "  changes %s", name);
    }
    put(to, "%c", '\n');
}

static void text_event(struct text *to, const struct vb_watch *w, const struct vb_image *image,
                       const struct vb_watch_event *e)
{
    const struct vb_listing *l = vb_watch_listing(w);
    char who[VB_LISTING_TEXT], other[VB_LISTING_TEXT];

    vb_listing_actor_name(l, e->who, who);
    vb_listing_actor_name(l, e->other, other);
    put(to, "%-8s %s", kind_name(e->kind), who);
    if (e->kind != VB_STEP_FRAME_IN && e->kind != VB_STEP_FRAME_OUT)
        put(to, " @%llu", (unsigned long long)e->counter);
    if (e->kind == VB_STEP_EXEC && vb_opcode_name(e->opcode))
        put(to, " as %s", vb_opcode_name(e->opcode));
    if (e->kind == VB_STEP_COMPLETE) {
        put(to, " -> %s[%llu]", image->cq[e->cq].name, (unsigned long long)e->number);
        if (e->syndrome)
            put(to, " error %u", e->syndrome);
        if (e->other.exists)
            put(to, ", releases %s", other);
    } else if (e->other.exists) {
        put(to, ", released by %s", other);
    }
    if (e->changed_by.exists) {
        vb_listing_actor_name(l, e->changed_by, other);
        put(to, "  CHANGED WHILE OPEN by %s", other);
    }
    put(to, "%c", '\n');
    for (uint32_t i = 0; i < e->touches; i++)
        text_touch(to, w, &e->touch[i]);
}

// ---- JSON

static void json_touch(struct text *to, const struct vb_watch *w, const struct vb_watch_touch *t)
{
    char place[VB_LISTING_TEXT], name[VB_LISTING_TEXT];
    struct vb_actor victim = changed(w, t);

    vb_listing_place(vb_watch_listing(w), &t->spot, place);
    put(to, "{\"at\":\"%s\",\"len\":%u,\"%s\":\"", place, t->len, t->write ? "before" : "value");
    put_hex(to, t->before, t->len);
    if (t->write) {
        put(to, "%s", "\",\"after\":\"");
        put_hex(to, t->after, t->len);
    }
    put(to, "%c", '"');
    if (victim.exists && t->changed) {
        vb_listing_actor_name(vb_watch_listing(w), victim, name);
        put(to, ",\"changes\":\"%s\"", name);
    }
    put(to, "%c", '}');
}

static void json_touches(struct text *to, const struct vb_watch *w, const struct vb_watch_event *e,
                         bool write)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->touches; i++) {
        if (e->touch[i].write != write)
            continue;
        if (n++)
            put(to, ",");
        else
            put(to, ",\"%s\":[", write ? "writes" : "reads");
        json_touch(to, w, &e->touch[i]);
    }
    if (n)
        put(to, "%c", ']');
}

static void json_event(struct text *to, const struct vb_watch *w, const struct vb_image *image,
                       const struct vb_watch_event *e)
{
    const struct vb_listing *l = vb_watch_listing(w);
    char name[VB_LISTING_TEXT];

    vb_listing_actor_name(l, e->who, name);
    put(to, "{\"step\":\"%s\",\"entry\":\"%s\",\"counter\":%llu", kind_name(e->kind), name,
        (unsigned long long)e->counter);
    if (e->who.exists)
        put(to, ",\"queue\":\"%s\",\"%s\":%u", image->queue[e->who.queue].name,
            e->who.recv ? "receive" : "block", e->who.at);
    if ((e->kind == VB_STEP_EXEC || e->kind == VB_STEP_FETCH) && vb_opcode_name(e->opcode))
        put(to, ",\"opcode\":\"%s\"", vb_opcode_name(e->opcode));
    if (e->kind == VB_STEP_COMPLETE)
        put(to, ",\"cq\":\"%s\",\"number\":%llu,\"syndrome\":%u", image->cq[e->cq].name,
            (unsigned long long)e->number, e->syndrome);
    if (e->other.exists) {
        vb_listing_actor_name(l, e->other, name);
        put(to, ",\"%s\":\"%s\"", e->kind == VB_STEP_COMPLETE ? "releases" : "released_by", name);
    }
    if (e->changed_by.exists) {
        vb_listing_actor_name(l, e->changed_by, name);
        put(to, ",\"changed_while_open_by\":\"%s\"", name);
    }
    json_touches(to, w, e, false);
    json_touches(to, w, e, true);
    put(to, "%s", "}\n");
}

size_t vb_trace_print(char *text, enum vb_trace_form form, const struct vb_watch *w,
                      const struct vb_image *image, const struct vb_watch_event *event)
{
    struct text to = {.at = text, .room = VB_TRACE_BYTES};

    if (!tells_something(event))
        return 0;
    if (form == VB_TRACE_JSON)
        json_event(&to, w, image, event);
    else
        text_event(&to, w, image, event);
    return to.len;
}
