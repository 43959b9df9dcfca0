// SPDX-License-Identifier: Apache-2.0
// The static checker: what entries find in memory, as far as it can be known without running them.
// A byte is a number or a name: two bytes of the same name are equal, whatever they are. Variables,
// the bytes that some entry writes, begin with names of their own; so what is found holds for every
// value that they may begin with. Programs with one queue only: nobody else writes meanwhile.
#include "chain/check_static.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAMES = 256, // bytes from here on are names
    BYTES_MAX = 1 << 20,
    WINDOW = VB_WQE_MAX_BLOCKS + 1, // blocks ahead that an entry can lead to
    WORD = 8,
    RECORD = 16,
    OPCODE_AT = 3,
    DS_AT = 7,
};

enum reach {
    NEVER, // executed
    FAILS, // it compares, and never swaps
    ACTS
};

struct walk {
    const struct vb_statics *s;
    uint32_t queue;
    struct vb_values *out;
    size_t bytes, ring_bytes;
    size_t *base;            // by region: its first byte; SIZE_MAX: not the program's own
    uint32_t *init;          // as loaded
    uint32_t *copy;          // bytes on their way
    uint32_t *ahead[WINDOW]; // memory as it is when the block is reached; NULL: it is not
    uint32_t name;           // the last one
};

static uint32_t fresh(struct walk *w)
{
    return ++w->name;
}

static void give_up(struct walk *w)
{
    w->out->failed = true;
}

static void lack_memory(struct walk *w)
{
    w->s->out->no_memory = true;
    give_up(w);
}

// ---- places

// SIZE_MAX: not the program's own memory.
static size_t index_of(const struct walk *w, const struct vb_spot *spot, uint64_t behind)
{
    uint64_t at = spot->offset + behind;

    if (spot->kind == VB_IN_SEND)
        return at < w->ring_bytes ? at : SIZE_MAX;
    if (spot->kind != VB_IN_DATA || w->base[spot->index] == SIZE_MAX ||
        at >= w->s->image->region[spot->index].bytes)
        return SIZE_MAX;
    return w->base[spot->index] + at;
}

static uint32_t get(struct walk *w, const uint32_t *m, const struct vb_spot *spot, uint64_t behind)
{
    size_t at = index_of(w, spot, behind);
    return at == SIZE_MAX ? fresh(w) : m[at];
}

static void put(struct walk *w, uint32_t *m, const struct vb_spot *spot, uint64_t behind,
                uint32_t value)
{
    size_t at = index_of(w, spot, behind);
    if (at != SIZE_MAX)
        m[at] = value;
}

static size_t field_at(const struct vb_line *line, enum vb_field field, uint32_t n, uint32_t *len)
{
    int at = vb_code_field(&line->code, field, n, len);

    assert(at >= 0);
    return (size_t)line->block * VB_WQEBB_BYTES + (size_t)at;
}

// Whether a field is as the image has it.
static bool is_kept_in(const struct walk *w, const uint32_t *m, const struct vb_line *line,
                       enum vb_field field, uint32_t n)
{
    uint32_t len;
    size_t at = field_at(line, field, n, &len);
    return memcmp(m + at, w->init + at, len * sizeof *m) == 0;
}

static bool is_kept(const struct walk *w, const uint32_t *m, const struct vb_line *line,
                    enum vb_field field)
{
    return is_kept_in(w, m, line, field, 0);
}

// Anything may have been written to the memory of that key.
static void spoil(struct walk *w, uint32_t *m, const struct vb_ref *key, bool kept)
{
    if (!kept || !key->known || key->to.kind != VB_IN_DATA)
        give_up(w);
    else if (w->base[key->to.index] != SIZE_MAX) // others' memory is not followed, and may be huge
        for (uint64_t i = 0; i < w->s->image->region[key->to.index].bytes; i++)
            put(w, m, &(struct vb_spot){VB_IN_DATA, key->to.index, i}, 0, fresh(w));
}

// ---- copies

static void scatter(struct walk *w, uint32_t *m, const struct vb_line *line)
{
    uint64_t behind = 0;

    for (uint32_t i = 0; i < line->code.num_sge; i++) {
        uint32_t len = line->code.sge[i].len;
        if (line->sge[i].known && is_kept_in(w, m, line, VB_FIELD_ADDR, i) &&
            is_kept_in(w, m, line, VB_FIELD_LEN, i))
            for (uint32_t k = 0; k < len; k++)
                put(w, m, &line->sge[i].to, k, w->copy[behind + k]);
        else
            spoil(w, m, &line->key[i], is_kept_in(w, m, line, VB_FIELD_KEY, i));
        behind += len;
    }
}

