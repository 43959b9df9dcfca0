// SPDX-License-Identifier: Apache-2.0
// The pcapng writer, byte by byte: blocks, lengths, padding, options, and errors that stick.
#include "base/bytes.h"
#include "port/pcapng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FILE_MAX = 1 << 22
};

static int open_file(void)
{
    int fd = memfd_create("pcapng", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

// Reads and closes the file. The caller frees it.
static uint8_t *read_file(int fd, size_t *len)
{
    uint8_t *bytes = malloc(FILE_MAX);
    assert_non_null(bytes);
    ssize_t n = pread(fd, bytes, FILE_MAX, 0);
    assert_true(n >= 0 && n < FILE_MAX);
    *len = (size_t)n;
    close(fd);
    return bytes;
}

static void assert_file(int fd, const uint8_t *wanted, size_t wanted_len)
{
    size_t len;
    uint8_t *bytes = read_file(fd, &len);
    for (size_t i = 0; i < len && i < wanted_len; i++) {
        if (bytes[i] != wanted[i])
            fail_msg("byte %zu is %02x, not %02x", i, bytes[i], wanted[i]);
    }
    assert_int_equal(len, wanted_len);
    free(bytes);
}

static const uint8_t bare_section[] = {
    0x0a, 0x0d, 0x0d, 0x0a, 28,   0,    0,    0,    // type, length
    0x4d, 0x3c, 0x2b, 0x1a, 1,    0,    0,    0,    // byte order, version
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // section length
    28,   0,    0,    0,
};

static const uint8_t whole_file[] = {
    0x0a, 0x0d, 0x0d, 0x0a, 44,   0,    0,    0,                  // section
    0x4d, 0x3c, 0x2b, 0x1a, 1,    0,    0,    0,                  //
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,               //
    4,    0,    5,    0,    'm',  'a',  'k',  'e',  'r', 0, 0, 0, // application
    0,    0,    0,    0,    44,   0,    0,    0,                  // no more options
    1,    0,    0,    0,    48,   0,    0,    0,                  // interface
    101,  0,    0,    0,    0x78, 0x56, 0x34, 0x12,               // raw IP, snap length
    2,    0,    3,    0,    'u',  'd',  'p',  0,                  // name
    3,    0,    4,    0,    'p',  'o',  'r',  't',                // description
    9,    0,    1,    0,    9,    0,    0,    0,                  // nanoseconds
    0,    0,    0,    0,    48,   0,    0,    0,                  //
    6,    0,    0,    0,    68,   0,    0,    0,                  // packet
    0,    0,    0,    0,    4,    3,    2,    1,    8,   7, 6, 5, // interface, time
    5,    0,    0,    0,    0,    1,    0,    0,                  // lengths
    0x45, 1,    2,    3,    4,    0,    0,    0,                  // bytes
    2,    0,    4,    0,    2,    0,    0,    0,                  // outbound
    1,    0,    3,    0,    0xe2, 0x80, 0xa6, 0,                  // comment
    1,    0,    4,    0,    'f',  'o',  'u',  'r',                // comment
    0,    0,    0,    0,    68,   0,    0,    0,                  //
    5,    0,    0,    0,    52,   0,    0,    0,                  // statistics
    0,    0,    0,    0,    4,    3,    2,    1,    9,   7, 6, 5, // interface, time
    4,    0,    8,    0,    8,    7,    6,    5,    4,   3, 2, 1, // seen
    5,    0,    8,    0,    1,    0,    0,    0,    0,   0, 0, 0, // lost
    0,    0,    0,    0,    52,   0,    0,    0,                  //
};

static void test_every_block_is_as_the_format_says(void **state)
{
    (void)state;
    static struct vb_pcapng w;
    const uint8_t bytes[] = {0x45, 1, 2, 3, 4};
    int fd = open_file();
    vb_pcapng_begin(&w, fd, "maker");
    assert_int_equal(vb_pcapng_interface(&w, "udp", "port", 0x12345678), 0);
    vb_pcapng_packet(&w, &(struct vb_pcapng_packet){
                             .direction = VB_PCAPNG_OUTBOUND,
                             .time_ns = 0x0102030405060708,
                             .bytes = bytes,
                             .len = sizeof bytes,
                             .original_len = 256,
                             .comments = "\u2026\0four",
                             .comment_count = 2,
                         });
    vb_pcapng_statistics(&w, 0, 0x0102030405060709, 0x0102030405060708, 1);
    assert_int_equal(vb_pcapng_end(&w), 0);
    assert_file(fd, whole_file, sizeof whole_file);
}

static void test_absent_texts_leave_no_options(void **state)
{
    (void)state;
    static const uint8_t nameless[] = {
        1, 0, 0, 0, 32, 0, 0, 0, 101, 0, 0, 0, 0,  0, 0, 0, // interface
        9, 0, 1, 0, 9,  0, 0, 0, 0,   0, 0, 0, 32, 0, 0, 0, // its resolution alone
    };
    static struct vb_pcapng w;
    uint8_t wanted[sizeof bare_section + 2 * sizeof nameless];
    memcpy(wanted, bare_section, sizeof bare_section);
    memcpy(wanted + sizeof bare_section, nameless, sizeof nameless);
    memcpy(wanted + sizeof bare_section + sizeof nameless, nameless, sizeof nameless);
    int fd = open_file();
    vb_pcapng_begin(&w, fd, NULL);
    assert_int_equal(vb_pcapng_interface(&w, NULL, NULL, 0), 0);
    assert_int_equal(vb_pcapng_interface(&w, "", "", 0), 1);
    assert_int_equal(vb_pcapng_end(&w), 0);
    assert_file(fd, wanted, sizeof wanted);
}

// Packets of every length up to several buffers: whole, padded with zeros, and in order.
static void test_packets_of_all_lengths_are_padded(void **state)
{
    (void)state;
    static struct vb_pcapng w;
    static uint8_t data[3 * VB_PCAPNG_BUFFER];
    static const uint32_t lens[] = {0,
                                    1,
                                    2,
                                    3,
                                    4,
                                    5,
                                    1499,
                                    8000,
                                    VB_PCAPNG_BUFFER - 61,
                                    VB_PCAPNG_BUFFER,
                                    VB_PCAPNG_BUFFER + 7,
                                    sizeof data};
    size_t len, at = sizeof bare_section + 32;
    int fd = open_file();
    memset(data, 0xa5, sizeof data);
    vb_pcapng_begin(&w, fd, NULL);
    vb_pcapng_interface(&w, NULL, NULL, 0);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        vb_pcapng_packet(&w, &(struct vb_pcapng_packet){.time_ns = i,
                                                        .direction = VB_PCAPNG_INBOUND,
                                                        .bytes = data,
                                                        .len = lens[i],
                                                        .original_len = lens[i]});
    assert_int_equal(vb_pcapng_end(&w), 0);
    uint8_t *bytes = read_file(fd, &len);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint32_t total = 12 + 20 + (lens[i] + 3) / 4 * 4 + 8 + 4;
        assert_true(at + total <= len);
        assert_int_equal(vb_get_le32(bytes + at), 6);
        assert_int_equal(vb_get_le32(bytes + at + 4), total);
        assert_int_equal(vb_get_le32(bytes + at + 16), i);
        assert_int_equal(vb_get_le32(bytes + at + 20), lens[i]);
        assert_memory_equal(bytes + at + 28, data, lens[i]);
        for (uint32_t j = lens[i]; j % 4; j++)
            assert_int_equal(bytes[at + 28 + j], 0);
        assert_memory_equal(bytes + at + total - 16, "\2\0\4\0\1\0\0\0\0\0\0\0", 12);
        assert_int_equal(vb_get_le32(bytes + at + total - 4), total);
        at += total;
    }
    assert_int_equal(at, len);
    free(bytes);
}

static void test_texts_are_cut_between_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t max, fit;
    } cases[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"abc", 2, 2},
        {"abc", 0, 0},
        {"a\u00e9", 3, 3},              // two bytes
        {"a\u00e9", 2, 1},              //
        {"a\u2026z", 4, 4},             // three
        {"a\u2026z", 3, 1},             //
        {"a\u2026z", 2, 1},             //
        {"\U0001f41d\U0001f41d", 8, 8}, // four
        {"\U0001f41d\U0001f41d", 7, 4}, //
        {"\U0001f41d\U0001f41d", 4, 4}, //
        {"\U0001f41d\U0001f41d", 3, 0}, //
        {"\x80\x80\x80", 2, 0},         // not UTF-8: nothing is read past its ends
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(vb_pcapng_text_fit(cases[i].text, cases[i].max), cases[i].fit);
}

