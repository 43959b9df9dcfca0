// SPDX-License-Identifier: Apache-2.0
// The coverage table: merging and printing.
#include "sim/coverage.h"

#include "verbena/wqe.h"
#include "wire/opcode.h"
#include "wire/roce.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct row_text {
    const char *group, *what;
};

static const struct row_text texts[VB_COVER_COUNT] = {
#define ROW_TEXT(id, group, what) {group, what},
    VB_COVER_ROWS(ROW_TEXT)
#undef ROW_TEXT
};

static const char *const excuses[VB_EXCUSE_COUNT] = {
#define EXCUSE_TEXT(id, what) what,
    VB_EXCUSES(EXCUSE_TEXT)
#undef EXCUSE_TEXT
};

static const char *const compared[VB_COMPARED_COUNT] = {
#define COMPARED_TEXT(id, what) what,
    VB_COMPARED(COMPARED_TEXT)
#undef COMPARED_TEXT
};

static enum vb_cover_row row_of_rc(uint8_t opcode)
{
    if (opcode >= VB_UC_BASE && opcode <= VB_UC_BASE + VB_RC_WRITE_ONLY_IMM)
        return (enum vb_cover_row)(VB_COVER_OP_UC_SEND_FIRST + (opcode - VB_UC_BASE));
    switch (opcode) {
    case VB_RC_SEND_FIRST: return VB_COVER_OP_SEND_FIRST;
    case VB_RC_SEND_MIDDLE: return VB_COVER_OP_SEND_MIDDLE;
    case VB_RC_SEND_LAST: return VB_COVER_OP_SEND_LAST;
    case VB_RC_SEND_ONLY: return VB_COVER_OP_SEND_ONLY;
    case VB_RC_WRITE_FIRST: return VB_COVER_OP_WRITE_FIRST;
    case VB_RC_WRITE_MIDDLE: return VB_COVER_OP_WRITE_MIDDLE;
    case VB_RC_WRITE_LAST: return VB_COVER_OP_WRITE_LAST;
    case VB_RC_WRITE_ONLY: return VB_COVER_OP_WRITE_ONLY;
    case VB_RC_READ_REQUEST: return VB_COVER_OP_READ_REQUEST;
    case VB_RC_READ_RESP_FIRST: return VB_COVER_OP_READ_FIRST;
    case VB_RC_READ_RESP_MIDDLE: return VB_COVER_OP_READ_MIDDLE;
    case VB_RC_READ_RESP_LAST: return VB_COVER_OP_READ_LAST;
    case VB_RC_READ_RESP_ONLY: return VB_COVER_OP_READ_ONLY;
    case VB_RC_ACK: return VB_COVER_OP_ACK;
    case VB_RC_SEND_LAST_IMM: return VB_COVER_OP_SEND_LAST_IMM;
    case VB_RC_SEND_ONLY_IMM: return VB_COVER_OP_SEND_ONLY_IMM;
    case VB_RC_SEND_LAST_INV: return VB_COVER_OP_SEND_LAST_INV;
    case VB_RC_SEND_ONLY_INV: return VB_COVER_OP_SEND_ONLY_INV;
    case VB_RC_WRITE_LAST_IMM: return VB_COVER_OP_WRITE_LAST_IMM;
    case VB_RC_WRITE_ONLY_IMM: return VB_COVER_OP_WRITE_ONLY_IMM;
    case VB_RC_COMPARE_SWAP: return VB_COVER_OP_COMPARE_SWAP;
    case VB_RC_FETCH_ADD: return VB_COVER_OP_FETCH_ADD;
    case VB_RC_MASKED_COMPARE_SWAP: return VB_COVER_OP_MASKED_SWAP;
    case VB_RC_MASKED_FETCH_ADD: return VB_COVER_OP_MASKED_ADD;
    case VB_RC_ATOMIC_WRITE: return VB_COVER_OP_ATOMIC_WRITE;
    case VB_RC_FLUSH: return VB_COVER_OP_FLUSH;
    case VB_RC_ATOMIC_ACK: return VB_COVER_OP_ATOMIC_ACK;
    case VB_UD_SEND_ONLY: return VB_COVER_OP_UD_SEND_ONLY;
    case VB_UD_SEND_ONLY_IMM: return VB_COVER_OP_UD_SEND_ONLY_IMM;
    default: return VB_COVER_COUNT;
    }
}

// The rows of XRC have the order of RC's.
enum vb_cover_row vb_cover_of_opcode(uint8_t opcode)
{
    if (vb_opcode_table[opcode].transport != VB_TP_XRC)
        return row_of_rc(opcode);
    enum vb_cover_row row = row_of_rc(opcode & 0x1f);
    if (row == VB_COVER_OP_ATOMIC_ACK)
        return VB_COVER_XRC_ATOMIC_ACK;
    return row <= VB_COVER_OP_FETCH_ADD ? VB_COVER_XRC_SEND_FIRST + row - VB_COVER_OP_SEND_FIRST
                                        : VB_COVER_COUNT;
}

static_assert(VB_COVER_XRC_FETCH_ADD - VB_COVER_XRC_SEND_FIRST ==
                  VB_COVER_OP_FETCH_ADD - VB_COVER_OP_SEND_FIRST,
              "the same order");

