// SPDX-License-Identifier: Apache-2.0
// Every verb and service through the public interface, between two NICs, over every port.
#include "duo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    NOTHING = UINT32_MAX, // no memory of the requester's
    LONG_BYTES = 5000,    // several packets
    GRH_BYTES = 40,
};

struct rig {
    struct duo d;
    struct vb_qp *qp[2];
};

static void open_rig(struct rig *r, struct duo_state *state, enum vb_service service)
{
    duo_open(&r->d, state);
    duo_connect(&r->d, service, r->qp);
}

// The completion of what was posted to end 0.
static struct vb_wc finish(struct rig *r, uint64_t wr_id, enum vb_wc_opcode opcode)
{
    struct vb_wc wc = duo_wait(r->d.end[0].cq);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.qpn, vb_qp_num(r->qp[0]));
    return wc;
}

static struct vb_wc arrival(struct rig *r, uint64_t wr_id, enum vb_wc_opcode opcode, uint32_t len)
{
    struct vb_wc wc = duo_wait(r->d.end[1].cq);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.byte_len, len);
    assert_int_equal(wc.qpn, vb_qp_num(r->qp[1]));
    return wc;
}

static uint64_t word_of(const struct duo_end *e, uint32_t at)
{
    uint64_t v;
    memcpy(&v, e->memory + at, 8);
    return v;
}

static void set_word(const struct duo_end *e, uint32_t at, uint64_t v)
{
    memcpy(e->memory + at, &v, 8);
}

// ---- SEND, WRITE, READ and what comes with them

static void sends(struct rig *r)
{
    struct vb_send_wr wr = duo_wr(&r->d, VB_WR_SEND, 1);
    duo_fill(r->d.end[0].memory, LONG_BYTES, 1);
    duo_post_recv(&r->d.end[1], r->qp[1], 11, 0, DUO_BYTES);
    duo_post(&r->d, r->qp[0], wr, 0, LONG_BYTES);
    finish(r, 1, VB_WC_SEND);
    assert_int_equal(arrival(r, 11, VB_WC_RECV, LONG_BYTES).flags, 0);
    assert_memory_equal(r->d.end[0].memory, r->d.end[1].memory, LONG_BYTES);

    wr = duo_wr(&r->d, VB_WR_SEND_IMM, 2);
    wr.imm = 0x04030201;
    duo_post_recv(&r->d.end[1], r->qp[1], 12, 0, 100);
    duo_post(&r->d, r->qp[0], wr, 0, NOTHING);
    finish(r, 2, VB_WC_SEND);
    struct vb_wc wc = arrival(r, 12, VB_WC_RECV, 0);
    assert_int_equal(wc.flags, VB_WC_WITH_IMM);
    assert_int_equal(wc.imm, 0x04030201);
}

static void writes(struct rig *r)
{
    duo_fill(r->d.end[0].memory, LONG_BYTES, 2);
    memset(r->d.end[1].memory, 0, DUO_BYTES);
    duo_post(&r->d, r->qp[0], duo_wr(&r->d, VB_WR_WRITE, 3), 0, LONG_BYTES);
    struct vb_send_wr wr = duo_wr(&r->d, VB_WR_WRITE_IMM, 4);
    wr.raddr += 8192;
    wr.imm = 77;
    duo_post_recv(&r->d.end[1], r->qp[1], 14, 60000, 8);
    duo_post(&r->d, r->qp[0], wr, 0, LONG_BYTES);
    finish(r, 3, VB_WC_WRITE);
    finish(r, 4, VB_WC_WRITE);
    struct vb_wc wc = arrival(r, 14, VB_WC_RECV_WRITE, LONG_BYTES);
    assert_int_equal(wc.flags, VB_WC_WITH_IMM);
    assert_int_equal(wc.imm, 77);
    assert_memory_equal(r->d.end[0].memory, r->d.end[1].memory, LONG_BYTES);
    assert_memory_equal(r->d.end[0].memory, r->d.end[1].memory + 8192, LONG_BYTES);
    assert_true(word_of(&r->d.end[1], 60000) == 0); // the receive's own memory is untouched
}

static void reads(struct rig *r)
{
    duo_fill(r->d.end[1].memory, LONG_BYTES, 3);
    duo_post(&r->d, r->qp[0], duo_wr(&r->d, VB_WR_READ, 5), 0, LONG_BYTES);
    assert_int_equal(finish(r, 5, VB_WC_READ).byte_len, LONG_BYTES);
    assert_memory_equal(r->d.end[0].memory, r->d.end[1].memory, LONG_BYTES);
    duo_post(&r->d, r->qp[0], duo_wr(&r->d, VB_WR_NOP, 6), 0, NOTHING);
    finish(r, 6, VB_WC_NOP);
}

