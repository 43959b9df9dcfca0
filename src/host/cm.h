// SPDX-License-Identifier: Apache-2.0
// The communication manager of a NIC, run over its queue pair 1 by a thread of its own.
//
//     struct vb_cm *cm = vb_host_cm_enter(host, &now_ns);
//     vb_cm_connect(cm, now_ns, …);
//     vb_host_cm_leave(host);
//
// Between the two nobody else uses the manager; what it has to say leaves with vb_host_cm_leave().
// Events come through a descriptor that is readable while there are some.
#ifndef VB_HOST_CM_H
#define VB_HOST_CM_H

#include "cm/cm.h"
#include "cm/cma.h"
#include "cm/facts.h"
#include "verbena/nic.h"

struct vb_host_cm;

// `opts` may be NULL; its seed is drawn if it is zero, its address and CA are the NIC's, and
// so is the prefix where others share its address. -EBUSY: the NIC has a manager.
// vb_host_cm_close() must come before vb_nic_close().
int vb_host_cm_open(struct vb_nic *nic, const struct vb_cm_opts *opts, struct vb_host_cm **host);
void vb_host_cm_close(struct vb_host_cm *host);

struct vb_cm *vb_host_cm_enter(struct vb_host_cm *host, uint64_t *now_ns);
// NULL: another thread has been there until `give_up_ns`.
struct vb_cm *vb_host_cm_enter_until(struct vb_host_cm *host, uint64_t give_up_ns,
                                     uint64_t *now_ns);
void vb_host_cm_leave(struct vb_host_cm *host);
// Leaves what is due to the manager's thread: for a thread that may hold locks of the NIC.
void vb_host_cm_leave_to_thread(struct vb_host_cm *host);

// Takes a port of a port space, which no other NIC of the machine then has (of this user's, in this
// network namespace); 0: any one of those that nobody asks for, which is told. May be repeated, and
// must then be undone as often. 0; -EADDRINUSE; -EINVAL: no such space. Any thread may ask.
int vb_host_cm_bind(struct vb_host_cm *host, enum vb_cma_space space, uint16_t *port);
void vb_host_cm_unbind(struct vb_host_cm *host, enum vb_cma_space space, uint16_t port);

int vb_host_cm_event_fd(const struct vb_host_cm *host);
bool vb_host_cm_take_event(struct vb_host_cm *host, struct vb_cm_event *event);

// As vb_cm_facts(), for who inspects the NIC.
uint32_t vb_host_cm_facts(struct vb_host_cm *host, uint32_t *at, struct vb_cm_facts *facts,
                          uint32_t room);

// The first packet came on a queue pair that could not send yet: it stands for an RTU that was lost
// or is late. For event.c, which holds the NIC's event_lock.
void vb_host_cm_hear(struct vb_host_cm *host, uint32_t qpn);

// How the queue pair has to be connected, once both sides have said what they need to know: the
// REQ and the REP. The active side's `ours` is what it asked with; on a NIC of several addresses it
// names one.
void vb_host_cm_active_peer(const struct vb_cm_request *ours, const struct vb_cm_message *rep,
                            struct vb_qp_peer *peer);
void vb_host_cm_passive_peer(const struct vb_cm_answer *ours, const struct vb_cm_message *req,
                             struct vb_qp_peer *peer);

#endif
