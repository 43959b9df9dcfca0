// SPDX-License-Identifier: Apache-2.0
// A software RDMA NIC inside this process: open it, register memory, connect queue pairs, post,
// poll.
//
// Functions that can fail return 0 or a negative errno. The NIC runs in the threads that poll it
// (vb_poll_cq, vb_nic_progress), and in a thread of its own while none does. Several threads may
// use one NIC at once, but a completion queue and all queue pairs bound to it are for one thread at
// a time: polling uses them all. Only posting (vb_post_send, vb_post_recv) may be another thread's
// than polling, one for each direction of a queue pair.
//
// Signal handlers may post, poll and call vb_nic_progress() on a NIC of one unit, but for shared
// receive queues and queues that are being resized or lose a queue pair: where that interrupts a
// call on the same queue or a thread that runs the NIC, nothing is done and 0 returned. Running the
// NIC may take memory from malloc(), which a handler must then not interrupt. It changes errno.
//
// A thread that is cancelled is never cancelled in the middle of a call, unless its type is
// PTHREAD_CANCEL_ASYNCHRONOUS.
//
// After fork() a NIC is its parent's alone. In the child every call on it and on its objects
// returns -EPERM (vb_nic_progress() 0) and does nothing; vb_nic_close() frees its memory. The child
// can open NICs of its own.
#ifndef VERBENA_NIC_H
#define VERBENA_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vb_nic;
struct vb_pd;
struct vb_mr;
struct vb_mw;
struct vb_channel;
struct vb_cq;
struct vb_srq;
struct vb_program;
struct vb_qp;

enum {
    VB_ERROR_TEXT = 160
};

struct vb_nic_opts {
    const char *address; // local IPv4 or IPv6 address; NULL: 127.0.0.1
    // What carries the packets: "udp", RoCE v2 on the wire; "shm", memory shared with NICs of the
    // same user on this host; "auto", shm where it reaches and udp elsewhere. NULL: $VERBENA_PORT,
    // or udp.
    const char *port;
    uint32_t units; // processing units, which threads can run at the same time: a power of two
                    // up to 16; 0: one. A hull's NIC has as many as the hull was told
    uint32_t window_bytes; // unacknowledged bytes to one peer, 8 KiB to 1 GiB; 0: 256 KiB, and up
                           // to 1 MiB if the socket's buffer is larger than Debian's default
    uint64_t seed;         // of keys and numbers, for tests; 0: drawn from the system
    const char *faults;    // faults on purpose, as docs/faults.md says; NULL: $VERBENA_FAULTS
    // Answers to congestion that switches mark: "none", or "dcqcn" with any knobs of
    // docs/congestion.md: "dcqcn:rp_ai_rate_mbps=100,cnp_interval_us=20". NULL:
    // $VERBENA_CONGESTION, or none.
    const char *congestion;
    uint32_t drain_ms;      // how long closing and exit wait for peers (see vb_nic_close); 0: 1,000
    bool no_helper;         // only threads that poll run the NIC: no other thread is started
    bool no_inspect;        // other processes of this user cannot ask the NIC about itself, as
                            // `verbena stat` does. Also by $VERBENA_INSPECT=0
    bool guarded;           // memory freed while registered becomes a peer's remote operation error
                            // instead of a crash; slow. Also by $VERBENA_GUARD=1
    bool check_zero_length; // the keys of zero-length WRITEs and READs, too
    bool no_credits;        // no end-to-end credits: peers that outrun receives get RNR NAKs
    char *error_text;       // room for VB_ERROR_TEXT bytes that say why open failed, or NULL
    // A NIC in a process of its own, `verbena nic`: its name, or the path of its socket
    // (docs/hull.md). All else but error_text is the hull's to say then.
    const char *hull;
    // Of such a NIC: a name under which all that is made on it outlives this process (see the calls
    // vb_service_…). -EBUSY: another process has it.
    const char *service;
    // Of a hull: memory that is not shared with it may be registered, too, and is copied for each
    // access, which the hull's configuration has to allow. No atomics and no programs work there.
    bool copy;
};

