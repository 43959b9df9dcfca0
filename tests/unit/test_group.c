// SPDX-License-Identifier: Apache-2.0
// Datagrams to multicast groups, through the public interface over loopback.
#include "duo.h"
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    QKEY = 0x77,
    GRH = 40,
};

// A group of this process alone: 239.x.y.z, or ff15::… over IPv6.
static void group_gid(const struct duo *d, uint8_t which, uint8_t gid[16])
{
    unsigned pid = (unsigned)getpid();
    memset(gid, 0, 16);
    if (strcmp(d->state->way, "ipv6") == 0) {
        gid[0] = 0xff;
        gid[1] = 0x15;
    } else {
        gid[10] = gid[11] = 0xff;
        gid[12] = 239;
    }
    gid[13] = (uint8_t)(pid >> 8);
    gid[14] = (uint8_t)pid;
    gid[15] = which;
}

static struct vb_qp *make_member(const struct duo_end *e, uint32_t qkey)
{
    struct vb_qp *qp = duo_make_qp(e, (struct vb_qp_opts){.service = VB_SERVICE_UD});
    assert_int_equal(vb_qp_connect(qp, &(struct vb_qp_peer){.mtu = 1024, .qkey = qkey}), 0);
    return qp;
}

static void send_to(const struct duo *d, struct vb_qp *qp, const uint8_t gid[16], uint32_t qpn,
                    uint32_t len)
{
    struct vb_send_wr wr = {.wr_id = 1, .opcode = VB_WR_SEND, .flags = VB_WR_SIGNALED};
    memcpy(wr.to.gid, gid, 16);
    wr.to.qpn = qpn;
    wr.to.qkey = QKEY;
    duo_post(d, qp, wr, 0, len);
}

static void expect_copy(const struct duo_end *e, uint64_t wr_id, const uint8_t gid[16],
                        const uint8_t *sent, uint32_t at, uint32_t len)
{
    struct vb_wc wc = duo_wait(e->cq);
    const uint8_t *got = e->memory + at;
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.opcode, VB_WC_RECV);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.byte_len, GRH + len);
    assert_memory_equal(got + GRH, sent, len);
    if (gid[0] == 0xff)
        assert_memory_equal(got + 24, gid, 16); // the header says where it was sent to
    else
        assert_memory_equal(got + GRH - 4, gid + 12, 4);
}

// Two members on one NIC and one that left; each has its own receive.
static void test_every_member_gets_a_copy(void **state)
{
    struct duo d;
    uint8_t gid[16];
    duo_open(&d, *state);
    group_gid(&d, 1, gid);
    struct vb_qp *from = make_member(&d.end[0], QKEY), *to[3];
    for (uint32_t i = 0; i < 3; i++) {
        to[i] = make_member(&d.end[1], QKEY);
        duo_post_recv(&d.end[1], to[i], 10 + i, 4096 * (i + 1), 2048);
        assert_int_equal(vb_qp_attach(to[i], gid), 0);
    }
    assert_int_equal(vb_qp_detach(to[1], gid), 0);
    duo_fill(d.end[0].memory, 1000, 3);
    send_to(&d, from, gid, VB_QPN_MULTICAST, 1000);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    expect_copy(&d.end[1], 10, gid, d.end[0].memory, 4096, 1000);
    expect_copy(&d.end[1], 12, gid, d.end[0].memory, 3 * 4096, 1000);
    duo_expect_quiet(d.end[1].cq);
    uint64_t packets = 0;
    assert_int_equal(vb_qp_counter(to[2], "rcvd_pkts", &packets), 0);
    assert_int_equal(packets, 1);
    assert_int_equal(duo_counter(d.end[1].nic, "rcvd_pkts"), 1); // one came
    duo_close(&d);
}

