// SPDX-License-Identifier: Apache-2.0
// What a device can say of its objects to who inspects it. All of this needs the units at rest; an
// object's facts are a copy, so that they can be told when the units run again.
#ifndef VB_NIC_FACTS_H
#define VB_NIC_FACTS_H

#include "nic/dev.h"

#include <stdbool.h>
#include <stdint.h>

struct vb_count_facts {
    uint32_t pds, cqs, qps, mrs, mws, srqs;
};

struct vb_qp_facts {
    uint32_t qpn, dest_qpn, pd;
    enum vb_qp_type type;
    enum vb_qp_state state;
    uint32_t sq_psn, rq_psn; // next to send, and next expected
    uint32_t mtu_bytes;      // 0: not connected yet
    uint32_t send_cqn, recv_cqn;
    uint32_t srqn; // 0: none
    bool connected;
    struct vb_ip remote; // of a connected one
    struct vb_qp_counters count;
};

struct vb_cq_facts {
    uint32_t cqn, entries, users;
    uint64_t produced;
    bool overrun;
};

struct vb_mr_facts {
    uint32_t key, pd;
    uint64_t start, len;
    uint32_t access; // enum vb_access
    bool window;
};

struct vb_pd_facts {
    uint32_t pd, users;
};

struct vb_srq_facts {
    uint32_t srqn, pd, entries, users;
    uint32_t limit;
    bool xrc;
    uint32_t cqn; // of an XRC queue
};

void vb_facts_count(const struct vb_dev *dev, struct vb_count_facts *facts);

// Each fills up to `room` facts from *at on, advances *at past the objects it has told of, and
// returns how many; less than `room`: there are no more. Begin with 0. Between two calls objects
// may come and go; keys move when they do, so all of them are to be taken in one call.
uint32_t vb_facts_qps(const struct vb_dev *dev, uint32_t *at, struct vb_qp_facts *facts,
                      uint32_t room);
uint32_t vb_facts_cqs(const struct vb_dev *dev, uint32_t *at, struct vb_cq_facts *facts,
                      uint32_t room);
uint32_t vb_facts_mrs(const struct vb_dev *dev, uint32_t *at, struct vb_mr_facts *facts,
                      uint32_t room);
uint32_t vb_facts_pds(const struct vb_dev *dev, uint32_t *at, struct vb_pd_facts *facts,
                      uint32_t room);
uint32_t vb_facts_srqs(const struct vb_dev *dev, uint32_t *at, struct vb_srq_facts *facts,
                       uint32_t room);

#endif
