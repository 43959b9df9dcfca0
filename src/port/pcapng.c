// SPDX-License-Identifier: Apache-2.0
// Writing pcapng: every block is a type, a length, a body of fixed fields, perhaps data, options,
// and the length again, all padded to four bytes.
#include "port/pcapng.h"

#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum block_type {
    BLOCK_SECTION = 0x0a0d0d0a,
    BLOCK_INTERFACE = 1,
    BLOCK_STATISTICS = 5,
    BLOCK_PACKET = 6,
};

enum option_code {
    OPTION_END = 0,
    OPTION_COMMENT = 1,
    SECTION_APPLICATION = 4,
    INTERFACE_NAME = 2,
    INTERFACE_DESCRIPTION = 3,
    INTERFACE_RESOLUTION = 9,
    PACKET_FLAGS = 2,
    STATISTICS_RECEIVED = 4,
    STATISTICS_DROPPED = 5,
};

enum {
    BYTE_ORDER_MAGIC = 0x1a2b3c4d,
    LINK_RAW_IP = 101,     // either version of IP, which its first byte tells
    RESOLUTION_NS = 9,     // ten to the minus ninth of a second
    FRAMING_BYTES = 12,    // type, length, and the length again
    TEXT_MAX = UINT16_MAX, // an option's length has 16 bits
};

struct option {
    enum option_code code;
    size_t len;
    const void *bytes;
};

struct block {
    enum block_type type;
    const uint8_t *fixed;
    uint32_t fixed_len;
    const uint8_t *data;
    uint32_t data_len;
    const struct option *option;
    uint32_t option_count;
};

static void put_le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put_le64(uint8_t *p, uint64_t v)
{
    vb_put_le32(p, (uint32_t)v);
    vb_put_le32(p + 4, (uint32_t)(v >> 32));
}

// The format's times are two words, the upper one first whatever the byte order.
static void put_time(uint8_t *p, uint64_t time_ns)
{
    vb_put_le32(p, (uint32_t)(time_ns >> 32));
    vb_put_le32(p + 4, (uint32_t)time_ns);
}

size_t vb_pcapng_text_fit(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);
    if (len <= max)
        return len;
    len = max;
    while (len > 0 && ((uint8_t)text[len] & 0xc0) == 0x80)
        len--;
    return len;
}

static void flush(struct vb_pcapng *w)
{
    uint32_t written = 0;
    while (written < w->used && w->error == 0) {
        ssize_t n = write(w->fd, w->buffer + written, w->used - written);
        if (n > 0)
            written += (uint32_t)n;
        else if (n == 0)
            w->error = -EIO;
        else if (errno != EINTR)
            w->error = -errno;
    }
    w->used = 0;
}

static void put(struct vb_pcapng *w, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    while (len > 0) {
        size_t part = sizeof w->buffer - w->used;
        if (part > len)
            part = len;
        memcpy(w->buffer + w->used, from, part);
        w->used += (uint32_t)part;
        from += part;
        len -= part;
        if (w->used == sizeof w->buffer)
            flush(w);
    }
}

static uint32_t padded(size_t len)
{
    return ((uint32_t)len + 3) & ~3u;
}

static void put_padded(struct vb_pcapng *w, const void *bytes, size_t len)
{
    static const uint8_t zeros[3];
    put(w, bytes, len);
    put(w, zeros, padded(len) - len);
}

static void put_option(struct vb_pcapng *w, const struct option *option)
{
    uint8_t head[4];
    put_le16(head, (uint16_t)option->code);
    put_le16(head + 2, (uint16_t)option->len);
    put(w, head, sizeof head);
    put_padded(w, option->bytes, option->len);
}

static void put_block(struct vb_pcapng *w, const struct block *b)
{
    static const struct option end = {.code = OPTION_END, .bytes = ""};
    uint32_t total = FRAMING_BYTES + b->fixed_len + padded(b->data_len);
    for (uint32_t i = 0; i < b->option_count; i++)
        total += 4 + padded(b->option[i].len);
    if (b->option_count > 0)
        total += 4;
    uint8_t head[8];
    vb_put_le32(head, (uint32_t)b->type);
    vb_put_le32(head + 4, total);
    put(w, head, sizeof head);
    put(w, b->fixed, b->fixed_len);
    if (b->data_len > 0)
        put_padded(w, b->data, b->data_len);
    for (uint32_t i = 0; i < b->option_count; i++)
        put_option(w, &b->option[i]);
    if (b->option_count > 0)
        put_option(w, &end);
    put(w, head + 4, 4);
}

