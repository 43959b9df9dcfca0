// SPDX-License-Identifier: Apache-2.0
// A runtime directory of the test program alone.
#include "runtime_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <unistd.h>

#include <cmocka.h>

static const char variable[] = "VERBENA_RUNTIME_DIR";

int runtime_dir_make(void **state)
{
    char dir[] = "/tmp/verbena-test-XXXXXX";
    (void)state;
    return mkdtemp(dir) && setenv(variable, dir, 1) == 0 ? 0 : -1;
}

// Locks and the registry stay by design, and sockets of the killed.
int runtime_dir_erase(const char *dir)
{
    DIR *list = opendir(dir);
    if (!list)
        return -1;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    closedir(list);
    return rmdir(dir);
}

int runtime_dir_remove(void **state)
{
    (void)state;
    return runtime_dir_erase(getenv(variable));
}

unsigned runtime_dir_count(const char *prefix)
{
    unsigned count = 0;
    DIR *list = opendir(getenv(variable));
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(list);
    return count;
}