static void test_messages(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_RC);
    for (int i = 0; i < 3; i++) {
        sends(&r);
        writes(&r);
        reads(&r);
    }
    duo_expect_quiet(r.d.end[0].cq);
    duo_expect_quiet(r.d.end[1].cq);
    duo_close(&r.d);
}

// ---- atomics

static uint64_t ask(struct rig *r, struct vb_send_wr wr, uint32_t len)
{
    set_word(&r->d.end[0], 64, 0);
    duo_post(&r->d, r->qp[0], wr, 64, len);
    finish(r, wr.wr_id, VB_WC_ATOMIC);
    return word_of(&r->d.end[0], 64);
}

static void test_atomics(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_RC);
    struct duo_end *there = &r.d.end[1];
    struct vb_send_wr wr = duo_wr(&r.d, VB_WR_CAS, 1);
    set_word(there, 0, 10);
    wr.atomic.compare = 11;
    wr.atomic.swap_add = 99;
    assert_true(ask(&r, wr, 8) == 10 && word_of(there, 0) == 10);
    wr.atomic.compare = 10;
    assert_true(ask(&r, wr, 8) == 10 && word_of(there, 0) == 99);

    wr = duo_wr(&r.d, VB_WR_FADD, 2);
    wr.atomic.swap_add = (uint64_t)-100;
    assert_true(ask(&r, wr, 8) == 99 && word_of(there, 0) == (uint64_t)-1);

    wr = duo_wr(&r.d, VB_WR_MASKED_CAS, 3);
    set_word(there, 0, 0x1122334455667788);
    wr.atomic.compare = 0x88;
    wr.atomic.compare_mask = 0xff;
    wr.atomic.swap_add = UINT64_MAX;
    wr.atomic.swap_mask = 0xff00;
    assert_true(ask(&r, wr, 8) == 0x1122334455667788);
    assert_true(word_of(there, 0) == 0x112233445566ff88);
    wr.atomic.compare = 0x89;
    wr.atomic.swap_add = 0;
    assert_true(ask(&r, wr, 8) == 0x112233445566ff88 && word_of(there, 0) == 0x112233445566ff88);

    wr = duo_wr(&r.d, VB_WR_MASKED_FADD, 4);
    set_word(there, 0, 0x00000000ffffffff);
    wr.atomic.swap_add = 1;
    wr.atomic.compare = 0x80000000; // no carry leaves the lower half
    assert_true(ask(&r, wr, 8) == 0xffffffff && word_of(there, 0) == 0);
    wr.atomic.arg_bytes = 4;
    wr.atomic.compare = 0;
    set_word(there, 0, 0xaaaaaaaa00000007);
    assert_true(ask(&r, wr, 4) == 7 && word_of(there, 0) == 0xaaaaaaaa00000008);
    duo_close(&r.d);
}

static void test_atomic_write_and_flush(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_RC);
    struct vb_send_wr wr = duo_wr(&r.d, VB_WR_ATOMIC_WRITE, 1);
    set_word(&r.d.end[0], 0, 0x123456789abcdef0);
    duo_post(&r.d, r.qp[0], wr, 0, 8);
    finish(&r, 1, VB_WC_ATOMIC_WRITE);
    assert_true(word_of(&r.d.end[1], 0) == 0x123456789abcdef0);
    wr.flags |= VB_WR_INLINE;
    set_word(&r.d.end[0], 0, 5);
    duo_post(&r.d, r.qp[0], wr, 0, 8);
    finish(&r, 1, VB_WC_ATOMIC_WRITE);
    assert_true(word_of(&r.d.end[1], 0) == 5);

    wr = duo_wr(&r.d, VB_WR_FLUSH, 2);
    wr.flush.len = 4096;
    duo_post(&r.d, r.qp[0], wr, 0, NOTHING);
    finish(&r, 2, VB_WC_FLUSH);
    wr.flush.len = 0;
    wr.flush.whole_region = 1;
    duo_post(&r.d, r.qp[0], wr, 0, NOTHING);
    finish(&r, 2, VB_WC_FLUSH);
    duo_close(&r.d);
}

// ---- what peers may not

