// SPDX-License-Identifier: Apache-2.0
// The verbs library from inside: its objects over those of nic.h.
//
// Each struct begins with what the application sees of it (infiniband/verbs.h). Verbs allow any
// number of threads on one object, nic.h does not: whoever polls a completion queue or changes one
// of its queue pairs holds its lock, whoever posts that of the queue.
#ifndef VB_VERBS_VERBS_H
#define VB_VERBS_VERBS_H

#include "base/fifo.h"
#include "base/spin.h"
#include "verbena/nic.h"
#include "verbena/wqe.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

// The header's macros would hide the symbols that this library exports.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#include "verbs/ours.h"

enum {
    VB_VERBS_PORT = 1,       // ports are counted from 1
    VB_VERBS_MAX_WR = 16384, // of a queue
    VB_VERBS_MAX_SRQ_WR = 32767,
    VB_VERBS_MAX_CQE = 1 << 22, // one of which programs do not see
    VB_VERBS_MAX_SGE = 16,
    VB_VERBS_MAX_RD_ATOMIC = 16,           // accepted
    VB_VERBS_MAX_INIT_RD_ATOMIC = 128,     // asked for
    VB_VERBS_MAX_KBPS = 400 * 1000 * 1000, // of a queue pair's rate
    VB_VERBS_BATCH = 16,                   // requests or completions that are translated at a time
    VB_VERBS_LEFT = 1024,
    VB_VERBS_TABLE_LOG = 7, // of a table of receive queues
    VB_VERBS_HASH_KEY = 40,
};

// Exported symbols; all others are hidden.
#define VB_VERBS_EXPORT __attribute__((visibility("default")))

// Events that another context took and left for this one. As many as a NIC keeps: more are lost.
struct vb_verbs_left {
    int wake_fd; // readable while there are any
    uint32_t head, count;
    struct ibv_async_event event[VB_VERBS_LEFT];
};

enum {
    VB_VERBS_GIDS = 4
};

// Of the port, as long as the device is open (gid.c).
struct vb_verbs_gids {
    union ibv_gid gid[VB_VERBS_GIDS];
    uint32_t count;
    atomic_uint asked;     // those that the program knows, as bits
    atomic_bool datagrams; // it has a queue pair that gets what anybody sends
};

struct vb_verbs_context {
    struct verbs_context base; // base.context is what applications hold
    uint32_t generation;       // of the process that opened it
    const uint32_t *now;       // and that of this process: fork() makes another
    struct vb_link link;       // in the process's list
    struct vb_nic *nic;        // the process's
    struct vb_fifo cqs, qps, srqs, xrcds;
    struct vb_verbs_left left;
    struct vb_verbs_gids gids;
};

struct vb_verbs_td {
    struct ibv_td td;
    atomic_uint users; // parent domains
};

struct vb_verbs_pd {
    struct ibv_pd pd;
    struct vb_pd *nic;
    struct vb_verbs_pd *parent; // of a parent domain: the domain whose objects it makes
    atomic_uint users;          // parent domains over it
    struct vb_verbs_td *td;     // of a parent domain, or NULL
};

struct vb_verbs_mr {
    struct ibv_mr mr;
    struct vb_mr *nic;
    struct vb_mr_opts opts;
};

struct vb_verbs_mw {
    struct ibv_mw mw;
    struct vb_mw *nic;
};

struct vb_verbs_channel {
    struct ibv_comp_channel channel;
    struct vb_channel *nic;
};

// Who holds a completion queue. How often threads that do not poll want it: pollers step back.
struct vb_verbs_lock {
    atomic_uint holder; // enum vb_verbs_holder
    atomic_uint wanted;
    _Atomic(pthread_t) between; // who is between ibv_start_poll() and ibv_end_poll(), or 0
    uint32_t again;             // how often it has locked the queue since
};

enum vb_verbs_holder {
    VB_VERBS_NOBODY,
    VB_VERBS_POLLER,
    VB_VERBS_CHANGER,
};

