// SPDX-License-Identifier: Apache-2.0
// Addresses and ports as programs write them, and which of our addresses leads to another.
#include "rdmacm/rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static const struct vb_ip v4_prefix = {{[10] = 0xff, [11] = 0xff}};

bool vb_rdmacm_get_name(const struct sockaddr *address, struct vb_rdmacm_name *name)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    *name = (struct vb_rdmacm_name){.ip = v4_prefix};
    if (!address)
        return false;
    if (address->sa_family == AF_INET) {
        memcpy(name->ip.b + 12, &v4->sin_addr, 4);
        name->port = ntohs(v4->sin_port);
        return true;
    }
    if (address->sa_family != AF_INET6)
        return false;
    memcpy(name->ip.b, &v6->sin6_addr, 16);
    name->port = ntohs(v6->sin6_port);
    name->scope = v6->sin6_scope_id;
    return true;
}

void vb_rdmacm_put_name(const struct vb_rdmacm_name *name, struct sockaddr_storage *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(name->port)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(name->port), .sin6_scope_id = name->scope};

    memset(address, 0, sizeof *address);
    if (vb_ip_is_v4(&name->ip)) {
        memcpy(&v4.sin_addr, name->ip.b + 12, 4);
        memcpy(address, &v4, sizeof v4);
    } else {
        memcpy(&v6.sin6_addr, name->ip.b, 16);
        memcpy(address, &v6, sizeof v6);
    }
}

bool vb_rdmacm_is_any(const struct vb_ip *ip)
{
    static const struct vb_ip v6_any;
    return vb_ip_equal(ip, &v4_prefix) || vb_ip_equal(ip, &v6_any);
}

bool vb_rdmacm_is_multicast(const struct vb_ip *ip)
{
    return vb_ip_is_v4(ip) ? ip->b[12] >> 4 == 0xe : ip->b[0] == 0xff;
}

// The kernel decides when a socket is connected; nothing is sent.
int vb_rdmacm_route(const struct vb_rdmacm_name *to, struct vb_ip *from)
{
    struct vb_rdmacm_name name = *to;
    struct sockaddr_storage address;
    socklen_t len = sizeof address;

    name.port = 4791;
    vb_rdmacm_put_name(&name, &address);
    int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int err = 0;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        err = -errno;
    close(fd);
    if (!err && !vb_rdmacm_get_name((struct sockaddr *)&address, &name))
        err = -EADDRNOTAVAIL;
    if (!err)
        *from = name.ip;
    return err;
}
