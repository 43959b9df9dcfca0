// SPDX-License-Identifier: Apache-2.0
// Messages of the communication manager: every bit in its place, and nothing else taken for one.
#include "base/bytes.h"
#include "base/prng.h"
#include "cm/cma.h"
#include "cm/message.h"
#include "fresh_seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct vb_prng prng;

// A REQ as Linux's rdma_cm sends it to 10.1.2.3, written down by hand from the specification's
// table.
static void hand_written_req(uint8_t mad[VB_MAD_BYTES])
{
    static const uint8_t gids[32] = {
        [10] = 0xff, 0xff, 10, 1, 2, 4, [26] = 0xff, 0xff, 10, 1, 2, 3};
    uint8_t *d = mad + 24;

    memset(mad, 0, VB_MAD_BYTES);
    memcpy(mad, (uint8_t[]){1, 7, 2, 3}, 4);
    vb_put_be64(mad + 8, 0x1122334455667788);
    vb_put_be16(mad + 16, 0x0010);
    vb_put_be32(d, 0xcafe0001);
    vb_put_be64(d + 8, 0x0000000001061c1b); // port 7195 of RDMA_PS_TCP
    vb_put_be64(d + 16, 0x5054000000000001);
    vb_put_be24(d + 32, 0x000123);
    d[35] = 4;
    d[39] = 5;
    d[43] = 20 << 3 | 0 << 1 | 1; // time-out, RC, flow control
    vb_put_be24(d + 44, 0xabcdef);
    d[47] = 20 << 3 | 7;
    vb_put_be16(d + 48, 0xffff);
    d[50] = 5 << 4 | 6;           // MTU 4096, 6 RNR retries
    d[51] = 15 << 4 | 1 << 3 | 1; // 15 retries, SRQ, extended type 1
    vb_put_be32(d + 52, 0xffffffff);
    memcpy(d + 56, gids, 32);
    vb_put_be32(d + 88, 0x12345u << 12 | 3); // flow label, rate
    d[92] = 8;
    d[93] = 64;
    d[94] = 3 << 4;
    d[95] = 17 << 3;
    d[140] = 0xaa;
    d[231] = 0xbb;
}

static void test_req_by_hand(void **state)
{
    uint8_t mad[VB_MAD_BYTES], again[VB_MAD_BYTES];
    struct vb_cm_message m;

    (void)state;
    hand_written_req(mad);
    assert_int_equal(vb_cm_decode(mad, sizeof mad, &m), VB_CM_DECODE_OK);
    assert_int_equal(m.kind, VB_CM_REQ);
    assert_true(m.tid == 0x1122334455667788 && m.local_id == 0xcafe0001 && m.remote_id == 0);
    assert_true(m.req.service_id == vb_cma_service_id(VB_CMA_TCP, 7195));
    assert_true(m.req.ca_guid == 0x5054000000000001);
    assert_int_equal(m.req.qpn, 0x123);
    assert_int_equal(m.req.psn, 0xabcdef);
    assert_int_equal(m.req.responder_resources, 4);
    assert_int_equal(m.req.initiator_depth, 5);
    assert_int_equal(m.req.remote_timeout, 20);
    assert_int_equal(m.req.transport, VB_CM_RC);
    assert_int_equal(m.req.flow_control, 1);
    assert_int_equal(m.req.retries, 7);
    assert_int_equal(m.req.mtu, 5);
    assert_int_equal(m.req.rnr_retries, 6);
    assert_int_equal(m.req.max_cm_retries, 15);
    assert_int_equal(m.req.srq, 1);
    assert_int_equal(m.req.extended_transport, 1);
    assert_int_equal(m.req.primary.flow_label, 0x12345);
    assert_int_equal(m.req.primary.rate, 3);
    assert_int_equal(m.req.primary.hop_limit, 64);
    assert_int_equal(m.req.primary.sl, 3);
    assert_int_equal(m.req.primary.ack_timeout, 17);
    assert_int_equal(m.req.primary.remote_gid[15], 3);
    assert_int_equal(m.private_data[0], 0xaa);
    assert_int_equal(m.private_data[91], 0xbb);
    vb_cm_encode(&m, again);
    assert_memory_equal(again, mad, sizeof mad);
}

