// SPDX-License-Identifier: Apache-2.0
// Queues by hand: rings and records that the test writes and reads by itself, without a call.
#include "duo.h"

#include "../wait.h"
#include "base/bytes.h"
#include "verbena/wqe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum {
    LEN = 1000
};

// End 0's queue pair and completion queue.
struct hand {
    struct duo d;
    struct vb_qp *qp[2];
    struct vb_raw_qp raw;
    struct vb_raw_cq raw_cq;
    uint32_t sends, ci;
};

static void open_hand(struct hand *h, void **state)
{
    *h = (struct hand){0};
    duo_open(&h->d, *state);
    duo_fill(h->d.end[0].memory, LEN, 1);
    duo_fill(h->d.end[1].memory, LEN, 2);
    duo_connect(&h->d, VB_SERVICE_RC, h->qp);
}

static void share(struct hand *h)
{
    assert_int_equal(vb_qp_share(h->qp[0], &h->raw), 0);
    assert_int_equal(vb_cq_share(h->d.end[0].cq, &h->raw_cq), 0);
}

// A signaled WRITE of end 0's memory to end 1's, of which nobody is told.
static void put_write(struct hand *h, uint8_t *ring, uint32_t blocks)
{
    uint8_t *at = ring + (size_t)(h->sends & (blocks - 1)) * VB_WQEBB_BYTES;

    vb_put_be32(at, h->sends << 8 | VB_WQE_WRITE);
    vb_put_be32(at + 4, vb_qp_num(h->qp[0]) << 8 | 3);
    vb_put_be32(at + 8, VB_WQE_CE_ALWAYS);
    vb_put_be32(at + 12, 0);
    vb_put_be64(at + 16, (uintptr_t)h->d.end[1].memory);
    vb_put_be32(at + 24, vb_mr_key(h->d.end[1].mr));
    vb_put_be32(at + 28, 0);
    vb_put_be32(at + 32, LEN);
    vb_put_be32(at + 36, vb_mr_key(h->d.end[0].mr));
    vb_put_be64(at + 40, (uintptr_t)h->d.end[0].memory);
    h->sends++;
}

static void ring(uint32_t *word, uint32_t counter)
{
    __atomic_store_n(word, htobe32(counter), __ATOMIC_RELEASE);
}

static const struct vb_cqe *look(const struct hand *h)
{
    const struct vb_raw_cq *q = &h->raw_cq;
    const struct vb_cqe *cqe =
        (const void *)(q->ring + (size_t)(h->ci & (q->entries - 1)) * VB_CQE_BYTES);
    uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

    return op_own >> 4 != VB_CQE_INVALID && (op_own & 1) == !!(h->ci & q->entries) ? cqe : NULL;
}

static struct vb_cqe wait_cqe(struct hand *h)
{
    const struct vb_cqe *cqe;

    WAIT_UNTIL((cqe = look(h)) != NULL);
    struct vb_cqe copy = *cqe;
    ring(&h->raw_cq.record[VB_DBREC_CQ_CI], ++h->ci & 0xffffff);
    return copy;
}

// The locks of end 1's NIC order what it writes and what the test reads, which a sanitizer of
// threads cannot see through a socket.
static void meet(const struct hand *h)
{
    assert_string_equal(vb_qp_state_text(h->qp[1]), "RTS");
}

static void write_once(struct hand *h)
{
    uint32_t began = h->sends;

    meet(h);

    put_write(h, h->raw.send, h->raw.send_blocks);
    ring(&h->raw.record[VB_DBREC_SQ], h->sends & 0xffff);
    struct vb_cqe cqe = wait_cqe(h);
    assert_int_equal(cqe.op_own >> 4, VB_CQE_REQ);
    assert_int_equal(be16toh(cqe.wqe_counter), (uint16_t)began);
    meet(h);
}

// More often than either ring has room.
static void test_a_queue_by_hand(void **state)
{
    struct hand h;

    open_hand(&h, state);
    share(&h);
    for (uint32_t i = 0; i < 3 * h.raw_cq.entries + h.raw.send_blocks; i++) {
        h.d.end[0].memory[7] = (uint8_t)i;
        write_once(&h);
        assert_memory_equal(h.d.end[1].memory, h.d.end[0].memory, LEN);
    }
    duo_close(&h.d);
}

