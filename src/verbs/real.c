// SPDX-License-Identifier: Apache-2.0
// Real devices of the machine, beside ours. The system's own libibverbs is loaded into a namespace
// of its own, where its drivers find it instead of this library, and its devices are listed behind
// ours. Whoever exports a verb looks whose object it has got; inline verbs go through the context's
// own table. Where the machine has no device, nothing is loaded.
#define VB_VERBS_DISPATCHES
#include "verbs/verbs.h"

#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void any_function(void);
typedef int *errno_place(void);

// Loaded once, at the first list; it stays, as devices of it may.
static struct {
    pthread_mutex_t lock;
    bool tried;
    bool forks; // the program has called ibv_fork_init()
    _Atomic(void *) library;
} real = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- the system's library

static bool machine_has_devices(void)
{
    DIR *dir = opendir("/sys/class/infiniband");
    bool found = false;

    for (const struct dirent *e; dir && !found && (e = readdir(dir));)
        found = e->d_name[0] != '.' && strcmp(e->d_name, vb_verbs_device()->name) != 0;
    if (dir)
        closedir(dir);
    return found;
}

// Not by its name alone, which would lead here again.
static const char *find_library(char path[256])
{
    static const char *const places[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                         "/usr/lib64", "/usr/lib"};
    const char *wanted = getenv("VERBENA_REAL");

    if (wanted && *wanted)
        return strcmp(wanted, "off") == 0 ? NULL : wanted;
    for (size_t i = 0; machine_has_devices() && i < sizeof places / sizeof *places; i++) {
        snprintf(path, 256, "%s/libibverbs.so.1", places[i]);
        if (access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}

static any_function *find(const char *name)
{
    void *library = atomic_load_explicit(&real.library, memory_order_acquire);
    void *symbol = library ? dlsym(library, name) : NULL;
    any_function *function;

    memcpy(&function, &symbol, sizeof function);
    return function;
}

#define REAL(name) ((__typeof__(&(name)))find(#name))

static void *load(void)
{
    char path[256];

    pthread_mutex_lock(&real.lock);
    const char *name = real.tried ? NULL : find_library(path);
    real.tried = true;
    if (name) {
        void *library = dlmopen(LM_ID_NEWLM, name, RTLD_NOW | RTLD_LOCAL);
        if (library)
            vb_verbs_log(VB_VERBS_INFO, "real devices by %s", name);
        else
            vb_verbs_log(VB_VERBS_ERROR, "ibv_get_device_list: no real devices: %s", dlerror());
        atomic_store_explicit(&real.library, library, memory_order_release);
        if (real.forks && REAL(ibv_fork_init) && REAL(ibv_fork_init)() != 0)
            vb_verbs_log(VB_VERBS_ERROR, "ibv_fork_init: not for real devices");
    }
    pthread_mutex_unlock(&real.lock);
    return atomic_load_explicit(&real.library, memory_order_acquire);
}

// A namespace has a C library of its own, and that an errno.
static void take_errno(void)
{
    errno_place *place = (errno_place *)find("__errno_location");
    if (place)
        errno = *place();
}

// ---- whose it is

static bool is_ours(const struct ibv_context *context)
{
    return context->device == vb_verbs_device();
}

// An older library may not have it.
#define RESULT(type, missing, name, object, params, args) \
    VB_VERBS_EXPORT type name params                      \
    {                                                     \
        if (is_ours(object))                              \
            return vb_ours_##name args;                   \
        if (!REAL(name)) {                                \
            errno = EOPNOTSUPP;                           \
            return missing;                               \
        }                                                 \
        type result = REAL(name) args;                    \
        take_errno();                                     \
        return result;                                    \
    }                                                     \
    static_assert(sizeof(&(name)) > 0, "it ends with a semicolon")

#define NUMBER(type, name, object, params, args) \
    RESULT(type, EOPNOTSUPP, name, object, params, args)
#define OBJECT(type, name, object, params, args) RESULT(type, NULL, name, object, params, args)

#define NOTHING(name, object, params, args) \
    VB_VERBS_EXPORT void name params        \
    {                                       \
        if (is_ours(object))                \
            vb_ours_##name args;            \
        else if (REAL(name))                \
            REAL(name) args;                \
    }                                       \
    static_assert(sizeof(&(name)) > 0, "it ends with a semicolon")

NUMBER(int, _ibv_query_gid_ex, context,
       (struct ibv_context * context, uint32_t port_num, uint32_t gid_index,
        struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size),
       (context, port_num, gid_index, entry, flags, entry_size));
RESULT(ssize_t, -EOPNOTSUPP, _ibv_query_gid_table, context,
       (struct ibv_context * context, struct ibv_gid_entry *entries, size_t max_entries,
        uint32_t flags, size_t entry_size),
       (context, entries, max_entries, flags, entry_size));
NOTHING(ibv_ack_cq_events, cq->context, (struct ibv_cq * cq, unsigned int nevents), (cq, nevents));
OBJECT(struct ibv_pd *, ibv_alloc_pd, context, (struct ibv_context * context), (context));
NUMBER(int, ibv_attach_mcast, qp->context,
       (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid));
NUMBER(int, ibv_close_device, context, (struct ibv_context * context), (context));
OBJECT(struct ibv_ah *, ibv_create_ah, pd->context, (struct ibv_pd * pd, struct ibv_ah_attr *attr),
       (pd, attr));
OBJECT(struct ibv_ah *, ibv_create_ah_from_wc, pd->context,
       (struct ibv_pd * pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port_num),
       (pd, wc, grh, port_num));
OBJECT(struct ibv_comp_channel *, ibv_create_comp_channel, context, (struct ibv_context * context),
       (context));
OBJECT(struct ibv_cq *, ibv_create_cq, context,
       (struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
        int comp_vector),
       (context, cqe, cq_context, channel, comp_vector));
OBJECT(struct ibv_qp *, ibv_create_qp, pd->context,
       (struct ibv_pd * pd, struct ibv_qp_init_attr *qp_init_attr), (pd, qp_init_attr));
OBJECT(struct ibv_srq *, ibv_create_srq, pd->context,
       (struct ibv_pd * pd, struct ibv_srq_init_attr *srq_init_attr), (pd, srq_init_attr));
NUMBER(int, ibv_dealloc_pd, pd->context, (struct ibv_pd * pd), (pd));
NUMBER(int, ibv_dereg_mr, mr->context, (struct ibv_mr * mr), (mr));
NUMBER(int, ibv_destroy_ah, ah->context, (struct ibv_ah * ah), (ah));
NUMBER(int, ibv_destroy_comp_channel, channel->context, (struct ibv_comp_channel * channel),
       (channel));
NUMBER(int, ibv_destroy_cq, cq->context, (struct ibv_cq * cq), (cq));
NUMBER(int, ibv_destroy_qp, qp->context, (struct ibv_qp * qp), (qp));
NUMBER(int, ibv_destroy_srq, srq->context, (struct ibv_srq * srq), (srq));
NUMBER(int, ibv_detach_mcast, qp->context,
       (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid));
NUMBER(int, ibv_get_async_event, context,
       (struct ibv_context * context, struct ibv_async_event *event), (context, event));
NUMBER(int, ibv_get_cq_event, channel->context,
       (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **cq_context),
       (channel, cq, cq_context));
NUMBER(int, ibv_get_pkey_index, context,
       (struct ibv_context * context, uint8_t port_num, __be16 pkey), (context, port_num, pkey));
NUMBER(int, ibv_init_ah_from_wc, context,
       (struct ibv_context * context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
        struct ibv_ah_attr *ah_attr),
       (context, port_num, wc, grh, ah_attr));
NUMBER(int, ibv_modify_qp, qp->context,
       (struct ibv_qp * qp, struct ibv_qp_attr *attr, int attr_mask), (qp, attr, attr_mask));
NUMBER(int, ibv_modify_srq, srq->context,
       (struct ibv_srq * srq, struct ibv_srq_attr *srq_attr, int srq_attr_mask),
       (srq, srq_attr, srq_attr_mask));
OBJECT(struct ibv_qp_ex *, ibv_qp_to_qp_ex, qp->context, (struct ibv_qp * qp), (qp));
NUMBER(int, ibv_query_device, context,
       (struct ibv_context * context, struct ibv_device_attr *device_attr), (context, device_attr));
NUMBER(int, ibv_query_ece, qp->context, (struct ibv_qp * qp, struct ibv_ece *ece), (qp, ece));
NUMBER(int, ibv_query_gid, context,
       (struct ibv_context * context, uint8_t port_num, int index, union ibv_gid *gid),
       (context, port_num, index, gid));
NUMBER(int, ibv_query_gid_type, context,
       (struct ibv_context * context, uint8_t port, unsigned int index, int *type),
       (context, port, index, type));
NUMBER(int, ibv_query_pkey, context,
       (struct ibv_context * context, uint8_t port_num, int index, __be16 *pkey),
       (context, port_num, index, pkey));
NUMBER(int, ibv_query_port, context,
       (struct ibv_context * context, uint8_t port_num, struct _compat_ibv_port_attr *port_attr),
       (context, port_num, port_attr));
NUMBER(int, ibv_query_qp, qp->context,
       (struct ibv_qp * qp, struct ibv_qp_attr *attr, int attr_mask,
        struct ibv_qp_init_attr *init_attr),
       (qp, attr, attr_mask, init_attr));
NUMBER(int, ibv_query_qp_data_in_order, qp->context,
       (struct ibv_qp * qp, enum ibv_wr_opcode op, uint32_t flags), (qp, op, flags));
NUMBER(int, ibv_query_srq, srq->context, (struct ibv_srq * srq, struct ibv_srq_attr *srq_attr),
       (srq, srq_attr));
OBJECT(struct ibv_mr *, ibv_reg_mr, pd->context,
       (struct ibv_pd * pd, void *addr, size_t length, int access), (pd, addr, length, access));
OBJECT(struct ibv_mr *, ibv_reg_mr_iova, pd->context,
       (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, int access),
       (pd, addr, length, iova, access));
OBJECT(struct ibv_mr *, ibv_reg_mr_iova2, pd->context,
       (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, unsigned int access),
       (pd, addr, length, iova, access));
OBJECT(struct ibv_mr *, ibv_reg_dmabuf_mr, pd->context,
       (struct ibv_pd * pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access),
       (pd, offset, length, iova, fd, access));
NUMBER(int, ibv_rereg_mr, mr->context,
       (struct ibv_mr * mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access),
       (mr, flags, pd, addr, length, access));
NUMBER(int, ibv_resize_cq, cq->context, (struct ibv_cq * cq, int cqe), (cq, cqe));
NUMBER(int, ibv_set_ece, qp->context, (struct ibv_qp * qp, struct ibv_ece *ece), (qp, ece));
NUMBER(int, ibv_resolve_eth_l2_from_gid, context,
       (struct ibv_context * context, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vlan),
       (context, attr, mac, vlan));

// ---- devices

// The list that was handed out begins behind the real one, which is freed with it.
VB_VERBS_EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    bool loaded = load() && REAL(ibv_get_device_list) && REAL(ibv_free_device_list);
    struct ibv_device **theirs = loaded ? REAL(ibv_get_device_list)(NULL) : NULL;
    size_t n = 0;

    while (theirs && theirs[n])
        n++;
    struct ibv_device **list = calloc(n + 3, sizeof *list);
    if (!list) {
        if (theirs)
            REAL(ibv_free_device_list)(theirs);
        errno = ENOMEM;
        return NULL;
    }
    memcpy(&list[0], &theirs, sizeof theirs);
    list[1] = vb_verbs_device();
    if (n)
        memcpy(&list[2], theirs, n * sizeof *list);
    if (count)
        *count = (int)n + 1;
    return list + 1;
}

VB_VERBS_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    struct ibv_device **theirs;

    memcpy(&theirs, list - 1, sizeof theirs);
    if (theirs)
        REAL(ibv_free_device_list)(theirs);
    free(list - 1);
}

