// SPDX-License-Identifier: Apache-2.0
// An application that is a service of a hull, for tests.
#ifndef VB_TESTS_SERVICE_KIT_H
#define VB_TESTS_SERVICE_KIT_H

#include "hull_kit.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SERVICE_BYTES = 1 << 16,
    SERVICE_DEPTH = 16,
    SERVICE_TAG = 7,
    SERVICE_SRQ_DEPTH = 7, // of eight entries one stays empty
};

// Two queue pairs of one service, connected with each other; the second may take shared receives.
struct service_app {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_channel *channel;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_srq *srq;
    struct vb_qp *qp[2];
    uint8_t *memory; // as keys name it,
    uint8_t *here;   // and where it is
};

// The service "test" of a hull.
int service_try(const struct vb_hull *hull, const char *name, struct vb_nic **nic, char *error);
struct vb_nic *service_open(const struct vb_hull *hull, const char *name);
void service_join(const struct service_app *a);
// Everything under one tag, the queue pairs connected with each other.
void service_make(struct service_app *a, const struct vb_hull *hull, bool shared);
// What was made, found by its tag.
void service_find(struct service_app *a, const struct vb_hull *hull);
// Detaches.
void service_leave(struct service_app *a, struct vb_hull *hull);
// The process changes: one goes, the next comes.
void service_change(struct service_app *a, struct vb_hull *hull);
// Releases it, and closes the hull: nothing is left.
void service_end(struct service_app *a, struct vb_hull *hull);
// A READ of the second half into the first.
struct vb_send_wr service_request(const struct service_app *a, const struct vb_sge *sge,
                                  uint64_t wr_id);
void service_read(const struct service_app *a, struct vb_qp *qp, uint64_t wr_id);
void service_recv(struct vb_qp *qp, uint64_t wr_id);
// An empty message with a number.
void service_send(struct vb_qp *qp, uint64_t wr_id);
// Until the queue has had so many completions.
void service_await(struct vb_cq *cq, uint64_t count);

#endif
