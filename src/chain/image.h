// SPDX-License-Identifier: Apache-2.0
// A chain program at rest: queues with their entries, data, and what must be filled in when it is
// loaded (addresses, keys and numbers, which no program can know beforehand).
//
// Everything is named by its index in the image. Entries lie in the rings as the NIC will see them;
// relocations say which of their bytes are still open.
#ifndef VB_CHAIN_IMAGE_H
#define VB_CHAIN_IMAGE_H

#include "chain/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_IMAGE_NAME = 32,       // bytes, with the zero at the end
    VB_IMAGE_TEXT = 200,      // of an error
    VB_IMAGE_BYTES = 1 << 28, // of rings and own regions together, at most
};

// Where a relocation lies, and what addresses and keys can be of.
enum vb_place_kind {
    VB_IN_SEND, // the send ring of queue `index`; its key is the queue's code region
    VB_IN_RECV, // its receive ring
    VB_IN_DATA, // region `index`
};

struct vb_spot {
    enum vb_place_kind kind;
    uint32_t index;
    uint64_t offset; // bytes
};

enum vb_reloc_kind {
    VB_RELOC_ADDR, // 8 bytes: the address of the target spot
    VB_RELOC_KEY,  // 4 bytes: the key of the memory that it lies in
    VB_RELOC_QPN,  // 4 bytes: the number of queue target.index
    VB_RELOC_QPN3, // 3 bytes: the same, in a control segment
    VB_RELOC_CQN,  // 4 bytes: the number of completion queue target.index
    // Counters, to which is added what the target's starts from: of a send queue, a receive queue,
    // a completion queue. First as an entry's index has them, 4 bytes big-endian; then as a program
    // counts, little-endian, in 2, 2 and 3 bytes.
    VB_RELOC_SEND_INDEX,
    VB_RELOC_RECV_INDEX,
    VB_RELOC_CQ_INDEX,
    VB_RELOC_SEND_COUNT,
    VB_RELOC_RECV_COUNT,
    VB_RELOC_CQ_COUNT,
};

uint32_t vb_reloc_bytes(enum vb_reloc_kind kind);

struct vb_reloc {
    enum vb_reloc_kind kind;
    struct vb_spot at;
    struct vb_spot target; // of numbers and counters only its index counts
};

struct vb_image_cq {
    char name[VB_IMAGE_NAME];
    uint32_t entries; // power of two
};

enum vb_image_queue_kind {
    VB_QUEUE_LOOP, // connected with itself: works on the server's memory
    VB_QUEUE_PEER, // connected with a client
};

struct vb_image_queue {
    char name[VB_IMAGE_NAME];
    enum vb_image_queue_kind kind;
    bool managed_send, managed_recv;
    bool wqe_checks;
    bool be_replies; // of its atomics
    uint32_t send_cq, recv_cq;
    uint32_t blocks;      // of the send ring: power of two
    uint32_t filled;      // of them hold entries; the rest is zero
    uint32_t open;        // of them may run from the start
    uint8_t *code;        // blocks * 64 bytes
    uint32_t recvs;       // entries of the receive ring: power of two, or 0
    uint32_t recv_stride; // bytes, power of two
    uint32_t recv_filled, recv_open;
    uint8_t *recv; // recvs * recv_stride bytes
};

enum vb_region_kind {
    VB_REGION_OWN,    // comes with the program: `init` says with what
    VB_REGION_SHARED, // the server's, given when the program is loaded
    VB_REGION_PEER,   // the client's, named when it connects
};

struct vb_image_region {
    char name[VB_IMAGE_NAME];
    enum vb_region_kind kind;
    uint64_t bytes; // of VB_REGION_SHARED and _PEER: at least
    bool writable;  // by the program
    uint8_t *init;  // VB_REGION_OWN: bytes of it
};

struct vb_image_label {
    char name[VB_IMAGE_NAME];
    uint32_t queue, block;
};

struct vb_image {
    char name[VB_IMAGE_NAME];
    struct vb_image_cq *cq;
    struct vb_image_queue *queue;
    struct vb_image_region *region;
    struct vb_reloc *reloc;
    struct vb_image_label *label;
    uint32_t cqs, queues, regions, relocs, labels;
    struct vb_names cq_names, queue_names, region_names, label_names;
};

struct vb_image *vb_image_create(const char *name); // NULL: no memory
void vb_image_destroy(struct vb_image *image);

// All of these return the new index, or a negative errno (-ENOMEM, -EINVAL).
int vb_image_add_cq(struct vb_image *image, const char *name, uint32_t entries);
int vb_image_add_queue(struct vb_image *image, const struct vb_image_queue *like);
int vb_image_add_region(struct vb_image *image, const struct vb_image_region *like);
int vb_image_add_reloc(struct vb_image *image, const struct vb_reloc *reloc);
int vb_image_add_label(struct vb_image *image, const char *name, uint32_t queue, uint32_t block);

// Indices by name, or -ENOENT.
int vb_image_find_cq(const struct vb_image *image, const char *name);
int vb_image_find_queue(const struct vb_image *image, const char *name);
int vb_image_find_region(const struct vb_image *image, const char *name);
int vb_image_find_label(const struct vb_image *image, const char *name);

// Whether it could be loaded: sizes, indices, relocations within bounds and none over another.
// error: VB_IMAGE_TEXT bytes that say what is wrong.
bool vb_image_check(const struct vb_image *image, char *error);
// Equal in every byte, name and relocation (whose order does not matter).
bool vb_image_equal(const struct vb_image *a, const struct vb_image *b);
// The order of places: below zero if `a` lies before `b`, zero if they are the same.
int vb_spot_compare(const struct vb_spot *a, const struct vb_spot *b);
// Bytes of the memory that a spot lies in, which exists.
uint64_t vb_image_extent(const struct vb_image *image, const struct vb_spot *spot);
// Room for one more element of an array of `count`, which grows by doubling. NULL: no memory.
void *vb_image_room(void *array, uint32_t count, size_t size);
// A copy of the relocations in the order of their places; free() it. NULL: no memory.
struct vb_reloc *vb_image_sorted(const struct vb_image *image);

// What loading knows.
struct vb_image_memory {
    uint64_t addr; // as work-queue entries name it
    uint32_t key;
    uint8_t *at; // where this process can write; NULL: nowhere (a client's memory)
};

struct vb_image_binding {
    struct vb_image_memory *send, *recv; // by queue
    struct vb_image_memory *data;        // by region
    uint32_t *qpn;                       // by queue
    uint32_t *cqn;                       // by completion queue
    uint64_t start;                      // of all counters: a multiple of every ring's size
};

// Copies entries and data of the program's own to their places and fills in the relocations.
void vb_image_place(const struct vb_image *image, const struct vb_image_binding *binding);
// The other way round: a program that was placed, as it is now. What was filled in and still names
// memory or a queue of the program is a relocation again, maybe to another place; what does not is
// plain bytes. Of shared memory at least as much is asked for as addresses reach. NULL: no memory.
struct vb_image *vb_image_snapshot(const struct vb_image *image,
                                   const struct vb_image_binding *binding);

#endif
