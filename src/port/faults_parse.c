// SPDX-License-Identifier: Apache-2.0
// The language of fault rules (docs/faults.md): text to rules, or one line that says what was wrong
// and what would be right.
#include "port/faults_rule.h"
#include "port/faults_token.h"
#include "verbena/nic.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Actions have the numbers of enum fault_action.
enum key {
    KEY_DIR = FAULT_ACTIONS,
    KEY_QP,
    KEY_OP,
    KEY_SEED,
    KEYS
};

struct parser {
    struct fault_cursor c;
    struct fault_span seen[KEYS];
    bool has_seed;
    struct vb_faults *faults;
    struct fault_rule *rule;
};

static const char *const key_names[KEYS] = {
    [KEY_DIR] = "dir", [KEY_QP] = "qp", [KEY_OP] = "op", [KEY_SEED] = "seed"};

static const char *name_of(unsigned key)
{
    return key < FAULT_ACTIONS ? vb_fault_action_names[key] : key_names[key];
}

// ---- triggers and times

static bool parse_nth(struct parser *p, struct fault_trigger *t)
{
    static const char advice[] = "a count is #3, #3..7, #5+ or #3/100, each from 1 up";
    const char *start = p->c.at;
    if (!vb_fault_take_number(&p->c, &t->first) || t->first == 0)
        return vb_fault_complain(&p->c, start, advice);
    t->last = t->first;
    if (vb_fault_take(&p->c, "+")) {
        t->last = UINT64_MAX;
        return true;
    }
    if (vb_fault_take(&p->c, "..") &&
        (!vb_fault_take_number(&p->c, &t->last) || t->last < t->first))
        return vb_fault_complain(&p->c, start, advice);
    if (t->last == UINT64_MAX)
        return vb_fault_complain(&p->c, start, advice);
    if (vb_fault_take(&p->c, "/") && (!vb_fault_take_number(&p->c, &t->period) || t->period == 0))
        return vb_fault_complain(&p->c, start, advice);
    if (t->period && t->last > t->period)
        return vb_fault_complain(&p->c, start,
                                 "in #N/M, N is at most M: #3/100 is the third of every hundred");
    return true;
}

static bool parse_trigger(struct parser *p, enum fault_action action)
{
    static const char advice[] = "a probability is 1%, 0.5%, 10ppm or #N";
    struct fault_trigger *t = &p->rule->trigger[action];
    *t = (struct fault_trigger){0};
    vb_fault_skip_blanks(&p->c);
    const char *start = p->c.at;
    if (vb_fault_take(&p->c, "#"))
        return parse_nth(p, t);
    uint64_t value, unit = 1000000000;
    if (!vb_fault_take_decimal(&p->c, &value))
        return vb_fault_complain(&p->c, start, advice);
    if (vb_fault_take(&p->c, "%"))
        unit /= 10000;
    else if (!vb_fault_take(&p->c, "ppm"))
        return vb_fault_complain(&p->c, start, advice);
    if (value / unit > FAULT_ALWAYS_PPM || (value / unit == FAULT_ALWAYS_PPM && value % unit))
        return vb_fault_complain(&p->c, start, "a probability is at most 100%");
    if (value % unit)
        return vb_fault_complain(&p->c, start, "a probability is a multiple of 1ppm = 0.0001%");
    t->ppm = (uint32_t)(value / unit);
    return true;
}

// "@trigger" or nothing, which is always.
static bool parse_at(struct parser *p, enum fault_action action)
{
    p->rule->trigger[action] = (struct fault_trigger){.ppm = FAULT_ALWAYS_PPM};
    return vb_fault_take(&p->c, "@") ? parse_trigger(p, action) : true;
}

