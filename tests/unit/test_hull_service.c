// SPDX-License-Identifier: Apache-2.0
// Services: what is left behind goes on working, and the next process goes on where the last one
// stood, wherever that was.
#include "duo.h"
#include "service_kit.h"
#include "skips.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

// ---- what stays

// The hull is in this process, too, and may have mapped something there meanwhile.
static bool is_free(void *at)
{
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *map = mmap(at, SERVICE_BYTES, PROT_NONE, how, -1, 0);

    if (map != MAP_FAILED)
        munmap(map, SERVICE_BYTES);
    return map == at;
}

static void test_everything_is_found_again(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_hull_counts before, after;
    struct service_app a;
    uint32_t lives;
    uint64_t sent;

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_service_lives(a.nic, &lives), 0);
    assert_int_equal(lives, 0);
    uint32_t key = vb_mr_key(a.mr), qpn = vb_qp_num(a.qp[1]), cqn = vb_cq_num(a.cq);
    uint32_t srqn = vb_srq_num(a.srq);
    uint8_t *memory = a.memory;
    memset(memory + SERVICE_BYTES / 2, 0x5a, 1024);
    service_read(&a, a.qp[0], 1);
    duo_expect(a.cq, 1, VB_WC_OK);
    before = hull_kit_wait(hull, 1);
    service_leave(&a, hull);
    service_find(&a, hull);
    after = hull_kit_wait(hull, 1);
    assert_int_equal(before.objects, after.objects);
    assert_int_equal(before.bytes, after.bytes);
    assert_int_equal(vb_service_lives(a.nic, &lives), 0);
    assert_int_equal(lives, 1);
    assert_ptr_equal(a.memory, memory);
    // At the same address, unless the hull or the sanitizer, in this process, was there first.
    assert_true(a.here == memory || !is_free(memory));
    assert_int_equal(a.here[1023], 0x5a);
    assert_int_equal(vb_mr_key(a.mr), key);
    assert_int_equal(vb_qp_num(a.qp[1]), qpn);
    assert_int_equal(vb_cq_num(a.cq), cqn);
    assert_int_equal(vb_srq_num(a.srq), srqn);
    assert_string_equal(vb_qp_state_text(a.qp[0]), "RTS");
    assert_int_equal(vb_qp_counter(a.qp[0], "sent_pkts", &sent), 0);
    assert_true(sent > 0);
    for (uint64_t n = 2; n < 100; n++) { // some times around the ring
        a.here[SERVICE_BYTES / 2] = (uint8_t)n;
        service_read(&a, a.qp[n % 2], n);
        duo_expect(a.cq, n, VB_WC_OK);
        assert_int_equal(a.here[0], (uint8_t)n);
        if (n % 10 == 0)
            service_change(&a, hull);
    }
    service_end(&a, hull);
}

// What was posted and not polled, and only that.
static void test_requests_keep_their_numbers(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    uint64_t wr_id;

    (void)state;
    service_make(&a, hull, false);
    for (uint64_t n = 1; n <= SERVICE_DEPTH; n++)
        service_recv(a.qp[1], 100 + n);
    assert_int_equal(vb_post_recv(a.qp[1], &(struct vb_recv_wr){0}, 1), 0); // it is full
    service_read(&a, a.qp[0], 1);
    duo_expect(a.cq, 1, VB_WC_OK);
    for (uint64_t n = 1; n <= 3; n++)
        service_send(a.qp[0], n);
    for (uint64_t n = 2; n <= 3; n++)
        service_read(&a, a.qp[0], n);
    service_await(a.cq, 6);
    struct vb_wc wc;
    service_change(&a, hull);
    for (uint32_t i = 0; i < SERVICE_DEPTH; i++) { // the receive of the first message waits, too
        assert_int_equal(vb_service_pending(a.qp[1], true, i, &wr_id), 0);
        assert_int_equal(wr_id, 101 + i);
    }
    assert_int_equal(vb_service_pending(a.qp[1], true, SERVICE_DEPTH, &wr_id), -ENOENT);
    assert_int_equal(vb_post_recv(a.qp[1], &(struct vb_recv_wr){0}, 1), 0);
    assert_int_equal(vb_service_pending(a.qp[0], false, 0, &wr_id), 0);
    assert_int_equal(vb_service_pending(a.qp[1], false, 0, &wr_id), -ENOENT);
    uint64_t reads = 1, receives = 0;
    for (unsigned i = 0; i < 5; i++) {
        wc = duo_wait(a.cq);
        if (wc.opcode == VB_WC_RECV)
            assert_int_equal(wc.wr_id, 101 + receives++);
        else
            assert_int_equal(wc.wr_id, ++reads);
        assert_int_equal(wc.status, VB_WC_OK);
    }
    assert_int_equal(reads, 3);
    assert_int_equal(receives, 3);
    service_change(&a, hull);
    assert_int_equal(vb_service_pending(a.qp[1], true, 0, &wr_id), 0);
    assert_int_equal(wr_id, 104);
    assert_int_equal(vb_service_pending(a.qp[1], true, SERVICE_DEPTH - 3, &wr_id), -ENOENT);
    assert_int_equal(vb_poll_cq(a.cq, &wc, 1), 0); // nothing is told twice
    service_end(&a, hull);
}

