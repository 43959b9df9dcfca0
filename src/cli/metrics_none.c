// SPDX-License-Identifier: Apache-2.0
// Stands for metrics_http.c where libmicrohttpd is not.
#include "cli/metrics.h"

#include <errno.h>
#include <stdio.h>

int vb_metrics_start(const char *at, bool anywhere, struct vb_hull *const *hulls, uint32_t count,
                     struct vb_metrics_server **server, char error[VB_ERROR_TEXT])
{
    (void)anywhere;
    (void)hulls;
    (void)count;
    *server = NULL;
    snprintf(error, VB_ERROR_TEXT,
             "metrics at '%.80s': this verbena was built without "
             "libmicrohttpd",
             at);
    return -EOPNOTSUPP;
}

void vb_metrics_stop(struct vb_metrics_server *server)
{
    (void)server;
}

const char *vb_metrics_where(const struct vb_metrics_server *server)
{
    (void)server;
    return "";
}
