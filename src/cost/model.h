// SPDX-License-Identifier: Apache-2.0
// The timing model's state. It is fed with what a machine does, step by step, and gives each
// executed entry its times; what entries do is the NIC's own business.
#ifndef VB_COST_MODEL_H
#define VB_COST_MODEL_H

#include "chain/watch.h"
#include "cost/calendar.h"
#include "cost/preset.h"

enum {
    VB_COST_NOBODY = UINT32_MAX,
    VB_COST_READS = 64, // READs and atomics of a queue under way, at most
    VB_COST_UNITS = 1024,
};

// An executed entry, or a message of a client: first what it is and whom it needs, then its times.
struct vb_charge {
    struct vb_cost_entry times;
    uint32_t queue, at; // of the image; block, or receive
    uint8_t opcode;
    bool fence, carries; // it waits for READs; its bytes are in the entry itself
    uint32_t bytes;
    uint32_t leader, follower; // in its queue
    uint32_t opener;           // that let it go; nobody: it was open from the start
    uint32_t producer;         // of a WAIT: whose completion it is

    bool ready, done;
    uint64_t ready_ps;    // it could begin, if nobody else did
    uint32_t cause;       // whom it had to wait for last
    uint64_t handed_ps;   // when that one let it go
    uint64_t start_ps;    // it began
    uint64_t lane_end_ps; // the next one of its queue may begin
    uint64_t complete_ps; // it and all before it are done
    uint64_t visible_ps;  // to the CPU that wants it
    uint32_t next;        // on the critical path
};

// Entries before `end` were opened by somebody.
struct vb_cost_opening {
    uint64_t end;
    uint32_t by;
};

struct vb_cost_openings {
    struct vb_cost_opening *list;
    uint32_t count, room, next; // those before `next` have all been used
    uint64_t end;
};

// Who has made the completions of a queue, by number.
struct vb_cost_cq {
    uint32_t *by;
    uint32_t count, room;
};

// Entries or messages that follow each other.
struct vb_cost_lane {
    uint32_t head, last; // the next one to be given its times; the last one there is
};

struct vb_cost_queue {
    char name[VB_IMAGE_NAME];
    bool peer, managed;
    struct vb_cost_openings send, recv;
    struct vb_cost_lane entries, messages;
    // The read over PCIe that brought the last entry.
    bool fetched;
    uint64_t burst_from_ps, burst_at_ps;
    uint64_t burst_left;
    uint32_t read[VB_COST_READS]; // the last READs and atomics
    uint64_t reads;
    uint64_t reads_done_ps;
    uint32_t slowest_read;
    uint64_t first_ps; // when its first entry began
    uint64_t complete_ps;
};

struct vb_cost {
    struct vb_cost_preset preset;
    struct vb_cost_opts opts;
    char name[VB_IMAGE_NAME];
    struct vb_charge *charge; // in the order of execution
    uint32_t charges, room;
    struct vb_cost_queue *queue;
    struct vb_cost_cq *cq;
    uint32_t queues, cqs;
    bool waits_for_clients; // it was loaded long before the first message
    bool no_memory, cut;
    // What is shared.
    struct vb_calendar lane, unit[VB_COST_UNITS], atomics, link, pcie;
    uint64_t miss_ps; // what the caches' misses add to an entry, on average
    uint64_t unit_busy_ps, atomic_busy_ps, link_bytes, pcie_bytes;
    uint32_t messages, replies, errors;
    uint32_t result; // the entry that the latency ends with
    uint64_t first_reply_ps, last_reply_ps;
    struct vb_cost_parts parts; // of the critical path
};

// A machine that is ready to run; the image and the machine must outlive the call only. NULL: error
// says why.
struct vb_cost *vb_cost_watch(struct vb_machine *m, const struct vb_image *image,
                              const struct vb_machine_opts *machine,
                              const struct vb_cost_preset *preset, const struct vb_cost_opts *opts,
                              char *error);

// Gives the n-th entry, or message, the time at which it could begin; everybody it needs has his
// times. Then it is charged.
void vb_cost_prepare(struct vb_cost *c, uint32_t n);
void vb_cost_charge(struct vb_cost *c, uint32_t n);
// All of them, those that can begin first before the others.
void vb_cost_schedule(struct vb_cost *c);

// Marks the critical path, once all has run.
void vb_cost_find_path(struct vb_cost *c);
// When the n-th entry, which is on the path, lets the next one go, or is seen.
uint64_t vb_cost_path_end(const struct vb_cost *c, uint32_t n);

// What limits the rate, in time for each operation.
enum vb_cost_limit {
    VB_LIMIT_CHAIN, // one entry after the other
    VB_LIMIT_UNITS,
    VB_LIMIT_ATOMICS,
    VB_LIMIT_LINK,
    VB_LIMIT_PCIE,
    VB_LIMITS
};
const char *vb_cost_limit_name(enum vb_cost_limit limit);
// Of one port.
uint64_t vb_cost_limit_ps(const struct vb_cost *c, enum vb_cost_limit limit);

#endif
