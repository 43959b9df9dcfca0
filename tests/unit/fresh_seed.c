// SPDX-License-Identifier: Apache-2.0
// The first seed of a test that draws.
#include "fresh_seed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t fresh_seed(void)
{
    static bool told;
    const char *text = getenv("VERBENA_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 1;

    if (!told)
        printf("first seed %llu; replay: VERBENA_SEED=%llu tests/%s\n", (unsigned long long)seed,
               (unsigned long long)seed, program_invocation_short_name);
    told = true;
    fflush(stdout); // before the test forks or aborts
    return seed;
}
