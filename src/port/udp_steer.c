// SPDX-License-Identifier: Apache-2.0
// The steering program, and the order of sockets that it relies on.
#include "port/udp_steer.h"

#include "cm/route.h"

#include <stdlib.h>

enum {
    QPN_AT = 4, // in the BTH: a byte that is reserved, then 24 bits
    QPN_MASK = 0xffffff,
    SCRATCH_QPN = 0,
    MAD_AT = 20, // of a datagram's message
    KIND_AT = MAD_AT + 16,
    LOCAL_ID_AT = MAD_AT + VB_MAD_HEADER_BYTES,
    REMOTE_ID_AT = LOCAL_ID_AT + 4,
    SERVICE_AT = LOCAL_ID_AT + 8,
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

// ---- queue pair 1

static void add_return(struct builder *b, uint32_t index)
{
    add(b, BPF_RET | BPF_K, 0, 0, index_or_rest(b, index));
}

// Jumps ahead to where land() is.
static uint32_t add_jump(struct builder *b)
{
    add(b, BPF_JMP | BPF_JA, 0, 0, 0);
    return b->used - 1;
}

static void land(struct builder *b, uint32_t jump)
{
    if (jump < UDP_STEER_CODE)
        b->code[jump].k = b->used - jump - 1;
}

// An id of nobody's is the rest's: unlike a number it has an answer.
static void add_id_tree(struct builder *b, const struct registry_member *m, uint32_t count)
{
    uint32_t half = count / 2;
    if (count == 1) {
        if (m->manages) {
            add(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, m->slot);
            add_return(b, m->index[VB_GSI_QPN & (m->units - 1)]);
        }
        add(b, BPF_RET | BPF_K, 0, 0, b->rest);
        return;
    }
    add(b, BPF_JMP | BPF_JGE | BPF_K, 0, 1, m[half].slot);
    uint32_t jump = add_jump(b);
    add_id_tree(b, m, half);
    land(b, jump);
    add_id_tree(b, m + half, count - half);
}

static void add_services(struct builder *b, const struct udp_steer_service *services,
                         uint32_t count)
{
    add(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, SERVICE_AT);
    add(b, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0);
    add(b, BPF_RET | BPF_K, 0, 0, b->rest);
    add(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, SERVICE_AT + 4);
    for (uint32_t i = 0; i < count; i++) {
        add(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, services[i].id);
        add_return(b, services[i].index);
    }
    add(b, BPF_RET | BPF_K, 0, 0, b->rest);
}

// As vb_cm_route() has it; what is not quite a message may go anywhere.
static void add_manager(struct builder *b, const struct registry_member *members, uint32_t count,
                        const struct udp_steer_service *services, uint32_t service_count)
{
    add(b, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, VB_GSI_QPN);
    add(b, BPF_RET | BPF_K, 0, 0, b->rest);
    add(b, BPF_LD | BPF_H | BPF_ABS, 0, 0, KIND_AT);
    add(b, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, VB_CM_REQ);
    add(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, VB_CM_SIDR_REQ);
    uint32_t to_services = add_jump(b);
    add(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, VB_CM_SIDR_REP);
    add(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, LOCAL_ID_AT);
    add(b, BPF_JMP | BPF_JA, 0, 0, 1);
    add(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, REMOTE_ID_AT);
    add(b, BPF_ALU | BPF_RSH | BPF_K, 0, 0, 32 - VB_CM_PREFIX_BITS);
    add_id_tree(b, members, count);
    land(b, to_services);
    add_services(b, services, service_count);
}

static uint32_t build(struct builder *b, const struct registry_member *members, uint32_t count,
                      const struct udp_steer_service *services, uint32_t service_count,
                      bool managed)
{
    add(b, BPF_LD | BPF_B | BPF_ABS, 0, 0, 0);
    add(b, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, UDP_PROBE_OPCODE);
    add(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, UDP_PROBE_INDEX_AT);
    add(b, BPF_RET | BPF_A, 0, 0, 0);
    add(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, QPN_AT);
    add(b, BPF_ALU | BPF_AND | BPF_K, 0, 0, QPN_MASK);
    add(b, BPF_ST, 0, 0, SCRATCH_QPN);
    // The management queue pairs' frames concern all.
    add(b, BPF_JMP | BPF_JGT | BPF_K, 0, 1, VB_GSI_QPN);
    uint32_t to_numbers = add_jump(b);
    if (managed && count > 0)
        add_manager(b, members, count, services, service_count);
    else
        add(b, BPF_RET | BPF_K, 0, 0, b->rest);
    land(b, to_numbers);
    add(b, BPF_ALU | BPF_RSH | BPF_K, 0, 0, REGISTRY_RANGE_BITS);
    if (count > 0)
        add_tree(b, members, count);
    else
        add(b, BPF_RET | BPF_K, 0, 0, b->rest);
    return b->used <= UDP_STEER_CODE ? b->used : 0;
}

uint32_t vb_udp_steer_build(struct sock_filter code[UDP_STEER_CODE],
                            const struct registry_member *members, uint32_t count, uint32_t rest)
{
    struct builder b = {.code = code, .rest = rest};
    return build(&b, members, count, NULL, 0, false);
}

uint32_t vb_udp_steer_build_managed(struct sock_filter code[UDP_STEER_CODE],
                                    const struct registry_member *members, uint32_t count,
                                    uint32_t rest, const struct udp_steer_service *services,
                                    uint32_t service_count)
{
    struct builder b = {.code = code, .rest = rest};
    return build(&b, members, count, services, service_count, true);
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
