// SPDX-License-Identifier: Apache-2.0
// The simulator itself: it replays exactly, it does as much work as it says, and it notices.
#include "sim/batch.h"
#include "sim/model.h"
#include "sim/run.h"
#include "sim/world.h"
#include "wire/opcode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    OPS = 600
};

static struct vb_sim_result run_as(const struct vb_sim_opts *opts)
{
    struct vb_coverage cover = {0};
    struct vb_sim_result result;
    assert_int_equal(vb_sim_run(opts, &result, &cover), 0);
    if (result.violated)
        fail_msg("seed %llu: %s", (unsigned long long)opts->seed, result.text);
    return result;
}

static struct vb_sim_result run(uint64_t seed, uint32_t nics, FILE *trace)
{
    return run_as(&(struct vb_sim_opts){.seed = seed, .ops = OPS, .nics = nics, .trace = trace});
}

static void test_a_seed_replays_event_by_event(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        char *text[2];
        size_t len[2];
        uint64_t digest[2];
        for (int i = 0; i < 2; i++) {
            FILE *trace = open_memstream(&text[i], &len[i]);
            void *shift = malloc(100000 + 7777 * (size_t)i); // other addresses the second time
            digest[i] = run(seed, 0, trace).digest;
            free(shift);
            fclose(trace);
        }
        assert_int_equal(digest[0], digest[1]);
        assert_int_equal(len[0], len[1]);
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
    }
}

static void test_tracing_changes_nothing(void **state)
{
    (void)state;
    FILE *nowhere = fopen("/dev/null", "w");
    assert_int_equal(run(3, 0, nowhere).digest, run(3, 0, NULL).digest);
    fclose(nowhere);
}

static void pass(const uint64_t *seeds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        run_as(&(struct vb_sim_opts){.seed = seeds[i], .chains = VB_SIM_CHAINS_NONE});
}

// A READ request was lost, and with it the answers to all its packets: the first of them came late,
// in answer to an earlier request.
static void test_lost_read_request(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 15016263, .chains = VB_SIM_CHAINS_NONE});
}

// The rate of the peer's share let the answer go when the last attempt was about to end.
static void test_answer_held_to_the_last_attempt(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 312, .chains = VB_SIM_CHAINS_NONE, .equal = true});
}

// Answers to repeated READs whose memory is gone: the model gave them up before or after the NIC,
// so a list of 32 answers was full for only one of the two.
static void test_answers_without_memory(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 15772132, .chains = VB_SIM_CHAINS_NONE});
    run_as(&(struct vb_sim_opts){.seed = 296, .chains = VB_SIM_CHAINS_NONE, .equal = true});
}

// Each ended a queue pair by retries after the network had healed: 2100 because frames went on to
// come to the wrong unit, 2553 because the model forgot that an answer had been given up, 15063885
// because a unit still ran too seldom for its peers' timers, 15023939 and 15068108 because a NIC
// slept beside frames in its socket, 182412218 because 851 frames had piled up in an inbox,
// 246799608 because a NAK came a millisecond late.
static void test_no_end_by_retries_in_a_healed_network(void **state)
{
    static const uint64_t seeds[] = {2100,     2553,      15063885, 15023939,
                                     15068108, 182412218, 246799608};

    (void)state;
    pass(seeds, sizeof seeds / sizeof *seeds);
}

// A forged answer limits a message that waits for its rate, a real one lifts the limit, and another
// forged one limits it again: the first wait's timer ended the second wait.
static void test_second_wait_for_credits(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 260587422, .chains = VB_SIM_CHAINS_NONE});
}

// A NAK ended a wait for credits, but not its timer, which fired while the message was held by its
// rate.
static void test_nak_during_a_wait_for_credits(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 34931996, .chains = VB_SIM_CHAINS_NONE});
}

// During a wait after a RNR NAK the rate holds the message and no credit is left: the model asked
// for the timer of a wait for credits, but the one of the RNR wait runs.
static void test_rnr_wait_without_credits_or_rate(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 211691147, .chains = VB_SIM_CHAINS_NONE});
}

