// SPDX-License-Identifier: Apache-2.0
// Every shipped program off a NIC: its snapshots hold every byte, and a machine that is polled, as
// NICs are, does what one does that makes step by step.
#include "base/prng.h"
#include "chain/image.h"
#include "chain/machine.h"
#include "chain/text.h"
#include "fresh_seed.h"
#include "shipped_kit.h"
#include "verbena/wqe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    QUEUES = 8,
    CQS = 16,
    REGIONS = 24,
    CHANGES = 300,
    CHANGED = 500,
    APART = 1 << 24,
    MEMORIES = 2 * QUEUES + REGIONS,
    REACH = 1 << 30, // so far behind a shared region's start an address is still of it
    STEPS_MAX = 100000,
    POLLS = 50000,
};

// ---- snapshots

static void expect_same(const struct vb_image *image, const char *text)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *again = vb_asm(text, strlen(text), error);

    if (!again)
        fail_msg("%s\n%s", error, text);
    assert_true(vb_image_equal(image, again));
    vb_image_destroy(again);
}

static void test_a_machine_is_dumped(void **state)
{
    char error[VB_IMAGE_TEXT] = "";

    (void)state;
    for (uint32_t n = 0; n < shipped_count(); n++) {
        struct vb_image *image = shipped_image(shipped_at(n));
        struct vb_machine *m = vb_machine_create(image, &(struct vb_machine_opts){0}, error);
        assert_non_null(m);
        struct vb_image *now = vb_machine_snapshot(m);
        assert_true(vb_image_equal(image, now));
        vb_image_destroy(now);
        vb_machine_destroy(m);
        vb_image_destroy(image);
    }
}

struct placement {
    const struct vb_image *image;
    struct vb_image_memory send[QUEUES], recv[QUEUES], data[REGIONS];
    uint32_t qpn[QUEUES], cqn[CQS];
    struct vb_image_binding binding;
    uint64_t next, apart; // addresses
};

static struct vb_image_memory memory(struct placement *p, uint64_t bytes, uint32_t n)
{
    uint64_t addr = p->next;

    p->next += p->apart ? p->apart : bytes;
    return (struct vb_image_memory){addr, 0x100 + n / 2, calloc(1, bytes ? bytes : 1)};
}

// Memories lie `apart`, or without a gap between them; some share a key.
static void place(struct placement *p, const struct vb_image *image, uint64_t apart)
{
    *p = (struct placement){.image = image, .next = 0x7000000000, .apart = apart};
    assert_true(image->queues <= QUEUES && image->regions <= REGIONS && image->cqs <= CQS);
    p->binding = (struct vb_image_binding){p->send, p->recv, p->data, p->qpn, p->cqn, 1u << 16};
    for (uint32_t i = 0; i < image->queues; i++) {
        const struct vb_image_queue *q = &image->queue[i];
        p->send[i] = memory(p, (uint64_t)q->blocks * VB_WQEBB_BYTES, i);
        p->recv[i] = memory(p, (uint64_t)q->recvs * q->recv_stride, 8 + i);
        p->qpn[i] = 0x40 + i;
    }
    for (uint32_t i = 0; i < image->cqs; i++)
        p->cqn[i] = 0x60 + i;
    for (uint32_t i = 0; i < image->regions; i++)
        p->data[i] = memory(p, image->region[i].bytes, 16 + i);
    vb_image_place(image, &p->binding);
}

static void forget(struct placement *p)
{
    for (uint32_t i = 0; i < p->image->queues; i++) {
        free(p->send[i].at);
        free(p->recv[i].at);
    }
    for (uint32_t i = 0; i < p->image->regions; i++)
        free(p->data[i].at);
}

// Some bytes of a relocation, or all of them: another memory's address, another key.
static void change(struct placement *p, struct vb_prng *prng)
{
    const struct vb_reloc *a = &p->image->reloc[vb_prng_below(prng, p->image->relocs)];
    const struct vb_reloc *b = &p->image->reloc[vb_prng_below(prng, p->image->relocs)];
    uint32_t len = vb_reloc_bytes(a->kind);

    if (a->at.kind != VB_IN_SEND || b->at.kind != VB_IN_SEND)
        return;
    uint8_t *at = p->send[a->at.index].at + a->at.offset;
    const uint8_t *other = p->send[b->at.index].at + b->at.offset;
    if (vb_prng_below(prng, 2))
        at[vb_prng_below(prng, len)] ^= (uint8_t)(1 + vb_prng_below(prng, 255));
    else if (a->kind == b->kind)
        memmove(at, other, len);
}

