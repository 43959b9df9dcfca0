// SPDX-License-Identifier: Apache-2.0
// Programs that run in circles. The NIC's counters never start again, so every WAIT and every
// opening entry must name a greater number in the next round: a program adds to a copy of the
// numbers, and copies them into its entries.
//
// The last part of a slot does that for the next slot, which is not open yet: an entry that may
// already have been fetched is never written. One masked addition brings several counters forward,
// fields of 24 bits (completion queues) and of 16 (work queues) packed into words; one READ takes
// them, byte by byte because entries are big-endian, to where they belong, together with bytes that
// the last round has changed.
#include "chain/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS_MAX = 64, // of the counters of a slot
    WORD_BYTES = 8,
};

// A counter of a slot.
struct field {
    struct vb_item *item;
    uint32_t bits;
    uint32_t offset; // bytes, among the slot's counters
};

struct slot {
    struct field *field;
    uint32_t fields;
    uint32_t words, base;         // base: bytes, among the queue's counters
    struct vb_item **add, **copy; // entries that bring it up to date
    uint32_t adds, copies;
};

static uint32_t bits_of(const struct vb_item *item)
{
    return item->kind == VB_ITEM_OPEN || item->kind == VB_ITEM_OPEN_RECV ? 16 : 24;
}

static bool counts(const struct vb_item *item)
{
    return item->kind != VB_ITEM_OP && !item->manual;
}

