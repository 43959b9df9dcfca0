// SPDX-License-Identifier: Apache-2.0
// A world of communication managers: ends that connect, refuse, disconnect, look services up and
// die, over a network that loses, doubles, delays and reorders, with a forger on it. Each attempt
// to connect is a pact, of which the world knows what either side was told.
#ifndef VB_SIM_CM_WORLD_H
#define VB_SIM_CM_WORLD_H

#include "base/prng.h"
#include "cm/cm.h"
#include "sim/cm_cover.h"
#include "sim/digest.h"

#include <stdio.h>

enum {
    VB_CMW_ENDS = 4,
    VB_CMW_PACTS = 400,
    VB_CMW_LOOKUPS = 100,
    VB_CMW_FLIGHT = 2048, // messages on the way
    VB_CMW_TEXT = 400,
};

// Services: one that everybody serves, one that nobody does, one that comes and goes.
enum vb_cmw_service {
    VB_CMW_SERVED,
    VB_CMW_UNKNOWN,
    VB_CMW_SOMETIMES,
    VB_CMW_SERVICES
};

enum vb_cmw_stage {
    VB_CMW_NONE,
    VB_CMW_ASKED,    // REQ sent, or told of
    VB_CMW_ANSWERED, // REP told of, or sent
    VB_CMW_STANDS,
    VB_CMW_LEAVING, // its program has disconnected
    VB_CMW_ENDED,   // told so
    VB_CMW_GONE,    // the id means nothing any more
};

struct vb_cmw_side {
    uint32_t end, life; // whose, and in which life of it
    uint32_t id, qpn, psn;
    enum vb_cmw_stage stage;
    bool stood, rejected, left, abandoned, ended_by_time;
    uint64_t since_ns; // of the stage
};

enum {
    VB_CMW_ACTIVE,
    VB_CMW_PASSIVE
};

struct vb_cmw_pact {
    struct vb_cmw_side side[2];
    uint32_t peer;      // the end that was asked
    uint32_t peer_life; // of that; UINT32_MAX: it was dead
    enum vb_cmw_service service;
    uint8_t transport;
    bool reused;  // with a queue pair that an earlier one has
    bool delayed; // somebody said MRA
    bool heard;
    bool forged;    // by nobody: it cannot stand
    bool confirmed; // by the active side, whose peer has this id:
    uint32_t confirmed_id;
    bool calm; // begun in a network without faults: nothing may fail
};

struct vb_cmw_lookup {
    uint32_t end, life, id, peer;
    bool over, told, calm;
};

struct vb_cmw_end {
    struct vb_cm *cm; // NULL: dead
    struct vb_ip ip;
    uint32_t index, life;
    uint32_t manager; // its number among those that share an address
    uint64_t act_at_ns, born_at_ns;
    uint32_t next_qpn;
    bool listens_sometimes;
    uint64_t cut_until_ns;
};

struct vb_cmw_flight {
    uint64_t at_ns, order;
    uint32_t from, to; // ends; from VB_CMW_ENDS: a stranger
    uint8_t mad[VB_MAD_BYTES];
};

struct vb_cmworld {
    uint64_t seed;
    struct vb_prng prng;
    uint64_t now_ns, heal_ns;
    bool healed, quiet;   // no faults; and no new work
    enum vb_cm_kind lose; // the one message that a healed network still loses; 0: none
    bool lost;            // it did
    uint32_t ends;
    bool shared; // some of them have one address, and each a number of its own
    struct vb_cmw_end end[VB_CMW_ENDS];
    struct vb_cm_opts opts;
    uint32_t backlog;
    uint64_t answer_ns, life_ns, mra_ns;
    uint8_t mra;
    uint32_t loss_ppm, double_ppm, late_ppm, forge_ppm, die_ppm, cut_ppm, reuse_ppm, full_ppm;
    struct vb_cmw_flight flight[VB_CMW_FLIGHT];
    uint32_t flights;
    uint64_t sent;
    struct vb_cmw_pact pact[VB_CMW_PACTS];
    uint32_t pacts, quota;
    struct vb_cmw_lookup lookup[VB_CMW_LOOKUPS];
    uint32_t lookups;
    uint64_t events;
    struct vb_digest digest;
    struct vb_cmcover *cover;
    FILE *trace;
    bool violated;
    char violation[VB_CMW_TEXT];
};

