// SPDX-License-Identifier: Apache-2.0
// Random programs of statements for tests.
#include "flow_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct vb_image *flow_make_program(struct vb_simflow *w, uint64_t seed,
                                   struct vb_simflow_tally *tally)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_simflow_make(w, seed, tally, error);

    if (!image)
        fail_msg("seed %llu: %s", (unsigned long long)seed, error);
    return image;
}
