// SPDX-License-Identifier: Apache-2.0
// The canonical text of fault rules: plain ASCII, defaults left out, actions before conditions.
#include "port/faults_rule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

// Counts on past the end of the room, as snprintf() does.
struct writer {
    char *text;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool room = w->used < w->size;
    int n = vsnprintf(room ? w->text + w->used : NULL, room ? w->size - w->used : 0, format, args);
    va_end(args);
    if (n > 0)
        w->used += (size_t)n;
}

static const char *word_of(const struct fault_word *words, uint32_t value)
{
    while (words->name && words->value != value)
        words++;
    return words->name;
}

static void put_percent(struct writer *w, uint32_t ppm)
{
    uint32_t fraction = ppm % 10000, digits = 4;
    put(w, "%u", ppm / 10000);
    if (fraction) {
        for (; fraction % 10 == 0; fraction /= 10)
            digits--;
        put(w, ".%0*u", (int)digits, fraction);
    }
    put(w, "%%");
}

static void put_trigger(struct writer *w, const struct fault_trigger *t)
{
    if (t->first == 0) {
        put_percent(w, t->ppm);
        return;
    }
    put(w, "#%" PRIu64, t->first);
    if (t->last == UINT64_MAX)
        put(w, "+");
    else if (t->last != t->first)
        put(w, "..%" PRIu64, t->last);
    if (t->period)
        put(w, "/%" PRIu64, t->period);
}

// "@trigger", unless it always fires.
static void put_at(struct writer *w, const struct fault_trigger *t)
{
    if (t->first == 0 && t->ppm == FAULT_ALWAYS_PPM)
        return;
    put(w, "@");
    put_trigger(w, t);
}

// Nanoseconds of more than a second are more digits than a number may have.
static void put_seconds(struct writer *w, uint64_t ns)
{
    uint64_t fraction = ns % 1000000000;
    int digits = 9;

    for (; fraction % 10 == 0; fraction /= 10)
        digits--;
    put(w, "%" PRIu64 ".%0*" PRIu64 "s", ns / 1000000000, digits, fraction);
}

static void put_time(struct writer *w, uint64_t ns)
{
    if (ns % 1000 && ns > 1000000000)
        put_seconds(w, ns);
    else if (ns % 1000 || ns == 0)
        put(w, "%" PRIu64 "ns", ns);
    else if (ns % 1000000)
        put(w, "%" PRIu64 "us", ns / 1000);
    else if (ns % 1000000000)
        put(w, "%" PRIu64 "ms", ns / 1000000);
    else
        put(w, "%" PRIu64 "s", ns / 1000000000);
}

static void put_reorder(struct writer *w, const struct fault_rule *r)
{
    put_trigger(w, &r->trigger[FAULT_REORDER]);
    if (r->hold_lo != FAULT_HOLD_LO || r->hold_hi != FAULT_HOLD_HI) {
        put(w, ":%u", r->hold_lo);
        if (r->hold_hi != r->hold_lo)
            put(w, "..%u", r->hold_hi);
    }
    if (r->hold_ns != FAULT_HOLD_NS) {
        put(w, "~");
        put_time(w, r->hold_ns);
    }
}

static void put_delay(struct writer *w, const struct fault_rule *r)
{
    put_time(w, r->delay_ns);
    if (r->jitter_ns) {
        put(w, "+-");
        put_time(w, r->jitter_ns);
    }
    put_at(w, &r->trigger[FAULT_DELAY]);
}

static void put_wc(struct writer *w, const struct fault_rule *r)
{
    char mark = ':';
    put(w, "%s", word_of(vb_fault_syndrome_words, r->syndrome));
    for (uint32_t k = 0; r->wr_kinds != FAULT_WR_ANY && k < FAULT_WR_KINDS; k++) {
        if (r->wr_kinds >> k & 1) {
            put(w, "%c%s", mark, word_of(vb_fault_wr_words, k));
            mark = '|';
        }
    }
    put_at(w, &r->trigger[FAULT_WC]);
}

static void put_action(struct writer *w, const struct fault_rule *r, enum fault_action action)
{
    put(w, "%s=", vb_fault_action_names[action]);
    switch (action) {
    case FAULT_REORDER: put_reorder(w, r); return;
    case FAULT_DELAY: put_delay(w, r); return;
    case FAULT_WC: put_wc(w, r); return;
    default: put_trigger(w, &r->trigger[action]);
    }
    if (action == FAULT_DUP && r->copies != 1)
        put(w, ":%u", r->copies);
    if (action == FAULT_REG_MR && r->error != (int)vb_fault_errno_words[0].value)
        put(w, ":%s", word_of(vb_fault_errno_words, (uint32_t)r->error));
}

static void put_conditions(struct writer *w, const struct fault_rule *r)
{
    if (r->dirs != FAULT_DIR_BOTH)
        put(w, ",dir=%s", r->dirs == FAULT_BIT(VB_FAULT_TX) ? "tx" : "rx");
    for (uint32_t i = 0; i < r->qp_count; i++) {
        put(w, "%s0x%x", i ? "|" : ",qp=", r->qp[i].lo);
        if (r->qp[i].hi != r->qp[i].lo)
            put(w, "..0x%x", r->qp[i].hi);
    }
    for (uint32_t i = 0; i < r->op_count; i++) {
        put(w, "%s", i ? "|" : ",op=");
        if (r->op[i] < FAULT_OP_CLASS)
            put(w, "0x%02x", r->op[i]);
        else
            put(w, "%s", word_of(vb_fault_op_words, r->op[i]));
    }
}

static void put_rule(struct writer *w, const struct fault_rule *r)
{
    const char *mark = "";
    for (unsigned a = 0; a < FAULT_ACTIONS; a++) {
        if (r->actions & FAULT_BIT(a)) {
            put(w, "%s", mark);
            put_action(w, r, (enum fault_action)a);
            mark = ",";
        }
    }
    put_conditions(w, r);
}

size_t vb_faults_print_rule(const struct vb_faults *faults, uint32_t i, char *text, size_t size)
{
    struct writer w = {.text = text, .size = size};
    put(&w, "%s", "");
    if (i < faults->rule_count)
        put_rule(&w, &faults->rule[i]);
    return w.used;
}

size_t vb_faults_print(const struct vb_faults *faults, char *text, size_t size)
{
    struct writer w = {.text = text, .size = size};
    put(&w, "%s", faults->rule_count ? "" : "off");
    for (uint32_t i = 0; i < faults->rule_count; i++) {
        put(&w, "%s", i ? ";" : "");
        put_rule(&w, &faults->rule[i]);
    }
    if (faults->seed)
        put(&w, ";seed=%" PRIu64, faults->seed);
    return w.used;
}