// Opens a NIC on UDP port 4791 of the address, which it may share with others of the same user
// (docs/connections.md). -EADDRINUSE: another user or program has the port, or by shm or auto
// another NIC the address; -EADDRNOTAVAIL: not an address of this machine; -EINVAL: not an address,
// a port, fault rules or congestion control.
int vb_nic_open(const struct vb_nic_opts *opts, struct vb_nic **nic);
// Closes the NIC and everything still open on it. What peers were promised is kept first: requests
// that came in are answered, and what was posted is given time (drain_ms) to be acknowledged or to
// fail. Return from main() and exit() wait in the same way for NICs that are still open. _exit()
// and signals that kill do not, but the answer to what a program has seen complete has always left.
void vb_nic_close(struct vb_nic *nic);
// Moves the NIC forward without looking at completions. Returns how many steps it made.
uint32_t vb_nic_progress(struct vb_nic *nic);
// The NIC's address as peers name it: the 16 bytes of its GID (IPv4 as ::ffff:a.b.c.d).
void vb_nic_gid(const struct vb_nic *nic, uint8_t gid[16]);
// Puts the NIC on another address of this machine, too, with the same queue pair numbers, until it
// closes: up to four in all. Who sends without saying from which does so from the one that is of
// the peer's kind: IPv4, IPv6, 127.0.0.0/8 or ::1. 0: it is there, now or already; -EADDRNOTAVAIL:
// not an address of this machine (or a link-local one); -EADDRINUSE: somebody else has the port
// there; -ENOSPC: it is on four; -EOPNOTSUPP: on the port shm there is one. error_text
// (VB_ERROR_TEXT bytes, or NULL) says it in words.
int vb_nic_take_address(struct vb_nic *nic, const uint8_t gid[16]);
int vb_nic_take_address_or_say(struct vb_nic *nic, const uint8_t gid[16], char *error_text);
// The n-th address that it is on, from 0 on; the first is that of vb_nic_gid(). -ENOENT: no more.
int vb_nic_address(const struct vb_nic *nic, uint32_t n, uint8_t gid[16]);
// Reads a counter by name (for example "sent_pkts"). -ENOENT: no such counter.
int vb_nic_counter(const struct vb_nic *nic, const char *name, uint64_t *value);
// The name of the i-th counter, NULL past the last.
const char *vb_nic_counter_name(unsigned i);

// Replaces the rules of faults; "off" ends them. -EINVAL: error_text (VB_ERROR_TEXT bytes, or NULL)
// says why, and the old ones stay. Each unit counts and draws for itself.
int vb_nic_set_faults(struct vb_nic *nic, const char *rules, char *error_text);

// Keeps the last frames in a ring of so many bytes (4 KiB and more; 0: stops), and writes them as
// pcapng, which Wireshark and tshark read.
int vb_nic_trace(struct vb_nic *nic, uint32_t ring_bytes);
int vb_nic_trace_dump(struct vb_nic *nic, int fd); // -EINVAL: no trace runs

// Ends when every operation begun before it has been acknowledged or flushed: memory may then be
// reused. -ETIMEDOUT: some are still under way. Of a cross-channel queue pair only what it executes
// counts, not what waits in its queue.
int vb_grace(struct vb_nic *nic, uint64_t timeout_ns);

enum vb_nic_event_kind {
    VB_NIC_EVENT_QP_FATAL,
    VB_NIC_EVENT_QP_REQUEST,     // a peer's request was malformed
    VB_NIC_EVENT_QP_ACCESS,      // a peer's request had no right
    VB_NIC_EVENT_QP_ESTABLISHED, // the first packet came
    VB_NIC_EVENT_QP_DRAINED,     // vb_qp_drain() has ended
    VB_NIC_EVENT_QP_LAST_RECV,   // a failed queue pair takes no more shared receives
    VB_NIC_EVENT_CQ_OVERRUN,
    VB_NIC_EVENT_SRQ_LIMIT, // fewer receives are left than vb_srq_arm() said
};

struct vb_nic_event {
    enum vb_nic_event_kind kind;
    uint32_t number; // of the queue pair or shared receive queue; of a completion queue its own
};

// A descriptor that is readable while events wait, and the oldest of them. -EAGAIN: none.
int vb_nic_event_fd(const struct vb_nic *nic);
int vb_nic_take_event(struct vb_nic *nic, struct vb_nic_event *event);
const char *vb_nic_event_text(enum vb_nic_event_kind kind);

int vb_pd_alloc(struct vb_nic *nic, struct vb_pd **pd);
int vb_pd_free(struct vb_pd *pd); // -EBUSY: regions or queue pairs remain

enum vb_rights {
    VB_RIGHT_LOCAL_WRITE = 1 << 0,
    VB_RIGHT_REMOTE_WRITE = 1 << 1,
    VB_RIGHT_REMOTE_READ = 1 << 2,
    VB_RIGHT_REMOTE_ATOMIC = 1 << 3,
    VB_RIGHT_BIND = 1 << 4,         // windows may be bound to the region
    VB_RIGHT_FLUSH_GLOBAL = 1 << 5, // peers may ask for what they wrote to be visible to all
    VB_RIGHT_ALL = (1 << 6) - 1,
};

// Any memory of the process, no pinning. It must stay mapped until vb_mr_dereg() returns.
int vb_mr_reg(struct vb_pd *pd, void *addr, size_t len, uint32_t rights, struct vb_mr **mr);

struct vb_mr_opts {
    void *addr;
    size_t len;
    uint32_t rights;
    bool other_start; // peers and work requests name the first byte `start` instead of addr
    uint64_t start;
    bool guarded; // not all of it need be mapped: what is not there is a peer's remote operation
                  // error and our own protection error. The system is asked for each access
};

int vb_mr_reg_as(struct vb_pd *pd, const struct vb_mr_opts *opts, struct vb_mr **mr);
// Gives the region other memory, rights or another domain; its key stays. -EBUSY: windows are bound
// to it.
int vb_mr_change(struct vb_mr *mr, struct vb_pd *pd, const struct vb_mr_opts *opts);
// A region without memory, for requests and receives of this side alone: at any address it reads as
// zeros, and what is written to it is lost.
int vb_mr_null(struct vb_pd *pd, struct vb_mr **mr);
// Where a request or receive finds the bytes that it names by key and address. -ENOENT: no such
// key; -EPERM: of another domain; -EACCES: without the rights; -ERANGE: outside of the region;
// -EFAULT: it is guarded, and they are not there; -EINVAL: a window that is not bound.
int vb_mr_find(struct vb_pd *pd, uint32_t key, uint64_t addr, uint64_t len, uint32_t rights,
               void **at);
