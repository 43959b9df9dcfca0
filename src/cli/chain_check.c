// SPDX-License-Identifier: Apache-2.0
// verbena chain check: what is wrong with a program.
#include "cli/chain_program.h"

#include <stdio.h>

static void print(const struct vb_finding *f, bool json)
{
    if (!json) {
        printf("%s: [%s] %s.\n", f->warning ? "warning" : "error", vb_check_name(f->kind), f->text);
        return;
    }
    printf("{\"severity\":\"%s\",\"kind\":\"%s\",\"text\":\"", f->warning ? "warning" : "error",
           vb_check_name(f->kind));
    for (const char *c = f->text; *c; c++)
        printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    puts("\"}");
}

int vb_cli_chain_check(int argc, char **argv)
{
    struct vb_chain_program p;
    struct vb_findings found = {.count = 0};
    int status = vb_chain_program_open(&p, "verbena chain check", argc, argv);

    if (status)
        return status < 0 ? 0 : status;
    vb_check_static(p.image, &found);
    vb_check_dynamic(p.image,
                     &(struct vb_check_opts){.steps_max = p.args.steps_max,
                                             .shared_bytes = p.args.shared_bytes,
                                             .prepare = vb_chain_program_prepare,
                                             .ctx = &p},
                     &found);
    for (uint32_t i = 0; i < found.count; i++)
        print(&found.finding[i], p.args.json);
    if (!p.args.json)
        printf("%s: %u errors, %u warnings\n", p.image->name, found.errors,
               found.count - found.errors);
    if (p.error)
        status = vb_usage_error("verbena chain check", "%s", p.error);
    else if (found.errors || found.no_memory)
        status = 1;
    vb_findings_free(&found);
    vb_chain_program_close(&p);
    return status;
}
