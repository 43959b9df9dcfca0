// SPDX-License-Identifier: Apache-2.0
// The language of fault rules: every form, every complaint, and the canonical text.
#include "port/faults.h"
#include "verbena/nic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

static struct vb_faults *parse(const char *text)
{
    struct vb_faults *f = NULL;
    char why[VB_ERROR_TEXT] = "";
    if (vb_faults_parse(text, &f, why) != 0)
        fail_msg("%s", why);
    return f;
}

static void assert_canonical(const char *text, const char *canonical)
{
    char printed[512];
    struct vb_faults *f = parse(text);
    assert_int_equal(vb_faults_print(f, printed, sizeof printed), strlen(canonical));
    assert_string_equal(printed, canonical);
    vb_faults_free(f);
}

static const char *const pairs[][2] = {
    {"", "off"},
    {"off", "off"},
    {" ; ;", "off"},
    {"seed=7", "off;seed=7"},
    {"off;seed=0", "off"},
    {"drop=1%", "drop=1%"},
    {"drop=0.5%", "drop=0.5%"},
    {"drop=10ppm", "drop=0.001%"},
    {"drop=1ppm", "drop=0.0001%"},
    {"drop=100%", "drop=100%"},
    {"drop=1000000ppm", "drop=100%"},
    {"drop=0%", "drop=0%"},
    {"drop=#3", "drop=#3"},
    {"drop=#3/100", "drop=#3/100"},
    {"drop=#5+", "drop=#5+"},
    {"drop=#3..7", "drop=#3..7"},
    {"drop=#3..7/10", "drop=#3..7/10"},
    {"drop=#3..3", "drop=#3"},
    {"dup=0.1%", "dup=0.1%"},
    {"dup=0.1%:3", "dup=0.1%:3"},
    {"dup=#2:1", "dup=#2"},
    {"corrupt=10ppm", "corrupt=0.001%"},
    {"mark=0.5%", "mark=0.5%,dir=rx"},
    {"mark=#2,dir=both,qp=1", "mark=#2,dir=rx,qp=0x1"},
    {"mark=#2,drop=1%", "drop=1%,mark=#2"},
    {"reorder=0.5%", "reorder=0.5%"},
    {"reorder=0.5%:1..4~1ms", "reorder=0.5%"},
    {"reorder=#1:2", "reorder=#1:2"},
    {"reorder=#1:2..5~20us", "reorder=#1:2..5~20us"},
    {"reorder=1%~2s", "reorder=1%~2s"},
    {"delay=50us", "delay=50us"},
    {"delay=50us±20us", "delay=50us+-20us"},
    {"delay=50us +- 20us @ 10%", "delay=50us+-20us@10%"},
    {"delay=1.5ms@#4", "delay=1500us@#4"},
    {"delay=1.0000001s", "delay=1.0000001s"}, // more digits than nanoseconds may have
    {"delay=59.999999999s", "delay=59.999999999s"},
    {"delay=0.999999999s", "delay=999999999ns"},
    {"delay=800ns", "delay=800ns"},
    {"delay=0s", "delay=0ns"},
    {"delay=60s@100%", "delay=60s"},
    {"wc=retry_exc", "wc=retry_exc"},
    {"wc=retry_exc_err", "wc=retry_exc"},
    {"wc=retry_exc:send@1%", "wc=retry_exc:send@1%"},
    {"wc=wr_flush:recv|send|any@#9", "wc=wr_flush@#9"},
    {"wc=wr_flush:recv|send", "wc=wr_flush:send|recv"},
    {"wc=rem_access,qp=0x12", "wc=rem_access,qp=0x12"},
    {"qp_error=#100", "qp_error=#100"},
    {"qp_error=1%,qp=5", "qp_error=1%,qp=0x5"},
    {"reg_mr=#2", "reg_mr=#2"},
    {"reg_mr=#2:ENOMEM", "reg_mr=#2"},
    {"reg_mr=#2:EINVAL", "reg_mr=#2:EINVAL"},
    {"dir=both,drop=1%", "drop=1%"},
    {"dir=tx,drop=1%", "drop=1%,dir=tx"},
    {"dir=rx,drop=1%", "drop=1%,dir=rx"},
    {"drop=1%,qp=18|0x20..0x2f", "drop=1%,qp=0x12|0x20..0x2f"},
    {"drop=1%,op=any", "drop=1%"},
    {"drop=1%,op=send|write|read|read_resp", "drop=1%,op=send|write|read|read_resp"},
    {"drop=1%,op=ack|nak|rnr|0x81", "drop=1%,op=ack|nak|rnr|0x81"},
    {"drop=1%,op=atomic|atomic_ack|imm|inv", "drop=1%,op=atomic|atomic_ack|imm|inv"},
    {"drop=1%,delay=50us±20us,dup=0.1%;seed=7", "drop=1%,dup=0.1%,delay=50us+-20us;seed=7"},
    {" seed = 7 ;\n drop = 1 % , op = send | ack ;", "drop=1%,op=send|ack;seed=7"},
    {"seed=0xffffffffffffffff", "off;seed=18446744073709551615"},
};

