// SPDX-License-Identifier: Apache-2.0
// Messages of the service of offloads: written and read.
#include "chain/offload_message.h"

#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 0x76626f66, // "vbof"
    JOIN_BYTES = VB_OFFLOAD_HEAD + 8 + VB_OFFLOAD_NAME + 16 + 4 * 4 + 8 + 8 + 4,
    LEAVE_BYTES = VB_OFFLOAD_HEAD + 8,
    PLACE_BYTES = VB_OFFLOAD_HEAD + 8 + 16 + 7 * 4,
    REGION_BYTES = VB_OFFLOAD_NAME + 8 + 8,
    REFUSED_BYTES = VB_OFFLOAD_HEAD + 4 + VB_OFFLOAD_TEXT,
};

static_assert(PLACE_BYTES + VB_OFFLOAD_REGIONS * REGION_BYTES <= VB_OFFLOAD_MESSAGE, "it fits");
static_assert((int)REFUSED_BYTES <= (int)VB_OFFLOAD_MESSAGE, "it fits");

// Where the next field goes. Lengths are known before, so nothing is checked on the way.
struct cursor {
    uint8_t *at;
};

static void put16(struct cursor *c, uint32_t value)
{
    vb_put_be16(c->at, (uint16_t)value);
    c->at += 2;
}

static void put32(struct cursor *c, uint32_t value)
{
    vb_put_be32(c->at, value);
    c->at += 4;
}

static void put64(struct cursor *c, uint64_t value)
{
    vb_put_be64(c->at, value);
    c->at += 8;
}

static void put_bytes(struct cursor *c, const void *bytes, size_t len)
{
    memcpy(c->at, bytes, len);
    c->at += len;
}

// Text is cut off where its room ends, and filled up with zeros.
static void put_text(struct cursor *c, const char *text, size_t room)
{
    size_t len = strnlen(text, room - 1);
    memset(c->at, 0, room);
    memcpy(c->at, text, len);
    c->at += room;
}

struct reader {
    const uint8_t *at;
};

static uint32_t get32(struct reader *r)
{
    r->at += 4;
    return vb_get_be32(r->at - 4);
}

static uint64_t get64(struct reader *r)
{
    r->at += 8;
    return vb_get_be64(r->at - 8);
}

static void get_bytes(struct reader *r, void *bytes, size_t len)
{
    memcpy(bytes, r->at, len);
    r->at += len;
}

// What a stranger sent may have no end.
static void get_text(struct reader *r, char *text, size_t room)
{
    get_bytes(r, text, room);
    text[room - 1] = 0;
}

// ---- heads

static struct cursor begin(uint8_t *message, enum vb_offload_kind kind, uint32_t len)
{
    struct cursor c = {message};
    put32(&c, MAGIC);
    put16(&c, VB_OFFLOAD_VERSION_NOW);
    put16(&c, kind);
    put32(&c, len);
    return c;
}

uint32_t vb_offload_message_bytes(const uint8_t head[VB_OFFLOAD_HEAD])
{
    uint32_t len = vb_get_be32(head + 8);
    bool right = vb_get_be32(head) == MAGIC && len >= VB_OFFLOAD_HEAD && len <= VB_OFFLOAD_MESSAGE;
    return right ? len : 0;
}

// Whether it is a whole message; `kind` is what it says.
static int check(const uint8_t *message, size_t len, uint32_t *kind)
{
    if (len < VB_OFFLOAD_HEAD || vb_offload_message_bytes(message) != len)
        return VB_OFFLOAD_MALFORMED;
    if (vb_get_be16(message + 4) != VB_OFFLOAD_VERSION_NOW)
        return VB_OFFLOAD_VERSION;
    *kind = vb_get_be16(message + 6);
    return 0;
}

// ---- requests

uint32_t vb_offload_write_join(uint8_t message[VB_OFFLOAD_MESSAGE], const struct vb_offload_join *j)
{
    struct cursor c = begin(message, VB_OFFLOAD_JOIN, JOIN_BYTES);
    put64(&c, j->nonce);
    put_text(&c, j->offload, VB_OFFLOAD_NAME);
    put_bytes(&c, j->gid, sizeof j->gid);
    put32(&c, j->qpn);
    put32(&c, j->psn);
    put32(&c, j->mtu);
    put32(&c, j->depth);
    put64(&c, j->addr);
    put64(&c, j->bytes);
    put32(&c, j->key);
    assert(c.at == message + JOIN_BYTES);
    return JOIN_BYTES;
}

static void read_join(struct reader *r, struct vb_offload_join *j)
{
    j->nonce = get64(r);
    get_text(r, j->offload, VB_OFFLOAD_NAME);
    get_bytes(r, j->gid, sizeof j->gid);
    j->qpn = get32(r);
    j->psn = get32(r);
    j->mtu = get32(r);
    j->depth = get32(r);
    j->addr = get64(r);
    j->bytes = get64(r);
    j->key = get32(r);
}

