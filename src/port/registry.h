// SPDX-License-Identifier: Apache-2.0
// The registry: a file of the user's own, mapped by every NIC that may share an address with
// others. A slot stands for a range of 2^15 queue pair numbers; a NIC holds one or more by a lock
// that goes when its process does. What others wrote there is copied and checked before it is used.
#ifndef VB_PORT_REGISTRY_H
#define VB_PORT_REGISTRY_H

#include "nic/frame.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

enum {
    REGISTRY_VERSION = 2,
    REGISTRY_SLOTS = 511,     // the last range holds the number of multicast groups: nobody's
    REGISTRY_RANGE_BITS = 15, // numbers of a slot
    REGISTRY_UNITS = 16,      // of a NIC
    REGISTRY_SITES = 4,       // addresses of a NIC
    REGISTRY_INDEX_NONE = 0xffff,
    REGISTRY_INDEX_MAX = REGISTRY_SLOTS * REGISTRY_UNITS,
    REGISTRY_PATH = 108, // what a Unix socket's name has room for
    REGISTRY_SPACES = 3, // of rdma_cm's ports
    REGISTRY_PORTS = 1 << 16,
};

#define REGISTRY_MAGIC   0x7662726567697374ull
#define REGISTRY_REST_NS 2000000000ull // a range is not given away again for so long, if it can be

// An address that a NIC is on.
struct registry_address {
    _Atomic uint64_t half[2]; // as of struct vb_ip
    _Atomic uint32_t scope;   // interface of a link-local address
    _Atomic uint32_t taken;   // 0: none
};

// A NIC's sockets at one of its addresses. Others may write `index`, `mail` and `takes_rest`.
struct registry_site {
    _Atomic uint64_t index_ns[REGISTRY_UNITS]; // when `index` was last seen to be so
    _Atomic uint32_t index[REGISTRY_UNITS];    // of its sockets among those of the address
    _Atomic uint32_t mail[REGISTRY_UNITS];     // datagrams ever sent to its inboxes
    _Atomic uint32_t cookie[REGISTRY_UNITS];   // the system's names of its sockets, lowest bits
    _Atomic uint32_t takes_rest; // frames that are nobody's, or everybody's, come to it
    uint32_t unused;
};

// One slot in the file. Its holder writes all; others clear what a dead holder left. What is looked
// at to find out who is where comes first.
struct registry_slot {
    _Atomic uint64_t id; // 0: nobody's; else another number for each holder
    _Atomic uint32_t pid;
    _Atomic uint32_t head; // the first slot of the same holder, plus one
    _Atomic uint32_t span; // of the first: slots held
    _Atomic uint32_t units;
    _Atomic uint32_t manages; // it has queue pair 1
    uint32_t unused;
    _Atomic uint64_t beat_ns; // its last sign of life
    _Atomic uint64_t used_ns; // when the range was last taken or given back
    struct registry_address at[REGISTRY_SITES];
    struct registry_site site[REGISTRY_SITES];
    uint8_t spare[80]; // cache lines of its own
};

struct registry_file {
    uint64_t magic;
    uint32_t version;
    uint32_t slots;
    uint64_t secret;       // who knows it may read this file
    _Atomic uint32_t hint; // the slot to look at first
    _Atomic uint32_t ids;
    _Atomic uint64_t locked_ns; // since when somebody has been changing the order of sockets
    _Atomic uint32_t changes;   // of managers and of ports that the system is told of
    uint8_t unused[4096 - 44];
    struct registry_slot slot[REGISTRY_SLOTS];
    // Who has a port, as its first slot + 1: written by who holds the lock on it, and only then.
    _Atomic uint16_t owner[REGISTRY_SPACES][REGISTRY_PORTS];
};

static_assert(sizeof(struct registry_slot) == 1536, "no padding");
static_assert(offsetof(struct registry_file, slot) == 4096, "a page of its own");

