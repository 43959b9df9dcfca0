// SPDX-License-Identifier: Apache-2.0
// The trace of a hash get says what each entry did: which bytes, which other entry, which WAIT; and
// the entries that a watch shows.
#include "chain/text.h"
#include "chain/trace.h"
#include "mutate_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *trace(enum vb_trace_form form)
{
    struct vb_machine_opts opts = {.seed = 1, .shared_bytes = HASH_SHARED};
    struct vb_image *image = hash_image(2);
    char error[VB_IMAGE_TEXT], line[VB_TRACE_BYTES], *text = NULL;
    struct vb_watch_event e;
    size_t len;
    FILE *to = open_memstream(&text, &len);
    struct vb_machine *m = vb_machine_create(image, &opts, error);

    assert_non_null(to);
    assert_non_null(m);
    hash_prepare(NULL, m);
    struct vb_watch *w = vb_watch_make(m, image, &opts);
    assert_non_null(w);
    for (int steps = 0; steps < 100000 && vb_watch_step(w, &e); steps++)
        fwrite(line, 1, vb_trace_print(line, form, w, image, &e), to);
    fclose(to);
    vb_watch_free(w);
    vb_machine_destroy(m);
    vb_image_destroy(image);
    return text;
}

static void expect_all(const char *text, const char *const *lines, size_t count)
{
    const char *at = text;

    for (size_t i = 0; i < count; i++) { // in this order
        at = strstr(at, lines[i]);
        if (!at)
            fail_msg("'%s' is missing in\n%.3000s", lines[i], text);
    }
}

static void test_text(void **state)
{
    static const char *const lines[] = {
        "message  K:recv0\n",
        "changes W:compare0 (cas)",
        "changes W:bucket0 (read)",
        "complete K:recv0 @0 -> K_r[0], releases W#0 (wait)",
        "exec     W#0 (wait) @0 as wait, released by K:recv0",
        "exec     W:bucket0 (read) @2 as read",
        "writes K:hit0.addr (8)",
        "changes K:hit0 (write_imm)",
        "exec     W:compare0 (cas) @4 as cas",
        "writes K:pick0.opmod (8)",
        "exec     W:compare0+1 (send_en)",
        "fetch    K:pick0 (nop) @0",
    };
    char *text = trace(VB_TRACE_TEXT);

    (void)state;
    expect_all(text, lines, sizeof lines / sizeof lines[0]);
    assert_null(strstr(text, "CHANGED WHILE OPEN"));
    free(text);
}

static void test_json(void **state)
{
    static const char *const lines[] = {
        "{\"step\":\"message\",\"entry\":\"K:recv0\"",
        "\"changes\":\"W:bucket0 (read)\"",
        "\"releases\":\"W#0 (wait)\"",
        "\"opcode\":\"wait\",\"released_by\":\"K:recv0\"}\n",
        "\"reads\":[{\"at\":\"index+",
        "\"writes\":[{\"at\":\"K:hit0.addr\",\"len\":8,\"before\":\"",
    };
    char *text = trace(VB_TRACE_JSON);
    int open = 0;

    (void)state;
    expect_all(text, lines, sizeof lines / sizeof lines[0]);
    for (const char *c = text; *c; c++) {
        open += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
        if (*c == '\n')
            assert_int_equal(open, 0);
    }
    free(text);
}

struct watched {
    struct vb_image *image;
    struct vb_machine *m;
    struct vb_watch *w;
};

static void open_watch(struct watched *x, const char *text, const struct vb_machine_opts *opts)
{
    char error[VB_IMAGE_TEXT] = "";

    x->image = vb_asm(text, strlen(text), error);
    x->m = x->image ? vb_machine_create(x->image, opts, error) : NULL;
    if (!x->m)
        fail_msg("%s", error);
    x->w = vb_watch_make(x->m, x->image, opts);
    assert_non_null(x->w);
}

static void close_watch(struct watched *x)
{
    vb_watch_free(x->w);
    vb_machine_destroy(x->m);
    vb_image_destroy(x->image);
}

