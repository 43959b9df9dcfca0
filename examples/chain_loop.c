// SPDX-License-Identifier: Apache-2.0
// A loop that ends by itself: adds 1 to 100, on the NIC. Entries go round in their ring; the
// program has the same size whether it counts to ten or to a million.
#include <verbena/chain.h>
#include <verbena/nic.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static struct vb_image *build(uint64_t *sum_at, char *error)
{
    struct vb_chain *c = vb_chain_begin("sum");
    struct vb_flow *f = vb_flow_begin(c, "W");
    struct vb_var i = vb_flow_var(f, 0), sum = vb_flow_var(f, 0);

    vb_flow_loop(f);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, i, i, 1);
    vb_flow_calc(f, VB_WQE_CALC_ADD, sum, sum, i);
    vb_flow_if_value(f, i, VB_GE, 100, 64);
    vb_flow_break(f);
    vb_flow_end(f); // of the if
    vb_flow_end(f); // of the loop
    *sum_at = vb_flow_place(f, sum).offset;
    vb_flow_end_program(f);
    return vb_chain_finish(c, error);
}

// Variables are big-endian, as work-queue entries are.
static uint64_t value_of(const volatile uint8_t *be)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | be[i];
    return value;
}

int main(int argc, char **argv)
{
    char error[200];
    uint64_t sum_at;
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_loaded *program;
    struct vb_nic_opts opts = {.address = argc > 1 ? argv[1] : NULL, .error_text = error};
    struct vb_image *image = build(&sum_at, error);
    if (!image || vb_nic_open(&opts, &nic) != 0 || vb_pd_alloc(nic, &pd) != 0 ||
        vb_chain_load(nic, image, &(struct vb_load_opts){.pd = pd}, &program, error) != 0) {
        fprintf(stderr, "chain_loop: %s\n", error);
        return 1;
    }
    vb_chain_start(program);
    const volatile uint8_t *vars = vb_loaded_data(program, "W_vars");
    while (value_of(vars + sum_at) < 5050)
        vb_nic_progress(nic);
    printf("the NIC says %llu\n", (unsigned long long)value_of(vars + sum_at));
    vb_chain_unload(program);
    vb_image_destroy(image);
    vb_nic_close(nic);
    return 0;
}
