// SPDX-License-Identifier: Apache-2.0
// Multicast groups and spread sets of one device, and the facts it reports about its objects.
#include "forge.h"
#include "nic/facts.h"
#include "nic/spread.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    QKEY = 0x11223344,
    EXTRA = 4,
    GRH = 40,
};

static const struct vb_ip group = {{[10] = 0xff, 0xff, 224, 1, 2, 3}};
static const struct vb_ip other_group = {{0xff, 0x0e, [15] = 9}};

struct rig {
    struct forge *f;
    struct vb_driver_qp qp[EXTRA];
};

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct rig *r = ctx;

    if (r->f->qp.qpn == qpn)
        return &r->f->qp;
    for (uint32_t i = 0; i < EXTRA; i++)
        if (r->qp[i].qpn == qpn)
            return &r->qp[i];
    return NULL;
}

static void add_qp(struct rig *r, uint32_t i, enum vb_qp_type type)
{
    struct forge *f = r->f;
    struct vb_driver_qp *q = &r->qp[i];
    const struct vb_qp_opts opts = {
        .service = type == VB_QPT_UD ? VB_SERVICE_UD : VB_SERVICE_RC,
        .send_depth = 4,
        .recv_depth = 8,
        .send_sge = 1,
        .recv_sge = 1,
    };
    assert_int_equal(vb_driver_qp_init(q, &opts, 0, 0), 0);
    const struct vb_qpc_attr attr = {
        .pd = f->pd,
        .type = type,
        .send_cqn = f->send_cqn,
        .recv_cqn = f->recv_cqn,
        .sq_ring = q->sq.ring,
        .sq_blocks = q->sq.blocks,
        .rq_ring = q->rq.ring,
        .rq_entries = q->rq.entries,
        .rq_stride_bytes = q->rq.stride,
        .dbrec = q->dbrec,
    };
    assert_int_equal(vb_dev_qp_create(f->dev, &attr, &q->qpn), 0);
    q->doorbells = vb_dev_doorbells(f->dev);
}

static void raise_qp(struct rig *r, uint32_t i, enum vb_qp_state last)
{
    for (enum vb_qp_state s = VB_QPS_INIT; s <= last; s++) {
        struct vb_qpc_mods m = forge_mods(r->f, s);
        assert_int_equal(vb_dev_qp_modify(r->f->dev, r->qp[i].qpn, &m), 0);
    }
}

static void rig_open_on(struct rig *r, bool ipv6)
{
    struct forge_opts o = forge_defaults();

    memset(r, 0, sizeof *r);
    o.type = VB_QPT_UD;
    o.qkey = QKEY;
    o.ipv6 = ipv6;
    r->f = forge_open(&o);
    for (uint32_t i = 0; i < EXTRA; i++) {
        add_qp(r, i, VB_QPT_UD);
        raise_qp(r, i, VB_QPS_RTS);
    }
}

static void rig_open(struct rig *r)
{
    rig_open_on(r, false);
}

static void rig_close(struct rig *r)
{
    struct forge *f = r->f;

    forge_close(f); // the device goes before its rings
    for (uint32_t i = 0; i < EXTRA; i++)
        vb_driver_qp_fini(&r->qp[i]);
}

static void post(struct rig *r, struct vb_driver_qp *q, uint64_t wr_id)
{
    const struct vb_sge sge = {
        .addr = forge_addr(r->f, 256 * (uint32_t)wr_id), .len = 256, .lkey = r->f->key};
    const struct vb_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_driver_post_recv(q, &wr, 1), 1);
}

// A datagram of `len` bytes from `src`, to an address that may be a group's.
static void queue(struct rig *r, uint32_t qpn, const struct vb_ip *src, const struct vb_ip *to,
                  uint32_t len)
{
    uint8_t bytes[64] = {0};
    struct vb_packet p = forge_packet(r->f, VB_RC_SEND_ONLY, 0);

    p.dest_qpn = qpn;
    p.payload = bytes;
    p.payload_len = len;
    forge_queue_from(r->f, &p, src);
    r->f->feed[r->f->feed_count - 1].to = to;
}

