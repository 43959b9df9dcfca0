// SPDX-License-Identifier: Apache-2.0
// The list of devices, and contexts: the tables of functions that the header's inline verbs call.
#include "verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

// ---- devices

VB_VERBS_EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(2, sizeof *list);

    if (!list) {
        errno = ENOMEM;
        return NULL;
    }
    list[0] = vb_verbs_device();
    if (count)
        *count = 1;
    return list;
}

VB_VERBS_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

VB_VERBS_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

VB_VERBS_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    (void)device;
    return 0;
}

VB_VERBS_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    (void)device;
    return vb_verbs_guid();
}

// ---- contexts

static void fill_ops(struct verbs_context *v)
{
    vb_verbs_refuse_ops(v);
    v->sz = sizeof *v;
    v->query_port = vb_verbs_query_port;
    v->query_device_ex = vb_verbs_query_device_ex;
    v->query_rt_values = vb_verbs_query_rt_values;
    v->create_cq_ex = vb_verbs_create_cq_ex;
    v->modify_cq = vb_verbs_modify_cq;
    v->create_srq_ex = vb_verbs_create_srq_ex;
    v->get_srq_num = vb_verbs_get_srq_num;
    v->open_xrcd = vb_verbs_open_xrcd;
    v->close_xrcd = vb_verbs_close_xrcd;
    v->create_qp_ex = vb_verbs_create_qp_ex;
    v->open_qp = vb_verbs_open_qp;
    v->alloc_td = vb_verbs_alloc_td;
    v->dealloc_td = vb_verbs_dealloc_td;
    v->alloc_parent_domain = vb_verbs_alloc_parent_domain;
    v->advise_mr = vb_verbs_advise_mr;
    v->create_wq = vb_verbs_create_wq;
    v->modify_wq = vb_verbs_modify_wq;
    v->destroy_wq = vb_verbs_destroy_wq;
    v->create_rwq_ind_table = vb_verbs_create_table;
    v->destroy_rwq_ind_table = vb_verbs_destroy_table;
    v->alloc_null_mr = vb_verbs_alloc_null_mr;
    v->modify_qp_rate_limit = vb_verbs_modify_qp_rate_limit;
    struct ibv_context_ops *ops = &v->context.ops;
    ops->alloc_mw = vb_verbs_alloc_mw;
    ops->bind_mw = vb_verbs_bind_mw;
    ops->dealloc_mw = vb_verbs_dealloc_mw;
    ops->poll_cq = vb_verbs_poll_cq;
    ops->req_notify_cq = vb_verbs_req_notify_cq;
    ops->post_srq_recv = vb_verbs_post_srq_recv;
    ops->post_send = vb_verbs_post_send;
    ops->post_recv = vb_verbs_post_recv;
}

static bool watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// One descriptor that is readable while events wait: the NIC's, and those that another context of
// this process took and left for us. It blocks until the application says otherwise.
static bool open_descriptors(struct vb_verbs_context *c)
{
    c->left.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->base.context.async_fd = epoll_create1(EPOLL_CLOEXEC);
    return c->left.wake_fd >= 0 && c->base.context.async_fd >= 0 &&
           watch(c->base.context.async_fd, c->left.wake_fd) &&
           watch(c->base.context.async_fd, vb_nic_event_fd(c->nic));
}

static void close_descriptors(struct vb_verbs_context *c)
{
    if (c->left.wake_fd >= 0)
        close(c->left.wake_fd);
    if (c->base.context.async_fd >= 0)
        close(c->base.context.async_fd);
}

VB_VERBS_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct vb_verbs_context *c = calloc(1, sizeof *c);

    if (!c || device != vb_verbs_device()) {
        free(c);
        vb_verbs_fail(c ? ENODEV : ENOMEM, "ibv_open_device", "no such device, or no memory");
        return NULL;
    }
    c->nic = vb_verbs_nic_get();
    if (!c->nic) {
        free(c);
        return NULL;
    }
    fill_ops(&c->base);
    c->base.context.device = device;
    c->base.context.cmd_fd = -1;
    c->base.context.num_comp_vectors = (int)vb_verbs_units();
    c->base.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&c->base.context.mutex, NULL);
    vb_fifo_init(&c->cqs);
    vb_fifo_init(&c->qps);
    vb_fifo_init(&c->srqs);
    vb_fifo_init(&c->xrcds);
    vb_verbs_list_gids(c->nic, &c->gids);
    c->now = vb_verbs_generation();
    c->generation = *c->now;
    if (!open_descriptors(c)) {
        int error = errno;
        close_descriptors(c);
        vb_verbs_nic_put(c->nic);
        free(c);
        vb_verbs_fail(error, "ibv_open_device", "no descriptor for events");
        return NULL;
    }
    vb_verbs_process_lock();
    vb_fifo_push(vb_verbs_contexts(), &c->link);
    vb_verbs_process_unlock();
    return &c->base.context;
}

// Objects that the application left behind stay until the NIC goes, with the last context.
VB_VERBS_EXPORT int ibv_close_device(struct ibv_context *context)
{
    struct vb_verbs_context *c = vb_verbs_of(context);

    if (!vb_verbs_is_dead(context)) {
        vb_verbs_process_lock();
        vb_link_remove(&c->link);
        vb_verbs_process_unlock();
    }
    close_descriptors(c);
    vb_verbs_nic_put(c->nic);
    pthread_mutex_destroy(&context->mutex);
    free(c);
    return 0;
}
