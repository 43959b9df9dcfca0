// SPDX-License-Identifier: Apache-2.0
// Where parts of the hull meet: services with queues by hand, copied memory, metrics and sessions
// that are told of; and what one user can take away from others without being charged for it.
#include "duo.h"
#include "flavour.h"
#include "service_kit.h"
#include "skips.h"

#include "../wait.h"
#include "host/attach.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PAGE = 4096,
    MARK = 0x5a,
    GIVEN_MAX = (4 << 20) + (64 << 10), // in a turn: four small pieces, and some pages of its own
    UNTRACED = 77,                      // exit status of a process that may not be traced
};

static const uint64_t patience_ns = DUO_PATIENCE_S * UINT64_C(1000000000);

// ---- services

static struct vb_qp *make_qp(const struct service_app *a)
{
    const struct vb_qp_opts opts = {.send_cq = a->cq,
                                    .recv_cq = a->cq,
                                    .send_depth = SERVICE_DEPTH,
                                    .recv_depth = SERVICE_DEPTH};
    struct vb_qp *qp;

    assert_int_equal(vb_qp_create(a->pd, &opts, &qp), 0);
    return qp;
}

// The register's place is the next process's: it may be a ring there, in which nobody else writes.
static void test_registers_go_with_their_process(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    struct vb_raw_cq cq;
    struct vb_raw_qp qp, more[4];

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_cq_share(a.cq, &cq), 0);
    assert_int_equal(vb_qp_share(a.qp[0], &qp), 0);
    service_change(&a, hull);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(vb_qp_share(make_qp(&a), &more[i]), 0);
        memset((uint8_t *)more[i].send + VB_RAW_ARM_OFFSET, MARK, 8);
        memset((uint8_t *)more[i].recv + VB_RAW_ARM_OFFSET, MARK, 8);
        memset((uint8_t *)more[i].bell + VB_RAW_ARM_OFFSET, MARK, 8);
    }
    for (uint64_t n = 1; n <= 50; n++) {
        service_read(&a, a.qp[0], n);
        duo_expect(a.cq, n, VB_WC_OK);
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(((uint8_t *)more[i].send)[VB_RAW_ARM_OFFSET], MARK);
        assert_int_equal(((uint8_t *)more[i].recv)[VB_RAW_ARM_OFFSET], MARK);
        assert_int_equal(((uint8_t *)more[i].bell)[VB_RAW_ARM_OFFSET], MARK);
    }
    service_end(&a, hull);
}

// Asking for an event is the last thing that it does: somebody hears of it.
static void test_the_last_word_in_a_register_counts(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    struct vb_raw_cq raw;
    struct vb_cq *told;

    (void)state;
    service_make(&a, hull, false);
    for (unsigned round = 0; round < 2; round++) { // shared again, it is looked at again
        assert_int_equal(vb_cq_share(a.cq, &raw), 0);
        const uint32_t word[2] = {htobe32(round), htobe32(raw.cqn)};
        uint64_t both;
        memcpy(&both, word, sizeof both);
        __atomic_store_n((uint64_t *)(void *)((uint8_t *)raw.bell + VB_RAW_ARM_OFFSET), both,
                         __ATOMIC_RELEASE);
        service_change(&a, hull);
        service_read(&a, a.qp[0], round);
        duo_expect(a.cq, round, VB_WC_OK);
        int err;
        WAIT_UNTIL((err = vb_channel_take(a.channel, &told)) != -EAGAIN);
        assert_int_equal(err, 0);
        assert_ptr_equal(told, a.cq);
    }
    service_end(&a, hull);
}

static int greet(const struct vb_hull *hull)
{
    struct vb_hull_request hello = hull_kit_hello();
    struct vb_hull_reply reply;
    int socket = hull_kit_connect(hull);

    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    return socket;
}

