// SPDX-License-Identifier: Apache-2.0
// Queue pair 1 of several udp ports on one address: each message comes to the manager whose service
// or id it names, and what is nobody's to one of them.
#include "base/bytes.h"
#include "base/prng.h"
#include "cm/route.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/udp.h"
#include "port/udp_state.h"
#include "runtime_dir.h"
#include "udp_place.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MAD_AT = 20,
    BYTES = MAD_AT + VB_MAD_BYTES + 4,
    NAMED = 7000,    // a port that the system is told of
    UNNAMED = 40000, // and one that it is not
    NOBODYS = 9,
};

static void manage(struct udp_place *p, unsigned i, bool manages)
{
    p->port[i]->ops->manage(p->port[i], manages);
}

static int serve(struct udp_place *p, unsigned i, uint16_t number, bool serves)
{
    return p->port[i]->ops->serve(p->port[i], VB_CM_SPACE_TCP, number, serves);
}

// ---- messages

static void form(struct udp_place *p, uint8_t frame[BYTES], const struct vb_cm_message *m)
{
    memset(frame, 0, BYTES);
    frame[0] = VB_UD_SEND_ONLY;
    vb_put_be24(frame + 5, VB_GSI_QPN);
    vb_cm_encode(m, frame + MAD_AT);
    vb_icrc_seal(&p->from.path.icrc, 0, frame, BYTES);
}

static void send_message(struct udp_place *p, const struct vb_cm_message *m)
{
    uint8_t frame[BYTES];
    form(p, frame, m);
    assert_int_equal(sendto(p->from.fd, frame, BYTES, 0, &p->from.to.any, p->from.to_bytes), BYTES);
}

static void send_req(struct udp_place *p, uint16_t port)
{
    send_message(p, &(struct vb_cm_message){.kind = VB_CM_REQ,
                                            .local_id = 77,
                                            .req.service_id = vb_cma_service_id(VB_CMA_TCP, port)});
}

static struct vb_cm_message about(enum vb_cm_kind kind, uint32_t slot)
{
    uint32_t id = slot << (32 - VB_CM_PREFIX_BITS) | 5;
    struct vb_cm_message m = {.kind = kind, .local_id = 5, .remote_id = id};
    if (kind == VB_CM_SIDR_REP)
        m.local_id = id;
    return m;
}

static void expect_at(struct udp_place *p, unsigned i)
{
    udp_place_expect(p, i == 0, i == 1, i == 2);
}

// ---- by service

// Whoever takes the rest (the newest), with a manager or without.
static void test_requests_find_their_service(void **state)
{
    for (unsigned managers = 1; managers < 1 << UDP_PLACE_PORTS; managers++) {
        struct udp_place p;
        udp_place_open(&p, udp_kit_family(state), BYTES, 0);
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
            manage(&p, i, managers >> i & 1);
            assert_int_equal(serve(&p, i, (uint16_t)(NAMED + i), true), 0);
            assert_int_equal(serve(&p, i, (uint16_t)(UNNAMED + i), true), 0);
        }
        udp_place_expect(&p, 0, 0, 0); // but for the probes of their coming
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
            if (!(managers >> i & 1))
                continue;
            send_req(&p, (uint16_t)(NAMED + i));
            expect_at(&p, i);
            assert_int_equal(udp_place_forwarded(&p), 0);
            send_req(&p, (uint16_t)(UNNAMED + i));
            expect_at(&p, i);
            assert_int_equal(udp_place_forwarded(&p), i != UDP_PLACE_PORTS - 1);
            for (unsigned j = 0; j < UDP_PLACE_PORTS; j++)
                p.port[j]->stats.rx_forwarded = 0;
        }
        udp_place_close(&p);
    }
}

// Exactly one has to say that nobody serves it: the one to whom it came, if it can.
static void test_services_of_nobody(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    send_req(&p, NOBODYS);
    expect_at(&p, 2); // nobody manages: the newest keeps it, and has no queue pair for it
    manage(&p, 0, true);
    send_req(&p, NOBODYS);
    expect_at(&p, 0);
    manage(&p, 1, true);
    atomic_store(&udp_place_share(&p, 0)->registry.file->slot[udp_place_slot(&p, 0)].beat_ns,
                 1); // stopped
    send_req(&p, NOBODYS);
    expect_at(&p, 1);
    manage(&p, 2, true);
    send_req(&p, NOBODYS);
    expect_at(&p, 2);
    send_message(&p, &(struct vb_cm_message){.kind = VB_CM_REQ, .req.service_id = 1ull << 60});
    expect_at(&p, 2);
    udp_place_close(&p);
}