static uint8_t *copy_of(const uint8_t *bytes, uint64_t len)
{
    uint8_t *copy = malloc(len);
    memcpy(copy, bytes, len);
    return copy;
}

// Whatever became of it: a dump that is placed there again is what was there.
static void test_a_dump_holds_every_byte(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};

    (void)state;
    for (uint32_t n = 0; n < shipped_count(); n++) {
        struct vb_image *image = shipped_image(shipped_at(n));
        struct placement p;
        uint32_t kept = 0;
        place(&p, image, APART);
        for (uint32_t i = 0; i < CHANGES; i++) {
            uint64_t bytes = (uint64_t)image->queue[0].blocks * VB_WQEBB_BYTES;
            char error[VB_IMAGE_TEXT] = "";
            change(&p, &prng);
            uint8_t *before = copy_of(p.send[0].at, bytes);
            struct vb_image *now = vb_image_snapshot(image, &p.binding);
            if (!vb_image_check(now, error))
                fail_msg("%s", error);
            kept += now->relocs;
            memset(p.send[0].at, 0xaa, bytes);
            vb_image_place(now, &p.binding);
            assert_memory_equal(p.send[0].at, before, bytes);
            if (i % 50 == 0) {
                char *text = vb_dis(now);
                expect_same(now, text);
                free(text);
            }
            free(before);
            vb_image_destroy(now);
        }
        assert_true(kept < CHANGES * image->relocs); // some name nothing any more
        assert_true(kept > CHANGES * image->relocs / 4);
        forget(&p);
        vb_image_destroy(image);
    }
}

// ---- what became of a relocation: the snapshot against a plain search

static struct vb_image_memory *memory_of(struct placement *p, const struct vb_spot *spot)
{
    return spot->kind == VB_IN_SEND   ? &p->send[spot->index]
           : spot->kind == VB_IN_RECV ? &p->recv[spot->index]
                                      : &p->data[spot->index];
}

static uint64_t size_of(const struct vb_image *image, const struct vb_spot *spot)
{
    const struct vb_image_queue *q = &image->queue[spot->index];

    return spot->kind == VB_IN_SEND   ? (uint64_t)q->blocks * VB_WQEBB_BYTES
           : spot->kind == VB_IN_RECV ? (uint64_t)q->recvs * q->recv_stride
                                      : image->region[spot->index].bytes;
}

// Every memory of the program, in the order of the search.
static uint32_t list_memories(const struct vb_image *image, struct vb_spot *spot)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 2 * image->queues; i++)
        spot[n++] =
            (struct vb_spot){i < image->queues ? VB_IN_SEND : VB_IN_RECV, i % image->queues, 0};
    for (uint32_t i = 0; i < image->regions; i++)
        spot[n++] = (struct vb_spot){VB_IN_DATA, i, 0};
    return n;
}

static bool holds(struct placement *p, const struct vb_spot *spot, uint64_t address)
{
    uint64_t start = memory_of(p, spot)->addr;
    return address >= start && address <= start + size_of(p->image, spot);
}

// Whether an address is of the program's memory; *to becomes where, *bytes what a region needs.
static bool expect_address(struct placement *p, uint64_t address, struct vb_spot *to,
                           uint64_t *bytes)
{
    struct vb_spot all[MEMORIES];
    uint32_t n = list_memories(p->image, all);
    bool of_others = to->kind == VB_IN_DATA && p->image->region[to->index].kind != VB_REGION_OWN;
    bool found = holds(p, to, address);

    for (uint32_t i = 0; !found && i < n; i++)
        if (holds(p, &all[i], address)) {
            *to = all[i];
            found = true;
        }
    to->offset = address - memory_of(p, to)->addr;
    if (!found && of_others && to->offset <= REACH) {
        *bytes = to->offset;
        found = true;
    }
    return found;
}

static bool expect_key(struct placement *p, uint32_t key, struct vb_spot *to)
{
    struct vb_spot all[MEMORIES];
    uint32_t n = list_memories(p->image, all);

    if (memory_of(p, to)->key == key)
        return true;
    for (uint32_t i = 0; i < n; i++)
        if (memory_of(p, &all[i])->key == key && size_of(p->image, &all[i]) > 0) {
            *to = all[i];
            return true;
        }
    return false;
}

