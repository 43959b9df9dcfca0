// SPDX-License-Identifier: Apache-2.0
// A queue pair of each service against a forged peer, in random walks: work is posted, requests and
// answers come in order, again, too early or wrong, time passes. All frames, completions, events,
// counters, states, deadlines and bytes of memory are what they were, by a digest for each service.
// On a mismatch it prints the new ones.
#include "base/prng.h"
#include "forge.h"
#include "nic/facts.h"
#include "sim/digest.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    WALKS = 250, // of each service
    STEPS = 60,
    POSTED = 16384, // memory that receives and requests use, from 0 on
    TARGET = 65536, // memory that the peer's requests use
    QKEY = 0x1234,
};

struct walk {
    struct forge *f;
    struct vb_prng prng;
    struct vb_digest d;
    uint64_t wr_id;
};

static uint32_t below(struct walk *w, uint32_t n)
{
    return (uint32_t)vb_prng_below(&w->prng, n);
}

static void note(struct walk *w, uint64_t value)
{
    vb_digest_add(&w->d, value);
}

static void note_bytes(struct walk *w, const void *bytes, size_t len)
{
    note(w, vb_digest_bytes(bytes, (uint32_t)len));
}

// ---- set-up

static struct forge_opts draw_opts(struct walk *w, enum vb_qp_type type)
{
    static const struct vb_dcqcn_params dcqcn = {.cnp_interval_us = 50,
                                                 .rp_time_reset_us = 55,
                                                 .rp_byte_reset = 20000,
                                                 .rp_threshold = 5,
                                                 .rp_ai_rate_mbps = 40,
                                                 .rp_hai_rate_mbps = 400,
                                                 .rp_dce_tcp_g = 1020,
                                                 .rp_dce_tcp_rtt_us = 55,
                                                 .rp_min_rate_mbps = 10,
                                                 .rp_max_rate_mbps = 4000,
                                                 .rp_burst_bytes = 4096};
    struct forge_opts o = forge_defaults();

    o.type = type;
    o.mtu = 256u << below(w, 3);
    o.our_psn = below(w, 2) ? 0xfffff0 + below(w, 16) : 100;
    o.peer_psn = below(w, 2) ? 0xfffff0 + below(w, 16) : 500;
    o.access = below(w, 4) ? VB_REMOTE_WRITE | VB_REMOTE_READ | VB_REMOTE_ATOMIC
                           : below(w, 16) << 1 & VB_ACCESS_REMOTE;
    o.key_access = VB_LOCAL_WRITE | (below(w, 4) ? o.access : VB_REMOTE_READ);
    o.timeout = (uint8_t)(below(w, 3) ? 8 + below(w, 6) : 0);
    o.retry_cnt = (uint8_t)below(w, 8);
    o.rnr_retry = (uint8_t)below(w, 8);
    o.rnr_timer = (uint8_t)below(w, 32);
    o.reads_out = (uint8_t)below(w, 4);
    o.reads_in = (uint8_t)below(w, 4);
    o.window_bytes = below(w, 2) ? 1024u << below(w, 5) : 0;
    o.fetch_depth = below(w, 3);
    o.lend_bytes = below(w, 3) ? 0 : 200;
    o.send_depth = 8;
    o.recv_depth = 8;
    o.send_cq_entries = o.recv_cq_entries = below(w, 8) ? 64 : 4;
    o.sq_start = o.rq_start = below(w, 2) ? 65530 : 0;
    o.no_wqe_checks = below(w, 4) == 0;
    o.be_replies = below(w, 4) == 0;
    o.check_zero_length = below(w, 4) == 0;
    o.no_credits = below(w, 4) == 0;
    o.ipv6 = below(w, 4) == 0;
    o.qkey = QKEY;
    o.dcqcn = below(w, 4) == 0 ? &dcqcn : NULL;
    o.xrcd = type == VB_QPT_XRC_TGT ? 5 : 0;
    o.srq_depth = o.xrcd || (type < VB_QPT_XRC_INI && below(w, 4) == 0) ? 8 : 0;
    return o;
}

// ---- work

