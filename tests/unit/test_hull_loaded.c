// SPDX-License-Identifier: Apache-2.0
// A service that comes back finds the programs it had loaded, and can end what is under a tag.
#include "duo.h"
#include "host/load.h"
#include "host/offload_service.h"
#include "hull_get.h"
#include "hull_table.h"
#include "offload_rig.h"
#include "pair.h"
#include "service_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    PROGRAM = 5, // tags
    PARTS = 6,
    OTHER = 8,
    OFFLOADS = 100,
    SLOTS = 2, // as hull_get.c has them
};

static struct vb_image *make_image(uint32_t slots)
{
    char why[VB_IMAGE_TEXT];
    struct vb_image *image =
        vb_offload_hash_get(&(struct vb_hash_opts){.slots = slots, .value_max = TABLE_VALUE}, why);

    if (!image)
        fail_msg("%s", why);
    return image;
}

struct gets {
    struct vb_hull *hull;
    struct get_server s;
    struct get_client c;
    struct get_card card;
};

static void start(struct gets *g)
{
    struct get_card own;
    char address[16];

    g->hull = hull_kit_open(0, "udp", NULL);
    pair_address(1, address);
    assert_true(get_client_open(&g->c, address, "udp"));
    get_client_card(&g->c, &own);
    assert_true(get_server_open(&g->s, g->hull->path, "table", "gets"));
    for (uint32_t key = 0; key < TABLE_KEYS; key++)
        table_put(g->s.memory, key, 1);
    assert_int_equal(vb_service_tag(g->s.nic, PROGRAM), 0);
    assert_true(get_server_serve(&g->s, &own, &g->card));
    assert_true(get_client_join(&g->c, &g->card));
}

static void expect_gets(struct gets *g)
{
    uint64_t version;

    for (uint32_t key = 0; key < 8; key++)
        assert_int_equal(get_client_get(&g->c, key, &version), GET_RIGHT);
}

// The process changes. What it knew of its program is forgotten, as when it is killed.
static void change(struct gets *g)
{
    vb_loaded_free(g->s.loaded);
    vb_nic_close(g->s.nic);
    hull_kit_wait(g->hull, 0);
    g->s = (struct get_server){.nic = service_open(g->hull, "gets")};
}

static void finish(struct gets *g)
{
    assert_int_equal(vb_service_release(g->s.nic), 0);
    vb_nic_close(g->s.nic);
    get_client_close(&g->c);
    assert_int_equal(hull_kit_wait(g->hull, 0).objects, 0);
    vb_hull_close(g->hull);
}

static void test_a_program_is_found(void **state)
{
    struct vb_image *image = make_image(SLOTS), *other = make_image(2 * SLOTS);
    const struct vb_load_opts opts = {0};
    char why[VB_IMAGE_TEXT];
    struct vb_loaded *loaded;
    struct vb_qp *qp;
    struct gets g;

    (void)state;
    start(&g);
    expect_gets(&g);
    uint64_t bytes = vb_loaded_bytes(g.s.loaded);
    change(&g);
    assert_int_equal(vb_service_loaded(g.s.nic, OTHER, image, &opts, &loaded, why), -ENOENT);
    assert_int_equal(vb_service_loaded(g.s.nic, PROGRAM, other, &opts, &loaded, why), -EINVAL);
    assert_non_null(strstr(why, "is another"));
    expect_gets(&g);
    if (vb_service_loaded(g.s.nic, PROGRAM, image, &opts, &loaded, why) != 0)
        fail_msg("%s", why);
    g.s.loaded = loaded;
    assert_int_equal(vb_loaded_bytes(loaded), bytes);
    assert_int_equal(vb_qp_num(vb_loaded_qp(loaded, "K")), g.card.qpn);
    assert_null(vb_loaded_qp(loaded, "nobody"));
    char *text = vb_chain_dump(loaded, image, why);
    assert_non_null(text);
    assert_non_null(strstr(text, "# queue K: RTS"));
    free(text);
    expect_gets(&g);
    assert_int_equal(vb_chain_start(loaded), 0); // it was, and goes on
    expect_gets(&g);
    change(&g); // as often as one likes
    assert_int_equal(vb_service_loaded(g.s.nic, PROGRAM, image, &opts, &loaded, why), 0);
    expect_gets(&g);
    vb_chain_unload(loaded);
    assert_int_equal(vb_service_qp(g.s.nic, PROGRAM, 0, &qp), -ENOENT);
    assert_int_equal(vb_service_loaded(g.s.nic, PROGRAM, image, &opts, &loaded, why), -ENOENT);
    vb_image_destroy(image);
    vb_image_destroy(other);
    finish(&g);
}

