// SPDX-License-Identifier: Apache-2.0
// The shm port: opening, receiving, sleeping and closing.
#include "port/shm.h"

#include "base/cancel.h"
#include "base/fifo.h"
#include "port/clock.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"
#include "port/trace.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOK_EVERY = 1024, // receives and frames between two looks at the connections
    EVENTS = 32,
};

int vb_shm_watch(struct shm *s, int fd, enum shm_end *end)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = end};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void vb_shm_hang_up(struct shm *s, int fd)
{
    int before = vb_cancel_hold();
    if (!s->abandoned) {
        (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, fd, NULL);
        (void)shutdown(fd, SHUT_RDWR);
    }
    close(fd);
    vb_cancel_allow(before);
}

// ---- receiving

// Guests leave only between receives, peers never: what an event points to is there.
static void look(struct shm *s)
{
    struct epoll_event events[EVENTS];
    int before = vb_cancel_hold();
    int count = epoll_wait(s->epoll, events, EVENTS, 0);
    s->unlooked = 0;
    for (int i = 0; i < count; i++) {
        enum shm_end *end = events[i].data.ptr;
        switch (*end) {
        case SHM_END_LISTENER: vb_shm_guest_accept(s); break;
        case SHM_END_GUEST:
            vb_shm_guest_event(s, VB_CONTAINER_OF(end, struct shm_guest, end));
            break;
        case SHM_END_PEER: vb_shm_peer_event(s, VB_CONTAINER_OF(end, struct shm_peer, end)); break;
        }
    }
    vb_cancel_allow(before);
}

static void set_nap(struct shm *s, uint64_t nap)
{
    atomic_store_explicit(&s->board->nap, nap, memory_order_release);
    s->napping = nap & 1;
}

static uint64_t last_nap(const struct shm *s)
{
    return atomic_load_explicit(&s->board->nap, memory_order_relaxed);
}

// Gives back the space of what the last receive lent.
static void return_space(struct shm *s, struct shm_guest *g)
{
    g->returned = g->ring.pos;
    atomic_store_explicit(&s->board->guest[g->index].consumed, g->returned, memory_order_release);
}

static void trace(const struct shm *s, const struct vb_rx_frame *frames, uint32_t count)
{
    uint64_t now_ns = vb_clock_ns();
    for (uint32_t i = 0; i < count; i++) {
        struct vb_trace_packet packet = {
            .src = frames[i].src, .dst = s->port.local, .src_port = s->port.src_port};
        vb_trace_received(s->port.trace, now_ns, &packet, frames[i].data, frames[i].len);
    }
}

static uint32_t take(struct shm *s, struct shm_guest *g, struct vb_rx_frame *frames, uint32_t at)
{
    uint32_t taken;
    if (g->garbage)
        return 0;
    if (vb_shm_ring_take(&g->ring, frames + at, s->heads + at, VB_PORT_RX_BATCH - at, &taken) ==
        SHM_RING_GARBAGE) {
        s->port.stats.rx_bad_peers++;
        g->garbage = s->has_ended = true;
        vb_shm_guest_hang_up(s, g);
    }
    s->port.stats.rx_bad_icrc += g->ring.spoiled;
    g->ring.spoiled = 0;
    for (uint32_t i = at; i < at + taken; i++) {
        frames[i].src = g->address;
        frames[i].to = NULL;
    }
    if (s->port.trace != NULL)
        trace(s, frames + at, taken);
    return taken;
}

static uint32_t shm_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct shm *s = (struct shm *)port;
    uint32_t made = 0;
    if (s->napping) {
        set_nap(s, last_nap(s) + 1);
        look(s);
    } else if (s->unlooked++ >= LOOK_EVERY) {
        look(s);
    }
    uint32_t i = s->first < s->guest_count ? s->first : 0;
    for (uint32_t left = s->guest_count; left > 0 && made < VB_PORT_RX_BATCH; left--) {
        struct shm_guest *g = s->guest[i];
        if (g->returned != g->ring.pos)
            return_space(s, g);
        if (vb_shm_ring_waiting(&g->ring))
            made += take(s, g, frames, made);
        if (++i == s->guest_count)
            i = 0;
    }
    s->first = i;
    s->unlooked += made;
    if (s->has_ended)
        vb_shm_guest_reap(s);
    return made;
}

// ---- sleeping

static int shm_sleep(struct vb_port *port)
{
    struct shm *s = (struct shm *)port;
    uint64_t nap = last_nap(s);
    set_nap(s, nap + (nap & 1 ? 2 : 1));
    atomic_thread_fence(memory_order_seq_cst); // see ring_bells() for the other side
    for (uint32_t i = 0; i < s->guest_count; i++) {
        const struct shm_guest *g = s->guest[i];
        // A guest that waits for its space back rings no bell.
        if (!g->garbage && (vb_shm_ring_waiting(&g->ring) || g->returned != g->ring.pos)) {
            set_nap(s, last_nap(s) + 1);
            return -EAGAIN;
        }
    }
    return s->epoll;
}

