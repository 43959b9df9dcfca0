// SPDX-License-Identifier: Apache-2.0
// The trace of a port: packets as a wire would carry them, a ring that loses the oldest, remarks.
#include "base/bytes.h"
#include "base/prng.h"
#include "fresh_seed.h"
#include "port/clock.h"
#include "port/trace.h"
#include "verbena_config.h"
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
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FILE_MAX = 1 << 20,
    PACKETS_MAX = 512,
    INTERFACES_MAX = 3,
    V4_HEADERS = 28,
    V6_HEADERS = 48,
    RECORD_BYTES = 24,
    INBOUND = 1,
    OUTBOUND = 2,
};

struct packet {
    uint32_t interface, len, original_len, flags, comments;
    uint64_t time_ns;
    const uint8_t *bytes;
    char comment[VB_TRACE_REMARKS][VB_TRACE_REMARK_MAX + 1];
};

// A dump, read back.
struct capture {
    uint8_t file[FILE_MAX];
    uint32_t interfaces, count, statistics;
    char application[64];
    char name[INTERFACES_MAX][64], description[INTERFACES_MAX][64];
    uint32_t snap_bytes[INTERFACES_MAX];
    uint64_t seen[INTERFACES_MAX], lost[INTERFACES_MAX];
    struct packet packet[PACKETS_MAX];
};

typedef void option_reader(void *target, uint16_t code, const uint8_t *bytes, uint16_t len);

static void read_options(const uint8_t *at, const uint8_t *end, option_reader *reader, void *target)
{
    while (at < end) {
        uint16_t code = (uint16_t)(at[0] | at[1] << 8), len = (uint16_t)(at[2] | at[3] << 8);
        at += 4;
        if (code == 0) {
            assert_int_equal(len, 0);
            break;
        }
        reader(target, code, at, len);
        at += (len + 3) / 4 * 4;
    }
    assert_ptr_equal(at, end);
}

static void copy_text(char *to, size_t room, const uint8_t *bytes, uint16_t len)
{
    assert_true(len < room);
    memcpy(to, bytes, len);
    to[len] = '\0';
}

static void section_option(void *target, uint16_t code, const uint8_t *bytes, uint16_t len)
{
    struct capture *c = target;
    assert_int_equal(code, 4);
    copy_text(c->application, sizeof c->application, bytes, len);
}

static void interface_option(void *target, uint16_t code, const uint8_t *bytes, uint16_t len)
{
    struct capture *c = target;
    if (code == 2)
        copy_text(c->name[c->interfaces], sizeof c->name[0], bytes, len);
    else if (code == 3)
        copy_text(c->description[c->interfaces], sizeof c->description[0], bytes, len);
    else
        assert_true(code == 9 && len == 1 && bytes[0] == 9);
}

static void packet_option(void *target, uint16_t code, const uint8_t *bytes, uint16_t len)
{
    struct packet *p = target;
    if (code == 1) {
        copy_text(p->comment[p->comments++], sizeof p->comment[0], bytes, len);
    } else {
        assert_true(code == 2 && len == 4);
        p->flags = vb_get_le32(bytes);
    }
}

static void statistics_option(void *target, uint16_t code, const uint8_t *bytes, uint16_t len)
{
    struct capture *c = target;
    assert_true((code == 4 || code == 5) && len == 8);
    uint64_t value = vb_get_le32(bytes) | (uint64_t)vb_get_le32(bytes + 4) << 32;
    *(code == 4 ? &c->seen[c->statistics] : &c->lost[c->statistics]) = value;
}

static void read_packet(struct capture *c, const uint8_t *b, const uint8_t *end)
{
    assert_true(c->count < PACKETS_MAX);
    struct packet *p = &c->packet[c->count++];
    *p = (struct packet){
        .interface = vb_get_le32(b),
        .time_ns = (uint64_t)vb_get_le32(b + 4) << 32 | vb_get_le32(b + 8),
        .len = vb_get_le32(b + 12),
        .original_len = vb_get_le32(b + 16),
        .bytes = b + 20,
    };
    assert_true(p->interface < c->interfaces && p->len <= p->original_len);
    read_options(b + 20 + (p->len + 3) / 4 * 4, end, packet_option, p);
}

