// SPDX-License-Identifier: Apache-2.0
// The control channel: length-prefixed messages of big-endian words.
#include "cli/perf_control.h"

#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
    HEAD_BYTES = 12
};

static const uint32_t magic = 0x76627066; // "vbpf"

void vb_control_begin(struct vb_control_msg *msg, enum vb_control_kind kind)
{
    msg->kind = kind;
    msg->len = msg->at = 0;
    msg->bad = false;
}

void vb_control_put_bytes(struct vb_control_msg *msg, const void *bytes, uint32_t len)
{
    assert(msg->len + len <= VB_CONTROL_BODY);
    memcpy(msg->body + msg->len, bytes, len);
    msg->len += len;
}

void vb_control_put(struct vb_control_msg *msg, uint64_t value)
{
    uint8_t bytes[8];
    vb_put_be64(bytes, value);
    vb_control_put_bytes(msg, bytes, sizeof bytes);
}

void vb_control_get_bytes(struct vb_control_msg *msg, void *bytes, uint32_t len)
{
    if (len > msg->len - msg->at) {
        msg->bad = true;
        memset(bytes, 0, len);
        return;
    }
    memcpy(bytes, msg->body + msg->at, len);
    msg->at += len;
}

uint64_t vb_control_get(struct vb_control_msg *msg)
{
    uint8_t bytes[8];
    vb_control_get_bytes(msg, bytes, sizeof bytes);
    return vb_get_be64(bytes);
}

static int send_bytes(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == ECONNRESET ? -EPIPE : -errno;
        bytes += sent;
        len -= (size_t)sent;
    }
    return 0;
}

int vb_control_send(int fd, const struct vb_control_msg *msg)
{
    uint8_t bytes[HEAD_BYTES + VB_CONTROL_BODY];
    vb_put_be32(bytes, magic);
    vb_put_be32(bytes + 4, msg->kind);
    vb_put_be32(bytes + 8, msg->len);
    memcpy(bytes + HEAD_BYTES, msg->body, msg->len);
    return send_bytes(fd, bytes, HEAD_BYTES + msg->len);
}

static int receive_bytes(int fd, uint8_t *bytes, size_t len, int timeout_ms)
{
    while (len > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, timeout_ms);
        if (ready == 0)
            return -ETIMEDOUT;
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready < 0)
            continue;
        ssize_t got = recv(fd, bytes, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return -EPIPE;
        if (got < 0)
            return -errno;
        bytes += got;
        len -= (size_t)got;
    }
    return 0;
}

int vb_control_receive(int fd, struct vb_control_msg *msg, int timeout_ms)
{
    uint8_t head[HEAD_BYTES];
    int error = receive_bytes(fd, head, sizeof head, timeout_ms);
    if (error < 0)
        return error;
    uint32_t len = vb_get_be32(head + 8);
    if (vb_get_be32(head) != magic || len > VB_CONTROL_BODY)
        return -EPROTO;
    vb_control_begin(msg, (enum vb_control_kind)vb_get_be32(head + 4));
    msg->len = len;
    return receive_bytes(fd, msg->body, len, VB_CONTROL_TIMEOUT_MS);
}

bool vb_control_ready(int fd)
{
    uint8_t byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
