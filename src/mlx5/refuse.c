// SPDX-License-Identifier: Apache-2.0
// What only cards have, or only kernels can do: devx objects, steering, encryption, signatures,
// scheduling, clocks. Every call is there, says no and, if asked to, says so in words.
#include "verbs/raw.h"

#include <errno.h>

static const char why[] = "only cards have it";

#define REFUSED(name)                                       \
    VB_RAW_EXPORT int name(void);                           \
    VB_RAW_EXPORT int name(void)                            \
    {                                                       \
        return vb_verbs_raw_refuse(EOPNOTSUPP, #name, why); \
    }

#define EMPTY(name)                                  \
    VB_RAW_EXPORT void *name(void);                  \
    VB_RAW_EXPORT void *name(void)                   \
    {                                                \
        vb_verbs_raw_refuse(EOPNOTSUPP, #name, why); \
        return NULL;                                 \
    }

// Ends of what cannot have begun.
#define IGNORED(name)              \
    VB_RAW_EXPORT void name(void); \
    VB_RAW_EXPORT void name(void)  \
    {                              \
    }

REFUSED(_mlx5dv_mkey_check)
REFUSED(_mlx5dv_query_port)
REFUSED(mlx5dv_crypto_login)
REFUSED(mlx5dv_crypto_login_destroy)
REFUSED(mlx5dv_crypto_login_query)
REFUSED(mlx5dv_crypto_login_query_state)
REFUSED(mlx5dv_crypto_logout)
REFUSED(mlx5dv_dci_stream_id_reset)
REFUSED(mlx5dv_dek_destroy)
REFUSED(mlx5dv_dek_query)
REFUSED(mlx5dv_destroy_flow_matcher)
REFUSED(mlx5dv_destroy_mkey)
REFUSED(mlx5dv_destroy_steering_anchor)
REFUSED(mlx5dv_devx_cq_modify)
REFUSED(mlx5dv_devx_cq_query)
REFUSED(mlx5dv_devx_destroy_eq)
REFUSED(mlx5dv_devx_free_msi_vector)
REFUSED(mlx5dv_devx_general_cmd)
REFUSED(mlx5dv_devx_get_async_cmd_comp)
REFUSED(mlx5dv_devx_ind_tbl_modify)
REFUSED(mlx5dv_devx_ind_tbl_query)
REFUSED(mlx5dv_devx_obj_destroy)
REFUSED(mlx5dv_devx_obj_modify)
REFUSED(mlx5dv_devx_obj_query)
REFUSED(mlx5dv_devx_obj_query_async)
REFUSED(mlx5dv_devx_qp_modify)
REFUSED(mlx5dv_devx_qp_query)
REFUSED(mlx5dv_devx_query_eqn)
REFUSED(mlx5dv_devx_srq_modify)
REFUSED(mlx5dv_devx_srq_query)
REFUSED(mlx5dv_devx_subscribe_devx_event)
REFUSED(mlx5dv_devx_subscribe_devx_event_fd)
REFUSED(mlx5dv_devx_umem_dereg)
REFUSED(mlx5dv_devx_wq_modify)
REFUSED(mlx5dv_devx_wq_query)
REFUSED(mlx5dv_dr_action_destroy)
REFUSED(mlx5dv_dr_action_modify_aso)
REFUSED(mlx5dv_dr_action_modify_flow_meter)
REFUSED(mlx5dv_dr_aso_other_domain_link)
REFUSED(mlx5dv_dr_aso_other_domain_unlink)
REFUSED(mlx5dv_dr_domain_destroy)
REFUSED(mlx5dv_dr_domain_sync)
REFUSED(mlx5dv_dr_matcher_destroy)
REFUSED(mlx5dv_dr_matcher_set_layout)
REFUSED(mlx5dv_dr_rule_destroy)
REFUSED(mlx5dv_dr_table_destroy)
REFUSED(mlx5dv_dump_dr_domain)
REFUSED(mlx5dv_dump_dr_matcher)
REFUSED(mlx5dv_dump_dr_rule)
REFUSED(mlx5dv_dump_dr_table)
REFUSED(mlx5dv_get_clock_info)
REFUSED(mlx5dv_map_ah_to_qp)
REFUSED(mlx5dv_modify_qp_lag_port)
REFUSED(mlx5dv_modify_qp_sched_elem)
REFUSED(mlx5dv_modify_qp_udp_sport)
REFUSED(mlx5dv_qp_cancel_posted_send_wrs)
REFUSED(mlx5dv_query_qp_lag_port)
REFUSED(mlx5dv_reserved_qpn_alloc)
REFUSED(mlx5dv_reserved_qpn_dealloc)
REFUSED(mlx5dv_sched_leaf_destroy)
REFUSED(mlx5dv_sched_leaf_modify)
REFUSED(mlx5dv_sched_node_destroy)
REFUSED(mlx5dv_sched_node_modify)
REFUSED(mlx5dv_set_context_attr)
REFUSED(mlx5dv_vfio_process_events)

EMPTY(mlx5dv_alloc_dm)
EMPTY(mlx5dv_alloc_var)
EMPTY(mlx5dv_create_flow)
EMPTY(mlx5dv_create_flow_action_esp)
EMPTY(mlx5dv_create_flow_action_modify_header)
EMPTY(mlx5dv_create_flow_action_packet_reformat)
EMPTY(mlx5dv_create_flow_matcher)
EMPTY(mlx5dv_create_mkey)
EMPTY(mlx5dv_create_steering_anchor)
EMPTY(mlx5dv_create_wq)
EMPTY(mlx5dv_crypto_login_create)
EMPTY(mlx5dv_dek_create)
EMPTY(mlx5dv_devx_alloc_msi_vector)
EMPTY(mlx5dv_devx_alloc_uar)
EMPTY(mlx5dv_devx_create_cmd_comp)
EMPTY(mlx5dv_devx_create_eq)
EMPTY(mlx5dv_devx_create_event_channel)
EMPTY(mlx5dv_devx_obj_create)
EMPTY(mlx5dv_devx_umem_reg)
EMPTY(mlx5dv_devx_umem_reg_ex)
EMPTY(mlx5dv_dm_map_op_addr)
EMPTY(mlx5dv_dr_action_create_aso)
EMPTY(mlx5dv_dr_action_create_default_miss)
EMPTY(mlx5dv_dr_action_create_dest_array)
EMPTY(mlx5dv_dr_action_create_dest_devx_tir)
EMPTY(mlx5dv_dr_action_create_dest_ib_port)
EMPTY(mlx5dv_dr_action_create_dest_ibv_qp)
EMPTY(mlx5dv_dr_action_create_dest_root_table)
EMPTY(mlx5dv_dr_action_create_dest_table)
EMPTY(mlx5dv_dr_action_create_dest_vport)
EMPTY(mlx5dv_dr_action_create_drop)
EMPTY(mlx5dv_dr_action_create_flow_counter)
EMPTY(mlx5dv_dr_action_create_flow_meter)
EMPTY(mlx5dv_dr_action_create_flow_sampler)
EMPTY(mlx5dv_dr_action_create_modify_header)
EMPTY(mlx5dv_dr_action_create_packet_reformat)
EMPTY(mlx5dv_dr_action_create_pop_vlan)
EMPTY(mlx5dv_dr_action_create_push_vlan)
EMPTY(mlx5dv_dr_action_create_tag)
EMPTY(mlx5dv_dr_domain_create)
EMPTY(mlx5dv_dr_matcher_create)
EMPTY(mlx5dv_dr_rule_create)
EMPTY(mlx5dv_dr_table_create)
EMPTY(mlx5dv_pp_alloc)
EMPTY(mlx5dv_qp_ex_from_ibv_qp_ex)
EMPTY(mlx5dv_sched_leaf_create)
EMPTY(mlx5dv_sched_node_create)

IGNORED(mlx5dv_devx_destroy_cmd_comp)
IGNORED(mlx5dv_devx_destroy_event_channel)
IGNORED(mlx5dv_devx_free_uar)
IGNORED(mlx5dv_dr_domain_allow_duplicate_rules)
IGNORED(mlx5dv_dr_domain_set_reclaim_device_memory)
IGNORED(mlx5dv_free_var)
IGNORED(mlx5dv_pp_free)

// These say no in their own ways.
VB_RAW_EXPORT int mlx5dv_vfio_get_events_fd(void);
VB_RAW_EXPORT int mlx5dv_vfio_get_events_fd(void)
{
    return -vb_verbs_raw_refuse(EOPNOTSUPP, "mlx5dv_vfio_get_events_fd", why);
}

VB_RAW_EXPORT ssize_t mlx5dv_devx_get_event(void);
VB_RAW_EXPORT ssize_t mlx5dv_devx_get_event(void)
{
    vb_verbs_raw_refuse(EOPNOTSUPP, "mlx5dv_devx_get_event", why);
    return -1;
}

EMPTY(mlx5dv_get_vfio_device_list)