static void post_send(struct walk *w)
{
    struct forge *f = w->f;
    uint32_t left = below(w, 3) ? below(w, 3 * f->opts.mtu) : f->opts.mtu * below(w, 3), pieces = 0;
    struct vb_sge sge[3];
    struct vb_send_wr wr = {.opcode = (enum vb_wr_opcode)below(w, VB_WR_WAIT)};
    bool word = wr.opcode >= VB_WR_CAS && wr.opcode <= VB_WR_ATOMIC_WRITE;

    if (wr.opcode == VB_WR_BIND || wr.opcode == VB_WR_LOCAL_INVAL)
        wr.opcode = VB_WR_SEND;
    left = word ? 8 : left;
    for (; pieces < 3 && (left || pieces == 0); pieces++) {
        uint32_t len = pieces == 2 || word || below(w, 2) ? left : below(w, left + 1);
        sge[pieces] = (struct vb_sge){
            .addr = forge_addr(f, 8 * below(w, POSTED / 8)), .len = len, .lkey = f->key};
        left -= len;
    }
    if (below(w, 40) == 0)
        sge[0].lkey ^= 0x100;
    wr.wr_id = w->wr_id++;
    wr.sge = sge;
    wr.num_sge = wr.opcode == VB_WR_NOP || wr.opcode == VB_WR_FLUSH ? 0 : pieces;
    wr.flags = below(w, 8);
    bool copies = wr.opcode <= VB_WR_WRITE || wr.opcode == VB_WR_SEND_IMM;
    if (copies && pieces == 1 && sge[0].len <= 200 && below(w, 2))
        wr.flags |= VB_WR_INLINE;
    wr.raddr = 0x1000;
    wr.rkey = 0x2222;
    wr.imm = below(w, 1000);
    wr.srqn = 3;
    if (f->opts.type == VB_QPT_UD) {
        memcpy(wr.to.gid, f->remote.b, 16);
        wr.to.qpn = FORGE_PEER_QPN;
        wr.to.qkey = QKEY;
    } else if (word) {
        wr.atomic.swap_add = below(w, 1000);
        wr.atomic.compare = below(w, 1000);
    }
    note(w, (uint64_t)vb_driver_post_send(&f->qp, &wr, 1));
}

static void post_recv(struct walk *w)
{
    struct forge *f = w->f;
    struct vb_sge sge[2];
    struct vb_recv_wr wr = {.wr_id = w->wr_id++, .sge = sge, .num_sge = 1 + below(w, 2)};

    for (int i = 0; i < 2; i++) {
        uint32_t offset = below(w, POSTED), len = below(w, 1500);
        sge[i] = (struct vb_sge){.addr = forge_addr(f, offset), .len = len, .lkey = f->key};
    }
    if (below(w, 40) == 0)
        sge[0].lkey ^= 0x100;
    if (f->opts.srq_depth)
        note(w, (uint64_t)vb_driver_post_srq(&f->srq, &wr, 1));
    else if (f->opts.type < VB_QPT_XRC_INI)
        note(w, (uint64_t)vb_driver_post_recv(&f->qp, &wr, 1));
}

// ---- packets

static void give(struct walk *w, struct vb_packet *p, uint32_t len)
{
    static const struct vb_ip stranger = {{0xfd, [15] = 9}};
    uint8_t payload[2048];

    if (!vb_opcode_table[p->opcode].facts)
        return; // the service has no such operation
    for (uint32_t i = 0; i < len; i++)
        payload[i] = (uint8_t)(p->psn + i);
    p->payload = payload;
    p->payload_len = vb_opcode_table[p->opcode].facts & VB_OP_PAYLOAD ? len : 0;
    p->ack_request |= below(w, 2);
    p->solicited = below(w, 4) == 0;
    p->marks = (uint16_t)(below(w, 8) == 0 ? VB_MARK_BECN : 0);
    forge_queue_from(w->f, p, below(w, 60) ? &w->f->remote : &stranger);
    if (below(w, 12) == 0) // marked on its way
        w->f->feed[w->f->feed_count - 1].ce = true;
}

// The opcode that comes next in the message at hand, mostly.
static uint8_t next_opcode(struct walk *w, const struct forge *f)
{
    static const uint8_t begins[] = {
        VB_RC_SEND_FIRST,       VB_RC_SEND_ONLY,          VB_RC_SEND_ONLY_IMM,  VB_RC_SEND_ONLY_INV,
        VB_RC_WRITE_FIRST,      VB_RC_WRITE_ONLY,         VB_RC_WRITE_ONLY_IMM, VB_RC_READ_REQUEST,
        VB_RC_COMPARE_SWAP,     VB_RC_FETCH_ADD,          VB_RC_FLUSH,          VB_RC_ATOMIC_WRITE,
        VB_RC_MASKED_FETCH_ADD, VB_RC_MASKED_COMPARE_SWAP};
    static const uint8_t sends[] = {VB_RC_SEND_MIDDLE, VB_RC_SEND_LAST, VB_RC_SEND_LAST_IMM,
                                    VB_RC_SEND_LAST_INV};
    static const uint8_t writes[] = {VB_RC_WRITE_MIDDLE, VB_RC_WRITE_LAST, VB_RC_WRITE_LAST_IMM};

    if (below(w, 20) == 0)
        return (uint8_t)below(w, 32);
    if (f->ctx->resp.message == VB_MESSAGE_SEND)
        return sends[below(w, 4)];
    if (f->ctx->resp.message == VB_MESSAGE_WRITE)
        return writes[below(w, 3)];
    return begins[below(w, sizeof begins)];
}

