// SPDX-License-Identifier: Apache-2.0
// The control channel between the two sides of a measurement: small messages over a stream socket.
#ifndef VB_CLI_PERF_CONTROL_H
#define VB_CLI_PERF_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

enum vb_control_kind {
    VB_CONTROL_HELLO = 1, // versions; first in both directions
    VB_CONTROL_SETUP,     // client: a plan; server: where its end is
    VB_CONTROL_CONNECT,   // client: where its end is; server: VB_CONTROL_OK
    VB_CONTROL_NAMES,     // client: some of its queue pairs; server: its own, which are now theirs
    VB_CONTROL_MODE,      // client: what the server shall do until the next message
    VB_CONTROL_COUNTS,    // client asks; server: what it verified and received
    VB_CONTROL_CLOSE,     // client: the measurement is over
    VB_CONTROL_OK,
    VB_CONTROL_ERROR, // server: a sentence
};

enum {
    VB_CONTROL_BODY = 2048,
    VB_CONTROL_TIMEOUT_MS = 10000, // an answer that takes longer is a failure
};

// A message is built by put… and read by get…; reading past the end sets `bad` and yields zeros.
struct vb_control_msg {
    enum vb_control_kind kind;
    uint32_t len;
    uint32_t at;
    bool bad;
    uint8_t body[VB_CONTROL_BODY];
};

void vb_control_begin(struct vb_control_msg *msg, enum vb_control_kind kind);
void vb_control_put(struct vb_control_msg *msg, uint64_t value);
void vb_control_put_bytes(struct vb_control_msg *msg, const void *bytes, uint32_t len);
uint64_t vb_control_get(struct vb_control_msg *msg);
void vb_control_get_bytes(struct vb_control_msg *msg, void *bytes, uint32_t len);

// Return 0 or a negative errno: -EPIPE: the other side is gone; -ETIMEDOUT; -EPROTO: not a message.
int vb_control_send(int fd, const struct vb_control_msg *msg);
int vb_control_receive(int fd, struct vb_control_msg *msg, int timeout_ms); // -1: for ever
// True if a message, or the end of the stream, is waiting. One system call.
bool vb_control_ready(int fd);

#endif
