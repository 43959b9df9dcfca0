// SPDX-License-Identifier: Apache-2.0
// What a seed draws: the size of the world, the fault mix, the schedule's roughness and the kinds
// of work. Everything else follows from these and from the seed's further draws.
#ifndef VB_SIM_SCENARIO_H
#define VB_SIM_SCENARIO_H

#include "base/prng.h"
#include "nic/dcqcn.h"
#include "port/simnet.h"
#include "verbena/nic.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_SIM_NICS_MAX = 8,
    VB_SIM_CONNS_MAX = 12,
    VB_SIM_UNRELIABLE_MAX = 4, // more connections, of unreliable services
    VB_SIM_EPS_MAX = 2 * (VB_SIM_CONNS_MAX + VB_SIM_UNRELIABLE_MAX),
    VB_SIM_PDS = 2,
    VB_SIM_CQS = 4,
    VB_SIM_UNITS_MAX = 4,
    VB_SIM_SHARES_MAX = 3,
    VB_SIM_OPS_DEFAULT = 5000,
};

// Who takes a NIC's steps.
enum vb_sim_drive {
    VB_DRIVE_STEPS,    // the simulator, one by one; it may stop after any
    VB_DRIVE_TURNS,    // the turns of a lane (host/turn.h), whose polls a listener hears
    VB_DRIVE_OBSERVED, // the same turns; an observer makes their polls go step by step
    VB_DRIVE_UNHEARD,  // the same turns; nobody hears of steps but by a twin, which is observed
};

// The kinds of work of one connection, in parts of their sum.
struct vb_conn_mix {
    uint32_t parts[VB_WR_OPCODES];
    uint32_t size_big; // how often, per million, a message has 16 KB and more
    uint32_t size_mtu; // … is around multiples of the MTU
    uint32_t inline_ppm, unsignaled_ppm, fence_ppm, lists_ppm;
    uint32_t batch_max; // requests per post
};

struct vb_scenario {
    uint64_t seed;
    uint32_t nics, conns, ops;
    uint32_t unreliable; // so many of the connections, the last ones, are of UC and UD
    bool ipv6;
    bool big;     // long messages are possible
    uint32_t cqs; // per NIC

    struct vb_simnet_link link; // worst case; each link draws its share
    uint32_t random_ids_ppm, merge_ppm, stall_ppm;
    uint32_t rx_batch_max;
    uint64_t cut_every_ns; // mean time between partitions, 0: none
    uint64_t cut_max_ns;
    uint64_t forge_every_ns;
    uint32_t storm_ppm; // of these: many old requests come once more instead

    uint32_t burst_max; // steps per turn of a NIC
    uint64_t step_ns;   // longest pause between turns
    uint32_t sleep_ppm; // how often a turn ends with a long pause
    uint64_t sleep_ns;
    uint32_t hold_ppm; // how often written frames stay in the transmit queue for a while
    uint64_t hold_ns;

    uint64_t think_ns; // longest pause of a host between actions
    uint32_t bad_ppm;  // work requests that are wrong on purpose
    uint32_t bad_recv_ppm;
    uint32_t starve_ppm; // per action: an endpoint gets no receives for a while
    uint32_t dereg_ppm;  // per action: a region in use is deregistered
    uint32_t fail_ppm;   // per action: a host fails or resets its queue pair
    uint32_t drain_ppm;  // per look: a host drains its send queue for a while

    // What only a part of the worlds has.
    uint32_t units;        // of each NIC
    bool slow_unit;        // the first of them seldom runs: mail piles up
    uint32_t stray_ppm;    // frames that come to another unit than their queue pair's
    uint32_t shared_ppm;   // connections whose receives come from shared queues; 0: there are none
    uint32_t xrc_ppm;      // connections of XRC; 0: there are none
    uint32_t shared_room;  // bytes of a shared receive
    uint32_t resize_ppm;   // per poll: the completion queue gets another ring
    uint32_t moderate_ppm; // per poll: its events are moderated otherwise
    uint32_t remake_ppm;   // per action: a shared receive queue goes, and another comes
    bool holds;            // completions wait for the answers that go with them
    bool tight;            // completion queues can overrun
    uint64_t share_Bps;    // the least rate of a share that has one; 0: none has
    bool dcqcn;            // the network marks frames, and NICs slow down by it
    struct vb_dcqcn_params cc;
    enum vb_sim_drive drive;
    bool once;       // turns are those of a hull's lanes
    uint32_t shares; // that queue pairs of a NIC are of, besides share 0
};

// Draws everything from the seed. `nics` and `ops` of 0 are drawn and defaulted.
void vb_scenario_draw(struct vb_scenario *s, uint64_t seed, uint32_t nics, uint32_t ops);

// Removes the NICs' own faults once the network has healed: frames are no longer handed over
// between units, and inboxes are read in time.
void vb_scenario_heal(struct vb_scenario *s);
// The share of the fault mix that one link gets.
void vb_scenario_link(const struct vb_scenario *s, struct vb_prng *prng,
                      struct vb_simnet_link *link);
void vb_scenario_mix(const struct vb_scenario *s, struct vb_prng *prng, struct vb_conn_mix *mix);

#endif
