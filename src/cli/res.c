// SPDX-License-Identifier: Apache-2.0
// `verbena res`: the objects of all NICs of this user.
#include "cli/commands.h"
#include "cli/inspect_show.h"
#include "host/contract.h"

#include <string.h>

static const char usage[] =
    "Usage: verbena res [show] [NAME] [pid N] [options]\n"
    "       verbena res show qp|cq|mr|pd|srq|cm_id [NAME[/PORT]] [KEY VALUE]... [options]\n"
    "       verbena res show tenant|session|memory [NAME] [KEY VALUE]... [options]\n"
    "\n"
    "Counts the objects of the NICs that are open in processes of this user, or lists those of\n"
    "one kind. Choose by link, pid, comm, lqpn, rqpn, type, state, cqn, mrn, pdn, srqn, users,\n"
    "cm-idn, qp-type, ps, src-addr or dst-addr; of a hull (verbena nic) also by uid, app, name,\n"
    "sid or hull, its name. It has tenants (users: what they have and, with -d, may have),\n"
    "sessions (applications that are attached) and memory with a name:\n"
    "\n"
    "  verbena res show qp link verbena0/1 state RTS\n"
    "  verbena res show mr pid 4711 -d\n"
    "  verbena res tenant uid 1000 -d\n"
    "\n"
    "Keys and addresses of memory are shown with --details only. Exit status: 1 if nothing\n"
    "matches what was named.\n"
    "\n";

enum {
    KIND_QP = 0, // of those below, two belong to a port of the NIC
    KIND_CM_ID = 5,
    KIND_TENANT = 6,
};

static const char *const kinds[] = {"qp",    "cq",     "mr",      "pd",     "srq",
                                    "cm_id", "tenant", "session", "memory", NULL};
static const char *const keys[] = {"comm",  "lqpn",     "rqpn",     "type", "state",  "cqn",
                                   "users", "mrn",      "pdn",      "srqn", "cm-idn", "qp-type",
                                   "ps",    "src-addr", "dst-addr", "uid",  "app",    "name",
                                   "sid",   "hull",     NULL};
static const struct vb_inspect_form form = {"verbena res", usage, kinds, keys, false};

// What details are, by kind.
static const char *const more_of_qp[] = {"pdn", "scqn", "rcqn", "srqn", "mtu", "raddr", NULL};
static const char *const more_of_cq[] = {"produced", "overrun", NULL};
static const char *const more_of_mr[] = {"rkey", "lkey", "iova", "access", "kind", NULL};
static const char *const nothing[] = {NULL};
static const char *const more_of_srq[] = {"wr", "limit", NULL};
static const char *const more_of_cm[] = {"role", "service",  "id", "peer-id",
                                         "rqpn", "cm-state", NULL};
static const char *const more_of_tenant[] = {"max_applications", "max_queue_pairs", "max_queues",
                                             "max_regions",      "max_entries",     "max_bytes",
                                             "max_memories",     "rate_kbps",       NULL};
static const char *const *const more[] = {more_of_qp,     more_of_cq,  more_of_mr,
                                          nothing,        more_of_srq, more_of_cm,
                                          more_of_tenant, nothing,     nothing};

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

// ---- hulls of other users

static void print_resources(struct vb_printer *p, bool may, const struct vb_hull_resources *r)
{
    vb_print_number(p, may ? "max_applications" : "applications", r->applications);
    vb_print_number(p, may ? "max_queue_pairs" : "queue_pairs", r->queue_pairs);
    vb_print_number(p, may ? "max_queues" : "queues", r->queues);
    vb_print_number(p, may ? "max_regions" : "regions", r->regions);
    vb_print_number(p, may ? "max_entries" : "entries", r->entries);
    vb_print_number(p, may ? "max_bytes" : "bytes", r->bytes);
    vb_print_number(p, may ? "max_memories" : "memories", r->memories);
}

// A hull that is another user's is not inspected, but who may attach is told of himself.
static void print_account(struct vb_printer *p, const struct vb_inspect_line *line)
{
    struct vb_hull_account a;
    char text[VB_ERROR_TEXT];
    const char *hull = NULL;

    for (uint32_t i = 0; i < line->filters; i++)
        if (strcmp(line->filter[i].key, "hull") == 0)
            hull = line->filter[i].value;
    if (!hull || line->filters > 1)
        return;
    if (vb_contract_account(hull, (uint64_t)(line->timeout_s * 1e9), &a, text) != 0) {
        fprintf(stderr, "%s: %s\n", line->command, text);
        return;
    }
    vb_print_head(p, "hull %s", hull);
    vb_print_json_only(p, "hull", hull);
    vb_print_number(p, "uid", a.uid);
    print_resources(p, false, &a.has);
    vb_print_number(p, "named", a.named);
    vb_print_number(p, "refused", a.refused);
    if (line->details) {
        print_resources(p, true, &a.may);
        vb_print_number(p, "rate_kbps", a.rate_kbps);
    }
    vb_print_tail(p);
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
    if (kind == KIND_TENANT && p.records == 0)
        print_account(&p, &line);
    vb_print_end(&p);
    vb_survey_free(&survey);
    return vb_inspect_verdict(&line, &p, counts ? "link" : kinds[kind]);
}
