// SPDX-License-Identifier: Apache-2.0
// What the core and a port exchange: frames (UDP payloads) and the path they take.
#ifndef VB_NIC_FRAME_H
#define VB_NIC_FRAME_H

#include "wire/icrc.h"

#include <stdbool.h>
#include <stdint.h>

// An IP address; IPv4 as ::ffff:a.b.c.d.
struct vb_ip {
    uint8_t b[16];
};

// Where a queue pair's frames go. The ICRC flow is the port's to use when it seals a frame.
struct vb_path {
    struct vb_ip local, remote;
    uint16_t src_port; // UDP source port the port sends from
    bool ipv4;
    struct vb_icrc_flow icrc;
    struct vb_path *retired_next; // the core's list of paths that no queue pair uses any more
};

// One frame received: BTH to ICRC, checked by the port. The bytes are the port's, and stay as they
// are until the PU has consumed the frame.
struct vb_rx_frame {
    const uint8_t *data;
    uint32_t len;
    struct vb_ip src;
};

// One frame to send, in the PU's arena. Frames that follow each other in the queue lie back to back
// in the arena, so a run of equal lengths on one path is one segmented send.
struct vb_tx_frame {
    struct vb_path *path;
    uint32_t offset;
    uint32_t len;
};

enum {
    VB_TX_FRAMES = 256,
    VB_TX_BYTES = 256 * 1024,
};

struct vb_txq {
    uint8_t *arena; // VB_TX_BYTES
    uint32_t used;
    uint32_t count; // frames written
    uint32_t taken; // of these, frames the port has sent
    struct vb_tx_frame frame[VB_TX_FRAMES];
};

void vb_path_init(struct vb_path *path, const struct vb_ip *local, const struct vb_ip *remote,
                  uint16_t src_port);

static inline bool vb_ip_equal(const struct vb_ip *a, const struct vb_ip *b)
{
    return __builtin_memcmp(a->b, b->b, 16) == 0;
}

bool vb_ip_is_v4(const struct vb_ip *ip);

#endif
