// SPDX-License-Identifier: Apache-2.0
// Whose a message is: by its service, by the receiver's id, or nobody's.
#include "base/prng.h"
#include "cm/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SENDERS = 0x12345678,
    RECEIVERS = 0xabcdef01, // of manager 0x157
    MANAGER = 0x157,
};

static struct vb_cm_route route_of(const struct vb_cm_message *m)
{
    uint8_t mad[VB_MAD_BYTES];
    vb_cm_encode(m, mad);
    return vb_cm_route(mad, sizeof mad);
}

static void test_by_service(void **state)
{
    static const struct {
        enum vb_cma_space space;
        enum vb_cm_space number;
    } spaces[] = {{VB_CMA_TCP, VB_CM_SPACE_TCP},
                  {VB_CMA_UDP, VB_CM_SPACE_UDP},
                  {VB_CMA_IPOIB, VB_CM_SPACE_UDP},
                  {VB_CMA_IB, VB_CM_SPACE_IB}};
    (void)state;
    for (unsigned i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        uint64_t id = vb_cma_service_id(spaces[i].space, 0xbeef);
        const struct vb_cm_message m[] = {
            {.kind = VB_CM_REQ, .local_id = SENDERS, .req.service_id = id},
            {.kind = VB_CM_SIDR_REQ, .local_id = SENDERS, .sidr_req.service_id = id}};
        for (unsigned k = 0; k < 2; k++) {
            const struct vb_cm_route r = route_of(&m[k]);
            assert_int_equal(r.kind, VB_CM_ROUTE_PORT);
            assert_int_equal(r.space, spaces[i].number);
            assert_int_equal(r.port, 0xbeef);
        }
    }
}

static void test_services_of_no_space(void **state)
{
    static const uint64_t ids[] = {0, 7, 0x0105beef, 0x1000001060007, UINT64_MAX};
    (void)state;
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++) {
        const struct vb_cm_message m = {.kind = VB_CM_REQ, .req.service_id = ids[i]};
        assert_int_equal(route_of(&m).kind, VB_CM_ROUTE_ANY);
    }
}

static void test_by_id(void **state)
{
    static const enum vb_cm_kind kinds[] = {VB_CM_MRA,  VB_CM_REJ,  VB_CM_REP, VB_CM_RTU,
                                            VB_CM_DREQ, VB_CM_DREP, VB_CM_LAP, VB_CM_APR};
    (void)state;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct vb_cm_message m = {.kind = kinds[i], .local_id = SENDERS, .remote_id = RECEIVERS};
        struct vb_cm_route r = route_of(&m);
        assert_int_equal(r.kind, VB_CM_ROUTE_ID);
        assert_int_equal(r.manager, MANAGER);
        m.remote_id = 0;
        r = route_of(&m);
        assert_int_equal(r.kind, kinds[i] == VB_CM_REJ ? VB_CM_ROUTE_ALL : VB_CM_ROUTE_ID);
    }
    // The asker's own id comes back.
    const struct vb_cm_message found = {.kind = VB_CM_SIDR_REP, .local_id = RECEIVERS};
    const struct vb_cm_route r = route_of(&found);
    assert_int_equal(r.kind, VB_CM_ROUTE_ID);
    assert_int_equal(r.manager, MANAGER);
}

static void test_no_messages(void **state)
{
    const struct vb_cm_message m = {.kind = VB_CM_REP, .remote_id = RECEIVERS};
    uint8_t mad[VB_MAD_BYTES];
    (void)state;
    vb_cm_encode(&m, mad);
    for (size_t len = 0; len <= VB_MAD_BYTES; len++) {
        uint8_t *exact = malloc(len + 1); // so that a sanitizer sees who reads beyond
        memcpy(exact + 1, mad, len);
        assert_int_equal(vb_cm_route(exact + 1, len).kind,
                         len < VB_CM_ROUTE_BYTES ? VB_CM_ROUTE_NONE : VB_CM_ROUTE_ID);
        free(exact);
    }
    for (unsigned at = 0; at < 4; at++) {
        mad[at] ^= 0x10;
        assert_int_equal(vb_cm_route(mad, sizeof mad).kind, VB_CM_ROUTE_NONE);
        mad[at] ^= 0x10;
    }
    for (unsigned kind = 0; kind < 1 << 16; kind++) {
        mad[16] = (uint8_t)(kind >> 8);
        mad[17] = (uint8_t)kind;
        assert_int_equal(vb_cm_route(mad, sizeof mad).kind == VB_CM_ROUTE_NONE,
                         kind < VB_CM_KIND_FIRST || kind > VB_CM_KIND_LAST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_service),
        cmocka_unit_test(test_services_of_no_space),
        cmocka_unit_test(test_by_id),
        cmocka_unit_test(test_no_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
