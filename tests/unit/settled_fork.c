// SPDX-License-Identifier: Apache-2.0
// The address sanitizer's allocator of this compiler does not take its locks before fork(): a child
// of a process in which another thread has one waits for it for ever. Threads of ours have them
// while they start, so there fork() waits until all others sleep (`--wrap=fork` in
// tests/CMakeLists.txt). A thread that waits for such a lock sleeps, too, but not the one that has
// it.
#include "../wait.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

pid_t __real_fork(void);
pid_t __wrap_fork(void);

// The state stands after the name, which ends with the last parenthesis.
static bool sleeps(const char *thread)
{
    char path[300], text[200] = "";

    snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return true; // it is gone
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *end = len ? strrchr(text, ')') : NULL;
    return end && end[1] == ' ' && end[2] == 'S';
}

static bool others_sleep(void)
{
    char self[16];
    bool all = true;
    DIR *threads = opendir("/proc/self/task");

    snprintf(self, sizeof self, "%d", (int)gettid());
    for (struct dirent *e; threads && (e = readdir(threads)) != NULL;)
        if (e->d_name[0] != '.' && strcmp(e->d_name, self) != 0)
            all = all && sleeps(e->d_name);
    if (threads)
        closedir(threads);
    return all;
}

pid_t __wrap_fork(void)
{
    WAIT_UNTIL(others_sleep());
    return __real_fork();
}
