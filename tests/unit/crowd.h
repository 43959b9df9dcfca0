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
};

// What a process tells the test.
struct crowd_mate {
    pid_t pid;
    atomic_uint stage; // 1: its number is there, 2: connected, 3: failed
    atomic_uint qpn;
    atomic_uint_fast64_t pings;     // answered
    atomic_uint_fast64_t forwarded; // frames passed on to others
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
// Every pair but those of `except` (bits of pairs) has so many more pings, and none fails: its
// connection ends when a message was sent eight times without an answer, 268 ms apart, so nobody is
// cut off for longer than two seconds.
void crowd_expect_well(struct crowd *c, unsigned pings, uint32_t except);
void crowd_kill(struct crowd *c, unsigned mate); // and waits for its end
void crowd_stop(struct crowd *c, unsigned mate); // and waits until all its threads have stopped
// Lets pass the time in which others notice that somebody is stopped, and do something about it.
void crowd_let_notice(void);
void crowd_end(struct crowd *c);

#endif
