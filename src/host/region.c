// SPDX-License-Identifier: Apache-2.0
// Protection domains, memory regions and windows.
#include "host/device.h"
#include "host/host.h"

#include "port/faulty.h"

#include <errno.h>
#include <stdlib.h>

// ---- domains

int vb_pd_alloc(struct vb_nic *nic, struct vb_pd **out)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    struct vb_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return -ENOMEM;
    pd->nic = nic;
    vb_host_lock(nic);
    int err = vb_device_pd_create(nic, &pd->pd);
    if (!err)
        vb_fifo_push(&nic->pds, &pd->link);
    vb_host_unlock(nic);
    if (err)
        free(pd);
    else
        *out = pd;
    return err;
}

int vb_pd_free(struct vb_pd *pd)
{
    struct vb_nic *nic = pd->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_pd_destroy(nic, pd->pd);
    if (!err)
        vb_link_remove(&pd->link);
    vb_host_unlock(nic);
    if (!err)
        free(pd);
    return err;
}

// ---- regions

uint32_t vb_host_access(uint32_t rights)
{
    return (rights & VB_RIGHT_LOCAL_WRITE ? VB_LOCAL_WRITE : 0u) |
           (rights & VB_RIGHT_REMOTE_WRITE ? VB_REMOTE_WRITE : 0u) |
           (rights & VB_RIGHT_REMOTE_READ ? VB_REMOTE_READ : 0u) |
           (rights & VB_RIGHT_REMOTE_ATOMIC ? VB_REMOTE_ATOMIC : 0u) |
           (rights & VB_RIGHT_BIND ? VB_BIND : 0u) |
           (rights & VB_RIGHT_FLUSH_GLOBAL ? VB_FLUSH_GLOBAL : 0u);
}

static struct vb_mkey_attr region_attr(const struct vb_pd *pd, const struct vb_mr_opts *o)
{
    return (struct vb_mkey_attr){.pd = pd->pd,
                                 .access = vb_host_access(o->rights),
                                 .start = o->other_start ? o->start : (uintptr_t)o->addr,
                                 .len = o->len,
                                 .base = o->addr,
                                 .guarded = o->guarded};
}

static int create(struct vb_pd *pd, const struct vb_mkey_attr *attr, struct vb_mr **out)
{
    struct vb_nic *nic = pd->nic;
    struct vb_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return -ENOMEM;
    mr->nic = nic;
    vb_host_lock(nic);
    int err = nic->faulty ? vb_faults_register(vb_faulty_rules(nic->lane[0].port)) : 0;
    if (!err)
        err = vb_device_mkey_create(nic, attr, &mr->key);
    if (!err)
        vb_fifo_push(&nic->mrs, &mr->link);
    vb_host_unlock(nic);
    if (err)
        free(mr);
    else
        *out = mr;
    return err;
}

int vb_mr_reg_as(struct vb_pd *pd, const struct vb_mr_opts *opts, struct vb_mr **out)
{
    if (vb_host_is_foreign(pd->nic))
        return -EPERM;
    if (opts->rights & ~(uint32_t)VB_RIGHT_ALL)
        return -EINVAL;
    const struct vb_mkey_attr attr = region_attr(pd, opts);
    return create(pd, &attr, out);
}

int vb_mr_null(struct vb_pd *pd, struct vb_mr **out)
{
    if (vb_host_is_foreign(pd->nic))
        return -EPERM;
    const struct vb_mkey_attr attr = {.pd = pd->pd, .kind = VB_MKEY_NULL};
    return create(pd, &attr, out);
}

int vb_host_refusal(enum vb_mem_refusal refusal)
{
    static const int errors[] = {
        [VB_MEM_NO_KEY] = -ENOENT,     [VB_MEM_DOMAIN] = -EPERM, [VB_MEM_RIGHTS] = -EACCES,
        [VB_MEM_BOUNDS] = -ERANGE,     [VB_MEM_GONE] = -EFAULT,  [VB_MEM_STATE] = -EINVAL,
        [VB_MEM_COPIED] = -EOPNOTSUPP,
    };
    return errors[refusal];
}

int vb_mr_find(struct vb_pd *pd, uint32_t key, uint64_t addr, uint64_t len, uint32_t rights,
               void **at)
{
    struct vb_nic *nic = pd->nic;
    uint8_t *bytes = NULL;
    int err;

    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    if (nic->attach) {
        const struct vb_hull_find what = {
            .start = addr, .len = len, .pd = pd->pd, .key = key, .access = vb_host_access(rights)};
        err = vb_attach_mkey_find(nic->attach, &what, &bytes);
    } else {
        err = vb_host_refusal(vb_dev_mkey_judge(nic->dev, (struct vb_accessor){.pd = pd->pd}, key,
                                                addr, len, vb_host_access(rights), &bytes));
    }
    vb_host_unlock(nic);
    *at = bytes;
    return err;
}

int vb_mr_reg(struct vb_pd *pd, void *addr, size_t len, uint32_t rights, struct vb_mr **out)
{
    return vb_mr_reg_as(pd, &(struct vb_mr_opts){.addr = addr, .len = len, .rights = rights}, out);
}

int vb_mr_change(struct vb_mr *mr, struct vb_pd *pd, const struct vb_mr_opts *opts)
{
    if (vb_host_is_foreign(mr->nic))
        return -EPERM;
    if (opts->rights & ~(uint32_t)VB_RIGHT_ALL || pd->nic != mr->nic || mr->code)
        return -EINVAL;
    const struct vb_mkey_attr attr = region_attr(pd, opts);
    vb_host_lock(mr->nic);
    int err = vb_device_mkey_change(mr->nic, mr->key, &attr);
    vb_host_unlock(mr->nic);
    return err;
}

// The locks are the grace period: frames that were built from the memory have left, or were copied.
int vb_mr_dereg(struct vb_mr *mr)
{
    struct vb_nic *nic = mr->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = mr->dead ? 0 : vb_device_mkey_destroy(nic, mr->key);
    if (!err)
        vb_link_remove(&mr->link);
    if (!err && vb_link_queued(&mr->code_link))
        vb_link_remove(&mr->code_link);
    vb_host_unlock(nic);
    if (!err)
        free(mr);
    return err;
}

uint32_t vb_mr_key(const struct vb_mr *mr)
{
    return mr->key;
}

// ---- windows

int vb_mw_alloc(struct vb_pd *pd, enum vb_mw_type type, struct vb_mw **out)
{
    struct vb_nic *nic = pd->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    if (type != VB_MW_TYPE_1 && type != VB_MW_TYPE_2)
        return -EINVAL;
    struct vb_mw *mw = calloc(1, sizeof *mw);
    if (!mw)
        return -ENOMEM;
    mw->nic = nic;
    const struct vb_mkey_attr attr = {
        .pd = pd->pd, .kind = type == VB_MW_TYPE_1 ? VB_MKEY_WINDOW1 : VB_MKEY_WINDOW2};
    vb_host_lock(nic);
    int err = vb_device_mkey_create(nic, &attr, &mw->key);
    if (!err)
        vb_fifo_push(&nic->mws, &mw->link);
    vb_host_unlock(nic);
    if (err)
        free(mw);
    else
        *out = mw;
    return err;
}

int vb_mw_free(struct vb_mw *mw)
{
    struct vb_nic *nic = mw->nic;
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = vb_device_window_destroy(nic, mw->key);
    vb_link_remove(&mw->link);
    vb_host_unlock(nic);
    free(mw);
    return err;
}

uint32_t vb_mw_key(const struct vb_mw *mw)
{
    return mw->key;
}
