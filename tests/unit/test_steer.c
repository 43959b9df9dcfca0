// SPDX-License-Identifier: Apache-2.0
// The steering program, run by a small interpreter, and what closing sockets makes of their order,
// compared with what the system does.
#include "base/bytes.h"
#include "base/prng.h"
#include "cm/route.h"
#include "fresh_seed.h"
#include "port/udp_steer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    REST = 4242,
    FRAME_BYTES = 32,
};

static uint32_t run(const struct sock_filter *code, uint32_t len, const uint8_t *frame)
{
    uint32_t a = 0, scratch = 0;
    for (uint32_t pc = 0; pc < len; pc++) {
        const struct sock_filter *i = &code[pc];
        switch (i->code) {
        case BPF_LD | BPF_B | BPF_ABS: a = frame[i->k]; break;
        case BPF_LD | BPF_H | BPF_ABS: a = vb_get_be16(frame + i->k); break;
        case BPF_LD | BPF_W | BPF_ABS: a = vb_get_be32(frame + i->k); break;
        case BPF_LD | BPF_MEM: a = scratch; break;
        case BPF_ST: scratch = a; break;
        case BPF_ALU | BPF_AND | BPF_K: a &= i->k; break;
        case BPF_ALU | BPF_RSH | BPF_K: a >>= i->k; break;
        case BPF_JMP | BPF_JEQ | BPF_K: pc += a == i->k ? i->jt : i->jf; break;
        case BPF_JMP | BPF_JGT | BPF_K: pc += a > i->k ? i->jt : i->jf; break;
        case BPF_JMP | BPF_JGE | BPF_K: pc += a >= i->k ? i->jt : i->jf; break;
        case BPF_JMP | BPF_JA: pc += i->k; break;
        case BPF_RET | BPF_K: return i->k;
        case BPF_RET | BPF_A: return a;
        default: fail_msg("instruction %u has code %#x", pc, i->code);
        }
    }
    fail_msg("the program does not end");
    return 0;
}

static uint32_t steer(const struct sock_filter *code, uint32_t len, uint32_t qpn)
{
    uint8_t frame[FRAME_BYTES] = {4};
    frame[4] = 0xa5; // reserved: not part of the number
    vb_put_be24(frame + 5, qpn);
    return run(code, len, frame);
}

// Members in slots that a generator draws, with sockets numbered as they come.
static uint32_t draw_members(struct vb_prng *prng, struct registry_member *m, uint32_t most)
{
    uint32_t count = 0, index = 0;
    for (uint32_t slot = (uint32_t)vb_prng_below(prng, 3); slot < REGISTRY_SLOTS && count < most;) {
        uint32_t span = 1 + (uint32_t)vb_prng_below(prng, 2);
        if (slot + span > REGISTRY_SLOTS)
            break;
        m[count] = (struct registry_member){
            .slot = slot, .span = span, .units = 1u << vb_prng_below(prng, most > 100 ? 2 : 5)};
        for (uint32_t unit = 0; unit < m[count].units; unit++)
            m[count].index[unit] = index++;
        count++;
        slot += span + (uint32_t)vb_prng_below(prng, 2) * (uint32_t)vb_prng_below(prng, 9);
    }
    return count;
}

static void test_every_number_finds_its_socket(void **state)
{
    (void)state;
    static struct registry_member m[REGISTRY_SLOTS];
    static struct sock_filter code[UDP_STEER_CODE];
    struct vb_prng prng = {.state = fresh_seed()};
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t count = draw_members(&prng, m, round < 5 ? 1 + round : round % 2 ? 40 : 300);
        uint32_t len = vb_udp_steer_build(code, m, count, REST);
        assert_true(len > 0 && len < UDP_STEER_CODE);
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t n = 0; n < 40; n++) {
                uint32_t qpn = (m[i].slot << REGISTRY_RANGE_BITS) +
                               (uint32_t)vb_prng_below(&prng, m[i].span << REGISTRY_RANGE_BITS);
                if (qpn > 1)
                    assert_int_equal(steer(code, len, qpn), m[i].index[qpn & (m[i].units - 1)]);
            }
        }
        assert_int_equal(steer(code, len, 0), REST);
        assert_int_equal(steer(code, len, 1), REST);
    }
}

