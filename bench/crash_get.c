// SPDX-License-Identifier: Apache-2.0
// crash_get --hull SOCKET [--rounds N] [--unrelated] …: hash gets that a service of a hull answers
// while its application (crash_app) is killed at random moments and started again. Checks every
// answer. A process that has nothing to do with it works beside them; with --unrelated that one is
// killed and started again instead, and what differs is the crash's. With --plain the application
// has a NIC of its own, which dies with it. Prints one JSON object; bench/crash.py compares runs,
// looks at the hull, and draws.
#include "base/hist.h"
#include "base/prng.h"
#include "crash.h"
#include "verbena/nic.h"
#include "verbena/offload_service.h"

#include <endian.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SIGNAL_EVERY = 16,
    BATCH = 16,
    SLICE_NS = 1000 * 1000,
    SLICES_MAX = 1 << 21, // half an hour
    PATIENCE_NS = 2000 * 1000 * 1000,
    PLAIN_PATIENCE_NS = 5 * 1000 * 1000, // before a client takes its server for dead
    TEXT = 2 * VB_OFFLOAD_MESSAGE + 2,
};

struct options {
    const char *hull, *plain, *address, *port, *slices;
    uint32_t rounds, depth, life_us;
    uint64_t seed;
    bool unrelated;
};

extern char **environ;

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "crash_get: %s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, int error)
{
    if (error < 0)
        give_up(what, strerror(-error));
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// ---- processes

struct child {
    pid_t pid;
    FILE *says;
};

static struct child start(char *const words[])
{
    static char path[PATH_MAX];
    posix_spawn_file_actions_t actions;
    struct child c = {0};
    int line[2];

    ssize_t len = readlink("/proc/self/exe", path, sizeof path - sizeof "/crash_app");
    if (len < 0 || pipe2(line, O_CLOEXEC) != 0)
        give_up("no pipe", "to the application");
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    memcpy(slash ? slash + 1 : path, "crash_app", sizeof "crash_app");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, line[1], STDOUT_FILENO);
    if (posix_spawn(&c.pid, path, &actions, NULL, words, environ) != 0)
        give_up(path, "cannot be started");
    posix_spawn_file_actions_destroy(&actions);
    close(line[1]);
    c.says = fdopen(line[0], "r");
    if (!c.says)
        give_up("no memory", "for a stream");
    return c;
}

// Whether it lived until it was killed.
static bool end(struct child *c)
{
    int status;

    kill(c->pid, SIGKILL);
    fclose(c->says);
    return waitpid(c->pid, &status, 0) == c->pid && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL;
}

// ---- the killer

struct killer {
    const struct options *o;
    struct child victim;  // that is alive
    uint64_t *killed_ns;  // rounds
    uint32_t kills, died; // died: by themselves, which they must not
    atomic_bool done;
};

static struct child start_one(const struct options *o, bool of_service)
{
    char program[] = "crash_app", again[] = "again", unrelated[] = "unrelated", hull[PATH_MAX];
    char *const words[] = {program, hull, again, NULL}, *const other[] = {program, unrelated, NULL};

    snprintf(hull, sizeof hull, "%s", o->hull);
    return start(of_service ? words : other);
}

// Half of them are killed while they start and attach, the others at work.
static void *kill_and_start(void *arg)
{
    struct killer *k = arg;
    struct vb_prng prng = {.state = k->o->seed};
    char line[32];

    prctl(PR_SET_TIMERSLACK, 1);
    for (uint32_t round = 0; round < k->o->rounds; round++) {
        if (round > 0 && round % 2 && !fgets(line, sizeof line, k->victim.says))
            k->died++;
        uint64_t life_ns = vb_prng_below(&prng, k->o->life_us * UINT64_C(1000));
        nanosleep(&(struct timespec){(time_t)(life_ns / 1000000000), (long)(life_ns % 1000000000)},
                  NULL);
        k->killed_ns[k->kills++] = now_ns();
        if (!end(&k->victim))
            k->died++;
        if (round + 1 < k->o->rounds)
            k->victim = start_one(k->o, !k->o->unrelated);
    }
    atomic_store(&k->done, true);
    return NULL;
}

// ---- the client

struct client {
    const struct options *o;
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq;
    struct vb_qp *qp;
    struct vb_offload_place place;
    uint8_t *replies;   // depth * CRASH_VALUE
    uint64_t *asked_ns; // depth
    uint64_t asked, answered, wrong, failed;
    uint64_t begun_ns, last_ns, gap_ns; // gap: the longest between two answers
    struct vb_hist latency;
    uint32_t *slice; // answers in each
    uint32_t slices;
};

