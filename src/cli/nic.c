// SPDX-License-Identifier: Apache-2.0
// `verbena nic`: NICs in a process of their own, the hull, to which applications attach.
#include "cli/commands.h"
#include "cli/metrics.h"
#include "cli/options.h"
#include "hull/hull.h"
#include "hull/inherit.h"
#include "hull/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char command[] = "verbena nic";

struct fields {
    const char *config, *socket, *name, *address, *port, *metrics;
    bool anywhere;
    uint32_t pus, ready_fd;
};

static const struct vb_option options[] = {
    {"config", NULL, VB_OPTION_TEXT, NULL, "FILE",
     "NICs and tenants, as docs/hull.md says; read again on SIGHUP",
     offsetof(struct fields, config), 0, 0},
    {"socket", NULL, VB_OPTION_TEXT, NULL, "PATH", "control socket of the (only) NIC",
     offsetof(struct fields, socket), 0, 0},
    {"name", NULL, VB_OPTION_TEXT, NULL, "NAME", "of the NIC, without a file; verbena0",
     offsetof(struct fields, name), 0, 0},
    {"address", NULL, VB_OPTION_TEXT, NULL, "IP", "of the NIC, without a file; 127.0.0.1",
     offsetof(struct fields, address), 0, 0},
    {"port", NULL, VB_OPTION_TEXT, NULL, "PORT", "udp, shm or auto, without a file; auto",
     offsetof(struct fields, port), 0, 0},
    {"pus", NULL, VB_OPTION_NUMBER, "1", "N",
     "its processing units, a thread each, without a file: 1, 2, 4, 8 or 16",
     offsetof(struct fields, pus), 1, VB_PUS_MAX},
    {"metrics", NULL, VB_OPTION_TEXT, NULL, "WHERE",
     "metrics by HTTP: PORT or IP:PORT on the loopback, or a socket's path",
     offsetof(struct fields, metrics), 0, 0},
    {"metrics-anywhere", NULL, VB_OPTION_FLAG, NULL, NULL,
     "metrics may be served to other machines", offsetof(struct fields, anywhere), 0, 0},
    {"ready-fd", NULL, VB_OPTION_NUMBER, "0", "N",
     "write a line to this descriptor and close it when applications can attach",
     offsetof(struct fields, ready_fd), 0, 1 << 20},
};

static const struct vb_option_table table = {command, options, sizeof options / sizeof *options};

static void print_help(void)
{
    puts("Usage: verbena nic [options]\n"
         "\n"
         "Runs NICs in this process, for applications that attach to them (`hull` in the options\n"
         "of vb_nic_open). Their queues are shared memory; what they leave behind when they end,\n"
         "in whatever way, is taken back, but for memory with a name. It stays in the foreground\n"
         "until SIGTERM or SIGINT, reads the file's tenants again on SIGHUP, and tells a service\n"
         "manager when it is ready (NOTIFY_SOCKET). Such a manager keeps named memory while the\n"
         "hull is restarted.\n");
    vb_options_help(&table, stdout);
}

// ---- what it is told

static int set_socket(const struct fields *f, struct vb_hull_nic_config *nic)
{
    if (f->socket)
        snprintf(nic->socket, sizeof nic->socket, "%s", f->socket);
    return 0;
}

// Of a file, only what it cannot say: the environment may name a port for all commands.
static int apply(const struct fields *f, struct vb_hull_config *config)
{
    struct vb_hull_nic_config *nic = &config->nic[0];

    if (f->socket && config->nics > 1)
        return vb_usage_error(command,
                              "--socket is for one NIC, and there are %u: say it in the "
                              "file",
                              config->nics);
    if (f->socket && (*f->socket != '/' || strlen(f->socket) >= sizeof nic->socket))
        return vb_usage_error(command, "--socket is a path from / on of at most %zu characters",
                              sizeof nic->socket - 1);
    if (f->config)
        return set_socket(f, nic);
    if ((f->name && strlen(f->name) >= sizeof nic->name) ||
        (f->address && strlen(f->address) >= sizeof nic->address) ||
        (f->port && strlen(f->port) >= sizeof nic->port))
        return vb_usage_error(command, "a name, an address or a port is too long");
    if (f->name && !vb_hull_config_is_name(f->name))
        return vb_usage_error(command, "--name is letters, digits, - and _, not '%s'", f->name);
    if (!vb_hull_config_is_pus(f->pus))
        return vb_usage_error(command, "--pus %u: give 1, 2, 4, 8 or %d", f->pus, VB_PUS_MAX);
    nic->pus = f->pus;
    if (f->name)
        snprintf(nic->name, sizeof nic->name, "%s", f->name);
    if (f->address)
        snprintf(nic->address, sizeof nic->address, "%s", f->address);
    if (f->port)
        snprintf(nic->port, sizeof nic->port, "%s", f->port);
    return set_socket(f, nic);
}

