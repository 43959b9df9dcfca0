// SPDX-License-Identifier: Apache-2.0
// The hull: a NIC in a process of its own. Each unit of the NIC has a thread that runs it and looks
// at the bells of its queues. The first one's hears the applications that are attached, too, and
// executes what they ask the device for: then it holds the locks of all units (vb_host_lock), and
// what is changed there may be read by who holds any. What is said to be the hull's thread is that.
//
// An application's bytes are a stranger's, in messages and in shared memory. What it may name is
// what it has: every object has its application, and other numbers do not exist for it.
#ifndef VB_HULL_HULL_H
#define VB_HULL_HULL_H

#include "base/fifo.h"
#include "base/table.h"
#include "host/host.h"
#include "hull/config.h"
#include "hull/metrics.h"
#include "hull/store.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

enum {
    VB_HULL_CONNECTION_FDS = 2, // its socket, and that of its events
    VB_HULL_SEATS = 128,        // connection managers of a NIC's applications
    VB_HULL_QP_GROUPS = 64,     // multicast groups of one queue pair
    VB_HULL_WATCHES = 256,      // queues by hand of one tenant: looked at in every turn
    VB_HULL_SPREADS = 64,       // queue pairs of one tenant whose datagrams go to others
    VB_HULL_GROUPS = 256, // memberships of one tenant: a group's socket is asked in every turn
};

// In the order in which they can go.
enum vb_hull_kind {
    VB_HULL_QP,
    VB_HULL_SRQ,
    VB_HULL_PROGRAM,
    VB_HULL_CQ,
    VB_HULL_WINDOW,
    VB_HULL_REGION,
    VB_HULL_PD,
    VB_HULL_CHANNEL,
    VB_HULL_XRCD,
    VB_HULL_PORT, // of rdma_cm: its space in the upper half of the number
    VB_HULL_SEAT,
    VB_HULL_KINDS,
};

// What the hull's thread does for a tenant in one turn, so that no tenant takes all of it.
struct vb_hull_allowance {
    uint64_t turn;
    uint32_t taken;
};

// What goes back to the system, and is charged until it has: mappings, and what they count as.
struct vb_hull_reaping {
    uint32_t mappings;
    uint64_t bytes, memories;
};

// Of a tenant, at one unit.
struct vb_hull_looks {
    struct vb_hull_allowance looks, words;
};

// A user of this machine, through all his applications.
struct vb_hull_tenant {
    struct vb_link link;
    uid_t uid;
    struct vb_hull_quota quota, used;
    uint32_t share; // of the NIC's turns, by number
    struct vb_hull_allowance heard;
    struct vb_fifo named;    // mappings that stay
    struct vb_table name_of; // the same by a hash of the name, with a key that nobody knows
    uint64_t secret[2];
    struct vb_hull_reaping reaping;
    struct vb_hull_traffic traffic;
    uint64_t refused; // requests
    uint32_t watches, groups, spreads;
    uint32_t descriptors;      // of the hull's
    uint32_t poor;             // connections that are there to hear that there are none
    struct vb_hull_looks at[]; // by unit
};

// A process whose memory is copied. Regions keep theirs: an application may come to be another one.
struct vb_hull_process {
    int fd; // of its memory
    uint32_t users;
    struct vb_hull_tenant *tenant; // charged with it
};

// Memory that the hull has mapped.
struct vb_hull_mapping {
    struct vb_link link;   // in its tenant's list, if it has a name,
    struct vb_entry entry; // and in its table
    struct vb_hull_tenant *tenant;
    uint8_t *base;
    uint64_t bytes;
    int fd;           // of named memory, and of a service's; -1: none
    bool named, kept; // charged as a name, and with its descriptor
    uint32_t holds;
    uint32_t memories; // that it counts as, when nobody has it any more
    bool read_only;    // for applications: the clock
    char name[VB_HULL_NAME];
};