// However many were taken, completed or polled: each entry is somebody's, and nobody's twice.
static void test_shared_receives(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;
    uint64_t posted = 0, sent = 0, taken = 0, reads = 0;

    (void)state;
    service_make(&a, hull, true);
    for (unsigned round = 0; round < 30; round++) {
        struct vb_recv_wr wr = {.wr_id = 1000 + posted};
        while (vb_post_srq(a.srq, &wr, 1) == 1)
            wr.wr_id = 1000 + ++posted;
        assert_int_equal(posted - taken, SERVICE_SRQ_DEPTH);
        for (unsigned i = 0; i < 1 + round % (SERVICE_SRQ_DEPTH - 1); i++)
            service_send(a.qp[0], ++sent);
        service_read(&a, a.qp[0], 1); // by which the messages complete, too
        service_await(a.cq, sent + ++reads);
        if (round % 3 == 1)
            service_change(&a, hull);
        while (taken < (round % 2 ? sent : sent - 1)) {
            struct vb_wc wc = duo_wait(a.cq);
            assert_int_equal(wc.status, VB_WC_OK);
            if (wc.opcode == VB_WC_READ)
                continue;
            assert_int_equal(wc.wr_id, 1000 + taken); // in the order in which they were posted
            taken++;
            assert_int_equal(wc.imm, taken);
        }
        if (round % 3 == 2)
            service_change(&a, hull);
    }
    service_end(&a, hull);
}

// It works while nobody is there, and what happens then is told to who comes.
static void test_it_works_without_an_owner(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct duo_end e = {.nic = nic};
    struct vb_qp_peer peer = {.rights = DUO_REMOTE, .mtu = 1024};
    struct vb_cq *told = NULL;
    struct service_app a;
    void *memory;

    (void)state;
    service_make(&a, hull, false);
    assert_int_equal(vb_pd_alloc(nic, &e.pd), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, SERVICE_BYTES, &memory), 0);
    assert_int_equal(vb_mr_reg(e.pd, memory, SERVICE_BYTES, DUO_RIGHTS, &e.mr), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 64}, &e.cq), 0);
    struct vb_qp *client = duo_make_qp(&e, (struct vb_qp_opts){0});
    assert_int_equal(vb_qp_change(a.qp[1], &(struct vb_qp_change){.to = VB_QP_RESET}), 0);
    vb_nic_gid(nic, peer.gid);
    peer.qpn = vb_qp_num(a.qp[1]);
    assert_int_equal(vb_qp_connect(client, &peer), 0);
    peer.qpn = vb_qp_num(client);
    assert_int_equal(vb_qp_connect(a.qp[1], &peer), 0);
    service_recv(a.qp[1], 55);
    assert_int_equal(vb_cq_arm(a.cq, false), 0);
    memset(a.memory + SERVICE_BYTES / 2, 0x33, 1024);
    uint64_t raddr = (uintptr_t)a.memory + SERVICE_BYTES / 2;
    uint32_t key = vb_mr_key(a.mr);
    vb_nic_close(a.nic);
    hull_kit_wait(hull, 1);
    const struct vb_sge sge = {(uintptr_t)memory, 1024, vb_mr_key(e.mr)};
    const struct vb_send_wr wr = {.wr_id = 9,
                                  .opcode = VB_WR_READ,
                                  .flags = VB_WR_SIGNALED,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .raddr = raddr,
                                  .rkey = key};
    assert_int_equal(vb_post_send(client, &wr, 1), 1);
    duo_expect(e.cq, 9, VB_WC_OK);
    assert_int_equal(((uint8_t *)memory)[1023], 0x33);
    service_send(client, 10);
    assert_int_equal(vb_post_send(client, &wr, 1), 1);
    duo_expect(e.cq, 9, VB_WC_OK); // so the message is there, too
    service_find(&a, hull);
    assert_true(duo_is_readable(vb_channel_fd(a.channel), DUO_PATIENCE_S * 1000));
    assert_int_equal(vb_channel_take(a.channel, &told), 0);
    assert_ptr_equal(told, a.cq);
    struct vb_wc wc = duo_wait(a.cq);
    assert_int_equal(wc.wr_id, 55);
    assert_int_equal(wc.imm, 10);
    vb_nic_close(nic);
    service_end(&a, hull);
}

