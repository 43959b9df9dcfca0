// SPDX-License-Identifier: Apache-2.0
// Reads what a NIC answered.
#include "host/inspect_record.h"

#include "host/inspect.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The bytes that are left, line by line.
struct reader {
    char *at, *end;
    struct vb_pair *pair; // the next free one
};

// Cuts the next line off and ends it by a NUL. NULL: there is no whole one.
static char *take_line(struct reader *r)
{
    char *line = r->at;
    char *end = memchr(line, '\n', (size_t)(r->end - line));

    if (!end || memchr(line, '\0', (size_t)(end - line)))
        return NULL;
    *end = '\0';
    r->at = end + 1;
    return line;
}

static char *take_word(char **rest)
{
    char *word = *rest;
    char *blank = strchr(word, ' ');

    if (blank)
        *blank = '\0';
    *rest = blank ? blank + 1 : word + strlen(word);
    return word;
}

static bool is_key(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return len > 0 && len <= VB_RECORD_KEY && text[len] == '\0';
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

// %XX becomes the character, in place. What could harm a terminal becomes a question mark.
static bool decode(char *value)
{
    char *to = value;

    if (!*value || strlen(value) > VB_RECORD_VALUE)
        return false;
    for (const char *from = value; *from; from++) {
        int c = (unsigned char)*from;
        if (c == '%') {
            int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0)
                return false;
            c = high << 4 | low;
            from += 2;
        } else if (c <= ' ' || c >= 0x7f) {
            return false;
        }
        *to++ = c < ' ' || c >= 0x7f ? '?' : (char)c;
    }
    *to = '\0';
    return true;
}

// "kind key value key value …"
static bool read_record(struct reader *r, char *line, const char *kind, struct vb_record *record)
{
    *record = (struct vb_record){.pair = r->pair};
    if (strcmp(take_word(&line), kind) != 0)
        return false;
    while (*line) {
        char *key = take_word(&line);
        char *value = take_word(&line);
        if (!is_key(key) || !decode(value) || record->count == VB_RECORD_PAIRS)
            return false;
        *r->pair++ = (struct vb_pair){key, value};
        record->count++;
    }
    return record->count > 0;
}

// The last line says how many came before; nothing follows it.
static bool is_end(const struct reader *r, char *line, uint32_t records)
{
    char *number = line + 4, *end;

    if (strncmp(line, "end ", 4) != 0 || !isdigit((unsigned char)*number))
        return false;
    errno = 0;
    unsigned long told = strtoul(number, &end, 10);
    return errno == 0 && !*end && told == records && r->at == r->end;
}

static bool read_all(struct reader *r, const char *kind, struct vb_report *report, uint32_t room)
{
    const size_t greeting = sizeof VB_INSPECT_GREETING - 1;
    char *line = take_line(r);

    if (!line || strncmp(line, VB_INSPECT_GREETING, greeting) != 0 ||
        strcmp(line + greeting, kind) != 0)
        return false;
    line = take_line(r);
    if (!line || !read_record(r, line, "nic", &report->nic))
        return false;
    while ((line = take_line(r))) {
        if (strncmp(line, "end", 3) == 0)
            return is_end(r, line, report->records);
        if (report->records == room ||
            !read_record(r, line, kind, &report->record[report->records++]))
            return false;
    }
    return false;
}

static uint32_t count_of(const char *bytes, size_t len, char wanted)
{
    uint32_t count = 0;

    for (size_t i = 0; i < len; i++)
        count += bytes[i] == wanted;
    return count;
}

int vb_report_parse(char *bytes, size_t len, const char *kind, struct vb_report *report)
{
    uint32_t lines = count_of(bytes, len, '\n');
    uint32_t words = count_of(bytes, len, ' ') + lines;

    *report = (struct vb_report){.bytes = bytes};
    // As many as there could be: each pair has a blank before it.
    report->record = calloc(lines + 1, sizeof *report->record);
    report->pairs = calloc(words + 1, sizeof *report->pairs);
    struct reader r = {.at = bytes, .end = bytes + len, .pair = report->pairs};
    bool room = report->record && report->pairs;
    bool good = room && lines <= VB_RECORDS_MAX && read_all(&r, kind, report, lines);
    if (!good)
        vb_report_free(report);
    return good ? 0 : room ? -EPROTO : -ENOMEM;
}

void vb_report_free(struct vb_report *report)
{
    free(report->bytes);
    free(report->pairs);
    free(report->record);
    *report = (struct vb_report){0};
}

const char *vb_record_get(const struct vb_record *record, const char *key)
{
    for (uint32_t i = 0; i < record->count; i++)
        if (strcmp(record->pair[i].key, key) == 0)
            return record->pair[i].value;
    return NULL;
}
