// SPDX-License-Identifier: Apache-2.0
// What a communication manager tells of itself to who inspects it.
#ifndef VB_CM_FACTS_H
#define VB_CM_FACTS_H

#include "cm/cm.h"

struct vb_cm_facts {
    uint32_t number; // of its place
    bool listens;    // or is a connection or a lookup:
    bool active, sidr;
    enum vb_cm_state state;
    uint32_t id, peer_id, qpn, peer_qpn; // 0: not known
    uint8_t transport;                   // enum vb_cm_transport
    uint64_t service_id;
    struct vb_ip local, peer;
    uint16_t port, peer_port; // of rdma_cm; 0: none
};

// Copies what is in use from place `*at` on, up to `room`, and moves `*at` behind it. Returns how
// many.
uint32_t vb_cm_facts(const struct vb_cm *cm, uint32_t *at, struct vb_cm_facts *facts,
                     uint32_t room);

#endif
