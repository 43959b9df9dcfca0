// SPDX-License-Identifier: Apache-2.0
// Clients, the wire, and what must hold after every step and for every answer.
#include "tenant.h"

#include "base/bytes.h"
#include "chain/code.h"

#include <stdlib.h>
#include <string.h>

enum {
    TURN_NS = 1000,
    ANSWER_TURNS = 20000,
    DEST_AT = 5, // three bytes of a BTH
};

// ---- judging

static bool lies_in(const struct vb_touch *t, const struct tenant_memory *m)
{
    const uint8_t *at = t->addr;
    return m->at && at >= m->at && t->len <= m->bytes &&
           (uint64_t)(at - m->at) <= m->bytes - t->len;
}

static bool is_marked(const struct tenant *t, uint32_t queue, const struct vb_touch *touch)
{
    size_t from = (size_t)((const uint8_t *)touch->addr - t->send[queue].at);

    for (uint32_t i = 0; i < touch->len; i++)
        if (t->marked[queue][from + i])
            return true;
    return false;
}

// What the program of a client was given: its rings, in which it may not write keys; its own
// memory; and the index and the items, to read.
static bool may_touch(const struct tenant *t, const struct vb_touch *touch)
{
    for (uint32_t i = 0; i < t->image->queues; i++) {
        if (lies_in(touch, &t->send[i]))
            return !touch->write || !is_marked(t, i, touch);
        if (lies_in(touch, &t->recv[i]))
            return !touch->write;
    }
    for (uint32_t i = 0; i < t->image->regions; i++) {
        const struct vb_image_region *r = &t->image->region[i];
        if (r->kind != VB_REGION_PEER && lies_in(touch, &t->data[i]))
            return !touch->write || (r->kind == VB_REGION_OWN && r->writable);
    }
    return touch->len == 0;
}

void tenant_observe(void *ctx, const struct vb_step *step)
{
    const struct tenant_server *s = ctx;

    for (uint32_t n = 0; n < 2; n++)
        for (uint32_t q = 0; q < s->tenant[n].image->queues; q++) {
            if (s->tenant[n].qpn[q] != step->qpn)
                continue;
            for (uint32_t i = 0; i < step->touches; i++)
                tenant_require(may_touch(&s->tenant[n], &step->touch[i]));
            return;
        }
    tenant_require(step->touches == 0);
}

// A program writes to its own client.
void tenant_observe_far(void *ctx, const struct vb_step *step)
{
    const struct tenant_server *s = ctx;

    for (uint32_t n = 0; n < 2; n++) {
        const struct tenant *t = &s->tenant[n];
        if (t->far_qpn != step->qpn)
            continue;
        for (uint32_t i = 0; i < step->touches; i++) {
            bool found = step->touch[i].len == 0 || lies_in(&step->touch[i], &t->far_ring) ||
                         lies_in(&step->touch[i], &t->far_recvs) ||
                         lies_in(&step->touch[i], &t->far_payload);
            for (uint32_t r = 0; r < t->image->regions; r++)
                found |= t->image->region[r].kind == VB_REGION_PEER &&
                         lies_in(&step->touch[i], &t->data[r]);
            tenant_require(found);
        }
    }
}

void tenant_expect_unchanged(const struct tenant_server *s)
{
    tenant_require(memcmp(s->before[0], s->index.at, TENANT_SHARED) == 0);
    tenant_require(memcmp(s->before[1], s->items.at, TENANT_SHARED) == 0);
    tenant_require(memcmp(s->before[2], s->other.at, TENANT_SHARED) == 0);
}

// ---- the wire

static void add_frame(struct tenant_lane *l, const uint8_t *bytes, uint32_t len, struct vb_ip from)
{
    if (l->count == TENANT_LANE)
        return; // it is lost
    uint8_t *copy = malloc(len ? len : 1);
    tenant_require(copy != NULL);
    memcpy(copy, bytes, len);
    l->frame[l->count++] =
        (struct vb_rx_frame){.data = copy, .head = copy, .len = len, .src = from};
}

static uint32_t unit_of(const struct tenant_server *s, const uint8_t *bytes, uint32_t len)
{
    return len > DEST_AT + 2 ? bytes[DEST_AT + 2] & (s->units - 1) : 0;
}

void tenant_frame(struct tenant_server *s, const uint8_t *bytes, uint32_t len, struct vb_ip from)
{
    add_frame(&s->lane[unit_of(s, bytes, len)], bytes, len, from);
}

// What the hostile client sends may be lost, doubled or changed, but for whom it is for.
static void send_hostile(struct tenant_server *s, uint8_t *bytes, uint32_t len)
{
    uint32_t at = len ? s->spoils_at % len : 0;

    if (s->spoils && (at < DEST_AT || at > DEST_AT + 2))
        bytes[at] ^= s->spoils;
    if (!s->loses)
        tenant_frame(s, bytes, len, s->far_ip);
    if (s->repeats)
        tenant_frame(s, bytes, len, s->far_ip);
    s->spoils = 0;
    s->loses = s->repeats = false;
}

static void carry(struct tenant_server *s, struct vb_pu *pu, bool to_server)
{
    struct vb_txq *q = vb_pu_txq(pu);
    uint8_t bytes[VB_FRAME_MAX];

    for (; q->taken < q->count; q->taken++) {
        const struct vb_tx_frame *f = &q->frame[q->taken];
        vb_tx_copy(q, f, bytes);
        if (!to_server)
            add_frame(&s->lane[s->units], bytes, f->len, s->near_ip);
        else if (vb_get_be24(bytes + DEST_AT) == s->tenant[0].qpn[s->tenant[0].k])
            send_hostile(s, bytes, f->len);
        else
            tenant_frame(s, bytes, f->len, s->far_ip);
    }
    vb_pu_tx_release(pu);
}