int vb_mr_dereg(struct vb_mr *mr);          // -EBUSY: windows are bound to it
uint32_t vb_mr_key(const struct vb_mr *mr); // the local and the remote key are the same

// A window gives peers a part of a region, until it is bound anew or invalidated. Type 1 serves all
// queue pairs of its domain, type 2 the one it was bound on.
enum vb_mw_type {
    VB_MW_TYPE_1 = 1,
    VB_MW_TYPE_2,
};

int vb_mw_alloc(struct vb_pd *pd, enum vb_mw_type type, struct vb_mw **mw);
int vb_mw_free(struct vb_mw *mw);
uint32_t vb_mw_key(const struct vb_mw *mw); // as allocated; each binding names another lowest byte

// Of a NIC in a hull: memory that both have mapped, the only kind that can be registered there. The
// hull's own, zeros at first; `name` is NULL, or it stays when the application is gone, and who of
// the same user asks for the name again finds it as it was (bytes 0: of any size). -EEXIST: with
// another size; -EDQUOT: the tenant may have no more; it waits for what the tenant let go of, while
// that is on its way to the system. -EMFILE: there is no descriptor for a name. -EOPNOTSUPP: the
// NIC is in this process.
int vb_hull_alloc(struct vb_nic *nic, const char *name, size_t bytes, void **addr);
// The application's: a memfd that is sealed against shrinking (F_SEAL_SHRINK) and mapped whole at
// addr. -EPERM: it is not sealed, or no memfd.
int vb_hull_give(struct vb_nic *nic, int fd, void *addr);
// -EBUSY: registered; -ENOENT: not from the calls above. A name and its memory are let go of.
int vb_hull_free(struct vb_nic *nic, void *addr);
// A descriptor of memory with a name, for who maps it by himself: a virtual machine, or a process
// that is handed it. Its size never changes. close() it. -ENOENT: not from vb_hull_alloc();
// -EINVAL: it has no name.
int vb_hull_descriptor(struct vb_nic *nic, const void *addr);

// The hull's clock: CLOCK_MONOTONIC of its machine, and an epoch that every start of the hull draws
// anew. In the machine's order for applications, and big-endian as chain programs have numbers.
// What runs in the hull never sees a time from before it woke; who has it mapped sees one of the
// last turn while the hull is awake, and one of the last tenth of a second while it sleeps.
struct vb_hull_clock {
    uint64_t now_ns, epoch;
    uint64_t now_be, epoch_be;
};

// Maps it, to be read only. vb_mr_reg() with no rights but VB_RIGHT_REMOTE_READ makes a key for it,
// in any domain. vb_hull_free() lets go of it, vb_nic_close() too.
int vb_hull_clock(struct vb_nic *nic, const struct vb_hull_clock **clock);

static inline uint64_t vb_hull_now(const struct vb_hull_clock *clock)
{
    return __atomic_load_n(&clock->now_ns, __ATOMIC_ACQUIRE);
}

// In words, why the last call on the NIC was refused.
void vb_hull_why(const struct vb_nic *nic, char text[VB_ERROR_TEXT]);

// ---- services
// A NIC of a hull that was opened with the name of a service is what the last process of the same
// user left when it closed it, exited or was killed, at whatever moment: memory, domains, regions
// with their keys, windows, channels, completion queues, shared receive queues, queue pairs and
// their counters are as they were, and went on working. A process that opens the name begins with
// handles of all of them, which these calls find, and may go on posting and polling. (docs/hull.md)
//
// - A request was posted if vb_post_…() had told the NIC of it; one call tells of all its requests
//   at once.
// - A completion is polled once: what the last process had polled is not told again, whatever it
//   made of it. What nobody has polled is there, with its wr_id; vb_service_pending() tells of what
//   was posted and not polled.
// - Events besides completions that nobody took are not told again: ask for states.
//
// vb_nic_close() leaves a service as it is.

// What is made from now on can be found by the tag, any number; 0 at first. Set before something is
// made: the tag belongs to it from its first moment on. -EINVAL: the NIC has no service.
int vb_service_tag(struct vb_nic *nic, uint32_t tag);
// How many processes had the service before; 0: it is new.
int vb_service_lives(const struct vb_nic *nic, uint32_t *lives);

struct vb_service_memory {
    void *addr;
    size_t bytes;
    // Where the first process had it: keys, and entries of queues, name it by this address. It is
    // addr, unless that was taken in this process.
    uint64_t was;
    char name[64]; // empty: none
};

// The i-th with the tag, from 0 on, in the order in which they were made. -ENOENT: no more.
int vb_service_memory(struct vb_nic *nic, uint32_t tag, uint32_t i,
                      struct vb_service_memory *memory);
