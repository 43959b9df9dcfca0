// SPDX-License-Identifier: Apache-2.0
// The fake port under a faulty one: takes as many frames as it is told to, and forgets what it
// gave.
#include "faulty_rig.h"

#include "base/bytes.h"
#include "verbena/nic.h"
#include "wire/roce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct vb_ip rig_ips[3] = {{.b = {[10] = 0xff, 0xff, 10, 0, 0, 1}},
                                 {.b = {[10] = 0xff, 0xff, 10, 0, 0, 2}},
                                 {.b = {[0] = 0xfe, 0x80, [15] = 3}}};

static void fake_send(struct vb_port *port, struct vb_txq *txq)
{
    struct fake *k = (struct fake *)port;
    k->last_txq = txq;
    for (uint32_t n = 0; n < k->take_max && txq->taken < txq->count; n++) {
        struct vb_tx_frame *f = &txq->frame[txq->taken++];
        uint8_t bytes[VB_FRAME_MAX];
        uint16_t id;
        struct vb_path path;
        vb_path_init(&path, &f->path->local, &f->path->remote, f->path->src_port);
        vb_tx_seal(txq, f, 0);
        vb_tx_copy(txq, f, bytes);
        assert_true(k->sent_count < RIG_LOG);
        k->sent[k->sent_count++] = (struct entry){
            .tag = vb_get_be32(bytes + VB_BTH_BYTES),
            .qpn = vb_get_be24(bytes + 5),
            .intact = vb_icrc_check(&path.icrc, 0, bytes, f->len, &id) != VB_ICRC_BAD};
    }
}

// The bytes of the batch before are gone, for the sanitizer to see.
static uint32_t fake_receive(struct vb_port *port, struct vb_rx_frame *frames)
{
    struct fake *k = (struct fake *)port;
    uint32_t count = k->inbox_count;
    k->receives++;
    free(k->bytes);
    k->bytes = malloc(count ? count * RIG_BYTES : 1);
    for (uint32_t i = 0; i < count; i++) {
        frames[i] = k->inbox[i];
        frames[i].data = frames[i].head = k->bytes + i * RIG_BYTES;
        memset(k->bytes + i * RIG_BYTES, 0, RIG_BYTES);
        k->bytes[i * RIG_BYTES] = VB_RC_SEND_ONLY;
        vb_put_be24(k->bytes + i * RIG_BYTES + 5, (uint32_t)(uintptr_t)k->inbox[i].head);
        vb_put_be32(k->bytes + i * RIG_BYTES + VB_BTH_BYTES, (uint32_t)(uintptr_t)k->inbox[i].data);
    }
    k->inbox_count = 0;
    return count;
}

static int fake_sleep(struct vb_port *port)
{
    ((struct fake *)port)->sleeps++;
    return RIG_FD;
}

static void fake_close(struct vb_port *port)
{
    struct fake *k = (struct fake *)port;
    *k->closed = true;
    free(k->bytes);
    free(k);
}

static const struct vb_port_ops fake_ops = {
    .send = fake_send, .receive = fake_receive, .sleep = fake_sleep, .close = fake_close};

static uint64_t read_clock(void *ctx)
{
    struct rig *g = ctx;
    g->clock_reads++;
    return g->now;
}

struct vb_faults *rig_parse(const char *text)
{
    struct vb_faults *f = NULL;
    char why[VB_ERROR_TEXT] = "";
    if (vb_faults_parse(text, &f, why) != 0)
        fail_msg("%s", why);
    return f;
}

struct rig *rig_open(const char *rules)
{
    struct rig *g = calloc(1, sizeof *g);
    struct fake *k = calloc(1, sizeof *k);
    assert_true(g && k);
    g->txq.arena = calloc(1, VB_TX_BYTES);
    assert_non_null(g->txq.arena);
    k->port.ops = &fake_ops;
    k->port.local = rig_ips[0];
    k->port.src_port = 4791;
    k->take_max = VB_TX_FRAMES;
    k->closed = &g->closed;
    g->fake = k;
    g->now = 1000000;
    g->port = vb_faulty_wrap(&k->port, rules ? rig_parse(rules) : NULL, read_clock, g);
    assert_non_null(g->port);
    for (unsigned i = 0; i < 2; i++)
        vb_path_init(&g->path[i], &rig_ips[0], &rig_ips[1 + i], 4791);
    return g;
}

void rig_close(struct rig *g)
{
    g->port->ops->close(g->port);
    assert_true(g->closed);
    free(g->txq.arena);
    free(g);
}

void rig_push(struct rig *g, uint32_t qpn, unsigned to)
{
    uint8_t *bytes = g->txq.arena + g->txq.used;
    memset(bytes, 0, RIG_BYTES);
    bytes[0] = VB_RC_SEND_ONLY;
    vb_put_be24(bytes + 5, qpn);
    vb_put_be32(bytes + VB_BTH_BYTES, ++g->tags);
    assert_true(g->txq.count < VB_TX_FRAMES);
    g->txq.frame[g->txq.count++] =
        (struct vb_tx_frame){.path = &g->path[to], .offset = g->txq.used, .len = RIG_BYTES};
    g->txq.used += RIG_BYTES;
}

void rig_send(struct rig *g)
{
    g->port->ops->send(g->port, &g->txq);
    if (g->txq.taken == g->txq.count)
        g->txq.used = g->txq.count = g->txq.taken = 0;
}

void rig_send_frames(struct rig *g, uint32_t count, uint32_t qpn)
{
    for (uint32_t i = 0; i < count; i++)
        rig_push(g, qpn, 0);
    rig_send(g);
    assert_int_equal(g->txq.count, 0);
}

// Until it is received, head and data stand for the frame's queue pair and tag.
void rig_arrive(struct rig *g, uint32_t qpn, unsigned from)
{
    struct fake *k = g->fake;
    assert_true(k->inbox_count < VB_PORT_RX_BATCH);
    k->inbox[k->inbox_count++] = (struct vb_rx_frame){.head = (const uint8_t *)(uintptr_t)qpn,
                                                      .data = (const uint8_t *)(uintptr_t)++g->tags,
                                                      .len = RIG_BYTES,
                                                      .src = rig_ips[from]};
}

uint32_t rig_receive(struct rig *g)
{
    uint32_t n = g->port->ops->receive(g->port, g->frames);
    assert_true(n <= VB_PORT_RX_BATCH);
    for (uint32_t i = 0; i < n; i++) {
        const struct vb_rx_frame *f = &g->frames[i];
        assert_int_equal(f->len, RIG_BYTES);
        assert_memory_equal(f->head, f->data, RIG_BYTES);
        assert_true(g->got_count < RIG_LOG);
        g->got[g->got_count++] = (struct entry){.tag = vb_get_be32(f->data + VB_BTH_BYTES),
                                                .qpn = vb_get_be24(f->data + 5)};
    }
    return n;
}

void rig_assert_log(const struct entry *log, uint32_t count, const uint32_t *tags)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(log[i].tag, tags[i]);
    assert_int_equal(tags[count], 0);
}
