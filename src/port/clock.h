// SPDX-License-Identifier: Apache-2.0
// The clock of the ports: monotonic nanoseconds.
#ifndef VB_PORT_CLOCK_H
#define VB_PORT_CLOCK_H

#include <stdint.h>

uint64_t vb_clock_ns(void);

#endif
