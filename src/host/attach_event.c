// SPDX-License-Identifier: Apache-2.0
// Events of an attached application: channels and what the hull tells besides completions.
//
// The hull marks a completion queue in the page and sends one byte on its channel's socket, and
// only then if the mark was not there: so there are as many bytes as marks, the socket is readable
// while events wait, and it never fills.
#include "host/attach.h"

#include "host/host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int obtain(struct vb_attach *a, struct vb_hull_request *request, uint32_t *number, int *fd)
{
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];
    int err = vb_attach_call(a, request, &reply, -1, fds);

    if (err)
        return err;
    if (fds[1] >= 0)
        close(fds[1]);
    *number = reply.number;
    *fd = fds[0];
    return fds[0] >= 0 ? 0 : -EPROTO;
}

int vb_attach_channel_create(struct vb_attach *a, uint32_t *number, int *fd)
{
    return obtain(a, &(struct vb_hull_request){.op = VB_HULL_CHANNEL_CREATE, .number = a->tag},
                  number, fd);
}

int vb_attach_channel_open(struct vb_attach *a, uint32_t number, int *fd)
{
    struct vb_hull_request request = {.op = VB_HULL_CHANNEL_OPEN, .number = number};
    return obtain(a, &request, &number, fd);
}

int vb_attach_channel_destroy(struct vb_attach *a, uint32_t number)
{
    struct vb_hull_request request = {.op = VB_HULL_CHANNEL_DESTROY, .number = number};
    struct vb_hull_reply reply;
    return vb_attach_call(a, &request, &reply, -1, NULL);
}

static bool take_mark(struct vb_attach *a, uint32_t cqn)
{
    _Atomic uint64_t *word = &a->page->due[cqn % VB_HULL_CQS / 64];
    uint64_t bit = UINT64_C(1) << cqn % 64;

    if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
        return false;
    return atomic_fetch_and_explicit(word, ~bit, memory_order_acq_rel) & bit;
}

static void take_byte(const struct vb_channel *channel)
{
    char byte;
    (void)!recv(channel->fd, &byte, 1, MSG_DONTWAIT);
}

// Whoever was told last goes to the end of the list, for others to have their turn.
int vb_attach_channel_take(struct vb_channel *channel, struct vb_cq **out)
{
    struct vb_nic *nic = channel->nic;
    int err = -EAGAIN;
    char byte;

    vb_host_lock(nic);
    for (struct vb_link *l = nic->cqs.head.next; l != &nic->cqs.head; l = l->next) {
        struct vb_cq *cq = VB_CONTAINER_OF(l, struct vb_cq, link);
        if (cq->channel != channel || !take_mark(nic->attach, cq->cqn))
            continue;
        take_byte(channel);
        vb_link_remove(l);
        vb_fifo_push(&nic->cqs, l);
        *out = cq;
        err = 0;
        break;
    }
    if (err && recv(channel->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
        err = -ENOTCONN; // who sleeps on the descriptor would not sleep
    vb_host_unlock(nic);
    return err;
}

void vb_attach_forget_cq(struct vb_cq *cq)
{
    if (cq->channel && take_mark(cq->nic->attach, cq->cqn))
        take_byte(cq->channel);
}

int vb_attach_arm(struct vb_cq *cq, bool solicited_only, bool next)
{
    uint64_t from = next ? vb_driver_cq_end(&cq->driver) : cq->driver.ci;

    vb_driver_cq_arm_at(&cq->driver, from, solicited_only);
    vb_doorbell_ring(&vb_attach_page(cq->nic, cq->lane)->arms, cq->cqn);
    vb_helper_notice(cq->nic, 1u << (cq->lane - cq->nic->lane));
    return 0;
}

// ---- all others

static enum vb_host_named named_by(uint32_t kind)
{
    return kind == VB_NIC_EVENT_CQ_OVERRUN  ? VB_HOST_CQ
           : kind == VB_NIC_EVENT_SRQ_LIMIT ? VB_HOST_SRQ
                                            : VB_HOST_QP;
}

static void put_back(struct vb_attach *a, const struct vb_hull_event *e)
{
    struct vb_hull_request request = {
        .op = VB_HULL_EVENT_AGAIN, .number = e->number, .value = e->kind};
    struct vb_hull_reply reply;

    vb_attach_call(a, &request, &reply, -1, NULL);
}

// What the socket holds is taken out, and the rest put back: in order, but for what comes
// meanwhile.
void vb_attach_forget_events(struct vb_nic *nic, enum vb_host_named what, uint32_t number)
{
    struct vb_hull_event *kept = malloc(VB_HOST_EVENTS * sizeof *kept);
    uint32_t count = 0, taken = 0;

    while (kept && taken++ < VB_HOST_EVENTS &&
           recv(nic->event_fd, &kept[count], sizeof *kept, MSG_DONTWAIT) == sizeof *kept)
        if (named_by(kept[count].kind) != what || kept[count].number != number)
            count++;
    for (uint32_t i = 0; i < count; i++)
        put_back(nic->attach, &kept[i]);
    free(kept);
}

int vb_attach_take_event(struct vb_nic *nic, struct vb_nic_event *event)
{
    struct vb_hull_event e;

    vb_host_lock(nic);
    ssize_t bytes = recv(nic->event_fd, &e, sizeof e, MSG_DONTWAIT);
    int err = bytes == sizeof e ? 0 : bytes < 0 && errno == EAGAIN ? -EAGAIN : -ENOTCONN;
    vb_host_unlock(nic);
    if (!err && e.kind > VB_NIC_EVENT_SRQ_LIMIT)
        err = -EPROTO;
    if (!err)
        *event = (struct vb_nic_event){(enum vb_nic_event_kind)e.kind, e.number};
    return err;
}
