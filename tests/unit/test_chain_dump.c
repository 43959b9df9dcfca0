// SPDX-License-Identifier: Apache-2.0
// Programs that are dumped: what was loaded and not run is the program again, what runs is what its
// memory holds, and both can be assembled.
#include "chain/image.h"
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
    PROGRAMS = 7,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_TEST(test_a_fresh_program_is_itself, "udp"),
        DUO_TEST(test_a_fresh_program_is_itself, "hull"),
        DUO_TEST(test_a_live_program_can_be_read, "shm"),
        DUO_TEST(test_a_live_program_can_be_read, "udp"),
        DUO_TEST(test_a_live_program_can_be_read, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
