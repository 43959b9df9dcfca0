// SPDX-License-Identifier: Apache-2.0
// The communication manager of one NIC: connections and lookups of services by messages on queue
// pair 1 (chapter 12 of the InfiniBand specification).
//
// A machine without I/O: calls, messages and the time go in, messages and events come out. It takes
// memory when it is created and never again: who asks for more is refused. One thread at a time.
#ifndef VB_CM_CM_H
#define VB_CM_CM_H

#include "cm/message.h"
#include "nic/frame.h"

struct vb_cm;

struct vb_cm_opts {
    uint64_t seed[2]; // of communication ids: who does not know it cannot foretell them
    struct vb_ip local;
    uint64_t ca_guid;
    uint32_t connections; // at once, those that are ending included; 0: 1,024
    uint32_t listeners;   // 0: 64
    uint32_t outbox;      // messages that wait for vb_cm_take_message(); 0: 256
    // Communication ids begin with these bits, so that several managers can share one address.
    uint32_t id_prefix;
    uint8_t id_prefix_bits; // 0 to 16
    uint8_t timeout;        // of an answer, 4.096 us * 2^x; 0: 18, about a second
    uint8_t retries;        // of a message without answer, up to 15; 0: 15
    uint8_t packet_life;    // of the network, 4.096 us * 2^x; 0: 14, 67 ms
};

enum vb_cm_state {
    VB_CM_FREE,
    VB_CM_REQ_SENT,
    VB_CM_MRA_REQ_RCVD, // the peer needs longer for our REQ
    VB_CM_REP_RCVD,     // until vb_cm_confirm()
    VB_CM_MRA_REP_SENT, // and we said that it takes longer
    VB_CM_REQ_RCVD,     // until vb_cm_accept()
    VB_CM_MRA_REQ_SENT,
    VB_CM_REP_SENT,
    VB_CM_MRA_REP_RCVD,
    VB_CM_ESTABLISHED,
    VB_CM_DREQ_SENT,
    VB_CM_TIMEWAIT, // late messages are told from new ones
    VB_CM_REFUSED,  // by us: the same REJ answers repetitions
    VB_CM_SIDR_REQ_SENT,
    VB_CM_SIDR_REQ_RCVD, // until vb_cm_sidr_reply()
    VB_CM_SIDR_REPLIED,  // the same SIDR_REP answers repetitions
    VB_CM_OVER,          // its last event waits to be taken
    VB_CM_STATES
};

enum vb_cm_event_kind {
    VB_CM_EVENT_REQUEST,      // to be answered by vb_cm_accept() or vb_cm_reject()
    VB_CM_EVENT_REPLY,        // to be answered by vb_cm_confirm() or vb_cm_reject()
    VB_CM_EVENT_ESTABLISHED,  // the passive side's
    VB_CM_EVENT_REJECTED,     // message.rej says why
    VB_CM_EVENT_UNREACHABLE,  // no answer
    VB_CM_EVENT_DISCONNECTED, // the peer asked, or has answered our asking, or did not
    VB_CM_EVENT_SIDR_REQUEST, // to be answered by vb_cm_sidr_reply()
    VB_CM_EVENT_SIDR_REPLY,   // the last of its id
    VB_CM_EVENT_GONE,         // the id means nothing any more; its queue pair's number may be used
    VB_CM_EVENTS
};

struct vb_cm_event {
    enum vb_cm_event_kind kind;
    uint32_t id;                  // the connection's, for calls
    void *listener;               // of a request: what vb_cm_listen() was told
    struct vb_ip peer;            // who speaks
    struct vb_ip local;           // and to which of our addresses
    bool by_peer;                 // REJECTED, DISCONNECTED: it was the peer's word
    uint16_t reason;              // REJECTED
    uint32_t private_len;         // 0: the event has none
    struct vb_cm_message message; // what the peer said: REQ, REP, RTU, REJ, DREQ, SIDR_…
};

struct vb_cm_stats {
    uint64_t received[VB_CM_KINDS], sent[VB_CM_KINDS];
    uint64_t malformed;  // messages that are none
    uint64_t stray;      // for no connection, or not in its state
    uint64_t duplicate;  // answered as before
    uint64_t refused;    // requests for want of a listener, room or reason
    uint64_t overflowed; // messages that the outbox had no room for
    uint64_t retried, timed_out;
};

// NULL: no memory, or an option out of range.
struct vb_cm *vb_cm_create(const struct vb_cm_opts *opts);
void vb_cm_destroy(struct vb_cm *cm);

// Requests for service ids that agree in the bits of `mask`; 0: in all. At most `backlog` of them
// wait for an answer at once; 0: 128. -EADDRINUSE; -ENOSPC: too many listeners.
int vb_cm_listen(struct vb_cm *cm, uint64_t service_id, uint64_t mask, uint32_t backlog,
                 void *listener);
// Requests that nobody was told of are rejected, the others stay. -ENOENT.
int vb_cm_unlisten(struct vb_cm *cm, uint64_t now_ns, uint64_t service_id, uint64_t mask);

