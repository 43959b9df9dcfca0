// SPDX-License-Identifier: Apache-2.0
// verbena chain trace and run: what a program does, step by step; and what comes out of it.
#include "chain/text.h"
#include "chain/trace.h"
#include "cli/chain_program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_replies(const struct vb_chain_program *p, struct vb_machine *m)
{
    struct vb_machine_reply reply;

    for (uint32_t q = 0; q < p->image->queues; q++) {
        for (uint32_t n = 0; vb_machine_take(m, q, &reply); n++)
            printf(p->args.json ? "{\"reply\":%u,\"queue\":\"%s\",\"bytes\":%u,\"imm\":%u}\n"
                                : "reply %u of %s: %u bytes, immediate data 0x%x\n",
                   n, p->image->queue[q].name, reply.len, reply.with_imm ? reply.imm : 0);
        if (vb_machine_fault(m, q))
            printf(p->args.json ? "{\"queue\":\"%s\",\"syndrome\":%u}\n"
                                : "queue %s stopped with syndrome %u\n",
                   p->image->queue[q].name, vb_machine_fault(m, q));
    }
}

// The program as its own entries have changed it. Returns the exit status.
static int dump(const struct vb_chain_program *p, const char *command, struct vb_machine *m)
{
    const char *name = p->args.dump;
    FILE *out = strcmp(name, "-") != 0 ? fopen(name, "w") : stdout;
    struct vb_image *now = vb_machine_snapshot(m);
    char *text = now ? vb_dis(now) : NULL;
    bool ok = out && text && fputs(text, out) >= 0;

    if (out)
        ok = (out == stdout ? fflush(out) : fclose(out)) == 0 && ok;
    if (!ok)
        fprintf(stderr, "%s: %s: %s\n", command, name, strerror(errno));
    free(text);
    vb_image_destroy(now);
    return ok ? 0 : 1;
}

// Returns the exit status.
static int trace(struct vb_chain_program *p, struct vb_machine *m,
                 const struct vb_machine_opts *opts)
{
    struct vb_watch *w = vb_watch_make(m, p->image, opts);
    enum vb_trace_form form = p->args.json ? VB_TRACE_JSON : VB_TRACE_TEXT;
    char text[VB_TRACE_BYTES];
    struct vb_watch_event e;

    if (!w)
        return 1;
    for (uint64_t steps = 0; steps < p->args.steps_max && vb_watch_step(w, &e); steps++)
        if (vb_trace_print(text, form, w, p->image, &e))
            fputs(text, stdout);
    vb_watch_free(w);
    return 0;
}

static int run(const char *command, bool traced, int argc, char **argv)
{
    struct vb_chain_program p;
    char error[VB_IMAGE_TEXT] = "";
    int status = vb_chain_program_open(&p, command, argc, argv);

    if (status)
        return status < 0 ? 0 : status;
    struct vb_machine_opts opts = vb_chain_program_machine(&p);
    struct vb_machine *m = vb_machine_create(p.image, &opts, error);
    if (!m) {
        fprintf(stderr, "%s: %s\n", command, error);
        vb_chain_program_close(&p);
        return 1;
    }
    vb_chain_program_prepare(&p, m);
    if (p.error)
        status = vb_usage_error(command, "%s", p.error);
    else if (traced)
        status = trace(&p, m, &opts);
    else
        vb_machine_run(m, p.args.steps_max);
    bool only_dump = p.args.dump && strcmp(p.args.dump, "-") == 0;
    if (!status && !only_dump)
        print_replies(&p, m);
    if (!status && p.args.dump)
        status = dump(&p, command, m);
    vb_machine_destroy(m);
    vb_chain_program_close(&p);
    return status;
}

int vb_cli_chain_trace(int argc, char **argv)
{
    return run("verbena chain trace", true, argc, argv);
}

int vb_cli_chain_run(int argc, char **argv)
{
    return run("verbena chain run", false, argc, argv);
}
