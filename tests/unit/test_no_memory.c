// SPDX-License-Identifier: Apache-2.0
// Each allocation of a scenario fails once: the call says so, everything else is as it was, and the
// same call then succeeds. A leak sanitizer sees what the failed call forgot.
#include "base/table.h"
#include "chain/text.h"
#include "cm/cm.h"
#include "cost/model.h"
#include "nic/facts.h"
#include "nic/pu.h"
#include "nic/spread.h"
#include "scarce_kit.h"
#include "verbena/offload.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Runs the scenario once for each of its allocations, and once more without a failure. It returns
// how many of its calls failed.
static uint32_t exhaust(uint32_t (*scenario)(void))
{
    for (uint32_t n = 0;; n++) {
        scarce_begin(n + 1, false);
        uint32_t failed = scenario();
        scarce_end();
        if (failed != scarce_failed())
            fail_msg("allocation %u: %u calls failed", n, failed);
        if (!scarce_failed())
            return n;
    }
}

// ---- the connection manager

static uint32_t make_manager(void)
{
    const struct vb_cm_opts opts = {.connections = 40, .listeners = 2, .outbox = 2};
    struct vb_cm *cm = vb_cm_create(&opts);

    vb_cm_destroy(cm);
    return cm == NULL;
}

static void test_manager(void **state)
{
    (void)state;
    assert_int_equal(exhaust(make_manager), 9); // itself, three lists, four indexes, timers
}

// ---- the device

static uint32_t make_device(void)
{
    struct vb_dev *dev = vb_dev_create(&(struct vb_dev_opts){.pus = 2});

    if (dev)
        vb_dev_destroy(dev);
    return dev == NULL;
}

static void test_device(void **state)
{
    (void)state;
    assert_true(exhaust(make_device) >= 2 + 2 * 5); // tables; a unit, its inbox…
}

enum {
    MANY = 17, // more than the first room of a list
    GROUPS = 17,
    KEYS = 40,
};

static uint8_t ring[4096] __attribute__((aligned(64)));
static uint32_t dbrec[2];
static const struct vb_ip here = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
                          there = {{[10] = 0xff, 0xff, 10, 0, 0, 2}};

struct maker {
    struct vb_dev *dev;
    uint32_t pd, cqn, qpn, failed;
};

// The call's result, which may be -ENOMEM once; then it is called again.
#define TRY(m, call)                         \
    do {                                     \
        int err_ = (call);                   \
        if (err_ != 0) {                     \
            assert_int_equal(err_, -ENOMEM); \
            (m)->failed++;                   \
            err_ = (call);                   \
        }                                    \
        assert_int_equal(err_, 0);           \
    } while (0)

static void make_many(struct maker *m)
{
    const struct vb_cqc_attr cq = {.ring = ring, .entries = 16, .dbrec = dbrec};
    uint32_t number;

    for (uint32_t i = 0; i < MANY; i++) {
        TRY(m, vb_dev_pd_create(m->dev, &m->pd));
        assert_int_equal(m->pd, i + 1);
        TRY(m, vb_dev_cq_create(m->dev, &cq, &m->cqn));
        assert_int_equal(m->cqn, i + 1);
    }
    const struct vb_srqc_attr srq = {
        .pd = m->pd, .ring = ring, .entries = 8, .stride_bytes = 32, .dbrec = dbrec};
    const struct vb_program_attr program = {.pd = m->pd, .audit_cqn = 1};
    for (uint32_t i = 0; i < MANY; i++) {
        TRY(m, vb_dev_srq_create(m->dev, &srq, &number));
        assert_int_equal(number, i + 1);
        TRY(m, vb_dev_program_create(m->dev, &program, &number));
        assert_int_equal(number, i + 1);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct vb_mkey_attr key = {.pd = m->pd,
                                         .kind = i % 20 ? VB_MKEY_REGION : VB_MKEY_NULL,
                                         .base = i % 20 ? ring : NULL,
                                         .len = i % 20 ? 64 : 0};
        TRY(m, vb_dev_mkey_create(m->dev, &key, &number));
    }
}

