// SPDX-License-Identifier: Apache-2.0
// The NIC inside an application: a device, a port, and the threads that poll taking turns to run
// them.
#include "verbena/nic.h"

#include "base/fifo.h"
#include "host/driver.h"
#include "nic/dev.h"
#include "port/clock.h"
#include "port/udp.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    LEND_BYTES = 1024, // an entry in a scatter list costs less than copying so much
    DRAIN_TRIES = 100
}; // some ten microseconds each

struct vb_nic {
    pthread_mutex_t lock; // of everything below; a thread that polls only tries it
    struct vb_dev *dev;
    struct vb_pu *pu;
    struct vb_port *port;
    struct vb_fifo pds, mrs, cqs, qps;
    struct vb_qp *qp_by_index[VB_DOORBELL_QPS];
    struct vb_rx_frame frames[VB_PORT_RX_BATCH];
};

struct vb_pd {
    struct vb_link link;
    struct vb_nic *nic;
    uint32_t pd;
};

struct vb_mr {
    struct vb_link link;
    struct vb_nic *nic;
    uint32_t key;
};

struct vb_cq {
    struct vb_link link;
    struct vb_nic *nic;
    uint32_t cqn;
    struct vb_driver_cq driver;
};

struct vb_qp {
    struct vb_link link;
    struct vb_nic *nic;
    struct vb_cq *send_cq, *recv_cq;
    struct vb_driver_qp driver;
};

// ---- open, run, close

static uint64_t draw_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = vb_clock_ns() ^ (uintptr_t)&seed;
    return seed;
}

static void init_lists(struct vb_nic *nic)
{
    vb_fifo_init(&nic->pds);
    vb_fifo_init(&nic->mrs);
    vb_fifo_init(&nic->cqs);
    vb_fifo_init(&nic->qps);
}

int vb_nic_open(const struct vb_nic_opts *opts, struct vb_nic **out)
{
    static const struct vb_nic_opts defaults = {0};
    if (!opts)
        opts = &defaults;
    const struct vb_udp_opts udp = {
        .address = opts->address ? opts->address : "127.0.0.1",
        .drop_ppm = opts->drop_ppm,
        .fault_seed = opts->fault_seed,
        .error_text = opts->error_text,
    };
    struct vb_nic *nic = calloc(1, sizeof *nic);
    int err = nic ? vb_udp_open(&udp, &nic->port) : -ENOMEM;
    if (err) {
        if (!nic && opts->error_text)
            snprintf(opts->error_text, VB_ERROR_TEXT, "out of memory");
        free(nic);
        return err;
    }
    nic->dev = vb_dev_create(&(struct vb_dev_opts){.seed = opts->seed ? opts->seed : draw_seed(),
                                                   .window_bytes = opts->window_bytes,
                                                   .lend_bytes = LEND_BYTES});
    if (!nic->dev) {
        if (opts->error_text)
            snprintf(opts->error_text, VB_ERROR_TEXT, "out of memory");
        nic->port->ops->close(nic->port);
        free(nic);
        return -ENOMEM;
    }
    nic->pu = vb_dev_pu(nic->dev);
    init_lists(nic);
    pthread_mutex_init(&nic->lock, NULL);
    *out = nic;
    return 0;
}

// Steps until idle and sends; again while only the room to send was missing.
static uint32_t work(struct vb_nic *nic, uint64_t now)
{
    struct vb_txq *txq = vb_pu_txq(nic->pu);
    uint32_t steps = 0;
    bool again;

    do {
        steps += vb_pu_poll(nic->pu, now);
        again = vb_pu_wants_tx(nic->pu);
        if (txq->taken < txq->count)
            nic->port->ops->send(nic->port, txq);
        vb_pu_tx_release(nic->pu);
    } while (again && txq->count == 0);
    vb_pu_tx_keep(nic->pu);
    return steps;
}

