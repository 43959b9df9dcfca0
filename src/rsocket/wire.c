// SPDX-License-Identifier: Apache-2.0
// Encoding and decoding of what rsockets send. Nothing here trusts a length.
#include "rsocket/wire.h"

#include <endian.h>
#include <string.h>

enum {
    FLAG_BIG_ENDIAN = 1 << 0,
    FLAG_IOMAP = 1 << 1,
    UDP_TAG = 0x55555555,
    QPN_MASK = 0xffffff,
    LIST_ENTRIES_MAX = 1024, // upstream has 2; a peer with more is believed up to here
};

bool vb_rs_host_is_big_endian(void)
{
    return htobe16(1) == 1;
}

struct vb_rs_sge vb_rs_sge_swap(struct vb_rs_sge sge)
{
    return (struct vb_rs_sge){__builtin_bswap64(sge.addr), __builtin_bswap32(sge.key),
                              __builtin_bswap32(sge.bytes)};
}

uint8_t vb_rs_scale(uint32_t value)
{
    if (value <= 128)
        return (uint8_t)value;
    uint32_t high = value >> 8 > 127 ? 127 : value >> 8;
    return (uint8_t)(128 | high);
}

uint16_t vb_rs_unscale(uint8_t scale)
{
    return scale <= 128 ? scale : (uint16_t)((scale & 127) << 8);
}

static uint8_t *put_sge(uint8_t *at, const struct vb_rs_sge *sge)
{
    struct vb_rs_sge big = {htobe64(sge->addr), htobe32(sge->key), htobe32(sge->bytes)};
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

static const uint8_t *get_sge(const uint8_t *at, struct vb_rs_sge *sge)
{
    struct vb_rs_sge big;
    memcpy(&big, at, sizeof big);
    *sge = (struct vb_rs_sge){be64toh(big.addr), be32toh(big.key), be32toh(big.bytes)};
    return at + sizeof big;
}

void vb_rs_hello_encode(const struct vb_rs_hello *h, uint8_t out[VB_RS_HELLO_BYTES])
{
    memset(out, 0, VB_RS_HELLO_BYTES);
    out[0] = VB_RS_VERSION;
    out[1] = FLAG_IOMAP | (h->big_endian ? FLAG_BIG_ENDIAN : 0);
    out[2] = (uint8_t)(h->credits >> 8);
    out[3] = (uint8_t)h->credits;
    out[7] = vb_rs_scale(h->iomaps);
    put_sge(put_sge(out + 8, &h->list), &h->buffer);
}

bool vb_rs_hello_decode(const void *bytes, size_t len_bytes, struct vb_rs_hello *h)
{
    const uint8_t *in = bytes;

    if (!in || len_bytes < VB_RS_HELLO_BYTES || in[0] != VB_RS_VERSION)
        return false;
    h->big_endian = in[1] & FLAG_BIG_ENDIAN;
    h->credits = (uint16_t)(in[2] << 8 | in[3]);
    h->iomaps = in[1] & FLAG_IOMAP ? vb_rs_unscale(in[7]) : 0;
    get_sge(get_sge(in + 8, &h->list), &h->buffer);
    return h->list.bytes > 0 && h->list.bytes <= LIST_ENTRIES_MAX;
}

static const struct sockaddr_in *as4(const struct sockaddr *a)
{
    return (const struct sockaddr_in *)(const void *)a;
}

static const struct sockaddr_in6 *as6(const struct sockaddr *a)
{
    return (const struct sockaddr_in6 *)(const void *)a;
}

size_t vb_rs_udp_encode(const struct vb_rs_udp_header *h, const struct sockaddr *own,
                        uint8_t out[VB_RS_UDP_HEADER6])
{
    bool is4 = own->sa_family == AF_INET;
    uint32_t tag = htobe32(UDP_TAG), qpn = htobe32(h->qpn & QPN_MASK);
    size_t len_bytes = is4 ? VB_RS_UDP_HEADER4 : VB_RS_UDP_HEADER6;

    memset(out, 0, VB_RS_UDP_HEADER6);
    memcpy(out, &tag, 4);
    out[4] = is4 ? 4 : 6;
    out[5] = h->op;
    out[6] = (uint8_t)len_bytes;
    memcpy(out + 8, &qpn, 4);
    if (is4)
        memcpy(out + 12, &as4(own)->sin_addr, 4);
    else
        memcpy(out + 12, &as6(own)->sin6_addr, 16);
    return len_bytes;
}

size_t vb_rs_udp_decode(const void *bytes, size_t len_bytes, int family, struct vb_rs_udp_header *h)
{
    const uint8_t *in = bytes;
    size_t want = family == AF_INET ? VB_RS_UDP_HEADER4 : VB_RS_UDP_HEADER6;
    uint32_t tag, qpn;

    if (len_bytes < want || in[6] != want || in[4] != (family == AF_INET ? 4 : 6))
        return 0;
    memcpy(&tag, in, 4);
    memcpy(&qpn, in + 8, 4);
    if (be32toh(tag) != UDP_TAG || (in[5] != VB_RS_DATA && in[5] != VB_RS_CTRL))
        return 0;
    h->op = in[5];
    h->qpn = be32toh(qpn) & QPN_MASK;
    return want;
}

size_t vb_rs_ud_encode(const struct sockaddr *own, uint8_t out[VB_RS_UD_HEADER6])
{
    bool is4 = own->sa_family == AF_INET;
    size_t len_bytes = is4 ? VB_RS_UD_HEADER4 : VB_RS_UD_HEADER6;

    out[0] = is4 ? 4 : 6;
    out[1] = (uint8_t)len_bytes;
    if (is4) {
        memcpy(out + 2, &as4(own)->sin_port, 2);
        memcpy(out + 4, &as4(own)->sin_addr, 4);
    } else {
        memcpy(out + 2, &as6(own)->sin6_port, 2);
        memcpy(out + 4, &as6(own)->sin6_flowinfo, 4);
        memcpy(out + 8, &as6(own)->sin6_addr, 16);
    }
    return len_bytes;
}

size_t vb_rs_ud_decode(const void *bytes, size_t len_bytes, struct sockaddr_storage *from)
{
    const uint8_t *in = bytes;

    memset(from, 0, sizeof *from);
    if (len_bytes >= VB_RS_UD_HEADER4 && in[0] == 4 && in[1] == VB_RS_UD_HEADER4) {
        struct sockaddr_in *in4 = (struct sockaddr_in *)from;
        in4->sin_family = AF_INET;
        memcpy(&in4->sin_port, in + 2, 2);
        memcpy(&in4->sin_addr, in + 4, 4);
        return VB_RS_UD_HEADER4;
    }
    if (len_bytes >= VB_RS_UD_HEADER6 && in[0] == 6 && in[1] == VB_RS_UD_HEADER6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)from;
        in6->sin6_family = AF_INET6;
        memcpy(&in6->sin6_port, in + 2, 2);
        memcpy(&in6->sin6_flowinfo, in + 4, 4);
        memcpy(&in6->sin6_addr, in + 8, 16);
        return VB_RS_UD_HEADER6;
    }
    return 0;
}
