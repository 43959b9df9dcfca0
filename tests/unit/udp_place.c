// SPDX-License-Identifier: Apache-2.0
// Three udp ports on one address, and another host that sends to them.
#include "udp_place.h"

#include "base/bytes.h"
#include "port/clock.h"
#include "port/udp.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

enum {
    ROUNDS = 20, // enough for what is sent on
    STOPPED = 1, // the last sign of life of one who is to seem so
};

#define AHEAD_NS 400000000ull // as far as is believed

// Nobody seems to have stopped because the machine had no time for this process: only those whom a
// test has stopped.
static void keep_alive(const struct udp_place *p)
{
    uint64_t now_ns = vb_clock_ns();

    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
        if (p->port[i] == NULL)
            continue;
        struct registry_slot *slot =
            &udp_place_share(p, i)->registry.file->slot[udp_place_slot(p, i)];
        if (atomic_load(&slot->beat_ns) > STOPPED)
            atomic_store(&slot->beat_ns, now_ns + AHEAD_NS + i);
    }
}

void udp_place_open(struct udp_place *p, int family, uint32_t frame_bytes, uint32_t numbers)
{
    char text[INET6_ADDRSTRLEN], why[VB_ERROR_TEXT] = "";
    memset(p, 0, sizeof *p);
    p->frame_bytes = frame_bytes;
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
        const struct vb_udp_opts opts = {.address = udp_kit_address(family, 1, text),
                                         .error_text = why,
                                         .shared = true,
                                         .qp_numbers = numbers};
        if (vb_udp_open(&opts, &p->port[i]) < 0)
            fail_msg("%s", why);
    }
    assert_int_equal(vb_ip_is_v4(&p->port[0]->local), family == AF_INET);
    p->from = udp_kit_make_forger(p->port[0]);
    keep_alive(p);
}

void udp_place_close_port(struct udp_place *p, unsigned i)
{
    if (p->port[i] != NULL)
        p->port[i]->ops->close(p->port[i]);
    p->port[i] = NULL;
}

void udp_place_close(struct udp_place *p)
{
    close(p->from.fd);
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        udp_place_close_port(p, i);
}

uint32_t udp_place_slot(const struct udp_place *p, unsigned i)
{
    return p->port[i]->qpn_base >> REGISTRY_RANGE_BITS;
}

struct udp_share *udp_place_share(const struct udp_place *p, unsigned i)
{
    return ((struct udp *)p->port[i])->share;
}

void udp_place_receive(struct udp_place *p, uint32_t got[UDP_PLACE_PORTS])
{
    memset(got, 0, UDP_PLACE_PORTS * sizeof got[0]);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < UDP_PLACE_PORTS; i++) {
            struct vb_port *port = p->port[i];
            keep_alive(p);
            uint32_t count = port ? port->ops->receive(port, p->frames) : 0;
            for (uint32_t f = 0; f < count; f++) {
                uint32_t qpn = vb_get_be24(p->frames[f].head + 5);
                assert_true(qpn - port->qpn_base < port->qpn_count || qpn < 2);
                assert_true(vb_ip_equal(&p->frames[f].src, &p->from.path.local));
                assert_int_equal(p->frames[f].len, p->frame_bytes);
            }
            got[i] += count;
        }
    keep_alive(p);
}

void udp_place_expect(struct udp_place *p, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t got[UDP_PLACE_PORTS];
    udp_place_receive(p, got);
    assert_int_equal(got[0], a);
    assert_int_equal(got[1], b);
    assert_int_equal(got[2], c);
}

uint64_t udp_place_forwarded(const struct udp_place *p)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < UDP_PLACE_PORTS; i++)
        sum += p->port[i] ? p->port[i]->stats.rx_forwarded : 0;
    return sum;
}
