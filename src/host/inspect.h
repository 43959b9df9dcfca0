// SPDX-License-Identifier: Apache-2.0
// Other processes of the same user can ask a NIC about itself: its helper thread listens at a
// socket in the runtime directory and answers questions of one word by lines of text.
//
//     verbena-inspect 1 qp            the question: a version and what is asked for
//
//     verbena-inspect 1 qp            the answer
//     nic ifname verbena0 port 1 state ACTIVE … pid 4711 comm ib_send_bw
//     qp lqpn 17 rqpn 18 type RC state RTS …
//     end 1                           so many lines came between the NIC's and this one
//
// A line is a word and pairs of key and value, with one blank between any two. Values are never
// empty; what could end a word in them is written %XX. A question that is not understood gets
// "verbena-inspect 1 error WHY", and every connection ends with its answer.
#ifndef VB_HOST_INSPECT_H
#define VB_HOST_INSPECT_H

#include "verbena/nic.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>

#define VB_INSPECT_GREETING "verbena-inspect 1 "

enum {
    VB_INSPECT_CLIENTS = 4, // at a time; others wait in the socket's queue
    VB_INSPECT_FDS = VB_INSPECT_CLIENTS + 1,
    VB_INSPECT_REQUEST = 64,      // bytes of a question
    VB_INSPECT_OBJECTS = 1 << 16, // told of in one answer
};

// Listens, unless the options or $VERBENA_INSPECT say no; a NIC that finds no place for its socket
// does without. -EINVAL: the environment is wrong, with words. -ENOMEM.
int vb_inspect_open(struct vb_nic *nic, const struct vb_nic_opts *opts);
// After the helper has ended: nobody answers any more.
void vb_inspect_close(struct vb_nic *nic);
// At exit: the NIC is not to be found any more, but who asks already is answered.
void vb_inspect_hide(struct vb_nic *nic);
// In a forked child: lets go of what is the parent's.
void vb_inspect_abandon(struct vb_nic *nic);

// ---- by the helper: what it waits for, and what it does then
// Fills the descriptors to wait for; *deadline_ns is brought forward if something is due earlier.
// Returns how many.
uint32_t vb_inspect_watch(struct vb_nic *nic, struct pollfd fds[VB_INSPECT_FDS],
                          uint64_t *deadline_ns);
// Answers those of them that are ready. Takes all lanes for a moment if somebody asks.
void vb_inspect_serve(struct vb_nic *nic, const struct pollfd *fds, uint32_t count);
// For a helper that has no time to wait: looks by itself, not too often.
void vb_inspect_glance(struct vb_nic *nic, struct pollfd *fds, uint32_t count);

// ---- inspect_text.c
// The answer to a question of `len` bytes without its line's end, which may be anything. NULL: no
// memory. The caller frees it.
char *vb_inspect_answer(struct vb_nic *nic, const char *question, size_t len, size_t *answer_len);
// Writes a word that can stand as a value.
void vb_inspect_put_word(FILE *out, const char *text);

// ---- inspect_cm.c: what the communication manager is at. Needs nic->inspect_lock
uint32_t vb_inspect_put_cm_ids(FILE *out, struct vb_nic *nic);

// ---- inspect_link.c: the NIC's own line
void vb_inspect_put_nic(FILE *out, struct vb_nic *nic);

#endif
