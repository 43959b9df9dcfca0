// SPDX-License-Identifier: Apache-2.0
// Presets from text: one parameter a line.
#include "cost/preset.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS = 4,
    WORD_BYTES = 32,
    LIKE_DEPTH = 4, // presets that are like presets
};

enum kind {
    TIME,  // us or ns, in picoseconds
    RATE,  // GB/s, in bytes per second
    COUNT, // a whole number
    LANES, // queue or program
};

struct parameter {
    const char *name;
    enum kind kind;
    size_t offset;
    uint64_t min, max;
};

#define AT(name) offsetof(struct vb_cost_preset, name)
#define TIME_ROW(name)                       \
    {                                        \
#name, TIME, AT(name), 0, 1000000000 \
    }
#define RATE_ROW(name)                                \
    {                                                 \
#name, RATE, AT(name), 1000000, 1000000000000 \
    }
#define COUNT_ROW(name, min, max)        \
    {                                    \
#name, COUNT, AT(name), min, max \
    }

static const struct parameter parameters[] = {
    TIME_ROW(doorbell),
    TIME_ROW(fetch),
    TIME_ROW(issue),
    TIME_ROW(wait),
    TIME_ROW(enable),
    TIME_ROW(network),
    TIME_ROW(completion),
    TIME_ROW(read),
    TIME_ROW(write),
    TIME_ROW(gather),
    TIME_ROW(cold),
    TIME_ROW(occupancy),
    TIME_ROW(atomic),
    RATE_ROW(link),
    RATE_ROW(pcie),
    RATE_ROW(message),
    COUNT_ROW(fetch_batch, 1, 1024),
    COUNT_ROW(managed_batch, 0, 1024),
    COUNT_ROW(reads, 1, 64),
    COUNT_ROW(pus, 1, 1024),
    COUNT_ROW(ports, 1, 64),
    COUNT_ROW(chains, 0, 1024),
    COUNT_ROW(mtu, 256, 1048576),
    COUNT_ROW(qp_cache, 1, 1u << 30),
    COUNT_ROW(page_cache, 1, 1u << 30),
    COUNT_ROW(page, 4096, 1ull << 40),
    {"lanes", LANES, AT(lanes), VB_LANE_QUEUE, VB_LANE_PROGRAM},
};

enum {
    PARAMETERS = sizeof parameters / sizeof *parameters
};

struct parser {
    struct vb_cost_preset *preset;
    uint32_t line, depth;
    bool set[PARAMETERS];
    bool begun; // something other than the name has been read
    char *error;
};

static bool parse(struct parser *p, const char *text, size_t len);

// ---- words

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// The words of a line up to a '#'. WORDS: there are too many, or one is too long.
static uint32_t split(const char *at, const char *end, char word[WORDS][WORD_BYTES])
{
    uint32_t count = 0;

    for (;;) {
        while (at < end && is_space(*at))
            at++;
        if (at == end || *at == '#')
            return count;
        const char *from = at;
        while (at < end && !is_space(*at) && *at != '#')
            at++;
        if (count == WORDS - 1 || at - from >= WORD_BYTES)
            return WORDS;
        memcpy(word[count], from, (size_t)(at - from));
        word[count++][at - from] = 0;
    }
}

// A decimal number times ten to the power of `shift`. False: it is none, or has more digits than
// count.
static bool number(const char *text, uint32_t shift, uint64_t *value)
{
    bool point = false, digit = false;
    uint64_t n = 0;

    for (; *text; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || (point && shift == 0) || n > UINT64_MAX / 100)
            return false;
        n = n * 10 + (uint64_t)(*text - '0');
        digit = true;
        shift -= point;
    }
    for (; shift > 0; shift--) {
        if (n > UINT64_MAX / 100)
            return false;
        n *= 10;
    }
    *value = n;
    return digit;
}

// ---- lines

static const char *example_of(enum kind kind)
{
    switch (kind) {
    case TIME: return "a time such as 0.35 us, up to 1000 us";
    case RATE: return "a rate such as 11.5 GB/s, from 0.001 to 1000";
    case LANES: return "queue or program";
    default: return "a whole number";
    }
}

static bool value_of(const struct parameter *row, const char *text, const char *unit,
                     uint64_t *value)
{
    bool us = strcmp(unit, "us") == 0, ns = strcmp(unit, "ns") == 0;

    switch (row->kind) {
    case TIME: return (us || ns) && number(text, us ? 6 : 3, value);
    case RATE: return strcmp(unit, "GB/s") == 0 && number(text, 9, value);
    case COUNT: return !*unit && number(text, 0, value);
    default:
        *value = strcmp(text, "program") == 0 ? VB_LANE_PROGRAM : VB_LANE_QUEUE;
        return !*unit && (*value == VB_LANE_PROGRAM || strcmp(text, "queue") == 0);
    }
}

__attribute__((format(printf, 2, 3))) static bool fail(struct parser *p, const char *format, ...)
{
    va_list args;
    int n = p->line ? snprintf(p->error, VB_COST_TEXT, "line %u: ", p->line) : 0;

    va_start(args, format);
    vsnprintf(p->error + n, VB_COST_TEXT - (size_t)n, format, args);
    va_end(args);
    return false;
}