// What was just posted leaves first: looking at an empty socket takes as long as sending. Needs the
// lock.
static uint32_t run(struct vb_nic *nic)
{
    uint64_t now = vb_clock_ns();
    uint32_t steps = work(nic, now);
    uint32_t frames = nic->port->ops->receive(nic->port, nic->frames);

    if (frames > 0) {
        vb_pu_feed(nic->pu, nic->frames, frames);
        steps += work(nic, now);
    }
    return steps;
}

// What is owed to peers leaves before the queue pair or the socket does. Needs the lock.
static void drain(struct vb_nic *nic)
{
    const struct vb_txq *txq = vb_pu_txq(nic->pu);

    for (uint32_t tries = 0; tries < DRAIN_TRIES; tries++)
        if (run(nic) == 0 && txq->count == 0)
            return;
}

uint32_t vb_nic_progress(struct vb_nic *nic)
{
    if (pthread_mutex_trylock(&nic->lock) != 0)
        return 0; // another thread is running the NIC
    uint32_t steps = run(nic);
    pthread_mutex_unlock(&nic->lock);
    return steps;
}

void vb_nic_close(struct vb_nic *nic)
{
    struct vb_link *l;

    if (!nic)
        return;
    pthread_mutex_lock(&nic->lock);
    drain(nic);
    pthread_mutex_unlock(&nic->lock);
    while ((l = vb_fifo_first(&nic->qps)))
        vb_qp_destroy(VB_CONTAINER_OF(l, struct vb_qp, link));
    while ((l = vb_fifo_first(&nic->cqs)))
        vb_cq_destroy(VB_CONTAINER_OF(l, struct vb_cq, link));
    while ((l = vb_fifo_first(&nic->mrs)))
        vb_mr_dereg(VB_CONTAINER_OF(l, struct vb_mr, link));
    while ((l = vb_fifo_first(&nic->pds)))
        vb_pd_free(VB_CONTAINER_OF(l, struct vb_pd, link));
    vb_dev_destroy(nic->dev);
    nic->port->ops->close(nic->port);
    pthread_mutex_destroy(&nic->lock);
    free(nic);
}

void vb_nic_gid(const struct vb_nic *nic, uint8_t gid[16])
{
    memcpy(gid, nic->port->local.b, 16);
}

// ---- counters: the device's, then the port's

struct counter {
    const char *name;
    size_t offset;
    bool of_port;
};

#define DEV_COUNTER(name)  {#name, offsetof(struct vb_counters, name), false},
#define PORT_COUNTER(name) {#name, offsetof(struct vb_port_stats, name), true},

static const struct counter counters[] = {VB_COUNTERS(DEV_COUNTER) PORT_COUNTER(
    rx_bad_icrc) PORT_COUNTER(rx_solved_icrc) PORT_COUNTER(tx_errors) PORT_COUNTER(faults_dropped)};

enum {
    COUNTERS = sizeof counters / sizeof counters[0]
};

const char *vb_nic_counter_name(unsigned i)
{
    return i < COUNTERS ? counters[i].name : NULL;
}

int vb_nic_counter(const struct vb_nic *nic, const char *name, uint64_t *value)
{
    for (unsigned i = 0; i < COUNTERS; i++) {
        if (strcmp(counters[i].name, name) != 0)
            continue;
        const char *base = counters[i].of_port ? (const char *)&nic->port->stats
                                               : (const char *)vb_pu_counters(nic->pu);
        const void *at = base + counters[i].offset;
        *value = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
        return 0;
    }
    return -ENOENT;
}

// ---- domains and regions

int vb_pd_alloc(struct vb_nic *nic, struct vb_pd **out)
{
    struct vb_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return -ENOMEM;
    pd->nic = nic;
    pthread_mutex_lock(&nic->lock);
    int err = vb_dev_pd_create(nic->dev, &pd->pd);
    if (!err)
        vb_fifo_push(&nic->pds, &pd->link);
    pthread_mutex_unlock(&nic->lock);
    if (err)
        free(pd);
    else
        *out = pd;
    return err;
}

