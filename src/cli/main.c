// SPDX-License-Identifier: Apache-2.0
// The `verbena` command: finds the subcommand.
#include "cli/commands.h"
#include "cli/options.h"
#include "verbena_config.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"chain", vb_cli_chain, "programs of work-queue entries: text to file and back"},
    {"demo", vb_cli_demo, "two NICs on this machine move data both ways; see what it does"},
    {"doctor", vb_cli_doctor, "does it work here? limits, ports, addresses, libraries"},
    {"figures", vb_cli_figures, "experiments of papers, beside the papers' numbers"},
    {"link", vb_cli_link, "the NICs that are open in your processes"},
    {"nic", vb_cli_nic, "a NIC in a process of its own, to which applications attach"},
    {"perf", vb_cli_perf, "latency, rate and bandwidth, beside a raw UDP socket"},
    {"res", vb_cli_res, "their queue pairs, completion queues, memory regions"},
    {"run", vb_cli_run, "an unmodified verbs program, on a software NIC"},
    {"sim", vb_cli_sim, "the same NICs in virtual time, under faults drawn from a seed"},
    {"stat", vb_cli_stat, "their counters, or those of each queue pair"},
};

enum {
    COMMANDS = sizeof commands / sizeof *commands
};

static void print_help(FILE *out)
{
    fputs("Verbena is an RDMA network card made of software. It speaks RoCE v2 over plain UDP\n"
          "sockets and needs neither RDMA hardware, nor a kernel module, nor root.\n"
          "\n"
          "Usage: verbena COMMAND [options]\n"
          "\n",
          out);
    for (unsigned i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-7s %s\n", commands[i].name, commands[i].help);
    fputs("\n"
          "'verbena COMMAND --help' explains one of them; 'verbena --version' prints the version.\n"
          "\n"
          "Try:\n"
          "  verbena demo                          everything once, in some seconds\n"
          "  verbena perf read --size 64           how long does an RDMA READ take?\n"
          "  verbena perf write --size 64,4K,64K   how many WRITEs, how many bytes a second?\n"
          "  verbena run -- ibv_devinfo            which RDMA device does a program see?\n"
          "  verbena doctor                        why does it not work here?\n"
          "  verbena sim --seeds 20                what happens when packets are lost?\n"
          "  verbena chain --help                  how does a NIC get a program?\n"
          "\n"
          "Results go to standard output, everything else to standard error. Exit status: 0 all\n"
          "went well, 1 the work failed, 2 the command line was wrong.\n",
          out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return VB_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("verbena " VERBENA_VERSION);
        return 0;
    }
    for (unsigned i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    return vb_usage_error(
        "verbena",
        "there is no command '%s'; there are chain, demo, doctor, figures, link, nic, perf, res, "
        "run, sim and stat",
        argv[1]);
}
