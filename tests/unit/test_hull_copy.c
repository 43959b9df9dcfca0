// SPDX-License-Identifier: Apache-2.0
// Memory of an attached application that is not shared with the hull: copied, where that is asked
// for and allowed.
#include "duo.h"
#include "hull_kit.h"
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PAGE = 4096,
    LONG = 20000, // several packets, and what is lent
};

static const char allowed[] = "[tenant *]\ncopy = yes\n";

static struct vb_nic *attach(const struct vb_hull *hull)
{
    char error[VB_ERROR_TEXT];
    const struct vb_nic_opts opts = {.hull = hull->path, .copy = true, .error_text = error};
    struct vb_nic *nic = NULL;

    if (vb_nic_open(&opts, &nic) != 0)
        fail_msg("%s", error);
    return nic;
}

static void open_end(struct duo_end *e)
{
    e->memory = calloc(1, DUO_BYTES);
    assert_non_null(e->memory);
    assert_int_equal(vb_pd_alloc(e->nic, &e->pd), 0);
    assert_int_equal(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 64}, &e->cq), 0);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, DUO_BYTES, DUO_RIGHTS, &e->mr), 0);
}

// End `copying` is attached and its memory copied; the other one's is its own.
static void open_ends(struct duo *d, struct duo_state *state, unsigned copying)
{
    *d = (struct duo){.state = state};
    state->hull[0] = hull_kit_open(0, "udp", allowed);
    d->end[copying].nic = state->nic[0] = attach(state->hull[0]);
    d->end[!copying].nic = state->nic[1] = duo_open_nic(1, "udp");
    open_end(&d->end[0]);
    open_end(&d->end[1]);
}

static void close_ends(struct duo *d)
{
    uint8_t *memory[2] = {d->end[0].memory, d->end[1].memory};

    vb_nic_close(d->state->nic[0]);
    vb_nic_close(d->state->nic[1]);
    d->state->nic[0] = d->state->nic[1] = NULL;
    hull_kit_wait(d->state->hull[0], 0);
    vb_hull_close(d->state->hull[0]);
    d->state->hull[0] = NULL;
    free(memory[0]);
    free(memory[1]);
}

// ---- who may

static void test_is_refused_with_words(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    char error[VB_ERROR_TEXT], heap[64];
    struct vb_nic_opts opts = {.hull = hull->path, .copy = true, .error_text = error};
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;

    (void)state;
    assert_int_equal(vb_nic_open(&opts, &nic), -EPERM);
    assert_non_null(strstr(error, "copy = yes"));
    opts.copy = false; // who does not ask is as ever
    assert_int_equal(vb_nic_open(&opts, &nic), 0);
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_mr_reg(pd, heap, sizeof heap, VB_RIGHT_ALL, &mr), -EFAULT);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_a_word_must_be_there(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", allowed);
    struct vb_hull_reply reply;
    struct vb_hull_request r = hull_kit_hello();
    int fd = hull_kit_connect(hull);
    uint64_t word = 0x1234567890abcdef;

    (void)state;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    r = (struct vb_hull_request){.op = VB_HULL_PD_CREATE};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    uint32_t pd = reply.number;
    const struct vb_hull_request key = {
        .op = VB_HULL_KEY_CREATE,
        .key = {.at = {.offset = (uintptr_t)&word}, .len = 8, .pd = pd, .kind = VB_MKEY_COPIED}};
    const struct {
        uint64_t at, word;
        int error;
    } proofs[] = {{(uintptr_t)&word, word + 1, -ESRCH},
                  {8, word, -ESRCH},
                  {UINT64_MAX - 3, word, -ESRCH},
                  {(uintptr_t)&word, word, 0}};
    for (size_t i = 0; i < sizeof proofs / sizeof proofs[0]; i++) {
        r = key;
        assert_int_equal(hull_kit_ask(fd, &r, &reply), -EPERM);
        r = (struct vb_hull_request){.op = VB_HULL_COPY_BEGIN,
                                     .proof = {proofs[i].at, proofs[i].word}};
        assert_int_equal(hull_kit_ask(fd, &r, &reply), proofs[i].error);
    }
    r = key;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    r.key.at.offset = UINT64_MAX - 4;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -EFAULT);
    r = (struct vb_hull_request){.op = VB_HULL_COPY_BEGIN, .proof = {(uintptr_t)&word, word}};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0); // the region keeps its own
    close(fd);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

// ---- bytes

