// SPDX-License-Identifier: Apache-2.0
// What link, stat and res share.
#include "cli/inspect_show.h"

#include <errno.h>
#include <string.h>

// ---- who did not answer

static bool is_stopped(pid_t pid)
{
    char path[64], text[512];

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    const char *state = strrchr(text, ')'); // the name before it may hold anything
    return state && (strncmp(state, ") T", 3) == 0 || strncmp(state, ") t", 3) == 0);
}

static void complain(const struct vb_inspect_line *line, const struct vb_asked *a)
{
    const char *why = NULL;

    switch (a->outcome) {
    case VB_ASKED_OK:
    case VB_ASKED_GONE: return;
    case VB_ASKED_SILENT:
        why = is_stopped(a->pid) ? "does not answer: it is stopped (kill -CONT lets it go on)"
                                 : "does not answer in time; --timeout gives it more";
        break;
    case VB_ASKED_GARBLED: why = "gave an answer that is none; is it of another version?"; break;
    case VB_ASKED_BUSY: why = "is asked by too many others; try again"; break;
    case VB_ASKED_REFUSED: why = "cannot be asked: its socket is not ours to use"; break;
    }
    fprintf(stderr, "%s: verbena%u of process %ld %s\n", line->command, a->number, (long)a->pid,
            why);
}

int vb_inspect_survey(const struct vb_inspect_line *line, const char *kind,
                      struct vb_survey *survey)
{
    if (vb_survey_take(survey, kind, line->pid, (uint64_t)(line->timeout_s * 1e9)) < 0) {
        fprintf(stderr, "%s: out of memory\n", line->command);
        return 1;
    }
    for (uint32_t i = 0; i < survey->nics; i++)
        complain(line, &survey->nic[i]);
    if (survey->trouble[0])
        fprintf(stderr, "%s: %s\n", line->command, survey->trouble);
    return 0;
}

// ---- records

static const char *get(const struct vb_record *nic, const char *key)
{
    const char *value = vb_record_get(nic, key);
    return value ? value : "-";
}

static void print_identity(struct vb_printer *p, const struct vb_record *nic, uint32_t index)
{
    if (!p->json)
        return;
    vb_print_number(p, "ifindex", index);
    vb_print_field(p, "ifname", get(nic, "ifname"));
}

void vb_inspect_print_link(struct vb_printer *p, const struct vb_record *nic, uint32_t index)
{
    vb_print_head(p, "link %s/%s", get(nic, "ifname"), get(nic, "port"));
    print_identity(p, nic, index);
    vb_print_json_only(p, "port", get(nic, "port"));
}

void vb_inspect_print_dev(struct vb_printer *p, const struct vb_record *nic, uint32_t index)
{
    vb_print_head(p, "dev %s", get(nic, "ifname"));
    print_identity(p, nic, index);
}

void vb_inspect_print_owner(struct vb_printer *p, const struct vb_record *nic)
{
    vb_print_field(p, "pid", get(nic, "pid"));
    vb_print_field(p, "comm", get(nic, "comm"));
    vb_print_tail(p);
}

static bool is_hidden(const char *key, const char *const *hidden)
{
    for (uint32_t i = 0; hidden[i]; i++)
        if (strcmp(key, hidden[i]) == 0)
            return true;
    return false;
}

void vb_inspect_print_fields(struct vb_printer *p, const struct vb_record *record,
                             const char *const *hidden, bool details)
{
    for (uint32_t i = 0; i < record->count; i++)
        if (details || !is_hidden(record->pair[i].key, hidden))
            vb_print_field(p, record->pair[i].key, record->pair[i].value);
}

int vb_inspect_verdict(const struct vb_inspect_line *line, const struct vb_printer *p,
                       const char *what)
{
    if (p->records)
        return 0;
    if (line->filters) {
        fprintf(stderr, "%s: no %s with", line->command, what);
        for (uint32_t i = 0; i < line->filters; i++)
            fprintf(stderr, " %s %s", line->filter[i].key, line->filter[i].value);
        fputc('\n', stderr);
        return 1;
    }
    return 0;
}
