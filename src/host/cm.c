// SPDX-License-Identifier: Apache-2.0
// Queue pair 1, and the thread that carries messages between it and the communication manager.
#include "host/cm.h"

#include "base/bytes.h"
#include "base/siphash.h"
#include "cm/route.h"
#include "host/attach.h"
#include "host/cm_ports.h"
#include "host/host.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    RECEIVES = 1024, // messages that come while nobody reads: two batches of the port's
    SENDS = 64,
    OUTBOX = RECEIVES + 256, // each of them may have an answer at once
    GRH_BYTES = 40,
    SLOT_BYTES = 320, // a message behind its IP header
    BATCH = 16,
    REST_NS = 50 * 1000,     // between two looks at a lock
    PORTS_SEED = 0x706f7274, // what the seed is asked for the order of ports
    HEARD = 64,              // first packets that are told of at once; of more the RTU has to tell
    DRAIN_NS = 100 * 1000 * 1000, // how long closing waits for what is to be sent
};

static_assert(SLOT_BYTES >= GRH_BYTES + VB_MAD_BYTES, "room for a message");

struct vb_host_cm {
    struct vb_nic *nic;
    struct vb_cm *cm;
    struct vb_ip address[VB_DEV_ADDRESSES]; // of the NIC, as far as they were needed
    uint32_t addresses;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_channel *channel;
    struct vb_cq *cq;
    struct vb_qp *qp;
    uint8_t *memory; // slots to receive, then slots to send
    uint32_t free[SENDS], frees;
    pthread_mutex_t lock;
    struct vb_cm_ports *ports;
    uint32_t heard[HEARD]; // queue pairs, under the NIC's event_lock
    atomic_uint heards;
    int heard_fd; // the same of a hull; -1: the NIC is this process's
    bool lost;    // the hull is gone: its descriptors are readable for ever
    int wake_fd, event_fd;
    bool told;              // event_fd says that there are events
    uint64_t sleeps_to_ns;  // what the thread waits for
    bool running, stopping; // the thread
    bool shown;             // the NIC knows of it
    pthread_t thread;
};

// ---- messages between the queue pair and the manager; all need the lock

static uint8_t *slot(struct vb_host_cm *h, uint64_t number)
{
    return h->memory + number * SLOT_BYTES;
}

static void post_receive(struct vb_host_cm *h, uint64_t number)
{
    const struct vb_sge sge = {(uintptr_t)slot(h, number), SLOT_BYTES, vb_mr_key(h->mr)};
    const struct vb_recv_wr wr = {.wr_id = number, .sge = &sge, .num_sge = 1};
    vb_post_recv(h->qp, &wr, 1);
}

// Both addresses of the IP header in front of a message, of which the IPv4 one has 20 bytes.
static void read_addresses(const uint8_t *head, struct vb_ip *from, struct vb_ip *to)
{
    if (head[0] >> 4 == 6) {
        memcpy(from->b, head + 8, 16);
        memcpy(to->b, head + 24, 16);
        return;
    }
    *from = *to = (struct vb_ip){{[10] = 0xff, 0xff}};
    memcpy(from->b + 12, head + 32, 4);
    memcpy(to->b + 12, head + 36, 4);
}

// What comes from another queue pair than a manager's is no message.
static void receive(struct vb_host_cm *h, const struct vb_wc *wc)
{
    const uint8_t *bytes = slot(h, wc->wr_id);
    struct vb_ip from, to;

    if (wc->status == VB_WC_OK && wc->byte_len >= GRH_BYTES && wc->src_qpn == VB_GSI_QPN) {
        read_addresses(bytes, &from, &to);
        vb_cm_input_at(h->cm, vb_clock_ns(), &from, &to, bytes + GRH_BYTES,
                       wc->byte_len - GRH_BYTES);
    }
    if (wc->status != VB_WC_FLUSHED)
        post_receive(h, wc->wr_id);
}

