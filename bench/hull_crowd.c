// SPDX-License-Identifier: Apache-2.0
// hull_crowd [--applications N] [--at-a-time N] [--writes N] [--rounds N] [--port PORT] [--leak]:
// so many applications, each a process of its own, attach to one hull, work (two queue pairs
// connected with each other, writes that are checked) and stay until all have; then all leave.
// States what one of them costs: time to attach, to work and to leave, and memory, descriptors and
// mappings of the hull. Nothing may be left when they have gone; with --leak one stays, which must
// be noticed. Prints one JSON object.
#include "hull/hull.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BYTES = 8192,
    APPLICATIONS_MAX = 16384,
    SPINS = 100,
    PATIENCE_MS = 5000, // for the hull to see that they are gone
    GATHER_MS = 30000,  // for one of them
};

struct options {
    uint32_t applications, at_a_time, writes, rounds;
    const char *port;
    bool leak;
};

// What an application says of itself.
struct timing {
    uint64_t attach_ns, work_ns;
};

// What the system says of the hull.
struct load {
    uint64_t rss_kb, pss_kb, private_kb;
    uint32_t descriptors, mappings;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "hull_crowd: %s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, int error)
{
    if (error < 0)
        give_up(what, strerror(-error));
}

// ---- the hull

static void run_hull(const struct options *o, int said, int heard)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT], byte;
    struct vb_hull *hull;

    if (!config)
        give_up("the hull", "out of memory");
    vb_hull_config_init(config);
    const struct vb_hull_quota usual = *vb_hull_config_quota(config, 0);
    config->tenants = 1;
    config->tenant[0] = (struct vb_hull_tenant_config){.anyone = true, .quota = usual};
    config->tenant[0].quota.applications = APPLICATIONS_MAX;
    config->tenant[0].quota.queue_pairs = 2 * APPLICATIONS_MAX;
    config->tenant[0].quota.queues = 2 * APPLICATIONS_MAX;
    config->tenant[0].quota.memories = 16 * APPLICATIONS_MAX;
    snprintf(config->nic[0].name, sizeof config->nic[0].name, "crowd-%ld", (long)getpid());
    snprintf(config->nic[0].address, sizeof config->nic[0].address, "127.64.%u.1",
             (unsigned)getpid() & 255);
    snprintf(config->nic[0].port, sizeof config->nic[0].port, "%s", o->port);
    if (vb_hull_open(config, 0, &hull, error) != 0)
        give_up("the hull", error);
    if (write(said, hull->path, sizeof hull->path) != sizeof hull->path)
        give_up("the hull", "nobody listens");
    (void)!read(heard, &byte, 1);
    vb_hull_close(hull);
    free(config);
}

static pid_t start_hull(const struct options *o, char path[108], int *stop)
{
    int said[2], heard[2];

    if (pipe2(said, O_CLOEXEC) < 0 || pipe2(heard, O_CLOEXEC) < 0)
        give_up("pipes", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(heard[1]);
        run_hull(o, said[1], heard[0]);
        exit(0);
    }
    close(said[1]);
    close(heard[0]);
    if (read(said[0], path, 108) != 108)
        give_up("the hull", "it did not start");
    close(said[0]);
    *stop = heard[1];
    return pid;
}

static uint64_t read_kb(const char *line, const char *key)
{
    size_t len = strlen(key);
    return strncmp(line, key, len) == 0 ? strtoull(line + len, NULL, 10) : 0;
}

static void read_memory(pid_t pid, struct load *load)
{
    char path[64], line[256];

    snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", (long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        give_up(path, strerror(errno));
    while (fgets(line, sizeof line, file)) {
        load->rss_kb += read_kb(line, "Rss:");
        load->pss_kb += read_kb(line, "Pss:");
        load->private_kb += read_kb(line, "Private_Dirty:");
        load->private_kb += read_kb(line, "Private_Clean:");
    }
    fclose(file);
}

static uint32_t count_lines(pid_t pid)
{
    char path[64], line[512];
    uint32_t count = 0;

    snprintf(path, sizeof path, "/proc/%ld/maps", (long)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, "memfd:") != NULL;
    if (file)
        fclose(file);
    return count;
}

static uint32_t count_files(pid_t pid)
{
    char path[64];
    uint32_t count = 0;

    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    DIR *list = opendir(path);
    while (list && readdir(list))
        count++;
    if (list)
        closedir(list);
    return count;
}

static struct load weigh(pid_t pid)
{
    struct load load = {.descriptors = count_files(pid), .mappings = count_lines(pid)};

    read_memory(pid, &load);
    return load;
}

// ---- an application

struct app {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_qp *qp[2];
    uint8_t *memory;
};

