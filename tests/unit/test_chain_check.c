// SPDX-License-Identifier: Apache-2.0
// One mistake of each kind: the checker finds it and names the entries; without the mistake it is
// silent.
#include "base/bytes.h"
#include "chain/check.h"
#include "mutate_kit.h"
#include "shipped_kit.h"
#include "verbena/chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// Two queues that work on the same memory: W runs at once, K is opened.
struct bench {
    struct vb_chain *c;
    struct vb_chain_queue w, k;
    struct vb_chain_region data, fixed;
    bool bad;
};

static struct vb_chain_label op(struct bench *b, struct vb_chain_queue queue, const char *name,
                                struct vb_chain_op like)
{
    like.label = vb_chain_label(b->c, name);
    return vb_chain_op(b->c, queue, &like);
}

static void wait_for(struct bench *b, const char *name, struct vb_chain_label until)
{
    vb_chain_here(b->c, vb_chain_label(b->c, name));
    vb_chain_wait(b->c, b->w, until);
}

static struct vb_chain_label open_through(struct bench *b, const char *name,
                                          struct vb_chain_label through)
{
    vb_chain_here(b->c, vb_chain_label(b->c, name));
    return vb_chain_open(b->c, b->w, through);
}

static struct vb_chain_op copy(struct bench *b, enum vb_wqe_opcode opcode, uint64_t from,
                               uint64_t to)
{
    bool reads = opcode == VB_WQE_READ;
    return (struct vb_chain_op){.opcode = opcode,
                                .remote = vb_in(b->data, reads ? from : to),
                                .parts = 1,
                                .part = {{vb_in(b->data, reads ? to : from), 8}}};
}

// ---- programs

static void other_queue(struct bench *b)
{
    struct vb_chain_label a =
        op(b, b->k, "a", (struct vb_chain_op){.opcode = VB_WQE_NOP, .flags = VB_CHAIN_SIGNALED});

    open_through(b, "o", a);
    wait_for(b, "w", a);
}

static void nobody_opens(struct bench *b)
{
    struct vb_chain_label a = op(b, b->k, "a", (struct vb_chain_op){.opcode = VB_WQE_NOP});
    if (!b->bad)
        open_through(b, "o", a);
}

static void two_complete(struct bench *b)
{
    wait_for(b, "w", op(b, b->w, "a", (struct vb_chain_op){.opcode = VB_WQE_NOP}));
    op(b, b->w, "b", (struct vb_chain_op){.opcode = VB_WQE_NOP, .flags = VB_CHAIN_SIGNALED});
}

static void one_write(struct bench *b)
{
    op(b, b->w, "a", copy(b, VB_WQE_WRITE, 0, 32));
}

static void write_fixed(struct bench *b)
{
    struct vb_chain_op like = copy(b, VB_WQE_WRITE, 0, 32);
    if (b->bad)
        like.remote = vb_in(b->fixed, 0);
    op(b, b->w, "a", like);
}

static void compare_swap(struct bench *b)
{
    struct vb_chain_op like = copy(b, VB_WQE_ATOMIC_CS, 0, 0);
    like.remote = vb_in(b->data, b->bad ? 36 : 32);
    op(b, b->w, "a", like);
}

static void calculate(struct bench *b)
{
    struct vb_chain_op like = copy(b, VB_WQE_WRITE, 16, 32);
    like.calc = VB_WQE_CALC_ADD;
    like.part[0].len = b->bad ? 8 : 16;
    op(b, b->w, "a", like);
}

static void use_answer(struct bench *b)
{
    struct vb_chain_op like = copy(b, VB_WQE_WRITE, 16, 32);
    like.flags = b->bad ? 0 : VB_CHAIN_FENCE;
    op(b, b->w, "a", copy(b, VB_WQE_READ, 0, 16));
    op(b, b->w, "b", like);
}

