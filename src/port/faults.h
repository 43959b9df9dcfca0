// SPDX-License-Identifier: Apache-2.0
// Faults on purpose: rules in a small language (docs/faults.md) that decide what happens to frames,
// completions, queue pairs and registrations. No clock, no I/O: the same seed and the same events
// give the same faults.
#ifndef VB_PORT_FAULTS_H
#define VB_PORT_FAULTS_H

#include "verbena/wqe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_FAULTS_RULES = 64,       // in one set at most
    VB_FAULTS_COPIES = 7,       // of one frame beside itself, from all rules together
    VB_FAULTS_TEXT = 64 * 1024, // room for the canonical text of any set
};

struct vb_faults;

enum vb_fault_dir {
    VB_FAULT_TX,
    VB_FAULT_RX
};

// What is to happen to a frame. A dropped one meets nothing else.
struct vb_fault_fate {
    bool drop;
    bool corrupt;
    bool mark;            // congestion was met: only frames that come in
    uint32_t copies;      // beside the frame itself
    uint32_t hold_frames; // 0: it keeps its place; else it waits until so many have overtaken it
    uint64_t hold_ns;     // … or for so long
    uint64_t delay_ns;
};

// What a work request does.
enum vb_fault_wr {
    VB_FAULT_WR_SEND,
    VB_FAULT_WR_WRITE,
    VB_FAULT_WR_READ,
    VB_FAULT_WR_ATOMIC,
    VB_FAULT_WR_RECV,
    VB_FAULT_WR_OTHER, // matches only rules that name no kind
};

struct vb_fault_counts {
    uint64_t matched; // events that met the rule's conditions
    uint64_t fired;   // faults it caused
};

// -EINVAL: error_text (VB_ERROR_TEXT bytes, or NULL) says in one line what was wrong and what would
// be right; -ENOMEM likewise.
int vb_faults_parse(const char *text, struct vb_faults **out, char *error_text);
void vb_faults_free(struct vb_faults *faults);
// Draws from streams that belong to one unit of a NIC; those of unit 0 are the ones of the seed.
void vb_faults_seed_unit(struct vb_faults *faults, uint32_t unit);

// Writes the canonical text, which parses to the same rules; returns its length as snprintf() does.
size_t vb_faults_print(const struct vb_faults *faults, char *text, size_t size);

// Whether any rule could do something to a frame of this direction.
bool vb_faults_touch(const struct vb_faults *faults, enum vb_fault_dir dir);

// Judges one frame, once. `head` holds its headers: the first `len` bytes, of which any number will
// do; a rule that needs more than there are does not match.
void vb_faults_judge(struct vb_faults *faults, enum vb_fault_dir dir, const uint8_t *head,
                     uint32_t len, struct vb_fault_fate *fate);

// Judges one work request of the local queue pair that is about to complete well: how it must fail
// instead, or VB_SYN_OK.
enum vb_cqe_syndrome vb_faults_completion(struct vb_faults *faults, uint32_t qpn,
                                          enum vb_fault_wr wr);
// Judges one work request about to start: whether the local queue pair must fail now.
bool vb_faults_qp(struct vb_faults *faults, uint32_t qpn);
// Judges one registration of memory: 0, or the negative errno it must fail with.
int vb_faults_register(struct vb_faults *faults);

uint32_t vb_faults_rules(const struct vb_faults *faults);
// Counts of rule i, and its canonical text as vb_faults_print() would write it.
struct vb_fault_counts vb_faults_counts(const struct vb_faults *faults, uint32_t i);
size_t vb_faults_print_rule(const struct vb_faults *faults, uint32_t i, char *text, size_t size);

#endif
