// SPDX-License-Identifier: Apache-2.0
// rdma_getaddrinfo(): names to addresses, by the system's getaddrinfo().
#include "rdmacm/rdmacm.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

enum {
    FAMILY_IB = 27, // of addresses without IP, which there are none of
};

static void form_hints(const struct rdma_addrinfo *from, struct addrinfo *to)
{
    *to = (struct addrinfo){.ai_family = from->ai_family == FAMILY_IB ? 0 : from->ai_family};
    if (from->ai_flags & RAI_PASSIVE)
        to->ai_flags |= AI_PASSIVE;
    if (from->ai_flags & RAI_NUMERICHOST)
        to->ai_flags |= AI_NUMERICHOST;
    if (from->ai_qp_type)
        to->ai_socktype = from->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
    if (from->ai_port_space == RDMA_PS_TCP)
        to->ai_protocol = IPPROTO_TCP;
    else if (from->ai_port_space == RDMA_PS_UDP || from->ai_port_space == RDMA_PS_IPOIB)
        to->ai_protocol = IPPROTO_UDP;
}

static bool copy(const void *from, size_t len, void **to)
{
    if (!from || !len)
        return true;
    *to = malloc(len);
    if (*to)
        memcpy(*to, from, len);
    return *to != NULL;
}

static bool copy_address(const struct sockaddr *from, socklen_t len, struct sockaddr **to,
                         socklen_t *to_len)
{
    void *made = NULL;

    if (!copy(from, len, &made))
        return false;
    *to = made;
    *to_len = made ? len : 0;
    return true;
}

static int type_of(const struct rdma_addrinfo *hints, const struct addrinfo *a)
{
    if (hints->ai_qp_type)
        return hints->ai_qp_type;
    if (hints->ai_port_space == RDMA_PS_UDP || hints->ai_port_space == RDMA_PS_IPOIB)
        return IBV_QPT_UD;
    return a && a->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
}

static int space_of(const struct rdma_addrinfo *hints, const struct addrinfo *a)
{
    if (hints->ai_port_space)
        return hints->ai_port_space;
    if (a && a->ai_protocol == IPPROTO_UDP)
        return RDMA_PS_UDP;
    return type_of(hints, a) == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

// `a` may be NULL: the hints have the addresses then.
static struct rdma_addrinfo *form(const struct rdma_addrinfo *hints, const struct addrinfo *a)
{
    bool passive = hints->ai_flags & RAI_PASSIVE;
    struct rdma_addrinfo *info = calloc(1, sizeof *info);

    if (!info)
        return NULL;
    info->ai_flags = hints->ai_flags;
    info->ai_family = a ? a->ai_family : hints->ai_family;
    info->ai_qp_type = type_of(hints, a);
    info->ai_port_space = space_of(hints, a);
    const struct sockaddr *source = passive && a ? a->ai_addr : hints->ai_src_addr;
    socklen_t source_len = passive && a ? a->ai_addrlen : hints->ai_src_len;
    const struct sockaddr *target = passive ? NULL : a ? a->ai_addr : hints->ai_dst_addr;
    socklen_t target_len = passive ? 0 : a ? a->ai_addrlen : hints->ai_dst_len;
    if (!copy_address(source, source_len, &info->ai_src_addr, &info->ai_src_len) ||
        !copy_address(target, target_len, &info->ai_dst_addr, &info->ai_dst_len) ||
        !copy(hints->ai_connect, hints->ai_connect_len, &info->ai_connect)) {
        rdma_freeaddrinfo(info);
        return NULL;
    }
    info->ai_connect_len = info->ai_connect ? hints->ai_connect_len : 0;
    char *name = a && a->ai_canonname ? strdup(a->ai_canonname) : NULL;
    *(passive ? &info->ai_src_canonname : &info->ai_dst_canonname) = name;
    return info;
}

static bool is_listed(const struct rdma_addrinfo *list, const struct addrinfo *a, bool passive)
{
    for (; list; list = list->ai_next) {
        const struct sockaddr *address = passive ? list->ai_src_addr : list->ai_dst_addr;
        socklen_t len = passive ? list->ai_src_len : list->ai_dst_len;
        if (address && len == a->ai_addrlen && memcmp(address, a->ai_addr, len) == 0)
            return true;
    }
    return false;
}

// Each address once: the system lists it by kinds of sockets.
static int form_list(const struct rdma_addrinfo *hints, const struct addrinfo *a,
                     struct rdma_addrinfo **list)
{
    struct rdma_addrinfo **end = list;

    *list = NULL;
    for (; a; a = a->ai_next) {
        if (is_listed(*list, a, hints->ai_flags & RAI_PASSIVE))
            continue;
        *end = form(hints, a);
        if (!*end) {
            rdma_freeaddrinfo(*list);
            *list = NULL;
            return vb_rdmacm_fail(ENOMEM, "rdma_getaddrinfo", "no memory");
        }
        end = &(*end)->ai_next;
    }
    return 0;
}

// What getaddrinfo() says against it is returned as it is: one of EAI_….
VB_RAW_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
                                   const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
    static const struct rdma_addrinfo none;
    const struct rdma_addrinfo *wanted = hints ? hints : &none;
    struct addrinfo system_hints, *found = NULL;

    if (!node && !service && !hints)
        return vb_rdmacm_fail(EINVAL, "rdma_getaddrinfo", "neither a name nor a hint");
    if (!node && !service) {
        *res = form(wanted, NULL);
        return *res ? 0 : vb_rdmacm_fail(ENOMEM, "rdma_getaddrinfo", "no memory");
    }
    form_hints(wanted, &system_hints);
    int error = getaddrinfo(node, service, hints ? &system_hints : NULL, &found);
    if (error)
        return error;
    error = form_list(wanted, found, res);
    freeaddrinfo(found);
    return error;
}

VB_RAW_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
    while (info) {
        struct rdma_addrinfo *next = info->ai_next;
        free(info->ai_src_addr);
        free(info->ai_dst_addr);
        free(info->ai_src_canonname);
        free(info->ai_dst_canonname);
        free(info->ai_route);
        free(info->ai_connect);
        free(info);
        info = next;
    }
}
