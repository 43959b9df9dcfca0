// SPDX-License-Identifier: Apache-2.0
// An rsocket: a descriptor, its options, and what is behind it, a stream over a reliable
// connection or datagrams over unreliable queue pairs. Functions return 0 or a negative errno;
// the public ones in the files beside this turn that into errno.
#ifndef VB_RSOCKET_SOCKET_H
#define VB_RSOCKET_SOCKET_H

#include "rsocket/stream.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#pragma GCC visibility push(default) // what programs call
#include <rdma/rsocket.h>
#pragma GCC visibility pop

struct vb_rs_datagrams;

#define VB_RS_RECEIVE_ID (UINT64_C(1) << 63) // in the id of a work request that is a receive

enum vb_rs_state {
    VB_RS_IDLE,
    VB_RS_BOUND,
    VB_RS_LISTENING,
    VB_RS_RESOLVING_ADDRESS,
    VB_RS_RESOLVING_ROUTE,
    VB_RS_CONNECTING,
    VB_RS_ACCEPTING,
    VB_RS_CONNECTED, // stays so when the stream has ended
    VB_RS_FAILED,    // to connect
};

// What files of the administrator or the built-in values say.
struct vb_rs_defaults {
    struct vb_rs_sizes size;
    uint32_t polling_us;
    int wake_up_ms; // the longest sleep at once
};

struct vb_rs_flags {
    bool reuse_address, keep_alive, oob_inline, no_delay, v6_only;
    bool linger;
    int linger_s, keep_idle_s;
    int64_t timeout_ns[2]; // by enum vb_rs_way; 0: none
};

// The verbs objects of a connection.
struct vb_rs_end {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *send_mr, *list_mr, *recv_mr;
    void *memory;
    uint32_t *messages;
    bool armed;
    unsigned unacked_events;
};

struct vb_rs_mapping; // of riomap()

struct vb_rsocket {
    int fd, type, domain;
    unsigned references;  // guarded by the table's lock
    pthread_mutex_t lock; // guards all that follows
    pthread_cond_t turn;  // the sleeper below has woken up
    const void *sleeper;  // who sleeps in the kernel on this socket's descriptors
    enum vb_rs_state state;
    bool nonblocking, closing;
    bool stopped;         // a listener that was shut down
    bool heard;           // something completed since
    uint64_t heard_ns;    // when it was looked at
    uint64_t leave_by_ns; // the process exits; 0: it does not
    int status_flags;     // as rfcntl() was told
    int error;            // for SO_ERROR and the next call
    bool reset_told;
    struct vb_rs_sizes size;
    struct vb_rs_flags flag;
    void *route;
    size_t route_bytes;

    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    bool disconnected; // the connection manager said so, or was told
    struct vb_rs_end end;
    struct vb_rs_stream stream;
    struct vb_rs_mapping *mappings;
    bool mappings_pending;

    struct vb_rs_datagrams *datagrams;
};

// process.c: the table of descriptors. Get takes a reference, which put gives back; the last put
// frees.
const struct vb_rs_defaults *vb_rs_defaults(void);
int vb_rs_table_add(struct vb_rsocket *rs);
struct vb_rsocket *vb_rs_get(int fd);
void vb_rs_put(struct vb_rsocket *rs);
// Takes it out; the table's reference is the caller's now.
struct vb_rsocket *vb_rs_table_remove(int fd);
// From now on, connections are ended when the process exits. After the NIC was opened, so that it
// goes after them.
int vb_rs_watch_exit(void);
// Until when exit() waits for one of many: all have until `by_ns`, and each at least a moment.
uint64_t vb_rs_exit_by(uint64_t by_ns);

// open.c
struct vb_rsocket *vb_rs_new(int type, int domain, const struct vb_rsocket *like);
void vb_rs_free(struct vb_rsocket *rs);
int vb_rs_open_channel(struct vb_rsocket *rs);
int vb_rs_fail(int error); // sets errno; returns -1
int vb_rs_answer(int err); // 0, or -1 with errno

