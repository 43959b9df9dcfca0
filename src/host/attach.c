// SPDX-License-Identifier: Apache-2.0
// Attaching to a hull: the greeting, and calls over its socket.
#include "host/attach.h"

#include "base/bits.h"
#include "host/host.h"
#include "host/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// ---- calls

static void close_fds(int fds[VB_HULL_FDS])
{
    for (uint32_t i = 0; i < VB_HULL_FDS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static int lose(struct vb_attach *a)
{
    a->lost = true;
    snprintf(a->text, sizeof a->text, "the hull is gone");
    return -ENOTCONN;
}

// Replies come in order, and nobody else reads the socket.
static int exchange(struct vb_attach *a, struct vb_hull_request *request,
                    struct vb_hull_reply *reply, int give_fd, int fds[VB_HULL_FDS])
{
    if (a->lost || a->socket < 0)
        return lose(a);
    request->serial = ++a->serial;
    if (vb_contract_send(a->socket, request, sizeof *request, 0, &give_fd, give_fd >= 0) != 0)
        return lose(a);
    int bytes = vb_contract_receive(a->socket, reply, sizeof *reply, 0, fds);
    if (bytes == sizeof *reply && reply->serial == request->serial && reply->op == request->op)
        return 0;
    return lose(a);
}

// By who holds the lane's lock, as all control calls do: so a fork finds no call under way.
int vb_attach_call(struct vb_attach *a, struct vb_hull_request *request,
                   struct vb_hull_reply *reply, int give_fd, int fds[VB_HULL_FDS])
{
    int taken[VB_HULL_FDS] = {-1, -1};
    int before = vb_cancel_hold();

    pthread_mutex_lock(&a->lock);
    int err = exchange(a, request, reply, give_fd, taken);
    if (!err && reply->error) {
        reply->text[VB_ERROR_TEXT - 1] = '\0';
        memcpy(a->text, reply->text, sizeof a->text);
        err = reply->error < 0 ? reply->error : -EPROTO;
    }
    pthread_mutex_unlock(&a->lock);
    if (!err && fds)
        memcpy(fds, taken, sizeof taken);
    else
        close_fds(taken);
    vb_cancel_allow(before);
    return err;
}

// A full socket has enough in it to wake the hull.
void vb_attach_kick(struct vb_attach *a, uint32_t units)
{
    struct vb_hull_request kick = {.op = VB_HULL_KICK};
    int before = vb_cancel_hold();

    // The word is the parent's alone, where this is a forked child.
    if (a->socket >= 0)
        kick.value =
            atomic_fetch_and_explicit(&a->page->asleep, ~units, memory_order_seq_cst) & units;
    if (kick.value)
        vb_contract_send(a->socket, &kick, sizeof kick, MSG_DONTWAIT, NULL, 0);
    vb_cancel_allow(before);
}

// ---- the port that is none

static void send_nothing(struct vb_port *port, struct vb_txq *txq)
{
    (void)port;
    (void)txq;
}

static uint32_t receive_nothing(struct vb_port *port, struct vb_rx_frame *frames)
{
    (void)port;
    (void)frames;
    return 0;
}

static void close_nothing(struct vb_port *port)
{
    (void)port;
}

void vb_attach_free(struct vb_attach *a)
{
    if (a->socket >= 0)
        close(a->socket);
    vb_attach_forget_memory(a);
    if (a->page)
        munmap(a->page, vb_hull_page_bytes(a->units));
    pthread_mutex_destroy(&a->lock);
    free(a);
}

// The parent's connection goes on; what the child has mapped goes with vb_nic_close().
static void abandon(struct vb_port *port)
{
    struct vb_attach *a = VB_CONTAINER_OF(port, struct vb_attach, port);

    if (a->socket < 0)
        return; // all lanes have this port
    close(a->socket);
    a->socket = -1;
    pthread_mutex_init(&a->lock, NULL); // a thread that is not here may have been asking why
}

static const struct vb_port_ops ops = {.send = send_nothing,
                                       .receive = receive_nothing,
                                       .close = close_nothing,
                                       .abandon = abandon,
                                       .serve = vb_attach_serve};

// ---- opening

static int call_hull(const char *name, char *text)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    if (!vb_contract_path(name, at.sun_path, sizeof at.sun_path)) {
        snprintf(text, VB_ERROR_TEXT, "the hull's socket '%.60s' has a name that is too long",
                 name);
        return -ENAMETOOLONG;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    int err = -errno;
    close(fd);
    snprintf(text, VB_ERROR_TEXT, "no hull at %.100s: %s", at.sun_path, strerror(-err));
    return err;
}

static int map_page(struct vb_attach *a, int fd)
{
    void *page =
        mmap(NULL, vb_hull_page_bytes(a->units), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    a->page = page;
    return 0;
}

// The page and the socket of events come with the reply.
static int greet(struct vb_attach *a, const char *name, uint32_t features, int *event_fd)
{
    struct vb_hull_request request = {.op = VB_HULL_HELLO};
    struct vb_hull_reply reply;
    int fds[VB_HULL_FDS];

    request.hello = (struct vb_hull_hello){.magic = VB_HULL_MAGIC,
                                           .version = VB_HULL_VERSION,
                                           .page_bytes = sizeof(struct vb_hull_page),
                                           .request_bytes = sizeof request,
                                           .reply_bytes = sizeof reply,
                                           .features = features};
    if (!strchr(name, '/'))
        snprintf(request.hello.nic, sizeof request.hello.nic, "%s", name);
    int err = vb_attach_call(a, &request, &reply, -1, fds);
    if (err)
        return err;
    const struct vb_hull_welcome *w = &reply.welcome;
    if (fds[0] < 0 || fds[1] < 0 || w->page_bytes != sizeof(struct vb_hull_page) ||
        w->units > VB_HOST_LANES || !vb_is_pow2(w->units)) {
        snprintf(a->text, sizeof a->text, "the hull's greeting makes no sense");
        close_fds(fds);
        return -EPROTO;
    }
    memcpy(a->port.local.b, w->gid, sizeof w->gid);
    a->epoch = w->epoch;
    a->units = w->units;
    err = map_page(a, fds[0]);
    close(fds[0]);
    *event_fd = fds[1];
    return err;
}

static struct vb_attach *alloc_attach(void)
{
    struct vb_attach *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->port.ops = &ops;
    a->socket = -1;
    pthread_mutex_init(&a->lock, NULL);
    vb_fifo_init(&a->memories);
    return a;
}

// A NIC with as many lanes as the hull's has units, of which this is one. NULL: no memory.
static struct vb_nic *alloc_nic(struct vb_attach *a, int event_fd)
{
    struct vb_nic *nic = vb_host_alloc(a->units);

    if (!nic)
        return NULL;
    nic->attach = a;
    for (uint32_t i = 0; i < nic->lanes; i++) {
        nic->lane[i].port = &a->port;
        nic->lane[i].shares = 1; // running it does nothing
    }
    close(nic->event_fd);
    nic->event_fd = event_fd;
    return nic;
}

// The connection, and the NIC that it is to.
static int connect_nic(const struct vb_nic_opts *opts, struct vb_nic **nic, char *text)
{
    struct vb_attach *a = alloc_attach();
    int event_fd = -1;

    if (!a)
        return -ENOMEM;
    a->socket = call_hull(opts->hull, text);
    int err = a->socket < 0 ? a->socket : 0;
    if (!err) {
        err = greet(a, opts->hull, opts->service ? VB_HULL_SERVICES : 0, &event_fd);
        snprintf(text, VB_ERROR_TEXT, "%s", err ? a->text : "out of memory");
    }
    *nic = err ? NULL : alloc_nic(a, event_fd);
    if (*nic)
        return 0;
    if (event_fd >= 0)
        close(event_fd);
    vb_attach_free(a);
    return err ? err : -ENOMEM;
}

static int furnish_nic(struct vb_nic *nic, const struct vb_nic_opts *opts, char *text)
{
    struct vb_attach *a = nic->attach;
    int err = 0;

    if (opts->service) {
        err = vb_attach_service(nic, opts->service);
        snprintf(text, VB_ERROR_TEXT, "%s", a->text);
    }
    if (!err && opts->copy) {
        err = vb_attach_copy_begin(a);
        snprintf(text, VB_ERROR_TEXT, "%s", a->text);
    }
    if (!err)
        nic->helper.asleep_at = &a->page->asleep;
    const char *rules = vb_host_fault_text(opts);
    if (!err && strcmp(rules, "off") != 0) {
        vb_host_lock(nic);
        err = vb_attach_set_faults(a, rules, text);
        vb_host_unlock(nic);
    }
    return err;
}

int vb_attach_open(const struct vb_nic_opts *opts, struct vb_nic **out)
{
    char text[VB_ERROR_TEXT] = "out of memory";
    struct vb_nic *nic = NULL;
    int err = connect_nic(opts, &nic, text);

    if (!err)
        err = furnish_nic(nic, opts, text);
    if (!err)
        err = vb_process_enter(nic);
    if (opts->error_text)
        snprintf(opts->error_text, VB_ERROR_TEXT, "%s", err ? text : "");
    if (err && nic && nic->attach->service)
        vb_nic_close(nic); // with the objects that were found so far, which stay
    else if (err && nic)
        vb_host_free(nic);
    if (!err)
        *out = nic;
    return err;
}

void vb_hull_why(const struct vb_nic *nic, char text[VB_ERROR_TEXT])
{
    text[0] = '\0';
    if (vb_host_is_foreign(nic) || !nic->attach)
        return;
    pthread_mutex_lock(&nic->attach->lock);
    memcpy(text, nic->attach->text, VB_ERROR_TEXT);
    pthread_mutex_unlock(&nic->attach->lock);
}
