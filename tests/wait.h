// SPDX-License-Identifier: Apache-2.0
// How a test waits: until a condition holds, for as long as that takes. The one bound is the
// TIMEOUT that CTest gives the test, and running out of it is a failure: no test has a time limit
// of its own, which a busy machine would exceed.
#ifndef VB_TESTS_WAIT_H
#define VB_TESTS_WAIT_H

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    WAIT_EAGER = 1000,         // looks without sleep between them
    WAIT_NAP_NS = 200 * 1000,  // between later ones
    WAIT_TELL = 10 * 5 * 1000, // looks, about 10 s: the line that a log of a timeout ends with
};

static inline void wait_step(unsigned long looks, const char *what, const char *file, int line)
{
    if (looks < WAIT_EAGER)
        sched_yield();
    else // sleeps: whoever is waited for has the core meanwhile, and the length decides nothing
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NAP_NS}, NULL);
    if (looks == WAIT_TELL)
        fprintf(stderr, "%s:%d: still waiting until %s\n", file, line, what);
}

// The state of a process, or of a thread, as the system tells it: 'S' sleeps, 'T' is stopped. 0: it
// is gone. `where` is "." for processes, or "self/task".
static inline char wait_state(const char *where, int id)
{
    char path[64], text[200] = "";

    snprintf(path, sizeof path, "/proc/%s/%d/stat", where, id);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *end = len ? strrchr(text, ')') : NULL; // of the name, which may hold anything
    return end && end[1] == ' ' ? end[2] : 0;
}

#define WAIT_UNTIL(condition)                                  \
    do {                                                       \
        for (unsigned long looks_ = 0; !(condition); looks_++) \
            wait_step(looks_, #condition, __FILE__, __LINE__); \
    } while (0)

#endif