// The READ puts an address into the WRITE: on its own queue, that is open; or on the other one.
static struct vb_chain_label patch(struct bench *b, struct vb_chain_queue queue,
                                   struct vb_chain_label v, bool waits)
{
    struct vb_chain_op writes = copy(b, VB_WQE_WRITE, 48, 96);
    const uint8_t secret[8] = "secret";

    vb_chain_put_address(b->c, vb_in(b->data, 0), vb_in(b->data, 64));
    vb_chain_put(b->c, vb_in(b->data, 64), secret, sizeof secret);
    struct vb_chain_label r = op(b, b->w, "r",
                                 (struct vb_chain_op){.opcode = VB_WQE_READ,
                                                      .remote = vb_in(b->data, 0),
                                                      .parts = 1,
                                                      .part = {{vb_at(v, VB_AT_ADDR), 8}}});
    if (waits)
        wait_for(b, "w", r);
    writes.label = v;
    vb_chain_op(b->c, queue, &writes);
    return queue.id == b->k.id ? open_through(b, "o", v) : v;
}

static void patch_open(struct bench *b)
{
    patch(b, b->bad ? b->w : b->k, vb_chain_label(b->c, "v"), !b->bad);
}

static void patch_unordered(struct bench *b)
{
    patch(b, b->k, vb_chain_label(b->c, "v"), !b->bad);
}

// The same, ordered by a fence instead of a WAIT.
static void patch_fenced(struct bench *b)
{
    struct vb_chain_label o = patch(b, b->k, vb_chain_label(b->c, "v"), false);
    vb_chain_add_flags(b->c, o, b->bad ? 0 : VB_CHAIN_FENCE);
}

// An entry that is open is compared, and would be made longer, but never has that length.
static void patch_never(struct bench *b)
{
    struct vb_chain_label n = vb_chain_label(b->c, "n");

    op(b, b->w, "c",
       (struct vb_chain_op){.opcode = VB_WQE_ATOMIC_CS,
                            .remote = vb_at(n, VB_AT_CTRL),
                            .compare = 9ull << 56,
                            .swap_add = 8ull << 56,
                            .parts = 1,
                            .part = {{vb_in(b->data, 0), 8}}});
    vb_chain_op(b->c, b->w, &(struct vb_chain_op){.opcode = VB_WQE_NOP, .label = n});
    op(b, b->w, "e", (struct vb_chain_op){.opcode = VB_WQE_NOP});
}

// Another one opens the entry before it is written; it is always skipped.
static void patch_jumped(struct bench *b)
{
    struct vb_chain_label v = vb_chain_label(b->c, "v");

    op(b, b->w, "j", (struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = 8});
    open_through(b, "early", v);
    patch(b, b->k, v, true);
}

static void covered(struct bench *b, bool covered_completes, bool wait_covered)
{
    struct vb_chain_op inner = copy(b, VB_WQE_WRITE, 0, 32);

    op(b, b->w, "n", (struct vb_chain_op){.opcode = VB_WQE_NOP, .ds = 8});
    inner.flags = covered_completes ? VB_CHAIN_SIGNALED : 0;
    struct vb_chain_label i = op(b, b->w, "i", inner);
    struct vb_chain_label e =
        op(b, b->w, "e", (struct vb_chain_op){.opcode = VB_WQE_NOP, .flags = VB_CHAIN_SIGNALED});
    wait_for(b, "w", wait_covered ? i : e);
}

static void covered_other(struct bench *b)
{
    covered(b, b->bad, b->bad);
}

static void covered_stuck(struct bench *b)
{
    covered(b, b->bad, false);
}

static void circle(struct bench *b)
{
    struct vb_flow *f = vb_flow_begin(b->c, "F");
    struct vb_var v = vb_flow_var(f, 0);

    vb_flow_loop(f);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, v, v, 1);
    if (!b->bad) {
        vb_flow_if_value(f, v, VB_GE, 3, 64);
        vb_flow_break(f);
        vb_flow_end(f);
    }
    vb_flow_end(f);
    vb_flow_end_program(f);
}

