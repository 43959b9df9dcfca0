// SPDX-License-Identifier: Apache-2.0
// librspreload: socket calls of unmodified programs become rsocket calls. What the program holds
// is always a socket of the kernel; an rsocket may stand beside it and then takes its calls.
#ifndef VB_RSPRELOAD_PRELOAD_H
#define VB_RSPRELOAD_PRELOAD_H

#include <poll.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define VB_RP_EXPORT __attribute__((visibility("default")))

// How far a socket that may be forked away has come: its rsocket connects at the first transfer.
enum vb_rp_mode {
    VB_RP_RSOCKET,
    VB_RP_FORK,
    VB_RP_FORK_LISTENING,
    VB_RP_FORK_ACTIVE,
    VB_RP_FORK_PASSIVE,
    VB_RP_FORK_MOVING, // some thread is at it
    VB_RP_PLAIN,       // no rsocket after all
};

struct vb_rp_entry {
    int rs; // -1: none yet; set before the mode says that there is one
    _Atomic(enum vb_rp_mode) mode;
    struct sockaddr_storage bound; // by the program: TCP takes it over if it takes the rsocket's
                                   // place
    socklen_t bound_len;           // 0: it is not
    bool foreign;                  // of the process that forked us
    unsigned references;           // descriptors and calls; guarded by the table's lock
};

struct vb_rp_settings {
    int sq_size, rq_size, inline_bytes; // 0: the defaults
    bool fork_safe;
};

struct vb_rp_real {
    int (*socket)(int, int, int);
    int (*bind)(int, const struct sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*accept4)(int, struct sockaddr *, socklen_t *, int);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
    int (*shutdown)(int, int);
    int (*close)(int);
    int (*getpeername)(int, struct sockaddr *, socklen_t *);
    int (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    int (*getsockopt)(int, int, int, void *, socklen_t *);
    int (*fcntl)(int, int, ...);
    int (*ioctl)(int, unsigned long, ...);
    int (*dup)(int);
    int (*dup2)(int, int);
    ssize_t (*sendfile)(int, int, off_t *, size_t);
};

// process.c
const struct vb_rp_real *vb_rp_real(void);
const struct vb_rp_settings *vb_rp_settings(void);
bool vb_rp_is_asked_for(int domain, int type, int protocol); // by the configuration
bool vb_rp_is_own(const void *caller);                       // our libraries' own sockets stay
// Between these the thread's calls are the libraries'.
void vb_rp_enter(void);
void vb_rp_leave(void);
bool vb_rp_has(int fd); // an entry, at a glance and without a lock
// The entry of a descriptor with a reference to it, which put gives back; NULL for ordinary ones
// and inside our libraries. The rsocket stays open until the last reference is gone, as a socket of
// the kernel does for a call that still runs.
struct vb_rp_entry *vb_rp_get(int fd);
struct vb_rp_entry *vb_rp_get_rsocket(int fd); // NULL, too, while it has no rsocket
void vb_rp_put(struct vb_rp_entry *entry);
bool vb_rp_add(int fd, int rs, enum vb_rp_mode mode);
bool vb_rp_share(int fd, struct vb_rp_entry *entry);
void vb_rp_remove(int fd);
// From one mode to another, if it is in that one.
void vb_rp_advance(struct vb_rp_entry *entry, enum vb_rp_mode from, enum vb_rp_mode to);
// Who moves an entry to its rsocket: false if that is done, or was not to be. Others wait.
bool vb_rp_move_begin(struct vb_rp_entry *entry, enum vb_rp_mode *from);
void vb_rp_move_end(struct vb_rp_entry *entry, int rs);

// Around one call of an rsocket; begin returns NULL if there is none.
struct vb_rp_entry *vb_rp_begin(int fd);
void vb_rp_end(struct vb_rp_entry *entry);
#define VB_RP_END_WITH(entry, call)        \
    do {                                   \
        __auto_type vb_rp_result = (call); \
        vb_rp_end(entry);                  \
        return vb_rp_result;               \
    } while (0)

// fork.c: begins a transfer, for which the rsocket is connected first if that is due.
struct vb_rp_entry *vb_rp_begin_transfer(int fd);
void vb_rp_apply_settings(int rs);

#endif
