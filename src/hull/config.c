// SPDX-License-Identifier: Apache-2.0
// The configuration file: sections [nic NAME], [tenant USER] and [metrics], lines `key = value`.
#include "hull/config.h"

#include "base/bits.h"
#include "nic/dev.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_BYTES_MAX = 1 << 20,
    CPUS_MAX = 1024,
    SPIN_US = 50,
    SPIN_US_MAX = 1000 * 1000,
};

static const struct vb_hull_quota generous = {.applications = 1024,
                                              .queue_pairs = 8192,
                                              .queues = 8192,
                                              .regions = 65536,
                                              .entries = 1 << 24,
                                              .bytes = UINT64_C(64) << 30,
                                              .memories = 8192};

struct parser {
    struct vb_hull_config *config;
    struct vb_hull_nic_config *nic; // the section that is being read: this one,
    struct vb_hull_quota *quota;    // or this one,
    bool metrics;                   // or that of the metrics
    uint32_t line;
    bool named; // a NIC was: the default one is none
    char *error;
};

__attribute__((format(printf, 2, 3))) static int complain(const struct parser *p,
                                                          const char *format, ...)
{
    va_list args;
    int len = snprintf(p->error, VB_ERROR_TEXT, "line %u: ", p->line);

    va_start(args, format);
    vsnprintf(p->error + len, VB_ERROR_TEXT - (size_t)len, format, args);
    va_end(args);
    return -EINVAL;
}

// ---- values

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t len = strlen(text);
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\r'))
        text[--len] = '\0';
    return text;
}

// Digits, and K, M, G or T behind them.
static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10), scale = 1;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (errno || (*end && (!unit || end[1])))
        return false;
    if (unit)
        scale = UINT64_C(1) << 10 * (unit - units + 1);
    if (value > max / scale)
        return false;
    *out = value * scale;
    return true;
}

static int set_number(const struct parser *p, const char *key, const char *value, uint64_t max,
                      uint64_t *out)
{
    if (parse_number(value, max, out))
        return 0;
    return complain(p, "%s is '%.40s': give a number up to %llu", key, value,
                    (unsigned long long)max);
}

static int set_small(const struct parser *p, const char *key, const char *value, uint32_t max,
                     uint32_t *out)
{
    uint64_t number = 0;
    int err = set_number(p, key, value, max, &number);

    *out = (uint32_t)number;
    return err;
}

static int set_text(const struct parser *p, const char *key, const char *value, char *to,
                    size_t room)
{
    size_t len = strlen(value);

    if (len >= room)
        return complain(p, "%s is longer than %zu characters", key, room - 1);
    memcpy(to, value, len + 1);
    return 0;
}

static int set_group(const struct parser *p, const char *value, struct vb_hull_nic_config *nic)
{
    const struct group *found = getgrnam(value);
    uint64_t number;

    if (!found && !parse_number(value, UINT32_MAX - 1, &number))
        return complain(p, "there is no group '%.40s'", value);
    nic->has_group = true;
    nic->group = found ? found->gr_gid : (gid_t)number;
    return 0;
}

static int add_address(const struct parser *p, const char *value, struct vb_hull_nic_config *nic)
{
    if (nic->furthers == VB_DEV_ADDRESSES - 1)
        return complain(p, "a NIC is on %d addresses at most: give further %d times",
                        VB_DEV_ADDRESSES, VB_DEV_ADDRESSES - 1);
    return set_text(p, "further", value, nic->further[nic->furthers++], sizeof nic->further[0]);
}

static int set_pus(const struct parser *p, const char *value, uint32_t *pus)
{
    uint64_t number;

    if (!parse_number(value, VB_PUS_MAX, &number) || !vb_hull_config_is_pus(number))
        return complain(p, "pus is '%.40s': give 1, 2, 4, 8 or %d", value, VB_PUS_MAX);
    *pus = (uint32_t)number;
    return 0;
}

