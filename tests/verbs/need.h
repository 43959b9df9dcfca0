// SPDX-License-Identifier: Apache-2.0
// Conditions that must hold in the programs of these tests: one that fails is printed, and the
// program exits with 1.
#ifndef VERBS_NEED_H
#define VERBS_NEED_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                                          \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, \
                    strerror(errno));                                                            \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)
#define FAILS(error, call)      \
    do {                        \
        errno = 0;              \
        NEED((call) == -1);     \
        NEED(errno == (error)); \
    } while (0)

#endif
