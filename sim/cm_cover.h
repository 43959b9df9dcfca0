// SPDX-License-Identifier: Apache-2.0
// What the worlds of communication managers have seen happen, as a table of counts.
#ifndef VB_SIM_CM_COVER_H
#define VB_SIM_CM_COVER_H

#include "cm/cm.h"

#include <stdint.h>
#include <stdio.h>

// X(identifier, group, what); messages, states and reasons have rows by their numbers.
#define VB_CMCOVER_ROWS(X)                                                        \
    X(LOST, "network", "message lost")                                            \
    X(DOUBLED, "network", "message doubled")                                      \
    X(OVERTAKEN, "network", "message overtaken by a later one")                   \
    X(CUT, "network", "message to or from an end that is cut off or dead")        \
    X(FORGED, "network", "message of a forger")                                   \
    X(TO_ONE, "address", "message to the one of several managers that it is for") \
    X(TO_ANY, "address", "message for nobody there, to one who says so")          \
    X(TO_ALL, "address", "message without an id, to all managers there")          \
    X(STANDS_BOTH, "outcome", "connection stands on both sides")                  \
    X(STANDS_ONE, "outcome", "one side stands, the other knows that it failed")   \
    X(UNREACHABLE_ACTIVE, "outcome", "active side heard nothing")                 \
    X(UNREACHABLE_PASSIVE, "outcome", "passive side heard nothing")               \
    X(DISCONNECT_ASKED, "outcome", "disconnected by us, granted")                 \
    X(DISCONNECT_SILENT, "outcome", "disconnected by us, no answer")              \
    X(DISCONNECT_PEER, "outcome", "disconnected by the peer")                     \
    X(DISCONNECT_BOTH, "outcome", "disconnected by both at once")                 \
    X(DISCONNECT_REJ, "outcome", "connection ended by a REJ")                     \
    X(DISCONNECT_EARLY, "outcome", "DREQ before the RTU")                         \
    X(REJECTED_REQ, "outcome", "REQ rejected by the program")                     \
    X(REJECTED_REP, "outcome", "REP rejected by the program")                     \
    X(ABANDONED, "outcome", "abandoned by the program")                           \
    X(HEARD, "outcome", "a packet stood for the RTU")                             \
    X(ASKED_AGAIN, "outcome", "the same REQ asked for twice, memory was gone")    \
    X(DIED, "life", "an end died")                                                \
    X(REBORN_ASKED, "life", "message for a former life")                          \
    X(QPN_REUSED, "life", "queue pair used again too early")                      \
    X(FULL, "life", "no room for a connection of our own")                        \
    X(DUPLICATE_REQ, "duplicate", "REQ again")                                    \
    X(DUPLICATE_REP, "duplicate", "REP again")                                    \
    X(DUPLICATE_RTU, "duplicate", "RTU again")                                    \
    X(DUPLICATE_DREQ, "duplicate", "DREQ again")                                  \
    X(RETRIED, "time", "message repeated for want of an answer")                  \
    X(PATIENT, "time", "MRA waited for")                                          \
    X(SIDR_FOUND, "lookup", "service found")                                      \
    X(SIDR_REFUSED, "lookup", "service refused")                                  \
    X(SIDR_UNREACHABLE, "lookup", "no answer")

enum vb_cmcover_row {
#define VB_CMCOVER_ENUM(id, group, what) VB_CMCOVER_##id,
    VB_CMCOVER_ROWS(VB_CMCOVER_ENUM)
#undef VB_CMCOVER_ENUM
    VB_CMCOVER_COUNT
};

enum {
    VB_CMCOVER_REASONS = 32
};

struct vb_cmcover {
    uint64_t row[VB_CMCOVER_COUNT];
    uint64_t message[VB_CM_KINDS]; // delivered
    uint64_t state[VB_CM_STATES];  // of a connection after some call
    uint64_t event[VB_CM_EVENTS];
    uint64_t reason[VB_CMCOVER_REASONS]; // of REJs delivered
};

void vb_cmcover_merge(struct vb_cmcover *into, const struct vb_cmcover *from);
uint32_t vb_cmcover_zero_rows(const struct vb_cmcover *c);
// Prints the table; returns how many rows are zero.
uint32_t vb_cmcover_print(const struct vb_cmcover *c, FILE *out);

#endif