uint32_t vb_offload_write_leave(uint8_t message[VB_OFFLOAD_MESSAGE], uint64_t ticket)
{
    struct cursor c = begin(message, VB_OFFLOAD_LEAVE, LEAVE_BYTES);
    put64(&c, ticket);
    return LEAVE_BYTES;
}

int vb_offload_read_request(const void *message, size_t len, struct vb_offload_request *request)
{
    struct reader r = {(const uint8_t *)message + VB_OFFLOAD_HEAD};
    uint32_t kind;
    int why = check(message, len, &kind);

    if (why)
        return why;
    memset(request, 0, sizeof *request);
    if (kind == VB_OFFLOAD_JOIN && len == JOIN_BYTES)
        read_join(&r, &request->join);
    else if (kind == VB_OFFLOAD_LEAVE && len == LEAVE_BYTES)
        request->ticket = get64(&r);
    else
        return VB_OFFLOAD_MALFORMED;
    request->kind = (enum vb_offload_kind)kind;
    return 0;
}

// ---- answers

uint32_t vb_offload_write_place(uint8_t message[VB_OFFLOAD_MESSAGE],
                                const struct vb_offload_place *p)
{
    uint32_t len = PLACE_BYTES + p->regions * REGION_BYTES;
    struct cursor c = begin(message, VB_OFFLOAD_PLACE, len);

    assert(p->regions <= VB_OFFLOAD_REGIONS);
    put64(&c, p->ticket);
    put_bytes(&c, p->gid, sizeof p->gid);
    put32(&c, p->qpn);
    put32(&c, p->psn);
    put32(&c, p->mtu);
    put32(&c, p->depth);
    put32(&c, p->request_bytes);
    put32(&c, p->answer_bytes);
    put32(&c, p->regions);
    for (uint32_t i = 0; i < p->regions; i++) {
        put_text(&c, p->region[i].name, VB_OFFLOAD_NAME);
        put64(&c, p->region[i].addr);
        put64(&c, p->region[i].bytes);
    }
    assert(c.at == message + len);
    return len;
}

uint32_t vb_offload_write_left(uint8_t message[VB_OFFLOAD_MESSAGE])
{
    begin(message, VB_OFFLOAD_LEFT, VB_OFFLOAD_HEAD);
    return VB_OFFLOAD_HEAD;
}

uint32_t vb_offload_write_refused(uint8_t message[VB_OFFLOAD_MESSAGE], enum vb_offload_refusal why,
                                  const char *text)
{
    struct cursor c = begin(message, VB_OFFLOAD_REFUSED, REFUSED_BYTES);
    put32(&c, why);
    put_text(&c, text, VB_OFFLOAD_TEXT);
    return REFUSED_BYTES;
}

// 0: it is of the kind that is expected.
static int read_head(const void *answer, size_t len, enum vb_offload_kind expected, char *error)
{
    struct reader r = {(const uint8_t *)answer + VB_OFFLOAD_HEAD};
    uint32_t kind = 0;

    if (check(answer, len, &kind) == 0 && kind == VB_OFFLOAD_REFUSED && len == REFUSED_BYTES) {
        uint32_t why = get32(&r);
        get_text(&r, error, VB_OFFLOAD_TEXT);
        return why >= VB_OFFLOAD_MALFORMED && why <= VB_OFFLOAD_FAILED ? (int)why
                                                                       : VB_OFFLOAD_FAILED;
    }
    if (kind == expected)
        return 0;
    snprintf(error, VB_OFFLOAD_TEXT, "the service's answer makes no sense");
    return -EPROTO;
}

int vb_offload_read_place(const void *answer, size_t len, struct vb_offload_place *p, char *error)
{
    struct reader r = {(const uint8_t *)answer + VB_OFFLOAD_HEAD};
    int err = read_head(answer, len, VB_OFFLOAD_PLACE, error);

    memset(p, 0, sizeof *p);
    if (err)
        return err;
    if (len < PLACE_BYTES)
        goto nonsense;
    p->ticket = get64(&r);
    get_bytes(&r, p->gid, sizeof p->gid);
    p->qpn = get32(&r);
    p->psn = get32(&r);
    p->mtu = get32(&r);
    p->depth = get32(&r);
    p->request_bytes = get32(&r);
    p->answer_bytes = get32(&r);
    p->regions = get32(&r);
    if (p->regions > VB_OFFLOAD_REGIONS || len != PLACE_BYTES + p->regions * REGION_BYTES)
        goto nonsense;
    for (uint32_t i = 0; i < p->regions; i++) {
        get_text(&r, p->region[i].name, VB_OFFLOAD_NAME);
        p->region[i].addr = get64(&r);
        p->region[i].bytes = get64(&r);
    }
    return 0;
nonsense:
    memset(p, 0, sizeof *p);
    snprintf(error, VB_OFFLOAD_TEXT, "the service's answer has a wrong length");
    return -EPROTO;
}

int vb_offload_read_left(const void *answer, size_t len, char *error)
{
    int err = read_head(answer, len, VB_OFFLOAD_LEFT, error);
    return err || len == VB_OFFLOAD_HEAD ? err : -EPROTO;
}
