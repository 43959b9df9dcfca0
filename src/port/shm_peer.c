// SPDX-License-Identifier: Apache-2.0
// Peers of a shm port: those we send to. A peer is called when there is a frame for it, and its
// ring is written at once; that it is alive, asleep or far behind is learnt later.
#include "base/bytes.h"
#include "base/cancel.h"
#include "port/clock.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"
#include "port/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_MIN_NS     10000000ull    // between calls of an absent peer, at first
#define PAUSE_ABSENT_NS  160000000ull   // and later
#define PAUSE_REFUSED_NS 10000000000ull // of one that hangs up without a word
#define STALL_NS         2000000ull     // how long one peer's full ring may hold up all others

// ---- finding

static struct shm_peer **bucket_of(struct shm *s, const struct vb_ip *ip)
{
    uint64_t half[2];
    memcpy(half, ip->b, sizeof half);
    uint64_t hash = (half[0] ^ half[1]) * 0x9e3779b97f4a7c15u;
    return &s->bucket[hash >> 56 & (SHM_PEER_BUCKETS - 1)];
}

static struct shm_peer *make(const struct vb_ip *ip, uint32_t unit)
{
    struct shm_peer *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->end = SHM_END_PEER;
    p->fd = -1;
    p->address = *ip;
    p->unit = unit;
    p->pause_ns = PAUSE_MIN_NS;
    return p;
}

static struct shm_peer *find(struct shm *s, const struct vb_ip *ip)
{
    struct shm_peer **bucket = bucket_of(s, ip);
    for (struct shm_peer *p = *bucket; p != NULL; p = p->next)
        if (vb_ip_equal(&p->address, ip))
            return p;
    struct shm_peer *p = s->peer_count < SHM_PEERS ? make(ip, 0) : NULL;
    if (p == NULL)
        return NULL;
    p->next = *bucket;
    *bucket = p;
    s->peer_count++;
    return p;
}

// ---- calling

static void postpone(struct shm_peer *p, uint64_t now_ns, uint64_t most_ns)
{
    p->retry_ns = now_ns + p->pause_ns;
    p->pause_ns = p->pause_ns * 2 < most_ns ? p->pause_ns * 2 : most_ns;
}

static void drop(struct shm *s, struct shm_peer *p)
{
    vb_shm_hang_up(s, p->fd);
    p->fd = -1;
    vb_shm_memory_unmap(p->ring.base, s->ring_bytes);
    vb_shm_memory_unmap(p->board, sizeof *p->board);
    p->board = NULL;
    postpone(p, vb_clock_ns(), p->state == SHM_PEER_CALLED ? PAUSE_REFUSED_NS : PAUSE_ABSENT_NS);
    p->state = SHM_PEER_ABSENT;
    // With the first unit the others go: who comes back may have another number of them.
    for (uint32_t i = 0; i < SHM_UNITS; i++)
        if (p->mate[i] != NULL && p->mate[i]->state != SHM_PEER_ABSENT)
            drop(s, p->mate[i]);
}

// 49 bits, not 0: so the tags of the first 2^49 records are not 0, as fresh memory is.
static uint64_t draw_key(const struct shm_peer *p)
{
    uint64_t key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != sizeof key)
        key = vb_clock_ns() * 0x9e3779b97f4a7c15u ^ (uintptr_t)p;
    return (key >> 15) + 1;
}

// Sends a new ring over the connection. 0 or a negative errno; then nothing is left of it.
static int offer_ring(struct shm *s, struct shm_peer *p, int fd)
{
    struct shm_hello hello = {.magic = SHM_MAGIC,
                              .version = SHM_VERSION,
                              .ring_bytes = s->ring_bytes,
                              .key = draw_key(p),
                              .address = s->port.local};
    void *map;
    int memory = vb_shm_memory_create("verbena-ring", s->ring_bytes, &map);
    if (memory < 0)
        return memory;
    int error = vb_shm_say(fd, &hello, sizeof hello, memory);
    close(memory);
    if (error == 0)
        error = vb_shm_watch(s, fd, &p->end);
    if (error < 0) {
        vb_shm_memory_unmap(map, s->ring_bytes);
        return error;
    }
    vb_shm_ring_tx_init(&p->ring, map, s->ring_bytes, hello.key);
    return 0;
}

