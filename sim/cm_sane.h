// SPDX-License-Identifier: Apache-2.0
// The invariants of a communication manager, for the simulator, unit tests and fuzzers.
#ifndef VB_SIM_CM_SANE_H
#define VB_SIM_CM_SANE_H

#include "cm/cm.h"

// Between two calls: ids, timers, lists, backlogs and counts agree.
bool vb_cmsane(const struct vb_cm *cm);

#endif