static bool expect_number(const uint32_t *numbers, uint32_t count, uint32_t number, uint32_t *index)
{
    for (uint32_t i = 0; i < count; i++)
        if (numbers[i] == number) {
            *index = i;
            return true;
        }
    return false;
}

// A value for the relocation's place: near the limits of some memory, some number, or nobody's.
static uint64_t draw_value(struct placement *p, const struct vb_reloc *r, struct vb_prng *prng)
{
    struct vb_spot all[MEMORIES];
    const struct vb_spot *some = &all[vb_prng_below(prng, list_memories(p->image, all))];
    uint64_t start = memory_of(p, some)->addr, bytes = size_of(p->image, some);
    const uint64_t near[] = {start,         start - 1,        start + bytes, start + bytes + 1,
                             start + REACH, start + REACH + 1};

    switch (r->kind) {
    case VB_RELOC_ADDR: return near[vb_prng_below(prng, 6)];
    case VB_RELOC_KEY: return vb_prng_below(prng, 9) ? memory_of(p, some)->key : 0x99;
    case VB_RELOC_QPN:
    case VB_RELOC_QPN3: return 0x40 + vb_prng_below(prng, p->image->queues + 1);
    case VB_RELOC_CQN: return 0x60 + vb_prng_below(prng, p->image->cqs + 1);
    default: return vb_prng_next(prng);
    }
}

static bool is_little(enum vb_reloc_kind kind)
{
    return kind == VB_RELOC_SEND_COUNT || kind == VB_RELOC_RECV_COUNT || kind == VB_RELOC_CQ_COUNT;
}

static uint64_t read_value(const uint8_t *at, uint32_t len, bool little)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < len; i++)
        value = value << 8 | at[little ? len - 1 - i : i];
    return value;
}

static void write_value(uint8_t *at, uint32_t len, bool little, uint64_t value)
{
    for (uint32_t i = 0; i < len; i++)
        at[little ? i : len - 1 - i] = (uint8_t)(value >> 8 * i);
}

static const struct vb_reloc *reloc_at(const struct vb_image *image, const struct vb_spot *at)
{
    for (uint32_t i = 0; i < image->relocs; i++) {
        const struct vb_spot *s = &image->reloc[i].at;
        if (s->kind == at->kind && s->index == at->index && s->offset == at->offset)
            return &image->reloc[i];
    }
    return NULL;
}

static uint8_t *bytes_in(const struct vb_image *image, const struct vb_spot *at)
{
    return at->offset + (at->kind == VB_IN_SEND   ? image->queue[at->index].code
                         : at->kind == VB_IN_RECV ? image->queue[at->index].recv
                                                  : image->region[at->index].init);
}

// Puts a value where a relocation was filled in, and judges what the snapshot makes of it.
static void change_one(struct placement *p, const struct vb_reloc *r, uint64_t value)
{
    bool little = is_little(r->kind), counter = r->kind >= VB_RELOC_SEND_INDEX, found = true;
    uint32_t len = vb_reloc_bytes(r->kind);
    uint8_t was[8], *at = memory_of(p, &r->at)->at + r->at.offset;
    struct vb_spot to = r->target;
    uint64_t mask = len == 8 ? UINT64_MAX : (1ull << 8 * len) - 1;
    uint64_t bytes = r->kind == VB_RELOC_ADDR ? size_of(p->image, &to) : 0;

    memcpy(was, at, len);
    write_value(at, len, little, value);
    if (r->kind == VB_RELOC_ADDR)
        found = expect_address(p, value, &to, &bytes);
    else if (r->kind == VB_RELOC_KEY)
        found = expect_key(p, (uint32_t)value, &to);
    else if (!counter)
        found = r->kind == VB_RELOC_CQN
                    ? expect_number(p->cqn, p->image->cqs, (uint32_t)value, &to.index)
                    : expect_number(p->qpn, p->image->queues, (uint32_t)value, &to.index);
    struct vb_image *now = vb_image_snapshot(p->image, &p->binding);
    const struct vb_reloc *is = reloc_at(now, &r->at);
    uint64_t left = read_value(bytes_in(now, &r->at), len, little);
    assert_int_equal(is != NULL, found);
    assert_int_equal(now->relocs, p->image->relocs - !found);
    if (is) {
        assert_int_equal(is->kind, r->kind);
        assert_int_equal(is->target.index, to.index);
        if (r->kind <= VB_RELOC_KEY)
            assert_int_equal(is->target.kind, to.kind);
        if (r->kind == VB_RELOC_ADDR) {
            assert_int_equal(is->target.offset, to.offset);
            assert_int_equal(size_of(now, &r->target), bytes);
        }
    }
    uint64_t below = read_value(bytes_in(p->image, &r->at), len, little);
    assert_int_equal(left, counter ? (value - p->binding.start) & mask
                           : found ? below
                                   : value & mask);
    vb_image_destroy(now);
    memcpy(at, was, len);
}