int vb_service_pd(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_pd **pd);
int vb_service_mr(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_mr **mr);
int vb_service_mw(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_mw **mw);
int vb_service_channel(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_channel **channel);
int vb_service_cq(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_cq **cq);
int vb_service_program(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_program **program);
int vb_service_srq(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_srq **srq);
int vb_service_qp(struct vb_nic *nic, uint32_t tag, uint32_t i, struct vb_qp **qp);
// The wr_id of the i-th request, or receive of its own, that was posted and whose completion was
// not polled, from 0 on, oldest first. -ENOENT: no more. -EINVAL: nobody counts (managed queues,
// VB_QP_IGNORE_OVERFLOW).
int vb_service_pending(const struct vb_qp *qp, bool receive, uint32_t i, uint64_t *wr_id);
// Destroys all that was made under the tag, but for memory with a name: parts that are of no use
// without each other, where the last process died in between. -EBUSY: what was made under another
// tag uses some of it; the rest is gone.
int vb_service_clear(struct vb_nic *nic, uint32_t tag);
// The name is given up: vb_nic_close(), or this process's end, now ends everything, as without one.
int vb_service_release(struct vb_nic *nic);

// Tells of completions through a descriptor, for programs that sleep.
int vb_channel_create(struct vb_nic *nic, struct vb_channel **channel);
int vb_channel_destroy(struct vb_channel *channel);  // -EBUSY: completion queues use it
int vb_channel_fd(const struct vb_channel *channel); // readable while events wait
// The next completion queue that has something. -EAGAIN: none.
int vb_channel_take(struct vb_channel *channel, struct vb_cq **cq);

struct vb_cq_opts {
    uint32_t entries;
    uint32_t unit; // the processing unit that polling it runs, from 1 on; 0: the first. A queue
                   // pair lives on its send queue's. At a hull, counted from the one that the
                   // application was given (docs/hull.md)
    struct vb_channel *channel; // may be NULL
    // Entries that nobody took are overwritten, and count for WAIT all the same; otherwise a full
    // queue fails its queue pairs. Who polls too late misses them. Not for shared receives.
    bool ignore_overrun;
    uint64_t start; // of its counter, for tests
};

int vb_cq_create(struct vb_nic *nic, const struct vb_cq_opts *opts, struct vb_cq **cq);
// -EBUSY: queue pairs, shared receive queues or programs use it. Who WAITs for it fails.
int vb_cq_destroy(struct vb_cq *cq);
uint32_t vb_cq_num(const struct vb_cq *cq); // as WAIT names it
uint64_t vb_cq_count(struct vb_cq *cq);     // entries ever produced, polled or not
// Asks for one event on the channel: for the next completion that is not polled yet, or the next
// solicited one or error. -EINVAL: it has no channel.
int vb_cq_arm(struct vb_cq *cq, bool solicited_only);
// The same for completions that come from now on alone: who arms first and polls then, as verbs
// programs do, is not told of what it has just polled.
int vb_cq_arm_next(struct vb_cq *cq, bool solicited_only);
// Events wait until so many completions have come, or so long since the first of them; 0 and 0:
// not.
int vb_cq_moderate(struct vb_cq *cq, uint32_t count, uint32_t period_us);
// Not while another thread polls it. -EINVAL: more completions wait than it would hold (if it
// ignores overruns, the oldest of them go). -EBUSY: it is shared.
int vb_cq_resize(struct vb_cq *cq, uint32_t entries);

// Receives that several queue pairs share.
struct vb_srq_opts {
    uint32_t depth;
    uint32_t sge; // scatter entries each, at most 16; 0: one
    // For extended reliable connections: their domain, and where completions go.
    uint32_t xrcd;
    struct vb_cq *cq;
};

int vb_xrcd_alloc(struct vb_nic *nic, uint32_t *xrcd);
int vb_xrcd_free(struct vb_nic *nic, uint32_t xrcd); // -EBUSY: queues use it; -ENOENT
int vb_srq_create(struct vb_pd *pd, const struct vb_srq_opts *opts, struct vb_srq **srq);
int vb_srq_destroy(struct vb_srq *srq); // -EBUSY: queue pairs use it
uint32_t vb_srq_num(const struct vb_srq *srq);
// One event when fewer than `limit` receives are left; 0: none.
int vb_srq_arm(struct vb_srq *srq, uint32_t limit);
// That limit; 0 once its event has come.
int vb_srq_limit(struct vb_srq *srq, uint32_t *limit);

enum vb_service {
    VB_SERVICE_RC,       // reliable connection
    VB_SERVICE_UC,       // unreliable connection: SEND and WRITE, nothing is acknowledged
    VB_SERVICE_UD,       // datagrams of at most one packet, to whom each request names
    VB_SERVICE_XRC_SEND, // extended reliable connection: the half that sends
    VB_SERVICE_XRC_RECV, // and the half that receives, into queues that the sender names
};