// The next datagram that somebody received, as the number of its receive.
static void expect(struct rig *r, uint64_t wr_id, uint32_t len)
{
    struct vb_wc wc = {0};
    assert_int_equal(vb_driver_poll(&r->f->recv_cq, find, r, &wc, 1), 1);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.byte_len, GRH + len);
}

static void expect_none(struct rig *r)
{
    struct vb_wc wc;
    assert_int_equal(vb_driver_poll(&r->f->recv_cq, find, r, &wc, 1), 0);
}

// ---- groups

static void test_multicast_addresses(void **state)
{
    (void)state;
    static const struct vb_ip no[] = {{{[10] = 0xff, 0xff, 223, 255, 255, 255}},
                                      {{[10] = 0xff, 0xff, 240, 0, 0, 0}},
                                      {{0xfe, 0x80, [15] = 1}},
                                      {{[15] = 1}}};
    static const struct vb_ip yes[] = {{{[10] = 0xff, 0xff, 224, 0, 0, 0}},
                                       {{[10] = 0xff, 0xff, 239, 255, 255, 255}},
                                       {{0xff, 2, [15] = 1}}};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(vb_ip_is_multicast(&no[i]));
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(vb_ip_is_multicast(&yes[i]));
}

static void test_group_attach_refused(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r);
    struct vb_dev *dev = r.f->dev;
    assert_int_equal(vb_dev_qp_attach(dev, 0x777777, &group), -ENOENT);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[0].qpn, &r.f->local), -EINVAL);
    assert_int_equal(vb_dev_qp_detach(dev, r.qp[0].qpn, &group), -ENOENT);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[0].qpn, &group), 0);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[0].qpn, &group), -EEXIST);
    assert_int_equal(vb_dev_qp_detach(dev, r.qp[1].qpn, &group), -ENOENT);
    assert_int_equal(vb_dev_qp_detach(dev, r.qp[0].qpn, &other_group), -ENOENT);
    assert_int_equal(vb_dev_qp_destroy(dev, r.qp[0].qpn), 0);
    vb_driver_qp_fini(&r.qp[0]);
    add_qp(&r, 0, VB_QPT_RC);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[0].qpn, &group), -EINVAL);
    rig_close(&r);
}

static void test_group_copies(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r);
    struct vb_dev *dev = r.f->dev;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(vb_dev_qp_attach(dev, r.qp[i].qpn, &group), 0);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[3].qpn, &other_group), 0);
    assert_int_equal(vb_pu_members(r.f->pu, &group), 3);
    assert_int_equal(vb_pu_members(r.f->pu, &other_group), 1);
    assert_int_equal(vb_pu_members(r.f->pu, &r.f->local), 0);
    for (uint32_t i = 0; i < EXTRA; i++) {
        post(&r, &r.qp[i], 1 + i);
        post(&r, &r.qp[i], 11 + i);
    }
    uint64_t before = forge_counters(r.f)->rcvd_pkts, bytes = forge_counters(r.f)->rcvd_bytes;
    queue(&r, VB_QPN_OF_GROUP, &r.f->remote, &group, 8);
    uint32_t frame_len = r.f->feed[0].len;
    queue(&r, VB_QPN_OF_GROUP, &r.f->remote, &other_group, 12);
    frame_len += r.f->feed[1].len;
    forge_run(r.f);
    for (uint32_t i = 0; i < 3; i++)
        expect(&r, 1 + i, 8); // in the order in which they joined
    expect(&r, 4, 12);
    expect_none(&r);
    assert_int_equal(forge_counters(r.f)->rcvd_pkts - before, 2); // a frame counts once
    assert_int_equal(forge_counters(r.f)->rcvd_bytes - bytes, frame_len);
    for (uint32_t i = 0; i < EXTRA; i++) {
        assert_int_equal(vb_dev_qp(dev, r.qp[i].qpn)->count.rcvd_pkts, 1);
        assert_true(vb_dev_qp(dev, r.qp[i].qpn)->count.rcvd_bytes > 0);
    }
    // The middle one leaves; the others keep their order.
    assert_int_equal(vb_dev_qp_detach(dev, r.qp[1].qpn, &group), 0);
    queue(&r, VB_QPN_OF_GROUP, &r.f->remote, &group, 4);
    forge_run(r.f);
    expect(&r, 11, 4);
    expect(&r, 13, 4);
    expect_none(&r);
    queue(&r, VB_QPN_OF_GROUP, &r.f->remote, NULL, 4); // to no group
    queue(&r, VB_QPN_OF_GROUP, &r.f->remote, &r.f->local, 4);
    forge_run(r.f);
    expect_none(&r);
    rig_close(&r);
}

