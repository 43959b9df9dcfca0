// SPDX-License-Identifier: Apache-2.0
// Timers: order, lazy re-arming, disarming, removal, and a random walk beside a plain model.
#include "base/prng.h"
#include "fresh_seed.h"
#include "nic/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void init(struct vb_timer *timers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        timers[i] = (struct vb_timer){.deadline_ns = VB_TIMER_NEVER};
}

static void test_timers_fire_in_order(void **state)
{
    (void)state;
    static const uint64_t when[] = {50, 10, 40, 20, 30, 20};
    struct vb_timers t = {0};
    struct vb_timer timer[6];
    init(timer, 6);
    assert_int_equal(vb_timers_reserve(&t, 6), 0);
    assert_true(vb_timers_next(&t) == VB_TIMER_NEVER);
    for (uint32_t i = 0; i < 6; i++)
        vb_timer_arm(&t, &timer[i], when[i]);

    assert_true(vb_timers_next(&t) == 10);
    assert_null(vb_timers_expire(&t, 9));
    assert_ptr_equal(vb_timers_expire(&t, 10), &timer[1]);
    assert_true(timer[1].deadline_ns == VB_TIMER_NEVER);
    assert_null(vb_timers_expire(&t, 10));
    uint64_t last = 0;
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(vb_timers_next(&t) >= last);
        last = vb_timers_next(&t);
        assert_non_null(vb_timers_expire(&t, last));
    }
    assert_true(last == 50);
    assert_null(vb_timers_expire(&t, UINT64_MAX - 1));
    vb_timers_fini(&t);
}

static void test_rearming_later_waits(void **state)
{
    (void)state;
    struct vb_timers t = {0};
    struct vb_timer timer[2];
    init(timer, 2);
    assert_int_equal(vb_timers_reserve(&t, 2), 0);
    vb_timer_arm(&t, &timer[0], 10);
    vb_timer_arm(&t, &timer[1], 15);
    vb_timer_arm(&t, &timer[0], 20);
    // The bound may be early, never late.
    assert_true(vb_timers_next(&t) <= 15);
    assert_null(vb_timers_expire(&t, 14));
    assert_true(vb_timers_next(&t) == 15);
    assert_ptr_equal(vb_timers_expire(&t, 15), &timer[1]);
    assert_null(vb_timers_expire(&t, 19));
    assert_ptr_equal(vb_timers_expire(&t, 20), &timer[0]);
    vb_timers_fini(&t);
}

static void test_rearming_earlier_fires_earlier(void **state)
{
    (void)state;
    struct vb_timers t = {0};
    struct vb_timer timer[3];
    init(timer, 3);
    assert_int_equal(vb_timers_reserve(&t, 3), 0);
    vb_timer_arm(&t, &timer[0], 10);
    vb_timer_arm(&t, &timer[1], 20);
    vb_timer_arm(&t, &timer[2], 30);
    vb_timer_arm(&t, &timer[2], 5);
    assert_true(vb_timers_next(&t) == 5);
    assert_ptr_equal(vb_timers_expire(&t, 5), &timer[2]);
    // Later and then earlier again, while the heap still has the first time.
    vb_timer_arm(&t, &timer[1], 100);
    vb_timer_arm(&t, &timer[1], 7);
    assert_ptr_equal(vb_timers_expire(&t, 7), &timer[1]);
    vb_timers_fini(&t);
}

static void test_disarmed_timers_do_not_fire(void **state)
{
    (void)state;
    struct vb_timers t = {0};
    struct vb_timer timer[3];
    init(timer, 3);
    assert_int_equal(vb_timers_reserve(&t, 3), 0);
    for (uint32_t i = 0; i < 3; i++)
        vb_timer_arm(&t, &timer[i], 10 * (i + 1));
    vb_timer_disarm(&timer[0]);
    assert_null(vb_timers_expire(&t, 19));
    assert_ptr_equal(vb_timers_expire(&t, 100), &timer[1]);
    vb_timer_disarm(&timer[2]);
    vb_timer_arm(&t, &timer[2], 40); // armed again before the heap noticed
    assert_null(vb_timers_expire(&t, 39));
    assert_ptr_equal(vb_timers_expire(&t, 40), &timer[2]);
    assert_true(vb_timers_next(&t) == VB_TIMER_NEVER);
    vb_timers_fini(&t);
}