// Fields do not overlap, stay inside, and every message ends with its private data.
static void test_tables(void **state)
{
    (void)state;
    assert_null(vb_cm_layout((enum vb_cm_kind)0x0f));
    assert_null(vb_cm_layout((enum vb_cm_kind)0x1b));
    for (int kind = VB_CM_KIND_FIRST; kind <= VB_CM_KIND_LAST; kind++) {
        const struct vb_cm_layout *l = vb_cm_layout((enum vb_cm_kind)kind);
        uint8_t used[VB_MAD_DATA_BYTES * 8] = {0};
        assert_non_null(l);
        assert_int_equal(l->private_at + l->private_len, VB_MAD_DATA_BYTES);
        for (uint32_t i = 0; i < l->fields; i++) {
            const struct vb_cm_field *f = &l->field[i];
            uint32_t from = f->byte * 8u + f->bit, bits = f->width ? f->width : f->whole * 8u;
            assert_true(f->width <= f->size * 8u);
            for (uint32_t b = from; b < from + bits; b++) {
                assert_true(b < l->private_at * 8u);
                assert_int_equal(used[b]++, 0);
            }
        }
    }
}

static void fill(void *to, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)to)[i] = (uint8_t)vb_prng_next(&prng);
}

// Any bytes with a right header: what is decoded encodes to the same but for reserved bits, and
// decodes to the same again.
static void test_random_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint8_t mad[VB_MAD_BYTES], again[VB_MAD_BYTES];
        struct vb_cm_message m, n;
        fill(mad, sizeof mad);
        memcpy(mad, (uint8_t[]){1, 7, 2, 3}, 4);
        vb_put_be16(mad + 16, (uint16_t)(VB_CM_KIND_FIRST + i % VB_CM_KINDS));
        enum vb_cm_verdict verdict = vb_cm_decode(mad, sizeof mad, &m);
        if (verdict == VB_CM_DECODE_FIELD)
            continue;
        assert_int_equal(verdict, VB_CM_DECODE_OK);
        vb_cm_encode(&m, again);
        const struct vb_cm_layout *l = vb_cm_layout(m.kind);
        uint32_t at = VB_MAD_HEADER_BYTES + l->private_at;
        assert_memory_equal(again + at, mad + at, l->private_len);
        assert_memory_equal(again + 24, mad + 24, 4); // an id begins each of them
        assert_int_equal(vb_cm_decode(again, sizeof again, &n), VB_CM_DECODE_OK);
        assert_memory_equal(&m, &n, sizeof m);
    }
}

// The vendor's three bytes of ECE lie apart in REP and SIDR_REP.
static void test_vendor(void **state)
{
    struct vb_cm_message rep = {.kind = VB_CM_REP, .attr_mod = 0x01020304},
                         sidr = {.kind = VB_CM_SIDR_REP}, m;
    uint8_t mad[VB_MAD_BYTES];

    (void)state;
    rep.rep.vendor_id = sidr.sidr_rep.vendor_id = 0x0002c9;
    vb_cm_encode(&rep, mad);
    assert_int_equal(mad[24 + 15], 0x00);
    assert_int_equal(mad[24 + 19], 0x02);
    assert_int_equal(mad[24 + 23], 0xc9);
    assert_int_equal(vb_get_be32(mad + 20), 0x01020304);
    assert_int_equal(vb_cm_decode(mad, sizeof mad, &m), VB_CM_DECODE_OK);
    assert_int_equal(m.rep.vendor_id, 0x0002c9);
    vb_cm_encode(&sidr, mad);
    assert_int_equal(mad[24 + 11], 0xc9);
    assert_int_equal(vb_cm_decode(mad, sizeof mad, &m), VB_CM_DECODE_OK);
    assert_int_equal(m.sidr_rep.vendor_id, 0x0002c9);
}