static void give_request(struct walk *w)
{
    struct forge *f = w->f;
    uint8_t rc = next_opcode(w, f);
    uint32_t psn = f->ctx->resp.epsn, mtu = f->opts.mtu, len = below(w, mtu + 1);
    bool first = rc == VB_RC_SEND_FIRST || rc == VB_RC_WRITE_FIRST;
    bool middle = rc == VB_RC_SEND_MIDDLE || rc == VB_RC_WRITE_MIDDLE;

    psn += below(w, 6) ? 0 : below(w, 7) - 3;
    uint32_t offset = TARGET + 8 * below(w, 1000), more = below(w, mtu);
    struct vb_packet p = forge_reth(f, (enum vb_opcode)rc, psn, offset,
                                    rc == VB_RC_WRITE_FIRST ? 2 * mtu + more : len);
    if (rc == VB_RC_READ_REQUEST)
        p.dma_len = below(w, 4 * mtu);
    p.raddr += below(w, 16) == 0;
    p.rkey ^= below(w, 16) == 0;
    p.raddr = below(w, 40) ? p.raddr : forge_addr(f, 0) - 8;
    p.atomic_bytes = 8;
    p.swap_add = below(w, 1000);
    p.compare = below(w, 4);
    p.swap_mask = p.compare_mask = rc == VB_RC_MASKED_COMPARE_SWAP ? 0xff : 0;
    p.flush_type = (uint8_t)below(w, 4);
    p.flush_level = (uint8_t)below(w, 4);
    p.imm = below(w, 1000);
    p.qkey ^= below(w, 16) == 0;
    p.xrc_srqn ^= below(w, 16) == 0;
    len = first || middle ? mtu - (below(w, 16) == 0) : len;
    len = rc == VB_RC_ATOMIC_WRITE ? 8 : below(w, 40) ? len : mtu + 4;
    give(w, &p, len);
}

// To the oldest request that waits for one, mostly as it should be.
static void give_answer(struct walk *w)
{
    static const uint8_t kinds[] = {VB_AETH_ACK, VB_AETH_ACK, VB_AETH_ACK,
                                    VB_AETH_RNR, VB_AETH_NAK, 2};
    struct forge *f = w->f;
    const struct vb_requester *r = &f->ctx->req;
    uint32_t sent = (r->max_psn - r->una_psn) & 0xffffff, mtu = f->opts.mtu, len = 0;
    uint32_t psn = r->una_psn + (sent ? below(w, sent) : 0);
    uint8_t opcode = VB_RC_ACK;
    const struct vb_wr *wr = r->una_wr;

    if (sent && wr && wr->awaits && wr->psns && below(w, 8)) {
        psn = r->una_psn;
        uint32_t done = (psn - wr->first_psn) & 0xffffff;
        bool last = done + 1 == wr->psns;
        opcode = wr->opcode != VB_WQE_READ ? VB_RC_ATOMIC_ACK
                 : wr->psns == 1           ? VB_RC_READ_RESP_ONLY
                 : last                    ? VB_RC_READ_RESP_LAST
                 : done == 0 || psn == r->una_psn
                     ? (below(w, 2) || !done ? VB_RC_READ_RESP_FIRST : VB_RC_READ_RESP_MIDDLE)
                     : VB_RC_READ_RESP_MIDDLE;
        len = last ? wr->length - done * mtu : mtu;
        len = wr->opcode == VB_WQE_READ && len <= mtu ? len : 0;
    }
    psn += below(w, 10) ? 0 : below(w, 7) - 3;
    struct vb_packet p = forge_packet(f, (enum vb_opcode)opcode, psn);
    uint8_t kind = below(w, 3) ? VB_AETH_ACK : kinds[below(w, sizeof kinds)];
    unsigned value = below(w, 32);
    p.syndrome = vb_aeth_syndrome((enum vb_aeth_kind)kind, kind != VB_AETH_NAK ? value
                                                           : value < 16        ? 0
                                                                               : value % 6);
    p.msn = below(w, 20);
    p.atomic_old = below(w, 1000);
    give(w, &p, len + (below(w, 40) == 0));
}