static void test_removal_leaves_the_others(void **state)
{
    (void)state;
    enum {
        COUNT = 20
    };
    struct vb_timer timer[COUNT];
    for (uint32_t gone = 0; gone < COUNT; gone++) {
        struct vb_timers t = {0};
        init(timer, COUNT);
        assert_int_equal(vb_timers_reserve(&t, COUNT), 0);
        for (uint32_t i = 0; i < COUNT; i++)
            vb_timer_arm(&t, &timer[i], (i * 13) % COUNT);
        vb_timer_remove(&t, &timer[gone]);
        vb_timer_remove(&t, &timer[gone]); // once more does nothing
        for (uint32_t now = 0; now < COUNT; now++) {
            struct vb_timer *due = vb_timers_expire(&t, now);
            if ((gone * 13) % COUNT == now)
                assert_null(due);
            else
                assert_true(due && ((uint32_t)(due - timer) * 13) % COUNT == now);
        }
        assert_int_equal(t.count, 0);
        vb_timers_fini(&t);
    }
}

static void test_room_grows(void **state)
{
    (void)state;
    struct vb_timers t = {0};
    static struct vb_timer timer[1000];
    init(timer, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(vb_timers_reserve(&t, i + 1), 0);
        assert_true(t.room >= i + 1);
        vb_timer_arm(&t, &timer[i], 1000 - i);
    }
    assert_int_equal(vb_timers_reserve(&t, 1), 0);
    for (uint32_t i = 1000; i-- > 0;)
        assert_ptr_equal(vb_timers_expire(&t, 1000), &timer[i]);
    vb_timers_fini(&t);
}

// Everything due at `now` fires, nothing else does.
static void expire_all(struct vb_timers *t, struct vb_timer *timer, uint64_t *model, uint32_t count,
                       uint64_t now)
{
    struct vb_timer *due;
    while ((due = vb_timers_expire(t, now))) {
        uint32_t i = (uint32_t)(due - timer);
        assert_true(i < count && model[i] <= now);
        model[i] = VB_TIMER_NEVER;
    }
    for (uint32_t i = 0; i < count; i++) {
        assert_true(model[i] == VB_TIMER_NEVER || model[i] > now);
        assert_true(model[i] >= vb_timers_next(t));
    }
    assert_true(vb_timers_next(t) > now);
}

static void test_random_walk_matches_the_model(void **state)
{
    (void)state;
    enum {
        COUNT = 40
    };
    struct vb_prng r = {.state = fresh_seed()};
    struct vb_timers t = {0};
    struct vb_timer timer[COUNT];
    uint64_t model[COUNT], now = 0;
    init(timer, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        model[i] = VB_TIMER_NEVER;
    assert_int_equal(vb_timers_reserve(&t, COUNT), 0);
    for (uint32_t round = 0; round < 50000; round++) {
        uint32_t i = (uint32_t)vb_prng_below(&r, COUNT);
        switch (vb_prng_below(&r, 8)) {
        case 0:
            vb_timer_disarm(&timer[i]);
            model[i] = VB_TIMER_NEVER;
            break;
        case 1:
            vb_timer_remove(&t, &timer[i]);
            model[i] = VB_TIMER_NEVER;
            break;
        case 2:
            now += vb_prng_below(&r, 20);
            expire_all(&t, timer, model, COUNT, now);
            break;
        default:
            model[i] = now + 1 + vb_prng_below(&r, 100);
            vb_timer_arm(&t, &timer[i], model[i]);
            break;
        }
    }
    vb_timers_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers_fire_in_order),
        cmocka_unit_test(test_rearming_later_waits),
        cmocka_unit_test(test_rearming_earlier_fires_earlier),
        cmocka_unit_test(test_disarmed_timers_do_not_fire),
        cmocka_unit_test(test_removal_leaves_the_others),
        cmocka_unit_test(test_room_grows),
        cmocka_unit_test(test_random_walk_matches_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
