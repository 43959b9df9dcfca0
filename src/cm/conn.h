// SPDX-License-Identifier: Apache-2.0
// The communication manager from inside: connections, and the lists that find them.
#ifndef VB_CM_CONN_H
#define VB_CM_CONN_H

#include "base/fifo.h"
#include "cm/cm.h"
#include "nic/timer.h"

// Ways to find a connection. A peer's numbers are its choice, so those are hashed by a key.
enum vb_cm_index {
    VB_CM_BY_LOCAL,  // our communication id
    VB_CM_BY_OWN,    // our queue pair, of what we accepted
    VB_CM_BY_REMOTE, // the peer's address and its id, of a connection or of a lookup
    VB_CM_BY_QPN,    // the peer's address and its queue pair
    VB_CM_INDEXES
};

struct vb_cm_conn {
    struct vb_link link; // among the free, or the refusals that are remembered
    struct vb_link due;  // among those with an event to take
    struct vb_timer timer;
    enum vb_cm_state state;
    uint32_t events; // bits of enum vb_cm_event_kind, told from the lowest on
    bool orphan;     // nobody asks for its events
    bool active;     // the REQ was ours
    bool sidr;       // a lookup, whose ids are others than connections'
    bool by_peer;
    uint16_t reason;
    uint16_t indexed;             // bits of enum vb_cm_index
    uint32_t next[VB_CM_INDEXES]; // in the chain, as number + 1
    uint64_t service_id;          // that was asked for
    uint16_t asker_port;          // of rdma_cm; 0: it said none
    uint8_t transport;
    uint32_t local_id, remote_id, local_qpn, remote_qpn;
    uint64_t tid; // of the exchange that the peer has begun, or ours
    uint64_t peer_guid;
    struct vb_ip peer, local;
    uint32_t listener; // number + 1 while it counts as its backlog; 0: not
    void *listener_tag;
    uint8_t retries_left, retries;
    bool early;                // what was said has not been repeated yet
    uint8_t alternate;         // the REQ named a second path
    uint64_t answer_ns;        // how long the peer may take
    struct vb_cm_message said; // by the peer, for the event
    uint8_t mad[VB_MAD_BYTES]; // what we sent last and may have to repeat
};

struct vb_cm_listener {
    uint64_t service_id, mask;
    uint32_t backlog, pending;
    void *tag;
    bool used;
};

struct vb_cm_out {
    struct vb_ip from, to;
    uint8_t mad[VB_MAD_BYTES];
};

struct vb_cm {
    struct vb_cm_opts opts;
    struct vb_ip here; // what the message at hand came to; else the manager's address
    uint64_t drawn;    // ids so far
    uint32_t tid_high;
    struct vb_cm_conn *conn;
    struct vb_fifo free, refusals, due;
    uint32_t in_use;
    uint32_t *bucket[VB_CM_INDEXES]; // as number + 1
    uint32_t bucket_mask;
    struct vb_timers timers;
    struct vb_cm_listener *listener;
    struct vb_cm_out *outbox;
    uint32_t out_head, out_count;
    struct vb_cm_stats stats;
};

// ---- table.c

int vb_cm_table_create(struct vb_cm *cm); // -ENOMEM
void vb_cm_table_destroy(struct vb_cm *cm);
// With an id of its own, in no state. NULL: no room.
struct vb_cm_conn *vb_cm_conn_alloc(struct vb_cm *cm, const struct vb_ip *peer);
void vb_cm_conn_free(struct vb_cm *cm, struct vb_cm_conn *c);
void vb_cm_conn_index(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_index index);
void vb_cm_conn_unindex(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_index index);
struct vb_cm_conn *vb_cm_find_local(const struct vb_cm *cm, uint32_t id);
// Of those that we accepted with a queue pair, the next after `c`; NULL stands for the first.
struct vb_cm_conn *vb_cm_next_own(const struct vb_cm *cm, const struct vb_cm_conn *c, uint32_t qpn);
struct vb_cm_conn *vb_cm_find_remote(const struct vb_cm *cm, const struct vb_ip *peer, uint32_t id,
                                     bool sidr);