// An entry of three blocks is shown whole when it is fetched and executed, as it was fetched,
// though its ring changes in between; other steps show none.
static void test_entries_are_shown_as_fetched(void **state)
{
    static const char text[] =
        "program p\ncq c entries 8\nqueue W loop blocks 8 send_cq c\n"
        "region d own 64 writable\nregion s own 64 writable\ncode W\n"
        "    read s -> l.addr[7]\n"
        "l:  read s -> d:1, d+1:1, d+2:1, d+3:1, d+4:1, d+5:1, d+6:1, d+7:1 signaled\n";
    uint8_t before[4 * VB_WQEBB_BYTES];
    struct vb_watch_event e;
    struct watched x;
    uint32_t seen = 0;

    (void)state;
    open_watch(&x, text, &(struct vb_machine_opts){.seed = 1, .fetch_depth = 4});
    memcpy(before, vb_machine_send_ring(x.m, 0), sizeof before);
    while (vb_watch_step(x.w, &e)) {
        bool shown = e.kind == VB_STEP_FETCH || e.kind == VB_STEP_EXEC;
        assert_int_equal(e.code != NULL, shown);
        if (!shown || e.counter != 1)
            continue;
        assert_memory_equal(e.code, before + VB_WQEBB_BYTES, 3 * VB_WQEBB_BYTES);
        seen++;
    }
    assert_int_equal(seen, 2);
    assert_memory_not_equal(vb_machine_send_ring(x.m, 0), before, sizeof before);
    close_watch(&x);
}

// An entry that fails when it is sent is executed twice. The second time shows nothing: what was
// fetched has been shown.
static void test_an_entry_that_fails_when_it_is_sent(void **state)
{
    static const char text[] = "program p\ncq c entries 8\nqueue P peer blocks 8 send_cq c\n"
                               "code P\n    send <- @0x1000/0x17:8 signaled\n";
    static const uint8_t nothing[VB_WQEBB_BYTES];
    struct vb_watch_event e;
    struct watched x;
    uint32_t executed = 0;
    uint8_t syndrome = VB_SYN_OK;

    (void)state;
    open_watch(&x, text, &(struct vb_machine_opts){.seed = 1});
    while (vb_watch_step(x.w, &e)) {
        if (e.kind == VB_STEP_COMPLETE)
            syndrome = e.syndrome;
        if (e.kind != VB_STEP_EXEC)
            continue;
        assert_non_null(e.code);
        assert_int_equal(memcmp(e.code, nothing, sizeof nothing) == 0, executed > 0);
        executed++;
    }
    assert_int_equal(executed, 2);
    assert_int_equal(syndrome, VB_SYN_LOCAL_PROT);
    close_watch(&x);
}

// A program that waits for the first of so many completions.
static char *late_wait(uint32_t nops)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    assert_non_null(to);
    fprintf(to, "program p\ncq c entries 512\nqueue W loop blocks 512 send_cq c\ncode W\n");
    for (uint32_t i = 0; i < nops; i++)
        fprintf(to, "    nop signaled\n");
    fprintf(to, "    wait c 0\n");
    fclose(to);
    return text;
}

// A WAIT tells whose completion it was as long as that is kept; of an older one it tells nobody.
static void test_a_wait_for_an_old_completion(void **state)
{
    enum {
        KEPT = 256
    };
    struct vb_watch_event e;

    (void)state;
    for (uint32_t nops = KEPT; nops <= KEPT + 1; nops++) {
        char *text = late_wait(nops);
        struct watched x;
        uint32_t waits = 0;
        open_watch(&x, text, &(struct vb_machine_opts){.seed = 1});
        while (vb_watch_step(x.w, &e)) {
            if (e.kind != VB_STEP_EXEC || e.opcode != VB_WQE_WAIT)
                continue;
            assert_int_equal(e.number, 0);
            assert_int_equal(e.other.exists, nops == KEPT);
            assert_int_equal(e.other.at, 0);
            waits++;
        }
        assert_int_equal(waits, 1);
        close_watch(&x);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_entries_are_shown_as_fetched),
        cmocka_unit_test(test_an_entry_that_fails_when_it_is_sent),
        cmocka_unit_test(test_a_wait_for_an_old_completion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
