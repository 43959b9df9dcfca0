// SPDX-License-Identifier: Apache-2.0
// More of the device's calls as messages: what changes queues, finds memory, and lets a connection
// manager work.
#include "host/attach.h"

#include "host/driver_rings.h"
#include "port/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BATCH = 16, // completions that are copied before it is asked whether they still were there
};

static int call(struct vb_attach *a, struct vb_hull_request *request, struct vb_hull_reply *reply)
{
    return vb_attach_call(a, request, reply, -1, NULL);
}

int vb_attach_xrcd_alloc(struct vb_attach *a, uint32_t *xrcd)
{
    struct vb_hull_request request = {.op = VB_HULL_XRCD_CREATE};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        *xrcd = reply.number;
    return err;
}

// With the hull all is gone, too.
int vb_attach_xrcd_free(struct vb_attach *a, uint32_t xrcd)
{
    struct vb_hull_request request = {.op = VB_HULL_XRCD_DESTROY, .number = xrcd};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);
    return err == -ENOTCONN ? 0 : err;
}

int vb_attach_mkey_find(struct vb_attach *a, const struct vb_hull_find *what, uint8_t **at)
{
    struct vb_hull_request request = {.op = VB_HULL_KEY_FIND, .find = *what};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        *at = vb_attach_at(a, &reply.place);
    return err ? err : *at ? 0 : -EPROTO;
}

// ---- completion queues

int vb_attach_cq_resize(struct vb_attach *a, uint32_t cqn, struct vb_driver_cq *cq,
                        struct vb_driver_cq *bigger)
{
    struct vb_hull_request request = {.op = VB_HULL_CQ_RESIZE, .number = cqn};
    struct vb_hull_resize *r = &request.resize;
    struct vb_hull_reply reply;
    uint64_t bytes = (uint64_t)bigger->entries * VB_CQE_BYTES;
    uint8_t *ring = vb_attach_take(a, bytes);

    if (!ring)
        return -ENOMEM;
    memcpy(ring, bigger->ring, bytes);
    r->consumed = cq->ci;
    r->entries = bigger->entries;
    int err = vb_attach_find(a, ring, bytes, &r->ring) ? call(a, &request, &reply) : -EFAULT;
    if (err) {
        vb_attach_give_back(a, ring, bytes);
        return err;
    }
    vb_attach_give_back(a, cq->ring, (uint64_t)cq->entries * VB_CQE_BYTES);
    cq->ring = ring;
    cq->entries = bigger->entries;
    vb_driver_cq_catch_up(cq, reply.value, 0);
    return 0;
}

// The hull may overwrite entries while they are copied. So it is asked before how many there ever
// were, and after: what was not overwritten then, was whole.
int vb_attach_poll_overwritten(struct vb_cq *cq, vb_driver_find *find, struct vb_wc *wc, int n)
{
    struct vb_nic *nic = cq->nic;
    struct vb_cqe copy[BATCH];
    uint32_t most = n < BATCH ? (uint32_t)n : BATCH;
    int taken = 0;

    if (n <= 0 || pthread_mutex_trylock(&cq->lane->lock) != 0)
        return 0;
    vb_host_catch_up(cq, UINT32_MAX);
    uint64_t first = cq->driver.ci;
    uint32_t count = vb_driver_copy(&cq->driver, copy, most);
    if (count > 0) {
        vb_host_catch_up(cq, UINT32_MAX);
        uint64_t lost = cq->driver.ci - first;
        if (lost < count)
            taken = vb_driver_take(&cq->driver, copy + lost, count - (uint32_t)lost, find, nic, wc);
    }
    pthread_mutex_unlock(&cq->lane->lock);
    return taken;
}

// ---- queue pairs

static int name_group(struct vb_attach *a, enum vb_hull_op op, uint32_t qpn,
                      const struct vb_ip *group)
{
    struct vb_hull_request request = {.op = op, .number = qpn};
    struct vb_hull_reply reply;

    memcpy(request.group.gid, group->b, sizeof request.group.gid);
    return call(a, &request, &reply);
}

int vb_attach_qp_join(struct vb_attach *a, uint32_t qpn, const struct vb_ip *group)
{
    return name_group(a, VB_HULL_QP_JOIN, qpn, group);
}

int vb_attach_qp_leave(struct vb_attach *a, uint32_t qpn, const struct vb_ip *group)
{
    return name_group(a, VB_HULL_QP_LEAVE, qpn, group);
}

int vb_attach_qp_spread(struct vb_attach *a, uint32_t qpn, const struct vb_spread_attr *attr)
{
    struct vb_hull_request request = {.op = VB_HULL_QP_SPREAD,
                                      .number = qpn,
                                      .spread = {.count = attr->count, .fields = attr->fields}};
    uint64_t bytes = attr->count * sizeof *attr->qpn;
    struct vb_hull_reply reply;
    void *list = vb_attach_take(a, bytes + 1); // a place to name, even without members

    if (!list)
        return -ENOMEM;
    memcpy(list, attr->qpn, bytes);
    memcpy(request.spread.key, attr->key, sizeof request.spread.key);
    int err = vb_attach_find(a, list, bytes, &request.spread.members) ? call(a, &request, &reply)
                                                                      : -EFAULT;
    vb_attach_give_back(a, list, bytes + 1);
    return err;
}

