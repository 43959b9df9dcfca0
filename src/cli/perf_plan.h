// SPDX-License-Identifier: Apache-2.0
// Plans: what may be measured, by which names, and how a plan travels to the other side.
#ifndef VB_CLI_PERF_PLAN_H
#define VB_CLI_PERF_PLAN_H

#include "cli/perf.h"
#include "cli/perf_control.h"

const char *vb_perf_op_name(enum vb_perf_op op);
const char *vb_perf_port_name(enum vb_perf_port port);
const char *vb_perf_service_name(enum vb_service service);
const char *vb_perf_target_name(enum vb_perf_target target);
const char *vb_perf_via_name(enum vb_perf_via via);
const char *vb_perf_collision_name(enum vb_perf_collision collision);
// False: there is no such name.
bool vb_perf_op_find(const char *name, enum vb_perf_op *op);
bool vb_perf_service_find(const char *name, enum vb_service *service);
bool vb_perf_target_find(const char *name, enum vb_perf_target *target);
bool vb_perf_via_find(const char *name, enum vb_perf_via *via);
bool vb_perf_collision_find(const char *name, enum vb_perf_collision *collision);

static inline bool vb_perf_is_atomic(const struct vb_perf_plan *plan)
{
    return plan->op == VB_PERF_CAS || plan->op == VB_PERF_FADD;
}

// The NICs of the idle measurement have read a little before they rest.
static inline bool vb_perf_is_read(const struct vb_perf_plan *plan)
{
    return plan->op == VB_PERF_READ || plan->op == VB_PERF_IDLE;
}

// Whether the target posts receives for it.
static inline bool vb_perf_is_received(const struct vb_perf_plan *plan)
{
    return plan->op == VB_PERF_SEND || plan->op == VB_PERF_WRITE_IMM;
}

// Whether a get goes this way, too.
static inline bool vb_perf_goes(const struct vb_perf_plan *plan, unsigned via)
{
    bool other = via == (plan->list ? VB_PERF_VIA_FARM : VB_PERF_VIA_CHASE);
    return plan->op == VB_PERF_GET && (plan->via == VB_PERF_VIA_ALL || plan->via == via) && !other;
}

// Whether messages may be lost: a completion then says only that one was sent.
static inline bool vb_perf_is_lossy(const struct vb_perf_plan *plan)
{
    return plan->service != VB_SERVICE_RC;
}

// NULL if the plan is within limits, else what is wrong with it; for plans from strangers too.
const char *vb_perf_plan_flaw(const struct vb_perf_plan *plan);

void vb_perf_plan_put(struct vb_control_msg *msg, const struct vb_perf_plan *plan);
// What is no plan at all comes out as one with a flaw.
void vb_perf_plan_get(struct vb_control_msg *msg, struct vb_perf_plan *plan);

#endif