// Chain programs: queue pairs (VB_SERVICE_RC) whose entries wait for completions, open other queues
// and change each other. docs/ARCHITECTURE.md says how they are executed.
enum vb_qp_chain {
    VB_QP_CROSS_CHANNEL = 1 << 0, // VB_WR_WAIT, _SEND_EN, _RECV_EN and `calc` are legal
    // Entries are fetched when VB_WR_SEND_EN or VB_WR_RECV_EN of a queue pair of the same domain,
    // or vb_qp_open(), allows it; posting only writes them. What was never opened goes without a
    // completion.
    VB_QP_MANAGED_SEND = 1 << 1,
    VB_QP_MANAGED_RECV = 1 << 2,
    VB_QP_NO_WQE_CHECKS = 1 << 3,   // idx and qpn of control segments are not looked at
    VB_QP_IGNORE_OVERFLOW = 1 << 4, // posting does not count what is outstanding: for rings that
                                    // are executed again and never complete
    // Atomics answer with what was there big-endian, not in this machine's order: as entries have
    // their fields, so that an answer can be one.
    VB_QP_BE_REPLIES = 1 << 5,
    VB_QP_CHAIN_ALL = (1 << 6) - 1,
};

// An invalidation, a masked CAS of 8 bytes and an atomic on XRC count as two requests of the send
// depth, a binding as three.
struct vb_qp_opts {
    enum vb_service service;
    struct vb_srq *srq; // receives come from this queue; NULL: from one of its own
    struct vb_cq *send_cq, *recv_cq;
    uint32_t send_depth, recv_depth; // work requests outstanding
    uint32_t send_sge, recv_sge;     // scatter entries each, at most 16; 0: one
    uint32_t inline_bytes;           // longest inline payload; 0: none
    uint32_t xrcd;                   // VB_SERVICE_XRC_RECV
    // The management queue pair, number 1: VB_SERVICE_UD, with queues on unit 1 of a NIC with one
    // unit and on unit 2 otherwise. One for each NIC; -EBUSY: there is one. At a hull it is one for
    // each application, and has another number but on the wire (docs/hull.md).
    bool management;
    uint32_t chain; // enum vb_qp_chain
    // Of cross-channel queue pairs:
    uint32_t fetch_depth;       // entries fetched ahead; 0: the default
    uint32_t rate, burst;       // entries executed per second, and at once; 0: no limit
    struct vb_program *program; // that it belongs to; NULL: none
    uint64_t start;             // of its counters, for tests
};

// A queue pair in state RESET.
int vb_qp_create(struct vb_pd *pd, const struct vb_qp_opts *opts, struct vb_qp **qp);
// Requests that came in are answered first; what is still posted goes without a completion (who
// cares for it waits for its completions, or calls vb_grace()).
// The keys of its code regions end with it.
int vb_qp_destroy(struct vb_qp *qp);
// The part of vb_qp_destroy() that may take its time (drain_ms), to be called right before it: it
// then does not wait. Other threads may poll its completion queues meanwhile.
int vb_qp_settle(struct vb_qp *qp);
uint32_t vb_qp_num(const struct vb_qp *qp);

struct vb_qp_peer {
    uint8_t gid[16];     // the peer's address
    uint32_t qpn;        // its queue pair
    uint32_t psn;        // the first packet sequence number it will send
    uint32_t our_psn;    // the first one we will send
    uint32_t mtu;        // 256 to 4096; 0: 4096
    uint32_t rights;     // remote rights the peer gets (VB_RIGHT_REMOTE_…)
    uint8_t timeout;     // of an acknowledgement, 4.096 us * 2^timeout; 0: the default, 14
    uint8_t retries;     // 1 to 7; 0: the default, 7
    uint8_t rnr_retries; // 1 to 6; 7 for ever; 0: the default, 7
    uint8_t rnr_timer;   // code our receiver-not-ready answers carry; 0: the default, 12
    uint8_t reads;       // READs in flight, each direction, 1 to 16; 0: the default, 16
    uint32_t qkey;       // of datagrams: ours, which others must know
    uint8_t local[16];   // which of our addresses; zero: the one that suits the peer's
};

// RESET or ERR to RTS. Of datagrams only our_psn, mtu and qkey matter.
int vb_qp_connect(struct vb_qp *qp, const struct vb_qp_peer *peer);
// The same with itself: READ, WRITE, atomics, CALC and cross-channel work on this process's memory,
// in order and without packets; whatever needs a receive fails. `rights` is what it may do with the
// regions that its entries name as remote. -EINVAL: it is no cross-channel queue pair.
int vb_qp_connect_self(struct vb_qp *qp, uint32_t rights);
// To ERR: what is outstanding completes with VB_WC_FLUSHED. -EINVAL: it was never connected.
int vb_qp_fail(struct vb_qp *qp);
// It sends no more than so many kilobits per second (of packets, headers included; READ requests,
// atomics and acknowledgements do not count), and so many bytes at once (0: 16 KiB), until it is
// RESET; 0 lifts the limit.
int vb_qp_limit(struct vb_qp *qp, uint32_t kbps, uint32_t burst_bytes);
// Begun requests are finished, others wait (state SQD); VB_NIC_EVENT_QP_DRAINED says when.
int vb_qp_drain(struct vb_qp *qp);
// Goes on after vb_qp_drain(), or after a request of an unreliable service failed (state SQE).
// -EBUSY: what failed has not all been polled yet.
int vb_qp_resume(struct vb_qp *qp);
const char *vb_qp_state_text(struct vb_qp *qp);

