// SPDX-License-Identifier: Apache-2.0
// NICs that are asked about themselves: what they say is so, nobody who asks can hurt them, and
// nothing is left behind.
#include "../wait.h"
#include "duo.h"
#include "host/inspect.h"
#include "host/inspect_ask.h"
#include "pair.h"
#include "port/inspect_place.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ASKERS = 1000,
    ROUNDS = 200,
    MANY = 300,     // objects: more than are looked at in one go
    LOOKS_MAX = 50, // of a helper that tries thrice more to accept
};

static const uint64_t patience_ns = DUO_PATIENCE_S * UINT64_C(1000000000);

static const char *dir_name(void)
{
    return getenv("VERBENA_RUNTIME_DIR");
}

static unsigned files(void)
{
    DIR *list = opendir(dir_name());
    const struct dirent *entry;
    unsigned count = 0;
    while (list && (entry = readdir(list)))
        count += strstr(entry->d_name, "inspect") != NULL;
    if (list)
        closedir(list);
    return count;
}

static void ask(struct vb_survey *s, const char *kind)
{
    assert_int_equal(vb_survey_take(s, kind, 0, patience_ns), 0);
    assert_string_equal(s->trouble, "");
}

static const struct vb_report *asked(const struct vb_survey *s, uint32_t i)
{
    assert_true(i < s->nics);
    assert_int_equal(s->nic[i].outcome, VB_ASKED_OK);
    return &s->nic[i].report;
}

static uint64_t number(const struct vb_record *r, const char *key)
{
    const char *value = vb_record_get(r, key);
    if (!value)
        fail_msg("no %s", key);
    return strtoull(value, NULL, 0);
}

static void assert_word(const struct vb_record *r, const char *key, const char *wanted)
{
    const char *value = vb_record_get(r, key);
    assert_non_null(value);
    assert_string_equal(value, wanted);
}

static const struct vb_record *find(const struct vb_report *r, const char *key, uint64_t wanted)
{
    for (uint32_t i = 0; i < r->records; i++)
        if (number(&r->record[i], key) == wanted)
            return &r->record[i];
    fail_msg("no %s %llu", key, (unsigned long long)wanted);
    return NULL;
}

static void connect_and_write(const struct duo *d, struct vb_qp *qp[2])
{
    duo_connect(d, VB_SERVICE_RC, qp);
    duo_post(d, qp[0], duo_wr(d, VB_WR_WRITE, 1), 0, 64);
    duo_expect(d->end[0].cq, 1, VB_WC_OK);
}

// ---- what they say

static void test_links(void **state)
{
    struct duo_state *s = *state;
    struct vb_survey survey;
    char pid[16], text[16];
    struct duo d;
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    duo_open(&d, s);
    ask(&survey, "nic");
    assert_int_equal(survey.nics, 2);
    for (unsigned i = 0; i < 2; i++) {
        const struct vb_record *nic = &asked(&survey, i)->nic;
        assert_int_equal(survey.nic[i].pid, getpid());
        assert_int_equal(survey.nic[i].report.records, 0);
        snprintf(text, sizeof text, "verbena%u", i);
        assert_word(nic, "ifname", text);
        assert_word(nic, "port", "1");
        assert_word(nic, "state", "ACTIVE");
        assert_word(nic, "physical_state", "LINK_UP");
        assert_word(nic, "netdev", "lo");
        assert_word(nic, "type", s->way);
        assert_word(nic, "mtu", "4096");
        assert_word(nic, "faults", "off");
        assert_word(nic, "pid", pid);
        assert_word(nic, "comm", "test_inspect");
        pair_address(i, text);
        assert_word(nic, "addr", text);
    }
    vb_survey_free(&survey);
    duo_close(&d);
    ask(&survey, "nic");
    assert_int_equal(survey.nics, 0);
    vb_survey_free(&survey);
    assert_int_equal(files(), 0);
}