static void move_all(struct duo *d)
{
    struct vb_qp *qp[2];
    const uint32_t lengths[] = {1, 64, 1500, LONG};

    duo_connect(d, VB_SERVICE_RC, qp);
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint32_t len = lengths[i];
        uint8_t *here = d->end[0].memory, *there = d->end[1].memory;
        duo_fill(here, len, i);
        duo_post_recv(&d->end[1], qp[1], 1, 100, LONG);
        duo_post(d, qp[0], duo_wr(d, VB_WR_SEND, 2), 0, len);
        duo_expect(d->end[1].cq, 1, VB_WC_OK);
        duo_expect(d->end[0].cq, 2, VB_WC_OK);
        assert_memory_equal(there + 100, here, len);
        duo_fill(here, len, i + 10);
        duo_post(d, qp[0], duo_wr(d, VB_WR_WRITE, 3), 0, len);
        duo_expect(d->end[0].cq, 3, VB_WC_OK);
        assert_memory_equal(there, here, len);
        assert_int_equal(there[len + 200], 0);
        duo_fill(there, len, i + 20);
        duo_post(d, qp[0], duo_wr(d, VB_WR_READ, 4), 0, len);
        duo_expect(d->end[0].cq, 4, VB_WC_OK);
        assert_memory_equal(here, there, len);
        memset(there, 0, DUO_BYTES);
    }
    vb_qp_destroy(qp[0]);
    vb_qp_destroy(qp[1]);
}

static void test_bytes_of_who_asks(void **state)
{
    struct duo d;
    open_ends(&d, *state, 0);
    move_all(&d);
    close_ends(&d);
}

static void test_bytes_of_who_is_asked(void **state)
{
    struct duo d;
    open_ends(&d, *state, 1);
    move_all(&d);
    close_ends(&d);
}

// Lists of several segments, of which one is shared memory.
static void test_lists(void **state)
{
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_mr *mr;
    void *shared, *at;

    open_ends(&d, *state, 0);
    struct duo_end *e = &d.end[0];
    assert_int_equal(
        vb_mr_find(e->pd, vb_mr_key(e->mr), (uintptr_t)e->memory + 7, 1, VB_RIGHT_LOCAL_WRITE, &at),
        0);
    assert_ptr_equal(at, e->memory + 7);
    assert_int_equal(vb_hull_alloc(e->nic, NULL, PAGE, &shared), 0);
    assert_int_equal(vb_mr_reg(e->pd, shared, PAGE, DUO_RIGHTS, &mr), 0);
    for (unsigned i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&d.end[i], (struct vb_qp_opts){.send_sge = 3, .recv_sge = 3});
    duo_join(&d, qp[0], qp[1]);
    duo_fill(e->memory, 200, 1);
    duo_fill(shared, 100, 2);
    const struct vb_sge list[] = {{(uintptr_t)e->memory, 100, vb_mr_key(e->mr)},
                                  {(uintptr_t)shared, 100, vb_mr_key(mr)},
                                  {(uintptr_t)e->memory + 100, 100, vb_mr_key(e->mr)}};
    struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, 1);
    wr.sge = list;
    wr.num_sge = 3;
    assert_int_equal(vb_post_send(qp[0], &wr, 1), 1);
    duo_expect(e->cq, 1, VB_WC_OK);
    assert_memory_equal(d.end[1].memory, e->memory, 100);
    assert_memory_equal(d.end[1].memory + 100, shared, 100);
    assert_memory_equal(d.end[1].memory + 200, e->memory + 100, 100);
    memset(e->memory, 0, 200);
    memset(shared, 0, 100);
    wr.opcode = VB_WR_READ;
    assert_int_equal(vb_post_send(qp[0], &wr, 1), 1);
    duo_expect(e->cq, 1, VB_WC_OK);
    assert_memory_equal(d.end[1].memory, e->memory, 100);
    assert_memory_equal(d.end[1].memory + 100, shared, 100);
    assert_memory_equal(d.end[1].memory + 200, e->memory + 100, 100);
    close_ends(&d);
}

// ---- what is not there

static uint8_t *map_page(struct duo_end *e, struct vb_mr **mr)
{
    uint8_t *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(vb_mr_reg(e->pd, at, PAGE, DUO_RIGHTS, mr), 0);
    return at;
}

static enum vb_wc_status remote(struct duo *d, enum vb_wr_opcode opcode, uint8_t *at, uint32_t key)
{
    struct vb_qp *qp[2];
    struct vb_send_wr wr = duo_wr(d, opcode, 5);

    duo_connect(d, VB_SERVICE_RC, qp);
    wr.raddr = (uintptr_t)at;
    wr.rkey = key;
    duo_post(d, qp[0], wr, 0, 8);
    enum vb_wc_status status = duo_wait(d->end[0].cq).status;
    vb_qp_destroy(qp[0]);
    vb_qp_destroy(qp[1]);
    return status;
}

