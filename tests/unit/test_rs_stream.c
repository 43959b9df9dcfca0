// SPDX-License-Identifier: Apache-2.0
// Two ends of a stream over memory: writes are copies, in order, with any delay. Whatever the
// interleaving, the bytes come out as they went in and nobody overruns anything.
#include "base/prng.h"
#include "fresh_seed.h"
#include "rsocket/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    QUEUE = 65536
};

// What is on its way from one end, oldest first.
struct flight {
    struct vb_rs_post *posts;
    uint8_t **copies;
    uint32_t head, executed, tail; // completions lag behind executions
};

struct end {
    struct vb_rs_stream stream;
    uint8_t *block;
    struct flight out;
    uint64_t written, read; // positions in the pattern
    int receives;           // posted
};

struct world {
    struct end end[2];
    struct vb_prng prng;
};

static uint8_t pattern(int from, uint64_t at)
{
    return (uint8_t)(at * 31 + (at >> 8) * 17 + (uint64_t)from * 101);
}

static void end_init(struct end *e, struct vb_rs_sizes size)
{
    size_t list = vb_rs_list_bytes(&size);
    size_t control = VB_RS_CONTROL_SLOTS * sizeof(struct vb_rs_sge);
    size_t total = list + control + size.send_bytes + size.recv_bytes;
    struct vb_rs_memory memory;

    memset(e, 0, sizeof *e);
    e->block = calloc(1, total);
    memory.list = (struct vb_rs_sge *)(void *)e->block;
    memory.iomaps =
        (struct vb_rs_iomap *)(void *)(e->block + VB_RS_LIST_ENTRIES * sizeof(struct vb_rs_sge));
    memory.control = e->block + list;
    memory.send = memory.control + control;
    memory.recv = memory.send + size.send_bytes;
    memory.messages = calloc(size.rq + 1u, sizeof(uint32_t));
    memory.list_key = 1;
    memory.recv_key = 2;
    vb_rs_stream_init(&e->stream, &size, &memory);
    e->out.posts = calloc(QUEUE, sizeof *e->out.posts);
    e->out.copies = calloc(QUEUE, sizeof *e->out.copies);
    e->receives = size.rq;
}

static void end_free(struct end *e)
{
    for (uint32_t i = e->out.head; i != e->out.tail; i++)
        free(e->out.copies[i % QUEUE]);
    free(e->out.posts);
    free(e->out.copies);
    free(e->stream.memory.messages);
    free(e->block);
}

static void world_init(struct world *w, uint64_t seed, struct vb_rs_sizes a, struct vb_rs_sizes b)
{
    uint8_t bytes[VB_RS_HELLO_BYTES];
    struct vb_rs_hello hello[2];

    w->prng.state = seed;
    end_init(&w->end[0], a);
    end_init(&w->end[1], b);
    for (int i = 0; i < 2; i++) {
        vb_rs_stream_hello(&w->end[i].stream, &hello[i]);
        vb_rs_hello_encode(&hello[i], bytes);
        assert_true(vb_rs_hello_decode(bytes, sizeof bytes, &hello[i]));
    }
    vb_rs_stream_connect(&w->end[0].stream, &hello[1]);
    vb_rs_stream_connect(&w->end[1].stream, &hello[0]);
}

static void world_free(struct world *w)
{
    end_free(&w->end[0]);
    end_free(&w->end[1]);
}

static void post(struct end *e, const struct vb_rs_post *p)
{
    struct flight *f = &e->out;
    uint32_t bytes = 0, inflight = f->tail - f->head;

    assert_true(inflight < e->stream.size.sq); // the send queue never overflows
    uint8_t *copy = malloc(QUEUE);
    for (uint32_t i = 0; i < p->pieces; i++) {
        memcpy(copy + bytes, p->piece[i].data, p->piece[i].bytes);
        bytes += p->piece[i].bytes;
    }
    f->posts[f->tail % QUEUE] = *p;
    f->posts[f->tail % QUEUE].piece[0].bytes = bytes;
    f->copies[f->tail++ % QUEUE] = copy;
}

static void update(struct end *e)
{
    struct vb_rs_post p;
    while (vb_rs_take_credit(&e->stream, &p))
        post(e, &p);
}