// Where the address is taken, memory is elsewhere, and keys name the old one.
static void test_memory_elsewhere(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    uint8_t *was = a.memory;
    service_leave(&a, hull);
    void *taken = mmap(was, SERVICE_BYTES, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    service_find(&a, hull);
    assert_ptr_equal(a.memory, was);
    assert_ptr_not_equal(a.here, was);
    memset(a.here + SERVICE_BYTES / 2, 0x77, 1024);
    service_read(&a, a.qp[0], 5); // by the old address
    duo_expect(a.cq, 5, VB_WC_OK);
    assert_int_equal(a.here[1023], 0x77);
    if (taken != MAP_FAILED)
        munmap(taken, SERVICE_BYTES);
    service_leave(&a, hull);
    service_find(&a, hull);
    assert_ptr_equal(a.memory, was);
    assert_true(a.here == was || !is_free(was)); // attaching maps something, too
    service_end(&a, hull);
}

// Memory with a name, the application's own, and what has another tag.
static void test_tags_and_names(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = service_open(hull, "test");
    struct vb_service_memory memory;
    void *named, *again, *given;
    struct vb_mr *mr[3], *found;
    struct vb_pd *pd;
    struct vb_mw *mw;

    (void)state;
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    given = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(vb_hull_alloc(nic, "table", SERVICE_BYTES, &named), 0);
    assert_int_equal(vb_service_tag(nic, 1), 0);
    assert_int_equal(vb_hull_give(nic, fd, given), 0);
    close(fd);
    memcpy(given, "mine", sizeof "mine");
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_mr_reg(pd, named, SERVICE_BYTES, DUO_RIGHTS, &mr[0]), 0);
    assert_int_equal(vb_mr_reg(pd, given, 4096, DUO_RIGHTS, &mr[1]), 0);
    assert_int_equal(vb_service_tag(nic, 2), 0);
    assert_int_equal(vb_mr_null(pd, &mr[2]), 0);
    assert_int_equal(vb_mw_alloc(pd, VB_MW_TYPE_2, &mw), 0);
    const uint32_t key[3] = {vb_mr_key(mr[0]), vb_mr_key(mr[1]), vb_mr_key(mr[2])};
    uint32_t window = vb_mw_key(mw);
    vb_nic_close(nic);
    munmap(given, 4096);
    nic = service_open(hull, "test");
    assert_int_equal(vb_service_memory(nic, 0, 0, &memory), 0);
    assert_string_equal(memory.name, "table");
    assert_int_equal(memory.was, (uintptr_t)named);
    assert_int_equal(vb_hull_alloc(nic, "table", SERVICE_BYTES, &again), 0); // the same, not once
                                                                             // more
    assert_ptr_equal(again, memory.addr);
    assert_int_equal(vb_service_memory(nic, 1, 0, &memory), 0);
    assert_string_equal(memory.addr, "mine");
    assert_int_equal(vb_service_memory(nic, 1, 1, &memory), -ENOENT);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(vb_service_mr(nic, 1 + i / 2, i % 2, &found), 0);
        assert_int_equal(vb_mr_key(found), key[i]);
    }
    assert_int_equal(vb_service_mr(nic, 0, 0, &found), -ENOENT);
    assert_int_equal(vb_service_mr(nic, 1, 2, &found), -ENOENT);
    assert_int_equal(vb_service_mw(nic, 2, 0, &mw), 0);
    assert_int_equal(vb_mw_key(mw), window);
    assert_int_equal(vb_mw_free(mw), 0);
    assert_int_equal(vb_service_release(nic), 0);
    vb_nic_close(nic);
    struct vb_hull_counts counts = hull_kit_wait(hull, 0);
    assert_int_equal(counts.objects, 0);
    assert_int_equal(counts.bytes, SERVICE_BYTES); // the name stays
    vb_hull_close(hull);
}