static void do_read(struct walk *w, uint32_t *m, const struct vb_line *line)
{
    bool known = line->raddr.known && is_kept(w, m, line, VB_FIELD_RADDR);

    for (uint64_t i = 0; i < vb_list_bytes(&line->code); i++)
        w->copy[i] = known ? get(w, m, &line->raddr.to, i) : fresh(w);
    scatter(w, m, line);
}

static uint64_t gather(struct walk *w, const uint32_t *m, const struct vb_line *line)
{
    uint64_t bytes = 0;
    uint32_t len;

    for (uint32_t i = 0; i < line->code.inline_len; i++)
        w->copy[bytes++] = m[field_at(line, VB_FIELD_DATA, i, &len)];
    for (uint32_t i = 0; i < line->code.num_sge; i++) {
        bool known = line->sge[i].known && is_kept_in(w, m, line, VB_FIELD_ADDR, i);
        for (uint32_t k = 0; k < line->code.sge[i].len; k++)
            w->copy[bytes++] = known ? get(w, m, &line->sge[i].to, k) : fresh(w);
    }
    return bytes;
}

// ---- calculations: records of a big-endian number and a tag

static bool number_of(const uint32_t *bytes, uint64_t *number)
{
    for (uint32_t i = 0; i < WORD; i++) {
        if (bytes[i] >= NAMES)
            return false;
        *number = *number << 8 | bytes[i];
    }
    return true;
}

static uint32_t calc_byte(struct walk *w, uint8_t op, uint32_t a, uint32_t b)
{
    uint32_t zero = op == VB_WQE_CALC_AND ? 0xff : 0; // changes nothing

    if (a < NAMES && b < NAMES)
        return op == VB_WQE_CALC_AND ? (a & b) : op == VB_WQE_CALC_OR ? (a | b) : (a ^ b);
    if (a == b)
        return op == VB_WQE_CALC_XOR ? 0 : a;
    if (a == zero || b == zero)
        return a == zero ? b : a;
    if (op != VB_WQE_CALC_XOR && (a == (zero ^ 0xff) || b == (zero ^ 0xff)))
        return zero ^ 0xff;
    return fresh(w);
}

// The greater or the lesser one, if that can be said. 0: no; 1: the first; 2: the second.
static int pick(uint8_t op, const uint32_t *a, const uint32_t *b)
{
    const uint64_t least = op == VB_WQE_CALC_MAX ? 0 : UINT64_MAX;
    uint64_t x = 0, y = 0;
    bool x_known = number_of(a, &x), y_known = number_of(b, &y);

    if (memcmp(a, b, WORD * sizeof *a) == 0)
        return 1;
    if (x_known && y_known)
        return (op == VB_WQE_CALC_MAX ? y > x : y < x) ? 2 : 1;
    if ((y_known && y == least) || (x_known && x == ~least))
        return 1;
    return (x_known && x == least) || (y_known && y == ~least) ? 2 : 0;
}

static void calc_record(struct walk *w, uint8_t op, uint32_t *sum, const uint32_t *record)
{
    uint64_t x = 0, y = 0;

    switch (op) {
    case VB_WQE_CALC_AND:
    case VB_WQE_CALC_OR:
    case VB_WQE_CALC_XOR:
        for (uint32_t i = 0; i < WORD; i++)
            sum[i] = calc_byte(w, op, sum[i], record[i]);
        return;
    case VB_WQE_CALC_MAX:
    case VB_WQE_CALC_MIN: {
        int which = pick(op, sum, record);
        for (uint32_t i = 0; i < RECORD; i++)
            sum[i] = i < WORD && which == 1 ? sum[i] : i < WORD && which ? record[i] : fresh(w);
        return;
    }
    default: break;
    }
    bool known = number_of(sum, &x) && number_of(record, &y) && op == VB_WQE_CALC_ADD;
    for (uint32_t i = 0; i < WORD; i++)
        sum[i] = known ? (uint8_t)((x + y) >> 8 * (WORD - 1 - i)) : fresh(w);
}

static void do_write(struct walk *w, uint32_t *m, const struct vb_line *line)
{
    uint64_t bytes = gather(w, m, line);
    bool known = line->raddr.known && is_kept(w, m, line, VB_FIELD_RADDR);

    if (w->s->image->queue[w->queue].kind != VB_QUEUE_LOOP)
        return;
    for (uint32_t i = 0; i < line->code.num_sge; i++)
        known &= is_kept_in(w, m, line, VB_FIELD_LEN, i);
    if (!known) {
        spoil(w, m, &line->rkey, is_kept(w, m, line, VB_FIELD_RKEY));
        return;
    }
    if (line->code.opmod) {
        for (uint64_t i = RECORD; i + RECORD <= bytes; i += RECORD)
            calc_record(w, line->code.opmod, w->copy, w->copy + i);
        bytes = bytes < RECORD ? bytes : RECORD;
    }
    for (uint64_t i = 0; i < bytes; i++)
        put(w, m, &line->raddr.to, i, w->copy[i]);
}