// Whether a request of the opcode succeeds when the peer grants the rights, at a region of all or
// of these rights.
static enum vb_wc_status try(struct duo_state *state, enum vb_wr_opcode opcode, uint32_t rights,
                             bool of_region)
{
    struct duo d;
    struct vb_mr *mr = NULL;
    duo_open(&d, state);
    struct vb_qp *qp[2];
    for (unsigned i = 0; i < 2; i++)
        qp[i] = duo_make_qp(&d.end[i], (struct vb_qp_opts){0});
    struct vb_qp_peer to = duo_peer(&d, 0, qp[1]), from = duo_peer(&d, 1, qp[0]);
    uint32_t of_mr = of_region ? rights | VB_RIGHT_LOCAL_WRITE : VB_RIGHT_ALL;
    from.rights = of_region ? DUO_REMOTE : rights;
    assert_int_equal(vb_qp_connect(qp[0], &to), 0);
    assert_int_equal(vb_qp_connect(qp[1], &from), 0);
    assert_int_equal(vb_mr_reg(d.end[1].pd, d.end[1].memory, 64, of_mr, &mr), 0);
    struct vb_send_wr wr = duo_wr(&d, opcode, 1);
    wr.rkey = vb_mr_key(mr);
    if (opcode == VB_WR_FLUSH)
        wr.flush.len = 8;
    duo_post_recv(&d.end[1], qp[1], 9, 128, 8);
    duo_post(&d, qp[0], wr, 0, opcode == VB_WR_FLUSH ? NOTHING : 8);
    enum vb_wc_status status = duo_wait(d.end[0].cq).status;
    if (status != VB_WC_OK) {
        duo_expect(d.end[1].cq, 9, VB_WC_FLUSHED);
        struct vb_nic_event event;
        do // the requester's, if both ends have one NIC
            event = duo_wait_event(d.end[1].nic);
        while (event.kind == VB_NIC_EVENT_QP_FATAL || event.kind == VB_NIC_EVENT_QP_ESTABLISHED);
        assert_int_equal(event.kind, VB_NIC_EVENT_QP_ACCESS);
        assert_int_equal(event.number, vb_qp_num(qp[1]));
    }
    duo_close(&d);
    return status;
}

static void test_rights(void **state)
{
    static const struct {
        enum vb_wr_opcode opcode;
        uint32_t right;
    } needs[] = {
        {VB_WR_WRITE, VB_RIGHT_REMOTE_WRITE},        {VB_WR_WRITE_IMM, VB_RIGHT_REMOTE_WRITE},
        {VB_WR_READ, VB_RIGHT_REMOTE_READ},          {VB_WR_CAS, VB_RIGHT_REMOTE_ATOMIC},
        {VB_WR_FADD, VB_RIGHT_REMOTE_ATOMIC},        {VB_WR_MASKED_CAS, VB_RIGHT_REMOTE_ATOMIC},
        {VB_WR_ATOMIC_WRITE, VB_RIGHT_REMOTE_WRITE}, {VB_WR_FLUSH, VB_RIGHT_FLUSH_GLOBAL},
    };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        for (int of_region = 0; of_region < 2; of_region++) {
            uint32_t only = needs[i].right, others = DUO_REMOTE & ~only;
            assert_int_equal(try(*state, needs[i].opcode, only, of_region), VB_WC_OK);
            assert_int_equal(try(*state, needs[i].opcode, others, of_region), VB_WC_REMOTE_ACCESS);
        }
}

// ---- unreliable connections

static void test_unreliable_connection(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_UC);
    for (int i = 0; i < 3; i++) {
        sends(&r);
        // A WRITE is not acknowledged: what follows it says that it came.
        writes(&r);
    }
    // It cannot READ: the request fails, the queue pair goes on.
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_READ, 21), 0, 8);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_SEND, 22), 0, 8);
    duo_expect(r.d.end[0].cq, 21, VB_WC_LOCAL_QP_OP);
    duo_expect(r.d.end[0].cq, 22, VB_WC_FLUSHED);
    assert_string_equal(vb_qp_state_text(r.qp[0]), "SQE");
    assert_int_equal(vb_qp_resume(r.qp[0]), 0);
    sends(&r);
    // Without a receive the message is lost, silently.
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_SEND, 23), 0, 8);
    finish(&r, 23, VB_WC_SEND);
    duo_expect_quiet(r.d.end[1].cq);
    sends(&r);
    duo_close(&r.d);
}

// ---- datagrams

static struct vb_send_wr datagram(struct rig *r, enum vb_wr_opcode opcode, uint64_t wr_id)
{
    struct vb_send_wr wr = duo_wr(&r->d, opcode, wr_id);
    vb_nic_gid(r->d.end[1].nic, wr.to.gid);
    wr.to.qpn = vb_qp_num(r->qp[1]);
    wr.to.qkey = duo_peer(&r->d, 1, r->qp[0]).qkey;
    return wr;
}

static void look_at_grh(const struct rig *r)
{
    const uint8_t *grh = r->d.end[1].memory;
    uint8_t from[16], to[16];
    vb_nic_gid(r->d.end[0].nic, from);
    vb_nic_gid(r->d.end[1].nic, to);
    if (from[0] || from[15] == 1) { // IPv6
        assert_int_equal(grh[0] >> 4, 6);
        assert_memory_equal(grh + 8, from, 16);
        assert_memory_equal(grh + 24, to, 16);
    } else {
        assert_int_equal(grh[20], 0x45);
        assert_memory_equal(grh + 32, from + 12, 4);
        assert_memory_equal(grh + 36, to + 12, 4);
    }
}

