// SPDX-License-Identifier: Apache-2.0
// Guests of a shm port: those who send to us. A guest is a stranger until its hello, its memory and
// its user have been checked, and its ring stays a stranger's memory afterwards.
#include "port/shm_memory.h"
#include "port/shm_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPT_BATCH = 16,
    DRAIN_BATCH = 16, // wake-ups that are read at a time; more keep the descriptor readable
};

void vb_shm_guest_hang_up(struct shm *s, struct shm_guest *guest)
{
    if (guest->fd >= 0)
        vb_shm_hang_up(s, guest->fd);
    guest->fd = -1;
}

// ---- arrival

static bool claim_index(struct shm *s, uint32_t *index)
{
    for (uint32_t i = 0; i < SHM_GUESTS; i++) {
        if ((s->index_used[i / 64] >> (i % 64) & 1) == 0) {
            s->index_used[i / 64] |= 1ull << (i % 64);
            *index = i;
            return true;
        }
    }
    return false;
}

static void release_index(struct shm *s, uint32_t index)
{
    s->index_used[index / 64] &= ~(1ull << (index % 64));
}

// Takes the connection.
static void admit(struct shm *s, int fd)
{
    uint32_t index;
    struct shm_guest *g = NULL;
    if (!vb_shm_same_user(fd)) {
        s->port.stats.rx_bad_peers++;
        close(fd);
        return;
    }
    if (!claim_index(s, &index)) {
        close(fd);
        return;
    }
    g = calloc(1, sizeof *g);
    if (g == NULL || vb_shm_watch(s, fd, &g->end) < 0) {
        release_index(s, index);
        free(g);
        close(fd);
        return;
    }
    g->end = SHM_END_GUEST;
    g->fd = fd;
    g->index = index;
    vb_shm_ring_rx_init_silent(&g->ring);
    s->guest[s->guest_count++] = g;
    vb_shm_guest_event(s, g);
}

// Without a free descriptor a waiting connection would keep us awake for ever: it is refused.
static void turn_away(struct shm *s)
{
    close(s->spare);
    int fd = accept4(s->place.listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void vb_shm_guest_accept(struct shm *s)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(s->place.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if ((errno == EMFILE || errno == ENFILE) && s->spare >= 0)
                turn_away(s);
            return;
        }
        admit(s, fd);
    }
}

// ---- introduction

static bool is_sound(const struct shm_hello *hello)
{
    return hello->magic == SHM_MAGIC && hello->version == SHM_VERSION &&
           vb_shm_ring_valid_bytes(hello->ring_bytes);
}

// Maps the guest's ring and shows it our board. A guest that died meanwhile is still listened to.
static int introduce(struct shm *s, struct shm_guest *g, const struct shm_hello *hello, int memory)
{
    struct shm_reply reply = {.magic = SHM_MAGIC, .version = SHM_VERSION, .guest = g->index};
    int error = is_sound(hello) ? vb_shm_memory_adopt(memory, hello->ring_bytes, &g->map) : -EPROTO;
    if (error < 0)
        return error;
    g->map_bytes = hello->ring_bytes;
    g->address = hello->address;
    atomic_store_explicit(&s->board->guest[g->index].consumed, 0, memory_order_release);
    error = vb_shm_say(g->fd, &reply, sizeof reply, s->board_fd);
    if (error < 0 && error != -EPIPE && error != -ECONNRESET)
        return error;
    vb_shm_ring_rx_init(&g->ring, g->map, g->map_bytes, hello->key);
    return 0;
}

static void greet(struct shm *s, struct shm_guest *g)
{
    struct shm_hello hello;
    int memory;
    int error = vb_shm_hear(g->fd, &hello, sizeof hello, &memory);
    if (error == -EAGAIN)
        return;
    if (error == 0) {
        error = introduce(s, g, &hello, memory);
        close(memory);
    }
    if (error < 0) {
        s->port.stats.rx_bad_peers += error != -EPIPE; // who only looked and left does no harm
        vb_shm_guest_hang_up(s, g);
        s->has_ended = true;
    }
}

// What comes after the hello is wake-ups, which have done their work by being readable.
static void drain(struct shm *s, struct shm_guest *g)
{
    for (int i = 0; i < DRAIN_BATCH; i++) {
        char bytes[16];
        ssize_t got = recv(g->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        vb_shm_guest_hang_up(s, g);
        s->has_ended = true;
        return;
    }
}

void vb_shm_guest_event(struct shm *s, struct shm_guest *guest)
{
    if (guest->map == NULL)
        greet(s, guest);
    else
        drain(s, guest);
}

// ---- departure

static void discard(struct shm *s, struct shm_guest *g)
{
    vb_shm_guest_hang_up(s, g);
    vb_shm_memory_unmap(g->map, g->map_bytes);
    release_index(s, g->index);
    free(g);
}

void vb_shm_guest_reap(struct shm *s)
{
    s->has_ended = false;
    for (uint32_t i = 0; i < s->guest_count;) {
        struct shm_guest *g = s->guest[i];
        bool is_over = g->fd < 0;
        bool is_lending = g->returned != g->ring.pos;
        if (is_over && !is_lending && (g->garbage || !vb_shm_ring_waiting(&g->ring))) {
            discard(s, g);
            s->guest[i] = s->guest[--s->guest_count];
        } else {
            s->has_ended |= is_over;
            i++;
        }
    }
}

void vb_shm_guest_close_all(struct shm *s)
{
    while (s->guest_count > 0)
        discard(s, s->guest[--s->guest_count]);
}