// Numbers with commas between them.
static int set_cpus(const struct parser *p, const char *value, struct vb_hull_nic_config *nic)
{
    char list[VB_HULL_LINE], *rest = list;
    uint64_t number;

    snprintf(list, sizeof list, "%s", value);
    for (nic->cpus = 0; rest; nic->cpus++) {
        const char *one = trim(strsep(&rest, ","));
        if (nic->cpus == VB_PUS_MAX)
            return complain(p, "cpu names more than %d: one for each unit", VB_PUS_MAX);
        if (!parse_number(one, CPUS_MAX - 1, &number))
            return complain(p, "cpu is '%.40s': give a number up to %d for each unit, as in 2,3",
                            value, CPUS_MAX - 1);
        nic->cpu[nic->cpus] = (uint32_t)number;
    }
    return 0;
}

static int set_in_nic(const struct parser *p, const char *key, const char *value)
{
    struct vb_hull_nic_config *nic = p->nic;

    if (strcmp(key, "address") == 0)
        return set_text(p, key, value, nic->address, sizeof nic->address);
    if (strcmp(key, "further") == 0)
        return add_address(p, value, nic);
    if (strcmp(key, "port") == 0)
        return set_text(p, key, value, nic->port, sizeof nic->port);
    if (strcmp(key, "socket") == 0)
        return *value == '/' ? set_text(p, key, value, nic->socket, sizeof nic->socket)
                             : complain(p, "socket is '%.40s': give a path from / on", value);
    if (strcmp(key, "group") == 0)
        return set_group(p, value, p->nic);
    if (strcmp(key, "pus") == 0)
        return set_pus(p, value, &nic->pus);
    if (strcmp(key, "cpu") == 0)
        return set_cpus(p, value, nic);
    if (strcmp(key, "spin_us") == 0)
        return set_small(p, key, value, SPIN_US_MAX, &nic->spin_us);
    return complain(
        p,
        "a NIC has no '%.40s': it has address, further, port, socket, group, pus, cpu and spin_us",
        key);
}

static int set_weight(const struct parser *p, const char *value, uint64_t *out)
{
    if (parse_number(value, VB_SHARE_WEIGHT_MAX, out) && *out > 0)
        return 0;
    return complain(p, "weight is '%.40s': give a number from 1 to %d; %d is usual", value,
                    VB_SHARE_WEIGHT_MAX, VB_SHARE_WEIGHT);
}

static int set_answer(const struct parser *p, const char *key, const char *value, uint64_t *answer)
{
    *answer = strcmp(value, "yes") == 0;
    return *answer || strcmp(value, "no") == 0
               ? 0
               : complain(p, "%s is '%.40s': give yes or no", key, value);
}

static int set_in_tenant(const struct parser *p, const char *key, const char *value)
{
    struct vb_hull_quota *q = p->quota;
    const struct {
        const char *key;
        uint64_t *value;
    } keys[] = {{"applications", &q->applications},
                {"queue_pairs", &q->queue_pairs},
                {"queues", &q->queues},
                {"regions", &q->regions},
                {"entries", &q->entries},
                {"bytes", &q->bytes},
                {"memories", &q->memories},
                {"rate_kbps", &q->rate_kbps},
                {"tenant_rate_kbps", &q->tenant_rate_kbps}};

    if (strcmp(key, "copy") == 0)
        return set_answer(p, key, value, &q->copy);
    if (strcmp(key, "faults") == 0)
        return set_answer(p, key, value, &q->faults);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i].key) == 0)
            return set_number(p, key, value, INT64_MAX, keys[i].value);
    if (strcmp(key, "weight") == 0)
        return set_weight(p, value, &q->weight);
    return complain(
        p,
        "a tenant has no '%.40s': it has applications, queue_pairs, queues, regions, "
        "entries, bytes, memories, rate_kbps, tenant_rate_kbps, weight, copy and faults",
        key);
}

static int set_in_metrics(const struct parser *p, const char *key, const char *value)
{
    struct vb_hull_config *c = p->config;

    if (strcmp(key, "listen") == 0)
        return set_text(p, key, value, c->metrics, sizeof c->metrics);
    if (strcmp(key, "anywhere") != 0)
        return complain(p, "metrics have no '%.40s': they have listen and anywhere", key);
    c->metrics_anywhere = strcmp(value, "yes") == 0;
    if (c->metrics_anywhere || strcmp(value, "no") == 0)
        return 0;
    return complain(p, "anywhere is '%.40s': give yes or no", value);
}

