// SPDX-License-Identifier: Apache-2.0
// Programs that run in circles. The NIC's counters never start again, so every WAIT and every
// opening entry must name a greater number in the next round: a program counts in memory of its own
// what each of its entries is to name.
//
// The last part of a slot does that for the next slot, which is not open yet: an entry that may
// already have been fetched is never written. Each index has one masked addition, a field of 24
// bits (completion queues) or of 16 (work queues). Memory counts little-endian, and entries are
// big-endian; but the answer of an atomic, what was there before, comes big-endian to a queue that
// asks for that, and goes into the index as it is. So counters are a round ahead. A READ brings
// back the bytes that the last round has changed.
//
// Of a queue that goes ahead the first part of a slot is opened while the slot before runs. So it
// is brought up to date one slot earlier.
#include "chain/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNTER_BYTES = 4,
    END_BYTES = 8, // behind the last counter: a NIC need not look twice whether it is the last
};

// What a slot counts: the indices of these entries, one counter each, and what it restores.
struct slot {
    struct vb_item **item;
    uint32_t items, first; // `first` of them in the slot's first part
    uint32_t base;         // bytes, among the queue's
};

static uint32_t bits_of(const struct vb_item *item)
{
    return item->kind == VB_ITEM_OPEN || item->kind == VB_ITEM_OPEN_RECV ? 16 : 24;
}

static bool counts(const struct vb_item *item)
{
    return item->kind != VB_ITEM_OP && !item->manual;
}

static struct vb_item *last_of(const struct vb_build_queue *q, uint32_t slot)
{
    struct vb_item *last = NULL;

    for (struct vb_item *item = q->first; item; item = item->next)
        if (item->slot == slot)
            last = item;
    return last;
}

static uint32_t next_slot(const struct vb_build_queue *q, uint32_t slot)
{
    return slot == q->slots ? 1 : slot + 1;
}

// ---- memory

static bool collect(struct vb_chain *c, const struct vb_build_queue *q, uint32_t slot,
                    struct slot *s)
{
    for (struct vb_item *item = q->first; item; item = item->next)
        s->items += item->slot == slot && counts(item);
    s->item = calloc(s->items, sizeof(struct vb_item *));
    if (!s->item)
        return vb_build_fail(c, "no memory for the program");
    uint32_t n = 0;
    for (struct vb_item *item = q->first; item; item = item->next) {
        if (item->slot == slot && counts(item))
            s->item[n++] = item;
        if (item->op.label.id == q->ready[slot - 1])
            s->first = n;
    }
    return true;
}

static uint32_t counter_at(const struct slot *s, uint32_t n)
{
    return s->base + n * COUNTER_BYTES;
}

// Whether the bytes are restored together with the slot's counters, behind which they lie.
static bool comes_with(const struct vb_build_queue *q, const struct vb_restore *r, uint32_t slot)
{
    return (r->after ? next_slot(q, r->slot) : r->slot) == slot;
}

static uint32_t restored_at(const struct slot *s)
{
    return (counter_at(s, s->items) + 7) / 8 * 8;
}

static uint32_t end_of(const struct vb_build_queue *q, uint32_t slot, const struct slot *s)
{
    uint32_t bytes = restored_at(s);

    for (uint32_t i = 0; i < q->restores; i++)
        bytes += comes_with(q, &q->restore[i], slot) ? q->restore[i].len : 0;
    return (bytes + 7) / 8 * 8;
}

// ---- the entries that do it

// Counters of slot s into their entries. What they grow by is filled in when all numbers are known.
static bool add_counters(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s,
                         uint32_t from, uint32_t end, struct vb_item **after)
{
    const struct vb_chain_region counters = {c->queue[queue - 1].counters};

    for (uint32_t i = from; i < end; i++) {
        const struct vb_chain_op op = {
            .opcode = VB_WQE_MASKED_FA,
            .arg_bytes = COUNTER_BYTES,
            .remote = vb_in(counters, counter_at(s, i)),
            .parts = 1,
            .part = {{vb_at(s->item[i]->op.label, VB_AT_INDEX), COUNTER_BYTES}}};
        *after = vb_build_insert(
            c, queue, *after,
            &(struct vb_item){
                .kind = VB_ITEM_OP, .op = op, .slot = slot, .counts = s->item[i]->op.label.id});
        if (!*after)
            return false;
    }
    return true;
}