static uint32_t add_text(struct option *list, uint32_t count, enum option_code code,
                         const char *text)
{
    if (text == NULL || text[0] == '\0')
        return count;
    list[count] = (struct option){code, vb_pcapng_text_fit(text, TEXT_MAX), text};
    return count + 1;
}

void vb_pcapng_begin(struct vb_pcapng *w, int fd, const char *application)
{
    w->fd = fd;
    w->error = 0;
    w->interfaces = w->used = 0;
    uint8_t fixed[16];
    vb_put_le32(fixed, BYTE_ORDER_MAGIC);
    put_le16(fixed + 4, 1); // version 1.0
    put_le16(fixed + 6, 0);
    put_le64(fixed + 8, UINT64_MAX); // a length that is not told
    struct option option[1];
    put_block(w, &(struct block){
                     .type = BLOCK_SECTION,
                     .fixed = fixed,
                     .fixed_len = sizeof fixed,
                     .option = option,
                     .option_count = add_text(option, 0, SECTION_APPLICATION, application),
                 });
}

uint32_t vb_pcapng_interface(struct vb_pcapng *w, const char *name, const char *description,
                             uint32_t snap_bytes)
{
    static const uint8_t resolution = RESOLUTION_NS;
    uint8_t fixed[8];
    put_le16(fixed, LINK_RAW_IP);
    put_le16(fixed + 2, 0);
    vb_put_le32(fixed + 4, snap_bytes);
    struct option option[3];
    uint32_t count = add_text(option, 0, INTERFACE_NAME, name);
    count = add_text(option, count, INTERFACE_DESCRIPTION, description);
    option[count++] = (struct option){INTERFACE_RESOLUTION, 1, &resolution};
    put_block(w, &(struct block){
                     .type = BLOCK_INTERFACE,
                     .fixed = fixed,
                     .fixed_len = sizeof fixed,
                     .option = option,
                     .option_count = count,
                 });
    return w->interfaces++;
}

void vb_pcapng_packet(struct vb_pcapng *w, const struct vb_pcapng_packet *packet)
{
    assert(packet->interface < w->interfaces && packet->len <= packet->original_len);
    assert(packet->comment_count <= VB_PCAPNG_COMMENTS);
    uint8_t fixed[20], flags[4];
    vb_put_le32(fixed, packet->interface);
    put_time(fixed + 4, packet->time_ns);
    vb_put_le32(fixed + 12, packet->len);
    vb_put_le32(fixed + 16, packet->original_len);
    vb_put_le32(flags, (uint32_t)packet->direction);
    struct option option[1 + VB_PCAPNG_COMMENTS] = {{PACKET_FLAGS, sizeof flags, flags}};
    uint32_t count = 1;
    const char *comment = packet->comments;
    for (uint32_t i = 0; i < packet->comment_count; i++) {
        count = add_text(option, count, OPTION_COMMENT, comment);
        comment += strlen(comment) + 1;
    }
    put_block(w, &(struct block){
                     .type = BLOCK_PACKET,
                     .fixed = fixed,
                     .fixed_len = sizeof fixed,
                     .data = packet->bytes,
                     .data_len = packet->len,
                     .option = option,
                     .option_count = count,
                 });
}

void vb_pcapng_statistics(struct vb_pcapng *w, uint32_t interface, uint64_t time_ns, uint64_t seen,
                          uint64_t lost)
{
    assert(interface < w->interfaces);
    uint8_t fixed[12], received[8], dropped[8];
    vb_put_le32(fixed, interface);
    put_time(fixed + 4, time_ns);
    put_le64(received, seen);
    put_le64(dropped, lost);
    const struct option option[] = {
        {STATISTICS_RECEIVED, sizeof received, received},
        {STATISTICS_DROPPED, sizeof dropped, dropped},
    };
    put_block(w, &(struct block){
                     .type = BLOCK_STATISTICS,
                     .fixed = fixed,
                     .fixed_len = sizeof fixed,
                     .option = option,
                     .option_count = 2,
                 });
}

int vb_pcapng_end(struct vb_pcapng *w)
{
    flush(w);
    return w->error;
}