struct vb_cm_private {
    const void *data;
    uint32_t len; // what the message has room for, at most; the rest is zero
};

struct vb_cm_request {
    struct vb_ip peer;
    uint64_t service_id;
    uint32_t qpn, qkey;
    uint32_t psn; // the first one that the peer is to send
    uint8_t transport, extended_transport, srq, flow_control;
    uint8_t mtu; // 1: 256 bytes to 5: 4096
    uint8_t responder_resources, initiator_depth, retries, rnr_retries, ack_timeout;
    uint8_t hop_limit, traffic_class;   // 0: 64 hops
    uint8_t sl;                         // 4 bits
    uint32_t flow_label;                // 20 bits
    uint32_t vendor_id, vendor_options; // of ECE
    struct vb_cm_private private_data;
    struct vb_ip local; // which of our addresses asks; zero: the manager's
};

struct vb_cm_answer {
    uint32_t qpn, qkey;
    uint32_t psn; // the first one that the peer is to send
    uint8_t srq, flow_control, responder_resources, initiator_depth, rnr_retries;
    uint8_t target_ack_delay;
    uint32_t vendor_id, vendor_options;
    struct vb_cm_private private_data;
};

struct vb_cm_refusal {
    uint16_t reason; // enum vb_cm_reason
    uint8_t info_len;
    uint8_t info[VB_CM_INFO_MAX];
    struct vb_cm_private private_data;
};

struct vb_cm_lookup {
    struct vb_ip peer;
    uint64_t service_id;
    struct vb_cm_private private_data;
    struct vb_ip local; // as of a request
};

struct vb_cm_found {
    enum vb_sidr_status status;
    uint32_t qpn, qkey;
    struct vb_cm_private private_data;
};

// Calls return 0; -ENOENT: no such connection; -EINVAL: not in its state, or too much private data;
// -ENOBUFS: no room for another connection.
int vb_cm_connect(struct vb_cm *cm, uint64_t now_ns, const struct vb_cm_request *request,
                  uint32_t *id);
int vb_cm_accept(struct vb_cm *cm, uint64_t now_ns, uint32_t id, const struct vb_cm_answer *answer);
// No event follows: the id is the peer's memory now.
int vb_cm_reject(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                 const struct vb_cm_refusal *refusal);
int vb_cm_confirm(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                  const struct vb_cm_private *private_data);
// The answer to a REQ or a REP takes up to this exponent of time longer (MRA).
int vb_cm_delay(struct vb_cm *cm, uint64_t now_ns, uint32_t id, uint8_t service_timeout);
// The first packet came on the queue pair before the RTU did.
int vb_cm_heard(struct vb_cm *cm, uint64_t now_ns, uint32_t id);
// The same, of whatever waits for an RTU with this queue pair of ours.
void vb_cm_heard_on(struct vb_cm *cm, uint64_t now_ns, uint32_t qpn);
// VB_CM_EVENT_DISCONNECTED follows, when the peer has answered or did not in time.
int vb_cm_disconnect(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                     const struct vb_cm_private *private_data);
// Whatever its state: ends it as politely as that allows, and no event of it follows.
int vb_cm_abandon(struct vb_cm *cm, uint64_t now_ns, uint32_t id);
// Whether one more message can wait to be taken.
bool vb_cm_has_room(const struct vb_cm *cm);
// Messages that wait to be taken, and peers that were told that their connection is over and have
// not answered yet.
uint32_t vb_cm_leaving(const struct vb_cm *cm);

int vb_cm_sidr_ask(struct vb_cm *cm, uint64_t now_ns, const struct vb_cm_lookup *lookup,
                   uint32_t *id);
int vb_cm_sidr_reply(struct vb_cm *cm, uint64_t now_ns, uint32_t id,
                     const struct vb_cm_found *found);

// The payload of a datagram that came to queue pair 1.
void vb_cm_input(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from, const uint8_t *mad,
                 size_t len);
// The same at another address than the manager's: what answers it leaves from there, too.
void vb_cm_input_at(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                    const struct vb_ip *to, const uint8_t *mad, size_t len);
// Does what is due. Returns when to come again; UINT64_MAX: nothing waits for time.
uint64_t vb_cm_poll(struct vb_cm *cm, uint64_t now_ns);
bool vb_cm_take_message(struct vb_cm *cm, struct vb_ip *to, uint8_t mad[VB_MAD_BYTES]);
bool vb_cm_take_message_from(struct vb_cm *cm, struct vb_ip *from, struct vb_ip *to,
                             uint8_t mad[VB_MAD_BYTES]);
bool vb_cm_take_event(struct vb_cm *cm, struct vb_cm_event *event);
bool vb_cm_has_event(const struct vb_cm *cm);

// FREE: no such connection.
enum vb_cm_state vb_cm_state(const struct vb_cm *cm, uint32_t id);
const char *vb_cm_state_text(enum vb_cm_state state);
const char *vb_cm_event_text(enum vb_cm_event_kind kind);
const struct vb_cm_stats *vb_cm_stats(const struct vb_cm *cm);
uint32_t vb_cm_in_use(const struct vb_cm *cm); // connections, those that are ending included

#endif