static void test_a_text_fills_an_option_at_most(void **state)
{
    (void)state;
    static struct vb_pcapng w;
    static char name[70001];
    size_t len;
    for (size_t i = 0; i < 70000; i += 4)
        memcpy(name + i, "\U0001f41d", 4);
    int fd = open_file();
    vb_pcapng_begin(&w, fd, NULL);
    vb_pcapng_interface(&w, name, NULL, 0);
    assert_int_equal(vb_pcapng_end(&w), 0);
    uint8_t *bytes = read_file(fd, &len);
    const uint8_t *block = bytes + sizeof bare_section;
    uint32_t total = 8 + 8 + 4 + 65532 + 8 + 4 + 4;
    assert_int_equal(len, sizeof bare_section + total);
    assert_int_equal(vb_get_le32(block + 4), total);
    assert_memory_equal(block + 16, "\2\0\xfc\xff", 4);
    assert_memory_equal(block + 20, name, 65532);
    assert_memory_equal(block + 20 + 65532, "\x9\0\1\0\x9\0\0\0\0\0\0\0", 12);
    free(bytes);
}

static void test_the_first_error_sticks(void **state)
{
    (void)state;
    static struct vb_pcapng w;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    vb_pcapng_begin(&w, full, "maker");
    assert_int_equal(w.error, 0); // nothing was written yet
    assert_int_equal(vb_pcapng_end(&w), -ENOSPC);
    int fd = open_file();
    w.fd = fd;
    vb_pcapng_interface(&w, "udp", NULL, 0);
    assert_int_equal(vb_pcapng_end(&w), -ENOSPC);
    size_t len;
    free(read_file(fd, &len));
    assert_int_equal(len, 0);
    vb_pcapng_begin(&w, -1, NULL);
    assert_int_equal(vb_pcapng_end(&w), -EBADF);
    close(full);
}

