// SPDX-License-Identifier: Apache-2.0
// A world of chain programs: NICs that hold loaded programs, callers on other NICs that ask them by
// SEND over a network with faults, and programs that run by themselves. The servers' hosts set up
// and take down, and do nothing in between. What comes out is compared with a reference in C.
#ifndef VB_SIM_CHAIN_WORLD_H
#define VB_SIM_CHAIN_WORLD_H

#include "base/prng.h"
#include "chain/image.h"
#include "host/driver.h"
#include "nic/dev.h"
#include "port/simnet.h"
#include "sim/coverage.h"
#include "sim/digest.h"
#include "sim/flow.h"
#include "sim/scenario.h"
#include "verbena/offload.h"

#include <stdio.h>

enum {
    VB_CHAINS_NICS = 5,
    VB_CHAINS_UNITS = 2,
    VB_CHAINS_CALLERS = 6,
    VB_CHAINS_SOLOS = 6, // programs that nobody calls
    VB_CHAINS_PIECES = 512,
    VB_CHAINS_PROGRAMS = 64,
    VB_CHAINS_QUEUES = 3, // of one program
    VB_CHAINS_CQS = 8,
    VB_CHAINS_REGIONS = 16,
    VB_CHAINS_ASKED = 64, // requests of one caller under way
    VB_CHAINS_SENT = 256, // frames of one queue pair that are remembered
    VB_CHAINS_BUCKETS = 24,
    VB_CHAINS_NODES = 20, // of all lists together
    VB_CHAINS_VALUE_MAX = 1200,
    VB_CHAINS_TEXT = 400,
};

struct vb_chainworld;

// ---- memory: every piece lies between guards

struct vb_piece {
    uint8_t *block, *at; // the first guard, and what is behind it
    uint64_t addr;       // as work requests name it
    uint32_t len;
    uint32_t owner; // whose queue pairs may touch it; 0: all may read it
};

// ---- NICs

struct vb_chainunit {
    struct vb_pu *pu;
    bool idle;
    struct vb_rx_frame rx[VB_PORT_RX_BATCH];
    uint32_t rx_count;
};

// What a server's programs look up. It never changes.
struct vb_chainstore {
    struct vb_piece *index, *items;
    uint8_t *index_before, *items_before;
    uint32_t len[VB_CHAINS_BUCKETS + VB_CHAINS_NODES]; // of each value
};

struct vb_chainnic {
    struct vb_chainworld *world;
    uint32_t index;
    struct vb_ip ip;
    struct vb_dev *dev;
    struct vb_port *port;
    struct vb_chainunit unit[VB_CHAINS_UNITS];
    uint32_t units, at; // the one whose step was last
    bool polls;         // it runs as under a real port: no step is looked at
    uint64_t polled;    // steps of this turn
    bool holds;
    bool ran_healed, clear;  // since the network healed; nothing from before is left
    struct vb_digest frames; // that were given to the port
    struct vb_rx_frame rx[VB_PORT_RX_BATCH];
    uint64_t run_at_ns, hold_until_ns, next_addr;
    struct vb_piece *piece[VB_CHAINS_PIECES];
    uint32_t pieces;
    struct vb_chainstore store;
};

// ---- programs

struct vb_chainqueue {
    uint32_t qpn, dbrec[2];
    uint64_t last; // counter executed last
    uint8_t fault; // syndrome of the first error
};

struct vb_chaincq {
    uint8_t *ring;
    uint32_t cqn, dbrec[2];
};

struct vb_chainload {
    const struct vb_image *image;
    uint32_t owner, fetch_depth;
    uint64_t start;
    uint32_t limit, rate, burst;
    struct vb_image_memory client; // of a program with a caller
};

// One side of a connection of a caller with its program: its attempts to be heard.
struct vb_chainend {
    uint64_t began_ns, over_ns; // the last attempt that was in vain
    bool silent;                // it has ended by retries, which was judged
};

struct vb_chainprog {
    struct vb_chainnic *nic; // NULL: gone
    struct vb_image *image;
    struct vb_chainload opts;
    uint32_t pd, number; // of the program
    struct vb_chaincq cq[VB_CHAINS_CQS];
    struct vb_chainqueue queue[VB_CHAINS_QUEUES];
    struct vb_image_memory send[VB_CHAINS_QUEUES], recv[VB_CHAINS_QUEUES], data[VB_CHAINS_REGIONS];
    uint32_t key[16]; // all of them
    uint32_t keys, cqs, queues;
    uint32_t peer_qpn;
    struct vb_ip peer_ip;
    uint64_t timeout_ns;      // of both sides of its connection; 0: it has none
    uint64_t dropped_ns;      // when the network dropped a frame of it last; 0: never
    struct vb_caller *caller; // NULL: it has left, or there never was one
    struct vb_chainend end;
    bool stopped;        // its host has ended it
    bool hostile;        // its caller has sent nonsense
    uint64_t goes_at_ns; // when its host takes it down; UINT64_MAX: it stays
    uint64_t sent[VB_CHAINS_SENT];
    uint32_t sent_psn[VB_CHAINS_SENT];
};

