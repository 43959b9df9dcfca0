// SPDX-License-Identifier: Apache-2.0
// Completion queues: the NIC's half.
#include "nic/completion.h"

#include "base/bytes.h"
#include "base/serial.h"

#include <string.h>

static bool has_room(struct vb_cqc *cq)
{
    if (cq->produced - cq->consumed < cq->entries || cq->ignores_overrun)
        return true;
    uint32_t ci = be32toh(__atomic_load_n(&cq->dbrec[VB_DBREC_CQ_CI], __ATOMIC_ACQUIRE));
    uint64_t consumed = vb_widen24(cq->consumed, ci);
    if (consumed > cq->produced)
        return false; // the consumer claims entries that were never produced
    cq->consumed = consumed;
    return cq->produced - cq->consumed < cq->entries;
}

bool vb_cqc_write(struct vb_cqc *cq, const struct vb_completion *c)
{
    if (cq->overrun || !has_room(cq)) {
        cq->overrun = true;
        return false;
    }
    uint8_t *slot = cq->ring + (cq->produced & (cq->entries - 1)) * VB_CQE_BYTES;
    struct vb_cqe *cqe = (struct vb_cqe *)slot;
    uint8_t owner = (cq->produced & cq->entries) ? 1 : 0;

    memset(cqe, 0, offsetof(struct vb_cqe, op_own));
    cqe->flags_rqpn = htobe32(c->flags_rqpn);
    cqe->srqn_uidx = htobe32(c->srqn);
    cqe->imm_inval_pkey = c->imm;
    cqe->byte_cnt = htobe32(c->bytes);
    cqe->sop_drop_qpn = htobe32((uint32_t)c->wqe_opcode << 24 | c->qpn);
    cqe->wqe_counter = htobe16((uint16_t)c->counter);
    if (c->syndrome != VB_SYN_OK) {
        cqe->syndrome = c->syndrome;
        cqe->vendor_syndrome = c->vendor;
    }
    uint8_t se = c->solicited ? VB_CQE_SE : 0;
    __atomic_store_n(&cqe->op_own, (uint8_t)(c->opcode << 4 | se | (owner ^ 1)), __ATOMIC_RELAXED);
    __atomic_store_n(&cq->produced, cq->produced + 1, __ATOMIC_RELEASE); // others may WAIT for it
    if (c->solicited || c->syndrome != VB_SYN_OK)
        cq->solicited = cq->produced;
    return true;
}

void vb_cqc_publish(struct vb_cqc *cq)
{
    for (; cq->published < cq->produced; cq->published++) {
        uint8_t *slot = cq->ring + (cq->published & (cq->entries - 1)) * VB_CQE_BYTES;
        uint8_t *op_own = slot + offsetof(struct vb_cqe, op_own);
        __atomic_store_n(op_own, *op_own ^ 1, __ATOMIC_RELEASE);
    }
}

static uint32_t arm_word(const struct vb_cqc *cq)
{
    return be32toh(__atomic_load_n(&cq->dbrec[VB_DBREC_CQ_ARM], __ATOMIC_ACQUIRE));
}

void vb_cqc_arm(struct vb_cqc *cq)
{
    uint32_t word = arm_word(cq);

    if (word != cq->armed)
        cq->fired = 0; // which asks for nothing
    cq->armed = word;
}

// The arm word names the consumer's counter: entries from there on count, or only solicited ones
// and errors among them. A word is answered once.
bool vb_cqc_fires(struct vb_cqc *cq)
{
    uint32_t word = arm_word(cq);
    if (word == cq->fired)
        return false;
    uint64_t newest = word & VB_DBREC_ARM_SOLICITED ? cq->solicited : cq->produced;
    // The counter lies behind what was produced, by less than half of its range.
    if (vb_widen24(cq->produced - (1u << 23), word & 0xffffff) >= newest)
        return false;
    cq->fired = word;
    return true;
}