static struct vb_item *label_item(const struct vb_chain *c, uint32_t label)
{
    return label && label <= c->labels ? c->label[label - 1].item : NULL;
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

// ---- packing

static int wide_first(const void *a, const void *b)
{
    const struct field *x = a, *y = b;
    return x->bits < y->bits ? 1 : x->bits > y->bits ? -1 : 0;
}

// Fields of one word, one behind the other. Returns how many bytes they take.
static uint32_t pack_word(struct slot *s, uint32_t *wide, uint32_t wides, uint32_t *narrow)
{
    uint32_t used = 0, base = s->words * WORD_BYTES;

    for (; *wide < wides && used + 3 <= WORD_BYTES; used += 3)
        s->field[(*wide)++].offset = base + used;
    for (; *narrow < s->fields && used + 2 <= WORD_BYTES; used += 2)
        s->field[(*narrow)++].offset = base + used;
    s->words++;
    return used;
}

// Two wide fields and a narrow one fill a word. The one that is not filled comes first, with its
// fields at the end: then there are no holes, and one READ takes all, and what is restored.
static void pack(struct slot *s)
{
    uint32_t wides = 0, wide = 0, used = WORD_BYTES;

    qsort(s->field, s->fields, sizeof *s->field, wide_first);
    while (wides < s->fields && s->field[wides].bits == 24)
        wides++;
    uint32_t narrow = wides;
    while (wide < wides || narrow < s->fields)
        used = pack_word(s, &wide, wides, &narrow);
    for (uint32_t i = 0; i < s->fields; i++)
        s->field[i].offset += s->field[i].offset / WORD_BYTES + 1 < s->words
                                  ? WORD_BYTES
                                  : 2 * WORD_BYTES - used - s->words * WORD_BYTES;
}

static bool collect(struct vb_chain *c, const struct vb_build_queue *q, uint32_t slot,
                    struct slot *s)
{
    for (struct vb_item *item = q->first; item; item = item->next)
        s->fields += item->slot == slot && counts(item);
    s->field = calloc(s->fields + 1, sizeof *s->field);
    if (!s->field)
        return vb_build_fail(c, "no memory for the program");
    uint32_t n = 0;
    for (struct vb_item *item = q->first; item; item = item->next)
        if (item->slot == slot && counts(item))
            s->field[n++] = (struct field){.item = item, .bits = bits_of(item)};
    pack(s);
    if (s->words > WORDS_MAX)
        return vb_build_fail(c, "queue '%s': a slot has more than %d words of counters", q->name,
                             WORDS_MAX);
    return true;
}

// ---- the entries that do it

// Bytes on their way from the counters into entries, in the order of their source.
struct haul {
    struct vb_chain_op op;
    uint32_t from, next; // source bytes
};

static bool flush_haul(struct vb_chain *c, uint32_t queue, uint32_t slot, struct haul *h,
                       struct vb_item **after)
{
    if (h->op.parts == 0)
        return true;
    h->op.opcode = VB_WQE_READ;
    h->op.flags = VB_CHAIN_FENCE;
    h->op.label.id = 0;
    h->op.remote = vb_in((struct vb_chain_region){c->queue[queue - 1].counters}, h->from);
    *after = vb_build_insert(c, queue, *after,
                             &(struct vb_item){.kind = VB_ITEM_OP, .op = h->op, .slot = slot});
    h->op.parts = 0;
    return *after != NULL;
}

static bool haul_bytes(struct vb_chain *c, uint32_t queue, uint32_t slot, struct haul *h,
                       uint32_t from, struct vb_place to, uint32_t len, struct vb_item **after)
{
    uint32_t gap = h->op.parts > 0 ? from - h->next : 0;

    // Bytes between that nobody wants are cheaper than another READ.
    if (gap && gap <= WORD_BYTES && h->op.parts + 2 <= VB_MAX_SGE) {
        struct vb_place nowhere = vb_in((struct vb_chain_region){c->queue[queue - 1].scratch}, 0);
        h->op.part[h->op.parts++] = (struct vb_part){nowhere, gap};
    } else if (gap || h->op.parts == VB_MAX_SGE) {
        if (!flush_haul(c, queue, slot, h, after))
            return false;
    }
    if (h->op.parts == 0)
        h->from = from;
    h->op.part[h->op.parts++] = (struct vb_part){to, len};
    h->next = from + len;
    return true;
}

static const struct field *field_at(const struct slot *s, uint32_t offset)
{
    for (uint32_t i = 0; i < s->fields; i++)
        if (offset >= s->field[i].offset && offset < s->field[i].offset + s->field[i].bits / 8)
            return &s->field[i];
    return NULL;
}

// The counters' bytes, lowest first, into the index fields, where the lowest comes last.
static bool copy_counters(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s,
                          struct haul *h, struct vb_item **after)
{
    for (uint32_t at = 0; at < s->words * WORD_BYTES; at++) {
        const struct field *f = field_at(s, at);
        if (!f)
            continue;
        struct vb_place to = vb_at(f->item->op.label, VB_AT_INDEX);
        to.offset = 3 - (at - f->offset);
        if (!haul_bytes(c, queue, slot, h, s->base + at, to, 1, after))
            return false;
    }
    return true;
}

// Whether the bytes are restored together with the slot's counters.
static bool comes_with(const struct vb_build_queue *q, const struct vb_restore *r, uint32_t slot)
{
    return (r->after ? next_slot(q, r->slot) : r->slot) == slot;
}

// They lie behind the counters.
static bool copy_restored(struct vb_chain *c, uint32_t queue, uint32_t slot, uint32_t of,
                          const struct slot *s, struct haul *h, struct vb_item **after)
{
    const struct vb_build_queue *q = &c->queue[queue - 1];
    uint32_t at = s->base + s->words * WORD_BYTES;

    for (uint32_t i = 0; i < q->restores; i++) {
        if (!comes_with(q, &q->restore[i], of))
            continue;
        if (!haul_bytes(c, queue, slot, h, at, q->restore[i].at, q->restore[i].len, after))
            return false;
        at += q->restore[i].len;
    }
    return true;
}

static uint32_t restored_bytes(const struct vb_build_queue *q, uint32_t slot)
{
    uint32_t bytes = 0;

    for (uint32_t i = 0; i < q->restores; i++)
        bytes += comes_with(q, &q->restore[i], slot) ? q->restore[i].len : 0;
    return bytes;
}

static bool add_words(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s,
                      struct vb_item **after)
{
    const struct vb_build_queue *q = &c->queue[queue - 1];

    for (uint32_t w = 0; w < s->words; w++) {
        const struct vb_chain_op op = {
            .opcode = VB_WQE_MASKED_FA,
            .arg_bytes = 8,
            .remote = vb_in((struct vb_chain_region){q->counters}, s->base + w * WORD_BYTES),
            .parts = 1,
            .part = {{vb_in((struct vb_chain_region){q->scratch}, 0), 8}}};
        *after = vb_build_insert(
            c, queue, *after,
            &(struct vb_item){.kind = VB_ITEM_OP, .op = op, .slot = slot, .n = w + 1});
        if (!*after)
            return false;
    }
    return true;
}

// ---- inserting

// The last part of a slot: waits for guards, brings `next` up to date, and opens it. Additions and
// copies come between `guards_end` and the wait, once all slots are known.
static bool insert_end(struct vb_chain *c, uint32_t queue, uint32_t slot)
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
        if (!after)
            return false;
    }
    // Its target is filled in when the last copy is known.
    after = vb_build_insert(
        c, queue, after,
        &(struct vb_item){.kind = VB_ITEM_WAIT, .op = {.opcode = VB_WQE_WAIT}, .slot = slot});
    if (!after)
        return false;
    after = vb_build_insert(c, queue, after,
                            &(struct vb_item){.kind = VB_ITEM_OPEN,
                                              .op = {.opcode = VB_WQE_SEND_EN},
                                              .slot = slot,
                                              .lap = next == 1 ? 1 : 0});
    if (after && q->ready[slot - 1] == 0)
        q->ready[slot - 1] = after->op.label.id;
    for (struct vb_item *item = q->first; after && item; item = item->next)
        if (item->slot == slot && item->target == VB_BUILD_REST)
            item->target = after->op.label.id;
    return after != NULL;
}

