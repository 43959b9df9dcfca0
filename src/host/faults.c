// SPDX-License-Identifier: Apache-2.0
// Faults on purpose at run time.
#include "host/device.h"
#include "host/host.h"
#include "host/open.h"
#include "port/faulty.h"

#include <errno.h>

enum vb_fault_wr vb_host_fault_kind(uint8_t wqe_opcode, bool receive)
{
    if (receive)
        return VB_FAULT_WR_RECV;
    switch (wqe_opcode) {
    case VB_WQE_SEND:
    case VB_WQE_SEND_IMM:
    case VB_WQE_SEND_INVAL: return VB_FAULT_WR_SEND;
    case VB_WQE_WRITE:
    case VB_WQE_WRITE_IMM: return VB_FAULT_WR_WRITE;
    case VB_WQE_READ: return VB_FAULT_WR_READ;
    case VB_WQE_ATOMIC_CS:
    case VB_WQE_ATOMIC_FA:
    case VB_WQE_MASKED_CS:
    case VB_WQE_MASKED_FA: return VB_FAULT_WR_ATOMIC;
    default: return VB_FAULT_WR_OTHER;
    }
}

// Those of the unit that a queue pair lives on, which is the one that asks.
static struct vb_faults *rules_for(struct vb_nic *nic, uint32_t qpn)
{
    return vb_faulty_rules(nic->lane[qpn & (nic->lanes - 1)].port);
}

static uint8_t completion(void *ctx, uint32_t qpn, uint8_t wqe_opcode, bool receive)
{
    return (uint8_t)vb_faults_completion(rules_for(ctx, qpn), qpn,
                                         vb_host_fault_kind(wqe_opcode, receive));
}

static bool request(void *ctx, uint32_t qpn)
{
    return vb_faults_qp(rules_for(ctx, qpn), qpn);
}

void vb_host_hook_faults(struct vb_nic *nic)
{
    nic->hooks = (struct vb_dev_hooks){nic, completion, request};
    vb_dev_hook(nic->dev, nic->faulty ? &nic->hooks : NULL);
}

int vb_host_parse_faults(uint32_t lanes, const char *text, struct vb_faults **rules,
                         char *error_text)
{
    for (uint32_t i = 0; i < lanes; i++) {
        int err = vb_faults_parse(text, &rules[i], error_text);
        if (err) {
            while (i-- > 0)
                vb_faults_free(rules[i]);
            return err;
        }
        vb_faults_seed_unit(rules[i], i);
    }
    return 0;
}

int vb_host_wrap_ports(struct vb_nic *nic)
{
    struct vb_port *wrapped[VB_HOST_LANES];

    if (nic->faulty)
        return 0;
    for (uint32_t i = 0; i < nic->lanes; i++) {
        wrapped[i] = vb_host_wrap_port(nic->lane[i].port, NULL);
        if (!wrapped[i]) {
            while (i-- > 0)
                vb_faulty_unwrap(wrapped[i]);
            return -ENOMEM;
        }
    }
    for (uint32_t i = 0; i < nic->lanes; i++)
        nic->lane[i].port = wrapped[i];
    nic->faulty = true;
    return 0;
}

int vb_host_set_faults(struct vb_nic *nic, const char *text, char *error_text)
{
    struct vb_faults *rules[VB_HOST_LANES];
    int err = vb_host_parse_faults(nic->lanes, text, rules, error_text);
    if (err)
        return err;
    if (!nic->faulty && vb_faults_rules(rules[0]) > 0)
        err = vb_host_wrap_ports(nic);
    for (uint32_t i = 0; i < nic->lanes; i++) {
        if (nic->faulty)
            rules[i] = vb_faulty_exchange(nic->lane[i].port, rules[i]);
        vb_faults_free(rules[i]);
    }
    if (nic->dev)
        vb_host_hook_faults(nic);
    return err;
}

int vb_nic_set_faults(struct vb_nic *nic, const char *rules, char *error_text)
{
    if (vb_host_is_foreign(nic))
        return -EPERM;
    vb_host_lock(nic);
    int err = nic->attach ? vb_attach_set_faults(nic->attach, rules, error_text)
                          : vb_host_set_faults(nic, rules, error_text);
    vb_host_unlock(nic);
    return err;
}
