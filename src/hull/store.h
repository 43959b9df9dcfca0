// SPDX-License-Identifier: Apache-2.0
// Named memory outlives the hull: its descriptors are handed to the service manager, which keeps
// them while the hull is restarted, and gives them back (file descriptor store).
//
// The manager keeps a descriptor under a name of one word, which says all that the descriptor does
// not: memory.NIC.UID.NAME, or memory.NIC.UID.+HEX if the name has other characters than letters,
// digits, - and _.
#ifndef VB_HULL_STORE_H
#define VB_HULL_STORE_H

#include "base/fifo.h"
#include "host/contract.h"
#include "hull/inherit.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    VB_STORE_NAME = VB_INHERITED_NAME + 1,
};

struct vb_hull;
struct vb_hull_mapping;

// Whose memory it is.
struct vb_store_key {
    char nic[VB_HULL_NAME];
    uid_t uid;
    char name[VB_HULL_NAME];
};

enum {
    VB_STORE_BURST = 256,              // messages that leave at once,
    VB_STORE_MESSAGE_NS = 1000 * 1000, // and then one in so long: the manager has other work
};

// Of a hull: what the manager could not be told at once, in order. What comes and goes meanwhile
// it is not told of at all.
struct vb_store {
    struct vb_fifo due;
    uint64_t retry_ns;
    uint32_t sent;       // of a burst,
    uint64_t counted_ns; // since then
};

void vb_store_write(const struct vb_store_key *key, char text[VB_STORE_NAME]);
// False: this is none. What was read is written in the same way again.
bool vb_store_read(const char *text, struct vb_store_key *key);

// ---- by the hull's thread; nothing here waits for the manager
void vb_store_add(struct vb_hull *hull, const struct vb_hull_mapping *mapping);
void vb_store_remove(struct vb_hull *hull, const struct vb_hull_mapping *mapping);
// Tells what is due; *deadline_ns (if not NULL) is brought forward if something stays so.
void vb_store_flush(struct vb_hull *hull, uint64_t now_ns, uint64_t *deadline_ns);
// Tells what is due a last time. The manager keeps what it has.
void vb_store_end(struct vb_hull *hull);
// Before the hull runs: takes its memory from what was inherited (NULL: nothing), and says of each
// descriptor that is no such memory why not.
void vb_store_restore(struct vb_hull *hull, struct vb_inherited *inherited);

#endif