static bool call(struct shm *s, struct shm_peer *p)
{
    uint64_t now_ns = vb_clock_ns();
    if (now_ns < p->retry_ns)
        return false;
    int fd = vb_shm_place_call_unit(&s->place, &p->address, p->unit);
    if (fd >= 0 && (!vb_shm_same_user(fd) || offer_ring(s, p, fd) < 0)) {
        close(fd);
        fd = -ECONNREFUSED;
    }
    if (fd < 0) {
        postpone(p, now_ns, PAUSE_ABSENT_NS);
        return false;
    }
    p->fd = fd;
    if (p->unit == 0)
        p->unit_mask = vb_shm_place_units(&s->place, &p->address) - 1;
    p->state = SHM_PEER_CALLED;
    p->woken = p->full_since_ns = 0;
    return true;
}

// Calls it if need be.
static bool is_there(struct shm *s, struct shm_peer *p)
{
    if (p->state != SHM_PEER_ABSENT)
        return true;
    int before = vb_cancel_hold();
    bool called = call(s, p);
    vb_cancel_allow(before);
    return called;
}

bool vb_shm_peer_reach(struct shm *s, struct vb_path *path)
{
    struct shm_peer *p = path->via;
    if (p == NULL) {
        p = find(s, &path->remote);
        if (p == NULL)
            return false;
        path->via = p;
    }
    return is_there(s, p);
}

// The unit that has the frame's destination, if it can be reached; else the first, which hands it
// over.
static struct shm_peer *unit_for(struct shm *s, struct shm_peer *first, const struct vb_txq *txq,
                                 const struct vb_tx_frame *frame)
{
    uint32_t unit = vb_get_be24(txq->arena + frame->offset + 5) & first->unit_mask;
    if (unit == 0)
        return first;
    if (first->mate[unit] == NULL)
        first->mate[unit] = make(&first->address, unit);
    struct shm_peer *p = first->mate[unit];
    return p != NULL && is_there(s, p) ? p : first;
}

// ---- hearing from it

static void hear_reply(struct shm *s, struct shm_peer *p)
{
    struct shm_reply reply;
    const void *map;
    int memory;
    int error = vb_shm_hear(p->fd, &reply, sizeof reply, &memory);
    if (error == -EAGAIN)
        return;
    if (error == 0) {
        error = -EPROTO;
        if (reply.magic == SHM_MAGIC && reply.version == SHM_VERSION && reply.guest < SHM_GUESTS)
            error = vb_shm_memory_adopt(memory, sizeof *p->board, &map);
        close(memory);
    }
    if (error < 0) {
        s->port.stats.rx_bad_peers += error != -EPIPE;
        drop(s, p);
        return;
    }
    p->board = map;
    p->guest = reply.guest;
    p->state = SHM_PEER_UP;
    p->pause_ns = PAUSE_MIN_NS;
}

// After its reply a peer has nothing to say but that it is gone.
void vb_shm_peer_event(struct shm *s, struct shm_peer *peer)
{
    int before = vb_cancel_hold();
    if (peer->state == SHM_PEER_CALLED) {
        hear_reply(s, peer);
    } else if (peer->state == SHM_PEER_UP) {
        char byte;
        ssize_t got = recv(peer->fd, &byte, sizeof byte, MSG_DONTWAIT);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
            s->port.stats.rx_bad_peers += got > 0;
            drop(s, peer);
        }
    }
    vb_cancel_allow(before);
}

// ---- sending