static void make_qp(struct maker *m, enum vb_qp_type type, bool cross)
{
    const struct vb_qpc_attr a = {.pd = m->pd,
                                  .type = type,
                                  .send_cqn = m->cqn,
                                  .recv_cqn = m->cqn,
                                  .sq_ring = ring,
                                  .sq_blocks = 64,
                                  .rq_ring = ring,
                                  .rq_entries = 32,
                                  .rq_stride_bytes = 16,
                                  .dbrec = dbrec,
                                  .cross_channel = cross,
                                  .program = cross ? 1 : 0};
    TRY(m, vb_dev_qp_create(m->dev, &a, &m->qpn));
}

static void connect(struct maker *m, const struct vb_ip *remote, uint32_t dest)
{
    struct vb_qpc_mods mods = {
        .mtu_bytes = 1024, .local = here, .remote = *remote, .dest_qpn = dest};

    for (enum vb_qp_state s = VB_QPS_INIT; s <= VB_QPS_RTS; s++) {
        mods.state = s;
        TRY(m, vb_dev_qp_modify(m->dev, m->qpn, &mods));
    }
}

static void make_group(struct maker *m)
{
    uint32_t first = m->qpn;
    struct vb_spread_attr spread = {.qpn = &first, .count = 1, .fields = VB_SPREAD_SRC};

    for (uint32_t i = 0; i < GROUPS; i++) {
        struct vb_ip group = {{[10] = 0xff, 0xff, 224, 0, 0, (uint8_t)i}};
        TRY(m, vb_dev_qp_attach(m->dev, m->qpn, &group));
    }
    make_qp(m, VB_QPT_UD, false);
    TRY(m, vb_dev_qp_spread(m->dev, m->qpn, &spread));
}

// The users of a domain are those that were made, however often a call failed.
static void compare_users(const struct maker *m, uint32_t qps)
{
    struct vb_pd_facts pds[MANY];
    struct vb_cq_facts cqs[MANY];
    struct vb_count_facts c;
    uint32_t at = 0;

    assert_int_equal(vb_facts_pds(m->dev, &at, pds, MANY), MANY);
    assert_int_equal(pds[m->pd - 1].users, MANY + MANY + KEYS + qps);
    at = 0;
    assert_int_equal(vb_facts_cqs(m->dev, &at, cqs, MANY), MANY);
    assert_int_equal(cqs[m->cqn - 1].users, 2 * qps);
    assert_int_equal(cqs[0].users, MANY);
    vb_facts_count(m->dev, &c);
    assert_true(c.pds == MANY && c.cqs == MANY && c.srqs == MANY && c.qps == qps);
    assert_int_equal(c.mrs, KEYS);
}

static uint32_t make_objects(void)
{
    static const struct vb_dcqcn_params dcqcn;
    struct maker m = {0};

    scarce_hold(true);
    m.dev = vb_dev_create(&(struct vb_dev_opts){.pus = 1, .dcqcn = &dcqcn});
    assert_non_null(m.dev);
    scarce_hold(false);
    make_many(&m);
    make_qp(&m, VB_QPT_RC, false);
    connect(&m, &there, 5);
    make_qp(&m, VB_QPT_UC, false);
    connect(&m, &there, 5);
    make_qp(&m, VB_QPT_RC, true);
    connect(&m, &here, m.qpn); // with itself
    make_qp(&m, VB_QPT_UD, false);
    TRY(&m, vb_dev_qp_limit(m.dev, m.qpn, 1000000, 0));
    make_group(&m);
    compare_users(&m, 5);
    vb_dev_destroy(m.dev);
    return m.failed;
}

static void test_objects(void **state)
{
    (void)state;
    assert_true(exhaust(make_objects) > 2 * MANY + 20);
}

// ---- tables, which never fail