static void test_unknown_places_and_probes(void **state)
{
    (void)state;
    static struct sock_filter code[UDP_STEER_CODE];
    struct registry_member m[2] = {
        {.slot = 3, .span = 1, .units = 1, .index = {REGISTRY_INDEX_NONE}},
        {.slot = 4, .span = 1, .units = 2, .index = {5, REGISTRY_INDEX_NONE}}};
    uint32_t len = vb_udp_steer_build(code, m, 2, REST);
    assert_int_equal(steer(code, len, 3 << 15 | 77), REST);
    assert_int_equal(steer(code, len, 4 << 15 | 76), 5);
    assert_int_equal(steer(code, len, 4 << 15 | 77), REST);
    uint8_t probe[FRAME_BYTES] = {UDP_PROBE_OPCODE};
    vb_put_be32(probe + UDP_PROBE_INDEX_AT, 321);
    assert_int_equal(run(code, len, probe), 321);
    len = vb_udp_steer_build(code, m, 0, REST);
    assert_int_equal(steer(code, len, 99), REST);
}

// ---- queue pair 1

static uint32_t steer_message(const struct sock_filter *code, uint32_t len,
                              const struct vb_cm_message *m)
{
    uint8_t frame[20 + VB_MAD_BYTES] = {0x64};
    vb_put_be24(frame + 5, VB_GSI_QPN);
    vb_cm_encode(m, frame + 20);
    return run(code, len, frame);
}

static uint32_t manager_socket(const struct registry_member *m)
{
    return m->manages ? m->index[1 & (m->units - 1)] : REST;
}

static void check_ids(const struct sock_filter *code, uint32_t len, const struct registry_member *m,
                      uint32_t count)
{
    for (uint32_t slot = 0, i = 0; slot < 512; slot++) {
        struct vb_cm_message by_id = {
            .kind = VB_CM_DREQ, .local_id = 7, .remote_id = slot << 23 | 9};
        struct vb_cm_message found = {.kind = VB_CM_SIDR_REP, .local_id = slot << 23 | 9};
        while (i < count && m[i].slot < slot)
            i++;
        uint32_t want = i < count && m[i].slot == slot ? manager_socket(&m[i]) : REST;
        assert_int_equal(steer_message(code, len, &by_id), want);
        assert_int_equal(steer_message(code, len, &found), want);
    }
}

static void check_services(const struct sock_filter *code, uint32_t len,
                           const struct udp_steer_service *service, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct vb_cm_message req = {.kind = VB_CM_REQ, .req.service_id = service[i].id};
        struct vb_cm_message look = {.kind = VB_CM_SIDR_REQ, .sidr_req.service_id = service[i].id};
        uint32_t index = service[i].index == REGISTRY_INDEX_NONE ? REST : service[i].index;
        assert_int_equal(steer_message(code, len, &req), index);
        assert_int_equal(steer_message(code, len, &look), index);
        req.req.service_id += UINT64_C(1) << 32; // another service
        assert_int_equal(steer_message(code, len, &req), REST);
    }
    const struct vb_cm_message nobodys = {.kind = VB_CM_REQ, .req.service_id = 0x01060001};
    assert_int_equal(steer_message(code, len, &nobodys), REST);
}

