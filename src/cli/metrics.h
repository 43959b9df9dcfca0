// SPDX-License-Identifier: Apache-2.0
// Metrics of hulls by HTTP, for Prometheus and others.
#ifndef VB_CLI_METRICS_H
#define VB_CLI_METRICS_H

#include "hull/hull.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_METRICS_WHERE = 160,
};

struct vb_metrics_server;

// Serves /metrics at "PORT", "IP:PORT", "[IP]:PORT" or a path from / on. An address that is not the
// machine's own is refused unless `anywhere`. 0 or a negative errno, with words; the hulls must
// outlive it.
int vb_metrics_start(const char *at, bool anywhere, struct vb_hull *const *hulls, uint32_t count,
                     struct vb_metrics_server **server, char error[VB_ERROR_TEXT]);
void vb_metrics_stop(struct vb_metrics_server *server); // NULL: nothing
const char *vb_metrics_where(const struct vb_metrics_server *server);

// ---- metrics_place.c
// A socket that listens, and where. A descriptor or a negative errno, with words. A path is to be
// unlinked at the end.
int vb_metrics_listen(const char *at, bool anywhere, char where[VB_METRICS_WHERE],
                      char error[VB_ERROR_TEXT]);

#endif
