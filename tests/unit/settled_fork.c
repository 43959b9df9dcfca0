// SPDX-License-Identifier: Apache-2.0
// The address sanitizer's allocator of this compiler does not take its locks before fork(): a child
// of a process in which another thread has one waits for it for ever. Threads of ours have them
// while they start, so there fork() comes a moment later (`--wrap=fork` in tests/CMakeLists.txt).
#include <unistd.h>

pid_t __real_fork(void);
pid_t __wrap_fork(void);

pid_t __wrap_fork(void)
{
    usleep(20000);
    return __real_fork();
}
