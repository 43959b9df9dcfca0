// SPDX-License-Identifier: Apache-2.0
// What the core and a port exchange: frames (UDP payloads) and the path they take.
#ifndef VB_NIC_FRAME_H
#define VB_NIC_FRAME_H

#include "wire/icrc.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

// An IP address; IPv4 as ::ffff:a.b.c.d.
struct vb_ip {
    uint8_t b[16];
};

// What a path's packets carry in their IP headers, and how urgent they are. 0: as the system has
// it. None of it is covered by the ICRC, since routers change it.
struct vb_path_attr {
    uint32_t flow_label;   // 20 bits; IPv4 has none
    uint8_t traffic_class; // IPv4: type of service; where a port marks for congestion control, the
                           // two bits of ECN are the port's
    uint8_t hop_limit;
    uint8_t sl; // service level, up to VB_WQE_SL_MAX
    uint8_t reserved;
};

static_assert(sizeof(struct vb_path_attr) == 8, "compared as one word");

static inline bool vb_path_attr_equal(const struct vb_path_attr *a, const struct vb_path_attr *b)
{
    return __builtin_memcmp(a, b, sizeof *a) == 0;
}

// Where a queue pair's frames go. The ICRC flow is the port's to use when it seals a frame.
struct vb_path {
    struct vb_ip local, remote;
    struct vb_path_attr attr;
    uint16_t src_port; // UDP source port the port sends from
    bool ipv4;
    bool spoiled; // a fault on purpose: its frames arrive as if their ICRC were wrong
    uint32_t qpn; // the queue pair whose frames take it; 0: those of several, which say it
    struct vb_icrc_flow icrc;
    void *via;                    // the port's note of where this path leads; NULL: none yet
    struct vb_path *retired_next; // the core's list of paths that no queue pair uses any more
};

// One frame received: BTH to ICRC, checked by the port. The bytes are the port's, and last until
// the PU has consumed the frame. A peer may be able to write to `data` meanwhile (shared memory),
// so headers are read from `head` alone.
struct vb_rx_frame {
    const uint8_t *data;
    const uint8_t *head; // the first VB_FRAME_HEAD bytes (or all), which nobody else can change
    uint32_t len;
    struct vb_ip src;
    union { // of its IP header
        struct {
            uint32_t flow_label; // IPv6
            uint8_t traffic_class;
            uint8_t hop_limit; // 0: this and the two above are unknown
            bool ce;           // congestion was met on the way (RFC 3168)
        };
        uint64_t ip_word; // all of it
    };
    const struct vb_ip *to; // the address that it came to, a group's or a further one of the NIC's;
                            // NULL: the NIC's first
};

// One frame to send. Its bytes are in the PU's arena, but for a payload that was lent: that stays
// in the application's memory, after the first `head` bytes. What is in the arena of frames that
// follow each other lies back to back, so a run of equal lengths on one path is one segmented send.
struct vb_tx_frame {
    struct vb_path *path;
    uint32_t offset;     // in the arena
    uint32_t len;        // BTH to ICRC, the lent payload included
    uint32_t head;       // bytes before the lent payload
    uint32_t body_len;   // 0: nothing is lent
    const uint8_t *body; // the lent payload
};

enum {
    VB_TX_FRAMES = 256,
    VB_TX_BYTES = 256 * 1024,
    VB_FRAME_HEAD = 64, // holds all headers of any packet
};

struct vb_txq {
    uint8_t *arena; // VB_TX_BYTES
    uint32_t used;
    uint32_t count; // frames written
    uint32_t taken; // of these, frames the port has sent
    struct vb_tx_frame frame[VB_TX_FRAMES];
};

// The queue pair that sends a frame, of whose headers `len` bytes are there. 0: they do not say it.
uint32_t vb_tx_source(const struct vb_path *path, const uint8_t *head, uint32_t len);

// Writes the ICRC of a frame that will leave with the IPv4 identification `id`.
void vb_tx_seal(struct vb_txq *txq, const struct vb_tx_frame *frame, uint16_t id);

// Copies the whole frame, frame->len bytes.
void vb_tx_copy(const struct vb_txq *txq, const struct vb_tx_frame *frame, uint8_t *dst);

void vb_path_init(struct vb_path *path, const struct vb_ip *local, const struct vb_ip *remote,
                  uint16_t src_port);

static inline bool vb_ip_equal(const struct vb_ip *a, const struct vb_ip *b)
{
    return __builtin_memcmp(a->b, b->b, 16) == 0;
}

bool vb_path_attr_is_legal(const struct vb_path_attr *attr);
bool vb_ip_is_v4(const struct vb_ip *ip);
bool vb_ip_is_multicast(const struct vb_ip *ip);

#endif
