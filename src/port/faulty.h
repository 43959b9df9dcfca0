// SPDX-License-Identifier: Apache-2.0
// A port around another that makes faults on purpose, by the rules of port/faults.h. A direction
// that no rule can touch goes straight through.
//
// Frames of one queue pair keep their order, delayed or not, but for those that a rule reorders.
// What comes in corrupted is dropped and counted as a wrong ICRC, which the inner port would have
// found; what goes out corrupted really leaves with a wrong ICRC, for the receiver to find. A trace
// set on this port is the inner one's: it sees what is on the wire.
#ifndef VB_PORT_FAULTY_H
#define VB_PORT_FAULTY_H

#include "port/faults.h"
#include "port/port.h"

typedef uint64_t vb_faulty_clock(void *ctx); // nanoseconds; must never go back

// Takes both the inner port and the rules (NULL: none), which closing the port closes. The clock
// is read only while rules or held frames ask for it. NULL: no memory, and nothing was taken.
struct vb_port *vb_faulty_wrap(struct vb_port *inner, struct vb_faults *faults,
                               vb_faulty_clock *now_ns, void *ctx);

// Undoes the wrapping before the port was used: gives the inner port back.
struct vb_port *vb_faulty_unwrap(struct vb_port *port);

// Replaces the rules; frames held by the old ones leave when these said. On error (as of
// vb_faults_parse()) the old ones stay.
int vb_faulty_set(struct vb_port *port, const char *text, char *error_text);

// The same with rules that are parsed already, which it takes. Returns the old ones, to be freed.
struct vb_faults *vb_faulty_exchange(struct vb_port *port, struct vb_faults *faults);

// The rules in force, valid until the next vb_faulty_set() or close.
struct vb_faults *vb_faulty_rules(struct vb_port *port);

// Judges by more than the port's own rules: `judge` is asked for each frame of the directions in
// `dirs` (bits of enum vb_fault_dir), with the queue pair of this side (0: none that is known), and
// what it says adds up with theirs. dirs 0: no longer.
typedef void vb_faulty_judge(void *ctx, enum vb_fault_dir dir, uint32_t qpn, const uint8_t *head,
                             uint32_t len, struct vb_fault_fate *fate);
void vb_faulty_judge_by(struct vb_port *port, uint32_t dirs, vb_faulty_judge *judge, void *ctx);

// When a frame that is held wants to go on: send or receive then. 0: now; UINT64_MAX: none is held.
// An owner that sleeps on the port's descriptor must wake up for it.
uint64_t vb_faulty_deadline(const struct vb_port *port);

#endif