static void read_block(struct capture *c, uint32_t type, const uint8_t *body, const uint8_t *end)
{
    if (type == 0x0a0d0d0a) {
        read_options(body + 16, end, section_option, c);
    } else if (type == 1) {
        assert_true(c->interfaces < INTERFACES_MAX);
        assert_memory_equal(body, "\x65\0\0\0", 4);
        c->snap_bytes[c->interfaces] = vb_get_le32(body + 4);
        read_options(body + 8, end, interface_option, c);
        c->interfaces++;
    } else if (type == 6) {
        read_packet(c, body, end);
    } else {
        assert_int_equal(type, 5);
        assert_int_equal(vb_get_le32(body), c->statistics);
        read_options(body + 12, end, statistics_option, c);
        c->statistics++;
    }
}

static struct capture *dump_all(const struct vb_trace_source *sources, uint32_t count)
{
    struct capture *c = calloc(1, sizeof *c);
    assert_non_null(c);
    int fd = memfd_create("trace", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(vb_trace_dump(sources, count, fd), 0);
    ssize_t len = pread(fd, c->file, FILE_MAX, 0);
    assert_true(len > 0 && len < FILE_MAX);
    close(fd);
    for (ssize_t at = 0; at < len;) {
        uint32_t total = vb_get_le32(c->file + at + 4);
        assert_true(total % 4 == 0 && total >= 12 && total <= (size_t)(len - at));
        assert_int_equal(vb_get_le32(c->file + at + total - 4), total);
        read_block(c, vb_get_le32(c->file + at), c->file + at + 8, c->file + at + total - 4);
        at += total;
    }
    assert_int_equal(c->interfaces, count);
    assert_int_equal(c->statistics, count);
    return c;
}

static struct capture *dump(const struct vb_trace *trace)
{
    return dump_all(&(struct vb_trace_source){.trace = trace, .name = "udp"}, 1);
}

static struct vb_trace *create(uint32_t ring_bytes, uint32_t snap_bytes, bool seal)
{
    struct vb_trace_opts opts = {
        .ring_bytes = ring_bytes, .snap_bytes = snap_bytes, .seal = seal, .wall_offset_ns = 1000};
    struct vb_trace *trace = NULL;
    assert_int_equal(vb_trace_create(&opts, &trace), 0);
    return trace;
}

static struct vb_ip address(const char *text)
{
    struct vb_ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET, text, ip.b + 12) != 1)
        assert_int_equal(inet_pton(AF_INET6, text, ip.b), 1);
    return ip;
}

static uint8_t *counted(uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i + 1);
    return bytes;
}

static void assert_hex(const struct packet *p, const char *wanted)
{
    char text[512] = "";
    assert_true(2 * p->len < sizeof text);
    for (uint32_t i = 0; i < p->len; i++)
        snprintf(text + 2 * i, 3, "%02x", p->bytes[i]);
    assert_string_equal(text, wanted);
}

// Packets that scapy made of the frame 01 02 03 …
static const char v4_id_1234[] = "45000038123440004011107a0a0102030a030201c00112b700245013"
                                 "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c";
static const char v4_ttl_9_ect0[] = "4502003800074000091159a50a0102030a030201c00112b700245013"
                                    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c";
static const char v6_odd[] = "6000000000231140fe800000000000000000000000000001"
                             "20010db8000000000000000000000002ffff12b70023fbfd"
                             "0102030405060708090a0b0c0d0e0f101112131415161718191a1b";
static const char v6_class_label[] = "6b95432100231103fe800000000000000000000000000001"
                                     "20010db8000000000000000000000002ffff12b70023fbfd"
                                     "0102030405060708090a0b0c0d0e0f101112131415161718191a1b";