static bool set_value(struct parser *p, uint32_t i, const char *text, const char *unit)
{
    const struct parameter *row = &parameters[i];
    uint64_t value;

    bool legal = value_of(row, text, unit, &value);
    bool fits = legal && value >= row->min && value <= row->max;
    if (legal && !fits && row->kind == COUNT)
        return fail(p, "'%s' is from %llu to %llu", row->name, (unsigned long long)row->min,
                    (unsigned long long)row->max);
    if (!fits)
        return fail(p, "'%s' wants %s", row->name, example_of(row->kind));
    if (p->set[i])
        return fail(p, "'%s' is there twice", row->name);
    p->set[i] = true;
    memcpy((char *)p->preset + row->offset, &value, sizeof value);
    return true;
}

static const struct vb_preset_file *find(const char *name)
{
    for (const struct vb_preset_file *f = vb_preset_files; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

// All that another preset says, to begin with.
static bool take_after(struct parser *p, const char *name)
{
    const struct vb_preset_file *file = find(name);
    struct parser other = {.preset = p->preset, .depth = p->depth + 1, .error = p->error};
    char own[VB_PRESET_NAME];

    if (p->begun)
        return fail(p, "'like' comes before all parameters");
    if (!file)
        return fail(p, "'%s' is no preset that comes with Verbena", name);
    assert(other.depth <= LIKE_DEPTH); // no shipped preset is like itself
    memcpy(own, p->preset->name, sizeof own);
    p->begun = parse(&other, file->text, strlen(file->text));
    memcpy(p->preset->name, own, sizeof own);
    return p->begun;
}

static bool parse_line(struct parser *p, char word[WORDS][WORD_BYTES], uint32_t words)
{
    if (words < 2)
        return fail(p, "'%s' has no value", word[0]);
    if (strcmp(word[0], "like") == 0)
        return words == 2 ? take_after(p, word[1]) : fail(p, "'like' takes the name of a preset");
    if (strcmp(word[0], "name") == 0) {
        if (words != 2)
            return fail(p, "'name' takes one word");
        memcpy(p->preset->name, word[1], sizeof p->preset->name);
        return true;
    }
    p->begun = true;
    for (uint32_t i = 0; i < PARAMETERS; i++)
        if (strcmp(word[0], parameters[i].name) == 0)
            return set_value(p, i, word[1], words > 2 ? word[2] : "");
    return fail(p, "'%s' is no parameter; see docs/cost.md", word[0]);
}

static_assert((int)WORD_BYTES == (int)VB_PRESET_NAME, "a word is a name");

// What no line has set is zero, which no parameter that must be there allows.
static bool is_whole(struct parser *p, bool inherits)
{
    p->line = 0;
    if (!p->preset->name[0])
        return fail(p, "the preset has no name; begin with: name mine");
    for (uint32_t i = 0; !inherits && i < PARAMETERS; i++)
        if (!p->set[i])
            return fail(p, "'%s' is missing: give %s, or begin with: like connectx5-b",
                        parameters[i].name, example_of(parameters[i].kind));
    return true;
}

// Nothing in a preset's text is a control character.
static bool is_text(const char *at, const char *end)
{
    for (; at < end; at++)
        if ((unsigned char)*at < ' ' && !is_space(*at))
            return false;
    return true;
}

static bool parse(struct parser *p, const char *text, size_t len)
{
    char word[WORDS][WORD_BYTES];
    const char *end = text + len;
    bool inherits = false;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        p->line++;
        if (!is_text(text, stop))
            return fail(p, "there is a byte that is no text");
        uint32_t words = split(text, stop, word);
        if (words == WORDS)
            return fail(p, "write one parameter: its name, its value and its unit");
        if (words > 0 && !parse_line(p, word, words))
            return false;
        inherits |= words > 0 && strcmp(word[0], "like") == 0;
        text = stop + (stop < end);
    }
    return is_whole(p, inherits);
}

// ---- life

struct vb_cost_preset *vb_cost_preset_parse(const char *text, size_t len, char *error)
{
    struct vb_cost_preset *preset = calloc(1, sizeof *preset);
    struct parser p = {.preset = preset, .error = error};

    if (!preset) {
        snprintf(error, VB_COST_TEXT, "no memory");
        return NULL;
    }
    if (parse(&p, text, len))
        return preset;
    free(preset);
    return NULL;
}

struct vb_cost_preset *vb_cost_preset_named(const char *name, char *error)
{
    const struct vb_preset_file *file = find(name);

    if (file)
        return vb_cost_preset_parse(file->text, strlen(file->text), error);
    int n = snprintf(error, VB_COST_TEXT, "'%.32s' is no preset; there are", name);
    for (uint32_t i = 0; n < VB_COST_TEXT && vb_cost_preset_name(i); i++)
        n += snprintf(error + n, VB_COST_TEXT - (size_t)n, "%s %s", i ? "," : "",
                      vb_cost_preset_name(i));
    return NULL;
}

void vb_cost_preset_free(struct vb_cost_preset *preset)
{
    free(preset);
}

const char *vb_cost_preset_name(uint32_t n)
{
    const struct vb_preset_file *f = vb_preset_files;

    for (; f->name && n > 0; n--)
        f++;
    return f->name;
}