// Gives memory back to the system (reap.c).
struct vb_hull_reaper {
    struct vb_hull_allowance small; // what the hull's thread gives back by itself
    uint32_t collected;             // of those that it was told of
    pthread_mutex_t lock;           // of all that follows
    pthread_cond_t idle;
    struct vb_fifo due, done; // mappings
    uint32_t owed;            // of them, until all has been said that they are gone
    bool running;
};

// An application's use of a mapping.
struct vb_hull_hold {
    struct vb_link link;
    struct vb_entry entry; // by its number
    uint32_t number;
    uint32_t users; // objects that lie there
    uint32_t tag;
    bool rings;   // the driver's
    bool lent;    // neither made nor given: who comes next asks for it again
    bool watched; // of the clock: by a process that is there
    uint64_t at;  // where the application mapped it first; 0: nowhere yet
    struct vb_hull_mapping *mapping;
};

struct vb_hull_object {
    struct vb_link link;   // in its application's list of this kind
    struct vb_entry entry; // by kind and number
    struct vb_hull_client *client;
    enum vb_hull_kind kind;
    uint32_t number;
    uint32_t unit;    // of a queue pair or completion queue
    uint32_t entries; // charged
    struct vb_hull_hold *hold[3];
    struct vb_hull_object *channel;  // of a completion queue
    struct vb_hull_object *xrcd;     // of a shared receive queue or a queue pair in it
    uint32_t users;                  // of a channel, or a domain of XRC
    int fd;                          // of a channel or a seat: the hull's end; -1: nobody listens
    struct vb_hull_request *made;    // of a service: as it was asked for
    struct vb_hull_watch *watch;     // of a queue by hand; NULL: none
    uint32_t *record;                // of a queue pair or completion queue
    struct vb_hull_traffic seen;     // of a queue pair: what its tenant was charged with
    uint32_t groups;                 // that a queue pair is in, charged
    bool spreads;                    // of a queue pair: its datagrams go to others
    struct vb_hull_process *process; // of a region that is copied
    struct vb_hull_object *qp;       // of a seat: its management queue pair
};

// An application, as one unit knows it.
struct vb_hull_guest {
    struct vb_link active;    // its bells are looked at
    uint64_t rung_ns;         // when it last rang
    struct vb_faults *faults; // on purpose; NULL: none
    struct vb_trace *trace;   // of its own queue pairs; NULL: none
};

// A queue by hand: nobody says when it was written to, so the hull looks.
struct vb_hull_watch {
    struct vb_link link;
    struct vb_hull_object *object;
    uint32_t seen[2]; // of a queue pair: its record, when it was last looked at
    uint64_t *bell;   // of a completion queue: where it is armed
    struct vb_hull_hold *hold;
    uint32_t arm_serial;
};

// An application, from its connection to its end; of a service, through all its connections.
struct vb_hull_client {
    struct vb_link link; // of all
    struct vb_hull *hull;
    struct vb_hull_tenant *tenant;
    int socket, events;         // the hull's ends; -1: a service that nobody is attached to
    int page_fd;                // of a service
    uint32_t lives;             // connections, of a service
    char service[VB_HULL_NAME]; // empty: it is none
    const struct vb_hull_request *request; // that is being executed
    pid_t pid;
    uint32_t number; // of all that ever came: owns its completion queues
    char name[20];   // of its program, as the system says
    bool greeted, gone;
    bool poor;                 // it has no descriptors, and hears so
    uint32_t descriptors;      // of the connection, and of a service's page: charged
    bool unnamed;              // its greeting spoke of a service
    uint32_t home;             // the unit that it counts others from, once it has a queue
    struct vb_hull_page *page; // as many as there are units
    uint32_t holds_made, channels_made, watches;
    struct vb_hull_process *process; // whose memory may be copied; NULL: nobody's
    uint32_t trace_bytes;            // of each ring; what they take in all is charged
    struct vb_fifo holds;
    struct vb_fifo objects[VB_HULL_KINDS];
    struct vb_table hold_of, object_of;   // by number
    uint32_t objects_made[VB_HULL_KINDS]; // and not destroyed: how many they are
    struct vb_hull_guest at[];            // by unit
};