static void test_messages_find_their_manager(void **state)
{
    (void)state;
    static struct registry_member m[REGISTRY_SLOTS];
    static struct sock_filter code[UDP_STEER_CODE];
    struct udp_steer_service service[UDP_STEER_SERVICES];
    struct vb_prng prng = {.state = fresh_seed()};
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t count = draw_members(&prng, m, round < 5 ? 1 + round : round % 2 ? 40 : 250);
        uint32_t services = (uint32_t)vb_prng_below(&prng, UDP_STEER_SERVICES + 1);
        for (uint32_t i = 0; i < count; i++)
            m[i].manages = vb_prng_below(&prng, 3) > 0;
        for (uint32_t i = 0; i < services; i++)
            service[i] = (struct udp_steer_service){0x01060100 + i * 7,
                                                    i % 9 ? 100 + i : REGISTRY_INDEX_NONE};
        uint32_t len = vb_udp_steer_build_managed(code, m, count, REST, service, services);
        assert_true(len > 0 && len < UDP_STEER_CODE);
        check_ids(code, len, m, count);
        check_services(code, len, service, services);
        assert_int_equal(steer(code, len, 0), REST);
        for (uint32_t i = 0; i < count; i++) { // and numbers go where they went
            uint32_t qpn = m[i].slot << REGISTRY_RANGE_BITS | 0x1234;
            assert_int_equal(steer(code, len, qpn), m[i].index[qpn & (m[i].units - 1)]);
        }
    }
    uint32_t len = vb_udp_steer_build_managed(code, m, 0, REST, service, 0);
    assert_int_equal(steer_message(code, len, &(struct vb_cm_message){.kind = VB_CM_REQ}), REST);
}

static void test_more_than_a_program_holds(void **state)
{
    (void)state;
    static struct registry_member m[REGISTRY_SLOTS];
    static struct sock_filter code[UDP_STEER_CODE];
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        m[i] = (struct registry_member){.slot = i, .span = 1, .units = 16};
    assert_int_equal(vb_udp_steer_build(code, m, REGISTRY_SLOTS, REST), 0);
    for (uint32_t i = 0; i < REGISTRY_SLOTS; i++)
        m[i].units = 1;
    assert_in_range(vb_udp_steer_build(code, m, REGISTRY_SLOTS, REST), 1, UDP_STEER_CODE / 2);
}

// As the system does it: the last socket takes the place of the one that is closed.
static void close_socket(uint32_t *order, uint32_t *count, uint32_t name)
{
    uint32_t at = 0;
    while (order[at] != name)
        at++;
    order[at] = order[--*count];
}

static void test_closing_in_order(void **state)
{
    (void)state;
    struct registry_member m[40];
    struct vb_prng prng = {.state = fresh_seed()};
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t order[40 * REGISTRY_UNITS], gone[40 * REGISTRY_UNITS], sockets = 0, gones = 0;
        uint32_t count = draw_members(&prng, m, 40), live = 0;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t unit = 0; unit < m[i].units; unit++)
                order[sockets++] = m[i].slot * REGISTRY_UNITS + unit;
        uint32_t before = sockets;
        for (uint32_t i = 0; i < count; i++) {
            bool goes = vb_prng_chance(&prng, 300000);
            for (uint32_t unit = 0; goes && unit < m[i].units; unit++)
                gone[gones++] = m[i].index[unit];
            if (!goes)
                m[live++] = m[i];
        }
        uint32_t names[40 * REGISTRY_UNITS];
        memcpy(names, order, sizeof names);
        vb_udp_steer_close(m, live, gone, gones, before);
        for (uint32_t i = 0; i < gones; i++) // in the order that was assumed
            close_socket(order, &sockets, names[gone[i]]);
        for (uint32_t i = 0; i < live; i++)
            for (uint32_t unit = 0; unit < m[i].units; unit++) {
                assert_true(m[i].index[unit] < sockets);
                assert_int_equal(order[m[i].index[unit]], m[i].slot * REGISTRY_UNITS + unit);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_finds_its_socket),
        cmocka_unit_test(test_unknown_places_and_probes),
        cmocka_unit_test(test_messages_find_their_manager),
        cmocka_unit_test(test_more_than_a_program_holds),
        cmocka_unit_test(test_closing_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
