// SPDX-License-Identifier: Apache-2.0
// What drivers of real cards want from libibverbs. Their libraries (libmlx5, libefa) are linked by
// programs that can use them, and must load; here they find no device, so all of this is refused.
#include "verbs/verbs.h"

#include <errno.h>

// Also those that answer nothing: errno says it.
#define REFUSED(name)               \
    VB_VERBS_EXPORT int name(void); \
    VB_VERBS_EXPORT int name(void)  \
    {                               \
        errno = EOPNOTSUPP;         \
        return EOPNOTSUPP;          \
    }

#define EMPTY(name)                   \
    VB_VERBS_EXPORT void *name(void); \
    VB_VERBS_EXPORT void *name(void)  \
    {                                 \
        errno = EOPNOTSUPP;           \
        return NULL;                  \
    }

VB_VERBS_EXPORT extern const bool verbs_allow_disassociate_destroy;
VB_VERBS_EXPORT const bool verbs_allow_disassociate_destroy = false;

REFUSED(__ioctl_final_num_attrs)
REFUSED(execute_ioctl)
REFUSED(ibv_cmd_advise_mr)
REFUSED(ibv_cmd_alloc_dm)
REFUSED(ibv_cmd_alloc_mw)
REFUSED(ibv_cmd_alloc_pd)
REFUSED(ibv_cmd_attach_mcast)
REFUSED(ibv_cmd_close_xrcd)
REFUSED(ibv_cmd_create_ah)
REFUSED(ibv_cmd_create_counters)
REFUSED(ibv_cmd_create_cq)
REFUSED(ibv_cmd_create_cq_ex)
REFUSED(ibv_cmd_create_flow)
REFUSED(ibv_cmd_create_flow_action_esp)
REFUSED(ibv_cmd_create_qp)
REFUSED(ibv_cmd_create_qp_ex)
REFUSED(ibv_cmd_create_qp_ex2)
REFUSED(ibv_cmd_create_rwq_ind_table)
REFUSED(ibv_cmd_create_srq)
REFUSED(ibv_cmd_create_srq_ex)
REFUSED(ibv_cmd_create_wq)
REFUSED(ibv_cmd_dealloc_mw)
REFUSED(ibv_cmd_dealloc_pd)
REFUSED(ibv_cmd_dereg_mr)
REFUSED(ibv_cmd_destroy_ah)
REFUSED(ibv_cmd_destroy_counters)
REFUSED(ibv_cmd_destroy_cq)
REFUSED(ibv_cmd_destroy_flow)
REFUSED(ibv_cmd_destroy_flow_action)
REFUSED(ibv_cmd_destroy_qp)
REFUSED(ibv_cmd_destroy_rwq_ind_table)
REFUSED(ibv_cmd_destroy_srq)
REFUSED(ibv_cmd_destroy_wq)
REFUSED(ibv_cmd_detach_mcast)
REFUSED(ibv_cmd_free_dm)
REFUSED(ibv_cmd_get_context)
REFUSED(ibv_cmd_modify_cq)
REFUSED(ibv_cmd_modify_flow_action_esp)
REFUSED(ibv_cmd_modify_qp)
REFUSED(ibv_cmd_modify_qp_ex)
REFUSED(ibv_cmd_modify_srq)
REFUSED(ibv_cmd_modify_wq)
REFUSED(ibv_cmd_open_qp)
REFUSED(ibv_cmd_open_xrcd)
REFUSED(ibv_cmd_poll_cq)
REFUSED(ibv_cmd_post_recv)
REFUSED(ibv_cmd_post_send)
REFUSED(ibv_cmd_post_srq_recv)
REFUSED(ibv_cmd_query_context)
REFUSED(ibv_cmd_query_device_any)
REFUSED(ibv_cmd_query_mr)
REFUSED(ibv_cmd_query_port)
REFUSED(ibv_cmd_query_qp)
REFUSED(ibv_cmd_query_srq)
REFUSED(ibv_cmd_read_counters)
REFUSED(ibv_cmd_reg_dm_mr)
REFUSED(ibv_cmd_reg_dmabuf_mr)
REFUSED(ibv_cmd_reg_mr)
REFUSED(ibv_cmd_req_notify_cq)
REFUSED(ibv_cmd_rereg_mr)
REFUSED(ibv_cmd_resize_cq)

// Its answer is a length, and -1 if there is none.
VB_VERBS_EXPORT int ibv_read_ibdev_sysfs_file(void);
VB_VERBS_EXPORT int ibv_read_ibdev_sysfs_file(void)
{
    errno = EOPNOTSUPP;
    return -1;
}

EMPTY(_verbs_init_and_alloc_context)
EMPTY(verbs_open_device)

// A driver says something, and errno is still what it is about to return.
VB_VERBS_EXPORT void __verbs_log(void);
VB_VERBS_EXPORT void __verbs_log(void)
{
}

REFUSED(verbs_init_cq)
REFUSED(verbs_register_driver_34)
REFUSED(verbs_set_ops)
REFUSED(verbs_uninit_context)

// Of the kernel's answers, for librdmacm.
REFUSED(ibv_copy_ah_attr_from_kern)
REFUSED(ibv_copy_path_rec_from_kern)
REFUSED(ibv_copy_path_rec_to_kern)
REFUSED(ibv_copy_qp_attr_from_kern)
REFUSED(ibv_register_driver)
