// SPDX-License-Identifier: Apache-2.0
// The yardstick of shared memory.
#include "cli/perf_line.h"

#include "cli/perf_control.h"
#include "cli/perf_pattern.h"
#include "port/clock.h"
#include "port/shm.h"
#include "port/shm_place.h"
#include "port/shm_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    APART = 128, // two lines: processors fetch pairs
    PAGE = 4096,
    SLOT = 4096, // of the ring, like a packet
    SLOTS = SHM_RING_DEFAULT / SLOT,
    BATCH = 16,          // round trips between two looks at the clock
    LOOK_EVERY = 1 << 14 // fruitless looks at a line between two at the control channel
};

#define STUCK_NS 10000000000ull

static_assert(VB_PERF_COPY_BYTES % SLOT == 0, "messages are whole slots");

struct vb_line_memory {
    alignas(APART) _Atomic uint64_t ping;
    alignas(APART) _Atomic uint64_t pong;
    alignas(APART) _Atomic uint64_t written; // slots, by the client
    alignas(APART) _Atomic uint64_t taken;   // by the server
    alignas(PAGE) uint8_t ring[SLOTS][SLOT];
};

// ---- the memory

static uint64_t netns(void)
{
    struct stat st;
    return stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
}

uint64_t vb_line_place(void)
{
    char dir[PATH_MAX], boot[64] = "";
    struct stat st;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fgets(boot, sizeof boot, f) == NULL)
            *boot = '\0';
        fclose(f);
    }
    if (!*boot || vb_shm_runtime_dir(NULL, dir, sizeof dir) < 0 || stat(dir, &st) < 0)
        return 0;
    uint64_t place = (st.st_dev * 0x9e3779b97f4a7c15u ^ st.st_ino) * 0x9e3779b97f4a7c15u ^ netns();
    for (const char *c = boot; *c; c++)
        place = (place ^ (uint8_t)*c) * 0x100000001b3u;
    return place ? place : 1;
}

bool vb_line_meets(const uint8_t gid[16])
{
    struct shm_place place = {.netns = netns(), .listener = -1};
    struct vb_ip ip;
    memcpy(ip.b, gid, sizeof ip.b);
    if (vb_shm_runtime_dir(NULL, place.dir, sizeof place.dir) < 0)
        return false;
    int fd = vb_shm_place_call(&place, &ip);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void name_of(uint64_t token, char name[64])
{
    snprintf(name, 64, "/verbena-perf-%016llx", (unsigned long long)token);
}

// Takes over the descriptor.
static int map(struct vb_line *line, int fd, char *why)
{
    void *memory =
        mmap(NULL, sizeof *line->memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    line->memory = memory == MAP_FAILED ? NULL : memory;
    line->buffer = aligned_alloc(PAGE, VB_PERF_COPY_BYTES);
    if (line->memory == NULL || line->buffer == NULL) {
        vb_line_close(line);
        return vb_perf_fail(why, "no memory for the shared-memory baseline");
    }
    vb_pattern_fill(line->buffer, VB_PERF_COPY_BYTES, line->token, 0);
    return 0;
}

int vb_line_create(struct vb_line *line, uint64_t token, char *why)
{
    char name[64];
    line->token = token;
    name_of(token, name);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    line->named = fd >= 0;
    // Allocated, not only sized: a full /dev/shm is an error here and no signal later.
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, sizeof *line->memory);
    if (error) {
        if (fd >= 0)
            close(fd);
        vb_line_forget(line);
        return vb_perf_fail(why, "no shared memory for the baseline: /dev/shm: %s",
                            strerror(error));
    }
    return map(line, fd, why);
}

int vb_line_join(struct vb_line *line, uint64_t token, char *why)
{
    char name[64];
    struct stat st;
    line->token = token;
    name_of(token, name);
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        st.st_size == (off_t)sizeof *line->memory)
        return map(line, fd, why);
    if (fd >= 0)
        close(fd);
    return vb_perf_fail(why, "the client's shared memory is not here; is it on another host, or "
                             "another user's?");
}

void vb_line_forget(struct vb_line *line)
{
    char name[64];
    name_of(line->token, name);
    if (line->named)
        (void)shm_unlink(name);
    line->named = false;
}

void vb_line_close(struct vb_line *line)
{
    vb_line_forget(line);
    if (line->memory != NULL)
        (void)munmap(line->memory, sizeof *line->memory);
    free(line->buffer);
    line->memory = NULL;
    line->buffer = NULL;
}