// What is of one process is no service's, in whatever order it asks.
static void test_who_copies_is_no_service(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\ncopy = yes\n");
    volatile uint64_t word = 0x1122334455667788;
    struct vb_hull_request copy = {.op = VB_HULL_COPY_BEGIN,
                                   .proof = {.at = (uintptr_t)&word, .word = word}};
    struct vb_hull_request name = {.op = VB_HULL_SERVICE, .memory = {.name = "late"}};
    struct vb_hull_reply reply;

    (void)state;
    int socket = greet(hull);
    assert_int_equal(hull_kit_ask(socket, &name, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &copy, &reply), -EOPNOTSUPP);
    close(socket);
    socket = greet(hull);
    assert_int_equal(hull_kit_ask(socket, &copy, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &name, &reply), -EINVAL);
    close(socket);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_services_have_no_ports(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_hull_request name = {.op = VB_HULL_SERVICE, .memory = {.name = "ports"}};
    struct vb_hull_request port = {.op = VB_HULL_PORT_TAKE, .number = 7471};
    struct vb_hull_reply reply;

    (void)state;
    int socket = greet(hull), other = greet(hull);
    assert_int_equal(hull_kit_ask(socket, &name, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &port, &reply), -EOPNOTSUPP);
    assert_int_equal(hull_kit_ask(other, &port, &reply), 0);
    close(socket);
    close(other);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_detached_services_are_no_applications(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_metrics *m = malloc(sizeof *m);
    struct service_app a;

    (void)state;
    assert_non_null(m);
    service_make(&a, hull, false);
    assert_int_equal(vb_metrics_take(hull, patience_ns, m), 0);
    assert_int_equal(m->applications, 1);
    service_leave(&a, hull);
    assert_int_equal(vb_metrics_take(hull, patience_ns, m), 0);
    assert_int_equal(m->applications, 0);
    assert_int_equal(m->tenants, 1);
    assert_int_equal(m->tenant[0].used.applications, 1); // but it is charged for it
    service_find(&a, hull);
    free(m);
    service_end(&a, hull);
}

// ---- what is told

static void expect_told(struct vb_hull *hull, const char *words, bool there)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    vb_hull_tell(hull, "session", out);
    fclose(out);
    if (!strstr(text, words) == there)
        fail_msg("'%s' in: %s", words, text);
    free(text);
}

static void test_a_session_has_the_name_of_who_is_attached(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    char before[16];

    (void)state;
    prctl(PR_GET_NAME, before);
    prctl(PR_SET_NAME, "first");
    service_make(&a, hull, false);
    service_leave(&a, hull);
    expect_told(hull, " name first ", true);
    prctl(PR_SET_NAME, "second");
    service_find(&a, hull);
    prctl(PR_SET_NAME, before);
    hull_kit_wait(hull, 1);
    expect_told(hull, " name first ", false);
    expect_told(hull, " name second ", true);
    service_end(&a, hull);
}

// ---- what is everybody's

// Seats are few: who has many leaves the last ones to others.
static void test_seats_are_left_for_others(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_hull_request take = {.op = VB_HULL_SEAT_TAKE};
    struct vb_hull_reply reply;
    int socket[VB_HULL_SEATS];
    uint32_t taken = 0;

    (void)state;
    for (uint32_t i = 0; i < VB_HULL_SEATS; i++) {
        socket[i] = greet(hull);
        int err = hull_kit_ask(socket[i], &take, &reply);
        if (err)
            assert_int_equal(err, -EDQUOT);
        taken += !err;
    }
    assert_in_range(taken, VB_HULL_SEATS / 2, VB_HULL_SEATS - 1);
    close(socket[0]); // his seat is to be had again
    hull_kit_wait(hull, VB_HULL_SEATS - 1);
    assert_int_equal(hull_kit_ask(socket[VB_HULL_SEATS - 1], &take, &reply), 0);
    assert_int_equal(hull_kit_ask(socket[VB_HULL_SEATS - 2], &take, &reply), -EDQUOT);
    for (uint32_t i = 1; i < VB_HULL_SEATS; i++)
        close(socket[i]);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// Each costs the hull a look in every turn, whoever of a user's applications has it.
static void test_queues_by_hand_are_counted_by_user(void **state)
{
    enum {
        NICS = 6,
        CQS = 60
    };
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic[NICS];
    struct vb_raw_cq raw;
    uint32_t shared = 0;

    (void)state;
    for (unsigned i = 0; i < NICS; i++) {
        nic[i] = hull_kit_attach(hull);
        for (unsigned j = 0; j < CQS; j++) {
            struct vb_cq *cq;
            assert_int_equal(vb_cq_create(nic[i], &(struct vb_cq_opts){.entries = 4}, &cq), 0);
            int err = vb_cq_share(cq, &raw);
            if (err)
                assert_int_equal(err, -ENOSPC);
            shared += !err;
        }
    }
    assert_int_equal(shared, VB_HULL_WATCHES);
    vb_nic_close(nic[0]); // who goes gives his back
    hull_kit_wait(hull, NICS - 1);
    struct vb_cq *cq;
    assert_int_equal(vb_cq_create(nic[NICS - 1], &(struct vb_cq_opts){.entries = 4}, &cq), 0);
    assert_int_equal(vb_cq_share(cq, &raw), 0);
    for (unsigned i = 1; i < NICS; i++)
        vb_nic_close(nic[i]);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// A program that has a register goes on using it, whatever became of the hull since.
static void test_a_refusal_leaves_the_register(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct service_app a;
    struct vb_raw_cq cq;
    struct vb_raw_qp qp;

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_cq_share(a.cq, &cq), 0);
    assert_int_equal(vb_qp_share(a.qp[0], &qp), 0);
    const void *bells[2] = {cq.bell, qp.bell};
    assert_int_equal(vb_cq_share(a.cq, &cq), 0); // it is asked for twice, and the same
    assert_int_equal(vb_qp_share(a.qp[0], &qp), 0);
    assert_true(cq.bell == bells[0] && qp.bell == bells[1]);
    vb_hull_close(hull);
    assert_int_equal(vb_cq_share(a.cq, &cq), -ENOTCONN);
    assert_int_equal(vb_qp_share(a.qp[0], &qp), -ENOTCONN);
    struct vb_raw_qp other;
    assert_int_equal(vb_qp_share(a.qp[1], &other), -ENOTCONN); // nor does that one keep one
    assert_null(a.qp[1]->share.bell);
    for (unsigned i = 0; i < 4; i++) {
        const uint8_t *room = vb_attach_take(a.nic->attach, VB_RAW_REGISTER_BYTES);
        assert_non_null(room);
        assert_true(room != bells[0] && room != bells[1]);
    }
    vb_nic_close(a.nic);
}

// ---- time

static uint32_t ask_still(struct vb_hull *hull, int socket, const struct vb_hull_request *request,
                          int fds[VB_HULL_FDS])
{
    struct vb_hull_reply reply;

    assert_int_equal(vb_contract_send(socket, request, sizeof *request, 0, NULL, 0), 0);
    for (unsigned i = 0; i < 3; i++) // one accepts
        vb_hull_turn(hull);
    assert_int_equal(vb_contract_receive(socket, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(reply.error, 0);
    return reply.number;
}

// Writes to all pages.
static void fill(int fd, uint64_t bytes)
{
    uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    for (uint64_t i = 0; i < bytes; i += PAGE)
        at[i] = 1;
    munmap(at, bytes);
}

// What the hull's thread gives back to the system itself in a turn: the bytes of what it closes and
// unmaps. The C library's calls are replaced.
static _Thread_local struct {
    bool watched;
    uint64_t bytes;
} given_back;

static void note_bytes(uint64_t bytes)
{
    if (given_back.watched)
        given_back.bytes += bytes;
}

int close(int fd)
{
    struct stat file;

    if (fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode))
        note_bytes((uint64_t)file.st_size);
    return (int)syscall(SYS_close, fd);
}

int munmap(void *at, size_t bytes)
{
    note_bytes(bytes);
    return (int)syscall(SYS_munmap, at, bytes);
}

static uint64_t turn_and_count(struct vb_hull *hull)
{
    given_back.bytes = 0;
    given_back.watched = true;
    vb_hull_turn(hull);
    given_back.watched = false;
    return given_back.bytes;
}

// An application leaves with so many pieces of memory: the hull's thread gives back
// hardly any of it.
static void leave_with(unsigned pieces, uint64_t bytes)
{
    const struct vb_hull_request hello = hull_kit_hello();
    const struct vb_hull_request memory = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = bytes}};
    struct vb_hull *hull = hull_kit_open_still(0);
    int fds[VB_HULL_FDS], socket = hull_kit_connect(hull);

    ask_still(hull, socket, &hello, fds);
    close(fds[0]);
    close(fds[1]);
    for (unsigned i = 0; i < pieces; i++) {
        ask_still(hull, socket, &memory, fds);
        fill(fds[0], bytes);
        close(fds[0]);
    }
    close(socket);
    assert_true(turn_and_count(hull) <= GIVEN_MAX);
    assert_true(vb_fifo_empty(&hull->clients));
    vb_hull_close(hull);
}

// Pages go back to the system at a tenth of a second for a gigabyte, but nobody else waits for it.
static void test_much_memory_goes_by_itself(void **state)
{
    (void)state;
    leave_with(1, 256 << 20);
    leave_with(256, 1 << 20);
}

// An application with so many regions, of a hull without a thread; its socket.
static int attach_with(struct vb_hull *hull, unsigned regions)
{
    const struct vb_hull_request hello = hull_kit_hello(), domain = {.op = VB_HULL_PD_CREATE};
    const struct vb_hull_request memory = {.op = VB_HULL_MEMORY_CREATE, .memory = {.bytes = PAGE}};
    int fds[VB_HULL_FDS], socket = hull_kit_connect(hull);

    ask_still(hull, socket, &hello, fds);
    close(fds[0]);
    close(fds[1]);
    uint32_t pd = ask_still(hull, socket, &domain, fds);
    uint32_t at = ask_still(hull, socket, &memory, fds);
    close(fds[0]);
    const struct vb_hull_request region = {
        .op = VB_HULL_KEY_CREATE,
        .key = {.pd = pd, .kind = VB_MKEY_REGION, .len = 64, .at = {.memory = at}}};
    for (unsigned i = 0; i < regions; i++)
        ask_still(hull, socket, &region, fds);
    return socket;
}

// A process whose hull's only application has gone with so many regions. Stops, and does then what
// the hull's thread does about that, and nothing else.
static _Noreturn void end_stepwise(unsigned regions)
{
    struct vb_hull *hull = hull_kit_open_still(0);

    close(attach_with(hull, regions));
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(UNTRACED);
    raise(SIGSTOP);
    vb_hull_turn(hull);
    _exit(vb_fifo_empty(&hull->clients) ? 0 : 1);
}

// Instructions for that. 0: processes may not be traced here.
static uint64_t steps_of_end(unsigned regions)
{
    char self[] = "/proc/self/exe", count[16], *words[] = {self, count, NULL};
    uint64_t steps = 0;
    int status;
    pid_t pid;

    snprintf(count, sizeof count, "%u", regions);
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, words, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (; WIFSTOPPED(status); steps++) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == UNTRACED);
    return steps;
}

