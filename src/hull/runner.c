// SPDX-License-Identifier: Apache-2.0
// The hull's thread. While there is something to do it runs the NIC and looks at the bells of those
// applications that rang lately; it hears messages now and then. When nothing has come for a while
// it sleeps, and who rings then sends a message (contract.h says why none is missed).
#include "hull/hull.h"

#include "host/inspect.h"
#include "port/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_NS = 50 * 1000,          // between two looks at the sockets, while there is work
    DORMANT_NS = 2 * 1000 * 1000, // without a bell, before an application's are not looked at
    WORDS_MAX = 16,               // of bells of one tenant in one turn, 64 each
    LOOKS_MAX = 64,               // at applications of one tenant in one turn
    EVENTS_MAX = 64,
    READY = 2 + VB_INSPECT_FDS,
};

// ---- bells

typedef void ring(struct vb_hull_client *client, uint32_t index);

static void ring_qp(struct vb_hull_client *client, uint32_t index)
{
    const struct vb_hull_object *o = client->hull->qp[index];

    if (o && o->client == client)
        vb_doorbell_ring(vb_pu_doorbells(client->hull->lane->pu), o->number);
}

static void ring_cq(struct vb_hull_client *client, uint32_t index)
{
    const struct vb_hull_object *o = client->hull->cq[index];

    if (o && o->client == client)
        vb_dev_cq_armed(client->hull->nic->dev, o->number);
}

static_assert((int)VB_HULL_CQS == VB_DOORBELL_QPS, "one page of bells fits both");

static void take_word(struct vb_hull_client *client, _Atomic uint64_t *word, uint32_t base,
                      ring *to)
{
    uint64_t bits = atomic_exchange_explicit(word, 0, memory_order_acquire);

    for (; bits; bits &= bits - 1)
        to(client, base + (uint32_t)__builtin_ctzll(bits));
}

// The application can write anything here at any time: each word is taken once, and names nothing
// but its own. So many words of its tenant in a turn, whatever it claims; the rest stays for the
// next.
static bool take_bells(struct vb_hull_client *client, struct vb_doorbells *bells, ring *to)
{
    if (!vb_doorbells_rung(bells))
        return false;
    uint64_t latest = atomic_exchange_explicit(&bells->latest, 0, memory_order_seq_cst);
    struct vb_hull_tenant *t = client->tenant;

    if (latest)
        to(client, (uint32_t)(latest - 1) & (VB_DOORBELL_QPS - 1));
    for (uint32_t i = 0; i < VB_DOORBELL_TOPS; i++) {
        uint64_t top = atomic_load_explicit(&bells->top[i], memory_order_relaxed);
        for (; top && vb_hull_allows(client->hull, &t->words, WORDS_MAX); top &= top - 1) {
            uint32_t at = i * 64 + (uint32_t)__builtin_ctzll(top);
            atomic_fetch_and_explicit(&bells->top[i], ~(top & -top), memory_order_seq_cst);
            take_word(client, &bells->word[at], at * 64, to);
        }
    }
    return true;
}

static bool look_at(struct vb_hull_client *client)
{
    bool rang = take_bells(client, &client->page->qps, ring_qp);

    rang = take_bells(client, &client->page->arms, ring_cq) || rang;
    if (rang)
        client->rung_ns = client->hull->looked_ns;
    return rang;
}

// Needs the locks. Whether somebody has rung, or was not looked at because his tenant has so many:
// he is among the first of the next turn.
static bool take_all_bells(struct vb_hull *hull)
{
    const struct vb_link *last = hull->active.head.prev;
    bool any = false;

    hull->turns++;
    for (struct vb_link *l = hull->active.head.next, *next; l != &hull->active.head; l = next) {
        struct vb_hull_client *client = VB_CONTAINER_OF(l, struct vb_hull_client, active);
        bool is_last = l == last;
        next = is_last ? &hull->active.head : l->next;
        if (!vb_hull_allows(hull, &client->tenant->looks, LOOKS_MAX)) {
            any = true;
            continue;
        }
        vb_link_remove(l);
        vb_fifo_push(&hull->active, l);
        any = look_at(client) || any;
    }
    return vb_hull_watch_all(hull) || any;
}

static bool has_rung(const struct vb_hull_client *client)
{
    return vb_doorbells_pending(&client->page->qps) || vb_doorbells_pending(&client->page->arms);
}

// Who rings from now on sends a message. False: he rang already.
static bool put_to_sleep(struct vb_hull_client *client)
{
    atomic_store_explicit(&client->page->asleep, 1, memory_order_seq_cst);
    if (!has_rung(client)) {
        vb_link_remove(&client->active);
        return true;
    }
    atomic_store_explicit(&client->page->asleep, 0, memory_order_seq_cst);
    return false;
}

// Those who have not rung for so long. True: nobody is left.
static bool put_all_to_sleep(struct vb_hull *hull, uint64_t quiet_ns)
{
    bool all = true;

    for (struct vb_link *l = hull->active.head.next, *next; l != &hull->active.head; l = next) {
        struct vb_hull_client *client = VB_CONTAINER_OF(l, struct vb_hull_client, active);
        next = l->next;
        if (hull->looked_ns - client->rung_ns < quiet_ns || !put_to_sleep(client))
            all = false;
    }
    return all;
}