struct vb_verbs_cq {
    struct ibv_cq_ex cq;
    struct vb_link link;
    struct vb_cq *nic;
    uint32_t users; // queue pairs and shared receive queues
    struct vb_verbs_lock lock;
    uint32_t comp_events, async_events; // that were handed out
    uint32_t flushed_qpn;               // whose flushed requests were told of
    uint32_t empty;                     // polls in a row that found nothing
    struct vb_wc now;                   // of ibv_start_poll and ibv_next_poll
    uint64_t taken_ns, taken_wall_ns;   // when; 0: nobody asked yet
};

struct vb_verbs_srq {
    struct ibv_srq srq;
    struct vb_link link;
    struct vb_srq *nic;
    struct ibv_srq_attr attr;
    uint32_t users; // queue pairs
    struct vb_verbs_xrcd *xrcd;
    struct vb_verbs_cq *cq; // of an XRC queue
    uint32_t events;
};

struct vb_verbs_xrcd {
    struct ibv_xrcd xrcd;
    struct vb_link link;
    uint32_t number;
    bool of_file; // its handles in this process are those of one file
    dev_t device;
    ino_t inode;
    uint32_t users; // queue pairs and shared receive queues
    // A queue pair that only receives has neither domain nor completions in verbs.
    struct vb_pd *pd;
    struct vb_cq *cq;
};

struct vb_verbs_ah {
    struct ibv_ah ah;
    struct vb_send_to to; // but for the queue pair and its key
};

// What ibv_wr_start() has begun.
struct vb_verbs_build {
    struct vb_send_wr *wr; // the queue's depth of them
    struct vb_sge *sge;
    uint8_t *bytes; // inline data
    uint32_t room, count;
    uint32_t sges, inline_bytes; // of each request, at most
    int error;                   // the first one, positive
};

// A receive queue of its own: in the NIC a datagram queue pair that nobody knows the number of.
struct vb_verbs_wq {
    struct ibv_wq wq;
    struct vb_qp *nic;
    struct vb_cq *cq; // of requests, which it has none of
    struct vb_spin lock;
    atomic_bool may_receive;
    uint32_t users; // tables
};

struct vb_verbs_table {
    struct ibv_rwq_ind_table table;
    uint32_t count;
    uint32_t users; // queue pairs
    struct vb_verbs_wq *wq[];
};

struct vb_verbs_qp {
    struct ibv_qp_ex qp;
    struct vb_link link;
    struct vb_qp *nic;
    struct vb_spin send_lock, recv_lock;
    struct vb_verbs_xrcd *xrcd;
    struct ibv_qp_cap cap;
    bool all_signaled;
    bool extended;                     // made for ibv_wr_…
    uint32_t service;                  // enum vb_service
    atomic_bool may_send, may_receive; // as the application has set its state
    struct ibv_qp_attr attr;           // as last set
    atomic_uint groups;                // that it is a member of
    struct vb_verbs_table *table;      // of receive queues, or NULL
    uint32_t *handles;                 // of an XRC target: how many there are (ibv_open_qp)
    uint32_t events;
    struct vb_verbs_build build;
};

static inline struct vb_verbs_context *vb_verbs_of(struct ibv_context *context)
{
    return VB_CONTAINER_OF(context, struct vb_verbs_context, base.context);
}

// Whether the context is that of the process which this one was forked from. Its locks may be held
// by threads that are not here, so nothing of it is touched.
static inline bool vb_verbs_is_dead(struct ibv_context *context)
{
    const struct vb_verbs_context *c = vb_verbs_of(context);
    return __builtin_expect(c->generation != *c->now, 0);
}

// The first member of each object is the application's.
#define VB_VERBS_CAST(type, object) ((struct type *)(void *)(object))

static inline bool vb_verbs_hold(struct vb_verbs_lock *l, unsigned as, unsigned *before)
{
    *before = VB_VERBS_NOBODY;
    return atomic_compare_exchange_strong_explicit(&l->holder, before, as, memory_order_acquire,
                                                   memory_order_relaxed);
}