static void test_group_leave(void **state)
{
    struct rig r;
    struct vb_ip left = {{0}};
    (void)state;
    rig_open(&r);
    struct vb_dev *dev = r.f->dev;
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[0].qpn, &group), 0);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[1].qpn, &group), 0);
    assert_int_equal(vb_dev_qp_attach(dev, r.qp[0].qpn, &other_group), 0);
    assert_true(vb_dev_qp_leave(dev, r.qp[0].qpn, &left));
    assert_memory_equal(&left, &group, sizeof left);
    assert_true(vb_dev_qp_leave(dev, r.qp[0].qpn, &left));
    assert_memory_equal(&left, &other_group, sizeof left);
    assert_false(vb_dev_qp_leave(dev, r.qp[0].qpn, &left));
    assert_int_equal(vb_pu_members(r.f->pu, &group), 1);
    // Whoever is destroyed is a member no more.
    assert_int_equal(vb_dev_qp_destroy(dev, r.qp[1].qpn), 0);
    assert_int_equal(vb_pu_members(r.f->pu, &group), 0);
    vb_driver_qp_fini(&r.qp[1]);
    r.qp[1] = (struct vb_driver_qp){0};
    rig_close(&r);
}

static void test_group_limit(void **state)
{
    struct rig r;
    struct vb_ip ip = group;
    (void)state;
    rig_open(&r);
    for (uint32_t i = 0; i < 4096; i++) {
        ip.b[14] = (uint8_t)(i >> 8);
        ip.b[15] = (uint8_t)i;
        assert_int_equal(vb_dev_qp_attach(r.f->dev, r.qp[0].qpn, &ip), 0);
    }
    assert_int_equal(vb_pu_members(r.f->pu, &ip), 1);
    assert_int_equal(vb_dev_qp_attach(r.f->dev, r.qp[1].qpn, &ip), -ENOMEM);
    assert_int_equal(vb_dev_qp_detach(r.f->dev, r.qp[0].qpn, &ip), 0);
    assert_int_equal(vb_dev_qp_attach(r.f->dev, r.qp[1].qpn, &ip), 0);
    rig_close(&r);
}

// ---- spread sets

static const uint8_t key[VB_SPREAD_KEY] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

// The published vectors: addresses of version 4 and 6, source and destination.
static void test_toeplitz_vectors(void **state)
{
    (void)state;
    static const uint8_t v4[8] = {66, 9, 149, 187, 161, 142, 100, 80};
    static const uint8_t v6[32] = {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, [15] = 7,
                                   0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, [31] = 1};
    assert_int_equal(vb_toeplitz(key, v4, 8), 0x323e8fc2);
    assert_int_equal(vb_toeplitz(key, v6, 32), 0x2cc18cd5);
    assert_int_equal(vb_toeplitz(key, v4, 0), 0);
}

static struct vb_spread_attr spread_of(const uint32_t *qpn, uint32_t count, uint32_t fields)
{
    struct vb_spread_attr a = {.qpn = qpn, .count = count, .fields = fields};
    memcpy(a.key, key, sizeof key);
    return a;
}

