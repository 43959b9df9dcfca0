// SPDX-License-Identifier: Apache-2.0
// The command line of link, stat and res.
#include "cli/inspect_line.h"

#include <stdlib.h>
#include <string.h>

enum {
    ARGS_MAX = 64,
    SHORT_MAX = 8, // letters of one word such as -jpd
};

struct fields {
    bool json, pretty, details;
    double timeout, watch;
    uint32_t count;
};

#define FIELD(name) offsetof(struct fields, name)

static const struct vb_option options[] = {
    {"json", NULL, VB_OPTION_FLAG, NULL, NULL, "JSON; also -j", FIELD(json), 0, 0},
    {"pretty", NULL, VB_OPTION_FLAG, NULL, NULL, "JSON on many lines; also -p", FIELD(pretty), 0,
     0},
    {"details", NULL, VB_OPTION_FLAG, NULL, NULL, "all there is to say; also -d", FIELD(details), 0,
     0},
    {"timeout", NULL, VB_OPTION_SECONDS, "2", "SECONDS", "how long to wait for a NIC's answer",
     FIELD(timeout), 0, 3600},
    {"watch", NULL, VB_OPTION_SECONDS, NULL, "SECONDS", "show rates, again and again", FIELD(watch),
     0, 86400},
    {"count", NULL, VB_OPTION_NUMBER, "0", "N", "of --watch: so often, 0: for ever", FIELD(count),
     0, UINT32_MAX},
};

enum {
    OPTIONS = sizeof options / sizeof *options,
    OPTIONS_PLAIN = OPTIONS - 2 // those without --watch and --count
};

static struct vb_option_table table_of(const struct vb_inspect_form *form)
{
    return (struct vb_option_table){form->command, options,
                                    form->watches ? OPTIONS : OPTIONS_PLAIN};
}

static char *long_name(char letter)
{
    static char json[] = "--json", pretty[] = "--pretty", details[] = "--details";

    switch (letter) {
    case 'j': return json;
    case 'p': return pretty;
    case 'd': return details;
    default: return NULL;
    }
}

// Letters behind one dash become the long options that the table knows. False: too many words.
static bool lengthen(int argc, char **argv, char *out[ARGS_MAX], int *count)
{
    *count = 0;
    for (int i = 0; i < argc; i++) {
        size_t len = strlen(argv[i]);
        bool letters = argv[i][0] == '-' && len > 1 && len <= SHORT_MAX &&
                       strspn(argv[i] + 1, "jpd") == len - 1;
        if (*count + SHORT_MAX >= ARGS_MAX)
            return false;
        if (!letters)
            out[(*count)++] = argv[i];
        for (size_t k = 1; letters && k < len; k++)
            out[(*count)++] = long_name(argv[i][k]);
    }
    return true;
}

static bool is_among(const char *word, const char *const *words, uint32_t *index)
{
    for (uint32_t i = 0; words[i]; i++)
        if (strcmp(word, words[i]) == 0) {
            *index = i;
            return true;
        }
    return false;
}

static bool is_number(const char *text, long *value)
{
    char *end;

    if (*text < '0' || *text > '9' || strlen(text) > 18)
        return false;
    *value = strtol(text, &end, 0);
    return *end == '\0';
}

static int add_filter(const struct vb_inspect_form *form, const char *key, const char *value,
                      struct vb_inspect_line *line)
{
    uint32_t index;

    if (strcmp(key, "link") != 0 && strcmp(key, "dev") != 0 && strcmp(key, "pid") != 0 &&
        !is_among(key, form->keys, &index)) {
        char known[240] = "";
        for (uint32_t i = 0; form->keys[i]; i++) {
            size_t len = strlen(known);
            snprintf(known + len, sizeof known - len, ", %s", form->keys[i]);
        }
        return vb_usage_error(form->command, "'%s' is nothing to choose by; there are link, pid%s",
                              key, known);
    }
    if (!value)
        return vb_usage_error(form->command, "%s needs a value behind it", key);
    if (strcmp(key, "pid") == 0 && (!is_number(value, &line->pid) || line->pid <= 0))
        return vb_usage_error(form->command, "pid: '%s' is not the number of a process", value);
    if (line->filters == VB_FILTERS_MAX)
        return vb_usage_error(form->command, "at most %d things to choose by", VB_FILTERS_MAX);
    line->filter[line->filters++] = (struct vb_inspect_filter){key, value};
    return 0;
}

