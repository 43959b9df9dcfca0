// SPDX-License-Identifier: Apache-2.0
// Receive queues of their own, tables of them, and datagrams that are spread over a table.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    MTU_MAX = 4096,
};

// Which nobody else knows: nobody sends to the queue itself.
static uint32_t draw_qkey(void)
{
    uint32_t qkey;

    while (getrandom(&qkey, sizeof qkey, 0) != sizeof qkey)
        continue;
    return qkey;
}

// ---- queues

static const char *judge(const struct ibv_wq_init_attr *a)
{
    if (a->wq_type != IBV_WQT_RQ || !a->pd || !a->cq)
        return "it is a receive queue with a domain and a completion queue";
    if (a->max_wr == 0 || a->max_wr > VB_VERBS_MAX_WR || a->max_sge > VB_VERBS_MAX_SGE)
        return "it has 1 to 16,384 receives of up to 16 scatter entries";
    if (a->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS ||
        (a->comp_mask & IBV_WQ_INIT_ATTR_FLAGS && a->create_flags))
        return "its flags are those of Ethernet frames";
    return NULL;
}

// All live on the first unit, whatever completion queues they have: one queue pair serves them all.
static int create_in_nic(struct vb_nic *nic, struct vb_verbs_wq *wq,
                         const struct ibv_wq_init_attr *a)
{
    int err = vb_cq_create(nic, &(struct vb_cq_opts){.entries = 1}, &wq->cq);
    if (err)
        return err;
    const struct vb_qp_opts opts = {.service = VB_SERVICE_UD,
                                    .send_cq = wq->cq,
                                    .recv_cq = VB_VERBS_CAST(vb_verbs_cq, a->cq)->nic,
                                    .send_depth = 1,
                                    .recv_depth = a->max_wr,
                                    .recv_sge = a->max_sge};
    err = vb_qp_create(VB_VERBS_CAST(vb_verbs_pd, a->pd)->nic, &opts, &wq->nic);
    if (err)
        vb_cq_destroy(wq->cq);
    return err;
}

struct ibv_wq *vb_verbs_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *a)
{
    const char *why = judge(a);
    struct vb_verbs_wq *wq = why ? NULL : calloc(1, sizeof *wq);
    int err = why ? -EINVAL : !wq ? -ENOMEM : create_in_nic(vb_verbs_of(context)->nic, wq, a);

    if (err) {
        free(wq);
        vb_verbs_fail(-err, "ibv_create_wq", why);
        return NULL;
    }
    wq->wq = (struct ibv_wq){.context = context,
                             .wq_context = a->wq_context,
                             .pd = a->pd,
                             .cq = a->cq,
                             .wq_num = vb_qp_num(wq->nic),
                             .handle = vb_qp_num(wq->nic),
                             .state = IBV_WQS_RESET,
                             .wq_type = IBV_WQT_RQ,
                             .post_recv = vb_verbs_post_wq_recv};
    pthread_mutex_init(&wq->wq.mutex, NULL);
    pthread_cond_init(&wq->wq.cond, NULL);
    vb_verbs_process_lock();
    VB_VERBS_CAST(vb_verbs_cq, a->cq)->users++;
    vb_verbs_process_unlock();
    return &wq->wq;
}

static int go(struct vb_verbs_wq *wq, enum ibv_wq_state from, enum ibv_wq_state to)
{
    struct vb_qp_change change = {.qkey = draw_qkey(), .mtu = MTU_MAX};

    if (to == IBV_WQS_RESET || to == IBV_WQS_ERR) {
        change.to = to == IBV_WQS_RESET ? VB_QP_RESET : VB_QP_ERR;
        return vb_qp_change(wq->nic, &change);
    }
    if (from == to)
        return 0;
    if (from != IBV_WQS_RESET)
        return -EINVAL;
    change.to = VB_QP_INIT;
    int err = vb_qp_change(wq->nic, &change);
    change.to = VB_QP_RTR;
    return err ? err : vb_qp_change(wq->nic, &change);
}

int vb_verbs_modify_wq(struct ibv_wq *ibv, struct ibv_wq_attr *a)
{
    struct vb_verbs_wq *wq = VB_VERBS_CAST(vb_verbs_wq, ibv);
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv->cq);
    const uint32_t known = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE;

    if (vb_verbs_refuse_dead(ibv->context, "ibv_modify_wq"))
        return EPERM;
    if (a->attr_mask & ~known || !(a->attr_mask & IBV_WQ_ATTR_STATE) ||
        (unsigned)a->wq_state > IBV_WQS_ERR ||
        (a->attr_mask & IBV_WQ_ATTR_CURR_STATE && a->curr_wq_state != ibv->state))
        return vb_verbs_fail(EINVAL, "ibv_modify_wq", "no such state, or it is in another one");
    vb_verbs_lock(&cq->lock);
    int err = go(wq, ibv->state, a->wq_state);
    vb_verbs_unlock(&cq->lock);
    if (err)
        return vb_verbs_fail(-err, "ibv_modify_wq", "no such step");
    ibv->state = a->wq_state;
    atomic_store_explicit(&wq->may_receive, ibv->state != IBV_WQS_RESET, memory_order_relaxed);
    return 0;
}