static void open_client(struct client *c, const struct options *o)
{
    char why[VB_ERROR_TEXT] = "";
    size_t bytes = (size_t)o->depth * CRASH_VALUE;

    *c = (struct client){.o = o, .replies = calloc(1, bytes)};
    c->asked_ns = calloc(o->depth, sizeof *c->asked_ns);
    c->slice = calloc(SLICES_MAX, sizeof *c->slice);
    vb_hist_init(&c->latency);
    const struct vb_nic_opts opts = {.address = o->address, .port = o->port, .error_text = why};
    if (vb_nic_open(&opts, &c->nic) != 0)
        give_up("cannot open a NIC", why);
    check("no domain", vb_pd_alloc(c->nic, &c->pd));
    check("no queue",
          vb_cq_create(c->nic, &(struct vb_cq_opts){.entries = 4 * o->depth + 64}, &c->cq));
    check(
        "cannot register memory",
        vb_mr_reg(c->pd, c->replies, bytes, VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE, &c->mr));
}

static struct vb_offload_join open_qp(struct client *c)
{
    const struct vb_qp_opts qp = {.send_cq = c->cq,
                                  .recv_cq = c->cq,
                                  .send_depth = c->o->depth + SIGNAL_EVERY,
                                  .recv_depth = c->o->depth,
                                  .inline_bytes = sizeof(struct vb_hash_request)};

    check("no queue pair", vb_qp_create(c->pd, &qp, &c->qp));
    struct vb_offload_join join = {.offload = "get",
                                   .qpn = vb_qp_num(c->qp),
                                   .depth = c->o->depth,
                                   .addr = (uintptr_t)c->replies,
                                   .bytes = (uint64_t)c->o->depth * CRASH_VALUE,
                                   .key = vb_mr_key(c->mr)};
    vb_nic_gid(c->nic, join.gid);
    if (getrandom(&join.nonce, sizeof join.nonce, 0) != sizeof join.nonce)
        give_up("no random numbers", "getrandom");
    return join;
}

// The application of the first life, which makes the program; of a plain one, that of any life.
static struct child join_service(struct client *c)
{
    char program[] = "crash_app", first[] = "first", plain[] = "plain", where[PATH_MAX];
    char text[TEXT] = "", error[VB_OFFLOAD_TEXT] = "no answer";
    char *const words[] = {program, where, c->o->plain ? plain : first, text, NULL};
    const struct vb_offload_join join = open_qp(c);
    uint8_t message[VB_OFFLOAD_MESSAGE];

    snprintf(where, sizeof where, "%s", c->o->plain ? c->o->plain : c->o->hull);
    crash_to_hex(message, vb_offload_write_join(message, &join), text);
    struct child app = start(words);
    if (!fgets(text, sizeof text, app.says))
        give_up("the application", "it does not answer");
    uint32_t len = crash_from_hex(text, message, sizeof message);
    if (vb_offload_read_place(message, len, &c->place, error) != 0)
        give_up("refused", error);
    struct vb_qp_peer peer = {.qpn = c->place.qpn,
                              .psn = c->place.psn,
                              .our_psn = join.psn,
                              .rights = VB_RIGHT_REMOTE_WRITE};
    memcpy(peer.gid, c->place.gid, sizeof peer.gid);
    check("cannot connect", vb_qp_connect(c->qp, &peer));
    for (uint32_t i = 0; i < c->o->depth; i++)
        check("no receive", vb_post_recv(c->qp, &(struct vb_recv_wr){0}, 1) == 1 ? 0 : -1);
    if (!fgets(text, sizeof text, app.says))
        give_up("the application", "it does not begin");
    return app;
}

static bool is_miss(uint64_t n)
{
    return n % CRASH_MISS_EVERY == CRASH_MISS_EVERY - 1;
}

static uint64_t pick_of(uint64_t n)
{
    return n * 0x9e3779b1u % CRASH_KEYS;
}

static void ask(struct client *c)
{
    uint64_t n = c->asked++, pick = pick_of(n);
    uint64_t bucket = htobe64(c->place.region[0].addr + pick * sizeof(struct vb_hash_bucket));
    struct vb_hash_request request;
    const struct vb_sge sge = {(uintptr_t)&request, sizeof request, 0};
    const struct vb_send_wr wr = {.opcode = VB_WR_SEND,
                                  .flags =
                                      VB_WR_INLINE | (n % SIGNAL_EVERY == 0 ? VB_WR_SIGNALED : 0),
                                  .sge = &sge,
                                  .num_sge = 1};

    crash_key(is_miss(n) ? pick + CRASH_KEYS : pick, request.key);
    memcpy(request.bucket, &bucket, sizeof bucket);
    c->asked_ns[n % c->o->depth] = now_ns();
    check("the queue pair is full", vb_post_send(c->qp, &wr, 1) == 1 ? 0 : -1);
}

