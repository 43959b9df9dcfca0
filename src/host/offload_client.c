// SPDX-License-Identifier: Apache-2.0
// What the service of offloads makes for one client.
#include "host/attach.h"
#include "host/load.h"
#include "host/offload_service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct vb_image_queue *vb_offload_peer_queue(const struct vb_image *image)
{
    for (uint32_t i = 0; i < image->queues; i++)
        if (image->queue[i].kind == VB_QUEUE_PEER)
            return &image->queue[i];
    return NULL;
}

static const struct vb_image_region *peer_region(const struct vb_image *image)
{
    for (uint32_t i = 0; i < image->regions; i++)
        if (image->region[i].kind == VB_REGION_PEER)
            return &image->region[i];
    return NULL;
}

uint64_t vb_offload_peer_bytes(const struct vb_image *image)
{
    const struct vb_image_region *region = peer_region(image);
    return region ? region->bytes : 0;
}

static int refuse(char *error, int err, const char *what)
{
    snprintf(error, VB_OFFLOAD_TEXT, "the server cannot make %s: %s", what, strerror(-err));
    return err;
}

// A domain, the server's memory in it, and the limit, which is asked for at every entry that runs:
// without one there is nothing to ask.
static int make_domain(const struct vb_offload_setup *s, struct vb_offload_client *c, char *error)
{
    const struct vb_offload_offer *offer = &s->offered->offer;
    int err = vb_pd_alloc(s->nic, &c->pd);

    for (uint32_t i = 0; !err && i < offer->memories; i++) {
        const struct vb_offload_memory *m = &offer->memory[i];
        uint32_t rights = VB_RIGHT_REMOTE_READ;
        if (m->writable)
            rights |= VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_ATOMIC;
        err = vb_mr_reg(c->pd, m->addr, m->len, rights, &c->mr[i]);
    }
    if (!err && offer->limit)
        err =
            vb_program_create(c->pd, &(struct vb_program_opts){.limit = offer->limit}, &c->program);
    return err ? refuse(error, err, "a domain for the client") : 0;
}

static int load(const struct vb_offload_setup *s, struct vb_offload_client *c, char *error)
{
    const struct vb_offload_offer *offer = &s->offered->offer;
    const struct vb_image_region *answers = peer_region(s->image);
    struct vb_load_memory memory[VB_OFFLOAD_REGIONS + 1];
    uint32_t n = 0;

    for (; n < offer->memories; n++)
        memory[n] = (struct vb_load_memory){offer->memory[n].region,
                                            (uintptr_t)offer->memory[n].addr, vb_mr_key(c->mr[n])};
    if (answers)
        memory[n++] = (struct vb_load_memory){answers->name, s->join->addr, s->join->key};
    return vb_chain_load(s->nic, s->image,
                         &(struct vb_load_opts){.pd = c->pd,
                                                .memory = memory,
                                                .memories = n,
                                                .program = c->program,
                                                .unit = s->unit,
                                                .rate = offer->rate,
                                                .burst = offer->burst},
                         &c->loaded, error);
}

// The client gets no rights: it can send, and is written to.
static int connect_and_start(const struct vb_offload_setup *s, struct vb_offload_client *c,
                             struct vb_qp *qp, char *error)
{
    struct vb_qp_peer peer = {.qpn = s->join->qpn,
                              .psn = s->join->psn,
                              .our_psn = s->psn,
                              .mtu = s->join->mtu,
                              .timeout = s->opts->timeout,
                              .retries = s->opts->retries};

    memcpy(peer.gid, s->join->gid, sizeof peer.gid);
    int err = vb_qp_connect(qp, &peer);
    if (!err)
        err = vb_chain_start(c->loaded);
    return err ? refuse(error, err, "a connection to the client") : 0;
}

static void describe(const struct vb_offload_setup *s, const struct vb_qp *qp,
                     struct vb_offload_place *place)
{
    const struct vb_offload_offer *offer = &s->offered->offer;

