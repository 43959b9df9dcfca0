// SPDX-License-Identifier: Apache-2.0
// Who the clients of a service of offloads are, in memory of the hull: so that the next process of
// a service has them, too. Their programs are found by tags, one for each place; what a client is
// besides is a record there. It says first that something is being made or ended, and only then
// that it is whole: what is in between when the process dies is cleared away by the next one.
#include "host/attach.h"
#include "host/offload_service.h"

#include <errno.h>
#include <string.h>

int vb_offload_records_open(struct vb_nic *nic, uint32_t tag, uint32_t count,
                            struct vb_offload_record **records)
{
    size_t bytes = count * sizeof **records;
    struct vb_service_memory found;
    void *made = NULL;
    int err = vb_service_memory(nic, tag, 0, &found);

    if (!err && found.bytes < bytes)
        return -EINVAL; // there were places for fewer
    if (err == -ENOENT) {
        uint32_t before = nic->attach->tag;
        vb_service_tag(nic, tag);
        err = vb_hull_alloc(nic, NULL, bytes, &made);
        vb_service_tag(nic, before);
        found.addr = made;
    }
    if (!err)
        *records = found.addr;
    return err;
}

uint32_t vb_offload_record_state(const struct vb_offload_record *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire);
}

void vb_offload_record_mark(struct vb_offload_record *r, enum vb_offload_record_state state)
{
    atomic_store_explicit(&r->state, state, memory_order_seq_cst);
}

void vb_offload_record_fill(struct vb_offload_record *r, const struct vb_offload_client *client)
{
    r->ticket = client->ticket;
    r->join = client->join;
    vb_offload_record_mark(r, VB_OFFLOAD_WHOLE);
}

// What the last process wrote there may be anything, had it lost its mind.
bool vb_offload_record_read(const struct vb_offload_record *r, uint64_t *ticket,
                            struct vb_offload_join *join)
{
    bool whole = vb_offload_record_state(r) == VB_OFFLOAD_WHOLE;

    *ticket = r->ticket;
    *join = r->join;
    return whole && memchr(join->offload, '\0', sizeof join->offload);
}
