// SPDX-License-Identifier: Apache-2.0
// Opening the port that a NIC asks for: udp, shm, or both (auto), with faults around it.
#include "host/open.h"

#include "host/congestion.h"
#include "port/auto.h"
#include "port/clock.h"
#include "port/faulty.h"
#include "port/shm.h"
#include "port/udp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_udp(const struct vb_nic_opts *o, const char *address, struct vb_port **port)
{
    return vb_udp_open(&(struct vb_udp_opts){.address = address,
                                             .error_text = o->error_text,
                                             .ecn = vb_host_congestion_on(o)},
                       port);
}

static int open_shm(const struct vb_nic_opts *o, const char *address, struct vb_port **port)
{
    return vb_shm_open(&(struct vb_shm_opts){.address = address, .error_text = o->error_text},
                       port);
}

static int open_auto(const struct vb_nic_opts *o, const char *address, struct vb_port **port)
{
    struct vb_auto_opts both = {.error_text = o->error_text};
    int err = open_udp(o, address, &both.udp);
    if (err)
        return err;
    // Without a place to meet there is still the network.
    if (open_shm(o, address, &both.shm) != 0) {
        *port = both.udp;
        return 0;
    }
    err = vb_auto_open(&both, port);
    if (err) {
        both.shm->ops->close(both.shm);
        both.udp->ops->close(both.udp);
    }
    return err;
}

static const char *or_environment(const char *given, const char *name, const char *fallback)
{
    const char *value = given ? given : getenv(name);
    return value && *value ? value : fallback;
}

struct opener {
    const char *name;
    int (*open)(const struct vb_nic_opts *opts, const char *address, struct vb_port **port);
};

static int open_named(const struct vb_nic_opts *o, struct vb_port **port)
{
    static const struct opener ports[] = {
        {"udp", open_udp}, {"shm", open_shm}, {"auto", open_auto}};
    const char *name = or_environment(o->port, "VERBENA_PORT", "udp");
    const char *address = o->address ? o->address : "127.0.0.1";

    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        if (strcmp(ports[i].name, name) == 0)
            return ports[i].open(o, address, port);
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

// Several units share an address by steering in the system, which only sockets have.
static int open_several(const struct vb_nic_opts *o, struct vb_port **ports, uint32_t count)
{
    const char *name = or_environment(o->port, "VERBENA_PORT", "udp");
    const struct vb_udp_opts udp = {.address = o->address ? o->address : "127.0.0.1",
                                    .error_text = o->error_text,
                                    .ecn = vb_host_congestion_on(o)};

    if (strcmp(name, "udp") == 0)
        return vb_udp_open_group(&udp, ports, count);
    if (o->error_text)
        snprintf(o->error_text, VB_ERROR_TEXT, "several units need the port udp, not %.40s", name);
    return -EINVAL;
}

static void close_ports(struct vb_port **ports, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ports[i]->ops->close(ports[i]);
}

int vb_host_open_ports(const struct vb_nic_opts *o, struct vb_port **ports, uint32_t count,
                       struct vb_port **faulty)
{
    struct vb_faults *faults = NULL;
    int err =
        vb_faults_parse(or_environment(o->faults, "VERBENA_FAULTS", "off"), &faults, o->error_text);
    if (err)
        return err;
    *faulty = NULL;
    if (count > 1 && vb_faults_rules(faults) > 0) {
        if (o->error_text)
            snprintf(o->error_text, VB_ERROR_TEXT, "faults on purpose need a NIC of one unit");
        vb_faults_free(faults);
        return -EINVAL;
    }
    err = count > 1 ? open_several(o, ports, count) : open_named(o, &ports[0]);
    if (!err && vb_faults_rules(faults) > 0) {
        *faulty = vb_host_wrap_port(ports[0], faults);
        if (*faulty) {
            ports[0] = *faulty;
            return 0;
        }
        close_ports(ports, count);
        err = -ENOMEM;
    }
    vb_faults_free(faults);
    return err;
}
