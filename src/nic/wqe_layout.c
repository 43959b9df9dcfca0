// SPDX-License-Identifier: Apache-2.0
// Proves at compile time that our work-queue and completion entries are ConnectX's.
#include "verbena/wqe.h"

#include <infiniband/mlx5dv.h>
#include <stddef.h>

#define SAME(ours, our_field, theirs, their_field)                                          \
    static_assert(offsetof(struct ours, our_field) == offsetof(struct theirs, their_field), \
                  #our_field " lies elsewhere than in mlx5dv.h")

static_assert(sizeof(struct vb_wqe_ctrl) == sizeof(struct mlx5_wqe_ctrl_seg), "ctrl");
SAME(vb_wqe_ctrl, opmod, mlx5_wqe_ctrl_seg, opmod_idx_opcode);
static_assert(offsetof(struct vb_wqe_ctrl, opcode) ==
                  offsetof(struct mlx5_wqe_ctrl_seg, opmod_idx_opcode) + 3,
              "opcode is the last byte of the first word");
SAME(vb_wqe_ctrl, qpn, mlx5_wqe_ctrl_seg, qpn_ds);
static_assert(offsetof(struct vb_wqe_ctrl, ds) == offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds) + 3,
              "ds is the last byte of the second word");
SAME(vb_wqe_ctrl, signature, mlx5_wqe_ctrl_seg, signature);
SAME(vb_wqe_ctrl, fm_ce_se, mlx5_wqe_ctrl_seg, fm_ce_se);
SAME(vb_wqe_ctrl, imm, mlx5_wqe_ctrl_seg, imm);

static_assert(sizeof(struct vb_wqe_raddr) == sizeof(struct mlx5_wqe_raddr_seg), "raddr");
SAME(vb_wqe_raddr, raddr, mlx5_wqe_raddr_seg, raddr);
SAME(vb_wqe_raddr, rkey, mlx5_wqe_raddr_seg, rkey);

static_assert(sizeof(struct vb_wqe_atomic) == sizeof(struct mlx5_wqe_atomic_seg), "atomic");
SAME(vb_wqe_atomic, swap_add, mlx5_wqe_atomic_seg, swap_add);
SAME(vb_wqe_atomic, compare, mlx5_wqe_atomic_seg, compare);

static_assert(sizeof(struct vb_wqe_data) == sizeof(struct mlx5_wqe_data_seg), "data");
SAME(vb_wqe_data, byte_count, mlx5_wqe_data_seg, byte_count);
SAME(vb_wqe_data, lkey, mlx5_wqe_data_seg, lkey);
SAME(vb_wqe_data, addr, mlx5_wqe_data_seg, addr);

SAME(vb_wqe_datagram, qkey, mlx5_wqe_datagram_seg, av.key.qkey.qkey);
SAME(vb_wqe_datagram, dqpn, mlx5_wqe_datagram_seg, av.dqp_dct);
SAME(vb_wqe_datagram, stat_rate_sl, mlx5_wqe_datagram_seg, av.stat_rate_sl);
SAME(vb_wqe_datagram, tclass, mlx5_wqe_datagram_seg, av.tclass);
SAME(vb_wqe_datagram, hop_limit, mlx5_wqe_datagram_seg, av.hop_limit);
SAME(vb_wqe_datagram, grh_gid_fl, mlx5_wqe_datagram_seg, av.grh_gid_fl);
SAME(vb_wqe_datagram, rgid, mlx5_wqe_datagram_seg, av.rgid);
SAME(vb_wqe_srq_next, next, mlx5_wqe_srq_next_seg, next_wqe_index);
static_assert(sizeof(struct vb_wqe_umr) == sizeof(struct mlx5_wqe_umr_ctrl_seg), "umr");
static_assert(sizeof(struct vb_wqe_mkey) == sizeof(struct mlx5_wqe_mkey_context_seg), "mkey");
SAME(vb_wqe_mkey, free, mlx5_wqe_mkey_context_seg, free);
SAME(vb_wqe_mkey, access, mlx5_wqe_mkey_context_seg, access_flags);
SAME(vb_wqe_mkey, start, mlx5_wqe_mkey_context_seg, start_addr);
SAME(vb_wqe_mkey, len, mlx5_wqe_mkey_context_seg, len);

