// SPDX-License-Identifier: Apache-2.0
// The NIC inside an application, from inside: its objects and who may touch them.
//
// A lane is a processing unit with its port. Whoever runs it holds its lock; threads that poll only
// try it. Control calls hold the locks of all lanes (vb_host_lock), and so see a NIC at rest.
#ifndef VB_HOST_HOST_H
#define VB_HOST_HOST_H

#include "base/cancel.h"
#include "base/fifo.h"
#include "host/driver.h"
#include "nic/dev.h"
#include "port/clock.h"
#include "port/port.h"
#include "verbena/nic.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    VB_HOST_LANES = 16,
    VB_HOST_SRQS = 1 << 16, // as many as a device can have
    VB_HOST_EVENTS = 1024,  // asynchronous events kept for an application that does not ask
};

// An ACK that waits for the application's answer, to leave together with it (hold.c).
struct vb_hold {
    bool may; // the lane is run by somebody who polls, and likely will be soon again
    enum {
        VB_HOLD_NOTHING,
        VB_HOLD_WATCH, // it has left, but would an answer have come?
        VB_HOLD_ACK,
    } phase;
    uint64_t since_ns;
    uint32_t answers; // in a row
};

struct vb_lane {
    alignas(64) pthread_mutex_t lock;
    struct vb_nic *nic;
    struct vb_pu *pu;
    struct vb_port *port;
    atomic_uint_fast64_t entries; // how often it was run, for the helper to see; long runs weigh
                                  // more
    uint64_t weight, bytes;       // of the last run, and moved until then
    struct vb_recent recent;      // the time
    uint32_t idle_runs;           // since it was looked at
    bool calm;                    // no timer was near at that time
    uint32_t shares;              // queues that are looked at in every run (share.c)
    struct vb_fifo shared_qps, shared_cqs;
    uint64_t asleep_until_ns; // its next timer when the helper went to sleep
    struct vb_hold hold;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
};

// Of a queue that the application drives by hand.
struct vb_share {
    struct vb_link link; // in its lane's list
    uint8_t *bell;       // stands for a card's register; NULL: the queue is not shared
    uint32_t seen[2];    // the doorbell record, when it was last looked at
};

// Runs the lanes that nobody polls (helper.c).
struct vb_helper {
    bool running;
    pthread_t thread;
    int wake_fd;            // eventfd
    atomic_uint asleep;     // lanes, as bits, for whose doorbells it must be woken; in a hull each
                            // has a thread of its own
    atomic_uint *asleep_at; // that, or the same of the hull
    atomic_bool stopping;   // the NIC closes
};

struct vb_attach;
struct vb_hull;

struct vb_nic {
    struct vb_dev *dev;
    struct vb_attach *attach; // its device is in a hull (device.h), and `dev` NULL; NULL: here
    // In a hull: whether an event is that of an attached application, which is told then.
    struct vb_hull *hull;
    bool (*hull_event)(struct vb_hull *hull, const struct vb_event *event);
    // Wakes its threads that run these lanes, if they sleep (helper.asleep says which).
    void (*hull_wake)(struct vb_hull *hull, uint32_t lanes);
    // And what it says to who inspects it: its name, lines of a kind, and whose a queue is.
    const char *hull_name;
    uint32_t (*hull_tell)(struct vb_hull *hull, const char *kind, FILE *out);
    void (*hull_owner)(struct vb_hull *hull, bool cq, uint32_t number, FILE *out);
    // There, while applications have connection managers: sorts frames that have come (returns how
    // many there are then), and judges those that are to leave.
    uint32_t (*hull_frames)(struct vb_lane *lane, struct vb_rx_frame *frames, uint32_t count);
    void (*hull_sends)(struct vb_hull *hull, struct vb_txq *txq);
    bool foreign;      // a forked child's: calls are refused (see vb_host_is_foreign)
    bool orphan, torn; // in a child: without ports and helper; and not to be freed, either
    int cancel_before; // of the thread that holds all lanes
    uint64_t drain_ns;
    struct vb_link process; // in the list of those that are open
    uint32_t lanes;
    struct vb_lane *lane;
    bool faulty; // every lane's port makes faults on purpose (port/faulty.h)
    struct vb_dev_hooks hooks;
    struct vb_mem_guard guard;
    bool guard_populates; // the kernel can tell of rights, too
    uint32_t guard_key;   // the region that was complained about last
    atomic_uint waiting;  // control calls that want the lanes; pollers step back
    atomic_uint shares;   // of all lanes
    struct vb_fifo pds, mrs, mws, cqs, channels, srqs, programs, qps;
    struct vb_fifo xrcds;
    uint32_t xrcds_made;
    struct vb_qp *qp_by_index[VB_DOORBELL_QPS];
    void **cq_by_number;
    void **srq_by_number; // never moves: threads that poll look into it without a lock
    uint32_t cq_room, srq_room;
    pthread_mutex_t event_lock;
    struct vb_nic_event event[VB_HOST_EVENTS];
    uint32_t event_head, event_count;
    int event_fd;
    struct vb_host_cm *cm; // the manager; changes under inspect_lock and event_lock
    struct vb_helper helper;
    struct vb_inspect *inspect;   // NULL: nobody may ask (inspect.h)
    pthread_mutex_t address_lock; // held while an address is taken; before the lanes'
    pthread_mutex_t inspect_lock; // held while the helper deals with who asks; before the lanes'
};

