// SPDX-License-Identifier: Apache-2.0
// `verbena res`: the objects of all NICs of this user.
#include "cli/commands.h"
#include "cli/inspect_show.h"

#include <string.h>

static const char usage[] =
    "Usage: verbena res [show] [NAME] [pid N] [options]\n"
    "       verbena res show qp|cq|mr|pd|srq|cm_id [NAME[/PORT]] [KEY VALUE]... [options]\n"
    "\n"
    "Counts the objects of the NICs that are open in processes of this user, or lists those of\n"
    "one kind. Choose by link, pid, comm, lqpn, rqpn, type, state, cqn, mrn, pdn, srqn, users,\n"
    "cm-idn, qp-type, ps, src-addr or dst-addr:\n"
    "\n"
    "  verbena res show qp link verbena0/1 state RTS\n"
    "  verbena res show mr pid 4711 -d\n"
    "\n"
    "Keys and addresses of memory are shown with --details only. Exit status: 1 if nothing\n"
    "matches what was named.\n"
    "\n";

enum {
    KIND_QP = 0, // of those below, two belong to a port of the NIC
    KIND_CM_ID = 5,
};

static const char *const kinds[] = {"qp", "cq", "mr", "pd", "srq", "cm_id", NULL};
static const char *const keys[] = {"comm",  "lqpn",     "rqpn",     "type", "state",  "cqn",
                                   "users", "mrn",      "pdn",      "srqn", "cm-idn", "qp-type",
                                   "ps",    "src-addr", "dst-addr", NULL};
static const struct vb_inspect_form form = {"verbena res", usage, kinds, keys, false};

// What details are, by kind.
static const char *const more_of_qp[] = {"pdn", "scqn", "rcqn", "srqn", "mtu", "raddr", NULL};
static const char *const more_of_cq[] = {"produced", "overrun", NULL};
static const char *const more_of_mr[] = {"rkey", "lkey", "iova", "access", "kind", NULL};
static const char *const nothing[] = {NULL};
static const char *const more_of_srq[] = {"wr", "limit", NULL};
static const char *const more_of_cm[] = {"role", "service",  "id", "peer-id",
                                         "rqpn", "cm-state", NULL};
static const char *const *const more[] = {more_of_qp, more_of_cq,  more_of_mr,
                                          nothing,    more_of_srq, more_of_cm};

static void print_counts(struct vb_printer *p, const struct vb_report *r, uint32_t index)
{
    const char *name = vb_record_get(&r->nic, "ifname");

    if (p->json)
        vb_inspect_print_dev(p, &r->nic, index);
    else
        vb_print_head(p, "%u: %s:", index, name ? name : "-");
    vb_inspect_print_fields(p, &r->record[0], nothing, true);
    vb_inspect_print_owner(p, &r->nic);
}

static void print_objects(struct vb_printer *p, const struct vb_inspect_line *line, uint32_t kind,
                          const struct vb_report *r, uint32_t index)
{
    for (uint32_t i = 0; i < r->records; i++) {
        if (!vb_inspect_line_wants(line, &r->nic, &r->record[i]))
            continue;
        if (kind == KIND_QP || kind == KIND_CM_ID)
            vb_inspect_print_link(p, &r->nic, index);
        else
            vb_inspect_print_dev(p, &r->nic, index);
        vb_inspect_print_fields(p, &r->record[i], more[kind], line->details);
        vb_inspect_print_owner(p, &r->nic);
    }
}

int vb_cli_res(int argc, char **argv)
{
    struct vb_inspect_line line;
    struct vb_survey survey;
    uint32_t kind;
    int error = vb_inspect_line_parse(&form, argc, argv, &line, &kind);

    if (error)
        return error < 0 ? 0 : error;
    bool counts = kind == UINT32_MAX;
    error = vb_inspect_survey(&line, counts ? "res" : kinds[kind], &survey);
    if (error)
        return error;
    struct vb_printer p = {.out = stdout, .json = line.json, .pretty = line.pretty};
    vb_print_begin(&p);
    for (uint32_t i = 0; i < survey.nics; i++) {
        const struct vb_asked *a = &survey.nic[i];
        if (a->outcome != VB_ASKED_OK || !vb_inspect_line_wants_nic(&line, &a->report.nic))
            continue;
        if (!counts)
            print_objects(&p, &line, kind, &a->report, i);
        else if (a->report.records == 1)
            print_counts(&p, &a->report, i);
    }
    vb_print_end(&p);
    vb_survey_free(&survey);
    return vb_inspect_verdict(&line, &p, counts ? "link" : kinds[kind]);
}