// Who leaves with many objects keeps the others waiting for as long as each of them takes, and not
// for as long as it takes to find each among all.
static void test_many_objects_go_one_by_one(void **state)
{
    enum {
        FEW = 50
    };

    (void)state;
    if (UNDER_ASAN || UNDER_TSAN)
        SKIP("counts instructions of the code as shipped");
    uint64_t few = steps_of_end(FEW);
    if (few == 0)
        SKIP("processes may not be traced here");
    uint64_t twice = steps_of_end(2 * FEW), four = steps_of_end(4 * FEW);
    uint64_t early = (twice - few) / FEW, late = (four - twice) / (2 * FEW);
    print_message("instructions for each object: %lu, and %lu among more\n", (unsigned long)early,
                  (unsigned long)late);
    assert_in_range(late, 0, early + early / 4); // hash chains differ by a twentieth
}

// A queue pair that goes is looked for among the members of every spread, so there are few of
// these.
static void test_spreads_are_limited(void **state)
{
    enum {
        QPS = 8000,
        MEMBERS = 128
    };
    const struct vb_hull_request hello = hull_kit_hello(), domain = {.op = VB_HULL_PD_CREATE};
    const struct vb_hull_request memory = {.op = VB_HULL_MEMORY_CREATE,
                                           .memory = {.bytes = 4 * PAGE}};
    struct vb_hull *hull = hull_kit_open_still(0);
    int fds[VB_HULL_FDS], socket = hull_kit_connect(hull);
    uint32_t qpn[QPS];

    (void)state;
    ask_still(hull, socket, &hello, fds);
    close(fds[0]);
    close(fds[1]);
    uint32_t pd = ask_still(hull, socket, &domain, fds);
    uint32_t at = ask_still(hull, socket, &memory, fds);
    uint8_t *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    close(fds[0]);
    const struct vb_hull_place record = {.memory = at, .offset = PAGE};
    const struct vb_hull_request cq = {
        .op = VB_HULL_CQ_CREATE, .cq = {.entries = 4, .ring = {.memory = at}, .record = record}};
    uint32_t cqn = ask_still(hull, socket, &cq, fds);
    const struct vb_hull_request qp = {.op = VB_HULL_QP_CREATE,
                                       .qp = {.pd = pd,
                                              .type = VB_QPT_UD,
                                              .send_cqn = cqn,
                                              .recv_cqn = cqn,
                                              .send_blocks = 4,
                                              .send = {.memory = at, .offset = 2 * PAGE},
                                              .record = record}};
    for (unsigned i = 0; i < QPS; i++)
        qpn[i] = ask_still(hull, socket, &qp, fds);
    struct vb_hull_request spread = {
        .op = VB_HULL_QP_SPREAD,
        .spread = {.members = {.memory = at, .offset = 3 * PAGE}, .count = MEMBERS, .fields = 1}};
    for (unsigned i = 0; i < VB_HULL_SPREADS; i++) {
        unsigned first = VB_HULL_SPREADS + 1 + i % (VB_HULL_SPREADS - 3) * MEMBERS;
        memcpy(map + 3 * PAGE, &qpn[first], MEMBERS * sizeof qpn[0]);
        spread.number = qpn[i];
        ask_still(hull, socket, &spread, fds);
    }
    struct vb_hull_reply reply; // one more is one too many
    spread.number = qpn[VB_HULL_SPREADS];
    assert_int_equal(vb_contract_send(socket, &spread, sizeof spread, 0, NULL, 0), 0);
    vb_hull_turn(hull);
    assert_int_equal(vb_contract_receive(socket, &reply, sizeof reply, 0, fds), sizeof reply);
    assert_int_equal(reply.error, -ENOSPC);
    munmap(map, 4 * PAGE);
    close(socket);
    vb_hull_turn(hull);
    assert_true(vb_fifo_empty(&hull->clients));
    vb_hull_close(hull);
}