// A write lands where the peer granted it, and nowhere else.
static void check_place(const struct end *to, const struct vb_rs_post *p, uint32_t bytes)
{
    const struct vb_rs_memory *m = &to->stream.memory;
    const uint8_t *at = (const uint8_t *)(uintptr_t)p->remote_addr;

    if (!bytes)
        return;
    if (p->rkey == m->recv_key)
        assert_true(at >= m->recv && at + bytes <= m->recv + to->stream.size.recv_bytes);
    else if (p->rkey == m->list_key)
        assert_true(at >= to->block &&
                    at + bytes <= to->block + vb_rs_list_bytes(&to->stream.size));
    else
        assert_int_equal(p->rkey, 77); // a mapping of a test
}

// Executes the oldest request of an end at the other; false: none, or no receive is posted.
static bool execute(struct world *w, int from)
{
    struct end *e = &w->end[from], *to = &w->end[!from];
    struct flight *f = &e->out;

    if (f->executed == f->tail)
        return false;
    struct vb_rs_post *p = &f->posts[f->executed % QUEUE];
    uint32_t bytes = p->piece[0].bytes;
    if (p->is_message && to->receives == 0)
        return false; // receiver not ready: it is tried again
    check_place(to, p, bytes);
    if (bytes)
        memcpy((void *)(uintptr_t)p->remote_addr, f->copies[f->executed % QUEUE], bytes);
    if (p->is_message)
        to->receives--;
    f->executed++;
    return true;
}

static void complete(struct end *e)
{
    struct flight *f = &e->out;
    if (f->head == f->executed)
        return;
    vb_rs_sent(&e->stream, f->posts[f->head % QUEUE].id);
    free(f->copies[f->head++ % QUEUE]);
}

struct arrivals {
    uint32_t seen[2];
};

// Reports one executed message to the receiver, in order.
static void arrive(struct world *w, struct arrivals *a, int to)
{
    struct flight *f = &w->end[!to].out;
    while (a->seen[to] != f->executed) {
        struct vb_rs_post *p = &f->posts[a->seen[to]++ % QUEUE];
        if (!p->is_message)
            continue;
        assert_true(vb_rs_received(&w->end[to].stream, p->message));
        w->end[to].receives++;
        return;
    }
}

static void write_some(struct world *w, int from, size_t want)
{
    struct end *e = &w->end[from];
    struct vb_rs_post p;
    uint32_t bytes = vb_rs_take_data(&e->stream, want, &p);

    if (!bytes)
        return;
    for (uint32_t i = 0; i < p.pieces; i++)
        for (uint32_t k = 0; k < p.piece[i].bytes; k++)
            p.piece[i].data[k] = pattern(from, e->written++);
    post(e, &p);
}

static void read_some(struct world *w, int at, size_t want)
{
    static uint8_t buffer[1 << 18], again[1 << 18];
    struct end *e = &w->end[at];
    size_t peeked = vb_rs_peek(&e->stream, 0, again, want);
    size_t got = vb_rs_read(&e->stream, buffer, want);

    assert_int_equal(peeked, got);
    assert_memory_equal(buffer, again, got);
    for (size_t i = 0; i < got; i++)
        assert_int_equal(buffer[i], pattern(!at, e->read++));
}

static struct vb_rs_sizes random_sizes(struct vb_prng *r)
{
    return (struct vb_rs_sizes){
        .send_bytes = (uint32_t)vb_prng_range(r, 4096, 40000),
        .recv_bytes = (uint32_t)vb_prng_range(r, 2, 30000) * 2,
        .sq = (uint16_t)vb_prng_range(r, 16, 60),
        .rq = (uint16_t)vb_prng_range(r, 16, 60),
        .inline_bytes = (uint16_t)(vb_prng_below(r, 2) * 64),
        .iomaps = 4,
    };
}

static void step(struct world *w, struct arrivals *a, bool may_write)
{
    int side = (int)vb_prng_below(&w->prng, 2);
    struct end *e = &w->end[side];

    switch (vb_prng_below(&w->prng, 6)) {
    case 0:
        if (may_write)
            write_some(w, side, vb_prng_range(&w->prng, 1, 1 << vb_prng_below(&w->prng, 17)));
        break;
    case 1: read_some(w, side, vb_prng_range(&w->prng, 1, 1 << vb_prng_below(&w->prng, 17))); break;
    case 2: update(e); break;
    case 3: execute(w, side); break;
    case 4: complete(e); break;
    case 5: arrive(w, a, side); break;
    }
}