static int configure(const struct fields *f, struct vb_hull_config *config)
{
    char error[VB_ERROR_TEXT];

    vb_hull_config_init(config);
    if (f->config && vb_hull_config_read(f->config, config, error) != 0)
        return vb_usage_error(command, "%s: %s", f->config, error);
    if (f->metrics && strlen(f->metrics) >= sizeof config->metrics)
        return vb_usage_error(command, "--metrics is longer than %zu characters",
                              sizeof config->metrics - 1);
    if (f->metrics)
        snprintf(config->metrics, sizeof config->metrics, "%s", f->metrics);
    config->metrics_anywhere = config->metrics_anywhere || f->anywhere;
    return apply(f, config);
}

// ---- its life

static void close_all(struct vb_hull **hulls, uint32_t count)
{
    while (count > 0)
        vb_hull_close(hulls[--count]);
}

static int open_hulls(const struct vb_hull_config *config, struct vb_hull **hulls)
{
    char error[VB_ERROR_TEXT];

    for (uint32_t i = 0; i < config->nics; i++) {
        if (vb_hull_open(config, i, &hulls[i], error) == 0)
            continue;
        fprintf(stderr, "%s: NIC %s: %s\n", command, config->nic[i].name, error);
        close_all(hulls, i);
        return 1;
    }
    return 0;
}

// What no NIC took. The manager keeps memory of a NIC that is not in the file now.
static void say_inherited(const struct vb_inherited *in)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const struct vb_inherited_fd *e = &in->fd[i];
        struct vb_store_key key;
        if (e->why)
            fprintf(stderr, "%s: descriptor '%s': %s; it was closed\n", command, e->name, e->why);
        else if (e->fd >= 0 && vb_store_read(e->name, &key))
            fprintf(stderr, "%s: descriptor '%s': there is no NIC '%s' now; it was closed\n",
                    command, e->name, key.nic);
        else if (e->fd >= 0)
            fprintf(stderr,
                    "%s: descriptor '%s' is neither stored memory nor the socket hull-NAME of a "
                    "NIC; it was closed\n",
                    command, e->name);
    }
}

static int open_all(struct vb_hull_config *config, struct vb_hull **hulls)
{
    char error[VB_ERROR_TEXT];
    struct vb_inherited inherited;

    if (vb_inherited_take(&inherited, error) != 0)
        fprintf(stderr, "%s: %s\n", command, error);
    config->inherited = &inherited;
    int status = open_hulls(config, hulls);
    config->inherited = NULL;
    say_inherited(&inherited);
    vb_inherited_free(&inherited);
    return status;
}

static void say_ready(const struct fields *f, const struct vb_hull_config *config,
                      struct vb_hull *const *hulls)
{
    for (uint32_t i = 0; i < config->nics; i++)
        fprintf(stderr, "%s: NIC %s at %s, socket %s\n", command, config->nic[i].name,
                config->nic[i].address, hulls[i]->path);
    if (f->ready_fd) {
        (void)!write((int)f->ready_fd, "ready\n", 6);
        close((int)f->ready_fd);
    }
    if (vb_hull_notify("READY=1\nSTATUS=applications can attach\n") != 0)
        fprintf(stderr, "%s: the service manager cannot be told\n", command);
}

static bool is_same_nic(const struct vb_hull_nic_config *a, const struct vb_hull_nic_config *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->address, b->address) == 0 &&
           strcmp(a->port, b->port) == 0 && a->has_group == b->has_group && a->group == b->group &&
           a->pus == b->pus && a->cpus == b->cpus && memcmp(a->cpu, b->cpu, sizeof a->cpu) == 0 &&
           a->furthers == b->furthers && memcmp(a->further, b->further, sizeof a->further) == 0 &&
           a->spin_us == b->spin_us;
}

static bool has_same_nics(const struct vb_hull_config *a, const struct vb_hull_config *b)
{
    bool same = a->nics == b->nics;

    for (uint32_t i = 0; same && i < a->nics; i++)
        same = is_same_nic(&a->nic[i], &b->nic[i]);
    return same;
}

