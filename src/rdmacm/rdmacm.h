// SPDX-License-Identifier: Apache-2.0
// The connection library from inside: ids, their events and channels, over the communication
// manager of the process's NIC (verbs/cm.h).
//
// Each struct begins with what the application sees of it (rdma/rdma_cma.h). One lock guards all of
// it. It is never held while a verb is called: a program may call us between ibv_start_poll() and
// ibv_end_poll(), and holds a completion queue then.
#ifndef VB_RDMACM_RDMACM_H
#define VB_RDMACM_RDMACM_H

#include "base/fifo.h"
#include "cm/cma.h"
#include "verbs/cm.h"
#include "verbs/raw.h"

#include <rdma/rdma_cma.h>
#include <stdbool.h>

enum {
    VB_RDMACM_PORT = 1,              // of the device
    VB_RDMACM_REQ_PRIVATE = 92 - 36, // of the program: the rest is rdma_cm's
    VB_RDMACM_REP_PRIVATE = 196,
    VB_RDMACM_REJ_PRIVATE = 148,
    VB_RDMACM_SIDR_REQ_PRIVATE = 216 - 36,
    VB_RDMACM_SIDR_REP_PRIVATE = 136,
    VB_RDMACM_HOPS = 64,
    VB_RDMACM_LIFE = 14,  // of packets: 67 ms
    VB_RDMACM_READS = 16, // in flight, at most
};

enum vb_rdmacm_state {
    VB_RDMACM_IDLE,
    VB_RDMACM_BOUND,
    VB_RDMACM_ADDR_RESOLVED,
    VB_RDMACM_ROUTE_RESOLVED,
    VB_RDMACM_LISTENING,
    VB_RDMACM_ASKING,    // a REQ or a SIDR_REQ is out
    VB_RDMACM_REPLIED,   // the REP is here, and not yet answered
    VB_RDMACM_REQUESTED, // a peer's REQ or SIDR_REQ waits for our answer
    VB_RDMACM_ACCEPTED,  // the REP is out
    VB_RDMACM_CONNECTED,
    VB_RDMACM_OVER,
};

// Address family, IP address and port of one end.
struct vb_rdmacm_name {
    struct vb_ip ip;
    uint16_t port;
    uint32_t scope; // of a link-local address
};

struct vb_rdmacm_channel {
    struct rdma_event_channel channel;
    uint32_t generation;
    struct vb_fifo events;
    struct vb_fifo ids;      // that are on it
    _Atomic uint32_t queued; // so far: who waits sleeps while it stays the same
    bool told;               // the descriptor is readable
    bool dead;               // destroyed; but who waits for its events may come once more
};

// A port of a port space that ids of this process have.
struct vb_rdmacm_service {
    struct vb_link link;
    enum rdma_port_space space;
    uint16_t port;
    uint32_t number; // what the manager names it by
    uint32_t users;
    struct vb_fifo listeners;
};

// What both ends have said about the connection's queue pairs.
struct vb_rdmacm_path {
    uint32_t our_qpn, our_psn; // the PSN that the peer begins with
    uint32_t peer_qpn, peer_psn;
    struct vb_ip peer;
    uint8_t mtu; // enum ibv_mtu
    uint8_t timeout, retries, rnr_retries;
    uint8_t initiator_depth, responder_resources;
    struct ibv_ece local_ece, peer_ece;
};

struct vb_rdmacm_id {
    struct rdma_cm_id id;
    uint32_t generation;
    enum vb_rdmacm_state state;
    bool sync;           // it has a channel of its own, and calls wait
    bool connected;      // once
    bool condemned;      // it is being destroyed, or its channel was
    struct vb_link all;  // of the process
    struct vb_link mate; // of its channel
    uint32_t handed_out; // events that were not yet acknowledged
    struct vb_rdmacm_name from, to;
    struct vb_rdmacm_service *service;
    struct vb_link listener; // of the service
    uint32_t backlog, pending;
    struct vb_rdmacm_id *asked; // of a request: the listener, while it counts as its backlog
    bool has_cm;
    uint32_t cm_id;
    struct vb_rdmacm_id *next; // in the chain of manager ids
    struct vb_rdmacm_path path;
    uint32_t qkey;
    uint8_t tos, hops, sl; // on the packets, as the flow label is
    uint32_t flow_label;
    uint8_t life, ack_timeout; // of packets; of the queue pair
    bool reuse, has_ack_timeout;
    int v6_only;
    struct ibv_qp_init_attr *accepts_with; // of rdma_create_ep(): for ids that come with requests
    struct ibv_pd *accepts_in;
    void *connect_data;
    uint8_t connect_len;
    struct ibv_sa_path_rec path_rec;
    struct vb_fifo groups;
};

