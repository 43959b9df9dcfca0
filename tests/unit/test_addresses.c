// SPDX-License-Identifier: Apache-2.0
// NICs on several addresses at once: IPv4, IPv6, 127.0.0.0/8 and ::1.
#include "crowd.h"
#include "duo.h"
#include "runtime_dir.h"
#include "skips.h"
#include "udp_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ADDRESSES = 4,
    GRH_BYTES = 40,
    QKEY = 0x1234,
    MATES = 8,
    PINGS = 50, // of each pair after a change
};

// The network is this process's own, so these are, too.
static const char *const address[ADDRESSES] = {"127.0.0.7", "fd00:5eed::1", "127.0.0.1", "::1"};

static void read_gid(const char *text, uint8_t gid[16])
{
    char mapped[80];
    snprintf(mapped, sizeof mapped, "::ffff:%s", text);
    assert_int_equal(inet_pton(AF_INET6, strchr(text, ':') ? text : mapped, gid), 1);
}

static struct vb_nic *open_on(const char *first, const char *port, uint32_t units)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic;
    const struct vb_nic_opts opts = {
        .address = first, .port = port, .faults = "off", .units = units, .error_text = why};
    if (vb_nic_open(&opts, &nic) != 0)
        fail_msg("%s", why);
    return nic;
}

static int take(struct vb_nic *nic, const char *text, char *why)
{
    uint8_t gid[16];
    read_gid(text, gid);
    return vb_nic_take_address_or_say(nic, gid, why);
}

static void take_all(struct vb_nic *nic)
{
    char why[VB_ERROR_TEXT] = "";
    for (int i = 0; i < ADDRESSES; i++)
        if (take(nic, address[i], why) != 0)
            fail_msg("%s: %s", address[i], why);
}

// ---- taking

