// SPDX-License-Identifier: Apache-2.0
// The address sanitizer's allocator of this compiler does not take its locks before fork(): a child
// of a process in which another thread has one waits for it for ever. Threads of ours have them
// while they start, so there fork() waits until all others sleep (`--wrap=fork` in
// tests/CMakeLists.txt). A thread that waits for such a lock sleeps, too, but not the one that has
// it.
#include "../wait.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

pid_t __real_fork(void);
pid_t __wrap_fork(void);

static bool others_sleep(void)
{
    bool all = true;
    DIR *threads = opendir("/proc/self/task");

    for (struct dirent *e; threads && (e = readdir(threads)) != NULL;) {
        int id = atoi(e->d_name);
        char state = id && id != gettid() ? wait_state("self/task", id) : 0;
        all = all && (state == 0 || state == 'S');
    }
    if (threads)
        closedir(threads);
    return all;
}

pid_t __wrap_fork(void)
{
    WAIT_UNTIL(others_sleep());
    return __real_fork();
}
