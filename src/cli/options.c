// SPDX-License-Identifier: Apache-2.0
// Options from a table.
#include "cli/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENV_NAME_BYTES = 64
};

// A value and how to name it to the user: "--size" or "VERBENA_SIZE".
struct given {
    const struct vb_option_table *table;
    const struct vb_option *option;
    const char *name;
    const char *text;
};

int vb_usage_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return VB_EXIT_USAGE;
}

static int refuse(const struct given *g, const char *right)
{
    return vb_usage_error(g->table->command, "%s: '%s' is not %s", g->name, g->text, right);
}

static bool parse_digits(const char **text, uint64_t *value)
{
    if (!isdigit((unsigned char)**text))
        return false;
    char *end;
    errno = 0;
    *value = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

static bool parse_decimal(const char *text, char **end, double *value)
{
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    errno = 0;
    *value = strtod(text, end);
    return errno == 0 && *end != text && isfinite(*value);
}

static int set_flag(const struct given *g, bool *field)
{
    static const char *const words[2][4] = {{"0", "no", "off", "false"},
                                            {"1", "yes", "on", "true"}};
    for (unsigned value = 0; value < 2; value++) {
        for (unsigned i = 0; i < 4; i++) {
            if (strcmp(g->text, words[value][i]) == 0) {
                *field = value;
                return 0;
            }
        }
    }
    return refuse(g, "a switch; give 1 or 0");
}

static int set_number(const struct given *g, uint32_t *field)
{
    const struct vb_option *o = g->option;
    const char *at = g->text;
    uint64_t value;
    if (!parse_digits(&at, &value) || *at || value < o->min || value > o->max) {
        char right[80];
        snprintf(right, sizeof right, "a number from %u to %u", o->min, o->max);
        return refuse(g, right);
    }
    *field = (uint32_t)value;
    return 0;
}

static bool parse_size(const char **text, uint64_t *bytes)
{
    if (!parse_digits(text, bytes) || *bytes >> 32)
        return false;
    static const char suffixes[] = "KMG";
    const char *suffix = **text ? strchr(suffixes, toupper((unsigned char)**text)) : NULL;
    if (suffix != NULL) {
        *bytes <<= 10 * (suffix - suffixes + 1);
        ++*text;
    }
    return true;
}

static int set_sizes(const struct given *g, struct vb_sizes *field)
{
    const struct vb_option *o = g->option;
    const char *at = g->text;
    field->count = 0;
    for (;;) {
        uint64_t bytes;
        if (!parse_size(&at, &bytes) || bytes < o->min || bytes > o->max || (*at && *at != ',') ||
            field->count == VB_SIZES_MAX) {
            char right[128];
            snprintf(right, sizeof right,
                     "a size from %u to %uM, or up to %d of them; give for example 64 or 64,4K,1M",
                     o->min, o->max >> 20, VB_SIZES_MAX);
            return refuse(g, right);
        }
        field->bytes[field->count++] = (uint32_t)bytes;
        if (*at++ == '\0')
            return 0;
    }
}

static int set_seconds(const struct given *g, double *field)
{
    char *end;
    double value;
    if (!parse_decimal(g->text, &end, &value) || *end || value <= 0 || value > g->option->max) {
        char right[80];
        snprintf(right, sizeof right, "a time; give seconds up to %u, for example 0.5",
                 g->option->max);
        return refuse(g, right);
    }
    *field = value;
    return 0;
}

static int set_loss(const struct given *g, uint32_t *field)
{
    char *end;
    double value;
    bool ok = parse_decimal(g->text, &end, &value);
    if (ok && *end == '%') {
        value *= 10000;
        end++;
    }
    if (!ok || *end || value > g->option->max) {
        char right[96];
        snprintf(right, sizeof right,
                 "a loss; give parts per million, or a percentage such as 1%% (at most %u%%)",
                 g->option->max / 10000);
        return refuse(g, right);
    }
    *field = (uint32_t)(value + 0.5);
    return 0;
}

static int set(const struct given *g, void *fields)
{
    void *field = (char *)fields + g->option->offset;
    switch (g->option->type) {
    case VB_OPTION_FLAG: return set_flag(g, field);
    case VB_OPTION_TEXT: *(const char **)field = g->text; return 0;
    case VB_OPTION_NUMBER: return set_number(g, field);
    case VB_OPTION_SIZES: return set_sizes(g, field);
    case VB_OPTION_SECONDS: return set_seconds(g, field);
    case VB_OPTION_LOSS: return set_loss(g, field);
    }
    return VB_EXIT_USAGE;
}

static void env_name(const char *name, char env[ENV_NAME_BYTES])
{
    int len = snprintf(env, ENV_NAME_BYTES, "VERBENA_%s", name);
    for (int i = 0; i < len && i < ENV_NAME_BYTES; i++)
        env[i] = env[i] == '-' ? '_' : (char)toupper((unsigned char)env[i]);
}

// The value a variable of the environment gives, NULL if none; `env` is then its name.
static const char *from_environment(const struct vb_option *o, char env[ENV_NAME_BYTES])
{
    const char *names[2] = {o->name, o->alias};
    for (unsigned i = 0; i < 2; i++) {
        if (names[i] == NULL)
            continue;
        env_name(names[i], env);
        const char *text = getenv(env);
        if (text != NULL && *text)
            return text;
    }
    return NULL;
}

static int set_initial(const struct vb_option_table *table, void *fields, struct vb_options *parsed)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct vb_option *o = &table->options[i];
        char env[ENV_NAME_BYTES];
        struct given g = {.table = table, .option = o, .name = env};
        g.text = from_environment(o, env);
        enum vb_option_origin origin = VB_ORIGIN_ENVIRONMENT;
        if (g.text == NULL) {
            g.text = o->fallback;
            origin = VB_ORIGIN_DEFAULT;
        }
        parsed->use[i] = (struct vb_option_use){g.text, origin};
        if (g.text != NULL) {
            int error = set(&g, fields);
            if (error)
                return error;
        }
    }
    return 0;
}

