// SPDX-License-Identifier: Apache-2.0
// The communication manager of the process's NIC, for our librdmacm.
#include "verbs/cm.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <string.h>

static int open_manager(struct ibv_context *context, const struct vb_cm_opts *opts,
                        struct vb_host_cm **host)
{
    return vb_host_cm_open(vb_verbs_of(context)->nic, opts, host);
}

static int bind_port(struct vb_host_cm *host, uint32_t space, uint16_t *port)
{
    return vb_host_cm_bind(host, (enum vb_cma_space)space, port);
}

static void unbind_port(struct vb_host_cm *host, uint32_t space, uint16_t port)
{
    vb_host_cm_unbind(host, (enum vb_cma_space)space, port);
}

static void own_address(struct ibv_context *context, uint8_t gid[16])
{
    vb_nic_gid(vb_verbs_of(context)->nic, gid);
}

static int address_index(struct ibv_context *context, const uint8_t gid[16])
{
    const struct vb_verbs_gids *g = &vb_verbs_of(context)->gids;

    for (uint32_t i = 0; i < g->count; i++)
        if (memcmp(g->gid[i].raw, gid, 16) == 0)
            return (int)i;
    return -ENOENT;
}

// Those that the device shows are all that programs can name.
static int take_address(struct ibv_context *context, const uint8_t gid[16])
{
    int index = address_index(context, gid);
    return index < 0 ? -EADDRNOTAVAIL : -vb_verbs_take_gid(context, (uint32_t)index, "rdma_cm");
}

static void say(const char *line)
{
    vb_verbs_log(VB_VERBS_INFO, "%s", line);
}

VB_VERBS_EXPORT const struct vb_verbs_cm *vb_verbs_cm(void)
{
    static const struct vb_verbs_cm table = {
        .open = open_manager,
        .close = vb_host_cm_close,
        .enter = vb_host_cm_enter,
        .enter_until = vb_host_cm_enter_until,
        .leave = vb_host_cm_leave,
        .leave_to_thread = vb_host_cm_leave_to_thread,
        .event_fd = vb_host_cm_event_fd,
        .take_event = vb_host_cm_take_event,
        .listen = vb_cm_listen,
        .unlisten = vb_cm_unlisten,
        .connect = vb_cm_connect,
        .accept = vb_cm_accept,
        .reject = vb_cm_reject,
        .confirm = vb_cm_confirm,
        .heard = vb_cm_heard,
        .disconnect = vb_cm_disconnect,
        .abandon = vb_cm_abandon,
        .has_room = vb_cm_has_room,
        .leaving = vb_cm_leaving,
        .ask = vb_cm_sidr_ask,
        .reply = vb_cm_sidr_reply,
        .bind = bind_port,
        .unbind = unbind_port,
        .take_address = take_address,
        .own_address = own_address,
        .address_index = address_index,
        .say = say,
    };
    return &table;
}
