// SPDX-License-Identifier: Apache-2.0
// A shm port that sends to a stranger: any reply with any descriptor, any numbers on its board,
// changed between two sends. Whatever it is told, the port writes lawful records into its own ring,
// comes to an end, and lets the stranger go.
//
// Input: flags, then steps of four bytes: a kind and three bytes of choice. With REPLY_RAW the
// first steps are the reply, too.
#include "base/bytes.h"
#include "port/shm.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    REPLY_RAW = 1,
    REPLY_WRONG_MEMORY = 2, // of another size
    STEPS_AT = 1,
    FRAMES_MAX = 64,
    CALLS_MAX = 100,
};

enum step {
    STEP_SEND,
    STEP_ACCEPT, // the call, and its hello
    STEP_REPLY,
    STEP_READ, // what is in the ring, and says how far it got
    STEP_CONSUMED,
    STEP_NAP,
    STEP_LOOK,
    STEP_WORD, // after the reply there is nothing to say
    STEP_HANG_UP,
    STEP_KINDS,
};

static void check(bool holds, int line)
{
    if (!holds) {
        fprintf(stderr, "fuzz_shm_peer.c:%d does not hold\n", line);
        abort();
    }
}

#define require(condition) check(condition, __LINE__)

// The port lives as long as the process; the stranger is called again by each input.
struct target {
    struct vb_port *port;
    struct shm *shm;
    struct shm_place place; // the stranger's
    struct shm_board *board;
    int board_fd, other_fd;
    struct vb_path path;
    struct vb_txq txq;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    char dir[32];
};

// The stranger's end of one connection.
struct end {
    int fd; // -1: none
    const void *map;
    struct shm_ring_rx ring;
    uint64_t sent, read; // frames
};

static struct target target;

static void remove_dir(void)
{
    char path[64];
    for (uint32_t i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "%s/shm-%llu-127.0.0.%u.lock", target.dir,
                 target.shm->place.netns, i);
        unlink(path);
    }
    target.port->ops->close(target.port);
    vb_shm_place_close(&target.place);
    free(target.txq.arena);
    rmdir(target.dir);
}

static void set_up(void)
{
    snprintf(target.dir, sizeof target.dir, "/tmp/verbena-fuzz-XXXXXX");
    require(mkdtemp(target.dir) != NULL);
    const struct vb_shm_opts opts = {
        .address = "127.0.0.1", .runtime_dir = target.dir, .ring_bytes = SHM_RING_MIN};
    require(vb_shm_open(&opts, &target.port) == 0);
    target.shm = (struct shm *)target.port;
    struct vb_ip stranger;
    require(vb_shm_address_parse("127.0.0.2", &stranger, NULL) == 0);
    require(vb_shm_place_open((struct shm_place *[]){&target.place}, 1, target.dir, &stranger,
                              NULL) == 0);
    void *map;
    target.board_fd = vb_shm_memory_create("board", sizeof *target.board, &map);
    target.board = map;
    target.other_fd = vb_shm_memory_create("other", 4096, &map);
    require(target.board_fd >= 0 && target.other_fd >= 0);
    vb_path_init(&target.path, &target.port->local, &stranger, 49152);
    target.txq.arena = calloc(1, VB_TX_BYTES);
    require(target.txq.arena != NULL);
}

// ---- the port

// Looks at its connections, if nothing comes in.
static void look(void)
{
    (void)target.port->ops->sleep(target.port);
    require(target.port->ops->receive(target.port, target.frames) == 0);
}

static void send_frames(struct end *e, uint32_t count, uint32_t len)
{
    struct vb_txq *q = &target.txq;
    uint64_t lost = target.port->stats.tx_errors;
    q->count = q->taken = q->used = 0;
    for (uint32_t i = 0; i < count && q->used + len <= VB_TX_BYTES; i++) {
        q->frame[q->count++] =
            (struct vb_tx_frame){.path = &target.path, .offset = q->used, .len = len, .head = len};
        q->used += len;
    }
    target.port->ops->send(target.port, q);
    require(q->taken <= q->count);
    e->sent += q->taken - (target.port->stats.tx_errors - lost);
}

// ---- the stranger

