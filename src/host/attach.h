// SPDX-License-Identifier: Apache-2.0
// An application's side of the hull: its NIC is in another process, and the device's calls become
// messages. Posting and polling are the driver's as ever, on rings in memory that both share.
#ifndef VB_HOST_ATTACH_H
#define VB_HOST_ATTACH_H

#include "base/fifo.h"
#include "host/contract.h"
#include "host/host.h"
#include "nic/spread.h"
#include "port/port.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    VB_ATTACH_GRAIN = 4096, // rings begin on pages
};

// Memory that both have mapped.
struct vb_attach_memory {
    struct vb_link link;
    uint32_t number;
    bool given; // the application's own, mapped by itself
    uint8_t *base;
    uint64_t bytes;
    uint64_t was; // of a service: where the first that mapped it had it
    char name[VB_HULL_NAME];
    uint8_t *used; // of memory for rings: which pages are; NULL: the application's
};

struct vb_trace_source;

struct vb_attach {
    struct vb_port port; // stands where a NIC of this process has its own
    int socket;          // -1: abandoned
    pthread_mutex_t lock;
    uint32_t serial;
    bool lost;                 // the hull is gone
    uint32_t units;            // of the hull's NIC
    struct vb_hull_page *page; // as many
    uint64_t epoch;
    bool copies; // memory that is not shared is copied
    struct vb_fifo memories;
    struct vb_attach_memory *clock; // NULL: nobody has asked for it
    bool service;                   // the session has a name, and outlives this process
    uint32_t tag;                   // of what is made next
    uint32_t lives;                 // of the service, before this one
    uint32_t trace_bytes;           // of the trace's ring; 0: there is none
    char text[VB_ERROR_TEXT];       // why the last call was refused
};

int vb_attach_open(const struct vb_nic_opts *opts, struct vb_nic **nic);
void vb_attach_free(struct vb_attach *a);
// Wakes units of the hull, as bits, which said that they sleep.
void vb_attach_kick(struct vb_attach *a, uint32_t units);
// The page of a lane's unit.
static inline struct vb_hull_page *vb_attach_page(const struct vb_nic *nic,
                                                  const struct vb_lane *lane)
{
    return vb_hull_page_of(nic->attach->page, (uint32_t)(lane - nic->lane));
}
// Sends a request and waits for its reply. Returns 0 or the reply's error; -ENOTCONN: no hull.
// `fds` are the reply's descriptors, or NULL: none are expected.
int vb_attach_call(struct vb_attach *a, struct vb_hull_request *request,
                   struct vb_hull_reply *reply, int give_fd, int fds[VB_HULL_FDS]);

// ---- attach_memory.c
// Moves what the driver has just allocated to shared memory, and takes it back there.
int vb_attach_place_qp(struct vb_attach *a, struct vb_driver_qp *qp);
void vb_attach_lift_qp(struct vb_attach *a, struct vb_driver_qp *qp);
int vb_attach_place_cq(struct vb_attach *a, struct vb_driver_cq *cq);
void vb_attach_lift_cq(struct vb_attach *a, struct vb_driver_cq *cq);
int vb_attach_place_srq(struct vb_attach *a, struct vb_driver_srq *srq);
void vb_attach_lift_srq(struct vb_attach *a, struct vb_driver_srq *srq);
// Where that is as the hull knows it. False: not in shared memory, which `text` says.
bool vb_attach_find(struct vb_attach *a, const void *at, uint64_t bytes,
                    struct vb_hull_place *place);
// The other way. NULL: there is no such memory here.
uint8_t *vb_attach_at(struct vb_attach *a, const struct vb_hull_place *place);
void vb_attach_forget_memory(struct vb_attach *a);
// Memory of the hull beside the rings, zeros. NULL: none is left.
void *vb_attach_take(struct vb_attach *a, uint64_t bytes);
void vb_attach_give_back(struct vb_attach *a, const void *at, uint64_t bytes);