// The same step by step, for who has its own protocol: with exact values (0 means 0 here), and a
// queue pair can take receives before it is connected.
enum vb_qp_phase {
    VB_QP_RESET,
    VB_QP_INIT,
    VB_QP_RTR, // ready to receive
    VB_QP_RTS, // and to send
    VB_QP_SQD,
    VB_QP_SQE, // comes by itself
    VB_QP_ERR,
};

struct vb_qp_change {
    enum vb_qp_phase to;
    uint32_t rights;                       // from INIT on: as of vb_qp_peer
    uint32_t qkey;                         // from INIT on
    uint8_t gid[16];                       // RTR: the peer's address,
    uint32_t qpn, psn, mtu;                // its queue pair, its first number, 256 to 4096,
    uint8_t reads_served;                  // its READs in flight, up to 16,
    uint8_t rnr_timer;                     // from RTR on
    uint32_t our_psn;                      // RTS
    uint8_t timeout, retries, rnr_retries; // RTS; a timeout of 0: never
    uint8_t reads;                         // RTS: our READs in flight, up to 128
    uint8_t local[16];                     // RTR: as of vb_qp_peer
    // RTR: of its packets' IP headers. The service level is the priority of the socket, up to 6;
    // the flow label is IPv6's. 0: as the system has it. Shared memory carries nothing of it.
    uint8_t traffic_class, hop_limit, service_level;
    uint32_t flow_label;
    bool silent; // SQD: no VB_NIC_EVENT_QP_DRAINED
};

// RESET to INIT to RTR to RTS to SQD and back, SQE to RTS, any to ERR and to RESET, which forgets
// all that was posted and not polled. In INIT, RTR and RTS the same phase again changes `rights`,
// `qkey` and, where it counts, `rnr_timer`. -EINVAL: no such step, or a value out of
// range; nothing changed then.
int vb_qp_change(struct vb_qp *qp, const struct vb_qp_change *change);
int vb_qp_phase(struct vb_qp *qp, enum vb_qp_phase *phase);

// A datagram queue pair receives what is sent to a multicast address (the 16 bytes of a GID, IPv4
// as ::ffff:a.b.c.d): a copy for every member, on this NIC and on others, the sender's included.
// Who sends names that address and the queue pair VB_QPN_MULTICAST, and its q_key must be the
// member's. -EINVAL: no datagram queue pair, or no such address; -EEXIST: it is a member;
// -EAFNOSUPPORT: the NIC's address is of the other family; -EOPNOTSUPP: the port shm has no groups
// (auto has). Packets stay on the link that the NIC's address is on.
enum {
    VB_QPN_MULTICAST = 0xffffff
};
int vb_qp_attach(struct vb_qp *qp, const uint8_t gid[16]);
int vb_qp_detach(struct vb_qp *qp, const uint8_t gid[16]); // -ENOENT: it is no member

// Datagrams to a queue pair take the receives of others, up to 128 (a power of two), each those of
// the one that a hash of Toeplitz says: of the sender's address, of ours, or of both. All of them
// must be of the same unit (that of their send queue's). Members that fail or go get nothing more.
enum vb_spread_fields {
    VB_SPREAD_SOURCE = 1,
    VB_SPREAD_DESTINATION = 2,
};
int vb_qp_spread(struct vb_qp *qp, struct vb_qp *const *members, uint32_t count, uint32_t fields,
                 const uint8_t key[40]);

// Reads a counter of the queue pair by name, as of vb_nic_counter(): counted since it was created,
// through all its connections. -ENOENT: no such counter.
int vb_qp_counter(const struct vb_qp *qp, const char *name, uint64_t *value);
// The name of the i-th counter, NULL past the last.
const char *vb_qp_counter_name(unsigned i);

// ---- chain programs, from inside

// The rings of a queue pair, in the formats of wqe.h. Entries may be written there directly, by
// the rules of ConnectX; vb_qp_open() tells the NIC of them. They live until vb_qp_destroy().
struct vb_qp_rings {
    uint8_t *send; // send_blocks of 64 bytes
    uint32_t send_blocks;
    uint32_t recv_entries, recv_stride; // of `recv`, in bytes; 0: it has none of its own
    uint8_t *recv;
    uint64_t send_count, recv_count; // blocks and entries ever posted: where the next one goes
    uint32_t qpn;
};

int vb_qp_rings(const struct vb_qp *qp, struct vb_qp_rings *rings);
// Opens the send or the receive queue up to a counter, exclusively: of a managed queue at most
// 32,767 past what is open, though it may be more than the ring holds; what lies behind changes
// nothing. Of any other queue the entries up to there count as posted, with wr_id 0; -EINVAL: fewer
// than are posted, or more than the ring holds.
int vb_qp_open(struct vb_qp *qp, bool receive, uint64_t count);

enum vb_ring {
    VB_RING_SEND,
    VB_RING_RECV,
};