static void test_pages_that_are_gone(void **state)
{
    struct duo d;
    struct vb_mr *mr;

    open_ends(&d, *state, 1);
    uint8_t *at = map_page(&d.end[1], &mr);
    assert_int_equal(remote(&d, VB_WR_WRITE, at, vb_mr_key(mr)), VB_WC_OK);
    assert_int_equal(remote(&d, VB_WR_READ, at, vb_mr_key(mr)), VB_WC_OK);
    assert_int_equal(remote(&d, VB_WR_FADD, at, vb_mr_key(mr)), VB_WC_REMOTE_ACCESS); // no atomics
    assert_int_equal(remote(&d, VB_WR_READ, at + PAGE, vb_mr_key(mr)), VB_WC_REMOTE_ACCESS);
    munmap(at, PAGE);
    assert_int_equal(remote(&d, VB_WR_WRITE, at, vb_mr_key(mr)), VB_WC_REMOTE_OPERATION);
    assert_int_equal(remote(&d, VB_WR_READ, at, vb_mr_key(mr)), VB_WC_REMOTE_OPERATION);
    close_ends(&d);
}

static void test_own_pages_that_are_gone(void **state)
{
    struct duo d;
    struct vb_mr *mr;
    struct vb_qp *qp[2];

    open_ends(&d, *state, 0);
    uint8_t *at = map_page(&d.end[0], &mr);
    for (unsigned gone = 0; gone < 2; gone++) {
        const struct vb_sge sge = {(uintptr_t)at, 64, vb_mr_key(mr)};
        struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, 6);
        wr.sge = &sge;
        wr.num_sge = 1;
        duo_connect(&d, VB_SERVICE_RC, qp);
        assert_int_equal(vb_post_send(qp[0], &wr, 1), 1);
        duo_expect(d.end[0].cq, 6, gone ? VB_WC_LOCAL_PROTECTION : VB_WC_OK);
        munmap(at, PAGE);
    }
    close_ends(&d);
}

// ---- guarded memory

// All that the process has, and will have: what is not there is an error of who asks for it.
static void test_all_memory_at_once(void **state)
{
    struct duo d;
    struct vb_mr *mr;
    struct vb_mr_opts all = {.len = SIZE_MAX, .rights = DUO_RIGHTS};

    open_ends(&d, *state, 1);
    assert_int_equal(vb_mr_reg_as(d.end[1].pd, &all, &mr), -EFAULT);
    all.guarded = true;
    assert_int_equal(vb_mr_reg_as(d.end[1].pd, &all, &mr), 0);
    uint8_t *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(remote(&d, VB_WR_WRITE, at, vb_mr_key(mr)), VB_WC_OK);
    munmap(at, PAGE);
    assert_int_equal(remote(&d, VB_WR_WRITE, at, vb_mr_key(mr)), VB_WC_REMOTE_OPERATION);
    at = (uint8_t *)(UINTPTR_MAX - PAGE);
    assert_int_equal(remote(&d, VB_WR_READ, at, vb_mr_key(mr)), VB_WC_REMOTE_ACCESS);
    const struct vb_mr_opts some = {
        .addr = d.end[1].memory, .len = PAGE, .rights = DUO_RIGHTS, .guarded = true};
    assert_int_equal(vb_mr_change(mr, d.end[1].pd, &some), 0);
    assert_int_equal(remote(&d, VB_WR_READ, d.end[1].memory, vb_mr_key(mr)), VB_WC_OK);
    close_ends(&d);
}

