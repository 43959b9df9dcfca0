// SPDX-License-Identifier: Apache-2.0
// A client that sends anything to the offload it was given: any payload, too long or empty, more
// than there are receives for, other operations with other clients' keys, changed frames. Its
// program touches nothing but what it was granted, and the other client's requests are answered.
// Input: set-up, whose offloads; then one command after the other.
#include "tenant.h"

#include "base/bytes.h"
#include "chain/code.h"

#include <stdlib.h>
#include <string.h>

enum { // bits of the first byte
    SETUP_UNITS = 1 << 0,
    SETUP_DEPTH = 1 << 1, // one entry is fetched ahead
};

struct input {
    const uint8_t *data;
    size_t left;
};

static uint8_t u8(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

static uint16_t u16(struct input *in)
{
    uint16_t high = (uint16_t)(u8(in) << 8);
    return high | u8(in);
}

// ---- what a client could know or guess

// Memory of the server's: of both programs, shared, and nobody's.
static const struct tenant_memory *memory(const struct tenant_server *s, uint8_t choice)
{
    const struct tenant *t = &s->tenant[choice >> 7];

    switch (choice / 8 % 8) {
    case 0: return &s->index;
    case 1: return &s->items;
    case 2: return &s->other;
    case 3: return &t->recv[t->k];
    case 4: return &t->data[choice % 8 % t->image->regions];
    default: return &t->send[choice % 8 % t->image->queues];
    }
}

static uint64_t address(const struct tenant_server *s, struct input *in)
{
    uint8_t choice = u8(in), how = u8(in);
    const struct tenant_memory *m = memory(s, choice);

    switch (how % 8) {
    case 0: return m->addr;
    case 1: return m->addr + m->bytes - u8(in) % 64u;
    case 2: return m->addr - 1 - u8(in) % 64u;
    case 3: return UINT64_MAX - u8(in);
    case 4: return (uint64_t)u16(in) << 48 | u16(in);
    case 5: return (uintptr_t)m->at + u8(in);
    default: return m->addr + u16(in) % (m->bytes + 1);
    }
}

// ---- commands

// A good request with some bytes, or an address in it, that are not.
static void send_bent(struct tenant_server *s, struct input *in)
{
    struct tenant *t = &s->tenant[0];
    uint8_t request[TENANT_PAYLOAD] = {0}, changes = u8(in);
    uint32_t len = tenant_good_request(s, t->kind, request);
    uint32_t at = t->kind <= TENANT_HASH_PAR ? VB_HASH_KEY_BYTES : 0;

    if (changes & 0x80)
        vb_put_be64(request + at, address(s, in));
    if (changes & 0x40 && at + sizeof(struct vb_hash_request) + 8 <= len)
        vb_put_be64(request + at + sizeof(struct vb_hash_request), address(s, in));
    for (uint32_t i = 0; i < (changes & 7u); i++) {
        uint8_t where = u8(in);
        request[where % 128] ^= u8(in);
    }
    len = changes & 0x20 ? u8(in) : len;
    tenant_send(s, t, request, len + (changes & 0x10 ? u16(in) % 4096u : 0));
}

static void send_raw(struct tenant_server *s, struct input *in)
{
    uint8_t payload[TENANT_PAYLOAD] = {0};
    uint32_t len = u8(in);

    for (uint32_t i = 0; i < len; i++)
        payload[i] = u8(in);
    tenant_send(s, &s->tenant[0], payload, len);
}

static void send_many(struct tenant_server *s, struct input *in)
{
    uint8_t request[TENANT_PAYLOAD];
    uint32_t len = tenant_good_request(s, s->tenant[0].kind, request);

    for (uint32_t n = u8(in) % 32; n > 0; n--)
        tenant_send(s, &s->tenant[0], request, len);
}

// An operation that the client has no right to: with a key that it guessed.
static void attack(struct tenant_server *s, struct input *in)
{
    static const uint8_t opcodes[] = {VB_WQE_WRITE,     VB_WQE_WRITE_IMM, VB_WQE_READ,
                                      VB_WQE_ATOMIC_CS, VB_WQE_ATOMIC_FA, VB_WQE_SEND_IMM,
                                      VB_WQE_SEND};
    struct tenant *t = &s->tenant[0];
    uint8_t choice = u8(in), whose = u8(in), entry[64] = {0};
    uint8_t opcode = opcodes[choice % sizeof opcodes];
    bool atomic = opcode == VB_WQE_ATOMIC_CS || opcode == VB_WQE_ATOMIC_FA;
    uint32_t key = memory(s, whose)->key ^ (choice & 0x80 ? u8(in) : 0u);

    vb_code_write(
        entry,
        &(struct vb_code){.opcode = opcode,
                          .imm = key,
                          .raddr = address(s, in),
                          .rkey = key,
                          .compare = u8(in),
                          .swap_add = u16(in),
                          .num_sge = 1,
                          .sge = {{t->far_payload.addr, t->far_payload.key, atomic ? 8u : u8(in)}}},
        true);
    if (opcode == VB_WQE_SEND && choice & 0x40) { // and takes the key away
        entry[3] = VB_WQE_SEND_INVAL;
        vb_put_be32(entry + 12, key);
    }
    tenant_post(s, t, entry);
}

// A frame that says it is the other client's, but comes from elsewhere.
static void forge(struct tenant_server *s, struct input *in)
{
    static const struct vb_ip stranger = {{[10] = 0xff, 0xff, 10, 0, 0, 9}};
    uint8_t frame[128] = {0}, len = u8(in) % (sizeof frame + 1);

    for (uint32_t i = 0; i < len; i++)
        frame[i] = u8(in);
    if (len >= 12) {
        frame[1] = 0x40;
        vb_put_be16(frame + 2, 0xffff);
        vb_put_be24(frame + 5, s->tenant[1].qpn[s->tenant[1].k]);
    }
    tenant_frame(s, frame, len, stranger);
}

// Moves wait for nobody: they begin when they were sent something, or not.
static void start_mover(struct tenant_server *s)
{
    if (s->tenant[0].kind == TENANT_MOV)
        tenant_start(s, &s->tenant[0]);
}

static void command(struct tenant_server *s, struct input *in)
{
    uint8_t choice = u8(in);

    switch (choice % 16) {
    case 0:
    case 1:
    case 2: send_bent(s, in); break;
    case 3: send_raw(s, in); break;
    case 4: send_many(s, in); break;
    case 5:
    case 6: attack(s, in); break;
    case 7: forge(s, in); break;
    case 8: s->loses = true; break;
    case 9: s->repeats = true; break;
    case 10:
        s->spoils = u8(in);
        s->spoils_at = u16(in);
        break;
    case 11: start_mover(s); break;
    case 12: tenant_expect_answer(s, &s->tenant[1]); break;
    default: tenant_run(s, choice / 16 * 8u); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tenant_server s;
    struct input in = {data, size};

    memset(&s, 0, sizeof s);
    uint8_t setup = u8(&in);
    s.units = setup & SETUP_UNITS ? 2 : 1;
    s.depth = setup & SETUP_DEPTH ? 1 : 0;
    const enum tenant_kind kind[2] = {(enum tenant_kind)(u8(&in) % TENANT_KINDS),
                                      (enum tenant_kind)(u8(&in) % TENANT_ASKED)};
    tenant_open(&s, kind);
    if (kind[0] != TENANT_MOV)
        tenant_start(&s, &s.tenant[0]);
    tenant_start(&s, &s.tenant[1]);
    for (uint32_t n = 0; in.left > 0 && n < 200; n++)
        command(&s, &in);
    start_mover(&s);
    tenant_expect_answer(&s, &s.tenant[1]);
    tenant_run(&s, 200);
    tenant_expect_answer(&s, &s.tenant[1]);
    tenant_expect_unchanged(&s);
    tenant_close(&s);
    return 0;
}