static uint32_t fill_table(void)
{
    static struct vb_entry entry[500];
    struct vb_table t = {0};

    for (uint64_t i = 0; i < 500; i++)
        vb_table_add(&t, &entry[i], i * 7);
    for (uint64_t i = 0; i < 500; i++)
        assert_ptr_equal(vb_table_find(&t, i * 7), &entry[i]);
    vb_table_free(&t);
    return scarce_failed();
}

static void test_table(void **state)
{
    (void)state;
    assert_true(exhaust(fill_table) > 2);
}

// ---- the cost model

static const char program[] = "program p\ncq c entries 16\nregion d own 64 writable\n"
                              "queue W loop blocks 16 send_cq c\nqueue V loop blocks 16 send_cq c\n"
                              "code W\n    fadd d add 1 -> d+8:8 signaled\n    write d+8 <- d:8\n"
                              "code V\n    wait c 0\n    nop\n";

static struct vb_image *image;
static struct vb_cost_preset *preset;

static uint32_t read_preset(void)
{
    char error[VB_COST_TEXT] = "";
    struct vb_cost_preset *p = vb_cost_preset_named("nic-memory", error);

    assert_string_equal(error, p ? "" : "no memory");
    vb_cost_preset_free(p);
    return p == NULL;
}

static uint32_t run_model(void)
{
    char error[VB_COST_TEXT] = "";
    struct vb_cost *c = vb_cost_run(image, preset, &(struct vb_cost_opts){.seed = 1}, error);

    assert_int_equal(error[0] == 0, c != NULL); // the machine names what could not be made
    vb_cost_free(c);
    return c == NULL;
}

static uint32_t print_pages(void)
{
    char *(*const page[])(const struct vb_cost *) = {vb_cost_text, vb_cost_json, vb_cost_svg};
    uint32_t failed = 0;
    char error[VB_COST_TEXT] = "";

    scarce_hold(true);
    struct vb_cost *c = vb_cost_run(image, preset, &(struct vb_cost_opts){.seed = 1}, error);
    assert_non_null(c);
    scarce_hold(false);
    for (int i = 0; i < 3; i++) {
        char *text = page[i](c);
        failed += text == NULL;
        free(text);
    }
    vb_cost_free(c);
    return failed;
}

static void test_cost(void **state)
{
    char error[VB_IMAGE_TEXT];

    (void)state;
    image = vb_asm(program, strlen(program), error);
    preset = vb_cost_preset_named("connectx5-b", error);
    assert_true(image && preset);
    assert_int_equal(exhaust(read_preset), 1);
    assert_true(exhaust(run_model) > 20);
    assert_true(exhaust(print_pages) > 6);
    vb_cost_preset_free(preset);
    vb_image_destroy(image);
}

// ---- programs

static uint32_t assemble(void)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *made = vb_asm(program, strlen(program), error);

    assert_int_equal(error[0] == 0, made != NULL);
    vb_image_destroy(made);
    return made == NULL;
}

static uint32_t disassemble(void)
{
    char *text = vb_dis(image);

    free(text);
    return text == NULL;
}

static uint32_t make_offload(void)
{
    char error[VB_IMAGE_TEXT] = "";
    const struct vb_list_opts opts = {.nodes = 2, .slots = 2, .value_max = 64};
    struct vb_image *made = vb_offload_list_walk(&opts, error);

    assert_int_equal(error[0] == 0, made != NULL);
    vb_image_destroy(made);
    return made == NULL;
}

static void test_programs(void **state)
{
    char error[VB_IMAGE_TEXT];

    (void)state;
    assert_true(exhaust(assemble) > 5);
    image = vb_asm(program, strlen(program), error);
    assert_non_null(image);
    assert_true(exhaust(disassemble) > 2);
    vb_image_destroy(image);
    assert_true(exhaust(make_offload) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manager), cmocka_unit_test(test_device),
        cmocka_unit_test(test_objects), cmocka_unit_test(test_table),
        cmocka_unit_test(test_cost),    cmocka_unit_test(test_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
