// SPDX-License-Identifier: Apache-2.0
// The helper: a thread that runs the NIC while nobody polls it, so that a program that spins on
// memory, sleeps or computes is still served.
//
// It is in one of two moods. While the application runs the lanes often enough by itself, the
// helper only looks in now and then. Otherwise it sleeps in the kernel on the ports' descriptors,
// and whoever posts wakes it; if some lanes are run by the application, on those of the others, and
// not for long. So a busy poller is not disturbed by a second thread that every
// packet wakes, and an idle process uses no CPU. Queues that the application drives by hand ring no
// bell that could wake it: while there are such, it looks again soon, and all the sooner the less
// time has passed since there was something to do.
#include "host/host.h"

#include "host/attach.h"
#include "host/inspect.h"
#include "port/clock.h"
#include "port/faulty.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MIN_NS = 50 * 1000,
    LOOK_MAX_NS = 1000 * 1000,
    FULL_NS = 1000 * 1000,
    SERVE_ROUNDS = 64,
    GAP_NS = 10 * 1000,   // entries of a poller that needs no help are not further apart
    EAGER_NS = 50 * 1000, // without sleep, after something was done
    HOPE_MAX = 16,        // that more comes meanwhile
};

// How the lanes were doing when the helper last looked.
struct look {
    uint64_t entries[VB_HOST_LANES];
    uint32_t polled; // by the application, as bits
    uint32_t run;    // by the application, ever so rarely
    uint64_t at_ns;
    uint64_t served_ns; // when there was something to do
    uint32_t hope;      // how often the next came soon
};

static void look_around(struct vb_nic *nic, struct look *look)
{
    for (uint32_t i = 0; i < nic->lanes; i++)
        look->entries[i] = atomic_load_explicit(&nic->lane[i].entries, memory_order_relaxed);
    look->at_ns = vb_clock_ns();
}

// The lanes that the application has run often enough since the last look, as bits. A moment is too
// short to find out that it no longer does.
static uint32_t find_polled(struct vb_nic *nic, struct look *look)
{
    struct look now = *look;

    look_around(nic, &now);
    now.polled = now.run = 0;
    uint64_t since_ns = now.at_ns - look->at_ns;
    for (uint32_t i = 0; i < nic->lanes; i++) {
        bool often = now.entries[i] - look->entries[i] >= since_ns / GAP_NS + 1;
        bool stays = look->polled >> i & 1 && since_ns < LOOK_MIN_NS;
        now.polled |= (uint32_t)(often || stays) << i;
        now.run |= (uint32_t)(now.entries[i] != look->entries[i]) << i;
    }
    *look = now;
    return now.polled;
}

// Runs those of the lanes that are free until there is nothing to do, but not for ever: programs
// may never end, and others may need it meanwhile. Its own entries do not count as the
// application's. Returns whether there was something to do.
static bool serve(struct vb_nic *nic, uint32_t lanes)
{
    uint32_t steps, rounds = 0;

    do {
        steps = 0;
        for (uint32_t i = 0; i < nic->lanes; i++) {
            struct vb_lane *lane = &nic->lane[i];
            if (!(lanes >> i & 1) || atomic_load_explicit(&nic->waiting, memory_order_relaxed) ||
                pthread_mutex_trylock(&lane->lock) != 0)
                continue;
            steps += vb_lane_run(lane);
            uint64_t entries = atomic_load_explicit(&lane->entries, memory_order_relaxed);
            atomic_store_explicit(&lane->entries, entries - lane->weight, memory_order_relaxed);
            pthread_mutex_unlock(&lane->lock);
        }
    } while (steps > 0 && ++rounds < SERVE_ROUNDS &&
             !atomic_load_explicit(&nic->helper.stopping, memory_order_relaxed));
    return steps > 0 || rounds > 0;
}

