// SPDX-License-Identifier: Apache-2.0
// Outcomes that the model does not judge, each with a name and a count. EXCUSES.md says why each
// one is kept; a test compares it with this list.
#ifndef VB_SIM_EXCUSE_H
#define VB_SIM_EXCUSE_H

#include <stdint.h>

// X(identifier, what is excused)
// Those of a timeout come first: the reasons for which no answer came.
#define VB_EXCUSES(X)                                                        \
    X(TIMEOUT_DROPPED, "timeout: the network dropped a packet")              \
    X(TIMEOUT_UNDER_WAY, "timeout: a packet is still under way")             \
    X(TIMEOUT_OVERTAKEN, "timeout: a packet was overtaken")                  \
    X(TIMEOUT_UNHEARD, "timeout: the peer was not listening")                \
    X(TIMEOUT_PEER_BUSY, "timeout: the peer has not had its turn")           \
    X(TIMEOUT_PEER_FAILED, "timeout: the peer has failed")                   \
    X(TIMEOUT_GIVEN_UP, "timeout: the peer gave the answer up")              \
    X(TIMEOUT_FORGED, "timeout: a forged packet made the peer complain")     \
    X(END_SPENT, "retries end after healing, but were spent before it")      \
    X(END_PEER_FAILED, "retries end after healing: the peer has failed")     \
    X(END_GIVEN_UP, "retries end after healing: the answer was given up")    \
    X(END_PACED, "retries end after healing: a rate holds the answer")       \
    X(RATE_UNSURE, "rate not judged: so near its limit, rounding decides")   \
    X(ANSWER_MEMORY_GONE, "READ not answered again: its memory is gone")     \
    X(ANSWERS_FULL, "duplicate not answered: too many answers are owed")     \
    X(TIMER_LATE, "timer fired late: the NIC slept or took frames first")    \
    X(TIMER_SHARED, "timer due, but another share's turn comes before it")   \
    X(TIMER_EITHER, "timer runs since a credit was waited for, or before")   \
    X(WINDOW_BETWEEN, "idle with more in flight than the least window")      \
    X(ASKED_WITHOUT_NEED, "packet asks for an ACK that nobody needs")        \
    X(WENT_BACK_TO_ASK, "newest packet not repeated: its memory is gone")    \
    X(CREDITS_HALF, "told fewer credits than there are receives")            \
    X(OWN_FAULT_FIRST, "request of a failed QP tells its own fault")         \
    X(ERROR_FIELDS, "fields of a completion with an error")                  \
    X(SEEN_EARLY, "receive seen before the port has its ACK")                \
    X(CQ_OVERRUN, "completion lost by an overrun")                           \
    X(EVENT_RETIMED, "event of a CQ whose moderation has changed")           \
    X(EVENT_ANY_STEP, "drained or last receive, told with any step")         \
    X(SQE_BUSY, "SQE not left while something may be flushed")               \
    X(CHAIN_END_DROPPED, "chains: retries end, the network dropped a frame") \
    X(CHAIN_END_SLOW, "chains: retries end before healing, none dropped")    \
    X(CHAIN_END_UNSEEN, "chains: the same on a NIC without records")         \
    X(CHAIN_END_SPENT, "chains: retries end after healing, began before")    \
    X(CHAIN_PEER_GONE, "chains: retries end, the peer has left or failed")   \
    X(CHAIN_ORPHAN, "chains: program whose caller is gone fails")            \
    X(CHAIN_STOPPED, "chains: program flushes that its host has ended")      \
    X(CHAIN_HOSTILE, "chains: program fails after a request of nonsense")    \
    X(CHAIN_NONSENSE, "chains: answer to a request of nonsense, or later")

enum vb_excuse {
#define VB_EXCUSE_ENUM(id, what) VB_EXCUSE_##id,
    VB_EXCUSES(VB_EXCUSE_ENUM)
#undef VB_EXCUSE_ENUM
    VB_EXCUSE_COUNT,
    VB_EXCUSE_CHAINS = VB_EXCUSE_CHAIN_END_DROPPED, // the first one of worlds of chain programs
};

#endif