// What is shared the hull has mapped, too: it is there, whatever the application unmaps.
static void test_shared_memory_cannot_go(void **state)
{
    struct duo d;
    struct vb_mr *mr;
    uint8_t word[8];
    int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    duo_open(&d, *state);
    assert_true(fd >= 0 && ftruncate(fd, PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    uint8_t *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(vb_hull_give(d.end[1].nic, fd, at), 0);
    struct vb_mr_opts opts = {.addr = at, .len = PAGE, .rights = DUO_RIGHTS, .guarded = true};
    assert_int_equal(vb_mr_reg_as(d.end[1].pd, &opts, &mr), 0);
    munmap(at, PAGE);
    duo_fill(d.end[0].memory, sizeof word, 3);
    assert_int_equal(remote(&d, VB_WR_WRITE, at, vb_mr_key(mr)), VB_WC_OK);
    assert_int_equal(pread(fd, word, sizeof word, 0), sizeof word);
    assert_memory_equal(word, d.end[0].memory, sizeof word);
    assert_int_equal(vb_hull_free(d.end[1].nic, at), -EBUSY); // nor can it be taken back
    assert_int_equal(vb_mr_dereg(mr), 0);
    opts.len = PAGE + 1; // guarded or not, what is not shared is not
    assert_int_equal(vb_mr_reg_as(d.end[1].pd, &opts, &mr), -EFAULT);
    opts.addr = NULL;
    opts.len = SIZE_MAX;
    assert_int_equal(vb_mr_reg_as(d.end[1].pd, &opts, &mr), -EFAULT);
    assert_int_equal(vb_hull_free(d.end[1].nic, at), 0);
    close(fd);
    duo_close(&d);
}

// ---- a process of its own, which is stopped, and then killed

struct hello {
    uint32_t qpn, key;
    uint64_t at;
};

static void be_stopped(int fd, const char *path)
{
    static uint8_t bytes[PAGE];
    const struct vb_nic_opts opts = {.hull = path, .copy = true};
    struct vb_qp_peer peer;
    struct duo_end e = {0};
    struct vb_qp *qp = NULL;

    memset(bytes, 0x5a, sizeof bytes);
    if (vb_nic_open(&opts, &e.nic) != 0 || vb_pd_alloc(e.nic, &e.pd) != 0 ||
        vb_cq_create(e.nic, &(struct vb_cq_opts){.entries = 16}, &e.cq) != 0 ||
        vb_mr_reg(e.pd, bytes, sizeof bytes, DUO_RIGHTS, &e.mr) != 0)
        _exit(1);
    const struct vb_qp_opts with = {
        .send_cq = e.cq, .recv_cq = e.cq, .send_depth = 1, .recv_depth = 1};
    if (vb_qp_create(e.pd, &with, &qp) != 0)
        _exit(2);
    const struct hello hello = {vb_qp_num(qp), vb_mr_key(e.mr), (uintptr_t)bytes};
    if (write(fd, &hello, sizeof hello) != sizeof hello ||
        read(fd, &peer, sizeof peer) != sizeof peer || vb_qp_connect(qp, &peer) != 0 ||
        write(fd, "", 1) != 1)
        _exit(3);
    for (;;)
        pause();
}

static void test_who_is_stopped_is_read(void **state)
{
    struct duo_state *s = *state;
    struct hello hello;
    struct duo_end e = {0};
    char path[sizeof s->hull[0]->path], one;
    int fd[2], status;

    s->hull[0] = hull_kit_open(0, "udp", allowed);
    memcpy(path, s->hull[0]->path, sizeof path);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_stopped(fd[1], path);
    e.nic = s->nic[1] = duo_open_nic(1, "udp");
    open_end(&e);
    struct vb_qp *qp = duo_make_qp(&e, (struct vb_qp_opts){0});
    assert_int_equal(read(fd[0], &hello, sizeof hello), sizeof hello);
    struct vb_qp_peer peer = {.qpn = vb_qp_num(qp), .rights = DUO_REMOTE};
    vb_nic_gid(e.nic, peer.gid);
    assert_int_equal(write(fd[0], &peer, sizeof peer), sizeof peer);
    assert_int_equal(read(fd[0], &one, 1), 1);
    peer = (struct vb_qp_peer){.qpn = hello.qpn};
    vb_nic_gid(s->hull[0]->nic, peer.gid);
    assert_int_equal(vb_qp_connect(qp, &peer), 0);
    assert_int_equal(kill(child, SIGSTOP), 0);
    const struct vb_sge sge = {(uintptr_t)e.memory, PAGE, vb_mr_key(e.mr)};
    const struct vb_send_wr wr = {.wr_id = 7,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = hello.at,
                                  .rkey = hello.key};
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
    duo_expect(e.cq, 7, VB_WC_OK);
    for (unsigned i = 0; i < PAGE; i++)
        assert_int_equal(e.memory[i], 0x5a);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(hull_kit_wait(s->hull[0], 0).objects, 0);
    close(fd[0]);
    close(fd[1]);
    vb_nic_close(s->nic[1]);
    s->nic[1] = NULL;
    free(e.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_is_refused_with_words, "hull"),
        DUO_TEST(test_a_word_must_be_there, "hull"),
        DUO_TEST(test_bytes_of_who_asks, "hull"),
        DUO_TEST(test_bytes_of_who_is_asked, "hull"),
        DUO_TEST(test_lists, "hull"),
        DUO_TEST(test_pages_that_are_gone, "hull"),
        DUO_TEST(test_own_pages_that_are_gone, "hull"),
        DUO_TEST(test_all_memory_at_once, "hull"),
        DUO_TEST(test_shared_memory_cannot_go, "hull"),
        DUO_TEST(test_who_is_stopped_is_read, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
