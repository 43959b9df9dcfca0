// SPDX-License-Identifier: Apache-2.0
// Verbs that this device does not have. Each slot holds a function: a program that calls it is told
// so.
#include "verbs/verbs.h"

#include <errno.h>

static int no(const char *verb)
{
    return vb_verbs_fail(EOPNOTSUPP, verb, "not there");
}

static void *nothing(const char *verb)
{
    vb_verbs_fail(EOPNOTSUPP, verb, "not there");
    return NULL;
}

static int read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t n,
                         uint32_t flags)
{
    (void)counters, (void)values, (void)n, (void)flags;
    return no("ibv_read_counters");
}

static int attach_counters(struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
                           struct ibv_flow *flow)
{
    (void)counters, (void)attr, (void)flow;
    return no("ibv_attach_counters_point_flow");
}

static struct ibv_counters *create_counters(struct ibv_context *context,
                                            struct ibv_counters_init_attr *attr)
{
    (void)context, (void)attr;
    return nothing("ibv_create_counters");
}

static int destroy_counters(struct ibv_counters *counters)
{
    (void)counters;
    return no("ibv_destroy_counters");
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t len,
                                unsigned access)
{
    (void)pd, (void)dm, (void)offset, (void)len, (void)access;
    return nothing("ibv_reg_dm_mr");
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
    (void)context, (void)attr;
    return nothing("ibv_alloc_dm");
}

static int free_dm(struct ibv_dm *dm)
{
    (void)dm;
    return no("ibv_free_dm");
}

static struct ibv_flow_action *create_flow_action(struct ibv_context *context,
                                                  struct ibv_flow_action_esp_attr *attr)
{
    (void)context, (void)attr;
    return nothing("ibv_create_flow_action_esp");
}

static int modify_flow_action(struct ibv_flow_action *action, struct ibv_flow_action_esp_attr *attr)
{
    (void)action, (void)attr;
    return no("ibv_modify_flow_action_esp");
}

static int destroy_flow_action(struct ibv_flow_action *action)
{
    (void)action;
    return no("ibv_destroy_flow_action");
}

static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
    (void)qp, (void)attr;
    return nothing("ibv_create_flow");
}

static int destroy_flow(struct ibv_flow *flow)
{
    (void)flow;
    return no("ibv_destroy_flow");
}

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
    (void)srq;
    *bad = op;
    return no("ibv_post_srq_ops");
}

// Slots of an older ABI that no header of today calls.
static void *compat_slot(void)
{
    return nothing("a verb of the first ABI");
}

// Slots of the table that no verb has; what calls them expects nothing.
static void no_verb(void)
{
}

static void fill_compat(struct ibv_context_ops *ops)
{
    void *(**const slots[])(void) = {
        &ops->_compat_alloc_pd,    &ops->_compat_dealloc_pd,   &ops->_compat_reg_mr,
        &ops->_compat_rereg_mr,    &ops->_compat_dereg_mr,     &ops->_compat_create_cq,
        &ops->_compat_cq_event,    &ops->_compat_resize_cq,    &ops->_compat_destroy_cq,
        &ops->_compat_create_srq,  &ops->_compat_modify_srq,   &ops->_compat_query_srq,
        &ops->_compat_destroy_srq, &ops->_compat_create_qp,    &ops->_compat_query_qp,
        &ops->_compat_modify_qp,   &ops->_compat_destroy_qp,   &ops->_compat_create_ah,
        &ops->_compat_destroy_ah,  &ops->_compat_attach_mcast, &ops->_compat_detach_mcast,
        &ops->_compat_async_event,
    };
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        *slots[i] = compat_slot;
    ops->_compat_query_device = ibv_query_device;
    ops->_compat_query_port = ibv_query_port;
}

void vb_verbs_refuse_ops(struct verbs_context *ops)
{
    fill_compat(&ops->context.ops);
    ops->read_counters = read_counters;
    ops->attach_counters_point_flow = attach_counters;
    ops->create_counters = create_counters;
    ops->destroy_counters = destroy_counters;
    ops->reg_dm_mr = reg_dm_mr;
    ops->alloc_dm = alloc_dm;
    ops->free_dm = free_dm;
    ops->create_flow_action_esp = create_flow_action;
    ops->modify_flow_action_esp = modify_flow_action;
    ops->destroy_flow_action = destroy_flow_action;
    ops->ibv_create_flow = create_flow;
    ops->ibv_destroy_flow = destroy_flow;
    ops->post_srq_ops = post_srq_ops;
    ops->ABI_placeholder1 = no_verb;
    ops->ABI_placeholder2 = no_verb;
}

// ---- objects of another process

VB_VERBS_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    (void)cmd_fd;
    return nothing("ibv_import_device");
}

VB_VERBS_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
    (void)context, (void)handle;
    return nothing("ibv_import_pd");
}

VB_VERBS_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    (void)pd;
    no("ibv_unimport_pd"); // nothing was imported: the object stays as it is
}

VB_VERBS_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
    (void)pd, (void)handle;
    return nothing("ibv_import_mr");
}

VB_VERBS_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    (void)mr;
    no("ibv_unimport_mr"); // nothing was imported: the object stays as it is
}

VB_VERBS_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
    (void)context, (void)handle;
    return nothing("ibv_import_dm");
}

VB_VERBS_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    (void)dm;
    no("ibv_unimport_dm"); // nothing was imported: the object stays as it is
}

// ---- of newer headers than Debian 12's, whose structs are not known here

VB_VERBS_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, void *attr);
VB_VERBS_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, void *attr)
{
    (void)pd, (void)attr;
    return nothing("ibv_reg_mr_ex");
}

VB_VERBS_EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
VB_VERBS_EXPORT int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
    (void)dm;
    no("ibv_dm_export_dmabuf_fd");
    return -1;
}

VB_VERBS_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, void **buf);
VB_VERBS_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, void **buf)
{
    (void)pd, (void)size, (void)buf;
    return nothing("ibv_alloc_buf");
}

VB_VERBS_EXPORT int ibv_free_buf(void *buf);
VB_VERBS_EXPORT int ibv_free_buf(void *buf)
{
    (void)buf;
    return no("ibv_free_buf");
}

VB_VERBS_EXPORT struct ibv_mr *ibv_reg_buf_mr(void *buf);
VB_VERBS_EXPORT struct ibv_mr *ibv_reg_buf_mr(void *buf)
{
    (void)buf;
    return nothing("ibv_reg_buf_mr");
}

VB_VERBS_EXPORT int ibv_export_buf_dmabuf_fd(void *buf);
VB_VERBS_EXPORT int ibv_export_buf_dmabuf_fd(void *buf)
{
    (void)buf;
    no("ibv_export_buf_dmabuf_fd");
    return -1;
}
