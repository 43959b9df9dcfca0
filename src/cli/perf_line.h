// SPDX-License-Identifier: Apache-2.0
// The yardstick of shared memory: what two processes do on the same two cores with nothing between
// them. A cache line goes round by spinning, one line each way; and a plain copy moves long
// messages through a ring as large as the shm port's.
#ifndef VB_CLI_PERF_LINE_H
#define VB_CLI_PERF_LINE_H

#include "base/hist.h"
#include "cli/perf.h"

struct vb_line_memory;

struct vb_line {
    struct vb_line_memory *memory; // shared; NULL: not open
    uint8_t *buffer;               // our own, of one message
    uint64_t token;                // names the memory to the other process
    bool named;                    // it can still be opened
    bool yield;                    // the other side needs this core
};

// Where NICs of this process would meet others by shm: equal numbers meet. 0: nowhere.
uint64_t vb_line_place(void);
// Whether the NIC with this address can be met there.
bool vb_line_meets(const uint8_t gid[16]);

// The client creates the memory, the server opens it by its token, then the client ends its name.
// -1: see `why`.
int vb_line_create(struct vb_line *line, uint64_t token, char *why);
int vb_line_join(struct vb_line *line, uint64_t token, char *why);
void vb_line_forget(struct vb_line *line);
void vb_line_close(struct vb_line *line);

// The server's side: both return when a message waits on `control`.
void vb_line_echo(struct vb_line *line, int control);
uint64_t vb_line_take(struct vb_line *line, int control); // messages whose bytes were wrong

// The client's side. Round trips are timed some at a time: the clock takes as long as one.
int vb_line_ping(struct vb_line *line, const struct vb_perf_budget *budget, int control,
                 struct vb_hist *hist, char *why);
int vb_line_copy(struct vb_line *line, const struct vb_perf_budget *budget, int control,
                 struct vb_perf_copied *copied, char *why);

#endif