int vb_pd_free(struct vb_pd *pd)
{
    struct vb_nic *nic = pd->nic;
    pthread_mutex_lock(&nic->lock);
    int err = vb_dev_pd_destroy(nic->dev, pd->pd);
    if (!err)
        vb_link_remove(&pd->link);
    pthread_mutex_unlock(&nic->lock);
    if (!err)
        free(pd);
    return err;
}

static uint32_t access_of(uint32_t rights)
{
    return (rights & VB_RIGHT_LOCAL_WRITE ? VB_LOCAL_WRITE : 0) |
           (rights & VB_RIGHT_REMOTE_WRITE ? VB_REMOTE_WRITE : 0) |
           (rights & VB_RIGHT_REMOTE_READ ? VB_REMOTE_READ : 0);
}

static bool rights_are_known(uint32_t rights)
{
    return !(rights &
             ~(uint32_t)(VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ));
}

int vb_mr_reg(struct vb_pd *pd, void *addr, size_t len, uint32_t rights, struct vb_mr **out)
{
    struct vb_nic *nic = pd->nic;
    if (!rights_are_known(rights))
        return -EINVAL;
    struct vb_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return -ENOMEM;
    mr->nic = nic;
    const struct vb_mkey_attr attr = {.pd = pd->pd,
                                      .access = access_of(rights),
                                      .start = (uintptr_t)addr,
                                      .len = len,
                                      .base = addr};
    pthread_mutex_lock(&nic->lock);
    int err = vb_dev_mkey_create(nic->dev, &attr, &mr->key);
    if (!err)
        vb_fifo_push(&nic->mrs, &mr->link);
    pthread_mutex_unlock(&nic->lock);
    if (err)
        free(mr);
    else
        *out = mr;
    return err;
}

int vb_mr_dereg(struct vb_mr *mr)
{
    struct vb_nic *nic = mr->nic;
    pthread_mutex_lock(&nic->lock);
    int err = vb_dev_mkey_destroy(nic->dev, mr->key);
    vb_link_remove(&mr->link);
    pthread_mutex_unlock(&nic->lock);
    free(mr);
    return err;
}

uint32_t vb_mr_key(const struct vb_mr *mr)
{
    return mr->key;
}

// ---- completion queues

int vb_cq_create(struct vb_nic *nic, uint32_t entries, struct vb_cq **out)
{
    struct vb_cq *cq = calloc(1, sizeof *cq);
    if (!cq)
        return -ENOMEM;
    cq->nic = nic;
    int err = vb_driver_cq_init(&cq->driver, entries, 0);
    if (!err) {
        const struct vb_cqc_attr attr = {
            .ring = cq->driver.ring, .entries = cq->driver.entries, .dbrec = cq->driver.dbrec};
        pthread_mutex_lock(&nic->lock);
        err = vb_dev_cq_create(nic->dev, &attr, &cq->cqn);
        if (!err)
            vb_fifo_push(&nic->cqs, &cq->link);
        pthread_mutex_unlock(&nic->lock);
    }
    if (err) {
        vb_driver_cq_fini(&cq->driver);
        free(cq);
        return err;
    }
    *out = cq;
    return 0;
}

int vb_cq_destroy(struct vb_cq *cq)
{
    struct vb_nic *nic = cq->nic;
    pthread_mutex_lock(&nic->lock);
    int err = vb_dev_cq_destroy(nic->dev, cq->cqn);
    if (!err)
        vb_link_remove(&cq->link);
    pthread_mutex_unlock(&nic->lock);
    if (!err) {
        vb_driver_cq_fini(&cq->driver);
        free(cq);
    }
    return err;
}

static struct vb_driver_qp *find_qp(void *ctx, uint32_t qpn)
{
    struct vb_nic *nic = ctx;
    struct vb_qp *qp = nic->qp_by_index[qpn & (VB_DOORBELL_QPS - 1)];
    return qp && qp->driver.qpn == qpn ? &qp->driver : NULL;
}

