// SPDX-License-Identifier: Apache-2.0
// Presets from anyone: what parses must price a program without overflow, and what does not must
// be refused in one line.
#include "chain/text.h"
#include "verbena/cost.h"

#include <stdlib.h>
#include <string.h>

static const char program[] = "program one\n"
                              "cq c entries 16\n"
                              "queue W loop blocks 8 send_cq c\n"
                              "queue K loop managed_send blocks 4 send_cq c\n"
                              "region d own 256 writable\n"
                              "code W\n"
                              "    read d -> d+64:64\n"
                              "    cas d compare 0 swap 1 -> d+8:8 signaled fence\n"
                              "    wait c 0\n"
                              "    send_en K 1\n"
                              "code K\n"
                              "    write d+128 <- d:128 signaled\n";

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void price(const struct vb_cost_preset *preset)
{
    char error[VB_COST_TEXT];
    struct vb_image *image = vb_asm(program, sizeof program - 1, error);
    if (!image)
        return;
    struct vb_cost *cost =
        vb_cost_run(image, preset, &(struct vb_cost_opts){.connections = 1u << 20}, error);
    if (cost) {
        struct vb_cost_summary s;
        vb_cost_summary(cost, &s);
        require(s.entries == 5 && s.end_ps < UINT64_MAX / 4);
        require(s.parts.fetch_ps + s.parts.wait_ps + s.parts.issue_ps + s.parts.pcie_ps +
                    s.parts.network_ps ==
                s.latency_ps);
        free(vb_cost_text(cost));
    }
    vb_cost_free(cost);
    vb_image_destroy(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[VB_COST_TEXT] = "";
    char *text = malloc(size ? size : 1); // exact, so that the sanitizer guards its end
    if (!text)
        return 0;
    memcpy(text, data, size);
    struct vb_cost_preset *preset = vb_cost_preset_parse(text, size, error);
    free(text);
    if (preset)
        price(preset);
    else
        require(error[0] && !strchr(error, '\n'));
    vb_cost_preset_free(preset);
    return 0;
}
