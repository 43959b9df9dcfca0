// SPDX-License-Identifier: Apache-2.0
// A rule is a line of four words: program, domain, type, protocol; "*" stands for any.
#include "rspreload/config.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum {
    WORD = 16
};

struct word {
    const char *text, *prefix;
    int value;
};

static const struct word domains[] = {{"INET", "AF_", AF_INET},
                                      {"INET6", "AF_", AF_INET6},
                                      {"INET", "PF_", AF_INET},
                                      {"INET6", "PF_", AF_INET6},
                                      {NULL, NULL, 0}};
static const struct word types[] = {
    {"STREAM", "SOCK_", SOCK_STREAM}, {"DGRAM", "SOCK_", SOCK_DGRAM}, {NULL, NULL, 0}};
static const struct word protocols[] = {
    {"TCP", "IPPROTO_", IPPROTO_TCP}, {"UDP", "IPPROTO_", IPPROTO_UDP}, {NULL, NULL, 0}};

static bool look_up(const struct word *words, const char *text, int *value)
{
    *value = 0;
    if (strcmp(text, "*") == 0)
        return true;
    for (; words->text; words++) {
        size_t prefix = strlen(words->prefix);
        const char *rest = strncasecmp(text, words->prefix, prefix) == 0 ? text + prefix : text;
        if (strcasecmp(rest, words->text) == 0) {
            *value = words->value;
            return true;
        }
    }
    return false;
}

bool vb_rp_rule_parse(const char *line, struct vb_rp_rule *rule)
{
    char domain[WORD], type[WORD], protocol[WORD];

    if (line[0] == '#')
        return false;
    if (sscanf(line, "%63s%15s%15s%15s", rule->program, domain, type, protocol) != 4)
        return false;
    if (strcmp(rule->program, "*") == 0)
        rule->program[0] = '\0';
    return look_up(domains, domain, &rule->domain) && look_up(types, type, &rule->type) &&
           look_up(protocols, protocol, &rule->protocol);
}

bool vb_rp_rule_matches(const struct vb_rp_rule *rule, const char *program, int domain, int type,
                        int protocol)
{
    int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (!protocol)
        protocol = kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
    return strncasecmp(rule->program, program, strlen(rule->program)) == 0 &&
           (!rule->domain || rule->domain == domain) && (!rule->type || rule->type == kind) &&
           (!rule->protocol || rule->protocol == protocol);
}