int vb_poll_cq(struct vb_cq *cq, struct vb_wc *wc, int n)
{
    int taken = vb_driver_poll(&cq->driver, find_qp, cq->nic, wc, n);
    if (taken > 0)
        return taken;
    vb_nic_progress(cq->nic);
    return vb_driver_poll(&cq->driver, find_qp, cq->nic, wc, n);
}

// ---- queue pairs

static int create_context(struct vb_pd *pd, const struct vb_qp_opts *o, struct vb_qp *qp)
{
    struct vb_driver_qp *d = &qp->driver;
    struct vb_nic *nic = pd->nic;
    const struct vb_qpc_attr attr = {
        .pd = pd->pd,
        .send_cqn = o->send_cq->cqn,
        .recv_cqn = o->recv_cq->cqn,
        .sq_ring = d->sq.ring,
        .sq_blocks = d->sq.blocks,
        .rq_ring = d->rq.ring,
        .rq_entries = d->rq.entries,
        .rq_stride_bytes = d->rq.stride,
        .dbrec = d->dbrec,
    };
    int err = vb_dev_qp_create(nic->dev, &attr, &d->qpn);
    if (err)
        return err;
    d->doorbells = vb_dev_doorbells(nic->dev);
    nic->qp_by_index[d->qpn & (VB_DOORBELL_QPS - 1)] = qp;
    vb_fifo_push(&nic->qps, &qp->link);
    return 0;
}

int vb_qp_create(struct vb_pd *pd, const struct vb_qp_opts *opts, struct vb_qp **out)
{
    if (!opts->send_cq || !opts->recv_cq || opts->send_cq->nic != pd->nic ||
        opts->recv_cq->nic != pd->nic)
        return -EINVAL;
    struct vb_qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return -ENOMEM;
    qp->nic = pd->nic;
    qp->send_cq = opts->send_cq;
    qp->recv_cq = opts->recv_cq;
    int err = vb_driver_qp_init(&qp->driver, opts, 0, 0);
    if (!err) {
        pthread_mutex_lock(&qp->nic->lock);
        err = create_context(pd, opts, qp);
        pthread_mutex_unlock(&qp->nic->lock);
    }
    if (err) {
        vb_driver_qp_fini(&qp->driver);
        free(qp);
        return err;
    }
    *out = qp;
    return 0;
}

int vb_qp_destroy(struct vb_qp *qp)
{
    struct vb_nic *nic = qp->nic;
    pthread_mutex_lock(&nic->lock);
    drain(nic);
    int err = vb_dev_qp_destroy(nic->dev, qp->driver.qpn);
    nic->qp_by_index[qp->driver.qpn & (VB_DOORBELL_QPS - 1)] = NULL;
    vb_link_remove(&qp->link);
    pthread_mutex_unlock(&nic->lock);
    vb_driver_qp_fini(&qp->driver);
    free(qp);
    return err;
}

uint32_t vb_qp_num(const struct vb_qp *qp)
{
    return qp->driver.qpn;
}

static uint8_t or_default(uint8_t value, uint8_t fallback)
{
    return value ? value : fallback;
}

static struct vb_qpc_mods mods_of(const struct vb_nic *nic, const struct vb_qp_peer *p)
{
    uint8_t reads = or_default(p->reads, VB_RD_ATOMIC_MAX);
    struct vb_qpc_mods m = {
        .access = access_of(p->rights),
        .dest_qpn = p->qpn,
        .rq_psn = p->psn,
        .sq_psn = p->our_psn,
        .mtu_bytes = p->mtu ? p->mtu : 4096,
        .max_rd_atomic = reads,
        .max_dest_rd_atomic = reads,
        .min_rnr_timer = or_default(p->rnr_timer, 12),
        .timeout = or_default(p->timeout, 14),
        .retry_cnt = or_default(p->retries, 7),
        .rnr_retry = or_default(p->rnr_retries, VB_RETRY_INFINITE),
        .local = nic->port->local,
        .src_port = nic->port->src_port,
    };
    memcpy(m.remote.b, p->gid, 16);
    return m;
}

