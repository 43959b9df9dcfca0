// SPDX-License-Identifier: Apache-2.0
// What a loop would cost on a card: adds 1 to 100 on the NIC's core, without a NIC, and says what a
// round takes; and what it would take if the card kept work queues in its own memory.
#include <verbena/chain.h>
#include <verbena/cost.h>

#include <stdio.h>

enum {
    ROUNDS = 100
};

static struct vb_image *build(char *error)
{
    struct vb_chain *c = vb_chain_begin("sum");
    struct vb_flow *f = vb_flow_begin(c, "W");
    struct vb_var i = vb_flow_var(f, 0), sum = vb_flow_var(f, 0);

    vb_flow_loop(f);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, i, i, 1);
    vb_flow_calc(f, VB_WQE_CALC_ADD, sum, sum, i);
    vb_flow_if_value(f, i, VB_GE, ROUNDS, 64);
    vb_flow_break(f);
    vb_flow_end(f); // of the if
    vb_flow_end(f); // of the loop
    vb_flow_end_program(f);
    return vb_chain_finish(c, error);
}

int main(void)
{
    static const char *const presets[] = {"connectx5-b", "nic-memory"};
    char error[VB_COST_TEXT] = "";
    struct vb_image *image = build(error);

    for (int i = 0; image && i < 2; i++) {
        struct vb_cost_summary s;
        struct vb_cost_preset *preset = vb_cost_preset_named(presets[i], error);
        struct vb_cost *cost =
            preset ? vb_cost_run(image, preset, &(struct vb_cost_opts){.operations = ROUNDS}, error)
                   : NULL;
        if (!cost)
            break;
        vb_cost_summary(cost, &s);
        printf("%s: a round takes %.2f us\n", presets[i], (double)s.operation_ps / 1e6);
        vb_cost_free(cost);
        vb_cost_preset_free(preset);
    }
    if (error[0])
        fprintf(stderr, "chain_price: %s\n", error);
    vb_image_destroy(image);
    return error[0] ? 1 : 0;
}