// The twin: an entry without a record is not taken, nor is one whose queue nobody looks at.
static void test_an_entry_alone_says_nothing(void **state)
{
    struct hand h;
    struct vb_qp_rings rings;

    open_hand(&h, state);
    assert_int_equal(vb_qp_rings(h.qp[0], &rings), 0);
    put_write(&h, rings.send, rings.send_blocks);
    duo_expect_quiet(h.d.end[0].cq);
    meet(&h);
    assert_memory_not_equal(h.d.end[1].memory, h.d.end[0].memory, LEN);
    meet(&h);
    share(&h);
    ring(&h.raw.record[VB_DBREC_SQ], h.sends);
    wait_cqe(&h);
    meet(&h);
    assert_memory_equal(h.d.end[1].memory, h.d.end[0].memory, LEN);
    duo_close(&h.d);
}

// Shared twice, it is the same queue; the ring of completions stays where it is.
static void test_shared_queues_stay(void **state)
{
    struct hand h;
    struct vb_raw_qp again;
    struct vb_cq *other = NULL;

    open_hand(&h, state);
    share(&h);
    assert_int_equal(vb_qp_share(h.qp[0], &again), 0);
    assert_ptr_equal(again.bell, h.raw.bell);
    assert_ptr_equal(again.send, h.raw.send);
    assert_int_equal(vb_cq_resize(h.d.end[0].cq, 4096), -EBUSY);
    assert_int_equal(vb_cq_create(h.d.end[0].nic, &(struct vb_cq_opts){.entries = 4}, &other), 0);
    assert_int_equal(vb_cq_resize(other, 4096), 0);
    duo_close(&h.d);
}

// What a queue pair has completed can still be read when it is gone.
static void test_completions_stay(void **state)
{
    struct hand h;
    struct vb_qp *second[2];

    open_hand(&h, state);
    share(&h);
    duo_connect(&h.d, VB_SERVICE_RC, second);
    duo_post(&h.d, second[0], duo_wr(&h.d, VB_WR_WRITE, 1), 0, 8);
    while (!look(&h))
        continue;
    const uint32_t gone = vb_qp_num(second[0]);
    assert_int_equal(vb_qp_destroy(second[0]), 0);
    assert_int_equal(be32toh(wait_cqe(&h).sop_drop_qpn) & 0xffffff, gone);
    write_once(&h);
    duo_close(&h.d);
}

// An arm word in the register, and no call.
static void arm(struct hand *h, uint32_t cqn)
{
    uint32_t word[2] = {htobe32(h->ci & 0xffffff), htobe32(cqn)};
    uint64_t both;

    memcpy(&both, word, sizeof both);
    __atomic_store_n((uint64_t *)(void *)(h->raw_cq.bell + VB_RAW_ARM_OFFSET), both,
                     __ATOMIC_RELEASE);
}

static void test_an_event_by_hand(void **state)
{
    struct hand h;
    struct vb_cq *cq = NULL;

    open_hand(&h, state);
    share(&h);
    int fd = vb_channel_fd(h.d.end[0].channel);
    for (unsigned i = 0; i < 5; i++) {
        arm(&h, h.raw_cq.cqn + 1); // another's
        write_once(&h);
        assert_false(duo_is_readable(fd, 20));
        arm(&h, h.raw_cq.cqn);
        while (__atomic_load_n((uint64_t *)(void *)(h.raw_cq.bell + VB_RAW_ARM_OFFSET),
                               __ATOMIC_ACQUIRE))
            continue; // until it was seen
        write_once(&h);
        assert_true(duo_is_readable(fd, DUO_PATIENCE_S * 1000));
        assert_int_equal(vb_channel_take(h.d.end[0].channel, &cq), 0);
        assert_ptr_equal(cq, h.d.end[0].cq);
    }
    duo_close(&h.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DUO_PORTS(test_a_queue_by_hand),
        DUO_TEST(test_a_queue_by_hand, "hull"),
        DUO_TEST(test_an_entry_alone_says_nothing, "udp"),
        DUO_TEST(test_an_entry_alone_says_nothing, "hull"),
        DUO_TEST(test_shared_queues_stay, "udp"),
        DUO_TEST(test_completions_stay, "udp"),
        DUO_TEST(test_completions_stay, "hull"),
        DUO_TEST(test_an_event_by_hand, "udp"),
        DUO_TEST(test_an_event_by_hand, "hull"),
    };
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
