// SPDX-License-Identifier: Apache-2.0
// Conditions in their cheapest form: entries that sleep as NOPs, and comparisons that wake them.
#include "chain/builder.h"

#include <string.h>

enum {
    OPERAND_BITS = 48,
};

// ---- building

struct vb_chain_label vb_chain_sleeper(struct vb_chain *c, struct vb_chain_queue queue,
                                       const struct vb_chain_op *op)
{
    struct vb_chain_label label = vb_chain_op(c, queue, op);
    struct vb_item *item = vb_build_item(c, label.id);

    if (item && op->flags & VB_CHAIN_SIGNALED)
        vb_build_fail(c, "entry '%s' sleeps, and a NOP would complete, too",
                      vb_build_label_name(c, label.id));
    else if (item)
        item->sleeps = true;
    return label;
}

struct vb_chain_label vb_chain_wake(struct vb_chain *c, struct vb_chain_queue queue,
                                    struct vb_chain_label sleeper, uint64_t equals,
                                    struct vb_place old)
{
    const struct vb_chain_op op = {.opcode = VB_WQE_ATOMIC_CS,
                                   .flags = VB_CHAIN_FENCE,
                                   .remote = vb_at(sleeper, VB_AT_CTRL),
                                   .compare = equals,
                                   .parts = 1,
                                   .part = {{old, 8}}};

    if (equals >> OPERAND_BITS)
        vb_build_fail(c, "entry '%s': an operand has %d bits", vb_build_label_name(c, sleeper.id),
                      OPERAND_BITS);
    struct vb_chain_label label = vb_chain_op(c, queue, &op);
    struct vb_item *item = vb_build_item(c, label.id);
    if (item)
        item->wakes = sleeper.id;
    return label;
}

struct vb_chain_label vb_chain_if(struct vb_chain *c, struct vb_chain_queue queue,
                                  const struct vb_chain_op *then, uint64_t equals,
                                  struct vb_place old)
{
    struct vb_chain_op op = *then;

    if (op.label.id == 0)
        op.label = vb_chain_label(c, NULL);
    vb_chain_wait(c, queue, vb_chain_wake(c, queue, op.label, equals, old));
    vb_chain_open(c, queue, (struct vb_chain_label){VB_BUILD_NEXT});
    return vb_chain_sleeper(c, queue, &op);
}

// ---- laying out

bool vb_build_opens_itself(const struct vb_chain *c, const struct vb_item *item)
{
    const struct vb_item *target = vb_build_item(c, item->target);

    return item->kind == VB_ITEM_OPEN &&
           (item->target >= VB_BUILD_NEXT || (target && target->queue == item->queue));
}

void vb_branch_targets(struct vb_chain *c)
{
    for (uint32_t i = 0; i < c->queues; i++)
        for (struct vb_item *item = c->queue[i].first; item; item = item->next) {
            const struct vb_item *to = item->next;
            if (item->target != VB_BUILD_NEXT)
                continue;
            while (to && to->next && to->slot == item->slot && !vb_build_opens_itself(c, to))
                to = to->next;
            item->target = !to || to->slot != item->slot ? VB_BUILD_REST : to->op.label.id;
        }
}

// The first eight bytes of an entry as the number that a CAS compares: little-endian.
static uint64_t word_of(const uint8_t ctrl[8])
{
    uint64_t word = 0;

    for (int i = 7; i >= 0; i--)
        word = word << 8 | ctrl[i];
    return word;
}

void vb_branch_hide(const struct vb_item *item, uint8_t *at)
{
    if (!item->sleeps)
        return;
    memset(at, 0, 7); // all but the length
    static_assert(VB_WQE_NOP == 0, "what is zero is a NOP");
}

static bool fill_compare(struct vb_chain *c, struct vb_item *item)
{
    const struct vb_item *sleeper = vb_build_item(c, item->wakes);
    uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES], operand[6];
    struct vb_code code;

    if (!sleeper || !sleeper->sleeps)
        return vb_build_fail(c, "entry '%s' is compared, but it does not sleep",
                             vb_build_label_name(c, item->wakes));
    for (uint32_t i = 0; i < sizeof operand; i++)
        operand[i] = (uint8_t)(item->op.compare >> 8 * (sizeof operand - 1 - i));
    vb_build_code(sleeper, &code);
    vb_code_write(bytes, &code, true);
    item->op.swap_add = word_of(bytes);
    vb_branch_hide(sleeper, bytes);
    memcpy(bytes, operand, 3);
    memcpy(bytes + 4, operand + 3, 3);
    item->op.compare = word_of(bytes);
    return true;
}

bool vb_branch_compare(struct vb_chain *c)
{
    for (uint32_t i = 0; i < c->queues; i++)
        for (struct vb_item *item = c->queue[i].first; item; item = item->next)
            if (item->wakes && !fill_compare(c, item))
                return false;
    return true;
}
