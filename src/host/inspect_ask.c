// SPDX-License-Identifier: Apache-2.0
// Asks all NICs of this user.
#include "host/inspect_ask.h"

#include "host/inspect.h"
#include "port/clock.h"
#include "port/inspect_place.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    AT_A_TIME = 64,
    ANSWER_MAX = 64 << 20, // bytes
    READ_BYTES = 64 << 10,
    RETRY_MS = 5,
};

// One NIC that is being asked.
struct call {
    int fd; // -1: done, or not called yet
    struct vb_asked *asked;
    const struct vb_inspect_name *name;
    bool waits; // for room in the NIC's queue
    char *bytes;
    size_t len, room;
};

static void end_call(struct call *c, enum vb_asked_outcome outcome)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->waits = false;
    c->asked->outcome = outcome;
    free(c->bytes);
    c->bytes = NULL;
}

static enum vb_asked_outcome outcome_of(int error)
{
    switch (error) {
    case -ENOENT:
    case -ECONNREFUSED: return VB_ASKED_GONE;
    default: return VB_ASKED_REFUSED;
    }
}

static void dial(struct call *c, const char *kind)
{
    char question[VB_INSPECT_REQUEST];
    int len = snprintf(question, sizeof question, VB_INSPECT_GREETING "%s\n", kind);

    c->fd = vb_inspect_call(c->name, &c->asked->pid);
    c->waits = c->fd == -EAGAIN;
    if (c->fd < 0 && !c->waits) {
        end_call(c, outcome_of(c->fd));
        return;
    }
    // So few bytes always find room in a new socket.
    if (c->fd >= 0 && send(c->fd, question, (size_t)len, MSG_NOSIGNAL) != len)
        end_call(c, VB_ASKED_GONE);
}

static bool grow(struct call *c)
{
    if (c->room - c->len >= READ_BYTES)
        return true;
    size_t room = c->room ? 2 * c->room : 2 * READ_BYTES;
    char *bigger = room <= ANSWER_MAX ? realloc(c->bytes, room) : NULL;
    if (!bigger)
        return false;
    c->bytes = bigger;
    c->room = room;
    return true;
}

// The whole answer is there. An empty one: the process ended, or would not talk.
static void finish(struct call *c, const char *kind)
{
    if (c->len == 0) {
        end_call(c, VB_ASKED_GONE);
        return;
    }
    int err = vb_report_parse(c->bytes, c->len, kind, &c->asked->report);
    c->bytes = NULL;
    end_call(c, err ? VB_ASKED_GARBLED : VB_ASKED_OK);
}

static void listen_to(struct call *c, const char *kind)
{
    if (!grow(c)) {
        end_call(c, VB_ASKED_GARBLED);
        return;
    }
    ssize_t n = recv(c->fd, c->bytes + c->len, READ_BYTES, 0);
    if (n > 0)
        c->len += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        finish(c, kind);
}

static bool wait_for(struct call *calls, uint32_t count, const char *kind, uint64_t now,
                     uint64_t until_ns)
{
    struct pollfd fds[AT_A_TIME];
    bool open = false, waits = false;

    for (uint32_t i = 0; i < count; i++) {
        if (calls[i].waits)
            dial(&calls[i], kind);
        fds[i] = (struct pollfd){.fd = calls[i].fd < 0 ? -1 : calls[i].fd, .events = POLLIN};
        open = open || calls[i].fd >= 0 || calls[i].waits;
        waits = waits || calls[i].waits;
    }
    if (!open || now >= until_ns)
        return false;
    int left_ms = (int)((until_ns - now + 999999) / 1000000);
    poll(fds, count, waits && left_ms > RETRY_MS ? RETRY_MS : left_ms);
    for (uint32_t i = 0; i < count; i++)
        if (fds[i].revents)
            listen_to(&calls[i], kind);
    return true;
}

static void ask_some(struct vb_asked *asked, const struct vb_inspect_name *names, uint32_t count,
                     const char *kind, uint64_t timeout_ns)
{
    struct call calls[AT_A_TIME] = {0};
    uint64_t until_ns = vb_clock_ns() + timeout_ns;

    for (uint32_t i = 0; i < count; i++) {
        asked[i] = (struct vb_asked){.pid = (pid_t)names[i].pid, .number = names[i].number};
        calls[i] = (struct call){.fd = -1, .asked = &asked[i], .name = &names[i]};
        dial(&calls[i], kind);
    }
    while (wait_for(calls, count, kind, vb_clock_ns(), until_ns))
        continue;
    for (uint32_t i = 0; i < count; i++)
        if (calls[i].fd >= 0 || calls[i].waits)
            end_call(&calls[i], calls[i].waits ? VB_ASKED_BUSY : VB_ASKED_SILENT);
}

// Keeps the names of one process only.
static uint32_t choose(struct vb_inspect_name *names, uint32_t count, long pid)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (pid == 0 || names[i].pid == pid)
            names[kept++] = names[i];
    return kept;
}

static int ask_dir(struct vb_survey *s, const char *dir, const char *kind, long pid,
                   uint64_t timeout_ns)
{
    struct vb_inspect_name *names;
    uint32_t count;
    int err = vb_inspect_list(dir, &names, &count);

    if (err == -ENOMEM)
        return err;
    if (err) {
        snprintf(s->trouble, sizeof s->trouble, "%.80s: %s", dir, strerror(-err));
        return 0;
    }
    count = choose(names, count, pid);
    struct vb_asked *more = realloc(s->nic, (s->nics + count + 1) * sizeof *more);
    if (more)
        s->nic = more;
    for (uint32_t done = 0; more && done < count; done += AT_A_TIME) {
        uint32_t some = count - done < AT_A_TIME ? count - done : AT_A_TIME;
        ask_some(s->nic + s->nics, names + done, some, kind, timeout_ns);
        s->nics += some;
    }
    free(names);
    return more ? 0 : -ENOMEM;
}

int vb_survey_take(struct vb_survey *survey, const char *kind, long pid, uint64_t timeout_ns)
{
    char dirs[VB_INSPECT_DIRS][VB_INSPECT_PATH];
    uint32_t count = vb_inspect_dirs(dirs);
    int err = 0;

    *survey = (struct vb_survey){0};
    for (uint32_t i = 0; i < count && !err; i++)
        err = ask_dir(survey, dirs[i], kind, pid, timeout_ns);
    if (err)
        vb_survey_free(survey);
    return err;
}

void vb_survey_free(struct vb_survey *survey)
{
    for (uint32_t i = 0; i < survey->nics; i++)
        vb_report_free(&survey->nic[i].report);
    free(survey->nic);
    *survey = (struct vb_survey){0};
}