// A queue pair had gone back to ask for an ACK, because the memory of its newest packet was gone.
// The model still counted its packets when another one sent in the window that this had opened.
static void test_window_of_a_queue_pair_that_goes_back_to_ask(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 16349092, .chains = VB_SIM_CHAINS_NONE});
}

// A forged CNP was, bit for bit, one of the peer's, and took its place in the book of frames.
static void test_forged_cnp(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 128484823, .equal = true});
}

// A turn found no more room to send while frames of a slice were left: a poll left them for the
// next one, and one that is observed took them.
static void test_no_room_while_frames_are_left(void **state)
{
    static const uint64_t seeds[] = {50026, 70000103};

    (void)state;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        run_as(&(struct vb_sim_opts){.seed = seeds[i], .equal = true});
}

// A datagram to a stranger's number, which is 0 here, was posted without its address.
static void test_datagram_to_number_zero(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 95456208, .chains = VB_SIM_CHAINS_NONE});
}

// Queue pairs of a share were destroyed or reset while they owed it bytes, and went from one unit
// to the other: all of that added to its rate.
static void test_rate_of_queue_pairs_that_come_and_go(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 35197598, .chains = VB_SIM_CHAINS_NONE});
    run_as(&(struct vb_sim_opts){.seed = 91000677, .chains = VB_SIM_CHAINS_NONE});
}

// Alpha decays often and slowly, so what the NIC rounds down adds up.
static void test_rate_of_rounded_alpha(void **state)
{
    (void)state;
    run_as(&(struct vb_sim_opts){.seed = 173665544, .chains = VB_SIM_CHAINS_NONE});
}

// Each was a violation where two parts met that had passed alone: shares, rates, polls as in
// production, and the model's timers and books.
static void test_seeds_that_once_failed(void **state)
{
    static const uint64_t seeds[] = {139, 211, 1001, 2005, 2216, 2282, 131093724, 221353676};

    (void)state;
    pass(seeds, sizeof seeds / sizeof *seeds);
}

static void test_seeds_differ(void **state)
{
    (void)state;
    assert_int_not_equal(run(1, 0, NULL).digest, run(2, 0, NULL).digest);
}

static void test_the_work_is_done_on_as_many_nics_as_asked(void **state)
{
    (void)state;
    for (uint32_t nics = 2; nics <= VB_SIM_NICS_MAX; nics++) {
        struct vb_sim_result r = run(nics, nics, NULL);
        assert_int_equal(r.nics, nics);
        assert_true(r.works >= OPS);
    }
}

// Changes one byte behind the NICs' backs; the simulator must not miss it.
static void test_a_changed_byte_is_noticed(void **state)
{
    (void)state;
    struct vb_scenario scen;
    struct vb_coverage cover = {0};
    vb_scenario_draw(&scen, 1, 2, OPS);
    struct vb_world *w = vb_world_create(&scen, &cover, NULL);
    assert_non_null(w);
    w->node[0].mem.bytes[3] ^= 1; // a guard
    vb_world_run(w);
    assert_true(w->violated);
    assert_non_null(strstr(w->violation, "changed by nobody"));
    vb_world_destroy(w);
}

// Adds to a counter what no request asked for, in the memory and in what the model expects of it:
// the sum of all successes must not match.
static void test_an_addition_by_nobody_is_noticed(void **state)
{
    (void)state;
    struct vb_scenario scen;
    struct vb_coverage cover = {0};
    vb_scenario_draw(&scen, 1, 2, OPS);
    struct vb_world *w = vb_world_create(&scen, &cover, NULL);
    assert_non_null(w);
    struct vb_hostmem *mem = &w->node[0].mem;
    uint32_t at = w->node[0].exposed[0][VB_EXPOSED_COUNTERS]->offset;
    mem->bytes[at + 2] = mem->shadow[at + 2] = 1; // 65536
    vb_world_run(w);
    assert_true(w->violated);
    assert_non_null(strstr(w->violation, "counters say"));
    vb_world_destroy(w);
}