static void test_ports_are_one_nics(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    manage(&p, 0, true);
    manage(&p, 1, true);
    assert_int_equal(serve(&p, 0, NAMED, true), 0);
    assert_int_equal(serve(&p, 0, NAMED, true), 0); // it has it already
    assert_int_equal(serve(&p, 1, NAMED, true), -EADDRINUSE);
    // Another space is another matter.
    assert_int_equal(p.port[1]->ops->serve(p.port[1], VB_CM_SPACE_UDP, NAMED, true), 0);
    send_req(&p, NAMED);
    expect_at(&p, 0);
    send_message(
        &p, &(struct vb_cm_message){.kind = VB_CM_SIDR_REQ,
                                    .sidr_req.service_id = vb_cma_service_id(VB_CMA_IPOIB, NAMED)});
    expect_at(&p, 1);
    assert_int_equal(serve(&p, 0, NAMED, false), 0);
    assert_int_equal(serve(&p, 1, NAMED, true), 0);
    send_req(&p, NAMED);
    expect_at(&p, 1);
    // Who closes without a word has given it back.
    udp_place_close_port(&p, 1);
    assert_int_equal(serve(&p, 2, NAMED, true), 0);
    udp_place_close(&p);
}

// What the table says may be old, or nonsense.
static void test_a_wrong_table(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    struct registry_file *file = udp_place_share(&p, 0)->registry.file;
    manage(&p, 0, true);
    const uint16_t wrong[] = {1 + 400, REGISTRY_SLOTS + 1, 0xffff, 0,
                              (uint16_t)(udp_place_slot(&p, 1) + 1)}; // the last one does not
                                                                      // manage
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        atomic_store(&file->owner[VB_CM_SPACE_TCP][UNNAMED], wrong[i]);
        send_req(&p, UNNAMED);
        expect_at(&p, 0);
    }
    atomic_store(&file->owner[VB_CM_SPACE_TCP][UNNAMED], 0);
    udp_place_close(&p);
}

// ---- by id

static void test_answers_find_who_asked(void **state)
{
    static const enum vb_cm_kind kinds[] = {VB_CM_MRA, VB_CM_REJ,  VB_CM_REP,
                                            VB_CM_RTU, VB_CM_DREQ, VB_CM_DREP,
                                            VB_CM_LAP, VB_CM_APR,  VB_CM_SIDR_REP};
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        manage(&p, i, true);
    udp_place_expect(&p, 0, 0, 0);
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
            const struct vb_cm_message m = about(kinds[k], udp_place_slot(&p, i));
            send_message(&p, &m);
            expect_at(&p, i);
        }
    assert_int_equal(udp_place_forwarded(&p), 0); // the system knows
    // And who gets one that the system gave to the wrong one passes it on.
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        for (unsigned j = 0; j < UDP_PLACE_PORTS; j++) {
            const struct vb_cm_message m = about(VB_CM_REP, udp_place_slot(&p, i));
            uint8_t bytes[BYTES];
            form(&p, bytes, &m);
            const struct vb_rx_frame frame = {
                .data = bytes, .head = bytes, .len = BYTES, .src = p.from.path.local};
            struct udp *u = (struct udp *)p.port[j];
            assert_int_equal(vb_udp_manage_divert(u, &frame), i != j);
            vb_udp_mail_flush(u);
            udp_place_expect(&p, i == 0 && i != j, i == 1 && i != j, i == 2 && i != j);
        }
    udp_place_close(&p);
}

// A peer of who is no more is told by one of the others.
static void test_ids_of_nobody(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    manage(&p, 0, true);
    manage(&p, 1, true);
    uint32_t gone = udp_place_slot(&p, 1);
    const struct vb_cm_message m[] = {about(VB_CM_DREQ, gone), about(VB_CM_REP, 511),
                                      about(VB_CM_REP, 500)};
    udp_place_close_port(&p, 1);
    for (unsigned i = 0; i < sizeof m / sizeof *m; i++) {
        send_message(&p, &m[i]);
        expect_at(&p, 0);
    }
    manage(&p, 0, false);
    send_message(&p, &m[0]);
    expect_at(&p, 2); // nobody is there to answer
    udp_place_close(&p);
}

