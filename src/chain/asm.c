// SPDX-License-Identifier: Apache-2.0
// The assembler: declarations, data of regions, and what makes a program of it all.
#include "chain/asm.h"
#include "base/bits.h"
#include "chain/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- declarations

static bool parse_name(struct vb_assembler *a, const char *what, char name[VB_IMAGE_NAME])
{
    char word[VB_ASM_WORD];

    if (!vb_asm_word(&a->line, word) || strlen(word) >= VB_IMAGE_NAME ||
        (word[0] >= '0' && word[0] <= '9'))
        return vb_asm_fail(
            &a->line, "a %s needs a name: up to 31 letters, digits and _, no digit first", what);
    memcpy(name, word, strlen(word) + 1);
    return true;
}

static bool parse_program(struct vb_assembler *a)
{
    uint8_t bytes[VB_IMAGE_NAME];
    uint32_t len;

    memset(a->image->name, 0, sizeof a->image->name);
    vb_asm_skip(&a->line);
    if (a->line.at == a->line.end || *a->line.at != '"')
        return parse_name(a, "program", a->image->name);
    if (!vb_asm_bytes(&a->line, bytes, VB_IMAGE_NAME - 1, &len))
        return false;
    if (memchr(bytes, 0, len))
        return vb_asm_fail(&a->line, "a program's name has no byte zero");
    memcpy(a->image->name, bytes, len);
    return true;
}

static bool parse_cq(struct vb_assembler *a)
{
    char name[VB_IMAGE_NAME];
    uint32_t entries;

    if (!parse_name(a, "completion queue", name))
        return false;
    vb_asm_take(&a->line, "entries");
    if (!vb_asm_number32(&a->line, "how many entries it has", &entries))
        return false;
    if (!vb_is_pow2(entries))
        return vb_asm_fail(&a->line, "completion queue '%s': %u entries are not a power of two",
                           name, entries);
    int i = vb_image_add_cq(a->image, name, entries);
    if (i == -EINVAL)
        return vb_asm_fail(&a->line, "there is a completion queue '%s' already", name);
    return i >= 0 || vb_asm_fail(&a->line, "out of memory");
}

// One attribute of a queue.
static bool parse_queue_word(struct vb_assembler *a, struct vb_image_queue *q,
                             struct vb_asm_queue *s, const char *word)
{
    struct {
        const char *name;
        uint32_t *value;
        bool *given;
    } const numbers[] = {
        {"blocks", &q->blocks, NULL},
        {"filled", &q->filled, &s->has_filled},
        {"open", &q->open, &s->has_open},
        {"recvs", &q->recvs, NULL},
        {"stride", &q->recv_stride, NULL},
        {"recv_filled", &q->recv_filled, &s->has_recv_filled},
        {"recv_open", &q->recv_open, &s->has_recv_open},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(word, numbers[i].name) != 0)
            continue;
        if (numbers[i].given)
            *numbers[i].given = true;
        return vb_asm_number32(&a->line, word, numbers[i].value);
    }
    if (strcmp(word, "send_cq") == 0)
        return vb_asm_object(a, true, &q->send_cq);
    if (strcmp(word, "recv_cq") == 0)
        return vb_asm_object(a, true, &q->recv_cq);
    if (strcmp(word, "managed_send") == 0)
        return q->managed_send = true;
    if (strcmp(word, "managed_recv") == 0)
        return q->managed_recv = true;
    if (strcmp(word, "checks") == 0)
        return q->wqe_checks = true;
    if (strcmp(word, "be_replies") == 0)
        return q->be_replies = true;
    return vb_asm_fail(
        &a->line,
        "'%s' is nothing of a queue: managed_send managed_recv checks be_replies blocks "
        "send_cq recv_cq open filled recvs stride recv_open recv_filled",
        word);
}

static bool add_queue(struct vb_assembler *a, const struct vb_image_queue *q,
                      const struct vb_asm_queue *s)
{
    if (vb_image_find_queue(a->image, q->name) >= 0)
        return vb_asm_fail(&a->line, "there is a queue '%s' already", q->name);
    struct vb_asm_queue *more = realloc(a->queue, (a->image->queues + 1) * sizeof *more);
    if (!more)
        return vb_asm_fail(&a->line, "out of memory");
    a->queue = more;
    int i = vb_image_add_queue(a->image, q);
    if (i == -EINVAL)
        return vb_asm_fail(&a->line,
                           "queue '%s' is too large: 32768 blocks and receives, stride 256, all "
                           "rings and own regions %d MB",
                           q->name, VB_IMAGE_BYTES >> 20);
    if (i < 0)
        return vb_asm_fail(&a->line, "out of memory");
    more[i] = *s;
    more[i].unit = calloc(q->blocks, sizeof *more[i].unit);
    more[i].recv_used = calloc(q->recvs, sizeof *more[i].recv_used);
    return (more[i].unit && more[i].recv_used) || vb_asm_fail(&a->line, "out of memory");
}

