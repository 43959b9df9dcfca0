// SPDX-License-Identifier: Apache-2.0
// The cost model under random presets and options: pages of a program that uses everything the
// model knows, and of every offload that is shipped, are what they were, by their digests. One page
// is here in full, and its sums can be made by hand (docs/cost.md).
#include "chain/text.h"
#include "cost/model.h"
#include "shipped_kit.h"
#include "sim/digest.h"
#include "spoil_kit.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    PRESETS = 150,
    SHIPPED_PRESETS = 8,
    MESSAGES = 4,
    TEXT_BYTES = 1 << 16,
};

// All opcodes; messages before and after a receive is there; replies; a fence; more than one batch;
// transfers of as many bytes as the MTU, which is 1024 or 1025.
static const char rich[] = "program rich\n"
                           "cq c entries 64\n"
                           "cq r entries 64\n"
                           "queue W loop blocks 64 send_cq c\n"
                           "queue V loop managed_send blocks 64 send_cq c\n"
                           "queue K peer managed_recv managed_send blocks 64 recvs 4 stride 64 "
                           "send_cq c recv_cq r recv_open 1\n"
                           "region d own 32768 writable\n"
                           "region far peer 16384 writable\n"
                           "receives K\n"
                           "    recv -> d:64\n"
                           "    recv -> d+64:256\n"
                           "    recv -> d+128:64\n"
                           "code W\n"
                           "    wait r 0\n"
                           "    read d -> d+1024:64\n"
                           "    read d -> d+2048:1024\n"
                           "    fadd d+8 add 1 -> d+16:8\n"
                           "    cas d+8 compare 1 swap 2 -> d+24:8 fence\n"
                           "    write d+4096 <- d:8192\n"
                           "    write d+512 <- inline \"short\"\n"
                           "    masked_fadd.8 d+8 add 1 boundary 0 -> d+16:8\n"
                           "    nop signaled fence\n"
                           "    wait c 0\n"
                           "    send_en V 5\n"
                           "    recv_en K 2\n"
                           "    send_en K 4\n"
                           "    wait r 1\n"
                           "    recv_en K 3\n"
                           "    wait r 2\n"
                           "    send_en K 7\n"
                           "    nop\n"
                           "code V\n"
                           "    masked_cas.8 d+8 compare 1 swap 2 compare_mask 0xff swap_mask 0xff "
                           "-> d+32:8\n"
                           "    read d -> d+8192:4097\n"
                           "    write d+40 <- d:8 fence\n"
                           "    nop signaled\n"
                           "code K\n"
                           "    write far <- d:64\n"
                           "    send <- d:32 signaled\n"
                           "    read far -> d+256:65\n"
                           "    send <- inline \"x\"\n"
                           "    write far <- d:8192\n"
                           "    write far <- inline \"seven bytes\"\n"
                           "    write_imm far <- d:8 imm 7 signaled\n";

