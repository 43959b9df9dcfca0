// SPDX-License-Identifier: Apache-2.0
// Asks all NICs of this user on this machine, all at a time: one that is stopped, or that is none,
// holds up nobody for longer than the time limit.
#ifndef VB_HOST_INSPECT_ASK_H
#define VB_HOST_INSPECT_ASK_H

#include "host/inspect_record.h"

#include <stdint.h>
#include <sys/types.h>

enum vb_asked_outcome {
    VB_ASKED_OK,
    VB_ASKED_SILENT,  // no whole answer in time
    VB_ASKED_GARBLED, // not an answer that we understand
    VB_ASKED_BUSY,    // too many others ask
    VB_ASKED_REFUSED, // not allowed, or the system said no
    VB_ASKED_GONE,    // its process has ended: not worth a word
};

struct vb_asked {
    enum vb_asked_outcome outcome;
    pid_t pid; // as the system says; 0: unknown
    uint32_t number;
    struct vb_report report; // VB_ASKED_OK
};

struct vb_survey {
    struct vb_asked *nic;
    uint32_t nics;
    char trouble[128]; // a directory that cannot be used, or ""
};

// 0 or -ENOMEM. `kind` is one of host/inspect.h's questions; `pid` asks the NICs of one process
// only, 0: of all.
int vb_survey_take(struct vb_survey *survey, const char *kind, long pid, uint64_t timeout_ns);
void vb_survey_free(struct vb_survey *survey);

#endif
