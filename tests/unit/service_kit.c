// SPDX-License-Identifier: Apache-2.0
// An application that is a service of a hull.
#include "service_kit.h"

#include "../wait.h"
#include "duo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

int service_try(const struct vb_hull *hull, const char *name, struct vb_nic **nic, char *error)
{
    const struct vb_nic_opts opts = {.hull = hull->path, .service = name, .error_text = error};
    return vb_nic_open(&opts, nic);
}

struct vb_nic *service_open(const struct vb_hull *hull, const char *name)
{
    char error[VB_ERROR_TEXT];
    struct vb_nic *nic = NULL;

    if (service_try(hull, name, &nic, error) != 0)
        fail_msg("%s", error);
    return nic;
}

void service_join(const struct service_app *a)
{
    struct vb_qp_peer peer = {.rights = DUO_REMOTE, .mtu = 1024};

    vb_nic_gid(a->nic, peer.gid);
    for (unsigned i = 0; i < 2; i++) {
        peer.qpn = vb_qp_num(a->qp[!i]);
        assert_int_equal(vb_qp_connect(a->qp[i], &peer), 0);
    }
}

void service_make(struct service_app *a, const struct vb_hull *hull, bool shared)
{
    void *memory;

    *a = (struct service_app){.nic = service_open(hull, "test")};
    assert_int_equal(vb_service_tag(a->nic, SERVICE_TAG), 0);
    assert_int_equal(vb_pd_alloc(a->nic, &a->pd), 0);
    assert_int_equal(vb_channel_create(a->nic, &a->channel), 0);
    assert_int_equal(vb_hull_alloc(a->nic, NULL, SERVICE_BYTES, &memory), 0);
    assert_int_equal(vb_mr_reg(a->pd, memory, SERVICE_BYTES, VB_RIGHT_ALL, &a->mr), 0);
    a->memory = a->here = memory;
    const struct vb_cq_opts cq = {.entries = 64, .channel = a->channel};
    assert_int_equal(vb_cq_create(a->nic, &cq, &a->cq), 0);
    const struct vb_srq_opts srq = {.depth = SERVICE_SRQ_DEPTH};
    assert_int_equal(vb_srq_create(a->pd, &srq, &a->srq), 0);
    struct vb_qp_opts qp = {.send_cq = a->cq,
                            .recv_cq = a->cq,
                            .send_depth = SERVICE_DEPTH,
                            .recv_depth = SERVICE_DEPTH,
                            .inline_bytes = 16};
    for (unsigned i = 0; i < 2; i++) {
        qp.srq = i && shared ? a->srq : NULL;
        qp.recv_depth = qp.srq ? 0 : SERVICE_DEPTH;
        assert_int_equal(vb_qp_create(a->pd, &qp, &a->qp[i]), 0);
    }
    service_join(a);
}

void service_find(struct service_app *a, const struct vb_hull *hull)
{
    struct vb_service_memory memory;

    *a = (struct service_app){.nic = service_open(hull, "test")};
    assert_int_equal(vb_service_pd(a->nic, SERVICE_TAG, 0, &a->pd), 0);
    assert_int_equal(vb_service_channel(a->nic, SERVICE_TAG, 0, &a->channel), 0);
    assert_int_equal(vb_service_memory(a->nic, SERVICE_TAG, 0, &memory), 0);
    assert_int_equal(vb_service_mr(a->nic, SERVICE_TAG, 0, &a->mr), 0);
    assert_int_equal(vb_service_cq(a->nic, SERVICE_TAG, 0, &a->cq), 0);
    assert_int_equal(vb_service_srq(a->nic, SERVICE_TAG, 0, &a->srq), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vb_service_qp(a->nic, SERVICE_TAG, i, &a->qp[i]), 0);
    assert_int_equal(memory.bytes, SERVICE_BYTES);
    a->memory = (uint8_t *)(uintptr_t)memory.was;
    a->here = memory.addr;
}

void service_leave(struct service_app *a, struct vb_hull *hull)
{
    vb_nic_close(a->nic);
    struct vb_hull_counts counts = hull_kit_wait(hull, 0);
    assert_int_equal(counts.services, 1);
    assert_int_equal(counts.detached, 1);
}

void service_change(struct service_app *a, struct vb_hull *hull)
{
    service_leave(a, hull);
    service_find(a, hull);
}

void service_end(struct service_app *a, struct vb_hull *hull)
{
    assert_int_equal(vb_service_release(a->nic), 0);
    vb_nic_close(a->nic);
    struct vb_hull_counts counts = hull_kit_wait(hull, 0);
    assert_int_equal(counts.services, 0);
    assert_int_equal(counts.objects, 0);
    assert_int_equal(counts.bytes, 0);
    vb_hull_close(hull);
}

struct vb_send_wr service_request(const struct service_app *a, const struct vb_sge *sge,
                                  uint64_t wr_id)
{
    return (struct vb_send_wr){.wr_id = wr_id,
                               .opcode = VB_WR_READ,
                               .flags = VB_WR_SIGNALED,
                               .sge = sge,
                               .num_sge = 1,
                               .raddr = (uintptr_t)a->memory + SERVICE_BYTES / 2,
                               .rkey = vb_mr_key(a->mr)};
}

void service_read(const struct service_app *a, struct vb_qp *qp, uint64_t wr_id)
{
    const struct vb_sge sge = {(uintptr_t)a->memory, 1024, vb_mr_key(a->mr)};
    const struct vb_send_wr wr = service_request(a, &sge, wr_id);
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

void service_recv(struct vb_qp *qp, uint64_t wr_id)
{
    const struct vb_recv_wr wr = {.wr_id = wr_id};
    assert_int_equal(vb_post_recv(qp, &wr, 1), 1);
}

void service_send(struct vb_qp *qp, uint64_t wr_id)
{
    const struct vb_send_wr wr = {.wr_id = wr_id, .opcode = VB_WR_SEND_IMM, .imm = (uint32_t)wr_id};
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
}

void service_await(struct vb_cq *cq, uint64_t count)
{
    WAIT_UNTIL(vb_cq_count(cq) >= count);
}
