// SPDX-License-Identifier: Apache-2.0
// What a NIC answers to who inspects it, from anyone: refused, or records of printable words that
// lie in the answer. Input: the answer to a question for queue pairs.
#include "host/inspect_record.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check(const struct vb_report *report, size_t size, const struct vb_record *record)
{
    require(record->count > 0 && record->count <= VB_RECORD_PAIRS);
    for (uint32_t i = 0; i < record->count; i++) {
        const struct vb_pair *pair = &record->pair[i];
        require(pair->key > report->bytes && pair->value > pair->key);
        require(pair->value + strlen(pair->value) < report->bytes + size);
        require(*pair->key && *pair->value && strlen(pair->value) <= VB_RECORD_VALUE);
        for (const char *c = pair->value; *c; c++)
            require(*c >= ' ' && *c < 0x7f);
        require(vb_record_get(record, pair->key) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_report report;
    char *bytes = malloc(size ? size : 1); // exact, so that the sanitizer guards its end

    if (!bytes)
        return 0;
    if (size)
        memcpy(bytes, data, size);
    if (vb_report_parse(bytes, size, "qp", &report) == 0) {
        check(&report, size, &report.nic);
        for (uint32_t i = 0; i < report.records; i++)
            check(&report, size, &report.record[i]);
    }
    vb_report_free(&report);
    return 0;
}
