// SPDX-License-Identifier: Apache-2.0
// Ports of rdma_cm, unique on the machine: a lock on a byte of the registry's file, which goes when
// its holder does, and a table that says who that is.
#include "port/registry.h"

#include <errno.h>
#include <fcntl.h>

enum {
    LOCK_PORTS = 1 << 16, // the first byte; those of slots and of the order come before
};

static int lock_port(const struct registry *r, int how, uint32_t space, uint16_t port)
{
    struct flock range = {.l_type = (short)how,
                          .l_whence = SEEK_SET,
                          .l_start = LOCK_PORTS + (off_t)space * REGISTRY_PORTS + port,
                          .l_len = 1};
    if (fcntl(r->fd, F_OFD_SETLK, &range) == 0)
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EADDRINUSE : -errno;
}

int vb_registry_port_take(struct registry *r, uint32_t space, uint16_t port)
{
    assert(space < REGISTRY_SPACES && r->span > 0);
    int error = lock_port(r, F_WRLCK, space, port);
    if (error == 0)
        atomic_store(&r->file->owner[space][port], (uint16_t)(r->slot + 1));
    return error;
}

void vb_registry_port_give(struct registry *r, uint32_t space, uint16_t port)
{
    assert(space < REGISTRY_SPACES);
    atomic_store(&r->file->owner[space][port], 0);
    (void)lock_port(r, F_UNLCK, space, port);
}

bool vb_registry_port_owner(const struct registry *r, uint32_t space, uint16_t port, uint32_t *slot)
{
    uint16_t owner = space < REGISTRY_SPACES ? atomic_load(&r->file->owner[space][port]) : 0;
    *slot = owner - 1u;
    return owner >= 1 && owner <= REGISTRY_SLOTS;
}
