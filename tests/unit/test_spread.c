// SPDX-License-Identifier: Apache-2.0
// Datagrams that are spread over the receive queues of others: the hash, who gets them, and who is
// gone.
#include "duo.h"
#include "forge.h"
#include "nic/spread.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    QKEY = 0x1234,
    QUEUES = 8,
};

static const uint8_t key[VB_SPREAD_KEY] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

// The key and the results that all makers of cards check themselves by: source, then destination.
static void test_the_hash(void **state)
{
    (void)state;
    static const struct {
        uint8_t input[8];
        uint32_t hash;
    } known[] = {
        {{66, 9, 149, 187, 161, 142, 100, 80}, 0x323e8fc2},
        {{199, 92, 111, 2, 65, 69, 140, 83}, 0xd718262a},
        {{24, 19, 198, 95, 12, 22, 207, 184}, 0xd2d0a5de},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_int_equal(vb_toeplitz(key, known[i].input, 8), known[i].hash);
    assert_int_equal(vb_toeplitz(key, known[0].input, 0), 0);
}

struct rig {
    struct duo d;
    struct vb_qp *from, *front, *back[QUEUES];
};

static void connect_ud(struct vb_qp *qp)
{
    assert_int_equal(vb_qp_connect(qp, &(struct vb_qp_peer){.qkey = QKEY}), 0);
}

static void open_rig(struct rig *r, struct duo_state *state)
{
    const struct vb_qp_opts ud = {.service = VB_SERVICE_UD};

    duo_open(&r->d, state);
    r->from = duo_make_qp(&r->d.end[0], ud);
    r->front = duo_make_qp(&r->d.end[1], ud);
    connect_ud(r->from);
    connect_ud(r->front);
    for (uint32_t i = 0; i < QUEUES; i++) {
        r->back[i] = duo_make_qp(&r->d.end[1], ud);
        connect_ud(r->back[i]);
        duo_post_recv(&r->d.end[1], r->back[i], i, 0, 256);
    }
}

static void send_to(struct rig *r, const struct vb_qp *to)
{
    struct vb_send_wr wr = duo_wr(&r->d, VB_WR_SEND, 50);

    vb_nic_gid(r->d.end[1].nic, wr.to.gid);
    wr.to.qpn = vb_qp_num(to);
    wr.to.qkey = QKEY;
    duo_post(&r->d, r->from, wr, 0, 64);
    duo_expect(r->d.end[0].cq, 50, VB_WC_OK);
}

static void test_one_of_them_gets_it(void **state)
{
    struct rig r;
    uint8_t input[8], gid[16];

    open_rig(&r, *state);
    assert_int_equal(
        vb_qp_spread(r.front, r.back, QUEUES, VB_SPREAD_SOURCE | VB_SPREAD_DESTINATION, key), 0);
    for (unsigned i = 0; i < 2; i++) {
        vb_nic_gid(r.d.end[i].nic, gid);
        memcpy(input + 4 * i, gid + 12, 4);
    }
    uint32_t which = vb_toeplitz(key, input, 8) % QUEUES;
    send_to(&r, r.front);
    struct vb_wc wc = duo_wait(r.d.end[1].cq);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, which);
    assert_int_equal(wc.qpn, vb_qp_num(r.back[which]));
    assert_int_equal(wc.src_qpn, vb_qp_num(r.from));
    // Its receives are used up: the next is lost, though others have some.
    send_to(&r, r.front);
    duo_expect_quiet(r.d.end[1].cq);
    // Who is gone gets nothing, and nobody minds.
    assert_int_equal(vb_qp_destroy(r.back[which]), 0);
    send_to(&r, r.front);
    duo_expect_quiet(r.d.end[1].cq);
    assert_int_equal(vb_qp_destroy(r.front), 0);
    send_to(&r, r.back[(which + 1) % QUEUES]); // the others are as before
    wc = duo_wait(r.d.end[1].cq);
    assert_int_equal(wc.wr_id, (which + 1) % QUEUES);
    duo_close(&r.d);
}

static void test_what_cannot_be_spread(void **state)
{
    struct rig r;
    struct vb_qp *rc[2];

    open_rig(&r, *state);
    duo_connect(&r.d, VB_SERVICE_RC, rc);
    assert_int_equal(vb_qp_spread(r.front, r.back, 3, 0, key), -EINVAL);
    assert_int_equal(vb_qp_spread(r.front, r.back, 0, 0, key), -EINVAL);
    assert_int_equal(vb_qp_spread(r.front, r.back, 256, 0, key), -EINVAL);
    assert_int_equal(vb_qp_spread(r.front, r.back, 2, 4, key), -EINVAL);
    assert_int_equal(vb_qp_spread(rc[1], r.back, 2, 0, key), -EINVAL);
    assert_int_equal(vb_qp_spread(r.front, &rc[1], 1, 0, key), -EINVAL);
    assert_int_equal(vb_qp_spread(r.front, &r.from, 1, 0, key), -EINVAL); // of another NIC
    assert_int_equal(vb_qp_spread(r.front, &r.front, 1, 0, key), -EINVAL);
    assert_int_equal(vb_qp_spread(r.front, r.back, 2, 0, key), 0);
    assert_int_equal(vb_qp_spread(r.front, r.back, 2, 0, key), -EINVAL);       // for good
    assert_int_equal(vb_qp_spread(r.back[0], &r.back[1], 1, 0, key), -EINVAL); // no chains
    send_to(&r, r.front); // without fields the hash is 0
    assert_int_equal(duo_wait(r.d.end[1].cq).wr_id, 0);
    duo_close(&r.d); // in any order
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hash),
        DUO_PORTS(test_one_of_them_gets_it),
        DUO_TEST(test_one_of_them_gets_it, "hull"),
        DUO_TEST(test_what_cannot_be_spread, "udp"),
        DUO_TEST(test_what_cannot_be_spread, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
