// SPDX-License-Identifier: Apache-2.0
// The hull against applications that do not keep the contract, and what one application can do to
// another: nothing.
#include "../wait.h"
#include "duo.h"
#include "hull_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BYTES = 1 << 16,
};

// ---- the greeting

static void is_refused(struct vb_hull *hull, struct vb_hull_request request, const char *words)
{
    struct vb_hull_reply reply;
    int fd = hull_kit_connect(hull);

    assert_int_not_equal(hull_kit_ask(fd, &request, &reply), 0);
    if (!strstr(reply.text, words))
        fail_msg("'%s' does not say '%s'", reply.text, words);
    assert_int_equal(hull_kit_ask(fd, &request, &reply), -ENOTCONN); // and it is closed
    close(fd);
}

static void test_a_greeting_must_match(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_hull_request r = hull_kit_hello();
    struct vb_hull_reply reply;

    (void)state;
    r.hello.magic++;
    is_refused(hull, r, "no greeting");
    r = hull_kit_hello();
    r.hello.version++;
    is_refused(hull, r, "version 3");
    r = hull_kit_hello();
    r.hello.page_bytes += 64;
    is_refused(hull, r, "sizes differ");
    r = hull_kit_hello();
    r.hello.features = 1u << 31;
    is_refused(hull, r, "features");
    r = hull_kit_hello();
    memset(r.hello.nic, 'x', sizeof r.hello.nic);
    is_refused(hull, r, "this is NIC 'hull0'");
    r = hull_kit_hello();
    r.op = VB_HULL_PD_CREATE;
    is_refused(hull, r, "the first message must be a greeting");
    int fd = hull_kit_connect(hull);
    r = hull_kit_hello();
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    r.op = VB_HULL_OPS + 7;
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -ENOSYS);
    close(fd);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_messages_have_one_length(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    uint8_t bytes[sizeof(struct vb_hull_request) + 1] = {0};
    const size_t lengths[] = {0, 1, sizeof(struct vb_hull_request) - 1, sizeof bytes};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int fd = hull_kit_connect(hull);
        const struct vb_hull_request hello = hull_kit_hello();
        memcpy(bytes, &hello, sizeof hello);
        assert_int_equal(send(fd, bytes, lengths[i], MSG_NOSIGNAL), lengths[i]);
        assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 0);
        close(fd);
    }
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_the_socket_is_ours_alone(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    char error[VB_ERROR_TEXT], path[sizeof hull->path];
    struct vb_hull_config *config = malloc(sizeof *config);
    struct stat st;

    (void)state;
    assert_non_null(config);
    assert_int_equal(stat(hull->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    // A second one of this name is refused, and takes nothing from the first.
    vb_hull_config_init(config);
    snprintf(config->nic[0].name, sizeof config->nic[0].name, "hull0");
    snprintf(config->nic[0].address, sizeof config->nic[0].address, "127.0.0.77");
    struct vb_hull *second = NULL;
    assert_int_equal(vb_hull_open(config, 0, &second, error), -EADDRINUSE);
    vb_nic_close(hull_kit_attach(hull));
    memcpy(path, hull->path, sizeof path);
    vb_hull_close(hull);
    assert_int_equal(stat(path, &st), -1);
    free(config);
}

static void test_a_socket_left_behind_is_replaced(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    char path[sizeof hull->path], kept[sizeof hull->path + 8];

    (void)state;
    memcpy(path, hull->path, sizeof path);
    snprintf(kept, sizeof kept, "%s.kept", path);
    assert_int_equal(link(path, kept), 0);
    vb_hull_close(hull);
    assert_int_equal(rename(kept, path), 0); // as a hull that was killed leaves it
    hull = hull_kit_open(0, "udp", NULL);
    vb_nic_close(hull_kit_attach(hull));
    vb_hull_close(hull);
}

static void test_without_a_hull_words_say_so(void **state)
{
    char error[VB_ERROR_TEXT];
    struct vb_nic_opts opts = {.hull = "nobody", .error_text = error};
    struct vb_nic *nic;
    void *memory;

    (void)state;
    assert_int_equal(vb_nic_open(&opts, &nic), -ENOENT);
    assert_non_null(strstr(error, "no hull at"));
    nic = duo_open_nic(0, "udp");
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &memory), -EOPNOTSUPP);
    vb_nic_close(nic);
}

// ---- memory

