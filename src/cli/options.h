// SPDX-License-Identifier: Apache-2.0
// Options of a command from one table: the command line, the environment (VERBENA_…), the help and
// the list of effective values all follow from it.
#ifndef VB_CLI_OPTIONS_H
#define VB_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    VB_OPTIONS_MAX = 32,  // of one table
    VB_OPERANDS_MAX = 20, // words that are not options
    VB_SIZES_MAX = 16,
    VB_EXIT_USAGE = 2,
};

enum vb_option_type {
    VB_OPTION_FLAG,    // bool; takes no value on the command line
    VB_OPTION_TEXT,    // const char *
    VB_OPTION_NUMBER,  // uint32_t in [min, max]
    VB_OPTION_SIZES,   // struct vb_sizes: bytes with K, M or G, a list with commas; each in [min,
                       // max]
    VB_OPTION_SECONDS, // double in (0, max]
    VB_OPTION_LOSS,    // uint32_t parts per million, up to max; written as such or as a percentage
};

struct vb_sizes {
    uint32_t count;
    uint32_t bytes[VB_SIZES_MAX];
};

struct vb_option {
    const char *name;  // "size" is --size and VERBENA_SIZE
    const char *alias; // another name, or NULL
    enum vb_option_type type;
    const char *fallback;    // the default as one would write it; NULL: none
    const char *placeholder; // of the value, in the help
    const char *help;
    size_t offset; // of the field in the command's struct
    uint32_t min, max;
};

struct vb_option_table {
    const char *command; // "verbena perf"
    const struct vb_option *options;
    uint32_t count;
};

// Where a value came from.
enum vb_option_origin {
    VB_ORIGIN_DEFAULT,
    VB_ORIGIN_ENVIRONMENT,
    VB_ORIGIN_OPTION
};

struct vb_option_use {
    const char *text;
    enum vb_option_origin origin;
};

struct vb_options {
    struct vb_option_use use[VB_OPTIONS_MAX]; // in the table's order
    const char *operand[VB_OPERANDS_MAX];
    uint32_t operands;
    bool help; // --help was among them
};

// Fills `fields` (the command's struct) from defaults, the environment and argv[1…]. Returns 0, or
// VB_EXIT_USAGE after one line on stderr that says what is wrong and what would be right.
int vb_options_parse(const struct vb_option_table *table, int argc, char **argv, void *fields,
                     struct vb_options *parsed);
// The lines of the help that list the options.
void vb_options_help(const struct vb_option_table *table, FILE *out);
// Effective values and where they came from.
void vb_options_print(const struct vb_option_table *table, const struct vb_options *parsed,
                      FILE *out);
// One line on stderr: "COMMAND: what is wrong"; returns VB_EXIT_USAGE.
__attribute__((format(printf, 2, 3))) int vb_usage_error(const char *command, const char *format,
                                                         ...);

#endif
