// SPDX-License-Identifier: Apache-2.0
// The entries of an image one by one, with what their relocations say; and names for people.
#ifndef VB_CHAIN_LISTING_H
#define VB_CHAIN_LISTING_H

#include "chain/code.h"
#include "chain/image.h"

enum {
    VB_LISTING_TEXT = 112 // of an entry's or a place's name
};

// An entry of a send queue by its block, or of a receive queue.
struct vb_actor {
    bool exists;
    bool recv;
    uint32_t queue, at;
};

// What an address in an entry is of, if a relocation says so.
struct vb_ref {
    bool known;
    struct vb_spot to;
};

struct vb_line {
    uint32_t queue, block, blocks;
    const char *wrong;   // why it is no entry; NULL: it is one
    struct vb_code code; // of one that is wrong only opcode and length
    struct vb_ref raddr, sge[VB_MAX_SGE];
    struct vb_ref rkey, key[VB_MAX_SGE];
    int object; // of WAIT, SEND_EN, RECV_EN: the queue's or completion queue's index; -1: none
};

// One scatter entry of a receive.
struct vb_scatter_line {
    uint32_t queue, entry, part, len;
    struct vb_ref to;
};

struct vb_listing {
    const struct vb_image *image;
    struct vb_line *line; // by queue, and within it by block
    uint32_t lines;
    struct vb_scatter_line *scatter;
    uint32_t scatters;
    uint32_t **at; // by queue and block: the line that it belongs to, counted from 1; 0: none
};

// Each entry, and each part of a receive.
#define VB_FOR_LINES(each, l) \
    for (const struct vb_line *each = (l)->line; each < (l)->line + (l)->lines; each++)
#define VB_FOR_PARTS(each, l)                                                                    \
    for (const struct vb_scatter_line *each = (l)->scatter; each < (l)->scatter + (l)->scatters; \
         each++)

struct vb_listing *vb_listing_make(const struct vb_image *image); // NULL: no memory
void vb_listing_free(struct vb_listing *l);

// The entry that lies in a block. NULL: none.
const struct vb_line *vb_listing_line(const struct vb_listing *l, uint32_t queue, uint32_t block);
// The field of the entry that a byte of it belongs to, and where it begins. -1: none.
int vb_listing_field(const struct vb_line *line, uint32_t offset, uint32_t *n, uint32_t *begin,
                     uint32_t *len);

// "W:compare0", "W:compare0+2" (blocks behind it) or "W#12", and the operation.
void vb_listing_name(const struct vb_listing *l, uint32_t queue, uint32_t block, char *text);
// "K:recv2"
void vb_listing_recv_name(const struct vb_listing *l, uint32_t queue, uint32_t entry, char *text);
void vb_listing_actor_name(const struct vb_listing *l, struct vb_actor who, char *text);
// "items+24", "K:hit0.addr"
void vb_listing_place(const struct vb_listing *l, const struct vb_spot *spot, char *text);

#endif
