// SPDX-License-Identifier: Apache-2.0
// The judgement: which rules an event meets, and what they do to it.
#include "port/faults.h"

#include "base/bytes.h"
#include "port/faults_rule.h"
#include "wire/opcode.h"
#include "wire/roce.h"

#include <errno.h>
#include <stdlib.h>

// Kinds of frame that op= names, in the order of vb_fault_op_words.
enum op_class {
    CLASS_SEND = FAULT_OP_CLASS,
    CLASS_WRITE,
    CLASS_READ,
    CLASS_READ_RESP,
    CLASS_ACK,
    CLASS_NAK,
    CLASS_RNR,
    CLASS_ATOMIC,
    CLASS_ATOMIC_ACK,
    CLASS_IMM,
    CLASS_INV,
};

const char *const vb_fault_action_names[FAULT_ACTIONS] = {
    [FAULT_DROP] = "drop",         [FAULT_DUP] = "dup",         [FAULT_CORRUPT] = "corrupt",
    [FAULT_DELAY] = "delay",       [FAULT_REORDER] = "reorder", [FAULT_WC] = "wc",
    [FAULT_QP_ERROR] = "qp_error", [FAULT_REG_MR] = "reg_mr",   [FAULT_MARK] = "mark",
};

const struct fault_word vb_fault_op_words[] = {
    {"send", CLASS_SEND},
    {"write", CLASS_WRITE},
    {"read", CLASS_READ},
    {"read_resp", CLASS_READ_RESP},
    {"ack", CLASS_ACK},
    {"nak", CLASS_NAK},
    {"rnr", CLASS_RNR},
    {"atomic", CLASS_ATOMIC},
    {"atomic_ack", CLASS_ATOMIC_ACK},
    {"imm", CLASS_IMM},
    {"inv", CLASS_INV},
    {NULL, 0},
};

const struct fault_word vb_fault_wr_words[] = {
    {"send", VB_FAULT_WR_SEND},     {"write", VB_FAULT_WR_WRITE}, {"read", VB_FAULT_WR_READ},
    {"atomic", VB_FAULT_WR_ATOMIC}, {"recv", VB_FAULT_WR_RECV},   {NULL, 0},
};

// The names of enum ibv_wc_status, without what all of them share.
const struct fault_word vb_fault_syndrome_words[] = {
    {"loc_len", VB_SYN_LOCAL_LENGTH},
    {"loc_qp_op", VB_SYN_LOCAL_QP_OP},
    {"loc_prot", VB_SYN_LOCAL_PROT},
    {"wr_flush", VB_SYN_FLUSH},
    {"bad_resp", VB_SYN_BAD_RESP},
    {"loc_access", VB_SYN_LOCAL_ACCESS},
    {"rem_inv_req", VB_SYN_REMOTE_INVAL_REQ},
    {"rem_access", VB_SYN_REMOTE_ACCESS},
    {"rem_op", VB_SYN_REMOTE_OP},
    {"retry_exc", VB_SYN_RETRY_EXC},
    {"rnr_retry_exc", VB_SYN_RNR_RETRY_EXC},
    {NULL, 0},
};

const struct fault_word vb_fault_errno_words[] = {
    {"ENOMEM", ENOMEM}, {"EINVAL", EINVAL},         {"EPERM", EPERM},
    {"EACCES", EACCES}, {"EAGAIN", EAGAIN},         {"EFAULT", EFAULT},
    {"ENOSPC", ENOSPC}, {"EOPNOTSUPP", EOPNOTSUPP}, {NULL, 0},
};

void vb_faults_free(struct vb_faults *faults)
{
    free(faults);
}

// Each rule and direction draws from a stream of its own: a rule added behind changes no other.
void vb_fault_seed_rules(struct vb_faults *faults, uint64_t seed)
{
    struct vb_prng seeds = {.state = seed};
    for (uint32_t i = 0; i < faults->rule_count; i++)
        for (unsigned dir = 0; dir < 2; dir++)
            faults->rule[i].prng[dir].state = vb_prng_next(&seeds);
}

void vb_faults_seed_unit(struct vb_faults *faults, uint32_t unit)
{
    // Two draws apart, or a neighbouring seed would be another unit's.
    struct vb_prng of_seed = {.state = faults->seed};
    struct vb_prng of_unit = {.state = vb_prng_next(&of_seed) + unit};
    vb_fault_seed_rules(faults, unit == 0 ? faults->seed : vb_prng_next(&of_unit));
}

bool vb_faults_touch(const struct vb_faults *faults, enum vb_fault_dir dir)
{
    return faults->dirs >> dir & 1;
}

uint32_t vb_faults_rules(const struct vb_faults *faults)
{
    return faults->rule_count;
}

struct vb_fault_counts vb_faults_counts(const struct vb_faults *faults, uint32_t i)
{
    return i < faults->rule_count ? faults->rule[i].counts : (struct vb_fault_counts){0};
}

// ---- conditions

static bool is_aeth_kind(const uint8_t *head, uint32_t len, enum vb_aeth_kind kind)
{
    return len > VB_BTH_BYTES && vb_aeth_kind_of(head[VB_BTH_BYTES]) == (unsigned)kind;
}

