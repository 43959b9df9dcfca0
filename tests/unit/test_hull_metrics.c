// SPDX-License-Identifier: Apache-2.0
// Metrics of a hull: copies that its thread makes, and their text.
#include "duo.h"
#include "hull_kit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BYTES = 4096,
    SOON_NS = 10 * 1000 * 1000,
    ROUNDS = 50,
    TURNS = 100, // more than it takes to look at all queue pairs
};

#define PATIENCE_NS (DUO_PATIENCE_S * UINT64_C(1000000000))

static struct vb_metrics *make(void)
{
    struct vb_metrics *m = calloc(1, sizeof *m);

    assert_non_null(m);
    return m;
}

static char *print(const struct vb_metrics *const *metrics, uint32_t count)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    vb_metrics_print(out, metrics, count);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void says(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("no '%s' in:\n%s", line, text);
}

// ---- text

static void is_label(const char *value, const char *wanted)
{
    char text[64] = "";
    FILE *out = fmemopen(text, sizeof text, "w");

    assert_non_null(out);
    vb_metrics_put_label(out, value);
    fclose(out);
    assert_string_equal(text, wanted);
}

static void test_labels_are_escaped(void **state)
{
    (void)state;
    is_label("", "");
    is_label("verbena0", "verbena0");
    is_label("a\"} 1\nb\\", "a\\\"} 1\\nb\\\\");
    is_label("\x01\x7f\xc3\xa4", "????");
}

static void test_a_nic_that_does_not_answer(void **state)
{
    struct vb_metrics *up = make(), *down = make();
    const struct vb_metrics *both[] = {up, down};

    (void)state;
    snprintf(up->device, sizeof up->device, "up");
    snprintf(down->device, sizeof down->device, "down");
    up->up = true;
    up->counters = 2;
    up->counter[0] = 17;
    up->units = down->units = 2;
    up->unit[1] = (struct vb_metrics_unit){.queues = 6, .sent_pkts = 7, .rcvd_pkts = 8};
    up->tenants = 1;
    up->tenant[0] = (struct vb_metrics_tenant){.uid = 5, .used = {.bytes = 99}, .refused = 3};
    char *text = print(both, 2);
    says(text, "\nverbena_up{device=\"up\"} 1\nverbena_up{device=\"down\"} 0\n");
    says(text, "\n# HELP verbena_port_packets_transmitted_total Packets sent.\n"
               "# TYPE verbena_port_packets_transmitted_total counter\n"
               "verbena_port_packets_transmitted_total{device=\"up\",port=\"1\"} 17\n# HELP");
    says(text, "\nverbena_unit_queues{device=\"up\",unit=\"1\"} 0\n"
               "verbena_unit_queues{device=\"up\",unit=\"2\"} 6\n# HELP");
    says(text, "\nverbena_unit_packets_transmitted_total{device=\"up\",unit=\"2\"} 7\n");
    says(text, "\nverbena_unit_packets_received_total{device=\"up\",unit=\"2\"} 8\n");
    says(text, "\nverbena_tenant_memory_bytes{device=\"up\",tenant=\"5\"} 99\n");
    says(text, "\nverbena_tenant_refused_requests_total{device=\"up\",tenant=\"5\"} 3\n");
    assert_null(strstr(text, "port_packets_transmitted_total{device=\"down\""));
    free(text);
    free(up);
    free(down);
}

static void test_no_more_tenants_than_there_is_room(void **state)
{
    struct vb_metrics *m = make();
    const struct vb_metrics *one = m;
    uint32_t lines = 0;

    (void)state;
    m->up = true;
    m->tenants = 5 * VB_METRICS_TENANTS;
    char *text = print(&one, 1);
    says(text, "verbena_tenants{device=\"\"} 5120\n");
    for (const char *at = text; (at = strstr(at, "\nverbena_tenant_memories{")); at++)
        lines++;
    assert_int_equal(lines, VB_METRICS_TENANTS);
    free(text);
    free(m);
}

// ---- copies

