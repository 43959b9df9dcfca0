// SPDX-License-Identifier: Apache-2.0
// The hull: a NIC in a process of its own. One thread runs the NIC, hears the applications that are
// attached to it, and executes what they ask its device for.
//
// An application's bytes are a stranger's, in messages and in shared memory. What it may name is
// what it has: every object has its application, and other numbers do not exist for it.
#ifndef VB_HULL_HULL_H
#define VB_HULL_HULL_H

#include "base/fifo.h"
#include "host/host.h"
#include "hull/config.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    VB_HULL_BUCKETS = 256,
};

// In the order in which they can go.
enum vb_hull_kind {
    VB_HULL_QP,
    VB_HULL_SRQ,
    VB_HULL_CQ,
    VB_HULL_WINDOW,
    VB_HULL_REGION,
    VB_HULL_PD,
    VB_HULL_CHANNEL,
    VB_HULL_KINDS,
};

// A user of this machine, through all his applications.
struct vb_hull_tenant {
    struct vb_link link;
    uid_t uid;
    struct vb_hull_quota quota, used;
    struct vb_fifo named; // mappings that stay
};

// Memory that the hull has mapped.
struct vb_hull_mapping {
    struct vb_link link; // in its tenant's list, if it has a name
    struct vb_hull_tenant *tenant;
    uint8_t *base;
    uint64_t bytes;
    int fd; // of named memory; -1: none
    uint32_t holds;
    char name[VB_HULL_NAME];
};

// An application's use of a mapping.
struct vb_hull_hold {
    struct vb_link link;
    uint32_t number;
    uint32_t users; // objects that lie there
    struct vb_hull_mapping *mapping;
};

struct vb_hull_object {
    struct vb_link link;          // in its application's list of this kind
    struct vb_hull_object *chain; // in its bucket
    struct vb_hull_client *client;
    enum vb_hull_kind kind;
    uint32_t number;
    uint32_t entries; // charged
    struct vb_hull_hold *hold[3];
    struct vb_hull_object *channel; // of a completion queue
    uint32_t users;                 // of a channel
    int fd;                         // of a channel: the hull's end
};

// An application, from its connection to its end.
struct vb_hull_client {
    struct vb_link link, active; // of all; and of those whose bells are looked at
    struct vb_hull *hull;
    struct vb_hull_tenant *tenant;
    int socket, events; // the hull's ends
    pid_t pid;
    uint32_t number; // of all that ever came: owns its completion queues
    bool greeted, gone;
    uint64_t rung_ns; // when it last rang
    struct vb_hull_page *page;
    uint32_t holds_made, channels_made;
    struct vb_fifo holds;
    struct vb_fifo objects[VB_HULL_KINDS];
    struct vb_hull_object *bucket[VB_HULL_BUCKETS];
};

// Of all tenants.
struct vb_hull_counts {
    uint32_t clients, objects;
    uint64_t bytes;
};

struct vb_hull {
    struct vb_hull_nic_config config;
    struct vb_nic *nic;
    struct vb_lane *lane;
    uint64_t epoch;
    char path[108]; // of its socket
    int listener, epoll, wake, spare;
    pthread_t thread;
    bool running;
    atomic_bool stopping;
    pthread_mutex_t lock;                 // of what other threads say and ask
    struct vb_hull_config *known, *fresh; // what tenants may have; to be taken over
    struct vb_hull_counts counts;
    struct vb_fifo clients, active, tenants;
    uint32_t clients_made;
    struct vb_hull_object *qp[VB_DOORBELL_QPS], *cq[VB_HULL_CQS];
    uint64_t busy_ns, looked_ns;
};

// ---- hull.c
// Opens the NIC, listens and starts the thread. 0 or a negative errno, with words.
int vb_hull_open(const struct vb_hull_config *config, uint32_t nic, struct vb_hull **hull,
                 char error[VB_ERROR_TEXT]);
void vb_hull_close(struct vb_hull *hull);
// Other quotas from now on. -ENOMEM.
int vb_hull_reload(struct vb_hull *hull, const struct vb_hull_config *config);
// What is there, for tests and to be shown.
void vb_hull_count(struct vb_hull *hull, struct vb_hull_counts *counts);

// ---- runner.c
void *vb_hull_run(void *hull);
// One turn of a hull without a thread.
void vb_hull_turn(struct vb_hull *hull);

// ---- client.c: by the hull's thread
void vb_hull_accept(struct vb_hull *hull);
// Reads some messages. The application may be gone then (`gone`).
void vb_hull_hear(struct vb_hull_client *client);
void vb_hull_client_end(struct vb_hull_client *client);
void vb_hull_activate(struct vb_hull_client *client);
bool vb_hull_event(struct vb_hull *hull, const struct vb_event *event);

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
void vb_hull_memory_let_go(struct vb_hull_client *client, struct vb_hull_hold *hold);
void vb_hull_memory_forget(struct vb_hull *hull, struct vb_hull_mapping *mapping);
// Sealed memory, mapped. A descriptor or a negative errno.
int vb_hull_memory_make(uint64_t bytes, void **map);

#endif