static void attach(struct app *a, const char *path)
{
    char why[VB_ERROR_TEXT] = "";
    const struct vb_nic_opts opts = {.hull = path, .error_text = why};

    if (vb_nic_open(&opts, &a->nic) != 0)
        give_up("an application", why);
    check("a domain", vb_pd_alloc(a->nic, &a->pd));
    check("memory", vb_hull_alloc(a->nic, NULL, BYTES, (void **)&a->memory));
    check("a region", vb_mr_reg(a->pd, a->memory, BYTES, VB_RIGHT_ALL, &a->mr));
    check("a queue", vb_cq_create(a->nic, &(struct vb_cq_opts){.entries = 16}, &a->cq));
    for (int i = 0; i < 2; i++)
        check(
            "a queue pair",
            vb_qp_create(a->pd,
                         &(struct vb_qp_opts){
                             .send_cq = a->cq, .recv_cq = a->cq, .send_depth = 8, .recv_depth = 8},
                         &a->qp[i]));
    for (int i = 0; i < 2; i++) {
        struct vb_qp_peer peer = {.qpn = vb_qp_num(a->qp[!i]), .rights = VB_RIGHT_REMOTE_WRITE};
        vb_nic_gid(a->nic, peer.gid);
        check("a connection", vb_qp_connect(a->qp[i], &peer));
    }
}

static void work(struct app *a, uint32_t writes)
{
    const struct vb_sge sge = {(uintptr_t)a->memory, BYTES / 2, vb_mr_key(a->mr)};
    const struct vb_send_wr wr = {.opcode = VB_WR_WRITE,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)a->memory + BYTES / 2,
                                  .rkey = vb_mr_key(a->mr)};
    struct vb_wc wc;
    int n;

    for (uint32_t i = 0; i < writes; i++) {
        memset(a->memory, (int)(i + (uint32_t)getpid()), BYTES / 2);
        if (vb_post_send(a->qp[i % 2], &wr, 1) != 1)
            give_up("a write", "it was not posted");
        for (uint32_t tries = 0; (n = vb_poll_cq(a->cq, &wc, 1)) == 0; tries++)
            if (tries > SPINS)
                sched_yield(); // the hull may need the core
        if (n != 1 || wc.status != VB_WC_OK ||
            memcmp(a->memory, a->memory + BYTES / 2, BYTES / 2) != 0)
            give_up("a write", "it failed, or wrote something else");
    }
}

static void run_app(const struct options *o, const char *path, int said, int heard)
{
    struct timing t;
    struct app a = {0};
    char byte;
    uint64_t began = vb_clock_ns();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    attach(&a, path);
    t.attach_ns = vb_clock_ns() - began;
    began = vb_clock_ns();
    work(&a, o->writes);
    t.work_ns = vb_clock_ns() - began;
    if (write(said, &t, sizeof t) != sizeof t)
        give_up("an application", "nobody listens");
    (void)!read(heard, &byte, 1); // until all have come
    vb_nic_close(a.nic);
}

// ---- the crowd

struct crowd {
    pid_t *pid;
    struct timing *timing;
    uint32_t ready;
    int said[2], heard[2];
};

static void await_one(struct crowd *c)
{
    struct pollfd said = {.fd = c->said[0], .events = POLLIN};

    if (poll(&said, 1, GATHER_MS) != 1 ||
        read(c->said[0], &c->timing[c->ready], sizeof *c->timing) != sizeof *c->timing)
        give_up("an application", "it is not done, and perhaps has ended");
    c->ready++;
}

static void gather(const struct options *o, struct crowd *c, const char *path, int stop)
{
    if (pipe2(c->said, O_CLOEXEC) < 0 || pipe2(c->heard, O_CLOEXEC) < 0)
        give_up("pipes", strerror(errno));
    for (uint32_t i = 0; i < o->applications; i++) {
        if (i >= c->ready + o->at_a_time)
            await_one(c);
        c->pid[i] = fork();
        if (c->pid[i] < 0)
            give_up("fork", strerror(errno));
        if (c->pid[i] == 0) {
            close(c->heard[1]);
            close(c->said[0]);
            close(stop);
            run_app(o, path, c->said[1], c->heard[0]);
            exit(0);
        }
    }
    close(c->said[1]);
    while (c->ready < o->applications)
        await_one(c);
}

// Returns how many ended in another way than they should.
static uint32_t dismiss(const struct options *o, struct crowd *c)
{
    uint32_t failed = 0;
    int status;

    if (o->leak)
        kill(c->pid[0], SIGSTOP);
    close(c->heard[1]);
    for (uint32_t i = o->leak; i < o->applications; i++)
        failed += waitpid(c->pid[i], &status, 0) != c->pid[i] || status != 0;
    return failed;
}

// The hull hears of an application's end a little later than we do.
static struct load weigh_after(pid_t hull, const struct load *before)
{
    struct load load = weigh(hull);
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};

    for (uint32_t ms = 0; ms < PATIENCE_MS && (load.descriptors != before->descriptors ||
                                               load.mappings != before->mappings);
         ms += 10) {
        nanosleep(&pause, NULL);
        load = weigh(hull);
    }
    return load;
}

// ---- what it comes to

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *key, const struct crowd *c, uint32_t count, size_t offset)
{
    uint64_t *all = calloc(count, sizeof *all);

    if (!all)
        give_up("the result", "out of memory");
    for (uint32_t i = 0; i < count; i++)
        memcpy(&all[i], (const char *)&c->timing[i] + offset, sizeof all[i]);
    qsort(all, count, sizeof *all, by_value);
    printf(",\"%s_us_median\":%.1f,\"%s_us_p99\":%.1f", key, (double)all[count / 2] / 1000, key,
           (double)all[(uint64_t)count * 99 / 100] / 1000);
    free(all);
}