static void test_any_interleaving_gives_the_same_bytes(void **state)
{
    (void)state;
    for (uint64_t first = fresh_seed(), seed = first; seed < first + 200; seed++) {
        struct vb_prng draw = {.state = seed};
        struct world w;
        struct arrivals a = {{0, 0}};
        world_init(&w, seed, random_sizes(&draw), random_sizes(&draw));
        for (int i = 0; i < 6000; i++)
            step(&w, &a, true);
        for (int i = 0; i < 20000; i++) // nothing new, all must come out
            step(&w, &a, false);
        assert_int_equal(w.end[0].read, w.end[1].written);
        assert_int_equal(w.end[1].read, w.end[0].written);
        assert_true(w.end[0].written > 0);
        assert_true(vb_rs_all_sent(&w.end[0].stream));
        assert_true(vb_rs_can_send(&w.end[0].stream)); // and it could go on
        assert_true(vb_rs_can_send(&w.end[1].stream));
        world_free(&w);
    }
}

static void test_sizes_are_rounded_to_what_works(void **state)
{
    (void)state;
    struct vb_rs_sizes least = {0}, most = {UINT32_MAX, UINT32_MAX, UINT16_MAX, UINT16_MAX, 0, 300};
    struct vb_rs_sizes odd = {10001, 10001, 20, 20, 0, 128};

    vb_rs_sizes_round(&least);
    assert_true(least.send_bytes >= 4096 && least.recv_bytes >= 4096);
    assert_true(least.sq > VB_RS_CONTROL_SLOTS && least.rq > 1);
    vb_rs_sizes_round(&most);
    assert_true(most.sq < UINT16_MAX && most.rq < UINT16_MAX); // a full circle looks empty
    assert_true(most.send_bytes <= 1 << 30 && most.recv_bytes <= 1 << 30);
    assert_int_equal(most.iomaps, 256);
    vb_rs_sizes_round(&odd);
    assert_int_equal(odd.recv_bytes, 10000); // two halves
    assert_int_equal(odd.send_bytes, 10001);
    assert_int_equal(odd.iomaps, 128);
}

static const struct vb_rs_sizes plain = {
    .send_bytes = 1 << 17, .recv_bytes = 8192, .sq = 64, .rq = 16, .inline_bytes = 64, .iomaps = 4};

static void settle(struct world *w, struct arrivals *a)
{
    for (int i = 0; i < 200; i++)
        for (int side = 0; side < 2; side++) {
            update(&w->end[side]);
            execute(w, side);
            complete(&w->end[side]);
            arrive(w, a, side);
        }
}

static void test_a_reader_that_stops_stops_the_writer(void **state)
{
    (void)state;
    struct world w;
    struct arrivals a = {{0, 0}};

    world_init(&w, 1, plain, plain);
    for (int i = 0; i < 100; i++) {
        write_some(&w, 0, 8192);
        settle(&w, &a);
    }
    assert_int_equal(w.end[0].written, 8192); // the receive buffer
    assert_false(vb_rs_can_send(&w.end[0].stream));
    read_some(&w, 1, 4096);
    settle(&w, &a);
    assert_true(vb_rs_can_send(&w.end[0].stream));
    world_free(&w);
}

static void test_small_messages_are_bound_by_credits(void **state)
{
    (void)state;
    struct world w;
    struct arrivals a = {{0, 0}};

    world_init(&w, 1, plain, plain);
    for (int i = 0; i < 100; i++) {
        write_some(&w, 0, 1);
        settle(&w, &a);
    }
    assert_int_equal(w.end[0].written, 16);
    read_some(&w, 1, 7);
    settle(&w, &a);
    assert_false(vb_rs_can_send(&w.end[0].stream)); // told when half of them were read
    read_some(&w, 1, 1);
    settle(&w, &a);
    assert_true(vb_rs_can_send(&w.end[0].stream));
    world_free(&w);
}

static void say(struct world *w, int from, enum vb_rs_ctrl what)
{
    struct vb_rs_post p;
    assert_true(vb_rs_take_control(&w->end[from].stream, what, &p));
    post(&w->end[from], &p);
}

