// SPDX-License-Identifier: Apache-2.0
// An application at a hull with two queue pairs that are connected with each other, for tests.
#ifndef VB_TESTS_HULL_APP_H
#define VB_TESTS_HULL_APP_H

#include "duo.h"
#include "hull_kit.h"

struct hull_app {
    struct duo_end e; // its memory is the hull's
    struct vb_qp *qp[2];
};

void hull_app_open(struct hull_app *a, const struct vb_hull *hull);
void hull_app_close(struct hull_app *a);
// Anew, with short attempts: after a failure, or for one that is to come.
void hull_app_join(struct hull_app *a);
// A request of 64 bytes from the first queue pair to the second, and how it ended.
enum vb_wc_status hull_app_do(struct hull_app *a, enum vb_wr_opcode opcode);

#endif
