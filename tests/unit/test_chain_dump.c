// SPDX-License-Identifier: Apache-2.0
// Programs that are dumped: what was loaded and not run is the program again, what runs is what its
// memory holds, and both can be assembled.
#include "base/prng.h"
#include "chain/image.h"
#include "chain/machine.h"
#include "chain/text.h"
#include "offload_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    QUEUES = 4,
    REGIONS = 16,
    PROGRAMS = 7,
    CHANGES = 300,
};

static struct vb_image *program(uint32_t n)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image;

    if (n < 3)
        image = vb_offload_hash_get(&(struct vb_hash_opts){.slots = 4, .way = (enum vb_hash_way)n},
                                    error);
    else if (n < 5)
        image = vb_offload_list_walk(&(struct vb_list_opts){.slots = 4, .stops = n == 4}, error);
    else if (n == 5)
        image = vb_offload_list_loop(&(struct vb_list_opts){0}, error);
    else
        image = vb_offload_universal(&(struct vb_universal_opts){.rules = 4, .cells = 16}, error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

static void expect_same(const struct vb_image *image, const char *text)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *again = vb_asm(text, strlen(text), error);

    if (!again)
        fail_msg("%s\n%s", error, text);
    assert_true(vb_image_equal(image, again));
    vb_image_destroy(again);
}

// ---- on a NIC

static struct vb_loaded *load(struct duo *d, const struct vb_image *image, uint64_t start)
{
    static const char *const names[] = {"index", "items", "client", "table", "tape"};
    struct vb_load_memory memory[5];
    struct vb_loaded *loaded = NULL;
    char error[VB_IMAGE_TEXT] = "";

    for (uint32_t i = 0; i < 5; i++)
        memory[i] = (struct vb_load_memory){names[i], 0x10000000 + i * 0x100000ull, 0x4200 + i};
    if (vb_chain_load(d->end[1].nic, image,
                      &(struct vb_load_opts){
                          .pd = d->end[1].pd, .memory = memory, .memories = 5, .start = start},
                      &loaded, error) != 0)
        fail_msg("%s", error);
    return loaded;
}

static void test_a_fresh_program_is_itself(void **state)
{
    struct duo d;
    char error[VB_IMAGE_TEXT] = "";

    duo_open(&d, *state);
    for (uint32_t n = 0; n < 2 * PROGRAMS; n++) {
        struct vb_image *image = program(n % PROGRAMS);
        struct vb_loaded *loaded = load(&d, image, n < PROGRAMS ? 0 : (1u << 24) - (1u << 15));
        char *text = vb_chain_dump(loaded, image, error);
        if (!text)
            fail_msg("%s", error);
        expect_same(image, text);
        free(text);
        struct vb_image *other = program((n + 1) % PROGRAMS);
        assert_null(vb_chain_dump(loaded, other, error));
        assert_non_null(strstr(error, "not loaded here"));
        vb_image_destroy(other);
        vb_chain_unload(loaded);
        vb_image_destroy(image);
    }
    duo_close(&d);
}

// A client's program while it is in use.
static void test_a_live_program_can_be_read(void **state)
{
    struct offload_rig rig;
    struct offload_client c;
    char error[VB_IMAGE_TEXT] = "";

    offload_rig_open(&rig, *state, (struct vb_offload_service_opts){0});
    offload_client_open(&rig, &c, 0, RIG_DEPTH);
    const struct vb_image *image = vb_offload_image(rig.service, c.place.ticket);
    for (uint32_t round = 0; round < 20; round++) {
        offload_client_work(&c, 7);
        offload_client_ask(&c, 5, 5); // it may be under way
        char *text = vb_chain_dump(vb_offload_loaded(rig.service, c.place.ticket), image, error);
        if (!text)
            fail_msg("%s", error);
        offload_client_expect(&c, 5, true);
        assert_non_null(strstr(text, "# queue W: RTS; blocks open before "));
        assert_non_null(strstr(text, "pick0:"));
        struct vb_image *now = vb_asm(text, strlen(text), error);
        if (!now)
            fail_msg("%s\n%s", error, text);
        assert_false(vb_image_equal(now, image)); // its counters have moved
        assert_int_equal(now->labels, image->labels);
        char *canonical = vb_dis(now);
        assert_string_equal(canonical, strstr(text, "program "));
        free(canonical);
        free(text);
        vb_image_destroy(now);
    }
    offload_client_close(&c);
    offload_rig_close(&rig);
}

// ---- off a NIC

static void test_a_machine_is_dumped(void **state)
{
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    for (uint32_t n = 0; n < PROGRAMS; n++) {
        struct vb_image *image = program(n);
        struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){0}, error);
        assert_non_null(m);
        struct vb_image *now = vb_machine_snapshot(m);
        assert_true(vb_image_equal(image, now));
        vb_image_destroy(now);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

