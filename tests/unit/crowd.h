// SPDX-License-Identifier: Apache-2.0
// Processes that share one address, in pairs that send each other pings, so that a test can stop
// and kill some and see how the others fare.
#ifndef VB_TESTS_CROWD_H
#define VB_TESTS_CROWD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CROWD_MAX = 16,
    CROWD_ADDRESSES = 4, // of each process
    CROWD_SOON_MS = 60000,
};

// What a process tells the test.
struct crowd_mate {
    pid_t pid;
    atomic_uint stage; // 1: its number is there, 2: connected, 3: failed
    atomic_uint qpn;
    atomic_uint_fast64_t pings;      // answered
    atomic_uint_fast64_t longest_ns; // between two answers, since crowd_forget()
    atomic_uint_fast64_t forwarded;  // frames passed on to others
    char why[160];
};

struct crowd {
    unsigned count;
    char address[CROWD_ADDRESSES][64];
    unsigned addresses; // pairs use them in turn
    bool sleepy;        // the odd ones wait for events instead of polling
    uint32_t units;     // of each NIC
    uint32_t hulls;     // bits of those who have a hull of their own there, and are attached to it
    const char *port;   // of the hulls; NULL: udp
    struct crowd_mate mate[CROWD_MAX];
};

// Starts `count` processes (even) one after the other and waits until all pairs exchange pings.
struct crowd *crowd_start(const char *address, unsigned count, bool sleepy, uint32_t units);
// The same, each process on all of the addresses.
struct crowd *crowd_start_on(const char *const *addresses, unsigned addresses_count, unsigned count,
                             bool sleepy, uint32_t units);
// The same on one address, where some are hulls.
struct crowd *crowd_start_hulls(const char *address, unsigned count, uint32_t hulls,
                                const char *port);
// Two more, connected with each other.
void crowd_add_pair(struct crowd *c);
// Longest waits are counted from now on.
void crowd_forget(struct crowd *c);
// Lets pass so much time; every pair but those of `except` (bits of pairs) then has had pings all
// the time, with no wait longer than a second (and what a busy machine adds to that).
void crowd_expect_well(struct crowd *c, unsigned ms, uint32_t except);
void crowd_kill(struct crowd *c, unsigned mate); // and waits for its end
void crowd_end(struct crowd *c);

#endif