static_assert(sizeof(struct vb_cqe) == sizeof(struct mlx5_cqe64), "cqe");
SAME(vb_cqe, flags_rqpn, mlx5_cqe64, flags_rqpn);
SAME(vb_cqe, srqn_uidx, mlx5_cqe64, srqn_uidx);
SAME(vb_cqe, imm_inval_pkey, mlx5_cqe64, imm_inval_pkey);
SAME(vb_cqe, byte_cnt, mlx5_cqe64, byte_cnt);
SAME(vb_cqe, timestamp, mlx5_cqe64, timestamp);
SAME(vb_cqe, sop_drop_qpn, mlx5_cqe64, sop_drop_qpn);
SAME(vb_cqe, wqe_counter, mlx5_cqe64, wqe_counter);
SAME(vb_cqe, op_own, mlx5_cqe64, op_own);
SAME(vb_cqe, vendor_syndrome, mlx5_err_cqe, vendor_err_synd);
SAME(vb_cqe, syndrome, mlx5_err_cqe, syndrome);

#define VALUE(ours, theirs) \
    static_assert((int)(ours) == (int)(theirs), #theirs " has another value")

VALUE(VB_WQE_NOP, MLX5_OPCODE_NOP);
VALUE(VB_WQE_SEND_INVAL, MLX5_OPCODE_SEND_INVAL);
VALUE(VB_WQE_WRITE, MLX5_OPCODE_RDMA_WRITE);
VALUE(VB_WQE_WRITE_IMM, MLX5_OPCODE_RDMA_WRITE_IMM);
VALUE(VB_WQE_SEND, MLX5_OPCODE_SEND);
VALUE(VB_WQE_SEND_IMM, MLX5_OPCODE_SEND_IMM);
VALUE(VB_WQE_READ, MLX5_OPCODE_RDMA_READ);
VALUE(VB_WQE_ATOMIC_CS, MLX5_OPCODE_ATOMIC_CS);
VALUE(VB_WQE_ATOMIC_FA, MLX5_OPCODE_ATOMIC_FA);
VALUE(VB_WQE_MASKED_CS, MLX5_OPCODE_ATOMIC_MASKED_CS);
VALUE(VB_WQE_MASKED_FA, MLX5_OPCODE_ATOMIC_MASKED_FA);
VALUE(VB_WQE_UMR, MLX5_OPCODE_UMR);
VALUE(VB_WQE_MKEY_FREE, MLX5_WQE_MKEY_CONTEXT_FREE);
VALUE(VB_WQE_MKEY_LOCAL_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE);
VALUE(VB_WQE_MKEY_REMOTE_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ);
VALUE(VB_WQE_MKEY_REMOTE_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE);
VALUE(VB_WQE_MKEY_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC);
VALUE(VB_WQE_INLINE, MLX5_INLINE_SEG);
VALUE(VB_WQE_LKEY_END, MLX5_INVALID_LKEY);
VALUE(VB_WQE_CE_ALWAYS, MLX5_WQE_CTRL_CQ_UPDATE);
VALUE(VB_WQE_SOLICITED, MLX5_WQE_CTRL_SOLICITED);
VALUE(VB_WQE_FENCE, MLX5_WQE_CTRL_FENCE);
VALUE(VB_DBREC_RQ, MLX5_RCV_DBR);
VALUE(VB_DBREC_SQ, MLX5_SND_DBR);
VALUE(VB_CQE_REQ, MLX5_CQE_REQ);
VALUE(VB_CQE_RESP_WR_IMM, MLX5_CQE_RESP_WR_IMM);
VALUE(VB_CQE_RESP_SEND, MLX5_CQE_RESP_SEND);
VALUE(VB_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_IMM);
VALUE(VB_CQE_RESP_SEND_INV, MLX5_CQE_RESP_SEND_INV);
VALUE(VB_CQE_REQ_ERR, MLX5_CQE_REQ_ERR);
VALUE(VB_CQE_RESP_ERR, MLX5_CQE_RESP_ERR);
VALUE(VB_CQE_INVALID, MLX5_CQE_INVALID);
VALUE(VB_SYN_LOCAL_LENGTH, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
VALUE(VB_SYN_LOCAL_QP_OP, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
VALUE(VB_SYN_LOCAL_PROT, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
VALUE(VB_SYN_FLUSH, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
VALUE(VB_SYN_BIND, MLX5_CQE_SYNDROME_MW_BIND_ERR);
VALUE(VB_SYN_BAD_RESP, MLX5_CQE_SYNDROME_BAD_RESP_ERR);
VALUE(VB_SYN_LOCAL_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
VALUE(VB_SYN_REMOTE_INVAL_REQ, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
VALUE(VB_SYN_REMOTE_ACCESS, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
VALUE(VB_SYN_REMOTE_OP, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
VALUE(VB_SYN_RETRY_EXC, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
VALUE(VB_SYN_RNR_RETRY_EXC, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