static void check_qps(const struct duo *d, struct vb_qp *const qp[2])
{
    struct vb_survey survey;
    struct vb_qp *idle = duo_make_qp(&d->end[0], (struct vb_qp_opts){.service = VB_SERVICE_UD});
    ask(&survey, "qp");
    const struct vb_report *here = asked(&survey, 0), *there = asked(&survey, 1);
    assert_int_equal(here->records, 2);
    assert_int_equal(there->records, 1);
    const struct vb_record *r = find(here, "lqpn", vb_qp_num(qp[0]));
    assert_int_equal(number(r, "rqpn"), vb_qp_num(qp[1]));
    assert_word(r, "type", "RC");
    assert_word(r, "state", "RTS");
    assert_word(r, "path-mig-state", "MIGRATED");
    assert_word(r, "raddr", vb_record_get(&there->nic, "addr"));
    // One packet went this way, and none that way.
    const struct vb_record *other = find(there, "lqpn", vb_qp_num(qp[1]));
    assert_int_equal(number(r, "sq-psn"), number(other, "rq-psn"));
    assert_int_equal(number(r, "rq-psn"), number(other, "sq-psn"));
    r = find(here, "lqpn", vb_qp_num(idle));
    assert_word(r, "type", "UD");
    assert_word(r, "state", "RESET");
    assert_null(vb_record_get(r, "rqpn"));
    assert_null(vb_record_get(r, "raddr"));
    vb_survey_free(&survey);
    assert_int_equal(vb_qp_destroy(idle), 0);
}

static void check_counters(const struct duo *d, struct vb_qp *const qp[2])
{
    struct vb_survey survey;
    const char *name;
    uint64_t value;
    ask(&survey, "stat");
    const struct vb_report *here = asked(&survey, 0);
    assert_int_equal(here->records, 1);
    for (unsigned i = 0; (name = vb_nic_counter_name(i)); i++)
        assert_int_equal(number(&here->record[0], name), duo_counter(d->end[0].nic, name));
    vb_survey_free(&survey);
    ask(&survey, "qpstat");
    const struct vb_record *r = find(asked(&survey, 1), "lqpn", vb_qp_num(qp[1]));
    for (unsigned i = 0; (name = vb_qp_counter_name(i)); i++) {
        assert_int_equal(vb_qp_counter(qp[1], name, &value), 0);
        assert_int_equal(number(r, name), value);
    }
    assert_int_equal(number(r, "rx_write_requests"), 1);
    vb_survey_free(&survey);
}

static void check_queues(const struct duo *d)
{
    struct vb_survey survey;
    struct vb_srq *srq;
    assert_int_equal(
        vb_srq_create(d->end[0].pd, &(struct vb_srq_opts){.depth = 16, .sge = 1}, &srq), 0);
    ask(&survey, "cq");
    const struct vb_record *r = find(asked(&survey, 0), "cqn", vb_cq_num(d->end[0].cq));
    assert_int_equal(number(r, "cqe"), 64);
    assert_int_equal(number(r, "users"), 2);
    assert_int_equal(number(r, "produced"), 1);
    vb_survey_free(&survey);
    ask(&survey, "srq");
    assert_int_equal(asked(&survey, 1)->records, 0);
    r = find(asked(&survey, 0), "srqn", vb_srq_num(srq));
    assert_word(r, "type", "BASIC");
    assert_true(number(r, "wr") >= 16);
    assert_int_equal(number(r, "users"), 0);
    vb_survey_free(&survey);
    assert_int_equal(vb_srq_destroy(srq), 0);
}

static void check_memory(const struct duo *d)
{
    struct vb_survey survey;
    uint32_t key = vb_mr_key(d->end[0].mr);
    ask(&survey, "mr");
    const struct vb_record *r = find(asked(&survey, 0), "rkey", key);
    assert_int_equal(number(r, "mrlen"), DUO_BYTES);
    assert_int_equal(number(r, "iova"), (uintptr_t)d->end[0].memory);
    assert_int_equal(number(r, "mrn"), key >> 8);
    assert_word(r, "kind", "region");
    vb_survey_free(&survey);
    ask(&survey, "pd");
    assert_int_equal(asked(&survey, 0)->records, 1);
    assert_int_equal(number(&survey.nic[0].report.record[0], "users"), 2); // region, queue pair
    vb_survey_free(&survey);
    ask(&survey, "res");
    r = &asked(&survey, 0)->record[0];
    static const char *const ones[] = {"pd", "cq", "qp", "mr"};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(number(r, ones[i]), 1);
    assert_int_equal(number(r, "srq"), 0);
    assert_int_equal(number(r, "mw"), 0);
    vb_survey_free(&survey);
}

