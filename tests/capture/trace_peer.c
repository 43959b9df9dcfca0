// SPDX-License-Identifier: Apache-2.0
// Makes traces for pcapng_test.py to judge: a sample of two ports, or both ends of an exchange over
// sockets, each frame of which is traced as it is sent and as it is received.
#include "base/bytes.h"
#include "port/clock.h"
#include "port/trace.h"
#include "wire/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPV6_AUTOFLOWLABEL
#define IPV6_AUTOFLOWLABEL 70
#endif

enum {
    ROUNDS = 40,
    PATIENCE_MS = 10000,
    SRC_PORT = 49200,
    RING_BYTES = 1 << 20,
    LAST_LEN = 16, // a frame of this length ends an exchange
};

static const int64_t sample_date_ns = 1767323045000000000; // 2026-01-02 03:04:05 UTC

static void die(const char *what)
{
    fprintf(stderr, "trace_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct vb_ip address(const char *text)
{
    struct vb_ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET, text, ip.b + 12) != 1 && inet_pton(AF_INET6, text, ip.b) != 1)
        die(text);
    return ip;
}

static struct vb_trace *create(bool seal, int64_t wall_offset_ns)
{
    struct vb_trace_opts opts = {
        .ring_bytes = RING_BYTES, .seal = seal, .wall_offset_ns = wall_offset_ns};
    struct vb_trace *trace;
    errno = -vb_trace_create(&opts, &trace);
    if (errno)
        die("create");
    return trace;
}

static void dump(const struct vb_trace_source *sources, uint32_t count, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        die(path);
    errno = -vb_trace_dump(sources, count, fd);
    if (errno || close(fd) != 0)
        die("dump");
}

// One packet of each kind, with headers as the opcode wants them; the ICRC is left at zero.
static uint32_t encode(uint8_t *frame, uint8_t opcode, uint32_t psn, uint32_t payload_len)
{
    struct vb_packet p = {
        .opcode = opcode,
        .ack_request = true,
        .pkey = VB_PKEY_DEFAULT,
        .dest_qpn = 0x11,
        .psn = psn,
        .msn = psn,
        .syndrome = vb_aeth_syndrome(VB_AETH_ACK, VB_AETH_CREDITS_INVALID),
        .rkey = 0x1234,
        .raddr = 0x7f0000001000,
        .dma_len = 64,
        .payload_len = payload_len,
    };
    uint32_t len = (uint32_t)vb_packet_encode(frame, &p);
    for (uint32_t i = 0; i < payload_len; i++)
        frame[len + i] = (uint8_t)(7 * i + psn);
    len += payload_len;
    memset(frame + len, 0, vb_packet_pad(payload_len) + VB_ICRC_BYTES);
    return len + vb_packet_pad(payload_len) + VB_ICRC_BYTES;
}

// One end of the sample: what it sends, and what comes back to it.
struct end {
    struct vb_trace *trace;
    struct vb_path out, in;
    struct vb_txq q;
    bool seal;       // the frames are sealed here, not by the trace
    uint64_t now_ns; // a millisecond and a nanosecond more with each frame
};

static void end_init(struct end *e, const char *local, const char *remote, struct vb_trace *trace,
                     bool seal)
{
    struct vb_ip ours = address(local), theirs = address(remote);
    static uint8_t arena[VB_TX_BYTES];
    vb_path_init(&e->out, &ours, &theirs, SRC_PORT);
    vb_path_init(&e->in, &theirs, &ours, SRC_PORT + 1);
    e->trace = trace;
    e->seal = seal;
    e->q.arena = arena;
}

static void sent(struct end *e, uint8_t opcode, uint32_t psn, uint32_t payload_len, uint16_t id)
{
    struct vb_tx_frame f = {.path = &e->out};
    f.len = encode(e->q.arena, opcode, psn, payload_len);
    if (e->seal)
        vb_tx_seal(&e->q, &f, id);
    vb_trace_sent(e->trace, e->now_ns, id, &e->q, &f);
    e->now_ns += 1000001;
}

static void came(struct end *e, uint8_t opcode, uint32_t psn, uint32_t payload_len, uint16_t id)
{
    struct vb_trace_packet packet = {
        .src = e->in.local, .dst = e->in.remote, .src_port = e->in.src_port, .id = id};
    uint32_t len = encode(e->q.arena, opcode, psn, payload_len);
    if (e->seal)
        vb_icrc_seal(&e->in.icrc, id, e->q.arena, len);
    vb_trace_received(e->trace, e->now_ns, &packet, e->q.arena, len);
    e->now_ns += 1000001;
}

static void talk(struct end *e)
{
    sent(e, VB_RC_SEND_ONLY, 1, 61, 0);
    came(e, VB_RC_ACK, 1, 0, 0);
    sent(e, VB_RC_WRITE_ONLY, 5, 64, e->seal ? 1 : 0);
    vb_trace_remark(e->trace, "retransmission of PSN %u", 5u);
    came(e, VB_RC_ACK, 5, 0, e->seal ? 0xbeef : 0);
    vb_trace_remark(e->trace, "fault rule 1: dropped");
    vb_trace_remark(e->trace, "verz\u00f6gert um 50 \u00b5s");
    sent(e, VB_RC_READ_REQUEST, 6, 0, 0);
    came(e, VB_RC_READ_RESP_ONLY, 6, 4096, 0);
}