// ---- sections

static void init_nic(struct vb_hull_nic_config *nic, const char *name)
{
    *nic = (struct vb_hull_nic_config){.spin_us = SPIN_US, .pus = 1};
    snprintf(nic->name, sizeof nic->name, "%s", name);
    snprintf(nic->address, sizeof nic->address, "127.0.0.1");
    snprintf(nic->port, sizeof nic->port, "auto");
}

bool vb_hull_config_is_pus(uint64_t number)
{
    return number <= VB_PUS_MAX && vb_is_pow2((uint32_t)number);
}

bool vb_hull_config_is_name(const char *text)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_')
            return false;
    return len > 0 && len < VB_HULL_NAME;
}

static int begin_nic(struct parser *p, const char *name)
{
    struct vb_hull_config *c = p->config;

    if (!vb_hull_config_is_name(name))
        return complain(p, "'%.40s' is no name: give up to %d letters, digits, - and _", name,
                        VB_HULL_NAME - 1);
    if (!p->named)
        c->nics = 0;
    p->named = true;
    for (uint32_t i = 0; i < c->nics; i++)
        if (strcmp(c->nic[i].name, name) == 0)
            return complain(p, "there is a NIC '%s' already", name);
    if (c->nics == VB_HULL_NICS)
        return complain(p, "more than %d NICs", VB_HULL_NICS);
    p->nic = &c->nic[c->nics++];
    init_nic(p->nic, name);
    return 0;
}

static int begin_tenant(struct parser *p, const char *name)
{
    struct vb_hull_config *c = p->config;
    bool anyone = strcmp(name, "*") == 0;
    const struct passwd *user = anyone ? NULL : getpwnam(name);
    uint64_t uid = user ? user->pw_uid : 0;

    if (!anyone && !user && !parse_number(name, UINT32_MAX - 1, &uid))
        return complain(p, "there is no user '%.40s'; '*' stands for anyone", name);
    for (uint32_t i = 0; i < c->tenants; i++)
        if (c->tenant[i].anyone == anyone && c->tenant[i].uid == (uid_t)uid)
            return complain(p, "there is a section of tenant '%.40s' already", name);
    if (c->tenants == VB_HULL_TENANTS)
        return complain(p, "more than %d tenants", VB_HULL_TENANTS);
    struct vb_hull_tenant_config *t = &c->tenant[c->tenants++];
    *t = (struct vb_hull_tenant_config){.anyone = anyone, .uid = (uid_t)uid, .quota = generous};
    p->quota = &t->quota;
    return 0;
}

static int begin_section(struct parser *p, char *head)
{
    size_t len = strlen(head);

    p->nic = NULL;
    p->quota = NULL;
    p->metrics = false;
    if (head[len - 1] != ']')
        return complain(p, "a section ends with ]");
    head[len - 1] = '\0';
    if (strncmp(head, "[nic ", 5) == 0)
        return begin_nic(p, trim(head + 5));
    if (strncmp(head, "[tenant ", 8) == 0)
        return begin_tenant(p, trim(head + 8));
    p->metrics = strcmp(head, "[metrics") == 0;
    return p->metrics ? 0
                      : complain(p, "there are sections [nic NAME], [tenant USER] and [metrics]");
}

static int take_line(struct parser *p, char *line)
{
    char *comment = strchr(line, '#'), *equals;

    if (comment)
        *comment = '\0';
    line = trim(line);
    if (!*line)
        return 0;
    if (*line == '[')
        return begin_section(p, line);
    equals = strchr(line, '=');
    if (!equals)
        return complain(p, "'%.40s' is neither a section nor 'key = value'", line);
    *equals = '\0';
    const char *key = trim(line), *value = trim(equals + 1);
    if (!*value)
        return complain(p, "%.40s has no value", key);
    if (p->nic)
        return set_in_nic(p, key, value);
    if (p->metrics)
        return set_in_metrics(p, key, value);
    return p->quota ? set_in_tenant(p, key, value)
                    : complain(p, "'%.40s' stands before the first section", key);
}

