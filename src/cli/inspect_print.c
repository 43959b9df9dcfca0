// SPDX-License-Identifier: Apache-2.0
// Prints records.
#include "cli/inspect_print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

void vb_print_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ' || c >= 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void vb_print_begin(struct vb_printer *p)
{
    p->records = 0;
    if (p->json)
        fputc('[', p->out);
}

void vb_print_end(struct vb_printer *p)
{
    if (p->json)
        fputs(p->pretty && p->records ? "\n]\n" : "]\n", p->out);
    fflush(p->out);
}

void vb_print_head(struct vb_printer *p, const char *format, ...)
{
    va_list args;

    p->fields = 0;
    if (p->json) {
        fputs(p->records ? "," : "", p->out);
        fputs(p->pretty ? "\n    {" : "{", p->out);
    } else {
        va_start(args, format);
        vfprintf(p->out, format, args);
        va_end(args);
    }
    p->records++;
}

// What comes before a field's value.
static void put_key(struct vb_printer *p, const char *key)
{
    if (!p->json) {
        fprintf(p->out, " %s ", key);
        return;
    }
    fputs(p->fields++ ? "," : "", p->out);
    fputs(p->pretty ? "\n        " : "", p->out);
    vb_print_json_string(p->out, key);
    fputs(p->pretty ? ": " : ":", p->out);
}

void vb_print_text(struct vb_printer *p, const char *key, const char *value)
{
    put_key(p, key);
    if (p->json)
        vb_print_json_string(p->out, value);
    else
        fputs(value, p->out);
}

// A number as JSON has them: no zero in front, and no longer than 64 bits.
static bool is_number(const char *value)
{
    size_t len = strspn(value, "0123456789");
    return len > 0 && len < 20 && !value[len] && (value[0] != '0' || len == 1);
}

void vb_print_field(struct vb_printer *p, const char *key, const char *value)
{
    static const char *const words[] = {"comm",  "netdev", "addr", "also",
                                        "raddr", "ifname", "name", "hull"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(key, words[i]) == 0) {
            vb_print_text(p, key, value);
            return;
        }
    if (!is_number(value)) {
        vb_print_text(p, key, value);
        return;
    }
    put_key(p, key);
    fputs(value, p->out);
}

void vb_print_number(struct vb_printer *p, const char *key, uint64_t value)
{
    put_key(p, key);
    fprintf(p->out, "%" PRIu64, value);
}

void vb_print_rate(struct vb_printer *p, const char *key, double per_second)
{
    put_key(p, key);
    fprintf(p->out, p->json ? "%.1f" : "%.0f/s", per_second);
}

void vb_print_json_only(struct vb_printer *p, const char *key, const char *value)
{
    if (p->json)
        vb_print_field(p, key, value);
}

void vb_print_tail(struct vb_printer *p)
{
    if (p->json)
        fputs(p->pretty ? "\n    }" : "}", p->out);
    else
        fputc('\n', p->out);
}
