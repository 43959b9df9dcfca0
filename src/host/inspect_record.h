// SPDX-License-Identifier: Apache-2.0
// An answer of a NIC that was inspected, as records of keys and values. The bytes are a stranger's:
// another version of the library wrote them, or somebody else.
#ifndef VB_HOST_INSPECT_RECORD_H
#define VB_HOST_INSPECT_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum {
    VB_RECORD_PAIRS = 96, // of one line
    VB_RECORD_KEY = 32,   // bytes at most
    VB_RECORD_VALUE = 256,
    VB_RECORDS_MAX = 1 << 20,
};

struct vb_pair {
    const char *key, *value; // values are printable ASCII
};

struct vb_record {
    uint32_t count;
    struct vb_pair *pair;
};

// What one NIC said. All strings lie in `bytes`.
struct vb_report {
    char *bytes;
    struct vb_pair *pairs;
    struct vb_record nic;
    struct vb_record *record;
    uint32_t records;
};

// Takes an answer (malloc'ed; the report owns it from now on, whatever comes out) to a question of
// this kind. 0, -EPROTO if it is not one, -ENOMEM; the report is then empty.
int vb_report_parse(char *bytes, size_t len, const char *kind, struct vb_report *report);
void vb_report_free(struct vb_report *report);

// NULL: no such key.
const char *vb_record_get(const struct vb_record *record, const char *key);

#endif