static void test_received_packets_are_what_the_wire_carried(void **state)
{
    (void)state;
    uint8_t frame[28];
    struct vb_trace *trace = create(8192, 0, false);
    struct vb_trace_packet v4 = {.src = address("10.1.2.3"),
                                 .dst = address("10.3.2.1"),
                                 .src_port = 49153,
                                 .id = 0x1234,
                                 .flow_label = 5};
    struct vb_trace_packet v6 = {
        .src = address("fe80::1"), .dst = address("2001:db8::2"), .src_port = 65535, .id = 77};
    counted(frame, sizeof frame);
    vb_trace_received(trace, 5, &v4, frame, 28);
    v4.id = 7, v4.hop_limit = 9, v4.tos = 2;
    vb_trace_received(trace, 6, &v4, frame, 28);
    vb_trace_received(trace, 7, &v6, frame, 27);
    v6.hop_limit = 3, v6.tos = 0xb9, v6.flow_label = 0xfff54321;
    vb_trace_received(trace, UINT32_MAX, &v6, frame, 27);
    struct capture *c = dump(trace);
    assert_int_equal(c->count, 4);
    assert_hex(&c->packet[0], v4_id_1234);
    assert_hex(&c->packet[1], v4_ttl_9_ect0);
    assert_hex(&c->packet[2], v6_odd);
    assert_hex(&c->packet[3], v6_class_label);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(c->packet[i].flags, INBOUND);
        assert_int_equal(c->packet[i].original_len, c->packet[i].len);
        assert_int_equal(c->packet[i].comments, 0);
    }
    assert_int_equal(c->packet[0].time_ns, 1005);
    assert_true(c->packet[3].time_ns == UINT32_MAX + 1000ull);
    free(c);
    vb_trace_destroy(trace);
}

// The same frame, whole and with every split into head, lent body and tail.
static void test_sent_packets_are_what_the_wire_carries(void **state)
{
    (void)state;
    uint8_t whole[28], arena[28];
    struct vb_trace *trace = create(8192, 0, false);
    struct vb_ip src = address("10.1.2.3"), dst = address("10.3.2.1");
    struct vb_path path = {0};
    struct vb_txq *q = calloc(1, sizeof *q);
    counted(whole, sizeof whole);
    vb_path_init(&path, &src, &dst, 49153);
    q->arena = whole;
    struct vb_tx_frame f = {.path = &path, .len = sizeof whole};
    vb_trace_sent(trace, 1, 0x1234, q, &f);
    q->arena = arena;
    for (uint32_t body = 1; body <= 12; body++) {
        memcpy(arena, whole, 12);
        memcpy(arena + 12, whole + 12 + body, 16 - body);
        struct vb_tx_frame lent = f;
        lent.head = 12, lent.body = whole + 12, lent.body_len = body;
        vb_trace_sent(trace, 1, 0x1234, q, &lent);
    }
    struct capture *c = dump(trace);
    assert_int_equal(c->count, 13);
    for (uint32_t i = 0; i < c->count; i++) {
        assert_hex(&c->packet[i], v4_id_1234);
        assert_int_equal(c->packet[i].flags, OUTBOUND);
    }
    free(c);
    free(q);
    vb_trace_destroy(trace);
}

// A checksum that comes out as zero is sent as ones: zero would mean that there is none.
static void test_no_checksum_is_zero(void **state)
{
    (void)state;
    struct vb_trace *trace = create(8192, 0, false);
    struct vb_trace_packet v4 = {
        .src = address("10.1.2.3"), .dst = address("10.3.2.1"), .src_port = 1};
    uint8_t frame[16] = {0};
    vb_trace_received(trace, 1, &v4, frame, sizeof frame);
    struct capture *c = dump(trace);
    memcpy(frame, c->packet[0].bytes + 26, 2); // then the rest sums to zero
    assert_true(frame[0] | frame[1]);
    free(c);
    vb_trace_received(trace, 1, &v4, frame, sizeof frame);
    c = dump(trace);
    assert_memory_equal(c->packet[1].bytes + 26, "\xff\xff", 2);
    free(c);
    vb_trace_destroy(trace);
}

