// SPDX-License-Identifier: Apache-2.0
// Plans: names, limits, and the way to the other side.
#include "cli/perf_plan.h"

#include "cli/perf_pattern.h"

#include <assert.h>
#include <string.h>

enum {
    MEMORY_MAX_MB = 2048,
    QUEUE_MAX = 1 << 22,          // entries of a completion queue
    SERVICES = VB_SERVICE_UD + 1, // those that perf knows
};

static const char *const op_names[] = {"read", "write", "write_imm", "send", "cas",
                                       "fadd", "get",   "idle",      "raw"};
static const char *const port_names[] = {"udp", "shm"};
static const char *const service_names[] = {"rc", "uc", "ud"};
static const char *const target_names[] = {"poll", "spin", "sleep", "compute"};

static const char *const via_names[] = {"chain",        "farm", "chase", "rpc",
                                        "rpc-blocking", "read", "all"};
static const char *const collision_names[] = {"none", "seq", "par"};

static_assert(sizeof op_names / sizeof *op_names == VB_PERF_OPS, "one name each");
static_assert(sizeof port_names / sizeof *port_names == VB_PERF_PORTS, "one name each");
static_assert(sizeof service_names / sizeof *service_names == SERVICES, "one name each");
static_assert(sizeof target_names / sizeof *target_names == VB_PERF_TARGETS, "one name each");
static_assert(sizeof via_names / sizeof *via_names == VB_PERF_VIA_ALL + 1, "one name each");
static_assert(sizeof collision_names / sizeof *collision_names == VB_PERF_COLLISIONS, "likewise");

const char *vb_perf_op_name(enum vb_perf_op op)
{
    return op < VB_PERF_OPS ? op_names[op] : "unknown";
}

const char *vb_perf_port_name(enum vb_perf_port port)
{
    return port < VB_PERF_PORTS ? port_names[port] : "unknown";
}

const char *vb_perf_service_name(enum vb_service service)
{
    return (unsigned)service < SERVICES ? service_names[service] : "unknown";
}

const char *vb_perf_target_name(enum vb_perf_target target)
{
    return target < VB_PERF_TARGETS ? target_names[target] : "unknown";
}

const char *vb_perf_via_name(enum vb_perf_via via)
{
    return via <= VB_PERF_VIA_ALL ? via_names[via] : "unknown";
}

const char *vb_perf_collision_name(enum vb_perf_collision collision)
{
    return collision < VB_PERF_COLLISIONS ? collision_names[collision] : "unknown";
}

// The index of a name, `count` if there is none.
static unsigned find(const char *const *names, unsigned count, const char *name)
{
    unsigned i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i;
}

bool vb_perf_op_find(const char *name, enum vb_perf_op *op)
{
    *op = (enum vb_perf_op)find(op_names, VB_PERF_OPS, name);
    return *op < VB_PERF_OPS;
}

bool vb_perf_service_find(const char *name, enum vb_service *service)
{
    *service = (enum vb_service)find(service_names, SERVICES, name);
    return (unsigned)*service < SERVICES;
}

bool vb_perf_target_find(const char *name, enum vb_perf_target *target)
{
    *target = (enum vb_perf_target)find(target_names, VB_PERF_TARGETS, name);
    return *target < VB_PERF_TARGETS;
}

bool vb_perf_via_find(const char *name, enum vb_perf_via *via)
{
    *via = (enum vb_perf_via)find(via_names, VB_PERF_VIA_ALL + 1, name);
    return *via <= VB_PERF_VIA_ALL;
}

bool vb_perf_collision_find(const char *name, enum vb_perf_collision *collision)
{
    *collision = (enum vb_perf_collision)find(collision_names, VB_PERF_COLLISIONS, name);
    return *collision < VB_PERF_COLLISIONS;
}

static const char *service_flaw(const struct vb_perf_plan *p)
{
    bool sends = p->op == VB_PERF_SEND;
    bool writes = p->op == VB_PERF_WRITE || p->op == VB_PERF_WRITE_IMM;
    if ((unsigned)p->service >= SERVICES)
        return "--service must be rc, uc or ud";
    if (p->service == VB_SERVICE_UC && !sends && !writes)
        return "--service uc takes send, write and write_imm; the others need rc";
    if (p->service == VB_SERVICE_UD && !sends)
        return "--service ud takes only send; uc and rc do more";
    if (p->service == VB_SERVICE_UD && p->size > p->mtu)
        return "--size must be at most the MTU for --service ud: a datagram is one packet";
    return NULL;
}

static const char *target_flaw(const struct vb_perf_plan *p)
{
    bool one_sided = p->op == VB_PERF_READ || p->op == VB_PERF_WRITE || vb_perf_is_atomic(p);
    if (p->target >= VB_PERF_TARGETS)
        return "--target must be poll, spin, sleep or compute";
    if (p->target != VB_PERF_POLLS && !one_sided)
        return "--target is for read, write, cas and fadd; others need a target that polls";
    return NULL;
}

