// SPDX-License-Identifier: Apache-2.0
// What all ids of a process share: the device, its communication manager, and the thread that takes
// the manager's events. Ids name none of these, so this is the one place that remembers them.
#include "rdmacm/rdmacm.h"

#include "base/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum {
    BUCKETS = 4096,
    CONNECTIONS = 16384, // of the manager, those that are ending included
    LISTENERS = 1024,
    EXIT_PATIENCE_S = 1,
    EXIT_PATIENCE_NS = EXIT_PATIENCE_S * 1000000000,
    EXIT_REST_NS = 200 * 1000,
    EXIT_BURST = 128, // messages of a manager: a default socket has room for two bursts
    EXIT_LOST_NS = 20 * 1000 * 1000,
    GRAVES = 64,
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int cancel; // whether who holds the lock can be cancelled otherwise
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    struct vb_host_cm *manager;
    bool hooked;         // fork and exit
    uint32_t generation; // of processes that were forked from each other
    struct vb_fifo ids, services;
    uint32_t numbers; // of services so far
    struct vb_rdmacm_channel *grave[GRAVES];
    uint32_t buried;
    struct vb_rdmacm_id *bucket[BUCKETS];
} process = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .cond = PTHREAD_COND_INITIALIZER,
             .ids = {{&process.ids.head, &process.ids.head}},
             .services = {{&process.services.head, &process.services.head}}};

// Programs cancel threads that wait for events: not while they hold it.
void vb_rdmacm_lock(void)
{
    int before = vb_cancel_hold();

    pthread_mutex_lock(&process.lock);
    process.cancel = before;
}

void vb_rdmacm_unlock(void)
{
    int before = process.cancel;

    pthread_mutex_unlock(&process.lock);
    vb_cancel_allow(before);
}

void vb_rdmacm_wait(void)
{
    int before = process.cancel;

    pthread_cond_wait(&process.cond, &process.lock);
    process.cancel = before;
}

void vb_rdmacm_notice(void)
{
    pthread_cond_broadcast(&process.cond);
}

const struct vb_verbs_cm *vb_rdmacm_calls(void)
{
    return vb_verbs_cm();
}

struct vb_host_cm *vb_rdmacm_manager(void)
{
    return process.manager;
}

uint32_t vb_rdmacm_generation(void)
{
    return process.generation;
}

struct vb_rdmacm_channel *vb_rdmacm_bury(struct vb_rdmacm_channel *channel)
{
    struct vb_rdmacm_channel **grave = &process.grave[process.buried++ % GRAVES];
    struct vb_rdmacm_channel *former = *grave;

    *grave = channel;
    return former;
}

struct vb_fifo *vb_rdmacm_ids(void)
{
    return &process.ids;
}

struct vb_fifo *vb_rdmacm_services(void)
{
    return &process.services;
}

uint32_t vb_rdmacm_number(void)
{
    return ++process.numbers;
}

uint32_t vb_rdmacm_draw(void)
{
    uint32_t number = 0;

    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint32_t)time(NULL);
    return number;
}

int vb_rdmacm_fail(int error, const char *call, const char *why)
{
    vb_verbs_raw_refuse(error, call, why);
    return -1;
}

// Programs that clean up pass what they never had.
int vb_rdmacm_refuse_foreign(const struct vb_rdmacm_id *i, const char *call)
{
    if (!i)
        return vb_rdmacm_fail(EINVAL, call, "no id");
    if (i->generation == process.generation && i->condemned)
        return vb_rdmacm_fail(EINVAL, call, "its channel is gone");
    if (i->generation == process.generation)
        return 0;
    return vb_rdmacm_fail(EPERM, call, "after fork() the id is the parent's: make another");
}

// ---- ids by the manager's

void vb_rdmacm_know(struct vb_rdmacm_id *i, uint32_t cm_id)
{
    struct vb_rdmacm_id **chain = &process.bucket[cm_id % BUCKETS];

    i->cm_id = cm_id;
    i->has_cm = true;
    i->next = *chain;
    *chain = i;
}

void vb_rdmacm_forget(struct vb_rdmacm_id *i)
{
    if (!i->has_cm)
        return;
    for (struct vb_rdmacm_id **at = &process.bucket[i->cm_id % BUCKETS]; *at; at = &(*at)->next)
        if (*at == i) {
            *at = i->next;
            break;
        }
    i->has_cm = false;
}

struct vb_rdmacm_id *vb_rdmacm_find(uint32_t cm_id)
{
    struct vb_rdmacm_id *i = process.bucket[cm_id % BUCKETS];

    while (i && i->cm_id != cm_id)
        i = i->next;
    return i;
}

// ---- fork and exit

// The parent's NIC and ids are dead here; ids that are made from now on are on a new one.
static void after_fork_in_child(void)
{
    pthread_mutex_init(&process.lock, NULL);
    pthread_cond_init(&process.cond, NULL);
    process.context = NULL;
    process.pd = NULL;
    process.xrcd = NULL;
    process.manager = NULL;
    process.generation++;
    vb_fifo_init(&process.ids);
    vb_fifo_init(&process.services);
    for (unsigned i = 0; i < BUCKETS; i++)
        process.bucket[i] = NULL;
}

// Ends up to EXIT_BURST more of the ids from `l` on. Where it stopped.
static struct vb_link *abandon_some(struct vb_cm *cm, uint64_t now_ns, struct vb_link *l)
{
    for (uint32_t ended = 0; l != &process.ids.head && ended < EXIT_BURST; l = l->next, ended++) {
        if (!vb_rdmacm_calls()->has_room(cm))
            break;
        vb_rdmacm_abandon_in(cm, now_ns, VB_CONTAINER_OF(l, struct vb_rdmacm_id, all));
    }
    return l;
}

