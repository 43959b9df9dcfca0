// SPDX-License-Identifier: Apache-2.0
// Chain programs of a service that was taken over: what vb_chain_load() made under a tag becomes a
// handle again. It makes its parts in one order, so the i-th of each kind is known by the image;
// each is held against it.
#include "host/load.h"

#include "host/attach.h"
#include "host/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// Regions are found in the order of their making.
struct finder {
    struct vb_loaded *l;
    const struct vb_image *image;
    uint32_t tag, regions;
};

static int refuse(char *error, const struct vb_image *image, const char *why)
{
    snprintf(error, VB_IMAGE_TEXT, "program '%s': %s", image->name, why);
    return -EINVAL;
}

// What a key of `len` bytes leads to, as entries name it and where it is here. -EINVAL: another.
static int find_region(struct finder *f, uint64_t len, struct vb_mr **mr, struct vb_image_memory *m)
{
    struct vb_nic *nic = f->l->nic;
    struct vb_hull_listing listing;
    uint32_t number, i = f->regions++;
    int err = vb_service_mr(nic, f->tag, i, mr);

    if (err)
        return err;
    vb_host_lock(nic);
    err = vb_service_find(nic, VB_HULL_LIST_REGION, f->tag, i, &number, &listing);
    const struct vb_hull_key *key = &listing.made.key;
    if (!err)
        *m = (struct vb_image_memory){key->start, number, vb_attach_at(nic->attach, &key->at)};
    vb_host_unlock(nic);
    return err ? err : key->len == len && m->at ? 0 : -EINVAL;
}

static int find_queue(struct finder *f, uint32_t i)
{
    struct vb_loaded *l = f->l;
    const struct vb_image_queue *q = &l->queue[i];
    uint64_t send_bytes = (uint64_t)q->blocks * VB_WQEBB_BYTES;
    uint64_t recv_bytes = (uint64_t)q->recvs * q->recv_stride;
    struct vb_qp_rings rings;
    int err = vb_service_qp(l->nic, f->tag, i, &l->qp[i]);

    if (err)
        return err;
    vb_qp_rings(l->qp[i], &rings);
    if (rings.send_blocks != q->blocks || rings.recv_entries != q->recvs)
        return -EINVAL;
    err = find_region(f, send_bytes, &l->code[i], &l->send[i]);
    if (!err && l->send[i].at != rings.send)
        err = -EINVAL;
    l->bytes += send_bytes + recv_bytes;
    if (err || q->recvs == 0)
        return err;
    err = find_region(f, recv_bytes, &l->recv_code[i], &l->recv[i]);
    return !err && l->recv[i].at != rings.recv ? -EINVAL : err;
}

static int find_data(struct finder *f, uint32_t i)
{
    struct vb_loaded *l = f->l;
    const struct vb_image_region *r = &l->region[i];

    if (r->kind == VB_REGION_OWN) {
        l->bytes += vb_loaded_room(r);
        return find_region(f, r->bytes ? r->bytes : 1, &l->mr[i], &l->data[i]);
    }
    for (uint32_t n = 0; n < l->opts.memories; n++)
        if (strcmp(l->opts.memory[n].region, r->name) == 0)
            l->data[i] =
                (struct vb_image_memory){l->opts.memory[n].addr, l->opts.memory[n].key, NULL};
    return 0;
}

static int find_cq(struct finder *f, uint32_t i)
{
    struct vb_loaded *l = f->l;
    int err = vb_service_cq(l->nic, f->tag, i, &l->cq[i]);

    l->bytes += (uint64_t)f->image->cq[i].entries * VB_CQE_BYTES;
    return !err && (l->cq[i]->driver.entries < f->image->cq[i].entries || !l->cq[i]->overwrites)
               ? -EINVAL
               : err;
}

static bool is_open(const struct vb_qp *qp, uint64_t start)
{
    struct vb_qp_progress p = {0};

    vb_host_lock(qp->nic);
    int err = vb_device_qp_progress(qp->nic, qp->driver.qpn, &p);
    vb_host_unlock(qp->nic);
    return err || p.send_open > start || p.recv_open > start;
}

// Entries are in place when queues that work on the server's memory are connected, in the end.
static bool is_placed(const struct vb_loaded *l)
{
    bool placed = true, opened = false, loops = false;

    for (uint32_t i = 0; i < l->queues; i++) {
        enum vb_qp_phase phase = VB_QP_RESET;
        opened |= is_open(l->qp[i], l->opts.start);
        if (l->queue[i].kind != VB_QUEUE_LOOP)
            continue;
        loops = true;
        placed = placed && vb_qp_phase(l->qp[i], &phase) == 0 &&
                 (phase == VB_QP_RTS || phase == VB_QP_ERR);
    }
    return loops ? placed : opened;
}

// One that was never started can be taken away; of another than this one that may not be so.
static bool has_started(struct vb_nic *nic, uint32_t tag, uint64_t start)
{
    struct vb_qp *qp;

    for (uint32_t i = 0; vb_service_qp(nic, tag, i, &qp) == 0; i++)
        if (is_open(qp, start))
            return true;
    return false;
}

static int find_all(struct finder *f)
{
    struct vb_loaded *l = f->l;
    int err = 0;

    for (uint32_t i = 0; !err && i < l->cqs; i++)
        err = find_cq(f, i);
    for (uint32_t i = 0; !err && i < l->queues; i++)
        err = find_queue(f, i);
    for (uint32_t i = 0; !err && i < l->regions; i++)
        err = find_data(f, i);
    return err ? err : is_placed(l) ? 0 : -ENOENT;
}

int vb_loaded_find(struct vb_nic *nic, uint32_t tag, uint32_t regions, const struct vb_image *image,
                   const struct vb_load_opts *opts, struct vb_loaded **loaded)
{
    struct vb_loaded *l = vb_loaded_create(nic, image, opts);
    struct finder f = {.l = l, .image = image, .tag = tag, .regions = regions};
    int err = l ? find_all(&f) : -ENOMEM;

    if (err && l)
        vb_loaded_free(l);
    else if (!err)
        *loaded = l;
    return err;
}

int vb_service_loaded(struct vb_nic *nic, uint32_t tag, const struct vb_image *image,
                      const struct vb_load_opts *opts, struct vb_loaded **loaded, char *error)
{
    if (!vb_image_check(image, error))
        return -EINVAL;
    int err = vb_loaded_find(nic, tag, 0, image, opts, loaded);
    if (err == -EINVAL || (err == -ENOENT && has_started(nic, tag, opts->start)))
        return refuse(error, image, "what was made under this tag is another, or no service's");
    if (err == -ENOENT) { // the process died before it was there
        err = vb_service_clear(nic, tag);
        err = err ? err : -ENOENT;
    }
    if (err)
        snprintf(error, VB_IMAGE_TEXT, "program '%s': %s", image->name,
                 err == -ENOENT ? "there is none under this tag" : strerror(-err));
    return err;
}