// ---- waiting

static uint64_t look_at(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

// Called after each fruitless look. True: a message waits.
static inline bool is_called(const struct vb_line *line, uint32_t *idle, int control)
{
    if (line->yield)
        sched_yield();
    return ++*idle % LOOK_EVERY == 0 && vb_control_ready(control);
}

// The client waits until the word is at least `value`.
static inline int await(struct vb_line *line, const _Atomic uint64_t *word, uint64_t value,
                        int control, char *why)
{
    uint64_t give_up = 0;
    for (uint32_t idle = 0; look_at(word) < value;) {
        if (is_called(line, &idle, control))
            return vb_perf_fail(why, "the other side went away during the raw baseline");
        if (idle % LOOK_EVERY)
            continue;
        uint64_t now = vb_clock_ns();
        give_up = give_up ? give_up : now + STUCK_NS;
        if (now > give_up)
            return vb_perf_fail(why, "the shared-memory baseline is stuck");
    }
    return 0;
}

// ---- a line goes round

void vb_line_echo(struct vb_line *line, int control)
{
    struct vb_line_memory *m = line->memory;
    uint64_t seen = look_at(&m->pong);
    for (uint32_t idle = 0;;) {
        uint64_t ping = look_at(&m->ping);
        if (ping != seen)
            set(&m->pong, seen = ping);
        else if (is_called(line, &idle, control))
            return;
    }
}

int vb_line_ping(struct vb_line *line, const struct vb_perf_budget *budget, int control,
                 struct vb_hist *hist, char *why)
{
    struct vb_line_memory *m = line->memory;
    uint64_t number = look_at(&m->ping), begin = vb_clock_ns();
    for (uint64_t n = 0; n < budget->ops && begin < budget->end_ns; n += BATCH) {
        for (unsigned i = 0; i < BATCH; i++) {
            set(&m->ping, ++number);
            if (await(line, &m->pong, number, control, why) < 0)
                return -1;
        }
        uint64_t end = vb_clock_ns();
        vb_hist_record(hist, (end - begin) / BATCH);
        begin = end;
    }
    return 0;
}

// ---- a copy

// Puts one message into the ring, slot by slot, from slot *at on.
static int put_message(struct vb_line *line, uint64_t *at, uint64_t *taken, int control, char *why)
{
    struct vb_line_memory *m = line->memory;
    for (uint32_t offset = 0; offset < VB_PERF_COPY_BYTES; offset += SLOT) {
        if (*at - *taken == SLOTS) {
            if (await(line, &m->taken, *at - SLOTS + 1, control, why) < 0)
                return -1;
            *taken = look_at(&m->taken);
        }
        memcpy(m->ring[*at % SLOTS], line->buffer + offset, SLOT);
        set(&m->written, ++*at);
    }
    return 0;
}

int vb_line_copy(struct vb_line *line, const struct vb_perf_budget *budget, int control,
                 struct vb_perf_copied *copied, char *why)
{
    struct vb_line_memory *m = line->memory;
    uint64_t at = look_at(&m->written), taken = at, begin = vb_clock_ns(), now = begin;
    for (uint64_t n = 0; n < budget->ops && now < budget->end_ns; n++) {
        if (put_message(line, &at, &taken, control, why) < 0)
            return -1;
        copied->bytes += VB_PERF_COPY_BYTES;
        now = vb_clock_ns();
    }
    if (await(line, &m->taken, at, control, why) < 0)
        return -1;
    copied->ns += vb_clock_ns() - begin;
    return 0;
}

uint64_t vb_line_take(struct vb_line *line, int control)
{
    struct vb_line_memory *m = line->memory;
    uint64_t at = look_at(&m->taken), wrong = 0;
    memset(line->buffer, 0, VB_PERF_COPY_BYTES);
    for (uint32_t idle = 0;;) {
        uint64_t written = look_at(&m->written);
        if (written == at && is_called(line, &idle, control))
            break;
        for (; at < written; set(&m->taken, ++at))
            memcpy(line->buffer + at * SLOT % VB_PERF_COPY_BYTES, m->ring[at % SLOTS], SLOT);
    }
    // The last message is still there; the ring would have to err in step to hide a wrong one.
    if (at > 0 && !vb_pattern_matches(line->buffer, VB_PERF_COPY_BYTES, line->token, 0))
        wrong++;
    return wrong;
}