int vb_verbs_destroy_wq(struct ibv_wq *ibv)
{
    struct vb_verbs_wq *wq = VB_VERBS_CAST(vb_verbs_wq, ibv);
    struct vb_verbs_cq *cq = VB_VERBS_CAST(vb_verbs_cq, ibv->cq);

    if (vb_verbs_refuse_dead(ibv->context, "ibv_destroy_wq"))
        return EPERM;
    vb_verbs_process_lock();
    bool used = wq->users;
    vb_verbs_process_unlock();
    if (used)
        return vb_verbs_fail(EBUSY, "ibv_destroy_wq", "tables hold it");
    vb_verbs_lock(&cq->lock);
    vb_qp_destroy(wq->nic);
    vb_verbs_unlock(&cq->lock);
    vb_cq_destroy(wq->cq);
    vb_verbs_process_lock();
    cq->users--;
    vb_verbs_process_unlock();
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    free(wq);
    return 0;
}

// ---- tables

// Needs the process's lock.
static void count_users(struct vb_verbs_table *t, int more)
{
    for (uint32_t i = 0; i < t->count; i++)
        t->wq[i]->users += (uint32_t)more;
}

struct ibv_rwq_ind_table *vb_verbs_create_table(struct ibv_context *context,
                                                struct ibv_rwq_ind_table_init_attr *a)
{
    bool legal = !a->comp_mask && a->log_ind_tbl_size <= VB_VERBS_TABLE_LOG && a->ind_tbl;
    uint32_t count = legal ? 1u << a->log_ind_tbl_size : 0;
    struct vb_verbs_table *t = legal ? calloc(1, sizeof *t + count * sizeof t->wq[0]) : NULL;

    if (!t) {
        vb_verbs_fail(legal ? ENOMEM : EINVAL, "ibv_create_rwq_ind_table",
                      "a table has 1 to 128 receive queues");
        return NULL;
    }
    t->table.context = context;
    t->count = count;
    for (uint32_t i = 0; i < count; i++)
        t->wq[i] = VB_VERBS_CAST(vb_verbs_wq, a->ind_tbl[i]);
    vb_verbs_process_lock();
    count_users(t, 1);
    vb_verbs_process_unlock();
    return &t->table;
}

int vb_verbs_destroy_table(struct ibv_rwq_ind_table *ibv)
{
    struct vb_verbs_table *t = VB_VERBS_CAST(vb_verbs_table, ibv);

    if (vb_verbs_refuse_dead(ibv->context, "ibv_destroy_rwq_ind_table"))
        return EPERM;
    vb_verbs_process_lock();
    bool used = t->users;
    if (!used)
        count_users(t, -1);
    vb_verbs_process_unlock();
    if (used)
        return vb_verbs_fail(EBUSY, "ibv_destroy_rwq_ind_table", "queue pairs use it");
    free(t);
    return 0;
}

// ---- who uses them

const char *vb_verbs_judge_spread(const struct ibv_qp_init_attr_ex *a)
{
    const uint32_t needed = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    const uint64_t known =
        IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
    const struct ibv_rx_hash_conf *h = &a->rx_hash_conf;

    if ((a->comp_mask & needed) != needed || !a->rwq_ind_tbl || a->qp_type != IBV_QPT_UD)
        return "datagrams are spread by a table and a hash";
    if (h->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ || !h->rx_hash_key ||
        h->rx_hash_key_len != VB_VERBS_HASH_KEY || h->rx_hash_fields_mask & ~known)
        return "the hash is Toeplitz's, of addresses, with a key of 40 bytes";
    return NULL;
}

int vb_verbs_spread(struct vb_verbs_qp *qp, const struct ibv_rx_hash_conf *conf)
{
    struct vb_qp *members[1 << VB_VERBS_TABLE_LOG];
    const uint64_t fields = conf->rx_hash_fields_mask;

    for (uint32_t i = 0; i < qp->table->count; i++)
        members[i] = qp->table->wq[i]->nic;
    return vb_qp_spread(
        qp->nic, members, qp->table->count,
        (fields & (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6) ? VB_SPREAD_SOURCE : 0u) |
            (fields & (IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_DST_IPV6) ? VB_SPREAD_DESTINATION : 0u),
        conf->rx_hash_key);
}
