// SPDX-License-Identifier: Apache-2.0
// Two NICs in one process over loopback.
#include "pair.h"
#include "../wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PATIENT = 16, // 268 ms, eight times: a busy machine may not run the peer for long
};

void pair_address(unsigned host, char text[16])
{
    unsigned pid = (unsigned)getpid();
    snprintf(text, 16, "127.%u.%u.%u", 160 + host * 32 + (pid >> 16 & 31), pid >> 8 & 255,
             pid & 255);
}

struct vb_nic *pair_open_host(unsigned host, uint32_t drop_ppm)
{
    char text[16], why[VB_ERROR_TEXT] = "";
    struct vb_nic *nic = NULL;
    pair_address(host, text);
    char rules[64];
    snprintf(rules, sizeof rules, "drop=%uppm;seed=%u", drop_ppm, host + 3);
    const struct vb_nic_opts opts = {.address = text,
                                     .seed = host + 1,
                                     .faults = drop_ppm ? rules : "off",
                                     .error_text = why,
                                     .drain_ms = 10,
                                     .no_helper = true}; // the tests run both NICs
    if (vb_nic_open(&opts, &nic) != 0)
        fail_msg("%s", why);
    return nic;
}

struct vb_qp *pair_make_qp(struct pair_end *e)
{
    const struct vb_qp_opts opts = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .send_depth = 64,
                                    .recv_depth = 64,
                                    .send_sge = 16,
                                    .recv_sge = 16,
                                    .inline_bytes = 200};
    struct vb_qp *qp = NULL;
    assert_int_equal(vb_qp_create(e->pd, &opts, &qp), 0);
    return qp;
}

static void open_end(struct pair_end *e, unsigned host, uint32_t drop_ppm)
{
    e->nic = pair_open_host(host, drop_ppm);
    e->memory = calloc(1, PAIR_MEMORY);
    assert_non_null(e->memory);
    assert_int_equal(vb_pd_alloc(e->nic, &e->pd), 0);
    assert_int_equal(vb_cq_create(e->nic, &(struct vb_cq_opts){.entries = 256}, &e->cq), 0);
    assert_int_equal(vb_mr_reg(e->pd, e->memory, PAIR_MEMORY, PAIR_RIGHTS, &e->mr), 0);
    e->qp = pair_make_qp(e);
}

struct vb_qp_peer pair_peer_of(const struct pair_end *e, uint32_t mtu)
{
    struct vb_qp_peer p = {.qpn = vb_qp_num(e->qp),
                           .psn = 0xfffff0,
                           .our_psn = 0xfffff0,
                           .mtu = mtu,
                           .rights = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ,
                           .timeout = PATIENT};
    vb_nic_gid(e->nic, p.gid);
    return p;
}

struct pair pair_open(uint32_t mtu, uint32_t drop_ppm)
{
    struct pair p = {0};
    for (unsigned i = 0; i < 2; i++)
        open_end(&p.end[i], i, drop_ppm);
    for (unsigned i = 0; i < 2; i++)
        p.end[i].peer = pair_peer_of(&p.end[!i], mtu);
    return p;
}

void pair_connect(struct pair *p)
{
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vb_qp_connect(p->end[i].qp, &p->end[i].peer), 0);
}

void pair_close(struct pair *p)
{
    for (unsigned i = 0; i < 2; i++) {
        vb_nic_close(p->end[i].nic);
        free(p->end[i].memory);
    }
}

// The next completion of end `i`, while both NICs run.
struct vb_wc pair_wait(struct pair *p, unsigned i)
{
    struct vb_wc wc;
    WAIT_UNTIL((vb_nic_progress(p->end[!i].nic), vb_poll_cq(p->end[i].cq, &wc, 1)) != 0);
    return wc;
}

void pair_look(struct pair *p, unsigned i, uint64_t wr_id, enum vb_wc_opcode opcode,
               enum vb_wc_status status, uint32_t len, const char *file, int line)
{
    struct vb_wc wc = pair_wait(p, i);
    _assert_int_equal(wc.wr_id, wr_id, file, line);
    _assert_int_equal(wc.status, status, file, line);
    _assert_int_equal(wc.qpn, vb_qp_num(p->end[i].qp), file, line);
    if (status == VB_WC_OK) {
        _assert_int_equal(wc.opcode, opcode, file, line);
        _assert_int_equal(wc.byte_len, len, file, line);
    }
}

void pair_post(struct pair *p, uint64_t wr_id, enum vb_wr_opcode opcode, uint32_t len)
{
    struct pair_end *e = &p->end[0], *o = &p->end[1];
    const struct vb_sge sge = {(uintptr_t)e->memory, len, vb_mr_key(e->mr)};
    const struct vb_send_wr wr = {.wr_id = wr_id,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = opcode,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)o->memory,
                                  .rkey = vb_mr_key(o->mr)};
    assert_int_equal(vb_post_send(e->qp, &wr, 1), 1);
}

void pair_post_recv(struct pair_end *e, uint64_t wr_id, uint32_t len)
{
    const struct vb_sge sge = {(uintptr_t)e->memory, len, vb_mr_key(e->mr)};
    const struct vb_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .num_sge = 1};
    assert_int_equal(vb_post_recv(e->qp, &wr, 1), 1);
}
