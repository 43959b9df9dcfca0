// SPDX-License-Identifier: Apache-2.0
// A program that runs on a NIC, as text.
#include "chain/text.h"
#include "host/device.h"
#include "host/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_image_of(const struct vb_loaded *l, const struct vb_image *image)
{
    if (image->queues != l->queues || image->regions != l->regions || image->cqs != l->cqs)
        return false;
    for (uint32_t i = 0; i < l->queues; i++)
        if (strcmp(image->queue[i].name, l->queue[i].name) != 0 ||
            image->queue[i].blocks != l->queue[i].blocks ||
            image->queue[i].recvs != l->queue[i].recvs ||
            image->queue[i].recv_stride != l->queue[i].recv_stride)
            return false;
    for (uint32_t i = 0; i < l->regions; i++)
        if (strcmp(image->region[i].name, l->region[i].name) != 0 ||
            image->region[i].kind != l->region[i].kind ||
            image->region[i].bytes != l->region[i].bytes)
            return false;
    return true;
}

// All of these need the locks: the NIC is at rest.

static struct vb_image *take(struct vb_loaded *l, const struct vb_image *image)
{
    uint32_t *numbers = calloc(l->queues + l->cqs + 1, sizeof *numbers);

    if (!numbers)
        return NULL;
    for (uint32_t i = 0; i < l->queues; i++)
        numbers[i] = vb_qp_num(l->qp[i]);
    for (uint32_t i = 0; i < l->cqs; i++)
        numbers[l->queues + i] = vb_cq_num(l->cq[i]);
    const struct vb_image_binding binding = {.send = l->send,
                                             .recv = l->recv,
                                             .data = l->data,
                                             .qpn = numbers,
                                             .cqn = numbers + l->queues,
                                             .start = l->opts.start};
    struct vb_image *now = vb_image_snapshot(image, &binding);
    free(numbers);
    return now;
}

static void print_queue(FILE *out, struct vb_loaded *l, uint32_t i)
{
    struct vb_qp_progress p;
    enum vb_qp_state state;
    uint32_t qpn = vb_qp_num(l->qp[i]);

    if (vb_device_qp_progress(l->nic, qpn, &p) != 0 || vb_device_qp_state(l->nic, qpn, &state) != 0)
        return;
    fprintf(out,
            "# queue %s: %s; blocks open before %" PRIu64 ", fetched before %" PRIu64
            ", executed before %" PRIu64,
            l->queue[i].name, vb_qp_state_name(state), p.send_open, p.fetched, p.begun);
    if (l->queue[i].recvs)
        fprintf(out, "; receives open before %" PRIu64 ", taken before %" PRIu64, p.recv_open,
                p.recv_taken);
    fputc('\n', out);
}

static void print_counters(FILE *out, struct vb_loaded *l, const struct vb_image *image)
{
    for (uint32_t i = 0; i < l->queues; i++)
        print_queue(out, l, i);
    for (uint32_t i = 0; i < l->cqs; i++) {
        uint64_t produced = 0;
        vb_device_cq_produced(l->nic, vb_cq_num(l->cq[i]), &produced);
        fprintf(out, "# cq %s: %" PRIu64 " completions\n", image->cq[i].name, produced);
    }
    fprintf(out, "# counters began at %" PRIu64 "\n\n", l->opts.start);
}

char *vb_chain_dump(struct vb_loaded *l, const struct vb_image *image, char *error)
{
    char *all = NULL, *text = NULL;
    size_t len = 0;

    if (vb_host_is_foreign(l->nic) || !is_image_of(l, image)) {
        snprintf(error, VB_IMAGE_TEXT, "program '%s' was not loaded here from this image",
                 image->name);
        return NULL;
    }
    FILE *out = open_memstream(&all, &len);
    struct vb_image *now = NULL;
    if (out) {
        vb_host_lock(l->nic);
        now = take(l, image);
        print_counters(out, l, image);
        vb_host_unlock(l->nic);
    }
    if (now)
        text = vb_dis(now);
    if (text)
        fputs(text, out);
    bool right = out && fclose(out) == 0 && text;
    free(text);
    vb_image_destroy(now);
    if (right)
        return all;
    free(all);
    snprintf(error, VB_IMAGE_TEXT, "program '%s': out of memory", image->name);
    return NULL;
}