static bool flush_copy(struct vb_chain *c, uint32_t queue, uint32_t slot, struct vb_chain_op *op,
                       struct vb_item **after)
{
    if (op->parts == 0)
        return true;
    *after = vb_build_insert(c, queue, *after,
                             &(struct vb_item){.kind = VB_ITEM_OP, .op = *op, .slot = slot});
    op->parts = 0;
    return *after != NULL;
}

static bool copy_restored(struct vb_chain *c, uint32_t queue, uint32_t slot, uint32_t of,
                          const struct slot *s, struct vb_item **after)
{
    const struct vb_build_queue *q = &c->queue[queue - 1];
    struct vb_chain_op op = {.opcode = VB_WQE_READ};
    uint32_t at = restored_at(s);

    for (uint32_t i = 0; i < q->restores; i++) {
        const struct vb_restore *r = &q->restore[i];
        if (!comes_with(q, r, of))
            continue;
        if (op.parts == VB_MAX_SGE && !flush_copy(c, queue, slot, &op, after))
            return false;
        if (op.parts == 0)
            op.remote = vb_in((struct vb_chain_region){q->counters}, at);
        op.part[op.parts++] = (struct vb_part){r->at, r->len};
        at += r->len;
    }
    return flush_copy(c, queue, slot, &op, after);
}

// ---- inserting

// The last part of a slot: waits for guards, brings `next` up to date, and opens it when that is
// done, unless the slot has done so itself. What brings it up to date comes before the last entry,
// once all slots are known.
static void insert_end(struct vb_chain *c, uint32_t queue, uint32_t slot)
{
    struct vb_build_queue *q = &c->queue[queue - 1];
    uint32_t next = next_slot(q, slot);
    struct vb_item *after = last_of(q, slot);

    for (uint32_t i = 0; i < q->guards; i++) {
        if (q->guard[i].slot != next)
            continue;
        // Of the round before: the last one that ran through that slot.
        after = vb_build_insert(c, queue, after,
                                &(struct vb_item){.kind = VB_ITEM_WAIT,
                                                  .op = {.opcode = VB_WQE_WAIT},
                                                  .slot = slot,
                                                  .target = q->guard[i].label,
                                                  .lap = next == 1 ? 0 : -1});
    }
    if (q->opts.ahead)
        return;
    after =
        vb_build_insert(c, queue, after,
                        &(struct vb_item){.kind = VB_ITEM_OPEN,
                                          .op = {.opcode = VB_WQE_SEND_EN, .flags = VB_CHAIN_FENCE},
                                          .slot = slot,
                                          .lap = next == 1 ? 1 : 0});
    if (!after)
        return;
    if (q->ready[slot - 1] == 0)
        q->ready[slot - 1] = after->op.label.id;
    for (struct vb_item *item = q->first; item; item = item->next)
        if (item->slot == slot && item->target == VB_BUILD_REST)
            item->target = after->op.label.id;
}

// The last entry of each slot opens the next one as far as it is ready; or those that open the rest
// of the slot do. What they open was brought up to date before the fence of the slot's first one.
static void aim_ends(struct vb_chain *c, struct vb_build_queue *q)
{
    for (uint32_t s = 1; s <= q->slots; s++)
        if (q->opts.ahead)
            vb_build_item(c, q->ready[s - 1])->op.flags |= VB_CHAIN_FENCE;
        else
            last_of(q, s)->target = q->ready[next_slot(q, s) - 1];
    for (struct vb_item *item = q->first; item; item = item->next)
        if (item->target == VB_BUILD_REST) {
            uint32_t next = next_slot(q, item->slot);
            item->target = q->ready[next - 1];
            item->lap = next == 1;
        }
}

// The entry before the last one of a slot.
static struct vb_item *before_last(const struct vb_build_queue *q, uint32_t slot)
{
    struct vb_item *last = last_of(q, slot), *item = q->first;

