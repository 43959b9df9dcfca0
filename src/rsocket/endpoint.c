// SPDX-License-Identifier: Apache-2.0
// The verbs under a stream: queue pair, completion queue, registered memory; posting and polling.
#include "rsocket/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 16
};

// Ends the stream because of an error, which the next call reports.
void vb_rs_break(struct vb_rsocket *rs, int error)
{
    if (rs->stream.connected && !rs->error)
        rs->error = error;
    vb_rs_stream_cut(&rs->stream);
}

static int create_queues(struct vb_rsocket *rs)
{
    struct vb_rs_end *e = &rs->end;
    struct ibv_device_attr device;

    if (!ibv_query_device(rs->id->verbs, &device)) {
        int most = device.max_qp_wr < UINT16_MAX ? device.max_qp_wr : UINT16_MAX;
        rs->size.sq = rs->size.sq < most ? rs->size.sq : (uint16_t)most;
        rs->size.rq = rs->size.rq < most ? rs->size.rq : (uint16_t)most;
    }
    vb_rs_sizes_round(&rs->size);
    e->channel = ibv_create_comp_channel(rs->id->verbs);
    if (!e->channel)
        return -errno;
    int flags = fcntl(e->channel->fd, F_GETFL);
    if (fcntl(e->channel->fd, F_SETFL, flags | O_NONBLOCK))
        return -errno;
    e->cq = ibv_create_cq(rs->id->verbs, rs->size.sq + rs->size.rq, rs, e->channel, 0);
    if (!e->cq)
        return -errno;
    struct ibv_qp_init_attr attr = {
        .qp_context = rs,
        .send_cq = e->cq,
        .recv_cq = e->cq,
        .cap = {.max_send_wr = rs->size.sq,
                .max_recv_wr = rs->size.rq,
                .max_send_sge = 2,
                .max_recv_sge = 1,
                .max_inline_data = rs->size.inline_bytes},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    if (rdma_create_qp(rs->id, NULL, &attr))
        return -errno;
    rs->size.inline_bytes = (uint16_t)attr.cap.max_inline_data;
    return 0;
}

static size_t round_up(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

// One block: what is sent and the control entries, the target list, the receive buffer.
static int create_memory(struct vb_rsocket *rs)
{
    struct vb_rs_end *e = &rs->end;
    struct ibv_pd *pd = rs->id->qp->pd;
    const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    size_t send = round_up(rs->size.send_bytes), list = round_up(vb_rs_list_bytes(&rs->size));
    size_t control = round_up(VB_RS_CONTROL_SLOTS * sizeof(struct vb_rs_sge));
    size_t total = send + control + list + rs->size.recv_bytes;

    if (posix_memalign(&e->memory, 4096, total))
        return -ENOMEM;
    memset(e->memory, 0, total);
    e->messages = calloc(rs->size.rq + 1u, sizeof *e->messages);
    if (!e->messages)
        return -ENOMEM;
    struct vb_rs_memory m = {.send = e->memory, .messages = e->messages};
    m.control = m.send + send;
    m.list = (struct vb_rs_sge *)(void *)(m.control + control);
    m.iomaps = (struct vb_rs_iomap *)(void *)(m.list + VB_RS_LIST_ENTRIES);
    m.recv = m.control + control + list;
    e->send_mr = ibv_reg_mr(pd, m.send, send + control, IBV_ACCESS_LOCAL_WRITE);
    e->list_mr = ibv_reg_mr(pd, m.list, vb_rs_list_bytes(&rs->size), remote);
    e->recv_mr = ibv_reg_mr(pd, m.recv, rs->size.recv_bytes, remote);
    if (!e->send_mr || !e->list_mr || !e->recv_mr)
        return errno ? -errno : -ENOMEM;
    m.list_key = e->list_mr->rkey;
    m.recv_key = e->recv_mr->rkey;
    vb_rs_stream_init(&rs->stream, &rs->size, &m);
    return 0;
}

// Messages bring nothing but immediate data: their receives have no memory.
static int post_receives(struct vb_rsocket *rs, unsigned count)
{
    struct ibv_recv_wr wr[BATCH], *bad;

    while (count) {
        unsigned n = count < BATCH ? count : BATCH;
        for (unsigned i = 0; i < n; i++)
            wr[i] = (struct ibv_recv_wr){.wr_id = VB_RS_RECEIVE_ID,
                                         .next = i + 1 < n ? &wr[i + 1] : NULL};
        int error = ibv_post_recv(rs->id->qp, wr, &bad);
        if (error)
            return -error;
        count -= n;
    }
    return 0;
}

int vb_rs_end_create(struct vb_rsocket *rs)
{
    int err = create_queues(rs);

    if (!err)
        err = create_memory(rs);
    if (!err)
        err = post_receives(rs, rs->size.rq);
    return err ? err : vb_rs_watch_exit();
}

static void free_region(struct ibv_mr *mr)
{
    if (mr)
        ibv_dereg_mr(mr);
}

void vb_rs_end_destroy(struct vb_rsocket *rs)
{
    struct vb_rs_end *e = &rs->end;

    if (rs->id && rs->id->qp)
        rdma_destroy_qp(rs->id);
    free_region(e->send_mr);
    free_region(e->list_mr);
    free_region(e->recv_mr);
    if (e->cq) {
        if (e->unacked_events)
            ibv_ack_cq_events(e->cq, e->unacked_events);
        ibv_destroy_cq(e->cq);
    }
    if (e->channel)
        ibv_destroy_comp_channel(e->channel);
    free(e->messages);
    free(e->memory);
    *e = (struct vb_rs_end){0};
}

int vb_rs_post(struct vb_rsocket *rs, const struct vb_rs_post *post)
{
    struct ibv_sge sge[2];
    struct ibv_send_wr *bad,
        wr = {
            .wr_id = post->id,
            .sg_list = sge,
            .opcode = post->is_message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
            .send_flags = post->is_inline ? IBV_SEND_INLINE : 0,
            .imm_data = htonl(post->message),
            .wr.rdma = {.remote_addr = post->remote_addr, .rkey = post->rkey},
        };

    for (uint32_t i = 0; i < post->pieces; i++) {
        if (!post->piece[i].bytes)
            continue;
        sge[wr.num_sge++] = (struct ibv_sge){.addr = (uintptr_t)post->piece[i].data,
                                             .length = post->piece[i].bytes,
                                             .lkey = rs->end.send_mr->lkey};
    }
    int error = ibv_post_send(rs->id->qp, &wr, &bad);
    if (error)
        vb_rs_break(rs, error);
    return -error;
}

void vb_rs_give_credits(struct vb_rsocket *rs)
{
    struct vb_rs_post post;

    while (rs->state == VB_RS_CONNECTED && vb_rs_take_credit(&rs->stream, &post))
        if (vb_rs_post(rs, &post))
            break;
}

// A write of nothing, which only the peer's NIC sees and acknowledges.
void vb_rs_probe(struct vb_rsocket *rs)
{
    uint64_t idle_ns = (uint64_t)rs->flag.keep_idle_s * 1000000000u, now_ns = vb_rs_now_ns();
    struct vb_rs_post post;

    if (!rs->flag.keep_alive || !rs->stream.connected)
        return;
    if (rs->heard || !rs->heard_ns) {
        rs->heard = false;
        rs->heard_ns = now_ns;
    }
    if (now_ns - rs->heard_ns < idle_ns || !vb_rs_take_control(&rs->stream, VB_RS_KEEPALIVE, &post))
        return;
    post.is_message = false;
    rs->heard_ns = now_ns;
    vb_rs_post(rs, &post);
}

static int error_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return ETIMEDOUT;
    default: return ECONNRESET;
    }
}

