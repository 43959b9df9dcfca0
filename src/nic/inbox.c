// SPDX-License-Identifier: Apache-2.0
// Frames handed over between processing units.
#include "nic/inbox.h"

#include "wire/roce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vb_inbox_init(struct vb_inbox *box)
{
    memset(box, 0, sizeof *box);
    box->bytes = malloc((size_t)2 * VB_INBOX_FRAMES * VB_FRAME_MAX);
    return box->bytes ? 0 : -ENOMEM;
}

void vb_inbox_fini(struct vb_inbox *box)
{
    free(box->bytes);
    box->bytes = NULL;
}

bool vb_inbox_put(struct vb_inbox *box, const struct vb_rx_frame *frame)
{
    vb_spin_lock(&box->lock);
    uint32_t at = atomic_load_explicit(&box->waiting, memory_order_relaxed);
    bool room = at < VB_INBOX_FRAMES && frame->len <= VB_FRAME_MAX;
    if (room) {
        uint32_t head = frame->len < VB_FRAME_HEAD ? frame->len : VB_FRAME_HEAD;
        uint8_t *copy = box->bytes + (size_t)(box->filling * VB_INBOX_FRAMES + at) * VB_FRAME_MAX;
        memcpy(copy, frame->head, head); // the rest may be a peer's to change
        memcpy(copy + head, frame->data + head, frame->len - head);
        box->frame[box->filling][at] = (struct vb_rx_frame){.data = copy,
                                                            .head = copy,
                                                            .len = frame->len,
                                                            .src = frame->src,
                                                            .ip_word = frame->ip_word,
                                                            .to = frame->to};
        atomic_store_explicit(&box->waiting, at + 1, memory_order_seq_cst);
    }
    vb_spin_unlock(&box->lock);
    return room;
}

uint32_t vb_inbox_take(struct vb_inbox *box, const struct vb_rx_frame **frames)
{
    vb_spin_lock(&box->lock);
    uint32_t count = atomic_load_explicit(&box->waiting, memory_order_relaxed);
    *frames = box->frame[box->filling];
    box->filling ^= 1;
    atomic_store_explicit(&box->waiting, 0, memory_order_relaxed);
    vb_spin_unlock(&box->lock);
    return count;
}
