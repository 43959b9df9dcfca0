// SPDX-License-Identifier: Apache-2.0
// What `verbena chain check`, `run`, `trace` and `cost` have in common: a program, what its memory
// holds, and what its clients send.
#ifndef VB_CLI_CHAIN_PROGRAM_H
#define VB_CLI_CHAIN_PROGRAM_H

#include "chain/check.h"
#include "cli/options.h"

enum {
    VB_CHAIN_INPUTS = 64, // of --put and --send together
};

// Of the command line.
struct vb_chain_args {
    const char *put, *send; // lists, see the help
    const char *dump;       // a file, or NULL
    uint32_t slots;
    uint32_t depth, units, seed;
    uint32_t steps_max, shared_bytes;
    bool json;
    // Of `cost`.
    const char *preset, *svg;
    uint32_t operations, connections, registered_mb;
    bool managed_client;
};

struct vb_chain_program {
    struct vb_chain_args args;
    struct vb_image *image;
    const char *error;
};

// Parses argv and makes the image of the program that is named. Returns 0; VB_EXIT_USAGE; or -1
// when only the help was asked for. What it was is said.
int vb_chain_program_open(struct vb_chain_program *p, const char *command, int argc, char **argv);
void vb_chain_program_close(struct vb_chain_program *p);
// Fills memory and sends messages, as the command line says (a prepare function of the checker).
void vb_chain_program_prepare(void *program, struct vb_machine *m);
struct vb_machine_opts vb_chain_program_machine(const struct vb_chain_program *p);

int vb_cli_chain_check(int argc, char **argv);
int vb_cli_chain_trace(int argc, char **argv);
int vb_cli_chain_run(int argc, char **argv);
int vb_cli_chain_cost(int argc, char **argv);

#endif