// True if a receive is to be posted again.
static bool handle(struct vb_rsocket *rs, const struct ibv_wc *wc)
{
    bool is_receive = wc->wr_id & VB_RS_RECEIVE_ID;

    if (!is_receive) {
        if (wc->status != IBV_WC_SUCCESS)
            vb_rs_break(rs, error_of(wc->status));
        vb_rs_sent(&rs->stream, wc->wr_id);
        return false;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        vb_rs_break(rs, ECONNRESET); // the queue pair failed, maybe by what the peer did to it
        return false;
    }
    if (!(wc->wc_flags & IBV_WC_WITH_IMM) || !vb_rs_received(&rs->stream, ntohl(wc->imm_data)))
        vb_rs_break(rs, EPROTO);
    return true;
}

void vb_rs_progress(struct vb_rsocket *rs)
{
    struct ibv_wc wc[BATCH];
    int n;

    vb_rs_give_credits(rs);
    do {
        unsigned receives = 0;
        n = ibv_poll_cq(rs->end.cq, BATCH, wc);
        rs->heard = n > 0 || rs->heard;
        for (int i = 0; i < n; i++)
            receives += handle(rs, &wc[i]);
        if (receives && rs->stream.connected && post_receives(rs, receives))
            vb_rs_break(rs, ECONNRESET);
    } while (n == BATCH);
    vb_rs_give_credits(rs);
}