static void test_every_opcode_is_executed(void **state)
{
    (void)state;
    struct vb_batch_result r;
    struct vb_batch_opts opts = {.first = 1, .count = 40, .jobs = 2, .ops = 2 * OPS};
    assert_int_equal(vb_batch_run(&opts, &r), 0);
    assert_false(r.worst.violated);
    for (int i = 0; i < 256; i++) {
        const struct vb_opcode_info *info = &vb_opcode_table[i];
        enum vb_cover_row row = vb_cover_of_opcode((uint8_t)i);
        bool xrc = info->facts && info->transport == VB_TP_XRC; // in fewer worlds
        bool common = info->facts && (info->transport == VB_TP_RC || info->transport == VB_TP_UC ||
                                      info->transport == VB_TP_UD);
        if (common || xrc)
            assert_int_not_equal(row, VB_COVER_COUNT);
        else
            assert_int_equal(row, VB_COVER_COUNT);
        if (common && r.cover.row[row] == 0)
            fail_msg("%s was never executed", info->name);
    }
}

// ---- the set of frames under way

static void test_frames_under_way_are_known_and_no_others(void **state)
{
    (void)state;
    enum {
        FRAMES = 5000,
        LEN = 24
    };
    struct vb_sent sent = {0};
    struct vb_ip a = {{1}}, b = {{2}};
    uint8_t frame[LEN] = {0};

    assert_null(vb_sent_find(&sent, &a, &b, frame, LEN));
    for (uint32_t i = 0; i < FRAMES; i++) {
        memcpy(frame, &i, sizeof i);
        vb_sent_add(&sent, &a, &b, frame, LEN);
        assert_int_equal(vb_sent_add(&sent, &a, &b, frame, LEN)->under_way, 2);
    }
    assert_int_equal(sent.used, FRAMES);
    for (uint32_t i = 0; i < 2 * FRAMES; i++) {
        memcpy(frame, &i, sizeof i);
        assert_int_equal(vb_sent_find(&sent, &a, &b, frame, LEN) != NULL, i < FRAMES);
        assert_null(vb_sent_find(&sent, &b, &a, frame, LEN));
    }
    memset(frame, 0, sizeof frame);
    frame[LEN - 1] = frame[4] = 1; // the ICRC does not count, nor what it does not cover
    assert_non_null(vb_sent_find(&sent, &a, &b, frame, LEN));
    frame[LEN - 5] = 1;
    assert_null(vb_sent_find(&sent, &a, &b, frame, LEN));
    vb_sent_fini(&sent);
}

static void test_frames_that_have_arrived_are_forgotten(void **state)
{
    (void)state;
    enum {
        FRAMES = 100000,
        LEN = 24
    };
    struct vb_sent sent = {0};
    struct vb_ip a = {{1}}, b = {{2}};
    uint8_t frame[LEN] = {0};

    for (uint32_t i = 0; i < FRAMES; i++) {
        memcpy(frame, &i, sizeof i);
        vb_sent_add(&sent, &a, &b, frame, LEN)->under_way--;
        assert_null(vb_sent_find(&sent, &a, &b, frame, LEN));
    }
    assert_true(sent.size <= 4096);
    vb_sent_fini(&sent);
}

// A frame that never arrives is missed, and so is one too few or too many in a requester's count.
static void test_wrong_counts_in_the_book_are_noticed(void **state)
{
    static const uint8_t frame[64];

    (void)state;
    for (int more = -1; more <= 1; more++) {
        struct vb_scenario scen;
        struct vb_coverage cover = {0};
        vb_scenario_draw(&scen, 1, 2, OPS);
        struct vb_world *w = vb_world_create(&scen, &cover, NULL);
        assert_non_null(w);
        w->conn[0].ep[0].fate.under_way = more;
        if (more == 0)
            assert_non_null(vb_sent_add(&w->sent, &w->node[0].ip, &w->node[1].ip, frame,
                                        sizeof frame)); // by nobody
        vb_world_run(w);
        assert_true(w->violated);
        assert_non_null(strstr(w->violation, "gone nowhere"));
        vb_world_destroy(w);
    }
}