// Of a program that was not there to its end nothing is left, and it can be loaded again.
static void test_one_that_was_not_finished(void **state)
{
    struct vb_image *image = make_image(SLOTS);
    const struct vb_load_opts opts = {0};
    char why[VB_IMAGE_TEXT];
    struct vb_loaded *loaded;
    struct vb_cq *cq;
    struct gets g;

    (void)state;
    start(&g);
    assert_int_equal(vb_service_tag(g.s.nic, PARTS), 0);
    for (uint32_t i = 0; i + 1 < image->cqs; i++) {
        const struct vb_cq_opts part = {.entries = image->cq[i].entries, .ignore_overrun = true};
        assert_int_equal(vb_cq_create(g.s.nic, &part, &cq), 0);
    }
    change(&g);
    assert_int_equal(vb_service_cq(g.s.nic, PARTS, 0, &cq), 0);
    assert_int_equal(vb_service_loaded(g.s.nic, PARTS, image, &opts, &loaded, why), -ENOENT);
    assert_int_equal(vb_service_cq(g.s.nic, PARTS, 0, &cq), -ENOENT);
    expect_gets(&g);                                         // what has another tag does not notice
    assert_int_equal(vb_service_clear(g.s.nic, PROGRAM), 0); // running or not
    assert_int_equal(vb_service_loaded(g.s.nic, PROGRAM, image, &opts, &loaded, why), -ENOENT);
    vb_image_destroy(image);
    finish(&g);
}

// ---- clients of a service of offloads

static void open_offloads(struct offload_rig *rig, struct vb_hull *hull)
{
    *rig = (struct offload_rig){0};
    rig->d.end[0].nic = duo_open_nic(1, "udp");
    rig->d.end[1].nic = service_open(hull, "offloads");
    assert_int_equal(vb_service_tag(rig->d.end[1].nic, OTHER), 0);
    duo_open_ends(&rig->d);
    offload_rig_start(rig, (struct vb_offload_service_opts){.clients_max = 4, .tag = OFFLOADS});
}

// False: the memory is not where clients look for it.
static bool change_offloads(struct offload_rig *rig, struct vb_hull *hull)
{
    struct vb_service_memory memory;

    vb_offload_leave(rig->service);
    vb_nic_close(rig->d.end[1].nic);
    hull_kit_wait(hull, 0);
    rig->d.end[1].nic = service_open(hull, "offloads");
    assert_int_equal(vb_service_memory(rig->d.end[1].nic, OTHER, 0, &memory), 0);
    rig->d.end[1].memory = memory.addr;
    offload_rig_start(rig, (struct vb_offload_service_opts){.clients_max = 4, .tag = OFFLOADS});
    return (uintptr_t)memory.addr == memory.was;
}

static void close_offloads(struct offload_rig *rig, struct vb_hull *hull)
{
    assert_int_equal(vb_service_release(rig->d.end[1].nic), 0);
    vb_nic_close(rig->d.end[1].nic);
    vb_nic_close(rig->d.end[0].nic);
    free(rig->d.end[0].memory);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    vb_hull_close(hull);
}

static void test_clients_of_offloads_stay(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct offload_client c[3];
    struct offload_rig rig;
    char why[VB_IMAGE_TEXT];

    (void)state;
    open_offloads(&rig, hull);
    struct offload_objects none = offload_rig_count(&rig);
    for (uint32_t i = 0; i < 2; i++) {
        offload_client_open(&rig, &c[i], i, RIG_DEPTH);
        offload_client_work(&c[i], 20);
    }
    struct offload_objects two = offload_rig_count(&rig);
    uint64_t bytes = offload_rig_stat(&rig).bytes;
    bool same = change_offloads(&rig, hull);
    assert_int_equal(vb_offload_recover(rig.service), 2);
    assert_int_equal(vb_offload_recover(rig.service), 0); // once
    offload_rig_expect(&rig, &two);
    assert_int_equal(offload_rig_stat(&rig).clients, 2);
    assert_int_equal(offload_rig_stat(&rig).bytes, bytes);
    for (uint32_t i = 0; i < 2 && same; i++)
        offload_client_work(&c[i], 20); // without having noticed
    uint64_t ticket = c[0].place.ticket;
    char *text = vb_chain_dump(vb_offload_loaded(rig.service, ticket),
                               vb_offload_image(rig.service, ticket), why);
    assert_non_null(text);
    free(text);
    offload_client_leave(&rig, &c[0]);
    offload_client_open(&rig, &c[2], 2, RIG_DEPTH);
    offload_client_work(&c[2], 20);
    offload_rig_expect(&rig, &two);
    change_offloads(&rig, hull); // the first message brings them back, too
    offload_client_leave(&rig, &c[1]);
    offload_client_leave(&rig, &c[2]);
    offload_rig_expect(&rig, &none);
    for (uint32_t i = 0; i < 3; i++)
        offload_client_close(&c[i]);
    vb_offload_close(rig.service);
    close_offloads(&rig, hull);
}