// ---- opening and closing

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void shm_close(struct vb_port *port)
{
    struct shm *s = (struct shm *)port;
    vb_shm_guest_close_all(s);
    vb_shm_peer_close_all(s);
    vb_shm_place_close(&s->place);
    vb_shm_memory_unmap(s->board, sizeof *s->board);
    close_fd(s->board_fd);
    close_fd(s->epoll);
    close_fd(s->spare);
    free(s);
}

// The connections, their epoll and the file that leads to us are the parent's.
static void shm_abandon(struct vb_port *port)
{
    struct shm *s = (struct shm *)port;
    s->abandoned = true;
    close_fd(s->place.listener);
    s->place.listener = -1;
    shm_close(port);
}

static const struct vb_port_ops shm_ops = {
    .send = vb_shm_peer_send,
    .receive = shm_receive,
    .sleep = shm_sleep,
    .close = shm_close,
    .abandon = shm_abandon,
};

bool vb_shm_reaches(struct vb_port *port, struct vb_path *path)
{
    return vb_shm_peer_reach((struct shm *)port, path);
}

static int set_up(struct shm *s, const struct vb_shm_opts *opts)
{
    void *board;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (s->epoll < 0 || s->spare < 0)
        return vb_shm_fail(opts->error_text, errno, "no descriptors: %s", strerror(errno));
    s->board_fd = vb_shm_memory_create("verbena-board", sizeof *s->board, &board);
    if (s->board_fd < 0)
        return vb_shm_fail(opts->error_text, -s->board_fd, "no shared memory: %s",
                           strerror(-s->board_fd));
    s->board = board;
    return 0;
}

static struct shm *make(const struct vb_ip *local, uint32_t ring_bytes)
{
    struct shm *s = aligned_alloc(alignof(struct shm), sizeof *s);
    if (s == NULL)
        return NULL;
    memset(s, 0, sizeof *s);
    s->port = (struct vb_port){
        .ops = &shm_ops, .local = *local, .src_port = VB_ROCE_UDP_PORT, .unsealed = true};
    s->end = SHM_END_LISTENER;
    s->ring_bytes = ring_bytes;
    s->epoll = s->spare = s->board_fd = s->place.listener = -1;
    return s;
}

// The last step: from here on peers can find the ports.
static int settle(struct shm *const *units, uint32_t count, const struct vb_shm_opts *opts)
{
    struct shm_place *places[SHM_UNITS];
    for (uint32_t i = 0; i < count; i++)
        places[i] = &units[i]->place;
    int error = vb_shm_place_open(places, count, opts->runtime_dir, &units[0]->port.local,
                                  opts->error_text);
    for (uint32_t i = 0; i < count && error == 0; i++) {
        error = vb_shm_watch(units[i], places[i]->listener, &units[i]->end);
        if (error < 0)
            (void)vb_shm_fail(opts->error_text, -error, "epoll: %s", strerror(-error));
    }
    return error;
}

int vb_shm_open(const struct vb_shm_opts *opts, struct vb_port **port)
{
    return vb_shm_open_group(opts, port, 1);
}

int vb_shm_open_group(const struct vb_shm_opts *opts, struct vb_port **ports, uint32_t count)
{
    struct vb_ip local;
    struct shm *units[SHM_UNITS] = {NULL};
    uint32_t made = 0, ring_bytes = opts->ring_bytes ? opts->ring_bytes : SHM_RING_DEFAULT;
    assert(count > 0 && count <= SHM_UNITS && (count & (count - 1)) == 0);
    int error = vb_shm_address_parse(opts->address, &local, opts->error_text);
    if (error < 0)
        return error;
    if (!vb_shm_ring_valid_bytes(ring_bytes))
        return vb_shm_fail(opts->error_text, EINVAL,
                           "a ring of %u bytes is not possible; powers of two from %d to %d are",
                           ring_bytes, SHM_RING_MIN, SHM_RING_MAX);
    for (; made < count && error == 0; made++) {
        units[made] = make(&local, ring_bytes);
        if (units[made] == NULL)
            break;
        error = set_up(units[made], opts);
    }
    if (error == 0)
        error = made == count ? settle(units, count, opts)
                              : vb_shm_fail(opts->error_text, ENOMEM, "no memory");
    for (uint32_t i = 0; i < made; i++) {
        if (error < 0)
            shm_close(&units[i]->port);
        else
            ports[i] = &units[i]->port;
    }
    return error;
}