// Over IPv6 both ends are one NIC; elsewhere the group spans two.
static void test_members_on_both_nics(void **state)
{
    struct duo d;
    uint8_t gid[16];
    duo_open(&d, *state);
    group_gid(&d, 2, gid);
    struct vb_qp *qp[2];
    for (uint32_t i = 0; i < 2; i++) {
        qp[i] = make_member(&d.end[i], QKEY);
        duo_post_recv(&d.end[i], qp[i], 20 + i, 4096, 2048);
        assert_int_equal(vb_qp_attach(qp[i], gid), 0);
    }
    duo_fill(d.end[0].memory, 64, 4);
    send_to(&d, qp[0], gid, VB_QPN_MULTICAST, 64);
    expect_copy(&d.end[1], 21, gid, d.end[0].memory, 4096, 64);
    // The sender's own copy, and its completion, in whichever order.
    struct vb_wc first = duo_wait(d.end[0].cq), second = duo_wait(d.end[0].cq);
    assert_int_equal(first.wr_id + second.wr_id, 1 + 20);
    assert_memory_equal(d.end[0].memory + 4096 + GRH, d.end[0].memory, 64);
    duo_close(&d);
}

// Who must not get a copy: another key, another group, no receive, destroyed; and who is asked for
// by a queue pair's own number or by the wrong address.
static void test_who_gets_none(void **state)
{
    struct duo d;
    uint8_t gid[16], other[16], own[16];
    duo_open(&d, *state);
    group_gid(&d, 3, gid);
    group_gid(&d, 4, other);
    struct vb_qp *from = make_member(&d.end[0], QKEY);
    struct vb_qp *stranger = make_member(&d.end[1], QKEY + 1);
    struct vb_qp *elsewhere = make_member(&d.end[1], QKEY), *gone = make_member(&d.end[1], QKEY);
    struct vb_qp *empty = make_member(&d.end[1], QKEY), *member = make_member(&d.end[1], QKEY);
    struct vb_qp *deaf[] = {stranger, elsewhere, gone, member};
    for (unsigned i = 0; i < 4; i++)
        duo_post_recv(&d.end[1], deaf[i], 30 + i, 4096 * i, 2048);
    assert_int_equal(vb_qp_attach(stranger, gid), 0);
    assert_int_equal(vb_qp_attach(elsewhere, other), 0);
    assert_int_equal(vb_qp_attach(gone, gid), 0);
    assert_int_equal(vb_qp_attach(empty, gid), 0);
    assert_int_equal(vb_qp_destroy(gone), 0);
    send_to(&d, from, gid, VB_QPN_MULTICAST, 64);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    duo_expect_quiet(d.end[1].cq);
    assert_int_equal(duo_counter(d.end[1].nic, "qkey_violations"), 1);
    assert_int_equal(duo_counter(d.end[1].nic, "out_of_buffer"), 1);
    assert_int_equal(vb_qp_attach(member, gid), 0);
    vb_nic_gid(d.end[1].nic, own);
    send_to(&d, from, own, VB_QPN_MULTICAST, 64); // not a group's address
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    duo_expect_quiet(d.end[1].cq);
    send_to(&d, from, gid, vb_qp_num(member), 64);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    duo_expect_quiet(d.end[1].cq);
    send_to(&d, from, gid, VB_QPN_MULTICAST, 64);
    duo_expect(d.end[0].cq, 1, VB_WC_OK);
    assert_int_equal(duo_wait(d.end[1].cq).wr_id, 33);
    duo_close(&d);
}

static void test_refusals(void **state)
{
    struct duo d;
    uint8_t gid[16], own[16], family[16] = {0};
    struct vb_qp *rc[2];
    duo_open(&d, *state);
    group_gid(&d, 5, gid);
    vb_nic_gid(d.end[0].nic, own);
    if (gid[0] == 0xff)
        memcpy(family + 10, "\xff\xff\xef\x01\x02\x03", 6);
    else
        memcpy(family, "\xff\x15", 2);
    duo_connect(&d, VB_SERVICE_RC, rc);
    struct vb_qp *qp = make_member(&d.end[0], QKEY);
    assert_int_equal(vb_qp_attach(rc[0], gid), -EINVAL);
    assert_int_equal(vb_qp_attach(qp, own), -EINVAL);
    assert_int_equal(vb_qp_attach(qp, family), -EAFNOSUPPORT);
    assert_int_equal(vb_qp_detach(qp, gid), -ENOENT);
    assert_int_equal(vb_qp_attach(qp, gid), 0);
    assert_int_equal(vb_qp_attach(qp, gid), -EEXIST);
    assert_int_equal(vb_qp_detach(qp, gid), 0);
    assert_int_equal(vb_qp_detach(qp, gid), -ENOENT);
    assert_int_equal(vb_qp_attach(qp, gid), 0); // and back
    duo_close(&d);
}