// ---- connection managers

int vb_attach_seat(struct vb_attach *a, struct vb_hull_prefix *prefix, int *heard_fd)
{
    struct vb_hull_request request = {.op = VB_HULL_SEAT_TAKE};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];
    int err = vb_attach_call(a, &request, &reply, -1, fds);

    if (err)
        return err;
    if (fds[1] >= 0)
        close(fds[1]);
    *prefix = reply.prefix;
    *heard_fd = fds[0];
    return fds[0] >= 0 ? 0 : -EPROTO;
}

int vb_attach_heard(int heard_fd, uint32_t *qpn, int most)
{
    struct vb_hull_event event;

    for (int count = 0; count < most; count++) {
        ssize_t bytes = recv(heard_fd, &event, sizeof event, MSG_DONTWAIT);
        if (bytes != sizeof event)
            return bytes == 0 ? -ENOTCONN : count;
        qpn[count] = event.number;
    }
    return most;
}

int vb_attach_serve(struct vb_port *port, uint32_t space, uint16_t number, bool serves)
{
    struct vb_attach *a = VB_CONTAINER_OF(port, struct vb_attach, port);
    struct vb_hull_request request = {
        .op = serves ? VB_HULL_PORT_TAKE : VB_HULL_PORT_GIVE, .number = number, .value = space};
    struct vb_hull_reply reply;
    return call(a, &request, &reply);
}

// ---- addresses

int vb_attach_address(struct vb_attach *a, uint32_t n, struct vb_ip *ip)
{
    struct vb_hull_request request = {.op = VB_HULL_ADDRESS, .number = n};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        memcpy(ip->b, reply.gid, sizeof ip->b);
    return err;
}

// ---- faults on purpose

int vb_attach_set_faults(struct vb_attach *a, const char *rules, char *error_text)
{
    struct vb_hull_request request = {.op = VB_HULL_FAULTS};
    struct vb_hull_reply reply;
    uint64_t bytes = strlen(rules) + 1;
    int err = -E2BIG;

    if (bytes <= VB_HULL_FAULTS_TEXT) {
        void *text = vb_attach_take(a, bytes);
        if (!text)
            return -ENOMEM;
        memcpy(text, rules, bytes);
        request.text.bytes = (uint32_t)bytes;
        err =
            vb_attach_find(a, text, bytes, &request.text.at) ? call(a, &request, &reply) : -EFAULT;
        vb_attach_give_back(a, text, bytes);
    }
    if (err == -E2BIG)
        snprintf(a->text, sizeof a->text, "a hull takes faults of %d characters at most",
                 VB_HULL_FAULTS_TEXT - 1);
    if (err && error_text)
        snprintf(error_text, VB_ERROR_TEXT, "%s", a->text);
    return err;
}

// ---- traces

int vb_attach_trace(struct vb_attach *a, uint32_t ring_bytes)
{
    struct vb_hull_request request = {.op = VB_HULL_TRACE, .value = ring_bytes};
    struct vb_hull_reply reply;
    int err = call(a, &request, &reply);

    if (!err)
        a->trace_bytes = ring_bytes;
    return err;
}

// The hull writes nothing but to shared memory: a descriptor of the application's could keep it
// waiting.
int vb_attach_trace_read(struct vb_attach *a, uint32_t unit, struct vb_trace_source *source,
                         void **copy)
{
    struct vb_hull_request request = {.op = VB_HULL_TRACE_READ, .number = unit};
    struct vb_hull_reply reply;
    uint64_t bytes = vb_trace_bytes(a->trace_bytes);

    if (!a->trace_bytes)
        return -EINVAL;
    void *room = vb_attach_take(a, bytes);
    *copy = room ? malloc(bytes) : NULL;
    request.text.bytes = (uint32_t)bytes;
    int err = !*copy                                              ? -ENOMEM
              : !vb_attach_find(a, room, bytes, &request.text.at) ? -EFAULT
                                                                  : call(a, &request, &reply);
    if (!err)
        memcpy(*copy, room, bytes);
    if (room)
        vb_attach_give_back(a, room, bytes);
    source->trace = err ? NULL : vb_trace_saved(*copy, a->trace_bytes);
    return err ? err : source->trace ? 0 : -EPROTO;
}

// ---- memory that is copied

// Where only ancestors may look into a process, this one says who else may.
static void let_in(const struct vb_attach *a)
{
    struct ucred hull = {0};
    socklen_t size = sizeof hull;

    if (getsockopt(a->socket, SOL_SOCKET, SO_PEERCRED, &hull, &size) == 0 && hull.pid > 0)
        prctl(PR_SET_PTRACER, (unsigned long)hull.pid, 0, 0, 0);
}

int vb_attach_copy_begin(struct vb_attach *a)
{
    struct vb_hull_request request = {.op = VB_HULL_COPY_BEGIN};
    struct vb_hull_reply reply;
    volatile uint64_t word; // that nobody else has there

    if (getrandom((void *)(uintptr_t)&word, sizeof word, 0) != sizeof word)
        return -EIO;
    let_in(a);
    request.proof = (struct vb_hull_proof){.at = (uintptr_t)&word, .word = word};
    int err = call(a, &request, &reply);
    a->copies = !err;
    return err;
}
