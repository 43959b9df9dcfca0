// SPDX-License-Identifier: Apache-2.0
// Bells: a unit looks at those of applications that rang lately. Who has not for a while, or all
// when the unit goes to sleep, must send a message when he rings (contract.h says why none is
// missed).
#include "hull/hull.h"

#include "port/clock.h"

enum {
    WORDS_MAX = 16, // of bells of one tenant in one turn, 64 each
    LOOKS_MAX = 64, // at applications of one tenant in one turn
};

static struct vb_hull_page *page_of(const struct vb_hull_unit *unit, struct vb_hull_client *client)
{
    return vb_hull_page_of(client->page, unit->index);
}

// ---- looking

typedef void ring(struct vb_hull_unit *unit, struct vb_hull_client *client, uint32_t index);

// A queue of another unit is that one's to touch: who rings for it here has not kept the contract.
static bool is_its(const struct vb_hull_unit *unit, const struct vb_hull_client *client,
                   const struct vb_hull_object *o)
{
    return o && o->client == client && o->unit == unit->index;
}

static void ring_qp(struct vb_hull_unit *unit, struct vb_hull_client *client, uint32_t index)
{
    const struct vb_hull_object *o = unit->hull->qp[index];

    if (is_its(unit, client, o))
        vb_doorbell_ring(vb_pu_doorbells(unit->lane->pu), o->number);
}

static void ring_cq(struct vb_hull_unit *unit, struct vb_hull_client *client, uint32_t index)
{
    const struct vb_hull_object *o = unit->hull->cq[index];

    if (is_its(unit, client, o))
        vb_dev_cq_armed(unit->hull->nic->dev, o->number);
}

static_assert((int)VB_HULL_CQS == VB_DOORBELL_QPS, "one page of bells fits both");

static void take_word(struct vb_hull_unit *unit, struct vb_hull_client *client,
                      _Atomic uint64_t *word, uint32_t base, ring *to)
{
    uint64_t bits = atomic_exchange_explicit(word, 0, memory_order_acquire);

    for (; bits; bits &= bits - 1)
        to(unit, client, base + (uint32_t)__builtin_ctzll(bits));
}

// The application can write anything here at any time: each word is taken once, and names nothing
// but its own. So many words of its tenant in a turn, whatever it claims; the rest stays for the
// next.
static bool take_bells(struct vb_hull_unit *unit, struct vb_hull_client *client,
                       struct vb_doorbells *bells, ring *to)
{
    if (!vb_doorbells_rung(bells))
        return false;
    uint64_t latest = atomic_exchange_explicit(&bells->latest, 0, memory_order_seq_cst);
    struct vb_hull_allowance *words = &client->tenant->at[unit->index].words;

    if (latest)
        to(unit, client, (uint32_t)(latest - 1) & (VB_DOORBELL_QPS - 1));
    for (uint32_t i = 0; i < VB_DOORBELL_TOPS; i++) {
        uint64_t top = atomic_load_explicit(&bells->top[i], memory_order_relaxed);
        for (; top && vb_hull_allows(unit->turns, words, WORDS_MAX); top &= top - 1) {
            uint32_t at = i * 64 + (uint32_t)__builtin_ctzll(top);
            atomic_fetch_and_explicit(&bells->top[i], ~(top & -top), memory_order_seq_cst);
            take_word(unit, client, &bells->word[at], at * 64, to);
        }
    }
    return true;
}

static bool look_at(struct vb_hull_unit *unit, struct vb_hull_client *client)
{
    struct vb_hull_page *page = page_of(unit, client);
    bool rang = take_bells(unit, client, &page->qps, ring_qp);

    rang = take_bells(unit, client, &page->arms, ring_cq) || rang;
    if (rang)
        client->at[unit->index].rung_ns = unit->looked_ns;
    return rang;
}