static void test_half_close_leaves_the_other_direction(void **state)
{
    (void)state;
    struct world w;
    struct arrivals a = {{0, 0}};
    struct vb_rs_stream *s0, *s1;

    world_init(&w, 1, plain, plain);
    s0 = &w.end[0].stream, s1 = &w.end[1].stream;
    write_some(&w, 0, 100);
    s0->may_write = false;
    say(&w, 0, VB_RS_SHUTDOWN);
    settle(&w, &a);
    assert_false(s1->may_read);
    assert_true(s1->connected && s1->may_write);
    read_some(&w, 1, 1000); // what was sent before is still read
    assert_int_equal(w.end[1].read, 100);
    assert_false(vb_rs_can_send(s0));
    write_some(&w, 1, 50);
    settle(&w, &a);
    read_some(&w, 0, 1000);
    assert_int_equal(w.end[0].read, 50);
    s1->may_write = false; // the second half: nothing is left
    say(&w, 1, VB_RS_SHUTDOWN);
    settle(&w, &a);
    assert_false(s0->connected);
    world_free(&w);
}

// Both end their direction at once: what is still on its way arrives before the connection goes.
static void test_half_closes_that_cross_lose_nothing(void **state)
{
    (void)state;
    struct world w;
    struct arrivals a = {{0, 0}};
    struct vb_rs_stream *s0, *s1;

    world_init(&w, 1, plain, plain);
    s0 = &w.end[0].stream, s1 = &w.end[1].stream;
    write_some(&w, 0, 100);
    s0->may_write = s1->may_write = false;
    say(&w, 0, VB_RS_SHUTDOWN);
    say(&w, 1, VB_RS_SHUTDOWN);
    assert_true(execute(&w, 1));
    arrive(&w, &a, 0);
    assert_false(s0->may_read);
    assert_true(s0->connected); // its bytes have not arrived
    settle(&w, &a);
    assert_false(s0->connected || s1->connected);
    read_some(&w, 1, 1000);
    assert_int_equal(w.end[1].read, 100);
    world_free(&w);
}

static void test_close_from_either_or_both_ends(void **state)
{
    (void)state;
    for (int who = 1; who <= 3; who++) {
        struct world w;
        struct arrivals a = {{0, 0}};
        struct vb_rs_post p;
        world_init(&w, 1, plain, plain);
        write_some(&w, 0, 10);
        write_some(&w, 1, 20);
        for (int side = 0; side < 2; side++)
            if (who >> side & 1)
                say(&w, side, VB_RS_DISCONNECT);
        settle(&w, &a);
        assert_false(w.end[0].stream.connected);
        assert_false(w.end[1].stream.connected);
        assert_false(vb_rs_can_send(&w.end[0].stream));
        assert_false(vb_rs_take_credit(&w.end[0].stream, &p));
        assert_false(vb_rs_take_control(&w.end[1].stream, VB_RS_SHUTDOWN, &p));
        read_some(&w, 0, 100);
        read_some(&w, 1, 100);
        assert_int_equal(w.end[0].read, 20);
        assert_int_equal(w.end[1].read, 10);
        world_free(&w);
    }
}

static void test_mappings_take_direct_writes(void **state)
{
    (void)state;
    struct world w;
    struct arrivals a = {{0, 0}};
    struct vb_rs_post p;
    uint8_t target[1000] = {0};
    struct vb_rs_iomap map = {5000, {(uintptr_t)target, 77, sizeof target}};
    bool mapped;

    world_init(&w, 1, plain, plain);
    struct vb_rs_stream *s = &w.end[0].stream;
    assert_int_equal(vb_rs_take_direct(s, 5000, 10, &mapped, &p), 0);
    assert_false(mapped);
    assert_false(vb_rs_take_iomap(&w.end[1].stream, 4, &map, &p)); // there are four places
    assert_true(vb_rs_take_iomap(&w.end[1].stream, 3, &map, &p));
    post(&w.end[1], &p);
    settle(&w, &a);
    assert_int_equal(vb_rs_take_direct(s, 4999, 10, &mapped, &p), 0);
    assert_false(mapped);
    assert_int_equal(vb_rs_take_direct(s, 6000, 10, &mapped, &p), 0);
    assert_false(mapped);
    assert_int_equal(vb_rs_take_direct(s, 5990, 100, &mapped, &p), 10); // as far as it goes
    assert_true(mapped);
    assert_false(p.is_message);
    memset(p.piece[0].data, 9, 10);
    post(&w.end[0], &p);
    settle(&w, &a);
    assert_int_equal(target[989], 0);
    assert_int_equal(target[990], 9);
    assert_int_equal(target[999], 9);
    assert_int_equal(w.end[1].read, 0);
    assert_int_equal(s->recv.seq, 1); // the mapping's credit was given back
    world_free(&w);
}