// The last entry of each slot opens the next one as far as it is ready.
static void aim_ends(struct vb_build_queue *q)
{
    for (uint32_t s = 1; s <= q->slots; s++)
        last_of(q, s)->target = q->ready[next_slot(q, s) - 1];
}

// The entry before the wait that ends the slot.
static struct vb_item *before_wait(const struct vb_build_queue *q, uint32_t slot,
                                   struct vb_item **wait)
{
    struct vb_item *before = NULL, *at = NULL;

    for (struct vb_item *item = q->first; item && item->next; item = item->next)
        if (item->slot == slot && item->next->slot == slot && item->next->kind == VB_ITEM_WAIT &&
            item->next->target == 0) {
            before = item;
            at = item->next;
        }
    *wait = at;
    return before;
}

static bool insert_update(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s)
{
    struct vb_build_queue *q = &c->queue[queue - 1];
    uint32_t next = next_slot(q, slot);
    struct vb_item *wait, *after = before_wait(q, slot, &wait);
    struct haul h = {.from = 0};

    if (!add_words(c, queue, slot, s, &after) || !copy_counters(c, queue, slot, s, &h, &after) ||
        !copy_restored(c, queue, slot, next, s, &h, &after) ||
        !flush_haul(c, queue, slot, &h, &after))
        return false;
    wait->target = after->op.label.id;
    return true;
}

static bool make_regions(struct vb_chain *c, uint32_t queue, uint32_t bytes)
{
    struct vb_build_queue *q = &c->queue[queue - 1];
    char name[VB_IMAGE_NAME + 16];

    snprintf(name, sizeof name, "%s_counters", q->name);
    q->counters = vb_chain_region(c, name, VB_CHAIN_OWN, bytes, true).id;
    snprintf(name, sizeof name, "%s_scratch", q->name);
    q->scratch = vb_chain_region(c, name, VB_CHAIN_OWN, WORD_BYTES, true).id;
    return c->error[0] == 0;
}

// Finds the entries that end the slots' first parts.
static bool slots_are_right(struct vb_chain *c, struct vb_build_queue *q)
{
    if (q->slots < 2)
        return vb_build_fail(c, "queue '%s': a program that runs in circles needs two slots",
                             q->name);
    for (struct vb_item *item = q->first; item; item = item->next) {
        if (vb_build_opens_itself(c, item) && q->ready[item->slot - 1] == 0)
            q->ready[item->slot - 1] = item->op.label.id;
    }
    return true;
}

static bool insert_rounds(struct vb_chain *c, uint32_t queue, struct slot *slots)
{
    uint32_t count = c->queue[queue - 1].slots, bytes = 0;

    for (uint32_t s = 1; s <= count; s++)
        if (!insert_end(c, queue, s))
            return false;
    aim_ends(&c->queue[queue - 1]);
    for (uint32_t s = 1; s <= count; s++) {
        if (!collect(c, &c->queue[queue - 1], s, &slots[s - 1]))
            return false;
        slots[s - 1].base = bytes;
        bytes += slots[s - 1].words * WORD_BYTES;
        bytes += (restored_bytes(&c->queue[queue - 1], s) + 7) / 8 * 8;
    }
    if (!make_regions(c, queue, bytes))
        return false;
    for (uint32_t s = 1; s <= count; s++)
        if (!insert_update(c, queue, s, &slots[next_slot(&c->queue[queue - 1], s) - 1]))
            return false;
    return true;
}

