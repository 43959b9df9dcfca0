// SPDX-License-Identifier: Apache-2.0
// What the simulator has seen happen, as a table of counts. A row that stays zero is a case that no
// seed has tried.
#ifndef VB_SIM_COVERAGE_H
#define VB_SIM_COVERAGE_H

#include "nic/dev.h"
#include "sim/cm_cover.h"
#include "sim/excuse.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// X(identifier, group, what)
#define VB_COVER_ROWS(X)                                                     \
    X(OP_SEND_FIRST, "opcode", "SEND First")                                 \
    X(OP_SEND_MIDDLE, "opcode", "SEND Middle")                               \
    X(OP_SEND_LAST, "opcode", "SEND Last")                                   \
    X(OP_SEND_ONLY, "opcode", "SEND Only")                                   \
    X(OP_SEND_LAST_IMM, "opcode", "SEND Last with Immediate")                \
    X(OP_SEND_ONLY_IMM, "opcode", "SEND Only with Immediate")                \
    X(OP_SEND_LAST_INV, "opcode", "SEND Last with Invalidate")               \
    X(OP_SEND_ONLY_INV, "opcode", "SEND Only with Invalidate")               \
    X(OP_WRITE_FIRST, "opcode", "WRITE First")                               \
    X(OP_WRITE_MIDDLE, "opcode", "WRITE Middle")                             \
    X(OP_WRITE_LAST, "opcode", "WRITE Last")                                 \
    X(OP_WRITE_ONLY, "opcode", "WRITE Only")                                 \
    X(OP_WRITE_LAST_IMM, "opcode", "WRITE Last with Immediate")              \
    X(OP_WRITE_ONLY_IMM, "opcode", "WRITE Only with Immediate")              \
    X(OP_READ_REQUEST, "opcode", "READ Request")                             \
    X(OP_READ_FIRST, "opcode", "READ Response First")                        \
    X(OP_READ_MIDDLE, "opcode", "READ Response Middle")                      \
    X(OP_READ_LAST, "opcode", "READ Response Last")                          \
    X(OP_READ_ONLY, "opcode", "READ Response Only")                          \
    X(OP_ACK, "opcode", "Acknowledge")                                       \
    X(OP_COMPARE_SWAP, "opcode", "CmpSwap")                                  \
    X(OP_FETCH_ADD, "opcode", "FetchAdd")                                    \
    X(OP_MASKED_SWAP, "opcode", "masked CmpSwap")                            \
    X(OP_MASKED_ADD, "opcode", "masked FetchAdd")                            \
    X(OP_ATOMIC_WRITE, "opcode", "ATOMIC WRITE")                             \
    X(OP_FLUSH, "opcode", "FLUSH")                                           \
    X(OP_ATOMIC_ACK, "opcode", "ATOMIC Acknowledge")                         \
    X(ATOMIC_SWAPPED, "atomic", "swapped")                                   \
    X(ATOMIC_UNEQUAL, "atomic", "not swapped")                               \
    X(ATOMIC_NARROW, "atomic", "of four bytes")                              \
    X(ATOMIC_COUNTED, "atomic", "addition of one to a counter")              \
    X(WORK_PERSISTENT, "work", "FLUSH to persistence")                       \
    X(WORK_WHOLE_FLUSH, "work", "FLUSH of a whole region")                   \
    X(NAK_SEQUENCE, "answer", "NAK sequence error")                          \
    X(NAK_INVALID, "answer", "NAK invalid request")                          \
    X(NAK_ACCESS, "answer", "NAK remote access error")                       \
    X(NAK_OPERATION, "answer", "NAK remote operational error")               \
    X(NAK_RNR, "answer", "RNR NAK")                                          \
    X(NAK_UNALIGNED, "answer", "NAK invalid request: unaligned atomic")      \
    X(NAK_TOO_MANY, "answer", "NAK invalid request: too many at once")       \
    X(RNR_WRITE, "answer", "RNR NAK for a WRITE with immediate")             \
    X(CREDIT_SOME, "credit", "told")                                         \
    X(CREDIT_ZERO, "credit", "told: no receive waits")                       \
    X(CREDIT_NONE, "credit", "told: no information")                         \
    X(CREDIT_UPDATE, "credit", "told unasked, when receives were posted")    \
    X(CREDIT_LIMITED, "credit", "requester waits for a receive")             \
    X(CREDIT_PROBE, "credit", "sent without, to ask")                        \
    X(DUP_SEND, "duplicate", "SEND packet again")                            \
    X(DUP_WRITE, "duplicate", "WRITE packet again")                          \
    X(DUP_READ_FULL, "duplicate", "READ again, whole")                       \
    X(DUP_READ_PART, "duplicate", "READ again, from the middle")             \
    X(DUP_ATOMIC, "duplicate", "atomic again, answered again")               \
    X(DUP_DONE, "duplicate", "FLUSH or ATOMIC WRITE again, answered")        \
    X(DUP_SINGLE_EARLY, "duplicate", "one of them before its answer left")   \
    X(DUP_ACK, "duplicate", "acknowledgement of nothing new")                \
    X(DUP_RESPONSE, "duplicate", "READ response again")                      \
    X(DUP_NAK, "duplicate", "late NAK or RNR NAK")                           \
    X(DUP_FORMER_LIFE, "duplicate", "packet of a former connection")         \
    X(GHOST_ACK, "duplicate", "acknowledgement of the unsent")               \
    X(RX_APPLIED, "verdict", "applied")                                      \
    X(RX_DUPLICATE, "verdict", "duplicate")                                  \
    X(RX_AHEAD, "verdict", "ahead")                                          \
    X(RX_RNR, "verdict", "receiver not ready")                               \
    X(RX_REFUSED, "verdict", "refused")                                      \
    X(RX_STALE, "verdict", "stale")                                          \
    X(RX_GAP, "verdict", "gap")                                              \
    X(RX_RETRY, "verdict", "retry")                                          \
    X(RX_FATAL, "verdict", "fatal")                                          \
    X(RX_MALFORMED, "verdict", "malformed")                                  \
    X(RX_STRANGER, "verdict", "stranger")                                    \
    X(UNASKED, "recovery", "a request sent without asking for an ACK")       \
    X(ASKED_AGAIN, "recovery", "newest packet repeated, to ask for an ACK")  \
    X(SETTLED, "recovery", "acknowledged before an end, unasked")            \
    X(TIMEOUT, "recovery", "acknowledgement timed out")                      \
    X(RNR_WAIT, "recovery", "RNR wait ended")                                \
    X(RESEND, "recovery", "request sent again")                              \
    X(RESUME_READ, "recovery", "READ resumed in the middle")                 \
    X(WC_SEND_OK, "completion", "request done")                              \
    X(WC_RECV_OK, "completion", "receive done")                              \
    X(WC_LOCAL_QP_OP, "completion", "local QP operation error")              \
    X(WC_LOCAL_PROT, "completion", "local protection error")                 \
    X(WC_BIND, "completion", "binding or invalidation refused")              \
    X(WC_SEND_FLUSH, "completion", "request flushed")                        \
    X(WC_REMOTE_INVAL, "completion", "remote invalid request")               \
    X(WC_REMOTE_ACCESS, "completion", "remote access error")                 \
    X(WC_REMOTE_OP, "completion", "remote operational error")                \
    X(WC_RETRY_EXC, "completion", "retries exceeded")                        \
    X(WC_RNR_EXC, "completion", "RNR retries exceeded")                      \
    X(WC_RECV_LENGTH, "completion", "receive: local length error")           \
    X(WC_RECV_PROT, "completion", "receive: local protection error")         \
    X(WC_RECV_FLUSH, "completion", "receive flushed")                        \
    X(WRAP_PSN, "wrap", "PSN past 2^24")                                     \
    X(WRAP_SQ, "wrap", "send queue counter past 2^16")                       \
    X(WRAP_RQ, "wrap", "receive queue counter past 2^16")                    \
    X(WRAP_CQ, "wrap", "completion queue counter past 2^24")                 \
    X(ICRC_EXACT, "icrc", "as guessed")                                      \
    X(ICRC_SOLVED, "icrc", "solved for the identification")                  \
    X(ICRC_BAD, "icrc", "wrong, dropped")                                    \
    X(LIMIT_WINDOW, "limit", "window full")                                  \
    X(LIMIT_PEER, "limit", "window full of others' packets")                 \
    X(LIMIT_READS, "limit", "READs in flight at their limit")                \
    X(LIMIT_FENCE, "limit", "fence waits for a READ")                        \
    X(LIMIT_DRAINED, "limit", "requests wait for the end of SQD")            \
    X(LIMIT_TX, "limit", "transmit queue full")                              \
    X(LIMIT_SQ, "limit", "send queue full")                                  \
    X(LIMIT_RQ, "limit", "receive queue full")                               \
    X(WORK_ZERO, "work", "zero bytes")                                       \
    X(WORK_INLINE, "work", "inline")                                         \
    X(WORK_LISTS, "work", "sixteen scatter entries")                         \
    X(WORK_UNSIGNALED, "work", "unsignaled")                                 \
    X(WORK_SOLICITED, "work", "solicited")                                   \
    X(WORK_NOP, "work", "no operation")                                      \
    X(WORK_LONG_READ, "work", "READ of more than 64 KB")                     \
    X(WORK_LONG_WRITE, "work", "WRITE or SEND of 16 KB and more")            \
    X(WORK_SHARED_SOURCE, "work", "source that peers write to")              \
    X(WORK_LOOPBACK, "work", "connection within one NIC")                    \
    X(WORK_SHARED_CQ, "work", "completion queue of several QPs")             \
    X(WORK_IPV6, "work", "IPv6")                                             \
    X(BAD_RKEY, "misuse", "wrong remote key")                                \
    X(BAD_BOUNDS, "misuse", "remote range out of bounds")                    \
    X(BAD_RIGHT, "misuse", "missing remote right of the region")             \
    X(BAD_QP_RIGHT, "misuse", "missing remote right of the QP")              \
    X(BAD_DOMAIN, "misuse", "remote key of another domain")                  \
    X(BAD_ZERO, "misuse", "zero bytes with a wrong remote key")              \
    X(BAD_STALE_KEY, "misuse", "remote key deregistered before")             \
    X(BAD_TOO_LONG, "misuse", "SEND longer than the receive")                \
    X(BAD_UNALIGNED, "misuse", "unaligned atomic")                           \
    X(BAD_ATOMIC_RIGHT, "misuse", "atomic without the right of the region")  \
    X(BAD_FLUSH_RIGHT, "misuse", "FLUSH without the right of the region")    \
    X(BAD_WINDOW_QP, "misuse", "window of another queue pair")               \
    X(BAD_WINDOW_STALE, "misuse", "window by its key before it was rebound") \
    X(BAD_INVAL_UNBOUND, "misuse", "invalidation of an unbound window")      \
    X(BAD_INVAL_KIND, "misuse", "invalidation of what is no such window")    \
    X(BAD_INVAL_QP, "misuse", "invalidation of another QP's window")         \
    X(BAD_BIND_BOUNDS, "misuse", "binding out of bounds")                    \
    X(BAD_BIND_RIGHT, "misuse", "binding to a region that forbids it")       \
    X(BAD_BIND_TWICE, "misuse", "binding of a bound window")                 \
    X(BAD_BIND_DOMAIN, "misuse", "binding to a region of another domain")    \
    X(BAD_QP_ATOMIC, "misuse", "missing atomic right of the QP")             \
    X(BAD_QP_FLUSH, "misuse", "missing FLUSH right of the QP")               \
    X(BAD_ZERO_STRICT, "misuse", "zero bytes, wrong key, strict device")     \
    X(BAD_LKEY, "misuse", "wrong local key")                                 \
    X(BAD_LOCAL_BOUNDS, "misuse", "local range out of bounds")               \
    X(BAD_LOCAL_DOMAIN, "misuse", "local key of another domain")             \
    X(BAD_LOCAL_RIGHT, "misuse", "READ into read-only memory")               \
    X(BAD_LOCAL_WINDOW, "misuse", "window as local memory")                  \
    X(BAD_RECV_LKEY, "misuse", "receive with a wrong local key")             \
    X(BAD_WQE_DS, "misuse", "work-queue entry of no length")                 \
    X(BAD_WQE_OPCODE, "misuse", "work-queue entry, unknown opcode")          \
    X(BAD_WQE_OWNER, "misuse", "work-queue entry, wrong QP or index")        \
    X(BAD_WQE_SHORT, "misuse", "work-queue entry, segments missing")         \
    X(BAD_WQE_OPMOD, "misuse", "work-queue entry, unknown modifier")         \
    X(BAD_DEREG_REMOTE, "misuse", "region gone, remote use")                 \
    X(BAD_DEREG_READ, "misuse", "region gone while answering a READ")        \
    X(BAD_DEREG_LOCAL, "misuse", "region gone, local use")                   \
    X(BAD_DEREG_BOUND, "misuse", "region with windows not deregistered")     \
    X(BAD_STARVED, "misuse", "no receives for a while")                      \
    X(BAD_FAILED, "misuse", "QP failed by its host")                         \
    X(BAD_RESET, "misuse", "QP reset with work outstanding")                 \
    X(BAD_DESTROYED, "misuse", "QP destroyed and made anew")                 \
    X(WINDOW_BOUND_1, "window", "type 1 bound")                              \
    X(WINDOW_UNBOUND, "window", "type 1 unbound")                            \
    X(WINDOW_BOUND_2, "window", "type 2 bound")                              \
    X(WINDOW_LOCAL_INVAL, "window", "invalidated by its host")               \
    X(WINDOW_REMOTE_INVAL, "window", "invalidated by its peer")              \
    X(WINDOW_USED, "window", "used by a request")                            \
    X(WINDOW_UNBOUND_USED, "window", "used after it was invalidated")        \
    X(EVENT_REQ_ERR, "event", "invalid request")                             \
    X(EVENT_ACCESS_ERR, "event", "access violation")                         \
    X(EVENT_COMM_EST, "event", "communication established")                  \
    X(EVENT_SQ_DRAINED, "event", "send queue drained")                       \
    X(EVENT_COMPLETION, "event", "completion")                               \
    X(EVENT_SOLICITED, "event", "solicited completion")                      \
    X(XRC_SEND_FIRST, "xrc", "SEND First")                                   \
    X(XRC_SEND_MIDDLE, "xrc", "SEND Middle")                                 \
    X(XRC_SEND_LAST, "xrc", "SEND Last")                                     \
    X(XRC_SEND_ONLY, "xrc", "SEND Only")                                     \
    X(XRC_SEND_LAST_IMM, "xrc", "SEND Last with Immediate")                  \
    X(XRC_SEND_ONLY_IMM, "xrc", "SEND Only with Immediate")                  \
    X(XRC_SEND_LAST_INV, "xrc", "SEND Last with Invalidate")                 \
    X(XRC_SEND_ONLY_INV, "xrc", "SEND Only with Invalidate")                 \
    X(XRC_WRITE_FIRST, "xrc", "WRITE First")                                 \
    X(XRC_WRITE_MIDDLE, "xrc", "WRITE Middle")                               \
    X(XRC_WRITE_LAST, "xrc", "WRITE Last")                                   \
    X(XRC_WRITE_ONLY, "xrc", "WRITE Only")                                   \
    X(XRC_WRITE_LAST_IMM, "xrc", "WRITE Last with Immediate")                \
    X(XRC_WRITE_ONLY_IMM, "xrc", "WRITE Only with Immediate")                \
    X(XRC_READ_REQUEST, "xrc", "READ Request")                               \
    X(XRC_READ_FIRST, "xrc", "READ Response First")                          \
    X(XRC_READ_MIDDLE, "xrc", "READ Response Middle")                        \
    X(XRC_READ_LAST, "xrc", "READ Response Last")                            \
    X(XRC_READ_ONLY, "xrc", "READ Response Only")                            \
    X(XRC_ACK, "xrc", "Acknowledge")                                         \
    X(XRC_COMPARE_SWAP, "xrc", "CmpSwap")                                    \
    X(XRC_FETCH_ADD, "xrc", "FetchAdd")                                      \
    X(XRC_ATOMIC_ACK, "xrc", "ATOMIC Acknowledge")                           \
    X(XRC_NO_SRQ, "xrc", "refused: no such queue")                           \
    X(XRC_OTHER_DOMAIN, "xrc", "refused: queue of another domain")           \
    X(XRC_PLAIN_SRQ, "xrc", "refused: queue not for XRC")                    \
    X(XRC_OTHER_CQ, "xrc", "receive on the queue's own CQ")                  \
    X(XRC_SRQ_IN_USE, "xrc", "queue gone while in use")                      \
    X(XRC_ENTRY_DROPPED, "xrc", "queue gone with completions")               \
    X(SRQ_TAKEN, "srq", "receive of a shared queue")                         \
    X(SRQ_UNRELIABLE, "srq", "receive of a shared queue for UC or UD")       \
    X(SRQ_RNR, "srq", "RNR NAK for an empty shared queue")                   \
    X(SRQ_FLUSHED, "srq", "the one in use flushed")                          \
    X(SRQ_LOST, "srq", "one in use lost by a reset")                         \
    X(LIMIT_SRQ, "limit", "shared receive queue full")                       \
    X(BAD_SRQ_REMADE, "misuse", "shared queue destroyed and made anew")      \
    X(BAD_XRC_REMADE, "misuse", "the same of XRC")                           \
    X(EVENT_FATAL, "event", "fatal")                                         \
    X(EVENT_LAST_WQE, "event", "last receive")                               \
    X(EVENT_CQ_ERR, "event", "completion queue overrun")                     \
    X(EVENT_SRQ_LIMIT, "event", "shared receive queue limit")                \
    X(CQ_HELD_COUNT, "cq", "event moderated by count")                       \
    X(CQ_HELD_TIME, "cq", "event moderated by time")                         \
    X(CQ_RESIZED, "cq", "another ring")                                      \
    X(CQ_NOT_RESIZED, "cq", "ring too short for what waits")                 \
    X(CQ_HELD_BACK, "cq", "completion held for its ACK")                     \
    X(CQ_CROSSED, "cq", "written by another unit")                           \
    X(UNIT_HANDED, "unit", "frame handed over")                              \
    X(UNIT_HANDED_READING, "unit", "more handed over than read meanwhile")   \
    X(UNIT_SRQ_CROSSED, "unit", "shared queue of several units")             \
    X(FORGED_NOISE, "forged", "random bytes")                                \
    X(FORGED_QPN, "forged", "no such queue pair")                            \
    X(FORGED_SOURCE, "forged", "wrong source address")                       \
    X(FORGED_PAST, "forged", "request from the far past")                    \
    X(FORGED_FUTURE, "forged", "request from the far future")                \
    X(FORGED_ANSWER, "forged", "answer to nothing")                          \
    X(FORGED_CREDITS, "forged", "credits")                                   \
    X(FORGED_TRANSPORT, "forged", "packet of another service")               \
    X(NET_LOST, "network", "lost")                                           \
    X(NET_DUPLICATED, "network", "duplicated")                               \
    X(NET_REORDERED, "network", "reordered")                                 \
    X(NET_CORRUPTED, "network", "corrupted")                                 \
    X(NET_TAIL_DROPPED, "network", "queue overflowed")                       \
    X(NET_CUT, "network", "partitioned")                                     \
    X(NET_STORM, "network", "old request again, with many others")           \
    X(OP_UC_SEND_FIRST, "opcode", "UC SEND First")                           \
    X(OP_UC_SEND_MIDDLE, "opcode", "UC SEND Middle")                         \
    X(OP_UC_SEND_LAST, "opcode", "UC SEND Last")                             \
    X(OP_UC_SEND_LAST_IMM, "opcode", "UC SEND Last with Immediate")          \
    X(OP_UC_SEND_ONLY, "opcode", "UC SEND Only")                             \
    X(OP_UC_SEND_ONLY_IMM, "opcode", "UC SEND Only with Immediate")          \
    X(OP_UC_WRITE_FIRST, "opcode", "UC WRITE First")                         \
    X(OP_UC_WRITE_MIDDLE, "opcode", "UC WRITE Middle")                       \
    X(OP_UC_WRITE_LAST, "opcode", "UC WRITE Last")                           \
    X(OP_UC_WRITE_LAST_IMM, "opcode", "UC WRITE Last with Immediate")        \
    X(OP_UC_WRITE_ONLY, "opcode", "UC WRITE Only")                           \
    X(OP_UC_WRITE_ONLY_IMM, "opcode", "UC WRITE Only with Immediate")        \
    X(OP_UD_SEND_ONLY, "opcode", "UD SEND Only")                             \
    X(OP_UD_SEND_ONLY_IMM, "opcode", "UD SEND Only with Immediate")          \
    X(UC_GAP, "UC", "gap inside a message")                                  \
    X(UC_BEGUN_ANEW, "UC", "First inside a message")                         \
    X(UC_ORPHAN, "UC", "packet of a message that never began")               \
    X(UC_JUMPED, "UC", "First out of sequence")                              \
    X(UC_NO_RECEIVE, "UC", "SEND dropped, no receive")                       \
    X(UC_IMM_NO_RECEIVE, "UC", "WRITE with immediate, no receive")           \
    X(UC_ACCESS, "UC", "WRITE dropped, no right")                            \
    X(UC_LENGTH, "UC", "dropped, wrong length")                              \
    X(UC_WRAP, "UC", "PSN past 2^24 inside a message")                       \
    X(UC_ZERO, "UC", "SEND of zero bytes")                                   \
    X(UC_BAD_REMOTE, "UC", "WRITE to the wrong memory")                      \
    X(UC_BAD_LONG, "UC", "SEND longer than the receive")                     \
    X(UD_QKEY, "UD", "dropped, wrong Q_Key")                                 \
    X(UD_NO_RECEIVE, "UD", "dropped, no receive")                            \
    X(UD_SHORT, "UD", "dropped, receive too short")                          \
    X(UD_MTU, "UD", "dropped, longer than the MTU")                          \
    X(UD_OTHER_PEER, "UD", "from another peer than the one before")          \
    X(UD_TO_ITSELF, "UD", "to the queue pair itself")                        \
    X(UD_OWN_QKEY, "UD", "with the Q_Key of its queue pair")                 \
    X(UD_ZERO, "UD", "SEND of zero bytes")                                   \
    X(UD_WRAP, "UD", "PSN past 2^24")                                        \
    X(UD_BAD_QKEY, "UD", "sent with a wrong Q_Key")                          \
    X(UD_BAD_QPN, "UD", "sent to no queue pair")                             \
    X(UD_TO_NOBODY, "UD", "sent to an address that nobody has")              \
    X(UD_BAD_FAMILY, "UD", "sent to an address of another family")           \
    X(UD_BAD_LONG, "UD", "longer than a datagram")                           \
    X(UNRELIABLE_RECV_FAILED, "SQE", "receive failed: to ERR")               \
    X(WC_SEND_LENGTH, "completion", "request: local length error")           \
    X(SQE_ENTERED, "SQE", "entered from RTS")                                \
    X(SQE_WHILE_DRAINING, "SQE", "entered from SQD")                         \
    X(SQE_MID_MESSAGE, "SQE", "entered inside a message")                    \
    X(SQE_BAD_SERVICE, "SQE", "operation of another service")                \
    X(SQE_BAD_LOCAL, "SQE", "wrong local memory")                            \
    X(SQE_BAD_KEY, "SQE", "binding or invalidation refused")                 \
    X(SQE_RECEIVES, "SQE", "packet received meanwhile")                      \
    X(SQE_FLUSHED, "SQE", "request flushed")                                 \
    X(SQE_BUSY, "SQE", "not left before all is flushed")                     \
    X(SQE_LEFT, "SQE", "left for RTS")                                       \
    X(SQD_RECEIVES, "SQE", "packet received while draining")                 \
    X(FORGED_UNRELIABLE, "forged", "for an unreliable service")              \
    X(FORGED_DATAGRAM, "forged", "datagram of a stranger")                   \
    X(CHAIN_HASH_ONE, "chain", "hash get answered")                          \
    X(CHAIN_HASH_SEQUENTIAL, "chain", "hash get of two buckets answered")    \
    X(CHAIN_HASH_PARALLEL, "chain", "the same in parallel")                  \
    X(CHAIN_LIST, "chain", "list walk answered")                             \
    X(CHAIN_LIST_STOPS, "chain", "list walk with break answered")            \
    X(CHAIN_LIST_LOOP, "chain", "recycled list walk answered")               \
    X(CHAIN_MISS, "chain", "miss answered")                                  \
    X(CHAIN_LONG_ANSWER, "chain", "answer of several packets")               \
    X(CHAIN_SOLO, "chain", "random program equals the reference")            \
    X(CHAIN_SOLO_LOOP, "chain", "random program with a recycled loop")       \
    X(CHAIN_UNITS, "chain", "program on two units")                          \
    X(CHAIN_DEPTH_ONE, "chain", "program fetched one by one")                \
    X(CHAIN_DEPTH_MOST, "chain", "program fetched 256 ahead")                \
    X(CHAIN_WRAP_16, "chain", "queue counter past 2^16")                     \
    X(CHAIN_WRAP_24, "chain", "queue counter past 2^24")                     \
    X(CHAIN_WRAP_32, "chain", "queue counter past 2^32")                     \
    X(CHAIN_REQUEST_AGAIN, "chain", "request came again")                    \
    X(CHAIN_REPLY_AGAIN, "chain", "reply sent again")                        \
    X(CHAIN_OVERRUN, "chain", "request before its receive was open")         \
    X(CHAIN_STARVED, "chain", "reply without a receive")                     \
    X(CHAIN_RATED, "chain", "program held by its rate")                      \
    X(CHAIN_KILLED, "chain", "caller killed")                                \
    X(CHAIN_RESET, "chain", "QP of a caller reset")                          \
    X(CHAIN_STOPPED, "chain", "program ended by its host")                   \
    X(CHAIN_HOSTILE, "chain", "request of nonsense")                         \
    X(CHAIN_FAILED, "chain", "program failed by it")                         \
    X(CHAIN_LOST, "chain", "reply given up")                                 \
    X(CHAIN_NEIGHBOUR, "chain", "answer beside a failed program")            \
    X(CHAIN_POLLED, "chain", "answer of a NIC without records")              \
    X(CHAIN_AGAIN, "chain", "another connection, another program")           \
    X(TURN_TAKEN, "turn", "as a lane takes it")                              \
    X(TURN_LATE, "turn", "with a timer due: frames first")                   \
    X(TURN_FULL, "turn", "polls again for want of room")                     \
    X(TURN_STOPPED, "turn", "ends before its work does")                     \
    X(TURN_KEPT, "turn", "port takes only some of the frames")               \
    X(TURN_LEFT, "turn", "ends with frames in the queue")                    \
    X(CC_MARKED, "congestion", "marked packet")                              \
    X(CC_CNP_SENT, "congestion", "CNP sent")                                 \
    X(CC_CNP_HANDLED, "congestion", "CNP heard: the rate falls")             \
    X(CC_CNP_IGNORED, "congestion", "CNP ignored")                           \
    X(CC_HELD, "congestion", "idle until its rate lets it go on")            \
    X(CC_TIMER, "congestion", "timer of a rate")                             \
    X(CC_RECOVERED, "congestion", "no limit any more")                       \
    X(SHARE_SENT, "share", "packet of a share")                              \
    X(SHARE_PACED, "share", "packet of a share with a rate")                 \
    X(SHARE_FILLED, "share", "rate used up by more than its burst")

