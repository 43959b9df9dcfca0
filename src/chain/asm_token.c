// SPDX-License-Identifier: Apache-2.0
// Lines and tokens of the text form.
#include "chain/asm_token.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool vb_asm_fail(const struct vb_asm_line *l, const char *format, ...)
{
    int used = snprintf(l->error, VB_IMAGE_TEXT, "line %u: ", l->number);
    va_list args;

    va_start(args, format);
    vsnprintf(l->error + used, VB_IMAGE_TEXT - (size_t)used, format, args);
    va_end(args);
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

bool vb_asm_next_line(struct vb_asm_line *l, const char **text, const char *end)
{
    bool quoted = false;

    if (*text == end)
        return false;
    const char *stop = memchr(*text, '\n', (size_t)(end - *text));
    if (!stop)
        stop = end;
    l->at = *text;
    l->end = l->at;
    while (l->end < stop && (quoted || *l->end != '#')) {
        if (*l->end == '\\' && quoted && l->end + 1 < stop)
            l->end++;
        else if (*l->end == '"')
            quoted = !quoted;
        l->end++;
    }
    l->number++;
    *text = stop < end ? stop + 1 : end;
    return true;
}

void vb_asm_skip(struct vb_asm_line *l)
{
    while (l->at < l->end && is_blank(*l->at))
        l->at++;
}

bool vb_asm_at_end(struct vb_asm_line *l)
{
    vb_asm_skip(l);
    return l->at == l->end;
}

bool vb_asm_take(struct vb_asm_line *l, const char *token)
{
    size_t len = strlen(token);

    vb_asm_skip(l);
    if ((size_t)(l->end - l->at) < len || memcmp(l->at, token, len) != 0)
        return false;
    if (is_word(token[len - 1]) && l->at + len < l->end && is_word(l->at[len]))
        return false;
    l->at += len;
    return true;
}

bool vb_asm_word(struct vb_asm_line *l, char word[VB_ASM_WORD])
{
    size_t len = 0;

    vb_asm_skip(l);
    for (; l->at < l->end && is_word(*l->at); l->at++)
        if (len < VB_ASM_WORD - 1)
            word[len++] = *l->at;
    word[len] = 0;
    return len > 0;
}

void vb_asm_rest(struct vb_asm_line *l, char word[VB_ASM_WORD])
{
    size_t len = 0;

    vb_asm_skip(l);
    for (const char *at = l->at; at < l->end && len < 24 && !is_blank(*at); at++)
        word[len++] = *at < ' ' || *at > '~' ? '?' : *at;
    word[len] = 0;
    if (!len)
        memcpy(word, "end of line", sizeof "end of line");
}

// ---- numbers

bool vb_asm_is_number(struct vb_asm_line *l)
{
    vb_asm_skip(l);
    return l->at < l->end && *l->at >= '0' && *l->at <= '9';
}

static bool take_number(struct vb_asm_line *l, uint64_t *value)
{
    uint64_t base = 10;

    if (!vb_asm_is_number(l))
        return false;
    if (l->end - l->at > 2 && l->at[0] == '0' && (l->at[1] == 'x' || l->at[1] == 'X') &&
        digit_of(l->at[2]) < 16) {
        base = 16;
        l->at += 2;
    }
    *value = 0;
    for (; l->at < l->end && is_word(*l->at); l->at++) {
        uint64_t digit = (uint64_t)digit_of(*l->at);
        if (digit >= base || __builtin_mul_overflow(*value, base, value) ||
            __builtin_add_overflow(*value, digit, value))
            return false;
    }
    return true;
}

bool vb_asm_number(struct vb_asm_line *l, const char *what, uint64_t max, uint64_t *value)
{
    char rest[VB_ASM_WORD];

    vb_asm_rest(l, rest);
    if (take_number(l, value) && *value <= max)
        return true;
    return vb_asm_fail(l, "'%s' is not %s: a number up to %" PRIu64 ", decimal or after 0x", rest,
                       what, max);
}

bool vb_asm_number32(struct vb_asm_line *l, const char *what, uint32_t *value)
{
    uint64_t wide = 0;

    if (!vb_asm_number(l, what, UINT32_MAX, &wide))
        return false;
    *value = (uint32_t)wide;
    return true;
}

// ---- bytes

static bool too_long(struct vb_asm_line *l, uint32_t max)
{
    return vb_asm_fail(l, "too many bytes: at most %u fit here", max);
}

static bool take_escape(struct vb_asm_line *l, uint8_t *byte)
{
    const char *at = l->at;

    if (l->end - at >= 1 && (*at == '"' || *at == '\\')) {
        *byte = (uint8_t)*at;
        l->at++;
        return true;
    }
    if (l->end - at >= 3 && *at == 'x' && digit_of(at[1]) < 16 && digit_of(at[2]) < 16) {
        *byte = (uint8_t)(digit_of(at[1]) << 4 | digit_of(at[2]));
        l->at += 3;
        return true;
    }
    return vb_asm_fail(l, "in a text \\ is followed by \", \\ or xHH (a byte)");
}

static bool take_text(struct vb_asm_line *l, uint8_t *bytes, uint32_t max, uint32_t *len)
{
    while (l->at < l->end && *l->at != '"') {
        if (*len == max)
            return too_long(l, max);
        uint8_t byte = (uint8_t)*l->at++;
        if (byte == '\\' && !take_escape(l, &byte))
            return false;
        bytes[(*len)++] = byte;
    }
    if (l->at == l->end)
        return vb_asm_fail(l, "the text has no closing \"");
    l->at++;
    return true;
}

// Whether the next word is a group of bytes; nothing else that can follow looks like one.
static bool is_group(struct vb_asm_line *l)
{
    const char *at;

    vb_asm_skip(l);
    for (at = l->at; at < l->end && is_word(*at); at++)
        if (digit_of(*at) == 16)
            return false;
    return at > l->at && (at - l->at) % 2 == 0;
}

bool vb_asm_bytes(struct vb_asm_line *l, uint8_t *bytes, uint32_t max, uint32_t *len)
{
    char rest[VB_ASM_WORD];

    *len = 0;
    if (vb_asm_take(l, "\""))
        return take_text(l, bytes, max, len);
    vb_asm_rest(l, rest);
    while (is_group(l))
        for (; l->at < l->end && is_word(*l->at); l->at += 2) {
            if (*len == max)
                return too_long(l, max);
            bytes[(*len)++] = (uint8_t)(digit_of(l->at[0]) << 4 | digit_of(l->at[1]));
        }
    if (*len == 0)
        return vb_asm_fail(l, "'%s' is not bytes: give pairs of hexadecimal digits or \"a text\"",
                           rest);
    return true;
}