static void poll_all(struct vb_host_cm *h)
{
    struct vb_wc wc[BATCH];
    int n;

    while ((n = vb_poll_cq(h->cq, wc, BATCH)) > 0)
        for (int i = 0; i < n; i++) {
            if (wc[i].wr_id < RECEIVES)
                receive(h, &wc[i]);
            else
                h->free[h->frees++] = (uint32_t)wc[i].wr_id;
        }
}

// The number of one of the NIC's addresses, from 1 on; 0: it is not on that one.
static uint32_t source_of(struct vb_host_cm *h, const struct vb_ip *from)
{
    for (uint32_t i = 0; i < VB_DEV_ADDRESSES; i++) {
        if (i == h->addresses) {
            if (vb_nic_address(h->nic, i, h->address[i].b) != 0)
                return 0;
            h->addresses++;
        }
        if (vb_ip_equal(&h->address[i], from))
            return i + 1;
    }
    return 0;
}

// What finds no slot waits in the manager's outbox, and goes when a slot is free again.
static void send_all(struct vb_host_cm *h)
{
    struct vb_ip from, to;

    while (h->frees > 0) {
        uint32_t number = h->free[h->frees - 1];
        if (!vb_cm_take_message_from(h->cm, &from, &to, slot(h, number)))
            return;
        const struct vb_sge sge = {(uintptr_t)slot(h, number), VB_MAD_BYTES, vb_mr_key(h->mr)};
        struct vb_send_wr wr = {
            .wr_id = number,
            .sge = &sge,
            .num_sge = 1,
            .opcode = VB_WR_SEND,
            .flags = VB_WR_SIGNALED,
            .to = {.qpn = VB_GSI_QPN, .qkey = VB_GSI_QKEY, .source = source_of(h, &from)}};
        memcpy(wr.to.gid, to.b, 16);
        if (vb_post_send(h->qp, &wr, 1) == 1)
            h->frees--;
    }
}

