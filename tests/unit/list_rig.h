// SPDX-License-Identifier: Apache-2.0
// A list walk on a machine without ports, its list, and its client.
#ifndef VB_TESTS_LIST_RIG_H
#define VB_TESTS_LIST_RIG_H

#include "chain/machine.h"
#include "verbena/offload.h"

enum {
    LIST_VALUE_MAX = 64,
    LIST_MISS = UINT32_MAX, // instead of a position
};

struct list_rig {
    struct vb_image *image;
    struct vb_machine *m;
    uint32_t w, k, index, items, client;
    uint32_t nodes; // of the list
    uint32_t walk;  // nodes that a request is for; 0: vb_offload_list_loop()
    uint32_t slots, answered;
    uint32_t *place; // by position: where the node lies in the index
};

void list_key(uint32_t n, uint8_t key[VB_HASH_KEY_BYTES]);
uint32_t list_length(uint32_t n);
uint8_t list_byte(uint32_t n, uint32_t at);

// Takes the image. Nodes lie in the index in another order than in the list.
void list_open(struct list_rig *r, struct vb_image *image, const struct vb_list_opts *opts,
               const struct vb_machine_opts *machine, uint32_t nodes);
void list_close(struct list_rig *r);
uint64_t list_address(const struct list_rig *r, uint32_t n);
// Asks for the key of node n, or one that no node has, from node `from` on.
void list_ask(struct list_rig *r, uint32_t n, uint32_t from);
// The answer is node n's value, or LIST_MISS.
void list_expect(struct list_rig *r, uint32_t n);
// No answer is left.
void list_expect_none(struct list_rig *r);

#endif
