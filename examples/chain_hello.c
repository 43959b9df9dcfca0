// SPDX-License-Identifier: Apache-2.0
// The smallest chain: one work-queue entry, which the NIC executes by itself.
#include <verbena/chain.h>
#include <verbena/nic.h>

#include <stdio.h>
#include <stdlib.h>

static struct vb_image *build(char *error)
{
    struct vb_chain *c = vb_chain_begin("hello");
    // A queue that works on this machine's memory; its first entry may run from the start.
    struct vb_chain_queue w = vb_chain_queue(c, "W", &(struct vb_chain_queue_opts){.open = 1});
    struct vb_chain_region out = vb_chain_region(c, "out", VB_CHAIN_OWN, 16, true);
    vb_chain_op(c, w,
                &(struct vb_chain_op){
                    .opcode = VB_WQE_WRITE, .remote = vb_in(out, 0), .data = "hello", .len = 6});
    return vb_chain_finish(c, error);
}

int main(int argc, char **argv)
{
    char error[200];
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_loaded *program;
    struct vb_nic_opts opts = {.address = argc > 1 ? argv[1] : NULL, .error_text = error};
    struct vb_image *image = build(error);
    if (!image || vb_nic_open(&opts, &nic) != 0 || vb_pd_alloc(nic, &pd) != 0 ||
        vb_chain_load(nic, image, &(struct vb_load_opts){.pd = pd}, &program, error) != 0) {
        fprintf(stderr, "chain_hello: %s\n", error);
        return 1;
    }
    vb_chain_start(program);
    const volatile char *out = vb_loaded_data(program, "out");
    while (!out[4]) // the NIC writes it
        vb_nic_progress(nic);
    printf("%s\n", (const char *)vb_loaded_data(program, "out"));
    vb_chain_unload(program);
    vb_image_destroy(image);
    vb_nic_close(nic);
    return 0;
}