    while (item->next != last)
        item = item->next;
    return item;
}

static bool insert_update(struct vb_chain *c, uint32_t queue, uint32_t slot,
                          const struct slot *slots)
{
    const struct vb_build_queue *q = &c->queue[queue - 1];
    uint32_t next = next_slot(q, slot), later = next_slot(q, next);
    const struct slot *s = &slots[next - 1];
    struct vb_item *after = q->opts.ahead ? last_of(q, slot) : before_last(q, slot);

    if (!q->opts.ahead)
        return add_counters(c, queue, slot, s, 0, s->items, &after) &&
               copy_restored(c, queue, slot, next, s, &after);
    return add_counters(c, queue, slot, s, s->first, s->items, &after) &&
           add_counters(c, queue, slot, &slots[later - 1], 0, slots[later - 1].first, &after) &&
           copy_restored(c, queue, slot, next, s, &after);
}

static bool make_region(struct vb_chain *c, uint32_t queue, uint32_t bytes)
{
    struct vb_build_queue *q = &c->queue[queue - 1];
    char name[sizeof q->name + sizeof "_counters"];

    snprintf(name, sizeof name, "%s_counters", q->name);
    q->counters = vb_chain_region(c, name, VB_CHAIN_OWN, bytes + END_BYTES, true).id;
    return !vb_build_failed(c);
}

static bool opens_rest(const struct vb_build_queue *q, uint32_t slot)
{
    for (const struct vb_item *item = q->first; item; item = item->next)
        if (item->slot == slot && item->target == VB_BUILD_REST)
            return true;
    return false;
}

// Finds the entries that end the slots' first parts.
static bool slots_are_right(struct vb_chain *c, struct vb_build_queue *q)
{
    if (q->slots < 2)
        return vb_build_fail(c, "queue '%s': a program that runs in circles needs two slots",
                             q->name);
    for (uint32_t s = 1; s <= q->slots; s++)
        if (!last_of(q, s))
            return vb_build_fail(c, "queue '%s': slot %u has no entries", q->name, s);
    for (struct vb_item *item = q->first; item; item = item->next) {
        if (vb_build_opens_itself(c, item) && q->ready[item->slot - 1] == 0)
            q->ready[item->slot - 1] = item->op.label.id;
    }
    for (uint32_t s = 1; s <= q->slots; s++)
        if (q->opts.ahead && !opens_rest(q, s))
            return vb_build_fail(c, "queue '%s' goes ahead, but slot %u does not open its rest",
                                 q->name, s);
    return true;
}

static bool insert_rounds(struct vb_chain *c, uint32_t queue, struct slot *slots)
{
    uint32_t count = c->queue[queue - 1].slots, bytes = 0;

    for (uint32_t s = 1; s <= count; s++)
        insert_end(c, queue, s);
    aim_ends(c, &c->queue[queue - 1]);
    for (uint32_t s = 1; s <= count; s++) {
        if (!collect(c, &c->queue[queue - 1], s, &slots[s - 1]))
            return false;
        slots[s - 1].base = bytes;
        bytes = end_of(&c->queue[queue - 1], s, &slots[s - 1]);
    }
    if (!make_region(c, queue, bytes))
        return false;
    for (uint32_t s = 1; s <= count; s++)
        if (!insert_update(c, queue, s, slots))
            return false;
    return true;
}

static void free_slots(struct slot *slots, uint32_t count)
{
    for (uint32_t i = 0; slots && i < count; i++)
        free(slots[i].item);
    free(slots);
}

bool vb_rounds_insert(struct vb_chain *c)
{
    for (uint32_t i = 1; i <= c->queues; i++) {
        struct vb_build_queue *q = &c->queue[i - 1];
        if (q->slots == 0)
            continue;
        if (!slots_are_right(c, q))
            return false;
        struct slot *slots = calloc(q->slots, sizeof *slots);
        bool made =
            slots ? insert_rounds(c, i, slots) : vb_build_fail(c, "no memory for the program");
        free_slots(slots, q->slots);
        if (!made)
            return false;
    }
    return true;
}

// ---- numbers

