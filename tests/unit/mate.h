// SPDX-License-Identifier: Apache-2.0
// A process of its own with a NIC and a queue pair, connected to one of the test's: the test's
// program run again, so that it can end by every way a program ends.
#ifndef VB_TESTS_MATE_H
#define VB_TESTS_MATE_H

#include "duo.h"

#include <sys/types.h>

// What the mate does once connected.
enum mate_task {
    MATE_RECEIVES, // one message, and leaves when it sees the completion
    MATE_SENDS,    // one message, and leaves when it sees the completion
    MATE_POSTS,    // many messages, and leaves without looking
    MATE_IS_READ,  // leaves when a READ has come, whose answer its rules hold back
    MATE_STAYS,    // until it is killed
    MATE_DESTROYS, // receives one message, destroys its queue pair, closes and leaves
    MATE_FORKS,    // is read while children of it come, call and go
    MATE_TASKS
};

enum mate_way {
    MATE_RETURN, // from main()
    MATE_EXIT,
    MATE_QUIT, // _exit()
    MATE_WAYS
};

enum {
    MATE_MESSAGES = 12,
    MATE_BYTES = 4096
};

struct mate {
    pid_t pid;
    int fd;
    struct vb_qp *qp; // the test's, connected to the mate's
    uint64_t addr;    // of DUO_BYTES of the mate's memory
    uint32_t key;
};

// Starts one at address 1 of this process and connects it to a new queue pair of end 0, with the
// given retries and timeout (0: the defaults).
struct mate mate_start(const struct duo *d, enum mate_task task, enum mate_way way, uint8_t retries,
                       uint8_t timeout);
// Its exit status; fails if it takes too long.
int mate_join(struct mate *m);

// To be called first by main(): true if this is the mate, whose status is to be returned then.
bool mate_is_me(int argc, char **argv, int *status);

#endif