// A NIC's hold on the registry.
struct registry {
    int fd; // its locks are this description's, so each NIC has one of its own
    struct registry_file *file;
    uint32_t slot, span; // held; span 0: none
    uint32_t site;       // which of the holder's addresses this one looks after
    bool joined;         // the slot is held by another hold of the same NIC
    uint64_t netns;
    char dir[REGISTRY_PATH];
};

// What a slot says of an address, checked.
struct registry_member {
    uint32_t slot, span, units, site;
    uint32_t pid;
    bool takes_rest, manages;
    uint64_t beat_ns;
    uint32_t index[REGISTRY_UNITS];
};

// Opens or makes the registry of this user and network namespace. 0 or a negative errno.
int vb_registry_open(struct registry *r, const char *runtime_dir);
void vb_registry_close(struct registry *r); // gives the slots back
// In a forked child: the parent keeps its slots.
void vb_registry_abandon(struct registry *r);

// Takes `span` adjacent slots for a NIC of `units` at an address. -ENOSPC: there are not so many.
int vb_registry_claim(struct registry *r, uint32_t span, uint32_t units, const struct vb_ip *ip,
                      uint32_t scope, uint64_t now_ns);
// Puts the slots that `first` holds on another address, too. -ENOSPC: they are on four already;
// -ESTALE: that is another file.
int vb_registry_join(struct registry *r, const struct registry *first, const struct vb_ip *ip,
                     uint32_t scope);
// Gives the slots back; who has joined gives its address back.
void vb_registry_release(struct registry *r, uint64_t now_ns);

// Whether a holder's process still is; ours is. Costs a system call.
bool vb_registry_is_alive(const struct registry *r, uint32_t slot);
// Copies a slot that is the first of its holder's; as of its first address. False: it is nobody's,
// or makes no sense.
bool vb_registry_read(const struct registry *r, uint32_t slot, struct registry_member *m);
// The same of the address given. False as well: it is not on that one.
bool vb_registry_read_at(const struct registry *r, uint32_t slot, const struct vb_ip *ip,
                         uint32_t scope, struct registry_member *m);
bool vb_registry_is_at(const struct registry *r, uint32_t slot, const struct vb_ip *ip,
                       uint32_t scope);
// Copies one of a slot's addresses. False: there is none.
bool vb_registry_address(const struct registry *r, uint32_t slot, uint32_t site, struct vb_ip *ip,
                         uint32_t *scope);
// Forgets a holder that died: at one address, and altogether when it is on no other.
void vb_registry_bury(struct registry *r, uint32_t slot, uint32_t site, uint64_t now_ns);
// The first slot of who owns a queue pair number. False: nobody does.
bool vb_registry_find(const struct registry *r, uint32_t qpn, uint32_t *slot);
// The system's name of the socket that gets an address's frames for a queue pair; 0: unknown.
uint32_t vb_registry_cookie(const struct registry *r, const struct vb_ip *ip, uint32_t scope,
                            uint32_t qpn);

// The name of an inbox. False: it is too long.
bool vb_registry_inbox(const struct registry *r, uint32_t slot, uint32_t site, uint32_t unit,
                       char path[REGISTRY_PATH]);

// ---- registry_ports.c: ports of rdma_cm, of which each is one NIC's
// 0; -EADDRINUSE: another one has it. Who has it already has it once more, but gives it back once.
int vb_registry_port_take(struct registry *r, uint32_t space, uint16_t port);
void vb_registry_port_give(struct registry *r, uint32_t space, uint16_t port);
// False: nobody has it. The holder may have died since.
bool vb_registry_port_owner(const struct registry *r, uint32_t space, uint16_t port,
                            uint32_t *slot);

// One at a time changes the order of sockets; but who is stopped meanwhile keeps nobody from it
// for long. False: somebody else is at it just now.
bool vb_registry_lock(struct registry *r, uint64_t now_ns);
void vb_registry_unlock(struct registry *r);

#endif
