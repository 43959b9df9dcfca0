// SPDX-License-Identifier: Apache-2.0
// The hull's threads, one for each unit. While there is something to do one runs its unit and looks
// at bells; the first one hears messages now and then. When nothing has come for a while it sleeps,
// each for itself, and who rings then sends a message, or who hands it something wakes it.
#include "hull/hull.h"

#include "host/inspect.h"
#include "port/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_NS = 50 * 1000,          // between two looks at the sockets, while there is work
    DORMANT_NS = 2 * 1000 * 1000, // without a bell, before an application's are not looked at
    EVENTS_MAX = 64,
    READY = 2 + VB_INSPECT_FDS,
};

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
        } else if (events[i].data.ptr == &hull->unit[0].wake) {
            (void)!read(hull->unit[0].wake, &drained, sizeof drained);
            take_config(hull);
        } else {
            vb_hull_hear(client);
            if (client->gone)
                vb_hull_leave(client);
        }
    }
    vb_store_flush(hull, hull->unit[0].looked_ns, NULL);
    vb_metrics_serve(hull);
    if (ready > 0) {
        vb_hull_reap_collect(hull);
        vb_hull_reap_tell(hull);
    }
    vb_hull_count_serve(hull);
}

// ---- turns

// Who wants the locks of all units must not wait for long: a thread that lets go of its own and
// takes it again would win each time.
static void enter(struct vb_hull_unit *unit)
{
    while (atomic_load_explicit(&unit->hull->nic->waiting, memory_order_relaxed))
        sched_yield();
    pthread_mutex_lock(&unit->lane->lock);
}

static bool turn(struct vb_hull_unit *unit)
{
    enter(unit);
    if (__builtin_expect(unit->looks != NULL, 0))
        unit->looks(unit->looks_ctx);
    bool rung = vb_hull_bells_take(unit);
    uint32_t steps = vb_lane_run(unit->lane);
    vb_host_collect(unit->lane);
    pthread_mutex_unlock(&unit->lane->lock);
    return rung || steps > 0;
}

static void forget_quiet(struct vb_hull_unit *unit)
{
    enter(unit);
    vb_hull_bells_sleep(unit, DORMANT_NS);
    pthread_mutex_unlock(&unit->lane->lock);
}

// ---- sleep

static bool is_stopping(const struct vb_hull *hull)
{
    return atomic_load_explicit(&hull->stopping, memory_order_relaxed);
}

// From now on who hands the unit something wakes it. False: it has something to do already. What
// was done to it by a command may ring no bell.
static bool lie_down(struct vb_hull_unit *unit, int *ready, uint64_t *deadline_ns)
{
    struct vb_lane *lane = unit->lane;
    struct vb_nic *nic = unit->hull->nic;

    enter(unit);
    bool idle = vb_hull_bells_sleep(unit, 0);
    if (idle) {
        atomic_fetch_or_explicit(&nic->helper.asleep, 1u << unit->index, memory_order_seq_cst);
        idle = vb_helper_settle(lane, ready, &lane->asleep_until_ns) &&
               (vb_pu_is_idle(lane->pu) ||
                (vb_pu_txq(lane->pu)->count > 0 && vb_pu_frames_left(lane->pu) == 0));
        *deadline_ns = vb_hull_watch_next(unit, lane->asleep_until_ns);
    }
    pthread_mutex_unlock(&lane->lock);
    return idle && !is_stopping(unit->hull);
}

static void get_up(struct vb_hull_unit *unit)
{
    atomic_fetch_and_explicit(&unit->hull->nic->helper.asleep, ~(1u << unit->index),
                              memory_order_seq_cst);
}

static void wait_for(struct pollfd *fds, uint32_t count_fds, uint64_t deadline_ns)
{
    struct timespec left = {0};
    uint64_t now = vb_clock_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;

    left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    ppoll(fds, count_fds, deadline_ns == UINT64_MAX ? NULL : &left, NULL);
}

// The first one is woken by messages and by who inspects the NIC, too: its descriptor is among
// those of the sockets.
static void sleep_first(struct vb_hull *hull)
{
    struct pollfd fds[READY];
    uint64_t deadline_ns;
    int ready;

    if (lie_down(&hull->unit[0], &ready, &deadline_ns) && !vb_metrics_asked(&hull->metrics)) {
        fds[0] = (struct pollfd){.fd = ready, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = hull->epoll, .events = POLLIN};
        uint32_t asking = vb_inspect_watch(hull->nic, fds + 2, &deadline_ns);
        deadline_ns = vb_hull_clock_next(hull, deadline_ns);
        deadline_ns = vb_hull_accept_next(hull, deadline_ns);
        vb_store_flush(hull, hull->unit[0].looked_ns, &deadline_ns);
        wait_for(fds, 2 + asking, deadline_ns);
        get_up(&hull->unit[0]);
        vb_inspect_serve(hull->nic, fds + 2, asking);
        return;
    }
    get_up(&hull->unit[0]);
}

static void sleep_other(struct vb_hull_unit *unit)
{
    uint64_t deadline_ns, drained;
    int ready;

    if (lie_down(unit, &ready, &deadline_ns)) {
        struct pollfd fds[2] = {{.fd = ready, .events = POLLIN},
                                {.fd = unit->wake, .events = POLLIN}};
        wait_for(fds, 2, deadline_ns);
        if (fds[1].revents)
            (void)!read(unit->wake, &drained, sizeof drained);
    }
    get_up(unit);
}

// ---- threads

static void glance(struct vb_hull *hull)
{
    struct pollfd askers[VB_INSPECT_FDS];
    uint64_t deadline_ns = UINT64_MAX;
    uint32_t asking = vb_inspect_watch(hull->nic, askers, &deadline_ns);

    vb_inspect_glance(hull->nic, askers, asking);
}

void vb_hull_turn(struct vb_hull *hull)
{
    uint64_t now = vb_clock_ns();

    for (uint32_t i = 0; i < hull->units; i++)
        hull->unit[i].looked_ns = now;
    vb_hull_clock_set(hull, now);
    hear_all(hull);
    for (uint32_t i = 0; i < hull->units; i++)
        turn(&hull->unit[i]);
    for (uint32_t i = 0; i < hull->units; i++)
        forget_quiet(&hull->unit[i]);
}

static void look_around(struct vb_hull_unit *unit)
{
    if (unit->index == 0) {
        hear_all(unit->hull);
        glance(unit->hull);
    }
    forget_quiet(unit);
}

static void rest(struct vb_hull_unit *unit)
{
    if (unit->index == 0)
        sleep_first(unit->hull);
    else
        sleep_other(unit);
    unit->looked_ns = vb_clock_ns();
    vb_hull_clock_set(unit->hull, unit->looked_ns); // before anything runs that could read it
    if (unit->index == 0)
        hear_all(unit->hull);
}

void *vb_hull_run(void *arg)
{
    struct vb_hull_unit *unit = arg;
    struct vb_hull *hull = unit->hull;
    const uint64_t spin_ns = hull->config.spin_us * UINT64_C(1000);

    while (!is_stopping(hull)) {
        bool worked = turn(unit);
        uint64_t now = vb_clock_ns();
        vb_hull_clock_set(hull, now);
        if (worked)
            unit->busy_ns = now;
        if (now - unit->looked_ns >= LOOK_NS) {
            unit->looked_ns = now;
            look_around(unit);
        }
        if (!worked && now - unit->busy_ns >= spin_ns)
            rest(unit);
    }
    return NULL;
}
