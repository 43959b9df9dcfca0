// SPDX-License-Identifier: Apache-2.0
// Cross-channel work between two units that run at the same time: nobody who waits is forgotten,
// and nothing that was opened stays undone.
#include "loop_rig.h"

#include "../wait.h"
#include "base/bytes.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum {
    ROUNDS = 8000,
};

struct runner {
    struct loop_rig *rig;
    uint32_t unit;
    atomic_bool *over;
};

static void *run_unit(void *arg)
{
    const struct runner *me = arg;
    struct vb_pu *pu = vb_dev_pu_at(me->rig->dev, me->unit);

    while (!atomic_load(me->over))
        if (vb_pu_poll(pu, 1000) == 0)
            sched_yield();
    return NULL;
}

// The last entry of the ping-pong writes a word, which the test sees.
static void wait_for_word(const struct loop_rig *r, uint32_t offset, uint64_t value)
{
    const uint64_t *word = (const void *)(r->memory + offset);

    WAIT_UNTIL(__atomic_load_n(word, __ATOMIC_ACQUIRE) == value);
}

static void run_both(struct loop_rig *r, struct loop_queue *first)
{
    atomic_bool over = false;
    struct runner runner[2] = {{r, 0, &over}, {r, 1, &over}};
    pthread_t thread[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_unit, &runner[i]), 0);
    loop_doorbell(first);
    wait_for_word(r, 0, 1);
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}

// One opens the other for one entry, and waits until it is done: so each goes to sleep as often as
// there are rounds, and is woken by the other.
static void test_ping_pong(void **state)
{
    struct loop_rig r;
    struct loop_queue *a, *b;

    (void)state;
    loop_open(&r, 2);
    a = loop_queue(&r, &(struct loop_opts){.blocks = 1 << 15});
    b = loop_queue(&r, &(struct loop_opts){.unit = 1, .managed = true, .blocks = 1});
    loop_put(b, loop_count_up(&r, 64));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        loop_put(a, loop_enable(b, i + 1));
        loop_put(a, loop_wait(&b->cq, i));
        loop_put(a, loop_count_up(&r, 128));
    }
    loop_put(a, loop_count_up(&r, 0));
    run_both(&r, a);
    assert_int_equal(loop_word(&r, 64), ROUNDS);
    assert_int_equal(loop_word(&r, 128), ROUNDS);
    loop_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ping_pong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