static bool parse_queue(struct vb_assembler *a)
{
    struct vb_image_queue q = {
        .send_cq = UINT32_MAX, .recv_cq = UINT32_MAX, .recv_stride = UINT32_MAX};
    struct vb_asm_queue s = {0};
    char word[VB_ASM_WORD];

    if (!parse_name(a, "queue", q.name))
        return false;
    if (!vb_asm_word(&a->line, word) || (strcmp(word, "loop") != 0 && strcmp(word, "peer") != 0))
        return vb_asm_fail(
            &a->line,
            "queue '%s' is loop (on this server's memory) or peer (to a client), not "
            "'%s'",
            q.name, word);
    q.kind = word[0] == 'l' ? VB_QUEUE_LOOP : VB_QUEUE_PEER;
    while (vb_asm_word(&a->line, word))
        if (!parse_queue_word(a, &q, &s, word))
            return false;
    if (!vb_is_pow2(q.blocks))
        return vb_asm_fail(&a->line, "queue '%s' needs 'blocks' and a power of two", q.name);
    if (q.send_cq == UINT32_MAX)
        return vb_asm_fail(&a->line, "queue '%s' needs 'send_cq' and a completion queue", q.name);
    if (q.recv_cq == UINT32_MAX)
        q.recv_cq = q.send_cq;
    if (q.recv_stride == UINT32_MAX)
        q.recv_stride = q.recvs ? VB_FORM_STRIDE : 0;
    if (q.recvs && (!vb_is_pow2(q.recvs) || !vb_is_pow2(q.recv_stride) || q.recv_stride < 16))
        return vb_asm_fail(&a->line,
                           "queue '%s' needs 'recvs' and 'stride' that are powers of two, a stride "
                           "from 16 to 256",
                           q.name);
    return add_queue(a, &q, &s);
}

static bool parse_region(struct vb_assembler *a)
{
    static const char *const kinds[] = {
        [VB_REGION_OWN] = "own", [VB_REGION_SHARED] = "shared", [VB_REGION_PEER] = "peer"};
    struct vb_image_region r = {0};
    char word[VB_ASM_WORD];
    int kind = 0;

    if (!parse_name(a, "region", r.name))
        return false;
    vb_asm_word(&a->line, word);
    while (kind < 3 && strcmp(word, kinds[kind]) != 0)
        kind++;
    if (kind == 3)
        return vb_asm_fail(&a->line, "region '%s' is own, shared or peer, not '%s'", r.name, word);
    r.kind = (enum vb_region_kind)kind;
    if (!vb_asm_number(&a->line, "the bytes of a region", UINT64_MAX, &r.bytes))
        return false;
    r.writable = vb_asm_take(&a->line, "writable");
    if (vb_image_find_region(a->image, r.name) >= 0)
        return vb_asm_fail(&a->line, "there is a region '%s' already", r.name);
    int i = vb_image_add_region(a->image, &r);
    if (i == -EINVAL)
        return vb_asm_fail(&a->line,
                           "region '%s' is too large: all rings and own regions are %d MB", r.name,
                           VB_IMAGE_BYTES >> 20);
    if (i < 0)
        return vb_asm_fail(&a->line, "out of memory");
    a->section = VB_SECTION_REGION;
    a->index = (uint32_t)i;
    return true;
}

static bool parse_section(struct vb_assembler *a, enum vb_asm_section section)
{
    a->has_last = false;
    a->section = section;
    return vb_asm_object(a, false, &a->index);
}

// ---- data of regions

static void put_word(uint8_t *at, uint32_t bytes, bool little, uint64_t value)
{
    for (uint32_t i = 0; i < bytes; i++)
        at[little ? i : bytes - 1 - i] = (uint8_t)(value >> (8 * i));
}

static bool goes_beyond(struct vb_assembler *a, const struct vb_image_region *r)
{
    return vb_asm_fail(&a->line, "region '%s' has %" PRIu64 " bytes; this goes beyond", r->name,
                       r->bytes);
}

static bool parse_words(struct vb_assembler *a, uint64_t offset, uint32_t bytes, bool little)
{
    const struct vb_image_region *r = &a->image->region[a->index];
    uint64_t value, max = bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * bytes)) - 1;

    do {
        if (!vb_asm_number(&a->line, "a word of this size", max, &value))
            return false;
        if (r->bytes < bytes || offset > r->bytes - bytes)
            return goes_beyond(a, r);
        put_word(r->init + offset, bytes, little, value);
        offset += bytes;
    } while (vb_asm_take(&a->line, ","));
    return true;
}

static bool parse_data(struct vb_assembler *a, uint64_t offset)
{
    const struct vb_image_region *r = &a->image->region[a->index];
    uint32_t len;

    if (offset > r->bytes)
        return goes_beyond(a, r);
    return vb_asm_bytes(&a->line, r->init + offset, (uint32_t)(r->bytes - offset), &len);
}

static const struct {
    const char *name;
    uint32_t bytes;
    bool little;
} words[] = {{"be16", 2, false}, {"be32", 4, false}, {"be64", 8, false}, {"u8", 1, false},
             {"le16", 2, true},  {"le32", 4, true},  {"le64", 8, true}};

