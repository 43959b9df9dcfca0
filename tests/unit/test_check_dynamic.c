// SPDX-License-Identifier: Apache-2.0
// What is seen of small programs while they run: findings of the dynamic checker, and traces with
// what the watch notes beside them.
#include "chain/text.h"
#include "chain/trace.h"
#include "check_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    REQUESTS_MAX = 8,
    REQUEST_BYTES = 64,
    STEPS_MAX = 600,
};

struct requests {
    struct vb_check_request request[REQUESTS_MAX];
    uint8_t bytes[REQUESTS_MAX][REQUEST_BYTES];
    uint32_t count;
};

// Lines "#! send QUEUE hex".
static void read_requests(struct requests *r, const struct vb_image *image, const char *text)
{
    const char *line;

    for (r->count = 0; (line = check_word(text, "send", r->count)) != NULL; r->count++) {
        struct vb_check_request *to = &r->request[r->count];
        char name[VB_IMAGE_NAME];
        unsigned byte;
        int used;
        assert_true(r->count < REQUESTS_MAX);
        assert_int_equal(sscanf(line, "%31s%n", name, &used), 1);
        *to = (struct vb_check_request){.queue = (uint32_t)vb_image_find_queue(image, name),
                                        .bytes = r->bytes[r->count]};
        for (line += used + 1; sscanf(line, "%2x", &byte) == 1 && *line != '\n'; line += 2)
            r->bytes[r->count][to->len++] = (uint8_t)byte;
    }
}

static void say_findings(FILE *to, const struct vb_image *image, const char *text)
{
    static const uint32_t depth[] = {1, 16};
    struct vb_findings found = {.count = 0};
    struct requests r;

    read_requests(&r, image, text);
    const struct vb_check_opts opts = {
        .depth = check_number(text, "defaults", 0) ? NULL : depth,
        .depths = check_number(text, "depths", 2),
        .seeds = check_number(text, "seeds", check_number(text, "defaults", 0) ? 0 : 2),
        .steps_max = check_number(text, "steps", STEPS_MAX),
        .shared_bytes = check_number(text, "shared", 0),
        .request = r.request,
        .requests = r.count};
    vb_check_dynamic(image, &opts, &found);
    check_print(to, image, &found);
    vb_findings_free(&found);
}

// ---- traces

static void say_actor(FILE *to, const struct vb_watch *w, const char *what, struct vb_actor who)
{
    char name[VB_LISTING_TEXT];

    if (!who.exists)
        return;
    vb_listing_actor_name(vb_watch_listing(w), who, name);
    fprintf(to, "      %s %s\n", what, name);
}

static void say_event(FILE *to, const struct vb_watch *w, const struct vb_watch_event *e)
{
    say_actor(to, w, "too early for", e->too_early);
    say_actor(to, w, "opens unasked", e->unasked);
    say_actor(to, w, "without the message of", e->message);
    say_actor(to, w, "reads without waiting for", e->awaited);
    for (uint32_t i = 0; i < e->touches; i++)
        if (e->touch[i].rash)
            fprintf(to, "      rash at %llu\n", (unsigned long long)e->touch[i].rash_at);
    if (e->changed_by.exists)
        fprintf(to, "      changed at %u\n", e->changed_at);
}

// Where queues stand, and how many completions there are.
static void say_rest(FILE *to, const struct vb_watch *w, const struct vb_image *image)
{
    char name[VB_LISTING_TEXT];

    for (uint32_t i = 0; i < image->queues; i++) {
        struct vb_actor who;
        uint32_t cq;
        uint64_t missing;
        vb_listing_actor_name(vb_watch_listing(w), vb_watch_standing(w, i), name);
        fprintf(to, "%s%s%s", i ? ", " : "at the end: ", name,
                vb_watch_is_idle(w, i) ? "" : " busy");
        if (vb_watch_waiting(w, i, &who, &cq, &missing))
            fprintf(to, " for %s[%llu]", image->cq[cq].name, (unsigned long long)missing);
    }
    for (uint32_t i = 0; i < image->cqs; i++)
        fprintf(to, "%s %s %llu", i ? "," : ";", image->cq[i].name,
                (unsigned long long)vb_watch_produced(w, i));
    fprintf(to, "\n");
}

static void say_trace(FILE *to, const struct vb_image *image, const char *text)
{
    static char line[VB_TRACE_BYTES];
    struct vb_machine_opts opts = {.seed = 1,
                                   .units = 1,
                                   .fetch_depth = check_number(text, "depth", 2),
                                   .start = check_number(text, "start", 0)};
    enum vb_trace_form form = check_number(text, "json", 0) ? VB_TRACE_JSON : VB_TRACE_TEXT;
    uint32_t steps = check_number(text, "steps", STEPS_MAX);
    char error[VB_IMAGE_TEXT] = "";
    struct vb_watch_event e;
    struct requests r;

    read_requests(&r, image, text);
    struct vb_machine *m = vb_machine_create(image, &opts, error);
    if (!m)
        fail_msg("%s", error);
    for (uint32_t i = 0; i < r.count; i++)
        assert_int_equal(
            vb_machine_send(m, r.request[i].queue, r.request[i].bytes, r.request[i].len), 0);
    struct vb_watch *w = vb_watch_make(m, image, &opts);
    assert_non_null(w);
    for (uint32_t i = 0; i < steps && vb_watch_step(w, &e); i++) {
        fwrite(line, 1, vb_trace_print(line, form, w, image, &e), to);
        if (form == VB_TRACE_TEXT)
            say_event(to, w, &e);
    }
    say_rest(to, w, image);
    vb_watch_free(w);
    vb_machine_destroy(m);
}

static void test_findings(void **state)
{
    (void)state;
    check_cases("check_dynamic.cases", say_findings);
}

// A program that cannot be loaded is told so by either checker.
static void test_unloadable(void **state)
{
    static const char text[] = "program case\ncq d entries 8\nqueue W loop blocks 4 send_cq d\n";
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        struct vb_findings found = {.count = 0};
        struct vb_image *image = vb_asm(text, sizeof text - 1, error);
        assert_non_null(image);
        image->queue[0].send_cq = 1;
        if (dynamic)
            vb_check_dynamic(image, &(struct vb_check_opts){.seeds = 1}, &found);
        else
            vb_check_static(image, &found);
        assert_int_equal(found.count, 1);
        assert_int_equal(found.errors, 1);
        assert_int_equal(found.finding[0].kind, VB_CHECK_NOT_LOADED);
        assert_string_equal(found.finding[0].text, "the program cannot be loaded: queue 'W': its "
                                                   "completion queue does not exist");
        vb_findings_free(&found);
        assert_int_equal(found.count, 0);
        vb_image_destroy(image);
    }
}

static void test_traces(void **state)
{
    (void)state;
    check_cases("check_trace.cases", say_trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings),
        cmocka_unit_test(test_unloadable),
        cmocka_unit_test(test_traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