// ---- sockets

static void take_config(struct vb_hull *hull)
{
    pthread_mutex_lock(&hull->lock);
    struct vb_hull_config *fresh = hull->fresh;
    hull->fresh = NULL;
    pthread_mutex_unlock(&hull->lock);
    if (!fresh)
        return;
    free(hull->known);
    hull->known = fresh;
    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next) {
        struct vb_hull_tenant *t = VB_CONTAINER_OF(l, struct vb_hull_tenant, link);
        t->quota = *vb_hull_config_quota(fresh, t->uid);
        vb_hull_share_change(hull, t);
    }
}

// Hears who has something to say. An application that ends is freed, and named no more: epoll
// names each of them once.
static void hear_all(struct vb_hull *hull)
{
    struct epoll_event events[EVENTS_MAX];

    vb_hull_accept_again(hull);
    int ready = epoll_wait(hull->epoll, events, EVENTS_MAX, 0);
    uint64_t drained;

    hull->turns++;
    for (int i = 0; i < ready; i++) {
        struct vb_hull_client *client = events[i].data.ptr;
        if (events[i].data.ptr == &hull->listener) {
            vb_hull_accept(hull);
        } else if (events[i].data.ptr == &hull->wake) {
            (void)!read(hull->wake, &drained, sizeof drained);
            take_config(hull);
        } else {
            vb_hull_hear(client);
            if (client->gone)
                vb_hull_leave(client);
        }
    }
    vb_store_flush(hull, hull->looked_ns, NULL);
    vb_metrics_serve(hull);
    if (ready > 0) {
        vb_hull_reap_collect(hull);
        vb_hull_reap_tell(hull);
    }
    vb_hull_count_serve(hull);
}

// ---- turns

static bool turn(struct vb_hull *hull)
{
    vb_host_lock(hull->nic);
    bool rung = take_all_bells(hull);
    uint32_t steps = vb_lane_run(hull->lane);
    vb_host_collect(hull->lane);
    vb_host_unlock(hull->nic);
    return rung || steps > 0;
}

static void wait_for(struct pollfd *fds, uint32_t count_fds, uint64_t deadline_ns)
{
    struct timespec left = {0};
    uint64_t now = vb_clock_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;

    left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    ppoll(fds, count_fds, deadline_ns == UINT64_MAX ? NULL : &left, NULL);
}

static void sleep_until_something(struct vb_hull *hull)
{
    struct pollfd fds[READY];
    uint64_t deadline_ns;
    int ready;

    if (!put_all_to_sleep(hull, 0))
        return;
    vb_host_lock(hull->nic);
    bool idle = vb_helper_settle(hull->lane, &ready, &deadline_ns);
    vb_host_unlock(hull->nic);
    if (!idle || vb_metrics_asked(&hull->metrics) ||
        atomic_load_explicit(&hull->stopping, memory_order_relaxed))
        return;
    fds[0] = (struct pollfd){.fd = ready, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = hull->epoll, .events = POLLIN};
    uint32_t asking = vb_inspect_watch(hull->nic, fds + 2, &deadline_ns);
    deadline_ns = vb_hull_watch_next(hull, vb_hull_clock_next(hull, deadline_ns));
    deadline_ns = vb_hull_accept_next(hull, deadline_ns);
    vb_store_flush(hull, hull->looked_ns, &deadline_ns);
    wait_for(fds, 2 + asking, deadline_ns);
    vb_inspect_serve(hull->nic, fds + 2, asking);
}

static void glance(struct vb_hull *hull)
{
    struct pollfd askers[VB_INSPECT_FDS];
    uint64_t deadline_ns = UINT64_MAX;
    uint32_t asking = vb_inspect_watch(hull->nic, askers, &deadline_ns);

    vb_inspect_glance(hull->nic, askers, asking);
}

void vb_hull_turn(struct vb_hull *hull)
{
    hull->looked_ns = vb_clock_ns();
    vb_hull_clock_set(hull, hull->looked_ns);
    hear_all(hull);
    turn(hull);
    put_all_to_sleep(hull, DORMANT_NS);
}

void *vb_hull_run(void *arg)
{
    struct vb_hull *hull = arg;
    const uint64_t spin_ns = hull->config.spin_us * UINT64_C(1000);

    while (!atomic_load_explicit(&hull->stopping, memory_order_relaxed)) {
        bool worked = turn(hull);
        uint64_t now = vb_clock_ns();
        vb_hull_clock_set(hull, now);
        if (worked)
            hull->busy_ns = now;
        if (now - hull->looked_ns >= LOOK_NS) {
            hull->looked_ns = now;
            hear_all(hull);
            glance(hull);
            put_all_to_sleep(hull, DORMANT_NS);
        }
        if (worked || now - hull->busy_ns < spin_ns)
            continue;
        sleep_until_something(hull);
        hull->looked_ns = vb_clock_ns();
        vb_hull_clock_set(hull, hull->looked_ns); // before anything runs that could read it
        hear_all(hull);
    }
    return NULL;
}