// ---- cm_world.c

// NULL: no memory.
struct vb_cmworld *vb_cmworld_create(uint64_t seed, struct vb_cmcover *cover, FILE *trace);
void vb_cmworld_destroy(struct vb_cmworld *w);
void vb_cmworld_run(struct vb_cmworld *w);
__attribute__((format(printf, 2, 3))) void vb_cmworld_violate(struct vb_cmworld *w,
                                                              const char *format, ...);
__attribute__((format(printf, 2, 3))) void vb_cmworld_note(struct vb_cmworld *w, const char *format,
                                                           ...);

static inline uint32_t vb_cmworld_draw(struct vb_cmworld *w, uint32_t below)
{
    return (uint32_t)vb_prng_below(&w->prng, below);
}

static inline bool vb_cmworld_chance(struct vb_cmworld *w, uint32_t ppm)
{
    return vb_prng_chance(&w->prng, ppm);
}

// ---- cm_net.c

// Puts what the end has to say on the network.
void vb_cmnet_collect(struct vb_cmworld *w, struct vb_cmw_end *e);
void vb_cmnet_put(struct vb_cmworld *w, uint32_t from, uint32_t to,
                  const uint8_t mad[VB_MAD_BYTES]);
uint64_t vb_cmnet_next(const struct vb_cmworld *w);
void vb_cmnet_deliver(struct vb_cmworld *w); // the one that is due first
void vb_cmnet_forge(struct vb_cmworld *w);

// ---- cm_fan.c

// Who gets a message that came to the address of `to`: bits of ends.
uint32_t vb_cmfan_pick(struct vb_cmworld *w, uint32_t to, const uint8_t mad[VB_MAD_BYTES]);
// It was delivered: whether all heard it who had to.
void vb_cmfan_check(struct vb_cmworld *w, uint32_t to, const struct vb_ip *from,
                    const uint8_t mad[VB_MAD_BYTES]);

// ---- cm_host.c

uint64_t vb_cmhost_service(uint32_t end, enum vb_cmw_service service);
int vb_cmhost_birth(struct vb_cmworld *w, struct vb_cmw_end *e); // -ENOMEM
void vb_cmhost_act(struct vb_cmworld *w, struct vb_cmw_end *e);
// Begins a pact or a lookup.
void vb_cmhost_connect(struct vb_cmworld *w, struct vb_cmw_end *e, uint32_t peer,
                       enum vb_cmw_service service);
void vb_cmhost_look_up(struct vb_cmworld *w, struct vb_cmw_end *e, uint32_t peer,
                       enum vb_cmw_service service);
void vb_cmhost_disconnect(struct vb_cmworld *w, struct vb_cmw_pact *p, int side);

// ---- cm_judge.c

// Private data of a pact and a message; the first four bytes say which pact.
void vb_cmjudge_pattern(uint32_t pact, enum vb_cm_kind kind, uint8_t *data);
// Whether the event may be told, and what the world knows after it.
void vb_cmjudge_event(struct vb_cmworld *w, struct vb_cmw_end *e, const struct vb_cm_event *event);
// Nothing is on its way, nobody waits for time or for a program.
bool vb_cmjudge_is_still(const struct vb_cmworld *w);
// All is quiet: both sides agree, or one knows that it failed.
void vb_cmjudge_quiet(struct vb_cmworld *w);
// Everything has been disconnected: nothing is left.
void vb_cmjudge_empty(struct vb_cmworld *w);
void vb_cmjudge_states(struct vb_cmworld *w, struct vb_cmw_end *e);
void vb_cmjudge_stage(struct vb_cmworld *w, struct vb_cmw_pact *p, int side,
                      enum vb_cmw_stage stage);

#endif
