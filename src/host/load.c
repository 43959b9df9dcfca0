// SPDX-License-Identifier: Apache-2.0
// Chain programs on a NIC: an image becomes queues, code regions and memory.
#include "host/load.h"

#include "host/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CODE_RIGHTS = VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ |
                  VB_RIGHT_REMOTE_ATOMIC,
    SELF_RIGHTS = VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC,
};

static int refuse(char *error, int err, const char *what, const char *name)
{
    snprintf(error, VB_IMAGE_TEXT, "%s '%s': %s", what, name, strerror(-err));
    return err;
}

// ---- making

static int make_cqs(struct vb_loaded *l, const struct vb_image *image, char *error)
{
    uint32_t units = l->opts.units ? l->opts.units : 1, first = l->opts.unit ? l->opts.unit : 1;

    for (uint32_t i = 0; i < image->cqs; i++) {
        // Both completion queues of a queue on the same unit, the next one's on the next.
        const struct vb_cq_opts opts = {.entries = image->cq[i].entries,
                                        .unit = first + i / 2 % units,
                                        .ignore_overrun = true,
                                        .start = l->opts.start};
        int err = vb_cq_create(l->nic, &opts, &l->cq[i]);
        if (err)
            return refuse(error, err, "completion queue", image->cq[i].name);
        l->bytes += (uint64_t)image->cq[i].entries * VB_CQE_BYTES;
    }
    return 0;
}

static uint32_t chain_flags(const struct vb_image_queue *q)
{
    return VB_QP_CROSS_CHANNEL | VB_QP_IGNORE_OVERFLOW |
           (q->managed_send ? VB_QP_MANAGED_SEND : 0) | (q->managed_recv ? VB_QP_MANAGED_RECV : 0) |
           (q->wqe_checks ? 0 : VB_QP_NO_WQE_CHECKS) | (q->be_replies ? VB_QP_BE_REPLIES : 0);
}

// An entry of two segments takes one block, so the depth is the ring's size.
static int make_qp(struct vb_loaded *l, uint32_t i)
{
    const struct vb_image_queue *q = &l->queue[i];
    const struct vb_qp_opts opts = {.send_cq = l->cq[q->send_cq],
                                    .recv_cq = l->cq[q->recv_cq],
                                    .send_depth = q->blocks,
                                    .send_sge = 2,
                                    .recv_depth = q->recvs,
                                    .recv_sge = q->recv_stride / VB_WQE_SEG_BYTES,
                                    .chain = chain_flags(q),
                                    .fetch_depth = l->opts.fetch_depth,
                                    .rate = l->opts.rate,
                                    .burst = l->opts.burst,
                                    .program = l->opts.program,
                                    .start = l->opts.start};
    struct vb_qp_rings rings;

    int err = vb_qp_create(l->opts.pd, &opts, &l->qp[i]);
    if (err)
        return err;
    vb_qp_rings(l->qp[i], &rings);
    if (rings.send_blocks != q->blocks || rings.recv_entries != q->recvs)
        return -EINVAL; // the image has rings of other sizes than a NIC makes
    err = vb_qp_code(l->qp[i], VB_RING_SEND, CODE_RIGHTS, &l->code[i]);
    if (err)
        return err;
    l->send[i] = (struct vb_image_memory){(uintptr_t)rings.send, vb_mr_key(l->code[i]), rings.send};
    l->bytes += (uint64_t)q->blocks * VB_WQEBB_BYTES + (uint64_t)q->recvs * q->recv_stride;
    if (q->recvs == 0)
        return 0;
    err = vb_qp_code(l->qp[i], VB_RING_RECV, CODE_RIGHTS, &l->recv_code[i]);
    if (!err)
        l->recv[i] =
            (struct vb_image_memory){(uintptr_t)rings.recv, vb_mr_key(l->recv_code[i]), rings.recv};
    return err;
}

static const struct vb_load_memory *find_memory(const struct vb_load_opts *opts, const char *name)
{
    for (uint32_t i = 0; i < opts->memories; i++)
        if (strcmp(opts->memory[i].region, name) == 0)
            return &opts->memory[i];
    return NULL;
}

// What a program has of its own is of whoever runs it: of the hull, if the NIC is there.
uint64_t vb_loaded_room(const struct vb_image_region *r)
{
    return r->bytes ? (r->bytes + 63) & ~UINT64_C(63) : 64;
}