static int modify(struct vb_qp *qp, struct vb_qpc_mods *m, enum vb_qp_state state)
{
    m->state = state;
    return vb_dev_qp_modify(qp->nic->dev, qp->driver.qpn, m);
}

// Needs the lock. A refusal on the way goes back to RESET, so that the next attempt can work.
static int walk_to_rts(struct vb_qp *qp, struct vb_qpc_mods *m)
{
    static const enum vb_qp_state way[] = {VB_QPS_INIT, VB_QPS_RTR, VB_QPS_RTS};

    for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
        int err = modify(qp, m, way[i]);
        if (err) {
            modify(qp, m, VB_QPS_RESET);
            return err;
        }
    }
    return 0;
}

static void forget_former_life(struct vb_qp *qp, struct vb_qpc_mods *m)
{
    modify(qp, m, VB_QPS_RESET);
    vb_driver_qp_reset(&qp->driver);
    vb_driver_cq_clean(&qp->send_cq->driver, qp->driver.qpn);
    vb_driver_cq_clean(&qp->recv_cq->driver, qp->driver.qpn);
}

int vb_qp_connect(struct vb_qp *qp, const struct vb_qp_peer *peer)
{
    struct vb_nic *nic = qp->nic;
    struct vb_qpc_mods m = mods_of(nic, peer);
    enum vb_qp_state state;

    if (!rights_are_known(peer->rights) || (peer->rights & VB_RIGHT_LOCAL_WRITE))
        return -EINVAL;
    pthread_mutex_lock(&nic->lock);
    int err = vb_dev_qp_state(nic->dev, qp->driver.qpn, &state);
    if (!err && state == VB_QPS_ERR)
        forget_former_life(qp, &m);
    else if (!err && state != VB_QPS_RESET)
        err = -EINVAL;
    if (!err)
        err = walk_to_rts(qp, &m);
    pthread_mutex_unlock(&nic->lock);
    return err;
}

int vb_qp_fail(struct vb_qp *qp)
{
    pthread_mutex_lock(&qp->nic->lock);
    int err =
        vb_dev_qp_modify(qp->nic->dev, qp->driver.qpn, &(struct vb_qpc_mods){.state = VB_QPS_ERR});
    pthread_mutex_unlock(&qp->nic->lock);
    return err;
}

int vb_post_send(struct vb_qp *qp, const struct vb_send_wr *wr, uint32_t n)
{
    return vb_driver_post_send(&qp->driver, wr, n);
}

int vb_post_recv(struct vb_qp *qp, const struct vb_recv_wr *wr, uint32_t n)
{
    return vb_driver_post_recv(&qp->driver, wr, n);
}

const char *vb_wc_status_text(enum vb_wc_status status)
{
    static const char *const text[] = {
        [VB_WC_OK] = "success",
        [VB_WC_LOCAL_LENGTH] = "the message is longer than the receive buffer",
        [VB_WC_LOCAL_QP_OP] = "malformed work request",
        [VB_WC_LOCAL_PROTECTION] = "a local key, range or right is wrong",
        [VB_WC_FLUSHED] = "flushed: the queue pair failed before this request was done",
        [VB_WC_BAD_RESPONSE] = "the peer's answer made no sense",
        [VB_WC_LOCAL_ACCESS] = "local access refused",
        [VB_WC_REMOTE_INVALID] = "the peer refused the request's form, or its buffer is too short",
        [VB_WC_REMOTE_ACCESS] = "the remote key, range or right is wrong",
        [VB_WC_REMOTE_OPERATION] = "the peer failed while executing the request",
        [VB_WC_RETRY_EXCEEDED] = "no answer from the peer: retries exceeded",
        [VB_WC_RNR_EXCEEDED] = "the peer posted no receive in time: RNR retries exceeded",
    };
    return (unsigned)status < sizeof text / sizeof text[0] ? text[status] : "unknown status";
}