// Maps a memory of the session, at the address that it had if that is free. -EINVAL: nobody kept
// it.
int vb_attach_map(struct vb_attach *a, uint32_t number, const struct vb_hull_listing *listing);
struct vb_attach_memory *vb_attach_memory_of(struct vb_attach *a, uint32_t number);
// Pages of memory for rings that something found there lies in. Its address; NULL: no such place.
void *vb_attach_claim(struct vb_attach *a, const struct vb_hull_place *place, uint64_t bytes);
// What lies behind rings, and in a record, where the session is a service.
uint64_t vb_attach_send_notes(const struct vb_attach *a, uint32_t blocks);
uint64_t vb_attach_recv_notes(const struct vb_attach *a, uint32_t entries);
enum {
    VB_ATTACH_RECORD = 128, // doorbells, and 64 bytes behind them the deed of a queue pair
    VB_ATTACH_DEED = 64,
};

// ---- attach_service.c
// Names the session; who has had it leaves all his objects, which `nic` has then, too.
int vb_attach_service(struct vb_nic *nic, const char *name);
// The connection ends, and everything stays as it is. The NIC's objects can only be freed then.
void vb_attach_detach(struct vb_nic *nic);
// Of a kind, the object after this number; *number is 0: no more.
int vb_attach_next(struct vb_attach *a, enum vb_hull_listed kind, uint32_t *number,
                   struct vb_hull_listing *listing);

// ---- attach_dev.c: the calls of nic/dev.h
int vb_attach_pd_create(struct vb_attach *a, uint32_t *pd);
int vb_attach_pd_destroy(struct vb_attach *a, uint32_t pd);
int vb_attach_mkey_create(struct vb_attach *a, const struct vb_mkey_attr *attr, uint32_t *key);
int vb_attach_mkey_change(struct vb_attach *a, uint32_t key, const struct vb_mkey_attr *attr);
int vb_attach_mkey_destroy(struct vb_attach *a, uint32_t key);
int vb_attach_window_destroy(struct vb_attach *a, uint32_t key);
int vb_attach_cq_create(struct vb_attach *a, const struct vb_cqc_attr *attr, uint32_t channel,
                        uint32_t *cqn, uint32_t *unit);
int vb_attach_cq_moderate(struct vb_attach *a, uint32_t cqn, uint32_t count, uint64_t period_ns);
int vb_attach_cq_produced(struct vb_attach *a, uint32_t cqn, uint64_t *produced);
int vb_attach_cq_destroy(struct vb_attach *a, uint32_t cqn);
int vb_attach_srq_create(struct vb_attach *a, const struct vb_srqc_attr *attr, uint32_t *srqn);
int vb_attach_srq_arm(struct vb_attach *a, uint32_t srqn, uint32_t limit);
int vb_attach_srq_limit(struct vb_attach *a, uint32_t srqn, uint32_t *limit);
int vb_attach_srq_progress(struct vb_attach *a, uint32_t srqn, struct vb_srq_progress *progress);
int vb_attach_srq_destroy(struct vb_attach *a, uint32_t srqn);
int vb_attach_qp_create(struct vb_attach *a, const struct vb_qpc_attr *attr, uint32_t *qpn);
int vb_attach_qp_modify(struct vb_attach *a, uint32_t qpn, const struct vb_qpc_mods *mods);
int vb_attach_qp_tune(struct vb_attach *a, uint32_t qpn, uint32_t access, uint8_t min_rnr_timer,
                      uint32_t qkey);
int vb_attach_qp_limit(struct vb_attach *a, uint32_t qpn, uint64_t rate_Bps, uint32_t burst_bytes);
int vb_attach_qp_state(struct vb_attach *a, uint32_t qpn, enum vb_qp_state *state);
int vb_attach_qp_progress(struct vb_attach *a, uint32_t qpn, struct vb_qp_progress *progress);
void vb_attach_qp_settle(struct vb_attach *a, uint32_t qpn);
int vb_attach_qp_counters(struct vb_attach *a, uint32_t qpn, struct vb_qp_counters *counters);
int vb_attach_qp_destroy(struct vb_attach *a, uint32_t qpn);
int vb_attach_counter(struct vb_attach *a, uint32_t index, uint64_t *value);
// ---- attach_queue.c: more of them
int vb_attach_xrcd_alloc(struct vb_attach *a, uint32_t *xrcd);
int vb_attach_xrcd_free(struct vb_attach *a, uint32_t xrcd);
int vb_attach_mkey_find(struct vb_attach *a, const struct vb_hull_find *what, uint8_t **at);
// Gives the completion queue a ring like the other's, which is in the heap.
int vb_attach_cq_resize(struct vb_attach *a, uint32_t cqn, struct vb_driver_cq *cq,
                        struct vb_driver_cq *bigger);
