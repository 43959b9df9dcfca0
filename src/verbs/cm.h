// SPDX-License-Identifier: Apache-2.0
// What our librdmacm wants from our libibverbs: the communication manager of the process's NIC. Its
// code is there once, with the NIC's, so it is reached by a table of functions.
#ifndef VB_VERBS_CM_H
#define VB_VERBS_CM_H

#include "host/cm.h"

#include <infiniband/verbs.h>

struct vb_verbs_cm {
    int (*open)(struct ibv_context *context, const struct vb_cm_opts *opts,
                struct vb_host_cm **host);
    __typeof__(vb_host_cm_close) *close;
    __typeof__(vb_host_cm_enter) *enter;
    __typeof__(vb_host_cm_enter_until) *enter_until;
    __typeof__(vb_host_cm_leave) *leave;
    __typeof__(vb_host_cm_leave_to_thread) *leave_to_thread;
    __typeof__(vb_host_cm_event_fd) *event_fd;
    __typeof__(vb_host_cm_take_event) *take_event;
    __typeof__(vb_cm_listen) *listen;
    __typeof__(vb_cm_unlisten) *unlisten;
    __typeof__(vb_cm_connect) *connect;
    __typeof__(vb_cm_accept) *accept;
    __typeof__(vb_cm_reject) *reject;
    __typeof__(vb_cm_confirm) *confirm;
    __typeof__(vb_cm_heard) *heard;
    __typeof__(vb_cm_disconnect) *disconnect;
    __typeof__(vb_cm_abandon) *abandon;
    __typeof__(vb_cm_has_room) *has_room;
    __typeof__(vb_cm_leaving) *leaving;
    __typeof__(vb_cm_sidr_ask) *ask;
    __typeof__(vb_cm_sidr_reply) *reply;
    // A port that is nobody else's on this machine; 0: any. -EADDRINUSE.
    int (*bind)(struct vb_host_cm *host, uint32_t space, uint16_t *port);
    void (*unbind)(struct vb_host_cm *host, uint32_t space, uint16_t port);
    // Puts the NIC on an address of this machine, if it is not there. -EADDRNOTAVAIL.
    int (*take_address)(struct ibv_context *context, const uint8_t gid[16]);
    // Its first address.
    void (*own_address)(struct ibv_context *context, uint8_t gid[16]);
    // Which index the address has in the table of GIDs; -ENOENT.
    int (*address_index)(struct ibv_context *context, const uint8_t gid[16]);
    // Words for who has VERBENA_LOG=info.
    void (*say)(const char *line);
};

const struct vb_verbs_cm *vb_verbs_cm(void);

#endif