static void work(struct vb_nic *nic)
{
    struct duo_end e = {.nic = nic};
    void *at = NULL;

    assert_int_equal(vb_pd_alloc(nic, &e.pd), 0);
    assert_int_equal(vb_hull_alloc(nic, NULL, BYTES, &at), 0);
    assert_int_equal(vb_mr_reg(e.pd, at, BYTES, VB_RIGHT_ALL, &e.mr), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16}, &e.cq), 0);
    struct vb_qp *qp = duo_make_qp(&e, (struct vb_qp_opts){0});
    struct vb_qp_peer peer = {.qpn = vb_qp_num(qp), .rights = VB_RIGHT_REMOTE_WRITE};
    vb_nic_gid(nic, peer.gid);
    assert_int_equal(vb_qp_connect(qp, &peer), 0); // with itself
    const struct vb_sge sge = {(uintptr_t)at, BYTES / 2, vb_mr_key(e.mr)};
    const struct vb_send_wr wr = {.opcode = VB_WR_WRITE,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)at + BYTES / 2,
                                  .rkey = vb_mr_key(e.mr)};
    struct vb_wc wc;
    assert_int_equal(vb_post_send(qp, &wr, 1), 1);
    while (vb_poll_cq(e.cq, &wc, 1) == 0)
        continue;
    assert_int_equal(wc.status, VB_WC_OK);
    assert_int_equal(vb_qp_destroy(qp), 0);
}

static void test_copies_are_what_is_there(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "udp", "[tenant *]\nqueue_pairs = 7\n");
    struct vb_metrics *m = make();
    uint64_t sent = 0;
    void *at;

    (void)state;
    assert_int_equal(vb_metrics_take(hull, PATIENCE_NS, m), 0);
    assert_true(m->up);
    assert_string_equal(m->device, "hull0");
    assert_int_equal(m->tenants, 0);
    assert_true(m->start_s > 0);
    struct vb_nic *nic = hull_kit_attach(hull);
    // The name keeps the tenant.
    assert_int_equal(vb_hull_alloc(nic, "kept", BYTES, &at), 0);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        work(nic);
        assert_int_equal(vb_metrics_take(hull, PATIENCE_NS, m), 0);
        assert_int_equal(m->tenants, 1);
        assert_int_equal(m->tenant[0].quota.queue_pairs, 7);
        // Queue pairs came and went; what they did adds up.
        assert_int_equal(m->tenant[0].used.queue_pairs, 0);
        assert_true(m->tenant[0].traffic.sent_bytes >= sent + BYTES / 2);
        sent = m->tenant[0].traffic.sent_bytes;
    }
    assert_int_equal(m->tenant[0].traffic.sent_bytes, m->counter[2]);
    assert_string_equal(vb_nic_counter_name(2), "sent_bytes");
    assert_int_equal(m->tenant[0].refused, 0);
    assert_int_equal(vb_hull_alloc(nic, "none", 0, &at), -ENOENT);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    assert_int_equal(vb_metrics_take(hull, PATIENCE_NS, m), 0);
    assert_int_equal(m->applications, 0);
    assert_int_equal(m->tenant[0].refused, 1);
    assert_int_equal(m->tenant[0].traffic.sent_bytes, sent);
    free(m);
    vb_hull_close(hull);
}

static void test_who_asks_does_not_wait_for_ever(void **state)
{
    struct vb_hull_config *config = malloc(sizeof *config);
    struct vb_metrics *m = make();
    char error[VB_ERROR_TEXT];
    struct vb_hull *hull;

    (void)state;
    assert_non_null(config);
    vb_hull_config_init(config);
    snprintf(config->nic[0].port, sizeof config->nic[0].port, "shm");
    config->nic[0].no_thread = true;
    assert_int_equal(vb_hull_open(config, 0, &hull, error), 0);
    assert_int_equal(vb_metrics_take(hull, SOON_NS, m), -ETIMEDOUT);
    assert_false(m->up);
    // A hull that comes back to it later writes to nobody.
    memset(m, 0x5a, sizeof *m);
    for (unsigned i = 0; i < TURNS; i++)
        vb_hull_turn(hull);
    assert_false(vb_metrics_asked(&hull->metrics));
    for (size_t i = 0; i < sizeof *m; i++)
        assert_int_equal(((const uint8_t *)m)[i], 0x5a);
    vb_hull_close(hull);
    free(config);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_a_nic_that_does_not_answer),
        cmocka_unit_test(test_no_more_tenants_than_there_is_room),
        cmocka_unit_test(test_copies_are_what_is_there),
        cmocka_unit_test(test_who_asks_does_not_wait_for_ever),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