// A program that nobody calls, and what must come out of it.
struct vb_solo {
    struct vb_chainprog *prog;
    bool loops;
    uint64_t var[VB_SIMFLOW_VARS];
    uint32_t id[VB_SIMFLOW_VARS];
    uint8_t memory[VB_SIMFLOW_MEMORY];
};

// ---- callers

enum vb_call_kind {
    VB_CALL_HASH_ONE,
    VB_CALL_HASH_SEQUENTIAL,
    VB_CALL_HASH_PARALLEL,
    VB_CALL_LIST,
    VB_CALL_LIST_STOPS,
    VB_CALL_LIST_LOOP,
    VB_CALL_KINDS,
};

// What the reference says to a request; value UINT32_MAX: a miss.
struct vb_answer {
    uint32_t value;
};

struct vb_caller {
    struct vb_chainworld *world;
    uint32_t index, owner;
    struct vb_chainnic *nic, *server;
    enum vb_call_kind kind;
    uint32_t slots, value_max, walk, depth, mtu;
    struct vb_chainprog *prog; // NULL: not connected
    bool made;                 // its queue pair exists, connected or not
    struct vb_driver_qp qp;
    struct vb_driver_cq cq;
    uint32_t cqn, pd, key[2];
    struct vb_piece *memory, *requests;
    uint8_t *shadow; // what its memory should hold
    uint64_t asked, answered, sent;
    uint32_t receives; // posted and not used
    struct vb_answer want[VB_CHAINS_ASKED];
    bool hostile;         // has sent nonsense,
    uint64_t nonsense_at; // as this request: later answers are not judged
    struct vb_chainend end;
    uint64_t starved_until_ns, act_at_ns, leave_at_ns;
    uint32_t done, quota; // requests answered, over all connections
    uint32_t connections;
};

struct vb_chainworld {
    struct vb_scenario scen;
    struct vb_prng prng;
    uint64_t now_ns, heal_ns;
    // Since the network healed: each NIC has sent what it kept, or then what it answered, and both
    // have been read; UINT64_MAX: not yet. A frame is under way for so long at most.
    uint64_t sent_ns, clear_ns, longest_ns;
    bool answered; // what was kept has been read
    bool healed, settling;
    uint64_t events, works;
    struct vb_digest digest;
    struct vb_simnet *net;
    struct vb_chainnic nic[VB_CHAINS_NICS];
    uint32_t nics, servers, callers, solos, owners;
    struct vb_caller caller[VB_CHAINS_CALLERS];
    struct vb_chainprog *prog[VB_CHAINS_PROGRAMS];
    uint32_t progs;
    struct vb_solo solo[VB_CHAINS_SOLOS];
    uint64_t next_cut_ns, next_solo_ns;
    uint32_t trouble_ppm; // per action of a caller
    uint32_t troubles;    // that may still come
    uint32_t done, quota; // of all callers
    struct vb_coverage *cover;
    FILE *trace;
    bool violated;
    char violation[VB_CHAINS_TEXT];
};

// ---- chain_world.c

// Whether the seed has such a world beside the other.
bool vb_chainworld_is_drawn(uint64_t seed);
// NULL: no memory.
struct vb_chainworld *vb_chainworld_create(const struct vb_scenario *scen,
                                           struct vb_coverage *cover, FILE *trace);
void vb_chainworld_destroy(struct vb_chainworld *w);
// Runs until all requests are answered and judged, or something was violated.
void vb_chainworld_run(struct vb_chainworld *w);
// The same in pieces: whatever comes next, until there is no more; then the end.
bool vb_chainworld_advance(struct vb_chainworld *w);
void vb_chainworld_finish(struct vb_chainworld *w);
__attribute__((format(printf, 2, 3))) void vb_chainworld_violate(struct vb_chainworld *w,
                                                                 const char *format, ...);
__attribute__((format(printf, 2, 3))) void vb_chainworld_note(struct vb_chainworld *w,
                                                              const char *format, ...);

static inline uint32_t vb_chainworld_draw(struct vb_chainworld *w, uint32_t below)
{
    return (uint32_t)vb_prng_below(&w->prng, below);
}

// ---- chain_piece.c