enum vb_cover_row vb_cover_of_syndrome(uint8_t syndrome, bool receive)
{
    switch (syndrome) {
    case VB_SYN_OK: return receive ? VB_COVER_WC_RECV_OK : VB_COVER_WC_SEND_OK;
    case VB_SYN_FLUSH: return receive ? VB_COVER_WC_RECV_FLUSH : VB_COVER_WC_SEND_FLUSH;
    case VB_SYN_LOCAL_PROT: return receive ? VB_COVER_WC_RECV_PROT : VB_COVER_WC_LOCAL_PROT;
    case VB_SYN_LOCAL_LENGTH: return receive ? VB_COVER_WC_RECV_LENGTH : VB_COVER_WC_SEND_LENGTH;
    case VB_SYN_BIND: return VB_COVER_WC_BIND;
    case VB_SYN_LOCAL_QP_OP: return VB_COVER_WC_LOCAL_QP_OP;
    case VB_SYN_REMOTE_INVAL_REQ: return VB_COVER_WC_REMOTE_INVAL;
    case VB_SYN_REMOTE_ACCESS: return VB_COVER_WC_REMOTE_ACCESS;
    case VB_SYN_REMOTE_OP: return VB_COVER_WC_REMOTE_OP;
    case VB_SYN_RETRY_EXC: return VB_COVER_WC_RETRY_EXC;
    case VB_SYN_RNR_RETRY_EXC: return VB_COVER_WC_RNR_EXC;
    default: return VB_COVER_COUNT;
    }
}

bool vb_cover_legal(enum vb_qp_state from, enum vb_qp_state to)
{
    if (to == VB_QPS_RESET)
        return true;
    if (to == VB_QPS_ERR)
        return from != VB_QPS_RESET;
    switch (from) {
    case VB_QPS_RESET: return to == VB_QPS_INIT;
    case VB_QPS_INIT: return to == VB_QPS_INIT || to == VB_QPS_RTR;
    case VB_QPS_RTR: return to == VB_QPS_RTS;
    case VB_QPS_RTS: return to == VB_QPS_SQD;
    case VB_QPS_SQD: return to == VB_QPS_SQD || to == VB_QPS_RTS;
    case VB_QPS_SQE: return to == VB_QPS_RTS;
    default: return false;
    }
}

void vb_cover_merge(struct vb_coverage *into, const struct vb_coverage *from)
{
    for (int i = 0; i < VB_COVER_COUNT; i++)
        into->row[i] += from->row[i];
    for (int i = 0; i < VB_EXCUSE_COUNT; i++)
        into->excuse[i] += from->excuse[i];
    for (int i = 0; i < VB_COMPARED_COUNT; i++)
        into->compared[i] += from->compared[i];
    into->chains_only |= from->chains_only;
    vb_cmcover_merge(&into->cm, &from->cm);
    for (int a = 0; a < VB_QPS_COUNT; a++) {
        for (int b = 0; b < VB_QPS_COUNT; b++) {
            into->moved[a][b] += from->moved[a][b];
            into->refused[a][b] += from->refused[a][b];
        }
    }
}

static bool is_row_of(const struct vb_coverage *c, int row)
{
    return !c->chains_only || strcmp(texts[row].group, "chain") == 0;
}

// A transition's row: legal ones must have been made, the others refused.
static uint64_t transition_count(const struct vb_coverage *c, int from, int to)
{
    return vb_cover_legal((enum vb_qp_state)from, (enum vb_qp_state)to) ? c->moved[from][to]
                                                                        : c->refused[from][to];
}

uint32_t vb_cover_zero_rows(const struct vb_coverage *c)
{
    uint32_t zero = 0;
    for (int i = 0; i < VB_COVER_COUNT; i++)
        zero += is_row_of(c, i) && c->row[i] == 0;
    for (int a = 0; a < VB_QPS_COUNT && !c->chains_only; a++)
        for (int b = 0; b < VB_QPS_COUNT; b++)
            zero += transition_count(c, a, b) == 0;
    return zero;
}

static void print_row(FILE *out, const char *group, const char *what, uint64_t count)
{
    fprintf(out, "  %-11s %-38s %12" PRIu64 "%s\n", group, what, count,
            count ? "" : "   <- never seen");
}

uint32_t vb_cover_print(const struct vb_coverage *c, FILE *out)
{
    char text[64];

    for (int i = 0; i < VB_COVER_COUNT; i++)
        if (is_row_of(c, i))
            print_row(out, texts[i].group, texts[i].what, c->row[i]);
    for (int a = 0; a < VB_QPS_COUNT && !c->chains_only; a++) {
        for (int b = 0; b < VB_QPS_COUNT; b++) {
            bool legal = vb_cover_legal((enum vb_qp_state)a, (enum vb_qp_state)b);
            snprintf(text, sizeof text, "%s to %s%s", vb_qp_state_name((enum vb_qp_state)a),
                     vb_qp_state_name((enum vb_qp_state)b), legal ? "" : ", refused");
            print_row(out, "transition", text, transition_count(c, a, b));
        }
    }
    for (int i = c->chains_only ? VB_EXCUSE_CHAINS : 0; i < VB_EXCUSE_COUNT; i++)
        fprintf(out, "  %-11s %-50s %12" PRIu64 "\n", "excused", excuses[i], c->excuse[i]);
    return vb_cover_zero_rows(c);
}

uint32_t vb_cover_uncompared(const struct vb_coverage *c)
{
    uint32_t zero = 0;

    for (int i = 0; i < VB_COMPARED_COUNT; i++)
        zero += c->compared[i] == 0;
    return zero;
}

uint32_t vb_cover_print_compared(const struct vb_coverage *c, FILE *out)
{
    for (int i = 0; i < VB_COMPARED_COUNT; i++)
        print_row(out, "compared", compared[i], c->compared[i]);
    return vb_cover_uncompared(c);
}