static void tell(struct vb_host_cm *h)
{
    if (h->told || !vb_cm_has_event(h->cm))
        return;
    h->told = true;
    (void)!write(h->event_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void tell_heard(struct vb_host_cm *h)
{
    uint32_t heard[HEARD], count;

    if (atomic_load_explicit(&h->heards, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&h->nic->event_lock);
    count = atomic_exchange(&h->heards, 0);
    memcpy(heard, h->heard, sizeof heard);
    pthread_mutex_unlock(&h->nic->event_lock);
    for (uint32_t i = 0; i < count; i++)
        vb_cm_heard_on(h->cm, vb_clock_ns(), heard[i]);
}

static void tell_heard_there(struct vb_host_cm *h)
{
    uint32_t qpn[HEARD];
    int count = h->heard_fd >= 0 && !h->lost ? vb_attach_heard(h->heard_fd, qpn, HEARD) : 0;

    for (int i = 0; i < count; i++)
        vb_cm_heard_on(h->cm, vb_clock_ns(), qpn[i]);
    h->lost |= count < 0;
}

// Everything that can be done now. Returns when to come again.
static uint64_t serve(struct vb_host_cm *h)
{
    poll_all(h);
    tell_heard(h);
    tell_heard_there(h);
    uint64_t next_ns = vb_cm_poll(h->cm, vb_clock_ns());
    send_all(h);
    tell(h);
    return next_ns;
}

// ---- the thread

static void wait_until(struct vb_host_cm *h, bool lost, uint64_t until_ns)
{
    struct pollfd fds[] = {{.fd = h->wake_fd, .events = POLLIN},
                           {.fd = vb_channel_fd(h->channel), .events = POLLIN},
                           {.fd = h->heard_fd, .events = POLLIN}};
    uint64_t now_ns = vb_clock_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0, drained;
    struct timespec left = {(time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000)};

    ppoll(fds, lost ? 1 : 3, until_ns == UINT64_MAX ? NULL : &left, NULL);
    (void)!read(h->wake_fd, &drained, sizeof drained);
}

static void *run(void *arg)
{
    struct vb_host_cm *h = arg;
    struct vb_cq *cq;

    pthread_mutex_lock(&h->lock);
    while (!h->stopping) {
        while (vb_channel_take(h->channel, &cq) == 0)
            ;
        // What comes between this and the look at the queue is told of.
        vb_cq_arm(h->cq, false);
        h->sleeps_to_ns = serve(h);
        uint64_t until_ns = h->sleeps_to_ns;
        bool lost = h->lost;
        pthread_mutex_unlock(&h->lock);
        wait_until(h, lost, until_ns);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static int start(struct vb_host_cm *h)
{
    sigset_t all, before;

    sigfillset(&all); // the application's signals are the application's
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = -pthread_create(&h->thread, NULL, run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    h->running = !err;
    if (!err)
        pthread_setname_np(h->thread, "verbena-cm");
    return err;
}

static void wake(struct vb_host_cm *h)
{
    (void)!write(h->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void vb_host_cm_hear(struct vb_host_cm *h, uint32_t qpn)
{
    uint32_t count = atomic_load_explicit(&h->heards, memory_order_relaxed);

    if (count == HEARD)
        return;
    h->heard[count] = qpn;
    atomic_store(&h->heards, count + 1);
    wake(h);
}

// From here on the NIC knows of it, or no longer does.
static void show(struct vb_host_cm *h, bool shown)
{
    pthread_mutex_lock(&h->nic->inspect_lock);
    pthread_mutex_lock(&h->nic->event_lock);
    h->nic->cm = shown ? h : NULL;
    pthread_mutex_unlock(&h->nic->event_lock);
    pthread_mutex_unlock(&h->nic->inspect_lock);
}

// ---- opening and closing

static int take_memory(struct vb_host_cm *h, size_t bytes)
{
    void *shared = NULL;

    if (h->nic->attach) {
        int err = vb_hull_alloc(h->nic, NULL, bytes, &shared);
        h->memory = shared;
        return err;
    }
    h->memory = calloc(1, bytes);
    return h->memory ? 0 : -ENOMEM;
}

static void give_memory(struct vb_host_cm *h)
{
    if (!h->nic->attach)
        free(h->memory);
    else if (h->memory)
        vb_hull_free(h->nic, h->memory);
}

static int open_queue(struct vb_host_cm *h)
{
    size_t bytes = (size_t)(RECEIVES + SENDS) * SLOT_BYTES;
    struct vb_cq_opts cq = {.entries = 2 * (RECEIVES + SENDS),
                            .unit = h->nic->lanes > 1 && !h->nic->attach ? 2 : 1};
    int err = vb_pd_alloc(h->nic, &h->pd);

    if (!err)
        err = take_memory(h, bytes);
    if (!err)
        err = vb_mr_reg(h->pd, h->memory, bytes, VB_RIGHT_LOCAL_WRITE, &h->mr);
    if (!err)
        err = vb_channel_create(h->nic, &h->channel);
    cq.channel = h->channel;
    if (!err)
        err = vb_cq_create(h->nic, &cq, &h->cq);
    const struct vb_qp_opts qp = {.service = VB_SERVICE_UD,
                                  .management = true,
                                  .send_cq = h->cq,
                                  .recv_cq = h->cq,
                                  .send_depth = SENDS,
                                  .recv_depth = RECEIVES};
    if (!err)
        err = vb_qp_create(h->pd, &qp, &h->qp);
    if (!err)
        err = vb_qp_connect(h->qp, &(struct vb_qp_peer){.qkey = VB_GSI_QKEY});
    for (uint32_t i = 0; i < RECEIVES && !err; i++)
        post_receive(h, i);
    for (uint32_t i = 0; i < SENDS; i++)
        h->free[h->frees++] = RECEIVES + i;
    return err;
}

// Who shares an address with others has ids of its own.
static int set_prefix(struct vb_host_cm *h, struct vb_cm_opts *opts)
{
    struct vb_nic *nic = h->nic;
    const struct vb_port *port = nic->lane[0].port;
    struct vb_hull_prefix prefix;

    if (nic->attach) {
        vb_host_lock(nic);
        int err = vb_attach_seat(nic->attach, &prefix, &h->heard_fd);
        vb_host_unlock(nic);
        if (err)
            return err;
        opts->id_prefix_bits = (uint8_t)prefix.bits;
        opts->id_prefix = prefix.prefix;
    } else if (port->qpn_count) {
        opts->id_prefix_bits = VB_CM_PREFIX_BITS;
        opts->id_prefix = port->qpn_base >> (24 - VB_CM_PREFIX_BITS);
    }
    return 0;
}

static int make_manager(struct vb_host_cm *h, const struct vb_cm_opts *given)
{
    struct vb_cm_opts opts = given ? *given : (struct vb_cm_opts){0};

    vb_nic_gid(h->nic, opts.local.b);
    // As network cards make theirs of their hardware address.
    if (!opts.ca_guid)
        opts.ca_guid = vb_get_be64(opts.local.b) ^ vb_get_be64(opts.local.b + 8);
    if (!opts.seed[0] && !opts.seed[1] &&
        getrandom(opts.seed, sizeof opts.seed, 0) != sizeof opts.seed)
        return -EIO;
    int err = set_prefix(h, &opts);
    if (err)
        return err;
    opts.outbox = opts.outbox ? opts.outbox : OUTBOX;
    h->cm = vb_cm_create(&opts);
    h->ports = vb_cm_ports_create(h->nic, vb_siphash(opts.seed, PORTS_SEED));
    return h->cm && h->ports ? 0 : -ENOMEM;
}

int vb_host_cm_open(struct vb_nic *nic, const struct vb_cm_opts *opts, struct vb_host_cm **host)
{
    struct vb_host_cm *h = calloc(1, sizeof *h);

    if (!h)
        return -ENOMEM;
    h->nic = nic;
    h->heard_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int err = h->wake_fd < 0 || h->event_fd < 0 ? -errno : make_manager(h, opts);
    if (!err)
        err = open_queue(h);
    if (!err)
        err = start(h);
    if (err) {
        vb_host_cm_close(h);
        return err;
    }
    h->shown = true;
    show(h, true);
    *host = h;
    return 0;
}

// What was said leaves, whoever still listens.
static void drain(struct vb_host_cm *h)
{
    uint64_t until_ns = vb_clock_ns() + DRAIN_NS;

    do {
        send_all(h);
        poll_all(h);
    } while (h->frees < SENDS && vb_clock_ns() < until_ns);
}

static void stop(struct vb_host_cm *h)
{
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    pthread_mutex_unlock(&h->lock);
    wake(h);
    pthread_join(h->thread, NULL);
    drain(h);
}

void vb_host_cm_close(struct vb_host_cm *h)
{
    // A child of fork() has not the thread, and nothing of the NIC is its own.
    if (h->running && !vb_host_is_foreign(h->nic)) {
        if (h->shown)
            show(h, false);
        stop(h);
    }
    if (h->qp)
        vb_qp_destroy(h->qp);
    if (h->cq)
        vb_cq_destroy(h->cq);
    if (h->channel)
        vb_channel_destroy(h->channel);
    if (h->mr)
        vb_mr_dereg(h->mr);
    if (h->pd)
        vb_pd_free(h->pd);
    if (h->wake_fd >= 0)
        close(h->wake_fd);
    if (h->event_fd >= 0)
        close(h->event_fd);
    if (h->heard_fd >= 0)
        close(h->heard_fd);
    vb_cm_ports_destroy(h->ports);
    vb_cm_destroy(h->cm);
    pthread_mutex_destroy(&h->lock);
    give_memory(h);
    free(h);
}

// ---- calls

struct vb_cm *vb_host_cm_enter(struct vb_host_cm *h, uint64_t *now_ns)
{
    pthread_mutex_lock(&h->lock);
    *now_ns = vb_clock_ns();
    return h->cm;
}

struct vb_cm *vb_host_cm_enter_until(struct vb_host_cm *h, uint64_t give_up_ns, uint64_t *now_ns)
{
    while (pthread_mutex_trylock(&h->lock) != 0) {
        if (vb_clock_ns() >= give_up_ns)
            return NULL;
        nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    }
    *now_ns = vb_clock_ns();
    return h->cm;
}

void vb_host_cm_leave(struct vb_host_cm *h)
{
    bool earlier = serve(h) < h->sleeps_to_ns;

    pthread_mutex_unlock(&h->lock);
    if (earlier)
        wake(h);
}

void vb_host_cm_leave_to_thread(struct vb_host_cm *h)
{
    pthread_mutex_unlock(&h->lock);
    wake(h);
}

int vb_host_cm_bind(struct vb_host_cm *h, enum vb_cma_space space, uint16_t *port)
{
    return vb_cm_ports_bind(h->ports, space, port);
}

void vb_host_cm_unbind(struct vb_host_cm *h, enum vb_cma_space space, uint16_t port)
{
    vb_cm_ports_unbind(h->ports, space, port);
}

uint32_t vb_host_cm_facts(struct vb_host_cm *h, uint32_t *at, struct vb_cm_facts *facts,
                          uint32_t room)
{
    pthread_mutex_lock(&h->lock);
    uint32_t made = vb_cm_facts(h->cm, at, facts, room);
    pthread_mutex_unlock(&h->lock);
    return made;
}

int vb_host_cm_event_fd(const struct vb_host_cm *h)
{
    return h->event_fd;
}

bool vb_host_cm_take_event(struct vb_host_cm *h, struct vb_cm_event *event)
{
    uint64_t drained;

    pthread_mutex_lock(&h->lock);
    bool taken = vb_cm_take_event(h->cm, event);
    if (h->told && !vb_cm_has_event(h->cm)) {
        h->told = false;
        (void)!read(h->event_fd, &drained, sizeof drained);
    }
    pthread_mutex_unlock(&h->lock);
    return taken;
}

// ---- connecting the queue pair

// An ACK timeout, retries and READs of 0 would mean this NIC's defaults.
static uint8_t at_least_one(uint8_t value)
{
    return value ? value : 1;
}

void vb_host_cm_active_peer(const struct vb_cm_request *ours, const struct vb_cm_message *rep,
                            struct vb_qp_peer *peer)
{
    *peer = (struct vb_qp_peer){.qpn = rep->rep.qpn,
                                .psn = ours->psn, // each side says where the other begins
                                .our_psn = rep->rep.psn,
                                .mtu = 128u << ours->mtu,
                                .timeout = at_least_one(ours->ack_timeout),
                                .retries = at_least_one(ours->retries),
                                .rnr_retries = at_least_one(rep->rep.rnr_retries),
                                .reads = at_least_one(ours->initiator_depth)};
    memcpy(peer->gid, ours->peer.b, 16);
    memcpy(peer->local, ours->local.b, 16);
}

void vb_host_cm_passive_peer(const struct vb_cm_answer *ours, const struct vb_cm_message *req,
                             struct vb_qp_peer *peer)
{
    *peer = (struct vb_qp_peer){.qpn = req->req.qpn,
                                .psn = ours->psn,
                                .our_psn = req->req.psn,
                                .mtu = 128u << req->req.mtu,
                                .timeout = at_least_one(req->req.primary.ack_timeout),
                                .retries = at_least_one(req->req.retries),
                                .rnr_retries = at_least_one(req->req.rnr_retries),
                                .reads = at_least_one(ours->responder_resources)};
    memcpy(peer->gid, req->req.primary.local_gid, 16);
    memcpy(peer->local, req->req.primary.remote_gid, 16);
}