bool vb_helper_settle(struct vb_lane *lane, int *ready, uint64_t *timer_ns)
{
    const struct vb_txq *txq = vb_pu_txq(lane->pu);

    *ready = lane->port->ops->sleep(lane->port);
    uint64_t timer = vb_pu_deadline(lane->pu);
    if (lane->nic->faulty) {
        uint64_t held = vb_faulty_deadline(lane->port);
        timer = held < timer ? held : timer;
    }
    if (lane->port->ops->deadline) {
        uint64_t wanted = lane->port->ops->deadline(lane->port);
        timer = wanted < timer ? wanted : timer;
    }
    if (txq->taken < txq->count && timer > vb_clock_ns() + FULL_NS)
        timer = vb_clock_ns() + FULL_NS; // not every port tells when it has room again
    *timer_ns = timer;
    return *ready >= 0 && !vb_doorbells_pending(vb_pu_doorbells(lane->pu)) &&
           !vb_pu_has_mail(lane->pu) && !vb_pu_has_more(lane->pu);
}

// Prepares a lane for sleep. False: it has something to do. *deadline_ns becomes its next timer.
static bool prepare(struct vb_lane *lane, struct pollfd *fd, uint64_t *deadline_ns)
{
    int ready;

    pthread_mutex_lock(&lane->lock);
    bool idle = vb_helper_settle(lane, &ready, &lane->asleep_until_ns);
    uint64_t timer = lane->asleep_until_ns;
    pthread_mutex_unlock(&lane->lock);
    if (timer < *deadline_ns)
        *deadline_ns = timer;
    *fd = (struct pollfd){.fd = ready, .events = POLLIN};
    return idle;
}

// Receiving has ended the port's preparation, and an earlier timer may have been set.
void vb_helper_recheck(struct vb_lane *lane)
{
    uint64_t timer;
    int ready;

    if (!vb_helper_settle(lane, &ready, &timer) || timer < lane->asleep_until_ns)
        vb_helper_wake(lane->nic, 1u << (lane - lane->nic->lane));
}

static void wait_for(struct vb_nic *nic, struct pollfd *fds, uint32_t count, uint64_t deadline_ns)
{
    struct timespec left = {0}, *timeout = NULL;
    uint64_t now = vb_clock_ns(), drained;

    if (deadline_ns != UINT64_MAX) {
        uint64_t ns = deadline_ns > now ? deadline_ns - now : 0;
        left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        timeout = &left;
    }
    ppoll(fds, count, timeout, NULL);
    (void)!read(nic->helper.wake_fd, &drained, sizeof drained);
}

// Sleeps until a frame, a doorbell or a timer of these lanes or the deadline, unless there is
// something to do already; and answers who asks meanwhile.
static void doze(struct vb_nic *nic, uint32_t lanes, uint64_t deadline_ns)
{
    struct pollfd fds[VB_HOST_LANES + 1 + VB_INSPECT_FDS];
    struct pollfd *askers = fds + nic->lanes + 1;
    bool idle = true;

    // Asleep before the last look at the doorbells: who rings then, wakes.
    atomic_store_explicit(&nic->helper.asleep, lanes, memory_order_seq_cst);
    for (uint32_t i = 0; i < nic->lanes; i++) {
        fds[i] = (struct pollfd){.fd = -1};
        if (lanes >> i & 1)
            idle = prepare(&nic->lane[i], &fds[i], &deadline_ns) && idle;
    }
    fds[nic->lanes] = (struct pollfd){.fd = nic->helper.wake_fd, .events = POLLIN};
    uint32_t asking = vb_inspect_watch(nic, askers, &deadline_ns);
    bool waits = idle && !atomic_load_explicit(&nic->helper.stopping, memory_order_relaxed);
    if (waits)
        wait_for(nic, fds, nic->lanes + 1 + asking, deadline_ns);
    atomic_store_explicit(&nic->helper.asleep, 0, memory_order_relaxed);
    if (waits)
        vb_inspect_serve(nic, askers, asking);
    else
        vb_inspect_glance(nic, askers, asking);
}

static void rest(struct vb_nic *nic, uint64_t ns)
{
    struct pollfd askers[VB_INSPECT_FDS];
    uint64_t deadline_ns = UINT64_MAX; // a rest is shorter than anybody's
    uint32_t asking = vb_inspect_watch(nic, askers, &deadline_ns);

    ppoll(askers, asking, &(struct timespec){.tv_nsec = (long)ns}, NULL);
    vb_inspect_serve(nic, askers, asking);
}