static enum vb_reloc_kind count_kind(const struct vb_item *item)
{
    switch (item->kind) {
    case VB_ITEM_OPEN: return VB_RELOC_SEND_COUNT;
    case VB_ITEM_OPEN_RECV: return VB_RELOC_RECV_COUNT;
    default: return VB_RELOC_CQ_COUNT;
    }
}

static void set_count(struct vb_chain *c, uint32_t region, uint32_t offset,
                      const struct vb_item *item, uint32_t value, uint32_t target)
{
    struct vb_build_count *a = vb_build_more(c, c->count, &c->counts, sizeof *a);
    if (!a)
        return;
    c->count = a;
    a[c->counts - 1] = (struct vb_build_count){.region = region,
                                               .offset = offset,
                                               .kind = count_kind(item),
                                               .target = target,
                                               .value = value,
                                               .bytes = bits_of(item) / 8};
}

// Every entry is right as it is for its first round, so a counter, whose former value is written,
// starts from the first round that it is written for: this one, or the next if its entry is passed
// before the addition is.
static void number_additions(struct vb_chain *c, const struct vb_build_queue *q)
{
    for (struct vb_item *add = q->first; add; add = add->next) {
        const struct vb_item *item = vb_build_item(c, add->counts);
        if (!item)
            continue;
        uint32_t grows, value = vb_build_index(c, item, &grows), end = 1u << (bits_of(item) - 1);
        add->op.swap_add = grows & (2 * end - 1);
        add->op.compare = end;
        set_count(c, q->counters, (uint32_t)add->op.remote.offset, item,
                  (add->slot < item->slot ? value : value + grows) & (2 * end - 1),
                  vb_build_counter(c, item));
    }
}

// What restored bytes are at first: as the entries have them.
static void keep_restored(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s)
{
    const struct vb_build_queue *q = &c->queue[queue - 1];
    uint32_t at = restored_at(s);

    for (uint32_t i = 0; i < q->restores; i++) {
        const struct vb_restore *r = &q->restore[i];
        uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
        const struct vb_item *item = vb_build_item(c, r->at.label.id);
        struct vb_code code;
        uint32_t len;
        if (!comes_with(q, r, slot))
            continue;
        if (!item) {
            vb_build_fail(c, "what is restored is a field of an entry");
            return;
        }
        vb_build_code(item, &code);
        int offset = vb_code_field(&code, (enum vb_field)r->at.field, r->at.n, &len);
        if (offset < 0 || r->at.offset + r->len > len) {
            vb_build_fail(c, "entry '%s': %u bytes of '%s' cannot be restored",
                          vb_build_label_name(c, r->at.label.id), r->len,
                          vb_field_name((enum vb_field)r->at.field));
            return;
        }
        vb_build_write(item, &code, bytes);
        vb_chain_put(c, vb_in((struct vb_chain_region){q->counters}, at),
                     bytes + offset + r->at.offset, r->len);
        at += r->len;
    }
}

// What the program counts by itself.
static void number_manual(struct vb_chain *c)
{
    for (uint32_t i = 0; i < c->manuals; i++) {
        const struct vb_build_manual *m = &c->manual[i];
        const struct vb_item *item = vb_build_item(c, m->label);
        uint32_t grows;
        if (item->kind == VB_ITEM_OP)
            vb_build_fail(c, "entry '%s' has no index to count", vb_build_label_name(c, m->label));
        else
            set_count(c, m->at.region.id, (uint32_t)m->at.offset, item,
                      vb_build_index(c, item, &grows), vb_build_counter(c, item));
    }
}

bool vb_rounds_number(struct vb_chain *c)
{
    number_manual(c);
    for (uint32_t i = 1; i <= c->queues; i++) {
        const struct vb_build_queue *q = &c->queue[i - 1];
        uint32_t bytes = 0;
        number_additions(c, q);
        for (uint32_t s = 1; s <= q->slots; s++) {
            struct slot slot = {.base = bytes};
            if (collect(c, q, s, &slot))
                keep_restored(c, i, s, &slot);
            bytes = end_of(q, s, &slot);
            free(slot.item);
        }
    }
    return !vb_build_failed(c);
}
