// SPDX-License-Identifier: Apache-2.0
// The grace period: when it ends, nothing begun before it can touch the application's memory.
#include "host/device.h"
#include "host/host.h"

#include "base/bytes.h"
#include "base/serial.h"
#include "port/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

struct wait {
    uint32_t qpn;
    uint64_t until; // the send queue's counter when the period began
    bool answered;  // it was seen without an answer owed since
    bool done;
};

// Others may be posting.
uint64_t vb_host_posted(struct vb_nic *nic, const struct vb_driver_qp *qp)
{
    uint32_t word = be32toh(__atomic_load_n(&qp->dbrec[VB_DBREC_SQ], __ATOMIC_ACQUIRE));
    struct vb_qp_progress p;

    if (vb_device_qp_progress(nic, qp->qpn, &p) != 0)
        return 0;
    if (qp->cross || qp->sq.managed)
        return p.begun; // a program may wait for ever, or never end
    return vb_widen16(p.retired, (uint16_t)word);
}

// Needs the locks. The list of queue pairs as it is now; NULL: no memory, or none.
static struct wait *begin(struct vb_nic *nic, uint32_t *count)
{
    uint32_t n = 0;
    for (struct vb_link *l = nic->qps.head.next; l != &nic->qps.head; l = l->next)
        n++;
    *count = n;
    struct wait *list = calloc(n ? n : 1, sizeof *list);
    if (!list)
        return NULL;
    n = 0;
    for (struct vb_link *l = nic->qps.head.next; l != &nic->qps.head; l = l->next) {
        const struct vb_qp *qp = VB_CONTAINER_OF(l, struct vb_qp, link);
        list[n++] = (struct wait){.qpn = qp->driver.qpn, .until = vb_host_posted(nic, &qp->driver)};
    }
    return list;
}

// Needs the locks. True: every queue pair is past it, or gone.
static bool has_ended(struct vb_nic *nic, struct wait *list, uint32_t count)
{
    bool ended = true;

    for (uint32_t i = 0; i < count; i++) {
        struct vb_qp_progress p;
        vb_device_qp_settle(nic, list[i].qpn);
        if (!list[i].done && vb_device_qp_progress(nic, list[i].qpn, &p) == 0) {
            list[i].answered = list[i].answered || p.answers_owed == 0;
            list[i].done = list[i].answered && (p.retired >= list[i].until || !p.running);
        } else {
            list[i].done = true;
        }
        ended = ended && list[i].done;
    }
    return ended;
}

int vb_grace(struct vb_nic *nic, uint64_t timeout_ns)
{
    uint64_t give_up = vb_clock_ns() + timeout_ns;
    uint32_t count;
    bool ended = false;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    struct wait *list = begin(nic, &count);
    vb_host_unlock(nic);
    if (!list)
        return -ENOMEM;
    for (;;) {
        vb_nic_progress(nic);
        vb_host_lock(nic);
        ended = has_ended(nic, list, count);
        vb_host_unlock(nic);
        if (ended || vb_clock_ns() >= give_up)
            break;
        sched_yield();
    }
    free(list);
    return ended ? 0 : -ETIMEDOUT;
}
