// SPDX-License-Identifier: Apache-2.0
// The symbols of version 1.0, whose structs were others: programs of that time (2006) see a machine
// without devices.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>

VB_VERBS_EXPORT struct ibv_device **vb_verbs_old_list(int *count);
VB_VERBS_EXPORT struct ibv_device **vb_verbs_old_list(int *count)
{
    if (count)
        *count = 0;
    vb_verbs_log(VB_VERBS_ERROR, "ibv_get_device_list: no device for programs of libibverbs 1.0");
    return calloc(1, sizeof(struct ibv_device *));
}

VB_VERBS_EXPORT void vb_verbs_old_free(struct ibv_device **list);
VB_VERBS_EXPORT void vb_verbs_old_free(struct ibv_device **list)
{
    free(list);
}

VB_VERBS_EXPORT int vb_verbs_old_number(void);
VB_VERBS_EXPORT int vb_verbs_old_number(void)
{
    return vb_verbs_fail(EOPNOTSUPP, "a verb of libibverbs 1.0", "not there");
}

VB_VERBS_EXPORT void *vb_verbs_old_pointer(void);
VB_VERBS_EXPORT void *vb_verbs_old_pointer(void)
{
    vb_verbs_old_number();
    return NULL;
}

#define OLD(function, name) __asm__(".symver " #function ", " #name "@IBVERBS_1.0")

OLD(vb_verbs_old_list, ibv_get_device_list);
OLD(vb_verbs_old_free, ibv_free_device_list);
OLD(vb_verbs_old_number, ibv_ack_async_event);
OLD(vb_verbs_old_number, ibv_ack_cq_events);
OLD(vb_verbs_old_pointer, ibv_alloc_pd);
OLD(vb_verbs_old_number, ibv_attach_mcast);
OLD(vb_verbs_old_number, ibv_close_device);
OLD(vb_verbs_old_pointer, ibv_create_ah);
OLD(vb_verbs_old_pointer, ibv_create_cq);
OLD(vb_verbs_old_pointer, ibv_create_qp);
OLD(vb_verbs_old_pointer, ibv_create_srq);
OLD(vb_verbs_old_number, ibv_dealloc_pd);
OLD(vb_verbs_old_number, ibv_dereg_mr);
OLD(vb_verbs_old_number, ibv_destroy_ah);
OLD(vb_verbs_old_number, ibv_destroy_cq);
OLD(vb_verbs_old_number, ibv_destroy_qp);
OLD(vb_verbs_old_number, ibv_destroy_srq);
OLD(vb_verbs_old_number, ibv_detach_mcast);
OLD(vb_verbs_old_number, ibv_get_async_event);
OLD(vb_verbs_old_number, ibv_get_cq_event);
OLD(vb_verbs_old_number, ibv_get_device_guid);
OLD(vb_verbs_old_pointer, ibv_get_device_name);
OLD(vb_verbs_old_number, ibv_modify_qp);
OLD(vb_verbs_old_number, ibv_modify_srq);
OLD(vb_verbs_old_pointer, ibv_open_device);
OLD(vb_verbs_old_number, ibv_query_device);
OLD(vb_verbs_old_number, ibv_query_gid);
OLD(vb_verbs_old_number, ibv_query_pkey);
OLD(vb_verbs_old_number, ibv_query_port);
OLD(vb_verbs_old_number, ibv_query_qp);
OLD(vb_verbs_old_number, ibv_query_srq);
OLD(vb_verbs_old_pointer, ibv_reg_mr);
OLD(vb_verbs_old_number, ibv_resize_cq);
