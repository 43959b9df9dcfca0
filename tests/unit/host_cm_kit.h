// SPDX-License-Identifier: Apache-2.0
// Calls of a NIC's communication manager that have to succeed, and events that are due.
#ifndef VB_TESTS_HOST_CM_KIT_H
#define VB_TESTS_HOST_CM_KIT_H

#include "host/cm.h"

#include <stdint.h>

// The next event, which has to come in that time and to be of that kind.
struct vb_cm_event host_cm_wait(struct vb_host_cm *h, enum vb_cm_event_kind kind, int ms);

void host_cm_listen(struct vb_host_cm *h, uint64_t service_id, void *listener);
uint32_t host_cm_connect(struct vb_host_cm *h, const struct vb_cm_request *request);
void host_cm_accept(struct vb_host_cm *h, uint32_t id, const struct vb_cm_answer *answer);
void host_cm_confirm(struct vb_host_cm *h, uint32_t id);
void host_cm_disconnect(struct vb_host_cm *h, uint32_t id);

#endif
