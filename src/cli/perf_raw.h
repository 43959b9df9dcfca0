// SPDX-License-Identifier: Apache-2.0
// The yardstick: what plain UDP sockets do on the same two cores. Echo by spinning, non-blocking
// sockets, and one way in segmented batches. The sockets are of the NIC's kind, not connected,
// since a NIC talks to many peers; the echo is measured with a connected client as well.
#ifndef VB_CLI_PERF_RAW_H
#define VB_CLI_PERF_RAW_H

#include "base/hist.h"
#include "cli/perf.h"

#include <netinet/in.h>
#include <sys/socket.h>

struct vb_raw {
    int fd;
    bool yield;     // the other side needs this core
    bool connected; // client
    struct sockaddr_storage peer;
    socklen_t peer_len;
    uint8_t *buffer;
};

// Binds to an address of ours, any port, which it returns in *port. -1: see `why`.
int vb_raw_open(struct vb_raw *raw, const uint8_t gid[16], uint16_t *port, char *why);
void vb_raw_close(struct vb_raw *raw);

// The server's side: both return when a message waits on `control`.
void vb_raw_echo(struct vb_raw *raw, int control);
uint64_t vb_raw_sink(struct vb_raw *raw, int control); // packets received

// The client's side: where the server is, and whether to connect the socket to it. -1: see `why`.
int vb_raw_aim(struct vb_raw *raw, const uint8_t gid[16], uint16_t port, bool connected, char *why);
int vb_raw_ping(struct vb_raw *raw, uint32_t size, const struct vb_perf_budget *budget, int control,
                struct vb_hist *hist, char *why);
// Sends packets of `size` bytes one way; *sent is how many the system took.
int vb_raw_blast(struct vb_raw *raw, uint32_t size, const struct vb_perf_budget *budget,
                 uint64_t *sent, char *why);

#endif
