// SPDX-License-Identifier: Apache-2.0
// What the parts of the driver share.
#ifndef VB_HOST_DRIVER_RINGS_H
#define VB_HOST_DRIVER_RINGS_H

#include "base/bytes.h"
#include "host/driver.h"

static inline void vb_driver_publish(uint32_t *dbrec, uint64_t counter)
{
    __atomic_store_n(dbrec, htobe32((uint32_t)(counter & 0xffff)), __ATOMIC_RELEASE);
}

// A managed queue's record holds more of the counter: a word that was honoured once would not be
// honoured again when its lower half comes round.
static inline void vb_driver_publish_open(uint32_t *dbrec, uint64_t counter)
{
    __atomic_store_n(dbrec, htobe32((uint32_t)counter), __ATOMIC_RELEASE);
}

// Of a managed queue, for the next owner.
static inline void vb_driver_keep(struct vb_driver_qp *qp, uint32_t which, uint64_t counter)
{
    if (qp->deed)
        __atomic_store_n(&qp->deed->pi[which], counter, __ATOMIC_RELEASE);
}

// A completion that is nobody's any more.
static inline void vb_driver_disown(struct vb_cqe *cqe)
{
    cqe->srqn_uidx = 0;
    cqe->sop_drop_qpn &= htobe32(0xff000000);
}

// Bytes that so much inline data takes in an entry.
static inline uint32_t vb_driver_inline_bytes(uint32_t len)
{
    return (4 + len + VB_WQE_SEG_BYTES - 1) & ~(VB_WQE_SEG_BYTES - 1u);
}

#endif