// name.c: a program's address, checked, in memory of its own.
int vb_rs_address_copy(const struct sockaddr *addr, socklen_t len, struct sockaddr_storage *copy);

// endpoint.c
int vb_rs_end_create(struct vb_rsocket *rs);
void vb_rs_end_destroy(struct vb_rsocket *rs);
int vb_rs_post(struct vb_rsocket *rs, const struct vb_rs_post *post);
void vb_rs_give_credits(struct vb_rsocket *rs);
void vb_rs_probe(struct vb_rsocket *rs); // if SO_KEEPALIVE asks for it now
void vb_rs_progress(struct vb_rsocket *rs);
void vb_rs_break(struct vb_rsocket *rs, int error);

// connect.c: one event of the connection manager, -EAGAIN if there is none.
bool vb_rs_is_opening(const struct vb_rsocket *rs);
int vb_rs_manager_step(struct vb_rsocket *rs);

// wait.c
enum {
    VB_RS_NOW = 0,
    VB_RS_FOREVER = -1
};
struct vb_rs_watch { // what to sleep on
    int fd[20];
    unsigned count;
};
uint64_t vb_rs_now_ns(void);
void vb_rs_advance(struct vb_rsocket *rs);
// What wakes a sleeper when something happens; -EAGAIN: look again first.
int vb_rs_arm(struct vb_rsocket *rs, struct vb_rs_watch *watch);
void vb_rs_woken(struct vb_rsocket *rs);
// Takes what the manager has to say of a connection that stands; true if that was something.
bool vb_rs_hear(struct vb_rsocket *rs);
typedef bool vb_rs_test(struct vb_rsocket *rs, const void *context);
int vb_rs_await(struct vb_rsocket *rs, int64_t timeout_ns, vb_rs_test *done, const void *context);
// Waits as long as the call's flags and the socket's options say; then it is -EAGAIN.
enum vb_rs_way {
    VB_RS_IN,
    VB_RS_OUT
};
int vb_rs_wait(struct vb_rsocket *rs, int flags, enum vb_rs_way way, vb_rs_test *done,
               const void *context);
// Waits until the connection stands; -ENOTCONN if none was asked for.
int vb_rs_await_connected(struct vb_rsocket *rs, int flags);

// transfer.c
size_t vb_rs_length(const struct iovec *iov, int count); // in bytes
int vb_rs_take_error(struct vb_rsocket *rs);
int vb_rs_await_room(struct vb_rsocket *rs, int flags);

// shutdown.c
int vb_rs_shutdown(struct vb_rsocket *rs, int how);

// iomap.c
int vb_rs_send_mappings(struct vb_rsocket *rs, int flags);
void vb_rs_free_mappings(struct vb_rsocket *rs);

// datagram.c and its neighbours
int vb_rs_datagrams_create(struct vb_rsocket *rs);
void vb_rs_datagrams_destroy(struct vb_rsocket *rs);
int vb_rs_datagrams_start(struct vb_rsocket *rs);
int vb_rs_datagrams_peer(const struct vb_rsocket *rs, struct sockaddr_storage *addr);
int vb_rs_datagrams_connect(struct vb_rsocket *rs, const struct sockaddr *to, socklen_t len);
ssize_t vb_rs_datagrams_send(struct vb_rsocket *rs, const struct iovec *iov, int count, int flags,
                             const struct sockaddr *to, socklen_t len);
ssize_t vb_rs_datagrams_receive(struct vb_rsocket *rs, const struct iovec *iov, int count,
                                int flags, struct sockaddr *from, socklen_t *len);
void vb_rs_datagrams_progress(struct vb_rsocket *rs);
short vb_rs_datagrams_events(struct vb_rsocket *rs, short events);
int vb_rs_datagrams_arm(struct vb_rsocket *rs, struct vb_rs_watch *watch);
void vb_rs_datagrams_woken(struct vb_rsocket *rs);
void vb_rs_datagrams_drain(struct vb_rsocket *rs);

#endif