static void note_time(struct client *c, uint64_t n, uint64_t now)
{
    uint64_t slice = (now - c->begun_ns) / SLICE_NS;

    vb_hist_record(&c->latency, now - c->asked_ns[n % c->o->depth]);
    if (now - c->last_ns > c->gap_ns)
        c->gap_ns = now - c->last_ns;
    c->last_ns = now;
    if (slice < SLICES_MAX) {
        c->slice[slice]++;
        c->slices = (uint32_t)slice + 1;
    }
}

// Every byte, and what was there before cannot pass for it.
static void take(struct client *c, const struct vb_wc *wc, uint64_t now)
{
    uint8_t expected[CRASH_VALUE];
    uint64_t n = c->answered++;
    uint8_t *reply = c->replies + n % c->o->depth * CRASH_VALUE;

    crash_value(pick_of(n), expected);
    if (is_miss(n))
        c->wrong += be32toh(wc->imm) != VB_HASH_MISS;
    else
        c->wrong += be32toh(wc->imm) != CRASH_VALUE || memcmp(reply, expected, sizeof expected);
    reply[0] = (uint8_t)~expected[0];
    note_time(c, n, now);
    check("no receive", vb_post_recv(c->qp, &(struct vb_recv_wr){0}, 1) == 1 ? 0 : -1);
}

// Until the killer is done and all is answered; false: no answer came for too long.
static bool run(struct client *c, const struct killer *k)
{
    struct vb_wc wc[BATCH];

    c->begun_ns = c->last_ns = now_ns();
    while (!c->failed && (!atomic_load(&k->done) || c->answered < c->asked)) {
        while (!atomic_load(&k->done) && c->asked - c->answered < c->o->depth / 2)
            ask(c);
        int n = vb_poll_cq(c->cq, wc, BATCH);
        uint64_t now = now_ns();
        for (int i = 0; i < n; i++) {
            c->failed += wc[i].status != VB_WC_OK;
            if (wc[i].status != VB_WC_OK)
                fprintf(stderr, "crash_get: a get failed: %s\n", vb_wc_status_text(wc[i].status));
            else if (wc[i].opcode == VB_WC_RECV_WRITE)
                take(c, &wc[i], now);
        }
        if (now - c->last_ns > PATIENCE_NS)
            return false;
    }
    return true;
}

// ---- what came out

static void write_slices(const struct client *c, const struct killer *k)
{
    FILE *out = fopen(c->o->slices, "w");

    if (!out)
        give_up(c->o->slices, "cannot be written");
    for (uint32_t i = 0; i < k->kills; i++)
        fprintf(out, "kill %.3f\n", (double)(int64_t)(k->killed_ns[i] - c->begun_ns) / 1e6);
    for (uint32_t i = 0; i < c->slices; i++)
        fprintf(out, "%u %u\n", i, c->slice[i]);
    fclose(out);
}

static void report(const struct client *c, const struct killer *k, bool right)
{
    const struct vb_hist *h = &c->latency;
    double seconds = (double)(c->last_ns - c->begun_ns) / 1e9;

    printf("{\"bench\":\"crash_get\",\"killed\":\"%s\",\"rounds\":%u,\"died\":%u,\"gets\":%" PRIu64
           ",\"failed\":%" PRIu64 ",\"unanswered\":%" PRIu64 ",\"wrong\":%" PRIu64
           ",\"seconds\":%.2f,\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 ",\"p9999_ns\":%" PRIu64
           ",\"max_ns\":%" PRIu64 ",\"gap_ns\":%" PRIu64 ",\"ok\":%s}\n",
           c->o->plain       ? "plain"
           : c->o->unrelated ? "unrelated"
                             : "application",
           k->kills, k->died, c->answered, c->failed, c->asked - c->answered, c->wrong, seconds,
           vb_hist_quantile(h, 0.5), vb_hist_quantile(h, 0.99), vb_hist_quantile(h, 0.9999),
           h->max_ns, c->gap_ns, right ? "true" : "false");
}