    *place = (struct vb_offload_place){.ticket = s->ticket,
                                       .qpn = vb_qp_num(qp),
                                       .psn = s->psn,
                                       .mtu = s->join->mtu ? s->join->mtu : 4096,
                                       .depth = s->join->depth,
                                       .request_bytes = offer->request_bytes,
                                       .answer_bytes = offer->answer_bytes,
                                       .regions = offer->memories};
    vb_nic_gid(s->nic, place->gid);
    for (uint32_t i = 0; i < offer->memories; i++) {
        snprintf(place->region[i].name, VB_OFFLOAD_NAME, "%s", offer->memory[i].region);
        place->region[i].addr = (uintptr_t)offer->memory[i].addr;
        place->region[i].bytes = offer->memory[i].len;
    }
}

int vb_offload_client_create(const struct vb_offload_setup *s, struct vb_offload_client **client,
                             struct vb_offload_place *place, char *error)
{
    struct vb_offload_client *c = calloc(1, sizeof *c);
    struct vb_qp *qp = NULL;

    if (!c)
        return refuse(error, -ENOMEM, "a client");
    c->ticket = s->ticket;
    c->join = *s->join;
    c->image = s->image;
    int err = make_domain(s, c, error);
    if (!err)
        err = load(s, c, error);
    if (!err) {
        qp = vb_loaded_qp(c->loaded, vb_offload_peer_queue(s->image)->name);
        err = connect_and_start(s, c, qp, error);
    }
    if (err) {
        vb_offload_client_destroy(c);
        return err;
    }
    describe(s, qp, place);
    *client = c;
    return 0;
}

// As entries of its program name the server's memory: by keys of before.
static int name_memory(const struct vb_offload_setup *s, uint32_t tag, uint32_t i,
                       struct vb_load_memory *memory)
{
    struct vb_hull_listing listing;
    uint32_t key;

    vb_host_lock(s->nic);
    int err = vb_service_find(s->nic, VB_HULL_LIST_REGION, tag, i, &key, &listing);
    vb_host_unlock(s->nic);
    if (!err)
        *memory = (struct vb_load_memory){s->offered->offer.memory[i].region,
                                          listing.made.key.start, key};
    return err;
}

static int find(const struct vb_offload_setup *s, uint32_t tag, struct vb_offload_client *c)
{
    const struct vb_offload_offer *offer = &s->offered->offer;
    const struct vb_image_region *answers = peer_region(s->image);
    struct vb_load_memory memory[VB_OFFLOAD_REGIONS + 1];
    uint32_t n = 0;
    int err = vb_service_pd(s->nic, tag, 0, &c->pd);

    for (; !err && n < offer->memories; n++) {
        err = vb_service_mr(s->nic, tag, n, &c->mr[n]);
        if (!err)
            err = name_memory(s, tag, n, &memory[n]);
    }
    if (!err && offer->limit)
        err = vb_service_program(s->nic, tag, 0, &c->program);
    if (!err && answers)
        memory[n++] = (struct vb_load_memory){answers->name, s->join->addr, s->join->key};
    const struct vb_load_opts opts = {.pd = c->pd, .memory = memory, .memories = n};
    return err ? err : vb_loaded_find(s->nic, tag, offer->memories, s->image, &opts, &c->loaded);
}

int vb_offload_client_find(const struct vb_offload_setup *s, uint32_t tag,
                           struct vb_offload_client **client)
{
    struct vb_offload_client *c = calloc(1, sizeof *c);

    if (!c)
        return -ENOMEM;
    c->ticket = s->ticket;
    c->join = *s->join;
    c->image = s->image;
    int err = find(s, tag, c);
    if (err)
        free(c);
    else
        *client = c;
    return err;
}

void vb_offload_client_forget(struct vb_offload_client *c)
{
    vb_loaded_free(c->loaded);
    free(c);
}

void vb_offload_client_destroy(struct vb_offload_client *c)
{
    if (c->program)
        vb_program_stop(c->program); // nothing of it runs while its parts go one by one
    if (c->loaded)
        vb_chain_unload(c->loaded);
    for (uint32_t i = 0; i < VB_OFFLOAD_REGIONS; i++)
        if (c->mr[i])
            vb_mr_dereg(c->mr[i]);
    if (c->program)
        vb_program_destroy(c->program);
    if (c->pd)
        vb_pd_free(c->pd);
    free(c);
}
