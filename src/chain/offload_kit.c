// SPDX-License-Identifier: Apache-2.0
// What the offloads share.
#include "chain/offload_kit.h"

static bool is_pow2(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

struct vb_chain *vb_offload_begin(struct vb_offload *o, const char *name, uint32_t slots,
                                  uint32_t value_max, uint32_t recv_sge, uint32_t entry_bytes,
                                  char *error)
{
    if (slots && (slots < 2 || !is_pow2(slots) || slots > VB_OFFLOAD_SLOTS_MAX)) {
        snprintf(error, VB_IMAGE_TEXT, "%s: %u slots, but they are a power of two from 2 to %d",
                 name, slots, VB_OFFLOAD_SLOTS_MAX);
        return NULL;
    }
    struct vb_chain *c = vb_chain_begin(name);
    if (!c) {
        snprintf(error, VB_IMAGE_TEXT, "no memory for the program");
        return NULL;
    }
    o->slots = slots ? slots : 1;
    o->value_max = value_max;
    o->w = vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){.ahead = slots});
    o->k =
        vb_chain_queue(c, "K", &(struct vb_chain_queue_opts){.peer = true, .recv_sge = recv_sge});
    o->index = vb_chain_region(c, "index", VB_CHAIN_SHARED, entry_bytes, false);
    o->items = vb_chain_region(c, "items", VB_CHAIN_SHARED, 1, false);
    o->client = vb_chain_region(c, "client", VB_CHAIN_PEER, (uint64_t)o->slots * value_max, true);
    o->scratch = vb_chain_region(c, "scratch", VB_CHAIN_OWN, 8, true);
    for (uint32_t n = 0; n < slots; n++)
        o->done[n] =
            vb_offload_ends_half(o, n) ? vb_offload_name(c, "done", n) : (struct vb_chain_label){0};
    return c;
}

void vb_offload_guard(struct vb_chain *c, const struct vb_offload *o, struct vb_chain_queue queue,
                      uint32_t n)
{
    if (n == 0 || vb_offload_ends_half(o, n - 1))
        vb_chain_guard(c, queue, o->done[n + o->slots / 2 - 1]);
}

void vb_offload_rearm(struct vb_chain *c, const struct vb_offload *o, uint32_t n)
{
    vb_offload_guard(c, o, o->w, n);
    if (vb_offload_ends_half(o, n))
        vb_chain_open_recv(c, o->w, o->k, n);
}

struct vb_chain_label vb_offload_compare(struct vb_chain *c, const struct vb_offload *o,
                                         struct vb_chain_queue queue, struct vb_chain_label victim,
                                         uint32_t ds, uint64_t swap, struct vb_chain_label label)
{
    return vb_chain_op(c, queue,
                       &(struct vb_chain_op){.opcode = VB_WQE_ATOMIC_CS,
                                             .label = label,
                                             .flags = VB_CHAIN_FENCE,
                                             .remote = vb_at(victim, VB_AT_CTRL),
                                             .compare = vb_offload_word(VB_WQE_NOP, ds),
                                             .swap_add = swap,
                                             .parts = 1,
                                             .part = {{vb_in(o->scratch, 0), 8}}});
}

void vb_offload_reply(struct vb_chain *c, const struct vb_offload *o, struct vb_chain_label through)
{
    vb_chain_add_flags(c, vb_chain_open(c, o->w, through), VB_CHAIN_FENCE);
}

struct vb_chain_op vb_offload_hit(const struct vb_offload *o, uint32_t slot)
{
    return (struct vb_chain_op){.opcode = VB_WQE_WRITE_IMM,
                                .remote = vb_in(o->client, (uint64_t)slot * o->value_max),
                                .parts = 1,
                                .part = {{vb_in(o->items, 0), 0}}};
}