// ---- the whole

// By `udp` several NICs share an address; in memory there is one on each.
static int judge_pairs(const struct vb_hull_config *c, char *error)
{
    for (uint32_t i = 1; i < c->nics; i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct vb_hull_nic_config *a = &c->nic[j], *b = &c->nic[i];
            bool udp = strcmp(a->port, "udp") == 0 || strcmp(b->port, "udp") == 0;
            const char *both = a->socket[0] && strcmp(a->socket, b->socket) == 0 ? "socket"
                               : !udp && strcmp(a->address, b->address) == 0     ? "address"
                                                                                 : NULL;
            if (!both)
                continue;
            snprintf(error, VB_ERROR_TEXT, "NICs '%.40s' and '%.40s' have one %s%s", a->name,
                     b->name, both,
                     *both == 'a' ? ": give them two, or one of them port = udp" : "");
            return -EINVAL;
        }
    return 0;
}

// What only the whole section tells: its keys come in any order.
static int judge_units(const struct vb_hull_config *config, char *error)
{
    for (uint32_t i = 0; i < config->nics; i++) {
        const struct vb_hull_nic_config *nic = &config->nic[i];
        if (!nic->cpus || nic->cpus == nic->pus)
            continue;
        snprintf(error, VB_ERROR_TEXT,
                 "NIC '%s' has %u unit%s (pus), and cpu names %u: give one for each, or none",
                 nic->name, nic->pus, nic->pus > 1 ? "s" : "", nic->cpus);
        return -EINVAL;
    }
    return 0;
}

void vb_hull_config_init(struct vb_hull_config *config)
{
    memset(config, 0, sizeof *config);
    config->nics = 1;
    init_nic(&config->nic[0], "verbena0");
}

int vb_hull_config_parse(const char *text, uint32_t bytes, struct vb_hull_config *config,
                         char error[VB_ERROR_TEXT])
{
    struct parser p = {.config = config, .error = error};
    char line[VB_HULL_LINE];
    int err = 0;

    vb_hull_config_init(config);
    for (uint32_t at = 0; !err && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        uint32_t len = end ? (uint32_t)(end - text) - at : bytes - at;
        p.line++;
        if (len >= sizeof line || memchr(text + at, '\0', len))
            return complain(&p, "it is longer than %d characters, or no text", VB_HULL_LINE - 1);
        memcpy(line, text + at, len);
        line[len] = '\0';
        err = take_line(&p, line);
        at += len + 1;
    }
    if (!err)
        err = judge_units(config, error);
    return err ? err : judge_pairs(config, error);
}

int vb_hull_config_read(const char *path, struct vb_hull_config *config, char error[VB_ERROR_TEXT])
{
    char *text = malloc(FILE_BYTES_MAX);
    int fd = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = 0, bytes = 0;
    int err = fd < 0 ? -errno : 0;

    while (!err && bytes < FILE_BYTES_MAX &&
           (got = read(fd, text + bytes, (size_t)(FILE_BYTES_MAX - bytes))) > 0)
        bytes += got;
    if (!err && got < 0)
        err = -errno;
    if (err)
        snprintf(error, VB_ERROR_TEXT, "%s", strerror(-err));
    else if (bytes == FILE_BYTES_MAX)
        err = -EFBIG, snprintf(error, VB_ERROR_TEXT, "it is longer than a megabyte");
    else
        err = vb_hull_config_parse(text, (uint32_t)bytes, config, error);
    if (fd >= 0)
        close(fd);
    free(text);
    return err;
}

const struct vb_hull_quota *vb_hull_config_quota(const struct vb_hull_config *config, uid_t uid)
{
    const struct vb_hull_quota *found = &generous;

    for (uint32_t i = 0; i < config->tenants; i++) {
        const struct vb_hull_tenant_config *t = &config->tenant[i];
        if (!t->anyone && t->uid == uid)
            return &t->quota;
        if (t->anyone)
            found = &t->quota;
    }
    return found;
}
