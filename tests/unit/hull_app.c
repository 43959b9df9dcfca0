// SPDX-License-Identifier: Apache-2.0
// An application at a hull with two queue pairs that are connected with each other.
#include "hull_app.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    WR_ID = 77,
};

void hull_app_join(struct hull_app *a)
{
    struct vb_qp_peer peer = {.rights = DUO_REMOTE, .timeout = 12, .retries = 7};

    vb_nic_gid(a->e.nic, peer.gid);
    for (unsigned i = 0; i < 2; i++)
        (void)vb_qp_fail(a->qp[i]); // if it ever was connected
    for (unsigned i = 0; i < 2; i++) {
        peer.qpn = vb_qp_num(a->qp[!i]);
        assert_int_equal(vb_qp_connect(a->qp[i], &peer), 0);
    }
}

void hull_app_open(struct hull_app *a, const struct vb_hull *hull)
{
    void *memory = NULL;

    *a = (struct hull_app){.e = {.nic = hull_kit_attach(hull)}};
    assert_int_equal(vb_hull_alloc(a->e.nic, NULL, DUO_BYTES, &memory), 0);
    a->e.memory = memory;
    assert_int_equal(vb_pd_alloc(a->e.nic, &a->e.pd), 0);
    assert_int_equal(vb_mr_reg(a->e.pd, memory, DUO_BYTES, DUO_RIGHTS, &a->e.mr), 0);
    assert_int_equal(vb_cq_create(a->e.nic, &(struct vb_cq_opts){.entries = 64}, &a->e.cq), 0);
    for (unsigned i = 0; i < 2; i++)
        a->qp[i] = duo_make_qp(&a->e, (struct vb_qp_opts){0});
    hull_app_join(a);
}

void hull_app_close(struct hull_app *a)
{
    vb_nic_close(a->e.nic);
}

enum vb_wc_status hull_app_do(struct hull_app *a, enum vb_wr_opcode opcode)
{
    const struct vb_sge sge = {(uintptr_t)a->e.memory, 64, vb_mr_key(a->e.mr)};
    const struct vb_send_wr wr = {.wr_id = WR_ID,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = opcode,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)a->e.memory + DUO_BYTES / 2,
                                  .rkey = vb_mr_key(a->e.mr)};

    assert_int_equal(vb_post_send(a->qp[0], &wr, 1), 1);
    struct vb_wc wc = duo_wait(a->e.cq);
    assert_int_equal(wc.wr_id, WR_ID);
    return wc.status;
}