// Of its process, for applications.
struct vb_hull_descriptors {
    uint32_t most, used;
};

// A unit of the NIC, and the thread that runs it. All but the thread's own is changed under its
// lane's lock.
struct vb_hull_unit {
    alignas(64) struct vb_hull *hull;
    struct vb_lane *lane;
    uint32_t index;
    int wake; // eventfd
    pthread_t thread;
    bool running;
    uint64_t busy_ns, looked_ns, turns; // the thread's
    uint32_t load;                      // queue pairs and completion queues
    struct vb_fifo active, watches;     // applications that rang lately, and queues by hand
    uint8_t (*heads)[VB_FRAME_HEAD];    // of messages to managers, while there are any
    struct vb_trace *tracer;            // hands frames to applications' traces; NULL: none had one
    void (*looks)(void *ctx);           // before each look at bells, for measurements; NULL: none
    void *looks_ctx;
};

// Of all tenants.
struct vb_hull_counts {
    uint32_t clients, objects;   // with a connection; of all
    uint32_t services, detached; // and of those, without a connection
    uint64_t bytes;
    uint64_t reaping; // mappings whose bytes are among them
};

struct vb_hull {
    struct vb_hull_nic_config config;
    struct vb_nic *nic;
    struct vb_lane *lane; // the first, whose port speaks for all
    uint32_t units;
    struct vb_hull_unit *unit;
    uint64_t epoch;
    struct vb_hull_mapping clock; // one hold of it is the hull's own
    uint32_t watchers;            // of the clock
    char path[108];               // of its socket
    bool given;                   // which is the service manager's
    struct vb_store store;
    struct vb_metrics_ask metrics;
    struct vb_hull_descriptors descriptors;
    uint64_t deaf_ns; // until when nobody is let in: there is nothing to do it with; 0: no
    int listener, epoll, spare;
    atomic_bool stopping;
    pthread_mutex_t lock;                 // of what other threads say and ask
    struct vb_hull_config *known, *fresh; // what tenants may have; to be taken over
    atomic_bool asked;                    // for what follows
    pthread_cond_t counted;
    struct vb_hull_counts counts;
    struct vb_fifo clients, tenants;
    uint32_t clients_made;
    struct vb_hull_object *qp[VB_DOORBELL_QPS], *cq[VB_HULL_CQS];
    uint64_t turns; // of looking at sockets
    uint32_t xrcds, seats, seat_hint;
    struct vb_hull_object *seat[VB_HULL_SEATS];
    struct vb_mem_copier copier;
    struct vb_dev_hooks hooks; // while applications have rules for faults
    uint32_t traces;           // applications that have some
    struct vb_hull_reaper reaper;
};

// ---- hull.c
// Opens the NIC, listens and starts the thread. 0 or a negative errno, with words.
int vb_hull_open(const struct vb_hull_config *config, uint32_t nic, struct vb_hull **hull,
                 char error[VB_ERROR_TEXT]);
void vb_hull_close(struct vb_hull *hull);
// Other quotas from now on. -ENOMEM.
int vb_hull_reload(struct vb_hull *hull, const struct vb_hull_config *config);

// ---- runner.c
void *vb_hull_run(void *unit);
// One turn of a hull without a thread.
void vb_hull_turn(struct vb_hull *hull);

