// SPDX-License-Identifier: Apache-2.0
// Random calls of the program builder and of the language on top of it, many of them wrong: the
// program or the error is what it was, by digests. On a mismatch it prints the new ones.
#include "base/prng.h"
#include "chain/image.h"
#include "chain/text.h"
#include "sim/digest.h"
#include "verbena/chain.h"

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
    FLOWS = 20000,
    BUILDS = 20000,
    HANDLES = 24,
};

struct walk {
    struct vb_prng prng;
    struct vb_chain *chain;
    struct vb_flow *flow;
    struct vb_var var[HANDLES];
    uint32_t vars;
    struct vb_chain_region region[3];
    struct vb_chain_queue queue[3];
    struct vb_chain_label label[HANDLES];
    uint32_t labels;
};

static uint32_t below(struct walk *w, uint32_t n)
{
    return (uint32_t)vb_prng_below(&w->prng, n);
}

// One of those made so far, seldom one that is none.
static struct vb_var some_var(struct walk *w)
{
    if (w->vars == 0 || below(w, 60) == 0)
        return (struct vb_var){below(w, 40)};
    return w->var[below(w, w->vars)];
}

static struct vb_chain_region some_region(struct walk *w)
{
    return below(w, 60) ? w->region[below(w, 3)] : (struct vb_chain_region){below(w, 9)};
}

static struct vb_chain_queue some_queue(struct walk *w)
{
    return below(w, 60) ? w->queue[below(w, 3)] : (struct vb_chain_queue){below(w, 9)};
}

static struct vb_chain_label some_label(struct walk *w)
{
    if (w->labels == 0 || below(w, 60) == 0)
        return (struct vb_chain_label){below(w, 60)};
    return w->label[below(w, w->labels)];
}

static void keep_label(struct walk *w, struct vb_chain_label label)
{
    if (w->labels < HANDLES)
        w->label[w->labels++] = label;
}

static struct vb_place some_place(struct walk *w)
{
    if (below(w, 3))
        return vb_in(some_region(w), 8 * below(w, below(w, 20) ? 8 : 20));
    return vb_at_n(some_label(w), (enum vb_chain_field)below(w, VB_AT_REMOTE + 1), below(w, 2),
                   below(w, 20) ? 0 : below(w, 16));
}

// The program as text, or the error.
static void finish(struct walk *w, struct vb_digest *d, uint32_t *right)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_chain_finish(w->chain, error);
    char *text = image ? vb_dis(image) : NULL;
    const char *say = text ? text : error;

    *right += image != NULL;
    vb_digest_add(d, vb_digest_bytes((const uint8_t *)say, (uint32_t)strlen(say)));
    free(text);
    vb_image_destroy(image);
}

static void begin(struct walk *w, uint64_t seed)
{
    static const enum vb_chain_memory kind[] = {VB_CHAIN_OWN, VB_CHAIN_OWN, VB_CHAIN_SHARED};

    *w = (struct walk){.prng = {.state = seed}};
    w->chain = vb_chain_begin("walk");
    assert_non_null(w->chain);
    for (uint32_t i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "r%u", i);
        w->region[i] = vb_chain_region(w->chain, name, kind[i], 64, i != 1 || below(w, 2));
    }
}

// ---- the language

static void flow_call(struct walk *w)
{
    struct vb_flow *f = w->flow;
    struct vb_var a = some_var(w), b = some_var(w), to = some_var(w);
    enum vb_wqe_calc op = (enum vb_wqe_calc)(1 + below(w, VB_WQE_CALC_MIN));
    enum vb_compare compare = (enum vb_compare)below(w, VB_NE + 3);
    uint32_t bits = compare > VB_NE ? (below(w, 20) ? 64 : 63)
                    : below(w, 20)  ? 1 + below(w, 64)
                                    : 0;
    uint32_t bytes = below(w, 20) ? 8 : below(w, 20);

    switch (below(w, 18)) {
    case 0:
    case 1:
        if (w->vars < HANDLES)
            w->var[w->vars++] = vb_flow_var(f, vb_prng_next(&w->prng));
        break;
    case 2:
        if (w->vars < HANDLES)
            w->var[w->vars++] = vb_flow_pointer(f, some_place(w));
        break;
    case 3: vb_flow_set(f, to, below(w, 100)); break;
    case 4: vb_flow_move(f, to, a); break;
    case 5: vb_flow_calc(f, op, to, a, b); break;
    case 6: vb_flow_calc_value(f, op, to, a, below(w, 9)); break;
    case 7: vb_flow_load(f, to, some_region(w), a, bytes); break;
    case 8: vb_flow_store(f, some_region(w), a, to, bytes); break;
    case 9: vb_flow_load_indexed(f, to, some_region(w), a, b, bytes); break;
    case 10: vb_flow_store_indexed(f, some_region(w), a, b, to, bytes); break;
    case 11: vb_flow_if(f, a, compare, b, bits); break;
    case 12: vb_flow_if_value(f, a, compare, below(w, 9), bits); break;
    case 13: vb_flow_repeat(f, below(w, 5)); break;
    case 14:
        if (below(w, 4) == 0)
            vb_flow_loop(f);
        break;
    case 15:
        if (below(w, 4) == 0)
            vb_flow_break(f);
        break;
    case 16:
        if (below(w, 3) == 0)
            vb_flow_else(f);
        break;
    default:
        if (below(w, 2))
            vb_flow_end(f);
        break;
    }
}

