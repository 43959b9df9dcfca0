// SPDX-License-Identifier: Apache-2.0
// `verbena link`: the NICs of this user on this machine.
#include "cli/commands.h"
#include "cli/inspect_show.h"

#include <string.h>

static const char usage[] =
    "Usage: verbena link [show] [NAME[/PORT]] [pid N] [options]\n"
    "\n"
    "Lists the NICs that are open in processes of this user on this machine, whether they opened\n"
    "them by themselves or run under `verbena run`:\n"
    "\n"
    "  link verbena0/1 state ACTIVE physical_state LINK_UP netdev eth0 addr 192.0.2.1 type udp\n"
    "    mtu 1024 pid 4711 comm ib_send_bw\n"
    "\n"
    "verbena0 is a process's first NIC. Exit status: 1 if what was named does not exist.\n"
    "\n";

static const char *const none[] = {NULL};
static const char *const keys[] = {"addr", "comm", "netdev", "type", NULL};
static const struct vb_inspect_form form = {"verbena link", usage, none, keys, false};

// The rest is said elsewhere in the line.
static void print(struct vb_printer *p, const struct vb_record *nic, uint32_t index, bool details)
{
    static const char *const more[] = {"units", "faults", NULL};
    static const char *const said[] = {"ifname", "port", "pid", "comm", NULL};

    vb_inspect_print_link(p, nic, index);
    for (uint32_t i = 0; i < nic->count; i++) {
        const struct vb_record one = {1, &nic->pair[i]};
        bool shown = false;
        for (uint32_t k = 0; said[k]; k++)
            shown = shown || strcmp(nic->pair[i].key, said[k]) == 0;
        if (!shown)
            vb_inspect_print_fields(p, &one, more, details);
    }
    vb_inspect_print_owner(p, nic);
}

int vb_cli_link(int argc, char **argv)
{
    struct vb_inspect_line line;
    struct vb_survey survey;
    uint32_t kind;
    int error = vb_inspect_line_parse(&form, argc, argv, &line, &kind);

    if (error)
        return error < 0 ? 0 : error;
    error = vb_inspect_survey(&line, "nic", &survey);
    if (error)
        return error;
    struct vb_printer p = {.out = stdout, .json = line.json, .pretty = line.pretty};
    vb_print_begin(&p);
    for (uint32_t i = 0; i < survey.nics; i++) {
        const struct vb_record *nic = &survey.nic[i].report.nic;
        if (survey.nic[i].outcome == VB_ASKED_OK && vb_inspect_line_wants(&line, nic, nic))
            print(&p, nic, i, line.details);
    }
    vb_print_end(&p);
    vb_survey_free(&survey);
    return vb_inspect_verdict(&line, &p, "link");
}