// Finds the option a word such as "--size=64" names; the rest of the word, if any, is in *value.
static const struct vb_option *find(const struct vb_option_table *table, const char *word,
                                    const char **value)
{
    if (word[0] != '-' || word[1] != '-')
        return NULL;
    const char *name = word + 2;
    size_t len = strcspn(name, "=");
    for (uint32_t i = 0; i < table->count; i++) {
        const struct vb_option *o = &table->options[i];
        const char *names[2] = {o->name, o->alias};
        for (unsigned k = 0; k < 2; k++) {
            if (names[k] && strlen(names[k]) == len && strncmp(name, names[k], len) == 0) {
                *value = name[len] == '=' ? name + len + 1 : NULL;
                return o;
            }
        }
    }
    return NULL;
}

// Takes the option at argv[*at] and its value. Advances *at past both.
static int take(const struct vb_option_table *table, int argc, char **argv, int *at, void *fields,
                struct vb_options *parsed)
{
    const char *word = argv[(*at)++];
    struct given g = {.table = table};
    g.option = find(table, word, &g.text);
    if (g.option == NULL)
        return vb_usage_error(table->command, "unknown option '%s'; '%s --help' lists them", word,
                              table->command);
    char name[64];
    snprintf(name, sizeof name, "--%s", g.option->name);
    g.name = name;
    if (g.text == NULL && g.option->type == VB_OPTION_FLAG)
        g.text = "1";
    else if (g.text == NULL && *at < argc)
        g.text = argv[(*at)++];
    if (g.text == NULL)
        return vb_usage_error(table->command, "%s needs a value: %s %s", name, name,
                              g.option->placeholder);
    parsed->use[g.option - table->options] = (struct vb_option_use){g.text, VB_ORIGIN_OPTION};
    return set(&g, fields);
}

int vb_options_parse(const struct vb_option_table *table, int argc, char **argv, void *fields,
                     struct vb_options *parsed)
{
    assert(table->count <= VB_OPTIONS_MAX);
    *parsed = (struct vb_options){0};
    int error = set_initial(table, fields, parsed);
    bool only_operands = false;
    for (int i = 1; i < argc && !error;) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            parsed->help = true;
            return 0;
        }
        if (strcmp(argv[i], "--") == 0 && !only_operands) {
            only_operands = true;
            i++;
        } else if (argv[i][0] == '-' && argv[i][1] && !only_operands) {
            error = take(table, argc, argv, &i, fields, parsed);
        } else if (parsed->operands == VB_OPERANDS_MAX) {
            error = vb_usage_error(table->command, "one word too many: '%s'", argv[i]);
        } else {
            parsed->operand[parsed->operands++] = argv[i++];
        }
    }
    return error;
}

void vb_options_help(const struct vb_option_table *table, FILE *out)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct vb_option *o = &table->options[i];
        char left[48];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->placeholder ? " " : "",
                 o->placeholder ? o->placeholder : "");
        fprintf(out, "  %-20s %s", left, o->help);
        if (o->fallback != NULL && o->type != VB_OPTION_FLAG)
            fprintf(out, " [%s]", o->fallback);
        fputc('\n', out);
    }
}

void vb_options_print(const struct vb_option_table *table, const struct vb_options *parsed,
                      FILE *out)
{
    static const char *const origins[] = {"default", "environment", "option"};
    for (uint32_t i = 0; i < table->count; i++) {
        const struct vb_option *o = &table->options[i];
        const struct vb_option_use *use = &parsed->use[i];
        char env[ENV_NAME_BYTES];
        env_name(o->name, env);
        fprintf(out, "%-14s %-16s %-12s %s\n", o->name, use->text ? use->text : "-",
                origins[use->origin], env);
    }
}