static void datagram_arrives(struct rig *r, uint32_t len)
{
    struct vb_send_wr wr = datagram(r, VB_WR_SEND_IMM, 1);
    wr.imm = 0x55;
    duo_fill(r->d.end[0].memory, len, len);
    memset(r->d.end[1].memory, 0xee, 2048);
    duo_post_recv(&r->d.end[1], r->qp[1], 2, 0, 2048);
    duo_post(&r->d, r->qp[0], wr, 0, len);
    finish(r, 1, VB_WC_SEND);
    struct vb_wc wc = arrival(r, 2, VB_WC_RECV, GRH_BYTES + len);
    assert_int_equal(wc.flags, VB_WC_WITH_IMM | VB_WC_WITH_GRH);
    assert_int_equal(wc.imm, 0x55);
    assert_int_equal(wc.src_qpn, vb_qp_num(r->qp[0]));
    assert_memory_equal(r->d.end[1].memory + GRH_BYTES, r->d.end[0].memory, len);
    assert_int_equal(r->d.end[1].memory[GRH_BYTES + len], 0xee);
    look_at_grh(r);
}

static void test_datagrams(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_UD);
    for (uint32_t len = 0; len <= 1024; len += 256)
        datagram_arrives(&r, len);
    // With a wrong key it does not, and the receive stays for the next one.
    uint64_t before = duo_counter(r.d.end[1].nic, "qkey_violations");
    struct vb_send_wr wr = datagram(&r, VB_WR_SEND, 3);
    wr.to.qkey++;
    duo_post_recv(&r.d.end[1], r.qp[1], 4, 0, 2048);
    duo_post(&r.d, r.qp[0], wr, 0, 8);
    finish(&r, 3, VB_WC_SEND);
    duo_expect_quiet(r.d.end[1].cq);
    assert_int_equal(duo_counter(r.d.end[1].nic, "qkey_violations"), before + 1);
    duo_post(&r.d, r.qp[0], datagram(&r, VB_WR_SEND, 5), 0, 8);
    finish(&r, 5, VB_WC_SEND);
    assert_int_equal(arrival(&r, 4, VB_WC_RECV, GRH_BYTES + 8).flags, VB_WC_WITH_GRH);
    // Longer than a packet.
    duo_post(&r.d, r.qp[0], datagram(&r, VB_WR_SEND, 6), 0, 1025);
    duo_expect(r.d.end[0].cq, 6, VB_WC_LOCAL_LENGTH);
    assert_int_equal(vb_qp_resume(r.qp[0]), 0);
    datagram_arrives(&r, 100);
    duo_close(&r.d);
}

// ---- shared receives

static void post_shared(const struct duo_end *e, struct vb_srq *srq, uint64_t wr_id)
{
    const struct vb_sge sge = {(uintptr_t)e->memory + wr_id * 64, 64, vb_mr_key(e->mr)};
    const struct vb_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_post_srq(srq, &wr, 1), 1);
}

static struct vb_srq *make_srq(const struct duo_end *e, struct vb_srq_opts opts)
{
    struct vb_srq *srq = NULL;
    assert_int_equal(vb_srq_create(e->pd, &opts, &srq), 0);
    return srq;
}

static void test_shared_receives_and_their_limit(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    struct duo_end *e = &d.end[1];
    struct vb_srq *srq = make_srq(e, (struct vb_srq_opts){.depth = 7});
    struct vb_qp *here[2], *there[2];
    for (unsigned i = 0; i < 2; i++) {
        here[i] = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
        there[i] = duo_make_qp(e, (struct vb_qp_opts){.srq = srq});
        duo_join(&d, here[i], there[i]);
    }
    assert_int_equal(vb_srq_arm(srq, 1000), -EINVAL);
    for (uint64_t round = 0; round < 5; round++) { // each entry more than once
        for (uint64_t i = 0; i < 7; i++)
            post_shared(e, srq, i);
        assert_int_equal(vb_srq_arm(srq, 4), 0);
        for (uint64_t i = 0; i < 7; i++) {
            duo_post(&d, here[i % 2], duo_wr(&d, VB_WR_SEND, i), 0, 8);
            duo_expect(d.end[0].cq, i, VB_WC_OK);
            struct vb_wc wc = duo_wait(e->cq);
            assert_int_equal(wc.wr_id, i);
            assert_int_equal(wc.qpn, vb_qp_num(there[i % 2]));
            int patience_ms = i < 3 ? 0 : DUO_PATIENCE_S * 1000;
            assert_int_equal(duo_is_readable(vb_nic_event_fd(e->nic), patience_ms), i >= 3);
        }
        struct vb_nic_event event = duo_wait_event(e->nic);
        assert_int_equal(event.kind, VB_NIC_EVENT_SRQ_LIMIT);
        assert_int_equal(event.number, vb_srq_num(srq));
        assert_int_equal(vb_nic_take_event(e->nic, &event), -EAGAIN); // once only
    }
    assert_int_equal(vb_srq_destroy(srq), -EBUSY);
    duo_close(&d);
}

