// SPDX-License-Identifier: Apache-2.0
// Further addresses of a NIC: taken when somebody wants them, and given back when it closes.
#include "host/attach.h"
#include "host/host.h"
#include "host/open.h"
#include "port/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct vb_ip nowhere;

static int fail(char *error_text, int error, const char *words)
{
    if (error_text)
        snprintf(error_text, VB_ERROR_TEXT, "%s", words);
    return error;
}

// The n-th; needs a lane's lock. The device knows of them from the second on.
static bool address_at(const struct vb_nic *nic, uint32_t n, struct vb_ip *ip)
{
    if (n == 0)
        *ip = nic->lane[0].port->local;
    return n == 0 || vb_dev_address(nic->dev, n, ip);
}

static bool is_on(const struct vb_nic *nic, const struct vb_ip *ip)
{
    struct vb_ip own;

    for (uint32_t n = 0; address_at(nic, n, &own); n++)
        if (vb_ip_equal(&own, ip))
            return true;
    return false;
}

int vb_host_local(const struct vb_nic *nic, const uint8_t wanted[16], const uint8_t peer[16],
                  struct vb_ip *local)
{
    const struct vb_ip *first = &nic->lane[0].port->local;
    struct vb_ip ip;

    memcpy(ip.b, wanted, 16);
    if (nic->attach) { // the hull chooses
        *local = ip;
        return 0;
    }
    if (!vb_ip_equal(&ip, &nowhere)) {
        *local = ip;
        return is_on(nic, &ip) ? 0 : -EADDRNOTAVAIL;
    }
    memcpy(ip.b, peer, 16);
    *local = vb_ip_equal(&ip, &nowhere) ? *first : *vb_dev_source(nic->dev, &ip, first);
    return 0;
}

// Paths that ask for what the system does anyway cost as little as those that ask for nothing.
void vb_host_forget_default(const struct vb_nic *nic, struct vb_path_attr *attr)
{
    if (attr->hop_limit == nic->lane[0].port->hop_limit)
        attr->hop_limit = 0;
}

// Who gets datagrams is shown the headers that they came with.
void vb_host_tell_headers(struct vb_nic *nic)
{
    for (uint32_t i = 0; i < nic->lanes; i++) {
        struct vb_port *port = nic->lane[i].port;
        struct vb_port *udp = port->ops->udp ? port->ops->udp(port) : NULL;
        if (udp)
            (void)vb_udp_tell_headers(udp);
    }
}

int vb_nic_address(const struct vb_nic *nic, uint32_t n, uint8_t gid[16])
{
    struct vb_ip ip;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    int err = 0;
    vb_lane_lock(&nic->lane[0]);
    if (nic->attach && n > 0)
        err = vb_attach_address(nic->attach, n, &ip);
    else if (!address_at(nic, n, &ip))
        err = -ENOENT;
    pthread_mutex_unlock(&nic->lane[0].lock);
    if (!err)
        memcpy(gid, ip.b, 16);
    return err;
}

// An attached application's NIC is on those that the hull's configuration names.
static int take_attached(const struct vb_nic *nic, const uint8_t gid[16], char *error_text)
{
    char address[INET6_ADDRSTRLEN], words[VB_ERROR_TEXT];
    uint8_t own[16];
    struct vb_ip ip;
    int err;

    for (uint32_t n = 0; (err = vb_nic_address(nic, n, own)) == 0; n++)
        if (memcmp(own, gid, sizeof own) == 0)
            return 0;
    if (err != -ENOENT)
        return fail(error_text, err, "the hull is gone");
    memcpy(ip.b, gid, 16);
    bool v4 = vb_ip_is_v4(&ip);
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip.b + 12 : ip.b, address, sizeof address);
    snprintf(words, sizeof words,
             "the hull's NIC is not on %s: its configuration lacks 'further = %s'", address,
             address);
    return fail(error_text, -EADDRNOTAVAIL, words);
}

// The udp port of each lane, which stays while the NIC is open, whatever is wrapped around it. 1:
// it is on the address; 0: it is not; -EOPNOTSUPP; -ENOSPC.
static int find_ports(struct vb_nic *nic, const struct vb_ip *ip, struct vb_port **udp)
{
    struct vb_ip last;
    int found = 0;

    vb_host_lock(nic);
    for (uint32_t i = 0; i < nic->lanes; i++) {
        struct vb_port *port = nic->lane[i].port;
        udp[i] = port->ops->udp ? port->ops->udp(port) : NULL;
        if (!udp[i])
            found = -EOPNOTSUPP;
    }
    if (is_on(nic, ip))
        found = 1;
    else if (!found && address_at(nic, VB_DEV_ADDRESSES - 1, &last))
        found = -ENOSPC;
    vb_host_unlock(nic);
    return found;
}

static void settle(struct vb_nic *nic, const struct vb_ip *ip, struct vb_port **udp,
                   struct vb_port **sides)
{
    struct vb_ip known;

    vb_host_lock(nic);
    for (uint32_t i = 0; i < nic->lanes; i++)
        (void)vb_udp_add_side(udp[i], sides[i]); // there is room, and it is the only one
    if (!vb_dev_address(nic->dev, 0, &known))
        (void)vb_dev_add_address(nic->dev, &nic->lane[0].port->local);
    (void)vb_dev_add_address(nic->dev, ip);
    vb_host_unlock(nic);
    vb_helper_notice(nic, UINT32_MAX); // it sleeps on another descriptor from now on
}

// Sockets are opened while the NIC runs: that may have to wait for others on the address.
static int take(struct vb_nic *nic, const struct vb_ip *ip, char *error_text)
{
    struct vb_port *udp[VB_HOST_LANES], *sides[VB_HOST_LANES];
    char text[INET6_ADDRSTRLEN];
    bool v4 = vb_ip_is_v4(ip);

    int err = find_ports(nic, ip, udp);
    if (err > 0)
        return 0;
    if (err == -EOPNOTSUPP)
        return fail(error_text, err, "a NIC on the port shm alone has one address");
    if (err)
        return fail(error_text, err, "a NIC is on four addresses at most");
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip->b + 12 : ip->b, text, sizeof text);
    err = vb_host_open_sides(udp[0], text, sides, nic->lanes, error_text);
    if (!err)
        settle(nic, ip, udp, sides);
    return err == -EAFNOSUPPORT || err == -EINVAL ? -EADDRNOTAVAIL : err;
}

int vb_nic_take_address_or_say(struct vb_nic *nic, const uint8_t gid[16], char *error_text)
{
    struct vb_ip ip;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (nic->attach)
        return take_attached(nic, gid, error_text);
    int before = vb_cancel_hold();
    memcpy(ip.b, gid, 16);
    pthread_mutex_lock(&nic->address_lock);
    int err = take(nic, &ip, error_text);
    pthread_mutex_unlock(&nic->address_lock);
    vb_cancel_allow(before);
    return err;
}

int vb_nic_take_address(struct vb_nic *nic, const uint8_t gid[16])
{
    return vb_nic_take_address_or_say(nic, gid, NULL);
}
