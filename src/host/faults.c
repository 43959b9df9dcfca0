// SPDX-License-Identifier: Apache-2.0
// Faults on purpose at run time.
#include "host/host.h"
#include "host/open.h"
#include "port/faulty.h"

#include <errno.h>
#include <stdio.h>

static enum vb_fault_wr kind_of(uint8_t wqe_opcode, bool receive)
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

static uint8_t completion(void *ctx, uint32_t qpn, uint8_t wqe_opcode, bool receive)
{
    struct vb_nic *nic = ctx;
    return (uint8_t)vb_faults_completion(vb_faulty_rules(nic->faulty), qpn,
                                         kind_of(wqe_opcode, receive));
}

static bool request(void *ctx, uint32_t qpn)
{
    struct vb_nic *nic = ctx;
    return vb_faults_qp(vb_faulty_rules(nic->faulty), qpn);
}

void vb_host_hook_faults(struct vb_nic *nic)
{
    nic->hooks = (struct vb_dev_hooks){nic, completion, request};
    vb_dev_hook(nic->dev, nic->faulty ? &nic->hooks : NULL);
}

// The port gets its wrapping when the first rules come.
static int wrap(struct vb_nic *nic, const char *rules, char *error_text)
{
    struct vb_faults *faults;
    int err = vb_faults_parse(rules, &faults, error_text);
    if (err)
        return err;
    struct vb_port *faulty = vb_host_wrap_port(nic->lane[0].port, faults);
    if (!faulty) {
        vb_faults_free(faults);
        return -ENOMEM;
    }
    nic->lane[0].port = nic->faulty = faulty;
    vb_host_hook_faults(nic);
    return 0;
}

int vb_nic_set_faults(struct vb_nic *nic, const char *rules, char *error_text)
{
    if (nic->lanes > 1) {
        if (error_text)
            snprintf(error_text, VB_ERROR_TEXT, "faults on purpose need a NIC of one unit");
        return -EINVAL;
    }
    vb_host_lock(nic);
    int err =
        nic->faulty ? vb_faulty_set(nic->faulty, rules, error_text) : wrap(nic, rules, error_text);
    vb_host_unlock(nic);
    return err;
}
