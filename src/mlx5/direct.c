// SPDX-License-Identifier: Apache-2.0
// libmlx5, what our device has of it: queues whose rings programs drive by hand, in the formats of
// ConnectX. The rest is in refuse.c.
#include "verbena/wqe.h"
#include "verbs/raw.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

static const char no_card[] = "the device has nothing of the kind";

// Direct verbs are there for all of it: a queue's entries are a card's.
VB_RAW_EXPORT bool mlx5dv_is_supported(struct ibv_device *device)
{
    return vb_verbs_raw_device(device);
}

// Nothing of what a card may have besides: entries of version 0, none of them compressed. Behind
// comp_mask the struct grows with each release, and only what that names is the caller's.
VB_RAW_EXPORT int mlx5dv_query_device(struct ibv_context *context, struct mlx5dv_context *attrs)
{
    if (!mlx5dv_is_supported(context->device))
        return vb_verbs_raw_refuse(EOPNOTSUPP, "mlx5dv_query_device", "it is another's device");
    attrs->version = 0;
    attrs->flags = 0;
    attrs->comp_mask = 0;
    return 0;
}

VB_RAW_EXPORT struct ibv_context *mlx5dv_open_device(struct ibv_device *device,
                                                     struct mlx5dv_context_attr *attr)
{
    if (attr && (attr->flags || attr->comp_mask)) {
        vb_verbs_raw_refuse(EOPNOTSUPP, "mlx5dv_open_device", no_card);
        return NULL;
    }
    return ibv_open_device(device);
}

// ---- queues with options of a card, as far as they ask for what is so anyway

VB_RAW_EXPORT struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context,
                                              struct ibv_qp_init_attr_ex *attr,
                                              struct mlx5dv_qp_init_attr *more)
{
    const uint32_t known =
        MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
    uint64_t mask = more ? more->comp_mask : 0;

    if (mask & ~(uint64_t)MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS ||
        (mask && more->create_flags & ~known)) {
        vb_verbs_raw_refuse(EOPNOTSUPP, "mlx5dv_create_qp", no_card);
        return NULL;
    }
    return ibv_create_qp_ex(context, attr);
}

VB_RAW_EXPORT struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context,
                                                 struct ibv_cq_init_attr_ex *attr,
                                                 struct mlx5dv_cq_init_attr *more)
{
    uint64_t mask = more ? more->comp_mask : 0;

    if (mask & ~(uint64_t)MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE ||
        (mask && more->cqe_size != VB_CQE_BYTES)) {
        vb_verbs_raw_refuse(EOPNOTSUPP, "mlx5dv_create_cq", no_card);
        return NULL;
    }
    return ibv_create_cq_ex(context, attr);
}

// ---- rings

static bool is_foreign(const struct ibv_context *context)
{
    return !context || !vb_verbs_raw_device(context->device);
}

// A register without BlueFlame: it takes the 8 bytes of a doorbell.
static int init_qp(struct ibv_qp *in, struct mlx5dv_qp *out)
{
    struct vb_raw_qp raw;
    int err = is_foreign(in->context) ? EOPNOTSUPP : vb_verbs_raw_qp(in, &raw);

    if (err)
        return err;
    out->dbrec = raw.record;
    out->sq.buf = raw.send;
    out->sq.wqe_cnt = raw.send_blocks;
    out->sq.stride = VB_WQEBB_BYTES;
    out->rq.buf = raw.recv;
    out->rq.wqe_cnt = raw.recv_entries;
    out->rq.stride = raw.recv_stride;
    out->bf.reg = raw.bell;
    out->bf.size = 0;
    out->comp_mask = 0;
    return 0;
}

static int init_cq(struct ibv_cq *in, struct mlx5dv_cq *out)
{
    struct vb_raw_cq raw;
    int err = is_foreign(in->context) ? EOPNOTSUPP : vb_verbs_raw_cq(in, &raw);

    if (err)
        return err;
    out->buf = raw.ring;
    out->dbrec = raw.record;
    out->cqe_cnt = raw.entries;
    out->cqe_size = VB_CQE_BYTES;
    out->cq_uar = raw.bell;
    out->cqn = raw.cqn;
    out->comp_mask = 0;
    return 0;
}

static int init_srq(struct ibv_srq *in, struct mlx5dv_srq *out)
{
    struct vb_raw_srq raw;
    int err = is_foreign(in->context) ? EOPNOTSUPP : vb_verbs_raw_srq(in, &raw);

    if (err)
        return err;
    out->buf = raw.ring;
    out->dbrec = raw.record;
    out->stride = raw.stride;
    out->head = raw.head;
    out->tail = raw.tail;
    if (out->comp_mask & MLX5DV_SRQ_MASK_SRQN)
        out->srqn = raw.srqn;
    out->comp_mask &= MLX5DV_SRQ_MASK_SRQN;
    return 0;
}

static int init(struct mlx5dv_obj *obj, uint64_t type)
{
    const uint64_t known = MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ;
    int err = type & ~known ? EOPNOTSUPP : 0;

    if (!err && type & MLX5DV_OBJ_QP)
        err = init_qp(obj->qp.in, obj->qp.out);
    if (!err && type & MLX5DV_OBJ_CQ)
        err = init_cq(obj->cq.in, obj->cq.out);
    if (!err && type & MLX5DV_OBJ_SRQ)
        err = init_srq(obj->srq.in, obj->srq.out);
    return err ? vb_verbs_raw_refuse(err, "mlx5dv_init_obj", "there are QP, CQ and SRQ") : 0;
}

VB_RAW_EXPORT int vb_mlx5_init_obj(struct mlx5dv_obj *obj, uint64_t type);
VB_RAW_EXPORT int vb_mlx5_init_obj_1_0(struct mlx5dv_obj *obj, uint64_t type);
__asm__(".symver vb_mlx5_init_obj,mlx5dv_init_obj@@MLX5_1.2");
__asm__(".symver vb_mlx5_init_obj_1_0,mlx5dv_init_obj@MLX5_1.0");

int vb_mlx5_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
    return init(obj, type);
}

// Programs of that time were given the place where the address of the register is.
int vb_mlx5_init_obj_1_0(struct mlx5dv_obj *obj, uint64_t type)
{
    int err = init(obj, type);

    if (!err && type & MLX5DV_OBJ_CQ) {
        void *bell = obj->cq.out->cq_uar;
        memcpy((uint8_t *)bell + VB_RAW_REGISTER_BYTES - sizeof bell, &bell, sizeof bell);
        obj->cq.out->cq_uar = (uint8_t *)bell + VB_RAW_REGISTER_BYTES - sizeof bell;
    }
    return err;
}