// Receives that a failed queue pair had completed, unseen, go back to their shared queue.
static void test_shared_receives_outlive_a_queue_pair(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    struct duo_end *e = &d.end[1];
    struct vb_srq *srq = make_srq(e, (struct vb_srq_opts){.depth = 3});
    for (int round = 0; round < 8; round++) {
        struct vb_qp *here = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
        struct vb_qp *there = duo_make_qp(e, (struct vb_qp_opts){.srq = srq});
        struct vb_qp_peer peer = duo_peer(&d, 1, here);
        duo_join(&d, here, there);
        for (uint64_t i = 0; i < 2; i++) {
            post_shared(e, srq, i);
            duo_post(&d, here, duo_wr(&d, VB_WR_SEND, i), 0, 8);
            duo_expect(d.end[0].cq, i, VB_WC_OK);
        }
        if (round % 2) { // its completions are forgotten either way
            assert_int_equal(vb_qp_fail(there), 0);
            assert_int_equal(vb_qp_connect(there, &peer), 0);
        }
        assert_int_equal(vb_qp_destroy(here), 0);
        assert_int_equal(vb_qp_destroy(there), 0);
        duo_expect_quiet(e->cq);
    }
    duo_close(&d);
}

static void test_extended_connections(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    struct duo_end *e = &d.end[1];
    uint32_t xrcd[2];
    struct vb_srq *srq[3];
    struct vb_cq *cq = NULL;
    assert_int_equal(vb_xrcd_alloc(e->nic, &xrcd[0]), 0);
    assert_int_equal(vb_xrcd_alloc(e->nic, &xrcd[1]), 0);
    assert_int_equal(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 8}, &cq), 0);
    for (unsigned i = 0; i < 3; i++) {
        const struct vb_srq_opts opts = {.depth = 4, .xrcd = xrcd[i / 2], .cq = cq};
        srq[i] = make_srq(e, opts);
        post_shared(e, srq[i], i);
    }
    struct vb_qp *here =
        duo_make_qp(&d.end[0], (struct vb_qp_opts){.service = VB_SERVICE_XRC_SEND});
    struct vb_qp *there =
        duo_make_qp(e, (struct vb_qp_opts){.service = VB_SERVICE_XRC_RECV, .xrcd = xrcd[0]});
    duo_join(&d, here, there);
    for (unsigned i = 2; i-- > 0;) { // the sender names the queue
        struct vb_send_wr wr = duo_wr(&d, VB_WR_SEND, i);
        wr.srqn = vb_srq_num(srq[i]);
        duo_post(&d, here, wr, 0, 8);
        duo_expect(d.end[0].cq, i, VB_WC_OK);
        duo_expect(cq, i, VB_WC_OK);
    }
    struct vb_send_wr wr = duo_wr(&d, VB_WR_WRITE, 5);
    wr.srqn = vb_srq_num(srq[0]);
    set_word(&d.end[0], 0, 42);
    duo_post(&d, here, wr, 0, 8);
    duo_expect(d.end[0].cq, 5, VB_WC_OK);
    assert_true(word_of(e, 0) == 42);
    // A queue of another domain is not for it.
    wr = duo_wr(&d, VB_WR_SEND, 6);
    wr.srqn = vb_srq_num(srq[2]);
    duo_post(&d, here, wr, 0, 8);
    assert_int_not_equal(duo_wait(d.end[0].cq).status, VB_WC_OK);
    duo_expect_quiet(cq);
    // A domain goes when neither queues nor queue pairs are in it, and is not found then.
    assert_int_equal(vb_xrcd_free(e->nic, xrcd[1]), -EBUSY);
    assert_int_equal(vb_srq_destroy(srq[2]), 0);
    assert_int_equal(vb_xrcd_free(e->nic, xrcd[1]), 0);
    assert_int_equal(vb_xrcd_free(e->nic, xrcd[1]), -ENOENT);
    const struct vb_srq_opts late = {.depth = 4, .xrcd = xrcd[1], .cq = cq};
    assert_int_equal(vb_srq_create(e->pd, &late, &srq[2]), -EINVAL);
    assert_int_equal(vb_srq_destroy(srq[0]), 0);
    assert_int_equal(vb_srq_destroy(srq[1]), 0);
    assert_int_equal(vb_xrcd_free(e->nic, xrcd[0]), -EBUSY);
    assert_int_equal(vb_qp_destroy(there), 0);
    assert_int_equal(vb_xrcd_free(e->nic, xrcd[0]), 0);
    duo_close(&d);
}

// ---- windows

static struct vb_send_wr binding(const struct rig *r, uint32_t window, uint32_t rights)
{
    return (struct vb_send_wr){.wr_id = 50,
                               .opcode = VB_WR_BIND,
                               .flags = VB_WR_SIGNALED,
                               .bind = {.window = window,
                                        .region = vb_mr_key(r->d.end[1].mr),
                                        .addr = (uintptr_t)r->d.end[1].memory + 1024,
                                        .len = 1024,
                                        .rights = rights}};
}