// ---- count.c
// What is there now, for tests and to be shown. By any thread but the hull's.
void vb_hull_count(struct vb_hull *hull, struct vb_hull_counts *counts);
// The same, with memory that is on its way back to the system.
void vb_hull_count_now(struct vb_hull *hull, struct vb_hull_counts *counts);
// By the hull's: answers who asks.
void vb_hull_count_serve(struct vb_hull *hull);
// ---- unit.c
// Of a NIC that is open. 0 or a negative errno.
int vb_hull_units_open(struct vb_hull *hull);
void vb_hull_units_close(struct vb_hull *hull);
// Their threads. 0, or a negative errno with words.
int vb_hull_units_start(struct vb_hull *hull, char error[VB_ERROR_TEXT]);
void vb_hull_units_stop(struct vb_hull *hull);
// Wakes the threads of these units, as bits, that sleep.
void vb_hull_units_wake(struct vb_hull *hull, uint32_t units);
// Needs the locks: the threads of units to which something was done hear of it.
void vb_hull_units_told(struct vb_hull *hull);
// Needs the locks. Where a queue of the application is to be, counted from its home.
uint32_t vb_hull_unit_choose(struct vb_hull_client *client, uint32_t from_home);
// The unit of a queue pair.
static inline struct vb_hull_unit *vb_hull_unit_of(const struct vb_hull *hull, uint32_t qpn)
{
    return &hull->unit[qpn & (hull->units - 1)];
}

// ---- bells.c: by who holds the unit's lock
// Looks at the bells of those who rang lately, and at queues by hand. Whether there was something.
bool vb_hull_bells_take(struct vb_hull_unit *unit);
// Those who have not rung for so long, and all if it is 0, send a message when they ring. True:
// nobody is left.
bool vb_hull_bells_sleep(struct vb_hull_unit *unit, uint64_t quiet_ns);
// By the hull's thread, without locks: bells of the application are looked at by these units.
void vb_hull_activate(struct vb_hull_client *client, uint32_t units);
// Needs the locks. Nobody looks any more.
void vb_hull_deactivate(struct vb_hull_client *client);
// Needs the locks. The units that do not look, as bits.
uint32_t vb_hull_asleep(const struct vb_hull_client *client);

// ---- client.c: by the hull's thread
// NULL: no memory.
struct vb_hull_tenant *vb_hull_tenant_of(struct vb_hull *hull, uid_t uid);
// Frees it, if it has nothing.
void vb_hull_tenant_end(struct vb_hull *hull, struct vb_hull_tenant *tenant);
void vb_hull_accept(struct vb_hull *hull);
// Of a hull that could not let anybody in: tries again, if it is time; and when it is, not after
// the deadline.
void vb_hull_accept_again(struct vb_hull *hull);
uint64_t vb_hull_accept_next(const struct vb_hull *hull, uint64_t deadline_ns);
// Reads some messages. The application may be gone then (`gone`).
void vb_hull_hear(struct vb_hull_client *client);
void vb_hull_client_end(struct vb_hull_client *client);
bool vb_hull_event(struct vb_hull *hull, const struct vb_event *event);

// ---- service.c
// The connection has ended: a service stays, everything else goes.
void vb_hull_leave(struct vb_hull_client *client);
// Gives the connection's session a name, or the connection to the session that has it. Sends the
// reply. 0, or why the connection or this record of it ends.
int vb_hull_service(struct vb_hull_client *client, const struct vb_hull_request *request);

// ---- tell.c: by the hull's thread, for who inspects it
uint32_t vb_hull_tell(struct vb_hull *hull, const char *kind, FILE *out);
void vb_hull_tell_owner(struct vb_hull *hull, bool cq, uint32_t number, FILE *out);
void vb_hull_name_client(struct vb_hull_client *client);
// What a client's user has and may have.
void vb_hull_tell_account(const struct vb_hull_client *client, struct vb_hull_account *account);

// ---- command.c: executes a request but HELLO and KICK. `fd` is the descriptor that came with it,
// -1: none; *give becomes the one that goes with the reply, and is closed then if *close_it.
void vb_hull_execute(struct vb_hull_client *client, const struct vb_hull_request *request,
                     struct vb_hull_reply *reply, int fd, int *give, bool *close_it);
// Destroys what the application has.
void vb_hull_destroy_all(struct vb_hull_client *client);
__attribute__((format(printf, 3, 4))) void vb_hull_refuse(struct vb_hull_reply *reply, int error,
                                                          const char *format, ...);