// Frames of shared memory carry zeros for an ICRC; short ones of a hostile peer have none at all.
static void assert_sealed(const char *src, const char *dst, uint32_t len, bool sealing, bool right)
{
    uint8_t frame[64] = {0x04, 0x40, 0xff, 0xff};
    uint16_t id = 1;
    struct vb_trace *trace = create(8192, 0, sealing);
    struct vb_trace_packet p = {.src = address(src), .dst = address(dst), .src_port = 49152};
    struct vb_path path;
    uint32_t headers = strchr(src, ':') ? V6_HEADERS : V4_HEADERS;
    vb_path_init(&path, &p.src, &p.dst, 49152);
    vb_trace_received(trace, 1, &p, frame, len);
    struct capture *c = dump(trace);
    const uint8_t *got = c->packet[0].bytes + headers;
    assert_int_equal(c->packet[0].len, headers + len);
    enum vb_icrc_verdict verdict = vb_icrc_check(&path.icrc, 0, got, len, &id);
    assert_int_equal(verdict == VB_ICRC_EXACT, right);
    assert_memory_equal(got, frame, right ? len - VB_ICRC_BYTES : len);
    free(c);
    vb_trace_destroy(trace);
}

static void test_an_absent_icrc_is_filled_in(void **state)
{
    (void)state;
    assert_sealed("10.0.0.1", "10.0.0.2", 64, true, true);
    assert_sealed("fe80::1", "fe80::2", 64, true, true);
    assert_sealed("10.0.0.1", "10.0.0.2", 16, true, true);
    assert_sealed("10.0.0.1", "10.0.0.2", 64, false, false);
    assert_sealed("fe80::1", "fe80::2", 64, false, false);
    for (uint32_t len = 0; len < VB_ICRC_FRAME_MIN; len++)
        assert_sealed("10.0.0.1", "10.0.0.2", len, true, false);
}

static void test_frames_longer_than_datagrams_are_cut(void **state)
{
    (void)state;
    struct vb_trace *trace = create(400000, 0, true), *small = create(VB_TRACE_RING_MIN, 0, true);
    struct vb_trace_packet v4 = {.src = address("10.0.0.1"), .dst = address("10.0.0.2")};
    struct vb_trace_packet v6 = {.src = address("::1"), .dst = address("::1")};
    uint8_t *frame = calloc(1, 100000);
    vb_trace_received(trace, 1, &v4, frame, VB_ICRC_FRAME_MAX);
    vb_trace_received(trace, 1, &v4, frame, 100000);
    vb_trace_received(trace, 1, &v6, frame, 100000);
    vb_trace_received(trace, 1, &v6, NULL, 0);
    vb_trace_received(small, 1, &v6, frame, 100000); // cut to what the ring holds
    struct capture *c = dump(trace);
    assert_int_equal(c->count, 4);
    assert_int_equal(c->packet[1].len, 65535);
    assert_memory_equal(c->packet[0].bytes, c->packet[1].bytes, 65535);
    assert_int_equal(c->packet[2].len, V6_HEADERS + VB_ICRC_FRAME_MAX);
    assert_int_equal(c->packet[3].len, V6_HEADERS);
    free(c);
    c = dump(small);
    assert_int_equal(c->count, 1);
    assert_int_equal(c->packet[0].original_len, V6_HEADERS + VB_ICRC_FRAME_MAX);
    assert_true(c->packet[0].len > 1000 && c->packet[0].len < VB_TRACE_RING_MIN);
    free(c);
    free(frame);
    vb_trace_destroy(trace);
    vb_trace_destroy(small);
}