// Queues by hand: what a driver of its own would have of a card. Entries are written into the rings
// and read from there by the rules of ConnectX (wqe.h); the doorbell record is written last, as a
// card's is, and says it all. Writing to the register that stands for a card's is allowed and
// needed for one thing only: at VB_RAW_ARM_OFFSET of a completion queue's, 8 bytes ask for an event
// (an arm word and the queue's number, big-endian). Nobody is called when the application posts so:
// the NIC looks at the records whenever it runs, and its helper does not sleep for more than a
// millisecond while there are such queues. A queue is either driven by hand or by the calls above.
// All of it lives until the queue is destroyed, which leaves the completions of others as they are.
enum {
    VB_RAW_REGISTER_BYTES = 512,
    VB_RAW_ARM_OFFSET = 32,
};

struct vb_raw_qp {
    uint8_t *send, *recv; // rings
    uint32_t send_blocks; // of 64 bytes
    uint32_t recv_entries, recv_stride;
    uint32_t *record; // VB_DBREC_RQ, VB_DBREC_SQ
    uint8_t *bell;    // the register
};

struct vb_raw_cq {
    uint8_t *ring;
    uint32_t entries; // of 64 bytes
    uint32_t *record; // VB_DBREC_CQ_CI, VB_DBREC_CQ_ARM
    uint8_t *bell;
    uint32_t cqn;
};

struct vb_raw_srq {
    uint8_t *ring;
    uint32_t entries, stride;
    uint32_t head, tail; // of the list of free entries
    uint32_t *record;    // one word
    uint32_t srqn;
};

int vb_qp_share(struct vb_qp *qp, struct vb_raw_qp *raw); // -ENOMEM
int vb_cq_share(struct vb_cq *cq, struct vb_raw_cq *raw); // -ENOMEM
int vb_srq_share(struct vb_srq *srq, struct vb_raw_srq *raw);

// A code region: the ring as memory of the queue pair's domain, with a key of its own, at the
// address that vb_qp_rings() says. vb_mr_dereg() ends it; after vb_qp_destroy() the key is dead,
// and vb_mr_dereg() only frees. -EINVAL: no such ring, or VB_RIGHT_BIND.
int vb_qp_code(struct vb_qp *qp, enum vb_ring ring, uint32_t rights, struct vb_mr **mr);

// Queue pairs that are limited, audited and stopped together.
struct vb_program_opts {
    uint32_t limit; // entries executed for each receive that is taken, and before the first;
                    // 0: any number. One more stops the program
    // Gets a completion for each entry that is executed (its wr_id is the lower 16 bits of the
    // entry's counter); NULL: nobody asks. No queue pair may use it besides.
    struct vb_cq *audit;
};

int vb_program_create(struct vb_pd *pd, const struct vb_program_opts *opts,
                      struct vb_program **program);
int vb_program_destroy(struct vb_program *program); // -EBUSY: queue pairs belong to it
// For good: fails its queue pairs, and whatever they would execute later.
int vb_program_stop(struct vb_program *program);
int vb_program_query(struct vb_program *program, uint64_t *executed, bool *stopped);

// ---- work requests

struct vb_sge {
    uint64_t addr;
    uint32_t len;
    uint32_t lkey;
};

enum vb_wr_opcode {
    VB_WR_SEND,
    VB_WR_WRITE,
    VB_WR_READ,
    VB_WR_NOP,
    VB_WR_SEND_IMM,
    VB_WR_SEND_INVAL,   // ends the binding of the peer's window `imm`
    VB_WR_WRITE_IMM,    // a WRITE that completes one of the peer's receives, too
    VB_WR_CAS,          // 8 bytes: compare and swap
    VB_WR_FADD,         // 8 bytes: fetch and add
    VB_WR_MASKED_CAS,   // compares and swaps the bits of two masks
    VB_WR_MASKED_FADD,  // adds to several fields at once
    VB_WR_ATOMIC_WRITE, // 8 bytes that nobody sees half of
    VB_WR_FLUSH,        // completes when what was written is visible to all
    VB_WR_BIND,         // binds a window of ours
    VB_WR_LOCAL_INVAL,  // ends the binding of our window `imm`
    // On cross-channel queue pairs. Counters run since creation; of `index` 24 bits count for WAIT,
    // 16 for the others.
    VB_WR_WAIT,    // holds this queue until the completion queue has produced entry `index`
    VB_WR_SEND_EN, // opens the managed send queue of a queue pair up to block `index`, exclusively
    VB_WR_RECV_EN, // the same for receives, by entries
    VB_WR_OPCODES
};

// What a SEND or WRITE of a cross-channel queue pair makes of its operands, one for each scatter
// entry: records of 16 bytes, aligned to 16, of a big-endian value and a tag. The one result goes
// to the peer.
enum vb_wr_calc {
    VB_WR_CALC_NONE,
    VB_WR_CALC_ADD,
    VB_WR_CALC_FLOAT_ADD, // of doubles
    VB_WR_CALC_MAX,       // with the tag of the greatest; of the others it is the first one's
    VB_WR_CALC_AND,
    VB_WR_CALC_OR,
    VB_WR_CALC_XOR,
    VB_WR_CALC_MIN,
};

enum vb_wr_flags {
    VB_WR_SIGNALED = 1 << 0, // completes on the CQ; others only on error
    VB_WR_FENCE = 1 << 1,    // starts when all earlier READs of this queue are done
    VB_WR_SOLICITED = 1 << 2,
    VB_WR_INLINE = 1 << 3, // the bytes are copied at once; the memory need not be registered
};

