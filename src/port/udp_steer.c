// SPDX-License-Identifier: Apache-2.0
// The steering program, and the order of sockets that it relies on.
#include "port/udp_steer.h"

#include <stdlib.h>

enum {
    QPN_AT = 4, // in the BTH: a byte that is reserved, then 24 bits
    QPN_MASK = 0xffffff,
    SCRATCH_QPN = 0,
};

struct builder {
    struct sock_filter *code;
    uint32_t used;
    uint32_t rest;
};

static void add(struct builder *b, uint16_t op, uint8_t yes, uint8_t no, uint32_t k)
{
    if (b->used < UDP_STEER_CODE)
        b->code[b->used] = (struct sock_filter){op, yes, no, k};
    b->used++;
}

static uint32_t index_or_rest(const struct builder *b, uint32_t index)
{
    return index == REGISTRY_INDEX_NONE ? b->rest : index;
}

// The lowest bits of a number name the unit.
static void add_member(struct builder *b, const struct registry_member *m)
{
    if (m->units > 1) {
        add(b, BPF_LD | BPF_MEM, 0, 0, SCRATCH_QPN);
        add(b, BPF_ALU | BPF_AND | BPF_K, 0, 0, m->units - 1);
    }
    for (uint32_t unit = m->units - 1; unit > 0; unit--) {
        add(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, unit);
        add(b, BPF_RET | BPF_K, 0, 0, index_or_rest(b, m->index[unit]));
    }
    add(b, BPF_RET | BPF_K, 0, 0, index_or_rest(b, m->index[0]));
}

// A search tree: jumps that depend on something reach only 255 instructions, others any.
static void add_tree(struct builder *b, const struct registry_member *m, uint32_t count)
{
    uint32_t half = count / 2;
    if (count == 1) {
        add_member(b, m);
        return;
    }
    add(b, BPF_JMP | BPF_JGE | BPF_K, 0, 1, m[half].slot);
    uint32_t jump = b->used;
    add(b, BPF_JMP | BPF_JA, 0, 0, 0);
    add_tree(b, m, half);
    if (jump < UDP_STEER_CODE)
        b->code[jump].k = b->used - jump - 1;
    add_tree(b, m + half, count - half);
}

uint32_t vb_udp_steer_build(struct sock_filter code[UDP_STEER_CODE],
                            const struct registry_member *members, uint32_t count, uint32_t rest)
{
    struct builder b = {.code = code, .rest = rest};
    add(&b, BPF_LD | BPF_B | BPF_ABS, 0, 0, 0);
    add(&b, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, UDP_PROBE_OPCODE);
    add(&b, BPF_LD | BPF_W | BPF_ABS, 0, 0, UDP_PROBE_INDEX_AT);
    add(&b, BPF_RET | BPF_A, 0, 0, 0);
    add(&b, BPF_LD | BPF_W | BPF_ABS, 0, 0, QPN_AT);
    add(&b, BPF_ALU | BPF_AND | BPF_K, 0, 0, QPN_MASK);
    add(&b, BPF_ST, 0, 0, SCRATCH_QPN);
    // The management queue pairs' frames concern all.
    add(&b, BPF_JMP | BPF_JGT | BPF_K, 1, 0, 1);
    add(&b, BPF_RET | BPF_K, 0, 0, rest);
    add(&b, BPF_ALU | BPF_RSH | BPF_K, 0, 0, REGISTRY_RANGE_BITS);
    if (count > 0)
        add_tree(&b, members, count);
    else
        add(&b, BPF_RET | BPF_K, 0, 0, rest);
    return b.used <= UDP_STEER_CODE ? b.used : 0;
}

static int from_high(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void move(struct registry_member *members, uint32_t count, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t unit = 0; unit < members[i].units; unit++)
            if (members[i].index[unit] == from) {
                members[i].index[unit] = to;
                return;
            }
}

// From the last on, so that what fills a hole never is one that goes, too.
void vb_udp_steer_close(struct registry_member *members, uint32_t member_count, uint32_t *gone,
                        uint32_t gone_count, uint32_t count)
{
    qsort(gone, gone_count, sizeof *gone, from_high);
    for (uint32_t i = 0; i < gone_count && count > 0; i++) {
        count--;
        if (gone[i] < count)
            move(members, member_count, count, gone[i]);
    }
}