static void test_objects(void **state)
{
    struct vb_qp *qp[2];
    struct duo d;
    duo_open(&d, *state);
    connect_and_write(&d, qp);
    check_qps(&d, qp);
    check_counters(&d, qp);
    check_queues(&d);
    check_memory(&d);
    duo_close(&d);
}

// More than one go.
static void test_many(void **state)
{
    static const char *const kinds[] = {"qp", "qpstat", "mr", "pd", "cq"};
    struct vb_nic *nic = duo_open_nic(0, "udp");
    struct vb_survey survey;
    struct vb_pd *pd[MANY];
    struct vb_cq *cq[MANY];
    struct vb_qp *qp;
    struct vb_mr *mr;
    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(vb_pd_alloc(nic, &pd[i]), 0);
        assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 4}, &cq[i]), 0);
        const struct vb_qp_opts opts = {
            .send_cq = cq[i], .recv_cq = cq[i], .send_depth = 2, .recv_depth = 2};
        assert_int_equal(vb_qp_create(pd[i], &opts, &qp), 0);
        assert_int_equal(vb_mr_reg(pd[i], pd, sizeof pd, 0, &mr), 0);
    }
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ask(&survey, kinds[i]);
        assert_int_equal(asked(&survey, 0)->records, MANY);
        vb_survey_free(&survey);
    }
    vb_nic_close(nic);
}

// ---- whether they may be asked

static void test_switched_off(void **state)
{
    char text[16], why[VB_ERROR_TEXT];
    struct vb_nic_opts opts = {.address = text, .port = "udp", .faults = "off", .error_text = why};
    struct vb_nic *nic;
    (void)state;
    pair_address(0, text);
    opts.no_inspect = true;
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(files(), 0);
    vb_nic_close(nic);
    opts.no_inspect = false;
    setenv("VERBENA_INSPECT", "0", 1);
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(files(), 0);
    vb_nic_close(nic);
    setenv("VERBENA_INSPECT", "perhaps", 1);
    assert_int_equal(vb_nic_open(&opts, &nic), -EINVAL);
    assert_non_null(strstr(why, "VERBENA_INSPECT is 'perhaps'"));
    setenv("VERBENA_INSPECT", "1", 1);
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(files(), 1);
    vb_nic_close(nic);
    unsetenv("VERBENA_INSPECT");
    assert_int_equal(files(), 0);
}

// A directory that others can write to: the NIC works, but nobody finds it there.
static void test_unsafe_directory(void **state)
{
    struct vb_survey survey;
    (void)state;
    assert_int_equal(chmod(dir_name(), 0777), 0);
    struct vb_nic *nic = duo_open_nic(0, "udp");
    assert_int_equal(files(), 0);
    assert_int_equal(vb_survey_take(&survey, "nic", 0, patience_ns), 0);
    assert_int_equal(survey.nics, 0);
    assert_non_null(strstr(survey.trouble, dir_name()));
    vb_survey_free(&survey);
    vb_nic_close(nic);
    assert_int_equal(chmod(dir_name(), 0700), 0);
}

