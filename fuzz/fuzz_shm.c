// SPDX-License-Identifier: Apache-2.0
// A shm port whose guest is a stranger: any hello, any bytes in the ring, rewritten between two
// receives. Whatever it is told, the port hands out frames of lawful lengths whose bytes can be
// read, comes to an end, and lets the stranger go.
//
// Input: flags, the ring's key (8 bytes), then steps of four bytes: a kind, whose top bit counts
// lines from the reader on, a line, and a length or byte. With HELLO_RAW the steps are the hello,
// too.
#include "base/bytes.h"
#include "port/shm.h"
#include "port/shm_memory.h"
#include "port/shm_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HELLO_RAW = 1,
    KEY_AT = 1,
    STEPS_AT = 9,
    RECEIVES_MAX = 1 << 14,
};

enum step {
    STEP_RECORD, // a word with the right tag at the reader's or any line
    STEP_BYTES,  // one line of a byte
    STEP_RECEIVE,
    STEP_BELL,
    STEP_KINDS,
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

// The port lives as long as the process: guests come and go.
struct target {
    struct vb_port *port;
    struct shm *shm;
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
    uint8_t *ring; // the stranger's own mapping
    int memory;
    char dir[32];
};

static struct target target;

static void remove_dir(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/shm-%llu-127.0.0.1.lock", target.dir, target.shm->place.netns);
    target.port->ops->close(target.port);
    unlink(path);
    rmdir(target.dir);
}

static void set_up(void)
{
    snprintf(target.dir, sizeof target.dir, "/tmp/verbena-fuzz-XXXXXX");
    require(mkdtemp(target.dir) != NULL);
    struct vb_shm_opts opts = {.address = "127.0.0.1", .runtime_dir = target.dir};
    require(vb_shm_open(&opts, &target.port) == 0);
    target.shm = (struct shm *)target.port;
    void *map;
    target.memory = vb_shm_memory_create("stranger", SHM_RING_MIN, &map);
    require(target.memory >= 0);
    target.ring = map;
}

static uint32_t receive(void)
{
    uint32_t n = target.port->ops->receive(target.port, target.frames);
    require(n <= VB_PORT_RX_BATCH);
    uint8_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct vb_rx_frame *f = &target.frames[i];
        require(f->len >= VB_ICRC_FRAME_MIN && f->len <= VB_FRAME_MAX);
        uint32_t head = f->len < VB_FRAME_HEAD ? f->len : VB_FRAME_HEAD;
        require(memcmp(f->head, f->data, head) == 0); // nobody writes right now
        sum = (uint8_t)(sum + f->data[0] + f->data[f->len - 1]);
    }
    volatile uint8_t read_them = sum;
    (void)read_them;
    return n;
}

static void drain(void)
{
    for (uint32_t receives = 0; receive() > 0; receives++)
        require(receives < RECEIVES_MAX);
}

// Looks at the connections, if nothing is in the ring.
static void look(void)
{
    for (uint32_t i = 0; target.port->ops->sleep(target.port) < 0 && i < RECEIVES_MAX; i++)
        (void)receive(); // a guest's space comes first
    (void)receive();
}

// Where the port reads next; the stranger could follow that itself.
static uint64_t reader_pos(void)
{
    return target.shm->guest_count > 0 ? target.shm->guest[0]->ring.pos : 0;
}

static void play(int fd, uint64_t key, const uint8_t *data, size_t size)
{
    for (; size >= 4; data += 4, size -= 4) {
        uint64_t line = data[1];
        uint32_t value = (uint32_t)data[2] | (uint32_t)data[3] << 8;
        uint64_t pos = (data[0] & 0x80 ? reader_pos() : 0) + line * SHM_LINE;
        switch ((enum step)((data[0] & 0x7f) % STEP_KINDS)) {
        case STEP_RECORD: {
            uint64_t word = (key + pos / SHM_LINE) << SHM_LEN_BITS | (value & 0x3fff);
            memcpy(target.ring + pos % SHM_RING_MIN, &word, sizeof word);
            break;
        }
        case STEP_BYTES:
            memset(target.ring + pos % SHM_RING_MIN, (int)value & 0xff, SHM_LINE);
            break;
        case STEP_RECEIVE: (void)receive(); break;
        case STEP_BELL: (void)send(fd, data, value % 5, MSG_NOSIGNAL | MSG_DONTWAIT); break;
        case STEP_KINDS: break;
        }
    }
}

// Whether the hello is one that the port must accept.
static bool is_lawful(const struct shm_hello *hello)
{
    return hello->magic == SHM_MAGIC && hello->version == SHM_VERSION &&
           hello->ring_bytes == SHM_RING_MIN;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shm_hello hello = {
        .magic = SHM_MAGIC, .version = SHM_VERSION, .ring_bytes = SHM_RING_MIN};
    if (target.port == NULL) {
        set_up();
        atexit(remove_dir);
    }
    if (size < STEPS_AT)
        return 0;
    memcpy(&hello.key, data + KEY_AT, sizeof hello.key);
    if (data[0] & HELLO_RAW)
        memcpy(&hello, data + STEPS_AT,
               size - STEPS_AT < sizeof hello ? size - STEPS_AT : sizeof hello);
    memset(target.ring, 0, SHM_RING_MIN);

    uint64_t bad = target.port->stats.rx_bad_peers;
    int fd = vb_shm_place_call(&target.shm->place, &target.port->local);
    require(fd >= 0);
    require(vb_shm_say(fd, &hello, sizeof hello, target.memory) == 0);
    look();
    require(is_lawful(&hello) || target.port->stats.rx_bad_peers == bad + 1);
    play(fd, hello.key, data + STEPS_AT, size - STEPS_AT);
    close(fd);
    drain();
    look();
    drain();
    require(target.shm->guest_count == 0);
    require(target.port->stats.rx_bad_peers <= bad + 1);
    return 0;
}
