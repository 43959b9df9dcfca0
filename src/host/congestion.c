// SPDX-License-Identifier: Apache-2.0
// The option of congestion control: text to parameters, or one line that says what was wrong.
#include "host/congestion.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct knob {
    const char *name;
    size_t offset;
    uint32_t least, most;
};

#define KNOB(name, fallback, least, most) \
    {#name, offsetof(struct vb_dcqcn_params, name), least, most},

// clang-format off
static const struct knob knobs[] = {VB_DCQCN_KNOBS(KNOB)};
// clang-format on

enum {
    KNOBS = sizeof knobs / sizeof knobs[0]
};

__attribute__((format(printf, 2, 3))) static int refuse(char *error_text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (error_text)
        vsnprintf(error_text, VB_ERROR_TEXT, format, args);
    va_end(args);
    return -EINVAL;
}

// One "name=value" of `len` bytes.
static int set_knob(const char *text, size_t len, struct vb_dcqcn_params *p, char *error_text)
{
    const char *equals = memchr(text, '=', len);
    size_t name_len = equals ? (size_t)(equals - text) : len;
    const struct knob *k = knobs;

    while (k < knobs + KNOBS &&
           (strlen(k->name) != name_len || memcmp(k->name, text, name_len) != 0))
        k++;
    if (k == knobs + KNOBS)
        return refuse(error_text, "dcqcn has no '%.*s': docs/congestion.md lists what it has",
                      (int)(name_len < 40 ? name_len : 40), text);
    char *end = NULL;
    const char *digits = text + name_len + 1;
    bool is_number = equals && *digits >= '0' && *digits <= '9';
    unsigned long value = is_number ? strtoul(digits, &end, 10) : 0;
    if (!is_number || end != text + len || value < k->least || value > k->most)
        return refuse(error_text, "dcqcn: %s is a number from %u to %u: %s=%u", k->name, k->least,
                      k->most, k->name, k->most);
    memcpy((char *)p + k->offset, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
    return 0;
}

static int set_knobs(const char *text, struct vb_dcqcn_params *p, char *error_text)
{
    int err = 0;

    while (!err) {
        size_t len = strcspn(text, ",");
        err = set_knob(text, len, p, error_text);
        text += len;
        if (*text++ == '\0')
            break;
    }
    if (!err && p->rp_min_rate_mbps > p->rp_max_rate_mbps)
        err = refuse(error_text, "dcqcn: rp_min_rate_mbps is more than rp_max_rate_mbps");
    return err;
}

int vb_host_congestion(const struct vb_nic_opts *o, bool *on, struct vb_dcqcn_params *p)
{
    const char *text = o->congestion ? o->congestion : getenv("VERBENA_CONGESTION");

    *p = vb_dcqcn_defaults();
    *on = text && strncmp(text, "dcqcn", 5) == 0;
    if (!text || *text == '\0' || strcmp(text, "none") == 0 || strcmp(text, "dcqcn") == 0)
        return 0;
    if (!*on || text[5] != ':')
        return refuse(o->error_text,
                      "no congestion control '%.40s': there are none, dcqcn and dcqcn:NAME=VALUE,…",
                      text);
    return set_knobs(text + 6, p, o->error_text);
}

bool vb_host_congestion_on(const struct vb_nic_opts *o)
{
    struct vb_dcqcn_params params;
    bool on;

    return vb_host_congestion(o, &on, &params) == 0 && on;
}