static const struct shipped *list_loop(void)
{
    uint32_t i = 0;

    while (strcmp(shipped_at(i)->name, "list_loop") != 0)
        i++;
    return shipped_at(i);
}

static struct vb_image *make(void (*build)(struct bench *), bool bad, bool list)
{
    char error[VB_IMAGE_TEXT] = "";
    struct bench b = {.bad = bad};

    if (!build)
        return list ? shipped_image(list_loop()) : hash_image(2);
    b.c = vb_chain_begin("planted");
    b.w = vb_chain_queue(b.c, "W", &(struct vb_chain_queue_opts){.unmanaged = true});
    b.k = vb_chain_queue(b.c, "K", &(struct vb_chain_queue_opts){0});
    b.data = vb_chain_region(b.c, "data", VB_CHAIN_OWN, 128, true);
    b.fixed = vb_chain_region(b.c, "fixed", VB_CHAIN_OWN, 64, false);
    build(&b);
    struct vb_image *image = vb_chain_finish(b.c, error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

// ---- damages to good images

static uint8_t *entry(struct vb_image *image, const char *label, uint32_t behind)
{
    int i = vb_image_find_label(image, label);
    assert_true(i >= 0);
    return image->queue[image->label[i].queue].code +
           (size_t)(image->label[i].block + behind) * VB_WQEBB_BYTES;
}

static void more(uint8_t *index, uint32_t by)
{
    vb_put_be32(index, vb_get_be32(index) + by);
}

static struct vb_reloc *reloc_at(struct vb_image *image, enum vb_place_kind kind, uint32_t index,
                                 uint64_t offset)
{
    for (uint32_t i = 0; i < image->relocs; i++)
        if (image->reloc[i].at.kind == kind && image->reloc[i].at.index == index &&
            image->reloc[i].at.offset == offset)
            return &image->reloc[i];
    fail_msg("no relocation");
    return NULL;
}

static void remove_entry(uint8_t *at)
{
    at[3] = VB_WQE_NOP;
    at[7] = 4;
}

static void silence_a(struct vb_image *i)
{
    entry(i, "a", 0)[11] = 0;
}
static void wait_more(struct vb_image *i)
{
    more(entry(i, "w", 0) + 24, 1);
}
static void open_more(struct vb_image *i)
{
    more(entry(i, "o", 0) + 24, 2);
}
static void unmanage(struct vb_image *i)
{
    i->queue[1].managed_send = false;
}
static void no_length(struct vb_image *i)
{
    entry(i, "a", 0)[7] = 0;
}
static void strange(struct vb_image *i)
{
    entry(i, "a", 0)[3] = 0x77;
}
static void longer(struct vb_image *i)
{
    vb_put_be32(entry(i, "a", 0) + 32, 4096);
}
static void forget_address(struct vb_image *i)
{
    *reloc_at(i, VB_IN_SEND, 0, 16) = i->reloc[--i->relocs];
}
static void no_queue(struct vb_image *i)
{
    i->queue[0].send_cq = 99;
}
// The third part of the first receive goes into the READ's address.
static void recv_longer(struct vb_image *i)
{
    vb_put_be32(i->queue[1].recv + 32, 12);
}
static void recv_to_key(struct vb_image *i)
{
    vb_put_be32(i->queue[1].recv + 32, 4);
    reloc_at(i, VB_IN_RECV, 1, 40)->target.offset += 8;
}
static void recv_twice(struct vb_image *i)
{
    reloc_at(i, VB_IN_RECV, 1, 8)->target = reloc_at(i, VB_IN_RECV, 1, 24)->target;
}
static void half_key(struct vb_image *i)
{
    vb_put_be32(entry(i, "bucket0", 1) + 32, 0);
}
static void no_guard(struct vb_image *i)
{
    remove_entry(entry(i, "compare0", 3));
}
static void recv_early(struct vb_image *i)
{
    more(entry(i, "compare0", 2) + 24, 1);
}
static void no_gate(struct vb_image *i)
{
    remove_entry(entry(i, "compare0", 10));
}
static void no_next(struct vb_image *i)
{
    remove_entry(entry(i, "compare0", 11));
}
static void equalize(struct vb_image *i)
{
    for (uint32_t k = 0; k < 8; k++) // the entry has them in the other order
        entry(i, "c", 0)[40 + k] = entry(i, "n", 0)[7 - k];
}
static void no_jump(struct vb_image *i)
{
    entry(i, "j", 0)[7] = 4;
}
static void no_list_gate(struct vb_image *i)
{
    remove_entry(entry(i, "gate1", 0));
}

// ---- what must be found

static const struct plant {
    enum vb_check_kind kind;
    void (*build)(struct bench *); // NULL: the hash get, or the list
    void (*damage)(struct vb_image *);
    const char *where, *other;
} plants[] = {
    {VB_CHECK_WAIT_NEVER, other_queue, silence_a, "W:w (wait)", "nobody"},
    {VB_CHECK_WAIT_BEYOND, other_queue, wait_more, "W:w (wait)", "K:a (nop)"},
    {VB_CHECK_WAIT_BEYOND, two_complete, wait_more, "W:w (wait)", "W:b (nop)"},
    {VB_CHECK_OPEN_BEYOND, other_queue, open_more, "W:o (send_en)", "K:a (nop)"},
    {VB_CHECK_OPEN_UNMANAGED, other_queue, unmanage, "W:o (send_en)", "K:a (nop)"},
    {VB_CHECK_NEVER_OPENED, nobody_opens, NULL, "K:a (nop)", "nobody"},
    {VB_CHECK_BAD_ENTRY, one_write, no_length, "W:a (write)", "nobody"},
    {VB_CHECK_BAD_ENTRY, one_write, strange, "W:a", "nobody"},
    {VB_CHECK_OUT_OF_REGION, one_write, longer, "W:a (write)", "nobody"},
    {VB_CHECK_NOT_WRITABLE, write_fixed, NULL, "W:a (write)", "nobody"},
    {VB_CHECK_UNSET, one_write, forget_address, "W:a (write)", "nobody"},
    {VB_CHECK_UNALIGNED_ATOMIC, compare_swap, NULL, "W:a (cas)", "nobody"},
    {VB_CHECK_CALC_RECORD, calculate, NULL, "W:a (write)", "nobody"},
    {VB_CHECK_ORDER, use_answer, NULL, "W:b (write)", "W:a (read)"},
    {VB_CHECK_PATCH_OPEN, patch_open, NULL, "W:v (write)", "W:r (read)"},
    {VB_CHECK_PATCH_UNORDERED, patch_unordered, NULL, "K:v (write)", "W:r (read)"},
    {VB_CHECK_PATCH_UNORDERED, patch_fenced, NULL, "K:v (write)", "W:r (read)"},
    {VB_CHECK_PATCH_OPEN, patch_never, equalize, "W:n (nop)", "W:c (cas)"},
    {VB_CHECK_PATCH_OPEN, patch_jumped, no_jump, "K:v (write)", "W:r (read)"},
    {VB_CHECK_SIGNALED_COVERED, covered_other, NULL, "W:i (write)", "W:n (nop)"},
    {VB_CHECK_ENDLESS, circle, NULL, "F#", "F#0"},
    {VB_CHECK_LONG_SCATTER, NULL, recv_longer, "K:recv0", "W:bucket0 (read)"},
    {VB_CHECK_SCATTER_OVERLAP, NULL, recv_twice, "K:recv0", "nobody"},
    {VB_CHECK_KEY_FROM_CLIENT, NULL, recv_to_key, "K:recv0", "W:bucket0 (read)"},
    {VB_CHECK_PARTIAL_PATCH, NULL, half_key, "W:compare0 (cas)", "K:pick0 (nop)"},
    {VB_CHECK_NOT_LOADED, one_write, no_queue, "nobody", "nobody"},
    {VB_CHECK_CHANGED_OPEN, patch_open, NULL, "W:v (write)", "W:r (read)"},
    {VB_CHECK_RESULT_DEPENDS, patch_open, NULL, "W:v (write)", "W:v (write)"},
    {VB_CHECK_STUCK_WAIT, covered_stuck, NULL, "W:w (wait)", "W:e (nop)"},
    {VB_CHECK_WAIT_OTHER, covered_other, NULL, "W:w (wait)", "W:e (nop)"},
    {VB_CHECK_FAULT, write_fixed, NULL, "W:a (write)", "nobody"},
    {VB_CHECK_NO_END, circle, NULL, "", "nobody"},
    {VB_CHECK_CHANGED_EARLY, NULL, no_guard, "K:pick1 (nop)", "W:compare0+9 (read)"},
    {VB_CHECK_RECV_EARLY, NULL, recv_early, "W:compare0+2 (recv_en)", "W:"},
    {VB_CHECK_OPEN_EARLY, NULL, no_gate, "W:compare0+11 (send_en)", "W:bucket1"},
    {VB_CHECK_STOPPED, NULL, no_next, "W:bucket1 (read)", "nobody"},
    {VB_CHECK_READ_EARLY, NULL, no_list_gate, "W:gate1+1 (read)", "K:recv0"},
};

static bool is_list(const struct plant *p)
{
    return p->damage == no_list_gate;
}

static void check(const struct vb_image *image, const struct plant *p, struct vb_findings *out)
{
    struct shipped_input in = {list_loop(), 0};
    bool hash = p->build == NULL && !is_list(p);

    vb_check_static(image, out);
    vb_check_dynamic(image,
                     &(struct vb_check_opts){.seeds = 2,
                                             .steps_max = 20000,
                                             .shared_bytes = p->build ? 0 : HASH_SHARED,
                                             .prepare = hash         ? hash_prepare
                                                        : is_list(p) ? shipped_prepare
                                                                     : NULL,
                                             .ctx = is_list(p) ? &in : NULL},
                     out);
    assert_false(out->no_memory);
}

static bool is_named(const struct vb_listing *l, struct vb_actor who, const char *name)
{
    char text[VB_LISTING_TEXT];
    vb_listing_actor_name(l, who, text);
    return strncmp(text, name, strlen(name)) == 0;
}

static void expect(const struct plant *p, const struct vb_image *image,
                   const struct vb_findings *found)
{
    struct vb_listing *l = vb_listing_make(image);
    bool seen = false;

    assert_non_null(l);
    for (uint32_t i = 0; i < found->count; i++) {
        const struct vb_finding *f = &found->finding[i];
        seen |= f->kind == p->kind && is_named(l, f->where, p->where) &&
                is_named(l, f->other, p->other) && strchr(f->text, ' ');
    }
    if (!seen) {
        for (uint32_t i = 0; i < found->count; i++)
            printf("[%s] %s\n", vb_check_name(found->finding[i].kind), found->finding[i].text);
        fail_msg("%s of %s and %s was not found", vb_check_name(p->kind), p->where, p->other);
    }
    vb_listing_free(l);
}

static void test_planted(void **state)
{
    bool kinds[VB_CHECK_KINDS] = {false};
    uint32_t different = 0;

    (void)state;
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        const struct plant *p = &plants[i];
        for (int bad = 0; bad < 2; bad++) {
            struct vb_findings found = {.count = 0};
            struct vb_image *image = make(p->build, bad, is_list(p));
            if (bad && p->damage)
                p->damage(image);
            check(image, p, &found);
            if (bad)
                expect(p, image, &found);
            else if (found.count)
                fail_msg("%s without the mistake: %s", vb_check_name(p->kind),
                         found.finding[0].text);
            vb_findings_free(&found);
            vb_image_destroy(image);
        }
        different += !kinds[p->kind];
        kinds[p->kind] = true;
    }
    printf("%u kinds of mistakes found\n", different);
    assert_int_equal(different, VB_CHECK_KINDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
