// SPDX-License-Identifier: Apache-2.0
// Seeds in parallel: each process takes every n-th seed and tells its results through a pipe.
#include "sim/batch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    JOBS_MAX = 256,
    WAIT_MS = 200
};

enum record_kind {
    RECORD_START,
    RECORD_RESULT,
    RECORD_COVER
};

struct record {
    enum record_kind kind;
    union {
        uint64_t seed;
        struct vb_sim_result result;
        struct vb_coverage cover;
    };
};

struct job {
    pid_t pid;
    int fd;        // -1: ended
    uint64_t seed; // begun last
    bool stopped;  // not needed any more
    bool complete; // has sent its coverage
};

struct batch {
    const struct vb_batch_opts *opts;
    struct vb_batch_result *result;
    struct job job[JOBS_MAX];
    struct pollfd poll[JOBS_MAX];
    uint32_t jobs, open;
};

// ---- in the child

// Each child has a pipe of its own, so a record may go in pieces.
static bool tell(int fd, const struct record *record)
{
    size_t put = 0;

    while (put < sizeof *record) {
        ssize_t n = write(fd, (const char *)record + put, sizeof *record - put);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        put += (size_t)n;
    }
    return true;
}

static void work(const struct vb_batch_opts *o, uint32_t index, uint32_t jobs, int fd)
{
    struct vb_coverage cover = {0};
    bool go_on = true;

    for (uint64_t i = index; i < o->count && go_on; i += jobs) {
        struct record record = {.kind = RECORD_START, .seed = o->first + i};
        const struct vb_sim_opts opts = {.seed = o->first + i,
                                         .ops = o->ops,
                                         .nics = o->nics,
                                         .chains = o->chains,
                                         .equal = o->equal,
                                         .cm = o->cm};
        if (!tell(fd, &record))
            return;
        record.kind = RECORD_RESULT;
        if (vb_sim_run(&opts, &record.result, &cover) != 0)
            return;
        go_on = !record.result.violated;
        if (!tell(fd, &record))
            return;
    }
    tell(fd, &(struct record){.kind = RECORD_COVER, .cover = cover});
}

static int start(struct batch *b, uint32_t index)
{
    int fd[2];

    if (pipe(fd) != 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        work(b->opts, index, b->jobs, fd[1]);
        _exit(0);
    }
    close(fd[1]);
    if (pid < 0) {
        close(fd[0]);
        return -EAGAIN;
    }
    b->job[index] = (struct job){.pid = pid, .fd = fd[0]};
    b->open++;
    return 0;
}

// ---- in the parent

static bool read_record(int fd, struct record *record)
{
    size_t got = 0;

    while (got < sizeof *record) {
        ssize_t n = read(fd, (char *)record + got, sizeof *record - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

static void note_violation(struct batch *b, const struct vb_sim_result *r)
{
    struct vb_sim_result *worst = &b->result->worst;

    if (!worst->violated || r->seed < worst->seed)
        *worst = *r;
}

static void take_result(struct batch *b, const struct vb_sim_result *r)
{
    b->result->done++;
    b->result->events += r->events;
    b->result->works += r->works;
    if (r->violated)
        note_violation(b, r);
}

static void end(struct batch *b, struct job *job)
{
    int status = 0;

    close(job->fd);
    job->fd = -1;
    b->open--;
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (job->complete || job->stopped)
        return;
    struct vb_sim_result crash = {.seed = job->seed, .violated = true};
    if (WIFSIGNALED(status))
        snprintf(crash.text, sizeof crash.text, "the simulator crashed: %s",
                 strsignal(WTERMSIG(status)));
    else
        snprintf(crash.text, sizeof crash.text, "the simulator ended early with status %d",
                 WEXITSTATUS(status));
    note_violation(b, &crash);
}

static void take_record(struct batch *b, struct job *job)
{
    struct record record;

    if (!read_record(job->fd, &record)) {
        end(b, job);
        return;
    }
    switch (record.kind) {
    case RECORD_START:
        job->seed = record.seed;
        // Only lower seeds than the one that failed are of interest now.
        if (b->result->worst.violated && job->seed > b->result->worst.seed && !job->stopped) {
            job->stopped = true;
            kill(job->pid, SIGKILL);
        }
        break;
    case RECORD_RESULT: take_result(b, &record.result); break;
    case RECORD_COVER:
        job->complete = true;
        vb_cover_merge(&b->result->cover, &record.cover);
        break;
    }
}

static void wait_for_records(struct batch *b)
{
    for (uint32_t i = 0; i < b->jobs; i++)
        b->poll[i] = (struct pollfd){.fd = b->job[i].fd, .events = POLLIN};
    if (poll(b->poll, b->jobs, WAIT_MS) <= 0)
        return;
    for (uint32_t i = 0; i < b->jobs; i++)
        if (b->job[i].fd >= 0 && b->poll[i].revents)
            take_record(b, &b->job[i]);
}

int vb_batch_run(const struct vb_batch_opts *opts, struct vb_batch_result *result)
{
    struct batch *b = calloc(1, sizeof *b);
    int err = 0;

    if (!b)
        return -ENOMEM;
    memset(result, 0, sizeof *result);
    b->opts = opts;
    b->result = result;
    b->jobs = opts->jobs < JOBS_MAX ? opts->jobs : JOBS_MAX;
    if (b->jobs > opts->count)
        b->jobs = (uint32_t)opts->count;
    for (uint32_t i = 0; i < b->jobs; i++)
        b->job[i].fd = -1;
    fflush(NULL); // or each child would print it again
    for (uint32_t i = 0; i < b->jobs && !err; i++)
        err = start(b, i);
    while (b->open > 0) {
        wait_for_records(b);
        if (opts->progress)
            opts->progress(opts->ctx, result->done);
    }
    free(b);
    return err;
}
