// SPDX-License-Identifier: Apache-2.0
// What one executed entry of a loop costs the core, by kind: a ring of equal entries, opened for
// many rounds. entry_cost KIND: run it under `valgrind --tool=callgrind --toggle-collect=exchange`.
#include "chain/code.h"
#include "chain/image.h"
#include "chain/machine.h"

#include <stdio.h>
#include <string.h>

enum {
    BLOCKS = 16,
    ENTRIES = 32752 // a queue is opened by at most 32,767
};

struct kind {
    const char *name;
    struct vb_code code;
    uint32_t parts; // data segments, of `bytes` each
    uint32_t bytes;
    bool remote;
};

static const struct kind kinds[] = {
    {"nop", {.opcode = VB_WQE_NOP, .ds = 4}, 0, 0, false},
    {"wait", {.opcode = VB_WQE_WAIT, .index = 0xffffff}, 0, 0, false},
    {"send_en", {.opcode = VB_WQE_SEND_EN}, 0, 0, false},
    {"read8", {.opcode = VB_WQE_READ}, 1, 8, true},
    {"read_bytes", {.opcode = VB_WQE_READ}, 2, 1, true},
    {"write8", {.opcode = VB_WQE_WRITE}, 1, 8, true},
    {"cas", {.opcode = VB_WQE_ATOMIC_CS}, 1, 8, true},
    {"fadd",
     {.opcode = VB_WQE_MASKED_FA, .opmod = VB_WQE_OPMOD_MASKED8, .swap_add = 1},
     1,
     8,
     true},
    {"add", {.opcode = VB_WQE_WRITE, .opmod = VB_WQE_CALC_ADD}, 2, 16, true},
    {"signaled", {.opcode = VB_WQE_NOP, .ds = 4, .fm_ce_se = VB_WQE_CE_ALWAYS}, 0, 0, false},
};

static void reloc(struct vb_image *image, enum vb_reloc_kind kind, uint32_t at, struct vb_spot to)
{
    vb_image_add_reloc(image, &(struct vb_reloc){kind, {VB_IN_SEND, 0, at}, to});
}

static void add_entry(struct vb_image *image, const struct kind *k, uint32_t block)
{
    struct vb_code code = k->code;
    const struct vb_spot data = {VB_IN_DATA, 0, 0};
    uint32_t at = block * VB_WQEBB_BYTES, len;

    code.num_sge = k->parts;
    for (uint32_t i = 0; i < k->parts; i++)
        code.sge[i].len = k->bytes;
    vb_code_write(image->queue[0].code + at, &code, true);
    if (k->remote) {
        reloc(image, VB_RELOC_ADDR, at + 16, data);
        reloc(image, VB_RELOC_KEY, at + 24, data);
    }
    for (uint32_t i = 0; i < k->parts; i++) {
        uint32_t seg = at + (uint32_t)vb_code_field(&code, VB_FIELD_LEN, i, &len);
        reloc(image, VB_RELOC_KEY, seg + 4, data);
        reloc(image, VB_RELOC_ADDR, seg + 8, (struct vb_spot){VB_IN_DATA, 0, 64 + 16 * i});
    }
    if (code.opcode == VB_WQE_WAIT)
        reloc(image, VB_RELOC_CQN, at + 28, (struct vb_spot){.index = 0});
    if (code.opcode == VB_WQE_SEND_EN)
        reloc(image, VB_RELOC_QPN, at + 28, (struct vb_spot){.index = 0});
}

void exchange(struct vb_machine *m);

__attribute__((noinline)) void exchange(struct vb_machine *m)
{
    vb_machine_poll(m);
}

static int measure(const struct kind *k)
{
    char error[VB_IMAGE_TEXT];
    struct vb_image *image = vb_image_create(k->name);
    struct vb_image_queue queue = {.name = "W",
                                   .kind = VB_QUEUE_LOOP,
                                   .managed_send = true,
                                   .blocks = BLOCKS,
                                   .filled = BLOCKS,
                                   .open = ENTRIES};

    vb_image_add_cq(image, "c", 16);
    vb_image_add_queue(image, &queue);
    vb_image_add_region(image,
                        &(struct vb_image_region){
                            .name = "data", .kind = VB_REGION_OWN, .bytes = 256, .writable = true});
    for (uint32_t i = 0; i < BLOCKS; i++)
        add_entry(image, k, i);
    struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){0}, error);
    if (!m) {
        fprintf(stderr, "entry_cost: %s\n", error);
        return 1;
    }
    exchange(m);
    printf("%s: %u entries\n", k->name, ENTRIES);
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return 0;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, argv[1]) == 0)
            return measure(&kinds[i]);
    fprintf(stderr, "entry_cost: which kind?");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        fprintf(stderr, " %s", kinds[i].name);
    fprintf(stderr, "\n");
    return 2;
}