static void test_spread_refused(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r);
    struct vb_dev *dev = r.f->dev;
    uint32_t qpn[4] = {r.qp[0].qpn, r.qp[1].qpn, r.qp[2].qpn, r.qp[3].qpn};
    uint32_t many[2 * VB_SPREAD_MAX];
    struct vb_spread_attr a = spread_of(qpn, 4, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, 0x777777, &a), -ENOENT);
    a.count = 3;
    assert_int_equal(vb_dev_qp_spread(dev, r.f->qp.qpn, &a), -EINVAL);
    for (uint32_t i = 0; i < 2 * VB_SPREAD_MAX; i++)
        many[i] = qpn[i % 4];
    a = spread_of(many, 2 * VB_SPREAD_MAX, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, r.f->qp.qpn, &a), -EINVAL);
    a = spread_of(qpn, 4, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, r.qp[0].qpn, &a), -EINVAL); // a member of itself
    uint32_t unknown[2] = {r.qp[0].qpn, 0x777777};
    a = spread_of(unknown, 2, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, r.f->qp.qpn, &a), -EINVAL);
    a = spread_of(many, VB_SPREAD_MAX, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, r.f->qp.qpn, &a), 0);
    assert_int_equal(vb_dev_qp_spread(dev, r.f->qp.qpn, &a), -EINVAL); // for good
    uint32_t front[1] = {r.f->qp.qpn};
    a = spread_of(front, 1, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, r.qp[0].qpn, &a), -EINVAL); // a member spreads nothing
    rig_close(&r);
}

// Which of two a datagram goes to, by the lowest bit of the hash.
static uint32_t place_of(const struct vb_ip *src, const struct vb_ip *dst)
{
    uint8_t input[32];
    uint32_t len = 0;

    for (int i = 0; i < 2; i++) {
        const struct vb_ip *ip = i ? dst : src;
        uint32_t bytes = !ip ? 0 : vb_ip_is_v4(ip) ? 4 : 16;
        if (ip)
            memcpy(input + len, ip->b + 16 - bytes, bytes);
        len += bytes;
    }
    return vb_toeplitz(key, input, len) & 1;
}

static void check_spread(uint32_t fields, bool ipv6)
{
    struct rig r;
    rig_open_on(&r, ipv6);
    uint32_t qpn[2] = {r.qp[0].qpn, r.qp[1].qpn}, seen[2] = {0};
    const struct vb_spread_attr a = spread_of(qpn, 2, fields);
    assert_int_equal(vb_dev_qp_spread(r.f->dev, r.f->qp.qpn, &a), 0);
    for (uint32_t i = 0; i < 6; i++) {
        struct vb_ip src = r.f->remote, to = r.f->local;
        src.b[15] = (uint8_t)(40 + i);
        to.b[14] = (uint8_t)i;
        if (ipv6) // all of it counts, from its first byte on
            src.b[0] = to.b[0] = (uint8_t)(0x20 + i);
        uint32_t place = place_of(fields & VB_SPREAD_SRC ? &src : NULL,
                                  fields & VB_SPREAD_DST ? (i ? &to : &r.f->local) : NULL);
        post(&r, &r.qp[place], i);
        queue(&r, r.f->qp.qpn, &src, i ? &to : NULL, i);
        forge_run(r.f);
        expect(&r, i, i);
        seen[place]++;
    }
    if (fields)
        assert_true(seen[0] && seen[1]);
    rig_close(&r);
}

static void test_spread_by_addresses(void **state)
{
    (void)state;
    for (uint32_t fields = 0; fields <= (VB_SPREAD_SRC | VB_SPREAD_DST); fields++)
        for (int ipv6 = 0; ipv6 < 2; ipv6++)
            check_spread(fields, ipv6);
}

// A member that cannot receive, or is gone, gets nothing, and nobody else does in its place.
static void test_spread_to_a_member_that_is_gone(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r);
    uint32_t qpn[2] = {r.qp[0].qpn, r.qp[1].qpn};
    const struct vb_spread_attr a = spread_of(qpn, 2, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(r.f->dev, r.f->qp.qpn, &a), 0);
    uint32_t place = place_of(&r.f->remote, NULL);
    post(&r, &r.qp[0], 1);
    post(&r, &r.qp[1], 2);
    struct vb_qpc_mods m = {.state = VB_QPS_ERR};
    assert_int_equal(vb_dev_qp_modify(r.f->dev, qpn[place], &m), 0);
    queue(&r, r.f->qp.qpn, &r.f->remote, NULL, 4);
    forge_run(r.f);
    struct vb_wc wc;
    assert_int_equal(vb_driver_poll(&r.f->recv_cq, find, &r, &wc, 1), 1);
    assert_int_equal(wc.status, VB_WC_FLUSHED);
    assert_int_equal(wc.wr_id, 1 + place);
    expect_none(&r);
    assert_int_equal(vb_dev_qp(r.f->dev, qpn[0])->spreads, 1);
    assert_int_equal(vb_dev_qp_destroy(r.f->dev, qpn[place]), 0);
    vb_driver_qp_fini(&r.qp[place]);
    r.qp[place] = (struct vb_driver_qp){0};
    queue(&r, r.f->qp.qpn, &r.f->remote, NULL, 4);
    forge_run(r.f);
    expect_none(&r);
    rig_close(&r);
}