// Who is between ibv_start_poll() and ibv_end_poll() may change what uses the queue.
static inline void vb_verbs_lock(struct vb_verbs_lock *l)
{
    unsigned before;

    if (atomic_load_explicit(&l->between, memory_order_relaxed) == pthread_self()) {
        l->again++;
        return;
    }
    atomic_fetch_add_explicit(&l->wanted, 1, memory_order_relaxed);
    while (!vb_verbs_hold(l, VB_VERBS_CHANGER, &before))
        sched_yield();
    atomic_fetch_sub_explicit(&l->wanted, 1, memory_order_relaxed);
}

// Whether the caller has it now: who polls does not wait for another who does, but for who changes
// something: nobody else would find what is in the queue.
static inline bool vb_verbs_try(struct vb_verbs_lock *l)
{
    unsigned before;

    for (;;) {
        if (atomic_load_explicit(&l->wanted, memory_order_relaxed))
            before = atomic_load_explicit(&l->holder, memory_order_relaxed);
        else if (vb_verbs_hold(l, VB_VERBS_POLLER, &before))
            return true;
        if (before == VB_VERBS_POLLER)
            return false;
        sched_yield();
    }
}

static inline void vb_verbs_unlock(struct vb_verbs_lock *l)
{
    if (l->again > 0) // only its holder can see it so
        l->again--;
    else
        atomic_store_explicit(&l->holder, VB_VERBS_NOBODY, memory_order_release);
}

// ---- process.c: what all contexts of a process share
struct ibv_device *vb_verbs_device(void);
// One NIC for all of them, opened with the first; NULL: errno says why.
struct vb_nic *vb_verbs_nic_get(void);
void vb_verbs_nic_put(struct vb_nic *nic);
uint32_t vb_verbs_units(void);
// The hull that the NIC is to be of; NULL: it is the process's own.
const char *vb_verbs_hull(void);
// Holds back events, and objects that they may name.
void vb_verbs_process_lock(void);
void vb_verbs_process_unlock(void);
struct vb_fifo *vb_verbs_contexts(void); // needs that lock
const uint32_t *vb_verbs_generation(void);

// ---- address.c
struct vb_verbs_address {
    char text[64];
    uint32_t mtu_bytes; // of the link, at most 65535
};

// The i-th address to try, best first. False: no more.
bool vb_verbs_address(uint32_t i, struct vb_verbs_address *address);
enum ibv_mtu vb_verbs_active_mtu(void);

// The link below an address, as it is now.
struct vb_verbs_link {
    uint32_t index; // of the interface; 0: nobody has the address any more
    bool up;        // and has a carrier
    uint32_t mbps;  // 0: it does not say
};

struct vb_verbs_link vb_verbs_link(const uint8_t gid[16]);
uint64_t vb_verbs_guid(void); // of this machine, in network byte order

// ---- gid.c
void vb_verbs_list_gids(struct vb_nic *nic, struct vb_verbs_gids *gids);
// The NIC is on that address from now on. 0 or a positive errno, said for `verb`.
int vb_verbs_take_gid(struct ibv_context *context, uint32_t index, const char *verb);
// Datagrams to what a program was told come to it: once it has asked, and can receive them.
void vb_verbs_gid_asked(struct ibv_context *context, uint32_t index);
void vb_verbs_gid_datagrams(struct ibv_context *context);
// The one that a datagram came to; of a group's the one to answer its sender from.
uint32_t vb_verbs_find_gid(struct ibv_context *context, const union ibv_gid *to,
                           const union ibv_gid *peer);
// As of struct vb_send_wr; 0: the NIC is not on it.
uint32_t vb_verbs_gid_source(struct ibv_context *context, uint32_t index);

// ---- log.c: words on standard error, as far as VERBENA_LOG asks for them
enum vb_verbs_level {
    VB_VERBS_ALWAYS, // there is no device for the program: unless it is off
    VB_VERBS_ERROR,  // a call failed, or a request did
    VB_VERBS_INFO,   // what was opened
    VB_VERBS_DEBUG,  // each object
};

bool vb_verbs_logs(enum vb_verbs_level level);
__attribute__((format(printf, 2, 3))) void vb_verbs_log(enum vb_verbs_level level,
                                                        const char *format, ...);