enum vb_cover_row {
#define VB_COVER_ENUM(id, group, what) VB_COVER_##id,
    VB_COVER_ROWS(VB_COVER_ENUM)
#undef VB_COVER_ENUM
    VB_COVER_COUNT
};

// Worlds that were run by both kinds of polls (sim/equal.c), by what they used.
#define VB_COMPARED(X)        \
    X(RC, "RC")               \
    X(UC, "UC")               \
    X(UD, "UD")               \
    X(XRC, "XRC")             \
    X(ATOMICS, "atomics")     \
    X(WINDOWS, "windows")     \
    X(SRQ, "shared receives") \
    X(DCQCN, "DCQCN")         \
    X(CHAINS, "chains")       \
    X(SHARES, "shares")       \
    X(UNITS, "several units")

enum vb_compared {
#define VB_COMPARED_ENUM(id, what) VB_COMPARED_##id,
    VB_COMPARED(VB_COMPARED_ENUM)
#undef VB_COMPARED_ENUM
    VB_COMPARED_COUNT,
    VB_COMPARED_BY_ROWS = VB_COMPARED_SHARES, // those that rows of the coverage tell
};

struct vb_coverage {
    uint64_t row[VB_COVER_COUNT];
    uint64_t moved[VB_QPS_COUNT][VB_QPS_COUNT];   // state transitions done, by [from][to]
    uint64_t refused[VB_QPS_COUNT][VB_QPS_COUNT]; // state transitions refused
    uint64_t excuse[VB_EXCUSE_COUNT];             // a table of its own: none has to be seen
    uint64_t compared[VB_COMPARED_COUNT];
    bool chains_only;     // of worlds of chain programs: rows of others need not be seen
    struct vb_cmcover cm; // of worlds of communication managers, a table of its own
};

static inline void vb_cover(struct vb_coverage *c, enum vb_cover_row row)
{
    c->row[row]++;
}

static inline void vb_excuse(struct vb_coverage *c, enum vb_excuse excuse)
{
    c->excuse[excuse]++;
}

// Rows of the frame's opcode and of a completion's syndrome; VB_COVER_COUNT: none.
enum vb_cover_row vb_cover_of_opcode(uint8_t opcode);
enum vb_cover_row vb_cover_of_syndrome(uint8_t syndrome, bool receive);

// True when the transition is one that the device must carry out.
bool vb_cover_legal(enum vb_qp_state from, enum vb_qp_state to);

void vb_cover_merge(struct vb_coverage *into, const struct vb_coverage *from);
// Prints the table; returns how many rows are zero.
uint32_t vb_cover_print(const struct vb_coverage *c, FILE *out);
uint32_t vb_cover_zero_rows(const struct vb_coverage *c);
// The same of what was compared.
uint32_t vb_cover_print_compared(const struct vb_coverage *c, FILE *out);
uint32_t vb_cover_uncompared(const struct vb_coverage *c);

#endif