// ---- refusals

static void expect_refusal(const struct vb_hull *hull, const char *name, int error,
                           const char *words)
{
    char text[VB_ERROR_TEXT] = "";
    struct vb_nic *nic = NULL;

    assert_int_equal(service_try(hull, name, &nic, text), error);
    if (!strstr(text, words))
        fail_msg("'%s' does not say '%s'", text, words);
}

static void test_one_at_a_time(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_hull *other = hull_kit_open(1, "auto", NULL);
    char pid[32];
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    snprintf(pid, sizeof pid, "process %ld has", (long)getpid());
    expect_refusal(hull, "test", -EBUSY, pid);
    struct vb_nic *second = service_open(hull, "test2"); // another name is another service
    vb_nic_close(second);
    second = service_open(other, "test"); // and so is another hull's
    struct vb_pd *pd;
    assert_int_equal(vb_service_pd(second, SERVICE_TAG, 0, &pd), -ENOENT);
    vb_nic_close(second);
    service_read(&a, a.qp[0], 1); // and nobody was hurt
    duo_expect(a.cq, 1, VB_WC_OK);
    hull_kit_wait(other, 0);
    vb_hull_close(other);
    service_end(&a, hull);
}

static void test_names(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    char longest[VB_HULL_NAME + 1], text[VB_ERROR_TEXT];
    const struct vb_nic_opts here = {.service = "test", .error_text = text};
    struct vb_nic *nic;
    uint32_t lives;

    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[VB_HULL_NAME] = '\0';
    expect_refusal(hull, longest, -ENAMETOOLONG, "at most 63");
    expect_refusal(hull, "", -EINVAL, "needs a name");
    longest[VB_HULL_NAME - 1] = '\0';
    vb_nic_close(service_open(hull, longest));
    assert_int_equal(vb_nic_open(&here, &nic), -EINVAL);
    assert_non_null(strstr(text, "hull"));
    nic = hull_kit_attach(hull); // without a name
    assert_int_equal(vb_service_lives(nic, &lives), -EINVAL);
    assert_int_equal(vb_service_tag(nic, 1), -EINVAL);
    assert_int_equal(vb_service_release(nic), -EINVAL);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_protocol(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_hull_request hello = hull_kit_hello(), r = {.op = VB_HULL_SERVICE, .serial = 2};
    struct vb_hull_request pd = {.op = VB_HULL_PD_CREATE, .serial = 3};
    struct vb_hull_reply reply;

    (void)state;
    hello.hello.features = VB_HULL_SERVICES;
    hello.hello.version++;
    int socket = hull_kit_connect(hull);
    assert_int_equal(hull_kit_ask(socket, &hello, &reply), -EPROTO);
    assert_non_null(strstr(reply.text, "version"));
    close(socket);
    hello.hello.version--;
    socket = hull_kit_connect(hull);
    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &pd, &reply), -EPROTO); // it was to be named
    memset(r.memory.name, 'x', sizeof r.memory.name);
    assert_int_equal(hull_kit_ask(socket, &r, &reply), -ENAMETOOLONG);
    close(socket);
    hello.hello.features = 0;
    socket = hull_kit_connect(hull);
    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &pd, &reply), 0);
    struct vb_hull_request next = {.op = VB_HULL_SERVICE_NEXT, .value = VB_HULL_LIST_PD};
    assert_int_equal(hull_kit_ask(socket, &next, &reply), -ENOENT); // it is no service,
    snprintf(r.memory.name, sizeof r.memory.name, "late");
    assert_int_equal(hull_kit_ask(socket, &r, &reply), -EINVAL); // and cannot become one
    close(socket);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

