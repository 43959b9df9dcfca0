// SPDX-License-Identifier: Apache-2.0
// Watches a machine run a program: what each entry read and wrote, which completion let which WAIT
// go on, and which entries were changed while the NIC was already free to fetch them.
#ifndef VB_CHAIN_WATCH_H
#define VB_CHAIN_WATCH_H

#include "chain/listing.h"
#include "chain/machine.h"

enum {
    VB_WATCH_TOUCHES = 40,
    VB_WATCH_BYTES = 16, // of a value before and after
};

struct vb_watch_touch {
    struct vb_spot spot;
    uint32_t len;
    bool write, changed;
    bool rash;        // an entry of another queue was changed that might not have been executed yet
    uint64_t rash_at; // its byte in the ring
    uint8_t before[VB_WATCH_BYTES], after[VB_WATCH_BYTES]; // of longer ones the first bytes
};

// One step of the program.
struct vb_watch_event {
    enum vb_step_kind kind;
    struct vb_actor who; // does not exist: a step of the client's own
    uint64_t counter;
    uint8_t opcode, syndrome;
    uint32_t bytes;
    const uint8_t *code; // FETCH, EXEC: the entry as it was fetched
    // EXEC: what it was changed by while it was open, and the first byte of that.
    struct vb_actor changed_by;
    uint32_t changed_at;
    // EXEC of a RECV_EN: an entry that has not run yet and that the receive writes to.
    struct vb_actor too_early;
    // EXEC of a SEND_EN: an entry that it opens without having waited for the message it needs.
    struct vb_actor unasked, message;
    // EXEC: a receive that is open, whose message goes where this entry reads, and was not waited
    // for.
    struct vb_actor awaited;
    // EXEC of a WAIT: whose completion it was. COMPLETE: the entry that waits for it.
    struct vb_actor other;
    uint32_t cq;
    uint64_t number; // COMPLETE, WAIT: of the completion
    uint32_t touches;
    struct vb_watch_touch touch[VB_WATCH_TOUCHES];
};

struct vb_watch;

// The machine must not have made a step yet. NULL: no memory.
struct vb_watch *vb_watch_make(struct vb_machine *m, const struct vb_image *image,
                               const struct vb_machine_opts *opts);
void vb_watch_free(struct vb_watch *w);
const struct vb_listing *vb_watch_listing(const struct vb_watch *w);

// Makes one step. False: nothing is left to do, or memory ran out.
bool vb_watch_step(struct vb_watch *w, struct vb_watch_event *event);
bool vb_watch_lacks_memory(const struct vb_watch *w);
// Whether everything that was fetched has been executed.
bool vb_watch_is_idle(const struct vb_watch *w, uint32_t queue);
// The WAIT that the queue stands at: its entry as it was fetched, and which completion is missing.
bool vb_watch_waiting(const struct vb_watch *w, uint32_t queue, struct vb_actor *who, uint32_t *cq,
                      uint64_t *missing);
uint64_t vb_watch_produced(const struct vb_watch *w, uint32_t cq);
// The entry that the queue executes next.
struct vb_actor vb_watch_standing(const struct vb_watch *w, uint32_t queue);
// Who wrote the byte last. Does not exist: nobody since the program was loaded.
struct vb_actor vb_watch_writer(const struct vb_watch *w, const struct vb_spot *spot);

#endif