static void hang_up(struct end *e)
{
    if (e->fd >= 0)
        close(e->fd);
    vb_shm_memory_unmap(e->map, SHM_RING_MIN);
    *e = (struct end){.fd = -1, .sent = e->sent}; // some may be in the ring of a call to come
}

static void answer_call(struct end *e)
{
    struct shm_hello hello;
    int memory, fd = accept4(target.place.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    hang_up(e);
    require(vb_shm_hear(fd, &hello, sizeof hello, &memory) == 0);
    require(hello.magic == SHM_MAGIC && hello.ring_bytes == SHM_RING_MIN);
    *e = (struct end){.fd = fd, .sent = e->sent};
    require(vb_shm_memory_adopt(memory, SHM_RING_MIN, &e->map) == 0);
    close(memory);
    vb_shm_ring_rx_init(&e->ring, e->map, SHM_RING_MIN, hello.key);
}

static void reply(const struct end *e, uint8_t flags, const uint8_t *data, size_t size)
{
    struct shm_reply r = {.magic = SHM_MAGIC, .version = SHM_VERSION, .guest = 3};
    if (flags & REPLY_RAW)
        memcpy(&r, data, size < sizeof r ? size : sizeof r);
    (void)vb_shm_say(e->fd, &r, sizeof r,
                     flags & REPLY_WRONG_MEMORY ? target.other_fd : target.board_fd);
}

// All that the port wrote makes sense, unless it was told that there is more room than there is.
static void read_ring(struct end *e, bool honest)
{
    struct shm_head heads[FRAMES_MAX];
    struct vb_rx_frame frames[FRAMES_MAX];
    uint32_t taken = 0;
    if (!e->map || !honest)
        return;
    require(vb_shm_ring_take(&e->ring, frames, heads, FRAMES_MAX, &taken) == SHM_RING_SOUND);
    for (uint32_t i = 0; i < taken; i++)
        require(frames[i].len >= VB_ICRC_FRAME_MIN && frames[i].len <= VB_FRAME_MAX);
    e->read += taken;
    require(e->read <= e->sent);
    atomic_store(&target.board->guest[3].consumed, e->ring.pos);
}

static void play(struct end *e, uint8_t flags, const uint8_t *data, size_t size)
{
    bool honest = !(flags & REPLY_RAW);
    const uint8_t *first = data;
    size_t all = size;
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t value = vb_get_be16(data + 2);
        switch ((enum step)(data[0] % STEP_KINDS)) {
        case STEP_SEND:
            send_frames(e, data[1] % FRAMES_MAX,
                        VB_ICRC_FRAME_MIN + value % (VB_FRAME_MAX - VB_ICRC_FRAME_MIN + 1));
            break;
        case STEP_ACCEPT: answer_call(e); break;
        case STEP_REPLY: reply(e, flags, first, all); break;
        case STEP_READ: read_ring(e, honest); break;
        case STEP_CONSUMED:
            honest = false;
            atomic_store(&target.board->guest[data[1] & 1 ? 3 : data[1]].consumed,
                         data[1] & 2 ? value * (uint64_t)SHM_LINE : value);
            break;
        case STEP_NAP: atomic_store(&target.board->nap, value); break;
        case STEP_LOOK: look(); break;
        case STEP_WORD: (void)send(e->fd, data, data[1] % 5, MSG_NOSIGNAL | MSG_DONTWAIT); break;
        case STEP_HANG_UP: hang_up(e); break;
        case STEP_KINDS: break;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct end e = {.fd = -1};
    if (target.port == NULL) {
        set_up();
        atexit(remove_dir);
    }
    if (size < STEPS_AT)
        return 0;
    memset(target.board, 0, sizeof *target.board);
    send_frames(&e, 1, 64);
    answer_call(&e);
    play(&e, data[0], data + STEPS_AT, size - STEPS_AT);
    hang_up(&e);
    look();
    struct shm_peer *peer = target.path.via;
    // On a busy machine it may have called more than once meanwhile.
    for (int tries = 0; tries < CALLS_MAX && peer && peer->state != SHM_PEER_ABSENT; tries++) {
        answer_call(&e);
        hang_up(&e);
        look();
    }
    require(peer != NULL && peer->state == SHM_PEER_ABSENT && peer->board == NULL);
    peer->retry_ns = 0; // it is called again by the next input
    return 0;
}