// Another process with a manager and two ports; tells its slot.
static pid_t start_owner(int family, uint32_t *slot)
{
    int told[2];
    char text[INET6_ADDRSTRLEN];
    const char *here = udp_kit_address(family, 1, text); // this process's
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct vb_port *port;
        const struct vb_udp_opts opts = {.address = here, .shared = true};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (vb_udp_open(&opts, &port) < 0)
            _exit(1);
        port->ops->manage(port, true);
        uint32_t own = port->qpn_base >> REGISTRY_RANGE_BITS;
        if (port->ops->serve(port, VB_CM_SPACE_TCP, NAMED, true) != 0 ||
            port->ops->serve(port, VB_CM_SPACE_TCP, UNNAMED, true) != 0 ||
            write(told[1], &own, sizeof own) != sizeof own)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(told[0], slot, sizeof *slot), sizeof *slot);
    close(told[0]);
    close(told[1]);
    return pid;
}

// Killed, and nobody has noticed yet: what names it is answered at once, by one of the others, and
// its port may be taken.
static void test_a_killed_owner(void **state)
{
    struct udp_place p;
    uint32_t slot;
    int status;
    pid_t pid = start_owner(udp_kit_family(state), &slot);
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    manage(&p, 0, true);
    manage(&p, 1, true);
    udp_place_expect(&p, 0, 0, 0);
    const struct vb_cm_message dreq = about(VB_CM_DREQ, slot);
    send_req(&p, UNNAMED);
    send_message(&p, &dreq);
    udp_place_expect(&p, 0, 0, 0); // it has them
    assert_int_equal(serve(&p, 1, NAMED, true), -EADDRINUSE);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t got[UDP_PLACE_PORTS];
        if (i == 0)
            send_message(&p, &dreq);
        else
            send_req(&p, i == 1 ? NAMED : UNNAMED);
        udp_place_receive(&p, got);
        assert_int_equal(got[0] + got[1], 1);
        assert_int_equal(got[2], 0);
    }
    assert_int_equal(serve(&p, 1, NAMED, true), 0);
    send_req(&p, NAMED);
    expect_at(&p, 1);
    udp_place_close(&p);
}

// A REJ for want of an answer names no id of its receiver's: all hear it.
static void test_a_refusal_without_an_id(void **state)
{
    struct udp_place p;
    const struct vb_cm_message m = {
        .kind = VB_CM_REJ, .local_id = 5, .rej = {.reason = VB_CM_TIMEOUT}};
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    for (unsigned managers = 1; managers < 1 << UDP_PLACE_PORTS; managers++) {
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
            manage(&p, i, managers >> i & 1);
        send_message(&p, &m);
        udp_place_expect(&p, managers & 1, managers >> 1 & 1, managers >> 2 & 1);
    }
    udp_place_close(&p);
}

// Its number lies in the first slot's range, whose holder has it no more than others do. Runs
// first: slots are given in turn.
static void test_the_first_slot(void **state)
{
    struct udp_place p;
    unsigned first = UDP_PLACE_PORTS;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        first = p.port[i]->qpn_base == 0 ? i : first;
    assert_true(first < UDP_PLACE_PORTS);
    unsigned other = (first + 1) % UDP_PLACE_PORTS;
    udp_place_close_port(&p, (first + 2) % UDP_PLACE_PORTS);
    manage(&p, other, true);
    assert_int_equal(serve(&p, other, UNNAMED, true), 0);
    // As if it were stopped: then the first takes what is nobody's.
    atomic_store(
        &udp_place_share(&p, other)->registry.file->slot[udp_place_slot(&p, other)].beat_ns, 1);
    vb_udp_share_renew(udp_place_share(&p, first));
    send_req(&p, UNNAMED);
    expect_at(&p, other);
    assert_int_equal(p.port[first]->stats.rx_forwarded, 1);
    manage(&p, first, true);
    send_req(&p, UNNAMED);
    expect_at(&p, other);
    send_req(&p, NOBODYS);
    expect_at(&p, first);
    udp_place_close(&p);
}

// What changed at another address of the NIC's, say, or while somebody else was at it: who takes
// the rest tells the system when its time comes.
static void test_a_program_is_brought_up_to_date(void **state)
{
    struct udp_place p;
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    udp_place_expect(&p, 0, 0, 0);
    struct udp_share *s = udp_place_share(&p, 2);                            // the newest
    atomic_store(&s->registry.file->slot[udp_place_slot(&p, 0)].manages, 1); // without a word
    const struct vb_cm_message m = about(VB_CM_RTU, udp_place_slot(&p, 0));
    send_message(&p, &m);
    expect_at(&p, 0);
    assert_int_equal(udp_place_forwarded(&p), 1);
    atomic_fetch_add(&s->registry.file->changes, 1);
    atomic_store(&s->tick_ns, 0);
    vb_udp_share_tend(s, vb_clock_ns());
    send_message(&p, &m);
    expect_at(&p, 0);
    assert_int_equal(udp_place_forwarded(&p), 1);
    udp_place_close(&p);
}

// ---- what must not be