// ---- atomics

// Compares eight bytes, which the entry has in the other order, and swaps them if they are equal
// or could be. False: they are not.
static bool compare_swap(struct walk *w, uint32_t *m, const struct vb_line *line)
{
    uint32_t len, equal = 0;
    size_t compare = field_at(line, VB_FIELD_COMPARE, 0, &len);
    size_t swap = field_at(line, VB_FIELD_SWAP, 0, &len);

    for (uint32_t i = 0; i < WORD; i++) {
        uint32_t is = get(w, m, &line->raddr.to, i), want = m[compare + WORD - 1 - i];
        if (is < NAMES && want < NAMES && is != want)
            return false;
        equal += is == want;
    }
    for (uint32_t i = 0; i < WORD; i++) {
        uint32_t old = get(w, m, &line->raddr.to, i), new = m[swap + WORD - 1 - i];
        put(w, m, &line->raddr.to, i, equal == WORD || old == new ? new : fresh(w));
    }
    return true;
}

static enum reach do_atomic(struct walk *w, uint32_t *m, const struct vb_line *line)
{
    bool known = line->raddr.known && is_kept(w, m, line, VB_FIELD_RADDR), acts = true;

    if (!known)
        spoil(w, m, &line->rkey, is_kept(w, m, line, VB_FIELD_RKEY));
    else if (line->code.opcode == VB_WQE_ATOMIC_CS)
        acts = compare_swap(w, m, line);
    else
        for (uint32_t i = 0; i < WORD; i++)
            put(w, m, &line->raddr.to, i, fresh(w));
    for (uint64_t i = 0; i < vb_list_bytes(&line->code); i++)
        w->copy[i] = fresh(w);
    scatter(w, m, line);
    return acts ? ACTS : FAILS;
}

// ---- entries

static enum reach execute(struct walk *w, uint32_t *m, const struct vb_line *line)
{
    if (vb_is_atomic(line))
        return do_atomic(w, m, line);
    if (line->code.opcode == VB_WQE_READ)
        do_read(w, m, line);
    else if (line->code.opcode == VB_WQE_WRITE || line->code.opcode == VB_WQE_WRITE_IMM)
        do_write(w, m, line);
    return ACTS;
}

// The entry at a block as it can be told; NULL: it cannot.
static const struct vb_line *entry_at(const struct walk *w, const uint32_t *m, uint32_t block)
{
    const struct vb_line *line = vb_listing_line(w->s->listing, w->queue, block);
    const uint32_t *at = m + (size_t)block * VB_WQEBB_BYTES;

    if (!line || line->block != block || at[OPCODE_AT] != line->code.opcode)
        return NULL;
    if (line->code.opcode == VB_WQE_NOP)
        return line;
    return !line->wrong && vb_list_bytes(&line->code) <= BYTES_MAX &&
                   is_kept(w, m, line, VB_FIELD_DS) && is_kept(w, m, line, VB_FIELD_OPMOD)
               ? line
               : NULL;
}

// How many blocks further it can go on, one bit each.
static uint32_t steps_of(const struct walk *w, const uint32_t *m, const struct vb_line *line)
{
    uint32_t ds = m[(size_t)line->block * VB_WQEBB_BYTES + DS_AT];

    if (ds >= NAMES) // of a NOP
        return w->s->length[w->queue][line->block];
    return 1u << ((ds & VB_WQE_DS_MASK) + 3) / 4;
}

// The block can be reached with memory like this, too. Takes it.
static void reach(struct walk *w, uint32_t block, uint32_t *m)
{
    uint32_t **ahead = &w->ahead[block % WINDOW];

    if (!*ahead) {
        *ahead = m;
        return;
    }
    for (size_t i = 0; i < w->bytes; i++)
        if ((*ahead)[i] != m[i])
            (*ahead)[i] = fresh(w);
    free(m);
}

static void go_on(struct walk *w, uint32_t block, uint32_t *m, uint32_t steps)
{
    for (uint32_t n = 1; n < WINDOW; n++) {
        if (!(steps >> n & 1))
            continue;
        uint32_t *more = malloc(w->bytes * sizeof *more);
        if (!more) {
            lack_memory(w);
            break;
        }
        memcpy(more, m, w->bytes * sizeof *more);
        reach(w, block + n, more);
    }
    free(m);
}