int vb_attach_qp_join(struct vb_attach *a, uint32_t qpn, const struct vb_ip *group);
int vb_attach_qp_leave(struct vb_attach *a, uint32_t qpn, const struct vb_ip *group);
int vb_attach_qp_spread(struct vb_attach *a, uint32_t qpn, const struct vb_spread_attr *attr);
// What the ids of a connection manager begin with, and a descriptor that tells of first packets.
int vb_attach_seat(struct vb_attach *a, struct vb_hull_prefix *prefix, int *heard_fd);
// The queue pairs that it tells of; how many there are, or -ENOTCONN: the hull is gone.
int vb_attach_heard(int heard_fd, uint32_t *qpn, int most);
// Memory that is not shared may be registered from now on.
int vb_attach_copy_begin(struct vb_attach *a);
int vb_attach_serve(struct vb_port *port, uint32_t space, uint16_t number, bool serves);
// Up to n completions of a queue that ignores overruns.
int vb_attach_poll_overwritten(struct vb_cq *cq, vb_driver_find *find, struct vb_wc *wc, int n);

// The n-th address of the hull's NIC. -ENOENT: no more.
int vb_attach_address(struct vb_attach *a, uint32_t n, struct vb_ip *ip);

// Faults on purpose of the application's own queue pairs.
int vb_attach_set_faults(struct vb_attach *a, const char *rules, char *error_text);

// A trace of the application's own queue pairs; and as pcapng.
int vb_attach_trace(struct vb_attach *a, uint32_t ring_bytes);
int vb_attach_trace_read(struct vb_attach *a, uint32_t unit, struct vb_trace_source *source,
                         void **copy);

// The device has it, but not for attached applications. Returns -EOPNOTSUPP.
int vb_attach_refuse(struct vb_attach *a, const char *what);

// ---- attach_program.c
int vb_attach_program_create(struct vb_attach *a, const struct vb_program_attr *attr,
                             uint32_t *program);
int vb_attach_program_destroy(struct vb_attach *a, uint32_t program);
int vb_attach_program_stop(struct vb_attach *a, uint32_t program);
int vb_attach_program_query(struct vb_attach *a, uint32_t program, uint64_t *executed,
                            bool *stopped);

// ---- service.c: needs the locks. The i-th of a kind with the tag. -ENOENT: no more.
int vb_service_find(struct vb_nic *nic, enum vb_hull_listed kind, uint32_t tag, uint32_t i,
                    uint32_t *number, struct vb_hull_listing *listing);

// ---- attach_share.c: the hull looks at the queue's record from now on, and at the register
int vb_attach_share_qp(struct vb_attach *a, uint32_t qpn);
int vb_attach_share_cq(struct vb_attach *a, uint32_t cqn, const uint8_t *bell);

// ---- attach_event.c
int vb_attach_channel_create(struct vb_attach *a, uint32_t *number, int *fd);
int vb_attach_channel_open(struct vb_attach *a, uint32_t number, int *fd);
int vb_attach_channel_destroy(struct vb_attach *a, uint32_t number);
int vb_attach_channel_take(struct vb_channel *channel, struct vb_cq **cq);
void vb_attach_forget_cq(struct vb_cq *cq);
int vb_attach_arm(struct vb_cq *cq, bool solicited_only, bool next);
// Events of an object that goes are forgotten.
void vb_attach_forget_events(struct vb_nic *nic, enum vb_host_named what, uint32_t number);
int vb_attach_take_event(struct vb_nic *nic, struct vb_nic_event *event);

#endif
