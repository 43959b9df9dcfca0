// SPDX-License-Identifier: Apache-2.0
// What `verbena doctor` looks at. Whatever can be tried is tried: what a container or a system
// filter forbids shows by doing it.
#ifndef VB_CLI_DOCTOR_H
#define VB_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum vb_verdict {
    VB_FINE,
    VB_NOTE,    // works, but could be better, or is worth knowing
    VB_PROBLEM, // keeps Verbena from working
};

struct vb_doctor {
    FILE *out;
    bool json, pretty;
    uint32_t findings, problems;
};

// Prints what was found and, unless it is NULL, what to do.
__attribute__((format(printf, 5, 6))) void vb_doctor_say(struct vb_doctor *d,
                                                         enum vb_verdict verdict, const char *topic,
                                                         const char *advice, const char *found,
                                                         ...);

// ---- doctor_system.c: limits, cores, memory, threads, filters
void vb_doctor_system(struct vb_doctor *d);
// ---- doctor_network.c: sockets, addresses, who has port 4791
void vb_doctor_network(struct vb_doctor *d);
// ---- doctor_library.c: which libibverbs programs get, and whether its device opens
void vb_doctor_library(struct vb_doctor *d);
// ---- doctor_program.c: whether `verbena run` can serve a program
void vb_doctor_program(struct vb_doctor *d, const char *program);

// ---- doctor_child.c
// Runs a function in a child, with at most `seconds`; what it and its libraries print comes back as
// the first line of text. Returns its exit status, or -1 if it did not end by itself.
int vb_doctor_try(int (*try)(void *arg), void *arg, unsigned seconds, char *text, size_t room);

#endif