struct vb_cm_conn *vb_cm_find_qpn(const struct vb_cm *cm, const struct vb_ip *peer, uint32_t qpn);
struct vb_cm_listener *vb_cm_find_listener(struct vb_cm *cm, uint64_t service_id);
// It no longer counts as its listener's backlog.
void vb_cm_answered(struct vb_cm *cm, struct vb_cm_conn *c);

// ---- send.c

void vb_cm_send(struct vb_cm *cm, const struct vb_ip *from, const struct vb_ip *to,
                const uint8_t mad[VB_MAD_BYTES]);
// In answer to the message at hand; and what a connection has to say.
void vb_cm_send_message(struct vb_cm *cm, const struct vb_ip *to, const struct vb_cm_message *m);
void vb_cm_send_once(struct vb_cm *cm, const struct vb_cm_conn *c, const struct vb_cm_message *m);
// Sends, and keeps it to be repeated.
void vb_cm_send_kept(struct vb_cm *cm, struct vb_cm_conn *c, const struct vb_cm_message *m);
void vb_cm_send_again(struct vb_cm *cm, const struct vb_cm_conn *c);
// Waits for the answer, as often as the retries say. What is lost is mostly lost on the way to a
// full socket: it is said once more long before the first time is over.
void vb_cm_expect(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns);
// A REJ for what the peer said.
void vb_cm_send_rej(struct vb_cm *cm, const struct vb_ip *to, const struct vb_cm_message *about,
                    uint16_t reason);
// A REJ for the connection, in its state.
void vb_cm_form_rej(const struct vb_cm *cm, const struct vb_cm_conn *c,
                    const struct vb_cm_refusal *refusal, struct vb_cm_message *m);
void vb_cm_form_dreq(const struct vb_cm_conn *c, struct vb_cm_message *m);
void vb_cm_form_ids(const struct vb_cm_conn *c, enum vb_cm_kind kind, struct vb_cm_message *m);
bool vb_cm_set_private(struct vb_cm_message *m, const struct vb_cm_private *p); // false: too long

// ---- cm.c
const struct vb_ip *vb_cm_local(const struct vb_cm *cm, const struct vb_ip *wanted);

// ---- life.c: how connections move on and end

void vb_cm_tell(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_event_kind kind);
// Forgets what was to be told of it.
void vb_cm_untell(struct vb_cm_conn *c);
void vb_cm_enter_timewait(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns);
// Never was a connection, or is none any more: goes when its last event is taken.
void vb_cm_end(struct vb_cm *cm, struct vb_cm_conn *c, enum vb_cm_event_kind kind, uint16_t reason);
// Our REJ is what is left of it.
void vb_cm_refuse(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns,
                  const struct vb_cm_refusal *refusal);
// The peer is told by DREQ; the connection is over as soon as it answers, or does not.
void vb_cm_leave(struct vb_cm *cm, struct vb_cm_conn *c, uint64_t now_ns,
                 const struct vb_cm_private *private_data);

// ---- facts.c: for who looks

// What was asked for, and by which port, as the private data of the question say.
void vb_cm_note_service(struct vb_cm_conn *c, uint64_t service_id, const uint8_t *private_data);

// ---- receive.c, sidr.c: messages

void vb_cm_receive(struct vb_cm *cm, uint64_t now_ns, const struct vb_ip *from,
                   const struct vb_cm_message *m);
void vb_cm_sidr_request(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m);
void vb_cm_sidr_answer(struct vb_cm *cm, const struct vb_ip *from, const struct vb_cm_message *m);
void vb_cm_sidr_refuse(struct vb_cm *cm, uint64_t now_ns, struct vb_cm_conn *c,
                       enum vb_sidr_status status);

enum {
    VB_CM_EARLY = 8,        // the part of the first time before a repetition that is not counted
    VB_CM_TIMEOUT_MAX = 22, // of what a peer may ask us to wait for an answer: 17 s
};
#define VB_CM_MRA_MAX_NS 30000000000ull // of what it may ask us to be patient

#endif
