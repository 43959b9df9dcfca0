// SPDX-License-Identifier: Apache-2.0
// What belongs to the process: the table of rsocket descriptors, and the administrator's defaults.
#include "rsocket/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CONFIG_DIR "/etc/rdma/rsocket/"

enum {
    EXIT_PATIENCE_NS = 1000 * 1000 * 1000,
    EXIT_LEAST_NS = 1000 * 1000, // for each wait, when that has passed
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_rsocket **table;
static int table_size;

static bool exits;
static pid_t owner; // of the connections, which a child must leave alone

static pthread_once_t defaults_once = PTHREAD_ONCE_INIT;
static struct vb_rs_defaults defaults = {
    .size =
        {.send_bytes = 1 << 17, .recv_bytes = 1 << 17, .sq = 384, .rq = 384, .inline_bytes = 64},
    .polling_us = 10,
    .wake_up_ms = 5000,
};

// The number in a file, or what it was before.
static uint32_t setting(const char *path, uint32_t otherwise, uint32_t max)
{
    FILE *f = fopen(path, "re");
    unsigned value;

    if (!f)
        return otherwise;
    if (fscanf(f, "%u", &value) != 1)
        value = otherwise;
    fclose(f);
    return value > max ? max : value;
}

static void read_defaults(void)
{
    struct vb_rs_sizes *s = &defaults.size;

    s->recv_bytes = setting(CONFIG_DIR "mem_default", s->recv_bytes, INT32_MAX);
    s->send_bytes = setting(CONFIG_DIR "wmem_default", s->send_bytes, INT32_MAX);
    s->sq = (uint16_t)setting(CONFIG_DIR "sqsize_default", s->sq, UINT16_MAX);
    s->rq = (uint16_t)setting(CONFIG_DIR "rqsize_default", s->rq, UINT16_MAX);
    s->inline_bytes = (uint16_t)setting(CONFIG_DIR "inline_default", s->inline_bytes, UINT16_MAX);
    s->iomaps = (uint16_t)setting(CONFIG_DIR "iomap_size", s->iomaps, UINT16_MAX);
    defaults.polling_us = setting(CONFIG_DIR "polling_time", defaults.polling_us, 1000000);
    defaults.wake_up_ms =
        (int)setting(CONFIG_DIR "wake_up_interval", (uint32_t)defaults.wake_up_ms, INT32_MAX);
}

const struct vb_rs_defaults *vb_rs_defaults(void)
{
    pthread_once(&defaults_once, read_defaults);
    return &defaults;
}

static bool grow(int fd)
{
    int size = table_size ? table_size : 64;

    while (size <= fd)
        size *= 2;
    if (size == table_size)
        return true;
    struct vb_rsocket **larger = realloc(table, (size_t)size * sizeof *table);
    if (!larger)
        return false;
    for (int i = table_size; i < size; i++)
        larger[i] = NULL;
    table = larger;
    table_size = size;
    return true;
}

int vb_rs_table_add(struct vb_rsocket *rs)
{
    pthread_mutex_lock(&table_lock);
    int err = grow(rs->fd) ? 0 : -ENOMEM;
    if (!err) {
        table[rs->fd] = rs;
        rs->references = 1;
    }
    pthread_mutex_unlock(&table_lock);
    return err;
}

struct vb_rsocket *vb_rs_get(int fd)
{
    pthread_mutex_lock(&table_lock);
    struct vb_rsocket *rs = fd >= 0 && fd < table_size ? table[fd] : NULL;
    if (rs)
        rs->references++;
    pthread_mutex_unlock(&table_lock);
    return rs;
}

void vb_rs_put(struct vb_rsocket *rs)
{
    pthread_mutex_lock(&table_lock);
    bool last = --rs->references == 0;
    pthread_mutex_unlock(&table_lock);
    if (last)
        vb_rs_free(rs);
}

struct vb_rsocket *vb_rs_table_remove(int fd)
{
    pthread_mutex_lock(&table_lock);
    struct vb_rsocket *rs = fd >= 0 && fd < table_size ? table[fd] : NULL;
    if (rs)
        table[fd] = NULL;
    pthread_mutex_unlock(&table_lock);
    return rs;
}

uint64_t vb_rs_exit_by(uint64_t by_ns)
{
    uint64_t least_ns = vb_rs_now_ns() + EXIT_LEAST_NS;

    return by_ns > least_ns ? by_ns : least_ns;
}

static bool lock_until(pthread_mutex_t *lock, uint64_t by_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(by_ns / 1000000000),
                                   .tv_nsec = (long)(by_ns % 1000000000)};

    return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until) == 0;
}

static void leave(struct vb_rsocket *rs, bool waits, uint64_t by_ns)
{
    if (!lock_until(&rs->lock, waits ? vb_rs_exit_by(by_ns) : 0))
        return;
    if (!rs->leave_by_ns && rs->type == SOCK_STREAM && rs->state == VB_RS_CONNECTED &&
        rs->stream.connected) {
        rs->leave_by_ns = by_ns;
        vb_rs_shutdown(rs, SHUT_RDWR);
    }
    pthread_mutex_unlock(&rs->lock);
}

static bool leave_all(bool waits, uint64_t by_ns)
{
    for (int fd = 0;; fd++) {
        if (!lock_until(&table_lock, vb_rs_exit_by(by_ns)))
            return false;
        bool over = fd >= table_size;
        pthread_mutex_unlock(&table_lock);
        if (over)
            return true;
        struct vb_rsocket *rs = vb_rs_get(fd);
        if (!rs)
            continue;
        leave(rs, waits, by_ns);
        vb_rs_put(rs);
    }
}

// As the kernel does for sockets that were not closed; all together have the same time. A thread
// that calls exit() in a signal handler may hold a lock of its own: what is free goes first.
static void at_exit(void)
{
    uint64_t by_ns = vb_rs_now_ns() + EXIT_PATIENCE_NS;
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); // a thread that rests has locks
    if (getpid() == owner && leave_all(false, by_ns))
        leave_all(true, by_ns);
    pthread_setcancelstate(before, &before);
}

int vb_rs_watch_exit(void)
{
    pthread_mutex_lock(&table_lock);
    if (!exits)
        exits = atexit(at_exit) == 0;
    owner = getpid();
    pthread_mutex_unlock(&table_lock);
    return exits ? 0 : -ENOMEM;
}