static bool parse_time(struct parser *p, uint64_t *out)
{
    static const struct fault_word units[] = {
        {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {NULL, 0}};
    static const char advice[] = "a time is 800ns, 50us, 1.5ms or 2s, at most 60s";
    vb_fault_skip_blanks(&p->c);
    const char *start = p->c.at;
    uint64_t value;
    const struct fault_word *unit = units;
    if (!vb_fault_take_decimal(&p->c, &value))
        return vb_fault_complain(&p->c, start, advice);
    while (unit->name && !vb_fault_take(&p->c, unit->name))
        unit++;
    if (!unit->name)
        return vb_fault_complain(&p->c, start, advice);
    uint64_t scale = 1000000000 / unit->value;
    if (value % scale || value / scale > FAULT_DELAY_MAX_NS)
        return vb_fault_complain(&p->c, start, advice);
    *out = value / scale;
    return true;
}

// "N" or "N..M" of lo_min to max.
static bool parse_range(struct parser *p, uint64_t lo_min, uint64_t max, uint32_t *lo, uint32_t *hi,
                        const char *advice)
{
    vb_fault_skip_blanks(&p->c);
    const char *start = p->c.at;
    uint64_t low, high;
    if (!vb_fault_take_number(&p->c, &low))
        return vb_fault_complain(&p->c, start, advice);
    high = low;
    if (vb_fault_take(&p->c, "..") && !vb_fault_take_number(&p->c, &high))
        return vb_fault_complain(&p->c, start, advice);
    if (low < lo_min || high < low || high > max)
        return vb_fault_complain(&p->c, start, advice);
    *lo = (uint32_t)low;
    *hi = (uint32_t)high;
    return true;
}

// ---- actions

static bool parse_dup(struct parser *p)
{
    uint64_t copies = 1;
    if (!parse_trigger(p, FAULT_DUP))
        return false;
    const char *start = p->c.at;
    static_assert(VB_FAULTS_COPIES == 7, "as the advice says");
    if (vb_fault_take(&p->c, ":") &&
        (!vb_fault_take_number(&p->c, &copies) || copies < 1 || copies > VB_FAULTS_COPIES))
        return vb_fault_complain(&p->c, start,
                                 "dup=1%:3 makes three copies more; 1 to 7 are possible");
    p->rule->copies = (uint32_t)copies;
    return true;
}

static bool parse_reorder(struct parser *p)
{
    static_assert(FAULT_HOLD_MAX == 64, "as the advice says");
    if (!parse_trigger(p, FAULT_REORDER))
        return false;
    if (vb_fault_take(&p->c, ":") &&
        !parse_range(p, 1, FAULT_HOLD_MAX, &p->rule->hold_lo, &p->rule->hold_hi,
                     "reorder=1%:2..4 lets 2 to 4 frames overtake; 1 to 64 are possible"))
        return false;
    return vb_fault_take(&p->c, "~") ? parse_time(p, &p->rule->hold_ns) : true;
}

static bool parse_delay(struct parser *p)
{
    if (!parse_time(p, &p->rule->delay_ns))
        return false;
    const char *start = p->c.at;
    if ((vb_fault_take(&p->c, "\u00b1") || vb_fault_take(&p->c, "+-")) &&
        !parse_time(p, &p->rule->jitter_ns))
        return false;
    if (p->rule->jitter_ns > p->rule->delay_ns)
        return vb_fault_complain(&p->c, start, "the jitter is at most the delay: 50us+-50us");
    return parse_at(p, FAULT_DELAY);
}

static bool parse_wr_kinds(struct parser *p)
{
    p->rule->wr_kinds = 0;
    do {
        struct fault_span word = vb_fault_take_word(&p->c);
        const struct fault_word *kind = vb_fault_find_word(vb_fault_wr_words, word);
        if (vb_fault_is_word(word, "any"))
            p->rule->wr_kinds = FAULT_WR_ANY;
        else if (kind)
            p->rule->wr_kinds |= FAULT_BIT(kind->value);
        else
            return vb_fault_complain(
                &p->c, word.start,
                "a work request is send, write, read, atomic, recv or any; | joins several");
    } while (vb_fault_take(&p->c, "|"));
    return true;
}

static bool parse_wc(struct parser *p)
{
    struct fault_span word = vb_fault_take_word(&p->c), stem = word;
    if (word.end - word.start > 4 && memcmp(word.end - 4, "_err", 4) == 0)
        stem.end -= 4;
    const struct fault_word *syndrome = vb_fault_find_word(vb_fault_syndrome_words, stem);
    if (!syndrome)
        return vb_fault_complain(
            &p->c, word.start,
            "an error is retry_exc, rnr_retry_exc, wr_flush, rem_access, … (docs/faults.md)");
    p->rule->syndrome = (enum vb_cqe_syndrome)syndrome->value;
    p->rule->wr_kinds = FAULT_WR_ANY;
    if (vb_fault_take(&p->c, ":") && !parse_wr_kinds(p))
        return false;
    return parse_at(p, FAULT_WC);
}

static bool parse_reg_mr(struct parser *p)
{
    if (!parse_trigger(p, FAULT_REG_MR))
        return false;
    const struct fault_word *error = vb_fault_errno_words;
    if (vb_fault_take(&p->c, ":")) {
        struct fault_span word = vb_fault_take_word(&p->c);
        error = vb_fault_find_word(vb_fault_errno_words, word);
        if (!error)
            return vb_fault_complain(&p->c, word.start,
                                     "an errno is ENOMEM, EINVAL, EPERM, EACCES, EAGAIN, EFAULT, "
                                     "ENOSPC or EOPNOTSUPP");
    }
    p->rule->error = (int)error->value;
    return true;
}

// ---- conditions

static bool parse_dir(struct parser *p)
{
    struct fault_span word = vb_fault_take_word(&p->c);
    if (vb_fault_is_word(word, "tx"))
        p->rule->dirs = FAULT_BIT(VB_FAULT_TX);
    else if (vb_fault_is_word(word, "rx"))
        p->rule->dirs = FAULT_BIT(VB_FAULT_RX);
    else if (!vb_fault_is_word(word, "both"))
        return vb_fault_complain(&p->c, word.start, "a direction is tx, rx or both");
    return true;
}

static bool parse_qp(struct parser *p)
{
    struct fault_rule *r = p->rule;
    do {
        if (r->qp_count == FAULT_LIST)
            return vb_fault_complain(&p->c, p->c.at, "at most 8 alternatives; write another rule");
        struct fault_range *range = &r->qp[r->qp_count++];
        if (!parse_range(p, 0, FAULT_QPN_MAX, &range->lo, &range->hi,
                         "a queue pair is 0x12, 18 or 0x10..0x1f, at most 0xffffff"))
            return false;
    } while (vb_fault_take(&p->c, "|"));
    return true;
}

static bool parse_op_item(struct parser *p, uint16_t *out)
{
    vb_fault_skip_blanks(&p->c);
    const char *start = p->c.at;
    uint64_t code;
    if (p->c.clause.end - start > 2 && memcmp(start, "0x", 2) == 0 &&
        vb_fault_take_number(&p->c, &code) && code < FAULT_OP_CLASS) {
        *out = (uint16_t)code;
        return true;
    }
    p->c.at = start;
    const struct fault_word *class =
        vb_fault_find_word(vb_fault_op_words, vb_fault_take_word(&p->c));
    if (!class)
        return vb_fault_complain(&p->c, start,
                                 "an op is send, write, read, read_resp, ack, nak, rnr, atomic, "
                                 "atomic_ack, imm, inv, any, 0x81");
    *out = (uint16_t) class->value;
    return true;
}

static bool parse_op(struct parser *p)
{
    struct fault_rule *r = p->rule;
    const char *start = p->c.at;
    if (vb_fault_is_word(vb_fault_take_word(&p->c), "any"))
        return true;
    p->c.at = start;
    do {
        if (r->op_count == FAULT_LIST)
            return vb_fault_complain(&p->c, p->c.at, "at most 8 alternatives; write another rule");
        if (!parse_op_item(p, &r->op[r->op_count++]))
            return false;
    } while (vb_fault_take(&p->c, "|"));
    return true;
}

// ---- clauses and rules

static bool parse_seed(struct parser *p)
{
    vb_fault_skip_blanks(&p->c);
    const char *start = p->c.at;
    if (p->has_seed)
        return vb_fault_complain(&p->c, p->c.clause.start, "there is one seed for all rules");
    if (!vb_fault_take_number(&p->c, &p->faults->seed))
        return vb_fault_complain(&p->c, start, "a seed is a number below 2^64");
    p->has_seed = true;
    return true;
}

static bool parse_value(struct parser *p, unsigned key)
{
    switch (key) {
    case FAULT_DUP: return parse_dup(p);
    case FAULT_REORDER: return parse_reorder(p);
    case FAULT_DELAY: return parse_delay(p);
    case FAULT_WC: return parse_wc(p);
    case FAULT_REG_MR: return parse_reg_mr(p);
    case KEY_DIR: return parse_dir(p);
    case KEY_QP: return parse_qp(p);
    case KEY_OP: return parse_op(p);
    case KEY_SEED: return parse_seed(p);
    default: return parse_trigger(p, (enum fault_action)key);
    }
}

static bool parse_clause(struct parser *p)
{
    p->c.at = p->c.clause.start;
    if (vb_fault_at_end(&p->c))
        return vb_fault_complain(&p->c, p->c.clause.start,
                                 "a clause is missing here: drop=1%,dir=tx");
    struct fault_span word = vb_fault_take_word(&p->c);
    unsigned key = 0;
    while (key < KEYS && !vb_fault_is_word(word, name_of(key)))
        key++;
    if (key == KEYS)
        return vb_fault_complain(&p->c, word.start,
                                 "no such key; there are drop dup corrupt reorder delay mark wc "
                                 "qp_error reg_mr dir qp op seed");
    if (!vb_fault_take(&p->c, "="))
        return vb_fault_complain(&p->c, p->c.at, "a clause is key=value, like drop=1%");
    if (p->seen[key].start)
        return vb_fault_complain(&p->c, word.start,
                                 "this key is already in the rule; ';' begins another one");
    p->seen[key] = p->c.clause;
    if (!parse_value(p, key))
        return false;
    if (!vb_fault_at_end(&p->c))
        return vb_fault_complain(&p->c, p->c.at,
                                 "the clause should end here; ',' begins another one, ';' a rule");
    if (key < FAULT_ACTIONS)
        p->rule->actions |= FAULT_BIT(key);
    return true;
}

// Points the error at the clause of a key that is there.
static bool fail_key(struct parser *p, unsigned key, const char *advice)
{
    p->c.clause = p->seen[key];
    return vb_fault_complain(&p->c, p->c.clause.start, advice);
}

// Whether what the rule asks for goes together.
static bool check_rule(struct parser *p)
{
    uint32_t actions = p->rule->actions;
    if (actions == 0) {
        unsigned key = KEY_DIR;
        while (!p->seen[key].start)
            key++;
        return fail_key(p, key, "a rule needs an action, like drop=1%");
    }
    if (!(actions & FAULT_FRAME_ACTIONS)) {
        static const char advice[] =
            "a condition for frames: drop, dup, corrupt, reorder, delay, mark";
        if (p->seen[KEY_DIR].start)
            return fail_key(p, KEY_DIR, advice);
        if (p->seen[KEY_OP].start)
            return fail_key(p, KEY_OP, advice);
        if (p->seen[KEY_QP].start && actions & FAULT_BIT(FAULT_REG_MR))
            return fail_key(p, KEY_QP, "registrations have no queue pair");
    }
    if (actions & FAULT_BIT(FAULT_MARK) && p->rule->dirs == FAULT_BIT(VB_FAULT_TX))
        return fail_key(p, KEY_DIR, "only frames that come in can be marked: dir=rx");
    if (actions == FAULT_BIT(FAULT_MARK))
        p->rule->dirs = FAULT_BIT(VB_FAULT_RX);
    for (unsigned a = FAULT_WC; a < FAULT_ACTIONS; a++)
        if (actions & FAULT_BIT(a) && actions != FAULT_BIT(a))
            return fail_key(p, a, "this needs a rule of its own: put ';' around it");
    return true;
}

static const char *find_end(const char *at, const char *end, char mark)
{
    const char *found = memchr(at, mark, (size_t)(end - at));
    return found ? found : end;
}

static bool parse_clauses(struct parser *p, struct fault_span rule)
{
    for (const char *at = rule.start;; at++) {
        p->c.clause = (struct fault_span){at, find_end(at, rule.end, ',')};
        at = p->c.clause.end;
        vb_fault_trim(&p->c.clause);
        if (!parse_clause(p))
            return false;
        if (at == rule.end)
            return true;
    }
}

static bool parse_rule(struct parser *p, struct fault_span rule)
{
    vb_fault_trim(&rule);
    p->c.clause = rule;
    if (rule.start == rule.end || vb_fault_is_word(rule, "off"))
        return true;
    struct vb_faults *f = p->faults;
    struct fault_rule draft = {.dirs = FAULT_DIR_BOTH,
                               .hold_lo = FAULT_HOLD_LO,
                               .hold_hi = FAULT_HOLD_HI,
                               .hold_ns = FAULT_HOLD_NS};
    p->rule = &draft;
    memset(p->seen, 0, sizeof p->seen);
    if (!parse_clauses(p, rule))
        return false;
    if (p->seen[KEY_SEED].start) {
        unsigned others = 0;
        for (unsigned key = 0; key < KEY_SEED; key++)
            others += p->seen[key].start != NULL;
        return others ? fail_key(p, KEY_SEED, "the seed is for all rules: put ';' around it")
                      : true;
    }
    if (!check_rule(p))
        return false;
    if (f->rule_count == VB_FAULTS_RULES)
        return vb_fault_complain(&p->c, rule.start, "at most 64 rules");
    f->rule[f->rule_count++] = draft;
    return true;
}

static void finish(struct vb_faults *f)
{
    vb_fault_seed_rules(f, f->seed);
    for (uint32_t i = 0; i < f->rule_count; i++) {
        const struct fault_rule *r = &f->rule[i];
        if (r->actions & FAULT_FRAME_ACTIONS)
            f->dirs |= r->dirs;
    }
}

int vb_faults_parse(const char *text, struct vb_faults **out, char *error_text)
{
    struct parser p = {.c = {.text = text, .error_text = error_text}};
    p.faults = calloc(1, sizeof *p.faults);
    if (!p.faults) {
        if (error_text)
            snprintf(error_text, VB_ERROR_TEXT, "faults: out of memory");
        return -ENOMEM;
    }
    const char *end = text + strlen(text);
    for (const char *at = text; at <= end; at++) {
        struct fault_span rule = {at, find_end(at, end, ';')};
        at = rule.end;
        if (!parse_rule(&p, rule)) {
            vb_faults_free(p.faults);
            return -EINVAL;
        }
    }
    finish(p.faults);
    *out = p.faults;
    return 0;
}
