// SPDX-License-Identifier: Apache-2.0
// Domains, memory regions and windows.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

// ---- domains

VB_VERBS_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct vb_verbs_pd *pd = calloc(1, sizeof *pd);
    int err = pd ? vb_pd_alloc(vb_verbs_of(context)->nic, &pd->nic) : -ENOMEM;

    if (err) {
        free(pd);
        vb_verbs_fail(-err, "ibv_alloc_pd", NULL);
        return NULL;
    }
    pd->pd.context = context;
    return &pd->pd;
}

VB_VERBS_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    struct vb_verbs_pd *pd = VB_VERBS_CAST(vb_verbs_pd, ibv);

    if (atomic_load(&pd->users))
        return vb_verbs_fail(EBUSY, "ibv_dealloc_pd", "parent domains are made from it");
    int err = pd->parent ? 0 : vb_pd_free(pd->nic);
    if (err)
        return vb_verbs_fail(-err, "ibv_dealloc_pd", "regions or queues remain");
    if (pd->parent)
        atomic_fetch_sub(&pd->parent->users, 1);
    if (pd->td)
        atomic_fetch_sub(&pd->td->users, 1);
    free(pd);
    return 0;
}

// Why there is no such domain, or NULL; *error is changed if it is not EINVAL.
static const char *judge_parent(const struct ibv_parent_domain_init_attr *attr, int *error)
{
    const uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

    if (!attr->pd)
        return "it needs a domain";
    if (attr->comp_mask & ~known)
        return "comp_mask is unknown";
    if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
        *error = EOPNOTSUPP;
        return "queues are the NIC's own memory: allocators would not be asked";
    }
    return NULL;
}

struct ibv_pd *vb_verbs_alloc_parent_domain(struct ibv_context *context,
                                            struct ibv_parent_domain_init_attr *attr)
{
    struct vb_verbs_pd *parent = VB_VERBS_CAST(vb_verbs_pd, attr->pd);
    int error = EINVAL;
    const char *why = judge_parent(attr, &error);
    struct vb_verbs_pd *pd = why ? NULL : calloc(1, sizeof *pd);

    if (!pd) {
        vb_verbs_fail(why ? error : ENOMEM, "ibv_alloc_parent_domain", why);
        return NULL;
    }
    while (parent->parent)
        parent = parent->parent;
    atomic_fetch_add(&parent->users, 1);
    pd->parent = parent;
    pd->td = VB_VERBS_CAST(vb_verbs_td, attr->td);
    if (pd->td)
        atomic_fetch_add(&pd->td->users, 1);
    pd->nic = parent->nic;
    pd->pd.context = context;
    return &pd->pd;
}

struct ibv_td *vb_verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
    struct vb_verbs_td *td = attr->comp_mask ? NULL : calloc(1, sizeof *td);

    if (!td) {
        vb_verbs_fail(attr->comp_mask ? EOPNOTSUPP : ENOMEM, "ibv_alloc_td", NULL);
        return NULL;
    }
    td->td.context = context;
    return &td->td;
}

int vb_verbs_dealloc_td(struct ibv_td *ibv)
{
    struct vb_verbs_td *td = VB_VERBS_CAST(vb_verbs_td, ibv);

    if (atomic_load(&td->users))
        return vb_verbs_fail(EBUSY, "ibv_dealloc_td", "parent domains use it");
    free(td);
    return 0;
}

// ---- regions

uint32_t vb_verbs_rights(unsigned access)
{
    return (access & IBV_ACCESS_LOCAL_WRITE ? VB_RIGHT_LOCAL_WRITE : 0u) |
           (access & IBV_ACCESS_REMOTE_WRITE ? VB_RIGHT_REMOTE_WRITE : 0u) |
           (access & IBV_ACCESS_REMOTE_READ ? VB_RIGHT_REMOTE_READ : 0u) |
           (access & IBV_ACCESS_REMOTE_ATOMIC ? VB_RIGHT_REMOTE_ATOMIC : 0u) |
           (access & IBV_ACCESS_MW_BIND ? VB_RIGHT_BIND : 0u);
}