enum outcome {
    WRITTEN,
    LOST, // the peer is gone, or has not read for too long
    LATER,
};

// The ring seemed full: looks how far the peer is by now.
static enum outcome squeeze(struct shm *s, struct shm_peer *p, const struct vb_txq *txq,
                            const struct vb_tx_frame *frame)
{
    uint64_t limit = p->ring.limit;
    if (p->state == SHM_PEER_CALLED)
        vb_shm_peer_event(s, p);
    if (p->state == SHM_PEER_UP &&
        !vb_shm_ring_credit(&p->ring, atomic_load_explicit(&p->board->guest[p->guest].consumed,
                                                           memory_order_acquire))) {
        s->port.stats.rx_bad_peers++;
        drop(s, p);
    }
    if (p->state == SHM_PEER_ABSENT)
        return LOST;
    if (p->ring.limit != limit)
        p->full_since_ns = 0;
    if (vb_shm_ring_put(&p->ring, txq, frame))
        return WRITTEN;
    uint64_t now_ns = vb_clock_ns();
    if (p->full_since_ns == 0)
        p->full_since_ns = now_ns;
    if (now_ns - p->full_since_ns < STALL_NS)
        return LATER;
    vb_shm_peer_event(s, p);
    return LOST;
}

static enum outcome write_frame(struct shm *s, const struct vb_txq *txq,
                                const struct vb_tx_frame *frame)
{
    if (!vb_shm_peer_reach(s, frame->path))
        return LOST;
    struct shm_peer *p = frame->path->via;
    if (p->unit_mask != 0)
        p = unit_for(s, p, txq, frame);
    if (!vb_shm_ring_put(&p->ring, txq, frame)) {
        enum outcome outcome = squeeze(s, p, txq, frame);
        if (outcome != WRITTEN)
            return outcome;
    }
    if (s->port.trace != NULL)
        vb_trace_sent(s->port.trace, vb_clock_ns(), 0, txq, frame);
    if (p->turn != s->turn) {
        p->turn = s->turn;
        s->written[s->written_count++] = p;
    }
    return WRITTEN;
}

// Wakes those who sleep. A peer says that it sleeps and then looks at the ring; we have written to
// the ring and then look whether it sleeps: one of us sees the other. One that has not replied yet
// will look at the ring after its reply.
static void ring_bells(struct shm *s)
{
    if (s->written_count == 0)
        return;
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < s->written_count; i++) {
        struct shm_peer *p = s->written[i];
        if (p->state == SHM_PEER_CALLED)
            vb_shm_peer_event(s, p);
        if (p->state != SHM_PEER_UP)
            continue;
        uint64_t nap = atomic_load_explicit(&p->board->nap, memory_order_relaxed);
        if ((nap & 1) == 0 || nap == p->woken)
            continue;
        p->woken = nap;
        int before = vb_cancel_hold();
        // A full socket holds wake-ups enough.
        if (send(p->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
            drop(s, p);
        vb_cancel_allow(before);
    }
}

void vb_shm_peer_send(struct vb_port *port, struct vb_txq *txq)
{
    struct shm *s = (struct shm *)port;
    s->turn++;
    s->written_count = 0;
    for (; txq->taken < txq->count; txq->taken++) {
        enum outcome outcome = write_frame(s, txq, &txq->frame[txq->taken]);
        if (outcome == LATER)
            break;
        s->port.stats.tx_errors += outcome == LOST;
    }
    ring_bells(s);
}

void vb_shm_peer_close_all(struct shm *s)
{
    for (uint32_t i = 0; i < SHM_PEER_BUCKETS; i++) {
        for (struct shm_peer *p = s->bucket[i], *next; p != NULL; p = next) {
            next = p->next;
            if (p->state != SHM_PEER_ABSENT)
                drop(s, p);
            for (uint32_t unit = 0; unit < SHM_UNITS; unit++)
                free(p->mate[unit]);
            free(p);
        }
    }
}