// UC and UD take part, but not more than a quarter.
static void test_the_share_of_unreliable_services(void **state)
{
    (void)state;
    uint64_t works = 0, unreliable = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct vb_scenario scen;
        struct vb_coverage cover = {0};
        vb_scenario_draw(&scen, seed, 0, OPS);
        struct vb_world *w = vb_world_create(&scen, &cover, NULL);
        assert_non_null(w);
        vb_world_run(w);
        assert_false(w->violated);
        assert_true(4 * w->works_unreliable <= w->works + 4 * 2 * scen.unreliable);
        works += w->works;
        unreliable += w->works_unreliable;
        vb_world_destroy(w);
    }
    assert_true(unreliable > works / 20);
}

// ---- the model's windows

enum {
    WINDOW_BYTES = 64,
    OWNER_QPN = 7,
    OTHER_QPN = 8
};

struct windows {
    struct vb_dev *dev;
    struct vb_hostmem mem;
    struct vb_user owner, other;
    struct vb_region *region;
    struct vb_window *window;
};

static void windows_open(struct windows *t, bool type2)
{
    const struct vb_dev_opts opts = {.seed = 1};
    uint32_t pd;

    t->dev = vb_dev_create(&opts);
    assert_non_null(t->dev);
    assert_int_equal(vb_dev_pd_create(t->dev, &pd), 0);
    assert_int_equal(vb_hostmem_init(&t->mem, 4096, 1), 0);
    t->owner = (struct vb_user){pd, OWNER_QPN};
    t->other = (struct vb_user){pd, OTHER_QPN};
    t->region = vb_hostmem_carve(&t->mem, 1024);
    assert_int_equal(vb_hostmem_register(&t->mem, t->dev, t->region, pd, VB_ACCESS_ALL), 0);
    t->window = vb_hostwin_create(&t->mem, t->dev, pd, type2);
    assert_non_null(t->window);
}

static void windows_close(struct windows *t)
{
    vb_hostmem_fini(&t->mem);
    vb_dev_destroy(t->dev);
}

static enum vb_mem_refusal bind(struct windows *t, uint32_t len)
{
    const struct vb_hostwin_wish wish = {.window = t->window->key ^ 1,
                                         .region = t->region->key,
                                         .addr = t->region->addr,
                                         .len = len,
                                         .rights = VB_REMOTE_READ};
    return vb_hostwin_bind(&t->mem, t->owner, &wish);
}

static enum vb_mem_refusal use(struct windows *t, struct vb_user user, uint32_t key, uint32_t len,
                               uint32_t need)
{
    uint32_t offset;
    return vb_hostmem_judge(&t->mem, user, key, t->window->start, len, need, &offset);
}

