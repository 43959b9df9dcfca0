// SPDX-License-Identifier: Apache-2.0
// What tests of the udp port share.
#include "udp_kit.h"

#include "../wait.h"
#include "base/prng.h"
#include "port/clock.h"
#include "skips.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

const int udp_kit_v4 = AF_INET, udp_kit_v6 = AF_INET6;

// As the kernel lays it out; its own header does not go with the C library's.
struct address_request {
    struct in6_addr ip;
    uint32_t prefix_bits;
    int interface;
};

static const char *const v6_hosts[UDP_KIT_HOSTS] = {"::1", "fd00:5eed::1", "fd00:5eed::2"};

static bool ask_system(int family, unsigned long request, void *argument)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int result = ioctl(fd, request, argument);
    int error = errno;
    close(fd);
    errno = error;
    return result == 0;
}

// An address is tentative at first, on loopback too, and cannot be bound to.
static bool await_address(const struct in6_addr *ip, int interface)
{
    struct sockaddr_in6 at = {
        .sin6_family = AF_INET6, .sin6_addr = *ip, .sin6_scope_id = (uint32_t)interface};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;
    WAIT_UNTIL((err = bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 ? 0 : errno) !=
               EADDRNOTAVAIL);
    close(fd);
    return err == 0;
}

static bool add_address(const char *ipv6)
{
    struct address_request r = {.prefix_bits = 128, .interface = (int)if_nametoindex("lo")};
    return inet_pton(AF_INET6, ipv6, &r.ip) == 1 && ask_system(AF_INET6, SIOCSIFADDR, &r) &&
           await_address(&r.ip, r.interface);
}

const char *udp_kit_enter_net(void)
{
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return "this machine has no IPv6";
    close(fd);
    // With several threads (a sanitizer's, say) only root may, and without a user space of its own.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 && unshare(CLONE_NEWNET) < 0)
        return "network namespaces are forbidden here";
    if (!ask_system(AF_INET, SIOCSIFFLAGS, &up))
        return "loopback cannot be brought up in a new network namespace";
    for (unsigned i = 1; i < UDP_KIT_HOSTS; i++)
        if (!add_address(v6_hosts[i]))
            return "IPv6 is disabled in new network namespaces";
    return NULL;
}

bool udp_kit_enter_v6(int *failed)
{
    const char *why = udp_kit_enter_net();
    if (why != NULL)
        *failed += skips_group("ipv6", why);
    return why == NULL;
}

void udp_kit_add_address(const char *ipv6)
{
    if (!add_address(ipv6))
        fail_msg("%s on loopback: %s", ipv6, strerror(errno));
}

void udp_kit_set_mtu(int mtu_bytes)
{
    struct ifreq r = {.ifr_name = "lo", .ifr_mtu = mtu_bytes};
    assert_true(ask_system(AF_INET, SIOCSIFMTU, &r));
}

const char *udp_kit_address(int family, unsigned host, char text[INET6_ADDRSTRLEN])
{
    unsigned pid = (unsigned)getpid();
    assert_true(host < UDP_KIT_HOSTS);
    if (family == AF_INET6)
        snprintf(text, INET6_ADDRSTRLEN, "%s", v6_hosts[host]);
    else
        snprintf(text, INET6_ADDRSTRLEN, "127.%u.%u.%u", 64 + host * 32 + (pid >> 16 & 31),
                 pid >> 8 & 255, pid & 255);
    return text;
}

static struct vb_port *open_port(struct vb_udp_opts opts)
{
    char why[VB_ERROR_TEXT] = "";
    struct vb_port *port = NULL;
    opts.error_text = why;
    if (vb_udp_open(&opts, &port) < 0)
        fail_msg("%s", why);
    return port;
}

struct vb_port *udp_kit_open_at(const char *address)
{
    return open_port((struct vb_udp_opts){.address = address});
}

struct vb_port *udp_kit_open_with(int family, unsigned host, struct vb_udp_opts opts)
{
    char text[INET6_ADDRSTRLEN];
    opts.address = udp_kit_address(family, host, text);
    return open_port(opts);
}

struct vb_port *udp_kit_open(int family, unsigned host)
{
    return udp_kit_open_with(family, host, (struct vb_udp_opts){0});
}

// ---- frames

struct vb_txq *udp_kit_make_queue(void)
{
    struct vb_txq *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->arena = calloc(1, VB_TX_BYTES);
    assert_non_null(q->arena);
    return q;
}