// The one that spreads goes: its members are free to spread themselves.
static void test_spread_ends(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r);
    struct vb_dev *dev = r.f->dev;
    uint32_t both[2] = {r.qp[2].qpn, r.qp[3].qpn}, last[1] = {r.qp[3].qpn};
    const struct vb_spread_attr a = spread_of(both, 2, VB_SPREAD_SRC),
                                b = spread_of(last, 1, VB_SPREAD_SRC);
    assert_int_equal(vb_dev_qp_spread(dev, r.qp[0].qpn, &a), 0);
    assert_int_equal(vb_dev_qp_spread(dev, r.qp[1].qpn, &b), 0);
    assert_int_equal(vb_dev_qp(dev, r.qp[3].qpn)->spreads, 2);
    assert_int_equal(vb_dev_qp_spread(dev, r.qp[2].qpn, &b), -EINVAL);
    assert_int_equal(vb_dev_qp_destroy(dev, r.qp[0].qpn), 0);
    assert_int_equal(vb_dev_qp(dev, r.qp[2].qpn)->spreads, 0);
    assert_int_equal(vb_dev_qp(dev, r.qp[3].qpn)->spreads, 1);
    assert_int_equal(vb_dev_qp_spread(dev, r.qp[2].qpn, &b), 0);
    assert_int_equal(vb_dev_qp(dev, r.qp[3].qpn)->spreads, 2);
    vb_driver_qp_fini(&r.qp[0]);
    r.qp[0] = (struct vb_driver_qp){0};
    rig_close(&r);
}

// ---- facts

static void test_facts_of_counts(void **state)
{
    struct rig r;
    struct vb_count_facts c;
    uint32_t pd = 0, window = 0;
    (void)state;
    rig_open(&r);
    assert_int_equal(vb_dev_pd_create(r.f->dev, &pd), 0);
    const struct vb_mkey_attr attr = {.kind = VB_MKEY_WINDOW2, .pd = r.f->pd};
    assert_int_equal(vb_dev_mkey_create(r.f->dev, &attr, &window), 0);
    vb_facts_count(r.f->dev, &c);
    assert_int_equal(c.pds, 2);
    assert_int_equal(c.cqs, 2);
    assert_int_equal(c.qps, 1 + EXTRA);
    assert_int_equal(c.mrs, 1);
    assert_int_equal(c.mws, 1);
    assert_int_equal(c.srqs, 0);
    struct vb_mr_facts m[3];
    uint32_t at = 0;
    assert_int_equal(vb_facts_mrs(r.f->dev, &at, m, 3), 2);
    uint32_t region = m[0].window ? 1 : 0;
    assert_int_equal(m[region].key, r.f->key);
    assert_int_equal(m[region].pd, r.f->pd);
    assert_int_equal(m[region].start, (uintptr_t)r.f->memory);
    assert_int_equal(m[region].len, FORGE_MEMORY);
    assert_int_equal(m[region].access, r.f->opts.key_access);
    assert_false(m[region].window);
    assert_int_equal(m[!region].key, window);
    assert_true(m[!region].window);
    struct vb_pd_facts p[3];
    at = 0;
    assert_int_equal(vb_facts_pds(r.f->dev, &at, p, 3), 2);
    assert_int_equal(p[0].pd, r.f->pd);
    assert_true(p[0].users > 0);
    assert_int_equal(p[1].pd, pd);
    assert_int_equal(p[1].users, 0);
    rig_close(&r);
}

