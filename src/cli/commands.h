// SPDX-License-Identifier: Apache-2.0
// The subcommands: each takes its own argv, of which argv[0] is its name, and returns an exit
// status.
#ifndef VB_CLI_COMMANDS_H
#define VB_CLI_COMMANDS_H

#include <limits.h>
#include <stdbool.h>

int vb_cli_chain(int argc, char **argv);
int vb_cli_demo(int argc, char **argv);
int vb_cli_doctor(int argc, char **argv);
int vb_cli_figures(int argc, char **argv);
int vb_cli_link(int argc, char **argv);
int vb_cli_nic(int argc, char **argv);
int vb_cli_perf(int argc, char **argv);
int vb_cli_res(int argc, char **argv);
int vb_cli_run(int argc, char **argv);
int vb_cli_sim(int argc, char **argv);
int vb_cli_sim_incast(int argc, char **argv);    // verbena sim incast
int vb_cli_sim_isolation(int argc, char **argv); // verbena sim isolation
int vb_cli_stat(int argc, char **argv);

// Where the libraries are that `verbena run` puts in front of the system's. False: nowhere.
bool vb_cli_find_library(char dir[PATH_MAX]);

#endif