static void test_a_window_serves_its_queue_pair_while_it_is_bound(void **state)
{
    (void)state;
    struct windows t;
    windows_open(&t, true);
    assert_int_equal(use(&t, t.owner, t.window->key, 1, VB_REMOTE_READ), VB_MEM_STATE);
    assert_int_equal(bind(&t, 1025), VB_MEM_BOUNDS);
    assert_int_equal(bind(&t, 0), VB_MEM_STATE);
    assert_int_equal(bind(&t, WINDOW_BYTES), VB_MEM_OK);
    assert_int_equal(bind(&t, WINDOW_BYTES), VB_MEM_STATE);
    assert_true(vb_hostmem_has_windows(&t.mem, t.region));
    uint32_t key = t.window->key;
    assert_int_equal(use(&t, t.owner, key, WINDOW_BYTES, VB_REMOTE_READ), VB_MEM_OK);
    assert_int_equal(use(&t, t.owner, key, WINDOW_BYTES + 1, VB_REMOTE_READ), VB_MEM_BOUNDS);
    assert_int_equal(use(&t, t.owner, key, 1, VB_REMOTE_WRITE), VB_MEM_RIGHTS);
    assert_int_equal(use(&t, t.owner, key, 1, VB_LOCAL_READ), VB_MEM_STATE);
    assert_int_equal(use(&t, t.other, key, 1, VB_REMOTE_READ), VB_MEM_STATE);
    assert_int_equal(vb_hostwin_invalidate(&t.mem, t.other, key), VB_MEM_STATE);
    assert_int_equal(vb_hostwin_invalidate(&t.mem, t.owner, key), VB_MEM_OK);
    assert_int_equal(vb_hostwin_invalidate(&t.mem, t.owner, key), VB_MEM_STATE);
    assert_int_equal(use(&t, t.owner, key, 1, VB_REMOTE_READ), VB_MEM_STATE);
    assert_int_equal(bind(&t, WINDOW_BYTES), VB_MEM_OK);
    assert_int_equal(use(&t, t.owner, key, 1, VB_REMOTE_READ), VB_MEM_NO_KEY);
    windows_close(&t);
}

static void test_a_window_of_type_1_can_be_bound_anew(void **state)
{
    (void)state;
    struct windows t;
    windows_open(&t, false);
    assert_int_equal(bind(&t, WINDOW_BYTES), VB_MEM_OK);
    assert_int_equal(bind(&t, 2 * WINDOW_BYTES), VB_MEM_OK);
    assert_int_equal(use(&t, t.other, t.window->key, 2 * WINDOW_BYTES, VB_REMOTE_READ), VB_MEM_OK);
    assert_int_equal(vb_hostwin_invalidate(&t.mem, t.owner, t.window->key), VB_MEM_NO_KEY);
    assert_int_equal(bind(&t, 0), VB_MEM_OK);
    assert_false(vb_hostmem_has_windows(&t.mem, t.region));
    assert_int_equal(use(&t, t.owner, t.window->key, 1, VB_REMOTE_READ), VB_MEM_STATE);
    windows_close(&t);
}

static void test_jobs_do_not_change_the_outcome(void **state)
{
    (void)state;
    struct vb_batch_result one, three;
    struct vb_batch_opts opts = {.first = 20, .count = 12, .jobs = 1, .ops = OPS};
    assert_int_equal(vb_batch_run(&opts, &one), 0);
    opts.jobs = 3;
    assert_int_equal(vb_batch_run(&opts, &three), 0);
    assert_int_equal(one.done, 12);
    assert_int_equal(three.done, 12);
    assert_int_equal(one.events, three.events);
    assert_memory_equal(&one.cover, &three.cover, sizeof one.cover);
}

static void test_coverage_tells_empty_rows(void **state)
{
    (void)state;
    struct vb_coverage a = {0}, b = {0};
    uint32_t all = vb_cover_zero_rows(&a);
    vb_cover(&a, VB_COVER_TIMEOUT);
    vb_cover(&b, VB_COVER_TIMEOUT);
    b.moved[VB_QPS_RTS][VB_QPS_ERR] = 1;
    b.moved[VB_QPS_RESET][VB_QPS_RTS] = 1; // not a legal one: only its refusal counts
    b.moved[VB_QPS_SQE][VB_QPS_RTS] = 1;
    vb_cover_merge(&a, &b);
    assert_int_equal(a.row[VB_COVER_TIMEOUT], 2);
    assert_int_equal(vb_cover_zero_rows(&a), all - 3);
}

// Whether the requester may time out now.
static bool may_time_out(struct vb_ep *ep)
{
    struct vb_world *w = ep->node->world;

    w->violated = false;
    vb_model_judge_timeout(ep);
    return !w->violated;
}