struct vb_send_wr {
    uint64_t wr_id;
    const struct vb_sge *sge;
    uint32_t num_sge;
    enum vb_wr_opcode opcode;
    uint32_t flags;
    uint32_t rkey;
    uint64_t raddr;
    uint32_t imm;  // …_IMM: four bytes as they are; …_INVAL: a key
    uint32_t srqn; // of the peer, on XRC queue pairs
    enum vb_wr_calc calc;
    union {
        struct {
            uint64_t swap_add;
            uint64_t compare;   // MASKED_FADD: a set bit ends a field, no carry leaves it
            uint64_t swap_mask; // MASKED_CAS
            uint64_t compare_mask;
            uint32_t arg_bytes; // masked: 4 or 8; 0: 8
        } atomic;
        struct vb_send_to {
            uint8_t gid[16];
            uint32_t qpn;
            uint32_t qkey;
            uint32_t source;     // 1: from the NIC's first address (vb_nic_address()), 2: from its
                                 // second, …; 0: from the one that suits the peer's
            uint32_t flow_label; // as of struct vb_qp_change
            uint8_t traffic_class, hop_limit, service_level;
        } to; // datagrams
        struct {
            uint32_t window; // its new key: the old one with another lowest byte
            uint32_t region;
            uint64_t addr, len;
            uint32_t rights;
            uint32_t zero_based; // peers count from 0 instead of from addr
        } bind;
        struct {
            uint32_t len;
            uint32_t whole_region; // instead of the range
        } flush;
        struct {
            uint32_t index;
            uint32_t number; // vb_cq_num() of WAIT, vb_qp_num() of the others
        } cross;
    };
};

struct vb_recv_wr {
    uint64_t wr_id;
    const struct vb_sge *sge;
    uint32_t num_sge;
};

// Post up to n work requests in order. Return how many were posted (fewer than n when the queue is
// full), or -EINVAL if the first one is malformed.
int vb_post_send(struct vb_qp *qp, const struct vb_send_wr *wr, uint32_t n);
// All of them or none. 0; -EINVAL: one is malformed; -ENOMEM: the queue has no room for all;
// -EAGAIN: in a signal handler, the queue is in use.
int vb_post_send_all(struct vb_qp *qp, const struct vb_send_wr *wr, uint32_t n);
int vb_post_recv(struct vb_qp *qp, const struct vb_recv_wr *wr, uint32_t n);
int vb_post_srq(struct vb_srq *srq, const struct vb_recv_wr *wr, uint32_t n);

enum vb_wc_status {
    VB_WC_OK,
    VB_WC_LOCAL_LENGTH,     // the message is longer than the receive buffer
    VB_WC_LOCAL_QP_OP,      // malformed work request
    VB_WC_LOCAL_PROTECTION, // a local key, range or right is wrong
    VB_WC_FLUSHED,          // the queue pair failed before this request was done
    VB_WC_BAD_RESPONSE,     // the peer answered nonsense
    VB_WC_LOCAL_ACCESS,
    VB_WC_REMOTE_INVALID,   // the peer refused the request's form, or its buffer was too short
    VB_WC_REMOTE_ACCESS,    // the remote key, range or right is wrong
    VB_WC_REMOTE_OPERATION, // the peer failed while executing
    VB_WC_RETRY_EXCEEDED,   // no answer from the peer
    VB_WC_RNR_EXCEEDED,     // the peer posted no receive in time
    VB_WC_BIND_REFUSED,     // a window could not be bound or invalidated
};

enum vb_wc_opcode {
    VB_WC_SEND,
    VB_WC_WRITE,
    VB_WC_READ,
    VB_WC_NOP,
    VB_WC_RECV,
    VB_WC_RECV_WRITE, // a WRITE with immediate data took the receive
    VB_WC_ATOMIC,
    VB_WC_ATOMIC_WRITE,
    VB_WC_FLUSH,
    VB_WC_KEY,   // a binding or a local invalidation
    VB_WC_CROSS, // WAIT, SEND_EN or RECV_EN
};

enum vb_wc_flags {
    VB_WC_WITH_IMM = 1 << 0,
    VB_WC_WITH_INVAL = 1 << 1, // imm is the key that was invalidated
    VB_WC_WITH_GRH = 1 << 2,   // the first 40 bytes of the receive hold the IP header
};

struct vb_wc {
    uint64_t wr_id;
    enum vb_wc_status status;
    enum vb_wc_opcode opcode; // of a failed request, only the side (VB_WC_RECV or not) is certain
    uint32_t byte_len;        // of a RECV and a READ
    uint32_t qpn;
    uint32_t flags; // enum vb_wc_flags
    uint32_t imm;
    uint32_t src_qpn;          // of a datagram
    enum vb_wr_opcode request; // of a request that succeeded: what was posted
};

// Runs the NIC if no completion is waiting, then takes up to n. Returns how many.
int vb_poll_cq(struct vb_cq *cq, struct vb_wc *wc, int n);
const char *vb_wc_status_text(enum vb_wc_status status);

#ifdef __cplusplus
}
#endif

#endif