static const char *get_flaw(const struct vb_perf_plan *p)
{
    if (p->via > VB_PERF_VIA_ALL)
        return "--via must be chain, farm, chase, rpc, rpc-blocking, read or all";
    if (p->collision >= VB_PERF_COLLISIONS)
        return "--collision must be none, seq or par";
    if (p->list > VB_PERF_LIST_MAX || p->breaks > 1)
        return "--list must be 1 to 8";
    if (p->op != VB_PERF_GET)
        return NULL;
    if (p->breaks && !p->list)
        return "--break is for --list";
    if (p->list && p->collision != VB_PERF_NO_COLLISION)
        return "--collision is for keys of a hash table, not for --list";
    if (p->via == VB_PERF_VIA_FARM && p->list)
        return "--via farm is for a hash table; a list is read by --via chase";
    if (p->via == VB_PERF_VIA_CHASE && !p->list)
        return "--via chase is for --list";
    if (p->size > VB_PERF_GET_MAX)
        return "--size must be at most 64K for get";
    if (p->list && p->depth > VB_PERF_LIST_DEPTH_MAX)
        return "--depth must be at most 64 for --list";
    if (p->depth > VB_PERF_GET_DEPTH_MAX)
        return "--depth must be at most 128 for get";
    return p->qps > 1 ? "--qps must be 1 for get" : NULL;
}

static const char *memory_flaw(const struct vb_perf_plan *p)
{
    struct vb_perf_layout l = vb_perf_layout_of(p);
    // A slot must not be used again while its operation may still be in flight.
    if (p->depth >= VB_PERF_VERIFY_EVERY * (l.slots - 1))
        return "--depth must be below 1000 for messages as long as these";
    if (p->op != VB_PERF_RAW && l.total >> 20 > MEMORY_MAX_MB)
        return "--size times --qps needs more than 2G of memory";
    if ((uint64_t)p->active * p->depth > QUEUE_MAX ||
        (uint64_t)p->active * vb_perf_recv_depth(p) > QUEUE_MAX)
        return "--qps times --depth needs a completion queue of more than 4194304 entries";
    return NULL;
}

const char *vb_perf_plan_flaw(const struct vb_perf_plan *p)
{
    if (p->op >= VB_PERF_OPS)
        return "no such operation";
    if (p->port >= VB_PERF_PORTS)
        return "no such port";
    if (p->size < 1 || p->size > VB_PERF_SIZE_MAX)
        return "--size must be 1 to 256M";
    if (vb_perf_is_atomic(p) && p->size != VB_PERF_ATOMIC_BYTES)
        return "--size must be 8 for cas and fadd: they work on one word of 8 bytes";
    if (p->op == VB_PERF_RAW && p->port == VB_PERF_UDP && p->size > VB_PERF_RAW_MAX)
        return "--size must be at most 65000 for raw, which sends datagrams";
    if (p->depth < 1 || p->depth > VB_PERF_DEPTH_MAX)
        return "--depth must be 1 to 4096";
    if (p->qps < 1 || p->qps > VB_PERF_QPS_MAX)
        return "--qps must be 1 to 16384";
    if (p->active < 1 || p->active > p->qps)
        return "--active must be 1 to --qps";
    if (p->mtu < 256 || p->mtu > 4096 || (p->mtu & (p->mtu - 1)))
        return "--mtu must be 256, 512, 1024, 2048 or 4096";
    if (p->reads < 1 || p->reads > 16)
        return "--reads must be 1 to 16";
    if (p->raw_size < 1 || p->raw_size > VB_PERF_RAW_MAX)
        return "the echo must be 1 to 65000 bytes long";
    if (p->timeout > 31)
        return "an acknowledgement is waited for at most 4.096 us * 2^31";
    const char *flaw = service_flaw(p);
    if (flaw == NULL)
        flaw = target_flaw(p);
    if (flaw == NULL)
        flaw = get_flaw(p);
    return flaw != NULL ? flaw : memory_flaw(p);
}

void vb_perf_plan_put(struct vb_control_msg *msg, const struct vb_perf_plan *plan)
{
    uint64_t fields[] = {plan->op,        plan->service, plan->port,   plan->target, plan->via,
                         plan->collision, plan->list,    plan->breaks, plan->size,   plan->depth,
                         plan->qps,       plan->active,  plan->mtu,    plan->reads,  plan->raw_size,
                         plan->timeout,   plan->seed};
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        vb_control_put(msg, fields[i]);
}

static uint32_t get_number(struct vb_control_msg *msg)
{
    uint64_t value = vb_control_get(msg);
    return value > INT32_MAX ? INT32_MAX : (uint32_t)value;
}

void vb_perf_plan_get(struct vb_control_msg *msg, struct vb_perf_plan *plan)
{
    uint32_t *fields[] = {&plan->list,     &plan->breaks, &plan->size, &plan->depth,
                          &plan->qps,      &plan->active, &plan->mtu,  &plan->reads,
                          &plan->raw_size, &plan->timeout};
    plan->op = (enum vb_perf_op)get_number(msg);
    plan->service = (enum vb_service)get_number(msg);
    plan->port = (enum vb_perf_port)get_number(msg);
    plan->target = (enum vb_perf_target)get_number(msg);
    plan->via = (enum vb_perf_via)get_number(msg);
    plan->collision = (enum vb_perf_collision)get_number(msg);
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = get_number(msg);
    plan->seed = vb_control_get(msg);
}
