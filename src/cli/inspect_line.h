// SPDX-License-Identifier: Apache-2.0
// The command line that link, stat and res share: flags as the `rdma` tool has them, and filters
// that name what is to be shown.
#ifndef VB_CLI_INSPECT_LINE_H
#define VB_CLI_INSPECT_LINE_H

#include "cli/options.h"
#include "host/inspect_record.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_FILTERS_MAX = 8
};

struct vb_inspect_filter {
    const char *key, *value;
};

struct vb_inspect_line {
    const char *command; // "verbena res"
    bool json, pretty, details;
    double timeout_s;
    double watch_s; // 0: once
    uint32_t count; // rounds of watching; 0: for ever
    struct vb_inspect_filter filter[VB_FILTERS_MAX];
    uint32_t filters;
    long pid; // 0: any
};

// What a command accepts.
struct vb_inspect_form {
    const char *command;
    const char *usage;        // for --help
    const char *const *kinds; // words that may come first, ends with NULL
    const char *const *keys;  // that filters may name, besides link and pid; ends with NULL
    bool watches;
};

// Returns 0, VB_EXIT_USAGE after one line on stderr, or -1 after printing the help. *kind is the
// index of the first word in form->kinds, or UINT32_MAX if there was none.
int vb_inspect_line_parse(const struct vb_inspect_form *form, int argc, char **argv,
                          struct vb_inspect_line *line, uint32_t *kind);

// Whether the filters let a record of this NIC pass.
bool vb_inspect_line_wants(const struct vb_inspect_line *line, const struct vb_record *nic,
                           const struct vb_record *record);
bool vb_inspect_line_wants_nic(const struct vb_inspect_line *line, const struct vb_record *nic);

#endif
