// SPDX-License-Identifier: Apache-2.0
// CALC: what a work-queue entry with an opmod makes of its operands. Each is a record of 16 bytes,
// a big-endian value and a tag; so is the one result.
#ifndef VB_NIC_CALC_H
#define VB_NIC_CALC_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_CALC_RECORD_BYTES = 16
};

struct vb_calc {
    uint8_t op; // enum vb_wqe_calc
    uint64_t value, tag;
};

bool vb_calc_exists(uint8_t op);
// The first operand begins, each other one is added.
void vb_calc_begin(struct vb_calc *calc, uint8_t op, const uint8_t *record);
void vb_calc_add(struct vb_calc *calc, const uint8_t *record);
void vb_calc_end(const struct vb_calc *calc, uint8_t *record);

#endif