struct vb_pd {
    struct vb_link link;
    struct vb_nic *nic;
    uint32_t pd;
};

struct vb_mr {
    struct vb_link link;
    struct vb_link code_link; // in its queue pair's list
    struct vb_nic *nic;
    uint32_t key;
    bool code, dead; // a ring's; and its queue pair is gone, and the key with it
};

struct vb_mw {
    struct vb_link link;
    struct vb_nic *nic;
    uint32_t key; // as allocated; bindings change its lowest byte
};

struct vb_channel {
    struct vb_link link;
    struct vb_nic *nic;
    int fd;
    uint32_t number; // as a hull knows it
    uint32_t users;
    struct vb_fifo due; // completion queues with an event to tell
};

struct vb_cq {
    struct vb_link link;
    struct vb_link due; // in the channel's list
    struct vb_nic *nic;
    struct vb_lane *lane;
    struct vb_channel *channel;
    uint32_t cqn;
    atomic_bool busy; // being polled
    bool overwrites;  // ignores overruns
    struct vb_share share;
    struct vb_driver_cq driver;
};

// A domain of extended reliable connections.
struct vb_xrcd {
    struct vb_link link;
    uint32_t number;
    uint32_t users; // shared receive queues and queue pairs
};

struct vb_srq {
    struct vb_link link;
    struct vb_nic *nic;
    struct vb_cq *cq; // of an XRC queue,
    struct vb_xrcd *xrcd;
    uint32_t srqn;
    struct vb_driver_srq driver;
};

struct vb_program {
    struct vb_link link;
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *audit;
    uint32_t number;
};

struct vb_qp {
    struct vb_link link;
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_program *program;
    struct vb_xrcd *xrcd; // of one that receives for its domain; NULL: it is none
    struct vb_fifo code;  // its rings as memory
    enum vb_service service;
    atomic_bool sending, receiving; // being posted to
    bool settled;                   // its last answers have left
    struct vb_cq *send_cq, *recv_cq;
    struct vb_share share;
    struct vb_driver_qp driver;
};

// A child of the process that opened the NIC: all that it shares with its parent (sockets, rings,
// connections) is the parent's.
static inline bool vb_host_is_foreign(const struct vb_nic *nic)
{
    return __builtin_expect(nic->foreign, 0);
}

// One at a time uses a queue, by the rules of the API; but a signal handler may come in between,
// and finds out. Nobody else looks, so no order is needed.
static inline bool vb_host_enter(atomic_bool *busy)
{
    if (__builtin_expect(atomic_load_explicit(busy, memory_order_relaxed), 0))
        return false;
    atomic_store_explicit(busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return true;
}

static inline void vb_host_leave(atomic_bool *busy)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(busy, false, memory_order_relaxed);
}

// One lane's, by a call that has to have it: who runs it without an end steps back.
static inline void vb_lane_lock(struct vb_lane *lane)
{
    if (pthread_mutex_trylock(&lane->lock) == 0)
        return;
    atomic_fetch_add_explicit(&lane->nic->waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&lane->lock);
    atomic_fetch_sub_explicit(&lane->nic->waiting, 1, memory_order_relaxed);
}

// Who holds the locks cannot be cancelled.
void vb_host_lock(struct vb_nic *nic);
void vb_host_unlock(struct vb_nic *nic);

// Runs a lane whose lock is held: what was posted leaves, what came is taken. Returns steps made.
uint32_t vb_lane_run(struct vb_lane *lane);
// The same by who polls for completions.
uint32_t vb_lane_poll(struct vb_lane *lane);
// In a forked child: lets go of what is the parent's.
void vb_host_orphan(struct vb_nic *nic);

// ---- hold.c
// Whether what is to be sent waits until the application has seen what it has received.
bool vb_hold_keeps(struct vb_lane *lane, uint64_t now_ns);
// The lane is run again: whether it still does, or goes now.
bool vb_hold_lasts(struct vb_lane *lane);

// ---- drain.c
// False: the locks could not be had in time.
bool vb_host_lock_until(struct vb_nic *nic, uint64_t give_up_ns);
// Takes the locks when the queue pair owes its peer nothing, or after the NIC's time to drain.
void vb_host_lock_answered(struct vb_nic *nic, const struct vb_qp *qp);
// Runs the NIC until nothing is owed and all that was posted is acknowledged or has failed.
void vb_host_drain(struct vb_nic *nic, uint64_t give_up_ns);

// ---- process.c: NICs that fork() and exit() concern
int vb_process_enter(struct vb_nic *nic); // -ENOMEM
void vb_process_leave(struct vb_nic *nic);

