// SPDX-License-Identifier: Apache-2.0
// Fault rules from anyone: what parses must print to a text that parses to the same rules, and any
// frame must be judged without reading past it. Input: the text, a zero, then events of one byte of
// kind and up to 24 bytes of frame.
#include "port/faults.h"
#include "verbena/nic.h"

#include <stdlib.h>
#include <string.h>

enum {
    EVENT_BYTES = 24
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_frame(struct vb_faults *a, struct vb_faults *b, enum vb_fault_dir dir,
                        const uint8_t *frame, uint32_t len)
{
    struct vb_fault_fate fa, fb;
    vb_faults_judge(a, dir, frame, len, &fa);
    vb_faults_judge(b, dir, frame, len, &fb);
    require(fa.drop == fb.drop && fa.corrupt == fb.corrupt && fa.copies == fb.copies);
    require(fa.hold_frames == fb.hold_frames && fa.hold_ns == fb.hold_ns);
    require(fa.delay_ns == fb.delay_ns && fa.copies <= VB_FAULTS_COPIES);
    require(vb_faults_touch(a, dir) || !(fa.drop || fa.corrupt || fa.copies || fa.hold_frames));
    require((fa.hold_frames == 0) <= (fa.hold_ns == 0));
}

static void check_event(struct vb_faults *a, struct vb_faults *b, uint8_t kind,
                        const uint8_t *bytes, uint32_t len)
{
    uint32_t qpn = len > 0 ? bytes[0] : 0;
    uint8_t *frame = malloc(len ? len : 1); // exact, so that the sanitizer guards its end
    if (frame == NULL)
        return;
    memcpy(frame, bytes, len);
    check_frame(a, b, kind & 1 ? VB_FAULT_TX : VB_FAULT_RX, frame, len);
    free(frame);
    enum vb_fault_wr wr = (enum vb_fault_wr)(kind % (VB_FAULT_WR_OTHER + 1));
    require(vb_faults_completion(a, qpn, wr) == vb_faults_completion(b, qpn, wr));
    require(vb_faults_qp(a, qpn) == vb_faults_qp(b, qpn));
    int error = vb_faults_register(a);
    require(error <= 0 && error == vb_faults_register(b));
}

// The same rules again, from their own text.
static struct vb_faults *reparse(const struct vb_faults *faults)
{
    char why[VB_ERROR_TEXT];
    struct vb_faults *again = NULL;
    char *text = malloc(2 * VB_FAULTS_TEXT);
    if (text == NULL)
        return NULL;
    char *other = text + VB_FAULTS_TEXT;
    size_t len = vb_faults_print(faults, text, VB_FAULTS_TEXT);
    require(len < VB_FAULTS_TEXT && strlen(text) == len);
    require(vb_faults_parse(text, &again, why) == 0);
    require(vb_faults_print(again, other, VB_FAULTS_TEXT) == len && strcmp(text, other) == 0);
    require(vb_faults_rules(faults) == vb_faults_rules(again));
    free(text);
    return again;
}

static void check_counts(const struct vb_faults *a, const struct vb_faults *b)
{
    for (uint32_t i = 0; i < vb_faults_rules(a); i++) {
        struct vb_fault_counts ca = vb_faults_counts(a, i), cb = vb_faults_counts(b, i);
        require(ca.matched == cb.matched && ca.fired == cb.fired);
    }
}

// One line, whole, that names a column.
static void check_complaint(const char *why)
{
    size_t len = strlen(why);
    require(len < VB_ERROR_TEXT && strncmp(why, "faults: '", 9) == 0);
    require(why[len - 1] == ')' && strstr(why, "(column ") && !strchr(why, '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t len = strnlen((const char *)data, size);
    char *text = strndup((const char *)data, len);
    char why[VB_ERROR_TEXT] = "";
    struct vb_faults *a = NULL;
    if (text == NULL)
        return 0;
    if (vb_faults_parse(text, &a, why) != 0) {
        check_complaint(why);
        free(text);
        return 0;
    }
    struct vb_faults *b = reparse(a);
    for (size_t at = len + 1; b && at < size; at += 1 + EVENT_BYTES) {
        size_t left = size - at - 1;
        check_event(a, b, data[at], data + at + 1,
                    (uint32_t)(left < EVENT_BYTES ? left : EVENT_BYTES));
    }
    if (b)
        check_counts(a, b);
    vb_faults_free(a);
    vb_faults_free(b);
    free(text);
    return 0;
}