struct vb_rdmacm_group {
    struct vb_link link; // of its id
    struct vb_rdmacm_id *id;
    struct sockaddr_storage address;
    union ibv_gid gid;
    void *context;
    bool sends_only, attached;
    uint32_t handed_out;
};

struct vb_rdmacm_event {
    struct rdma_cm_event event;
    struct vb_link link;
    struct vb_rdmacm_channel *channel; // while it waits there
    struct vb_rdmacm_id *owner;        // who waits for its acknowledgement
    struct vb_rdmacm_group *group;
    uint8_t data[VB_CM_PRIVATE_MAX];
};

static inline struct vb_rdmacm_id *vb_rdmacm_of(struct rdma_cm_id *id)
{
    return (struct vb_rdmacm_id *)(void *)id;
}

static inline bool vb_rdmacm_is_ud(const struct vb_rdmacm_id *i)
{
    return i->id.qp_type == IBV_QPT_UD;
}

// ---- process.c: what all ids share
void vb_rdmacm_lock(void);
void vb_rdmacm_unlock(void);
void vb_rdmacm_wait(void); // for vb_rdmacm_notice(); needs the lock, and has it afterwards
void vb_rdmacm_notice(void);
// The device, opened with the first call, and its manager with a thread that takes its events.
// NULL: errno says why. Needs the lock.
struct ibv_context *vb_rdmacm_open(void);
struct ibv_pd *vb_rdmacm_pd(void);
struct ibv_xrcd *vb_rdmacm_xrcd(void);
const struct vb_verbs_cm *vb_rdmacm_calls(void);
struct vb_host_cm *vb_rdmacm_manager(void);
uint32_t vb_rdmacm_generation(void);
struct vb_fifo *vb_rdmacm_ids(void);      // needs the lock
struct vb_fifo *vb_rdmacm_services(void); // needs the lock
uint32_t vb_rdmacm_number(void);          // of the next service; needs the lock
uint32_t vb_rdmacm_draw(void);            // a random number
// Ids by the manager's; need the lock.
void vb_rdmacm_know(struct vb_rdmacm_id *i, uint32_t cm_id);
void vb_rdmacm_forget(struct vb_rdmacm_id *i);
struct vb_rdmacm_id *vb_rdmacm_find(uint32_t cm_id);
// Says that a call failed, sets errno and returns -1. Takes a positive errno.
int vb_rdmacm_fail(int error, const char *call, const char *why);
// 0, or says that there is no id, that its channel is gone, or that it is that of the process which
// this one was forked from: -1.
int vb_rdmacm_refuse_foreign(const struct vb_rdmacm_id *i, const char *call);

// ---- channel.c
// NULL: no memory. The event waits in the id's channel after vb_rdmacm_queue().
struct vb_rdmacm_event *vb_rdmacm_event(struct vb_rdmacm_id *i, enum rdma_cm_event_type type,
                                        int status);
void vb_rdmacm_queue(struct vb_rdmacm_event *e);
void vb_rdmacm_tell(struct vb_rdmacm_id *i, enum rdma_cm_event_type type, int status);
// Takes it out of its channel.
void vb_rdmacm_unqueue(struct vb_rdmacm_event *e);
// The id, which is known to all now, is on its channel; or not any more. Need the lock.
void vb_rdmacm_enter(struct vb_rdmacm_id *i);
void vb_rdmacm_leave(struct vb_rdmacm_id *i);
// Without a look at who is on it.
void vb_rdmacm_free_channel(struct rdma_event_channel *channel);
// Needs the lock. Keeps a channel that was destroyed for a while; returns one that was long enough,
// or NULL.
struct vb_rdmacm_channel *vb_rdmacm_bury(struct vb_rdmacm_channel *channel);
// In synchronous mode waits for the next event, and returns what it says.
int vb_rdmacm_complete(struct vb_rdmacm_id *i, const char *call);