static void free_slots(struct slot *slots, uint32_t count)
{
    for (uint32_t i = 0; slots && i < count; i++)
        free(slots[i].field);
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

static bool set_count(struct vb_chain *c, uint32_t region, uint32_t offset,
                      const struct vb_item *item, uint32_t value, uint32_t target)
{
    struct vb_build_count *a = vb_build_more(c, c->count, &c->counts, sizeof *a);
    if (!a)
        return false;
    c->count = a;
    a[c->counts - 1] = (struct vb_build_count){.region = region,
                                               .offset = offset,
                                               .kind = count_kind(item),
                                               .target = target,
                                               .value = value,
                                               .bytes = bits_of(item) / 8};
    return true;
}

// What a counter is of: a queue, or its completion queue for sends or for receives.
static uint32_t count_target(const struct vb_chain *c, const struct vb_item *item)
{
    switch (item->kind) {
    case VB_ITEM_WAIT: return 2 * (label_item(c, item->target)->queue - 1);
    case VB_ITEM_WAIT_RECV: return 2 * (item->queue_target - 1) + 1;
    case VB_ITEM_HALT: return 2 * (item->queue - 1);
    case VB_ITEM_OPEN: return label_item(c, item->target)->queue - 1;
    default: return item->queue_target - 1;
    }
}

// The first slot's entries are right as they are; the others' are brought up to date before they
// run for the first time, so their counters start one round earlier.
static bool number_slot(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s)
{
    uint64_t add[WORDS_MAX] = {0}, end[WORDS_MAX] = {0};

    for (uint32_t i = 0; i < s->fields; i++) {
        const struct field *f = &s->field[i];
        uint32_t grows, value = vb_build_index(c, f->item, &grows);
        uint32_t word = f->offset / WORD_BYTES, shift = f->offset % WORD_BYTES * 8;
        uint64_t mask = (1ull << f->bits) - 1;
        add[word] |= (grows & mask) << shift;
        end[word] |= 1ull << (shift + f->bits - 1);
        if (!set_count(c, c->queue[queue - 1].counters, s->base + f->offset, f->item,
                       (slot == 1 ? value : value - grows) & (uint32_t)mask,
                       count_target(c, f->item)))
            return false;
    }
    uint32_t before = slot == 1 ? c->queue[queue - 1].slots : slot - 1;
    for (struct vb_item *item = c->queue[queue - 1].first; item; item = item->next)
        if (item->slot == before && item->op.opcode == VB_WQE_MASKED_FA && item->n > 0) {
            item->op.swap_add = add[item->n - 1];
            item->op.compare = end[item->n - 1];
        }
    return true;
}

// What restored bytes are at first: as the entries have them.
static bool keep_restored(struct vb_chain *c, uint32_t queue, uint32_t slot, const struct slot *s)
{
    const struct vb_build_queue *q = &c->queue[queue - 1];
    uint32_t at = s->base + s->words * WORD_BYTES;

    for (uint32_t i = 0; i < q->restores; i++) {
        const struct vb_restore *r = &q->restore[i];
        uint8_t bytes[VB_WQE_MAX_BLOCKS * VB_WQEBB_BYTES];
        const struct vb_item *item = label_item(c, r->at.label.id);
        struct vb_code code;
        uint32_t len;
        if (!comes_with(q, r, slot))
            continue;
        if (!item)
            return vb_build_fail(c, "what is restored is a field of an entry");
        vb_build_code(c, item, &code);
        int offset = vb_code_field(&code, (enum vb_field)r->at.field, r->at.n, &len);
        if (offset < 0 || r->at.offset + r->len > len)
            return vb_build_fail(c, "entry '%s': %u bytes of '%s' cannot be restored",
                                 vb_build_label_name(c, r->at.label.id), r->len,
                                 vb_field_name((enum vb_field)r->at.field));
        vb_build_write(item, &code, bytes);
        vb_chain_put(c, vb_in((struct vb_chain_region){q->counters}, at),
                     bytes + offset + r->at.offset, r->len);
        at += r->len;
    }
    return c->error[0] == 0;
}

// What the program counts by itself.
static bool number_manual(struct vb_chain *c)
{
    for (uint32_t i = 0; i < c->manuals; i++) {
        const struct vb_build_manual *m = &c->manual[i];
        const struct vb_item *item = label_item(c, m->label);
        uint32_t grows;
        if (!item || item->kind == VB_ITEM_OP)
            return vb_build_fail(c, "entry '%s' has no index to count",
                                 vb_build_label_name(c, m->label));
        if (!set_count(c, m->at.region.id, (uint32_t)m->at.offset, item,
                       vb_build_index(c, item, &grows), count_target(c, item)))
            return false;
    }
    return true;
}

bool vb_rounds_number(struct vb_chain *c)
{
    if (!number_manual(c))
        return false;
    for (uint32_t i = 1; i <= c->queues; i++) {
        uint32_t count = c->queue[i - 1].slots, bytes = 0;
        for (uint32_t s = 1; s <= count; s++) {
            struct slot slot = {.base = bytes};
            bool made = collect(c, &c->queue[i - 1], s, &slot) && number_slot(c, i, s, &slot) &&
                        keep_restored(c, i, s, &slot);
            bytes += slot.words * WORD_BYTES;
            bytes += (restored_bytes(&c->queue[i - 1], s) + 7) / 8 * 8;
            free(slot.field);
            if (!made)
                return false;
        }
    }
    return true;
}