static void test_changed_relocations(void **state)
{
    struct vb_prng prng = {.state = fresh_seed()};

    (void)state;
    for (uint32_t n = 0; n < 2 * shipped_count(); n++) {
        struct vb_image *image = shipped_image(shipped_at(n / 2));
        struct placement p;
        place(&p, image, n % 2 ? APART : 0);
        for (uint32_t i = 0; i < CHANGED; i++) {
            const struct vb_reloc *r = &image->reloc[vb_prng_below(&prng, image->relocs)];
            change_one(&p, r, draw_value(&p, r, &prng));
        }
        forget(&p);
        vb_image_destroy(image);
    }
}

// ---- polled

static struct vb_machine *prepared(uint32_t n, const struct vb_image *image, uint32_t units)
{
    struct shipped_input input = {.program = shipped_at(n)};
    const struct vb_machine_opts opts = {.seed = 1, .units = units, .shared_bytes = SHIPPED_SHARED};
    char error[VB_IMAGE_TEXT] = "";
    struct vb_machine *m = vb_machine_create(image, &opts, error);

    if (!m)
        fail_msg("%s: %s", shipped_at(n)->name, error);
    shipped_prepare(&input, m);
    return m;
}

static uint32_t expect_same_replies(struct vb_machine *a, struct vb_machine *b, uint32_t queue)
{
    struct vb_machine_reply ra, rb;
    uint32_t count = 0;

    memset(&ra, 0, sizeof ra);
    memset(&rb, 0, sizeof rb);
    for (; vb_machine_take(a, queue, &ra); count++) {
        assert_true(vb_machine_take(b, queue, &rb));
        assert_int_equal(ra.with_imm, rb.with_imm);
        assert_int_equal(ra.imm, rb.imm);
        assert_int_equal(ra.len, rb.len);
        assert_memory_equal(ra.bytes, rb.bytes, ra.len);
    }
    assert_false(vb_machine_take(b, queue, &rb));
    return count;
}

static void test_a_polled_machine_does_the_same(void **state)
{
    uint32_t replies = 0;

    (void)state;
    for (uint32_t n = 0; n < 2 * shipped_count(); n++) {
        struct vb_image *image = shipped_image(shipped_at(n / 2));
        struct vb_machine *stepped = prepared(n / 2, image, 1 + n % 2),
                          *polled = prepared(n / 2, image, 1 + n % 2);
        uint64_t begun_ns = vb_machine_now_ns(polled);
        assert_true(vb_machine_run(stepped, STEPS_MAX) < STEPS_MAX);
        for (int i = 0; i < POLLS; i++) // a request that came too early is sent again after a while
            vb_machine_poll(polled);
        assert_true(vb_machine_now_ns(polled) > begun_ns);
        for (uint32_t q = 0; q < image->queues; q++) {
            assert_int_equal(vb_machine_fault(stepped, q), vb_machine_fault(polled, q));
            if (image->queue[q].kind == VB_QUEUE_PEER)
                replies += expect_same_replies(stepped, polled, q);
        }
        for (uint32_t i = 0; i < image->regions; i++) // which hold addresses of the machine's own
            assert_int_equal(vb_machine_bytes(stepped, i), vb_machine_bytes(polled, i));
        vb_machine_destroy(stepped);
        vb_machine_destroy(polled);
        vb_image_destroy(image);
    }
    assert_true(replies > 2 * shipped_count());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_machine_is_dumped),
        cmocka_unit_test(test_a_dump_holds_every_byte),
        cmocka_unit_test(test_changed_relocations),
        cmocka_unit_test(test_a_polled_machine_does_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