static void test_memory_has_no_groups(void **state)
{
    struct duo d;
    uint8_t gid[16];
    duo_open(&d, *state);
    group_gid(&d, 6, gid);
    struct vb_qp *qp = make_member(&d.end[0], QKEY);
    assert_int_equal(vb_qp_attach(qp, gid), -EOPNOTSUPP);
    assert_int_equal(vb_nic_set_faults(d.end[0].nic, "drop=1%", NULL), 0);
    assert_int_equal(vb_qp_attach(qp, gid), -EOPNOTSUPP);
    assert_int_equal(vb_qp_detach(qp, gid), -ENOENT);
    duo_close(&d);
}

// Frames held back by faults still know their group.
static void test_delayed_copies(void **state)
{
    struct duo d;
    uint8_t gid[16];
    duo_open(&d, *state);
    group_gid(&d, 7, gid);
    assert_int_equal(vb_nic_set_faults(d.end[1].nic, "delay=5ms,dir=rx", NULL), 0);
    struct vb_qp *from = make_member(&d.end[0], QKEY), *to = make_member(&d.end[1], QKEY);
    duo_post_recv(&d.end[1], to, 40, 4096, 2048);
    assert_int_equal(vb_qp_attach(to, gid), 0);
    send_to(&d, from, gid, VB_QPN_MULTICAST, 64);
    expect_copy(&d.end[1], 40, gid, d.end[0].memory, 4096, 64);
    duo_close(&d);
}

// Members on two units: each unit hears the group by itself.
static void test_members_on_several_units(void **state)
{
    struct duo d = {.state = *state};
    char address[16];
    uint8_t gid[16];
    struct vb_cq *cq[2];
    pair_address(1, address);
    const struct vb_nic_opts opts = {.address = address, .units = 2, .faults = "off"};
    d.end[0].nic = d.state->nic[0] = duo_open_nic(0, "udp");
    assert_int_equal(vb_nic_open(&opts, &d.state->nic[1]), 0);
    d.end[1].nic = d.state->nic[1];
    duo_open_ends(&d);
    group_gid(&d, 8, gid);
    struct vb_qp *from = make_member(&d.end[0], QKEY);
    for (uint32_t i = 0; i < 2; i++) {
        const struct vb_cq_opts on = {.entries = 16, .unit = i + 1};
        assert_int_equal(vb_cq_create(d.end[1].nic, &on, &cq[i]), 0);
        struct duo_end e = d.end[1];
        e.cq = cq[i];
        struct vb_qp *qp = make_member(&e, QKEY);
        duo_post_recv(&e, qp, 50 + i, 4096 * i, 2048);
        assert_int_equal(vb_qp_attach(qp, gid), 0);
    }
    send_to(&d, from, gid, VB_QPN_MULTICAST, 64);
    duo_expect(cq[0], 50, VB_WC_OK);
    duo_expect(cq[1], 51, VB_WC_OK);
    duo_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_every_member_gets_a_copy, "udp"),
        DUO_TEST(test_every_member_gets_a_copy, "auto"),
        DUO_TEST(test_every_member_gets_a_copy, "hull"),
        DUO_TEST(test_members_on_both_nics, "udp"),
        DUO_TEST(test_members_on_both_nics, "auto"),
        DUO_TEST(test_members_on_both_nics, "hull"),
        DUO_TEST(test_who_gets_none, "udp"),
        DUO_TEST(test_who_gets_none, "hull"),
        DUO_TEST(test_refusals, "udp"),
        DUO_TEST(test_refusals, "auto"),
        DUO_TEST(test_refusals, "ipv6"),
        DUO_TEST(test_refusals, "hull"),
        DUO_TEST(test_memory_has_no_groups, "shm"),
        DUO_TEST(test_delayed_copies, "udp"),
        DUO_TEST(test_members_on_several_units, "udp"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
