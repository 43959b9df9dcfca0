// SPDX-License-Identifier: Apache-2.0
// The tokens of the fault rules' language, and how it complains.
#include "port/faults_token.h"

#include "verbena/nic.h"

#include <stdio.h>
#include <string.h>

enum {
    QUOTE_BYTES = 32, // of a wrong clause, shown in the complaint
};

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

// Characters, not bytes, before `where`; from one.
static unsigned column_of(const struct fault_cursor *c, const char *where)
{
    unsigned column = 1;
    for (const char *at = c->text; at < where; at++)
        column += !is_continuation(*at);
    return column;
}

bool vb_fault_complain(const struct fault_cursor *c, const char *where, const char *advice)
{
    char quote[QUOTE_BYTES + 1];
    size_t len = (size_t)(c->clause.end - c->clause.start);
    if (len > QUOTE_BYTES) {
        len = QUOTE_BYTES;
        while (len > 0 && is_continuation(c->clause.start[len]))
            len--;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)c->clause.start[i];
        quote[i] = (char)(byte < ' ' || byte == 0x7f ? '?' : byte);
    }
    quote[len] = 0;
    if (c->error_text)
        snprintf(c->error_text, VB_ERROR_TEXT, "faults: '%s': %s (column %u)", quote, advice,
                 column_of(c, where));
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void vb_fault_skip_blanks(struct fault_cursor *c)
{
    while (c->at < c->clause.end && is_blank(*c->at))
        c->at++;
}

bool vb_fault_at_end(struct fault_cursor *c)
{
    vb_fault_skip_blanks(c);
    return c->at == c->clause.end;
}

bool vb_fault_take(struct fault_cursor *c, const char *token)
{
    size_t len = strlen(token);
    vb_fault_skip_blanks(c);
    if ((size_t)(c->clause.end - c->at) < len || memcmp(c->at, token, len) != 0)
        return false;
    c->at += len;
    return true;
}

static bool is_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

struct fault_span vb_fault_take_word(struct fault_cursor *c)
{
    vb_fault_skip_blanks(c);
    struct fault_span word = {c->at, c->at};
    while (word.end < c->clause.end && is_word_byte(*word.end))
        word.end++;
    c->at = word.end;
    return word;
}

bool vb_fault_is_word(struct fault_span word, const char *name)
{
    size_t len = strlen(name);
    return (size_t)(word.end - word.start) == len && memcmp(word.start, name, len) == 0;
}

static int digit_of(char c, unsigned base)
{
    int digit = c >= '0' && c <= '9' ? c - '0' : -1;
    if (base == 16 && c >= 'a' && c <= 'f')
        digit = c - 'a' + 10;
    if (base == 16 && c >= 'A' && c <= 'F')
        digit = c - 'A' + 10;
    return digit;
}

bool vb_fault_take_number(struct fault_cursor *c, uint64_t *out)
{
    unsigned base = vb_fault_take(c, "0x") ? 16 : 10;
    uint64_t value = 0;
    const char *start = c->at;
    for (int digit; c->at < c->clause.end && (digit = digit_of(*c->at, base)) >= 0; c->at++)
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            return false;
    *out = value;
    return c->at > start;
}

bool vb_fault_take_decimal(struct fault_cursor *c, uint64_t *out)
{
    const uint64_t one = 1000000000;
    uint64_t whole;
    vb_fault_skip_blanks(c);
    const char *start = c->at;
    for (whole = 0; c->at < c->clause.end && digit_of(*c->at, 10) >= 0; c->at++) {
        whole = whole * 10 + (uint64_t)digit_of(*c->at, 10);
        if (whole > one)
            return false;
    }
    if (c->at == start)
        return false;
    *out = whole * one;
    if (c->at == c->clause.end || *c->at != '.')
        return true;
    start = ++c->at;
    for (uint64_t unit = one / 10; c->at < c->clause.end && digit_of(*c->at, 10) >= 0; c->at++) {
        if (unit == 0)
            return false;
        *out += (uint64_t)digit_of(*c->at, 10) * unit;
        unit /= 10;
    }
    return c->at > start;
}

const struct fault_word *vb_fault_find_word(const struct fault_word *words, struct fault_span word)
{
    while (words->name && !vb_fault_is_word(word, words->name))
        words++;
    return words->name ? words : NULL;
}

void vb_fault_trim(struct fault_span *s)
{
    while (s->start < s->end && is_blank(*s->start))
        s->start++;
    while (s->end > s->start && is_blank(s->end[-1]))
        s->end--;
}
