// SPDX-License-Identifier: Apache-2.0
// Programs as the assembler makes them, byte for byte, and the text that they become: what they add
// to the declarations that all share.
#include "asm_kit.h"
#include "chain/file.h"
#include "chain/text.h"
#include "verbena/wqe.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    ROW = 32, // bytes in a line
    WIDTH = 80,
};

// ---- a description of everything that an image has, one line each

__attribute__((format(printf, 2, 3))) static void say(char *out, const char *format, ...)
{
    size_t len = strlen(out);
    va_list args;

    va_start(args, format);
    int more = vsnprintf(out + len, ASM_CASE_BYTES - len, format, args);
    va_end(args);
    assert_true(more >= 0 && len + (size_t)more < ASM_CASE_BYTES);
}

static void say_bytes(char *out, const char *name, const char *what, const uint8_t *bytes,
                      uint64_t len)
{
    static const uint8_t zeros[ROW];

    for (uint64_t at = 0; at < len; at += ROW) {
        uint64_t row = len - at < ROW ? len - at : ROW;
        if (memcmp(bytes + at, zeros, row) == 0)
            continue;
        say(out, "%s%s+%" PRIu64 " =", name, what, at);
        for (uint64_t i = 0; i < row; i++)
            say(out, "%s%02x", i % 4 ? "" : " ", bytes[at + i]);
        say(out, "\n");
    }
}

static void say_spot(char *out, const struct vb_image *image, const struct vb_spot *spot)
{
    const char *name =
        spot->kind == VB_IN_DATA ? image->region[spot->index].name : image->queue[spot->index].name;
    say(out, "%s%s+%" PRIu64, name, spot->kind == VB_IN_RECV ? ".recv" : "", spot->offset);
}

static void say_reloc(char *out, const struct vb_image *image, const struct vb_reloc *r)
{
    static const char *const kinds[] = {"addr",       "key",        "qpn",        "qpn3",
                                        "cqn",        "send_index", "recv_index", "cq_index",
                                        "send_count", "recv_count", "cq_count"};
    bool cq =
        r->kind == VB_RELOC_CQN || r->kind == VB_RELOC_CQ_INDEX || r->kind == VB_RELOC_CQ_COUNT;

    say_spot(out, image, &r->at);
    say(out, " %s ", kinds[r->kind]);
    if (r->kind == VB_RELOC_ADDR || r->kind == VB_RELOC_KEY)
        say_spot(out, image, &r->target);
    else
        say(out, "%s", cq ? image->cq[r->target.index].name : image->queue[r->target.index].name);
}

static void describe(char *out, const struct vb_image *image)
{
    out[0] = 0;
    say(out, "program ");
    for (const char *c = image->name; *c; c++)
        say(out, *c >= ' ' && *c <= '~' ? "%c" : "<%02x>", (uint8_t)*c);
    say(out, "\n");
    for (uint32_t i = 0; i < image->cqs; i++)
        say(out, "cq %s %u\n", image->cq[i].name, image->cq[i].entries);
    for (uint32_t i = 0; i < image->queues; i++) {
        const struct vb_image_queue *q = &image->queue[i];
        say(out, "queue %s kind %d%s%s%s%s cqs %u %u blocks %u %u %u recvs %u x %u %u %u\n",
            q->name, (int)q->kind, q->managed_send ? " managed_send" : "",
            q->managed_recv ? " managed_recv" : "", q->wqe_checks ? " checks" : "",
            q->be_replies ? " be_replies" : "", q->send_cq, q->recv_cq, q->blocks, q->filled,
            q->open, q->recvs, q->recv_stride, q->recv_filled, q->recv_open);
        say_bytes(out, q->name, "", q->code, (uint64_t)q->blocks * VB_WQEBB_BYTES);
        say_bytes(out, q->name, ".recv", q->recv, (uint64_t)q->recvs * q->recv_stride);
    }
    for (uint32_t i = 0; i < image->regions; i++) {
        const struct vb_image_region *r = &image->region[i];
        say(out, "region %s kind %d %" PRIu64 "%s\n", r->name, (int)r->kind, r->bytes,
            r->writable ? " writable" : "");
        if (r->kind == VB_REGION_OWN)
            say_bytes(out, r->name, "", r->init, r->bytes);
    }
    size_t line = strlen(out);
    for (uint32_t i = 0; i < image->relocs; i++) {
        say_reloc(out, image, &image->reloc[i]);
        bool ends = i + 1 == image->relocs || strlen(out) - line > WIDTH;
        say(out, ends ? "\n" : ", ");
        line = ends ? strlen(out) : line;
    }
    for (uint32_t i = 0; i < image->labels; i++)
        say(out, "label %s %u %u\n", image->label[i].name, image->label[i].queue,
            image->label[i].block);
}

// ---- cases

// Adds to `out` the lines of `text` that are not among those of `known`, each behind `mark`.
static void add_new(char *out, const char *mark, const char *text, const char *known)
{
    while (*text) {
        int len = (int)strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof line, "\n%.*s\n", len, text);
        if (len && !strstr(known, line))
            say(out, "%s%.*s\n", mark, len, text);
        text += len + 1;
    }
}

// `=` what the image has, `>` its canonical text.
static void assemble(const char *input, char *answer)
{
    static char text[2 * ASM_CASE_BYTES], bytes[ASM_CASE_BYTES], known[2 * ASM_CASE_BYTES];
    bool alone = strncmp(input, "program ", 8) == 0;
    char why[VB_IMAGE_TEXT];
    size_t len;

    known[0] = 0;
    if (!alone) {
        struct vb_image *head = asm_image(asm_head);
        char *dis = vb_dis(head);
        describe(bytes, head);
        int used = snprintf(known, sizeof known, "\n%s%s", bytes, dis);
        assert_true(used > 0 && (size_t)used < sizeof known);
        free(dis);
        vb_image_destroy(head);
    }
    snprintf(text, sizeof text, "%s%s", alone ? "" : asm_head, input);
    struct vb_image *image = asm_image(text);
    describe(bytes, image);
    add_new(answer, "= ", bytes, known);
    char *dis = vb_dis(image);
    add_new(answer, "> ", dis, known);
    // What the text says is all that there is.
    struct vb_image *again = vb_asm(dis, strlen(dis), why);
    if (!again || !vb_image_equal(image, again))
        fail_msg("%s\nis another program: %s", dis, again ? "" : why);
    char *same = vb_dis(again);
    assert_string_equal(dis, same);
    uint8_t *file = vb_image_encode(image, &len);
    struct vb_image *read = vb_image_decode(file, len, why);
    assert_non_null(read);
    assert_true(vb_image_equal(image, read));
    free(file);
    free(same);
    free(dis);
    vb_image_destroy(read);
    vb_image_destroy(again);
    vb_image_destroy(image);
}

static void programs(void **state)
{
    (void)state;
    asm_cases("golden/asm_programs.golden", assemble);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
