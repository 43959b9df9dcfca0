// SPDX-License-Identifier: Apache-2.0
// Guarded mode: memory that is gone while registered is the application's fault and not our crash.
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PAGE = 4096
};

// Registers a page at end 1 that is then changed by `change`, and lets end 0 use it.
static void use(enum vb_wr_opcode opcode, int change, enum vb_wc_status expect)
{
    setenv("VERBENA_GUARD", "1", 1);
    struct pair p = pair_open(0, 0);
    unsetenv("VERBENA_GUARD");
    uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    struct vb_mr *mr;
    assert_int_equal(vb_mr_reg(p.end[1].pd, page, PAGE,
                               VB_RIGHT_LOCAL_WRITE | VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ,
                               &mr),
                     0);
    pair_connect(&p);
    if (change == 1)
        munmap(page, PAGE);
    else if (change == 2)
        mprotect(page, PAGE, PROT_READ);
    struct pair_end *e = &p.end[0];
    const struct vb_sge sge = {(uintptr_t)e->memory, 64, vb_mr_key(e->mr)};
    const struct vb_send_wr wr = {.wr_id = 9,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = opcode,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)page,
                                  .rkey = vb_mr_key(mr)};
    assert_int_equal(vb_post_send(e->qp, &wr, 1), 1);
    struct vb_wc wc = pair_wait(&p, 0);
    assert_int_equal(wc.wr_id, 9);
    assert_int_equal(wc.status, expect);
    pair_close(&p);
    if (change != 1)
        munmap(page, PAGE);
}

static void test_memory_that_is_there(void **state)
{
    (void)state;
    use(VB_WR_WRITE, 0, VB_WC_OK);
    use(VB_WR_READ, 0, VB_WC_OK);
    use(VB_WR_READ, 2, VB_WC_OK);
}

static void test_memory_that_is_gone(void **state)
{
    (void)state;
    use(VB_WR_WRITE, 1, VB_WC_REMOTE_OPERATION);
    use(VB_WR_READ, 1, VB_WC_REMOTE_OPERATION);
}

static void test_memory_that_became_read_only(void **state)
{
    (void)state;
    use(VB_WR_WRITE, 2, VB_WC_REMOTE_OPERATION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_that_is_there),
        cmocka_unit_test(test_memory_that_is_gone),
        cmocka_unit_test(test_memory_that_became_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
