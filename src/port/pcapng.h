// SPDX-License-Identifier: Apache-2.0
// A writer of pcapng capture files: what Wireshark opens. Always little-endian, times in
// nanoseconds, packets that begin with their IP header.
#ifndef VB_PORT_PCAPNG_H
#define VB_PORT_PCAPNG_H

#include <stddef.h>
#include <stdint.h>

enum {
    VB_PCAPNG_COMMENTS = 8, // of one packet, at most
    VB_PCAPNG_BUFFER = 32 * 1024,
};

// Values of the direction bits in the packet's flags.
enum vb_pcapng_direction {
    VB_PCAPNG_UNKNOWN = 0,
    VB_PCAPNG_INBOUND = 1,
    VB_PCAPNG_OUTBOUND = 2,
};

// The first error sticks and nothing is written after it, so only the end needs to be checked.
struct vb_pcapng {
    int fd;
    int error; // negative errno
    uint32_t interfaces;
    uint32_t used;
    uint8_t buffer[VB_PCAPNG_BUFFER];
};

struct vb_pcapng_packet {
    uint32_t interface; // as vb_pcapng_interface() numbered it
    enum vb_pcapng_direction direction;
    uint64_t time_ns;     // since 1970
    const uint8_t *bytes; // from the IP header on
    uint32_t len;         // of these bytes; at most original_len
    uint32_t original_len;
    const char *comments; // comment_count texts, each with its final NUL, one behind the other
    uint32_t comment_count;
};

// All texts are UTF-8, and cut where the format can hold no more.

// Begins a file; `application` is its maker's name. The descriptor stays the caller's.
void vb_pcapng_begin(struct vb_pcapng *w, int fd, const char *application);

// Describes one more interface, whose packets are kept up to `snap_bytes` (0: whole). NULL or empty
// texts are left out. Returns its number.
uint32_t vb_pcapng_interface(struct vb_pcapng *w, const char *name, const char *description,
                             uint32_t snap_bytes);

void vb_pcapng_packet(struct vb_pcapng *w, const struct vb_pcapng_packet *packet);

// How many packets the interface saw, and how many of them are not in the file.
void vb_pcapng_statistics(struct vb_pcapng *w, uint32_t interface, uint64_t time_ns, uint64_t seen,
                          uint64_t lost);

// Writes what is still buffered. Returns 0 or the first error, a negative errno.
int vb_pcapng_end(struct vb_pcapng *w);

// Length of the longest beginning of `text`, at most `max` bytes, that cuts no character.
size_t vb_pcapng_text_fit(const char *text, size_t max);

#endif