static bool parse_region_line(struct vb_assembler *a)
{
    struct vb_spot at = {.kind = VB_IN_DATA, .index = a->index};
    const struct vb_image_region *r = &a->image->region[a->index];
    char word[VB_ASM_WORD];

    if (r->kind != VB_REGION_OWN)
        return vb_asm_fail(&a->line, "region '%s' is not own: its bytes are another's", r->name);
    if (!vb_asm_number(&a->line, "an offset in the region", UINT64_MAX, &at.offset))
        return false;
    if (!vb_asm_take(&a->line, ":"))
        return vb_asm_fail(&a->line,
                           "data is written OFFSET: bytes 0a0b, be64 1, 2 or addr region+8");
    struct vb_asm_line ahead = a->line;
    vb_asm_word(&ahead, word);
    if (vb_asm_take(&a->line, "bytes"))
        return parse_data(a, at.offset);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (vb_asm_take(&a->line, words[i].name))
            return parse_words(a, at.offset, words[i].bytes, words[i].little);
    if (vb_reloc_find(word) < 0)
        return vb_asm_fail(&a->line,
                           "'%s' is no data: bytes, u8, be16 be32 be64, le16 le32 le64, or what is "
                           "filled in: addr key qpn cqn cq_count …",
                           word);
    return vb_asm_reloc(a, at);
}

// ---- lines

static bool is_label(const struct vb_assembler *a)
{
    struct vb_asm_line ahead = a->line;
    char word[VB_ASM_WORD];

    return vb_asm_word(&ahead, word) && vb_asm_take(&ahead, ":");
}

static bool parse_in_section(struct vb_assembler *a)
{
    char rest[VB_ASM_WORD];

    if (a->section == VB_SECTION_CODE)
        return vb_asm_code_line(a);
    if (a->section == VB_SECTION_RECV)
        return vb_asm_recv_line(a);
    if (a->section == VB_SECTION_REGION && vb_asm_is_number(&a->line))
        return parse_region_line(a);
    vb_asm_rest(&a->line, rest);
    return vb_asm_fail(&a->line,
                       "'%s' begins nothing; program, cq, queue, region, code and receives do "
                       "(instructions follow 'code QUEUE')",
                       rest);
}

static bool parse_line(struct vb_assembler *a)
{
    bool ok;

    if (vb_asm_at_end(&a->line))
        return true;
    if (is_label(a))
        ok = parse_in_section(a);
    else if (vb_asm_take(&a->line, "program"))
        ok = parse_program(a);
    else if (vb_asm_take(&a->line, "cq"))
        ok = parse_cq(a);
    else if (vb_asm_take(&a->line, "queue"))
        ok = parse_queue(a);
    else if (vb_asm_take(&a->line, "region"))
        ok = parse_region(a);
    else if (vb_asm_take(&a->line, "code"))
        ok = parse_section(a, VB_SECTION_CODE);
    else if (vb_asm_take(&a->line, "receives"))
        ok = parse_section(a, VB_SECTION_RECV);
    else
        ok = parse_in_section(a);
    if (ok && !vb_asm_at_end(&a->line)) {
        char rest[VB_ASM_WORD];
        vb_asm_rest(&a->line, rest);
        return vb_asm_fail(&a->line, "the line should end before '%s'", rest);
    }
    return ok;
}

// Counts that the text did not give: all that was written is filled, and open unless managed.
static void set_counts(struct vb_assembler *a)
{
    for (uint32_t i = 0; i < a->image->queues; i++) {
        struct vb_image_queue *q = &a->image->queue[i];
        const struct vb_asm_queue *s = &a->queue[i];
        if (!s->has_filled)
            q->filled = s->end;
        if (!s->has_open)
            q->open = q->managed_send ? 0 : q->filled;
        if (!s->has_recv_filled)
            q->recv_filled = s->recv_end;
        if (!s->has_recv_open)
            q->recv_open = q->managed_recv ? 0 : q->recv_filled;
    }
}

static bool assemble(struct vb_assembler *a, const char *text, size_t len)
{
    const char *end = text + len;

    while (vb_asm_next_line(&a->line, &text, end))
        if (!parse_line(a))
            return false;
    set_counts(a);
    if (!vb_asm_resolve(a))
        return false;
    if (a->out_of_memory)
        return vb_asm_fail(&a->line, "out of memory");
    return vb_image_check(a->image, a->line.error);
}

struct vb_image *vb_asm(const char *text, size_t len, char *error)
{
    struct vb_assembler a = {.line = {.error = error}, .image = vb_image_create("")};

    if (!a.image) {
        snprintf(error, VB_IMAGE_TEXT, "out of memory");
        return NULL;
    }
    bool ok = assemble(&a, text, len);
    for (uint32_t i = 0; i < a.image->queues; i++) {
        free(a.queue[i].unit);
        free(a.queue[i].recv_used);
    }
    free(a.queue);
    free(a.fixup);
    if (ok)
        return a.image;
    vb_image_destroy(a.image);
    return NULL;
}