// NULL: no memory. Contents are drawn.
struct vb_piece *vb_piece_create(struct vb_chainnic *nic, uint32_t len, uint32_t owner);
// Frees all of an owner's, after a look at their guards.
void vb_piece_destroy(struct vb_chainnic *nic, uint32_t owner);
void vb_piece_destroy_all(struct vb_chainnic *nic);
// Whether the owner's queue pairs may touch it.
bool vb_piece_allows(const struct vb_chainnic *nic, uint32_t owner, const struct vb_touch *touch);

// ---- chain_nic.c

int vb_chainnic_create(struct vb_chainnic *nic, struct vb_chainworld *w, uint32_t index);
void vb_chainnic_destroy(struct vb_chainnic *nic);
void vb_chainnic_wake(struct vb_chainnic *nic);
void vb_chainnic_run(struct vb_chainnic *nic);
// Completions that are held back can be polled.
void vb_chainnic_publish(struct vb_chainnic *nic);
// Nothing to do, nothing to send.
bool vb_chainnic_rests(struct vb_chainnic *nic);
bool vb_chainnic_is_seen(const struct vb_chainnic *nic); // each step of it is judged
bool vb_chainnic_has_to_send(const struct vb_chainnic *nic);
bool vb_chainnic_has_frames(const struct vb_chainnic *nic); // that were received and not read

// ---- chain_fate.c: why connections may end by retries

// Sees what becomes of the world's frames.
void vb_chainfate_note(void *world, enum vb_simnet_fate fate, const struct vb_ip *src,
                       const struct vb_ip *dst, const uint8_t *frame, uint32_t len);
void vb_chainfate_shape(struct vb_chainworld *w, const struct vb_simnet_link *link);
// Finds out when nothing from before the healing is left.
void vb_chainfate_advance(struct vb_chainworld *w);
// Of a NIC whose steps nobody sees, after its turn.
void vb_chainfate_look(struct vb_chainnic *nic);
void vb_chainend_step(struct vb_chainend *end, const struct vb_step *step, uint64_t now_ns);
// Judges an end by retries.
void vb_chainprog_ends(struct vb_chainprog *prog);
void vb_caller_ends(struct vb_caller *caller);

// ---- chain_judge.c: what each step may do

void vb_chainnic_judge(struct vb_chainnic *nic, const struct vb_step *step);

// ---- chain_load.c

// Makes the program's objects, connects its loops and opens it; its caller's queue is left in
// RESET. Takes the image. NULL: no memory, or the world is violated.
struct vb_chainprog *vb_chainprog_load(struct vb_chainnic *nic, const struct vb_chainload *opts,
                                       struct vb_image *image);
void vb_chainprog_unload(struct vb_chainprog *prog);
int vb_chainprog_connect(struct vb_chainprog *prog, const struct vb_qpc_mods *mods);
void vb_chainprog_open(struct vb_chainprog *prog);
// Its host has posted nothing since.
bool vb_chainprog_is_alone(const struct vb_chainprog *prog);
void vb_chainprog_stop(struct vb_chainprog *prog);
bool vb_chainprog_failed(const struct vb_chainprog *prog);
struct vb_chainprog *vb_chainprog_find(struct vb_chainnic *nic, uint32_t qpn, uint32_t *queue);
// The queue of the caller; -1: it has none.
int vb_chainprog_peer(const struct vb_chainprog *prog);
// A start of all counters, a few rounds before one of the places where they wrap, or 0.
uint64_t vb_chainprog_draw_start(struct vb_chainworld *w, const struct vb_image *image);
uint32_t vb_chainprog_draw_depth(struct vb_chainworld *w);

// ---- chain_store.c

int vb_chainstore_create(struct vb_chainnic *nic);
void vb_chainstore_check(struct vb_chainnic *nic);
void vb_chainstore_destroy(struct vb_chainnic *nic);
// A request, and what the reference says to it. Returns its length.
uint32_t vb_chainstore_ask(struct vb_chainnic *nic, struct vb_prng *prng,
                           const struct vb_caller *caller, uint8_t *request,
                           struct vb_answer *answer);
const uint8_t *vb_chainstore_value(const struct vb_chainnic *nic, uint32_t value, uint32_t *len);

// ---- chain_caller.c

void vb_caller_prepare(struct vb_caller *caller, struct vb_chainworld *w, uint32_t index);
void vb_caller_act(struct vb_caller *caller);
// The last look: no more answers than requests.
void vb_caller_settle(struct vb_caller *caller);
void vb_caller_leave(struct vb_caller *caller);
void vb_caller_destroy(struct vb_caller *caller);

// ---- chain_solo.c

int vb_solo_load(struct vb_chainworld *w);
// Compares all of them with the reference.
void vb_solo_check(struct vb_chainworld *w);

#endif