// ---- grace.c: needs the locks. What was posted so far, as the NIC may know.
uint64_t vb_host_posted(struct vb_nic *nic, const struct vb_driver_qp *qp);

// ---- event.c: hands the device's events to channels and to the application. Needs the lane's
// lock.
void vb_host_collect(struct vb_lane *lane);
// Needs the locks. Events of an object that goes are forgotten: its number may be another's soon.
enum vb_host_named {
    VB_HOST_QP,
    VB_HOST_CQ,
    VB_HOST_SRQ,
};
void vb_host_forget_events(struct vb_nic *nic, enum vb_host_named what, uint32_t number);

// ---- group.c: needs the locks
void vb_host_leave_groups(struct vb_qp *qp);
// Of a queue pair of this lane's unit, by its number.
int vb_host_join_group(struct vb_lane *lane, uint32_t qpn, const struct vb_ip *group);
int vb_host_leave_group(struct vb_lane *lane, uint32_t qpn, const struct vb_ip *group);
void vb_host_leave_all_groups(struct vb_lane *lane, uint32_t qpn);

// ---- cq.c: needs the locks. Passes over entries that were overwritten, and all but `keep`.
void vb_host_catch_up(struct vb_cq *cq, uint32_t keep);
// The driver's way (vb_driver_cq.find_srq) to a NIC's shared receive queue. NULL: none.
struct vb_driver_srq *vb_host_find_srq(void *nic, uint32_t srqn);
// ---- chain.c: needs the locks
void vb_host_end_code(struct vb_qp *qp);
// ---- share.c: needs the lane's lock
void vb_host_look_at_shared(struct vb_lane *lane);
// Needs the locks.
void vb_host_unshare(struct vb_share *share, struct vb_lane *lane);
// ---- qp.c: needs the locks. To RESET, without what was posted and not polled.
void vb_host_forget_life(struct vb_qp *qp);
// The rest of it, when the device has RESET the queue pair.
void vb_host_finish_reset(struct vb_qp *qp);
// Another state may make work, which a sleeping helper must hear of
void vb_host_run_soon(struct vb_qp *qp);

// ---- xrc.c: needs the locks. NULL: there is none, as of number 0.
struct vb_xrcd *vb_host_xrcd_find(struct vb_nic *nic, uint32_t number);
// When nobody uses them any more.
void vb_host_xrcds_free(struct vb_nic *nic);

// ---- guard.c
// Of all regions, which is told on standard error, or of those that ask for it.
const struct vb_mem_guard *vb_host_guard(struct vb_nic *nic, bool all);

// ---- faults.c: the device asks the rules
void vb_host_hook_faults(struct vb_nic *nic);
// As vb_nic_set_faults(), for who holds the locks or is alone.
int vb_host_set_faults(struct vb_nic *nic, const char *rules, char *error_text);

// ---- address.c: needs a lock. The address to reach a peer from: the one wanted, or if that is
// zero one that suits. -EADDRNOTAVAIL: the NIC is not on it.
int vb_host_local(const struct vb_nic *nic, const uint8_t wanted[16], const uint8_t peer[16],
                  struct vb_ip *local);
void vb_host_forget_default(const struct vb_nic *nic, struct vb_path_attr *attr);
void vb_host_tell_headers(struct vb_nic *nic);

// ---- helper.c
int vb_helper_start(struct vb_nic *nic);
void vb_helper_stop(struct vb_nic *nic);
// Who runs these lanes, as bits.
void vb_helper_wake(struct vb_nic *nic, uint32_t lanes);
// Another thread has run the lane, whose lock it holds, while the helper sleeps: wakes it if what
// it sleeps for is no longer all.
void vb_helper_recheck(struct vb_lane *lane);
static inline bool vb_helper_sleeps_on(const struct vb_lane *lane)
{
    uint32_t asleep = atomic_load_explicit(&lane->nic->helper.asleep, memory_order_relaxed);
    return asleep && asleep >> (lane - lane->nic->lane) & 1;
}
// Something was posted: somebody must run these lanes. Cheap while the helper is awake.
static inline void vb_helper_notice(struct vb_nic *nic, uint32_t lanes)
{
    if (atomic_load_explicit(nic->helper.asleep_at, memory_order_seq_cst) & lanes)
        vb_helper_wake(nic, lanes);
}

// What a sleeper waits for on a lane whose lock is held. False: it has something to do already.
bool vb_helper_settle(struct vb_lane *lane, int *ready, uint64_t *timer_ns);

// ---- nic.c: a NIC without ports and device. NULL: no memory.
struct vb_nic *vb_host_alloc(uint32_t lanes);
void vb_host_free(struct vb_nic *nic);

uint32_t vb_host_access(uint32_t rights);         // enum vb_rights to enum vb_access
int vb_host_refusal(enum vb_mem_refusal refusal); // 0 or a negative errno
// Enters an object into an array by its number (from 1 on), which grows. -ENOMEM.
int vb_host_enlist(void ***array, uint32_t *room, uint32_t number, void *object);

#endif
