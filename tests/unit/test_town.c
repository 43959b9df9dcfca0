// SPDX-License-Identifier: Apache-2.0
// Eight servers and sixteen clients on one address, each with a manager of its own: whoever is
// killed or stopped, the others connect within a second, and always to the one they asked for.
#include "pair.h"
#include "runtime_dir.h"
#include "town.h"
#include "udp_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    KILLED = 3,
    STOPPED = 6,
    LAST = TOWN_CLIENTS - 1, // the newest: what is nobody's comes to it
    PATIENCE_S = 60,
};

static const char *here; // the address

static unsigned refusals(const struct town *t)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        sum += atomic_load(&t->client[i].refused);
    return sum;
}

static unsigned connections(const struct town *t)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        sum += atomic_load(&t->client[i].made);
    return sum;
}

static unsigned served_by_killed(const struct town *t)
{
    return atomic_load(&t->server[KILLED].served);
}

static unsigned served_by_stopped(const struct town *t)
{
    return atomic_load(&t->server[STOPPED].served);
}

// All are well, and in a second there are more of these, or in some where the machine is busy.
static void expect_more(struct town *t, unsigned (*count)(const struct town *))
{
    unsigned before = count(t);
    for (unsigned i = 0; i < PATIENCE_S && count(t) == before; i++)
        town_expect_well(t, 1000, 0);
    assert_true(count(t) > before);
}

static void print(const struct town *t, const char *what)
{
    uint64_t longest_ns = 0;
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        if (atomic_load(&t->client[i].longest_ns) > longest_ns)
            longest_ns = atomic_load(&t->client[i].longest_ns);
    printf("%s: %u connections, %u refused, the slowest took %lu ms\n", what, connections(t),
           refusals(t), (unsigned long)(longest_ns / 1000000));
}

static void test_a_town(void **state)
{
    (void)state;
    struct town *t = town_start(here);
    town_expect_well(t, 1000, 0);
    print(t, "quiet");
    assert_int_equal(refusals(t), 0);

    town_kill_server(t, KILLED);
    expect_more(t, refusals); // nobody has its port
    print(t, "one killed");
    town_start_server(t, KILLED);
    expect_more(t, served_by_killed);

    town_stop_server(t, STOPPED);
    assert_int_equal(kill(t->client[LAST].pid, SIGSTOP), 0);
    town_expect_well(t, 1500, 1u << LAST);
    print(t, "two stopped");
    town_kill_server(t, KILLED);
    town_expect_well(t, 1000, 1u << LAST);
    print(t, "and one killed");
    assert_int_equal(kill(t->client[LAST].pid, SIGCONT), 0);
    town_start_server(t, KILLED);
    town_continue_server(t, STOPPED);
    unsigned made = atomic_load(&t->client[LAST].made); // it has waited long for some answer
    for (unsigned i = 0; i < 10 * PATIENCE_S && atomic_load(&t->client[LAST].made) == made; i++)
        town_expect_well(t, 100, 1u << LAST);
    expect_more(t, served_by_stopped);
    print(t, "all again");
    town_end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_town)};
    const char *why = udp_kit_enter_net();
    static char text[16];

    pair_address(0, text);
    here = why ? text : "127.0.0.1";
    int failed = cmocka_run_group_tests(tests, runtime_dir_make, runtime_dir_remove);
    here = "::1";
    if (why != NULL)
        printf("Skipped the rest: %s.\n", why);
    else
        failed += cmocka_run_group_tests(tests, runtime_dir_make, runtime_dir_remove);
    return failed;
}