static struct vb_hull_client *client_of(const struct vb_hull_unit *unit, struct vb_link *active)
{
    struct vb_hull_guest *guest = VB_CONTAINER_OF(active, struct vb_hull_guest, active);
    return VB_CONTAINER_OF(guest - unit->index, struct vb_hull_client, at);
}

// Whether somebody has rung, or was not looked at because his tenant has so many: he is among the
// first of the next turn.
bool vb_hull_bells_take(struct vb_hull_unit *unit)
{
    const struct vb_link *last = unit->active.head.prev;
    bool any = false;

    unit->turns++;
    for (struct vb_link *l = unit->active.head.next, *next; l != &unit->active.head; l = next) {
        struct vb_hull_client *client = client_of(unit, l);
        bool is_last = l == last;
        next = is_last ? &unit->active.head : l->next;
        if (!vb_hull_allows(unit->turns, &client->tenant->at[unit->index].looks, LOOKS_MAX)) {
            any = true;
            continue;
        }
        vb_link_remove(l);
        vb_fifo_push(&unit->active, l);
        any = look_at(unit, client) || any;
    }
    return vb_hull_watch_all(unit) || any;
}

// ---- who is looked at

static bool has_rung(const struct vb_hull_unit *unit, struct vb_hull_client *client)
{
    const struct vb_hull_page *page = page_of(unit, client);
    return vb_doorbells_pending(&page->qps) || vb_doorbells_pending(&page->arms);
}

// Who rings from now on sends a message. False: he rang already.
static bool put_to_sleep(struct vb_hull_unit *unit, struct vb_hull_client *client)
{
    const uint32_t bit = 1u << unit->index;

    atomic_fetch_or_explicit(&client->page->asleep, bit, memory_order_seq_cst);
    if (!has_rung(unit, client)) {
        vb_link_remove(&client->at[unit->index].active);
        return true;
    }
    atomic_fetch_and_explicit(&client->page->asleep, ~bit, memory_order_seq_cst);
    return false;
}

bool vb_hull_bells_sleep(struct vb_hull_unit *unit, uint64_t quiet_ns)
{
    bool all = true;

    for (struct vb_link *l = unit->active.head.next, *next; l != &unit->active.head; l = next) {
        struct vb_hull_client *client = client_of(unit, l);
        next = l->next;
        bool quiet = !quiet_ns || client->at[unit->index].rung_ns + quiet_ns <= unit->looked_ns;
        if (!quiet || !put_to_sleep(unit, client))
            all = false;
    }
    return all;
}

static void activate(struct vb_hull_unit *unit, struct vb_hull_client *client, uint64_t now_ns)
{
    struct vb_hull_guest *guest = &client->at[unit->index];

    vb_lane_lock(unit->lane);
    guest->rung_ns = now_ns;
    if (!vb_link_queued(&guest->active))
        vb_fifo_push(&unit->active, &guest->active);
    atomic_fetch_and_explicit(&client->page->asleep, ~(1u << unit->index), memory_order_seq_cst);
    pthread_mutex_unlock(&unit->lane->lock);
}

void vb_hull_activate(struct vb_hull_client *client, uint32_t units)
{
    struct vb_hull *hull = client->hull;
    uint64_t now_ns = vb_clock_ns();

    for (uint32_t i = 0; i < hull->units; i++)
        if (units >> i & 1)
            activate(&hull->unit[i], client, now_ns);
    vb_hull_units_wake(hull, units);
}

void vb_hull_deactivate(struct vb_hull_client *client)
{
    for (uint32_t i = 0; i < client->hull->units; i++)
        if (vb_link_queued(&client->at[i].active))
            vb_link_remove(&client->at[i].active);
}

uint32_t vb_hull_asleep(const struct vb_hull_client *client)
{
    uint32_t asleep = 0;

    for (uint32_t i = 0; i < client->hull->units; i++)
        asleep |= (uint32_t)!vb_link_queued(&client->at[i].active) << i;
    return asleep;
}