static struct vb_image *assemble(const char *text)
{
    char error[VB_IMAGE_TEXT] = "";
    struct vb_image *image = vb_asm(text, strlen(text), error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

static struct vb_cost_preset *parse(const char *text)
{
    char error[VB_COST_TEXT] = "";
    struct vb_cost_preset *p = vb_cost_preset_parse(text, strlen(text), error);
    if (!p)
        fail_msg("%s in\n%s", error, text);
    return p;
}

// ---- random ones

static unsigned below(struct vb_prng *prng, unsigned n)
{
    return (unsigned)vb_prng_below(prng, n);
}

struct text {
    char at[2048];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    t->len += (size_t)vsnprintf(t->at + t->len, sizeof t->at - t->len, format, args);
    va_end(args);
    assert_true(t->len < sizeof t->at);
}

static struct vb_cost_preset *draw_preset(struct vb_prng *prng)
{
    static const char *const times[] = {"doorbell", "fetch",      "issue", "wait",  "enable",
                                        "network",  "completion", "read",  "write", "gather",
                                        "cold",     "occupancy",  "atomic"};
    static const char *const rates[] = {"link", "pcie", "message"};
    static const struct {
        const char *name;
        unsigned min, max;
    } counts[] = {{"fetch_batch", 1, 5}, {"managed_batch", 0, 4}, {"reads", 1, 4},
                  {"pus", 1, 4},         {"ports", 1, 3},         {"chains", 0, 3},
                  {"mtu", 1024, 1025},   {"qp_cache", 1, 100},    {"page_cache", 1, 100},
                  {"page", 4096, 100000}};
    struct text t = {.len = 0};

    put(&t, "name random\n");
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        put(&t, "%s %u ns\n", times[i], below(prng, 4) ? below(prng, 900) : 0);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        put(&t, "%s %u.5 GB/s\n", rates[i], below(prng, 20));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        put(&t, "%s %u\n", counts[i].name,
            counts[i].min + below(prng, counts[i].max - counts[i].min + 1));
    put(&t, "lanes %s\n", below(prng, 2) ? "queue" : "program");
    return parse(t.at);
}

static void draw_opts(struct vb_prng *prng, struct vb_cost_opts *o)
{
    *o = (struct vb_cost_opts){.seed = 1};
    o->operations = below(prng, 2) ? below(prng, 5) : 0;
    o->connections = below(prng, 2) ? below(prng, 300) : 0;
    o->registered_bytes = below(prng, 2) ? below(prng, 1u << 24) : 0;
    o->managed_client = below(prng, 2);
    o->steps_max = below(prng, 8) ? 0 : 1 + below(prng, 100);
}

static void add_page(struct vb_digest *d, char *page)
{
    assert_non_null(page);
    vb_digest_add(d, vb_digest_bytes((const uint8_t *)page, (uint32_t)strlen(page)));
    free(page);
}

static void add_pages(struct vb_digest d[3], const struct vb_cost *c)
{
    add_page(&d[0], vb_cost_text(c));
    add_page(&d[1], vb_cost_json(c));
    add_page(&d[2], vb_cost_svg(c));
}

static void expect_digests(const struct vb_digest d[3], uint64_t text, uint64_t json, uint64_t svg)
{
    if (d[0].value != text || d[1].value != json || d[2].value != svg)
        fail_msg("0x%016" PRIx64 ", 0x%016" PRIx64 ", 0x%016" PRIx64, d[0].value, d[1].value,
                 d[2].value);
}

// Up to three messages, for the second of which the program has to open a receive.
static struct vb_cost *price_rich(const struct vb_cost_preset *p, struct vb_cost_opts *o,
                                  const uint32_t *len, uint32_t count)
{
    static const uint8_t bytes[256] = {1, 2, 3};
    struct vb_cost_input in[MESSAGES];
    const struct vb_cost_input memory[] = {
        {"d", 8, "\0\0\0\0\0\0\0\1", 8}, {"d", 32768 - 8, "the last", 8}, {"d", 32768, "", 0}};
    char error[VB_COST_TEXT] = "";
    struct vb_image *image = assemble(rich);

    for (uint32_t i = 0; i < count; i++)
        in[i] = (struct vb_cost_input){"K", 0, bytes, len[i]};
    o->message = in;
    o->messages = count;
    o->memory = memory;
    o->memories = 3;
    struct vb_cost *c = vb_cost_run(image, p, o, error);
    if (!c)
        fail_msg("%s", error);
    vb_image_destroy(image);
    return c;
}

static void test_rich_program(void **state)
{
    struct vb_digest d[3] = {{1}, {1}, {1}};
    struct vb_prng prng = {.state = 11};

    (void)state;
    for (int i = 0; i < PRESETS; i++) {
        struct vb_cost_preset *p = draw_preset(&prng);
        struct vb_cost_opts o;
        uint32_t len[3];
        draw_opts(&prng, &o);
        for (int k = 0; k < 3; k++)
            len[k] = k == 1 ? below(&prng, 257) : below(&prng, 65);
        struct vb_cost *c = price_rich(p, &o, len, 1 + below(&prng, 3));
        add_pages(d, c);
        vb_cost_free(c);
        vb_cost_preset_free(p);
    }
    expect_digests(d, 0x9e38025d2cecc71a, 0xd578b5c9442f3f8c, 0x4d1309ae6129cf78);
}

static void test_shipped_programs(void **state)
{
    struct vb_digest d[3] = {{1}, {1}, {1}};
    struct vb_prng prng = {.state = 12};

    (void)state;
    for (uint32_t i = 0; i < shipped_count() * SHIPPED_PRESETS; i++) {
        struct vb_machine_opts machine = {.seed = 1, .shared_bytes = SHIPPED_SHARED};
        const struct shipped *s = shipped_at(i / SHIPPED_PRESETS);
        struct shipped_input input = {.program = s};
        struct vb_cost_preset *p = draw_preset(&prng);
        struct vb_image *image = shipped_image(s);
        char error[VB_COST_TEXT] = "";
        struct vb_machine *m = vb_machine_create(image, &machine, error);
        struct vb_cost_opts o;
        assert_non_null(m);
        draw_opts(&prng, &o);
        shipped_prepare(&input, m);
        struct vb_cost *c = vb_cost_watch(m, image, &machine, p, &o, error);
        if (!c)
            fail_msg("%s: %s", s->name, error);
        add_pages(d, c);
        vb_cost_free(c);
        vb_machine_destroy(m);
        vb_image_destroy(image);
        vb_cost_preset_free(p);
    }
    expect_digests(d, 0xb3fb29b8939874c0, 0x3ad2d5a1541c9e51, 0xefae4aca6aeb54e4);
}

// More entries than the text and the picture show: the first of them are there, and how many more.
static void test_many_entries(void **state)
{
    enum {
        QUEUES = 5,
        EACH = 250
    };
    static char text[TEXT_BYTES];
    size_t len = (size_t)snprintf(text, sizeof text, "program many\ncq c entries 2048\n");
    struct vb_cost_preset *p = parse("name b\nlike connectx5-b\n");
    struct vb_digest d[3] = {{1}, {1}, {1}};
    char error[VB_COST_TEXT] = "";

    (void)state;
    for (int q = 0; q < QUEUES; q++)
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "queue Q%d loop blocks 256 send_cq c\n", q);
    for (int q = 0; q < QUEUES; q++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "code Q%d\n", q);
        for (int i = 0; i < EACH; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "    nop signaled\n");
    }
    struct vb_image *image = assemble(text);
    struct vb_cost *c = vb_cost_run(image, p, &(struct vb_cost_opts){.seed = 1}, error);
    assert_non_null(c);
    char *page = vb_cost_text(c), *picture = vb_cost_svg(c);
    assert_non_null(strstr(page, "\n  and 250 more; --json has them all\n"));
    assert_non_null(strstr(picture, ">many on b (the first 400 entries)</text>"));
    uint32_t drawn = 0;
    for (const char *at = picture; (at = strstr(at, "<g>")) != NULL; at++)
        drawn++;
    assert_int_equal(drawn, 400);
    free(page);
    free(picture);
    add_pages(d, c);
    vb_cost_free(c);
    vb_cost_preset_free(p);
    vb_image_destroy(image);
    expect_digests(d, 0xc6d7679c80c9db1a, 0x17557dcf7b2d902d, 0x5dd197151d24bfba);
}