static void test_a_peer_that_lies_is_found_out(void **state)
{
    (void)state;
    struct world w;

    world_init(&w, 1, plain, plain);
    struct vb_rs_stream *s = &w.end[0].stream;
    assert_false(vb_rs_received(s, vb_rs_message(VB_RS_DATA, 4097))); // half the buffer is granted
    assert_true(vb_rs_received(s, vb_rs_message(VB_RS_DATA, 4096)));
    assert_false(vb_rs_received(s, vb_rs_message(VB_RS_DATA, 1)));
    assert_false(vb_rs_received(s, vb_rs_message(VB_RS_IOMAP, 4)));
    assert_false(vb_rs_received(s, 1u << 29));
    assert_false(vb_rs_received(s, vb_rs_message(VB_RS_WRITE, 1)));
    assert_true(vb_rs_received(s, vb_rs_message(VB_RS_CTRL, VB_RS_KEEPALIVE)));
    assert_true(s->connected);
    world_free(&w);

    world_init(&w, 1, plain, plain);
    s = &w.end[0].stream;
    for (int i = 0; i < 16; i++)
        assert_true(vb_rs_received(s, vb_rs_message(VB_RS_DATA, 1)));
    assert_false(vb_rs_received(s, vb_rs_message(VB_RS_DATA, 1))); // more messages than credits
    world_free(&w);
}

static void test_control_messages_have_slots_of_their_own(void **state)
{
    (void)state;
    struct world w;
    struct vb_rs_post p;

    world_init(&w, 1, plain, plain);
    for (int i = 0; i < VB_RS_CONTROL_SLOTS; i++)
        assert_true(vb_rs_take_control(&w.end[0].stream, VB_RS_KEEPALIVE, &p));
    assert_false(vb_rs_take_control(&w.end[0].stream, VB_RS_KEEPALIVE, &p));
    assert_false(vb_rs_take_credit(&w.end[0].stream, &p));
    assert_false(vb_rs_all_sent(&w.end[0].stream));
    vb_rs_sent(&w.end[0].stream, p.id);
    assert_true(vb_rs_take_credit(&w.end[0].stream, &p));
    world_free(&w);
}

static void test_the_other_byte_order(void **state)
{
    (void)state;
    struct world w;
    struct vb_rs_post p;
    struct vb_rs_hello hello;
    struct vb_rs_sge sge;

    world_init(&w, 1, plain, plain);
    vb_rs_stream_hello(&w.end[1].stream, &hello);
    hello.big_endian = !hello.big_endian;
    vb_rs_stream_connect(&w.end[0].stream, &hello);
    assert_true(vb_rs_take_credit(&w.end[0].stream, &p));
    memcpy(&sge, p.piece[0].data, sizeof sge);
    assert_int_equal(__builtin_bswap32(sge.bytes), 4096);
    assert_int_equal(p.message, vb_rs_message(VB_RS_SGL, 16));
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_interleaving_gives_the_same_bytes),
        cmocka_unit_test(test_sizes_are_rounded_to_what_works),
        cmocka_unit_test(test_a_reader_that_stops_stops_the_writer),
        cmocka_unit_test(test_small_messages_are_bound_by_credits),
        cmocka_unit_test(test_half_close_leaves_the_other_direction),
        cmocka_unit_test(test_half_closes_that_cross_lose_nothing),
        cmocka_unit_test(test_close_from_either_or_both_ends),
        cmocka_unit_test(test_mappings_take_direct_writes),
        cmocka_unit_test(test_a_peer_that_lies_is_found_out),
        cmocka_unit_test(test_control_messages_have_slots_of_their_own),
        cmocka_unit_test(test_the_other_byte_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