static int make_memfd(unsigned flags, int seals, off_t bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC | flags);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void is_not_taken(struct vb_nic *nic, int fd, int error, const char *words)
{
    char why[VB_ERROR_TEXT];

    assert_int_equal(vb_hull_give(nic, fd, NULL), error);
    vb_hull_why(nic, why);
    if (!strstr(why, words))
        fail_msg("'%s' does not say '%s'", why, words);
    close(fd);
}

static void test_only_sealed_memory_is_taken(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    char why[VB_ERROR_TEXT], heap[64];
    struct vb_pd *pd;
    struct vb_mr *mr;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_mr_reg(pd, heap, sizeof heap, VB_RIGHT_ALL, &mr), -EFAULT);
    vb_hull_why(nic, why);
    assert_non_null(strstr(why, "not shared with the hull"));
    is_not_taken(nic, make_memfd(MFD_ALLOW_SEALING, 0, BYTES), -EPERM, "not sealed");
    is_not_taken(nic, make_memfd(MFD_ALLOW_SEALING, F_SEAL_GROW, BYTES), -EPERM, "not sealed");
    is_not_taken(nic, make_memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK, 0), -EPERM, "empty");
    is_not_taken(nic, make_memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK | F_SEAL_WRITE, BYTES), -EPERM,
                 "cannot map it for writing");
    is_not_taken(nic, open("/dev/zero", O_RDWR | O_CLOEXEC), -EPERM, "no memfd");
    assert_int_equal(vb_hull_give(nic, -1, heap), -EBADF);
    int fd = make_memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK, BYTES);
    uint8_t *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(vb_hull_give(nic, fd, at), 0);
    close(fd);
    assert_int_equal(vb_mr_reg(pd, at, BYTES + 1, VB_RIGHT_ALL, &mr), -EFAULT);
    assert_int_equal(vb_mr_reg(pd, at, BYTES, VB_RIGHT_ALL, &mr), 0);
    assert_int_equal(vb_hull_free(nic, at), -EBUSY);
    assert_int_equal(vb_mr_dereg(mr), 0);
    assert_int_equal(vb_hull_free(nic, at), 0);
    assert_int_equal(vb_hull_free(nic, at), -ENOENT);
    munmap(at, BYTES);
    vb_nic_close(nic);
    vb_hull_close(hull);
}

static void test_named_memory_stays(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    char *at = NULL, *again = NULL, *unnamed = NULL;

    (void)state;
    assert_int_equal(vb_hull_alloc(nic, "table", 0, (void **)&at), -ENOENT);
    assert_int_equal(vb_hull_alloc(nic, "table", BYTES, (void **)&at), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, (void **)&unnamed), 0);
    snprintf(at, BYTES, "still here");
    vb_nic_close(nic);
    struct vb_hull_counts counts = hull_kit_wait(hull, 0);
    assert_int_equal(counts.bytes, BYTES);
    nic = hull_kit_attach(hull);
    assert_int_equal(vb_hull_alloc(nic, "table", 2 * BYTES, (void **)&again), -EEXIST);
    assert_int_equal(vb_hull_alloc(nic, "table", 0, (void **)&again), 0);
    assert_string_equal(again, "still here");
    assert_int_equal(vb_hull_free(nic, again), 0); // and now the name is gone
    assert_int_equal(vb_hull_alloc(nic, "table", 0, (void **)&again), -ENOENT);
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).bytes, 0);
    vb_hull_close(hull);
}

// ---- one application and another

