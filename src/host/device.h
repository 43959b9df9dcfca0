// SPDX-License-Identifier: Apache-2.0
// The device behind a NIC: in this process, or in the hull that it is attached to.
#ifndef VB_HOST_DEVICE_H
#define VB_HOST_DEVICE_H

#include "host/attach.h"
#include "host/host.h"

#include <errno.h>
#include <string.h>

// Of what is the same call on both.
#define VB_DEVICE_CALL(what, params, args)                                      \
    static inline int vb_device_##what params                                   \
    {                                                                           \
        return nic->attach ? vb_attach_##what VB_DEVICE_ARGS(nic->attach, args) \
                           : vb_dev_##what VB_DEVICE_ARGS(nic->dev, args);      \
    }
#define VB_DEVICE_ARGS(first, args) (first, VB_DEVICE_REST args)
#define VB_DEVICE_REST(...)         __VA_ARGS__

VB_DEVICE_CALL(pd_create, (struct vb_nic * nic, uint32_t *pd), (pd))
VB_DEVICE_CALL(pd_destroy, (struct vb_nic * nic, uint32_t pd), (pd))
VB_DEVICE_CALL(mkey_create, (struct vb_nic * nic, const struct vb_mkey_attr *attr, uint32_t *key),
               (attr, key))
VB_DEVICE_CALL(mkey_change, (struct vb_nic * nic, uint32_t key, const struct vb_mkey_attr *attr),
               (key, attr))
VB_DEVICE_CALL(mkey_destroy, (struct vb_nic * nic, uint32_t key), (key))
VB_DEVICE_CALL(window_destroy, (struct vb_nic * nic, uint32_t key), (key))
VB_DEVICE_CALL(cq_moderate, (struct vb_nic * nic, uint32_t cqn, uint32_t count, uint64_t period_ns),
               (cqn, count, period_ns))
VB_DEVICE_CALL(cq_produced, (struct vb_nic * nic, uint32_t cqn, uint64_t *produced),
               (cqn, produced))
VB_DEVICE_CALL(cq_destroy, (struct vb_nic * nic, uint32_t cqn), (cqn))
VB_DEVICE_CALL(srq_create, (struct vb_nic * nic, const struct vb_srqc_attr *attr, uint32_t *srqn),
               (attr, srqn))
VB_DEVICE_CALL(srq_arm, (struct vb_nic * nic, uint32_t srqn, uint32_t limit), (srqn, limit))
VB_DEVICE_CALL(srq_limit, (struct vb_nic * nic, uint32_t srqn, uint32_t *limit), (srqn, limit))
VB_DEVICE_CALL(srq_destroy, (struct vb_nic * nic, uint32_t srqn), (srqn))
VB_DEVICE_CALL(qp_create, (struct vb_nic * nic, const struct vb_qpc_attr *attr, uint32_t *qpn),
               (attr, qpn))
VB_DEVICE_CALL(qp_modify, (struct vb_nic * nic, uint32_t qpn, const struct vb_qpc_mods *mods),
               (qpn, mods))
VB_DEVICE_CALL(qp_tune,
               (struct vb_nic * nic, uint32_t qpn, uint32_t access, uint8_t min_rnr_timer,
                uint32_t qkey),
               (qpn, access, min_rnr_timer, qkey))
VB_DEVICE_CALL(qp_limit,
               (struct vb_nic * nic, uint32_t qpn, uint64_t rate_Bps, uint32_t burst_bytes),
               (qpn, rate_Bps, burst_bytes))
VB_DEVICE_CALL(qp_state, (struct vb_nic * nic, uint32_t qpn, enum vb_qp_state *state), (qpn, state))
VB_DEVICE_CALL(qp_progress, (struct vb_nic * nic, uint32_t qpn, struct vb_qp_progress *progress),
               (qpn, progress))
VB_DEVICE_CALL(qp_destroy, (struct vb_nic * nic, uint32_t qpn), (qpn))
VB_DEVICE_CALL(program_create,
               (struct vb_nic * nic, const struct vb_program_attr *attr, uint32_t *program),
               (attr, program))
VB_DEVICE_CALL(program_destroy, (struct vb_nic * nic, uint32_t program), (program))
VB_DEVICE_CALL(program_stop, (struct vb_nic * nic, uint32_t program), (program))
VB_DEVICE_CALL(program_query,
               (struct vb_nic * nic, uint32_t program, uint64_t *executed, bool *stopped),
               (program, executed, stopped))

#undef VB_DEVICE_CALL
#undef VB_DEVICE_ARGS
#undef VB_DEVICE_REST

static inline void vb_device_qp_settle(struct vb_nic *nic, uint32_t qpn)
{
    if (nic->attach)
        vb_attach_qp_settle(nic->attach, qpn);
    else
        vb_dev_qp_settle(nic->dev, qpn);
}

// *unit becomes the one that it is on.
static inline int vb_device_cq_create(struct vb_nic *nic, const struct vb_cqc_attr *attr,
                                      const struct vb_channel *channel, uint32_t *cqn,
                                      uint32_t *unit)
{
    *unit = attr->pu;
    return nic->attach
               ? vb_attach_cq_create(nic->attach, attr, channel ? channel->number : 0, cqn, unit)
               : vb_dev_cq_create(nic->dev, attr, cqn);
}

static inline int vb_device_qp_counters(struct vb_nic *nic, uint32_t qpn,
                                        struct vb_qp_counters *counters)
{
    if (nic->attach)
        return vb_attach_qp_counters(nic->attach, qpn, counters);
    const struct vb_qp_counters *all = vb_dev_qp_counters(nic->dev, qpn);
    if (!all)
        return -ENOENT;
    *counters = *all;
    return 0;
}

// What the device of this process alone has. 0 or -EOPNOTSUPP.
static inline int vb_device_is_local(struct vb_nic *nic, const char *what)
{
    return nic->attach ? vb_attach_refuse(nic->attach, what) : 0;
}

static inline struct vb_doorbells *vb_device_doorbells(struct vb_nic *nic,
                                                       const struct vb_lane *lane)
{
    return nic->attach ? &vb_attach_page(nic, lane)->qps : vb_pu_doorbells(lane->pu);
}

#endif
