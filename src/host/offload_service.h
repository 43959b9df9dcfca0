// SPDX-License-Identifier: Apache-2.0
// The service of offloads, from inside: what is offered, and what each client has.
#ifndef VB_HOST_OFFLOAD_SERVICE_H
#define VB_HOST_OFFLOAD_SERVICE_H

#include "chain/image.h"
#include "host/host.h"
#include "verbena/offload_service.h"

enum {
    VB_OFFLOAD_OFFERS = 16,
    VB_OFFLOAD_DEPTHS = 16, // powers of two
};

// A copy of what the owner said, and the images that were made for it.
struct vb_offered {
    struct vb_offload_offer offer;
    char name[VB_OFFLOAD_NAME];
    struct vb_offload_memory memory[VB_OFFLOAD_REGIONS];
    char region[VB_OFFLOAD_REGIONS][VB_OFFLOAD_NAME];
    struct vb_image *image[VB_OFFLOAD_DEPTHS]; // by the logarithm of the depth
};

// All that is made for one client; a domain of its own, so that no key leads out of it.
struct vb_offload_client {
    uint64_t ticket;
    struct vb_offload_join join;
    const struct vb_image *image;
    struct vb_pd *pd;
    struct vb_mr *mr[VB_OFFLOAD_REGIONS];
    struct vb_program *program;
    struct vb_loaded *loaded;
    uint64_t requests, seen_ns; // when the number of its requests last changed
    bool seen;
};

enum vb_offload_record_state {
    VB_OFFLOAD_FREE,
    VB_OFFLOAD_PARTS, // something of it may be there
    VB_OFFLOAD_WHOLE,
};

// Of a client, for the next process of a service.
struct vb_offload_record {
    atomic_uint state;
    uint64_t ticket;
    struct vb_offload_join join;
};

struct vb_offload_setup {
    struct vb_nic *nic;
    const struct vb_offload_service_opts *opts;
    const struct vb_offered *offered;
    const struct vb_image *image;
    const struct vb_offload_join *join;
    uint64_t ticket;
    uint32_t psn;  // our first
    uint32_t unit; // from 1 on
};

// ---- offload_client.c

// Makes a client's program, connects and starts it, and says where it is. -ENOMEM and so on: error
// (VB_OFFLOAD_TEXT bytes) says why, and nothing is left of it.
int vb_offload_client_create(const struct vb_offload_setup *setup,
                             struct vb_offload_client **client, struct vb_offload_place *place,
                             char *error);
// The same client in the next process of a service: what was made under the tag. -ENOENT: not all
// of it is there.
int vb_offload_client_find(const struct vb_offload_setup *setup, uint32_t tag,
                           struct vb_offload_client **client);
// Its program ends at once, its keys with it, and all its memory comes back.
void vb_offload_client_destroy(struct vb_offload_client *client);
// The handle alone: what is behind it stays.
void vb_offload_client_forget(struct vb_offload_client *client);
// The queue of an image that clients are connected with, and bytes of memory for its answers.
const struct vb_image_queue *vb_offload_peer_queue(const struct vb_image *image);
uint64_t vb_offload_peer_bytes(const struct vb_image *image);

// ---- offload_record.c

// Finds the records under the tag, or makes them. -EINVAL: there are fewer, or no service.
int vb_offload_records_open(struct vb_nic *nic, uint32_t tag, uint32_t count,
                            struct vb_offload_record **records);
uint32_t vb_offload_record_state(const struct vb_offload_record *record);
void vb_offload_record_mark(struct vb_offload_record *record, enum vb_offload_record_state state);
void vb_offload_record_fill(struct vb_offload_record *record,
                            const struct vb_offload_client *client);
// False: it makes no whole client.
bool vb_offload_record_read(const struct vb_offload_record *record, uint64_t *ticket,
                            struct vb_offload_join *join);

#endif