// A file that is wrong changes nothing.
static void reload(const struct fields *f, struct vb_hull_config *config, struct vb_hull **hulls)
{
    struct vb_hull_config *fresh = f->config ? malloc(sizeof *fresh) : NULL;
    char error[VB_ERROR_TEXT] = "out of memory";

    vb_hull_notify("RELOADING=1\n");
    if (!f->config) {
        fprintf(stderr, "%s: there is no file to read again\n", command);
    } else if (!fresh || vb_hull_config_read(f->config, fresh, error) != 0) {
        fprintf(stderr, "%s: %s: %s; all stays as it was\n", command, f->config, error);
    } else {
        for (uint32_t i = 0; i < config->nics; i++)
            vb_hull_reload(hulls[i], fresh);
        fprintf(stderr, "%s: %s: the tenants' quotas were read again%s\n", command, f->config,
                has_same_nics(config, fresh) ? "" : "; NICs stay as they are until a restart");
    }
    free(fresh);
    vb_hull_notify("READY=1\n");
}

// Applications need a few descriptors each, and usual limits are for programs that use select().
static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static void say_limits(const struct vb_hull_config *config)
{
    uint64_t needed = vb_hull_descriptors_needed(config);
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < needed)
        fprintf(stderr,
                "%s: quotas allow %llu descriptors, the system %llu: who would need more is "
                "refused; raise LimitNOFILE= (ulimit -Hn), or lower applications, queues and "
                "memories of tenants\n",
                command, (unsigned long long)needed, (unsigned long long)files.rlim_cur);
}

// 0, or the exit status after a line that says why.
static int open_metrics(const struct vb_hull_config *config, struct vb_hull *const *hulls,
                        struct vb_metrics_server **metrics)
{
    char error[VB_ERROR_TEXT];
    int err = config->metrics[0] ? vb_metrics_start(config->metrics, config->metrics_anywhere,
                                                    hulls, config->nics, metrics, error)
                                 : 0;

    if (err) {
        fprintf(stderr, "%s: %s\n", command, error);
        return err == -EINVAL || err == -EPERM ? VB_EXIT_USAGE : 1;
    }
    if (*metrics)
        fprintf(stderr, "%s: metrics at %s\n", command, vb_metrics_where(*metrics));
    return 0;
}

// Whoever is attached is ended: a log should say so.
static void say_end(const struct vb_hull_config *config, struct vb_hull **hulls)
{
    for (uint32_t i = 0; i < config->nics; i++) {
        struct vb_hull_counts c;
        vb_hull_count_now(hulls[i], &c);
        if (c.clients || c.services)
            fprintf(stderr, "%s: NIC %s ends, with %u applications attached and %u services\n",
                    command, config->nic[i].name, c.clients, c.services);
    }
}

static int run(const struct fields *f, struct vb_hull_config *config)
{
    struct vb_hull *hulls[VB_HULL_NICS];
    struct vb_metrics_server *metrics = NULL;
    sigset_t wanted;
    int which = 0;

    raise_limits();
    signal(SIGPIPE, SIG_IGN); // who reads our lines may go; applications must not suffer
    signal(SIGXFSZ, SIG_IGN); // memory beyond a limit is refused to who asks for it
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    int status = open_all(config, hulls);
    if (status)
        return status;
    status = open_metrics(config, hulls, &metrics);
    if (status) {
        close_all(hulls, config->nics);
        return status;
    }
    say_limits(config);
    say_ready(f, config, hulls);
    while (which != SIGTERM && which != SIGINT) {
        which = sigwaitinfo(&wanted, NULL);
        if (which == SIGHUP)
            reload(f, config, hulls);
    }
    vb_hull_notify("STOPPING=1\n");
    say_end(config, hulls);
    vb_metrics_stop(metrics);
    close_all(hulls, config->nics);
    return 0;
}

int vb_cli_nic(int argc, char **argv)
{
    struct fields fields = {0};
    struct vb_options parsed;
    int status = vb_options_parse(&table, argc, argv, &fields, &parsed);

    if (status)
        return status;
    if (parsed.help) {
        print_help();
        return 0;
    }
    if (parsed.operands)
        return vb_usage_error(command, "takes no '%s'", parsed.operand[0]);
    if (fields.ready_fd && fcntl((int)fields.ready_fd, F_GETFD) < 0)
        return vb_usage_error(command, "--ready-fd %u is not open", fields.ready_fd);
    struct vb_hull_config *config = malloc(sizeof *config);
    if (!config)
        return 1;
    status = configure(&fields, config);
    if (!status)
        status = run(&fields, config);
    free(config);
    return status;
}
