// SPDX-License-Identifier: Apache-2.0
// The option of congestion control.
#ifndef VB_HOST_CONGESTION_H
#define VB_HOST_CONGESTION_H

#include "nic/dcqcn.h"
#include "verbena/nic.h"

// Reads opts->congestion, or the environment's. -EINVAL: opts->error_text says why.
int vb_host_congestion(const struct vb_nic_opts *opts, bool *on, struct vb_dcqcn_params *params);
bool vb_host_congestion_on(const struct vb_nic_opts *opts);

#endif