static void test_lists_of_strangers(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_hull_request hello = hull_kit_hello(), r = {.op = VB_HULL_SERVICE, .serial = 2};
    struct vb_hull_request next = {.op = VB_HULL_SERVICE_NEXT, .value = VB_HULL_LISTS};
    struct vb_hull_request open = {.op = VB_HULL_MEMORY_OPEN, .number = 77};
    struct vb_hull_reply reply;
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    int socket = hull_kit_connect(hull);
    hello.hello.features = VB_HULL_SERVICES;
    assert_int_equal(hull_kit_ask(socket, &hello, &reply), 0);
    snprintf(r.memory.name, sizeof r.memory.name, "stranger");
    assert_int_equal(hull_kit_ask(socket, &r, &reply), 0);
    assert_int_equal(hull_kit_ask(socket, &next, &reply), -EINVAL);
    assert_int_equal(hull_kit_ask(socket, &open, &reply), -ENOENT);
    for (next.value = 0; next.value < VB_HULL_LISTS; next.value++) {
        assert_int_equal(hull_kit_ask(socket, &next, &reply), 0);
        assert_int_equal(reply.number, 0); // nothing of the other's
    }
    next.value = VB_HULL_LIST_QP;
    next.number = vb_qp_num(a.qp[0]);
    assert_int_equal(hull_kit_ask(socket, &next, &reply), -ENOENT);
    struct vb_hull_request channel = {.op = VB_HULL_CHANNEL_OPEN, .number = a.channel->number};
    assert_int_equal(hull_kit_ask(socket, &channel, &reply), -ENOENT);
    close(socket);
    hull_kit_wait(hull, 1);
    service_end(&a, hull);
}

// A service counts whether somebody is there or not; who comes back is not one more.
static void test_quotas(void **state)
{
    struct vb_hull *hull =
        hull_kit_open(0, "auto", "[tenant *]\napplications = 1\nqueue_pairs = 2\n");
    struct vb_qp *qp;
    struct service_app a;

    (void)state;
    service_make(&a, hull, false);
    expect_refusal(hull, "other", -EDQUOT, "applications");
    service_leave(&a, hull);
    expect_refusal(hull, "other", -EDQUOT, "applications");
    expect_refusal(hull, NULL, -EDQUOT, "applications");
    service_find(&a, hull);
    const struct vb_qp_opts opts = {.send_cq = a.cq, .recv_cq = a.cq, .send_depth = 1};
    assert_int_equal(vb_qp_create(a.pd, &opts, &qp), -EDQUOT);
    assert_int_equal(vb_service_release(a.nic), 0);
    vb_nic_close(a.nic);
    hull_kit_wait(hull, 0);
    vb_nic_close(service_open(hull, "other"));
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// Of another user the name is another's. Only root can become one.
static void test_another_user(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = NULL;
    struct service_app a;
    uint32_t lives = 77;
    struct vb_pd *pd;

    (void)state;
    if (geteuid() != 0 || chmod(getenv("VERBENA_RUNTIME_DIR"), 0755) != 0 ||
        chmod(hull->path, 0666) != 0) {
        vb_hull_close(hull);
        SKIP("needs root to become another user");
    }
    service_make(&a, hull, false);
    service_leave(&a, hull);
    assert_int_equal(seteuid(65534), 0);
    int err = service_try(hull, "test", &nic, NULL);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(getenv("VERBENA_RUNTIME_DIR"), 0700), 0);
    assert_int_equal(err, 0);
    assert_int_equal(vb_service_lives(nic, &lives), 0);
    assert_int_equal(lives, 0);
    assert_int_equal(vb_service_pd(nic, SERVICE_TAG, 0, &pd), -ENOENT);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    service_find(&a, hull);
    service_end(&a, hull);
}

static void test_the_hull_ends(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    char path[sizeof hull->path], error[VB_ERROR_TEXT];
    const struct vb_nic_opts opts = {.hull = path, .service = "test", .error_text = error};
    unsigned descriptors = hull_kit_descriptors(), mappings = hull_kit_mappings();
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct service_app a;

    (void)state;
    memcpy(path, hull->path, sizeof path);
    service_make(&a, hull, false);
    service_leave(&a, hull); // a detached one ends with it, too
    assert_true(hull_kit_descriptors() > descriptors);
    service_find(&a, hull);
    vb_hull_close(hull);
    assert_int_equal(vb_service_pd(a.nic, SERVICE_TAG, 0, &pd), -ENOTCONN);
    assert_int_equal(vb_service_release(a.nic), -ENOTCONN);
    assert_true(vb_nic_open(&opts, &nic) < 0);
    assert_non_null(strstr(error, "no hull"));
    vb_nic_close(a.nic);
    assert_true(hull_kit_descriptors() < descriptors);
    assert_true(hull_kit_mappings() <= mappings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_found_again),
        cmocka_unit_test(test_requests_keep_their_numbers),
        cmocka_unit_test(test_shared_receives),
        cmocka_unit_test(test_it_works_without_an_owner),
        cmocka_unit_test(test_memory_elsewhere),
        cmocka_unit_test(test_tags_and_names),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_protocol),
        cmocka_unit_test(test_lists_of_strangers),
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_another_user),
        cmocka_unit_test(test_the_hull_ends),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
