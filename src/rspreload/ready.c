// SPDX-License-Identifier: Apache-2.0
// poll() and select() over rsockets and everything else.
#include "rsocket/sets.h"
#include "rspreload/preload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

VB_RP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);

static bool has_rsocket(const struct pollfd *fds, nfds_t count)
{
    for (nfds_t i = 0; i < count; i++) {
        struct vb_rp_entry *entry = vb_rp_get_rsocket(fds[i].fd);
        if (entry) {
            vb_rp_put(entry);
            return true;
        }
    }
    return false;
}

// With rsockets in the place of their descriptors, held until it is over.
static int poll_held(struct pollfd *fds, nfds_t count, int timeout_ms, struct vb_rp_entry **held)
{
    for (nfds_t i = 0; i < count; i++) {
        held[i] = vb_rp_get_rsocket(fds[i].fd);
        if (held[i])
            fds[i].fd = held[i]->rs;
    }
    vb_rp_enter();
    int found = rpoll(fds, count, timeout_ms);
    vb_rp_leave();
    for (nfds_t i = 0; i < count; i++)
        if (held[i])
            vb_rp_put(held[i]);
    return found;
}

static int poll_mixed(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct pollfd *copy = malloc(count * sizeof *copy);
    struct vb_rp_entry **held = malloc(count * sizeof *held);
    int found = -1;

    if (copy && held) {
        memcpy(copy, fds, count * sizeof *copy);
        found = poll_held(copy, count, timeout_ms, held);
        for (nfds_t i = 0; i < count; i++)
            fds[i].revents = copy[i].revents;
    } else {
        errno = ENOMEM;
    }
    free(copy);
    free(held);
    return found;
}

VB_RP_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    if (!has_rsocket(fds, count))
        return vb_rp_real()->poll(fds, count, timeout);
    return poll_mixed(fds, count, timeout);
}

VB_RP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    if (room / sizeof *fds < count)
        abort();
    return poll(fds, count, timeout);
}

VB_RP_EXPORT int select(int limit, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
    const struct vb_rs_sets sets = {in, out, except};
    struct pollfd fds[FD_SETSIZE];

    if (!vb_rs_sets_valid(limit, timeout))
        return vb_rp_real()->select(limit, in, out, except, timeout);
    nfds_t count = vb_rs_sets_list(&sets, limit, fds);
    if (!has_rsocket(fds, count))
        return vb_rp_real()->select(limit, in, out, except, timeout);
    if (poll_mixed(fds, count, vb_rs_sets_timeout_ms(timeout)) < 0)
        return -1;
    int found = vb_rs_sets_update(&sets, fds, count);
    if (found < 0) {
        errno = -found;
        return -1;
    }
    return found;
}