static void bind(struct rig *r, struct vb_send_wr wr)
{
    assert_int_equal(vb_post_send(r->qp[1], &wr, 1), 1);
    struct vb_wc wc = duo_wait(r->d.end[1].cq);
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(wc.opcode, VB_WC_KEY);
}

// Whether end 0 may write 8 bytes there; what failed is connected anew.
static bool may_write(struct rig *r, struct vb_qp *qp[2], uint32_t key, uint64_t raddr)
{
    struct vb_send_wr wr = duo_wr(&r->d, VB_WR_WRITE, 60);
    wr.rkey = key;
    wr.raddr = raddr;
    duo_post(&r->d, qp[0], wr, 0, 8);
    enum vb_wc_status status = duo_wait(r->d.end[0].cq).status;
    if (status == VB_WC_OK)
        return true;
    assert_int_equal(status, VB_WC_REMOTE_ACCESS);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vb_qp_fail(qp[i]), 0);
    duo_join(&r->d, qp[0], qp[1]);
    return false;
}

static void test_windows_of_type_1(void **state)
{
    struct rig r;
    struct vb_qp *other[2];
    open_rig(&r, *state, VB_SERVICE_RC);
    duo_connect(&r.d, VB_SERVICE_RC, other);
    struct vb_mw *mw = NULL;
    uint64_t start = (uintptr_t)r.d.end[1].memory + 1024;
    assert_int_equal(vb_mw_alloc(r.d.end[1].pd, VB_MW_TYPE_1, &mw), 0);
    uint32_t key = vb_mw_key(mw), next = (key & ~0xffu) | ((key + 1) & 0xff);
    assert_false(may_write(&r, r.qp, key, start)); // not bound yet
    bind(&r, binding(&r, next, VB_RIGHT_REMOTE_WRITE));
    assert_false(may_write(&r, r.qp, key, start)); // the old key
    assert_true(may_write(&r, r.qp, next, start));
    assert_true(may_write(&r, other, next, start + 1016)); // any queue pair of the domain
    assert_false(may_write(&r, r.qp, next, start + 1017));
    assert_false(may_write(&r, r.qp, next, start - 1));
    assert_int_equal(vb_mr_dereg(r.d.end[1].mr), -EBUSY);
    // Bound anew, for reading only.
    uint32_t third = (key & ~0xffu) | ((key + 2) & 0xff);
    bind(&r, binding(&r, third, VB_RIGHT_REMOTE_READ));
    assert_false(may_write(&r, r.qp, next, start));
    assert_false(may_write(&r, r.qp, third, start));
    assert_int_equal(vb_mw_free(mw), 0);
    assert_int_equal(vb_mr_dereg(r.d.end[1].mr), 0);
    duo_close(&r.d);
}

static void test_windows_of_type_2(void **state)
{
    struct rig r;
    struct vb_qp *other[2];
    open_rig(&r, *state, VB_SERVICE_RC);
    duo_connect(&r.d, VB_SERVICE_RC, other);
    struct vb_mw *mw = NULL;
    uint64_t start = (uintptr_t)r.d.end[1].memory + 1024;
    assert_int_equal(vb_mw_alloc(r.d.end[1].pd, VB_MW_TYPE_2, &mw), 0);
    uint32_t key = (vb_mw_key(mw) & ~0xffu) | ((vb_mw_key(mw) + 1) & 0xff);
    bind(&r, binding(&r, key, VB_RIGHT_REMOTE_WRITE));
    assert_true(may_write(&r, r.qp, key, start));
    assert_false(may_write(&r, other, key, start)); // not the queue pair it was bound on
    // The peer ends it.
    struct vb_send_wr wr = duo_wr(&r.d, VB_WR_SEND_INVAL, 70);
    wr.imm = key;
    duo_post_recv(&r.d.end[1], r.qp[1], 71, 0, 64);
    duo_post(&r.d, r.qp[0], wr, 0, 8);
    finish(&r, 70, VB_WC_SEND);
    struct vb_wc wc = arrival(&r, 71, VB_WC_RECV, 8);
    assert_int_equal(wc.flags, VB_WC_WITH_INVAL);
    assert_int_equal(wc.imm, key);
    assert_false(may_write(&r, r.qp, key, start));
    // Or its owner; peers may count from 0.
    struct vb_send_wr zero = binding(&r, key + (key & 0xff ? -1u : 1u), VB_RIGHT_REMOTE_WRITE);
    zero.bind.zero_based = 1;
    bind(&r, zero);
    assert_true(may_write(&r, r.qp, zero.bind.window, 1016));
    struct vb_send_wr end = {
        .wr_id = 72, .opcode = VB_WR_LOCAL_INVAL, .flags = VB_WR_SIGNALED, .imm = zero.bind.window};
    bind(&r, end);
    assert_false(may_write(&r, r.qp, zero.bind.window, 0));
    // There is nothing left to end.
    assert_int_equal(vb_post_send(r.qp[1], &end, 1), 1);
    duo_expect(r.d.end[1].cq, 72, VB_WC_BIND_REFUSED);
    assert_int_equal(vb_mw_free(mw), 0);
    duo_close(&r.d);
}