// A lost frame explains a timeout only if an acknowledgement was asked of it or of a later one, and
// no other copy of it came.
static void test_only_a_needed_frame_explains_a_timeout(void **state)
{
    struct vb_scenario scen;
    struct vb_coverage cover = {0};

    (void)state;
    vb_scenario_draw(&scen, 1, 2, OPS);
    scen.unreliable = 0;
    struct vb_world *w = vb_world_create(&scen, &cover, NULL);
    assert_non_null(w);
    struct vb_ep *ep = &w->conn[0].ep[0];
    struct vb_sent_frame request = {.key = 7, .ep = ep, .life = ep->conn->life};
    struct vb_sent_frame answer = {
        .key = 8, .ep = ep->peer, .life = ep->conn->life, .packet = 9, .answer = true};
    ep->peer->state = VB_QPS_RTS;
    ep->ask.una = 5;
    ep->ask.asked_end = 8;
    ep->ask.sent_end = 12;
    assert_false(may_time_out(ep));
    for (request.packet = 4; request.packet <= 8; request.packet++) {
        vb_model_sends_again(ep);
        vb_model_frame_lost(&request, VB_EXCUSE_TIMEOUT_DROPPED);
        assert_int_equal(may_time_out(ep), request.packet >= 5 && request.packet < 8);
    }
    request.packet = 7;
    vb_model_frame_lost(&request, VB_EXCUSE_TIMEOUT_DROPPED);
    assert_true(may_time_out(ep));
    vb_model_frame_heard(&request); // a copy
    assert_false(may_time_out(ep));
    vb_model_frame_lost(&request, VB_EXCUSE_TIMEOUT_DROPPED); // another one
    assert_false(may_time_out(ep));
    vb_model_frame_lost(&answer, VB_EXCUSE_TIMEOUT_DROPPED);
    assert_true(may_time_out(ep));
    vb_model_sends_again(ep);
    assert_false(may_time_out(ep));
    vb_model_frame_lost(&request, VB_EXCUSE_TIMEOUT_DROPPED);
    assert_true(may_time_out(ep));
    vb_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seed_replays_event_by_event),
        cmocka_unit_test(test_tracing_changes_nothing),
        cmocka_unit_test(test_no_end_by_retries_in_a_healed_network),
        cmocka_unit_test(test_second_wait_for_credits),
        cmocka_unit_test(test_nak_during_a_wait_for_credits),
        cmocka_unit_test(test_rnr_wait_without_credits_or_rate),
        cmocka_unit_test(test_window_of_a_queue_pair_that_goes_back_to_ask),
        cmocka_unit_test(test_forged_cnp),
        cmocka_unit_test(test_no_room_while_frames_are_left),
        cmocka_unit_test(test_datagram_to_number_zero),
        cmocka_unit_test(test_rate_of_queue_pairs_that_come_and_go),
        cmocka_unit_test(test_rate_of_rounded_alpha),
        cmocka_unit_test(test_seeds_that_once_failed),
        cmocka_unit_test(test_lost_read_request),
        cmocka_unit_test(test_answer_held_to_the_last_attempt),
        cmocka_unit_test(test_answers_without_memory),
        cmocka_unit_test(test_seeds_differ),
        cmocka_unit_test(test_the_work_is_done_on_as_many_nics_as_asked),
        cmocka_unit_test(test_a_changed_byte_is_noticed),
        cmocka_unit_test(test_an_addition_by_nobody_is_noticed),
        cmocka_unit_test(test_every_opcode_is_executed),
        cmocka_unit_test(test_frames_under_way_are_known_and_no_others),
        cmocka_unit_test(test_frames_that_have_arrived_are_forgotten),
        cmocka_unit_test(test_wrong_counts_in_the_book_are_noticed),
        cmocka_unit_test(test_only_a_needed_frame_explains_a_timeout),
        cmocka_unit_test(test_the_share_of_unreliable_services),
        cmocka_unit_test(test_a_window_serves_its_queue_pair_while_it_is_bound),
        cmocka_unit_test(test_a_window_of_type_1_can_be_bound_anew),
        cmocka_unit_test(test_jobs_do_not_change_the_outcome),
        cmocka_unit_test(test_coverage_tells_empty_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