// Names every object that `victim` has.
static void test_others_do_not_exist(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *victim = hull_kit_attach(hull);
    struct duo_end e = {.nic = victim};
    struct vb_hull_reply reply;
    void *at = NULL;

    (void)state;
    assert_int_equal(vb_pd_alloc(victim, &e.pd), 0);
    assert_int_equal(vb_hull_alloc(victim, NULL, BYTES, &at), 0);
    assert_int_equal(vb_mr_reg(e.pd, at, BYTES, VB_RIGHT_ALL, &e.mr), 0);
    assert_int_equal(vb_cq_create(victim, &(struct vb_cq_opts){.entries = 16}, &e.cq), 0);
    struct vb_qp *qp = duo_make_qp(&e, (struct vb_qp_opts){0});
    const struct {
        enum vb_hull_op op;
        uint32_t number;
    } names[] = {
        {VB_HULL_PD_DESTROY, 1},
        {VB_HULL_KEY_DESTROY, vb_mr_key(e.mr)},
        {VB_HULL_KEY_CHANGE, vb_mr_key(e.mr)},
        {VB_HULL_CQ_DESTROY, vb_cq_num(e.cq)},
        {VB_HULL_CQ_PRODUCED, vb_cq_num(e.cq)},
        {VB_HULL_CQ_MODERATE, vb_cq_num(e.cq)},
        {VB_HULL_QP_DESTROY, vb_qp_num(qp)},
        {VB_HULL_QP_MODIFY, vb_qp_num(qp)},
        {VB_HULL_QP_STATE, vb_qp_num(qp)},
        {VB_HULL_QP_PROGRESS, vb_qp_num(qp)},
        {VB_HULL_QP_SETTLE, vb_qp_num(qp)},
        {VB_HULL_QP_COUNTERS, vb_qp_num(qp)},
        {VB_HULL_QP_LIMIT, vb_qp_num(qp)},
        {VB_HULL_QP_TUNE, vb_qp_num(qp)},
        {VB_HULL_MEMORY_DROP, 1},
        {VB_HULL_CHANNEL_DESTROY, 1},
        {VB_HULL_SRQ_DESTROY, 1},
        {VB_HULL_WINDOW_DESTROY, vb_mr_key(e.mr)},
        {VB_HULL_CQ_RESIZE, vb_cq_num(e.cq)},
        {VB_HULL_QP_JOIN, vb_qp_num(qp)},
        {VB_HULL_QP_LEAVE, vb_qp_num(qp)},
        {VB_HULL_QP_SPREAD, vb_qp_num(qp)},
        {VB_HULL_KEY_FIND, vb_mr_key(e.mr)},
        {VB_HULL_PORT_GIVE, 7471},
    };
    int fd = hull_kit_connect(hull);
    struct vb_hull_request r = hull_kit_hello();
    assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        r = (struct vb_hull_request){.op = names[i].op, .number = names[i].number};
        assert_int_equal(hull_kit_ask(fd, &r, &reply), -ENOENT);
        assert_non_null(strstr(reply.text, "there is no"));
    }
    r = (struct vb_hull_request){.op = VB_HULL_KEY_CREATE, .key = {.at = {.memory = 1}, .pd = 1}};
    assert_int_equal(hull_kit_ask(fd, &r, &reply), -ENOENT);
    assert_string_equal(vb_qp_state_text(qp), "RESET"); // all is as it was
    close(fd);
    vb_nic_close(victim);
    vb_hull_close(hull);
}

