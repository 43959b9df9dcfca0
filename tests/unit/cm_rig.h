// SPDX-License-Identifier: Apache-2.0
// Two communication managers with the test as the network.
#ifndef VB_TESTS_CM_RIG_H
#define VB_TESTS_CM_RIG_H

#include "cm/cm.h"

#include <stdint.h>

enum {
    A, // asks
    B, // answers
    CM_SERVICE = 0x01061c1b,
    CM_QPN_A = 0x11,
    CM_QPN_B = 0x22,
};

#define CM_TIMEOUT_NS  ((4096ull << 10) + (2 * (4096ull << 4)))
#define CM_TIMEWAIT_NS (2 * (4096ull << 4))

struct cm_rig {
    struct vb_cm *cm[2];
    uint64_t now_ns;
    uint8_t last[2][VB_MAD_BYTES]; // what each sent last
};

extern const struct vb_ip cm_ip[2];
extern const struct vb_cm_answer cm_answer;

// Before and after each test, whose state the rig is.
int cm_open(void **state);
int cm_close(void **state);

// Takes one message of `who`, which must be of that kind.
void cm_take(struct cm_rig *r, int who, enum vb_cm_kind kind, struct vb_cm_message *m);
void cm_none(struct cm_rig *r, int who);
// What `from` sent last, once or again.
void cm_deliver(struct cm_rig *r, int from);
void cm_pass(struct cm_rig *r, int from, enum vb_cm_kind kind); // takes and delivers
// As if the other one had sent it.
void cm_forge(struct cm_rig *r, int to, const struct vb_cm_message *m);

// Takes the next event of `who`, which must be of that kind, and returns its id; e may be NULL.
uint32_t cm_event(struct cm_rig *r, int who, enum vb_cm_event_kind kind, struct vb_cm_event *e);
void cm_no_event(struct cm_rig *r, int who);
void cm_wait(struct cm_rig *r, uint64_t ns);

struct vb_cm_request cm_request(void);
uint32_t cm_connect(struct cm_rig *r);
// Both ids of a connection that all messages have been passed for, but that B has not been told of.
void cm_agree(struct cm_rig *r, uint32_t id[2]);
// Of one that stands.
void cm_establish(struct cm_rig *r, uint32_t id[2]);

#endif
