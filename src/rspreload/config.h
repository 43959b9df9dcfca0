// SPDX-License-Identifier: Apache-2.0
// The configuration file of librspreload: which sockets of which programs become rsockets.
#ifndef VB_RSPRELOAD_CONFIG_H
#define VB_RSPRELOAD_CONFIG_H

#include <stdbool.h>

struct vb_rp_rule {
    char program[64];           // the start of its name; empty: any
    int domain, type, protocol; // 0: any
};

// False: a comment, an empty line, or not understood.
bool vb_rp_rule_parse(const char *line, struct vb_rp_rule *rule);
bool vb_rp_rule_matches(const struct vb_rp_rule *rule, const char *program, int domain, int type,
                        int protocol);

#endif