static void test_every_form_has_a_canonical_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_canonical(pairs[i][0], pairs[i][1]);
        assert_canonical(pairs[i][1], pairs[i][1]);
    }
}

#define PROBABILITY "a probability is 1%, 0.5%, 10ppm or #N"
#define NTH         "a count is #3, #3..7, #5+ or #3/100, each from 1 up"
#define TIME        "a time is 800ns, 50us, 1.5ms or 2s, at most 60s"
#define RANGE       "reorder=1%:2..4 lets 2 to 4 frames overtake; 1 to 64 are possible"
#define COPIES      "dup=1%:3 makes three copies more; 1 to 7 are possible"
#define QP          "a queue pair is 0x12, 18 or 0x10..0x1f, at most 0xffffff"
#define FRAMES      "a condition for frames: drop, dup, corrupt, reorder, delay, mark"
#define KIND        "a work request is send, write, read, atomic, recv or any; | joins several"
#define OP \
    "an op is send, write, read, read_resp, ack, nak, rnr, atomic, atomic_ack, imm, inv, any, 0x81"
#define ALONE "this needs a rule of its own: put ';' around it"
#define ENDS  "the clause should end here; ',' begins another one, ';' a rule"
static const char *const cases[][3] = {
    {"drop=1x", "'drop=1x': " PROBABILITY, "6"},
    {"drop=", "'drop=': " PROBABILITY, "6"},
    {"drop=1", "'drop=1': " PROBABILITY, "6"},
    {"drop=x", "'drop=x': " PROBABILITY, "6"},
    {"drop=1.%", "'drop=1.%': " PROBABILITY, "6"},
    {"drop=1.2345678901%", "'drop=1.2345678901%': " PROBABILITY, "6"},
    {"drop=99999999999%", "'drop=99999999999%': " PROBABILITY, "6"},
    {"drop=-1%", "'drop=-1%': " PROBABILITY, "6"},
    {"drop=101%", "'drop=101%': a probability is at most 100%", "6"},
    {"drop=100.00001%", "'drop=100.00001%': a probability is at most 100%", "6"},
    {"drop=1000001ppm", "'drop=1000001ppm': a probability is at most 100%", "6"},
    {"drop=0.5ppm", "'drop=0.5ppm': a probability is a multiple of 1ppm = 0.0001%", "6"},
    {"drop=#0", "'drop=#0': " NTH, "7"},
    {"drop=#", "'drop=#': " NTH, "7"},
    {"drop=#7..3", "'drop=#7..3': " NTH, "7"},
    {"drop=#7..", "'drop=#7..': " NTH, "7"},
    {"drop=#3/0", "'drop=#3/0': " NTH, "7"},
    {"drop=#3/", "'drop=#3/': " NTH, "7"},
    {"drop=#18446744073709551615", "'drop=#18446744073709551615': " NTH, "7"},
    {"drop=#18446744073709551616", "'drop=#18446744073709551616': " NTH, "7"},
    {"drop=#3/2", "'drop=#3/2': in #N/M, N is at most M: #3/100 is the third of every hundred",
     "7"},
    {"drop=#3+/9", "'drop=#3+/9': " ENDS, "9"},
    {"drop=1% dup=1%", "'drop=1% dup=1%': " ENDS, "9"},
    {"dup=1%:0", "'dup=1%:0': " COPIES, "7"},
    {"dup=1%:8", "'dup=1%:8': " COPIES, "7"},
    {"dup=1%:", "'dup=1%:': " COPIES, "7"},
    {"reorder=1%:0", "'reorder=1%:0': " RANGE, "12"},
    {"reorder=1%:65", "'reorder=1%:65': " RANGE, "12"},
    {"reorder=1%:4..2", "'reorder=1%:4..2': " RANGE, "12"},
    {"reorder=1%:4..", "'reorder=1%:4..': " RANGE, "12"},
    {"reorder=1%~5", "'reorder=1%~5': " TIME, "12"},
    {"delay=50", "'delay=50': " TIME, "7"},
    {"delay=50%", "'delay=50%': " TIME, "7"},
    {"delay=61s", "'delay=61s': " TIME, "7"},
    {"delay=0.5ns", "'delay=0.5ns': " TIME, "7"},
    {"delay=5us±x", "'delay=5us±x': " TIME, "11"},
    {"delay=5us+-6us", "'delay=5us+-6us': the jitter is at most the delay: 50us+-50us", "10"},
    {"delay=5us@x", "'delay=5us@x': " PROBABILITY, "11"},
    {"wc=oops",
     "'wc=oops': an error is retry_exc, rnr_retry_exc, wr_flush, rem_access, … (docs/faults.md)",
     "4"},
    {"wc=retry_exc:push", "'wc=retry_exc:push': " KIND, "14"},
    {"wc=retry_exc:send|", "'wc=retry_exc:send|': " KIND, "19"},
    {"wc=retry_exc@1", "'wc=retry_exc@1': " PROBABILITY, "14"},
    {"qp_error=x", "'qp_error=x': " PROBABILITY, "10"},
    {"reg_mr=#2:EWHAT",
     "'reg_mr=#2:EWHAT': an errno is ENOMEM, EINVAL, EPERM, EACCES, EAGAIN, EFAULT, ENOSPC or "
     "EOPNOTSUPP",
     "11"},
    {"drop=1%,dir=up", "'dir=up': a direction is tx, rx or both", "13"},
    {"drop=1%,qp=", "'qp=': " QP, "12"},
    {"drop=1%,qp=x", "'qp=x': " QP, "12"},
    {"drop=1%,qp=0x1000000", "'qp=0x1000000': " QP, "12"},
    {"drop=1%,qp=3|9..4", "'qp=3|9..4': " QP, "14"},
    {"drop=1%,qp=1|2|3|4|5|6|7|8|9",
     "'qp=1|2|3|4|5|6|7|8|9': at most 8 alternatives; write another rule", "28"},
    {"drop=1%,op=push", "'op=push': " OP, "12"},
    {"drop=1%,op=0x100", "'op=0x100': " OP, "12"},
    {"drop=1%,op=17", "'op=17': " OP, "12"},
    {"drop=1%,op=send|", "'op=send|': " OP, "17"},
    {"drop=1%,op=send|send|send|send|send|send|send|send|send",
     "'op=send|send|send|send|send|send': at most 8 alternatives; write another rule", "52"},
    {"seed=x", "'seed=x': a seed is a number below 2^64", "6"},
    {"seed=18446744073709551616", "'seed=18446744073709551616': a seed is a number below 2^64",
     "6"},
    {"seed=1;seed=2", "'seed=2': there is one seed for all rules", "8"},
    {"drop=1%,seed=2", "'seed=2': the seed is for all rules: put ';' around it", "9"},
    {"dorp=1%",
     "'dorp=1%': no such key; there are drop dup corrupt reorder delay mark wc qp_error reg_mr "
     "dir qp op seed",
     "1"},
    {"drop", "'drop': a clause is key=value, like drop=1%", "5"},
    {"drop=1%,drop=2%", "'drop=2%': this key is already in the rule; ';' begins another one", "9"},
    {"drop=1%,", "'': a clause is missing here: drop=1%,dir=tx", "9"},
    {"drop=1%,,dir=tx", "'': a clause is missing here: drop=1%,dir=tx", "9"},
    {"drop=1%;qp=3,dir=tx", "'dir=tx': a rule needs an action, like drop=1%", "14"},
    {"wc=retry_exc,dir=tx", "'dir=tx': " FRAMES, "14"},
    {"qp_error=1%,op=send", "'op=send': " FRAMES, "13"},
    {"reg_mr=#1,qp=3", "'qp=3': registrations have no queue pair", "11"},
    {"drop=1%,wc=retry_exc", "'wc=retry_exc': " ALONE, "9"},
    {"mark=1", "'mark=1': " PROBABILITY, "6"},
    {"mark=1%,dir=tx", "'dir=tx': only frames that come in can be marked: dir=rx", "9"},
    {"mark=1%,reg_mr=1%", "'reg_mr=1%': " ALONE, "9"},
    {"qp_error=1%,reg_mr=1%", "'qp_error=1%': " ALONE, "1"},
};

