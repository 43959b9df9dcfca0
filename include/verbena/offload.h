// SPDX-License-Identifier: Apache-2.0
// Offloads: chain programs that are ready to use.
#ifndef VERBENA_OFFLOAD_H
#define VERBENA_OFFLOAD_H

#include <verbena/chain.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- hash get
// A client sends a key and the address of the bucket it should be in; the program answers by a
// WRITE with immediate data into the client's memory: the value, and its length as the immediate
// data; or nothing, and VB_HASH_MISS. Requests are answered in order, request n into part n % slots
// of the client's memory. The server's CPU does nothing.

enum {
    VB_HASH_KEY_BYTES = 6,
    VB_HASH_MISS = 0xffffffff,
};

// An entry of the index, in memory that clients cannot write. The address and the lengths are
// big-endian, as the work-queue entries are into which they go; an empty bucket has a key that
// nobody asks for.
struct vb_hash_bucket {
    uint64_t addr; // of the value, in the region of items
    uint32_t len;  // of the value, twice; less than 2^24
    uint32_t len_again;
    uint8_t key[VB_HASH_KEY_BYTES]; // see vb_hash_store_key()
    uint8_t reserved[2];
};

// What a client sends.
struct vb_hash_request {
    uint8_t key[VB_HASH_KEY_BYTES];
    uint8_t bucket[8]; // its address as the server names it, big-endian
};

// What a client sends where a key can be in one of two buckets. The key is there once for each.
struct vb_hash_request2 {
    struct vb_hash_request first, second;
};

enum vb_hash_way {
    VB_HASH_ONE,        // one bucket
    VB_HASH_SEQUENTIAL, // two, looked at one after the other by one queue
    VB_HASH_PARALLEL,   // two, the second by a queue of its own, "V": maybe on another unit
};

struct vb_hash_opts {
    uint32_t slots;     // requests under way: a power of two from 2 on; 0: 8
    uint32_t value_max; // bytes; 0: 4096
    enum vb_hash_way way;
};

// Queues "W" (works on the server's memory) and "K" (the client's); regions "index" and "items"
// (shared), "client" (the client's, slots * value_max bytes). NULL: error (200 bytes) says why.
struct vb_image *vb_offload_hash_get(const struct vb_hash_opts *opts, char *error);

// How the index stores a key: turned around within its halves, since a comparison sees it so.
static inline void vb_hash_store_key(uint8_t stored[VB_HASH_KEY_BYTES],
                                     const uint8_t key[VB_HASH_KEY_BYTES])
{
    for (int i = 0; i < 3; i++) {
        stored[i] = key[2 - i];
        stored[3 + i] = key[5 - i];
    }
}

// ---- a universal machine
// A Turing machine that runs whatever table it is given: rules and tape are data, and the program
// has the same few entries however long the tape is and however many steps are made. It runs
// without a CPU until a rule halts it.

// What to do in one state on one symbol; in big-endian order, as work-queue entries are. The table
// lists the rules of a state by symbol, state after state; it begins with the first rule of the
// state that the machine starts in.
struct vb_universal_rule {
    uint64_t next;    // address of the first rule of the next state
    uint64_t move;    // added to the head's address: 2, -2 or 0
    uint8_t cell[2];  // what is written: see vb_universal_cell()
    uint8_t halts[6]; // a number: 1 halts the machine after this rule
};

struct vb_universal_opts {
    uint32_t rules; // of the table, at least
    uint64_t cells; // of the tape, at least
    uint64_t head;  // the cell to begin with
};

// Queue "U"; regions "table" and "tape" (shared). After a step the head's address is that of the
// READ "cell1" or "cell0", after odd and even numbers of steps, and the address of the state's
// rules that of "rule1" or "rule0". NULL: error (200 bytes) says why.
struct vb_image *vb_offload_universal(const struct vb_universal_opts *opts, char *error);

// A cell of the tape with a symbol in it: how far the symbol's rule is from the state's first.
static inline void vb_universal_cell(uint8_t cell[2], uint32_t symbol)
{
    uint32_t bytes = symbol * (uint32_t)sizeof(struct vb_universal_rule);
    cell[0] = (uint8_t)(bytes >> 8);
    cell[1] = (uint8_t)bytes;
}

// ---- list walk
// A client sends a key and the address of a list's first node; the answer is as that of a hash get.
// Behind the last node comes an end node, which points at itself, has a key that nobody asks for
// and, as its value, the answer for a miss: len 0, len_again VB_HASH_MISS (see vb_list_end()).

// A node, in memory that clients cannot write; as in a bucket, all numbers are big-endian.
struct vb_list_node {
    uint64_t next; // its address
    uint64_t addr; // of the value, in the region of items
    uint32_t len_again;
    uint8_t len[3];                 // of the value
    uint8_t key[VB_HASH_KEY_BYTES]; // see vb_hash_store_key()
    uint8_t reserved[3];
};

enum {
    VB_LIST_NODES_MAX = 64,
    VB_LIST_SCATTER = 15,  // a receive writes so many keys; for longer walks they are copied
    VB_LIST_KEY_BYTES = 7, // of a key in a request
    VB_LIST_REQUEST_MAX = 8 + VB_LIST_SCATTER * VB_LIST_KEY_BYTES,
};

struct vb_list_opts {
    uint32_t slots;     // requests under way: a power of two from 2 on; 0: 8
    uint32_t value_max; // bytes; 0: 4096
    uint32_t nodes;     // that are looked at, at most; 0: 8. What is behind them is a miss
    bool stops;         // at the node with the key; otherwise the walk goes on behind the answer
};

// One piece of program for each node. Queues and regions as those of the hash get; nodes are in
// "index".
struct vb_image *vb_offload_list_walk(const struct vb_list_opts *opts, char *error);
// One piece of program for all nodes, as many as there are. One request is under way, and all are
// answered into the same value_max bytes; of the options only these count. A list that runs in
// circles is walked until a limit ends it.
struct vb_image *vb_offload_list_loop(const struct vb_list_opts *opts, char *error);

// A request to walk at most `nodes` (of vb_offload_list_loop(): 0). Returns its length.
static inline uint32_t vb_list_ask(uint8_t request[VB_LIST_REQUEST_MAX], uint64_t head,
                                   const uint8_t key[VB_HASH_KEY_BYTES], uint32_t nodes)
{
    uint32_t keys = nodes >= 1 && nodes <= VB_LIST_SCATTER ? nodes : 1;
    uint8_t *at = request;

    for (int i = 7; i >= 0; i--)
        *at++ = (uint8_t)(head >> 8 * i);
    for (uint32_t n = 0; n < keys; n++) {
        for (int i = 0; i < 3; i++) {
            at[i] = key[3 + i];
            at[4 + i] = key[i];
        }
        at[3] = 0; // it stands where the comparison has the opcode of a NOP
        at += VB_LIST_KEY_BYTES;
    }
    return (uint32_t)(at - request);
}

// The end node at this address.
static inline struct vb_list_node vb_list_end(uint64_t address)
{
    struct vb_list_node node = {
        0, 0, VB_HASH_MISS, {0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0, 0, 0}};
    uint8_t *at = (uint8_t *)&node.next;

    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(address >> 8 * (7 - i));
    return node;
}

#ifdef __cplusplus
}
#endif

#endif