static void feed(struct tenant_lane *l, struct vb_pu *pu)
{
    if (l->count == 0 || vb_pu_frames_left(pu) > 0)
        return;
    for (uint32_t i = 0; i < l->fed; i++)
        free((void *)(uintptr_t)l->frame[i].data);
    memmove(l->frame, l->frame + l->fed, (l->count - l->fed) * sizeof l->frame[0]);
    l->count -= l->fed;
    l->fed = l->count;
    vb_pu_feed(pu, l->frame, l->fed);
}

// ---- time

// Everybody once. False: nobody had anything to do.
static bool turn(struct tenant_server *s)
{
    uint32_t steps = 0;

    for (uint32_t u = 0; u <= s->units; u++) {
        struct vb_pu *pu = u < s->units ? vb_dev_pu_at(s->near, u) : vb_dev_pu(s->far);
        feed(&s->lane[u], pu);
        uint32_t made = vb_pu_poll(pu, s->now_ns);
        tenant_require(made < TENANT_STEPS);
        (void)vb_pu_handed(pu);
        vb_pu_publish(pu);
        carry(s, pu, u == s->units);
        steps += made;
    }
    s->now_ns += TURN_NS;
    for (uint32_t u = 0; u <= s->units; u++)
        steps += s->lane[u].count - s->lane[u].fed;
    return steps > 0;
}

static bool skip_time(struct tenant_server *s)
{
    uint64_t next = vb_pu_deadline(vb_dev_pu(s->far));

    for (uint32_t u = 0; u < s->units; u++) {
        uint64_t deadline = vb_pu_deadline(vb_dev_pu_at(s->near, u));
        next = deadline < next ? deadline : next;
    }
    if (next == UINT64_MAX)
        return false;
    s->now_ns = next > s->now_ns ? next : s->now_ns;
    return true;
}

void tenant_run(struct tenant_server *s, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++)
        if (!turn(s) && !skip_time(s))
            return;
}

// ---- clients

uint8_t *tenant_payload(struct tenant *t)
{
    return t->far_payload.at;
}

void tenant_post(struct tenant_server *s, struct tenant *t, const uint8_t entry[64])
{
    memcpy(t->far_ring.at + (size_t)(t->sent % TENANT_DEPTH) * 64, entry, 64);
    t->sent++;
    t->far_dbrec[VB_DBREC_SQ] = htobe32(t->sent & 0xffff);
    vb_doorbell_ring(vb_dev_doorbells(s->far), t->far_qpn);
}

// By turns from one half of the payload and the other: the last message may still be on its way.
void tenant_send(struct tenant_server *s, struct tenant *t, const uint8_t *bytes, uint32_t len)
{
    uint32_t at = t->sent % 2 * TENANT_PAYLOAD;
    uint8_t entry[64] = {0};

    memcpy(t->far_payload.at + at, bytes, len);
    vb_code_write(entry,
                  &(struct vb_code){.opcode = VB_WQE_SEND,
                                    .num_sge = len > 0,
                                    .sge = {{t->far_payload.addr + at, t->far_payload.key, len}}},
                  true);
    tenant_post(s, t, entry);
}

// The oldest reply. False: none yet.
static bool take(struct tenant *t, uint32_t *imm)
{
    struct tenant_cq *cq = &t->far_cq;
    const struct vb_cqe *cqe;

    do {
        cqe = (const void *)(cq->ring + (cq->taken & (cq->entries - 1)) * VB_CQE_BYTES);
        if (cqe->op_own >> 4 == VB_CQE_INVALID || (cqe->op_own & 1) != !!(cq->taken & cq->entries))
            return false;
        cq->taken++;
    } while (cqe->op_own >> 4 == VB_CQE_REQ || cqe->op_own >> 4 == VB_CQE_REQ_ERR);
    tenant_require(cqe->op_own >> 4 == VB_CQE_RESP_WR_IMM);
    *imm = be32toh(cqe->imm_inval_pkey);
    return true;
}

void tenant_expect_answer(struct tenant_server *s, struct tenant *t)
{
    uint8_t request[TENANT_PAYLOAD];
    uint32_t imm = 0, client = (uint32_t)vb_image_find_region(t->image, "client");
    uint8_t *value = t->data[client].at + (size_t)(t->asked % t->slots) * TENANT_VALUE_MAX;

    memset(t->data[client].at, 0, t->data[client].bytes);
    tenant_send(s, t, request, tenant_good_request(s, t->kind, request));
    t->asked++;
    for (uint32_t i = 0; i < ANSWER_TURNS && imm == 0; i++) {
        (void)(turn(s) || skip_time(s));
        (void)take(t, &imm);
    }
    tenant_require(imm == TENANT_VALUE && memcmp(value, s->items.at, TENANT_VALUE) == 0);
    for (uint64_t i = 0; i < t->data[client].bytes; i++)
        tenant_require(t->data[client].at[i] == 0 ||
                       (i - (uint64_t)(value - t->data[client].at)) < TENANT_VALUE);
    t->far_dbrec[VB_DBREC_RQ] = htobe32((TENANT_DEPTH + t->asked) & 0xffff);
    vb_doorbell_ring(vb_dev_doorbells(s->far), t->far_qpn);
}