static void make_sample(const char *path)
{
    static struct end v4, v6, shm;
    struct vb_trace *udp = create(false, sample_date_ns), *memory = create(true, sample_date_ns);
    end_init(&v4, "10.1.2.3", "10.3.2.1", udp, true);
    talk(&v4);
    end_init(&v6, "2001:db8::1", "2001:db8::2", udp, true);
    v6.now_ns = v4.now_ns;
    talk(&v6);
    end_init(&shm, "127.0.0.1", "127.0.0.2", memory, false);
    shm.now_ns = v6.now_ns;
    talk(&shm);
    const struct vb_trace_source sources[] = {{udp, "udp 10.1.2.3", "UDP sockets"},
                                              {memory, "shm 127.0.0.1", "shared memory"}};
    dump(sources, 2, path);
    vb_trace_destroy(udp);
    vb_trace_destroy(memory);
}

// An exchange over sockets, whose addresses are all of one family.
struct exchange {
    int fd;
    struct vb_trace *trace;
    struct vb_path out;
    struct vb_txq q;
};

static socklen_t to_socket(const struct vb_ip *ip, uint16_t port, struct sockaddr_storage *to)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&v4.sin_addr, ip->b + 12, 4);
    memcpy(&v6.sin6_addr, ip->b, 16);
    if (vb_ip_is_v4(ip))
        memcpy(to, &v4, sizeof v4);
    else
        memcpy(to, &v6, sizeof v6);
    return vb_ip_is_v4(ip) ? sizeof v4 : sizeof v6;
}

static void exchange_open(struct exchange *x, const char *local, const char *remote)
{
    struct vb_ip ours = address(local), theirs = address(remote);
    static uint8_t arena[VB_TX_BYTES];
    struct sockaddr_storage at;
    int off = 0, discover = IP_PMTUDISC_DO;
    vb_path_init(&x->out, &ours, &theirs, VB_ROCE_UDP_PORT);
    x->q.arena = arena;
    x->trace = create(false, vb_trace_wall_offset_ns());
    socklen_t len = to_socket(&ours, VB_ROCE_UDP_PORT, &at);
    x->fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (x->fd < 0 || bind(x->fd, (const struct sockaddr *)&at, len) != 0)
        die(local);
    int status = x->out.ipv4
                     ? setsockopt(x->fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover)
                     : setsockopt(x->fd, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, &off, sizeof off);
    if (status != 0)
        die("socket options");
}

static void exchange_send(struct exchange *x, uint32_t len)
{
    struct vb_tx_frame f = {.path = &x->out, .len = len};
    struct sockaddr_storage to;
    socklen_t to_len = to_socket(&x->out.remote, VB_ROCE_UDP_PORT, &to);
    vb_tx_seal(&x->q, &f, 0);
    uint64_t now_ns = vb_clock_ns();
    if (sendto(x->fd, x->q.arena, len, 0, (const struct sockaddr *)&to, to_len) != (ssize_t)len)
        die("send");
    vb_trace_sent(x->trace, now_ns, 0, &x->q, &f);
}

// The frame that comes is left in the arena. Returns its length.
static uint32_t exchange_receive(struct exchange *x)
{
    struct vb_trace_packet packet = {
        .src = x->out.remote, .dst = x->out.local, .src_port = x->out.src_port};
    struct pollfd ready = {.fd = x->fd, .events = POLLIN};
    if (poll(&ready, 1, PATIENCE_MS) != 1)
        die("nothing comes");
    ssize_t len = recv(x->fd, x->q.arena, VB_TX_BYTES, 0);
    if (len < (ssize_t)LAST_LEN)
        die("receive");
    vb_trace_received(x->trace, vb_clock_ns(), &packet, x->q.arena, (uint32_t)len);
    return (uint32_t)len;
}

static void ask(struct exchange *x)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t len = encode(x->q.arena, VB_RC_SEND_ONLY, i, i * 4096 / (ROUNDS - 1) + 1);
        exchange_send(x, i + 1 < ROUNDS ? len : LAST_LEN);
        (void)exchange_receive(x);
    }
}

static void echo(struct exchange *x)
{
    uint32_t len;
    puts("ready");
    fflush(stdout);
    do {
        len = exchange_receive(x);
        x->q.arena[0] ^= VB_RC_WRITE_ONLY;
        exchange_send(x, len);
    } while (len != LAST_LEN);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "sample") == 0) {
        make_sample(argv[2]);
        return 0;
    }
    if (argc != 5 || (strcmp(argv[1], "ask") != 0 && strcmp(argv[1], "echo") != 0)) {
        fputs("usage: trace_peer sample FILE | ask|echo LOCAL REMOTE FILE\n", stderr);
        return 2;
    }
    static struct exchange x;
    exchange_open(&x, argv[2], argv[3]);
    if (strcmp(argv[1], "ask") == 0)
        ask(&x);
    else
        echo(&x);
    dump(&(struct vb_trace_source){x.trace, argv[1], NULL}, 1, argv[4]);
    vb_trace_destroy(x.trace);
    close(x.fd);
    return 0;
}