// What is cut off still counts in the lengths and in the checksum.
static void test_a_snap_length_keeps_the_beginning(void **state)
{
    (void)state;
    uint8_t frame[100];
    struct vb_trace *whole = create(8192, 0, true), *cut = create(8192, 60, true);
    struct vb_trace_packet v4 = {.src = address("10.0.0.1"), .dst = address("10.0.0.2")};
    counted(frame, sizeof frame);
    for (uint32_t len = 30; len <= 35; len++) {
        vb_trace_received(whole, 1, &v4, frame, len);
        vb_trace_received(cut, 1, &v4, frame, len);
    }
    struct capture *w = dump(whole), *c = dump(cut);
    assert_int_equal(w->snap_bytes[0], 0);
    assert_int_equal(c->snap_bytes[0], 60);
    assert_int_equal(c->count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t len = V4_HEADERS + 30 + i;
        assert_int_equal(w->packet[i].len, len);
        assert_int_equal(c->packet[i].original_len, len);
        assert_int_equal(c->packet[i].len, len < 60 ? len : 60);
        assert_memory_equal(c->packet[i].bytes, w->packet[i].bytes, c->packet[i].len);
    }
    free(w);
    free(c);
    vb_trace_destroy(whole);
    vb_trace_destroy(cut);
}

// What a ring should hold: frame i has lens[i] bytes, all of them (uint8_t)i, and remarks.
struct model {
    uint32_t count, oldest, used, capacity;
    uint32_t len[20000], remarks[20000], size[20000];
};

static void model_grow(struct model *m, uint32_t bytes)
{
    m->size[m->count - 1] += bytes;
    m->used += bytes;
    while (m->used > m->capacity)
        m->used -= m->size[m->oldest++];
}

static void assert_model(const struct vb_trace *trace, const struct model *m)
{
    struct capture *c = dump(trace);
    assert_int_equal(c->count, m->count - m->oldest);
    assert_int_equal(c->seen[0], m->count);
    assert_int_equal(c->lost[0], m->oldest);
    assert_int_equal(vb_trace_seen(trace), m->count);
    assert_int_equal(vb_trace_lost(trace), m->oldest);
    for (uint32_t i = 0; i < c->count; i++) {
        const struct packet *p = &c->packet[i];
        uint32_t n = m->oldest + i;
        char wanted[16];
        assert_int_equal(p->len, V4_HEADERS + m->len[n]);
        assert_int_equal(p->time_ns, 1000 + n);
        for (uint32_t j = 0; j < m->len[n]; j++)
            assert_int_equal(p->bytes[V4_HEADERS + j], (uint8_t)n);
        assert_int_equal(p->comments, m->remarks[n]);
        for (uint32_t j = 0; j < p->comments; j++) {
            snprintf(wanted, sizeof wanted, "%u.%u", n, j);
            assert_string_equal(p->comment[j], wanted);
        }
    }
    free(c);
}

static void add_modelled(struct vb_trace *trace, struct model *m, uint32_t len, uint32_t remarks)
{
    static uint8_t frame[2048];
    struct vb_trace_packet v4 = {.src = address("10.0.0.1"), .dst = address("10.0.0.2")};
    uint32_t n = m->count++;
    m->len[n] = len;
    memset(frame, (uint8_t)n, len);
    vb_trace_received(trace, n, &v4, frame, len);
    model_grow(m, RECORD_BYTES + V4_HEADERS + len);
    for (; m->remarks[n] < remarks; m->remarks[n]++) {
        vb_trace_remark(trace, "%u.%u", n, m->remarks[n]);
        model_grow(m, (uint32_t)snprintf(NULL, 0, "%u.%u", n, m->remarks[n]) + 1);
    }
}