static void test_refusals(void **state)
{
    static const struct {
        uint32_t at;
        uint8_t value;
        enum vb_cm_verdict verdict;
    } wrong[] = {
        {0, 2, VB_CM_DECODE_CLASS},         {1, 0x81, VB_CM_DECODE_CLASS},
        {2, 1, VB_CM_DECODE_CLASS},         {3, 0x83, VB_CM_DECODE_METHOD},
        {17, 0x0f, VB_CM_DECODE_ATTRIBUTE}, {17, 0x1b, VB_CM_DECODE_ATTRIBUTE},
        {16, 0x01, VB_CM_DECODE_ATTRIBUTE},
    };
    struct vb_cm_message m, rej = {.kind = VB_CM_REJ, .rej = {.info_len = 72}};
    uint8_t mad[VB_MAD_BYTES + 1] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hand_written_req(mad);
        mad[wrong[i].at] = wrong[i].value;
        assert_int_equal(vb_cm_decode(mad, VB_MAD_BYTES, &m), wrong[i].verdict);
    }
    hand_written_req(mad);
    assert_int_equal(vb_cm_decode(mad, VB_MAD_BYTES - 1, &m), VB_CM_DECODE_LENGTH);
    assert_int_equal(vb_cm_decode(mad, VB_MAD_BYTES + 1, &m), VB_CM_DECODE_LENGTH);
    assert_int_equal(vb_cm_decode(mad, 0, &m), VB_CM_DECODE_LENGTH);
    vb_cm_encode(&rej, mad);
    assert_int_equal(vb_cm_decode(mad, VB_MAD_BYTES, &m), VB_CM_DECODE_OK);
    mad[24 + 9] = 73 << 1;
    assert_int_equal(vb_cm_decode(mad, VB_MAD_BYTES, &m), VB_CM_DECODE_FIELD);
}

static void test_cma_header(void **state)
{
    struct vb_cma_header h = {.port = 0x1c1b}, again;
    uint8_t bytes[VB_CMA_HEADER_BYTES];
    static const uint8_t wanted[VB_CMA_HEADER_BYTES] = {0, 0x40, 0x1c,      0x1b, [16] = 10, 1,
                                                        2, 3,    [32] = 10, 9,    8,         7};
    enum vb_cma_space space;

    (void)state;
    memcpy(h.source.b, (uint8_t[16]){[10] = 0xff, 0xff, 10, 1, 2, 3}, 16);
    memcpy(h.target.b, (uint8_t[16]){[10] = 0xff, 0xff, 10, 9, 8, 7}, 16);
    vb_cma_encode(&h, bytes);
    assert_memory_equal(bytes, wanted, sizeof wanted);
    assert_true(vb_cma_decode(bytes, &again));
    assert_memory_equal(&h, &again, sizeof h);
    fill(h.source.b, 16);
    h.source.b[0] = 0xfd;
    memcpy(h.target.b, h.source.b, 16);
    vb_cma_encode(&h, bytes);
    assert_int_equal(bytes[1], 0x60);
    assert_true(vb_cma_decode(bytes, &again));
    assert_memory_equal(&h, &again, sizeof h);
    bytes[0] = 1;
    assert_false(vb_cma_decode(bytes, &again));
    bytes[0] = 0;
    bytes[1] = 0x50;
    assert_false(vb_cma_decode(bytes, &again));
    assert_true(vb_cma_space_of(0x0000000001110001, &space) && space == VB_CMA_UDP);
    assert_true(vb_cma_space_of(0x000000000106ffff, &space) && space == VB_CMA_TCP);
    assert_false(vb_cma_space_of(0x1000000001060001, &space));
    assert_int_equal(vb_cma_port(0x0000000001061c1b), 7195);
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(vb_cm_kind_text(VB_CM_SIDR_REP), "SIDR_REP");
    assert_string_equal(vb_cm_kind_text((enum vb_cm_kind)3), "?");
    assert_non_null(strstr(vb_cm_reason_text(VB_CM_INVALID_SERVICE), "service id"));
    assert_string_equal(vb_cm_reason_text(999), "unknown reason");
    assert_true(vb_cm_time_ns(0) == 4096 && vb_cm_time_ns(20) == 4294967296u);
}

int main(void)
{
    prng.state = fresh_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_req_by_hand),  cmocka_unit_test(test_tables),
        cmocka_unit_test(test_random_bytes), cmocka_unit_test(test_vendor),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_cma_header),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