// The process died while it was making or ending a client, or wrote over what it knew of it.
static void test_half_a_client_goes(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_offload_service *more;
    struct vb_service_memory table;
    struct offload_client c[3];
    struct offload_rig rig;

    (void)state;
    open_offloads(&rig, hull);
    struct vb_nic *nic = rig.d.end[1].nic;
    struct vb_offload_service_opts opts = {.clients_max = 4000, .tag = OFFLOADS};
    assert_int_equal(vb_offload_open(nic, &opts, &more), -EINVAL);              // it was for fewer
    assert_int_equal(vb_offload_open(rig.d.end[0].nic, &opts, &more), -EINVAL); // no service
    struct offload_objects none = offload_rig_count(&rig);
    for (uint32_t i = 0; i < 3; i++)
        offload_client_open(&rig, &c[i], i, RIG_DEPTH);
    assert_int_equal(vb_service_memory(nic, OFFLOADS, 0, &table), 0);
    struct vb_offload_record *record = table.addr;
    vb_offload_record_mark(&record[c[0].place.ticket & 0xffff], VB_OFFLOAD_PARTS);
    memset(&record[c[1].place.ticket & 0xffff].join, 0xff, sizeof record->join);
    record[c[2].place.ticket & 0xffff].ticket ^= 1; // of another place
    change_offloads(&rig, hull);
    assert_int_equal(vb_offload_recover(rig.service), 0);
    offload_rig_expect(&rig, &none);
    for (uint32_t i = 0; i < 3; i++)
        offload_client_close(&c[i]);
    offload_client_open(&rig, &c[0], 0, RIG_DEPTH); // their places are free
    offload_client_work(&c[0], 20);
    offload_client_close(&c[0]);
    vb_offload_close(rig.service);
    offload_rig_expect(&rig, &none);
    close_offloads(&rig, hull);
}

// ---- tags

static void test_a_tag_is_cleared(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct service_app a;
    struct vb_pd *pd;
    struct vb_mr *mr;
    void *memory;

    (void)state;
    assert_int_equal(vb_service_clear(nic, 0), -EINVAL); // no service
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    service_make(&a, hull, true);
    assert_int_equal(vb_hull_alloc(a.nic, "kept", 4096, &memory), 0);
    assert_int_equal(vb_service_tag(a.nic, OTHER), 0);
    assert_int_equal(vb_mr_reg(a.pd, memory, 4096, VB_RIGHT_ALL, &mr), 0);
    service_change(&a, hull);
    assert_int_equal(vb_service_clear(a.nic, SERVICE_TAG), -EBUSY); // a region is in its domain
    assert_int_equal(vb_service_clear(a.nic, OTHER), 0);
    assert_int_equal(vb_service_clear(a.nic, SERVICE_TAG), 0);
    assert_int_equal(vb_service_pd(a.nic, SERVICE_TAG, 0, &pd), -ENOENT);
    struct vb_service_memory kept;
    assert_int_equal(vb_service_memory(a.nic, SERVICE_TAG, 0, &kept), 0);
    assert_string_equal(kept.name, "kept");
    assert_int_equal(vb_hull_free(a.nic, kept.addr), 0);
    service_end(&a, hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_is_found),
        cmocka_unit_test(test_one_that_was_not_finished),
        cmocka_unit_test(test_clients_of_offloads_stay),
        cmocka_unit_test(test_half_a_client_goes),
        cmocka_unit_test(test_a_tag_is_cleared),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