// Ends all connections, and waits until peers have answered, or until a second after the last of
// them was ended. A burst begins when fewer than EXIT_BURST ends are not answered, so that no
// socket overflows, or when EXIT_LOST_NS have passed: peers may be gone. A DREQ that got lost is
// repeated by the manager's thread, which ends with the process: a peer that never hears of the end
// may wait for ever. A thread that calls exit() in a signal handler may hold a lane's lock or that
// of events, so it sends nothing itself. If the manager's thread waits for such a lock while it is
// in the manager, the second passes.
static void tell_peers(void)
{
    const struct vb_verbs_cm *calls = vb_rdmacm_calls();
    uint64_t now_ns, until_ns, lost_ns = 0;
    struct vb_link *l = process.ids.head.next;
    struct timespec now;
    struct vb_cm *cm;

    clock_gettime(CLOCK_MONOTONIC, &now);
    until_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + EXIT_PATIENCE_NS;
    while ((cm = calls->enter_until(process.manager, until_ns, &now_ns))) {
        struct vb_link *before = l;
        if (calls->leaving(cm) < EXIT_BURST || now_ns >= lost_ns)
            l = abandon_some(cm, now_ns, l);
        if (l != before) {
            until_ns = now_ns + EXIT_PATIENCE_NS;
            lost_ns = now_ns + EXIT_LOST_NS;
        }
        bool over = l == &process.ids.head && calls->leaving(cm) == 0;
        calls->leave_to_thread(process.manager);
        if (over || now_ns >= until_ns)
            return;
        nanosleep(&(struct timespec){.tv_nsec = EXIT_REST_NS}, NULL);
    }
}

// As a kernel would do it for a process that leaves, peers are told that their connections are
// over. A thread that holds the lock at such a time has a second to let go. The lock is kept while
// peers answer, so that no other thread accepts or makes a connection which nobody would end.
static void at_exit(void)
{
    struct timespec until;
    int before = vb_cancel_hold(); // resting is where a thread could be cancelled

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXIT_PATIENCE_S;
    if (process.manager && pthread_mutex_timedlock(&process.lock, &until) == 0) {
        tell_peers();
        pthread_mutex_unlock(&process.lock);
    }
    vb_cancel_allow(before);
}

// ---- the thread

static void *run(void *arg)
{
    struct vb_host_cm *manager = arg;
    const struct vb_verbs_cm *calls = vb_rdmacm_calls();
    struct pollfd fd = {.fd = calls->event_fd(manager), .events = POLLIN};
    struct vb_cm_event event;

    for (;;) {
        while (calls->take_event(manager, &event))
            vb_rdmacm_arrive(&event);
        poll(&fd, 1, -1);
    }
    return NULL;
}

static int start(struct vb_host_cm *manager)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all); // the application's signals are the application's
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&thread, NULL, run, manager);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!err)
        pthread_detach(thread);
    return -err;
}

// ---- the device

static struct ibv_context *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;

    errno = ENODEV;
    for (unsigned i = 0; list && list[i] && !context; i++)
        if (vb_verbs_raw_device(list[i]))
            context = ibv_open_device(list[i]);
    if (list)
        ibv_free_device_list(list);
    return context;
}

static int open_manager(struct ibv_context *context)
{
    const struct vb_cm_opts opts = {.connections = CONNECTIONS, .listeners = LISTENERS};
    struct vb_host_cm *manager;
    int err = vb_rdmacm_calls()->open(context, &opts, &manager);

    if (err)
        return err;
    err = start(manager);
    if (err) {
        vb_rdmacm_calls()->close(manager);
        return err;
    }
    process.manager = manager;
    return 0;
}

struct ibv_context *vb_rdmacm_open(void)
{
    if (process.context)
        return process.context;
    struct ibv_context *context = open_device();
    if (!context)
        return NULL;
    process.pd = ibv_alloc_pd(context);
    int err = process.pd ? open_manager(context) : -errno;
    if (err) {
        if (process.pd)
            ibv_dealloc_pd(process.pd);
        process.pd = NULL;
        ibv_close_device(context);
        vb_rdmacm_fail(-err, "rdma_cm", "the NIC has no communication manager for us");
        return NULL;
    }
    if (!process.hooked)
        process.hooked =
            pthread_atfork(NULL, NULL, after_fork_in_child) == 0 && atexit(at_exit) == 0;
    process.context = context;
    return context;
}

struct ibv_pd *vb_rdmacm_pd(void)
{
    return process.pd;
}

struct ibv_xrcd *vb_rdmacm_xrcd(void)
{
    struct ibv_xrcd_init_attr attr = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};

    if (!process.xrcd)
        process.xrcd = ibv_open_xrcd(process.context, &attr);
    return process.xrcd;
}

// ---- devices

VB_RAW_EXPORT struct ibv_context **rdma_get_devices(int *count)
{
    struct ibv_context **list = calloc(2, sizeof *list);

    vb_rdmacm_lock();
    struct ibv_context *context = list ? vb_rdmacm_open() : NULL;
    vb_rdmacm_unlock();
    if (count)
        *count = context != NULL;
    if (!context) {
        free(list);
        return NULL;
    }
    list[0] = context;
    return list;
}

VB_RAW_EXPORT void rdma_free_devices(struct ibv_context **list)
{
    free(list);
}