static int crash(const struct options *o)
{
    struct killer k = {.o = o, .killed_ns = calloc(o->rounds, sizeof *k.killed_ns)};
    struct client c;
    pthread_t thread;

    open_client(&c, o);
    struct child app = join_service(&c), other = start_one(o, false);
    k.victim = o->unrelated ? other : app;
    if (!k.killed_ns || pthread_create(&thread, NULL, kill_and_start, &k) != 0)
        give_up("no thread", "to kill");
    bool answered = run(&c, &k);
    pthread_join(thread, NULL);
    k.died += !end(o->unrelated ? &app : &other);
    bool right = answered && c.wrong == 0 && c.failed == 0 && k.died == 0;
    report(&c, &k, right);
    if (o->slices)
        write_slices(&c, &k);
    vb_nic_close(c.nic);
    free(k.killed_ns);
    return right ? 0 : 1;
}

// ---- without a hull, for comparison

// Asks and takes answers until a time, or until there are none any more.
static bool ask_until(struct client *c, uint64_t until_ns)
{
    struct vb_wc wc[BATCH];
    uint64_t now = now_ns();

    for (c->last_ns = now; now < until_ns && now - c->last_ns < PLAIN_PATIENCE_NS;) {
        while (c->asked - c->answered < c->o->depth / 2)
            ask(c);
        int n = vb_poll_cq(c->cq, wc, BATCH);
        now = now_ns();
        for (int i = 0; i < n; i++) {
            if (wc[i].status != VB_WC_OK)
                return false;
            if (wc[i].opcode == VB_WC_RECV_WRITE)
                take(c, &wc[i], now);
        }
    }
    return now >= until_ns;
}

// The NIC dies with its application: the client notices, starts another one and connects anew.
static int crash_plain(const struct options *o)
{
    struct killer k = {.o = o, .killed_ns = calloc(o->rounds, sizeof *k.killed_ns)};
    struct vb_prng prng = {.state = o->seed};
    struct client c;

    if (!k.killed_ns)
        give_up("no memory", "for rounds");
    open_client(&c, o);
    c.begun_ns = now_ns();
    while (k.kills < o->rounds) {
        struct child app = join_service(&c);
        uint64_t life_ns = vb_prng_below(&prng, o->life_us * UINT64_C(1000));
        ask_until(&c, now_ns() + life_ns);
        k.killed_ns[k.kills++] = now_ns();
        k.died += !end(&app);
        ask_until(&c, UINT64_MAX);
        c.failed += c.asked - c.answered;
        vb_qp_destroy(c.qp);
        c.asked = c.answered = (c.asked + o->depth) / o->depth * o->depth; // slots begin anew
    }
    report(&c, &k, c.wrong == 0 && k.died == 0);
    if (o->slices)
        write_slices(&c, &k);
    vb_nic_close(c.nic);
    free(k.killed_ns);
    return c.wrong || k.died;
}

static bool read_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {{"hull", required_argument, NULL, 'h'},
                                          {"address", required_argument, NULL, 'a'},
                                          {"port", required_argument, NULL, 'p'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"depth", required_argument, NULL, 'd'},
                                          {"life-us", required_argument, NULL, 'l'},
                                          {"slices", required_argument, NULL, 's'},
                                          {"seed", required_argument, NULL, 'e'},
                                          {"unrelated", no_argument, NULL, 'u'},
                                          {"plain", required_argument, NULL, 'n'},
                                          {0}};
    int name;

    while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case 'h': o->hull = optarg; break;
        case 'a': o->address = optarg; break;
        case 'p': o->port = optarg; break;
        case 'r': o->rounds = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'd': o->depth = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'l': o->life_us = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 's': o->slices = optarg; break;
        case 'e': o->seed = strtoull(optarg, NULL, 10); break;
        case 'u': o->unrelated = true; break;
        case 'n': o->plain = optarg; break;
        default: return false;
        }
    }
    return optind == argc && !o->hull != !o->plain && o->rounds && o->life_us && o->depth >= 2 &&
           o->depth <= 64 && (o->depth & (o->depth - 1)) == 0;
}

int main(int argc, char **argv)
{
    struct options o = {.address = "127.0.0.1", .rounds = 100, .depth = 8, .life_us = 20000};

    if (!read_options(argc, argv, &o)) {
        fprintf(
            stderr,
            "usage: crash_get --hull SOCKET|--plain ADDRESS [--address A] [--port shm|udp|auto] "
            "[--rounds N] [--depth 2|4|…|64] [--life-us N] [--seed N] "
            "[--slices FILE] [--unrelated]\n");
        return 2;
    }
    return o.plain ? crash_plain(&o) : crash(&o);
}