// A card that takes no time for anything has no limit.
static void test_no_limit(void **state)
{
    struct vb_cost_preset *p = parse("name idle\nlike connectx5-b\nissue 0 us\noccupancy 0 us\n");
    struct vb_image *image = assemble("program p\ncq c entries 16\n"
                                      "queue W loop blocks 4 send_cq c\ncode W\n    nop\n");
    char error[VB_COST_TEXT] = "";
    struct vb_cost *c = vb_cost_run(image, p, &(struct vb_cost_opts){.seed = 1}, error);

    (void)state;
    assert_non_null(c);
    char *page = vb_cost_text(c), *json = vb_cost_json(c);
    assert_non_null(strstr(page, "rate       no limit\ncard       no limit\n"));
    assert_non_null(strstr(json, "\"rate\":0.0,\"bottleneck\":\"the order of its entries\","
                                 "\"card_rate\":0.0,"));
    free(page);
    free(json);
    vb_cost_free(c);
    vb_cost_preset_free(p);
    vb_image_destroy(image);
}

// The whole picture of one entry: doorbell and fetch, its turn, and a scale of a tenth each.
static void test_picture(void **state)
{
    static const char expected[] =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1350\" height=\"170\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"110\" y=\"18\">p on b</text>\n"
        "<text x=\"100.0\" y=\"90.0\" text-anchor=\"end\">W</text>\n"
        "<line x1=\"110\" x2=\"1310\" y1=\"126.0\" y2=\"126.0\" stroke=\"#888888\"/>\n"
        "<g><title>W#0 (nop): 0.300 to 0.820 us</title>\n"
        "<rect x=\"549.02\" y=\"58.0\" width=\"512.20\" height=\"12\" fill=\"#9a9a9a\"/>\n"
        "<rect x=\"1061.22\" y=\"58.0\" width=\"248.78\" height=\"12\" fill=\"#3b6ea5\"/>\n"
        "<rect x=\"549.02\" y=\"58.0\" width=\"760.98\" height=\"12\" fill=\"none\" "
        "stroke=\"#b02020\"/>\n"
        "</g>\n"
        "<text x=\"110.0\" y=\"152.0\" text-anchor=\"middle\">0.00</text>\n"
        "<text x=\"230.0\" y=\"152.0\" text-anchor=\"middle\">0.08</text>\n"
        "<text x=\"350.0\" y=\"152.0\" text-anchor=\"middle\">0.16</text>\n"
        "<text x=\"470.0\" y=\"152.0\" text-anchor=\"middle\">0.25</text>\n"
        "<text x=\"590.0\" y=\"152.0\" text-anchor=\"middle\">0.33</text>\n"
        "<text x=\"710.0\" y=\"152.0\" text-anchor=\"middle\">0.41</text>\n"
        "<text x=\"830.0\" y=\"152.0\" text-anchor=\"middle\">0.49</text>\n"
        "<text x=\"950.0\" y=\"152.0\" text-anchor=\"middle\">0.57</text>\n"
        "<text x=\"1070.0\" y=\"152.0\" text-anchor=\"middle\">0.66</text>\n"
        "<text x=\"1190.0\" y=\"152.0\" text-anchor=\"middle\">0.74</text>\n"
        "<text x=\"1310.0\" y=\"152.0\" text-anchor=\"middle\">0.82</text>\n"
        "<text x=\"100.0\" y=\"152.0\" text-anchor=\"end\">us</text>\n"
        "<rect x=\"110\" y=\"32\" width=\"12\" height=\"12\" fill=\"#9a9a9a\"/>\n"
        "<text x=\"126.0\" y=\"42.0\" text-anchor=\"start\">fetch</text>\n"
        "<rect x=\"200\" y=\"32\" width=\"12\" height=\"12\" fill=\"#dddddd\"/>\n"
        "<text x=\"216.0\" y=\"42.0\" text-anchor=\"start\">wait</text>\n"
        "<rect x=\"290\" y=\"32\" width=\"12\" height=\"12\" fill=\"#3b6ea5\"/>\n"
        "<text x=\"306.0\" y=\"42.0\" text-anchor=\"start\">issue</text>\n"
        "<rect x=\"380\" y=\"32\" width=\"12\" height=\"12\" fill=\"#d98c2b\"/>\n"
        "<text x=\"396.0\" y=\"42.0\" text-anchor=\"start\">PCIe</text>\n"
        "<rect x=\"470\" y=\"32\" width=\"12\" height=\"12\" fill=\"#5a9a5a\"/>\n"
        "<text x=\"486.0\" y=\"42.0\" text-anchor=\"start\">network</text>\n"
        "</svg>\n";
    struct vb_cost_preset *p = parse("name b\nlike connectx5-b\n");
    struct vb_image *image = assemble("program p\ncq c entries 16\n"
                                      "queue W loop blocks 4 send_cq c\ncode W\n    nop\n");
    char error[VB_COST_TEXT] = "";
    struct vb_cost *c = vb_cost_run(image, p, &(struct vb_cost_opts){.seed = 1}, error);

    (void)state;
    assert_non_null(c);
    char *picture = vb_cost_svg(c);
    assert_string_equal(picture, expected);
    free(picture);
    vb_cost_free(c);
    vb_cost_preset_free(p);
    vb_image_destroy(image);
}