static void *take_room(struct vb_nic *nic, uint64_t bytes)
{
    if (!nic->attach) {
        void *at = aligned_alloc(64, bytes);
        return at ? memset(at, 0, bytes) : NULL;
    }
    vb_host_lock(nic);
    void *at = vb_attach_take(nic->attach, bytes);
    vb_host_unlock(nic);
    return at;
}

static void give_room(struct vb_nic *nic, void *at, uint64_t bytes)
{
    if (!nic->attach) {
        free(at);
    } else if (at && !vb_host_is_foreign(nic)) {
        vb_host_lock(nic);
        vb_attach_give_back(nic->attach, at, bytes);
        vb_host_unlock(nic);
    }
}

static int make_region(struct vb_loaded *l, uint32_t i, char *error)
{
    const struct vb_image_region *r = &l->region[i];
    const struct vb_load_memory *given = find_memory(&l->opts, r->name);
    uint32_t rights = VB_RIGHT_REMOTE_READ;

    if (r->kind != VB_REGION_OWN) {
        if (!given) {
            snprintf(error, VB_IMAGE_TEXT, "region '%s' is not the program's own: say where it is",
                     r->name);
            return -EINVAL;
        }
        l->data[i] = (struct vb_image_memory){given->addr, given->key, NULL};
        return 0;
    }
    uint64_t room = vb_loaded_room(r);
    uint8_t *at = take_room(l->nic, room);
    if (!at)
        return refuse(error, -ENOMEM, "region", r->name);
    l->data[i] = (struct vb_image_memory){(uintptr_t)at, 0, at};
    if (r->writable)
        rights |= VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_ATOMIC;
    int err = vb_mr_reg(l->opts.pd, at, r->bytes ? r->bytes : 1, rights, &l->mr[i]);
    if (err)
        return refuse(error, err, "region", r->name);
    l->data[i].key = vb_mr_key(l->mr[i]);
    l->bytes += room;
    return 0;
}

static int make_all(struct vb_loaded *l, const struct vb_image *image, char *error)
{
    int err = make_cqs(l, image, error);

    for (uint32_t i = 0; !err && i < l->queues; i++) {
        err = make_qp(l, i);
        if (err)
            refuse(error, err, "queue", l->queue[i].name);
    }
    for (uint32_t i = 0; !err && i < l->regions; i++)
        err = make_region(l, i, error);
    return err;
}

static int place(struct vb_loaded *l, const struct vb_image *image, char *error)
{
    uint32_t *numbers = calloc(l->queues + l->cqs + 1, sizeof *numbers);

    if (!numbers)
        return refuse(error, -ENOMEM, "program", image->name);
    for (uint32_t i = 0; i < l->queues; i++)
        numbers[i] = vb_qp_num(l->qp[i]);
    for (uint32_t i = 0; i < l->cqs; i++)
        numbers[l->queues + i] = vb_cq_num(l->cq[i]);
    vb_image_place(image, &(struct vb_image_binding){.send = l->send,
                                                     .recv = l->recv,
                                                     .data = l->data,
                                                     .qpn = numbers,
                                                     .cqn = numbers + l->queues,
                                                     .start = l->opts.start});
    free(numbers);
    for (uint32_t i = 0; i < l->queues; i++) {
        int err = l->queue[i].kind == VB_QUEUE_LOOP ? vb_qp_connect_self(l->qp[i], SELF_RIGHTS) : 0;
        if (err)
            return refuse(error, err, "queue", l->queue[i].name);
    }
    return 0;
}

// ---- life

struct vb_loaded *vb_loaded_create(struct vb_nic *nic, const struct vb_image *image,
                                   const struct vb_load_opts *opts)
{
    struct vb_loaded *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->nic = nic;
    l->opts = *opts;
    l->cq = calloc(image->cqs + 1, sizeof *l->cq);
    l->qp = calloc(image->queues + 1, sizeof *l->qp);
    l->code = calloc(image->queues + 1, sizeof *l->code);
    l->recv_code = calloc(image->queues + 1, sizeof *l->recv_code);
    l->mr = calloc(image->regions + 1, sizeof *l->mr);
    l->send = calloc(image->queues + 1, sizeof *l->send);
    l->recv = calloc(image->queues + 1, sizeof *l->recv);
    l->data = calloc(image->regions + 1, sizeof *l->data);
    l->queue = calloc(image->queues + 1, sizeof *l->queue);
    l->region = calloc(image->regions + 1, sizeof *l->region);
    if (!l->cq || !l->qp || !l->code || !l->recv_code || !l->mr || !l->send || !l->recv ||
        !l->data || !l->queue || !l->region) {
        vb_chain_unload(l);
        return NULL;
    }
    l->cqs = image->cqs;
    l->queues = image->queues;
    l->regions = image->regions;
    memcpy(l->queue, image->queue, image->queues * sizeof *l->queue);
    memcpy(l->region, image->region, image->regions * sizeof *l->region);
    return l;
}