// In portions, each object once; `room` is never exceeded.
static void test_facts_in_portions(void **state)
{
    struct rig r;
    struct vb_qp_facts q[4];
    struct vb_cq_facts c[2];
    uint32_t at = 0, numbers = 0;
    (void)state;
    rig_open(&r);
    memset(q, 0, sizeof q);
    assert_int_equal(vb_facts_qps(r.f->dev, &at, q, 3), 3);
    assert_int_equal(q[3].qpn, 0);
    for (uint32_t i = 0; i < 3; i++)
        numbers ^= q[i].qpn;
    assert_int_equal(vb_facts_qps(r.f->dev, &at, q, 3), 2);
    numbers ^= q[0].qpn ^ q[1].qpn ^ r.f->qp.qpn;
    for (uint32_t i = 0; i < EXTRA; i++)
        numbers ^= r.qp[i].qpn;
    assert_int_equal(numbers, 0);
    assert_int_equal(vb_facts_qps(r.f->dev, &at, q, 3), 0);
    at = 0;
    assert_int_equal(vb_facts_cqs(r.f->dev, &at, c, 1), 1);
    assert_int_equal(c[0].cqn, r.f->send_cqn);
    assert_int_equal(c[0].entries, r.f->opts.send_cq_entries);
    assert_int_equal(c[0].users, 1 + EXTRA);
    assert_false(c[0].overrun);
    assert_int_equal(vb_facts_cqs(r.f->dev, &at, c, 2), 1);
    assert_int_equal(c[0].cqn, r.f->recv_cqn);
    assert_int_equal(vb_facts_cqs(r.f->dev, &at, c, 1), 0);
    rig_close(&r);
}

static void test_facts_of_a_connection(void **state)
{
    struct forge_opts o = forge_defaults();
    struct vb_qp_facts q[2];
    struct vb_srq_facts s[2];
    struct vb_count_facts c;
    uint32_t at = 0;
    (void)state;
    o.srq_depth = 8;
    struct forge *f = forge_open(&o);
    assert_int_equal(vb_facts_qps(f->dev, &at, q, 2), 1);
    assert_true(q[0].connected);
    assert_memory_equal(&q[0].remote, &f->remote, sizeof f->remote);
    assert_int_equal(q[0].dest_qpn, FORGE_PEER_QPN);
    assert_int_equal(q[0].state, VB_QPS_RTS);
    assert_int_equal(q[0].sq_psn, o.our_psn);
    assert_int_equal(q[0].rq_psn, o.peer_psn);
    assert_int_equal(q[0].srqn, f->srqn);
    assert_int_equal(q[0].mtu_bytes, o.mtu);
    at = 0;
    assert_int_equal(vb_dev_srq_arm(f->dev, f->srqn, 5), 0);
    assert_int_equal(vb_facts_srqs(f->dev, &at, s, 2), 1);
    assert_int_equal(s[0].srqn, f->srqn);
    assert_int_equal(s[0].entries, f->srq.entries);
    assert_int_equal(s[0].users, 1);
    assert_int_equal(s[0].limit, 5);
    assert_false(s[0].xrc);
    assert_int_equal(s[0].cqn, 0);
    assert_int_equal(vb_facts_srqs(f->dev, &at, s, 2), 0);
    vb_facts_count(f->dev, &c);
    assert_int_equal(c.srqs, 1);
    forge_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multicast_addresses),
        cmocka_unit_test(test_group_attach_refused),
        cmocka_unit_test(test_group_copies),
        cmocka_unit_test(test_group_leave),
        cmocka_unit_test(test_group_limit),
        cmocka_unit_test(test_toeplitz_vectors),
        cmocka_unit_test(test_spread_refused),
        cmocka_unit_test(test_spread_by_addresses),
        cmocka_unit_test(test_spread_to_a_member_that_is_gone),
        cmocka_unit_test(test_spread_ends),
        cmocka_unit_test(test_facts_of_counts),
        cmocka_unit_test(test_facts_in_portions),
        cmocka_unit_test(test_facts_of_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