// ---- regions

static void test_regions_change(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_RC);
    struct duo_end *e = &r.d.end[1];
    struct vb_mr *mr = NULL;
    struct vb_pd *pd = NULL;
    struct vb_mr_opts opts = {.addr = e->memory + 4096,
                              .len = 64,
                              .rights = VB_RIGHT_ALL,
                              .other_start = true,
                              .start = 0x7000000000000000};
    assert_int_equal(vb_mr_reg_as(e->pd, &opts, &mr), 0);
    set_word(&r.d.end[0], 0, 1);
    assert_true(may_write(&r, r.qp, vb_mr_key(mr), opts.start + 8));
    assert_true(word_of(e, 4096 + 8) == 1);
    assert_false(may_write(&r, r.qp, vb_mr_key(mr), (uintptr_t)opts.addr));
    // Other memory under the same key.
    uint32_t key = vb_mr_key(mr);
    opts.addr = e->memory + 8192;
    set_word(&r.d.end[0], 0, 2);
    assert_int_equal(vb_mr_change(mr, e->pd, &opts), 0);
    assert_int_equal(vb_mr_key(mr), key);
    assert_true(may_write(&r, r.qp, key, opts.start + 8));
    assert_true(word_of(e, 4096 + 8) == 1 && word_of(e, 8192 + 8) == 2);
    // Fewer rights, another domain, back again.
    opts.rights = VB_RIGHT_REMOTE_READ;
    assert_int_equal(vb_mr_change(mr, e->pd, &opts), 0);
    assert_false(may_write(&r, r.qp, key, opts.start));
    opts.rights = VB_RIGHT_ALL;
    assert_int_equal(vb_pd_alloc(e->nic, &pd), 0);
    assert_int_equal(vb_mr_change(mr, pd, &opts), 0);
    assert_int_equal(vb_pd_free(pd), -EBUSY);
    assert_false(may_write(&r, r.qp, key, opts.start));
    assert_int_equal(vb_mr_change(mr, e->pd, &opts), 0);
    assert_int_equal(vb_pd_free(pd), 0);
    assert_true(may_write(&r, r.qp, key, opts.start));
    opts.rights = VB_RIGHT_REMOTE_WRITE; // needs the local right
    assert_int_equal(vb_mr_change(mr, e->pd, &opts), -EINVAL);
    assert_true(may_write(&r, r.qp, key, opts.start)); // as it was
    assert_int_equal(vb_mr_dereg(mr), 0);
    assert_false(may_write(&r, r.qp, key, opts.start));
    duo_close(&r.d);
}

// ---- draining

static void test_drain_and_resume(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_RC);
    struct vb_nic *nic = r.d.end[0].nic;
    struct vb_nic_event event;
    assert_int_equal(vb_qp_resume(r.qp[0]), -EINVAL);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 1), 0, LONG_BYTES);
    finish(&r, 1, VB_WC_WRITE);
    while (vb_nic_take_event(nic, &event) == 0)
        ;
    assert_int_equal(vb_qp_drain(r.qp[0]), 0);
    event = duo_wait_event(nic);
    assert_int_equal(event.kind, VB_NIC_EVENT_QP_DRAINED);
    assert_int_equal(event.number, vb_qp_num(r.qp[0]));
    assert_string_equal(vb_qp_state_text(r.qp[0]), "SQD");
    assert_int_equal(vb_qp_drain(r.qp[0]), 0);
    duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_WRITE, 2), 0, 8);
    duo_expect_quiet(r.d.end[0].cq);
    assert_int_equal(vb_qp_resume(r.qp[0]), 0);
    finish(&r, 2, VB_WC_WRITE);
    assert_string_equal(vb_qp_state_text(r.qp[0]), "RTS");
    // What was begun is finished.
    for (uint64_t i = 0; i < 8; i++)
        duo_post(&r.d, r.qp[0], duo_wr(&r.d, VB_WR_READ, i), 0, LONG_BYTES);
    assert_int_equal(vb_qp_drain(r.qp[0]), 0);
    assert_int_equal(duo_wait_event(nic).kind, VB_NIC_EVENT_QP_DRAINED);
    assert_int_equal(vb_qp_resume(r.qp[0]), 0);
    for (uint64_t i = 0; i < 8; i++)
        finish(&r, i, VB_WC_READ);
    duo_close(&r.d);
}

// ---- events