static void give_notification(struct walk *w)
{
    struct vb_packet p = forge_packet(w->f, VB_CNP, 0);

    if (below(w, 4) == 0)
        give(w, &p, 0);
}

// ---- what is compared

static struct vb_driver_qp *find(void *ctx, uint32_t qpn)
{
    struct forge *f = ctx;
    return f->qp.qpn == qpn ? &f->qp : NULL;
}

static void note_completions(struct walk *w, struct vb_driver_cq *cq)
{
    struct vb_wc wc = {0};

    while (vb_driver_poll(cq, find, w->f, &wc, 1) == 1) {
        note(w, wc.wr_id << 32 | (uint64_t)wc.status << 16 | (uint64_t)wc.opcode);
        bool good = wc.status == VB_WC_OK;
        note(w, good ? (uint64_t)wc.byte_len << 32 | wc.flags : 0);
        note(w, good && wc.flags ? wc.imm : 0);
    }
}

static void note_all(struct walk *w)
{
    struct forge *f = w->f;
    struct vb_event e;

    for (uint32_t i = 0; i < f->sent_count; i++)
        note_bytes(w, f->sent[i].bytes, f->sent[i].len - VB_ICRC_BYTES);
    forge_forget(f);
    if (below(w, 3)) {
        note_completions(w, &f->send_cq);
        note_completions(w, &f->recv_cq);
    }
    while (vb_pu_take_event(f->pu, &e))
        note(w, e.kind);
    note_bytes(w, forge_counters(f), sizeof(struct vb_counters));
    note_bytes(w, vb_dev_qp_counters(f->dev, f->qp.qpn), sizeof(struct vb_qp_counters));
    note(w, vb_pu_deadline(f->pu));
    note(w, forge_state(f));
    struct vb_qp_progress p = {0};
    vb_dev_qp_progress(f->dev, f->qp.qpn, &p);
    note(w, p.retired << 32 | p.begun);
    note(w, p.fetched << 32 | p.recv_taken);
    note(w, p.recv_done << 32 | p.answers_owed << 2 | p.running << 1 | vb_pu_is_idle(f->pu));
    note(w, p.recv_shared);
}

static void walk(struct walk *w, enum vb_qp_type type)
{
    const struct forge_opts o = draw_opts(w, type);
    struct forge *f = w->f = forge_open(&o);

    if (below(w, 2))
        vb_pu_observe(f->pu, NULL, NULL); // polls have an order of their own then
    forge_fill(f, 0, POSTED + 4096, 1);
    forge_fill(f, TARGET, 16384, 2);
    for (int i = 0; i < STEPS; i++) {
        for (uint32_t n = 1 + below(w, 3); n > 0; n--) {
            switch (below(w, 10)) {
            case 0:
            case 1: post_send(w); break;
            case 2:
            case 3: post_recv(w); break;
            case 4:
            case 5:
            case 6: give_request(w); break;
            case 7: give_notification(w); break;
            default: give_answer(w); break;
            }
        }
        if (below(w, 20) == 0)
            vb_dev_qp_settle(f->dev, f->qp.qpn);
        if (forge_state(f) == VB_QPS_RTS && below(w, 30) == 0)
            forge_modify(f, VB_QPS_SQD);
        else if (forge_state(f) == VB_QPS_SQD && below(w, 4) == 0)
            forge_modify(f, VB_QPS_RTS);
        forge_advance(f, below(w, 3) ? below(w, 1000) : below(w, 40000000));
        note_all(w);
    }
    note_bytes(w, f->memory, FORGE_MEMORY);
    forge_close(f);
}

static void test_walks(void **state)
{
    static const uint64_t expected[VB_QPT_COUNT] = {0xb611833ecfe3c6f0, 0xdd8c536a4c72b2f9,
                                                    0x16ded344cb786043, 0x9210b66f374b618b,
                                                    0x94ea62f9293df6dc};
    uint32_t wrong = 0;

    (void)state;
    for (int type = 0; type < VB_QPT_COUNT; type++) {
        struct walk w = {.prng = {.state = 1 + (uint64_t)type}, .d = {1}};
        for (int i = 0; i < WALKS; i++)
            walk(&w, (enum vb_qp_type)type);
        if (w.d.value != expected[type] && ++wrong)
            print_error("service %d: 0x%016" PRIx64 "\n", type, w.d.value);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
