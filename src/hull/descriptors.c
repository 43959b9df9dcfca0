// SPDX-License-Identifier: Apache-2.0
// Descriptors of the hull's process: what the system allows may be less than what all quotas
// together do. So there is a budget for applications, of which each tenant may take a part that
// leaves something for the others; who asks for more is refused with words, long before the system
// refuses the hull.
#include "hull/hull.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    RESERVE_MAX = 256, // for the NIC's own, and for those that come with messages
    LEAVE = 8,         // a tenant leaves one of so many to others
    PER_APPLICATION = 3,
};

static uint64_t limit_of_process(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 1024;
    return files.rlim_cur < INT32_MAX ? files.rlim_cur : INT32_MAX;
}

void vb_hull_descriptors_init(struct vb_hull *hull, uint32_t nics)
{
    uint64_t limit = limit_of_process();
    uint64_t reserve = limit / 4 < RESERVE_MAX ? limit / 4 : RESERVE_MAX;

    hull->descriptors.most = (uint32_t)((limit - reserve) / nics);
}

// However many tenants take all that they can, the next one finds some: each leaves as much as an
// eighth of what it and nobody would have.
bool vb_hull_descriptors_take(struct vb_hull *hull, struct vb_hull_tenant *t, uint32_t count,
                              struct vb_hull_reply *reply)
{
    struct vb_hull_descriptors *d = &hull->descriptors;
    uint64_t wanted = (uint64_t)d->used + count, has = (uint64_t)t->descriptors + count;

    if (wanted <= d->most && has <= (LEAVE - 1) * (d->most - wanted)) {
        d->used += count;
        t->descriptors += count;
        return true;
    }
    vb_hull_refuse(reply, -EMFILE,
                   "the hull may have %u descriptors for applications, has %u, and user %u %u of "
                   "them: its limit (LimitNOFILE=, ulimit -n) is too low for more",
                   d->most, d->used, (unsigned)t->uid, t->descriptors);
    return false;
}

void vb_hull_descriptors_give_back(struct vb_hull *hull, struct vb_hull_tenant *t, uint32_t count)
{
    hull->descriptors.used -= count;
    t->descriptors -= count;
}

// ---- what quotas allow

static uint64_t add(uint64_t sum, uint64_t more)
{
    return more > UINT64_MAX - sum ? UINT64_MAX : sum + more;
}

static uint64_t need_of(const struct vb_hull_quota *q)
{
    uint64_t applications = q->applications > UINT64_MAX / PER_APPLICATION
                                ? UINT64_MAX
                                : q->applications * PER_APPLICATION;
    return add(add(applications, q->queues), q->memories);
}

// A NIC without a group is its user's alone.
static uint64_t need_of_nic(const struct vb_hull_config *c, const struct vb_hull_nic_config *nic)
{
    uint64_t sum = need_of(vb_hull_config_quota(c, geteuid()));

    for (uint32_t i = 0; nic->has_group && i < c->tenants; i++)
        if (c->tenant[i].anyone || c->tenant[i].uid != geteuid())
            sum = add(sum, need_of(&c->tenant[i].quota));
    return sum;
}

uint64_t vb_hull_descriptors_needed(const struct vb_hull_config *config)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < config->nics; i++)
        sum = add(sum, add(RESERVE_MAX, need_of_nic(config, &config->nic[i])));
    return sum;
}
