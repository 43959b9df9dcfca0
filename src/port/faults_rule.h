// SPDX-License-Identifier: Apache-2.0
// A fault rule as the parser leaves it, and the words that parser and printer share.
#ifndef VB_PORT_FAULTS_RULE_H
#define VB_PORT_FAULTS_RULE_H

#include "base/prng.h"
#include "port/faults.h"

enum fault_action {
    FAULT_DROP,
    FAULT_DUP,
    FAULT_CORRUPT,
    FAULT_REORDER,
    FAULT_DELAY,
    FAULT_MARK,
    FAULT_WC,
    FAULT_QP_ERROR,
    FAULT_REG_MR,
    FAULT_ACTIONS
};

enum {
    FAULT_ALWAYS_PPM = 1000000,
    FAULT_HOLD_LO = 1, // defaults of reorder
    FAULT_HOLD_HI = 4,
    FAULT_HOLD_MAX = 64,
    FAULT_HOLD_NS = 1000000,
    FAULT_LIST = 8, // alternatives in one condition
    FAULT_QPN_MAX = 0xffffff,
    FAULT_OP_CLASS = 256, // items of op= from here on are classes, below it opcodes
    FAULT_WR_KINDS = VB_FAULT_WR_OTHER,
    FAULT_WR_ANY = (1 << (VB_FAULT_WR_OTHER + 1)) - 1,
    FAULT_DIR_BOTH = 1 << VB_FAULT_TX | 1 << VB_FAULT_RX,
};

#define FAULT_BIT(action)   (1u << (action))
#define FAULT_FRAME_ACTIONS (FAULT_BIT(FAULT_WC) - 1u)
#define FAULT_DELAY_MAX_NS  60000000000u

// With first > 0, the matches numbered first to last, from one, of every `period` (0: of all);
// else each match with a probability.
struct fault_trigger {
    uint32_t ppm;
    uint64_t first, last, period;
};

struct fault_range {
    uint32_t lo, hi;
};

struct fault_rule {
    uint32_t actions; // FAULT_BIT()s
    struct fault_trigger trigger[FAULT_ACTIONS];
    // What the actions do.
    uint32_t copies;
    uint32_t hold_lo, hold_hi;
    uint64_t hold_ns;
    uint64_t delay_ns, jitter_ns;
    enum vb_cqe_syndrome syndrome;
    uint32_t wr_kinds; // bits of enum vb_fault_wr
    int error;         // a positive errno
    // Conditions; an empty list matches all.
    uint32_t dirs; // bits of enum vb_fault_dir
    uint32_t qp_count, op_count;
    struct fault_range qp[FAULT_LIST];
    uint16_t op[FAULT_LIST];
    // State. A stream per direction, so that what is sent does not depend on when frames come in.
    struct vb_prng prng[2];
    struct vb_fault_counts counts;
};

struct vb_faults {
    uint64_t seed;
    uint32_t rule_count;
    uint32_t dirs; // of all rules with actions on frames
    struct fault_rule rule[VB_FAULTS_RULES];
};

// Seeds the streams of all rules.
void vb_fault_seed_rules(struct vb_faults *faults, uint64_t seed);

// Words of the language with what they stand for, ended by a NULL name.
struct fault_word {
    const char *name;
    uint32_t value;
};

extern const char *const vb_fault_action_names[FAULT_ACTIONS];
extern const struct fault_word vb_fault_op_words[]; // FAULT_OP_CLASS and above
extern const struct fault_word vb_fault_wr_words[];
extern const struct fault_word vb_fault_syndrome_words[];
extern const struct fault_word vb_fault_errno_words[];

#endif
