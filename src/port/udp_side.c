// SPDX-License-Identifier: Apache-2.0
// Further addresses of a NIC: each has a socket of its own, a side of the port on the first one.
// Frames leave by the side whose address their path names. Sockets that are busy are looked at in
// every receive, the others rarely: who does not use them does not pay for them.
#include "port/udp.h"
#include "port/udp_state.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    WARM = 1024,      // receives after a frame during which each looks at the side
    RARELY = 64,      // otherwise one of so many does,
    FRAMES_A_LOOK = 8 // where so many frames from elsewhere count as one more: they take time
};

int vb_udp_add_side(struct vb_port *port, struct vb_port *side)
{
    struct udp *u = (struct udp *)port, *s = (struct udp *)side;
    if (vb_ip_equal(&side->local, &port->local))
        return -EEXIST;
    for (uint32_t i = 0; i < u->sides; i++)
        if (vb_ip_equal(&side->local, &u->side[i]->port.local))
            return -EEXIST;
    if (u->sides == UDP_SIDES)
        return -ENOSPC;
    s->to = &side->local;
    s->watched = -1;
    s->warmth = u->warmth = WARM;
    u->side[u->sides++] = s;
    if (u->tells)
        (void)vb_udp_tell_headers(side);
    vb_udp_group_follow(u, s);
    return 0;
}

struct udp *vb_udp_side_of(struct udp *u, const struct vb_ip *local)
{
    for (uint32_t i = 0; i < u->sides; i++)
        if (vb_ip_equal(&u->side[i]->port.local, local))
            return u->side[i];
    return u;
}

// Who reads the port's statistics knows nothing of the sides.
static void gather_stats(struct udp *u, struct udp *side)
{
    enum {
        COUNTERS = sizeof(struct vb_port_stats) / sizeof(uint64_t)
    };
    static_assert(COUNTERS * sizeof(uint64_t) == sizeof(struct vb_port_stats), "counters alone");
    uint64_t sum[COUNTERS], more[COUNTERS];
    memcpy(sum, &u->port.stats, sizeof sum);
    memcpy(more, &side->port.stats, sizeof more);
    for (unsigned i = 0; i < COUNTERS; i++)
        sum[i] += more[i];
    memcpy(&u->port.stats, sum, sizeof sum);
    side->port.stats = (struct vb_port_stats){0};
}

// ---- sending

// One past the last frame that leaves by the same side as `first`.
static uint32_t run_end(struct udp *u, const struct vb_txq *txq, uint32_t first,
                        const struct udp *via)
{
    const struct vb_path *path = txq->frame[first].path;
    for (uint32_t i = first + 1; i < txq->count; i++) {
        const struct vb_path *next = txq->frame[i].path;
        if (next != path && vb_udp_side_of(u, &next->local) != via)
            return i;
        path = next;
    }
    return txq->count;
}

void vb_udp_side_send(struct udp *u, struct vb_txq *txq)
{
    uint32_t count = txq->count;
    while (txq->taken < count) {
        struct udp *via = vb_udp_side_of(u, &txq->frame[txq->taken].path->local);
        uint32_t end = run_end(u, txq, txq->taken, via);
        via->port.trace = u->port.trace;
        txq->count = end;
        vb_udp_send_own(via, txq);
        txq->count = count;
        via->warmth = WARM;
        if (via != u)
            gather_stats(u, via);
        if (txq->taken < end)
            break;
    }
}

// ---- receiving

// Looks at one, if it is time. Returns the frames that came.
static uint32_t look(struct udp *side, struct vb_rx_frame *frames, uint32_t made, bool always)
{
    side->since += 1 + made / FRAMES_A_LOOK;
    if (!always && side->warmth == 0 && side->since < RARELY)
        return 0;
    side->untended += side->since; // its neighbours are looked after as often as others'
    side->since = 0;
    side->warmth -= side->warmth > 0;
    uint32_t more = vb_udp_receive_own(side, frames + made, VB_PORT_RX_BATCH - made);
    if (more > 0)
        side->warmth = WARM;
    return more;
}

static bool is_any_warm(const struct udp *u)
{
    for (uint32_t i = 0; i < u->sides; i++)
        if (u->side[i]->warmth > 0)
            return true;
    return false;
}

// While a side is busy and the first address is not, that one can wait, too.
uint32_t vb_udp_side_receive(struct udp *u, struct vb_rx_frame *frames)
{
    uint32_t made = look(u, frames, 0, !is_any_warm(u));
    for (uint32_t i = 0; i < u->sides; i++) {
        struct udp *side = u->side[i];
        side->port.trace = u->port.trace;
        made += look(side, frames, made, false);
        if (side->since == 0)
            gather_stats(u, side);
    }
    return made;
}

// ---- sleeping

static int watch(struct udp *u, struct udp *side)
{
    int fd = vb_udp_sleep_own(side);
    if (fd < 0 || fd == side->watched)
        return fd;
    struct epoll_event event = {.events = EPOLLIN};
    if (side->watched >= 0)
        (void)epoll_ctl(u->epoll, EPOLL_CTL_DEL, side->watched, &event);
    side->watched = -1;
    int error = vb_udp_watch(u, fd);
    if (error == 0)
        side->watched = fd;
    return error;
}

// The next receive looks at all of them.
int vb_udp_side_sleep(struct udp *u)
{
    int error = 0;
    u->since = RARELY;
    for (uint32_t i = 0; i < u->sides && error >= 0; i++) {
        u->side[i]->since = RARELY;
        error = watch(u, u->side[i]);
    }
    return error;
}
