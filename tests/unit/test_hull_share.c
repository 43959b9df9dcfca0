// SPDX-License-Identifier: Apache-2.0
// Tenants of a hull: each is a share of its NIC, as the configuration says, and however many
// applications one has, all are served.
#include "../wait.h"
#include "duo.h"
#include "hull_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MANY = 80, // more than are looked at in one turn
};

struct app {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_qp *qp;
};

static void open_app(const struct vb_hull *hull, struct app *a)
{
    a->nic = hull_kit_attach(hull);
    assert_int_equal(vb_pd_alloc(a->nic, &a->pd), 0);
    assert_int_equal(vb_cq_create(a->nic, &(struct vb_cq_opts){.entries = 16}, &a->cq), 0);
    const struct vb_qp_opts opts = {.send_cq = a->cq, .recv_cq = a->cq, .send_depth = 8};
    assert_int_equal(vb_qp_create(a->pd, &opts, &a->qp), 0);
}

static void connect_app(struct app *a)
{
    struct vb_qp_peer peer = {.qpn = vb_qp_num(a->qp)};

    vb_nic_gid(a->nic, peer.gid);
    assert_int_equal(vb_qp_connect(a->qp, &peer), 0);
}

// The first share's: there is one tenant, this user.
static int ask(struct vb_hull *hull, struct vb_share_facts *facts)
{
    vb_host_lock(hull->nic);
    int err = vb_dev_share_query(hull->nic->dev, 1, facts);
    vb_host_unlock(hull->nic);
    return err;
}

static void reload(struct vb_hull *hull, const char *text)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char error[VB_ERROR_TEXT];

    assert_non_null(config);
    assert_int_equal(vb_hull_config_parse(text, (uint32_t)strlen(text), config, error), 0);
    assert_int_equal(vb_hull_reload(hull, config), 0);
    free(config);
}

static void test_a_tenant_is_a_share(void **state)
{
    struct vb_hull *hull =
        hull_kit_open(0, "udp", "[tenant *]\nweight = 250\ntenant_rate_kbps = 8000\n");
    struct vb_share_facts facts;
    struct app a, b;

    (void)state;
    assert_int_equal(ask(hull, &facts), -ENOENT);
    open_app(hull, &a);
    open_app(hull, &b); // of the same user
    assert_int_equal(ask(hull, &facts), 0);
    assert_int_equal(facts.weight, 250);
    assert_int_equal(facts.rate_Bps, 1000000);
    assert_int_equal(facts.queue_pairs, 2);
    vb_nic_close(a.nic);
    hull_kit_wait(hull, 1);
    assert_int_equal(ask(hull, &facts), 0);
    assert_int_equal(facts.queue_pairs, 1);
    vb_nic_close(b.nic);
    hull_kit_wait(hull, 0);
    assert_int_equal(ask(hull, &facts), -ENOENT);
    vb_hull_close(hull);
}

static void test_a_reload_changes_shares(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    struct vb_share_facts facts;
    struct app a;

    (void)state;
    open_app(hull, &a);
    assert_int_equal(ask(hull, &facts), 0);
    assert_int_equal(facts.weight, VB_SHARE_WEIGHT);
    assert_int_equal(facts.rate_Bps, 0);
    reload(hull, "[tenant *]\nweight = 7\ntenant_rate_kbps = 80\n");
    WAIT_UNTIL(ask(hull, &facts) != 0 || facts.weight == 7);
    assert_int_equal(facts.weight, 7);
    assert_int_equal(facts.rate_Bps, 10000);
    vb_nic_close(a.nic);
    vb_hull_close(hull);
}

static void test_all_applications_are_served(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", NULL);
    static struct app app[MANY];
    const struct vb_send_wr nop = {.opcode = VB_WR_NOP, .flags = VB_WR_SIGNALED};
    struct vb_wc wc;

    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        open_app(hull, &app[i]);
        connect_app(&app[i]);
    }
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < MANY; i++)
            assert_int_equal(vb_post_send(app[i].qp, &nop, 1), 1);
        for (uint32_t i = 0; i < MANY; i++) {
            WAIT_UNTIL(vb_poll_cq(app[i].cq, &wc, 1) != 0);
            assert_int_equal(wc.status, VB_WC_OK);
        }
    }
    for (uint32_t i = 0; i < MANY; i++)
        vb_nic_close(app[i].nic);
    vb_hull_close(hull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tenant_is_a_share),
        cmocka_unit_test(test_a_reload_changes_shares),
        cmocka_unit_test(test_all_applications_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
