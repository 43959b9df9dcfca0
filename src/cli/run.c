// SPDX-License-Identifier: Apache-2.0
// `verbena run`: an unmodified verbs program with our libibverbs in front of the system's.
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/sysfs.h"
#include "port/faults.h"
#include "verbena/nic.h"
#include "verbena_config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char command[] = "verbena run";

enum {
    EXIT_CANNOT_RUN = 126, // as shells say it
    EXIT_NOT_FOUND = 127,
    PUS_MAX = 16,
};

struct run {
    const char *port, *faults, *address, *log, *hull;
    uint32_t pus;
    bool sysfs, rsockets;
};

#define FIELD(name) offsetof(struct run, name)

static const struct vb_option options[] = {
    {"port", NULL, VB_OPTION_TEXT, NULL, "NAME", "udp, shm or auto (shm where it reaches)",
     FIELD(port), 0, 0},
    {"faults", NULL, VB_OPTION_TEXT, NULL, "RULES", "faults on purpose (docs/faults.md)",
     FIELD(faults), 0, 0},
    {"pus", NULL, VB_OPTION_NUMBER, "1", "N", "processing units: 1, 2, 4, 8 or 16", FIELD(pus), 1,
     PUS_MAX},
    {"address", NULL, VB_OPTION_TEXT, NULL, "LIST",
     "addresses of this machine: GID 0 is the first that can be had", FIELD(address), 0, 0},
    {"hull", NULL, VB_OPTION_TEXT, NULL, "NAME",
     "a NIC of `verbena nic` instead, by name or socket, which copies memory", FIELD(hull), 0, 0},
    {"log", NULL, VB_OPTION_TEXT, NULL, "LEVEL", "off, error, info or debug: why verbs failed",
     FIELD(log), 0, 0},
    {"sysfs", NULL, VB_OPTION_FLAG, NULL, NULL,
     "show the device in /sys/class/infiniband, in a mount namespace", FIELD(sysfs), 0, 0},
    {"rsockets", NULL, VB_OPTION_FLAG, NULL, NULL,
     "turn the program's TCP and UDP sockets into rsockets", FIELD(rsockets), 0, 0},
};

static const struct vb_option_table table = {command, options, sizeof options / sizeof *options};

static void print_help(void)
{
    puts("Usage: verbena run [options] -- PROGRAM [arguments]\n"
         "\n"
         "Runs a program that uses verbs, unmodified, on a software NIC of its own: the device\n"
         "verbena0. With VERBENA=off in the environment the program runs as it would without.\n");
    vb_options_help(&table, stdout);
    puts("\n"
         "Try, in two terminals:\n"
         "  verbena run -- ibv_rc_pingpong -g 0\n"
         "  verbena run -- ibv_rc_pingpong -g 0 localhost\n"
         "or, by rdma_cm:\n"
         "  verbena run -- rping -s\n"
         "  verbena run -- rping -c -a 127.0.0.1 -C 10 -v\n"
         "\n"
         "Exit status: the program's; 127 if there is no such program, 126 if it cannot be run.");
}

