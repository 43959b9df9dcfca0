// SPDX-License-Identifier: Apache-2.0
// Opening the ports that a NIC asks for: udp, shm, or both (auto), one for each unit.
#include "host/open.h"

#include "host/congestion.h"
#include "host/host.h"
#include "port/auto.h"
#include "port/clock.h"
#include "port/faulty.h"
#include "port/shm.h"
#include "port/udp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_ports(struct vb_port **ports, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ports[i]->ops->close(ports[i]);
}

enum {
    SOCKET_BYTES_MAX = 1 << 30
};

// The sockets' buffers, if the environment asks for less than all that can be had: to see what a
// system's defaults do.
static int find_socket_bytes(const struct vb_nic_opts *o, uint32_t *bytes)
{
    const char *text = getenv("VERBENA_SOCKET_BYTES");
    char *end = NULL;
    unsigned long value = text && *text ? strtoul(text, &end, 10) : 0;

    *bytes = (uint32_t)value;
    if (!end || (*end == '\0' && *text >= '0' && *text <= '9' && value <= SOCKET_BYTES_MAX))
        return 0;
    if (o->error_text)
        snprintf(o->error_text, VB_ERROR_TEXT,
                 "VERBENA_SOCKET_BYTES: '%.40s' is not a number of bytes up to %d", text,
                 SOCKET_BYTES_MAX);
    return -EINVAL;
}

static int open_udp(const struct vb_nic_opts *o, const char *address, struct vb_port **ports,
                    uint32_t count)
{
    struct vb_udp_opts udp = {.address = address,
                              .error_text = o->error_text,
                              .ecn = vb_host_congestion_on(o),
                              .shared = true};
    int err = find_socket_bytes(o, &udp.socket_bytes);
    return err ? err : vb_udp_open_group(&udp, ports, count);
}

int vb_host_open_sides(const struct vb_port *first, const char *address, struct vb_port **ports,
                       uint32_t count, char *error_text)
{
    const struct vb_nic_opts words = {.error_text = error_text};
    struct vb_udp_opts udp = {
        .address = address, .error_text = error_text, .shared = true, .beside = first};
    int err = find_socket_bytes(&words, &udp.socket_bytes);
    return err ? err : vb_udp_open_group(&udp, ports, count);
}

static int open_shm(const struct vb_nic_opts *o, const char *address, struct vb_port **ports,
                    uint32_t count)
{
    return vb_shm_open_group(&(struct vb_shm_opts){.address = address, .error_text = o->error_text},
                             ports, count);
}

// Joins the ports of each unit. On error those not joined yet are closed by themselves.
static int join(const struct vb_nic_opts *o, struct vb_port **udp, struct vb_port **shm,
                struct vb_port **ports, uint32_t count)
{
    uint32_t joined = 0;
    int err = 0;
    for (; joined < count; joined++) {
        const struct vb_auto_opts both = {shm[joined], udp[joined], o->error_text};
        err = vb_auto_open(&both, &ports[joined]);
        if (err)
            break;
    }
    if (err) {
        close_ports(ports, joined);
        close_ports(udp + joined, count - joined);
        close_ports(shm + joined, count - joined);
    }
    return err;
}

static int open_auto(const struct vb_nic_opts *o, const char *address, struct vb_port **ports,
                     uint32_t count)
{
    struct vb_port *udp[VB_HOST_LANES], *shm[VB_HOST_LANES];
    int err = open_udp(o, address, udp, count);
    if (err)
        return err;
    err = open_shm(o, address, shm, count);
    if (err == -EADDRINUSE) { // peers would meet that one
        close_ports(udp, count);
        return err;
    }
    // Without a place to meet there is still the network.
    if (err) {
        memcpy(ports, udp, count * sizeof *ports);
        return 0;
    }
    return join(o, udp, shm, ports, count);
}

static const char *or_environment(const char *given, const char *name, const char *fallback)
{
    const char *value = given ? given : getenv(name);
    return value && *value ? value : fallback;
}

const char *vb_host_port_text(const struct vb_nic_opts *o)
{
    return or_environment(o->port, "VERBENA_PORT", "udp");
}

const char *vb_host_fault_text(const struct vb_nic_opts *o)
{
    return or_environment(o->faults, "VERBENA_FAULTS", "off");
}

struct opener {
    const char *name;
    int (*open)(const struct vb_nic_opts *opts, const char *address, struct vb_port **ports,
                uint32_t count);
};

int vb_host_open_ports(const struct vb_nic_opts *o, struct vb_port **ports, uint32_t count)
{
    static const struct opener openers[] = {
        {"udp", open_udp}, {"shm", open_shm}, {"auto", open_auto}};
    const char *name = vb_host_port_text(o);
    const char *address = o->address ? o->address : "127.0.0.1";

    for (size_t i = 0; i < sizeof openers / sizeof openers[0]; i++)
        if (strcmp(openers[i].name, name) == 0)
            return openers[i].open(o, address, ports, count);
    if (o->error_text)
        snprintf(o->error_text, VB_ERROR_TEXT, "no port '%.40s': there are udp, shm and auto",
                 name);
    return -EINVAL;
}

static uint64_t clock_ns(void *ctx)
{
    (void)ctx;
    return vb_clock_ns();
}

struct vb_port *vb_host_wrap_port(struct vb_port *inner, struct vb_faults *faults)
{
    return vb_faulty_wrap(inner, faults, clock_ns, NULL);
}