static void test_every_mistake_has_its_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[VB_ERROR_TEXT] = "", expected[VB_ERROR_TEXT + 64];
        struct vb_faults *f = NULL;
        snprintf(expected, sizeof expected, "faults: %s (column %s)", cases[i][1], cases[i][2]);
        assert_int_equal(vb_faults_parse(cases[i][0], &f, why), -EINVAL);
        assert_string_equal(why, expected);
        assert_null(f);
        assert_int_equal(vb_faults_parse(cases[i][0], &f, NULL), -EINVAL);
    }
}

static void test_a_line_about_a_long_or_odd_clause_is_whole(void **state)
{
    (void)state;
    char why[VB_ERROR_TEXT];
    struct vb_faults *f;
    char text[5000];
    memset(text, ' ', sizeof text);
    snprintf(text + 4000, sizeof text - 4000, "%s",
             "drop=1%,op=send|"
             "±±±±±±±±±±±±±±±±±±±±±±±±±±±±±±±±±");
    assert_int_equal(vb_faults_parse(text, &f, why), -EINVAL);
    assert_string_equal(why + strlen(why) - 13, "(column 4017)");
    assert_non_null(strstr(why, "'op=send|±±±±±±±±±±±±': an op is"));
    assert_int_equal(vb_faults_parse("dr\x01op\x7f=1%", &f, why), -EINVAL);
    assert_non_null(strstr(why, "'dr?op?=1%'"));
}

