// SPDX-License-Identifier: Apache-2.0
// The end of what a service made under one tag: for parts that are of no use without each other,
// where the process that made them died in between.
#include "host/attach.h"
#include "host/host.h"

#include <errno.h>

// A program's own memory lies between rings, and was taken with its region.
static int end_region(struct vb_nic *nic, uint32_t tag, struct vb_mr *mr)
{
    struct vb_hull_listing listing;
    uint32_t number;

    vb_host_lock(nic);
    int err = vb_service_find(nic, VB_HULL_LIST_REGION, tag, 0, &number, &listing);
    vb_host_unlock(nic);
    if (!err)
        err = vb_mr_dereg(mr);
    if (err)
        return err;
    const struct vb_hull_key *key = &listing.made.key;
    vb_host_lock(nic);
    const uint8_t *at = key->at.memory ? vb_attach_at(nic->attach, &key->at) : NULL;
    if (at)
        vb_attach_give_back(nic->attach, at, key->len);
    vb_host_unlock(nic);
    return 0;
}

// Rings that are memory as well end before their queue pair, which keeps their room.
static int end_qp(struct vb_qp *qp)
{
    struct vb_link *link;
    int err = 0;

    while (!err && (link = vb_fifo_first(&qp->code)))
        err = vb_mr_dereg(VB_CONTAINER_OF(link, struct vb_mr, code_link));
    return err ? err : vb_qp_destroy(qp);
}

// What has a name is not of this process's making alone, and stays.
static int end_memories(struct vb_nic *nic, uint32_t tag)
{
    struct vb_service_memory memory;
    uint32_t kept = 0;
    int err = 0;

    while (!err && (err = vb_service_memory(nic, tag, kept, &memory)) == 0) {
        if (memory.name[0])
            kept++;
        else
            err = vb_hull_free(nic, memory.addr);
    }
    return err == -ENOENT ? 0 : err;
}

#define END_ALL(err, find, object, end)                               \
    do {                                                              \
        while (!(err) && ((err) = find(nic, tag, 0, &(object))) == 0) \
            (err) = (end);                                            \
        (err) = (err) == -ENOENT ? 0 : (err);                         \
    } while (0)

int vb_service_clear(struct vb_nic *nic, uint32_t tag)
{
    struct vb_program *program;
    struct vb_channel *channel;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_mw *mw;
    struct vb_cq *cq;
    struct vb_srq *srq;
    struct vb_qp *qp;
    int err = 0;

    // Nothing of a program runs while its parts go one by one.
    for (uint32_t i = 0; vb_service_program(nic, tag, i, &program) == 0; i++)
        vb_program_stop(program);
    END_ALL(err, vb_service_qp, qp, end_qp(qp));
    END_ALL(err, vb_service_srq, srq, vb_srq_destroy(srq));
    END_ALL(err, vb_service_program, program, vb_program_destroy(program));
    END_ALL(err, vb_service_cq, cq, vb_cq_destroy(cq));
    END_ALL(err, vb_service_mw, mw, vb_mw_free(mw));
    END_ALL(err, vb_service_mr, mr, end_region(nic, tag, mr));
    END_ALL(err, vb_service_pd, pd, vb_pd_free(pd));
    END_ALL(err, vb_service_channel, channel, vb_channel_destroy(channel));
    return err ? err : end_memories(nic, tag);
}
