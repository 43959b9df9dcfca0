// SPDX-License-Identifier: Apache-2.0
// A chain program on a NIC, from inside.
#ifndef VB_HOST_LOAD_H
#define VB_HOST_LOAD_H

#include "chain/image.h"
#include "host/host.h"
#include "verbena/chain.h"

struct vb_loaded {
    struct vb_nic *nic;
    struct vb_load_opts opts;
    uint32_t cqs, queues, regions;
    struct vb_image_queue *queue; // what is needed of the image: it may go
    struct vb_image_region *region;
    struct vb_cq **cq;
    struct vb_qp **qp;
    struct vb_mr **code, **recv_code, **mr;
    struct vb_image_memory *send, *recv, *data;
    uint64_t bytes;
};

// A handle without anything behind it yet; NULL: no memory. And its end, which leaves that alone.
struct vb_loaded *vb_loaded_create(struct vb_nic *nic, const struct vb_image *image,
                                   const struct vb_load_opts *opts);
void vb_loaded_free(struct vb_loaded *loaded);
// Bytes that a region of the program's own takes.
uint64_t vb_loaded_room(const struct vb_image_region *region);

// ---- load_find.c
// What was loaded under the tag of a service, behind `regions` that were made there before.
// -ENOENT: not all of it is there; -EINVAL: it is another.
int vb_loaded_find(struct vb_nic *nic, uint32_t tag, uint32_t regions, const struct vb_image *image,
                   const struct vb_load_opts *opts, struct vb_loaded **loaded);

// Both need the locks. Whether one of its queues is in error; and the messages of clients that it
// has taken.
bool vb_loaded_has_failed(const struct vb_loaded *loaded);
uint64_t vb_loaded_requests(const struct vb_loaded *loaded);

#endif