static bool has_class(const uint8_t *head, uint32_t len, unsigned class)
{
    uint32_t facts = vb_opcode_table[head[0]].facts;
    bool ack = facts & VB_OP_ACK, request = facts & VB_OP_REQUEST;
    switch (class) {
    case CLASS_SEND: return facts & VB_OP_SEND;
    case CLASS_WRITE: return facts & VB_OP_WRITE;
    case CLASS_READ: return (facts & VB_OP_READ) && request;
    case CLASS_READ_RESP: return (facts & VB_OP_READ) && !request;
    case CLASS_ACK: return ack && is_aeth_kind(head, len, VB_AETH_ACK);
    case CLASS_NAK: return ack && is_aeth_kind(head, len, VB_AETH_NAK);
    case CLASS_RNR: return ack && is_aeth_kind(head, len, VB_AETH_RNR);
    case CLASS_ATOMIC: return (facts & VB_OP_ATOMIC) && request;
    case CLASS_ATOMIC_ACK: return (facts & VB_OP_ATOMIC) && !request;
    case CLASS_IMM: return facts & VB_OP_IMM;
    case CLASS_INV: return facts & VB_OP_IETH;
    default: return false;
    }
}

static bool op_matches(const struct fault_rule *r, const uint8_t *head, uint32_t len)
{
    for (uint32_t i = 0; i < r->op_count; i++)
        if (r->op[i] < FAULT_OP_CLASS ? head[0] == r->op[i] : has_class(head, len, r->op[i]))
            return true;
    return r->op_count == 0;
}

static bool qp_matches(const struct fault_rule *r, uint32_t qpn)
{
    for (uint32_t i = 0; i < r->qp_count; i++)
        if (qpn >= r->qp[i].lo && qpn <= r->qp[i].hi)
            return true;
    return r->qp_count == 0;
}

static bool frame_matches(const struct fault_rule *r, enum vb_fault_dir dir, const uint8_t *head,
                          uint32_t len)
{
    if (!(r->actions & FAULT_FRAME_ACTIONS) || !(r->dirs >> dir & 1))
        return false;
    if (r->qp_count == 0 && r->op_count == 0)
        return true;
    return len >= VB_BTH_BYTES && qp_matches(r, vb_get_be24(head + 5)) && op_matches(r, head, len);
}

// ---- triggers

// Whether the rule's newest match sets the action off.
static bool fires(struct fault_rule *r, enum fault_action action, struct vb_prng *prng)
{
    const struct fault_trigger *t = &r->trigger[action];
    if (!(r->actions & FAULT_BIT(action)))
        return false;
    bool hit;
    if (t->first == 0) {
        hit = vb_prng_chance(prng, t->ppm);
    } else {
        uint64_t n = r->counts.matched;
        if (t->period)
            n = (n - 1) % t->period + 1;
        hit = n >= t->first && n <= t->last;
    }
    r->counts.fired += hit;
    return hit;
}

static void apply(struct fault_rule *r, enum vb_fault_dir dir, struct vb_fault_fate *fate)
{
    struct vb_prng *prng = &r->prng[dir];

    if (fires(r, FAULT_DROP, prng))
        fate->drop = true;
    if (fires(r, FAULT_DUP, prng))
        fate->copies += r->copies;
    if (fires(r, FAULT_CORRUPT, prng))
        fate->corrupt = true;
    if (fires(r, FAULT_REORDER, prng)) {
        uint32_t frames = (uint32_t)vb_prng_range(prng, r->hold_lo, r->hold_hi);
        if (frames > fate->hold_frames)
            fate->hold_frames = frames;
        if (r->hold_ns > fate->hold_ns)
            fate->hold_ns = r->hold_ns;
    }
    if (fires(r, FAULT_DELAY, prng))
        fate->delay_ns +=
            vb_prng_range(prng, r->delay_ns - r->jitter_ns, r->delay_ns + r->jitter_ns);
    if (dir == VB_FAULT_RX && fires(r, FAULT_MARK, prng))
        fate->mark = true;
}

void vb_faults_judge(struct vb_faults *faults, enum vb_fault_dir dir, const uint8_t *head,
                     uint32_t len, struct vb_fault_fate *fate)
{
    *fate = (struct vb_fault_fate){0};
    for (uint32_t i = 0; i < faults->rule_count; i++) {
        struct fault_rule *r = &faults->rule[i];
        if (!frame_matches(r, dir, head, len))
            continue;
        r->counts.matched++;
        apply(r, dir, fate);
    }
    if (fate->copies > VB_FAULTS_COPIES)
        fate->copies = VB_FAULTS_COPIES;
}

// ---- forced errors: every rule counts the event, the first that fires decides

enum vb_cqe_syndrome vb_faults_completion(struct vb_faults *faults, uint32_t qpn,
                                          enum vb_fault_wr wr)
{
    enum vb_cqe_syndrome forced = VB_SYN_OK;
    for (uint32_t i = 0; i < faults->rule_count; i++) {
        struct fault_rule *r = &faults->rule[i];
        if (!(r->actions & FAULT_BIT(FAULT_WC)) || !(r->wr_kinds >> wr & 1) || !qp_matches(r, qpn))
            continue;
        r->counts.matched++;
        if (fires(r, FAULT_WC, &r->prng[0]) && forced == VB_SYN_OK)
            forced = r->syndrome;
    }
    return forced;
}

bool vb_faults_qp(struct vb_faults *faults, uint32_t qpn)
{
    bool forced = false;
    for (uint32_t i = 0; i < faults->rule_count; i++) {
        struct fault_rule *r = &faults->rule[i];
        if (!(r->actions & FAULT_BIT(FAULT_QP_ERROR)) || !qp_matches(r, qpn))
            continue;
        r->counts.matched++;
        forced |= fires(r, FAULT_QP_ERROR, &r->prng[0]);
    }
    return forced;
}

int vb_faults_register(struct vb_faults *faults)
{
    int forced = 0;
    for (uint32_t i = 0; i < faults->rule_count; i++) {
        struct fault_rule *r = &faults->rule[i];
        if (!(r->actions & FAULT_BIT(FAULT_REG_MR)))
            continue;
        r->counts.matched++;
        if (fires(r, FAULT_REG_MR, &r->prng[0]) && forced == 0)
            forced = -r->error;
    }
    return forced;
}