// A pipe that takes less than it is given: what it took is the beginning of the file.
static void test_a_full_pipe_is_an_error(void **state)
{
    (void)state;
    static struct vb_pcapng w;
    static uint8_t data[VB_PCAPNG_BUFFER], got[2 * VB_PCAPNG_BUFFER];
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    vb_pcapng_begin(&w, ends[1], NULL);
    vb_pcapng_interface(&w, NULL, NULL, 0);
    vb_pcapng_packet(&w, &(struct vb_pcapng_packet){
                             .bytes = data, .len = sizeof data, .original_len = sizeof data});
    assert_int_equal(vb_pcapng_end(&w), -EAGAIN); // after some of it
    ssize_t n = read(ends[0], got, sizeof got);
    assert_true(n >= 4096 && n < (ssize_t)sizeof data);
    assert_memory_equal(got, bare_section, sizeof bare_section);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_block_is_as_the_format_says),
        cmocka_unit_test(test_absent_texts_leave_no_options),
        cmocka_unit_test(test_packets_of_all_lengths_are_padded),
        cmocka_unit_test(test_texts_are_cut_between_characters),
        cmocka_unit_test(test_a_text_fills_an_option_at_most),
        cmocka_unit_test(test_the_first_error_sticks),
        cmocka_unit_test(test_a_full_pipe_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