// A program that executes nothing.
static void test_nothing(void **state)
{
    struct vb_cost_preset *p = parse("name b\nlike connectx5-b\n");
    struct vb_image *image = assemble("program p\ncq c entries 16\n"
                                      "queue W loop managed_send blocks 4 send_cq c\n"
                                      "code W\n    nop\n");
    char error[VB_COST_TEXT] = "";
    struct vb_cost *c = vb_cost_run(image, p, &(struct vb_cost_opts){.seed = 1}, error);
    struct vb_digest d[3] = {{1}, {1}, {1}};

    (void)state;
    assert_non_null(c);
    char *page = vb_cost_text(c);
    assert_null(strstr(page, "critical path"));
    assert_non_null(strstr(page, "operations 1, 0 entries, 0 replies, done after 0.000 us\n"));
    free(page);
    add_pages(d, c);
    vb_cost_free(c);
    vb_cost_preset_free(p);
    vb_image_destroy(image);
    expect_digests(d, 0xd68e409028ccebcb, 0xbcfae7b1abd8f36e, 0xb5393e46eae6f91b);
}

// ---- one page

static const char expected_page[] =
    "program rich\n"
    "preset b\n"
    "latency 8.213 us: fetch 0.700, issue 1.910, PCIe 4.897, network 0.375, wait 0.330\n"
    "rate 524243/s, one in 1.908 us; limit: the order of its entries\n"
    "card 524243/s, one in 1.908 us; limit: the order of its entries\n"
    "operations 3, 32 entries, 6 replies, done after 10.586 us\n"
    "\n"
    " entry (* critical), times in us at fetch wait issue PCIe network done\n"
    "* K:recv0 0.000 0.350 0.000 0.340 1.390 0.125 2.205\n"
    "* W#0 (wait) 0.000 0.000 2.205 0.020 0.000 0.000 2.225\n"
    "* W#1 (read) 2.225 0.000 0.000 0.170 0.590 0.000 2.985\n"
    "* W#2 (read) 2.395 0.000 0.590 0.170 0.742 0.000 3.897\n"
    "* W#3 (fadd) 3.155 0.000 0.742 0.170 0.590 0.000 4.657\n"
    "* W#4 (cas) 4.067 0.000 0.590 0.170 0.590 0.000 5.417\n"
    " W#5 (write) 4.827 0.000 0.000 0.170 1.680 0.000 6.678\n"
    " W#6 (write) 4.997 0.000 0.000 0.170 0.390 0.000 5.557\n"
    "* W#7 (masked_fadd) 5.167 0.000 0.250 0.170 0.590 0.000 6.177\n"
    "* W#8 (nop) 5.587 0.000 0.590 0.170 0.000 0.000 6.347\n"
    "* W#9 (wait) 6.347 0.000 0.330 0.020 0.000 0.000 6.698\n"
    "* W#10 (send_en) 6.698 0.000 0.000 0.170 0.000 0.000 6.868\n"
    "* W#11 (recv_en) 6.868 0.000 0.000 0.170 0.000 0.000 7.038\n"
    "* W#12 (send_en) 7.038 0.000 0.000 0.170 0.000 0.000 7.208\n"
    " V#0 (masked_cas) 6.698 0.350 0.000 0.170 0.590 0.000 7.808\n"
    " V#2 (read) 7.218 0.000 0.590 0.170 1.230 0.000 9.208\n"
    " V#3 (write) 7.978 0.000 1.230 0.170 0.390 0.000 9.768\n"
    " V#4 (nop) 9.378 0.000 0.000 0.170 0.000 0.000 9.548\n"
    "* K#0 (write) 7.038 0.350 0.000 0.170 0.390 0.250 8.198\n"
    " K#1 (send) 7.558 0.000 0.000 0.170 0.390 0.250 8.368\n"
    " K#2 (read) 7.728 0.000 0.000 0.170 0.590 0.250 8.738\n"
    " K#3 (send) 7.898 0.000 0.000 0.170 0.390 0.250 8.708\n"
    " K:recv1 0.000 0.350 5.655 0.340 0.720 0.142 7.208\n"
    " W#13 (wait) 7.208 0.000 0.000 0.020 0.000 0.000 7.228\n"
    " W#14 (recv_en) 7.228 0.000 0.000 0.170 0.000 0.000 7.398\n"
    " K:recv2 0.000 0.350 6.063 0.340 0.690 0.125 7.568\n"
    " W#15 (wait) 7.398 0.000 0.170 0.020 0.000 0.000 7.588\n"
    " W#16 (send_en) 7.588 0.000 0.000 0.170 0.000 0.000 7.758\n"
    " W#17 (nop) 7.758 0.000 0.000 0.170 0.000 0.000 7.928\n"
    " K#4 (write) 8.068 0.000 0.000 0.170 1.748 0.601 10.586\n"
    " K#5 (write) 8.238 0.000 0.000 0.170 0.390 0.250 9.048\n"
    " K#6 (write_imm) 8.408 0.000 0.000 0.170 0.390 0.250 9.218\n"
    "\n"
    "critical path, and for how long it is with each\n"
    " K:recv0 2.205\n"
    " W#0 (wait) 0.020\n"
    " W#1 (read) 0.760\n"
    " W#2 (read) 0.912\n"
    " W#3 (fadd) 0.760\n"
    " W#4 (cas) 0.760\n"
    " W#7 (masked_fadd) 0.760\n"
    " W#8 (nop) 0.500\n"
    " W#9 (wait) 0.020\n"
    " W#10 (send_en) 0.170\n"
    " W#11 (recv_en) 0.170\n"
    " W#12 (send_en) 0.000\n"
    " K#0 (write) 1.175\n";

// Several spaces become one.
static void squeeze(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++)
        if (*from != ' ' || to == text || to[-1] != ' ')
            *to++ = *from;
    *to = 0;
}

static void test_page(void **state)
{
    struct vb_cost_preset *p = parse("name b\nlike connectx5-b\n");
    struct vb_cost_opts o = {.seed = 1};
    struct vb_cost *c = price_rich(p, &o, (const uint32_t[]){2, 256, 1}, 3);
    char *page = vb_cost_text(c);

    (void)state;
    squeeze(page);
    assert_string_equal(page, expected_page);
    free(page);
    vb_cost_free(c);
    vb_cost_preset_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rich_program), cmocka_unit_test(test_shipped_programs),
        cmocka_unit_test(test_many_entries), cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_picture),      cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
