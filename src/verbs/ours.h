// SPDX-License-Identifier: Apache-2.0
// The verbs that are ours, under names of their own. The exported ones (real.c) ask whose device it
// is first; the rest of this library is written as if there was no other.
#ifndef VB_VERBS_OURS_H
#define VB_VERBS_OURS_H

#include <infiniband/verbs.h>

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);

#define VB_OURS(name) extern __typeof__(name) vb_ours_##name

VB_OURS(_ibv_query_gid_ex);
VB_OURS(_ibv_query_gid_table);
VB_OURS(ibv_ack_async_event);
VB_OURS(ibv_ack_cq_events);
VB_OURS(ibv_alloc_pd);
VB_OURS(ibv_attach_mcast);
VB_OURS(ibv_close_device);
VB_OURS(ibv_create_ah);
VB_OURS(ibv_create_ah_from_wc);
VB_OURS(ibv_create_comp_channel);
VB_OURS(ibv_create_cq);
VB_OURS(ibv_create_qp);
VB_OURS(ibv_create_srq);
VB_OURS(ibv_dealloc_pd);
VB_OURS(ibv_dereg_mr);
VB_OURS(ibv_destroy_ah);
VB_OURS(ibv_destroy_comp_channel);
VB_OURS(ibv_destroy_cq);
VB_OURS(ibv_destroy_qp);
VB_OURS(ibv_destroy_srq);
VB_OURS(ibv_detach_mcast);
VB_OURS(ibv_free_device_list);
VB_OURS(ibv_get_async_event);
VB_OURS(ibv_get_cq_event);
VB_OURS(ibv_get_device_guid);
VB_OURS(ibv_get_device_index);
VB_OURS(ibv_get_device_list);
VB_OURS(ibv_get_device_name);
VB_OURS(ibv_get_pkey_index);
VB_OURS(ibv_init_ah_from_wc);
VB_OURS(ibv_modify_qp);
VB_OURS(ibv_modify_srq);
VB_OURS(ibv_open_device);
VB_OURS(ibv_qp_to_qp_ex);
VB_OURS(ibv_query_device);
VB_OURS(ibv_query_ece);
VB_OURS(ibv_query_gid);
VB_OURS(ibv_query_gid_type);
VB_OURS(ibv_query_pkey);
VB_OURS(ibv_query_port);
VB_OURS(ibv_query_qp);
VB_OURS(ibv_query_qp_data_in_order);
VB_OURS(ibv_query_srq);
VB_OURS(ibv_reg_dmabuf_mr);
VB_OURS(ibv_reg_mr);
VB_OURS(ibv_reg_mr_iova);
VB_OURS(ibv_reg_mr_iova2);
VB_OURS(ibv_rereg_mr);
VB_OURS(ibv_resize_cq);
VB_OURS(ibv_resolve_eth_l2_from_gid);
VB_OURS(ibv_set_ece);

#ifndef VB_VERBS_DISPATCHES
#define _ibv_query_gid_ex           vb_ours__ibv_query_gid_ex
#define _ibv_query_gid_table        vb_ours__ibv_query_gid_table
#define ibv_ack_async_event         vb_ours_ibv_ack_async_event
#define ibv_ack_cq_events           vb_ours_ibv_ack_cq_events
#define ibv_alloc_pd                vb_ours_ibv_alloc_pd
#define ibv_attach_mcast            vb_ours_ibv_attach_mcast
#define ibv_close_device            vb_ours_ibv_close_device
#define ibv_create_ah               vb_ours_ibv_create_ah
#define ibv_create_ah_from_wc       vb_ours_ibv_create_ah_from_wc
#define ibv_create_comp_channel     vb_ours_ibv_create_comp_channel
#define ibv_create_cq               vb_ours_ibv_create_cq
#define ibv_create_qp               vb_ours_ibv_create_qp
#define ibv_create_srq              vb_ours_ibv_create_srq
#define ibv_dealloc_pd              vb_ours_ibv_dealloc_pd
#define ibv_dereg_mr                vb_ours_ibv_dereg_mr
#define ibv_destroy_ah              vb_ours_ibv_destroy_ah
#define ibv_destroy_comp_channel    vb_ours_ibv_destroy_comp_channel
#define ibv_destroy_cq              vb_ours_ibv_destroy_cq
#define ibv_destroy_qp              vb_ours_ibv_destroy_qp
#define ibv_destroy_srq             vb_ours_ibv_destroy_srq
#define ibv_detach_mcast            vb_ours_ibv_detach_mcast
#define ibv_free_device_list        vb_ours_ibv_free_device_list
#define ibv_get_async_event         vb_ours_ibv_get_async_event
#define ibv_get_cq_event            vb_ours_ibv_get_cq_event
#define ibv_get_device_guid         vb_ours_ibv_get_device_guid
#define ibv_get_device_index        vb_ours_ibv_get_device_index
#define ibv_get_device_list         vb_ours_ibv_get_device_list
#define ibv_get_device_name         vb_ours_ibv_get_device_name
#define ibv_get_pkey_index          vb_ours_ibv_get_pkey_index
#define ibv_init_ah_from_wc         vb_ours_ibv_init_ah_from_wc
#define ibv_modify_qp               vb_ours_ibv_modify_qp
#define ibv_modify_srq              vb_ours_ibv_modify_srq
#define ibv_open_device             vb_ours_ibv_open_device
#define ibv_qp_to_qp_ex             vb_ours_ibv_qp_to_qp_ex
#define ibv_query_device            vb_ours_ibv_query_device
#define ibv_query_ece               vb_ours_ibv_query_ece
#define ibv_query_gid               vb_ours_ibv_query_gid
#define ibv_query_gid_type          vb_ours_ibv_query_gid_type
#define ibv_query_pkey              vb_ours_ibv_query_pkey
#define ibv_query_port              vb_ours_ibv_query_port
#define ibv_query_qp                vb_ours_ibv_query_qp
#define ibv_query_qp_data_in_order  vb_ours_ibv_query_qp_data_in_order
#define ibv_query_srq               vb_ours_ibv_query_srq
#define ibv_reg_dmabuf_mr           vb_ours_ibv_reg_dmabuf_mr
#define ibv_reg_mr                  vb_ours_ibv_reg_mr
#define ibv_reg_mr_iova             vb_ours_ibv_reg_mr_iova
#define ibv_reg_mr_iova2            vb_ours_ibv_reg_mr_iova2
#define ibv_rereg_mr                vb_ours_ibv_rereg_mr
#define ibv_resize_cq               vb_ours_ibv_resize_cq
#define ibv_resolve_eth_l2_from_gid vb_ours_ibv_resolve_eth_l2_from_gid
#define ibv_set_ece                 vb_ours_ibv_set_ece
#endif

#endif
