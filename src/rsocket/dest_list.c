// SPDX-License-Identifier: Apache-2.0
// The peers of a datagram rsocket in the order of their last use, so that of many the one that was
// not used for the longest time makes room.
#include "rsocket/datagram.h"

#include <string.h>

socklen_t vb_rs_address_bytes(const struct sockaddr *a)
{
    return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool vb_rs_address_equal(const struct sockaddr_storage *a, const struct sockaddr *b)
{
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
    const struct sockaddr_in *b4 = (const struct sockaddr_in *)(const void *)b;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)(const void *)b;

    if (a->ss_family != b->sa_family)
        return false;
    if (b->sa_family == AF_INET)
        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return a6->sin6_port == b6->sin6_port &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

static struct vb_rs_dest *unlink_at(struct vb_rs_datagrams *d, struct vb_rs_dest **at)
{
    struct vb_rs_dest *dest = *at;

    *at = dest->next;
    d->dest_count--;
    return dest;
}

void vb_rs_dests_add(struct vb_rs_datagrams *d, struct vb_rs_dest *dest)
{
    dest->next = d->dests;
    d->dests = dest;
    d->dest_count++;
}

struct vb_rs_dest *vb_rs_dests_find(struct vb_rs_datagrams *d, const struct sockaddr *to)
{
    struct vb_rs_dest **at = &d->dests;

    while (*at && !vb_rs_address_equal(&(*at)->addr, to))
        at = &(*at)->next;
    if (!*at)
        return NULL;
    vb_rs_dests_add(d, unlink_at(d, at));
    return d->dests;
}

struct vb_rs_dest *vb_rs_dests_take_idle(struct vb_rs_datagrams *d)
{
    struct vb_rs_dest **last = NULL;

    for (struct vb_rs_dest **at = &d->dests; *at; at = &(*at)->next)
        if (!(*at)->uses && *at != d->connected)
            last = at;
    return last ? unlink_at(d, last) : NULL;
}