// ---- object.c
struct vb_hull_object *vb_hull_object_find(struct vb_hull_client *client, enum vb_hull_kind kind,
                                           uint32_t number);
// NULL: no memory.
struct vb_hull_object *vb_hull_object_add(struct vb_hull_client *client, enum vb_hull_kind kind,
                                          uint32_t number);
void vb_hull_object_remove(struct vb_hull_object *object);
void vb_hull_object_hold(struct vb_hull_object *object, struct vb_hull_hold *const hold[3]);
const char *vb_hull_kind_text(enum vb_hull_kind kind);
// Of what a tenant may have. False, with words.
bool vb_hull_charge(struct vb_hull_tenant *tenant, uint64_t *used, uint64_t quota, uint64_t more,
                    const char *what, struct vb_hull_reply *reply);

// ---- share.c
// A tenant's part of the NIC: by weight, and at a rate. 0 or a negative errno.
int vb_hull_share_open(struct vb_hull *hull, struct vb_hull_tenant *tenant);
void vb_hull_share_change(struct vb_hull *hull, struct vb_hull_tenant *tenant);
void vb_hull_share_close(struct vb_hull *hull, struct vb_hull_tenant *tenant);
// Takes one of `most` that a tenant has in this turn. False: it has had all.
bool vb_hull_allows(uint64_t turn, struct vb_hull_allowance *a, uint32_t most);

// ---- queue_change.c
void vb_hull_leave_groups(struct vb_hull_object *qp);

// ---- copy.c
void vb_hull_copy_init(struct vb_hull *hull);
// A region's use of what the application has now; NULL: it is of another kind.
struct vb_hull_process *vb_hull_copy_use(struct vb_hull_client *client, enum vb_mkey_kind kind);
void vb_hull_copy_end(struct vb_hull *hull, struct vb_hull_process *process); // NULL: of none

// ---- faults.c: of an application that goes
void vb_hull_faults_end(struct vb_hull_client *client);

// ---- trace.c: of an application that goes
void vb_hull_trace_end(struct vb_hull_client *client);

// ---- manager.c: the end of a seat, of a port, and of a queue pair that may be a manager's
void vb_hull_seat_end(struct vb_hull_object *seat);
void vb_hull_port_end(struct vb_hull_object *port);
void vb_hull_manager_ends(struct vb_hull_object *qp);
// The first packet of one of the application's queue pairs came: its manager, if it has one, may
// have waited for that.
void vb_hull_manager_hears(struct vb_hull_client *client, const struct vb_hull_event *event);

// ---- memory.c
int vb_hull_memory_create(struct vb_hull_client *client, const struct vb_hull_memory *wanted,
                          struct vb_hull_reply *reply, int *fd, bool *close_it);
int vb_hull_memory_give(struct vb_hull_client *client, int fd, struct vb_hull_reply *reply);
int vb_hull_memory_drop(struct vb_hull_client *client, uint32_t number,
                        struct vb_hull_reply *reply);
// Where `bytes` are, aligned. NULL: not in this application's memory, with words.
void *vb_hull_memory_find(struct vb_hull_client *client, const struct vb_hull_place *place,
                          uint64_t bytes, uint32_t align, struct vb_hull_hold **hold,
                          struct vb_hull_reply *reply);
// The same where it is only read.
void *vb_hull_memory_find_readable(struct vb_hull_client *client, const struct vb_hull_place *place,
                                   uint64_t bytes, uint32_t align, struct vb_hull_hold **hold,
                                   struct vb_hull_reply *reply);
// The application has it from now on. 0 or the reply's error.
int vb_hull_memory_hold(struct vb_hull_client *client, struct vb_hull_mapping *mapping,
                        struct vb_hull_reply *reply);