static bool is_one_of(const char *text, const char *const words[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static int check_faults(const char *rules)
{
    struct vb_faults *parsed = NULL;
    char why[VB_ERROR_TEXT];

    if (!rules)
        return 0;
    int err = vb_faults_parse(rules, &parsed, why);
    vb_faults_free(parsed);
    return err ? vb_usage_error(command, "--faults: %s", why) : 0;
}

static int check(const struct run *r)
{
    static const char *const ports[] = {"udp", "shm", "auto"};
    static const char *const levels[] = {"off", "error", "info", "debug"};

    if (r->port && !is_one_of(r->port, ports, 3))
        return vb_usage_error(command, "--port: '%s' is not one of udp, shm and auto", r->port);
    if (r->log && !is_one_of(r->log, levels, 4))
        return vb_usage_error(command, "--log: '%s' is not one of off, error, info and debug",
                              r->log);
    if (r->pus & (r->pus - 1))
        return vb_usage_error(command, "--pus: %u is not one of 1, 2, 4, 8 and 16", r->pus);
    return check_faults(r->faults);
}

// The directory of our libibverbs: beside this command in a build tree, or where it was installed.
bool vb_cli_find_library(char dir[PATH_MAX])
{
    static const char *const places[] = {"lib/verbena", "../" VERBENA_LIBDIR "/verbena"};
    char self[PATH_MAX], file[PATH_MAX + 32], place[PATH_MAX + 64];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    if (len <= 0)
        return false;
    self[len] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(place, sizeof place, "%s/%s", self, places[i]);
        if (!realpath(place, dir))
            continue;
        snprintf(file, sizeof file, "%s/libibverbs.so.1", dir);
        if (access(file, R_OK) == 0)
            return true;
    }
    return false;
}

// In front of what is there already.
static void prepend(const char *name, const char *dir)
{
    const char *before = getenv(name);
    size_t room = strlen(dir) + (before ? strlen(before) : 0) + 2;
    char *both = malloc(room);

    if (!both)
        return;
    snprintf(both, room, "%s%s%s", dir, before && *before ? ":" : "", before ? before : "");
    setenv(name, both, 1);
    free(both);
}

static void pass(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
}

static void prepare(const struct run *r, const char *dir)
{
    char pus[16];

    prepend("LD_LIBRARY_PATH", dir);
    pass("VERBENA_PORT", r->port);
    pass("VERBENA_FAULTS", r->faults);
    pass("VERBENA_ADDRESS", r->address);
    pass("VERBENA_LOG", r->log);
    pass("VERBENA_HULL", r->hull);
    snprintf(pus, sizeof pus, "%u", r->pus);
    setenv("VERBENA_PUS", pus, 1);
}

// False: it was said why.
static bool show_in_sysfs(const char *dir)
{
    struct vb_sysfs_device device;
    char library[PATH_MAX + 32], why[VB_SYSFS_ERROR_BYTES];

    snprintf(library, sizeof library, "%s/libibverbs.so.1", dir);
    if (!vb_sysfs_ask(library, &device))
        snprintf(why, sizeof why, "the device cannot be opened");
    else if (vb_sysfs_enter(&device, why))
        return true;
    fprintf(stderr, "%s: --sysfs: %s\n", command, why);
    return false;
}

// False: it was said why.
static bool preload_rsockets(const char *dir)
{
    char library[PATH_MAX + 32];

    snprintf(library, sizeof library, "%s/librspreload.so", dir);
    if (access(library, R_OK)) {
        fprintf(stderr, "%s: --rsockets: %s: %s\n", command, library, strerror(errno));
        return false;
    }
    prepend("LD_PRELOAD", library);
    return true;
}

static int execute(char **argv)
{
    execvp(argv[0], argv);
    int error = errno;
    fprintf(stderr, "%s: %s: %s\n", command, argv[0], strerror(error));
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

// Options end at "--".
static int find_program(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0)
            return i;
    }
    return argc;
}

int vb_cli_run(int argc, char **argv)
{
    struct run r = {0};
    struct vb_options parsed;
    char dir[PATH_MAX];
    const char *off = getenv("VERBENA");
    int end = find_program(argc, argv);
    int error = vb_options_parse(&table, end, argv, &r, &parsed);

    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    if (parsed.operands)
        return vb_usage_error(command, "'%s': write -- before the program and its arguments",
                              parsed.operand[0]);
    if (end + 1 >= argc)
        return vb_usage_error(command, "no program: verbena run [options] -- PROGRAM");
    error = check(&r);
    if (error)
        return error;
    if (off && strcmp(off, "off") == 0)
        return execute(argv + end + 1);
    if (!vb_cli_find_library(dir)) {
        fprintf(stderr, "%s: libibverbs.so.1 of Verbena is missing: build or install it\n",
                command);
        return 1;
    }
    prepare(&r, dir);
    if (r.sysfs && !show_in_sysfs(dir))
        return 1;
    if (r.rsockets && !preload_rsockets(dir))
        return 1;
    return execute(argv + end + 1);
}
