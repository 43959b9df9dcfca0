// SPDX-License-Identifier: Apache-2.0
// verbena chain cost: what a program would cost on a card.
#include "cli/chain_program.h"
#include "cost/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRESET_BYTES = 1 << 16,
};

// A preset that comes with Verbena, or a file. NULL: it was said why.
static struct vb_cost_preset *find_preset(const char *command, const char *name)
{
    char error[VB_COST_TEXT] = "", text[PRESET_BYTES];
    bool is_file = strchr(name, '/') || strchr(name, '.');
    struct vb_cost_preset *preset = NULL;

    if (!is_file) {
        preset = vb_cost_preset_named(name, error);
        if (!preset)
            vb_usage_error(command, "--preset %s: %s, or give a file", name, error);
        return preset;
    }
    FILE *in = fopen(name, "rb");
    size_t len = in ? fread(text, 1, sizeof text, in) : 0;
    bool failed = !in || ferror(in);
    if (failed)
        vb_usage_error(command, "--preset %s: %s", name, strerror(errno));
    else if (len == sizeof text)
        vb_usage_error(command, "--preset %s: the file is too long", name);
    else if (!(preset = vb_cost_preset_parse(text, len, error)))
        vb_usage_error(command, "--preset %s: %s", name, error);
    if (in)
        fclose(in);
    return preset;
}

// Returns the exit status. Frees the text.
static int write_text(const char *command, const char *name, char *text)
{
    FILE *out = name ? fopen(name, "w") : stdout;
    bool ok = out && text && fputs(text, out) >= 0;

    if (out)
        ok = (out == stdout ? fflush(out) : fclose(out)) == 0 && ok;
    if (!ok)
        fprintf(stderr, "%s: %s: %s\n", command, name ? name : "standard output",
                text ? strerror(errno) : "no memory");
    free(text);
    return ok ? 0 : 1;
}

static int price(struct vb_chain_program *p, const char *command,
                 const struct vb_cost_preset *preset)
{
    const struct vb_machine_opts machine = vb_chain_program_machine(p);
    const struct vb_cost_opts opts = {.steps_max = p->args.steps_max,
                                      .operations = p->args.operations,
                                      .connections = p->args.connections,
                                      .registered_bytes = (uint64_t)p->args.registered_mb << 20,
                                      .managed_client = p->args.managed_client};
    char error[VB_COST_TEXT] = "";
    struct vb_machine *m = vb_machine_create(p->image, &machine, error);
    struct vb_cost *cost = NULL;
    int status = 1;

    if (m)
        vb_chain_program_prepare(p, m);
    if (m && !p->error)
        cost = vb_cost_watch(m, p->image, &machine, preset, &opts, error);
    if (p->error)
        status = vb_usage_error(command, "%s", p->error);
    else if (!cost)
        fprintf(stderr, "%s: %s\n", command, error);
    if (cost) {
        status = write_text(command, NULL, p->args.json ? vb_cost_json(cost) : vb_cost_text(cost));
        if (!status && p->args.svg)
            status = write_text(command, p->args.svg, vb_cost_svg(cost));
    }
    vb_cost_free(cost);
    vb_machine_destroy(m);
    return status;
}

int vb_cli_chain_cost(int argc, char **argv)
{
    static const char command[] = "verbena chain cost";
    struct vb_chain_program p;
    int status = vb_chain_program_open(&p, command, argc, argv);

    if (status)
        return status < 0 ? 0 : status;
    struct vb_cost_preset *preset = find_preset(command, p.args.preset);
    status = preset ? price(&p, command, preset) : VB_EXIT_USAGE;
    vb_cost_preset_free(preset);
    vb_chain_program_close(&p);
    return status;
}