struct placement {
    const struct vb_image *image;
    struct vb_image_memory send[QUEUES], recv[QUEUES], data[REGIONS];
    uint32_t qpn[4], cqn[8];
    struct vb_image_binding binding;
};

static struct vb_image_memory memory(uint64_t bytes, uint32_t n)
{
    return (struct vb_image_memory){0x7000000000 + n * 0x1000000ull, 0x100 + n,
                                    calloc(1, bytes ? bytes : 1)};
}

static void place(struct placement *p, const struct vb_image *image)
{
    *p = (struct placement){.image = image};
    assert_true(image->queues <= QUEUES && image->regions <= REGIONS);
    p->binding = (struct vb_image_binding){p->send, p->recv, p->data, p->qpn, p->cqn, 1u << 16};
    for (uint32_t i = 0; i < image->queues; i++) {
        const struct vb_image_queue *q = &image->queue[i];
        p->send[i] = memory((uint64_t)q->blocks * VB_WQEBB_BYTES, i);
        p->recv[i] = memory((uint64_t)q->recvs * q->recv_stride, 8 + i);
        p->qpn[i] = 0x40 + i;
    }
    for (uint32_t i = 0; i < image->cqs; i++)
        p->cqn[i] = 0x60 + i;
    for (uint32_t i = 0; i < image->regions; i++)
        p->data[i] = memory(image->region[i].bytes, 16 + i);
    vb_image_place(image, &p->binding);
}

static void forget(struct placement *p)
{
    for (uint32_t i = 0; i < p->image->queues; i++) {
        free(p->send[i].at);
        free(p->recv[i].at);
    }
    for (uint32_t i = 0; i < p->image->regions; i++)
        free(p->data[i].at);
}

// Some bytes of a relocation, or all of them: another memory's address, another key.
static void change(struct placement *p, struct vb_prng *prng)
{
    const struct vb_reloc *a = &p->image->reloc[vb_prng_below(prng, p->image->relocs)];
    const struct vb_reloc *b = &p->image->reloc[vb_prng_below(prng, p->image->relocs)];
    uint32_t len = vb_reloc_bytes(a->kind);

    if (a->at.kind != VB_IN_SEND || b->at.kind != VB_IN_SEND)
        return;
    uint8_t *at = p->send[a->at.index].at + a->at.offset;
    const uint8_t *other = p->send[b->at.index].at + b->at.offset;
    if (vb_prng_below(prng, 2))
        at[vb_prng_below(prng, len)] ^= (uint8_t)(1 + vb_prng_below(prng, 255));
    else if (a->kind == b->kind)
        memmove(at, other, len);
}

static uint8_t *copy_of(const uint8_t *bytes, uint64_t len)
{
    uint8_t *copy = malloc(len);
    memcpy(copy, bytes, len);
    return copy;
}

// Whatever became of it: a dump that is placed there again is what was there.
static void test_a_dump_holds_every_byte(void **state)
{
    struct vb_prng prng = {.state = 9};

    (void)state;
    for (uint32_t n = 0; n < PROGRAMS; n++) {
        struct vb_image *image = program(n);
        struct placement p;
        uint32_t kept = 0;
        place(&p, image);
        for (uint32_t i = 0; i < CHANGES; i++) {
            uint64_t bytes = (uint64_t)image->queue[0].blocks * VB_WQEBB_BYTES;
            char error[VB_IMAGE_TEXT] = "";
            change(&p, &prng);
            uint8_t *before = copy_of(p.send[0].at, bytes);
            struct vb_image *now = vb_image_snapshot(image, &p.binding);
            if (!vb_image_check(now, error))
                fail_msg("%s", error);
            kept += now->relocs;
            memset(p.send[0].at, 0xaa, bytes);
            vb_image_place(now, &p.binding);
            assert_memory_equal(p.send[0].at, before, bytes);
            if (i % 50 == 0) {
                char *text = vb_dis(now);
                expect_same(now, text);
                free(text);
            }
            free(before);
            vb_image_destroy(now);
        }
        assert_true(kept < CHANGES * image->relocs); // some name nothing any more
        assert_true(kept > CHANGES * image->relocs / 4);
        forget(&p);
        vb_image_destroy(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_a_fresh_program_is_itself, "udp"),
        DUO_TEST(test_a_fresh_program_is_itself, "hull"),
        DUO_TEST(test_a_live_program_can_be_read, "shm"),
        DUO_TEST(test_a_live_program_can_be_read, "udp"),
        DUO_TEST(test_a_live_program_can_be_read, "hull"),
        cmocka_unit_test(test_a_machine_is_dumped),
        cmocka_unit_test(test_a_dump_holds_every_byte),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