static void expect_event(struct vb_nic *nic, enum vb_nic_event_kind kind, uint32_t number)
{
    struct vb_nic_event event;
    do
        event = duo_wait_event(nic);
    while (event.kind == VB_NIC_EVENT_QP_ESTABLISHED);
    assert_string_equal(vb_nic_event_text(event.kind), vb_nic_event_text(kind));
    if (number)
        assert_int_equal(event.number, number);
}

static void test_a_malformed_request_is_told(void **state)
{
    struct rig r;
    open_rig(&r, *state, VB_SERVICE_RC);
    struct vb_send_wr wr = duo_wr(&r.d, VB_WR_FADD, 1);
    wr.raddr += 4; // not aligned
    duo_post(&r.d, r.qp[0], wr, 0, 8);
    duo_expect(r.d.end[0].cq, 1, VB_WC_REMOTE_INVALID);
    expect_event(r.d.end[1].nic, VB_NIC_EVENT_QP_REQUEST, vb_qp_num(r.qp[1]));
    assert_string_equal(vb_qp_state_text(r.qp[0]), "ERR");
    duo_close(&r.d);
}

static void test_the_last_shared_receive_is_told(void **state)
{
    struct duo d;
    duo_open(&d, *state);
    struct vb_srq *srq = make_srq(&d.end[1], (struct vb_srq_opts){.depth = 3});
    struct vb_qp *here = duo_make_qp(&d.end[0], (struct vb_qp_opts){0});
    struct vb_qp *there = duo_make_qp(&d.end[1], (struct vb_qp_opts){.srq = srq});
    duo_join(&d, here, there);
    assert_int_equal(vb_qp_fail(there), 0);
    expect_event(d.end[1].nic, VB_NIC_EVENT_QP_LAST_RECV, vb_qp_num(there));
    duo_close(&d);
}

static void test_an_overrun_is_told(void **state)
{
    struct duo d;
    struct vb_cq *small = NULL;
    duo_open(&d, *state);
    assert_int_equal(vb_cq_create(d.end[0].nic, &(struct vb_cq_opts){.entries = 2}, &small), 0);
    struct vb_qp *here = duo_make_qp(&d.end[0], (struct vb_qp_opts){.send_cq = small});
    struct vb_qp *there = duo_make_qp(&d.end[1], (struct vb_qp_opts){0});
    duo_join(&d, here, there);
    assert_false(duo_is_readable(vb_nic_event_fd(d.end[0].nic), 0));
    for (uint64_t i = 0; i < 3; i++)
        duo_post(&d, here, duo_wr(&d, VB_WR_WRITE, i), 0, 8);
    expect_event(d.end[0].nic, VB_NIC_EVENT_CQ_OVERRUN, 0);
    duo_close(&d);
}

static void test_every_event_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i <= VB_NIC_EVENT_SRQ_LIMIT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(vb_nic_event_text((enum vb_nic_event_kind)i),
                                    vb_nic_event_text((enum vb_nic_event_kind)j));
    assert_string_equal(vb_nic_event_text((enum vb_nic_event_kind)99), "unknown event");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_WAYS(test_messages),
        DUO_TEST(test_messages, "hull"),
        DUO_WAYS(test_atomics),
        DUO_TEST(test_atomics, "hull"),
        DUO_WAYS(test_atomic_write_and_flush),
        DUO_TEST(test_atomic_write_and_flush, "hull"),
        DUO_TEST(test_rights, "udp"),
        DUO_TEST(test_rights, "hull"),
        DUO_WAYS(test_unreliable_connection),
        DUO_TEST(test_unreliable_connection, "hull"),
        DUO_WAYS(test_datagrams),
        DUO_TEST(test_datagrams, "hull"),
        DUO_WAYS(test_shared_receives_and_their_limit),
        DUO_TEST(test_shared_receives_and_their_limit, "hull"),
        DUO_TEST(test_shared_receives_outlive_a_queue_pair, "udp"),
        DUO_TEST(test_shared_receives_outlive_a_queue_pair, "hull"),
        DUO_WAYS(test_extended_connections),
        DUO_TEST(test_extended_connections, "hull"),
        DUO_WAYS(test_windows_of_type_1),
        DUO_TEST(test_windows_of_type_1, "hull"),
        DUO_WAYS(test_windows_of_type_2),
        DUO_TEST(test_windows_of_type_2, "hull"),
        DUO_WAYS(test_regions_change),
        DUO_TEST(test_regions_change, "hull"),
        DUO_WAYS(test_drain_and_resume),
        DUO_TEST(test_drain_and_resume, "hull"),
        DUO_PORTS(test_a_malformed_request_is_told),
        DUO_TEST(test_a_malformed_request_is_told, "hull"),
        DUO_PORTS(test_the_last_shared_receive_is_told),
        DUO_TEST(test_the_last_shared_receive_is_told, "hull"),
        DUO_PORTS(test_an_overrun_is_told),
        DUO_TEST(test_an_overrun_is_told, "hull"),
        cmocka_unit_test(test_every_event_has_a_text),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