// What is no message stays where it came; and no bytes do harm.
static void test_other_frames(void **state)
{
    struct udp_place p;
    struct vb_prng prng = {.state = fresh_seed()};
    uint8_t frame[BYTES];
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    manage(&p, 0, true);
    const struct vb_cm_message rep = about(VB_CM_REP, udp_place_slot(&p, 0));
    form(&p, frame, &rep);
    const uint32_t spoil[] = {0, MAD_AT, MAD_AT + 1, MAD_AT + 2, MAD_AT + 3, MAD_AT + 16};
    for (unsigned i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        const struct vb_rx_frame f = {
            .data = frame, .head = frame, .len = BYTES, .src = p.from.path.local};
        frame[spoil[i]] ^= 0x40;
        assert_false(vb_udp_manage_divert((struct udp *)p.port[2], &f));
        frame[spoil[i]] ^= 0x40;
        assert_true(vb_udp_manage_divert((struct udp *)p.port[2], &f));
    }
    vb_udp_mail_flush((struct udp *)p.port[2]);
    udp_place_expect(&p, sizeof spoil / sizeof *spoil, 0, 0);
    for (unsigned i = 0; i < 2000; i++) {
        uint32_t len = VB_ICRC_FRAME_MIN + (uint32_t)vb_prng_below(&prng, BYTES);
        uint8_t *bytes = malloc(len); // of just this length: a sanitizer sees who reads beyond
        for (uint32_t k = 0; k < len; k++)
            bytes[k] = (uint8_t)vb_prng_next(&prng);
        bytes[0] = VB_UD_SEND_ONLY;
        const struct vb_rx_frame f = {.data = bytes, .head = bytes, .len = len};
        assert_false(vb_udp_manage_divert((struct udp *)p.port[2], &f));
        free(bytes);
    }
    udp_place_close(&p);
}

// One who is stopped does not read, and what waits for it is charged to who sent it: the others
// must get theirs all the same.
static void test_a_full_inbox(void **state)
{
    struct udp_place p;
    static uint8_t big[4096];
    const struct vb_rx_frame frame = {.data = big, .head = big, .len = sizeof big};
    udp_place_open(&p, udp_kit_family(state), BYTES, 0);
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        manage(&p, i, true);
    udp_place_expect(&p, 0, 0, 0);
    struct udp *u = (struct udp *)p.port[2];
    for (unsigned i = 0; i < 400; i++)
        vb_udp_mail_enclose(u, udp_place_slot(&p, 0), 0, &frame);
    vb_udp_mail_flush(u);
    const struct vb_cm_message m = about(VB_CM_RTU, udp_place_slot(&p, 1));
    uint8_t bytes[BYTES];
    form(&p, bytes, &m);
    const struct vb_rx_frame rtu = {
        .data = bytes, .head = bytes, .len = BYTES, .src = p.from.path.local};
    assert_true(vb_udp_manage_divert(u, &rtu));
    vb_udp_mail_flush(u);
    uint32_t got = 0;
    for (unsigned round = 0; round < 4; round++)
        got += p.port[1]->ops->receive(p.port[1], p.frames);
    assert_int_equal(got, 1);
    udp_place_close(&p);
}

#define ALL_TESTS(family)                                                                        \
    {                                                                                            \
        UDP_KIT_TEST(test_the_first_slot, family),                                               \
            UDP_KIT_TEST(test_requests_find_their_service, family),                              \
            UDP_KIT_TEST(test_services_of_nobody, family),                                       \
            UDP_KIT_TEST(test_ports_are_one_nics, family),                                       \
            UDP_KIT_TEST(test_a_wrong_table, family),                                            \
            UDP_KIT_TEST(test_answers_find_who_asked, family),                                   \
            UDP_KIT_TEST(test_a_killed_owner, family), UDP_KIT_TEST(test_ids_of_nobody, family), \
            UDP_KIT_TEST(test_a_refusal_without_an_id, family),                                  \
            UDP_KIT_TEST(test_a_program_is_brought_up_to_date, family),                          \
            UDP_KIT_TEST(test_other_frames, family), UDP_KIT_TEST(test_a_full_inbox, family),    \
    }

int main(void)
{
    const struct CMUnitTest v4[] = ALL_TESTS(udp_kit_v4);
    const struct CMUnitTest v6[] = ALL_TESTS(udp_kit_v6);
    int failed = cmocka_run_group_tests(v4, runtime_dir_make, runtime_dir_remove);
    if (udp_kit_enter_v6(&failed))
        failed += cmocka_run_group_tests(v6, runtime_dir_make, runtime_dir_remove);
    return failed;
}