static void test_the_ring_keeps_the_newest_whole(void **state)
{
    (void)state;
    struct vb_prng prng = {.state = fresh_seed()};
    struct model *m = malloc(sizeof *m);
    assert_non_null(m);
    for (uint32_t capacity = VB_TRACE_RING_MIN; capacity < VB_TRACE_RING_MIN + 40; capacity++) {
        memset(m, 0, sizeof *m);
        m->capacity = capacity;
        struct vb_trace *trace = create(capacity, 0, false);
        for (uint32_t len = 0; len < 1900; len++) {
            add_modelled(trace, m, len, 0);
            if (vb_prng_chance(&prng, 20000))
                assert_model(trace, m);
        }
        for (uint32_t i = 0; i < 3000; i++) {
            uint32_t remarks =
                vb_prng_chance(&prng, 300000) ? (uint32_t)vb_prng_below(&prng, 9) : 0;
            add_modelled(trace, m, (uint32_t)vb_prng_below(&prng, 120), remarks);
            if (vb_prng_chance(&prng, 20000))
                assert_model(trace, m);
        }
        assert_true(m->oldest > 4000);
        assert_model(trace, m);
        vb_trace_destroy(trace);
    }
    free(m);
}

static void test_remarks_belong_to_the_latest_frame(void **state)
{
    (void)state;
    uint8_t frame[16] = {0};
    struct vb_trace *trace = create(8192, 0, false);
    struct vb_trace_packet v4 = {.src = address("10.0.0.1"), .dst = address("10.0.0.2")};
    vb_trace_remark(trace, "about nothing");
    vb_trace_received(trace, 1, &v4, frame, sizeof frame);
    vb_trace_received(trace, 2, &v4, frame, sizeof frame);
    vb_trace_remark(trace, "retransmission of PSN %u", 5u);
    vb_trace_remark(trace, "%s", "");
    vb_trace_remark(trace, "verz\u00f6gert um 50 \u00b5s \U0001f41d");
    vb_trace_received(trace, 3, &v4, frame, sizeof frame);
    for (unsigned i = 0; i < VB_TRACE_REMARKS + 3; i++)
        vb_trace_remark(trace, "remark %u", i);
    struct capture *c = dump(trace);
    assert_int_equal(c->packet[0].comments, 0);
    assert_int_equal(c->packet[1].comments, 2);
    assert_string_equal(c->packet[1].comment[0], "retransmission of PSN 5");
    assert_string_equal(c->packet[1].comment[1], "verz\u00f6gert um 50 \u00b5s \U0001f41d");
    assert_int_equal(c->packet[2].comments, VB_TRACE_REMARKS);
    assert_string_equal(c->packet[2].comment[VB_TRACE_REMARKS - 1], "remark 7");
    free(c);
    vb_trace_destroy(trace);
}

// A remark of `count` times `unit` after `lead` plain characters, and how many units are kept.
static void assert_cut(uint32_t lead, const char *unit, uint32_t count, uint32_t kept, bool cut)
{
    char text[2048] = "", wanted[2048] = "";
    uint8_t frame[16] = {0};
    struct vb_trace *trace = create(8192, 0, false);
    struct vb_trace_packet v4 = {.src = address("10.0.0.1"), .dst = address("10.0.0.2")};
    memset(text, '-', lead);
    memset(wanted, '-', lead);
    for (uint32_t i = 0; i < count; i++)
        memcpy(text + strlen(text), unit, strlen(unit));
    memcpy(wanted + lead, text + lead, kept * strlen(unit));
    if (cut)
        memcpy(wanted + strlen(wanted), "\u2026", 3);
    vb_trace_received(trace, 1, &v4, frame, sizeof frame);
    vb_trace_remark(trace, "%s", text);
    struct capture *c = dump(trace);
    assert_string_equal(c->packet[0].comment[0], wanted);
    free(c);
    vb_trace_destroy(trace);
}

static void test_long_remarks_are_cut_between_characters(void **state)
{
    (void)state;
    assert_cut(0, "x", 255, 255, false);
    assert_cut(0, "x", 256, 252, true);
    assert_cut(0, "x", 2000, 252, true);
    assert_cut(1, "\u00e9", 127, 127, false);
    assert_cut(1, "\u00e9", 128, 125, true);
    assert_cut(0, "\u2026", 85, 85, false);
    assert_cut(0, "\u2026", 86, 84, true);
    for (uint32_t lead = 0; lead < 4; lead++)
        assert_cut(lead, "\U0001f41d", 300, (252 - lead) / 4, true);
}

