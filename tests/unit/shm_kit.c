// SPDX-License-Identifier: Apache-2.0
// What the tests of the shm and auto ports share.
#include "shm_kit.h"

#include "../wait.h"
#include "base/prng.h"
#include "port/clock.h"
#include "port/shm.h"
#include "runtime_dir.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LENT_AFTER = 28,
    IDLE_RECEIVES = 1100,
};

int kit_make_dir(void **state)
{
    char name[] = "/tmp/verbena-test-XXXXXX";
    if (mkdtemp(name) == NULL)
        return -1;
    *state = strdup(name);
    return *state == NULL;
}

int kit_remove_dir(void **state)
{
    int error = runtime_dir_erase(*state);
    free(*state);
    return error;
}

struct vb_port *kit_open_shm(const char *dir, const char *address, uint32_t ring_bytes)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_shm_opts opts = {
        .address = address, .runtime_dir = dir, .ring_bytes = ring_bytes, .error_text = why};
    struct vb_port *port = NULL;
    if (vb_shm_open(&opts, &port) < 0)
        fail_msg("%s", why);
    return port;
}

void kit_socket_name(const char *dir, const char *address, struct sockaddr_un *at)
{
    struct stat ns;
    assert_int_equal(stat("/proc/self/ns/net", &ns), 0);
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(at->sun_path, sizeof at->sun_path, "%s/shm-%llu-%s", dir,
             (unsigned long long)ns.st_ino, address);
}

void kit_close(struct vb_port *port)
{
    port->ops->close(port);
}

struct vb_txq *kit_make_queue(void)
{
    struct vb_txq *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->arena = calloc(1, VB_TX_BYTES);
    assert_non_null(q->arena);
    return q;
}

void kit_free_queue(struct vb_txq *q)
{
    free(q->arena);
    free(q);
}

struct vb_rx_frame *kit_make_frames(void)
{
    struct vb_rx_frame *frames = calloc(VB_PORT_RX_BATCH, sizeof *frames);
    assert_non_null(frames);
    return frames;
}

struct vb_ip kit_ip(uint8_t last)
{
    return (struct vb_ip){.b = {[10] = 0xff, 0xff, 127, 0, 0, last}};
}

struct vb_path kit_path(const struct vb_port *from, const struct vb_ip *to)
{
    struct vb_path path = {0};
    vb_path_init(&path, &from->local, to, from->src_port);
    return path;
}

void kit_reset(struct vb_txq *q)
{
    q->used = q->count = q->taken = 0;
}

static void fill(uint8_t *bytes, uint32_t len, uint32_t tag)
{
    struct vb_prng prng = {.state = tag};
    for (uint32_t i = 0; i < len; i += 4) {
        uint32_t word = (uint32_t)vb_prng_next(&prng);
        memcpy(bytes + i, &word, len - i < 4 ? len - i : 4);
    }
}

bool kit_append(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag)
{
    if (q->count == VB_TX_FRAMES || q->used + len > VB_TX_BYTES)
        return false;
    fill(q->arena + q->used, len, tag);
    q->frame[q->count++] = (struct vb_tx_frame){.path = path, .offset = q->used, .len = len};
    q->used += len;
    return true;
}

bool kit_append_lent(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag,
                     const uint8_t *body, uint32_t body_len)
{
    if (!kit_append(q, path, len, tag))
        return false;
    struct vb_tx_frame *f = &q->frame[q->count - 1];
    uint8_t *bytes = q->arena + f->offset;
    f->head = LENT_AFTER;
    f->body = body;
    f->body_len = body_len;
    memmove(bytes + f->head, bytes + f->head + body_len, len - f->head - body_len);
    q->used -= body_len;
    return true;
}

void kit_send_all(struct vb_port *port, struct vb_txq *q)
{
    WAIT_UNTIL((port->ops->send(port, q), q->taken == q->count));
    kit_reset(q);
}

void kit_send(struct vb_port *port, struct vb_txq *q, struct vb_path *path, uint32_t len,
              uint32_t tag)
{
    assert_true(kit_append(q, path, len, tag));
    kit_send_all(port, q);
}

bool kit_same_bytes(const struct vb_rx_frame *f, uint32_t len, uint32_t tag)
{
    uint8_t bytes[VB_FRAME_MAX];
    if (f->len != len)
        return false;
    fill(bytes, len, tag);
    uint32_t covered = len - VB_ICRC_BYTES;
    uint32_t head = covered < VB_FRAME_HEAD ? covered : VB_FRAME_HEAD;
    return memcmp(f->data, bytes, covered) == 0 && memcmp(f->head, bytes, head) == 0;
}

bool kit_came_by_shm(const struct vb_rx_frame *f)
{
    static const uint8_t no_icrc[VB_ICRC_BYTES] = {0};
    return f->head != f->data && memcmp(f->data + f->len - VB_ICRC_BYTES, no_icrc, 4) == 0;
}

bool kit_matches(const struct vb_rx_frame *f, uint32_t len, uint32_t tag)
{
    return kit_same_bytes(f, len, tag) && kit_came_by_shm(f);
}

void kit_assert_frame(const struct vb_rx_frame *f, const struct vb_ip *src, uint32_t len,
                      uint32_t tag)
{
    assert_int_equal(f->len, len);
    assert_true(vb_ip_equal(&f->src, src));
    assert_true(kit_matches(f, len, tag));
}

bool kit_is_readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

uint32_t kit_await(struct vb_port *port, struct vb_rx_frame *frames)
{
    uint32_t n;
    WAIT_UNTIL((n = port->ops->receive(port, frames)) > 0);
    assert_true(n <= VB_PORT_RX_BATCH);
    return n;
}

uint32_t kit_receive_idle(struct vb_port *port, struct vb_rx_frame *frames)
{
    for (int i = 0; i < IDLE_RECEIVES; i++) {
        uint32_t n = port->ops->receive(port, frames);
        if (n > 0)
            return n;
    }
    return 0;
}
