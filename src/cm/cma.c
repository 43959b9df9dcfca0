// SPDX-License-Identifier: Apache-2.0
// The header of rdma_cm: version, IP version, port, source and destination address.
#include "cm/cma.h"

#include "base/bytes.h"

// IPv4 addresses lie in the last four of their sixteen bytes, behind zeros instead of ::ffff.
static void put_address(uint8_t *to, const struct vb_ip *ip)
{
    memcpy(to, ip->b, 16);
    if (vb_ip_is_v4(ip))
        memset(to, 0, 12);
}

static struct vb_ip get_address(const uint8_t *from, bool ipv4)
{
    struct vb_ip ip = {{0}};

    if (!ipv4) {
        memcpy(ip.b, from, 16);
        return ip;
    }
    ip.b[10] = ip.b[11] = 0xff;
    memcpy(ip.b + 12, from + 12, 4);
    return ip;
}

bool vb_cma_space_of(uint64_t service_id, enum vb_cma_space *space)
{
    static const enum vb_cma_space spaces[] = {VB_CMA_IPOIB, VB_CMA_TCP, VB_CMA_UDP, VB_CMA_IB};

    for (unsigned i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (service_id >> 16 == (uint64_t)spaces[i]) {
            *space = spaces[i];
            return true;
        }
    return false;
}

void vb_cma_encode(const struct vb_cma_header *h, uint8_t bytes[VB_CMA_HEADER_BYTES])
{
    bytes[0] = VB_CMA_VERSION;
    bytes[1] = vb_ip_is_v4(&h->source) ? 4 << 4 : 6 << 4;
    vb_put_be16(bytes + 2, h->port);
    put_address(bytes + 4, &h->source);
    put_address(bytes + 20, &h->target);
}

bool vb_cma_decode(const uint8_t bytes[VB_CMA_HEADER_BYTES], struct vb_cma_header *h)
{
    uint8_t version = bytes[1] >> 4;

    if (bytes[0] != VB_CMA_VERSION || (version != 4 && version != 6))
        return false;
    h->port = vb_get_be16(bytes + 2);
    h->source = get_address(bytes + 4, version == 4);
    h->target = get_address(bytes + 20, version == 4);
    return true;
}