// A page full of bells rings nobody else's, and nothing that is not there.
static void test_bells_of_others_are_not_rung(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *victim = hull_kit_attach(hull);
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS], fd = hull_kit_connect(hull);
    struct vb_hull_request r = hull_kit_hello(), kick = {.op = VB_HULL_KICK};

    (void)state;
    assert_int_equal(vb_contract_send(fd, &r, sizeof r, 0, NULL, 0), 0);
    assert_int_equal(vb_contract_receive(fd, &reply, sizeof reply, 0, fds), sizeof reply);
    uint8_t *page =
        mmap(NULL, sizeof(struct vb_hull_page), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    for (unsigned round = 0; round < 200; round++) {
        memset(page, round % 2 ? 0xff : (int)round, sizeof(struct vb_hull_page));
        assert_int_equal(vb_contract_send(fd, &kick, sizeof kick, 0, NULL, 0), 0);
        r = (struct vb_hull_request){.op = VB_HULL_PD_CREATE};
        assert_int_equal(hull_kit_ask(fd, &r, &reply), 0);
    }
    assert_int_equal(ftruncate(fds[0], 0), -1); // it cannot shrink
    for (uint32_t i = 0; i < VB_HULL_FDS; i++)
        close(fds[i]);
    munmap(page, sizeof(struct vb_hull_page));
    struct vb_pd *pd;
    assert_int_equal(vb_pd_alloc(victim, &pd), 0);
    close(fd);
    vb_nic_close(victim);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// A queue pair that waits for a completion queue: its own, or another application's.
static enum vb_wc_status wait_for(struct vb_nic *nic, uint32_t cqn)
{
    const struct vb_cq_opts opts = {.entries = 16};
    const struct vb_send_wr nop = {.opcode = VB_WR_NOP, .flags = VB_WR_SIGNALED};
    struct vb_send_wr wait = {.opcode = VB_WR_WAIT, .flags = VB_WR_SIGNALED};
    struct duo_end e = {.nic = nic};

    assert_int_equal(vb_pd_alloc(nic, &e.pd), 0);
    assert_int_equal(vb_cq_create(nic, &opts, &e.cq), 0);
    struct vb_qp *qp = duo_make_qp(&e, (struct vb_qp_opts){.chain = VB_QP_CROSS_CHANNEL});
    assert_int_equal(vb_qp_connect_self(qp, 0), 0);
    wait.cross.number = cqn ? cqn : vb_cq_num(e.cq);
    assert_int_equal(vb_post_send(qp, &nop, 1), 1);
    assert_int_equal(vb_post_send(qp, &wait, 1), 1);
    assert_int_equal(duo_wait(e.cq).status, VB_WC_OK);
    return duo_wait(e.cq).status;
}

static void test_nobody_waits_for_another(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *victim = hull_kit_attach(hull), *other = hull_kit_attach(hull);
    struct vb_cq *cq;

    (void)state;
    assert_int_equal(vb_cq_create(victim, &(struct vb_cq_opts){.entries = 16}, &cq), 0);
    assert_int_equal(wait_for(other, 0), VB_WC_OK);
    assert_int_equal(wait_for(other, vb_cq_num(cq)), VB_WC_LOCAL_QP_OP);
    vb_nic_close(victim);
    vb_nic_close(other);
    vb_hull_close(hull);
}

// Who asks what there is hears of all that came before, though nobody counts until he asks.
static void test_what_is_there_is_counted(void **state)
{
    enum {
        APPS = 20
    };
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic[APPS];
    struct vb_hull_counts counts;
    struct vb_pd *pd;

    (void)state;
    for (uint32_t i = 0; i < APPS; i++) {
        nic[i] = hull_kit_attach(hull);
        vb_hull_count(hull, &counts);
        assert_int_equal(counts.clients, i + 1);
        assert_int_equal(counts.objects, i);
        assert_int_equal(vb_pd_alloc(nic[i], &pd), 0);
    }
    for (uint32_t i = 0; i < APPS; i++)
        vb_nic_close(nic[i]);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

static void test_a_child_has_no_part_in_it(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_pd *pd, *more;
    int status;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    struct duo_end e = {.nic = nic, .pd = pd};
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16}, &e.cq), 0);
    struct vb_qp *qp = duo_make_qp(&e, (struct vb_qp_opts){.chain = VB_QP_CROSS_CHANNEL});
    assert_int_equal(vb_qp_connect_self(qp, 0), 0);
    pid_t child = fork();
    if (child == 0) {
        bool refused = vb_pd_alloc(nic, &more) == -EPERM && vb_pd_free(pd) == -EPERM;
        if (DUO_CHILD_IS_FREE)
            vb_nic_close(nic);
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hull_kit_await_sleep(hull); // it sleeps,
    const struct vb_send_wr nop = {.opcode = VB_WR_NOP, .flags = VB_WR_SIGNALED};
    assert_int_equal(vb_post_send(qp, &nop, 1), 1); // and is woken: the child took nothing away
    assert_int_equal(duo_wait(e.cq).status, VB_WC_OK);
    assert_int_equal(vb_pd_alloc(nic, &more), 0);
    vb_nic_close(nic);
    vb_hull_close(hull);
}

// ---- quotas

