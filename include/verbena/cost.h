// SPDX-License-Identifier: Apache-2.0
// What a chain program would cost on a card: its entries, executed by the NIC's own core, are
// charged with the times of a ConnectX-like card (docs/cost.md). Nothing of it was measured on one.
#ifndef VERBENA_COST_H
#define VERBENA_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <verbena/chain.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    VB_COST_TEXT = 200, // of an error
    VB_COST_NAME = 112, // of an entry
};

// ---- presets: the parameters of a card

struct vb_cost_preset;

// One that comes with Verbena. NULL: error (VB_COST_TEXT bytes) says which there are.
struct vb_cost_preset *vb_cost_preset_named(const char *name, char *error);
// One of your own; the text may be anyone's. NULL: error says in which line it is wrong.
struct vb_cost_preset *vb_cost_preset_parse(const char *text, size_t len, char *error);
void vb_cost_preset_free(struct vb_cost_preset *preset);
// The names of those that come with Verbena, in order. NULL: there are no more.
const char *vb_cost_preset_name(uint32_t n);

// ---- a run

// Bytes of a region before the first step, or a message of a queue's client.
struct vb_cost_input {
    const char *name;
    uint64_t offset; // in the region
    const void *bytes;
    uint32_t len;
};

struct vb_cost_opts {
    uint64_t seed;             // who makes the next step, where several can
    uint64_t shared_bytes;     // of each shared region, if more than the program asks for
    uint64_t steps_max;        // 0: a million
    uint32_t operations;       // that the program makes, for the rate; 0: its messages, or one
    uint32_t connections;      // of the card, all in use; 0: as many as its cache holds
    uint64_t registered_bytes; // of memory, all in use; 0: as much as its cache holds
    bool managed_client;       // the client's SENDs are opened by a SEND_EN, as RedN's are
    const struct vb_cost_input *memory, *message;
    uint32_t memories, messages;
};

struct vb_cost;

// Runs the program once. All messages are sent at once: the first reply gives the latency, the
// distance of the others the rate. NULL: error says why.
struct vb_cost *vb_cost_run(const struct vb_image *image, const struct vb_cost_preset *preset,
                            const struct vb_cost_opts *opts, char *error);
void vb_cost_free(struct vb_cost *cost);

// ---- what came out; times are in picoseconds since the CPU, or the client's, began to post

// What a time is spent on. The CPU's doorbell and its look at the result are PCIe's.
struct vb_cost_parts {
    uint64_t fetch_ps, wait_ps, issue_ps, pcie_ps, network_ps;
};

struct vb_cost_summary {
    uint64_t latency_ps;         // until the CPU, or the client's, sees the result
    struct vb_cost_parts parts;  // of the latency: their sum
    uint64_t end_ps;             // of the last entry
    uint64_t operation_ps;       // between two operations of one program
    uint64_t card_ps;            // the same of a card full of such programs
    const char *bottleneck;      // of one program
    const char *card_bottleneck; // of the card
    uint32_t entries;            // executed, messages among them
    uint32_t operations;
    uint32_t replies;
    uint32_t errors; // completions that say so: the times are those of a program that failed
    bool cut;        // the run was ended by steps_max
};
void vb_cost_summary(const struct vb_cost *cost, struct vb_cost_summary *summary);

// An entry's time is the sum of its parts: at + fetch + wait + issue + pcie + network = done.
struct vb_cost_entry {
    char name[VB_COST_NAME];
    const char *queue;
    bool message;     // what a client sends, until it has completed here
    bool critical;    // on the path that the latency is made of
    uint64_t counter; // in its queue
    uint64_t at_ps;   // opened, and all before it begun
    uint64_t fetch_ps, wait_ps, issue_ps, pcie_ps, network_ps, done_ps;
};
// In the order of execution. False: there are no more.
bool vb_cost_entry(const struct vb_cost *cost, uint32_t n, struct vb_cost_entry *entry);

// For people, for programs, and as a picture with one lane for each queue; free() it. NULL: no
// memory.
char *vb_cost_text(const struct vb_cost *cost);
char *vb_cost_json(const struct vb_cost *cost);
char *vb_cost_svg(const struct vb_cost *cost);

#ifdef __cplusplus
}
#endif

#endif