// Where a pointer into this application's memory is. False: it is no such one.
bool vb_hull_memory_locate(const struct vb_hull_client *client, const uint8_t *at, uint64_t bytes,
                           struct vb_hull_place *place);
void vb_hull_memory_let_go(struct vb_hull_client *client, struct vb_hull_hold *hold);
void vb_hull_memory_forget(struct vb_hull *hull, struct vb_hull_mapping *mapping);
// Its descriptor again, of named memory and of a service's; and, of a service, where it was mapped.
void vb_hull_memory_open(struct vb_hull_client *client, uint32_t number,
                         struct vb_hull_reply *reply, int *fd);
void vb_hull_memory_at(struct vb_hull_client *client, uint32_t number, uint64_t at,
                       struct vb_hull_reply *reply);
// NULL: there is none.
struct vb_hull_mapping *vb_hull_memory_named(struct vb_hull *hull, uid_t uid, const char *name);
// Memory of a hull that was, under the name that it had; the descriptor is the hull's then. Returns
// NULL, or why not.
const char *vb_hull_memory_restore(struct vb_hull *hull, uid_t uid, const char *name, int fd);
// Sealed memory, mapped. A descriptor or a negative errno.
int vb_hull_memory_make(uint64_t bytes, void **map);
// The same that others can only read.
int vb_hull_memory_make_readable(uint64_t bytes, void **map);

// ---- reap.c
void vb_hull_reap_init(struct vb_hull *hull);
// Unmaps, closes and frees it, now or later; its tenant is discharged then.
void vb_hull_reap(struct vb_hull *hull, struct vb_hull_mapping *mapping);
// With or without the locks: discharges tenants of what is gone by now.
void vb_hull_reap_collect(struct vb_hull *hull);
// Without the locks: who waits for it may know what was collected, and tenants that have nothing
// else any more end.
void vb_hull_reap_tell(struct vb_hull *hull);
// By any thread: waits until all of it was done and collected.
void vb_hull_reap_settle(struct vb_hull *hull);
// With the hull's thread at its end: until all of it was done.
void vb_hull_reap_finish(struct vb_hull *hull);
void vb_hull_reap_end(struct vb_hull *hull);

// ---- descriptors.c
// Of this one of so many NICs.
void vb_hull_descriptors_init(struct vb_hull *hull, uint32_t nics);
// False, with words: a tenant may not have so many more.
bool vb_hull_descriptors_take(struct vb_hull *hull, struct vb_hull_tenant *tenant, uint32_t count,
                              struct vb_hull_reply *reply);
void vb_hull_descriptors_give_back(struct vb_hull *hull, struct vb_hull_tenant *tenant,
                                   uint32_t count);
// What tenants may come to need by their quotas.
uint64_t vb_hull_descriptors_needed(const struct vb_hull_config *config);

// ---- watch.c
// Of an object that goes.
void vb_hull_watch_end(struct vb_hull_object *object);
// Needs the locks. Of an application that has left: looks once more, and never again. The next one
// has registers of its own, and may use their places for anything.
void vb_hull_watch_leave(struct vb_hull_client *client);
// Needs the unit's lock. Looks at its queues by hand. Whether one was written to.
bool vb_hull_watch_all(struct vb_hull_unit *unit);
// When a unit that sleeps looks again, not after the deadline.
uint64_t vb_hull_watch_next(const struct vb_hull_unit *unit, uint64_t deadline_ns);

// ---- clock.c
int vb_hull_clock_open(struct vb_hull *hull);
void vb_hull_clock_close(struct vb_hull *hull);
// By any unit's thread.
void vb_hull_clock_set(struct vb_hull *hull, uint64_t now_ns);
// Of a use of any memory: if it is of the clock, whether somebody may look at it from now on.
void vb_hull_clock_watch(struct vb_hull *hull, struct vb_hull_hold *hold, bool watched);
// When a hull that sleeps sets it, not after the deadline.
uint64_t vb_hull_clock_next(const struct vb_hull *hull, uint64_t deadline_ns);

#endif