// Says that a verb failed and sets errno. Takes and returns a positive errno.
int vb_verbs_fail(int error, const char *verb, const char *why);
// 0, or says that the context is dead: EPERM.
int vb_verbs_refuse_dead(struct ibv_context *context, const char *verb);

// ---- words.c: says why a request or a receive failed, and on which side
void vb_verbs_tell(struct ibv_context *context, const struct vb_wc *wc);

// ---- refuse.c
void vb_verbs_refuse_ops(struct verbs_context *ops);

// ---- ah.c: paths
// Why there is no such path, or NULL. *error is changed if it is not EINVAL.
const char *vb_verbs_judge_path(struct ibv_context *context, const struct ibv_ah_attr *attr,
                                int *error);
// The hop limit that packets get; 0: the system's.
uint8_t vb_verbs_hop_limit(const struct ibv_ah_attr *attr);

// ---- cq.c, srq.c, qp.c, event.c
void vb_verbs_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked,
                        uint32_t handed_out);
struct ibv_cq_ex *vb_verbs_create_cq_ex(struct ibv_context *context,
                                        struct ibv_cq_init_attr_ex *attr);
int vb_verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int vb_verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_srq *vb_verbs_create_srq_ex(struct ibv_context *context,
                                       struct ibv_srq_init_attr_ex *attr);
int vb_verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_xrcd *vb_verbs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int vb_verbs_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *vb_verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *vb_verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
// ---- modify.c: of a queue pair that changes or goes
int vb_verbs_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
void vb_verbs_lock_cqs(const struct vb_verbs_qp *qp);
void vb_verbs_unlock_cqs(const struct vb_verbs_qp *qp);

// ---- event.c
// Takes an object that nobody uses out of its list: no more events of it are handed out. False: it
// is in use.
bool vb_verbs_retire(struct ibv_context *context, struct vb_link *link, const uint32_t *users,
                     const void *object);

// ---- memory.c
uint32_t vb_verbs_rights(unsigned access);
struct ibv_mw *vb_verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int vb_verbs_dealloc_mw(struct ibv_mw *mw);
struct ibv_td *vb_verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_verbs_dealloc_td(struct ibv_td *td);
struct ibv_pd *vb_verbs_alloc_parent_domain(struct ibv_context *context,
                                            struct ibv_parent_domain_init_attr *attr);
struct ibv_mr *vb_verbs_alloc_null_mr(struct ibv_pd *pd);
int vb_verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                       struct ibv_sge *list, uint32_t count);

// ---- query.c
int vb_verbs_query_device_ex(struct ibv_context *context,
                             const struct ibv_query_device_ex_input *input,
                             struct ibv_device_attr_ex *attr, size_t size);
int vb_verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                        size_t size);
int vb_verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);

// ---- poll.c
int vb_verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
void vb_verbs_fill_poll_ops(struct vb_verbs_cq *cq);

// ---- post.c
int vb_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int vb_verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vb_verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vb_verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
// Whether the queue pair's service has the operation.
bool vb_verbs_serves(const struct vb_verbs_qp *qp, enum vb_wr_opcode opcode);
// Says where a binding leads; EINVAL: it is not allowed.
int vb_verbs_translate_bind(struct vb_send_wr *wr, const struct ibv_mw_bind_info *info,
                            uint32_t new_key);

// The same for a receive queue of its own.
int vb_verbs_post_wq_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

// ---- wq.c
struct ibv_wq *vb_verbs_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int vb_verbs_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int vb_verbs_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *vb_verbs_create_table(struct ibv_context *context,
                                                struct ibv_rwq_ind_table_init_attr *attr);
int vb_verbs_destroy_table(struct ibv_rwq_ind_table *table);
// Why datagrams cannot be spread like this, or NULL.
const char *vb_verbs_judge_spread(const struct ibv_qp_init_attr_ex *attr);
int vb_verbs_spread(struct vb_verbs_qp *qp, const struct ibv_rx_hash_conf *conf);

// ---- build.c
int vb_verbs_build_init(struct vb_verbs_qp *qp);
void vb_verbs_build_fini(struct vb_verbs_qp *qp);

#endif
