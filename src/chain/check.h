// SPDX-License-Identifier: Apache-2.0
// The checker of chain programs: what is wrong with an image as it lies there, and what goes wrong
// when it runs. A finding names the entry it is about, the other one that has a part in it, and
// what to do.
#ifndef VB_CHAIN_CHECK_H
#define VB_CHAIN_CHECK_H

#include "chain/listing.h"
#include "chain/machine.h"

enum vb_check_kind {
    // Static.
    VB_CHECK_WAIT_NEVER,       // on a completion queue that nothing fills
    VB_CHECK_WAIT_BEYOND,      // on more completions than there are
    VB_CHECK_OPEN_BEYOND,      // what is not there
    VB_CHECK_OPEN_UNMANAGED,   // a queue that runs by itself
    VB_CHECK_NEVER_OPENED,     // a managed queue, or its last entries
    VB_CHECK_BAD_ENTRY,        // not an entry at all
    VB_CHECK_OUT_OF_REGION,    // an operand that is longer than its memory
    VB_CHECK_NOT_WRITABLE,     // an answer goes into memory that the program may not write
    VB_CHECK_LONG_SCATTER,     // more bytes than the field has that they go into
    VB_CHECK_SCATTER_OVERLAP,  // two parts of one message go to the same bytes
    VB_CHECK_PARTIAL_PATCH,    // a comparison of bytes of which only some are filled in
    VB_CHECK_UNALIGNED_ATOMIC, // its eight bytes are not aligned
    VB_CHECK_CALC_RECORD,      // an operand that is not 16 aligned bytes
    VB_CHECK_PATCH_OPEN,       // an entry is written that was opened before
    VB_CHECK_PATCH_UNORDERED,  // nothing waits for the write before the entry is opened
    VB_CHECK_ORDER,            // bytes are used that an earlier entry may not have written yet
    VB_CHECK_SIGNALED_COVERED, // a NOP's length decides whether it completes
    VB_CHECK_KEY_FROM_CLIENT,  // a client chooses a key
    VB_CHECK_ENDLESS,          // a circle without a gate
    VB_CHECK_UNSET,            // a field that nothing fills in
    // Dynamic.
    VB_CHECK_CHANGED_OPEN,   // an entry was changed while the NIC could already have fetched it
    VB_CHECK_CHANGED_EARLY,  // or without knowing that it had been executed
    VB_CHECK_RESULT_DEPENDS, // on how far the NIC fetches ahead, or on who is faster
    VB_CHECK_STUCK_WAIT,     // for a completion that did not come
    VB_CHECK_WAIT_OTHER,     // was ended by another entry's completion than its number says
    VB_CHECK_RECV_EARLY,     // a receive is opened again before its last message was used
    VB_CHECK_OPEN_EARLY,     // an entry is opened before the message that it needs
    VB_CHECK_READ_EARLY,     // memory is read before the message that goes there
    VB_CHECK_STOPPED,        // a queue that opens itself did not
    VB_CHECK_FAULT,          // the NIC refused an entry
    VB_CHECK_NO_END,         // it was still running when the steps were used up
    VB_CHECK_NOT_LOADED,     // it cannot be run
    VB_CHECK_KINDS
};

struct vb_finding {
    enum vb_check_kind kind;
    bool warning; // this NIC gets it right; another that keeps the same rules may not
    struct vb_actor where, other;
    char text[480];
};

struct vb_findings {
    struct vb_finding *finding;
    uint32_t count, errors;
    bool no_memory;
};

void vb_findings_free(struct vb_findings *f);
// Adds one; the same about the same entries only once. The text goes behind the entry's name.
__attribute__((format(printf, 7, 8))) void vb_findings_add(
    struct vb_findings *f, const struct vb_listing *l, enum vb_check_kind kind, bool warning,
    struct vb_actor where, struct vb_actor other, const char *text, ...);
const char *vb_check_name(enum vb_check_kind kind);

// What can be seen without running it.
void vb_check_static(const struct vb_image *image, struct vb_findings *out);

// A message of a client.
struct vb_check_request {
    uint32_t queue;
    const void *bytes;
    uint32_t len;
};

struct vb_check_opts {
    const uint32_t *depth; // of fetching ahead; NULL: 1, 2, 3, 5, 16 and 256
    uint32_t depths;
    uint32_t seeds;        // of each depth, with one unit and two by turns; 0: four
    uint64_t steps_max;    // of a run; 0: a million
    uint64_t shared_bytes; // of each shared region, if more than the image asks for
    const struct vb_check_request *request;
    uint32_t requests;
    // Fills memory and sends messages before the first step; may be NULL.
    void (*prepare)(void *ctx, struct vb_machine *m);
    void *ctx;
};

// What can be seen when it runs, at several depths and in several orders.
void vb_check_dynamic(const struct vb_image *image, const struct vb_check_opts *opts,
                      struct vb_findings *out);

static inline struct vb_actor vb_nobody(void)
{
    return (struct vb_actor){.exists = false};
}

static inline struct vb_actor vb_sender(uint32_t queue, uint32_t block)
{
    return (struct vb_actor){true, false, queue, block};
}

static inline struct vb_actor vb_receiver(uint32_t queue, uint32_t entry)
{
    return (struct vb_actor){true, true, queue, entry};
}

#endif
