// SPDX-License-Identifier: Apache-2.0
// Servers and clients, each a process with a communication manager of its own, all on one address:
// clients connect to servers at random and check what comes back, while a test kills and stops
// some.
#ifndef VB_TESTS_TOWN_H
#define VB_TESTS_TOWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    TOWN_SERVERS = 8,
    TOWN_CLIENTS = 16,
};

enum town_state {
    TOWN_AWAY, // not there, or not to be counted on
    TOWN_UP,
    TOWN_DEAD, // its port is nobody's: requests must be refused
};

struct town_server {
    pid_t pid;
    atomic_uint state;
    atomic_uint epoch; // another one with each state: who is asked and changes owes no answer
    atomic_uint life;
    atomic_uint ready, served;
    char why[200]; // not empty: it has failed
};

struct town_client {
    pid_t pid;
    atomic_uint ready, made; // connections
    char why[200];
};

struct town {
    char address[64];
    uint16_t port; // of the first server
    struct town_server server[TOWN_SERVERS];
    struct town_client client[TOWN_CLIENTS];
    atomic_uint refused; // connections, of all clients
};

// Starts all; servers with odd numbers have NICs of two units.
struct town *town_start(const char *address);
void town_end(struct town *t);
void town_kill_server(struct town *t, unsigned i);  // whose port is then nobody's
void town_start_server(struct town *t, unsigned i); // anew, on the same port
void town_stop_server(struct town *t, unsigned i);
void town_continue_server(struct town *t, unsigned i);
// Every client but those of `except` makes so many connections more, and nobody fails: a connection
// whose messages are lost fails after a few retries.
void town_expect_well(struct town *t, unsigned connections, uint32_t except);
// Nobody fails until a count has grown by so much.
void town_expect_more(struct town *t, const atomic_uint *count, unsigned more);

#endif