// [KIND] [show] [NAME/PORT] [KEY VALUE]…
static int take_words(const struct vb_inspect_form *form, const struct vb_options *parsed,
                      struct vb_inspect_line *line, uint32_t *kind)
{
    uint32_t i = 0;
    int error = 0;

    *kind = UINT32_MAX;
    for (uint32_t shown = 0; i < parsed->operands; i++) {
        const char *word = parsed->operand[i];
        if (*kind == UINT32_MAX && is_among(word, form->kinds, kind))
            continue;
        if (shown++ || (strcmp(word, "show") != 0 && strcmp(word, "list") != 0))
            break;
    }
    if (i < parsed->operands && strncmp(parsed->operand[i], "verbena", 7) == 0)
        error = add_filter(form, "link", parsed->operand[i++], line);
    for (; i < parsed->operands && !error; i += 2)
        error = add_filter(form, parsed->operand[i],
                           i + 1 < parsed->operands ? parsed->operand[i + 1] : NULL, line);
    return error;
}

int vb_inspect_line_parse(const struct vb_inspect_form *form, int argc, char **argv,
                          struct vb_inspect_line *line, uint32_t *kind)
{
    const struct vb_option_table table = table_of(form);
    struct fields f = {0};
    struct vb_options parsed;
    char *words[ARGS_MAX];
    int count;

    if (!lengthen(argc, argv, words, &count))
        return vb_usage_error(form->command, "too many words");
    int error = vb_options_parse(&table, count, words, &f, &parsed);
    if (error)
        return error;
    if (parsed.help) {
        fputs(form->usage, stdout);
        vb_options_help(&table, stdout);
        return -1;
    }
    *line = (struct vb_inspect_line){.command = form->command,
                                     .json = f.json || f.pretty,
                                     .pretty = f.pretty,
                                     .details = f.details,
                                     .timeout_s = f.timeout,
                                     .watch_s = f.watch,
                                     .count = f.count};
    return take_words(form, &parsed, line, kind);
}

// "verbena0" or "verbena0/1"
static bool is_link(const char *wanted, const struct vb_record *nic)
{
    const char *name = vb_record_get(nic, "ifname"), *port = vb_record_get(nic, "port");
    size_t len = strcspn(wanted, "/");

    if (!name || !port || strlen(name) != len || strncmp(name, wanted, len) != 0)
        return false;
    return wanted[len] == '\0' || strcmp(wanted + len + 1, port) == 0;
}

bool vb_inspect_line_wants_nic(const struct vb_inspect_line *line, const struct vb_record *nic)
{
    for (uint32_t i = 0; i < line->filters; i++) {
        const struct vb_inspect_filter *f = &line->filter[i];
        if ((strcmp(f->key, "link") == 0 || strcmp(f->key, "dev") == 0) && !is_link(f->value, nic))
            return false;
    }
    return true;
}

// Numbers are compared as such: 0x11 is 17.
static bool is_equal(const char *wanted, const char *value)
{
    long a, b;

    if (is_number(wanted, &a) && is_number(value, &b))
        return a == b;
    return strcasecmp(wanted, value) == 0;
}

bool vb_inspect_line_wants(const struct vb_inspect_line *line, const struct vb_record *nic,
                           const struct vb_record *record)
{
    if (!vb_inspect_line_wants_nic(line, nic))
        return false;
    for (uint32_t i = 0; i < line->filters; i++) {
        const struct vb_inspect_filter *f = &line->filter[i];
        if (strcmp(f->key, "link") == 0 || strcmp(f->key, "dev") == 0 || strcmp(f->key, "pid") == 0)
            continue;
        const char *value = vb_record_get(record, f->key);
        if (!value)
            value = vb_record_get(nic, f->key);
        if (!value || !is_equal(f->value, value))
            return false;
    }
    return true;
}
