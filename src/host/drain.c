// SPDX-License-Identifier: Apache-2.0
// Draining: what is owed to peers leaves before a queue pair, a NIC or the process goes, and what
// was posted is given time to be acknowledged.
#include "host/device.h"
#include "host/host.h"

#include "port/clock.h"
#include "port/faulty.h"

#include <sched.h>
#include <time.h>

enum {
    EAGER_TURNS = 64,      // before resting between two turns
    REST_NS = 50 * 1000,   // what an acknowledgement over loopback takes
    STUCK_NS = 1000 * 1000 // longer than a thread that is at work keeps a lane
};

bool vb_host_lock_until(struct vb_nic *nic, uint64_t give_up_ns)
{
    uint32_t held = 0;
    int before = vb_cancel_hold();

    atomic_fetch_add_explicit(&nic->waiting, 1, memory_order_relaxed);
    while (held < nic->lanes) {
        if (pthread_mutex_trylock(&nic->lane[held].lock) == 0)
            held++;
        else if (vb_clock_ns() >= give_up_ns)
            break;
        else
            sched_yield();
    }
    atomic_fetch_sub_explicit(&nic->waiting, 1, memory_order_relaxed);
    if (held == nic->lanes) {
        nic->cancel_before = before;
        return true;
    }
    while (held > 0)
        pthread_mutex_unlock(&nic->lane[--held].lock);
    vb_cancel_allow(before);
    return false;
}

// All that was written has left; frames that faults hold back count as written.
static bool has_sent(const struct vb_lane *lane)
{
    if (lane->nic->attach)
        return true; // what is owed tells its device
    if (vb_pu_wants_tx(lane->pu) || vb_pu_txq(lane->pu)->count > 0)
        return false;
    return !lane->nic->faulty || vb_faulty_deadline(lane->port) == UINT64_MAX;
}

static bool has_answered(struct vb_nic *nic, const struct vb_qp *qp)
{
    struct vb_qp_progress p;
    return vb_device_qp_progress(nic, qp->driver.qpn, &p) != 0 || p.answers_owed == 0;
}

static bool is_acknowledged(struct vb_nic *nic, const struct vb_qp *qp)
{
    struct vb_qp_progress p;
    return vb_device_qp_progress(nic, qp->driver.qpn, &p) != 0 || !p.running ||
           p.retired >= vb_host_posted(nic, &qp->driver);
}

static void settle(struct vb_nic *nic, const struct vb_qp *only)
{
    if (only)
        vb_device_qp_settle(nic, only->driver.qpn);
    for (struct vb_link *l = nic->qps.head.next; !only && l != &nic->qps.head; l = l->next)
        vb_device_qp_settle(nic, VB_CONTAINER_OF(l, struct vb_qp, link)->driver.qpn);
}

// Needs the locks. Runs the NIC; true: nothing is owed, and without `only`, nothing under way.
static bool turn(struct vb_nic *nic, const struct vb_qp *only)
{
    bool done = true;

    settle(nic, only);
    for (uint32_t i = 0; i < nic->lanes; i++) {
        vb_lane_run(&nic->lane[i]);
        if (!only || only->send_cq->lane == &nic->lane[i])
            done = has_sent(&nic->lane[i]) && done;
    }
    if (only)
        return done && has_answered(nic, only);
    for (struct vb_link *l = nic->qps.head.next; done && l != &nic->qps.head; l = l->next) {
        const struct vb_qp *qp = VB_CONTAINER_OF(l, struct vb_qp, link);
        done = has_answered(nic, qp) && is_acknowledged(nic, qp);
    }
    return done;
}

static void rest(uint32_t turns)
{
    if (turns < EAGER_TURNS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
}

void vb_host_lock_answered(struct vb_nic *nic, const struct vb_qp *qp)
{
    uint64_t give_up_ns = vb_clock_ns() + nic->drain_ns;

    vb_host_lock(nic);
    for (uint32_t turns = 0; !nic->orphan && !turn(nic, qp); turns++) {
        if (vb_clock_ns() >= give_up_ns)
            return;
        vb_host_unlock(nic);
        rest(turns);
        vb_host_lock(nic);
    }
}

// A lane can be kept for ever by the very thread that calls: exit() in a signal handler.
void vb_host_drain(struct vb_nic *nic, uint64_t give_up_ns)
{
    int before = vb_cancel_hold(); // resting is where a thread could be cancelled
    bool done = false;

    for (uint32_t turns = 0; !done; turns++) {
        uint64_t now_ns = vb_clock_ns();
        if (!vb_host_lock_until(nic, now_ns > give_up_ns ? now_ns + STUCK_NS : give_up_ns))
            break;
        done = turn(nic, NULL);
        vb_host_unlock(nic);
        if (vb_clock_ns() >= give_up_ns)
            break;
        if (!done)
            rest(turns);
    }
    vb_cancel_allow(before);
}