// Neither for memory that came with a message, and that nobody asked for.
static void test_memory_of_strangers_goes_by_itself(void **state)
{
    enum {
        BYTES = 256 << 20
    };
    const struct vb_hull_request hello = hull_kit_hello();
    const struct vb_hull_request kick = {.op = VB_HULL_KICK};
    struct vb_hull *hull = hull_kit_open_still(0);
    int fds[VB_HULL_FDS], socket = hull_kit_connect(hull);

    ask_still(hull, socket, &hello, fds);
    close(fds[0]);
    close(fds[1]);
    int fd = memfd_create("big", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    fill(fd, BYTES);
    assert_int_equal(vb_contract_send(socket, &kick, sizeof kick, 0, &fd, 1), 0);
    close(fd);
    (void)state;
    assert_true(turn_and_count(hull) <= GIVEN_MAX);
    close(socket);
    vb_hull_close(hull);
}

// ---- groups

static uint8_t *gid_of(uint8_t gid[16], unsigned which)
{
    const unsigned pid = (unsigned)getpid();

    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    gid[12] = 239;
    gid[13] = (uint8_t)pid;
    gid[14] = (uint8_t)(which >> 8);
    gid[15] = (uint8_t)which;
    return gid;
}

static void make_members(struct service_app *a, const struct vb_hull *hull, struct vb_qp **qp,
                         unsigned count)
{
    *a = (struct service_app){.nic = hull_kit_attach(hull)};
    assert_int_equal(vb_pd_alloc(a->nic, &a->pd), 0);
    assert_int_equal(vb_cq_create(a->nic, &(struct vb_cq_opts){.entries = 64}, &a->cq), 0);
    const struct vb_qp_opts opts = {
        .service = VB_SERVICE_UD, .send_cq = a->cq, .recv_cq = a->cq, .send_depth = 1};
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(vb_qp_create(a->pd, &opts, &qp[i]), 0);
}

// A group that was left leaves nothing behind that grows.
static void test_groups_that_were_left_take_no_room(void **state)
{
    enum {
        GROUPS = 1000,
        KEPT_BYTES = 20 << 20
    };
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct service_app a;
    struct vb_qp *qp;
    uint8_t gid[16];

    (void)state;
    make_members(&a, hull, &qp, 1);
    size_t before = mallinfo2().uordblks;
    for (unsigned i = 0; i < GROUPS; i++) {
        assert_int_equal(vb_qp_attach(qp, gid_of(gid, i)), 0);
        assert_int_equal(vb_qp_detach(qp, gid), 0);
    }
    assert_in_range(mallinfo2().uordblks, 0, before + KEPT_BYTES);
    vb_nic_close(a.nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_groups_are_counted_by_user(void **state)
{
    enum {
        QPS = VB_HULL_GROUPS / VB_HULL_QP_GROUPS + 1
    };
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_qp *qp[QPS];
    struct service_app a;
    uint8_t gid[16];

    (void)state;
    for (unsigned round = 0; round < 2; round++) { // who goes gives them back
        make_members(&a, hull, qp, QPS);
        for (unsigned i = 0; i < VB_HULL_GROUPS; i++)
            assert_int_equal(
                vb_qp_attach(qp[i / VB_HULL_QP_GROUPS], gid_of(gid, i % VB_HULL_QP_GROUPS)), 0);
        assert_int_equal(vb_qp_attach(qp[QPS - 1], gid_of(gid, 0)), -ENOSPC);
        assert_int_equal(vb_qp_detach(qp[0], gid), 0);
        assert_int_equal(vb_qp_attach(qp[QPS - 1], gid), 0);
        vb_nic_close(a.nic);
        hull_kit_wait(hull, 0);
    }
    vb_hull_close(hull);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registers_go_with_their_process),
        cmocka_unit_test(test_the_last_word_in_a_register_counts),
        cmocka_unit_test(test_who_copies_is_no_service),
        cmocka_unit_test(test_services_have_no_ports),
        cmocka_unit_test(test_detached_services_are_no_applications),
        cmocka_unit_test(test_a_session_has_the_name_of_who_is_attached),
        cmocka_unit_test(test_seats_are_left_for_others),
        cmocka_unit_test(test_queues_by_hand_are_counted_by_user),
        cmocka_unit_test(test_a_refusal_leaves_the_register),
        cmocka_unit_test(test_much_memory_goes_by_itself),
        cmocka_unit_test(test_many_objects_go_one_by_one),
        cmocka_unit_test(test_spreads_are_limited),
        cmocka_unit_test(test_memory_of_strangers_goes_by_itself),
        cmocka_unit_test(test_groups_that_were_left_take_no_room),
        cmocka_unit_test(test_groups_are_counted_by_user),
    };
    if (argc > 1) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // with a test that fails
        end_stepwise((unsigned)strtoul(argv[1], NULL, 10));
    }
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