static bool starts_right(const struct vb_image *image, uint64_t start)
{
    for (uint32_t i = 0; i < image->queues; i++)
        if (start % image->queue[i].blocks ||
            (image->queue[i].recvs && start % image->queue[i].recvs))
            return false;
    return true;
}

int vb_chain_load(struct vb_nic *nic, const struct vb_image *image, const struct vb_load_opts *opts,
                  struct vb_loaded **loaded, char *error)
{
    if (!vb_image_check(image, error))
        return -EINVAL;
    if (!starts_right(image, opts->start)) {
        snprintf(error, VB_IMAGE_TEXT,
                 "program '%s': its counters start at a multiple of every ring's size",
                 image->name);
        return -EINVAL;
    }
    struct vb_loaded *l = vb_loaded_create(nic, image, opts);
    if (!l)
        return refuse(error, -ENOMEM, "program", image->name);
    int err = make_all(l, image, error);
    if (!err)
        err = place(l, image, error);
    if (err) {
        vb_chain_unload(l);
        return err;
    }
    *loaded = l;
    return 0;
}

int vb_chain_start(struct vb_loaded *l)
{
    int err = 0;

    for (uint32_t i = 0; !err && i < l->queues; i++) {
        const struct vb_image_queue *q = &l->queue[i];
        if (q->recv_open)
            err = vb_qp_open(l->qp[i], true, l->opts.start + q->recv_open);
        if (!err && q->open)
            err = vb_qp_open(l->qp[i], false, l->opts.start + q->open);
    }
    return err;
}

void vb_chain_unload(struct vb_loaded *l)
{
    for (uint32_t i = 0; i < l->queues; i++) {
        if (l->qp[i])
            vb_qp_destroy(l->qp[i]);
        if (l->code[i])
            vb_mr_dereg(l->code[i]);
        if (l->recv_code[i])
            vb_mr_dereg(l->recv_code[i]);
    }
    for (uint32_t i = 0; i < l->regions; i++) {
        if (l->mr[i])
            vb_mr_dereg(l->mr[i]);
        give_room(l->nic, l->data[i].at, vb_loaded_room(&l->region[i]));
    }
    for (uint32_t i = 0; i < l->cqs; i++)
        if (l->cq[i])
            vb_cq_destroy(l->cq[i]);
    vb_loaded_free(l);
}

void vb_loaded_free(struct vb_loaded *l)
{
    free(l->cq);
    free(l->qp);
    free(l->code);
    free(l->recv_code);
    free(l->mr);
    free(l->send);
    free(l->recv);
    free(l->data);
    free(l->queue);
    free(l->region);
    free(l);
}

// ---- looking

struct vb_qp *vb_loaded_qp(struct vb_loaded *l, const char *queue)
{
    for (uint32_t i = 0; i < l->queues; i++)
        if (strcmp(l->queue[i].name, queue) == 0)
            return l->qp[i];
    return NULL;
}

void *vb_loaded_data(struct vb_loaded *l, const char *region)
{
    for (uint32_t i = 0; i < l->regions; i++)
        if (strcmp(l->region[i].name, region) == 0)
            return l->data[i].at;
    return NULL;
}

uint64_t vb_loaded_bytes(const struct vb_loaded *l)
{
    return l->bytes;
}

bool vb_loaded_has_failed(const struct vb_loaded *l)
{
    enum vb_qp_state state;

    for (uint32_t i = 0; i < l->queues; i++)
        if (vb_device_qp_state(l->nic, l->qp[i]->driver.qpn, &state) != 0 || state == VB_QPS_ERR)
            return true;
    return false;
}

uint64_t vb_loaded_requests(const struct vb_loaded *l)
{
    uint64_t sum = 0, produced;

    for (uint32_t i = 0; i < l->queues; i++)
        if (l->queue[i].kind == VB_QUEUE_PEER &&
            vb_device_cq_produced(l->nic, l->cq[l->queue[i].recv_cq]->cqn, &produced) == 0)
            sum += produced;
    return sum;
}