static void test_only_ours(void **state)
{
    struct vb_inspect_name *names;
    struct stat st;
    uint32_t count;
    struct vb_nic *nic = duo_open_nic(0, "udp");
    (void)state;
    assert_int_equal(vb_inspect_list(dir_name(), &names, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(names[0].pid, getpid());
    assert_int_equal(names[0].number, 0);
    assert_int_equal(stat(names[0].path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    free(names);
    vb_nic_close(nic);
}

// ---- what is left behind

static void leave(const char *name, bool listens)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/%s", dir_name(), name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    if (listens)
        assert_int_equal(listen(fd, 1), 0);
    close(fd);
}

static bool is_there(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir_name(), name);
    return access(path, F_OK) == 0;
}

static void test_left_over(void **state)
{
    static const char *const others[] = {"inspect-12x-0", "inspect-012-0", "inspect-12-0.bak",
                                         "inspect--1-0"};
    char path[256], own[64];
    struct vb_survey survey;
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        leave(others[i], false); // not names of ours
    leave("inspect-1-0", true);  // a process that lives, but does not listen there
    ask(&survey, "nic");
    assert_int_equal(survey.nics, 1);
    assert_int_equal(survey.nic[0].outcome, VB_ASKED_GONE);
    vb_survey_free(&survey);
    assert_false(is_there("inspect-1-0"));
    // Who opens sweeps dead processes' names, and takes that of one with its own number.
    snprintf(own, sizeof own, "inspect-%ld-0", (long)getpid());
    leave("inspect-99999999-3", true);
    leave(own, true);
    struct vb_nic *nic = duo_open_nic(0, "udp");
    assert_false(is_there("inspect-99999999-3"));
    ask(&survey, "nic");
    assert_int_equal(survey.nics, 1);
    assert_word(&asked(&survey, 0)->nic, "ifname", "verbena0");
    vb_survey_free(&survey);
    vb_nic_close(nic);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(is_there(others[i]));
        snprintf(path, sizeof path, "%s/%s", dir_name(), others[i]);
        unlink(path);
    }
    assert_int_equal(files(), 0);
}

// A child that lives on neither answers for its parent nor takes its name away.
static void test_fork(void **state)
{
    int down[2];
    char one;
    struct vb_survey survey;
    struct vb_nic *nic = duo_open_nic(0, "udp");
    (void)state;
    assert_int_equal(pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(down[1]);
        if (DUO_CHILD_IS_FREE)
            vb_nic_close(nic);
        _exit(read(down[0], &one, 1) == 0 ? 0 : 1);
    }
    close(down[0]);
    ask(&survey, "nic");
    assert_int_equal(survey.nics, 1);
    assert_int_equal(number(&asked(&survey, 0)->nic, "pid"), (uint64_t)getpid());
    vb_survey_free(&survey);
    vb_nic_close(nic);
    ask(&survey, "nic");
    assert_int_equal(survey.nics, 0);
    vb_survey_free(&survey);
    close(down[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

// ---- who asks in bad faith

static int call_first(void)
{
    struct vb_inspect_name *names;
    uint32_t count;
    pid_t pid;
    assert_int_equal(vb_inspect_list(dir_name(), &names, &count), 0);
    assert_true(count > 0);
    int fd = vb_inspect_call(&names[0], &pid);
    free(names);
    return fd;
}

// Reads until the end; the number of bytes.
static size_t drain(int fd, char *text, size_t room)
{
    size_t len = 0;
    while (len + 1 < room && duo_is_readable(fd, 20000)) {
        ssize_t n = recv(fd, text + len, room - len - 1, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    text[len] = '\0';
    close(fd);
    return len;
}

static void test_garbage(void **state)
{
    static const char *const questions[] = {
        "\n",
        "hello\n",
        "verbena-inspect 1 \n",
        "verbena-inspect 1 qp \n",
        "verbena-inspect 1 qpx\n",
        "verbena-inspect 2 qp\n",
        "verbena-inspect 1 qp\r\n",
        "verbena-inspect 1 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    };
    char text[4096];
    struct vb_survey survey;
    struct vb_nic *nic = duo_open_nic(0, "udp");
    (void)state;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        int fd = call_first();
        assert_true(fd >= 0);
        size_t len = strlen(questions[i]);
        assert_int_equal(send(fd, questions[i], len, MSG_NOSIGNAL), len);
        drain(fd, text, sizeof text);
        assert_string_equal(text, VB_INSPECT_GREETING "error question\n");
    }
    // Byte by byte is as good as at once, and what follows the line is ignored.
    int fd = call_first();
    for (const char *c = "verbena-inspect 1 nic\n"; *c; c++)
        assert_int_equal(send(fd, c, 1, MSG_NOSIGNAL), 1);
    drain(fd, text, sizeof text);
    assert_non_null(strstr(text, "\nend 0\n"));
    ask(&survey, "qp");
    asked(&survey, 0);
    vb_survey_free(&survey);
    vb_nic_close(nic);
}

// Who asks and does not read, who says nothing, and a thousand of each.
static void test_crowd(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_survey survey;
    int fds[ASKERS];
    unsigned open = 0, refused = 0;
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    for (unsigned i = 0; i < ASKERS; i++) {
        int fd = call_first();
        if (fd < 0) {
            refused++;
            continue;
        }
        if (i % 2)
            (void)!send(fd, "verbena-inspect 1 stat\n", 23, MSG_NOSIGNAL);
        fds[open++] = fd;
    }
    assert_true(refused > 0); // the queue is short
    for (unsigned i = 1; i <= ROUNDS; i++) {
        duo_post(&d, qp[0], duo_wr(&d, VB_WR_WRITE, i), 0, 64);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
    }
    // They have a second each, four at a time: then there is time for others.
    ask(&survey, "qp");
    asked(&survey, 0);
    vb_survey_free(&survey);
    while (open)
        close(fds[--open]);
    duo_close(&d);
}

static atomic_uint refused, looks; // connections without a descriptor; waits of the helper

int accept4(int listener, struct sockaddr *from, socklen_t *len, int flags)
{
    int fd = (int)syscall(SYS_accept4, listener, from, len, flags);

    if (fd < 0 && errno == EMFILE)
        atomic_fetch_add(&refused, 1);
    return fd;
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    struct timespec left = timeout ? *timeout : (struct timespec){0}; // which the kernel changes

    atomic_fetch_add(&looks, 1);
    return (int)syscall(SYS_ppoll, fds, count, timeout ? &left : NULL, mask, _NSIG / 8);
}

// Without a descriptor for who asks: the NIC goes on, and does not spin.
static void test_no_descriptors(void **state)
{
    struct rlimit before, none;
    struct vb_survey survey;
    struct vb_nic *nic = duo_open_nic(0, "udp");
    (void)state;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/inspect-%ld-0", dir_name(), (long)getpid());
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = (rlim_t)fd + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    WAIT_UNTIL(atomic_load(&refused) >= 1);
    uint64_t before_ns = duo_now_ns();
    unsigned before_looks = atomic_load(&looks), seen = atomic_load(&refused);
    WAIT_UNTIL(atomic_load(&refused) >= seen + 3); // a tenth of a second lies between two
    assert_true(duo_now_ns() - before_ns > 190000000);
    assert_in_range(atomic_load(&looks) - before_looks, 3, LOOKS_MAX);
    setrlimit(RLIMIT_NOFILE, &before);
    close(fd);
    ask(&survey, "nic");
    asked(&survey, 0);
    vb_survey_free(&survey);
    vb_nic_close(nic);
}

// ---- who answers in bad faith

struct liar {
    int listener;
    const char *text; // sent for ever if it has no end
    atomic_bool stop;
    pthread_t thread;
};

static void *lie(void *arg)
{
    struct liar *l = arg;
    int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    char block[4096];
    memset(block, 'x', sizeof block);
    // Who hangs up on a question that it has not read is gone, whatever it said.
    if (fd >= 0 && l->text && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1) == 1)
        (void)!recv(fd, block, sizeof block, 0);
    if (fd >= 0 && l->text)
        (void)!send(fd, l->text, strlen(l->text), MSG_NOSIGNAL);
    while (fd >= 0 && !l->text && !atomic_load(&l->stop))
        if (send(fd, block, sizeof block, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            break;
    if (fd >= 0)
        close(fd);
    return NULL;
}

static enum vb_asked_outcome outcome_with(const char *text, bool serves)
{
    struct liar l = {.text = text};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct vb_survey survey;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/inspect-%ld-9", dir_name(), (long)getpid());
    l.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l.listener, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(l.listener, 4), 0);
    if (serves)
        pthread_create(&l.thread, NULL, lie, &l);
    uint64_t limit_ns = serves ? patience_ns : 300000000;
    assert_int_equal(vb_survey_take(&survey, "nic", 0, limit_ns), 0);
    assert_int_equal(survey.nics, 1);
    enum vb_asked_outcome outcome = survey.nic[0].outcome;
    vb_survey_free(&survey);
    atomic_store(&l.stop, true);
    if (serves)
        pthread_join(l.thread, NULL);
    close(l.listener);
    unlink(at.sun_path);
    return outcome;
}

static void test_liars(void **state)
{
    (void)state;
    assert_int_equal(outcome_with(NULL, false), VB_ASKED_SILENT); // as one that is stopped
    assert_int_equal(outcome_with("nonsense\n", true), VB_ASKED_GARBLED);
    assert_int_equal(outcome_with(VB_INSPECT_GREETING "nic\nnic a b\nend 1\n", true),
                     VB_ASKED_GARBLED);
    assert_int_equal(outcome_with(VB_INSPECT_GREETING "nic\nnic a b\nend 0\n", true), VB_ASKED_OK);
    assert_int_equal(outcome_with("", true), VB_ASKED_GONE);
    assert_int_equal(outcome_with(NULL, true), VB_ASKED_GARBLED); // longer than any answer
}

// ---- while the application works

struct worker {
    const struct duo *d;
    struct vb_qp *qp;
    atomic_bool stop;
    int line;
};

// Polls without a pause, makes and destroys objects.
static void *work(void *arg)
{
    struct worker *w = arg;
    for (uint64_t i = 1; !atomic_load(&w->stop); i++) {
        struct vb_mr *mr;
        struct vb_pd *pd;
        struct vb_cq *cq;
        struct vb_send_wr wr = duo_wr(w->d, VB_WR_WRITE, i);
        struct vb_sge sge = {(uintptr_t)w->d->end[0].memory, 64, vb_mr_key(w->d->end[0].mr)};
        wr.sge = &sge;
        wr.num_sge = 1;
        DUO_CHECK(w, vb_post_send(w->qp, &wr, 1) == 1);
        DUO_CHECK(w, duo_wait_ok(w->d->end[0].cq, i));
        DUO_CHECK(w, vb_pd_alloc(w->d->end[0].nic, &pd) == 0);
        DUO_CHECK(w, vb_mr_reg(pd, w->d->end[0].memory, 64, 0, &mr) == 0);
        DUO_CHECK(w, vb_cq_create(w->d->end[0].nic, &(struct vb_cq_opts){.entries = 8}, &cq) == 0);
        DUO_CHECK(w, vb_cq_resize(cq, 16) == 0);
        DUO_CHECK(w, vb_cq_destroy(cq) == 0);
        DUO_CHECK(w, vb_mr_dereg(mr) == 0);
        DUO_CHECK(w, vb_pd_free(pd) == 0);
    }
    return NULL;
}

static void test_at_work(void **state)
{
    static const char *const kinds[] = {"nic", "res", "stat", "qpstat", "qp",
                                        "cq",  "mr",  "pd",   "srq"};
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_survey survey;
    pthread_t thread;
    duo_open(&d, *state);
    duo_connect(&d, VB_SERVICE_RC, qp);
    struct worker w = {.d = &d, .qp = qp[0]};
    pthread_create(&thread, NULL, work, &w);
    for (unsigned i = 0; i < 45; i++) {
        ask(&survey, kinds[i % 9]);
        assert_int_equal(survey.nics, 2);
        for (unsigned k = 0; k < 2; k++)
            asked(&survey, k);
        vb_survey_free(&survey);
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(w.line, 0);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_links),
        DUO_TEST(test_objects, "udp"),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_switched_off),
        cmocka_unit_test(test_unsafe_directory),
        cmocka_unit_test(test_only_ours),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_garbage),
        DUO_TEST(test_crowd, "udp"),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_liars),
        DUO_TEST(test_at_work, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