void udp_kit_free_queue(struct vb_txq *q)
{
    free(q->arena);
    free(q);
}

// All but the upper bits of the destination queue pair: frames to another range start another send.
static uint8_t draw_byte(struct vb_prng *prng, uint32_t at)
{
    uint8_t byte = (uint8_t)vb_prng_next(prng);
    return at == 5 || at == 6 ? 0 : byte;
}

bool udp_kit_append_lent(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag,
                         uint32_t head, uint8_t *body, uint32_t body_len)
{
    if (q->count == VB_TX_FRAMES || q->used + len - body_len > VB_TX_BYTES)
        return false;
    struct vb_prng prng = {.state = tag};
    uint32_t offset = q->used;
    for (uint32_t i = 0; i < len; i++) {
        uint8_t byte = draw_byte(&prng, i);
        if (i >= head && i < head + body_len)
            body[i - head] = byte;
        else
            q->arena[q->used++] = byte;
    }
    q->frame[q->count++] = (struct vb_tx_frame){.path = path,
                                                .offset = offset,
                                                .len = len,
                                                .head = head,
                                                .body_len = body_len,
                                                .body = body};
    return true;
}

bool udp_kit_append(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag)
{
    return udp_kit_append_lent(q, path, len, tag, 0, NULL, 0);
}

void udp_kit_send(struct vb_port *port, struct vb_txq *q)
{
    WAIT_UNTIL((port->ops->send(port, q), q->taken == q->count));
    q->used = q->count = q->taken = 0;
}

uint32_t udp_kit_receive(struct vb_port *port, struct vb_rx_frame *frames, bool wanted)
{
    uint32_t n;
    WAIT_UNTIL((n = port->ops->receive(port, frames)) > 0 || !wanted);
    assert_true(n <= VB_PORT_RX_BATCH);
    return n;
}

void udp_kit_assert_frame(const struct vb_rx_frame *f, const struct vb_ip *src, uint32_t len,
                          uint32_t tag)
{
    struct vb_prng prng = {.state = tag};
    assert_int_equal(f->len, len);
    assert_true(vb_ip_equal(&f->src, src));
    for (uint32_t i = 0; i + VB_ICRC_BYTES < len; i++)
        assert_int_equal(f->data[i], draw_byte(&prng, i));
}

// ---- forgers

struct udp_forger udp_kit_make_forger_at(const char *address, uint16_t src_port,
                                         const struct vb_port *target)
{
    bool ipv4 = vb_ip_is_v4(&target->local);
    int family = ipv4 ? AF_INET : AF_INET6;
    struct udp_forger f = {.fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    void *at = ipv4 ? (void *)&f.to.v4.sin_addr : (void *)&f.to.v6.sin6_addr;
    in_port_t *port = ipv4 ? &f.to.v4.sin_port : &f.to.v6.sin6_port;
    size_t offset = ipv4 ? 12 : 0, bytes = ipv4 ? 4 : 16;
    struct vb_ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    assert_true(f.fd >= 0);
    f.to.any.sa_family = (sa_family_t)family;
    f.to_bytes = ipv4 ? sizeof f.to.v4 : sizeof f.to.v6;
    *port = htons(src_port);
    assert_int_equal(inet_pton(family, address, at), 1);
    assert_int_equal(bind(f.fd, &f.to.any, f.to_bytes), 0);
    assert_int_equal(getsockname(f.fd, &f.to.any, &f.to_bytes), 0);
    memcpy(ip.b + offset, at, bytes);
    vb_path_init(&f.path, &ip, &target->local, ntohs(*port));
    memcpy(at, target->local.b + offset, bytes);
    *port = htons(VB_ROCE_UDP_PORT);
    return f;
}

struct udp_forger udp_kit_make_forger(const struct vb_port *target)
{
    char text[INET6_ADDRSTRLEN];
    int family = vb_ip_is_v4(&target->local) ? AF_INET : AF_INET6;
    return udp_kit_make_forger_at(udp_kit_address(family, 0, text), 0, target);
}

void udp_kit_forge(struct udp_forger *f, uint16_t id, uint32_t len, uint8_t flip)
{
    uint8_t frame[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_true(len <= sizeof frame);
    if (len >= VB_ICRC_FRAME_MIN) {
        vb_icrc_seal(&f->path.icrc, id, frame, len);
        frame[len / 2] ^= flip;
    }
    assert_int_equal(sendto(f->fd, frame, len, 0, &f->to.any, f->to_bytes), len);
}
