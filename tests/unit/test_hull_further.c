// SPDX-License-Identifier: Apache-2.0
// A hull's NIC on several addresses: applications see them, leave from the one they name, and are
// told which line the configuration would need for another.
#include "hull_app.h"
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void gid_of(unsigned host, uint8_t gid[16])
{
    char text[16];

    pair_address(host, text);
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, text, gid + 12), 1);
}

static struct vb_hull *open_on_two(void)
{
    char address[16], text[64];

    pair_address(1, address);
    snprintf(text, sizeof text, "further = %s\n", address);
    return hull_kit_open(0, "udp", text);
}

static void test_addresses_are_listed(void **state)
{
    struct vb_hull *hull = open_on_two();
    struct vb_nic *nic = hull_kit_attach(hull);
    char why[VB_ERROR_TEXT], line[64], address[16];
    uint8_t gid[16], want[16];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        gid_of(i, want);
        assert_int_equal(vb_nic_address(nic, i, gid), 0);
        assert_memory_equal(gid, want, 16);
        assert_int_equal(vb_nic_take_address(nic, want), 0);
    }
    assert_int_equal(vb_nic_address(nic, 2, gid), -ENOENT);
    assert_int_equal(vb_nic_address(nic, UINT32_MAX, gid), -ENOENT);
    gid_of(2, want);
    assert_int_equal(vb_nic_take_address_or_say(nic, want, why), -EADDRNOTAVAIL);
    pair_address(2, address);
    snprintf(line, sizeof line, "'further = %s'", address);
    assert_non_null(strstr(why, line));
    assert_int_equal(vb_nic_take_address(nic, want), -EADDRNOTAVAIL);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// A peer that knows the second address alone: what leaves from the first it does not take.
static void test_connections_choose(void **state)
{
    struct duo_state *s = *state;
    struct duo_end peer = {0};
    struct hull_app a;

    s->hull[0] = open_on_two();
    hull_app_open(&a, s->hull[0]);
    peer.nic = s->nic[1] = duo_open_nic(2, "udp");
    assert_int_equal(vb_pd_alloc(peer.nic, &peer.pd), 0);
    assert_int_equal(vb_cq_create(peer.nic, &(struct vb_cq_opts){.entries = 16}, &peer.cq), 0);
    peer.memory = calloc(1, DUO_BYTES);
    assert_non_null(peer.memory);
    assert_int_equal(vb_mr_reg(peer.pd, peer.memory, DUO_BYTES, DUO_RIGHTS, &peer.mr), 0);
    struct vb_qp *there = duo_make_qp(&peer, (struct vb_qp_opts){0});
    struct vb_qp *here = duo_make_qp(&a.e, (struct vb_qp_opts){0});
    struct vb_qp_peer to = {.qpn = vb_qp_num(here), .rights = DUO_REMOTE};
    gid_of(1, to.gid);
    assert_int_equal(vb_qp_connect(there, &to), 0);
    to = (struct vb_qp_peer){.qpn = vb_qp_num(there)};
    gid_of(2, to.gid);
    gid_of(2, to.local);
    assert_int_equal(vb_qp_connect(here, &to), -EADDRNOTAVAIL); // it is the peer's
    gid_of(1, to.local);
    assert_int_equal(vb_qp_connect(here, &to), 0);
    memset(a.e.memory, 0x5a, 64);
    const struct vb_sge sge = {(uintptr_t)a.e.memory, 64, vb_mr_key(a.e.mr)};
    const struct vb_send_wr wr = {.wr_id = 4,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .opcode = VB_WR_WRITE,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)peer.memory,
                                  .rkey = vb_mr_key(peer.mr)};
    assert_int_equal(vb_post_send(here, &wr, 1), 1);
    duo_expect(a.e.cq, 4, VB_WC_OK);
    assert_memory_equal(a.e.memory, peer.memory, 64);
    hull_app_close(&a);
    vb_nic_close(s->nic[1]);
    s->nic[1] = NULL;
    free(peer.memory);
    hull_kit_wait(s->hull[0], 0);
    vb_hull_close(s->hull[0]);
    s->hull[0] = NULL;
}

static void refuse(const char *port, const char *further, const char *why)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    char address[16], text[256], error[VB_ERROR_TEXT] = "";
    struct vb_hull *hull;

    assert_non_null(config);
    pair_address(0, address);
    snprintf(text, sizeof text, "[nic hull]\naddress = %s\nport = %s\nfurther = %s\n", address,
             port, further);
    assert_int_equal(vb_hull_config_parse(text, (uint32_t)strlen(text), config, error), 0);
    assert_int_not_equal(vb_hull_open(config, 0, &hull, error), 0);
    if (!strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
    free(config);
}

static void test_what_cannot_be_had(void **state)
{
    (void)state;
    refuse("udp", "192.0.2.77", "further = 192.0.2.77");
    refuse("udp", "somewhere", "this is no address");
    refuse("shm", "127.0.0.1", "one address");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_listed),
        DUO_TEST(test_connections_choose, "hull"),
        cmocka_unit_test(test_what_cannot_be_had),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