// To sleep and be woken takes longer than a peer needs for its next request. So where requests
// followed each other closely, the helper waits awake for the next; where they no longer do it
// stops to, and an idle process uses no CPU. A program that runs the NIC itself may need the core.
static void note_served(struct look *look)
{
    bool soon = look->at_ns - look->served_ns < EAGER_NS;

    if (look->run)
        look->hope = 0;
    else if (soon && look->hope < HOPE_MAX)
        look->hope++;
    look->served_ns = look->at_ns;
}

static void glance(struct vb_nic *nic)
{
    struct pollfd askers[VB_INSPECT_FDS];
    uint64_t deadline_ns = UINT64_MAX;

    vb_inspect_glance(nic, askers, vb_inspect_watch(nic, askers, &deadline_ns));
}

static bool waits_awake(struct vb_nic *nic, struct look *look, uint64_t quiet_ns)
{
    if (quiet_ns < EAGER_NS)
        return look->hope > 0 || atomic_load_explicit(&nic->shares, memory_order_relaxed);
    look->hope /= 2;
    return false;
}

// Sleeps until there is something to do on these lanes, or until the deadline.
static void sleep_on(struct vb_nic *nic, uint32_t lanes, struct look *look, uint64_t deadline_ns)
{
    uint64_t now = vb_clock_ns(), quiet_ns = now - look->served_ns;

    if (waits_awake(nic, look, quiet_ns)) {
        glance(nic);
        return; // and no yielding: a spinning program would have the core for long
    }
    if (atomic_load_explicit(&nic->shares, memory_order_relaxed)) {
        uint64_t next = now + (quiet_ns / 4 < LOOK_MAX_NS ? quiet_ns / 4 : LOOK_MAX_NS);
        deadline_ns = next < deadline_ns ? next : deadline_ns;
    }
    doze(nic, lanes, deadline_ns);
}

static void *run(void *arg)
{
    struct vb_nic *nic = arg;
    uint64_t pause_ns = LOOK_MIN_NS;
    uint32_t all = (1u << nic->lanes) - 1;
    struct look look = {0};

    look_around(nic, &look);
    while (!atomic_load_explicit(&nic->helper.stopping, memory_order_relaxed)) {
        uint32_t polled = find_polled(nic, &look);
        if (polled == all) {
            rest(nic, pause_ns);
        } else {
            if (polled == 0)
                pause_ns = LOOK_MIN_NS;
            if (serve(nic, all & ~polled))
                note_served(&look);
            sleep_on(nic, all & ~polled, &look, polled ? vb_clock_ns() + pause_ns : UINT64_MAX);
        }
        if (polled)
            pause_ns = pause_ns * 2 < LOOK_MAX_NS ? pause_ns * 2 : LOOK_MAX_NS;
    }
    return NULL;
}

void vb_helper_wake(struct vb_nic *nic, uint32_t lanes)
{
    if (nic->attach) {
        vb_attach_kick(nic->attach, lanes);
        return;
    }
    if (nic->hull) {
        nic->hull_wake(nic->hull, lanes);
        return;
    }
    int before = vb_cancel_hold();
    (void)!write(nic->helper.wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    vb_cancel_allow(before);
}

// The application's signals are the application's: the helper blocks all.
int vb_helper_start(struct vb_nic *nic)
{
    struct vb_helper *h = &nic->helper;
    sigset_t all, before;

    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->wake_fd < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->running = true; // before it can look
    int err = pthread_create(&h->thread, NULL, run, nic);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) {
        h->running = false;
        close(h->wake_fd);
        return -err;
    }
    pthread_setname_np(h->thread, "verbena");
    return 0;
}

void vb_helper_stop(struct vb_nic *nic)
{
    struct vb_helper *h = &nic->helper;

    if (!h->running)
        return;
    atomic_store(&h->stopping, true);
    vb_helper_wake(nic, UINT32_MAX);
    pthread_join(h->thread, NULL);
    close(h->wake_fd);
    h->running = false;
}
