// SPDX-License-Identifier: Apache-2.0
// A trace: the last frames a port sent and received, in a ring of fixed size, with remarks on them,
// and its dump as pcapng. Frames are kept as the packets that a capture on the wire would hold: the
// IP and UDP headers, which a socket does not show, are written here.
//
// One thread at a time: whoever may use the port may also use its trace, dumping included.
// Recording allocates nothing.
#ifndef VB_PORT_TRACE_H
#define VB_PORT_TRACE_H

#include "nic/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VB_TRACE_RING_MIN = 4096,
    VB_TRACE_REMARKS = 8,      // on one frame; more are ignored
    VB_TRACE_REMARK_MAX = 255, // bytes; a longer one is cut and ends in an ellipsis
    VB_TRACE_HOP_LIMIT = 64,
};

struct vb_trace;

// The trace that frames of a queue pair of this side go to. NULL: none.
typedef struct vb_trace *vb_trace_pick(void *ctx, uint32_t qpn);

struct vb_trace_opts {
    uint32_t ring_bytes; // from VB_TRACE_RING_MIN on; a packet costs 24 bytes beyond its own
    uint32_t snap_bytes; // of each packet, IP header included, that are kept; 0: all
    bool seal;           // the port's frames carry no ICRC: write a right one into each
    // What to add to the times of frames to get nanoseconds since 1970.
    int64_t wall_offset_ns;
    // Keeps nothing itself, but hands each frame, and the remarks on it, to the trace that is
    // picked.
    vb_trace_pick *pick;
    void *pick_ctx;
};

// Returns 0 and the trace, or -EINVAL (ring too small) or -ENOMEM.
int vb_trace_create(const struct vb_trace_opts *opts, struct vb_trace **out);
void vb_trace_destroy(struct vb_trace *trace); // NULL is fine

// A trace as bytes, which another process can dump: how many there are for a ring, the bytes, and
// the trace that they are. NULL: they are none of a ring of this size.
size_t vb_trace_bytes(uint32_t ring_bytes);
void vb_trace_save(const struct vb_trace *trace, void *bytes);
const struct vb_trace *vb_trace_saved(const void *bytes, uint32_t ring_bytes);

// What wall_offset_ns is now for times of vb_clock_ns().
int64_t vb_trace_wall_offset_ns(void);

// The packet around a received frame. A plain socket does not see the last four, for which zero
// means the usual values.
struct vb_trace_packet {
    struct vb_ip src, dst;
    uint16_t src_port;
    uint16_t id;         // IPv4 identification
    uint8_t tos;         // over IPv6 the traffic class
    uint8_t hop_limit;   // 0: VB_TRACE_HOP_LIMIT
    uint32_t flow_label; // IPv6
    bool spoiled;        // what sealing writes is wrong, as the frame was on purpose
};

// Records a frame of `txq`, sealed for the identification `id` unless the trace does the sealing.
void vb_trace_sent(struct vb_trace *trace, uint64_t now_ns, uint16_t id, const struct vb_txq *txq,
                   const struct vb_tx_frame *frame);

// Records what came: any bytes of any length, which are read once.
void vb_trace_received(struct vb_trace *trace, uint64_t now_ns,
                       const struct vb_trace_packet *packet, const uint8_t *frame, uint32_t len);

// Adds a remark (UTF-8) to the frame recorded last.
__attribute__((format(printf, 2, 3))) void vb_trace_remark(struct vb_trace *trace,
                                                           const char *format, ...);

// One interface of a dump.
struct vb_trace_source {
    const struct vb_trace *trace;
    const char *name;        // such as "udp 127.0.0.1"
    const char *description; // NULL: none
};

// Writes one file of all frames in the traces, oldest first, and of how many each has lost. Returns
// 0 or a negative errno.
int vb_trace_dump(const struct vb_trace_source *sources, uint32_t count, int fd);

// Frames recorded ever, and how many of them have been overwritten since.
uint64_t vb_trace_seen(const struct vb_trace *trace);
uint64_t vb_trace_lost(const struct vb_trace *trace);

#endif
