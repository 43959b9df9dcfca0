// SPDX-License-Identifier: Apache-2.0
// Eight servers and sixteen clients on one address, each with a manager of its own: whoever is
// killed or stopped, the others connect, and always to the one they asked for.
#include "pair.h"
#include "runtime_dir.h"
#include "skips.h"
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
    SOME = 3,                // connections of each client
};

static const char *here; // the address

static void print(const struct town *t, const char *what)
{
    unsigned made = 0;
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        made += atomic_load(&t->client[i].made);
    printf("%s: %u connections, %u refused\n", what, made, atomic_load(&t->refused));
}

static void test_a_town(void **state)
{
    (void)state;
    struct town *t = town_start(here);
    town_expect_well(t, SOME, 0);
    print(t, "quiet");
    assert_int_equal(atomic_load(&t->refused), 0);

    town_kill_server(t, KILLED);
    town_expect_more(t, &t->refused, SOME); // nobody has its port
    town_expect_well(t, SOME, 0);
    print(t, "one killed");
    town_start_server(t, KILLED);
    town_expect_more(t, &t->server[KILLED].served, SOME);

    town_stop_server(t, STOPPED);
    assert_int_equal(kill(t->client[LAST].pid, SIGSTOP), 0);
    town_expect_well(t, SOME, 1u << LAST);
    print(t, "two stopped");
    town_kill_server(t, KILLED);
    town_expect_more(t, &t->refused, SOME); // though the newest, to whom it comes, is stopped
    town_expect_well(t, SOME, 1u << LAST);
    print(t, "and one killed");
    assert_int_equal(kill(t->client[LAST].pid, SIGCONT), 0);
    town_start_server(t, KILLED);
    town_continue_server(t, STOPPED);
    town_expect_more(t, &t->client[LAST].made, SOME);
    town_expect_more(t, &t->server[STOPPED].served, SOME);
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
        failed += skips_group("ipv6", why);
    else
        failed += cmocka_run_group_tests(tests, runtime_dir_make, runtime_dir_remove);
    return failed;
}