static void test_taking(void **state)
{
    (void)state;
    struct vb_nic *nic = open_on(address[0], "udp", 1);
    uint8_t gid[16], wanted[16];
    assert_int_equal(vb_nic_address(nic, 0, gid), 0);
    assert_int_equal(vb_nic_address(nic, 1, gid), -ENOENT);
    assert_int_equal(take(nic, address[0], NULL), 0);
    assert_int_equal(vb_nic_address(nic, 1, gid), -ENOENT);
    for (uint32_t i = 1; i < ADDRESSES; i++) {
        assert_int_equal(take(nic, address[i], NULL), 0);
        assert_int_equal(take(nic, address[i], NULL), 0); // it is there
        read_gid(address[i], wanted);
        assert_int_equal(vb_nic_address(nic, i, gid), 0);
        assert_memory_equal(gid, wanted, 16);
        assert_int_equal(vb_nic_address(nic, i + 1, gid), -ENOENT);
        assert_int_equal(runtime_dir_count("in-"), i + 1);
    }
    vb_nic_gid(nic, gid);
    read_gid(address[0], wanted);
    assert_memory_equal(gid, wanted, 16);
    vb_nic_close(nic);
    assert_int_equal(runtime_dir_count("in-"), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    char why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic = open_on(address[0], "udp", 1), *memory = open_on("127.0.0.9", "shm", 1);
    assert_int_equal(take(nic, "192.0.2.55", why), -EADDRNOTAVAIL);
    assert_non_null(strstr(why, "192.0.2.55"));
    assert_int_equal(take(nic, "fe80::1", why), -EADDRNOTAVAIL);
    assert_int_equal(take(nic, "224.0.0.1", why), -EADDRNOTAVAIL);
    assert_int_equal(take(memory, address[2], why), -EOPNOTSUPP);
    assert_int_equal(take(memory, "127.0.0.9", why), 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(4791)};
    int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "127.0.0.8", &at.sin_addr);
    assert_int_equal(bind(other, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(take(nic, "127.0.0.8", why), -EADDRINUSE);
    assert_non_null(strstr(why, "in use"));
    close(other);
    assert_int_equal(take(nic, "127.0.0.8", why), 0);
    assert_int_equal(take(nic, address[1], why), 0);
    assert_int_equal(take(nic, address[2], why), 0);
    assert_int_equal(take(nic, address[3], why), -ENOSPC);
    vb_nic_close(nic);
    vb_nic_close(memory);
    assert_int_equal(runtime_dir_count("in-"), 0);
}

// ---- connections

struct ends {
    struct duo d;
    struct duo_state state;
};

static void open_ends(struct ends *e, const char *port, uint32_t units)
{
    *e = (struct ends){0};
    e->d.state = &e->state;
    e->d.end[0].nic = open_on(address[0], "udp", units);
    // The other one's first is of another family.
    e->d.end[1].nic = open_on(address[strcmp(port, "auto") == 0 ? 2 : 1], port, units);
    take_all(e->d.end[0].nic);
    take_all(e->d.end[1].nic);
    duo_open_ends(&e->d);
}

static void close_ends(struct ends *e)
{
    duo_close(&e->d);
    vb_nic_close(e->d.end[0].nic);
    vb_nic_close(e->d.end[1].nic);
}

// End 0 by its address `a`, end 1 by its address `b`, said or as they choose.
static void join(struct vb_qp *qp[2], int a, int b, bool says)
{
    for (int i = 0; i < 2; i++) {
        struct vb_qp_peer peer = {.psn = 9, .our_psn = 9, .mtu = 1024, .rights = DUO_REMOTE};
        peer.qpn = vb_qp_num(qp[!i]);
        read_gid(address[i == 0 ? b : a], peer.gid);
        if (says)
            read_gid(address[i == 0 ? a : b], peer.local);
        assert_int_equal(vb_qp_connect(qp[i], &peer), 0);
    }
}

static void expect_bytes(struct ends *e, struct vb_qp *qp[2], uint32_t len, uint32_t seed)
{
    duo_fill(e->d.end[0].memory, len, seed);
    duo_post_recv(&e->d.end[1], qp[1], 1, 0, len);
    duo_post(&e->d, qp[0], duo_wr(&e->d, VB_WR_SEND, 2), 0, len);
    duo_expect(e->d.end[1].cq, 1, VB_WC_OK);
    duo_expect(e->d.end[0].cq, 2, VB_WC_OK);
    (void)duo_counter(e->d.end[1].nic, "sent_pkts"); // orders what the packets did
    assert_memory_equal(e->d.end[0].memory, e->d.end[1].memory, len);
}

static void talk(const char *port, uint32_t units, int a, int b, bool says)
{
    struct ends e;
    struct vb_qp *qp[2];
    open_ends(&e, port, units);
    qp[0] = duo_make_qp(&e.d.end[0], (struct vb_qp_opts){0});
    qp[1] = duo_make_qp(&e.d.end[1], (struct vb_qp_opts){0});
    join(qp, a, b, says);
    expect_bytes(&e, qp, 64, 1);
    expect_bytes(&e, qp, 60000, 2);
    assert_int_equal(duo_counter(e.d.end[0].nic, "rx_bad_icrc"), 0);
    assert_int_equal(duo_counter(e.d.end[1].nic, "rx_bad_icrc"), 0);
    close_ends(&e);
}

static void test_each_address(void **state)
{
    (void)state;
    for (int i = 0; i < ADDRESSES; i++) {
        talk("udp", 1, i, i, true);
        talk("udp", 1, i, i, i != 0); // of two of 127.0.0.0/8 the first is chosen
    }
}

static void test_two_units(void **state)
{
    (void)state;
    for (int i = 0; i < ADDRESSES; i++)
        talk("udp", 2, i, i, true);
}

static void test_auto(void **state)
{
    (void)state;
    for (int i = 0; i < ADDRESSES; i++)
        talk("auto", 1, i, i, true);
}

// From one kind of address to another of the same family.
static void test_crosswise(void **state)
{
    (void)state;
    talk("udp", 1, 0, 2, true);
    talk("udp", 1, 2, 0, true);
    talk("udp", 1, 1, 3, true);
    talk("udp", 1, 3, 1, true);
}

static void test_an_address_that_it_is_not_on(void **state)
{
    (void)state;
    struct ends e;
    open_ends(&e, "udp", 1);
    struct vb_qp *qp = duo_make_qp(&e.d.end[0], (struct vb_qp_opts){0});
    struct vb_qp_peer peer = {.psn = 9, .our_psn = 9, .qpn = 77};
    read_gid(address[0], peer.gid);
    read_gid("127.0.0.77", peer.local);
    assert_int_equal(vb_qp_connect(qp, &peer), -EADDRNOTAVAIL);
    read_gid(address[1], peer.local); // of the other family
    assert_int_equal(vb_qp_connect(qp, &peer), -EINVAL);
    read_gid(address[2], peer.local);
    assert_int_equal(vb_qp_connect(qp, &peer), 0);
    close_ends(&e);
}

// ---- datagrams

static void expect_head(const uint8_t *head, const char *from, const char *to)
{
    uint8_t src[16], dst[16];
    read_gid(from, src);
    read_gid(to, dst);
    if (strchr(from, ':')) {
        assert_int_equal(head[0] >> 4, 6);
        assert_memory_equal(head + 8, src, 16);
        assert_memory_equal(head + 24, dst, 16);
    } else {
        assert_int_equal(head[20] >> 4, 4);
        assert_memory_equal(head + 32, src + 12, 4);
        assert_memory_equal(head + 36, dst + 12, 4);
    }
}

// `source` as of struct vb_send_wr: then it comes from that address.
static void send_datagram(struct ends *e, struct vb_qp *qp[2], const char *to, uint32_t source,
                          const char *from)
{
    struct vb_send_wr wr = duo_wr(&e->d, VB_WR_SEND, 2);
    read_gid(to, wr.to.gid);
    wr.to.qpn = vb_qp_num(qp[1]);
    wr.to.qkey = QKEY;
    wr.to.source = source;
    duo_post_recv(&e->d.end[1], qp[1], 1, 0, GRH_BYTES + 64);
    duo_post(&e->d, qp[0], wr, 0, 64);
    duo_expect(e->d.end[0].cq, 2, VB_WC_OK);
    duo_expect(e->d.end[1].cq, 1, VB_WC_OK);
    (void)duo_counter(e->d.end[1].nic, "sent_pkts");
    expect_head(e->d.end[1].memory, from, to);
    assert_memory_equal(e->d.end[0].memory, e->d.end[1].memory + GRH_BYTES, 64);
}

static void test_datagrams(void **state)
{
    (void)state;
    struct ends e;
    struct vb_qp *qp[2];
    open_ends(&e, "udp", 1);
    for (int i = 0; i < 2; i++) {
        qp[i] = duo_make_qp(&e.d.end[i], (struct vb_qp_opts){.service = VB_SERVICE_UD});
        assert_int_equal(vb_qp_connect(qp[i], &(struct vb_qp_peer){.qkey = QKEY}), 0);
    }
    duo_fill(e.d.end[0].memory, 64, 5);
    // End 0 is at them in this order. Who does not say gets the first of the peer's kind.
    for (uint32_t i = 0; i < ADDRESSES; i++) {
        send_datagram(&e, qp, address[i], 1 + i, address[i]);
        send_datagram(&e, qp, address[i], 0, address[i == 2 ? 0 : i]);
    }
    send_datagram(&e, qp, address[0], 3, address[2]);
    send_datagram(&e, qp, address[3], 2, address[1]);
    // Of the other family: refused, and the next one goes.
    struct vb_send_wr wr = duo_wr(&e.d, VB_WR_SEND, 3);
    read_gid(address[3], wr.to.gid);
    wr.to.source = 1;
    duo_post(&e.d, qp[0], wr, 0, 64);
    assert_int_not_equal(duo_wait(e.d.end[0].cq).status, VB_WC_OK);
    close_ends(&e);
}

// ---- groups

static const char group[] = "239.7.7.7";

// End 0 is at the first address, end 1 at the one given.
static void open_for_group(struct ends *e, const char *second, struct vb_qp *qp[2], uint8_t gid[16])
{
    read_gid(group, gid);
    *e = (struct ends){0};
    e->d.state = &e->state;
    e->d.end[0].nic = open_on(address[0], "udp", 1);
    e->d.end[1].nic = open_on(second, "udp", 1);
    duo_open_ends(&e->d);
    for (int i = 0; i < 2; i++) {
        qp[i] = duo_make_qp(&e->d.end[i], (struct vb_qp_opts){.service = VB_SERVICE_UD});
        assert_int_equal(vb_qp_connect(qp[i], &(struct vb_qp_peer){.qkey = QKEY}), 0);
    }
}

static void send_to_group(struct ends *e, struct vb_qp *qp)
{
    struct vb_send_wr wr = duo_wr(&e->d, VB_WR_SEND, 2);
    read_gid(group, wr.to.gid);
    wr.to.qpn = VB_QPN_MULTICAST;
    wr.to.qkey = QKEY;
    duo_post(&e->d, qp, wr, 0, 64);
    duo_expect(e->d.end[0].cq, 2, VB_WC_OK);
}

// A group is joined by an address of its family, once there is one: end 1's first is of IPv6.
static void test_a_group_of_the_other_family(void **state)
{
    (void)state;
    struct ends e;
    struct vb_qp *qp[2];
    uint8_t gid[16];
    open_for_group(&e, address[1], qp, gid);
    assert_int_equal(vb_qp_attach(qp[1], gid), -EAFNOSUPPORT);
    assert_int_equal(take(e.d.end[1].nic, address[2], NULL), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(vb_qp_attach(qp[1], gid), 0);
        duo_post_recv(&e.d.end[1], qp[1], 1, 0, GRH_BYTES + 64);
        send_to_group(&e, qp[0]);
        duo_expect(e.d.end[1].cq, 1, VB_WC_OK);
        (void)duo_counter(e.d.end[1].nic, "sent_pkts");
        expect_head(e.d.end[1].memory, address[0], group);
        assert_int_equal(vb_qp_detach(qp[1], gid), 0);
    }
    close_ends(&e);
}

// Two addresses on one interface hear what comes there once, whichever was there first.
static void test_a_group_once_at_an_interface(void **state)
{
    (void)state;
    struct ends e;
    struct vb_qp *qp[2];
    uint8_t gid[16];
    open_for_group(&e, address[2], qp, gid);
    for (uint32_t i = 0; i < 3; i++)
        duo_post_recv(&e.d.end[1], qp[1], 10 + i, 0, GRH_BYTES + 64);
    assert_int_equal(vb_qp_attach(qp[1], gid), 0);
    assert_int_equal(take(e.d.end[1].nic, "127.0.0.8", NULL), 0);
    for (uint32_t round = 0; round < 2; round++) {
        send_to_group(&e, qp[0]);
        duo_expect(e.d.end[1].cq, 10 + round, VB_WC_OK);
        duo_expect_quiet(e.d.end[1].cq);
        assert_int_equal(vb_qp_detach(qp[1], gid), 0);
        send_to_group(&e, qp[0]);
        duo_expect_quiet(e.d.end[1].cq);
        assert_int_equal(vb_qp_attach(qp[1], gid), 0);
    }
    close_ends(&e);
}

// ---- a child of fork()

// What the child lets go of stays the parent's, at all of its addresses.
static void test_a_forked_child(void **state)
{
    (void)state;
    struct ends e;
    open_ends(&e, "udp", 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint8_t gid[16];
        read_gid(address[0], gid);
        bool refused = vb_nic_take_address(e.d.end[0].nic, gid) == -EPERM &&
                       vb_nic_address(e.d.end[0].nic, 1, gid) == -EPERM;
        if (DUO_CHILD_IS_FREE)
            vb_nic_close(e.d.end[0].nic);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < ADDRESSES; i++) {
        struct vb_qp *qp[2] = {duo_make_qp(&e.d.end[0], (struct vb_qp_opts){0}),
                               duo_make_qp(&e.d.end[1], (struct vb_qp_opts){0})};
        join(qp, i, i, true);
        expect_bytes(&e, qp, 3000, 1);
    }
    close_ends(&e);
}

// ---- who is silent, and who sleeps

// Nobody polls: the helper sleeps on all of them. And a side that was long silent is heard.
static void test_sleepers_hear_of_all(void **state)
{
    (void)state;
    struct ends e;
    struct vb_qp *qp[2];
    open_ends(&e, "udp", 1);
    for (int i = 0; i < ADDRESSES; i++) {
        qp[0] = duo_make_qp(&e.d.end[0], (struct vb_qp_opts){0});
        qp[1] = duo_make_qp(&e.d.end[1], (struct vb_qp_opts){0});
        join(qp, i, i, true);
        memset(e.d.end[1].memory, 0, 64);
        (void)duo_counter(e.d.end[1].nic, "sent_pkts"); // its lock: the helper writes there next
        duo_await_sleep(&e.d);
        duo_fill(e.d.end[0].memory, 64, (uint32_t)i);
        struct vb_send_wr wr = duo_wr(&e.d, VB_WR_WRITE, 4);
        duo_post(&e.d, qp[0], wr, 0, 64);
        duo_expect(e.d.end[0].cq, 4, VB_WC_OK); // end 1 does nothing at all
        (void)duo_counter(e.d.end[1].nic, "sent_pkts");
        assert_memory_equal(e.d.end[0].memory, e.d.end[1].memory, 64);
    }
    close_ends(&e);
}

// ---- many processes

static void stop(const struct crowd *c, unsigned mate, int signal)
{
    assert_int_equal(kill(c->mate[mate].pid, signal), 0);
}

static void kill_some(bool sleepy, uint32_t units)
{
    struct crowd *c = crowd_start_on(address, ADDRESSES, MATES, sleepy, units);
    crowd_kill(c, 0);
    crowd_expect_well(c, PINGS, 1);
    stop(c, 5, SIGKILL);
    stop(c, 4, SIGKILL);
    crowd_add_pair(c);
    crowd_expect_well(c, PINGS, 1 | 4);
    crowd_stop(c, c->count - 1);
    crowd_let_notice();
    crowd_expect_well(c, PINGS, 1 | 4 | 1u << (c->count / 2 - 1));
    stop(c, c->count - 1, SIGCONT);
    crowd_end(c);
}

static void test_some_are_killed(void **state)
{
    (void)state;
    kill_some(false, 1);
}

static void test_some_sleepy_ones_are_killed(void **state)
{
    (void)state;
    kill_some(true, 2);
}

// Who is on one address only must be right there when one dies that was on all.
static void test_neighbours_of_the_dead(void **state)
{
    (void)state;
    struct crowd *all = crowd_start_on(address, ADDRESSES, 4, false, 1);
    struct crowd *v6 = crowd_start(address[3], 4, false, 1);
    struct crowd *v4 = crowd_start(address[2], 4, true, 1);
    for (unsigned i = 0; i < 4; i++) {
        crowd_kill(all, i);
        crowd_expect_well(v6, PINGS, 0);
        crowd_expect_well(v4, PINGS, 0);
    }
    crowd_end(all);
    crowd_end(v6);
    crowd_end(v4);
    vb_nic_close(open_on("127.0.0.99", "udp", 1)); // buries those who were left
    assert_int_equal(runtime_dir_count("in-"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taking),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_each_address),
        cmocka_unit_test(test_two_units),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_crosswise),
        cmocka_unit_test(test_an_address_that_it_is_not_on),
        cmocka_unit_test(test_datagrams),
        cmocka_unit_test(test_a_group_of_the_other_family),
        cmocka_unit_test(test_a_group_once_at_an_interface),
        cmocka_unit_test(test_a_forked_child),
        cmocka_unit_test(test_sleepers_hear_of_all),
        cmocka_unit_test(test_some_are_killed),
        cmocka_unit_test(test_some_sleepy_ones_are_killed),
        cmocka_unit_test(test_neighbours_of_the_dead),
    };
    const char *why = udp_kit_enter_net();
    if (why != NULL)
        return skips_group("all", why);
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