VB_VERBS_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    if (device == vb_verbs_device() || !REAL(ibv_open_device))
        return vb_ours_ibv_open_device(device);
    struct ibv_context *context = REAL(ibv_open_device)(device);
    take_errno();
    return context;
}

VB_VERBS_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name; // the same in all of them
}

VB_VERBS_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    bool theirs = device != vb_verbs_device() && REAL(ibv_get_device_guid);
    return theirs ? REAL(ibv_get_device_guid)(device) : vb_ours_ibv_get_device_guid(device);
}

VB_VERBS_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    bool theirs = device != vb_verbs_device() && REAL(ibv_get_device_index);
    return theirs ? REAL(ibv_get_device_index)(device) : vb_ours_ibv_get_device_index(device);
}

// ---- fork: ours needs nothing, a card's memory must be kept from the child

VB_VERBS_EXPORT int ibv_fork_init(void)
{
    pthread_mutex_lock(&real.lock);
    real.forks = true; // for a library that is loaded later, too
    int error = REAL(ibv_fork_init) ? REAL(ibv_fork_init)() : 0;
    pthread_mutex_unlock(&real.lock);
    return error;
}

VB_VERBS_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return REAL(ibv_is_fork_initialized) ? REAL(ibv_is_fork_initialized)() : IBV_FORK_UNNEEDED;
}

// ---- events

// Events of a port name no object, and need not be acknowledged.
static const struct ibv_context *context_of(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: return event->element.cq->context;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return event->element.qp->context;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return event->element.srq->context;
    case IBV_EVENT_WQ_FATAL: return event->element.wq->context;
    default: return NULL;
    }
}

VB_VERBS_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    const struct ibv_context *context = context_of(event);

    if (!context || is_ours(context))
        vb_ours_ibv_ack_async_event(event);
    else if (REAL(ibv_ack_async_event))
        REAL(ibv_ack_async_event)(event);
}