static void test_a_quota_is_a_refusal(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp",
                                         "[tenant *]\nqueue_pairs = 1\nqueues = 2\nregions = 3\n"
                                         "entries = 128\nbytes = 4M\napplications = 2\n");
    struct vb_nic *nic = hull_kit_attach(hull), *other = hull_kit_attach(hull), *third;
    char why[VB_ERROR_TEXT];
    struct duo_end e = {.nic = nic};
    struct vb_pd *pds[3];
    struct vb_qp *qp;
    void *at;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &e.pd), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 64}, &e.cq), 0);
    struct vb_qp_opts o = {.send_cq = e.cq, .recv_cq = e.cq, .send_depth = 65, .recv_depth = 1};
    assert_int_equal(vb_qp_create(e.pd, &o, &qp), -EDQUOT); // too many entries
    vb_hull_why(nic, why);
    assert_non_null(strstr(why, "may have 128 entries"));
    qp = duo_make_qp(&e, (struct vb_qp_opts){0});
    assert_int_equal(vb_qp_create(e.pd, &o, &qp), -EDQUOT); // and too many queue pairs
    assert_int_equal(vb_pd_alloc(other, &pds[0]), 0);       // of all applications together
    assert_int_equal(vb_pd_alloc(other, &pds[1]), 0);
    assert_int_equal(vb_pd_alloc(other, &pds[2]), -EDQUOT);
    assert_int_equal(vb_pd_free(pds[1]), 0);
    assert_int_equal(vb_pd_alloc(other, &pds[2]), 0);
    assert_int_equal(vb_hull_alloc(other, NULL, 4 << 20, &at), -EDQUOT);
    assert_int_equal(vb_hull_alloc(other, NULL, 1 << 20, &at), 0);
    const struct vb_nic_opts opts = {.hull = hull->path, .error_text = why};
    assert_int_equal(vb_nic_open(&opts, &third), -EDQUOT);
    assert_non_null(strstr(why, "may have 2 applications"));
    vb_nic_close(other);
    hull_kit_wait(hull, 1);
    assert_int_equal(vb_nic_open(&opts, &third), 0);
    vb_nic_close(third);
    vb_nic_close(nic);
    struct vb_hull_counts counts = hull_kit_wait(hull, 0);
    assert_int_equal(counts.objects, 0);
    assert_int_equal(counts.bytes, 0);
    vb_hull_close(hull);
}

static void test_other_quotas_while_it_runs(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nregions = 1\n");
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_hull_config *config = malloc(sizeof *config);
    static const char text[] = "[tenant *]\nregions = 2\n";
    char error[VB_ERROR_TEXT];
    struct vb_pd *pd;

    (void)state;
    assert_non_null(config);
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_pd_alloc(nic, &pd), -EDQUOT);
    assert_int_equal(vb_hull_config_parse(text, sizeof text - 1, config, error), 0);
    assert_int_equal(vb_hull_reload(hull, config), 0);
    free(config);
    int err;
    WAIT_UNTIL((err = vb_pd_alloc(nic, &pd)) != -EDQUOT);
    assert_int_equal(err, 0);
    vb_nic_close(nic);
    vb_hull_close(hull);
}

// ---- the hull's end

static void test_a_hull_that_ends_is_told(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_nic_event event;
    struct vb_channel *channel;
    char why[VB_ERROR_TEXT];
    struct vb_pd *pd;
    struct vb_cq *cq;

    (void)state;
    struct duo_end e = {.nic = nic};
    assert_int_equal(vb_pd_alloc(nic, &e.pd), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16}, &e.cq), 0);
    duo_make_qp(&e, (struct vb_qp_opts){0});
    assert_int_equal(vb_channel_create(nic, &channel), 0);
    assert_int_equal(vb_nic_take_event(nic, &event), -EAGAIN);
    assert_int_equal(vb_channel_take(channel, &cq), -EAGAIN);
    vb_hull_close(hull);
    assert_int_equal(vb_pd_alloc(nic, &pd), -ENOTCONN);
    vb_hull_why(nic, why);
    assert_string_equal(why, "the hull is gone");
    assert_int_equal(vb_nic_take_event(nic, &event), -ENOTCONN);
    assert_int_equal(vb_channel_take(channel, &cq), -ENOTCONN);
    vb_nic_close(nic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_greeting_must_match),
        cmocka_unit_test(test_messages_have_one_length),
        cmocka_unit_test(test_the_socket_is_ours_alone),
        cmocka_unit_test(test_a_socket_left_behind_is_replaced),
        cmocka_unit_test(test_without_a_hull_words_say_so),
        cmocka_unit_test(test_only_sealed_memory_is_taken),
        cmocka_unit_test(test_named_memory_stays),
        cmocka_unit_test(test_others_do_not_exist),
        cmocka_unit_test(test_bells_of_others_are_not_rung),
        cmocka_unit_test(test_nobody_waits_for_another),
        cmocka_unit_test(test_what_is_there_is_counted),
        cmocka_unit_test(test_a_child_has_no_part_in_it),
        cmocka_unit_test(test_a_quota_is_a_refusal),
        cmocka_unit_test(test_other_quotas_while_it_runs),
        cmocka_unit_test(test_a_hull_that_ends_is_told),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
