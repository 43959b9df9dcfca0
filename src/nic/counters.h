// SPDX-License-Identifier: Apache-2.0
// Counters of a processing unit, named as users of soft-RoCE and mlx5 know them.
#ifndef VB_NIC_COUNTERS_H
#define VB_NIC_COUNTERS_H

#include <stdint.h>

// Of the notification point (np) and of the reaction point (rp).
#define VB_CONGESTION_COUNTERS(X) \
    X(np_cnp_sent)                \
    X(np_ecn_marked_roce_packets) \
    X(rp_cnp_handled)             \
    X(rp_cnp_ignored)

#define VB_COUNTERS(X)        \
    X(sent_pkts)              \
    X(rcvd_pkts)              \
    X(sent_bytes)             \
    X(rcvd_bytes)             \
    X(duplicate_request)      \
    X(out_of_seq_request)     \
    X(rcvd_rnr_err)           \
    X(send_rnr_err)           \
    X(rcvd_seq_err)           \
    X(packet_seq_err)         \
    X(ack_deferred)           \
    X(retry_exceeded_err)     \
    X(retry_rnr_exceeded_err) \
    X(completer_retry_err)    \
    X(local_ack_timeout_err)  \
    X(rx_write_requests)      \
    X(rx_read_requests)       \
    X(rx_send_requests)       \
    X(rx_atomic_requests)     \
    X(rx_flush_requests)      \
    X(rx_datagrams)           \
    X(rx_dropped_datagrams)   \
    X(qkey_violations)        \
    X(lost_events)            \
    X(out_of_buffer)          \
    X(rx_malformed)           \
    X(rx_stranger)            \
    X(rx_handed_over)         \
    X(rx_no_mailbox)          \
    X(cq_overrun)             \
    VB_CONGESTION_COUNTERS(X)

// Those that a queue pair has of its own; all of them are the unit's, too.
#define VB_QP_COUNTERS(X)     \
    X(sent_pkts)              \
    X(rcvd_pkts)              \
    X(sent_bytes)             \
    X(rcvd_bytes)             \
    X(rx_write_requests)      \
    X(rx_read_requests)       \
    X(rx_send_requests)       \
    X(rx_atomic_requests)     \
    X(duplicate_request)      \
    X(out_of_seq_request)     \
    X(rcvd_rnr_err)           \
    X(send_rnr_err)           \
    X(rcvd_seq_err)           \
    X(packet_seq_err)         \
    X(retry_exceeded_err)     \
    X(retry_rnr_exceeded_err) \
    X(local_ack_timeout_err)  \
    X(out_of_buffer)          \
    X(np_cnp_sent)

#define VB_COUNTER_FIELD(name) uint64_t name;

struct vb_counters {
    VB_COUNTERS(VB_COUNTER_FIELD)
};

struct vb_qp_counters {
    VB_QP_COUNTERS(VB_COUNTER_FIELD)
};

#undef VB_COUNTER_FIELD

#endif