// Why a region cannot be had like this, or NULL. Nothing is ordered more strictly than asked for:
// that flag changes nothing.
static const char *judge_access(unsigned access)
{
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND |
                           IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |
                           IBV_ACCESS_OPTIONAL_RANGE;
    if (access & ~known)
        return "an access flag is unknown";
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
        !(access & IBV_ACCESS_LOCAL_WRITE))
        return "remote writing and atomics need local writing, too";
    return NULL;
}

static struct ibv_mr *reg(struct ibv_pd *ibv, const char *verb, const struct vb_mr_opts *opts,
                          unsigned access)
{
    struct vb_verbs_pd *pd = VB_VERBS_CAST(vb_verbs_pd, ibv);
    const char *why = judge_access(access);
    if (!why && opts->len == SIZE_MAX && !(access & IBV_ACCESS_ON_DEMAND))
        why = "only memory on demand (IBV_ACCESS_ON_DEMAND) can be all of the address space";
    struct vb_verbs_mr *mr = why ? NULL : calloc(1, sizeof *mr);
    int err = why ? -EINVAL : -ENOMEM;

    if (mr) {
        mr->opts = *opts;
        mr->opts.rights = vb_verbs_rights(access);
        err = vb_mr_reg_as(pd->nic, &mr->opts, &mr->nic);
    }
    if (err) {
        free(mr);
        vb_verbs_fail(-err, verb, why);
        return NULL;
    }
    mr->mr = (struct ibv_mr){.context = ibv->context,
                             .pd = ibv,
                             .addr = opts->addr,
                             .length = opts->len,
                             .lkey = vb_mr_key(mr->nic),
                             .rkey = vb_mr_key(mr->nic)};
    return &mr->mr;
}

VB_VERBS_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
                                                uint64_t iova, unsigned int access)
{
    const bool other = iova != (uintptr_t)addr || access & IBV_ACCESS_ZERO_BASED;
    const struct vb_mr_opts opts = {.addr = addr,
                                    .len = len,
                                    .guarded = access & IBV_ACCESS_ON_DEMAND,
                                    .other_start = other,
                                    .start = access & IBV_ACCESS_ZERO_BASED ? iova - (uintptr_t)addr
                                                                            : iova};
    return reg(pd, "ibv_reg_mr", &opts, access);
}

VB_VERBS_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr, (unsigned)access);
}

VB_VERBS_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len,
                                               uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, addr, len, iova, (unsigned)access);
}

VB_VERBS_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
                                                 uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)len, (void)iova, (void)fd, (void)access;
    vb_verbs_fail(EOPNOTSUPP, "ibv_reg_dmabuf_mr", "memory of other devices cannot be reached");
    return NULL;
}

VB_VERBS_EXPORT int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr,
                                 size_t len, int access)
{
    struct vb_verbs_mr *mr = VB_VERBS_CAST(vb_verbs_mr, ibv);
    struct vb_mr_opts opts = mr->opts;
    const char *why = flags & IBV_REREG_MR_CHANGE_ACCESS ? judge_access((unsigned)access) : NULL;

    if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || why) {
        vb_verbs_fail(EINVAL, "ibv_rereg_mr", why ? why : "a flag is unknown");
        return IBV_REREG_MR_ERR_INPUT;
    }
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
        opts = (struct vb_mr_opts){
            .addr = addr, .len = len, .rights = opts.rights, .guarded = opts.guarded};
    if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
        opts.rights = vb_verbs_rights((unsigned)access);
        opts.guarded = access & IBV_ACCESS_ON_DEMAND;
    }
    struct ibv_pd *owner = flags & IBV_REREG_MR_CHANGE_PD ? pd : ibv->pd;
    int err = vb_mr_change(mr->nic, VB_VERBS_CAST(vb_verbs_pd, owner)->nic, &opts);
    if (err) {
        vb_verbs_fail(-err, "ibv_rereg_mr", "the region is as before");
        return IBV_REREG_MR_ERR_CMD;
    }
    mr->opts = opts;
    ibv->pd = owner;
    ibv->addr = opts.addr;
    ibv->length = opts.len;
    return 0;
}