// ---- id.c
struct vb_rdmacm_id *vb_rdmacm_create(struct rdma_event_channel *channel, void *context,
                                      enum rdma_port_space space, enum ibv_qp_type type);
// Binds it to the device.
void vb_rdmacm_bind_device(struct vb_rdmacm_id *i, struct ibv_context *context);
// Nothing of it is left but its memory. Needs the lock.
void vb_rdmacm_retire(struct vb_rdmacm_id *i);
void vb_rdmacm_free(struct vb_rdmacm_id *i);

// ---- name.c: addresses as programs write them
bool vb_rdmacm_get_name(const struct sockaddr *address, struct vb_rdmacm_name *name);
void vb_rdmacm_put_name(const struct vb_rdmacm_name *name, struct sockaddr_storage *address);
bool vb_rdmacm_is_any(const struct vb_ip *ip);
bool vb_rdmacm_is_multicast(const struct vb_ip *ip);
// Which address of this machine packets to there would carry; a negative errno.
int vb_rdmacm_route(const struct vb_rdmacm_name *to, struct vb_ip *from);

// ---- port.c; need the lock, and return a negative errno
int vb_rdmacm_take_port(struct vb_rdmacm_id *i, uint16_t port);
void vb_rdmacm_drop_port(struct vb_rdmacm_id *i);
int vb_rdmacm_start_listening(struct vb_rdmacm_id *i);
void vb_rdmacm_stop_listening(struct vb_rdmacm_id *i);
// Who is asked by a request to this address; NULL: nobody.
struct vb_rdmacm_id *vb_rdmacm_listener(uint32_t service, const struct vb_ip *target);

// ---- address.c
// The NIC is on the address, or -EADDRNOTAVAIL.
int vb_rdmacm_be_on(const struct vb_ip *ip);

// ---- route.c
// RDMA_OPTION_IB_PATH: the path of the route is the program's. 0, or says why not and returns -1.
int vb_rdmacm_take_path(struct vb_rdmacm_id *i, const void *value, size_t len);
// An address vector for packets of the id.
struct ibv_ah_attr vb_rdmacm_vector(const struct vb_rdmacm_id *i, const struct vb_ip *to);

// ---- arrive.c: events of the manager
void vb_rdmacm_arrive(const struct vb_cm_event *event);

// ---- connect.c
// What is left to do when the program takes a REP: the queue pair becomes ready, the RTU goes.
void vb_rdmacm_establish(struct vb_rdmacm_event *e);
// Ends whatever it is in, if anything. Needs the lock; the second one is for callers that have
// entered the manager.
void vb_rdmacm_abandon(struct vb_rdmacm_id *i);
void vb_rdmacm_abandon_in(struct vb_cm *cm, uint64_t now_ns, struct vb_rdmacm_id *i);
// Its state now, for who has not the lock.
enum vb_rdmacm_state vb_rdmacm_state(const struct vb_rdmacm_id *i);
// Refuses a request that the program was not told of, for a reason of the protocol.
void vb_rdmacm_refuse(uint32_t cm_id, bool ud, uint16_t reason);
// A request no longer counts as its listener's backlog: the program has it, or it is no more. Needs
// the lock.
void vb_rdmacm_taken(struct vb_rdmacm_id *i);

// ---- qp.c
int vb_rdmacm_make_ready(struct vb_rdmacm_id *i); // RTR and RTS; -1
void vb_rdmacm_make_error(struct vb_rdmacm_id *i);

// ---- multicast.c
void vb_rdmacm_joined(struct vb_rdmacm_event *e);
void vb_rdmacm_leave_all(struct vb_rdmacm_id *i);

#endif