static void test_there_is_room_for_64_rules(void **state)
{
    (void)state;
    char text[64 * 16 + 16] = "", why[VB_ERROR_TEXT];
    for (int i = 0; i < 64; i++)
        strncat(text, "drop=1%;", sizeof text - strlen(text) - 1);
    struct vb_faults *f = parse(text);
    assert_int_equal(vb_faults_rules(f), 64);
    vb_faults_free(f);
    strncat(text, "dup=1%", sizeof text - strlen(text) - 1);
    assert_int_equal(vb_faults_parse(text, &f, why), -EINVAL);
    assert_string_equal(why, "faults: 'dup=1%': at most 64 rules (column 513)");
}

static void test_printing_keeps_to_its_room(void **state)
{
    (void)state;
    struct vb_faults *f = parse("drop=1%,qp=3;dup=#2");
    char text[32];
    memset(text, '#', sizeof text);
    assert_int_equal(vb_faults_print(f, text, 8), 21);
    assert_string_equal(text, "drop=1%");
    assert_int_equal(text[8], '#');
    assert_int_equal(vb_faults_print(f, NULL, 0), 21);
    assert_int_equal(vb_faults_print_rule(f, 1, text, sizeof text), 6);
    assert_string_equal(text, "dup=#2");
    assert_int_equal(vb_faults_print_rule(f, 2, text, sizeof text), 0);
    assert_string_equal(text, "");
    vb_faults_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_has_a_canonical_text),
        cmocka_unit_test(test_every_mistake_has_its_line),
        cmocka_unit_test(test_a_line_about_a_long_or_odd_clause_is_whole),
        cmocka_unit_test(test_there_is_room_for_64_rules),
        cmocka_unit_test(test_printing_keeps_to_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