VB_VERBS_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
    struct vb_verbs_mr *mr = VB_VERBS_CAST(vb_verbs_mr, ibv);
    int err = vb_mr_dereg(mr->nic);

    if (err)
        return vb_verbs_fail(-err, "ibv_dereg_mr", "windows are bound to it");
    free(mr);
    return 0;
}

struct ibv_mr *vb_verbs_alloc_null_mr(struct ibv_pd *ibv)
{
    struct vb_verbs_mr *mr = calloc(1, sizeof *mr);
    int err = mr ? vb_mr_null(VB_VERBS_CAST(vb_verbs_pd, ibv)->nic, &mr->nic) : -ENOMEM;

    if (err) {
        free(mr);
        vb_verbs_fail(-err, "ibv_alloc_null_mr", NULL);
        return NULL;
    }
    mr->mr = (struct ibv_mr){
        .context = ibv->context, .pd = ibv, .length = SIZE_MAX, .lkey = vb_mr_key(mr->nic)};
    return &mr->mr;
}

static int populate(void *at, uint64_t len, bool write)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at & ~(page - 1);

    return madvise((void *)from, (uintptr_t)at + len - from,
                   write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

// Pages come when they are touched; advice can only make that earlier. An old kernel does not take
// it, which is no fault.
int vb_verbs_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                       struct ibv_sge *list, uint32_t count)
{
    bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;

    if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || count == 0 ||
        (unsigned)advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
        return vb_verbs_fail(EINVAL, "ibv_advise_mr", "a flag or an advice is unknown");
    for (uint32_t i = 0; i < count; i++) {
        void *at;
        int err = vb_mr_find(VB_VERBS_CAST(vb_verbs_pd, pd)->nic, list[i].lkey, list[i].addr,
                             list[i].length, write ? VB_RIGHT_LOCAL_WRITE : 0, &at);
        if (err == -ENOENT || err == -EPERM)
            return vb_verbs_fail(-err, "ibv_advise_mr", "no such key in this domain");
        if (err)
            return vb_verbs_fail(EFAULT, "ibv_advise_mr", "memory that is not the region's");
        if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT &&
            populate(at, list[i].length, write) != 0 && errno != EINVAL &&
            flags & IBV_ADVISE_MR_FLAG_FLUSH)
            return vb_verbs_fail(EFAULT, "ibv_advise_mr", "memory that is not there");
    }
    return 0;
}

// ---- windows

struct ibv_mw *vb_verbs_alloc_mw(struct ibv_pd *ibv, enum ibv_mw_type type)
{
    struct vb_verbs_pd *pd = VB_VERBS_CAST(vb_verbs_pd, ibv);
    struct vb_verbs_mw *mw = calloc(1, sizeof *mw);
    enum vb_mw_type kind = type == IBV_MW_TYPE_1 ? VB_MW_TYPE_1 : VB_MW_TYPE_2;
    int err = mw ? vb_mw_alloc(pd->nic, kind, &mw->nic) : -ENOMEM;

    if (err) {
        free(mw);
        vb_verbs_fail(-err, "ibv_alloc_mw", NULL);
        return NULL;
    }
    mw->mw = (struct ibv_mw){
        .context = ibv->context, .pd = ibv, .rkey = vb_mw_key(mw->nic), .type = type};
    return &mw->mw;
}

int vb_verbs_dealloc_mw(struct ibv_mw *ibv)
{
    struct vb_verbs_mw *mw = VB_VERBS_CAST(vb_verbs_mw, ibv);
    int err = vb_mw_free(mw->nic);

    if (err)
        return vb_verbs_fail(-err, "ibv_dealloc_mw", NULL);
    free(mw);
    return 0;
}