static void test_traces_of_several_ports_merge_by_time(void **state)
{
    (void)state;
    uint8_t frame[16] = {0};
    struct vb_trace *udp = create(8192, 0, false), *shm = create(8192, 90, true);
    struct vb_trace *idle = create(8192, 0, false);
    struct vb_trace_packet v4 = {.src = address("10.0.0.1"), .dst = address("10.0.0.2")};
    static const uint64_t times[2][4] = {{1, 4, 4, 9}, {2, 3, 4, 5}};
    static const uint32_t order[] = {0, 1, 1, 0, 0, 1, 1, 0};
    for (uint32_t i = 0; i < 4; i++) {
        vb_trace_received(udp, times[0][i], &v4, frame, sizeof frame);
        vb_trace_received(shm, times[1][i], &v4, frame, sizeof frame);
    }
    const struct vb_trace_source sources[] = {
        {udp, "udp 127.0.0.1", "queue pairs of one PU"}, {shm, "shm", NULL}, {idle, "idle", ""}};
    struct capture *c = dump_all(sources, 3);
    assert_string_equal(c->application, "Verbena " VERBENA_VERSION);
    assert_string_equal(c->name[0], "udp 127.0.0.1");
    assert_string_equal(c->description[0], "queue pairs of one PU");
    assert_string_equal(c->name[1], "shm");
    assert_string_equal(c->description[1], "");
    assert_int_equal(c->snap_bytes[1], 90);
    assert_int_equal(c->count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(c->packet[i].interface, order[i]);
        assert_true(i == 0 || c->packet[i - 1].time_ns <= c->packet[i].time_ns);
    }
    assert_int_equal(c->seen[0] + c->seen[1], 8);
    assert_int_equal(c->seen[2], 0);
    free(c);
    c = dump_all(sources, 0);
    assert_int_equal(c->count, 0);
    free(c);
    vb_trace_destroy(udp);
    vb_trace_destroy(shm);
    vb_trace_destroy(idle);
}

static struct vb_trace *pick_one(void *ctx, uint32_t qpn)
{
    struct vb_trace **traces = ctx;
    return qpn == 1 || qpn == 2 ? traces[qpn - 1] : NULL;
}

static void come(struct vb_trace *trace, uint32_t qpn)
{
    const struct vb_trace_packet v4 = {.src = address("10.1.2.3"), .dst = address("10.3.2.1")};
    uint8_t frame[28] = {0x0a};

    vb_put_be24(frame + 5, qpn);
    vb_trace_received(trace, 1, &v4, frame, sizeof frame);
    vb_trace_remark(trace, "of %u", qpn);
}

// Each frame to the trace of its queue pair, and the remark on it, too.
static void test_frames_are_handed_on(void **state)
{
    (void)state;
    struct vb_trace *kept[2] = {create(8192, 0, false), create(8192, 0, false)}, *all;
    const struct vb_trace_opts opts = {.pick = pick_one, .pick_ctx = kept};
    assert_int_equal(vb_trace_create(&opts, &all), 0);
    come(all, 1);
    come(all, 3); // nobody's
    come(all, 2);
    come(all, 2);
    vb_trace_received(all, 1, &(struct vb_trace_packet){0}, (const uint8_t *)"short", 5);
    vb_trace_remark(all, "of nobody");
    uint8_t arena[64] = {0x04};
    struct vb_path path;
    const struct vb_ip here = address("10.1.2.3"), there = address("10.3.2.1");
    vb_path_init(&path, &here, &there, 49152);
    struct vb_txq *txq = calloc(1, sizeof *txq);
    assert_non_null(txq);
    txq->arena = arena;
    txq->frame[0] = (struct vb_tx_frame){.path = &path, .len = sizeof arena};
    vb_trace_sent(all, 2, 0, txq, &txq->frame[0]); // does not say who sent it
    path.qpn = 1;
    vb_trace_sent(all, 2, 0, txq, &txq->frame[0]);
    path.qpn = 0;
    arena[0] = 0x64; // a datagram does
    vb_put_be24(arena + VB_BTH_BYTES + 5, 2);
    vb_trace_sent(all, 2, 0, txq, &txq->frame[0]);
    free(txq);
    assert_int_equal(vb_trace_seen(all), 0);
    assert_int_equal(vb_trace_seen(kept[0]), 2);
    assert_int_equal(vb_trace_seen(kept[1]), 3);
    struct capture *c = dump(kept[0]);
    assert_int_equal(c->packet[0].comments, 1);
    assert_string_equal(c->packet[0].comment[0], "of 1");
    free(c);
    for (unsigned i = 0; i < 2; i++)
        vb_trace_destroy(kept[i]);
    vb_trace_destroy(all);
}

