// SPDX-License-Identifier: Apache-2.0
// Tests that cannot run here.
#include "skips.h"

#include "flavour.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// As CTest has it. Sanitizers have skips of their own.
static void name_test(char name[100])
{
    snprintf(name, 100, "%sunit.%s",
             UNDER_ASAN   ? "asan."
             : UNDER_TSAN ? "tsan."
                          : "",
             program_invocation_short_name + strlen("test_"));
}

static bool is_listed(const char *test, const char *name)
{
    char line[300], listed[100], which[100];
    bool found = false;
    FILE *list = fopen(VERBENA_SKIPS, "r");

    while (list && !found && fgets(line, sizeof line, list))
        found = line[0] != '#' && sscanf(line, "%99s %99s", listed, which) == 2 &&
                strcmp(listed, test) == 0 && (strcmp(which, "*") == 0 || strcmp(which, name) == 0);
    if (list)
        fclose(list);
    return found;
}

static bool may_skip(const char *name, const char *reason)
{
    const char *ci = getenv("CI");
    char test[100];

    name_test(test);
    print_message("SKIPPED: %s: %s: %s\n", test, name, reason);
    return !ci || strcmp(ci, "true") != 0 || is_listed(test, name);
}

void skips_case(const char *name, const char *reason)
{
    if (!may_skip(name, reason))
        fail_msg("a skip that tests/skips.txt does not list");
    skip();
}

int skips_group(const char *name, const char *reason)
{
    if (may_skip(name, reason))
        return 0;
    print_error("a skip that tests/skips.txt does not list\n");
    return 1;
}