static void walk_queue(struct walk *w)
{
    for (uint32_t b = 0; b < w->s->image->queue[w->queue].filled && !w->out->failed; b++) {
        uint32_t *m = w->ahead[b % WINDOW];
        w->ahead[b % WINDOW] = NULL;
        if (!m)
            continue;
        const struct vb_line *line = entry_at(w, m, b);
        uint32_t steps = line ? steps_of(w, m, line) : 0;
        if (steps <= 1) {
            give_up(w);
            free(m);
            break;
        }
        w->out->acts[b] = (uint8_t)execute(w, m, line);
        if (steps & (steps - 1))
            go_on(w, b, m, steps);
        else
            reach(w, b + (uint32_t)__builtin_ctz(steps), m);
    }
}

// ---- memory as it is loaded

static void name_relocations(struct walk *w)
{
    for (uint32_t i = 0; i < w->s->image->relocs; i++) {
        const struct vb_reloc *r = &w->s->image->reloc[i];
        for (uint32_t k = 0; k < vb_reloc_bytes(r->kind); k++) {
            size_t at = index_of(w, &r->at, k);
            if (at != SIZE_MAX)
                w->init[at] = fresh(w);
        }
    }
}

static void load(struct walk *w, uint32_t *m)
{
    const struct vb_image *image = w->s->image;

    for (size_t i = 0; i < w->ring_bytes; i++)
        w->init[i] = image->queue[w->queue].code[i];
    for (uint32_t r = 0; r < image->regions; r++)
        for (size_t i = 0; w->base[r] != SIZE_MAX && i < image->region[r].bytes; i++)
            w->init[w->base[r] + i] = image->region[r].init[i];
    name_relocations(w);
    memcpy(m, w->init, w->bytes * sizeof *m);
    for (size_t i = 0; w->s->circular[w->queue] && i < w->ring_bytes; i++)
        if (w->s->patch[w->queue][i])
            m[i] = fresh(w);
    for (uint32_t r = 0; r < image->regions; r++)
        for (size_t i = 0; w->base[r] != SIZE_MAX && i < image->region[r].bytes; i++)
            if (w->s->stored[r][i])
                m[w->base[r] + i] = fresh(w);
}

static bool is_alone(const struct vb_statics *s, uint32_t queue)
{
    for (uint32_t i = 0; i < s->image->queues; i++)
        if ((i != queue && s->image->queue[i].filled) || s->image->queue[i].recv_filled)
            return false;
    return !s->wild;
}

static bool make_room(struct walk *w)
{
    w->init = malloc(w->bytes * sizeof *w->init);
    w->ahead[0] = malloc(w->bytes * sizeof *w->init);
    w->copy = malloc(BYTES_MAX * sizeof *w->copy);
    return w->base && w->init && w->ahead[0] && w->copy;
}

static void find(const struct vb_statics *s, uint32_t queue, struct vb_values *out)
{
    struct walk w = {.s = s, .queue = queue, .out = out, .name = NAMES};

    w.ring_bytes = w.bytes = (size_t)s->image->queue[queue].blocks * VB_WQEBB_BYTES;
    w.base = calloc(s->image->regions, sizeof *w.base);
    for (uint32_t i = 0; w.base && i < s->image->regions; i++) {
        w.base[i] = s->stored[i] ? w.bytes : SIZE_MAX;
        w.bytes += s->stored[i] ? s->image->region[i].bytes : 0;
    }
    if (w.bytes > BYTES_MAX) {
        give_up(&w);
    } else if (make_room(&w)) {
        load(&w, w.ahead[0]);
        walk_queue(&w);
    } else {
        lack_memory(&w);
    }
    for (uint32_t i = 0; i < WINDOW; i++)
        free(w.ahead[i]);
    free(w.base);
    free(w.init);
    free(w.copy);
}

// ---- answers

bool vb_is_idle(struct vb_statics *s, const struct vb_line *line, bool remote)
{
    struct vb_values *v = &s->value[line->queue];

    if (!v->acts && !v->failed) {
        v->acts = calloc(s->image->queue[line->queue].blocks, 1);
        s->out->no_memory |= !v->acts;
        v->failed = !v->acts || !is_alone(s, line->queue);
        if (!v->failed)
            find(s, line->queue, v);
    }
    return !v->failed &&
           (v->acts[line->block] == NEVER || (remote && v->acts[line->block] == FAILS));
}

void vb_values_free(struct vb_statics *s)
{
    for (uint32_t i = 0; s->value && i < s->image->queues; i++)
        free(s->value[i].acts);
    free(s->value);
}