static void test_a_trace_as_bytes(void **state)
{
    (void)state;
    struct vb_trace *trace = create(8192, 0, false);
    void *bytes = malloc(vb_trace_bytes(8192));
    assert_non_null(bytes);
    come(trace, 1);
    vb_trace_save(trace, bytes);
    come(trace, 1);
    const struct vb_trace *saved = vb_trace_saved(bytes, 8192);
    assert_non_null(saved);
    assert_int_equal(vb_trace_seen(saved), 1);
    struct capture *c = dump(saved);
    assert_int_equal(c->count, 1);
    free(c);
    assert_null(vb_trace_saved(bytes, 4096));
    memset(bytes, 0xff, vb_trace_bytes(8192));
    assert_null(vb_trace_saved(bytes, 8192));
    memset(bytes, 0, vb_trace_bytes(8192));
    assert_null(vb_trace_saved(bytes, 0));
    free(bytes);
    vb_trace_destroy(trace);
}

static void test_errors_are_told(void **state)
{
    (void)state;
    struct vb_trace_opts opts = {.ring_bytes = VB_TRACE_RING_MIN - 1};
    struct vb_trace *trace = NULL;
    assert_int_equal(vb_trace_create(&opts, &trace), -EINVAL);
    assert_null(trace);
    vb_trace_destroy(NULL);
    trace = create(VB_TRACE_RING_MIN, 0, false);
    struct vb_trace_source source = {.trace = trace, .name = "udp"};
    assert_int_equal(vb_trace_dump(&source, 1, -1), -EBADF);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(vb_trace_dump(&source, 1, full), -ENOSPC);
    close(full);
    vb_trace_destroy(trace);
}

static void test_the_wall_offset_leads_to_the_date(void **state)
{
    (void)state;
    struct timespec before, after;
    clock_gettime(CLOCK_REALTIME, &before);
    int64_t wall_ns = (int64_t)vb_clock_ns() + vb_trace_wall_offset_ns();
    clock_gettime(CLOCK_REALTIME, &after);
    assert_true(wall_ns / 1000000000 >= before.tv_sec - 1);
    assert_true(wall_ns / 1000000000 <= after.tv_sec + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_received_packets_are_what_the_wire_carried),
        cmocka_unit_test(test_sent_packets_are_what_the_wire_carries),
        cmocka_unit_test(test_no_checksum_is_zero),
        cmocka_unit_test(test_an_absent_icrc_is_filled_in),
        cmocka_unit_test(test_frames_longer_than_datagrams_are_cut),
        cmocka_unit_test(test_a_snap_length_keeps_the_beginning),
        cmocka_unit_test(test_the_ring_keeps_the_newest_whole),
        cmocka_unit_test(test_remarks_belong_to_the_latest_frame),
        cmocka_unit_test(test_long_remarks_are_cut_between_characters),
        cmocka_unit_test(test_traces_of_several_ports_merge_by_time),
        cmocka_unit_test(test_frames_are_handed_on),
        cmocka_unit_test(test_a_trace_as_bytes),
        cmocka_unit_test(test_errors_are_told),
        cmocka_unit_test(test_the_wall_offset_leads_to_the_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