static void test_flow_walks(void **state)
{
    struct vb_digest d = {1};
    uint32_t right = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= FLOWS; seed++) {
        struct walk w;
        begin(&w, seed);
        w.flow = vb_flow_begin(w.chain, "W");
        while (w.vars < 4)
            w.var[w.vars++] = vb_flow_var(w.flow, 5);
        for (uint32_t n = 4 + below(&w, 14); n > 0; n--)
            flow_call(&w);
        for (uint32_t n = below(&w, 4); n > 0; n--)
            vb_flow_end(w.flow);
        vb_flow_end_program(w.flow);
        finish(&w, &d, &right);
    }
    assert_in_range(right, FLOWS / 50, FLOWS);
    if (d.value != 0xc020c7c870bb25e9)
        fail_msg("0x%016" PRIx64 ", %u right", d.value, right);
}

// ---- entries

static void add_queues(struct walk *w)
{
    for (uint32_t i = 0; i < 3; i++) {
        const struct vb_chain_queue_opts opts = {.peer = i == 2,
                                                 .unmanaged = below(w, 2),
                                                 .recv_sge = i == 2 ? 2 : 0,
                                                 .open = below(w, 3),
                                                 .ahead = below(w, 20) == 0};
        char name[8];
        snprintf(name, sizeof name, "q%u", i);
        w->queue[i] = vb_chain_queue(w->chain, name, &opts);
    }
}

static struct vb_chain_op some_op(struct walk *w)
{
    static const uint8_t opcodes[] = {VB_WQE_NOP,       VB_WQE_WRITE,     VB_WQE_READ,
                                      VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA, VB_WQE_SEND};
    struct vb_chain_op op = {.opcode = opcodes[below(w, 20) ? 1 + below(w, sizeof opcodes - 1) : 0],
                             .flags = below(w, 3) ? VB_CHAIN_SIGNALED : below(w, 8)};

    op.remote = some_place(w);
    op.parts = below(w, 3);
    for (uint32_t i = 0; i < op.parts; i++)
        op.part[i] = (struct vb_part){some_place(w), below(w, 4) ? 8 : 4 * below(w, 5)};
    return op;
}

static void build_call(struct walk *w)
{
    struct vb_chain *c = w->chain;
    struct vb_chain_queue q = some_queue(w);
    struct vb_chain_op op = some_op(w);
    struct vb_part part[2] = {{some_place(w), 8}, {some_place(w), 4 * below(w, 4)}};

    switch (below(w, 16)) {
    case 0:
    case 1:
    case 2:
    case 3: keep_label(w, vb_chain_op(c, q, &op)); break;
    case 4: keep_label(w, vb_chain_wait(c, q, some_label(w))); break;
    case 5: keep_label(w, vb_chain_wait_recv(c, q, some_queue(w), below(w, 2))); break;
    case 6:
    case 7: keep_label(w, vb_chain_open(c, q, some_label(w))); break;
    case 8: keep_label(w, vb_chain_open_recv(c, q, some_queue(w), below(w, 2))); break;
    case 9: vb_chain_recv(c, w->queue[2], part, 1 + below(w, 2)); break;
    case 10: keep_label(w, vb_chain_sleeper(c, q, &op)); break;
    case 11: keep_label(w, vb_chain_wake(c, q, some_label(w), below(w, 99), some_place(w))); break;
    case 12: keep_label(w, vb_chain_if(c, q, &op, below(w, 99), some_place(w))); break;
    case 13:
        vb_chain_put(c, below(w, 9) ? vb_in(w->region[0], 8) : some_place(w), "01234567", 8);
        break;
    case 14:
        vb_chain_put_address(c, below(w, 9) ? vb_in(w->region[0], 8) : some_place(w),
                             some_place(w));
        break;
    default: vb_chain_add_flags(c, some_label(w), below(w, 8)); break;
    }
}

static void test_build_walks(void **state)
{
    struct vb_digest d = {1};
    uint32_t right = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= BUILDS; seed++) {
        struct walk w;
        begin(&w, seed);
        add_queues(&w);
        for (uint32_t n = 1 + below(&w, 10); n > 0; n--)
            build_call(&w);
        finish(&w, &d, &right);
    }
    assert_in_range(right, BUILDS / 50, BUILDS);
    if (d.value != 0x7517e3c8145d9393)
        fail_msg("0x%016" PRIx64 ", %u right", d.value, right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flow_walks),
        cmocka_unit_test(test_build_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