static double each(uint64_t now, uint64_t before, uint32_t count)
{
    return ((double)now - (double)before) / count;
}

static int report(const struct options *o, const struct crowd *c, const struct load load[3],
                  const double seconds[2], uint32_t failed)
{
    const struct load *before = &load[0], *during = &load[1], *after = &load[2];
    uint32_t n = o->applications;
    int64_t left_fds = (int64_t)after->descriptors - before->descriptors;
    int64_t left_maps = (int64_t)after->mappings - before->mappings;

    printf("{\"applications\":%u,\"failed\":%u,\"writes\":%u", n, failed, o->writes);
    printf(",\"come_ms_each\":%.3f,\"leave_ms_each\":%.3f", seconds[0] * 1000 / n,
           seconds[1] * 1000 / n);
    print_times("attach", c, n, offsetof(struct timing, attach_ns));
    print_times("work", c, n, offsetof(struct timing, work_ns));
    printf(",\"hull_rss_kb_each\":%.2f,\"hull_pss_kb_each\":%.2f,\"hull_private_kb_each\":%.2f",
           each(during->rss_kb, before->rss_kb, n), each(during->pss_kb, before->pss_kb, n),
           each(during->private_kb, before->private_kb, n));
    printf(",\"descriptors_each\":%.2f,\"mappings_each\":%.2f",
           each(during->descriptors, before->descriptors, n),
           each(during->mappings, before->mappings, n));
    printf(",\"descriptors_left\":%" PRId64 ",\"mappings_left\":%" PRId64
           ",\"private_kb_left\":%" PRId64 "}\n",
           left_fds, left_maps, (int64_t)after->private_kb - (int64_t)before->private_kb);
    return failed || left_fds || left_maps;
}

static double now_s(void)
{
    return (double)vb_clock_ns() * 1e-9;
}

// All come and all go, once.
static int run_once(const struct options *o, pid_t hull, const char *path, int stop, bool says)
{
    struct crowd c = {.pid = calloc(o->applications, sizeof *c.pid),
                      .timing = calloc(o->applications, sizeof *c.timing)};
    struct load load[3];
    double seconds[2];
    int status;

    if (!c.pid || !c.timing)
        give_up("the crowd", "out of memory");
    load[0] = weigh(hull);
    double began = now_s();
    gather(o, &c, path, stop);
    seconds[0] = now_s() - began;
    load[1] = weigh(hull);
    began = now_s();
    uint32_t failed = dismiss(o, &c);
    seconds[1] = now_s() - began;
    load[2] = weigh_after(hull, &load[0]);
    int result = says ? report(o, &c, load, seconds, failed) : failed != 0;
    if (o->leak) {
        kill(c.pid[0], SIGKILL);
        waitpid(c.pid[0], &status, 0);
    }
    close(c.said[0]);
    close(c.heard[0]);
    free(c.pid);
    free(c.timing);
    return result;
}

// The first time the hull's tables grow; what is left behind is what the last one leaves.
static int run(const struct options *o)
{
    char path[108];
    int stop, status, result = 0;
    pid_t hull = start_hull(o, path, &stop);

    for (uint32_t i = 0; i < o->rounds && !result; i++)
        result = run_once(o, hull, path, stop, i + 1 == o->rounds);
    close(stop);
    if (waitpid(hull, &status, 0) != hull || status != 0)
        give_up("the hull", "it did not end as it should");
    return result;
}

// ---- the command line

static bool parse_number(const char *text, uint32_t max, uint32_t *value)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);

    *value = (uint32_t)number;
    return *text >= '0' && *text <= '9' && !*end && number > 0 && number <= max;
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"applications", required_argument, NULL, 'n'},
                                          {"at-a-time", required_argument, NULL, 'a'},
                                          {"writes", required_argument, NULL, 'w'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"port", required_argument, NULL, 'p'},
                                          {"leak", no_argument, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
    int option;
    bool good = true;

    while (good && (option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'n': good = parse_number(optarg, APPLICATIONS_MAX / 2, &o->applications); break;
        case 'a': good = parse_number(optarg, APPLICATIONS_MAX, &o->at_a_time); break;
        case 'w': good = parse_number(optarg, UINT32_MAX, &o->writes); break;
        case 'r': good = parse_number(optarg, 1000, &o->rounds); break;
        case 'p': o->port = optarg; break;
        case 'l': o->leak = true; break;
        default: good = false; break;
        }
    }
    return good && optind == argc;
}

int main(int argc, char **argv)
{
    struct options o = {
        .applications = 1000, .at_a_time = 2, .writes = 20, .rounds = 2, .port = "udp"};
    struct rlimit files;

    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "Usage: hull_crowd [--applications N] [--at-a-time N] [--writes N] "
                        "[--rounds N] [--port udp|shm|auto] [--leak]\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    return run(&o);
}
