// SPDX-License-Identifier: Apache-2.0
// `verbena stat`: the counters of all NICs of this user, or of their queue pairs; once, or as
// rates.
#include "cli/commands.h"
#include "cli/inspect_show.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "Usage: verbena stat [show] [NAME[/PORT]] [pid N] [options]\n"
    "       verbena stat qp [show] [NAME[/PORT]] [lqpn N] [type T] [pid N] [options]\n"
    "       verbena stat tenant [show] [NAME[/PORT]] [uid N] [pid N] [options]\n"
    "\n"
    "Prints the counters of the NICs that are open in processes of this user, of each queue\n"
    "pair, or of each tenant of a hull (verbena nic). With --watch what has been added, for each\n"
    "second; without --details only what has.\n"
    "\n"
    "  verbena stat qp pid 4711 --watch 1\n"
    "\n";

static const char *const kinds[] = {"qp", "tenant", NULL};
static const char *const keys[] = {"comm", "lqpn", "type", "uid", "app", NULL};
static const struct vb_inspect_form form = {"verbena stat", usage, kinds, keys, true};

static const char *const nothing[] = {NULL};

static bool is_same(const struct vb_record *a, const struct vb_record *b, const char *key)
{
    const char *x = vb_record_get(a, key), *y = vb_record_get(b, key);
    return (!x && !y) || (x && y && strcmp(x, y) == 0);
}

// The record of an earlier survey that this one goes on from. NULL: it is new.
static const struct vb_record *find_before(const struct vb_survey *before,
                                           const struct vb_record *nic,
                                           const struct vb_record *record)
{
    for (uint32_t i = 0; i < before->nics; i++) {
        const struct vb_report *r = &before->nic[i].report;
        if (before->nic[i].outcome != VB_ASKED_OK || !is_same(&r->nic, nic, "pid") ||
            !is_same(&r->nic, nic, "ifname"))
            continue;
        for (uint32_t k = 0; k < r->records; k++)
            if (is_same(&r->record[k], record, "lqpn") && is_same(&r->record[k], record, "uid"))
                return &r->record[k];
    }
    return NULL;
}

// A queue pair's number and type, and whose it is, are no counters.
static bool is_counter(const char *key)
{
    return strcmp(key, "lqpn") != 0 && strcmp(key, "type") != 0 && strcmp(key, "uid") != 0 &&
           strcmp(key, "app") != 0;
}

static void print_rates(struct vb_printer *p, const struct vb_record *record,
                        const struct vb_record *before, double seconds, bool details)
{
    for (uint32_t i = 0; i < record->count; i++) {
        const struct vb_pair *pair = &record->pair[i];
        const char *old = before ? vb_record_get(before, pair->key) : NULL;
        if (!is_counter(pair->key)) {
            vb_print_field(p, pair->key, pair->value);
            continue;
        }
        double added =
            (double)(strtoull(pair->value, NULL, 10) - (old ? strtoull(old, NULL, 10) : 0));
        if (details || added > 0)
            vb_print_rate(p, pair->key, added / seconds);
    }
}

// One round: with an earlier survey as rates, else as they are.
static void print_all(struct vb_printer *p, const struct vb_inspect_line *line,
                      const struct vb_survey *now, const struct vb_survey *before, double seconds)
{
    vb_print_begin(p);
    for (uint32_t i = 0; i < now->nics; i++) {
        const struct vb_report *r = &now->nic[i].report;
        for (uint32_t k = 0; now->nic[i].outcome == VB_ASKED_OK && k < r->records; k++) {
            const struct vb_record *record = &r->record[k];
            if (!vb_inspect_line_wants(line, &r->nic, record))
                continue;
            const struct vb_record *old = before ? find_before(before, &r->nic, record) : NULL;
            if (before && !old)
                continue; // there is nothing to compare it with yet
            vb_inspect_print_link(p, &r->nic, i);
            if (before)
                print_rates(p, record, old, seconds, line->details);
            else
                vb_inspect_print_fields(p, record, nothing, true);
            vb_inspect_print_owner(p, &r->nic);
        }
    }
    vb_print_end(p);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_s(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

static int watch(struct vb_printer *p, const struct vb_inspect_line *line, const char *kind)
{
    struct vb_survey before, now;
    double then_s = now_s();
    int error = vb_inspect_survey(line, kind, &before);

    for (uint32_t round = 0; !error && (line->count == 0 || round < line->count); round++) {
        pause_s(line->watch_s);
        double at_s = now_s();
        error = vb_inspect_survey(line, kind, &now);
        if (error)
            break;
        print_all(p, line, &now, &before, at_s - then_s);
        vb_survey_free(&before);
        before = now;
        then_s = at_s;
        if (ferror(p->out))
            break;
    }
    if (!error)
        vb_survey_free(&before);
    return error;
}

int vb_cli_stat(int argc, char **argv)
{
    struct vb_inspect_line line;
    struct vb_survey survey;
    uint32_t kind;
    int error = vb_inspect_line_parse(&form, argc, argv, &line, &kind);

    if (error)
        return error < 0 ? 0 : error;
    const char *question = kind == 0 ? "qpstat" : kind == 1 ? "tenantstat" : "stat";
    struct vb_printer p = {.out = stdout, .json = line.json, .pretty = line.pretty};
    if (line.watch_s > 0)
        return watch(&p, &line, question);
    error = vb_inspect_survey(&line, question, &survey);
    if (error)
        return error;
    print_all(&p, &line, &survey, NULL, 0);
    vb_survey_free(&survey);
    return vb_inspect_verdict(&line, &p, kind == 0 ? "queue pair" : kind == 1 ? "tenant" : "link");
}
