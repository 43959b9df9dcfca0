// SPDX-License-Identifier: Apache-2.0
// CALC: reductions of 64-bit values.
#include "nic/calc.h"

#include "base/bytes.h"
#include "verbena/wqe.h"

bool vb_calc_exists(uint8_t op)
{
    return op >= VB_WQE_CALC_ADD && op <= VB_WQE_CALC_MIN;
}

void vb_calc_begin(struct vb_calc *calc, uint8_t op, const uint8_t *record)
{
    *calc = (struct vb_calc){op, vb_get_be64(record), vb_get_be64(record + 8)};
}

static uint64_t float_add(uint64_t a, uint64_t b)
{
    double x, y;

    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x += y;
    memcpy(&a, &x, sizeof a);
    return a;
}

void vb_calc_add(struct vb_calc *calc, const uint8_t *record)
{
    uint64_t value = vb_get_be64(record);

    switch (calc->op) {
    case VB_WQE_CALC_ADD: calc->value += value; return;
    case VB_WQE_CALC_FLOAT_ADD: calc->value = float_add(calc->value, value); return;
    case VB_WQE_CALC_AND: calc->value &= value; return;
    case VB_WQE_CALC_OR: calc->value |= value; return;
    case VB_WQE_CALC_XOR: calc->value ^= value; return;
    default: break;
    }
    // The tag says where the greatest or the least one was; among equals the first is kept.
    if (calc->op == VB_WQE_CALC_MAX ? value > calc->value : value < calc->value) {
        calc->value = value;
        calc->tag = vb_get_be64(record + 8);
    }
}

void vb_calc_end(const struct vb_calc *calc, uint8_t *record)
{
    vb_put_be64(record, calc->value);
    vb_put_be64(record + 8, calc->tag);
}
