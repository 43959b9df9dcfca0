// SPDX-License-Identifier: Apache-2.0
// The peers of a datagram rsocket: found again by address and port, and forgotten in the order of
// their last use.
#include "rsocket/datagram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>

#include <cmocka.h>

enum {
    PEERS = 4
};

struct peers {
    struct vb_rs_datagrams d;
    struct vb_rs_dest dest[PEERS];
};

static struct sockaddr_storage name_of(const char *text, uint16_t port)
{
    struct sockaddr_storage s = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&s;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&s;

    if (strchr(text, ':')) {
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    } else {
        *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
    }
    return s;
}

static struct vb_rs_dest *find(struct peers *p, const char *text, uint16_t port)
{
    struct sockaddr_storage name = name_of(text, port);
    return vb_rs_dests_find(&p->d, (struct sockaddr *)&name);
}

// Ports 1 to PEERS of one address, in this order.
static void add_all(struct peers *p)
{
    for (unsigned i = 0; i < PEERS; i++) {
        p->dest[i].addr = name_of("10.0.0.1", (uint16_t)(i + 1));
        vb_rs_dests_add(&p->d, &p->dest[i]);
    }
}

static void test_found_by_address_and_port(void **state)
{
    struct peers p = {0};

    (void)state;
    p.dest[0].addr = name_of("10.0.0.1", 7);
    p.dest[1].addr = name_of("10.0.0.1", 8);
    p.dest[2].addr = name_of("fd00::1", 7);
    for (unsigned i = 0; i < 3; i++)
        vb_rs_dests_add(&p.d, &p.dest[i]);
    assert_ptr_equal(find(&p, "10.0.0.1", 7), &p.dest[0]);
    assert_ptr_equal(find(&p, "10.0.0.1", 8), &p.dest[1]);
    assert_ptr_equal(find(&p, "fd00::1", 7), &p.dest[2]);
    assert_null(find(&p, "10.0.0.2", 7));
    assert_null(find(&p, "10.0.0.1", 9));
    assert_null(find(&p, "fd00::1", 8));
    assert_null(find(&p, "fd00::2", 7));
    assert_int_equal(p.d.dest_count, 3);
}

static void test_the_oldest_goes(void **state)
{
    struct peers p = {0};

    (void)state;
    assert_null(vb_rs_dests_take_idle(&p.d));
    add_all(&p);
    assert_non_null(find(&p, "10.0.0.1", 1)); // the first is the newest now
    assert_non_null(find(&p, "10.0.0.1", 3));
    const unsigned order[PEERS] = {1, 3, 0, 2};
    for (unsigned i = 0; i < PEERS; i++) {
        assert_int_equal(p.d.dest_count, PEERS - i);
        assert_ptr_equal(vb_rs_dests_take_idle(&p.d), &p.dest[order[i]]);
        assert_null(find(&p, "10.0.0.1", (uint16_t)(order[i] + 1)));
    }
    assert_null(vb_rs_dests_take_idle(&p.d));
    assert_null(p.d.dests);
}

static void test_who_is_in_use_stays(void **state)
{
    struct peers p = {0};

    (void)state;
    add_all(&p);
    p.dest[0].uses = 1;
    p.d.connected = &p.dest[1];
    p.dest[3].uses = 2;
    assert_ptr_equal(vb_rs_dests_take_idle(&p.d), &p.dest[2]);
    assert_null(vb_rs_dests_take_idle(&p.d));
    assert_int_equal(p.d.dest_count, PEERS - 1);
    p.dest[0].uses = 0;
    p.d.connected = NULL;
    assert_ptr_equal(vb_rs_dests_take_idle(&p.d), &p.dest[0]);
    assert_ptr_equal(vb_rs_dests_take_idle(&p.d), &p.dest[1]);
    assert_null(vb_rs_dests_take_idle(&p.d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_by_address_and_port),
        cmocka_unit_test(test_the_oldest_goes),
        cmocka_unit_test(test_who_is_in_use_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
